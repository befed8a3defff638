/* Halyard: ofi: libfabric, opened when it is needed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <uct/ofi/ofi_lib.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t uct_ofi_lib_once = PTHREAD_ONCE_INIT;
static uct_ofi_lib_t uct_ofi_lib;
static char uct_ofi_lib_reason[96];

static void uct_ofi_lib_load(void)
{
    static const struct {
        const char *name;
        size_t      offset;
    } symbols[] = {
        {"fi_getinfo", offsetof(uct_ofi_lib_t, getinfo)},
        {"fi_freeinfo", offsetof(uct_ofi_lib_t, freeinfo)},
        {"fi_dupinfo", offsetof(uct_ofi_lib_t, dupinfo)},
        {"fi_fabric", offsetof(uct_ofi_lib_t, fabric)},
        {"fi_strerror", offsetof(uct_ofi_lib_t, strerror)},
        {"fi_version", offsetof(uct_ofi_lib_t, version)}
    };
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol;
    size_t i;

    if (handle == NULL) {
        snprintf(uct_ofi_lib_reason, sizeof(uct_ofi_lib_reason), "%s", dlerror());
        return;
    }
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
        symbol = dlsym(handle, symbols[i].name);
        if (symbol == NULL) {
            snprintf(uct_ofi_lib_reason, sizeof(uct_ofi_lib_reason), "libfabric.so.1 has no %s",
                     symbols[i].name);
            return;
        }
        memcpy((char *)&uct_ofi_lib + symbols[i].offset, &symbol, sizeof(symbol));
    }
}

const uct_ofi_lib_t *uct_ofi_lib_open(const char **reason_p)
{
    pthread_once(&uct_ofi_lib_once, uct_ofi_lib_load);
    *reason_p = uct_ofi_lib_reason;
    return (uct_ofi_lib_reason[0] == '\0') ? &uct_ofi_lib : NULL;
}

const char *uct_ofi_lib_provider(const uct_ofi_lib_t *lib, const char *name)
{
    return ((strcmp(name, "net") == 0) && (lib->version() >= FI_VERSION(1, 18))) ? "tcp" : name;
}

#endif
