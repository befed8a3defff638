/* Halyard: endpoints whose peer is not there yet.
 *
 * They begin on a provisional peer, whose lane holds back what is sent, and move to the real one
 * with all that waits: a client's once its server has answered (wireup/conn.c); that of a worker
 * which was reached before, and was lost, once nothing of its former connections can come any more,
 * since that would be taken for what it sends on the new ones, and no put by them is under way any
 * more, since fences order what follows behind it; or once a worker has said at its door where its
 * network is (wireup/door.h). One may wait for several of these.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_PROVISIONAL_H
#define UCP_CORE_PROVISIONAL_H

#include <ucp/core/ep.h>

/* A peer that is not known yet: its lane holds back what is sent. It has a made-up identity, and a
 * queued control message, for which flushes wait. It ends by ucp_peer_fail or ucp_peer_abandon. */
ucs_status_t ucp_peer_create_provisional(ucp_worker_t *worker, ucp_peer_t **peer_p);

/* Moves an endpoint and what waits there from its provisional peer, which ends, to a real one. */
void ucp_ep_leave_provisional(ucp_ep_t *ep, ucp_peer_t *peer);

/* The peer that an endpoint to this address begins on: that of the worker, or, while the one that
 * has failed there has yet to end, or the way there to be found, a provisional one. As
 * ucp_peer_get. UCS_ERR_INVALID_ADDR: it is none, which is logged. */
ucs_status_t ucp_peer_get_or_await(ucp_worker_t *worker, const void *address, ucp_peer_t **peer_p);

/* The address of the worker that such a peer waits for has been asked for at its door: this one
 * leads to it. UCS_ERR_NO_MEMORY. */
ucs_status_t ucp_successor_found(ucp_peer_t *successor, const void *address);

/* A provisional peer ends if no endpoint is left on it, or none has been made. */
void ucp_peer_leave_unused(ucp_peer_t *peer);

/* Does one of those that wait bear this ordinal of a socket connection? */
int ucp_successors_have(ucp_worker_t *worker, uint32_t ordinal);

/* The worker goes: nothing is waited for any more. */
void ucp_successors_abandon(ucp_worker_t *worker);

/* Some peer has failed or parted, or a put to one that had has ended: those that wait are looked at
 * by the next progress. */
void ucp_successors_rouse(ucp_worker_t *worker);

/* Moves those that need not wait any more. From progress, outside of the transports. */
void ucp_successors_settle(ucp_worker_t *worker);

#endif
