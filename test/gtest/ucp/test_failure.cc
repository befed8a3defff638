/* Halyard: tests of transports that fail in the midst of traffic: the k-th operation, for all k.
 * Every operation ends once, by success or an error; error handlers run once; nothing hangs;
 * nothing is left over. Also: a send that ends early tells the receiver, and who breaks the rules
 * of introduction is disconnected.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace ucp_test;

namespace {

struct scenario {
    const char *name;
    settings env;
};

void PrintTo(const scenario &value, std::ostream *out)
{
    *out << value.name;
}

class failure : public testing::TestWithParam<scenario> {};

INSTANTIATE_TEST_SUITE_P(
    all, failure,
    testing::Values(
        scenario{"messages", {{"UCX_TLS", "fault:mm,cma"}}},
        scenario{"messages_only", {{"UCX_TLS", "fault:mm"}}},
        scenario{"copies", {{"UCX_TLS", "mm,fault:cma"}}},
        scenario{"all", {{"UCX_TLS", "fault:mm,fault:cma"}, {"UCX_RNDV_THRESH", "1000"}}},
        scenario{"put", {{"UCX_TLS", "fault:mm,fault:cma"}, {"UCX_RNDV_SCHEME", "put_zcopy"}}},
        scenario{"both", {{"UCX_TLS", "fault:mm,fault:cma"}, {"UCX_RNDV_SCHEME", "both"}}},
        scenario{"announced", {{"UCX_TLS", "fault:mm,cma"}, {"UCX_RNDV_THRESH", "0"}}},
        scenario{"locked_out",
                 {{"UCX_TLS", "fault:mm,fault:cma"}, {"UCX_HOOK_NO_RESOURCE", "0.5"}}}),
    [](const testing::TestParamInfo<scenario> &info) { return std::string(info.param.name); });

/* One side of the traffic. */
struct side {
    explicit side(const context &context) : worker(context)
    {
    }

    ucp_test::worker worker;
    ucp_ep_h ep    = nullptr;
    int failures   = 0;
    bool is_closed = false;
    std::vector<std::unique_ptr<ending>> sends, receives;
    std::vector<void *> receive_requests;
    std::vector<bytes> buffers;
};

void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    auto *self = static_cast<side *>(arg);

    ++self->failures;
    EXPECT_EQ(self->ep, ep);
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
    self->worker.forget(ep);
    self->is_closed = true;
    void *request   = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
    EXPECT_FALSE(UCS_PTR_IS_ERR(request));
    if (request != nullptr) {
        ucp_request_free(request);
    }
}

class run {
public:
    run() : m_sides{side(m_context), side(m_context)}
    {
        for (int i = 0; i < 2; ++i) {
            m_sides[i].ep = m_sides[i].worker.connect(
                m_sides[1 - i].worker, UCP_ERR_HANDLING_MODE_PEER, on_failure, &m_sides[i]);
        }
    }

    void post(int from, size_t length, ucp_tag_t tag, bool sync)
    {
        side &sender   = m_sides[from];
        side &receiver = m_sides[1 - from];

        receiver.buffers.emplace_back(length);
        receiver.receives.push_back(std::make_unique<ending>());
        receiver.receives.back()->free_request = false;
        const ucp_request_param_t rparam =
            receive_param(receiver.receives.back().get(), UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        receiver.receive_requests.push_back(ucp_tag_recv_nbx(
            receiver.worker.handle(), receiver.buffers.back().data(), length, tag, ~0ull, &rparam));
        if (sender.is_closed) {
            return;
        }
        sender.sends.push_back(std::make_unique<ending>());
        const ucp_request_param_t sparam = send_param(sender.sends.back().get());
        void *request = sync ? ucp_tag_send_sync_nbx(sender.ep, m_data.data(), length, tag, &sparam)
                             : ucp_tag_send_nbx(sender.ep, m_data.data(), length, tag, &sparam);
        if (!UCS_PTR_IS_PTR(request)) { /* it has ended, without a callback */
            EXPECT_EQ(0, sender.sends.back()->calls);
            sender.sends.back()->calls  = 1;
            sender.sends.back()->status = UCS_PTR_RAW_STATUS(request);
        }
    }

    unsigned progress()
    {
        return m_sides[0].worker.progress() + m_sides[1].worker.progress();
    }

    /* Until all sends have ended, and all receives too that anything will still come for. */
    void finish()
    {
        const auto start = std::chrono::steady_clock::now();
        while (!is_over()) {
            progress();
            if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
                FAIL() << "something does not end: sends " << num_open(m_sides[0].sends) << " and "
                       << num_open(m_sides[1].sends) << ", receives "
                       << num_open(m_sides[0].receives) << " and " << num_open(m_sides[1].receives)
                       << ", failures " << m_sides[0].failures << " and " << m_sides[1].failures;
            }
        }
    }

    void check()
    {
        const bool failed = (m_sides[0].failures + m_sides[1].failures) > 0;
        for (side &each : m_sides) {
            EXPECT_LE(each.failures, 1);
            for (size_t i = 0; i < each.receives.size(); ++i) {
                ending &end = *each.receives[i];
                if (end.calls == 0) { /* no message came for it, which takes a failure */
                    ASSERT_TRUE(failed);
                    ucp_request_cancel(each.worker.handle(), each.receive_requests[i]);
                }
                ASSERT_EQ(1, end.calls);
                if (end.status == UCS_OK) {
                    ASSERT_TRUE(std::equal(each.buffers[i].begin(), each.buffers[i].end(),
                                           m_data.begin()));
                    ASSERT_EQ(each.buffers[i].size(), end.info.length);
                } else {
                    ASSERT_TRUE(failed);
                }
                ucp_request_free(each.receive_requests[i]);
            }
            for (const auto &end : each.sends) {
                ASSERT_EQ(1, end->calls);
                ASSERT_TRUE((end->status == UCS_OK) || failed);
            }
        }
        for (int i = 0; i < 300; ++i) {
            progress();
        }
        for (side &each : m_sides) {
            EXPECT_EQ(0u, ucp_test_num_requests(each.worker.handle()));
            EXPECT_EQ(0u, ucp_test_num_ids(each.worker.handle()));
        }
    }

    int num_failures() const
    {
        return m_sides[0].failures + m_sides[1].failures;
    }

private:
    static size_t num_open(const std::vector<std::unique_ptr<ending>> &list)
    {
        size_t count = 0;
        for (const auto &each : list) {
            count += (each->calls == 0);
        }
        return count;
    }

    bool is_over()
    {
        if ((num_open(m_sides[0].sends) > 0) || (num_open(m_sides[1].sends) > 0)) {
            return false;
        }
        if ((num_open(m_sides[0].receives) == 0) && (num_open(m_sides[1].receives) == 0)) {
            return true;
        }
        /* What was not sent does not come; but what has met its message ends. */
        if (num_failures() == 0) {
            return false;
        }
        for (int i = 0; i < 2; ++i) {
            if (ucp_test_num_ids(m_sides[i].worker.handle()) > 0) {
                return false;
            }
        }
        return ++m_idle > 2000;
    }

    context m_context;
    side m_sides[2];
    bytes m_data = pattern(1, 200000);
    int m_idle   = 0;
};

/* The traffic whose k-th operation fails. */
void traffic(run &run)
{
    static const size_t lengths[] = {8, 0, 200000, 60, 3000, 40000, 8, 100000};
    ucp_tag_t tag                 = 0;

    for (size_t length : lengths) {
        for (int from = 0; from < 2; ++from) {
            ++tag;
            run.post(from, length, tag, (tag % 3) == 0);
        }
        for (int i = 0; i < 3; ++i) {
            run.progress();
        }
    }
}

void sweep(const settings &base, const char *knob, const char *status, unsigned limit)
{
    unsigned failed = 0;

    for (unsigned k = 1; k < limit; ++k) {
        environment environment(base);
        environment.set({{knob, std::to_string(k)}, {"UCX_HOOK_FAIL_STATUS", status}});
        if (std::none_of(base.begin(), base.end(),
                         [](const auto &each) { return each.first == "UCX_HOOK_NO_RESOURCE"; })) {
            environment.set({{"UCX_HOOK_NO_RESOURCE", "0"}});
        }
        run run;
        traffic(run);
        ASSERT_NO_FATAL_FAILURE(run.finish()) << knob << " " << k << " " << status;
        ASSERT_NO_FATAL_FAILURE(run.check()) << knob << " " << k << " " << status;
        failed += (run.num_failures() > 0);
    }
    /* Copies that fail are replaced; messages that fail end the connection. */
    if (std::count(base.begin(), base.end(),
                   std::make_pair(std::string("UCX_TLS"), std::string("mm,fault:cma"))) > 0) {
        EXPECT_EQ(0u, failed);
    } else {
        EXPECT_GT(failed, limit / 4);
    }
}

TEST_P(failure, of_the_kth_operation)
{
    log_catcher log;
    for (const char *status : {"io", "reset", "unreachable"}) {
        ASSERT_NO_FATAL_FAILURE(sweep(GetParam().env, "UCX_HOOK_FAIL_OP", status, 20));
    }
    log.take();
}

TEST_P(failure, by_death_after_k_operations)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(sweep(GetParam().env, "UCX_HOOK_DEATH", "io", 24));
    log.take();
}

TEST_P(failure, of_connections)
{
    log_catcher log;
    int num_failures = 0;
    for (int seed = 1; seed < 12; ++seed) {
        environment environment(GetParam().env);
        environment.set(
            {{"UCX_HOOK_CONNECT_FAIL", "0.5"}, {"UCX_HOOK_SEED", std::to_string(seed)}});
        run run;
        traffic(run);
        ASSERT_NO_FATAL_FAILURE(run.finish()) << "seed " << seed;
        ASSERT_NO_FATAL_FAILURE(run.check()) << "seed " << seed;
        num_failures += run.num_failures();
    }
    if (GetParam().env[0].second.find("fault:mm") != std::string::npos) {
        EXPECT_GT(num_failures, 0);
    }
    log.take();
}

void connect_both_ways(worker &sender, ucp_ep_h ep, worker &receiver)
{
    const bytes data(8);
    bytes buffer(8);
    ending sent, received;
    const ucp_request_param_t sparam = send_param(&sent);
    const ucp_request_param_t rparam = receive_param(&received);

    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(ep, data.data(), 8, 3, &sparam)));
    ASSERT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_recv_nbx(receiver.handle(), buffer.data(), 8, 3, ~0ull, &rparam)));
    while ((sent.calls == 0) || (received.calls == 0)) {
        receiver.progress();
        sender.progress();
    }
}

/* The receiver's connection fails while the sender, on another processor, writes: the receive ends
 * once that is over. */
void fail_while_written(const context &sending, const context &receiving, const char *scheme)
{
    worker sender(sending), receiver(receiving);
    int failures          = 0;
    const auto on_failure = [](void *arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int *>(arg); };
    const ucp_ep_h ep     = sender.connect(receiver);
    const ucp_ep_h back   = receiver.connect(sender, UCP_ERR_HANDLING_MODE_PEER, on_failure,
                                             &failures);
    const bytes data      = pattern(1, 32 << 20);
    bytes buffer(data.size());
    ending sent, received;
    const auto written = [&]() { /* pages that have come, from the front */
        size_t pages = 0;
        for (size_t i = 0; i < data.size(); i += 4096) {
            pages += (memcmp(&data[i], &buffer[i], 64) == 0);
        }
        return pages;
    };
    size_t at_end = 0;

    connect_both_ways(sender, ep, receiver);
    received.action                  = [&]() { at_end = written(); };
    const ucp_request_param_t sparam = send_param(&sent);
    const ucp_request_param_t rparam = receive_param(&received);
    ASSERT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_recv_nbx(receiver.handle(), buffer.data(), buffer.size(), 5, ~0ull, &rparam)));
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), data.size(), 5, &sparam)));
    std::atomic<bool> is_over{false};
    std::thread progress([&]() {
        while (!is_over) {
            sender.progress();
        }
    });
    const auto until = [&](const std::function<bool()> &condition) {
        const auto start = std::chrono::steady_clock::now();
        while (!condition() &&
               (std::chrono::steady_clock::now() - start < std::chrono::seconds(20))) {
            receiver.progress();
        }
    };
    until([&]() { return memcmp(&data[0], &buffer[0], 64) == 0; });
    until([&]() {
        const ucp_request_param_t none = {};
        EXPECT_FALSE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(back, data.data(), 8, 6, &none)));
        return failures > 0;
    });
    until([&]() { return received.calls > 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_over = true;
    progress.join();
    ASSERT_EQ(1, failures);
    ASSERT_EQ(1, received.calls);
    ASSERT_EQ(at_end, written()) << scheme;
}

TEST(failed_receiver, is_not_written_after_its_end)
{
    log_catcher log;
    for (const char *scheme : {"put_zcopy", "both"}) {
        const environment over(settings{{"UCX_TLS", "fault:mm,cma"},
                                        {"UCX_HOOK_NO_RESOURCE", "0"},
                                        {"UCX_RNDV_SCHEME", scheme}});
        const context sending;
        const environment fault(settings{{"UCX_HOOK_FAIL_OP", "8"},
                                         {"UCX_HOOK_FAIL_STATUS", "timeout"}});
        const context receiving;
        for (int i = 0; (i < 6) && !testing::Test::HasFatalFailure(); ++i) {
            fail_while_written(sending, receiving, scheme);
        }
    }
    log.take();
}

/* ---- a send that ends early ---- */

class cancelled_send : public testing::TestWithParam<const char *> {};

INSTANTIATE_TEST_SUITE_P(schemes, cancelled_send,
                         testing::Values("auto", "get_zcopy", "put_zcopy", "both", "am"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string(info.param);
                         });

void no_failure(void *, ucp_ep_h, ucs_status_t)
{
    ADD_FAILURE() << "an endpoint that is closed has no failure";
}

/* Forced close at each step of the transfer: the receive ends, the next message is exact. */
TEST_P(cancelled_send, ends_the_receive)
{
    const bytes data = pattern(1, 3000000);
    unsigned errors  = 0;

    for (int steps = 0; steps < 12; ++steps) {
        environment environment(
            settings{{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", GetParam()}});
        context context;
        worker sender(context);
        worker receiver(context);
        ucp_ep_h ep = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, no_failure);
        ucp_ep_h ep2 = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, no_failure);
        bytes buffer(data.size());
        ending sent, received, next_sent, next_received;
        const ucp_request_param_t sparam  = send_param(&sent);
        const ucp_request_param_t rparam  = receive_param(&received);
        const ucp_request_param_t sparam2 = send_param(&next_sent);
        const ucp_request_param_t rparam2 = receive_param(&next_received);

        connect_both_ways(sender, ep2, receiver);

        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(receiver.handle(), buffer.data(),
                                                    buffer.size(), 1, ~0ull, &rparam)));
        ASSERT_TRUE(
            UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), data.size(), 1, &sparam)));
        for (int i = 0; i < steps; ++i) {
            receiver.progress();
            sender.progress();
        }
        sender.forget(ep);
        void *request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
        ASSERT_FALSE(UCS_PTR_IS_ERR(request));
        for (int i = 0; (i < 200000) && (received.calls == 0); ++i) {
            receiver.progress();
            sender.progress();
        }
        ASSERT_EQ(1, sent.calls) << steps;
        if ((received.calls == 0) && (sent.status == UCS_ERR_CANCELED)) {
            continue; /* it was not even announced: nothing is promised but what follows */
        }
        ASSERT_EQ(1, received.calls) << steps;
        if (received.status == UCS_OK) {
            ASSERT_EQ(0, memcmp(buffer.data(), data.data(), data.size()));
        } else {
            ++errors;
            ASSERT_EQ(UCS_ERR_CONNECTION_RESET, received.status) << steps;
        }
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }

        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(receiver.handle(), buffer.data(),
                                                    buffer.size(), 2, ~0ull, &rparam2)));
        ASSERT_TRUE(
            UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep2, data.data(), data.size(), 2, &sparam2)));
        for (int i = 0; (i < 200000) && ((next_received.calls == 0) || (next_sent.calls == 0));
             ++i) {
            receiver.progress();
            sender.progress();
        }
        ASSERT_EQ(UCS_OK, next_sent.status);
        ASSERT_EQ(UCS_OK, next_received.status);
        ASSERT_EQ(0, memcmp(buffer.data(), data.data(), data.size()));
        EXPECT_EQ(0u, ucp_test_num_ids(sender.handle()));
        EXPECT_EQ(0u, ucp_test_num_ids(receiver.handle()));
    }
    EXPECT_GT(errors, 0u);
}

/* An announcement that nobody has asked for vanishes; one that was taken by a probe ends the
 * receive, though its bytes could be read where they no longer are. */
TEST_P(cancelled_send, takes_its_announcement_back)
{
    for (unsigned i = 0; i < 4; ++i) {
        const bool is_taken = (i % 2 == 1);
        environment environment(settings{{"UCX_TLS", (i < 2) ? "mm" : "mm,cma"},
                                         {"UCX_RNDV_SCHEME", GetParam()}});
        context context;
        worker sender(context);
        worker receiver(context);
        ucp_ep_h ep      = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, no_failure);
        bytes data       = pattern(1, 300000);
        bytes buffer(data.size());
        ending sent, received;
        const ucp_request_param_t sparam = send_param(&sent);
        const ucp_request_param_t rparam = receive_param(&received);
        ucp_tag_recv_info_t info;
        ucp_tag_message_h message = nullptr;

        ASSERT_TRUE(
            UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), data.size(), 1, &sparam)));
        while (message == nullptr) {
            sender.progress();
            receiver.progress();
            message = ucp_tag_probe_nb(receiver.handle(), 1, ~0ull, is_taken, &info);
        }
        sender.forget(ep);
        void *request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
        for (int i = 0; i < 200; ++i) {
            sender.progress();
            receiver.progress();
        }
        ASSERT_EQ(UCS_ERR_CANCELED, sent.status);
        std::fill(data.begin(), data.end(), 'X');
        if (is_taken) {
            ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_msg_recv_nbx(receiver.handle(), buffer.data(),
                                                            buffer.size(), message, &rparam)));
            for (int i = 0; (i < 20000) && (received.calls == 0); ++i) {
                sender.progress();
                receiver.progress();
            }
            EXPECT_EQ(1, received.calls);
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, received.status);
        } else {
            EXPECT_EQ(nullptr, ucp_tag_probe_nb(receiver.handle(), 1, ~0ull, 0, &info));
        }
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
}

/* The same where the sender's word has come, but lies behind other messages: the receiver reads
 * before it hears of it. */
TEST_P(cancelled_send, is_not_taken_for_sent)
{
    for (size_t length : {40000u, 300000u, 2000000u}) {
        environment environment(settings{{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", GetParam()}});
        context context;
        worker sender(context);
        worker receiver(context);
        ucp_ep_h ep  = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, no_failure);
        ucp_ep_h ep2 = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, no_failure);
        bytes data   = pattern(1, length);
        bytes buffer(data.size()), other(2048);
        ending sent, second, received;
        const ucp_request_param_t sparam  = send_param(&sent);
        const ucp_request_param_t sparam2 = send_param(&second);
        const ucp_request_param_t rparam  = receive_param(&received);

        connect_both_ways(sender, ep2, receiver);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(receiver.handle(), buffer.data(),
                                                    buffer.size(), 1, ~0ull, &rparam)));
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), length, 1, &sparam)));
        ASSERT_FALSE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep2, other.data(), other.size(), 2,
                                                     &sparam2)));
        sender.forget(ep);
        void *request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
        ASSERT_EQ(UCS_ERR_CANCELED, sent.status);
        std::fill(data.begin(), data.end(), 'X');
        for (int i = 0; (i < 200000) && (received.calls == 0); ++i) {
            receiver.progress();
            sender.progress();
        }
        EXPECT_EQ(1, received.calls);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, received.status) << length;
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
}

/* An announced message that has come to be known to a receiver which looks at nothing else yet. */
struct announced {
    announced(const char *scheme, size_t length, const char *tls = "mm,cma") :
        env(settings{{"UCX_TLS", tls}, {"UCX_RNDV_SCHEME", scheme}}), sender(ctx),
        receiver(ctx), data(pattern(1, length)), buffer(length)
    {
        const ucp_request_param_t param = send_param(&sent);
        const ucp_ep_h ep = sender.connect(receiver, UCP_ERR_HANDLING_MODE_PEER, ignore);
        ucp_tag_recv_info_t info;

        connect_both_ways(sender, ep, receiver);
        EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), length, 1, &param)));
        while (ucp_tag_probe_nb(receiver.handle(), 1, ~0ull, 0, &info) == nullptr) {
            sender.progress();
            receiver.progress();
        }
    }

    void receive()
    {
        const ucp_request_param_t param = receive_param(&received);
        EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(receiver.handle(), buffer.data(),
                                                    buffer.size(), 1, ~0ull, &param)));
    }

    static void ignore(void *, ucp_ep_h, ucs_status_t)
    {
    }

    log_catcher log;
    environment env;
    context ctx;
    worker sender, receiver;
    bytes data, buffer;
    ending sent, received;
};

/* The sender's worker is destroyed with it, and its memory used for something else. */
TEST_P(cancelled_send, by_the_end_of_its_worker)
{
    for (size_t length : {40000u, 300000u, 2000000u}) {
        announced message(GetParam(), length);

        message.sender.destroy();
        std::fill(message.data.begin(), message.data.end(), 'X');
        message.receive();
        for (int i = 0; (i < 200000) && (message.received.calls == 0); ++i) {
            message.receiver.progress();
        }
        EXPECT_EQ(1, message.received.calls);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, message.received.status) << length;
    }
}

/* The receiver's worker is destroyed, and the sender makes progress only then. */
void expect_written_nowhere(announced &message)
{
    message.receive();
    message.receiver.destroy();
    std::fill(message.buffer.begin(), message.buffer.end(), 'Y');
    for (int i = 0; (i < 200000) && (message.sent.calls == 0); ++i) {
        message.sender.progress();
    }
    EXPECT_EQ(1, message.sent.calls);
    EXPECT_EQ(ptrdiff_t(message.buffer.size()),
              std::count(message.buffer.begin(), message.buffer.end(), 'Y'));
}

/* The receiver's is, and the sender makes progress only then: it writes nowhere. */
TEST_P(cancelled_send, by_the_end_of_its_receiver)
{
    for (size_t length : {40000u, 300000u, 2000000u}) {
        announced message(GetParam(), length);

        expect_written_nowhere(message);
    }
}

/* So it is where the sender cannot be told. */
TEST(destroyed_worker, is_not_written_where_nothing_tells_of_it)
{
    environment env(settings{{"UCX_HOOK_NO_RESOURCE", "0.5"}});

    for (int round = 0; round < 20; ++round) {
        announced message("put_zcopy", 100000, "fault:mm,cma");

        expect_written_nowhere(message);
    }
}

/* What is announced only while the worker is being destroyed is not read once it is: the ring is
 * full before, and an answer has to leave behind the announcement. */
TEST(destroyed_worker, announces_what_nobody_reads)
{
    environment env(settings{{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", "get_zcopy"},
                             {"UCX_MM_FIFO_SIZE", "16"}});
    context ctx;
    worker other(ctx), self(ctx);
    const ucp_ep_h to_self  = other.connect(self), to_other = self.connect(other);
    bytes data              = pattern(1, 300000), buffer(data.size()), small(8);
    ending sync, sent, received;
    const ucp_request_param_t none = {}, param = send_param(&sent), sync_param = send_param(&sync);
    const ucp_request_param_t receive = receive_param(&received);
    ucs_status_ptr_t queued;
    ucp_tag_recv_info_t info;

    connect_both_ways(self, to_other, other);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(to_self, small.data(), 8, 1, &sync_param)));
    while (ucp_tag_probe_nb(self.handle(), 1, ~0ull, 0, &info) == nullptr) {
        self.progress();
        other.progress();
    }
    while ((queued = ucp_tag_send_nbx(to_other, small.data(), 8, 2, &none)) == nullptr) {
    }
    ASSERT_TRUE(UCS_PTR_IS_PTR(queued));
    ucp_request_free(queued);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(to_other, data.data(), data.size(), 3, &param)));
    (void)ucp_tag_recv_nbx(self.handle(), small.data(), 8, 1, ~0ull, &none);
    ASSERT_GT(ucp_test_num_controls(self.handle()), 0u);
    for (int i = 0; i < 1000; ++i) {
        other.progress(); /* there is room again, whoever runs when */
    }
    ASSERT_EQ(nullptr, ucp_tag_probe_nb(other.handle(), 3, ~0ull, 0, &info));
    self.destroy();
    bool has_come = false;
    for (int i = 0; (i < 1000) && !has_come; ++i) {
        other.progress();
        has_come = ucp_tag_probe_nb(other.handle(), 3, ~0ull, 0, &info) != nullptr;
    }
    ASSERT_TRUE(has_come);
    std::fill(data.begin(), data.end(), 'X');
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(other.handle(), buffer.data(), buffer.size(), 3,
                                                ~0ull, &receive)));
    for (int i = 0; (i < 200000) && (received.calls == 0); ++i) {
        other.progress();
    }
    EXPECT_EQ(1, received.calls);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, received.status);
}

/* What ends while a worker is destroyed, because an answer has to leave, ends without a word. */
TEST(destroyed_worker, calls_nobody_back)
{
    environment env(settings{{"UCX_TLS", "mm"}});
    context ctx;
    worker other(ctx), self(ctx);
    const ucp_ep_h to_self  = other.connect(self), to_other = self.connect(other);
    bytes data(8), buffer(8);
    ending sync, sent;
    const ucp_request_param_t none = {}, param = send_param(&sent), sync_param = send_param(&sync);
    ucp_tag_recv_info_t info;

    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(to_self, data.data(), 8, 1, &sync_param)));
    while (ucp_tag_probe_nb(self.handle(), 1, ~0ull, 0, &info) == nullptr) {
        other.progress();
        self.progress();
    }
    EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(to_other, data.data(), 8, 2, &param)));
    EXPECT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_recv_nbx(self.handle(), buffer.data(), 8, 1, ~0ull, &none)) ||
        (ucp_test_num_controls(self.handle()) > 0));
    for (int i = 0; i < 1000; ++i) {
        other.progress(); /* it has answered when the end begins, whoever runs when */
    }
    self.destroy();
    for (int i = 0; (i < 200000) && (sync.calls == 0); ++i) {
        other.progress();
    }
    EXPECT_EQ(0, sent.calls);
    EXPECT_EQ(1, sync.calls); /* the answer has left */
}

/* Both endpoints to a peer that has gone fail; the handler of the first takes away the other's. */
struct two_endpoints {
    ucp_ep_h eps[2];
    ucp_ep_params_t change;
    int calls;
};

void take_the_other_away(void *arg, ucp_ep_h ep, ucs_status_t)
{
    auto *self = static_cast<two_endpoints *>(arg);

    ++self->calls;
    EXPECT_EQ(nullptr, ucp_ep_modify_nb(self->eps[ep == self->eps[0]], &self->change));
}

TEST(error_handler, is_not_called_once_taken_away)
{
    environment env(settings{{"UCX_TLS", "mm"}});
    for (const uint64_t field : {UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                 UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE}) {
        context ctx;
        worker self(ctx), other(ctx);
        two_endpoints two     = {};
        two.change.field_mask = field;
        two.change.err_mode   = UCP_ERR_HANDLING_MODE_NONE;
        for (ucp_ep_h &ep : two.eps) {
            ep = self.connect(other, UCP_ERR_HANDLING_MODE_PEER, take_the_other_away, &two);
        }
        for (int i = 0; i < 10000; ++i) {
            self.progress();
            other.progress();
        }
        other.destroy();
        for (int i = 0; (i < 200000) && (two.calls == 0); ++i) {
            self.progress();
        }
        self.progress();
        EXPECT_EQ(1, two.calls);
    }
}

/* ---- who breaks the rules ---- */

TEST(introduction, by_the_identity_of_another_ends_the_connection)
{
    log_catcher log;
    environment environment(settings{{"UCX_TLS", "mm"}});
    context context;
    worker victim(context);
    worker other(context);
    side liar(context);

    liar.ep = liar.worker.connect(victim, UCP_ERR_HANDLING_MODE_PEER, on_failure, &liar);
    bytes hello(8, 0);
    hello[0]            = 1;
    const bytes address = other.address();
    hello.insert(hello.end(), address.begin(), address.end());
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    for (int i = 0; (i < 20000) && (status == UCS_ERR_NO_RESOURCE); ++i) {
        status = ucp_test_inject(liar.ep, 1, hello.data(), hello.size());
        liar.worker.progress();
        victim.progress();
    }
    ASSERT_EQ(UCS_OK, status);
    for (int i = 0; (i < 200000) && (liar.failures == 0); ++i) {
        liar.worker.progress();
        victim.progress();
    }
    EXPECT_EQ(1, liar.failures);
    ASSERT_EQ(1u, log.take().size());
}

/* For the life of the object no memory is to be had. */
class no_memory {
public:
    no_memory()
    {
        for (const char *point : m_points) {
            EXPECT_EQ(UCS_OK, ucs_fault_set(point, "1+"));
        }
    }
    ~no_memory()
    {
        for (const char *point : m_points) {
            ucs_fault_clear(point);
        }
    }

private:
    static constexpr const char *m_points[] = {"malloc", "calloc", "realloc", "memalign", "mmap"};
};

/* A message that cannot be kept ends the connection with its sender, and with nobody else. */
TEST(memory_shortage, of_an_unexpected_message_is_told_to_its_sender)
{
    log_catcher log;
    environment environment(settings{{"UCX_TLS", "mm"}});
    context context;
    worker victim(context);
    side sender(context);
    side bystander(context);
    uint64_t value                  = 1;
    const ucp_request_param_t param = send_param(nullptr);

    for (side *each : {&sender, &bystander}) {
        each->ep = each->worker.connect(victim, UCP_ERR_HANDLING_MODE_PEER, on_failure, each);
        const ucp_request_param_t first = send_param(nullptr, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        void *request = ucp_tag_send_nbx(each->ep, &value, sizeof(value), 1, &first);
        ASSERT_TRUE(UCS_PTR_IS_PTR(request));
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            each->worker.progress();
            victim.progress();
        }
        ucp_request_free(request);
    }
    for (int i = 0; i < 1000; ++i) {
        victim.progress();
    }
    ASSERT_EQ(2u, ucp_test_num_kept(victim.handle()));
    no_memory shortage;
    while (sender.failures == 0) {
        ASSERT_FALSE(UCS_PTR_IS_PTR(
            ucp_tag_send_nbx(sender.ep, &value, sizeof(value), 1, &param)));
        for (int i = 0; i < 100; ++i) {
            victim.progress();
            sender.worker.progress();
        }
    }
    EXPECT_EQ(1, sender.failures);
    EXPECT_EQ(0, bystander.failures);
    EXPECT_GE(log.take().size(), 1u);
}

} // namespace
