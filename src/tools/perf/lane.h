/* Halyard: one thread's side of a test: its worker, endpoint, buffers and counters, and the few
 * inline steps of which all measuring loops are made.
 *
 * A lane belongs to one thread. The two processes run the same op with the same step; `leader`
 * tells which half of it. Completion callbacks count and free, loops compare counts: per message
 * that is one callback and one comparison, and no request needs to be remembered.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_LANE_H
#define PERF_LANE_H

#include "clock.h"
#include "device.h"
#include "oob.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

struct perf_shared;
struct perf_layout;

/* Iterations whose time is kept for percentiles. */
#define PERF_SAMPLES_MAX (UINT64_C(1) << 20)

/* Most messages in flight (-O). */
#define PERF_WINDOW_MAX 4096

/* perf_params_t.flags */
enum {
    PERF_FLAG_WILDCARD   = 1 << 0, /* receive with tag mask 0 */
    PERF_FLAG_UNEXPECTED = 1 << 1, /* probe first, so that each message is unexpected */
    PERF_FLAG_VALIDATE   = 1 << 2, /* fill and check every byte */
    PERF_FLAG_SLEEP      = 1 << 3, /* wait in the kernel instead of polling */
    PERF_FLAG_WAKEUP     = 1 << 4, /* context with the wake-up feature */
    PERF_FLAG_ERR_PEER   = 1 << 5, /* endpoints with error handling */
    PERF_FLAG_SEND_IOV   = 1 << 6, /* four pieces instead of one */
    PERF_FLAG_RECV_IOV   = 1 << 7,
    PERF_FLAG_MEMH       = 1 << 8,  /* buffers are registered and their handles passed */
    PERF_FLAG_NONBLOCK   = 1 << 9,  /* registered with UCP_MEM_MAP_NONBLOCK */
    PERF_FLAG_PASSIVE    = 1 << 10, /* the responder of a one-sided test does not progress */
    PERF_FLAG_AM_COPY    = 1 << 11, /* the handler of active messages copies their data */
    PERF_FLAG_MORE       = 1 << 12, /* another session follows on the same channel */
    PERF_FLAG_DEVICE     = 1 << 13  /* both sides use a device, whatever their memory */
};

/* What client and server must agree on; travels as it is. */
typedef struct perf_params {
    char     test[24];
    uint32_t flags;
    uint32_t window;
    uint32_t threads;
    uint32_t thread_mode; /* ucs_thread_mode_t */
    uint32_t am_header;   /* bytes */
    uint32_t variants;    /* of perf_variants[] that are made: 1, or all for an audit */
    uint64_t max_size;    /* largest message of any step, bytes */
    uint64_t span;        /* bytes of each of a lane's two buffers */
    uint64_t seed;
    uint8_t  memory[2];   /* perf_memory_t of the leader's and of the follower's buffers */
    int8_t   device[2];   /* ordinals; -1: as perf_device_open() shares them out */
    uint32_t way;         /* PERF_UCT_... */
    char     transport[32]; /* of a test of one by itself; "": the library */
} perf_params_t;

/* How a transport is to move data (-D). */
enum {
    PERF_UCT_NO_WAY, /* it is no test of a transport */
    PERF_UCT_SHORT, /* out of the caller's hands when the call returns; puts by the processor */
    PERF_UCT_BCOPY, /* written by a callback to a buffer of the transport's */
    PERF_UCT_ZCOPY  /* from where it lies */
};

_Static_assert(sizeof(perf_params_t) == 112, "perf_params_t is on the wire");

/* Does this side, the leader's or the follower's, use a device? */
static inline int perf_params_use_device(const perf_params_t *params, unsigned side)
{
    return (params->memory[side] != PERF_MEMORY_HOST) || (params->flags & PERF_FLAG_DEVICE);
}

/* perf_step_t.flags */
enum {
    PERF_STEP_SAMPLES = 1 << 0 /* the leader keeps the time of every iteration */
};

/* One order of the leader: both sides run the op with these numbers. Travels as it is. */
typedef struct perf_step {
    uint32_t op;       /* index into perf_ops[] */
    uint32_t flags;
    uint32_t window;
    uint32_t variant;  /* index into perf_variants[] */
    uint64_t size;     /* bytes of a message */
    uint64_t warmup;   /* iterations before the clock starts */
    uint64_t iters;    /* iterations that are timed */
    uint64_t sequence; /* number of the first message, for its contents */
} perf_step_t;

_Static_assert(sizeof(perf_step_t) == 48, "perf_step_t is on the wire");

typedef struct perf_time {
    double   ns;       /* duration of the timed part */
    uint64_t messages; /* that went one way in that time */
} perf_time_t;

typedef struct perf_lane {
    /* Hot: what the loops and callbacks touch. Lanes are written by different threads: pairs of
     * cache lines, as the hardware fetches them, of their own. */
    _Alignas(128)
    uint64_t            recv_done;   /* receives completed since the lane was made; puts, gets
                                      * and atomics, which nothing is received for, too */
    uint64_t            send_done;   /* sends that completed by callback */
    uint64_t            send_posted; /* sends that did not complete at once */
    ucs_status_t        status;      /* first failure; sticky */
    unsigned            spin_max;    /* idle polls before perf_lane_idle() */
    ucp_worker_h        worker;
    unsigned          (*progress)(struct perf_lane *lane); /* NULL: the worker's */
    void               *bare;        /* what the op has in place of a worker; NULL: nothing */
    ucp_ep_h            ep;
    uint8_t            *send_buffer;
    uint8_t            *recv_buffer;
    ucp_request_param_t send_param;
    ucp_request_param_t recv_param;
    ucp_request_param_t ack_param;      /* as the two above, always contiguous bytes */
    ucp_request_param_t ack_recv_param;
    ucp_request_param_t am_param;       /* receive of an active message's rendezvous data */
    ucp_tag_t           recv_mask;

    /* Cold. */
    void               (*close)(struct perf_lane *lane); /* ends `bare`; NULL: there is none */
    ucp_context_h        context;
    const perf_params_t *params;
    struct perf_shared  *shared;     /* limits only; NULL between machines */
    perf_device_t       *device;     /* the session's */
    uint8_t             *mirror;     /* NULL: processors reach the buffers; else room for one
                                      * message on its way to or from them */
    void                *limit_from; /* what the limits of devices copy; NULL: the other side
                                      * does, or nobody */
    void                *limit_to;
    perf_channel_t      *channel;    /* NULL except in lane 0 */
    _Atomic int         *stop;       /* raised when the leader of a one-sided step has ended */
    uint64_t            *samples;    /* leader: ticks of each iteration */
    uint64_t             sample_count; /* of the timed part */
    struct perf_layout  *layouts;    /* two a message in flight, for checked runs */
    size_t               slots;      /* places in the buffers for messages in flight */
    size_t               stride;     /* bytes from one place to the next */
    char                *am_header;
    uint64_t             am_next;    /* active messages that came since the last window */
    uint64_t             line_seq;   /* positions in the limit loops' sequences */
    uint64_t             barrier_seq;
    uint64_t             copy_seq;
    int                  refused;    /* the kernel forbids process_vm_readv between the two */
    unsigned             index;
    int                  leader;
    int                  event_fd;   /* -1: no wake-up */
    int                  yield;      /* let others run when idle */
    char                 problem[160]; /* what failed first, without the status */

    ucp_mem_h           send_memh;  /* NULL: not registered */
    ucp_mem_h           recv_memh;

    /* One-sided tests. */
    int                 is_served;  /* the first step has connected the two sides */
    ucp_rkey_h          rkey;
    uint64_t            remote_address;
} perf_lane_t;

/* Notes the first failure, with what was being done. Returns the lane's status. */
ucs_status_t perf_lane_fail(perf_lane_t *lane, ucs_status_t status, const char *what);

/* A message's contents were wrong: notes where. */
void perf_lane_fail_data(perf_lane_t *lane, uint64_t sequence, int64_t offset);

/* Called when spin_max polls in a row found nothing: sleeps when told to (not where nothing that is
 * waited for would end the sleep), yields when both sides share a processor, and looks whether the
 * peer still lives. Returns the lane's status. */
ucs_status_t perf_lane_idle(perf_lane_t *lane, int may_sleep);

/* Where processors reach a message that is in the lane's buffers: there, or in the mirror. Carry
 * copies from the mirror to the buffers, or back; without one it does nothing. */
static inline uint8_t *perf_lane_view(perf_lane_t *lane, uint8_t *buffer)
{
    return (lane->mirror != NULL) ? lane->mirror : buffer;
}

void perf_lane_carry(perf_lane_t *lane, void *dest, const void *src, size_t size);

/* Completion callbacks: user_data is the lane. */
void perf_lane_send_cb(void *request, ucs_status_t status, void *user_data);
void perf_lane_recv_cb(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *user_data);
void perf_lane_data_cb(void *request, ucs_status_t status, size_t length, void *user_data);

/* Buffer, count and datatype of a message of `size` bytes at `buffer` as the parameters want it:
 * contiguous, or four pieces described in iov[]. */
typedef struct perf_layout {
    void        *buffer;
    size_t       count;
    ucp_dt_iov_t iov[4];
} perf_layout_t;

void perf_lane_layout(perf_lane_t *lane, int is_send, void *buffer, size_t size,
                      perf_layout_t *layout_p);

/* The steps below are part of the loop that they stand in, however many loops a file has. */
#define PERF_INLINE static inline __attribute__((always_inline))

/* Takes note of what a call that sends has returned. */
PERF_INLINE void perf_lane_sent(perf_lane_t *lane, ucs_status_ptr_t request, const char *what)
{
    if (request != NULL) {
        if (UCS_PTR_IS_ERR(request)) {
            perf_lane_fail(lane, UCS_PTR_STATUS(request), what);
        } else {
            ++lane->send_posted;
        }
    }
}

/* Takes note of what a call that receives has returned. */
PERF_INLINE void perf_lane_received(perf_lane_t *lane, ucs_status_ptr_t request,
                                    const char *what)
{
    if (request == NULL) {
        ++lane->recv_done;
    } else if (UCS_PTR_IS_ERR(request)) {
        perf_lane_fail(lane, UCS_PTR_STATUS(request), what);
    }
}

PERF_INLINE unsigned perf_lane_progress(perf_lane_t *lane)
{
    return __builtin_expect(lane->progress != NULL, 0) ? lane->progress(lane) :
                                                         ucp_worker_progress(lane->worker);
}

/* Behind a turn of a loop that waits, in which `found` things were done; *spins are the turns in a
 * row that found nothing. Not UCS_OK: the lane was asked whether to go on, and has failed. */
PERF_INLINE ucs_status_t perf_lane_pause(perf_lane_t *lane, unsigned found, unsigned *spins)
{
    if (found != 0) {
        *spins = 0;
    } else if (__builtin_expect(++*spins >= lane->spin_max, 0)) {
        *spins = 0;
        return perf_lane_idle(lane, 1);
    }
    return UCS_OK;
}

/* Such a turn. */
PERF_INLINE ucs_status_t perf_lane_turn(perf_lane_t *lane, unsigned *spins)
{
    return perf_lane_pause(lane, perf_lane_progress(lane), spins);
}

/* Progresses until *counter has reached `target`. Counters only grow. */
PERF_INLINE ucs_status_t perf_lane_wait(perf_lane_t *lane, const uint64_t *counter,
                                        uint64_t target)
{
    unsigned spins = 0;

    while ((*counter < target) && (perf_lane_turn(lane, &spins) == UCS_OK)) {
    }
    return lane->status;
}

PERF_INLINE ucs_status_t perf_lane_wait_received(perf_lane_t *lane, uint64_t target)
{
    return perf_lane_wait(lane, &lane->recv_done, target);
}

/* All sends posted so far are complete, the buffer may change. */
PERF_INLINE ucs_status_t perf_lane_wait_sent(perf_lane_t *lane)
{
    if (__builtin_expect(lane->send_done == lane->send_posted, 1)) {
        return lane->status;
    }
    return perf_lane_wait(lane, &lane->send_done, lane->send_posted);
}

/* Runs the iterations of a step from `first` to before `end`; arg: what else the loop needs. */
typedef ucs_status_t (*perf_part_t)(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                    uint64_t end, const void *arg);

/* A step's warm-up, then its timed part, of so many messages an iteration. With a function that is
 * inlined and a constant arg it is a loop of its own. */
PERF_INLINE ucs_status_t perf_lane_timed(perf_lane_t *lane, const perf_step_t *step,
                                         perf_time_t *time_p, perf_part_t part, const void *arg,
                                         unsigned messages)
{
    const uint64_t end  = step->warmup + step->iters;
    ucs_status_t status = part(lane, step, 0, step->warmup, arg);
    double start_ns;

    if (status != UCS_OK) {
        return status;
    }
    lane->sample_count = 0;
    start_ns           = perf_now_ns();
    status             = part(lane, step, step->warmup, end, arg);
    time_p->ns         = perf_now_ns() - start_ns;
    time_p->messages   = messages * step->iters;
    return status;
}

/* Keeps the time of an iteration that began at `start`. */
PERF_INLINE void perf_lane_sample(perf_lane_t *lane, uint64_t start)
{
    if (lane->sample_count < PERF_SAMPLES_MAX) {
        lane->samples[lane->sample_count++] = perf_ticks() - start;
    }
}

#endif
