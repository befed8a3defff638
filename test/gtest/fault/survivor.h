/* Halyard: what the tests share in which a process dies by SIGKILL: the survivor with all that it
 * has under way with the victim, the victim, and a third process that must notice nothing.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_FAULT_SURVIVOR_H
#define TEST_GTEST_FAULT_SURVIVOR_H

#include "companion.h"

#include <mp/node.h>
#include <mp/snapshot.h>
#include <ucp/internals.h>

#include <cstdlib>
#include <unistd.h>

namespace kill_test {

using mp::companion;
using mp::node;
using mp::processes;
using mp::self;

constexpr unsigned SURVIVOR  = 0;
constexpr unsigned VICTIM    = 1;
constexpr unsigned THIRD     = 2;
constexpr unsigned PROCESSES = 3;

constexpr size_t   LARGE       = 24u << 20;
constexpr uint64_t TAG_READY   = 0x1000;
constexpr uint64_t TAG_LARGE   = 0x1001;
constexpr uint64_t TAG_NOBODYS = 0x1002; /* nobody sends it */
constexpr uint64_t TAG_EAGER   = 0x1003;

/* Words of the survivor's slot. */
enum {
    WORD_KILL, /* the victim is to be killed */
    WORD_OVER  /* the third process may end */
};
/* Word of the victim's slot: it is dead. */
constexpr unsigned WORD_DEATH = 0;
/* Another one: the victim's message is on its way. */
constexpr unsigned WORD_SENT  = 1;

inline double bound_s()
{
    return 1.0 * mp::slowness();
}

/* What the survivor has under way. */
class survivor {
public:
    survivor(self &me) : m_me(me), m_node(me)
    {
        m_node.publish();
        m_third     = std::make_unique<companion>(m_node, m_node.connect(THIRD), true);
        m_buffer    = std::vector<uint8_t>(LARGE);
        m_receiving = std::vector<uint8_t>(LARGE);
        mp::fill(m_buffer.data(), LARGE, TAG_LARGE);
    }

    node &n()
    {
        return m_node;
    }

    /* Progress, with the third process's traffic going on. */
    void turn()
    {
        m_third->turn();
    }

    template <typename condition_t>
    void until(const condition_t &condition)
    {
        m_third->until(condition);
    }

    template <typename condition_t>
    bool until(const condition_t &condition, double seconds)
    {
        return m_third->until(condition, seconds);
    }

    void connect_victim()
    {
        m_ep = m_node.connect(VICTIM);
    }

    void hear_from_victim()
    {
        char byte;

        m_me.waits_for("the first message of the victim");
        ucs_status_ptr_t request = m_node.recv(&byte, 1, TAG_READY);
        until([&]() { return ucp_request_is_completed(request); });
        EXPECT_EQ(UCS_OK, m_node.wait(request));
    }

    /* Without progress. A receive that is posted before has no more to do with the victim than with
     * anybody else, until the victim's message is there. */
    void await_message_of_victim()
    {
        m_me.waits_for("the victim's message to be on its way");
        while (m_me.at(VICTIM).words[WORD_SENT] == 0) {
            usleep(100);
        }
    }

    void send(size_t length, uint64_t tag)
    {
        keep(m_node.send(m_ep, m_buffer.data(), length, tag));
    }

    void send_sync(size_t length, uint64_t tag)
    {
        const ucp_request_param_t param = {};

        keep(ucp_tag_send_sync_nbx(m_ep, m_buffer.data(), length, tag, &param));
    }

    void flush()
    {
        const ucp_request_param_t param = {};

        keep(ucp_ep_flush_nbx(m_ep, &param));
    }

    void recv(uint64_t tag)
    {
        keep(m_node.recv(m_receiving.data(), LARGE, tag));
        m_recv = m_requests.back();
    }

    size_t in_flight() const
    {
        size_t count = 0;

        for (ucs_status_ptr_t request : m_requests) {
            count += !ucp_request_is_completed(request);
        }
        return count;
    }

    /* Has the victim killed, and sees what comes of it. */
    void kill_victim(bool is_handler_due = true)
    {
        m_me.own().words[WORD_KILL] = 1;
        m_me.waits_for("the victim's death");
        until([this]() { return m_me.at(VICTIM).words[WORD_DEATH] != 0; });
        const uint64_t rounds = m_third->rounds();

        m_me.waits_for("requests with the dead: %zu of %zu", in_flight(), m_requests.size());
        ASSERT_TRUE(until([this]() { return in_flight() == 0; }, bound_s()))
            << in_flight() << " requests did not end within " << bound_s() << " s";
        check_requests();

        if (is_handler_due) {
            m_me.waits_for("the error handler");
            EXPECT_TRUE(until([this]() { return m_node.errors(m_ep).count > 0; }, bound_s()))
                << "no error handler was called";
            EXPECT_TRUE(UCS_STATUS_IS_ERR(m_node.errors(m_ep).status));
        }
        m_me.waits_for("messages of the third process to get through");
        until([&]() { return m_third->rounds() >= rounds + 50; });
    }

    /* How the requests have ended. */
    void check_requests()
    {
        for (ucs_status_ptr_t request : m_requests) {
            const ucs_status_t status = ucp_request_check_status(request);

            m_failed += (status != UCS_OK);
            if ((request == m_recv) && (status == UCS_OK)) {
                EXPECT_EQ(-1, mp::find_difference(m_receiving.data(), LARGE, TAG_LARGE));
            }
            ucp_request_free(request);
        }
        m_requests.clear();
    }

    /* Calls on the endpoint of the dead peer return an error at once. */
    void expect_dead_end()
    {
        const ucp_request_param_t param = {};

        for (size_t length : {(size_t)0, (size_t)8, (size_t)4000, (size_t)100000, LARGE}) {
            EXPECT_TRUE(UCS_PTR_IS_ERR(m_node.send(m_ep, m_buffer.data(), length, 1)))
                << length << " bytes";
            EXPECT_TRUE(UCS_PTR_IS_ERR(
                ucp_tag_send_sync_nbx(m_ep, m_buffer.data(), length, 1, &param)))
                << length << " bytes, sync";
        }
        EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_ep_flush_nbx(m_ep, &param)));
    }

    /* How many requests ended with an error. */
    size_t failed() const
    {
        return m_failed;
    }

    void end(bool is_handler_due = true)
    {
        const uint64_t rounds = m_third->rounds();

        EXPECT_EQ(is_handler_due ? 1u : 0u, m_node.errors(m_ep).count);
        m_node.close(m_ep);
        until([&]() { return m_third->rounds() >= rounds + 50; });
        EXPECT_EQ(is_handler_due ? 1u : 0u, m_node.errors(m_ep).count);
        EXPECT_EQ(0u, m_node.errors(m_node.ep(THIRD)).count);
        m_third->end_first();
        m_me.own().words[WORD_OVER] = 1;
        m_me.waits_for("the third process's end");
        m_node.until([this]() { return m_me.at(THIRD).words[WORD_OVER] != 0; });
        EXPECT_EQ(0u, ucp_test_num_requests(m_node.worker()));
        EXPECT_EQ(0u, ucp_test_num_ids(m_node.worker()));
        EXPECT_EQ(0u, ucp_test_num_controls(m_node.worker()));
        EXPECT_EQ(0u, ucp_test_num_kept_data(m_node.worker()));
    }

    ucp_ep_h ep() const
    {
        return m_ep;
    }

    /* LARGE bytes that fill() made by TAG_LARGE. */
    const uint8_t *large() const
    {
        return m_buffer.data();
    }

    void keep(ucs_status_ptr_t request)
    {
        if (UCS_PTR_IS_ERR(request)) {
            ++m_failed; /* the news of the death has come already */
        } else if (request != nullptr) {
            m_requests.push_back(request);
        }
    }

private:
    self                         &m_me;
    node                          m_node;
    std::unique_ptr<companion>    m_third;
    ucp_ep_h                      m_ep = nullptr;
    std::vector<uint8_t>          m_buffer;
    std::vector<uint8_t>          m_receiving;
    std::vector<ucs_status_ptr_t> m_requests;
    ucs_status_ptr_t              m_recv   = nullptr;
    size_t                        m_failed = 0;
};

inline void third(self &me)
{
    node n(me);

    n.publish();
    companion c(n, n.connect(SURVIVOR), false);
    me.waits_for("messages of the survivor");
    while (me.at(SURVIVOR).words[WORD_OVER] == 0) {
        n.progress();
        c.step();
    }
    c.end_second();
    EXPECT_EQ(0u, n.errors(n.ep(SURVIVOR)).count);
    me.own().words[WORD_OVER] = 1;
}

inline void say_ready(self &me, node &n)
{
    char byte = 1;

    n.publish();
    n.connect(SURVIVOR);
    me.waits_for("the first message to leave");
    EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(SURVIVOR), &byte, 1, TAG_READY)));
}

inline void sleep_until_killed(self &me)
{
    me.waits_for("its death, without progress");
    for (;;) {
        pause();
    }
}

inline void progress_until_killed(self &me, node &n)
{
    me.waits_for("its death, in progress");
    for (;;) {
        n.progress();
    }
}

/* Kills the victim when the survivor asks for it. */
inline void run(const std::function<void(self &)> &survivor_func,
                const std::function<void(self &)> &victim_func)
{
    processes all(PROCESSES);

    all.start(SURVIVOR, survivor_func);
    all.start(VICTIM, victim_func);
    all.start(THIRD, third);
    if (all.until([&]() { return all.at(SURVIVOR).words[WORD_KILL] != 0; },
                  "the survivor to be ready")) {
        all.kill_now(VICTIM);
        all.at(VICTIM).words[WORD_DEATH] = 1;
    }
    EXPECT_TRUE(all.join());
    EXPECT_LE(all.log_lines(), 3u) << all.log();
    EXPECT_EQ(std::string::npos, all.log().find("ERROR")) << all.log();
    EXPECT_EQ(std::set<std::string>(),
              mp::leftovers({all.first_pid(0), all.first_pid(1), all.first_pid(2)}));
}

} // namespace kill_test

#endif
