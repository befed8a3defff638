/* Halyard: a seeded mix of all kinds of operations by several threads on two workers that they
 * share (UCS_THREAD_MODE_MULTI): what one has started any other may end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/remote.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <seed.h>
#include <thread>

using namespace ucp_test;

namespace {

constexpr int NUM_THREADS   = 3;
constexpr int NUM_ROUNDS    = 120;
constexpr size_t PART       = 70000; /* of the target's memory, a thread */
constexpr unsigned AM_ID    = 3;
constexpr unsigned REPLY_ID = 4;

std::vector<variant> mix_variants()
{
    std::vector<variant> list;
    for (variant each : some_variants()) {
        each.mode = UCS_THREAD_MODE_MULTI;
        list.push_back(each);
    }
    return list;
}

context_options mix_options()
{
    context_options options;
    options.features = RMA_FEATURES | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP;
    return options;
}

/* An active message that its handler has kept. */
struct kept_message {
    void *data;
    size_t length;
    uint64_t number;
    bool is_announced;
};

class thread_mix : public testing::TestWithParam<variant> {
protected:
    thread_mix()
    {
        for (const unsigned id : {AM_ID, REPLY_ID}) {
            ucp_am_handler_param_t param;
            param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                               UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
            param.id    = id;
            param.flags = (id == AM_ID) ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
            param.cb    = (id == AM_ID) ? on_message : on_reply;
            param.arg   = this;
            worker &on  = (id == AM_ID) ? m_pair.receiver() : m_pair.sender();
            EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(on.handle(), &param));
        }
        if (!m_is_self) {
            (void)m_pair.ep_back();
        }
        for (int t = 0; t < NUM_THREADS; ++t) { /* the n-th ones of the two sides are a pair */
            m_eps.push_back(m_pair.sender().connect(m_pair.receiver()));
            m_back.push_back(m_is_self ? m_eps.back() :
                                         m_pair.receiver().connect(m_pair.sender()));
            m_keys.push_back(std::make_unique<key>(m_eps.back(), m_memory.packed()));
        }
    }

    ~thread_mix() override
    {
        m_keys.clear();
    }

    /* The handler is called with the worker's lock held, and calls back in. */
    static ucs_status_t on_message(void *arg, const void *header, size_t, void *data,
                                   size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<thread_mix *>(arg);
        kept_message message{data, length, 0, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0};
        memcpy(&message.number, header, sizeof(message.number));
        const ucp_request_param_t reply_param = send_param(nullptr);
        void *reply = ucp_am_send_nbx(param->reply_ep, REPLY_ID, nullptr, 0, nullptr, 0,
                                      &reply_param);
        if (UCS_PTR_IS_PTR(reply)) {
            ucp_request_free(reply);
        }
        std::lock_guard<std::mutex> guard(self->m_lock);
        self->m_kept.push_back(message);
        return UCS_INPROGRESS;
    }

    static ucs_status_t on_reply(void *arg, const void *, size_t, void *, size_t,
                                 const ucp_am_recv_param_t *)
    {
        ++static_cast<thread_mix *>(arg)->m_replies;
        return UCS_OK;
    }

    ucp_worker_h sender()
    {
        return m_pair.sender().handle();
    }
    ucp_worker_h receiver()
    {
        return m_pair.receiver().handle();
    }
    void progress()
    {
        ucp_worker_progress(sender());
        ucp_worker_progress(receiver());
        std::this_thread::yield();
    }
    /* Without a deadline of its own: the test's watcher has one. */
    ucs_status_t end(void *request)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_RAW_STATUS(request);
        }
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress();
        }
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }
    void expect_ok(void *request)
    {
        m_num_wrong += (end(request) != UCS_OK);
    }

    void tagged(int t, uint64_t number, size_t length, bool is_sync)
    {
        const ucp_request_param_t param = send_param(nullptr);
        const bytes data                = pattern(number, length);
        bytes buffer(length);
        void *received =
            ucp_tag_recv_nbx(receiver(), buffer.data(), length, number, ~0ull, &param);
        void *sent = is_sync ? ucp_tag_send_sync_nbx(m_eps[t], data.data(), length, number, &param)
                             : ucp_tag_send_nbx(m_eps[t], data.data(), length, number, &param);
        expect_ok(received);
        expect_ok(sent);
        m_num_wrong += (buffer != data);
    }

    /* Found by a probe, and taken out by it. */
    void probed(int t, uint64_t number, size_t length)
    {
        const ucp_request_param_t param = send_param(nullptr);
        const bytes data                = pattern(number, length);
        bytes buffer(length);
        void *sent = ucp_tag_send_nbx(m_eps[t], data.data(), length, number, &param);
        ucp_tag_recv_info_t info;
        ucp_tag_message_h message;
        while ((message = ucp_tag_probe_nb(receiver(), number, ~0ull, 1, &info)) == nullptr) {
            progress();
        }
        expect_ok(ucp_tag_msg_recv_nbx(receiver(), buffer.data(), info.length, message, &param));
        expect_ok(sent);
        m_num_wrong += (info.length != length) || (buffer != data);
    }

    /* Messages that are kept are taken in by whichever thread comes next. */
    void active(int t, uint64_t number, size_t length)
    {
        ucp_request_param_t param = send_param(nullptr);
        const bytes data          = pattern(number, length);
        param.op_attr_mask       |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags               = UCP_AM_SEND_FLAG_REPLY;
        void *sent = ucp_am_send_nbx(m_eps[t], AM_ID, &number, sizeof(number), data.data(), length,
                                     &param);
        ++m_messages;
        while (UCS_PTR_IS_PTR(sent) && (ucp_request_check_status(sent) == UCS_INPROGRESS)) {
            progress();
            take_in(t);
        }
        expect_ok(sent);
        take_in(t);
    }

    void take_in(int t)
    {
        kept_message message;
        {
            std::lock_guard<std::mutex> guard(m_lock);
            if (m_kept.empty()) {
                return;
            }
            message = m_kept.back();
            m_kept.pop_back();
        }
        ++m_taken;
        bytes buffer(message.length);
        if (!message.is_announced && (t == 0)) {
            memcpy(buffer.data(), message.data, message.length);
            ucp_am_data_release(receiver(), message.data);
        } else {
            const ucp_request_param_t param = send_param(nullptr);
            expect_ok(ucp_am_recv_data_nbx(receiver(), message.data, buffer.data(), buffer.size(),
                                           &param));
        }
        m_num_wrong += (differs(buffer.data(), message.length, message.number) >= 0);
    }

    void stream(int t, uint64_t number, size_t length)
    {
        ucp_request_param_t param = send_param(nullptr);
        const bytes data          = pattern(number, length);
        bytes buffer(length);
        size_t got           = 0;
        void *sent           = ucp_stream_send_nbx(m_eps[t], data.data(), length, &param);
        param.op_attr_mask  |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags          = UCP_STREAM_RECV_FLAG_WAITALL;
        expect_ok(ucp_stream_recv_nbx(m_back[t], buffer.data(), length, &got, &param));
        expect_ok(sent);
        m_num_wrong += (buffer != data);
    }

    /* The second put comes behind the first, then is read back. */
    void one_sided(int t, uint64_t number, size_t length)
    {
        const ucp_request_param_t param = send_param(nullptr);
        const uint64_t remote           = m_memory.address(t * PART);
        const bytes first = pattern(number, length), second = pattern(number + 1, length);
        bytes buffer(length);
        void *puts[2];
        puts[0] = ucp_put_nbx(m_eps[t], first.data(), length, remote, m_keys[t]->get(), &param);
        m_num_wrong += (ucp_worker_fence(sender()) != UCS_OK);
        puts[1] = ucp_put_nbx(m_eps[t], second.data(), length, remote, m_keys[t]->get(), &param);
        expect_ok((number % 2) ? ucp_ep_flush_nbx(m_eps[t], &param) :
                                 ucp_worker_flush_nbx(sender(), &param));
        expect_ok(puts[0]);
        expect_ok(puts[1]);
        expect_ok(ucp_get_nbx(m_eps[t], buffer.data(), length, remote, m_keys[t]->get(), &param));
        m_num_wrong += (buffer != second);
    }

    void atomic(int t)
    {
        ucp_request_param_t param = send_param(nullptr);
        const uint64_t one        = 1;
        param.op_attr_mask       |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype            = ucp_dt_make_contig(sizeof(one));
        expect_ok(ucp_atomic_op_nbx(m_eps[t], UCP_ATOMIC_OP_ADD, &one, 1,
                                    m_memory.address(NUM_THREADS * PART), m_keys[t]->get(),
                                    &param));
        ++m_added;
    }

    /* An endpoint of a moment, beside those that others use. */
    void another_endpoint(uint64_t number, size_t length)
    {
        ucp_ep_params_t params;
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address  = reinterpret_cast<const ucp_address_t *>(m_address.data());
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        ucp_ep_h ep     = nullptr;
        m_num_wrong    += (ucp_ep_create(sender(), &params, &ep) != UCS_OK);
        const ucp_request_param_t param = send_param(nullptr);
        const bytes data                = pattern(number, length);
        bytes buffer(length);
        void *received =
            ucp_tag_recv_nbx(receiver(), buffer.data(), length, number, ~0ull, &param);
        void *sent = ucp_tag_send_nbx(ep, data.data(), length, number, &param);
        expect_ok(received);
        expect_ok(sent);
        m_num_wrong           += (buffer != data);
        ucp_request_param_t how = param;
        how.op_attr_mask       |= UCP_OP_ATTR_FIELD_FLAGS;
        how.flags               = (number % 2) ? UCP_EP_CLOSE_FLAG_FORCE : 0;
        expect_ok(ucp_ep_close_nbx(ep, &how));
    }

    void memory(int t, size_t length)
    {
        mapping mapped(m_pair.ctx(), length);
        key key(m_eps[t], m_memory.packed());
        m_num_wrong += (key.status() != UCS_OK) || mapped.packed().empty();
    }

    void cancelled(uint64_t number)
    {
        const ucp_request_param_t param = send_param(nullptr);
        uint64_t value;
        void *request = ucp_tag_recv_nbx(receiver(), &value, sizeof(value), number, ~0ull, &param);
        ucp_request_cancel(receiver(), request);
        m_num_wrong += (end(request) != UCS_ERR_CANCELED);
    }

    void round(int t, seeded_random &random, uint64_t number)
    {
        static const size_t lengths[] = {1, 8, 60, 1000, 9000, 30000, PART};
        const size_t length           = lengths[random.below(7)];

        switch (random.below(9)) {
        case 0:
            return tagged(t, number, length, random.one_in(2));
        case 1:
            return probed(t, number, length);
        case 2:
            return active(t, number, length);
        case 3:
            return stream(t, number, length);
        case 4:
            return one_sided(t, number, length);
        case 5:
            return atomic(t);
        case 6:
            return another_endpoint(number, length);
        case 7:
            return memory(t, length);
        default:
            return cancelled(number);
        }
    }

    const bool m_is_self = GetParam().is_self;
    pair m_pair{GetParam(), mix_options()};
    mapping m_memory{m_pair.ctx(), (NUM_THREADS * PART) + sizeof(uint64_t)};
    const bytes m_address = m_pair.receiver().address();
    std::vector<ucp_ep_h> m_eps, m_back;
    std::vector<std::unique_ptr<key>> m_keys;
    std::mutex m_lock;
    std::vector<kept_message> m_kept;
    std::atomic<uint64_t> m_added{0};
    std::atomic<int> m_messages{0}, m_taken{0}, m_replies{0}, m_num_wrong{0};
};

INSTANTIATE_TEST_SUITE_P(all, thread_mix, testing::ValuesIn(mix_variants()), variant_name);

TEST_P(thread_mix, every_kind_of_operation)
{
    std::vector<std::thread> threads;
    std::atomic<int> num_running{NUM_THREADS};

    memset(m_memory.data(), 0, (NUM_THREADS * PART) + sizeof(uint64_t));
    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([this, t, &num_running]() {
            seeded_random random(t + 1);
            for (int i = 0; i < NUM_ROUNDS; ++i) {
                round(t, random, (static_cast<uint64_t>(t) << 32) | i);
            }
            --num_running;
            while ((num_running > 0) || (m_taken < m_messages) || (m_replies < m_messages)) {
                progress();
                take_in(t);
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    EXPECT_EQ(0, m_num_wrong);
    const ucp_request_param_t param = send_param(nullptr);
    EXPECT_EQ(UCS_OK, end(ucp_worker_flush_nbx(sender(), &param)));
    uint64_t sum = 0;
    memcpy(&sum, m_memory.data() + (NUM_THREADS * PART), sizeof(sum));
    EXPECT_EQ(m_added, sum);
    m_pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(sender()));
    EXPECT_EQ(0u, ucp_test_num_requests(receiver()));
    EXPECT_EQ(0u, ucp_test_num_kept(receiver()));
}

} // namespace
