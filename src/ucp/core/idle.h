/* Halyard: idle: what progress does when it finds nothing to do.
 *
 * While there is a processor for everybody, nothing: whoever waits polls, and the next message is
 * seen at once. With more processes than processors a process that polls keeps another one from
 * running, often the one whose message it waits for. So it gives its processor away after a few
 * calls in vain (a turn), and when it has done so in vain for a while, it sleeps until something
 * comes.
 *
 * Sleeping also puts the processes in order: the scheduler lets a process that was woken run after
 * the one that woke it, so that processes which take turns find themselves queued in the order in
 * which messages go from one to the next, and a message costs one change of processes instead of
 * half a round of all of them. From then on they only yield.
 *
 * Who shares a processor is found out without a call on the path of messages:
 *
 *   alone   a turn is UCP_IDLE_ALONE_CALLS calls in vain, whatever came between them, and does no
 *           more than read the clock. If they took so long that another thread may have run
 *           meanwhile, and the kernel says that one did: shared, with more processes than
 *           processors, else crowded (ucp_idle_t). An application that yields by itself, as MPI
 *           libraries do, seldom makes many calls in vain one after the other
 *   shared  a turn is UCP_IDLE_SHARED_CALLS calls in vain. If yields let nobody else run for a
 *           while: no sleep, and a turn is UCP_IDLE_AWAKE_CALLS; if for long: alone. If one takes
 *           as long as a slice, somebody else is busy there: we sleep at once for a while. In a
 *           process with several workers a turn is UCP_IDLE_TURNS_CALLS: Open MPI progresses that
 *           of its windows once in 100 calls for that of its messages, so a peer's atomic waited
 *           for 12 rounds of all processes
 *
 * Calls that come slowly show that the application does something useful between them, and are no
 * turn. No wake-up is lost: sleeping is what ucp_worker_arm and a poll of the descriptors are; who
 * sends after the arming finds it and writes to a socket that is polled, what came before keeps arm
 * from succeeding. And a sleep ends after UCP_IDLE_SLEEP_MS, since the application may wait for
 * other things too, or for nothing, and after several that ended so the next one is put off; where
 * the former is known it only yields (UCX_IDLE=sleep: all the same): memory that
 * is shared with peers, who store there without a word, and further workers of the process.
 *
 * Threads: in mode MULTI a worker never sleeps, because the sends of other threads may need
 * progress, and yields without the lock; in mode SERIALIZED it sleeps while the process has one
 * thread, because the application's lock may be held.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_IDLE_H
#define UCP_CORE_IDLE_H

#include <ucp/core/worker.h>

typedef enum {
    UCP_IDLE_NOTHING,
    UCP_IDLE_GIVE_AWAY,
    UCP_IDLE_DOZE
} ucp_idle_action_t;

#define UCP_IDLE_ALONE_CALLS  1024 /* powers of two */
#define UCP_IDLE_SHARED_CALLS 8
#define UCP_IDLE_TURNS_CALLS  128
#define UCP_IDLE_AWAKE_CALLS  256

void ucp_idle_init(ucp_worker_t *worker);

/* One worker of the process more or less. Any thread. */
void ucp_idle_count_workers(int change);

/* What to do in this turn. With the worker's lock held; a system call once in a while. */
ucp_idle_action_t ucp_idle_choose(ucp_worker_t *worker);

/* Chooses and does it: may give the processor away or sleep. Without a lock. */
void ucp_idle_turn(ucp_worker_t *worker);

/* Do more processes than processors want to run, as far as is known or UCX_IDLE says? */
UCS_INLINE int ucp_idle_is_shared(const ucp_worker_t *worker)
{
    return worker->idle.mask != UCP_IDLE_ALONE_CALLS - 1;
}

/* Takes note of a progress that did `count` things; true if it was the last in vain of a turn. */
UCS_INLINE int ucp_idle_is_turn(ucp_worker_t *worker, unsigned count)
{
    if (count > 0) {
        if (ucp_idle_is_shared(worker)) {
            worker->idle.calls = 0;
        }
        return 0;
    }
    return (++worker->idle.calls & worker->idle.mask) == 0;
}

#endif
