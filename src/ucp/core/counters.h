/* Halyard: what a worker has done, in numbers.
 *
 * Shown by ucp_worker_print_info, by contrib/halyard-gdb.py, and where UCX_STATS_DEST says when the
 * worker is destroyed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_COUNTERS_H
#define UCP_CORE_COUNTERS_H

#include <ucs/stats/counters.h>

/* Tagged and active messages and those of streams, if nothing else is said. */
typedef enum {
    UCP_COUNT_SENT_AT_ONCE,     /* within the call, without a request */
    UCP_COUNT_SENT_WHOLE,       /* by a request, copied, */
    UCP_COUNT_SENT_IN_PLACE,    /* or from where they lie */
    UCP_COUNT_ANNOUNCED,        /* for rendezvous */
    UCP_COUNT_QUEUED,           /* because their lane had no room */
    UCP_COUNT_UNEXPECTED,       /* tagged ones, whole or announced, that no receive waited for */
    UCP_COUNT_READ,             /* announced ones that the receiver copied here, */
    UCP_COUNT_READ_BY_BOTH,     /* both sides, each a part, */
    UCP_COUNT_WRITTEN,          /* the sender, */
    UCP_COUNT_READ_BY_NETWORK,  /* the network's adapter, */
    UCP_COUNT_READ_BY_DEVICE,   /* a device; */
    UCP_COUNT_BY_MESSAGES,      /* or that came as messages */
    UCP_COUNT_COPY_REFUSED,     /* peers to whom the kernel forbids copies */
    UCP_COUNT_PEERS_FAILED,
    UCP_COUNT_YIELDS,           /* of the processor, by progress in vain */
    UCP_COUNT_SLEEPS,           /* likewise */
    UCP_COUNTERS
} ucp_counter_t;

extern const ucs_counters_class_t ucp_counters_class;

#endif
