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

/* Two processes run with a fault by which the k-th single copy is refused with an error, or it and
 * all that follow. They run well all the same, and say little. */
template <typename run_t>
void refuse_single_copies(const std::vector<unsigned> &counts, const char *error, const run_t &run)
{
    for (const char *more : {"", "+"}) {
        for (unsigned k : counts) {
            processes both(2);
            both.start_all([&](self &me) { run(me, std::to_string(k) + more + ":" + error); });
            EXPECT_TRUE(both.join()) << "copy " << k << more;
            EXPECT_LE(both.log_lines(), 4u) << both.log();
            if (testing::Test::HasFailure()) {
                return;
            }
        }
    }
}

} // namespace mp

#endif
