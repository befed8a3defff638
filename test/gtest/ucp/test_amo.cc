/* Halyard: tests of atomics: every operation against a model over every way to the memory, and sums
 * that are exact however many change a word and by whichever way.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <seed.h>
#include <ucp/remote.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace ucp_test;

namespace {

class amo : public way_test {
};

constexpr ucp_atomic_op_t OPS[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP,
                                   UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR,   UCP_ATOMIC_OP_XOR};

uint64_t model(ucp_atomic_op_t op, uint64_t old, uint64_t operand, uint64_t swap)
{
    switch (op) {
    case UCP_ATOMIC_OP_ADD:
        return old + operand;
    case UCP_ATOMIC_OP_SWAP:
        return operand;
    case UCP_ATOMIC_OP_CSWAP:
        return (old == operand) ? swap : old;
    case UCP_ATOMIC_OP_AND:
        return old & operand;
    case UCP_ATOMIC_OP_OR:
        return old | operand;
    default:
        return old ^ operand;
    }
}

template <typename T>
void check_operations(remote &remote, uint64_t seed)
{
    seeded_random random(seed);
    const size_t size = sizeof(T);

    for (int i = 0; i < 300; ++i) {
        const ucp_atomic_op_t op = OPS[random.below(std::size(OPS))];
        const bool fetch         = (op == UCP_ATOMIC_OP_SWAP) || (op == UCP_ATOMIC_OP_CSWAP) ||
                           random.one_in(2);
        const size_t offset = size * random.below(1000);
        T words[3]          = {T(random.bits()), T(random.bits()), T(random.bits())};
        const T old         = T(random.bits());
        const bool is_equal = (op == UCP_ATOMIC_OP_CSWAP) && random.one_in(2);
        const T operand     = is_equal ? old : T(random.bits());
        const T swap        = T(random.bits());
        T reply[3]          = {7, swap, 7}; /* neighbours must stay */
        T *target           = reinterpret_cast<T *>(remote.data() + offset) + 1;
        words[1]            = old;
        memcpy(target - 1, words, sizeof(words));

        ucs_status_ptr_t ptr =
            remote.atomic(op, &operand, size, offset + size, fetch ? &reply[1] : nullptr);
        ASSERT_EQ(UCS_OK, remote.world().wait(ptr));
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_EQ(T(model(op, old, operand, swap)), *target) << op;
        ASSERT_EQ(words[0], target[-1]);
        ASSERT_EQ(words[2], target[1]);
        ASSERT_EQ(fetch ? old : swap, reply[1]);
        ASSERT_EQ(7u, reply[0]);
        ASSERT_EQ(7u, reply[2]);
    }
}

TEST_P(amo, operations_of_64_bits)
{
    remote remote(GetParam(), 1 << 16);
    check_operations<uint64_t>(remote, 2201);
}

TEST_P(amo, operations_of_32_bits)
{
    remote remote(GetParam(), 1 << 16);
    check_operations<uint32_t>(remote, 2202);
}

TEST_P(amo, what_is_refused)
{
    remote remote(GetParam(), 4096);
    ucp_request_param_t param = {};
    uint64_t operand = 1, reply = 2;
    ucp_ep_h ep = remote.world().ep();
    memset(remote.data(), 0, 4096);

    for (const size_t size : {0, 1, 2, 3, 5, 7, 16}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  UCS_PTR_STATUS(remote.atomic(UCP_ATOMIC_OP_ADD, &operand, size, 0, nullptr)));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, 1, size,
                                                         remote.address(), remote.rkey()));
    }
    /* no datatype, more than one element, no such operation, no place for the result */
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              UCS_PTR_STATUS(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &operand, 8,
                                               remote.address(), remote.rkey(), &param)));
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype     = ucp_dt_make_contig(4);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              UCS_PTR_STATUS(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &operand, 2,
                                               remote.address(), remote.rkey(), &param)));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              UCS_PTR_STATUS(remote.atomic(UCP_ATOMIC_OP_LAST, &operand, 8, 0, &reply)));
    for (const ucp_atomic_op_t op : {UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  UCS_PTR_STATUS(remote.atomic(op, &operand, 8, 0, nullptr)));
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_LAST, 1, 8, remote.address(), remote.rkey()));
    /* not aligned, not inside */
    for (const size_t offset : {1, 2, 4, 7}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  UCS_PTR_STATUS(remote.atomic(UCP_ATOMIC_OP_ADD, &operand, 8, offset, nullptr)));
    }
    for (const size_t offset : {size_t(4096), size_t(0) - 8, size_t(1) << 40}) {
        EXPECT_EQ(UCS_ERR_OUT_OF_RANGE,
                  UCS_PTR_STATUS(remote.atomic(UCP_ATOMIC_OP_ADD, &operand, 8, offset, nullptr)));
    }
    EXPECT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(bytes(4096), bytes(remote.data(), remote.data() + 4096));
    EXPECT_EQ(2u, reply);
}

/* The operand is taken inside the call; post returns exactly UCS_OK; a flush ends it. */
TEST_P(amo, operand_on_the_stack)
{
    remote remote(GetParam(), 4096);
    memset(remote.data(), 0, 4096);
    const auto post = [&](uint64_t operand) {
        ucs_status_ptr_t ptr = remote.atomic(UCP_ATOMIC_OP_ADD, &operand, 8, 8, nullptr);
        if (UCS_PTR_IS_PTR(ptr)) {
            ucp_request_free(ptr);
        }
        operand = ~0ull;
        return UCS_PTR_IS_ERR(ptr) ? UCS_PTR_STATUS(ptr) : UCS_OK;
    };

    for (uint64_t i = 1; i <= 200; ++i) {
        ASSERT_EQ(UCS_OK, post(i));
        ASSERT_EQ(UCS_OK, ucp_atomic_post(remote.world().ep(), UCP_ATOMIC_POST_OP_ADD, i, 4,
                                          remote.address(100), remote.rkey()));
    }
    ASSERT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(20100u, *reinterpret_cast<uint64_t *>(remote.data() + 8));
    EXPECT_EQ(20100u, *reinterpret_cast<uint32_t *>(remote.data() + 100));
    EXPECT_EQ(0u, ucp_test_num_ids(remote.world().sender().handle()));
}

/* The blocking forms progress the sender only: the target has a thread where it is another. */
TEST_P(amo, earlier_forms)
{
    remote remote(GetParam(), 4096);
    ucp_ep_h ep     = remote.world().ep();
    ucp_rkey_h rkey = remote.rkey();
    std::atomic<bool> stop{false};
    std::thread target([&]() {
        while (!GetParam().world.is_self && !stop) {
            remote.world().receiver().progress();
        }
    });
    uint64_t result64 = 0;
    uint32_t result32 = 0;
    const uint64_t zero = 0;
    memset(remote.data(), 0, 4096);

    EXPECT_EQ(UCS_OK, ucp_put(ep, &zero, 8, remote.address(), rkey));
    EXPECT_EQ(UCS_OK, ucp_atomic_add64(ep, 5, remote.address(), rkey));
    EXPECT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
    EXPECT_EQ(UCS_OK, ucp_atomic_fadd64(ep, 1ull << 40, remote.address(), rkey, &result64));
    EXPECT_EQ(5u, result64);
    EXPECT_EQ(UCS_OK, ucp_atomic_swap64(ep, 77, remote.address(), rkey, &result64));
    EXPECT_EQ((1ull << 40) + 5, result64);
    EXPECT_EQ(UCS_OK, ucp_atomic_cswap64(ep, 78, 99, remote.address(), rkey, &result64));
    EXPECT_EQ(77u, result64);
    EXPECT_EQ(UCS_OK, ucp_atomic_cswap64(ep, 77, 99, remote.address(), rkey, &result64));
    EXPECT_EQ(77u, result64);
    EXPECT_EQ(UCS_OK, ucp_get(ep, &result64, 8, remote.address(), rkey));
    EXPECT_EQ(99u, result64);

    EXPECT_EQ(UCS_OK, ucp_atomic_add32(ep, 6, remote.address(12), rkey));
    EXPECT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
    EXPECT_EQ(UCS_OK, ucp_atomic_fadd32(ep, 1u << 30, remote.address(12), rkey, &result32));
    EXPECT_EQ(6u, result32);
    EXPECT_EQ(UCS_OK, ucp_atomic_swap32(ep, 71, remote.address(12), rkey, &result32));
    EXPECT_EQ((1u << 30) + 6, result32);
    EXPECT_EQ(UCS_OK, ucp_atomic_cswap32(ep, 71, 90, remote.address(12), rkey, &result32));
    EXPECT_EQ(71u, result32);

    const struct {
        ucp_atomic_fetch_op_t op;
        uint64_t value, before, after;
    } rows[] = {{UCP_ATOMIC_FETCH_OP_FADD, 3, 99, 102},
                {UCP_ATOMIC_FETCH_OP_SWAP, 0xff, 102, 0xff},
                {UCP_ATOMIC_FETCH_OP_CSWAP, 0xff, 0xff, 0xf0},
                {UCP_ATOMIC_FETCH_OP_FAND, 0x3c, 0xf0, 0x30},
                {UCP_ATOMIC_FETCH_OP_FOR, 0x0f, 0x30, 0x3f},
                {UCP_ATOMIC_FETCH_OP_FXOR, 0x33, 0x3f, 0x0c}};
    for (const auto &row : rows) {
        const auto no_op = [](void *, ucs_status_t) {};
        uint64_t result  = 0xf0; /* the new value of CSWAP */
        void *request    = ucp_atomic_fetch_nb(ep, row.op, row.value, &result, 8, remote.address(),
                                               rkey, no_op);
        ASSERT_FALSE(UCS_PTR_IS_ERR(request));
        while (UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request)) {
            remote.world().sender().progress();
        }
        if (request != nullptr) {
            ucp_request_free(request);
        }
        EXPECT_EQ(row.before, result) << row.op;
        EXPECT_EQ(UCS_OK, ucp_get(ep, &result, 8, remote.address(), rkey));
        EXPECT_EQ(row.after, result) << row.op;
    }
    stop = true;
    target.join();
}

INSTANTIATE_TEST_SUITE_P(all, amo, testing::ValuesIn(all_ways()), way_name);

/* Threads with a worker each, some by messages because their environment leaves no other way, and
 * the owner itself, all change two words. */
TEST(amo_threads, sums_are_exact)
{
    constexpr uint64_t ROUNDS = 3000;
    log_catcher log;
    environment environment(settings{{"UCX_TLS", "mm"}});
    const context_options options = {RMA_FEATURES, 0, nullptr, nullptr};
    context context(options);
    worker owner(context, UCS_THREAD_MODE_MULTI);
    mapping mapped(context, 4096);
    alignas(8) uint8_t heap[64] = {};
    mapping unmapped(context, sizeof(heap), heap);
    mapping again(context, 4096, mapped.data()); /* the mapped word by messages too */
    std::atomic<unsigned> running{3};
    std::vector<std::thread> threads;
    memset(mapped.data(), 0, 4096);

    for (unsigned i = 0; i < 3; ++i) {
        threads.emplace_back([&, i]() {
            worker mine(context);
            ucp_ep_h ep = mine.connect(owner);
            {
                const key by_loads(ep, mapped.packed()), by_messages(ep, unmapped.packed()),
                    both(ep, again.packed());
                for (uint64_t n = 0; n < ROUNDS; ++n) {
                    ASSERT_EQ(UCS_OK, ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, i + 1, 8,
                                                      unmapped.address(8), by_messages.get()));
                    ASSERT_EQ(UCS_OK,
                              ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, i + 1, 8,
                                              mapped.address(64),
                                              ((n % 2) == 0) ? by_loads.get() : both.get()));
                    if ((n % 64) == 0) {
                        ASSERT_EQ(UCS_OK, ucp_worker_flush(mine.handle()));
                    }
                }
                ASSERT_EQ(UCS_OK, ucp_worker_flush(mine.handle()));
            }
            --running;
        });
    }
    for (uint64_t n = 0; (running > 0) || (n < ROUNDS); ++n) {
        owner.progress();
        if (n < ROUNDS) {
            __atomic_fetch_add(reinterpret_cast<uint64_t *>(mapped.data() + 64), 10, 5);
            __atomic_fetch_add(reinterpret_cast<uint64_t *>(heap + 8), 10, 5);
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(ROUNDS * (1 + 2 + 3 + 10), *reinterpret_cast<uint64_t *>(mapped.data() + 64));
    EXPECT_EQ(ROUNDS * (1 + 2 + 3 + 10), *reinterpret_cast<uint64_t *>(heap + 8));
}

/* What another thread's progress ends before the call without a request is over tells there, or a
 * flush does. */
TEST(amo_threads, every_error_is_heard)
{
    remote remote({{"messages", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_MULTI}, false, false},
                  4096);
    log_catcher log;
    pair &world            = remote.world();
    const uint64_t address = remote.address();
    std::atomic<bool> is_over{false};
    uint64_t value   = 0;
    unsigned unheard = 0;

    ASSERT_EQ(UCS_OK, remote.flush());
    remote.memory().unmap();
    std::thread progress([&]() {
        while (!is_over) {
            world.progress();
        }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (unsigned i = 0; (i < 60000) && (std::chrono::steady_clock::now() < end); ++i) {
        const ucs_status_t status =
            ((i % 3) == 0) ? ucp_get_nbi(world.ep(), &value, 8, address, remote.rkey()) :
            ((i % 3) == 1) ? ucp_put_nbi(world.ep(), &value, 8, address, remote.rkey()) :
                             ucp_atomic_post(world.ep(), UCP_ATOMIC_POST_OP_ADD, 1, 8, address,
                                             remote.rkey());
        const ucs_status_t flushed = ucp_ep_flush(world.ep());
        unheard += !UCS_STATUS_IS_ERR(status) && !UCS_STATUS_IS_ERR(flushed);
    }
    is_over = true;
    progress.join();
    EXPECT_EQ(0u, unheard);
    log.take();
}

} // namespace
