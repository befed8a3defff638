/* Halyard: many puts and gets at a time between memory of a device in one process and memory of the
 * host in another.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "host_buffer.h"
#include "shared_memory.h"
#include <ucs/debug/fault.h>

using mp::gpu;
using mp::gpu_buffer;
using mp::host_buffer;
using mp::node;
using mp::processes;
using mp::self;
using mp::shared_memory;

namespace {

constexpr unsigned TARGET = 0, ORIGIN = 1; /* processes: whose memory it is; who puts and gets */

struct way {
    bool        is_to_device; /* the target's memory is a device's, else the origin's */
    const char *error;        /* of single copies of the origin; NULL: none */
    bool        is_mute;      /* no single copies at all: everything is messages */
    const char *name;
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.name;
}

/* Lengths of the operations: shorter and longer than a chunk, many and few. */
const std::vector<size_t> &parts()
{
    static const std::vector<size_t> lengths = []() {
        std::vector<size_t> all = {1, 3000001, 70001, 256u << 10, (512u << 10) - 1};
        for (size_t i = 0; i < 100; ++i) {
            all.push_back((i % 4 == 0) ? 16384 : 1 + (i * 331 % 9000));
        }
        all.push_back((256u << 10) + 1);
        return all;
    }();
    return lengths;
}

size_t total()
{
    size_t sum = 0;

    for (size_t length : parts()) {
        sum += length;
    }
    return sum;
}

/* Starts one operation for each part; returns their requests. */
std::vector<ucs_status_ptr_t> start_all(node &n, bool is_put, uint8_t *place, uint64_t address,
                                        ucp_rkey_h rkey)
{
    std::vector<ucs_status_ptr_t> requests;
    ucp_request_param_t param = {};

    for (size_t length : parts()) {
        requests.push_back(is_put ?
                           ucp_put_nbx(n.ep(TARGET), place, length, address, rkey, &param) :
                           ucp_get_nbx(n.ep(TARGET), place, length, address, rkey, &param));
        place   += length;
        address += length;
    }
    return requests;
}

void flush(node &n)
{
    ucp_request_param_t param = {};

    EXPECT_EQ(UCS_OK, n.wait(ucp_ep_flush_nbx(n.ep(TARGET), &param)));
}

/* Calls by which this process has handed several copies to a device at once; only the driver of the
 * tests counts them. */
uint64_t batches()
{
    return mp::is_gpu_real() ? 0 :
           gpu::function<uint64_t(const char *)>("fakecuda_calls")("cuMemcpyBatchAsync");
}

/* Both processes: puts that the target checks, gets of what it has then. The key is destroyed while
 * they are under way. fault: of which of the origin's single copies. is_batched: several are with
 * the device at a time. */
template <typename target_t, typename origin_t>
void run(self &me, node &n, target_t &target, origin_t &origin, const std::string &fault,
         bool is_batched)
{
    shared_memory memory(n, me.index(), target, total());

    if ((me.index() == ORIGIN) && !fault.empty()) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("process_vm_*", fault.c_str()));
    }
    for (uint64_t id = 1; id <= 4; ++id) {
        const bool is_put = (id % 2) != 0;
        me.waits_for("round %lu", static_cast<unsigned long>(id));
        if (me.index() == TARGET) {
            target.put(total(), is_put ? 0 : id);
        } else {
            origin.put(total(), is_put ? id : 0);
        }
        n.barrier();
        if (me.index() == ORIGIN) {
            ucp_rkey_h rkey       = memory.key(n.ep(TARGET));
            const uint64_t before = batches();
            auto requests = start_all(n, is_put, origin.place(total()), memory.address(), rkey);
            ucp_rkey_destroy(rkey);
            for (ucs_status_ptr_t request : requests) {
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
            flush(n);
            EXPECT_TRUE(mp::is_gpu_real() || !is_batched || (batches() > before));
        }
        n.barrier();
        if (me.index() == TARGET) {
            target.expect(total(), id);
        } else {
            origin.expect(total(), id);
        }
        n.barrier();
    }
}

/* In each process. */
void run(self &me, const way &w, const std::string &fault)
{
    if (w.is_mute) {
        setenv("UCX_TLS", "mm,cuda_copy,cuda_ipc", 1);
    }
    gpu g(0);
    ASSERT_TRUE(g.is_open()) << g.problem();
    node n(me);
    n.connect_all();
    const bool is_device = (me.index() == (w.is_to_device ? TARGET : ORIGIN));
    gpu_buffer device(g, PERF_MEMORY_CUDA, is_device ? total() : 1);
    host_buffer host(is_device ? 1 : total());
    const bool is_batched = fault.empty() && (w.is_to_device || !w.is_mute);
    if (w.is_to_device) {
        run(me, n, device, host, fault, is_batched);
    } else {
        run(me, n, host, device, fault, is_batched);
    }
}

class mp_cuda_rma : public testing::TestWithParam<way> {
};

} // namespace

TEST_P(mp_cuda_rma, many_at_once)
{
    const way w = GetParam();
    processes both(2);

    NEED_GPU();
    both.start_all([&](self &me) {
        run(me, w, (w.error == nullptr) ? "" : std::string("5+:") + w.error);
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(std::string::npos, both.log().find("ERROR")) << both.log();
}

/* The k-th single copy is refused, or it and all that follow. */
TEST_P(mp_cuda_rma, refused_at_a_copy)
{
    const way w = GetParam();

    NEED_GPU();
    if (w.error == nullptr) {
        GTEST_SKIP() << "nothing is refused";
    }
    mp::refuse_single_copies({1, 2, 4, 11, 30, 115}, w.error,
                             [&](self &me, const std::string &fault) { run(me, w, fault); });
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_rma,
                         testing::Values(way{false, nullptr, false, "off_a_device"},
                                         way{false, "1", false, "off_a_device_EPERM"},
                                         way{false, "14", false, "off_a_device_EFAULT"},
                                         way{false, nullptr, true, "off_a_device_by_messages"},
                                         way{true, nullptr, false, "to_a_device"},
                                         way{true, nullptr, true, "to_a_device_by_messages"}),
                         [](const testing::TestParamInfo<way> &info) { return info.param.name; });

/* Calls of the driver fail amid many operations: each ends once, and well only if its bytes are
 * there. */
TEST(mp_cuda_rma_faults, of_the_driver)
{
    constexpr int UNKNOWN = 999;

    NEED_FAKE_GPU();
    for (const char *call : {"cuMemcpyAsync", "cuMemcpyBatchAsync", "cuEventQuery",
                             "cuMemHostRegister", "cuStreamQuery"}) {
        for (uint64_t k : {1, 2, 5, 20}) {
            SCOPED_TRACE(std::string(call) + " " + std::to_string(k));
            processes both(2);
            both.start_all([&](self &me) {
                setenv("UCX_LOG_LEVEL", "fatal", 1);
                gpu g(0);
                node n(me);
                n.connect_all();
                gpu_buffer device(g, PERF_MEMORY_CUDA, (me.index() == ORIGIN) ? total() : 1);
                host_buffer host((me.index() == TARGET) ? total() : 1);
                shared_memory memory(n, me.index(), host, total());
                host.put(host.size(), 9);
                n.barrier();
                if (me.index() == TARGET) {
                    n.barrier();
                    n.barrier();
                    host.expect(total(), 10);
                    n.barrier();
                    return;
                }
                device.put(total(), 8);
                ucp_rkey_h rkey = memory.key(n.ep(TARGET));
                uint8_t *place  = device.place(total());
                gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail")(call, k,
                                                                                       UNKNOWN, 0);
                auto requests = start_all(n, false, place, memory.address(), rkey);
                bool all_well = true;
                for (ucs_status_ptr_t request : requests) {
                    all_well &= (n.wait(request) == UCS_OK);
                }
                gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail")(call, 0,
                                                                                       0, 0);
                gpu::function<int()>("cuCtxSynchronize")(); /* what it was said to have failed */
                if (all_well) {
                    device.expect(total(), 9);
                }
                n.barrier();
                device.put(total(), 10); /* and then all goes well */
                for (ucs_status_ptr_t request :
                     start_all(n, true, place, memory.address(), rkey)) {
                    EXPECT_EQ(UCS_OK, n.wait(request));
                }
                flush(n);
                ucp_rkey_destroy(rkey);
                n.barrier();
                n.barrier();
            });
            EXPECT_TRUE(both.join());
            if (HasFailure()) {
                return;
            }
        }
    }
}

/* The owner of the memory is killed amid puts and gets: all end. */
TEST(mp_cuda_rma_kill, amid_many)
{
    processes both(2);

    NEED_GPU();
    both.start(ORIGIN, [&](self &me) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        node n(me);
        n.connect_all();
        gpu_buffer device(g, PERF_MEMORY_CUDA, total());
        host_buffer none(1);
        shared_memory memory(n, me.index(), none, 1);
        ucp_rkey_h rkey = memory.key(n.ep(TARGET));
        size_t failures = 0;
        device.put(total(), 1);
        me.own().words[0] = 1;
        for (unsigned round = 0; failures == 0; ++round) {
            me.waits_for("round %u to fail", round);
            for (ucs_status_ptr_t request : start_all(n, (round % 2) == 0, device.place(total()),
                                                      memory.address(), rkey)) {
                failures += (n.wait(request) != UCS_OK);
            }
        }
        EXPECT_NE(0u, me.at(TARGET).words[0].load()) << "the other side is alive";
        ucp_rkey_destroy(rkey);
        n.close(n.ep(TARGET), UCP_EP_CLOSE_FLAG_FORCE);
    });
    both.start(TARGET, [&](self &me) {
        node n(me);
        n.connect_all();
        host_buffer host(total());
        shared_memory memory(n, me.index(), host, total());
        me.waits_for("its death");
        n.until([]() { return false; }, 1000);
    });
    if (both.until([&]() { return both.at(ORIGIN).words[0] != 0; }, "the first operations")) {
        usleep(20000);
        both.at(TARGET).words[0] = 1;
        both.kill_now(TARGET);
    }
    EXPECT_TRUE(both.join());
}
