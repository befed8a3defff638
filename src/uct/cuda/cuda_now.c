/* Halyard: cuda: copies that are waited for.
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

/* Copies what devices reach and waits for it; a copy that does not end is given up. */
static ucs_status_t uct_cuda_now_copy(uct_cuda_engine_t *engine, uct_cuda_now_t *now,
                                      uct_cu_ptr_t dest, uct_cu_ptr_t src, size_t length)
{
    const uct_cuda_driver_t *driver = engine->driver;
    uint64_t until                  = 0; /* not looked at the clock yet */
    unsigned polls                  = 0;
    uint64_t time;
    int result;

    result = driver->cuMemcpyAsync(dest, src, length, now->stream);
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

    status = uct_cuda_enter(&scope, driver, part->queue->context.ctx);
    if (status != UCS_OK) {
        return status;
    }
    if (ucs_unlikely(uct_cuda_now_is_stuck(driver, now))) {
        uct_cuda_leave(&scope);
        return UCS_ERR_IO_ERROR;
    }
    status = uct_cuda_now_init(engine, now, part->is_staged);
    if (status == UCS_OK) {
        status = part->is_staged ? uct_cuda_now_stage(engine, now, part) :
                 uct_cuda_now_copy(engine, now, part->dest, part->src, part->length);
    }
    uct_cuda_leave(&scope);
    return status;
}
