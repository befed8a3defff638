/* Halyard: timer wheel.
 *
 * A hierarchical wheel over time that the caller gives (there is no clock in here), for any 64-bit
 * deadline: each level has 32 slots, a level's slot spans all of the level below, and 13 levels
 * cover every tick. Adding and cancelling take constant time; a timer is moved down at most once a
 * level. Timers are intrusive and owned by the caller: nothing is allocated, nothing fails.
 * Not thread-safe; never blocks. Scheme: Varghese and Lauck, "Hashed and Hierarchical Timing
 * Wheels", SOSP 1987.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_EVENT_TIMER_WHEEL_H
#define UCS_EVENT_TIMER_WHEEL_H

#include <ucs/ds/list.h>
#include <ucs/sys/compiler.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UCS_TIMER_WHEEL_LEVEL_BITS 5
#define UCS_TIMER_WHEEL_SLOTS      (1u << UCS_TIMER_WHEEL_LEVEL_BITS)
#define UCS_TIMER_WHEEL_LEVELS     13

typedef struct ucs_timer ucs_timer_t;
typedef struct ucs_timer_wheel ucs_timer_wheel_t;

/* The timer, no longer active, may be added again or freed; any other timer of the wheel may be
 * added or cancelled. 'now_ns' is the time given to advance. */
typedef void (*ucs_timer_cb_t)(ucs_timer_wheel_t *wheel, ucs_timer_t *timer, uint64_t now_ns);

struct ucs_timer {
    ucs_list_link_t list;
    ucs_timer_cb_t cb;
    uint64_t tick; /* first tick at which it may fire */
    int place;     /* level and slot, or one of the internal states */
};

struct ucs_timer_wheel {
    uint64_t tick;           /* all ticks up to this one have been served */
    unsigned tick_shift;     /* log2 of a tick's length in ns */
    unsigned num_timers;     /* active ones */
    int is_advancing;
    ucs_list_link_t due;     /* added with a deadline already past */
    ucs_list_link_t expired; /* about to be called by the present advance */
    /* which slots are not empty */
    uint32_t used[UCS_TIMER_WHEEL_LEVELS];
    ucs_list_link_t slots[UCS_TIMER_WHEEL_LEVELS][UCS_TIMER_WHEEL_SLOTS];
};

/* Start at time 'now_ns'. A tick is 'resolution_ns', at least 1, rounded down to a power of two. */
void ucs_timer_wheel_init(ucs_timer_wheel_t *wheel, uint64_t now_ns, uint64_t resolution_ns);

/* Prepare a timer that is not active. */
void ucs_timer_init(ucs_timer_t *timer, ucs_timer_cb_t cb);

/* True from adding until the callback is entered or the timer is cancelled. */
int ucs_timer_is_active(const ucs_timer_t *timer);

/* Let the timer fire in the first advance whose time is 'deadline_ns' or at most one tick later,
 * never earlier, and once. An active timer is moved to the new deadline. A deadline not after the
 * wheel's present tick fires in the next advance, whatever its time; from within a callback that is
 * the next one too. */
void ucs_timer_wheel_add(ucs_timer_wheel_t *wheel, ucs_timer_t *timer, uint64_t deadline_ns);

/* Stop a timer. Returns whether it was active; if not, nothing happens. */
int ucs_timer_wheel_cancel(ucs_timer_wheel_t *wheel, ucs_timer_t *timer);

/* Call all timers that are due at 'now_ns', in the order of their ticks. Time that runs backwards
 * counts as standing still. Returns the number of callbacks; 0 when called from a callback. */
unsigned ucs_timer_wheel_advance(ucs_timer_wheel_t *wheel, uint64_t now_ns);

/* The earliest time at which advance will call a timer: not after the wheel's present time if one
 * is due, UINT64_MAX if there is none. An advance before that time calls nothing. Looks through the
 * timers of one slot: to be used before sleeping, not while polling. */
uint64_t ucs_timer_wheel_next_expiry(const ucs_timer_wheel_t *wheel);

/* True when no timer is active. */
UCS_INLINE int ucs_timer_wheel_is_empty(const ucs_timer_wheel_t *wheel)
{
    return wheel->num_timers == 0;
}

#ifdef __cplusplus
}
#endif

#endif
