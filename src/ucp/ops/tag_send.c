/* Halyard: tagged sends.
 *
 * The short path at the top carries the message rate and latency of small messages: a contiguous
 * message that fits is handed to the transport at once. Everything else gets a request.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <ucp/dt/dt.h>
#include <ucp/ops/rma.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <string.h>

/* What the short path does not look at: with these clear, the call has nothing to say but the
 * message. A callback and its user data do not matter where no request is made. */
#define UCP_TAG_SEND_SLOW_MASK \
    (UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL)

/* ---- requests ---- */

/* Makes one attempt at what the request's step says. UCS_ERR_NO_RESOURCE: nothing happened. */
static ucs_status_t ucp_send_attempt(ucp_request_t *req)
{
    if (ucp_request_is_rma(req)) {
        return ucp_rma_send(req);
    }
    switch (req->send.step) {
    case UCP_SEND_EAGER:
        return ucp_eager_send(req);
    case UCP_SEND_RTS:
        return ucp_rndv_send_rts(req);
    default:
        return ucp_rndv_send_data(req);
    }
}

ucs_status_t ucp_send_retry(uct_pending_t *pending)
{
    ucp_request_t *req = ucs_container_of(pending, ucp_request_t, send.pending);
    int is_eager       = (req->send.step == UCP_SEND_EAGER);
    ucs_status_t status;

    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_PENDING;
    status     = ucp_send_attempt(req); /* the request may be gone after pieces were sent */
    if ((status == UCS_ERR_NO_RESOURCE) || (status == UCS_INPROGRESS)) {
        req->held |= UCP_REQUEST_HOLDS_PENDING;
        return status;
    }
    if (status != UCS_OK) {
        ucp_request_complete(req, status);
    } else if (is_eager) {
        if (req->send.is_sync) {
            req->send.step = UCP_SEND_SYNC;
        } else {
            ucp_request_complete(req, UCS_OK);
        }
    }
    return UCS_OK;
}

void ucp_send_queue(ucp_request_t *req)
{
    req->send.pending.func = ucp_send_retry;
    req->held             |= UCP_REQUEST_HOLDS_PENDING;
    uct_ep_pending_add(req->send.peer->lanes[UCP_LANE_AM], &req->send.pending);
}

/* Eager or announced, by the length and by what the datatype allows. */
static ucs_status_t ucp_send_choose(ucp_request_t *req)
{
    const ucp_proto_config_t *proto = req->send.peer->proto;
    size_t sync_head =
        req->send.is_sync ? sizeof(ucp_wire_eager_sync_t) - sizeof(ucp_wire_eager_t) : 0;

    req->send.num_data  = 0;
    req->send.needs_ats = req->send.is_sync;
    req->send.step      = ((ucp_proto_lookup(proto->send, req->length) == UCP_PROTO_EAGER) &&
                      (req->length + sync_head <= proto->eager_max))
                              ? UCP_SEND_EAGER
                              : UCP_SEND_RTS;
    if ((req->send.step == UCP_SEND_RTS) || req->send.is_sync) {
        ucs_status_t status = ucs_ptr_map_put(&req->worker->ids, req, &req->send.id);

        if (status != UCS_OK) {
            return status;
        }
        req->held |= UCP_REQUEST_HOLDS_ID;
    }
    return UCS_OK;
}

static UCS_NOINLINE ucs_status_ptr_t ucp_tag_send_slow(ucp_ep_t *ep, const void *buffer,
                                                       size_t count, ucp_tag_t tag,
                                                       const ucp_request_param_t *param,
                                                       int is_sync)
{
    uint32_t mask = param->op_attr_mask;
    ucs_status_t status;
    ucp_request_t *req;
    int no_immediate = is_sync || (mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL);

    if (ep->peer->status != UCS_OK) {
        return UCS_STATUS_PTR(ep->peer->status);
    }
    req = ucp_request_get(ep->worker, param, UCP_REQUEST_TAG_SEND);
    if (req == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    req->info.sender_tag = tag;
    req->info.length     = 0;
    req->send.ep         = ep;
    req->send.peer       = ep->peer;
    req->send.is_sync    = (uint8_t)is_sync;
    status               = ucp_dt_start(req, (void *)buffer, count, ucp_dt_of(param), 1);
    if (status == UCS_OK) {
        status = ucp_send_choose(req);
    }
    if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    }

    status = UCS_ERR_NO_RESOURCE;
    if (((mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) &&
         (is_sync || (req->send.step != UCP_SEND_EAGER)))) {
        return ucp_request_end_immediately(req, UCS_ERR_NO_RESOURCE);
    }
    if (!uct_ep_has_pending(ep->am)) {
        status = ucp_send_attempt(req);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        if (mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
            return ucp_request_end_immediately(req, UCS_ERR_NO_RESOURCE);
        }
        ucp_ep_track(ep, req);
        ucp_send_queue(req);
    } else if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    } else if ((req->send.step == UCP_SEND_EAGER) && !is_sync) {
        if (!no_immediate) {
            return ucp_request_end_immediately(req, UCS_OK);
        }
        req->send.step = UCP_SEND_DONE;
        ucp_ep_track(ep, req);
        ucp_request_add_work(req);
    } else {
        if (is_sync && (req->send.step == UCP_SEND_EAGER)) {
            req->send.step = UCP_SEND_SYNC;
        }
        ucp_ep_track(ep, req);
    }
    return ucp_request_handle(req);
}

/* ---- public ---- */

static UCS_NOINLINE ucs_status_ptr_t ucp_tag_send_locked(ucp_ep_t *ep, const void *buffer,
                                                         size_t count, ucp_tag_t tag,
                                                         const ucp_request_param_t *param)
{
    ucs_status_ptr_t ptr;

    ucp_worker_lock(ep->worker);
    ptr = ucp_tag_send_slow(ep, buffer, count, tag, param, 0);
    ucp_worker_unlock(ep->worker);
    return ptr;
}

ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t *param)
{
    uct_ep_t *lane = ep->am;
    ucs_status_t status;

    /* short_limit is 0 where the worker has a lock. */
    if (ucs_likely(!(param->op_attr_mask & UCP_TAG_SEND_SLOW_MASK)) &&
        ucs_likely(count < ep->short_limit) && ucs_likely(!uct_ep_has_pending(lane))) {
        status = lane->ops->am_short(lane, UCP_WIRE_EAGER, tag, buffer, count);
        if (ucs_likely(status == UCS_OK)) {
            return NULL;
        }
        if (status != UCS_ERR_NO_RESOURCE) {
            return UCS_STATUS_PTR(status);
        }
    }
    return ucp_tag_send_locked(ep, buffer, count, tag, param);
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t *param)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    ptr = ucp_tag_send_slow(ep, buffer, count, tag, param, 1);
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK,
        .cb.send      = (ucp_send_nbx_callback_t)(void *)cb,
        .datatype     = datatype
    };

    return ucp_tag_send_nbx(ep, buffer, count, tag, &param);
}

ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK,
        .cb.send      = (ucp_send_nbx_callback_t)(void *)cb,
        .datatype     = datatype
    };

    return ucp_tag_send_sync_nbx(ep, buffer, count, tag, &param);
}

ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void *req)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REQUEST,
        .datatype     = datatype,
        .request      = req
    };

    ucs_status_ptr_t ptr = ucp_tag_send_nbx(ep, buffer, count, tag, &param);

    return UCS_PTR_STATUS(ptr);
}
