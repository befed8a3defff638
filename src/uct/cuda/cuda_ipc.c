/* Halyard: cuda_ipc: memory domain, interface, endpoints, copies.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>
#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#include <string.h>

/* Measured on two H200 with NVLink and driver 580: a copy of 8 bytes to the other device until the
 * stream is seen idle, the part of it that keeps the processor busy, and the rate of 256 MiB; and
 * the rate from and to pinned memory of the host. */
#define UCT_CUDA_IPC_OVERHEAD_NS      2800.0
#define UCT_CUDA_IPC_LATENCY_NS       3400.0
#define UCT_CUDA_IPC_BYTES_PER_NS     390.0
#define UCT_CUDA_IPC_HOST_BYTES_PER_NS 10.0 /* pageable memory, through a buffer */

typedef struct {
    uct_cuda_iface_t       base;
    uct_cuda_ipc_address_t address;
} uct_cuda_ipc_iface_t;

static const ucs_config_row_t uct_cuda_ipc_config_rows[] = {
    UCS_CONFIG_ROW("MAX_MAPPINGS", uint, uct_cuda_ipc_config_t, max_mappings, "1024",
                   "Allocations of other processes that stay mapped while no copy uses them.",
                   .min = 1, .max = 1u << 20),
    UCS_CONFIG_ROW("MAX_MAPPED", memunits, uct_cuda_ipc_config_t, max_mapped, "64g",
                   "Bytes of allocations of other processes that stay mapped while no copy uses "
                   "them."),
    UCS_CONFIG_ROW("KERNELS", bool, uct_cuda_ipc_config_t, kernels, "n",
                   "Many short copies at a time are made by a kernel instead of copy engines. It "
                   "is loaded when first used, which waits for the kernels that run."),
    UCS_CONFIG_ROW_END
};

static uct_cuda_ipc_iface_t *uct_cuda_ipc_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_cuda_ipc_iface_t, base.super);
}

/* ------------------------------------------------------------------ memory domain */

uint32_t uct_cuda_ipc_pid_namespace(void)
{
    struct stat st;

    return (ucs_sys_stat("/proc/self/ns/pid", &st) == 0) ? (uint32_t)st.st_ino : 0;
}

static ucs_status_t uct_cuda_ipc_md_open(uct_md_t *tl_md)
{
    uct_cuda_ipc_md_t *md = uct_cuda_ipc_md(tl_md);
    ucs_status_t status   = uct_cuda_md_open(tl_md);

    if (status != UCS_OK) {
        return status;
    }
    md->instance = ucs_sys_random64();
    md->pid_ns   = uct_cuda_ipc_pid_namespace();
    ucs_hash_init(&md->export_of);
    ucs_hash_init(&md->mapping_of);
    ucs_list_head_init(&md->exports);
    ucs_list_head_init(&md->mappings);
    ucs_list_head_init(&md->contexts);
    ucs_list_head_init(&md->pools);
    ucs_list_head_init(&md->probes);
    pthread_mutex_init(&md->lock, NULL);
    pthread_mutex_init(&md->pool_lock, NULL);
    uct_cuda_fork_add(md);
    md->is_open = 1;
    return UCS_OK;
}

static void uct_cuda_ipc_md_close(uct_md_t *tl_md)
{
    uct_cuda_ipc_md_t *md = uct_cuda_ipc_md(tl_md);

    if (md->is_open) {
        uct_cuda_fork_remove(md);
        uct_cuda_mappings_cleanup(md);
        uct_cuda_exports_cleanup(md);
        uct_cuda_probes_cleanup(md);
        pthread_mutex_destroy(&md->pool_lock);
        pthread_mutex_destroy(&md->lock);
    }
}

/* ------------------------------------------------------------------ interface */

static ucs_status_t uct_cuda_ipc_iface_open(uct_iface_t *tl_iface)
{
    uct_cuda_ipc_iface_t *iface = uct_cuda_ipc_iface(tl_iface);
    const uint64_t pid_ns       = uct_cuda_ipc_md(tl_iface->md)->pid_ns;

    iface->address = (uct_cuda_ipc_address_t)ucs_hash_mix((pid_ns << 32) |
                                                          (uint32_t)ucs_sys_getpid());
    return uct_cuda_engine_init(&iface->base.engine, uct_cuda_mapping_put);
}

static void uct_cuda_ipc_limits(uct_iface_t *iface UCS_UNUSED, uct_op_t op,
                                ucs_memory_type_t memory, uct_limits_t *limits_p)
{
    *limits_p = (uct_limits_t){0};
    if (((op != UCT_OP_PUT_ZCOPY) && (op != UCT_OP_GET_ZCOPY)) ||
        ((memory != UCS_MEMORY_TYPE_CUDA) && (memory != UCS_MEMORY_TYPE_CUDA_MANAGED) &&
         (memory != UCS_MEMORY_TYPE_HOST))) {
        return;
    }
    limits_p->max          = SIZE_MAX;
    limits_p->iov_max      = UCT_CUDA_IPC_IOV_MAX;
    limits_p->overhead_ns  = UCT_CUDA_IPC_OVERHEAD_NS;
    limits_p->latency_ns   = UCT_CUDA_IPC_LATENCY_NS;
    limits_p->bytes_per_ns = (memory == UCS_MEMORY_TYPE_CUDA) ? UCT_CUDA_IPC_BYTES_PER_NS :
                                                                UCT_CUDA_IPC_HOST_BYTES_PER_NS;
}

static size_t uct_cuda_ipc_get_address(uct_iface_t *tl_iface, void *buffer)
{
    const uct_cuda_ipc_iface_t *iface = uct_cuda_ipc_iface(tl_iface);

    memcpy(buffer, &iface->address, sizeof(iface->address));
    return sizeof(iface->address);
}

static int uct_cuda_ipc_is_reachable(uct_iface_t *tl_iface, const void *buffer, size_t length,
                                     int same_node, char reason[UCT_REASON_MAX])
{
    const uct_cuda_ipc_iface_t *iface = uct_cuda_ipc_iface(tl_iface);

    if (!same_node) {
        snprintf(reason, UCT_REASON_MAX, "the peer is on another node");
        return 0;
    }
    if (length != sizeof(iface->address)) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of cuda_ipc");
        return 0;
    }
    if (memcmp(buffer, &iface->address, length) == 0) {
        snprintf(reason, UCT_REASON_MAX, "the peer is in this process, which cannot map its own "
                 "memory");
        return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------ endpoint */

static ucs_status_t uct_cuda_ipc_ep_init(uct_ep_t *ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                                         size_t length)
{
    return (length == sizeof(uct_cuda_ipc_address_t)) ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

/* The context for a copy between the entries and the key's memory: that of device memory among the
 * entries, else one of the key's device, else any. */
static ucs_status_t uct_cuda_ipc_context(const uct_cuda_driver_t *driver,
                                         const uct_cuda_ipc_rkey_t *rkey,
                                         const uct_cuda_place_t *places, unsigned n,
                                         uct_cu_ctx_t *ctx_p)
{
    unsigned i;
    int device;

    for (i = 0; i < n; ++i) {
        if (places[i].kind >= UCT_CUDA_MANAGED) {
            return uct_cuda_place_context(driver, &places[i], ctx_p);
        }
    }
    device = uct_cuda_ipc_rkey_device(driver, rkey);
    if ((device >= 0) && (uct_cuda_device_context(driver, device, ctx_p) == UCS_OK)) {
        return UCS_OK;
    }
    return uct_cuda_device_context(driver, -1, ctx_p);
}

/* Drops empty entries, asks about the others. Returns their number. */
static ucs_status_t uct_cuda_ipc_look(const uct_cuda_driver_t *driver, const uct_iov_t *iov,
                                      unsigned n, const uct_iov_t **entries,
                                      uct_cuda_place_t *places, unsigned *count_p)
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (iov[i].length == 0) {
            continue;
        }
        if (count == UCT_CUDA_IPC_IOV_MAX) {
            return UCS_ERR_INVALID_PARAM;
        }
        if ((iov[i].mem != NULL) &&
            uct_cuda_place_covers(uct_cuda_ipc_mem_place(iov[i].mem), iov[i].buffer,
                                  iov[i].length)) {
            places[count] = *uct_cuda_ipc_mem_place(iov[i].mem);
        } else if (uct_cuda_range_query(driver, iov[i].buffer, iov[i].length, &places[count]) !=
                   UCS_OK) {
            return UCS_ERR_UNREACHABLE;
        }
        entries[count++] = &iov[i];
    }
    *count_p = count;
    return UCS_OK;
}

static ucs_status_t uct_cuda_ipc_check_range(const uct_iov_t *iov, unsigned n,
                                             uint64_t remote_addr, const uct_rkey_t *rkey)
{
    const uct_cuda_ipc_packed_t *key;
    size_t total = 0;
    uint64_t offset;
    unsigned i;

    if (rkey == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }
    for (i = 0; i < n; ++i) {
        if (__builtin_add_overflow(total, iov[i].length, &total)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }
    key    = &ucs_container_of(rkey, uct_cuda_ipc_rkey_t, super)->key;
    offset = remote_addr - key->address;
    return ((offset > key->length) || (total > (key->length - offset))) ? UCS_ERR_OUT_OF_RANGE :
           UCS_OK;
}

/* Up to which length kernels make copies from and to this mapping in this context; 0: they do not
 * reach it, or are not allowed. A mistake in it costs the program its context, so this is believed
 * of whole allocations only. */
static size_t uct_cuda_ipc_kernel_max(const uct_cuda_driver_t *driver,
                                      const uct_cuda_ipc_rkey_t *rkey,
                                      const uct_cuda_mapping_t *mapping,
                                      const uct_cuda_place_t *place)
{
    const uct_cuda_ipc_config_t *config = mapping->md->super.config;

    if (!config->kernels || !mapping->is_whole || (place->kind != UCT_CUDA_DEVICE)) {
        return 0;
    }
    return (uct_cuda_ipc_rkey_device(driver, rkey) == place->device) ? UCT_CUDA_KERNEL_NEAR :
           UCT_CUDA_KERNEL_FAR;
}

/* The same of a local place: kernels of the context in which it was allocated reach it. */
static int uct_cuda_ipc_is_for_kernels(const uct_iov_t *iov, const uct_cuda_place_t *place,
                                       uct_cu_ctx_t ctx)
{
    return (place->kind == UCT_CUDA_DEVICE) && (place->ctx == ctx) &&
           uct_cuda_place_covers(place, iov->buffer, iov->length);
}

static ucs_status_t uct_cuda_ipc_copy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                      uint64_t remote_addr, uct_rkey_t *tl_rkey,
                                      uct_completion_t *comp, int is_put)
{
    uct_cuda_engine_t *engine       = uct_cuda_iface_engine(ep->iface);
    const uct_cuda_ipc_rkey_t *rkey = uct_cuda_ipc_rkey(tl_rkey);
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    const uct_iov_t *entries[UCT_CUDA_IPC_IOV_MAX];
    uct_cuda_place_t places[UCT_CUDA_IPC_IOV_MAX];
    uct_cuda_part_t parts[UCT_CUDA_IPC_IOV_MAX];
    uct_cuda_mapping_t *mapping;
    uct_cuda_queue_t *queue;
    uct_cu_ptr_t remote, local;
    size_t kernel_max;
    unsigned count, i;
    ucs_status_t status;
    uct_cu_ctx_t ctx;

    status = uct_cuda_ipc_check_range(iov, n, remote_addr, tl_rkey);
    if (status != UCS_OK) {
        return status;
    }
    if (driver == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    status = uct_cuda_ipc_look(driver, iov, n, entries, places, &count);
    if ((status != UCS_OK) || (count == 0)) {
        return status;
    }
    if ((uct_cuda_ipc_context(driver, rkey, places, count, &ctx) != UCS_OK) ||
        (uct_cuda_engine_queue(engine, driver, ctx, &queue) != UCS_OK)) {
        return UCS_ERR_UNREACHABLE;
    }
    status = uct_cuda_mapping_get(driver, uct_cuda_ipc_md(tl_rkey->md), &rkey->key, queue,
                                  &mapping);
    if (status != UCS_OK) {
        return ((status == UCS_ERR_TIMED_OUT) || (status == UCS_ERR_NOT_CONNECTED)) ?
               UCS_ERR_UNREACHABLE : status;
    }

    kernel_max = uct_cuda_ipc_kernel_max(driver, rkey, mapping, &places[0]);
    remote     = mapping->ptr + (remote_addr - rkey->key.base);
    for (i = 0; i < count; ++i) {
        local = (uintptr_t)entries[i]->buffer;
        uct_cuda_part_init(&parts[i], queue, is_put ? remote : local,
                           is_put ? UCT_CUDA_DEVICE : places[i].kind, is_put ? local : remote,
                           is_put ? places[i].kind : UCT_CUDA_DEVICE, entries[i]->length);
        parts[i].by_kernel = (entries[i]->length <= kernel_max) &&
                             uct_cuda_ipc_is_for_kernels(entries[i], &places[i], ctx);
        remote += entries[i]->length;
    }
    return uct_cuda_engine_post(engine, parts, count, comp, mapping);
}

static ucs_status_t uct_cuda_ipc_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                           uint64_t remote_addr, uct_rkey_t *rkey,
                                           uct_completion_t *comp)
{
    return uct_cuda_ipc_copy(ep, iov, n, remote_addr, rkey, comp, 1);
}

static ucs_status_t uct_cuda_ipc_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                           uint64_t remote_addr, uct_rkey_t *rkey,
                                           uct_completion_t *comp)
{
    return uct_cuda_ipc_copy(ep, iov, n, remote_addr, rkey, comp, 0);
}

const uct_tl_t uct_cuda_ipc_tl = {
    .name          = "cuda_ipc",
    .help          = "copies from and to device memory of other processes of the node",
    .kind          = UCT_TL_KIND_DEVICE,
    .md_size       = sizeof(uct_cuda_ipc_md_t),
    .iface_size    = sizeof(uct_cuda_ipc_iface_t),
    .ep_size       = sizeof(uct_ep_t),
    .config_rows   = uct_cuda_ipc_config_rows,
    .config_prefix = "CUDA_IPC_",
    .config_size   = sizeof(uct_cuda_ipc_config_t),
    .md = {
        .open         = uct_cuda_ipc_md_open,
        .close        = uct_cuda_ipc_md_close,
        .reg          = uct_cuda_ipc_mem_reg,
        .release      = uct_cuda_ipc_mem_release,
        .rkey_pack    = uct_cuda_ipc_rkey_pack,
        .rkey_unpack  = uct_cuda_ipc_rkey_unpack,
        .rkey_is_on   = uct_cuda_ipc_rkey_is_on,
        .rkey_forget  = uct_cuda_ipc_rkey_forget,
        .rkey_release = uct_cuda_ipc_rkey_release
    },
    .iface = {
        .open         = uct_cuda_ipc_iface_open,
        .close        = uct_cuda_iface_close,
        .limits       = uct_cuda_ipc_limits,
        .get_address  = uct_cuda_ipc_get_address,
        .is_reachable = uct_cuda_ipc_is_reachable,
        .progress     = uct_cuda_iface_progress,
        .event_arm    = uct_cuda_iface_event_arm,
        .memory_used  = uct_cuda_iface_memory_used
    },
    .ep = {
        .init = uct_cuda_ipc_ep_init,
        .live = {
            .put_zcopy = uct_cuda_ipc_put_zcopy,
            .get_zcopy = uct_cuda_ipc_get_zcopy
        }
    }
};
