/* Halyard: received data in memory of the library, until the user takes it: data and descriptors of
 * active messages, pieces of streams.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_KEPT_H
#define UCP_OPS_KEPT_H

#include <ucp/core/worker.h>

typedef enum {
    UCP_KEPT_DATA, /* bytes that came whole */
    UCP_KEPT_PART, /* stream: bytes that were fetched */
    UCP_KEPT_RTS   /* an announcement: a ucp_wire_rts_t, and what its owner adds */
} ucp_kept_kind_t;

/* The head; the contents follow, and the user knows them by their address. */
typedef struct {
    ucs_list_link_t list;      /* the worker's, or a stream's */
    void           *block;     /* the memory that all this lies in */
    size_t          length;    /* bytes of contents */
    size_t          offset;    /* stream: bytes that were taken */
    uint32_t        session;   /* of the peer that announced a message, when it came */
    uint8_t         kind;      /* ucp_kept_kind_t */
    uint8_t         is_pooled; /* block is of the worker's pools */
    uint8_t         is_lent;   /* a handler that looks at it is on the stack */
    uint8_t         is_taken;  /* it was given back meanwhile */
} ucp_kept_t;

_Static_assert(sizeof(ucp_kept_t) % 16 == 0, "contents are aligned as the head");

UCS_INLINE void *ucp_kept_data(ucp_kept_t *kept)
{
    return kept + 1;
}

UCS_INLINE ucp_kept_t *ucp_kept_of(void *data)
{
    return (ucp_kept_t *)data - 1;
}

/* The memory that it takes, in bytes. */
UCS_INLINE size_t ucp_kept_size(const ucp_kept_t *kept)
{
    return kept->is_pooled ? ucs_mpool_obj_size(kept->block) : sizeof(*kept) + kept->length;
}

/* Memory for `length` bytes at a multiple of `alignment`, in the worker's list; NULL without. */
ucp_kept_t *ucp_kept_get(ucp_worker_t *worker, ucp_kept_kind_t kind, size_t length,
                         size_t alignment);

/* Takes it off its list and frees it. */
void ucp_kept_put(ucp_kept_t *kept);

#endif
