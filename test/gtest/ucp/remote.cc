/* Halyard: what the tests of puts, gets and atomics share.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/remote.h>
#include <uct/world.h>

#include <cstring>

namespace ucp_test {

mapping::mapping(const context &context, size_t length, void *data, unsigned prot) :
    m_context(context.handle())
{
    ucp_mem_map_params_t params;
    ucp_mem_attr_t attr;

    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.address    = data;
    params.length     = length;
    params.flags      = (data == nullptr) ? UCP_MEM_MAP_ALLOCATE : 0;
    if (prot != PROT_ALL) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.prot        = prot;
    }
    EXPECT_EQ(UCS_OK, ucp_mem_map(m_context, &params, &m_handle));
    if (m_handle != nullptr) {
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        EXPECT_EQ(UCS_OK, ucp_mem_query(m_handle, &attr));
        m_data = static_cast<uint8_t *>(attr.address);
    }
}

mapping::~mapping()
{
    unmap();
}

void mapping::unmap()
{
    if (m_handle != nullptr) {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_context, m_handle));
        m_handle = nullptr;
    }
}

bytes mapping::packed() const
{
    void *buffer  = nullptr;
    size_t length = 0;
    EXPECT_EQ(UCS_OK, ucp_rkey_pack(m_context, m_handle, &buffer, &length));
    const auto *start = static_cast<const uint8_t *>(buffer);
    bytes copy(start, start + length);
    ucp_rkey_buffer_release(buffer);
    return copy;
}

key::key(ucp_ep_h ep, const bytes &packed) :
    m_status(ucp_ep_rkey_unpack(ep, packed.data(), &m_handle))
{
}

key::~key()
{
    if (m_handle != nullptr) {
        ucp_rkey_destroy(m_handle);
    }
}

void need_network_reads()
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "no libfabric here";
    }
    if (!uct_test::network_has(UCT_OP_GET_ZCOPY)) {
        GTEST_SKIP() << "the network has no reads and writes, or they are not used";
    }
}

std::vector<way> all_ways()
{
    const auto SINGLE = UCS_THREAD_MODE_SINGLE;
    const auto MULTI  = UCS_THREAD_MODE_MULTI;

    std::vector<way> ways = {
        {{"self_allocated", {{"UCX_TLS", "self"}}, true, SINGLE}, true, true},
        {{"self_heap", {{"UCX_TLS", "self"}}, true, SINGLE}, false, true},
        {{"self_and_mm", {}, true, MULTI}, true, true},
        {{"mapped", {{"UCX_TLS", "mm"}}, false, SINGLE}, true, true},
        {{"mapped_multi", {}, false, MULTI}, true, true},
        {{"mapped_fault", {{"UCX_TLS", "fault:mm,fault:cma"}}, false, SINGLE}, true, true},
        {{"copies", {}, false, SINGLE}, false, false},
        {{"copies_multi", {}, false, MULTI}, false, false},
        {{"copies_fault",
          {{"UCX_TLS", "fault:mm,fault:cma"}, {"UCX_HOOK_NO_RESOURCE", "0.5"}},
          false,
          SINGLE},
         false,
         false},
        {{"messages", {{"UCX_TLS", "mm"}}, false, SINGLE}, false, false},
        {{"messages_multi", {{"UCX_TLS", "mm"}}, false, MULTI}, false, false},
        {{"messages_small_rings",
          {{"UCX_TLS", "mm"}, {"UCX_MM_FIFO_SIZE", "64"}, {"UCX_MM_SEG_SIZE", "1k"}},
          false,
          SINGLE},
         false,
         false},
        {{"messages_fault",
          {{"UCX_TLS", "fault:mm"}, {"UCX_HOOK_NO_RESOURCE", "0.5"}},
          false,
          SINGLE},
         false,
         false},
        {{"messages_delay", {{"UCX_TLS", "delay:mm"}}, false, SINGLE}, false, false},
    };
    if (is_present("ofi")) {
        ways.push_back({{"network", {{"UCX_TLS", "ofi"}}, false, SINGLE}, false, false});
    }
    return ways;
}

std::string way_name(const testing::TestParamInfo<way> &info)
{
    return info.param.world.name;
}

remote::remote(const way &way, size_t length, unsigned prot) :
    m_pair(way.world, {RMA_FEATURES, 0, nullptr, nullptr}), m_bytes(way.is_allocated ? 0 : length),
    m_mapping(std::make_unique<mapping>(m_pair.ctx(), length,
                                        way.is_allocated ? nullptr : m_bytes.data(), prot)),
    m_key(std::make_unique<key>(m_pair.ep(), m_mapping->packed()))
{
    EXPECT_EQ(UCS_OK, m_key->status());
}

ucs_status_t remote::flush()
{
    const ucp_request_param_t param = {};
    return m_pair.wait(ucp_ep_flush_nbx(m_pair.ep(), &param));
}

ucs_status_ptr_t remote::put(const void *buffer, size_t length, size_t offset, uint32_t more_mask)
{
    ucp_request_param_t param = {};
    param.op_attr_mask        = more_mask;
    return ucp_put_nbx(m_pair.ep(), buffer, length, address(offset), rkey(), &param);
}

ucs_status_ptr_t remote::get(void *buffer, size_t length, size_t offset, uint32_t more_mask)
{
    ucp_request_param_t param = {};
    param.op_attr_mask        = more_mask;
    return ucp_get_nbx(m_pair.ep(), buffer, length, address(offset), rkey(), &param);
}

ucs_status_ptr_t remote::atomic(ucp_atomic_op_t op, const void *operand, size_t size, size_t offset,
                                void *reply, uint32_t more_mask)
{
    ucp_request_param_t param = {};
    param.op_attr_mask        = more_mask | UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype            = ucp_dt_make_contig(size);
    if (reply != nullptr) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer = reply;
    }
    return ucp_atomic_op_nbx(m_pair.ep(), op, operand, 1, address(offset), rkey(), &param);
}

} // namespace ucp_test
