/* Halyard: flush and close: implementation, and the public functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/flush.h>
#include <ucp/ops/stream.h>
#include <ucp/protos/rdma.h>
#include <ucs/debug/log.h>

static void ucp_flush_end(ucp_request_t *req, ucs_status_t status)
{
    req->flush.status = status;
    ucs_list_del(&req->list);
    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_LIST;
    ucp_request_add_work(req); /* its callback comes after that of the send */
}

static ucp_flush_of_t ucp_flush_of(ucp_request_kind_t kind)
{
    return (kind == UCP_REQUEST_CLOSE) ? UCP_FLUSH_OF_CLOSE : UCP_FLUSH_OF_FLUSH;
}

/* Control messages that wait for resources, and a flush or close for them. */
static size_t ucp_flush_num_controls(const ucp_worker_t *worker, const ucp_ep_t *ep,
                                     ucp_flush_of_t whose)
{
    const size_t controls = (ep != NULL) ? ep->peer->num_controls : worker->num_controls;
    const size_t answers  = (ep != NULL) ? ep->peer->num_answers : worker->num_answers;

    return (whose == UCP_FLUSH_OF_CLOSE) ? controls : controls - answers;
}

void ucp_flush_send_ended(ucp_worker_t *worker, const ucp_ep_t *ep, const ucp_peer_t *peer,
                          uint64_t sn, ucp_flush_of_t whose)
{
    ucp_request_t *req, *next;
    size_t num_controls;

    ucs_list_for_each_safe(req, next, &worker->flushes, list) {
        if ((sn >= req->flush.sn) || !(whose & ucp_flush_of(req->kind)) ||
            (req->flush.is_rest && (ep != NULL)) ||
            ((req->flush.ep != NULL) &&
             ((ep != NULL) ? (req->flush.ep != ep) : (req->flush.peer != peer)))) {
            continue;
        }
        if (--req->flush.remaining == 0) {
            num_controls = ucp_flush_num_controls(worker, req->flush.ep, ucp_flush_of(req->kind));
            if (!req->flush.is_last && (num_controls > 0)) {
                /* What those sends have left to say (FIN) is part of them. */
                req->flush.is_last   = 1;
                req->flush.is_rest   = 1;
                req->flush.sn        = worker->send_sn;
                req->flush.peer      = (req->flush.ep != NULL) ? req->flush.ep->peer : NULL;
                req->flush.remaining = num_controls;
                continue;
            }
            ucp_flush_end(req, ((req->flush.status != UCS_OK) || (req->flush.ep == NULL)) ?
                                   req->flush.status : req->flush.ep->peer->status);
        }
    }
}

void ucp_flush_rma_failed(const ucp_request_t *rma, ucs_status_t status, int is_unheard)
{
    ucp_ep_t *ep         = rma->send.ep;
    ucp_worker_t *worker = rma->worker;
    int is_told[2]       = {0}; /* by flushes of the worker, of the endpoint */
    ucp_request_t *req;

    ucs_list_for_each(req, &worker->flushes, list) {
        if ((req->kind == UCP_REQUEST_FLUSH) && !req->flush.is_rest &&
            (rma->send.sn < req->flush.sn) && ((req->flush.ep == NULL) || (req->flush.ep == ep))) {
            is_told[req->flush.ep != NULL] = 1;
            if (req->flush.status == UCS_OK) {
                req->flush.status = status;
            }
        }
    }
    if (is_unheard && !is_told[0]) {
        worker->rma_status = status;
    }
    if (is_unheard && !is_told[1]) {
        ep->rma_status = status;
    }
}

/* What a flush of ep (NULL: of the worker) that starts has to tell in any case. */
static ucs_status_t ucp_flush_first_status(const ucp_worker_t *worker, const ucp_ep_t *ep)
{
    if (ep == NULL) {
        return worker->rma_status;
    }
    return (ep->peer->status != UCS_OK) ? ep->peer->status : ep->rma_status;
}

static void ucp_flush_forget_status(ucp_worker_t *worker, ucp_ep_t *ep)
{
    *((ep != NULL) ? &ep->rma_status : &worker->rma_status) = UCS_OK;
}

/* Sends among these of its endpoint that the flush or close waits for. */
static size_t ucp_flush_count(const ucp_request_t *req, const ucs_list_link_t *sends)
{
    const int is_close = (req->kind == UCP_REQUEST_CLOSE);
    ucp_request_t *send;
    size_t count = 0;

    ucs_list_for_each(send, sends, list) {
        count += (send->send.ep == req->flush.ep) &&
                 (is_close ? (send->send.sn < req->flush.sn) :
                             (send->send.flush_sn < req->flush.sn) && !send->send.is_handed);
    }
    return count;
}

void ucp_flush_ep_lost(ucp_ep_t *ep, ucs_status_t status)
{
    ucp_request_t *req, *next;

    ucs_list_for_each_safe(req, next, &ep->worker->flushes, list) {
        if (req->flush.ep != ep) {
            continue;
        }
        req->flush.is_last   = 1;
        req->flush.is_rest   = 0;
        req->flush.peer      = NULL;
        req->flush.remaining = ucp_flush_count(req, &ep->requests) +
                               ucp_flush_count(req, &ep->worker->late);
        if (req->flush.remaining == 0) {
            ucp_flush_end(req, status);
        }
    }
}

/* What the flushes of an endpoint wait for is about to be cancelled. */
static void ucp_flush_cancel_sends(const ucp_ep_t *ep)
{
    ucp_request_t *req;

    ucs_list_for_each(req, &ep->worker->flushes, list) {
        if (req->flush.ep == ep) {
            req->flush.status = UCS_ERR_CANCELED;
        }
    }
}

void ucp_flush_work(ucp_request_t *req)
{
    ucs_status_t status = req->flush.status;

    if (req->kind == UCP_REQUEST_CLOSE) {
        ucp_ep_free(req->flush.ep);
        status = UCS_OK; /* a peer that has gone is no reason not to be closed */
    } else if (req->flush.ep != NULL) {
        --req->flush.ep->num_flushes;
    }
    ucp_request_complete(req, status);
}

/* Starts a flush of ep (NULL: of the worker), or a close of it, which, is_forced, does not wait for
 * the peer, but for copies that go on by themselves, and a moment for who reads. Returns NULL, a
 * request or an error pointer. */
static ucs_status_ptr_t ucp_flush_start(ucp_worker_t *worker, ucp_ep_t *ep,
                                        const ucp_request_param_t *param, ucp_request_kind_t kind,
                                        int is_forced)
{
    ucs_status_t status = (kind == UCP_REQUEST_FLUSH) ? ucp_flush_first_status(worker, ep) : UCS_OK;
    size_t remaining;
    ucp_request_t *req;

    remaining = (ep == NULL) ? worker->num_sends : ep->num_requests;
    if (!is_forced) {
        remaining += ucp_flush_num_controls(worker, ep, ucp_flush_of(kind));
    }
    if (kind == UCP_REQUEST_FLUSH) {
        remaining -= (ep != NULL) ? ep->num_handed : worker->num_handed;
    }
    if ((kind == UCP_REQUEST_CLOSE) && (ep->num_requests == 0) && ep->peer->is_provisional) {
        /* a hand-shake that nothing waits for is given up by a close */
        ucp_flush_ep_lost(ep, UCS_ERR_CANCELED);
        remaining = 0;
    }

    /* The user hears of the end of a flush from progress, so a close behind it ends there, too. */
    if ((remaining == 0) && !(param->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) &&
        ((kind == UCP_REQUEST_FLUSH) || (ep->num_flushes == 0))) {
        if (kind == UCP_REQUEST_CLOSE) {
            ucp_ep_free(ep);
        } else {
            ucp_flush_forget_status(worker, ep);
        }
        return ucp_request_end_without(param, kind, status);
    }

    req = ucp_request_get(worker, param, kind);
    if (req == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    if (kind == UCP_REQUEST_FLUSH) {
        ucp_flush_forget_status(worker, ep);
        if (ep != NULL) {
            ++ep->num_flushes;
        }
    }
    req->flush.ep        = ep;
    req->flush.peer      = ((ep != NULL) && !is_forced) ? ep->peer : NULL;
    req->flush.status    = status;
    req->flush.sn        = worker->send_sn;
    req->flush.remaining = remaining;
    req->flush.is_last   = (uint8_t)is_forced;
    req->flush.is_rest   = 0;
    req->length          = 0;
    if (remaining == 0) {
        ucp_request_add_work(req);
    } else {
        req->held |= UCP_REQUEST_HOLDS_LIST;
        ucs_list_add_tail(&worker->flushes, &req->list);
    }
    return ucp_request_handle(req);
}

/* ---- public ---- */

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    ptr = ucp_flush_start(worker, ep, param, UCP_REQUEST_FLUSH, 0);
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t *param)
{
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    ptr = ucp_flush_start(worker, NULL, param, UCP_REQUEST_FLUSH, 0);
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned flags UCS_UNUSED, ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_param(&param, cb);
    return ucp_ep_flush_nbx(ep, &param);
}

ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned flags UCS_UNUSED,
                                     ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_param(&param, cb);
    return ucp_worker_flush_nbx(worker, &param);
}

ucs_status_t ucp_ep_flush(ucp_ep_h ep)
{
    ucp_worker_t *worker      = ep->worker;
    ucp_request_param_t param = {0};

    return ucp_request_wait(worker, ucp_ep_flush_nbx(ep, &param));
}

ucs_status_t ucp_worker_flush(ucp_worker_h worker)
{
    ucp_request_param_t param = {0};

    return ucp_request_wait(worker, ucp_worker_flush_nbx(worker, &param));
}

/* The user gives up what networks still do for the endpoint, and with the last endpoint to a peer
 * what is read from that: it need not end well, but end. */
static void ucp_flush_give_up(const ucp_ep_t *ep)
{
    ucp_peer_t *peer = ep->peer;
    const ucp_ep_t *other;
    ucp_request_t *req;

    ucs_list_for_each(req, &ep->worker->late, list) {
        if (req->send.ep == ep) {
            ucp_rdma_abandon(req, req->send.peer);
        }
    }
    ucs_list_for_each(other, &peer->eps, peer_list) {
        if ((!other->is_internal || other->is_handed_out) && !other->is_closing) {
            return;
        }
    }
    ucs_list_for_each(req, &peer->recvs, list) {
        if (req->recv.step == UCP_RECV_READ) {
            req->recv.is_given_up = 1;
            ucp_rdma_abandon(req, peer);
        }
    }
    ucs_list_for_each(req, &peer->late, list) {
        ucp_rdma_abandon(req, peer);
    }
}

/* Ends all that the endpoint has under way. The user's callbacks make no progress: what that would
 * deliver may be for requests of this endpoint that have not ended yet. */
static void ucp_flush_end_all(ucp_ep_t *ep)
{
    ucp_worker_t *worker = ep->worker;
    const int was_held   = ucp_worker_hold_progress(worker);

    ucp_flush_cancel_sends(ep);
    ucp_ep_purge(ep, UCS_ERR_CANCELED);
    ucp_stream_purge(ep, UCS_ERR_CANCELED);
    ucp_flush_ep_lost(ep, UCS_ERR_CANCELED); /* those that waited for answers only */
    ucp_worker_release_progress(worker, was_held);
    ucp_flush_give_up(ep);
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    ucp_worker_t *worker = ep->worker;
    uint32_t flags       = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) ? param->flags : 0;
    int is_forced        = (flags & UCP_EP_CLOSE_FLAG_FORCE) != 0;
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    if (ep->is_closing || ep->is_freed) {
        ucs_diag("endpoint '%s' was closed before", ep->name);
        ucp_worker_unlock(worker);
        return ucp_request_end_without(param, UCP_REQUEST_CLOSE, UCS_ERR_NOT_CONNECTED);
    }
    if (is_forced && (ep->err_mode == UCP_ERR_HANDLING_MODE_NONE)) {
        ucp_worker_unlock(worker);
        return ucp_request_end_without(param, UCP_REQUEST_CLOSE, UCS_ERR_INVALID_PARAM);
    }
    ep->is_closing = 1;
    if (is_forced) {
        ucp_flush_end_all(ep);
    }
    ucp_stream_close(ep);
    ptr = ucp_flush_start(worker, ep, param, UCP_REQUEST_CLOSE, is_forced);
    if (UCS_PTR_IS_ERR(ptr)) {
        ep->is_closing = 0; /* no memory: the user may try again */
    }
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = (mode == UCP_EP_CLOSE_MODE_FORCE) ? UCP_EP_CLOSE_FLAG_FORCE : 0
    };

    return ucp_ep_close_nbx(ep, &param);
}

ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep)
{
    return ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH);
}

void ucp_ep_destroy(ucp_ep_h ep)
{
    ucp_worker_t *worker = ep->worker;

    (void)ucp_request_wait(worker, ucp_disconnect_nb(ep));
}
