/* Halyard: pool of equal objects: growth and clean-up, off the hot path.
 *
 * A chunk is [header][padding][8 bytes][object][padding][8 bytes][object]... Objects of a chunk are
 * made in order of address, a page's worth at a time, and put on the free list in that order.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/mpool.h>

#include <ucs/debug/assert.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCS_MPOOL_MAGIC 0x6c6f6f706d736375ull

/* Bytes of objects made at one time: what shares a page is touched together. */
#define UCS_MPOOL_BATCH_SIZE 4096

/* No object or chunk may come near the end of the address space. */
#define UCS_MPOOL_SIZE_MAX (SIZE_MAX / 4)

struct ucs_mpool_chunk {
    ucs_mpool_chunk_t *next;
    char *first;    /* first object */
    unsigned made;  /* objects made, the rest is untouched memory */
    unsigned total; /* objects that fit */
};

ucs_status_t ucs_mpool_init(ucs_mpool_t *mp, const ucs_mpool_params_t *params)
{
    size_t alignment = ucs_max(params->alignment, sizeof(ucs_mpool_elem_t));

    if ((params->elem_size == 0) || (params->elem_size > UCS_MPOOL_SIZE_MAX) ||
        (params->elems_per_chunk == 0) || ((params->alignment & (params->alignment - 1)) != 0) ||
        (alignment > UCS_MPOOL_SIZE_MAX)) {
        ucs_error("mpool %s: invalid layout: size %zu alignment %zu, %u per chunk", params->name,
                  params->elem_size, params->alignment, params->elems_per_chunk);
        return UCS_ERR_INVALID_PARAM;
    }

    mp->free_list        = NULL;
    mp->num_elems        = 0;
    mp->chunks           = NULL;
    mp->stride           = ucs_align_up(params->elem_size + sizeof(ucs_mpool_elem_t), alignment);
    mp->magic            = UCS_MPOOL_MAGIC;
    mp->warned           = 0;
    mp->params           = *params;
    mp->params.alignment = alignment;
    return UCS_OK;
}

static void *ucs_mpool_chunk_obj(const ucs_mpool_t *mp, const ucs_mpool_chunk_t *chunk,
                                 unsigned index)
{
    return chunk->first + (size_t)index * mp->stride;
}

void ucs_mpool_cleanup(ucs_mpool_t *mp, int check_leaks)
{
    ucs_mpool_chunk_t *chunk, *next;
    unsigned i, used;
    void *obj;

    if (check_leaks && (mp->magic == UCS_MPOOL_MAGIC)) {
        used = ucs_mpool_num_used(mp);
        if (used > 0) {
            ucs_warn("mpool %s: %u of %u objects were not released", mp->params.name, used,
                     mp->num_elems);
        }
    }

    for (chunk = mp->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        for (i = 0; i < chunk->made; ++i) {
            obj = ucs_mpool_chunk_obj(mp, chunk, i);
            ucs_mpool_unpoison(mp, obj);
            if (mp->params.obj_cleanup != NULL) {
                mp->params.obj_cleanup(mp, obj);
            }
        }
        ucs_sys_free(chunk);
    }

    mp->free_list = NULL;
    mp->chunks    = NULL;
    mp->num_elems = 0;
    mp->magic     = 0;
}

unsigned ucs_mpool_num_used(const ucs_mpool_t *mp)
{
    unsigned num_free = 0;
    const ucs_mpool_elem_t *elem;

    for (elem = mp->free_list; elem != NULL; elem = elem->next) {
        ++num_free;
    }

    ucs_assert(num_free <= mp->num_elems);
    return mp->num_elems - num_free;
}

/* Add a chunk. NULL: there is no memory, which is reported once a pool since callers try again. */
static ucs_mpool_chunk_t *ucs_mpool_chunk_add(ucs_mpool_t *mp)
{
    const ucs_mpool_params_t *params = &mp->params;
    const unsigned total             = params->elems_per_chunk;
    ucs_mpool_chunk_t *chunk         = NULL;
    size_t first_offset, size;

    /* The chunk starts aligned; behind its header is that of the first object. */
    first_offset = ucs_align_up(sizeof(*chunk) + sizeof(ucs_mpool_elem_t), params->alignment);
    if (!__builtin_mul_overflow((size_t)total, mp->stride, &size) &&
        !__builtin_add_overflow(size, first_offset, &size)) {
        chunk = (ucs_mpool_chunk_t *)ucs_sys_memalign(params->alignment, size);
    }
    if (chunk == NULL) {
        if (!mp->warned) {
            ucs_warn("mpool %s: no memory for %u more objects of %zu bytes, %u exist",
                     params->name, total, params->elem_size, mp->num_elems);
            mp->warned = 1;
        }
        return NULL;
    }

    chunk->first = (char *)chunk + first_offset;
    chunk->made  = 0;
    chunk->total = total;
    chunk->next  = mp->chunks;
    mp->chunks   = chunk;
    return chunk;
}

void *ucs_mpool_get_grow(ucs_mpool_t *mp)
{
    ucs_mpool_chunk_t *chunk = mp->chunks;
    ucs_mpool_elem_t **tail  = &mp->free_list;
    ucs_mpool_elem_t *elem;
    size_t count;
    void *obj;

    ucs_assert(mp->magic == UCS_MPOOL_MAGIC);
    ucs_assert(mp->free_list == NULL);

    if ((chunk == NULL) || (chunk->made == chunk->total)) {
        chunk = ucs_mpool_chunk_add(mp);
        if (chunk == NULL) {
            return NULL;
        }
    }

    count = ucs_max(UCS_MPOOL_BATCH_SIZE / mp->stride, (size_t)1);
    count = ucs_min(count, (size_t)(chunk->total - chunk->made));
    for (; count > 0; --count) {
        obj  = ucs_mpool_chunk_obj(mp, chunk, chunk->made);
        elem = (ucs_mpool_elem_t *)obj - 1;
        if (mp->params.obj_init != NULL) {
            mp->params.obj_init(mp, obj);
        }
        ++chunk->made;
        ++mp->num_elems;
        *tail = elem;
        tail  = &elem->next;
        *tail = NULL;
        ucs_mpool_poison(mp, obj);
    }

    return ucs_mpool_get(mp);
}

void ucs_mpool_check_used(const void *obj)
{
    const ucs_mpool_t *mp = ucs_mpool_of(obj);
    const ucs_mpool_chunk_t *chunk;
    size_t offset;

    /* A free object's header points to the next free object's header, or nowhere. */
    ucs_assert_always(mp != NULL);
    ucs_assert_always(mp->magic == UCS_MPOOL_MAGIC);

    for (chunk = mp->chunks; chunk != NULL; chunk = chunk->next) {
        offset = (size_t)((const char *)obj - chunk->first);
        if (((const char *)obj >= chunk->first) && (offset / mp->stride < chunk->made)) {
            ucs_assert_always(offset % mp->stride == 0);
            return;
        }
    }
    ucs_assert_always(!"object belongs to its pool");
}
