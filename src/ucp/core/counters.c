/* Halyard: what a worker has done: the names.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/counters.h>

static const char *const ucp_counter_names[] = {
    [UCP_COUNT_SENT_AT_ONCE]    = "sent_at_once",
    [UCP_COUNT_SENT_WHOLE]      = "sent_whole",
    [UCP_COUNT_SENT_IN_PLACE]   = "sent_in_place",
    [UCP_COUNT_ANNOUNCED]       = "announced",
    [UCP_COUNT_QUEUED]          = "queued",
    [UCP_COUNT_UNEXPECTED]      = "unexpected",
    [UCP_COUNT_READ]            = "read",
    [UCP_COUNT_READ_BY_BOTH]    = "read_by_both",
    [UCP_COUNT_WRITTEN]         = "written",
    [UCP_COUNT_READ_BY_NETWORK] = "read_by_network",
    [UCP_COUNT_READ_BY_DEVICE]  = "read_by_device",
    [UCP_COUNT_BY_MESSAGES]     = "by_messages",
    [UCP_COUNT_COPY_REFUSED]    = "copy_refused",
    [UCP_COUNT_PEERS_FAILED]    = "peers_failed",
    [UCP_COUNT_YIELDS]          = "yields",
    [UCP_COUNT_SLEEPS]          = "sleeps"
};

const ucs_counters_class_t ucp_counters_class = {"worker", UCP_COUNTERS, ucp_counter_names};
