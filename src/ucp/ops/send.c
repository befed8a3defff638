/* Halyard: sends of messages.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/device.h>
#include <ucp/core/idle.h>
#include <ucp/core/wakeup.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/am.h>
#include <ucp/ops/rma.h>
#include <ucp/ops/send.h>
#include <ucp/ops/stream.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rdma.h>
#include <ucp/protos/rndv.h>
#include <string.h>

#define UCP_SEND_SLOW_TURN 64u /* one in so many is sent though it is slow, see ucp_send_is_fast */

/* What ucp_send_pack is given. */
typedef struct {
    ucp_request_t   *req;
    const uct_iov_t *iov;
    unsigned         n;
    size_t           offset;
    size_t           packed;
} ucp_send_packing_t;

static size_t ucp_send_pack(void *dest, void *arg, size_t max)
{
    ucp_send_packing_t *packing = arg;
    const uct_iov_t *piece      = packing->iov;
    size_t length               = 0;

    for (; piece < packing->iov + packing->n - 1; ++piece) {
        memcpy((char *)dest + length, piece->buffer, piece->length);
        length += piece->length;
    }
    packing->packed = ucp_dt_pack(packing->req, packing->offset, (char *)dest + length,
                                  ucs_min(piece->length, max - length));
    return length + packing->packed;
}

ucs_status_t ucp_send_packed(ucp_request_t *req, unsigned id, const uct_iov_t *iov, unsigned n,
                             size_t offset, size_t *packed_p)
{
    ucp_send_packing_t packing = {req, iov, n, offset, 0};
    uct_ep_t *lane             = req->send.peer->lanes[UCP_LANE_AM];
    size_t length              = ucs_min(uct_iov_length(iov, n),
                                         req->send.peer->proto->lanes.am.max);
    ucs_status_t status;

    status    = lane->ops->am_bcopy(lane, id, ucp_send_pack, &packing, &length);
    *packed_p = packing.packed;
    return status;
}

ucs_status_t ucp_send_whole(ucp_request_t *req, unsigned id, const uct_iov_t *iov, unsigned n)
{
    uct_ep_t *lane = req->send.peer->lanes[UCP_LANE_AM];
    ucs_status_t status;
    size_t packed;

    if (!ucp_dt_is_contig(req->datatype)) {
        return ucp_send_packed(req, id, iov, n, 0, &packed);
    }
    if (!req->send.is_zcopy) {
        return lane->ops->am_short_iov(lane, id, iov, n);
    }
    req->copy.comp = (uct_completion_t){ucp_device_transferred, 1, UCS_OK};
    req->copy.then = ucp_request_complete;
    status         = lane->ops->am_zcopy(lane, id, iov, n, &req->copy.comp);
    if (status == UCS_INPROGRESS) {
        req->held     |= UCP_REQUEST_HOLDS_COPY;
        req->send.step = UCP_SEND_ZCOPY;
        status         = UCS_OK;
    }
    return status;
}

/* Makes one attempt at what the request's step says. UCS_ERR_NO_RESOURCE: nothing happened. */
static ucs_status_t ucp_send_attempt(ucp_request_t *req)
{
    ucs_status_t status;

    if (ucp_request_is_rma(req)) {
        return ucp_rma_send(req);
    }
    status = ucp_peer_send_hello(req->send.peer); /* it must know whom to answer */
    if (status != UCS_OK) {
        return status;
    }
    switch (req->send.step) {
    case UCP_SEND_EAGER:
        return (req->kind == UCP_REQUEST_TAG_SEND) ? ucp_eager_send(req) :
               (req->kind == UCP_REQUEST_AM_SEND)  ? ucp_am_send_eager(req) :
                                                     ucp_stream_send_eager(req);
    case UCP_SEND_RTS:
        return ucp_rndv_send_rts(req);
    default:
        return ucp_rndv_send_data(req);
    }
}

/* A name by which the peer can answer. */
static ucs_status_t ucp_send_take_id(ucp_request_t *req)
{
    ucs_status_t status = UCS_OK;

    if (!(req->held & UCP_REQUEST_HOLDS_ID)) {
        status     = ucs_ptr_map_put(&req->worker->ids, req, &req->send.id);
        req->held |= (status == UCS_OK) ? UCP_REQUEST_HOLDS_ID : 0;
    }
    return status;
}

/* Has the peer said so, or does it not read its stream? */
static int ucp_send_must_announce(const ucp_request_t *req)
{
    return (req->kind == UCP_REQUEST_STREAM_SEND) ? ucp_stream_must_announce(req) :
                                                    ucp_tag_must_announce(req);
}

/* Behind what waits already; on a stream that is not read until progress, which may hear that it
 * has been: only if it has not is the message announced. */
static int ucp_send_must_wait(const ucp_request_t *req)
{
    return uct_ep_has_pending(req->send.ep->am) ||
           ((req->kind == UCP_REQUEST_STREAM_SEND) && (req->send.step == UCP_SEND_EAGER) &&
            ucp_stream_must_announce(req));
}

/* What would go whole is announced; handlers get it whole. */
static void ucp_send_announce(ucp_request_t *req)
{
    req->send.step      = UCP_SEND_RTS;
    req->send.am_flags |= UCP_WIRE_RTS_WHOLE;
}

/* It has gone, whole or as an announcement. */
static void ucp_send_count(const ucp_request_t *req)
{
    ucp_worker_count(req->worker, (req->send.step == UCP_SEND_ZCOPY)     ? UCP_COUNT_SENT_IN_PLACE :
                                  ((req->send.step == UCP_SEND_EAGER) ||
                                   (req->send.step == UCP_SEND_SYNC))    ? UCP_COUNT_SENT_WHOLE :
                                                                           UCP_COUNT_ANNOUNCED);
}

static ucs_status_t ucp_send_retry(uct_pending_t *pending)
{
    ucp_request_t *req = ucs_container_of(pending, ucp_request_t, send.pending);
    ucs_status_t status;
    int is_first;

    if ((req->send.step == UCP_SEND_EAGER) && ucp_send_must_announce(req) &&
        (ucp_send_take_id(req) == UCS_OK)) {
        ucp_send_announce(req);
    }
    is_first   = (req->send.step == UCP_SEND_EAGER) || (req->send.step == UCP_SEND_RTS);
    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_PENDING;
    status     = ucp_send_attempt(req); /* the request may be gone after pieces were sent */
    if ((status == UCS_ERR_NO_RESOURCE) || (status == UCS_INPROGRESS)) {
        req->held |= UCP_REQUEST_HOLDS_PENDING;
        return status;
    }
    if ((status == UCS_OK) && is_first) {
        ucp_send_count(req);
    }
    if (status != UCS_OK) {
        if (req->kind == UCP_REQUEST_STREAM_SEND) { /* what is queued behind it must not follow */
            uct_ep_set_failed(req->send.peer->lanes[UCP_LANE_AM], status);
        }
        ucp_request_complete(req, status);
    } else if (is_first && (req->send.step == UCP_SEND_EAGER)) {
        ucp_request_complete(req, UCS_OK);
    } else if (is_first && ucp_send_waits_for_receiver(req)) {
        ucp_ep_hand_over(req);
    }
    return UCS_OK;
}

void ucp_send_queue(ucp_request_t *req)
{
    req->send.pending.func = ucp_send_retry;
    req->held             |= UCP_REQUEST_HOLDS_PENDING;
    uct_ep_pending_add(req->send.peer->lanes[UCP_LANE_AM], &req->send.pending);
    ucp_wakeup_rouse(req->worker);
}

void ucp_send_unqueue(ucp_request_t *req)
{
    if (req->held & UCP_REQUEST_HOLDS_PENDING) {
        uct_ep_pending_remove(req->send.peer->lanes[UCP_LANE_AM], &req->send.pending);
        req->held &= (uint16_t)~UCP_REQUEST_HOLDS_PENDING;
    }
}

/* Would its sender copy it in that time? By how fast such messages went lately. */
static int ucp_send_takes_at_most(const ucp_request_t *req, float ns)
{
    return (float)req->length <= ns * req->send.peer->whole_rate;
}

/* Does the receiver of a tagged message not just wait for it, for all that is known? No longer one
 * has come from it since the last one to it (of those that the short path does not send), or we
 * wait for messages, too; see UCP_PROTO_UNASKED_MAX. Synchronous ones wait for the receiver
 * anyway. */
static int ucp_send_is_unasked(const ucp_request_t *req)
{
    const int is_unanswered = req->send.peer->is_unanswered;
    const size_t receiving  = ucp_worker_num_receiving(req->worker);
    const size_t peers      = ucs_hash_size(&req->worker->peers);
    const size_t crowd      = ucp_worker_num_posted(req->worker) + req->worker->num_reading;
    const size_t to_all     = (crowd <= peers) ? crowd : 0; /* at most one of each */
    const int is_pair       = (peers <= UCP_PROTO_UNASKED_PAIR);
    const int is_long       = (req->length > UCP_PROTO_UNASKED_MOST);

    if ((req->kind != UCP_REQUEST_TAG_SEND) || (req->length > UCP_PROTO_UNASKED_MAX) ||
        req->send.is_sync || (to_all > UCP_PROTO_UNASKED_CROWD)) {
        return 0;
    }
    if ((req->length <= UCP_PROTO_UNASKED_ANY) ||
        (!is_long && ucp_send_takes_at_most(req, UCP_PROTO_UNASKED_ANY_NS))) {
        return is_unanswered || (receiving > 0);
    }
    if (receiving == 0) {
        return is_unanswered && !(is_long && is_pair);
    }
    if (receiving == 1) {
        return !is_unanswered && !is_long && !is_pair;
    }
    return to_all > UCP_PROTO_UNASKED_FEW;
}

/* Has the receiver found that tagged messages as long as this one had better go whole? */
static int ucp_send_is_wanted_whole(const ucp_request_t *req)
{
    ucp_peer_t *peer = req->send.peer;

    if ((req->kind != UCP_REQUEST_TAG_SEND) || req->send.is_sync || (peer->whole_left == 0) ||
        (req->length > peer->whole_max)) {
        return 0;
    }
    --peer->whole_left;
    return 1;
}

/* Would it take its sender no longer than to wait for a receiver that is at something else? Once in
 * a while one goes to see. */
static int ucp_send_is_fast(const ucp_request_t *req)
{
    return ucp_send_takes_at_most(req, UCP_PROTO_UNASKED_NS) ||
           ((++req->send.peer->num_slow % UCP_SEND_SLOW_TURN) == 0);
}

/* With more processes than processors: does it take less time whole, which waits for nobody, than
 * announced, for which both sides have to run? See UCP_PROTO_UNASKED_MAX. */
static int ucp_send_suits_shared(const ucp_request_t *req)
{
    return req->length <= ((ucp_worker_num_receiving(req->worker) > 1) ? UCP_PROTO_UNASKED_ANY :
                                                                       UCP_PROTO_UNASKED_MOST);
}

/* An active message, which a handler takes where it lies, or one of several sends on a stream,
 * whose receiver need not wait for it: announced ones save less than they cost; see
 * UCP_PROTO_LIGHT_MAX. */
static int ucp_send_is_light(const ucp_request_t *req)
{
    const int is_light = (req->kind == UCP_REQUEST_AM_SEND) ||
                         ((req->kind == UCP_REQUEST_STREAM_SEND) && ucp_stream_is_busy(req));

    return is_light && (req->length <= UCP_PROTO_LIGHT_MAX) &&
           (req->send.peer->proto->rndv_thresh == UCS_CONFIG_AUTO_SIZE) &&
           !ucp_dt_has_device(req->datatype);
}

/* May a message of `size` bytes with all that is sent beside it go as a long one of the lane? It
 * waits for nobody, while to announce it both sides have to run, twice the receiver's: that takes
 * longer with more processes than processors, and where the receiver is at something else (steps of
 * collective operations, whose next ones wait for it). Where two only wait for each other an
 * announced message takes less, whose parts are copied on both sides at the same time. */
static int ucp_send_suits_long(const ucp_request_t *req, size_t size)
{
    uct_ep_t *lane      = req->send.peer->lanes[UCP_LANE_AM];
    const size_t thresh = req->send.peer->proto->rndv_thresh;

    if ((lane->ops->long_max == NULL) || !ucp_dt_is_contig(req->datatype) ||
        (req->length > UCP_WIRE_EAGER_MAX) || (size > lane->ops->long_max(lane))) {
        return 0;
    }
    return (thresh != UCS_CONFIG_AUTO_SIZE) ? (req->length < thresh) :
           ucp_send_is_light(req) ||
           (ucp_idle_is_shared(req->worker) ? ucp_send_suits_shared(req) :
            ucp_send_is_wanted_whole(req) ||
            (req->worker->idle.is_crowded && ucp_send_suits_shared(req)) ||
            (ucp_send_is_unasked(req) && ucp_send_is_fast(req)));
}

/* Who is not connected to us reads nothing before we have let it in: what one message carries does
 * not wait for that, since we may not listen until it has been received. */
static int ucp_send_is_to_stranger(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;

    return !peer->is_heard && peer->proto->lanes.has_sync &&
           (peer->proto->rndv_thresh == UCS_CONFIG_AUTO_SIZE) && !ucp_dt_has_device(req->datatype);
}

/* Is a whole message sent from where it lies? */
static int ucp_send_is_zcopy(const ucp_request_t *req, uint32_t mask)
{
    return (req->length >= req->send.peer->proto->zcopy_min) && !req->send.is_sync &&
           ucp_dt_is_contig(req->datatype) && !(req->held & UCP_REQUEST_HOLDS_STAGE) &&
           !(mask & (UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FLAG_FAST_CMPL));
}

/* Whole or announced, by the length and by what the datatype allows. */
static ucs_status_t ucp_send_choose(ucp_request_t *req, size_t extra, ucp_send_form_t form)
{
    const ucp_proto_config_t *proto = req->send.peer->proto;
    ucs_status_t status;
    int fits = (req->length <= proto->eager_max) && (req->length + extra <= proto->eager_max);
    int is_whole = (form != UCP_SEND_FORM_ANNOUNCED) &&
                   ((fits && ((form == UCP_SEND_FORM_WHOLE) ||
                              (ucp_proto_lookup(proto->send, req->length) == UCP_PROTO_EAGER) ||
                              ucp_send_is_light(req) || ucp_send_is_to_stranger(req))) ||
                    ucp_send_suits_long(req, sizeof(ucp_wire_eager_sync_t) + req->length + extra));
    int is_held  = is_whole && ucp_tag_must_announce(req);

    if (ucs_unlikely(ucp_dt_has_device(req->datatype)) && (form != UCP_SEND_FORM_ANNOUNCED) &&
        !is_held) {
        if (fits && ((form == UCP_SEND_FORM_WHOLE) ||
                     !(ucp_rndv_device_is_way(req) ||
                       (!is_whole && ucp_dt_is_device(req->datatype) &&
                        ucp_rdma_reaches(req, req->send.peer, 0))))) {
            status = ucp_device_stage(req);
            if (status != UCS_OK) {
                return status;
            }
        } else {
            is_whole = 0;
        }
    }
    if ((req->kind == UCP_REQUEST_TAG_SEND) && (req->length >= UCP_SEND_ANSWER_MIN)) {
        req->send.peer->is_unanswered = 1;
    }
    req->send.num_data  = 0;
    req->send.needs_ats = req->send.is_sync;
    req->send.step      = is_whole ? UCP_SEND_EAGER : UCP_SEND_RTS;
    if (ucs_unlikely(is_held)) {
        ucp_send_announce(req);
    }
    return ((req->send.step == UCP_SEND_RTS) || req->send.is_sync) ? ucp_send_take_id(req)
                                                                    : UCS_OK;
}

ucp_request_t *ucp_send_request(ucp_ep_t *ep, const void *buffer, size_t count,
                                const ucp_request_param_t *param, ucp_request_kind_t kind,
                                ucs_status_t short_status, ucs_status_ptr_t *end_p)
{
    ucs_status_t status;
    ucp_request_t *req;

    if (short_status != UCS_ERR_NO_RESOURCE) {
        *end_p = ucp_send_short_end(ep, param, kind, short_status);
        return NULL;
    }
    if (ep->peer->status != UCS_OK) {
        *end_p = ucp_request_end_without(param, kind, ep->peer->status);
        return NULL;
    }
    req = ucp_request_get(ep->worker, param, kind);
    if (req == NULL) {
        *end_p = UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        return NULL;
    }
    req->info.length  = 0;
    req->send.ep      = ep;
    req->send.peer    = ep->peer;
    req->send.is_sync = 0;
    status            = ucp_dt_start(req, (void *)buffer, count, ucp_dt_of(param), 1);
    if (status != UCS_OK) {
        *end_p = ucp_request_end_immediately(req, status);
        return NULL;
    }
    return req;
}

/* The lane has no room: the request waits for its turn. */
static ucs_status_ptr_t ucp_send_enqueue(ucp_request_t *req, const ucp_request_param_t *param)
{
    ucs_status_t status = UCS_OK;

    if (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
        status = UCS_ERR_NO_RESOURCE;
    } else if (req->kind == UCP_REQUEST_AM_SEND) {
        status = ucp_am_keep_header(req);
    }
    if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    }
    ucp_worker_count(req->worker, UCP_COUNT_QUEUED);
    ucp_ep_track(req->send.ep, req);
    ucp_send_queue(req);
    return ucp_request_handle(req);
}

ucs_status_ptr_t ucp_send_start(ucp_request_t *req, const ucp_request_param_t *param, size_t extra,
                                ucp_send_form_t form)
{
    ucp_ep_t *ep        = req->send.ep;
    uint32_t mask       = param->op_attr_mask;
    ucs_status_t status = ucp_send_choose(req, extra, form);

    if ((status == UCS_OK) && (mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) &&
        (req->send.is_sync || (req->send.step != UCP_SEND_EAGER))) {
        status = UCS_ERR_NO_RESOURCE;
    }
    if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    }
    req->send.is_zcopy = (req->send.step == UCP_SEND_EAGER) && ucp_send_is_zcopy(req, mask);
    status = ucp_send_must_wait(req) ? UCS_ERR_NO_RESOURCE : ucp_send_attempt(req);
    if (status == UCS_ERR_NO_RESOURCE) {
        return ucp_send_enqueue(req, param);
    }
    if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    }
    ucp_send_count(req);
    if ((req->send.step == UCP_SEND_EAGER) && !(mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) {
        return ucp_request_end_immediately(req, UCS_OK);
    }
    if (req->send.step == UCP_SEND_EAGER) {
        req->send.step = UCP_SEND_DONE;
        ucp_request_add_work(req);
    }
    ucp_ep_track(ep, req);
    return ucp_request_handle(req);
}
