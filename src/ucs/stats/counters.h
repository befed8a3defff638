/* Halyard: counters: named numbers of an object that people and tools may look at while it works.
 *
 * An object owns an array of uint64_t; one thread at a time adds to it with plain cost (a relaxed
 * load and store, no locked instruction); anyone may read it. Counters only ever rise.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_STATS_COUNTERS_H
#define UCS_STATS_COUNTERS_H

#include <ucs/debug/report.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <stdint.h>

BEGIN_C_DECLS

/* What the counters of one kind of object are called. Constant. */
typedef struct {
    const char        *name;     /* of the kind, such as "worker" */
    unsigned          count;
    const char *const *counters; /* `count` names, in the order of the array */
} ucs_counters_class_t;

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

/* Adds the counters of an object (class_desc->count values) that are not zero to a report: a row
 * each as text; as JSON an object "counters" of all of them. Any thread. */
void ucs_counters_report(ucs_report_t *report, const ucs_counters_class_t *class_desc,
                         const uint64_t *values);

/* The object, called `name`, ends: its counters go to where UCX_STATS_DEST says, in the form that
 * UCX_STATS_FORMAT says, by one write. Any thread; may block, as files do. Failure is logged. */
void ucs_counters_tell(const ucs_counters_class_t *class_desc, const char *name,
                       const uint64_t *values);

END_C_DECLS

#endif
