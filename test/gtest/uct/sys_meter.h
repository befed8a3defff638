/* Halyard: counts what a test takes from the system and what it gives back.
 *
 * While a meter lives, ucs_sys is a table that forwards to the real one and keeps the books of
 * private memory; descriptors and shared mappings are read from /proc.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_SYS_METER_H
#define TEST_GTEST_UCT_SYS_METER_H

#include <cstddef>
#include <string>
#include <vector>

namespace uct_test {

class sys_meter {
public:
    sys_meter();
    ~sys_meter();
    sys_meter(const sys_meter &) = delete;
    sys_meter &operator=(const sys_meter &) = delete;

    /* Blocks of private memory that are allocated now. */
    size_t blocks() const;

    /* Calls since the meter was made, but for those about private memory and the clock. */
    size_t system_calls() const;

    /* Open descriptors: where each leads. */
    static std::vector<std::string> descriptors();

    /* Mappings shared with other processes: what each maps. */
    static std::vector<std::string> shared_mappings();
};

} // namespace uct_test

#endif
