/* Halyard: rendezvous: messages that are announced before they move; wire/wire.h has the
 * protocol.
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
void ucp_rndv_cancel_handle(void *worker, const void *data, size_t length);

/* Sends the announcement (step UCP_SEND_RTS). UCS_OK: sent; UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rndv_send_rts(ucp_request_t *req);

/* Sends some of the pieces that are due (step UCP_SEND_DATA). UCS_OK: the step is over, and the
 * request may have ended; UCS_INPROGRESS: there is more, after others had their turn;
 * UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rndv_send_data(ucp_request_t *req);

/* Tells the receiver of an announced message, if it does not have all of it, that the send ends
 * before that with `status`; the caller completes the request. Where the receiver may be reading it
 * by the key of its announcement, that ends once the receiver has answered, its peer is lost or
 * gone, or some time has passed. */
void ucp_rndv_send_cancel(ucp_request_t *req, ucs_status_t status);

/* The end of such a send; of all to a peer, or (NULL) of the worker. */
void ucp_rndv_given_up_end(ucp_request_t *req);
void ucp_rndv_given_up_end_all(ucp_worker_t *worker, const ucp_peer_t *peer);

/* Has the receiver said that it has all, of a send that waits for its turn to claim more? */
int ucp_rndv_is_delivered(const ucp_request_t *req);

/* Gives back the sync word of a send that ends. */
void ucp_rndv_put_sync_word(ucp_request_t *req);

/* Tells a sender that nothing (more) of its message is wanted: `status` ends its request. */
void ucp_rndv_answer(ucp_peer_t *peer, uint64_t send_id, ucs_status_t status);

/* One step of a request on the list of work. */
void ucp_rndv_send_work(ucp_request_t *req);
void ucp_rndv_recv_work(ucp_request_t *req);

/* Starts the transfer of an announced message into a receive. peer NULL: it is gone. was_awaited:
 * the receive of a tagged message was posted before. Never ends the receive inside the call. */
void ucp_rndv_recv_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts,
                         int was_awaited);

/* The same for what the receive has room for of the message from byte `base` on. Where
 * req->recv.is_part is set more of it will be asked for, so that the send goes on; was_awaited is
 * set, too. */
void ucp_rndv_recv_range(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts,
                         size_t base);

/* Tells a sender that its announced message is dropped, or (UCS_OK) that nobody wanted it. */
void ucp_rndv_drop(ucp_worker_t *worker, const ucp_wire_rts_t *rts, ucs_status_t status);

/* Reads an announcement of `length` bytes, whose sender must be known. NULL: it is no such thing
 * (logged). */
ucp_peer_t *ucp_rndv_read_rts(ucp_worker_t *worker, unsigned id, const void *data, size_t length,
                              ucp_wire_rts_t *rts);

/* How a request ends that the peer has ended with a status (as ucp_wire_status). Cancelled is what
 * the user cancels here: by the close of an endpoint there its connection is cut off. */
ucs_status_t ucp_rndv_status_there(int32_t status, ucs_status_t unless);

/* What the two sides share with rndv_device.c. Receiver: the end of its reads, a range asked for
 * (UCP_WIRE_RTR_xx), all from `offset` on asked for as messages, and the end if all is there. */
void ucp_rndv_send_ats(ucp_request_t *req, ucs_status_t status);
void ucp_rndv_send_rtr(ucp_request_t *req, size_t offset, size_t length, unsigned flags);
void ucp_rndv_ask_for_rest(ucp_request_t *req, size_t offset, size_t length);

/* Receiver: was the message still the sender's when it was read? No more than: none of its sender's
 * has ended early since it was announced. A sender that ends one early counts it before its buffer
 * changes, and says so by a message, which may lie unread behind others. Who has sent nothing yet
 * is not connected, and cannot see the count: in some microseconds it can, unless the sender is at
 * something else (is_connecting: try again later). */
int ucp_rndv_was_there(const ucp_request_t *req);
int ucp_rndv_is_connecting(ucp_request_t *req);

/* A receive that ends early, whose sender may live: it is to write no more into the buffer. */
void ucp_rndv_stop_sender(ucp_request_t *req);
/* May the sender of a receive, which was stopped, write into its buffer still? */
int ucp_rndv_is_written(const ucp_request_t *req);
/* Our connection has failed. Where the sender may be writing into the buffer, the receive waits for
 * the end of what was begun, or of the sender. 0: it need not. */
int ucp_rndv_leave_to_writer(ucp_request_t *req, ucs_status_t status);
/* Cancels a receive, unless all of it is there, or others are writing into the buffer: it ends when
 * they have. The caller tells the sender. */
void ucp_rndv_recv_give_up(ucp_request_t *req);
void ucp_rndv_recv_check_end(ucp_request_t *req);
/* `length` bytes have been read: counted, but never beyond the message, since a peer may have
 * claimed them by FIN. All that was to be read has been: the sender is told, and the end if all is
 * there. */
void ucp_rndv_recv_count(ucp_request_t *req, size_t length);
void ucp_rndv_recv_read_all(ucp_request_t *req);
/* A receive that waits for `length` bytes more, a send; NULL where a message `what` names none. */
ucp_request_t *ucp_rndv_find_recv(ucp_worker_t *worker, uint64_t id, uint64_t length,
                                  const char *what);
ucp_request_t *ucp_rndv_find_send(ucp_worker_t *worker, uint64_t id, const char *what);
/* Looks after `duration_ns` whether the sender has begun (worker->asked); does so for all whose
 * time has come, and returns what was done. Are there such that may have to be started without an
 * event? */
void ucp_rndv_watch(ucp_request_t *req, uint64_t duration_ns);
unsigned ucp_rndv_overdue(ucp_worker_t *worker);
int ucp_rndv_is_watching(const ucp_worker_t *worker);
/* Sender: nothing is left to deliver; starts the messages; a range to be sent by them; the end of
 * writing: tells how much, then starts these. */
void ucp_rndv_send_end(ucp_request_t *req);
void ucp_rndv_start_data(ucp_request_t *req);
void ucp_rndv_add_data(ucp_request_t *req, size_t offset, size_t length);
void ucp_rndv_put_end(ucp_request_t *req);

/* Reads over a network (rndv_read.c). Sender: adds the key of the buffer to its announcement, where
 * the receiver may want to read. Receiver: starts a receive that way, 0: that is no way for it; a
 * step. */
void ucp_rndv_read_announce(ucp_request_t *req, ucp_wire_rts_t *rts);
int ucp_rndv_read_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts);
void ucp_rndv_read_step(ucp_request_t *req);

/* Messages between device memory (rndv_device.c). May the DEVICE lane carry this send? */
int ucp_rndv_device_is_way(const ucp_request_t *req);
/* UCP_WIRE_RTS_PINNED for a send from memory of the host that the DEVICE lane may carry, else 0. */
unsigned ucp_rndv_device_host_flag(const ucp_request_t *req);
/* Adds the key of the send's buffer to its announcement, where there is one. UCS_ERR_NO_RESOURCE:
 * try again. */
ucs_status_t ucp_rndv_device_announce(ucp_request_t *req, ucp_wire_rts_t *rts);
/* Starts a receive by the DEVICE lane; 0: that is no way for it. */
int ucp_rndv_device_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts);
/* Sender: is it its turn to copy, or has the receiver claimed that? From now on it is settled. */
int ucp_rndv_device_claim(ucp_request_t *req);
/* Receiver: takes a copy that the sender was asked for, if that has not begun; returns what was
 * done. */
unsigned ucp_rndv_device_take(ucp_request_t *req);
/* How long nothing may be heard of the sender before; is it to copy all between the two, as both
 * buffers lie on one device? */
uint64_t ucp_rndv_device_wait_ns(const ucp_request_t *req);
int ucp_rndv_device_is_copied_there(const ucp_request_t *req);
/* Messages between devices whose memory cannot be shown (rndv_staged.c): starts sending the range
 * that an RTR asked for; 0: not this way. Then a step; the chunks of a send that ends. */
int ucp_rndv_staged_start(ucp_request_t *req, size_t offset, size_t length);
void ucp_rndv_staged_go(ucp_request_t *req);
void ucp_rndv_frag_handle(void *worker, const void *data, size_t length);
void ucp_rndv_frag_end_handle(void *worker, const void *data, size_t length);

/* Messages between device memory here and memory of the host there (rndv_piped.c): starts step GET
 * of a receive, or PUT of a send; 0: there is no memory for it. */
int ucp_rndv_piped_start(ucp_request_t *req);

/* Bytes at an offset of the message read from the sender or written to the receiver by single copy.
 * A refusal of reading is noted with the peer. */
ucs_status_t ucp_rndv_read(ucp_request_t *req, void *dest, size_t offset, size_t length);
ucs_status_t ucp_rndv_write(ucp_request_t *req, void *source, size_t offset, size_t length);

/* Is the receiver's worker being destroyed, or can that not be told? From then on its buffers are
 * the user's: nothing may be written to them. */
int ucp_rndv_is_receiver_over(const ucp_peer_t *peer);

/* A copy has ended that a request ended amid, and the other side is told only now: a receiver, into
 * whose memory it was, that the send has ended; a sender, which may wait for it, that its memory is
 * read no more. */
void ucp_rndv_ended_late(const ucp_request_t *req);

/* Steps DEVICE of either side. */
void ucp_rndv_device_get(ucp_request_t *req);
void ucp_rndv_device_put(ucp_request_t *req);

/* True if single copies to the peer are plain copies in this process, where a wrong address kills:
 * then both sides of a transfer are requests of this worker, and are checked against each other. */
UCS_INLINE int ucp_rndv_copies_here(const ucp_peer_t *peer)
{
    return peer->lanes[UCP_LANE_COPY]->iface->tl->kind == UCT_TL_KIND_SELF;
}

/* Claims by two processes on one transfer of `length` bytes: the word counts grains taken from the
 * front (low half) and from the back (high half). The receiver, which comes first, takes half of
 * what is left, so that the sender finds the other half; the sender takes all that is left; each
 * at most `max` bytes, a grain at least. Where both are there, each copies once; where one is busy
 * elsewhere, the other does it all. Returns the bytes taken, 0 where none is left, and where they
 * begin. A peer may write anything into the word: the range is inside all the same. */
size_t ucp_rndv_claim(_Atomic uint64_t *word, size_t length, size_t max, int is_sender,
                      size_t *offset_p);

/* Largest claim of a transfer: small enough that neither side waits long for the other at the end.
 */
UCS_INLINE size_t ucp_rndv_claim_max(size_t length)
{
    return ucs_min(ucs_max(length / 2, (size_t)512 * 1024), (size_t)1024 * 1024);
}

#endif
