/* Halyard: tests of the loopback transport beyond what all transports must do.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <seed.h>
#include <ucp/world.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <poll.h>
#include <thread>

using namespace uct_test;
using ucp_test::environment;
using ucp_test::settings;

namespace {

TEST(self_test, segment_size_is_an_option)
{
    for (size_t size : {64u, 1024u, 65536u, 1u << 20}) {
        const environment seg_size(settings{{"UCX_SELF_SEG_SIZE", std::to_string(size)}});
        worker w(uct_tl_find("self"));
        ASSERT_EQ(UCS_OK, w.status());
        EXPECT_EQ(size, w.limits(UCT_OP_AM_BCOPY).max);
        EXPECT_EQ(size, w.limits(UCT_OP_AM_SHORT).max);

        uct_ep_t *ep = w.connect(w.where());
        std::deque<bytes> expected;
        w.on_message(1, [&](const uint8_t *data, size_t length) {
            ASSERT_EQ(expected.front(), bytes(data, data + length));
            expected.pop_front();
        });
        seeded_random rnd(size);
        for (unsigned i = 0; i < std::min<size_t>(300, (8u << 20) / size); ++i) {
            expected.push_back(pattern(i, rnd.one_in(2) ? size : 8 + rnd.below(size - 7)));
            ASSERT_EQ(UCS_OK, send({&w}, ep, WAYS[i % 3], 1, expected.back()));
        }
        EXPECT_TRUE(run_until({&w}, [&]() { return expected.empty(); }));
    }

    log_levels quiet("fatal");
    const std::pair<const char *, size_t> others[] = {{"1000", 1024}, {"32", 64}, {"1g", 16 << 20},
                                                      {"8256", 8192}, {"inf", 16 << 20}};
    for (const auto &[given, nearest] : others) {
        const environment seg_size(settings{{"UCX_SELF_SEG_SIZE", given}});
        worker w(uct_tl_find("self"));
        ASSERT_EQ(UCS_OK, w.status()) << given;
        EXPECT_EQ(nearest, w.limits(UCT_OP_AM_BCOPY).max) << given;
    }
    for (const char *wrong : {"-1", "", "x"}) {
        const environment seg_size(settings{{"UCX_SELF_SEG_SIZE", wrong}});
        worker w(uct_tl_find("self"));
        EXPECT_NE(UCS_OK, w.status()) << wrong;
    }
}

TEST(self_test, the_ring_is_made_when_it_is_needed)
{
    worker w(uct_tl_find("self"));
    size_t shared, before, after;

    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(w.where());
    w.tl->iface.memory_used(w.iface, &shared, &before);
    EXPECT_EQ(0u, shared);
    EXPECT_LE(before, 4096u);
    ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, 1, pattern(1, 8)));
    w.tl->iface.memory_used(w.iface, &shared, &after);
    EXPECT_GE(after - before, 32768u);
}

/* A handler that always answers itself does not keep progress from returning. */
TEST(self_test, an_endless_conversation_leaves_progress)
{
    worker w(uct_tl_find("self"));
    unsigned count = 0;

    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(w.where());
    w.on_message(1, [&](const uint8_t *data, size_t length) {
        ++count;
        EXPECT_EQ(UCS_OK, post(ep, way::BCOPY, 1, bytes(data, data + length), 0));
    });
    for (unsigned i = 0; i < 5; ++i) {
        ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, 1, pattern(i, 8)));
    }
    for (unsigned i = 1; i <= 100; ++i) {
        EXPECT_EQ(5u, w.progress());
        EXPECT_EQ(5u * i, count);
    }
}

/* What was sent before a connection has ended is delivered, or is not, and then its end is told. */
TEST(self_test, a_dropped_connection)
{
    worker w(uct_tl_find("self"));
    unsigned count = 0;

    ASSERT_EQ(UCS_OK, w.status());
    EXPECT_EQ(0, w.tl->iface.drop_peer(w.iface, w.uid.data(), 0));
    uct_ep_t *ep = w.connect(w.where());
    w.on_message(1, [&](const uint8_t *, size_t) {
        ++count;
        EXPECT_TRUE(w.gone.empty());
    });
    for (bool discard : {false, true}) {
        count = 0;
        w.gone.clear();
        for (unsigned i = 0; i < 100; ++i) {
            ASSERT_EQ(UCS_OK, send({&w}, ep, way::SHORT, 1, pattern(i, 8)));
        }
        const uid_bytes other = {1};
        EXPECT_EQ(0, w.tl->iface.drop_peer(w.iface, other.data(), discard));
        EXPECT_EQ(1, w.tl->iface.drop_peer(w.iface, w.uid.data(), discard));
        EXPECT_TRUE(w.gone.empty());
        EXPECT_EQ(UCS_ERR_BUSY, w.tl->iface.event_arm(w.iface));
        ASSERT_TRUE(run_until({&w}, [&]() { return !w.gone.empty(); }));
        EXPECT_EQ(discard ? 0u : 100u, count);
        w.progress();
        ASSERT_EQ(1u, w.gone.size());
        EXPECT_EQ(w.uid, w.gone[0]);
        EXPECT_EQ(UCS_OK, w.tl->iface.event_arm(w.iface));
    }
}

TEST(self_test, any_memory_without_key)
{
    worker w(uct_tl_find("self"));
    uint64_t target = 0, value = 77;
    const uct_iov_t iov = {&value, sizeof(value), nullptr};

    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(w.where());
    EXPECT_EQ(UCS_OK, ep->ops->put_zcopy(ep, &iov, 1, reinterpret_cast<uintptr_t>(&target), nullptr,
                                         nullptr));
    EXPECT_EQ(77u, target);
}

/* A thread sleeps on the descriptor while another one sends, both under one lock. */
TEST(self_test, a_sleeping_thread_is_woken)
{
    constexpr unsigned NUM_MESSAGES = 2000;
    worker w(uct_tl_find("self"), true);
    std::mutex lock;
    std::atomic<unsigned> received(0);

    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(w.where());
    const int fd = w.tl->iface.event_fd(w.iface);
    ASSERT_GE(fd, 0);
    w.on_message(1, [&](const uint8_t *, size_t) { ++received; });

    std::thread sender([&]() {
        seeded_random rnd(41);
        for (unsigned i = 0; i < NUM_MESSAGES; ++i) {
            for (;;) {
                std::lock_guard<std::mutex> guard(lock);
                if (post(ep, way::SHORT, 1, pattern(i, 8), 0) == UCS_OK) {
                    break;
                }
            }
            while (rnd.one_in(2) && (received <= i)) {
                std::this_thread::yield();
            }
        }
    });
    while (received < NUM_MESSAGES) {
        ucs_status_t status;
        {
            std::lock_guard<std::mutex> guard(lock);
            w.progress();
            status = w.tl->iface.event_arm(w.iface);
        }
        struct pollfd event = {fd, POLLIN, 0};
        if ((status == UCS_OK) && (received < NUM_MESSAGES) &&
            (poll(&event, 1, LIMIT_S * 1000) != 1)) {
            ADD_FAILURE() << "not woken for message " << received;
            break;
        }
    }
    sender.join();
}

} // namespace
