/* Halyard: what this machine can do between two processes.
 *
 * For small messages: a bounced cache line, a bare ring, memcpy. For large ones: one process reads
 * the other's memory, or both copy half each at the same time.
 *
 * Each loop is as bare as it can be, and both sides of a ratio are counted alike: one way is half
 * of a round trip. The ring is the one that a shared-memory transport would have without any
 * protocol: one producer, slots in order, a flag in the slot's first line. The notifications that a
 * library needs are part of a copy.
 *
 * Pairs of acquire and release: A1/R1 bounce, A2/R2 slot flag, A3/R3 credit, A4/R4 barrier, A5/R5
 * rts, A6/R6 cts, A7/R7 sent, A8/R8 taken.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "ops.h"
#include "shared.h"
#include "watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* Polls that found nothing before perf_lane_idle() is asked whether to go on. */
#define LIMIT_SPINS (1u << 14)

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

/* The lines that the lane's own side (own = 1) or the other side writes. */
static perf_side_t *limit_side(perf_lane_t *lane, int own)
{
    return &lane->shared->sides[own ? !lane->leader : lane->leader];
}

/* After a poll that found nothing, *spins of them in a row: not UCS_OK if the lane has failed. */
static inline ucs_status_t limit_spin(perf_lane_t *lane, unsigned *spins)
{
    if (__builtin_expect(++*spins < LIMIT_SPINS, 1)) {
        return UCS_OK;
    }
    *spins = 0;
    return perf_lane_idle(lane, 0);
}

/* Polls a line until it holds `value` or more (acquire); what a line holds only grows. */
static inline ucs_status_t limit_poll(perf_lane_t *lane, _Atomic uint64_t *line,
                                      uint64_t value)
{
    unsigned spins = 0;

    while (atomic_load_explicit(line, memory_order_acquire) < value) {
        if (limit_spin(lane, &spins) != UCS_OK) {
            return lane->status;
        }
    }
    return UCS_OK;
}

/* Both sides have come here. Spins, bounded by perf_lane_idle(). */
static ucs_status_t limit_barrier(perf_lane_t *lane)
{
    uint64_t value = ++lane->barrier_seq;

    atomic_store_explicit(&limit_side(lane, 1)->barrier.value, value,
                          memory_order_release); /* R4 */
    return limit_poll(lane, &limit_side(lane, 0)->barrier.value, value); /* A4 */
}

/* perf_lane_timed() of both sides from a barrier on, with a message each way an iteration. */
PERF_INLINE ucs_status_t limit_timed(perf_lane_t *lane, const perf_step_t *step,
                                     perf_time_t *time_p, perf_part_t part, const void *arg)
{
    const ucs_status_t status = limit_barrier(lane);

    return (status == UCS_OK) ? perf_lane_timed(lane, step, time_p, part, arg, 2) : status;
}

/* ---- the bounced line ---- */

static ucs_status_t line_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                uint64_t last, const void *arg)
{
    _Atomic uint64_t *mine   = &limit_side(lane, 1)->bounce.value;
    _Atomic uint64_t *theirs = &limit_side(lane, 0)->bounce.value;
    uint64_t value           = lane->line_seq;
    const uint64_t end       = value + (last - first);

    (void)step;
    (void)arg;
    if (lane->leader) {
        while (value != end) {
            atomic_store_explicit(mine, ++value, memory_order_release); /* R1 */
            if (limit_poll(lane, theirs, value) != UCS_OK) {            /* A1 */
                break;
            }
        }
    } else {
        while (value != end) {
            if (limit_poll(lane, theirs, ++value) != UCS_OK) { /* A1 */
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
    return limit_timed(lane, step, time_p, line_rounds, NULL);
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
    return limit_barrier(lane);
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
        if (limit_spin(lane, &spins) != UCS_OK) {
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
    for (; first < end; ++first) {
        if (lane->leader) {
            ring_put(&mine, (uint32_t)first, lane->send_buffer, step->size);
        }
        if (ring_take(lane, &theirs, (uint32_t)first, lane->recv_buffer) != UCS_OK) {
            return lane->status;
        }
        if (!lane->leader) {
            ring_put(&mine, (uint32_t)first, lane->send_buffer, step->size);
        }
    }
    return UCS_OK;
}

ucs_status_t perf_limit_ring(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    const ucs_status_t status = ring_clear(lane, step->size, SLOT_GAP);

    return (status == UCS_OK) ? limit_timed(lane, step, time_p, ring_rounds, NULL) : status;
}

/* ---- the same ring, one direction ---- */

static ucs_status_t ring_stream_send(perf_lane_t *lane, const perf_step_t *step, uint64_t total)
{
    _Atomic uint64_t *credit = &limit_side(lane, 0)->credit.value;
    ring_t ring              = ring_of(lane, 1, step->size, 0);
    uint64_t allowed         = ring.count, i;
    unsigned spins           = 0;

    for (i = 0; i < total; ++i) {
        while (i >= allowed) {
            allowed = atomic_load_explicit(credit, memory_order_acquire) + ring.count; /* A3 */
            if ((i >= allowed) && (limit_spin(lane, &spins) != UCS_OK)) {
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
    _Atomic uint64_t *credit = &limit_side(lane, 1)->credit.value;
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

    atomic_store_explicit(&limit_side(lane, 1)->credit.value, 0, memory_order_relaxed);
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

/* ---- copies of the other process's memory ----
 *
 * One reader: the sender tells where the data is, the receiver reads it and says so.
 * Both: the receiver also answers where it wants its part, and reads the first half while the
 * sender writes the second; each tells the other when its half is done. */

static void announce(perf_line_t *line, uint64_t value, const void *address)
{
    line->argument = (uint64_t)(uintptr_t)address;
    atomic_store_explicit(&line->value, value, memory_order_release); /* R5, R6 */
}

/* Copies from or to the peer; a short copy is continued. */
static ucs_status_t remote_copy(perf_lane_t *lane, int is_write, uint8_t *local, uint64_t remote,
                                size_t size)
{
    pid_t pid   = lane->shared->pids[lane->leader];
    size_t done = 0;
    struct iovec here, there;
    ssize_t moved;

    while (done < size) {
        here.iov_base  = local + done;
        here.iov_len   = size - done;
        there.iov_base = (void*)(uintptr_t)(remote + done);
        there.iov_len  = size - done;
        moved          = is_write ? process_vm_writev(pid, &here, 1, &there, 1, 0) :
                                    process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (moved <= 0) {
            lane->status = UCS_ERR_UNSUPPORTED;
            snprintf(lane->problem, sizeof(lane->problem), "%s: %s",
                     is_write ? "process_vm_writev" : "process_vm_readv",
                     strerror((moved == 0) ? EFAULT : errno));
            return lane->status;
        }
        done += (size_t)moved;
    }
    return UCS_OK;
}

/* The first half ends at a page when there are several, else at a line. */
static size_t first_half(size_t size)
{
    size_t unit = (size >= 32768) ? 4096 : 64;

    return (size / 2 + unit - 1) / unit * unit;
}

static ucs_status_t copy_send(perf_lane_t *lane, uint64_t number, size_t size, int both)
{
    perf_side_t *mine = limit_side(lane, 1), *theirs = limit_side(lane, 0);
    const size_t half = first_half(size);

    announce(&mine->rts, number, lane->send_buffer);
    if (both) {
        if ((limit_poll(lane, &theirs->cts.value, number) != UCS_OK) || /* A6 */
            (remote_copy(lane, 1, lane->send_buffer + half, theirs->cts.argument + half,
                         size - half) != UCS_OK)) {
            return lane->status;
        }
        atomic_store_explicit(&mine->sent.value, number, memory_order_release); /* R7 */
    }
    return limit_poll(lane, &theirs->taken.value, number); /* A8 */
}

static ucs_status_t copy_recv(perf_lane_t *lane, uint64_t number, size_t size, int both)
{
    perf_side_t *mine = limit_side(lane, 1), *theirs = limit_side(lane, 0);

    if (limit_poll(lane, &theirs->rts.value, number) != UCS_OK) { /* A5 */
        return lane->status;
    }
    if (both) {
        announce(&mine->cts, number, lane->recv_buffer);
    }
    if (remote_copy(lane, 0, lane->recv_buffer, theirs->rts.argument,
                    both ? first_half(size) : size) != UCS_OK) {
        return lane->status;
    }
    atomic_store_explicit(&mine->taken.value, number, memory_order_release);    /* R8 */
    return both ? limit_poll(lane, &theirs->sent.value, number) : UCS_OK; /* A7 */
}

/* Turn 0 goes from the leader to the follower, turn 1 back. */
static ucs_status_t copy_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                uint64_t end, const void *arg)
{
    const int both      = *(const int *)arg;
    ucs_status_t status = UCS_OK;
    uint64_t i;

    for (i = 2 * first; (i < 2 * end) && (status == UCS_OK); ++i) {
        ++lane->copy_seq;
        status = ((i & 1) == !lane->leader) ?
                 copy_send(lane, lane->copy_seq, step->size, both) :
                 copy_recv(lane, lane->copy_seq, step->size, both);
    }
    return status;
}

/* Both sides find out beforehand that the kernel refuses: one that found out in the middle would
 * leave the other waiting. */
static ucs_status_t copy_run(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p,
                             int both)
{
    perf_side_t *mine = limit_side(lane, 1), *theirs = limit_side(lane, 0);
    uint64_t refused_by_me;

    mine->bounce.argument = (uint64_t)(uintptr_t)lane->recv_buffer;
    if (limit_barrier(lane) != UCS_OK) {
        return lane->status;
    }
    refused_by_me = (remote_copy(lane, 0, lane->send_buffer, theirs->bounce.argument, 1) !=
                     UCS_OK);
    mine->barrier.argument = refused_by_me;
    lane->status           = UCS_OK;
    if (limit_barrier(lane) != UCS_OK) {
        return lane->status;
    }
    if (refused_by_me || theirs->barrier.argument) {
        lane->refused = 1;
        return UCS_OK;
    }
    return limit_timed(lane, step, time_p, copy_rounds, &both);
}

ucs_status_t perf_limit_reader(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return copy_run(lane, step, time_p, 0);
}

ucs_status_t perf_limit_both(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return copy_run(lane, step, time_p, 1);
}
