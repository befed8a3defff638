/* Halyard: what the loops that measure the machine's limits share.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_LIMITS_H
#define PERF_LIMITS_H

#include "lane.h"
#include "shared.h"

/* Polls that found nothing before perf_lane_idle() is asked whether to go on. */
#define PERF_LIMIT_SPINS (1u << 14)

/* The lines that the lane's own side (own = 1) or the other side writes. */
perf_side_t *perf_limit_side(perf_lane_t *lane, int own);

/* Both sides have come here. Spins, bounded by perf_lane_idle(). */
ucs_status_t perf_limit_barrier(perf_lane_t *lane);

/* perf_lane_timed() of both sides from a barrier on, with a message each way an iteration. */
PERF_INLINE ucs_status_t perf_limit_timed(perf_lane_t *lane, const perf_step_t *step,
                                          perf_time_t *time_p, perf_part_t part, const void *arg)
{
    const ucs_status_t status = perf_limit_barrier(lane);

    return (status == UCS_OK) ? perf_lane_timed(lane, step, time_p, part, arg, 2) : status;
}

/* After a poll that found nothing, *spins of them in a row: not UCS_OK if the lane has failed. */
static inline ucs_status_t perf_limit_spin(perf_lane_t *lane, unsigned *spins)
{
    if (__builtin_expect(++*spins < PERF_LIMIT_SPINS, 1)) {
        return UCS_OK;
    }
    *spins = 0;
    return perf_lane_idle(lane);
}

/* Polls a line until it holds `value` or more (acquire); what a line holds only grows. */
static inline ucs_status_t perf_limit_poll(perf_lane_t *lane, _Atomic uint64_t *line,
                                           uint64_t value)
{
    unsigned spins = 0;

    while (atomic_load_explicit(line, memory_order_acquire) < value) {
        if (perf_limit_spin(lane, &spins) != UCS_OK) {
            return lane->status;
        }
    }
    return UCS_OK;
}

#endif
