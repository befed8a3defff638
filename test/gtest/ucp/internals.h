/* Halyard: what the tests of ucp must see of its inside, for C++.
 *
 * The internal headers of ucp are C; internals.c includes them, so that the tests need not.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCP_INTERNALS_H
#define TEST_GTEST_UCP_INTERNALS_H

#include <ucp/api/ucp.h>
#include <uct/api/uct_tl.h>

BEGIN_C_DECLS

/* ---- workers and endpoints ---- */

/* Ends of the ranges of sizes with one protocol for sends and for receives, and the largest message
 * that is sent whole; returns how many there are, at most `max`. */
size_t ucp_test_thresholds(ucp_ep_h ep, size_t *sizes, size_t max);

/* The protocol for a message of this size, as in UCX_PROTO_INFO. */
const char *ucp_test_protocol(ucp_ep_h ep, size_t length);

/* Requests, queued control messages and kept messages in use. */
unsigned ucp_test_num_requests(ucp_worker_h worker);
unsigned ucp_test_num_controls(ucp_worker_h worker);
unsigned ucp_test_num_kept(ucp_worker_h worker);
/* Bytes of memory that UCX_TM_UNEXP_BUDGET bounds. */
size_t ucp_test_unexp_bytes(ucp_worker_h worker);
/* As many workers of this process count as if they were of others. */
void ucp_test_hide_workers(int change);
/* Where there may be devices the worker has each buffer looked at, instead of what its address and
 * the time since the last look tell. */
void ucp_test_look_always(ucp_worker_h worker);
/* Of a send in flight: has there been a time when flushes did not wait for it? */
int ucp_test_was_handed(void *request);
/* Is it a tagged receive whose message has begun to come? */
int ucp_test_is_amid(void *request);
/* Has the endpoint's peer said that it wants announcements only? */
int ucp_test_is_holding(ucp_ep_h ep);
/* Data and descriptors of active messages, and of streams that were lent to the user. */
unsigned ucp_test_num_kept_data(ucp_worker_h worker);
/* Bytes of such data, and of active messages that wait or are fetched. */
size_t ucp_test_kept_bytes(ucp_worker_h worker);

/* Requests that peers can name. */
size_t ucp_test_num_ids(ucp_worker_h worker);

/* By which peers know a worker, and a request (0: by none). With an endpoint: by its peer only. */
uint64_t ucp_test_worker_id(ucp_worker_h worker);
uint64_t ucp_test_request_id(void *request, ucp_ep_h ep);

/* Has the worker an endpoint to the other one, or heard who that is? */
int ucp_test_knows(ucp_worker_h worker, ucp_worker_h other);

/* How many other workers it remembers. */
size_t ucp_test_num_peers(ucp_worker_h worker);

/* Position of an endpoint among those of its worker to the same peer: the one it pairs with has the
 * same. */
unsigned ucp_test_ordinal(ucp_ep_h ep);

/* Ends everything with the endpoint's peer, as if it had died; from where progress calls. */
void ucp_test_peer_fail(ucp_ep_h ep, ucs_status_t status);

/* The lane for messages has failed, which progress will find. */
void ucp_test_lane_fail(ucp_ep_h ep, ucs_status_t status);

/* As if what the peer has connected to us had ended; from where progress calls. */
void ucp_test_peer_gone(ucp_ep_h ep);

/* Refuses single copies to and from the endpoint's peer from now on, as after an EPERM. */
void ucp_test_refuse_copies(ucp_ep_h ep);

/* Can networks read and write the key's memory? */
int ucp_test_has_net_key(ucp_rkey_h rkey);

/* Sends bytes as a message of ucp, whatever they are. UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_test_inject(ucp_ep_h ep, unsigned id, const void *data, size_t length);

/* Hands bytes to the handler of a message, as if a peer had sent them. */
void ucp_test_handle(ucp_worker_h worker, unsigned id, const void *data, size_t length);
/* The same to an endpoint's worker, as if by the connection of the endpoint's peer. */
void ucp_test_handle_from(ucp_ep_h ep, unsigned id, const void *data, size_t length);

/* As if another worker, known by its address and id, had introduced itself and written a word to
 * the stream of its first endpoint, both between two calls of progress. */
void ucp_test_stream_comes(ucp_worker_h worker, const void *address, size_t address_length,
                           uint64_t worker_id, uint64_t word);

/* How many handlers run of 16 sockets that are ready at once, where the first to run takes out and
 * closes all others, whose numbers new descriptors get, which are not ready. */
unsigned ucp_test_take_out_sockets(ucp_worker_h worker);
/* What adding a descriptor gives; it is taken out again. */
ucs_status_t ucp_test_add_socket(ucp_worker_h worker, int fd);

/* ---- matching ---- */

typedef struct ucp_test_match ucp_test_match_t;

ucp_test_match_t *ucp_test_match_create(unsigned num_buckets);
void ucp_test_match_destroy(ucp_test_match_t *match);

/* Receives and messages are known by a number of the caller's. */
void *ucp_test_match_post(ucp_test_match_t *match, uint64_t tag, uint64_t mask, int number);
void ucp_test_match_cancel(ucp_test_match_t *match, void *posted);
/* The number of the receive that the message goes to, or -1: it is kept under `number`. */
int ucp_test_match_arrive(ucp_test_match_t *match, uint64_t tag, int number);
/* The number of the first message kept that matches, or -1. */
int ucp_test_match_search(ucp_test_match_t *match, uint64_t tag, uint64_t mask, int remove);
size_t ucp_test_match_buckets(const ucp_test_match_t *match);

END_C_DECLS

#endif
