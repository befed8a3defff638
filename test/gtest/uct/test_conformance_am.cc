/* Halyard: conformance of transports: active messages, back-pressure and pending requests.
 *
 * Runs over every transport that has messages, plain and under each hook.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <seed.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <poll.h>

using namespace uct_test;

namespace {

class am_test : public pair_test {
protected:
    void SetUp() override
    {
        pair_test::SetUp();
        if (IsSkipped() || HasFatalFailure()) {
            return;
        }
        for (way how : WAYS) {
            if (has_way(m_tl, how)) {
                m_ways.push_back(how);
            }
        }
        ASSERT_FALSE(m_ways.empty());
    }

    /* Compares what arrives under an id with what was sent under it. */
    void expect_on(worker &receiver, unsigned id)
    {
        receiver.on_message(id, [this, id](const uint8_t *data, size_t length) {
            auto &queue = m_expected[id];
            ASSERT_FALSE(queue.empty()) << "a message that nobody sent, id " << id;
            ASSERT_EQ(queue.front().size(), length) << "id " << id << " message " << m_count[id];
            ASSERT_TRUE(std::equal(data, data + length, queue.front().begin()))
                << "id " << id << " message " << m_count[id] << " length " << length;
            queue.pop_front();
            ++m_count[id];
        });
    }

    bool all_arrived() const
    {
        return std::all_of(m_expected.begin(), m_expected.end(),
                           [](const auto &entry) { return entry.second.empty(); });
    }

    way random_way(seeded_random &rnd) const
    {
        return m_ways[rnd.below(m_ways.size())];
    }

    static bytes random_message(seeded_random &rnd, way how, size_t max)
    {
        const size_t min   = (how == way::SHORT) ? 8 : 0;
        const size_t limit = rnd.one_in(4) ? max : std::min<size_t>(max, 128);
        return pattern(rnd.bits(), min + rnd.below(limit - min + 1));
    }

    std::vector<way> m_ways;
    std::map<unsigned, std::deque<bytes>> m_expected;
    std::map<unsigned, unsigned> m_count;
};

/* All sizes to 2 KiB, and those around every larger power of two up to the maximum. */
std::vector<size_t> sizes_to(size_t min, size_t max)
{
    std::vector<size_t> sizes;

    for (size_t size = min; size <= std::min<size_t>(max, 2048); ++size) {
        sizes.push_back(size);
    }
    for (size_t base = 4096; base <= max; base *= 2) {
        for (size_t size = base - 17; (size <= base + 17) && (size <= max); ++size) {
            sizes.push_back(size);
        }
    }
    for (size_t size = max - std::min<size_t>(max - min, 17); size <= max; ++size) {
        sizes.push_back(size);
    }
    return sizes;
}

TEST_P(am_test, every_size_in_every_way)
{
    uct_ep_t *ep = a().connect(b().where());

    expect_on(b(), 5);
    for (way how : m_ways) {
        const size_t max = std::min<size_t>(way_max(a(), how), 1 << 20);
        ASSERT_GE(max, 64u);
        for (size_t size : sizes_to((how == way::SHORT) ? 8 : 0, max)) {
            const bytes data = pattern(size, size);
            m_expected[5].push_back(data);
            ASSERT_EQ(UCS_OK, send(both(), ep, how, 5, data, size));
        }
    }
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
    EXPECT_EQ(0u, b().iface->am_dropped);
    EXPECT_TRUE(a().failed.empty());
}

TEST_P(am_test, order_is_kept_among_ways_and_sizes)
{
    seeded_random rnd(GetParam().size());
    uct_ep_t *ep = a().connect(b().where());

    expect_on(b(), 0);
    for (unsigned i = 0; i < 20000; ++i) {
        const way how    = random_way(rnd);
        const bytes data = random_message(rnd, how, std::min<size_t>(way_max(a(), how), 4096));
        m_expected[0].push_back(data);
        ASSERT_EQ(UCS_OK, send(both(), ep, how, 0, data, rnd.bits()));
    }
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
    EXPECT_EQ(20000u, m_count[0]);
}

/* What the sender does with its buffer after a send does not reach the receiver. */
TEST_P(am_test, buffers_are_reusable_at_once)
{
    uct_ep_t *ep = a().connect(b().where());

    expect_on(b(), 1);
    for (way how : m_ways) {
        for (unsigned i = 0; i < 100; ++i) {
            bytes data = pattern(i, std::min<size_t>(way_max(a(), how), 1000));
            m_expected[1].push_back(data);
            ASSERT_EQ(UCS_OK, persist(both(), [&]() {
                return post(ep, how, 1, data, i);
            }));
            std::fill(data.begin(), data.end(), 0xee);
        }
    }
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
}

TEST_P(am_test, no_handler_runs_inside_a_send)
{
    uct_ep_t *ep = a().connect(b().where());
    bool sending = false;

    b().on_message(2, [&](const uint8_t *, size_t) { EXPECT_FALSE(sending); ++m_count[2]; });
    for (unsigned i = 0; i < 1000; ++i) {
        const bytes data = pattern(i, 32);
        const way how    = m_ways[i % m_ways.size()];
        ASSERT_EQ(UCS_OK, persist(both(), [&]() {
            sending                   = true;
            const ucs_status_t status = post(ep, how, 2, data, i);
            sending                   = false;
            return status;
        }));
    }
    EXPECT_TRUE(run_until(both(), [&]() { return m_count[2] == 1000; }));
}

TEST_P(am_test, ids_without_handler_are_dropped_and_counted)
{
    uct_ep_t *ep    = a().connect(b().where());
    const way how   = m_ways[0];
    const bytes msg = pattern(1, 16);

    expect_on(b(), UCT_AM_ID_MAX - 1);
    for (unsigned i = 0; i < 10; ++i) {
        ASSERT_EQ(UCS_OK, send(both(), ep, how, 7, msg));
    }
    m_expected[UCT_AM_ID_MAX - 1].push_back(msg);
    ASSERT_EQ(UCS_OK, send(both(), ep, how, UCT_AM_ID_MAX - 1, msg));
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
    EXPECT_EQ(10u, b().iface->am_dropped);
}

TEST_P(am_test, many_endpoints_between_many_workers)
{
    constexpr unsigned NUM_WORKERS = 8; /* so that sender and receiver make less than 32 ids */
    seeded_random rnd(7);
    std::vector<std::shared_ptr<worker>> owners;
    std::vector<worker *> all;

    if (is_loopback()) {
        owners = {m_a};
    } else {
        owners = {m_a, m_b};
        while (owners.size() < NUM_WORKERS) {
            owners.push_back(std::make_shared<worker>(m_tl));
            ASSERT_EQ(UCS_OK, owners.back()->status());
        }
    }
    for (auto &owner : owners) {
        all.push_back(owner.get());
    }

    struct route {
        uct_ep_t *ep;
        worker *from;
        unsigned id;
        unsigned to;
    };
    std::vector<route> routes;
    std::vector<std::map<unsigned, std::deque<bytes>>> expected(all.size());
    size_t arrived = 0;

    for (unsigned to = 0; to < all.size(); ++to) {
        const unsigned senders = is_loopback() ? 20 : static_cast<unsigned>(all.size());
        for (unsigned from = 0; from < senders; ++from) {
            worker *sender = is_loopback() ? all[0] : all[from];
            if (!is_loopback() && (from == to)) {
                continue;
            }
            routes.push_back({sender->connect(all[to]->where()), sender, from, to});
            all[to]->on_message(from, [&expected, &arrived, to, from](const uint8_t *d, size_t n) {
                auto &queue = expected[to][from];
                ASSERT_FALSE(queue.empty());
                ASSERT_EQ(queue.front(), bytes(d, d + n));
                queue.pop_front();
                ++arrived;
            });
        }
    }

    for (unsigned i = 0; i < 10000; ++i) {
        const route &r   = routes[rnd.below(routes.size())];
        const way how    = random_way(rnd);
        const bytes data = random_message(rnd, how, std::min<size_t>(way_max(*r.from, how), 1024));
        expected[r.to][r.id].push_back(data);
        ASSERT_EQ(UCS_OK, send(all, r.ep, how, r.id, data, i));
    }
    EXPECT_TRUE(run_until(all, [&]() { return arrived == 10000; })) << arrived;
    for (worker *w : all) {
        EXPECT_TRUE(w->failed.empty());
        w->close_all();
    }
}

/* Fills everything that lies between the workers; returns the number of messages. */
unsigned fill(uct_ep_t *ep, way how, std::deque<bytes> &expected)
{
    unsigned count = 0;

    for (unsigned refused = 0; (refused < 100) && (count < 1000000);) {
        const bytes data          = pattern(count, 64);
        const ucs_status_t status = post(ep, how, 3, data, 0);
        if (status == UCS_OK) {
            expected.push_back(data);
            ++count;
            refused = 0;
        } else {
            EXPECT_EQ(UCS_ERR_NO_RESOURCE, status);
            ++refused;
        }
    }
    return count;
}

TEST_P(am_test, a_receiver_that_sleeps_pushes_back)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];

    expect_on(b(), 3);
    m_expected[3].push_back(pattern(77, 8));
    ASSERT_EQ(UCS_OK, send(both(), ep, how, 3, pattern(77, 8)));

    for (unsigned round = 0; round < 20; ++round) {
        const unsigned count = fill(ep, how, m_expected[3]);
        EXPECT_LT(count, 1000000u) << "nothing bounds what is under way";
        ASSERT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
    }
}

/* Whose messages find no room, since the receiver does nothing, need not poll: it sleeps until
 * there may be room. */
TEST_P(am_test, a_sender_without_room_sleeps)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];

    if ((m_tl->iface.event_fd == nullptr) || (strchr(m_tl->name, ':') != nullptr)) {
        return; /* nothing comes by itself; hooks do not know when those below have room */
    }
    struct pollfd event = {m_tl->iface.event_fd(a().iface), POLLIN, 0};
    expect_on(b(), 3);
    for (unsigned round = 0; round < 3; ++round) {
        m_expected[3].push_back(pattern(77, 8));
        ASSERT_EQ(UCS_OK, send(both(), ep, how, 3, pattern(77, 8)));
        fill(ep, how, m_expected[3]);
        const bytes data = pattern(round, 40);
        m_expected[3].push_back(data);
        pending request([&]() { return post(ep, how, 3, data, 0); });
        uct_ep_pending_add(ep, &request.base);
        ASSERT_TRUE(run_until({&a()}, [&]() {
            return m_tl->iface.event_arm(a().iface) == UCS_OK;
        })) << "it polls until there is room";
        ASSERT_TRUE(run_until({&b()}, [&]() {
            return !uct_ep_has_pending(ep) || (poll(&event, 1, 1) == 1);
        })) << "it sleeps though there is room";
        ASSERT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
    }
}

TEST_P(am_test, pending_requests_go_out_in_order)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];
    std::vector<std::unique_ptr<pending>> requests;
    unsigned sent = 0;

    expect_on(b(), 3);
    for (unsigned round = 0; round < 5; ++round) {
        fill(ep, how, m_expected[3]);
        for (unsigned i = 0; i < 500; ++i) {
            const bytes data = pattern(1000000 + i, 40);
            m_expected[3].push_back(data);
            requests.push_back(std::make_unique<pending>([&, data]() {
                const ucs_status_t status = post(ep, how, 3, data, 0);
                sent                     += (status == UCS_OK);
                return status;
            }));
            uct_ep_pending_add(ep, &requests.back()->base);
        }
        EXPECT_TRUE(uct_ep_has_pending(ep));
        ASSERT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
        EXPECT_FALSE(uct_ep_has_pending(ep));
        EXPECT_EQ(0u, a().iface->num_pending);
        EXPECT_EQ(500u * (round + 1), sent);
    }
}

TEST_P(am_test, endpoints_share_what_is_there)
{
    constexpr unsigned NUM_EPS = 4, NUM_REQUESTS = 2000;
    const way how              = m_ways[0];
    std::vector<std::unique_ptr<pending>> requests;
    std::vector<unsigned> taken(NUM_EPS);
    unsigned total = 0, widest = 0;

    std::vector<uct_ep_t *> eps;
    unsigned arrived = 0;

    /* Connecting takes each its own time, which is no matter of this test. */
    b().on_message(4, [&](const uint8_t *, size_t) { ++arrived; });
    for (unsigned i = 0; i < NUM_EPS; ++i) {
        eps.push_back(a().connect(b().where()));
        ASSERT_EQ(UCS_OK, send(both(), eps[i], how, 4, pattern(0, 8)));
    }
    ASSERT_TRUE(run_until(both(), [&]() { return arrived == NUM_EPS; }));

    for (unsigned i = 0; i < NUM_EPS; ++i) {
        uct_ep_t *ep = eps[i];
        for (unsigned k = 0; k < NUM_REQUESTS; ++k) {
            requests.push_back(std::make_unique<pending>([&, ep, i, k]() {
                const ucs_status_t status = post(ep, how, 4, pattern(k, 200), 0);
                if (status == UCS_OK) {
                    EXPECT_EQ(k, taken[i]) << "out of order";
                    ++taken[i];
                    ++total;
                }
                return status;
            }));
            uct_ep_pending_add(ep, &requests.back()->base);
        }
    }

    ASSERT_TRUE(run_until(both(), [&]() {
        const auto range = std::minmax_element(taken.begin(), taken.end());
        if (*range.second < NUM_REQUESTS) {
            widest = std::max(widest, *range.second - *range.first);
        }
        return total == NUM_EPS * NUM_REQUESTS;
    }));
    EXPECT_LT(widest, NUM_REQUESTS / 10) << "one endpoint was served long before another";
}

TEST_P(am_test, purge_takes_requests_out_once_and_in_order)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];
    std::vector<std::unique_ptr<pending>> requests;
    std::vector<uct_pending_t *> purged, added;
    bool is_purged = false;

    expect_on(b(), 3);
    fill(ep, how, m_expected[3]);
    for (unsigned i = 0; i < 100; ++i) {
        requests.push_back(std::make_unique<pending>([&]() {
            EXPECT_FALSE(is_purged);
            return UCS_ERR_NO_RESOURCE;
        }));
        added.push_back(&requests.back()->base);
        uct_ep_pending_add(ep, added.back());
    }
    a().progress();
    uct_ep_pending_purge(
        ep, [](uct_pending_t *self, void *arg) {
            static_cast<std::vector<uct_pending_t *> *>(arg)->push_back(self);
        }, &purged);
    is_purged = true;
    EXPECT_EQ(added, purged);
    EXPECT_FALSE(uct_ep_has_pending(ep));
    EXPECT_EQ(0u, a().iface->num_pending);
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
}

/* Handlers answer at once, or by a pending request where there is no room. */
TEST_P(am_test, handlers_send)
{
    constexpr unsigned NUM_PINGS = 5000;
    const way how                = m_ways[0];
    uct_ep_t *there              = a().connect(b().where());
    uct_ep_t *back               = b().connect(a().where());
    std::deque<std::unique_ptr<pending>> requests;
    unsigned pongs = 0;

    b().on_message(8, [&](const uint8_t *data, size_t length) {
        const bytes copy(data, data + length);
        if (!uct_ep_has_pending(back) && (post(back, how, 9, copy, 0) == UCS_OK)) {
            return;
        }
        requests.push_back(std::make_unique<pending>([&, copy]() {
            return post(back, how, 9, copy, 0);
        }));
        uct_ep_pending_add(back, &requests.back()->base);
    });
    a().on_message(9, [&](const uint8_t *data, size_t length) {
        EXPECT_EQ(pattern(pongs, 8 + pongs % 40), bytes(data, data + length));
        ++pongs;
    });

    for (unsigned i = 0; i < NUM_PINGS; ++i) {
        ASSERT_EQ(UCS_OK, send(both(), there, how, 8, pattern(i, 8 + i % 40)));
    }
    EXPECT_TRUE(run_until(both(), [&]() { return pongs == NUM_PINGS; })) << pongs;
}

TEST_P(am_test, flush_ends)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];

    expect_on(b(), 6);
    for (unsigned i = 0; i < 200; ++i) {
        const bytes data = pattern(i, 24);
        m_expected[6].push_back(data);
        ASSERT_EQ(UCS_OK, send(both(), ep, how, 6, data));
        if (m_tl->ep.live.flush != nullptr) {
            ASSERT_EQ(UCS_OK, finish(both(), [&](uct_completion_t *comp) {
                return ep->ops->flush(ep, comp);
            }));
        }
    }
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
}

TEST_P(am_test, memory_stays_within_bounds)
{
    uct_ep_t *ep  = a().connect(b().where());
    const way how = m_ways[0];
    size_t shared, private_bytes;

    a().tl->iface.memory_used(a().iface, &shared, &private_bytes);
    EXPECT_LE(shared, 1u << 20) << "idle";
    EXPECT_LE(private_bytes, 2u << 20) << "idle";
    EXPECT_GE(private_bytes, sizeof(uct_iface_t));

    expect_on(b(), 3);
    fill(ep, how, m_expected[3]);
    a().tl->iface.memory_used(a().iface, &shared, &private_bytes);
    EXPECT_LE(shared + private_bytes, 64u << 20) << "with one busy peer";
    EXPECT_TRUE(run_until(both(), [&]() { return all_arrived(); }));
}

INSTANTIATE_TEST_SUITE_P(transports, am_test, testing::ValuesIn(transports(has_messages)),
                         test_name);

} // namespace
