/* Halyard: what the tests of puts, gets and atomics share: memory of the receiver with a key of the
 * sender, and the ways that operations on it can take.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCP_REMOTE_H
#define TEST_GTEST_UCP_REMOTE_H

#include <ucp/world.h>

namespace ucp_test {

constexpr uint64_t RMA_FEATURES = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 |
                                  UCP_FEATURE_TAG;

constexpr unsigned PROT_ALL = ~0u; /* nothing said */

/* Registered memory: of the library where `data` is NULL, else of the user. */
class mapping {
public:
    mapping(const context &context, size_t length, void *data = nullptr, unsigned prot = PROT_ALL);
    ~mapping();
    mapping(const mapping &)            = delete;
    mapping &operator=(const mapping &) = delete;

    uint8_t *data() const
    {
        return m_data;
    }
    uint64_t address(size_t offset = 0) const
    {
        return reinterpret_cast<uintptr_t>(m_data) + offset;
    }
    ucp_mem_h handle() const
    {
        return m_handle;
    }
    bytes packed() const;
    void unmap();

private:
    ucp_context_h m_context;
    ucp_mem_h m_handle = nullptr;
    uint8_t *m_data    = nullptr;
};

/* A key; NULL where it could not be unpacked, whose status is then not UCS_OK. */
class key {
public:
    key(ucp_ep_h ep, const bytes &packed);
    ~key();
    key(const key &)            = delete;
    key &operator=(const key &) = delete;

    ucp_rkey_h get() const
    {
        return m_handle;
    }
    ucs_status_t status() const
    {
        return m_status;
    }

private:
    ucp_rkey_h m_handle = nullptr;
    ucs_status_t m_status;
};

/* A way to the memory. */
struct way {
    variant world;
    bool is_allocated; /* by the library, so that peers map it */
    bool is_direct;    /* inside the call, without the target */
};

std::vector<way> all_ways();

/* For SetUp: skips the test where no network makes reads and writes by itself. */
void need_network_reads();
std::string way_name(const testing::TestParamInfo<way> &info);

inline void PrintTo(const way &value, std::ostream *out)
{
    *out << value.world.name;
}

/* Two workers, or one, with memory of the receiver that the sender has a key of. */
class remote {
public:
    explicit remote(const way &way, size_t length = 1 << 20, unsigned prot = PROT_ALL);

    pair &world()
    {
        return m_pair;
    }
    uint8_t *data() const
    {
        return m_mapping->data();
    }
    uint64_t address(size_t offset = 0) const
    {
        return m_mapping->address(offset);
    }
    ucp_rkey_h rkey() const
    {
        return m_key->get();
    }
    mapping &memory()
    {
        return *m_mapping;
    }
    ucs_status_t flush();
    ucs_status_ptr_t put(const void *buffer, size_t length, size_t offset, uint32_t more_mask = 0);
    ucs_status_ptr_t get(void *buffer, size_t length, size_t offset, uint32_t more_mask = 0);
    ucs_status_ptr_t atomic(ucp_atomic_op_t op, const void *operand, size_t size, size_t offset,
                            void *reply, uint32_t more_mask = 0);

private:
    pair m_pair;
    bytes m_bytes; /* where the memory is the user's */
    std::unique_ptr<mapping> m_mapping;
    std::unique_ptr<key> m_key;
};

class way_test : public testing::TestWithParam<way> {
protected:
    std::vector<std::string> take_log()
    {
        return m_log.take();
    }

private:
    log_catcher m_log;
};

} // namespace ucp_test

#endif
