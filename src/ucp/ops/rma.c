/* Halyard: puts and gets, and what atomics share with them: the side that asks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/rma.h>
#include <ucp/protos/piped.h>
#include <ucp/protos/rdma.h>
#include <ucs/debug/log.h>
#include <string.h>

#define UCP_RMA_CHUNK ((size_t)512 * 1024) /* bytes that one turn copies, or asks the peer for */

/* Source and destination may be the same memory. */
UCS_INLINE void ucp_rma_copy(void *dest, const void *src, size_t length)
{
    if (ucs_likely(length <= 16)) {
        ucp_copy(dest, src, length);
    } else {
        memmove(dest, src, length);
    }
}

/* ---- messages ---- */

typedef struct {
    ucp_request_t *req;
    size_t         length; /* bytes of payload that were packed */
} ucp_rma_piece_t;

static size_t ucp_rma_pack_put(void *dest, void *arg, size_t max)
{
    ucp_rma_piece_t *piece = arg;
    ucp_request_t *req     = piece->req;
    ucp_wire_put_t head    = {
        .mem_id    = req->send.recv_id,
        .address   = req->send.remote_addr + req->send.offset,
        .worker_id = ucp_uid_id(req->worker->uid)
    };

    piece->length = ucp_dt_pack(req, req->send.offset, (char *)dest + sizeof(head),
                                ucs_min(max - sizeof(head), req->send.end - req->send.offset));
    if ((req->send.offset + piece->length == req->send.end) || (piece->length == 0)) {
        head.request_id = req->send.id;
    }
    memcpy(dest, &head, sizeof(head));
    return sizeof(head) + piece->length;
}

static ucs_status_t ucp_rma_send_put(ucp_request_t *req, uct_ep_t *lane)
{
    const size_t max      = req->send.peer->proto->lanes.am.max;
    ucp_rma_piece_t piece = {req, 0};
    ucs_status_t status;
    size_t length;

    do {
        length = ucs_min(sizeof(ucp_wire_put_t) + req->send.end - req->send.offset, max);
        status = lane->ops->am_bcopy(lane, UCP_WIRE_PUT, ucp_rma_pack_put, &piece, &length);
        if (status != UCS_OK) {
            return status;
        }
        req->send.offset += piece.length;
    } while ((req->send.offset < req->send.end) && (piece.length > 0));
    return UCS_OK;
}

static ucs_status_t ucp_rma_send_get(ucp_request_t *req, uct_ep_t *lane)
{
    ucp_wire_get_t get = {
        .mem_id     = req->send.recv_id,
        .address    = req->send.remote_addr + req->send.offset,
        .length     = req->send.end - req->send.offset,
        .worker_id  = ucp_uid_id(req->worker->uid),
        .request_id = req->send.id
    };
    uct_iov_t iov = {&get, sizeof(get), NULL};

    return lane->ops->am_short_iov(lane, UCP_WIRE_GET, &iov, 1);
}

static ucs_status_t ucp_rma_send_atomic(ucp_request_t *req, uct_ep_t *lane)
{
    ucp_wire_atomic_t atomic = {
        .mem_id     = req->send.recv_id,
        .address    = req->send.remote_addr,
        .worker_id  = ucp_uid_id(req->worker->uid),
        .request_id = req->send.id,
        .value      = req->send.atomic.value,
        .compare    = req->send.atomic.compare,
        .op         = (uint32_t)req->send.atomic.op,
        .size       = (uint32_t)req->length
    };
    uct_iov_t iov = {&atomic, sizeof(atomic), NULL};

    return lane->ops->am_short_iov(lane, UCP_WIRE_ATOMIC, &iov, 1);
}

ucs_status_t ucp_rma_send(ucp_request_t *req)
{
    uct_ep_t *lane      = req->send.peer->lanes[UCP_LANE_AM];
    ucs_status_t status = ucp_peer_send_hello(req->send.peer); /* it must know whom to answer */

    if (status == UCS_OK) {
        status = (req->kind == UCP_REQUEST_PUT) ? ucp_rma_send_put(req, lane) :
                 (req->kind == UCP_REQUEST_GET) ? ucp_rma_send_get(req, lane) :
                                                  ucp_rma_send_atomic(req, lane);
    }
    if (status == UCS_OK) {
        req->send.step = UCP_SEND_WAIT;
    }
    return status;
}

void ucp_rma_start_messages(ucp_request_t *req)
{
    req->send.step = UCP_SEND_DATA;
    req->copy.late = UCS_OK;
    if (uct_ep_has_pending(req->send.peer->lanes[UCP_LANE_AM]) || (ucp_rma_send(req) != UCS_OK)) {
        ucp_send_queue(req); /* an error too is met again there, outside of the posting call */
    }
}

/* ---- parts ---- */

/* Can this processor copy between its memory and the peer's? */
static int ucp_rma_has_copies(const ucp_request_t *req)
{
    const uct_ep_ops_t *ops;

    if ((req->kind == UCP_REQUEST_ATOMIC) || req->send.to_device ||
        !ucp_peer_can_copy(req->send.peer)) {
        return 0;
    }
    ops = req->send.peer->lanes[UCP_LANE_COPY]->ops; /* has one of the two at least */
    return (req->kind == UCP_REQUEST_PUT) ? (ops->put_zcopy != NULL) : (ops->get_zcopy != NULL);
}

static int ucp_rma_can_copy(const ucp_request_t *req)
{
    return ucp_dt_is_contig(req->datatype) && ucp_rma_has_copies(req);
}

int ucp_rma_can_pipe(const ucp_request_t *req)
{
    return ucp_dt_is_device(req->datatype) && ucp_rma_has_copies(req);
}

static int ucp_rma_copies(const ucp_request_t *req)
{
    return !req->send.by_message && ucp_rma_can_copy(req);
}

/* Messages to a peer that does not listen may wait for long; a blocking call in a callback could
 * not wait at all. */
static int ucp_rma_is_for_messages(ucp_peer_t *peer, uct_ep_t *lane)
{
    const unsigned gate = atomic_load_explicit(&peer->worker->gate, memory_order_relaxed);

    if (ucs_unlikely(lane->state == UCT_EP_IDLE)) { /* for later ones */
        /* Not without a word, see ucp_ep_run_watches. */
        ucp_peer_send_control(peer, UCP_WIRE_HELLO, NULL, 0);
    }
    return (lane->ops->is_attentive != NULL) && !(gate & UCP_GATE_PROGRESSING) &&
           lane->ops->is_attentive(lane);
}

/* The next part, and how it goes. A message and its answer may take a fifth of a system call's time
 * where the peer listens, and of long ones both sides copy at the same time; which is faster is
 * measured. has_answered: the peer listens, for certain. */
static void ucp_rma_begin_part(ucp_request_t *req, int has_answered)
{
    ucp_peer_t *peer = req->send.peer;
    uct_ep_t *lane   = peer->lanes[UCP_LANE_AM];
    size_t length    = req->length - req->send.offset;

    req->send.by_message = 0;
    req->send.end        = req->length;
    if (!ucp_rma_can_copy(req)) {
        return; /* messages do all of it */
    }
    length        = ucs_min(length, UCP_RMA_CHUNK);
    req->send.end = req->send.offset + length;
    if (!has_answered && !ucp_rma_is_for_messages(peer, lane)) {
        return;
    }
    req->held             |= UCP_REQUEST_HOLDS_TURN;
    req->send.part.length  = ucs_max(length, UCP_LEARN_SHORT);
    req->send.by_message   = ucp_proto_learned(peer->proto, (req->kind == UCP_REQUEST_PUT) ?
                                               UCP_LEARNED_PUT : UCP_LEARNED_GET,
                                               uct_ep_is_near(lane), length,
                                               &req->send.part.learn, &req->send.part.turn) ==
                             UCP_WAY_MESSAGES;
}

/* It has moved by the way that was meant for it, or goes on by another. */
static void ucp_rma_end_part(ucp_request_t *req, int is_whole)
{
    if (req->held & UCP_REQUEST_HOLDS_TURN) {
        req->held &= (uint16_t)~UCP_REQUEST_HOLDS_TURN;
        ucp_learn_end(req->send.part.learn, &req->send.part.turn,
                      is_whole ? req->send.part.length : 0);
    }
}

void ucp_rma_part_answered(ucp_request_t *req)
{
    ucp_rma_end_part(req, 1);
    if (req->send.offset == req->length) {
        ucp_request_complete(req, UCS_OK);
    } else {
        req->send.step = UCP_SEND_PUT;
        ucp_rma_begin_part(req, 1);
        ucp_request_add_work(req);
    }
}

ucs_status_t ucp_rma_single_copy(ucp_request_t *req, void *buffer, size_t offset, size_t length)
{
    uct_ep_t *lane  = req->send.peer->lanes[UCP_LANE_COPY];
    uct_iov_t iov   = {buffer, length, NULL};
    uint64_t remote = req->send.remote_addr + offset;

    return (req->kind == UCP_REQUEST_PUT) ?
           lane->ops->put_zcopy(lane, &iov, 1, remote, NULL, NULL) :
           lane->ops->get_zcopy(lane, &iov, 1, remote, NULL, NULL);
}

/* Some of the part through the COPY lane. UCS_ERR_UNSUPPORTED: messages are to do the rest. */
static ucs_status_t ucp_rma_copy_part(ucp_request_t *req)
{
    size_t length = ucs_min(req->send.end - req->send.offset, UCP_RMA_CHUNK);
    ucs_status_t status;

    status = ucp_rma_single_copy(req, (char *)req->buffer + req->send.offset, req->send.offset,
                                 length);
    if (status == UCS_OK) {
        req->send.offset += length;
        if (req->send.offset == req->send.end) {
            ucp_rma_end_part(req, 1);
            if (req->send.offset < req->length) {
                ucp_rma_begin_part(req, 0);
            }
        }
    } else if (status != UCS_ERR_NO_RESOURCE) {
        ucp_rma_end_part(req, 0);
        ucp_peer_copy_failed(req->send.peer, status);
        return UCS_ERR_UNSUPPORTED;
    }
    return (req->send.offset == req->length) ? UCS_OK : UCS_INPROGRESS;
}

/* ---- devices ---- */

/* Memory of a device at the peer, by the DEVICE lane. */
static int ucp_rma_can_device(const ucp_request_t *req, const ucp_rkey_t *rkey)
{
    return (rkey->device != NULL) && (req->kind != UCP_REQUEST_ATOMIC) &&
           ucp_dt_is_block(req->datatype) &&
           (req->send.peer->lanes[UCP_LANE_DEVICE] != NULL) &&
           !req->send.peer->is_device_refused;
}

static void ucp_rma_device_end(ucp_request_t *req, ucs_status_t status)
{
    if (status == UCS_OK) {
        ucp_request_complete(req, UCS_OK);
    } else {
        ucp_rma_start_messages(req);
    }
}

/* Only inside the posting call, since the user may destroy the key after it. 0: not this way. */
static int ucp_rma_device_copy(ucp_request_t *req, const ucp_rkey_t *rkey)
{
    ucs_status_t status;

    if (!ucp_rma_can_device(req, rkey)) {
        return 0;
    }
    req->send.step = UCP_SEND_DEVICE;
    status         = ucp_device_transfer(req, req->send.peer, rkey->device, 0, req->length,
                                         req->send.remote_addr, ucp_rma_device_end);
    if (status == UCS_OK) {
        req->send.step = UCP_SEND_DONE;
        ucp_request_add_work(req);
    } else if (status != UCS_INPROGRESS) {
        ucs_debug("device memory of a peer is not reached directly (%s): it does the copy",
                  ucs_status_string(status));
        return 0;
    }
    return 1;
}

/* ---- the network's reads and writes ---- */

static int ucp_rma_has_device(const ucp_request_t *req)
{
    return req->send.to_device || ucp_dt_is_device(req->datatype);
}

/* Are they faster than messages, or spare copies of a device? */
static int ucp_rma_suits_net(const ucp_request_t *req, const ucp_rkey_t *rkey)
{
    const ucp_peer_t *peer = req->send.peer;
    const size_t min       = peer->proto->rma_min[req->kind == UCP_REQUEST_PUT];

    if (!ucp_rma_has_device(req)) {
        return ucp_dt_is_contig(req->datatype) && (req->length >= min) && !ucp_rma_can_copy(req);
    }
    return ucp_dt_is_block(req->datatype) &&
           (min < SIZE_MAX) && ucp_rdma_reaches(req, peer, req->send.to_device) &&
           !ucp_rma_can_device(req, rkey);
}

/* Prepares them, if they are the way; inside the posting call, since the user may destroy the key
 * after it. 0: they are not. */
static int ucp_rma_prepare_net(ucp_request_t *req, const ucp_rkey_t *rkey, const ucp_mem_t *own)
{
    ucp_peer_t *peer = req->send.peer;
    int is_put       = (req->kind == UCP_REQUEST_PUT);
    const void *packed;
    size_t length;
    unsigned lane;

    if ((rkey->net == NULL) || (req->kind == UCP_REQUEST_ATOMIC) ||
        (peer->lanes[UCP_LANE_AM]->state != UCT_EP_LIVE) || !ucp_rma_suits_net(req, rkey)) {
        return 0;
    }
    packed = ucp_rkey_net(rkey, peer->lane_tl[UCP_LANE_AM], &length);
    if ((packed == NULL) || !ucp_rdma_register(req, peer, own, req->length, 0) ||
        !ucp_rdma_set_key(req, peer, UCP_LANE_AM, packed, length)) {
        return 0;
    }
    for (lane = UCP_LANE_RAIL; !is_put && (lane < UCP_LANE_LAST); ++lane) {
        packed = (peer->lanes[lane] == NULL) ? NULL :
                 ucp_rkey_net(rkey, peer->lane_tl[lane], &length);
        if (packed != NULL) {
            (void)ucp_rdma_set_key(req, peer, lane, packed, length);
        }
    }
    return 1;
}

static void ucp_rma_net_ended(ucp_request_t *req, ucs_status_t status)
{
    size_t rest = req->length - req->send.offset;

    if ((status != UCS_OK) && ucp_rdma_goes_on_without_rails(req)) {
        return;
    }
    if (status != UCS_OK) {
        /* what the key does not allow says nothing of devices */
        if (ucp_rma_has_device(req) && (status != UCS_ERR_UNSUPPORTED)) {
            ucp_rdma_refuse_devices(req->send.peer, status);
        }
        ucs_debug("%zu bytes of a peer's memory are not reached directly: %s: messages do it", rest,
                  ucs_status_string(status));
        ucp_rma_start_messages(req);
        return;
    }
    req->send.offset += req->copy.length;
    if (req->send.offset < req->length) {
        ucp_request_add_work(req);
    } else {
        ucp_request_complete(req, UCS_OK);
    }
}

/* ---- turns ---- */

void ucp_rma_work(ucp_request_t *req)
{
    ucs_status_t status = UCS_ERR_UNSUPPORTED;

    if (req->send.step == UCP_SEND_DONE) {
        ucp_request_complete(req, UCS_OK);
        return;
    }
    if (req->send.step == UCP_SEND_FENCED) {
        --req->send.peer->num_fenced;
        req->send.step = UCP_SEND_PUT;
        ucp_rma_begin_part(req, 0);
        if (!(req->held & UCP_REQUEST_HOLDS_MEM) && ucp_rma_piped_start(req)) {
            return;
        }
    }
    if (req->held & UCP_REQUEST_HOLDS_CHUNKS) {
        ucp_piped_turn(req);
        return;
    }
    if (ucs_unlikely((req->held & UCP_REQUEST_HOLDS_MEM) && (req->copy.first.rkey != NULL))) {
        ucp_rdma_part(req, req->send.peer, req->send.offset, req->length - req->send.offset,
                      req->send.remote_addr + req->send.offset, ucp_rma_net_ended);
        return;
    }
    if (ucp_rma_copies(req)) {
        status = ucp_rma_copy_part(req);
    }
    if (status == UCS_INPROGRESS) {
        ucp_request_add_work(req);
    } else if (status == UCS_OK) {
        ucp_request_complete(req, UCS_OK);
    } else {
        ucp_rma_start_messages(req);
    }
}

/* ---- posting ---- */

ucs_status_t ucp_rma_put_result(ucp_request_t *req, const void *value)
{
    if (ucs_likely(!ucp_device_has(req->worker, req->buffer))) {
        memcpy(req->buffer, value, req->length);
        return UCS_OK;
    }
    return ucp_device_copy(req->worker, req->buffer, value, req->length);
}

/* All of it on mapped memory. */
static ucs_status_t ucp_rma_direct(ucp_request_t *req, char *ptr)
{
    size_t offset = 0;
    size_t part;
    uint64_t old;
    ucs_status_t status;

    switch (req->kind) {
    case UCP_REQUEST_ATOMIC:
        status = uct_atomic_apply(ptr, req->send.atomic.op, (unsigned)req->length,
                                  req->send.atomic.value, req->send.atomic.compare, &old);
        return ((status == UCS_OK) && (req->buffer != NULL)) ? ucp_rma_put_result(req, &old) :
                                                               status;
    case UCP_REQUEST_GET:
        if (ucp_dt_is_contig(req->datatype)) {
            ucp_rma_copy(req->buffer, ptr, req->length);
            return UCS_OK;
        }
        return ucp_dt_unpack(req, 0, ptr, req->length);
    default:
        if (ucp_dt_is_contig(req->datatype)) {
            ucp_rma_copy(ptr, req->buffer, req->length);
            return UCS_OK;
        }
        do {
            part    = ucp_dt_pack(req, offset, ptr + offset, req->length - offset);
            offset += part;
        } while ((part > 0) && (offset < req->length));
        return ((offset < req->length) && ucp_dt_has_device(req->datatype)) ? UCS_ERR_IO_ERROR :
                                                                              UCS_OK;
    }
}

ucs_status_t ucp_rma_check(const ucp_worker_t *worker, const void *buffer, size_t length,
                           const ucp_mem_t *own, uint64_t remote_addr, const ucp_rkey_t *rkey,
                           unsigned access)
{
    if (!ucp_rkey_covers(rkey, remote_addr, length)) {
        ucs_debug("%zu bytes at 0x%lx are not inside the remote key", length,
                  (unsigned long)remote_addr);
        return UCS_ERR_OUT_OF_RANGE;
    }
    if (rkey->forbidden & access) {
        ucs_debug("the remote key is not for that: its memory was mapped without the access");
        return UCS_ERR_INVALID_ADDR;
    }
    if ((own != NULL) &&
        ((own->context != worker->context) || !ucp_mem_covers(own, (uintptr_t)buffer, length))) {
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

/* What can be done inside the call. UCS_INPROGRESS: something is left. */
static ucs_status_t ucp_rma_attempt(ucp_request_t *req, ucp_rkey_t *rkey, ucp_rkey_class_t kind,
                                    uint64_t fence_sn)
{
    void *ptr;

    if (req->length == 0) {
        return UCS_OK;
    }
    if (fence_sn != 0) {
        return UCS_INPROGRESS;
    }
    ucp_rkey_map(rkey);
    ptr = ucp_rkey_local(rkey, kind, req->send.remote_addr, req->length);
    if ((ptr != NULL) && !ucp_rma_can_pipe(req) && /* else it would wait for a device */
        !ucp_rma_is_behind_atomics(req)) {
        return ucp_rma_direct(req, ptr);
    }
    ucp_rma_begin_part(req, 0);
    if ((req->length <= UCP_RMA_CHUNK) && ucp_rma_copies(req) &&
        (ucp_rma_copy_part(req) == UCS_OK)) {
        return UCS_OK;
    }
    return UCS_INPROGRESS;
}

static ucs_status_ptr_t ucp_rma_leave_in_flight(ucp_request_t *req, const ucp_rkey_t *rkey,
                                                const ucp_mem_t *own, uint64_t fence_sn,
                                                int is_done)
{
    ucs_status_t status = UCS_OK;
    int is_net;

    if (!is_done) {
        status = ucs_ptr_map_put(&req->worker->ids, req, &req->send.id);
    }
    if (status != UCS_OK) {
        return ucp_request_end_immediately(req, status);
    }
    ucp_ep_track(req->send.ep, req);
    ucp_rma_count(req, 1);
    if (is_done) {
        req->send.step = UCP_SEND_DONE;
        ucp_request_add_work(req);
        return ucp_request_handle(req);
    }
    req->held |= UCP_REQUEST_HOLDS_ID;
    is_net     = ucp_rma_prepare_net(req, rkey, own);
    if (fence_sn != 0) {
        ucp_rma_wait_for(req, fence_sn);
    } else if (is_net || ucp_rma_copies(req)) {
        req->send.step = UCP_SEND_PUT;
        ucp_request_add_work(req);
    } else if (!ucp_rma_device_copy(req, rkey) && !ucp_rma_piped_start(req)) {
        ucp_rma_start_messages(req);
    }
    return ucp_request_handle(req);
}

static ucs_status_ptr_t ucp_rma_post_locked(ucp_ep_t *ep, ucp_request_kind_t kind, void *buffer,
                                            size_t count, uint64_t remote_addr, ucp_rkey_t *rkey,
                                            const ucp_request_param_t *param, const ucp_amo_t *amo)
{
    ucp_worker_t *worker       = ep->worker;
    uint32_t mask              = param->op_attr_mask;
    ucp_datatype_t datatype    = (amo != NULL) ? ucp_dt_make_contig(1) : ucp_dt_of(param);
    ucp_rkey_class_t key_class = (amo == NULL) ? UCP_RKEY_RMA :
                                 (count == 8)  ? UCP_RKEY_AMO64 : UCP_RKEY_AMO32;
    unsigned access            = (kind == UCP_REQUEST_PUT) ? UCP_MEM_WRITE :
                                 (kind == UCP_REQUEST_GET) ? UCP_MEM_READ :
                                                             UCP_MEM_READ | UCP_MEM_WRITE;
    const ucp_mem_t *own       = NULL;
    ucs_status_t status;
    ucp_request_t *req;
    uint64_t fence_sn;

    if (ep->peer->status != UCS_OK) {
        return ucp_request_end_without(param, kind, ep->peer->status);
    }
    if (ep->am->state == UCT_EP_FAILED) { /* before progress tells of it */
        return ucp_request_end_without(param, kind, ep->am->status);
    }
    if (!(worker->context->features & ucp_rkey_features[key_class])) {
        return ucp_request_end_without(param, kind, UCS_ERR_UNSUPPORTED);
    }
    req = ucp_request_get(worker, param, kind);
    if (req == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    req->info.sender_tag  = 0;
    req->info.length      = 0;
    req->send.ep          = ep;
    req->send.peer        = ep->peer;
    req->send.recv_id     = rkey->mem_id;
    req->send.remote_addr = remote_addr;
    req->send.to_device   = rkey->is_device;
    req->send.by_message  = 0;
    req->send.offset      = 0;
    if (amo != NULL) {
        req->send.atomic.value   = amo->value;
        req->send.atomic.compare = amo->compare;
        req->send.atomic.op      = amo->op;
    }

    status = ucp_dt_start(req, buffer, count, datatype, kind == UCP_REQUEST_PUT);
    if ((mask & UCP_OP_ATTR_FIELD_MEMH) && (amo == NULL) &&
        ucp_dt_is_block(req->datatype)) {
        own = param->memh;
    }
    if ((status == UCS_OK) && (req->length > 0)) {
        status = ucp_rma_check(worker, buffer, req->length, own, remote_addr, rkey, access);
    }
    fence_sn = ucp_rma_is_open(ep) ? 0 : ucp_rma_fence_of(req);
    if (status == UCS_OK) {
        status = ucp_rma_attempt(req, rkey, key_class, fence_sn);
    }
    if ((status == UCS_INPROGRESS) && (mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) {
        status = UCS_ERR_NO_RESOURCE;
    }
    if (UCS_STATUS_IS_ERR(status) ||
        ((status == UCS_OK) && !(mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL))) {
        return ucp_request_end_immediately(req, status);
    }
    return ucp_rma_leave_in_flight(req, rkey, own, fence_sn, status == UCS_OK);
}

ucs_status_ptr_t ucp_rma_post(ucp_ep_t *ep, ucp_request_kind_t kind, void *buffer, size_t count,
                              uint64_t remote_addr, ucp_rkey_t *rkey,
                              const ucp_request_param_t *param, const ucp_amo_t *amo)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    ptr = ucp_rma_post_locked(ep, kind, buffer, count, remote_addr, rkey, param, amo);
    ucp_worker_unlock(worker);
    return ptr;
}

/* ---- public ---- */

/* Either side a scatter-gather list; rkey is then not to be looked at. */
UCS_INLINE int ucp_rma_is_list(const ucp_request_param_t *param)
{
    return (param->op_attr_mask & UCP_OP_ATTR_FIELD_REMOTE_DATATYPE) ||
           ((ucp_dt_of(param) & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_SGL);
}

UCS_INLINE ucs_status_ptr_t ucp_rma_nbx(ucp_ep_t *ep, int is_put, void *buffer, size_t count,
                                        uint64_t remote_addr, ucp_rkey_t *rkey,
                                        const ucp_request_param_t *param)
{
    void *ptr;

    if (ucs_likely(!(param->op_attr_mask & (UCP_RMA_SLOW_MASK | UCP_OP_ATTR_FIELD_DATATYPE))) &&
        ucs_likely(ucp_rma_is_open(ep))) {
        ptr = ucp_rkey_local(rkey, UCP_RKEY_RMA, remote_addr, count);
        if (ucs_likely(ptr != NULL) && ucs_likely(!ucp_device_has(ep->worker, buffer))) {
            ucp_rma_copy(is_put ? ptr : buffer, is_put ? buffer : ptr, count);
            return NULL;
        }
    }
    if (ucs_unlikely(ucp_rma_is_list(param))) {
        return is_put ? ucp_rma_list_post(ep, buffer, count, param) :
                        ucp_request_end_without(param, UCP_REQUEST_GET, UCS_ERR_UNSUPPORTED);
    }
    return ucp_rma_post(ep, is_put ? UCP_REQUEST_PUT : UCP_REQUEST_GET, buffer, count, remote_addr,
                        rkey, param, NULL);
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    return ucp_rma_nbx(ep, 1, (void *)buffer, count, remote_addr, rkey, param);
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    return ucp_rma_nbx(ep, 0, buffer, count, remote_addr, rkey, param);
}

/* The earlier forms of a put do not end inside their call while something is in flight to the peer.
 * MPICH keeps for each target what the last of them has said, so where that was the end, its local
 * flush would not wait for a get before it. */
ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_param(&param, cb);
    if (!ucp_rma_is_open(ep)) {
        param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    }
    return ucp_put_nbx(ep, buffer, length, remote_addr, rkey, &param);
}

ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_param(&param, cb);
    return ucp_get_nbx(ep, buffer, length, remote_addr, rkey, &param);
}

static const ucp_request_param_t ucp_rma_plain; /* nothing is asked for */

ucs_status_t ucp_rma_forget(ucp_worker_t *worker, ucs_status_ptr_t ptr)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(ptr)) {
        return UCS_PTR_RAW_STATUS(ptr);
    }
    ucp_worker_lock(worker);
    status = ucp_request_check_status(ptr); /* another thread's progress may have ended it */
    ucp_request_free(ptr);
    ucp_worker_unlock(worker);
    return status;
}

ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_t status  = ucp_rma_forget(worker, ucp_put_nbx(ep, buffer, length, remote_addr, rkey,
                                                              &ucp_rma_plain));

    return ((status == UCS_OK) && !ucp_rma_is_open(ep)) ? UCS_INPROGRESS : status;
}

ucs_status_t ucp_get_nbi(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey)
{
    ucp_worker_t *worker = ep->worker;

    return ucp_rma_forget(worker, ucp_get_nbx(ep, buffer, length, remote_addr, rkey,
                                              &ucp_rma_plain));
}

/* Amid the wait the user's error handler may close the endpoint. */
ucs_status_t ucp_put(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_ptr_t ptr = ucp_put_nbx(ep, buffer, length, remote_addr, rkey, &ucp_rma_plain);
    ucs_status_t flushed = UCS_OK;
    ucs_status_t status, unheard;

    if (UCS_PTR_IS_ERR(ptr) || ((ptr == NULL) && ucp_rma_is_open(ep))) {
        return UCS_PTR_RAW_STATUS(ptr);
    }
    ucp_worker_lock(worker);
    ucp_ep_hold(ep);
    ucp_worker_unlock(worker);
    status = ucp_request_wait(worker, ptr);
    ucp_worker_lock(worker);
    unheard = ep->rma_status;
    ucp_worker_unlock(worker);
    if ((status == UCS_OK) && !ep->is_closing && !ucp_rma_is_open(ep)) {
        flushed = ucp_ep_flush(ep);
    }
    ucp_worker_lock(worker);
    /* what this flush has heard of others is for the user's, and so is what it has not */
    if (ep->rma_status == UCS_OK) {
        ep->rma_status = (flushed == UCS_ERR_NO_PROGRESS) ? unheard : flushed;
    }
    ucp_ep_release(ep);
    ucp_worker_unlock(worker);
    return status;
}

ucs_status_t ucp_get(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey)
{
    return ucp_request_wait(ep->worker,
                            ucp_get_nbx(ep, buffer, length, remote_addr, rkey, &ucp_rma_plain));
}
