/* Halyard: names of the thread modes.
 *
 * Programs read this array by its name, so it is exported and not const at its outer level.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/type/thread_mode.h>

const char *ucs_thread_mode_names[] = {
    [UCS_THREAD_MODE_SINGLE]     = "single",
    [UCS_THREAD_MODE_SERIALIZED] = "serialized",
    [UCS_THREAD_MODE_MULTI]      = "multi",
    [UCS_THREAD_MODE_LAST]       = NULL
};
