/* Halyard: ids for pointers, as they travel on the wire.
 *
 * An id is an index into a table (low 32 bits) and the generation of that table entry (high 32
 * bits). An entry's generation changes with each use, so an id that is stale or made up finds
 * nothing. No id is ever given out twice: an entry whose generations are used up is retired. 0 is
 * no id. Ids can be guessed, unless ucs_ptr_map_hide was called; who takes one from a peer checks
 * as well that what it finds belongs to that peer. Not thread-safe.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_PTR_MAP_H
#define UCS_DS_PTR_MAP_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

typedef struct {
    uint64_t id; /* in use: the id; free: generation to come, and index of the next free entry */
    void *ptr;   /* NULL: free */
} ucs_ptr_map_entry_t;

typedef struct {
    ucs_ptr_map_entry_t *entries;
    uint32_t num_entries;
    uint32_t free_head; /* index of the first free entry, or UINT32_MAX */
    size_t count;       /* ids in use */
    int is_hidden;
} ucs_ptr_map_t;

/* Make an empty map; allocates nothing and cannot fail. */
void ucs_ptr_map_init(ucs_ptr_map_t *map);

/* Of an empty map: its entries begin with random generations, and go on by random steps. */
void ucs_ptr_map_hide(ucs_ptr_map_t *map);

/* Free the memory. The pointers are the caller's; the map must not be used again. */
void ucs_ptr_map_cleanup(ucs_ptr_map_t *map);

/* Give 'ptr', which must not be NULL, an id, never 0. Constant time but for growth.
 * UCS_ERR_NO_MEMORY, UCS_ERR_EXCEEDS_LIMIT (2^31 ids in use): nothing changed. */
ucs_status_t ucs_ptr_map_put(ucs_ptr_map_t *map, void *ptr, uint64_t *id_p);

/* Take back an id and return its pointer; NULL, and no effect, for an id that is not in use. */
void *ucs_ptr_map_del(ucs_ptr_map_t *map, uint64_t id);

/* One step of a walk over all ids: *pos is 0 at first. Returns the next pointer, or NULL at the
 * end. The entry just returned may be deleted during the walk; *id_p is its id. */
void *ucs_ptr_map_next(const ucs_ptr_map_t *map, uint32_t *pos, uint64_t *id_p);

/* The pointer of an id; NULL for every value that is not an id in use. */
UCS_INLINE void *ucs_ptr_map_get(const ucs_ptr_map_t *map, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    const ucs_ptr_map_entry_t *entry;

    if (ucs_unlikely(index >= map->num_entries)) {
        return NULL;
    }

    /* The pointer of a free entry is NULL, whatever its id field happens to equal. */
    entry = &map->entries[index];
    return ucs_likely(entry->id == id) ? entry->ptr : NULL;
}

END_C_DECLS

#endif
