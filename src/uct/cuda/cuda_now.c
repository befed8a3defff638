/* Halyard: cuda: copies that are waited for.
 *
 * Of less than 32 KiB from memory of the host the driver has the bytes written by that part of the
 * device which computes, and this takes 145 us to change over where another process uses it
 * (measured on an H200, driver 580: 290 us for two processes that do it in turn; longer ones are
 * made by copy engines, 20 us). Rows that do not lie side by side are always made by those, 17 us
 * for both: so a short copy goes as two rows, which lie apart in a buffer of ours. A process that
 * is alone loses 1.8 us by that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_engine.h>

#define UCS_LOG_COMPONENT "cuda"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCT_CUDA_YIELD_POLLS 64

/* Longer than any copy takes, but for what takes longer at 1 GB/s. */
#define UCT_CUDA_NOW_NS      30000000000ull

int uct_cuda_now_is_stuck(const uct_cuda_driver_t *driver, uct_cuda_now_t *now)
{
    now->is_stuck = now->is_stuck &&
                    (uct_cuda_query(driver, NULL, now->stream) == UCT_CU_NOT_READY);
    return now->is_stuck;
}

static ucs_status_t uct_cuda_now_init(uct_cuda_engine_t *engine, uct_cuda_now_t *now,
                                      int has_buffer)
{
    const uct_cuda_driver_t *driver = engine->driver;
    int result;

    if (now->stream == NULL) {
        result = driver->cuStreamCreate(&now->stream, UCT_CU_STREAM_NON_BLOCKING);
        if (result != UCT_CU_SUCCESS) {
            now->stream = NULL;
            return uct_cuda_engine_failed(engine, "cuStreamCreate", result);
        }
    }
    if (has_buffer && (now->buffer == NULL)) {
        now->buffer = uct_cuda_host_make(driver, UCT_CUDA_PIECE, &now->is_registered);
    }
    return (has_buffer && (now->buffer == NULL)) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

/* Waits for what was handed over with this result; what does not end is given up. */
static ucs_status_t uct_cuda_now_wait(uct_cuda_engine_t *engine, uct_cuda_now_t *now, int result,
                                      size_t length)
{
    const uct_cuda_driver_t *driver = engine->driver;
    uint64_t until                  = 0; /* not looked at the clock yet */
    unsigned polls                  = 0;
    uint64_t time;

    while ((result == UCT_CU_SUCCESS) &&
           ((result = uct_cuda_query(driver, NULL, now->stream)) == UCT_CU_NOT_READY)) {
        result = UCT_CU_SUCCESS;
        if ((++polls % UCT_CUDA_YIELD_POLLS) != 0) {
            continue;
        }
        time  = ucs_sys_clock_ns();
        until = (until == 0) ? time + UCT_CUDA_NOW_NS + length : until;
        if (time > until) {
            ucs_error("a copy of %zu bytes does not end: given up, as are others until it does",
                      length);
            now->is_stuck = 1;
            return UCS_ERR_TIMED_OUT;
        }
        ucs_sys_sched_yield();
    }
    return (result == UCT_CU_SUCCESS) ? UCS_OK : uct_cuda_engine_failed(engine, "a copy", result);
}

/* Copies what devices reach. */
static ucs_status_t uct_cuda_now_copy(uct_cuda_engine_t *engine, uct_cuda_now_t *now,
                                      uct_cu_ptr_t dest, uct_cu_ptr_t src, size_t length)
{
    return uct_cuda_now_wait(engine, now,
                             engine->driver->cuMemcpyAsync(dest, src, length, now->stream), length);
}

/* Two rows of so many bytes, which stand at `room` and half a buffer behind it. */
static int uct_cuda_now_send_rows(const uct_cuda_driver_t *driver, const uct_cuda_now_t *now,
                                  uct_cu_ptr_t dest, char *room, const char *src, size_t width)
{
    uct_cu_rows_t rows = {
        .src_type    = UCT_CU_MEMORY_HOST,
        .src_host    = room,
        .src_pitch   = UCT_CUDA_PIECE / 2,
        .dest_type   = UCT_CU_MEMORY_DEVICE,
        .dest_device = dest,
        .dest_pitch  = width,
        .width       = width,
        .height      = 2
    };

    memcpy(room, src, width);
    memcpy(room + (UCT_CUDA_PIECE / 2), src + width, width);
    return driver->cuMemcpy2DAsync(&rows, now->stream);
}

/* A short copy from the host; where the length is odd the last two bytes go once more.
 * UCS_ERR_UNSUPPORTED: the driver refuses it, nothing is under way. */
static ucs_status_t uct_cuda_now_rows(uct_cuda_engine_t *engine, uct_cuda_now_t *now,
                                      const uct_cuda_part_t *part)
{
    const uct_cuda_driver_t *driver = engine->driver;
    const char *src                 = (const char *)(uintptr_t)part->src;
    const size_t last               = part->length - 2;
    int result, last_result;
    ucs_status_t status;

    result = uct_cuda_now_send_rows(driver, now, part->dest, now->buffer, src, part->length / 2);
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        return UCS_ERR_UNSUPPORTED;
    }
    last_result = ((part->length % 2) == 0) ? UCT_CU_SUCCESS :
                  uct_cuda_now_send_rows(driver, now, part->dest + last,
                                         now->buffer + UCT_CUDA_ROWS_MAX, src + last, 1);
    status      = uct_cuda_now_wait(engine, now, result, part->length);
    return ((status == UCS_OK) && (last_result != UCT_CU_SUCCESS)) ? UCS_ERR_UNSUPPORTED : status;
}

/* The same from or to pageable memory. */
static ucs_status_t uct_cuda_now_stage(uct_cuda_engine_t *engine, uct_cuda_now_t *now,
                                       const uct_cuda_part_t *part)
{
    const uct_cu_ptr_t buffer = (uintptr_t)now->buffer;
    ucs_status_t status       = UCS_OK;
    size_t offset, length;

    for (offset = 0; (offset < part->length) && (status == UCS_OK); offset += length) {
        length = ucs_min(part->length - offset, UCT_CUDA_PIECE);
        if (!part->to_host) {
            memcpy(now->buffer, (const char *)(uintptr_t)part->src + offset, length);
        }
        status = uct_cuda_now_copy(engine, now, part->to_host ? buffer : part->dest + offset,
                                   part->to_host ? part->src + offset : buffer, length);
        if (part->to_host && (status == UCS_OK)) {
            memcpy((char *)(uintptr_t)part->dest + offset, now->buffer, length);
        }
    }
    return status;
}

ucs_status_t uct_cuda_copy_now(uct_cuda_engine_t *engine, const uct_cuda_part_t *part)
{
    const uct_cuda_driver_t *driver = engine->driver;
    uct_cuda_now_t *now             = &part->queue->now;
    uct_cuda_scope_t scope;
    ucs_status_t status;
    int in_rows;

    status = uct_cuda_enter(&scope, driver, part->queue->context.ctx);
    if (status != UCS_OK) {
        return status;
    }
    if (ucs_unlikely(uct_cuda_now_is_stuck(driver, now))) {
        uct_cuda_leave(&scope);
        return UCS_ERR_IO_ERROR;
    }
    in_rows = part->in_rows && (part->length > 1) && (driver->cuMemcpy2DAsync != NULL);
    status  = uct_cuda_now_init(engine, now, part->is_staged || in_rows);
    if (status == UCS_OK) {
        status = in_rows ? uct_cuda_now_rows(engine, now, part) : UCS_ERR_UNSUPPORTED;
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        status = part->is_staged ? uct_cuda_now_stage(engine, now, part) :
                 uct_cuda_now_copy(engine, now, part->dest, part->src, part->length);
    }
    uct_cuda_leave(&scope);
    return status;
}
