/* Halyard: the two shapes of loop that every two-sided test has: ping-pong and window.
 *
 * A flow says how one kind of message is sent and received. The functions here are always inlined
 * into a function that names a constant flow and mode, so each test has a loop of its own with
 * neither indirect calls nor tests of the mode.
 *
 * With PERF_MODE_CHECK or PERF_MODE_BATCH a window is sent, received, checked and acknowledged as
 * a whole: simple to follow, at the price of idle time between windows.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_LOOPS_H
#define PERF_LOOPS_H

#include "lane.h"
#include "validate.h"

enum {
    PERF_MODE_CHECK   = 1 << 0, /* fill and check each message */
    PERF_MODE_SAMPLES = 1 << 1, /* keep each iteration's time */
    PERF_MODE_BATCH   = 1 << 2  /* window by window */
};

#define PERF_INLINE static inline __attribute__((always_inline))

typedef struct perf_flow {
    void (*send)(perf_lane_t *lane, const perf_layout_t *layout);
    void (*post)(perf_lane_t *lane, const perf_layout_t *layout); /* receive of a message */
    void (*ack)(perf_lane_t *lane);
    void (*post_ack)(perf_lane_t *lane);
} perf_flow_t;

/* Places in a buffer for as many messages of this size as fit and as the window wants. */
static inline void perf_slots_set(perf_lane_t *lane, uint64_t size, unsigned window)
{
    lane->stride = (size + PERF_GUARD_SIZE + 63) / 64 * 64;
    lane->slots  = lane->params->span / lane->stride;
    if (lane->slots > window) {
        lane->slots = window;
    }
    if (lane->slots == 0) {
        lane->slots = 1;
    }
    lane->am_next = 0;
}

static inline void perf_message_fill(perf_lane_t *lane, uint8_t *buffer, const perf_step_t *step,
                                     uint64_t number)
{
    perf_pattern_fill(buffer, step->size,
                      perf_pattern_base(lane->params->seed, (unsigned)!lane->leader,
                                        step->sequence + number));
}

static inline void perf_message_check(perf_lane_t *lane, const uint8_t *buffer,
                                      const perf_step_t *step, uint64_t number)
{
    int64_t bad = perf_pattern_check(buffer, step->size,
                                     perf_pattern_base(lane->params->seed,
                                                       (unsigned)lane->leader,
                                                       step->sequence + number));

    if (bad < 0) {
        bad = perf_guard_check(buffer, step->size);
    }
    if (bad >= 0) {
        perf_lane_fail_data(lane, step->sequence + number, bad);
    }
}

/* n round trips of the leader. The receive is posted while the message is on its way. */
PERF_INLINE ucs_status_t perf_pingpong_leader(perf_lane_t *lane, const perf_step_t *step,
                                              uint64_t first, uint64_t n, const perf_flow_t *flow,
                                              unsigned mode)
{
    uint64_t target = lane->recv_done, start = 0, i;
    perf_layout_t send, recv;

    perf_lane_layout(lane, 1, lane->send_buffer, step->size, &send);
    perf_lane_layout(lane, 0, lane->recv_buffer, step->size, &recv);
    for (i = 0; i < n; ++i) {
        if (mode & PERF_MODE_CHECK) {
            perf_message_fill(lane, lane->send_buffer, step, first + i);
        }
        if (mode & PERF_MODE_SAMPLES) {
            start = perf_ticks();
        }
        flow->send(lane, &send);
        flow->post(lane, &recv);
        if ((perf_lane_wait_received(lane, ++target) != UCS_OK) ||
            (perf_lane_wait_sent(lane) != UCS_OK)) {
            return lane->status;
        }
        if ((mode & PERF_MODE_SAMPLES) && (lane->sample_count < PERF_SAMPLES_MAX)) {
            lane->samples[lane->sample_count++] = (uint32_t)(perf_ticks() - start);
        }
        if (mode & PERF_MODE_CHECK) {
            perf_message_check(lane, lane->recv_buffer, step, first + i);
        }
    }
    return lane->status;
}

/* n round trips of the follower, whose receive is always posted before the message comes. */
PERF_INLINE ucs_status_t perf_pingpong_follower(perf_lane_t *lane, const perf_step_t *step,
                                                uint64_t first, uint64_t n,
                                                const perf_flow_t *flow, unsigned mode)
{
    uint64_t target = lane->recv_done, i;
    perf_layout_t send, recv;

    perf_lane_layout(lane, 1, lane->send_buffer, step->size, &send);
    perf_lane_layout(lane, 0, lane->recv_buffer, step->size, &recv);
    flow->post(lane, &recv);
    for (i = 0; i < n; ++i) {
        if (perf_lane_wait_received(lane, ++target) != UCS_OK) {
            return lane->status;
        }
        if (mode & PERF_MODE_CHECK) {
            perf_message_check(lane, lane->recv_buffer, step, first + i);
            perf_message_fill(lane, lane->send_buffer, step, first + i);
        }
        flow->send(lane, &send);
        if (i + 1 < n) {
            flow->post(lane, &recv);
        }
        if (perf_lane_wait_sent(lane) != UCS_OK) {
            return lane->status;
        }
    }
    return lane->status;
}

/* Ping-pong: warm-up, then the timed part. */
PERF_INLINE ucs_status_t perf_pingpong(perf_lane_t *lane, const perf_step_t *step,
                                       perf_time_t *time_p, const perf_flow_t *flow,
                                       unsigned mode)
{
    ucs_status_t status;
    double start_ns;

    perf_slots_set(lane, step->size, 1);
    perf_guard_set(lane->recv_buffer, step->size);
    if (!lane->leader) {
        return perf_pingpong_follower(lane, step, 0, step->warmup + step->iters, flow, mode);
    }
    status = perf_pingpong_leader(lane, step, 0, step->warmup, flow,
                                  mode & ~(unsigned)PERF_MODE_SAMPLES);
    if (status != UCS_OK) {
        return status;
    }
    start_ns = perf_now_ns();
    status   = perf_pingpong_leader(lane, step, step->warmup, step->iters, flow, mode);
    time_p->ns       = perf_now_ns() - start_ns;
    time_p->messages = 2 * step->iters;
    return status;
}

/* Chooses among the three modes a ping-pong has. */
PERF_INLINE ucs_status_t perf_pingpong_modes(perf_lane_t *lane, const perf_step_t *step,
                                             perf_time_t *time_p, const perf_flow_t *flow)
{
    if (lane->params->flags & PERF_FLAG_VALIDATE) {
        return perf_pingpong(lane, step, time_p, flow,
                             PERF_MODE_CHECK |
                             ((step->flags & PERF_STEP_SAMPLES) ? PERF_MODE_SAMPLES : 0));
    }
    if (step->flags & PERF_STEP_SAMPLES) {
        return perf_pingpong(lane, step, time_p, flow, PERF_MODE_SAMPLES);
    }
    return perf_pingpong(lane, step, time_p, flow, 0);
}

/* The receiver's clock: starts at the first look that finds the warm-up arrived, and counts what
 * comes after it. */
typedef struct perf_arrival {
    double   start_ns;
    uint64_t from; /* messages that had arrived at start_ns; 0: not started */
} perf_arrival_t;

PERF_INLINE void perf_arrival_look(perf_arrival_t *arrival, const perf_step_t *step, uint64_t done)
{
    if (__builtin_expect((arrival->from == 0) && (done > 0) && (done >= step->warmup), 0)) {
        arrival->from     = done;
        arrival->start_ns = perf_now_ns();
    }
}

static inline void perf_arrival_end(const perf_arrival_t *arrival, uint64_t total,
                                    perf_time_t *time_p)
{
    time_p->ns       = perf_now_ns() - arrival->start_ns;
    time_p->messages = total - arrival->from;
}

/* Messages between two acknowledgements: half a window, so that the sender, which may be one
 * window ahead of the last acknowledged message, does not run dry. */
static inline uint64_t perf_ack_interval(const perf_step_t *step)
{
    return (step->window > 1) ? step->window / 2 : 1;
}

/* Sender of a stream of messages: never more than a window ahead of the receiver. */
PERF_INLINE ucs_status_t perf_window_send(perf_lane_t *lane, const perf_step_t *step,
                                          const perf_flow_t *flow)
{
    const uint64_t interval = perf_ack_interval(step);
    const uint64_t total    = step->warmup + step->iters;
    const uint64_t acks     = (total + interval - 1) / interval;
    const uint64_t base     = lane->recv_done;
    uint64_t posted_acks = 0, sent = 0, allowed;
    perf_layout_t layout;
    unsigned spins = 0;

    perf_lane_layout(lane, 1, lane->send_buffer, step->size, &layout);
    while ((lane->recv_done - base < acks) && (lane->status == UCS_OK)) {
        while ((posted_acks < acks) && (posted_acks < lane->recv_done - base + 4)) {
            flow->post_ack(lane);
            ++posted_acks;
        }
        allowed = (lane->recv_done - base) * interval + step->window;
        if (allowed > total) {
            allowed = total;
        }
        for (; sent < allowed; ++sent) {
            flow->send(lane, &layout);
        }
        if (ucp_worker_progress(lane->worker) != 0) {
            spins = 0;
        } else if (++spins >= lane->spin_max) {
            spins = 0;
            perf_lane_idle(lane);
        }
    }
    return perf_lane_wait_sent(lane);
}

/* Receiver of a stream of messages: a window of receives is always posted. */
PERF_INLINE ucs_status_t perf_window_recv(perf_lane_t *lane, const perf_step_t *step,
                                          perf_time_t *time_p, const perf_flow_t *flow)
{
    const uint64_t interval = perf_ack_interval(step);
    const uint64_t total    = step->warmup + step->iters;
    const uint64_t base     = lane->recv_done;
    uint64_t posted = 0, acked = 0, done;
    perf_arrival_t arrival = {0, 0};
    perf_layout_t layout;
    unsigned spins = 0;

    perf_lane_layout(lane, 0, lane->recv_buffer, step->size, &layout);
    for (;;) {
        done = lane->recv_done - base;
        while ((posted < total) && (posted < done + step->window)) {
            flow->post(lane, &layout);
            ++posted;
        }
        done = lane->recv_done - base;
        perf_arrival_look(&arrival, step, done);
        if (done >= total) {
            perf_arrival_end(&arrival, total, time_p);
        }
        while ((acked < total) && ((done >= acked + interval) || (done >= total))) {
            acked += interval;
            flow->ack(lane);
        }
        if ((done >= total) || (lane->status != UCS_OK)) {
            return perf_lane_wait_sent(lane);
        }
        if (ucp_worker_progress(lane->worker) != 0) {
            spins = 0;
        } else if (++spins >= lane->spin_max) {
            spins = 0;
            perf_lane_idle(lane);
        }
    }
}

/* Sender, window by window. */
PERF_INLINE ucs_status_t perf_batch_send(perf_lane_t *lane, const perf_step_t *step,
                                         const perf_flow_t *flow, unsigned mode)
{
    const uint64_t total = step->warmup + step->iters;
    uint64_t number = 0, target = lane->recv_done, in_batch, i;
    uint8_t *place;

    while (number < total) {
        in_batch = (total - number < lane->slots) ? total - number : lane->slots;
        flow->post_ack(lane);
        for (i = 0; i < in_batch; ++i) {
            place = lane->send_buffer + i * lane->stride;
            if (mode & PERF_MODE_CHECK) {
                perf_message_fill(lane, place, step, number + i);
            }
            perf_lane_layout(lane, 1, place, step->size, &lane->layouts[i]);
            flow->send(lane, &lane->layouts[i]);
        }
        number += in_batch;
        if ((perf_lane_wait_received(lane, ++target) != UCS_OK) ||
            (perf_lane_wait_sent(lane) != UCS_OK)) {
            return lane->status;
        }
    }
    return lane->status;
}

/* Receiver, window by window. */
PERF_INLINE ucs_status_t perf_batch_recv(perf_lane_t *lane, const perf_step_t *step,
                                         perf_time_t *time_p, const perf_flow_t *flow,
                                         unsigned mode)
{
    const uint64_t total = step->warmup + step->iters;
    uint64_t number = 0, target = lane->recv_done, in_batch, i;
    perf_arrival_t arrival = {0, 0};
    uint8_t *place;

    while (number < total) {
        in_batch = (total - number < lane->slots) ? total - number : lane->slots;
        target  += in_batch;
        for (i = 0; i < in_batch; ++i) {
            place = lane->recv_buffer + i * lane->stride;
            if (mode & PERF_MODE_CHECK) {
                perf_guard_set(place, step->size);
            }
            perf_lane_layout(lane, 0, place, step->size, &lane->layouts[i]);
            flow->post(lane, &lane->layouts[i]);
        }
        if (perf_lane_wait_received(lane, target) != UCS_OK) {
            return lane->status;
        }
        for (i = 0; (mode & PERF_MODE_CHECK) && (i < in_batch); ++i) {
            perf_message_check(lane, lane->recv_buffer + i * lane->stride, step, number + i);
        }
        number += in_batch;
        perf_arrival_look(&arrival, step, number);
        if (number >= total) {
            perf_arrival_end(&arrival, total, time_p);
        }
        lane->am_next = 0;
        flow->ack(lane);
        if (perf_lane_wait_sent(lane) != UCS_OK) {
            return lane->status;
        }
    }
    return lane->status;
}

/* One direction: the leader sends, the follower receives and times. The leader's own time, with
 * warm-up and start in it, serves where so few messages were sent that all came at once. */
PERF_INLINE ucs_status_t perf_window(perf_lane_t *lane, const perf_step_t *step,
                                     perf_time_t *time_p, const perf_flow_t *flow, unsigned mode)
{
    const int batch = (mode & (PERF_MODE_CHECK | PERF_MODE_BATCH)) != 0;
    ucs_status_t status;
    double start_ns;

    perf_slots_set(lane, step->size, step->window);
    if (!lane->leader) {
        return batch ? perf_batch_recv(lane, step, time_p, flow, mode) :
                       perf_window_recv(lane, step, time_p, flow);
    }
    start_ns = perf_now_ns();
    status   = batch ? perf_batch_send(lane, step, flow, mode) :
                       perf_window_send(lane, step, flow);
    time_p->ns       = perf_now_ns() - start_ns;
    time_p->messages = step->warmup + step->iters;
    return status;
}

PERF_INLINE ucs_status_t perf_window_modes(perf_lane_t *lane, const perf_step_t *step,
                                           perf_time_t *time_p, const perf_flow_t *flow)
{
    if (lane->params->flags & PERF_FLAG_VALIDATE) {
        return perf_window(lane, step, time_p, flow, PERF_MODE_CHECK);
    }
    return perf_window(lane, step, time_p, flow, 0);
}

#endif
