/* Halyard: cuda_copy: memory of CUDA devices in this process: what it is, allocation, copies.
 *
 * How its caller uses it:
 *  - mem_query for any pointer; UCS_ERR_NO_DEVICE as long as the program has not initialised CUDA,
 *    which it may do at any time.
 *  - iface.copy between any two places of which one at least is device or managed memory. What it
 *    returns at once as an error has not happened; a refusal by the driver comes with the
 *    completion. Order does not matter, nor does the caller's context, but for memory of pools and
 *    mapped pieces, which have none: where the device's primary one is not active, one of the
 *    device has to be current in the thread, else UCS_ERR_UNREACHABLE (logged).
 *  - alloc with UCT_MEM_ALLOC_DEVICE, _MANAGED or _PINNED, in the context of the address given, or
 *    the one that is current in the thread. _PINNED is memory of our own, registered: what the
 *    driver allocates would vanish with the context. Where it may not be registered it is still
 *    memory, and copies are slower.
 *  - reg with memory of the host: it is registered with the driver, so copies need no processor.
 *    Release waits for the kernels that run then, as the driver does.
 *  - It has no endpoints and reaches nobody.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>
#include <uct/cuda/cuda_engine.h>

#define UCS_LOG_COMPONENT "cuda_copy"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

typedef struct {
    size_t host_reg_thresh; /* bytes */
} uct_cuda_copy_config_t;

static const ucs_config_row_t uct_cuda_copy_config_rows[] = {
    UCS_CONFIG_ROW("HOST_REG_THRESH", memunits, uct_cuda_copy_config_t, host_reg_thresh, "256k",
                   "Size from which memory of the host that the program maps (ucp_mem_map) is "
                   "registered with the driver; inf: never.", .flags = UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW_END
};

#define UCT_CUDA_COPY_USERS 0u /* not allocated here: the user's, registered */

typedef struct {
    uct_mem_t    super;
    uct_cu_ctx_t ctx; /* it was allocated in, or registered */
    uint64_t     id;  /* of the allocation */
    unsigned     how; /* UCT_MEM_ALLOC_xx, or USERS */
    int          is_registered;
} uct_cuda_copy_mem_t;

/* ------------------------------------------------------------------ memory domain */

static ucs_status_t uct_cuda_copy_mem_query(uct_md_t *md UCS_UNUSED, const void *address,
                                            size_t length, uct_mem_info_t *info_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cuda_place_t place;
    ucs_status_t status;

    if (driver == NULL) {
        return UCS_ERR_NO_DEVICE;
    }
    status = uct_cuda_place_query(driver, address, &place);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }
    if ((place.kind == UCT_CUDA_PAGEABLE) || (place.kind == UCT_CUDA_PINNED)) {
        info_p->type      = UCS_MEMORY_TYPE_HOST;
        info_p->is_pinned = (place.kind == UCT_CUDA_PINNED);
        return UCS_OK;
    }
    uct_cuda_place_narrow(driver, address, length, &place);
    info_p->type       = (place.kind == UCT_CUDA_MANAGED) ? UCS_MEMORY_TYPE_CUDA_MANAGED :
                                                            UCS_MEMORY_TYPE_CUDA;
    info_p->base       = (void *)(uintptr_t)place.base;
    info_p->length     = place.length;
    info_p->id         = place.id;
    info_p->device     = place.device;
    info_p->device_uid = (place.kind == UCT_CUDA_DEVICE) ?
                         uct_cuda_device_uid(driver, place.device) : 0;
    return UCS_OK;
}

/* The context to allocate in: that of the memory at `like`, or the current one. */
static ucs_status_t uct_cuda_copy_alloc_context(const uct_cuda_driver_t *driver, const void *like,
                                                uct_cu_ctx_t *ctx_p)
{
    uct_cuda_place_t place;
    ucs_status_t status;
    int device;

    if (like != NULL) {
        status = uct_cuda_place_query(driver, like, &place);
        return (status == UCS_OK) ? uct_cuda_place_context(driver, &place, ctx_p) : status;
    }
    if (!uct_cuda_current_context(driver, ctx_p, &device)) {
        ucs_error("device memory cannot be allocated: no CUDA context is current in this thread");
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

/* The context is current. */
static ucs_status_t uct_cuda_copy_make(const uct_cuda_driver_t *driver, uct_cuda_copy_mem_t *mem,
                                       size_t length)
{
    uct_cu_ptr_t ptr = 0;
    int result;

    if (mem->how == UCT_MEM_ALLOC_PINNED) {
        mem->super.address = uct_cuda_host_make(driver, length, &mem->is_registered);
        return (mem->super.address != NULL) ? UCS_OK : UCS_ERR_NO_MEMORY;
    }
    result = (mem->how == UCT_MEM_ALLOC_DEVICE) ?
             driver->cuMemAlloc(&ptr, length) :
             driver->cuMemAllocManaged(&ptr, length, UCT_CU_ATTACH_GLOBAL);
    mem->super.address = (void *)(uintptr_t)ptr;
    return (result == UCT_CU_SUCCESS) ? UCS_OK :
           uct_cuda_failed(driver, UCS_LOG_LEVEL_ERROR, "allocation of device memory", result);
}

/* The context is current. */
static void uct_cuda_copy_unmake(const uct_cuda_driver_t *driver, const uct_cuda_copy_mem_t *mem)
{
    const int result = mem->is_registered ?
                       driver->cuMemHostUnregister(mem->super.address) :
                       driver->cuMemFree((uintptr_t)mem->super.address);

    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DIAG, "release of memory", result);
    }
}

/* The context is current. Refused: what is read-only, a file's, or registered in part. */
static ucs_status_t uct_cuda_copy_register(const uct_cuda_driver_t *driver,
                                           uct_cuda_copy_mem_t *mem)
{
    mem->is_registered = uct_cuda_host_register(driver, mem->super.address, mem->super.length,
                                                UCS_LOG_LEVEL_DEBUG);
    return mem->is_registered ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

/* Notes the number of the allocation, without which it could not be told from others later. The
 * context is current. */
static ucs_status_t uct_cuda_copy_note(const uct_cuda_driver_t *driver, uct_cuda_copy_mem_t *mem)
{
    uct_cuda_place_t place;
    ucs_status_t status;

    if ((mem->how == UCT_MEM_ALLOC_PINNED) && !mem->is_registered) {
        return UCS_OK;
    }
    status = uct_cuda_place_query(driver, mem->super.address, &place);
    if (status == UCS_OK) {
        mem->id = place.id;
        return UCS_OK;
    }
    uct_cuda_copy_unmake(driver, mem);
    if (mem->how == UCT_MEM_ALLOC_PINNED) {
        ucs_sys_munmap(mem->super.address, mem->super.length);
    }
    return status;
}

/* Allocates, or registers with the driver what is at the address. */
static ucs_status_t uct_cuda_copy_mem_new(uct_md_t *md, const uct_cuda_driver_t *driver,
                                          uct_cu_ctx_t ctx, void *address, size_t length,
                                          unsigned how, uct_mem_t **mem_p)
{
    uct_cuda_copy_mem_t *mem;
    uct_cuda_scope_t scope;
    ucs_status_t status;

    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        ucs_error("no memory to describe %zu bytes", length);
        return UCS_ERR_NO_MEMORY;
    }
    mem->super.md      = md;
    mem->super.address = address;
    mem->super.length  = length;
    mem->ctx           = ctx;
    mem->how           = how;
    status             = uct_cuda_enter(&scope, driver, ctx);
    if (status == UCS_OK) {
        status = (how == UCT_CUDA_COPY_USERS) ? uct_cuda_copy_register(driver, mem) :
                                                uct_cuda_copy_make(driver, mem, length);
        status = (status == UCS_OK) ? uct_cuda_copy_note(driver, mem) : status;
        uct_cuda_leave(&scope);
    }
    if (status != UCS_OK) {
        ucs_sys_free(mem);
        return status;
    }
    *mem_p = &mem->super;
    return UCS_OK;
}

static ucs_status_t uct_cuda_copy_mem_alloc(uct_md_t *md, void *address, size_t length,
                                            unsigned flags, uct_mem_t **mem_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cu_ctx_t ctx                = NULL;
    ucs_status_t status;

    if (length == 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((flags != UCT_MEM_ALLOC_DEVICE) && (flags != UCT_MEM_ALLOC_MANAGED) &&
        (flags != UCT_MEM_ALLOC_PINNED)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (driver == NULL) {
        ucs_error("device memory cannot be allocated: the program has not started CUDA");
        return UCS_ERR_NO_DEVICE;
    }
    status = uct_cuda_copy_alloc_context(driver, address, &ctx);
    return (status == UCS_OK) ?
           uct_cuda_copy_mem_new(md, driver, ctx, NULL, length, flags, mem_p) : status;
}

/* What devices reach already is the program's to end. Any context of the process will do. */
static ucs_status_t uct_cuda_copy_mem_reg(uct_md_t *md, void *address, size_t length,
                                          const uct_mem_info_t *info, uct_mem_t **mem_p)
{
    const uct_cuda_copy_config_t *config = md->config;
    const uct_cuda_driver_t *driver      = uct_cuda_driver();
    uct_cuda_place_t place;
    ucs_status_t status;
    uct_cu_ctx_t ctx;

    if ((info != NULL) || (driver == NULL) || (length < config->host_reg_thresh) ||
        (uct_cuda_place_query(driver, address, &place) != UCS_OK) ||
        (place.kind != UCT_CUDA_PAGEABLE) ||
        (uct_cuda_device_context(driver, -1, &ctx) != UCS_OK)) {
        return UCS_ERR_UNSUPPORTED;
    }
    status = uct_cuda_copy_mem_new(md, driver, ctx, address, length, UCT_CUDA_COPY_USERS, mem_p);
    return (status == UCS_OK) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

/* Does the driver know it, and as the same? Memory of a context that is gone went with it. After a
 * reset of the device the program may have other memory there, in a context at the same address. An
 * error is believed when it is said twice: what is not known is never given back. */
static int uct_cuda_copy_mem_is_known(const uct_cuda_driver_t *driver,
                                      const uct_cuda_copy_mem_t *mem)
{
    uct_cuda_place_t place;

    return ((mem->how != UCT_MEM_ALLOC_PINNED) || mem->is_registered) &&
           ((uct_cuda_place_query(driver, mem->super.address, &place) == UCS_OK) ||
            (uct_cuda_place_query(driver, mem->super.address, &place) == UCS_OK)) &&
           (place.kind != UCT_CUDA_PAGEABLE) && (place.id == mem->id);
}

static void uct_cuda_copy_mem_release(uct_mem_t *tl_mem)
{
    uct_cuda_copy_mem_t *mem        = ucs_container_of(tl_mem, uct_cuda_copy_mem_t, super);
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cuda_scope_t scope;

    if (tl_mem->is_lost) {
        ucs_sys_free(mem);
        return;
    }
    if (uct_cuda_copy_mem_is_known(driver, mem) &&
        (uct_cuda_enter(&scope, driver, mem->ctx) == UCS_OK)) {
        uct_cuda_copy_unmake(driver, mem);
        uct_cuda_leave(&scope);
    }
    if (mem->how == UCT_MEM_ALLOC_PINNED) {
        ucs_sys_munmap(tl_mem->address, tl_mem->length);
    }
    ucs_sys_free(mem);
}

/* ------------------------------------------------------------------ interface */

static ucs_status_t uct_cuda_copy_iface_open(uct_iface_t *iface)
{
    return uct_cuda_engine_init(uct_cuda_iface_engine(iface), NULL);
}

static void uct_cuda_copy_limits(uct_iface_t *iface UCS_UNUSED, uct_op_t op UCS_UNUSED,
                                 ucs_memory_type_t memory UCS_UNUSED, uct_limits_t *limits_p)
{
    *limits_p = (uct_limits_t){0};
}

static ucs_status_t uct_cuda_copy_copy(uct_iface_t *iface, void *dest, const void *src,
                                       size_t length, unsigned flags, uct_completion_t *comp)
{
    uct_cuda_engine_t *engine       = uct_cuda_iface_engine(iface);
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cuda_place_t from, to;
    uct_cuda_queue_t *queue;
    uct_cuda_part_t part;
    ucs_status_t status;
    uct_cu_ctx_t ctx;

    if (length == 0) {
        return UCS_OK;
    }
    if (driver == NULL) {
        return UCS_ERR_NO_DEVICE;
    }
    if (((status = uct_cuda_range_query(driver, src, length, &from)) != UCS_OK) ||
        ((status = uct_cuda_range_query(driver, dest, length, &to)) != UCS_OK)) {
        return status;
    }
    if ((from.kind < UCT_CUDA_MANAGED) && (to.kind < UCT_CUDA_MANAGED)) {
        return UCS_ERR_INVALID_ADDR;
    }

    /* Devices write to each other faster than they read. */
    status = uct_cuda_place_context(driver, (from.kind >= to.kind) ? &from : &to, &ctx);
    status = (status == UCS_OK) ? uct_cuda_engine_queue(engine, driver, ctx, &queue) : status;
    if (status != UCS_OK) {
        return status;
    }
    uct_cuda_part_init(&part, queue, (uintptr_t)dest, to.kind, (uintptr_t)src, from.kind, length);
    part.in_rows = (flags & UCT_COPY_IN_ROWS) && (from.kind < UCT_CUDA_MANAGED) &&
                   (length <= UCT_CUDA_ROWS_MAX);
    return uct_cuda_engine_post(engine, &part, 1, comp, NULL);
}

const uct_tl_t uct_cuda_copy_tl = {
    .name          = "cuda_copy",
    .help          = "memory of CUDA devices: detection, allocation, copies within the process",
    .kind          = UCT_TL_KIND_DEVICE,
    .md_size       = sizeof(uct_md_t),
    .iface_size    = sizeof(uct_cuda_iface_t),
    .ep_size       = sizeof(uct_ep_t),
    .config_rows   = uct_cuda_copy_config_rows,
    .config_prefix = "CUDA_COPY_",
    .config_size   = sizeof(uct_cuda_copy_config_t),
    .md = {
        .open      = uct_cuda_md_open,
        .alloc     = uct_cuda_copy_mem_alloc,
        .reg       = uct_cuda_copy_mem_reg,
        .release   = uct_cuda_copy_mem_release,
        .mem_query = uct_cuda_copy_mem_query
    },
    .iface = {
        .open         = uct_cuda_copy_iface_open,
        .close        = uct_cuda_iface_close,
        .limits       = uct_cuda_copy_limits,
        .progress     = uct_cuda_iface_progress,
        .event_arm    = uct_cuda_iface_event_arm,
        .copy         = uct_cuda_copy_copy,
        .memory_used  = uct_cuda_iface_memory_used
    }
};
