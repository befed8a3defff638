/* Halyard: flush and close: waiting for the sends that were posted before.
 *
 * Answers (ATS, FIN, RTR) that wait for a connection count as sends: who closes an endpoint may
 * never progress again, and the peer's requests end by them.
 *
 * A flush ends when every send that was in flight on its endpoint (or on the worker) at the time
 * of the call has ended; what was handed to a transport is then at the peer. Sends posted later do
 * not delay it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_FLUSH_H
#define UCP_CORE_FLUSH_H

#include <ucp/core/ep.h>

/* A tracked send of `ep`, or (ep NULL) a queued answer to `peer`, with number sn has ended: counts
 * down the flushes that wait for it. */
void ucp_flush_send_ended(ucp_worker_t *worker, const ucp_ep_t *ep, const ucp_peer_t *peer,
                          uint64_t sn);

/* The endpoint leaves its peer, which may live on, because it is lost: its flushes wait for its own
 * sends only, which are about to end with `status`. */
void ucp_flush_ep_lost(ucp_ep_t *ep, ucs_status_t status);

/* The end of a flush or close, from progress. */
void ucp_flush_work(ucp_request_t *req);

/* Starts a flush of ep (NULL: of the worker). Returns NULL, a request or an error pointer. */
ucs_status_ptr_t ucp_flush_start(ucp_worker_t *worker, ucp_ep_t *ep,
                                 const ucp_request_param_t *param, ucp_request_kind_t kind);

#endif
