/* Halyard: pool of equal objects.
 *
 * Objects are cut from chunks that grow on demand and return to the system only at clean-up. An
 * 8-byte header in front of each object holds the next free object while it is free and its pool
 * while it is in use, so that put needs only the object. The free list is LIFO: the object that
 * comes next is the one whose cache lines are warmest. Memory of a chunk is first touched when its
 * objects are first needed, so a large chunk costs address space and not memory.
 *
 * Not thread-safe: a pool belongs to one worker or is protected by its owner's lock.
 * get blocks only where it has to ask the system for a chunk; put never blocks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_MPOOL_H
#define UCS_DS_MPOOL_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#if UCS_HAVE_ASAN
#include <sanitizer/asan_interface.h>
#endif
/* The annotations for valgrind cost some ten instructions each, so only builds with assertions
 * have them. */
#if ENABLE_ASSERT && HAVE_VALGRIND
#define UCS_MPOOL_VALGRIND 1
#include <valgrind/memcheck.h>
#endif

BEGIN_C_DECLS

typedef struct ucs_mpool ucs_mpool_t;
typedef struct ucs_mpool_chunk ucs_mpool_chunk_t;

/* The 8 bytes in front of every object. */
typedef union ucs_mpool_elem {
    union ucs_mpool_elem *next; /* object is free */
    ucs_mpool_t *mpool;         /* object is in use */
} ucs_mpool_elem_t;

enum {
    /* Free objects stay readable and keep their bytes: no poisoning for AddressSanitizer or
     * valgrind. For pools whose users may look at an object after it was released. */
    UCS_MPOOL_FLAG_NO_POISON = 1u << 0
};

/* Called once for an object, before it is handed out for the first time / before its chunk is
 * freed. What obj_init writes is there at the first get. Must not use the pool. */
typedef void (*ucs_mpool_obj_cb_t)(ucs_mpool_t *mp, void *obj);

typedef struct {
    const char *name;               /* for messages; must outlive the pool */
    size_t elem_size;               /* bytes in an object, not 0 */
    size_t alignment;               /* bytes, power of two; 0 means 8, and less than 8 is 8 */
    unsigned elems_per_chunk;       /* objects in one allocation, not 0 */
    unsigned flags;                 /* UCS_MPOOL_FLAG_xx */
    ucs_mpool_obj_cb_t obj_init;    /* or NULL */
    ucs_mpool_obj_cb_t obj_cleanup; /* or NULL */
    void *arg;                      /* for the callbacks, as mp->params.arg */
} ucs_mpool_params_t;

struct ucs_mpool {
    ucs_mpool_elem_t *free_list; /* first: the hot field */
    unsigned num_elems;          /* objects made so far, free ones included */
    ucs_mpool_chunk_t *chunks;   /* newest first; only the newest may have objects not yet made */
    size_t stride;               /* bytes from one object to the next */
    uint64_t magic;              /* tells a pool from other memory */
    int warned;                  /* lack of memory was reported */
    ucs_mpool_params_t params;
};

/* Prepare an empty pool; allocates nothing. On success the pool must be cleaned up; its address
 * must not change. UCS_ERR_INVALID_PARAM: a value against the rules above. */
ucs_status_t ucs_mpool_init(ucs_mpool_t *mp, const ucs_mpool_params_t *params);

/* Free all memory of the pool. Objects still in use vanish with it; with 'check_leaks' one warning
 * says how many there were. A pool that is all zero bytes may be cleaned up as well. */
void ucs_mpool_cleanup(ucs_mpool_t *mp, int check_leaks);

/* Objects in use now. Walks the free list: for tests and reports. */
unsigned ucs_mpool_num_used(const ucs_mpool_t *mp);

/* Bytes of memory of the objects made so far. */
UCS_INLINE size_t ucs_mpool_memory(const ucs_mpool_t *mp)
{
    return mp->num_elems * mp->stride;
}

/* The part of get that runs when the free list is empty: makes objects and returns one, or NULL. */
void *ucs_mpool_get_grow(ucs_mpool_t *mp);

/* Debug builds: stop unless 'obj' is an object in use. */
void ucs_mpool_check_used(const void *obj);

/* Tell the checkers that an object is not / is accessible. The header always is. */
UCS_INLINE void ucs_mpool_poison(ucs_mpool_t *mp UCS_UNUSED, void *obj UCS_UNUSED)
{
#if UCS_HAVE_ASAN
    if (!(mp->params.flags & UCS_MPOOL_FLAG_NO_POISON)) {
        ASAN_POISON_MEMORY_REGION(obj, mp->params.elem_size);
    }
#endif
#ifdef UCS_MPOOL_VALGRIND
    if (!(mp->params.flags & UCS_MPOOL_FLAG_NO_POISON)) {
        (void)VALGRIND_MAKE_MEM_NOACCESS(obj, mp->params.elem_size);
    }
#endif
}

UCS_INLINE void ucs_mpool_unpoison(ucs_mpool_t *mp UCS_UNUSED, void *obj UCS_UNUSED)
{
#if UCS_HAVE_ASAN
    ASAN_UNPOISON_MEMORY_REGION(obj, mp->params.elem_size);
#endif
#ifdef UCS_MPOOL_VALGRIND
    if (!(mp->params.flags & UCS_MPOOL_FLAG_NO_POISON)) {
        (void)VALGRIND_MAKE_MEM_DEFINED(obj, mp->params.elem_size);
    }
#endif
}

/* Bytes of memory that an object in use takes. */
UCS_INLINE size_t ucs_mpool_obj_size(const void *obj)
{
    return ((const ucs_mpool_elem_t *)obj - 1)->mpool->stride;
}

/* Take an object: its bytes are as the last user (or obj_init) left them. NULL without memory; the
 * caller treats that as "no resource now". */
UCS_INLINE void *ucs_mpool_get(ucs_mpool_t *mp)
{
    ucs_mpool_elem_t *elem = mp->free_list;

    if (ucs_unlikely(elem == NULL)) {
        return ucs_mpool_get_grow(mp);
    }

    mp->free_list = elem->next;
    elem->mpool   = mp;
    ucs_mpool_unpoison(mp, elem + 1);
    return elem + 1;
}

/* Is the object one of the pool's, and in use? */
UCS_INLINE int ucs_mpool_is_used(const ucs_mpool_t *mp, const void *obj)
{
    return ((const ucs_mpool_elem_t *)obj - 1)->mpool == mp;
}

/* The pool that an object in use belongs to. */
UCS_INLINE ucs_mpool_t *ucs_mpool_of(const void *obj)
{
    return ((const ucs_mpool_elem_t *)obj - 1)->mpool;
}

/* Give an object back to its pool. */
UCS_INLINE void ucs_mpool_put(void *obj)
{
    ucs_mpool_elem_t *elem = (ucs_mpool_elem_t *)obj - 1;
    ucs_mpool_t *mp;

#if ENABLE_ASSERT
    ucs_mpool_check_used(obj);
#endif
    mp            = elem->mpool;
    elem->next    = mp->free_list;
    mp->free_list = elem;
    ucs_mpool_poison(mp, obj);
}

END_C_DECLS

#endif
