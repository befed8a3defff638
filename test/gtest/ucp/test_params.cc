/* Halyard: tests of parameters: fields that say nothing to a call, bits that a later header may
 * have, hints, and memory for requests in operations of every kind.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/server.h>

#include <algorithm>
#include <cstring>
#include <sched.h>

using namespace ucp_test;

namespace {

constexpr uint64_t FEATURES = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM |
                              UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

context_options all_features()
{
    context_options options;
    options.features = FEATURES;
    return options;
}

/* ---- fields, bits and hints ---- */

/* Fields of a mask that a later header may have name no field of ours. */
constexpr uint64_t LATER = (1ull << 40) | (1ull << 63);

/* Bits of the sender are a hint: whatever they say, tags match as the receive's mask says. Programs
 * fill all fields that their header has (Open MPI: 0x800000ffffffffff as mask of the sender). */
TEST(params, hints_of_a_context_change_nothing)
{
    log_catcher log;
    for (const uint64_t sender_mask : {0ull, ~0ull, 0x800000ffffffffffull}) {
        ucp_params_t params;
        ucp_context_h context;
        memset(&params, 0xee, sizeof(params));
        params.field_mask = LATER | UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                            UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                            UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME |
                            UCP_PARAM_FIELD_NODE_LOCAL_ID;
        params.features          = UCP_FEATURE_TAG;
        params.tag_sender_mask   = sender_mask;
        params.mt_workers_shared = 1;
        params.estimated_num_eps = SIZE_MAX;
        params.estimated_num_ppn = 0;
        params.node_local_id     = SIZE_MAX;
        params.name              = "one";
        ASSERT_EQ(UCS_OK, ucp_init(&params, nullptr, &context));
        ucp_context_attr_t attr;
        attr.field_mask = UCP_ATTR_FIELD_NAME;
        EXPECT_EQ(UCS_OK, ucp_context_query(context, &attr));
        EXPECT_STREQ("one", attr.name);

        ucp_worker_params_t worker_params;
        ucp_worker_h worker;
        memset(&worker_params, 0xee, sizeof(worker_params));
        worker_params.field_mask = LATER | UCP_WORKER_PARAM_FIELD_CPU_MASK |
                                   UCP_WORKER_PARAM_FIELD_EVENTS | UCP_WORKER_PARAM_FIELD_FLAGS;
        ASSERT_EQ(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
        ucp_address_t *address;
        size_t length;
        ASSERT_EQ(UCS_OK, ucp_worker_get_address(worker, &address, &length));
        ucp_ep_params_t ep_params;
        ucp_ep_h ep;
        memset(&ep_params, 0xee, sizeof(ep_params));
        ep_params.field_mask = LATER | UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_FLAGS;
        ep_params.address    = address;
        ep_params.flags      = 0xffff0000u; /* none of which there is */
        ASSERT_EQ(UCS_OK, ucp_ep_create(worker, &ep_params, &ep));
        ucp_worker_release_address(worker, address);

        const ucp_request_param_t none = {};
        const uint64_t sent[]          = {5, 6, 7};
        uint64_t got[3]                = {};
        const ucp_tag_t tags[]         = {0x8000000000000001ull, 0x8001000000000001ull, 1};
        std::vector<void *> requests;
        for (unsigned i = 0; i < 3; ++i) {
            requests.push_back(ucp_tag_send_nbx(ep, &sent[i], 8, tags[i], &none));
        }
        /* from another sender's bits on, exactly, and what is left */
        requests.push_back(ucp_tag_recv_nbx(worker, &got[1], 8, 1ull << 48, 1ull << 48, &none));
        requests.push_back(ucp_tag_recv_nbx(worker, &got[2], 8, 1, ~0ull, &none));
        requests.push_back(ucp_tag_recv_nbx(worker, &got[0], 8, 0, 0, &none));
        for (void *request : requests) {
            for (int n = 0; UCS_PTR_IS_PTR(request) && (n < 100000) &&
                            !ucp_request_is_completed(request); ++n) {
                ucp_worker_progress(worker);
            }
            if (UCS_PTR_IS_PTR(request)) {
                EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
                ucp_request_free(request);
            } else {
                EXPECT_EQ(nullptr, request);
            }
        }
        EXPECT_EQ(0, memcmp(sent, got, sizeof(sent))) << std::hex << sender_mask;
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
    }
}

/* Hints of a registration, and what a later header may ask for beside. */
TEST(params, hints_of_a_registration_change_nothing)
{
    log_catcher log;
    context context(all_features());
    bytes buffer(10000);
    for (const bool is_allocated : {false, true}) {
        ucp_mem_map_params_t params;
        ucp_mem_h memh = nullptr;
        memset(&params, 0xee, sizeof(params));
        params.field_mask = LATER | UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                            UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.address    = is_allocated ? nullptr : buffer.data();
        params.length     = buffer.size();
        params.flags      = 0xffff0000u | UCP_MEM_MAP_NONBLOCK | UCP_MEM_MAP_SYMMETRIC_RKEY |
                            (is_allocated ? UCP_MEM_MAP_ALLOCATE : 0);
        ASSERT_EQ(UCS_OK, ucp_mem_map(context.handle(), &params, &memh));
        ucp_mem_attr_t attr;
        attr.field_mask = LATER | UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
        EXPECT_EQ(UCS_OK, ucp_mem_query(memh, &attr));
        EXPECT_EQ(LATER | UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH, attr.field_mask);
        EXPECT_EQ(buffer.size(), attr.length);
        EXPECT_EQ(is_allocated, attr.address != buffer.data());
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(context.handle(), memh));
    }
}

/* ---- operations ---- */

class operation : public variant_test {
protected:
    void SetUp() override
    {
        m_pair.reset(new pair(GetParam(), all_features()));
        ucp_am_handler_param_t handler;
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        handler.id         = 1;
        handler.flags      = UCP_AM_FLAG_PERSISTENT_DATA;
        handler.arg        = this;
        handler.cb         = [](void *arg, const void *, size_t, void *data, size_t,
                        const ucp_am_recv_param_t *) {
            static_cast<operation *>(arg)->m_desc = data;
            return UCS_INPROGRESS;
        };
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_pair->receiver().handle(), &handler));

        ucp_mem_map_params_t params;
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address    = m_memory.data();
        params.length     = m_memory.size();
        ASSERT_EQ(UCS_OK, ucp_mem_map(m_pair->ctx().handle(), &params, &m_memh));
        void *packed;
        size_t length;
        ASSERT_EQ(UCS_OK, ucp_rkey_pack(m_pair->ctx().handle(), m_memh, &packed, &length));
        ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(m_pair->ep(), packed, &m_rkey));
        ucp_rkey_buffer_release(packed);
    }

    void TearDown() override
    {
        ucp_rkey_destroy(m_rkey);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_pair->ctx().handle(), m_memh));
        m_pair.reset();
        variant_test::TearDown();
    }

    uint64_t address() const
    {
        return reinterpret_cast<uintptr_t>(m_memory.data());
    }

    ucp_ep_h reader()
    {
        return GetParam().is_self ? m_pair->ep() : m_pair->ep_back();
    }

    static constexpr size_t LENGTH_MAX = 100000;
    std::unique_ptr<pair> m_pair;
    bytes m_memory = bytes(LENGTH_MAX);
    ucp_mem_h m_memh  = nullptr;
    ucp_rkey_h m_rkey = nullptr;
    void *m_desc      = nullptr; /* what the handler has kept */
};

INSTANTIATE_TEST_SUITE_P(all, operation, testing::ValuesIn(some_variants()), variant_name);

/* UCXX passes a flag of active messages to puts and gets, jucx the kind of memory that is to be
 * found out (by the number of its header), and others set fields of a later one. */
TEST_P(operation, fields_that_do_not_apply_are_not_looked_at)
{
    auto *nobody = reinterpret_cast<void *>(16); /* whoever writes there dies */
    size_t count = 0;
    for (const size_t length : {8ul, LENGTH_MAX}) {
        for (const int kind : {int(UCS_MEMORY_TYPE_HOST), 5, int(UCS_MEMORY_TYPE_UNKNOWN)}) {
            ucp_request_param_t param = send_param(nullptr);
            param.op_attr_mask  = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_USER_DATA |
                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE | (1u << 14) | (1u << 30);
            param.flags         = 1; /* UCP_AM_SEND_FLAG_REPLY, UCP_STREAM_RECV_FLAG_WAITALL, ... */
            param.memory_type   = static_cast<ucs_memory_type_t>(kind);
            ucp_request_param_t send = param; /* a receive has use for this one */
            send.op_attr_mask       |= UCP_OP_ATTR_FIELD_RECV_INFO;
            send.recv_info.tag_info  = static_cast<ucp_tag_recv_info_t *>(nobody);
            param.op_attr_mask      |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
            param.reply_buffer       = nobody;

            const bytes data = pattern(++count, length);
            bytes got(length);
            void *received = ucp_tag_recv_nbx(m_pair->receiver().handle(), got.data(), length, 1,
                                              ~0ull, &param);
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_tag_send_nbx(m_pair->ep(), data.data(), length, 1,
                                                            &send)));
            EXPECT_EQ(UCS_OK, m_pair->wait(received));
            EXPECT_EQ(data, got);

            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_put_nbx(m_pair->ep(), data.data(), length, address(),
                                                       m_rkey, &send)));
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_ep_flush_nbx(m_pair->ep(), &send)));
            EXPECT_EQ(-1, differs(m_memory.data(), length, count));
            got.assign(length, 0);
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_get_nbx(m_pair->ep(), got.data(), length, address(),
                                                       m_rkey, &send)));
            EXPECT_EQ(data, got);

            size_t read = 0;
            got.assign(length, 0);
            received = ucp_stream_recv_nbx(reader(), got.data(), length, &read, &param);
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_stream_send_nbx(m_pair->ep(), data.data(), length,
                                                               &send)));
            EXPECT_EQ(UCS_OK, m_pair->wait(received)); /* 1: all of it */
            EXPECT_EQ(data, got);

            m_desc     = nullptr;
            void *sent = ucp_am_send_nbx(m_pair->ep(), 1, nullptr, 0, data.data(), length, &send);
            m_pair->progress_until([&]() { return m_desc != nullptr; });
            got.assign(length, 0);
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_am_recv_data_nbx(m_pair->receiver().handle(), m_desc,
                                                                got.data(), length, &param)));
            EXPECT_EQ(UCS_OK, m_pair->wait(sent));
            EXPECT_EQ(data, got);

            send.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
            send.datatype      = ucp_dt_make_contig(8);
            const uint64_t one = 1;
            memset(m_memory.data(), 0, 8);
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_atomic_op_nbx(m_pair->ep(), UCP_ATOMIC_OP_ADD, &one,
                                                             1, address(), m_rkey, &send)));
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_worker_flush_nbx(m_pair->sender().handle(), &send)));
            EXPECT_EQ(0, memcmp(&one, m_memory.data(), 8));
        }
    }
}

/* Clients with pools of their own (mercury, legion) give memory for the request of every operation
 * and ask that memory how it has ended, whatever the call returned. */
TEST_P(operation, request_memory_of_the_client)
{
    const size_t size = m_pair->ctx().request_size();
    const auto ask    = [&](const char *what,
                         const std::function<ucs_status_ptr_t(ucp_request_param_t *)> &call,
                         const std::function<void(void *)> &check) {
        for (const uint32_t flag : {0u, uint32_t(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)}) {
            SCOPED_TRACE(testing::Message() << what << " " << flag);
            bytes memory(size + 64, 0x5a);
            ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST | flag);
            param.request             = memory.data() + size;
            const ucs_status_ptr_t ptr = call(&param);
            ASSERT_TRUE((ptr == param.request) || ((ptr == nullptr) && (flag == 0)));
            m_pair->progress_until([&]() { return ucp_request_is_completed(param.request) != 0; });
            for (int again = 0; again < 2; ++again) {
                EXPECT_EQ(UCS_OK, ucp_request_check_status(param.request));
            }
            EXPECT_EQ(bytes(64, 0x5a), bytes(memory.begin() + ptrdiff_t(size), memory.end()));
            check(param.request);
        }
    };
    const auto nothing = [](void *) {};

    for (const size_t length : {8ul, 5000ul, LENGTH_MAX}) {
        const bytes data = pattern(length, length);
        bytes got(length);
        size_t read = 0;
        void *other = nullptr; /* the request of the other side */
        const ucp_request_param_t none = send_param(nullptr);
        const auto end                 = [&]() {
            EXPECT_EQ(UCS_OK, m_pair->wait(other));
            EXPECT_EQ(data, got);
            got.assign(length, 0);
        };
        ucp_request_param_t all = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS);
        all.flags               = UCP_STREAM_RECV_FLAG_WAITALL;

        ask("stream send", [&](ucp_request_param_t *param) {
            other = ucp_stream_recv_nbx(reader(), got.data(), length, &read, &all);
            return ucp_stream_send_nbx(m_pair->ep(), data.data(), length, param);
        }, [&](void *) { end(); });
        for (const bool is_there : {false, true}) {
            ask("stream receive", [&](ucp_request_param_t *param) {
                param->op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                param->flags         = UCP_STREAM_RECV_FLAG_WAITALL;
                if (is_there) {
                    other = ucp_stream_send_nbx(m_pair->ep(), data.data(), length, &none);
                    m_pair->settle();
                }
                void *ptr = ucp_stream_recv_nbx(reader(), got.data(), length, &read, param);
                if (!is_there) {
                    other = ucp_stream_send_nbx(m_pair->ep(), data.data(), length, &none);
                }
                return ptr;
            }, [&](void *request) {
                size_t told = 0;
                EXPECT_EQ(UCS_OK, ucp_stream_recv_request_test(request, &told));
                EXPECT_EQ(length, told);
                end();
            });
        }
        const auto take = [&]() {
            m_pair->progress_until([&]() { return m_desc != nullptr; });
            return std::exchange(m_desc, nullptr);
        };
        ask("am send", [&](ucp_request_param_t *param) {
            other      = nullptr;
            void *ptr  = ucp_am_send_nbx(m_pair->ep(), 1, "head", 4, data.data(), length, param);
            void *desc = take();
            other      = ucp_am_recv_data_nbx(m_pair->receiver().handle(), desc, got.data(), length,
                                              &none);
            return ptr;
        }, [&](void *) { end(); });
        ask("am receive", [&](ucp_request_param_t *param) {
            other = ucp_am_send_nbx(m_pair->ep(), 1, nullptr, 0, data.data(), length, &none);
            return ucp_am_recv_data_nbx(m_pair->receiver().handle(), take(), got.data(), length,
                                        param);
        }, [&](void *) { end(); });
        ask("get", [&](ucp_request_param_t *param) {
            other = nullptr;
            memcpy(m_memory.data(), data.data(), length);
            return ucp_get_nbx(m_pair->ep(), got.data(), length, address(), m_rkey, param);
        }, [&](void *) { end(); });
    }
    uint64_t operand = 2, reply = 0;
    memset(m_memory.data(), 0, 8);
    ask("atomic", [&](ucp_request_param_t *param) {
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param->datatype      = ucp_dt_make_contig(8);
        param->reply_buffer  = &reply;
        return ucp_atomic_op_nbx(m_pair->ep(), UCP_ATOMIC_OP_ADD, &operand, 1, address(), m_rkey,
                                 param);
    }, nothing);
    EXPECT_EQ(2u, reply);
    ask("flush of a worker", [&](ucp_request_param_t *param) {
        return ucp_worker_flush_nbx(m_pair->sender().handle(), param);
    }, nothing);
    ask("close", [&](ucp_request_param_t *param) {
        ucp_ep_h second = m_pair->sender().connect(m_pair->receiver());
        m_pair->sender().forget(second);
        return ucp_ep_close_nbx(second, param);
    }, nothing);
    expect_clean(*m_pair);
}

} // namespace
