/* Halyard: functions of the public interface.
 *
 * The objects, from the outside in: a configuration, a context (what exists on this machine), its
 * workers (progress, matching), their endpoints (one peer each). Older forms of some functions
 * stand in <ucp/api/ucp_compat.h>, which this file includes; types and constants in
 * <ucp/api/ucp_def.h>.
 *
 * What a call that starts an operation returns (functions of type ucs_status_ptr_t):
 *   NULL            it has finished successfully; no callback was or will be called;
 *   a request       it goes on; the callback runs when it ends. The request is the caller's until
 *                   it calls ucp_request_free (once; in the callback too). Meanwhile
 *                   ucp_request_check_status tells its state. This form is also returned for what
 *                   has finished, where UCP_OP_ATTR_FLAG_NO_IMM_CMPL was set;
 *   an error        UCS_PTR_IS_ERR: nothing is going on, no callback; UCS_PTR_STATUS is the reason.
 * "Starts" below means: the call returns one of these three at once and never waits for the peer.
 * With an external request (UCP_OP_ATTR_FIELD_REQUEST) the request is the caller's own memory,
 * whose status is valid even if NULL or an error was returned; it is never passed to
 * ucp_request_free. Buffers, iov arrays and handles of an operation stay valid and unchanged until
 * it has ended; the ucp_request_param_t may go when the call returns.
 *
 * Threads. A call marked "worker" follows the worker's mode: SINGLE, only by the thread that
 * created the worker; SERIALIZED, by any thread, one at a time for the worker and all its
 * endpoints, requests and listeners; MULTI, by any thread at any time, the call takes the worker's
 * lock, which is recursive, so callbacks may call it too. "Context" means any thread at any time,
 * but not during the context's creation or ucp_cleanup. "Any" means no restriction at all.
 * Creation and destruction of one object must not run beside other calls on it.
 *
 * Blocking. Where nothing is said, a call does not wait for anything outside this process; it may
 * do bounded work, system calls included.
 *
 * Errors. Where a function lists none, it returns UCS_ERR_INVALID_PARAM for a missing required
 * field or a forbidden value, UCS_ERR_NO_MEMORY, and UCS_ERR_UNSUPPORTED where what was asked for
 * is not in this build or was not among the context's features. Outputs are written on success
 * only.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_API_UCP_H
#define UCP_API_UCP_H

#include <ucp/api/ucp_def.h>
#include <ucp/api/ucp_compat.h>
#include <ucp/api/ucp_version.h>
#include <stdio.h>

BEGIN_C_DECLS

/* ---- Library and configuration ---- */

/* Fills the fields asked for in attr->field_mask; the mask itself is left as it is.
 * Threads: any. */
ucs_status_t ucp_lib_query(ucp_lib_attr_t *attr);

/* Reads the configuration: defaults, then the file ucx.conf, then the environment, where UCX_KEY is
 * overridden by PREFIX_UCX_KEY for a non-NULL env_prefix.
 * filename: not used; any is accepted.
 * config_p: a new object, the caller's, for ucp_config_release.
 * Errors: UCS_ERR_INVALID_PARAM for a value that cannot be parsed (a log line names variable,
 * value, expected form). Of variables that nobody knows ucp_init warns. Threads: any. */
ucs_status_t ucp_config_read(const char *env_prefix, const char *filename,
                             ucp_config_t **config_p);

/* Frees a configuration. Contexts made from it are not affected. Threads: one at a time a
 * configuration. */
void ucp_config_release(ucp_config_t *config);

/* Sets one value, as text. name is the variable without "UCX_", e.g. "TLS".
 * Errors: UCS_ERR_INVALID_PARAM for an unknown name or a value that cannot be parsed; the old value
 * then stays. Names that only UCX has are accepted without effect. Those of the log (LOG_..., and
 * the like) are the process's, and have their effect at once.
 * Threads: one at a time a configuration. */
ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value);

/* Writes the configuration as text to stream. With UCS_CONFIG_PRINT_CONFIG alone and a NULL title
 * there are only lines UCX_KEY=VALUE. Threads: one at a time a configuration; blocks as the
 * stream does. */
void ucp_config_print(const ucp_config_t *config, FILE *stream, const char *title,
                      ucs_config_print_flags_t print_flags);

/* Version of the interface that the library offers (not of the headers the program was built with).
 * Each of the three results is written if its pointer is not NULL. Threads: any. */
void ucp_get_version(unsigned *major_version, unsigned *minor_version, unsigned *release_number);

/* The same as text, "major.minor.release"; constant, not to be freed. Threads: any. */
const char *ucp_get_version_string(void);

/* ---- Context ---- */

/* Creates a context; programs call it through ucp_init.
 * api_major_version, api_minor_version: of the headers the program was built with. The library
 * warns where it offers less, and goes on.
 * params: the field features says what will be used; without any a warning. Strings are copied.
 * config: NULL means that the environment is read as by ucp_config_read(NULL, NULL, ...). May be
 * released or changed after the call.
 * context_p: a new object, the caller's, for ucp_cleanup.
 * Errors: UCS_ERR_NO_DEVICE where the configuration leaves no usable transport.
 * Threads: any. Starts no thread and installs no signal handler. */
ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version,
                              const ucp_params_t *params, const ucp_config_t *config,
                              ucp_context_h *context_p);

/* ucp_init_version with the version of these headers. */
static __inline__ ucs_status_t ucp_init(const ucp_params_t *params, const ucp_config_t *config,
                                        ucp_context_h *context_p)
{
    return ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context_p);
}

/* Destroys a context whose workers and memory handles are gone already. Threads: nobody else may
 * use the context. */
void ucp_cleanup(ucp_context_h context_p);

/* Fills the fields asked for in attr->field_mask. Threads: context. */
ucs_status_t ucp_context_query(ucp_context_h context_p, ucp_context_attr_t *attr);

/* Writes a text for people: memory domains and, one a line, the resources in use. Threads: context;
 * blocks as the stream does. */
void ucp_context_print_info(const ucp_context_h context, FILE *stream);

/* ---- Worker ---- */

/* Creates a worker.
 * params: any field may be absent; thread mode defaults to SINGLE. MULTI is always granted.
 * worker_p: a new object, the caller's, for ucp_worker_destroy.
 * Errors: UCS_ERR_INVALID_PARAM for an unknown thread mode, an alignment that is no power of two,
 * an event_fd that takes no events; UCS_ERR_IO_ERROR where no descriptors are to be had for
 * UCP_FEATURE_WAKEUP. A transport that does not open is left out: ucp_worker_print_info says why.
 * Threads: context. */
ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                               ucp_worker_h *worker_p);

/* Destroys a worker with all that is left in it: endpoints, listeners, posted receives, closes
 * under way. Callbacks of requests in flight are not called; request_cleanup is, once a request.
 * Their buffers are the user's again when it returns, not before.
 * Messages whose send has finished still arrive. Addresses not released stay the caller's.
 * Threads: nobody else may use the worker. May wait for transfers that peers make from or
 * to this process's memory; where nothing is in flight, for peers' hosts to take what was sent over
 * TCP, for UCX_OFI_TIMEOUT at the longest. */
void ucp_worker_destroy(ucp_worker_h worker);

/* Fills the fields asked for in attr->field_mask; address_flags is an input. An address that is
 * returned is the caller's, for ucp_worker_release_address. It is made of bytes that mean the same
 * in every process, may be copied to any alignment, and need not be kept with its length.
 * Threads: worker. */
ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr);

/* Writes a text for people about the worker, its transports, and the memory that it holds (without
 * what ucp_mem_map allocates). Threads: worker; blocks as the stream does. */
void ucp_worker_print_info(ucp_worker_h worker, FILE *stream);

/* Frees an address returned by ucp_worker_query or ucp_worker_get_address of the same worker.
 * Threads: worker. */
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address);

/* Fills attr from an address of any worker, also a remote one.
 * Errors: UCS_ERR_INVALID_ADDR where the bytes are no address. Threads: any. */
ucs_status_t ucp_worker_address_query(ucp_address_t *address, ucp_worker_address_attr_t *attr);

/* Advances everything on the worker that can be advanced now, and calls callbacks. Operations end
 * only in this call, in blocking calls of the worker, or where they are posted, cancelled, or their
 * endpoint is closed.
 * Returns how many events were handled, 0 where there was nothing to do, and 0 at once where it is
 * called from a callback. Threads: worker. Does not block, but a call that finds nothing to do may
 * yield the processor, or sleep for 1 ms at most, as UCX_IDLE says (auto: only where more processes
 * than processors want to run). */
unsigned ucp_worker_progress(ucp_worker_h worker);

/* Writes up to max_eps endpoints on which received stream data waits to poll_eps: each once after
 * data has come, or was read and left some behind. flags is reserved, 0. Returns how many were
 * written. Does not progress. Threads: worker. */
ssize_t ucp_stream_worker_poll(ucp_worker_h worker, ucp_stream_poll_ep_t *poll_eps, size_t max_eps,
                               unsigned flags);

/* ---- Sleeping until something happens (UCP_FEATURE_WAKEUP) ---- */

/* Returns in *fd one descriptor for poll, epoll or select, the same for the worker's whole life.
 * The library closes it. Errors: UCS_ERR_INVALID_PARAM where the context lacks UCP_FEATURE_WAKEUP
 * (so do the calls below, but ucp_worker_wait_mem), or the worker was given an event_fd.
 * Threads: worker. */
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd);

/* Makes the descriptor become readable at the next event. Returns UCS_ERR_BUSY where events wait
 * already: progress the worker until it returns 0, then arm again. Only after UCS_OK may the caller
 * sleep on the descriptor. Threads: worker. */
ucs_status_t ucp_worker_arm(ucp_worker_h worker);

/* Arms and sleeps until an event or ucp_worker_signal; returns UCS_OK at once where events wait
 * already. The worker is to be progressed afterwards.
 * Threads: worker; the lock is not held during the sleep. Blocks, without a time limit. */
ucs_status_t ucp_worker_wait(ucp_worker_h worker);

/* Sleeps until the word at address may have been changed by a peer, or something else happened; it
 * may return early, and never sleeps for ever. Threads: worker. Blocks, for a bounded time. */
void ucp_worker_wait_mem(ucp_worker_h worker, void *address);

/* Makes the descriptor readable and ends a present or the next ucp_worker_wait. Threads: any, in
 * every thread mode, also from signal handlers. */
ucs_status_t ucp_worker_signal(ucp_worker_h worker);

/* ---- Client and server ---- */

/* Listens on params->sockaddr. Handlers run from ucp_worker_progress of this worker.
 * listener_p: a new object, the caller's, for ucp_listener_destroy.
 * Errors: UCS_ERR_BUSY where the address is in use, UCS_ERR_UNREACHABLE where it is not one of this
 * machine, UCS_ERR_IO_ERROR where the system forbids it. Threads: worker. */
ucs_status_t ucp_listener_create(ucp_worker_h worker, const ucp_listener_params_t *params,
                                 ucp_listener_h *listener_p);

/* Stops listening. Connection requests that were handed out stay valid. Threads: worker. */
void ucp_listener_destroy(ucp_listener_h listener);

/* Fills the fields asked for in attr->field_mask, such as the chosen port. Threads: worker. */
ucs_status_t ucp_listener_query(ucp_listener_h listener, ucp_listener_attr_t *attr);

/* Fills the fields asked for in attr->field_mask. Threads: worker of the listener. */
ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request,
                                    ucp_conn_request_attr_t *attr);

/* Refuses a client, whose endpoint then fails with UCS_ERR_REJECTED, and frees conn_request.
 * Returns UCS_OK. Threads: worker. */
ucs_status_t ucp_listener_reject(ucp_listener_h listener, ucp_conn_request_h conn_request);

/* ---- Endpoint ---- */

/* Creates an endpoint, to one of: a worker's address (REMOTE_ADDRESS; it may be the worker's own),
 * a listener (SOCK_ADDR with UCP_EP_PARAMS_FLAGS_CLIENT_SERVER), a client that asked
 * (CONN_REQUEST; of a listener on any worker of the context). Two calls with one address give two
 * endpoints. One to the worker itself is its own peer (streams, replies), but with
 * UCP_EP_PARAMS_FLAGS_NO_LOOPBACK the peer of the next one that is made so. Operations may be
 * posted at once; the connection is made as they progress, and the peer need not have an endpoint
 * of its own. All that params points to may be freed after the call.
 * ep_p: a new object, the caller's, for one of the close functions.
 * Errors: UCS_ERR_INVALID_ADDR where the bytes are no address, UCS_ERR_UNREACHABLE where no
 * transport of the two sides fits, UCS_ERR_INVALID_PARAM. A conn_request is consumed in case of an
 * error too.
 * Threads: worker. */
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep_p);

/* Starts closing. The handle is invalid from now on; the error handler is not called any more.
 * Without UCP_EP_CLOSE_FLAG_FORCE in param->flags, earlier operations are finished first; nothing
 * is asked of the peer where none are left. With it, they end at once with UCS_ERR_CANCELED, their
 * callbacks included (those of flushes from progress, before the close's end); over a network,
 * announced ones do so when the peer has said that it does not read them, or after half a second. A
 * peer that still reads one then may end its receive with UCS_OK and what the memory holds by then.
 * Receives from its stream end with UCS_ERR_CANCELED in either case, inside the call, but for one
 * into which the peer, a network, a device or a send of the same worker is just writing: that ends
 * when they have, by what has come of it.
 * A request that is freed in flight does not stop the closing.
 * Errors: UCS_ERR_INVALID_PARAM for FORCE on an endpoint without error handling, UCS_ERR_NO_MEMORY;
 * the endpoint is still open then.
 * Threads: worker. */
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param);

/* Starts a flush: it ends when all operations posted on the endpoint before it are finished, puts
 * and atomics also at the target, those whose requests were freed included: where one of those
 * without a request has failed, the next flush of the endpoint and the next one of the worker end
 * with its error, as do all that wait for a put, get or atomic that fails. Messages that go whole
 * have then left this process's buffers, which need not mean that they were received. Not waited
 * for is what waits for its receiver: a message that was only announced, whose buffer stays in use
 * until its request ends, and the match of a synchronous send. Threads: worker. */
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param);

/* Fills the fields asked for in attr->field_mask.
 * Errors: UCS_ERR_NOT_CONNECTED for a socket address of an endpoint that has none.
 * Threads: worker. */
ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr);

/* Estimates the time of one message of param->message_size bytes, in seconds, without sending; a
 * guess for an endpoint whose peer has yet to answer (a client's, and to a worker on another node).
 * Threads: worker. */
ucs_status_t ucp_ep_evaluate_perf(ucp_ep_h ep, const ucp_ep_evaluate_perf_param_t *param,
                                  ucp_ep_evaluate_perf_attr_t *attr);

/* Writes a text for people: lanes, and protocols by message size, once the peer has answered.
 * Threads: worker; blocks as the stream does. */
void ucp_ep_print_info(ucp_ep_h ep, FILE *stream);

/* ---- Memory ---- */

/* Registers memory, so that peers can be given access to it and transfers need no set-up.
 * params: address and length for memory of the caller, of any kind and alignment, repeated and
 * overlapping registrations included; with UCP_MEM_MAP_ALLOCATE the library allocates length bytes,
 * near address where that is given (with UCP_MEM_MAP_FIXED there or not at all). length is needed,
 * and may be 0. Where the program has started CUDA, 256 KiB and more of the host's memory are also
 * registered with the driver, their pages made, unless UCP_MEM_MAP_NONBLOCK is set or some of them
 * are registered already (by the program, or an earlier call: its end is that of the registration).
 * memh_p: a new object, the caller's, for ucp_mem_unmap.
 * Errors: UCS_ERR_INVALID_PARAM for a NULL address without ALLOCATE unless length is 0,
 * UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED for a kind of memory that no transport in use allocates
 * and for memory that another process has exported; with UCX_DEVICE_STAGING=n for memory of a
 * device that others cannot map.
 * Threads: context. */
ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                         ucp_mem_h *memh_p);

/* Ends a registration and frees memory that the library allocated. No operation may be using it;
 * peers may still hold keys, which are then useless. Blocks while kernels run where the memory was
 * registered with the driver of CUDA, as ucp_cleanup does of memory that is left.
 * Errors: UCS_ERR_INVALID_PARAM for NULL and for memory of another context. Threads: context. */
ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);

/* Fills the fields asked for in attr->field_mask. Threads: context. */
ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t *attr);

/* Gives advice about the use of part of registered memory. Threads: context. */
ucs_status_t ucp_mem_advise(ucp_context_h context, ucp_mem_h memh,
                            ucp_mem_advise_params_t *params);

/* Allocates mem_size bytes (text, e.g. "4K"), writes how that was done, and frees them.
 * Threads: context; blocks as the stream does. */
void ucp_mem_print_info(const char *mem_size, ucp_context_h context, FILE *stream);

/* Makes the bytes that give a peer access to memh, for ucp_ep_rkey_unpack. With
 * UCP_MEMH_PACK_FLAG_EXPORT (for ucp_mem_map in another process): UCS_ERR_UNSUPPORTED.
 * buffer_p, buffer_size_p: bytes of the library, the caller's, for ucp_memh_buffer_release. They
 * may be copied to any alignment and need not be kept with their length; the same memh gives the
 * same bytes. Threads: context. */
ucs_status_t ucp_memh_pack(ucp_mem_h memh, const ucp_memh_pack_params_t *params, void **buffer_p,
                           size_t *buffer_size_p);

/* Frees the bytes of ucp_memh_pack. Threads: any. */
void ucp_memh_buffer_release(void *buffer, const ucp_memh_buffer_release_params_t *params);

/* ---- Remote keys ---- */

/* Makes a key from a peer's packed bytes, for use with this endpoint; it may be done often, on
 * several endpoints. rkey_buffer may be freed afterwards.
 * rkey_p: a new object, the caller's, for ucp_rkey_destroy.
 * Errors: UCS_ERR_INVALID_PARAM where the bytes are no key, UCS_ERR_UNREACHABLE where the endpoint
 * leads to the worker itself and the memory is none that its context has registered; another's is
 * always reached, by messages if by nothing else. Threads: worker. */
ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void *rkey_buffer, ucp_rkey_h *rkey_p);

/* Frees a key; no operation may be using it. Before or after the endpoint's close.
 * Threads: worker. */
void ucp_rkey_destroy(ucp_rkey_h rkey);

/* Returns in *addr_p a local address by which remote address raddr can be loaded and stored; it
 * is valid as long as the key. Errors: UCS_ERR_UNREACHABLE where there is none, as for memory on
 * another node. Threads: worker. */
ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey, uint64_t raddr, void **addr_p);

/* Orders two keys: *result is 0 where one can be used in place of the other, else below or above 0.
 * The order is total but means nothing further. params->field_mask is required, 0.
 * Threads: worker. */
ucs_status_t ucp_rkey_compare(ucp_worker_h worker, ucp_rkey_h rkey1, ucp_rkey_h rkey2,
                              const ucp_rkey_compare_params_t *params, int *result);

/* ---- Tagged messages (UCP_FEATURE_TAG) ----
 *
 * A message matches a receive or probe if (its tag ^ tag) & tag_mask is 0. Messages of one endpoint
 * are matched in the order in which they were sent, whatever their lengths; receives in the order
 * in which they were posted. */

/* Starts sending count elements of buffer. The send ends when the buffer can be used again.
 * Errors: the failure of the endpoint, if it has failed. Threads: worker. */
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t *param);

/* As ucp_tag_send_nbx, but ends only after a receive has matched the message; never returns NULL.
 * Threads: worker. */
ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                       ucp_tag_t tag, const ucp_request_param_t *param);

/* Starts a receive of count elements into buffer. A message that has arrived already is taken at
 * once: then NULL or an error is returned and param's recv_info filled, or with
 * UCP_OP_ATTR_FLAG_NO_IMM_CMPL the callback runs inside this call and the request is returned.
 * Errors: UCS_ERR_MESSAGE_TRUNCATED where the message is longer than the buffer, of which no byte
 * beyond its end is touched. Threads: worker. */
ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t *param);

/* Looks for the first message that has arrived, matches, and is not received yet; does not
 * progress. Returns NULL where there is none, else fills info (the length is the full one). With
 * remove not 0 the message is the caller's: only ucp_tag_msg_recv_nbx or ucp_tag_msg_recv_nb
 * receives it, and one of them must. With remove 0 the returned value is not NULL and good for
 * nothing else.
 * Threads: worker. */
ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask,
                                   int remove, ucp_tag_recv_info_t *info);

/* Starts the receive of a message taken out by a probe; consumes the handle, unless it returns
 * UCS_ERR_NO_RESOURCE (UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL), UCS_ERR_NO_MEMORY, or for the data type
 * UCS_ERR_INVALID_PARAM. Otherwise as ucp_tag_recv_nbx. Threads: worker. */
ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void *buffer, size_t count,
                                      ucp_tag_message_h message, const ucp_request_param_t *param);

/* ---- Active messages (UCP_FEATURE_AM) ---- */

/* Sets, replaces or (cb NULL) takes away the handler of param->id. Messages to an id without a
 * handler are dropped with a warning; their sends succeed. Threads: worker. */
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
                                            const ucp_am_handler_param_t *param);

/* Starts sending a header of header_length bytes and count elements of buffer to handler id of the
 * peer; either may be empty. The header stays valid until the end of the operation, unless
 * UCP_AM_SEND_FLAG_COPY_HEADER is in param->flags (enum ucp_send_am_flags).
 * Errors: UCS_ERR_INVALID_PARAM for a header longer than max_am_header of ucp_worker_query or flags
 * that exclude each other. Threads: worker. */
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_length, const void *buffer, size_t count,
                                 const ucp_request_param_t *param);

/* Starts moving an active message's data to buffer: from the sender where data_desc is a descriptor
 * (UCP_AM_RECV_ATTR_FLAG_RNDV), else by a copy of the data. In the handler, where data without
 * either flag is taken too, or later; consumes data_desc, whatever it returns but
 * UCS_ERR_NO_RESOURCE (UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL); a message that cannot be received is
 * discarded; so is, with UCS_OK, an announced one of which no byte is asked for. Where NULL is
 * returned, param's recv_info.length has got the bytes; a callback gets them otherwise.
 * Errors: UCS_ERR_MESSAGE_TRUNCATED. Threads: worker. */
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer,
                                      size_t count, const ucp_request_param_t *param);

/* Gives data or a descriptor back that a handler kept by returning UCS_INPROGRESS.
 * Threads: worker. */
void ucp_am_data_release(ucp_worker_h worker, void *data);

/* ---- Streams (UCP_FEATURE_STREAM): an ordered sequence of bytes each way of an endpoint ---- */

/* Starts appending count elements to the stream. Threads: worker. */
ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                     const ucp_request_param_t *param);

/* Starts a receive of up to count elements; it ends with the whole ones that are there, one at
 * least, or with UCP_STREAM_RECV_FLAG_WAITALL in param->flags when the buffer is full. *length gets
 * the bytes where NULL is returned, the callback gets them otherwise. Threads: worker. */
ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void *buffer, size_t count, size_t *length,
                                     const ucp_request_param_t *param);

/* Returns the next piece of received data in place, its bytes in *length; NULL where there is none;
 * an error. The data is the caller's until ucp_stream_data_release. Does not progress.
 * Threads: worker. */
ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep, size_t *length);

/* Gives back data of ucp_stream_recv_data_nb. Threads: worker. */
void ucp_stream_data_release(ucp_ep_h ep, void *data);

/* ---- Remote memory (UCP_FEATURE_RMA) and atomics (UCP_FEATURE_AMO32, UCP_FEATURE_AMO64) ----
 *
 * remote_addr is an address of the process that mapped the memory, inside the memory of rkey. The
 * operations are not ordered among each other: see ucp_worker_fence and the flushes. */

/* Starts writing count elements to the peer's memory. Ends when buffer can be used again; the data
 * is in place after a flush. Where both datatypes are ucp_dt_make_sgl(), buffer is a
 * ucp_dt_local_sgl_t and param->remote a ucp_dt_remote_sgl_t of count entries; their arrays stay
 * valid until the operation ends.
 * Errors: UCS_ERR_OUT_OF_RANGE outside the memory of rkey, UCS_ERR_INVALID_ADDR where that was
 * mapped without this access, the failure of the endpoint; of lists UCS_ERR_INVALID_PARAM where the
 * sides do not match, UCS_ERR_UNSUPPORTED for counts and strides. Nothing has moved then.
 * Threads: worker. */
ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t *param);

/* Starts reading count elements from the peer's memory. Ends when the data is in buffer.
 * Errors: as ucp_put_nbx; UCS_ERR_UNSUPPORTED for lists. Threads: worker. */
ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t *param);

/* Starts an atomic on one integer of 4 or 8 bytes (param->datatype contig(4) or contig(8), count 1)
 * in the peer's memory. buffer holds the operand; for UCP_ATOMIC_OP_CSWAP it is what to compare
 * with, and the reply buffer holds the new value. With a reply buffer in param the value from
 * before is returned in it, which SWAP and CSWAP require. Atomic with all other atomics of this
 * interface.
 * Errors: UCS_ERR_INVALID_PARAM for other sizes and counts, and an address that is no multiple of
 * the size; else as ucp_put_nbx. Threads: worker. */
ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t opcode, const void *buffer,
                                   size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                                   const ucp_request_param_t *param);

/* Orders puts, gets and atomics: those posted on the worker after this call take effect at each
 * peer after those posted before it. Does not wait for the peer. Threads: worker. */
ucs_status_t ucp_worker_fence(ucp_worker_h worker);

/* Starts a flush of all endpoints of the worker; ucp_ep_flush_nbx says what that means.
 * Threads: worker. */
ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t *param);

/* ---- Requests ----
 *
 * The three that test may be called beside ucp_worker_progress of another thread in MULTI mode and
 * take no lock; what the operation wrote is visible once they report the end. Calls on one request
 * must not run beside ucp_request_free of it. */

/* UCS_INPROGRESS while the operation goes on, then its final status, any number of times.
 * Threads: as said above. */
ucs_status_t ucp_request_check_status(void *request);

/* The same for a tag receive; *info is filled at the end, if info is not NULL.
 * Threads: as said above. */
ucs_status_t ucp_tag_recv_request_test(void *request, ucp_tag_recv_info_t *info);

/* The same for a stream receive; *length_p gets the bytes at the end. Threads: as said above. */
ucs_status_t ucp_stream_recv_request_test(void *request, size_t *length_p);

/* Fills the fields asked for in attr->field_mask: what it is, its tag, length and status as text;
 * status; kind of memory (host or CUDA).
 * Errors: UCS_ERR_INVALID_PARAM for a string without its size. Threads: worker. */
ucs_status_t ucp_request_query(void *request, ucp_request_attr_t *attr);

/* Cancels a receive that no message has matched yet: its callback runs inside this call with
 * UCS_ERR_CANCELED. In all other cases, sends included, nothing happens and the request ends as it
 * would have. The request must still be freed. Threads: worker. */
void ucp_request_cancel(ucp_worker_h worker, void *request);

/* Gives a request back. The user's bytes in it keep their contents. Where it is in flight the
 * operation goes on, also for flushes, but its callback will not be called.
 * Threads: worker; also in the request's callback. */
void ucp_request_free(void *request);

/* ---- Data types ---- */

/* Creates a data type that the user's functions pack and unpack. ops is copied, context is passed
 * to them. datatype_p: a new type, the caller's, for ucp_dt_destroy. Threads: any. */
ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t *ops, void *context,
                                   ucp_datatype_t *datatype_p);

/* Frees a generic type that no operation uses any more; it may be called in the type's own finish.
 * Does nothing for other classes. Threads: any. */
void ucp_dt_destroy(ucp_datatype_t datatype);

/* Fills the fields asked for in attr->field_mask; buffer and count are inputs. May call the
 * functions of a generic type. Threads: any. */
ucs_status_t ucp_dt_query(ucp_datatype_t datatype, ucp_datatype_attr_t *attr);

END_C_DECLS

#endif
