/* Halyard: rendezvous, the sender's side.
 *
 * States (ucp_send_step_t): RTS -> WAIT -> PUT (writing, a part a turn) -> DATA (pieces) -> end;
 * which of them are visited is the receiver's choice. The request ends when nothing is left to
 * deliver and, unless an RTR said that none will come, ATS has arrived.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/am.h>
#include <ucp/ops/send.h>
#include <ucp/protos/piped.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>

/* Longest that what is given up waits for its reader, which may wait for a processor. */
#define UCP_RNDV_ANSWER_NS  500000000u
#define UCP_RNDV_PUT_CHUNK  ((size_t)512 * 1024)
#define UCP_RNDV_GRAIN      ((size_t)4096) /* bytes; claims are counted in it */
#define UCP_RNDV_LEAST      2 /* grains that one side takes whole */
#define UCP_RNDV_PIECES     4 /* that one request sends before others have their turn */

static uint32_t ucp_rndv_grains(size_t length)
{
    return (uint32_t)ucs_div_round_up(length, UCP_RNDV_GRAIN);
}

/* Is there a grain that nobody has claimed? */
static int ucp_rndv_is_left(uint64_t word, uint32_t num_grains)
{
    const uint32_t front = (uint32_t)word, back = (uint32_t)(word >> 32);

    return (front < num_grains) && (back < num_grains - front);
}

size_t ucp_rndv_claim(_Atomic uint64_t *word, size_t length, size_t max, int is_sender,
                      size_t *offset_p)
{
    const uint32_t num_grains = ucp_rndv_grains(length);
    const uint32_t most       = (uint32_t)ucs_max(max / UCP_RNDV_GRAIN, (size_t)1);
    uint64_t old              = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t front, back, left, count;

    do {
        front = (uint32_t)old;
        back  = (uint32_t)(old >> 32);
        if (!ucp_rndv_is_left(old, num_grains)) {
            return 0;
        }
        left  = num_grains - front - back;
        count = ucs_min(is_sender ? left : (left + 1) / 2, most);
        if (!is_sender && (left <= UCP_RNDV_LEAST)) {
            count = left; /* not worth two */
        }
        /* The word orders nothing but itself: the data is ordered by the messages. */
    } while (!atomic_compare_exchange_weak_explicit(word, &old,
                                                    old + ((uint64_t)count << (is_sender ? 32 : 0)),
                                                    memory_order_relaxed, memory_order_relaxed));
    *offset_p = (is_sender ? num_grains - back - count : front) * UCP_RNDV_GRAIN;
    return ucs_min(length - *offset_p, count * UCP_RNDV_GRAIN);
}

/* ---- announcement ---- */

/* A word that both sides can claim by, where the receiver may want that. Doing without is always
 * possible. */
static void ucp_rndv_get_sync_word(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    ucp_peer_t *peer = req->send.peer;
    uct_iface_t *am  = peer->lanes[UCP_LANE_AM]->iface;

    if (!(req->held & UCP_REQUEST_HOLDS_SYNC)) {
        if (!peer->proto->lanes.has_sync ||
            (!ucp_proto_has_ways(peer->proto, req->length) &&
             (ucp_proto_lookup(peer->proto->recv, req->length) != UCP_PROTO_RNDV_BOTH)) ||
            (am->tl->iface.sync_alloc(am, &req->send.sync_index, &req->send.sync_word) != UCS_OK)) {
            return;
        }
        req->held |= UCP_REQUEST_HOLDS_SYNC;
    }
    rts->sync_index = req->send.sync_index;
    rts->flags     |= UCP_WIRE_RTS_SYNC;
}

void ucp_rndv_put_sync_word(ucp_request_t *req)
{
    ucp_peer_t *peer = req->send.peer;
    uct_iface_t *am  = peer->lanes[UCP_LANE_AM]->iface;

    /* Whoever has heard of the word and not said that it is done may still claim by it. */
    if (ucs_unlikely(ucp_dt_is_device(req->datatype))) {
        atomic_store_explicit(req->send.sync_word, 0, memory_order_relaxed); /* nothing to claim */
        am->tl->iface.sync_free(am, req->send.sync_index);
    } else if ((req->send.step != UCP_SEND_RTS) && req->send.needs_ats &&
               !ucp_rndv_copies_here(peer)) {
        if (req->send.sync_index < 64) {
            peer->lost_sync |= 1ull << req->send.sync_index;
        } /* else: it is not given out again */
    } else {
        am->tl->iface.sync_free(am, req->send.sync_index);
    }
}

static ucp_worker_tl_t *ucp_rndv_send_tl(const ucp_peer_t *peer)
{
    return &peer->worker->tls[peer->lane_tl[UCP_LANE_AM]];
}

ucs_status_t ucp_rndv_send_rts(ucp_request_t *req)
{
    uct_ep_t *lane     = req->send.peer->lanes[UCP_LANE_AM];
    ucp_wire_rts_t rts = {
        .tag        = req->info.sender_tag,
        .worker_id  = ucp_uid_id(req->worker->uid),
        .request_id = req->send.id,
        .length     = req->length
    };
    uct_iov_t iov[2]   = {{&rts, UCP_WIRE_RTS_LEN, NULL}};
    unsigned id        = UCP_WIRE_RTS;
    unsigned num_iov   = 1;
    ucs_atomic_u64_t *ends;
    ucs_status_t status;

    if (ucp_dt_is_device(req->datatype)) {
        status = ucp_rndv_device_announce(req, &rts);
        if (status != UCS_OK) {
            return status;
        }
        if (!ucp_rndv_device_is_way(req)) {
            ucp_rndv_read_announce(req, &rts);
        }
    } else if (ucp_dt_is_contig(req->datatype) && (req->length > 0)) {
        rts.flags   = UCP_WIRE_RTS_CONTIG | ucp_rndv_device_host_flag(req) |
                      ((ucp_worker_num_receiving(req->worker) > 0) ?
                       UCP_WIRE_RTS_EXCHANGE : 0);
        rts.address = (uintptr_t)req->buffer;
        ucp_rndv_get_sync_word(req, &rts);
        ucp_rndv_read_announce(req, &rts);
    }
    ends = ucp_rndv_send_tl(req->send.peer)->early_ends;
    if ((ends != NULL) && (rts.flags & (UCP_WIRE_RTS_CONTIG | UCP_WIRE_RTS_WRITES))) {
        rts.flags |= UCP_WIRE_RTS_ENDS |
                     ((uint32_t)ucs_atomic_load_relaxed(ends) << UCP_WIRE_RTS_ENDS_SHIFT);
    }
    iov[0].length = ucp_wire_rts_length(rts.flags);
    if (req->kind == UCP_REQUEST_AM_SEND) {
        id         = UCP_WIRE_AM_RTS;
        rts.tag    = ucp_am_word(req);
        rts.flags |= req->send.am_flags;
        iov[1]     = (uct_iov_t){(void *)req->send.header,
                                 ucp_wire_am_head(rts.tag).header_length, NULL};
        num_iov    = (iov[1].length > 0) ? 2 : 1;
    } else if (req->kind == UCP_REQUEST_STREAM_SEND) {
        id      = UCP_WIRE_STREAM_RTS;
        rts.tag = req->send.ep->pair;
    }
    status = lane->ops->am_short_iov(lane, id, iov, num_iov);
    if (status == UCS_OK) {
        req->send.step       = UCP_SEND_WAIT;
        req->send.needs_ats  = 1;
        req->send.num_data   = 0;
        req->send.is_both    = 0;
        req->send.is_suspect = 0;
        req->send.put_bytes  = 0;
    }
    return status;
}

/* ---- delivery ---- */

static void ucp_rndv_send_fin(ucp_request_t *req)
{
    ucp_wire_fin_t fin = {
        .recv_id = req->send.recv_id, .length = req->send.put_bytes};

    if (req->send.put_bytes > 0) {
        ucp_peer_send_control(req->send.peer, UCP_WIRE_FIN, &fin, sizeof(fin));
        req->send.put_bytes = 0;
    }
}

void ucp_rndv_send_end(ucp_request_t *req)
{
    ucs_assert(!(req->held & UCP_REQUEST_HOLDS_PENDING));
    if (req->send.needs_ats) {
        req->send.step = UCP_SEND_WAIT;
        ucp_ep_hand_over(req);
    } else {
        ucp_request_complete(req, UCS_OK);
    }
}

/* *length_p: at most, and then as many as the datatype has given. */
static ucs_status_t ucp_rndv_send_piece(ucp_request_t *req, size_t offset, size_t *length_p)
{
    uct_ep_t *lane       = req->send.peer->lanes[UCP_LANE_AM];
    ucp_wire_data_t head = {.recv_id = req->send.recv_id, .offset = offset};
    uct_iov_t iov[2]     = {{&head, sizeof(head), NULL}, {NULL, *length_p, NULL}};

    if (!ucp_dt_is_contig(req->datatype)) {
        return ucp_send_packed(req, UCP_WIRE_DATA, iov, 2, offset, length_p);
    }
    iov[1].buffer = (char *)req->buffer + offset;
    return lane->ops->am_short_iov(lane, UCP_WIRE_DATA, iov, 2);
}

/* The receiver may read the message as well: where nothing else is left to send a part is claimed,
 * if there is room for it. UCS_ERR_NO_RESOURCE: there is none. */
static ucs_status_t ucp_rndv_claim_data(ucp_request_t *req, size_t piece_max)
{
    _Atomic uint64_t *word = req->send.sync_word;
    uct_ep_t *lane         = req->send.peer->lanes[UCP_LANE_AM];
    size_t offset, length;

    if ((req->send.num_data > 0) || !req->send.is_both) {
        return UCS_OK;
    }
    if ((lane->ops->has_room != NULL) &&
        ucp_rndv_is_left(atomic_load_explicit(word, memory_order_relaxed),
                         ucp_rndv_grains(req->send.end)) &&
        !lane->ops->has_room(lane, piece_max + sizeof(ucp_wire_data_t), UCP_RNDV_PIECES)) {
        return UCS_ERR_NO_RESOURCE;
    }
    length = ucp_rndv_claim(word, req->send.end, UCP_RNDV_PIECES * piece_max, 1, &offset);
    req->send.is_both = (length > 0);
    ucp_rndv_add_data(req, offset, length);
    return UCS_OK;
}

ucs_status_t ucp_rndv_send_data(ucp_request_t *req)
{
    const size_t piece_max = ucp_dt_piece_max(req->send.peer->proto->lanes.am.max -
                                              sizeof(ucp_wire_data_t));
    unsigned count         = 0;
    ucs_status_t status;
    size_t length;

    for (;; ++count) {
        /* What was claimed is sent, since it is nobody else's; then others have their turn, unless
         * it was the last, which the receiver may answer. */
        if ((count >= UCP_RNDV_PIECES) &&
            (req->send.is_both ? (req->send.num_data == 0) && req->send.needs_ats :
                                 (req->send.num_data > 0))) {
            return UCS_INPROGRESS;
        }
        status = ucp_rndv_claim_data(req, piece_max);
        if (status != UCS_OK) {
            return status;
        }
        if (req->send.num_data == 0) {
            break;
        }
        length = ucs_min(piece_max, req->send.data[0].end - req->send.data[0].offset);
        if (ucs_unlikely(req->send.is_suspect) &&
            !ucs_sys_populate((const char *)req->buffer + req->send.data[0].offset, length, 0)) {
            ucp_rndv_send_cancel(req, UCS_ERR_INVALID_ADDR);
            return UCS_ERR_INVALID_ADDR;
        }
        status = ucp_rndv_send_piece(req, req->send.data[0].offset, &length);
        if (status != UCS_OK) {
            return status;
        }
        if (ucs_unlikely(length == 0)) { /* a pack function that has no more to give */
            ucp_rndv_send_cancel(req, UCS_ERR_IO_ERROR);
            return UCS_ERR_IO_ERROR;
        }
        req->send.data[0].offset += length;
        if (req->send.data[0].offset == req->send.data[0].end) {
            req->send.data[0] = req->send.data[1];
            --req->send.num_data;
        }
    }
    ucp_rndv_send_end(req);
    return UCS_OK;
}

/* Queues the pieces behind what already waits; they are sent from progress. */
void ucp_rndv_start_data(ucp_request_t *req)
{
    ucs_status_t status;

    req->send.step = UCP_SEND_DATA;
    if (!uct_ep_has_pending(req->send.peer->lanes[UCP_LANE_AM])) {
        status = ucp_rndv_send_data(req);
        if ((status != UCS_ERR_NO_RESOURCE) && (status != UCS_INPROGRESS)) {
            if (status != UCS_OK) {
                ucp_request_complete(req, status);
            }
            return;
        }
    }
    ucp_send_queue(req);
}

void ucp_rndv_add_data(ucp_request_t *req, size_t offset, size_t length)
{
    if ((length > 0) && (req->send.num_data < ucs_array_size(req->send.data))) {
        req->send.data[req->send.num_data].offset = offset;
        req->send.data[req->send.num_data].end    = offset + length;
        ++req->send.num_data;
    }
}

int ucp_rndv_is_receiver_over(const ucp_peer_t *peer)
{
    uct_ep_t *am = peer->lanes[UCP_LANE_AM];
    ucs_atomic_u64_t *ends;

    return (am->ops->sync_map != NULL) && ((am->ops->sync_map(am, 0, &ends) != UCS_OK) ||
                                           (ucs_atomic_load_acquire(ends) & UCP_WIRE_ENDS_OVER));
}

ucs_status_t ucp_rndv_write(ucp_request_t *req, void *source, size_t offset, size_t length)
{
    uct_ep_t *lane = req->send.peer->lanes[UCP_LANE_COPY];
    uct_iov_t iov  = {source, length, NULL};

    if (ucs_unlikely(ucp_rndv_is_receiver_over(req->send.peer))) {
        return UCS_ERR_INVALID_ADDR;
    }
    return lane->ops->put_zcopy(lane, &iov, 1, req->send.remote_addr + offset, NULL, NULL);
}

void ucp_rndv_put_end(ucp_request_t *req)
{
    ucp_rndv_send_fin(req);
    if (req->send.num_data > 0) {
        ucp_rndv_start_data(req);
    } else {
        ucp_rndv_send_end(req);
    }
}

static void ucp_rndv_put_step(ucp_request_t *req)
{
    size_t offset = req->send.offset;
    size_t length = ucs_min(req->send.end - offset, UCP_RNDV_PUT_CHUNK);
    ucs_status_t status;

    if (req->send.is_both) {
        length = ucp_rndv_claim(req->send.sync_word, req->send.end,
                                ucp_rndv_claim_max(req->send.end), 1, &offset);
        if (length == 0) {
            ucp_rndv_put_end(req);
            return;
        }
    }

    status = ucp_rndv_write(req, (char *)req->buffer + offset, offset, length);
    if (ucs_unlikely(status != UCS_OK)) {
        ucp_peer_copy_failed(req->send.peer, status);
        req->send.is_suspect = 1;
        ucp_rndv_add_data(req, offset, req->send.is_both ? length : req->send.end - offset);
        ucp_rndv_put_end(req);
        return;
    }

    req->send.put_bytes += length;
    req->send.offset    += length;
    if (req->send.is_both) {
        ucp_rndv_send_fin(req); /* the receiver may have the rest, and no turn of ours may follow */
    } else if (req->send.offset == req->send.end) {
        ucp_rndv_put_end(req);
        return;
    }
    ucp_request_add_work(req);
}

void ucp_rndv_send_work(ucp_request_t *req)
{
    if (req->send.step == UCP_SEND_DONE) {
        ucp_request_complete(req, UCS_OK);
    } else if (req->send.step == UCP_SEND_DEVICE) {
        ucp_rndv_device_put(req);
    } else if (req->send.step == UCP_SEND_STAGED) {
        ucp_rndv_staged_go(req);
    } else if (ucs_unlikely(ucp_dt_is_device(req->datatype))) {
        ucp_piped_turn(req);
    } else {
        ucp_rndv_put_step(req);
    }
}

/* ---- a send that ends early ---- */

static void ucp_rndv_tell_cancel(ucp_peer_t *peer, uint64_t send_id, ucs_status_t status,
                                 unsigned flags)
{
    ucp_wire_cancel_t cancel = {.send_id = send_id, .status = status, .flags = flags};

    ucp_peer_send_control(peer, UCP_WIRE_CANCEL, &cancel, sizeof(cancel));
}

int ucp_rndv_is_delivered(const ucp_request_t *req)
{
    return ucp_request_is_send(req) && (req->send.step == UCP_SEND_DATA) && req->send.is_both &&
           (req->send.num_data == 0) && !req->send.needs_ats;
}

/* Does the receiver read the buffer by itself, and no count of ours tells it that the send has
 * ended? By the key of the announcement, or as a process of this node to which messages go over a
 * network. */
static int ucp_rndv_is_read_blindly(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;

    return (req->held & UCP_REQUEST_HOLDS_MEM) ||
           ((peer->lanes[UCP_LANE_AM]->iface->tl->kind == UCT_TL_KIND_NET) &&
            !(req->held & UCP_REQUEST_HOLDS_COPY) &&
            ((peer->lanes[UCP_LANE_COPY] != NULL) || (peer->lanes[UCP_LANE_DEVICE] != NULL)));
}

/* May it be reading? Not once it has asked for the rest as messages. */
static int ucp_rndv_is_read(const ucp_request_t *req)
{
    return ucp_rndv_is_read_blindly(req) && req->send.needs_ats &&
           ((req->send.step == UCP_SEND_WAIT) || (req->send.step == UCP_SEND_DATA)) &&
           !req->send.peer->is_gone && (req->send.peer->status == UCS_OK);
}

/* What is registered stays, since a read of what is not breaks the connection of some providers;
 * and so does the buffer, of which the receiver could take other bytes for the message's. */
static void ucp_rndv_await_reader(ucp_request_t *req, ucs_status_t status)
{
    req->send.step  = UCP_SEND_GIVEN_UP;
    req->held      |= UCP_REQUEST_HOLDS_COPY;
    ucp_rndv_watch(req, UCP_RNDV_ANSWER_NS);
    ucp_rndv_tell_cancel(req->send.peer, req->send.id, status, UCP_WIRE_CANCEL_ASKS);
}

void ucp_rndv_given_up_end(ucp_request_t *req)
{
    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_COPY;
    ucp_request_complete(req, req->copy.late);
}

static ucp_request_t *ucp_rndv_find_given_up(ucp_worker_t *worker, const ucp_peer_t *peer)
{
    ucp_request_t *req;

    ucs_list_for_each(req, &worker->asked, work_list) {
        if (ucp_request_is_send(req) && ((peer == NULL) || (req->send.peer == peer))) {
            return req;
        }
    }
    return NULL;
}

void ucp_rndv_given_up_end_all(ucp_worker_t *worker, const ucp_peer_t *peer)
{
    ucp_request_t *req;

    while ((req = ucp_rndv_find_given_up(worker, peer)) != NULL) {
        ucp_rndv_given_up_end(req);
    }
}

void ucp_rndv_send_cancel(ucp_request_t *req, ucs_status_t status)
{
    ucs_atomic_u64_t *ends;

    if ((req->send.step == UCP_SEND_DEVICE) && (req->held & UCP_REQUEST_HOLDS_COPY)) {
        return; /* see ucp_rndv_ended_late */
    }
    if (ucp_request_is_send(req) &&
        ((req->send.step == UCP_SEND_WAIT) || (req->send.step == UCP_SEND_PUT) ||
         (req->send.step == UCP_SEND_DATA) || (req->send.step == UCP_SEND_DEVICE) ||
         (req->send.step == UCP_SEND_STAGED))) {
        ends = ucp_rndv_send_tl(req->send.peer)->early_ends;
        if (ends != NULL) { /* before the user changes the buffer: receivers may be reading it */
            (void)ucs_atomic_fetch_add(ends, 1);
        }
        if (ucp_rndv_is_read(req)) {
            ucp_rndv_await_reader(req, status);
        } else {
            ucp_rndv_tell_cancel(req->send.peer, req->send.id, status, 0);
        }
    }
}

void ucp_rndv_ended_late(const ucp_request_t *req)
{
    if (ucp_request_is_send(req) && (req->send.step == UCP_SEND_DEVICE)) {
        ucp_rndv_tell_cancel(req->send.peer, req->send.id, req->copy.late, 0);
    } else if (ucp_request_is_recv(req) && (req->recv.step == UCP_RECV_READ) &&
               !ucs_list_is_empty(&req->list)) { /* else the peer is no more */
        ucp_rndv_answer(req->recv.peer, req->recv.send_id, req->copy.late);
    }
}

/* ---- answers of the receiver ---- */

ucp_request_t *ucp_rndv_find_send(ucp_worker_t *worker, uint64_t id, const char *what)
{
    ucp_request_t *req = ucs_ptr_map_get(&worker->ids, id);

    if ((req == NULL) || !ucp_request_is_send(req) || !ucp_peer_is_sender(req->send.peer)) {
        ucs_debug("%s for a send that has ended: dropped", what);
        return NULL;
    }
    return req;
}

/* Our own receive that the bytes go to: is it there, and as large as the range? */
static int ucp_rndv_target_is_there(const ucp_request_t *req, const ucp_wire_rtr_t *rtr)
{
    const ucp_request_t *recv;

    if ((req->send.peer->copy_state == UCP_COPY_NONE) || !ucp_rndv_copies_here(req->send.peer)) {
        return 1;
    }
    recv = ucs_ptr_map_get(&req->worker->ids, rtr->recv_id);
    return (recv != NULL) && ucp_request_is_recv(recv) &&
           ucp_dt_is_contig(recv->datatype) && (rtr->offset >= recv->recv.base) &&
           ((uintptr_t)recv->buffer - recv->recv.base == rtr->address) &&
           (rtr->offset + rtr->length <= recv->recv.base + recv->recv.total);
}

static int ucp_rndv_rtr_is_valid(const ucp_request_t *req, const ucp_wire_rtr_t *rtr)
{
    const unsigned mode = rtr->flags & UCP_WIRE_RTR_MODE;

    if ((rtr->offset > req->length) || (rtr->length > req->length - rtr->offset)) {
        return 0;
    }
    if ((rtr->flags & UCP_WIRE_RTR_DEVICE) && (mode != UCP_WIRE_RTR_PUT)) {
        return 0;
    }
    if ((rtr->flags & UCP_WIRE_RTR_CLAIM) && (mode != UCP_WIRE_RTR_BOTH) &&
        (!(rtr->flags & UCP_WIRE_RTR_DEVICE) || !ucp_dt_is_device(req->datatype) ||
         !(req->held & UCP_REQUEST_HOLDS_SYNC))) {
        return 0;
    }
    switch (mode) {
    case UCP_WIRE_RTR_PUT:
        return (req->send.step == UCP_SEND_WAIT) &&
               ucp_dt_is_block(req->datatype) &&
               ((rtr->flags & UCP_WIRE_RTR_DEVICE) ?
                (rtr->length > 0) && (rtr->slot < UCP_DEVICE_SLOTS) :
                ucp_rndv_target_is_there(req, rtr));
    case UCP_WIRE_RTR_BOTH:
        return (req->send.step == UCP_SEND_WAIT) && (req->held & UCP_REQUEST_HOLDS_SYNC) &&
               ucp_dt_is_contig(req->datatype) && (rtr->offset == 0);
    case UCP_WIRE_RTR_DATA:
        /* while we write, or already send what we could not write, it is for later */
        return (req->send.step == UCP_SEND_WAIT) || (req->send.step == UCP_SEND_PUT) ||
               (req->send.step == UCP_SEND_DATA) || (req->send.step == UCP_SEND_DEVICE);
    default:
        return 0;
    }
}

/* Does what a valid RTR asks for. */
static void ucp_rndv_deliver(ucp_request_t *req, const ucp_wire_rtr_t *rtr)
{
    const unsigned mode = rtr->flags & UCP_WIRE_RTR_MODE;
    ucp_peer_t *peer    = req->send.peer;

    req->send.recv_id = rtr->recv_id;
    if ((rtr->flags & UCP_WIRE_RTR_CLAIM) && (mode == UCP_WIRE_RTR_BOTH)) {
        if (rtr->flags & UCP_WIRE_RTR_WHOLE) {
            peer->whole_max  = (uint32_t)ucs_min(rtr->length, (uint64_t)UCP_WIRE_EAGER_MAX);
            peer->whole_left = UCP_PROTO_WHOLE_NEXT;
        }
        req->send.is_both = 1;
        req->send.end     = rtr->length;
        ucp_ep_take_back(req);
        ucp_rndv_start_data(req);
        return;
    }
    if ((rtr->flags & UCP_WIRE_RTR_CLAIM) && !ucp_rndv_device_claim(req)) {
        return; /* it reads; ATS follows, or another RTR */
    }
    if (rtr->flags & UCP_WIRE_RTR_LAST) {
        req->send.needs_ats = 0;
    }
    if ((rtr->flags & UCP_WIRE_RTR_DEVICE) ||
        ((mode != UCP_WIRE_RTR_DATA) && ucp_peer_can_copy(peer))) {
        ucp_ep_take_back(req);
        req->send.step        = (rtr->flags & UCP_WIRE_RTR_DEVICE) ? UCP_SEND_DEVICE : UCP_SEND_PUT;
        req->send.slot        = (uint8_t)rtr->slot;
        req->send.is_both     = (mode == UCP_WIRE_RTR_BOTH);
        req->send.remote_addr = rtr->address;
        req->send.offset      = rtr->offset;
        req->send.end         = rtr->offset + rtr->length;
        if (rtr->flags & UCP_WIRE_RTR_DEVICE) {
            ucp_rndv_device_put(req);
        } else if (ucs_likely(!ucp_dt_is_device(req->datatype))) {
            ucp_request_add_work(req);
        } else if (!ucp_rndv_piped_start(req)) {
            ucp_rndv_add_data(req, rtr->offset, rtr->length);
            ucp_rndv_start_data(req);
        }
        return;
    }
    if (mode == UCP_WIRE_RTR_BOTH) {
        return; /* the receiver will claim everything itself */
    }
    ucp_ep_take_back(req);
    if (ucs_unlikely(rtr->flags & UCP_WIRE_RTR_FAULT) && ucp_dt_is_contig(req->datatype)) {
        req->send.is_suspect = 1;
    }
    if ((rtr->flags & UCP_WIRE_RTR_FRAGS) && (req->send.step == UCP_SEND_WAIT) &&
        ucp_rndv_staged_start(req, rtr->offset, rtr->length)) {
        return;
    }
    ucp_rndv_add_data(req, rtr->offset, rtr->length);
    if (req->send.step == UCP_SEND_WAIT) {
        ucp_rndv_start_data(
            req); /* otherwise after the writing, or with the pieces that are under way */
    }
}

void ucp_rndv_rtr_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_wire_rtr_t rtr;
    ucp_request_t *req;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_RTR, data, length, &rtr, sizeof(rtr))) {
        return;
    }
    req = ucp_rndv_find_send(worker, rtr.send_id, "RTR");
    if ((req == NULL) || (req->send.step == UCP_SEND_GIVEN_UP)) {
        peer = ucp_peer_of_connection(worker);
        if (peer != NULL) {
            ucp_rndv_tell_cancel(peer, rtr.send_id, UCS_ERR_CANCELED, 0);
        } else {
            ucp_worker_give_up_sender(worker, UCS_ERR_CANCELED); /* there is no way to tell it */
        }
        return;
    }
    if (!ucp_rndv_rtr_is_valid(req, &rtr)) {
        ucs_warn("peer sent an RTR that does not suit the message: dropped");
        return;
    }
    ucp_rndv_deliver(req, &rtr);
}

void ucp_rndv_ats_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_ats_t ats;
    ucp_request_t *req;

    if (!ucp_wire_read(UCP_WIRE_ATS, data, length, &ats, sizeof(ats))) {
        return;
    }
    req = ucp_rndv_find_send(arg, ats.send_id, "ATS");
    if (req == NULL) {
        return;
    }
    if ((req->send.step == UCP_SEND_EAGER) || (req->send.step == UCP_SEND_RTS)) {
        ucs_warn("peer sent an ATS for a message that has not been sent: dropped");
        return;
    }

    req->send.needs_ats = 0;
    if (ucs_unlikely(req->send.step == UCP_SEND_GIVEN_UP)) {
        ucp_rndv_given_up_end(req);
    } else if ((req->send.step == UCP_SEND_WAIT) || (req->send.step == UCP_SEND_SYNC) ||
               (req->send.step == UCP_SEND_STAGED)) { /* of these it reads no more */
        ucp_request_complete(req, ucp_rndv_status_there(ats.status, UCS_OK));
    } else if ((req->send.step == UCP_SEND_PUT) && req->send.is_both) {
        /* Nothing is left to claim, and what we claimed is written. The receiver may be gone by
         * our next turn, so the send ends now. */
        ucp_request_del_work(req);
        ucp_rndv_put_end(req);
    } else if (ucp_rndv_is_delivered(req)) {
        /* It waits for a turn to see that. What the receiver sends next may answer this message,
         * and programs count on hearing of its end before. */
        ucp_send_unqueue(req);
        ucp_request_complete(req, UCS_OK);
    }
}
