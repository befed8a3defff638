/* Halyard: tests of the timer wheel against std::multimap.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/event/timer_wheel.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace {

struct test_timer : ucs_timer_t {
    std::function<void(test_timer *, uint64_t)> fired;
    uint64_t deadline;
};

void timer_cb(ucs_timer_wheel_t *, ucs_timer_t *timer, uint64_t now)
{
    test_timer *self = static_cast<test_timer *>(timer);
    EXPECT_FALSE(ucs_timer_is_active(timer));
    self->fired(self, now);
}

class timer_wheel_test : public testing::Test {
protected:
    void init(uint64_t now, uint64_t resolution)
    {
        m_wheel = std::make_unique<ucs_timer_wheel_t>();
        ucs_timer_wheel_init(m_wheel.get(), now, resolution);
        m_resolution = resolution;
    }

    test_timer *make()
    {
        m_timers.push_back(std::make_unique<test_timer>());
        test_timer *timer = m_timers.back().get();
        ucs_timer_init(timer, timer_cb);
        timer->fired = [this](test_timer *self, uint64_t) { m_fired.push_back(self); };
        return timer;
    }

    void add(test_timer *timer, uint64_t deadline)
    {
        timer->deadline = deadline;
        ucs_timer_wheel_add(m_wheel.get(), timer, deadline);
    }

    /* The time at which a timer may fire: the deadline rounded up to a tick. */
    uint64_t due(uint64_t deadline) const
    {
        uint64_t up = deadline + (m_resolution - 1);
        return (up < deadline) ? UINT64_MAX : up & ~(m_resolution - 1);
    }

    std::unique_ptr<ucs_timer_wheel_t> m_wheel;
    std::vector<std::unique_ptr<test_timer>> m_timers;
    std::vector<test_timer *> m_fired;
    uint64_t m_resolution = 1;
};

struct scale {
    uint64_t start, resolution;
};

class timer_wheel_random_test : public timer_wheel_test,
                                public testing::WithParamInterface<scale> {
protected:
    /* Distances from one tick to ages. */
    uint64_t distance(seeded_random &rnd)
    {
        uint64_t bits = rnd.below(rnd.one_in(20) ? 62 : 30);
        return rnd.bits() >> (63 - bits);
    }

    uint64_t later(uint64_t time, uint64_t by)
    {
        return (time + by < time) ? UINT64_MAX : time + by;
    }
};

TEST_P(timer_wheel_random_test, random_operations)
{
    seeded_random rnd(13);
    uint64_t now = GetParam().start;
    std::set<test_timer *> active, late; /* late: added with a deadline already past */
    size_t total = 0;

    init(now, GetParam().resolution);
    for (int i = 0; i < 200; ++i) {
        make();
    }

    for (int step = 0; step < 30000; ++step) {
        test_timer *timer = m_timers[rnd.below(m_timers.size())].get();
        switch (rnd.below(6)) {
        case 0:
        case 1:
        case 2: {
            uint64_t by       = distance(rnd);
            uint64_t deadline = rnd.one_in(10) ? now - std::min(now, by) : later(now, by);
            add(timer, deadline);
            active.insert(timer);
            late.erase(timer);
            if (due(deadline) <= (now & ~(m_resolution - 1))) {
                late.insert(timer);
            }
            break;
        }
        case 3:
            ASSERT_EQ(active.count(timer) != 0, !!ucs_timer_is_active(timer));
            ASSERT_EQ(active.count(timer) != 0,
                      !!ucs_timer_wheel_cancel(m_wheel.get(), timer));
            active.erase(timer);
            late.erase(timer);
            break;
        default: {
            uint64_t next = ucs_timer_wheel_next_expiry(m_wheel.get());
            uint64_t expected_next = UINT64_MAX;
            for (test_timer *other : active) {
                expected_next = std::min(expected_next, due(other->deadline));
            }
            if (late.empty()) {
                ASSERT_EQ(expected_next, next) << "step " << step;
            } else {
                ASSERT_LE(next, now);
            }

            /* To the very moment, just before it, some way, or backwards. */
            uint64_t time = rnd.one_in(3) ? next : later(now, distance(rnd) >> 2);
            time -= rnd.one_in(3) && (time > 0);
            time  = (time == UINT64_MAX) ? now : time;
            if (rnd.one_in(20)) {
                time = now - std::min(now, distance(rnd));
            }

            std::set<test_timer *> expected = late;
            for (test_timer *other : active) {
                if (due(other->deadline) <= time) {
                    expected.insert(other);
                }
            }
            m_fired.clear();
            ASSERT_EQ(expected.size(), ucs_timer_wheel_advance(m_wheel.get(), time))
                    << "step " << step << " now " << now << " time " << time;
            ASSERT_EQ(expected, std::set<test_timer *>(m_fired.begin(), m_fired.end()));
            auto in_time = m_fired.begin() + late.size();
            ASSERT_TRUE(std::is_sorted(in_time, m_fired.end(), [&](auto *a, auto *b) {
                return due(a->deadline) < due(b->deadline);
            }));
            total += m_fired.size();
            for (test_timer *fired : m_fired) {
                active.erase(fired);
            }
            late.clear();
            now = std::max(now, time);
            break;
        }
        }
        ASSERT_EQ(active.empty(), !!ucs_timer_wheel_is_empty(m_wheel.get()));
        ASSERT_EQ(active.size(), m_wheel->num_timers);
    }
    EXPECT_GT(total, 1000u) << "the test must have fired something";
}

INSTANTIATE_TEST_SUITE_P(scales, timer_wheel_random_test,
                         testing::Values(scale{0, 1}, scale{0, 1024}, scale{123456789, 1 << 16},
                                         scale{(1ull << 55) - 5, 1},
                                         scale{UINT64_MAX - (1ull << 61), 1},
                                         scale{1ull << 63, 1 << 20}));

TEST_F(timer_wheel_test, far_deadlines)
{
    init(1000, 1);
    const std::vector<uint64_t> deadlines = {1001,       1032,           1ull << 20, 1ull << 40,
                                             1ull << 60, UINT64_MAX - 1, UINT64_MAX};
    for (uint64_t deadline : deadlines) {
        add(make(), deadline);
    }
    for (size_t i = 0; i < deadlines.size(); ++i) {
        ASSERT_EQ(deadlines[i], ucs_timer_wheel_next_expiry(m_wheel.get()));
        ASSERT_EQ(0u, ucs_timer_wheel_advance(m_wheel.get(), deadlines[i] - 1));
        ASSERT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), deadlines[i]));
        ASSERT_EQ(m_timers[i].get(), m_fired.back());
    }
    EXPECT_EQ(UINT64_MAX, ucs_timer_wheel_next_expiry(m_wheel.get()));
    EXPECT_TRUE(ucs_timer_wheel_is_empty(m_wheel.get()));
}

TEST_F(timer_wheel_test, never_early)
{
    init(0, 1000); /* ticks of 512 ns */
    add(make(), 513);
    EXPECT_EQ(0u, ucs_timer_wheel_advance(m_wheel.get(), 513)) << "not before the tick's end";
    EXPECT_EQ(1024u, ucs_timer_wheel_next_expiry(m_wheel.get()));
    EXPECT_EQ(0u, ucs_timer_wheel_advance(m_wheel.get(), 1023));
    EXPECT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), 1024));
}

TEST_F(timer_wheel_test, periodic_fires_once_an_advance)
{
    int count = 0;
    init(0, 1);
    test_timer *timer = make();
    timer->fired      = [&](test_timer *self, uint64_t) {
        ++count;
        add(self, self->deadline + 10); /* in the past for a while */
    };
    add(timer, 10);
    EXPECT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), 35));
    EXPECT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), 35));
    EXPECT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), 35));
    EXPECT_EQ(0u, ucs_timer_wheel_advance(m_wheel.get(), 35));
    EXPECT_EQ(40u, ucs_timer_wheel_next_expiry(m_wheel.get()));
    EXPECT_EQ(3, count);
}

TEST_F(timer_wheel_test, callback_cancels_and_adds)
{
    init(0, 1);
    test_timer *victim = make(), *other = make(), *first = make(), *advancing = make();
    first->fired = [&](test_timer *, uint64_t now) {
        EXPECT_EQ(100u, now);
        EXPECT_TRUE(ucs_timer_wheel_cancel(m_wheel.get(), victim)) << "about to fire";
        EXPECT_FALSE(ucs_timer_wheel_cancel(m_wheel.get(), first)) << "fires now";
        add(other, 200); /* moved from 50 */
    };
    advancing->fired = [&](test_timer *, uint64_t) {
        EXPECT_EQ(0u, ucs_timer_wheel_advance(m_wheel.get(), 1000));
    };
    add(first, 50);
    add(victim, 50);
    add(other, 50);
    add(advancing, 60);
    EXPECT_EQ(2u, ucs_timer_wheel_advance(m_wheel.get(), 100));
    EXPECT_TRUE(m_fired.empty());
    EXPECT_EQ(1u, ucs_timer_wheel_advance(m_wheel.get(), 200));
    EXPECT_EQ(std::vector<test_timer *>{other}, m_fired);
}

/* Adds, cancels and moves from within callbacks, at random. Each added timer ends exactly once. */
TEST_F(timer_wheel_test, random_reentrancy)
{
    seeded_random rnd(14);
    std::set<test_timer *> active;
    uint64_t now = 0;
    size_t fired = 0;

    init(0, 16);
    auto meddle = [&](uint64_t time) {
        test_timer *timer = m_timers[rnd.below(m_timers.size())].get();
        if (rnd.one_in(3)) {
            ASSERT_EQ(active.erase(timer) != 0,
                      !!ucs_timer_wheel_cancel(m_wheel.get(), timer));
        } else {
            add(timer, time + rnd.below(2000) - std::min<uint64_t>(time, 300));
            active.insert(timer);
        }
    };
    for (int i = 0; i < 50; ++i) {
        make()->fired = [&](test_timer *self, uint64_t time) {
            EXPECT_EQ(now, time);
            EXPECT_EQ(1u, active.erase(self));
            EXPECT_LE(self->deadline, time);
            ++fired;
            for (uint64_t n = rnd.below(3); n > 0; --n) {
                meddle(time);
            }
        };
    }
    for (int step = 0; step < 20000; ++step) {
        meddle(now);
        now += rnd.below(100);
        ucs_timer_wheel_advance(m_wheel.get(), now);
        ASSERT_EQ(active.size(), m_wheel->num_timers) << "step " << step;
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(fired, 1000u);
}

} // namespace
