/* Halyard: context: what all workers of one user share: configuration and memory domains.
 *
 * Created by ucp_init, which does no work that a job might not need: memory domains are opened,
 * but no transport resource is taken before a worker needs it. Read-only after creation, so no
 * lock is needed, but for the table of registered memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_CONTEXT_H
#define UCP_CORE_CONTEXT_H

#include <ucp/api/ucp.h>
#include <ucs/config/parser.h>
#include <ucs/ds/ptr_map.h>
#include <ucs/sys/fork.h>
#include <ucs/sys/sys.h>
#include <uct/api/uct_tl.h>
#include <pthread.h>

#define UCP_TL_MAX 16 /* transports of one context */

/* Bytes from which messages are announced, UCS_CONFIG_AUTO_SIZE for those that cost says. */
typedef struct {
    size_t intra; /* to peers that shared memory reaches */
    size_t inter; /* over a network */
} ucp_thresholds_t;

/* Options; src/ucp/core/config.c has their table. */
typedef struct {
    ucs_config_allow_list_t tls;
    ucp_thresholds_t        rndv_thresh;
    size_t                  zcopy_thresh;     /* bytes, or UCS_CONFIG_AUTO_SIZE */
    unsigned                rndv_scheme;      /* ucp_rndv_scheme_t */
    int                     proto_info;
    unsigned                tm_buckets;
    size_t                  unexp_budget;     /* bytes a worker, see tag_budget.h */
    uint64_t                connect_timeout_ns;
    int                     reuse_addr;
    int                     device_staging;
    unsigned                idle;             /* ucp_idle_mode_t */
    int                     net_address;      /* UCS_NO, _YES, _AUTO */
    unsigned                max_rails;        /* devices that carry one long message */
} ucp_options_t;

typedef enum {
    UCP_IDLE_AUTO,
    UCP_IDLE_POLL,
    UCP_IDLE_YIELD,
    UCP_IDLE_SLEEP
} ucp_idle_mode_t;

typedef enum {
    UCP_RNDV_SCHEME_AUTO,
    UCP_RNDV_SCHEME_GET,
    UCP_RNDV_SCHEME_PUT,
    UCP_RNDV_SCHEME_BOTH,
    UCP_RNDV_SCHEME_AM
} ucp_rndv_scheme_t;

/* ucp_config_t: the options, and changes for tables of other layers, kept as text until ucp_init.
 */
struct ucp_config {
    ucp_options_t options;
    char         *env_prefix;
    const uct_tl_t *const *tls;          /* those of uct_tl_list, */
    void         *tl_config[UCP_TL_MAX]; /* a block of each; NULL: it has no options */
    size_t        num_tls;
};

extern const ucs_config_row_t ucp_options_rows[];

/* One transport that the configuration lets in and that opened. */
typedef struct {
    const uct_tl_t *tl;
    uct_md_t       *md;
    char            name[UCT_TL_NAME_MAX + 12]; /* of the transport; of rail 1 "ofi#1" */
    uint16_t        wire_id; /* names it in addresses */
    unsigned        rail;    /* 0, or n: of the n-th further interface of a network... */
    unsigned        lead;    /* ...whose first one this is, an index like its own */
} ucp_tl_resource_t;

typedef struct ucp_context {
    ucp_options_t     options;
    uint64_t          features;
    size_t            user_request_size;
    ucp_request_init_callback_t    request_init;
    ucp_request_cleanup_callback_t request_cleanup;
    int               is_shared;          /* by workers of different threads */
    char              name[UCP_ENTITY_NAME_MAX];
    ucp_tl_resource_t tls[UCP_TL_MAX];
    unsigned          num_tls;
    pthread_rwlock_t  mem_lock;           /* of mems; see mem.h */
    ucs_fork_watch_t  fork;               /* a child has it unlocked */
    ucs_ptr_map_t     mems;               /* ucp_mem_t, by the ids that peers know */
    uint64_t          node_id;            /* of the running kernel; equal on one node */
    char tl_reason[UCP_TL_MAX][UCT_REASON_MAX]; /* why a transport of uct_tl_list is not in use */
} ucp_context_t;

/* What a transport that knows device memory says of an address, as its mem_query. Any thread.
 * UCS_ERR_NO_DEVICE also where there is no such transport. */
ucs_status_t ucp_context_mem_query(const ucp_context_t *context, const void *address,
                                   uct_mem_info_t *info_p);

/* Copies a name of the user, cut to fit; `dflt` with a number where there is none. */
void ucp_entity_name(char name[UCP_ENTITY_NAME_MAX], const char *user_name, const void *object);

#endif
