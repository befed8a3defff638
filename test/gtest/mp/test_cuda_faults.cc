/* Halyard: messages of device memory between two processes, one of which has a driver that refuses
 * its k-th call: every operation ends once, with the right bytes or with an error, and the next
 * message goes through.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "gpu.h"
#include "seed.h"

using mp::gpu;
using mp::gpu_buffer;
using mp::node;
using mp::processes;
using mp::self;

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

/* The k-th call of the driver from now on fails; 0: none does. */
void refuse(uint64_t k)
{
    auto fail = gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail");

    ASSERT_NE(nullptr, fail);
    fail(nullptr, k, RESULT, 0);
}

class mp_cuda_faults : public testing::TestWithParam<way> {
};

} // namespace

TEST_P(mp_cuda_faults, end_what_they_hit)
{
    const way w = GetParam();
    processes all(2);

    NEED_GPU();
    if (mp::is_gpu_real()) {
        GTEST_SKIP() << "this needs the driver of the tests";
    }
    all.start_all([&](self &me) {
        gpu g(me.index());
        ASSERT_TRUE(g.is_open()) << g.problem();
        node n(me);
        n.connect_all();
        gpu_buffer buffer(g, w.kinds[me.index()], w.length);
        ASSERT_TRUE(buffer.is_made()) << g.problem();
        uint8_t *place = buffer.place(w.length);

        for (uint64_t k = 0; k <= CALLS; ++k) {
            SCOPED_TRACE(k);
            buffer.put(w.length, (me.index() == 0) ? k + 1 : 0);
            n.barrier();
            if (me.index() == w.victim) {
                refuse(k);
            }
            me.waits_for("a transfer whose call %lu fails", static_cast<unsigned long>(k));
            const ucs_status_t status =
                n.wait((me.index() == 0) ? n.send(n.ep(1), place, w.length, TAG) :
                                           n.recv(place, w.length, TAG));
            if (me.index() == w.victim) {
                refuse(0);
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
