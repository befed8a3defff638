/* Halyard: other people's shared libraries, opened when they are needed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/library.h>

#include <dlfcn.h>
#include <signal.h>
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

/* What the program has set for signals stays, whatever a library's own start does: on Debian
 * libfabric brings along libinfinipath, which takes over SIGINT, SIGTERM, SIGSEGV and others. */
static void *ucs_library_load(const char *file)
{
    struct sigaction before[NSIG], now;
    void *library;
    int number;

    for (number = 1; number < NSIG; ++number) {
        if (sigaction(number, NULL, &before[number]) != 0) {
            before[number].sa_handler = SIG_ERR; /* the C library's own */
        }
    }
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (number = 1; number < NSIG; ++number) {
        if ((before[number].sa_handler != SIG_ERR) && (sigaction(number, NULL, &now) == 0) &&
            (now.sa_handler != before[number].sa_handler)) {
            (void)sigaction(number, &before[number], NULL);
        }
    }
    return library;
}

void *ucs_library_open(const char *file, const ucs_library_function_t *functions, unsigned count,
                       void *table, char *reason, size_t max)
{
    void *library = ucs_library_load(file);

    if (library == NULL) {
        snprintf(reason, max, "%s", dlerror());
    } else if (!ucs_library_find(library, file, functions, count, table, reason, max)) {
        dlclose(library);
        library = NULL;
    }
    return library;
}
