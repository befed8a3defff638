/* Halyard: cuda_ipc: short copies by a kernel (UCX_CUDA_IPC_KERNELS), and its recall.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_pair.h"

#include <seed.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>

using namespace uct_test;
using kind = cuda_program::kind;

namespace {

constexpr size_t SIZE = 1 << 20;

/* Time passes when the test says so: nothing takes too long otherwise. */
std::atomic<uint64_t> g_now{1000000000};

void stop_clock()
{
    static ucs_sys_ops_t ops;

    ops          = ucs_sys_real;
    ops.clock_ns = []() { return g_now.load(); };
    ucs_sys_set(&ops);
}

/* A pair whose copies may be made by kernels. */
struct kernel_user : ipc_user {
    explicit kernel_user(const char *allowed = "y") :
        ipc_user([allowed]() { setenv("UCX_CUDA_IPC_KERNELS", allowed, 1); })
    {
    }

    /* Copies between parts of both memories, none of which overlap: `model` is what the local
     * memory will hold after gets, or the remote one after puts. */
    void post(bool is_put, size_t offset, size_t local_offset, size_t length, bytes &model,
              const bytes &source)
    {
        uint8_t *address = static_cast<uint8_t *>(local.address) + local_offset;
        uct_iov_t iov    = {address, length, nullptr};

        comps.emplace_back();
        const ucs_status_t status =
            is_put ? ep->ops->put_zcopy(ep, &iov, 1, remote + offset, rkey, &comps.back().base) :
                     ep->ops->get_zcopy(ep, &iov, 1, remote + offset, rkey, &comps.back().base);
        ASSERT_EQ(UCS_INPROGRESS, status);
        const size_t from = is_put ? local_offset : offset, to = is_put ? offset : local_offset;
        std::copy(source.begin() + static_cast<long>(from),
                  source.begin() + static_cast<long>(from + length),
                  model.begin() + static_cast<long>(to));
    }

    bool have_ended()
    {
        if (!cuda_program::is_real()) {
            cuda.set("step", 0);
        }
        return std::all_of(comps.begin(), comps.end(),
                           [](const completion &c) { return c.calls != 0; });
    }

    /* So that what waits for a first copy has been handed over. */
    void hand_over()
    {
        for (unsigned i = 0; i < 10; ++i) {
            w->progress();
        }
    }

    void finish_all()
    {
        ASSERT_TRUE(run_until({w.get()}, [this]() { return have_ended(); }));
        for (const completion &c : comps) {
            EXPECT_EQ(1, c.calls);
            EXPECT_EQ(UCS_OK, c.base.status);
        }
        comps.clear();
    }

    /* Gets of `count` parts of so many bytes. */
    void get_many(unsigned count, size_t length)
    {
        for (unsigned i = 0; i < count; ++i) {
            post(false, i * length, i * length, length, here, there);
        }
    }

    void init(kind what = kind::DEVICE)
    {
        allocate(SIZE);
        there = pattern(SIZE, SIZE);
        local = cuda.make(what, SIZE);
        here  = pattern(77, SIZE);
        cuda.write(local.address, here);
        ASSERT_EQ(UCS_OK, get(local.address, 0, 16)); /* maps it */
        std::copy(there.begin(), there.begin() + 16, here.begin());
    }

    /* A kernel that was recalled starts, and touches nothing any more. */
    void start_late()
    {
        here = pattern(78, SIZE);
        cuda.write(local.address, here);
        cuda.set("room", -1);
        get_many(1, 16);
        finish_all(); /* the kernel ends meanwhile */
        EXPECT_EQ(here, cuda.read(local.address, SIZE));
    }

    uint64_t launches()
    {
        return cuda.calls("cuLaunchKernel");
    }

    cuda_program::memory local = {};
    bytes here, there;
    std::deque<completion> comps;
};

/* What is mapped of a process that dies stays: the copies end, and the context is as good as
 * before. */
TEST(cuda_kernel, the_owner_is_killed)
{
    in_process([]() {
        kernel_user u;

        u.init();
        u.get_many(100, 64);
        u.finish_all();
        for (unsigned i = 0; i < 2; ++i) {
            u.get_many(300, 3000);
            if (i == 0) {
                u.kill_owner();
            }
            ASSERT_TRUE(run_until({u.w.get()}, [&u]() { return u.have_ended(); }));
            for (const completion &c : u.comps) {
                EXPECT_EQ(1, c.calls);
            }
            u.comps.clear();
        }
        const bytes data = pattern(5, SIZE);
        u.cuda.write(u.local.address, data);
        EXPECT_EQ(data, u.cuda.read(u.local.address, SIZE));
    });
}

/* Runs the body in a process of its own, with a pair that has made a first copy and whose time
 * passes as told. The driver is to see nothing wrong. */
void with_user(const char *level, const std::function<void(kernel_user &)> &body)
{
    in_process([level, &body]() {
        log_levels quiet(level);
        stop_clock();
        kernel_user u;

        u.init();
        body(u);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

class fake_cuda_kernel : public testing::Test {
protected:
    void SetUp() override
    {
        if (cuda_program::is_real()) {
            GTEST_SKIP() << "this needs the driver of the tests";
        }
    }
};

/* Every length and place, both ways, with the driver of the tests and a real one. */
TEST(cuda_kernel, places_and_lengths)
{
    in_process([]() {
        if (!cuda_program::is_real()) {
            stop_clock();
        }
        kernel_user u;
        seeded_random random(41);

        u.init();
        for (unsigned round = 0; round < 40; ++round) {
            const bool is_put   = (round % 2) != 0;
            bytes model         = is_put ? u.there : u.here;
            const bytes &source = is_put ? u.here : u.there;
            const size_t most   = (round % 5 == 0) ? 16 : (round % 5 == 1) ? 5000 : 40000;
            size_t at = 0;
            for (unsigned i = 0; i < 150; ++i) {
                const size_t length = 1 + random.below(most);
                const size_t skew   = random.one_in(3) ? random.below(32) : 0;
                at += random.below(40);
                if (at + length + 32 > SIZE) {
                    break;
                }
                u.post(is_put, is_put ? at : at + skew, is_put ? at + skew : at, length, model,
                       source);
                at += length;
            }
            u.finish_all();
            if (is_put) {
                ASSERT_EQ(model, u.read_remote()) << round;
                u.there = model;
            } else {
                ASSERT_EQ(model, u.cuda.read(u.local.address, SIZE)) << round;
                u.here = model;
            }
        }
        if (!cuda_program::is_real()) {
            EXPECT_GT(u.launches(), 40u);
            EXPECT_EQ(0u, u.cuda.misuses());
        }
    });
}

/* The first copy of many goes at once by a copy engine, the others by one kernel; a few only, long
 * ones, and odd ones that are not short do not. */
TEST_F(fake_cuda_kernel, what_a_kernel_makes)
{
    in_process([]() {
        stop_clock();
        kernel_user u;

        u.init();
        const uint64_t copies = u.cuda.calls("cuMemcpyAsync");
        u.get_many(30, 3000);
        EXPECT_EQ(0u, u.launches());
        u.finish_all();
        EXPECT_EQ(1u, u.launches());
        EXPECT_EQ(copies + 1, u.cuda.calls("cuMemcpyAsync"));
        EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
        u.get_many(3, 3000);
        u.finish_all();
        EXPECT_EQ(1u, u.launches());
        u.get_many(5, 3000); /* not the first of them */
        u.finish_all();
        EXPECT_EQ(2u, u.launches());
        u.get_many(4, 3000); /* the first one waits, too, after a kernel */
        EXPECT_EQ(2u, u.launches());
        u.finish_all();
        EXPECT_EQ(3u, u.launches());
        u.get_many(31, 100); /* too few for two */
        u.finish_all();
        EXPECT_EQ(4u, u.launches());
        u.get_many(100, 100); /* two have a half each */
        u.w->progress();
        EXPECT_EQ(6u, u.launches());
        u.finish_all();
        EXPECT_EQ(6u, u.launches());
        u.get_many(3, 300000);
        u.finish_all();
        EXPECT_EQ(6u, u.launches());
        u.post(false, 0, 1, 5000, u.here, u.there); /* odd, and not short */
        for (unsigned i = 1; i < 8; ++i) {
            u.post(false, i * 6000, i * 6000 + 1, 5000, u.here, u.there);
        }
        u.finish_all();
        EXPECT_EQ(6u, u.launches());
        EXPECT_EQ(1u, u.cuda.calls("cuModuleLoadDataEx"));
        EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
        u.forget();
        u.w.reset();
        EXPECT_EQ(1u, u.cuda.calls("cuModuleUnload"));
        EXPECT_EQ(u.cuda.calls("cuMemHostRegister"), u.cuda.calls("cuMemHostUnregister"));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Only where a program allows it, since loading it waits for the program's kernels; and not for
 * memory that a kernel might not reach, which would cost the program its context. */
TEST_F(fake_cuda_kernel, what_a_kernel_does_not_make)
{
    for (kind what : CUDA_KINDS) {
        for (const char *allowed : {"n", "y"}) {
            in_process([what, allowed]() {
                stop_clock();
                kernel_user u(allowed);
                u.init(what);
                u.get_many(30, 3000);
                u.finish_all();
                EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
                const bool makes = (what == kind::DEVICE) && (*allowed == 'y');
                EXPECT_EQ(makes ? 1u : 0u, u.launches());
                EXPECT_EQ(makes ? 1u : 0u, u.cuda.calls("cuModuleLoadDataEx"));
                EXPECT_EQ(0u, u.cuda.misuses());
            });
        }
    }
}

/* Copies that go beyond what was allocated, on either side: refused, as by copy engines. */
TEST_F(fake_cuda_kernel, beyond_what_is_there)
{
    with_user("fatal", [](kernel_user &u) {
        uint8_t *end = static_cast<uint8_t *>(u.local.address) + SIZE;
        for (unsigned i = 0; i < 20; ++i) {
            uct_iov_t iov = {end - 8, 16, nullptr};
            u.comps.emplace_back();
            const ucs_status_t status = u.ep->ops->get_zcopy(u.ep, &iov, 1, u.remote, u.rkey,
                                                             &u.comps.back().base);
            if (status != UCS_INPROGRESS) {
                EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
                u.comps.pop_back();
            }
        }
        ASSERT_TRUE(run_until({u.w.get()}, [&u]() { return u.have_ended(); }));
        for (const completion &c : u.comps) {
            EXPECT_NE(UCS_OK, c.base.status);
        }
        u.comps.clear();
        EXPECT_EQ(0u, u.launches());
        u.get_many(20, 100);
        u.finish_all();
        EXPECT_EQ(1u, u.launches());
        EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
    });
}

/* A device full of other kernels, which may wait for these very bytes: ours is recalled, whether
 * none of it has started or some, copy engines make the copies, and what starts later touches
 * nothing. After a while kernels are used again. */
TEST_F(fake_cuda_kernel, a_device_without_room)
{
    for (int room : {0, 1, 10, 28}) {
        with_user("error", [room](kernel_user &u) {
            u.cuda.set("room", room);
            u.get_many(30, 3000);
            for (unsigned i = 0; i < 1000; ++i) {
                u.w->progress();
            }
            EXPECT_FALSE(u.have_ended()) << "time has not passed";
            g_now += 10000000;
            u.finish_all();
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << room;
            EXPECT_EQ(1u, u.launches());

            g_now += 2000000000;
            u.get_many(30, 2000); /* amid a kernel that is still out */
            u.finish_all();
            EXPECT_EQ(1u, u.launches());

            u.start_late();

            u.get_many(30, 100);
            u.finish_all();
            EXPECT_EQ(2u, u.launches());
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << room;
        });
    }
}

/* Kernels that have ended are not used again before a while has passed, either. */
TEST_F(fake_cuda_kernel, a_pause_after_a_recall)
{
    with_user("error", [](kernel_user &u) {
        u.cuda.set("room", 0);
        u.get_many(30, 100);
        u.hand_over();
        g_now += 10000000;
        u.finish_all();
        u.cuda.set("room", -1);
        for (unsigned i = 0; i < 3; ++i) {
            u.get_many(30, 100);
            u.finish_all();
            EXPECT_EQ(1u, u.launches()) << "not so soon";
        }
        g_now += 10000000;
        u.get_many(30, 100);
        u.finish_all();
        EXPECT_EQ(2u, u.launches());
    });
}

/* Blocks that have started before the recall copy until they end: nothing is told before that. */
TEST_F(fake_cuda_kernel, blocks_that_take_long)
{
    for (int room : {1, 10, -1}) {
        with_user("error", [room](kernel_user &u) {
            u.cuda.set("room", room);
            u.cuda.set("linger", 1);
            u.get_many(30, 3000);
            for (unsigned i = 0; i < 100; ++i) {
                u.w->progress();
                u.cuda.set("step", 0);
                g_now += (i == 10) ? 10000000 : 0;
            }
            EXPECT_EQ(1u, u.launches());
            EXPECT_FALSE(std::any_of(u.comps.begin() + 1, u.comps.end(),
                                     [](const completion &c) { return c.calls != 0; }));
            u.cuda.set("linger", 0);
            u.finish_all();
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << room;
        });
    }
}

/* A kernel may start, and be over without having copied, at any moment of a recall. */
TEST_F(fake_cuda_kernel, one_that_starts_amid_its_recall)
{
    for (unsigned moment = 0; moment < 12; ++moment) {
        with_user("error", [moment](kernel_user &u) {
            u.cuda.set("room", 0);
            u.get_many(30, 3000);
            u.hand_over();
            EXPECT_EQ(1u, u.launches());
            g_now += 10000000;
            for (unsigned i = 0; i < moment; ++i) {
                u.w->progress();
            }
            u.cuda.set("room", -1);
            for (unsigned i = 0; i < 5; ++i) {
                u.cuda.set("step", 0);
            }
            u.finish_all();
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << moment;
        });
    }
}

/* What kernels do not make waits for them, and they for it. */
TEST_F(fake_cuda_kernel, nothing_overtakes_kernels)
{
    with_user("error", [](kernel_user &u) {
        u.get_many(40, 100);
        u.finish_all();
        const uint64_t before = u.launches();
        u.cuda.set("linger", 1);
        u.get_many(20, 100);
        u.w->progress();
        EXPECT_EQ(before + 1, u.launches());
        const uint64_t batches = u.cuda.calls("cuMemcpyBatchAsync");
        for (unsigned i = 0; i < 20; ++i) { /* odd, and not short */
            u.post(false, 100000 + i * 6000, 100001 + i * 6000, 5000, u.here, u.there);
        }
        for (unsigned i = 0; i < 100; ++i) {
            u.w->progress();
        }
        EXPECT_EQ(batches, u.cuda.calls("cuMemcpyBatchAsync"));
        u.cuda.set("linger", 0);
        u.cuda.set("stuck", 1);
        for (unsigned i = 0; i < 100; ++i) {
            u.cuda.set("stuck", i < 5 ? 0 : 1); /* the kernel ends, the copies behind it do not */
            u.cuda.set("step", 0);
            u.w->progress();
        }
        EXPECT_EQ(batches + 1, u.cuda.calls("cuMemcpyBatchAsync"));
        u.get_many(40, 100);
        for (unsigned i = 0; i < 100; ++i) {
            u.w->progress();
        }
        EXPECT_EQ(before + 1, u.launches());
        u.cuda.set("stuck", 0);
        u.finish_all();
        EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
    });
}

/* Two kernels are out, then copies that engines make. */
TEST_F(fake_cuda_kernel, two_are_recalled)
{
    for (int room : {0, 7}) {
        with_user("error", [room](kernel_user &u) {
            u.cuda.set("room", room);
            u.get_many(300, 1000);
            for (unsigned i = 0; i < 100; ++i) {
                u.w->progress();
            }
            EXPECT_EQ(2u, u.launches());
            u.post(false, SIZE - 300000, SIZE - 300000, 300000, u.here, u.there);
            g_now += 10000000;
            u.finish_all();
            EXPECT_EQ(2u, u.launches());
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
            u.start_late();
        });
    }
}

/* A worker is closed before a kernel that was recalled has started: what the kernel will look at
 * stays. */
TEST_F(fake_cuda_kernel, a_recalled_one_outlives_its_worker)
{
    with_user("error", [](kernel_user &u) {
        u.cuda.set("room", 0);
        u.get_many(30, 1000);
        u.hand_over();
        g_now += 10000000;
        u.finish_all();
        u.forget();
        u.w.reset();
        EXPECT_EQ(0u, u.cuda.calls("cuModuleUnload"));
        EXPECT_EQ(0u, u.cuda.misuses());
        u.here = pattern(78, SIZE);
        u.cuda.write(u.local.address, u.here);
        u.cuda.set("room", -1);
        EXPECT_EQ(0, u.cuda.call("cuCtxSynchronize"));
        EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE));
    });
}

/* The driver refuses something of it: copy engines do all. */
TEST_F(fake_cuda_kernel, the_driver_refuses)
{
    for (const char *name : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuModuleGetGlobal",
                             "cuStreamCreate", "cuMemHostGetDevicePointer", "cuMemHostRegister",
                             "cuLaunchKernel"}) {
        with_user("error", [name](kernel_user &u) {
            u.cuda.fail(name, 1, 700);
            u.get_many(30, 1000);
            u.finish_all();
            u.get_many(30, 2000);
            u.finish_all();
            EXPECT_EQ((strcmp(name, "cuLaunchKernel") == 0) ? 1u : 0u, u.launches()) << name;
            EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << name;
            u.forget();
            u.w.reset();
            EXPECT_EQ(u.cuda.calls("cuMemHostUnregister"),
                      u.cuda.calls("cuMemHostRegister") -
                          ((strcmp(name, "cuMemHostRegister") == 0) ? 1 : 0)) << name;
        });
    }
}

/* A call fails once amid a recall. */
TEST_F(fake_cuda_kernel, a_recall_that_fails_is_tried_again)
{
    for (const char *name : {"cuMemcpyAsync", "cuStreamQuery", "cuCtxPushCurrent"}) {
        for (unsigned k = 1; k < 5; ++k) {
            with_user("error", [name, k](kernel_user &u) {
                u.cuda.set("room", 5);
                u.get_many(30, 1000);
                u.hand_over();
                EXPECT_EQ(1u, u.launches());
                g_now += 10000000;
                u.cuda.fail(name, k, 999);
                u.finish_all();
                EXPECT_EQ(u.here, u.cuda.read(u.local.address, SIZE)) << name << k;
                u.cuda.fail(nullptr, 0, 0);
                u.start_late();
            });
        }
    }
}

/* The context goes amid a kernel. */
TEST_F(fake_cuda_kernel, a_context_goes)
{
    in_process([]() {
        log_levels quiet("fatal");
        stop_clock();
        kernel_user u;

        const uct_cu_ctx_t own = u.cuda.create_context();
        u.init();
        u.cuda.set("room", 0);
        u.get_many(30, 1000);
        u.hand_over();
        EXPECT_EQ(1u, u.launches());
        u.cuda.destroy_context(own);
        g_now += 10000000; /* before that a kernel is not asked about */
        ASSERT_TRUE(run_until({u.w.get()}, [&u]() { return u.have_ended(); }));
        u.comps.clear();
        u.cuda.set("room", -1);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

} // namespace
