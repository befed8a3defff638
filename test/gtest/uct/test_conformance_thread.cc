/* Halyard: conformance of transports: workers of several threads in one process.
 *
 * Each worker belongs to one thread. Runs over every transport that leads from one worker to
 * another, plain and under each hook; under ThreadSanitizer it looks into rings whose ends lie in
 * one process.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <seed.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <poll.h>
#include <thread>

using namespace uct_test;

namespace {

bool connects_workers(const uct_tl_t *tl)
{
    return (tl->kind != UCT_TL_KIND_SELF) && has_messages(tl);
}

class thread_test : public pair_test {
protected:
    void SetUp() override
    {
        pair_test::SetUp();
        if (IsSkipped() || HasFatalFailure()) {
            return;
        }
        m_there = a().connect(b().where());
        m_back  = b().connect(a().where());
    }

    /* One thread's part: sends `count` messages and receives as many. With `sleeps` it waits for
     * its descriptor whenever it has nothing to do. */
    void talk(worker &w, uct_ep_t *ep, unsigned count, bool sleeps, uint64_t seed)
    {
        std::mt19937_64 random(seed);
        const way how     = has_way(m_tl, way::SHORT) ? way::SHORT : way::BCOPY;
        const size_t max  = std::min<size_t>(way_max(w, how), 500);
        unsigned sent     = 0;
        unsigned received = 0;

        w.on_message(1, [&](const uint8_t *data, size_t length) {
            EXPECT_EQ(pattern(received, 8 + received % (max - 7)), bytes(data, data + length));
            ++received;
        });
        unsigned window = 1;
        while ((sent < count) || (received < count)) {
            const bool may_send = (sent < count) && (!sleeps || (sent < received + window));
            if (may_send &&
                (post(ep, how, 1, pattern(sent, 8 + sent % (max - 7)), 0) == UCS_OK)) {
                ++sent;
                window = 1 + random() % 8;
            }
            /* Nothing to send until something comes. The one who has sent less never sleeps with
             * nothing under way, so the two cannot sleep both. */
            if (w.progress() != 0) {
                continue;
            }
            if (!sleeps) {
                std::this_thread::yield();
            } else if (!may_send && (received < count) && !wait_armed(w)) {
                ADD_FAILURE() << "not woken for message " << received << ", sent " << sent;
                break;
            }
        }
        ++m_finished;
        while (m_finished < 2) { /* the other one may need our side of the connection */
            w.progress();
            std::this_thread::yield();
        }
    }

    static bool wait_armed(worker &w)
    {
        const int fd              = w.tl->iface.event_fd(w.iface);
        const ucs_status_t status = w.tl->iface.event_arm(w.iface);

        if (status == UCS_ERR_BUSY) {
            return true;
        }
        struct pollfd event = {fd, POLLIN, 0};
        return poll(&event, 1, LIMIT_S * 1000) == 1;
    }

    void run(unsigned count, bool sleeps)
    {
        std::thread other([&]() { talk(b(), m_back, count, sleeps, 2); });

        talk(a(), m_there, count, sleeps, 1);
        other.join();
        EXPECT_TRUE(a().failed.empty());
        EXPECT_TRUE(b().failed.empty());
    }

    uct_ep_t *m_there = nullptr, *m_back = nullptr;
    std::atomic<int> m_finished{0};
};

TEST_P(thread_test, two_threads_talk)
{
    run(5000, false);
}

TEST_P(thread_test, two_threads_talk_and_sleep)
{
    if (m_tl->iface.event_fd == nullptr) {
        GTEST_SKIP() << "the transport cannot be waited for";
    }
    run(5000, true);
}

/* Pairs of workers that share nothing but the process: opening, talking and closing at once. */
TEST_P(thread_test, threads_with_workers_of_their_own)
{
    std::vector<std::thread> threads;
    const uct_tl_t *tl = m_tl;
    const way how      = has_way(tl, way::SHORT) ? way::SHORT : way::BCOPY;

    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([tl, how, t]() {
            for (unsigned round = 0; round < 5; ++round) {
                worker first(tl), second(tl);
                unsigned received = 0;
                ASSERT_EQ(UCS_OK, first.status());
                ASSERT_EQ(UCS_OK, second.status());
                uct_ep_t *ep = first.connect(second.where());
                second.on_message(1, [&](const uint8_t *data, size_t length) {
                    EXPECT_EQ(pattern(received + t, 40), bytes(data, data + length));
                    ++received;
                });
                for (unsigned i = 0; i < 200; ++i) {
                    ASSERT_EQ(UCS_OK, send({&first, &second}, ep, how, 1, pattern(i + t, 40)));
                }
                EXPECT_TRUE(run_until({&first, &second}, [&]() { return received == 200; }));
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

INSTANTIATE_TEST_SUITE_P(transports, thread_test, testing::ValuesIn(transports(connects_workers)),
                         test_name);

} // namespace
