/* Halyard: cuda_ipc: memory of pools (cuMemAllocAsync) that were made to be exported.
 *
 * The pool is shown as a descriptor, its allocations by a few bytes of the driver's. The importer
 * opens a pool once for each device that copies, gives the device access, and lets go of it with
 * the last allocation that it has mapped; for another one before that no descriptor is needed. As
 * with handles of plain memory, the owner does not wait for that: it is the next key of memory at
 * that place which closes what was mapped, or the word that the memory is gone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

static int uct_cuda_pool_is_possible(const uct_cuda_driver_t *driver)
{
    return (driver->cuMemPoolExportToShareableHandle != NULL) &&
           (driver->cuMemPoolExportPointer != NULL) &&
           (driver->cuMemPoolImportFromShareableHandle != NULL) &&
           (driver->cuMemPoolImportPointer != NULL) && (driver->cuMemPoolSetAccess != NULL) &&
           (driver->cuMemPoolDestroy != NULL);
}

int uct_cuda_pool_export(const uct_cuda_driver_t *driver, uct_cuda_export_t *export)
{
    int result = UCT_CU_NOT_SUPPORTED;
    int fd     = -1;

    if (uct_cuda_pool_is_possible(driver)) {
        result = driver->cuMemPoolExportToShareableHandle(&fd, export->place.pool,
                                                          UCT_CU_HANDLE_DESCRIPTOR, 0);
    }
    /* A pool that was not made for it, as the driver's own. */
    if ((result == UCT_CU_INVALID_VALUE) || (result == UCT_CU_NOT_SUPPORTED)) {
        export->again_ns = UINT64_MAX;
    }
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemPoolExportPointer(&export->pointer, export->place.base);
        if (result != UCT_CU_SUCCESS) {
            ucs_sys_close(fd);
        }
    }
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "export of a pool", result);
        return -1;
    }
    return fd;
}

/* One user less. The lock is held. */
static int uct_cuda_pool_put(const uct_cuda_driver_t *driver, uct_cuda_pool_t *pool)
{
    int result = UCT_CU_SUCCESS;

    if (--pool->refs == 0) {
        ucs_list_del(&pool->list);
        result = driver->cuMemPoolDestroy(pool->pool);
        ucs_sys_free(pool);
    }
    return result;
}

/* Opens a pool, without user. The lock is held. */
static int uct_cuda_pool_import(const uct_cuda_driver_t *driver, uct_cuda_pool_t *pool, int fd)
{
    uct_cu_access_t access = {{UCT_CU_LOCATION_DEVICE, pool->device}, UCT_CU_ACCESS_READ_WRITE};
    int result;

    result = driver->cuMemPoolImportFromShareableHandle(&pool->pool, (void *)(intptr_t)fd,
                                                        UCT_CU_HANDLE_DESCRIPTOR, 0);
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemPoolSetAccess(pool->pool, &access, 1);
        if (result != UCT_CU_SUCCESS) {
            driver->cuMemPoolDestroy(pool->pool);
        }
    }
    return result;
}

/* The key's pool, for one more user; NULL: it is not open. The lock is held. */
static uct_cuda_pool_t *uct_cuda_pool_find(uct_cuda_ipc_md_t *md, const uct_cuda_ipc_packed_t *key,
                                           int device)
{
    uct_cuda_pool_t *pool;

    ucs_list_for_each(pool, &md->pools, list) {
        if ((pool->pid == key->pid) && (pool->instance == key->instance) &&
            (pool->number == key->by.shown.pool) && (pool->device == device)) {
            ++pool->refs;
            return pool;
        }
    }
    return NULL;
}

/* The same, opened if need be. */
static int uct_cuda_pool_get(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping,
                             int device)
{
    const uct_cuda_ipc_packed_t *key = &mapping->key;
    uct_cuda_pool_t *pool;
    int result;

    mapping->pool = uct_cuda_pool_find(mapping->md, key, device);
    if (mapping->pool != NULL) {
        return UCT_CU_SUCCESS;
    }
    pool = ucs_sys_calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return UCT_CU_OUT_OF_MEMORY;
    }
    pool->pid      = key->pid;
    pool->instance = key->instance;
    pool->number   = key->by.shown.pool;
    pool->device   = device;
    pool->refs     = 1;
    result         = uct_cuda_pool_import(driver, pool, mapping->descriptors[0].fd);
    if (result != UCT_CU_SUCCESS) {
        ucs_sys_free(pool);
        return result;
    }
    ucs_list_add_tail(&mapping->md->pools, &pool->list);
    mapping->pool = pool;
    return UCT_CU_SUCCESS;
}

void uct_cuda_pool_hold(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    uct_cuda_scope_t scope;
    int device;

    if ((mapping->key.kind != UCT_CUDA_IPC_POOL) || (mapping->pool != NULL) ||
        (uct_cuda_context_enter(&scope, driver, &mapping->context->base) != UCS_OK)) {
        return;
    }
    if (driver->cuCtxGetDevice(&device) == UCT_CU_SUCCESS) {
        pthread_mutex_lock(&mapping->md->pool_lock);
        mapping->pool = uct_cuda_pool_find(mapping->md, &mapping->key, device);
        pthread_mutex_unlock(&mapping->md->pool_lock);
    }
    uct_cuda_leave(&scope);
}

int uct_cuda_pool_open(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping)
{
    uct_cu_ptr_t ptr = 0;
    uct_cu_pool_pointer_t pointer;
    int device, result;

    if (!uct_cuda_pool_is_possible(driver)) {
        return UCT_CU_NOT_SUPPORTED;
    }
    memcpy(&pointer, mapping->key.by.shown.pointer, sizeof(pointer));
    result = driver->cuCtxGetDevice(&device);
    if (result != UCT_CU_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&mapping->md->pool_lock);
    if (mapping->pool == NULL) {
        result = uct_cuda_pool_get(driver, mapping, device);
    }
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemPoolImportPointer(&ptr, mapping->pool->pool, &pointer);
        if ((result == UCT_CU_SUCCESS) && !uct_cuda_is_mapped(driver, ptr, mapping->key.size)) {
            driver->cuMemFree(ptr);
            result = UCT_CU_INVALID_VALUE;
        }
        if (result == UCT_CU_SUCCESS) {
            mapping->ptr = ptr;
        }
    }
    pthread_mutex_unlock(&mapping->md->pool_lock);
    return result;
}

int uct_cuda_pool_close(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                        uct_cuda_pool_t *pool, uct_cu_ptr_t ptr)
{
    int freed = UCT_CU_SUCCESS;
    uct_cuda_scope_t scope;
    int result, is_relaxed;

    is_relaxed = (uct_cuda_relax(&scope, driver) == UCS_OK);
    if (ptr != 0) {
        freed = driver->cuMemFree(ptr);
    }
    pthread_mutex_lock(&md->pool_lock);
    result = uct_cuda_pool_put(driver, pool);
    pthread_mutex_unlock(&md->pool_lock);
    if (is_relaxed) {
        uct_cuda_restore(&scope);
    }
    return (freed != UCT_CU_SUCCESS) ? freed : result;
}
