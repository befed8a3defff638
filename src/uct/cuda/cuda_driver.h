/* Halyard: cuda: what we use of the CUDA driver's interface, and how we call it.
 *
 * Nothing here needs CUDA to build. The driver is never loaded by us: as long as the program has
 * not loaded and initialised it, no memory can be a device's. Calls are made by the names of the
 * driver's own symbols; what an older driver lacks is NULL.
 *
 * Rules for all of src/uct/cuda: no cuInit; no context is made or kept alive; no call that waits
 * for the device; never the default stream; no flag of the program's objects is changed. Calls that
 * need a context stand between uct_cuda_enter and uct_cuda_leave, which leave the caller's stack of
 * contexts as it was and make the calls legal while another thread captures a graph; those that
 * need none, between uct_cuda_relax and uct_cuda_restore.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CUDA_DRIVER_H
#define UCT_CUDA_DRIVER_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS

/* ---- types and values of the driver's interface ---- */

typedef unsigned long long uct_cu_ptr_t;
typedef int                uct_cu_device_t;
typedef struct CUctx_st   *uct_cu_ctx_t;
typedef struct CUstream_st *uct_cu_stream_t;
typedef struct CUevent_st *uct_cu_event_t;
typedef struct CUmod_st   *uct_cu_module_t;
typedef struct CUfunc_st  *uct_cu_function_t;

typedef struct {
    char bytes[16];
} uct_cu_uuid_t;

typedef struct {
    char data[64];
} uct_cu_ipc_handle_t;

typedef struct {
    int type;
    int id;
} uct_cu_location_t;

/* A piece of memory that is mapped by the program itself. */
typedef unsigned long long uct_cu_piece_t;

typedef struct {
    int               type; /* UCT_CU_ALLOCATION_PINNED */
    int               handle_types;
    uct_cu_location_t location;
    void             *security;
    uint64_t          flags;
} uct_cu_piece_properties_t;

typedef struct CUmemPoolHandle_st *uct_cu_pool_t;

/* What an allocation of a pool is for those who have the pool. */
typedef struct {
    unsigned char bytes[64];
} uct_cu_pool_pointer_t;

typedef struct {
    uct_cu_location_t location;
    int               flags;
} uct_cu_access_t;

/* Rows of bytes. */
typedef struct {
    size_t       src_x, src_y;
    int          src_type; /* UCT_CU_MEMORY_x, which says where it begins */
    const void  *src_host;
    uct_cu_ptr_t src_device;
    void        *src_array;
    size_t       src_pitch; /* from one row to the next */
    size_t       dest_x, dest_y;
    int          dest_type;
    void        *dest_host;
    uct_cu_ptr_t dest_device;
    void        *dest_array;
    size_t       dest_pitch;
    size_t       width;
    size_t       height;
} uct_cu_rows_t;

typedef struct {
    int               src_access_order;
    uct_cu_location_t src_hint;
    uct_cu_location_t dest_hint;
    unsigned          flags;
} uct_cu_copy_attributes_t;

enum {
    UCT_CU_SUCCESS              = 0,
    UCT_CU_INVALID_VALUE        = 1,
    UCT_CU_OUT_OF_MEMORY        = 2,
    UCT_CU_NOT_INITIALIZED      = 3,
    UCT_CU_DEINITIALIZED        = 4,
    UCT_CU_INVALID_CONTEXT      = 201,
    UCT_CU_ALREADY_MAPPED       = 208,
    UCT_CU_INVALID_HANDLE       = 400,
    UCT_CU_NOT_FOUND            = 500,
    UCT_CU_NOT_READY            = 600,
    UCT_CU_CONTEXT_IS_DESTROYED = 709,
    UCT_CU_NOT_SUPPORTED        = 801,
    UCT_CU_CAPTURE_UNSUPPORTED  = 900
};

/* Attributes of a pointer. */
enum {
    UCT_CU_POINTER_CONTEXT      = 1,
    UCT_CU_POINTER_MEMORY_TYPE  = 2,
    UCT_CU_POINTER_SYNC_MEMOPS  = 6,
    UCT_CU_POINTER_BUFFER_ID    = 7,
    UCT_CU_POINTER_IS_MANAGED   = 8,
    UCT_CU_POINTER_ORDINAL      = 9,
    UCT_CU_POINTER_LEGACY_IPC   = 10,
    UCT_CU_POINTER_RANGE_START  = 11,
    UCT_CU_POINTER_RANGE_SIZE   = 12,
    UCT_CU_POINTER_HANDLE_TYPES = 14, /* bits UCT_CU_HANDLE_x */
    UCT_CU_POINTER_POOL         = 17,
    UCT_CU_POINTER_MAPPING_SIZE = 18,
    UCT_CU_POINTER_MAPPING_BASE = 19
};

enum {
    UCT_CU_MEMORY_HOST   = 1,
    UCT_CU_MEMORY_DEVICE = 2
};

enum {
    UCT_CU_ATTACH_GLOBAL        = 1, /* cuMemAllocManaged */
    UCT_CU_HOST_PORTABLE        = 1, /* cuMemHostRegister */
    UCT_CU_STREAM_NON_BLOCKING  = 1, /* cuStreamCreate */
    UCT_CU_EVENT_DISABLE_TIMING = 2, /* cuEventCreate */
    UCT_CU_IPC_LAZY_PEER        = 1, /* cuIpcOpenMemHandle */
    UCT_CU_HANDLE_DESCRIPTOR    = 1, /* cuMemExportToShareableHandle */
    UCT_CU_LOCATION_DEVICE      = 1,
    UCT_CU_ALLOCATION_PINNED    = 1, /* cuMemCreate */
    UCT_CU_ACCESS_READ_WRITE    = 3, /* cuMemSetAccess */
    UCT_CU_CAPTURE_RELAXED      = 2, /* cuThreadExchangeStreamCaptureMode */
    UCT_CU_SRC_ORDER_STREAM     = 1, /* cuMemcpyBatchAsync */
    UCT_CU_JIT_CACHE_MODE       = 14, /* cuModuleLoadDataEx; its value 0: none */
    UCT_CU_PRIORITY_HIGH        = -100 /* cuStreamCreateWithPriority takes its highest for it */
};

/* What precedes values in the last parameter of cuLaunchKernel, which ends with NULL. */
#define UCT_CU_LAUNCH_BUFFER ((void *)1)
#define UCT_CU_LAUNCH_SIZE   ((void *)2)

/* _call(required, field, symbol, parameters): the driver's functions; each returns a result. */
#define UCT_CUDA_CALLS(_call) \
    _call(1, cuCtxGetCurrent, "cuCtxGetCurrent", (uct_cu_ctx_t *ctx_p)) \
    _call(1, cuCtxPushCurrent, "cuCtxPushCurrent_v2", (uct_cu_ctx_t ctx)) \
    _call(1, cuCtxPopCurrent, "cuCtxPopCurrent_v2", (uct_cu_ctx_t *ctx_p)) \
    _call(1, cuCtxGetDevice, "cuCtxGetDevice", (uct_cu_device_t *device_p)) \
    _call(0, cuCtxGetId, "cuCtxGetId", (uct_cu_ctx_t ctx, unsigned long long *id_p)) \
    _call(1, cuDeviceGetCount, "cuDeviceGetCount", (int *count_p)) \
    _call(0, cuDeviceGetUuid, "cuDeviceGetUuid", (uct_cu_uuid_t *uuid, uct_cu_device_t device)) \
    _call(0, cuDeviceGetUuid2, "cuDeviceGetUuid_v2", \
          (uct_cu_uuid_t *uuid, uct_cu_device_t device)) \
    _call(1, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", \
          (uct_cu_device_t device, unsigned *flags_p, int *active_p)) \
    _call(1, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", \
          (uct_cu_ctx_t *ctx_p, uct_cu_device_t device)) \
    _call(1, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (uct_cu_device_t device)) \
    _call(0, cuGetErrorName, "cuGetErrorName", (int result, const char **text_p)) \
    _call(1, cuPointerGetAttributes, "cuPointerGetAttributes", \
          (unsigned count, int *attributes, void **data, uct_cu_ptr_t ptr)) \
    _call(1, cuPointerSetAttribute, "cuPointerSetAttribute", \
          (const void *value, int attribute, uct_cu_ptr_t ptr)) \
    _call(1, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", \
          (int *mode_p)) \
    _call(1, cuStreamCreate, "cuStreamCreate", (uct_cu_stream_t *stream_p, unsigned flags)) \
    _call(0, cuStreamCreateWithPriority, "cuStreamCreateWithPriority", \
          (uct_cu_stream_t *stream_p, unsigned flags, int priority)) \
    _call(1, cuStreamDestroy, "cuStreamDestroy_v2", (uct_cu_stream_t stream)) \
    _call(1, cuStreamQuery, "cuStreamQuery", (uct_cu_stream_t stream)) \
    _call(1, cuEventCreate, "cuEventCreate", (uct_cu_event_t *event_p, unsigned flags)) \
    _call(1, cuEventDestroy, "cuEventDestroy_v2", (uct_cu_event_t event)) \
    _call(1, cuEventRecord, "cuEventRecord", (uct_cu_event_t event, uct_cu_stream_t stream)) \
    _call(1, cuEventQuery, "cuEventQuery", (uct_cu_event_t event)) \
    _call(1, cuMemcpyAsync, "cuMemcpyAsync", \
          (uct_cu_ptr_t dest, uct_cu_ptr_t src, size_t length, uct_cu_stream_t stream)) \
    _call(0, cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", \
          (const uct_cu_rows_t *rows, uct_cu_stream_t stream)) \
    _call(0, cuMemcpyBatchAsync, "cuMemcpyBatchAsync_v2", \
          (uct_cu_ptr_t *dests, uct_cu_ptr_t *srcs, size_t *lengths, size_t count, \
           uct_cu_copy_attributes_t *attributes, size_t *indices, size_t num_attributes, \
           uct_cu_stream_t stream)) \
    _call(0, cuMemcpyBatchAsync1, "cuMemcpyBatchAsync", \
          (uct_cu_ptr_t *dests, uct_cu_ptr_t *srcs, size_t *lengths, size_t count, \
           uct_cu_copy_attributes_t *attributes, size_t *indices, size_t num_attributes, \
           size_t *failed_p, uct_cu_stream_t stream)) \
    _call(1, cuMemHostRegister, "cuMemHostRegister_v2", \
          (void *address, size_t length, unsigned flags)) \
    _call(1, cuMemHostUnregister, "cuMemHostUnregister", (void *address)) \
    _call(0, cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", \
          (uct_cu_ptr_t *ptr_p, void *address, unsigned flags)) \
    _call(0, cuModuleLoadDataEx, "cuModuleLoadDataEx", \
          (uct_cu_module_t *module_p, const void *image, unsigned count, int *options, \
           void **values)) \
    _call(0, cuModuleUnload, "cuModuleUnload", (uct_cu_module_t module)) \
    _call(0, cuModuleGetFunction, "cuModuleGetFunction", \
          (uct_cu_function_t *function_p, uct_cu_module_t module, const char *name)) \
    _call(0, cuModuleGetGlobal, "cuModuleGetGlobal_v2", \
          (uct_cu_ptr_t *ptr_p, size_t *length_p, uct_cu_module_t module, const char *name)) \
    _call(0, cuLaunchKernel, "cuLaunchKernel", \
          (uct_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
           uct_cu_stream_t stream, void **params, void **extra)) \
    _call(1, cuMemAlloc, "cuMemAlloc_v2", (uct_cu_ptr_t *ptr_p, size_t length)) \
    _call(1, cuMemAllocManaged, "cuMemAllocManaged", \
          (uct_cu_ptr_t *ptr_p, size_t length, unsigned flags)) \
    _call(1, cuMemFree, "cuMemFree_v2", (uct_cu_ptr_t ptr)) \
    _call(1, cuIpcGetMemHandle, "cuIpcGetMemHandle", \
          (uct_cu_ipc_handle_t *handle, uct_cu_ptr_t ptr)) \
    _call(1, cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", \
          (uct_cu_ptr_t *ptr_p, uct_cu_ipc_handle_t handle, unsigned flags)) \
    _call(1, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (uct_cu_ptr_t ptr)) \
    _call(0, cuMemCreate, "cuMemCreate", \
          (uct_cu_piece_t *piece_p, size_t length, const uct_cu_piece_properties_t *properties, \
           unsigned long long flags)) \
    _call(0, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", \
          (uct_cu_piece_t *piece_p, void *address)) \
    _call(0, cuMemExportToShareableHandle, "cuMemExportToShareableHandle", \
          (void *handle_p, uct_cu_piece_t piece, int type, unsigned long long flags)) \
    _call(0, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", \
          (uct_cu_piece_t *piece_p, void *handle, int type)) \
    _call(0, cuMemRelease, "cuMemRelease", (uct_cu_piece_t piece)) \
    _call(0, cuMemAddressReserve, "cuMemAddressReserve", \
          (uct_cu_ptr_t *ptr_p, size_t length, size_t alignment, uct_cu_ptr_t hint, \
           unsigned long long flags)) \
    _call(0, cuMemAddressFree, "cuMemAddressFree", (uct_cu_ptr_t ptr, size_t length)) \
    _call(0, cuMemMap, "cuMemMap", \
          (uct_cu_ptr_t ptr, size_t length, size_t offset, uct_cu_piece_t piece, \
           unsigned long long flags)) \
    _call(0, cuMemSetAccess, "cuMemSetAccess", \
          (uct_cu_ptr_t ptr, size_t length, const uct_cu_access_t *access, size_t count)) \
    _call(0, cuMemUnmap, "cuMemUnmap", (uct_cu_ptr_t ptr, size_t length)) \
    _call(0, cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", \
          (void *handle_p, uct_cu_pool_t pool, int type, unsigned long long flags)) \
    _call(0, cuMemPoolExportPointer, "cuMemPoolExportPointer", \
          (uct_cu_pool_pointer_t *pointer, uct_cu_ptr_t ptr)) \
    _call(0, cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", \
          (uct_cu_pool_t *pool_p, void *handle, int type, unsigned long long flags)) \
    _call(0, cuMemPoolImportPointer, "cuMemPoolImportPointer", \
          (uct_cu_ptr_t *ptr_p, uct_cu_pool_t pool, uct_cu_pool_pointer_t *pointer)) \
    _call(0, cuMemPoolSetAccess, "cuMemPoolSetAccess", \
          (uct_cu_pool_t pool, const uct_cu_access_t *access, size_t count)) \
    _call(0, cuMemPoolDestroy, "cuMemPoolDestroy", (uct_cu_pool_t pool))

#define UCT_CUDA_CALL_FIELD(_required, _field, _symbol, _parameters) int (*_field) _parameters;

typedef struct {
    UCT_CUDA_CALLS(UCT_CUDA_CALL_FIELD)
} uct_cuda_driver_t;

/* ---- calling it; any thread ---- */

/* Could there be a device here, going by what the machine shows? Some microseconds. */
int uct_cuda_is_possible(void);

/* The driver, if the program has loaded it by now and it has all that we need; else NULL. While it
 * is not loaded each call costs a microsecond. */
const uct_cuda_driver_t *uct_cuda_driver(void);

/* Whether what is before an event, or in a stream (event NULL), has ended: UCT_CU_SUCCESS or
 * UCT_CU_NOT_READY. An error is believed when it is said twice: who hears of it uses the memory for
 * other things, and if it is the question that has failed the device still copies. */
int uct_cuda_query(const uct_cuda_driver_t *driver, uct_cu_event_t event, uct_cu_stream_t stream);

/* What a failed call comes to. Logs one line at level (ucs_log_level_t), unless the driver is being
 * torn down. */
ucs_status_t uct_cuda_failed(const uct_cuda_driver_t *driver, int level, const char *call,
                             int result);

typedef struct {
    const uct_cuda_driver_t *driver;
    int                      mode; /* the thread's own capture mode */
} uct_cuda_scope_t;

/* Makes calls legal while another thread captures a graph, which they would spoil. On error nothing
 * is changed and restore is not called. May stand within each other. */
ucs_status_t uct_cuda_relax(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver);
void uct_cuda_restore(const uct_cuda_scope_t *scope);

/* The same, and makes ctx current. On error (the context is gone) nothing is changed and leave is
 * not called. Driver 580 crashes with one that has been destroyed: see cuda_context.h. */
ucs_status_t uct_cuda_enter(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver,
                            uct_cu_ctx_t ctx);
void uct_cuda_leave(const uct_cuda_scope_t *scope);

/* What lies at one end of a copy. */
typedef enum {
    UCT_CUDA_PAGEABLE, /* the driver does not know it: memory of the host */
    UCT_CUDA_PINNED,   /* memory of the host that devices reach */
    UCT_CUDA_MANAGED,
    UCT_CUDA_DEVICE
} uct_cuda_kind_t;

#define UCT_CUDA_PIECES_MAX  64 /* mapped pieces that are exported as one */
#define UCT_CUDA_DEVICES_MAX 64

typedef struct {
    uct_cuda_kind_t kind;
    int             device; /* ordinal; -1 for PAGEABLE */
    uct_cu_ctx_t    ctx;    /* it was allocated in; NULL: no particular one */
    uint64_t        id;     /* of the allocation */
    uct_cu_ptr_t    base;
    size_t          length; /* of the range; of a reservation where it is mapped piece by piece */
    uct_cu_pool_t   pool;      /* it comes from; set by uct_cuda_place_narrow, */
    unsigned        pieces;    /* and so is this: mapped side by side, 1 in most cases; 0: the
                                  driver has not told */
    int             is_legacy; /* cuIpcGetMemHandle takes it */
} uct_cuda_place_t;

/* Asks the driver about an address: 0.1 us. UCS_ERR_NO_DEVICE: the program has not initialised it.
 *
 * At the first look at an allocation of a device its attribute SYNC_MEMOPS is set (4 us). Without
 * it the program's cudaMemcpy from pageable memory returns while the device still writes, and our
 * streams, which wait for no other, copy old bytes: measured on an H100, 99 of 100 times with
 * 64 KiB. Setting it waits for such a copy that is under way, but not for kernels. */
ucs_status_t uct_cuda_place_query(const uct_cuda_driver_t *driver, const void *address,
                                  uct_cuda_place_t *place);

/* The same for [address, address + length): memory that is pinned only in part is PAGEABLE. */
ucs_status_t uct_cuda_range_query(const uct_cuda_driver_t *driver, const void *address,
                                  size_t length, uct_cuda_place_t *place);

/* Is [address, address + length) part of the range? */
int uct_cuda_place_covers(const uct_cuda_place_t *place, const void *address, size_t length);

/* Narrows the range of device memory to the piece that is mapped as one at the address, or to the
 * few that [address, address + length) takes if all can be exported: the id is then one of all of
 * them. Finds the pool. Returns the kinds of handles (UCT_CU_HANDLE_x) that the pieces can be
 * exported as; 0 where it is no such piece. */
unsigned uct_cuda_place_narrow(const uct_cuda_driver_t *driver, const void *address, size_t length,
                               uct_cuda_place_t *place);

/* The context that copies of DEVICE or MANAGED memory are made in; see uct_cuda_device_context. */
ucs_status_t uct_cuda_place_context(const uct_cuda_driver_t *driver, const uct_cuda_place_t *place,
                                    uct_cu_ctx_t *ctx_p);

/* A context of the device that the program uses: the thread's current one or the primary one if it
 * is active; device -1: of any. UCS_ERR_UNREACHABLE: there is none. */
ucs_status_t uct_cuda_device_context(const uct_cuda_driver_t *driver, int device,
                                     uct_cu_ctx_t *ctx_p);

/* A number that tells a context from later ones at the same address; 0 where the driver has none.
 * On error (UCS_ERR_NO_DEVICE: the driver is being torn down) the context is gone. */
ucs_status_t uct_cuda_context_id(const uct_cuda_driver_t *driver, uct_cu_ctx_t ctx, uint64_t *id_p);

/* The context that is current in this thread, and its device; 0: none is. Of one that another
 * thread has destroyed driver 580 still tells the device; what is then made in it is refused. */
int uct_cuda_current_context(const uct_cuda_driver_t *driver, uct_cu_ctx_t *ctx_p, int *device_p);

ucs_status_t uct_cuda_device_uuid(const uct_cuda_driver_t *driver, int device, uct_cu_uuid_t *uuid);

/* A number of it; 0: it has none. */
uint64_t uct_cuda_device_uid(const uct_cuda_driver_t *driver, int device);

END_C_DECLS

#endif
