/* Halyard: timer wheel.
 *
 * A tick is read as 13 digits of 5 bits. A timer lies at the level of the highest digit in which
 * its tick differs from the wheel's, in the slot of that digit. Hence at each level all timers lie
 * in slots after the wheel's own digit, the lowest level that has any holds the earliest, and its
 * first used slot is the next event: nothing is searched slot by slot.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/event/timer_wheel.h>

#include <ucs/debug/assert.h>

/* Values of 'place' of timers that are in no slot. */
enum {
    UCS_TIMER_INACTIVE = -2,
    UCS_TIMER_LISTED   = -1 /* on 'due' or 'expired' */
};

void ucs_timer_wheel_init(ucs_timer_wheel_t *wheel, uint64_t now_ns, uint64_t resolution_ns)
{
    unsigned level, slot;

    ucs_assert(resolution_ns > 0);

    wheel->tick_shift   = ucs_ilog2(resolution_ns);
    wheel->tick         = now_ns >> wheel->tick_shift;
    wheel->num_timers   = 0;
    wheel->is_advancing = 0;
    ucs_list_head_init(&wheel->due);
    ucs_list_head_init(&wheel->expired);
    for (level = 0; level < UCS_TIMER_WHEEL_LEVELS; ++level) {
        wheel->used[level] = 0;
        for (slot = 0; slot < UCS_TIMER_WHEEL_SLOTS; ++slot) {
            ucs_list_head_init(&wheel->slots[level][slot]);
        }
    }
}

void ucs_timer_init(ucs_timer_t *timer, ucs_timer_cb_t cb)
{
    ucs_list_head_init(&timer->list);
    timer->cb    = cb;
    timer->tick  = 0;
    timer->place = UCS_TIMER_INACTIVE;
}

int ucs_timer_is_active(const ucs_timer_t *timer)
{
    return timer->place != UCS_TIMER_INACTIVE;
}

/* Put a timer, on no list, where it belongs; if its tick has come, at the end of 'past'. */
static void ucs_timer_wheel_place(ucs_timer_wheel_t *wheel, ucs_timer_t *timer,
                                  ucs_list_link_t *past)
{
    unsigned level, slot;

    if (timer->tick <= wheel->tick) {
        timer->place = UCS_TIMER_LISTED;
        ucs_list_add_tail(past, &timer->list);
        return;
    }

    level = ucs_ilog2(timer->tick ^ wheel->tick) / UCS_TIMER_WHEEL_LEVEL_BITS;
    slot  = (timer->tick >> (level * UCS_TIMER_WHEEL_LEVEL_BITS)) % UCS_TIMER_WHEEL_SLOTS;
    wheel->used[level] |= 1u << slot;
    timer->place        = (int)(level * UCS_TIMER_WHEEL_SLOTS + slot);
    ucs_list_add_tail(&wheel->slots[level][slot], &timer->list);
}

void ucs_timer_wheel_add(ucs_timer_wheel_t *wheel, ucs_timer_t *timer, uint64_t deadline_ns)
{
    uint64_t tick_mask = ((uint64_t)1 << wheel->tick_shift) - 1;

    (void)ucs_timer_wheel_cancel(wheel, timer);
    timer->tick = (deadline_ns >> wheel->tick_shift) + ((deadline_ns & tick_mask) != 0);
    ucs_timer_wheel_place(wheel, timer, &wheel->due);
    ++wheel->num_timers;
}

int ucs_timer_wheel_cancel(ucs_timer_wheel_t *wheel, ucs_timer_t *timer)
{
    unsigned level, slot;

    if (timer->place == UCS_TIMER_INACTIVE) {
        return 0;
    }

    ucs_list_del(&timer->list);
    if (timer->place != UCS_TIMER_LISTED) {
        level = (unsigned)timer->place / UCS_TIMER_WHEEL_SLOTS;
        slot  = (unsigned)timer->place % UCS_TIMER_WHEEL_SLOTS;
        if (ucs_list_is_empty(&wheel->slots[level][slot])) {
            wheel->used[level] &= ~(1u << slot);
        }
    }
    timer->place = UCS_TIMER_INACTIVE;
    ucs_assert(wheel->num_timers > 0);
    --wheel->num_timers;
    return 1;
}

/* Find the slot of the next event. Returns 0 if all slots are empty. */
static int ucs_timer_wheel_first_slot(const ucs_timer_wheel_t *wheel, unsigned *level_p,
                                      unsigned *slot_p)
{
    unsigned level;

    for (level = 0; level < UCS_TIMER_WHEEL_LEVELS; ++level) {
        if (wheel->used[level] != 0) {
            *level_p = level;
            *slot_p  = (unsigned)__builtin_ctz(wheel->used[level]);
            return 1;
        }
    }
    return 0;
}

/* The first tick that a slot covers. */
static uint64_t ucs_timer_wheel_slot_tick(const ucs_timer_wheel_t *wheel, unsigned level,
                                          unsigned slot)
{
    unsigned shift       = level * UCS_TIMER_WHEEL_LEVEL_BITS;
    unsigned upper_shift = shift + UCS_TIMER_WHEEL_LEVEL_BITS;
    uint64_t upper       = 0;

    if (upper_shift < 64) {
        upper = wheel->tick >> upper_shift << upper_shift;
    }
    return upper | ((uint64_t)slot << shift);
}

/* Move the wheel to 'tick' and what expires on the way to 'expired'. */
static void ucs_timer_wheel_turn(ucs_timer_wheel_t *wheel, uint64_t tick)
{
    ucs_list_link_t timers;
    uint64_t slot_tick;
    unsigned level, slot;

    ucs_list_head_init(&timers);
    while (ucs_timer_wheel_first_slot(wheel, &level, &slot)) {
        slot_tick = ucs_timer_wheel_slot_tick(wheel, level, slot);
        if (slot_tick > tick) {
            break;
        }

        ucs_assert(slot_tick > wheel->tick);
        wheel->tick         = slot_tick;
        wheel->used[level] &= ~(1u << slot);
        ucs_list_splice_tail(&timers, &wheel->slots[level][slot]);
        while (!ucs_list_is_empty(&timers)) {
            ucs_timer_wheel_place(wheel, ucs_list_extract_head(&timers, ucs_timer_t, list),
                                  &wheel->expired);
        }
    }
    wheel->tick = tick;
}

unsigned ucs_timer_wheel_advance(ucs_timer_wheel_t *wheel, uint64_t now_ns)
{
    uint64_t tick  = now_ns >> wheel->tick_shift;
    unsigned count = 0;
    ucs_timer_t *timer;

    if (wheel->is_advancing) {
        return 0;
    }

    wheel->is_advancing = 1;
    ucs_list_splice_tail(&wheel->expired, &wheel->due);
    if (tick > wheel->tick) {
        ucs_timer_wheel_turn(wheel, tick);
    }

    while (!ucs_list_is_empty(&wheel->expired)) {
        timer = ucs_list_head(&wheel->expired, ucs_timer_t, list);
        (void)ucs_timer_wheel_cancel(wheel, timer);
        ++count;
        timer->cb(wheel, timer, now_ns);
    }
    wheel->is_advancing = 0;
    return count;
}

uint64_t ucs_timer_wheel_next_expiry(const ucs_timer_wheel_t *wheel)
{
    uint64_t tick = UINT64_MAX;
    const ucs_timer_t *timer;
    unsigned level, slot;

    if (!ucs_list_is_empty(&wheel->due) || !ucs_list_is_empty(&wheel->expired)) {
        tick = wheel->tick;
    } else if (ucs_timer_wheel_first_slot(wheel, &level, &slot)) {
        ucs_list_for_each(timer, &wheel->slots[level][slot], list) {
            tick = ucs_min(tick, timer->tick);
        }
    }

    return (tick > (UINT64_MAX >> wheel->tick_shift)) ? UINT64_MAX : tick << wheel->tick_shift;
}
