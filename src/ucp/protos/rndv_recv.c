/* Halyard: rendezvous, the receiver's side, which chooses how the data moves.
 *
 * States (ucp_recv_step_t): GET or BOTH (reading, a part a turn) -> WAIT (the peer delivers the
 * rest) -> end. The request ends when all bytes are there; every contribution (own reads, FIN,
 * DATA) is counted once and checked against what is still missing. Where messages are the faster
 * way the sender is asked for them (LEFT), and claims what it sends. When nothing has come from it
 * for a while the receiver goes on as if both were to copy.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/device.h>
#include <ucp/core/idle.h>
#include <ucp/core/wakeup.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/piped.h>
#include <ucp/protos/rndv.h>
#include <ucs/sys/sys.h>

#define UCP_RNDV_GET_CHUNK ((size_t)512 * 1024)

/* See ucp_rndv_is_common: bytes, and peers of a worker among whom it need not be so. */
#define UCP_RNDV_COMMON_MAX ((size_t)512 * 1024)
#define UCP_RNDV_FEW_PEERS  4

/* How long nothing may come from a sender that was asked for messages. One that makes progress
 * needs a microsecond or some. */
#define UCP_RNDV_CLAIM_WAIT_NS 20000u
#define UCP_RNDV_FIRST_WAIT_NS 200000u
#define UCP_RNDV_LOOKS         8u /* calls of progress to one look at the clock for it */
#define UCP_RNDV_CONNECT_NS    2000000u /* for a connection, which takes some 10 us if it listens */

void ucp_rndv_answer(ucp_peer_t *peer, uint64_t send_id, ucs_status_t status)
{
    ucp_wire_ats_t ats = {.send_id = send_id, .status = status};

    ucp_peer_send_control(peer, UCP_WIRE_ATS, &ats, sizeof(ats));
}

void ucp_rndv_send_ats(ucp_request_t *req, ucs_status_t status)
{
    if (!req->recv.is_part) {
        ucp_rndv_answer(req->recv.peer, req->recv.send_id, status);
    }
}

void ucp_rndv_send_rtr(ucp_request_t *req, size_t offset, size_t length, unsigned flags)
{
    ucp_wire_rtr_t rtr = {
        .send_id = req->recv.send_id,
        .recv_id = req->recv.id,
        .address = (uintptr_t)req->buffer - req->recv.base,
        .offset  = req->recv.base + offset,
        .length  = length,
        .flags   = flags,
        .slot    = (flags & UCP_WIRE_RTR_DEVICE) ? req->copy.slot : 0
    };

    if ((flags & UCP_WIRE_RTR_LAST) && req->recv.is_part) {
        rtr.flags &= ~(uint32_t)UCP_WIRE_RTR_LAST;
    }
    ucp_peer_send_control(req->recv.peer, UCP_WIRE_RTR, &rtr, sizeof(rtr));
}

void ucp_rndv_recv_check_end(ucp_request_t *req)
{
    if (req->recv.received != req->recv.total) {
        return;
    }
    if (req->recv.step == UCP_RECV_LEFT) { /* the sender has claimed all, and delivered it */
        req->recv.step = UCP_RECV_WAIT;
        ucp_rndv_send_ats(req, UCS_OK);
    }
    if (req->recv.step == UCP_RECV_WAIT) {
        if (ucs_unlikely(req->held & UCP_REQUEST_HOLDS_WINDOW)) {
            ucp_device_flush(req->worker, req);
        }
        ucp_request_complete(req, req->recv.result);
    }
}

void ucp_rndv_recv_count(ucp_request_t *req, size_t length)
{
    req->recv.received += ucs_min(length, req->recv.total - req->recv.received);
}

void ucp_rndv_recv_read_all(ucp_request_t *req)
{
    req->recv.step = UCP_RECV_WAIT;
    ucp_rndv_send_ats(req, UCS_OK);
    ucp_rndv_recv_check_end(req);
}

/* ---- choice ---- */

/* The word by which both sides claim parts, if the announcement names one; 0: it does not, or the
 * peer is not connected yet in this direction. */
static int ucp_rndv_has_word(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    uct_ep_t *am = peer->lanes[UCP_LANE_AM];

    return (rts->flags & UCP_WIRE_RTS_SYNC) && (req->recv.base == 0) && !req->recv.is_part &&
           (am->ops->sync_map(am, rts->sync_index, &req->recv.sync_word) == UCS_OK);
}

/* Is the message one of many that move at the same time: what processes exchange, or where they
 * share processors? Each for itself would be faster with its neighbour's help, but all are done
 * sooner where each copies what it receives (16 processes in a ring, 32 processors of Emerald
 * Rapids: 64 KiB in 7 instead of 14 us, 256 KiB in 23 instead of 27 to 45; 8 processes on two
 * processors, in pairs: 256 KiB in 84 instead of 164 us; of 1 MiB it is no longer so). */
static int ucp_rndv_is_common(const ucp_request_t *req, const ucp_wire_rts_t *rts)
{
    return (req->recv.total <= UCP_RNDV_COMMON_MAX) &&
           (ucp_idle_is_shared(req->worker) ||
            ((rts->flags & UCP_WIRE_RTS_EXCHANGE) &&
             (ucs_hash_size(&req->worker->peers) > UCP_RNDV_FEW_PEERS)));
}

/* Contiguous memory of the host at both ends, which either side can copy. Without a word that both
 * can claim by this side copies, and nothing is learned from it. */
static ucp_proto_id_t ucp_rndv_choose_way(ucp_request_t *req, ucp_peer_t *peer,
                                          const ucp_wire_rts_t *rts)
{
    ucp_proto_config_t *config = peer->proto;
    const int has_ways         = ucp_proto_has_ways(config, req->recv.total);
    ucp_proto_id_t proto       = ucp_proto_lookup(config->recv, req->recv.total);
    uct_ep_t *am               = peer->lanes[UCP_LANE_AM];

    if (has_ways && ucp_rndv_is_common(req, rts)) {
        return UCP_PROTO_RNDV_GET;
    }
    if ((has_ways || (proto == UCP_PROTO_RNDV_BOTH)) && !ucp_rndv_has_word(req, peer, rts)) {
        return UCP_PROTO_RNDV_GET;
    }
    if (has_ways) {
        req->held |= UCP_REQUEST_HOLDS_TURN;
        proto = ucp_proto_of_way(ucp_proto_learned(config, UCP_LEARNED_ANNOUNCED,
                                                   uct_ep_is_near(am), req->recv.total,
                                                   &req->recv.learn, &req->recv.turn));
    }
    return proto;
}

static ucp_proto_id_t ucp_rndv_choose(ucp_request_t *req, ucp_peer_t *peer,
                                      const ucp_wire_rts_t *rts)
{
    if (ucs_unlikely(ucp_dt_is_device(req->datatype)) && (rts->flags & UCP_WIRE_RTS_CONTIG)) {
        return (ucp_peer_can_copy(peer) && (peer->proto->lanes.get.max > 0)) ? UCP_PROTO_RNDV_GET :
                                                                              UCP_PROTO_RNDV_AM;
    }
    if (ucs_unlikely(rts->flags & UCP_WIRE_RTS_WRITES) && ucp_dt_is_contig(req->datatype)) {
        return (ucp_peer_can_copy(peer) && (peer->proto->lanes.put.max > 0)) ? UCP_PROTO_RNDV_PUT :
                                                                              UCP_PROTO_RNDV_AM;
    }
    if (!ucp_dt_is_contig(req->datatype) || !(rts->flags & UCP_WIRE_RTS_CONTIG) ||
        !ucp_peer_can_copy(peer)) {
        return UCP_PROTO_RNDV_AM;
    }
    return ucp_rndv_choose_way(req, peer, rts);
}

/* How long nothing may come. The first messages of all that are tried wait for memory that the
 * kernel gives the sender (16 buffers: 100 us in a virtual machine), and to copy meanwhile would
 * measure something else. */
static uint64_t ucp_rndv_claim_wait_ns(const ucp_request_t *req)
{
    return ucp_learn_is_first(req->recv.learn, &req->recv.turn) ? UCP_RNDV_FIRST_WAIT_NS :
                                                                  UCP_RNDV_CLAIM_WAIT_NS;
}

/* Asks for messages; the sender may be away, or go away amid them, so this side reads what is not
 * claimed when nothing has come for a while. */
static void ucp_rndv_recv_leave(ucp_request_t *req)
{
    const size_t whole_max = req->recv.was_awaited ? UCP_WIRE_EAGER_MAX : UCP_PROTO_WHOLE_MAX;
    const int is_whole     = (req->recv.total <= whole_max) &&
                             ucp_learn_is_settled(req->recv.learn, &req->recv.turn);

    req->recv.step = UCP_RECV_LEFT;
    ucp_rndv_send_rtr(req, 0, req->recv.total, UCP_WIRE_RTR_BOTH | UCP_WIRE_RTR_CLAIM |
                      (is_whole ? UCP_WIRE_RTR_WHOLE : 0));
    req->recv.num_data = req->recv.peer->num_data;
    ucp_rndv_watch(req, ucp_rndv_claim_wait_ns(req));
}

/* By the way that is found best for it. */
static void ucp_rndv_recv_move(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    if (ucp_rndv_read_start(req, peer, rts)) {
        ucp_worker_count(req->worker, UCP_COUNT_READ_BY_NETWORK);
        return;
    }
    if (ucp_rndv_device_start(req, peer, rts)) {
        ucp_worker_count(req->worker, UCP_COUNT_READ_BY_DEVICE);
        return;
    }
    switch (ucp_rndv_choose(req, peer, rts)) {
    case UCP_PROTO_RNDV_GET:
        ucp_worker_count(req->worker, UCP_COUNT_READ);
        req->recv.step = UCP_RECV_GET;
        if (ucs_likely(!ucp_dt_is_device(req->datatype))) {
            ucp_request_add_work(req);
        } else if (!ucp_rndv_piped_start(req)) {
            ucp_rndv_ask_for_rest(req, 0, req->recv.total);
        }
        break;
    case UCP_PROTO_RNDV_BOTH:
        ucp_worker_count(req->worker, UCP_COUNT_READ_BY_BOTH);
        req->recv.step       = UCP_RECV_BOTH;
        req->recv.is_written = 1;
        ucp_rndv_send_rtr(req, 0, req->recv.total, UCP_WIRE_RTR_BOTH);
        ucp_request_add_work(req);
        break;
    case UCP_PROTO_RNDV_PUT:
        ucp_worker_count(req->worker, UCP_COUNT_WRITTEN);
        req->recv.is_written = 1;
        ucp_rndv_send_rtr(req, 0, req->recv.total, UCP_WIRE_RTR_PUT | UCP_WIRE_RTR_LAST);
        break;
    default:
        ucp_worker_count(req->worker, UCP_COUNT_BY_MESSAGES);
        if (req->held & UCP_REQUEST_HOLDS_TURN) {
            ucp_rndv_recv_leave(req);
        } else {
            ucp_rndv_send_rtr(req, 0, req->recv.total, UCP_WIRE_RTR_DATA | UCP_WIRE_RTR_LAST);
        }
        break;
    }
}

void ucp_rndv_recv_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts,
                         int was_awaited)
{
    req->recv.is_part     = 0;
    req->recv.was_awaited = (uint8_t)was_awaited;
    ucp_rndv_recv_range(req, peer, rts, 0);
}

void ucp_rndv_recv_range(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts,
                         size_t base)
{
    size_t length = rts->length - base;

    req->info.sender_tag  = rts->tag;
    req->info.length      = length;
    req->recv.peer        = peer;
    req->recv.send_id     = rts->request_id;
    req->recv.remote_addr = rts->address + base;
    req->recv.base        = base;
    req->recv.total       = ucs_min(length, req->length);
    req->recv.result      = ((length > req->length) && !req->recv.is_part) ?
                            UCS_ERR_MESSAGE_TRUNCATED : UCS_OK;
    req->recv.received    = 0;
    req->until_ns         = 0;
    req->recv.offset      = 0;
    req->recv.is_given_up = 0;
    req->recv.is_written  = 0;
    req->recv.is_suspect  = 0;
    req->recv.step        = UCP_RECV_WAIT;
    req->recv.has_ends    = (rts->flags & UCP_WIRE_RTS_ENDS) != 0;
    req->recv.ends        = (uint16_t)(rts->flags >> UCP_WIRE_RTS_ENDS_SHIFT);
    if (ucs_unlikely(peer == NULL)) { /* it died after its announcement */
        req->recv.result = UCS_ERR_CONNECTION_RESET;
        req->recv.total  = 0;
        ucp_request_add_work(req);
        return;
    }
    req->held                |= UCP_REQUEST_HOLDS_LIST;
    req->worker->num_reading += (req->kind == UCP_REQUEST_TAG_RECV);
    ucs_list_add_tail(&peer->recvs, &req->list);

    if ((peer->status != UCS_OK) ||
        (ucs_ptr_map_put(&req->worker->ids, req, &req->recv.id) != UCS_OK)) {
        req->recv.result = (peer->status != UCS_OK) ? peer->status : UCS_ERR_NO_MEMORY;
        req->recv.total  = 0;
    } else {
        req->held |= UCP_REQUEST_HOLDS_ID;
    }
    if (req->recv.total == 0) {
        ucp_rndv_send_ats(req, (req->held & UCP_REQUEST_HOLDS_ID) ? UCS_OK : req->recv.result);
        ucp_request_add_work(req); /* ends from progress */
        return;
    }
    ucp_rndv_recv_move(req, peer, rts);
}

/* ---- reading ---- */

int ucp_rndv_was_there(const ucp_request_t *req)
{
    uct_ep_t *am = req->recv.peer->lanes[UCP_LANE_AM];
    ucs_atomic_u64_t *ends;
    uint64_t now;

    if (!req->recv.has_ends || (am->ops->sync_map == NULL)) {
        return 1;
    }
    if (am->ops->sync_map(am, 0, &ends) != UCS_OK) {
        return 0;
    }
    now = ucs_atomic_load_acquire(ends);
    /* What was announced while the worker was being destroyed has the count of after its end. */
    return ((uint16_t)now == req->recv.ends) && !(now & UCP_WIRE_ENDS_OVER);
}

ucs_status_t ucp_rndv_read(ucp_request_t *req, void *dest, size_t offset, size_t length)
{
    uct_ep_t *lane = req->recv.peer->lanes[UCP_LANE_COPY];
    uct_iov_t iov  = {dest, length, NULL};
    ucs_status_t status;

    if (req->recv.peer->copy_state != UCP_COPY_WORKS) {
        return UCS_ERR_UNSUPPORTED; /* refused meanwhile, to another request */
    }
    status = lane->ops->get_zcopy(lane, &iov, 1, req->recv.remote_addr + offset, NULL, NULL);
    if (ucs_unlikely(!ucp_rndv_was_there(req))) {
        req->recv.is_suspect = 1;
        return UCS_ERR_CANCELED; /* maybe: its sender is asked */
    }
    if (ucs_unlikely(status != UCS_OK)) {
        req->recv.is_suspect = 1;
        ucp_peer_copy_failed(req->recv.peer, status);
    }
    return status;
}

static ucs_status_t ucp_rndv_get(ucp_request_t *req, size_t offset, size_t length)
{
    ucs_status_t status = ucp_rndv_read(req, (char *)req->buffer + offset, offset, length);

    if (status == UCS_OK) {
        ucp_rndv_recv_count(req, length);
    }
    return status;
}

void ucp_rndv_ask_for_rest(ucp_request_t *req, size_t offset, size_t length)
{
    req->recv.step = UCP_RECV_WAIT;
    ucp_rndv_send_rtr(req, offset, length, UCP_WIRE_RTR_DATA | UCP_WIRE_RTR_LAST |
                      (req->recv.is_suspect ? UCP_WIRE_RTR_FAULT : 0));
}

/* Our own send that the bytes come from: gone, or never was? */
static int ucp_rndv_source_is_gone(const ucp_request_t *req)
{
    const ucp_request_t *send;

    if (ucs_likely(!ucp_rndv_copies_here(req->recv.peer))) {
        return 0;
    }
    send = ucs_ptr_map_get(&req->worker->ids, req->recv.send_id);
    return (send == NULL) || !ucp_request_is_send(send) ||
           !ucp_dt_is_contig(send->datatype) ||
           ((uintptr_t)send->buffer + req->recv.base != req->recv.remote_addr) ||
           (send->length < req->recv.base + req->recv.total);
}

static void ucp_rndv_recv_get_step(ucp_request_t *req)
{
    size_t length = ucs_min(req->recv.total - req->recv.offset, UCP_RNDV_GET_CHUNK);

    if (ucs_unlikely(ucp_rndv_get(req, req->recv.offset, length) != UCS_OK)) {
        ucp_rndv_ask_for_rest(req, req->recv.offset, req->recv.total - req->recv.offset);
        return;
    }
    req->recv.offset += length;
    if (req->recv.offset < req->recv.total) {
        ucp_request_add_work(req);
        return;
    }
    ucp_rndv_recv_read_all(req);
}

/* Keeps the sender from what nobody has claimed yet. Returns where that ended, or 0, and how many
 * bytes it was. */
static size_t ucp_rndv_claim_rest(ucp_request_t *req, size_t *length_p)
{
    size_t total = req->recv.total;
    size_t end   = 0;
    size_t offset, length;
    int turns;

    *length_p = 0;
    /* Halves are left over each time: no more turns than bits, unless the peer plays. */
    for (turns = 0; turns < 32; ++turns) {
        length = ucp_rndv_claim(req->recv.sync_word, total, total, 0, &offset);
        if (length == 0) {
            break;
        }
        end        = offset + length;
        *length_p += length;
    }
    return end;
}

void ucp_rndv_stop_sender(ucp_request_t *req)
{
    size_t length;

    if (ucp_request_is_recv(req) && (req->recv.step == UCP_RECV_BOTH)) {
        (void)ucp_rndv_claim_rest(req, &length);
        ucp_rndv_recv_count(req, length); /* so that what it has claimed before is missing */
    }
}

int ucp_rndv_is_written(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->recv.peer;

    return req->recv.is_written && (req->recv.received != req->recv.total) && !peer->is_gone &&
           !ucp_peer_is_over(peer) &&
           ((peer->lanes[UCP_LANE_COPY] == NULL) || !ucp_rndv_copies_here(peer));
}

int ucp_rndv_leave_to_writer(ucp_request_t *req, ucs_status_t status)
{
    if (!ucp_rndv_is_written(req)) {
        return 0;
    }
    if (req->recv.step == UCP_RECV_BOTH) {
        ucp_rndv_stop_sender(req);
        if (req->recv.received == req->recv.total) {
            return 0; /* it had claimed nothing more */
        }
        ucp_request_del_work(req);
        req->recv.step   = UCP_RECV_WAIT;
        req->recv.result = status;
    }
    return 1;
}

void ucp_rndv_recv_give_up(ucp_request_t *req)
{
    if (req->held & UCP_REQUEST_HOLDS_COPY) {
        return; /* a network or a device is at it: the sender is told once they have ended */
    }
    if ((req->recv.step == UCP_RECV_WAIT) && (req->recv.received == req->recv.total)) {
        ucp_rndv_recv_check_end(req); /* all is there, and its sender knows it */
        return;
    }
    if (req->recv.is_written && (req->recv.peer->lanes[UCP_LANE_COPY] != NULL) &&
        ucp_rndv_copies_here(req->recv.peer)) {
        return; /* a send of ours writes, and goes on */
    }
    if (!ucp_rndv_leave_to_writer(req, UCS_ERR_CANCELED)) {
        ucp_rndv_stop_sender(req);
        req->recv.received = 0; /* what is counted has not been moved */
        ucp_request_complete(req, UCS_ERR_CANCELED);
    }
}

static void ucp_rndv_recv_both_step(ucp_request_t *req)
{
    size_t offset, length, rest, end;

    length = ucp_rndv_claim(req->recv.sync_word, req->recv.total,
                            ucp_rndv_claim_max(req->recv.total), 0, &offset);
    if (length == 0) {
        ucp_rndv_recv_read_all(req);
        return;
    }
    if (ucs_unlikely(ucp_rndv_get(req, offset, length) != UCS_OK)) {
        /* What nobody has claimed follows the part that failed: ask for both in one. */
        end = ucs_max(offset + length, ucp_rndv_claim_rest(req, &rest));
        ucp_rndv_ask_for_rest(req, offset, end - offset);
        return;
    }
    ucp_request_add_work(req);
}

int ucp_rndv_is_connecting(ucp_request_t *req)
{
    uct_ep_t *am = req->recv.peer->lanes[UCP_LANE_AM];
    uint64_t now_ns;

    if (!req->recv.has_ends || (am->ops->sync_map == NULL) ||
        (uct_ep_connect(am) != UCS_INPROGRESS)) {
        return 0;
    }
    now_ns = ucs_sys_clock_ns();
    if (req->until_ns == 0) {
        req->until_ns = now_ns + UCP_RNDV_CONNECT_NS;
    }
    return now_ns < req->until_ns;
}

void ucp_rndv_recv_work(ucp_request_t *req)
{
    if ((req->recv.step == UCP_RECV_GET) || (req->recv.step == UCP_RECV_BOTH)) {
        if (ucs_unlikely(ucp_rndv_source_is_gone(req))) {
            ucp_request_complete(req, UCS_ERR_CONNECTION_RESET);
            return;
        }
        if (ucs_unlikely(ucp_rndv_is_connecting(req))) {
            ucp_request_add_work(req);
            return;
        }
    }
    switch (req->recv.step) {
    case UCP_RECV_GET:
        if (ucs_unlikely(ucp_dt_is_device(req->datatype))) {
            ucp_piped_turn(req);
        } else {
            ucp_rndv_recv_get_step(req);
        }
        break;
    case UCP_RECV_BOTH:
        ucp_rndv_recv_both_step(req);
        break;
    case UCP_RECV_READ:
        ucp_rndv_read_step(req);
        break;
    case UCP_RECV_DEVICE:
        ucp_rndv_device_get(req);
        break;
    default:
        ucp_rndv_recv_check_end(req);
        break;
    }
}

/* ---- waiting for the sender to begin ---- */

static void ucp_rndv_watch_until(ucp_request_t *req, uint64_t until_ns)
{
    ucp_worker_t *worker = req->worker;
    ucs_list_link_t *pos = worker->asked.prev;

    req->until_ns = until_ns;
    while ((pos != &worker->asked) &&
           (ucs_container_of(pos, ucp_request_t, work_list)->until_ns > req->until_ns)) {
        pos = pos->prev;
    }
    req->held        |= UCP_REQUEST_HOLDS_WORK;
    worker->deferred |= UCP_DEFERRED_LOOKS;
    ucs_list_insert_before(pos->next, &req->work_list);
    ucp_wakeup_rouse(worker);
}

void ucp_rndv_watch(ucp_request_t *req, uint64_t duration_ns)
{
    ucp_rndv_watch_until(req, ucs_sys_clock_ns() + duration_ns);
}

int ucp_rndv_is_watching(const ucp_worker_t *worker)
{
    const ucp_request_t *req;

    ucs_list_for_each(req, &worker->asked, work_list) {
        if (ucp_request_is_send(req) ||
            (req->recv.peer->lanes[UCP_LANE_AM]->state == UCT_EP_LIVE)) {
            return 1; /* else the connection is an event */
        }
    }
    return 0;
}

/* Waits once more, if the sender has been heard of meanwhile; not for copies between two devices,
 * of which one side does as well as the other. */
static int ucp_rndv_recv_waits(ucp_request_t *req, uint64_t now_ns)
{
    const int is_left = (req->recv.step == UCP_RECV_LEFT);

    if ((req->recv.num_data == req->recv.peer->num_data) ||
        (!is_left && !ucp_rndv_device_is_copied_there(req))) {
        return 0;
    }
    req->recv.num_data = req->recv.peer->num_data;
    ucp_rndv_watch_until(req, now_ns + (is_left ? ucp_rndv_claim_wait_ns(req) :
                                                  ucp_rndv_device_wait_ns(req)));
    return 1;
}

unsigned ucp_rndv_overdue(ucp_worker_t *worker)
{
    unsigned count = 0;
    ucp_request_t *req;
    uint64_t now_ns;

    if (ucs_list_is_empty(&worker->asked)) {
        worker->deferred &= ~(unsigned)UCP_DEFERRED_LOOKS;
        return 0;
    }
    worker->deferred |= UCP_DEFERRED_LOOKS;
    if ((worker->num_looks++ % UCP_RNDV_LOOKS) != 0) { /* clocks cost as much as a look at a ring */
        return 0;
    }
    now_ns = ucs_sys_clock_ns();
    do {
        req = ucs_list_head(&worker->asked, ucp_request_t, work_list);
        if (req->until_ns > now_ns) {
            break;
        }
        ucp_request_del_work(req);
        if (ucp_request_is_send(req)) {
            ucp_rndv_given_up_end(req);
            ++count;
        } else if (ucp_rndv_recv_waits(req, now_ns)) {
            continue;
        } else if (req->recv.step != UCP_RECV_LEFT) {
            count += ucp_rndv_device_take(req);
        } else { /* reads what the sender has not claimed */
            req->recv.step = UCP_RECV_BOTH;
            ucp_request_add_work(req);
            ++count;
            break; /* one: who copies a window's is taken for away, and two would do so for ever */
        }
    } while (!ucs_list_is_empty(&worker->asked));
    return count;
}
