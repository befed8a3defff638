/* Halyard: the memory that a worker holds, for people who wonder where theirs is.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_WORKER_MEMORY_H
#define UCP_CORE_WORKER_MEMORY_H

#include <ucp/core/worker.h>

/* Bytes. Not: memory of ucp_mem_map and of the context, and what libraries below allocate. */
typedef struct {
    size_t shared;   /* that other processes map */
    size_t own;
    size_t messages; /* of own: those that nobody has taken yet, and room for the next */
    size_t requests; /* of own */
    size_t device;   /* on devices, to stage in */
} ucp_worker_memory_t;

/* All but that of its transports, which tell theirs (memory_used): none is shared so far. Called
 * with the worker's lock held. Walks its lists: for reports. */
void ucp_worker_memory(const ucp_worker_t *worker, ucp_worker_memory_t *memory);

#endif
