/* Halyard: what this machine can do for large messages: one process reads the other's memory, or
 * both copy half each at the same time. The notifications that a library needs are part of it.
 *
 * One reader: the sender tells where the data is, the receiver reads it and says so.
 * Both: the receiver also answers where it wants its part, and reads the first half while the
 * sender writes the second; each tells the other when its half is done.
 *
 * Pairs of acquire and release: A1/R1 rts, A2/R2 cts, A3/R3 sent, A4/R4 taken.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "limits.h"
#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

static void announce(perf_line_t *line, uint64_t value, const void *address)
{
    line->argument = (uint64_t)(uintptr_t)address;
    atomic_store_explicit(&line->value, value, memory_order_release); /* R1, R2 */
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
    perf_side_t *mine = perf_limit_side(lane, 1), *theirs = perf_limit_side(lane, 0);
    const size_t half = first_half(size);

    announce(&mine->rts, number, lane->send_buffer);
    if (both) {
        if ((perf_limit_poll(lane, &theirs->cts.value, number) != UCS_OK) || /* A2 */
            (remote_copy(lane, 1, lane->send_buffer + half, theirs->cts.argument + half,
                         size - half) != UCS_OK)) {
            return lane->status;
        }
        atomic_store_explicit(&mine->sent.value, number, memory_order_release); /* R3 */
    }
    return perf_limit_poll(lane, &theirs->taken.value, number); /* A4 */
}

static ucs_status_t copy_recv(perf_lane_t *lane, uint64_t number, size_t size, int both)
{
    perf_side_t *mine = perf_limit_side(lane, 1), *theirs = perf_limit_side(lane, 0);

    if (perf_limit_poll(lane, &theirs->rts.value, number) != UCS_OK) { /* A1 */
        return lane->status;
    }
    if (both) {
        announce(&mine->cts, number, lane->recv_buffer);
    }
    if (remote_copy(lane, 0, lane->recv_buffer, theirs->rts.argument,
                    both ? first_half(size) : size) != UCS_OK) {
        return lane->status;
    }
    atomic_store_explicit(&mine->taken.value, number, memory_order_release);    /* R4 */
    return both ? perf_limit_poll(lane, &theirs->sent.value, number) : UCS_OK; /* A3 */
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
    perf_side_t *mine = perf_limit_side(lane, 1), *theirs = perf_limit_side(lane, 0);
    uint64_t refused_by_me;

    mine->bounce.argument = (uint64_t)(uintptr_t)lane->recv_buffer;
    if (perf_limit_barrier(lane) != UCS_OK) {
        return lane->status;
    }
    refused_by_me = (remote_copy(lane, 0, lane->send_buffer, theirs->bounce.argument, 1) !=
                     UCS_OK);
    mine->barrier.argument = refused_by_me;
    lane->status           = UCS_OK;
    if (perf_limit_barrier(lane) != UCS_OK) {
        return lane->status;
    }
    if (refused_by_me || theirs->barrier.argument) {
        lane->refused = 1;
        return UCS_OK;
    }
    return perf_limit_timed(lane, step, time_p, copy_rounds, &both);
}

ucs_status_t perf_limit_reader(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return copy_run(lane, step, time_p, 0);
}

ucs_status_t perf_limit_both(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return copy_run(lane, step, time_p, 1);
}
