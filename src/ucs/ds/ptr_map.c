/* Halyard: ids for pointers: giving out and taking back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/ptr_map.h>

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#define UCS_PTR_MAP_NO_INDEX    UINT32_MAX
#define UCS_PTR_MAP_ENTRIES_MIN 16
#define UCS_PTR_MAP_ENTRIES_MAX (1u << 31)

static uint64_t ucs_ptr_map_id(uint32_t generation, uint32_t index)
{
    return ((uint64_t)generation << 32) | index;
}

void ucs_ptr_map_init(ucs_ptr_map_t *map)
{
    map->entries     = NULL;
    map->num_entries = 0;
    map->free_head   = UCS_PTR_MAP_NO_INDEX;
    map->count       = 0;
    map->is_hidden   = 0;
}

void ucs_ptr_map_hide(ucs_ptr_map_t *map)
{
    map->is_hidden = 1;
}

void ucs_ptr_map_cleanup(ucs_ptr_map_t *map)
{
    ucs_sys_free(map->entries);
    ucs_ptr_map_init(map);
}

/* Double the table and put the new entries on the free list, lowest index first. */
static ucs_status_t ucs_ptr_map_grow(ucs_ptr_map_t *map)
{
    uint32_t num_entries = ucs_max(map->num_entries * 2, (uint32_t)UCS_PTR_MAP_ENTRIES_MIN);
    ucs_ptr_map_entry_t *entries;
    uint32_t first, i;

    if (map->num_entries == UCS_PTR_MAP_ENTRIES_MAX) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    entries = (ucs_ptr_map_entry_t *)ucs_sys_realloc(map->entries,
                                                     num_entries * sizeof(*entries));
    if (entries == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = map->num_entries; i < num_entries; ++i) {
        /* Not 0, so that id 0 never exists; half of them, at least, are to come. */
        first          = map->is_hidden ? (uint32_t)(ucs_sys_random64() >> 33) | 1 : 1;
        entries[i].id  = ucs_ptr_map_id(first, (i + 1 < num_entries) ? i + 1 : map->free_head);
        entries[i].ptr = NULL;
    }
    map->free_head   = map->num_entries;
    map->entries     = entries;
    map->num_entries = num_entries;
    return UCS_OK;
}

ucs_status_t ucs_ptr_map_put(ucs_ptr_map_t *map, void *ptr, uint64_t *id_p)
{
    ucs_ptr_map_entry_t *entry;
    ucs_status_t status;
    uint32_t index;

    ucs_assert(ptr != NULL);

    if (map->free_head == UCS_PTR_MAP_NO_INDEX) {
        status = ucs_ptr_map_grow(map);
        if (status != UCS_OK) {
            return status;
        }
    }

    index          = map->free_head;
    entry          = &map->entries[index];
    map->free_head = (uint32_t)entry->id;
    entry->id      = ucs_ptr_map_id((uint32_t)(entry->id >> 32), index);
    entry->ptr     = ptr;
    ++map->count;
    *id_p = entry->id;
    return UCS_OK;
}

void *ucs_ptr_map_del(ucs_ptr_map_t *map, uint64_t id)
{
    void *ptr           = ucs_ptr_map_get(map, id);
    uint32_t generation = (uint32_t)(id >> 32);
    ucs_ptr_map_entry_t *entry;
    uint32_t step;

    if (ptr == NULL) {
        return NULL;
    }
    step       = map->is_hidden ? (uint32_t)(ucs_sys_random64() >> 48) + 1 : 1;
    generation = (generation > UINT32_MAX - step) ? 0 : generation + step;

    entry      = &map->entries[(uint32_t)id];
    entry->ptr = NULL;
    entry->id  = ucs_ptr_map_id(generation, map->free_head);
    if (generation != 0) {
        map->free_head = (uint32_t)id;
    } /* else all its generations were used: it stays off the free list */
    --map->count;
    return ptr;
}

void *ucs_ptr_map_next(const ucs_ptr_map_t *map, uint32_t *pos, uint64_t *id_p)
{
    const ucs_ptr_map_entry_t *entry;

    while (*pos < map->num_entries) {
        entry = &map->entries[(*pos)++];
        if (entry->ptr != NULL) {
            *id_p = entry->id;
            return entry->ptr;
        }
    }
    return NULL;
}
