/* Halyard: cuda: the engine: queues, batches, and the way of pageable memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_engine.h>

#define UCS_LOG_COMPONENT "cuda"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>
#include <sys/mman.h>

#define UCT_CUDA_DRAIN_NS    10000000000ull
#define UCT_CUDA_YIELD_POLLS 64

/* For a copy that is waited for: longer than any takes, but for what takes longer at 1 GB/s. */
#define UCT_CUDA_NOW_NS      30000000000ull

/* An error is shown once until another one comes: a broken context fails everything. */
static ucs_status_t uct_cuda_engine_failed(uct_cuda_engine_t *engine, const char *call, int result)
{
    const int level = (result == engine->last_error) ? UCS_LOG_LEVEL_DEBUG : UCS_LOG_LEVEL_ERROR;

    engine->last_error = result;
    return uct_cuda_failed(engine->driver, level, call, result);
}

/* ------------------------------------------------------------------ ends of copies */

static void uct_cuda_copy_end(uct_cuda_engine_t *engine, uct_cuda_copy_t *copy, ucs_status_t status)
{
    uct_cuda_copy_t *leader = copy->leader;

    if (ucs_unlikely(status != UCS_OK) && (leader->status == UCS_OK)) {
        leader->status = status;
    }
    if (copy != leader) {
        ucs_mpool_put(copy);
    }
    if (--leader->left == 0) {
        ucs_queue_push(&engine->done, &leader->elem);
    }
}

static void uct_cuda_copies_end(uct_cuda_engine_t *engine, ucs_queue_head_t *copies,
                                ucs_status_t status)
{
    while (!ucs_queue_is_empty(copies)) {
        uct_cuda_copy_end(engine, ucs_queue_pull_elem(copies, uct_cuda_copy_t, elem), status);
    }
}

static void uct_cuda_engine_unpin(uct_cuda_engine_t *engine, void *pinned)
{
    if ((pinned != NULL) && (engine->unpin != NULL)) {
        engine->unpin(pinned);
    }
}

/* Outside of any loop over queues: completions may post. */
static unsigned uct_cuda_engine_complete(uct_cuda_engine_t *engine)
{
    unsigned count = 0;
    uct_cuda_copy_t *leader;
    uct_completion_t *comp;
    ucs_status_t status;

    while (!ucs_queue_is_empty(&engine->done)) {
        leader = ucs_queue_pull_elem(&engine->done, uct_cuda_copy_t, elem);
        comp   = leader->comp;
        status = leader->status;
        uct_cuda_engine_unpin(engine, leader->pinned);
        ucs_mpool_put(leader);
        --engine->num_active;
        uct_completion_update(comp, status);
        ++count;
    }
    return count;
}

/* ------------------------------------------------------------------ batches */

static void uct_cuda_batch_mark(uct_cuda_queue_t *queue, uct_cuda_batch_t *batch)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;

    /* Without an event the batch ends later, when the stream is idle. */
    if ((batch->event == NULL) &&
        (driver->cuEventCreate(&batch->event, UCT_CU_EVENT_DISABLE_TIMING) != UCT_CU_SUCCESS)) {
        batch->event = NULL;
        return;
    }
    batch->has_event = (driver->cuEventRecord(batch->event, queue->stream) == UCT_CU_SUCCESS);
}

/* All copies by one call; not zero if the driver has taken them. */
static int uct_cuda_batch_send(uct_cuda_queue_t *queue, uct_cuda_batch_t *batch, unsigned n)
{
    uct_cuda_engine_t *engine           = queue->engine;
    const uct_cuda_driver_t *driver     = engine->driver;
    uct_cu_copy_attributes_t attributes = {.src_access_order = UCT_CU_SRC_ORDER_STREAM};
    size_t index                        = 0;
    uct_cu_ptr_t dests[UCT_CUDA_BATCH_MAX], srcs[UCT_CUDA_BATCH_MAX];
    size_t lengths[UCT_CUDA_BATCH_MAX], failed;
    uct_cuda_copy_t *copy;
    unsigned i = 0;
    int result;

    ucs_queue_for_each(copy, &batch->copies, elem) {
        dests[i]     = copy->part.dest;
        srcs[i]      = copy->part.src;
        lengths[i++] = copy->part.length;
    }
    result = (driver->cuMemcpyBatchAsync != NULL) ?
             driver->cuMemcpyBatchAsync(dests, srcs, lengths, n, &attributes, &index, 1,
                                        queue->stream) :
             driver->cuMemcpyBatchAsync1(dests, srcs, lengths, n, &attributes, &index, 1, &failed,
                                         queue->stream);
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuMemcpyBatchAsync", result);
        engine->no_batches |= (result == UCT_CU_NOT_SUPPORTED);
    }
    return result == UCT_CU_SUCCESS;
}

/* Hands over what waits. The context is current, and fewer than UCT_CUDA_BATCHES are under way. */
static void uct_cuda_queue_submit(uct_cuda_queue_t *queue)
{
    uct_cuda_engine_t *engine       = queue->engine;
    const uct_cuda_driver_t *driver = engine->driver;
    const unsigned next             = queue->first + queue->num_batches;
    uct_cuda_batch_t *batch         = &queue->batches[next % UCT_CUDA_BATCHES];
    size_t bytes                    = 0;
    unsigned n                      = 0;
    uct_cuda_copy_t *copy;
    int result;

    while (!ucs_queue_is_empty(&queue->waiting) && (n < UCT_CUDA_BATCH_MAX) &&
           (bytes < UCT_CUDA_BATCH_BYTES)) {
        copy = ucs_queue_pull_elem(&queue->waiting, uct_cuda_copy_t, elem);
        ucs_queue_push(&batch->copies, &copy->elem);
        bytes += copy->part.length;
        ++n;
    }
    if (queue->num_batches > 0) {
        uct_cuda_batch_mark(queue, &queue->batches[(next - 1) % UCT_CUDA_BATCHES]);
    }
    ++queue->num_batches;

    if ((n > 1) && !engine->no_batches &&
        ((driver->cuMemcpyBatchAsync != NULL) || (driver->cuMemcpyBatchAsync1 != NULL)) &&
        uct_cuda_batch_send(queue, batch, n)) {
        return;
    }
    /* One by one, so that one which is refused fails alone. Copying twice does no harm. */
    ucs_queue_for_each(copy, &batch->copies, elem) {
        result = driver->cuMemcpyAsync(copy->part.dest, copy->part.src, copy->part.length,
                                       queue->stream);
        if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
            copy->leader->status = uct_cuda_engine_failed(engine, "cuMemcpyAsync", result);
        }
    }
}

static void uct_cuda_queue_poll(uct_cuda_queue_t *queue)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;
    uct_cuda_batch_t *batch;
    ucs_status_t status;
    int result;

    while (queue->num_batches > 0) {
        batch  = &queue->batches[queue->first];
        result = batch->has_event ? driver->cuEventQuery(batch->event) :
                                    driver->cuStreamQuery(queue->stream);
        if (result == UCT_CU_NOT_READY) {
            return;
        }
        status = ucs_likely(result == UCT_CU_SUCCESS) ? UCS_OK :
                 uct_cuda_engine_failed(queue->engine, "a copy", result);
        uct_cuda_copies_end(queue->engine, &batch->copies, status);
        batch->has_event = 0;
        queue->first     = (queue->first + 1) % UCT_CUDA_BATCHES;
        --queue->num_batches;
    }
}

/* ------------------------------------------------------------------ pageable memory */

/* Makes stream and buffer. */
static ucs_status_t uct_cuda_bounce_init(uct_cuda_engine_t *engine, uct_cuda_bounce_t *bounce,
                                         int has_buffer)
{
    const uct_cuda_driver_t *driver = engine->driver;
    unsigned i;
    int result;

    if (bounce->stream == NULL) {
        result = driver->cuStreamCreate(&bounce->stream, UCT_CU_STREAM_NON_BLOCKING);
        if (result != UCT_CU_SUCCESS) {
            bounce->stream = NULL;
            return uct_cuda_engine_failed(engine, "cuStreamCreate", result);
        }
    }
    for (i = 0; has_buffer && (i < ucs_array_size(bounce->events)); ++i) {
        if (bounce->events[i] != NULL) {
            continue;
        }
        result = driver->cuEventCreate(&bounce->events[i], UCT_CU_EVENT_DISABLE_TIMING);
        if (result != UCT_CU_SUCCESS) {
            bounce->events[i] = NULL;
            return uct_cuda_engine_failed(engine, "cuEventCreate", result);
        }
    }
    if (has_buffer && (bounce->buffer == NULL)) { /* not registered, the driver copies once more */
        bounce->buffer = uct_cuda_host_make(driver, UCT_CUDA_PIECES * UCT_CUDA_PIECE,
                                            &bounce->is_registered);
        if (bounce->buffer == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }
    return UCS_OK;
}

/* Has a copy that was given up still not ended? In the context that is current. */
static int uct_cuda_now_is_stuck(const uct_cuda_driver_t *driver, uct_cuda_bounce_t *bounce)
{
    bounce->is_stuck = bounce->is_stuck &&
                       (driver->cuStreamQuery(bounce->stream) == UCT_CU_NOT_READY);
    return bounce->is_stuck;
}

/* has_gone: the context, and with it the registration, so no device reaches the buffer. is_alive:
 * it is current. Neither: it cannot be used, and nothing is known. */
static void uct_cuda_bounce_cleanup(const uct_cuda_driver_t *driver, uct_cuda_bounce_t *bounce,
                                    int is_alive, int has_gone)
{
    int is_idle;
    unsigned i;

    is_alive = is_alive && !uct_cuda_now_is_stuck(driver, bounce); /* else the driver has it all */
    is_idle  = is_alive && (bounce->posted == bounce->done);
    for (i = 0; is_alive && (i < ucs_array_size(bounce->events)); ++i) {
        if (bounce->events[i] != NULL) {
            driver->cuEventDestroy(bounce->events[i]);
        }
    }
    if (is_alive && (bounce->stream != NULL)) {
        is_idle &= (driver->cuStreamDestroy(bounce->stream) == UCT_CU_SUCCESS);
    }
    if (is_alive && bounce->is_registered) {
        driver->cuMemHostUnregister(bounce->buffer);
    }
    /* A device that may still write keeps the memory. */
    if ((bounce->buffer != NULL) && (is_idle || has_gone)) {
        ucs_sys_munmap(bounce->buffer, UCT_CUDA_PIECES * UCT_CUDA_PIECE);
    }
    memset(bounce, 0, sizeof(*bounce));
}

static void uct_cuda_bounce_reset(uct_cuda_bounce_t *bounce)
{
    bounce->posted = 0;
    bounce->done   = 0;
    bounce->status = UCS_OK;
}

static char *uct_cuda_bounce_slot(const uct_cuda_bounce_t *bounce, size_t offset)
{
    return bounce->buffer + (offset / UCT_CUDA_PIECE % UCT_CUDA_PIECES) * UCT_CUDA_PIECE;
}

/* Hands the next piece to the driver. */
static int uct_cuda_bounce_send(const uct_cuda_driver_t *driver, uct_cuda_bounce_t *bounce,
                                const uct_cuda_part_t *part)
{
    const size_t offset = bounce->posted;
    const size_t length = ucs_min(part->length - offset, UCT_CUDA_PIECE);
    char *slot          = uct_cuda_bounce_slot(bounce, offset);
    int result;

    if (part->to_host) {
        result = driver->cuMemcpyAsync((uintptr_t)slot, part->src + offset, length,
                                       bounce->stream);
    } else {
        memcpy(slot, (const char *)(uintptr_t)part->src + offset, length);
        result = driver->cuMemcpyAsync(part->dest + offset, (uintptr_t)slot, length,
                                       bounce->stream);
    }
    bounce->posted += length;
    if ((result == UCT_CU_SUCCESS) && (bounce->posted < part->length)) {
        result = driver->cuEventRecord(bounce->events[offset / UCT_CUDA_PIECE % UCT_CUDA_PIECES],
                                       bounce->stream);
    }
    return result;
}

/* A turn of the copy at work: UCS_INPROGRESS until it has ended. */
static ucs_status_t uct_cuda_bounce_step(uct_cuda_engine_t *engine, uct_cuda_bounce_t *bounce,
                                         const uct_cuda_part_t *part)
{
    const uct_cuda_driver_t *driver = engine->driver;
    size_t offset, length;
    int result;

    while ((bounce->status == UCS_OK) && (bounce->posted < part->length) &&
           (bounce->posted < bounce->done + UCT_CUDA_PIECES * UCT_CUDA_PIECE)) {
        result = uct_cuda_bounce_send(driver, bounce, part);
        if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
            bounce->status = uct_cuda_engine_failed(engine, "cuMemcpyAsync", result);
        }
    }
    if (ucs_unlikely(bounce->status != UCS_OK)) { /* pieces before it may be under way */
        return (driver->cuStreamQuery(bounce->stream) == UCT_CU_NOT_READY) ? UCS_INPROGRESS :
               bounce->status;
    }

    offset = bounce->done;
    length = ucs_min(part->length - offset, UCT_CUDA_PIECE);
    result = (offset + length < part->length) ?
             driver->cuEventQuery(bounce->events[offset / UCT_CUDA_PIECE % UCT_CUDA_PIECES]) :
             driver->cuStreamQuery(bounce->stream);
    if (result == UCT_CU_NOT_READY) {
        return UCS_INPROGRESS;
    }
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        return uct_cuda_engine_failed(engine, "a copy", result);
    }
    if (part->to_host) {
        memcpy((char *)(uintptr_t)part->dest + offset, uct_cuda_bounce_slot(bounce, offset),
               length);
    }
    bounce->done += length;
    return (bounce->done < part->length) ? UCS_INPROGRESS : UCS_OK;
}

static void uct_cuda_queue_step_staged(uct_cuda_queue_t *queue)
{
    uct_cuda_bounce_t *bounce = &queue->bounce;
    uct_cuda_copy_t *copy     = ucs_queue_head_elem(&queue->staged, uct_cuda_copy_t, elem);
    ucs_status_t status;

    status = uct_cuda_bounce_init(queue->engine, bounce, 1);
    if (ucs_likely(status == UCS_OK)) {
        status = uct_cuda_bounce_step(queue->engine, bounce, &copy->part);
    }
    if (status != UCS_INPROGRESS) {
        ucs_queue_pull(&queue->staged);
        uct_cuda_bounce_reset(bounce);
        uct_cuda_copy_end(queue->engine, copy, status);
    }
}

/* ------------------------------------------------------------------ queues */

/* The context is gone, and with it all that was made in it. */
static UCS_COLD void uct_cuda_queue_die(uct_cuda_queue_t *queue, ucs_status_t status)
{
    ucs_diag("a CUDA context has gone that copies were made in");
    queue->is_dead = 1;
    queue->is_left |= (queue->num_batches > 0) || (queue->bounce.posted > queue->bounce.done);
    while (queue->num_batches > 0) {
        uct_cuda_copies_end(queue->engine, &queue->batches[queue->first].copies, status);
        queue->first = (queue->first + 1) % UCT_CUDA_BATCHES;
        --queue->num_batches;
    }
    uct_cuda_copies_end(queue->engine, &queue->waiting, status);
    uct_cuda_copies_end(queue->engine, &queue->staged, status);
}

static int uct_cuda_queue_is_idle(const uct_cuda_queue_t *queue)
{
    return (queue->num_batches == 0) && ucs_queue_is_empty(&queue->waiting) &&
           ucs_queue_is_empty(&queue->staged);
}

/* Lets a queue do what it can: without `poll`, what costs no look at the device. */
static void uct_cuda_queue_advance(uct_cuda_queue_t *queue, int poll)
{
    const unsigned max_batches = poll ? UCT_CUDA_BATCHES : 1;
    uct_cuda_scope_t scope;
    ucs_status_t status;

    if (uct_cuda_queue_is_idle(queue)) {
        return;
    }
    status = uct_cuda_context_enter(&scope, queue->engine->driver, &queue->context);
    if (ucs_unlikely(status != UCS_OK)) {
        uct_cuda_queue_die(queue, status);
        return;
    }
    if (poll) {
        uct_cuda_queue_poll(queue);
    }
    while (!ucs_queue_is_empty(&queue->waiting) && (queue->num_batches < max_batches)) {
        uct_cuda_queue_submit(queue);
    }
    if (!ucs_queue_is_empty(&queue->staged)) {
        uct_cuda_queue_step_staged(queue);
    }
    uct_cuda_leave(&scope);
}

static void uct_cuda_queue_free(uct_cuda_queue_t *queue)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;
    const int has_gone              = uct_cuda_context_has_gone(driver, &queue->context);
    int is_alive, is_stuck;
    uct_cuda_scope_t scope;
    unsigned i;

    is_alive = !queue->is_dead && !has_gone &&
               (uct_cuda_context_enter(&scope, driver, &queue->context) == UCS_OK);
    is_stuck = is_alive ? uct_cuda_now_is_stuck(driver, &queue->now) :
               (!has_gone && (queue->is_left || queue->now.is_stuck));
    queue->engine->is_stuck |= is_stuck;
    uct_cuda_bounce_cleanup(driver, &queue->bounce, is_alive, has_gone);
    uct_cuda_bounce_cleanup(driver, &queue->now, is_alive, has_gone);
    uct_cuda_context_cleanup(driver, &queue->context, is_alive && !is_stuck, has_gone);
    if (is_alive) {
        for (i = 0; i < UCT_CUDA_BATCHES; ++i) {
            if (queue->batches[i].event != NULL) {
                driver->cuEventDestroy(queue->batches[i].event);
            }
        }
        driver->cuStreamDestroy(queue->stream);
        uct_cuda_leave(&scope);
    }
    ucs_list_del(&queue->list);
    ucs_sys_free(queue);
}

/* Frees those whose context has gone while nothing was under way, which nobody would notice. */
static void uct_cuda_engine_sweep(uct_cuda_engine_t *engine)
{
    uct_cuda_queue_t *queue, *tmp;

    ucs_list_for_each_safe(queue, tmp, &engine->queues, list) {
        if (uct_cuda_queue_is_idle(queue) &&
            uct_cuda_context_has_gone(engine->driver, &queue->context)) {
            uct_cuda_queue_free(queue);
        }
    }
}

static UCS_NOINLINE ucs_status_t uct_cuda_queue_make(uct_cuda_engine_t *engine, uct_cu_ctx_t ctx,
                                                     uint64_t ctx_id, uct_cuda_queue_t **queue_p)
{
    uct_cuda_scope_t scope;
    uct_cuda_queue_t *queue;
    ucs_status_t status;
    unsigned i;
    int result;

    uct_cuda_engine_sweep(engine);
    queue = ucs_sys_calloc(1, sizeof(*queue));
    if (queue == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    queue->engine = engine;
    ucs_queue_head_init(&queue->waiting);
    ucs_queue_head_init(&queue->staged);
    for (i = 0; i < UCT_CUDA_BATCHES; ++i) {
        ucs_queue_head_init(&queue->batches[i].copies);
    }

    status = uct_cuda_enter(&scope, engine->driver, ctx);
    if (status == UCS_OK) {
        result = engine->driver->cuStreamCreate(&queue->stream, UCT_CU_STREAM_NON_BLOCKING);
        if (result != UCT_CU_SUCCESS) {
            status = uct_cuda_engine_failed(engine, "cuStreamCreate", result);
        } else {
            uct_cuda_context_init(engine->driver, ctx, ctx_id, &queue->context);
        }
        uct_cuda_leave(&scope);
    }
    if (status != UCS_OK) {
        ucs_sys_free(queue);
        return status;
    }
    ucs_list_add_head(&engine->queues, &queue->list);
    *queue_p = queue;
    return UCS_OK;
}

ucs_status_t uct_cuda_engine_queue(uct_cuda_engine_t *engine, const uct_cuda_driver_t *driver,
                                   uct_cu_ctx_t ctx, uct_cuda_queue_t **queue_p)
{
    uint64_t ctx_id = 0;
    uct_cuda_queue_t *queue, *tmp;
    ucs_status_t status;

    status = uct_cuda_context_id(driver, ctx, &ctx_id);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }
    engine->driver = driver;
    ucs_list_for_each_safe(queue, tmp, &engine->queues, list) {
        if (ucs_likely(!queue->is_dead &&
                       uct_cuda_context_is(driver, &queue->context, ctx, ctx_id))) {
            *queue_p = queue;
            return UCS_OK;
        }
        if ((queue->context.ctx == ctx) && !queue->is_dead) {
            uct_cuda_queue_die(queue, UCS_ERR_IO_ERROR);
        }
        if (queue->is_dead) {
            uct_cuda_queue_free(queue);
        }
    }
    return uct_cuda_queue_make(engine, ctx, ctx_id, queue_p);
}

/* ------------------------------------------------------------------ operations */

void uct_cuda_part_init(uct_cuda_part_t *part, uct_cuda_queue_t *queue, uct_cu_ptr_t dest,
                        uct_cuda_kind_t dest_kind, uct_cu_ptr_t src, uct_cuda_kind_t src_kind,
                        size_t length)
{
    part->queue     = queue;
    part->dest      = dest;
    part->src       = src;
    part->length    = length;
    part->to_host   = (dest_kind == UCT_CUDA_PAGEABLE);
    part->is_staged = part->to_host || (src_kind == UCT_CUDA_PAGEABLE);
}

/* A look at a copy that is under way. */
static ucs_status_t uct_cuda_now_step(uct_cuda_engine_t *engine, uct_cuda_bounce_t *bounce,
                                      const uct_cuda_part_t *part)
{
    int result;

    if (part->is_staged) {
        return uct_cuda_bounce_step(engine, bounce, part);
    }
    result = engine->driver->cuStreamQuery(bounce->stream);
    return (result == UCT_CU_NOT_READY) ? UCS_INPROGRESS :
           (result == UCT_CU_SUCCESS) ? UCS_OK : uct_cuda_engine_failed(engine, "a copy", result);
}

/* Waits for a copy; one that does not end is given up. */
static ucs_status_t uct_cuda_now_wait(uct_cuda_engine_t *engine, uct_cuda_bounce_t *bounce,
                                      const uct_cuda_part_t *part)
{
    size_t done    = 0;
    uint64_t until = 0; /* not looked at the clock yet, since `done` */
    unsigned polls = 0;
    ucs_status_t status;
    uint64_t now;

    while ((status = uct_cuda_now_step(engine, bounce, part)) == UCS_INPROGRESS) {
        if ((++polls % UCT_CUDA_YIELD_POLLS) != 0) {
            continue;
        }
        now = ucs_sys_clock_ns();
        if ((until == 0) || (done != bounce->done)) {
            done  = bounce->done;
            until = now + UCT_CUDA_NOW_NS + (part->is_staged ? 0 : part->length);
        } else if (now > until) {
            ucs_error("a copy of %zu bytes does not end: given up, as are others until it does",
                      part->length);
            bounce->is_stuck = 1;
            return UCS_ERR_TIMED_OUT;
        }
        ucs_sys_sched_yield();
    }
    return status;
}

/* Copies and waits for it. */
static ucs_status_t uct_cuda_copy_now(uct_cuda_engine_t *engine, const uct_cuda_part_t *part)
{
    const uct_cuda_driver_t *driver = engine->driver;
    uct_cuda_bounce_t *bounce       = &part->queue->now;
    int result                      = UCT_CU_SUCCESS;
    uct_cuda_scope_t scope;
    ucs_status_t status;

    status = uct_cuda_enter(&scope, driver, part->queue->context.ctx);
    if (status != UCS_OK) {
        return status;
    }
    if (ucs_unlikely(uct_cuda_now_is_stuck(driver, bounce))) {
        uct_cuda_leave(&scope);
        return UCS_ERR_IO_ERROR;
    }
    status = uct_cuda_bounce_init(engine, bounce, part->is_staged);
    if (status == UCS_OK) {
        uct_cuda_bounce_reset(bounce);
        if (!part->is_staged) {
            result = driver->cuMemcpyAsync(part->dest, part->src, part->length, bounce->stream);
        }
        status = (result == UCT_CU_SUCCESS) ? uct_cuda_now_wait(engine, bounce, part) :
                 uct_cuda_engine_failed(engine, "a copy", result);
    }
    uct_cuda_leave(&scope);
    return status;
}

static ucs_status_t uct_cuda_engine_copy_now(uct_cuda_engine_t *engine,
                                             const uct_cuda_part_t *parts, unsigned n)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    for (i = 0; (i < n) && (status == UCS_OK); ++i) {
        status = uct_cuda_copy_now(engine, &parts[i]);
    }
    return status;
}

/* The copies of an operation, linked in order; NULL without memory. */
static uct_cuda_copy_t *uct_cuda_copies_make(uct_cuda_engine_t *engine,
                                             const uct_cuda_part_t *parts, unsigned n,
                                             ucs_queue_head_t *copies)
{
    uct_cuda_copy_t *leader = NULL;
    uct_cuda_copy_t *copy;
    unsigned i;

    for (i = 0; i < n; ++i) {
        copy = ucs_mpool_get(&engine->copies);
        if (ucs_unlikely(copy == NULL)) {
            while (!ucs_queue_is_empty(copies)) {
                ucs_mpool_put(ucs_queue_pull_elem(copies, uct_cuda_copy_t, elem));
            }
            return NULL;
        }
        leader       = (leader == NULL) ? copy : leader;
        copy->part   = parts[i];
        copy->leader = leader;
        ucs_queue_push(copies, &copy->elem);
    }
    return leader;
}

ucs_status_t uct_cuda_engine_post(uct_cuda_engine_t *engine, const uct_cuda_part_t *parts,
                                  unsigned n, uct_completion_t *comp, void *pinned)
{
    ucs_queue_head_t copies;
    uct_cuda_copy_t *leader;
    ucs_status_t status;
    unsigned i;

    if (comp == NULL) {
        status = uct_cuda_engine_copy_now(engine, parts, n);
        if (status != UCS_ERR_TIMED_OUT) { /* else the device may still use it */
            uct_cuda_engine_unpin(engine, pinned);
        }
        return status;
    }

    ucs_queue_head_init(&copies);
    leader = uct_cuda_copies_make(engine, parts, n, &copies);
    if (ucs_unlikely(leader == NULL)) {
        uct_cuda_engine_unpin(engine, pinned);
        return UCS_ERR_NO_RESOURCE;
    }
    leader->left   = n;
    leader->status = UCS_OK;
    leader->comp   = comp;
    leader->pinned = pinned;
    ++engine->num_active;
    for (i = 0; i < n; ++i) {
        ucs_queue_push(parts[i].is_staged ? &parts[i].queue->staged : &parts[i].queue->waiting,
                       ucs_queue_pull(&copies));
    }
    for (i = 0; i < n; ++i) {
        if (parts[i].queue->num_batches == 0) { /* what comes amid others waits for progress */
            uct_cuda_queue_advance(parts[i].queue, 0);
        }
    }
    return UCS_INPROGRESS;
}

/* Returns the number of operations that have ended. */
static unsigned uct_cuda_engine_progress(uct_cuda_engine_t *engine)
{
    uct_cuda_queue_t *queue, *tmp;

    ucs_list_for_each_safe(queue, tmp, &engine->queues, list) {
        if (ucs_unlikely(queue->is_dead)) {
            uct_cuda_queue_free(queue);
        } else {
            uct_cuda_queue_advance(queue, 1);
        }
    }
    return uct_cuda_engine_complete(engine);
}

ucs_status_t uct_cuda_engine_init(uct_cuda_engine_t *engine, void (*unpin)(void *pinned))
{
    static const ucs_mpool_params_t params = {
        .name            = "CUDA copies",
        .elem_size       = sizeof(uct_cuda_copy_t),
        .elems_per_chunk = 128
    };

    ucs_list_head_init(&engine->queues);
    ucs_queue_head_init(&engine->done);
    engine->unpin = unpin;
    return ucs_mpool_init(&engine->copies, &params);
}

/* Waits for the copies under way, 10 s at most; their completions are called. What those that do
 * not end have pinned is never released. Not zero: a copy may still be under way. Accepts zeros. */
static int uct_cuda_engine_cleanup(uct_cuda_engine_t *engine)
{
    uct_cuda_queue_t *queue, *tmp;
    uint64_t end;

    if (engine->queues.next == NULL) {
        return 0; /* it was not opened */
    }
    /* Devices still write what has been handed over. */
    end = ucs_sys_clock_ns() + UCT_CUDA_DRAIN_NS;
    while ((engine->num_active > 0) && (ucs_sys_clock_ns() < end)) {
        if (uct_cuda_engine_progress(engine) == 0) {
            ucs_sys_sched_yield();
        }
    }
    if (engine->num_active > 0) { /* devices may go on: what they use stays pinned */
        engine->unpin = NULL;
    }
    ucs_list_for_each_safe(queue, tmp, &engine->queues, list) {
        if (engine->num_active > 0) {
            uct_cuda_queue_die(queue, UCS_ERR_CANCELED);
        }
        uct_cuda_queue_free(queue);
    }
    (void)uct_cuda_engine_complete(engine);
    ucs_mpool_cleanup(&engine->copies, 1);
    return engine->is_stuck;
}

/* ------------------------------------------------------------------ interfaces */

ucs_status_t uct_cuda_md_open(uct_md_t *md UCS_UNUSED)
{
    if (!uct_cuda_is_possible()) {
        ucs_debug("no CUDA device: there is no device node and libcuda is not loaded");
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

void uct_cuda_iface_close(uct_iface_t *iface)
{
    iface->is_stuck = uct_cuda_engine_cleanup(uct_cuda_iface_engine(iface));
}

unsigned uct_cuda_iface_progress(uct_iface_t *iface)
{
    uct_cuda_engine_t *engine = uct_cuda_iface_engine(iface);

    return (ucs_likely(engine->num_active == 0) ? 0 : uct_cuda_engine_progress(engine)) +
           uct_iface_progress_base(iface);
}

ucs_status_t uct_cuda_iface_event_arm(uct_iface_t *iface)
{
    return ((uct_cuda_iface_engine(iface)->num_active != 0) || uct_iface_has_work(iface)) ?
           UCS_ERR_BUSY : UCS_OK;
}

void uct_cuda_iface_memory_used(uct_iface_t *iface, size_t *shared_p, size_t *private_p)
{
    uct_cuda_engine_t *engine = uct_cuda_iface_engine(iface);
    size_t size               = engine->copies.num_elems * engine->copies.stride;
    const uct_cuda_queue_t *queue;

    ucs_list_for_each(queue, &engine->queues, list) {
        size += sizeof(*queue) + uct_cuda_context_memory(&queue->context);
        size += ((queue->bounce.buffer != NULL) + (queue->now.buffer != NULL)) *
                UCT_CUDA_PIECES * UCT_CUDA_PIECE;
    }
    *shared_p  = 0;
    *private_p = iface->tl->iface_size + size;
}
