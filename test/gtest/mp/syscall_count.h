/* Halyard: counts the system calls of a piece of code, really made by whatever it calls.
 *
 * The kernel hands each system call of this thread back as a signal (syscall user dispatch, Linux
 * 5.11), whose handler counts it and makes it. Not for code that starts threads or forks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_SYSCALL_COUNT_H
#define TEST_GTEST_MP_SYSCALL_COUNT_H

#include <functional>
#include <string>

namespace mp {

/* Runs func. Returns the number of system calls, or -1 and why they cannot be counted here;
 * *numbers_p: which ones, as text. */
long count_syscalls(const std::function<void()> &func, std::string *numbers_p);

} // namespace mp

#endif
