/* Halyard: puts, gets and atomics.
 *
 * The way is chosen by the remote key: memory that is mapped here is loaded and stored inside the
 * call (ucp_rkey_local), without a request. Other memory is copied through the peer's COPY lane, a
 * part a turn, or read and written by the network (protos/rdma.h) where the key has what that needs
 * and the size makes it worth while; where that is refused, for atomics, and for parts that a peer
 * which listens does faster, messages ask the peer, which looks the memory up in its table
 * (ops/rma_target.c). Atomics are instructions of the processor on either side, so they agree
 * whichever way they come.
 *
 * States of a request (ucp_send_step_t): FENCED (waits for those posted before a fence, and for
 * another kind of operation on the same memory) -> PUT (copies, or the network's parts, either
 * direction) -> DATA (its messages wait for resources) -> WAIT (for the answer; then PUT again, if
 * it was of a part).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_RMA_H
#define UCP_OPS_RMA_H

#include <ucp/core/ep.h>
#include <ucp/core/mem.h>
#include <ucp/core/rkey.h>
#include <ucp/wire/wire.h>

/* What the direct way does not look at. */
#define UCP_RMA_SLOW_MASK (UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_MEMH | \
                           UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL)

typedef struct {
    uint64_t value, compare;
    int      op; /* uct_atomic_op_t */
} ucp_amo_t;

/* True if nothing in flight, no fence and no failure can stand in the way of the direct way. */
UCS_INLINE int ucp_rma_is_open(const ucp_ep_t *ep)
{
    /* A7: pairs with R7 in ucp_ep_set_peer. */
    return atomic_load_explicit(&__atomic_load_n(&ep->peer, __ATOMIC_ACQUIRE)->rma_gate,
                                memory_order_relaxed) == 0;
}

/* Opens (negative) or closes the gate by so much; with the worker's lock. */
UCS_INLINE void ucp_rma_gate_add(ucp_peer_t *peer, int num)
{
    atomic_store_explicit(&peer->rma_gate,
                          atomic_load_explicit(&peer->rma_gate, memory_order_relaxed) +
                          (unsigned)num, memory_order_relaxed);
}

/* Those below the result are to end before one that is posted now: what was posted before a fence,
 * and what does another thing to the same memory, since ways differ in how long they take. Clients
 * rely on that: Open MPI's MPI_Get_accumulate is a get and a put. 0: it need not wait. */
uint64_t ucp_rma_fence_of(const ucp_request_t *req);

/* Is it an atomic that has to go as a message since others, perhaps to the same memory, are under
 * way as such? Those were posted before the memory was mapped, and clients rely on their order:
 * Open MPI's accumulations are atomics. */
int ucp_rma_is_behind_atomics(const ucp_request_t *req);

/* A tracked request waits for those before fence_sn, not 0 (step FENCED). */
void ucp_rma_wait_for(ucp_request_t *req, uint64_t fence_sn);

/* In flight to the peer (num is 1), or (-1) not any more. */
void ucp_rma_count(const ucp_request_t *req, int num);

/* A request that waits for its peer to be known gets the real one. */
void ucp_rma_set_peer(ucp_request_t *req, ucp_peer_t *peer);

/* Any operation, by whatever way. count: elements; of an atomic (amo not NULL) its size, buffer
 * then gets the result where not NULL. Takes the lock. Returns what the public call returns. */
ucs_status_ptr_t ucp_rma_post(ucp_ep_t *ep, ucp_request_kind_t kind, void *buffer, size_t count,
                              uint64_t remote_addr, ucp_rkey_t *rkey,
                              const ucp_request_param_t *param, const ucp_amo_t *amo);

/* May operations that need `access` (UCP_MEM_xx) touch `length` bytes of a key's memory at
 * remote_addr, and is their buffer inside what the user says to have mapped (own; NULL: nothing)?
 * Else what the public call returns. */
ucs_status_t ucp_rma_check(const ucp_worker_t *worker, const void *buffer, size_t length,
                           const ucp_mem_t *own, uint64_t remote_addr, const ucp_rkey_t *rkey,
                           unsigned access);

/* The end of a call without a request: a flush ends what is in flight, and tells of its error. What
 * has ended meanwhile tells here: nobody else would. */
ucs_status_t ucp_rma_forget(ucp_worker_t *worker, ucs_status_ptr_t ptr);

/* A put of a scatter-gather list (ops/rma_list.c). Takes the lock. Returns what the public call
 * returns. */
ucs_status_ptr_t ucp_rma_list_post(ucp_ep_t *ep, const void *buffer, size_t count,
                                   const ucp_request_param_t *param);

/* Sends the messages of a request (step DATA). UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rma_send(ucp_request_t *req);

/* Sends what is left of a put or get, or all of an atomic, as messages. */
void ucp_rma_start_messages(ucp_request_t *req);

/* Copies between a buffer and the memory at an offset of a put or get, by the COPY lane. */
ucs_status_t ucp_rma_single_copy(ucp_request_t *req, void *buffer, size_t offset, size_t length);

/* A put or get between device memory here and the peer's host memory, by pinned memory of ours
 * (ops/rma_piped.c). start: 0: it does not go this way. */
int ucp_rma_can_pipe(const ucp_request_t *req);
int ucp_rma_piped_start(ucp_request_t *req);

/* The peer has answered all messages of the part that is under way, well. */
void ucp_rma_part_answered(ucp_request_t *req);

/* One step of a request on the list of work. */
void ucp_rma_work(ucp_request_t *req);

/* Stores the value that an atomic has fetched. */
ucs_status_t ucp_rma_put_result(ucp_request_t *req, const void *value);

/* Is a put under way to the worker of this identity, though its peer has failed? */
int ucp_rma_is_late(const ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN]);

/* A tracked request has ended: off the peer's books, and on with those behind a fence. */
void ucp_rma_ended(ucp_request_t *req);

/* Sends pieces of what a GET asked for, and advances it. UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_rma_send_get_data(ucp_peer_t *peer, ucp_wire_get_t *get);

/* Handlers of the messages. */
void ucp_rma_put_handle(void *worker, const void *data, size_t length);
void ucp_rma_get_handle(void *worker, const void *data, size_t length);
void ucp_rma_get_data_handle(void *worker, const void *data, size_t length);
void ucp_rma_atomic_handle(void *worker, const void *data, size_t length);
void ucp_rma_end_handle(void *worker, const void *data, size_t length);

#endif
