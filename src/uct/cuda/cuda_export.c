/* Halyard: cuda_ipc: memory of this process for others: registration and keys.
 *
 * Exports are kept by the number that the driver gives each allocation and never uses again, so
 * that memory which was freed and allocated again is a new export. They are kept for later users as
 * long as the memory is there, UCT_CUDA_IPC_EXPORTS_MAX at most, looked at when one is added.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <fcntl.h>
#include <string.h>

#define UCT_CUDA_IPC_VERSION 3

/* What was refused for want of memory or files may be granted later; it is asked for this
 * seldom. */
#define UCT_CUDA_EXPORT_AGAIN_NS 1000000000ull

static_assert(sizeof(uct_cuda_ipc_packed_t) == 216, "layout of a remote key");
static_assert(sizeof(uct_cuda_ipc_packed_t) <= UCT_RKEY_MAX, "room for a remote key");

typedef struct {
    uct_mem_t          super;
    uct_cuda_export_t *export;
} uct_cuda_ipc_mem_t;

void uct_cuda_export_close(uct_cuda_export_t *export)
{
    while (export->count > 0) {
        --export->count;
        uct_descriptor_withdraw(&export->offers[export->count]);
        export->proofs[export->count].instance = 0; /* before the number can be used again */
        ucs_sys_close(export->offers[export->count].fd);
    }
}

/* The lock is held. */
static void uct_cuda_export_free(uct_cuda_ipc_md_t *md, uct_cuda_export_t *export)
{
    ucs_hash_del(&md->export_of, export->place.id);
    ucs_list_del(&export->list);
    --md->num_exports;
    if (export->probe != NULL) {
        --export->probe->refs;
    }
    uct_cuda_export_close(export);
    ucs_sys_free(export);
}

void uct_cuda_exports_cleanup(uct_cuda_ipc_md_t *md)
{
    uct_cuda_export_t *export, *tmp;

    ucs_list_for_each_safe(export, tmp, &md->exports, list) {
        ucs_assert(export->refs == 0);
        uct_cuda_export_free(md, export);
    }
    ucs_hash_cleanup(&md->export_of);
}

int uct_cuda_export_is_there(const uct_cuda_driver_t *driver, const uct_cuda_export_t *export)
{
    const void *address = (void *)(uintptr_t)export->place.base;
    uct_cuda_place_t place;

    if (uct_cuda_place_query(driver, address, &place) != UCS_OK) {
        return 0;
    }
    if (export->place.pieces > 1) {
        (void)uct_cuda_place_narrow(driver, address, export->place.length, &place);
    }
    return place.id == export->place.id;
}

/* Its address does not tell a pool from later ones, but as long as there is memory of it. */
static uint64_t uct_cuda_export_pool_number(const uct_cuda_ipc_md_t *md,
                                            const uct_cuda_driver_t *driver,
                                            const uct_cuda_export_t *export)
{
    const uct_cuda_export_t *other;

    ucs_list_for_each(other, &md->exports, list) {
        if ((other->kind == UCT_CUDA_IPC_POOL) && (other->place.pool == export->place.pool) &&
            uct_cuda_export_is_there(driver, other)) {
            return other->pool;
        }
    }
    return export->place.id;
}

int uct_cuda_export_add(uct_cuda_ipc_md_t *md, uct_cuda_export_t *export, size_t length, int fd)
{
    uct_descriptor_offer_t *offer = &export->offers[export->count];
    uct_cuda_ipc_proof_t *proof   = &export->proofs[export->count];

    if (fd < 0) {
        uct_cuda_export_close(export);
        return 0;
    }
    (void)ucs_sys_fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver does not promise it */
    *offer = (uct_descriptor_offer_t){
        .domain = md->instance + export->count, .id = export->place.id, .length = length, .fd = fd
    };
    *proof = (uct_cuda_ipc_proof_t){
        .instance = md->instance, .id = export->place.id, .length = length, .fd = fd
    };
    uct_descriptor_offer(offer);
    ++export->count;
    return 1;
}

static void uct_cuda_export_fill_pieces(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                        uct_cuda_export_t *export)
{
    uct_cu_ptr_t ptr = export->place.base;
    uct_cuda_place_t piece;

    do {
        piece = export->place;
        (void)uct_cuda_place_narrow(driver, (void *)(uintptr_t)ptr, 1, &piece);
        if (!uct_cuda_export_add(md, export, piece.length,
                                 uct_cuda_piece_export(driver, ptr))) {
            return;
        }
        ptr += piece.length;
    } while (export->count < export->place.pieces);
    export->kind = UCT_CUDA_IPC_PIECE;
}

int uct_cuda_export_fill_legacy(const uct_cuda_driver_t *driver, uct_cuda_export_t *export)
{
    uct_cuda_scope_t scope;
    uct_cu_ctx_t ctx;
    int result;

    if ((uct_cuda_place_context(driver, &export->place, &ctx) != UCS_OK) ||
        (uct_cuda_enter(&scope, driver, ctx) != UCS_OK)) {
        return 0;
    }
    result = driver->cuIpcGetMemHandle(&export->handle, export->place.base);
    if (result == UCT_CU_SUCCESS) {
        export->kind = UCT_CUDA_IPC_LEGACY;
    } else {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuIpcGetMemHandle", result);
    }
    uct_cuda_leave(&scope);
    return result == UCT_CU_SUCCESS;
}

/* Once a process for each reason: reason is a literal. */
#define uct_cuda_export_warn(_place, _reason) \
    ucs_warn_once("device memory at %#llx cannot be mapped by other processes: " _reason, \
                  (unsigned long long)(_place)->base)

/* Gets the handle, if it can be exported. */
static void uct_cuda_export_fill(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                 uct_cuda_export_t *export, unsigned handle_types)
{
    const uct_cuda_place_t *place = &export->place;

    if (uct_cuda_device_uuid(driver, place->device, &export->uuid) != UCS_OK) {
        return;
    }
    if (place->pool != NULL) {
        export->pool = uct_cuda_export_pool_number(md, driver, export);
        if (uct_cuda_export_add(md, export, place->length,
                                uct_cuda_pool_export(driver, export))) {
            export->kind = UCT_CUDA_IPC_POOL;
        } else if (export->again_ns == UINT64_MAX) {
            uct_cuda_export_warn(place, "its pool gives no descriptor (cudaMallocAsync's own "
                                        "never does, one whose handleTypes ask for it does)");
        }
    } else if ((handle_types & UCT_CU_HANDLE_DESCRIPTOR) != 0) {
        uct_cuda_export_fill_pieces(md, driver, export);
    } else if (!place->is_legacy) {
        uct_cuda_export_warn(place, "it was not made for export (cuMemCreate with "
                                    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR does; PyTorch's "
                                    "expandable segments are made without)");
        export->again_ns = UINT64_MAX;
    }
    if ((export->kind == UCT_CUDA_IPC_NONE) && (place->pool == NULL) && place->is_legacy) {
        (void)uct_cuda_export_fill_legacy(driver, export);
    }
    if (export->kind != UCT_CUDA_IPC_NONE) {
        export->probe = uct_cuda_probe_get(md, driver, export);
    }
}

uct_cuda_export_t *uct_cuda_export_alloc(const uct_cuda_place_t *place)
{
    uct_cuda_export_t *export;
    size_t size;

    size   = sizeof(*export) + (place->pieces * sizeof(export->proofs[0]));
    export = ucs_sys_calloc(1, size + (place->pieces * sizeof(export->offers[0])));
    if (export != NULL) {
        export->place  = *place;
        export->offers = (void *)((char *)export + size);
    }
    return export;
}

/* Exports that nobody uses: those beyond what may be kept, and those of memory that is gone, which
 * a descriptor would keep. The lock is held. */
static void uct_cuda_exports_trim(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver)
{
    unsigned descriptors = 0;
    uct_cuda_export_t *export, *tmp;

    ucs_list_for_each(export, &md->exports, list) {
        descriptors += export->count;
    }
    ucs_list_for_each_safe(export, tmp, &md->exports, list) {
        if ((export->refs == 0) && ((md->num_exports >= UCT_CUDA_IPC_EXPORTS_MAX) ||
                                    (descriptors >= UCT_CUDA_IPC_EXPORTS_MAX) ||
                                    !uct_cuda_export_is_there(driver, export))) {
            descriptors -= export->count;
            uct_cuda_export_free(md, export);
        }
    }
}

/* Gets the handle, unless that was refused a while ago. */
static void uct_cuda_export_try(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                uct_cuda_export_t *export, unsigned handle_types)
{
    const uint64_t now = ucs_sys_clock_ns();
    uct_cuda_scope_t scope;

    if (now < export->again_ns) {
        return;
    }
    export->again_ns = now + UCT_CUDA_EXPORT_AGAIN_NS;
    if (uct_cuda_relax(&scope, driver) == UCS_OK) {
        uct_cuda_export_fill(md, driver, export, handle_types);
        uct_cuda_restore(&scope);
    }
}

/* The export of an allocation, for one more user. The lock is held. */
static ucs_status_t uct_cuda_export_get(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                        const uct_cuda_place_t *place, unsigned handle_types,
                                        uct_cuda_export_t **export_p)
{
    uct_cuda_export_t *export = ucs_hash_get_ptr(&md->export_of, place->id);

    if (ucs_unlikely(export == NULL)) {
        uct_cuda_exports_trim(md, driver);
        export = uct_cuda_export_alloc(place);
        if (export == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        if (ucs_hash_insert(&md->export_of, place->id, (uintptr_t)export) != UCS_OK) {
            ucs_sys_free(export);
            return UCS_ERR_NO_MEMORY;
        }
        ucs_list_head_init(&export->list);
        ++md->num_exports;
    }
    if (ucs_unlikely(export->kind == UCT_CUDA_IPC_NONE)) {
        uct_cuda_export_try(md, driver, export, handle_types);
    }
    ucs_list_del(&export->list);
    ucs_list_add_tail(&md->exports, &export->list);
    if (export->kind != UCT_CUDA_IPC_NONE) {
        ++export->refs;
    }
    *export_p = export;
    return (export->kind != UCT_CUDA_IPC_NONE) ? UCS_OK :
           (export->again_ns == UINT64_MAX) ? UCS_ERR_UNSUPPORTED : UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_cuda_ipc_mem_reg(uct_md_t *tl_md, void *address, size_t length,
                                  const uct_mem_info_t *info UCS_UNUSED, uct_mem_t **mem_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    uct_cuda_ipc_md_t *md           = uct_cuda_ipc_md(tl_md);
    uct_cuda_place_t place;
    uct_cuda_ipc_mem_t *mem;
    unsigned handle_types;
    ucs_status_t status;

    if ((driver == NULL) || (length == 0)) {
        return UCS_ERR_UNSUPPORTED;
    }
    status = uct_cuda_place_query(driver, address, &place);
    if (status != UCS_OK) {
        return (status == UCS_ERR_NO_DEVICE) ? UCS_ERR_UNSUPPORTED : UCS_ERR_NO_RESOURCE;
    }
    if (place.kind != UCT_CUDA_DEVICE) {
        return UCS_ERR_UNSUPPORTED;
    }
    handle_types = uct_cuda_place_narrow(driver, address, length, &place);
    if (place.pieces == 0) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (!uct_cuda_place_covers(&place, address, length)) {
        return UCS_ERR_UNSUPPORTED;
    }

    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        ucs_error("no memory to register %zu bytes", length);
        return UCS_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&md->lock);
    status = uct_cuda_export_get(md, driver, &place, handle_types, &mem->export);
    pthread_mutex_unlock(&md->lock);
    if (status != UCS_OK) {
        ucs_sys_free(mem);
        return status;
    }
    mem->super.md      = tl_md;
    mem->super.address = address;
    mem->super.length  = length;
    *mem_p             = &mem->super;
    return UCS_OK;
}

const uct_cuda_place_t *uct_cuda_ipc_mem_place(const uct_mem_t *mem)
{
    return &ucs_container_of(mem, uct_cuda_ipc_mem_t, super)->export->place;
}

void uct_cuda_ipc_mem_release(uct_mem_t *tl_mem)
{
    uct_cuda_ipc_mem_t *mem   = ucs_container_of(tl_mem, uct_cuda_ipc_mem_t, super);
    uct_cuda_ipc_md_t *md     = uct_cuda_ipc_md(tl_mem->md);
    uct_cuda_export_t *export = mem->export;

    pthread_mutex_lock(&md->lock);
    if ((--export->refs == 0) && (export->count > 0) &&
        !uct_cuda_export_is_there(uct_cuda_driver(), export)) {
        uct_cuda_export_free(md, export); /* its descriptors would keep memory that is freed */
    }
    pthread_mutex_unlock(&md->lock);
    ucs_sys_free(mem);
}

size_t uct_cuda_ipc_rkey_pack(uct_mem_t *tl_mem, void *buffer)
{
    const uct_cuda_ipc_mem_t *mem   = ucs_container_of(tl_mem, uct_cuda_ipc_mem_t, super);
    const uct_cuda_ipc_md_t *md     = uct_cuda_ipc_md(tl_mem->md);
    const uct_cuda_export_t *export = mem->export; /* does not change while it has users, */
    uct_cuda_ipc_packed_t packed;

    if (export->kind == UCT_CUDA_IPC_NONE) { /* but in a forked child */
        return 0;
    }
    memset(&packed, 0, sizeof(packed));
    packed.version  = UCT_CUDA_IPC_VERSION;
    packed.kind     = (uint8_t)export->kind;
    packed.pid      = (uint32_t)ucs_sys_getpid();
    packed.pid_ns   = md->pid_ns;
    packed.instance = md->instance;
    packed.address  = (uintptr_t)tl_mem->address;
    packed.length   = tl_mem->length;
    packed.base     = export->place.base;
    packed.size     = export->place.length;
    packed.id       = export->place.id;
    packed.uuid     = export->uuid;
    packed.count    = export->count;
    packed.probe    = (export->probe == NULL) ? 0 : export->probe->place.id;
    if (export->kind == UCT_CUDA_IPC_LEGACY) {
        memcpy(packed.by.legacy.handle, &export->handle, sizeof(export->handle));
        if (export->probe != NULL) {
            memcpy(packed.by.legacy.probe, &export->probe->handle, sizeof(export->handle));
        }
    } else {
        uct_descriptor_where(NULL, tl_mem->uid, &packed.by.shown.name, &packed.place);
        packed.by.shown.proof = (uintptr_t)export->proofs;
        packed.by.shown.probe = (export->probe == NULL) ? 0 : (uintptr_t)export->probe->proofs;
        packed.by.shown.pool  = export->pool;
        memcpy(packed.by.shown.pointer, &export->pointer, sizeof(export->pointer));
    }
    memcpy(buffer, &packed, sizeof(packed));
    return sizeof(packed);
}

ucs_status_t uct_cuda_ipc_rkey_unpack(uct_md_t *tl_md, const void *buffer, size_t length,
                                      uct_rkey_t **rkey_p)
{
    uct_cuda_ipc_packed_t key;
    uct_cuda_ipc_rkey_t *rkey;

    if (length != sizeof(key)) {
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(&key, buffer, sizeof(key));
    if ((key.version != UCT_CUDA_IPC_VERSION) || (key.kind == UCT_CUDA_IPC_NONE) ||
        (key.kind >= UCT_CUDA_IPC_KIND_LAST) || (key.count > UCT_CUDA_PIECES_MAX) ||
        ((key.kind == UCT_CUDA_IPC_POOL) && (key.count != 1)) ||
        (key.pid == 0) || (key.pid > INT32_MAX) || (key.length == 0) ||
        (key.size > (UINT64_MAX - key.base)) || (key.address < key.base) ||
        (key.address - key.base > key.size) ||
        (key.length > key.size - (key.address - key.base))) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (key.instance == uct_cuda_ipc_md(tl_md)->instance) {
        return UCS_ERR_UNREACHABLE; /* one's own memory cannot be mapped */
    }

    rkey = ucs_sys_calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        ucs_error("no memory for a remote key");
        return UCS_ERR_NO_MEMORY;
    }
    rkey->super.md = tl_md;
    rkey->key      = key;
    *rkey_p        = &rkey->super;
    return UCS_OK;
}

void uct_cuda_ipc_rkey_release(uct_rkey_t *rkey)
{
    ucs_sys_free(uct_cuda_ipc_rkey(rkey));
}
