/* Halyard: tests of device memory: memory of the host in its place.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_HOST_BUFFER_H
#define TEST_GTEST_MP_HOST_BUFFER_H

#include "gpu.h"

namespace mp {

/* Memory of the host, as gpu_buffer. */
class host_buffer {
public:
    explicit host_buffer(size_t length) : m_bytes(length)
    {
    }

    uint8_t *memory()
    {
        return m_bytes.data();
    }

    size_t size() const
    {
        return m_bytes.size();
    }

    uint8_t *place(size_t)
    {
        return m_bytes.data();
    }

    void put(size_t length, uint64_t id)
    {
        if (id != 0) {
            fill(m_bytes.data(), length, id);
        }
    }

    void expect(size_t length, uint64_t id)
    {
        EXPECT_EQ(-1, find_difference(m_bytes.data(), length, id)) << length << " bytes";
    }

private:
    std::vector<uint8_t> m_bytes;
};

} // namespace mp

#endif
