/* Halyard: placing memory on NUMA nodes, by libnuma.
 *
 * libnuma is loaded at the first call. Where it or the kernel's support is missing, or the process
 * may not place memory (containers often forbid it), the functions say UCS_ERR_UNSUPPORTED and
 * nothing is changed: placement is for speed only and no caller needs it to work.
 *
 * Any thread.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_NUMA_H
#define UCS_SYS_NUMA_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <stddef.h>

BEGIN_C_DECLS

/* Let the pages that are yet to be touched in [addr, addr + length) come from a node, or from
 * others if that one is full. The range is widened to whole pages; `node` is the operating system's
 * number. UCS_ERR_INVALID_PARAM: no such node, or nothing is mapped there; UCS_ERR_UNSUPPORTED. Not
 * logged. */
ucs_status_t ucs_numa_bind(void *addr, size_t length, int node);

/* The node that a page lies on; touches it. Errors as above. */
ucs_status_t ucs_numa_query(void *addr, int *node_p);

END_C_DECLS

#endif
