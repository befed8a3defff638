/* Halyard: calls to the system that a test replaces, for as long as this lives: also where an
 * assertion ends the test.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_FAKE_SYS_H
#define TEST_GTEST_FAKE_SYS_H

#include <ucs/sys/sys.h>
#include <cstring>
#include <string>

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

/* As if the kernel had one class of the devices that write and read memory by themselves
 * (/sys/class/infiniband), or ("") none. */
class fake_networks {
public:
    explicit fake_networks(const std::string &shown) : m_fake(operations(shown))
    {
    }

private:
    static ucs_sys_ops_t operations(const std::string &shown)
    {
        static std::string is_shown;
        ucs_sys_ops_t ops = ucs_sys_real;
        is_shown          = shown;
        ops.open          = [](const char *path, int flags, mode_t mode) {
            const bool is_device = (strcmp(path, "/sys/class/infiniband") == 0) ||
                                   (strcmp(path, "/sys/class/cxi") == 0);
            return ucs_sys_real.open(!is_device ? path : (is_shown == path) ? "/" : "/nonesuch",
                                     flags, mode);
        };
        return ops;
    }

    const fake_sys m_fake;
};

#endif
