/* Halyard: tests of a network's receive buffers: more comes than there is room for.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <ucp/world.h>
#include <ucs/sys/sys.h>

#include <algorithm>
#include <deque>
#include <poll.h>

using namespace ucp_test;

namespace {

class ofi_receives : public testing::Test {
protected:
    static constexpr unsigned NUM_SENDERS = 16, NUM_SHORT = 3;
    static constexpr size_t LONG = 130000; /* two fill a buffer */

    void SetUp() override
    {
        if (!is_present("ofi")) {
            GTEST_SKIP() << "no libfabric here";
        }
        /* What is silent for long would be asked, which by chance has the rest come. */
        m_environment.set({{"UCX_TLS", "ofi"}, {"UCX_OFI_TIMEOUT", "300s"}});
        m_context  = std::make_unique<context>(
            context_options{UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, 0, nullptr, nullptr});
        m_receiver = std::make_unique<worker>(*m_context);
        for (unsigned i = 0; i < NUM_SENDERS; ++i) {
            m_senders.push_back(std::make_unique<worker>(*m_context));
            m_eps.push_back(m_senders.back()->connect(*m_receiver));
            post(i, 8, 1);
        }
        ASSERT_TRUE(receive_all([] {}));
    }

    void TearDown() override
    {
        m_senders.clear();
        m_receiver.reset();
    }

    /* A message of one sender, and the receive of it. */
    void post(unsigned sender, size_t length, unsigned count)
    {
        for (unsigned i = 0; i < count; ++i, ++m_number) {
            const auto param = send_param(nullptr);
            m_data.emplace_back(pattern(m_number, length), bytes(length));
            auto &message = m_data.back();
            m_requests.push_back(ucp_tag_send_nbx(m_eps[sender], message.first.data(), length,
                                                  m_number, &param));
            m_requests.push_back(ucp_tag_recv_nbx(m_receiver->handle(), message.second.data(),
                                                  length, m_number, ~0ull, &param));
        }
    }

    bool receive_all(const std::function<void()> &rest)
    {
        const auto is_open = [](void *request) {
            return UCS_PTR_IS_PTR(request) &&
                   (ucp_request_check_status(request) == UCS_INPROGRESS);
        };
        const uint64_t end_ns = ucs_sys_clock_ns() + 20000000000ull;
        while (std::any_of(m_requests.begin(), m_requests.end(), is_open)) {
            if (ucs_sys_clock_ns() > end_ns) {
                return false;
            }
            for (auto &sender : m_senders) {
                sender->progress();
            }
            rest();
            while (m_receiver->progress() > 0) {
            }
        }
        for (void *request : m_requests) {
            EXPECT_FALSE(UCS_PTR_IS_ERR(request));
            if (UCS_PTR_IS_PTR(request)) {
                EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
                ucp_request_free(request);
            }
        }
        m_requests.clear();
        for (auto &message : m_data) {
            EXPECT_EQ(message.first, message.second);
        }
        m_data.clear();
        return true;
    }

    /* Long ones fill the buffers while the receiver is away; behind each are short ones. */
    void send_to_who_is_away()
    {
        for (unsigned i = 0; i < NUM_SENDERS; ++i) {
            post(i, LONG, 1);
            post(i, 8, NUM_SHORT);
        }
        for (unsigned turn = 0; turn < 2000; ++turn) {
            for (auto &sender : m_senders) {
                sender->progress();
            }
        }
    }

    environment m_environment;
    std::unique_ptr<context> m_context;
    std::unique_ptr<worker> m_receiver;
    std::vector<std::unique_ptr<worker>> m_senders;
    std::vector<ucp_ep_h> m_eps;
    std::deque<std::pair<bytes, bytes>> m_data;
    std::vector<void *> m_requests;
    uint64_t m_number = 1;
};

/* All of it comes, though connections had to wait for room. */
TEST_F(ofi_receives, nobody_is_forgotten)
{
    for (int round = 0; round < 3; ++round) {
        send_to_who_is_away();
        ASSERT_TRUE(receive_all([] {})) << "round " << round;
    }
}

/* The same with a receiver that sleeps whenever it may. */
TEST_F(ofi_receives, nobody_is_forgotten_by_who_sleeps)
{
    struct pollfd fd = {-1, POLLIN, 0};
    unsigned slept   = 0;
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(m_receiver->handle(), &fd.fd));
    for (int round = 0; round < 3; ++round) {
        send_to_who_is_away();
        ASSERT_TRUE(receive_all([&] {
            if (ucp_worker_arm(m_receiver->handle()) == UCS_OK) {
                slept += (poll(&fd, 1, 1000) == 0);
            }
        })) << "round " << round;
    }
    EXPECT_EQ(0u, slept) << "times for a second, while all was there";
}

} // namespace

#endif
