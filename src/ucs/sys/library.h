/* Halyard: other people's shared libraries (hwloc, libfabric, the CUDA driver), opened
 * when they are needed: programs that never need them pay nothing for them, and their absence is no
 * error. There are no modules of our own: what uses such a library is built in.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_LIBRARY_H
#define UCS_SYS_LIBRARY_H

#include <stddef.h>

/* A function that is wanted of a library. */
typedef struct {
    const char *name;
    size_t      offset;      /* where its pointer belongs in the caller's table, in bytes */
    int         is_optional; /* the pointer is NULL where the library has none of that name */
} ucs_library_function_t;

/* Fill `table` with the functions of a library that is open. Not zero: all are there; else
 * `reason`, of `max` bytes, names one that is not. Any thread. */
int ucs_library_find(void *library, const char *file, const ucs_library_function_t *functions,
                     unsigned count, void *table, char *reason, size_t max);

/* Open `file` ("libX.so.1") where the dynamic linker finds it, and fill `table`. Returns dlopen's
 * handle, the caller's to close if ever; NULL if the file is not there or lacks something, which
 * `reason`, of `max` bytes, tells. Any thread; blocks on the file system, and runs the library's
 * own start, which changes no handlers of signals for good. */
void *ucs_library_open(const char *file, const ucs_library_function_t *functions, unsigned count,
                       void *table, char *reason, size_t max);

#endif
