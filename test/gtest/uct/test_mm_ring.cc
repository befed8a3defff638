/* Halyard: the ring of lines of mm by itself: random messages against a model, two threads,
 * positions that wrap, writers that stop amid a message, and memory full of anything.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <fake_sys.h>
#include <mp/processes.h>
#include <ucs/sys/sys.h>
#include <uct/mm/mm_ring.h>

#include <seed.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <unistd.h>

using namespace uct_test;

namespace {

/* A ring with both its ends, and an interface that does nothing but deliver. */
class ring_bench {
public:
    using handler = std::function<void(unsigned id, const uint8_t *data, size_t length)>;

    /* buffer_min: bytes from which on messages go through buffers; SIZE_MAX: there are none. */
    explicit ring_bench(uint32_t lines, uint32_t quantum, size_t buffer_min = SIZE_MAX,
                        bool has_wide = false, uct_mm_area_t area = UCT_MM_AREA_USUAL)
        : shape{lines, quantum}
    {
        const size_t long_max = uct_mm_ring_long_max(&shape, UCT_MM_AREA_WIDE);

        EXPECT_LE(uct_mm_ring_long_max(&shape, area), long_max) << "the staging holds either";
        memory = static_cast<uint8_t *>(aligned_alloc(64, size()));
        memset(memory, 0, size());
        EXPECT_EQ(UCS_OK, uct_mm_staging_init(&staging, long_max));
        uct_mm_reader_init(&reader, memory, &shape, &staging);
        uct_mm_writer_init(&writer, memory, &shape, &side);
        if (buffer_min != SIZE_MAX) {
            const size_t size = uct_mm_ring_buffers_size(&shape, area);
            buffers.resize(size + uct_mm_ring_buffers_size(&shape, UCT_MM_AREA_WIDE));
            uct_mm_buffers_init(&reader.buffers, buffers.data(), &shape, area);
            uct_mm_writer_use_buffers(&writer, buffers.data(), &shape, area, buffer_min);
            if (has_wide) {
                uct_mm_buffers_init(&reader.wide, buffers.data() + size, &shape, UCT_MM_AREA_WIDE);
                uct_mm_buffers_init(&writer.wide, buffers.data() + size, &shape, UCT_MM_AREA_WIDE);
            }
        }
        for (unsigned id = 0; id < UCT_AM_ID_MAX; ++id) {
            m_contexts[id]     = {this, id};
            iface.am[id].cb    = deliver;
            iface.am[id].arg   = &m_contexts[id];
            iface.am[id].place = (id % 2 == 1) ? UCT_AM_IN_PLACE : UCT_AM_COPIED;
            if (id % 4 == 3) {
                uct_iface_set_am_parts(&iface, id, begin, end);
            }
        }
        side.am = iface.am;
    }

    ~ring_bench()
    {
        uct_mm_reader_cleanup(&reader, &iface);
        EXPECT_TRUE(place.empty());
        EXPECT_LE(staging.count, 1u) << "buffers come back";
        uct_mm_staging_cleanup(&staging);
        free(memory);
    }

    ring_bench(const ring_bench &) = delete;
    ring_bench &operator=(const ring_bench &) = delete;

    size_t size() const
    {
        return uct_mm_ring_size(&shape);
    }

    size_t message_max() const
    {
        return uct_mm_ring_message_max(&shape);
    }

    /* Of a message that goes through buffers, where there are some that such messages may take. */
    size_t longest() const
    {
        return std::max(message_max(), writer.long_max);
    }

    /* As the progress of an interface does. */
    unsigned receive(unsigned max)
    {
        if (uct_mm_reader_ready(&reader)) {
            return uct_mm_reader_receive(&reader, &iface, max);
        }
        if (uct_mm_reader_should_release(&reader)) {
            uct_mm_reader_release(&reader, reader.pos);
        }
        return 0;
    }

    /* Lets both ends start at another place of the endless count of lines. */
    void move_to(uint32_t pos)
    {
        writer.pos      = pos;
        writer.limit    = pos + shape.lines;
        reader.pos      = pos;
        reader.released = pos;
        reader.line     = &reader.lines[pos & reader.mask];
        reader.seq      = (pos >> reader.shift) + 1;
        ucs_atomic_store_relaxed(&writer.control->read_pos, pos);
    }

    uct_mm_ring_shape_t shape;
    uint8_t *memory;
    bytes buffers;
    unsigned in_buffers = 0; /* messages delivered there, */
    unsigned in_parts   = 0; /* or taken part by part */
    bool has_place      = true; /* for parts */
    bytes place;                /* where they go, behind the header; empty: nothing is on its way */
    ucs_status_t ended  = UCS_INPROGRESS;
    uct_mm_staging_t staging;
    uct_mm_reader_t reader;
    uct_mm_side_t side = {}; /* the writer's */
    uct_mm_writer_t writer;
    uct_iface_t iface = {};
    handler on_message;

private:
    struct context {
        ring_bench *bench;
        unsigned id;
    };

    static void deliver(void *arg, const void *data, size_t length)
    {
        const context *c     = static_cast<context *>(arg);
        const uint8_t *bytes = static_cast<const uint8_t *>(data);
        const bool in_buffer = !c->bench->buffers.empty() && (bytes >= c->bench->buffers.data()) &&
                               (bytes < c->bench->buffers.data() + c->bench->buffers.size());

        c->bench->in_buffers += in_buffer ? 1 : 0;
        EXPECT_TRUE(!in_buffer || (c->id % 2 == 1)) << "the sender could change it";
        c->bench->on_message(c->id, static_cast<const uint8_t *>(data), length);
    }

    static void *begin(void *arg, const void *header, size_t header_length, size_t length,
                       void **token_p)
    {
        const auto *first = static_cast<const uint8_t *>(header);
        ring_bench *bench = static_cast<context *>(arg)->bench;

        EXPECT_TRUE(bench->place.empty());
        EXPECT_GE(length, UCT_MM_PARTED_MIN);
        if (!bench->has_place) {
            return nullptr;
        }
        bench->place.assign(first, first + header_length);
        bench->place.resize(header_length + length);
        *token_p = arg;
        return bench->place.data() + header_length;
    }

    static void end(void *token, ucs_status_t status)
    {
        const context *c  = static_cast<context *>(token);
        ring_bench *bench = c->bench;

        EXPECT_FALSE(bench->place.empty()) << "it ends once";
        bench->ended = status;
        if (status == UCS_OK) {
            ++bench->in_parts;
            bench->on_message(c->id, bench->place.data(), bench->place.size());
        }
        bench->place.clear();
    }

    context m_contexts[UCT_AM_ID_MAX];
};

struct message {
    unsigned id;
    bytes data;

    bool operator==(const message &other) const
    {
        return (id == other.id) && (data == other.data);
    }
};

size_t random_length(seeded_random &rnd, size_t max)
{
    switch (rnd.below(4)) {
    case 0:
        return rnd.below(UCT_MM_FIRST_DATA + 1);
    case 1:
        return std::min<size_t>(max, UCT_MM_FIRST_DATA - 2 + rnd.below(UCT_MM_REST_DATA + 5));
    case 2:
        return max - rnd.below(3);
    default:
        return rnd.below(max + 1);
    }
}

/* Sends by the function that packs, which is told of `most` bytes. */
ucs_status_t ring_pack(uct_mm_writer_t *writer, const message &m, size_t most)
{
    struct packing {
        const bytes &data;
        size_t most;
        void *dest;
    };
    alignas(64) static thread_local uint8_t space[1 << 20];
    const auto pack = [](void *dest, void *arg, size_t max) {
        packing &p = *static_cast<packing *>(arg);
        EXPECT_EQ(p.most, max);
        p.dest = dest;
        std::copy(p.data.begin(), p.data.end(), static_cast<uint8_t *>(dest));
        return p.data.size();
    };
    packing p            = {m.data, most, nullptr};
    const bool is_direct = (most >= writer->single_min) && !writer->is_far && !writer->can_be_far;

    EXPECT_LE(most, sizeof(space));
    const ucs_status_t status =
        uct_mm_writer_send_packed(writer, m.id, pack, &p, space, &most);
    EXPECT_TRUE((status != UCS_OK) || (most == m.data.size()));
    EXPECT_TRUE((status != UCS_OK) || !is_direct || (p.dest != space));
    EXPECT_TRUE(!writer->is_far || (p.dest == nullptr) || (p.dest == space));
    return status;
}

/* Sends by one of the four functions, cut into entries in some way; most: bytes that the one which
 * packs is told, if they are more. */
ucs_status_t ring_send(uct_mm_writer_t *writer, seeded_random &rnd, const message &m,
                       size_t most = 0)
{
    constexpr size_t TWO_MIN = UCT_MM_FIRST_DATA + 1, TWO_MAX = TWO_MIN + UCT_MM_REST_DATA - 1;

    if ((m.data.size() >= TWO_MIN) && (m.data.size() <= TWO_MAX) && rnd.one_in(2)) {
        if (!uct_mm_writer_has_room(writer, 2)) {
            return UCS_ERR_NO_RESOURCE;
        }
        uint64_t header;
        memcpy(&header, m.data.data(), sizeof(header));
        uct_mm_writer_send_two(writer, m.id, header, m.data.data() + sizeof(header),
                               m.data.size() - sizeof(header));
        return UCS_OK;
    }
    if (rnd.one_in(2)) {
        const size_t header = rnd.below(std::min<size_t>(m.data.size(), UCT_MM_FIRST_DATA) + 1);
        return uct_mm_writer_send_pair(writer, m.id, m.data.data(), header, m.data.data() + header,
                                       m.data.size() - header);
    }

    if (rnd.one_in(2)) {
        return ring_pack(writer, m, std::max(most, m.data.size()));
    }

    std::vector<uct_iov_t> iov;
    size_t offset = 0;
    while (offset < m.data.size()) {
        const size_t part = rnd.below(std::min<size_t>(m.data.size() - offset, 200) + 1);
        iov.push_back({const_cast<uint8_t *>(m.data.data()) + offset, part, nullptr});
        offset += part;
    }
    return uct_mm_writer_send_iov(writer, m.id, iov.data(), iov.size(), m.data.size());
}

void random_traffic(ring_bench &bench, seeded_random &rnd)
{
    const auto steps = static_cast<unsigned>(4000 / mp::slowness());
    std::deque<message> model;
    uint64_t number = 0, refused = 0, received = 0;

    bench.on_message = [&](unsigned id, const uint8_t *data, size_t length) {
        ASSERT_FALSE(model.empty());
        ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(data) % 8);
        ASSERT_TRUE((message{id, bytes(data, data + length)}) == model.front());
        model.pop_front();
        ++received;
    };
    for (unsigned i = 0; i < steps; ++i) {
        ++bench.side.turns;
        bench.writer.at_once = ucs_arch_can_store_16() && rnd.one_in(2);
        if (rnd.one_in(10)) {
            bench.side.num_writers = rnd.below(3); /* the wide area from now on, or the other */
            bench.writer.is_far    = rnd.below(2);
        }
        if (rnd.one_in(2)) {
            const size_t length = random_length(rnd, bench.longest());
            const message m     = {static_cast<unsigned>(rnd.below(UCT_AM_ID_MAX)),
                                   pattern(number++, length)};
            const auto before   = bench.writer.pos;
            const auto most     = uct_mm_writer_lines(&bench.writer, length);
            const size_t told   = rnd.one_in(2) ? length :
                                  rnd.one_in(2) ? std::min(bench.longest(), length + 200) :
                                                  bench.longest();
            const auto allowed  = uct_mm_writer_lines_up_to(&bench.writer, told);
            const auto status   = ring_send(&bench.writer, rnd, m, told);
            if (status == UCS_OK) {
                ASSERT_LE(bench.writer.pos - before,
                          std::max((told == length) ? most : allowed, 2u));
                ASSERT_LE(most, uct_mm_writer_lines_up_to(&bench.writer, length));
                model.push_back(m);
            } else {
                ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
                ASSERT_EQ(before, bench.writer.pos) << "nothing was done";
                ++refused;
            }
        } else {
            const unsigned max = 1 + rnd.below(20);
            ASSERT_LE(bench.receive(max), max);
        }
    }
    while (bench.receive(1000) != 0) {
    }
    EXPECT_TRUE(model.empty());
    EXPECT_EQ(0u, bench.reader.attention);
    if (bench.buffers.empty()) { /* else messages take a line each */
        EXPECT_GT(refused, steps / 100) << "the ring was full at times";
    }
    EXPECT_EQ(received, bench.reader.received);

    /* An empty ring takes the longest message, wherever it stands. */
    const message longest = {1, pattern(number, bench.longest())};
    ++bench.side.turns;
    ASSERT_EQ(UCS_OK, ring_send(&bench.writer, rnd, longest, bench.longest()));
    model.push_back(longest);
    EXPECT_EQ(1u, bench.receive(1));
}

TEST(mm_ring, random_messages_arrive_as_they_were)
{
    seeded_random rnd(1);

    for (uint32_t lines : {16u, 32u, 128u, 1024u}) {
        for (uint32_t quantum : {1u, 3u, lines / 4, lines / 2}) {
            ring_bench bench(lines, quantum);
            random_traffic(bench, rnd);
        }
    }
}

TEST(mm_ring, random_messages_through_buffers)
{
    const struct {
        uct_mm_area_t area;
        size_t times; /* of a message of the ring: the longest ones, where it has 256 lines */
    } areas[] = {{UCT_MM_AREA_USUAL, 8}, {UCT_MM_AREA_SMALL, 2}};

    for (const auto &one : areas) {
        seeded_random rnd(5);
        for (uint32_t lines : {16u, 32u, 256u}) {
            for (size_t min : {(size_t)0, (size_t)64, (size_t)500, (size_t)UCT_MM_BUFFER_AUTO}) {
                ring_bench bench(lines, (lines / 4) << rnd.below(2), min, rnd.one_in(2), one.area);
                random_traffic(bench, rnd);
                if (min < bench.message_max()) {
                    EXPECT_GT(bench.in_buffers, 100 / mp::slowness())
                        << lines << " lines, from " << min << " bytes";
                    EXPECT_GE(bench.longest(),
                              ((lines == 256) ? one.times : 1) * bench.message_max());
                } else if (min != UCT_MM_BUFFER_AUTO) {
                    EXPECT_EQ(bench.message_max(), bench.longest())
                        << "some would not fit anywhere";
                }
            }
        }
    }
}

/* The header of a single message in buffers is in its line, whose number of bytes the sender may
 * change at any time. */
TEST(mm_ring, headers_in_lines)
{
    ring_bench bench(256, 64, 64, true);
    const uint64_t header = 0x1122334455667788;
    const bytes payload   = pattern(1, 3000);
    bytes got;

    bench.on_message = [&](unsigned, const uint8_t *data, size_t length) {
        got.assign(data, data + length);
    };
    for (unsigned said : {8u, 0u, 48u, 56u, 255u}) {
        for (unsigned id : {1u, 2u}) { /* in place, and copied */
            ++bench.side.received; /* an answer: it is no stream */
            uct_mm_line_t *line = &bench.writer.lines[bench.writer.pos & bench.writer.mask];
            ASSERT_EQ(UCS_OK, uct_mm_writer_send_pair(&bench.writer, id, &header, sizeof(header),
                                                      payload.data(), payload.size()));
            EXPECT_EQ(sizeof(header), line->data[0]);
            line->data[0] = static_cast<uint8_t>(said);
            ASSERT_EQ(1u, bench.receive(1));
            ASSERT_EQ(sizeof(header) + payload.size(), got.size());
            if (said == sizeof(header)) {
                EXPECT_EQ(0, memcmp(got.data(), &header, sizeof(header)));
                EXPECT_EQ(0, memcmp(got.data() + sizeof(header), payload.data(), payload.size()));
            }
        }
    }
}

/* On processors on which single messages of middle length take longer through buffers: a message
 * goes there if some went before it without one coming the other way, or if it is shown to the user
 * where it comes. */
TEST(mm_ring, streams_go_through_buffers)
{
    ring_bench bench(256, 64, UCT_MM_BUFFER_AUTO, true);
    const bytes data(2900);
    unsigned delivered = 0;
    auto lines         = [&](size_t length, unsigned id = 1) {
        const uint32_t before = bench.writer.pos;
        const uct_iov_t iov   = {const_cast<uint8_t *>(data.data()), length, nullptr};
        EXPECT_EQ(UCS_OK, uct_mm_writer_send_iov(&bench.writer, id, &iov, 1, length));
        bench.receive(16);
        return bench.writer.pos - before;
    };

    bench.on_message = [&](unsigned, const uint8_t *, size_t) { ++delivered; };
    uct_mm_writer_use_buffers(&bench.writer, bench.buffers.data(), &bench.shape,
                              UCT_MM_AREA_USUAL, UCT_MM_BUFFER_AUTO);
    bench.writer.single_min = 3000;
    bench.iface.am[5].place = UCT_AM_SHOWN;
    EXPECT_EQ(2u, lines(1024, 5));
    EXPECT_EQ(uct_mm_ring_lines(1023), lines(1023, 5));
    ++bench.side.received;
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < 4; ++i) {
            EXPECT_EQ(uct_mm_ring_lines(2900), lines(2900));
            EXPECT_EQ(uct_mm_ring_lines(500), lines(500)) << "short ones are not counted";
        }
        for (unsigned i = 0; i < 10; ++i) {
            EXPECT_EQ(1u, lines(2900));
        }
        EXPECT_EQ(uct_mm_ring_lines(500), lines(500));
        ++bench.side.received;
    }
    EXPECT_EQ(2u + (3u * 19), delivered);

    EXPECT_EQ(uct_mm_ring_lines(2999), uct_mm_writer_lines(&bench.writer, 2999));
    EXPECT_EQ(1u, uct_mm_writer_lines(&bench.writer, 3000));
    EXPECT_EQ(uct_mm_ring_lines(2999), uct_mm_writer_lines_up_to(&bench.writer, 10000));
    EXPECT_EQ(uct_mm_ring_lines(100), uct_mm_writer_lines_up_to(&bench.writer, 100));
}

uint64_t g_now_ns, g_copy_ns; /* between two looks at the clock */
unsigned g_looks;

/* Copies into buffers that take long go past the caches from then on, until one the usual way is
 * fast again, which is tried now and then. */
TEST(mm_ring, slow_copies_go_past_the_caches)
{
    ring_bench bench(256, 64, UCT_MM_BUFFER_AUTO);
    ucs_sys_ops_t ops = ucs_sys_real;
    unsigned count    = 0;
    auto send         = [&](unsigned messages, size_t length, uint64_t copy_ns) {
        g_copy_ns = copy_ns;
        g_looks   = 0;
        for (unsigned i = 0; i < messages; ++i) {
            const bytes data    = pattern(count, length);
            const uct_iov_t iov = {const_cast<uint8_t *>(data.data()), length, nullptr};
            bench.on_message    = [&](unsigned, const uint8_t *got, size_t got_length) {
                EXPECT_TRUE(data == bytes(got, got + got_length));
                ++count;
            };
            ++bench.side.turns;
            EXPECT_EQ(UCS_OK, uct_mm_writer_send_iov(&bench.writer, 1, &iov, 1, length));
            while (bench.receive(16) != 0) {
            }
        }
    };

    ops.clock_ns = []() { return ++g_looks, g_now_ns += g_copy_ns; };
    const fake_sys fake(ops);
    EXPECT_EQ(ucs_arch_can_copy_far(), bench.writer.can_be_far);
    bench.writer.can_be_far = 1;
    send(100, 8192, 300);
    EXPECT_FALSE(bench.writer.is_far);
    EXPECT_GE(g_looks, 2u * 4);
    EXPECT_LE(g_looks, 2u * 8) << "it is seldom looked";
    send(100, 1500, 3000);
    EXPECT_EQ(0u, g_looks) << "short ones are copied in little time anyway";
    send(14, 8192, 3000);
    EXPECT_FALSE(bench.writer.is_far) << "it may have been interrupted";
    send(1, 8192, 300);
    send(30, 8192, 3000);
    EXPECT_TRUE(bench.writer.is_far);
    send(200, 8192, 3000);
    EXPECT_TRUE(bench.writer.is_far);
    EXPECT_LE(g_looks, 2u * 4);
    send(100, 8192, 300);
    EXPECT_FALSE(bench.writer.is_far);
    send(100, 131072, 3000);
    EXPECT_FALSE(bench.writer.is_far) << "as many bytes take so long";
    EXPECT_EQ(100u + 100 + 14 + 1 + 30 + 200 + 100 + 100, count);
}

/* A sender whose progress is never called hears nothing of a receiver that has enough: it is
 * stopped though there is room, until its next turn. */
TEST(mm_ring, who_is_behind_its_writer)
{
    constexpr unsigned TURN = 16;
    ring_bench bench(256, 64);
    seeded_random rnd(1);
    bench.on_message = [](unsigned, const uint8_t *, size_t) {};
    const message one{1, bytes(8)};
    const auto send = [&](unsigned count) {
        for (; count > 0; --count) {
            ASSERT_EQ(UCS_OK, ring_send(&bench.writer, rnd, one));
        }
    };

    send(200);
    for (unsigned i = 0; i < UCT_MM_BEHIND_TURNS; ++i) {
        EXPECT_FALSE(uct_mm_reader_is_behind(&bench.reader)) << "it may be that it only began";
        EXPECT_EQ(TURN, bench.receive(TURN));
    }
    EXPECT_TRUE(uct_mm_reader_is_behind(&bench.reader)) << "136 are left";
    EXPECT_EQ(TURN, bench.receive(TURN));
    EXPECT_EQ(TURN, bench.receive(TURN));
    EXPECT_TRUE(uct_mm_reader_is_behind(&bench.reader)) << "104 are left";
    EXPECT_EQ(TURN, bench.receive(TURN));
    EXPECT_FALSE(uct_mm_reader_is_behind(&bench.reader)) << "88 are left, behind them others' laps";
    send(50);
    EXPECT_TRUE(uct_mm_reader_is_behind(&bench.reader));
    while (bench.receive(TURN) > 0) {
    }
    send(200);
    EXPECT_FALSE(uct_mm_reader_is_behind(&bench.reader)) << "its last turn was not full";
}

TEST(mm_ring, a_sender_that_does_not_listen)
{
    const bytes data = pattern(1, 5000);

    for (size_t min : {SIZE_MAX, (size_t)1024}) {
        ring_bench bench(256, 64, min);
        uct_iov_t iov   = {const_cast<uint8_t *>(data.data()), data.size(), nullptr};
        bench.on_message = [](unsigned, const uint8_t *, size_t) {};
        for (unsigned turn = 0; turn < 3; ++turn, ++bench.side.turns) {
            unsigned sent = 0;
            while ((sent < 10000) &&
                   (uct_mm_writer_send_iov(&bench.writer, 1, &iov, 1, iov.length) == UCS_OK)) {
                ++sent;
                bench.receive(16);
            }
            EXPECT_GT(sent, (turn == 0) ? 40u : 1u);
            EXPECT_LT(sent, 400u);
        }
    }
}

TEST(mm_ring, positions_wrap)
{
    seeded_random rnd(2);

    for (size_t min : {SIZE_MAX, (size_t)200}) {
        for (uint32_t lines : {16u, 128u}) {
            ring_bench bench(lines, lines / 4, min, rnd.one_in(2),
                             rnd.one_in(2) ? UCT_MM_AREA_SMALL : UCT_MM_AREA_USUAL);
            bench.move_to(0u - 2 * lines + 3);
            random_traffic(bench, rnd);
            EXPECT_LT(bench.writer.pos, 1u << 24) << "it has wrapped";
        }
    }
}

/* Also those lines of a long message in which nothing stands, in one lap of many: else one would
 * have the number that the reader waits for, after 2^32 lines. */
TEST(mm_ring, each_line_is_written_in_some_lap)
{
    constexpr uint32_t LINES = 64, LAPS = UCT_MM_FILL_LAPS;

    for (uint32_t num_writers : {1u, 2u}) {
        ring_bench bench(LINES, 16, 64, true);
        seeded_random rnd(6);
        bench.on_message = [](unsigned, const uint8_t *, size_t) {};

        bench.side.num_writers = num_writers;
        bench.move_to((LAPS - 3) * LINES);
        while (bench.writer.pos < (LAPS + 1) * LINES) {
            const size_t length = rnd.one_in(2) ? bench.longest() : 65 + rnd.below(300);
            ASSERT_EQ(UCS_OK, ring_send(&bench.writer, rnd, {1, bytes(length)}));
            ++bench.side.turns;
            while (bench.receive(16) != 0) {
            }
        }
        for (uint32_t i = 0; i < LINES; ++i) {
            EXPECT_GE(ucs_atomic_load_relaxed(&bench.writer.lines[i].seq), LAPS) << "line " << i;
        }
    }
}

/* Whoever waits for one message after the other finds the next in the ring: it is copied once. */
TEST(mm_ring, a_long_message_ends_the_turn)
{
    ring_bench bench(256, 64, UCT_MM_BUFFER_AUTO);
    bench.on_message = [](unsigned, const uint8_t *, size_t) {};
    const auto send  = [&](size_t length) {
        const bytes data(length);
        const uct_iov_t iov = {const_cast<uint8_t *>(data.data()), length, nullptr};
        ASSERT_EQ(UCS_OK, uct_mm_writer_send_iov(&bench.writer, 1, &iov, 1, length));
    };

    for (size_t length : {8, 1000, 2900, 2900, 2900, 2900, 2900, 10000, 8}) {
        send(length);
    }
    EXPECT_EQ(3u, bench.receive(16));
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_EQ(1u, bench.receive(16));
    }
    EXPECT_EQ(1u, bench.receive(16));
    EXPECT_EQ(0u, bench.receive(16));
}

/* A sender that stops after a long message's first line, whose head may say anything, takes no turn
 * from the others; the message does once it has come. */
TEST(mm_ring, what_has_not_come_ends_no_turn)
{
    for (const size_t min : {SIZE_MAX, size_t(64)}) {
        ring_bench bench(256, 64, min);
        bench.on_message    = [](unsigned, const uint8_t *, size_t) {};
        uct_mm_line_t *line = uct_mm_writer_line(&bench.writer, 0);
        ucs_atomic_store_relaxed(&line->head, uct_mm_line_head(3, 4000));
        ucs_atomic_store_release(&line->seq, uct_mm_writer_seq(&bench.writer, 0));
        EXPECT_EQ(0u, bench.receive(16));
        EXPECT_FALSE(bench.reader.has_enough);
        EXPECT_EQ(0u, bench.receive(16));
        for (uint32_t i = 1; i < uct_mm_ring_lines(4000); ++i) {
            ucs_atomic_store_release(&uct_mm_writer_line(&bench.writer, i)->seq,
                                     uct_mm_writer_seq(&bench.writer, i));
        }
        EXPECT_EQ(1u, bench.receive(16));
        EXPECT_TRUE(bench.reader.has_enough);
    }
}

/* A sender that names a buffer where there are none, or more than one holds, or says that a message
 * is wide that ends in its first line. */
TEST(mm_ring, a_buffer_that_is_not_there)
{
    const uct_mm_ring_shape_t shape = {16, 4};
    const size_t too_long           = uct_mm_ring_long_max(&shape, UCT_MM_AREA_USUAL) + 1;
    const struct {
        bool has_buffers;
        uint32_t area;
        size_t length;
        uint32_t kind = UCT_MM_HEAD_BUFFER;
    } cases[] = {{false, 0, 100}, {false, 0, 0}, {true, 0, too_long},
                 {true, UCT_MM_HEAD_WIDE, 0}, {true, UCT_MM_HEAD_WIDE, 100},
                 {true, UCT_MM_HEAD_WIDE, 10, 0}, {false, UCT_MM_HEAD_WIDE, 0, 0},
                 {false, UCT_MM_HEAD_WIDE, UCT_MM_FIRST_DATA, 0}};

    for (const auto &c : cases) {
        ring_bench bench(shape.lines, shape.quantum, c.has_buffers ? 64 : SIZE_MAX);
        unsigned delivered = 0;
        bench.on_message   = [&](unsigned, const uint8_t *, size_t) { ++delivered; };
        uct_mm_line_t *line = uct_mm_writer_line(&bench.writer, 0);
        ucs_atomic_store_relaxed(&line->head, c.kind | c.area |
                                                  uct_mm_line_head(3, c.length));
        ucs_atomic_store_release(&line->seq, uct_mm_writer_seq(&bench.writer, 0));
        EXPECT_EQ(0u, bench.receive(1));
        EXPECT_EQ((unsigned)UCT_MM_READER_BROKEN, bench.reader.attention);
        EXPECT_EQ(0u, delivered);
    }
}

TEST(mm_ring, short_copies_of_every_length)
{
    uint8_t source[80], dest[96];

    for (size_t i = 0; i < sizeof(source); ++i) {
        source[i] = static_cast<uint8_t>(i + 1);
    }
    for (size_t length = 0; length <= 64; ++length) {
        memset(dest, 0xee, sizeof(dest));
        uct_mm_copy_short(dest + 8, source, length);
        EXPECT_EQ(0, memcmp(dest + 8, source, length)) << length;
        for (size_t i = 0; i < sizeof(dest); ++i) {
            if ((i < 8) || (i >= (8 + length))) {
                ASSERT_EQ(0xee, dest[i]) << "byte " << i << " of a copy of " << length;
            }
        }
    }
}

/* After some calls in vain the other end gets a processor: by a sleep, since who yields beside
 * programs that compute waits for a whole turn of theirs, for each message here. */
void wait_in_vain(unsigned &calls)
{
    if (++calls % 500 == 0) {
        usleep(1);
    }
}

/* Both ends at one address, so ThreadSanitizer sees each access. */
void two_threads(size_t buffer_min, uint32_t num_writers = 1, uint32_t lines = 64)
{
    const auto num_messages = static_cast<uint64_t>(30000 * 64 / lines / mp::slowness());
    ring_bench bench(lines, 16, buffer_min, true);
    bench.side.num_writers = num_writers;
    std::atomic<uint64_t> received{0};

    bench.on_message = [&](unsigned id, const uint8_t *data, size_t length) {
        const uint64_t number = received.load(std::memory_order_relaxed);
        ASSERT_EQ(number % UCT_AM_ID_MAX, id);
        ASSERT_EQ(pattern(number, (number * 7919) % (bench.longest() + 1)),
                  bytes(data, data + length));
        received.store(number + 1, std::memory_order_relaxed);
    };
    std::thread sender([&]() {
        seeded_random rnd(4);
        unsigned calls = 0;
        for (uint64_t number = 0; number < num_messages; ++number) {
            const message m = {static_cast<unsigned>(number % UCT_AM_ID_MAX),
                               pattern(number, (number * 7919) % (bench.longest() + 1))};
            while (ring_send(&bench.writer, rnd, m) != UCS_OK) {
                ++bench.side.turns;
                wait_in_vain(calls);
            }
        }
    });
    unsigned in_vain = 0;
    for (unsigned i = 0; received.load(std::memory_order_relaxed) < num_messages; ++i) {
        bench.has_place = (i % 4 != 0);
        if (bench.receive(16) == 0) {
            wait_in_vain(in_vain);
        }
        if (testing::Test::HasFailure()) {
            break;
        }
    }
    if (testing::Test::HasFailure()) {
        _Exit(1); /* the sender would wait for ever */
    }
    sender.join();
}

TEST(mm_ring, two_threads)
{
    two_threads(SIZE_MAX);
}

TEST(mm_ring, two_threads_and_buffers)
{
    two_threads(300);
    two_threads(300, 2); /* not by the wide area */
    two_threads(300, 1, 1024); /* long ones in parts */
    two_threads(300, 2, 1024);
}

/* A sender without credit that says so is told at once that there is some, or is signalled: no
 * interleaving leaves it waiting. */
TEST(mm_ring, wish_for_credit_is_not_lost)
{
    constexpr unsigned ROUNDS = 2000;
    ring_bench bench(16, 4);
    std::atomic<unsigned> signals{0};
    std::atomic<bool> stop{false};

    bench.on_message = [](unsigned, const uint8_t *, size_t) {};
    std::thread receiver([&]() {
        while (!stop.load()) {
            bench.receive(16);
            if ((bench.reader.attention & UCT_MM_READER_SIGNAL) != 0) {
                bench.reader.attention &= ~static_cast<unsigned>(UCT_MM_READER_SIGNAL);
                ++signals;
            }
        }
    });
    for (unsigned i = 0; i < ROUNDS; ++i) {
        uint64_t number = i;
        while (uct_mm_writer_send_pair(&bench.writer, 1, &number, 8, nullptr, 0) == UCS_OK) {
        }
        unsigned seen = signals.load();
        while (!uct_mm_writer_wish(&bench.writer, 1)) {
            while (signals.load() == seen) { /* the test's time limit is the check */
                std::this_thread::yield();
            }
            seen = signals.load(); /* a signal may be one for an earlier wish */
        }
    }
    stop = true;
    receiver.join();
}

/* The writer stops after any number of lines: others are not held up, what comes later counts. */
TEST(mm_ring, a_message_that_stops_amid_is_resumed)
{
    ring_bench whole(128, 32), bench(128, 32);
    const bytes data  = pattern(7, 1000);
    unsigned received = 0;

    whole.on_message = bench.on_message = [&](unsigned id, const uint8_t *d, size_t length) {
        EXPECT_EQ(9u, id);
        EXPECT_EQ(data, bytes(d, d + length));
        ++received;
    };
    ASSERT_EQ(UCS_OK, uct_mm_writer_send_pair(&whole.writer, 9, data.data(), 10, data.data() + 10,
                                              data.size() - 10));
    const size_t lines = uct_mm_ring_lines(data.size());
    for (size_t i = 0; i < lines; ++i) {
        EXPECT_EQ(0u, bench.receive(16));
        EXPECT_EQ(0u, received);
        memcpy(bench.memory + sizeof(uct_mm_ring_control_t) + i * UCT_MM_LINE_SIZE,
               whole.memory + sizeof(uct_mm_ring_control_t) + i * UCT_MM_LINE_SIZE,
               UCT_MM_LINE_SIZE);
    }
    EXPECT_EQ(1u, bench.receive(16));
    EXPECT_EQ(1u, received);
}

/* A long message whose sender is at work on it: its parts are taken as they come, if there is a
 * place for them, and not seen before all are there if not. */
TEST(mm_ring, parts_are_taken_as_they_come)
{
    constexpr unsigned PARTED = 3, AT_ONCE = 5;
    const uint64_t header     = 0x1122334455667788;
    const bytes payload       = pattern(3, 60000);
    unsigned received         = 0;

    for (bool has_wide : {false, true}) {
        for (unsigned how = 0; how < 4; ++how) { /* a place; none; its sender ends; no parts */
            ring_bench bench(256, 64, 64, has_wide);
            const unsigned id = (how == 3) ? AT_ONCE : PARTED;
            bench.has_place   = (how != 1);
            bench.side.num_writers = 1;
            bench.on_message  = [&](unsigned i, const uint8_t *data, size_t length) {
                EXPECT_EQ(id, i);
                ASSERT_EQ(sizeof(header) + payload.size(), length);
                EXPECT_EQ(0, memcmp(data, &header, sizeof(header)));
                EXPECT_EQ(0, memcmp(data + sizeof(header), payload.data(), payload.size()));
                ++received;
            };
            received = 0;
            ASSERT_EQ(UCS_OK, uct_mm_writer_send_pair(&bench.writer, id, &header, sizeof(header),
                                                      payload.data(), payload.size()));
            const uint32_t parts = bench.writer.last + 1;
            EXPECT_EQ((how == 3) ? 1u : std::min<uint32_t>(payload.size() / UCT_MM_PART_MIN,
                                                           bench.writer.pos), parts);
            for (uint32_t i = 1; i < parts; ++i) { /* not yet told of */
                ucs_atomic_store_relaxed(&bench.writer.lines[i].seq, 0);
            }
            for (uint32_t i = 1; i < parts; ++i) {
                EXPECT_EQ(0u, bench.receive(1));
                EXPECT_EQ(0u, received);
                if (how != 1) { /* all up to here, and nothing behind */
                    const size_t there = sizeof(header) +
                                         uct_mm_part_end(payload.size(), parts, i - 1);
                    ASSERT_EQ(sizeof(header) + payload.size(), bench.place.size());
                    EXPECT_EQ(payload[there - 1 - sizeof(header)], bench.place[there - 1]);
                    EXPECT_EQ(bytes(bench.place.size() - there, 0),
                              bytes(bench.place.begin() + there, bench.place.end()));
                }
                if ((how == 2) && (i == 2)) {
                    break;
                }
                ucs_atomic_store_release(&bench.writer.lines[i].seq, 1);
            }
            if (how == 2) {
                uct_mm_reader_cleanup(&bench.reader, &bench.iface);
                EXPECT_EQ(UCS_ERR_CONNECTION_RESET, bench.ended);
                continue;
            }
            EXPECT_EQ(1u, bench.receive(1));
            EXPECT_EQ(1u, received);
            EXPECT_EQ((how == 0) ? 1u : 0u, bench.in_parts);
            EXPECT_EQ((how == 0) ? UCS_OK : UCS_INPROGRESS, bench.ended);
            EXPECT_EQ(bench.writer.pos, bench.reader.pos);
        }
    }
}

/* A hostile sender may write anything anywhere at any time. */
TEST(mm_ring, memory_full_of_anything)
{
    const unsigned rounds = UCS_HAVE_TSAN ? 60 : 600; /* one thread: what takes it 50 s */
    seeded_random rnd(5);
    uint64_t broken = 0, delivered = 0, in_buffers = 0;

    for (unsigned round = 0; round < rounds; ++round) {
        const bool has_buffers = (round % 2 != 0);
        ring_bench bench((round % 8 == 7) ? 512 : 32, 8, has_buffers ? 64 : SIZE_MAX,
                         round % 4 == 1);
        bench.on_message = [&](unsigned id, const uint8_t *data, size_t length) {
            ASSERT_LT(id, static_cast<unsigned>(UCT_AM_ID_MAX));
            ASSERT_LE(length, std::max(bench.longest(), bench.reader.wide.long_max));
            uint8_t sum = 0;
            for (size_t i = 0; i < length; ++i) { /* AddressSanitizer checks each */
                sum = static_cast<uint8_t>(sum + data[i]);
            }
            delivered += 1 + (sum & 0);
        };
        for (unsigned step = 0; step < 200; ++step) {
            for (unsigned i = 0; i < 40; ++i) {
                const uint64_t value = rnd.bits();
                memcpy(bench.memory + (rnd.below(bench.size() / 8) * 8), &value, 8);
            }
            /* make it likely that the next lines count */
            for (unsigned i = 0; i < 4; ++i) {
                uct_mm_line_t *line = &bench.reader.lines[(bench.reader.pos + i) &
                                                          bench.reader.mask];
                ucs_atomic_store_relaxed(&line->seq, ((bench.reader.pos + i) >>
                                                      bench.reader.shift) + 1);
                if (!rnd.one_in(8)) {
                    const bool names_buffer = has_buffers && rnd.one_in(2);
                    ucs_atomic_store_relaxed(&line->head, names_buffer ?
                                             UCT_MM_HEAD_BUFFER |
                                             (rnd.one_in(4) ? UCT_MM_HEAD_WIDE : 0) |
                                             static_cast<uint32_t>(
                                                 rnd.below(bench.shape.lines * 8000)) :
                                             (rnd.one_in(8) ? UCT_MM_HEAD_WIDE : 0) |
                                             static_cast<uint32_t>(rnd.below(60000)));
                }
            }
            bench.receive(1 + rnd.below(8));
            if ((bench.reader.attention & UCT_MM_READER_BROKEN) != 0) {
                ++broken;
                break;
            }
        }
        /* A hostile receiver writes the read position: the sender stays within the ring. */
        for (unsigned step = 0; step < 50; ++step) {
            ucs_atomic_store_relaxed(&bench.writer.control->read_pos,
                                     static_cast<uint32_t>(rnd.bits()));
            const message m = {1, pattern(step, rnd.below(bench.longest() + 1))};
            (void)ring_send(&bench.writer, rnd, m);
        }
        in_buffers += bench.in_buffers;
    }
    EXPECT_GT(broken, 10u);
    EXPECT_GT(delivered, rounds);
    EXPECT_GT(in_buffers, rounds / 20);
}

TEST(mm_ring, shapes_from_a_peer)
{
    const struct {
        uint32_t lines, quantum;
        int valid;
    } shapes[] = {{128, 32, 1},  {16, 1, 1},   {16, 8, 1},    {65536, 32768, 1},
                  {0, 0, 0},     {8, 1, 0},    {100, 10, 0},  {128, 0, 0},
                  {128, 65, 0},  {131072, 1, 0}, {UINT32_MAX, 1, 0}, {128, UINT32_MAX, 0}};

    for (const auto &s : shapes) {
        const uct_mm_ring_shape_t shape = {s.lines, s.quantum};
        EXPECT_EQ(s.valid, uct_mm_ring_shape_is_valid(&shape)) << s.lines << " " << s.quantum;
    }
}

} // namespace
