/* Halyard: makes the system hostile to the process that calls: system calls refused, little shared
 * memory. All of it holds for the rest of the process's life, so call it in a forked one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_RESTRICT_H
#define TEST_GTEST_MP_RESTRICT_H

#include <cstddef>
#include <string>
#include <vector>

namespace mp {

/* These system calls fail with `error` from now on, as under a container's seccomp filter. Returns
 * an empty string, or why it cannot be had. */
std::string deny_syscalls(const std::vector<long> &numbers, int error);

/* A /dev/shm of our own with room for `bytes` (0: one that cannot be written to), and System V
 * shared memory of our own. Returns an empty string, or why it cannot be had (it takes root). */
std::string private_shared_memory(size_t bytes);

/* A /dev/shm and a /tmp of our own, empty, and System V shared memory of our own. Returns as
 * above. */
std::string private_places();

/* No System V segment may be larger than `bytes`; after private_shared_memory. */
std::string limit_sysv(size_t bytes);

} // namespace mp

#endif
