/* Halyard: tests of the life of requests: who calls back when, what is stored where, who owns the
 * memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <algorithm>
#include <cstring>
#include <set>

using namespace ucp_test;

namespace {

class request : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, request, testing::ValuesIn(all_variants()), variant_name);

constexpr size_t SHORT_LENGTH = 24;
constexpr size_t LONG_LENGTH  = 400000;

/* ---- callbacks ---- */

/* The rule that clients break on first: a send's callback never runs inside the call that posts it,
 * NULL means no callback, and a request means one. */
TEST_P(request, callbacks_of_sends)
{
    pair pair(GetParam());
    for (size_t length : {0ul, SHORT_LENGTH, 5000ul, LONG_LENGTH}) {
        for (uint32_t flags :
             {0u, (uint32_t)UCP_OP_ATTR_FLAG_NO_IMM_CMPL, (uint32_t)UCP_OP_ATTR_FLAG_FAST_CMPL,
              (uint32_t)UCP_OP_ATTR_FLAG_MULTI_SEND}) {
            for (bool sync : {false, true}) {
                const bytes data = pattern(length, length);
                bytes buffer(length);
                ending end;
                const ucp_request_param_t param = send_param(&end, flags);
                void *received                  = pair.receive(buffer.data(), length, 1);
                void *sent = sync ? ucp_tag_send_sync_nbx(pair.ep(), data.data(), length, 1, &param)
                                  : ucp_tag_send_nbx(pair.ep(), data.data(), length, 1, &param);
                ASSERT_EQ(0, end.calls);
                ASSERT_FALSE(UCS_PTR_IS_ERR(sent));
                if (sync || (flags == UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
                    ASSERT_NE(nullptr, sent);
                }
                ASSERT_EQ(UCS_OK, pair.wait(received));
                pair.progress_until([&]() { return (sent == nullptr) || (end.calls > 0); });
                pair.settle();
                ASSERT_EQ((sent == nullptr) ? 0 : 1, end.calls);
                if (sent != nullptr) {
                    ASSERT_EQ(sent, end.request);
                    ASSERT_EQ(UCS_OK, end.status);
                }
                ASSERT_EQ(data, buffer);
            }
        }
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}

/* A receive whose message is there may end inside the call: without a callback and with its result
 * returned, or with NO_IMM_CMPL by its callback, inside the call, and a request. What param's
 * recv_info points to is written in the first case only: clients (UCXX, mercury, jucx) have it on
 * their stack. */
TEST_P(request, callbacks_of_receives)
{
    pair pair(GetParam());
    for (size_t length : {0ul, SHORT_LENGTH, 5000ul, LONG_LENGTH}) {
        for (bool no_immediate : {false, true}) {
            for (bool is_there : {false, true}) {
                const bytes data = pattern(length, length);
                bytes buffer(length);
                ucp_tag_recv_info_t info = {7, 7};
                ending end;
                ucp_request_param_t param = receive_param(&end, UCP_OP_ATTR_FIELD_RECV_INFO);
                void *sent                = nullptr;

                param.recv_info.tag_info = &info;
                if (no_immediate) {
                    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
                }
                if (is_there) {
                    sent = pair.send(data.data(), length, 2);
                    pair.settle();
                }
                void *received = ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length,
                                                  2, ~0ull, &param);
                ASSERT_FALSE(UCS_PTR_IS_ERR(received));
                if (no_immediate || !is_there) {
                    ASSERT_NE(nullptr, received);
                }
                if (!is_there) {
                    ASSERT_EQ(0, end.calls);
                    sent = pair.send(data.data(), length, 2);
                }
                pair.progress_until([&]() { return (received == nullptr) || (end.calls > 0); });
                ASSERT_EQ(UCS_OK, pair.wait(sent));
                pair.settle();
                ASSERT_EQ((received == nullptr) ? 0 : 1, end.calls);
                if (received != nullptr) {
                    ASSERT_EQ(received, end.request);
                    ASSERT_EQ(UCS_OK, end.status);
                    ASSERT_EQ(2u, end.info.sender_tag);
                    ASSERT_EQ(length, end.info.length);
                }
                ASSERT_EQ((received == nullptr) ? 2 : 7, info.sender_tag)
                    << "length " << length << " no_immediate " << no_immediate << " is_there "
                    << is_there;
                ASSERT_EQ((received == nullptr) ? length : 7, info.length);
                ASSERT_EQ(data, buffer);
            }
        }
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, a_truncated_message_that_is_there)
{
    pair pair(GetParam());
    for (size_t length : {SHORT_LENGTH, LONG_LENGTH}) {
        for (bool no_immediate : {false, true}) {
            const bytes data = pattern(length, length);
            guarded buffer(10);
            ucp_tag_recv_info_t info = {};
            ending end;
            ucp_request_param_t param = receive_param(&end, UCP_OP_ATTR_FIELD_RECV_INFO);
            param.recv_info.tag_info  = &info;
            param.op_attr_mask |= no_immediate ? UCP_OP_ATTR_FLAG_NO_IMM_CMPL : 0;

            void *sent = pair.send(data.data(), length, 2);
            pair.settle();
            void *received = ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(),
                                              buffer.size(), 2, ~0ull, &param);
            if (UCS_PTR_IS_ERR(received)) {
                ASSERT_FALSE(no_immediate);
                ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, UCS_PTR_STATUS(received));
                ASSERT_EQ(0, end.calls) << "an error pointer means that there is no callback";
                ASSERT_EQ(length, info.length);
                ASSERT_EQ(2u, info.sender_tag);
            } else {
                ASSERT_NE(nullptr, received);
                pair.progress_until([&]() { return end.calls > 0; });
                ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, end.status);
                ASSERT_EQ(length, end.info.length);
            }
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_TRUE(buffer.is_intact());
        }
    }
}

/* ---- FORCE_IMM_CMPL ---- */

/* What cannot end now is refused and leaves no trace: what was accepted arrives, nothing else. */
TEST_P(request, forced_immediate_completion)
{
    pair pair(GetParam());
    const ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    const bytes data                = pattern(1, LONG_LENGTH);
    uint64_t accepted               = 0;
    unsigned refused                = 0;

    for (uint64_t i = 0; (i < 200000) && (refused < 100); ++i) {
        void *sent = ucp_tag_send_nbx(pair.ep(), &accepted, sizeof(accepted), 1, &param);
        if (sent == nullptr) {
            ++accepted;
        } else {
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, UCS_PTR_STATUS(sent));
            ++refused;
        }
    }
    EXPECT_GT(refused, 0u);

    /* more than one message can carry, and waiting for a match, can never end at once */
    ASSERT_STRNE("eager", ucp_test_protocol(pair.ep(), LONG_LENGTH));
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_send_nbx(pair.ep(), data.data(), data.size(), 1, &param));
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_send_sync_nbx(pair.ep(), &accepted, 8, 1, &param));

    for (uint64_t i = 0; i < accepted; ++i) {
        uint64_t value = ~0ull;
        ASSERT_EQ(UCS_OK, pair.wait(pair.receive(&value, sizeof(value), 1)));
        ASSERT_EQ(i, value);
    }
    pair.settle();
    ucp_tag_recv_info_t info;
    EXPECT_EQ(nullptr, ucp_tag_probe_nb(pair.receiver().handle(), 0, 0, 0, &info));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.sender().handle()));
}

/* A receive that would have to wait is not posted, and leaves the message to another. */
TEST_P(request, forced_immediate_receive)
{
    pair pair(GetParam());
    ucp_worker_h receiver           = pair.receiver().handle();
    const ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    const bytes data                = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    ucp_tag_recv_info_t info;

    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_recv_nbx(receiver, buffer.data(), 8, 1, ~0ull, &param));

    ucs_status_ptr_t first = pair.send(data.data(), 8, 1);
    pair.progress_until([&]() { return ucp_tag_probe_nb(receiver, 1, ~0ull, 0, &info); });
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_recv_nbx(receiver, buffer.data(), 8, 2, ~0ull, &param));
    if (strcmp("eager", ucp_test_protocol(pair.ep(), 8)) == 0) {
        EXPECT_EQ(nullptr, ucp_tag_recv_nbx(receiver, buffer.data(), 8, 1, ~0ull, &param));
    } else {
        EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
                  ucp_tag_recv_nbx(receiver, buffer.data(), 8, 1, ~0ull, &param));
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), 8, 1)));
    }
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.begin() + 8, data.begin()));
    EXPECT_EQ(UCS_OK, pair.wait(first));

    ucs_status_ptr_t second = pair.send(data.data(), data.size(), 1);
    pair.progress_until([&]() { return ucp_tag_probe_nb(receiver, 1, ~0ull, 0, &info); });
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_recv_nbx(receiver, buffer.data(), buffer.size(), 1, ~0ull, &param));
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
    EXPECT_EQ(data, buffer);
    EXPECT_EQ(UCS_OK, pair.wait(second));
    EXPECT_EQ(0u, ucp_test_num_requests(receiver));
}

/* So does one of a message that a probe has taken out: the caller has that still. */
TEST_P(request, forced_immediate_receive_of_a_probed_message)
{
    pair pair(GetParam());
    ucp_worker_h receiver             = pair.receiver().handle();
    const ucp_request_param_t param   = send_param(nullptr);
    const ucp_request_param_t at_once = send_param(nullptr, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    const bytes data                  = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    ucp_tag_message_h message = nullptr;
    ucp_tag_recv_info_t info;

    ucs_status_ptr_t sent = pair.send(data.data(), data.size(), 1);
    pair.progress_until([&]() {
        message = ucp_tag_probe_nb(receiver, 1, ~0ull, 1, &info);
        return message != nullptr;
    });
    ASSERT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_msg_recv_nbx(receiver, buffer.data(), buffer.size(), message, &at_once));
    EXPECT_EQ(UCS_OK, pair.wait(ucp_tag_msg_recv_nbx(receiver, buffer.data(), buffer.size(),
                                                     message, &param)));
    EXPECT_EQ(data, buffer);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(0u, ucp_test_num_requests(receiver));
}

/* ---- external requests ---- */

/* Request memory of a client: filled with garbage, with bytes behind that are the client's. */
class external_memory {
public:
    explicit external_memory(size_t request_size) :
        m_size(request_size), m_bytes(request_size + 64, 0x5a)
    {
    }

    void *handle()
    {
        return m_bytes.data() + m_size;
    }

    bool is_intact() const
    {
        return std::all_of(m_bytes.begin() + static_cast<ptrdiff_t>(m_size), m_bytes.end(),
                           [](uint8_t byte) { return byte == 0x5a; });
    }

private:
    size_t m_size;
    std::vector<uint8_t> m_bytes;
};

TEST_P(request, memory_of_the_client)
{
    pair pair(GetParam());
    const size_t request_size = pair.ctx().request_size();
    ASSERT_EQ(0u, request_size % 8);
    ASSERT_LT(request_size, 1024u) << "clients put it on the stack for each call";

    for (size_t length : {0ul, SHORT_LENGTH, 5000ul, LONG_LENGTH}) {
        for (bool is_there : {false, true}) {
            for (bool sync : {false, true}) {
                external_memory send_memory(request_size), receive_memory(request_size);
                const bytes data = pattern(length, length);
                guarded buffer(length);
                ucp_request_param_t sparam = send_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
                ucp_request_param_t rparam = send_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
                sparam.request             = send_memory.handle();
                rparam.request             = receive_memory.handle();

                void *received     = nullptr;
                const auto receive = [&]() {
                    received = ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length, 6,
                                                ~0ull, &rparam);
                };
                if (!is_there) {
                    receive();
                }
                void *sent = sync
                                 ? ucp_tag_send_sync_nbx(pair.ep(), data.data(), length, 6, &sparam)
                                 : ucp_tag_send_nbx(pair.ep(), data.data(), length, 6, &sparam);
                ASSERT_TRUE((sent == nullptr) || (sent == send_memory.handle()));
                if (is_there) {
                    pair.settle();
                    receive();
                }
                ASSERT_TRUE((received == nullptr) || (received == receive_memory.handle()));

                /* Clients that ignore the returned value ask the memory, which knows always. */
                ucp_tag_recv_info_t info = {};
                pair.progress_until([&]() {
                    return (ucp_request_test(receive_memory.handle(), &info) != UCS_INPROGRESS) &&
                           (ucp_request_check_status(send_memory.handle()) != UCS_INPROGRESS);
                });
                for (int again = 0; again < 3; ++again) {
                    info = {};
                    ASSERT_EQ(UCS_OK, ucp_request_test(receive_memory.handle(), &info));
                    ASSERT_EQ(6u, info.sender_tag);
                    ASSERT_EQ(length, info.length);
                    info = {};
                    ASSERT_EQ(UCS_OK, ucp_tag_recv_request_test(receive_memory.handle(), &info));
                    ASSERT_EQ(length, info.length);
                    ASSERT_EQ(UCS_OK, ucp_request_test(receive_memory.handle(), nullptr));
                    ASSERT_EQ(UCS_OK, ucp_request_check_status(send_memory.handle()));
                }
                ASSERT_TRUE(send_memory.is_intact());
                ASSERT_TRUE(receive_memory.is_intact());
                ASSERT_EQ(-1, differs(buffer.data(), length, length));
                ASSERT_TRUE(buffer.is_intact());
            }
        }
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, truncation_and_cancellation_in_memory_of_the_client)
{
    pair pair(GetParam());
    const size_t request_size = pair.ctx().request_size();

    for (size_t length : {SHORT_LENGTH, LONG_LENGTH}) {
        external_memory memory(request_size);
        ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
        param.request             = memory.handle();
        const bytes data          = pattern(1, length);
        guarded buffer(5);
        ucp_tag_recv_info_t info = {};

        void *sent = pair.send(data.data(), length, 1);
        pair.settle();
        void *received =
            ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), 5, 1, ~0ull, &param);
        if (received != memory.handle()) {
            EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, UCS_PTR_STATUS(received));
        }
        pair.progress_until([&]() { return ucp_request_is_completed(memory.handle()) != 0; });
        EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, ucp_request_test(memory.handle(), &info));
        EXPECT_EQ(length, info.length);
        EXPECT_EQ(1u, info.sender_tag);
        EXPECT_TRUE(buffer.is_intact());
        EXPECT_TRUE(memory.is_intact());
        EXPECT_EQ(UCS_OK, pair.wait(sent));
    }

    external_memory memory(request_size);
    ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
    param.request             = memory.handle();
    ASSERT_EQ(memory.handle(),
              ucp_tag_recv_nbx(pair.receiver().handle(), nullptr, 0, 1, ~0ull, &param));
    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(memory.handle()));
    ucp_request_cancel(pair.receiver().handle(), memory.handle());
    EXPECT_EQ(UCS_ERR_CANCELED, ucp_request_check_status(memory.handle()));
    EXPECT_TRUE(memory.is_intact());
}

/* Clients ask their memory how a call ended, whatever it returned: also one that was refused. */
TEST_P(request, client_memory_of_what_is_refused)
{
    pair pair(GetParam());
    external_memory memory(pair.ctx().request_size());
    const bytes header(100000);
    uint64_t value = 1;
    auto refused   = [&](ucs_status_t status, ucp_datatype_t type, uint32_t flags,
                       const std::function<ucs_status_ptr_t(const ucp_request_param_t *)> &call) {
        ucp_request_param_t param =
            send_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_DATATYPE |
                       UCP_OP_ATTR_FIELD_FLAGS);
        memory         = external_memory(pair.ctx().request_size());
        param.request  = memory.handle();
        param.datatype = type;
        param.flags    = flags;
        EXPECT_EQ(UCS_STATUS_PTR(status), call(&param));
        EXPECT_EQ(status, ucp_request_check_status(memory.handle()));
        EXPECT_TRUE(memory.is_intact());
    };
    auto atomic = [&](ucp_atomic_op_t op, size_t count) {
        return [&pair, &value, op, count](const ucp_request_param_t *param) {
            return ucp_atomic_op_nbx(pair.ep(), op, &value, count, 64, nullptr, param);
        };
    };

    refused(UCS_ERR_INVALID_PARAM, ucp_dt_make_contig(1), 0, [&](const auto *param) {
        return ucp_am_send_nbx(pair.ep(), 1, header.data(), header.size(), nullptr, 0, param);
    });
    refused(UCS_ERR_INVALID_PARAM, ucp_dt_make_contig(8), 0, atomic(UCP_ATOMIC_OP_ADD, 2));
    refused(UCS_ERR_INVALID_PARAM, ucp_dt_make_contig(2), 0, atomic(UCP_ATOMIC_OP_ADD, 1));
    refused(UCS_ERR_INVALID_PARAM, ucp_dt_make_contig(8), 0, atomic(UCP_ATOMIC_OP_SWAP, 1));
    refused(UCS_ERR_UNSUPPORTED, ucp_dt_make_sgl(), 0, [&](const auto *param) {
        return ucp_get_nbx(pair.ep(), &value, 1, 64, nullptr, param);
    });
    refused(UCS_ERR_INVALID_PARAM, ucp_dt_make_contig(1), UCP_EP_CLOSE_FLAG_FORCE,
            [&](const auto *param) { return ucp_ep_close_nbx(pair.ep(), param); });
}

TEST_P(request, client_memory_and_callback_together)
{
    pair pair(GetParam());
    external_memory send_memory(pair.ctx().request_size()),
        receive_memory(pair.ctx().request_size());
    ending sent, received;
    sent.free_request = received.free_request = false;
    ucp_request_param_t sparam =
        send_param(&sent, UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FIELD_REQUEST);
    uint64_t value = 1, got = 0;
    sparam.request = send_memory.handle();
    rparam.request = receive_memory.handle();
    ASSERT_EQ(receive_memory.handle(),
              ucp_tag_recv_nbx(pair.receiver().handle(), &got, sizeof(got), 1, ~0ull, &rparam));
    ASSERT_EQ(send_memory.handle(), ucp_tag_send_nbx(pair.ep(), &value, sizeof(value), 1, &sparam));
    EXPECT_EQ(0, sent.calls);
    pair.progress_until([&]() { return (sent.calls > 0) && (received.calls > 0); });
    EXPECT_EQ(send_memory.handle(), sent.request);
    EXPECT_EQ(receive_memory.handle(), received.request);
    EXPECT_EQ(1u, got);
    EXPECT_TRUE(send_memory.is_intact());
    EXPECT_TRUE(receive_memory.is_intact());
}

/* ---- older forms ---- */

struct legacy_ending {
    int calls;
    ucs_status_t status;
    ucp_tag_recv_info_t info;
} g_legacy;

void on_legacy_send(void *request, ucs_status_t status)
{
    ++g_legacy.calls;
    g_legacy.status = status;
    ucp_request_release(request);
}

void on_legacy_receive(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    g_legacy.info = *info;
    on_legacy_send(request, status);
}

TEST_P(request, older_forms_with_callbacks)
{
    pair pair(GetParam());
    for (size_t length : {0ul, SHORT_LENGTH, LONG_LENGTH}) {
        for (int form = 0; form < 8; ++form) {
            const bool sync     = form & 1;
            const bool is_there = form & 2;
            const bool by_probe = form & 4;
            const bytes data    = pattern(length, length);
            bytes buffer(length);
            void *sent = nullptr, *received = nullptr;
            const auto send = [&]() {
                g_legacy                  = {};
                const ucp_datatype_t type = ucp_dt_make_contig(1);
                sent =
                    sync ? ucp_tag_send_sync_nb(pair.ep(), data.data(), length, type, 3,
                                                on_legacy_send)
                         : ucp_tag_send_nb(pair.ep(), data.data(), length, type, 3, on_legacy_send);
                ASSERT_EQ(0, g_legacy.calls);
                ASSERT_FALSE(UCS_PTR_IS_ERR(sent));
            };
            ucp_tag_message_h message = nullptr;

            if (is_there || by_probe) {
                ASSERT_NO_FATAL_FAILURE(send());
                pair.settle();
            }
            if (by_probe) {
                ucp_tag_recv_info_t info;
                message = ucp_tag_probe_nb(pair.receiver().handle(), 3, ~0ull, 1, &info);
                ASSERT_NE(nullptr, message);
                received = ucp_tag_msg_recv_nb(pair.receiver().handle(), buffer.data(), length,
                                               ucp_dt_make_contig(1), message, on_legacy_receive);
            } else {
                received = ucp_tag_recv_nb(pair.receiver().handle(), buffer.data(), length,
                                           ucp_dt_make_contig(1), 3, ~0ull, on_legacy_receive);
            }
            ASSERT_TRUE(UCS_PTR_IS_PTR(received)) << "never NULL";
            if (!is_there && !by_probe) {
                ASSERT_NO_FATAL_FAILURE(send());
            }
            const int expected = (sent == nullptr) ? 1 : 2;
            pair.progress_until([&]() { return g_legacy.calls >= expected; });
            pair.settle();
            ASSERT_EQ(expected, g_legacy.calls);
            ASSERT_EQ(UCS_OK, g_legacy.status);
            ASSERT_EQ(3u, g_legacy.info.sender_tag);
            ASSERT_EQ(length, g_legacy.info.length);
            ASSERT_EQ(data, buffer);
        }
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, older_forms_without_callback)
{
    pair pair(GetParam());
    for (size_t length : {SHORT_LENGTH, LONG_LENGTH}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        void *received = ucp_tag_recv_nb(pair.receiver().handle(), buffer.data(), length,
                                         ucp_dt_make_contig(1), 1, ~0ull, nullptr);
        void *sent =
            ucp_tag_send_nb(pair.ep(), data.data(), length, ucp_dt_make_contig(1), 1, nullptr);
        ASSERT_TRUE(UCS_PTR_IS_PTR(received));
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(data, buffer);
    }
}

TEST_P(request, forms_with_a_request_of_the_client)
{
    pair pair(GetParam());
    const size_t request_size = pair.ctx().request_size();
    for (size_t length : {0ul, SHORT_LENGTH, LONG_LENGTH}) {
        for (bool is_there : {false, true}) {
            external_memory send_memory(request_size), receive_memory(request_size);
            const bytes data = pattern(length, length);
            bytes buffer(length);
            ucp_tag_recv_info_t info = {};
            ucs_status_t sent        = UCS_ERR_LAST;
            const auto send          = [&]() {
                sent = ucp_tag_send_nbr(pair.ep(), data.data(), length, ucp_dt_make_contig(1), 8,
                                                 send_memory.handle());
            };

            if (is_there) {
                send();
                pair.settle();
            }
            ASSERT_EQ(UCS_OK,
                      ucp_tag_recv_nbr(pair.receiver().handle(), buffer.data(), length,
                                       ucp_dt_make_contig(1), 8, ~0ull, receive_memory.handle()));
            if (!is_there) {
                send();
            }
            ASSERT_TRUE((sent == UCS_OK) || (sent == UCS_INPROGRESS)) << sent;
            pair.progress_until([&]() {
                return ucp_request_is_completed(receive_memory.handle()) &&
                       ((sent == UCS_OK) || ucp_request_is_completed(send_memory.handle()));
            });
            ASSERT_EQ(UCS_OK, ucp_request_test(receive_memory.handle(), &info));
            ASSERT_EQ(length, info.length);
            ASSERT_EQ(data, buffer);
            ASSERT_TRUE(send_memory.is_intact());
            ASSERT_TRUE(receive_memory.is_intact());
        }
    }
}

TEST_P(request, allocated_by_the_client_in_the_library)
{
    pair pair(GetParam());
    const unsigned before = ucp_test_num_requests(pair.receiver().handle());
    void *memory          = ucp_request_alloc(pair.receiver().handle());
    uint64_t value = 11, got = 0;
    ASSERT_NE(nullptr, memory);
    for (int i = 0; i < 3; ++i) { /* used again and again */
        ASSERT_EQ(UCS_OK, ucp_tag_recv_nbr(pair.receiver().handle(), &got, sizeof(got),
                                           ucp_dt_make_contig(1), 1, ~0ull, memory));
        void *sent = pair.send(&value, sizeof(value), 1);
        pair.progress_until([&]() { return ucp_request_is_completed(memory) != 0; });
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(value, got);
        ++value;
    }
    ucp_request_free(memory);
    EXPECT_EQ(before, ucp_test_num_requests(pair.receiver().handle()));
}

/* ---- free and release ---- */

TEST_P(request, free_in_flight_ends_the_callback_and_not_the_operation)
{
    pair pair(GetParam());
    for (size_t length : {SHORT_LENGTH, 5000ul, LONG_LENGTH}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        ending sent, received;
        const ucp_request_param_t sparam = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const ucp_request_param_t rparam = receive_param(&received);
        ucp_tag_recv_info_t info         = {};

        void *send_request = ucp_tag_send_nbx(pair.ep(), data.data(), length, 1, &sparam);
        ASSERT_TRUE(UCS_PTR_IS_PTR(send_request));
        ucp_request_free(send_request);
        void *flush = ucp_worker_flush_nb(pair.sender().handle(), 0, [](void *, ucs_status_t) {});
        pair.progress_until([&]() {
            return ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) != nullptr;
        });
        void *receive_request =
            ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length, 1, ~0ull, &rparam);
        if (UCS_PTR_IS_PTR(receive_request)) {
            ucp_request_free(receive_request);
        }
        EXPECT_EQ(UCS_OK, pair.wait(flush)) << "what was freed counts for a flush";
        pair.progress_until([&]() { return data == buffer; });
        pair.settle();
        EXPECT_EQ(0, sent.calls);
        EXPECT_EQ(0, received.calls);
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, release_in_flight_keeps_the_callback)
{
    pair pair(GetParam());
    for (size_t length : {SHORT_LENGTH, 5000ul, LONG_LENGTH}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        ending sent, received;
        sent.free_request = received.free_request = false;
        const ucp_request_param_t sparam          = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const ucp_request_param_t rparam          = receive_param(&received);

        void *receive_request =
            ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length, 1, ~0ull, &rparam);
        void *send_request = ucp_tag_send_nbx(pair.ep(), data.data(), length, 1, &sparam);
        ASSERT_TRUE(UCS_PTR_IS_PTR(send_request) && UCS_PTR_IS_PTR(receive_request));
        ucp_request_release(send_request);
        ucp_request_release(receive_request);
        pair.progress_until([&]() { return (sent.calls > 0) && (received.calls > 0); });
        pair.settle();
        EXPECT_EQ(1, sent.calls);
        EXPECT_EQ(1, received.calls);
        EXPECT_EQ(send_request, sent.request);
        EXPECT_EQ(receive_request, received.request);
        EXPECT_EQ(UCS_OK, sent.status);
        EXPECT_EQ(length, received.info.length);
        EXPECT_EQ(data, buffer);
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, freed_inside_callbacks_that_run_inside_calls)
{
    pair pair(GetParam());
    uint64_t value = 5, got = 0;

    /* cancel */
    ending cancelled;
    ucp_request_param_t param = receive_param(&cancelled);
    void *request = ucp_tag_recv_nbx(pair.receiver().handle(), &got, sizeof(got), 1, ~0ull, &param);
    ucp_request_cancel(pair.receiver().handle(), request);
    EXPECT_EQ(1, cancelled.calls);

    /* receive of what is there */
    ending received;
    received.free_request = false;
    received.action       = [&]() { ucp_request_release(received.request); };
    param                 = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *sent            = pair.send(&value, sizeof(value), 1);
    pair.settle();
    request = ucp_tag_recv_nbx(pair.receiver().handle(), &got, sizeof(got), 1, ~0ull, &param);
    EXPECT_TRUE(UCS_PTR_IS_PTR(request));
    pair.progress_until([&]() { return received.calls > 0; });
    EXPECT_EQ(1, received.calls);
    EXPECT_EQ(5u, got);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

/* MPICH 5.0 does so where it connects to processes that were started: in the callback and behind
 * it. A sanitizer would rightly complain. */
#if !UCS_HAVE_ASAN
TEST_P(request, given_back_twice_is_given_back_once)
{
    pair pair(GetParam());
    const uint64_t value = 5;
    uint64_t got[2]      = {0, 0};

    ending sent;
    sent.free_request               = false;
    sent.action                     = [&]() { ucp_request_release(sent.request); };
    const ucp_request_param_t param = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *request = ucp_tag_send_nbx(pair.ep(), &value, sizeof(value), 1, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got[0], sizeof(got[0]), 1)));
    pair.progress_until([&]() { return sent.calls > 0; });
    ucp_request_release(request);
    EXPECT_GE(1u, take_log().size()); /* a repeated line is not told for ever */

    /* the next two are not one and the same */
    void *first  = pair.send(&value, sizeof(value), 2, true);
    void *second = pair.send(&value, sizeof(value), 3, true);
    EXPECT_NE(first, second);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got[0], sizeof(got[0]), 2)));
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got[1], sizeof(got[1]), 3)));
    EXPECT_EQ(UCS_OK, pair.wait(first));
    EXPECT_EQ(UCS_OK, pair.wait(second));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}
#endif

TEST_P(request, final_status_can_be_read_again_and_again)
{
    pair pair(GetParam());
    for (size_t length : {SHORT_LENGTH, LONG_LENGTH}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        ucp_tag_recv_info_t info;
        void *received = pair.receive(buffer.data(), length, 1);
        void *sent     = pair.send(data.data(), length, 1, true);
        ASSERT_TRUE(UCS_PTR_IS_PTR(received) && UCS_PTR_IS_PTR(sent));
        EXPECT_EQ(UCS_INPROGRESS, ucp_request_test(received, &info));
        pair.progress_until(
            [&]() { return ucp_request_is_completed(received) && ucp_request_is_completed(sent); });
        for (int i = 0; i < 5; ++i) {
            pair.settle();
            info = {};
            EXPECT_EQ(UCS_OK, ucp_request_check_status(sent));
            EXPECT_EQ(UCS_OK, ucp_request_test(sent, nullptr));
            EXPECT_EQ(UCS_OK, ucp_request_test(received, &info));
            EXPECT_EQ(length, info.length);
        }
        ucp_request_free(received);
        ucp_request_free(sent);
    }
}

/* ---- what callbacks may do ---- */

/* Each end of an operation starts the next, for a while. */
TEST_P(request, callbacks_post_again)
{
    pair pair(GetParam());
    constexpr uint64_t COUNT    = 300;
    static const size_t sizes[] = {8, 100, 3000, 20000};
    const bytes data            = pattern(1, 20000);
    bytes buffer(20000);
    uint64_t num_sent = 0, num_received = 0;
    ending sent, received;
    std::function<void()> send, receive;

    send = [&]() {
        while (num_sent < COUNT) {
            const ucp_request_param_t param = send_param(&sent);
            void *request =
                ucp_tag_send_nbx(pair.ep(), data.data(), sizes[num_sent % 4], num_sent, &param);
            ++num_sent;
            ASSERT_FALSE(UCS_PTR_IS_ERR(request));
            if (request != nullptr) {
                return; /* the callback goes on */
            }
        }
    };
    receive = [&]() {
        const ucp_request_param_t param = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), buffer.size(), num_received,
                         ~0ull, &param);
    };
    sent.action     = send;
    received.action = [&]() {
        EXPECT_EQ(sizes[num_received % 4], received.info.length);
        if (++num_received < COUNT) {
            receive();
        }
    };
    receive();
    send();
    pair.progress_until([&]() { return num_received == COUNT; });
    EXPECT_EQ(COUNT, num_sent);
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
}

TEST_P(request, progress_inside_a_callback_does_nothing)
{
    pair pair(GetParam());
    uint64_t value = 1, got[3] = {};
    ending first;
    unsigned inner = 77;
    std::vector<void *> requests;

    first.action = [&]() {
        inner = 0;
        for (int i = 0; i < 10; ++i) {
            inner += ucp_worker_progress(pair.receiver().handle());
        }
    };
    const ucp_request_param_t param = receive_param(&first);
    ucp_tag_recv_nbx(pair.receiver().handle(), &got[0], 8, 1, ~0ull, &param);
    requests.push_back(pair.receive(&got[1], 8, 1));
    requests.push_back(pair.receive(&got[2], 8, 1));
    for (int i = 0; i < 3; ++i) {
        requests.push_back(pair.send(&value, 8, 1));
    }
    for (void *request : requests) {
        EXPECT_EQ(UCS_OK, pair.wait(request));
    }
    pair.progress_until([&]() { return first.calls > 0; });
    EXPECT_EQ(0u, inner);
    EXPECT_EQ(1u, got[0] & got[1] & got[2]);
}

TEST_P(request, progress_ends_with_zero)
{
    pair pair(GetParam());
    const bytes data = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    void *sent     = pair.send(data.data(), LONG_LENGTH, 1);
    void *received = pair.receive(buffer.data(), LONG_LENGTH, 1);
    EXPECT_EQ(UCS_OK, pair.wait(received));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    int busy = 0;
    for (int i = 0; i < 10000; ++i) {
        busy = (pair.progress() > 0) ? busy + 1 : 0;
    }
    EXPECT_EQ(0, busy) << "idle progress returns 0";
}

/* ---- query ---- */

TEST_P(request, query)
{
    pair pair(GetParam());
    uint64_t got   = 0;
    void *received = pair.receive(&got, sizeof(got), 0xabc);
    char text[200];
    ucp_request_attr_t attr;

    memset(&attr, 0xee, sizeof(attr));
    memset(text, 'x', sizeof(text));
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE |
                      UCP_REQUEST_ATTR_FIELD_STATUS | UCP_REQUEST_ATTR_FIELD_MEM_TYPE;
    attr.debug_string      = text;
    attr.debug_string_size = 100;
    const uint64_t mask    = attr.field_mask;
    ASSERT_EQ(UCS_OK, ucp_request_query(received, &attr));
    EXPECT_EQ(mask, attr.field_mask);
    EXPECT_EQ(UCS_INPROGRESS, attr.status);
    EXPECT_EQ(UCS_MEMORY_TYPE_HOST, attr.mem_type);
    EXPECT_LT(strnlen(text, 100), 100u);
    EXPECT_EQ('x', text[100]);
    attr.debug_string_size = 5;
    memset(text, 'x', sizeof(text));
    ASSERT_EQ(UCS_OK, ucp_request_query(received, &attr));
    EXPECT_LT(strnlen(text, 5), 5u);
    EXPECT_EQ('x', text[5]);
    ucp_request_cancel(pair.receiver().handle(), received);
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_STATUS;
    ASSERT_EQ(UCS_OK, ucp_request_query(received, &attr));
    EXPECT_EQ(UCS_ERR_CANCELED, attr.status);
    ucp_request_free(received);
}

/* ---- the user's part of request memory ---- */

struct user_area {
    uint64_t magic;
    uint64_t uses;
};

int g_inits;
int g_cleanups;
std::set<void *> *g_objects;

void on_init(void *request)
{
    auto *area  = static_cast<user_area *>(request);
    area->magic = 0x1234567812345678ull;
    area->uses  = 0;
    ++g_inits;
    g_objects->insert(request);
}

void on_cleanup(void *request)
{
    EXPECT_EQ(0x1234567812345678ull, static_cast<user_area *>(request)->magic);
    ++g_cleanups;
    EXPECT_EQ(1u, g_objects->erase(request));
}

/* Requests with areas of the user's, which are counted anew, and known in `objects`. */
context_options with_user_areas(std::set<void *> *objects)
{
    context_options options;
    options.request_size = sizeof(user_area);
    options.init         = on_init;
    options.cleanup      = on_cleanup;
    g_inits = g_cleanups = 0;
    g_objects            = objects;
    return options;
}

TEST_P(request, user_area_is_initialised_once_and_keeps_its_bytes)
{
    std::set<void *> objects;
    const context_options options = with_user_areas(&objects);
    {
        pair pair(GetParam(), options);
        uint64_t got = 0, total = 0, value = 0;

        for (int round = 0; round < 200; ++round) {
            std::vector<void *> requests;
            for (int i = 0; i < 5; ++i) {
                requests.push_back(pair.receive(&got, sizeof(got), 1));
                auto *area = static_cast<user_area *>(requests.back());
                ASSERT_EQ(1u, objects.count(area)) << "request_init was called for it";
                ASSERT_EQ(0x1234567812345678ull, area->magic);
                ++area->uses; /* stays there when the request is freed and used again */
                ++total;
            }
            for (int i = 0; i < 5; ++i) {
                void *sent = pair.send(&value, sizeof(value), 1);
                if (sent != nullptr) {
                    ++static_cast<user_area *>(sent)->uses;
                    ++total;
                }
                requests.push_back(sent);
            }
            for (void *request : requests) {
                ASSERT_EQ(UCS_OK, pair.wait(request));
            }
        }
        uint64_t uses = 0;
        for (void *object : objects) {
            uses += static_cast<user_area *>(object)->uses;
        }
        EXPECT_EQ(total, uses);
        EXPECT_EQ(static_cast<size_t>(g_inits), objects.size());
        EXPECT_EQ(0, g_cleanups);
    }
    EXPECT_EQ(g_inits, g_cleanups);
    EXPECT_TRUE(objects.empty());
}

/* Whatever is under way when the worker goes: async-ucx has objects there that have to be ended. */
TEST_P(request, user_areas_of_what_is_in_flight_are_cleaned_up)
{
    std::set<void *> objects;
    const context_options options = with_user_areas(&objects);
    {
        const bytes data     = pattern(1, LONG_LENGTH);
        pair pair(GetParam(), options);
        uint64_t got[3];
        for (uint64_t &each : got) {
            ASSERT_TRUE(UCS_PTR_IS_PTR(pair.receive(&each, sizeof(each), 77)));
        }
        void *freed = pair.send(data.data(), data.size(), 1, true);
        ASSERT_TRUE(UCS_PTR_IS_PTR(freed));
        ucp_request_free(freed);
        ASSERT_TRUE(UCS_PTR_IS_PTR(pair.send(data.data(), 8, 2, true)));
        pair.progress();
        pair.receiver().destroy();
        if (!GetParam().is_self) {
            pair.sender().destroy();
        }
    }
    EXPECT_LE(4, g_inits);
    EXPECT_EQ(g_inits, g_cleanups);
    EXPECT_TRUE(objects.empty());
}

TEST_P(request, no_initialisation_of_memory_of_the_client)
{
    std::set<void *> objects;
    const context_options options = with_user_areas(&objects);
    {
        pair pair(GetParam(), options);
        external_memory memory(pair.ctx().request_size());
        ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
        param.request             = memory.handle();
        ucp_tag_recv_nbx(pair.receiver().handle(), nullptr, 0, 1, ~0ull, &param);
        EXPECT_EQ(0u, objects.count(memory.handle()));
        ucp_request_cancel(pair.receiver().handle(), memory.handle());
        EXPECT_TRUE(memory.is_intact());
    }
    EXPECT_EQ(g_inits, g_cleanups);
}

TEST_P(request, a_cleanup_that_is_null)
{
    context_options options;
    options.request_size = 8; /* as slurm: the mask's bit set, the pointer NULL */
    pair pair(GetParam(), options);
    uint64_t value = 1, got = 0;
    void *received = pair.receive(&got, 8, 1);
    EXPECT_EQ(UCS_OK, pair.wait(pair.send(&value, 8, 1)));
    EXPECT_EQ(UCS_OK, pair.wait(received));
}

/* ---- blocking calls inside callbacks ---- */

/* They cannot wait there, since progress is on the stack; they must not wait for ever either. */
TEST_P(request, blocking_calls_inside_a_callback_end)
{
    pair pair(GetParam());
    constexpr size_t LENGTH = 500000;
    const bytes data = pattern(1, LENGTH), small = pattern(1, 8);
    bytes got(LENGTH), got_first(8);
    ending first, second;
    ucs_status_t of_ep = UCS_INPROGRESS, of_worker = UCS_INPROGRESS;
    void *late         = nullptr;
    ucp_ep_h ep        = pair.sender().connect(pair.receiver());
    const bool waits   = !announces_all(GetParam());
    ending queued;
    unsigned num_queued = 0;
    first.action        = [&]() {
        ucp_request_param_t param = send_param(&second, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        late      = ucp_tag_send_sync_nbx(ep, data.data(), LENGTH, 2, &param);
        if (waits) {
            send_until_queued(ep, small, 3, &queued, &num_queued);
        }
        of_ep     = ucp_ep_flush(ep);
        of_worker = ucp_worker_flush(pair.sender().handle());
        pair.sender().forget(ep);
        ucp_ep_destroy(ep);
    };
    ucp_request_param_t param = send_param(&first, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), 8, 1, &param)));
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(got_first.data(), 8, 1)));
    pair.progress_until([&]() { return first.calls == 1; });
    EXPECT_EQ(waits ? UCS_ERR_NO_PROGRESS : UCS_OK, of_ep);
    EXPECT_EQ(waits ? UCS_ERR_NO_PROGRESS : UCS_OK, of_worker);
    EXPECT_TRUE(UCS_PTR_IS_PTR(late));
    for (unsigned i = 0; i < num_queued; ++i) {
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(got_first.data(), 8, 3)));
    }
    /* What was begun goes on all the same. */
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(got.data(), LENGTH, 2)));
    pair.progress_until([&]() { return second.calls == 1; });
    EXPECT_EQ(UCS_OK, second.status);
    EXPECT_EQ(data, got);
}

/* What a close by force ends calls back, and there progress moves nothing: what is asked of another
 * send of the endpoint may lie here, of one that the close ends as well. */
TEST_P(request, progress_inside_a_callback_of_a_forced_close)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    pair pair(GetParam());
    constexpr size_t LENGTH = 1 << 20;
    const bytes data        = pattern(1, LENGTH);
    bytes got(LENGTH);
    ending sent[2], received;
    const ucp_ep_h ep = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER);
    unsigned moved    = 0;
    sent[0].action    = [&]() {
        for (unsigned i = 0; i < 100; ++i) {
            moved += pair.sender().progress();
        }
    };
    for (unsigned i = 0; i < 2; ++i) {
        const ucp_request_param_t param = send_param(&sent[i], UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, data.data(), LENGTH, 1 + i, &param)));
    }
    pair.settle();
    const ucp_request_param_t param = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ucp_tag_recv_nbx(pair.receiver().handle(), got.data(), LENGTH, 2, ~0ull, &param);
    pair.receiver().progress(); /* it has asked for the second one; the sender has not seen that */
    pair.sender().forget(ep);
    ucp_request_param_t force = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
    force.flags               = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t closed = ucp_ep_close_nbx(ep, &force);
    if (!is_network(GetParam())) { /* where who could read them has to answer */
        EXPECT_EQ(1, sent[0].calls);
        EXPECT_EQ(0u, moved);
    }
    EXPECT_EQ(UCS_OK, pair.wait(closed));
    EXPECT_EQ(1, sent[0].calls);
    EXPECT_EQ(0u, moved);
    pair.progress_until([&]() { return sent[1].calls && received.calls; });
    EXPECT_EQ(1, sent[1].calls);
    EXPECT_EQ(1, received.calls);
}

/* With nothing to wait for they end as anywhere. */
TEST_P(request, a_flush_of_nothing_inside_a_callback)
{
    pair pair(GetParam());
    uint64_t value = 5, got = 0;
    ucs_status_t status = UCS_INPROGRESS;
    ending end;
    bool has_answers = false; /* on their way, which is something to wait for */
    end.action       = [&]() {
        has_answers = ucp_test_num_controls(pair.receiver().handle()) > 0;
        status      = ucp_worker_flush(pair.receiver().handle());
    };
    const ucp_request_param_t param = receive_param(&end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ucp_tag_recv_nbx(pair.receiver().handle(), &got, 8, 9, ~0ull, &param);
    if (GetParam().is_self) {
        GTEST_SKIP() << "the send that is received is in flight on the same worker";
    }
    void *sent = pair.send(&value, 8, 9);
    pair.progress_until([&]() { return end.calls == 1; });
    EXPECT_EQ(has_answers ? UCS_ERR_NO_PROGRESS : UCS_OK, status);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

} // namespace
