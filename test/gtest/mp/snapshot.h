/* Halyard: what a process has of the system's resources, and what processes left behind: to be
 * compared before and after.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_SNAPSHOT_H
#define TEST_GTEST_MP_SNAPSHOT_H

#include <csignal>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace mp {

/* What a guest must leave as it was. */
struct process_state {
    std::set<std::string>         descriptors; /* number and what it is */
    std::set<std::string>         threads;     /* ids and names */
    std::vector<struct sigaction> actions;     /* of all signals */
    sigset_t                      mask;
    std::map<std::string, std::string> others; /* umask, limits, environment, working folder */

    process_state();
};

/* Expects that nothing has changed; `what` names the step that lies between. */
void expect_same_state(const process_state &before, const process_state &after, const char *what);

/* Number of mappings of this process (under a sanitizer of those that are shared, since its runtime
 * maps private memory as it likes), and of its open descriptors. */
size_t count_mappings();
size_t count_descriptors();

/* What outlives processes: names of ours in /dev/shm, and System V segments that one of `creators`
 * made. */
std::set<std::string> leftovers(const std::set<int> &creators);

/* All names in /dev/shm and /tmp, and all System V segments: for a place of one's own
 * (private_places), since other programs make names too. */
std::set<std::string> all_names();

/* Memory of this process in bytes, from /proc/self/smaps. */
struct memory_use {
    size_t shared_size;  /* shared memory that is mapped: memfd, /dev/shm, System V */
    size_t shared_used;  /* its pages that are there for this process */
    size_t anonymous;    /* private pages that are there */
};
memory_use memory_of_self();

/* Bytes that the open memfds of this process hold. */
size_t shared_memory_made();

} // namespace mp

#endif
