/* Halyard: tests of messages that a network sends from where they lie: the memory is in use until
 * the request has ended, and not a moment longer, however that comes about.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <ucp/server.h>
#include <uct/faulty_provider.h>
#include <uct/world.h>

#include <algorithm>
#include <cstring>

using namespace ucp_test;
using uct_test::faulty_provider;

namespace {

constexpr size_t LENGTH     = 60000; /* goes whole, and is not copied */
constexpr uint64_t FEATURES = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM;

const variant NETWORK = {"network", {{"UCX_TLS", "ofi"}}, false, UCS_THREAD_MODE_SINGLE};

class ofi_zcopy : public testing::Test {
protected:
    void SetUp() override
    {
        if (!is_present("ofi")) {
            GTEST_SKIP() << "no libfabric here";
        }
        if (!uct_test::network_has(UCT_OP_AM_ZCOPY)) {
            GTEST_SKIP() << "this network's messages are copied first";
        }
        m_provider = std::make_unique<faulty_provider>(81);
        begin({});
        EXPECT_EQ(1u, gathered(LENGTH));
    }

    void TearDown() override
    {
        m_pair.reset();
        m_provider.reset();
    }

    /* Begins anew, with further settings; the two are connected. */
    void begin(const settings &more)
    {
        m_pair.reset();
        m_environment.set(more);
        m_pair = std::make_unique<pair>(NETWORK, context_options{FEATURES, 0, nullptr, nullptr});
        (void)gathered(1);
    }

    /* Messages that were sent from where they lie, when one of that length is sent. */
    size_t gathered(size_t length)
    {
        const size_t before = m_provider->seen.gathered;
        bytes in(length), out(pattern(length, length));
        ucs_status_ptr_t received = m_pair->receive(in.data(), length, 5);

        EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->send(out.data(), length, 5)));
        EXPECT_EQ(UCS_OK, m_pair->wait(received));
        EXPECT_EQ(-1, differs(in.data(), length, length));
        return m_provider->seen.gathered - before;
    }

    /* Starts a send of `number`'s bytes, whose memory goes as soon as it ends. */
    static void start(ucp_ep_h ep, bytes *out, uint64_t number, ending *sent)
    {
        const ucp_request_param_t param = send_param(sent);

        *out         = pattern(number, LENGTH);
        sent->action = [out]() { bytes().swap(*out); };
        ucs_status_ptr_t ptr = ucp_tag_send_nbx(ep, out->data(), LENGTH, number, &param);
        if (!UCS_PTR_IS_PTR(ptr)) {
            sent->calls  = 1;
            sent->status = UCS_PTR_STATUS(ptr);
        }
    }

    ucp_ep_h connect_for_errors()
    {
        return m_pair->sender().connect(m_pair->receiver(), UCP_ERR_HANDLING_MODE_PEER,
                                        [](void *, ucp_ep_h, ucs_status_t) {});
    }

    static bool have_ended(const std::vector<ending> &all)
    {
        return std::all_of(all.begin(), all.end(),
                           [](const ending &each) { return each.calls > 0; });
    }

    environment m_environment;
    log_catcher m_log;
    std::unique_ptr<faulty_provider> m_provider;
    std::unique_ptr<pair> m_pair;
};

/* Ends that the provider tells late, and in another order. */
TEST_F(ofi_zcopy, memory_is_free_when_the_request_has_ended)
{
    constexpr unsigned COUNT = 40;
    std::vector<bytes> out(COUNT), in(COUNT, bytes(LENGTH));
    std::vector<ending> sent(COUNT), received(COUNT);

    m_provider->faults.hold = 2;
    for (unsigned i = 0; i < COUNT; ++i) {
        start(m_pair->ep(), &out[i], i, &sent[i]);
        EXPECT_EQ(0, sent[i].calls);
        const ucp_request_param_t param = receive_param(&received[i], UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(m_pair->receiver().handle(), in[i].data(),
                                                    LENGTH, i, ~0ull, &param)));
    }
    m_pair->progress_until([&]() { return have_ended(received) && have_ended(sent); });
    for (unsigned i = 0; i < COUNT; ++i) {
        EXPECT_EQ(1, sent[i].calls);
        EXPECT_EQ(UCS_OK, sent[i].status);
        EXPECT_EQ(-1, differs(in[i].data(), LENGTH, i)) << i;
    }
    EXPECT_LE(COUNT, m_provider->seen.gathered);
    EXPECT_LT(0u, m_provider->seen.held);
}

/* Who must have it at once, or wants it soon, gets it by a copy. */
TEST_F(ofi_zcopy, at_once_where_that_is_asked_for)
{
    const size_t before = m_provider->seen.gathered;

    for (const uint32_t flag : {UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL, UCP_OP_ATTR_FLAG_FAST_CMPL}) {
        bytes out(pattern(3, LENGTH)), in(LENGTH);
        ucp_request_param_t param = {};

        param.op_attr_mask = flag;
        ASSERT_EQ(nullptr, ucp_tag_send_nbx(m_pair->ep(), out.data(), LENGTH, 3, &param));
        memset(out.data(), 0, LENGTH);
        EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->receive(in.data(), LENGTH, 3)));
        EXPECT_EQ(-1, differs(in.data(), LENGTH, 3));
    }
    EXPECT_EQ(before, m_provider->seen.gathered);
}

TEST_F(ofi_zcopy, from_the_size_that_the_user_says)
{
    EXPECT_EQ(0u, gathered(8000));
    begin({{"UCX_ZCOPY_THRESH", "inf"}});
    EXPECT_EQ(0u, gathered(LENGTH));
    begin({{"UCX_ZCOPY_THRESH", "100"}});
    EXPECT_EQ(0u, gathered(99));
    EXPECT_EQ(1u, gathered(100));
    begin({{"UCX_ZCOPY_THRESH", "0"}});
    EXPECT_EQ(0u, gathered(0));
    EXPECT_EQ(1u, gathered(1));
}

struct message {
    std::string header;
    bytes data;
};

ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data,
                        size_t length, const ucp_am_recv_param_t *)
{
    auto *messages    = static_cast<std::vector<message> *>(arg);
    const auto *start = static_cast<const uint8_t *>(data);

    messages->push_back({std::string(static_cast<const char *>(header), header_length),
                         bytes(start, start + length)});
    return UCS_OK;
}

TEST_F(ofi_zcopy, active_messages_with_headers)
{
    const bytes out = pattern(7, LENGTH);
    std::vector<message> messages;
    ucp_am_handler_param_t handler = {};
    std::vector<std::string> headers;

    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id  = 9;
    handler.cb  = on_message;
    handler.arg = &messages;
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_pair->receiver().handle(), &handler));
    for (const size_t header_length : {0, 1, 8, 48, 49, 200, 239, 240, 241, 4000}) {
        for (const uint32_t flags : {0u, unsigned(UCP_AM_SEND_FLAG_REPLY)}) {
            ucp_request_param_t param = {};
            std::string header(header_length, 'a');
            for (size_t i = 0; i < header_length; ++i) {
                header[i] = char('a' + ((i + header_length) % 26));
            }
            headers.push_back(header);
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags        = flags | UCP_AM_SEND_FLAG_COPY_HEADER;
            ucs_status_ptr_t sent = ucp_am_send_nbx(m_pair->ep(), 9, header.data(), header_length,
                                                    out.data(), LENGTH, &param);
            memset(&header[0], 0, header_length);
            EXPECT_EQ(UCS_OK, m_pair->wait(sent));
        }
    }
    m_pair->progress_until([&]() { return messages.size() == headers.size(); });
    for (size_t i = 0; i < headers.size(); ++i) {
        EXPECT_EQ(headers[i], messages[i].header) << i;
        EXPECT_TRUE(out == messages[i].data) << i;
    }
    EXPECT_LE(10u, m_provider->seen.gathered);
}

TEST_F(ofi_zcopy, streams)
{
    const size_t before = m_provider->seen.gathered;
    bytes in(3 * LENGTH);
    std::vector<bytes> out;
    std::vector<ucs_status_ptr_t> sends;
    ucp_request_param_t param = {};
    size_t length;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
    for (unsigned i = 0; i < 3; ++i) {
        const ucp_request_param_t none = {};
        out.push_back(pattern(i, LENGTH));
        sends.push_back(ucp_stream_send_nbx(m_pair->ep(), out[i].data(), LENGTH, &none));
    }
    EXPECT_EQ(UCS_OK, m_pair->wait(ucp_stream_recv_nbx(m_pair->ep_back(), in.data(), in.size(),
                                                       &length, &param)));
    for (unsigned i = 0; i < 3; ++i) {
        EXPECT_EQ(UCS_OK, m_pair->wait(sends[i]));
        EXPECT_EQ(-1, differs(in.data() + (i * LENGTH), LENGTH, i));
    }
    EXPECT_EQ(before + 3, m_provider->seen.gathered);
}

/* What waits for a server's answer goes by another transport then, where the server is oneself. */
TEST_F(ofi_zcopy, to_oneself_once_the_server_has_answered)
{
    m_pair.reset();
    m_environment.set({{"UCX_TLS", "ofi"}, {"UCX_SELF_SEG_SIZE", "256k"}});
    const context here(context_options{FEATURES, 0, nullptr, nullptr});
    worker w(here);
    server_test::server server(w, server_test::address(AF_INET));
    ASSERT_EQ(UCS_OK, server.status);
    (void)w.address(); /* opens the network */
    const server_test::address where = server.where();
    ucp_ep_params_t params           = {};
    ucp_ep_h client, answer = nullptr;
    ending sent, received;
    bytes out, in(LENGTH);

    params.field_mask       = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr    = where.get();
    params.sockaddr.addrlen = where.length();
    ASSERT_EQ(UCS_OK, ucp_ep_create(w.handle(), &params, &client));
    start(client, &out, 4, &sent);
    const ucp_request_param_t param = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(w.handle(), in.data(), LENGTH, 4, ~0ull, &param)));
    const auto give_up = std::chrono::steady_clock::now() + server_test::PATIENCE;
    while (((sent.calls == 0) || (received.calls == 0)) &&
           (std::chrono::steady_clock::now() < give_up)) {
        w.progress();
        if (!server.requests.empty()) {
            params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
            params.conn_request = server.take();
            ASSERT_EQ(UCS_OK, ucp_ep_create(w.handle(), &params, &answer));
        }
    }
    EXPECT_EQ(UCS_OK, sent.status);
    EXPECT_EQ(UCS_OK, received.status);
    EXPECT_EQ(-1, differs(in.data(), LENGTH, 4));
    server.destroy();
    w.destroy();
    m_log.take();
}

/* A connection is lost while messages are under way: each send ends once, and its memory is not
 * read afterwards. */
TEST_F(ofi_zcopy, errors_end_each_send_once)
{
    constexpr unsigned COUNT = 40;
    std::vector<bytes> out(COUNT);
    std::vector<ending> sent(COUNT);
    m_provider->faults.hold  = 2;
    m_provider->faults.belie = 20;
    for (unsigned i = 0; i < COUNT; ++i) {
        start(m_pair->ep(), &out[i], i, &sent[i]);
    }
    m_pair->progress_until([&]() { return have_ended(sent); });
    EXPECT_TRUE(std::any_of(sent.begin(), sent.end(),
                            [](const ending &each) { return each.status != UCS_OK; }));
    m_pair->settle();
    for (const ending &each : sent) {
        EXPECT_EQ(1, each.calls);
    }
    m_log.take();
}

/* Closed by force while the receiver, which lives, takes nothing: the memory comes back all the
 * same, and what is lost is not taken for whole messages; a new endpoint works. */
TEST_F(ofi_zcopy, a_forced_close_does_not_wait_for_who_takes_nothing)
{
    constexpr unsigned COUNT = 400; /* more than a connection holds */
    const size_t before      = m_provider->seen.gathered;
    std::vector<bytes> out(COUNT);
    std::vector<ending> sent(COUNT);
    ending closed;
    ucp_request_param_t param = send_param(&closed, UCP_OP_ATTR_FIELD_FLAGS);
    const ucp_ep_h ep         = connect_for_errors();
    const auto give_up        = std::chrono::steady_clock::now() + server_test::PATIENCE;

    for (unsigned i = 0; i < COUNT; ++i) {
        start(ep, &out[i], i, &sent[i]);
        m_pair->sender().progress();
    }
    EXPECT_EQ(0, sent.back().calls);
    EXPECT_LT(before, m_provider->seen.gathered);
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    m_pair->sender().forget(ep);
    if (ucp_ep_close_nbx(ep, &param) == nullptr) {
        closed.calls = 1;
    }
    while ((!have_ended(sent) || (closed.calls == 0)) &&
           (std::chrono::steady_clock::now() < give_up)) {
        m_pair->sender().progress();
    }
    EXPECT_EQ(1, closed.calls);
    for (const ending &each : sent) {
        EXPECT_EQ(1, each.calls);
    }
    EXPECT_EQ(UCS_ERR_CANCELED, sent.back().status);

    bytes in(LENGTH), last(pattern(COUNT, LENGTH));
    const ucp_ep_h again = connect_for_errors();
    for (unsigned i = 0; i < COUNT; ++i) {
        ucp_tag_recv_info_t info;
        ucp_tag_message_h message;
        m_pair->settle();
        message = ucp_tag_probe_nb(m_pair->receiver().handle(), i, ~0ull, 1, &info);
        if (message == nullptr) {
            EXPECT_LT(0u, i);
            break;
        }
        EXPECT_EQ(UCS_OK, m_pair->wait(ucp_tag_msg_recv_nb(m_pair->receiver().handle(), in.data(),
                                                           LENGTH, ucp_dt_make_contig(1), message,
                                                           [](void *, ucs_status_t,
                                                              ucp_tag_recv_info_t *) {})));
        EXPECT_EQ(-1, differs(in.data(), LENGTH, i)) << i;
    }
    ucs_status_ptr_t received = m_pair->receive(in.data(), LENGTH, COUNT);
    const ucp_request_param_t plain = {};
    EXPECT_EQ(UCS_OK, m_pair->wait(ucp_tag_send_nbx(again, last.data(), LENGTH, COUNT, &plain)));
    EXPECT_EQ(UCS_OK, m_pair->wait(received));
    EXPECT_EQ(-1, differs(in.data(), LENGTH, COUNT));
    m_log.take();
}

/* Destroyed with its worker while the provider still sends. */
TEST_F(ofi_zcopy, the_end_amid_sends)
{
    std::vector<bytes> out(4);
    std::vector<ending> lost(4);

    m_provider->faults.hold = 1;
    for (unsigned i = 0; i < 4; ++i) {
        start(m_pair->ep(), &out[i], i, &lost[i]);
        EXPECT_EQ(0, lost[i].calls);
    }
    m_pair->sender().destroy();
    out.clear();
    m_pair->receiver().progress();
    for (const ending &each : lost) {
        EXPECT_EQ(0, each.calls);
    }
}

} // namespace

#endif
