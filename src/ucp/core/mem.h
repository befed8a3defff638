/* Halyard: memory registrations: what peers may reach in this process.
 *
 * Memory that the library allocates comes from a transport whose peers can map it; memory of the
 * user is registered with every transport that asks for that. A registration is known to peers by
 * an id in the context's table, which changes with each use: what a peer asks for by message is
 * looked up there, and touched under the table's lock only, so that unmapping in another thread
 * waits for it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_MEM_H
#define UCP_CORE_MEM_H

#include <ucp/core/context.h>

/* What peers may do; in packed keys inverted, as what they may not. */
#define UCP_MEM_READ  1u
#define UCP_MEM_WRITE 2u

typedef struct ucp_mem {
    ucp_context_t *context;
    void          *address;          /* as the user knows it */
    size_t         length;           /* bytes */
    ucs_memory_type_t type;          /* HOST: this processor may touch it */
    uint64_t       id;               /* in context->mems */
    unsigned       access;           /* UCP_MEM_xx */
    _Atomic int    is_packed;        /* a key was made: peers may ask for it */
    uct_mem_t     *tls[UCP_TL_MAX];  /* parallel to context->tls; NULL: that one needs nothing */
} ucp_mem_t;

void ucp_mem_table_init(ucp_context_t *context);

/* Ends all registrations that the user has left. */
void ucp_mem_table_cleanup(ucp_context_t *context);

/* The registration under `id` if it has a key, covers all of address..+length and peers may access
 * it so; then the table is held, for a short access, until ucp_mem_drop. Else NULL. Any values:
 * they come from peers. */
const ucp_mem_t *ucp_mem_hold(ucp_context_t *context, uint64_t id, uint64_t address, size_t length,
                              unsigned access);
void ucp_mem_drop(ucp_context_t *context);

/* Memories of the host that this process shares with peers, by keys handed out or by mapping: what
 * is stored there is no event. Any thread. */
void ucp_mem_count_shared(int change);
int ucp_mem_num_shared(void);

/* True if length bytes at `address` lie inside the registration. */
UCS_INLINE int ucp_mem_covers(const ucp_mem_t *mem, uint64_t address, size_t length)
{
    uint64_t offset = address - (uintptr_t)mem->address;

    return (offset <= mem->length) && (length <= mem->length - offset);
}

#endif
