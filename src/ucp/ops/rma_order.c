/* Halyard: puts, gets and atomics: which of those to one peer wait for one another.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/provisional.h>
#include <ucp/ops/rma.h>
#include <string.h>

/* Number of the oldest put, get or atomic to the peer in flight, or given up while it is copied. */
static uint64_t ucp_rma_oldest(const ucp_peer_t *peer)
{
    uint64_t sn = UINT64_MAX;
    const ucp_request_t *req;
    const ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        ucs_list_for_each(req, &ep->requests, list) {
            if (ucp_request_is_rma(req)) {
                sn = ucs_min(sn, req->send.sn);
                break; /* they are in order */
            }
        }
    }
    ucs_list_for_each(req, &peer->worker->late, list) {
        if (ucp_request_is_rma(req) && (req->send.peer == peer)) {
            sn = ucs_min(sn, req->send.sn);
        }
    }
    return sn;
}

int ucp_rma_is_late(const ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN])
{
    const ucp_request_t *req;

    ucs_list_for_each(req, &worker->late, list) {
        if ((req->kind == UCP_REQUEST_PUT) && (req->send.peer->status != UCS_OK) &&
            (memcmp(req->send.peer->real_uid, uid, UCT_UID_LEN) == 0)) {
            return 1;
        }
    }
    return 0;
}

static int ucp_rma_overlaps(const ucp_request_t *req, uint64_t start, uint64_t end)
{
    return (req->send.remote_addr < end) && (start < req->send.remote_addr + req->length);
}

/* Is one in flight to the same memory? */
static int ucp_rma_meets(const ucp_request_t *req, const ucp_request_t *older)
{
    return (older->send.step != UCP_SEND_DONE) &&
           ucp_rma_overlaps(req, older->send.remote_addr,
                            older->send.remote_addr + older->length);
}

/* Those of one kind go in order, unless one waits. */
static int ucp_rma_conflicts(const ucp_request_t *req, const ucp_request_t *older)
{
    return ((older->kind != req->kind) || (older->send.step == UCP_SEND_FENCED)) &&
           ucp_rma_meets(req, older);
}

/* Not zero: one in flight may stand in the way. */
static int ucp_rma_may_conflict(const ucp_request_t *req, const ucp_peer_t *peer)
{
    const unsigned own = req->kind - UCP_REQUEST_PUT;
    unsigned i;

    for (i = 0; i < ucs_array_size(peer->rma); ++i) {
        if ((peer->rma[i].num > 0) && ((i != own) || (peer->num_fenced > 0)) &&
            ucp_rma_overlaps(req, peer->rma[i].start, peer->rma[i].end)) {
            return 1;
        }
    }
    return 0;
}

/* Requests in flight that are looked at before one is posted: some us. */
#define UCP_RMA_LOOK 1024

/* The youngest that it conflicts with decides. Where so many are in flight that to look at all
 * takes long, it waits for the others. */
static uint64_t ucp_rma_conflict_fence(const ucp_request_t *req, const ucp_ep_t *ep, uint64_t fence)
{
    unsigned num_seen = 0;
    const ucs_list_link_t *link;
    const ucp_request_t *older;

    for (link = ep->requests.prev; link != &ep->requests; link = link->prev) {
        older = ucs_container_of(link, const ucp_request_t, list);
        if (older->send.sn < fence) {
            break;
        }
        if ((++num_seen > UCP_RMA_LOOK) ||
            (ucp_request_is_rma(older) && ucp_rma_conflicts(req, older))) {
            return older->send.sn + 1;
        }
    }
    return fence;
}

uint64_t ucp_rma_fence_of(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;
    uint64_t fence         = atomic_load_explicit(&req->worker->fence_sn, memory_order_relaxed);
    const ucp_ep_t *ep;

    if (ucp_rma_oldest(peer) >= fence) {
        fence = 0;
    }
    if (!ucp_rma_may_conflict(req, peer)) {
        return fence;
    }
    ucs_list_for_each(ep, &peer->eps, peer_list) {
        fence = ucp_rma_conflict_fence(req, ep, fence);
    }
    return fence;
}

int ucp_rma_is_behind_atomics(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;
    const unsigned own     = req->kind - UCP_REQUEST_PUT;
    unsigned num_seen      = 0;
    const ucp_request_t *older;
    const ucp_ep_t *ep;

    if ((req->kind != UCP_REQUEST_ATOMIC) || (peer->rma[own].num == 0) ||
        !ucp_rma_overlaps(req, peer->rma[own].start, peer->rma[own].end)) {
        return 0;
    }
    ucs_list_for_each(ep, &peer->eps, peer_list) {
        ucs_list_for_each(older, &ep->requests, list) {
            if ((++num_seen > UCP_RMA_LOOK) ||
                ((older->kind == UCP_REQUEST_ATOMIC) && ucp_rma_meets(req, older))) {
                return 1;
            }
        }
    }
    return 0;
}

void ucp_rma_count(const ucp_request_t *req, int num)
{
    ucp_peer_t *peer   = req->send.peer;
    unsigned i         = req->kind - UCP_REQUEST_PUT;
    uint64_t start     = req->send.remote_addr;
    const int is_first = (peer->rma[i].num == 0);

    ucp_rma_gate_add(peer, num);
    peer->rma[i].num += (unsigned)num;
    if (num > 0) {
        peer->rma[i].start = is_first ? start : ucs_min(peer->rma[i].start, start);
        peer->rma[i].end   = is_first ? start + req->length :
                                        ucs_max(peer->rma[i].end, start + req->length);
    }
}

void ucp_rma_wait_for(ucp_request_t *req, uint64_t fence_sn)
{
    ucp_peer_t *peer      = req->send.peer;
    ucs_list_link_t *link = peer->fenced.prev;

    /* Last, unless its endpoint has come to this peer after others. */
    while ((link != &peer->fenced) &&
           (ucs_container_of(link, ucp_request_t, work_list)->send.sn > req->send.sn)) {
        link = link->prev;
    }
    ucs_list_add_head(link, &req->work_list);
    req->held         |= UCP_REQUEST_HOLDS_WORK;
    req->send.step     = UCP_SEND_FENCED;
    req->send.fence_sn = fence_sn;
    ++peer->num_fenced;
}

/* Those that nothing before their fence holds back any more go on from progress, in the order of
 * their posting: so none waits for one behind it. */
static UCS_NOINLINE void ucp_rma_release_fenced(ucp_peer_t *peer)
{
    const uint64_t oldest = ucp_rma_oldest(peer);
    ucp_request_t *req;

    while (!ucs_list_is_empty(&peer->fenced)) {
        req = ucs_list_head(&peer->fenced, ucp_request_t, work_list);
        if (req->send.fence_sn > oldest) {
            break;
        }
        ucp_request_del_work(req);
        req->send.fence_sn = 0;
        ucp_request_add_work(req);
    }
}

void ucp_rma_ended(ucp_request_t *req)
{
    ucp_peer_t *peer = req->send.peer;

    ucp_rma_count(req, -1);
    if (req->send.step == UCP_SEND_FENCED) {
        --peer->num_fenced;
    }
    if (ucs_unlikely(!ucs_list_is_empty(&peer->fenced))) {
        ucp_rma_release_fenced(peer);
    }
    if (ucs_unlikely(peer->status != UCS_OK)) {
        ucp_successors_rouse(req->worker);
    }
}

void ucp_rma_set_peer(ucp_request_t *req, ucp_peer_t *peer)
{
    unsigned is_fenced = (req->send.step == UCP_SEND_FENCED);

    ucp_rma_count(req, -1);
    req->send.peer->num_fenced -= is_fenced;
    req->send.peer              = peer;
    if (is_fenced && (req->send.fence_sn != 0)) {
        ucp_request_del_work(req);
        ucp_rma_wait_for(req, req->send.fence_sn);
    } else {
        peer->num_fenced += is_fenced;
    }
    ucp_rma_count(req, 1);
}

ucs_status_t ucp_worker_fence(ucp_worker_h worker)
{
    ucp_worker_lock(worker);
    atomic_store_explicit(&worker->fence_sn, worker->send_sn, memory_order_relaxed);
    ucs_arch_full_fence(); /* orders the loads and stores of the direct way around it */
    ucp_worker_unlock(worker);
    return UCS_OK;
}
