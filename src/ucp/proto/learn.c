/* Halyard: what long messages really take.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/proto/learn.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/sys.h>

unsigned ucp_learn_octave(size_t length)
{
    const uint64_t shorts = ucs_max(length / UCP_LEARN_SHORT, (size_t)1);
    const unsigned log2   = 63u - (unsigned)__builtin_clzll(shorts);

    return ucs_min(log2, UCP_LEARN_OCTAVES - 1);
}

size_t ucp_learn_octave_min(unsigned octave)
{
    return (octave == 0) ? 0 : UCP_LEARN_SHORT << octave;
}

static void ucp_learn_try(ucp_learn_octave_t *octave, ucp_way_t way)
{
    octave->phase    = UCP_LEARN_TRIAL;
    octave->trial    = (uint8_t)way;
    octave->left     = UCP_LEARN_TRIAL_MAX;
    octave->best     = 0;
    octave->moved    = 0;
    octave->runs     = 0;
    octave->is_open  = 0;
    octave->is_again = 0;
    ++octave->number;
}

/* A bit for each way that has been measured. */
static unsigned ucp_learn_known(const ucp_learn_octave_t *octave, unsigned ways)
{
    unsigned known = 0;
    ucp_way_t way;

    for (way = 0; way < UCP_WAYS; ++way) {
        known |= (octave->rate[way] > 0) ? (1u << way) : 0;
    }
    return known & ways;
}

/* Were some of the ways that there are measured alike? Puts and gets are: those by copies never
 * move at the same time, whatever the program does. */
static int ucp_learn_is_alike(const ucp_learn_octave_t *octave, unsigned ways, unsigned some)
{
    const unsigned windows = octave->windows & some;

    return !(ways & (1u << UCP_WAY_BOTH)) || (windows == 0) || (windows == some);
}

/* The fastest way, or the one in use where that is not clearly slower. */
static ucp_way_t ucp_learn_best(const ucp_learn_octave_t *octave, unsigned ways)
{
    const ucp_way_t own = octave->way;
    ucp_way_t best      = own;
    ucp_way_t way;
    double least;

    for (way = 0; (way < UCP_WAYS) && (octave->rate[own] > 0); ++way) {
        least = (double)octave->rate[own] *
                (ucp_learn_is_alike(octave, ways, (1u << own) | (1u << way)) ?
                 UCP_LEARN_GAIN : UCP_LEARN_UNLIKE_GAIN);
        if ((ways & (1u << way)) && ((double)octave->rate[way] > least) &&
            (octave->rate[way] > octave->rate[best])) {
            best = way;
        }
    }
    return best;
}

/* All ways have been tried. Is another one to be used from now on? */
static int ucp_learn_settle(ucp_learn_octave_t *octave, unsigned ways, size_t length)
{
    const ucp_way_t own  = octave->way;
    const unsigned most  = (length < UCP_LEARN_MIN) ? UCP_LEARN_SHORT_SETTLED : UCP_LEARN_SETTLED;
    const unsigned known = ucp_learn_known(octave, ways);
    const int is_alike   = ucp_learn_is_alike(octave, ways, known);
    unsigned first       = 1;
    unsigned times       = 2;

    octave->way      = (uint8_t)ucp_learn_best(octave, ways);
    octave->usual    = 0;
    octave->num_slow = 0;
    octave->max_slow = (octave->way != own) ? 0 : octave->max_slow;
    if (is_alike && (known == ways)) {
        first = (unsigned)ucs_min(ucs_max(length / UCP_LEARN_MIN, 1u), (size_t)UCP_LEARN_FIRST);
        times = (octave->way == own) ? 4 : 2;
    }
    octave->patience = (uint16_t)ucs_min(ucs_max(times * octave->patience, first), most);
    octave->phase    = UCP_LEARN_IN_USE;
    octave->left     = octave->tried * octave->patience;
    octave->tried    = 0;
    return octave->way != own;
}

/* What follows the phase that has ended; returns whether another way is in use from now on. */
static int ucp_learn_go_on(ucp_learn_octave_t *octave, unsigned ways, ucp_way_t predicted,
                           size_t length)
{
    unsigned way;

    if (octave->phase != UCP_LEARN_TRIAL) {
        octave->way = (octave->phase == UCP_LEARN_NEW) ? (uint8_t)predicted : octave->way;
        ucp_learn_try(octave, octave->way);
        return 0;
    }
    if (octave->best > 0) {
        octave->rate[octave->trial] = octave->is_again ?
                                      ucs_max(octave->best, octave->rate[octave->trial]) :
                                      octave->best;
    }
    if (octave->is_again) {
        return ucp_learn_settle(octave, ways, length);
    }
    /* the one in use has been the first */
    for (way = (octave->trial == octave->way) ? 0 : octave->trial + 1u; way < UCP_WAYS; ++way) {
        if ((ways & (1u << way)) && (way != octave->way)) {
            ucp_learn_try(octave, (ucp_way_t)way);
            return 0;
        }
    }
    if (ucp_learn_best(octave, ways) == octave->way) {
        return ucp_learn_settle(octave, ways, length);
    }
    ucp_learn_try(octave, octave->way);
    octave->is_again = 1;
    return 0;
}

ucp_way_t ucp_learn_choose(ucp_learn_t *learn, size_t length, unsigned ways, ucp_way_t predicted,
                           int *changed_p)
{
    ucp_learn_octave_t *octave = &learn->octaves[ucp_learn_octave(length)];

    *changed_p = 0;
    if (ucs_unlikely(octave->left == 0)) {
        *changed_p = ucp_learn_go_on(octave, ways, predicted, length);
    }
    --octave->left;
    if (octave->phase != UCP_LEARN_TRIAL) {
        return octave->way;
    }
    ++octave->tried;
    return octave->trial;
}

int ucp_learn_is_first(const ucp_learn_t *learn, const ucp_learn_turn_t *turn)
{
    return learn->octaves[turn->octave].patience == 0;
}

int ucp_learn_is_settled(const ucp_learn_t *learn, const ucp_learn_turn_t *turn)
{
    const ucp_learn_octave_t *octave = &learn->octaves[turn->octave];

    return (octave->phase == UCP_LEARN_IN_USE) && (octave->way == turn->way) &&
           (octave->rate[turn->way] > 0);
}

static uint32_t ucp_learn_num_under_way(const ucp_learn_octave_t *octave)
{
    uint32_t count = 0;
    ucp_way_t way;

    for (way = 0; way < UCP_WAYS; ++way) {
        count += octave->under_way[way];
    }
    return count;
}

/* Has memory as long messages of this octave use been used by as many? */
static int ucp_learn_is_warm(const ucp_learn_t *learn, unsigned octave)
{
    return learn->used[ucs_min(octave, UCP_LEARN_UNIT_OCTAVE)] >= UCP_LEARN_COLD;
}

static void ucp_learn_warm(ucp_learn_t *learn, unsigned octave, size_t length)
{
    unsigned i = ucs_min(octave, UCP_LEARN_UNIT_OCTAVE);

    for (; !ucp_learn_is_warm(learn, i); --i) { /* shorter ones use a part of it */
        learn->used[i] += (uint16_t)(1 + ucs_min(length / UCP_LEARN_UNIT, (size_t)UCP_LEARN_COLD));
        if (i == 0) {
            break;
        }
    }
}

static void ucp_learn_open_run(ucp_learn_octave_t *octave, uint64_t now_ns)
{
    octave->is_open    = 1;
    octave->is_window  = ucp_learn_num_under_way(octave) > 0;
    octave->is_due     = 0;
    octave->begun      = 0;
    octave->ended      = 0;
    octave->count      = 0;
    octave->time_ns    = 0;
    octave->since_ns   = now_ns;
    octave->last_begun = 0;
    octave->last_ended = 0;
    octave->last_ns    = 0;
    octave->first      = octave->serial;
}

/* Nothing has moved since the last message ended. */
static void ucp_learn_add_pause(ucp_learn_octave_t *octave, size_t length)
{
    const uint64_t now_ns = ucs_sys_clock_ns();

    octave->time_ns += ucs_min(now_ns - octave->since_ns,
                               UCP_LEARN_PAUSE_NS + (length / UCP_LEARN_PAUSE_BYTES));
    octave->since_ns = now_ns;
}

static int ucp_learn_should_watch(const ucp_learn_octave_t *octave, ucp_way_t way)
{
    return (octave->phase == UCP_LEARN_IN_USE) && (way == octave->way) &&
           ((octave->left % UCP_LEARN_WATCHED) == 0) && (ucp_learn_num_under_way(octave) == 0);
}

/* A message that began alone while a way was in use has ended. */
static void ucp_learn_watch(ucp_learn_octave_t *octave, const ucp_learn_turn_t *turn, size_t length)
{
    const unsigned most = ucs_max(octave->max_slow, UCP_LEARN_SLOW_MIN);
    float rate;

    if ((length == 0) || (octave->phase != UCP_LEARN_IN_USE) ||
        (turn->number != octave->number) || (turn->serial + 1 != octave->serial)) {
        return;
    }
    rate = (float)length / (float)ucs_max(ucs_sys_clock_ns() - octave->since_ns, 1u);
    if (rate >= UCP_LEARN_FAR_SLOWER * octave->usual) {
        octave->usual   += (rate - octave->usual) / ((octave->usual > 0) ? 8 : 1);
        octave->num_slow = 0;
    } else if (++octave->num_slow >= most) {
        octave->left     = 0;
        octave->patience = 1; /* what was found last belongs to the past */
        octave->max_slow = (uint16_t)ucs_min(2 * most, UCP_LEARN_SLOW_MAX);
    }
}

void ucp_learn_begin(ucp_learn_t *learn, ucp_learn_turn_t *turn, size_t length, ucp_way_t way)
{
    const unsigned i           = ucp_learn_octave(length);
    ucp_learn_octave_t *octave = &learn->octaves[i];

    turn->octave   = (uint8_t)i;
    turn->way      = (uint8_t)way;
    turn->number   = octave->number;
    turn->serial   = octave->serial;
    turn->is_timed = (octave->phase == UCP_LEARN_TRIAL) && (octave->trial == way) &&
                     ((way != UCP_WAY_MESSAGES) || ucp_learn_is_warm(learn, i));
    turn->is_alone = ucp_learn_should_watch(octave, way);
    if (way == UCP_WAY_MESSAGES) {
        ucp_learn_warm(learn, i, length);
    }
    if (turn->is_alone) {
        octave->since_ns = ucs_sys_clock_ns();
    } else if (!turn->is_timed) {
        octave->is_open = 0;
    } else {
        if (octave->is_open && (ucp_learn_num_under_way(octave) == 0)) {
            ucp_learn_add_pause(octave, length);
        } else {
            octave->is_window = 1;
        }
        octave->begun += length;
    }
    ++octave->serial;
    ++octave->under_way[way];
}

/* Messages of `length` bytes are tried, which might be the fastest way once a ring's buffers are in
 * the caches, where the way in use has not put them. */
static int ucp_learn_is_cold(const ucp_learn_octave_t *octave, size_t length)
{
    return (octave->trial == UCP_WAY_MESSAGES) && (octave->way != UCP_WAY_MESSAGES) &&
           (length >= UCP_LEARN_MIN) && (octave->moved < UCP_LEARN_LAP) &&
           (octave->best * UCP_LEARN_COLD_GAIN > octave->rate[octave->way]);
}

/* A run ends where it was due, and the next begins there. is_amid: messages moved then. */
static void ucp_learn_end_run(ucp_learn_octave_t *octave, size_t length, int is_amid)
{
    const uint64_t moved = ucs_min(octave->last_begun + octave->due_begun,
                                   octave->last_ended + octave->ended);
    const float rate     = (float)moved / (float)ucs_max(octave->last_ns + octave->due_ns, 1u);
    const int is_second  = (octave->runs == 1) && (octave->last_ns > 0); /* it corrects the first */

    if (is_second || (rate > octave->best)) {
        octave->best    = rate;
        octave->windows = (uint8_t)((octave->windows & ~(1u << octave->trial)) |
                                    ((unsigned)octave->is_window << octave->trial));
    }
    octave->is_window  = (uint8_t)is_amid;
    octave->moved     += octave->ended;
    octave->last_begun = is_amid ? octave->due_begun : 0;
    octave->last_ended = is_amid ? octave->ended : 0;
    octave->last_ns    = is_amid ? octave->due_ns : 0;
    octave->begun     -= octave->due_begun;
    octave->time_ns   -= octave->due_ns;
    octave->ended      = 0;
    octave->count      = 0;
    octave->is_due     = 0;
    if ((octave->runs == UCP_LEARN_RUNS - 1) && ucp_learn_is_cold(octave, length)) {
        return;
    }
    if ((++octave->runs == UCP_LEARN_RUNS) ||
        ((octave->runs > 1) && (moved >= UCP_LEARN_RUN_LONG))) {
        octave->runs = UCP_LEARN_RUNS;
        octave->left = 0;
    }
}

/* A message of the trial has ended while others of it only moved. */
static void ucp_learn_end_timed(ucp_learn_octave_t *octave, uint32_t serial, size_t length)
{
    const uint64_t now_ns = ucs_sys_clock_ns();
    const uint64_t passed = now_ns - octave->since_ns;
    const int is_at_once  = ((int32_t)(serial - octave->last) < 0) && /* it moved all the while */
                            (passed * UCP_LEARN_AT_ONCE < length);

    octave->last = octave->serial;
    if (octave->is_open && octave->is_due && !is_at_once) {
        ucp_learn_end_run(octave, length, 1);
        if (octave->runs == UCP_LEARN_RUNS) {
            return;
        }
    }
    if (!octave->is_open || ((octave->count == 0) && is_at_once)) {
        ucp_learn_open_run(octave, now_ns); /* what others have moved meanwhile does not count */
        return;
    }
    octave->time_ns += passed;
    octave->since_ns = now_ns;
    octave->ended   += length;
    ++octave->count;
    if ((int32_t)(serial - octave->first) >= 0) { /* it began in this run */
        octave->first  = octave->serial;
        octave->is_due = octave->is_due || (octave->count >= UCP_LEARN_RUN_MIN) ||
                         (octave->ended >= UCP_LEARN_RUN_BYTES);
    }
    if (octave->is_due) {
        octave->first     = octave->serial;
        octave->due_begun = octave->begun;
        octave->due_ns    = octave->time_ns;
        if (ucp_learn_num_under_way(octave) == 0) {
            ucp_learn_end_run(octave, length, 0);
        }
    }
}

void ucp_learn_end(ucp_learn_t *learn, const ucp_learn_turn_t *turn, size_t length)
{
    ucp_learn_octave_t *octave = &learn->octaves[turn->octave];

    --octave->under_way[turn->way];
    if (turn->is_alone) {
        ucp_learn_watch(octave, turn, length);
        return;
    }
    if (!turn->is_timed || (octave->phase != UCP_LEARN_TRIAL) ||
        (turn->number != octave->number) || (octave->runs == UCP_LEARN_RUNS)) {
        return;
    }
    if ((length == 0) || (ucp_learn_num_under_way(octave) != octave->under_way[turn->way])) {
        octave->is_open = 0;
        return;
    }
    ucp_learn_end_timed(octave, turn->serial, length);
}
