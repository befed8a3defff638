/* Halyard: clients and servers that do not keep to the rules: what the other side makes of every
 * kind of bytes, of silence, and of too many.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/server.h>

using namespace server_test;

namespace {

class hostile_connection : public server_fixture {};

INSTANTIATE_TEST_SUITE_P(all, hostile_connection, testing::ValuesIn(places), place_name);

class raw_socket {
public:
    explicit raw_socket(const address &where) :
        m_fd(socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        EXPECT_EQ(0, ::connect(m_fd, where.get(), where.length()));
    }
    ~raw_socket()
    {
        close(m_fd);
    }
    raw_socket(const raw_socket &)            = delete;
    raw_socket &operator=(const raw_socket &) = delete;

    void say(const bytes &data)
    {
        EXPECT_EQ((ssize_t)data.size(), ::send(m_fd, data.data(), data.size(), MSG_NOSIGNAL));
    }
    /* No more will be said. */
    void finish()
    {
        shutdown(m_fd, SHUT_WR);
    }
    /* The other end has closed; takes what comes before. */
    bool is_ended()
    {
        char byte;
        ssize_t got;
        while ((got = recv(m_fd, &byte, 1, MSG_DONTWAIT)) > 0) {
        }
        return (got == 0) || (errno == ECONNRESET);
    }

private:
    int m_fd;
};

TEST_P(hostile_connection, a_question_by_hand_is_understood)
{
    auto server = serve();
    raw_socket raw(server->where());
    const bytes whole = question(client().address());
    for (uint8_t byte : whole) { /* as slowly as can be */
        raw.say({byte});
        progress();
    }
    until([&] { return !server->requests.empty(); });
    ucp_conn_request_attr_t asked;
    asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
    EXPECT_EQ(UCS_OK, ucp_conn_request_query(server->requests.front(), &asked));
}

TEST_P(hostile_connection, every_truncation_is_refused)
{
    auto server       = serve();
    const bytes whole = question(client().address());
    for (size_t length = 0; length < whole.size(); ++length) {
        raw_socket raw(server->where());
        raw.say(bytes(whole.begin(), whole.begin() + (ptrdiff_t)length));
        raw.finish();
        until([&] { return raw.is_ended(); });
    }
    EXPECT_TRUE(server->requests.empty());
}

TEST_P(hostile_connection, flipped_bytes_do_no_harm)
{
    auto server       = serve();
    const bytes whole = question(client().address());
    seeded_random random(1);
    for (size_t i = 0; i < 2 * whole.size(); ++i) {
        bytes bad = whole;
        bad[i % bad.size()] ^= (i < whole.size()) ? 0xff : (uint8_t)(1u << (random.below(8)));
        raw_socket raw(server->where());
        raw.say(bad);
        raw.finish();
        until([&] { return raw.is_ended() || !server->requests.empty(); });
        while (!server->requests.empty()) {
            /* Some bytes may be anything, as an identity. Both answers must be survived. */
            ucp_conn_request_h request = server->take();
            ucp_ep_params_t params;
            params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
            params.conn_request = request;
            ucp_ep_h ep;
            if (((i % 2) == 0) && (ucp_ep_create(host().handle(), &params, &ep) == UCS_OK)) {
                EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
            } else if ((i % 2) != 0) {
                EXPECT_EQ(UCS_OK, ucp_listener_reject(server->handle(), request));
            }
        }
    }
    for (size_t i = 0; i < 100; ++i) {
        bytes bad(random.below(2000));
        for (uint8_t &byte : bad) {
            byte = (uint8_t)random.bits();
        }
        raw_socket raw(server->where());
        raw.say(bad);
        raw.finish();
        until([&] { return raw.is_ended(); });
    }
    take_log(); /* it says what is wrong, in words of many kinds */
    /* And it still works. */
    ucp_ep_h to_host = connect(server->where());
    exchange(to_host, accept_one(*server));
}

/* A server that answers with rubbish: the client's endpoint fails. */
TEST_P(hostile_connection, answers_that_are_none)
{
    const bytes good = question(host().address(), 2);
    seeded_random random(1);
    const address any(GetParam().family);
    const int fd = socket(GetParam().family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(0, bind(fd, any.get(), any.length()));
    ASSERT_EQ(0, listen(fd, 10));
    address where;
    socklen_t length = sizeof(where.storage);
    ASSERT_EQ(0, getsockname(fd, reinterpret_cast<struct sockaddr *>(&where.storage), &length));
    for (size_t i = 0; i < good.size(); ++i) {
        bytes bad = good;
        bad[i % bad.size()] ^= 0xff;
        if ((i % 3) == 0) {
            bad.resize(random.below(bad.size()));
        }
        failure failed;
        ucp_ep_h ep = connect(where, &failed);
        ending end;
        const bytes data = pattern(1, 10);
        ASSERT_TRUE(UCS_PTR_IS_PTR(send(ep, data, 1, &end)));
        const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        ASSERT_GE(peer, 0);
        bytes sink(2000);
        const auto ended = [&] { return (failed.calls > 0) || (end.calls > 0); };
        /* after the question, as an answer comes; it cannot be waited for without progress */
        until([&] { return recv(peer, sink.data(), sink.size(), MSG_DONTWAIT) > 0; });
        ASSERT_EQ((ssize_t)bad.size(), ::send(peer, bad.data(), bad.size(), MSG_NOSIGNAL));
        shutdown(peer, SHUT_WR);
        until(ended); /* bytes of an identity may be anything: nobody answers to it */
        until([&] { return end.calls > 0; });
        /* Else it may be right still: not every byte of an answer is needed. */
        if ((bad.size() < good.size()) || (i < 12)) {
            EXPECT_NE(UCS_OK, end.status);
        }
        ::close(peer);
        close_now(ep, UCP_EP_CLOSE_MODE_FORCE);
        EXPECT_EQ(1, end.calls);
    }
    ::close(fd);
    take_log();
}

TEST_P(hostile_connection, silent_clients_are_bounded)
{
    auto server = serve();
    std::vector<std::unique_ptr<raw_socket>> silent;
    for (int i = 0; i < 300; ++i) {
        silent.push_back(std::make_unique<raw_socket>(server->where()));
        progress();
    }
    ucp_ep_h to_host = connect(server->where());
    exchange(to_host, accept_one(*server));
    int ended = 0;
    for (auto &each : silent) {
        ended += each->is_ended();
    }
    EXPECT_GE(ended, 300 - 256);
    take_log();
}

TEST_P(hostile_connection, silent_clients_are_bounded_in_time)
{
    environment quick(settings{{"UCX_CONNECT_TIMEOUT", "50ms"}});
    context_options options;
    const context context(options);
    worker quick_host(context, GetParam().mode);
    server server(quick_host, address(GetParam().family));
    raw_socket raw(server.where());
    raw.say(bytes(7, 0x48));
    until([&] {
        quick_host.progress();
        return raw.is_ended();
    });
}

/* Words after the hand-shake are a breach of the rules: the endpoint fails. */
TEST_P(hostile_connection, more_bytes_than_there_should_be)
{
    auto server = serve();
    raw_socket raw(server->where());
    raw.say(question(client().address()));
    failure failed;
    accept_one(*server, &failed);
    raw.say({1, 2, 3});
    until([&] { return failed.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
}

} // namespace
