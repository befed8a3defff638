/* Halyard: tests of puts and gets, and of what orders and ends them, over every way to the memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <pattern.h>
#include <seed.h>
#include <ucp/remote.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

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
        ASSERT_TRUE(pattern_is_only(remote.data(), offset, 0x11)) << length;
        ASSERT_TRUE(pattern_is_only(remote.data() + offset + length,
                                    (1 << 20) - offset - length, 0x11)) << length;

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

/* Without a fence, too, a get sees what was there before a put of the same memory, and one behind
 * it what it wrote; of other memory they need not wait for one another. */
TEST_P(rma, conflicts_are_ordered)
{
    for (const size_t length : {size_t(8), size_t(489), size_t(40000), size_t(700000)}) {
        remote remote(GetParam(), length);
        bytes first(length), second(length), before(length), after(length);
        const uint64_t one = 1;
        const size_t part  = std::min(length, size_t(10000));

        for (uint64_t round = 1; round < 6; ++round) {
            uint64_t old = 0, newer = 0;
            std::vector<ucs_status_ptr_t> requests;
            fill(first.data(), length, round);
            fill(second.data(), length, round + 1000);
            memcpy(remote.data(), first.data(), length);
            requests.push_back(remote.get(before.data(), length, 0));
            requests.push_back(remote.put(second.data(), part, length - part));
            requests.push_back(remote.get(after.data(), length, 0));
            requests.push_back(remote.atomic(UCP_ATOMIC_OP_ADD, &one, 8, 0, &old));
            requests.push_back(remote.get(&newer, 8, 0));
            for (ucs_status_ptr_t request : requests) {
                ASSERT_EQ(UCS_OK, remote.world().wait(request));
            }
            ASSERT_EQ(first, before);
            memcpy(first.data() + length - part, second.data(), part);
            ASSERT_EQ(first, after);
            ASSERT_EQ(0, memcmp(&old, first.data(), 8));
            ASSERT_EQ(old + 1, newer);
        }
    }
}

/* What waits for another kind is not overtaken by its own, once that has ended. */
TEST_P(rma, what_waits_is_not_overtaken)
{
    constexpr size_t LENGTH = 700000, PART = 10000;

    for (unsigned round = 0; round < 5; ++round) {
        remote remote(GetParam(), LENGTH);
        bytes first(PART, 1), second(PART, 2), back(LENGTH);
        memset(remote.data(), 0, LENGTH);

        const ucs_status_ptr_t get = remote.get(back.data(), LENGTH, 0);
        const ucs_status_ptr_t one = remote.put(first.data(), PART, LENGTH - PART);
        ASSERT_EQ(UCS_OK, remote.world().wait(get));
        const ucs_status_ptr_t two = remote.put(second.data(), PART, LENGTH - PART);
        ASSERT_EQ(UCS_OK, remote.world().wait(one));
        ASSERT_EQ(UCS_OK, remote.world().wait(two));
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_EQ(second, bytes(remote.data() + LENGTH - PART, remote.data() + LENGTH));
        ASSERT_EQ(bytes(LENGTH), back);
    }
}

const way MANY{{"messages", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE}, false, false};

/* However many wait: that each end looked through all of them took minutes, as a hang does. */
TEST(rma_many, wait_behind_a_fence)
{
    constexpr unsigned COUNT = 30000, PLACES = 1000;
    const uint64_t values[]  = {1, 2};
    remote remote(MANY);
    memset(remote.data(), 0, 8 * PLACES);

    for (unsigned round = 0; round < 3; ++round) { /* puts, puts behind a fence, atomics */
        for (unsigned i = 0; i < COUNT; ++i) {
            ASSERT_FALSE(UCS_STATUS_IS_ERR(
                (round < 2) ? ucp_put_nbi(remote.world().ep(), &values[round], 8,
                                          remote.address(8 * (i % PLACES)), remote.rkey()) :
                              ucp_atomic_post(remote.world().ep(), UCP_ATOMIC_POST_OP_ADD, 1, 8,
                                              remote.address(8 * (i % PLACES)), remote.rkey())));
        }
        ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
    }
    ASSERT_EQ(UCS_OK, remote.flush());
    for (unsigned i = 0; i < PLACES; ++i) {
        ASSERT_EQ(2 + (COUNT / PLACES), reinterpret_cast<uint64_t *>(remote.data())[i]);
    }
}

/* Nor does it take long to find that many in flight touch other memory. */
TEST(rma_many, of_two_kinds_beside_each_other)
{
    constexpr unsigned COUNT = 60000;
    const uint64_t value     = 5;
    remote remote(MANY);
    std::vector<uint64_t> got(COUNT);
    memset(remote.data(), 7, 16 * COUNT);

    for (unsigned i = 0; i < COUNT; ++i) {
        ASSERT_FALSE(UCS_STATUS_IS_ERR(ucp_put_nbi(remote.world().ep(), &value, 8,
                                                   remote.address(16 * i), remote.rkey())));
    }
    for (unsigned i = 0; i < COUNT; ++i) {
        ASSERT_FALSE(UCS_STATUS_IS_ERR(ucp_get_nbi(remote.world().ep(), &got[i], 8,
                                                   remote.address(16 * i + 8), remote.rkey())));
    }
    ASSERT_EQ(UCS_OK, remote.flush());
    for (unsigned i = 0; i < COUNT; ++i) {
        ASSERT_EQ(value, reinterpret_cast<uint64_t *>(remote.data())[2 * i]);
        ASSERT_EQ(0x0707070707070707u, got[i]);
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

/* Peers do to memory what its owner has allowed, and by messages nothing else even where they
 * change the key. */
TEST_P(rma, access_that_was_not_given)
{
    constexpr unsigned LOCAL = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE;
    const uint64_t ones      = ~0ull;

    for (unsigned i = 0; i < 4; ++i) {
        const bool reads    = (i % 2) != 0;
        const bool writes   = (i / 2) != 0;
        const unsigned prot = (reads ? UCP_MEM_MAP_PROT_REMOTE_READ : 0) |
                              (writes ? UCP_MEM_MAP_PROT_REMOTE_WRITE : 0);
        remote remote(GetParam(), 4096, prot | LOCAL);
        bytes data(4096, 0x77), back(4096);
        memset(remote.data(), 0x11, 4096);

        EXPECT_EQ(reads ? UCS_OK : UCS_ERR_INVALID_ADDR,
                  remote.world().wait(remote.get(back.data(), 4096, 0)));
        EXPECT_EQ(reads ? 0x11 : 0, back[4095]);
        EXPECT_EQ(writes ? UCS_OK : UCS_ERR_INVALID_ADDR,
                  remote.world().wait(remote.put(data.data(), 4096, 0)));
        EXPECT_EQ((reads && writes) ? UCS_OK : UCS_ERR_INVALID_ADDR,
                  remote.world().wait(remote.atomic(UCP_ATOMIC_OP_AND, &ones, 8, 0, nullptr)));
        EXPECT_EQ(UCS_OK, remote.flush());
        EXPECT_EQ(writes ? 4096 : 0, std::count(remote.data(), remote.data() + 4096, 0x77));

        bytes forged = remote.memory().packed();
        forged[3]    = 0;
        const key changed(remote.world().ep(), forged);
        if (!writes && (GetParam().world.name.compare(0, 8, "messages") == 0)) {
            const ucp_request_param_t none = {};
            EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                      remote.world().wait(ucp_put_nbx(remote.world().ep(), data.data(), 8,
                                                      remote.address(), changed.get(), &none)));
        }
        EXPECT_EQ(writes ? 4096 : 0, std::count(remote.data(), remote.data() + 4096, 0x77));
    }
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

/* They tell MPICH, by the last of them, whether its local flush has anything to wait for. */
TEST_P(rma, earlier_puts_end_after_what_is_in_flight)
{
    remote remote(GetParam());
    ucp_ep_h ep      = remote.world().ep();
    const bytes data = pattern(8, 100);
    bytes back(100);
    ending get;
    ucp_request_param_t param = send_param(&get, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const auto post_get       = [&]() {
        return ucp_get_nbx(ep, back.data(), back.size(), remote.address(), remote.rkey(), &param);
    };

    ASSERT_TRUE(UCS_PTR_IS_PTR(post_get()));
    EXPECT_EQ(UCS_INPROGRESS,
              ucp_put_nbi(ep, data.data(), data.size(), remote.address(500), remote.rkey()));
    EXPECT_EQ(UCS_INPROGRESS, ucp_put_nbi(ep, nullptr, 0, 0, remote.rkey()));
    ucs_status_ptr_t put = ucp_put_nb(ep, data.data(), data.size(), remote.address(700),
                                      remote.rkey(), [](void *, ucs_status_t) {});
    EXPECT_TRUE(UCS_PTR_IS_PTR(put));
    EXPECT_EQ(0, get.calls);
    EXPECT_EQ(UCS_OK, remote.world().wait(put));
    ASSERT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(1, get.calls);
    EXPECT_EQ(-1, differs(remote.data() + 500, data.size(), 8));
    EXPECT_EQ(-1, differs(remote.data() + 700, data.size(), 8));
    EXPECT_EQ(UCS_OK, ucp_put_nbi(ep, nullptr, 0, 0, remote.rkey()));

    if (GetParam().is_direct) { /* one that blocks waits for all */
        ASSERT_TRUE(UCS_PTR_IS_PTR(post_get()));
        EXPECT_EQ(UCS_OK, ucp_put(ep, data.data(), data.size(), remote.address(900),
                                  remote.rkey()));
        EXPECT_EQ(2, get.calls);
        EXPECT_EQ(-1, differs(remote.data() + 900, data.size(), 8));
    }
}

/* ---- datatypes and registrations ---- */

TEST_P(rma, iov)
{
    remote remote(GetParam());
    seeded_random random(2111);
    for (int round = 0; round < 20; ++round) {
        std::vector<bytes> parts(random.below(6));
        std::vector<ucp_dt_iov_t> iov;
        bytes whole;
        for (bytes &part : parts) {
            part = pattern(random.bits(), random.below(random.one_in(4) ? 60000 : 100));
            iov.push_back({part.data(), part.size()});
            whole.insert(whole.end(), part.begin(), part.end());
        }
        ucp_request_param_t param = {};
        param.op_attr_mask        = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype            = ucp_dt_make_iov();
        ASSERT_EQ(UCS_OK, remote.world().wait(ucp_put_nbx(remote.world().ep(), iov.data(),
                                                          iov.size(), remote.address(3),
                                                          remote.rkey(), &param)));
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_TRUE(std::equal(whole.begin(), whole.end(), remote.data() + 3));
        for (bytes &part : parts) {
            std::fill(part.begin(), part.end(), 0);
        }
        ASSERT_EQ(UCS_OK, remote.world().wait(ucp_get_nbx(remote.world().ep(), iov.data(),
                                                          iov.size(), remote.address(3),
                                                          remote.rkey(), &param)));
        bytes back;
        for (const bytes &part : parts) {
            back.insert(back.end(), part.begin(), part.end());
        }
        ASSERT_EQ(whole, back);
    }
}

/* Every second byte of a buffer; packs at most 1000 bytes a call. */
struct strided {
    uint8_t *buffer;
    size_t count;
    static int finished;

    static void *start(void *, void *buffer, size_t count)
    {
        return new strided{static_cast<uint8_t *>(buffer), count};
    }
    static void *start_const(void *context, const void *buffer, size_t count)
    {
        return start(context, const_cast<void *>(buffer), count);
    }
    static size_t size(void *state)
    {
        return static_cast<strided *>(state)->count;
    }
    static size_t pack(void *state, size_t offset, void *dest, size_t max)
    {
        const auto *self   = static_cast<strided *>(state);
        const size_t count = std::min({max, self->count - offset, size_t(1000)});
        for (size_t i = 0; i < count; ++i) {
            static_cast<uint8_t *>(dest)[i] = self->buffer[2 * (offset + i)];
        }
        return count;
    }
    static ucs_status_t unpack(void *state, size_t offset, const void *src, size_t count)
    {
        const auto *self = static_cast<strided *>(state);
        for (size_t i = 0; i < count; ++i) {
            self->buffer[2 * (offset + i)] = static_cast<const uint8_t *>(src)[i];
        }
        return UCS_OK;
    }
    static void finish(void *state)
    {
        ++finished;
        delete static_cast<strided *>(state);
    }
};

int strided::finished = 0;

TEST_P(rma, generic)
{
    const ucp_generic_dt_ops_t ops = {strided::start_const, strided::start, strided::size,
                                      strided::pack, strided::unpack, strided::finish};
    remote remote(GetParam());
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FIELD_DATATYPE;
    ASSERT_EQ(UCS_OK, ucp_dt_create_generic(&ops, nullptr, &param.datatype));
    strided::finished = 0;
    for (const size_t count : {0, 1, 999, 50000}) {
        const bytes data = pattern(count, 2 * count);
        bytes back(2 * count, 0x55);
        ASSERT_EQ(UCS_OK,
                  remote.world().wait(ucp_put_nbx(remote.world().ep(), data.data(), count,
                                                  remote.address(), remote.rkey(), &param)));
        ASSERT_EQ(UCS_OK, remote.flush());
        ASSERT_EQ(UCS_OK,
                  remote.world().wait(ucp_get_nbx(remote.world().ep(), back.data(), count,
                                                  remote.address(), remote.rkey(), &param)));
        for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(data[2 * i], remote.data()[i]) << i;
            ASSERT_EQ(data[2 * i], back[2 * i]) << i;
            ASSERT_EQ(0x55, back[(2 * i) + 1]) << i;
        }
    }
    EXPECT_EQ(8, strided::finished);
    /* refused operations finish too */
    bytes data(2000);
    ucs_status_ptr_t ptr = ucp_put_nbx(remote.world().ep(), data.data(), 1000,
                                       remote.address() - 1, remote.rkey(), &param);
    EXPECT_EQ(UCS_ERR_OUT_OF_RANGE, UCS_PTR_STATUS(ptr));
    EXPECT_EQ(9, strided::finished);
    ucp_dt_destroy(param.datatype);
}

TEST_P(rma, user_memory_handle)
{
    remote remote(GetParam());
    bytes data = pattern(9, 5000);
    const mapping local(remote.world().ctx(), data.size(), data.data());
    const context other({RMA_FEATURES, 0, nullptr, nullptr});
    const mapping foreign(other, data.size(), data.data());
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FIELD_MEMH;
    const auto put            = [&](size_t offset, size_t length) {
        return ucp_put_nbx(remote.world().ep(), data.data() + offset, length, remote.address(),
                                      remote.rkey(), &param);
    };

    param.memh = local.handle();
    EXPECT_EQ(UCS_OK, remote.world().wait(put(0, 5000)));
    EXPECT_EQ(UCS_OK, remote.flush());
    EXPECT_EQ(-1, differs(remote.data(), 5000, 9));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, UCS_PTR_STATUS(put(1, 5000)));
    param.memh = foreign.handle();
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, UCS_PTR_STATUS(put(0, 5000)));
    param.memh = nullptr;
    EXPECT_EQ(UCS_OK, remote.world().wait(put(0, 100)));
    EXPECT_EQ(UCS_OK, remote.flush());
}

/* ---- ends ---- */

/* Every operation ends once, by its callback, with an error where it was under way. */
void start_many(remote &remote, std::vector<ending> *ends, std::vector<bytes> *buffers)
{
    static const uint64_t one = 1;
    for (size_t i = 0; i < ends->size(); ++i) {
        ending *end               = &(*ends)[i];
        ucp_request_param_t param = send_param(end);
        bytes &buffer             = (*buffers)[i];
        ucs_status_ptr_t ptr;
        buffer.resize(((i % 5) == 0) ? 900000 : 500);
        switch (i % 3) {
        case 0:
            ptr = ucp_put_nbx(remote.world().ep(), buffer.data(), buffer.size(), remote.address(),
                              remote.rkey(), &param);
            break;
        case 1:
            ptr = ucp_get_nbx(remote.world().ep(), buffer.data(), buffer.size(), remote.address(),
                              remote.rkey(), &param);
            break;
        default:
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
            param.datatype = ucp_dt_make_contig(8);
            ptr = ucp_atomic_op_nbx(remote.world().ep(), UCP_ATOMIC_OP_ADD, &one, 1,
                                    remote.address(), remote.rkey(), &param);
            break;
        }
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        if (ptr == nullptr) {
            end->calls  = 1;
            end->status = UCS_OK;
        }
        if ((i % 7) == 3) {
            ASSERT_EQ(UCS_OK, ucp_worker_fence(remote.world().sender().handle()));
        }
    }
}

TEST_P(rma, failure_of_the_peer)
{
    remote remote(GetParam());
    std::vector<ending> ends(60);
    std::vector<bytes> buffers(60);
    uint64_t value = 1;
    ASSERT_NO_FATAL_FAILURE(start_many(remote, &ends, &buffers));
    for (int i = 0; i < 3; ++i) {
        remote.world().sender().progress();
    }
    ucp_test_peer_fail(remote.world().ep(), UCS_ERR_CONNECTION_RESET);
    remote.world().sender().progress();
    for (const ending &end : ends) {
        EXPECT_EQ(1, end.calls);
        EXPECT_TRUE((end.status == UCS_OK) || (end.status == UCS_ERR_CONNECTION_RESET));
        EXPECT_TRUE(!GetParam().is_direct || (end.status == UCS_OK));
    }
    EXPECT_EQ(0u, ucp_test_num_ids(remote.world().sender().handle()));
    /* later ones return at once, mapped or not */
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, UCS_PTR_STATUS(remote.put(&value, 8, 0)));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, UCS_PTR_STATUS(remote.get(&value, 8, 0)));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET,
              UCS_PTR_STATUS(remote.atomic(UCP_ATOMIC_OP_ADD, &value, 8, 0, nullptr)));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, remote.flush());
    take_log();
}

TEST_P(rma, forced_close)
{
    remote remote(GetParam());
    std::vector<ending> ends(40);
    std::vector<bytes> buffers(40);
    ucp_ep_params_t params;
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode   = UCP_ERR_HANDLING_MODE_PEER;
    ASSERT_FALSE(UCS_PTR_IS_ERR(ucp_ep_modify_nb(remote.world().ep(), &params)));
    ASSERT_NO_FATAL_FAILURE(start_many(remote, &ends, &buffers));
    remote.world().sender().progress();
    remote.world().sender().forget(remote.world().ep());
    ASSERT_EQ(UCS_OK, remote.world().wait(
                          ucp_ep_close_nb(remote.world().ep(), UCP_EP_CLOSE_MODE_FORCE)));
    for (const ending &end : ends) {
        EXPECT_EQ(1, end.calls);
        EXPECT_TRUE((end.status == UCS_OK) || (end.status == UCS_ERR_CANCELED));
    }
    remote.world().settle(); /* answers that come late find nobody */
}

TEST_P(rma, close_waits)
{
    remote remote(GetParam());
    std::vector<ending> ends(40);
    std::vector<bytes> buffers(40);
    ASSERT_NO_FATAL_FAILURE(start_many(remote, &ends, &buffers));
    remote.world().sender().forget(remote.world().ep());
    ASSERT_EQ(UCS_OK, remote.world().wait(
                          ucp_ep_close_nb(remote.world().ep(), UCP_EP_CLOSE_MODE_FLUSH)));
    for (const ending &end : ends) {
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(UCS_OK, end.status);
    }
}

/* Who has added leaves its worker alone until the owner's flush is done, as PEs do that meet in a
 * barrier with operations of a context of theirs under way. */
TEST_P(rma, a_flush_of_the_owner_waits_for_no_answer)
{
    if (GetParam().world.is_self || GetParam().is_direct) {
        GTEST_SKIP() << "needs an owner that answers";
    }
    remote remote(GetParam());
    worker &owner          = remote.world().receiver();
    auto *word             = reinterpret_cast<std::atomic<uint64_t> *>(remote.data());
    const uint64_t addend  = 1;
    *word                  = 5;
    ucs_status_ptr_t added = remote.atomic(UCP_ATOMIC_OP_ADD, &addend, sizeof(addend), 0, nullptr);
    const auto end         = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((*word == 5) && (std::chrono::steady_clock::now() < end)) {
        owner.progress();
        if (*word == 5) {
            remote.world().sender().progress();
        }
    }
    ASSERT_EQ(6u, *word);
    const ucp_request_param_t none = {};
    void *flush = ucp_worker_flush_nbx(owner.handle(), &none);
    EXPECT_EQ(nullptr, flush);
    EXPECT_EQ(UCS_OK, remote.world().wait(flush));
    EXPECT_EQ(UCS_OK, remote.world().wait(added));
    EXPECT_EQ(UCS_OK, remote.flush());
}

TEST_P(rma, worker_destroyed_with_operations)
{
    remote remote(GetParam());
    std::vector<ending> ends(40);
    std::vector<bytes> buffers(40);
    ASSERT_NO_FATAL_FAILURE(start_many(remote, &ends, &buffers));
    remote.world().sender().progress();
    remote.world().sender().destroy();
    if (!GetParam().world.is_self) {
        for (int i = 0; i < 1000; ++i) {
            remote.world().receiver().progress();
        }
    }
    take_log();
}

/* The rest of a transfer goes by messages when copies are refused in the middle. */
TEST_P(rma, copies_refused_midway)
{
    constexpr size_t LENGTH = 6 << 20;
    remote remote(GetParam(), LENGTH);
    bytes put = pattern(31, LENGTH), got(LENGTH);

    ucs_status_ptr_t ptr = remote.put(put.data(), LENGTH, 0);
    for (int i = 0; i < 3; ++i) {
        remote.world().sender().progress();
    }
    if (!GetParam().world.is_self) {
        ucp_test_refuse_copies(remote.world().ep());
    }
    ASSERT_EQ(UCS_OK, remote.world().wait(ptr));
    ASSERT_EQ(UCS_OK, remote.flush());
    ASSERT_EQ(-1, differs(remote.data(), LENGTH, 31));
    ASSERT_EQ(UCS_OK, remote.world().wait(remote.get(got.data(), LENGTH, 0)));
    EXPECT_EQ(put, got);
    take_log();
}

/* The error handler may close the endpoint that a blocking put waits on, in the turn in which the
 * put has ended well: here the next piece of a message fails. */
TEST(rma_blocking, a_handler_closes_the_endpoint)
{
    constexpr size_t COUNT = 10, LENGTH = 200000;
    const bytes data       = pattern(8, LENGTH);
    unsigned num_closed    = 0;
    log_catcher log;

    for (int fail_op = 5; fail_op <= 200; fail_op += 3) {
        struct closer { /* the endpoint may fail while it is closed below */
            worker *sender;
            void *request;
            bool is_closed;
        } closer = {nullptr, nullptr, false};
        remote remote(
                   way{{"mm",
                        {{"UCX_TLS", "fault:mm"},
                         {"UCX_RNDV_THRESH", "1000"},
                         {"UCX_RNDV_SCHEME", "am"},
                         {"UCX_HOOK_NO_RESOURCE", "0"},
                         {"UCX_HOOK_FAIL_OP", std::to_string(fail_op)}},
                        false,
                        UCS_THREAD_MODE_SINGLE},
                       false,
                       false});
        pair &world       = remote.world();
        const ucp_ep_h ep = world.ep();
        ucp_ep_params_t params;
        closer.sender     = &world.sender();
        params.field_mask =
            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.arg = &closer;
        params.err_handler.cb  = [](void *arg, ucp_ep_h failed, ucs_status_t) {
            auto *self      = static_cast<struct closer *>(arg);
            self->is_closed = true;
            self->sender->forget(failed);
            self->request = ucp_ep_close_nb(failed, UCP_EP_CLOSE_MODE_FORCE);
        };
        ASSERT_FALSE(UCS_PTR_IS_ERR(ucp_ep_modify_nb(ep, &params)));

        const ucp_request_param_t none = {};
        std::vector<void *> sends, receives;
        bytes received(COUNT * LENGTH);
        for (size_t i = 0; i < COUNT; ++i) {
            receives.push_back(ucp_tag_recv_nbx(world.receiver().handle(), &received[i * LENGTH],
                                                LENGTH, i, ~0ull, &none));
        }
        std::atomic<bool> stop{false};
        std::thread target([&]() {
            while (!stop) {
                world.receiver().progress();
            }
        });
        for (size_t i = 0; (i < COUNT) && !closer.is_closed; ++i) {
            sends.push_back(ucp_tag_send_nbx(ep, data.data(), LENGTH, i, &none));
            for (int n = 0; (n < 5) && !closer.is_closed; ++n) {
                (void)ucp_put(ep, data.data(), 100, remote.address(500), remote.rkey());
            }
        }
        stop = true;
        target.join();
        for (void *send : sends) {
            world.wait(send);
        }
        for (void *receive : receives) {
            ucp_request_cancel(world.receiver().handle(), receive);
            world.wait(receive);
        }
        EXPECT_EQ(UCS_OK, world.wait(closer.request));
        num_closed += closer.is_closed;
    }
    EXPECT_LT(5u, num_closed);
    log.take();
}

/* What fails unheard amid a blocking put, posted by a callback, is left to the user's flush. */
TEST(rma_blocking, leaves_what_its_flush_has_not_heard)
{
    constexpr size_t LENGTH = 64 << 20;
    log_catcher log;
    pair world({"copies", {}, false, UCS_THREAD_MODE_SINGLE}, {RMA_FEATURES, 0, nullptr, nullptr});
    bytes heap(LENGTH), data(LENGTH, 1), refused(8);
    const mapping mapped(world.ctx(), 8), of_user(world.ctx(), LENGTH, heap.data());
    mapping gone(world.ctx(), 8, refused.data());
    const key direct(world.ep(), mapped.packed()), copied(world.ep(), of_user.packed()),
        stale(world.ep(), gone.packed());
    const ucp_request_param_t none = {};
    std::atomic<bool> is_over{false};
    ending counted;

    EXPECT_EQ(UCS_OK, world.wait(ucp_ep_flush_nbx(world.ep(), &none)));
    gone.unmap();
    std::thread owner([&]() {
        while (!is_over) {
            world.receiver().progress();
        }
    });
    counted.action = [&]() {
        EXPECT_EQ(UCS_OK, ucp_atomic_post(world.ep(), UCP_ATOMIC_POST_OP_ADD, 1, 8,
                                          gone.address(), stale.get()));
    };
    ucp_request_param_t param = send_param(&counted, UCP_OP_ATTR_FIELD_DATATYPE);
    param.datatype            = ucp_dt_make_contig(8);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_atomic_op_nbx(world.ep(), UCP_ATOMIC_OP_ADD, data.data(), 1,
                                                 of_user.address(LENGTH - 8), copied.get(),
                                                 &param)));
    EXPECT_EQ(UCS_INPROGRESS, ucp_put_nbi(world.ep(), data.data(), LENGTH - 8, of_user.address(),
                                          copied.get()));
    EXPECT_EQ(UCS_OK, ucp_put(world.ep(), data.data(), 8, mapped.address(), direct.get()));
    EXPECT_EQ(1, counted.calls);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, ucp_ep_flush(world.ep()));
    is_over = true;
    owner.join();
    log.take();
}

/* Copies need no connection, but messages that may be faster later do: it is made with a word, as a
 * worker that has lost the other would take it for the former one. */
TEST(rma_copies, tell_who_connects)
{
    const way way = {{"copies", {{"UCX_TLS", "mm,cma"}}, false, UCS_THREAD_MODE_SINGLE}, false,
                     false};
    remote remote(way);
    pair &world     = remote.world();
    const bytes put = pattern(1, 100000);

    EXPECT_FALSE(ucp_test_knows(world.receiver().handle(), world.sender().handle()));
    EXPECT_EQ(UCS_OK, world.wait(remote.put(put.data(), put.size(), 0)));
    world.progress_until([&]() {
        return ucp_test_knows(world.receiver().handle(), world.sender().handle()) != 0;
    });
    EXPECT_EQ(-1, differs(remote.data(), put.size(), 1));
}

/* What the owner has unmapped meanwhile is not touched: operations by messages are refused. */
TEST_P(rma, unmapped_meanwhile)
{
    remote remote(GetParam());
    if (GetParam().is_direct) {
        GTEST_SKIP() << "the mapping lives as long as the key";
    }
    ucp_test_refuse_copies(remote.world().ep());
    const bytes before(remote.data(), remote.data() + (1 << 20));
    const bytes data   = pattern(1, 100000);
    const uint64_t one = 1;
    bytes got(100000);
    uint8_t *memory = remote.data();
    ASSERT_EQ(UCS_OK, remote.flush());
    const uint64_t address = remote.address();
    ucp_request_param_t param = {};
    remote.memory().unmap();
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              remote.world().wait(ucp_put_nbx(remote.world().ep(), data.data(), data.size(),
                                              address, remote.rkey(), &param)));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              remote.world().wait(ucp_get_nbx(remote.world().ep(), got.data(), got.size(), address,
                                              remote.rkey(), &param)));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              remote.world().wait(remote.atomic(UCP_ATOMIC_OP_ADD, &one, 8, 0, nullptr)));
    EXPECT_EQ(0, memcmp(before.data(), memory, before.size()));
    EXPECT_EQ(bytes(100000), got);
    take_log();
}

/* The forms without a request have nothing else that tells of an error. */
TEST_P(rma, a_flush_tells_of_what_failed_unheard)
{
    if (GetParam().is_direct) {
        GTEST_SKIP() << "the mapping lives as long as the key";
    }
    const ucp_request_param_t none = {};
    for (bool is_in_flight : {true, false}) {
        remote remote(GetParam());
        ucp_worker_h worker = remote.world().sender().handle();
        ucp_ep_h ep         = remote.world().ep();
        bytes got(100000);
        ucp_test_refuse_copies(ep);
        ASSERT_EQ(UCS_OK, remote.flush());
        const uint64_t address = remote.address();
        remote.memory().unmap();

        /* a request that was kept tells itself */
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, remote.world().wait(remote.get(got.data(), got.size(), 0)));
        EXPECT_EQ(UCS_OK, remote.flush());
        EXPECT_EQ(UCS_OK, ucp_worker_flush(worker));

        ASSERT_EQ(UCS_INPROGRESS, ucp_get_nbi(ep, got.data(), got.size(), address, remote.rkey()));
        if (!is_in_flight) {
            ASSERT_EQ(UCS_ERR_INVALID_ADDR, remote.world().wait(ucp_put_nbx(
                ep, got.data(), 8, address, remote.rkey(), &none)));
        }
        ucs_status_ptr_t of_worker = ucp_worker_flush_nbx(worker, &none);
        EXPECT_EQ(is_in_flight, UCS_PTR_IS_PTR(of_worker));
        ucs_status_ptr_t of_ep = ucp_ep_flush_nbx(ep, &none);
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, remote.world().wait(of_worker));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, remote.world().wait(of_ep));
        EXPECT_EQ(UCS_OK, remote.flush());
        EXPECT_EQ(UCS_OK, ucp_worker_flush(worker));
    }
    take_log();
}

/* A request that is freed in flight does not call back, and one that is released does. */
TEST_P(rma, freed_in_flight)
{
    remote remote(GetParam());
    bytes data = pattern(4, 900000);
    ending freed, released;
    freed.free_request = released.free_request = false;
    ucp_request_param_t param                  = send_param(&freed, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *request = ucp_put_nbx(remote.world().ep(), data.data(), data.size(), remote.address(),
                                remote.rkey(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_request_free(request);
    param   = send_param(&released, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    request = ucp_get_nbx(remote.world().ep(), data.data(), 100, remote.address(950000),
                          remote.rkey(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_request_release(request);
    ASSERT_EQ(UCS_OK, remote.flush());
    remote.world().settle();
    EXPECT_EQ(0, freed.calls);
    EXPECT_EQ(1, released.calls);
    EXPECT_EQ(UCS_OK, released.status);
}

INSTANTIATE_TEST_SUITE_P(all, rma, testing::ValuesIn(all_ways()), way_name);

} // namespace
