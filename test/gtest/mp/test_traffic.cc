/* Halyard: several processes send each other messages of all sizes, each byte checked, over every
 * way that large messages can take.
 *
 * The plan of all messages follows from the seed, so sender and receiver agree on it without a
 * word. Each process posts its sends and receives in an order of its own.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"
#include "seed.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned MESSAGES   = 40; /* from one process to one other */
constexpr unsigned WINDOW     = 24; /* sends in flight of one process */
constexpr size_t   GUARD      = 64; /* bytes behind a buffer that must not be touched */
constexpr uint8_t  GUARD_BYTE = 0xe7;

struct way {
    unsigned    processes;
    const char *scheme;
    const char *tls;
    const char *name  = ""; /* and one more setting */
    const char *value = "";
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.processes << " processes, UCX_RNDV_SCHEME=" << w.scheme << " UCX_TLS=" << w.tls
               << " " << w.name << "=" << w.value;
}

struct message {
    size_t   length;
    uint64_t tag;
    uint64_t id;
};

uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dull;
    return x ^ (x >> 33);
}

/* Message k from a to b: often short, sometimes at a boundary, seldom large. */
message plan(uint64_t seed, unsigned a, unsigned b, unsigned k)
{
    static const size_t borders[] = {0, 1, 8, 48, 49, 56, 64, 4096, 5744, 8192, 65536, 262144};
    const uint64_t id             = mix(seed + mix((a * 1000003ull) + (b * 10007ull) + k));
    const uint64_t r              = mix(id);
    size_t length;

    switch (r % 8) {
    case 0:
    case 1:
    case 2:
        length = (r >> 8) % 64;
        break;
    case 3:
    case 4:
        length = (r >> 8) % 8192;
        break;
    case 5:
        length = borders[(r >> 8) % (sizeof(borders) / sizeof(borders[0]))] + ((r >> 40) % 2);
        break;
    case 6:
        length = (r >> 8) % (64 * 1024);
        break;
    default:
        length = ((r >> 4) % 8 == 0) ? (r >> 8) % (3u << 20) : (r >> 8) % (256 * 1024);
        break;
    }
    return {length, (static_cast<uint64_t>(a) << 32) | k, id};
}

struct operation {
    bool                 is_send;
    unsigned             peer;
    message              what;
    std::vector<uint8_t> buffer;
    ucs_status_ptr_t     request = nullptr;
};

class traffic {
public:
    traffic(self &me, uint64_t seed) : m_me(me), m_node(me), m_random(seed + me.index())
    {
        m_node.connect_all();
        for (unsigned peer = 0; peer < me.count(); ++peer) {
            for (unsigned k = 0; k < MESSAGES; ++k) {
                m_ops.push_back({true, peer, plan(seed, me.index(), peer, k), {}});
                m_ops.push_back({false, peer, plan(seed, peer, me.index(), k), {}});
            }
        }
        std::shuffle(m_ops.begin(), m_ops.end(), m_random);
    }

    void run()
    {
        auto next_send = next_of(true, m_ops.begin());
        auto next_recv = next_of(false, m_ops.begin());

        /* Receives are never held up, so that sends always find their end. */
        while ((next_send != m_ops.end()) || (next_recv != m_ops.end())) {
            if ((next_send != m_ops.end()) && (check_sends() < WINDOW) &&
                ((next_recv == m_ops.end()) || (next_send < next_recv) || (m_random() % 4 == 0))) {
                send(*next_send);
                next_send = next_of(true, next_send + 1);
            } else if (next_recv != m_ops.end()) {
                recv(*next_recv);
                next_recv = next_of(false, next_recv + 1);
            } else {
                m_me.waits_for("room in the window of sends");
                m_node.progress();
            }
            if (m_random() % 4 == 0) {
                m_node.progress();
            }
        }

        for (operation &op : m_ops) {
            m_me.waits_for("the %s process %u, %zu bytes, tag 0x%lx", op.is_send ? "send to" :
                           "message of", op.peer, op.what.length, (unsigned long)op.what.tag);
            finish(op);
        }
        m_node.barrier();
        for (unsigned i = 0; i < m_me.count(); ++i) {
            EXPECT_EQ(0u, m_node.errors(m_node.ep(i)).count);
            m_node.close(m_node.ep(i));
        }
        m_node.barrier(); /* a worker that goes away is an error to those who still close */
    }

private:
    using position = std::vector<operation>::iterator;

    position next_of(bool is_send, position from)
    {
        return std::find_if(from, m_ops.end(),
                            [&](const operation &op) { return op.is_send == is_send; });
    }

    void send(operation &op)
    {
        op.buffer.resize(op.what.length);
        mp::fill(op.buffer.data(), op.what.length, op.what.id);
        op.request = m_node.send(m_node.ep(op.peer), op.buffer.data(), op.what.length,
                                 op.what.tag);
        ASSERT_FALSE(UCS_PTR_IS_ERR(op.request))
            << ucs_status_string(UCS_PTR_STATUS(op.request));
        if (op.request != nullptr) {
            m_sends.push_back(&op);
        }
    }

    void recv(operation &op)
    {
        op.buffer.assign(op.what.length + GUARD, GUARD_BYTE);
        op.request = m_node.recv(op.buffer.data(), op.what.length, op.what.tag);
        ASSERT_TRUE(UCS_PTR_IS_PTR(op.request)) << ucs_status_string(UCS_PTR_STATUS(op.request));
    }

    size_t check_sends()
    {
        m_sends.erase(std::remove_if(m_sends.begin(), m_sends.end(), [](operation *op) {
            return ucp_request_check_status(op->request) != UCS_INPROGRESS;
        }), m_sends.end());
        return m_sends.size();
    }

    void finish(operation &op)
    {
        ucp_tag_recv_info_t info = {};

        if (op.is_send) {
            EXPECT_EQ(UCS_OK, m_node.wait(op.request));
            return;
        }
        EXPECT_EQ(UCS_OK, m_node.wait(op.request, &info));
        EXPECT_EQ(op.what.length, info.length);
        EXPECT_EQ(op.what.tag, info.sender_tag);
        EXPECT_EQ(-1, mp::find_difference(op.buffer.data(), op.what.length, op.what.id))
            << "message of " << op.what.length << " bytes from process " << op.peer;
        EXPECT_EQ(static_cast<std::ptrdiff_t>(GUARD),
                  std::count(op.buffer.end() - GUARD, op.buffer.end(), GUARD_BYTE))
            << "written behind a message of " << op.what.length << " bytes";
    }

    self                    &m_me;
    node                     m_node;
    std::mt19937_64          m_random;
    std::vector<operation>   m_ops;
    std::vector<operation *> m_sends;
};

} // namespace

class mp_traffic : public testing::TestWithParam<way> {};

TEST_P(mp_traffic, every_byte_of_every_message)
{
    const way &w = GetParam();
    seeded_random random(20250801 + w.processes);
    const uint64_t seed = random.bits();
    processes all(w.processes);

    all.start_all([&](self &me) {
        setenv("UCX_RNDV_SCHEME", w.scheme, 1);
        setenv("UCX_TLS", w.tls, 1);
        if (w.name[0] != '\0') {
            setenv(w.name, w.value, 1);
        }
        traffic t(me, seed);
        t.run();
    });
    EXPECT_TRUE(all.join());
}

static std::string way_name(const testing::TestParamInfo<way> &info)
{
    std::string name = std::to_string(info.param.processes) + "_" + info.param.scheme + "_" +
                       info.param.tls + "_" + info.param.name + info.param.value;

    std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
    return name;
}

static std::vector<way> all_ways()
{
    std::vector<way> ways;

    for (unsigned count : {2u, 3u, 5u, 8u}) {
        for (const char *scheme : {"auto", "get_zcopy", "put_zcopy", "both", "am"}) {
            ways.push_back({count, scheme, "all"});
        }
        ways.push_back({count, "auto", "^cma"});
        ways.push_back({count, "get_zcopy", "^cma"}); /* what is asked for cannot be had */
    }
    for (const char *backing : {"posix", "sysv", "memfd,sysv"}) {
        ways.push_back({3, "auto", "all", "UCX_MM_BACKING", backing});
    }
    for (const char *lines : {"16", "1024"}) {
        ways.push_back({4, "auto", "all", "UCX_MM_FIFO_SIZE", lines});
        ways.push_back({4, "am", "all", "UCX_MM_FIFO_SIZE", lines});
    }
    ways.push_back({4, "auto", "all", "UCX_RNDV_THRESH", "0"});
    ways.push_back({4, "auto", "all", "UCX_RNDV_THRESH", "inf"});
    return ways;
}

INSTANTIATE_TEST_SUITE_P(, mp_traffic, testing::ValuesIn(all_ways()), way_name);
