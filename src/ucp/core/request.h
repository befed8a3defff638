/* Halyard: requests: the memory of one operation in flight.
 *
 * A request is a common head of 96 bytes and a private area whose meaning belongs to the
 * operation; the user's handle points right behind it, where the user's request_size bytes begin.
 * Requests come from a pool of the worker, or from the user (`external`: request_size bytes in
 * front of the handle, of which nothing is assumed). What a request holds is a bitmask (`held`),
 * and ucp_request_complete releases it in one fixed order: success, error and cancellation take
 * the same path.
 *
 * Called with the worker's lock held, but for the status queries.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_REQUEST_H
#define UCP_CORE_REQUEST_H

#include <ucp/api/ucp.h>
#include <ucp/proto/learn.h>
#include <ucs/debug/assert.h>
#include <ucs/ds/list.h>
#include <ucs/ds/mpool.h>
#include <ucs/ds/ptr_map.h>
#include <ucs/sys/compiler.h>
#include <uct/api/uct_tl.h>
#include <stdatomic.h>

typedef struct ucp_request ucp_request_t;
typedef struct ucp_peer    ucp_peer_t;

enum {
    UCP_REQUEST_COMPLETED = 1 << 0, /* status is final; stored with release */
    UCP_REQUEST_RELEASED  = 1 << 1, /* the user gave it back: to the pool when complete */
    UCP_REQUEST_CALLBACK  = 1 << 2, /* cb is set */
    UCP_REQUEST_EXTERNAL  = 1 << 3  /* the user's memory: never to the pool */
};

/* What follows a copy of a device, see device.h. */
typedef void (*ucp_device_then_cb_t)(ucp_request_t *req, ucs_status_t status);

/* What a request holds. */
enum {
    UCP_REQUEST_HOLDS_ID = 1 << 0, /* id, in the worker's map */
    UCP_REQUEST_HOLDS_LIST     = 1 << 1, /* list: in some list of requests in flight */
    UCP_REQUEST_HOLDS_EXPECTED = 1 << 2, /* list: in the table of posted receives */
    UCP_REQUEST_HOLDS_DATATYPE = 1 << 3, /* dt_state of a generic datatype: finish is due */
    UCP_REQUEST_HOLDS_SYNC     = 1 << 4, /* a sync word of the worker's shared-memory interface */
    UCP_REQUEST_HOLDS_WORK     = 1 << 5, /* work_list: in the worker's list of copies to be done, or
                                            of those that others were asked for, or that wait for
                                            a chunk (device.h) or others (ops/rma_order.c) */
    UCP_REQUEST_HOLDS_PENDING =
        1 << 6, /* queued on a uct endpoint; only purge or dispatch take it off */
    UCP_REQUEST_HOLDS_TRACKED = 1 << 7, /* list: in its endpoint's; flushes count it */
    UCP_REQUEST_HOLDS_HEADER  = 1 << 8, /* send.header: a copy that is the library's */
    UCP_REQUEST_HOLDS_STAGE   = 1 << 9, /* buffer: a copy that is the library's */
    UCP_REQUEST_HOLDS_COPY    = 1 << 10, /* a device or network, or the network of who reads it,
                                            still uses the buffer: ends last */
    UCP_REQUEST_HOLDS_SLOT    = 1 << 11, /* copy.slot, in use at the peer */
    UCP_REQUEST_HOLDS_WINDOW  = 1 << 12, /* a window of the worker's, see device.h */
    UCP_REQUEST_HOLDS_CHUNKS  = 1 << 13, /* copy.chunks */
    UCP_REQUEST_HOLDS_MEM     = 1 << 14, /* copy.first and copy.rails */
    UCP_REQUEST_HOLDS_TURN    = 1 << 15  /* recv.turn or send.part.turn, among what is under way */
};

/* The order is that of the roles: see ucp_request_is_send, _is_recv, _is_rma. */
typedef enum {
    UCP_REQUEST_NONE,
    UCP_REQUEST_FLUSH,
    UCP_REQUEST_CLOSE,
    UCP_REQUEST_PUT_LIST,
    UCP_REQUEST_TAG_SEND,
    UCP_REQUEST_AM_SEND,
    UCP_REQUEST_STREAM_SEND,
    UCP_REQUEST_TAG_RECV,
    UCP_REQUEST_AM_RECV,
    UCP_REQUEST_STREAM_RECV,
    UCP_REQUEST_PUT,
    UCP_REQUEST_GET,
    UCP_REQUEST_ATOMIC
} ucp_request_kind_t;

typedef enum {
    UCP_SEND_EAGER, /* to be sent whole */
    UCP_SEND_RTS,   /* to be announced */
    UCP_SEND_ZCOPY, /* sent whole, but the buffer is still in use */
    UCP_SEND_SYNC,  /* sent whole; the peer's turn to say that it was matched */
    UCP_SEND_WAIT,  /* announced; the peer's turn */
    UCP_SEND_PUT,   /* on the work list: writing */
    UCP_SEND_DATA,  /* sending pieces */
    UCP_SEND_DEVICE, /* on the work list or copied: by the DEVICE lane */
    UCP_SEND_STAGED, /* chunk by chunk through memory that the receiver reads */
    UCP_SEND_GIVEN_UP, /* in worker->asked: ended early, but the receiver may be reading it by the
                          announced key until it answers */
    UCP_SEND_FENCED, /* put, get, atomic: waits for those before a fence */
    UCP_SEND_DONE   /* on the work list: to be completed from progress */
} ucp_send_step_t;

typedef enum {
    UCP_RECV_POSTED,
    UCP_RECV_COMES, /* the transport fills it, and says when it has (ucp_eager_begin) */
    UCP_RECV_GET,   /* on the work list: reading all */
    UCP_RECV_BOTH,  /* on the work list: reading what it can claim */
    UCP_RECV_LEFT,  /* in worker->asked: the same, once nothing has come from the sender */
    UCP_RECV_DEVICE, /* on the work list or copied: by the DEVICE lane */
    UCP_RECV_READ,  /* on the work list or under way: by the lane for messages */
    UCP_RECV_WAIT   /* the peer delivers the rest */
} ucp_recv_step_t;

typedef struct ucp_piped_ops ucp_piped_ops_t;

/* A message that passes through chunks of a pool, two at a time, see device.h. */
typedef struct {
    struct ucp_device_pool *pool;
    const ucp_piped_ops_t *ops; /* see piped.h, */
    size_t   offset;      /* of the message: the next byte that it takes, */
    size_t   end;         /* and the last, and one */
    size_t   near_offset; /* of the message: where the chunk `near` begins */
    size_t   far_offset;
    uint8_t  near;        /* chunk that is filled, or being filled */
    uint8_t  far;         /* chunk that is emptied */
    uint8_t  is_refused;  /* the peer cannot read */
    uint8_t  is_failed;   /* the rest goes another way */
    uint32_t turns;       /* without a chunk so far */
} ucp_chunks_t;

/* A send of a message that did not end inside the call; a put, get or atomic too: recv_id is then
 * the id of the peer's memory. */
typedef struct {
    ucp_ep_h          ep;
    ucp_peer_t       *peer;
    uint64_t          sn;       /* position among the worker's sends, for closes */
    uint64_t          flush_sn; /* the same for flushes: of when it last came to wait for us */
    uint64_t          id;
    uct_pending_t     pending;
    uint64_t          recv_id;
    uint64_t          remote_addr;
    size_t            offset;    /* put: next byte to write */
    size_t            end;       /* rendezvous: of the range asked for; put, get: of the part */
    size_t            put_bytes; /* written, to be told by FIN */
    union {
        struct {
            size_t    offset, end;
        }             data[2];   /* ranges to be sent as DATA, first to last */
        struct {
            uint64_t  value, compare;
            int       op;        /* uct_atomic_op_t */
        }             atomic;
        struct {
            ucp_learn_t *learn;
            ucp_learn_turn_t turn;
            size_t    length;
        }             part;      /* put, get: what is measured of it */
    };
    union {
        _Atomic uint64_t *sync_word;
        uint64_t      fence_sn;  /* step FENCED: those before it come first; 0: they have */
    };
    uint32_t          sync_index;
    uint8_t           num_data;
    ucp_send_step_t   step : 8;
    uint8_t           is_both;   /* PUT, DATA: parts are claimed, none is left when it is 0 again */
    uint8_t           needs_ats; /* the end waits for ATS */
    uint8_t           is_sync;
    uint8_t           is_zcopy;  /* EAGER: is not copied */
    uint8_t           am_flags;  /* active message: of its announcement, UCP_WIRE_RTS_xx */
    uint8_t           copies_header; /* the user's header may be gone after the call */
    uint8_t           slot;          /* DEVICE: of the receiver's memory */
    uint8_t           to_device;     /* put, get, atomic: the peer's memory is a device's */
    uint8_t           by_message;    /* put, get: this part, however it could be copied */
    uint8_t           is_handed;     /* tracked, and waits for nothing but its receiver */
    uint8_t           is_suspect;    /* a copy has failed: the buffer may not be there */
    const void       *header;    /* active message: the user's header; info.sender_tag its length */
} ucp_send_request_t;

/* A receive, and the rendezvous that fills it. A tag receive's info.sender_tag holds the tag that
 * is wanted. */
typedef struct {
    uint64_t          mask;
    uint64_t          sn;       /* posting order */
    ucp_peer_t       *peer;
    uint64_t          id;
    uint64_t          send_id;
    uint64_t          remote_addr;
    size_t            offset;   /* get: next byte to read; stream: bytes of an element */
    size_t            base;     /* byte of the message that goes to byte 0 of the buffer */
    size_t            total;    /* bytes that will be received */
    size_t            received;
    _Atomic uint64_t *sync_word; /* both, left: claims */
    uint32_t          num_data; /* in worker->asked: the sender's when it was looked at last */
    ucp_learn_turn_t  turn;
    ucp_learn_t      *learn;    /* where the turn is counted */
    ucp_recv_step_t   step : 8;
    ucs_status_t      result;   /* truncated, or what an unpack function returned */
    uint8_t           is_wild;  /* found by the list of wildcards, not by hash */
    uint8_t           is_part;  /* of a message that goes on after it */
    uint8_t           was_awaited; /* it was posted before the announcement came */
    uint8_t           is_given_up; /* by its user, with the last endpoint to the peer */
    uint8_t           is_written;  /* the sender was asked to write into the buffer */
    uint8_t           is_suspect;  /* a copy has failed: the buffer may not be there */
    uint8_t           slot;     /* DEVICE: of the sender's memory */
    uint8_t           has_device; /* READ: a buffer of the two is a device's */
    uint16_t          word;     /* in worker->asked: of the sender's interface */
    uint16_t          ends;     /* of the announcement, see UCP_WIRE_RTS_ENDS, */
    uint8_t           has_ends; /* if it tells */
} ucp_recv_request_t;

/* Flush of one endpoint or of the worker; also the close that ends with it. */
typedef struct {
    ucp_ep_h        ep;        /* NULL: the worker; may be gone before the end of a flush */
    ucp_peer_t     *peer;      /* whose control messages count; ep may have moved on since */
    uint64_t        sn;        /* operations before this one count */
    size_t          remaining;
    ucs_status_t    status;    /* of ep's peer when none remained */
    uint8_t         is_last;   /* when none remain it ends */
    uint8_t         is_rest;   /* only messages that the sends have left behind remain */
} ucp_flush_request_t;

/* What a request has registered with one interface of a network, and the peer's key for it. */
typedef struct {
    uct_mem_t  *mem;           /* NULL: there is no need */
    uct_rkey_t *rkey;          /* NULL: none (yet) */
    int         is_lent;       /* mem is the user's to release */
    int         is_registered;
} ucp_rdma_rail_t;

typedef struct ucp_rdma_rails ucp_rdma_rails_t;

/* A put of a scatter-gather list, whose entries are requests of their own. */
typedef struct {
    size_t          remaining; /* entries in flight */
    ucs_status_t    status;    /* an error of one of them */
} ucp_put_list_request_t;

struct ucp_request {
    _Atomic uint32_t    flags;
    ucs_status_t        status;
    ucp_request_kind_t  kind : 8;
    uint16_t            held;
    union { /* callbacks of the _nb calls are called with one argument more than they take */
        ucp_send_nbx_callback_t         send;
        ucp_tag_recv_nbx_callback_t     recv;
        ucp_am_recv_data_nbx_callback_t recv_length; /* of the kinds that have no tag */
    } cb;
    void               *user_data;
    ucp_worker_h        worker;
    void               *buffer;
    size_t              length;   /* bytes to send, or room to receive */
    ucp_tag_recv_info_t info;
    ucp_datatype_t      datatype;
    union {
        void  *dt_state;          /* generic */
        size_t iov_count;
    };
    ucs_list_link_t     list;
    union {
        ucp_send_request_t  send;
        ucp_recv_request_t  recv;
        ucp_flush_request_t flush;
        ucp_put_list_request_t put_list;
    };
    ucs_list_link_t      work_list; /* in the worker's list of work, or of what was asked for */
    uint64_t             until_ns;  /* in worker->asked: has the sender begun, has the receiver
                                     * answered by then? GET, BOTH, DEVICE: are we connected? */
    struct {                        /* a copy that goes on by itself, see device.h */
        uct_completion_t comp;
        ucp_device_then_cb_t then;
        ucs_status_t     late;      /* the status to end with once the copy has ended, or the
                                     * messages that a device buffer gets from a peer */
        uint8_t          slot;      /* of our memory that the peer was told */
        uct_mem_info_t   info;      /* what the buffer is, where its class says that of a device */
        ucp_chunks_t     chunks;
        ucp_rdma_rail_t  first;     /* by a network's reads or writes, see rdma.h */
        ucp_rdma_rails_t *rails;    /* the same for further devices; NULL: none */
        size_t           length;    /* bytes of the part under way */
    }                    copy;
};

_Static_assert(offsetof(ucp_request_t, send) == 96, "the head of a request is 96 bytes");
_Static_assert(sizeof(ucp_request_t) % 8 == 0, "request_size is a multiple of 8");

/* The parameters of the older forms, whose callbacks (NULL: none) take no user data. No more of
 * them is written than is named: to clear all takes 10 ns (rep stos), more than a short send. */
UCS_INLINE void ucp_request_nb_param(ucp_request_param_t *param, ucp_send_callback_t cb)
{
    param->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    param->cb.send      = (ucp_send_nbx_callback_t)(void *)cb;
    param->datatype     = ucp_dt_make_contig(1); /* this and the next for the compiler, which */
    param->request      = NULL;                  /* does not see that the mask guards them */
}

/* The same of messages; cb: ucp_send_callback_t, or that of a receive. */
UCS_INLINE void ucp_request_nb_message(ucp_request_param_t *param, ucp_datatype_t datatype,
                                       void *cb)
{
    ucp_request_nb_param(param, (ucp_send_callback_t)cb);
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param->datatype      = datatype;
}

UCS_INLINE void *ucp_request_handle(ucp_request_t *req)
{
    return req + 1;
}

UCS_INLINE ucp_request_t *ucp_request_of(void *handle)
{
    return (ucp_request_t *)handle - 1;
}

/* Sends and receives of messages, whatever operation they belong to: what rendezvous works on. */
UCS_INLINE int ucp_request_is_send(const ucp_request_t *req)
{
    return (req->kind >= UCP_REQUEST_TAG_SEND) && (req->kind <= UCP_REQUEST_STREAM_SEND);
}

UCS_INLINE int ucp_request_is_recv(const ucp_request_t *req)
{
    return (req->kind >= UCP_REQUEST_TAG_RECV) && (req->kind <= UCP_REQUEST_STREAM_RECV);
}

/* Sent or announced: nothing more is done unless the receiver asks for it. */
UCS_INLINE int ucp_send_waits_for_receiver(const ucp_request_t *req)
{
    return ucp_request_is_send(req) &&
           ((req->send.step == UCP_SEND_SYNC) || (req->send.step == UCP_SEND_WAIT));
}

UCS_INLINE int ucp_request_is_rma(const ucp_request_t *req)
{
    return req->kind >= UCP_REQUEST_PUT;
}

/* Do its bytes go from the buffer to the peer, by whatever way? */
UCS_INLINE int ucp_request_is_outward(const ucp_request_t *req)
{
    return ucp_request_is_send(req) || (req->kind == UCP_REQUEST_PUT);
}

UCS_INLINE uint32_t ucp_request_flags(ucp_request_t *req)
{
    return atomic_load_explicit(&req->flags, memory_order_relaxed);
}

/* The end of a request: releases what it holds, stores the status, calls the user, gives the
 * memory back where the user has already done so. The only place where requests end. Callbacks run
 * here, so never inside the call that posts a send. */
void ucp_request_complete(ucp_request_t *req, ucs_status_t status);

/* The same for a posted tag receive, which most often holds nothing and was not given back. */
UCS_INLINE void ucp_request_complete_recv(ucp_request_t *req, ucs_status_t status)
{
    const uint32_t simple = UCP_REQUEST_EXTERNAL | UCP_REQUEST_CALLBACK;
    uint32_t flags        = ucp_request_flags(req);

    if (ucs_unlikely((req->held | (flags & ~simple)) != 0)) {
        ucp_request_complete(req, status);
        return;
    }
    req->status = status;
    atomic_store_explicit(&req->flags, flags | UCP_REQUEST_COMPLETED,
                          memory_order_release); /* R1 */
    if (flags & UCP_REQUEST_CALLBACK) {
        req->cb.recv(ucp_request_handle(req), status, &req->info,
                     req->user_data); /* may free the request */
    }
}

/* Stores the status of an operation that ended inside its posting call; the user learns of it by
 * the returned value. Returns what the call returns: NULL or an error pointer. Frees pool memory.
 */
ucs_status_ptr_t ucp_request_end_immediately(ucp_request_t *req, ucs_status_t status);

/* The end of a receive inside its posting call, with info set: by the callback where the user wants
 * no immediate end, else what recv_info points to is told, if that is asked for. Returns what the
 * call returns. */
ucs_status_ptr_t ucp_request_end_recv(ucp_request_t *req, ucs_status_t status,
                                      const ucp_request_param_t *param);

/* Makes memory of the user's, for a request that was not needed, one that has ended. */
void ucp_request_end_unused(void *request, ucp_request_kind_t kind, ucs_status_t status);

/* What a call returns that has ended without a request, or was refused. The user's memory for one,
 * if there is any, knows it too: clients ask that. */
UCS_INLINE ucs_status_ptr_t ucp_request_end_without(const ucp_request_param_t *param,
                                                    ucp_request_kind_t kind, ucs_status_t status)
{
    if (ucs_unlikely(param->op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST)) {
        ucp_request_end_unused(param->request, kind, status);
    }
    return UCS_STATUS_PTR(status);
}

/* Waits for the end of what a call returned, progressing the worker, and frees the request. Returns
 * its status. In a callback, where progress does nothing, it does not wait: what goes on is left to
 * later progress, UCS_ERR_NO_PROGRESS. */
ucs_status_t ucp_request_wait(ucp_worker_h worker, ucs_status_ptr_t ptr);

/* Releases what the mask of UCP_REQUEST_HOLDS_xx says, in the fixed order; a copy that is under
 * way, and what it needs, stay until it has ended with its worker. */
void ucp_request_release_held(ucp_request_t *req);

/* Puts a request on, takes it off the worker's list of work, which progress walks through. */
void ucp_request_add_work(ucp_request_t *req);
void ucp_request_del_work(ucp_request_t *req);

/* Puts it there, unless it is there already or waits for a chunk (ucp_device_chunk_wait). */
void ucp_request_want_work(ucp_request_t *req);

/* Prepares the pool of a worker. */
ucs_status_t ucp_request_pool_init(ucp_worker_h worker);

#endif
