/* Halyard: rendezvous: tagged messages that are announced before they move; wire/wire.h has the protocol.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_RNDV_H
#define UCP_PROTOS_RNDV_H

#include <ucp/core/ep.h>
#include <ucp/wire/wire.h>

/* Handlers of the messages. */
void ucp_rndv_rts_handle(void *worker, const void *data, size_t length);
void ucp_rndv_rtr_handle(void *worker, const void *data, size_t length);
void ucp_rndv_data_handle(void *worker, const void *data, size_t length);
void ucp_rndv_fin_handle(void *worker, const void *data, size_t length);
void ucp_rndv_ats_handle(void *worker, const void *data, size_t length);

/* Sends the announcement (step UCP_SEND_RTS). UCS_OK: sent; UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rndv_send_rts(ucp_request_t *req);

/* Sends the pieces that are due (step UCP_SEND_DATA). UCS_OK: the step is over, and the request may have ended;
 * UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rndv_send_data(ucp_request_t *req);

/* One step of a request on the list of work. */
void ucp_rndv_send_work(ucp_request_t *req);
void ucp_rndv_recv_work(ucp_request_t *req);

/* Starts the transfer of an announced message into a receive. Never ends the receive inside the call. */
void ucp_rndv_recv_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts);

/* Claims of chunks of one transfer by two processes: the word counts chunks taken from the front (low half)
 * and from the back (high half). Returns the chunk's index, or UINT32_MAX where all are taken. A peer may
 * write anything into the word: the result is below num_chunks all the same. */
uint32_t ucp_rndv_claim(_Atomic uint64_t *word, uint32_t num_chunks, int from_back);

/* Takes all chunks that are left, for the front: their number; *first_p is the first. */
uint32_t ucp_rndv_claim_rest(_Atomic uint64_t *word, uint32_t num_chunks, uint32_t *first_p);

#endif
