/* Halyard: the table of everything that two processes of ucx_perftest can run together.
 *
 * One row adds one test or one limit of the machine. The loops live in loops_*.c and limits*.c.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_OPS_H
#define PERF_OPS_H

#include "lane.h"

typedef enum perf_kind {
    PERF_KIND_LATENCY,   /* ping-pong: time is one-way */
    PERF_KIND_BANDWIDTH, /* one direction, window */
    PERF_KIND_RATE,      /* the same, reported as messages */
    PERF_KIND_LIMIT      /* of the machine; needs shared memory, not the library */
} perf_kind_t;

/* Runs the calling side's half of a step. Loops are bounded by perf_lane_idle(). On success the
 * timing side stores its result in *time_p. */
typedef ucs_status_t perf_run_t(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p);

struct perf_op;

/* Makes a lane ready for the op, at both sides at once; may use the channel. */
typedef ucs_status_t perf_open_t(perf_lane_t *lane, const struct perf_op *op);

typedef struct perf_op {
    const char *name;
    const char *what;
    perf_run_t *run;
    perf_open_t *open;          /* NULL: workers and buffers are all */
    perf_kind_t kind;
    uint64_t    features;       /* UCP_FEATURE_* */
    uint64_t    size_min;
    uint64_t    size_max;       /* 0: any; of atomics: 4 and 8 it is */
    unsigned    window;         /* default for -O; 0: has none */
    int         follower_times; /* the receiver's clock counts, not the sender's */
    int         one_sided;      /* the follower only progresses until the leader is done */
    int         is_uct;         /* of a transport by itself (-x) */
} perf_op_t;

/* A way to run a test: as the environment says, or with one protocol forced. Each has a context. */
typedef struct perf_variant {
    const char *name;   /* of the protocol, as ucp_ep_print_info() gives it */
    const char *thresh; /* UCX_RNDV_THRESH; NULL: the automatic choice */
    const char *scheme; /* UCX_RNDV_SCHEME */
} perf_variant_t;

enum {
    PERF_VARIANT_AUTO,
    PERF_VARIANT_EAGER,
    PERF_VARIANT_GET,
    PERF_VARIANT_COUNT = 6
};

extern const perf_variant_t perf_variants[PERF_VARIANT_COUNT];

extern const perf_op_t perf_ops[];
extern const unsigned perf_op_count;

/* Index of the row of that name, or -1; of the test, where limits do not count. */
int perf_op_find(const char *name);
int perf_op_find_test(const char *name);

/* Why an op cannot run with these parameters; NULL: it can. */
const char *perf_op_refusal(const perf_op_t *op, const perf_params_t *params);

/* limits.c */
perf_run_t perf_limit_line, perf_limit_ring, perf_limit_ring_stream, perf_limit_memcpy;
perf_run_t perf_limit_reader, perf_limit_both;

/* limits_device.c */
perf_run_t perf_limit_device_copy, perf_limit_device_batch;

/* loops_messages.c: bytes are what UCX calls a stream */
perf_open_t perf_am_open, perf_bytes_open;
perf_run_t perf_tag_latency, perf_tag_sync_latency, perf_tag_stream, perf_tag_sync_stream;
perf_run_t perf_tag_exchange, perf_am_latency, perf_am_stream;
perf_run_t perf_bytes_latency, perf_bytes_stream;

/* loops_ofi.c */
perf_open_t perf_ofi_open;
perf_run_t perf_ofi_latency, perf_ofi_stream;

/* loops_uct.c */
perf_open_t perf_uct_open;
perf_run_t perf_uct_am_latency, perf_uct_am_stream;
perf_run_t perf_uct_put_latency, perf_uct_put, perf_uct_get;

/* loops_rma.c */
perf_run_t perf_put_latency, perf_put_stream, perf_get;
perf_run_t perf_atomic_add, perf_atomic_fadd, perf_atomic_swap, perf_atomic_cswap;

#endif
