/* Halyard: sends of messages: what tagged messages, active messages and streams share.
 *
 * A send that cannot end inside its call has a request: it is sent whole or announced, at once or,
 * where the lane has no room, in its turn from the lane's queue.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_SEND_H
#define UCP_OPS_SEND_H

#include <ucp/core/device.h>
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

/* What the call returns whose message the short path has taken, or failed to send. */
UCS_INLINE ucs_status_ptr_t ucp_send_short_end(ucp_ep_t *ep, const ucp_request_param_t *param,
                                               ucp_request_kind_t kind, ucs_status_t status)
{
    ucs_counter_add(&ep->worker->counters[UCP_COUNT_SENT_AT_ONCE], status == UCS_OK);
    return ucp_request_end_without(param, kind, status);
}

/* May the short path take what the call has not given it before the lock was held? It looks at
 * nothing but what is host memory for certain, and is not for threads that share the worker. */
UCS_INLINE int ucp_send_may_be_short(ucp_ep_t *ep, const void *buffer)
{
    return (ep->worker->lock.enabled || !ucp_worker_is_host(ep->worker, buffer)) &&
           !ucp_device_has(ep->worker, buffer);
}

/* A request for sending count elements, with its datatype started, where the short path has left
 * the message (short_status: UCS_ERR_NO_RESOURCE); the caller sets what belongs to its operation
 * and calls ucp_send_start. NULL with *end_p, what the call returns. */
ucp_request_t *ucp_send_request(ucp_ep_t *ep, const void *buffer, size_t count,
                                const ucp_request_param_t *param, ucp_request_kind_t kind,
                                ucs_status_t short_status, ucs_status_ptr_t *end_p);

/* Sends a message of n pieces, of which the last is the request's data from `offset` on, not
 * contiguous: iov[n - 1].length bytes of it, or (*packed_p) as many as the datatype has given. */
ucs_status_t ucp_send_packed(ucp_request_t *req, unsigned id, const uct_iov_t *iov, unsigned n,
                             size_t offset, size_t *packed_p);

/* Sends a whole message of n pieces, of which the last is all of the request's data: packed, from
 * where it lies (is_zcopy), or copied. */
ucs_status_t ucp_send_whole(ucp_request_t *req, unsigned id, const uct_iov_t *iov, unsigned n);

/* The same on the endpoint's lane where the short path has no request. */
UCS_INLINE ucs_status_t ucp_send_iov(ucp_ep_t *ep, ucp_request_t *req, unsigned id,
                                     const uct_iov_t *iov, unsigned n)
{
    return (req != NULL) ? ucp_send_whole(req, id, iov, n) :
                           ep->am->ops->am_short_iov(ep->am, id, iov, n);
}

/* Sends or queues. extra: bytes that the whole message has besides its first 8 and its payload.
 * Returns what the call returns. */
ucs_status_ptr_t ucp_send_start(ucp_request_t *req, const ucp_request_param_t *param, size_t extra,
                                ucp_send_form_t form);

#endif
