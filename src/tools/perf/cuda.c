/* Halyard: memory of CUDA devices, as an application uses it, through the driver's own interface.
 *
 * What the driver's structures look like is written down (here and in cuda_driver.h), so nothing of
 * CUDA is needed to build; what an older driver lacks fails when it is first wanted.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "device.h"

#include <ucs/sys/library.h>
#include <uct/cuda/cuda_driver.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY   "libcuda.so.1"
#define PAGE_SIZE 4096
#define VMM_UNIT  (UINT64_C(2) << 20) /* pieces are mapped in multiples of it */
#define SET_CHUNK 65536

/* CUmemPoolProps */
typedef struct cu_pool_prop {
    int               type;
    int               handle_types;
    uct_cu_location_t location;
    void             *unused;
    size_t            size_max;
    uint8_t           reserved[56];
} cu_pool_prop_t;

_Static_assert(sizeof(cu_pool_prop_t) == 88, "CUmemPoolProps");
_Static_assert(sizeof(uct_cu_ipc_handle_t) == PERF_DEVICE_HANDLE_SIZE, "CUipcMemHandle");

/* What the library does not call, in the form of UCT_CUDA_CALLS. */
#define CUDA_CALLS(_call) \
    _call(1, cuInit, "cuInit", (unsigned flags)) \
    _call(0, cuDriverGetVersion, "cuDriverGetVersion", (int *version)) \
    _call(0, cuDeviceGet, "cuDeviceGet", (int *device, int ordinal)) \
    _call(0, cuDeviceGetName, "cuDeviceGetName", (char *name, int size, int device)) \
    _call(1, cuCtxSetCurrent, "cuCtxSetCurrent", (uct_cu_ctx_t ctx)) \
    _call(1, cuStreamSynchronize, "cuStreamSynchronize", (uct_cu_stream_t stream)) \
    _call(0, cuMemGetInfo, "cuMemGetInfo_v2", (size_t *unused, size_t *total)) \
    _call(0, cuMemHostAlloc, "cuMemHostAlloc", (void **memory, size_t size, unsigned flags)) \
    _call(0, cuMemFreeHost, "cuMemFreeHost", (void *memory)) \
    _call(0, cuMemAllocAsync, "cuMemAllocAsync", \
          (uct_cu_ptr_t *memory, size_t size, uct_cu_stream_t stream)) \
    _call(0, cuMemPoolCreate, "cuMemPoolCreate", \
          (uct_cu_pool_t *pool, const cu_pool_prop_t *prop)) \
    _call(0, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", \
          (uct_cu_ptr_t *memory, size_t size, uct_cu_pool_t pool, uct_cu_stream_t stream))

typedef struct {
    UCT_CUDA_CALLS(UCT_CUDA_CALL_FIELD)
    CUDA_CALLS(UCT_CUDA_CALL_FIELD)
} cuda_functions_t;

static cuda_functions_t cu;

#define CALL_FUNCTION(_required, _name, _symbol, _parameters) \
    {_symbol, offsetof(cuda_functions_t, _name), !(_required)},

static const ucs_library_function_t functions[] = {
    UCT_CUDA_CALLS(CALL_FUNCTION) CUDA_CALLS(CALL_FUNCTION)
};

const char *const perf_memory_names[PERF_MEMORY_COUNT] = {
    [PERF_MEMORY_HOST] = "host",
    [PERF_MEMORY_CUDA] = "cuda",
    [PERF_MEMORY_MANAGED] = "cuda-managed",
    [PERF_MEMORY_ASYNC] = "cuda-async",
    [PERF_MEMORY_POOL] = "cuda-pool",
    [PERF_MEMORY_VMM] = "cuda-vmm",
    [PERF_MEMORY_VMM_PRIVATE] = "cuda-vmm-private",
    [PERF_MEMORY_VMM_PIECES] = "cuda-vmm-pieces",
    [PERF_MEMORY_PINNED] = "cuda-pinned",
    [PERF_MEMORY_REGISTERED] = "cuda-registered",
};

static int fail(perf_device_t *device, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static int fail(perf_device_t *device, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(device->problem, sizeof(device->problem), format, args);
    va_end(args);
    return -1;
}

/* What a call came to. */
static int check(perf_device_t *device, int result, const char *call)
{
    const char *name = NULL;

    if (result == UCT_CU_SUCCESS) {
        return 0;
    }
    if ((cu.cuGetErrorName == NULL) || (cu.cuGetErrorName(result, &name) != UCT_CU_SUCCESS) ||
        (name == NULL)) {
        name = "unknown";
    }
    return fail(device, "%s: CUDA error %d (%s)", call, result, name);
}

/* Calls a function that may be missing. */
#define CALL(_device, _name, ...) \
    ((cu._name == NULL) ? fail(_device, "the driver has no %s", #_name) : \
                          check(_device, cu._name(__VA_ARGS__), #_name))

static uct_cu_ptr_t as_cu(const void *memory)
{
    return (uintptr_t)memory;
}

/* ---- the device ---- */

static char load_problem[160];

static void load(void)
{
    (void)ucs_library_open(LIBRARY, functions, sizeof(functions) / sizeof(functions[0]), &cu,
                           load_problem, sizeof(load_problem));
}

int perf_device_open(perf_device_t *device, int ordinal, unsigned side)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    memset(device, 0, sizeof(*device));
    pthread_once(&once, load);
    if (load_problem[0] != '\0') {
        return fail(device, "no CUDA driver: %s", load_problem);
    }
    if ((CALL(device, cuInit, 0) != 0) || (CALL(device, cuDeviceGetCount, &device->count) != 0)) {
        return -1;
    }
    if (device->count == 0) {
        return fail(device, "the driver shows no device");
    }
    device->ordinal = (ordinal >= 0) ? ordinal : (int)(side % (unsigned)device->count);
    if (device->ordinal >= device->count) {
        return fail(device, "no device %d: there are %d", device->ordinal, device->count);
    }
    device->number = device->ordinal;
    (void)CALL(device, cuDriverGetVersion, &device->driver);
    (void)CALL(device, cuDeviceGet, &device->number, device->ordinal);
    (void)CALL(device, cuDeviceGetName, device->name, (int)sizeof(device->name), device->number);
    if (CALL(device, cuDevicePrimaryCtxRetain, &device->ctx, device->number) != 0) {
        return -1;
    }
    device->is_open = 1;
    if ((perf_device_enter(device) != 0) ||
        (CALL(device, cuStreamCreate, &device->stream, UCT_CU_STREAM_NON_BLOCKING) != 0)) {
        device->stream = NULL;
        perf_device_close(device);
        return -1;
    }
    return 0;
}

void perf_device_close(perf_device_t *device)
{
    if (!device->is_open) {
        return;
    }
    (void)cu.cuCtxSetCurrent(device->ctx);
    if (device->pool != NULL) {
        (void)cu.cuMemPoolDestroy(device->pool);
    }
    if (device->stream != NULL) {
        (void)cu.cuStreamDestroy(device->stream);
    }
    (void)cu.cuCtxSetCurrent(NULL);
    (void)cu.cuDevicePrimaryCtxRelease(device->number);
    device->is_open = 0;
}

int perf_device_enter(perf_device_t *device)
{
    return CALL(device, cuCtxSetCurrent, device->ctx);
}

int perf_device_free_bytes(perf_device_t *device, size_t *free_p)
{
    size_t total;

    return (perf_device_enter(device) == 0) ? CALL(device, cuMemGetInfo, free_p, &total) : -1;
}

/* ---- memory ---- */

int perf_memory_is_host(perf_memory_t kind)
{
    return (kind == PERF_MEMORY_HOST) || (kind == PERF_MEMORY_PINNED) ||
           (kind == PERF_MEMORY_REGISTERED);
}

size_t perf_memory_extent(perf_memory_t kind, size_t size)
{
    size_t unit = 1;

    if ((kind == PERF_MEMORY_HOST) || (kind == PERF_MEMORY_REGISTERED)) {
        unit = PAGE_SIZE;
    } else if ((kind == PERF_MEMORY_VMM) || (kind == PERF_MEMORY_VMM_PRIVATE)) {
        unit = VMM_UNIT;
    } else if (kind == PERF_MEMORY_VMM_PIECES) {
        unit = 2 * VMM_UNIT;
    }
    return (size + unit - 1) / unit * unit;
}

static void *alloc_host(perf_device_t *device, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED) {
        (void)fail(device, "mmap of %zu bytes failed", size);
        return NULL;
    }
    return map;
}

static void *alloc_registered(perf_device_t *device, size_t size)
{
    void *memory = alloc_host(device, size);

    if ((memory != NULL) && (CALL(device, cuMemHostRegister, memory, size, 0) != 0)) {
        munmap(memory, size);
        return NULL;
    }
    return memory;
}

/* One piece of a range. The mapping keeps the memory, so the handle is not needed any more. */
static int vmm_piece(perf_device_t *device, perf_memory_t kind, uct_cu_ptr_t place, size_t size)
{
    const uct_cu_piece_properties_t prop = {
        .type         = UCT_CU_ALLOCATION_PINNED,
        .handle_types = (kind == PERF_MEMORY_VMM_PRIVATE) ? 0 : UCT_CU_HANDLE_DESCRIPTOR,
        .location     = {UCT_CU_LOCATION_DEVICE, device->number}};
    uct_cu_piece_t handle;
    int status;

    if (CALL(device, cuMemCreate, &handle, size, &prop, 0) != 0) {
        return -1;
    }
    status = CALL(device, cuMemMap, place, size, 0, handle, 0);
    (void)cu.cuMemRelease(handle);
    return status;
}

static size_t vmm_piece_size(perf_memory_t kind, size_t size)
{
    return (kind == PERF_MEMORY_VMM_PIECES) ? size / 2 : size;
}

/* A range of which `mapped` bytes are. What fails here cannot be helped. */
static void vmm_release(perf_device_t *device, perf_memory_t kind, uct_cu_ptr_t memory, size_t size,
                        size_t mapped)
{
    const size_t piece = vmm_piece_size(kind, size);

    for (; mapped > 0; mapped -= piece) {
        (void)CALL(device, cuMemUnmap, memory + mapped - piece, piece);
    }
    (void)CALL(device, cuMemAddressFree, memory, size);
}

static void *alloc_vmm(perf_device_t *device, perf_memory_t kind, size_t size)
{
    const size_t piece = vmm_piece_size(kind, size);
    uct_cu_access_t access = {.location = {1, device->number}, .flags = 3};
    size_t mapped      = 0;
    uct_cu_ptr_t memory;

    if (CALL(device, cuMemAddressReserve, &memory, size, 0, 0, 0) != 0) {
        return NULL;
    }
    while ((mapped < size) && (vmm_piece(device, kind, memory + mapped, piece) == 0)) {
        mapped += piece;
    }
    if ((mapped == size) && (CALL(device, cuMemSetAccess, memory, size, &access, 1) == 0)) {
        return (void*)(uintptr_t)memory;
    }
    vmm_release(device, kind, memory, size, mapped);
    return NULL;
}

static int alloc_pool(perf_device_t *device, uct_cu_ptr_t *memory, size_t size)
{
    cu_pool_prop_t prop = {.type = 1, .handle_types = 1, .location = {1, device->number}};

    if ((device->pool == NULL) && (CALL(device, cuMemPoolCreate, &device->pool, &prop) != 0)) {
        device->pool = NULL;
        return -1;
    }
    return CALL(device, cuMemAllocFromPoolAsync, memory, size, device->pool, device->stream);
}

void *perf_memory_alloc(perf_device_t *device, perf_memory_t kind, size_t size)
{
    uct_cu_ptr_t memory = 0;
    void *host      = NULL;
    int status;

    size = perf_memory_extent(kind, size);
    if (kind == PERF_MEMORY_HOST) {
        return alloc_host(device, size);
    }
    if (perf_device_enter(device) != 0) {
        return NULL;
    }
    switch (kind) {
    case PERF_MEMORY_CUDA:
        status = CALL(device, cuMemAlloc, &memory, size);
        break;
    case PERF_MEMORY_MANAGED:
        status = CALL(device, cuMemAllocManaged, &memory, size, UCT_CU_ATTACH_GLOBAL);
        break;
    case PERF_MEMORY_ASYNC:
        status = CALL(device, cuMemAllocAsync, &memory, size, device->stream);
        break;
    case PERF_MEMORY_POOL:
        status = alloc_pool(device, &memory, size);
        break;
    case PERF_MEMORY_PINNED:
        status = CALL(device, cuMemHostAlloc, &host, size, 0);
        return (status == 0) ? host : NULL;
    case PERF_MEMORY_REGISTERED:
        return alloc_registered(device, size);
    default:
        return alloc_vmm(device, kind, size);
    }
    if ((status != 0) || (CALL(device, cuStreamSynchronize, device->stream) != 0)) {
        return NULL;
    }
    return (void*)(uintptr_t)memory;
}

void perf_memory_release(perf_device_t *device, perf_memory_t kind, void *memory, size_t size)
{
    size = perf_memory_extent(kind, size);
    if (kind == PERF_MEMORY_HOST) {
        munmap(memory, size);
        return;
    }
    if (perf_device_enter(device) != 0) {
        return;
    }
    switch (kind) {
    case PERF_MEMORY_CUDA:
    case PERF_MEMORY_MANAGED:
    case PERF_MEMORY_ASYNC:
    case PERF_MEMORY_POOL:
        (void)cu.cuMemFree(as_cu(memory));
        break;
    case PERF_MEMORY_PINNED:
        (void)cu.cuMemFreeHost(memory);
        break;
    case PERF_MEMORY_REGISTERED:
        (void)cu.cuMemHostUnregister(memory);
        munmap(memory, size);
        break;
    default:
        vmm_release(device, kind, as_cu(memory), size, size);
        break;
    }
}

int perf_memory_copy(perf_device_t *device, void *dest, const void *src, size_t size)
{
    if ((size == 0) || !device->is_open) {
        memcpy(dest, src, size);
        return 0;
    }
    if ((perf_device_enter(device) != 0) ||
        (CALL(device, cuMemcpyAsync, as_cu(dest), as_cu(src), size, device->stream) != 0)) {
        return -1;
    }
    return CALL(device, cuStreamSynchronize, device->stream);
}

int perf_memory_set(perf_device_t *device, perf_memory_t kind, void *dest, int byte, size_t size)
{
    char chunk[SET_CHUNK];
    size_t done = 0, part;

    if (perf_memory_is_host(kind)) {
        memset(dest, byte, size);
        return 0;
    }
    memset(chunk, byte, sizeof(chunk));
    for (; done < size; done += part) {
        part = (size - done < sizeof(chunk)) ? size - done : sizeof(chunk);
        if (perf_memory_copy(device, (char*)dest + done, chunk, part) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- what the driver can do between processes ---- */

int perf_device_export(perf_device_t *device, void *memory,
                       uint8_t handle[PERF_DEVICE_HANDLE_SIZE])
{
    uct_cu_ipc_handle_t made;

    if (CALL(device, cuIpcGetMemHandle, &made, as_cu(memory)) != 0) {
        return -1;
    }
    memcpy(handle, made.data, sizeof(made.data));
    return 0;
}

void *perf_device_import(perf_device_t *device, const uint8_t handle[PERF_DEVICE_HANDLE_SIZE])
{
    uct_cu_ipc_handle_t given;
    uct_cu_ptr_t memory;

    memcpy(given.data, handle, sizeof(given.data));
    return ((perf_device_enter(device) == 0) &&
            (CALL(device, cuIpcOpenMemHandle, &memory, given, UCT_CU_IPC_LAZY_PEER) == 0)) ?
           (void*)(uintptr_t)memory : NULL;
}

void perf_device_forget(perf_device_t *device, void *imported)
{
    if (perf_device_enter(device) == 0) {
        (void)cu.cuIpcCloseMemHandle(as_cu(imported));
    }
}

static int poll_stream(perf_device_t *device)
{
    int result;

    do {
        result = cu.cuStreamQuery(device->stream);
    } while (result == UCT_CU_NOT_READY);
    return check(device, result, "cuStreamQuery");
}

int perf_device_copy_poll(perf_device_t *device, void *dest, const void *src, size_t size)
{
    int result = cu.cuMemcpyAsync(as_cu(dest), as_cu(src), size, device->stream);

    return (result == UCT_CU_SUCCESS) ? poll_stream(device) :
                                        check(device, result, "cuMemcpyAsync");
}

/* The driver's call for many copies, as far as it has one. */
static int submit_batch(perf_device_t *device, void *dest, const void *src, size_t size,
                        unsigned count)
{
    uct_cu_copy_attributes_t attributes = {.src_access_order = UCT_CU_SRC_ORDER_STREAM};
    uct_cu_ptr_t dests[PERF_DEVICE_BATCH_MAX], srcs[PERF_DEVICE_BATCH_MAX];
    size_t sizes[PERF_DEVICE_BATCH_MAX], index = 0, failed;
    unsigned i;

    for (i = 0; i < count; ++i) {
        dests[i] = as_cu(dest);
        srcs[i]  = as_cu(src);
        sizes[i] = size;
    }
    if (cu.cuMemcpyBatchAsync != NULL) {
        return cu.cuMemcpyBatchAsync(dests, srcs, sizes, count, &attributes, &index, 1,
                                     device->stream) == UCT_CU_SUCCESS;
    }
    return (cu.cuMemcpyBatchAsync1 != NULL) &&
           (cu.cuMemcpyBatchAsync1(dests, srcs, sizes, count, &attributes, &index, 1, &failed,
                                   device->stream) == UCT_CU_SUCCESS);
}

int perf_device_batch_poll(perf_device_t *device, void *dest, const void *src, size_t size,
                           unsigned count)
{
    int result = UCT_CU_SUCCESS;

    if (device->has_no_batch || !submit_batch(device, dest, src, size, count)) {
        device->has_no_batch = 1;
        for (; (count > 0) && (result == UCT_CU_SUCCESS); --count) {
            result = cu.cuMemcpyAsync(as_cu(dest), as_cu(src), size, device->stream);
        }
    }
    return (result == UCT_CU_SUCCESS) ? poll_stream(device) :
                                        check(device, result, "cuMemcpyAsync");
}
