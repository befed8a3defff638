/* Halyard: how threads may share one worker.
 *
 * Installed; part of the parameters and attributes of ucp contexts and workers.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_TYPE_THREAD_MODE_H
#define UCS_TYPE_THREAD_MODE_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum {
    UCS_THREAD_MODE_SINGLE,      /* one thread only, the one that created the object */
    UCS_THREAD_MODE_SERIALIZED,  /* any thread, the caller keeps two from being inside at once */
    UCS_THREAD_MODE_MULTI,       /* any thread at any time */
    UCS_THREAD_MODE_LAST
} ucs_thread_mode_t;

/* Name of each mode, indexed by it. Read only. */
extern const char *ucs_thread_mode_names[];

END_C_DECLS

#endif
