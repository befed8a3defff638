/* Halyard: tests of puts of scatter-gather lists, over every way to the memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <seed.h>
#include <ucp/remote.h>

#include <algorithm>
#include <cstring>

using namespace ucp_test;

namespace {

/* The arrays of a list, whose entries go from blocks of `source` to blocks of the remote memory. */
struct list {
    std::vector<void *> buffers;
    std::vector<size_t> lengths;
    std::vector<ucp_mem_h> memhs;
    std::vector<uint64_t> addresses;
    std::vector<ucp_rkey_h> rkeys;
    ucp_dt_local_sgl_t local   = {};
    ucp_dt_remote_sgl_t remote = {};

    void add(void *buffer, size_t length, ucp_mem_h memh, uint64_t address, ucp_rkey_h rkey)
    {
        buffers.push_back(buffer);
        lengths.push_back(length);
        memhs.push_back(memh);
        addresses.push_back(address);
        rkeys.push_back(rkey);
    }

    ucp_request_param_t param(ending *end = nullptr, uint32_t more_mask = 0)
    {
        ucp_request_param_t param = (end != nullptr) ? send_param(end, more_mask) :
                                                       ucp_request_param_t{};
        param.op_attr_mask |= more_mask | UCP_OP_ATTR_FIELD_DATATYPE |
                              UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                              UCP_OP_ATTR_FIELD_REMOTE_COUNT;
        param.datatype        = ucp_dt_make_sgl();
        param.remote_datatype = ucp_dt_make_sgl();
        param.remote          = &remote;
        param.remote_count    = lengths.size();
        local.field_mask      = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                                UCP_DT_LOCAL_SGL_FIELD_MEMHS;
        local.buffers         = buffers.data();
        local.lengths         = lengths.data();
        local.memhs           = memhs.data();
        remote.field_mask     = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS |
                                UCP_DT_REMOTE_SGL_FIELD_LENGTHS | UCP_DT_REMOTE_SGL_FIELD_RKEYS;
        remote.remote_addrs   = addresses.data();
        remote.lengths        = lengths.data();
        remote.rkeys          = rkeys.data();
        return param;
    }
};

constexpr size_t LENGTH = 2 << 20;

class rma_list : public way_test {
protected:
    rma_list() : m_remote(GetParam(), LENGTH), m_source(pattern(1, LENGTH)),
                 m_memory(m_remote.world().ctx(), LENGTH, m_source.data())
    {
        memset(m_remote.data(), 0, LENGTH);
    }

    /* `count` entries of up to max bytes, some of them empty, some without registration, the last
     * of the source to the first place of the target. */
    list make(size_t count, size_t max)
    {
        seeded_random random(count);
        list list;
        for (size_t i = 0; i < count; ++i) {
            const size_t length = random.one_in(9) ? 0 : random.below(max) + 1;
            list.add(m_source.data() + ((count - 1 - i) * max), length,
                     random.one_in(3) ? nullptr : m_memory.handle(), m_remote.address(i * max),
                     m_remote.rkey());
        }
        return list;
    }

    ucs_status_ptr_t put(const list &list, const ucp_request_param_t &param)
    {
        return ucp_put_nbx(m_remote.world().ep(), &list.local, list.lengths.size(),
                           UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
    }

    /* Only what the list names has changed. */
    void expect_moved(const list &list)
    {
        bytes expected(LENGTH);
        for (size_t i = 0; i < list.lengths.size(); ++i) {
            memcpy(expected.data() + (list.addresses[i] - m_remote.address()), list.buffers[i],
                   list.lengths[i]);
        }
        EXPECT_EQ(0, memcmp(expected.data(), m_remote.data(), LENGTH));
    }

    void expect_nothing_moved()
    {
        EXPECT_EQ(UCS_OK, m_remote.flush());
        m_remote.world().settle();
        EXPECT_EQ(ptrdiff_t(LENGTH), std::count(m_remote.data(), m_remote.data() + LENGTH, 0));
    }

    remote m_remote;
    bytes m_source;
    mapping m_memory;
};

TEST_P(rma_list, lists_of_all_kinds)
{
    const struct {
        size_t count, max;
    } rows[] = {{0, 1},    {1, 1},       {1, LENGTH},  {3, 8},
                {2000, 8}, {1000, 2000}, {20, 100000}, {3, 600000}};

    for (const auto &row : rows) {
        SCOPED_TRACE(std::to_string(row.count) + " of " + std::to_string(row.max));
        memset(m_remote.data(), 0, LENGTH);
        list list                       = make(row.count, row.max);
        const ucp_request_param_t param = list.param();
        ucs_status_ptr_t ptr            = put(list, param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        ASSERT_TRUE((ptr == nullptr) || !GetParam().is_direct);
        memset(&list.local, 0xee, sizeof(list.local)); /* only the arrays stay in use */
        memset(&list.remote, 0xee, sizeof(list.remote));
        ASSERT_EQ(UCS_OK, m_remote.world().wait(ptr));
        ASSERT_EQ(UCS_OK, m_remote.flush());
        expect_moved(list);
    }
    EXPECT_EQ(0u, ucp_test_num_ids(m_remote.world().sender().handle()));
}

/* The flush counts the entries, whatever has become of the request; the callback comes once. */
TEST_P(rma_list, requests)
{
    list list = make(40, 50000);
    for (const uint32_t more_mask : {0u, uint32_t(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)}) {
        ending end;
        memset(m_remote.data(), 0, LENGTH);
        const ucp_request_param_t param = list.param(&end, more_mask);
        ucs_status_ptr_t ptr            = put(list, param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        ASSERT_TRUE((ptr != nullptr) || (more_mask == 0));
        EXPECT_EQ(0, end.calls);
        ASSERT_EQ(UCS_OK, m_remote.flush());
        EXPECT_EQ((ptr == nullptr) ? 0 : 1, end.calls); /* who flushes may free what it has */
        m_remote.world().settle();
        EXPECT_EQ((ptr == nullptr) ? 0 : 1, end.calls);
        EXPECT_EQ((ptr == nullptr) ? UCS_INPROGRESS : UCS_OK, end.status);
        expect_moved(list);
    }

    memset(m_remote.data(), 0, LENGTH);
    ending freed;
    ucp_request_param_t param = list.param(&freed);
    ucs_status_ptr_t ptr      = put(list, param);
    if (UCS_PTR_IS_PTR(ptr)) {
        ucp_request_free(ptr);
    }
    ASSERT_EQ(UCS_OK, m_remote.flush());
    EXPECT_EQ(0, freed.calls);
    expect_moved(list);

    const size_t size = m_remote.world().ctx().request_size();
    bytes memory(size + 64, 0x77);
    memset(m_remote.data(), 0, LENGTH);
    param         = list.param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
    param.request = memory.data() + size;
    ptr           = put(list, param);
    ASSERT_TRUE((ptr == nullptr) || (ptr == param.request));
    m_remote.world().progress_until(
        [&]() { return ucp_request_check_status(param.request) != UCS_INPROGRESS; });
    EXPECT_EQ(UCS_OK, ucp_request_check_status(param.request));
    ASSERT_EQ(UCS_OK, m_remote.flush());
    expect_moved(list);
}

/* Whatever is wrong, wherever in the list, is found before anything moves. */
TEST_P(rma_list, wrong)
{
    list list                = make(10, 1000);
    ucp_request_param_t good = list.param();
    const auto refused       = [&](const ucp_request_param_t &param) {
        ucs_status_ptr_t ptr = put(list, param);
        EXPECT_TRUE(UCS_PTR_IS_ERR(ptr));
        return UCS_PTR_STATUS(ptr);
    };

    for (const uint32_t field : {UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_REMOTE_DATATYPE,
                                 UCP_OP_ATTR_FIELD_REMOTE}) {
        ucp_request_param_t param = good;
        param.op_attr_mask &= ~field;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(param)) << field;
    }
    ucp_request_param_t param = good;
    param.remote_count        = 9;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(param));
    param                 = good;
    param.remote_datatype = ucp_dt_make_contig(1);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(param));

    list.local.field_mask |= UCP_DT_LOCAL_SGL_FIELD_STRIDES;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, refused(good));
    list.local.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good));
    good                   = list.param();
    list.remote.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good));

    good                           = list.param();
    std::vector<size_t> lengths    = list.lengths;
    lengths[9]                    += 1;
    list.remote.lengths            = lengths.data();
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good));
    good          = list.param();
    list.rkeys[9] = nullptr;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good));
    for (unsigned i = 0; i < 6; ++i) { /* an array that is not there */
        good                     = list.param();
        list.local.buffers       = (i == 0) ? nullptr : list.local.buffers;
        list.local.lengths       = (i == 1) ? nullptr : list.local.lengths;
        list.local.memhs         = (i == 2) ? nullptr : list.local.memhs;
        list.remote.remote_addrs = (i == 3) ? nullptr : list.remote.remote_addrs;
        list.remote.rkeys        = (i == 4) ? nullptr : list.remote.rkeys;
        list.remote.lengths      = (i == 5) ? nullptr : list.remote.lengths;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good)) << i;
    }
    good = list.param();
    bytes memory(m_remote.world().ctx().request_size(), 0x77); /* what is looked at afterwards */
    ucp_request_param_t own = good;
    own.op_attr_mask       |= UCP_OP_ATTR_FIELD_REQUEST;
    own.request             = memory.data() + memory.size();
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(own));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_request_check_status(own.request));
    list.rkeys[9]     = m_remote.rkey();
    list.lengths[9]   = 5;
    list.memhs[9]     = m_memory.handle();
    list.addresses[9] = m_remote.address(LENGTH - 4);
    EXPECT_EQ(UCS_ERR_OUT_OF_RANGE, refused(good));
    list.addresses[9] = m_remote.address();
    list.buffers[9]   = m_source.data() + LENGTH - 4;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, refused(good));
    bytes packed = m_remote.memory().packed();
    packed[3]    = 3; /* its owner allows peers neither */
    const key forbidden(m_remote.world().ep(), packed);
    list.buffers[9] = m_source.data();
    list.rkeys[9]   = forbidden.get();
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, refused(good));

    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              UCS_PTR_STATUS(ucp_get_nbx(m_remote.world().ep(), &list.local, 10,
                                         UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &good)));
    expect_nothing_moved();
}

TEST_P(rma_list, forced_immediate_completion)
{
    list list                       = make(30, 60000);
    const ucp_request_param_t param = list.param(nullptr, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    ucs_status_ptr_t ptr            = put(list, param);

    if (GetParam().is_direct) {
        EXPECT_EQ(nullptr, ptr);
        ASSERT_EQ(UCS_OK, m_remote.flush());
        expect_moved(list);
    } else {
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, UCS_PTR_STATUS(ptr));
        expect_nothing_moved();
    }
}

/* An entry that fails ends the list with its error, after the others. */
TEST_P(rma_list, unmapped_meanwhile)
{
    if (GetParam().is_direct) {
        GTEST_SKIP() << "the mapping lives as long as the key";
    }
    ucp_test_refuse_copies(m_remote.world().ep());
    ASSERT_EQ(UCS_OK, m_remote.flush());
    list list                       = make(12, 100000);
    const ucp_request_param_t param = list.param();
    m_remote.memory().unmap();
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, m_remote.world().wait(put(list, param)));
    take_log();
}

/* A list in flight ends with its endpoint. */
TEST_P(rma_list, closed_meanwhile)
{
    pair &pair = m_remote.world();
    ucp_ep_h ep = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER,
                                        [](void *, ucp_ep_h, ucs_status_t) {});
    {
        const key key(ep, m_remote.memory().packed());
        ending end;
        list list = make(20, 100000);
        std::fill(list.rkeys.begin(), list.rkeys.end(), key.get());
        const ucp_request_param_t param = list.param(&end);
        ucs_status_ptr_t ptr = ucp_put_nbx(ep, &list.local, 20, UCP_REMOTE_ADDR_INVALID,
                                           UCP_RKEY_INVALID, &param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        pair.sender().forget(ep);
        EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE)));
        pair.progress_until([&]() { return (ptr == nullptr) || (end.calls > 0); });
        EXPECT_EQ((ptr == nullptr) ? UCS_INPROGRESS : UCS_ERR_CANCELED, end.status);
        EXPECT_LE(end.calls, 1);
    }
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_ids(pair.sender().handle()));
    take_log();
}

INSTANTIATE_TEST_SUITE_P(all, rma_list, testing::ValuesIn(all_ways()), way_name);

} // namespace
