/* Halyard: shared memory between processes: killed and hostile peers, strangers at the door,
 * shortage of descriptors and memory, sleeping for credit, and what an idle interface may cost.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "peer_process.h"
#include "sys_meter.h"

#include <fake_sys.h>
#include <mp/processes.h>
#include <mp/snapshot.h>
#include <seed.h>
#include <ucp/world.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>
#include <uct/mm/mm_iface.h>
#include <uct/mm/mm_socket.h>

#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace uct_test;
using ucp_test::environment;
using ucp_test::settings;

namespace {

constexpr unsigned ID_DATA = 1, ID_DONE = 2;

const uct_tl_t *mm()
{
    return uct_tl_find("mm");
}

bytes numbered(uint64_t number, size_t length)
{
    bytes data = pattern(number, std::max<size_t>(length, 8));

    memcpy(data.data(), &number, 8);
    return data;
}

/* Lengths of one line, of several, and the longest. */
size_t length_of(uint64_t number, size_t max)
{
    return ((number % 32) == 0) ? max :
                                  8 + (number * 2654435761u) % (((number % 4) == 0) ? 2000 : 120);
}

/* Checks one stream of messages: each follows the one before and is whole. */
class stream_check {
public:
    stream_check(worker &w, unsigned id)
    {
        const size_t max = w.limits(UCT_OP_AM_SHORT).max;

        w.on_message(id, [this, max](const uint8_t *data, size_t length) {
            const bytes expected = numbered(m_next, length_of(m_next, max));
            ASSERT_EQ(expected, bytes(data, data + length)) << "message " << m_next;
            ++m_next;
        });
    }

    uint64_t received() const
    {
        return m_next;
    }

private:
    uint64_t m_next = 0;
};

[[noreturn]] void send_for_ever(channel &parent, unsigned id)
{
    worker w(mm());
    uct_ep_t *ep     = w.connect(parent.get_contact());
    const size_t max = w.limits(UCT_OP_AM_SHORT).max;

    for (uint64_t number = 0;; ++number) {
        if (send({&w}, ep, way::SHORT, id, numbered(number, length_of(number, max))) != UCS_OK) {
            _exit(1);
        }
    }
}

/* ------------------------------------------------------------------ death */

/* Senders are killed at any moment, amid messages too: what had arrived is whole and in order, the
 * survivor's stream goes on, and the interface uses no more than before. */
TEST(mm_test, killed_senders_leave_no_trace)
{
    constexpr unsigned ROUNDS = 60;
    seeded_random rnd(11);
    peer_process survivor([](channel &parent) { send_for_ever(parent, 5); });
    worker w(mm());
    ASSERT_EQ(UCS_OK, w.status());
    stream_check steady(w, 5);
    size_t fds = 0, mapped = 0;

    survivor.link().put_contact(w.where());
    for (unsigned round = 0; round < ROUNDS; ++round) {
        stream_check check(w, ID_DATA);
        const uint64_t target = rnd.below(3000);
        const uint64_t before = steady.received();
        peer_process victim([](channel &parent) { send_for_ever(parent, ID_DATA); });

        victim.link().put_contact(w.where());
        ASSERT_TRUE(run_until({&w}, [&]() { return check.received() >= target; }));
        victim.kill_now();
        ASSERT_TRUE(run_until({&w}, [&]() { return w.gone.size() > round; })) << "round " << round;
        ASSERT_TRUE(run_until({&w}, [&]() { return steady.received() > before; }));

        if (round == 0) {
            fds    = sys_meter::descriptors().size();
            mapped = mp::memory_of_self().shared_size;
        }
        ASSERT_EQ(fds, sys_meter::descriptors().size());
    }
    EXPECT_EQ(ROUNDS, w.gone.size());
    EXPECT_EQ(mapped, mp::memory_of_self().shared_size);
    EXPECT_EQ(std::set<std::string>(), mp::leftovers({}));
    survivor.kill_now();
}

/* The same seen from the sender: its endpoint fails within a second, once, and others are well. */
TEST(mm_test, killed_receivers_fail_their_endpoints_only)
{
    constexpr unsigned ROUNDS = 20;
    const auto receiver       = [](channel &parent) {
        worker w(mm());
        w.on_message(ID_DATA, [](const uint8_t *, size_t) {});
        parent.put_contact(w.where());
        run_until({&w}, []() { return false; }, 60);
    };
    seeded_random rnd(12);
    peer_process survivor(receiver);
    worker w(mm());
    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *steady = w.connect(survivor.link().get_contact());

    for (unsigned round = 0; round < ROUNDS; ++round) {
        peer_process victim(receiver);
        uct_ep_t *ep         = w.connect(victim.link().get_contact());
        const uint64_t count = rnd.below(2000);
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, ID_DATA, numbered(i, length_of(i, 3000))));
        }
        (void)uct_ep_connect(ep);
        victim.kill_now();

        mp::own_time time; /* 100 ms are promised */
        EXPECT_TRUE(run_until({&w}, [&]() { return !w.failed.empty() || (time.s() > 5); }));
        ASSERT_EQ(1u, w.failed.size());
        EXPECT_EQ(ep, w.failed[0].first);
        w.failed.clear();
        EXPECT_NE(UCS_OK, post(ep, way::SHORT, ID_DATA, numbered(0, 8), 0));
        w.close(ep);
        ASSERT_EQ(UCS_OK, send({&w}, steady, way::SHORT, ID_DATA, numbered(0, 100)));
    }
    survivor.kill_now();
}

/* ------------------------------------------------------------------ hostile peers */

/* A peer that is connected may write anything into its ring at any time, and nowhere else. */
TEST(mm_test, a_peer_that_writes_anything_hurts_itself_only)
{
    constexpr unsigned ROUNDS = 10;
    peer_process honest([](channel &parent) { send_for_ever(parent, 5); });
    worker w(mm());
    ASSERT_EQ(UCS_OK, w.status());
    stream_check steady(w, 5);
    uint64_t garbage = 0;

    for (unsigned id = 0; id < UCT_AM_ID_MAX; ++id) {
        if (id != 5) {
            w.on_message(id, [&](const uint8_t *data, size_t length) {
                ASSERT_LE(length, w.limits(UCT_OP_AM_SHORT).max);
                garbage += std::accumulate(data, data + length, 1u) != 0;
            });
        }
    }
    honest.link().put_contact(w.where());
    log_levels quiet("fatal"); /* each of them is worth a line */
    for (unsigned round = 0; round < ROUNDS; ++round) {
        peer_process evil([round](channel &parent) {
            std::mt19937_64 rnd(round);
            worker own(mm());
            uct_ep_t *ep = own.connect(parent.get_contact());
            ASSERT_EQ(UCS_OK, send({&own}, ep, way::SHORT, ID_DATA, numbered(0, 8)));
            ASSERT_EQ(1u, parent.get_number());
            uct_mm_writer_t *writer = &uct_mm_ep(ep)->writer;
            auto *words             = reinterpret_cast<uint32_t *>(writer->control);
            const size_t count      = (2 + writer->mask + 1) * UCT_MM_LINE_SIZE / 4;
            for (unsigned i = 0; i < 20000; ++i) {
                volatile uint32_t *word = &words[rnd() % count];
                if ((i % 2000) == 0) {
                    usleep(1000); /* so that the victim reads some of it */
                }
                switch (rnd() % 4) {
                case 0: /* a sequence number that may be awaited */
                    word  = &words[((rnd() % (writer->mask + 3)) * UCT_MM_LINE_SIZE) / 4];
                    *word = rnd() % 300;
                    break;
                case 1: /* a head of a message of some length */
                    word  = &words[((rnd() % (writer->mask + 3)) * UCT_MM_LINE_SIZE) / 4 + 1];
                    *word = rnd() % 200000;
                    break;
                default:
                    *word = rnd();
                }
            }
        });
        evil.link().put_contact(w.where());
        const uint64_t before = steady.received();
        const uint64_t first  = garbage + 1;
        ASSERT_TRUE(run_until({&w}, [&]() { return garbage == first; })) << "it begins well";
        evil.link().put_number(1);
        ASSERT_TRUE(run_until({&w}, [&]() { return w.gone.size() > round; })) << "round " << round;
        EXPECT_EQ(0, evil.wait({&w}));
        ASSERT_TRUE(run_until({&w}, [&]() { return steady.received() > before + 100; }));
    }
    EXPECT_EQ(ROUNDS, w.gone.size());
    honest.kill_now();
}

class mm_door_test : public testing::Test {
protected:
    /* A connection to the listening socket of m_worker. */
    int knock() const
    {
        struct sockaddr_un address;
        const uint64_t name    = uct_mm_iface(m_worker.iface)->door.name;
        const socklen_t length = uct_socket_address(
            "", uct_mm_iface(m_worker.iface)->door.place, name, &address);
        const int fd           = uct_socket_create();

        EXPECT_EQ(0, connect(fd, reinterpret_cast<sockaddr *>(&address), length));
        return fd;
    }

    uct_mm_hello_t hello() const
    {
        uct_mm_hello_t h = {};

        h.head = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_HELLO};
        memset(h.uid, 0x55, sizeof(h.uid));
        memcpy(h.expected, m_worker.uid.data(), sizeof(h.expected));
        h.message_max = 100;
        return h;
    }

    /* Says something; the status that is answered, or UCS_ERR_CONNECTION_RESET. */
    ucs_status_t say(const void *data, size_t length)
    {
        return say(knock(), data, length);
    }

    ucs_status_t say(int fd, const void *data, size_t length)
    {
        uct_mm_welcome_t welcome = {};
        int fds[UCT_SOCKET_FDS_MAX];
        unsigned count = 0;
        ssize_t got    = -1;

        EXPECT_EQ(static_cast<ssize_t>(length), ::send(fd, data, length, MSG_NOSIGNAL));
        run_until({&m_worker}, [&]() {
            got = uct_socket_recv(fd, &welcome, sizeof(welcome), fds, &count);
            return (got >= 0) || (errno != EAGAIN);
        });
        for (unsigned i = 0; i < count; ++i) {
            close(fds[i]);
        }
        close(fd);
        if (got != sizeof(welcome)) {
            return UCS_ERR_CONNECTION_RESET;
        }
        EXPECT_EQ(welcome.status == UCS_OK, count > 0);
        return static_cast<ucs_status_t>(welcome.status);
    }

    worker m_worker{mm()};
};

TEST_F(mm_door_test, only_who_knows_whom_it_wants_gets_in)
{
    uct_mm_hello_t h = hello();
    EXPECT_EQ(UCS_OK, say(&h, sizeof(h)));

    h.expected[3] ^= 1;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, say(&h, sizeof(h))) << "another worker's identity";
    h = hello();
    ++h.head.version;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, say(&h, sizeof(h)));
    h = hello();
    ++h.head.magic;
    EXPECT_NE(UCS_OK, say(&h, sizeof(h)));
    h             = hello();
    h.message_max = SIZE_MAX;
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, say(&h, sizeof(h))) << "longer than our rings take";
    EXPECT_NE(UCS_OK, say(&h, sizeof(h) - 1));
    EXPECT_NE(UCS_OK, say(&h, 1));
}

/* Not in a namespace where there is no other user. */
bool may_be_another_user()
{
    return (geteuid() == 0) && (seteuid(54321) == 0) && (seteuid(0) == 0);
}

/* A process of another user, as far as those that it connects to are told by the kernel. */
class other_user {
public:
    other_user()
    {
        EXPECT_EQ(0, seteuid(54321));
    }
    ~other_user()
    {
        EXPECT_EQ(0, seteuid(0));
    }
    other_user(const other_user &)            = delete;
    other_user &operator=(const other_user &) = delete;
};

/* Abstract sockets have no permissions: what the kernel says of the other side is the only guard,
 * against who knows all that is to be said. */
TEST_F(mm_door_test, other_users_do_not_get_in)
{
    if (!may_be_another_user()) {
        GTEST_SKIP() << "only root can become another user";
    }
    const uct_mm_hello_t h = hello();
    int fd;
    {
        const other_user other;
        fd = knock();
    }
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, say(fd, &h, sizeof(h)));
    EXPECT_EQ(UCS_OK, say(&h, sizeof(h)));
}

/* Nor is one who listens in another's place told anything. */
TEST_F(mm_door_test, other_users_are_not_talked_to)
{
    if (!may_be_another_user()) {
        GTEST_SKIP() << "only root can become another user";
    }
    std::unique_ptr<worker> theirs;
    {
        const other_user other;
        theirs = std::make_unique<worker>(mm());
    }
    log_levels quiet("fatal");
    uct_ep_t *ep        = m_worker.connect(theirs->where());
    ucs_status_t status = uct_ep_connect(ep);
    if (status == UCS_INPROGRESS) {
        ASSERT_TRUE(run_until({&m_worker, theirs.get()},
                              [&]() { return !m_worker.failed.empty(); }));
        status = m_worker.failed[0].second;
    }
    EXPECT_EQ(UCS_ERR_UNREACHABLE, status);
}

TEST_F(mm_door_test, strangers_who_say_anything)
{
    seeded_random rnd(13);
    const auto fds = sys_meter::descriptors().size();

    for (unsigned i = 0; i < 300; ++i) {
        bytes data = pattern(rnd.bits(), 1 + rnd.below(100));
        if (rnd.one_in(2)) { /* beginning well */
            const uct_mm_hello_t h = hello();
            memcpy(data.data(), &h, std::min(data.size(), static_cast<size_t>(rnd.below(48))));
        }
        const int fd = knock();
        (void)!::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
        if (rnd.one_in(3)) {
            m_worker.progress();
        }
        close(fd);
    }
    EXPECT_TRUE(run_until({&m_worker}, [&]() {
        return sys_meter::descriptors().size() == fds;
    })) << "all are gone again";

    worker other(mm());
    bool came = false;
    m_worker.on_message(ID_DATA, [&](const uint8_t *, size_t) { came = true; });
    uct_ep_t *ep = other.connect(m_worker.where());
    ASSERT_EQ(UCS_OK, send({&m_worker, &other}, ep, way::SHORT, ID_DATA, numbered(1, 8)));
    EXPECT_TRUE(run_until({&m_worker, &other}, [&]() { return came; }));
}

/* A peer that answers a connection with anything. */
TEST_F(mm_door_test, welcomes_that_say_anything)
{
    seeded_random rnd(14);
    const int listener = uct_socket_create();
    struct sockaddr_un address;
    const uint64_t name    = rnd.bits();
    const socklen_t length = uct_socket_address(
        "", uct_mm_iface(m_worker.iface)->door.place, name, &address);
    contact where          = m_worker.where();

    log_levels quiet("fatal");
    ASSERT_EQ(0, bind(listener, reinterpret_cast<sockaddr *>(&address), length));
    ASSERT_EQ(0, listen(listener, 16));
    memcpy(where.address.data(), &name, sizeof(name));
    const auto fds      = sys_meter::descriptors().size();
    const auto mappings = sys_meter::shared_mappings().size();
    constexpr size_t MEMORY = 4u << 20;
    unsigned sent           = 0;

    for (unsigned i = 0; i < 1500; ++i) {
        uct_ep_t *ep = m_worker.connect(where);
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(ep));
        const int fd = accept(listener, nullptr, nullptr);
        ASSERT_GE(fd, 0);

        uct_mm_welcome_t w = {};
        w.head = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_WELCOME};
        const bool is_good = rnd.one_in(2); /* but for where the buffers are to lie */
        const auto anything = [&](uint64_t good) {
            return (is_good || rnd.one_in(2)) ? good : rnd.bits();
        };
        w.num_segments = is_good ? 1 : rnd.below(4);
        w.lines        = static_cast<uint32_t>(anything(256));
        w.quantum      = static_cast<uint32_t>(anything(64));
        w.offset       = anything(64 * rnd.below(is_good ? 700 : 2000));
        for (auto &segment : w.segments) {
            segment.length  = anything(MEMORY);
            segment.shmid   = static_cast<int32_t>(rnd.bits());
            segment.backing = is_good ? (uint32_t)UCT_MM_BACKING_MEMFD :
                                        static_cast<uint32_t>(rnd.below(5));
        }
        w.buffers_length  = rnd.one_in(4) ? rnd.bits() : MEMORY;
        w.buffers_offset  = rnd.one_in(4) ? rnd.bits() : 64 * rnd.below(MEMORY / 64);
        w.wide_offset     = rnd.one_in(4) ? rnd.bits() : 64 * rnd.below(MEMORY / 64);
        w.is_small        = (i % 4 == 0);
        const size_t size = rnd.one_in(4) ? rnd.below(sizeof(w) + 1) : sizeof(w);
        int memory[UCT_SOCKET_FDS_MAX];
        const unsigned count = rnd.below(UCT_SOCKET_FDS_MAX + 1);
        for (unsigned k = 0; k < count; ++k) {
            memory[k] = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            ASSERT_EQ(0, ftruncate(memory[k], MEMORY));
            if (rnd.one_in(2)) { /* it begins as an interface's */
                const uint64_t magic = UCT_MM_MAIN_MAGIC;
                ASSERT_EQ(8, pwrite(memory[k], &magic, 8, 0));
                ASSERT_EQ((ssize_t)UCT_UID_LEN,
                          pwrite(memory[k], where.uid.data(), UCT_UID_LEN, 8));
            }
            if (rnd.one_in(2)) {
                ASSERT_EQ(0, fcntl(memory[k], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
            }
        }
        ASSERT_EQ(UCS_OK, uct_socket_send(fd, &w, size, memory, count));
        for (unsigned k = 0; k < count; ++k) {
            close(memory[k]);
        }
        ASSERT_TRUE(run_until({&m_worker}, [&]() {
            return !m_worker.failed.empty() || (ep->state == UCT_EP_LIVE);
        }));
        if (ep->state == UCT_EP_LIVE) { /* what is sent lies in that memory */
            for (size_t message : {8, 3000, 11000, 100000}) {
                if (message <= std::max<size_t>(8192, ep->ops->long_max(ep))) {
                    EXPECT_EQ(UCS_OK, post(ep, way::SHORT, ID_DATA, bytes(message), 0));
                    ++sent;
                }
            }
        }
        m_worker.failed.clear();
        m_worker.close(ep);
        close(fd);
    }
    close(listener);
    EXPECT_GT(sent, 50u) << "some are good";
    EXPECT_EQ(fds - 1, sys_meter::descriptors().size());
    EXPECT_EQ(mappings, sys_meter::shared_mappings().size());
}

/* ------------------------------------------------------------------ shortage */

TEST(mm_test, no_descriptors_left_at_the_receiver)
{
    log_levels quiet("fatal");
    peer_process child([](channel &parent) {
        worker w(mm());
        const contact target = parent.get_contact();
        uct_ep_t *refused    = w.connect(target);
        const ucs_status_t status = uct_ep_connect(refused); /* the answer may be there already */
        if (status == UCS_INPROGRESS) {
            ASSERT_TRUE(run_until({&w}, [&]() { return !w.failed.empty(); }));
            EXPECT_EQ(UCS_ERR_REJECTED, w.failed[0].second) << "the path is closed, the peer lives";
        } else {
            EXPECT_EQ(UCS_ERR_REJECTED, status);
        }
        parent.put_number(1);
        ASSERT_EQ(2u, parent.get_number());

        uct_ep_t *ep = w.connect(target);
        ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, ID_DATA, numbered(1, 8)));
    });
    worker w(mm());
    bool came = false;
    w.on_message(ID_DATA, [&](const uint8_t *, size_t) { came = true; });

    struct rlimit before, low;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    int highest = 0;
    std::vector<int> fill;
    while ((highest = dup(0)) < 200) {
        fill.push_back(highest);
    }
    close(highest);
    low          = before;
    low.rlim_cur = 200;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &low));

    child.link().put_contact(w.where());
    uint64_t answer = 0;
    EXPECT_TRUE(run_until({&w}, [&]() {
        struct pollfd p = {child.link().fd(), POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }));
    answer = child.link().get_number();
    EXPECT_EQ(1u, answer);

    for (int fd : fill) {
        close(fd);
    }
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    child.link().put_number(2);
    EXPECT_TRUE(run_until({&w}, [&]() { return came; })) << "and later there is room again";
    EXPECT_EQ(0, child.wait({&w}));
}

TEST(mm_test, peers_of_other_settings)
{
    log_levels quiet("fatal");
    worker wide(mm());
    const environment size(settings{{"UCX_MM_FIFO_SIZE", "32"}}); /* read when a domain is opened */
    worker narrow(mm());
    EXPECT_EQ(56u + 23 * 60, narrow.limits(UCT_OP_AM_SHORT).max);

    /* the longer messages of the other do not fit */
    uct_ep_t *up = wide.connect(narrow.where());
    (void)uct_ep_connect(up);
    ASSERT_TRUE(run_until({&wide, &narrow}, [&]() { return !wide.failed.empty(); }));
    EXPECT_EQ(UCS_ERR_REJECTED, wide.failed[0].second);

    /* the other way they do */
    uct_ep_t *down = narrow.connect(wide.where());
    const bytes data = numbered(1, narrow.limits(UCT_OP_AM_SHORT).max);
    bool came        = false;
    wide.on_message(ID_DATA, [&](const uint8_t *d, size_t length) {
        came = (bytes(d, d + length) == data);
    });
    ASSERT_EQ(UCS_OK, send({&wide, &narrow}, down, way::SHORT, ID_DATA, data));
    EXPECT_TRUE(run_until({&wide, &narrow}, [&]() { return came; }));
}

uint64_t g_boot_id;

/* A key of another node may name by chance what this one has: segments' numbers are a kernel's. */
TEST(mm_test, keys_of_other_nodes_are_not_mapped)
{
    ucs_sys_ops_t ops = ucs_sys_real;

    ops.boot_id = [](ucs_sys_id128_t *id_p) { *id_p = {{g_boot_id, 0}}; };
    const fake_sys fake(ops);
    for (const char *kind : {"memfd", "sysv"}) {
        const environment backing(settings{{"UCX_MM_BACKING", kind}});
        g_boot_id = 1;
        worker here(mm()), neighbour(mm());
        g_boot_id = 2;
        worker there(mm());
        uct_mem_t *mem;
        uct_rkey_t *rkey;
        bytes packed(64);
        ASSERT_EQ(UCS_OK, here.tl->md.alloc(here.md, nullptr, 10000, 0, &mem));
        packed.resize(here.tl->md.rkey_pack(mem, packed.data()));
        EXPECT_EQ(UCS_ERR_UNREACHABLE,
                  there.tl->md.rkey_unpack(there.md, packed.data(), packed.size(), &rkey));
        ASSERT_EQ(UCS_OK, neighbour.tl->md.rkey_unpack(neighbour.md, packed.data(), packed.size(),
                                                       &rkey));
        neighbour.tl->md.rkey_release(rkey);
        here.tl->md.release(mem);
    }
}

/* ------------------------------------------------------------------ settings */

class mm_backing_test : public testing::TestWithParam<const char *> {
};

/* Streams and memory over each kind of shared memory. */
TEST_P(mm_backing_test, carries_messages_and_memory)
{
    constexpr uint64_t NUM_MESSAGES = 2000;
    const environment backing(settings{{"UCX_MM_BACKING", GetParam()}});
    peer_process child([](channel &parent) {
        worker w(mm());
        ASSERT_EQ(UCS_OK, w.status());
        uct_ep_t *ep     = w.connect(parent.get_contact());
        const size_t max = w.limits(UCT_OP_AM_SHORT).max;
        bytes packed;
        ASSERT_TRUE(parent.get(packed));
        const uint64_t address = parent.get_number();

        for (uint64_t i = 0; i < NUM_MESSAGES; ++i) {
            ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, ID_DATA, numbered(i, length_of(i, max))));
        }
        uct_rkey_t *rkey;
        ASSERT_EQ(UCS_OK, w.tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
        const bytes data = pattern(77, 5000);
        void *ptr        = nullptr;
        ASSERT_EQ(UCS_OK, persist({&w}, [&]() {
            return w.tl->md.rkey_ptr(rkey, address + 100, data.size(), &ptr);
        }));
        memcpy(ptr, data.data(), data.size());
        EXPECT_EQ(UCS_OK, send({&w}, ep, way::SHORT, ID_DONE, numbered(0, 8)));
        w.tl->md.rkey_release(rkey);
    });
    worker w(mm());
    ASSERT_EQ(UCS_OK, w.status());
    stream_check check(w, ID_DATA);
    bool done = false;
    w.on_message(ID_DONE, [&](const uint8_t *, size_t) { done = true; });

    uct_mem_t *mem;
    bytes packed(64);
    ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 10000, 0, &mem));
    packed.resize(w.tl->md.rkey_pack(mem, packed.data()));
    child.link().put_contact(w.where());
    child.link().put(packed);
    child.link().put_number(reinterpret_cast<uintptr_t>(mem->address));
    ASSERT_TRUE(run_until({&w}, [&]() { return done; }));
    EXPECT_EQ(NUM_MESSAGES, check.received());
    EXPECT_EQ(pattern(77, 5000), bytes(static_cast<uint8_t *>(mem->address) + 100,
                                       static_cast<uint8_t *>(mem->address) + 5100));
    EXPECT_EQ(std::set<std::string>(), mp::leftovers({}));
    w.tl->md.release(mem);
    EXPECT_EQ(0, child.wait({&w}));
}

INSTANTIATE_TEST_SUITE_P(kinds, mm_backing_test, testing::Values("memfd", "posix", "sysv"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string(info.param);
                         });

TEST(mm_test, settings_that_make_no_sense)
{
    const struct {
        const char *name, *value;
    } wrong[] = {{"UCX_MM_FIFO_SIZE", "many"},
                 {"UCX_MM_FIFO_RELEASE_FACTOR", "-0.1"},
                 {"UCX_MM_FIFO_RELEASE_FACTOR", "1.1"},
                 {"UCX_MM_FIFO_RELEASE_FACTOR", "nan"},
                 {"UCX_MM_FIFO_MAX_POLL", "-1"},
                 {"UCX_MM_BACKING", "disk"},
                 {"UCX_MM_BACKING", ""},
                 {"UCX_MM_FIFO_HUGETLB", "perhaps"},
                 {"UCX_MM_LATENCY", "-1ns"},
                 {"UCX_MM_BW", "0"}};

    log_levels quiet("fatal");
    for (const auto &w : wrong) {
        const environment v(settings{{w.name, w.value}});
        uct_md_t *md = nullptr;
        EXPECT_NE(UCS_OK, uct_md_open(mm(), nullptr, &md)) << w.name << "=" << w.value;
        EXPECT_EQ(nullptr, md);
    }
}

/* A program may go to another directory: a path from where it was leads nowhere then. */
TEST(mm_test, a_directory_by_a_path_from_elsewhere)
{
    char dir[]      = "/tmp/halyard-mm-XXXXXX";
    const int start = open(".", O_PATH | O_CLOEXEC);
    unsigned received = 0;

    ASSERT_NE(nullptr, mkdtemp(dir));
    ASSERT_EQ(0, chdir(dir));
    ASSERT_EQ(0, mkdir("meet", 0700));
    {
        const environment meet(settings{{"UCX_MM_SOCKET_DIR", "meet"}});
        worker a(mm()), b(mm());
        ASSERT_EQ(0, fchdir(start));
        b.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
        EXPECT_EQ(UCS_OK, send({&a, &b}, a.connect(b.where()), way::SHORT, ID_DATA,
                               pattern(1, 100)));
        EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));
    }
    EXPECT_EQ(0, rmdir((std::string(dir) + "/meet").c_str())) << "a name is left there";
    EXPECT_EQ(0, rmdir(dir));
    close(start);
}

/* What suits UCX and not us: the nearest that does is used, and messages go. */
TEST(mm_test, settings_of_users_of_ucx)
{
    const struct {
        const char *name, *value;
    } rows[] = {{"UCX_POSIX_FIFO_SIZE", "8"},
                {"UCX_MM_FIFO_SIZE", "100"},
                {"UCX_SYSV_FIFO_SIZE", "1048576"},
                {"UCX_MM_FIFO_ELEM_SIZE", "32"},
                {"UCX_MM_FIFO_RELEASE_FACTOR", "0"},
                {"UCX_POSIX_FIFO_RELEASE_FACTOR", "0.75"},
                {"UCX_MM_FIFO_MAX_POLL", "0"},
                {"UCX_SYSV_FIFO_MAX_POLL", "auto"},
                {"UCX_POSIX_FIFO_MAX_POLL", "inf"},
                {"UCX_POSIX_SEG_SIZE", "64"},
                {"UCX_MM_SEG_SIZE", "inf"},
                {"UCX_MM_BW", "auto"}};

    log_levels quiet("error");
    for (const auto &row : rows) {
        const environment v(settings{{row.name, row.value}});
        worker a(mm()), b(mm());
        ASSERT_EQ(UCS_OK, a.status()) << row.name << "=" << row.value;
        ASSERT_EQ(UCS_OK, b.status());
        unsigned received = 0;
        b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
        uct_ep_t *ep = a.connect(b.where());
        for (unsigned i = 0; i < 100; ++i) {
            ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(i, 100)));
        }
        EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 100; }))
            << row.name << "=" << row.value;
    }
}

TEST(mm_test, costs_that_were_measured)
{
    const environment costs({{"UCX_MM_LATENCY", "240ns"}, {"UCX_POSIX_BW", "3300MBs"}});
    const uct_limits_t limits = worker(mm()).limits(UCT_OP_AM_SHORT);

    EXPECT_DOUBLE_EQ(240, limits.latency_ns);
    EXPECT_DOUBLE_EQ(3.3, limits.bytes_per_ns);
}

TEST(mm_test, settings_of_other_names_and_sizes)
{
    constexpr uint64_t NUM_MESSAGES = 3000;

    for (const char *size : {"16", "64", "4096"}) {
        for (const char *factor : {"0.01", "0.5"}) {
            const environment sizes({{"UCX_POSIX_FIFO_SIZE", size}, /* as users of UCX know it */
                                     {"UCX_MM_FIFO_RELEASE_FACTOR", factor},
                                     {"UCX_MM_FIFO_ELEM_SIZE", "128"},
                                     {"UCX_MM_FIFO_HUGETLB", "try"},
                                     {"UCX_MM_SEG_SIZE", "8256"}});
            worker a(mm()), b(mm());
            ASSERT_EQ(UCS_OK, a.status());
            ASSERT_EQ(UCS_OK, b.status());
            stream_check check(b, ID_DATA);
            uct_ep_t *ep     = a.connect(b.where());
            const size_t max = a.limits(UCT_OP_AM_SHORT).max;
            EXPECT_LE(max, 8256u);
            for (uint64_t i = 0; i < NUM_MESSAGES; ++i) {
                bytes data = numbered(i, length_of(i, max));
                if (data.size() > max) { /* nothing so long can be sent through 16 lines */
                    break;
                }
                ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, ID_DATA, data));
            }
            EXPECT_TRUE(run_until({&a, &b}, [&]() { return check.received() > 0; }));
        }
    }
}

/* ------------------------------------------------------------------ cost */

TEST(mm_test, an_idle_interface_is_small)
{
    worker w(mm());
    size_t shared, private_memory;

    w.tl->iface.memory_used(w.iface, &shared, &private_memory);
    EXPECT_LE(shared, 1u << 20);
    EXPECT_LE(private_memory, 2u << 20);
    EXPECT_LE(w.where().address.size(), 10u);
    EXPECT_LE(w.tl->ep_size, 2048u);
}

TEST(mm_test, endpoints_ask_nothing_of_the_system)
{
    worker w(mm()), other(mm());
    const contact where = other.where();
    sys_meter meter;
    const size_t before = meter.system_calls();
    std::vector<uct_ep_t *> eps(100);

    for (uct_ep_t *&ep : eps) {
        ASSERT_EQ(UCS_OK, uct_ep_open(w.iface, where.uid.data(), where.address.data(),
                                      where.address.size(), nullptr, &ep));
    }
    EXPECT_EQ(before, meter.system_calls());
    for (uct_ep_t *ep : eps) {
        uct_ep_close(ep);
    }
}

const char *g_cache; /* what is said of each CPU's last cache; NULL: nothing */

/* Both sides are this process here, so they run on the same CPUs. */
TEST(mm_test, peers_behind_one_cache)
{
    ucs_sys_ops_t ops = ucs_sys_real;
    ops.open          = [](const char *path, int flags, mode_t mode) {
        const char *is_cache = strstr(path, "/cache/index");
        if (is_cache == nullptr) {
            return ucs_sys_real.open(path, flags, mode);
        }
        if ((g_cache == nullptr) || (strstr(path, "index3") == nullptr)) {
            errno = ENOENT;
            return -1;
        }
        const int fd = memfd_create("cache", MFD_CLOEXEC);
        EXPECT_EQ(static_cast<ssize_t>(strlen(g_cache)), pwrite(fd, g_cache, strlen(g_cache), 0));
        return fd;
    };
    const fake_sys fake(ops);
    cpu_set_t own;
    ucs_sys_get_cpus(&own);
    unsigned first = 0;
    while (!CPU_ISSET(first, &own)) {
        ++first;
    }
    const std::string one = std::to_string(first);

    for (auto [list, is_near] : {std::make_pair("0-1023", 1), {nullptr, 0}, {"", 0},
                                 {one.c_str(), ucs_sys_num_cpus() == 1}}) {
        g_cache = list;
        worker w(mm()), other(mm());
        uct_ep_t *ep = w.connect(other.where());
        ASSERT_EQ(UCS_OK, send({&w, &other}, ep, way::SHORT, ID_DATA, numbered(1, 8)));
        EXPECT_EQ(is_near, ep->ops->is_near(ep)) << (list ? list : "nothing");
    }
}

/* Several senders, who are connected, to one receiver that writes down whom it hears. */
class mm_turns : public testing::Test {
protected:
    static constexpr unsigned NUM = 6;

    void SetUp() override
    {
        m_receiver.on_message(ID_DATA, [&](const uint8_t *data, size_t) {
            m_from.push_back(data[0]);
        });
        for (unsigned i = 0; i < NUM; ++i) {
            m_senders.push_back(std::make_unique<worker>(mm()));
            m_eps.push_back(m_senders[i]->connect(m_receiver.where()));
            ASSERT_EQ(UCS_OK, uct_test::send({m_senders[i].get(), &m_receiver}, m_eps[i],
                                             way::SHORT, ID_DATA, bytes(8, uint8_t(i))));
        }
        ASSERT_TRUE(run_until({&m_receiver}, [&]() { return m_from.size() == NUM; }));
        m_from.clear();
        m_receiver.progress(); /* in vain: what comes now is no stream */
        m_receiver.progress();
    }

    void send(unsigned i, size_t length)
    {
        ASSERT_EQ(UCS_OK, post(m_eps[i], way::SHORT, ID_DATA, bytes(length, uint8_t(i)), 0));
    }

    worker m_receiver{mm()};
    std::vector<std::unique_ptr<worker>> m_senders;
    std::vector<uct_ep_t *> m_eps;
    std::vector<unsigned> m_from;
};

/* The next long message may not be waited for yet: one a turn, from each sender in turn. */
TEST_F(mm_turns, long_messages_come_one_a_turn)
{
    for (unsigned i = 0; i < 2 * NUM; ++i) {
        send(i % NUM, 4096);
    }
    for (unsigned i = 0; i < 2 * NUM; ++i) {
        EXPECT_EQ(1u, m_receiver.progress());
    }
    for (unsigned i = 0; i < NUM; ++i) {
        EXPECT_EQ(1, std::count(m_from.begin(), m_from.begin() + NUM, i)) << i;
        EXPECT_EQ(2, std::count(m_from.begin(), m_from.end(), i)) << i;
    }
}

/* Short ones come one a turn and sender at first, and by many once there is a stream of them. */
TEST_F(mm_turns, streams_come_by_many)
{
    unsigned turns = 0;

    for (unsigned i = 0; i < 2 * NUM; ++i) {
        send(i % NUM, 8);
    }
    EXPECT_EQ(NUM, m_receiver.progress());
    EXPECT_EQ(NUM, m_receiver.progress());
    EXPECT_EQ(0u, m_receiver.progress());

    for (unsigned i = 0; i < 100; ++i) {
        send(0, 8);
    }
    for (m_from.clear(); m_from.size() < 100; ++turns) {
        ASSERT_GT(m_receiver.progress(), 0u);
    }
    EXPECT_LT(turns, 20u);
}

/* So many streams that not all are served by one call: the next goes on behind the last of them. */
TEST_F(mm_turns, streams_take_turns)
{
    constexpr unsigned EACH = 100, AT_ONCE = 16, CALL = 4;

    for (unsigned i = 0; i < NUM * EACH; ++i) {
        send(i % NUM, 8);
    }
    while (m_from.size() % NUM == 0) { /* one of each, until they count as streams */
        m_from.clear();
        ASSERT_GT(m_receiver.progress(), 0u);
    }
    EXPECT_EQ(AT_ONCE * CALL, m_from.size());
    EXPECT_EQ(AT_ONCE * (NUM - CALL), m_receiver.progress());
    for (unsigned i = 0; i < NUM; ++i) {
        EXPECT_EQ(AT_ONCE, std::count(m_from.begin(), m_from.end(), i)) << i;
    }
    EXPECT_EQ(AT_ONCE * CALL, m_receiver.progress()) << "they still count as streams";
}

/* A ring that is looked at no more each time was read to its end, but not looked at since, as long
 * messages kept its receiver busy: the lines that are due go back to its sender, who may wait for
 * that many. */
TEST(mm_test, rings_that_get_cold_give_their_lines_back)
{
    constexpr unsigned NUM = 12, LINES = 100;
    const bytes short_one(8);
    const environment no_buffers(settings{{"UCX_MM_BUFFER_THRESH", "inf"}});
    worker receiver(mm());
    std::vector<std::unique_ptr<worker>> senders;
    std::vector<uct_ep_t *> eps;
    unsigned received = 0;

    receiver.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
    for (unsigned i = 0; i < NUM; ++i) {
        senders.push_back(std::make_unique<worker>(mm()));
        eps.push_back(senders[i]->connect(receiver.where()));
        ASSERT_EQ(UCS_OK,
                  send({senders[i].get(), &receiver}, eps[i], way::SHORT, ID_DATA, short_one));
    }
    ASSERT_TRUE(run_until({&receiver}, [&]() { return received == NUM; }));

    uct_mm_iface_t *iface = uct_mm_iface(receiver.iface);
    for (unsigned i = 0; i < NUM; ++i) {
        for (unsigned k = 0; k < LINES; ++k) {
            ASSERT_EQ(UCS_OK, post(eps[i], way::SHORT, ID_DATA, short_one, 0));
        }
    }
    while (received < NUM * (LINES + 1)) {
        ASSERT_GT(receiver.progress(), 0u);
    }
    uct_mm_rings_cool(iface); /* as if no time had passed since the last message */
    uct_mm_rings_cool(iface);
    for (unsigned i = 0; i < NUM; ++i) {
        const bytes longest(senders[i]->limits(UCT_OP_AM_SHORT).max, 1);
        ASSERT_EQ(UCS_OK, send({senders[i].get(), &receiver}, eps[i], way::SHORT, ID_DATA, longest))
            << "sender " << i;
    }
    EXPECT_TRUE(run_until({&receiver}, [&]() { return received == NUM * (LINES + 2); }));
}

/* More peers than are looked at each time: all are heard. */
TEST(mm_test, many_workers_in_one_process)
{
    constexpr unsigned NUM = 48, ROUNDS = 20;
    std::vector<std::unique_ptr<worker>> workers;
    std::vector<worker *> all;
    std::vector<std::vector<uct_ep_t *>> eps(NUM);
    std::vector<unsigned> received(NUM);
    seeded_random rnd(15);

    for (unsigned i = 0; i < NUM; ++i) {
        workers.push_back(std::make_unique<worker>(mm()));
        all.push_back(workers.back().get());
        ASSERT_EQ(UCS_OK, workers[i]->status());
        workers[i]->on_message(ID_DATA, [&received, i](const uint8_t *, size_t) { ++received[i]; });
    }
    for (unsigned i = 0; i < NUM; ++i) {
        for (unsigned k = 0; k < NUM; ++k) {
            eps[i].push_back(workers[i]->connect(workers[k]->where()));
        }
    }
    for (unsigned round = 0; round < ROUNDS; ++round) {
        for (unsigned i = 0; i < NUM; ++i) {
            for (unsigned k = 0; k < NUM; ++k) {
                ASSERT_EQ(UCS_OK, send(all, eps[i][k], way::SHORT, ID_DATA,
                                       numbered(round, rnd.below(300))));
            }
        }
    }
    EXPECT_TRUE(run_until(all, [&]() {
        return std::accumulate(received.begin(), received.end(), 0u) == NUM * NUM * ROUNDS;
    }));

    /* silent for long, and then a single word from each */
    for (unsigned i = 0; i < 5000; ++i) {
        workers[0]->progress();
    }
    received[0] = 0;
    for (unsigned i = 0; i < NUM; ++i) {
        ASSERT_EQ(UCS_OK, send({}, eps[i][0], way::SHORT, ID_DATA, numbered(0, 8)));
    }
    EXPECT_TRUE(run_until({all[0]}, [&]() { return received[0] == NUM; }));
}

/* ------------------------------------------------------------------ sleeping */

/* A sender that is out of credit sleeps until there is some. Long ones too, that take several
 * buffers, of the wide area or, where it sends to others, too, of those that take more lines. */
void sleep_for_credit(bool has_others)
{
    constexpr unsigned ROUNDS = 60;
    const auto message        = [](uint64_t number) {
        return numbered(number, (number % 7 == 3) ? 40000 : 8);
    };
    peer_process child([&](channel &parent) {
        worker w(mm());
        uint64_t received = 0;
        w.on_message(ID_DATA, [&](const uint8_t *data, size_t length) {
            ASSERT_EQ(message(received), bytes(data, data + length));
            ++received;
        });
        parent.put_contact(w.where());
        std::mt19937 rnd(3);
        EXPECT_TRUE(run_until({&w}, [&]() {
            if ((rnd() % 3) == 0) {
                usleep(rnd() % 200);
            }
            return received == ROUNDS * 200;
        }));
        parent.put_number(received);
    });
    worker w(mm());
    uct_ep_t *ep   = w.connect(child.link().get_contact());
    uint64_t sent  = 0;
    unsigned slept = 0;
    const int fd   = w.tl->iface.event_fd(w.iface);
    ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, ID_DATA, message(0)));
    ++sent;
    worker other(mm());
    other.on_message(ID_DATA, [](const uint8_t *, size_t) {});
    if (has_others) {
        ASSERT_EQ(UCS_OK, send({&w, &other}, w.connect(other.where()), way::SHORT, ID_DATA,
                               message(0)));
        ASSERT_EQ(2u, uct_mm_iface(w.iface)->side.num_writers);
    }
    ASSERT_GT(ep->ops->long_max(ep), 131072u + 64);

    while (sent < ROUNDS * 200) {
        const bytes data = message(sent);
        if (post(ep, way::SHORT, ID_DATA, data, 0) == UCS_OK) {
            ++sent;
            continue;
        }
        bool taken = false;
        pending request([&]() {
            const ucs_status_t status = post(ep, way::SHORT, ID_DATA, data, 0);
            taken                     = (status == UCS_OK);
            return status;
        });
        uct_ep_pending_add(ep, &request.base);
        while (!taken) {
            if ((w.progress() == 0) && (w.tl->iface.event_arm(w.iface) == UCS_OK)) {
                struct pollfd p = {fd, POLLIN, 0};
                ASSERT_EQ(1, poll(&p, 1, 10000)) << "nobody woke the sender after " << sent;
                ++slept;
            }
        }
        ++sent;
    }
    EXPECT_GT(slept, 0u);
    EXPECT_EQ(sent, child.link().get_number());
    EXPECT_EQ(0, child.wait({&w}));
}

TEST(mm_test, sleeping_for_credit)
{
    sleep_for_credit(false);
    sleep_for_credit(true);
}

/* What a sender does amid its signal, as if it had been stopped there. */
std::function<void()> g_amid_signal;

ssize_t sendmsg_amid(int fd, const struct msghdr *message, int flags)
{
    const std::function<void()> func = g_amid_signal;

    g_amid_signal = nullptr;
    if (func) {
        func();
        return ssize_t(message->msg_iov->iov_len); /* it never comes to the call */
    }
    return ucs_sys_real.sendmsg(fd, message, flags);
}

/* Who has found that the receiver sleeps, and is stopped before its signal, keeps it from nobody
 * else's; whoever comes late disturbs no later sleep. */
TEST(mm_test, a_sender_stopped_amid_its_signal)
{
    worker receiver(mm()), first(mm()), second(mm());
    const std::vector<worker *> all = {&receiver, &first, &second};
    uct_ep_t *from_first  = first.connect(receiver.where());
    uct_ep_t *from_second = second.connect(receiver.where());
    struct pollfd event   = {mm()->iface.event_fd(receiver.iface), POLLIN, 0};
    const bytes data      = pattern(1, 8);
    ucs_sys_ops_t table   = ucs_sys_real;
    unsigned received     = 0;

    table.sendmsg = sendmsg_amid;
    receiver.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
    ASSERT_EQ(UCS_OK, send(all, from_first, way::SHORT, ID_DATA, data));
    ASSERT_EQ(UCS_OK, send(all, from_second, way::SHORT, ID_DATA, data));
    const auto sleep = [&](unsigned expected) {
        return run_until({&receiver}, [&]() {
            return (received == expected) && (mm()->iface.event_arm(receiver.iface) == UCS_OK) &&
                   (poll(&event, 1, 0) == 0);
        });
    };
    ASSERT_TRUE(sleep(2));
    const fake_sys fake(table);
    g_amid_signal = [&]() {
        EXPECT_EQ(UCS_OK, post(from_second, way::SHORT, ID_DATA, data, 0));
        EXPECT_EQ(1, poll(&event, 1, 0));
        EXPECT_TRUE(sleep(4));
    };
    EXPECT_EQ(UCS_OK, post(from_first, way::SHORT, ID_DATA, data, 0));
    EXPECT_FALSE(g_amid_signal);
    EXPECT_EQ(UCS_OK, post(from_second, way::SHORT, ID_DATA, data, 0));
    EXPECT_EQ(1, poll(&event, 1, 0));
    EXPECT_TRUE(sleep(5));
}

/* ------------------------------------------------------------------ memory of others */

/* Where /proc does not lead to the owner's descriptor, the owner is asked for it. */
TEST(mm_test, memory_by_asking_its_owner)
{
    peer_process child([](channel &parent) {
        worker w(mm());
        (void)w.connect(parent.get_contact());
        const uint64_t address = parent.get_number();
        const bytes data       = pattern(3, 8000);
        bytes packed;
        uct_rkey_t *rkey;
        ASSERT_TRUE(parent.get(packed));
        ASSERT_EQ(UCS_OK, w.tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
        ASSERT_EQ(UCS_OK, ucs_fault_set("open", "1+:EACCES"));

        void *ptr;
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, w.tl->md.rkey_ptr(rkey, address, 8000, &ptr)) << "asked";
        ASSERT_EQ(UCS_OK, persist({&w}, [&]() {
            return w.tl->md.rkey_ptr(rkey, address, 8000, &ptr);
        }));
        memcpy(ptr, data.data(), data.size());
        w.tl->md.rkey_release(rkey);

        /* memory that is gone */
        parent.put_number(1);
        ASSERT_TRUE(parent.get(packed));
        ASSERT_EQ(UCS_OK, w.tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, persist({&w}, [&]() {
            return w.tl->md.rkey_ptr(rkey, address, 1, &ptr);
        }));
        w.tl->md.rkey_release(rkey);
        ucs_fault_clear(nullptr);
        ASSERT_EQ(UCS_OK, w.tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, persist({&w}, [&]() {
            return w.tl->md.rkey_ptr(rkey, address, 1, &ptr);
        })) << "by /proc neither";
        w.tl->md.rkey_release(rkey);
        parent.put_number(2);
    });
    const auto next = [&](worker &w) {
        run_until({&w}, [&]() {
            struct pollfd p = {child.link().fd(), POLLIN, 0};
            return poll(&p, 1, 0) == 1;
        });
        return child.link().get_number();
    };
    worker w(mm());
    uct_mem_t *mem;
    bytes packed(64);

    ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 8000, 0, &mem));
    packed.resize(w.tl->md.rkey_pack(mem, packed.data()));
    child.link().put_contact(w.where());
    child.link().put_number(reinterpret_cast<uintptr_t>(mem->address));
    child.link().put(packed);
    EXPECT_EQ(1u, next(w));
    EXPECT_EQ(0, memcmp(mem->address, pattern(3, 8000).data(), 8000));
    w.tl->md.release(mem);
    child.link().put(packed);
    EXPECT_EQ(2u, next(w));
    EXPECT_EQ(0, child.wait({&w}));
}

} // namespace
