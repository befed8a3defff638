/* Halyard: older forms of public functions, kept for programs that were written for them.
 *
 * Included by <ucp/api/ucp.h>, whose head explains the returned forms, the thread rules ("worker",
 * "context", "any") and what holds where nothing is said about errors and blocking. New programs
 * use the function named in each comment.
 * The _nb calls take their options as arguments: a data type, flags, and a callback without user
 * data, which may be NULL for sends. A receive by _nb never returns NULL: where the message is
 * there already, the callback runs inside the call. Their requests end by ucp_request_free or
 * ucp_request_release.
 * A function that blocks does not do so inside a callback: what has not ended there after one turn
 * goes on, and UCS_ERR_NO_PROGRESS is returned.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_API_UCP_COMPAT_H
#define UCP_API_UCP_COMPAT_H

#include <ucp/api/ucp_def.h>

BEGIN_C_DECLS

/* ---- Worker and endpoint ---- */

/* The worker's full address and its length in bytes; the caller's, for ucp_worker_release_address.
 * New: ucp_worker_query. Threads: worker. */
ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **address_p,
                                    size_t *address_length_p);

/* Starts closing; mode is an enum ucp_ep_close_mode. The handle is invalid from now on.
 * New: ucp_ep_close_nbx. Threads: worker. */
ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode);

/* Starts closing in UCP_EP_CLOSE_MODE_FLUSH. New: ucp_ep_close_nbx. Threads: worker. */
ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep);

/* Closes in UCP_EP_CLOSE_MODE_FLUSH. New: ucp_ep_close_nbx. Threads: worker. Blocks until earlier
 * operations have ended, progressing the worker; a peer that is gone ends them with an error. */
void ucp_ep_destroy(ucp_ep_h ep);

/* Changes the endpoint: error handling, user data and name of params are taken over; an address of
 * a peer or socket is refused with UCS_ERR_INVALID_PARAM. Returns NULL or an error.
 * New: a new endpoint. Threads: worker. */
ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h ep, const ucp_ep_params_t *params);

/* Flush of an endpoint, of all endpoints of a worker. New: ucp_ep_flush_nbx, ucp_worker_flush_nbx.
 * Threads: worker. Block until the earlier operations have ended, progressing the worker. */
ucs_status_t ucp_ep_flush(ucp_ep_h ep);
ucs_status_t ucp_worker_flush(ucp_worker_h worker);

/* Start a flush; flags is reserved, 0. New: ucp_ep_flush_nbx, ucp_worker_flush_nbx.
 * Threads: worker. */
ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned flags, ucp_send_callback_t cb);
ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned flags, ucp_send_callback_t cb);

/* ---- Remote keys ---- */

/* Makes the bytes that give a peer access to memh, for ucp_ep_rkey_unpack. rkey_buffer_p, size_p:
 * bytes of the library, the caller's, for ucp_rkey_buffer_release. New: ucp_memh_pack.
 * Threads: context. */
ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h memh, void **rkey_buffer_p,
                           size_t *size_p);

/* Frees the bytes of ucp_rkey_pack. New: ucp_memh_buffer_release. Threads: any. */
void ucp_rkey_buffer_release(void *rkey_buffer);

/* ---- Requests ---- */

/* 1 where the operation has ended, else 0. New: ucp_request_check_status. Threads: takes no lock,
 * may run beside progress of another thread in MULTI mode. */
int ucp_request_is_completed(void *request);

/* Status of a tag receive as of ucp_tag_recv_request_test, which is the new form; info may be NULL.
 * Threads: takes no lock, as above. */
ucs_status_t ucp_request_test(void *request, ucp_tag_recv_info_t *info);

/* Gives a request back. Unlike ucp_request_free, the new form, an operation in flight still calls
 * its callback; the memory goes back after that. Threads: worker; also in the callback. */
void ucp_request_release(void *request);

/* Request memory for the _nbr calls, initialised by request_init; NULL where there is no memory.
 * The caller's, for ucp_request_free. New: UCP_OP_ATTR_FIELD_REQUEST with own memory.
 * Threads: worker. */
void *ucp_request_alloc(ucp_worker_h worker);

/* ---- Tagged messages ---- */

/* Start a send; start a synchronous send, which never returns NULL. New: ucp_tag_send_nbx,
 * ucp_tag_send_sync_nbx. Threads: worker. */
ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb);
ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb);

/* Starts a send in request memory of the caller: req is the end of request_size bytes (of
 * ucp_context_query) or comes from ucp_request_alloc. Returns UCS_OK where it has ended,
 * UCS_INPROGRESS where req tells the end, or an error. New: ucp_tag_send_nbx. Threads: worker. */
ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void *req);

/* Starts a receive; never returns NULL. New: ucp_tag_recv_nbx. Threads: worker. */
ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                                 ucp_tag_recv_callback_t cb);

/* Starts a receive in request memory of the caller, as ucp_tag_send_nbr. Returns UCS_OK where it
 * has been started (req tells status and length, also where it has ended), or an error.
 * New: ucp_tag_recv_nbx. Threads: worker. */
ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                              void *req);

/* Starts the receive of a message taken out by ucp_tag_probe_nb; never returns NULL.
 * New: ucp_tag_msg_recv_nbx. Threads: worker. */
ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                                     ucp_datatype_t datatype, ucp_tag_message_h message,
                                     ucp_tag_recv_callback_t cb);

/* ---- Active messages ---- */

/* Sets, replaces or (cb NULL) takes away the handler of an id; flags is an enum ucp_am_cb_flags.
 * New: ucp_worker_set_am_recv_handler. Threads: worker. */
ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker, uint16_t id, ucp_am_callback_t cb,
                                       void *arg, uint32_t flags);

/* Starts sending an active message without a header; flags is an enum ucp_send_am_flags. A
 * message to this worker may run its handler inside the call. New: ucp_am_send_nbx.
 * Threads: worker. */
ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void *buffer, size_t count,
                                ucp_datatype_t datatype, ucp_send_callback_t cb, unsigned flags);

/* ---- Streams ---- */

/* Starts appending to the stream; flags is reserved, 0. New: ucp_stream_send_nbx.
 * Threads: worker. */
ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_send_callback_t cb,
                                    unsigned flags);

/* Starts a stream receive; flags is a ucp_stream_recv_flags_t. Returns NULL, with the bytes in
 * *length, where data was there. New: ucp_stream_recv_nbx. Threads: worker. */
ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep, void *buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_stream_recv_callback_t cb,
                                    size_t *length, unsigned flags);

/* ---- Remote memory; length in bytes ---- */

/* Write, read. New: ucp_put_nbx, ucp_get_nbx. Threads: worker. Block until buffer can be used
 * again and what was in flight to the peer has ended, until the data is in buffer, progressing the
 * worker. */
ucs_status_t ucp_put(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey);
ucs_status_t ucp_get(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey);

/* Start a write, a read. New: ucp_put_nbx, ucp_get_nbx. Threads: worker. While something is in
 * flight to the peer, a write returns a request. */
ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb);
ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb);

/* The same without a request: UCS_OK where buffer is ready (and, of a write, nothing is in flight
 * to the peer), UCS_INPROGRESS where it is after the next flush of the endpoint or worker, or an
 * error. Threads: worker. */
ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void *buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey);
ucs_status_t ucp_get_nbi(ucp_ep_h ep, void *buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey);

/* ---- Atomics; op_size is 4 or 8 bytes, else UCS_ERR_INVALID_PARAM ---- */

/* Starts an atomic without result. value is copied. UCS_OK where it was started, which a flush
 * finishes; never UCS_INPROGRESS. New: ucp_atomic_op_nbx. Threads: worker. */
ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t opcode, uint64_t value,
                             size_t op_size, uint64_t remote_addr, ucp_rkey_h rkey);

/* Starts an atomic whose old value is written to *result (op_size bytes, valid until the end). For
 * UCP_ATOMIC_FETCH_OP_CSWAP value is what to compare with and *result first holds the new value.
 * New: ucp_atomic_op_nbx. Threads: worker. */
ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t opcode, uint64_t value,
                                     void *result, size_t op_size, uint64_t remote_addr,
                                     ucp_rkey_h rkey, ucp_send_callback_t cb);

/* Add without result, as ucp_atomic_post; add, swap, compare-and-swap that return the old value in
 * *result, and block until it is there, progressing the worker.
 * New: ucp_atomic_op_nbx. Threads: worker. */
ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey);
ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey);
ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t *result);
ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t *result);
ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t *result);
ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t *result);
ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t swap,
                                uint64_t remote_addr, ucp_rkey_h rkey, uint32_t *result);
ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t swap,
                                uint64_t remote_addr, ucp_rkey_h rkey, uint64_t *result);

END_C_DECLS

#endif
