/* Halyard: streams: an ordered sequence of bytes each way of a pair of endpoints.
 *
 * The n-th endpoint that a worker makes to another pairs with the n-th of the other; messages name
 * the sender's by its ordinal. Bytes go whole or announced, all in one order; the receiver keeps
 * them on the endpoint (ucp_kept_t) until they are read. What is announced stays at the sender
 * until it is read, in parts if need be.
 *
 * Back-pressure: who reads says how much, in what it sends itself or, at the latest after an eighth
 * of UCP_STREAM_BUDGET, in a message of its own. While more than the budget is not known to be read
 * sends wait for progress, which may hear of it, and are then announced: a receiver that does not
 * read keeps no more than the budget, the message that exceeds it and announcements.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_STREAM_H
#define UCP_OPS_STREAM_H

#include <ucs/ds/list.h>
#include <ucs/type/status.h>
#include <stddef.h>
#include <stdint.h>

#define UCP_STREAM_BUDGET ((size_t)512 * 1024) /* bytes, each piece with what keeping it costs */

struct ucp_ep;
struct ucp_peer;
struct ucp_request;

/* The part of an endpoint that belongs to its stream. */
typedef struct {
    ucs_list_link_t chunks; /* ucp_kept_t: arrived, unread */
    ucs_list_link_t recvs;  /* posted receives */
    ucs_list_link_t ready;  /* in worker->stream_ready while chunks are there */
    size_t          unread; /* sent whole, not known to be read; bounded by the budget */
    uint32_t        read;   /* of what has come whole, not yet said; less than the budget */
    ucs_status_t    status; /* why nothing comes after the chunks, or UCS_OK */
} ucp_stream_t;

/* Sends req->length bytes as one message. UCS_OK: sent; UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_stream_send_eager(struct ucp_request *req);

/* Has the peer too much that it has not read, for all that is known? */
int ucp_stream_must_announce(const struct ucp_request *req);

/* Is this one of several sends, and does not wait for an answer to the last? */
int ucp_stream_is_busy(const struct ucp_request *req);

/* Tells the peer what was read. */
void ucp_stream_say_read(struct ucp_ep *ep);

/* The user closes the endpoint: nobody will read what has come or will come, which senders of what
 * was announced hear at once: they may wait for it with a close of their own. Posted receives end,
 * be they filled or not, but for one into which others are just writing. */
void ucp_stream_close(struct ucp_ep *ep);

/* Ends the posted receives with `status`, but for one that the peer is just filling. Where one had
 * got a part of its bytes, the stream ends there. */
void ucp_stream_purge(struct ucp_ep *ep, ucs_status_t status);

/* The same for all endpoints of a peer, which has left: even if it comes back, nothing follows what
 * has come. */
void ucp_stream_peer_gone(struct ucp_peer *peer);

/* An announced send will not come: its stream ends before it with `status`. */
void ucp_stream_cancelled(struct ucp_peer *peer, uint64_t send_id, ucs_status_t status);

/* What has come for one endpoint belongs to another of the same peer. */
void ucp_stream_move(struct ucp_ep *from, struct ucp_ep *to);

/* The endpoint is freed: drops what was not read, tells the senders of what was announced. */
void ucp_stream_cleanup(struct ucp_ep *ep);

/* Handlers of UCP_WIRE_STREAM and UCP_WIRE_STREAM_RTS. */
void ucp_stream_handle(void *worker, const void *data, size_t length);
void ucp_stream_rts_handle(void *worker, const void *data, size_t length);

#endif
