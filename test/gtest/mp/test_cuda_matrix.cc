/* Halyard: two processes move messages between memory of every kind that CUDA has, by every
 * operation, each byte checked; and what else goes on in programs that use GPUs meanwhile.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "gpu.h"
#include "restrict.h"
#include "seed.h"
#include "snapshot.h"

#include <algorithm>
#include <sys/syscall.h>
#include <thread>

using mp::gpu;
using mp::gpu_buffer;
using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr uint64_t TAG_DATA = 1;
constexpr uint64_t TAG_NOTE = 2;
constexpr unsigned AM_ID    = 5;

constexpr size_t LARGE      = (1u << 20) + 3;
constexpr size_t LARGE_REAL = (40u << 20) + 5;
constexpr size_t LENGTHS[]  = {1, 8, 63, 4096, 65537, LARGE, LARGE_REAL};

/* Device memory may be a little more than before: the driver keeps some. */
constexpr size_t SLACK      = 4u << 20;
constexpr size_t POOL_BLOCK = 32u << 20; /* of the driver's */

enum class operation { TAG, AM, PUT, GET, STREAM };

struct way {
    operation   op;
    bool        is_one_device; /* both processes on the first */
    const char *name;
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.name << (w.is_one_device ? " on one device" : "");
}

/* Every kind with itself, with plain device memory, with host memory and with another one. */
std::vector<std::pair<perf_memory_t, perf_memory_t>> pairs()
{
    std::vector<std::pair<perf_memory_t, perf_memory_t>> list;

    for (int i = 0; i < PERF_MEMORY_COUNT; ++i) {
        const perf_memory_t kind = static_cast<perf_memory_t>(i);
        list.emplace_back(kind, kind);
        list.emplace_back(kind, static_cast<perf_memory_t>((i * 3 + 4) % PERF_MEMORY_COUNT));
        if (kind > PERF_MEMORY_CUDA) {
            list.emplace_back(kind, PERF_MEMORY_CUDA);
            list.emplace_back(PERF_MEMORY_HOST, kind);
        }
    }
    return list;
}

/* One process and the other. */
class pair_side {
public:
    pair_side(self &me, ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE) :
        m_me(me), m_node(me, mode), m_peer(!me.index())
    {
        m_node.publish();
        m_ep = m_node.connect(m_peer);
    }

    ~pair_side()
    {
        m_node.barrier();
        m_node.close(m_ep);
        m_node.barrier();
    }

    node &n()
    {
        return m_node;
    }

    ucp_ep_h ep() const
    {
        return m_ep;
    }

    void expect_ok(ucs_status_ptr_t request, const char *what)
    {
        m_me.waits_for("%s", what);
        EXPECT_EQ(UCS_OK, m_node.wait(request)) << what;
    }

    /* What the other side said at the same place. */
    std::vector<uint8_t> swap(const std::vector<uint8_t> &mine)
    {
        std::vector<uint8_t> theirs(1024);
        ucp_tag_recv_info_t info = {};
        ucs_status_ptr_t recv    = m_node.recv(theirs.data(), theirs.size(), TAG_NOTE);

        expect_ok(m_node.send(m_ep, mine.data(), mine.size(), TAG_NOTE), "a note to leave");
        EXPECT_EQ(UCS_OK, m_node.wait(recv, &info));
        theirs.resize(info.length);
        return theirs;
    }

    /* A message without bytes has no buffer: it takes no request, with a driver as without. */
    void exchange_nothing()
    {
        const ucp_request_param_t param = {};
        ucs_status_ptr_t recv           = m_node.recv(nullptr, 0, TAG_DATA);

        EXPECT_EQ(nullptr, ucp_tag_send_nbx(m_ep, nullptr, 0, TAG_DATA, &param));
        expect_ok(recv, "a message without bytes");
    }

    void exchange_tag(const void *out, void *in, size_t length)
    {
        ucs_status_ptr_t recv = m_node.recv(in, length, TAG_DATA);

        expect_ok(m_node.send(m_ep, out, length, TAG_DATA), "a tagged send");
        expect_ok(recv, "a tagged receive");
    }

    void exchange_stream(const void *out, void *in, size_t length)
    {
        ucp_request_param_t param = {};
        size_t received;

        ucs_status_ptr_t send = ucp_stream_send_nbx(m_ep, out, length, &param);
        param.op_attr_mask    = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags           = UCP_STREAM_RECV_FLAG_WAITALL;
        expect_ok(ucp_stream_recv_nbx(m_ep, in, length, &received, &param), "a stream's receive");
        expect_ok(send, "a stream's send");
    }

    /* An active message whose data the handler wants at in. */
    void exchange_am(gpu &g, const void *out, void *in, size_t length)
    {
        ucp_am_handler_param_t handler = {};
        ucp_request_param_t param      = {};

        m_gpu              = &g;
        m_am_place         = in;
        m_am_length        = length;
        m_am_done          = false;
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id         = AM_ID;
        handler.cb         = on_message;
        handler.arg        = this;
        EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_node.worker(), &handler));
        m_node.barrier();
        expect_ok(ucp_am_send_nbx(m_ep, AM_ID, nullptr, 0, out, length, &param),
                  "an active message's send");
        m_me.waits_for("an active message");
        m_node.until([this]() { return m_am_done; });
    }

    void exchange_rma(operation op, const gpu_buffer &out, const gpu_buffer &in, size_t length)
    {
        const gpu_buffer &target = (op == operation::PUT) ? in : out;
        const gpu_buffer &local  = (op == operation::PUT) ? out : in;
        ucp_mem_map_params_t map = {};
        ucp_request_param_t param = {};
        ucp_rkey_h rkey          = nullptr;
        uint64_t address         = reinterpret_cast<uintptr_t>(target.place(length));
        ucp_mem_h mem            = nullptr;
        void *packed             = nullptr;
        size_t size              = 0;

        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address    = target.memory();
        map.length     = target.size();
        ASSERT_EQ(UCS_OK, ucp_mem_map(m_node.context(), &map, &mem));
        ASSERT_EQ(UCS_OK, ucp_rkey_pack(m_node.context(), mem, &packed, &size));
        std::vector<uint8_t> note(sizeof(address) + size);
        memcpy(note.data(), &address, sizeof(address));
        memcpy(note.data() + sizeof(address), packed, size);
        ucp_rkey_buffer_release(packed);
        note = swap(note);
        memcpy(&address, note.data(), sizeof(address));
        ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(m_ep, note.data() + sizeof(address), &rkey));
        if (op == operation::PUT) {
            expect_ok(ucp_put_nbx(m_ep, local.place(length), length, address, rkey, &param),
                      "a put");
        } else {
            expect_ok(ucp_get_nbx(m_ep, local.place(length), length, address, rkey, &param),
                      "a get");
        }
        expect_ok(ucp_ep_flush_nbx(m_ep, &param), "a flush");
        m_node.barrier();
        ucp_rkey_destroy(rkey);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_node.context(), mem));
    }

    /* Both directions of one operation. */
    void exchange(operation op, gpu &g, gpu_buffer &out, gpu_buffer &in, size_t length)
    {
        const uint64_t id = ++m_number * 2;

        out.put(length, id + m_me.index());
        in.put(length, 0);
        m_node.barrier();
        switch (op) {
        case operation::TAG:
            exchange_tag(out.place(length), in.place(length), length);
            break;
        case operation::AM:
            exchange_am(g, out.place(length), in.place(length), length);
            break;
        case operation::STREAM:
            exchange_stream(out.place(length), in.place(length), length);
            break;
        case operation::PUT:
        case operation::GET:
            exchange_rma(op, out, in, length);
            break;
        }
        in.expect(length, id + m_peer);
        out.expect(length, id + m_me.index());
    }

    /* That of every operation, with buffers of these lengths. */
    void exchange_each(gpu &g, gpu_buffer &out, gpu_buffer &in, const std::vector<size_t> &lengths)
    {
        for (operation op : {operation::TAG, operation::AM, operation::PUT, operation::GET,
                             operation::STREAM}) {
            for (size_t length : lengths) {
                exchange(op, g, out, in, length);
            }
        }
    }

private:
    static void on_am_data(void *request, ucs_status_t status, size_t, void *arg)
    {
        EXPECT_EQ(UCS_OK, status);
        static_cast<pair_side *>(arg)->m_am_done = true;
        ucp_request_free(request);
    }

    static ucs_status_t on_message(void *arg, const void *, size_t, void *data, size_t length,
                                   const ucp_am_recv_param_t *recv)
    {
        pair_side *side           = static_cast<pair_side *>(arg);
        ucp_request_param_t param = {};

        EXPECT_EQ(side->m_am_length, length);
        if (!(recv->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
            side->m_gpu->copy(side->m_am_place, data, length);
            side->m_am_done = true;
            return UCS_OK;
        }
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.cb.recv_am   = on_am_data;
        param.user_data    = arg;
        ucs_status_ptr_t request = ucp_am_recv_data_nbx(side->m_node.worker(), data,
                                                        side->m_am_place, length, &param);
        if (request == nullptr) {
            side->m_am_done = true;
        }
        EXPECT_FALSE(UCS_PTR_IS_ERR(request));
        return UCS_OK;
    }

    self    &m_me;
    node     m_node;
    unsigned m_peer;
    ucp_ep_h m_ep;
    uint64_t m_number    = 0;
    gpu     *m_gpu       = nullptr;
    void    *m_am_place  = nullptr;
    size_t   m_am_length = 0;
    bool     m_am_done   = false;
};

class mp_cuda_matrix : public testing::TestWithParam<way> {
};

} // namespace

TEST_P(mp_cuda_matrix, every_byte)
{
    const way w = GetParam();
    processes all(2);

    NEED_GPU();
    if (w.is_one_device && (mp::gpu_count() == 1)) {
        GTEST_SKIP() << "there is one device, so both processes are on it anyway";
    }
    all.start_all([&](self &me) {
        gpu g(w.is_one_device ? 0 : me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        pair_side side(me);
        for (auto &kinds : pairs()) {
            const perf_memory_t kind = (me.index() == 0) ? kinds.first : kinds.second;
            const bool is_large = mp::is_gpu_real() && (kinds.first == kinds.second);
            const size_t most   = is_large ? LARGE_REAL : LARGE;
            gpu_buffer out(g, kind, most);
            gpu_buffer in(g, kind, most);
            const uint8_t mine = out.is_made() && in.is_made();
            if (!mine) {
                printf("no %s: %s\n", perf_memory_names[kind], g.problem());
            }
            if (!side.swap({mine})[0] || !mine) {
                continue;
            }
            SCOPED_TRACE(std::string(perf_memory_names[kinds.first]) + ", " +
                         perf_memory_names[kinds.second]);
            for (size_t length : LENGTHS) {
                if (length <= most) {
                    side.exchange(w.op, g, out, in, length);
                }
            }
            side.n().barrier();
        }
    });
    EXPECT_TRUE(all.join());
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_matrix,
                         testing::Values(way{operation::TAG, false, "tag"},
                                         way{operation::AM, false, "am"},
                                         way{operation::PUT, false, "put"},
                                         way{operation::GET, false, "get"},
                                         way{operation::STREAM, false, "stream"},
                                         way{operation::TAG, true, "tag"},
                                         way{operation::AM, true, "am"},
                                         way{operation::PUT, true, "put"},
                                         way{operation::GET, true, "get"},
                                         way{operation::STREAM, true, "stream"}));

/* Memory that is made for one message and freed after it, often at the same address again. */
TEST(mp_cuda, allocate_send_free)
{
    const unsigned rounds = mp::is_gpu_real() ? 1000 : 100;
    seeded_random random(7107);
    const uint64_t seed = random.bits();
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        size_t before = 0;
        {
            node rendezvous(me);
            rendezvous.barrier(); /* both have their contexts */
            before = g.free_bytes();
            rendezvous.barrier();
        }
        {
            pair_side side(me);
            std::mt19937_64 lengths(seed);
            for (unsigned i = 0; i < rounds; ++i) {
                const size_t length      = 1 + (lengths() % (1u << 20));
                const perf_memory_t kind = (i % 3 != 2) ? PERF_MEMORY_CUDA :
                                           (i % 2 != 0) ? PERF_MEMORY_VMM : PERF_MEMORY_POOL;
                gpu_buffer out(g, kind, length);
                gpu_buffer in(g, PERF_MEMORY_CUDA, length);
                ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
                SCOPED_TRACE(i);
                side.exchange(operation::TAG, g, out, in, length);
            }
        }
        node rendezvous(me);
        rendezvous.barrier();
        /* A pool keeps the block that it has exported from, however often it was used; the pools of
         * both may be on one device. */
        const size_t sharers = (g.device()->count == 1) ? 2 : 1;
        EXPECT_GE(g.free_bytes() + sharers * (SLACK + (mp::is_gpu_real() ? POOL_BLOCK : 0)),
                  before);
        rendezvous.barrier();
    });
    EXPECT_TRUE(all.join());
}

/* What keeps memory that the program has freed goes with the messages that follow, at both ends,
 * though nothing else is allocated. */
TEST(mp_cuda, freed_memory_is_not_kept)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        constexpr perf_memory_t KINDS[] = {PERF_MEMORY_CUDA, PERF_MEMORY_VMM,
                                           PERF_MEMORY_VMM_PIECES, PERF_MEMORY_POOL};
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        pair_side side(me);
        gpu_buffer first(g, PERF_MEMORY_CUDA, LARGE), last(g, PERF_MEMORY_CUDA, LARGE);
        auto calls = gpu::function<uint64_t(const char *)>("fakecuda_calls");
        size_t files = 0;
        for (unsigned round = 0; round < 5; ++round) {
            {
                std::vector<std::unique_ptr<gpu_buffer>> outs;
                for (perf_memory_t kind : KINDS) {
                    outs.push_back(std::make_unique<gpu_buffer>(
                        g, (me.index() == 0) ? kind : PERF_MEMORY_CUDA, LARGE));
                    ASSERT_TRUE(outs.back()->is_made()) << g.problem();
                    side.exchange(operation::TAG, g, *outs.back(), first, LARGE);
                }
            }
            for (unsigned i = 0; i < 60; ++i) {
                side.exchange(operation::TAG, g, last, first, LARGE);
            }
            side.n().barrier();
            files = (round == 0) ? mp::count_descriptors() : files;
            EXPECT_EQ(files, mp::count_descriptors()) << round;
            if (me.index() == 1) { /* the probe of pieces */
                EXPECT_EQ(calls("cuMemAddressReserve"), calls("cuMemAddressFree") + 1);
                EXPECT_EQ(calls("cuMemPoolImportFromShareableHandle"), calls("cuMemPoolDestroy"));
                EXPECT_LE(calls("cuIpcOpenMemHandle"), calls("cuIpcCloseMemHandle") + 3);
            }
            side.n().barrier();
        }
    });
    EXPECT_TRUE(all.join());
}

class mp_cuda_kill : public testing::TestWithParam<perf_memory_t> {
};

/* A process dies while its memory, on a device or not, is being copied. The other one learns of it,
 * and what it held of the dead is gone. */
TEST_P(mp_cuda_kill, in_transfer)
{
    const perf_memory_t kind = GetParam();
    constexpr unsigned WINDOW = 8, READY = 0, KILL = 1, DEAD = 2;
    const size_t length  = mp::is_gpu_real() ? (64u << 20) : (4u << 20);
    const double bound_s = 5 * mp::slowness();
    processes all(2);

    NEED_GPU();
    all.start(0, [&](self &me) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        const size_t before = g.free_bytes();
        me.own().words[READY] = 1;
        {
            gpu_buffer out(g, PERF_MEMORY_CUDA, length), in(g, PERF_MEMORY_CUDA, length);
            std::vector<ucs_status_ptr_t> requests;
            size_t ended = 0, failures = 0;
            node n(me);
            n.publish();
            ucp_ep_h ep = n.connect(1);
            while (!n.errors(ep).count) {
                if (requests.size() - ended < WINDOW) {
                    requests.push_back(n.send(ep, out.memory(), length, TAG_DATA));
                    requests.push_back(n.recv(in.memory(), length, TAG_DATA));
                }
                n.progress();
                while ((ended < requests.size()) &&
                       (!UCS_PTR_IS_PTR(requests[ended]) ||
                        ucp_request_is_completed(requests[ended]))) {
                    failures += n.wait(requests[ended++]) != UCS_OK;
                }
                if (ended > 2 * WINDOW) {
                    me.own().words[KILL] = 1;
                }
                me.waits_for("the death; %zu of %zu requests ended", ended, requests.size());
            }
            EXPECT_NE(0u, me.at(1).words[DEAD].load()) << "the other side is alive";
            for (; ended < requests.size(); ++ended) {
                ucs_status_ptr_t request = requests[ended];
                if (UCS_PTR_IS_PTR(request) &&
                    !n.until([&]() { return ucp_request_is_completed(request); }, 0.2)) {
                    ucp_request_cancel(n.worker(), request); /* a receive that nobody matched */
                }
                EXPECT_TRUE(!UCS_PTR_IS_PTR(request) ||
                            n.until([&]() { return ucp_request_is_completed(request); }, bound_s))
                    << "request " << ended << " does not end";
                failures += n.wait(request) != UCS_OK;
            }
            EXPECT_GT(failures, 0u);
            n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        }
        size_t after = g.free_bytes();
        for (double end_s = mp::now_s() + bound_s;
             (after + SLACK < before) && (mp::now_s() < end_s); after = g.free_bytes()) {
            usleep(10000); /* the driver takes its time with the dead */
        }
        EXPECT_GE(after + SLACK, before);
    });
    ASSERT_TRUE(all.until([&]() { return all.at(0).words[READY] != 0; }, "the survivor"));
    all.start(1, [&](self &me) {
        std::vector<uint8_t> host(2 * length);
        void *out = host.data(), *in = host.data() + length;
        std::unique_ptr<gpu> g;
        if (kind != PERF_MEMORY_HOST) {
            g = std::make_unique<gpu>(1);
            ASSERT_TRUE(g->is_open()) << g->problem();
            out = perf_memory_alloc(g->device(), kind, length);
            in  = perf_memory_alloc(g->device(), kind, length);
            ASSERT_TRUE((out != nullptr) && (in != nullptr)) << g->problem();
        }
        node n(me);
        n.publish();
        ucp_ep_h ep = n.connect(0);
        me.waits_for("its death");
        for (;;) {
            ucs_status_ptr_t send = n.send(ep, out, length, TAG_DATA);
            n.wait(n.recv(in, length, TAG_DATA));
            n.wait(send);
        }
    });
    if (all.until([&]() { return all.at(0).words[KILL] != 0; }, "messages to have passed")) {
        all.at(1).words[DEAD] = 1;
        all.kill_now(1);
    }
    EXPECT_TRUE(all.join());
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_kill,
                         testing::Values(PERF_MEMORY_CUDA, PERF_MEMORY_VMM, PERF_MEMORY_POOL,
                                         PERF_MEMORY_HOST),
                         [](const testing::TestParamInfo<perf_memory_t> &info) {
                             std::string name = perf_memory_names[info.param];
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

/* The driver refuses to map what another process shows: everything arrives all the same, and each
 * process says once why it takes longer. */
TEST(mp_cuda, mapping_refused)
{
    constexpr int NOT_SUPPORTED = 801;
    processes all(2);

    NEED_GPU();
    if (mp::is_gpu_real()) {
        GTEST_SKIP() << "the real driver refuses nothing here";
    }
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail")(
            "cuIpcOpenMemHandle", 1, NOT_SUPPORTED, 1);
        pair_side side(me);
        gpu_buffer out(g, PERF_MEMORY_CUDA, LARGE), in(g, PERF_MEMORY_CUDA, LARGE);
        ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
        side.exchange_each(g, out, in, {16, 256, LARGE});
    });
    EXPECT_TRUE(all.join());
    EXPECT_LE(all.log_lines(), 4u) << all.log(); /* what is done, and the driver's reason */
    EXPECT_NE(std::string::npos, all.log().find("is staged instead")) << all.log();
}

/* Copies to memory of the other process are done without effect: everything arrives all the same,
 * and each process says once why it takes longer. */
TEST(mp_cuda, copies_that_lose_data)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        gpu::function<void(const char *, int)>("fakecuda_set")("lose", 1 + me.index());
        pair_side side(me);
        for (perf_memory_t kind : {PERF_MEMORY_CUDA, PERF_MEMORY_VMM, PERF_MEMORY_VMM_PIECES,
                                   PERF_MEMORY_POOL, PERF_MEMORY_ASYNC}) {
            gpu_buffer out(g, kind, LARGE), in(g, kind, LARGE);
            ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
            side.exchange_each(g, out, in, {16, 4096, LARGE});
        }
    });
    EXPECT_TRUE(all.join());
    EXPECT_EQ(4u, all.log_lines()) << all.log(); /* the other one is that of the last kind */
    EXPECT_NE(std::string::npos, all.log().find("does not arrive")) << all.log();
}

/* No process may look into another one, as under a container's filter: memory that goes by
 * descriptor is mapped all the same, whatever else the program has that makes no progress. */
static void share_without_looking(bool has_idle_worker)
{
    processes all(2);

    all.start_all([&](self &me) {
        const std::string why = mp::deny_syscalls(
            {SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_ptrace}, EPERM);
        if (!why.empty()) {
            printf("not forbidden: %s\n", why.c_str());
            return;
        }
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        std::unique_ptr<node> idle = has_idle_worker ? std::make_unique<node>(me) : nullptr;
        pair_side side(me);
        for (perf_memory_t kind : {PERF_MEMORY_VMM, PERF_MEMORY_VMM_PIECES, PERF_MEMORY_POOL}) {
            gpu_buffer out(g, kind, LARGE), in(g, kind, LARGE);
            ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
            side.exchange_each(g, out, in, {16, 4096, LARGE});
        }
        if (!mp::is_gpu_real()) {
            auto calls = gpu::function<uint64_t(const char *)>("fakecuda_calls");
            EXPECT_NE(0u, calls("cuMemImportFromShareableHandle"));
            EXPECT_NE(0u, calls("cuMemPoolImportPointer"));
            EXPECT_EQ(0u, calls("cuMemAlloc")) << "nothing is staged";
        }
    });
    EXPECT_TRUE(all.join());
    EXPECT_EQ(0u, all.log_lines()) << all.log();
}

TEST(mp_cuda, looking_into_peers_forbidden)
{
    NEED_GPU();
    for (bool has_idle_worker : {false, true}) {
        SCOPED_TRACE(has_idle_worker);
        share_without_looking(has_idle_worker);
    }
}

/* The kinds of memory that the context says it takes. */
static uint64_t memory_types(node &n)
{
    ucp_context_attr_t attr;

    attr.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    EXPECT_EQ(UCS_OK, ucp_context_query(n.context(), &attr));
    return attr.memory_types;
}

/* The program starts CUDA when it has communicated for a while. */
TEST(mp_cuda, started_late)
{
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        gpu::load();
        pair_side side(me);
        EXPECT_EQ(me.index() + 1u, 2u - side.swap({static_cast<uint8_t>(me.index())})[0]);
        side.exchange_nothing();
        EXPECT_EQ(1ull << UCS_MEMORY_TYPE_HOST, memory_types(side.n()));
        {
            gpu g(me.index());
            ASSERT_TRUE(g.is_open()) << g.problem();
            usleep(30000); /* a real driver takes longer to start */
            EXPECT_EQ((1ull << UCS_MEMORY_TYPE_HOST) | (1ull << UCS_MEMORY_TYPE_CUDA) |
                      (1ull << UCS_MEMORY_TYPE_CUDA_MANAGED), memory_types(side.n()));
            side.exchange_nothing();
            for (operation op : {operation::TAG, operation::PUT, operation::AM}) {
                gpu_buffer out(g, PERF_MEMORY_CUDA, LARGE), in(g, PERF_MEMORY_ASYNC, LARGE);
                ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
                for (size_t length : {size_t(1), size_t(63), LARGE}) {
                    side.exchange(op, g, out, in, length);
                }
            }
            side.n().barrier();
        }
        EXPECT_EQ(me.index() + 1u, 2u - side.swap({static_cast<uint8_t>(me.index())})[0]);
    });
    EXPECT_TRUE(all.join());
}

/* Who names the transports between processes has not thought of memory of devices: it is known all
 * the same. */
TEST(mp_cuda, lists_of_transports_that_leave_it_out)
{
    NEED_GPU();
    for (const char *tls : {"mm", "rc,sm"}) {
        processes all(2);

        SCOPED_TRACE(tls);
        all.start_all([&](self &me) {
            setenv("UCX_TLS", tls, 1);
            gpu g(me.index());
            ASSERT_TRUE(g.is_open()) << g.problem();
            pair_side side(me);
            for (operation op : {operation::TAG, operation::PUT}) {
                gpu_buffer out(g, PERF_MEMORY_CUDA, 50000), in(g, PERF_MEMORY_ASYNC, 50000);
                ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
                for (size_t length : {1, 50000}) {
                    side.exchange(op, g, out, in, length);
                }
            }
        });
        EXPECT_TRUE(all.join());
        EXPECT_EQ(0u, all.log_lines()) << all.log();
    }
}

/* The thread that communicates has never called CUDA, and has no context afterwards either. */
TEST(mp_cuda, thread_without_context)
{
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        std::vector<std::unique_ptr<gpu_buffer>> outs, ins;
        for (size_t length : LENGTHS) {
            if (length <= LARGE) {
                outs.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, length));
                ins.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, length));
                ASSERT_TRUE(outs.back()->is_made() && ins.back()->is_made());
                outs.back()->put(length, length + me.index());
                ins.back()->put(length, 0);
            }
        }
        std::thread([&]() {
            pair_side side(me);
            for (size_t i = 0; i < outs.size(); ++i) {
                side.exchange_tag(outs[i]->place(LENGTHS[i]), ins[i]->place(LENGTHS[i]),
                                  LENGTHS[i]);
            }
            void *current = nullptr;
            EXPECT_EQ(0, gpu::function<int(void **)>("cuCtxGetCurrent")(&current));
            EXPECT_EQ(nullptr, current);
        }).join();
        for (size_t i = 0; i < ins.size(); ++i) {
            ins[i]->expect(LENGTHS[i], LENGTHS[i] + !me.index());
        }
    });
    EXPECT_TRUE(all.join());
}

/* Another thread captures a graph in the mode in which the driver forbids everybody what could
 * disturb it: runs func meanwhile. */
static void amid_capture(gpu &g, const std::function<void()> &func)
{
    constexpr int MODE_GLOBAL = 0;
    using stream_t            = void *;
    std::atomic<int> state(0); /* 1: capturing, 2: to be ended */

    if (!mp::is_gpu_real()) {
        gpu::function<void(const char *, int)>("fakecuda_set")("capture", 1);
        func();
        gpu::function<void(const char *, int)>("fakecuda_set")("capture", 0);
        EXPECT_EQ(0u, gpu::function<uint64_t()>("fakecuda_misuses")());
        return;
    }
    std::thread capturing([&]() {
        stream_t stream = nullptr;
        void *graph     = nullptr;
        EXPECT_EQ(0, perf_device_enter(g.device()));
        EXPECT_EQ(0, gpu::function<int(stream_t *, unsigned)>("cuStreamCreate")(&stream, 1));
        EXPECT_EQ(0, gpu::function<int(stream_t, int)>("cuStreamBeginCapture_v2")(stream,
                                                                                 MODE_GLOBAL));
        state = 1;
        while (state != 2) {
            sched_yield();
        }
        EXPECT_EQ(0, gpu::function<int(stream_t, void **)>("cuStreamEndCapture")(stream, &graph))
            << "the capture was disturbed";
        EXPECT_EQ(0, gpu::function<int(void *)>("cuGraphDestroy")(graph));
        EXPECT_EQ(0, gpu::function<int(stream_t)>("cuStreamDestroy_v2")(stream));
    });
    while (state != 1) {
        sched_yield();
    }
    func();
    state = 2;
    capturing.join();
}

TEST(mp_cuda, graph_capture_elsewhere)
{
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        std::vector<std::unique_ptr<gpu_buffer>> outs, ins;
        for (size_t length : LENGTHS) {
            if ((length <= LARGE) || mp::is_gpu_real()) {
                outs.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, length));
                ins.push_back(std::make_unique<gpu_buffer>(g, PERF_MEMORY_CUDA, length));
                outs.back()->put(length, length + me.index());
                ins.back()->put(length, 0);
            }
        }
        {
            pair_side side(me);
            amid_capture(g, [&]() {
                for (size_t i = 0; i < outs.size(); ++i) {
                    side.exchange_tag(outs[i]->place(LENGTHS[i]), ins[i]->place(LENGTHS[i]),
                                      LENGTHS[i]);
                }
            });
            for (perf_memory_t kind : {PERF_MEMORY_VMM, PERF_MEMORY_VMM_PIECES, PERF_MEMORY_POOL,
                                       PERF_MEMORY_MANAGED, PERF_MEMORY_ASYNC}) {
                SCOPED_TRACE(perf_memory_names[kind]);
                gpu_buffer out(g, kind, LARGE), in(g, kind, LARGE);
                ASSERT_TRUE(out.is_made() && in.is_made()) << g.problem();
                out.put(LARGE, LARGE + me.index());
                in.put(LARGE, 0);
                amid_capture(g, [&]() {
                    side.exchange_tag(out.place(LARGE), in.place(LARGE), LARGE);
                });
                in.expect(LARGE, LARGE + !me.index());
                side.n().barrier();
            }
        }
        for (size_t i = 0; i < ins.size(); ++i) {
            ins[i]->expect(LENGTHS[i], LENGTHS[i] + !me.index());
        }
    });
    EXPECT_TRUE(all.join());
}
