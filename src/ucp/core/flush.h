/* Halyard: flush and close: waiting for the sends that were posted before.
 *
 * Answers (ATS, FIN, RTR) that wait for a connection count as sends: who closes an endpoint may
 * never progress again, and the peer's requests end by them. Those to puts, gets and atomics count
 * for closes only: the peer may leave its worker alone until who flushes here has gone on.
 *
 * A close ends when every send that was in flight on its endpoint at the time of the call has
 * ended (one by force has ended them all, and waits for no answers either), a flush (of an
 * endpoint, or of the worker) when each has ended or waits for its receiver only
 * (ucp_ep_hand_over); what was handed to a transport is then at the peer. Sends posted later do not
 * delay them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_FLUSH_H
#define UCP_CORE_FLUSH_H

#include <ucp/core/ep.h>

/* Who has waited for the end of a send. */
typedef enum {
    UCP_FLUSH_OF_FLUSH = 1 << 0,
    UCP_FLUSH_OF_CLOSE = 1 << 1,
    UCP_FLUSH_OF_BOTH  = UCP_FLUSH_OF_FLUSH | UCP_FLUSH_OF_CLOSE
} ucp_flush_of_t;

/* A tracked send of `ep`, or (ep NULL) a queued answer to `peer`, with number sn has ended, as far
 * as flushes or closes (`whose`) are concerned: counts down those that wait for it. */
void ucp_flush_send_ended(ucp_worker_t *worker, const ucp_ep_t *ep, const ucp_peer_t *peer,
                          uint64_t sn, ucp_flush_of_t whose);

/* A put, get or atomic that has not yet left its list fails: the flushes behind it that wait for it
 * tell so, or, where is_unheard (its request tells nobody), the next one of its endpoint and the
 * next one of the worker. */
void ucp_flush_rma_failed(const ucp_request_t *rma, ucs_status_t status, int is_unheard);

/* The endpoint leaves its peer, which may live on, because it is lost: its flushes wait for its own
 * sends only, which are about to end with `status`. */
void ucp_flush_ep_lost(ucp_ep_t *ep, ucs_status_t status);

/* The end of a flush or close, from progress. */
void ucp_flush_work(ucp_request_t *req);

#endif
