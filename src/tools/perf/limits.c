/* Halyard: what this machine can do for small messages: a bounced cache line, a bare ring, memcpy.
 *
 * Each loop is as bare as it can be, and both sides of a ratio are counted alike: one way is half
 * of a round trip. The ring is the one that a shared-memory transport would have without any
 * protocol: one producer, slots in order, a flag in the slot's first line.
 *
 * Pairs of acquire and release: A1/R1 bounce, A2/R2 slot flag, A3/R3 credit, A4/R4 barrier.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "limits.h"
#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

perf_shared_t *perf_shared_map(void)
{
    void *map = mmap(NULL, sizeof(perf_shared_t), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (map == MAP_FAILED) {
        perf_error("cannot map %zu bytes of shared memory: %s", sizeof(perf_shared_t),
                   strerror(errno));
        return NULL;
    }
    return map;
}

perf_side_t *perf_limit_side(perf_lane_t *lane, int own)
{
    return &lane->shared->sides[own ? !lane->leader : lane->leader];
}

ucs_status_t perf_limit_barrier(perf_lane_t *lane)
{
    uint64_t value = ++lane->barrier_seq;

    atomic_store_explicit(&perf_limit_side(lane, 1)->barrier.value, value,
                          memory_order_release); /* R4 */
    return perf_limit_poll(lane, &perf_limit_side(lane, 0)->barrier.value, value); /* A4 */
}

/* ---- the bounced line ---- */

static ucs_status_t line_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                uint64_t last, const void *arg)
{
    _Atomic uint64_t *mine   = &perf_limit_side(lane, 1)->bounce.value;
    _Atomic uint64_t *theirs = &perf_limit_side(lane, 0)->bounce.value;
    uint64_t value           = lane->line_seq;
    const uint64_t end       = value + (last - first);

    (void)step;
    (void)arg;
    if (lane->leader) {
        while (value != end) {
            atomic_store_explicit(mine, ++value, memory_order_release); /* R1 */
            if (perf_limit_poll(lane, theirs, value) != UCS_OK) {       /* A1 */
                break;
            }
        }
    } else {
        while (value != end) {
            if (perf_limit_poll(lane, theirs, ++value) != UCS_OK) { /* A1 */
                break;
            }
            atomic_store_explicit(mine, value, memory_order_release); /* R1 */
        }
    }
    lane->line_seq = end;
    return lane->status;
}

ucs_status_t perf_limit_line(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return perf_limit_timed(lane, step, time_p, line_rounds, NULL);
}

/* ---- the bare ring ---- */

/* What a message carries besides its payload. */
typedef struct slot_header {
    _Atomic uint32_t flag; /* number of the message, never 0 */
    uint32_t         length;
    uint64_t         tag;
} slot_header_t;

#define SLOT_FIRST_PAYLOAD (PERF_LINE_SIZE - sizeof(slot_header_t))

typedef struct ring {
    uint8_t *slots;
    size_t   stride;
    uint32_t count; /* power of two */
} ring_t;

/* In a ping-pong, slots that lie side by side cost up to 20 % more from 256 B up: while the reader
 * polls one, its prefetcher takes lines of the next from the writer. The limit is the better
 * layout. A stream gains from the prefetcher instead, so there they lie side by side. */
#define SLOT_GAP 1024

static ring_t ring_of(perf_lane_t *lane, int own, size_t size, size_t gap)
{
    ring_t ring = {.slots = lane->shared->rings[own ? !lane->leader : lane->leader],
                   .count = PERF_RING_SLOTS_MAX};

    ring.stride = (sizeof(slot_header_t) + size + PERF_LINE_SIZE - 1) / PERF_LINE_SIZE *
                  PERF_LINE_SIZE + gap;
    while (ring.stride * ring.count > PERF_RING_BYTES) {
        ring.count /= 2;
    }
    return ring;
}

/* The reader clears the flags of the ring it reads: slots of another size lay there before. */
static ucs_status_t ring_clear(perf_lane_t *lane, size_t size, size_t gap)
{
    ring_t ring = ring_of(lane, 0, size, gap);
    uint32_t i;

    for (i = 0; i < ring.count; ++i) {
        memset(ring.slots + i * ring.stride, 0, sizeof(slot_header_t));
    }
    return perf_limit_barrier(lane);
}

static inline void ring_put(const ring_t *ring, uint32_t number, const uint8_t *payload,
                            size_t size)
{
    uint8_t *slot         = ring->slots + (number & (ring->count - 1)) * ring->stride;
    slot_header_t *header = (slot_header_t*)slot;
    size_t first          = (size < SLOT_FIRST_PAYLOAD) ? size : SLOT_FIRST_PAYLOAD;

    if (size > first) {
        memcpy(slot + PERF_LINE_SIZE, payload + first, size - first);
    }
    memcpy(header + 1, payload, first);
    header->length = (uint32_t)size;
    header->tag    = number;
    atomic_store_explicit(&header->flag, number + 1, memory_order_release); /* R2 */
}

static inline ucs_status_t ring_take(perf_lane_t *lane, const ring_t *ring, uint32_t number,
                                     uint8_t *payload)
{
    uint8_t *slot         = ring->slots + (number & (ring->count - 1)) * ring->stride;
    slot_header_t *header = (slot_header_t*)slot;
    unsigned spins        = 0;
    size_t size, first;

    while (atomic_load_explicit(&header->flag, memory_order_acquire) != number + 1) { /* A2 */
        if (perf_limit_spin(lane, &spins) != UCS_OK) {
            return lane->status;
        }
    }
    size  = header->length;
    first = (size < SLOT_FIRST_PAYLOAD) ? size : SLOT_FIRST_PAYLOAD;
    memcpy(payload, header + 1, first);
    if (size > first) {
        memcpy(payload + first, slot + PERF_LINE_SIZE, size - first);
    }
    return UCS_OK;
}

static ucs_status_t ring_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                uint64_t end, const void *arg)
{
    ring_t mine   = ring_of(lane, 1, step->size, SLOT_GAP);
    ring_t theirs = ring_of(lane, 0, step->size, SLOT_GAP);

    (void)arg;
    for (; first < end; ++first, ++lane->ring_seq) {
        if (lane->leader) {
            ring_put(&mine, lane->ring_seq, lane->send_buffer, step->size);
        }
        if (ring_take(lane, &theirs, lane->ring_seq, lane->recv_buffer) != UCS_OK) {
            return lane->status;
        }
        if (!lane->leader) {
            ring_put(&mine, lane->ring_seq, lane->send_buffer, step->size);
        }
    }
    return UCS_OK;
}

ucs_status_t perf_limit_ring(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    ucs_status_t status = ring_clear(lane, step->size, SLOT_GAP);

    lane->ring_seq = 0;
    return (status == UCS_OK) ? perf_limit_timed(lane, step, time_p, ring_rounds, NULL) : status;
}

/* ---- the same ring, one direction ---- */

static ucs_status_t ring_stream_send(perf_lane_t *lane, const perf_step_t *step, uint64_t total)
{
    _Atomic uint64_t *credit = &perf_limit_side(lane, 0)->credit.value;
    ring_t ring              = ring_of(lane, 1, step->size, 0);
    uint64_t allowed         = ring.count, i;
    unsigned spins           = 0;

    for (i = 0; i < total; ++i) {
        while (i >= allowed) {
            allowed = atomic_load_explicit(credit, memory_order_acquire) + ring.count; /* A3 */
            if ((i >= allowed) && (perf_limit_spin(lane, &spins) != UCS_OK)) {
                return lane->status;
            }
        }
        ring_put(&ring, (uint32_t)i, lane->send_buffer, step->size);
    }
    return UCS_OK;
}

static ucs_status_t ring_stream_recv(perf_lane_t *lane, const perf_step_t *step, uint64_t total,
                                     perf_time_t *time_p)
{
    _Atomic uint64_t *credit = &perf_limit_side(lane, 1)->credit.value;
    ring_t ring              = ring_of(lane, 0, step->size, 0);
    const uint64_t batch     = (ring.count >= 4) ? ring.count / 4 : 1;
    double start_ns          = 0;
    uint64_t i;

    for (i = 0; i < total; ++i) {
        if (i == step->warmup) {
            start_ns = perf_now_ns();
        }
        if (ring_take(lane, &ring, (uint32_t)i, lane->recv_buffer) != UCS_OK) {
            return lane->status;
        }
        if ((i + 1) % batch == 0) {
            atomic_store_explicit(credit, i + 1, memory_order_release); /* R3 */
        }
    }
    time_p->ns       = perf_now_ns() - start_ns;
    time_p->messages = step->iters;
    return UCS_OK;
}

ucs_status_t perf_limit_ring_stream(perf_lane_t *lane, const perf_step_t *step,
                                    perf_time_t *time_p)
{
    const uint64_t total = step->warmup + step->iters;
    ucs_status_t status;

    atomic_store_explicit(&perf_limit_side(lane, 1)->credit.value, 0, memory_order_relaxed);
    status = ring_clear(lane, step->size, 0);
    if (status != UCS_OK) {
        return status;
    }
    return lane->leader ? ring_stream_send(lane, step, total) :
                          ring_stream_recv(lane, step, total, time_p);
}

/* ---- memcpy ---- */

static ucs_status_t memcpy_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                  uint64_t end, const void *arg)
{
    (void)arg;
    for (; first < end; ++first) {
        memcpy(lane->recv_buffer, lane->send_buffer, step->size);
        __asm__ volatile("" : : "r"(lane->recv_buffer) : "memory");
    }
    return UCS_OK;
}

ucs_status_t perf_limit_memcpy(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return lane->leader ? perf_lane_timed(lane, step, time_p, memcpy_rounds, NULL, 1) : UCS_OK;
}
