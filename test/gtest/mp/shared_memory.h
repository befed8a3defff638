/* Halyard: tests of several processes: memory of one that another one reads and writes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_SHARED_MEMORY_H
#define TEST_GTEST_MP_SHARED_MEMORY_H

#include "node.h"

namespace mp {

/* A buffer of process 0 (gpu_buffer, host_buffer), that the others may read and write. */
class shared_memory {
public:
    template <typename buffer_t>
    shared_memory(node &n, unsigned index, buffer_t &target, size_t length) :
        m_node(n), m_address(reinterpret_cast<uintptr_t>(target.place(length))), m_packed(256)
    {
        constexpr uint64_t TAG = 77;

        if (index != 0) {
            EXPECT_EQ(UCS_OK, n.wait(n.recv(m_packed.data(), m_packed.size(), TAG)));
            memcpy(&m_address, m_packed.data(), sizeof(m_address));
            return;
        }
        ucp_mem_map_params_t map = {};
        void *buffer             = nullptr;
        size_t size              = 0;
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address    = target.memory();
        map.length     = target.size();
        EXPECT_EQ(UCS_OK, ucp_mem_map(n.context(), &map, &m_mem));
        EXPECT_EQ(UCS_OK, ucp_rkey_pack(n.context(), m_mem, &buffer, &size));
        memcpy(m_packed.data(), &m_address, sizeof(m_address));
        memcpy(m_packed.data() + sizeof(m_address), buffer, size);
        ucp_rkey_buffer_release(buffer);
        for (unsigned i = 1; i < n.count(); ++i) {
            EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(i), m_packed.data(), m_packed.size(), TAG)));
        }
    }

    ~shared_memory()
    {
        if (m_mem != nullptr) {
            EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_node.context(), m_mem));
        }
    }

    shared_memory(const shared_memory &) = delete;
    shared_memory &operator=(const shared_memory &) = delete;

    uint64_t address() const
    {
        return m_address;
    }

    ucp_rkey_h key(ucp_ep_h ep) const
    {
        ucp_rkey_h rkey = nullptr;

        EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(ep, m_packed.data() + sizeof(m_address), &rkey));
        return rkey;
    }

private:
    node &m_node;
    uint64_t m_address;
    std::vector<uint8_t> m_packed;
    ucp_mem_h m_mem = nullptr;
};

} // namespace mp

#endif
