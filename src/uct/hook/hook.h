/* Halyard: hooks: any transport wrapped into one that misbehaves, dawdles, or tells what it does.
 *
 *   fault:X  some operations find no resource; on request one fails, or the endpoint dies
 *   delay:X  messages and zero-copy operations happen some progress calls later, in order
 *   trace:X  one log line an operation (UCX_LOG_LEVEL=warn,hook=debug)
 *
 * A wrapper's objects hold the inner transport's: its memory domain opens the inner one, and so on.
 * Memory and remote keys are the inner transport's own. What the inner transport lacks the wrapper
 * lacks. All randomness comes from UCX_HOOK_SEED.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_HOOK_HOOK_H
#define UCT_HOOK_HOOK_H

#include <uct/api/uct_tl.h>

typedef enum {
    UCT_HOOK_FAULT,
    UCT_HOOK_DELAY,
    UCT_HOOK_TRACE,
    UCT_HOOK_LAST
} uct_hook_kind_t;

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
    uct_hook_kind_t kind;
    ucs_list_link_t list; /* of all that were made */
} uct_hook_tl_t;

typedef struct {
    uct_md_t super;
    uct_md_t *inner;
} uct_hook_md_t;

/* Stands between the inner interface and the handler of one active-message id. */
typedef struct {
    uct_iface_t *iface;
    unsigned    id;
} uct_hook_am_t;

typedef struct {
    uct_iface_t             super;
    uct_iface_t             *inner;
    uct_hook_kind_t         kind;
    const uct_hook_config_t *config;
    uint64_t                random;
    uint64_t                now;          /* progress calls so far */
    ucs_list_link_t         delayed;      /* operations and messages, in order of their time */
    unsigned                num_delayed;
    ucs_list_link_t         connecting;   /* endpoints whose inner one is connecting */
    uct_hook_am_t           am[UCT_AM_ID_MAX];
} uct_hook_iface_t;

typedef struct {
    uct_ep_t        super;
    uct_ep_t        *inner;
    uint64_t        num_ops;     /* so far */
    unsigned        num_delayed; /* operations that wait for their time */
    ucs_list_link_t connecting;
} uct_hook_ep_t;

/* The wrapper of that name ("fault:mm"), made on first use; NULL if the name has no such form, the
 * inner transport is unknown, or there is no memory. Any thread. */
const uct_tl_t *uct_hook_find(const char *name);

/* ---- among the files of this folder ---- */

UCS_INLINE uct_hook_iface_t *uct_hook_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_hook_iface_t, super);
}

UCS_INLINE uct_hook_ep_t *uct_hook_ep(uct_ep_t *ep)
{
    return ucs_container_of(ep, uct_hook_ep_t, super);
}

/* True with the given probability, by the interface's own random numbers. */
int uct_hook_chance(uct_hook_iface_t *iface, double probability);

/* The status that UCX_HOOK_FAIL_STATUS names. */
ucs_status_t uct_hook_fail_status(const uct_hook_config_t *config);

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
    uct_hook_ep_t           *ep;      /* of operations; NULL: the endpoint has been closed */
    uct_completion_t        *comp;
    uint64_t                remote_addr;
    uct_rkey_t              *rkey;
    unsigned                id;       /* of messages */
    int                     has_sender;
    uint8_t                 sender[UCT_UID_LEN];
    size_t                  length;   /* entries of an operation, bytes of a message */
    uct_iov_t               data[];   /* the entries; the message */
} uct_hook_delayed_t;

/* A new entry with room for `size` bytes of data, not yet queued; NULL without memory. */
uct_hook_delayed_t *uct_hook_delayed_make(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind,
                                          size_t size);
/* Queues it: it happens `delay` progress calls from now. */
void uct_hook_delayed_add(uct_hook_iface_t *iface, uct_hook_delayed_t *delayed);
/* Lets happen what is due, or everything; returns the number of things done. */
unsigned uct_hook_delayed_progress(uct_hook_iface_t *iface, int all);
/* Operations of the endpoint, those of the completion or (NULL) all, since it goes: each ends as
 * cancelled when its time has come. */
void uct_hook_delayed_detach(uct_hook_ep_t *ep, const uct_completion_t *comp);

#endif
