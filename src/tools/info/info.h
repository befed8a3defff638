/* Halyard: ucx_info: what its parts show. All add to ucs_report_shared, in the object or array
 * that is open there; any of them may take a tenth of a second, where libraries are loaded.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef INFO_INFO_H
#define INFO_INFO_H

#include <ucs/debug/report.h>
#include <uct/api/uct_tl.h>

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

/* Checks this machine: a row each, with the cure. */
void info_doctor(void);

/* Opens an interface of a transport, with a memory domain of its own. Errors: the transport's. */
ucs_status_t info_iface_open(const uct_tl_t *tl, uct_iface_t **iface_p);
void info_iface_close(uct_iface_t *iface);

/* The first line of a file, "" where there is none. */
void info_read_line(const char *path, char *line, size_t max);

#endif
