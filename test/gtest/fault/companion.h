/* Halyard: a third process whose messages must go on while another one dies: a verified ping-pong
 * beside everything else.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_FAULT_COMPANION_H
#define TEST_GTEST_FAULT_COMPANION_H

#include <mp/node.h>

namespace mp {

/* One side of the ping-pong. Lengths alternate between eager and rendezvous. */
class companion {
public:
    /* The process that calls first sends first. */
    companion(node &n, ucp_ep_h ep, bool is_first) :
        m_node(n), m_ep(ep), m_is_my_turn(is_first), m_in(LENGTH_MAX), m_out(LENGTH_MAX)
    {
    }

    /* Takes a step if one is due. */
    void step()
    {
        if (m_is_my_turn) {
            if (!UCS_PTR_IS_PTR(m_send) || ucp_request_is_completed(m_send)) {
                send();
            }
            return;
        }
        if (m_recv == nullptr) {
            m_recv = m_node.recv(m_in.data(), m_in.size(), TAG);
        }
        if (ucp_request_is_completed(m_recv)) {
            check();
        }
    }

    /* Progress of the whole process, with this traffic going on. */
    void turn()
    {
        m_node.progress();
        step();
    }

    /* Turns until the condition is true. */
    template <typename condition_t>
    void until(const condition_t &condition)
    {
        while (!condition()) {
            turn();
        }
    }

    /* The same, but for seconds of this process at most; whether the condition came true. */
    template <typename condition_t>
    bool until(const condition_t &condition, double seconds)
    {
        own_time time;

        while (!condition()) {
            if (time.s() > seconds) {
                return false;
            }
            turn();
        }
        return true;
    }

    /* Messages of the other side that were received and right. */
    uint64_t rounds() const
    {
        return m_rounds;
    }

    /* No more; for the one that was first, before the other: it ends when it has the turn, so that
     * nothing is under way. */
    void pause_first()
    {
        m_node.until([this]() {
            if (!m_is_my_turn) {
                step();
            }
            return m_is_my_turn;
        });
        EXPECT_EQ(UCS_OK, m_node.wait(m_send));
        m_send = nullptr;
    }

    /* The same, and closes the endpoint. */
    void end_first()
    {
        pause_first();
        m_node.close(m_ep);
    }

    void end_second()
    {
        EXPECT_EQ(UCS_OK, m_node.wait(m_send));
        if (m_recv != nullptr) {
            ucp_request_cancel(m_node.worker(), m_recv);
            EXPECT_EQ(UCS_ERR_CANCELED, m_node.wait(m_recv));
        }
        m_node.close(m_ep);
    }

private:
    static constexpr uint64_t TAG        = 0xc0ffee;
    static constexpr size_t   LENGTH_MAX = 40000;

    static size_t length_of(uint64_t number)
    {
        return (number % 5 == 4) ? LENGTH_MAX - (number % 7) : (number * 37) % 600;
    }

    void send()
    {
        const size_t length = length_of(m_number);

        (void)m_node.wait(m_send); /* frees it */
        mp::fill(m_out.data(), length, m_number);
        m_send = m_node.send(m_ep, m_out.data(), length, TAG);
        ASSERT_FALSE(UCS_PTR_IS_ERR(m_send));
        ++m_number;
        m_is_my_turn = false;
    }

    void check()
    {
        const size_t length = length_of(m_number);
        ucp_tag_recv_info_t info;

        EXPECT_EQ(UCS_OK, ucp_tag_recv_request_test(m_recv, &info));
        EXPECT_EQ(length, info.length) << "message " << m_number;
        EXPECT_EQ(-1, mp::find_difference(m_in.data(), length, m_number));
        ucp_request_free(m_recv);
        m_recv = nullptr;
        ++m_number;
        ++m_rounds;
        m_is_my_turn = true;
    }

    node                &m_node;
    ucp_ep_h             m_ep;
    bool                 m_is_my_turn;
    std::vector<uint8_t> m_in;
    std::vector<uint8_t> m_out;
    ucs_status_ptr_t     m_send   = nullptr;
    ucs_status_ptr_t     m_recv   = nullptr;
    uint64_t             m_number = 0; /* of the message that comes next, either way */
    uint64_t             m_rounds = 0;
};

} // namespace mp

#endif
