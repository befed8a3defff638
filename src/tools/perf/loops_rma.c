/* Halyard: put, get and atomics on the peer's memory.
 *
 * Put latency is a ping-pong in which each side watches the last byte of its buffer, as programs
 * that poll memory do; others may come a moment later, for which -V waits. All other tests are
 * one-sided: the leader works, the follower only progresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#define STOP_CHECK_POLLS 64
#define LATE_TURNS       1000000 /* of a put's other bytes */

/* Waits until the last byte of the buffer has this value. */
PERF_INLINE ucs_status_t put_watch(perf_lane_t *lane, size_t size, uint8_t value)
{
    _Atomic uint8_t *last = (_Atomic uint8_t*)(lane->recv_buffer + size - 1);
    unsigned spins        = 0;

    while ((atomic_load_explicit(last, memory_order_acquire) != value) &&
           (perf_lane_turn(lane, &spins) == UCS_OK)) {
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
    unsigned turns = 0, spins = 0;
    int64_t bad;

    do {
        bad = perf_pattern_check(lane->recv_buffer, step->size, base);
        if ((bad < 0) || ((uint64_t)bad == step->size - 1)) {
            return;
        }
    } while ((++turns < LATE_TURNS) && (perf_lane_turn(lane, &spins) == UCS_OK));
    perf_lane_fail_data(lane, step->sequence + number, bad);
}

PERF_INLINE ucs_status_t put_rounds(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                    uint64_t end, const void *arg)
{
    perf_post_t *const *put = arg;
    const int check   = (lane->params->flags & PERF_FLAG_VALIDATE) != 0;
    const int samples = lane->leader && (step->flags & PERF_STEP_SAMPLES);
    uint64_t start    = 0, i;
    int turn;

    for (i = first; i < end; ++i) {
        if (samples) {
            start = perf_ticks();
        }
        for (turn = 0; turn < 2; ++turn) {
            if (turn == !lane->leader) {
                if (check) {
                    perf_message_fill(lane, lane->send_buffer, step, i);
                }
                lane->send_buffer[step->size - 1] = put_value(step->sequence + i);
                (*put)(lane, step->size);
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
        if (samples) {
            perf_lane_sample(lane, start);
        }
    }
    return lane->status;
}

ucs_status_t perf_put_pingpong(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p,
                               perf_post_t *put)
{
    return perf_lane_timed(lane, step, time_p, put_rounds, &put, 2);
}

/* Lane 0 ends all: those that sleep wake up. */
static void end_lanes(perf_lane_t *lane)
{
    unsigned i;

    atomic_store_explicit(lane->stop, 1, memory_order_release);
    for (i = 1; (lane->event_fd >= 0) && (i < lane->params->threads); ++i) {
        (void)ucp_worker_signal(lane[i].worker);
    }
}

/* The passive side: progresses until the leader has ended. Lane 0 looks at the channel and tells
 * the others. */
ucs_status_t perf_one_sided_follow(perf_lane_t *lane)
{
    const int is_passive = (lane->params->flags & PERF_FLAG_PASSIVE) && lane->is_served;
    unsigned polls = 0, spins = 0;

    lane->is_served = 1;
    while (!atomic_load_explicit(lane->stop, memory_order_acquire)) {
        if (perf_lane_pause(lane, is_passive ? 0 : perf_lane_progress(lane), &spins) != UCS_OK) {
            break;
        }
        if ((lane->channel != NULL) && (++polls % STOP_CHECK_POLLS == 0) &&
            (perf_oob_look(lane->channel) != PERF_PEER_SILENT)) {
            end_lanes(lane);
        }
    }
    return lane->status;
}

static ucs_status_t rma_flush(perf_lane_t *lane)
{
    perf_lane_sent(lane, ucp_ep_flush_nbx(lane->ep, &lane->ack_param), "ucp_ep_flush_nbx");
    return perf_lane_wait_sent(lane);
}

PERF_INLINE void post_put(perf_lane_t *lane, size_t size)
{
    perf_lane_sent(lane,
                   ucp_put_nbx(lane->ep, lane->send_buffer, size, lane->remote_address,
                               lane->rkey, &lane->send_param),
                   "ucp_put_nbx");
}

PERF_INLINE void post_get(perf_lane_t *lane, size_t size)
{
    perf_lane_sent(lane,
                   ucp_get_nbx(lane->ep, lane->send_buffer, size, lane->remote_address,
                               lane->rkey, &lane->send_param),
                   "ucp_get_nbx");
}

/* Atomics take the operand's size from the datatype; the fetched value goes to the buffer's
 * second line. */
PERF_INLINE void post_atomic(perf_lane_t *lane, size_t size, ucp_atomic_op_t op, int fetch,
                             const char *what)
{
    ucp_request_param_t param = lane->ack_param;

    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype      = ucp_dt_make_contig(size);
    if (fetch) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = lane->send_buffer + 64;
    }
    perf_lane_sent(lane,
                   ucp_atomic_op_nbx(lane->ep, op, lane->send_buffer, 1, lane->remote_address,
                                     lane->rkey, &param),
                   what);
}

#define DEFINE_ATOMIC(_name, _op, _fetch, _what) \
    PERF_INLINE void post_##_name(perf_lane_t *lane, size_t size) \
    { \
        post_atomic(lane, size, UCP_ATOMIC_OP_##_op, _fetch, "ucp_atomic_op_nbx (" _what ")"); \
    } \
    \
    PERF_DEFINE_ONE_SIDED(atomic_##_name, post_##_name, rma_flush)

PERF_DEFINE_ONE_SIDED(put_stream, post_put, rma_flush)
PERF_DEFINE_ONE_SIDED(get, post_get, rma_flush)
DEFINE_ATOMIC(add, ADD, 0, "add")
DEFINE_ATOMIC(fadd, ADD, 1, "fetch and add")
DEFINE_ATOMIC(swap, SWAP, 1, "swap")
DEFINE_ATOMIC(cswap, CSWAP, 1, "compare and swap")

ucs_status_t perf_put_latency(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    static perf_post_t *const put = post_put;
    ucs_status_t status           = perf_lane_timed(lane, step, time_p, put_rounds, &put, 2);

    return (status == UCS_OK) ? rma_flush(lane) : status;
}
