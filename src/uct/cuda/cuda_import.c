/* Halyard: cuda_ipc: memory of other processes: mappings and their cache.
 *
 * A mapping is found by the owner, the id of the allocation and the context that it is mapped in.
 * It is of use only for the very allocation that it was made for: the key says which one that is,
 * and a mapping that overlaps with a later allocation of the same owner is closed. Refusals are
 * kept as mappings are, so that they cost the driver nothing the second time; they are tried again
 * seldom, since memory or files may have been short.
 *
 * The driver maps and unmaps without our lock held, which takes from 0.1 to some milliseconds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <errno.h>
#include <string.h>

#define UCT_CUDA_LOOK_NS 1000000000ull /* from one look for owners that have gone to the next: each
                                          mapping takes a microsecond */

#define UCT_CUDA_IMPORT_AGAIN_NS 10000000000ull /* to be refused takes some milliseconds */

/* ------------------------------------------------------------------ devices */

/* The lock is held. */
static void uct_cuda_ipc_find_devices(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver)
{
    int count, i;

    if ((md->num_devices > 0) || (driver->cuDeviceGetCount(&count) != UCT_CU_SUCCESS)) {
        return;
    }
    for (i = 0; (i < count) && (i < UCT_CUDA_DEVICES_MAX); ++i) {
        if (uct_cuda_device_uuid(driver, i, &md->devices[i]) != UCS_OK) {
            return;
        }
    }
    md->num_devices = i;
}

int uct_cuda_ipc_rkey_device(const uct_cuda_driver_t *driver, const uct_cuda_ipc_rkey_t *rkey)
{
    uct_cuda_ipc_md_t *md = uct_cuda_ipc_md(rkey->super.md);
    int device            = -1;
    int i;

    pthread_mutex_lock(&md->lock);
    uct_cuda_ipc_find_devices(md, driver);
    for (i = 0; i < md->num_devices; ++i) {
        if (memcmp(&md->devices[i], &rkey->key.uuid, sizeof(uct_cu_uuid_t)) == 0) {
            device = i;
        }
    }
    pthread_mutex_unlock(&md->lock);
    return device;
}

int uct_cuda_ipc_rkey_is_on(uct_rkey_t *rkey, int device)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();

    return (driver != NULL) && (device >= 0) &&
           (uct_cuda_ipc_rkey_device(driver, uct_cuda_ipc_rkey(rkey)) == device);
}

/* ------------------------------------------------------------------ mappings */

static uint64_t uct_cuda_mapping_slot(const uct_cuda_ipc_packed_t *key, uct_cu_ctx_t ctx)
{
    return ucs_hash_mix(key->instance ^ ucs_hash_mix(key->id ^ ucs_hash_mix((uintptr_t)ctx)));
}

static int uct_cuda_key_parts_are_same(const uct_cuda_ipc_packed_t *key1,
                                       const uct_cuda_ipc_packed_t *key2, size_t begin, size_t end)
{
    return memcmp((const char *)key1 + begin, (const char *)key2 + begin, end - begin) == 0;
}

/* Do both name the same allocation? All that tells what is mapped counts, since anybody may have
 * made a key up; not whom to ask for it. */
static int uct_cuda_key_is_same(const uct_cuda_ipc_packed_t *key1,
                                const uct_cuda_ipc_packed_t *key2)
{
    const size_t door = (key1->kind == UCT_CUDA_IPC_LEGACY) ? 0 : sizeof(key1->by.shown.name);
    const size_t by   = offsetof(uct_cuda_ipc_packed_t, by);

    return (key1->instance == key2->instance) && (key1->kind == key2->kind) &&
           (key1->pid == key2->pid) && (key1->pid_ns == key2->pid_ns) &&
           (key1->count == key2->count) &&
           uct_cuda_key_parts_are_same(key1, key2, offsetof(uct_cuda_ipc_packed_t, base), by) &&
           uct_cuda_key_parts_are_same(key1, key2, by + door, sizeof(*key1));
}

/* The queue's context, for one more mapping; NULL: it cannot be used. The lock is held, but not
 * while the context is marked: that another thread may have marked it too by then does no harm. */
static uct_cuda_ipc_context_t *uct_cuda_ipc_context_get(const uct_cuda_driver_t *driver,
                                                        uct_cuda_ipc_md_t *md,
                                                        const uct_cuda_queue_t *queue)
{
    const uct_cuda_context_t *wanted = &queue->context;
    uct_cuda_ipc_context_t *context;
    uct_cuda_scope_t scope;
    ucs_status_t status;

    ucs_list_for_each(context, &md->contexts, list) {
        if (uct_cuda_context_is(driver, &context->base, wanted->ctx, wanted->id)) {
            ++context->refs;
            return context;
        }
    }
    context = ucs_sys_calloc(1, sizeof(*context));
    if (context == NULL) {
        return NULL;
    }
    pthread_mutex_unlock(&md->lock);
    status = uct_cuda_context_enter(&scope, driver, wanted);
    if (status == UCS_OK) {
        uct_cuda_context_init(driver, wanted->ctx, wanted->id, &context->base);
        uct_cuda_leave(&scope);
    }
    pthread_mutex_lock(&md->lock);
    if (status != UCS_OK) {
        ucs_sys_free(context);
        return NULL;
    }
    context->refs = 1;
    ucs_list_add_tail(&md->contexts, &context->list);
    return context;
}

/* One mapping less. Without the lock. */
static void uct_cuda_ipc_context_put(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                                     uct_cuda_ipc_context_t *context)
{
    uct_cuda_scope_t scope;
    int is_last, has_gone, is_alive;

    pthread_mutex_lock(&md->lock);
    is_last = (--context->refs == 0);
    if (is_last) {
        ucs_list_del(&context->list);
    }
    pthread_mutex_unlock(&md->lock);
    if (!is_last) {
        return;
    }
    has_gone = uct_cuda_context_has_gone(driver, &context->base);
    is_alive = !has_gone && !context->is_stuck &&
               (uct_cuda_context_enter(&scope, driver, &context->base) == UCS_OK);
    uct_cuda_words_cleanup(driver, context, is_alive, has_gone);
    uct_cuda_context_cleanup(driver, &context->base, is_alive, has_gone);
    if (is_alive) {
        uct_cuda_leave(&scope);
    }
    ucs_sys_free(context);
}

/* Takes it out of the table; to `dead` if nobody uses it. The lock is held. */
static void uct_cuda_mapping_retire(uct_cuda_mapping_t *mapping, ucs_list_link_t *dead)
{
    uct_cuda_ipc_md_t *md = mapping->md;

    ucs_hash_del(&md->mapping_of, uct_cuda_mapping_slot(&mapping->key, mapping->context->base.ctx));
    ucs_list_del(&mapping->list);
    --md->num_mappings;
    if (mapping->status == UCS_OK) {
        md->mapped -= mapping->key.size;
    }
    mapping->is_stale = 1;
    if (mapping->refs == 0) {
        ucs_list_add_tail(dead, &mapping->list);
    }
}

/* In the context that is current. */
static int uct_cuda_mapping_close(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    if (mapping->key.kind == UCT_CUDA_IPC_PIECE) {
        return uct_cuda_piece_close(driver, mapping->ptr, mapping->key.size);
    }
    return (mapping->key.kind == UCT_CUDA_IPC_LEGACY) ? driver->cuIpcCloseMemHandle(mapping->ptr) :
           uct_cuda_pool_close(driver, mapping->md, mapping->pool, mapping->ptr);
}

/* Pieces and what comes from pools belong to no context, so they outlive that in which they were
 * mapped. */
static int uct_cuda_mapping_is_left(const uct_cuda_driver_t *driver,
                                    const uct_cuda_mapping_t *mapping)
{
    uct_cuda_place_t place;

    return (mapping->key.kind != UCT_CUDA_IPC_LEGACY) && (mapping->place_id != 0) &&
           (uct_cuda_place_query(driver, (void *)(uintptr_t)mapping->ptr, &place) == UCS_OK) &&
           (place.id == mapping->place_id);
}

/* Of what is not mapped. */
static void uct_cuda_mapping_drop_pool(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    if (mapping->pool != NULL) {
        (void)uct_cuda_pool_close(driver, mapping->md, mapping->pool, 0);
        mapping->pool = NULL;
    }
}

/* Without the lock. */
static void uct_cuda_mapping_unmap(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    int result = UCT_CU_SUCCESS;
    uct_cuda_scope_t scope;
    uct_cu_ctx_t other;
    int is_inside;

    uct_cuda_trial_end(driver, mapping);
    if (mapping->ptr == 0) {
        return;
    }
    /* In another context at the same place the address may belong to another mapping. An error is
     * believed when it is said twice: what is not closed now stays mapped. */
    is_inside = (uct_cuda_context_enter(&scope, driver, &mapping->context->base) == UCS_OK) ||
                (uct_cuda_context_enter(&scope, driver, &mapping->context->base) == UCS_OK);
    if (is_inside || uct_cuda_mapping_is_left(driver, mapping)) {
        if (!is_inside && (uct_cuda_device_context(driver, -1, &other) == UCS_OK)) {
            is_inside = (uct_cuda_enter(&scope, driver, other) == UCS_OK);
        }
        result        = uct_cuda_mapping_close(driver, mapping);
        mapping->pool = NULL;
        if (is_inside) {
            uct_cuda_leave(&scope);
        }
    }
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DIAG, "closing a mapping", result);
    }
    mapping->ptr = 0;
    uct_cuda_mapping_drop_pool(driver, mapping);
}

/* Without the lock. */
static void uct_cuda_mapping_free(uct_cuda_mapping_t *mapping)
{
    if (mapping->ptr != 0) {
        uct_cuda_mapping_unmap(uct_cuda_driver(), mapping);
    }
    uct_cuda_mapping_drop_pool(uct_cuda_driver(), mapping);
    uct_cuda_ipc_context_put(uct_cuda_driver(), mapping->md, mapping->context);
    if (mapping->question >= 0) {
        uct_descriptor_hang_up(&mapping->question);
    }
    uct_cuda_descriptors_close(mapping);
    ucs_sys_free(mapping);
}

static void uct_cuda_mappings_free(ucs_list_link_t *dead)
{
    while (!ucs_list_is_empty(dead)) {
        uct_cuda_mapping_free(ucs_list_extract_head(dead, uct_cuda_mapping_t, list));
    }
}

void uct_cuda_ipc_rkey_forget(uct_rkey_t *rkey)
{
    const uct_cuda_ipc_packed_t *key = &uct_cuda_ipc_rkey(rkey)->key;
    uct_cuda_ipc_md_t *md            = uct_cuda_ipc_md(rkey->md);
    uct_cuda_mapping_t *mapping, *tmp;
    ucs_list_link_t dead;

    ucs_list_head_init(&dead);
    pthread_mutex_lock(&md->lock);
    ucs_list_for_each_safe(mapping, tmp, &md->mappings, list) {
        if (uct_cuda_key_is_same(&mapping->key, key)) {
            uct_cuda_mapping_retire(mapping, &dead);
        }
    }
    pthread_mutex_unlock(&md->lock);
    uct_cuda_mappings_free(&dead);
}

void uct_cuda_mappings_cleanup(uct_cuda_ipc_md_t *md)
{
    uct_cuda_mapping_t *mapping, *tmp;
    ucs_list_link_t dead;

    ucs_list_head_init(&dead);
    ucs_list_for_each_safe(mapping, tmp, &md->mappings, list) {
        if (mapping->refs > 0) { /* by a copy that did not end: the device keeps it */
            mapping->refs              = 0;
            mapping->ptr               = 0;
            mapping->context->is_stuck = 1;
        }
        uct_cuda_mapping_retire(mapping, &dead);
    }
    uct_cuda_mappings_free(&dead);
    ucs_hash_cleanup(&md->mapping_of);
}

/* Does the newer key show that the allocation of the older one is gone? Ranges of several pieces
 * may share some, and a probe has no place. */
static int uct_cuda_key_replaces(const uct_cuda_ipc_packed_t *key, const uct_cuda_ipc_packed_t *old)
{
    if ((old->instance != key->instance) || (old->id == key->id) || uct_cuda_key_is_probe(old) ||
        uct_cuda_key_is_probe(key)) {
        return 0;
    }
    return ((old->count <= 1) && (key->count <= 1)) ?
           (old->base < key->base + key->size) && (key->base < old->base + old->size) :
           (old->base == key->base) && (old->size == key->size);
}

/* Has it gone with the context that it was made in? Those of the newest one's have not. */
static int uct_cuda_mapping_is_lost(const uct_cuda_driver_t *driver,
                                    const uct_cuda_mapping_t *mapping,
                                    const uct_cuda_mapping_t *newest)
{
    return (mapping->context != newest->context) &&
           uct_cuda_context_has_gone(driver, &mapping->context->base);
}

/* Is it certain that the owner's process has gone? Nobody else says so of a probe, or of memory
 * that was put to and got from. */
static int uct_cuda_mapping_is_left_over(const uct_cuda_mapping_t *mapping)
{
    int process;

    if (mapping->key.pid_ns != mapping->md->pid_ns) {
        return 0; /* that number means another process here */
    }
    process = ucs_sys_pidfd_open((pid_t)mapping->key.pid, 0);
    if (process >= 0) {
        ucs_sys_close(process);
    }
    return (process < 0) && (errno == ESRCH);
}

/* What the new mapping shows to be gone, what is beyond the bounds, what was made in a context that
 * is gone or belongs to a process that is, and questions that were not answered in time; until then
 * they stay, as several that put each other out would be asked for ever. The lock is held. */
static void uct_cuda_mappings_trim(uct_cuda_ipc_md_t *md, const uct_cuda_mapping_t *newest,
                                   ucs_list_link_t *dead)
{
    const uct_cuda_driver_t *driver     = uct_cuda_driver();
    const uct_cuda_ipc_config_t *config = md->super.config;
    const uint64_t now                  = ucs_sys_clock_ns();
    const int is_due                    = (now - md->looked_ns > UCT_CUDA_LOOK_NS);
    uct_cuda_mapping_t *mapping, *tmp;

    md->looked_ns = is_due ? now : md->looked_ns;
    ucs_list_for_each_safe(mapping, tmp, &md->mappings, list) {
        if (uct_cuda_key_replaces(&newest->key, &mapping->key) ||
            ((mapping->refs == 0) && uct_cuda_mapping_is_lost(driver, mapping, newest)) ||
            ((mapping != newest) && (mapping->refs == 0) && (mapping->trial == NULL) &&
             ((mapping->question < 0) || (now > mapping->until_ns)) &&
             ((md->num_mappings > config->max_mappings) || (md->mapped > config->max_mapped) ||
              (is_due && uct_cuda_mapping_is_left_over(mapping)) ||
              ((mapping->question >= 0) && !uct_cuda_key_is_probe(&mapping->key))))) {
            uct_cuda_mapping_retire(mapping, dead);
        }
    }
}

/* One line a reason: what fails for one buffer fails for all of its kind. */
static void uct_cuda_import_refused(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                    const uct_cuda_ipc_packed_t *key, int result)
{
    const unsigned reason = (unsigned)result % UCT_CUDA_RESULT_MAX;
    int level;

    pthread_mutex_lock(&md->lock);
    level              = md->warned[reason] ? UCS_LOG_LEVEL_DEBUG : UCS_LOG_LEVEL_WARN;
    md->warned[reason] = 1;
    pthread_mutex_unlock(&md->lock);
    ucs_log(level, "device memory of process %u cannot be mapped and is staged instead", key->pid);
    (void)uct_cuda_failed(driver, level, "mapping it", result);
}

int uct_cuda_is_mapped(const uct_cuda_driver_t *driver, uct_cu_ptr_t ptr, size_t length)
{
    const void *address = (void *)(uintptr_t)ptr;
    uct_cuda_place_t place;

    return (uct_cuda_place_query(driver, address, &place) == UCS_OK) &&
           uct_cuda_place_covers(&place, address, length);
}

/* Maps memory by the driver's own handle, in the context that is current. */
static int uct_cuda_legacy_open(const uct_cuda_driver_t *driver, const uct_cuda_ipc_packed_t *key,
                                uct_cu_ptr_t *ptr_p)
{
    uct_cu_ptr_t ptr = 0;
    uct_cu_ipc_handle_t handle;
    int result;

    memcpy(&handle, key->by.legacy.handle, sizeof(handle));
    result = driver->cuIpcOpenMemHandle(&ptr, handle, UCT_CU_IPC_LAZY_PEER);
    if ((result == UCT_CU_SUCCESS) && !uct_cuda_is_mapped(driver, ptr, key->size)) {
        driver->cuIpcCloseMemHandle(ptr);
        result = UCT_CU_INVALID_VALUE;
    }
    *ptr_p = (result == UCT_CU_SUCCESS) ? ptr : 0;
    return result;
}

/* Maps it. Without the lock. */
static ucs_status_t uct_cuda_import_open(const uct_cuda_driver_t *driver,
                                         uct_cuda_mapping_t *mapping)
{
    const uct_cuda_ipc_packed_t *key = &mapping->key;
    int result                       = UCT_CU_SUCCESS;
    uct_cuda_place_t place;
    uct_cuda_scope_t scope;
    ucs_status_t status;

    uct_cuda_pool_hold(driver, mapping);
    if ((mapping->pool != NULL) && (mapping->question >= 0)) { /* another's answer has served */
        uct_descriptor_hang_up(&mapping->question);
    }
    if ((key->kind != UCT_CUDA_IPC_LEGACY) && (mapping->pool == NULL)) {
        status = uct_cuda_descriptors_get(mapping);
        if (status != UCS_OK) {
            if ((status != UCS_ERR_NO_RESOURCE) && (status != UCS_ERR_TIMED_OUT)) {
                uct_cuda_descriptors_close(mapping);
            }
            return status;
        }
    } else if ((key->kind == UCT_CUDA_IPC_LEGACY) && (key->pid_ns != mapping->md->pid_ns)) {
        /* That number means another process here. */
        ucs_warn_once("device memory of process %u is staged: it counts processes differently",
                      key->pid);
        return UCS_ERR_UNREACHABLE;
    }
    if (uct_cuda_context_enter(&scope, driver, &mapping->context->base) == UCS_OK) {
        result = (key->kind == UCT_CUDA_IPC_LEGACY) ?
                 uct_cuda_legacy_open(driver, key, &mapping->ptr) :
                 (key->kind == UCT_CUDA_IPC_PIECE) ?
                 uct_cuda_piece_open(driver, mapping, &mapping->ptr) :
                 uct_cuda_pool_open(driver, mapping);
        uct_cuda_leave(&scope);
    }
    uct_cuda_descriptors_close(mapping);
    if (result != UCT_CU_SUCCESS) {
        uct_cuda_import_refused(mapping->md, driver, key, result);
    } else if (uct_cuda_place_query(driver, (void *)(uintptr_t)mapping->ptr, &place) == UCS_OK) {
        mapping->place_id = place.id;
        mapping->is_whole = (mapping->key.kind != UCT_CUDA_IPC_POOL) &&
                            uct_cuda_place_covers(&place, (void *)(uintptr_t)mapping->ptr,
                                                  mapping->key.size);
    }
    return ((result == UCT_CU_SUCCESS) && (mapping->ptr != 0)) ? UCS_OK : UCS_ERR_UNREACHABLE;
}

/* The first memory of an owner that is mapped, of each kind, is its probe. */
static ucs_status_t uct_cuda_import_prove(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                                          const uct_cuda_ipc_packed_t *key,
                                          uct_cuda_queue_t *queue)
{
    uct_cuda_ipc_packed_t probe;
    uct_cuda_mapping_t *mapping;
    ucs_status_t status;

    if (uct_cuda_key_is_probe(key) || (key->probe == 0)) {
        return UCS_OK;
    }
    uct_cuda_probe_key(key, &probe);
    status = uct_cuda_mapping_get(driver, md, &probe, queue, &mapping);
    if (status == UCS_OK) {
        uct_cuda_mapping_put(mapping);
    }
    return status;
}

/* That may be over after a while; lost data is not. */
static int uct_cuda_is_refusal(ucs_status_t status)
{
    return (status == UCS_ERR_UNREACHABLE) || (status == UCS_ERR_NOT_CONNECTED);
}

/* Opens the mapping that is being opened, for one more user. Without the lock. */
static ucs_status_t uct_cuda_mapping_open(const uct_cuda_driver_t *driver,
                                          uct_cuda_mapping_t *mapping, uct_cuda_queue_t *queue,
                                          uct_cuda_mapping_t **mapping_p)
{
    uct_cuda_ipc_md_t *md = mapping->md;
    int is_probe          = uct_cuda_key_is_probe(&mapping->key);
    ucs_list_link_t dead;
    ucs_status_t status;

    status = uct_cuda_import_prove(driver, md, &mapping->key, queue);
    if ((status == UCS_OK) && (mapping->ptr == 0)) {
        status = uct_cuda_import_open(driver, mapping);
    }
    if ((status == UCS_OK) && is_probe) {
        status = uct_cuda_probe_prove(driver, mapping);
        if ((status != UCS_OK) && (mapping->trial == NULL)) {
            uct_cuda_mapping_unmap(driver, mapping);
        }
    }

    if ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE) && (status != UCS_ERR_TIMED_OUT)) {
        uct_cuda_mapping_drop_pool(driver, mapping);
    }

    ucs_list_head_init(&dead);
    pthread_mutex_lock(&md->lock);
    --md->num_opening;
    mapping->status = (status == UCS_ERR_TIMED_OUT) ? UCS_ERR_NO_RESOURCE : status;
    if (uct_cuda_is_refusal(status)) {
        mapping->until_ns = ucs_sys_clock_ns() + UCT_CUDA_IMPORT_AGAIN_NS;
    }
    if (is_probe && (mapping->status != UCS_ERR_NO_RESOURCE) && (status != UCS_ERR_REJECTED) &&
        (status != UCS_OK) && !mapping->is_stale) {
        uct_cuda_mapping_retire(mapping, &dead); /* for other memory it is tried again */
    }
    if ((status == UCS_OK) && !mapping->is_stale) {
        md->mapped += mapping->key.size;
        uct_cuda_mappings_trim(md, mapping, &dead);
    }
    pthread_mutex_unlock(&md->lock);
    uct_cuda_mappings_free(&dead);
    if (status != UCS_OK) {
        uct_cuda_mapping_put(mapping);
        return status;
    }
    *mapping_p = mapping;
    return UCS_OK;
}

/* The lock is held, and released. */
static UCS_NOINLINE ucs_status_t uct_cuda_mapping_make(const uct_cuda_driver_t *driver,
                                                       uct_cuda_ipc_md_t *md,
                                                       const uct_cuda_ipc_packed_t *key,
                                                       uct_cuda_queue_t *queue,
                                                       uct_cuda_mapping_t **mapping_p)
{
    const size_t size           = key->count * sizeof(uct_cuda_descriptor_t);
    uct_cuda_mapping_t *mapping = ucs_sys_calloc(1, sizeof(*mapping) + size);
    ucs_list_link_t dead;
    uint64_t slot;
    int is_there;

    if (mapping == NULL) {
        pthread_mutex_unlock(&md->lock);
        return UCS_ERR_UNREACHABLE;
    }
    mapping->context = uct_cuda_ipc_context_get(driver, md, queue);
    if (mapping->context == NULL) {
        pthread_mutex_unlock(&md->lock);
        ucs_sys_free(mapping);
        return UCS_ERR_UNREACHABLE; /* of this memory: the peer's other is not refused for it */
    }
    mapping->md       = md;
    mapping->key      = *key;
    mapping->refs     = 1;
    mapping->question = -1;
    mapping->status   = UCS_INPROGRESS;
    slot              = uct_cuda_mapping_slot(key, queue->context.ctx);
    is_there          = (ucs_hash_get_ptr(&md->mapping_of, slot) != NULL);
    if (is_there || (ucs_hash_insert(&md->mapping_of, slot, (uintptr_t)mapping) != UCS_OK)) {
        pthread_mutex_unlock(&md->lock);
        uct_cuda_ipc_context_put(driver, md, mapping->context);
        ucs_sys_free(mapping);
        return is_there ? UCS_ERR_NO_RESOURCE : UCS_ERR_UNREACHABLE; /* another thread's */
    }
    ucs_list_add_tail(&md->mappings, &mapping->list);
    ++md->num_mappings;
    ++md->num_opening;
    ucs_list_head_init(&dead);
    uct_cuda_mappings_trim(md, mapping, &dead);
    pthread_mutex_unlock(&md->lock);

    /* First what is old goes: it may be in the way. Its pool stays if it is that of the new. */
    uct_cuda_pool_hold(driver, mapping);
    uct_cuda_mappings_free(&dead);
    return uct_cuda_mapping_open(driver, mapping, queue, mapping_p);
}

/* Another door is asked once a key comes that names it, where one is closed, or nobody answers in
 * time. 1: the mapping is to be tried (again). The lock is held, and nobody else opens it. */
static int uct_cuda_mapping_may_open(uct_cuda_mapping_t *mapping, const uct_cuda_ipc_packed_t *key)
{
    const int is_closed = (mapping->status == UCS_ERR_NOT_CONNECTED);
    const int is_due    = uct_cuda_is_refusal(mapping->status) &&
                          (ucs_sys_clock_ns() > mapping->until_ns);

    if (!is_due && !is_closed && (mapping->status != UCS_ERR_NO_RESOURCE)) {
        return 0;
    }
    if (is_due) {
        mapping->until_ns = 0;
    }
    if ((key->kind == UCT_CUDA_IPC_LEGACY) || (mapping->key.by.shown.name == key->by.shown.name)) {
        return is_due || !is_closed;
    }
    if (mapping->question >= 0) {
        if (ucs_sys_clock_ns() <= mapping->until_ns) {
            return 1;
        }
        uct_descriptor_hang_up(&mapping->question);
        mapping->until_ns = 0;
    }
    if (is_closed) {
        mapping->until_ns = 0;
    }
    mapping->key.place         = key->place;
    mapping->key.by.shown.name = key->by.shown.name;
    return 1;
}

ucs_status_t uct_cuda_mapping_get(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                                  const uct_cuda_ipc_packed_t *key, uct_cuda_queue_t *queue,
                                  uct_cuda_mapping_t **mapping_p)
{
    uct_cuda_mapping_t *mapping;
    ucs_list_link_t dead;
    ucs_status_t status;

    pthread_mutex_lock(&md->lock);
    mapping = ucs_hash_get_ptr(&md->mapping_of, uct_cuda_mapping_slot(key, queue->context.ctx));
    if (ucs_likely((mapping != NULL) &&
                   uct_cuda_context_is(driver, &mapping->context->base, queue->context.ctx,
                                       queue->context.id) &&
                   uct_cuda_key_is_same(&mapping->key, key))) {
        status = (mapping->status == UCS_INPROGRESS) ? UCS_ERR_NO_RESOURCE : mapping->status;
        if (status == UCS_OK) {
            ++mapping->refs;
            *mapping_p = mapping;
        }
        ucs_list_del(&mapping->list);
        ucs_list_add_tail(&md->mappings, &mapping->list);
        if (ucs_unlikely(status != UCS_OK) && uct_cuda_mapping_may_open(mapping, key)) {
            mapping->status = UCS_INPROGRESS;
            ++mapping->refs;
            ++md->num_opening;
            pthread_mutex_unlock(&md->lock);
            return uct_cuda_mapping_open(driver, mapping, queue, mapping_p);
        }
        pthread_mutex_unlock(&md->lock);
        return status;
    }
    ucs_list_head_init(&dead);
    if (mapping != NULL) {
        uct_cuda_mapping_retire(mapping, &dead);
        pthread_mutex_unlock(&md->lock);
        uct_cuda_mappings_free(&dead);
        return uct_cuda_mapping_get(driver, md, key, queue, mapping_p);
    }
    return uct_cuda_mapping_make(driver, md, key, queue, mapping_p);
}

void uct_cuda_mapping_put(void *arg)
{
    uct_cuda_mapping_t *mapping = arg;
    uct_cuda_ipc_md_t *md       = mapping->md;
    int is_last;

    pthread_mutex_lock(&md->lock);
    is_last = (--mapping->refs == 0) && mapping->is_stale;
    pthread_mutex_unlock(&md->lock);
    if (ucs_unlikely(is_last)) {
        uct_cuda_mapping_free(mapping);
    }
}
