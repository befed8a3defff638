/* Halyard: received data in memory of the library.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/ops/kept.h>
#include <ucs/sys/sys.h>

#define UCP_KEPT_ALIGNMENT 16 /* that every block has */

ucp_kept_t *ucp_kept_get(ucp_worker_t *worker, ucp_kept_kind_t kind, size_t length,
                         size_t alignment)
{
    size_t extra = (alignment > UCP_KEPT_ALIGNMENT) ? alignment : 0;
    size_t size  = sizeof(ucp_kept_t) + extra + length;
    int is_pooled;
    ucp_kept_t *kept;
    uintptr_t data;
    void *block;

    if (size < length) {
        return NULL; /* a peer may announce any length */
    }
    is_pooled = (size <= UCP_WORKER_DATA_MAX);
    block     = is_pooled ? ucp_worker_data_get(worker, size) :
                            ucs_sys_memalign(UCP_KEPT_ALIGNMENT, size);
    if (block == NULL) {
        return NULL;
    }

    data            = (uintptr_t)block + sizeof(*kept);
    kept            = ucp_kept_of((void *)(extra ? ucs_align_up(data, alignment) : data));
    kept->block     = block;
    kept->length    = length;
    kept->offset    = 0;
    kept->kind      = (uint8_t)kind;
    kept->is_pooled = (uint8_t)is_pooled;
    kept->is_lent   = 0;
    kept->is_taken  = 0;
    ucs_list_add_tail(&worker->kept, &kept->list);
    return kept;
}

void ucp_kept_put(ucp_kept_t *kept)
{
    ucs_list_del(&kept->list);
    if (kept->is_pooled) {
        ucp_worker_data_put(kept->block);
    } else {
        ucs_sys_free(kept->block);
    }
}
