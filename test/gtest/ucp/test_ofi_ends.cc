/* Halyard: tests of announced sends that end early while a network reads their memory: it is the
 * user's once they have ended, and what others send to the same worker is not lost.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <ucp/remote.h>
#include <uct/faulty_provider.h>

#include <chrono>
#include <cstring>
#include <poll.h>

using namespace ucp_test;
using uct_test::faulty_provider;

namespace {

constexpr size_t LENGTH   = 4 << 20; /* some parts */
constexpr unsigned COUNT  = 3;
constexpr unsigned OTHERS = 100;  /* more than a connection holds */
constexpr uint64_t OTHER  = 1000; /* tags of the other endpoint's messages */

class ofi_ends : public testing::Test {
protected:
    struct message {
        bytes out, in;
        uint64_t tag = 0;
        ending sent, received;
    };

    void SetUp() override
    {
        open("ofi");
    }

    void open(const char *transports)
    {
        need_network_reads();
        m_environment.set({{"UCX_TLS", transports}});
        m_provider = std::make_unique<faulty_provider>(91);
        m_context  = std::make_unique<context>();
        m_from     = std::make_unique<worker>(*m_context);
        m_to       = std::make_unique<worker>(*m_context);
        m_other    = connect(*m_from, *m_to);
        m_ep       = connect(*m_from, *m_to);
        for (worker *each : {m_from.get(), m_to.get()}) { /* connects */
            message hello;
            worker &peer = (each == m_from.get()) ? *m_to : *m_from;
            receive(peer, &hello, 8, 1);
            send((each == m_from.get()) ? m_other : connect(*each, peer), &hello);
            ASSERT_TRUE(run(true, [&]() { return hello.received.calls && hello.sent.calls; }));
        }
    }

    void TearDown() override
    {
        m_from.reset();
        m_to.reset();
        m_context.reset();
        m_provider.reset();
    }

    ucp_ep_h connect(worker &from, const worker &to)
    {
        return from.connect(to, UCP_ERR_HANDLING_MODE_PEER,
                            [](void *arg, ucp_ep_h, ucs_status_t) {
                                ++*static_cast<unsigned *>(arg);
                            }, &m_failures);
    }

    static void receive(worker &at, message *message, size_t length, uint64_t tag)
    {
        const ucp_request_param_t param = receive_param(&message->received,
                                                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        message->in.resize(length);
        message->out = pattern(tag, length);
        message->tag = tag;
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(at.handle(), message->in.data(), length, tag,
                                                    ~0ull, &param)));
    }

    /* Its memory is used for something else in the moment that the send ends. */
    static void send(ucp_ep_h ep, message *message)
    {
        const ucp_request_param_t param = send_param(&message->sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);

        message->sent.action = [message]() { memset(&message->out[0], 0, message->out.size()); };
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, message->out.data(), message->out.size(),
                                                    message->tag, &param)));
    }

    void send_others(unsigned from, unsigned to)
    {
        for (unsigned i = from; i < to; ++i) {
            receive(*m_to, &m_others[i], (i % 10 == 0) ? 200000 : 60000, OTHER + i);
            send(m_other, &m_others[i]);
        }
    }

    /* Sends on the endpoint to be closed; is_read: until the network reads the first of them. */
    void send_announced(bool is_read)
    {
        const size_t reads = m_provider->seen.reads;

        for (unsigned i = 0; i < COUNT; ++i) {
            if (is_read) {
                receive(*m_to, &m_announced[i], LENGTH, i);
            } else {
                m_announced[i].out = pattern(i, LENGTH);
                m_announced[i].tag = i;
            }
            send(m_ep, &m_announced[i]);
        }
        if (is_read) {
            ASSERT_TRUE(run(false, [&]() { return m_provider->seen.reads > reads; }));
        } else {
            ASSERT_TRUE(run(false, [&]() { return ucp_test_num_kept(m_to->handle()) == COUNT; }));
        }
    }

    void close()
    {
        ucp_request_param_t param = send_param(&m_closed, UCP_OP_ATTR_FIELD_FLAGS);

        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        m_from->forget(m_ep);
        if (ucp_ep_close_nbx(m_ep, &param) == nullptr) {
            m_closed.calls = 1;
        }
    }

    static bool run_all(const std::vector<worker *> &workers,
                        const std::function<bool()> &is_done)
    {
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);

        while (!is_done() && (std::chrono::steady_clock::now() < give_up)) {
            for (worker *each : workers) {
                each->progress();
            }
        }
        return is_done();
    }

    /* Both, or the receiver alone. */
    bool run(bool is_both, const std::function<bool()> &is_done)
    {
        return run_all(is_both ? std::vector<worker *>{m_to.get(), m_from.get()} :
                                 std::vector<worker *>{m_to.get()}, is_done);
    }

    bool have_ended(ending message::*which)
    {
        for (const message &each : m_announced) {
            if ((each.*which).calls == 0) {
                return false;
            }
        }
        return true;
    }

    void expect_cancelled()
    {
        EXPECT_EQ(1, m_closed.calls);
        for (const message &each : m_announced) {
            EXPECT_EQ(1, each.sent.calls);
            EXPECT_EQ(UCS_ERR_CANCELED, each.sent.status);
        }
    }

    void expect_others()
    {
        EXPECT_TRUE(run(true, [&]() {
            for (const message &each : m_others) {
                if ((each.received.calls == 0) || (each.sent.calls == 0)) {
                    return false;
                }
            }
            return true;
        }));
        for (const message &each : m_others) {
            EXPECT_EQ(UCS_OK, each.sent.status);
            EXPECT_EQ(UCS_OK, each.received.status);
            EXPECT_EQ(-1, differs(each.in.data(), each.in.size(), each.tag));
        }
        EXPECT_EQ(0u, m_failures);
    }

    environment m_environment;
    log_catcher m_log;
    std::unique_ptr<faulty_provider> m_provider;
    std::unique_ptr<context> m_context;
    std::unique_ptr<worker> m_from, m_to;
    ucp_ep_h m_ep = nullptr, m_other = nullptr;
    message m_announced[COUNT], m_others[OTHERS];
    ending m_closed;
    unsigned m_failures = 0;
};

TEST_F(ofi_ends, a_close_amid_reads_harms_nobody_else)
{
    send_announced(true);
    send_others(0, OTHERS / 2);
    close();
    EXPECT_TRUE(run(true, [&]() {
        return (m_closed.calls > 0) && have_ended(&message::received);
    }));
    expect_cancelled();
    send_others(OTHERS / 2, OTHERS);
    expect_others();
    for (const message &each : m_announced) {
        EXPECT_EQ(1, each.received.calls);
        if (each.received.status == UCS_OK) {
            EXPECT_EQ(-1, differs(each.in.data(), LENGTH, each.tag));
        } else {
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each.received.status);
        }
    }
}

/* Nobody has asked for the messages yet: the receiver drops them, and says so. */
TEST_F(ofi_ends, a_close_before_the_receiver_wants_them)
{
    send_announced(false);
    send_others(0, OTHERS);
    close();
    expect_others();
    EXPECT_TRUE(run(true, [&]() { return m_closed.calls > 0; }));
    expect_cancelled();
    EXPECT_EQ(0u, ucp_test_num_kept(m_to->handle()));
}

/* Probes have taken them by then: what follows reads nothing. */
TEST_F(ofi_ends, a_close_between_probe_and_receive)
{
    ucp_tag_message_h taken[COUNT];
    ucp_tag_recv_info_t info;

    send_announced(false);
    for (unsigned i = 0; i < COUNT; ++i) {
        taken[i] = ucp_tag_probe_nb(m_to->handle(), i, ~0ull, 1, &info);
        ASSERT_NE(nullptr, taken[i]);
    }
    close();
    EXPECT_TRUE(run(true, [&]() { return m_closed.calls > 0; }));
    expect_cancelled();
    for (unsigned i = 0; i < COUNT; ++i) {
        message &each                   = m_announced[i];
        const ucp_request_param_t param = receive_param(&each.received,
                                                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        each.in.resize(LENGTH);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_msg_recv_nbx(m_to->handle(), each.in.data(), LENGTH,
                                                        taken[i], &param)));
    }
    send_others(0, OTHERS);
    expect_others();
    EXPECT_TRUE(run(true, [&]() { return have_ended(&message::received); }));
    for (const message &each : m_announced) {
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each.received.status);
    }
}

/* A receiver on the same node, which reads as such. */
class ofi_ends_beside_copies : public ofi_ends {
protected:
    void SetUp() override
    {
        open("ofi,cma");
    }
};

/* The memory is the user's when the receiver has heard that it reads no more. */
TEST_F(ofi_ends_beside_copies, a_close_amid_copies)
{
    send_announced(false);
    for (message &each : m_announced) {
        receive(*m_to, &each, LENGTH, each.tag);
    }
    close();
    for (message &each : m_announced) {
        EXPECT_EQ(0, each.sent.calls);
    }
    EXPECT_TRUE(run(true, [&]() {
        return (m_closed.calls > 0) && have_ended(&message::received);
    }));
    expect_cancelled();
    for (const message &each : m_announced) {
        if (each.received.status == UCS_OK) {
            EXPECT_EQ(-1, differs(each.in.data(), LENGTH, each.tag));
        } else {
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each.received.status);
        }
    }
}

/* A receiver that has stopped holds the close up for a moment only, also where who closes sleeps
 * until something happens. */
TEST_F(ofi_ends, a_close_does_not_wait_long_for_who_has_stopped)
{
    const auto start = std::chrono::steady_clock::now();
    struct pollfd pfd = {};

    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(m_from->handle(), &pfd.fd));
    pfd.events = POLLIN;
    send_announced(true);
    close();
    EXPECT_EQ(0, m_announced[0].sent.calls);
    while ((m_closed.calls == 0) &&
           (std::chrono::steady_clock::now() < start + std::chrono::seconds(10))) {
        if (m_from->progress() == 0) {
            const ucs_status_t status = ucp_worker_arm(m_from->handle());
            if (status == UCS_OK) {
                (void)poll(&pfd, 1, 5000);
            } else {
                EXPECT_EQ(UCS_ERR_BUSY, status);
            }
        }
    }
    EXPECT_GT(std::chrono::seconds(4), std::chrono::steady_clock::now() - start);
    expect_cancelled();
    EXPECT_TRUE(run(true, [&]() { return have_ended(&message::received); }));
    m_log.take();
}

TEST_F(ofi_ends, the_peer_fails_before_it_answers)
{
    send_announced(true);
    close();
    EXPECT_EQ(0, m_announced[0].sent.calls);
    ucp_test_peer_fail(m_other, UCS_ERR_IO_ERROR);
    EXPECT_TRUE(have_ended(&message::sent));
    EXPECT_TRUE(run(true, [&]() {
        return (m_closed.calls > 0) && have_ended(&message::received);
    }));
    expect_cancelled();
    m_log.take();
}

/* The receiver leaves amid its reads: so does what was registered for it. */
TEST_F(ofi_ends, the_receiver_ends_before_it_answers)
{
    send_announced(true);
    close();
    EXPECT_EQ(0, m_announced[0].sent.calls);
    m_to->destroy();
    EXPECT_TRUE(run_all({m_from.get()}, [&]() { return m_closed.calls > 0; }));
    expect_cancelled();
    m_log.take();
}

/* Nothing is said to the user of a worker that is no more. */
TEST_F(ofi_ends, the_sender_ends_before_the_receiver_answers)
{
    send_announced(true);
    close();
    m_from->destroy();
    EXPECT_EQ(0, m_closed.calls);
    for (message &each : m_announced) {
        EXPECT_EQ(0, each.sent.calls);
        memset(&each.out[0], 0, LENGTH);
    }
    EXPECT_TRUE(run(false, [&]() { return have_ended(&message::received); }));
    for (const message &each : m_announced) {
        EXPECT_NE(UCS_OK, each.received.status);
    }
    m_log.take();
}

} // namespace

#endif
