/* Halyard: fixture for tests with a process on each of several hosts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_JOINED_HOSTS_H
#define TEST_GTEST_MP_JOINED_HOSTS_H

#include <mp/hosts.h>
#include <mp/node.h>
#include <ucp/world.h>

#include <gtest/gtest.h>

#include <vector>

namespace mp {

constexpr double TIMEOUT_S = 2; /* UCX_OFI_TIMEOUT */

/* Seconds of a process in which it hears of a loss. */
inline double news_s()
{
    return (TIMEOUT_S + 2) * slowness();
}

/* Words on the board. */
enum { STAGE, LOST, LAST };

class joined_hosts : public testing::Test {
protected:
    explicit joined_hosts(const char *provider, const network &what = {});

    void SetUp() override;

    void start(unsigned index, const processes::body &func);
    void start_all(const processes::body &func);

    /* Until all of them have come to a stage. */
    bool all_at(uint64_t stage);

    /* Process 1 is killed, or its host's cable cut, amid what func begins. */
    void lose_amid(const processes::body &func, bool is_killed);

    /* Who computes answers nobody, and still is there. */
    void wait_for_a_busy_one(const char *timeout, double busy_s);

    ucp_test::environment m_environment;
    hosts m_hosts;
    processes m_members;
    const unsigned m_count;
    const char *const m_provider;
};

/* Sends and receives one message each way. */
void exchange(node &n, unsigned me, size_t length, uint64_t tag);

/* Closes the endpoint to the other one, which does the same. */
void leave(node &n, unsigned other);

/* Memory that the other side has the key of, and the other way round. */
struct window {
    window(node &n, unsigned other, std::vector<uint8_t> &memory);

    ucp_mem_h memh;
    ucp_rkey_h rkey;
    uint64_t there = 0; /* address of the other side's */
};

} // namespace mp

#endif
