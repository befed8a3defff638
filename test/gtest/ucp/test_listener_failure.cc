/* Halyard: connections that are refused, lost, too late, or lead nowhere.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/server.h>

#include <mp/snapshot.h>
#include <uct/faulty_provider.h>
#include <ucs/debug/fault.h>
extern "C" {
#include <ucs/sys/sys.h>
}

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>

using namespace server_test;

namespace {

class listener_failure : public server_fixture {};

INSTANTIATE_TEST_SUITE_P(all, listener_failure, testing::ValuesIn(places), place_name);

TEST_P(listener_failure, reject)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    const bytes data = pattern(4, 3000);
    ending early;
    ASSERT_TRUE(UCS_PTR_IS_PTR(send(to_host, data, 4, &early)));
    ucp_request_param_t param = {};
    void *flush = ucp_ep_flush_nbx(to_host, &param);
    until([&] { return !server->requests.empty(); });
    EXPECT_EQ(UCS_OK, ucp_listener_reject(server->handle(), server->take()));
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(1, failed.calls);
    EXPECT_EQ(UCS_ERR_REJECTED, failed.status);
    EXPECT_EQ(to_host, failed.ep);
    EXPECT_EQ(1, early.calls);
    EXPECT_EQ(UCS_ERR_REJECTED, early.status);
    EXPECT_EQ(UCS_ERR_REJECTED, wait(flush));
    EXPECT_EQ(UCS_ERR_REJECTED, UCS_PTR_STATUS(send(to_host, data, 4)));
    EXPECT_EQ(1, failed.calls);
}

/* Programs that leave the mode at its default wait for their handlers too. */
TEST_P(listener_failure, handlers_are_called_in_mode_none)
{
    auto server                = serve();
    const auto without_a_mode = [](ucp_ep_params_t params, failure *failed) {
        add_handler(params, failed);
        params.field_mask &= ~static_cast<uint64_t>(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
        return params;
    };
    failure rejected;
    create(client(), without_a_mode(client_params(server->where(), nullptr), &rejected));
    until([&] { return !server->requests.empty(); });
    EXPECT_EQ(UCS_OK, ucp_listener_reject(server->handle(), server->take()));
    until([&] { return rejected.calls > 0; });
    EXPECT_EQ(UCS_ERR_REJECTED, rejected.status);

    failure closed;
    ucp_ep_h to_host = connect(server->where());
    until([&] { return !server->requests.empty(); });
    ucp_ep_params_t params = {};
    params.field_mask      = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request    = server->take();
    ucp_ep_h back          = create(host(), without_a_mode(params, &closed));
    exchange(to_host, back);
    close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    until([&] { return closed.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, closed.status);
    EXPECT_EQ(back, closed.ep);
    EXPECT_EQ(1, rejected.calls);
}

TEST_P(listener_failure, nobody_listens)
{
    auto server         = serve();
    const address where = server->where();
    server->destroy();
    failure failed;
    failed.action = [this](ucp_ep_h ep) { /* inside the handler, as async-ucx does */
        forget(ep);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    };
    ucp_ep_h ep      = connect(where, &failed);
    const bytes data = pattern(4, 30);
    ending end;
    EXPECT_TRUE(UCS_PTR_IS_PTR(send(ep, data, 4, &end)));
    EXPECT_EQ(0, failed.calls);
    EXPECT_EQ(0, end.calls);
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, failed.status);
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, end.status);
}

TEST_P(listener_failure, without_a_handler_requests_fail_too)
{
    auto server         = serve();
    const address where = server->where();
    server->destroy();
    ucp_ep_h ep      = connect(where);
    const bytes data = pattern(4, 30);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, wait(send(ep, data, 4)));
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, UCS_PTR_STATUS(send(ep, data, 4)));
}

TEST_P(listener_failure, a_listener_goes_while_clients_knock)
{
    auto server = serve();
    failure first, second;
    connect(server->where(), &first);
    until([&] { return !server->requests.empty(); });
    connect(server->where(), &second); /* TCP takes it, nobody else */
    server->destroy();
    until([&] { return second.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, second.status);
    /* What was handed out stays valid. */
    EXPECT_EQ(0, first.calls);
    ucp_conn_request_attr_t asked;
    asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    EXPECT_EQ(UCS_OK, ucp_conn_request_query(server->requests.front(), &asked));
    ucp_ep_h back = accept(host(), server->take(), nullptr);
    exchange(m_eps.front().second, back);
}

/* A client that has no memory when its connection ends: it hears of it when there is some. */
TEST_P(listener_failure, no_memory_at_the_end)
{
    auto server = serve();
    for (int k = 1; k <= 4; ++k) {
        failure failed;
        ucp_ep_h to_host = connect(server->where(), &failed);
        ucp_ep_h back    = accept_one(*server);
        exchange(to_host, back);
        close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
        ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", std::to_string(k).c_str()));
        until([&] { return failed.calls > 0; });
        ucs_fault_clear(nullptr);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
        close_now(to_host, UCP_EP_CLOSE_MODE_FORCE);
        EXPECT_EQ(1, failed.calls);
    }
}

/* A server that has no memory for its endpoint or for its answer: the client hears of it. */
TEST_P(listener_failure, no_memory_to_accept)
{
    auto server     = serve();
    unsigned missed = 0;
    for (const char *point : {"malloc", "calloc", "memalign"}) {
        uint64_t count = 1;
        for (int k = 1; count > 0; ++k) {
            SCOPED_TRACE(point + std::to_string(k));
            failure failed;
            ucp_ep_h to_host = connect(server->where(), &failed), back = nullptr;
            until([&] { return !server->requests.empty(); });
            ucp_ep_params_t params;
            params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
            params.conn_request = server->take();
            ASSERT_EQ(UCS_OK, ucs_fault_set(point, std::to_string(k).c_str()));
            const ucs_status_t status = ucp_ep_create(host().handle(), &params, &back);
            ucs_fault_query(point, nullptr, &count);
            ucs_fault_clear(nullptr);
            if (status == UCS_OK) {
                m_eps.emplace_back(&host(), back);
                exchange(to_host, back);
                close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
            } else {
                EXPECT_EQ(UCS_ERR_NO_MEMORY, status);
                until([&] { return failed.calls > 0; });
                EXPECT_EQ(UCS_ERR_REJECTED, failed.status);
                ++missed;
            }
            close_now(to_host, UCP_EP_CLOSE_MODE_FORCE);
        }
    }
    EXPECT_GE(missed, 2u);
    take_log();
}

/* A client for whom the server has no descriptor is turned away, and does not keep it busy. */
TEST_P(listener_failure, no_descriptor_for_a_client)
{
    auto server = serve();
    failure failed;
    ASSERT_EQ(UCS_OK, ucs_fault_set("accept4", "1"));
    connect(server->where(), &failed);
    until([&] { return failed.calls > 0; });
    ucs_fault_clear(nullptr);
    EXPECT_TRUE((failed.status == UCS_ERR_REJECTED) ||
                (failed.status == UCS_ERR_CONNECTION_RESET)) << failed.status;
    take_log();
    ucp_ep_h to_host = connect(server->where(), nullptr);
    until([&] { return !server->requests.empty(); });
    ucp_ep_h back = accept(host(), server->take(), nullptr);
    exchange(to_host, back);
}

/* No handler runs once its socket was taken out, not even for what had happened before. */
TEST_P(listener_failure, sockets_that_are_taken_out_by_handlers)
{
    EXPECT_EQ(1u, ucp_test_take_out_sockets(host().handle()));
    EXPECT_EQ(1u, ucp_test_take_out_sockets(host().handle()));
}

TEST_P(listener_failure, sockets_that_cannot_be_watched)
{
    const int fd = eventfd(0, EFD_CLOEXEC);
    const std::pair<const char *, ucs_status_t> calls[] = {
        {"epoll_create1", UCS_ERR_EXCEEDS_LIMIT}, /* of descriptors */
        {"timerfd_create", UCS_ERR_EXCEEDS_LIMIT},
        {"calloc", UCS_ERR_NO_MEMORY},
        {"epoll_ctl", UCS_ERR_IO_ERROR}};
    for (const auto &[call, status] : calls) {
        ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1"));
        EXPECT_EQ(status, ucp_test_add_socket(host().handle(), fd)) << call;
        ucs_fault_clear(nullptr);
    }
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucp_test_add_socket(host().handle(), -1));
    EXPECT_EQ(UCS_OK, ucp_test_add_socket(host().handle(), fd));
    ::close(fd);
    take_log();
}

/* The listener's worker goes while requests are with the user, who never decides: they are
 * rejected, and nothing is left of them. */
TEST_P(listener_failure, requests_that_nobody_decides)
{
    const size_t before = mp::count_descriptors();
    {
        worker asking(*m_context, GetParam().mode), listening(*m_context, GetParam().mode);
        server server(listening, address(GetParam().family));
        ASSERT_EQ(UCS_OK, server.status);
        failure failed[3];
        ucp_ep_h eps[3];
        for (int i = 0; i < 3; ++i) {
            const address where          = server.where();
            const ucp_ep_params_t params = client_params(where, &failed[i]);
            ASSERT_EQ(UCS_OK, ucp_ep_create(asking.handle(), &params, &eps[i]));
        }
        until([&] {
            asking.progress();
            listening.progress();
            return server.requests.size() == 3;
        });
        EXPECT_EQ(UCS_OK, ucp_listener_reject(server.handle(), server.take()));
        server.requests.clear();
        server.forget();
        listening.destroy();
        until([&] {
            asking.progress();
            return (failed[0].calls > 0) && (failed[1].calls > 0) && (failed[2].calls > 0);
        });
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(1, failed[i].calls);
            EXPECT_EQ(UCS_ERR_REJECTED, failed[i].status);
            EXPECT_EQ(nullptr, ucp_ep_close_nb(eps[i], UCP_EP_CLOSE_MODE_FORCE));
        }
    }
    EXPECT_EQ(before, mp::count_descriptors());
}

TEST_P(listener_failure, an_orderly_close_is_a_reset_to_the_other)
{
    for (bool client_closes : {true, false}) {
        auto server = serve();
        failure at_client, at_host;
        ucp_ep_h to_host = connect(server->where(), &at_client);
        ucp_ep_h back    = accept_one(*server, &at_host);
        exchange(to_host, back);
        failure &told = client_closes ? at_host : at_client;
        ucp_ep_h left = client_closes ? back : to_host;
        close_now(client_closes ? to_host : back, UCP_EP_CLOSE_MODE_FLUSH);
        until([&] { return told.calls > 0; });
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, told.status);
        EXPECT_EQ(left, told.ep);
        EXPECT_EQ(1, at_client.calls + at_host.calls);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, UCS_PTR_STATUS(send(left, pattern(1, 8), 1)));
        close_now(left, UCP_EP_CLOSE_MODE_FLUSH);
        EXPECT_EQ(1, at_client.calls + at_host.calls);
    }
}

/* A connection between two workers that have lost each other, as one of them sees it, is a new one.
 * The other may be about to hang up on it: that is another failure, and the next one works. */
TEST_P(listener_failure, after_a_failure)
{
    auto server = serve();
    for (bool client_fails : {true, false}) {
        failure first, second;
        ucp_ep_h to_host = connect(server->where(), &first);
        ucp_ep_h back    = accept_one(*server, &second);
        exchange(to_host, back);
        ucp_test_peer_fail(client_fails ? to_host : back, UCS_ERR_IO_ERROR);
        bool works = false;
        for (int i = 0; (i < 10) && !works; ++i) {
            failure at_client, at_host;
            ucp_ep_h again   = connect(server->where(), &at_client);
            ucp_ep_h answer  = accept_one(*server, &at_host);
            const bytes data = pattern(3, 100);
            bytes got[2]     = {bytes(data.size()), bytes(data.size())};
            void *receives[] = {receive(host(), got[0], 5), receive(client(), got[1], 6)};
            ending sends[2];
            send(again, data, 5, &sends[0]);
            send(answer, data, 6, &sends[1]);
            until([&] {
                works = (ucp_request_check_status(receives[0]) != UCS_INPROGRESS) &&
                        (ucp_request_check_status(receives[1]) != UCS_INPROGRESS);
                return works || (at_client.calls > 0) || (at_host.calls > 0);
            });
            EXPECT_NE(UCS_ERR_IO_ERROR, at_client.status);
            EXPECT_NE(UCS_ERR_IO_ERROR, at_host.status);
            close_now(again, UCP_EP_CLOSE_MODE_FORCE);
            close_now(answer, UCP_EP_CLOSE_MODE_FORCE);
            ucp_request_cancel(host().handle(), receives[0]);
            ucp_request_cancel(client().handle(), receives[1]);
            for (void *request : receives) {
                EXPECT_NE(UCS_INPROGRESS, ucp_request_check_status(request));
                ucp_request_free(request);
            }
        }
        EXPECT_TRUE(works);
        close_now(to_host, UCP_EP_CLOSE_MODE_FORCE);
        close_now(back, UCP_EP_CLOSE_MODE_FORCE);
    }
}

/* What is in flight when the other side goes ends once, with that status. */
TEST_P(listener_failure, requests_in_flight_end_when_the_other_closes)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    ucp_ep_h back    = accept_one(*server);
    exchange(to_host, back);
    const bytes large = pattern(8, 1000000);
    ending sends[3];
    for (ending &end : sends) {
        ASSERT_TRUE(UCS_PTR_IS_PTR(send(to_host, large, 8, &end)));
    }
    close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
    for (const ending &end : sends) {
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, end.status);
    }
}

/* A flush ends after the sends that it waits for, also where all of them end because the endpoint
 * is lost. */
TEST_P(listener_failure, flushes_end_behind_their_sends_when_the_other_closes)
{
    if (GetParam().is_self || !GetParam().env.empty()) {
        GTEST_SKIP() << "needs messages that are sent whole, and a peer that stands still";
    }
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    ucp_ep_h back    = accept_one(*server);
    exchange(to_host, back);
    const bytes data = pattern(8, 100);
    std::vector<int> order;
    ending ends[5]; /* two sends that find no room, their flush, a send, a flush of all */
    unsigned count;
    for (int i = 0; i < 5; ++i) {
        ends[i].action            = [&, i] { order.push_back(i); };
        ucp_request_param_t param = send_param(&ends[i]);
        ASSERT_TRUE(UCS_PTR_IS_PTR(((i == 2) || (i == 4)) ? ucp_ep_flush_nbx(to_host, &param) :
                                   send_until_queued(to_host, data, 8, &ends[i], &count)));
    }
    forget(back);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(back, UCP_EP_CLOSE_MODE_FLUSH));
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    while ((order.size() < 5) && (std::chrono::steady_clock::now() < end)) {
        client().progress(); /* the host stands still, so nothing finds room */
    }
    for (const ending &each : ends) {
        EXPECT_EQ(1, each.calls);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each.status);
    }
    const auto place = [&](int i) { return std::find(order.begin(), order.end(), i); };
    EXPECT_LT(place(0), place(2));
    EXPECT_LT(place(1), place(2));
    EXPECT_LT(place(3), place(4));
    until([&] { return failed.calls > 0; });
}

/* A flush that waits for answers only, to a peer that lives on: the endpoint is lost before they
 * have left, and so the flush ends at once; the answers go all the same. */
TEST_P(listener_failure, a_flush_of_answers_ends_when_the_other_closes)
{
    if (GetParam().is_self || !GetParam().env.empty()) {
        GTEST_SKIP() << "needs a message that comes whole, and whose answer waits";
    }
    auto server = serve();
    failure at_client, at_host;
    ucp_ep_h to_host = connect(server->where(), &at_client);
    ucp_ep_h back    = accept_one(*server, &at_host);
    const bytes data = pattern(8, 100);
    bytes got(100);
    ending sent;
    const ucp_request_param_t none = {}, param = send_param(&sent);
    /* What the endpoint queued for a server that it did not know yet is gone when it is up. */
    until([&] { return ucp_test_num_controls(client().handle()) == 0; });
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(back, data.data(), data.size(), 8, &param)));
    void *received = receive(client(), got, 8);
    for (int i = 0; (ucp_test_num_controls(client().handle()) == 0) && (i < 1000000); ++i) {
        if (client().progress() == 0) {
            host().progress();
        }
    }
    ASSERT_EQ(1u, ucp_test_num_controls(client().handle())) << "the answer has left at once";
    void *flush  = ucp_ep_flush_nbx(to_host, &none);
    void *of_all = ucp_worker_flush_nbx(client().handle(), &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    ASSERT_TRUE(UCS_PTR_IS_PTR(of_all));
    forget(back);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(back, UCP_EP_CLOSE_MODE_FORCE));
    EXPECT_EQ(1, sent.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    while ((ucp_request_check_status(flush) == UCS_INPROGRESS) &&
           (std::chrono::steady_clock::now() < end)) {
        client().progress(); /* the host stands still */
    }
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, ucp_request_check_status(flush));
    ucp_request_free(flush);
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(of_all));
    EXPECT_EQ(UCS_OK, wait(of_all));
    EXPECT_EQ(UCS_OK, wait(received));
    EXPECT_EQ(data, got);
    until([&] { return at_client.calls > 0; });
    EXPECT_EQ(0, at_host.calls);
}

/* The handler runs after what the other side sent before it closed has been received. */
TEST_P(listener_failure, what_was_sent_before_a_close_arrives_before_the_reset)
{
    constexpr int COUNT = 100;
    auto server         = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where());
    ucp_ep_h back    = accept_one(*server, &failed);
    exchange(to_host, back);
    std::vector<bytes> got(COUNT, bytes(500));
    std::vector<void *> receives;
    int unfinished = -1;
    for (bytes &each : got) {
        receives.push_back(receive(host(), each, 6));
    }
    failed.action = [&](ucp_ep_h) {
        unfinished = 0;
        for (void *request : receives) {
            unfinished += UCS_PTR_IS_PTR(request) &&
                          (ucp_request_check_status(request) == UCS_INPROGRESS);
        }
    };
    std::vector<bytes> data;
    std::vector<void *> sends;
    for (int i = 0; i < COUNT; ++i) {
        data.push_back(pattern((uint64_t)i, 500));
        sends.push_back(send(to_host, data.back(), 6));
    }
    close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(0, unfinished);
    for (int i = 0; i < COUNT; ++i) {
        EXPECT_EQ(UCS_OK, wait(receives[i]));
        EXPECT_EQ(UCS_OK, wait(sends[i]));
        EXPECT_EQ(data[i], got[i]);
    }
}

/* Of many who are silent mostly, each call of progress looks at some. */
TEST_P(listener_failure, the_last_word_of_one_of_many_arrives_before_the_reset)
{
    constexpr size_t COUNT = 40;
    if (GetParam().is_self || !GetParam().env.empty()) {
        GTEST_SKIP() << "clients are workers of their own, whose words need no answer";
    }
    auto server         = serve();
    const address where = server->where();
    const bytes data    = pattern(1, 100);
    std::vector<std::unique_ptr<worker>> clients;
    std::vector<ucp_ep_h> eps(COUNT);
    std::vector<failure> failed(COUNT);
    for (size_t i = 0; i < COUNT; ++i) {
        clients.push_back(std::make_unique<worker>(*m_context, GetParam().mode));
        const ucp_ep_params_t params = client_params(where, nullptr);
        ASSERT_EQ(UCS_OK, ucp_ep_create(clients[i]->handle(), &params, &eps[i]));
        until([&] {
            clients[i]->progress();
            return !server->requests.empty();
        });
        accept(host(), server->take(), &failed[i]);
    }
    const auto alone = [&](size_t i, void *request) { /* the server stands still */
        while (UCS_PTR_IS_PTR(request) &&
               (ucp_request_check_status(request) == UCS_INPROGRESS)) {
            clients[i]->progress();
        }
        EXPECT_EQ(UCS_OK, wait(request));
    };
    bytes got(data.size());
    for (size_t i = 0; i < COUNT; ++i) {
        void *received = receive(host(), got, i), *sent = send(eps[i], data, i);
        until([&] {
            clients[i]->progress();
            return ucp_request_check_status(received) != UCS_INPROGRESS;
        });
        EXPECT_EQ(UCS_OK, wait(received));
        EXPECT_EQ(UCS_OK, wait(sent));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    until([&] { return std::chrono::steady_clock::now() > end; }); /* long silence */

    for (size_t i = 0; i < COUNT; ++i) {
        void *received   = receive(host(), got, i);
        failed[i].action = [&](ucp_ep_h) {
            EXPECT_EQ(UCS_OK, ucp_request_check_status(received)) << "client " << i;
        };
        alone(i, send(eps[i], data, i));
        alone(i, ucp_ep_close_nb(eps[i], UCP_EP_CLOSE_MODE_FLUSH));
        EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(host().handle())); /* it sees the end at once */
        until([&] { return failed[i].calls > 0; });
        EXPECT_EQ(UCS_OK, wait(received));
    }
}

/* It was there: it has answered, and ended before there was a way for messages to it. */
TEST_P(listener_failure, a_server_that_ends_once_it_has_accepted)
{
    worker listening(*m_context, GetParam().mode);
    server server(listening, address(GetParam().family));
    const bytes data = pattern(1, 8);
    failure failed;
    ucp_ep_h ep = connect(server.where(), &failed), back;
    until([&] {
        listening.progress();
        return !server.requests.empty();
    });
    ucp_ep_params_t params;
    params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = server.take();
    ASSERT_EQ(UCS_OK, ucp_ep_create(listening.handle(), &params, &back));
    server.destroy();
    listening.destroy();
    void *sent = send(ep, data, 1);
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, wait(sent));
    close_now(ep, UCP_EP_CLOSE_MODE_FORCE);
}

TEST_P(listener_failure, the_end_of_one_endpoint_leaves_others)
{
    auto server = serve();
    failure failed[2];
    ucp_ep_h to_host[2], back[2];
    for (int i = 0; i < 2; ++i) {
        to_host[i] = connect(server->where());
        back[i]    = accept_one(*server, &failed[i]);
    }
    exchange(to_host[0], back[0]);
    close_now(to_host[0], UCP_EP_CLOSE_MODE_FLUSH);
    until([&] { return failed[0].calls > 0; });
    exchange(to_host[1], back[1]);
    EXPECT_EQ(0, failed[1].calls);
}

/* ---- time ---- */

TEST_P(listener_failure, a_server_that_never_answers)
{
    environment quick(settings{{"UCX_CONNECT_TIMEOUT", "100ms"}});
    context_options options;
    const context context(options);
    worker one(context, GetParam().mode);
    auto server = serve(); /* of the other context, which gets no progress */
    failure failed;
    ucp_ep_params_t params;
    const address where = server->where();
    params              = client_params(where, &failed);
    ucp_ep_h ep;
    ASSERT_EQ(UCS_OK, ucp_ep_create(one.handle(), &params, &ep));
    /* asleep: the time limit wakes us */
    int fd;
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(one.handle(), &fd));
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    while ((failed.calls == 0) && (std::chrono::steady_clock::now() < end)) {
        while (one.progress() > 0) {
        }
        if ((failed.calls == 0) && (ucp_worker_arm(one.handle()) == UCS_OK)) {
            struct pollfd event = {fd, POLLIN, 0};
            ASSERT_GT(poll(&event, 1, 20000), 0);
        }
    }
    EXPECT_EQ(1, failed.calls);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, failed.status);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
}

/* As long as can be said: more than fits is as good as for ever. */
TEST_P(listener_failure, a_server_that_may_take_all_its_time)
{
    for (const char *time : {"inf", "18446744073s"}) {
        environment patient(settings{{"UCX_CONNECT_TIMEOUT", time}});
        context_options options;
        const context context(options);
        worker client(context, GetParam().mode);
        auto server            = serve();
        const address where    = server->where();
        failure failed;
        ucp_ep_params_t params = client_params(where, &failed);
        ucp_ep_h ep;
        ASSERT_EQ(UCS_OK, ucp_ep_create(client.handle(), &params, &ep));
        until([&] {
            client.progress();
            return !server->requests.empty() || (failed.calls > 0);
        });
        EXPECT_EQ(0, failed.calls);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    }
    take_log(); /* what is used instead */
}

/* ---- nothing in common ---- */

TEST_P(listener_failure, nothing_in_common)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "a worker reaches itself";
    }
    environment only_self(settings{{"UCX_TLS", "self"}});
    context_options options;
    const context context(options);
    worker lonely(context, GetParam().mode);
    auto server = serve();
    failure failed;
    const address where    = server->where();
    ucp_ep_params_t params = client_params(where, &failed);
    ucp_ep_h ep;
    ASSERT_EQ(UCS_OK, ucp_ep_create(lonely.handle(), &params, &ep));
    until([&] {
        lonely.progress();
        return !server->requests.empty();
    });
    ucp_ep_params_t accept_params;
    accept_params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    accept_params.conn_request = server->take();
    ucp_ep_h untouched         = ep;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              ucp_ep_create(host().handle(), &accept_params, &untouched));
    EXPECT_EQ(ep, untouched);
    until([&] {
        lonely.progress();
        return failed.calls > 0;
    });
    EXPECT_EQ(UCS_ERR_UNREACHABLE, failed.status);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    take_log(); /* the server says why */
}

#ifdef HAVE_OFI

uint64_t g_now_ns;

class listener_failure_net : public server_fixture {
protected:
    ~listener_failure_net() override
    {
        ucs_sys_set(nullptr);
    }

    /* The library's clock all but stands still from now on, so many milliseconds from when it did
     * first. */
    void stop_clock(unsigned ms)
    {
        if (m_start_ns == 0) {
            m_start_ns     = ucs_sys_real.clock_ns();
            m_sys          = ucs_sys_real;
            m_sys.clock_ns = []() { return g_now_ns += 100; };
            ucs_sys_set(&m_sys);
        }
        g_now_ns = m_start_ns + (ms * 1000000ull);
    }

    /* Long enough for all that does not wait for something. */
    void progress_for_a_while()
    {
        for (unsigned i = 0; i < 5000; ++i) {
            progress();
        }
    }

    void SetUp() override
    {
        if (!is_present("ofi")) {
            GTEST_SKIP() << "no libfabric here";
        }
        server_fixture::SetUp();
    }

    uct_test::faulty_provider m_provider{63};

private:
    uint64_t m_start_ns = 0;
    ucs_sys_ops_t m_sys;
};

INSTANTIATE_TEST_SUITE_P(all, listener_failure_net,
                         testing::Values(place{"ofi", {{"UCX_TLS", "ofi"}}, AF_INET,
                                               UCS_THREAD_MODE_SINGLE, false}),
                         place_name);

/* The end of the TCP connection overtakes what went over the network, by more than the 200 ms after
 * which TCP sends a lost packet again, if need be. That is waited for also where an earlier
 * connection from the same worker is known to have ended. */
TEST_P(listener_failure_net, a_last_message_that_comes_late)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where());
    ucp_ep_h back    = accept_one(*server);
    exchange(to_host, back);
    ucp_test_peer_gone(back);
    to_host = connect(server->where());
    back    = accept_one(*server, &failed);
    exchange(to_host, back);
    const bytes data = pattern(7, 100);
    bytes got(data.size());
    void *request    = receive(host(), got, 6);
    bool was_there   = false;
    failed.action    = [&](ucp_ep_h) {
        was_there = ucp_request_check_status(request) == UCS_OK;
    };

    m_provider.faults.deaf = true;
    EXPECT_EQ(UCS_OK, wait(send(to_host, data, 6)));
    stop_clock(0);
    close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    progress_for_a_while();
    stop_clock(200);
    progress_for_a_while();
    EXPECT_EQ(0, failed.calls);
    m_provider.faults.deaf = false;
    until([&] { return ucp_request_check_status(request) == UCS_OK; });
    EXPECT_EQ(0, failed.calls);
    stop_clock(350);
    until([&] { return failed.calls > 0; });
    EXPECT_TRUE(was_there);
    EXPECT_EQ(UCS_OK, wait(request));
    EXPECT_EQ(data, got);
}

/* Nothing is waited for once the network itself has told that the other side has ended. */
TEST_P(listener_failure_net, an_end_that_both_tell)
{
    for (bool is_first : {false, true}) {
        auto server = serve();
        failure failed;
        ucp_ep_h to_host = connect(server->where());
        ucp_ep_h back    = accept_one(*server, &failed);
        exchange(to_host, back);
        if (is_first) {
            ucp_test_peer_gone(back);
        }
        stop_clock(0);
        close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
        if (!is_first) {
            progress_for_a_while();
            EXPECT_EQ(0, failed.calls);
            ucp_test_peer_gone(back);
        }
        until([&] { return failed.calls > 0; });
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
    }
}

#endif

} // namespace
