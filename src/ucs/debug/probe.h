/* Halyard: probes: places at which perf, bpftrace, SystemTap and gdb can listen in a running
 * program, by name: "usdt:libucp.so.0:halyard:request_done". An instruction that does nothing, and
 * a note in the library of where the arguments are; nothing at all without sys/sdt.h.
 *
 *   request_start(request, kind)              taken to be worked on; kind: ucp_request_kind_t
 *   request_done(request, kind, status, length)
 *   message(id, length)                       of the wire format, has come in
 *   counted(worker, counter)                  one more of ucp_counter_t, but SENT_AT_ONCE
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_PROBE_H
#define UCS_DEBUG_PROBE_H

#if HAVE_SDT && !defined(__cplusplus) /* tests include this, amid extern "C" */
#include <sys/sdt.h>
#define UCS_PROBE2(_name, _a, _b)         DTRACE_PROBE2(halyard, _name, _a, _b)
#define UCS_PROBE4(_name, _a, _b, _c, _d) DTRACE_PROBE4(halyard, _name, _a, _b, _c, _d)
#else
#define UCS_PROBE2(_name, _a, _b)         do {} while (0)
#define UCS_PROBE4(_name, _a, _b, _c, _d) do {} while (0)
#endif

#endif
