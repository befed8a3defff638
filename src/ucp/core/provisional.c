/* Halyard: endpoints whose peer is not there yet: implementation.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/provisional.h>
#include <ucp/ops/rma.h>
#include <ucp/wire/address.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/door.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

ucs_status_t ucp_peer_create_provisional(ucp_worker_t *worker, ucp_peer_t **peer_p)
{
    uint8_t uid[UCT_UID_LEN];
    ucs_status_t status;

    ucp_peer_make_up_uid(uid);
    status = ucp_peer_create(worker, uid, NULL, peer_p);
    if (status == UCS_OK) {
        (*peer_p)->is_provisional = 1;
        ucp_peer_send_control(*peer_p, UCP_WIRE_HELLO, NULL, 0); /* waits, and is never sent */
    }
    return status;
}

/* Puts what waits where it now can go; the control message was only there to be waited for. */
static void ucp_provisional_requeue(uct_pending_t *pending, void *arg)
{
    ucp_peer_t *peer = arg;

    if (pending->func == ucp_control_retry) {
        ucp_control_end(ucs_container_of(pending, ucp_control_t, pending));
    } else {
        uct_ep_pending_add(peer->lanes[UCP_LANE_AM], pending);
    }
}

void ucp_ep_leave_provisional(ucp_ep_t *ep, ucp_peer_t *peer)
{
    ucp_peer_t *provisional = ep->peer;
    ucp_request_t *req;

    ucs_list_for_each(req, &ep->requests, list) {
        if (ucp_request_is_rma(req)) {
            ucp_rma_set_peer(req, peer);
        }
        req->send.peer     = peer;
        req->send.is_zcopy = 0; /* the real lane may be another transport's */
    }
    uct_ep_pending_purge(ep->am, ucp_provisional_requeue, peer);
    ucp_ep_set_peer(ep, peer);
    ucp_peer_abandon(provisional);
}

/* ---- after a failure ---- */

/* UCS_INPROGRESS: the worker's former peer has failed, or progress is about to find that it has,
 * and its connections to us have yet to end, which they will, unless its process is stopped, or
 * copies that puts to it have begun; or its address leads to its door only. */
static ucs_status_t ucp_peer_get_if_parted(ucp_worker_t *worker, const ucp_address_info_t *address,
                                           ucp_peer_t **peer_p)
{
    ucp_peer_t *peer = ucp_peer_find(worker, ucp_uid_id(address->uid));
    ucs_status_t status;

    if (worker->is_inherited) {
        return UCS_ERR_CONNECTION_RESET; /* nothing comes here, nor any end */
    }
    if ((peer != NULL) && (peer->status == UCS_OK) &&
        (peer->lanes[UCP_LANE_AM]->state == UCT_EP_FAILED)) {
        ucp_rma_gate_add(peer, 1); /* for good: nothing of its endpoints overtakes what waits */
        return UCS_INPROGRESS;
    }
    if (ucp_rma_is_late(worker, address->uid) ||
        (((peer == NULL) || ((peer->status != UCS_OK) && ucp_peer_is_over(peer))) &&
         ucp_door_is_needed(worker, address))) {
        return UCS_INPROGRESS;
    }
    status = ucp_peer_get(worker, address, peer_p);
    return ((status == UCS_OK) && ((*peer_p)->status != UCS_OK)) ? UCS_INPROGRESS : status;
}

/* Goes to the door of a worker, if nothing else leads to it, and not all descriptors are needed for
 * other doors just now: then once one of these has been left. */
static ucs_status_t ucp_successor_ask(ucp_peer_t *successor, const ucp_address_info_t *info)
{
    ucs_status_t status;

    if (successor->has_asked || !ucp_door_is_needed(successor->worker, info)) {
        return UCS_OK;
    }
    status = ucp_door_knock(successor, info);
    if (status == UCS_ERR_BUSY) {
        return UCS_OK;
    }
    successor->has_asked = (status == UCS_OK);
    return status;
}

/* A provisional peer for a worker whose former one has to part first. All endpoints to it wait on
 * one, so that fences order what they do; there is one at least. */
static ucs_status_t ucp_successor_create(ucp_worker_t *worker, const void *address,
                                         const ucp_address_info_t *info, ucp_peer_t **peer_p)
{
    ucs_status_t status = ucp_peer_create_provisional(worker, peer_p);

    if (status != UCS_OK) {
        return status;
    }
    memcpy((*peer_p)->real_uid, info->uid, UCT_UID_LEN);
    status = ucp_successor_found(*peer_p, address);
    if (status == UCS_OK) {
        status = ucp_successor_ask(*peer_p, info);
    }
    if (status != UCS_OK) {
        ucs_sys_free((*peer_p)->address);
        (*peer_p)->address = NULL;
        ucp_peer_abandon(*peer_p);
        return status;
    }
    ucs_list_add_tail(&worker->successors, &(*peer_p)->retired);
    return UCS_OK;
}

ucs_status_t ucp_successor_found(ucp_peer_t *successor, const void *address)
{
    size_t length = ucp_address_length(address);
    uint8_t *copy = ucs_sys_malloc(length);

    if (copy == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(copy, address, length);
    ucs_sys_free(successor->address);
    successor->address = copy;
    ucp_successors_rouse(successor->worker);
    return UCS_OK;
}

/* It waits no more. */
static void ucp_successor_end(ucp_peer_t *successor)
{
    ucp_door_leave(successor);
    ucs_list_del(&successor->retired);
    ucs_sys_free(successor->address);
    successor->address = NULL;
}

ucs_status_t ucp_peer_get_or_await(ucp_worker_t *worker, const void *address, ucp_peer_t **peer_p)
{
    ucp_peer_t *successor;
    ucp_address_info_t info;
    ucs_status_t status = ucp_address_unpack(address, UCP_ADDRESS_MAX, &info);

    if (status != UCS_OK) {
        ucs_error("ucp_ep_create: these bytes are no worker address");
        return status;
    }
    ucs_list_for_each(successor, &worker->successors, retired) {
        if ((successor->status == UCS_OK) &&
            (memcmp(successor->real_uid, info.uid, UCT_UID_LEN) == 0)) {
            *peer_p = successor;
            return UCS_OK;
        }
    }
    status = ucp_peer_get_if_parted(worker, &info, peer_p);
    return (status == UCS_INPROGRESS) ? ucp_successor_create(worker, address, &info, peer_p)
                                      : status;
}

void ucp_peer_leave_unused(ucp_peer_t *peer)
{
    if (!peer->is_provisional || !ucs_list_is_empty(&peer->eps)) {
        return;
    }
    if (peer->address != NULL) {
        ucp_successor_end(peer);
    }
    ucp_peer_abandon(peer);
}

int ucp_successors_have(ucp_worker_t *worker, uint32_t ordinal)
{
    const ucp_peer_t *successor;
    const ucp_ep_t *ep;

    ucs_list_for_each(successor, &worker->successors, retired) {
        ucs_list_for_each(ep, &successor->eps, peer_list) {
            if (ep->ordinal == ordinal) {
                return 1;
            }
        }
    }
    return 0;
}

void ucp_successors_abandon(ucp_worker_t *worker)
{
    ucp_peer_t *successor;

    while (!ucs_list_is_empty(&worker->successors)) {
        successor = ucs_list_head(&worker->successors, ucp_peer_t, retired);
        ucp_successor_end(successor);
        ucp_peer_abandon(successor);
    }
}

void ucp_successors_rouse(ucp_worker_t *worker)
{
    worker->deferred |= ucs_list_is_empty(&worker->successors) ? 0 : UCP_DEFERRED_SOME;
}

/* UCS_INPROGRESS: not yet. */
static ucs_status_t ucp_successor_find(ucp_peer_t *successor, ucp_peer_t **peer_p)
{
    ucs_status_t status = successor->status; /* without memory it has failed already */
    ucp_address_info_t info;

    if (status == UCS_OK) {
        status = ucp_address_unpack(successor->address, UCP_ADDRESS_MAX, &info);
    }
    if (status == UCS_OK) {
        status = ucp_peer_get_if_parted(successor->worker, &info, peer_p);
    }
    if (status == UCS_INPROGRESS) {
        status = ucp_successor_ask(successor, &info);
        status = (status == UCS_OK) ? UCS_INPROGRESS : status;
    }
    return status;
}

void ucp_successors_settle(ucp_worker_t *worker)
{
    ucp_peer_t *successor, *next, *peer;
    ucs_status_t status;

    ucs_list_for_each_safe(successor, next, &worker->successors, retired) {
        status = ucp_successor_find(successor, &peer);
        if (status == UCS_INPROGRESS) {
            continue;
        }
        ucp_successor_end(successor);
        if (status != UCS_OK) {
            uct_ep_set_failed(successor->lanes[UCP_LANE_AM], status); /* the rest from progress */
            continue;
        }
        ucp_rma_gate_add(peer, 1); /* another thread may post on those that have moved already */
        while (!ucs_list_is_empty(&successor->eps)) { /* in the order of their creation */
            ucp_ep_leave_provisional(ucs_list_head(&successor->eps, ucp_ep_t, peer_list), peer);
        }
        ucp_rma_gate_add(peer, -1);
        /* From the first again: callbacks, of bytes that had come, may have closed the next. */
        next = ucs_container_of(worker->successors.next, ucp_peer_t, retired);
    }
}
