/* Halyard: wire-up: when a worker opens its way to other nodes.
 *
 * Libraries of networks take long to load (libfabric 1.17 of Debian: 0.3 s), so an interface of the
 * kind NET is opened when somebody on another node may need it: with the first address that is to
 * lead there, or with the first peer that cannot be reached otherwise.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIREUP_NET_H
#define UCP_WIREUP_NET_H

#include <ucp/core/worker.h>
#include <sys/socket.h>

/* Opens those that are not open, but for such as there are none of here; takes the worker's lock
 * and may take long. Returns 1 if there is one now that was not there before. */
int ucp_net_open(ucp_worker_t *worker);

/* Is the worker's address to lead from other nodes even to those that are near? Where the user says
 * so (UCX_NET_ADDRESS), or nothing else carries messages. */
int ucp_net_is_needed(const ucp_worker_t *worker);

typedef enum {
    UCP_NET_UNWANTED, /* the user or the launcher says that all are here */
    UCP_NET_UNKNOWN,
    UCP_NET_NEEDED    /* as above, or the launcher says that some are elsewhere */
} ucp_net_need_t;

/* And to those of whom nothing is known? */
ucp_net_need_t ucp_net_need(const ucp_worker_t *worker);

/* Has the kernel networks whose devices read and write memory by themselves (verbs and what
 * libfabric counts among them, EFA, Omni-Path, Slingshot)? */
int ucp_net_has_rdma(void);

/* Do the two ends of a socket lie on one host, for all that their addresses tell? */
int ucp_net_is_local(const struct sockaddr_storage *local, const struct sockaddr_storage *remote);

#endif
