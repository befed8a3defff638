/* Halyard: the registry of transports: which there are, and by which name.
 *
 * The list is fixed when it is first asked for and never changes after that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>
#include <uct/hook/hook.h>

#include <string.h>

/* One row a transport; the order is the one in which they are shown. */
static const uct_tl_t *const uct_registry_rows[] = {
    &uct_self_tl,
    &uct_mm_tl,
    &uct_cma_tl,
    &uct_cuda_copy_tl,
    &uct_cuda_ipc_tl,
    &uct_ofi_tl,
};

const uct_tl_t *const *uct_tl_list(size_t *count_p)
{
    *count_p = ucs_array_size(uct_registry_rows);
    return uct_registry_rows;
}

const uct_tl_t *uct_tl_find(const char *name)
{
    const uct_tl_t *const *tls;
    size_t i, count;

    tls = uct_tl_list(&count);
    for (i = 0; i < count; ++i) {
        if (strcmp(tls[i]->name, name) == 0) {
            return tls[i];
        }
    }
    return uct_hook_find(name);
}
