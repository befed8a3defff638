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

#define UCT_CUDA_DRAIN_NS    5000000000ull

/* Turns in a row in which the driver lets nobody into a context, without saying that it is gone:
 * then it counts as that. Devices may still make the copies, whose memory is its users' again. */
#define UCT_CUDA_DOUBTS      1000

ucs_status_t uct_cuda_engine_failed(uct_cuda_engine_t *engine, const char *call, int result)
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
    if (copy->ring_end != 0) {
        if ((copy->host != NULL) && (leader->status == UCS_OK)) {
            memcpy(copy->host, (const void *)(uintptr_t)copy->part.dest, copy->part.length);
        }
        copy->part.queue->ring.back = copy->ring_end;
    }
    if (copy != leader) {
        ucs_mpool_put(copy);
    }
    if (--leader->left == 0) {
        ucs_list_add_tail(&engine->done, &leader->elem);
    }
}

static void uct_cuda_copies_end(uct_cuda_engine_t *engine, ucs_list_link_t *copies,
                                ucs_status_t status)
{
    while (!ucs_list_is_empty(copies)) {
        uct_cuda_copy_end(engine, ucs_list_extract_head(copies, uct_cuda_copy_t, elem), status);
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

    while (!ucs_list_is_empty(&engine->done)) {
        leader = ucs_list_extract_head(&engine->done, uct_cuda_copy_t, elem);
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
static int uct_cuda_batch_send(uct_cuda_queue_t *queue, uct_cuda_batch_t *batch)
{
    uct_cuda_engine_t *engine           = queue->engine;
    const uct_cuda_driver_t *driver     = engine->driver;
    uct_cu_copy_attributes_t attributes = {.src_access_order = UCT_CU_SRC_ORDER_STREAM};
    size_t index                        = 0;
    uct_cu_ptr_t dests[UCT_CUDA_KERNEL_MAX], srcs[UCT_CUDA_KERNEL_MAX];
    size_t lengths[UCT_CUDA_KERNEL_MAX], failed;
    uct_cuda_copy_t *copy;
    unsigned n = 0;
    int result;

    ucs_list_for_each(copy, &batch->copies, elem) {
        dests[n]     = copy->part.dest;
        srcs[n]      = copy->part.src;
        lengths[n++] = copy->part.length;
    }
    if ((n == 1) || engine->no_batches ||
        ((driver->cuMemcpyBatchAsync == NULL) && (driver->cuMemcpyBatchAsync1 == NULL))) {
        return 0;
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

/* Copy engines make them. */
static void uct_cuda_batch_copy(uct_cuda_queue_t *queue, uct_cuda_batch_t *batch)
{
    uct_cuda_engine_t *engine = queue->engine;
    uct_cuda_copy_t *copy;
    int result;

    if (uct_cuda_batch_send(queue, batch)) {
        return;
    }
    /* One by one, so that one which is refused fails alone. Copying twice does no harm. */
    ucs_list_for_each(copy, &batch->copies, elem) {
        result = engine->driver->cuMemcpyAsync(copy->part.dest, copy->part.src, copy->part.length,
                                               queue->stream);
        if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
            copy->leader->status = uct_cuda_engine_failed(engine, "cuMemcpyAsync", result);
        }
    }
}

/* Hands over what waits. The context is current, and fewer than UCT_CUDA_BATCHES are under way. 0:
 * nothing, since kernels and copies of the driver's are not under way at the same time: they would
 * overtake each other, and the latter could be such that wait for what the former bring. */
static int uct_cuda_queue_submit(uct_cuda_queue_t *queue)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;
    const unsigned next             = queue->first + queue->num_batches;
    uct_cuda_batch_t *last          = &queue->batches[(next - 1) % UCT_CUDA_BATCHES];
    uct_cuda_batch_t *batch         = &queue->batches[next % UCT_CUDA_BATCHES];
    const unsigned by_kernel        = uct_cuda_kernels_take(&queue->kernels, driver,
                                                            &queue->waiting,
                                                            queue->num_batches == 0);
    const unsigned max              = (by_kernel > 0) ? by_kernel : UCT_CUDA_BATCH_MAX;
    size_t bytes                    = 0;
    unsigned n                      = 0;
    uct_cuda_copy_t *copy;

    if ((queue->num_batches > 0) && ((last->kernel != 0) != (by_kernel > 0))) {
        return 0;
    }
    while (!ucs_list_is_empty(&queue->waiting) && (n < max) &&
           ((by_kernel > 0) || (bytes < UCT_CUDA_BATCH_BYTES))) {
        copy = ucs_list_extract_head(&queue->waiting, uct_cuda_copy_t, elem);
        ucs_list_add_tail(&batch->copies, &copy->elem);
        bytes += copy->part.length;
        ++n;
    }
    ++queue->num_batches;
    queue->num_waiting -= n;
    batch->kernel = (by_kernel > 0) ?
                    uct_cuda_kernels_start(&queue->kernels, driver, &batch->copies) : 0;
    queue->gathers = (batch->kernel != 0);
    if (batch->kernel == 0) {
        if ((queue->num_batches > 1) && (last->kernel == 0)) {
            uct_cuda_batch_mark(queue, last);
        }
        uct_cuda_batch_copy(queue, batch);
    }
    return 1;
}

/* After a kernel few copies wait for it to end: others are likely to join them. */
static int uct_cuda_queue_can_submit(const uct_cuda_queue_t *queue)
{
    const unsigned enough = (queue->gathers && (queue->num_batches > 0)) ?
                            UCT_CUDA_KERNEL_ENOUGH : 1;

    return (queue->num_batches < UCT_CUDA_BATCHES) && (queue->num_waiting >= enough);
}

/* Has the first batch ended? UCS_INPROGRESS: not yet. */
static ucs_status_t uct_cuda_queue_check(uct_cuda_queue_t *queue)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;
    uct_cuda_batch_t *batch         = &queue->batches[queue->first];
    ucs_status_t status;
    int result;

    if (batch->kernel != 0) {
        status = uct_cuda_kernels_poll(&queue->kernels, driver, batch->kernel, queue->stream);
        if (status != UCS_ERR_CANCELED) {
            return status;
        }
        batch->kernel = 0;
        uct_cuda_batch_copy(queue, batch);
    }
    result = uct_cuda_query(driver, batch->has_event ? batch->event : NULL, queue->stream);
    if (result == UCT_CU_NOT_READY) {
        return UCS_INPROGRESS;
    }
    return ucs_likely(result == UCT_CU_SUCCESS) ? UCS_OK :
           uct_cuda_engine_failed(queue->engine, "a copy", result);
}

/* The first batch has. */
static void uct_cuda_queue_pop(uct_cuda_queue_t *queue, ucs_status_t status)
{
    uct_cuda_batch_t *batch = &queue->batches[queue->first];

    uct_cuda_copies_end(queue->engine, &batch->copies, status);
    batch->has_event = 0;
    queue->first     = (queue->first + 1) % UCT_CUDA_BATCHES;
    --queue->num_batches;
}

static void uct_cuda_queue_poll(uct_cuda_queue_t *queue)
{
    ucs_status_t status;

    while (queue->num_batches > 0) {
        status = uct_cuda_queue_check(queue);
        if (status == UCS_INPROGRESS) {
            return;
        }
        uct_cuda_queue_pop(queue, status);
    }
}

/* What can be seen without a call of the driver: that kernels have ended, or need more time. 0:
 * there is more to do. */
static int uct_cuda_queue_glance(uct_cuda_queue_t *queue)
{
    uint64_t kernel = 0;

    while (queue->num_batches > 0) {
        kernel = queue->batches[queue->first].kernel;
        if ((kernel == 0) || !uct_cuda_kernels_have_ended(&queue->kernels, kernel)) {
            break;
        }
        uct_cuda_queue_pop(queue, UCS_OK);
    }
    if (!ucs_list_is_empty(&queue->staged) || uct_cuda_queue_can_submit(queue)) {
        return 0;
    }
    return (queue->num_batches == 0) ||
           ((kernel != 0) && !uct_cuda_kernels_are_due(&queue->kernels));
}

/* ------------------------------------------------------------------ pageable memory */

/* Room for so many bytes, UCT_CUDA_PIECE at most, and where it ends; NULL: there is none. */
static char *uct_cuda_ring_get(uct_cuda_ring_t *ring, size_t length, size_t *end_p)
{
    const size_t size = ucs_align_up(length, 64);
    const size_t rest = UCT_CUDA_RING - (ring->given % UCT_CUDA_RING);
    const size_t from = ring->given + ((rest < size) ? rest : 0);

    if (from + size - ring->back > UCT_CUDA_RING) {
        return NULL;
    }
    ring->given = from + size;
    *end_p      = ring->given;
    return ring->buffer + (from % UCT_CUDA_RING);
}

/* Takes a piece of a copy that goes through the ring. UCS_ERR_NO_RESOURCE: the ring is full. */
static ucs_status_t uct_cuda_queue_stage_piece(uct_cuda_queue_t *queue, uct_cuda_copy_t *copy,
                                               size_t length)
{
    uct_cuda_ring_t *ring = &queue->ring;
    uct_cuda_copy_t *piece;
    char *room;

    if (ring->buffer == NULL) { /* not registered, the driver copies once more */
        ring->buffer = uct_cuda_host_make(queue->engine->driver, UCT_CUDA_RING,
                                          &ring->is_registered);
    }
    piece = (ring->buffer == NULL) ? NULL : ucs_mpool_get(&queue->engine->copies);
    if (ucs_unlikely(piece == NULL)) {
        return UCS_ERR_NO_MEMORY;
    }
    room = uct_cuda_ring_get(ring, length, &piece->ring_end);
    if (room == NULL) {
        ucs_mpool_put(piece);
        return UCS_ERR_NO_RESOURCE;
    }
    piece->part        = copy->part;
    piece->part.length = length;
    piece->leader      = copy->leader;
    piece->host        = NULL;
    if (copy->part.to_host) {
        piece->host      = (void *)(uintptr_t)copy->part.dest;
        piece->part.dest = (uintptr_t)room;
    } else {
        memcpy(room, (const void *)(uintptr_t)copy->part.src, length);
        piece->part.src = (uintptr_t)room;
    }
    ++copy->leader->left;
    ++queue->num_waiting;
    ucs_list_add_tail(&queue->waiting, &piece->elem);
    copy->part.dest   += length;
    copy->part.src    += length;
    copy->part.length -= length;
    return UCS_OK;
}

/* Takes some pieces of what goes through the ring, so few that a turn does not take long. */
static void uct_cuda_queue_stage(uct_cuda_queue_t *queue)
{
    size_t bytes = 0;
    uct_cuda_copy_t *copy;
    ucs_status_t status;
    size_t length;

    while (!ucs_list_is_empty(&queue->staged) && (bytes < UCT_CUDA_PIECE)) {
        copy   = ucs_list_head(&queue->staged, uct_cuda_copy_t, elem);
        length = ucs_min(copy->part.length, UCT_CUDA_PIECE);
        status = copy->leader->status;
        if (ucs_likely(status == UCS_OK)) {
            status = uct_cuda_queue_stage_piece(queue, copy, length);
        }
        if (status == UCS_ERR_NO_RESOURCE) {
            return;
        }
        bytes += length;
        if ((status != UCS_OK) || (copy->part.length == 0)) {
            ucs_list_del(&copy->elem);
            uct_cuda_copy_end(queue->engine, copy, status);
        }
    }
}

/* ------------------------------------------------------------------ queues */

/* The context is gone, and with it all that was made in it. */
static UCS_COLD void uct_cuda_queue_die(uct_cuda_queue_t *queue, ucs_status_t status)
{
    ucs_diag("a CUDA context has gone that copies were made in");
    queue->is_dead = 1;
    queue->is_left |= (queue->num_batches > 0);
    while (queue->num_batches > 0) {
        uct_cuda_copies_end(queue->engine, &queue->batches[queue->first].copies, status);
        queue->first = (queue->first + 1) % UCT_CUDA_BATCHES;
        --queue->num_batches;
    }
    uct_cuda_copies_end(queue->engine, &queue->waiting, status);
    queue->num_waiting = 0;
    uct_cuda_copies_end(queue->engine, &queue->staged, status);
}

static int uct_cuda_queue_is_idle(const uct_cuda_queue_t *queue)
{
    return (queue->num_batches == 0) && ucs_list_is_empty(&queue->waiting) &&
           ucs_list_is_empty(&queue->staged);
}

/* Lets a queue do what it can: without `poll`, what costs no look at the device. */
static void uct_cuda_queue_advance(uct_cuda_queue_t *queue, int poll)
{
    uct_cuda_scope_t scope;
    ucs_status_t status;

    if (uct_cuda_queue_is_idle(queue) || (poll && uct_cuda_queue_glance(queue))) {
        return;
    }
    status = uct_cuda_context_enter(&scope, queue->engine->driver, &queue->context);
    if (ucs_unlikely(status != UCS_OK)) {
        if (uct_cuda_context_has_gone(queue->engine->driver, &queue->context) ||
            (++queue->num_doubts == UCT_CUDA_DOUBTS)) {
            uct_cuda_queue_die(queue, status);
        }
        return;
    }
    queue->num_doubts = 0;
    if (poll) {
        uct_cuda_queue_poll(queue);
    }
    if (!ucs_list_is_empty(&queue->staged)) {
        uct_cuda_queue_stage(queue);
    }
    while (uct_cuda_queue_can_submit(queue) && (poll || (queue->num_batches == 0)) &&
           uct_cuda_queue_submit(queue)) {
    }
    uct_cuda_leave(&scope);
}

static void uct_cuda_queue_free(uct_cuda_queue_t *queue)
{
    const uct_cuda_driver_t *driver = queue->engine->driver;
    const int has_gone              = uct_cuda_context_has_gone(driver, &queue->context);
    int is_alive, is_stuck, is_idle;
    uct_cuda_scope_t scope;
    unsigned i;

    is_alive = !queue->is_dead && !has_gone &&
               (uct_cuda_context_enter(&scope, driver, &queue->context) == UCS_OK);
    is_stuck = is_alive ? uct_cuda_now_is_stuck(driver, &queue->now) :
               (!has_gone && (queue->is_left || queue->now.is_stuck));
    is_stuck = is_stuck || (!has_gone && uct_cuda_kernels_may_copy(&queue->kernels));
    is_idle  = is_alive && !is_stuck;
    queue->engine->is_stuck |= is_stuck;
    if (is_idle && (queue->now.stream != NULL)) {
        is_idle = (driver->cuStreamDestroy(queue->now.stream) == UCT_CU_SUCCESS);
    }
    uct_cuda_host_free(driver, queue->now.buffer, UCT_CUDA_PIECE, queue->now.is_registered,
                       is_idle, has_gone);
    uct_cuda_host_free(driver, queue->ring.buffer, UCT_CUDA_RING, queue->ring.is_registered,
                       is_alive, has_gone);
    uct_cuda_kernels_cleanup(&queue->kernels, driver, is_alive, has_gone);
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
    ucs_list_head_init(&queue->waiting);
    ucs_list_head_init(&queue->staged);
    for (i = 0; i < UCT_CUDA_BATCHES; ++i) {
        ucs_list_head_init(&queue->batches[i].copies);
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
    part->by_kernel = 0;
    part->in_rows   = 0;
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
                                             ucs_list_link_t *copies)
{
    uct_cuda_copy_t *leader = NULL;
    uct_cuda_copy_t *copy;
    unsigned i;

    for (i = 0; i < n; ++i) {
        copy = ucs_mpool_get(&engine->copies);
        if (ucs_unlikely(copy == NULL)) {
            while (!ucs_list_is_empty(copies)) {
                ucs_mpool_put(ucs_list_extract_head(copies, uct_cuda_copy_t, elem));
            }
            return NULL;
        }
        leader         = (leader == NULL) ? copy : leader;
        copy->part     = parts[i];
        copy->leader   = leader;
        copy->ring_end = 0;
        ucs_list_add_tail(copies, &copy->elem);
    }
    return leader;
}

ucs_status_t uct_cuda_engine_post(uct_cuda_engine_t *engine, const uct_cuda_part_t *parts,
                                  unsigned n, uct_completion_t *comp, void *pinned)
{
    ucs_list_link_t copies;
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

    ucs_list_head_init(&copies);
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
        ucs_list_add_tail(parts[i].is_staged ? &parts[i].queue->staged : &parts[i].queue->waiting,
                          ucs_list_extract_head_link(&copies));
        parts[i].queue->num_waiting += !parts[i].is_staged;
    }
    for (i = 0; i < n; ++i) {
        if ((parts[i].queue->num_batches == 0) && !parts[i].queue->gathers) {
            uct_cuda_queue_advance(parts[i].queue, 0);
        } /* what comes amid others waits for progress */
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
    ucs_list_head_init(&engine->done);
    engine->unpin = unpin;
    return ucs_mpool_init(&engine->copies, &params);
}

/* Waits for the copies under way, 5 s at most; their completions are called. What those that do
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
    size_t size               = ucs_mpool_memory(&engine->copies);
    const uct_cuda_queue_t *queue;

    ucs_list_for_each(queue, &engine->queues, list) {
        size += sizeof(*queue) + uct_cuda_context_memory(&queue->context);
        size += (queue->ring.buffer != NULL) ? UCT_CUDA_RING : 0;
        size += (queue->now.buffer != NULL) ? UCT_CUDA_PIECE : 0;
        size += (queue->kernels.page != NULL) ? UCT_CUDA_PAGE : 0;
    }
    *shared_p  = 0;
    *private_p = iface->tl->iface_size + size;
}
