/* Halyard: several processes put into, get from and count in each other's memory, which is the
 * library's (mapped by the others) or the user's (copied, or asked for by messages).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"
#include "seed.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr size_t MEMORY      = 1u << 20;
constexpr unsigned KEY_WORDS = 12; /* of a slot, for each packed key */
constexpr unsigned ADDRESSES = 2 * KEY_WORDS;
constexpr unsigned READY     = ADDRESSES + 2;
constexpr unsigned DONE      = READY + 1;
constexpr unsigned FILLED    = DONE + 1;

enum kind {
    ALLOCATED,
    OF_USER,
    KINDS
};

/* Memory of both kinds, registered, its keys on the board; and keys of others. */
class window {
public:
    window(self &me, node &n) : m_me(me), m_node(n), m_user(MEMORY)
    {
        for (unsigned kind = 0; kind < KINDS; ++kind) {
            ucp_mem_map_params_t params = {};
            ucp_mem_attr_t attr         = {};
            void *packed                = nullptr;
            size_t length               = 0;
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_FLAGS;
            params.address    = (kind == ALLOCATED) ? nullptr : m_user.data();
            params.length     = MEMORY;
            params.flags      = (kind == ALLOCATED) ? UCP_MEM_MAP_ALLOCATE : 0;
            EXPECT_EQ(UCS_OK, ucp_mem_map(n.context(), &params, &m_mem[kind]));
            attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
            EXPECT_EQ(UCS_OK, ucp_mem_query(m_mem[kind], &attr));
            m_data[kind] = static_cast<uint8_t *>(attr.address);
            EXPECT_EQ(UCS_OK, ucp_rkey_pack(n.context(), m_mem[kind], &packed, &length));
            EXPECT_LE(length, KEY_WORDS * sizeof(uint64_t));
            uint64_t words[KEY_WORDS] = {};
            memcpy(words, packed, length);
            ucp_rkey_buffer_release(packed);
            for (unsigned i = 0; i < KEY_WORDS; ++i) {
                me.own().words[(kind * KEY_WORDS) + i] = words[i];
            }
            me.own().words[ADDRESSES + kind] = reinterpret_cast<uintptr_t>(attr.address);
        }
        me.own().words[READY] = 1;
    }

    ~window()
    {
        for (ucp_rkey_h rkey : m_rkeys) {
            ucp_rkey_destroy(rkey);
        }
        for (ucp_mem_h mem : m_mem) {
            if (mem != nullptr) {
                EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_node.context(), mem));
            }
        }
    }

    uint8_t *data(unsigned kind) const
    {
        return m_data[kind];
    }

    ucp_rkey_h key(unsigned index, unsigned kind)
    {
        uint64_t words[KEY_WORDS];
        ucp_rkey_h rkey = nullptr;

        m_node.until([&]() { return m_me.at(index).words[READY] != 0; });
        for (unsigned i = 0; i < KEY_WORDS; ++i) {
            words[i] = m_me.at(index).words[(kind * KEY_WORDS) + i];
        }
        EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(m_node.ep(index), words, &rkey));
        m_rkeys.push_back(rkey);
        return rkey;
    }

    uint64_t address(unsigned index, unsigned kind) const
    {
        return m_me.at(index).words[ADDRESSES + kind];
    }

    void unmap(unsigned kind)
    {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_node.context(), m_mem[kind]));
        m_mem[kind] = nullptr;
    }

private:
    self                   &m_me;
    node                   &m_node;
    std::vector<uint8_t>    m_user;
    uint8_t                *m_data[KINDS] = {};
    ucp_mem_h               m_mem[KINDS]  = {};
    std::vector<ucp_rkey_h> m_rkeys;
};

ucs_status_t flush(node &n)
{
    const ucp_request_param_t param = {};

    return n.wait(ucp_worker_flush_nbx(n.worker(), &param));
}

class mp_one_sided : public testing::TestWithParam<const char *> {
};

} // namespace

/* Each process has a part of each other's memory, which it writes and reads back in any order. */
TEST_P(mp_one_sided, every_byte)
{
    constexpr unsigned COUNT = 4;
    constexpr size_t PART    = MEMORY / COUNT;
    seeded_random random(2401);
    const uint64_t seed = random.bits();
    processes all(COUNT);

    all.start_all([&](self &me) {
        setenv("UCX_TLS", GetParam(), 1);
        const ucp_request_param_t param = {};
        std::mt19937_64 random(seed + me.index());
        node n(me);
        n.connect_all();
        {
            window w(me, n);
            ucp_rkey_h keys[COUNT][KINDS];
            for (unsigned peer = 0; peer < COUNT; ++peer) {
                for (unsigned kind = 0; kind < KINDS; ++kind) {
                    keys[peer][kind] = w.key(peer, kind);
                }
            }
            for (unsigned round = 0; round < 12; ++round) {
                std::vector<std::vector<uint8_t>> out, in;
                std::vector<size_t> lengths;
                std::vector<ucs_status_ptr_t> requests;
                for (unsigned i = 0; i < COUNT * KINDS; ++i) {
                    lengths.push_back(random() % ((random() % 3) ? 500 : PART));
                    out.emplace_back(lengths[i]);
                    in.emplace_back(lengths[i]);
                    mp::fill(out[i].data(), lengths[i], (round * 1000) + (me.index() * 100) + i);
                    requests.push_back(ucp_put_nbx(
                        n.ep(i / KINDS), out[i].data(), lengths[i],
                        w.address(i / KINDS, i % KINDS) + (me.index() * PART),
                        keys[i / KINDS][i % KINDS], &param));
                }
                ASSERT_EQ(UCS_OK, ucp_worker_fence(n.worker()));
                for (unsigned i = 0; i < COUNT * KINDS; ++i) {
                    requests.push_back(ucp_get_nbx(
                        n.ep(i / KINDS), in[i].data(), lengths[i],
                        w.address(i / KINDS, i % KINDS) + (me.index() * PART),
                        keys[i / KINDS][i % KINDS], &param));
                }
                for (ucs_status_ptr_t request : requests) {
                    ASSERT_EQ(UCS_OK, n.wait(request));
                }
                ASSERT_EQ(in, out);
                for (unsigned i = 0; i < KINDS; ++i) {
                    me.own().words[DONE + 1 + i] =
                        lengths[(((me.index() + 1) % COUNT) * KINDS) + i];
                }
                n.barrier(); /* after the flush that the gets were: the next one looks at mine */
                const unsigned writer = (me.index() + COUNT - 1) % COUNT;
                for (unsigned kind = 0; kind < KINDS; ++kind) {
                    EXPECT_EQ(-1, mp::find_difference(
                                      w.data(kind) + (writer * PART),
                                      me.at(writer).words[DONE + 1 + kind],
                                      (round * 1000) + (writer * 100) + (me.index() * KINDS) +
                                          kind));
                }
                n.barrier();
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* All count in the words of the first, itself too, by loads and stores and by whatever is left. */
TEST_P(mp_one_sided, sums_are_exact)
{
    constexpr unsigned COUNT = 4, ROUNDS = 2000;
    processes all(COUNT);

    all.start_all([&](self &me) {
        setenv("UCX_TLS", GetParam(), 1);
        node n(me);
        n.connect_all();
        {
            window w(me, n);
            ucp_rkey_h keys[KINDS] = {w.key(0, ALLOCATED), w.key(0, OF_USER)};
            for (unsigned i = 0; i < ROUNDS; ++i) {
                for (unsigned kind = 0; kind < KINDS; ++kind) {
                    ASSERT_EQ(UCS_OK, ucp_atomic_post(n.ep(0), UCP_ATOMIC_POST_OP_ADD,
                                                      me.index() + 1, 8,
                                                      w.address(0, kind) + 64, keys[kind]));
                    ASSERT_EQ(UCS_OK, ucp_atomic_post(n.ep(0), UCP_ATOMIC_POST_OP_ADD,
                                                      me.index() + 1, 4,
                                                      w.address(0, kind) + 128, keys[kind]));
                }
                if ((i % 100) == 0) {
                    ASSERT_EQ(UCS_OK, flush(n));
                }
            }
            ASSERT_EQ(UCS_OK, flush(n));
            n.barrier();
            if (me.index() == 0) {
                for (unsigned kind = 0; kind < KINDS; ++kind) {
                    EXPECT_EQ(ROUNDS * (1u + 2 + 3 + 4),
                              *reinterpret_cast<uint64_t *>(w.data(kind) + 64));
                    EXPECT_EQ(ROUNDS * (1u + 2 + 3 + 4),
                              *reinterpret_cast<uint32_t *>(w.data(kind) + 128));
                }
            }
            n.barrier();
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* Accumulations of MPI to one place rely on the order of atomics, also while the memory gets
 * mapped: its owner was asked for the descriptor; what was posted meanwhile goes as messages. */
TEST(one_sided, atomics_stay_in_order_while_memory_gets_mapped)
{
    constexpr unsigned ROUNDS = 20, MOST = 100;
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_MM_BACKING", "posix", 1);
        node n(me);
        n.connect_all();
        for (unsigned round = 0; round < ROUNDS; ++round) {
            window w(me, n);
            n.barrier();
            if (me.index() == 1) {
                ucp_request_param_t param = {};
                ucp_rkey_h rkey           = w.key(0, ALLOCATED);
                uint64_t value            = 0;
                std::vector<uint64_t> old(MOST);
                std::vector<ucs_status_ptr_t> requests;
                ucs_status_ptr_t request;
                param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
                param.datatype     = ucp_dt_make_contig(8);
                do {
                    param.reply_buffer = &old[value];
                    ++value;
                    request = ucp_atomic_op_nbx(n.ep(0), UCP_ATOMIC_OP_SWAP, &value, 1,
                                                w.address(0, ALLOCATED), rkey, &param);
                    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
                    requests.push_back(request);
                    usleep(100);
                } while ((request != nullptr) && (value < MOST));
                for (ucs_status_ptr_t each : requests) {
                    ASSERT_EQ(UCS_OK, n.wait(each));
                }
                for (uint64_t i = 0; i < value; ++i) {
                    ASSERT_EQ(i, old[i]) << round;
                }
            }
            n.barrier();
        }
    });
    EXPECT_TRUE(both.join());
}

/* What is mapped needs nothing of its owner, which stands still. */
TEST(one_sided, a_stopped_owner)
{
    processes both(2);

    both.start(0, [](self &me) {
        node n(me);
        n.connect_all();
        window w(me, n);
        memset(w.data(ALLOCATED), 1, MEMORY);
        me.own().words[FILLED] = 1;
        n.until([&]() { return me.at(1).words[DONE] != 0; });
    });
    both.start(1, [](self &me) {
        const ucp_request_param_t param = {};
        std::vector<uint8_t> data(100000, 7), back(100000);
        node n(me);
        n.connect_all();
        {
            window w(me, n);
            ucp_rkey_h rkey = w.key(0, ALLOCATED);
            uint64_t old    = 0;
            n.until([&]() { return me.at(0).words[FILLED] != 0; });
            me.own().words[READY] = 2; /* stop it now */
            n.until([&]() { return me.at(0).words[DONE] == 5; });
            EXPECT_EQ(nullptr, ucp_put_nbx(n.ep(0), data.data(), data.size(),
                                           w.address(0, ALLOCATED) + 8, rkey, &param));
            EXPECT_EQ(nullptr, ucp_get_nbx(n.ep(0), back.data(), back.size(),
                                           w.address(0, ALLOCATED) + 8, rkey, &param));
            EXPECT_EQ(data, back);
            EXPECT_EQ(UCS_OK, ucp_atomic_fadd64(n.ep(0), 5, w.address(0, ALLOCATED), rkey, &old));
            EXPECT_EQ(0x0101010101010101u, old);
            EXPECT_EQ(nullptr, ucp_worker_flush_nbx(n.worker(), &param));
        }
        me.own().words[DONE] = 1;
    });
    ASSERT_TRUE(both.until([&]() { return both.at(1).words[READY] == 2; }, "the key"));
    both.signal(0, SIGSTOP);
    both.at(0).words[DONE] = 5;
    ASSERT_TRUE(both.until([&]() { return both.at(1).words[DONE] == 1; }, "operations"));
    both.signal(0, SIGCONT);
    EXPECT_TRUE(both.join());
}

/* Operations on memory of the user's go as messages to an owner that listens (long ones where that
 * was found to be faster), and are copied where it does not: they end in either case. */
class an_owner : public testing::TestWithParam<size_t> {};

TEST_P(an_owner, that_listens_now_and_then)
{
    enum stage { BUSY = 1, LISTENS, END };
    const size_t length  = GetParam();
    const unsigned count = (length > 100000) ? 100 : 500;
    processes both(2);

    both.start(0, [&](self &me) {
        node n(me);
        n.connect_all();
        window w(me, n);
        n.until([&]() { return me.at(1).words[DONE] == BUSY; });
        me.own().words[FILLED] = BUSY;
        while (me.at(1).words[DONE] == BUSY) { /* no progress */
            usleep(100);
        }
        me.own().words[FILLED] = LISTENS;
        n.until([&]() { return me.at(1).words[DONE] == END; });
        EXPECT_EQ(me.at(1).words[FILLED], w.data(OF_USER)[64] + (256u * w.data(OF_USER)[65]));
    });
    both.start(1, [&](self &me) {
        const ucp_request_param_t param = {};
        const int page = 0;
        int there      = 0;
        node n(me);
        const iovec local  = {&there, sizeof(there)};
        const iovec remote = {const_cast<int *>(&page), sizeof(page)};
        const bool copies = (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof(there));
        n.connect_all();
        {
            window w(me, n);
            ucp_rkey_h rkey   = w.key(0, OF_USER);
            uint64_t address  = w.address(0, OF_USER) + 64;
            uint16_t value    = 0;
            unsigned in_flight = 0;
            std::vector<uint8_t> data(length), got(length);
            const auto rounds = [&](const char *what, unsigned number) {
                for (unsigned i = 0; i < number; ++i) {
                    me.waits_for("%s, round %u", what, i);
                    ++value;
                    std::fill(data.begin(), data.end(), static_cast<uint8_t>(value * 7));
                    memcpy(data.data(), &value, sizeof(value));
                    auto *put = ucp_put_nbx(n.ep(0), data.data(), length, address, rkey, &param);
                    in_flight += UCS_PTR_IS_PTR(put);
                    ASSERT_EQ(UCS_OK, n.wait(put));
                    ASSERT_EQ(UCS_OK, flush(n));
                    std::fill(got.begin(), got.end(), 0);
                    ASSERT_EQ(UCS_OK, n.wait(ucp_get_nbx(n.ep(0), got.data(), length, address,
                                                         rkey, &param)));
                    ASSERT_EQ(data, got);
                }
            };

            rounds("an owner that listens", count);
            if (copies && (length <= 65536)) { /* which end inside the call */
                const time_t until = time(nullptr) + 30; /* beside others it seldom runs */
                while ((in_flight == 0) && (time(nullptr) < until)) {
                    n.progress(); /* the lane connects */
                    usleep(100);  /* it may run where we run */
                    rounds("an owner that has listened just now", 1);
                }
                EXPECT_GT(in_flight, 0u) << "none went as a message";
            }
            me.own().words[DONE] = BUSY;
            n.until([&]() { return me.at(0).words[FILLED] == BUSY; });
            usleep(1000); /* its last look is old */
            in_flight = 0;
            rounds("an owner that is busy", copies ? count : 0);
            if (length <= 65536) {
                EXPECT_EQ(0u, in_flight);
            }
            me.own().words[DONE] = LISTENS;
            n.until([&]() { return me.at(0).words[FILLED] == LISTENS; });
            rounds("an owner that listens again", count);
            me.own().words[FILLED] = value;
        }
        me.own().words[DONE] = END;
    });
    EXPECT_TRUE(both.join());
}

INSTANTIATE_TEST_SUITE_P(one_sided, an_owner, testing::Values(2, 4096, 16384, 65536, 1000000),
                         [](const auto &info) { return std::to_string(info.param); });

/* The owner dies: what waits for it ends with an error, once; what is mapped stays readable. */
TEST_P(mp_one_sided, a_killed_owner)
{
    processes both(2);

    both.start(0, [&](self &me) {
        setenv("UCX_TLS", GetParam(), 1);
        node n(me);
        n.connect_all();
        window w(me, n);
        n.until([&]() { return me.at(1).words[DONE] != 0; });
        me.own().words[DONE] = 1;
        while (true) {
            pause(); /* gives no answer until it is killed */
        }
    });
    both.start(1, [&](self &me) {
        setenv("UCX_TLS", GetParam(), 1);
        std::vector<uint8_t> data(2000);
        node n(me);
        n.connect_all();
        {
            window w(me, n);
            ucp_rkey_h keys[KINDS] = {w.key(0, ALLOCATED), w.key(0, OF_USER)};
            std::vector<void *> requests;
            unsigned calls                = 0;
            const ucp_request_param_t none = {};
            ucp_request_param_t param      = {};
            uint64_t value                 = 1;
            ASSERT_EQ(UCS_OK, n.wait(ucp_put_nbx(n.ep(0), &value, 8, w.address(0, ALLOCATED),
                                                 keys[ALLOCATED], &none)));
            me.own().words[DONE] = 1;
            n.until([&]() { return me.at(0).words[DONE] != 0; });
            param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                 UCP_OP_ATTR_FIELD_DATATYPE;
            param.datatype     = ucp_dt_make_contig(8);
            param.user_data    = &calls;
            param.cb.send      = [](void *, ucs_status_t status, void *user_data) {
                EXPECT_NE(UCS_OK, status);
                ++*static_cast<unsigned *>(user_data);
            };
            for (unsigned i = 0; i < 50; ++i) {
                void *request = ucp_atomic_op_nbx(n.ep(0), UCP_ATOMIC_OP_ADD, &value, 1,
                                                  w.address(0, OF_USER), keys[OF_USER], &param);
                ASSERT_TRUE(UCS_PTR_IS_PTR(request));
                requests.push_back(request);
            }
            me.own().words[DONE] = 2;
            for (void *request : requests) {
                EXPECT_NE(UCS_OK, n.wait(request));
            }
            EXPECT_EQ(50u, calls);
            void *late = ucp_get_nbx(n.ep(0), data.data(), data.size(), w.address(0, ALLOCATED),
                                     keys[ALLOCATED], &none);
            EXPECT_TRUE(UCS_PTR_IS_ERR(late));
            void *ptr = nullptr;
            EXPECT_EQ(UCS_OK, ucp_rkey_ptr(keys[ALLOCATED], w.address(0, ALLOCATED), &ptr));
            EXPECT_EQ(1u, *static_cast<uint64_t *>(ptr));
        }
    });
    ASSERT_TRUE(both.until([&]() { return both.at(1).words[DONE] == 2; }, "operations"));
    both.kill_now(0);
    EXPECT_TRUE(both.join());
}

/* A child of the owner comes and goes; the memory is the parent's as before. */
TEST_P(mp_one_sided, a_forking_owner)
{
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_TLS", GetParam(), 1);
        const ucp_request_param_t param = {};
        std::vector<uint8_t> data(70000), back(70000);
        node n(me);
        n.connect_all();
        {
            window w(me, n);
            const unsigned peer    = 1 - me.index();
            ucp_rkey_h keys[KINDS] = {w.key(peer, ALLOCATED), w.key(peer, OF_USER)};
            for (unsigned round = 0; round < 3; ++round) {
                const pid_t child = fork();
                if (child == 0) {
                    memset(w.data(OF_USER), 0xee, MEMORY); /* its own copy */
                    _exit(0);
                }
                for (unsigned kind = 0; kind < KINDS; ++kind) {
                    mp::fill(data.data(), data.size(), round + kind);
                    ASSERT_EQ(UCS_OK, n.wait(ucp_put_nbx(n.ep(peer), data.data(), data.size(),
                                                         w.address(peer, kind) + 5, keys[kind],
                                                         &param)));
                    ASSERT_EQ(UCS_OK, flush(n));
                    ASSERT_EQ(UCS_OK, n.wait(ucp_get_nbx(n.ep(peer), back.data(), back.size(),
                                                         w.address(peer, kind) + 5, keys[kind],
                                                         &param)));
                    ASSERT_EQ(data, back);
                }
                int status = -1;
                ASSERT_EQ(child, waitpid(child, &status, 0));
                EXPECT_EQ(0, status);
                n.barrier();
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

INSTANTIATE_TEST_SUITE_P(all, mp_one_sided, testing::Values("all", "mm", "mm,cma,self"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             std::string name = info.param;
                             std::replace(name.begin(), name.end(), ',', '_');
                             return name;
                         });
