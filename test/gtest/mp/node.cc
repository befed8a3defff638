/* Halyard: what a process of a test holds of the library.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"

#include <pattern.h>

#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

namespace mp {

/* Calls in vain before others get the processor: some ten microseconds, more than an answer takes
 * from a process that runs. */
static constexpr unsigned IDLE_MAX = 500;

void fill(void *data, size_t length, uint64_t id)
{
    pattern_fill(data, length, id);
}

ssize_t find_difference(const void *data, size_t length, uint64_t id)
{
    return pattern_differs(data, length, id);
}

/* Without a context or a worker a process of a test has nothing to do. */
static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        printf("%s: %s\n", what, ucs_status_string(status));
        fflush(stdout);
        _exit(1);
    }
}

node::node(self &me, ucs_thread_mode_t mode) : m_me(me)
{
    ucp_worker_params_t worker_params = {};
    ucp_params_t params               = {};

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP | UCP_FEATURE_RMA |
                        UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM |
                        UCP_FEATURE_STREAM;
    check(ucp_init(&params, nullptr, &m_context), "ucp_init");

    worker_params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = mode;
    check(ucp_worker_create(m_context, &worker_params, &m_worker), "ucp_worker_create");
}

node::~node()
{
    ucp_worker_destroy(m_worker);
    ucp_cleanup(m_context);
}

void node::publish()
{
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(m_worker, &address, &length), "ucp_worker_get_address");
    if (length > ADDRESS_ROOM) {
        check(UCS_ERR_BUFFER_TOO_SMALL, "address");
    }
    memcpy(m_me.own().address, address, length);
    m_me.own().address_length = static_cast<uint32_t>(length);
    m_me.own().address_serial.fetch_add(1, std::memory_order_release);
    ucp_worker_release_address(m_worker, address);
}

void node::on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ep_errors &errors = static_cast<node *>(arg)->m_errors[ep];

    ++errors.count;
    errors.status = status;
    errors.time_s = now_s();
}

ucp_ep_h node::connect(unsigned index, uint32_t serial)
{
    const slot &there      = m_me.at(index);
    ucp_ep_params_t params = {};
    ucp_ep_h ep;

    m_me.waits_for("the address of process %u", index);
    until([&]() { return there.address_serial.load(std::memory_order_acquire) >= serial; });

    params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address         = reinterpret_cast<const ucp_address_t *>(there.address);
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = on_error;
    params.err_handler.arg = this;
    check(ucp_ep_create(m_worker, &params, &ep), "ucp_ep_create");
    m_eps[index] = ep;
    m_errors[ep] = ep_errors();
    return ep;
}

void node::connect_all()
{
    publish();
    for (unsigned i = 0; i < m_me.count(); ++i) {
        connect(i);
    }
}

void node::close(ucp_ep_h ep, unsigned flags)
{
    ucp_request_param_t param = {};

    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = flags;
    m_me.waits_for("an endpoint to be closed");
    EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nbx(ep, &param)));
}

unsigned node::progress()
{
    const unsigned count = ucp_worker_progress(m_worker);

    m_idle = (count > 0) ? 0 : m_idle + 1;
    if (m_idle >= IDLE_MAX) {
        m_idle = 0;
        sched_yield();
    }
    return count;
}

ucs_status_t node::wait(ucs_status_ptr_t request, ucp_tag_recv_info_t *info)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_RAW_STATUS(request);
    }
    until([&]() { return (status = ucp_request_check_status(request)) != UCS_INPROGRESS; });
    if (info != nullptr) {
        ucp_tag_recv_request_test(request, info);
    }
    ucp_request_free(request);
    return status;
}

ucs_status_ptr_t node::send(ucp_ep_h ep, const void *data, size_t length, uint64_t tag)
{
    const ucp_request_param_t param = {};

    return ucp_tag_send_nbx(ep, data, length, tag, &param);
}

ucs_status_ptr_t node::recv(void *data, size_t length, uint64_t tag, uint64_t mask)
{
    ucp_request_param_t param = {};

    /* Always a request, so that all of them are handled in one way. */
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return ucp_tag_recv_nbx(m_worker, data, length, tag, mask, &param);
}

void node::barrier()
{
    const uint64_t round = ++m_me.own().words[BARRIER_WORD];

    for (unsigned i = 0; i < m_me.count(); ++i) {
        m_me.waits_for("process %u at barrier %u", i, (unsigned)round);
        until([&]() { return m_me.at(i).words[BARRIER_WORD].load() >= round; });
    }
}

} // namespace mp
