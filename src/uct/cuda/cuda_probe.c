/* Halyard: cuda_ipc: proof that what is written to memory of another process arrives.
 *
 * There are machines on which copies between devices are done without an error and without effect
 * (writes that an IOMMU drops). So each owner keeps some memory of its own for each kind of way and
 * device, the probe, and every key names it. Who maps memory of an owner maps the probe first,
 * writes a pattern there and reads it back. The mapping of the probe stays in the cache as any
 * other, with its result.
 *
 * The copies are looked at for a moment, in which they end as a rule, and then whenever the memory
 * is to be used. After 2 s it is staged for as long as they do not end: whoever reads there has not
 * lost anything then, and nothing that a device may still write to is given back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCT_CUDA_PROBE_SIZE   (2ul << 20) /* as pieces have to be */
#define UCT_CUDA_PROBE_WORDS  64          /* of a pattern */
#define UCT_CUDA_PROBE_ROUNDS 3           /* others may prove at the same place */
#define UCT_CUDA_TRIAL_SIZE   4096ul      /* of the patterns, in memory of the host */
#define UCT_CUDA_TRIAL_NOW_NS 10000000ull /* most time that the first use takes for it */
#define UCT_CUDA_TRIAL_YIELD  64          /* looks after which others have their turn */
#define UCT_CUDA_TRIAL_NS     2000000000ull

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

/* Those of contexts that are gone. The lock is held. */
static void uct_cuda_probes_trim(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver)
{
    uct_cuda_export_t *probe, *tmp;

    ucs_list_for_each_safe(probe, tmp, &md->probes, list) {
        if ((probe->refs == 0) && (probe->kind == UCT_CUDA_IPC_LEGACY) &&
            !uct_cuda_export_is_there(driver, probe)) {
            ucs_list_del(&probe->list);
            uct_cuda_probe_free(probe);
        }
    }
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
            ++probe->refs;
            return probe;
        }
    }
    uct_cuda_probes_trim(md, driver);
    probe = uct_cuda_probe_make(md, driver, kind, &export->place);
    if (probe != NULL) {
        ++probe->refs;
    } else {
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

/* Memory of the host that a proof copies from and to. */
struct uct_cuda_words {
    uct_cuda_words_t *next; /* in context->words */
    int               is_registered;
    uint64_t          patterns[3][UCT_CUDA_PROBE_WORDS]; /* two that are told, what is found */
};

/* A proof that is under way. */
struct uct_cuda_trial {
    uct_cu_stream_t   stream;   /* NULL: not made */
    int               result;   /* of the driver: why it fails once the stream is idle */
    unsigned          rounds;
    uint64_t          until_ns; /* it is waited for */
    uct_cuda_words_t *words;
};

/* Where they are not registered the driver copies once more, and waits. */
static uct_cuda_words_t *uct_cuda_words_get(const uct_cuda_driver_t *driver,
                                            uct_cuda_mapping_t *mapping)
{
    uct_cuda_words_t *words;
    int is_registered;

    pthread_mutex_lock(&mapping->md->lock);
    words = mapping->context->words;
    if (words != NULL) {
        mapping->context->words = words->next;
    }
    pthread_mutex_unlock(&mapping->md->lock);
    if (words == NULL) {
        words = uct_cuda_host_make(driver, UCT_CUDA_TRIAL_SIZE, &is_registered);
        if (words != NULL) {
            words->is_registered = is_registered;
        }
    }
    return words;
}

/* They stay registered for the next proof: to end that the driver waits for the kernels of the
 * context, and one of them may wait for what is to be copied here next. */
static void uct_cuda_words_put(uct_cuda_mapping_t *mapping, uct_cuda_words_t *words)
{
    if (!words->is_registered) {
        ucs_sys_munmap(words, UCT_CUDA_TRIAL_SIZE);
        return;
    }
    pthread_mutex_lock(&mapping->md->lock);
    words->next             = mapping->context->words;
    mapping->context->words = words;
    pthread_mutex_unlock(&mapping->md->lock);
}

void uct_cuda_words_cleanup(const uct_cuda_driver_t *driver, uct_cuda_ipc_context_t *context,
                            int is_alive, int has_gone)
{
    uct_cuda_words_t *words;

    while ((words = context->words) != NULL) {
        context->words = words->next;
        uct_cuda_host_free(driver, words, UCT_CUDA_TRIAL_SIZE, words->is_registered, is_alive,
                           has_gone);
    }
}

/* Writes a pattern somewhere and reads it back. Another one is written in between: what lies on the
 * way may still hold what was written last. */
static void uct_cuda_trial_round(const uct_cuda_driver_t *driver, uct_cuda_trial_t *trial,
                                 uct_cu_ptr_t ptr)
{
    uint64_t (*patterns)[UCT_CUDA_PROBE_WORDS] = trial->words->patterns;
    const uint64_t seed = ucs_sys_random64();
    const size_t size   = sizeof(patterns[0]);
    unsigned i;

    ptr += seed % (UCT_CUDA_PROBE_SIZE / (2 * size)) * (2 * size);
    memset(patterns[2], 0, size);
    for (i = 0; i < 2 * UCT_CUDA_PROBE_WORDS; ++i) {
        patterns[i / UCT_CUDA_PROBE_WORDS][i % UCT_CUDA_PROBE_WORDS] = ucs_hash_mix(seed + i);
    }
    ++trial->rounds;
    for (i = 0; (i < 2) && (trial->result == UCT_CU_SUCCESS); ++i) {
        trial->result = driver->cuMemcpyAsync(ptr + (i * size), (uintptr_t)patterns[i], size,
                                              trial->stream);
    }
    if (trial->result == UCT_CU_SUCCESS) {
        trial->result = driver->cuMemcpyAsync((uintptr_t)patterns[2], ptr, size, trial->stream);
    }
}

/* In the context that is current. */
static ucs_status_t uct_cuda_trial_begin(const uct_cuda_driver_t *driver,
                                         uct_cuda_mapping_t *mapping)
{
    uct_cuda_trial_t *trial = ucs_sys_calloc(1, sizeof(*trial));

    if (trial == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    trial->words = uct_cuda_words_get(driver, mapping);
    if (trial->words == NULL) {
        ucs_sys_free(trial);
        return UCS_ERR_UNREACHABLE;
    }
    mapping->trial  = trial;
    trial->until_ns = ucs_sys_clock_ns() + UCT_CUDA_TRIAL_NS;
    trial->result   = driver->cuStreamCreate(&trial->stream, UCT_CU_STREAM_NON_BLOCKING);
    if (trial->result != UCT_CU_SUCCESS) {
        trial->stream = NULL;
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DIAG, "cuStreamCreate", trial->result);
        return UCS_ERR_UNREACHABLE;
    }
    uct_cuda_trial_round(driver, trial, mapping->ptr);
    return UCS_ERR_NO_RESOURCE;
}

/* In the context that is current. */
static int uct_cuda_trial_is_busy(const uct_cuda_driver_t *driver, const uct_cuda_trial_t *trial)
{
    return (trial->stream != NULL) && (driver->cuStreamQuery(trial->stream) == UCT_CU_NOT_READY);
}

void uct_cuda_trial_end(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    uct_cuda_trial_t *trial = mapping->trial;
    int is_busy             = 0;
    uct_cuda_scope_t scope;

    if (trial == NULL) {
        return;
    }
    mapping->trial = NULL;
    if (uct_cuda_context_enter(&scope, driver, &mapping->context->base) == UCS_OK) {
        while ((is_busy = uct_cuda_trial_is_busy(driver, trial)) &&
               (ucs_sys_clock_ns() < trial->until_ns)) {
            ucs_sys_sched_yield();
        }
        if (!is_busy) {
            if (trial->stream != NULL) {
                driver->cuStreamDestroy(trial->stream);
            }
            uct_cuda_words_put(mapping, trial->words);
        }
        uct_cuda_leave(&scope);
    } else if (uct_cuda_context_has_gone(driver, &mapping->context->base)) {
        ucs_sys_munmap(trial->words, UCT_CUDA_TRIAL_SIZE);
    } /* else the driver has them, until the process ends */
    if (is_busy) {
        ucs_diag("memory of process %u stays mapped: a copy there does not end", mapping->key.pid);
        mapping->ptr               = 0;
        mapping->context->is_stuck = 1;
    }
    ucs_sys_free(trial);
}

/* A look at the copies, in the context that is current. */
static ucs_status_t uct_cuda_trial_step(const uct_cuda_driver_t *driver,
                                        const uct_cuda_mapping_t *mapping)
{
    uct_cuda_trial_t *trial = mapping->trial;
    uint64_t (*patterns)[UCT_CUDA_PROBE_WORDS] = trial->words->patterns;
    int result              = driver->cuStreamQuery(trial->stream);

    if (result == UCT_CU_NOT_READY) {
        return UCS_ERR_NO_RESOURCE;
    }
    result = (trial->result != UCT_CU_SUCCESS) ? trial->result : result;
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_ERROR, "a copy to memory of another process",
                              result);
        return UCS_ERR_UNREACHABLE;
    }
    if (memcmp(patterns[0], patterns[2], sizeof(patterns[0])) == 0) {
        return UCS_OK;
    }
    if (trial->rounds == UCT_CUDA_PROBE_ROUNDS) {
        return UCS_ERR_REJECTED;
    }
    uct_cuda_trial_round(driver, trial, mapping->ptr);
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_cuda_probe_prove(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    const uint64_t begin_ns = ucs_sys_clock_ns();
    const int is_first      = (mapping->trial == NULL);
    ucs_status_t status     = UCS_ERR_NO_RESOURCE;
    uct_cuda_scope_t scope;
    unsigned i;

    if (uct_cuda_context_enter(&scope, driver, &mapping->context->base) != UCS_OK) {
        uct_cuda_trial_end(driver, mapping);
        return UCS_ERR_UNREACHABLE;
    }
    if (is_first) {
        status = uct_cuda_trial_begin(driver, mapping);
    }
    for (i = 1; status == UCS_ERR_NO_RESOURCE; ++i) {
        status = uct_cuda_trial_step(driver, mapping);
        if (!is_first) {
            break;
        }
        if ((i % UCT_CUDA_TRIAL_YIELD) == 0) {
            if ((ucs_sys_clock_ns() - begin_ns) > UCT_CUDA_TRIAL_NOW_NS) {
                break;
            }
            ucs_sys_sched_yield();
        }
    }
    uct_cuda_leave(&scope);
    if (status != UCS_ERR_NO_RESOURCE) {
        uct_cuda_trial_end(driver, mapping);
    } else if (ucs_sys_clock_ns() > mapping->trial->until_ns) {
        ucs_warn_once("device memory of process %u is staged: a copy that was to prove the way "
                      "there has not ended for %llu s", mapping->key.pid,
                      UCT_CUDA_TRIAL_NS / 1000000000);
        return UCS_ERR_TIMED_OUT;
    }
    return status;
}
