/* Halyard: tests of the bound on messages that wait: what a receiver keeps of a flood of tagged
 * messages that nobody receives, or of active messages behind one that is fetched; that all of it
 * arrives, in order, and that senders go on as before when the receiver has room again.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <seed.h>

#include <algorithm>
#include <cstring>
#include <deque>

using namespace ucp_test;

namespace {

constexpr size_t BUDGET = 32768;
/* What is on its way when the sender is told: the rings, and what the hooks hold back, each message
 * in a block that may be four times as large. */
constexpr size_t IN_FLIGHT = 1u << 20;

class tag_budget : public variant_test {
protected:
    /* Without buffers, so that little is on its way. */
    tag_budget()
        : m_environment({{"UCX_TM_UNEXP_BUDGET", std::to_string(BUDGET)},
                         {"UCX_MM_BUFFER_THRESH", "inf"}})
    {
    }

private:
    environment m_environment;
};

INSTANTIATE_TEST_SUITE_P(all, tag_budget, testing::ValuesIn(all_variants()), variant_name);

/* Messages under way, known by their numbers, which their tags are. */
class flood {
public:
    explicit flood(pair &pair) : m_pair(pair) {}

    void send(size_t length, bool sync = false)
    {
        m_data.push_back(pattern(m_data.size(), length));
        m_sends.push_back(m_pair.send(m_data.back().data(), length, m_data.size() - 1, sync));
        ASSERT_FALSE(UCS_PTR_IS_ERR(m_sends.back()));
        m_most = std::max(m_most, ucp_test_unexp_bytes(m_pair.receiver().handle()));
    }
    /* Until all has arrived in some form. */
    void arrive()
    {
        m_pair.progress_until([&]() {
            m_most = std::max(m_most, ucp_test_unexp_bytes(m_pair.receiver().handle()));
            return ucp_test_num_kept(m_pair.receiver().handle()) == m_data.size() - m_received;
        });
    }
    /* The next, by a receive that takes any; it must be the first that was sent. */
    void receive()
    {
        const size_t length      = m_data[m_received].size();
        ucp_tag_recv_info_t info = {};
        guarded buffer(length);
        ASSERT_EQ(UCS_OK, m_pair.wait(m_pair.receive(buffer.data(), length, 0, 0, &info), &info));
        ASSERT_EQ(m_received, info.sender_tag);
        ASSERT_EQ(length, info.length);
        ASSERT_EQ(-1, differs(buffer.data(), length, m_received));
        ASSERT_TRUE(buffer.is_intact());
        ++m_received;
    }
    void end()
    {
        while (m_received < m_data.size()) {
            ASSERT_NO_FATAL_FAILURE(receive());
        }
        for (ucs_status_ptr_t sent : m_sends) {
            ASSERT_EQ(UCS_OK, m_pair.wait(sent));
        }
        m_sends.clear();
        m_pair.settle();
        EXPECT_EQ(0u, ucp_test_unexp_bytes(m_pair.receiver().handle()));
        EXPECT_EQ(0u, ucp_test_num_requests(m_pair.sender().handle()));
        EXPECT_EQ(0u, ucp_test_num_ids(m_pair.sender().handle()));
        EXPECT_EQ(0u, ucp_test_num_controls(m_pair.receiver().handle()));
        EXPECT_FALSE(ucp_test_is_holding(m_pair.ep()));
    }
    size_t most() const
    {
        return m_most;
    }
    size_t left() const
    {
        return m_data.size() - m_received;
    }

private:
    pair &m_pair;
    std::deque<bytes> m_data;
    std::vector<ucs_status_ptr_t> m_sends;
    size_t m_received = 0;
    size_t m_most     = 0;
};

/* All are posted before anybody looks: they wait in the queue of the lane, to be sent whole. */
TEST_P(tag_budget, queued_messages)
{
    pair pair(GetParam());
    flood all(pair);
    for (int i = 0; i < 1000; ++i) {
        ASSERT_NO_FATAL_FAILURE(all.send(4000));
    }
    all.arrive();
    EXPECT_LE(all.most(), BUDGET + IN_FLIGHT);
    all.end();
}

/* One after the other, with progress in between. */
TEST_P(tag_budget, messages_one_by_one)
{
    pair pair(GetParam());
    flood all(pair);
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 600; ++i) {
            ASSERT_NO_FATAL_FAILURE(all.send(4000, (i % 7) == 3));
            pair.progress();
        }
        all.arrive();
        EXPECT_LE(all.most(), BUDGET + IN_FLIGHT);
        pair.settle();
        EXPECT_EQ(all.most() > BUDGET, (bool)ucp_test_is_holding(pair.ep()));
        all.end();
    }
}

/* Small ones come whole all the same, and none is lost or late. */
TEST_P(tag_budget, small_messages_too)
{
    seeded_random random(811);
    pair pair(GetParam());
    flood all(pair);
    for (int i = 0; i < 2000; ++i) {
        ASSERT_NO_FATAL_FAILURE(all.send(random.below(130)));
        if (random.one_in(4)) {
            pair.progress();
        }
    }
    all.arrive();
    all.end();
}

/* Over the budget and back, again and again. */
TEST_P(tag_budget, random_traffic)
{
    seeded_random random(812);
    pair pair(GetParam());
    flood all(pair);
    for (int i = 0; i < 1500; ++i) {
        const bool grows = ((i / 150) % 2) == 0;
        if (random.one_in(grows ? 4 : 2) && (all.left() > 0)) {
            ASSERT_NO_FATAL_FAILURE(all.receive());
        } else {
            ASSERT_NO_FATAL_FAILURE(all.send(random.one_in(10) ? random.below(40000)
                                                               : random.below(5000),
                                             random.one_in(10)));
        }
        if (!grows && random.one_in(2)) {
            while (all.left() > random.below(4)) {
                ASSERT_NO_FATAL_FAILURE(all.receive());
            }
        }
        if (random.one_in(3)) {
            pair.progress();
        }
    }
    EXPECT_LE(all.most(), BUDGET + IN_FLIGHT);
    all.end();
}

/* Each of several senders is told, those that send nothing are not. */
TEST(tag_budget_of_many, senders)
{
    environment budget(settings{{"UCX_TM_UNEXP_BUDGET", "32k"}});
    context context;
    worker receiver(context), idle(context);
    std::vector<std::unique_ptr<worker>> senders;
    std::vector<ucp_ep_h> eps;
    std::deque<bytes> data;
    std::vector<void *> requests;
    const ucp_request_param_t param = send_param(nullptr);
    const auto progress             = [&]() {
        receiver.progress();
        idle.progress();
        for (const auto &each : senders) {
            each->progress();
        }
    };

    for (int i = 0; i < 4; ++i) {
        senders.push_back(std::make_unique<worker>(context));
        eps.push_back(senders.back()->connect(receiver));
    }
    ucp_ep_h idle_ep = idle.connect(receiver);
    requests.push_back(ucp_tag_send_nbx(idle_ep, nullptr, 0, 999, &param));
    for (unsigned i = 0; i < 400; ++i) {
        data.push_back(pattern(i, 2000));
        requests.push_back(ucp_tag_send_nbx(eps[i % 4], data.back().data(), 2000, i, &param));
        ASSERT_FALSE(UCS_PTR_IS_ERR(requests.back()));
        progress();
    }
    while (ucp_test_num_kept(receiver.handle()) < 401) {
        progress();
    }
    EXPECT_LE(ucp_test_unexp_bytes(receiver.handle()), 32768u + IN_FLIGHT);
    EXPECT_FALSE(ucp_test_is_holding(idle_ep));
    for (ucp_ep_h ep : eps) {
        EXPECT_TRUE(ucp_test_is_holding(ep));
    }
    for (unsigned i = 0; i < 400; ++i) {
        bytes buffer(2000);
        void *request =
            ucp_tag_recv_nbx(receiver.handle(), buffer.data(), 2000, 399 - i, ~0ull, &param);
        while (UCS_PTR_IS_PTR(request) &&
               (ucp_request_check_status(request) == UCS_INPROGRESS)) {
            progress();
        }
        ASSERT_EQ(-1, differs(buffer.data(), 2000, 399 - i));
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
    for (void *request : requests) {
        while (UCS_PTR_IS_PTR(request) &&
               (ucp_request_check_status(request) == UCS_INPROGRESS)) {
            progress();
        }
        if (UCS_PTR_IS_PTR(request)) {
            EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
            ucp_request_free(request);
        }
    }
    for (int i = 0; i < 200; ++i) {
        progress();
    }
    for (ucp_ep_h ep : eps) {
        EXPECT_FALSE(ucp_test_is_holding(ep));
    }
}

/* Announcements of those that were told are received after they have left, as an error; what came
 * whole is received. A new worker in their place begins afresh. */
TEST(tag_budget_of_many, senders_that_leave)
{
    environment budget(settings{{"UCX_TM_UNEXP_BUDGET", "8k"}});
    const ucp_request_param_t param = send_param(nullptr);
    const bytes data                = pattern(1, 3000);
    bytes buffer(3000);
    context context;
    worker receiver(context);

    for (int round = 0; round < 3; ++round) {
        auto sender = std::make_unique<worker>(context);
        ucp_ep_h ep = sender->connect(receiver, UCP_ERR_HANDLING_MODE_PEER);
        std::vector<void *> requests;
        for (int i = 0; (i < 50) || !ucp_test_is_holding(ep); ++i) {
            requests.push_back(ucp_tag_send_nbx(ep, data.data(), data.size(), 1, &param));
            ASSERT_FALSE(UCS_PTR_IS_ERR(requests.back()));
            receiver.progress();
            sender->progress();
            ASSERT_LT(i, 100000);
        }
        sender->forget(ep);
        (void)ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
        for (void *request : requests) {
            if (UCS_PTR_IS_PTR(request)) {
                EXPECT_NE(UCS_INPROGRESS, ucp_request_check_status(request));
                ucp_request_free(request);
            }
        }
        for (int i = 0; i < 200; ++i) {
            receiver.progress();
            sender->progress();
        }
        sender.reset();
        for (int i = 0; i < 200; ++i) {
            receiver.progress();
        }
        ASSERT_GT(ucp_test_num_kept(receiver.handle()), 0u);
        while (ucp_test_num_kept(receiver.handle()) > 0) {
            void *request = ucp_tag_recv_nbx(receiver.handle(), buffer.data(), 3000, 1, ~0ull,
                                             &param);
            while (UCS_PTR_IS_PTR(request) &&
                   (ucp_request_check_status(request) == UCS_INPROGRESS)) {
                receiver.progress();
            }
            if (UCS_PTR_IS_PTR(request)) {
                ucp_request_free(request);
            }
        }
        EXPECT_EQ(0u, ucp_test_unexp_bytes(receiver.handle()));
        EXPECT_EQ(0u, ucp_test_num_controls(receiver.handle()));
    }
}

/* ---- active messages ---- */

/* Active messages under way, known by their numbers, to handlers of both kinds. */
class am_flood {
public:
    static constexpr unsigned WHOLE = 7, ANY = 8; /* ids */

    explicit am_flood(pair &pair) : m_pair(pair)
    {
        listen(WHOLE, UCP_AM_FLAG_WHOLE_MSG);
        listen(ANY, 0);
    }

    void send(size_t length, unsigned id = WHOLE, uint32_t flags = 0)
    {
        ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
        const uint64_t number     = m_data.size();
        param.flags               = flags | UCP_AM_SEND_FLAG_COPY_HEADER;
        m_data.push_back(pattern(number, length));
        m_sends.push_back(ucp_am_send_nbx(m_pair.ep(), id, &number, sizeof(number),
                                          m_data.back().data(), length, &param));
        ASSERT_FALSE(UCS_PTR_IS_ERR(m_sends.back()));
        watch();
    }
    /* Until all has been seen, and nothing of it is left anywhere. */
    void end()
    {
        m_pair.progress_until([&]() {
            watch();
            return m_seen == m_data.size();
        });
        for (ucs_status_ptr_t sent : m_sends) {
            ASSERT_EQ(UCS_OK, m_pair.wait(sent));
        }
        m_sends.clear();
        m_pair.settle();
        EXPECT_EQ(0u, ucp_test_unexp_bytes(m_pair.receiver().handle()));
        EXPECT_EQ(0u, ucp_test_kept_bytes(m_pair.receiver().handle()));
        EXPECT_EQ(0u, ucp_test_num_requests(m_pair.sender().handle()));
        EXPECT_FALSE(ucp_test_is_holding(m_pair.ep()));
    }
    size_t most() const
    {
        return m_most;
    }

private:
    void listen(unsigned id, uint32_t flags)
    {
        ucp_am_handler_param_t param;

        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        param.id    = id;
        param.cb    = handle;
        param.arg   = this;
        param.flags = flags;
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_pair.receiver().handle(), &param));
    }
    void watch()
    {
        m_most = std::max(m_most, ucp_test_kept_bytes(m_pair.receiver().handle()));
    }
    static ucs_status_t handle(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self      = static_cast<am_flood *>(arg);
        uint64_t number = 0;

        EXPECT_EQ(sizeof(number), header_length);
        memcpy(&number, header, sizeof(number));
        EXPECT_EQ(self->m_seen, number);
        EXPECT_EQ(self->m_data[number].size(), length);
        if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
            EXPECT_EQ(-1, differs(data, length, number));
        }
        ++self->m_seen;
        return UCS_OK; /* what a descriptor stands for is not wanted */
    }

    pair &m_pair;
    std::deque<bytes> m_data;
    std::vector<ucs_status_ptr_t> m_sends;
    size_t m_seen = 0;
    size_t m_most = 0;
};

class am_budget : public tag_budget {
};

INSTANTIATE_TEST_SUITE_P(all, am_budget, testing::ValuesIn(all_variants()), variant_name);

context_options with_am()
{
    context_options options;
    options.features = UCP_FEATURE_AM | UCP_FEATURE_TAG;
    return options;
}

/* Where the data of the first goes as messages, it comes behind all the others. */
TEST_P(am_budget, behind_a_fetched_message)
{
    constexpr size_t LONG = 200000;
    pair pair(GetParam(), with_am());
    am_flood all(pair);
    for (int round = 0; round < 2; ++round) {
        ASSERT_NO_FATAL_FAILURE(all.send(LONG));
        for (int i = 0; i < 1000; ++i) {
            ASSERT_NO_FATAL_FAILURE(
                all.send((i % 9 == 0) ? 60 : 4000, (i % 3) ? am_flood::WHOLE : am_flood::ANY));
        }
        all.end();
        EXPECT_LE(all.most(), BUDGET + LONG + IN_FLIGHT);
    }
}

/* Announced ones are not all fetched at once. */
TEST_P(am_budget, fetched_in_turn)
{
    constexpr size_t LONG = 100000;
    pair pair(GetParam(), with_am());
    am_flood all(pair);
    for (int i = 0; i < 60; ++i) {
        ASSERT_NO_FATAL_FAILURE(all.send(LONG, am_flood::WHOLE, UCP_AM_SEND_FLAG_EAGER));
    }
    all.end();
    EXPECT_LE(all.most(), BUDGET + (2 * LONG) + (60 * 512));
}

TEST_P(am_budget, random_traffic)
{
    static const uint32_t flags[] = {0, 0, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV};
    seeded_random random(813);
    pair pair(GetParam(), with_am());
    am_flood all(pair);
    for (int i = 0; i < 1500; ++i) {
        const size_t length = random.below(random.one_in(10) ? 100000 : 5000);
        const uint32_t flag = flags[random.below(4)];
        ASSERT_NO_FATAL_FAILURE(
            all.send(length, random.one_in(3) ? am_flood::ANY : am_flood::WHOLE, flag));
        if (random.one_in(3)) {
            pair.progress();
        }
    }
    all.end();
}

} // namespace
