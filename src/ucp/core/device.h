/* Halyard: device memory as ucp sees it: which buffers lie there, how this processor gets at their
 * bytes, and the keys by which peers reach them.
 *
 * A buffer is looked at when an operation is posted. Memory of the host is told apart without the
 * driver where that is certain: nothing of the device can lie inside the heap (brk), the program's
 * static data, or the frames of the thread that calls; and a block of addresses that was the host's
 * a moment ago still is: to become the device's it has to be unmapped and reserved anew, which
 * takes longer than the moment that an answer is trusted for. Measured: 34 us at least; an answer
 * counts for 8. While the driver is not started there is no device memory at all, which is looked
 * at once a tick of the kernel's clock. Nobody's calls are intercepted.
 *
 * Contiguous buffers on a device have a datatype class of their own (dt/dt.h), so that no path that
 * touches memory by itself takes them for its own. Their bytes are copied by the transport
 * (uct_iface_ops_t.copy).
 *
 * Keys: a worker tells a peer about an allocation once (message KEY), under a number (slot); later
 * messages name the slot. A slot is given to another allocation only when no send in flight uses
 * it. Nobody is told when a program frees memory, so slots are looked at now and then: what an
 * allocation that is gone is kept by is given back, and the peer is told (KEY without a key).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_DEVICE_H
#define UCP_CORE_DEVICE_H

#include <ucp/core/peer.h>

#define UCP_DEVICE_SLOTS  64
#define UCP_DEVICE_WINDOW ((size_t)1024 * 1024) /* bytes that are staged at once */

/* Allocations of ours that were used with the peer, and those of the peer's. */
struct ucp_device_keys {
    struct {
        uint64_t   id;      /* uct_mem_info_t.id; 0: free */
        uintptr_t  base;
        uct_mem_t *mem;     /* NULL: nobody else can reach it */
        unsigned   uses;    /* requests in flight that name it */
        uint8_t    is_told;
        uint8_t    is_hidden; /* and never will: it is not asked for again */
        uint64_t   used_sn; /* the least recent one is replaced first */
    } told[UCP_DEVICE_SLOTS];
    uint64_t    num_used;
    uint64_t    num_told;
    unsigned    next;    /* slot that is looked at next: is its allocation gone? */
    uct_rkey_t *heard[UCP_DEVICE_SLOTS];
};

/* Finds the transport that knows device memory, if there is one, and the heap. UCS_ERR_NO_MEMORY
 * (logged): there is one, but this worker could not open it. */
ucs_status_t ucp_device_init(ucp_worker_t *worker);
void ucp_device_cleanup(ucp_worker_t *worker);

/* True if the address is on a device; then *info_p tells about it (id 0: the driver does not). Any
 * address. */
int ucp_device_query(ucp_worker_t *worker, const void *address, uct_mem_info_t *info_p);

/* The driver does not answer (status, logged): is this processor unable to read there? The kernel
 * tells without harm. */
int ucp_device_is_unreadable(const void *address, ucs_status_t status);

/* The same as _query without the worker's lock: only whether it is. */
int ucp_device_has_slow(ucp_worker_t *worker, const void *address);

UCS_INLINE int ucp_device_has(ucp_worker_t *worker, const void *address)
{
    return ucs_unlikely(!ucp_worker_is_host(worker, address)) &&
           ucp_device_has_slow(worker, address);
}

/* Does the application use the driver? Its buffers may not have told, where all lie in the heap. */
int ucp_device_is_used(ucp_worker_t *worker);

/* Can one key name so much of a device buffer? Where it takes several pieces of memory
 * req->copy.info tells of them all. */
int ucp_device_is_whole(ucp_request_t *req, size_t length);

/* True if devices of this process reach the byte of the host's memory there: it is pinned. */
int ucp_device_reaches(ucp_worker_t *worker, const void *address);

/* Copies between host and device memory, or within either. Returns when the bytes are there: some
 * microseconds. Errors are the driver's (logged). */
ucs_status_t ucp_device_copy(ucp_worker_t *worker, void *dest, const void *src, size_t length);

/* Takes the bytes of a send off the device (or out of an IOV with parts there), so that it is one
 * from host memory. On failure nothing has changed. */
ucs_status_t ucp_device_stage(ucp_request_t *req);

/* Pieces of one message in device memory, in order, staged in large pieces. address: of this one;
 * rest: bytes of the message from there on. What is read may be as old as the first piece, and what
 * is written comes to the device at the latest with ucp_device_flush. Reads return `length`, 0: it
 * has failed. Users are to be forgotten when they end, and who reads again when it has read. */
size_t ucp_device_read(ucp_worker_t *worker, const void *user, const void *address, size_t rest,
                       void *dest, size_t length);
void ucp_device_write(ucp_worker_t *worker, const ucp_device_user_t *user, void *address,
                      size_t rest, const void *src, size_t length);
void ucp_device_flush(ucp_worker_t *worker, const void *user);
void ucp_device_forget(ucp_worker_t *worker, const void *user);

UCS_INLINE void ucp_window_forget(ucp_device_window_t *window, const void *user)
{
    if (window->user.id == user) {
        window->user.id = NULL;
    }
}

/* Memory of the library's in chunks: on one device, where peers may read it, or of the host, where
 * devices copy from and to it. Many short operations are under way at a time, so they have chunks
 * of their own. */
#define UCP_DEVICE_NO_CHUNK 16   /* pools have so many at most, from 0 */
#define UCP_DEVICE_HOST     (-1) /* in place of a device */
#define UCP_DEVICE_SHORT    (-2)

typedef struct ucp_device_pool {
    struct ucp_device_pool *next;
    int                     device;
    uint64_t                id;      /* of the allocation, on a device */
    size_t                  chunk;   /* bytes of each */
    unsigned                num;
    int                     is_pinned; /* of the host: devices reach it */
    unsigned                in_use;  /* bits of chunks */
    ucs_list_link_t         waiting; /* requests for a chunk, by work_list */
    unsigned                users;   /* requests that take chunks of it */
    uct_mem_t              *mem;
} ucp_device_pool_t;

/* The pool of a device or the host, made on first use; like: an address on the device. NULL: there
 * is none. */
ucp_device_pool_t *ucp_device_pool(ucp_worker_t *worker, void *like, int device);

/* That of the host, for so many bytes of a device. */
ucp_device_pool_t *ucp_device_host_pool(ucp_worker_t *worker, void *like, size_t length);

/* The request takes chunks of the pool (copy.chunks), none so far; gives those that it has back. */
void ucp_device_use_pool(ucp_request_t *req, ucp_device_pool_t *pool);
void ucp_device_put_chunks(ucp_request_t *req);

/* A chunk, UCP_DEVICE_NO_CHUNK: all are in use. put takes that too, and leaves it. */
uint8_t ucp_device_chunk_get(ucp_device_pool_t *pool);
void ucp_device_chunk_put(ucp_device_pool_t *pool, uint8_t *chunk);

/* The request's turn is due when a chunk of its pool is free, unless it is due already. */
void ucp_device_chunk_wait(ucp_request_t *req);

UCS_INLINE void *ucp_device_chunk_address(const ucp_device_pool_t *pool, unsigned chunk)
{
    return (char *)pool->mem->address + (chunk * pool->chunk);
}

/* Starts a copy of the DEVICE lane between a request's buffer and the memory that slot names at the
 * peer. then: called from progress when it has ended, unless the request has ended early; the
 * request holds UCP_REQUEST_HOLDS_COPY until then. UCS_ERR_NO_RESOURCE: try again; other errors:
 * this way does not work. */
ucs_status_t ucp_device_transfer(ucp_request_t *req, ucp_peer_t *peer, uct_rkey_t *rkey,
                                 size_t offset, size_t length, uint64_t remote_addr,
                                 ucp_device_then_cb_t then);

/* The same within this process: UCS_INPROGRESS, or an error. */
ucs_status_t ucp_device_copy_async(ucp_request_t *req, void *dest, const void *src, size_t length,
                                   ucp_device_then_cb_t then);

/* Copies of the DEVICE lane to this peer do not work: from now on memory of the host is used. Told
 * once. */
void ucp_device_refuse(ucp_peer_t *peer, ucs_status_t status);

/* What req->copy.comp calls in the end. */
void ucp_device_transferred(uct_completion_t *comp);

/* A request is to end while its copy is under way: it does when the copy has ended. */
void ucp_device_end_later(ucp_request_t *req, ucs_status_t status);

/* The slot of an allocation, whether told or not. UCS_ERR_UNSUPPORTED: there is no lane to the
 * peer, or every slot is in use. */
ucs_status_t ucp_device_know(ucp_peer_t *peer, const uct_mem_info_t *info, unsigned *slot_p);

/* The slot by which the peer knows the allocation that info tells about; tells the peer if need be.
 * UCS_ERR_NO_RESOURCE: no room on the lane; UCS_ERR_REJECTED: nobody else can reach this memory
 * (the reason is logged once a worker); UCS_ERR_UNSUPPORTED: it is not known, or there is no lane
 * to the peer, or every slot is in use. */
ucs_status_t ucp_device_tell(ucp_peer_t *peer, const uct_mem_info_t *info, unsigned *slot_p);

/* The request names the slot, until it ends. */
void ucp_device_use_slot(ucp_request_t *req, unsigned slot);
void ucp_device_put_slot(ucp_request_t *req);

/* What the peer has told under a slot, any number; NULL: nothing. */
uct_rkey_t *ucp_device_heard(const ucp_peer_t *peer, unsigned slot);

void ucp_device_key_handle(void *worker, const void *data, size_t length);
void ucp_device_keys_free(ucp_peer_t *peer);

#endif
