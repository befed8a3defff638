/* Halyard: messages of device memory between two processes, one of which has a driver that refuses
 * its k-th call: every operation ends once, with the right bytes or with an error, and the next
 * message goes through.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "gpu.h"
#include "seed.h"
#include "shared_memory.h"

#include <ucp/internals.h>
#include <ucp/world.h>
#include <ucs/sys/sys.h>

#include <atomic>
#include <poll.h>
#include <sched.h>
#include <thread>

using mp::gpu;
using mp::gpu_buffer;
using mp::node;
using mp::processes;
using mp::self;
using mp::shared_memory;

namespace {

constexpr uint64_t TAG   = 3;
constexpr unsigned CALLS = 40;  /* the k-th of a transfer fails, for k up to this */
constexpr int RESULT     = 999; /* CUDA_ERROR_UNKNOWN */

struct way {
    unsigned      victim;  /* 0 sends, 1 receives */
    perf_memory_t kinds[2];
    size_t        length;
    const char   *name;
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.name;
}

/* The k-th call of a function of the driver (NULL: of any) from now on fails; 0: none does. */
void refuse(const char *name, uint64_t k)
{
    auto fail = gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail");

    ASSERT_NE(nullptr, fail);
    fail(name, k, RESULT, 0);
}

/* What a process has in most of these tests: a device, ways to all others, and a buffer, which is
 * made if all is. */
struct holder {
    holder(self &me, unsigned side, perf_memory_t kind, size_t length) :
        g(side), n(me), buffer(g, kind, length)
    {
        n.connect_all();
    }

    gpu        g;
    node       n;
    gpu_buffer buffer;
};

class mp_cuda_faults : public testing::TestWithParam<way> {
};

} // namespace

TEST_P(mp_cuda_faults, end_what_they_hit)
{
    const way w = GetParam();
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), w.kinds[me.index()], w.length);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        uint8_t *place = buffer.place(w.length);

        for (uint64_t k = 0; k <= CALLS; ++k) {
            SCOPED_TRACE(k);
            buffer.put(w.length, (me.index() == 0) ? k + 1 : 0);
            n.barrier();
            if (me.index() == w.victim) {
                refuse(nullptr, k);
            }
            me.waits_for("a transfer whose call %lu fails", static_cast<unsigned long>(k));
            const ucs_status_t status =
                n.wait((me.index() == 0) ? n.send(n.ep(1), place, w.length, TAG) :
                                           n.recv(place, w.length, TAG));
            if (me.index() == w.victim) {
                refuse(nullptr, 0);
            }
            if (k == 0) {
                EXPECT_EQ(UCS_OK, status);
            }
            if ((me.index() == 1) && (status == UCS_OK)) {
                buffer.expect(w.length, k + 1);
            }
            n.barrier();
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

INSTANTIATE_TEST_SUITE_P(
    all, mp_cuda_faults,
    testing::Values(
        way{0, {PERF_MEMORY_CUDA, PERF_MEMORY_CUDA}, 5000, "sender"},
        way{1, {PERF_MEMORY_CUDA, PERF_MEMORY_CUDA}, 5000, "receiver"},
        way{0, {PERF_MEMORY_ASYNC, PERF_MEMORY_CUDA}, 300000, "staging_sender"},
        way{1, {PERF_MEMORY_ASYNC, PERF_MEMORY_CUDA}, 300000, "staging_receiver"},
        way{0, {PERF_MEMORY_CUDA, PERF_MEMORY_HOST}, 3000000, "sender_to_host"},
        way{1, {PERF_MEMORY_CUDA, PERF_MEMORY_HOST}, 3000000, "host_receiver"},
        way{0, {PERF_MEMORY_HOST, PERF_MEMORY_CUDA}, 3000000, "host_sender"},
        way{1, {PERF_MEMORY_HOST, PERF_MEMORY_CUDA}, 3000000, "receiver_from_host"},
        way{0, {PERF_MEMORY_CUDA, PERF_MEMORY_CUDA}, 40, "small_sender"},
        way{1, {PERF_MEMORY_CUDA, PERF_MEMORY_CUDA}, 40, "small_receiver"}),
    [](const testing::TestParamInfo<way> &info) { return std::string(info.param.name); });

/* The owner of device memory does the copies of a put and a get; its driver refuses the k-th. */
TEST(mp_cuda_owner, refusals_are_told)
{
    constexpr size_t LENGTH = 3500000; /* several copies */
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        setenv("UCX_TLS", "mm,cuda_copy", 1); /* no other way */
        auto [g, n, target] = holder(me, 0, PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(target.is_made()) << g.problem();
        std::vector<uint8_t> local(LENGTH);
        ucp_request_param_t param = {};
        shared_memory memory(n, me.index(), target, LENGTH);
        const uint64_t address = memory.address();
        ucp_rkey_h rkey        = (me.index() == 1) ? memory.key(n.ep(0)) : nullptr;
        unsigned failed        = 0;

        for (uint64_t k = 0; k <= CALLS; ++k) {
            SCOPED_TRACE(k);
            n.barrier();
            if (me.index() == 0) {
                refuse("cuMemcpyAsync", k);
            }
            n.barrier();
            me.waits_for("puts and gets whose copy %lu fails", static_cast<unsigned long>(k));
            if (me.index() == 1) {
                const ucs_status_t put = n.wait(ucp_put_nbx(n.ep(0), local.data(), LENGTH, address,
                                                            rkey, &param));
                const ucs_status_t get = n.wait(ucp_get_nbx(n.ep(0), local.data(), LENGTH, address,
                                                            rkey, &param));
                failed += (put != UCS_OK) + (get != UCS_OK);
                EXPECT_LE((put != UCS_OK) + (get != UCS_OK), (k == 0) ? 0 : 1);
            }
            n.barrier();
            if (me.index() == 0) {
                refuse("cuMemcpyAsync", 0);
            }
        }
        if (me.index() == 1) {
            EXPECT_GT(failed, 3u);
            ucp_rkey_destroy(rkey);
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* A put that is given up while the device copies ends when the copy has; so do a flush before, the
 * close that gives it up, and a flush of the worker after that. */
TEST(mp_cuda_owner, flush_and_close_wait_for_copies)
{
    constexpr size_t LENGTH = 60000;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        shared_memory memory(n, me.index(), buffer, LENGTH);
        auto set = gpu::function<void(const char *, int)>("fakecuda_set");
        ucp_request_param_t param = {}, force = {};

        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags        = UCP_EP_CLOSE_FLAG_FORCE;
        for (int which = 0; (which < 3) && (me.index() == 1); ++which) {
            SCOPED_TRACE(which);
            ucp_ep_h ep     = n.connect(0);
            ucp_rkey_h rkey = memory.key(ep);
            EXPECT_EQ(UCS_OK, n.wait(ucp_put_nbx(ep, buffer.place(LENGTH), LENGTH,
                                                 memory.address(), rkey, &param)))
                << "the way there is proved";
            set("ticks", 2000);
            void *put = ucp_put_nbx(ep, buffer.place(LENGTH), LENGTH, memory.address(), rkey,
                                    &param);
            ucp_rkey_destroy(rkey);
            ASSERT_TRUE(UCS_PTR_IS_PTR(put));
            void *ends[3];
            ends[0] = ucp_ep_flush_nbx(ep, &param);
            ends[1] = ucp_ep_close_nbx(ep, &force);
            ends[2] = ucp_worker_flush_nbx(n.worker(), &param);
            ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(put));
            me.waits_for("the end %d of a put that was given up", which);
            (void)n.wait(ends[which]);
            EXPECT_EQ(UCS_ERR_CANCELED, ucp_request_check_status(put));
            set("ticks", 2);
            for (int i = 0; i < 3; ++i) {
                if (i != which) {
                    (void)n.wait(ends[i]);
                }
            }
            ucp_request_free(put);
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* A put, which a stuck device copies, is given up with its endpoint; an atomic behind a fence, for
 * which the owner is asked, waits for it and then finds what it has written. */
static void fetch_behind_put(self &me, node &n, gpu_buffer &buffer, const shared_memory &memory,
                             size_t length, bool fails)
{
    auto set                  = gpu::function<void(const char *, int)>("fakecuda_set");
    const uint64_t id         = fails ? 4 : 2;
    const uint64_t address    = memory.address();
    const size_t offset       = (8 - (address % 8)) % 8;
    ucp_ep_h other            = n.ep(0);
    ucp_ep_h ep               = n.connect(0);
    ucp_rkey_h rkey           = memory.key(ep);
    ucp_request_param_t param = {}, force = {}, fetch = {};
    std::vector<uint8_t> bytes(length);
    uint64_t zero = 0, word = 0;
    void *close   = nullptr;

    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    fetch.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    fetch.datatype     = ucp_dt_make_contig(sizeof(word));
    fetch.reply_buffer = &word;
    mp::fill(bytes.data(), length, id);
    buffer.put(length, id - 1);
    EXPECT_EQ(UCS_OK, n.wait(ucp_put_nbx(ep, buffer.place(length), length, address, rkey, &param)))
        << "the way there is proved";
    buffer.put(length, id);
    set("stuck", 1);
    void *put = ucp_put_nbx(ep, buffer.place(length), length, address, rkey, &param);
    ucp_rkey_destroy(rkey);
    ASSERT_TRUE(UCS_PTR_IS_PTR(put));
    if (fails) {
        ucp_test_peer_fail(ep, UCS_ERR_IO_ERROR);
        other = n.connect(0);
    } else {
        close = ucp_ep_close_nbx(ep, &force);
    }

    rkey = memory.key(other);
    EXPECT_EQ(UCS_OK, ucp_worker_fence(n.worker()));
    void *request = ucp_atomic_op_nbx(other, UCP_ATOMIC_OP_ADD, &zero, 1, address + offset, rkey,
                                      &fetch);
    ucp_rkey_destroy(rkey);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    n.barrier(); /* the former connections have ended */
    EXPECT_FALSE(
        n.until([&]() { return ucp_request_check_status(request) != UCS_INPROGRESS; }, 0.2));
    set("stuck", 0);
    me.waits_for("the end of a put that was given up");
    EXPECT_EQ(fails ? UCS_ERR_IO_ERROR : UCS_ERR_CANCELED, n.wait(put));
    me.waits_for("an atomic behind it");
    EXPECT_EQ(UCS_OK, n.wait(request));
    EXPECT_EQ(0, memcmp(&word, bytes.data() + offset, sizeof(word)));
    (void)n.wait(close);
}

/* On another endpoint, and where the peer has failed on a new one. */
TEST(mp_cuda_owner, fences_order_what_was_given_up)
{
    constexpr size_t LENGTH = 60000;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        shared_memory memory(n, me.index(), buffer, LENGTH);

        for (bool fails : {false, true}) {
            SCOPED_TRACE(fails ? "the peer fails" : "a close by force");
            if (me.index() == 1) {
                fetch_behind_put(me, n, buffer, memory, LENGTH, fails);
            } else {
                n.until([fails, &n = n]() { return !fails || (n.errors(n.ep(1)).count > 0); });
                n.barrier();
            }
            n.barrier();
        }
    });
    EXPECT_TRUE(all.join());
}

/* A copy that is begun once the worker is armed keeps its descriptor readable: who sleeps there,
 * another thread perhaps, makes the progress by which it ends. */
TEST(mp_cuda_owner, copies_wake_who_sleeps)
{
    constexpr size_t LENGTH = 60000;
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        shared_memory memory(n, me.index(), buffer, LENGTH);
        ucp_request_param_t param = {};

        for (int which = 0; which < 3; ++which) { /* the first time the way there is proved */
            SCOPED_TRACE(which);
            n.barrier();
            if (me.index() == 0) {
                void *send = n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG);
                n.barrier();
                EXPECT_EQ(UCS_OK, n.wait(send));
                continue;
            }
            ucp_tag_recv_info_t info;
            ucp_rkey_h rkey = memory.key(n.ep(0));
            struct pollfd sleeper = {-1, POLLIN, 0};
            EXPECT_EQ(UCS_OK, ucp_worker_get_efd(n.worker(), &sleeper.fd));
            n.until([&, &n = n]() {
                return ucp_tag_probe_nb(n.worker(), TAG, UINT64_MAX, 0, &info) != nullptr;
            });
            for (int op = 0; op < 3; ++op) {
                me.waits_for("copy %d to end", op);
                n.until([&n = n]() { return ucp_worker_arm(n.worker()) != UCS_ERR_BUSY; });
                void *request =
                    (op == 0) ? ucp_put_nbx(n.ep(0), buffer.place(LENGTH), LENGTH,
                                            memory.address(), rkey, &param) :
                    (op == 1) ? ucp_get_nbx(n.ep(0), buffer.place(LENGTH), LENGTH,
                                            memory.address(), rkey, &param) :
                                n.recv(buffer.place(LENGTH), LENGTH, TAG);
                ASSERT_TRUE(UCS_PTR_IS_PTR(request)) << op;
                EXPECT_TRUE((which == 0) || (poll(&sleeper, 1, 0) == 1)) << op;
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
            ucp_rkey_destroy(rkey);
            n.barrier();
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

namespace {

/* Adds one to the word `rounds` times, by a worker of its own, while the owner's worker, too, is
 * progressed by a thread of its own. */
void add_by_own_worker(ucp_context_h context, uint64_t address, const void *packed, int rounds)
{
    ucp_worker_params_t worker_params = {};
    ucp_worker_h workers[2]           = {}; /* who asks, the owner */
    std::atomic<bool> is_done(false);
    ucp_address_t *name = nullptr;
    size_t length       = 0;
    ucp_rkey_h rkey     = nullptr;
    ucp_ep_h ep         = nullptr;

    for (ucp_worker_h &worker : workers) {
        ASSERT_EQ(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    }
    ASSERT_EQ(UCS_OK, ucp_worker_get_address(workers[1], &name, &length));
    ucp_ep_params_t ep_params = {};
    ep_params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address         = name;
    ASSERT_EQ(UCS_OK, ucp_ep_create(workers[0], &ep_params, &ep));
    ucp_worker_release_address(workers[1], name);
    ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(ep, packed, &rkey));

    std::thread owner([&]() {
        while (!is_done) {
            if (ucp_worker_progress(workers[1]) == 0) {
                sched_yield();
            }
        }
    });
    for (int i = 0; i < rounds; ++i) {
        uint64_t old;
        EXPECT_EQ(UCS_OK, ucp_atomic_fadd64(ep, 1, address, rkey, &old));
    }
    is_done = true;
    owner.join();
    ucp_rkey_destroy(rkey);
    ucp_ep_destroy(ep);
    ucp_worker_destroy(workers[0]);
    ucp_worker_destroy(workers[1]);
}

} // namespace

/* Atomics on one word of a device that several workers of its owner are asked for: none is lost. */
TEST(mp_cuda_owner, atomics_by_several_workers)
{
    constexpr int THREADS = 3, ROUNDS = 20, LONG = 200;
    processes all(1);

    NEED_FAKE_GPU();
    all.start_all([&](self &) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        gpu::function<void(const char *, int)>("fakecuda_set")("ticks", LONG);
        ucp_context_h context = nullptr;
        ucp_params_t params   = {};
        params.field_mask     = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
        params.features       = UCP_FEATURE_AMO64;
        params.mt_workers_shared = 1;
        ASSERT_EQ(UCS_OK, ucp_init(&params, nullptr, &context));
        for (perf_memory_t kind : {PERF_MEMORY_CUDA, PERF_MEMORY_MANAGED}) {
            ucp_mem_map_params_t map = {};
            ucp_mem_h mem            = nullptr;
            void *packed             = nullptr;
            uint64_t sum             = 0;
            size_t size;
            void *word = perf_memory_alloc(g.device(), kind, 4096);
            ASSERT_NE(nullptr, word) << g.problem();
            g.copy(word, &sum, sizeof(sum));
            map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            map.address    = word;
            map.length     = 4096;
            ASSERT_EQ(UCS_OK, ucp_mem_map(context, &map, &mem));
            ASSERT_EQ(UCS_OK, ucp_rkey_pack(context, mem, &packed, &size));
            std::vector<std::thread> threads;
            for (int i = 0; i < THREADS; ++i) {
                threads.emplace_back(add_by_own_worker, context,
                                     reinterpret_cast<uintptr_t>(word), packed, ROUNDS);
            }
            for (std::thread &thread : threads) {
                thread.join();
            }
            g.copy(&sum, word, sizeof(sum));
            EXPECT_EQ(THREADS * ROUNDS, static_cast<int>(sum)) << perf_memory_names[kind];
            ucp_rkey_buffer_release(packed);
            EXPECT_EQ(UCS_OK, ucp_mem_unmap(context, mem));
            perf_memory_release(g.device(), kind, word, 4096);
        }
        ucp_cleanup(context);
    });
    EXPECT_TRUE(all.join());
}

/* The sender of a stream gives a message up while the receiver's device reads it, and says so
 * twice, as it does where it is asked for more in between. */
TEST(mp_cuda_owner, a_stream_is_given_up_twice)
{
    constexpr size_t LENGTH   = 300000;
    constexpr unsigned CANCEL = 9; /* UCP_WIRE_CANCEL */
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto set                  = gpu::function<void(const char *, int)>("fakecuda_set");
        auto foreign              = gpu::function<uint64_t()>("fakecuda_foreign");
        ucp_request_param_t param = {};
        size_t length;

        for (int round = 0; round < 2; ++round) { /* the first time it arrives */
            SCOPED_TRACE(round);
            n.barrier();
            if (me.index() == 0) {
                void *send = ucp_stream_send_nbx(n.ep(1), buffer.place(LENGTH), LENGTH, &param);
                ASSERT_TRUE(UCS_PTR_IS_PTR(send));
                struct {
                    uint64_t send_id;
                    int32_t status, reserved;
                } cancel = {ucp_test_request_id(send, nullptr), UCS_ERR_CANCELED, 0};
                n.barrier();
                for (int i = 0; i < 2 * round; ++i) {
                    EXPECT_EQ(UCS_OK, ucp_test_inject(n.ep(1), CANCEL, &cancel, sizeof(cancel)));
                }
                n.barrier();
                EXPECT_EQ((round == 0) ? UCS_OK : UCS_ERR_CONNECTION_RESET, n.wait(send));
                continue;
            }
            const uint64_t before = foreign();
            set("stuck", round);
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
            void *recv = ucp_stream_recv_nbx(n.ep(0), buffer.place(LENGTH), LENGTH, &length,
                                             &param);
            ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
            me.waits_for("a copy of a stream to begin");
            n.until([&]() { return foreign() > before; });
            n.barrier();
            n.barrier();
            for (int i = 0; i < 1000; ++i) {
                n.progress();
            }
            EXPECT_TRUE((round == 0) || (ucp_request_check_status(recv) == UCS_INPROGRESS));
            set("stuck", 0);
            EXPECT_EQ((round == 0) ? UCS_OK : UCS_ERR_CONNECTION_RESET, n.wait(recv));
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* A send is given up while the receiver reads it, and its memory used for something else. The word
 * of it lies behind other messages; the receive does not end well with other bytes all the same. */
static void give_up_while_read(perf_memory_t kind)
{
    constexpr size_t LENGTH = 300000, OTHERS = 8, OTHER_LENGTH = 2000;
    processes all(2);

    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(),
                                    (me.index() == 0) ? kind : PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto set     = gpu::function<void(const char *, int)>("fakecuda_set");
        auto foreign = gpu::function<uint64_t()>("fakecuda_foreign");
        std::vector<uint8_t> other(OTHER_LENGTH);

        for (int round = 0; round < 3; ++round) { /* the last time it is given up */
            SCOPED_TRACE(round);
            buffer.put(LENGTH, (me.index() == 0) ? round + 1 : 0);
            n.barrier();
            if (me.index() == 0) {
                void *send = n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG);
                if (round < 2) {
                    EXPECT_EQ(UCS_OK, n.wait(send));
                    continue;
                }
                me.waits_for("the receiver to read");
                n.until([&]() { return me.at(1).words[0] == 1; });
                std::vector<void *> sends;
                for (size_t i = 0; i < OTHERS; ++i) {
                    sends.push_back(n.send(n.ep(1), other.data(), other.size(), TAG + 1));
                }
                n.close(n.ep(1), UCP_EP_CLOSE_FLAG_FORCE);
                EXPECT_EQ(UCS_ERR_CANCELED, n.wait(send));
                for (void *request : sends) {
                    (void)n.wait(request);
                }
                buffer.put(LENGTH, 77);
                me.own().words[0] = 1;
                n.until([&]() { return me.at(1).words[0] == 2; });
                continue;
            }
            const uint64_t before = foreign();
            set("stuck", (round < 2) ? 0 : 1);
            void *recv = n.recv(buffer.place(LENGTH), LENGTH, TAG);
            if (round < 2) {
                EXPECT_EQ(UCS_OK, n.wait(recv));
                buffer.expect(LENGTH, round + 1);
                continue;
            }
            n.until([&]() { return foreign() > before; });
            me.own().words[0] = 1;
            while (me.at(0).words[0] != 1) { /* and at something else */
                sched_yield();
            }
            set("stuck", 0);
            me.waits_for("the end of what was given up");
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, n.wait(recv));
            me.own().words[0] = 2;
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

TEST(mp_cuda_owner, a_send_is_given_up_while_it_is_read)
{
    NEED_FAKE_GPU();
    for (perf_memory_t kind : {PERF_MEMORY_CUDA, PERF_MEMORY_ASYNC}) {
        SCOPED_TRACE(perf_memory_names[kind]);
        give_up_while_read(kind);
    }
}

/* The same of memory that is staged, where messages go over a network: a chunk that was given up
 * is filled with another message while the receiver reads it. */
TEST(mp_cuda_owner, a_staged_send_is_given_up_over_a_network)
{
    constexpr size_t LENGTH = 300000, OTHERS = 300;
    processes all(3);

    NEED_FAKE_GPU();
    if (!ucp_test::is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    ucp_test::environment environment;
    environment.set({{"UCX_TLS", "ofi,cuda_copy,cuda_ipc"}, {"UCX_OFI_PROVIDER", "net"}});
    all.start_all([&](self &me) {
        const perf_memory_t kind = (me.index() == 0) ? PERF_MEMORY_ASYNC : PERF_MEMORY_CUDA;
        auto [g, n, buffer]      = holder(me, me.index(), kind, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto set     = gpu::function<void(const char *, int)>("fakecuda_set");
        auto foreign = gpu::function<uint64_t()>("fakecuda_foreign");
        char word    = 0;

        for (uint64_t id = 1; id <= 4; ++id) { /* all is mapped then */
            const unsigned target = 1 + (id % 2);
            buffer.put(LENGTH, (me.index() == 0) ? id : 0);
            n.barrier();
            if (me.index() == 0) {
                EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(target), buffer.place(LENGTH), LENGTH, TAG)));
            } else if (me.index() == target) {
                EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.place(LENGTH), LENGTH, TAG)));
                buffer.expect(LENGTH, id);
            }
        }
        buffer.put(LENGTH, (me.index() == 0) ? 5 : 0);
        n.barrier();
        if (me.index() == 0) {
            void *send = n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG);
            me.waits_for("the receiver to read");
            n.until([&]() { return me.at(1).words[0] == 1; });
            std::vector<void *> sends;
            for (size_t i = 0; i < OTHERS; ++i) {
                sends.push_back(n.send(n.ep(1), &word, sizeof(word), TAG + 1));
            }
            n.close(n.ep(1), UCP_EP_CLOSE_FLAG_FORCE);
            (void)n.wait(send);
            for (void *request : sends) {
                (void)n.wait(request);
            }
            buffer.put(LENGTH, 77);
            EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(2), buffer.place(LENGTH), LENGTH, TAG)));
            me.own().words[0] = 1;
            n.until([&]() { return me.at(1).words[0] == 2; });
        } else if (me.index() == 2) {
            EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.place(LENGTH), LENGTH, TAG)));
            buffer.expect(LENGTH, 77);
        } else {
            const uint64_t before = foreign();
            set("stuck", 1);
            set("ticks", 1);
            void *recv = n.recv(buffer.place(LENGTH), LENGTH, TAG);
            n.until([&]() {
                return (foreign() > before) || (ucp_request_check_status(recv) != UCS_INPROGRESS);
            });
            me.own().words[0] = 1;
            while (me.at(0).words[0] != 1) { /* and at something else */
                sched_yield();
            }
            set("stuck", 0);
            me.waits_for("the end of what was given up");
            if (n.wait(recv) == UCS_OK) {
                buffer.expect(LENGTH, 5);
            }
            me.own().words[0] = 2;
        }
    });
    EXPECT_TRUE(all.join());
}

/* Memory that is mapped while the driver does not tell what it is. The kernel does: nobody takes
 * that of a device for the host's. */
TEST(mp_cuda_owner, memory_is_mapped_while_the_driver_fails)
{
    processes one(1);

    NEED_FAKE_GPU();
    one.start_all([&](self &me) {
        gpu g(0);
        node n(me);
        gpu_buffer device(g, PERF_MEMORY_CUDA, 4096);
        std::vector<uint8_t> host(4096);

        for (const bool is_device : {true, false}) {
            ucp_mem_map_params_t params = {};
            ucp_mem_attr_t attr         = {};
            ucp_mem_h mem               = nullptr;
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            params.address    = is_device ? device.place(4096) : host.data();
            params.length     = 4096;
            refuse("cuPointerGetAttributes", 1);
            ASSERT_EQ(UCS_OK, ucp_mem_map(n.context(), &params, &mem));
            refuse(nullptr, 0);
            attr.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
            EXPECT_EQ(UCS_OK, ucp_mem_query(mem, &attr));
            EXPECT_EQ(is_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST, attr.mem_type);
            EXPECT_EQ(UCS_OK, ucp_mem_unmap(n.context(), mem));
        }
    });
    EXPECT_TRUE(one.join());
}

/* A program destroys the context that was current when its first message was staged, while a later
 * one is under way from memory that belongs to none. */
TEST(mp_cuda_owner, a_context_goes_amid_a_staged_message)
{
    constexpr size_t LENGTH = 30000000; /* several chunks */
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, 0, (me.index() == 0) ? PERF_MEMORY_VMM_PRIVATE :
                                                                PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto set         = gpu::function<void(const char *, int)>("fakecuda_set");
        auto foreign     = gpu::function<uint64_t()>("fakecuda_foreign");
        void *ctx        = nullptr;

        buffer.put(LENGTH, (me.index() == 0) ? 1 : 0);
        n.barrier();
        if (me.index() == 0) {
            ASSERT_EQ(0, gpu::function<int(void **, unsigned, int)>("cuCtxCreate_v2")(
                             &ctx, 0, g.device()->number));
            EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG)));
            n.barrier();
            void *send = n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG);
            n.until([&]() { return me.at(1).words[0] == 1; });
            for (int i = 0; i < 1000; ++i) { /* the next chunk is filled then */
                n.progress();
            }
            ASSERT_EQ(0, gpu::function<int(void *)>("cuCtxDestroy_v2")(ctx));
            ASSERT_EQ(0, perf_device_enter(g.device()));
            me.own().words[0] = 1;
            EXPECT_EQ(UCS_OK, n.wait(send));
        } else {
            EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.place(LENGTH), LENGTH, TAG)));
            buffer.expect(LENGTH, 1);
            buffer.put(LENGTH, 0);
            n.barrier();
            const uint64_t before = foreign();
            set("stuck", 1);
            void *recv = n.recv(buffer.place(LENGTH), LENGTH, TAG);
            n.until([&]() { return foreign() > before; });
            me.own().words[0] = 1;
            n.until([&]() { return me.at(0).words[0] == 1; });
            set("stuck", 0);
            EXPECT_EQ(UCS_OK, n.wait(recv));
            buffer.expect(LENGTH, 1);
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* Copies to and from the other process do not end, from the first: the workers go on, and messages
 * come by way of the host. */
TEST(mp_cuda_owner, a_proof_that_does_not_end)
{
    constexpr size_t LENGTH = 300000;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        setenv("UCX_LOG_LEVEL", "error", 1);
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        uint64_t word = 0;

        gpu::function<void(const char *, int)>("fakecuda_set")("stuck", 1);
        for (uint64_t id = 1; id < 5; ++id) {
            SCOPED_TRACE(id);
            buffer.put(LENGTH, (me.index() == 0) ? id : 0);
            n.barrier();
            me.waits_for("message %lu and one behind it", static_cast<unsigned long>(id));
            if (me.index() == 0) {
                void *request = n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG);
                EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(1), &id, sizeof(id), TAG + 1)));
                EXPECT_EQ(UCS_OK, n.wait(request));
            } else {
                void *request = n.recv(buffer.place(LENGTH), LENGTH, TAG);
                EXPECT_EQ(UCS_OK, n.wait(n.recv(&word, sizeof(word), TAG + 1)));
                EXPECT_EQ(id, word);
                EXPECT_TRUE((id > 1) || (ucp_request_check_status(request) == UCS_INPROGRESS));
                EXPECT_EQ(UCS_OK, n.wait(request));
                buffer.expect(LENGTH, id);
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* The driver refuses to show memory, for want of something that it has again later: it is staged
 * until it can be shown. */
TEST(mp_cuda_owner, memory_that_is_shown_later)
{
    constexpr size_t LENGTH     = 300000;
    constexpr uint64_t MESSAGES = 4, LATER = 3;
    constexpr int OUT_OF_MEMORY = 2;
    static ucs_sys_ops_t ops;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        auto [g, n, buffer] = holder(me, me.index(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto calls = gpu::function<uint64_t(const char *)>("fakecuda_calls");

        ops          = ucs_sys_real;
        ops.clock_ns = []() { return ucs_sys_real.clock_ns() + 3000000000; };
        if (me.index() == 0) {
            gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail")(
                "cuIpcGetMemHandle", 1, OUT_OF_MEMORY, 0);
        }
        for (uint64_t id = 1; id <= MESSAGES; ++id) {
            SCOPED_TRACE(id);
            buffer.put(LENGTH, (me.index() == 0) ? id : 0);
            n.barrier();
            me.waits_for("message %lu", static_cast<unsigned long>(id));
            if (me.index() == 1) {
                EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.place(LENGTH), LENGTH, TAG)));
                buffer.expect(LENGTH, id);
                continue;
            }
            const uint64_t copies = calls("cuMemcpyAsync");
            ucs_sys_set((id < LATER) ? &ucs_sys_real : &ops);
            EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG)));
            EXPECT_EQ(id < LATER, calls("cuMemcpyAsync") > copies) << "the receiver copies";
        }
        ucs_sys_set(&ucs_sys_real);
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* Memory that can never be shown: messages ask the driver what lies where they begin, but nothing
 * about all of it. What the program allocates in its place is shown. */
TEST(mp_cuda_owner, memory_that_is_never_shown)
{
    constexpr size_t LENGTH     = 300000;
    constexpr uint64_t MESSAGES = 4;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        node n(me);
        gpu_buffer target(g, PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(target.is_made()) << g.problem();
        auto calls  = gpu::function<uint64_t(const char *)>("fakecuda_calls");
        auto asked  = gpu::function<uint64_t(const void *)>("fakecuda_asked");
        uint64_t id = 0;
        n.connect_all();

        const auto exchange = [&](gpu_buffer &source) { /* how many copies this side makes */
            me.waits_for("message %lu", static_cast<unsigned long>(++id));
            target.put(LENGTH, 0);
            source.put(LENGTH, id);
            n.barrier();
            const uint64_t copies = calls("cuMemcpyAsync");
            EXPECT_EQ(UCS_OK, n.wait((me.index() == 0) ?
                                     n.send(n.ep(1), source.place(LENGTH), LENGTH, TAG) :
                                     n.recv(target.place(LENGTH), LENGTH, TAG)));
            n.barrier();
            const uint64_t made = calls("cuMemcpyAsync") - copies;
            if (me.index() == 1) {
                target.expect(LENGTH, id);
            }
            return made;
        };
        for (perf_memory_t never : {PERF_MEMORY_MANAGED, PERF_MEMORY_ASYNC,
                                    PERF_MEMORY_VMM_PRIVATE}) {
            SCOPED_TRACE(perf_memory_names[never]);
            const perf_memory_t kind = (me.index() == 0) ? never : PERF_MEMORY_CUDA;
            auto first               = std::make_unique<gpu_buffer>(g, kind, LENGTH);
            ASSERT_TRUE(first->is_made()) << g.problem();
            EXPECT_NE(0u, exchange(*first));
            const uint64_t before = asked(first->memory());
            for (unsigned i = 0; i < MESSAGES; ++i) {
                EXPECT_NE(0u, exchange(*first));
            }
            EXPECT_EQ(before, asked(first->memory()));
            const void *place = first->memory();
            first.reset();
            std::vector<std::unique_ptr<gpu_buffer>> others;
            do {
                others.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, LENGTH));
            } while ((others.back()->memory() != place) && (others.size() < 8));
            EXPECT_EQ(me.index() == 1, exchange(*others.back()) > 0) << "the receiver copies";
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

namespace {

/* Time passes by a tenth of a second each time that somebody looks. */
uint64_t a_clock_that_runs()
{
    static uint64_t now;

    return now += 100000000;
}

} // namespace

/* A copy that this process waits for does not end: its message fails, the worker goes on, and once
 * it has ended messages arrive again. What it may still read or write is used for nothing else. */
TEST(mp_cuda_owner, a_copy_that_does_not_end)
{
    constexpr size_t LENGTH   = 300000;
    constexpr uint64_t ROUNDS = 6, STUCK = 3;
    static ucs_sys_ops_t ops;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        setenv("UCX_TLS", "mm,cuda_copy", 1); /* no other way */
        setenv("UCX_LOG_LEVEL", "fatal", 1);
        const perf_memory_t kind = (me.index() == 0) ? PERF_MEMORY_HOST : PERF_MEMORY_CUDA;
        auto [g, n, buffer] = holder(me, 0, kind, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        auto set = gpu::function<void(const char *, int)>("fakecuda_set");
        ucs_status_t status;

        ops          = ucs_sys_real;
        ops.clock_ns = a_clock_that_runs;
        for (uint64_t round = 1; round <= ROUNDS; ++round) {
            SCOPED_TRACE(round);
            const bool is_stuck = (round == STUCK);
            buffer.put(LENGTH, (me.index() == 0) ? round : 0);
            n.barrier();
            me.waits_for("message %lu", static_cast<unsigned long>(round));
            if (me.index() == 0) {
                EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(1), buffer.place(LENGTH), LENGTH, TAG)));
                n.barrier();
                continue;
            }
            set("stuck", is_stuck ? 2 : 0);
            ucs_sys_set(is_stuck ? &ops : &ucs_sys_real);
            status = n.wait(n.recv(buffer.place(LENGTH), LENGTH, TAG));
            ucs_sys_set(&ucs_sys_real);
            set("stuck", 0);
            EXPECT_EQ(is_stuck ? UCS_ERR_TIMED_OUT : UCS_OK, status);
            if (status == UCS_OK) {
                buffer.expect(LENGTH, round);
            }
            n.barrier();
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* The same when its worker ends: what the device may still use is not given back. `call`, if there
 * is one, is refused then, so that the copy is lost sight of. */
static void end_worker_under_copy(const char *call)
{
    constexpr size_t LENGTH = 3000000;
    static ucs_sys_ops_t ops;
    processes all(2);

    all.start_all([&](self &me) {
        setenv("UCX_LOG_LEVEL", "fatal", 1);
        gpu g(me.index());
        auto n = std::make_unique<node>(me);
        gpu_buffer buffer(g, (me.index() == 0) ? PERF_MEMORY_ASYNC : PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        n->connect_all();
        if (me.index() == 1) {
            EXPECT_NE(UCS_OK, n->wait(n->recv(buffer.place(LENGTH), LENGTH, TAG)));
            return;
        }
        auto set             = gpu::function<void(const char *, int)>("fakecuda_set");
        auto calls           = gpu::function<uint64_t(const char *)>("fakecuda_calls");
        const uint64_t first = calls("cuMemcpyAsync");
        set("stuck", 2);
        void *request = n->send(n->ep(1), buffer.place(LENGTH), LENGTH, TAG);
        me.waits_for("a copy of the device");
        while (calls("cuMemcpyAsync") == first) {
            (void)ucp_worker_progress(n->worker());
        }
        ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(request));
        ops          = ucs_sys_real;
        ops.clock_ns = a_clock_that_runs;
        if (call != nullptr) {
            refuse(call, 1);
        }
        ucs_sys_set(&ops);
        n.reset();
        ucs_sys_set(&ucs_sys_real);
        EXPECT_EQ(0u, gpu::function<uint64_t()>("fakecuda_misuses")());
        set("stuck", 0);
    });
    EXPECT_TRUE(all.join());
}

TEST(mp_cuda_owner, a_copy_that_does_not_end_before_its_worker)
{
    NEED_FAKE_GPU();
    for (const char *call : {static_cast<const char *>(nullptr), "cuCtxPushCurrent"}) {
        SCOPED_TRACE(call);
        end_worker_under_copy(call);
    }
}

/* More allocations in flight than keys that a peer keeps, both ways at once. */
TEST(mp_cuda_owner, more_allocations_than_slots)
{
    constexpr size_t LENGTH = 3000;
    constexpr size_t COUNT  = 100;
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        node n(me);
        n.connect_all();
        std::vector<std::unique_ptr<gpu_buffer>> outs, ins;
        std::vector<ucs_status_ptr_t> requests;
        for (size_t i = 0; i < COUNT; ++i) {
            outs.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, LENGTH));
            ins.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, LENGTH));
            ASSERT_TRUE(outs.back()->is_made() && ins.back()->is_made()) << g.problem();
            outs.back()->put(LENGTH, i + 1);
            ins.back()->put(LENGTH, 0);
        }
        n.barrier();
        for (size_t i = 0; i < COUNT; ++i) {
            requests.push_back(n.send(n.ep(!me.index()), outs[i]->place(LENGTH), LENGTH, i));
        }
        me.waits_for("many messages");
        for (size_t i = 0; i < COUNT; ++i) {
            requests.push_back(n.recv(ins[i]->place(LENGTH), LENGTH, i));
        }
        for (ucs_status_ptr_t request : requests) {
            EXPECT_EQ(UCS_OK, n.wait(request));
        }
        for (size_t i = 0; i < COUNT; ++i) {
            ins[i]->expect(LENGTH, i + 1);
        }
        n.barrier();
    });
    EXPECT_TRUE(all.join());
}
