/* Halyard: other people's shared libraries, opened when they are needed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/library.h>

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Objects of a process that are looked at: of programs with more of them signals are left alone. */
#define UCS_LIBRARY_OBJECTS 1024

typedef struct {
    struct sigaction actions[NSIG];
    struct {
        uintptr_t start, end;
    } objects[UCS_LIBRARY_OBJECTS];
    unsigned count;
} ucs_library_before_t;

static int ucs_library_add_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    ucs_library_before_t *before = arg;
    uintptr_t start              = UINTPTR_MAX, end = 0, from;
    unsigned i;

    (void)size;
    for (i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            from  = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            start = (from < start) ? from : start;
            end   = (from + info->dlpi_phdr[i].p_memsz > end) ?
                    from + info->dlpi_phdr[i].p_memsz : end;
        }
    }
    if (before->count == UCS_LIBRARY_OBJECTS) {
        return 1;
    }
    before->objects[before->count].start = start;
    before->objects[before->count].end   = end;
    ++before->count;
    return 0;
}

/* Does a handler lie in what has been loaded since? */
static int ucs_library_is_new(const ucs_library_before_t *before, const struct sigaction *action)
{
    const uintptr_t handler = (uintptr_t)action->sa_handler;
    unsigned i;

    if ((action->sa_handler == SIG_DFL) || (before->count == UCS_LIBRARY_OBJECTS)) {
        return 0;
    }
    for (i = 0; i < before->count; ++i) {
        if ((handler >= before->objects[i].start) && (handler < before->objects[i].end)) {
            return 0;
        }
    }
    return 1;
}

static void ucs_library_note(ucs_library_before_t *before)
{
    int number;

    for (number = 1; number < NSIG; ++number) {
        if (sigaction(number, NULL, &before->actions[number]) != 0) {
            before->actions[number].sa_handler = SIG_ERR; /* the C library's own */
        }
    }
    (void)dl_iterate_phdr(ucs_library_add_object, before);
}

static void ucs_library_restore(const ucs_library_before_t *before)
{
    struct sigaction now;
    int number;

    for (number = 1; number < NSIG; ++number) {
        if ((before->actions[number].sa_handler != SIG_ERR) &&
            (sigaction(number, NULL, &now) == 0) &&
            (now.sa_handler != before->actions[number].sa_handler) &&
            ucs_library_is_new(before, &now)) {
            (void)sigaction(number, &before->actions[number], NULL);
        }
    }
}

/* What the program has set for signals stays, whatever a library's own start does: on Debian
 * libfabric brings along libinfinipath, which takes over SIGINT, SIGTERM, SIGSEGV and others. What
 * another thread sets meanwhile, or puts back itself, stays as well. */
static void *ucs_library_load(const char *file)
{
    ucs_library_before_t *before = calloc(1, sizeof(*before));
    void *library;

    if (before == NULL) {
        return dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    ucs_library_note(before);
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    ucs_library_restore(before);
    free(before);
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
