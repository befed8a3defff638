/* Halyard: tests of what receivers learn of long messages: the rules under a clock of their own,
 * and senders that were asked for messages and are away.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <fake_sys.h>
#include <seed.h>
#include <ucp/api/ucp.h>
#include <ucp/world.h>
#include <ucs/sys/sys.h>

extern "C" {
#include <ucp/proto/learn.h>
}

#include <algorithm>
#include <deque>
#include <memory>
#include <sys/uio.h>
#include <unistd.h>

using namespace ucp_test;

namespace {

uint64_t g_now_ns;

/* Messages of a trial: the first one's end begins its first run. */
constexpr unsigned TRIAL      = (UCP_LEARN_RUNS * UCP_LEARN_RUN_MIN) + 1;
constexpr unsigned TRIAL_LONG = UCP_LEARN_RUNS + 1; /* of RUN_BYTES each */

/* Receivers of messages whose cost by each way is known. */
class learning : public testing::Test {
protected:
    void SetUp() override
    {
        g_now_ns       = 1000000;
        m_ops          = ucs_sys_real;
        m_ops.clock_ns = []() -> uint64_t { return g_now_ns; };
        ucs_sys_set(&m_ops);
    }

    void TearDown() override
    {
        ucs_sys_set(nullptr);
    }

    ucp_way_t choose(size_t length)
    {
        int changed   = 0;
        ucp_way_t way = ucp_learn_choose(&m_learn, length, m_ways, m_predicted, &changed);
        m_changes += changed;
        ++m_by[way];
        return way;
    }

    /* One after the other: each moves alone. */
    ucp_way_t exchange(size_t length)
    {
        const ucp_way_t way   = choose(length);
        ucp_learn_turn_t turn = {};
        ucp_learn_begin(&m_learn, &turn, length, way);
        g_now_ns += m_cost_ns[way];
        ucp_learn_end(&m_learn, &turn, length);
        g_now_ns += 300; /* whatever else */
        return way;
    }

    /* A window of messages: they wait for each other. */
    void stream(size_t length, unsigned window, unsigned count)
    {
        std::deque<ucp_learn_turn_t> turns;
        for (unsigned i = 0; i < count + window; ++i) {
            if (turns.size() == window) {
                g_now_ns += m_cost_ns[turns.front().way];
                ucp_learn_end(&m_learn, &turns.front(), length);
                turns.pop_front();
            }
            if (i < count) {
                turns.emplace_back();
                ucp_learn_begin(&m_learn, &turns.back(), length, choose(length));
            }
        }
        while (!turns.empty()) {
            g_now_ns += m_cost_ns[turns.front().way];
            ucp_learn_end(&m_learn, &turns.front(), length);
            turns.pop_front();
        }
    }

    /* A window of messages, as they really go: those sent as messages one after the other, while
     * copies are made in turns, a part of each, and so all end at the same time. With pauses the
     * window is begun anew when all of it has ended, and a single message may go between. */
    enum pauses { NONE, SILENT, ONE_BETWEEN };

    void rounds(size_t length, unsigned window, unsigned count, pauses pauses)
    {
        std::deque<ucp_learn_turn_t> turns, next;
        for (unsigned i = 0; i < count;) {
            while (turns.size() < window) {
                turns.emplace_back();
                ucp_learn_begin(&m_learn, &turns.back(), length, choose(length));
            }
            uint64_t copies_ns = 0;
            for (auto &turn : turns) {
                copies_ns += (turn.way != UCP_WAY_MESSAGES) ? m_cost_ns[turn.way] : 0;
            }
            const auto is_message = [](const ucp_learn_turn_t &turn) {
                return turn.way == UCP_WAY_MESSAGES;
            };
            if (m_random != nullptr) {
                for (size_t k = turns.size(); k > 1; --k) {
                    std::swap(turns[k - 1], turns[m_random->below(k)]);
                }
                copies_ns = (copies_ns * (m_is_ahead ? 2 : 8)) / 5;
                m_is_ahead = !m_is_ahead;
            }
            std::stable_partition(turns.begin(), turns.end(), is_message);
            for (auto &turn : turns) {
                g_now_ns += is_message(turn) ? m_cost_ns[turn.way] : copies_ns;
                copies_ns = is_message(turn) ? copies_ns : 1; /* the others' ends follow at once */
                ucp_learn_end(&m_learn, &turn, length);
                if (pauses == NONE) {
                    next.emplace_back();
                    ucp_learn_begin(&m_learn, &next.back(), length, choose(length));
                }
            }
            i += window;
            turns.swap(next);
            next.clear();
            g_now_ns += (pauses != NONE) ? 700 : 0;
            if (pauses == ONE_BETWEEN) {
                exchange(length);
            }
        }
        for (auto &turn : turns) {
            g_now_ns += m_cost_ns[turn.way];
            ucp_learn_end(&m_learn, &turn, length);
        }
    }

    /* Messages until each buffer of a ring has been used again. */
    static unsigned lap(size_t length)
    {
        return (length < UCP_LEARN_MIN) ? 0 : static_cast<unsigned>(UCP_LEARN_LAP / length);
    }

    /* The way in use for most of the next ones. */
    ucp_way_t settled(size_t length, unsigned count = 4096)
    {
        std::fill(std::begin(m_by), std::end(m_by), 0);
        for (unsigned i = 0; i < count; ++i) {
            exchange(length);
        }
        return static_cast<ucp_way_t>(std::max_element(std::begin(m_by), std::end(m_by)) -
                                      std::begin(m_by));
    }

    ucs_sys_ops_t m_ops;
    ucp_learn_t m_learn             = {};
    unsigned m_ways                 = (1u << UCP_WAYS) - 1;
    ucp_way_t m_predicted           = UCP_WAY_BOTH;
    uint64_t m_cost_ns[UCP_WAYS]    = {2500, 2000, 700};
    unsigned m_by[UCP_WAYS]         = {};
    int m_changes                   = 0;
    std::unique_ptr<seeded_random> m_random; /* orders what ends at once; a side is ahead then */
    bool m_is_ahead                 = false;
};

TEST_F(learning, takes_the_faster_way_whatever_was_predicted)
{
    for (auto predicted : {UCP_WAY_READ, UCP_WAY_BOTH, UCP_WAY_MESSAGES}) {
        m_predicted = predicted;
        for (uint64_t messages_ns : {700, 1850, 2150, 9000}) {
            m_learn                     = {};
            m_cost_ns[UCP_WAY_READ]     = 2500;
            m_cost_ns[UCP_WAY_BOTH]     = 2000;
            m_cost_ns[UCP_WAY_MESSAGES] = messages_ns;
            EXPECT_EQ((messages_ns < 2000) ? UCP_WAY_MESSAGES : UCP_WAY_BOTH, settled(20000))
                << predicted << " " << messages_ns;
        }
        for (auto fastest : {UCP_WAY_READ, UCP_WAY_BOTH, UCP_WAY_MESSAGES}) {
            m_learn = {};
            std::fill(std::begin(m_cost_ns), std::end(m_cost_ns), 3000);
            m_cost_ns[fastest] = 1500;
            EXPECT_EQ(fastest, settled(20000)) << predicted;
        }
    }
}

/* What is not possible is not tried. */
TEST_F(learning, keeps_to_the_ways_that_there_are)
{
    m_ways      = (1u << UCP_WAY_READ) | (1u << UCP_WAY_BOTH);
    m_predicted = UCP_WAY_READ;
    EXPECT_EQ(UCP_WAY_BOTH, settled(20000));
    EXPECT_EQ(0u, m_by[UCP_WAY_MESSAGES]);
    m_learn = {};
    m_ways  = 1u << UCP_WAY_READ;
    EXPECT_EQ(UCP_WAY_READ, settled(20000));
    EXPECT_EQ(4096u, m_by[UCP_WAY_READ]);
    EXPECT_EQ(1, m_changes);
}

TEST_F(learning, begins_as_predicted_and_tries_the_others_seldom)
{
    for (unsigned i = 0; i < UCP_LEARN_RUNS * UCP_LEARN_RUN_MIN; ++i) {
        EXPECT_EQ(UCP_WAY_BOTH, exchange(65536));
    }
    const ucp_learn_turn_t turn = {0, static_cast<uint8_t>(ucp_learn_octave(65536)), 0, 0, 0, 0};
    EXPECT_TRUE(ucp_learn_is_first(&m_learn, &turn));
    m_cost_ns[UCP_WAY_MESSAGES] = 6000;
    EXPECT_EQ(UCP_WAY_BOTH, settled(65536, 20000));
    EXPECT_FALSE(ucp_learn_is_first(&m_learn, &turn));
    EXPECT_LT(m_by[UCP_WAY_MESSAGES], 20000u / 100);
    EXPECT_GT(m_by[UCP_WAY_MESSAGES], 0u);
    EXPECT_EQ(0, m_changes);
}

TEST_F(learning, a_little_is_no_reason_to_change)
{
    m_cost_ns[UCP_WAY_MESSAGES] = 1950;
    EXPECT_EQ(UCP_WAY_BOTH, settled(20000));
    m_learn     = {};
    m_predicted = UCP_WAY_MESSAGES;
    std::swap(m_cost_ns[UCP_WAY_BOTH], m_cost_ns[UCP_WAY_MESSAGES]);
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(20000));
}

TEST_F(learning, follows_what_changes)
{
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(65536));
    EXPECT_EQ(1, m_changes);
    m_cost_ns[UCP_WAY_MESSAGES] = 8000;
    EXPECT_EQ(UCP_WAY_BOTH, settled(65536, 8192));
    EXPECT_EQ(2, m_changes);
}

/* Messages until most go another way. */
TEST_F(learning, follows_at_once_what_becomes_far_slower)
{
    const unsigned trials = (UCP_WAYS + 1) * TRIAL; /* the way in use twice */
    const auto &octave    = m_learn.octaves[ucp_learn_octave(65536)];
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(65536, 60000));
    while ((octave.phase != UCP_LEARN_IN_USE) || (octave.left < 1000) || !(octave.usual > 0)) {
        exchange(65536);
    }
    m_cost_ns[UCP_WAY_MESSAGES] = 4000;
    settled(65536, ((UCP_LEARN_SLOW_MIN + 1) * UCP_LEARN_WATCHED) + trials);
    EXPECT_EQ(UCP_WAY_BOTH, settled(65536, 200));
    EXPECT_GE(m_by[UCP_WAY_BOTH], 190u);
    EXPECT_EQ(2, m_changes);
}

/* Where all ways have become slower, or some messages only are, trials again and again are no help:
 * a few times, and then more and more seldom. */
TEST_F(learning, what_no_way_is_better_for_is_not_tried_all_the_time)
{
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(65536, 60000));
    for (unsigned i = 0; i < 400; ++i) {
        const uint64_t factor = (i % 2) ? 3 : 1;
        m_cost_ns[UCP_WAY_READ]     = 2500 * factor;
        m_cost_ns[UCP_WAY_BOTH]     = 2000 * factor;
        m_cost_ns[UCP_WAY_MESSAGES] = 700 * factor;
        settled(65536, 300);
        EXPECT_LT(m_by[UCP_WAY_READ] + m_by[UCP_WAY_BOTH], (i > 40) ? 100u : 300u) << i;
    }
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(65536, 20000));
    EXPECT_LT(m_by[UCP_WAY_READ] + m_by[UCP_WAY_BOTH], 20000u / 50);
    EXPECT_EQ(1, m_changes);
}

/* What is slow at first, as memory that is touched for the first time is, is not taken for slow. */
TEST_F(learning, a_cold_start_is_no_verdict)
{
    const unsigned cold = UCP_LEARN_COLD / 2; /* two units each */

    m_cost_ns[UCP_WAY_MESSAGES] = 9000;
    for (unsigned i = 0; i < cold + (2 * TRIAL); ++i) {
        exchange(20000);
    }
    EXPECT_EQ(cold, m_by[UCP_WAY_MESSAGES]);
    m_cost_ns[UCP_WAY_MESSAGES] = 700;
    for (unsigned i = 0; i < (2 * TRIAL) + lap(20000); ++i) { /* the old once more */
        exchange(20000);
    }
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(20000, 64));
    EXPECT_EQ(64u, m_by[UCP_WAY_MESSAGES]);
    EXPECT_EQ(1, m_changes);

    /* Shorter ones use no other memory, and longer ones the same. */
    for (size_t length : {1000, 9000, 70000, 3 << 20}) {
        m_cost_ns[UCP_WAY_MESSAGES] = 700;
        std::fill(std::begin(m_by), std::end(m_by), 0);
        for (unsigned i = 0; i < ((UCP_WAYS + 1) * TRIAL) + lap(length); ++i) {
            exchange(length);
        }
        EXPECT_EQ(UCP_WAY_MESSAGES, settled(length, 32)) << length;
        EXPECT_EQ(32u, m_by[UCP_WAY_MESSAGES]) << length;
    }
    /* Those of a page do not warm what longer ones use. */
    m_learn = {};
    settled(4096, 4096);
    EXPECT_LT(m_learn.used[ucp_learn_octave(9000)], UCP_LEARN_COLD);
}

/* Buffers that have not been used for long are in no cache. A way that is far slower anyway is not
 * tried for so long. */
TEST_F(learning, messages_are_tried_until_their_buffers_are_warm)
{
    const size_t length = 131072;
    m_learn             = {};
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(length)); /* warm in the sense of first use */
    m_cost_ns[UCP_WAY_MESSAGES] = 9000;
    EXPECT_EQ(UCP_WAY_BOTH, settled(length, 20000));
    for (uint64_t cold_ns : {2600, 9000}) {
        auto &octave = m_learn.octaves[ucp_learn_octave(length)];
        octave.left  = 0; /* the next trials */
        std::fill(std::begin(m_by), std::end(m_by), 0);
        for (unsigned i = 0; i < ((UCP_WAYS + 1) * TRIAL) + lap(length); ++i) {
            const unsigned used         = m_by[UCP_WAY_MESSAGES];
            m_cost_ns[UCP_WAY_MESSAGES] = (used * length < (3u << 20)) ? cold_ns : 700;
            exchange(length);
        }
        if (cold_ns == 9000) {
            EXPECT_EQ(TRIAL, m_by[UCP_WAY_MESSAGES]);
        }
        EXPECT_EQ((cold_ns == 9000) ? UCP_WAY_BOTH : UCP_WAY_MESSAGES,
                  static_cast<ucp_way_t>(octave.way));
        m_learn.octaves[ucp_learn_octave(length)].way = UCP_WAY_BOTH;
    }
}

/* Whatever goes first may find caches cold: it is tried once more before another is taken. */
TEST_F(learning, what_was_slow_when_all_was_cold_is_tried_once_more)
{
    m_cost_ns[UCP_WAY_BOTH] = 9000;
    for (unsigned i = 0; i < TRIAL; ++i) {
        exchange(9000);
    }
    EXPECT_EQ(TRIAL, m_by[UCP_WAY_BOTH]);
    m_cost_ns[UCP_WAY_BOTH] = 600;
    EXPECT_EQ(UCP_WAY_BOTH, settled(9000));
    EXPECT_EQ(0, m_changes);
}

/* A slow way is a loss that is bounded in bytes. */
TEST_F(learning, long_messages_are_tried_few_times)
{
    m_cost_ns[UCP_WAY_MESSAGES] = 9000;
    EXPECT_EQ(UCP_WAY_BOTH, settled(8 << 20, 512));
    EXPECT_LE(m_by[UCP_WAY_MESSAGES], 512u / 32);
    EXPECT_LE(m_by[UCP_WAY_READ], 512u / 32);
    m_learn = {};
    std::fill(std::begin(m_by), std::end(m_by), 0);
    stream(8 << 20, 16, 512);
    EXPECT_LT(m_by[UCP_WAY_MESSAGES] + m_by[UCP_WAY_READ], 100u);
}

/* Long ones too: after 8 times as many as the first trials took. */
TEST_F(learning, a_first_verdict_does_not_last)
{
    m_cost_ns[UCP_WAY_MESSAGES] = 9000;
    settled(8 << 20, (UCP_WAYS * TRIAL_LONG) + 1); /* one is cold */
    EXPECT_EQ(UCP_WAY_BOTH, exchange(8 << 20));
    m_cost_ns[UCP_WAY_MESSAGES] = 700;
    settled(8 << 20, ((UCP_LEARN_FIRST + 1) * ((UCP_WAYS * TRIAL_LONG) + 1)) + TRIAL_LONG);
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(8 << 20, 64));
    EXPECT_EQ(64u, m_by[UCP_WAY_MESSAGES]);
}

TEST_F(learning, octaves_are_learned_by_themselves)
{
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(16384));
    m_cost_ns[UCP_WAY_MESSAGES] = 9000;
    EXPECT_EQ(UCP_WAY_BOTH, settled(1 << 20));
    EXPECT_EQ(UCP_WAY_MESSAGES, choose(16384));
    EXPECT_EQ(UCP_WAY_MESSAGES, choose(32767));
    EXPECT_EQ(UCP_WAY_BOTH, choose(32768)); /* nothing is known of these */

    EXPECT_EQ(0u, ucp_learn_octave(0));
    EXPECT_EQ(0u, ucp_learn_octave(1023));
    EXPECT_EQ(1u, ucp_learn_octave(1024));
    EXPECT_EQ(4u, ucp_learn_octave(8192));
    EXPECT_EQ(4u, ucp_learn_octave(16383));
    EXPECT_EQ(5u, ucp_learn_octave(16384));
    EXPECT_EQ(UCP_LEARN_OCTAVES - 1, ucp_learn_octave(SIZE_MAX));
    for (unsigned i = 0; i < UCP_LEARN_OCTAVES; ++i) {
        EXPECT_EQ(i, ucp_learn_octave(ucp_learn_octave_min(i)));
    }
}

/* What a program has to fetch from another cache behind a copy counts: a pause does as far as it is
 * no longer than to fill and to look at a buffer takes. */
TEST_F(learning, pauses_count_as_far_as_they_may_come_of_the_way)
{
    const auto settles = [&](uint64_t after_read_ns, uint64_t after_messages_ns) {
        const uint64_t cost_ns[UCP_WAYS]  = {2000, 0, 3000};
        const uint64_t pause_ns[UCP_WAYS] = {after_read_ns, 0, after_messages_ns};
        m_learn     = {};
        m_ways      = (1u << UCP_WAY_READ) | (1u << UCP_WAY_MESSAGES);
        m_predicted = UCP_WAY_READ;
        std::fill(std::begin(m_by), std::end(m_by), 0);
        for (unsigned i = 0; i < 4096; ++i) {
            const ucp_way_t way   = choose(20000);
            ucp_learn_turn_t turn = {};
            ucp_learn_begin(&m_learn, &turn, 20000, way);
            g_now_ns += cost_ns[way];
            ucp_learn_end(&m_learn, &turn, 20000);
            g_now_ns += pause_ns[way];
        }
        return (m_by[UCP_WAY_READ] > m_by[UCP_WAY_MESSAGES]) ? UCP_WAY_READ : UCP_WAY_MESSAGES;
    };
    EXPECT_EQ(UCP_WAY_READ, settles(1000, 1000));
    EXPECT_EQ(UCP_WAY_MESSAGES, settles(4000, 1000));
    EXPECT_EQ(UCP_WAY_READ, settles(4000, 4000));
    const uint64_t most_ns = UCP_LEARN_PAUSE_NS + (20000 / UCP_LEARN_PAUSE_BYTES);
    EXPECT_EQ(UCP_WAY_READ, settles(most_ns + 50000, most_ns)); /* the program's own affair */
}

/* In a stream each message's own time tells nothing; the time that the stream takes does. */
TEST_F(learning, streams_are_measured_as_a_whole)
{
    for (unsigned window : {2, 16, 64, 200}) {
        m_learn = {};
        stream(20000, window, 30000);
        std::fill(std::begin(m_by), std::end(m_by), 0);
        stream(20000, window, 2000);
        EXPECT_GT(m_by[UCP_WAY_MESSAGES], m_by[UCP_WAY_READ] + m_by[UCP_WAY_BOTH]) << window;
        const auto &octave = m_learn.octaves[ucp_learn_octave(20000)];
        EXPECT_NEAR(20000 / 700.0, octave.rate[UCP_WAY_MESSAGES], 3) << window;
        EXPECT_NEAR(20000 / 2000.0, octave.rate[UCP_WAY_BOTH], 1) << window;
    }
}

/* Nor does the moment in which one ends: copies of a window are made in turns. */
TEST_F(learning, windows_that_end_at_once_are_measured_as_they_are)
{
    const uint64_t cost_ns[][UCP_WAYS] = {
        {2500, 2000, 700}, {2500, 2000, 1500}, {2500, 2000, 2400}, {1500, 2000, 1800}};
    for (auto pauses : {NONE, SILENT, ONE_BETWEEN}) {
        for (unsigned window : {2, 7, 8, 16, 64, 100}) {
            for (size_t length : {20000, 300000, 1 << 20, 4 << 20, 64 << 20}) {
                for (auto &cost : cost_ns) {
                    SCOPED_TRACE(testing::Message() << window << " of " << length
                                                    << ", pauses " << pauses << ", "
                                                    << cost[UCP_WAY_MESSAGES]);
                    const auto &octave = m_learn.octaves[ucp_learn_octave(length)];
                    for (unsigned way = 0; way < UCP_WAYS; ++way) {
                        m_cost_ns[way] = cost[way] * length / 20000;
                    }
                    m_learn = {};
                    rounds(length, window, 4000, pauses);
                    for (unsigned way = 0; way < UCP_WAYS; ++way) {
                        const double rate = 20000 / static_cast<double>(cost[way]);
                        /* with a pause or two for a run, of at least RUN_MIN messages */
                        const auto cost_ns = static_cast<double>(m_cost_ns[way]);
                        const double least = (pauses == NONE) ? rate :
                            rate * cost_ns / (cost_ns + (1000.0 / std::min(window, 4u)));
                        EXPECT_LE(octave.rate[way], rate * 1.04) << way;
                        EXPECT_GE(octave.rate[way], least * 0.96) << way;
                    }
                    EXPECT_EQ(std::min_element(std::begin(cost), std::end(cost)) - cost,
                              octave.way);
                }
            }
        }
    }
}

/* Nor does it count in which order they end, and that one side had done its part of some before. */
TEST_F(learning, windows_with_a_side_that_is_ahead_are_measured_as_they_are)
{
    m_random = std::make_unique<seeded_random>(4242);
    for (unsigned window : {8, 16, 64, 100}) {
        for (size_t length : {64 << 10, 1 << 20, 8 << 20}) {
            SCOPED_TRACE(testing::Message() << window << " of " << length);
            const uint64_t cost[] = {2500, 2000, 1500};
            for (unsigned way = 0; way < UCP_WAYS; ++way) {
                m_cost_ns[way] = cost[way] * length / 20000;
            }
            m_learn = {};
            rounds(length, window, 4000, NONE);
            const auto &octave = m_learn.octaves[ucp_learn_octave(length)];
            for (unsigned way = 0; way < UCP_WAYS; ++way) {
                const double rate = 20000 / static_cast<double>(cost[way]);
                EXPECT_LE(octave.rate[way], rate * 1.3) << way;
                EXPECT_GE(octave.rate[way], rate * 0.6) << way;
            }
            EXPECT_EQ(UCP_WAY_MESSAGES, octave.way);
        }
    }
}

/* Single messages take other times than those of a window: a way that was tried by these is not
 * taken for faster than one that was tried by those. */
TEST_F(learning, windows_and_single_messages_are_not_compared)
{
    const size_t length = 16 << 20;
    for (unsigned singles : {3, 5, 7}) {
        for (unsigned window : {4, 9, 12}) {
            SCOPED_TRACE(testing::Message() << singles << " and a window of " << window);
            m_learn = {};
            (void)choose(length);
            for (int i = 0; i < 40; ++i) {
                for (unsigned k = 0; k < singles; ++k) {
                    m_cost_ns[UCP_WAY_READ]     = 2500000 + 900000; /* and back */
                    m_cost_ns[UCP_WAY_BOTH]     = 900000 + 900000;
                    m_cost_ns[UCP_WAY_MESSAGES] = 2600000 + 900000;
                    exchange(length);
                }
                m_cost_ns[UCP_WAY_READ]     = 1600000;
                m_cost_ns[UCP_WAY_BOTH]     = 850000;
                m_cost_ns[UCP_WAY_MESSAGES] = 1700000;
                stream(length, window, window);
                ASSERT_EQ(UCP_WAY_BOTH, m_learn.octaves[ucp_learn_octave(length)].way) << i;
            }
        }
    }
}

/* Two ways that had windows are compared, though what the receiver reads by itself never moves at
 * the same time. */
TEST_F(learning, windows_are_compared_with_windows)
{
    const size_t length         = 262144;
    const auto &octave          = m_learn.octaves[ucp_learn_octave(length)];
    m_cost_ns[UCP_WAY_READ]     = 16000;
    m_cost_ns[UCP_WAY_BOTH]     = 9000;
    m_cost_ns[UCP_WAY_MESSAGES] = 4800;
    unsigned rounds             = 0;
    do {
        if ((octave.phase == UCP_LEARN_TRIAL) && (octave.trial == UCP_WAY_READ)) {
            exchange(length);
        } else {
            stream(length, 16, 16);
        }
        ASSERT_LT(++rounds, 1000u);
    } while (octave.phase != UCP_LEARN_IN_USE);
    EXPECT_EQ(UCP_WAY_MESSAGES, octave.way);
}

/* A process that loses its processor for a while has not learned that its way is slow. */
TEST_F(learning, disturbed_runs_do_not_count)
{
    seeded_random random(4242);
    for (unsigned i = 0; i < 6000; ++i) {
        const uint64_t usual[UCP_WAYS] = {2500, 2000, 700};
        const uint64_t lost_ns         = (random.below(12) == 0) ? 4000000 : 0;
        for (unsigned way = 0; way < UCP_WAYS; ++way) {
            m_cost_ns[way] = usual[way] + lost_ns;
        }
        exchange(20000);
    }
    EXPECT_LT(m_by[UCP_WAY_READ] + m_by[UCP_WAY_BOTH], 2500u);
}

/* What ends early has moved nothing, and is over. */
TEST_F(learning, failed_messages_are_not_timed)
{
    ucp_learn_turn_t turns[3] = {};
    for (unsigned i = 0; i < 200; ++i) {
        for (auto &turn : turns) {
            ucp_learn_begin(&m_learn, &turn, 20000, choose(20000));
        }
        g_now_ns += 10;
        for (auto &turn : turns) {
            ucp_learn_end(&m_learn, &turn, 0);
        }
    }
    for (unsigned way = 0; way < UCP_WAYS; ++way) {
        EXPECT_EQ(0u, m_learn.octaves[1].under_way[way]);
        EXPECT_EQ(0.0f, m_learn.octaves[1].rate[way]);
    }
    EXPECT_EQ(0, m_changes);
}

/* Where several ways are under way at a time nobody knows what either takes. */
TEST_F(learning, mixed_messages_are_not_timed)
{
    ucp_learn_turn_t other = {};
    ucp_learn_begin(&m_learn, &other, 30000, UCP_WAY_MESSAGES);
    for (unsigned i = 0; i < UCP_LEARN_RUNS * UCP_LEARN_RUN_MIN; ++i) {
        EXPECT_EQ(UCP_WAY_BOTH, exchange(20000));
    }
    EXPECT_EQ(0.0f, m_learn.octaves[1].best);
    ucp_learn_end(&m_learn, &other, 30000);
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(20000, 8192)) << "later";
}

/* Nor is it learned for long that nothing could be learned. */
TEST_F(learning, what_could_not_be_timed_is_tried_again_soon)
{
    ucp_learn_turn_t stuck = {};
    ucp_learn_begin(&m_learn, &stuck, 20000, UCP_WAY_MESSAGES);
    for (unsigned i = 0; i < UCP_WAYS * UCP_LEARN_TRIAL_MAX; ++i) {
        exchange(20000);
    }
    ucp_learn_end(&m_learn, &stuck, 0);
    EXPECT_EQ(UCP_WAY_MESSAGES, settled(20000, 8192));
}

/* ---- the sender is asked for messages ---- */

constexpr size_t LENGTH = 300000;

/* Messages are what is tried first: what copies cost is not left to the probe, which others on the
 * machine disturb. */
const variant by_messages = {"by_messages",
                             {{"UCX_TLS", "mm,cma"},
                              {"UCX_MM_BW", "100000MBs"},
                              {"UCX_CMA_BW", "1000MBs"}},
                             false, UCS_THREAD_MODE_SINGLE};

const variant by_both_sides = {"by_both_sides",
                               {{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", "both"}},
                               false, UCS_THREAD_MODE_SINGLE};

/* One message, from its sender's post on; the number is that of its bytes. */
struct message {
    message(size_t length, uint64_t number)
        : number(number), data(pattern(number, length)), buffer(length)
    {
    }

    /* Both sides of it; true: both are under way. */
    bool post(pair &pair)
    {
        auto sp = send_param(&sent), rp = receive_param(&received);
        auto *s = ucp_tag_send_nbx(pair.ep(), data.data(), data.size(), 1, &sp);
        auto *r = ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), buffer.size(), 1,
                                   ~0ull, &rp);
        return UCS_PTR_IS_PTR(s) && UCS_PTR_IS_PTR(r);
    }

    ptrdiff_t differs()
    {
        return ucp_test::differs(buffer.data(), buffer.size(), number);
    }

    const uint64_t number;
    const bytes data;
    guarded buffer;
    ending sent, received;
};

class asked_for_messages : public testing::Test {
protected:
    /* One message has been there and back, so that both sides are connected. */
    void greet(pair &pair)
    {
        exchange(pair, pair.ep(), pair.receiver(), 8);
        exchange(pair, pair.ep_back(), pair.sender(), 8);
    }

    void exchange(pair &pair, ucp_ep_h ep, worker &to, size_t length, bool is_awaited = true)
    {
        bytes data = pattern(length, length);
        guarded buffer(length);
        ending sent, received;
        auto sp = send_param(&sent), rp = receive_param(&received);
        auto *s = ucp_tag_send_nbx(ep, data.data(), length, 1, &sp);
        ASSERT_FALSE(UCS_PTR_IS_ERR(s));
        if (!is_awaited) {
            ucp_tag_recv_info_t info;
            pair.progress_until([&] {
                return ucp_tag_probe_nb(to.handle(), 1, ~0ull, 0, &info) != nullptr;
            });
        }
        auto *r = ucp_tag_recv_nbx(to.handle(), buffer.data(), length, 1, ~0ull, &rp);
        ASSERT_FALSE(UCS_PTR_IS_ERR(r));
        pair.progress_until([&] { return (s == nullptr || sent.calls) && (!r || received.calls); });
        EXPECT_EQ(-1, differs(buffer.data(), length, length));
    }

    /* Both sides make progress in turns, then the receiver does alone until it has the message. */
    void go_away_amid(pair &pair, size_t length, int turns)
    {
        SCOPED_TRACE(testing::Message() << length << " bytes, " << turns << " turns");
        message m(length, turns);
        ASSERT_TRUE(m.post(pair));
        for (int i = 0; i < turns; ++i) {
            pair.receiver().progress();
            pair.sender().progress();
        }
        const uint64_t end_ns = ucs_sys_clock_ns() + 10000000000ull;
        while ((m.received.calls == 0) && (ucs_sys_clock_ns() < end_ns)) {
            pair.receiver().progress();
        }
        EXPECT_EQ(1, m.received.calls);
        pair.progress_until([&] { return m.sent.calls && m.received.calls; });
        EXPECT_EQ(UCS_OK, m.received.status);
        EXPECT_EQ(UCS_OK, m.sent.status);
        EXPECT_EQ(-1, m.differs());
        EXPECT_TRUE(m.buffer.is_intact());
    }

    log_catcher m_log;
};

TEST_F(asked_for_messages, a_sender_that_makes_progress_sends_them)
{
    pair pair(by_messages);
    greet(pair);
    for (size_t length : {12000, 16384, 65536, 300001, 4 << 20}) {
        exchange(pair, pair.ep(), pair.receiver(), length);
        exchange(pair, pair.ep_back(), pair.sender(), length);
    }
}

/* Only the receiver makes progress: it reads. */
TEST_F(asked_for_messages, a_sender_that_is_away_is_not_waited_for)
{
    pair pair(by_messages);
    greet(pair);
    for (int i = 0; i < 20; ++i) {
        message m(LENGTH, i);
        ASSERT_TRUE(m.post(pair));
        const uint64_t end_ns = ucs_sys_clock_ns() + 10000000000ull;
        while ((m.received.calls == 0) && (ucs_sys_clock_ns() < end_ns)) {
            pair.receiver().progress();
        }
        ASSERT_EQ(1, m.received.calls);
        EXPECT_EQ(UCS_OK, m.received.status);
        EXPECT_EQ(-1, m.differs());
        EXPECT_TRUE(m.buffer.is_intact());
        EXPECT_EQ(0, m.sent.calls);
        pair.progress_until([&] { return m.sent.calls == 1; });
        EXPECT_EQ(UCS_OK, m.sent.status);
    }
}

/* One message is read after the other: a receiver that read a whole window at once would seem away
 * itself to whom it sends to, who would do the same. */
TEST_F(asked_for_messages, a_sender_that_comes_back_sends_what_is_left_of_a_window)
{
    constexpr unsigned WINDOW = 16;
    static unsigned num_reads;
    ucs_sys_ops_t table    = ucs_sys_real;
    table.process_vm_readv = [](pid_t pid, const iovec *local, unsigned long num_local,
                                const iovec *remote, unsigned long num_remote,
                                unsigned long flags) {
        ++num_reads;
        return ucs_sys_real.process_vm_readv(pid, local, num_local, remote, num_remote, flags);
    };
    pair pair(by_messages);
    greet(pair);
    exchange(pair, pair.ep(), pair.receiver(), LENGTH);
    std::vector<std::unique_ptr<message>> window;
    for (unsigned i = 0; i < WINDOW; ++i) {
        window.push_back(std::make_unique<message>(LENGTH, i));
        ASSERT_TRUE(window.back()->post(pair));
    }
    ucs_sys_set(&table);
    for (unsigned i = 0; i < WINDOW; ++i) {
        pair.receiver().progress();
    }
    usleep(1000); /* it would wait for a fifth of that */
    num_reads = 0;
    const uint64_t end_ns = ucs_sys_clock_ns() + 10000000000ull;
    while ((num_reads == 0) && (ucs_sys_clock_ns() < end_ns)) {
        pair.receiver().progress();
    }
    EXPECT_GE(num_reads, 1u);
    EXPECT_LE(num_reads, WINDOW / 4);
    for (auto &m : window) {
        pair.progress_until([&] { return m->sent.calls && m->received.calls; });
        EXPECT_EQ(-1, m->differs());
    }
    ucs_sys_set(nullptr);
}

/* What a sender has not sent by the time that it goes away is read. */
TEST_F(asked_for_messages, a_sender_that_goes_away_amid_them_is_not_waited_for)
{
    pair pair(by_messages);
    greet(pair);
    for (int turns = 0; (turns < 30) && !HasFailure(); ++turns) {
        go_away_amid(pair, 1 << 20, turns); /* what is sent finds room */
    }
}

/* What it has written by then is known to be there. */
TEST_F(asked_for_messages, a_sender_that_goes_away_amid_copies_of_both_sides_is_not_waited_for)
{
    pair pair(by_both_sides);
    greet(pair);
    for (size_t length : {300000, 1 << 20, 9 << 20}) {
        for (int turns = 0; (turns < 12) && !HasFailure(); ++turns) {
            go_away_amid(pair, length, turns);
        }
    }
}

/* Who read the message has said that all of it is there, and may be gone by then. */
TEST_F(asked_for_messages, a_send_that_was_read_whole_has_not_failed)
{
    constexpr size_t LONG = 1 << 20;
    unsigned taken        = 0;
    for (int i = 0; i < 40; ++i) {
        pair pair(by_messages);
        greet(pair);
        message m(LONG, i);
        ASSERT_TRUE(m.post(pair));
        for (int turns = 0; turns < i % 10; ++turns) {
            pair.receiver().progress();
            pair.sender().progress();
        }
        while (m.received.calls == 0) {
            pair.receiver().progress();
        }
        ASSERT_EQ(UCS_OK, m.received.status);
        taken += (m.sent.calls == 0);
        pair.receiver().destroy();
        while (m.sent.calls == 0) {
            pair.sender().progress();
        }
        EXPECT_EQ(UCS_OK, m.sent.status) << i;
    }
    EXPECT_GT(taken, 0u);
}

constexpr useconds_t SLOW_US = 500;

/* Copies that take long; what they do is done. */
ucs_sys_ops_t slow_copies()
{
    ucs_sys_ops_t table    = ucs_sys_real;
    table.process_vm_readv = [](pid_t pid, const iovec *local, unsigned long num_local,
                                const iovec *remote, unsigned long num_remote,
                                unsigned long flags) {
        usleep(SLOW_US);
        return ucs_sys_real.process_vm_readv(pid, local, num_local, remote, num_remote, flags);
    };
    table.process_vm_writev = [](pid_t pid, const iovec *local, unsigned long num_local,
                                 const iovec *remote, unsigned long num_remote,
                                 unsigned long flags) {
        usleep(SLOW_US);
        return ucs_sys_real.process_vm_writev(pid, local, num_local, remote, num_remote, flags);
    };
    return table;
}

/* A receiver that has found messages to be the fastest way says so, and what it was told so of is
 * not announced any more, but for one of them now and then, by which it goes on measuring. Long
 * ones for which no receive waits still are. */
TEST_F(asked_for_messages, what_is_fastest_in_messages_comes_whole)
{
    constexpr unsigned COUNT = 170;
    const fake_sys slow(slow_copies());
    pair pair({"back_and_forth", {{"UCX_TLS", "mm,cma"}, {"UCX_IDLE", "poll"}}, false,
               UCS_THREAD_MODE_SINGLE});
    greet(pair);
    const struct {
        size_t length;
        bool is_awaited, is_whole;
    } cases[] = {{12000, true, true}, {14000, false, true}, {24000, true, true},
                 {50000, false, false}, {120000, true, true}, {140000, true, false}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.length);
        uint64_t whole = 0, announced = 0;
        for (unsigned i = 0; i < 4 * COUNT; ++i) {
            if (i == 3 * COUNT) {
                whole     = counted(pair.sender(), "sent_whole");
                announced = counted(pair.sender(), "announced");
            }
            exchange(pair, pair.ep(), pair.receiver(), c.length, c.is_awaited);
            exchange(pair, pair.ep_back(), pair.sender(), c.length, c.is_awaited);
        }
        whole     = counted(pair.sender(), "sent_whole") - whole;
        announced = counted(pair.sender(), "announced") - announced;
        EXPECT_EQ(COUNT, whole + announced);
        if (!c.is_whole) {
            EXPECT_EQ(0u, whole);
        } else {
            EXPECT_GE(whole, COUNT / 2);
            EXPECT_GE(announced, COUNT / 17);
        }
    }
}

/* What is too long to go whole says nothing of what is shorter and not waited for. */
TEST_F(asked_for_messages, what_is_too_long_lets_nothing_go_whole)
{
    const fake_sys slow(slow_copies());
    pair pair({"mixed", {{"UCX_TLS", "mm,cma"}, {"UCX_IDLE", "poll"}}, false,
               UCS_THREAD_MODE_SINGLE});
    greet(pair);
    for (unsigned i = 0; i < 600; ++i) {
        exchange(pair, pair.ep(), pair.receiver(), 140000);
        exchange(pair, pair.ep_back(), pair.sender(), 140000);
        const uint64_t whole = counted(pair.sender(), "sent_whole");
        exchange(pair, pair.ep(), pair.receiver(), 50000, false);
        ASSERT_EQ(whole, counted(pair.sender(), "sent_whole")) << i;
        exchange(pair, pair.ep_back(), pair.sender(), 50000, false);
    }
}

/* What a sender that receives, too, announces to one of many peers is read by its receiver: nothing
 * is tried, and so nothing is measured. */
TEST_F(asked_for_messages, what_many_exchange_is_read)
{
    constexpr size_t LENGTH = 65536;
    for (unsigned num_others : {0u, 5u}) {
        for (bool is_receiving : {false, true}) {
            pair pair({"exchanged", {{"UCX_TLS", "mm,cma"}}, false, UCS_THREAD_MODE_SINGLE});
            greet(pair);
            std::vector<std::unique_ptr<worker>> others;
            for (unsigned i = 0; i < num_others; ++i) {
                others.push_back(std::make_unique<worker>(pair.ctx()));
                ASSERT_NE(nullptr, pair.receiver().connect(*others.back()));
            }

            char other                      = 0;
            const ucp_request_param_t plain = {};
            void *recv                      = nullptr;
            if (is_receiving) {
                recv = ucp_tag_recv_nbx(pair.sender().handle(), &other, 1, 77, ~0ull, &plain);
            }
            for (unsigned i = 0; i < 600; ++i) {
                exchange(pair, pair.ep(), pair.receiver(), LENGTH);
            }
            const std::string text = printed([&](FILE *file) {
                ucp_ep_print_info(pair.ep_back(), file);
            });
            EXPECT_EQ(is_receiving && (num_others > 0),
                      text.find("measured") == std::string::npos) << text;
            if (is_receiving) {
                void *sent = ucp_tag_send_nbx(pair.ep_back(), "x", 1, 77, &plain);
                EXPECT_EQ(UCS_OK, pair.wait(recv));
                EXPECT_EQ(UCS_OK, pair.wait(sent));
            }
        }
    }
}

/* A sender that comes while the receiver waits, or just after that, moves the message once. */
TEST_F(asked_for_messages, whoever_comes_first_moves_it)
{
    seeded_random random(777);
    pair pair(by_messages);
    greet(pair);
    for (int i = 0; i < 2000; ++i) {
        message m(131073 + random.below(100000), i); /* none goes whole */
        ASSERT_TRUE(m.post(pair));
        for (uint64_t turns = random.below(400); turns > 0; --turns) {
            pair.receiver().progress();
        }
        for (uint64_t turns = random.below(4); turns > 0; --turns) {
            pair.sender().progress();
        }
        for (uint64_t turns = random.below(400); turns > 0; --turns) {
            pair.receiver().progress();
        }
        pair.progress_until([&] { return m.sent.calls && m.received.calls; });
        ASSERT_EQ(UCS_OK, m.sent.status);
        ASSERT_EQ(UCS_OK, m.received.status);
        ASSERT_EQ(-1, m.differs()) << i;
        ASSERT_TRUE(m.buffer.is_intact());
    }
}

/* A worker that waits so does not go to sleep over it. */
TEST_F(asked_for_messages, nobody_sleeps_who_waits_for_a_sender_to_begin)
{
    pair pair(by_messages);
    greet(pair);
    message m(LENGTH, 1);
    ASSERT_TRUE(m.post(pair));
    const uint64_t end_ns = ucs_sys_clock_ns() + 10000000000ull;
    while ((m.received.calls == 0) && (ucs_sys_clock_ns() < end_ns)) {
        pair.receiver().progress();
        if (m.received.calls == 0) {
            const ucs_status_t status = ucp_worker_arm(pair.receiver().handle());
            if (status == UCS_OK) { /* the announcement is still to come: it wakes */
                ASSERT_EQ(UCS_OK, ucp_worker_wait(pair.receiver().handle()));
            }
        }
    }
    EXPECT_EQ(1, m.received.calls);
    pair.progress_until([&] { return m.sent.calls == 1; });
}

/* A send that has ended is a message that arrives, whatever becomes of its sender. */
TEST_F(asked_for_messages, what_was_sent_arrives_after_its_sender_has_left)
{
    constexpr size_t SHORT = 12000; /* fits into the ring */
    for (int i = 0; i < 50; ++i) {
        pair pair(by_messages);
        greet(pair);
        message m(SHORT, i);
        ASSERT_TRUE(m.post(pair));
        while ((m.sent.calls == 0) && (m.received.calls == 0)) {
            pair.receiver().progress();
            for (int turns = 0; turns < 20; ++turns) {
                pair.sender().progress();
            }
        }
        while (m.sent.calls == 0) {
            pair.sender().progress();
        }
        ASSERT_EQ(UCS_OK, m.sent.status);
        pair.sender().destroy();
        while (m.received.calls == 0) {
            pair.receiver().progress();
        }
        ASSERT_EQ(UCS_OK, m.received.status) << i;
        ASSERT_EQ(-1, m.differs());
    }
}

/* Ends on either side while the sender has been asked. */
TEST_F(asked_for_messages, ends_early)
{
    for (int round = 0; round < 40; ++round) {
        pair pair(by_messages);
        greet(pair);
        message m(LENGTH, 1);
        ASSERT_TRUE(m.post(pair));
        for (int turns = 0; turns < round; ++turns) {
            pair.receiver().progress();
        }
        if (round % 2 != 0) {
            pair.sender().destroy();
            while (m.received.calls == 0) {
                pair.receiver().progress();
            }
            EXPECT_TRUE((m.received.status == UCS_OK) || UCS_STATUS_IS_ERR(m.received.status));
        } else {
            pair.receiver().destroy();
        }
        EXPECT_TRUE(m.buffer.is_intact());
    }
}

} // namespace
