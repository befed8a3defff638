/* Halyard: sleeping until something happens: one descriptor a worker for all of its interfaces.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_WAKEUP_H
#define UCP_CORE_WAKEUP_H

#include <ucp/core/worker.h>

/* Closes what get_efd and wait opened. */
void ucp_wakeup_cleanup(ucp_worker_t *worker);

#endif
