/* Halyard: counters: named numbers of an object that people and tools may look at while it works.
 *
 * An object owns an array of uint64_t; one thread at a time adds to it with plain cost (a relaxed
 * load and store, no locked instruction); anyone may read it. Registering makes it visible to the
 * dump. Counters only ever rise.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_STATS_COUNTERS_H
#define UCS_STATS_COUNTERS_H

#include <ucs/ds/list.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <stdint.h>
#include <stdio.h>

BEGIN_C_DECLS

/* What the counters of one kind of object are called. Constant. */
typedef struct {
    const char        *name;     /* of the kind, such as "mm_iface" */
    unsigned          count;
    const char *const *counters; /* `count` names, in the order of the array */
} ucs_counters_class_t;

#define UCS_COUNTERS_NAME_MAX 48

/* One object's counters; lies in the object. Fields are private. */
typedef struct {
    ucs_list_link_t            link;
    const ucs_counters_class_t *class_desc;
    const uint64_t             *values;
    char                       name[UCS_COUNTERS_NAME_MAX];
} ucs_counters_t;

typedef enum {
    UCS_COUNTERS_TEXT,  /* a line each: class object counter value; those at zero are left out */
    UCS_COUNTERS_JSON   /* one array of objects {"class", "object", "counters": {name: value}} */
} ucs_counters_format_t;

/* Add to one counter. One thread at a time for each counter. */
UCS_INLINE void ucs_counter_add(uint64_t *counter, uint64_t amount)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + amount,
                     __ATOMIC_RELAXED);
}

/* Read one counter, from any thread. */
UCS_INLINE uint64_t ucs_counter_get(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Show the counters of an object under a name, which is copied and cut to UCS_COUNTERS_NAME_MAX.
 * `values` (class_desc->count numbers) and `counters` must live until removed. Any thread; takes a
 * mutex, so not on a data path. */
void ucs_counters_add(ucs_counters_t *counters, const ucs_counters_class_t *class_desc,
                      const char *name, const uint64_t *values);
void ucs_counters_remove(ucs_counters_t *counters);

/* Write all registered counters, in the order of registration. Any thread; add and remove wait
 * meanwhile. */
void ucs_counters_dump(FILE *stream, ucs_counters_format_t format);

END_C_DECLS

#endif
