/* Halyard: sends of messages: what tagged messages, active messages and streams share.
 *
 * A send that cannot end inside its call has a request: it is sent whole or announced, at once or,
 * where the lane has no room, in its turn from the lane's queue.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_SEND_H
#define UCP_OPS_SEND_H

#include <ucp/core/ep.h>
#include <ucp/dt/dt.h>

typedef enum {
    UCP_SEND_FORM_AUTO,     /* by cost */
    UCP_SEND_FORM_WHOLE,    /* whole, where one message can carry it */
    UCP_SEND_FORM_ANNOUNCED
} ucp_send_form_t;

/* Bytes of a message that the short paths may take, or SIZE_MAX. Memory for a request, a callback
 * and its user data do not matter where no request is made. */
UCS_INLINE size_t ucp_send_short_length(const ucp_request_param_t *param, size_t count)
{
    return ucs_unlikely(param->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) ?
           SIZE_MAX : ucp_dt_contig_length(param, count);
}

/* The parameters of the older forms. */
UCS_INLINE ucp_request_param_t ucp_send_nb_param(ucp_datatype_t datatype, ucp_send_callback_t cb)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK,
        .cb.send      = (ucp_send_nbx_callback_t)(void *)cb,
        .datatype     = datatype
    };
}

/* What the call returns whose message the short path has taken, or failed to send. The user's
 * memory for a request, if there is any, knows it too: clients ask that. */
UCS_INLINE ucs_status_ptr_t ucp_send_short_end(ucp_ep_t *ep, const ucp_request_param_t *param,
                                               ucp_request_kind_t kind, ucs_status_t status)
{
    ucs_counter_add(&ep->worker->counters[UCP_COUNT_SENT_AT_ONCE], status == UCS_OK);
    if (ucs_unlikely(param->op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST)) {
        ucp_request_end_unused(param->request, kind, status);
    }
    return UCS_STATUS_PTR(status);
}

/* A request for sending count elements, with its datatype started; the caller sets what belongs to
 * its operation and calls ucp_send_start. NULL with *error_p, what the call returns. */
ucp_request_t *ucp_send_request(ucp_ep_t *ep, const void *buffer, size_t count,
                                const ucp_request_param_t *param, ucp_request_kind_t kind,
                                ucs_status_ptr_t *error_p);

/* Sends a whole message, of which the last entry is the request's buffer. */
ucs_status_t ucp_send_zcopy(ucp_request_t *req, uct_ep_t *lane, unsigned id, const uct_iov_t *iov,
                            unsigned n);

/* The same where there may be no request. */
UCS_INLINE ucs_status_t ucp_send_iov(ucp_request_t *req, uct_ep_t *lane, unsigned id,
                                     const uct_iov_t *iov, unsigned n)
{
    return ((req != NULL) && req->send.is_zcopy) ? ucp_send_zcopy(req, lane, id, iov, n) :
                                                   lane->ops->am_short_iov(lane, id, iov, n);
}

/* Sends or queues. extra: bytes that the whole message has besides its first 8 and its payload.
 * Returns what the call returns. */
ucs_status_ptr_t ucp_send_start(ucp_request_t *req, const ucp_request_param_t *param, size_t extra,
                                ucp_send_form_t form);

#endif
