/* Halyard: calls to the system that a test replaces, for as long as this lives: also where an
 * assertion ends the test.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_FAKE_SYS_H
#define TEST_GTEST_FAKE_SYS_H

#include <ucs/sys/sys.h>

class fake_sys {
public:
    explicit fake_sys(const ucs_sys_ops_t &ops) : m_ops(ops)
    {
        ucs_sys_set(&m_ops);
    }

    ~fake_sys()
    {
        ucs_sys_set(nullptr);
    }

    fake_sys(const fake_sys &)            = delete;
    fake_sys &operator=(const fake_sys &) = delete;

private:
    const ucs_sys_ops_t m_ops;
};

#endif
