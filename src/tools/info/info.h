/* Halyard: ucx_info: what its parts show. All write to stdout; any of them may take a tenth of a
 * second, where libraries are loaded.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef INFO_INFO_H
#define INFO_INFO_H

#include <ucs/type/status.h>

/* How the library was built. */
void info_build(void);

/* The machine as this process finds it: processors, memory, identity. */
void info_system(void);

/* NUMA nodes, their processors and distances. */
void info_topology(void);

/* Every transport whose name is in the list ("all", "a,b", "^a"; also wrapped forms such as
 * "fault:mm"), opened for this: what it is, which devices it chose and why not others, limits and
 * costs. UCS_ERR_INVALID_PARAM: not such a list; UCS_ERR_NO_ELEM: no such transport; both said on
 * stderr. */
ucs_status_t info_devices(const char *names);

/* Checks this machine, a line each with the cure, and the library on it. Returns what became of a
 * message between two workers, the only thing that has to work. */
ucs_status_t info_doctor(void);

/* The first line of a file, "" where there is none. */
void info_read_line(const char *path, char *line, size_t max);

#endif
