/* Halyard: remote keys: the right to reach a registration of a peer, and how it is reached.
 *
 * A packed key names its length, so that it may stand in the middle of anything:
 *
 *   bytes 0 version, 1 total length, 2 kind of memory (0: of the host), 3 zero, 4 id of the
 *   registration, 12 its address, 20 its length; then for each transport that has a key of its own:
 *   wire id (2 bytes), length, bytes
 *
 * All numbers are little-endian, at no alignment. Where the memory can be mapped, the first use
 * does it: then operations are loads, stores and atomic instructions, which need no lock. `mapped`
 * is 0 until then, and stays 0 for operations that are not among the context's features.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_RKEY_H
#define UCP_CORE_RKEY_H

#include <ucp/core/ep.h>

#define UCP_RKEY_MAX   255 /* bytes of a packed key */
#define UCP_RKEY_ENTRY 3   /* of them the head of an entry */

typedef enum {
    UCP_RKEY_RMA,
    UCP_RKEY_AMO32,
    UCP_RKEY_AMO64,
    UCP_RKEY_CLASSES
} ucp_rkey_class_t;

/* The feature of a context that allows each class. */
extern const uint64_t ucp_rkey_features[UCP_RKEY_CLASSES];

typedef struct ucp_rkey {
    uint64_t       base;     /* of the memory in its owner */
    char          *ptr;      /* the same byte in this process, where mapped */
    _Atomic size_t mapped[UCP_RKEY_CLASSES]; /* bytes that the operations can reach directly */
    size_t         length;
    uint64_t       mem_id;   /* of the registration in its owner */
    uint64_t       owner;    /* worker id of the peer */
    ucp_worker_t  *worker;
    uct_rkey_t    *uct;      /* what maps it; NULL: nothing does */
    uct_rkey_t    *device;   /* by which the DEVICE lane reaches it; NULL: it does not */
    uint8_t       *net;      /* entries of networks of the packed key (copies); NULL: none */
    size_t         net_length; /* bytes of them */
    uint8_t        is_device; /* not to be touched by processors */
    uint8_t        forbidden; /* UCP_MEM_xx */
    uint8_t        is_plain;  /* a peer's memory that is mapped: see ucp_mem_num_shared */
} ucp_rkey_t;

/* True if length bytes at `address` lie inside the key's range. */
UCS_INLINE int ucp_rkey_covers(const ucp_rkey_t *rkey, uint64_t address, size_t length)
{
    uint64_t offset = address - rkey->base;

    return (offset <= rkey->length) && (length <= rkey->length - offset);
}

/* Where length bytes at remote address `address` are in this process; NULL: not inside the key,
 * not mapped, or not allowed. Without lock. */
UCS_INLINE void *ucp_rkey_local(const ucp_rkey_t *rkey, ucp_rkey_class_t kind, uint64_t address,
                                size_t length)
{
    /* A1: pairs with R1 in ucp_rkey_map: who sees the length sees ptr. */
    size_t mapped   = atomic_load_explicit(&rkey->mapped[kind], memory_order_acquire);
    uint64_t offset = address - rkey->base;

    return (ucs_likely(offset < mapped) && ucs_likely(length <= mapped - offset)) ?
           rkey->ptr + offset : NULL;
}

/* The key that transport i of the worker has in an entry of a network, or NULL. */
const void *ucp_rkey_net(const ucp_rkey_t *rkey, unsigned i, size_t *length_p);

/* Maps the memory if that is possible now. With the worker's lock. */
void ucp_rkey_map(ucp_rkey_t *rkey);

#endif
