/* Halyard: hooks: any transport wrapped into one that misbehaves, dawdles, or tells what it does.
 *
 *   fault:X  some operations find no resource; on request one fails, or the endpoint dies
 *   delay:X  messages and zero-copy operations happen some progress calls later, in order
 *   trace:X  one log line an operation (UCX_LOG_LEVEL=warn,hook=debug)
 *
 * A wrapper is the inner transport's own table with some operations changed, and its objects are
 * the inner transport's with what the hooks need behind them: so the inner operations work on them
 * as ever. "fault:delay:X" is one wrapper that does both: what is late has met its faults before.
 * All randomness comes from UCX_HOOK_SEED.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_HOOK_HOOK_H
#define UCT_HOOK_HOOK_H

#include <uct/api/uct_tl.h>

/* What a wrapper does; bits. */
enum {
    UCT_HOOK_FAULT = 1,
    UCT_HOOK_DELAY = 2,
    UCT_HOOK_TRACE = 4
};

/* Behind the transport's memory domain. */
typedef struct {
    uint64_t seed;
    double   no_resource;  /* probability, of each operation */
    uint64_t fail_op;      /* which operation of each endpoint fails; 0: none */
    unsigned fail_status;  /* index into the names of statuses */
    double   connect_fail; /* probability, of each connection */
    uint64_t death;        /* operations after which an endpoint dies; 0: never */
    unsigned delay;        /* progress calls */
} uct_hook_config_t;

typedef struct {
    uct_tl_t        super;
    const uct_tl_t  *inner;
    unsigned        kinds; /* UCT_HOOK_... */
    ucs_list_link_t list;  /* of all that were made */
} uct_hook_tl_t;

/* Stands between the transport and the user's handler of one active-message id. */
typedef struct {
    uct_iface_t      *iface;
    unsigned         id;
    uct_am_handler_t user;
} uct_hook_am_t;

/* Behind the transport's interface. */
typedef struct {
    uct_iface_t             *iface;
    unsigned                kinds;
    const uct_hook_config_t *config;
    uint64_t                random;
    uint64_t                now;     /* progress calls so far */
    ucs_list_link_t         delayed; /* operations and messages, in order of their time */
    uct_iface_params_t      user;    /* whose callbacks ours stand before */
    uct_hook_am_t           am[UCT_AM_ID_MAX];
} uct_hook_iface_t;

/* Behind the transport's endpoint. */
typedef struct {
    uint64_t num_ops;     /* so far */
    unsigned num_delayed; /* operations that wait for their time */
} uct_hook_ep_t;

/* The wrapper of that name ("fault:mm"), made on first use; NULL if the name has no such form, the
 * inner transport is unknown, or there is no memory. Any thread. */
const uct_tl_t *uct_hook_find(const char *name);

/* ---- among the files of this folder ---- */

UCS_INLINE const uct_hook_tl_t *uct_hook_tl(const uct_tl_t *tl)
{
    return ucs_container_of(tl, uct_hook_tl_t, super);
}

/* Bytes of a transport's object, before what is added. */
UCS_INLINE size_t uct_hook_offset(size_t inner_size)
{
    return ucs_align_up(inner_size, UCS_CACHE_LINE_SIZE);
}

UCS_INLINE uct_hook_config_t *uct_hook_config(uct_md_t *md)
{
    return (void *)((char *)md + uct_hook_offset(uct_hook_tl(md->tl)->inner->md_size));
}

UCS_INLINE uct_hook_iface_t *uct_hook_iface(uct_iface_t *iface)
{
    return (void *)((char *)iface + uct_hook_offset(uct_hook_tl(iface->tl)->inner->iface_size));
}

UCS_INLINE uct_hook_ep_t *uct_hook_ep(uct_ep_t *ep)
{
    return (void *)((char *)ep + uct_hook_offset(uct_hook_tl(ep->iface->tl)->inner->ep_size));
}

/* The transport's own operations of an endpoint that is live. */
UCS_INLINE const uct_ep_ops_t *uct_hook_inner_ops(const uct_ep_t *ep)
{
    return &uct_hook_tl(ep->iface->tl)->inner->ep.live;
}

/* True with the given probability, by the interface's own random numbers; never without faults. */
int uct_hook_chance(uct_hook_iface_t *iface, double probability);

/* What UCX_HOOK_FAIL_STATUS names, by its number. */
extern const ucs_status_t uct_hook_statuses[];

/* The table of wrapped operations (ops.c). */
extern const uct_ep_ops_t uct_hook_ep_ops;

/* Delays (delay.c). */
typedef enum {
    UCT_HOOK_PUT,
    UCT_HOOK_GET,
    UCT_HOOK_FLUSH,
    UCT_HOOK_AM,       /* a message that has arrived */
    UCT_HOOK_PEER_GONE
} uct_hook_delayed_kind_t;

typedef struct {
    ucs_list_link_t         list;
    uct_hook_delayed_kind_t kind;
    uint64_t                due;      /* when the interface's progress count is this */
    uct_ep_t                *ep;      /* of operations; NULL: the endpoint has been closed */
    uct_completion_t        *comp;
    uint64_t                remote_addr;
    uct_rkey_t              *rkey;
    unsigned                id;       /* of messages */
    int                     has_sender;
    uint8_t                 sender[UCT_UID_LEN];
    size_t                  length;   /* entries of an operation, bytes of a message */
    uct_iov_t               data[];   /* the entries; the message */
} uct_hook_delayed_t;

/* The transport's own put or get (ops.c). */
ucs_status_t uct_hook_inner_copy(uct_ep_t *ep, uct_hook_delayed_kind_t kind, const uct_iov_t *iov,
                                 unsigned n, uint64_t remote_addr, uct_rkey_t *rkey,
                                 uct_completion_t *comp);

/* A new entry with room for `size` bytes of data, not yet queued; NULL without memory. */
uct_hook_delayed_t *uct_hook_delayed_make(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind,
                                          size_t size);
/* Queues it: it happens `delay` progress calls from now. */
void uct_hook_delayed_add(uct_hook_iface_t *iface, uct_hook_delayed_t *delayed);
/* Gives the user a message, or the news of a peer's end; sender: NULL if not known. */
void uct_hook_deliver(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind, unsigned id,
                      const void *data, size_t length, const uint8_t *sender);
/* Lets happen what is due, or everything; returns the number of things done. */
unsigned uct_hook_delayed_progress(uct_hook_iface_t *iface, int all);
/* Operations of the endpoint, those of the completion or (NULL) all, since it goes: each ends as
 * cancelled when its time has come. */
void uct_hook_delayed_detach(uct_ep_t *ep, const uct_completion_t *comp);

#endif
