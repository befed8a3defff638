/* Halyard: many puts and gets at a time between memory of a device in one process and memory of the
 * host in another.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "host_buffer.h"
#include "shared_memory.h"
#include <deque>
#include <ucs/debug/fault.h>

using mp::gpu;
using mp::gpu_buffer;
using mp::host_buffer;
using mp::node;
using mp::processes;
using mp::self;
using mp::shared_memory;

namespace {

constexpr unsigned NUM_SHARED = 4; /* memories of put_and_get */
constexpr unsigned TARGET = 0, ORIGIN = 1; /* processes: whose memory it is; who puts and gets */

constexpr const char *NO_SINGLE_COPIES = "mm,cuda_copy,cuda_ipc";

struct way {
    bool        is_to_device; /* the target's memory is a device's, else the origin's */
    const char *error;        /* of single copies of the origin; NULL: none */
    const char *tls;          /* NULL: all */
    bool        is_plain;     /* the origin does not use the driver: the target copies */
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

/* How often this process has called the driver; only that of the tests counts it. */
uint64_t calls(const char *name)
{
    return mp::is_gpu_real() ? 0 : gpu::function<uint64_t(const char *)>("fakecuda_calls")(name);
}

/* Calls by which it has handed several copies to a device at once. */
uint64_t batches()
{
    return calls("cuMemcpyBatchAsync");
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
            const uint64_t before = is_batched ? batches() : 0;
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

/* Pieces of a message go to and off the target's device together. */
void run_plain(self &me)
{
    if (me.index() == ORIGIN) {
        node n(me);
        n.connect_all();
        host_buffer none(1), host(total());
        run(me, n, none, host, "", false);
        return;
    }
    gpu g(0);
    ASSERT_TRUE(g.is_open()) << g.problem();
    node n(me);
    n.connect_all();
    gpu_buffer device(g, PERF_MEMORY_CUDA, total());
    host_buffer none(1);
    const uint64_t before = calls("cuMemcpyAsync") + batches();
    run(me, n, device, none, "", false);
    EXPECT_LT(calls("cuMemcpyAsync") + batches() - before, 4 * parts().size() + 100);
}

/* Of a process without the driver: into and out of memory that nobody else uses. */
void put_and_get(self &me)
{
    node n(me);
    n.connect_all();
    host_buffer put(total()), got(total()), none(1);
    std::deque<shared_memory> keys;
    std::vector<ucp_rkey_h> rkeys;
    std::vector<ucs_status_ptr_t> requests;
    put.put(total(), me.index());
    for (unsigned i = 0; i < NUM_SHARED; ++i) {
        keys.emplace_back(n, me.index(), none, total());
        rkeys.push_back(keys.back().key(n.ep(TARGET)));
    }
    n.barrier();
    for (bool is_put : {true, false}) {
        const unsigned i = 2 * (me.index() - 1) + (is_put ? 0 : 1);
        const auto some  = start_all(n, is_put, (is_put ? put : got).memory(),
                                     keys[i].address(), rkeys[i]);
        requests.insert(requests.end(), some.begin(), some.end());
    }
    for (ucs_status_ptr_t request : requests) {
        EXPECT_EQ(UCS_OK, n.wait(request));
    }
    flush(n);
    got.expect(total(), 10 + me.index());
    n.barrier();
    for (ucp_rkey_h rkey : rkeys) {
        ucp_rkey_destroy(rkey);
    }
    n.barrier();
}

/* In each process. */
void run(self &me, const way &w, const std::string &fault)
{
    if (w.tls != nullptr) {
        setenv("UCX_TLS", w.tls, 1);
    }
    if (w.is_plain) {
        run_plain(me);
        return;
    }
    gpu g(0);
    ASSERT_TRUE(g.is_open()) << g.problem();
    node n(me);
    n.connect_all();
    const bool is_device = (me.index() == (w.is_to_device ? TARGET : ORIGIN));
    gpu_buffer device(g, PERF_MEMORY_CUDA, is_device ? total() : 1);
    host_buffer host(is_device ? 1 : total());
    const bool is_batched = fault.empty() && (w.is_to_device || (w.tls == nullptr));
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

INSTANTIATE_TEST_SUITE_P(
    all, mp_cuda_rma,
    testing::Values(way{false, nullptr, nullptr, false, "off_a_device"},
                    way{false, "1", nullptr, false, "off_a_device_EPERM"},
                    way{false, "14", nullptr, false, "off_a_device_EFAULT"},
                    way{false, nullptr, NO_SINGLE_COPIES, false, "off_a_device_by_messages"},
                    way{true, nullptr, nullptr, false, "to_a_device"},
                    way{true, nullptr, NO_SINGLE_COPIES, false, "to_a_device_by_messages"},
                    way{true, nullptr, "delay:mm,delay:cuda_ipc,cuda_copy", false, "delayed"},
                    way{true, nullptr, nullptr, true, "without_a_driver"}),
    [](const testing::TestParamInfo<way> &info) { return info.param.name; });

/* Two processes without the driver put and get at the same time: the target copies for both. */
TEST(mp_cuda_rma_peers, put_and_get_at_a_time)
{
    constexpr unsigned NUM = 3;
    processes three(NUM);

    NEED_GPU();
    three.start(TARGET, [&](self &me) {
        gpu g(0);
        ASSERT_TRUE(g.is_open()) << g.problem();
        node n(me);
        n.connect_all();
        gpu_buffer put_1(g, PERF_MEMORY_CUDA, total()), got_1(g, PERF_MEMORY_CUDA, total());
        gpu_buffer put_2(g, PERF_MEMORY_CUDA, total()), got_2(g, PERF_MEMORY_CUDA, total());
        shared_memory keys[] = {{n, TARGET, put_1, total()}, {n, TARGET, got_1, total()},
                                {n, TARGET, put_2, total()}, {n, TARGET, got_2, total()}};
        put_1.put(total(), 0);
        put_2.put(total(), 0);
        got_1.put(total(), 11);
        got_2.put(total(), 12);
        n.barrier();
        n.barrier();
        put_1.expect(total(), 1);
        put_2.expect(total(), 2);
        got_1.expect(total(), 11);
        got_2.expect(total(), 12);
        n.barrier();
    });
    for (unsigned i = 1; i < NUM; ++i) {
        three.start(i, put_and_get);
    }
    EXPECT_TRUE(three.join());
    EXPECT_EQ(std::string::npos, three.log().find("ERROR")) << three.log();
}

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
