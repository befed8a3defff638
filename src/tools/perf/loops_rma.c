/* Halyard: put, get and atomics on the peer's memory.
 *
 * Put latency is a ping-pong in which each side watches the last byte of its buffer; it relies on
 * a put's last byte arriving last, as programs that poll memory do. All others are one-sided: the
 * leader works, the follower only progresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#define STOP_CHECK_POLLS 64

PERF_INLINE void put_post(perf_lane_t *lane, size_t size)
{
    perf_lane_sent(lane,
                   ucp_put_nbx(lane->ep, lane->send_buffer, size, lane->remote_address,
                               lane->rkey, &lane->send_param),
                   "ucp_put_nbx");
}

/* Waits until the last byte of the buffer has this value. */
PERF_INLINE ucs_status_t put_watch(perf_lane_t *lane, size_t size, uint8_t value)
{
    _Atomic uint8_t *last = (_Atomic uint8_t*)(lane->recv_buffer + size - 1);
    unsigned spins        = 0;

    while (atomic_load_explicit(last, memory_order_acquire) != value) {
        ucp_worker_progress(lane->worker);
        if (++spins >= lane->spin_max) {
            spins = 0;
            if (perf_lane_idle(lane) != UCS_OK) {
                break;
            }
        }
    }
    return lane->status;
}

static uint8_t put_value(uint64_t number)
{
    return (uint8_t)(number % 251 + 1);
}

/* With -V the whole buffer is a message's pattern, except for the last byte. */
static void put_check(perf_lane_t *lane, const perf_step_t *step, uint64_t number)
{
    uint64_t base = perf_pattern_base(lane->params->seed, (unsigned)lane->leader,
                                      step->sequence + number);
    int64_t bad   = perf_pattern_check(lane->recv_buffer, step->size, base);

    if ((bad >= 0) && ((uint64_t)bad != step->size - 1)) {
        perf_lane_fail_data(lane, step->sequence + number, bad);
    }
}

static ucs_status_t put_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                               uint64_t n)
{
    const int check   = (lane->params->flags & PERF_FLAG_VALIDATE) != 0;
    const int samples = lane->leader && (step->flags & PERF_STEP_SAMPLES);
    uint64_t start    = 0, i;
    int turn;

    for (i = first; i < first + n; ++i) {
        if (samples) {
            start = perf_ticks();
        }
        for (turn = 0; turn < 2; ++turn) {
            if (turn == !lane->leader) {
                if (check) {
                    perf_message_fill(lane, lane->send_buffer, step, i);
                }
                lane->send_buffer[step->size - 1] = put_value(step->sequence + i);
                put_post(lane, step->size);
            } else {
                if (put_watch(lane, step->size, put_value(step->sequence + i)) != UCS_OK) {
                    return lane->status;
                }
                if (check) {
                    put_check(lane, step, i);
                }
            }
        }
        if (perf_lane_wait_sent(lane) != UCS_OK) {
            return lane->status;
        }
        ++lane->recv_done;
        if (samples && (lane->sample_count < PERF_SAMPLES_MAX)) {
            lane->samples[lane->sample_count++] = (uint32_t)(perf_ticks() - start);
        }
    }
    return lane->status;
}

static ucs_status_t rma_flush(perf_lane_t *lane)
{
    perf_lane_sent(lane, ucp_ep_flush_nbx(lane->ep, &lane->ack_param), "ucp_ep_flush_nbx");
    return perf_lane_wait_sent(lane);
}

ucs_status_t perf_put_latency(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    ucs_status_t status;
    double start_ns;

    status = put_rounds(lane, step, 0, step->warmup);
    if (status != UCS_OK) {
        return status;
    }
    start_ns         = perf_now_ns();
    status           = put_rounds(lane, step, step->warmup, step->iters);
    time_p->ns       = perf_now_ns() - start_ns;
    time_p->messages = 2 * step->iters;
    return (status == UCS_OK) ? rma_flush(lane) : status;
}

/* The passive side: progresses until the leader has ended. Lane 0 looks at the channel and tells
 * the others. */
static ucs_status_t one_sided_follow(perf_lane_t *lane)
{
    const int is_passive = (lane->params->flags & PERF_FLAG_PASSIVE) && lane->is_served;
    unsigned polls = 0, spins = 0;

    lane->is_served = 1;
    while (!atomic_load_explicit(lane->stop, memory_order_acquire)) {
        if (!is_passive && (ucp_worker_progress(lane->worker) != 0)) {
            spins = 0;
        } else if (++spins >= lane->spin_max) {
            spins = 0;
            if (perf_lane_idle(lane) != UCS_OK) {
                break;
            }
        }
        if ((lane->channel != NULL) && (++polls % STOP_CHECK_POLLS == 0) &&
            (perf_oob_poll(lane->channel) != 0)) {
            atomic_store_explicit(lane->stop, 1, memory_order_release);
        }
    }
    return lane->status;
}

typedef ucs_status_ptr_t (*one_sided_post_t)(perf_lane_t *lane, const perf_step_t *step);

/* Keeps up to a window of operations in flight, then flushes. */
PERF_INLINE ucs_status_t one_sided_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t n,
                                          one_sided_post_t post, const char *what)
{
    uint64_t i;

    for (i = 0; i < n; ++i) {
        perf_lane_sent(lane, post(lane, step), what);
        if (lane->send_posted - lane->send_done >= step->window) {
            perf_lane_wait(lane, &lane->send_done, lane->send_posted - step->window + 1);
        }
        if (lane->status != UCS_OK) {
            return lane->status;
        }
        ++lane->recv_done;
    }
    return rma_flush(lane);
}

PERF_INLINE ucs_status_t one_sided(perf_lane_t *lane, const perf_step_t *step,
                                   perf_time_t *time_p, one_sided_post_t post, const char *what)
{
    ucs_status_t status;
    double start_ns;

    if (!lane->leader) {
        return one_sided_follow(lane);
    }
    status = one_sided_rounds(lane, step, step->warmup, post, what);
    if (status != UCS_OK) {
        return status;
    }
    start_ns         = perf_now_ns();
    status           = one_sided_rounds(lane, step, step->iters, post, what);
    time_p->ns       = perf_now_ns() - start_ns;
    time_p->messages = step->iters;
    return status;
}

PERF_INLINE ucs_status_ptr_t post_put(perf_lane_t *lane, const perf_step_t *step)
{
    return ucp_put_nbx(lane->ep, lane->send_buffer, step->size, lane->remote_address, lane->rkey,
                       &lane->send_param);
}

PERF_INLINE ucs_status_ptr_t post_get(perf_lane_t *lane, const perf_step_t *step)
{
    return ucp_get_nbx(lane->ep, lane->send_buffer, step->size, lane->remote_address, lane->rkey,
                       &lane->send_param);
}

/* Atomics take the operand's size from the datatype; the fetched value goes to the buffer's
 * second line. */
PERF_INLINE ucs_status_ptr_t post_atomic(perf_lane_t *lane, const perf_step_t *step,
                                         ucp_atomic_op_t op, int fetch)
{
    ucp_request_param_t param = lane->ack_param;

    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype      = ucp_dt_make_contig(step->size);
    if (fetch) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = lane->send_buffer + 64;
    }
    return ucp_atomic_op_nbx(lane->ep, op, lane->send_buffer, 1, lane->remote_address, lane->rkey,
                             &param);
}

ucs_status_t perf_put_stream(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return one_sided(lane, step, time_p, post_put, "ucp_put_nbx");
}

ucs_status_t perf_get(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return one_sided(lane, step, time_p, post_get, "ucp_get_nbx");
}

/* What posts one operation of a kind, and the loop of that kind. */
#define DEFINE_ATOMIC(_name, _op, _fetch, _what) \
    PERF_INLINE ucs_status_ptr_t post_##_name(perf_lane_t *lane, const perf_step_t *step) \
    { \
        return post_atomic(lane, step, UCP_ATOMIC_OP_##_op, _fetch); \
    } \
    \
    ucs_status_t perf_atomic_##_name(perf_lane_t *lane, const perf_step_t *step, \
                                     perf_time_t *time_p) \
    { \
        return one_sided(lane, step, time_p, post_##_name, "ucp_atomic_op_nbx (" _what ")"); \
    }

DEFINE_ATOMIC(add, ADD, 0, "add")
DEFINE_ATOMIC(fadd, ADD, 1, "fetch and add")
DEFINE_ATOMIC(swap, SWAP, 1, "swap")
DEFINE_ATOMIC(cswap, CSWAP, 1, "compare and swap")
