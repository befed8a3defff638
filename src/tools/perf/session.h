/* Halyard: two connected processes that run steps together.
 *
 * The leader (client, or first process of --self) decides; the follower serves. Both first agree
 * on version and parameters, exchange worker addresses, then run steps, then part.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_SESSION_H
#define PERF_SESSION_H

#include "lane.h"
#include "ops.h"
#include "shared.h"

#define PERF_THREADS_MAX 64
#define PERF_CPUS_MAX    64

/* Both buffers of all lanes of a process together, bytes. */
#define PERF_MEMORY_MAX (UINT64_C(256) << 20)

/* Bytes that each buffer has behind the largest message: the guard, and the value that a fetching
 * atomic returns. */
#define PERF_GUARD_AND_REPLY 256

/* Largest message with one thread: one half of the memory is the receive buffer. */
#define PERF_MESSAGE_MAX (PERF_MEMORY_MAX / 2 - 4096)

typedef struct perf_session {
    perf_params_t   params;
    perf_channel_t  channel;
    perf_shared_t  *shared;    /* NULL between machines */
    int             leader;
    int             cpus[PERF_CPUS_MAX]; /* lane i of several runs on cpus[i % cpu_count], */
    unsigned        cpu_first;           /* a single one on this of them */
    unsigned        cpu_count;           /* 0: not pinned by the lane */
    const perf_op_t *op;       /* what params.test names */
    ucp_context_h   contexts[PERF_VARIANT_COUNT]; /* NULL where the library is not used */
    perf_lane_t    *lanes;     /* params.threads for each variant */
    unsigned        lane_count;
    perf_device_t   device;    /* open where this side's memory or the user wants it */
    void           *limit_memory[2]; /* of the limits of devices; NULL: none */
    _Atomic int     stop;
    uint64_t        sequence;  /* number of the next message */
    ucs_status_t    status;    /* what ended the session; UCS_OK where the channel did */
} perf_session_t;

/* What both sides found in one step. */
typedef struct perf_measure {
    double   us;        /* one message, one way */
    uint64_t messages;  /* of the timed part */
    int      disturbed; /* the kernel preempted one of the processes meanwhile */
    int      refused;   /* process_vm_readv is not permitted: nothing was measured */
} perf_measure_t;

/* Agrees with the other side on the tool's version; on the leader sends params, on the follower
 * receives and checks them. Then makes context and lanes and connects them. The channel must be
 * open; the caller sets channel, shared, leader, cpus and (leader) params.
 * Returns 0, or -1 with the error printed and the other side told. */
int perf_session_open(perf_session_t *session);

/* Leader: runs one step; sequence is filled in. Returns 0, or -1 as above. */
int perf_session_step(perf_session_t *session, perf_step_t *step, perf_measure_t *measure_p);

/* Follower: serves steps until the leader says good-bye. Returns 0, or -1 as above. */
int perf_session_serve(perf_session_t *session);

/* Parts: with `orderly`, closes endpoints together with the other side; else drops everything.
 * Accepts a session that was only half opened. The channel stays open when params.flags say that
 * another session follows. */
void perf_session_close(perf_session_t *session, int orderly);

/* setup.c, used by session.c: context and lanes, without contact to the other side. */
int perf_setup_create(perf_session_t *session);
int perf_setup_connect(perf_session_t *session);
void perf_setup_disconnect(perf_session_t *session);
void perf_setup_destroy(perf_session_t *session);

/* The steps of it, for startup.c too. Return 0, or -1 as above. */
int perf_setup_lanes(perf_session_t *session, unsigned count); /* cleared */
int perf_setup_context(perf_session_t *session, unsigned variant);

/* A lane's worker, and what all lanes have; context NULL: there is none. */
int perf_setup_worker(perf_session_t *session, unsigned lane, ucp_context_h context);

/* Sends the address of the lane's worker and the key to its memory; receives the other side's, to
 * be freed by the caller (NULL: an error); connects a lane to it. */
int perf_setup_send_address(perf_session_t *session, perf_lane_t *lane);
uint8_t *perf_setup_recv_address(perf_session_t *session, size_t *address_length_p);
int perf_setup_endpoint(perf_session_t *session, perf_lane_t *lane, const uint8_t *message);

/* Both sides have come here. Returns 0, or -1 as above. */
int perf_session_ready(perf_session_t *session);

/* Has the channel progress all workers while it waits. */
void perf_session_progress(perf_session_t *session);

/* limits_device.c: opens the side's device and makes the memory that the limits of devices copy;
 * takes hold of the other side's once that is ready, and lets go of it before that is released. */
int perf_setup_device(perf_session_t *session);
void perf_setup_device_connect(perf_session_t *session);
void perf_setup_device_disconnect(perf_session_t *session);
void perf_setup_device_close(perf_session_t *session);

/* Prints what failed, tells the other side, and remembers the status. Returns -1. */
int perf_session_fail(perf_session_t *session, ucs_status_t status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

#endif
