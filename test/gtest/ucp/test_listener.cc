/* Halyard: tests of listeners, connection requests and endpoints made by socket addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <fake_sys.h>
#include <ucp/server.h>

#include <algorithm>
#include <atomic>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <thread>

using namespace server_test;

namespace {

class listener : public server_fixture {};

INSTANTIATE_TEST_SUITE_P(all, listener, testing::ValuesIn(places), place_name);

TEST_P(listener, chooses_a_port)
{
    auto server = serve();
    EXPECT_NE(0, server->where().port());
    EXPECT_EQ(GetParam().family, server->where().storage.ss_family);
    const uint16_t port = server->where().port();
    server->destroy();
    auto again = serve(address(GetParam().family, port));
    EXPECT_EQ(port, again->where().port());
}

TEST_P(listener, refuses_what_it_cannot_do)
{
    auto first = serve();
    server second(host(), first->where());
    EXPECT_EQ(UCS_ERR_BUSY, second.status);

    address foreign(AF_INET);
    reinterpret_cast<struct sockaddr_in *>(&foreign.storage)->sin_addr.s_addr =
        htonl(0xc0000201); /* 192.0.2.1, which nobody has */
    server third(host(), foreign);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, third.status);

    ucp_listener_params_t params;
    auto *untouched         = reinterpret_cast<ucp_listener_h>(&params);
    ucp_listener_h handle   = untouched;
    const address where     = address(GetParam().family);
    params.field_mask       = UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr    = where.get();
    params.sockaddr.addrlen = where.length();
    params.conn_handler.cb  = [](ucp_conn_request_h, void *) {};
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_listener_create(host().handle(), &params, &handle));
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_listener_create(host().handle(), &params, &handle));
    params.field_mask |= UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addrlen = 4;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_listener_create(host().handle(), &params, &handle));
    struct sockaddr local   = {};
    local.sa_family         = AF_UNIX;
    params.sockaddr.addr    = &local;
    params.sockaddr.addrlen = sizeof(local);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_listener_create(host().handle(), &params, &handle));
    EXPECT_EQ(untouched, handle);
    take_log(); /* says why; what repeats itself is not said each time */
}

TEST_P(listener, exchanges)
{
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    ucp_ep_h back    = accept_one(*server);
    for (size_t length : {size_t(0), size_t(8), size_t(5000), size_t(300000)}) {
        exchange(to_host, back, length);
    }
}

/* Before the answer nobody knows by what messages will go: the lane that they wait on is none. */
TEST_P(listener, tells_the_way_once_it_is_known)
{
    /* transports and limits with which the place where an endpoint waits is like its way */
    const environment informs(settings{{"UCX_PROTO_INFO", "y"}, {"UCX_MM_SEG_SIZE", "4k"}});
    m_workers.clear();
    m_context.reset();
    SetUp();
    const std::string way = "messages by ";
    auto server           = serve();
    testing::internal::CaptureStdout();
    ucp_ep_h to_host = connect(server->where());
    const auto text  = [=] {
        return printed([=](FILE *stream) { ucp_ep_print_info(to_host, stream); });
    };
    EXPECT_EQ("", testing::internal::GetCapturedStdout());
    EXPECT_EQ(std::string::npos, text().find(way)) << text();
    testing::internal::CaptureStdout();
    ucp_ep_h back = accept_one(*server);
    exchange(to_host, back);
    EXPECT_NE(std::string::npos, testing::internal::GetCapturedStdout().find(way));
    EXPECT_NE(std::string::npos, text().find(way)) << text();
}

TEST_P(listener, tells_addresses)
{
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    ucp_ep_attr_t early;
    early.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR;
    EXPECT_EQ(UCS_OK, ucp_ep_query(to_host, &early));
    until([&] { return !server->requests.empty(); });

    ucp_conn_request_attr_t asked;
    memset(&asked, 0xee, sizeof(asked));
    asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR |
                       UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
    EXPECT_EQ(UCS_OK, ucp_conn_request_query(server->requests.front(), &asked));
    EXPECT_EQ(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID,
              asked.field_mask);
    EXPECT_EQ(0u, asked.client_id);
    address from, at_first;
    from.storage     = asked.client_address;
    at_first.storage = early.local_sockaddr;
    EXPECT_TRUE(at_first == from) << "known before the connection is there";
    ucp_ep_h back = accept(host(), server->take());
    exchange(to_host, back);

    for (ucp_ep_h ep : {to_host, back}) {
        ucp_ep_attr_t attr;
        memset(&attr, 0xee, sizeof(attr));
        attr.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
        ASSERT_EQ(UCS_OK, ucp_ep_query(ep, &attr));
        address local, remote;
        local.storage  = attr.local_sockaddr;
        remote.storage = attr.remote_sockaddr;
        EXPECT_TRUE(((ep == to_host) ? remote : local) == server->where());
        EXPECT_TRUE(((ep == to_host) ? local : remote) == from);
    }
}

TEST_P(listener, an_endpoint_by_worker_address_has_none)
{
    ucp_ep_h ep = client().connect(host());
    ucp_ep_attr_t attr;
    attr.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, ucp_ep_query(ep, &attr));
    attr.field_mask = UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, ucp_ep_query(ep, &attr));
}

TEST_P(listener, tells_the_client_id)
{
    auto server = serve();
    ucp_worker_params_t params;
    memset(&params, 0xee, sizeof(params));
    params.field_mask  = UCP_WORKER_PARAM_FIELD_CLIENT_ID | UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = GetParam().mode;
    params.client_id   = 0x0123456789abcdefull;
    ucp_worker_h named;
    ASSERT_EQ(UCS_OK, ucp_worker_create(m_context->handle(), &params, &named));
    const address where = server->where();
    for (bool tells : {true, false}) {
        ucp_ep_params_t ep_params = client_params(where, nullptr);
        if (tells) {
            ep_params.flags |= UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
        }
        ucp_ep_h ep;
        ASSERT_EQ(UCS_OK, ucp_ep_create(named, &ep_params, &ep));
        until([&] {
            ucp_worker_progress(named);
            return !server->requests.empty();
        });
        ucp_conn_request_attr_t asked;
        asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
        EXPECT_EQ(UCS_OK, ucp_conn_request_query(server->requests.front(), &asked));
        EXPECT_EQ(tells ? params.client_id : 0, asked.client_id);
        EXPECT_EQ(UCS_OK, ucp_listener_reject(server->handle(), server->take()));
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
    }
    ucp_worker_destroy(named);
}

TEST_P(listener, a_client_chooses_its_own_address)
{
    auto server = serve();
    /* A port that is free, by asking for one. */
    uint16_t port;
    {
        auto probe = serve();
        port       = probe->where().port();
    }
    const address where = server->where(), from(GetParam().family, port);
    ucp_ep_params_t params = client_params(where, nullptr);
    params.field_mask     |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
    params.local_sockaddr.addr    = from.get();
    params.local_sockaddr.addrlen = from.length();
    ucp_ep_h to_host              = create(client(), params);
    until([&] { return !server->requests.empty(); });
    ucp_conn_request_attr_t asked;
    asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    EXPECT_EQ(UCS_OK, ucp_conn_request_query(server->requests.front(), &asked));
    address seen;
    seen.storage = asked.client_address;
    EXPECT_TRUE(seen == from);
    exchange(to_host, accept(host(), server->take()));

    /* One of another family, or of nobody here, is refused at once. */
    const address other((GetParam().family == AF_INET) ? AF_INET6 : AF_INET);
    params.local_sockaddr.addr    = other.get();
    params.local_sockaddr.addrlen = other.length();
    ucp_ep_h ep                   = to_host;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_ep_create(client().handle(), &params, &ep));
    EXPECT_EQ(to_host, ep);
    take_log();
}

/* Mercury's way: it connects from the address at which it listens itself. */
TEST_P(listener, a_client_connects_from_its_own_listener)
{
    environment reuse(settings{{"UCX_CM_REUSEADDR", "y"}});
    context_options options;
    const context context(options);
    worker one(context, GetParam().mode), other(context, GetParam().mode);
    server mine(one, address(GetParam().family)), theirs(other, address(GetParam().family));
    ASSERT_EQ(UCS_OK, mine.status);
    ASSERT_EQ(UCS_OK, theirs.status);
    const address where = theirs.where(), from = mine.where();
    ucp_ep_params_t params = client_params(where, nullptr);
    params.field_mask     |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
    params.local_sockaddr.addr    = from.get();
    params.local_sockaddr.addrlen = from.length();
    ucp_ep_h ep;
    ASSERT_EQ(UCS_OK, ucp_ep_create(one.handle(), &params, &ep));
    until([&] {
        one.progress();
        other.progress();
        return !theirs.requests.empty();
    });
    ucp_conn_request_attr_t asked;
    asked.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    EXPECT_EQ(UCS_OK, ucp_conn_request_query(theirs.requests.front(), &asked));
    address seen;
    seen.storage = asked.client_address;
    EXPECT_TRUE(seen == from);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
}

/* Messages of all kinds of lengths, posted before anybody has looked at the connection. */
TEST_P(listener, what_is_sent_early_waits_in_order)
{
    constexpr int COUNT = 60;
    auto server         = serve();
    seeded_random random(1);
    ucp_ep_h to_host = connect(server->where());
    std::vector<bytes> sent, got;
    std::vector<ending> ends(COUNT);
    for (int i = 0; i < COUNT; ++i) {
        sent.push_back(pattern((uint64_t)i, random.below((i % 5 == 0) ? 200000 : 3000)));
        got.emplace_back(sent.back().size());
    }
    for (int i = 0; i < COUNT; ++i) {
        void *request = send(to_host, sent[i], 5, &ends[i]);
        ASSERT_TRUE(UCS_PTR_IS_PTR(request));
        EXPECT_EQ(0, ends[i].calls);
    }
    ending flushed;
    ucp_request_param_t param = send_param(&flushed);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(to_host, &param)));

    accept_one(*server);
    for (int i = 0; i < COUNT; ++i) { /* one tag: only the order tells them apart */
        ASSERT_EQ(UCS_OK, wait(receive(host(), got[i], 5)));
        EXPECT_EQ(sent[i], got[i]) << "message " << i;
    }
    until([&] { return flushed.calls == 1; });
    EXPECT_EQ(UCS_OK, flushed.status);
    for (const ending &end : ends) {
        until([&] { return end.calls == 1; });
        EXPECT_EQ(UCS_OK, end.status);
    }
}

TEST_P(listener, small_messages_need_no_receive)
{
    if (!GetParam().env.empty()) {
        GTEST_SKIP() << "where all messages are announced they need one";
    }
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    const bytes data = pattern(9, 100);
    ending end;
    ASSERT_TRUE(UCS_PTR_IS_PTR(send(to_host, data, 9, &end)));
    accept_one(*server);
    until([&] { return end.calls == 1; });
    EXPECT_EQ(UCS_OK, end.status);
    bytes got(data.size());
    EXPECT_EQ(UCS_OK, wait(receive(host(), got, 9)));
    EXPECT_EQ(data, got);
}

TEST_P(listener, sync_and_immediate_sends_before_the_connection)
{
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    const bytes data = pattern(3, 64);
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              UCS_PTR_STATUS(ucp_tag_send_nbx(to_host, data.data(), data.size(), 1, &param)));
    ending end;
    param = send_param(&end);
    ASSERT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_send_sync_nbx(to_host, data.data(), data.size(), 2, &param)));
    accept_one(*server);
    for (int i = 0; i < 1000; ++i) {
        progress();
    }
    EXPECT_EQ(0, end.calls);
    bytes got(data.size());
    EXPECT_EQ(UCS_OK, wait(receive(host(), got, 2)));
    EXPECT_EQ(data, got);
    until([&] { return end.calls == 1; });
    EXPECT_EQ(UCS_OK, end.status);
    ucp_tag_recv_info_t info;
    EXPECT_EQ(nullptr, ucp_tag_probe_nb(host().handle(), 0, 0, 0, &info)); /* no trace of 1 */
}

/* Two connections of the same two workers, accepted the other way round: what goes into an endpoint
 * comes out of the one that accepted it. */
TEST_P(listener, streams_and_replies_keep_to_their_connection)
{
    struct arrival {
        ucp_ep_h reply_ep = nullptr;
        int calls         = 0;
    } arrival;
    ucp_am_handler_param_t handler;
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id         = 3;
    handler.arg        = &arrival;
    handler.cb         = [](void *arg, const void *, size_t, void *, size_t,
                    const ucp_am_recv_param_t *param) {
        auto *told = static_cast<struct arrival *>(arg);
        ++told->calls;
        told->reply_ep =
            (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ? param->reply_ep : nullptr;
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(host().handle(), &handler));

    auto server = serve();
    ucp_ep_h to_host[2], back[2];
    uint64_t sent[2] = {100, 101}, got[2] = {0, 0};
    void *sends[2];
    ucp_request_param_t param = {};
    for (int i = 0; i < 2; ++i) {
        to_host[i] = connect(server->where());
        sends[i]   = ucp_stream_send_nbx(to_host[i], &sent[i], sizeof(sent[i]), &param);
        until([&] { return server->requests.size() == (size_t)i + 1; });
    }
    back[1] = accept(host(), server->requests[1]);
    back[0] = accept(host(), server->requests[0]);
    server->requests.clear();
    for (int i = 0; i < 2; ++i) {
        size_t length;
        ucp_request_param_t all = {};
        all.op_attr_mask        = UCP_OP_ATTR_FIELD_FLAGS;
        all.flags               = UCP_STREAM_RECV_FLAG_WAITALL;
        EXPECT_EQ(UCS_OK, wait(ucp_stream_recv_nbx(back[i], &got[i], sizeof(got[i]), &length,
                                                   &all)));
        EXPECT_EQ(UCS_OK, wait(sends[i]));
        EXPECT_EQ(sent[i], got[i]);

        /* and the other way */
        sends[i] = ucp_stream_send_nbx(back[i], &sent[1 - i], sizeof(sent[i]), &param);
        EXPECT_EQ(UCS_OK, wait(ucp_stream_recv_nbx(to_host[i], &got[i], sizeof(got[i]), &length,
                                                   &all)));
        EXPECT_EQ(UCS_OK, wait(sends[i]));
        EXPECT_EQ(sent[1 - i], got[i]);

        ucp_request_param_t reply = {};
        reply.op_attr_mask        = UCP_OP_ATTR_FIELD_FLAGS;
        reply.flags               = UCP_AM_SEND_FLAG_REPLY;
        arrival.calls             = 0;
        sends[i] = ucp_am_send_nbx(to_host[i], 3, nullptr, 0, &sent[i], sizeof(sent[i]), &reply);
        until([&] { return arrival.calls == 1; });
        EXPECT_EQ(UCS_OK, wait(sends[i]));
        EXPECT_EQ(back[i], arrival.reply_ep);
    }
}

/* What a server sends as soon as it has accepted may overtake its answer. */
TEST_P(listener, active_messages_both_ways_at_once)
{
    int calls = 0;
    ucp_am_handler_param_t handler;
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id         = 4;
    handler.arg        = &calls;
    handler.cb         = [](void *arg, const void *, size_t, void *, size_t,
                    const ucp_am_recv_param_t *) {
        ++*static_cast<int *>(arg);
        return UCS_OK;
    };
    for (auto &each : m_workers) {
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(each->handle(), &handler));
    }
    auto server = serve();
    const bytes small = pattern(1, 100), large = pattern(2, 200000);
    ucp_request_param_t param = {}, eager = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = UCP_AM_SEND_FLAG_REPLY;
    eager.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    eager.flags        = UCP_AM_SEND_FLAG_EAGER;
    std::vector<void *> requests;
    const auto send_all = [&](ucp_ep_h ep) {
        for (const bytes *data : {&small, &large}) {
            requests.push_back(
                ucp_am_send_nbx(ep, 4, "head", 4, data->data(), data->size(), &param));
            requests.push_back(
                ucp_am_send_nbx(ep, 4, "head", 4, data->data(), data->size(), &eager));
        }
    };
    ucp_ep_h to_host = connect(server->where());
    send_all(to_host);
    until([&] { return !server->requests.empty(); });
    ucp_ep_h back = accept(host(), server->take());
    send_all(back);
    uint64_t word = 9, got = 0;
    requests.push_back(ucp_stream_send_nbx(back, &word, sizeof(word), &param));
    until([&] { return calls == 8; });
    size_t length;
    ucp_request_param_t plain = {};
    EXPECT_EQ(UCS_OK, wait(ucp_stream_recv_nbx(to_host, &got, sizeof(got), &length, &plain)));
    EXPECT_EQ(word, got);
    for (void *request : requests) {
        EXPECT_EQ(UCS_OK, wait(request));
    }
}

/* Remote memory may be known before the connection is there. */
TEST_P(listener, puts_gets_and_atomics_wait_in_order)
{
    for (bool allocated : {false, true}) { /* what peers can map, and what they cannot */
        auto server = serve();
        std::vector<uint64_t> own(1000, 7);
        ucp_mem_map_params_t params;
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.address    = allocated ? nullptr : own.data();
        params.length     = own.size() * sizeof(own[0]);
        params.flags      = allocated ? UCP_MEM_MAP_ALLOCATE : 0;
        ucp_mem_h memh;
        ASSERT_EQ(UCS_OK, ucp_mem_map(m_context->handle(), &params, &memh));
        ucp_mem_attr_t attr;
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        ASSERT_EQ(UCS_OK, ucp_mem_query(memh, &attr));
        auto *target        = static_cast<uint64_t *>(attr.address);
        const auto remote   = (uint64_t)(uintptr_t)target;
        target[0]           = 7;
        void *packed;
        size_t packed_length;
        ASSERT_EQ(UCS_OK, ucp_rkey_pack(m_context->handle(), memh, &packed, &packed_length));

        ucp_ep_h to_host = connect(server->where());
        ucp_rkey_h rkey;
        ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(to_host, packed, &rkey));
        ucp_rkey_buffer_release(packed);
        std::vector<uint64_t> written(1000, 40);
        const uint64_t two = 2;
        uint64_t fetched = 0, got = 0;
        ucp_request_param_t param = {}, fetch = {};
        fetch.op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER | UCP_OP_ATTR_FIELD_DATATYPE;
        fetch.reply_buffer = &fetched;
        fetch.datatype     = ucp_dt_make_contig(8);
        void *requests[]   = {
            ucp_put_nbx(to_host, written.data(), 8000, remote, rkey, &param),
            ucp_atomic_op_nbx(to_host, UCP_ATOMIC_OP_ADD, &two, 1, remote, rkey, &fetch),
            ucp_get_nbx(to_host, &got, 8, remote, rkey, &param),
            ucp_ep_flush_nbx(to_host, &param)};
        EXPECT_EQ(UCS_OK, ucp_worker_fence(client().handle()));
        void *last = ucp_atomic_op_nbx(to_host, UCP_ATOMIC_OP_ADD, &two, 1, remote, rkey, &fetch);
        accept_one(*server);
        for (void *request : requests) {
            EXPECT_EQ(UCS_OK, wait(request));
        }
        EXPECT_EQ(UCS_OK, wait(last));
        EXPECT_EQ(42u, fetched);
        EXPECT_EQ(44u, target[0]);
        EXPECT_EQ(40u, target[999]);
        EXPECT_TRUE((got == 42) || (got == 44)) << got;
        ucp_rkey_destroy(rkey);
        close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_context->handle(), memh));
    }
}

TEST_P(listener, a_flush_waits_for_the_connection)
{
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    ucp_request_param_t param = {};
    void *of_ep     = ucp_ep_flush_nbx(to_host, &param);
    void *of_worker = ucp_worker_flush_nbx(client().handle(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(of_ep));
    ASSERT_TRUE(UCS_PTR_IS_PTR(of_worker));
    until([&] { return !server->requests.empty(); });
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(of_ep));
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(of_worker));
    accept(host(), server->take());
    EXPECT_EQ(UCS_OK, wait(of_ep));
    EXPECT_EQ(UCS_OK, wait(of_worker));
}

TEST_P(listener, a_close_delivers_first)
{
    auto server      = serve();
    ucp_ep_h to_host = connect(server->where());
    const bytes data = pattern(4, 3000);
    bytes got(data.size());
    void *sent    = send(to_host, data, 4);
    forget(to_host);
    void *closing = ucp_ep_close_nb(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    ASSERT_TRUE(UCS_PTR_IS_PTR(closing));
    accept_one(*server);
    EXPECT_EQ(UCS_OK, wait(receive(host(), got, 4)));
    EXPECT_EQ(data, got);
    EXPECT_EQ(UCS_OK, wait(sent));
    EXPECT_EQ(UCS_OK, wait(closing));
}

/* The server has closed without receiving: the client's close does not wait for that. */
TEST_P(listener, a_close_ends_when_the_server_has_closed)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    ucp_ep_h back    = accept_one(*server);
    const bytes data = pattern(4, 1 << 20);
    void *sent       = send(to_host, data, 4);
    for (int i = 0; i < 1000; ++i) {
        progress();
    }
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(sent));
    forget(to_host);
    void *closing = ucp_ep_close_nb(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    ASSERT_TRUE(UCS_PTR_IS_PTR(closing));
    close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, wait(sent));
    EXPECT_EQ(UCS_OK, wait(closing));
    EXPECT_EQ(0, failed.calls);
}

/* What a server sends on a stream before its client has heard that it is accepted, and has closed
 * meanwhile, is for nobody: the server hears that at once, though the client's close waits. */
TEST_P(listener, a_stream_to_a_client_that_closes)
{
    auto server      = serve();
    ucp_ep_h near    = host().connect(client()); /* so that bytes come before the answer */
    const bytes data = pattern(4, 1 << 20);
    bytes got(data.size());
    void *sent       = send(near, data, 5);
    EXPECT_EQ(UCS_OK, wait(receive(client(), got, 5)));
    EXPECT_EQ(UCS_OK, wait(sent));

    ucp_ep_h to_host = connect(server->where());
    sent             = send(to_host, data, 4);
    forget(to_host);
    void *closing = ucp_ep_close_nb(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    ASSERT_TRUE(UCS_PTR_IS_PTR(closing));

    ucp_ep_h back                   = accept_one(*server);
    const ucp_request_param_t param = {};
    void *unread = ucp_stream_send_nbx(back, data.data(), data.size(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(unread));
    for (int i = 0; i < 100; ++i) {
        host().progress();
    }
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, wait(unread));
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(closing));
    EXPECT_EQ(UCS_OK, wait(receive(host(), got, 4)));
    EXPECT_EQ(UCS_OK, wait(sent));
    EXPECT_EQ(UCS_OK, wait(closing));
}

TEST_P(listener, a_close_with_nothing_to_send_gives_up)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    ucp_request_param_t param = {};
    void *flush = ucp_ep_flush_nbx(to_host, &param);
    forget(to_host);
    EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nb(to_host, UCP_EP_CLOSE_MODE_FLUSH)));
    EXPECT_EQ(UCS_ERR_CANCELED, wait(flush));
    for (int i = 0; i < 1000; ++i) {
        progress();
    }
    EXPECT_EQ(0, failed.calls);
}

TEST_P(listener, a_forced_close_cancels_what_waits)
{
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    const bytes data = pattern(4, 3000);
    ending end;
    ASSERT_TRUE(UCS_PTR_IS_PTR(send(to_host, data, 4, &end)));
    close_now(to_host, UCP_EP_CLOSE_MODE_FORCE);
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, end.status);
    EXPECT_EQ(0, failed.calls);
}

TEST_P(listener, accepted_on_another_worker)
{
    auto server = serve();
    worker other(*m_context, GetParam().mode);
    ucp_ep_h to_other = connect(server->where());
    until([&] { return !server->requests.empty(); });
    ucp_ep_h back = accept(other, server->take());
    const bytes data = pattern(5, 10000);
    bytes got(data.size());
    void *sent     = send(to_other, data, 5);
    void *received = receive(other, got, 5);
    until([&] { /* its receiver may have to answer */
        other.progress();
        return (ucp_request_check_status(received) != UCS_INPROGRESS) &&
               (!UCS_PTR_IS_PTR(sent) || (ucp_request_check_status(sent) != UCS_INPROGRESS));
    });
    EXPECT_EQ(UCS_OK, wait(received));
    EXPECT_EQ(UCS_OK, wait(sent));
    EXPECT_EQ(data, got);
    close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
}

TEST_P(listener, the_older_handler_gets_an_endpoint)
{
    struct accepted {
        int calls   = 0;
        ucp_ep_h ep = nullptr;
    } accepted;
    const address any(GetParam().family);
    ucp_listener_params_t params;
    memset(&params, 0xee, sizeof(params));
    params.field_mask =
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER;
    params.sockaddr.addr      = any.get();
    params.sockaddr.addrlen   = any.length();
    params.accept_handler.arg = &accepted;
    params.accept_handler.cb  = [](ucp_ep_h ep, void *arg) {
        auto *told = static_cast<struct accepted *>(arg);
        ++told->calls;
        told->ep = ep;
    };
    ucp_listener_h handle;
    ASSERT_EQ(UCS_OK, ucp_listener_create(host().handle(), &params, &handle));
    ucp_listener_attr_t attr;
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    EXPECT_EQ(UCS_OK, ucp_listener_query(handle, &attr));
    address where;
    where.storage    = attr.sockaddr;
    ucp_ep_h to_host = connect(where);
    until([&] { return accepted.calls > 0; });
    m_eps.emplace_back(&host(), accepted.ep);
    exchange(to_host, accepted.ep);
    EXPECT_EQ(1, accepted.calls);
    ucp_listener_destroy(handle);
}

TEST_P(listener, many_clients)
{
    constexpr int COUNT = 40;
    auto server         = serve();
    std::vector<std::unique_ptr<worker>> clients;
    std::vector<ucp_ep_h> eps;
    const address where = server->where();
    for (int i = 0; i < COUNT; ++i) {
        clients.push_back(std::make_unique<worker>(*m_context, GetParam().mode));
        eps.push_back(create(*clients.back(), client_params(where, nullptr)));
    }
    until([&] {
        for (auto &each : clients) {
            each->progress();
        }
        return server->requests.size() == COUNT;
    });
    while (!server->requests.empty()) {
        accept(host(), server->take());
    }
    uint64_t sum = 0;
    for (int i = 0; i < COUNT; ++i) {
        const uint64_t value = (uint64_t)i + 1;
        const bytes data(reinterpret_cast<const uint8_t *>(&value),
                         reinterpret_cast<const uint8_t *>(&value) + sizeof(value));
        bytes got(sizeof(value));
        void *sent     = send(eps[i], data, 1);
        void *received = receive(host(), got, 1);
        until([&] {
            clients[i]->progress();
            return !UCS_PTR_IS_PTR(received) ||
                   (ucp_request_check_status(received) != UCS_INPROGRESS);
        });
        EXPECT_EQ(UCS_OK, wait(received));
        EXPECT_EQ(UCS_OK, wait(sent));
        memcpy(&sum, got.data(), sizeof(sum));
        EXPECT_EQ(value, sum);
    }
    while (!m_eps.empty()) {
        ucp_ep_h ep = m_eps.back().second;
        close_now(ep, UCP_EP_CLOSE_MODE_FLUSH);
    }
}

/* So many that a server turns strangers away, by a program that makes no progress meanwhile. */
TEST_P(listener, many_clients_that_ask_late)
{
    constexpr size_t COUNT = 300;
    if (GetParam().is_self) {
        GTEST_SKIP() << "the server's progress is the clients'";
    }
    auto server = serve();
    std::vector<failure> failed(COUNT);
    for (size_t i = 0; i < COUNT; ++i) {
        connect(server->where(), &failed[i]);
        host().progress();
    }
    for (int i = 0; i < 1000; ++i) {
        host().progress();
    }
    until([&] { return server->requests.size() == COUNT; });
    while (!server->requests.empty()) {
        accept(host(), server->take());
    }
    exchange(m_eps.front().second, m_eps.back().second);
    for (const failure &each : failed) {
        EXPECT_EQ(0, each.calls);
    }
}

/* Who only looks whether a server is there leaves nothing behind, on either side. */
TEST_P(listener, who_says_nothing_is_forgotten)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "a worker knows itself";
    }
    auto server = serve();
    failure failed;
    ucp_ep_h to_host = connect(server->where(), &failed);
    ucp_ep_h back    = accept_one(*server);
    until([&] { return ucp_test_knows(client().handle(), host().handle()); });
    EXPECT_TRUE(ucp_test_knows(host().handle(), client().handle()));
    close_now(back, UCP_EP_CLOSE_MODE_FLUSH);
    until([&] { return failed.calls > 0; });
    close_now(to_host, UCP_EP_CLOSE_MODE_FORCE);
    until([&] {
        return !ucp_test_knows(client().handle(), host().handle()) &&
               !ucp_test_knows(host().handle(), client().handle());
    });

    to_host = connect(server->where());
    exchange(to_host, accept_one(*server));
    EXPECT_TRUE(ucp_test_knows(host().handle(), client().handle()));
}

TEST_P(listener, a_worker_goes_with_everything_open)
{
    auto server = serve();
    failure failed;
    connect(server->where(), &failed);
    connect(server->where());
    until([&] { return server->requests.size() == 2; });
    accept(host(), server->take());
    ucp_ep_h waiting = connect(server->where());
    const bytes data = pattern(1, 100);
    ASSERT_TRUE(UCS_PTR_IS_PTR(send(waiting, data, 1)));
    m_eps.clear();
    EXPECT_EQ(UCS_OK, ucp_listener_reject(server->handle(), server->take()));
    server->forget();
    while (!m_workers.empty()) {
        m_workers.back()->destroy();
        m_workers.pop_back();
    }
    EXPECT_EQ(0, failed.calls);
}

unsigned g_looks; /* at a clock that stands still for the first thousand of them */

/* Nothing that waits for a server's answer is the end of somebody's request. */
TEST_P(listener, a_worker_that_still_connects_goes_at_once)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "the listener goes with it";
    }
    auto server       = serve();
    ucp_ep_h waiting  = connect(server->where());
    ucs_sys_ops_t ops = ucs_sys_real;
    const bytes data  = pattern(1, 100);
    ASSERT_TRUE(UCS_PTR_IS_PTR(send(waiting, data, 1)));
    m_eps.clear();
    g_looks      = 0;
    ops.clock_ns = []() { return (++g_looks < 1000) ? uint64_t(1) : ucs_sys_real.clock_ns(); };
    {
        const fake_sys sys(ops);
        client().destroy();
    }
    m_workers.erase(m_workers.begin());
    EXPECT_GT(1000u, g_looks);
}

/* ---- sleeping ---- */

TEST_P(listener, sleeps_through_a_whole_connection)
{
    auto server = serve();
    failure failed;
    std::vector<int> fds;
    for (auto &each : m_workers) {
        int fd;
        ASSERT_EQ(UCS_OK, ucp_worker_get_efd(each->handle(), &fd));
        fds.push_back(fd);
    }
    const auto sleep_until = [&](const std::function<bool()> &condition) {
        while (!condition()) {
            bool armed = true;
            while (progress() > 0) {
            }
            if (condition()) {
                break;
            }
            for (auto &each : m_workers) {
                armed = armed && (ucp_worker_arm(each->handle()) == UCS_OK);
            }
            if (armed) {
                std::vector<struct pollfd> events;
                for (int fd : fds) {
                    events.push_back({fd, POLLIN, 0});
                }
                ASSERT_GT(poll(events.data(), events.size(), 20000), 0) << "nobody woke us";
            }
        }
    };
    ucp_ep_h to_host = connect(server->where());
    sleep_until([&] { return !server->requests.empty(); });
    ucp_ep_h back    = accept(host(), server->take(), &failed);
    const bytes data = pattern(6, 2000);
    bytes got(data.size());
    void *received = receive(host(), got, 6);
    void *sent     = send(to_host, data, 6);
    sleep_until([&] { return ucp_request_check_status(received) != UCS_INPROGRESS; });
    EXPECT_EQ(UCS_OK, wait(received));
    EXPECT_EQ(UCS_OK, wait(sent));
    EXPECT_EQ(data, got);
    close_now(to_host, UCP_EP_CLOSE_MODE_FLUSH);
    sleep_until([&] { return failed.calls > 0; });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
    close_now(back, UCP_EP_CLOSE_MODE_FLUSH);

    /* And quiet it is when nothing happens. */
    while (progress() > 0) {
    }
    for (size_t i = 0; i < fds.size(); ++i) {
        while (ucp_worker_arm(m_workers[i]->handle()) == UCS_ERR_BUSY) {
            progress();
        }
        struct pollfd event = {fds[i], POLLIN, 0};
        EXPECT_EQ(0, poll(&event, 1, 50));
    }
}

/* ---- descriptors ---- */

TEST_P(listener, all_descriptors_are_closed_on_exec_and_in_the_end)
{
    const auto list = [] {
        std::vector<int> fds;
        DIR *dir = opendir("/proc/self/fd");
        while (const struct dirent *entry = readdir(dir)) {
            if ((entry->d_name[0] != '.') && (atoi(entry->d_name) != dirfd(dir))) {
                fds.push_back(atoi(entry->d_name));
            }
        }
        closedir(dir);
        return fds;
    };
    m_workers.clear();
    const std::vector<int> before = list();
    {
        worker one(*m_context, GetParam().mode), other(*m_context, GetParam().mode);
        server server(other, address(GetParam().family));
        const address where    = server.where();
        ucp_ep_params_t params = client_params(where, nullptr);
        ucp_ep_h ep;
        ASSERT_EQ(UCS_OK, ucp_ep_create(one.handle(), &params, &ep));
        until([&] {
            one.progress();
            other.progress();
            return !server.requests.empty();
        });
        EXPECT_GT(list().size(), before.size());
        for (int fd : list()) {
            if (std::find(before.begin(), before.end(), fd) == before.end()) {
                EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC) << "descriptor " << fd;
            }
        }
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
    }
    EXPECT_EQ(before, list());
}

/* ---- threads ---- */

/* ucxx: a listener in one thread, whose clients another thread serves with a worker of its own. */
TEST(listener_threads, requests_go_to_another_thread)
{
    constexpr int COUNT = 20;
    context_options options;
    const context context(options);
    worker front(context, UCS_THREAD_MODE_MULTI), behind(context, UCS_THREAD_MODE_MULTI),
        client(context, UCS_THREAD_MODE_MULTI);
    server server(front, address(AF_INET));
    ASSERT_EQ(UCS_OK, server.status);
    const address where = server.where();
    std::atomic<ucp_conn_request_h> handed = {nullptr};
    std::atomic<int> accepted              = {0};
    std::atomic<bool> done                 = {false};
    std::thread listening([&] {
        while (!done) {
            front.progress();
            if (!server.requests.empty() && (handed == nullptr)) {
                handed = server.take();
            }
        }
    });
    std::vector<ucp_ep_h> backs;
    std::thread serving([&] {
        while (!done) {
            behind.progress();
            ucp_conn_request_h request = handed.exchange(nullptr);
            if (request != nullptr) {
                ucp_ep_params_t params;
                params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
                params.conn_request = request;
                ucp_ep_h ep;
                if (ucp_ep_create(behind.handle(), &params, &ep) == UCS_OK) {
                    backs.push_back(ep);
                    ++accepted;
                }
            }
        }
    });
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    std::vector<ucp_ep_h> eps;
    for (int i = 0; i < COUNT; ++i) {
        ucp_ep_params_t params;
        params.field_mask       = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr.addr    = where.get();
        params.sockaddr.addrlen = where.length();
        ucp_ep_h ep;
        EXPECT_EQ(UCS_OK, ucp_ep_create(client.handle(), &params, &ep));
        eps.push_back(ep);
    }
    while ((accepted < COUNT) && (std::chrono::steady_clock::now() < end)) {
        client.progress();
    }
    EXPECT_EQ(COUNT, accepted);
    for (ucp_ep_h ep : eps) {
        ucp_request_param_t param = {};
        void *flush               = ucp_ep_flush_nbx(ep, &param);
        while (UCS_PTR_IS_PTR(flush) && (ucp_request_check_status(flush) == UCS_INPROGRESS) &&
               (std::chrono::steady_clock::now() < end)) {
            client.progress();
        }
        if (UCS_PTR_IS_PTR(flush)) {
            EXPECT_EQ(UCS_OK, ucp_request_check_status(flush));
            ucp_request_free(flush);
        }
    }
    done = true;
    listening.join();
    serving.join();
}

} // namespace
