/* Halyard: messages of more than 4 GiB: no count, offset or length is cut to 32 bits.
 *
 * Memory for them is not needed: through messages, a generic datatype makes and checks the bytes as
 * they are asked for; for single copies, a few MiB of memory are mapped over and over.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned SENDER   = 0;
constexpr unsigned RECEIVER = 1;
constexpr size_t   GIB      = 1ull << 30;
constexpr size_t   LENGTH   = (4 * GIB) + (100u << 20) + 4321;

/* Byte i of the message is byte i % PERIOD of a table. A prime, so that an offset that lost its
 * upper half shows. */
constexpr size_t PERIOD = 65521;
constexpr size_t WINDOW = 65536;

class pattern {
public:
    pattern() : m_table(PERIOD + WINDOW)
    {
        std::vector<uint8_t> period(PERIOD);

        mp::fill(period.data(), PERIOD, 42);
        for (size_t i = 0; i < m_table.size(); ++i) {
            m_table[i] = period[i % PERIOD];
        }
    }

    void make(size_t offset, void *dest, size_t length) const
    {
        for (size_t done = 0; done < length; done += WINDOW) {
            memcpy(static_cast<uint8_t *>(dest) + done, &m_table[(offset + done) % PERIOD],
                   std::min(WINDOW, length - done));
        }
    }

    bool is_right(size_t offset, const void *src, size_t length) const
    {
        for (size_t done = 0; done < length; done += WINDOW) {
            if (memcmp(static_cast<const uint8_t *>(src) + done,
                       &m_table[(offset + done) % PERIOD], std::min(WINDOW, length - done)) != 0) {
                return false;
            }
        }
        return true;
    }

private:
    std::vector<uint8_t> m_table;
};

/* ---- generic datatype ---- */

struct stream_state {
    pattern bytes;
    size_t  packed   = 0;
    size_t  unpacked = 0;
    size_t  wrong    = 0;
    bool    finished = false;
};

void *start_pack(void *context, const void *, size_t)
{
    return context;
}

void *start_unpack(void *context, void *, size_t)
{
    return context;
}

size_t packed_size(void *)
{
    return LENGTH;
}

size_t pack(void *state, size_t offset, void *dest, size_t max_length)
{
    stream_state *s     = static_cast<stream_state *>(state);
    const size_t length = std::min(max_length, LENGTH - offset);

    s->bytes.make(offset, dest, length);
    s->packed += length;
    return length;
}

ucs_status_t unpack(void *state, size_t offset, const void *src, size_t length)
{
    stream_state *s = static_cast<stream_state *>(state);

    s->wrong    += (offset + length > LENGTH) || !s->bytes.is_right(offset, src, length);
    s->unpacked += length;
    return UCS_OK;
}

void finish(void *state)
{
    static_cast<stream_state *>(state)->finished = true;
}

/* ---- memory that is mapped over and over ---- */

class repeated_memory {
public:
    explicit repeated_memory(size_t period) : m_period(period)
    {
        const size_t pieces = (LENGTH + period - 1) / period;
        const int fd        = memfd_create("repeated", MFD_CLOEXEC);

        m_length = pieces * period;
        EXPECT_EQ(0, ftruncate(fd, static_cast<off_t>(period)));
        m_data = static_cast<uint8_t *>(mmap(nullptr, m_length, PROT_NONE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        EXPECT_NE(MAP_FAILED, static_cast<void *>(m_data));
        for (size_t i = 0; i < pieces; ++i) {
            EXPECT_NE(MAP_FAILED, mmap(m_data + (i * period), period, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_FIXED, fd, 0));
        }
        close(fd);
    }

    ~repeated_memory()
    {
        munmap(m_data, m_length);
    }

    uint8_t *data() const
    {
        return m_data;
    }

    size_t period() const
    {
        return m_period;
    }

private:
    size_t   m_period;
    size_t   m_length;
    uint8_t *m_data;
};

/* Different on both sides, so that what is at one place does not come from one offset only. */
constexpr size_t SENT_PERIOD     = (64u << 20) + 4096;
constexpr size_t RECEIVED_PERIOD = (48u << 20) + 12288;

void send_memory(self &me, node &n)
{
    repeated_memory memory(SENT_PERIOD);

    mp::fill(memory.data(), SENT_PERIOD, 7);
    me.waits_for("the message to be taken");
    EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(RECEIVER), memory.data(), LENGTH, 1)));
}

/* Whether the bytes of received memory's place lie in the message at one of the place's offsets. */
bool is_of_message(const uint8_t *data, size_t place, size_t length,
                   const std::vector<uint8_t> &sent)
{
    for (size_t offset = place; offset < LENGTH; offset += RECEIVED_PERIOD) {
        const size_t there = std::min(length, LENGTH - offset);

        if (memcmp(data, &sent[offset % SENT_PERIOD], there) == 0) {
            return true;
        }
    }
    return false;
}

/* A page holds what was written to it last. Where two processes copy from both ends, both may write
 * a page at the same time, each from another offset: each word is of one of them then. */
bool is_right_page(const uint8_t *data, size_t page, const std::vector<uint8_t> &sent)
{
    constexpr size_t WORD = 8;
    size_t right          = 0;

    if (is_of_message(data, page, 4096, sent)) {
        return true;
    }
    while ((right < 4096) && is_of_message(data + right, page + right, WORD, sent)) {
        right += WORD;
    }
    return right == 4096;
}

void receive_memory(self &me, node &n)
{
    repeated_memory memory(RECEIVED_PERIOD);
    std::vector<uint8_t> sent(SENT_PERIOD);
    ucp_tag_recv_info_t info = {};
    size_t wrong             = 0;

    mp::fill(sent.data(), SENT_PERIOD, 7);
    me.waits_for("the message");
    EXPECT_EQ(UCS_OK, n.wait(n.recv(memory.data(), LENGTH, 1), &info));
    EXPECT_EQ(LENGTH, info.length);
    for (size_t page = 0; page < RECEIVED_PERIOD; page += 4096) {
        wrong += !is_right_page(memory.data() + page, page, sent);
    }
    EXPECT_EQ(0u, wrong) << "pages that hold nothing of the message";
}

} // namespace

class beyond_4gib_by : public testing::TestWithParam<const char *> {};

TEST_P(beyond_4gib_by, memory)
{
    const char *scheme = GetParam();
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_RNDV_SCHEME", scheme, 1);
        node n(me);
        n.connect_all();
        if (me.index() == SENDER) {
            send_memory(me, n);
        } else {
            receive_memory(me, n);
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

INSTANTIATE_TEST_SUITE_P(, beyond_4gib_by, testing::Values("get_zcopy", "put_zcopy", "both"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string(info.param);
                         });

TEST(beyond_4gib, generic_datatype)
{
    processes both(2);

    if (mp::slowness() > 1) {
        GTEST_SKIP() << "a sanitizer takes minutes for so many messages";
    }
    both.start_all([&](self &me) {
        const ucp_generic_dt_ops_t ops = {start_pack, start_unpack, packed_size, pack, unpack,
                                          finish};
        ucp_request_param_t param      = {};
        ucp_tag_recv_info_t info       = {};
        ucp_datatype_t datatype;
        stream_state state;

        setenv("UCX_MM_FIFO_SIZE", "4096", 1); /* fewer messages */
        node n(me);

        n.connect_all();
        ASSERT_EQ(UCS_OK, ucp_dt_create_generic(&ops, &state, &datatype));
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        param.datatype     = datatype;
        me.waits_for("a message of %zu bytes", LENGTH);
        if (me.index() == SENDER) {
            EXPECT_EQ(UCS_OK, n.wait(ucp_tag_send_nbx(n.ep(RECEIVER), nullptr, 1, 1, &param)));
            EXPECT_EQ(LENGTH, state.packed);
        } else {
            EXPECT_EQ(UCS_OK, n.wait(ucp_tag_recv_nbx(n.worker(), nullptr, 1, 1, UINT64_MAX,
                                                      &param), &info));
            EXPECT_EQ(LENGTH, info.length);
            EXPECT_EQ(LENGTH, state.unpacked);
            EXPECT_EQ(0u, state.wrong);
        }
        EXPECT_TRUE(state.finished);
        n.barrier();
        ucp_dt_destroy(datatype);
    });
    EXPECT_TRUE(both.join());
}

/* A buffer that is too small for such a message takes what fits, and the sender gets its buffer
 * back. */
TEST(beyond_4gib, truncated)
{
    processes both(2);

    both.start_all([&](self &me) {
        node n(me);

        n.connect_all();
        if (me.index() == SENDER) {
            send_memory(me, n);
        } else {
            std::vector<uint8_t> buffer(1u << 20);

            me.waits_for("the message");
            EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, n.wait(n.recv(buffer.data(), buffer.size(), 1)));
            EXPECT_EQ(-1, mp::find_difference(buffer.data(), buffer.size(), 7));
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

/* Lengths that do not fit 64 bits are refused. */
TEST(beyond_4gib, lengths_that_overflow)
{
    processes both(2);

    both.start_all([&](self &me) {
        ucp_request_param_t param = {};
        char byte                 = 0;
        node n(me);

        n.connect_all();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype     = ucp_dt_make_contig(16);
        for (size_t count : {SIZE_MAX, SIZE_MAX / 8, (SIZE_MAX / 16) + 1}) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                      UCS_PTR_RAW_STATUS(ucp_tag_send_nbx(n.ep(1 - me.index()), &byte, count, 1,
                                                          &param)));
            EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                      UCS_PTR_RAW_STATUS(ucp_tag_recv_nbx(n.worker(), &byte, count, 1, UINT64_MAX,
                                                          &param)));
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}
