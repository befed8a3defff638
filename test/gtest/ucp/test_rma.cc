/* Halyard: tests of puts and gets, and of what orders and ends them, over every way to the memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <seed.h>
#include <ucp/remote.h>

#include <algorithm>
#include <cstring>

using namespace ucp_test;

namespace {

class rma : public way_test {
};

const size_t LENGTHS[] = {0,    1,    7,     8,     9,      15,     16,     17,        63,
                          64,   100,  1000,  4096,  5000,   8192,   16384,  16385,     65536,
                          65537, 100000, 524288, 524289, 1048576};

TEST_P(rma, put_and_get_of_all_lengths)
{
    remote remote(GetParam(), 1 << 20);
    bytes buffer(1 << 20);

    for (const size_t length : LENGTHS) {
        const size_t offset = ((1 << 20) - length) / 3;
        memset(remote.data(), 0x11, 1 << 20);
        fill(buffer.data(), length, length);
        ASSERT_EQ(UCS_OK, remote.world().wait(remote.put(buffer.data(), length, offset)));
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_EQ(-1, differs(remote.data() + offset, length, length)) << length;
        ASSERT_EQ(ptrdiff_t(offset), std::count(remote.data(), remote.data() + offset, 0x11));
        ASSERT_EQ(ptrdiff_t((1 << 20) - offset - length),
                  std::count(remote.data() + offset + length, remote.data() + (1 << 20), 0x11));

        guarded back(length);
        ASSERT_EQ(UCS_OK, remote.world().wait(remote.get(back.data(), length, offset)));
        ASSERT_EQ(-1, differs(back.data(), length, length)) << length;
        ASSERT_TRUE(back.is_intact());
    }
}

/* Batches of operations on places of their own, then the memory must be what the model says. */
TEST_P(rma, random_operations)
{
    constexpr size_t PLACE = 40000, PLACES = 24;
    seeded_random random(2101);
    remote remote(GetParam(), PLACE * PLACES);
    bytes model(PLACE * PLACES);
    memset(remote.data(), 0, model.size());

    for (int batch = 0; batch < 30; ++batch) {
        std::vector<bytes> buffers(PLACES);
        std::vector<bytes> expected(PLACES);
        for (size_t place = 0; place < PLACES; ++place) {
            const size_t length = random.below(random.one_in(3) ? PLACE : 300);
            const size_t offset = (place * PLACE) + random.below(PLACE - length + 1);
            ucs_status_ptr_t ptr;
            buffers[place].resize(length);
            if (random.one_in(2)) {
                fill(buffers[place].data(), length, random.bits());
                std::copy(buffers[place].begin(), buffers[place].end(), model.begin() + offset);
                ptr = remote.put(buffers[place].data(), length, offset);
            } else {
                expected[place].assign(model.begin() + offset, model.begin() + offset + length);
                ptr = remote.get(buffers[place].data(), length, offset);
            }
            ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
            if (UCS_PTR_IS_PTR(ptr)) {
                ucp_request_free(ptr); /* the flush counts it all the same */
            }
        }
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_EQ(0, memcmp(model.data(), remote.data(), model.size()));
        for (size_t place = 0; place < PLACES; ++place) {
            ASSERT_TRUE(expected[place].empty() || (expected[place] == buffers[place]));
        }
    }
    EXPECT_EQ(0u, ucp_test_num_ids(remote.world().sender().handle()));
}

/* What is posted after a fence comes after what was before it, whichever ways they take. */
TEST_P(rma, fence_orders)
{
    constexpr size_t LENGTH = 700000;
    remote remote(GetParam(), LENGTH);
    bytes first(LENGTH), second(LENGTH), back(LENGTH);
    const uint64_t one = 1;

    for (uint64_t round = 1; round < 6; ++round) {
        uint64_t old = 0, newer = 0;
        std::vector<ucs_status_ptr_t> requests;
        fill(first.data(), LENGTH, round);
        fill(second.data(), LENGTH, round + 1000);
        memset(remote.data(), 0, LENGTH);
        requests.push_back(remote.put(first.data(), LENGTH, 0));
        ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
        requests.push_back(remote.put(second.data(), 10000, LENGTH - 10000));
        ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
        requests.push_back(remote.get(back.data(), LENGTH, 0));
        ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
        requests.push_back(remote.atomic(UCP_ATOMIC_OP_ADD, &one, 8, 0, &old));
        ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
        requests.push_back(remote.get(&newer, 8, 0));
        for (ucs_status_ptr_t request : requests) {
            ASSERT_EQ(UCS_OK, remote.world().wait(request));
        }
        memcpy(first.data() + LENGTH - 10000, second.data(), 10000);
        EXPECT_EQ(first, back);
        EXPECT_EQ(0, memcmp(&old, first.data(), 8));
        EXPECT_EQ(old + 1, newer);
    }
}

/* Nothing outside of the key is touched; what overflows is outside. */
TEST_P(rma, out_of_range)
{
    remote remote(GetParam(), 4096);
    bytes buffer(8192, 0x33);
    const bytes before(remote.data(), remote.data() + 4096);
    const struct {
        size_t offset, length;
    } rows[] = {{0, 4097},        {4096, 1},          {4095, 2},         {size_t(0) - 1, 1},
                {size_t(0) - 1, 2}, {size_t(0) - 8, 8}, {1 << 30, 1},      {1, size_t(0) - 1},
                {0, SIZE_MAX / 2}, {5000, 0x1000}};

    for (const auto &row : rows) {
        EXPECT_EQ(UCS_ERR_OUT_OF_RANGE,
                  UCS_PTR_STATUS(remote.put(buffer.data(), row.length, row.offset)));
        EXPECT_EQ(UCS_ERR_OUT_OF_RANGE,
                  UCS_PTR_STATUS(remote.get(buffer.data(), row.length, row.offset)));
    }
    EXPECT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(0, memcmp(before.data(), remote.data(), 4096));
    EXPECT_EQ(bytes(8192, 0x33), buffer);
    /* nothing at all is inside everywhere */
    EXPECT_EQ(nullptr, remote.put(buffer.data(), 0, 1 << 30));
    EXPECT_EQ(nullptr, remote.get(nullptr, 0, 0));
}

TEST_P(rma, no_immediate_completion)
{
    remote remote(GetParam());
    const bytes data = pattern(5, 1000);
    ending end;
    ucp_request_param_t param = send_param(&end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);

    void *request = ucp_put_nbx(remote.world().ep(), data.data(), data.size(), remote.address(9),
                                remote.rkey(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    EXPECT_EQ(0, end.calls);
    remote.world().progress_until([&]() { return end.calls > 0; });
    EXPECT_EQ(UCS_OK, end.status);
    EXPECT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(-1, differs(remote.data() + 9, data.size(), 5));
}

/* An operation that cannot end inside its call is not begun. */
TEST_P(rma, forced_immediate_completion)
{
    remote remote(GetParam());
    const bytes data = pattern(6, 300000);

    memset(remote.data(), 0, data.size());
    ucs_status_ptr_t ptr = remote.put(data.data(), data.size(), 0, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    if (GetParam().is_direct) {
        EXPECT_EQ(nullptr, ptr);
    }
    ASSERT_FALSE(UCS_PTR_IS_PTR(ptr));
    ASSERT_EQ(UCS_OK, remote.flush());
    if (ptr == nullptr) {
        EXPECT_EQ(-1, differs(remote.data(), data.size(), 6));
    } else {
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, UCS_PTR_STATUS(ptr));
        remote.world().settle();
        EXPECT_EQ(ptrdiff_t(data.size()),
                  std::count(remote.data(), remote.data() + data.size(), 0));
    }
}

TEST_P(rma, request_of_the_user)
{
    remote remote(GetParam());
    const size_t size = remote.world().ctx().request_size();
    bytes memory(size + 64, 0x77);
    const bytes data = pattern(7, 3000);
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FIELD_REQUEST;
    param.request             = memory.data() + size;

    ucs_status_ptr_t ptr = ucp_put_nbx(remote.world().ep(), data.data(), data.size(),
                                       remote.address(), remote.rkey(), &param);
    ASSERT_TRUE((ptr == nullptr) || (ptr == param.request));
    remote.world().progress_until(
        [&]() { return ucp_request_check_status(param.request) != UCS_INPROGRESS; });
    EXPECT_EQ(UCS_OK, ucp_request_check_status(param.request));
    EXPECT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(-1, differs(remote.data(), data.size(), 7));
    EXPECT_EQ(bytes(64, 0x77), bytes(memory.begin() + ptrdiff_t(size), memory.end()));
}

/* The earlier forms, which progress by themselves: where the target must help, it has a thread. */
TEST_P(rma, earlier_forms)
{
    remote remote(GetParam());
    const bytes data = pattern(8, 3000);
    bytes back(3000);
    ucp_ep_h ep = remote.world().ep();

    ucs_status_t status =
        ucp_put_nbi(ep, data.data(), data.size(), remote.address(), remote.rkey());
    EXPECT_TRUE((status == UCS_OK) || ((status == UCS_INPROGRESS) && !GetParam().is_direct));
    ASSERT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(-1, differs(remote.data(), data.size(), 8));
    status = ucp_get_nbi(ep, back.data(), back.size(), remote.address(), remote.rkey());
    EXPECT_TRUE((status == UCS_OK) || ((status == UCS_INPROGRESS) && !GetParam().is_direct));
    ASSERT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(data, back);
    EXPECT_EQ(UCS_OK, ucp_put_nbi(ep, nullptr, 0, 0, remote.rkey()));

    const auto count = [](void *, ucs_status_t) {};
    std::fill(back.begin(), back.end(), 0);
    memset(remote.data(), 0, data.size());
    ASSERT_EQ(UCS_OK, remote.world().wait(ucp_put_nb(ep, data.data(), data.size(), remote.address(),
                                                     remote.rkey(), count)));
    ASSERT_EQ(UCS_OK, remote.flush());
    ASSERT_EQ(UCS_OK, remote.world().wait(ucp_get_nb(ep, back.data(), back.size(),
                                                     remote.address(), remote.rkey(), count)));
    EXPECT_EQ(data, back);
    if (GetParam().is_direct) {
        EXPECT_EQ(UCS_OK, ucp_put(ep, back.data(), 100, remote.address(500), remote.rkey()));
        EXPECT_EQ(UCS_OK, ucp_get(ep, back.data(), 100, remote.address(500), remote.rkey()));
        EXPECT_EQ(-1, differs(back.data(), 100, 8));
    }
}

INSTANTIATE_TEST_SUITE_P(all, rma, testing::ValuesIn(all_ways()), way_name);

} // namespace
