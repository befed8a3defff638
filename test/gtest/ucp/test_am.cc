/* Halyard: tests of active messages over every variant of transports and protocols: what handlers
 * get, in every form and flag; data that is kept; endpoints to answer on; ends of requests.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <mp/snapshot.h>

#include <seed.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <cstring>
#include <deque>

using namespace ucp_test;

namespace {

constexpr unsigned ID = 7;
const bytes NOTHING, ONE = {1}, TWO = {4, 5}, THREE = {1, 2, 3}; /* they outlive every send */

context_options am_options()
{
    context_options options;
    options.features = UCP_FEATURE_AM | UCP_FEATURE_TAG;
    return options;
}

/* What a handler got. */
struct message {
    bytes header;
    bytes data; /* empty for a descriptor */
    size_t length;
    uint64_t attr;
    ucp_ep_h reply_ep;
    void *pointer;
};

/* A handler that notes each message; `action` may do more and gives the handler's answer. */
struct listener {
    std::vector<message> messages;
    std::function<ucs_status_t(const message &)> action;

    static ucs_status_t handle(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<listener *>(arg);
        const auto *hbytes = static_cast<const uint8_t *>(header);
        const auto *dbytes = static_cast<const uint8_t *>(data);
        const bool is_rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

        self->messages.push_back(
            {bytes(hbytes, hbytes + header_length),
             is_rndv ? bytes() : bytes(dbytes, dbytes + length), length, param->recv_attr,
             (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ? param->reply_ep : nullptr,
             data});
        const message copy = self->messages.back();
        return self->action ? self->action(copy) : UCS_OK;
    }

    static ucs_status_t handle_legacy(void *arg, void *data, size_t length, ucp_ep_h reply_ep,
                                      unsigned flags)
    {
        ucp_am_recv_param_t param = {};
        param.recv_attr = ((flags & UCP_CB_PARAM_FLAG_DATA) ? UCP_AM_RECV_ATTR_FLAG_DATA : 0) |
                          ((reply_ep != nullptr) ? UCP_AM_RECV_ATTR_FIELD_REPLY_EP : 0);
        param.reply_ep  = reply_ep;
        return handle(arg, nullptr, 0, data, length, &param);
    }

    void listen(worker &worker, unsigned id = ID, uint32_t flags = 0)
    {
        ucp_am_handler_param_t param;

        memset(&param, 0xee, sizeof(param));
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        param.id    = id;
        param.cb    = handle;
        param.arg   = this;
        param.flags = flags;
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(worker.handle(), &param));
    }

    void listen_legacy(worker &worker, uint16_t id = ID, uint32_t flags = UCP_AM_FLAG_WHOLE_MSG)
    {
        ASSERT_EQ(UCS_OK,
                  ucp_worker_set_am_handler(worker.handle(), id, handle_legacy, this, flags));
    }
};

ucs_status_ptr_t send(ucp_ep_h ep, const bytes &header, const bytes &data, uint32_t flags = 0,
                      uint32_t more_mask = 0, unsigned id = ID)
{
    ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS | more_mask);
    param.flags               = flags;
    return ucp_am_send_nbx(ep, id, header.data(), header.size(), data.data(), data.size(), &param);
}

void on_data(void *request, ucs_status_t status, size_t length, void *user_data)
{
    static_cast<ending *>(user_data)->info.length = length;
    on_send(request, status, user_data);
}

/* Receives into `buffer` what a descriptor or kept data stands for; how it ends is told to `end`.
 */
void receive_data(worker &worker, void *desc, guarded &buffer, ending *end)
{
    ucp_request_param_t param = send_param(end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    param.cb.recv_am          = on_data;
    const ucs_status_ptr_t ptr =
        ucp_am_recv_data_nbx(worker.handle(), desc, buffer.data(), buffer.size(), &param);
    EXPECT_TRUE(UCS_PTR_IS_PTR(ptr));
}

class am : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, am, testing::ValuesIn(all_variants()), variant_name);

/* Header and data of all lengths, each of which may be empty. Descriptors are received in the
 * handler. */
TEST_P(am, messages_of_all_sizes)
{
    pair pair(GetParam(), am_options());
    ucp_worker_attr_t attr;
    attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    ASSERT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &attr));
    ASSERT_GE(attr.max_am_header, 64u);

    for (size_t header_length : {size_t(0), size_t(1), size_t(8), size_t(47), size_t(49),
                                 attr.max_am_header}) {
        const bytes header = pattern(header_length, header_length);
        for (size_t length : lengths(pair.ep(), 300000)) {
            const bytes data = pattern(length, length);
            guarded buffer(length);
            listener handler;
            ending end;
            handler.action = [&](const message &got) {
                if (got.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
                    receive_data(pair.receiver(), got.pointer, buffer, &end);
                } else {
                    std::copy(got.data.begin(), got.data.end(), buffer.data());
                    end.calls       = 1;
                    end.status      = UCS_OK;
                    end.info.length = got.length;
                }
                return UCS_OK;
            };
            handler.listen(pair.receiver());
            const ucs_status_ptr_t sent = send(pair.ep(), header, data);
            ASSERT_FALSE(UCS_PTR_IS_ERR(sent));
            pair.progress_until([&]() { return end.calls > 0; });
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(1, end.calls);
            ASSERT_EQ(UCS_OK, end.status);
            ASSERT_EQ(1u, handler.messages.size());
            ASSERT_EQ(header, handler.messages[0].header);
            ASSERT_EQ(length, handler.messages[0].length);
            ASSERT_EQ(length, end.info.length);
            ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(handler.messages[0].pointer) % 8);
            ASSERT_EQ(nullptr, handler.messages[0].reply_ep);
            ASSERT_EQ(-1, differs(buffer.data(), length, length)) << length;
            ASSERT_TRUE(buffer.is_intact());
        }
    }
    expect_clean(pair);
}

TEST_P(am, longest_header_and_beyond)
{
    pair pair(GetParam(), am_options());
    ucp_worker_attr_t attr;
    attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    ASSERT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &attr));
    const bytes header = pattern(1, attr.max_am_header + 1);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, UCS_PTR_RAW_STATUS(send(pair.ep(), header, NOTHING)));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              UCS_PTR_RAW_STATUS(send(pair.ep(), NOTHING, NOTHING, 0, 0, 65536)));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              UCS_PTR_RAW_STATUS(send(pair.ep(), NOTHING, NOTHING,
                                      UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV)));
    expect_clean(pair);
}

/* EAGER never comes as a descriptor, RNDV always does, however long the data. */
TEST_P(am, flags_force_the_form)
{
    pair pair(GetParam(), am_options());
    for (size_t length : {0ul, 1ul, 1000ul, 20000ul, 500000ul}) {
        const bytes data = pattern(3, length), header = pattern(4, 20);
        for (uint32_t flag : {UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV}) {
            guarded buffer(length);
            listener handler;
            ending end;
            handler.action = [&](const message &got) {
                if (got.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
                    receive_data(pair.receiver(), got.pointer, buffer, &end);
                }
                return UCS_OK;
            };
            handler.listen(pair.receiver());
            const ucs_status_ptr_t sent = send(pair.ep(), header, data, flag);
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            pair.progress_until([&]() { return handler.messages.size() == 1; });
            ASSERT_EQ(header, handler.messages[0].header);
            if (flag == UCP_AM_SEND_FLAG_EAGER) {
                ASSERT_FALSE(handler.messages[0].attr & UCP_AM_RECV_ATTR_FLAG_RNDV) << length;
                ASSERT_EQ(data, handler.messages[0].data);
            } else {
                ASSERT_TRUE(handler.messages[0].attr & UCP_AM_RECV_ATTR_FLAG_RNDV) << length;
                pair.progress_until([&]() { return end.calls == 1; });
                ASSERT_EQ(UCS_OK, end.status);
                ASSERT_EQ(-1, differs(buffer.data(), length, 3));
            }
        }
    }
    expect_clean(pair);
}

/* Whatever copies cost here, by which tagged messages are announced or not. */
TEST(am_forms, short_messages_go_whole_to_handlers)
{
    for (const char *bandwidth : {"100MBs", "100000MBs"}) {
        pair pair({"mm", {{"UCX_TLS", "mm,cma"}, {"UCX_MM_BW", bandwidth}}, false,
                   UCS_THREAD_MODE_SINGLE}, am_options());
        for (size_t length : {6000ul, 8192ul, 16384ul, 200000ul}) {
            const bytes data = pattern(5, length);
            listener handler;
            handler.listen(pair.receiver());
            const ucs_status_ptr_t sent = send(pair.ep(), THREE, data);
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            pair.progress_until([&]() { return handler.messages.size() == 1; });
            EXPECT_EQ(length > 16384,
                      (handler.messages[0].attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
                << length << " bytes, " << bandwidth;
        }
    }
}

/* Descriptors and persistent data are kept by UCS_INPROGRESS, and used or given back later. */
TEST_P(am, kept_data)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.action = [](const message &got) {
        EXPECT_TRUE(got.attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV));
        return UCS_INPROGRESS;
    };
    handler.listen(pair.receiver(), ID, UCP_AM_FLAG_PERSISTENT_DATA);

    for (size_t length : {0ul, 5ul, 3000ul, 200000ul}) {
        for (bool receive : {true, false}) {
            const bytes data = pattern(9, length);
            handler.messages.clear();
            const ucs_status_ptr_t sent = send(pair.ep(), THREE, data);
            pair.progress_until([&]() { return handler.messages.size() == 1; });
            pair.settle();
            ASSERT_EQ(1u, ucp_test_num_kept_data(pair.receiver().handle()));
            const message got = handler.messages[0];
            if (!(got.attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
                /* it is still there, whatever came after it */
                ASSERT_EQ(-1, differs(got.pointer, length, 9));
            }
            if (receive) {
                guarded buffer(length);
                ending end;
                receive_data(pair.receiver(), got.pointer, buffer, &end);
                pair.progress_until([&]() { return end.calls == 1; });
                ASSERT_EQ(UCS_OK, end.status);
                ASSERT_EQ(length, end.info.length);
                ASSERT_EQ(-1, differs(buffer.data(), length, 9));
            } else {
                ucp_am_data_release(pair.receiver().handle(), got.pointer);
            }
            ASSERT_EQ(UCS_OK, pair.wait(sent)) << "the sender completes, read or not";
            pair.settle();
            ASSERT_EQ(0u, ucp_test_num_kept_data(pair.receiver().handle()));
        }
    }
    expect_clean(pair);
}

/* Without the flag data that is shown in place cannot be kept, and says so. */
TEST_P(am, transient_data_says_so)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.listen(pair.receiver());
    const bytes data = pattern(1, 40);
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_EAGER)));
    pair.progress_until([&]() { return !handler.messages.empty(); });
    EXPECT_EQ(0u, handler.messages[0].attr);
}

/* A descriptor that the handler does not use is dropped, and its send ends with what the handler
 * has returned; whatever that is, data that came with the message has been sent. */
TEST_P(am, ignored_descriptors)
{
    pair pair(GetParam(), am_options());
    for (ucs_status_t status : {UCS_OK, UCS_ERR_NO_MEMORY}) {
        listener handler;
        handler.action = [&](const message &) { return status; };
        handler.listen(pair.receiver());
        for (size_t length : {0ul, 100ul, 100000ul}) {
            const bytes data = pattern(1, length);
            ASSERT_EQ(status, pair.wait(send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_RNDV)));
        }
        ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), ONE, ONE, UCP_AM_SEND_FLAG_EAGER)));
        pair.progress_until([&]() { return handler.messages.size() == 4; });
        expect_clean(pair);
    }
}

/* Immediate ends: kept data is copied inside the call; a buffer that is too short says so, and the
 * descriptor is used up all the same (the world would find it at its end). */
TEST_P(am, receiving_kept_data_at_once)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.action = [](const message &) { return UCS_INPROGRESS; };
    handler.listen(pair.receiver(), ID, UCP_AM_FLAG_PERSISTENT_DATA);
    const bytes data = pattern(5, 60);
    for (unsigned i = 0; i < 2; ++i) {
        ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_EAGER)));
    }
    pair.progress_until([&]() { return handler.messages.size() == 2; });

    guarded small(59), buffer(60);
    size_t length             = 0;
    ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_RECV_INFO);
    param.recv_info.length    = &length;
    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED,
              UCS_PTR_RAW_STATUS(ucp_am_recv_data_nbx(pair.receiver().handle(),
                                                      handler.messages[0].pointer, small.data(), 59,
                                                      &param)));
    EXPECT_TRUE(small.is_intact());
    EXPECT_EQ(nullptr, ucp_am_recv_data_nbx(pair.receiver().handle(), handler.messages[1].pointer,
                                            buffer.data(), 60, &param));
    EXPECT_EQ(60u, length);
    EXPECT_EQ(-1, differs(buffer.data(), 60, 5));
    expect_clean(pair);
}

/* Data that the handler may not keep, with which some clients do the same. */
TEST_P(am, receiving_passing_data_in_the_handler)
{
    pair pair(GetParam(), am_options());
    listener handler;
    guarded small(59), buffer(300);
    handler.action = [&](const message &got) {
        EXPECT_EQ(0u, got.attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV));
        const size_t expected     = got.length;
        size_t length             = 0;
        ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_RECV_INFO);
        param.recv_info.length    = &length;
        EXPECT_EQ((expected > 59) ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK,
                  UCS_PTR_RAW_STATUS(ucp_am_recv_data_nbx(pair.receiver().handle(), got.pointer,
                                                          small.data(), 59, &param)));
        EXPECT_EQ(nullptr, ucp_am_recv_data_nbx(pair.receiver().handle(), got.pointer,
                                                buffer.data(), 300, &param));
        EXPECT_EQ(expected, length);
        EXPECT_EQ(-1, differs(buffer.data(), expected, 5));
        ucp_am_data_release(pair.receiver().handle(), got.pointer);
        return UCS_OK;
    };
    handler.listen(pair.receiver());
    size_t count = 0;
    for (size_t length : {0ul, 1ul, 60ul, 300ul}) {
        for (uint32_t flags : {0, static_cast<int>(UCP_AM_SEND_FLAG_REPLY)}) {
            ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, pattern(5, length),
                                             UCP_AM_SEND_FLAG_EAGER | flags)));
            ++count;
            pair.progress_until([&]() { return handler.messages.size() == count; });
        }
    }
    EXPECT_TRUE(small.is_intact());
    EXPECT_TRUE(buffer.is_intact());
    expect_clean(pair);
}

/* Announces data, whose descriptor the handler keeps; the send. */
ucs_status_ptr_t announce_and_keep(pair &pair, listener &handler, const bytes &data)
{
    handler.action = [](const message &) { return UCS_INPROGRESS; };
    handler.listen(pair.receiver(), ID);
    const ucs_status_ptr_t sent = send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_RNDV);
    pair.progress_until([&]() { return handler.messages.size() == 1; });
    return sent;
}

/* Asking for no byte of announced data discards it, and both sides end well (as with UCX 1.22),
 * inside the call or by a request. */
TEST_P(am, nothing_of_announced_data)
{
    for (uint32_t flags : {0u, (uint32_t)UCP_OP_ATTR_FLAG_NO_IMM_CMPL}) {
        pair pair(GetParam(), am_options());
        listener handler;
        const bytes data            = pattern(5, 1000);
        const ucs_status_ptr_t sent = announce_and_keep(pair, handler, data);

        ending end;
        size_t length             = 7;
        ucp_request_param_t param = send_param(&end, UCP_OP_ATTR_FIELD_RECV_INFO | flags);
        param.cb.recv_am          = on_data;
        param.recv_info.length    = &length;
        const ucs_status_ptr_t got =
            ucp_am_recv_data_nbx(pair.receiver().handle(), handler.messages[0].pointer, nullptr, 0,
                                 &param);
        EXPECT_EQ(flags != 0, UCS_PTR_IS_PTR(got));
        EXPECT_FALSE(UCS_PTR_IS_ERR(got));
        EXPECT_EQ((flags != 0) ? 1u : 0u, end.calls);
        EXPECT_EQ((flags != 0) ? UCS_OK : UCS_INPROGRESS, end.status);
        EXPECT_EQ((flags != 0) ? 7u : 0u, length);
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        expect_clean(pair);
    }
}

/* A receive that may not wait for announced data leaves the descriptor as it is. */
TEST_P(am, announced_data_that_cannot_come_at_once)
{
    pair pair(GetParam(), am_options());
    listener handler;
    const bytes data                = pattern(5, 1000);
    const ucs_status_ptr_t sent     = announce_and_keep(pair, handler, data);
    const ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    guarded buffer(1000);
    ending end;

    ASSERT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_am_recv_data_nbx(pair.receiver().handle(), handler.messages[0].pointer,
                                   buffer.data(), buffer.size(), &param));
    receive_data(pair.receiver(), handler.messages[0].pointer, buffer, &end);
    pair.progress_until([&]() { return end.calls == 1; });
    EXPECT_EQ(UCS_OK, end.status);
    EXPECT_EQ(-1, differs(buffer.data(), 1000, 5));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    expect_clean(pair);
}

/* What param's recv_info points to may be gone when the call returns a request. */
TEST_P(am, the_length_of_announced_data)
{
    pair pair(GetParam(), am_options());
    listener handler;
    const bytes data            = pattern(5, 1000);
    const ucs_status_ptr_t sent = announce_and_keep(pair, handler, data);

    ending end;
    bytes buffer(1000);
    size_t length             = 7;
    ucp_request_param_t param = send_param(&end, UCP_OP_ATTR_FIELD_RECV_INFO);
    param.cb.recv_am          = on_data;
    param.recv_info.length    = &length;
    const ucs_status_ptr_t got =
        ucp_am_recv_data_nbx(pair.receiver().handle(), handler.messages[0].pointer, buffer.data(),
                             buffer.size(), &param);
    pair.progress_until([&]() { return (got == nullptr) || (end.calls > 0); });
    EXPECT_EQ((got == nullptr) ? 1000u : 7u, length);
    EXPECT_EQ((got == nullptr) ? 0u : 1000u, end.info.length);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    expect_clean(pair);
}

/* A receive of announced data that is too short. */
TEST_P(am, truncated_descriptors)
{
    pair pair(GetParam(), am_options());
    listener handler;
    guarded buffer(999);
    ending end;
    handler.action = [&](const message &got) {
        receive_data(pair.receiver(), got.pointer, buffer, &end);
        return UCS_OK;
    };
    handler.listen(pair.receiver());
    const bytes data = pattern(2, 50000);
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_RNDV)));
    pair.progress_until([&]() { return end.calls == 1; });
    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, end.status);
    EXPECT_EQ(50000u, end.info.length);
    EXPECT_TRUE(buffer.is_intact());
    expect_clean(pair);
}

/* Older handlers, and newer ones that ask for it, get all of a message at once, whatever its
 * length, and may keep it. */
TEST_P(am, whole_messages)
{
    pair pair(GetParam(), am_options());
    for (int form = 0; form < 3; ++form) {
        for (size_t length : {0ul, 8ul, 5000ul, 100000ul, 1000000ul}) {
            const bytes data = pattern(length, length);
            listener handler;
            void *kept     = nullptr;
            handler.action = [&](const message &got) {
                EXPECT_FALSE(got.attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
                kept = (got.attr & UCP_AM_RECV_ATTR_FLAG_DATA) ? got.pointer : nullptr;
                return (kept != nullptr) ? UCS_INPROGRESS : UCS_OK;
            };
            if (form == 2) {
                handler.listen(pair.receiver(), ID, UCP_AM_FLAG_WHOLE_MSG);
            } else {
                handler.listen_legacy(pair.receiver(), ID,
                                      UCP_AM_FLAG_WHOLE_MSG |
                                          ((form == 1) ? UCP_AM_FLAG_PERSISTENT_DATA : 0));
            }
            const ucs_status_ptr_t sent =
                (form == 2) ? send(pair.ep(), TWO, data)
                            : ucp_am_send_nb(pair.ep(), ID, data.data(), length,
                                             ucp_dt_make_contig(1),
                                             [](void *, ucs_status_t) {}, 0);
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            pair.progress_until([&]() { return !handler.messages.empty(); });
            ASSERT_EQ(data, handler.messages[0].data) << length;
            ASSERT_EQ((form == 2) ? TWO : NOTHING, handler.messages[0].header);
            if (form == 1) {
                ASSERT_NE(nullptr, kept);
            }
            if (kept != nullptr) {
                pair.settle();
                ASSERT_EQ(-1, differs(kept, length, length));
                ucp_am_data_release(pair.receiver().handle(), kept);
            }
        }
    }
    expect_clean(pair);
}

/* As ps-lite answers its clients. Data of the earlier calls lies at a multiple of 8 bytes. */
TEST_P(am, replies_by_the_earlier_calls)
{
    pair pair(GetParam(), am_options());
    listener handler, later;
    handler.listen_legacy(pair.receiver());
    later.listen(pair.receiver(), ID + 1);
    for (size_t length : {1ul, 8ul, 61ul, 5000ul, 100000ul}) {
        const bytes data = pattern(length, length);
        for (unsigned flags : {0u, unsigned(UCP_AM_SEND_REPLY)}) {
            handler.messages.clear();
            later.messages.clear();
            const ucs_status_ptr_t sent[] = {
                ucp_am_send_nb(pair.ep(), ID, data.data(), length, ucp_dt_make_contig(1),
                               [](void *, ucs_status_t) {}, flags),
                send(pair.ep(), ONE, ONE, flags, 0, ID + 1)};
            pair.progress_until(
                [&]() { return !handler.messages.empty() && !later.messages.empty(); });
            EXPECT_EQ(UCS_OK, pair.wait(sent[0]));
            EXPECT_EQ(UCS_OK, pair.wait(sent[1]));
            EXPECT_EQ(data, handler.messages[0].data);
            EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(handler.messages[0].pointer) % 8) << length;
            EXPECT_EQ(flags != 0, handler.messages[0].reply_ep != nullptr);
            EXPECT_EQ(later.messages[0].reply_ep, handler.messages[0].reply_ep);
        }
    }
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_handler(pair.receiver().handle(), ID, nullptr, nullptr, 0));
    handler.messages.clear();
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER)));
    pair.settle();
    EXPECT_TRUE(handler.messages.empty()) << "it was taken away";
    take_log(); /* what repeats itself is not said each time */
    expect_clean(pair);
}

/* By the earlier call messages come whole, whatever the handler, however long they are. */
TEST_P(am, the_earlier_call_to_a_later_handler)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.action = [](const message &got) {
        EXPECT_FALSE(got.attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
        return UCS_OK;
    };
    handler.listen(pair.receiver());
    for (size_t length : {0ul, 8ul, 5000ul, 60000ul, 300000ul}) {
        const bytes data = pattern(length, length);
        handler.messages.clear();
        const ucs_status_ptr_t sent = ucp_am_send_nb(pair.ep(), ID, data.data(), length,
                                                     ucp_dt_make_contig(1),
                                                     [](void *, ucs_status_t) {}, 0);
        pair.progress_until([&]() { return !handler.messages.empty(); });
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(data, handler.messages[0].data) << length;
    }
    expect_clean(pair);
}

/* Handlers of whole messages see them in the order in which they were sent, however long each takes
 * to come, and descriptors and small messages to other handlers do not overtake them. */
TEST_P(am, order)
{
    seeded_random random(2501);
    pair pair(GetParam(), am_options());
    listener whole, any;
    std::vector<size_t> lengths, seen;
    std::vector<bytes> buffers;
    std::vector<ucs_status_ptr_t> requests;
    const auto note = [&](const message &got) {
        seen.push_back(got.length);
        return UCS_OK; /* a descriptor's data is not wanted */
    };
    whole.action = any.action = note;
    whole.listen_legacy(pair.receiver(), ID);
    any.listen(pair.receiver(), ID + 1);

    for (size_t i = 0; i < 120; ++i) {
        lengths.push_back(1000 * random.below(random.one_in(3) ? 700 : 9) + i);
        buffers.emplace_back(lengths[i]);
        requests.push_back(
            random.one_in(2)
                ? send(pair.ep(), NOTHING, buffers[i], 0, 0, ID + 1)
                : ucp_am_send_nb(pair.ep(), ID, buffers[i].data(), lengths[i],
                                 ucp_dt_make_contig(1), [](void *, ucs_status_t) {}, 0));
    }
    for (ucs_status_ptr_t request : requests) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
    pair.progress_until([&]() { return seen.size() == lengths.size(); });
    EXPECT_EQ(lengths, seen);
    expect_clean(pair);
}

/* IOV and generic data, on both sides. */
TEST_P(am, iov_data)
{
    pair pair(GetParam(), am_options());
    for (size_t length : {30ul, 3000ul, 90000ul}) {
        bytes data = pattern(6, length);
        bytes received(length);
        ucp_dt_iov_t from[3] = {{data.data(), 7}, {data.data() + 7, 0},
                                {data.data() + 7, length - 7}};
        ucp_dt_iov_t to[2]   = {{received.data(), length / 2},
                                {received.data() + (length / 2), length - (length / 2)}};
        ending end;
        listener handler;
        handler.action = [&](const message &got) {
            ucp_request_param_t param =
                send_param(&end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_DATATYPE);
            param.cb.recv_am = on_data;
            param.datatype   = ucp_dt_make_iov();
            EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(pair.receiver().handle(), got.pointer,
                                                            to, 2, &param)));
            return UCS_OK;
        };
        handler.listen(pair.receiver(), ID, UCP_AM_FLAG_PERSISTENT_DATA);
        ucp_request_param_t param   = send_param(nullptr, UCP_OP_ATTR_FIELD_DATATYPE);
        param.datatype              = ucp_dt_make_iov();
        const bytes header          = pattern(8, 13);
        const ucs_status_ptr_t sent =
            ucp_am_send_nbx(pair.ep(), ID, header.data(), header.size(), from, 3, &param);
        pair.progress_until([&]() { return end.calls == 1; });
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(UCS_OK, end.status);
        ASSERT_EQ(header, handler.messages[0].header);
        ASSERT_EQ(data, received) << length;
    }
    expect_clean(pair);
}

/* ---- endpoints to answer on ---- */

/* The user's own endpoint to the sender where there is one; else one of the library's, which stays
 * the same and becomes the user's next. */
TEST_P(am, reply_endpoints)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.listen(pair.receiver());
    const auto reply_to = [&](ucp_ep_h ep, size_t length) {
        const size_t count = handler.messages.size();
        const bytes data   = pattern(1, length);
        const ucs_status_ptr_t sent = send(ep, ONE, data, UCP_AM_SEND_FLAG_REPLY);
        pair.progress_until([&]() { return handler.messages.size() > count; });
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        return handler.messages.back().reply_ep;
    };

    const ucp_ep_h first = reply_to(pair.ep(), 8);
    ASSERT_NE(nullptr, first);
    if (GetParam().is_self) {
        EXPECT_EQ(pair.ep(), first);
    }
    for (size_t length : {0ul, 100ul, 100000ul}) {
        EXPECT_EQ(first, reply_to(pair.ep(), length));
    }
    /* the second endpoint of one side pairs with the second of the other */
    const ucp_ep_h second_here  = pair.sender().connect(pair.receiver());
    const ucp_ep_h second_there = reply_to(second_here, 8);
    EXPECT_NE(first, second_there);
    if (!GetParam().is_self) {
        EXPECT_EQ(first, pair.receiver().connect(pair.sender()));
        EXPECT_EQ(second_there, pair.receiver().connect(pair.sender()));
    }
    EXPECT_EQ(first, reply_to(pair.ep(), 8));

    /* and it leads back */
    listener back;
    back.listen(pair.sender(), ID + 1);
    ASSERT_EQ(UCS_OK, pair.wait(send(first, NOTHING, THREE, UCP_AM_SEND_FLAG_EAGER, 0, ID + 1)));
    pair.progress_until([&]() { return back.messages.size() == 1; });
    EXPECT_EQ(THREE, back.messages[0].data);
    pair.settle();
}

/* Handlers answer from within, on and on. */
TEST_P(am, ping_pong_in_handlers)
{
    constexpr size_t COUNT = 300;
    pair pair(GetParam(), am_options());
    listener there, back;
    bytes data = pattern(1, 20);
    there.action = [&](const message &got) {
        EXPECT_FALSE(UCS_PTR_IS_ERR(
            send(got.reply_ep, NOTHING, data, UCP_AM_SEND_FLAG_EAGER, 0, ID + 1)));
        return UCS_OK;
    };
    back.action = [&](const message &) {
        if (back.messages.size() < COUNT) {
            EXPECT_FALSE(UCS_PTR_IS_ERR(send(pair.ep(), NOTHING, data,
                                             UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER)));
        }
        return UCS_OK;
    };
    there.listen(pair.receiver());
    back.listen(pair.sender(), ID + 1);
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, data,
                                     UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER)));
    pair.progress_until([&]() { return back.messages.size() == COUNT; });
    EXPECT_EQ(COUNT, there.messages.size());
    pair.settle();
}

/* The user may close an endpoint of the library's; the next message brings another. */
TEST_P(am, a_reply_endpoint_is_closed)
{
    pair pair(GetParam(), am_options());
    if (GetParam().is_self) {
        GTEST_SKIP() << "the reply endpoint is the test's own";
    }
    listener handler;
    handler.listen(pair.receiver());
    for (size_t i = 1; i < 4; ++i) {
        ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, NOTHING, UCP_AM_SEND_FLAG_REPLY)));
        pair.progress_until([&]() { return handler.messages.size() == i; });
        ASSERT_NE(nullptr, handler.messages.back().reply_ep);
        ASSERT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(handler.messages.back().reply_ep,
                                                    UCP_EP_CLOSE_MODE_FLUSH)));
    }
    expect_clean(pair);
}

/* A server answers clients that come and go: of the dead it keeps the endpoints to answer on, in
 * case it does later, but no memory and descriptors. */
TEST_P(am, reply_endpoints_of_the_dead)
{
    constexpr size_t COUNT = 20, WARM = 5;
    if (GetParam().is_self) {
        GTEST_SKIP() << "who dies are others";
    }
    pair pair(GetParam(), am_options());
    listener there;
    std::vector<ucp_ep_h> answered;
    there.action = [&](const message &got) {
        answered.push_back(got.reply_ep);
        const ucs_status_ptr_t sent = send(got.reply_ep, NOTHING, THREE, 0, 0, ID + 1);
        EXPECT_FALSE(UCS_PTR_IS_ERR(sent));
        if (UCS_PTR_IS_PTR(sent)) {
            ucp_request_free(sent);
        }
        return UCS_OK;
    };
    there.listen(pair.receiver());
    size_t before = 0;
    for (size_t i = 0; i < COUNT; ++i) {
        listener back;
        worker guest(pair.ctx(), GetParam().mode);
        back.listen(guest, ID + 1);
        const ucs_status_ptr_t sent =
            send(guest.connect(pair.receiver()), NOTHING, ONE, UCP_AM_SEND_FLAG_REPLY);
        pair.progress_until([&]() {
            guest.progress();
            return !back.messages.empty() &&
                   (!UCS_PTR_IS_PTR(sent) || ucp_request_is_completed(sent));
        });
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        guest.destroy();
        pair.settle();
        before = (i < WARM) ? mp::count_descriptors() : before;
    }
    EXPECT_LT(mp::count_descriptors(), before + COUNT - WARM);
    ASSERT_EQ(COUNT, answered.size());
    for (ucp_ep_h ep : answered) { /* that the last one has died may be heard of later */
        pair.progress_until(
            [&]() { return pair.wait(send(ep, NOTHING, THREE, 0, 0, ID + 1)) != UCS_OK; });
    }
}

/* ---- handlers ---- */

TEST_P(am, messages_without_handler)
{
    pair pair(GetParam(), am_options());
    listener handler;
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER)));
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER, 0, 65535)));
    pair.settle();
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_RNDV)));

    handler.listen(pair.receiver());
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER)));
    pair.progress_until([&]() { return handler.messages.size() == 1; });

    ucp_am_handler_param_t param;
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    param.id         = ID;
    param.cb         = nullptr; /* takes it away */
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(pair.receiver().handle(), &param));
    EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER)));
    pair.settle();
    EXPECT_EQ(1u, handler.messages.size());
    for (const std::string &line : take_log()) { /* equal lines in a row are counted */
        EXPECT_TRUE((line.find("has no handler") != std::string::npos) ||
                    (line.find("more times and was not shown") != std::string::npos)) << line;
    }
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_CB;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              ucp_worker_set_am_recv_handler(pair.receiver().handle(), &param));
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    param.id         = 65536;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              ucp_worker_set_am_recv_handler(pair.receiver().handle(), &param));
    expect_clean(pair);
}

/* A handler takes itself away and registers far ids while it runs. */
TEST_P(am, handlers_change_the_table)
{
    pair pair(GetParam(), am_options());
    listener first, second;
    first.action = [&](const message &) {
        second.listen(pair.receiver());
        second.listen(pair.receiver(), 60000);
        return UCS_OK;
    };
    first.listen(pair.receiver());
    for (unsigned id : {ID, ID, 60000u}) {
        ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), NOTHING, ONE, UCP_AM_SEND_FLAG_EAGER, 0, id)));
        pair.settle();
    }
    EXPECT_EQ(1u, first.messages.size());
    EXPECT_EQ(2u, second.messages.size());
}

/* COPY_HEADER: the header may change after the call, whether or not the message has left. */
TEST_P(am, copied_headers)
{
    constexpr size_t COUNT = 400;
    pair pair(GetParam(), am_options());
    listener handler;
    std::vector<ucs_status_ptr_t> requests;
    const bytes data = pattern(1, 300);
    handler.listen(pair.receiver(), ID, UCP_AM_FLAG_WHOLE_MSG);
    for (size_t i = 0; i < COUNT; ++i) {
        bytes header = pattern(i, 70); /* on its own memory, which goes */
        requests.push_back(send(pair.ep(), header, data, UCP_AM_SEND_FLAG_COPY_HEADER |
                                ((i % 5 == 0) ? UCP_AM_SEND_FLAG_REPLY : 0)));
        ASSERT_FALSE(UCS_PTR_IS_ERR(requests.back()));
        std::fill(header.begin(), header.end(), 0xbb);
    }
    for (ucs_status_ptr_t request : requests) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
    pair.progress_until([&]() { return handler.messages.size() == COUNT; });
    std::vector<bool> seen(COUNT);
    for (const message &got : handler.messages) {
        const bytes &header = got.header;
        size_t i            = 0;
        while ((i < COUNT) && (seen[i] || (header != pattern(i, 70)))) {
            ++i;
        }
        ASSERT_LT(i, COUNT);
        seen[i] = true;
    }
    expect_clean(pair);
}

TEST_P(am, forced_immediate_end)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.listen(pair.receiver());
    const bytes data = pattern(1, 100000);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              UCS_PTR_RAW_STATUS(send(pair.ep(), NOTHING, data, UCP_AM_SEND_FLAG_RNDV,
                                      UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)));
    pair.settle();
    EXPECT_EQ(0u, handler.messages.size()) << "nothing was sent";
    expect_clean(pair);
}

TEST_P(am, callbacks_come_after_the_call)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.listen(pair.receiver());
    ending end;
    ucp_request_param_t param  = send_param(&end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const ucs_status_ptr_t ptr = ucp_am_send_nbx(pair.ep(), ID, nullptr, 0, "x", 1, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ptr));
    EXPECT_EQ(0, end.calls);
    pair.progress_until([&]() { return end.calls == 1; });
    EXPECT_EQ(UCS_OK, end.status);
    pair.settle();
}

/* A flush of the endpoint waits until messages have left, those too whose requests were given back:
 * the receiver needs nothing more of the sender. */
TEST_P(am, flush_counts_them)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.listen(pair.receiver(), ID, UCP_AM_FLAG_WHOLE_MSG);
    const bytes data                = pattern(1, 1000);
    const ucp_request_param_t param = send_param(nullptr);
    ucp_request_param_t eager       = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
    unsigned num_sent = 0, num_queued = 0;

    eager.flags = UCP_AM_SEND_FLAG_EAGER;
    while ((num_queued < 10) && (num_sent < 100000)) {
        const ucs_status_ptr_t ptr =
            ucp_am_send_nbx(pair.ep(), ID, nullptr, 0, data.data(), data.size(), &eager);
        ++num_sent;
        if (UCS_PTR_IS_PTR(ptr)) {
            ++num_queued;
            ucp_request_free(ptr);
        }
    }
    ASSERT_EQ(10u, num_queued);
    const ucs_status_ptr_t flush = ucp_ep_flush_nbx(pair.ep(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    ASSERT_EQ(UCS_OK, pair.wait(flush));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    /* of both: what was sent may still be the provider's, which moves by the sender's progress */
    pair.progress_until([&]() { return handler.messages.size() >= num_sent; });
    EXPECT_EQ(num_sent, handler.messages.size());
    expect_clean(pair);
}

/* ---- ends ---- */

/* A receiver that goes away with descriptors and data in hand leaves nothing behind. */
TEST_P(am, worker_ends_with_kept_data)
{
    pair pair(GetParam(), am_options());
    listener handler;
    handler.action = [](const message &) { return UCS_INPROGRESS; };
    handler.listen(pair.receiver(), ID, UCP_AM_FLAG_PERSISTENT_DATA);
    const bytes data = pattern(1, 100000);
    std::vector<ucs_status_ptr_t> requests;
    for (size_t length : {10ul, 1000ul, 100000ul}) {
        ucp_request_param_t param = send_param(nullptr);
        requests.push_back(ucp_am_send_nbx(pair.ep(), ID, "h", 1, data.data(), length, &param));
    }
    pair.progress_until([&]() { return handler.messages.size() == 3; });
    pair.receiver().destroy();
    if (!GetParam().is_self) {
        for (ucs_status_ptr_t request : requests) {
            pair.wait(request); /* ends, one way or the other */
        }
    }
}

void on_failure(void *arg, ucp_ep_h, ucs_status_t)
{
    ++*static_cast<int *>(arg);
}

/* The sender cancels by force what was announced: who kept the descriptor is told when it asks. */
TEST_P(am, forced_close)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    environment environment(GetParam().env);
    context context(am_options());
    worker from(context, GetParam().mode), to(context, GetParam().mode);
    int failures      = 0;
    const ucp_ep_h ep = from.connect(to, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failures);
    listener handler;
    handler.action = [](const message &) { return UCS_INPROGRESS; };
    handler.listen(to);
    const auto until = [&](const std::function<bool()> &condition) {
        for (int i = 0; (i < 10000000) && !condition(); ++i) {
            from.progress();
            to.progress();
        }
        return condition();
    };

    const bytes data = pattern(1, 200000);
    ending sent;
    ucp_request_param_t param  = send_param(&sent, UCP_OP_ATTR_FIELD_FLAGS);
    param.flags                = UCP_AM_SEND_FLAG_RNDV;
    const ucs_status_ptr_t ptr =
        ucp_am_send_nbx(ep, ID, nullptr, 0, data.data(), data.size(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ptr));
    ASSERT_TRUE(until([&]() { return handler.messages.size() == 1; }));
    from.forget(ep);
    void *closing = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
    if (!is_network(GetParam())) { /* where who could read it has to answer */
        EXPECT_EQ(1, sent.calls);
    }
    EXPECT_TRUE(until([&]() { return sent.calls == 1; }));
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    for (int i = 0; i < 2000; ++i) {
        from.progress();
        to.progress();
    }
    guarded buffer(200000);
    ending received;
    receive_data(to, handler.messages[0].pointer, buffer, &received);
    EXPECT_TRUE(until([&]() { return received.calls == 1; }));
    EXPECT_NE(UCS_OK, received.status);
    if (UCS_PTR_IS_PTR(closing)) {
        ucp_request_free(closing);
    }
    EXPECT_EQ(0, failures);
}

/* What was fetched for a handler finds no endpoint to answer on any more, since its sender has made
 * more than can be told apart: whatever becomes of it, nobody else's connection ends. */
TEST(am_fetched, without_an_endpoint_to_answer_on)
{
    constexpr unsigned MANY = 1024; /* endpoints that the user has not made */
    log_catcher log;
    context_options options;
    options.features = UCP_FEATURE_AM | UCP_FEATURE_STREAM;
    pair pair({"fetched", {{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", "get_zcopy"}}, false,
               UCS_THREAD_MODE_SINGLE}, options);
    worker third(pair.ctx());
    unsigned failed       = 0;
    const auto on_failure = [](void *arg, ucp_ep_h, ucs_status_t) {
        ++*static_cast<unsigned *>(arg);
    };
    listener heard;
    heard.listen(pair.receiver(), ID, UCP_AM_FLAG_WHOLE_MSG);
    const ucp_ep_h of_third = third.connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER,
                                            on_failure, &failed);
    ucp_ep_h back           = pair.receiver().connect(pair.sender(), UCP_ERR_HANDLING_MODE_PEER);
    std::vector<ucp_ep_h> eps;
    for (unsigned i = 0; i < MANY; ++i) {
        eps.push_back(pair.sender().connect(pair.receiver()));
    }
    const ucp_request_param_t plain = {};
    const auto turn = [&]() {
        third.progress();
        pair.progress();
    };
    const bytes data(64 << 20, 1); /* it takes more turns than all that is sent meanwhile */
    ucp_request_param_t reply = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
    reply.flags               = UCP_AM_SEND_FLAG_REPLY;
    void *sent = ucp_am_send_nbx(pair.ep(), ID, nullptr, 0, data.data(), data.size(), &reply);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
    for (unsigned i = 0; i < 3; ++i) {
        pair.progress(); /* it is read, a part a turn */
    }
    pair.receiver().forget(back);
    ucp_request_param_t force = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
    force.flags               = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nbx(back, &force)));
    const auto done = [](ucs_status_ptr_t ptr) {
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        if (ptr != nullptr) {
            ucp_request_free(ptr);
        }
    };
    for (ucp_ep_h ep : eps) {
        done(ucp_stream_send_nbx(ep, data.data(), 1, &plain));
    }
    for (unsigned i = 0; (i < 4000) && (heard.messages.size() < 100); ++i) {
        done(ucp_am_send_nbx(of_third, ID, nullptr, 0, data.data(), 1, &plain));
        turn();
    }
    EXPECT_GE(heard.messages.size(), 100u);
    for (unsigned i = 0; (i < 100000) && (ucp_request_check_status(sent) == UCS_INPROGRESS); ++i) {
        turn();
    }
    EXPECT_NE(UCS_INPROGRESS, ucp_request_check_status(sent));
    ucp_request_free(sent);
    EXPECT_EQ(0u, failed);
    for (const message &got : heard.messages) {
        EXPECT_NE(data.size(), got.length) << "it was to find no endpoint";
    }
    log.take();
}

/* Whichever allocation fails: every send ends, nothing hangs, and nothing is left over. */
TEST(am_shortage, every_allocation_may_fail)
{
    static const struct {
        uint32_t flags;
        size_t length;
    } messages[] = {{UCP_AM_SEND_FLAG_REPLY, 20},
                    {UCP_AM_SEND_FLAG_EAGER, 3000},
                    {UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY, 100000},
                    {UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_COPY_HEADER, 50000},
                    {0, 300000}};
    const bytes data  = pattern(1, 300000);
    unsigned failures = 0;

    for (const char *point : {"malloc", "calloc", "memalign", "mmap"}) {
        for (unsigned k = 1; k < 60; ++k) {
            log_catcher log;
            environment environment(settings{{"UCX_TLS", "mm,cma"}});
            context context(am_options());
            worker from(context), to(context);
            int failed        = 0;
            const ucp_ep_h ep = from.connect(to, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failed);
            listener handler;
            handler.action = [](const message &) { return UCS_INPROGRESS; };
            handler.listen(to, ID, UCP_AM_FLAG_PERSISTENT_DATA);

            ASSERT_EQ(UCS_OK, ucs_fault_set(point, std::to_string(k).c_str()));
            std::vector<void *> requests;
            for (const auto &each : messages) {
                ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
                param.flags               = each.flags;
                void *ptr = ucp_am_send_nbx(ep, ID, "header", 6, data.data(), each.length, &param);
                if (UCS_PTR_IS_PTR(ptr)) {
                    requests.push_back(ptr);
                }
            }
            size_t seen       = 0;
            const auto is_end = [&]() {
                for (; seen < handler.messages.size(); ++seen) {
                    ucp_am_data_release(to.handle(), handler.messages[seen].pointer);
                }
                return std::all_of(requests.begin(), requests.end(), [](void *request) {
                    return ucp_request_is_completed(request) != 0;
                });
            };
            for (int i = 0; (i < 1000000) && !is_end(); ++i) {
                from.progress();
                to.progress();
            }
            ASSERT_TRUE(is_end()) << point << " " << k;
            uint64_t count = 0;
            ucs_fault_query(point, nullptr, &count);
            ucs_fault_clear(nullptr);
            for (void *request : requests) {
                ucp_request_free(request);
            }
            for (int i = 0; i < 500; ++i) {
                from.progress();
                to.progress();
            }
            is_end();
            EXPECT_EQ(0u, ucp_test_num_kept_data(to.handle())) << point << " " << k;
            EXPECT_EQ(0u, ucp_test_num_ids(from.handle())) << point << " " << k;
            (void)log.take();
            if (count == 0) {
                break;
            }
            ++failures;
        }
    }
    EXPECT_GT(failures, 10u);
}

/* Through shared memory a handler that may not keep data sees it where the sender put it, each
 * message elsewhere; who wants to keep it gets a copy. */
TEST(am_in_place, long_messages)
{
    pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE}, am_options());
    listener handler;
    for (uint32_t flags : {0u, unsigned(UCP_AM_FLAG_PERSISTENT_DATA)}) {
        handler.messages.clear();
        handler.listen(pair.receiver(), ID, flags);
        for (uint64_t i = 0; i < 4; ++i) {
            const bytes data = pattern(i, 8000);
            ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), THREE, data, UCP_AM_SEND_FLAG_EAGER)));
            pair.progress_until([&]() { return handler.messages.size() == i + 1; });
            ASSERT_EQ(THREE, handler.messages[i].header);
            ASSERT_EQ(data, handler.messages[i].data);
        }
        if (flags == 0) {
            EXPECT_EQ(0u, handler.messages[1].attr);
            EXPECT_NE(handler.messages[0].pointer, handler.messages[1].pointer);
            EXPECT_NE(handler.messages[1].pointer, handler.messages[2].pointer);
        } else {
            EXPECT_EQ(uint64_t(UCP_AM_RECV_ATTR_FLAG_DATA), handler.messages[1].attr);
        }
    }
}

/* The worker's alignment holds for data in place, kept, and received for the handler. */
TEST(am_alignment, is_kept)
{
    context context(am_options());
    for (size_t alignment : {0ul, 1ul, 8ul, 64ul, 4096ul}) {
        ucp_worker_params_t params;
        ucp_worker_h handle;
        params.field_mask   = UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
        params.am_alignment = alignment;
        ASSERT_EQ(UCS_OK, ucp_worker_create(context.handle(), &params, &handle));
        size_t count = 0;
        std::pair<size_t, size_t *> expected(std::max(alignment, size_t{1}), &count);
        ucp_am_handler_param_t param;
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        param.id    = ID;
        param.arg   = &expected;
        param.cb    = [](void *arg, const void *, size_t, void *data, size_t length,
                      const ucp_am_recv_param_t *) {
            const auto *wanted = static_cast<std::pair<size_t, size_t *> *>(arg);
            EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(data) % wanted->first) << length;
            EXPECT_EQ(-1, differs(data, length, length));
            ++*wanted->second;
            return UCS_OK;
        };
        ucp_address_t *address;
        size_t address_length;
        ASSERT_EQ(UCS_OK, ucp_worker_get_address(handle, &address, &address_length));
        ucp_ep_params_t ep_params;
        ucp_ep_h ep;
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address    = address;
        ASSERT_EQ(UCS_OK, ucp_ep_create(handle, &ep_params, &ep));
        size_t sent = 0;
        for (uint32_t flags : {0u, unsigned(UCP_AM_FLAG_PERSISTENT_DATA)}) {
            param.flags = flags | UCP_AM_FLAG_WHOLE_MSG;
            ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(handle, &param));
            for (size_t length : {1ul, 100ul, 5000ul, 70000ul}) {
                const bytes data          = pattern(length, length);
                ucp_request_param_t rparam = send_param(nullptr);
                void *request = ucp_am_send_nbx(ep, ID, "abc", 3, data.data(), length, &rparam);
                ++sent;
                for (int i = 0; (i < 100000) && (count < sent); ++i) {
                    ucp_worker_progress(handle);
                }
                ASSERT_EQ(sent, count);
                if (UCS_PTR_IS_PTR(request)) {
                    ucp_request_free(request);
                }
            }
        }
        ucp_worker_release_address(handle, address);
        ucp_worker_destroy(handle);
    }
    ucp_worker_params_t params;
    ucp_worker_h handle;
    params.field_mask   = UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
    params.am_alignment = 48;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_worker_create(context.handle(), &params, &handle));
}

} // namespace
