/* Halyard: cuda: finding the driver, contexts, and what it says of addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_driver.h>

#define UCS_LOG_COMPONENT "cuda"
#include <ucs/arch/atomic.h>
#include <ucs/ds/hash.h>
#include <ucs/debug/log.h>
#include <ucs/sys/library.h>
#include <ucs/sys/sys.h>

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <stdatomic.h>

#define UCT_CUDA_LIBRARY      "libcuda.so.1"
#define UCT_CUDA_LIBRARY_STEM 10 /* characters that all names of its file begin with */

/* ------------------------------------------------------------------ the library */

/* Pair R14/A14: whoever sees the pointer sees the table filled. */
static _Atomic(uct_cuda_driver_t *) uct_cuda_loaded;

/* Libraries that this process had ever loaded when the driver was looked for in vain. */
static _Atomic unsigned long long uct_cuda_looked;

#define UCT_CUDA_CALL_FUNCTION(_required, _field, _symbol, _parameters) \
    {_symbol, offsetof(uct_cuda_driver_t, _field), !(_required)},

static const ucs_library_function_t uct_cuda_functions[] = {UCT_CUDA_CALLS(UCT_CUDA_CALL_FUNCTION)};

int uct_cuda_is_possible(void)
{
    static const char *const nodes[] = {
        "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvhost-ctrl-gpu"
    };
    struct stat st;
    unsigned i;

    for (i = 0; i < ucs_array_size(nodes); ++i) {
        if (ucs_sys_stat(nodes[i], &st) == 0) {
            return 1;
        }
    }
    return uct_cuda_driver() != NULL;
}

typedef struct {
    unsigned long long loaded;   /* libraries, ever */
    int                is_found; /* the driver among them */
} uct_cuda_look_t;

/* Not zero: no need to look at more of them. */
static int uct_cuda_look_at(struct dl_phdr_info *info, size_t size UCS_UNUSED, void *arg)
{
    uct_cuda_look_t *look = arg;
    const char *slash     = strrchr(info->dlpi_name, '/');
    const char *name      = (slash == NULL) ? info->dlpi_name : slash + 1;

    look->loaded   = info->dlpi_adds;
    look->is_found = (strncmp(name, UCT_CUDA_LIBRARY, UCT_CUDA_LIBRARY_STEM) == 0);
    return look->is_found || (look->loaded == ucs_atomic_load_relaxed(&uct_cuda_looked));
}

/* NULL: it is not there, or not whole. */
static uct_cuda_driver_t *uct_cuda_load(void)
{
    uct_cuda_driver_t *table;
    char reason[96];
    void *library;

    /* The library stays loaded: its functions may be in use anywhere. */
    library = ucs_sys_dlopen(UCT_CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    table   = (library == NULL) ? NULL : ucs_sys_calloc(1, sizeof(*table));
    if (table == NULL) {
        return NULL;
    }
    if (!ucs_library_find(library, UCT_CUDA_LIBRARY, uct_cuda_functions,
                          ucs_array_size(uct_cuda_functions), table, reason, sizeof(reason))) {
        ucs_diag_once("the CUDA driver is not used: %s", reason);
        ucs_sys_free(table);
        return NULL;
    }
    return table;
}

/* Messages must not wait for somebody's dlopen, which may take long or wait for them itself: the
 * list of what is loaded is looked at first, which takes none of its locks. */
static const uct_cuda_driver_t *uct_cuda_find(void)
{
    uct_cuda_driver_t *driver = NULL;
    uct_cuda_driver_t *first  = NULL;
    uct_cuda_look_t look      = {0, 0};

    dl_iterate_phdr(uct_cuda_look_at, &look);
    if (look.is_found) {
        driver = uct_cuda_load();
    }
    if (driver == NULL) {
        ucs_atomic_store_relaxed(&uct_cuda_looked, look.loaded);
    } else if (!ucs_atomic_cas(&uct_cuda_loaded, &first, driver)) { /* R14 */
        ucs_sys_free(driver); /* another thread was faster */
        driver = first;
    }
    return driver;
}

const uct_cuda_driver_t *uct_cuda_driver(void)
{
    const uct_cuda_driver_t *driver = ucs_atomic_load_acquire(&uct_cuda_loaded); /* A14 */

    return ucs_likely(driver != NULL) ? driver : uct_cuda_find();
}

int uct_cuda_query(const uct_cuda_driver_t *driver, uct_cu_event_t event, uct_cu_stream_t stream)
{
    int result = UCT_CU_NOT_READY;
    int i;

    for (i = 0; i < 2; ++i) {
        result = (event != NULL) ? driver->cuEventQuery(event) : driver->cuStreamQuery(stream);
        if (ucs_likely((result == UCT_CU_SUCCESS) || (result == UCT_CU_NOT_READY))) {
            break;
        }
    }
    return result;
}

ucs_status_t uct_cuda_failed(const uct_cuda_driver_t *driver, int level, const char *call,
                             int result)
{
    const char *name = NULL;

    if (result != UCT_CU_DEINITIALIZED) {
        if ((driver->cuGetErrorName == NULL) || (driver->cuGetErrorName(result, &name) != 0) ||
            (name == NULL)) {
            name = "unknown";
        }
        ucs_log(level, "%s failed: CUDA error %d (%s)", call, result, name);
    }
    return ((result == UCT_CU_NOT_INITIALIZED) || (result == UCT_CU_DEINITIALIZED)) ?
           UCS_ERR_NO_DEVICE :
           (result == UCT_CU_OUT_OF_MEMORY) ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
}

/* ------------------------------------------------------------------ contexts */

ucs_status_t uct_cuda_relax(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver)
{
    int result;

    scope->driver = driver;
    scope->mode   = UCT_CU_CAPTURE_RELAXED;
    result        = driver->cuThreadExchangeStreamCaptureMode(&scope->mode);
    return ucs_likely(result == UCT_CU_SUCCESS) ? UCS_OK :
           uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuThreadExchangeStreamCaptureMode",
                           result);
}

void uct_cuda_restore(const uct_cuda_scope_t *scope)
{
    int mode = scope->mode;

    scope->driver->cuThreadExchangeStreamCaptureMode(&mode);
}

ucs_status_t uct_cuda_enter(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver,
                            uct_cu_ctx_t ctx)
{
    ucs_status_t status = uct_cuda_relax(scope, driver);
    int result;

    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }
    result = driver->cuCtxPushCurrent(ctx);
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        uct_cuda_restore(scope);
        return uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuCtxPushCurrent", result);
    }
    return UCS_OK;
}

void uct_cuda_leave(const uct_cuda_scope_t *scope)
{
    uct_cu_ctx_t ctx;

    scope->driver->cuCtxPopCurrent(&ctx);
    uct_cuda_restore(scope);
}

/* The primary context's address stays the same while anybody uses it, so it need not be held. */
static int uct_cuda_primary_context(const uct_cuda_driver_t *driver, int device,
                                    uct_cu_ctx_t *ctx_p)
{
    int active = 0;
    unsigned flags;

    if ((driver->cuDevicePrimaryCtxGetState(device, &flags, &active) != UCT_CU_SUCCESS) ||
        !active || (driver->cuDevicePrimaryCtxRetain(ctx_p, device) != UCT_CU_SUCCESS)) {
        return 0;
    }
    driver->cuDevicePrimaryCtxRelease(device);
    return 1;
}

int uct_cuda_current_context(const uct_cuda_driver_t *driver, uct_cu_ctx_t *ctx_p, int *device_p)
{
    return (driver->cuCtxGetCurrent(ctx_p) == UCT_CU_SUCCESS) && (*ctx_p != NULL) &&
           (driver->cuCtxGetDevice(device_p) == UCT_CU_SUCCESS);
}

ucs_status_t uct_cuda_device_context(const uct_cuda_driver_t *driver, int device,
                                     uct_cu_ctx_t *ctx_p)
{
    uct_cu_ctx_t ctx = NULL;
    int current, count, i;

    if (uct_cuda_current_context(driver, &ctx, &current) &&
        ((device < 0) || (current == device))) {
        *ctx_p = ctx;
        return UCS_OK;
    }
    if (device >= 0) {
        return uct_cuda_primary_context(driver, device, ctx_p) ? UCS_OK : UCS_ERR_UNREACHABLE;
    }
    if (driver->cuDeviceGetCount(&count) != UCT_CU_SUCCESS) {
        return UCS_ERR_UNREACHABLE;
    }
    for (i = 0; i < count; ++i) {
        if (uct_cuda_primary_context(driver, i, ctx_p)) {
            return UCS_OK;
        }
    }
    return UCS_ERR_UNREACHABLE;
}

ucs_status_t uct_cuda_context_id(const uct_cuda_driver_t *driver, uct_cu_ctx_t ctx, uint64_t *id_p)
{
    unsigned long long id = 0;
    int result;

    result = (driver->cuCtxGetId == NULL) ? UCT_CU_SUCCESS : driver->cuCtxGetId(ctx, &id);
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        return uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuCtxGetId", result);
    }
    *id_p = id;
    return UCS_OK;
}

ucs_status_t uct_cuda_device_uuid(const uct_cuda_driver_t *driver, int device, uct_cu_uuid_t *uuid)
{
    int result = UCT_CU_INVALID_VALUE;

    /* The later call tells parts of a divided device apart. */
    if (driver->cuDeviceGetUuid2 != NULL) {
        result = driver->cuDeviceGetUuid2(uuid, device);
    } else if (driver->cuDeviceGetUuid != NULL) {
        result = driver->cuDeviceGetUuid(uuid, device);
    }
    return (result == UCT_CU_SUCCESS) ? UCS_OK :
           uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuDeviceGetUuid", result);
}

uint64_t uct_cuda_device_uid(const uct_cuda_driver_t *driver, int device)
{
    static _Atomic uint64_t uids[UCT_CUDA_DEVICES_MAX]; /* the same whoever asks; 0: not asked */
    uct_cu_uuid_t uuid;
    uint64_t words[2];
    uint64_t uid;

    if ((device < 0) || (device >= UCT_CUDA_DEVICES_MAX)) {
        return 0;
    }
    uid = atomic_load_explicit(&uids[device], memory_order_relaxed);
    if (ucs_likely(uid != 0) || (uct_cuda_device_uuid(driver, device, &uuid) != UCS_OK)) {
        return uid;
    }
    memcpy(words, &uuid, sizeof(words));
    uid = ucs_hash_mix(words[0] ^ ucs_hash_mix(words[1]));
    atomic_store_explicit(&uids[device], uid, memory_order_relaxed);
    return uid;
}

/* ------------------------------------------------------------------ addresses */

/* See uct_cuda_place_query. Memory that does not take the attribute is not asked to again. */
static UCS_COLD void uct_cuda_place_set_sync(const uct_cuda_driver_t *driver, const void *address,
                                             uint64_t id)
{
    static _Atomic uint64_t tried[64];
    unsigned is_sync = 1;
    uct_cuda_scope_t scope;

    if (atomic_exchange_explicit(&tried[id % ucs_array_size(tried)], id, memory_order_relaxed) ==
        id) {
        return;
    }
    if (uct_cuda_relax(&scope, driver) == UCS_OK) {
        (void)driver->cuPointerSetAttribute(&is_sync, UCT_CU_POINTER_SYNC_MEMOPS,
                                            (uintptr_t)address);
        uct_cuda_restore(&scope);
    }
}

ucs_status_t uct_cuda_place_query(const uct_cuda_driver_t *driver, const void *address,
                                  uct_cuda_place_t *place)
{
    int attributes[] = {
        UCT_CU_POINTER_MEMORY_TYPE, UCT_CU_POINTER_IS_MANAGED,  UCT_CU_POINTER_BUFFER_ID,
        UCT_CU_POINTER_ORDINAL,     UCT_CU_POINTER_CONTEXT,     UCT_CU_POINTER_RANGE_START,
        UCT_CU_POINTER_RANGE_SIZE,  UCT_CU_POINTER_LEGACY_IPC,  UCT_CU_POINTER_SYNC_MEMOPS
    };
    unsigned type      = 0;
    unsigned managed   = 0;
    unsigned is_legacy = 0;
    unsigned is_sync   = 0;
    void *values[] = {
        &type, &managed, &place->id, &place->device, &place->ctx, &place->base, &place->length,
        &is_legacy, &is_sync
    };
    int result;

    memset(place, 0, sizeof(*place));
    result = driver->cuPointerGetAttributes(ucs_array_size(attributes), attributes, values,
                                            (uintptr_t)address);
    if (ucs_unlikely((result != UCT_CU_SUCCESS) && (result != UCT_CU_INVALID_VALUE))) {
        return uct_cuda_failed(driver,
                               (result == UCT_CU_NOT_INITIALIZED) ? UCS_LOG_LEVEL_TRACE :
                                                                    UCS_LOG_LEVEL_DEBUG,
                               "cuPointerGetAttributes", result);
    }

    place->is_legacy = is_legacy;
    if ((result != UCT_CU_SUCCESS) || (type == 0)) {
        place->kind   = UCT_CUDA_PAGEABLE;
        place->device = -1;
    } else if (managed) {
        place->kind = UCT_CUDA_MANAGED;
    } else {
        place->kind = (type == UCT_CU_MEMORY_HOST) ? UCT_CUDA_PINNED : UCT_CUDA_DEVICE;
    }
    if (ucs_unlikely((place->kind == UCT_CUDA_DEVICE) && !is_sync)) {
        uct_cuda_place_set_sync(driver, address, place->id);
    }
    return UCS_OK;
}

int uct_cuda_place_covers(const uct_cuda_place_t *place, const void *address, size_t length)
{
    const uint64_t offset = (uintptr_t)address - place->base;

    return (offset <= place->length) && (length <= (place->length - offset));
}

ucs_status_t uct_cuda_range_query(const uct_cuda_driver_t *driver, const void *address,
                                  size_t length, uct_cuda_place_t *place)
{
    ucs_status_t status = uct_cuda_place_query(driver, address, place);

    if ((status == UCS_OK) && (place->kind == UCT_CUDA_PINNED) &&
        !uct_cuda_place_covers(place, address, length)) {
        place->kind = UCT_CUDA_PAGEABLE;
    }
    return status;
}

ucs_status_t uct_cuda_place_context(const uct_cuda_driver_t *driver, const uct_cuda_place_t *place,
                                    uct_cu_ctx_t *ctx_p)
{
    ucs_status_t status;

    if (ucs_likely(place->ctx != NULL)) {
        *ctx_p = place->ctx;
        return UCS_OK;
    }
    status = uct_cuda_device_context(driver, place->device, ctx_p);
    if (ucs_unlikely(status != UCS_OK)) {
        ucs_warn_once("memory of device %d is not copied: it belongs to no CUDA context, none of "
                      "the device is current in this thread, and the primary one is not active",
                      place->device);
    }
    return status;
}

static unsigned uct_cuda_place_find_piece(const uct_cuda_driver_t *driver, const void *address,
                                          uct_cuda_place_t *place)
{
    int attributes[] = {
        UCT_CU_POINTER_POOL, UCT_CU_POINTER_MAPPING_BASE, UCT_CU_POINTER_MAPPING_SIZE,
        UCT_CU_POINTER_HANDLE_TYPES
    };
    uct_cu_ptr_t base   = 0;
    size_t length       = 0;
    uint64_t exportable = 0;
    void *values[]      = {&place->pool, &base, &length, &exportable};

    place->pieces = 1;
    /* Memory with a context, and memory of pools, is one piece; the pool's mapping is larger. */
    if ((place->kind != UCT_CUDA_DEVICE) || (place->ctx != NULL)) {
        return 0;
    }
    if (driver->cuPointerGetAttributes(ucs_array_size(attributes), attributes, values,
                                       (uintptr_t)address) != UCT_CU_SUCCESS) {
        place->pieces = 0;
        return 0;
    }
    if ((place->pool != NULL) || (length == 0)) {
        return 0;
    }
    place->base   = base;
    place->length = length;
    return (unsigned)exportable;
}

unsigned uct_cuda_place_narrow(const uct_cuda_driver_t *driver, const void *address, size_t length,
                               uct_cuda_place_t *place)
{
    const unsigned types   = uct_cuda_place_find_piece(driver, address, place);
    uct_cuda_place_t whole = *place;
    uct_cuda_place_t next;
    const void *end;

    while (((types & UCT_CU_HANDLE_DESCRIPTOR) != 0) &&
           !uct_cuda_place_covers(&whole, address, length)) {
        if (whole.pieces == UCT_CUDA_PIECES_MAX) {
            return types;
        }
        end = (void *)(uintptr_t)(whole.base + whole.length);
        if ((uct_cuda_place_query(driver, end, &next) != UCS_OK) ||
            ((uct_cuda_place_find_piece(driver, end, &next) & UCT_CU_HANDLE_DESCRIPTOR) == 0) ||
            (next.base != whole.base + whole.length) || (next.device != whole.device)) {
            place->pieces = next.pieces;
            return types;
        }
        whole.length += next.length;
        whole.id      = ucs_hash_mix(whole.id ^ ucs_hash_mix(next.id));
        ++whole.pieces;
    }
    *place = whole;
    return types;
}
