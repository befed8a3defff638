/* Halyard: sleeping until something happens: one descriptor a worker for all of its interfaces.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_WAKEUP_H
#define UCP_CORE_WAKEUP_H

#include <ucp/core/worker.h>

/* Opens the worker's descriptors, where its context has UCP_FEATURE_WAKEUP. */
ucs_status_t ucp_wakeup_open(ucp_worker_t *worker);

/* Do messages lie here that progress has not looked at yet? */
int ucp_wakeup_has_come(const ucp_worker_t *worker);

/* Progress has found something, for the first time since the user armed the worker. */
void ucp_wakeup_found(ucp_worker_t *worker);

/* Something has happened since the user armed the worker: its descriptor stays readable until it is
 * armed again. Programs (RAPIDS' UCXX) make progress whenever it is readable, and only then, and
 * arm once. */
void ucp_wakeup_hold(ucp_worker_t *worker);

/* Something waits for progress that no event announces: who sleeps would not look. */
UCS_INLINE void ucp_wakeup_rouse(ucp_worker_t *worker)
{
    if (ucs_unlikely(worker->is_armed)) {
        ucp_wakeup_hold(worker);
    }
}

/* Adds to, takes from what the worker's descriptor covers; no effect where it is not open. */
ucs_status_t ucp_wakeup_add(ucp_worker_t *worker, int fd);
ucs_status_t ucp_wakeup_add_iface(ucp_worker_t *worker, uct_iface_t *iface);
void ucp_wakeup_del(ucp_worker_t *worker, int fd);

/* Closes what was opened. */
void ucp_wakeup_cleanup(ucp_worker_t *worker);

/* Sleeps until an interface has something to do, ucp_worker_signal was called or the time is over.
 * UCS_ERR_TIMED_OUT: the time is over. UCS_ERR_BUSY: there is something to do, or nothing to sleep
 * on. Takes no lock and leaves what the user asked of ucp_worker_arm in force or fulfilled. */
ucs_status_t ucp_wakeup_doze(ucp_worker_t *worker, int timeout_ms);

#endif
