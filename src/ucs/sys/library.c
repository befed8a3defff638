/* Halyard: other people's shared libraries, opened when they are needed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/library.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int ucs_library_find(void *library, const char *file, const ucs_library_function_t *functions,
                     unsigned count, void *table, char *reason, size_t max)
{
    void *function;
    unsigned i;

    for (i = 0; i < count; ++i) {
        function = dlsym(library, functions[i].name);
        if ((function == NULL) && !functions[i].is_optional) {
            snprintf(reason, max, "%s has no %s", file, functions[i].name);
            return 0;
        }
        memcpy((char *)table + functions[i].offset, &function, sizeof(function));
    }
    return 1;
}

void *ucs_library_open(const char *file, const ucs_library_function_t *functions, unsigned count,
                       void *table, char *reason, size_t max)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        snprintf(reason, max, "%s", dlerror());
    } else if (!ucs_library_find(library, file, functions, count, table, reason, max)) {
        dlclose(library);
        library = NULL;
    }
    return library;
}
