/* Halyard: kinds of memory that buffers can be in, and the device that some of them belong to.
 *
 * This is the part of an application that uses GPUs: cuda.c loads CUDA's driver when a device is
 * opened, initialises it and keeps its primary context. It needs no CUDA to build; the tests link
 * it too. Functions that can fail return 0, or -1 with the reason in
 * device->problem. They may be called by any thread, by one at a time for each device object; they
 * make the device's context current in the calling thread, and wait for what they start.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum perf_memory {
    PERF_MEMORY_HOST,
    PERF_MEMORY_CUDA,        /* cuMemAlloc */
    PERF_MEMORY_MANAGED,
    PERF_MEMORY_ASYNC,       /* the device's default pool, which cannot be exported */
    PERF_MEMORY_POOL,        /* a pool that can */
    PERF_MEMORY_VMM,         /* cuMemCreate and cuMemMap, exportable */
    PERF_MEMORY_VMM_PRIVATE, /* not exportable */
    PERF_MEMORY_VMM_PIECES,  /* exportable, two pieces in one range of addresses */
    PERF_MEMORY_PINNED,      /* cuMemHostAlloc */
    PERF_MEMORY_REGISTERED,  /* host memory made known to the driver afterwards */
    PERF_MEMORY_COUNT
} perf_memory_t;

extern const char *const perf_memory_names[PERF_MEMORY_COUNT];

#define PERF_DEVICE_HANDLE_SIZE 64
#define PERF_DEVICE_BATCH_MAX   64 /* copies that go to the driver in one call */

typedef struct perf_device {
    int   is_open;
    int   ordinal;
    int   number; /* as the driver's functions want it */
    int   count;  /* devices that this process sees */
    int   driver; /* its version: 13000 is 13.0 */
    int   has_no_batch; /* cuMemcpyBatchAsync is missing, or was refused: copies go one by one */
    struct CUctx_st           *ctx;
    struct CUstream_st        *stream;
    struct CUmemPoolHandle_st *pool; /* of PERF_MEMORY_POOL, made when first wanted */
    char  name[64];
    char  problem[120];
} perf_device_t;

/* Starts CUDA in this process and takes a device; ordinal -1: as many devices as there are shared
 * out among sides. Never before a fork whose child uses CUDA. */
int perf_device_open(perf_device_t *device, int ordinal, unsigned side);

/* Accepts one that was not opened. All memory must have been released. */
void perf_device_close(perf_device_t *device);

/* Makes the device's context current in this thread. */
int perf_device_enter(perf_device_t *device);

/* Memory that processors read and write; for all else use the functions below. */
int perf_memory_is_host(perf_memory_t kind);

/* Is any of both sides' memory (perf_memory_t) not? */
static inline int perf_memory_any_device(const uint8_t memory[2])
{
    return !perf_memory_is_host((perf_memory_t)memory[0]) ||
           !perf_memory_is_host((perf_memory_t)memory[1]);
}

/* NULL on error. The device may be one that is not open where the kind is HOST. The memory is that
 * of the calling process only; release wants the same kind and size. */
void *perf_memory_alloc(perf_device_t *device, perf_memory_t kind, size_t size);
void perf_memory_release(perf_device_t *device, perf_memory_t kind, void *memory, size_t size);

/* Bytes that an allocation of this size really takes; VMM_PIECES: its second piece begins in the
 * middle of them. */
size_t perf_memory_extent(perf_memory_t kind, size_t size);

/* Copies between any kinds; sets bytes of any kind. */
int perf_memory_copy(perf_device_t *device, void *dest, const void *src, size_t size);
int perf_memory_set(perf_device_t *device, perf_memory_t kind, void *dest, int byte, size_t size);

/* Bytes of the device that are free. */
int perf_device_free_bytes(perf_device_t *device, size_t *free_p);

/* Makes memory of kind CUDA known to another process, and maps such memory of another. */
int perf_device_export(perf_device_t *device, void *memory,
                       uint8_t handle[PERF_DEVICE_HANDLE_SIZE]);
void *perf_device_import(perf_device_t *device, const uint8_t handle[PERF_DEVICE_HANDLE_SIZE]);
void perf_device_forget(perf_device_t *device, void *imported);

/* What the driver can do, in the thread that called enter: one copy, or up to BATCH_MAX of the same
 * block in one call, polled for until done. */
int perf_device_copy_poll(perf_device_t *device, void *dest, const void *src, size_t size);
int perf_device_batch_poll(perf_device_t *device, void *dest, const void *src, size_t size,
                           unsigned count);

END_C_DECLS

#endif
