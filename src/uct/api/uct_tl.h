/* Halyard: the transport interface: all that the author of a transport reads, and all that ucp
 * calls.
 *
 * A transport is one `const uct_tl_t`. A NULL operation is a capability that the transport lacks:
 * there is no second flag word to keep in step. The base (src/uct/base) owns what every transport
 * would repeat: the registry, object life, the pending queue, completion counting, the
 * active-message table, endpoint states and the fault/delay/trace hooks. An interface and
 * everything opened on it belong to one worker: the caller serialises all calls (ucp holds the
 * worker's lock); nothing here locks.
 *
 * A data operation ends in one of four ways:
 *   UCS_OK               done; the local buffers are reusable, a completion is not called
 *   UCS_INPROGRESS       started; the completion is updated exactly once, from iface progress
 *   UCS_ERR_NO_RESOURCE  nothing happened; add a pending request to be called again
 *   any other error      nothing happened; the endpoint has failed, or the arguments are wrong
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_API_UCT_TL_H
#define UCT_API_UCT_TL_H

#include <ucs/arch/atomic.h>
#include <ucs/config/parser.h>
#include <ucs/debug/probe.h>
#include <ucs/debug/report.h>
#include <ucs/ds/list.h>
#include <ucs/memory/memory_type.h>
#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

BEGIN_C_DECLS

#define UCT_AM_ID_MAX        32   /* active-message ids are below this */
#define UCT_UID_LEN          16   /* bytes of a worker's random 128-bit identity */
#define UCT_TL_NAME_MAX      24
#define UCT_REASON_MAX       96   /* text that says why a path is not taken */
#define UCT_RKEY_MAX         224  /* bytes of one transport's packed remote key */
#define UCT_IFACE_KEY_LEN    12   /* the same of memory that an interface has registered */

typedef struct uct_tl         uct_tl_t;
typedef struct uct_md         uct_md_t;
typedef struct uct_iface      uct_iface_t;
typedef struct uct_ep         uct_ep_t;
typedef struct uct_ep_ops     uct_ep_ops_t;
typedef struct uct_mem        uct_mem_t;
typedef struct uct_rkey       uct_rkey_t;
typedef struct uct_completion uct_completion_t;
typedef struct uct_pending    uct_pending_t;

/* What a transport connects; ucp's role table and the UCX_TLS aliases ("shm", "sm", ...) are built
 * on it. */
typedef enum {
    UCT_TL_KIND_SELF,   /* this worker with itself */
    UCT_TL_KIND_SHM,    /* processes of one node, through memory that both map */
    UCT_TL_KIND_COPY,   /* processes of one node, copies only, no messages (cma) */
    UCT_TL_KIND_DEVICE, /* device memory of one node */
    UCT_TL_KIND_NET     /* nodes */
} uct_tl_kind_t;

/* Operations whose limits and costs are asked for. The limits of AM_SHORT hold for the whole
 * message: am_short's 8-byte header and its payload together, the sum of am_short_iov's entries;
 * so do those of AM_ZCOPY, whose least size is that from which it takes less time than to copy. */
typedef enum {
    UCT_OP_AM_SHORT,
    UCT_OP_AM_BCOPY,
    UCT_OP_AM_ZCOPY,
    UCT_OP_PUT_ZCOPY,
    UCT_OP_GET_ZCOPY,
    UCT_OP_LAST
} uct_op_t;

/* Limits and linear cost of one operation on one kind of memory. time(n) = overhead + latency + n
 * / bytes_per_ns: overhead is the part that keeps this processor busy whatever the size. max == 0:
 * not possible. */
typedef struct {
    size_t   min, max;  /* bytes */
    unsigned iov_max;   /* entries */
    double   overhead_ns;
    double   latency_ns;
    double   bytes_per_ns;
} uct_limits_t;

typedef struct {
    void      *buffer;
    size_t     length;  /* bytes */
    uct_mem_t *mem;     /* registration, or NULL where the transport needs none */
} uct_iov_t;

/* Counts the operations that one user waits for. func runs when count falls to 0, from iface
 * progress or from purge; status is the first error seen. The user owns the object until func has
 * been called. */
struct uct_completion {
    void       (*func)(uct_completion_t *self);
    int          count;
    ucs_status_t status;
};

/* A request queued on an endpoint until resources are there. func tries again and returns UCS_OK
 * when it has been taken over (the entry leaves the queue; it may already be freed),
 * UCS_ERR_NO_RESOURCE to stay at the queue's head, UCS_INPROGRESS when it moved on but wants
 * another turn at the queue's tail.
 * Errors are the owner's: func handles them itself and returns UCS_OK. */
struct uct_pending {
    ucs_status_t    (*func)(uct_pending_t *self);
    ucs_list_link_t list; /* in ep->pending */
};
typedef void (*uct_pending_purge_cb_t)(uct_pending_t *self, void *arg);

/* Receives one active message; data[0..length) is readable until return and may be changed by a
 * hostile peer meanwhile: read each field once. data is 8-byte aligned. May call any operation of
 * any endpoint of the interface, but not iface progress. */
typedef void (*uct_am_cb_t)(void *arg, const void *data, size_t length);
/* A long message has begun to arrive, which its sender is still writing. header: its bytes before
 * the payload; length: of the payload. Returns memory for that, which it fills as it comes, and
 * *token_p; or NULL: the message is handed to the handler once it is whole. */
typedef void *(*uct_am_begin_cb_t)(void *arg, const void *header, size_t header_length,
                                   size_t length, void **token_p);
/* Once for each token, from progress or close: the payload is there (UCS_OK), or its sender is
 * gone. */
typedef void (*uct_am_end_cb_t)(void *token, ucs_status_t status);

/* Packs at most `max` bytes of a message into dest; returns the bytes packed. */
typedef size_t (*uct_pack_cb_t)(void *dest, void *arg, size_t max);

/* An endpoint has failed (peer died, connection refused, ...): called once an endpoint, from
 * progress, never inside an operation. Its pending requests are still queued: the callee purges
 * them (what it leaves is tried again and meets the error). It may close the endpoint. status
 * tells what is gone:
 * UCS_ERR_CONNECTION_RESET or _ENDPOINT_TIMEOUT: the peer; anything else: this path to it only. */
typedef void (*uct_ep_failed_cb_t)(void *arg, uct_ep_t *ep, ucs_status_t status);

/* A peer that had connected to this interface (its identity: uid) is gone, orderly or not: called
 * from progress after its last complete message was delivered. Where it connects anew, what came
 * by the earlier connection is delivered before what comes by the later one. */
typedef void (*uct_peer_gone_cb_t)(void *arg, const uint8_t uid[UCT_UID_LEN]);

typedef struct {
    uint8_t            uid[UCT_UID_LEN]; /* the worker's identity; the cookie that peers prove */
    uct_ep_failed_cb_t ep_failed;        /* not NULL */
    uct_peer_gone_cb_t peer_gone;        /* may be NULL */
    void             (*rouse)(void *arg); /* who sleeps is to look: an operation has left something
                                            for progress to report, of which no event tells, or an
                                            event has been taken that comes once; may be NULL */
    void              *arg;              /* of these callbacks */
    /* Where the transport puts the identity of the peer whose messages it delivers next, valid
     * inside their handlers; it puts NULL where it does not know. NULL: nobody asks. */
    const uint8_t    **sender;
    int                is_shared;        /* 1: memory is registered with the domain, and released,
                                            by other threads than the one that calls */
    /* Transports with max_rails: how many further interfaces of it the user would open, each
     * on another device, to move parts of what this one is for; or, where `lead` is set, that one
     * and which of them this is, from 0: UCS_ERR_NO_DEVICE if there is no such device. */
    unsigned           num_rails;
    uct_iface_t       *lead;
    unsigned           rail;
} uct_iface_params_t;

/* ---- memory ---- */

struct uct_mem { /* base of a transport's registration or allocation */
    uct_md_t *md;
    void     *address;
    size_t    length; /* bytes */

    /* Identity of the worker that tells others of it and that answers what they have to ask; its
     * user sets it. NULL: any of the process. */
    const uint8_t *uid;

    /* A device may still use it, so its memory is never given back: its user sets it, `release`
     * then ends the description only. */
    int is_lost;
};

struct uct_rkey { /* base of a transport's unpacked remote key */
    uct_md_t *md;
};

#define UCT_RAILS_MAX 3 /* further interfaces of a transport, see uct_iface_params_t */

#define UCT_MEM_ALLOC_FIXED   1u /* exactly at the address given */
#define UCT_MEM_ALLOC_DEVICE  2u /* memory of the device that is current in the calling thread */
#define UCT_MEM_ALLOC_MANAGED 4u /* memory that the device and this processor both reach */
#define UCT_MEM_ALLOC_PINNED  8u /* memory of the host that devices reach, where that is allowed */

/* The copy may be seen byte by byte: a short one to a device that another process uses, too, may go
 * in two parts for that. */
#define UCT_COPY_IN_ROWS 1u

/* What a transport knows of an address. */
typedef struct {
    ucs_memory_type_t type;   /* UCS_MEMORY_TYPE_HOST: this processor may touch it as any other */
    void             *base;   /* of what one key can name; not set for HOST */
    size_t            length; /* bytes from there */
    uint64_t          id;     /* of the allocation, never used again in this process */
    int               device; /* its ordinal in this process */
    uint64_t          device_uid; /* of memory that stays on the device: the same in all processes
                                     of the node for it; 0: not told */
    int               is_pinned; /* HOST: devices reach it */
} uct_mem_info_t;

typedef struct {
    /* Opens what endpoints of a process share (limits, caches). md->config is filled. */
    ucs_status_t (*open)(uct_md_t *md);
    void (*close)(uct_md_t *md);
    /* Memory that peers on the node can map. address: hint or exact place; of a device: an address
     * on the device that it shall be on, or NULL. The transport fills mem->address/length. */
    ucs_status_t (*alloc)(uct_md_t *md, void *address, size_t length, unsigned flags,
                          uct_mem_t **mem_p);
    /* info: what the mem_query of another transport has said of memory of a device; NULL: it is the
     * host's, or this transport's to know.
     * UCS_ERR_UNSUPPORTED: never of this memory, as long as it is allocated;
     * UCS_ERR_NO_RESOURCE: not now, but maybe later. */
    ucs_status_t (*reg)(uct_md_t *md, void *address, size_t length, const uct_mem_info_t *info,
                        uct_mem_t **mem_p);
    void (*release)(uct_mem_t *mem); /* ends alloc or reg */
    /* What kind of memory is at the address, any value? `length` bytes from there are of interest,
     * which may lie in several allocations side by side. Called with pointers of the host too, so a
     * refusal costs as little as possible; takes no lock of another thread's for long.
     * UCS_ERR_NO_DEVICE: the application has not started the devices' driver in this process, so
     * all memory is the host's. NULL: the transport knows only memory of the host. */
    ucs_status_t (*mem_query)(uct_md_t *md, const void *address, size_t length,
                              uct_mem_info_t *info_p);
    /* Remote keys: at most UCT_RKEY_MAX bytes. pack returns the bytes written; 0: peers would have
     * no use for it. unpack checks every byte. */
    size_t (*rkey_pack)(uct_mem_t *mem, void *buffer);
    ucs_status_t (*rkey_unpack)(uct_md_t *md, const void *buffer, size_t length,
                                uct_rkey_t **rkey_p);
    /* Address in this process of remote_addr..+length; UCS_ERR_NO_RESOURCE while the mapping is
     * under way, UCS_ERR_UNREACHABLE when there is none, UCS_ERR_OUT_OF_RANGE outside the key. */
    ucs_status_t (*rkey_ptr)(uct_rkey_t *rkey, uint64_t remote_addr, size_t length, void **ptr_p);
    /* Does the remote memory lie on this device (ordinal of this process)? NULL: never. */
    int (*rkey_is_on)(uct_rkey_t *rkey, int device);
    /* The memory is gone, says its owner: what is kept for later uses of it goes. May be NULL. */
    void (*rkey_forget)(uct_rkey_t *rkey);
    void (*rkey_release)(uct_rkey_t *rkey);
} uct_md_ops_t;

struct uct_md {
    const uct_tl_t *tl;
    void           *config; /* tl->config_size bytes filled from tl->config_rows */
};

/* ---- interface ---- */

typedef struct {
    /* Opens an object of tl->iface_size zeroed bytes; close accepts it half-built. */
    ucs_status_t (*open)(uct_iface_t *iface);
    void (*close)(uct_iface_t *iface);
    void (*limits)(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory,
                   uct_limits_t *limits_p);
    /* The address that peers connect to: at most 255 bytes; returns the bytes written. NULL, as
     * is_reachable is then: it has no peers. */
    size_t (*get_address)(uct_iface_t *iface, void *buffer);
    /* Can the owner of this address be a peer? `same_node`: boot ids are equal. Writes the reason
     * if not. */
    int (*is_reachable)(uct_iface_t *iface, const void *address, size_t length, int same_node,
                        char reason[UCT_REASON_MAX]);
    /* Delivers messages, completions, failures; returns the number of things done, 0 when idle. */
    unsigned (*progress)(uct_iface_t *iface);
    /* A file descriptor that becomes readable when work comes after arm (-1: an error, logged); arm
     * returns UCS_ERR_BUSY when there is work already. NULL both: nothing ever comes by itself.
     * Only event_fd NULL: what is under way ends without a descriptor, arm is BUSY meanwhile. */
    int (*event_fd)(uct_iface_t *iface);
    /* Where that descriptor would be a set of others: adds those to the caller's epoll set instead,
     * with data.fd, since sets in each other are limited to five (epoll_ctl: ELOOP) and programs
     * put theirs around ours. Called once; they are taken out when the interface closes, before
     * the caller's set does. NULL: event_fd. */
    ucs_status_t (*event_join)(uct_iface_t *iface, int epoll_fd);
    ucs_status_t (*event_arm)(uct_iface_t *iface);
    /* Has a message come that progress would deliver? Takes little time and changes nothing, so
     * that who is about to sleep may look for a while before. NULL: not known. */
    int (*has_come)(const uct_iface_t *iface);
    /* Copies between places of this process of which mem_query knows one at least, in no order with
     * other copies. comp NULL: UCS_OK once the bytes are there, having polled for them; calls no
     * completions of others meanwhile. UCS_ERR_TIMED_OUT: they do not come, but still may: the
     * places may be read and written. Else as any operation. flags: UCT_COPY_xx. */
    ucs_status_t (*copy)(uct_iface_t *iface, void *dest, const void *src, size_t length,
                         unsigned flags, uct_completion_t *comp);
    /* Registers memory for as long as some operation lasts: for peers of this interface to get from
     * it (is_remote), or for get_zcopy of this interface to write to (then *mem_p may be NULL:
     * there is no need). Ended by the domain's release, before the interface is closed. The packed
     * key has UCT_IFACE_KEY_LEN bytes. info: as of the domain's. An error: other ways are taken
     * (UCS_ERR_UNSUPPORTED: always). NULL: no such need, or no such operation. */
    ucs_status_t (*reg)(uct_iface_t *iface, void *address, size_t length,
                        const uct_mem_info_t *info, int is_remote, uct_mem_t **mem_p);
    /* Words of 64 bits that this interface and any endpoint connected to it can change by atomics
     * (claims of a transfer that both sides perform). The word is zeroed by alloc; the first that
     * is asked for has the index 0. NULL where there is no common memory, and for SELF: one's own
     * two sides take turns in one thread, so sharing a copy gains nothing. */
    ucs_status_t (*sync_alloc)(uct_iface_t *iface, uint32_t *index_p, ucs_atomic_u64_t **word_p);
    void (*sync_free)(uct_iface_t *iface, uint32_t index);
    /* Ends the connections that the peer of this identity has made to us, which it notices as it
     * would notice our death. discard: nothing of what it has sent or still sends is delivered.
     * Returns 1 where there is such a connection: peer_gone will be called once it has ended.
     * NULL where peers do not notice. */
    int (*drop_peer)(uct_iface_t *iface, const uint8_t uid[UCT_UID_LEN], int discard);
    /* Connected peers, in either direction, that may run on the processors that this process may
     * run on, or those of one of them, if they are more; at most INT_MAX. May take microseconds.
     * NULL: none. */
    unsigned (*num_rivals)(uct_iface_t *iface);
    /* Bytes of shared and of private memory that the interface holds now. Not NULL. */
    void (*memory_used)(uct_iface_t *iface, size_t *shared_p, size_t *private_p);
} uct_iface_ops_t;

/* Where a handler finds a long message. */
typedef enum {
    UCT_AM_COPIED,   /* in a copy */
    UCT_AM_IN_PLACE, /* where the sender can still change it: it takes what it relies on once */
    UCT_AM_SHOWN     /* there, too, and shows it to its user, who may leave most of it unread */
} uct_am_place_t;

typedef struct {
    uct_am_cb_t cb;
    void       *arg;
    uct_am_place_t place;
    uct_am_begin_cb_t begin; /* see uct_iface_set_am_parts */
    uct_am_end_cb_t   end;
} uct_am_handler_t;

/* ---- endpoint ---- */

/* The operations of an endpoint in one state. Live endpoints use the transport's table,
 * others one of the base, so the hot path tests no flags. An operation that is NULL in one is NULL
 * in both. While an endpoint waits for its connection each operation starts it and returns
 * UCS_ERR_NO_RESOURCE, but flush returns UCS_OK, since nothing has been sent, and so does check,
 * whose answer comes later. Once it has failed each returns why. */
struct uct_ep_ops {
    /* Message of an 8-byte header and a payload; all copied before return. header is sent
     * little-endian. */
    ucs_status_t (*am_short)(uct_ep_t *ep, unsigned id, uint64_t header, const void *payload,
                             size_t length);
    /* Message gathered from iov[0..n); all copied before return; at most am_short's max in all. */
    ucs_status_t (*am_short_iov)(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n);
    /* Message written by pack into a transport buffer. *length_p: bytes that pack gives at most, no
     * more than am_bcopy's max; then, with UCS_OK, bytes sent. */
    ucs_status_t (*am_bcopy)(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg,
                             size_t *length_p);
    /* Message gathered from iov[0..n), of which the last entry is the payload and is not copied:
     * UCS_OK, or UCS_INPROGRESS until comp is called, before which it must not change. The others
     * are copied before return. comp has an error only where the endpoint has failed, too. */
    ucs_status_t (*am_zcopy)(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n,
                             uct_completion_t *comp);
    /* Copies whole buffers. For transports of the kinds SELF and COPY rkey may be NULL: any memory
     * of the peer; with that they copy inside the call: UCS_OK, or an error. Those of the kind
     * DEVICE look at rkey and at the memories of iov inside the call only, others until the end.
     * UCS_ERR_UNSUPPORTED: this memory of the peer's may not be written, or read. */
    ucs_status_t (*put_zcopy)(uct_ep_t *ep, const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                              uct_rkey_t *rkey, uct_completion_t *comp);
    ucs_status_t (*get_zcopy)(uct_ep_t *ep, const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                              uct_rkey_t *rkey, uct_completion_t *comp);
    /* All earlier operations of the endpoint that have no completion of their own are complete at
     * the peer (its memory is changed, messages lie in its queue and need no more help from here);
     * may be UCS_INPROGRESS. A put with a completion is complete at the peer with that. */
    ucs_status_t (*flush)(uct_ep_t *ep, uct_completion_t *comp);
    /* Asks whether the peer lives; a dead one is reported through ep_failed. Never waits. */
    ucs_status_t (*check)(uct_ep_t *ep);
    /* The peer interface's sync word; UCS_ERR_NO_RESOURCE until connected. */
    ucs_status_t (*sync_map)(uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p);
    /* Has the peer called progress in the last microseconds? NULL: not known. */
    int (*is_attentive)(uct_ep_t *ep);
    /* Do both sides run behind one cache, wherever the scheduler puts those of their threads that
     * have connected? NULL: not known. */
    int (*is_near)(uct_ep_t *ep);
    /* Bytes of the longest message of am_short and am_short_iov, where that is more than the
     * interface's limit. Nothing of such a message is handed to its handler before all of it is
     * sent. 0, NULL: the limit. */
    size_t (*long_max)(uct_ep_t *ep);
    /* Would am_short_iov take `count` messages of up to `length` bytes now, or as many as it ever
     * takes? If not, a pending request is called when it may. NULL: not known. */
    int (*has_room)(uct_ep_t *ep, size_t length, unsigned count);
    /* The user gives up the operation that waits for comp, if there is one (else nothing happens):
     * progress calls comp soon, with any outcome, also where the peer lives and takes nothing. That
     * may cost connections, with which other endpoints to the peer fail, also those of other
     * interfaces of the process. In any state of the endpoint. Works best where may_abandon was set
     * before it was connected. NULL: operations end soon anyhow. */
    void (*abandon)(uct_ep_t *ep, const uct_completion_t *comp);
};

struct uct_iface {
    const uct_tl_t    *tl;
    uct_md_t          *md;
    const char        *choice;            /* what open has chosen, then a line each why not the
                                             others; NULL: there was nothing to choose */
    const char        *device;            /* its name in the network; NULL: memory */
    ucs_list_link_t    ready;             /* endpoints whose queued requests may be tried */
    uct_ep_t          *served;            /* the one whose request is being tried, or NULL */
    int                is_serving;        /* a round of `ready` */
    ucs_list_link_t    failed;            /* endpoints whose failure progress has to report */
    unsigned           num_pending;       /* queued requests, of connecting endpoints too */
    uint64_t           am_dropped;        /* messages that came for an id without handler */
    const uint8_t     *sender;            /* params.sender points to it where the user has none */
    uct_am_handler_t   am[UCT_AM_ID_MAX]; /* never NULL: unset ids drop the message and count it */
    uct_iface_params_t params;
    ucs_list_link_t    eps;               /* every open endpoint */
    uct_ep_ops_t       unready_ops;       /* of endpoints that are not live, see uct_ep_ops */
    int                is_abandoned;      /* set before it is closed by who has not waited for what
                                             is under way: closing does not wait for it either */
    int                is_stuck;          /* set while it is closed: a copy has not ended in time,
                                             so a device may still read and write its places */
};

typedef enum {
    UCT_ATOMIC_ADD,
    UCT_ATOMIC_AND,
    UCT_ATOMIC_OR,
    UCT_ATOMIC_XOR,
    UCT_ATOMIC_SWAP,
    UCT_ATOMIC_CSWAP
} uct_atomic_op_t;

typedef enum {
    UCT_EP_IDLE,       /* no resource taken yet: the first operation starts the connection */
    UCT_EP_CONNECTING,
    UCT_EP_LIVE,
    UCT_EP_FAILED
} uct_ep_state_t;

struct uct_ep {
    const uct_ep_ops_t  *ops;   /* first: the hot path loads it */
    uct_iface_t         *iface;
    void                *user;  /* the caller's, untouched by uct */
    ucs_list_link_t      ready;   /* in iface->ready, or in what is left of a round of it */
    ucs_list_link_t      pending; /* uct_pending_t, but for the one that is being tried */
    ucs_list_link_t      list;  /* in iface->eps */
    ucs_list_link_t      failed_list;
    uct_ep_state_t       state;
    ucs_status_t         status; /* why it failed */
    uint8_t              peer_uid[UCT_UID_LEN];
    uint8_t              is_nowhere; /* see uct_ep_open_nowhere */
    uint8_t              may_abandon; /* set by its user, who may call that operation */
    uint8_t              was_met;    /* set by its user: the peer has been there, so if no way leads
                                      * to it now its connection is reset */
};

typedef struct {
    /* Stores the address; no system call, no memory beyond the object. close is not called if it
     * fails. */
    ucs_status_t (*init)(uct_ep_t *ep, const void *address, size_t length);
    /* Starts the connection (first use). UCS_OK: live now; UCS_INPROGRESS: becomes live or fails
     * from progress; error: failed. NULL: live at once. */
    ucs_status_t (*connect)(uct_ep_t *ep);
    /* Of an endpoint that has failed, maybe by its user's decision (uct_ep_set_failed): ends the
     * connection if it has not, behind what was sent, so that the peer hears of it before the
     * endpoint is closed. NULL where there is none. */
    void (*disconnect)(uct_ep_t *ep);
    void (*close)(uct_ep_t *ep);
    uct_ep_ops_t live;
} uct_ep_tl_ops_t;

/* ---- the descriptor ---- */

struct uct_tl {
    char                    name[UCT_TL_NAME_MAX];
    const char             *help;
    uct_tl_kind_t           kind;
    size_t                  md_size, iface_size, ep_size; /* of the derived structs */
    const ucs_config_row_t *config_rows;   /* NULL-name terminated, or NULL */
    const char             *config_prefix; /* "MM_": variables are UCX_MM_... */
    size_t                  config_size;   /* 0 with no rows */
    unsigned                max_rails;     /* further interfaces, see uct_iface_params_t.lead */
    uct_md_ops_t            md;
    uct_iface_ops_t         iface;
    uct_ep_tl_ops_t         ep;
};

/* ---- registry and base: called by ucp and by tests ---- */

/* All transports known. Stable for the life of the process once returned. Any thread. */
const uct_tl_t *const *uct_tl_list(size_t *count_p);

/* By name; also the wrapped forms "fault:mm", "delay:mm", "trace:mm" (any nesting), made on first
 * use. NULL if unknown. */
const uct_tl_t *uct_tl_find(const char *name);

/* Configuration of a transport from the environment and files, for uct_md_open; app_prefix as in
 * ucs_config_fill. *config_p is NULL where the transport has no options. Errors are logged. */
ucs_status_t uct_config_read(const uct_tl_t *tl, const char *app_prefix, void **config_p);
void uct_config_release(const uct_tl_t *tl, void *config);

/* Memory domain. config: a block filled by uct_config_read for this transport (copied), or NULL
 * for the environment. UCS_ERR_INVALID_PARAM, _OUT_OF_RANGE (logged): an option has a wrong value;
 * other errors: the transport cannot be used here. */
ucs_status_t uct_md_open(const uct_tl_t *tl, const void *config, uct_md_t **md_p);
void uct_md_close(uct_md_t *md);

/* The interface of one worker. On failure nothing is left. Unless noted these do not block; open
 * may make system calls. close fails nothing: endpoints must have been closed before. It returns
 * is_stuck: not 0 if memory that operations have named must not be given back. */
ucs_status_t uct_iface_open(uct_md_t *md, const uct_iface_params_t *params, uct_iface_t **iface_p);
int uct_iface_close(uct_iface_t *iface);
/* cb NULL: messages are dropped. */
void uct_iface_set_am(uct_iface_t *iface, unsigned id, uct_am_cb_t cb, void *arg,
                      uct_am_place_t place);
/* After that: long messages may be taken part by part. begin gets uct_iface_set_am's arg. */
void uct_iface_set_am_parts(uct_iface_t *iface, unsigned id, uct_am_begin_cb_t begin,
                            uct_am_end_cb_t end);
/* Prints an interface's choice (uct_iface_t.choice, or NULL), each line behind `before`; as JSON
 * rows of the array that is open. */
void uct_report_choice(ucs_report_t *report, const char *choice, const char *before);

/* Endpoint to the owner of an address. peer_uid: the peer worker's identity. No system call but
 * for memory. */
ucs_status_t uct_ep_open(uct_iface_t *iface, const uint8_t peer_uid[UCT_UID_LEN],
                         const void *address, size_t length, void *user, uct_ep_t **ep_p);
/* Endpoint to a peer that is not known yet: operations find no resource and pending requests wait,
 * until it is failed or closed. No operation of the transport is called for it. */
ucs_status_t uct_ep_open_nowhere(uct_iface_t *iface, void *user, uct_ep_t **ep_p);
/* In any state. Pending requests must have been purged. Messages already accepted are still
 * delivered. Allowed from ep_failed and from a pending request's func, not from an active-message
 * handler. */
void uct_ep_close(uct_ep_t *ep);
/* Starts the connection now (operations do it by themselves). Same outcomes as
 * uct_ep_tl_ops_t.connect. */
ucs_status_t uct_ep_connect(uct_ep_t *ep);

/* Queues a request behind those already waiting on the endpoint. Called from iface progress when
 * there may be resources, in order within an endpoint, fair among endpoints; its func may add,
 * remove and purge requests of any endpoint. */
void uct_ep_pending_add(uct_ep_t *ep, uct_pending_t *pending);
/* Takes one out that waits on this endpoint; every one, calling cb for each. */
void uct_ep_pending_remove(uct_ep_t *ep, uct_pending_t *pending);
void uct_ep_pending_purge(uct_ep_t *ep, uct_pending_purge_cb_t cb, void *arg);
UCS_INLINE int uct_ep_has_pending(const uct_ep_t *ep);

/* For transports: state changes. live: swaps in tl->ep.live and schedules the pending requests;
 * failed: swaps in the table of the base and queues the report for progress. */
void uct_ep_set_live(uct_ep_t *ep);
void uct_ep_set_failed(uct_ep_t *ep, ucs_status_t status);
/* For transports: from progress: reports failed endpoints, retries pending requests; returns
 * things done. */
UCS_INLINE unsigned uct_iface_progress_base(uct_iface_t *iface);
/* For transports: from event_arm: the base has something for progress to do: UCS_ERR_BUSY. */
UCS_INLINE int uct_iface_has_work(const uct_iface_t *iface);
/* For transports: hands one message to its handler. id comes from a peer and may be anything. */
UCS_INLINE void uct_iface_deliver(uct_iface_t *iface, unsigned id, const void *data, size_t length);
/* An atomic on memory of this process or mapped into it, coherent with other processors'. op:
 * uct_atomic_op_t; for CSWAP, value is the swap value and compare what it is compared with.
 * UCS_ERR_INVALID_PARAM: size is not 4 or 8, target is not aligned to it, or no such op. result_p
 * may be NULL; it receives the value before. */
ucs_status_t uct_atomic_apply(void *target, int op, unsigned size, uint64_t value, uint64_t compare,
                              uint64_t *result_p);
/* The part of uct_iface_progress_base for the case that there is something to do. */
unsigned uct_iface_progress_work(uct_iface_t *iface);

UCS_INLINE int uct_iface_has_work(const uct_iface_t *iface)
{
    return !ucs_list_is_empty(&iface->failed) || !ucs_list_is_empty(&iface->ready);
}

UCS_INLINE unsigned uct_iface_progress_base(uct_iface_t *iface)
{
    return ucs_unlikely(uct_iface_has_work(iface)) ? uct_iface_progress_work(iface) : 0;
}

UCS_INLINE void uct_iface_deliver(uct_iface_t *iface, unsigned id, const void *data, size_t length)
{
    if (ucs_unlikely(id >= UCT_AM_ID_MAX)) {
        ++iface->am_dropped;
        return;
    }
    UCS_PROBE2(message, id, length);
    iface->am[id].cb(iface->am[id].arg, data, length);
}

UCS_INLINE unsigned uct_iface_progress(uct_iface_t *iface)
{
    return iface->tl->iface.progress(iface);
}

UCS_INLINE int uct_ep_has_pending(const uct_ep_t *ep)
{
    return !ucs_list_is_empty(&ep->pending);
}

UCS_INLINE int uct_ep_is_near(uct_ep_t *ep)
{
    return (ep->ops->is_near != NULL) && ep->ops->is_near(ep);
}

/* Bytes of all entries. */
UCS_INLINE size_t uct_iov_length(const uct_iov_t *iov, unsigned n)
{
    size_t length = 0;
    unsigned i;

    for (i = 0; i < n; ++i) {
        length += iov[i].length;
    }
    return length;
}

/* Copies all of them, one behind the other. */
UCS_INLINE void uct_iov_gather(void *dest, const uct_iov_t *iov, unsigned n)
{
    char *next = (char *)dest;
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (iov[i].length != 0) {
            memcpy(next, iov[i].buffer, iov[i].length);
            next += iov[i].length;
        }
    }
}

UCS_INLINE void uct_completion_update(uct_completion_t *comp, ucs_status_t status)
{
    if (ucs_unlikely(status != UCS_OK) && (comp->status == UCS_OK)) {
        comp->status = status;
    }
    if (--comp->count == 0) {
        comp->func(comp);
    }
}

END_C_DECLS

#endif
