/* Halyard: loadable parts: $libdir/ucx/lib<layer>_<name>.so.
 *
 * A module is never unloaded: tables of its functions may be in use anywhere, and the memory is
 * small.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <ucs/config/global.h>
#include <ucs/debug/log.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/module.h>
#include <ucs/sys/string.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where the build installs modules. */
#ifndef UCX_MODULE_DIR
#define UCX_MODULE_DIR "/usr/lib/ucx"
#endif

typedef struct {
    ucs_module_info_t info;
    void              *handle;
} ucs_module_t;

static struct {
    pthread_mutex_t mutex;
    unsigned        count;
    ucs_module_t    modules[UCS_MODULES_MAX];
} ucs_modules = {
    .mutex = PTHREAD_MUTEX_INITIALIZER
};

static int ucs_module_is_name(const char *name, size_t max)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return (length > 0) && (length < max) && (name[length] == '\0');
}

int ucs_module_own_folder(char *folder, size_t max, const char *below)
{
    Dl_info info;
    char *slash;

    if ((dladdr((void *)(uintptr_t)ucs_module_own_folder, &info) == 0) ||
        (info.dli_fname == NULL) || !ucs_str_copy(folder, max, info.dli_fname)) {
        return 0;
    }

    slash = strrchr(folder, '/');
    return (slash != NULL) && ucs_str_copy(slash, max - (size_t)(slash - folder), below);
}

/* The module's file in one folder; not zero if it can be read. */
static int ucs_module_try_folder(ucs_module_info_t *info, const char *folder)
{
    int length = snprintf(info->path, sizeof(info->path), "%s/lib%s_%s.so", folder, info->layer,
                          info->name);

    return (length < (int)sizeof(info->path)) && (access(info->path, R_OK) == 0);
}

static int ucs_module_find(ucs_module_info_t *info, const char *configured)
{
    char folder[sizeof(info->path)];

    if (configured[0] != '\0') {
        return ucs_module_try_folder(info, configured);
    }

    return (ucs_module_own_folder(folder, sizeof(folder), "/ucx") &&
            ucs_module_try_folder(info, folder)) ||
           ucs_module_try_folder(info, UCX_MODULE_DIR);
}

/* Find and load; the outcome, with its reason, stands in the module. The mutex is held. */
static void ucs_module_open(ucs_module_t *module, const char *configured)
{
    ucs_module_info_t *info = &module->info;
    const char *reason;

    if (!ucs_module_find(info, configured)) {
        info->path[0] = '\0';
        info->status  = UCS_ERR_NO_ELEM;
        snprintf(info->reason, sizeof(info->reason), "not installed");
        return;
    }

    module->handle = dlopen(info->path, RTLD_NOW | RTLD_LOCAL);
    if (module->handle == NULL) {
        reason       = dlerror();
        info->status = UCS_ERR_UNSUPPORTED;
        ucs_str_copy(info->reason, sizeof(info->reason), (reason != NULL) ? reason : "unknown");
        return;
    }

    info->status = UCS_OK;
}

ucs_status_t ucs_module_load(const char *layer, const char *name, void **handle_p)
{
    const char *configured = ucs_global_opts()->module_dir;
    ucs_module_t *module   = NULL;
    int is_first           = 0;
    unsigned i;

    if (!ucs_module_is_name(layer, sizeof(module->info.layer)) ||
        !ucs_module_is_name(name, sizeof(module->info.name))) {
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_lock(&ucs_modules.mutex);
    for (i = 0; i < ucs_modules.count; ++i) {
        if (!strcmp(ucs_modules.modules[i].info.layer, layer) &&
            !strcmp(ucs_modules.modules[i].info.name, name)) {
            module = &ucs_modules.modules[i];
        }
    }
    if ((module == NULL) && (ucs_modules.count < UCS_MODULES_MAX)) {
        module   = &ucs_modules.modules[ucs_modules.count++];
        is_first = 1;
        ucs_str_copy(module->info.layer, sizeof(module->info.layer), layer);
        ucs_str_copy(module->info.name, sizeof(module->info.name), name);
        ucs_module_open(module, configured);
    }
    pthread_mutex_unlock(&ucs_modules.mutex);

    if (module == NULL) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    /* an entry that exists does not change any more: no lock to look at it */
    if (is_first && (module->info.status == UCS_ERR_UNSUPPORTED)) {
        ucs_diag("module %s_%s is not used: %s", layer, name, module->info.reason);
    }
    if (module->info.status == UCS_OK) {
        *handle_p = module->handle;
    }

    return module->info.status;
}

void *ucs_module_symbol(void *handle, const char *symbol)
{
    return dlsym(handle, symbol);
}

ucs_status_t ucs_module_query(unsigned i, ucs_module_info_t *info_p)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;

    pthread_mutex_lock(&ucs_modules.mutex);
    if (i < ucs_modules.count) {
        *info_p = ucs_modules.modules[i].info;
        status  = UCS_OK;
    }
    pthread_mutex_unlock(&ucs_modules.mutex);
    return status;
}
