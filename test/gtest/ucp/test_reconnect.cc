/* Halyard: tests of endpoints to a worker that was reached before and lost: they are new ones, and
 * have none of the former failure. Also: what a flush waits for where a peer makes no progress.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>
#include <ucs/debug/fault.h>

#include <chrono>
#include <sys/wait.h>
#include <unistd.h>

using namespace ucp_test;

namespace {

struct failures {
    int count           = 0;
    ucs_status_t status = UCS_OK;
};

void on_failure(void *arg, ucp_ep_h, ucs_status_t status)
{
    auto *self = static_cast<failures *>(arg);

    ++self->count;
    self->status = status;
}

/* Two workers, the second of which may stand still. */
class second_endpoint : public testing::TestWithParam<const char *> {
protected:
    second_endpoint() :
        m_environment(settings{{"UCX_TLS", GetParam()}}), m_a(m_context), m_b(m_context)
    {
    }

    ucp_ep_h open(failures *failures)
    {
        return m_a.connect(m_b, UCP_ERR_HANDLING_MODE_PEER, on_failure, failures);
    }

    void close(ucp_ep_h ep)
    {
        m_a.forget(ep);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    }

    bool progress_until(const std::function<bool()> &condition, bool with_b = true)
    {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!condition() && (std::chrono::steady_clock::now() < end)) {
            m_a.progress();
            if (with_b) {
                m_b.progress();
            }
        }
        return condition();
    }

    /* A message from a to b on the endpoint arrives, as a hears; false: the endpoint has failed. */
    bool try_exchange(ucp_ep_h ep, const failures &failures)
    {
        const bytes data = pattern(m_tag, 3000);
        bytes buffer(data.size());
        ending sent, received;
        const ucp_request_param_t sparam = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        void *receive = ucp_tag_recv_nbx(m_b.handle(), buffer.data(), buffer.size(), ++m_tag, ~0ull,
                                         &rparam);
        ucs_status_ptr_t send = ucp_tag_send_nbx(ep, data.data(), data.size(), m_tag, &sparam);

        EXPECT_TRUE(UCS_PTR_IS_PTR(receive));
        EXPECT_TRUE(progress_until([&]() {
            return ((sent.calls > 0) && (received.calls > 0)) || (failures.count > 0);
        }));
        if (received.calls == 0) {
            ucp_request_cancel(m_b.handle(), receive);
            EXPECT_EQ(1, received.calls);
            EXPECT_TRUE(UCS_PTR_IS_ERR(send) || (sent.calls == 1));
            return false;
        }
        EXPECT_EQ(UCS_OK, received.status);
        EXPECT_EQ(data, buffer);
        return sent.status == UCS_OK;
    }

    void exchange(ucp_ep_h ep, const failures &failures)
    {
        EXPECT_TRUE(try_exchange(ep, failures));
    }

    /* A new endpoint, on which a message arrives. The peer may be about to hang up on us, as we
     * have on it: that is another failure, and the next one works. */
    ucp_ep_h reopen(failures *failures)
    {
        for (int i = 0; i < 10; ++i) {
            *failures   = {};
            ucp_ep_h ep = open(failures);
            bool works  = try_exchange(ep, *failures);
            EXPECT_TRUE(progress_until(
                [&]() { return (m_back == nullptr) || (m_back_failures.count > 0); }));
            for (int turn = 0; turn < 2000; ++turn) {
                m_a.progress();
                m_b.progress();
            }
            if (works && (failures->count == 0)) {
                return ep;
            }
            EXPECT_NE(UCS_ERR_IO_ERROR, failures->status);
            close(ep);
        }
        ADD_FAILURE() << "ten endpoints have failed, the last by "
                      << ucs_status_string(failures->status);
        return nullptr;
    }

    /* a cannot connect to b, which does nothing; returns its failed endpoint. */
    ucp_ep_h miss(failures *failures)
    {
        const ucp_request_param_t param = send_param(nullptr);
        ucp_ep_h ep                     = open(failures);

        ucs_fault_set("connect", "1");
        EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep, &m_word, sizeof(m_word), 1, &param)));
        ucs_fault_clear(nullptr);
        EXPECT_TRUE(progress_until([&]() { return failures->count > 0; }, false));
        return ep;
    }

    /* Both are connected to each other; returns a's endpoint. */
    ucp_ep_h meet(failures *failures)
    {
        ucp_ep_h ep = open(failures);

        exchange(ep, *failures);
        m_back = m_b.connect(m_a, UCP_ERR_HANDLING_MODE_PEER, on_failure, &m_back_failures);
        ending sent, received;
        const ucp_request_param_t sparam = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        EXPECT_TRUE(UCS_PTR_IS_PTR(
            ucp_tag_recv_nbx(m_a.handle(), &m_word, sizeof(m_word), 2, ~0ull, &rparam)));
        EXPECT_TRUE(
            UCS_PTR_IS_PTR(ucp_tag_send_nbx(m_back, &m_word, sizeof(m_word), 2, &sparam)));
        EXPECT_TRUE(progress_until([&]() { return (sent.calls > 0) && (received.calls > 0); }));
        return ep;
    }

    /* They are, and a's side fails. */
    ucp_ep_h fail(failures *failures)
    {
        ucp_ep_h ep = meet(failures);

        ucp_test_peer_fail(ep, UCS_ERR_IO_ERROR);
        EXPECT_TRUE(progress_until([&]() { return failures->count > 0; }, false));
        EXPECT_EQ(UCS_ERR_IO_ERROR, failures->status);
        return ep;
    }

    log_catcher m_log;
    environment m_environment;
    context m_context;
    worker m_a, m_b;
    ucp_ep_h m_back = nullptr;
    failures m_back_failures;
    uint64_t m_word = 1;
    ucp_tag_t m_tag = 1000;
};

INSTANTIATE_TEST_SUITE_P(all, second_endpoint, testing::Values("mm,cma", "fault:mm,cma"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string((info.param[0] == 'f') ? "hook" : "mm");
                         });

TEST_P(second_endpoint, where_no_connection_was)
{
    failures first, second;
    ucp_ep_h ep = miss(&first);
    ucp_ep_h ep2 = reopen(&second); /* beside the old one */
    EXPECT_EQ(first.status, ucp_ep_flush(ep));
    close(ep);
    exchange(ep2, second);
}

TEST_P(second_endpoint, while_the_peer_parts)
{
    failures first, second, third;

    close(fail(&first));
    ucp_ep_h ep2 = reopen(&second);
    ucp_ep_h ep3 = open(&third);
    exchange(ep3, third);
    exchange(ep2, second);
    EXPECT_EQ(UCS_OK, ucp_ep_flush(ep2));
    EXPECT_EQ(0u, ucp_test_ordinal(ep2));
    EXPECT_EQ(1u, ucp_test_ordinal(ep3));
}

TEST_P(second_endpoint, beside_the_old_one)
{
    failures first, second, third;
    ucp_ep_h ep = fail(&first);

    ucp_ep_h ep2 = reopen(&second);
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucp_ep_flush(ep));
    close(ep);
    exchange(ep2, second);
    ucp_ep_h ep3 = open(&third);
    exchange(ep3, third);
}

/* b comes back while a, which gave it up, is busy: the end of the former connection is seen first,
 * though both are seen at once. */
TEST_P(second_endpoint, the_other_side_comes_back)
{
    failures first, again;
    ending sent;
    uint64_t word                   = 0;
    const ucp_request_param_t param = send_param(&sent);

    ucp_test_peer_fail(meet(&first), UCS_ERR_IO_ERROR);
    for (int i = 0; (i < 1000000) && (m_back_failures.count == 0); ++i) {
        m_b.progress();
    }
    ASSERT_EQ(1, m_back_failures.count);
    ucp_ep_h back = m_b.connect(m_a, UCP_ERR_HANDLING_MODE_PEER, on_failure, &again);
    m_word        = 77;
    ucs_status_ptr_t send = ucp_tag_send_nbx(back, &m_word, sizeof(m_word), 9, &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(send));
    for (int turn = 0; turn < 1000; ++turn) {
        m_b.progress();
    }
    ending received;
    const ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ASSERT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_recv_nbx(m_a.handle(), &word, sizeof(word), 9, ~0ull, &rparam)));
    EXPECT_TRUE(progress_until([&]() { return (received.calls > 0) || (again.count > 0); }));
    EXPECT_EQ(0, again.count) << ucs_status_string(again.status);
    EXPECT_EQ(77u, word);
    if (received.calls == 0) {
        m_a.destroy(); /* with the receive */
    }
}

/* Keys that were unpacked before and after the end of the wait are of one owner. */
TEST_P(second_endpoint, keys)
{
    failures first, second;
    uint64_t memory             = 5;
    ucp_mem_map_params_t params = {};
    ucp_rkey_h keys[2]          = {};
    ucp_mem_h memh              = nullptr;
    size_t length               = 0;
    void *packed                = nullptr;
    int result                  = -1;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = &memory;
    params.length     = sizeof(memory);
    ASSERT_EQ(UCS_OK, ucp_mem_map(m_context.handle(), &params, &memh));
    ASSERT_EQ(UCS_OK, ucp_rkey_pack(m_context.handle(), memh, &packed, &length));

    close(fail(&first));
    ucp_ep_h ep2 = open(&second);
    EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(ep2, packed, &keys[0]));
    for (int turn = 0; turn < 10000; ++turn) {
        m_a.progress();
        m_b.progress();
    }
    EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(ep2, packed, &keys[1]));
    const ucp_rkey_compare_params_t compare = {};
    EXPECT_EQ(UCS_OK, ucp_rkey_compare(m_a.handle(), keys[0], keys[1], &compare, &result));
    EXPECT_EQ(0, result);
    for (ucp_rkey_h key : keys) {
        ucp_rkey_destroy(key);
    }
    ucp_rkey_buffer_release(packed);
    EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_context.handle(), memh));
}

/* In a forked child an inherited worker says that it leads nowhere, rather than wait. */
TEST_P(second_endpoint, in_a_forked_child)
{
    failures first;
    const bytes address    = m_b.address();
    ucp_ep_params_t params = {};

    meet(&first);
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
    const pid_t pid   = fork();
    if (pid == 0) {
        ucp_ep_h ep = nullptr;
        _exit((ucp_ep_create(m_a.handle(), &params, &ep) == UCS_ERR_CONNECTION_RESET) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
}

/* That b be told who has come keeps nobody. */
TEST_P(second_endpoint, to_one_that_stands_still)
{
    failures first, second;
    const ucp_request_param_t param = send_param(nullptr);

    miss(&first);
    ucp_ep_h ep2 = open(&second);
    EXPECT_EQ(nullptr, ucp_worker_flush_nbx(m_a.handle(), &param));
    EXPECT_EQ(nullptr, ucp_ep_flush_nbx(ep2, &param));
    close(ep2);
    exchange(open(&second), second);
}

/* That there is no memory to introduce oneself ends the endpoint, which otherwise might wait for
 * ever. */
TEST_P(second_endpoint, without_memory)
{
    failures first, second;

    miss(&first);
    open(&second);
    for (int turn = 0; turn < 1000; ++turn) { /* b accepts, and a has yet to hear of it */
        m_b.progress();
    }
    ucs_fault_set("calloc", "1+");
    EXPECT_TRUE(progress_until([&]() { return second.count > 0; }));
    ucs_fault_clear(nullptr);
    EXPECT_EQ(UCS_ERR_NO_MEMORY, second.status);
}

/* The lane has failed, and progress has yet to find it. */
TEST_P(second_endpoint, before_the_failure_is_told)
{
    failures first, second;

    ucp_test_lane_fail(meet(&first), UCS_ERR_IO_ERROR);
    EXPECT_EQ(0, first.count);
    ucp_ep_h ep2 = reopen(&second);
    EXPECT_EQ(1, first.count);
    EXPECT_EQ(UCS_ERR_IO_ERROR, first.status);
    exchange(ep2, second);
}

/* In the midst of what a failure ends. */
TEST_P(second_endpoint, inside_a_callback)
{
    for (bool is_heard : {true, false}) {
        failures first, second;
        ending sent, back;
        ucp_ep_h ep = is_heard ? meet(&first) : open(&first), ep2 = nullptr;

        if (!is_heard) {
            exchange(ep, first);
            m_back_failures = {};
            m_back = m_b.connect(m_a, UCP_ERR_HANDLING_MODE_PEER, on_failure, &m_back_failures);
            const ucp_request_param_t bparam = send_param(&back, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
            ASSERT_TRUE(UCS_PTR_IS_PTR(
                ucp_tag_send_nbx(m_back, &m_word, sizeof(m_word), 2, &bparam)));
            ASSERT_TRUE(progress_until([&]() { return back.calls > 0; }));
        }
        const ucp_request_param_t sparam =
            send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        sent.action = [&]() { ep2 = open(&second); };
        ASSERT_TRUE(
            UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(ep, &m_word, sizeof(m_word), 3, &sparam)));
        ucp_test_peer_fail(ep, UCS_ERR_IO_ERROR);
        EXPECT_EQ(UCS_ERR_IO_ERROR, sent.status);
        ASSERT_NE(nullptr, ep2);
        ASSERT_TRUE(progress_until([&]() { return m_back_failures.count > 0; }));
        if (!try_exchange(ep2, second)) {
            EXPECT_NE(UCS_ERR_IO_ERROR, second.status);
            close(ep2);
            ep2 = reopen(&second);
        }
        exchange(ep2, second);
        close(ep);
        close(ep2);
        m_b.forget(m_back);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(m_back, UCP_EP_CLOSE_MODE_FORCE));
        m_back = nullptr;
        ending taken; /* what was sent in vain */
        const ucp_request_param_t rparam = receive_param(&taken, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ASSERT_TRUE(UCS_PTR_IS_PTR(
            ucp_tag_recv_nbx(m_b.handle(), &m_word, sizeof(m_word), 3, ~0ull, &rparam)));
        ASSERT_TRUE(progress_until([&]() { return taken.calls > 0; }));
    }
}

/* One to a worker that is dead fails again, without a word sent. */
TEST_P(second_endpoint, to_the_dead)
{
    failures first, second;
    ucp_ep_h ep = open(&first);

    exchange(ep, first);
    const bytes address = m_b.address();
    m_b.destroy();
    ASSERT_TRUE(progress_until([&]() { return first.count > 0; }, false));
    for (int i = 0; i < 3; ++i) {
        ucp_ep_params_t params = {};
        params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address         = reinterpret_cast<const ucp_address_t *>(address.data());
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler     = {on_failure, &second};
        second                 = {};
        ucp_ep_h ep2           = nullptr;
        ASSERT_EQ(UCS_OK, ucp_ep_create(m_a.handle(), &params, &ep2));
        ASSERT_TRUE(progress_until([&]() { return second.count > 0; }, false));
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep2, UCP_EP_CLOSE_MODE_FORCE));
    }
}

/* One of those that wait is closed, in the midst of a flush; the other goes on. */
TEST_P(second_endpoint, one_of_two)
{
    failures first, second, third;
    ending flushed;

    close(fail(&first));
    ucp_ep_h ep2                    = open(&second);
    ucp_ep_h ep3                    = open(&third);
    const ucp_request_param_t param = send_param(&flushed);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(ep2, &param)));
    m_a.forget(ep2);
    void *closing = ucp_ep_close_nb(ep2, UCP_EP_CLOSE_MODE_FLUSH);
    ASSERT_TRUE(UCS_PTR_IS_PTR(closing)); /* it ends behind the flush */
    ASSERT_TRUE(progress_until(
        [&]() { return ucp_request_check_status(closing) != UCS_INPROGRESS; }, false));
    EXPECT_EQ(UCS_OK, ucp_request_check_status(closing));
    ucp_request_free(closing);
    EXPECT_EQ(1, flushed.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, flushed.status);
    if (!try_exchange(ep3, third)) {
        EXPECT_NE(UCS_ERR_IO_ERROR, third.status);
        close(ep3);
        ep3 = reopen(&third);
    }
    EXPECT_EQ(0, second.count);
}

/* What was begun meanwhile can be given up. */
TEST_P(second_endpoint, given_up)
{
    failures first, second, third;
    ending sent;

    close(fail(&first));
    ucp_ep_h ep2                     = open(&second);
    ucp_ep_h ep3                     = open(&third);
    const ucp_request_param_t sparam = send_param(&sent);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep2, &m_word, sizeof(m_word), 3, &sparam)));
    close(ep2);
    EXPECT_EQ(1, sent.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);

    /* One on which nothing was sent is closed at once, another is destroyed with its worker. */
    m_a.forget(ep3);
    EXPECT_EQ(nullptr, ucp_ep_close_nb(ep3, UCP_EP_CLOSE_MODE_FLUSH));
    ucp_ep_h ep4 = open(&third);
    ending lost;
    const ucp_request_param_t lparam = send_param(&lost);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep4, &m_word, sizeof(m_word), 4, &lparam)));
    m_a.destroy();
    EXPECT_EQ(0, second.count + third.count);
}

/* A worker that has lost itself. */
TEST(second_endpoint_to_oneself, is_a_new_one)
{
    context context;
    worker worker(context);
    uint64_t values[2]           = {1, 0};
    const ucp_request_param_t rp = {};

    for (int i = 0; i < 5; ++i) {
        failures failed;
        ending before;
        ucp_ep_h ep = worker.connect(worker, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failed);
        const ucp_request_param_t sp = send_param(&before);

        values[0] = static_cast<uint64_t>(i) + 100;
        void *receive =
            ucp_tag_recv_nbx(worker.handle(), &values[1], sizeof(values[1]), 1, ~0ull, &rp);
        ucs_status_ptr_t send = ucp_tag_send_nbx(ep, &values[0], sizeof(values[0]), 1, &sp);
        ASSERT_TRUE(UCS_PTR_IS_PTR(receive));
        ASSERT_FALSE(UCS_PTR_IS_ERR(send));
        for (int turn = 0;
             (turn < 100000) && (ucp_request_check_status(receive) == UCS_INPROGRESS); ++turn) {
            worker.progress();
        }
        ASSERT_EQ(UCS_OK, ucp_request_check_status(receive));
        ucp_request_free(receive);
        EXPECT_EQ(values[0], values[1]);
        EXPECT_EQ(0, failed.count);
        (i % 2) ? ucp_test_lane_fail(ep, UCS_ERR_IO_ERROR)
                : ucp_test_peer_fail(ep, UCS_ERR_IO_ERROR);
        for (int turn = 0; (i < 3) && (turn < 100000) && (failed.count == 0); ++turn) {
            worker.progress();
        }
        worker.forget(ep);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    }
}

/* ---- peers to whom nothing is said ---- */

static void close_unused(worker &one, const bytes &address, unsigned ordinal)
{
    ucp_ep_params_t params = {};
    ucp_ep_h ep;

    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
    ASSERT_EQ(UCS_OK, ucp_ep_create(one.handle(), &params, &ep));
    EXPECT_EQ(ordinal, ucp_test_ordinal(ep));
    EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
    one.progress();
}

/* The address with the identity of somebody else. */
static void become(bytes &address, size_t id)
{
    memcpy(&address[4], &id, sizeof(id));
}

/* Of an endpoint that was closed unused it is remembered that it was the first to its peer, but not
 * of all peers that there will ever be. */
TEST(unused_endpoints, are_forgotten_in_the_end)
{
    constexpr size_t COUNT = 3000;
    context context;
    worker one(context), other(context);
    bytes somebody = other.address();

    for (size_t i = 0; i < COUNT; ++i) {
        close_unused(one, somebody, 0);
        close_unused(one, somebody, 1);
        become(somebody, i);
    }
    EXPECT_GE(1024u, ucp_test_num_peers(one.handle()));
}

/* Nor do they displace one who is dead, but whose endpoint the user was given to answer on. */
TEST(unused_endpoints, leave_those_to_answer_on)
{
    context_options options;
    options.features = UCP_FEATURE_AM;
    context context(options);
    worker one(context), other(context);
    bytes somebody                 = other.address();
    ucp_ep_h reply                 = nullptr;
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.arg        = &reply;
    handler.cb         = [](void *arg, const void *, size_t, void *, size_t,
                    const ucp_am_recv_param_t *param) {
        *static_cast<ucp_ep_h *>(arg) = param->reply_ep;
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(one.handle(), &handler));
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags               = UCP_AM_SEND_FLAG_REPLY;
    const ucs_status_ptr_t sent =
        ucp_am_send_nbx(other.connect(one), 0, nullptr, 0, "x", 1, &param);
    while ((reply == nullptr) ||
           (UCS_PTR_IS_PTR(sent) && (ucp_request_check_status(sent) == UCS_INPROGRESS))) {
        other.progress();
        one.progress();
    }
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
    other.destroy();
    for (size_t i = 0; i < 1100; ++i) {
        become(somebody, i);
        close_unused(one, somebody, 0);
    }
    EXPECT_EQ(1025u, ucp_test_num_peers(one.handle()));
    param = {};
    EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_am_send_nbx(reply, 0, nullptr, 0, "y", 1, &param)));
}

/* ---- a peer that makes no progress ---- */

/* That it is to announce what it sends need not reach it. */
TEST(standstill, holds_up_no_flush)
{
    environment environment(settings{{"UCX_TLS", "mm"}, {"UCX_TM_UNEXP_BUDGET", "20k"}});
    constexpr int COUNT = 50;
    context context;
    worker sender(context), receiver(context);
    ucp_ep_h ep                     = sender.connect(receiver);
    ucp_ep_h back                   = receiver.connect(sender, UCP_ERR_HANDLING_MODE_PEER);
    const bytes data                = pattern(1, 1000);
    const ucp_request_param_t param = send_param(nullptr);

    for (int i = 0; i < COUNT; ++i) {
        if (i == 1) { /* connected; from here on it does nothing but send */
            for (int turn = 0; turn < 1000; ++turn) {
                sender.progress();
                receiver.progress();
            }
        }
        ucs_status_ptr_t send = ucp_tag_send_nbx(ep, data.data(), data.size(), 1, &param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(send));
        if (send != nullptr) {
            ucp_request_free(send);
        }
        receiver.progress();
    }
    ASSERT_EQ(1u, ucp_test_num_controls(receiver.handle()));
    EXPECT_EQ(nullptr, ucp_ep_flush_nbx(back, &param));
    EXPECT_EQ(nullptr, ucp_worker_flush_nbx(receiver.handle(), &param));
    receiver.forget(back);
    EXPECT_EQ(nullptr, ucp_ep_close_nbx(back, &param));

    bytes buffer(data.size());
    for (int i = 0; i < COUNT; ++i) {
        ending received;
        const ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(receiver.handle(), buffer.data(),
                                                    buffer.size(), 1, ~0ull, &rparam)));
        for (int turn = 0; (turn < 100000) && (received.calls == 0); ++turn) {
            receiver.progress();
            sender.progress();
        }
        ASSERT_EQ(1, received.calls);
        ASSERT_EQ(UCS_OK, received.status);
        ASSERT_EQ(data, buffer);
    }
}

} // namespace
