/* Halyard: worker: the unit of progress, matching and locking.
 *
 * Everything that belongs to a worker (endpoints, peers, requests, interfaces) is changed with its
 * lock held: one recursive lock taken at the public entry in UCS_THREAD_MODE_MULTI, none below and
 * none in the other modes. Callbacks run with it held and may call back in. Exceptions, that take
 * no lock: the status queries of requests and ucp_worker_signal.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_WORKER_H
#define UCP_CORE_WORKER_H

#include <ucp/core/context.h>
#include <ucp/core/counters.h>
#include <ucp/core/request.h>
#include <ucp/ops/tag_match.h>
#include <ucp/proto/proto.h>
#include <ucp/wire/address.h>
#include <ucp/wire/wire.h>
#include <ucs/arch/cpu.h>
#include <ucs/debug/probe.h>
#include <ucs/ds/hash.h>
#include <ucs/sys/fork.h>

/* Recursive lock; free when not in use (thread mode below MULTI). */
typedef struct {
    _Atomic(const void *) owner; /* a per-thread address, or NULL */
    unsigned              depth;
    int                   enabled;
} ucp_lock_t;

#define UCP_DATA_POOLS 7
/* What ucp_worker_data_get gives at most, in bytes. */
#define UCP_WORKER_DATA_MAX (UCP_WIRE_EAGER_MAX + sizeof(ucp_recv_desc_t))

struct ucp_am_handler; /* ops/am.h */

typedef struct {
    uct_iface_t *iface; /* NULL: the transport did not open here */
    _Atomic uint64_t *early_ends; /* its word 0, see UCP_WIRE_RTS_ENDS; NULL: it has none */
    size_t       addr_length;
    uint8_t      addr[UCP_ADDRESS_TL_MAX];
    int          is_tried;               /* opened, or there is none here; else it may open later */
    char         reason[UCT_REASON_MAX]; /* why iface is NULL */
} ucp_worker_tl_t;

typedef struct {
    unsigned (*progress)(uct_iface_t *iface);
    uct_iface_t *iface;
} ucp_active_t;

/* Why progress has to look closer. */
enum {
    UCP_GATE_PROGRESSING = 1, /* progress is on the stack: a call comes from a callback */
    UCP_GATE_LOCKED      = 2, /* thread mode MULTI */
    UCP_GATE_NO_IFACE    = 4  /* nothing to progress */
};

/* What progress has to do beside its interfaces. */
enum {
    UCP_DEFERRED_SOME  = 1, /* work, failed_eps or watches may have entries */
    UCP_DEFERRED_LOOKS = 2  /* asked has some, where most calls do nothing */
};

typedef struct ucp_sockets ucp_sockets_t;

/* Progress in vain; see idle.h. */
typedef struct {
    unsigned calls;     /* in vain since the last that was not; alone: in all */
    unsigned mask;      /* every mask + 1 of them are a turn: it is looked at what to do */
    unsigned yields;    /* since the processor was shared the last time */
    uint64_t last_ns;   /* the last turn */
    uint64_t since_ns;  /* the first turn since a call that was not in vain */
    uint64_t lost;      /* ucs_sys_lost_turns when it was looked at last */
    uint64_t lost_ns;   /* when that was last seen to have grown */
    int      is_crowded; /* alone: strangers have had our processor a moment ago. We poll as before,
                            but messages of some length wait for nobody, where for announced ones
                            both sides have to run: a slice of 4 ms each time (LIGGGHTS of two
                            processes beside two busy programs on two processors: 5.7 s, was 10) */
    int      is_awake;  /* nor for a while: we do not sleep */
    uint64_t slice_ns;  /* when a yield last cost as much as a slice, */
    uint64_t loaded_ns; /* and for how long that counts: we sleep at once */
    uint64_t woke_ns;   /* when a sleep ended in which nothing came, */
    uint64_t wary_ns;   /* and for how long we do not sleep after that */
} ucp_idle_t;

#define UCP_DEVICE_BLOCKS     64
#define UCP_DEVICE_BLOCK_BITS 21 /* blocks of 2 MiB */

typedef struct {
    uintptr_t block;
    uint64_t  tsc;
} ucp_device_block_t;

typedef struct {
    uintptr_t base;
    size_t    length; /* 0: none */
} ucp_device_range_t;

/* Whose pieces of a message lie in a window, see device.h. */
typedef struct {
    const void   *id;     /* a request, which holds UCP_REQUEST_HOLDS_WINDOW, or the peer that puts
                           * or gets; NULL: nobody's */
    ucs_status_t *result; /* write: takes the first error of a copy */
    uint64_t      mem_id; /* write: of registered memory, to be looked up once more; 0: ours */
} ucp_device_user_t;

/* Bytes of one message in device memory, for the processor. */
typedef struct {
    uct_mem_t        *mem;     /* UCP_DEVICE_WINDOW bytes; NULL until needed */
    ucp_device_user_t user;
    char             *address; /* on the device */
    size_t            length;
} ucp_device_window_t;

/* What the worker knows of device memory, see device.h. */
typedef struct {
    uct_md_t            *md;         /* of the transport that knows it; NULL: there is none */
    uct_iface_t         *iface;
    int                  is_started; /* the application uses the driver; read without the lock */
    int                  is_warned;
    int                  is_stuck;   /* a copy has not ended though its interface is closed */
    int                  is_shared;  /* a peer has memory on a device that has memory of ours */
    unsigned             num_copies; /* of requests, under way */
    unsigned             num_asked;  /* receives whose sender was asked to copy */
    uint64_t             asked_ns;   /* coarse: when it did not, last; read without the lock */
    uint64_t             trust;      /* ticks for which a block stays the host's */
    ucp_device_range_t   data;       /* the program's own, static */
    ucp_device_range_t   first_stack; /* of the process's first thread */
    ucp_device_block_t   hosts[UCP_DEVICE_BLOCKS];
    const void          *had;        /* address that ucp_device_has found there; NULL: none, */
    uint64_t             had_tsc;    /* when, */
    uct_mem_info_t       had_info;   /* and what it is, for the next query of the same call */
    ucp_device_window_t  read_window, write_window;
    struct ucp_device_pool *pools;   /* of memory to stage in, one a device */
} ucp_device_t;

/* Looks of ucp_worker_arm before it lets its caller sleep; see wakeup.c. */
typedef struct {
    uint64_t armed_ns; /* when it was called last */
    uint16_t turns;    /* calls that will look; 0: they do not */
    uint16_t num_soon; /* events in a row that came soon, while they do not, */
    uint16_t patience; /* and how many of those it takes to begin again */
} ucp_wakeup_look_t;

/* Peers that are kept for a while, by `retired`; the first to come is the first to go. */
typedef struct ucp_peers_kept {
    ucs_list_link_t list;
    unsigned        num;
} ucp_peers_kept_t;

typedef struct ucp_worker {
    /* hot: progress and small messages */
    _Atomic unsigned gate; /* UCP_GATE_xx: 0: progress may run straight through; looked at without
                                            * the lock, which it tells of */
    unsigned           num_active;
    unsigned           deferred;           /* UCP_DEFERRED_xx */
    int                is_armed;           /* ucp_worker_arm, and nothing has happened since, */
    int                is_waiting;         /* or progress has found nothing since */
    uintptr_t          host_base;          /* what lies here is memory of the host for certain, */
    size_t             host_length;        /* see device.h */
    ucp_idle_t         idle;
    ucp_active_t       active[UCP_TL_MAX + 1]; /* interfaces to progress */
    ucp_tag_match_t    tag_match;
    size_t             unexp_bytes;        /* memory of unexpected messages that came whole */
    int                has_held;           /* peers were told to announce, see tag_budget.h */
    ucs_mpool_t        requests;
    ucs_list_link_t work; /* requests with copies or ends to be done from progress */
    ucs_list_link_t asked; /* receives whose sender was asked to move them, see ucp_rndv_watch; the
                              first to be looked at comes first */
    unsigned           num_looks; /* at these */
    size_t             num_reading; /* tagged receives whose announced messages have been found */
    ucs_list_link_t    coming;    /* receives that a transport fills (UCP_RECV_COMES) */
    ucp_lock_t         lock;
    struct ucp_am_handler *am_handlers; /* by id */
    unsigned           num_am_handlers;
    const void        *am_passing;        /* data that a handler is shown but may not keep, */
    size_t             am_passing_length; /* while it runs; else NULL */
    uint64_t           counters[UCP_COUNTERS];

    ucp_context_t     *context;
    ucs_mpool_t        controls;           /* queued control messages */
    ucs_mpool_t        data_pools[UCP_DATA_POOLS]; /* unexpected messages by size */
    ucs_ptr_map_t      ids;                /* requests that peers can name */

    ucp_worker_tl_t    tls[UCP_TL_MAX];    /* parallel to context->tls */
    uint8_t            uid[UCT_UID_LEN];
    const uint8_t     *sender;             /* whose message is being handled; NULL: unknown */
    ucs_thread_mode_t  thread_mode;
    uint64_t           client_id;
    char               name[UCP_ENTITY_NAME_MAX];

    ucs_hash_t         peers;              /* worker id -> ucp_peer_t */
    ucs_list_link_t    eps;                /* the user's endpoints */
    ucs_list_link_t    closed_eps;         /* memory of the last ones that were closed */
    unsigned           num_closed_eps;
    ucs_list_link_t    failed_eps;         /* error handlers to be called from progress */
    ucs_list_link_t    watches;            /* endpoints to be connected, see ucp_ep_run_watches */
    ucs_list_link_t    successors;         /* endpoints that wait, see provisional.h */
    ucs_list_link_t    retired;            /* peers to be freed from progress */
    uint32_t           num_sessions;       /* of peers, so far */
    uint64_t           send_sn;            /* sends that were tracked so far */
    ucs_list_link_t    late;               /* sends that end with the copy of a device or network */
    ucs_list_link_t    flushes;            /* flush and close requests in flight */
    ucs_status_t       rma_status;         /* for the next flush, see ucp_flush_rma_failed */
    _Atomic uint64_t   fence_sn;           /* puts, gets, atomics before it come first */
    size_t             num_sends;          /* tracked sends in flight */
    size_t             num_handed;         /* of these, that wait for their receivers only */
    size_t             num_controls;       /* of all peers */
    size_t             num_answers;        /* of these, to puts, gets and atomics of peers */
    ucs_list_link_t    kept;               /* ucp_kept_t that are in no stream */
    ucs_list_link_t    am_turns;           /* messages that are fetched, and those behind them */
    ucs_list_link_t    stream_ready;       /* endpoints with unread stream data */
    size_t             am_alignment;       /* of the data that handlers get */
    size_t             am_header_max;      /* bytes of the user's header */
    ucp_peers_kept_t   answerable;         /* dead ones that the user may still answer to */
    ucp_peers_kept_t   counted;            /* strangers, for the number of the next endpoint */
    ucp_proto_config_t proto[UCP_PROTO_CONFIGS];
    unsigned           num_proto;

    ucp_device_t       device;
    int                is_ending;          /* it is being destroyed */
    int                is_inherited;       /* by a forked child: nothing comes here any more */

    /* wakeup */
    int                epoll_fd;           /* -1 until asked for */
    int                event_fd;           /* ucp_worker_signal writes it, and ucp_wakeup_hold: */
    int                is_held;            /* 1: it has */
    ucs_atomic_u32_t   num_sleepers;       /* threads in ucp_worker_wait */
    ucp_wakeup_look_t  look;               /* before it is armed */
    pid_t              pid;                /* whose they are: not a forked child's */
    int                user_event_fd;      /* UCP_WORKER_PARAM_FIELD_EVENT_FD, or -1 */
    void              *user_data;          /* of the events of user_event_fd */

    ucp_sockets_t     *sockets;            /* connections by socket addresses; NULL: none yet */
    ucp_listener_h     door;               /* one of them, see wireup/door.h; NULL: none yet */
    ucs_fork_watch_t   fork;
} ucp_worker_t;

/* Its address names the thread; found without a call. */
extern __thread char ucp_thread_mark __attribute__((tls_model("initial-exec")));

/* Waits until no other thread has the lock, and takes it. */
void ucp_lock_wait(ucp_lock_t *lock);

/* Takes it where it is free. */
UCS_INLINE int ucp_lock_try(ucp_lock_t *lock)
{
    const void *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);

    return (owner == NULL) &&
           atomic_compare_exchange_strong_explicit(&lock->owner, &owner, &ucp_thread_mark,
                                                   memory_order_acquire, /* A8 */
                                                   memory_order_relaxed);
}

UCS_INLINE void ucp_lock_acquire(ucp_lock_t *lock)
{
    const void *self = &ucp_thread_mark;

    /* Only this thread can have stored its own address, so a relaxed load tells. */
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == self) {
        ++lock->depth;
        return;
    }
    if (ucs_sys_is_single_threaded()) {
        atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
    } else if (ucs_unlikely(!ucp_lock_try(lock))) {
        ucp_lock_wait(lock);
    }
    lock->depth = 1;
}

UCS_INLINE void ucp_lock_release(ucp_lock_t *lock)
{
    if (--lock->depth == 0) {
        atomic_store_explicit(&lock->owner, NULL, memory_order_release); /* R8 */
    }
}

/* Until it is released, progress does nothing, as in a callback that progress itself has called.
 * The worker's lock is held. Returns whether that was so already, for the release. */
int ucp_worker_hold_progress(ucp_worker_t *worker);
void ucp_worker_release_progress(ucp_worker_t *worker, int was_held);

UCS_INLINE void ucp_worker_lock(ucp_worker_t *worker)
{
    if (ucs_unlikely(worker->lock.enabled)) {
        ucp_lock_acquire(&worker->lock);
    }
}

UCS_INLINE void ucp_worker_unlock(ucp_worker_t *worker)
{
    if (ucs_unlikely(worker->lock.enabled)) {
        ucp_lock_release(&worker->lock);
    }
}

/* A request of the pool, or the user's of param. The head's flags, held and callback are set from
 * param; NULL without memory. */
UCS_INLINE ucp_request_t *ucp_request_get(ucp_worker_t *worker, const ucp_request_param_t *param,
                                          ucp_request_kind_t kind)
{
    uint32_t mask  = param->op_attr_mask;
    uint32_t flags = 0;
    ucp_request_t *req;

    if (ucs_unlikely(mask & UCP_OP_ATTR_FIELD_REQUEST)) {
        req   = ucp_request_of(param->request);
        flags = UCP_REQUEST_EXTERNAL;
    } else {
        req = ucs_mpool_get(&worker->requests);
        if (ucs_unlikely(req == NULL)) {
            return NULL;
        }
    }

    if ((mask & UCP_OP_ATTR_FIELD_CALLBACK) && (param->cb.send != NULL)) {
        flags         |= UCP_REQUEST_CALLBACK;
        req->cb.send   = param->cb.send;
        req->user_data = (mask & UCP_OP_ATTR_FIELD_USER_DATA) ? param->user_data : NULL;
    }
    atomic_store_explicit(&req->flags, flags, memory_order_relaxed);
    req->status = UCS_INPROGRESS;
    req->kind   = kind;
    req->held   = 0;
    req->worker = worker;
    UCS_PROBE2(request_start, req, (long)kind);
    return req;
}

/* The name by which peers know this worker: the first 8 bytes of its identity. */
UCS_INLINE uint64_t ucp_uid_id(const uint8_t uid[UCT_UID_LEN])
{
    uint64_t id;

    __builtin_memcpy(&id, uid, sizeof(id));
    return id;
}

/* Has the application not started the driver? To start it, and then a device, takes 200 ms where
 * measured: not since the last tick of the kernel's clock. No lock. */
UCS_INLINE int ucp_device_is_idle(const ucp_device_t *device)
{
    return !__atomic_load_n(&device->is_started, __ATOMIC_RELAXED) &&
           (__atomic_load_n(&device->asked_ns, __ATOMIC_RELAXED) == ucs_sys_clock_coarse_ns());
}

/* The same as ucp_worker_is_host outside the heap. */
int ucp_device_is_host(const ucp_worker_t *worker, uintptr_t address);

/* True if the address is in memory of the host, as far as the driver need not tell; no lock. */
UCS_INLINE int ucp_worker_is_host(const ucp_worker_t *worker, const void *address)
{
    return ((uintptr_t)address - worker->host_base <
            __atomic_load_n(&worker->host_length, __ATOMIC_RELAXED)) ||
           ucp_device_is_host(worker, (uintptr_t)address);
}

UCS_INLINE size_t ucp_worker_num_posted(const ucp_worker_t *worker)
{
    return worker->tag_match.num_selective + worker->tag_match.num_wild;
}

/* How many tagged messages does it wait for? One more where it moves something. */
UCS_INLINE size_t ucp_worker_num_receiving(const ucp_worker_t *worker)
{
    return ucp_worker_num_posted(worker) + !ucs_list_is_empty(&worker->work);
}

UCS_INLINE void ucp_worker_count(ucp_worker_t *worker, ucp_counter_t counter)
{
    ucs_counter_add(&worker->counters[counter], 1);
    UCS_PROBE2(counted, worker, (long)counter);
}

/* Lets progress visit an interface from now on. */
void ucp_worker_activate(ucp_worker_t *worker, uct_iface_t *iface);

/* Adds to, takes from what progress visits: a function, and what it is given. */
void ucp_worker_add_active(ucp_worker_t *worker, unsigned (*progress)(uct_iface_t *iface),
                           uct_iface_t *iface);
void ucp_worker_del_active(ucp_worker_t *worker, const uct_iface_t *iface);

/* Opens the interface of transport i; where that is not possible its reason says why. */
void ucp_worker_open_tl(ucp_worker_t *worker, unsigned i);

/* What an address tells of. */
enum {
    UCP_ADDRESS_NEAR = 1, /* all interfaces but networks */
    UCP_ADDRESS_NET  = 2, /* the networks that are open, */
    UCP_ADDRESS_DOOR = 4  /* or where none is, the door */
};

/* The worker's address by what is asked for and is there; freed by ucp_worker_release_address. */
ucs_status_t ucp_worker_pack_address(ucp_worker_t *worker, unsigned what,
                                     ucp_address_t **address_p, size_t *length_p);

/* Memory for a copy of `size` bytes of an unexpected message; NULL without memory. */
void *ucp_worker_data_get(ucp_worker_t *worker, size_t size);
void ucp_worker_data_put(void *data);

#endif
