/* Halyard: messages between device memory of one process and memory of the host of another, which
 * has nothing to do with CUDA: chunk by chunk, several messages at a time, with single copies that
 * are refused at any step.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "fake_sys.h"
#include "host_buffer.h"
#include "seed.h"
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>

#include <atomic>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>

using mp::gpu;
using mp::gpu_buffer;
using mp::host_buffer;
using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned DEVICE = 0; /* the process that has the device */

struct way {
    const char *error;    /* of single copies of the process with the device; NULL: none */
    bool        is_mute;  /* no single copies at all: everything is messages */
    const char *name;
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.name;
}

/* Messages of these lengths both ways at once, several times. */
template <typename buffers_t>
void exchange(self &me, node &n, const std::vector<size_t> &lengths, const buffers_t &make)
{
    const unsigned peer = !me.index();
    decltype(make(size_t())) out[16], in[16];

    for (unsigned round = 1; round <= 3; ++round) {
        std::vector<ucs_status_ptr_t> requests;
        for (size_t i = 0; i < lengths.size(); ++i) {
            out[i] = make(lengths[i]);
            in[i]  = make(lengths[i]);
            out[i]->put(lengths[i], (round * 100) + (i * 2) + me.index());
            in[i]->put(lengths[i], 0);
        }
        n.barrier();
        for (size_t i = 0; i < lengths.size(); ++i) {
            requests.push_back(n.recv(in[i]->place(lengths[i]), lengths[i], i));
        }
        for (size_t i = 0; i < lengths.size(); ++i) {
            requests.push_back(n.send(n.ep(peer), out[i]->place(lengths[i]), lengths[i], i));
        }
        for (size_t i = 0; i < requests.size(); ++i) {
            me.waits_for("round %u, request %zu", round, i);
            EXPECT_EQ(UCS_OK, n.wait(requests[i]));
        }
        for (size_t i = 0; i < lengths.size(); ++i) {
            SCOPED_TRACE(i);
            in[i]->expect(lengths[i], (round * 100) + (i * 2) + peer);
        }
        n.barrier();
    }
}

void run(self &me, const way &w, const std::string &fault, const std::vector<size_t> &lengths)
{
    std::unique_ptr<gpu> g;

    if (w.is_mute) {
        setenv("UCX_TLS", "mm,cuda_copy,cuda_ipc", 1);
    }
    if (me.index() == DEVICE) {
        g = std::make_unique<gpu>(0);
        ASSERT_TRUE(g->is_open()) << g->problem();
    }
    node n(me);
    n.connect_all();
    if ((me.index() == DEVICE) && !fault.empty()) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("process_vm_*", fault.c_str()));
    }
    if (me.index() == DEVICE) {
        exchange(me, n, lengths, [&](size_t length) {
            return std::make_unique<gpu_buffer>(*g, PERF_MEMORY_CUDA, length);
        });
    } else {
        exchange(me, n, lengths,
                 [](size_t length) { return std::make_unique<host_buffer>(length); });
    }
    n.barrier();
}

class mp_cuda_host : public testing::TestWithParam<way> {
};

} // namespace

/* More messages at a time than there are chunks, of one chunk, a part of one, and many. */
TEST_P(mp_cuda_host, many_at_once)
{
    const way w = GetParam();
    processes both(2);

    NEED_GPU();
    both.start_all([&](self &me) {
        run(me, w, (w.error == nullptr) ? "" : std::string("5+:") + w.error,
            {3u << 20, 256u << 10, (1u << 20) + 1, 70001, (512u << 10) - 1, 2000003, 1, 0, 3000,
             (5u << 20) + 77});
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(std::string::npos, both.log().find("ERROR")) << both.log();
}

/* The k-th single copy is refused, or it and all that follow. */
TEST_P(mp_cuda_host, refused_at_every_copy)
{
    const way w = GetParam();

    NEED_GPU();
    if (w.error == nullptr) {
        GTEST_SKIP() << "nothing is refused";
    }
    mp::refuse_single_copies((mp::slowness() > 1) ? std::vector<unsigned>{1, 5, 9} :
                             std::vector<unsigned>{1, 2, 3, 4, 5, 6, 7, 8, 9}, w.error,
                             [&](self &me, const std::string &fault) {
                                 run(me, w, fault, {1300000, 400000});
                             });
}

namespace {

/* Time passes by a tenth of a second each time that somebody looks. */
uint64_t a_clock_that_runs()
{
    static uint64_t now;

    return now += 100000000;
}

} // namespace

/* A copy cannot be begun as others are, and one in its place does not end: the message fails, and
 * what the device may still write serves no other message. */
TEST(mp_cuda_host_stuck, first_of_two_sends)
{
    constexpr size_t LENGTH = 700000;
    static ucs_sys_ops_t ops;
    processes both(2);

    NEED_FAKE_GPU();
    both.start_all([&](self &me) {
        setenv("UCX_LOG_LEVEL", "fatal", 1);
        std::unique_ptr<gpu> g;
        if (me.index() == DEVICE) {
            g = std::make_unique<gpu>(0);
            ASSERT_TRUE(g->is_open()) << g->problem();
        }
        node n(me);
        n.connect_all();
        n.barrier();
        me.waits_for("the first message to fail, and the second to arrive");
        if (me.index() != DEVICE) {
            host_buffer first(LENGTH), second(LENGTH);
            EXPECT_NE(UCS_OK, n.wait(n.recv(first.place(LENGTH), LENGTH, 1)));
            EXPECT_EQ(UCS_OK, n.wait(n.recv(second.place(LENGTH), LENGTH, 2)));
            second.expect(LENGTH, 2);
            n.barrier();
            return;
        }
        auto set    = gpu::function<void(const char *, int)>("fakecuda_set");
        auto fail   = gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail");
        auto copies = gpu::function<uint64_t(const char *)>("fakecuda_calls");
        gpu_buffer first(*g, PERF_MEMORY_CUDA, LENGTH), second(*g, PERF_MEMORY_CUDA, LENGTH);
        first.put(LENGTH, 1);
        second.put(LENGTH, 2);
        ops          = ucs_sys_real;
        ops.clock_ns = a_clock_that_runs;
        set("stuck", 2);
        fail("cuStreamCreate", 1, 999, 0);
        ucs_sys_set(&ops);
        EXPECT_NE(UCS_OK, n.wait(n.send(n.ep(!DEVICE), first.place(LENGTH), LENGTH, 1)));
        ucs_sys_set(&ucs_sys_real);
        const uint64_t before    = copies("cuMemcpyAsync");
        ucs_status_ptr_t request = n.send(n.ep(!DEVICE), second.place(LENGTH), LENGTH, 2);
        n.until([&]() { return copies("cuMemcpyAsync") > before; });
        EXPECT_EQ(0u, gpu::function<uint64_t()>("fakecuda_misuses")());
        set("stuck", 0);
        EXPECT_EQ(UCS_OK, n.wait(request));
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

/* A process whose buffers have all been in the heap, so that none has told that it uses a device:
 * the device reads into them all the same, or writes from those that it reaches, once both sides
 * are connected. */
TEST(mp_cuda_heap, is_copied_by_the_device)
{
    constexpr size_t LENGTH = 60000;
    constexpr uint64_t LAST = 5;

    NEED_FAKE_GPU();
    for (bool is_sender : {false, true}) {
        SCOPED_TRACE(is_sender ? "it sends" : "it receives");
        processes both(2);
        both.start_all([&](self &me) {
            setenv("UCX_RNDV_THRESH", "8k", 1);
            gpu g(me.index());
            ASSERT_TRUE(g.is_open()) << g.problem();
            const bool is_device = (me.index() == DEVICE);
            auto foreign         = gpu::function<uint64_t()>("fakecuda_foreign");
            auto reg    = gpu::function<int(void *, size_t, unsigned)>("cuMemHostRegister_v2");
            auto forget = gpu::function<int(void *)>("cuMemHostUnregister");
            node n(me);
            n.connect_all();
            gpu_buffer there(g, PERF_MEMORY_CUDA, LENGTH);
            host_buffer here(LENGTH);
            there.put(LENGTH, 0);
            ASSERT_EQ(0, reg(here.place(LENGTH), LENGTH, 0));
            uint8_t *place        = is_device ? there.place(LENGTH) : here.place(LENGTH);
            const uint64_t before = foreign();
            for (uint64_t id = 1; id <= LAST; ++id) {
                me.waits_for("message %lu", static_cast<unsigned long>(id));
                if (is_device == is_sender) { /* receives */
                    EXPECT_EQ(UCS_OK, n.wait(n.recv(place, LENGTH, id)));
                    is_device ? there.expect(LENGTH, id) : here.expect(LENGTH, id);
                } else {
                    is_device ? there.put(LENGTH, id) : here.put(LENGTH, id);
                    EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(!me.index()), place, LENGTH, id)));
                }
            }
            EXPECT_TRUE(is_device || (foreign() > before));
            EXPECT_EQ(0, forget(here.place(LENGTH)));
            n.barrier();
        });
        EXPECT_TRUE(both.join());
    }
}

/* What lies in the heap, static data of the program or the stack that runs is the host's for
 * certain; all else is looked at, also another thread's stack, and all from a stack that the
 * program made. */
TEST(mp_cuda_heap, memory_that_needs_no_look)
{
    constexpr size_t LENGTH = 64, STACK = 256u << 10;
    static char data[LENGTH];
    processes one(1);

    NEED_FAKE_GPU();
    one.start_all([](self &me) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        auto calls = gpu::function<uint64_t(const char *)>("fakecuda_calls");
        node n(me);
        const auto looks = [&](void *place) {
            const uint64_t before = calls("cuPointerGetAttributes");
            for (int i = 0; i < 10; ++i) {
                usleep(50); /* longer than an answer counts */
                ucs_status_ptr_t request = n.recv(place, LENGTH, 1);
                ucp_request_cancel(n.worker(), request);
                EXPECT_EQ(UCS_ERR_CANCELED, n.wait(request));
            }
            return calls("cuPointerGetAttributes") - before;
        };
        void *mapped = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
        ASSERT_NE(MAP_FAILED, mapped);
        char local[LENGTH];
        void *heap = sbrk(LENGTH); /* of which allocators of sanitizers take nothing */

        EXPECT_EQ(10u, looks(mapped));
        EXPECT_EQ(0u, looks(data));
        EXPECT_EQ(0u, looks(local));
        EXPECT_EQ(0u, looks(heap));
        std::thread([&]() {
            char own[LENGTH];
            EXPECT_EQ(10u, looks(local));
            EXPECT_EQ(0u, looks(own));
        }).join();

        static std::function<void()> on_own_stack;
        on_own_stack = [&]() {
            char own[LENGTH];
            EXPECT_EQ(10u, looks(local));
            EXPECT_EQ(10u, looks(own));
        };
        ucontext_t here, there;
        ASSERT_EQ(0, getcontext(&there));
        there.uc_stack = {mapped, 0, STACK};
        there.uc_link  = &here;
        makecontext(&there, []() { on_own_stack(); }, 0);
        ASSERT_EQ(0, swapcontext(&here, &there));
        munmap(mapped, STACK);
    });
    EXPECT_TRUE(one.join());
}

std::atomic<int> g_looks;

/* How often making a worker asks the kernel what the process is. */
int looks_of_a_worker(self &me)
{
    ucs_sys_ops_t ops = ucs_sys_real;
    ops.open          = [](const char *path, int flags, mode_t mode) {
        g_looks += (strcmp(path, "/proc/self/stat") == 0);
        return ucs_sys_real.open(path, flags, mode);
    };
    const fake_sys fake(ops);
    g_looks = 0;
    const node n(me);
    return g_looks;
}

/* Where the heap, static data and the first stack are is the same for all workers of a process,
 * whichever thread makes them, and in a child too. */
TEST(mp_cuda_heap, is_looked_for_once)
{
    processes one(1);

    NEED_FAKE_GPU();
    one.start_all([](self &me) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        std::thread([&]() { EXPECT_GE(1, looks_of_a_worker(me)); }).join();
        EXPECT_EQ(0, looks_of_a_worker(me));
        const pid_t pid = fork();
        if (pid == 0) {
            _exit(looks_of_a_worker(me));
        }
        int status = -1;
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status);
    });
    EXPECT_TRUE(one.join());
}

/* The process of the host ends when its send has; the other one, which looks seldom, has all. */
TEST(mp_cuda_host_leaves, after_its_send)
{
    constexpr size_t LENGTH = 700000;
    processes both(2);

    NEED_GPU();
    both.start_all([&](self &me) {
        std::unique_ptr<gpu> g;

        if (me.index() == DEVICE) {
            g = std::make_unique<gpu>(0);
            ASSERT_TRUE(g->is_open()) << g->problem();
        }
        node n(me);
        n.connect_all();
        n.barrier();
        if (me.index() == DEVICE) {
            gpu_buffer in(*g, PERF_MEMORY_CUDA, LENGTH);
            in.put(LENGTH, 0);
            me.waits_for("a message whose sender leaves");
            ucs_status_ptr_t request = n.recv(in.place(LENGTH), LENGTH, 1);
            while (!ucp_request_is_completed(request)) {
                n.progress();
                usleep(1000);
            }
            EXPECT_EQ(UCS_OK, n.wait(request));
            in.expect(LENGTH, 1);
        } else {
            host_buffer out(LENGTH);
            out.put(LENGTH, 1);
            EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(DEVICE), out.place(LENGTH), LENGTH, 1)));
        }
    });
    EXPECT_TRUE(both.join());
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_host,
                         testing::Values(way{nullptr, false, "copied"},
                                         way{nullptr, true, "by_messages"},
                                         way{"1", false, "EPERM"}, way{"14", false, "EFAULT"}),
                         [](const testing::TestParamInfo<way> &info) { return info.param.name; });
