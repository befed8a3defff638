/* Halyard: two processes with device memory, one of which sends to the other: who of them copies?
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_CUDA_SIDE_H
#define TEST_GTEST_MP_CUDA_SIDE_H

#include "gpu.h"

namespace mp {

constexpr uint64_t TAG = 4;
constexpr unsigned AM_ID = 3;

/* Words of a slot. */
constexpr unsigned ROLE = 0, STEP = 1, COPIES = 2, DONE = 4;

enum { UNKNOWN, SENDER, RECEIVER };

enum class operation { TAG, AM, STREAM };

inline uint64_t calls(const char *name)
{
    return gpu::function<uint64_t(const char *)>("fakecuda_calls")(name);
}

/* Copies of this process between its memory and the other one's; only the driver of the tests
 * counts them. */
inline uint64_t copies()
{
    return is_gpu_real() ? 0 : gpu::function<uint64_t()>("fakecuda_foreign")();
}

/* Calls of a function of the driver, of those from now on the first or all, fail. */
inline void fail(const char *name, bool all)
{
    constexpr int NOT_SUPPORTED = 801;

    gpu::function<void(const char *, uint64_t, int, int)>("fakecuda_fail")(name, 1, NOT_SUPPORTED,
                                                                           all);
}

/* Copies between this process's memory and others' do not end meanwhile. */
inline void hold_copies(bool hold)
{
    gpu::function<void(const char *, int)>("fakecuda_set")("stuck", hold);
}

/* What an active message is received by. */
struct am_target {
    node *n;
    gpu_buffer *buffer;
    ucs_status_ptr_t request; /* of one that has come */
};

inline ucs_status_t on_am(void *arg, const void *, size_t, void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    am_target *target       = static_cast<am_target *>(arg);
    ucp_request_param_t how = {};

    EXPECT_NE(0u, param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    how.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    target->request  = ucp_am_recv_data_nbx(target->n->worker(), data,
                                            target->buffer->place(length), length, &how);
    return UCS_OK;
}

/* One of two processes on the first device, or on a device each. */
class side {
public:
    explicit side(self &me, bool is_apart = false) :
        m_me(me), m_gpu(is_apart ? me.index() : 0), m_node(me)
    {
        ucp_am_handler_param_t handler = {};

        EXPECT_TRUE(m_gpu.is_open()) << m_gpu.problem();
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id  = AM_ID;
        handler.cb  = on_am;
        handler.arg = &m_target;
        EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_node.worker(), &handler));
        m_node.connect_all();
        m_is_sender = memcmp(uid(me.index()).data(), uid(!me.index()).data(), 8) < 0;
        me.own().words[ROLE] = m_is_sender ? SENDER : RECEIVER;
        m_node.barrier();
        /* There are connections in both directions. */
        uint64_t out = 1, in = 0;
        void *request = m_node.send(ep(), &out, sizeof(out), TAG + 1);
        EXPECT_EQ(UCS_OK, m_node.wait(m_node.recv(&in, sizeof(in), TAG + 1)));
        EXPECT_EQ(UCS_OK, m_node.wait(request));
        m_node.barrier();
    }

    bool is_sender() const
    {
        return m_is_sender;
    }

    gpu &g()
    {
        return m_gpu;
    }

    node &n()
    {
        return m_node;
    }

    ucp_ep_h ep() const
    {
        return m_node.ep(!m_me.index());
    }

    slot &other() const
    {
        return m_me.at(!m_me.index());
    }

    /* Until the other process has come so far, without a call of the library. */
    void sleep_until(uint64_t step)
    {
        m_me.waits_for("the other process at step %lu, without progress",
                       static_cast<unsigned long>(step));
        while (other().words[STEP] < step) {
            usleep(100);
        }
    }

    void reach(uint64_t step)
    {
        m_me.own().words[STEP] = step;
    }

    /* Where active messages go; they may come while this side still waits for other things. */
    void use(gpu_buffer &buffer)
    {
        m_target.buffer = &buffer;
    }

    ucs_status_ptr_t post(operation op, gpu_buffer &buffer, size_t length);

private:
    std::vector<uint8_t> uid(unsigned index) const
    {
        ucp_worker_address_attr_t attr = {};
        std::vector<uint8_t> bytes(sizeof(attr.worker_uid));

        attr.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID;
        EXPECT_EQ(UCS_OK, ucp_worker_address_query(
                              reinterpret_cast<ucp_address_t *>(m_me.at(index).address), &attr));
        memcpy(bytes.data(), &attr.worker_uid, bytes.size());
        return bytes;
    }

    self &m_me;
    gpu m_gpu;
    node m_node;
    bool m_is_sender;
    size_t m_received  = 0;
    am_target m_target = {&m_node, nullptr, nullptr};
};

/* A send, or a receive; that of an active message makes progress until its announcement is there.
 */
inline ucs_status_ptr_t side::post(operation op, gpu_buffer &buffer, size_t length)
{
    ucp_request_param_t param = {};

    if (op == operation::TAG) {
        return m_is_sender ? m_node.send(ep(), buffer.place(length), length, TAG) :
                             m_node.recv(buffer.place(length), length, TAG);
    }
    if (op == operation::STREAM) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
        return m_is_sender ?
               ucp_stream_send_nbx(ep(), buffer.place(length), length, &param) :
               ucp_stream_recv_nbx(ep(), buffer.place(length), length, &m_received, &param);
    }
    if (m_is_sender) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags        = UCP_AM_SEND_FLAG_RNDV;
        return ucp_am_send_nbx(ep(), AM_ID, nullptr, 0, buffer.place(length), length, &param);
    }
    m_node.until([&]() { return m_target.request != nullptr; });
    return std::exchange(m_target.request, nullptr);
}

} // namespace mp

#endif
