/* Halyard: the shapes of loop that tests have: ping-pong, window, and exchange of messages, and a
 * window of one-sided operations.
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

typedef struct perf_flow {
    void (*send)(perf_lane_t *lane, const perf_layout_t *layout);
    void (*post)(perf_lane_t *lane, const perf_layout_t *layout); /* receive of a message */
    void (*ack)(perf_lane_t *lane);
    void (*post_ack)(perf_lane_t *lane);
} perf_flow_t;

/* What a loop is made for: always a constant. */
typedef struct perf_way {
    const perf_flow_t *flow;
    unsigned           mode; /* PERF_MODE_* */
} perf_way_t;

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
    perf_pattern_fill(perf_lane_view(lane, buffer), step->size,
                      perf_pattern_base(lane->params->seed, (unsigned)!lane->leader,
                                        step->sequence + number));
    perf_lane_carry(lane, buffer, lane->mirror, step->size);
}

static inline void perf_message_check(perf_lane_t *lane, uint8_t *buffer, const perf_step_t *step,
                                      uint64_t number)
{
    const uint8_t *view = perf_lane_view(lane, buffer);
    int64_t bad;

    perf_lane_carry(lane, lane->mirror, buffer, step->size + PERF_GUARD_SIZE);
    bad = perf_pattern_check(view, step->size,
                             perf_pattern_base(lane->params->seed, (unsigned)lane->leader,
                                               step->sequence + number));
    if (bad < 0) {
        bad = perf_guard_check(view, step->size);
    }
    if (bad >= 0) {
        perf_lane_fail_data(lane, step->sequence + number, bad);
    }
}

static inline void perf_message_guard(perf_lane_t *lane, uint8_t *buffer, const perf_step_t *step)
{
    perf_guard_set(perf_lane_view(lane, buffer + step->size), 0);
    perf_lane_carry(lane, buffer + step->size, lane->mirror, PERF_GUARD_SIZE);
}

/* Where an active message of this length goes, of which no receive says it: with -V each of a
 * window has a place of its own. NULL: it is too long, and the lane has failed. */
static inline uint8_t *perf_message_place(perf_lane_t *lane, size_t length)
{
    uint64_t slot = (lane->params->flags & PERF_FLAG_VALIDATE) ? lane->am_next++ % lane->slots : 0;

    if (length + PERF_GUARD_SIZE > lane->stride) {
        perf_lane_fail(lane, UCS_ERR_MESSAGE_TRUNCATED, "an active message is too long");
        return NULL;
    }
    return lane->recv_buffer + slot * lane->stride;
}

/* Of a flow whose messages come without a posted receive. */
PERF_INLINE void perf_post_none(perf_lane_t *lane, const perf_layout_t *layout)
{
    (void)lane;
    (void)layout;
}

PERF_INLINE void perf_post_ack_none(perf_lane_t *lane)
{
    (void)lane;
}

/* Round trips of the leader. The receive is posted while the message is on its way. */
PERF_INLINE ucs_status_t perf_pingpong_leader(perf_lane_t *lane, const perf_step_t *step,
                                              uint64_t first, uint64_t end, const void *arg)
{
    const perf_way_t *way = arg;
    uint64_t target = lane->recv_done, start = 0, i;
    perf_layout_t send, recv;

    perf_lane_layout(lane, 1, lane->send_buffer, step->size, &send);
    perf_lane_layout(lane, 0, lane->recv_buffer, step->size, &recv);
    for (i = first; i < end; ++i) {
        if (way->mode & PERF_MODE_CHECK) {
            perf_message_fill(lane, lane->send_buffer, step, i);
        }
        if (way->mode & PERF_MODE_SAMPLES) {
            start = perf_ticks();
        }
        way->flow->send(lane, &send);
        way->flow->post(lane, &recv);
        if ((perf_lane_wait_received(lane, ++target) != UCS_OK) ||
            (perf_lane_wait_sent(lane) != UCS_OK)) {
            return lane->status;
        }
        if (way->mode & PERF_MODE_SAMPLES) {
            perf_lane_sample(lane, start);
        }
        if (way->mode & PERF_MODE_CHECK) {
            perf_message_check(lane, lane->recv_buffer, step, i);
        }
    }
    return lane->status;
}

/* n round trips of the follower, whose receive is always posted before the message comes. */
PERF_INLINE ucs_status_t perf_pingpong_follower(perf_lane_t *lane, const perf_step_t *step,
                                                uint64_t n, const perf_way_t *way)
{
    uint64_t target = lane->recv_done, i;
    perf_layout_t send, recv;

    perf_lane_layout(lane, 1, lane->send_buffer, step->size, &send);
    perf_lane_layout(lane, 0, lane->recv_buffer, step->size, &recv);
    way->flow->post(lane, &recv);
    for (i = 0; i < n; ++i) {
        if (perf_lane_wait_received(lane, ++target) != UCS_OK) {
            return lane->status;
        }
        if (way->mode & PERF_MODE_CHECK) {
            perf_message_check(lane, lane->recv_buffer, step, i);
            perf_message_fill(lane, lane->send_buffer, step, i);
        }
        way->flow->send(lane, &send);
        if (i + 1 < n) {
            way->flow->post(lane, &recv);
        }
        if (perf_lane_wait_sent(lane) != UCS_OK) {
            return lane->status;
        }
    }
    return lane->status;
}

PERF_INLINE ucs_status_t perf_pingpong(perf_lane_t *lane, const perf_step_t *step,
                                       perf_time_t *time_p, const perf_flow_t *flow,
                                       unsigned mode)
{
    const perf_way_t way = {flow, mode};

    perf_slots_set(lane, step->size, 1);
    perf_message_guard(lane, lane->recv_buffer, step);
    return lane->leader ? perf_lane_timed(lane, step, time_p, perf_pingpong_leader, &way, 2) :
                          perf_pingpong_follower(lane, step, step->warmup + step->iters, &way);
}

/* Chooses among the modes a ping-pong has. */
PERF_INLINE ucs_status_t perf_pingpong_modes(perf_lane_t *lane, const perf_step_t *step,
                                             perf_time_t *time_p, const perf_flow_t *flow)
{
    const int samples = (step->flags & PERF_STEP_SAMPLES) != 0;

    if (lane->params->flags & PERF_FLAG_VALIDATE) {
        return perf_pingpong(lane, step, time_p, flow,
                             PERF_MODE_CHECK | (samples ? PERF_MODE_SAMPLES : 0));
    }
    return samples ? perf_pingpong(lane, step, time_p, flow, PERF_MODE_SAMPLES) :
                     perf_pingpong(lane, step, time_p, flow, 0);
}

/* Messages between two acknowledgements: half a window, so that the sender, which may be one
 * window ahead of the last acknowledged message, does not run dry. */
static inline uint64_t perf_ack_interval(const perf_step_t *step)
{
    return (step->window > 1) ? step->window / 2 : 1;
}

/* Sender of `total` messages in a row: never more than a window ahead of the receiver. Returns
 * when the last is acknowledged. */
PERF_INLINE ucs_status_t perf_window_send(perf_lane_t *lane, const perf_step_t *step,
                                          uint64_t total, const perf_flow_t *flow)
{
    const uint64_t interval = perf_ack_interval(step);
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
        (void)perf_lane_turn(lane, &spins);
    }
    return perf_lane_wait_sent(lane);
}

/* Receiver of `total` messages in a row: a window of receives is always posted. Notes when the
 * last came. */
PERF_INLINE ucs_status_t perf_window_recv(perf_lane_t *lane, const perf_step_t *step,
                                          uint64_t total, const perf_flow_t *flow,
                                          double *end_ns_p)
{
    const uint64_t interval = perf_ack_interval(step);
    const uint64_t base     = lane->recv_done;
    uint64_t posted = 0, acked = 0, done;
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
        if (done >= total) {
            *end_ns_p = perf_now_ns();
        }
        while ((acked < total) && ((done >= acked + interval) || (done >= total))) {
            acked += interval;
            flow->ack(lane);
        }
        if ((done >= total) || (lane->status != UCS_OK)) {
            return perf_lane_wait_sent(lane);
        }
        (void)perf_lane_turn(lane, &spins);
    }
}

/* The messages from `first` to before `end`, window by window: this side sends them, receives them,
 * or does both. Who only receives acknowledges each window; of both, a side sends its next window
 * when it has received the other's. Notes when the last that is not answered came, checked if asked
 * for. */
PERF_INLINE ucs_status_t perf_batch(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                    uint64_t end, const perf_way_t *way, int sends, int receives,
                                    double *end_ns_p)
{
    const int check      = (way->mode & PERF_MODE_CHECK) != 0;
    const size_t stride  = lane->stride;
    perf_layout_t *leave = lane->layouts + step->window;
    uint64_t target      = lane->recv_done, in_batch, i;

    for (; first < end; first += in_batch) {
        in_batch = (end - first < lane->slots) ? end - first : lane->slots;
        target  += receives ? in_batch : 1;
        if (!receives) {
            way->flow->post_ack(lane);
        }
        for (i = 0; receives && (i < in_batch); ++i) {
            if (check) {
                perf_message_guard(lane, lane->recv_buffer + i * stride, step);
            }
            perf_lane_layout(lane, 0, lane->recv_buffer + i * stride, step->size,
                             &lane->layouts[i]);
            way->flow->post(lane, &lane->layouts[i]);
        }
        for (i = 0; sends && (i < in_batch); ++i) {
            if (check) {
                perf_message_fill(lane, lane->send_buffer + i * stride, step, first + i);
            }
            perf_lane_layout(lane, 1, lane->send_buffer + i * stride, step->size, &leave[i]);
            way->flow->send(lane, &leave[i]);
        }
        if ((perf_lane_wait_received(lane, target) != UCS_OK) ||
            (perf_lane_wait_sent(lane) != UCS_OK)) {
            return lane->status;
        }
        for (i = 0; check && receives && (i < in_batch); ++i) {
            perf_message_check(lane, lane->recv_buffer + i * stride, step, first + i);
        }
        if (!sends) {
            *end_ns_p     = perf_now_ns();
            lane->am_next = 0;
            way->flow->ack(lane);
        }
    }
    return perf_lane_wait_sent(lane);
}

/* The messages from `first` to before `end` in one direction. The receiver's time runs from its
 * entry, when the warm-up before is acknowledged, to the last message; it therefore holds whole
 * messages only, even where a library moves all of a window at once and ends them together. */
PERF_INLINE ucs_status_t perf_window_part(perf_lane_t *lane, const perf_step_t *step,
                                          uint64_t first, uint64_t end, perf_time_t *time_p,
                                          const perf_way_t *way)
{
    const int batch       = (way->mode & (PERF_MODE_CHECK | PERF_MODE_BATCH)) != 0;
    const double start_ns = perf_now_ns();
    double end_ns         = start_ns;
    ucs_status_t status;

    if (!lane->leader) {
        status = batch ? perf_batch(lane, step, first, end, way, 0, 1, &end_ns) :
                         perf_window_recv(lane, step, end - first, way->flow, &end_ns);
    } else {
        status = batch ? perf_batch(lane, step, first, end, way, 1, 0, NULL) :
                         perf_window_send(lane, step, end - first, way->flow);
        end_ns = perf_now_ns();
    }
    time_p->ns       = end_ns - start_ns;
    time_p->messages = end - first;
    return status;
}

/* One direction: the leader sends, the follower receives and times. Even without warm-up one
 * message goes first: it brings both sides to the start of the timed part together. mode: the bits
 * that the options do not ask for. */
PERF_INLINE ucs_status_t perf_window(perf_lane_t *lane, const perf_step_t *step,
                                     perf_time_t *time_p, const perf_flow_t *flow, unsigned mode)
{
    const uint64_t warmup = (step->warmup > 0) ? step->warmup : 1;
    const perf_way_t way  = {flow, mode};
    ucs_status_t status;

    perf_slots_set(lane, step->size, step->window);
    status = perf_window_part(lane, step, 0, warmup, time_p, &way);
    if (status == UCS_OK) {
        status = perf_window_part(lane, step, warmup, warmup + step->iters, time_p, &way);
    }
    return status;
}

PERF_INLINE ucs_status_t perf_window_modes(perf_lane_t *lane, const perf_step_t *step,
                                           perf_time_t *time_p, const perf_flow_t *flow,
                                           unsigned mode)
{
    return (lane->params->flags & PERF_FLAG_VALIDATE) ?
           perf_window(lane, step, time_p, flow, mode | PERF_MODE_CHECK) :
           perf_window(lane, step, time_p, flow, mode);
}

/* Both directions at once. An acknowledgement each ends it: what a side owes the other for the last
 * window may wait in its queue, and is gone when the acknowledgement behind it is. */
PERF_INLINE ucs_status_t perf_exchange_part(perf_lane_t *lane, const perf_step_t *step,
                                            uint64_t first, uint64_t end, const void *arg)
{
    const perf_way_t *way = arg;
    uint64_t target;

    if (perf_batch(lane, step, first, end, way, 1, 1, NULL) != UCS_OK) {
        return lane->status;
    }
    target = lane->recv_done + 1;
    way->flow->post_ack(lane);
    way->flow->ack(lane);
    return (perf_lane_wait_received(lane, target) == UCS_OK) ? perf_lane_wait_sent(lane) :
                                                               lane->status;
}

PERF_INLINE ucs_status_t perf_exchange(perf_lane_t *lane, const perf_step_t *step,
                                       perf_time_t *time_p, const perf_flow_t *flow,
                                       unsigned mode)
{
    const perf_way_t way = {flow, mode};

    perf_slots_set(lane, step->size, step->window);
    if (!(mode & PERF_MODE_CHECK)) { /* all from one place and to one */
        lane->slots  = step->window;
        lane->stride = 0;
    }
    return perf_lane_timed(lane, step, time_p, perf_exchange_part, &way, 2);
}

/* The tests of a flow: perf_NAME_latency() and perf_NAME_stream(). */
#define PERF_DEFINE_FLOW(_name, _flow) \
    ucs_status_t perf_##_name##_latency(perf_lane_t *lane, const perf_step_t *step, \
                                        perf_time_t *time_p) \
    { \
        return perf_pingpong_modes(lane, step, time_p, &_flow); \
    } \
    \
    ucs_status_t perf_##_name##_stream(perf_lane_t *lane, const perf_step_t *step, \
                                       perf_time_t *time_p) \
    { \
        return perf_window_modes(lane, step, time_p, &_flow, 0); \
    }

/* ---- one-sided tests ---- */

/* Posts one operation. */
typedef void perf_post_t(perf_lane_t *lane, size_t size);

/* loops_rma.c: ping-pong of puts; the passive side of a test in which only the leader works. */
ucs_status_t perf_put_pingpong(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p,
                               perf_post_t *put);
ucs_status_t perf_one_sided_follow(perf_lane_t *lane);

/* One kind of operation: always a constant. */
typedef struct perf_one_sided {
    perf_post_t   *post;
    ucs_status_t (*flush)(perf_lane_t *lane); /* waits until all are done at the peer, too */
} perf_one_sided_t;

/* Keeps up to a window of operations in flight, then flushes. */
PERF_INLINE ucs_status_t perf_one_sided_rounds(perf_lane_t *lane, const perf_step_t *step,
                                               uint64_t first, uint64_t end, const void *arg)
{
    const perf_one_sided_t *op = arg;

    for (; first < end; ++first) {
        op->post(lane, step->size);
        if (lane->send_posted - lane->send_done >= step->window) {
            perf_lane_wait(lane, &lane->send_done, lane->send_posted - step->window + 1);
        }
        if (lane->status != UCS_OK) {
            return lane->status;
        }
        ++lane->recv_done;
    }
    return op->flush(lane);
}

/* The test of it: perf_NAME(). */
#define PERF_DEFINE_ONE_SIDED(_name, _post, _flush) \
    ucs_status_t perf_##_name(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p) \
    { \
        static const perf_one_sided_t op = {_post, _flush}; \
        \
        return lane->leader ? \
               perf_lane_timed(lane, step, time_p, perf_one_sided_rounds, &op, 1) : \
               perf_one_sided_follow(lane); \
    }

#endif
