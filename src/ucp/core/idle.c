/* Halyard: idle: giving the processor away; see idle.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/idle.h>
#include <ucp/core/mem.h>
#include <ucp/core/wakeup.h>
#include <ucs/sys/sys.h>

/* Turns and time of yielding before the first sleep; the later turns alternate, to see who else
 * runs. The time is that of a few yields of processes that take turns at one processor: to wake one
 * that sleeps takes as long as ten of them, or fifty where its processor has begun to sleep too. */
#define UCP_IDLE_YIELDS   2
#define UCP_IDLE_YIELD_NS 30000u

#define UCP_IDLE_SLEEP_MS 1

/* Less than the shortest time for which a scheduler gives a processor to another thread that keeps
 * it, more than the calls of a turn take. */
#define UCP_IDLE_LOST_NS 500000

/* Each call of a shared turn takes longer: the application is busy between them. */
#define UCP_IDLE_BUSY_NS 2000u

/* Yields from one look at whether they let somebody run to the next. When they have not done so for
 * a millisecond, we do not sleep, and seldom yield, until one does: our processor would sleep with
 * us, and takes long to wake (a token ring of 16 processes on two: 15 us a hop in most runs, else
 * 5). Only much later the processor counts as ours again: the kernel moves processes to one that
 * has few by and by, and who polls without yielding keeps them out for slices (8 processes of MPICH
 * on two processors, small collectives: five times as long with a millisecond for both). */
#define UCP_IDLE_LOOK_YIELDS 256
#define UCP_IDLE_AWAKE_NS    1000000u
#define UCP_IDLE_ALONE_NS    100000000u

/* A yield that takes as long as a slice shows that somebody runs here who keeps the processor: who
 * yields waits for his slices, who sleeps is let in when he is woken. So for a while we sleep at
 * once; for longer each time that this is found again, and less after yields that were short (two
 * busy programs on two processors: a token ring of 16 processes 300 us a hop, now 37; small
 * collectives of 8 and 16 of MPICH 3.5 and 6.4 s, now 2.4 and 5.8). The turns of many peers take
 * long, too (32 on two processors, scatter of 16 KiB 85 us, 250 if they count as a slice). */
#define UCP_IDLE_TURN_NS       100000u /* of a peer that moves messages and yields */
#define UCP_IDLE_LOADED_MIN_NS 2000000u
#define UCP_IDLE_LOADED_MAX_NS 64000000u

/* A sleep in which nothing comes: the wait is long, or there is none, and the application only
 * looks for messages between short pieces of work, 1 ms for every few looks (a look 70 us instead
 * of 1; MP2 of NWChem, three processes on two processors, five times as long). The calls are the
 * same. So after such a sleep we only yield for a while, for twice as long each time, which begins
 * to count after about ten in a row: a ring that somebody busy has made slow must find back. */
#define UCP_IDLE_WARY_MIN_NS 2000u
#define UCP_IDLE_WARY_MAX_NS 64000000u

static _Atomic int ucp_idle_workers; /* of the process */

static ucp_idle_mode_t ucp_idle_mode(const ucp_worker_t *worker)
{
    return (ucp_idle_mode_t)worker->context->options.idle;
}

static int ucp_idle_has_other_workers(void)
{
    return atomic_load_explicit(&ucp_idle_workers, memory_order_relaxed) > 1;
}

static unsigned ucp_idle_shared_mask(const ucp_idle_t *idle)
{
    return (idle->is_awake               ? UCP_IDLE_AWAKE_CALLS :
            ucp_idle_has_other_workers() ? UCP_IDLE_TURNS_CALLS :
                                           UCP_IDLE_SHARED_CALLS) - 1;
}

void ucp_idle_init(ucp_worker_t *worker)
{
    ucp_idle_t *idle = &worker->idle;

    idle->mask = (ucp_idle_mode(worker) >= UCP_IDLE_YIELD) ? ucp_idle_shared_mask(idle) :
                 UCP_IDLE_ALONE_CALLS - 1;
    idle->last_ns = ucs_sys_clock_ns();
    idle->lost    = ucs_sys_lost_turns();
    ucp_idle_count_workers(1);
}

void ucp_idle_count_workers(int change)
{
    (void)atomic_fetch_add_explicit(&ucp_idle_workers, change, memory_order_relaxed);
}

/* Whether others have had our processor since the last time that this was asked. */
static int ucp_idle_was_shared(ucp_idle_t *idle)
{
    const uint64_t lost   = ucs_sys_lost_turns();
    const uint64_t before = idle->lost;

    idle->lost = lost;
    return lost != before;
}

/* This process and the peers that run on its processors. */
static unsigned ucp_idle_num_rivals(const ucp_worker_t *worker)
{
    unsigned count = 1;
    uct_iface_t *iface;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        if ((iface != NULL) && (iface->tl->iface.num_rivals != NULL)) {
            count += iface->tl->iface.num_rivals(iface);
        }
    }
    return count;
}

/* Not where something may come that wakes nobody: what peers store into memory that is shared with
 * them, and what comes for another worker, which the application may progress in turn. */
static int ucp_idle_may_sleep(const ucp_worker_t *worker)
{
    return (ucp_idle_mode(worker) != UCP_IDLE_YIELD) &&
           ((ucp_idle_mode(worker) == UCP_IDLE_SLEEP) ||
            (!ucp_idle_has_other_workers() && (ucp_mem_num_shared() == 0))) &&
           ((worker->thread_mode == UCS_THREAD_MODE_SINGLE) ||
            ucs_sys_is_single_threaded());
}

static void ucp_idle_alone_turn(ucp_worker_t *worker, uint64_t passed_ns)
{
    ucp_idle_t *idle = &worker->idle;

    if ((ucp_idle_mode(worker) == UCP_IDLE_POLL) || (passed_ns < UCP_IDLE_LOST_NS) ||
        !ucp_idle_was_shared(idle)) {
        idle->is_crowded = idle->is_crowded &&
                           (idle->last_ns - idle->lost_ns < UCP_IDLE_ALONE_NS);
        return;
    }
    idle->lost_ns    = idle->last_ns;
    idle->is_crowded = 1;
    if (ucp_idle_num_rivals(worker) <= ucs_sys_num_cpus()) {
        return;
    }
    idle->is_awake = 0;
    idle->mask     = ucp_idle_shared_mask(idle);
    idle->calls    = 0;
    idle->yields   = 0;
}

/* Looks at whether yields let somebody run. True: the processor counts as ours again. */
static int ucp_idle_look(ucp_idle_t *idle)
{
    if (ucp_idle_was_shared(idle)) {
        idle->lost_ns  = idle->last_ns;
        idle->is_awake = 0;
        return 0;
    }
    idle->is_awake = (idle->last_ns - idle->lost_ns > UCP_IDLE_AWAKE_NS);
    return idle->last_ns - idle->lost_ns > UCP_IDLE_ALONE_NS;
}

static int ucp_idle_is_loaded(const ucp_idle_t *idle)
{
    return idle->last_ns - idle->slice_ns < idle->loaded_ns;
}

static int ucp_idle_is_wary(const ucp_worker_t *worker)
{
    const ucp_idle_t *idle = &worker->idle;

    return (ucp_idle_mode(worker) != UCP_IDLE_SLEEP) &&
           (idle->last_ns - idle->woke_ns < idle->wary_ns);
}

ucp_idle_action_t ucp_idle_choose(ucp_worker_t *worker)
{
    ucp_idle_t *idle         = &worker->idle;
    const uint64_t now       = ucs_sys_clock_ns();
    const uint64_t passed_ns = now - idle->last_ns;
    const unsigned turn      = idle->calls / (idle->mask + 1);
    int is_busy;

    idle->last_ns = now;
    if (!ucp_idle_is_shared(worker)) {
        ucp_idle_alone_turn(worker, passed_ns);
        return UCP_IDLE_NOTHING;
    }
    if (turn <= 1) {
        idle->since_ns = now;
    }
    is_busy    = (passed_ns > UCP_IDLE_BUSY_NS * (idle->mask + 1));
    idle->mask = ucp_idle_shared_mask(idle); /* another worker may have come or gone */
    if (is_busy) {
        return UCP_IDLE_NOTHING;
    }
    if ((ucp_idle_is_loaded(idle) ||
         ((turn > UCP_IDLE_YIELDS) && ((turn % 2) != 0) &&
          (now - idle->since_ns > UCP_IDLE_YIELD_NS) && !idle->is_awake &&
          !ucp_idle_is_wary(worker))) &&
        ucp_idle_may_sleep(worker)) {
        return UCP_IDLE_DOZE;
    }
    if ((idle->is_awake || ((++idle->yields % UCP_IDLE_LOOK_YIELDS) == 0)) &&
        (ucp_idle_mode(worker) == UCP_IDLE_AUTO) && ucp_idle_look(idle)) {
        idle->mask = UCP_IDLE_ALONE_CALLS - 1;
        return UCP_IDLE_NOTHING;
    }
    return UCP_IDLE_GIVE_AWAY;
}

/* Has a yield taken longer than the turns of all peers that share our processor? */
static int ucp_idle_lost_slice(const ucp_worker_t *worker, uint64_t passed_ns)
{
    uint64_t turns_ns;

    if (ucs_likely(passed_ns <= UCP_IDLE_LOST_NS)) {
        return 0;
    }
    turns_ns = (uint64_t)ucp_idle_num_rivals(worker) * UCP_IDLE_TURN_NS / ucs_sys_num_cpus();
    return passed_ns > UCP_IDLE_LOST_NS + turns_ns;
}

static void ucp_idle_yielded(ucp_worker_t *worker, uint64_t now)
{
    ucp_idle_t *idle = &worker->idle;

    if (ucs_unlikely(ucp_idle_lost_slice(worker, now - idle->last_ns))) {
        idle->slice_ns  = now;
        idle->loaded_ns = ucs_min(ucs_max(2 * idle->loaded_ns, UCP_IDLE_LOADED_MIN_NS),
                                  UCP_IDLE_LOADED_MAX_NS);
    } else {
        idle->loaded_ns -= idle->loaded_ns / 16;
    }
}

static void ucp_idle_slept(ucp_idle_t *idle, uint64_t now, ucs_status_t status)
{
    if (status == UCS_ERR_TIMED_OUT) {
        idle->woke_ns = now;
        idle->wary_ns = ucs_min(ucs_max(2 * idle->wary_ns, UCP_IDLE_WARY_MIN_NS),
                                UCP_IDLE_WARY_MAX_NS);
    } else {
        idle->wary_ns = 0;
    }
}

void ucp_idle_turn(ucp_worker_t *worker)
{
    const ucp_idle_action_t action = ucp_idle_choose(worker);
    ucs_status_t status            = UCS_ERR_BUSY;
    uint64_t now;

    if (action == UCP_IDLE_NOTHING) {
        return;
    }
    if (action == UCP_IDLE_DOZE) {
        status = ucp_wakeup_doze(worker, UCP_IDLE_SLEEP_MS);
    }
    if (status == UCS_ERR_BUSY) {
        ucp_worker_count(worker, UCP_COUNT_YIELDS);
        ucs_sys_sched_yield();
    } else {
        ucp_worker_count(worker, UCP_COUNT_SLEEPS);
    }
    now = ucs_sys_clock_ns();
    if (action == UCP_IDLE_GIVE_AWAY) {
        ucp_idle_yielded(worker, now);
    } else if (status != UCS_ERR_BUSY) {
        ucp_idle_slept(&worker->idle, now, status);
    }
    worker->idle.last_ns = now;
}
