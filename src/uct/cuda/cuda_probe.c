/* Halyard: cuda_ipc: proof that what is written to memory of another process arrives.
 *
 * There are machines on which copies between devices are done without an error and without effect
 * (writes that an IOMMU drops). So each owner keeps some memory of its own for each kind of way and
 * device, the probe, and every key names it. Who maps memory of an owner maps the probe first,
 * writes a pattern there and reads it back. The mapping of the probe stays in the cache as any
 * other, with its result.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCT_CUDA_PROBE_SIZE   (2ul << 20) /* as pieces have to be */
#define UCT_CUDA_PROBE_WORDS  64          /* of a pattern */
#define UCT_CUDA_PROBE_ROUNDS 3           /* others may prove at the same place */

/* ---- the owner ---- */

/* The memory of a LEGACY probe. */
static int uct_cuda_probe_alloc(const uct_cuda_driver_t *driver, uct_cuda_place_t *place)
{
    uct_cu_ptr_t ptr = 0;
    uct_cuda_scope_t scope;
    int result;

    if (uct_cuda_enter(&scope, driver, place->ctx) != UCS_OK) {
        return 0;
    }
    result = driver->cuMemAlloc(&ptr, UCT_CUDA_PROBE_SIZE);
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "memory for a proof", result);
    } else if (uct_cuda_place_query(driver, (void *)(uintptr_t)ptr, place) != UCS_OK) {
        driver->cuMemFree(ptr);
        result = UCT_CU_INVALID_VALUE;
    }
    uct_cuda_leave(&scope);
    return result == UCT_CU_SUCCESS;
}

/* What stands in the context is no more than its memory there. */
static void uct_cuda_probe_free(uct_cuda_export_t *probe)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cuda_scope_t scope;

    if ((probe->place.base != 0) && uct_cuda_export_is_there(driver, probe) &&
        (uct_cuda_enter(&scope, driver, probe->place.ctx) == UCS_OK)) {
        driver->cuMemFree(probe->place.base);
        uct_cuda_leave(&scope);
    }
    uct_cuda_export_close(probe);
    ucs_sys_free(probe);
}

/* The memory of a PIECE lives by its descriptor: it is mapped by others only. */
static int uct_cuda_probe_create(const uct_cuda_driver_t *driver, int device)
{
    const uct_cu_piece_properties_t properties = {
        .type         = UCT_CU_ALLOCATION_PINNED,
        .handle_types = UCT_CU_HANDLE_DESCRIPTOR,
        .location     = {UCT_CU_LOCATION_DEVICE, device}
    };
    uct_cu_piece_t piece = 0;
    int result;

    if (driver->cuMemCreate == NULL) {
        return -1;
    }
    result = driver->cuMemCreate(&piece, UCT_CUDA_PROBE_SIZE, &properties, 0);
    return uct_cuda_piece_show(driver, result, piece, "memory for a proof");
}

static uct_cuda_export_t *uct_cuda_probe_make(uct_cuda_ipc_md_t *md,
                                              const uct_cuda_driver_t *driver,
                                              uct_cuda_ipc_kind_t kind,
                                              const uct_cuda_place_t *like)
{
    uct_cuda_place_t place = {
        .device = like->device, .ctx = like->ctx, .id = ucs_sys_random64(), .pieces = 1
    };
    uct_cuda_export_t *probe;
    int is_made;

    probe = uct_cuda_export_alloc(&place);
    if (probe == NULL) {
        return NULL;
    }
    probe->kind = kind;
    if ((kind == UCT_CUDA_IPC_LEGACY) && !uct_cuda_probe_alloc(driver, &probe->place)) {
        ucs_sys_free(probe);
        return NULL;
    }
    is_made = (kind == UCT_CUDA_IPC_LEGACY) ? uct_cuda_export_fill_legacy(driver, probe) :
              uct_cuda_export_add(md, probe, UCT_CUDA_PROBE_SIZE,
                                  uct_cuda_probe_create(driver, place.device));
    if (!is_made) {
        uct_cuda_probe_free(probe);
        return NULL;
    }
    ucs_list_add_tail(&md->probes, &probe->list);
    return probe;
}

uct_cuda_export_t *uct_cuda_probe_get(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                      const uct_cuda_export_t *export)
{
    const uct_cuda_ipc_kind_t kind = (export->kind == UCT_CUDA_IPC_LEGACY) ? UCT_CUDA_IPC_LEGACY :
                                                                             UCT_CUDA_IPC_PIECE;
    uct_cuda_export_t *probe;

    ucs_list_for_each(probe, &md->probes, list) {
        if ((probe->kind == kind) && (probe->place.device == export->place.device) &&
            ((kind == UCT_CUDA_IPC_PIECE) ||
             ((probe->place.ctx == export->place.ctx) &&
              uct_cuda_export_is_there(driver, probe)))) {
            return probe;
        }
    }
    probe = uct_cuda_probe_make(md, driver, kind, &export->place);
    if (probe == NULL) {
        ucs_diag_once("there is no memory on device %d to prove copies with: they are not",
                      export->place.device);
    }
    return probe;
}

void uct_cuda_probes_cleanup(uct_cuda_ipc_md_t *md)
{
    while (!ucs_list_is_empty(&md->probes)) {
        uct_cuda_probe_free(ucs_list_extract_head(&md->probes, uct_cuda_export_t, list));
    }
}

/* ---- the user ---- */

void uct_cuda_probe_key(const uct_cuda_ipc_packed_t *key, uct_cuda_ipc_packed_t *probe)
{
    *probe        = *key;
    probe->length = 0;
    probe->base   = 0;
    probe->size   = UCT_CUDA_PROBE_SIZE;
    probe->id     = key->probe;
    probe->probe  = 0;
    if (key->kind == UCT_CUDA_IPC_LEGACY) {
        memcpy(probe->by.legacy.handle, key->by.legacy.probe, sizeof(probe->by.legacy.handle));
        return;
    }
    probe->kind           = UCT_CUDA_IPC_PIECE;
    probe->count          = 1;
    probe->by.shown.proof = key->by.shown.probe;
    probe->by.shown.probe = 0;
    probe->by.shown.pool  = 0;
    memset(probe->by.shown.pointer, 0, sizeof(probe->by.shown.pointer));
}

/* Writes a pattern somewhere and reads it back. Another one is written in between: copies use one
 * buffer, which may still hold what was written last. */
static ucs_status_t uct_cuda_probe_round(uct_cuda_queue_t *queue, uct_cu_ptr_t ptr, int *is_same_p)
{
    const uint64_t seed = ucs_sys_random64();
    uint64_t told[2][UCT_CUDA_PROBE_WORDS], found[UCT_CUDA_PROBE_WORDS] = {0};
    uct_cuda_part_t parts[3];
    ucs_status_t status;
    unsigned i;

    ptr += seed % (UCT_CUDA_PROBE_SIZE / sizeof(told)) * sizeof(told);
    for (i = 0; i < 2 * UCT_CUDA_PROBE_WORDS; ++i) {
        told[i / UCT_CUDA_PROBE_WORDS][i % UCT_CUDA_PROBE_WORDS] = ucs_hash_mix(seed + i);
    }
    for (i = 0; i < 2; ++i) {
        uct_cuda_part_init(&parts[i], queue, ptr + (i * sizeof(found)), UCT_CUDA_DEVICE,
                           (uintptr_t)told[i], UCT_CUDA_PAGEABLE, sizeof(found));
    }
    uct_cuda_part_init(&parts[2], queue, (uintptr_t)found, UCT_CUDA_PAGEABLE, ptr,
                       UCT_CUDA_DEVICE, sizeof(found));
    status     = uct_cuda_engine_post(queue->engine, parts, 3, NULL, NULL);
    *is_same_p = (memcmp(told[0], found, sizeof(found)) == 0);
    return status;
}

ucs_status_t uct_cuda_probe_prove(uct_cuda_queue_t *queue, uct_cu_ptr_t ptr)
{
    ucs_status_t status = UCS_OK;
    int is_same         = 0;
    unsigned i;

    for (i = 0; (i < UCT_CUDA_PROBE_ROUNDS) && (status == UCS_OK) && !is_same; ++i) {
        status = uct_cuda_probe_round(queue, ptr, &is_same);
    }
    if (status != UCS_OK) {
        return UCS_ERR_UNREACHABLE;
    }
    return is_same ? UCS_OK : UCS_ERR_REJECTED;
}
