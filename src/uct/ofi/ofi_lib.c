/* Halyard: ofi: libfabric, opened when it is needed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <uct/ofi/ofi_lib.h>

#include <ucs/sys/library.h>

#include <pthread.h>
#include <stddef.h>
#include <string.h>

uct_ofi_lib_t uct_ofi_lib;

static pthread_once_t uct_ofi_lib_once = PTHREAD_ONCE_INIT;
static char uct_ofi_lib_reason[96];

static void uct_ofi_lib_load(void)
{
    static const ucs_library_function_t functions[] = {
        {"fi_getinfo", offsetof(uct_ofi_lib_t, getinfo), 0},
        {"fi_freeinfo", offsetof(uct_ofi_lib_t, freeinfo), 0},
        {"fi_dupinfo", offsetof(uct_ofi_lib_t, dupinfo), 0},
        {"fi_fabric", offsetof(uct_ofi_lib_t, fabric), 0},
        {"fi_strerror", offsetof(uct_ofi_lib_t, strerror), 0},
        {"fi_version", offsetof(uct_ofi_lib_t, version), 0}
    };

    (void)ucs_library_open("libfabric.so.1", functions, sizeof(functions) / sizeof(functions[0]),
                           &uct_ofi_lib, uct_ofi_lib_reason, sizeof(uct_ofi_lib_reason));
}

const char *uct_ofi_lib_open(void)
{
    pthread_once(&uct_ofi_lib_once, uct_ofi_lib_load);
    return (uct_ofi_lib_reason[0] == '\0') ? NULL : uct_ofi_lib_reason;
}

const char *uct_ofi_lib_provider(const char *name)
{
    return ((strcmp(name, "net") == 0) && (uct_ofi_lib.version() >= FI_VERSION(1, 18))) ? "tcp" :
                                                                                        name;
}

struct fi_info *uct_ofi_lib_hints(const uct_ofi_offer_t *offer)
{
    struct fi_info *hints = uct_ofi_lib.dupinfo(NULL);

    if (hints != NULL) {
        hints->caps                       = offer->caps;
        hints->mode                       = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type              = FI_EP_RDM;
        hints->domain_attr->mr_mode       = UCT_OFI_MR_MODES;
        hints->domain_attr->threading     = FI_THREAD_DOMAIN;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->domain_attr->data_progress = offer->progress;
        hints->tx_attr->msg_order         = offer->order;
        hints->rx_attr->msg_order         = offer->order;
    }
    return hints;
}

#endif
