/* Halyard: libucs_signal: nothing but its name.
 *
 * In UCX it catches the signals of a crash, and loaders of Python packages (libucx of RAPIDS) open
 * it beside the other libraries. Without one of ours they would take another installation's, which
 * does not fit to our libucs. Signals are the program's.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/type/status.h>
