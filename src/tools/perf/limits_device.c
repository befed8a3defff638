/* Halyard: what the driver can do between the memories of two processes: one process copies, by a
 * handle of the other's memory where both have a device, and polls until the copy is done.
 *
 * Whatever kinds of device memory the test has, the limit is that of cuMemAlloc's; memory of the
 * host is pinned. Nothing that a library would have to add, such as telling the other side, is in
 * it. One process copies in both directions, since two processes that take turns on one device
 * would measure its change of contexts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "lane.h"
#include "session.h"
#include "watch.h"

#include <stdio.h>
#include <string.h>

/* Smaller allocations share a block of the driver's, and so would the other side's mapping. */
#define LIMIT_UNIT (UINT64_C(2) << 20)

static int has_device(const perf_session_t *session, int side)
{
    return !perf_memory_is_host((perf_memory_t)session->params.memory[side]);
}

static int is_copier(const perf_session_t *session)
{
    return session->leader ? has_device(session, 0) : !has_device(session, 0);
}

static perf_memory_t limit_kind(const perf_session_t *session, int side)
{
    return has_device(session, side) ? PERF_MEMORY_CUDA : PERF_MEMORY_PINNED;
}

static uint64_t limit_size(const perf_session_t *session)
{
    return (session->params.max_size + LIMIT_UNIT) / LIMIT_UNIT * LIMIT_UNIT;
}

/* The copier's memory of both sides; of two that have devices each makes its own. */
static int make_memory(perf_session_t *session)
{
    const int both = has_device(session, 0) && has_device(session, 1);
    int side;

    for (side = 0; side < 2; ++side) {
        if (both ? (side == session->leader) : !is_copier(session)) {
            continue;
        }
        session->limit_memory[side] = perf_memory_alloc(&session->device,
                                                        limit_kind(session, side),
                                                        limit_size(session));
        if (session->limit_memory[side] == NULL) {
            return perf_session_fail(session, UCS_ERR_NO_MEMORY, "memory of the limits: %s",
                                     session->device.problem);
        }
    }
    if (both && !session->leader &&
        (perf_device_export(&session->device, session->limit_memory[1],
                            session->shared->handle) != 0)) {
        memset(session->shared->handle, 0, sizeof(session->shared->handle));
    }
    return 0;
}

int perf_setup_device(perf_session_t *session)
{
    const unsigned side      = !session->leader;
    const perf_memory_t kind = (perf_memory_t)session->params.memory[side];

    session->limit_memory[0] = session->limit_memory[1] = NULL;
    if (!perf_params_use_device(&session->params, side)) {
        session->device.is_open = 0;
        return 0;
    }
    perf_watch_stage("starting CUDA");
    if (perf_device_open(&session->device, session->params.device[side], side) != 0) {
        return perf_session_fail(session, UCS_ERR_NO_DEVICE, "memory of kind %s: %s",
                                 perf_memory_names[kind], session->device.problem);
    }
    return ((session->shared != NULL) && perf_memory_any_device(session->params.memory)) ?
           make_memory(session) : 0;
}

void perf_setup_device_connect(perf_session_t *session)
{
    perf_lane_t *lane = &session->lanes[0];

    if (!session->device.is_open || (session->shared == NULL) || !is_copier(session) ||
        !perf_memory_any_device(session->params.memory)) {
        return;
    }
    if (session->leader && has_device(session, 1)) {
        session->limit_memory[1] = perf_device_import(&session->device,
                                                      session->shared->handle);
    }
    lane->limit_from = session->limit_memory[0];
    lane->limit_to   = session->limit_memory[1];
}

void perf_setup_device_disconnect(perf_session_t *session)
{
    if (session->leader && has_device(session, 0) && has_device(session, 1) &&
        (session->limit_memory[1] != NULL)) {
        perf_device_forget(&session->device, session->limit_memory[1]);
        session->limit_memory[1] = NULL;
    }
}

void perf_setup_device_close(perf_session_t *session)
{
    int side;

    for (side = 0; side < 2; ++side) {
        if (session->limit_memory[side] != NULL) {
            perf_memory_release(&session->device, limit_kind(session, side),
                                session->limit_memory[side], limit_size(session));
            session->limit_memory[side] = NULL;
        }
    }
    perf_device_close(&session->device);
}

/* ---- the loops ---- */

/* 1 if this side copies. */
static int is_ready(perf_lane_t *lane)
{
    if (lane->limit_from == NULL) {
        return 0;
    }
    if (lane->limit_to == NULL) {
        lane->refused = 1;
        snprintf(lane->problem, sizeof(lane->problem), "%s", lane->device->problem);
        return 0;
    }
    return 1;
}

/* Copies one by one, or in batches (arg: not NULL) of a window. */
PERF_INLINE ucs_status_t copies(perf_lane_t *lane, const perf_step_t *step, uint64_t first,
                                uint64_t end, const void *arg)
{
    const int is_batch  = (arg != NULL);
    const unsigned most = !is_batch ? 1 :
                          (step->window < PERF_DEVICE_BATCH_MAX) ? step->window :
                                                                   PERF_DEVICE_BATCH_MAX;
    /* Between host and device each direction has its own time, and a ping-pong goes both ways. */
    const int turns = !is_batch && (perf_memory_is_host((perf_memory_t)lane->params->memory[0]) ||
                                    perf_memory_is_host((perf_memory_t)lane->params->memory[1]));
    void *from, *to;
    unsigned count;
    int status;

    for (; first < end; first += count) {
        count  = (end - first < most) ? (unsigned)(end - first) : most;
        from   = (turns && (first & 1)) ? lane->limit_to : lane->limit_from;
        to     = (turns && (first & 1)) ? lane->limit_from : lane->limit_to;
        status = is_batch ? perf_device_batch_poll(lane->device, to, from, step->size, count) :
                            perf_device_copy_poll(lane->device, to, from, step->size);
        if (status != 0) {
            return perf_lane_fail(lane, UCS_ERR_IO_ERROR, lane->device->problem);
        }
    }
    return lane->status;
}

ucs_status_t perf_limit_device_copy(perf_lane_t *lane, const perf_step_t *step,
                                    perf_time_t *time_p)
{
    return is_ready(lane) ? perf_lane_timed(lane, step, time_p, copies, NULL, 1) : lane->status;
}

ucs_status_t perf_limit_device_batch(perf_lane_t *lane, const perf_step_t *step,
                                     perf_time_t *time_p)
{
    return is_ready(lane) ? perf_lane_timed(lane, step, time_p, copies, "batch", 1) :
                            lane->status;
}
