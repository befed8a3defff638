/* Halyard: peer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/flush.h>
#include <ucp/core/provisional.h>
#include <ucp/core/wakeup.h>
#include <ucp/ops/rma.h>
#include <ucp/ops/stream.h>
#include <ucp/protos/rndv.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/lanes.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCP_PEERS_KEPT 1024 /* of each kind, see ucp_peers_kept_t */

ucp_peer_t *ucp_peer_find(ucp_worker_t *worker, uint64_t worker_id)
{
    return (ucs_hash_size(&worker->peers) == 0) ? NULL
                                                : ucs_hash_get_ptr(&worker->peers, worker_id);
}

void ucp_peer_set_limits(ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        ucp_ep_set_limits(ep);
    }
}

void ucp_peer_make_up_uid(uint8_t uid[UCT_UID_LEN])
{
    uint64_t words[UCT_UID_LEN / 8] = {ucs_sys_random64(), ucs_sys_random64()};

    memcpy(uid, words, sizeof(words));
}

ucs_status_t ucp_peer_create(ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN],
                             const ucp_address_info_t *address, ucp_peer_t **peer_p)
{
    ucp_peer_t *peer = ucs_sys_calloc(1, sizeof(*peer));
    ucs_status_t status;

    if (peer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    peer->worker     = worker;
    peer->whole_rate = UCP_PEER_WHOLE_RATE;
    peer->next_apart = UCP_WIRE_APART_ORDINAL;
    memcpy(peer->uid, uid, UCT_UID_LEN);
    memcpy(peer->real_uid, uid, UCT_UID_LEN);
    ucs_list_head_init(&peer->eps);
    ucs_list_head_init(&peer->recvs);
    ucs_list_head_init(&peer->late);
    ucs_list_head_init(&peer->fenced);
    ucs_list_head_init(&peer->retired);

    status = (address != NULL) ? ucp_lanes_open(peer, address) : ucp_lanes_open_nowhere(peer);
    if (status == UCS_OK) {
        status = ucs_hash_insert(&worker->peers, ucp_uid_id(uid), (uintptr_t)peer);
    }
    if (status != UCS_OK) {
        ucp_peer_destroy(peer);
        return status;
    }
    ucp_worker_activate(worker, peer->lanes[UCP_LANE_AM]->iface);
    *peer_p = peer;
    return UCS_OK;
}

/* A failed peer that nothing can come from any more keeps its endpoints, but leaves its identity
 * to the one that takes its place. */
static ucs_status_t ucp_peer_step_aside(ucp_peer_t *peer)
{
    ucs_hash_t *peers = &peer->worker->peers;
    uint8_t uid[UCT_UID_LEN];
    ucs_status_t status;

    ucp_peer_make_up_uid(uid);
    status = ucs_hash_insert(peers, ucp_uid_id(uid), (uintptr_t)peer);
    if (status == UCS_OK) {
        ucs_hash_del(peers, ucp_uid_id(peer->uid));
        memcpy(peer->uid, uid, UCT_UID_LEN);
    }
    return status;
}

ucs_status_t ucp_peer_get(ucp_worker_t *worker, const ucp_address_info_t *address,
                          ucp_peer_t **peer_p)
{
    uint64_t id      = ucp_uid_id(address->uid);
    ucp_peer_t *peer = ucp_peer_find(worker, id);
    ucs_status_t status;
    const uint8_t *known = (peer != NULL)                    ? peer->uid
                           : (id == ucp_uid_id(worker->uid)) ? worker->uid
                                                             : NULL;

    if ((known != NULL) && (memcmp(address->uid, known, UCT_UID_LEN) != 0)) {
        /* half of a known identity, our own perhaps, with another half */
        return UCS_ERR_INVALID_ADDR;
    }
    *peer_p = peer;
    if (peer == NULL) {
        return ucp_peer_create(worker, address->uid, address, peer_p);
    }
    if ((peer->status == UCS_OK) || !ucp_peer_is_over(peer)) {
        return UCS_OK;
    }

    status = ucp_peer_step_aside(peer);
    if (status == UCS_OK) {
        status = ucp_peer_create(worker, address->uid, address, peer_p);
    }
    if (status == UCS_OK) {
        /* At once, since it may be dead. Not without a word: it may have failed there as well, and
         * then ends this connection when it hears who has come. */
        ucp_peer_send_control(*peer_p, UCP_WIRE_HELLO, NULL, 0);
    }
    return status;
}

/* ---- queued control messages ---- */

/* Has the transports end what a peer has connected to us; 0: nothing. */
static int ucp_worker_drop_peer(ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN], int discard)
{
    int is_there = 0;
    uct_iface_t *iface;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        if ((iface != NULL) && (iface->tl->iface.drop_peer != NULL) &&
            iface->tl->iface.drop_peer(iface, uid, discard)) {
            is_there |= (worker->context->tls[i].rail == 0); /* else its end is not reported */
        }
    }
    return is_there;
}

void ucp_peer_hang_up(ucp_peer_t *peer)
{
    /* What is connected now by one that has gone belongs to the peer that its HELLO, which is not
     * read yet, will make. */
    if (!peer->is_gone && ucp_worker_drop_peer(peer->worker, peer->uid, 0)) {
        peer->is_heard = 1;
    }
}

/* Is it part of what a flush waits for? Whether a peer announces (HOLD, STREAM) is its own affair,
 * and whether it knows us already; for what a provisional peer becomes is waited. */
static int ucp_control_is_awaited(const ucp_control_t *control)
{
    return (control->id == UCP_WIRE_HELLO) ? control->peer->is_provisional :
           (control->id != UCP_WIRE_HOLD) && (control->id != UCP_WIRE_STREAM);
}

/* Does it end a put, get or atomic of the peer's? Only closes wait for that, see flush.h. */
static int ucp_control_is_answer(const ucp_control_t *control)
{
    return (control->id == UCP_WIRE_RMA_END) || (control->id == UCP_WIRE_GET_DATA);
}

/* One more, or (-1) one less, that waits for resources. */
static void ucp_control_count(const ucp_control_t *control, int change)
{
    ucp_peer_t *peer        = control->peer;
    const int answer_change = ucp_control_is_answer(control) ? change : 0;

    peer->num_controls         += change;
    peer->num_answers          += answer_change;
    peer->worker->num_controls += change;
    peer->worker->num_answers  += answer_change;
}

void ucp_control_end(ucp_control_t *control)
{
    ucp_peer_t *peer = control->peer;

    if (ucp_control_is_awaited(control)) {
        ucp_control_count(control, -1);
        if (!ucs_list_is_empty(&peer->worker->flushes)) {
            ucp_flush_send_ended(peer->worker, NULL, peer, control->sn,
                                 ucp_control_is_answer(control) ? UCP_FLUSH_OF_CLOSE :
                                                                  UCP_FLUSH_OF_BOTH);
        }
    }
    ucs_mpool_put(control);
}

static ucs_status_t ucp_control_attempt(ucp_peer_t *peer, unsigned id, void *msg, size_t length)
{
    uct_ep_t *lane = peer->lanes[UCP_LANE_AM];
    uct_iov_t iov  = {msg, length, NULL};

    ucs_status_t status;

    status = ucs_unlikely(id == UCP_WIRE_GET_DATA) ? ucp_rma_send_get_data(peer, msg) :
             ucs_unlikely(id == UCP_WIRE_HELLO)    ? ucp_peer_send_hello(peer) :
             lane->ops->am_short_iov(lane, id, &iov, 1);
    if (ucs_unlikely(status == UCS_ERR_NO_MEMORY)) {
        uct_ep_set_failed(lane, status); /* lost before the transport could see it */
    }
    return status;
}

ucs_status_t ucp_control_retry(uct_pending_t *pending)
{
    ucp_control_t *control = ucs_container_of(pending, ucp_control_t, pending);
    ucs_status_t status    = ucp_control_attempt(control->peer, control->id, control->data,
                                                 control->length);

    if (status == UCS_ERR_NO_RESOURCE) {
        return status;
    }
    ucp_control_end(
        control); /* an error is the endpoint's: its failure is reported by the transport */
    return UCS_OK;
}

void ucp_peer_send_control(ucp_peer_t *peer, unsigned id, void *msg, size_t length)
{
    uct_ep_t *lane   = peer->lanes[UCP_LANE_AM];
    ucp_control_t *control;

    if (peer->status != UCS_OK) {
        /* It may live, and have connected again: whoever waits for this must hear the end. */
        ucp_peer_hang_up(peer);
        return;
    }
    if (!uct_ep_has_pending(lane) &&
        (ucp_control_attempt(peer, id, msg, length) != UCS_ERR_NO_RESOURCE)) {
        return; /* sent, or the endpoint has failed, which the transport reports */
    }

    control = ucs_mpool_get(&peer->worker->controls);
    if (control == NULL) {
        ucs_error("no memory for a control message: the peer is given up");
        uct_ep_set_failed(lane, UCS_ERR_NO_MEMORY);
        return;
    }
    ucs_assert(length <= UCP_CONTROL_MAX);
    control->pending.func = ucp_control_retry;
    control->peer         = peer;
    control->sn           = peer->worker->send_sn++;
    control->id           = (uint8_t)id;
    control->length       = (uint8_t)length;
    if (length > 0) {
        memcpy(control->data, msg, length);
    }
    if (ucp_control_is_awaited(control)) {
        ucp_control_count(control, 1);
    }
    uct_ep_pending_add(lane, &control->pending);
    ucp_wakeup_rouse(peer->worker);
}

/* ---- single copies ---- */

void ucp_peer_copy_failed(ucp_peer_t *peer, ucs_status_t status)
{
    if ((peer->copy_state == UCP_COPY_NONE) || (status == UCS_ERR_INVALID_ADDR)) {
        return; /* the latter is said of one memory only */
    }
    peer->copy_state = UCP_COPY_NONE;
    ucp_worker_count(peer->worker, UCP_COUNT_COPY_REFUSED);
    ucs_diag("single copies to a peer by %s are refused (%s): messages are used instead",
             peer->lanes[UCP_LANE_COPY]->iface->tl->name, ucs_status_string(status));
    if (ucp_lanes_update_proto(peer) != UCS_OK) {
        uct_ep_set_failed(peer->lanes[UCP_LANE_AM], UCS_ERR_EXCEEDS_LIMIT);
    }
}

int ucp_peer_can_copy(ucp_peer_t *peer)
{
    ucs_status_t status;

    if (ucs_unlikely(peer->copy_state == UCP_COPY_UNPROVED)) {
        status = uct_ep_connect(peer->lanes[UCP_LANE_COPY]);
        if (status == UCS_OK) {
            peer->copy_state = UCP_COPY_WORKS;
        } else {
            ucp_peer_copy_failed(peer, status);
        }
    }
    return peer->copy_state == UCP_COPY_WORKS;
}

/* ---- senders ---- */

int ucp_peer_is_sender(const ucp_peer_t *peer)
{
    const uint8_t *sender = peer->worker->sender;

    return (sender == NULL) || (memcmp(sender, peer->uid, UCT_UID_LEN) == 0);
}

ucp_peer_t *ucp_peer_of_connection(ucp_worker_t *worker)
{
    ucp_peer_t *peer;

    if (worker->sender == NULL) {
        return NULL;
    }
    peer = ucp_peer_find(worker, ucp_uid_id(worker->sender));
    return ((peer != NULL) && ucp_peer_is_sender(peer)) ? peer : NULL;
}

void ucp_worker_give_up_sender(ucp_worker_t *worker, ucs_status_t why)
{
    ucp_peer_t *peer;

    if (worker->sender == NULL) {
        return;
    }
    (void)ucp_worker_drop_peer(worker, worker->sender, 1);
    peer = ucp_peer_of_connection(worker);
    if (peer != NULL) {
        uct_ep_set_failed(peer->lanes[UCP_LANE_AM], why); /* progress does the rest */
    }
}

ucp_peer_t *ucp_peer_of_sender(ucp_worker_t *worker, uint64_t worker_id, const char *what)
{
    ucp_peer_t *peer = ucp_peer_find(worker, worker_id);

    if ((peer != NULL) && ucp_peer_is_sender(peer)) {
        return peer;
    }
    ucs_warn("%s from peer 0x%lx, which has not introduced itself: dropped", what,
             (unsigned long)worker_id);
    ucp_worker_give_up_sender(worker, UCS_ERR_REJECTED);
    return NULL;
}

ucp_peer_t *ucp_peer_of_kept(ucp_worker_t *worker, uint64_t worker_id, uint32_t session)
{
    ucp_peer_t *peer = ucp_peer_find(worker, worker_id);

    return ((peer != NULL) && (peer->session == session) && !peer->is_gone) ? peer : NULL;
}

/* ---- failure and end ---- */

static void ucp_peer_purge_cb(uct_pending_t *pending, void *arg UCS_UNUSED)
{
    ucp_request_t *req;

    if (pending->func == ucp_control_retry) {
        ucp_control_end(ucs_container_of(pending, ucp_control_t, pending));
    } else {
        req        = ucs_container_of(pending, ucp_request_t, send.pending);
        req->held &= (uint16_t)~UCP_REQUEST_HOLDS_PENDING;
    }
}

void ucp_peer_end_recvs(ucp_peer_t *peer, ucs_status_t status, ucp_recvs_t which)
{
    ucs_list_link_t todo;
    ucp_request_t *req;

    ucs_list_head_init(&todo);
    ucs_list_splice_tail(&todo, &peer->recvs);
    while (!ucs_list_is_empty(&todo)) {
        req = ucs_list_head(&todo, ucp_request_t, list);
        if ((req->recv.step == UCP_RECV_WAIT) && (req->recv.received == req->recv.total)) {
            ucp_rndv_recv_check_end(req); /* all is there, and its sender knows it */
        } else if (((which == UCP_RECVS_READING) && (req->recv.step == UCP_RECV_WAIT)) ||
                   ((which != UCP_RECVS_ALL) && ucp_rndv_leave_to_writer(req, status))) {
            ucs_list_del(&req->list);
            ucs_list_add_tail(&peer->recvs, &req->list);
        } else {
            ucp_rndv_stop_sender(req);
            ucp_request_complete(req, status);
        }
    }
}

/* What further devices still do for the peer is of no use, and ends as what the first one does. */
static void ucp_peer_fail_rails(ucp_peer_t *peer, ucs_status_t status)
{
    unsigned role;

    for (role = UCP_LANE_RAIL; role < UCP_LANE_LAST; ++role) {
        if (peer->lanes[role] != NULL) {
            uct_ep_set_failed(peer->lanes[role], status);
        }
    }
}

void ucp_peer_fail(ucp_peer_t *peer, ucs_status_t status)
{
    ucs_list_link_t todo;
    ucp_ep_t *ep;

    if (peer->status != UCS_OK) {
        return;
    }
    peer->status = status;
    ucp_worker_count(peer->worker, UCP_COUNT_PEERS_FAILED);
    ucp_rma_gate_add(peer, 1);
    uct_ep_pending_purge(peer->lanes[UCP_LANE_AM], ucp_peer_purge_cb, NULL);
    ucp_peer_fail_rails(peer, status);
    ucp_peer_hang_up(peer); /* it may live and wait for our answers */

    /* Callbacks may close any of the endpoints and make new ones, to the one that takes its place
     * even. */
    ucs_list_head_init(&todo);
    ucs_list_splice_tail(&todo, &peer->eps);
    while (!ucs_list_is_empty(&todo)) {
        ep = ucs_list_extract_head(&todo, ucp_ep_t, peer_list);
        ucs_list_add_tail(&peer->eps, &ep->peer_list);
        ucp_ep_set_limits(ep);
        ucp_ep_report_failure(ep);
        ucp_ep_hold(ep);
        ucp_ep_purge(ep, status);
        if (!ucp_peer_has_more(peer)) {
            ucp_stream_purge(ep, status);
        }
        ucp_ep_release(ep);
    }
    ucp_peer_end_recvs(peer, status,
                       ucp_peer_is_over(peer)  ? UCP_RECVS_ALL :
                       ucp_peer_has_more(peer) ? UCP_RECVS_READING :
                                                 UCP_RECVS_UNWRITTEN);
    ucp_rndv_given_up_end_all(peer->worker, peer);
    ucp_successors_rouse(peer->worker);
    ucp_peer_retire(peer);
}

void ucp_peer_abandon(ucp_peer_t *peer)
{
    if (peer->status == UCS_OK) {
        peer->status = UCS_ERR_CANCELED;
        uct_ep_pending_purge(peer->lanes[UCP_LANE_AM], ucp_peer_purge_cb, NULL);
    }
    ucp_peer_retire(peer);
}

void ucp_peer_ep_failed(void *arg UCS_UNUSED, uct_ep_t *ep, ucs_status_t status)
{
    ucp_peer_t *peer = ep->user;

    if (ep == peer->lanes[UCP_LANE_AM]) {
        ucs_debug("peer failed: %s", ucs_status_string(status));
        ucp_peer_fail(peer, status);
    } else if (ep == peer->lanes[UCP_LANE_DEVICE]) {
        peer->is_device_refused = 1;
    } else if (ep != peer->lanes[UCP_LANE_COPY]) {
        ucs_log((peer->status == UCS_OK) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_DEBUG,
                "a further device carries nothing to a peer any more (%s): the first one does",
                ucs_status_string(status));
    } else {
        ucp_peer_copy_failed(peer, status);
    }
}

/* Does an error handler wait for news? */
static int ucp_peer_is_watched(const ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if ((ep->err_mode != UCP_ERR_HANDLING_MODE_NONE) && !ep->is_closing &&
            (peer->status == UCS_OK)) {
            return 1;
        }
    }
    return 0;
}

void ucp_peer_gone(void *arg, const uint8_t uid[UCT_UID_LEN])
{
    ucp_worker_t *worker = arg;
    ucp_peer_t *peer     = ucp_peer_find(worker, ucp_uid_id(uid));

    if (peer == NULL) {
        return;
    }
    peer->is_gone = 1; /* first: what ends now may be about to ask it for more */
    peer->lanes[UCP_LANE_AM]->was_met = 1;
    /* What we wait for can come from nowhere else now. Sends of ours end by our own connection's
     * end. */
    ucp_peer_end_recvs(peer, (peer->status != UCS_OK) ? peer->status : UCS_ERR_CONNECTION_RESET,
                       UCP_RECVS_ALL);
    ucp_rndv_given_up_end_all(worker, peer); /* nor can answers */
    ucp_stream_peer_gone(peer);
    ucp_conn_peer_gone(peer);
    /* Who only listened has no such connection. Making one tells a death, which the user's handler
     * is to hear of, from a farewell. */
    if (ucp_peer_is_watched(peer)) {
        ucp_peer_send_control(peer, UCP_WIRE_HELLO, NULL, 0);
    }
    ucp_successors_rouse(worker);
    ucp_peer_retire(peer);
}

/* Is there an endpoint that the user has made, or has something in flight on? */
static int ucp_peer_has_used_ep(const ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if (!ep->is_internal || (ep->num_requests > 0)) {
            return 1;
        }
    }
    return 0;
}

/* Has no side ever said a word, so that no end will be heard of? */
static int ucp_peer_is_stranger(const ucp_peer_t *peer)
{
    return !peer->is_heard && !peer->hello_sent &&
           (peer->lanes[UCP_LANE_AM]->state == UCT_EP_IDLE);
}

/* A stranger who was known by connections of sockets only is made anew when there is something; of
 * others it counts which endpoint is the next. */
static int ucp_peer_is_counted(const ucp_peer_t *peer)
{
    return (peer->status == UCS_OK) && ucp_peer_is_stranger(peer) &&
           ((peer->next_ordinal > 0) || (peer->next_apart > UCP_WIRE_APART_ORDINAL));
}

static int ucp_peer_is_needed(const ucp_peer_t *peer)
{
    return (peer->num_left > 0) || ucp_peer_has_used_ep(peer) ||
           !ucs_list_is_empty(&peer->recvs) ||
           (!ucp_peer_is_over(peer) && !ucp_peer_is_stranger(peer));
}

/* Takes it from the list of those that are kept for a while. */
static void ucp_peer_leave_kept(ucp_peer_t *peer)
{
    if (peer->kept != NULL) {
        --peer->kept->num;
        peer->kept = NULL;
        ucs_list_del(&peer->retired);
    }
}

void ucp_peer_retire(ucp_peer_t *peer)
{
    if (!ucp_peer_is_needed(peer)) {
        ucp_peer_leave_kept(peer); /* it may have failed since */
        if (ucs_list_is_empty(&peer->retired)) {
            ucs_list_add_tail(&peer->worker->retired, &peer->retired);
            peer->worker->deferred |= UCP_DEFERRED_SOME;
        }
    }
}

static void ucp_peer_reap(ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    if (!ucp_peer_is_needed(peer)) { /* as before: it may have been given an endpoint since */
        while (!ucs_list_is_empty(&peer->eps)) {
            ep = ucs_list_head(&peer->eps, ucp_ep_t, peer_list);
            ucp_ep_free(ep);
        }
        ucs_list_del(&peer->retired); /* where the last endpoint has put it */
        ucs_hash_del(&peer->worker->peers, ucp_uid_id(peer->uid));
        ucp_peer_destroy(peer);
    }
}

/* And what belongs to them. */
static void ucp_peer_close_lanes(ucp_peer_t *peer)
{
    uct_iface_t *am = peer->lanes[UCP_LANE_AM]->iface;
    ucp_lane_role_t role;

    uct_ep_pending_purge(peer->lanes[UCP_LANE_AM], ucp_peer_purge_cb, NULL);
    for (; peer->lost_sync != 0; peer->lost_sync &= peer->lost_sync - 1) {
        am->tl->iface.sync_free(am, (uint32_t)__builtin_ctzll(peer->lost_sync));
    }
    for (role = UCP_LANE_AM + 1; role < UCP_LANE_LAST; ++role) {
        if ((peer->lanes[role] != NULL) && (peer->lanes[role] != peer->lanes[UCP_LANE_AM])) {
            uct_ep_close(peer->lanes[role]);
        }
        peer->lanes[role] = NULL;
    }
    uct_ep_close(peer->lanes[UCP_LANE_AM]);
    peer->lanes[UCP_LANE_AM] = NULL;
    ucp_device_forget(peer->worker, peer);
    ucp_device_keys_free(peer);
}

/* The dead are kept for the handles that the user has: what else they have, memory and descriptors
 * of a former connection, is given back. Without memory for that, not now. */
static void ucp_peer_leave_body(ucp_peer_t *peer)
{
    uct_ep_t *nowhere;
    ucp_ep_t *ep;

    if ((peer->status == UCS_OK) || ucp_peer_is_needed(peer) || !ucs_list_is_empty(&peer->late) ||
        peer->lanes[UCP_LANE_AM]->is_nowhere ||
        (uct_ep_open_nowhere(peer->lanes[UCP_LANE_AM]->iface, peer, &nowhere) != UCS_OK)) {
        return;
    }
    ucp_peer_close_lanes(peer);
    peer->lanes[UCP_LANE_AM] = nowhere;
    peer->copy_state         = UCP_COPY_NONE;
    uct_ep_set_failed(nowhere, peer->status);
    ucs_list_for_each(ep, &peer->eps, peer_list) {
        ep->am = nowhere;
    }
}

void ucp_peers_reap(ucp_worker_t *worker)
{
    ucp_peers_kept_t *kept;
    ucp_peer_t *peer;

    while (!ucs_list_is_empty(&worker->retired)) {
        peer = ucs_list_extract_head(&worker->retired, ucp_peer_t, retired);
        kept = (ucp_ep_handed_out(peer) != NULL) ? &worker->answerable :
               ucp_peer_is_counted(peer) ? &worker->counted : NULL;
        if (kept == NULL) {
            ucp_peer_reap(peer);
            continue;
        }
        ucp_peer_leave_body(peer);
        peer->kept = kept;
        ucs_list_add_tail(&kept->list, &peer->retired);
        if (++kept->num > UCP_PEERS_KEPT) {
            peer = ucs_list_head(&kept->list, ucp_peer_t, retired);
            ucp_peer_leave_kept(peer);
            ucp_peer_reap(peer);
        }
    }
}

void ucp_peer_destroy(ucp_peer_t *peer)
{
    /* Receives in flight end without a word: the worker goes away. */
    while (!ucs_list_is_empty(&peer->recvs)) {
        ucp_request_release_held(ucs_list_head(&peer->recvs, ucp_request_t, list));
    }
    while (!ucs_list_is_empty(&peer->late)) {
        ucs_list_del(peer->late.next);
    }
    if (peer->lanes[UCP_LANE_AM] != NULL) {
        ucp_peer_close_lanes(peer);
    }
    ucs_sys_free(peer);
}
