/* Halyard: wire-up: which transport serves which role towards a peer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIREUP_LANES_H
#define UCP_WIREUP_LANES_H

#include <ucp/core/peer.h>

/* Opens the best lane for each role of the table and sets peer->proto. No system call, no waiting.
 * UCS_ERR_UNREACHABLE where a role that is required has no lane; says why each candidate is out
 * (one line at error level). The caller closes what was opened. */
ucs_status_t ucp_lanes_open(ucp_peer_t *peer, const ucp_address_info_t *address);

/* Is the worker of an address reached without a network? */
int ucp_lanes_are_near(const ucp_worker_t *worker, const ucp_address_info_t *address);

/* Could we reach it over a network, did its address tell of one that we have? */
int ucp_lanes_lack_net(const ucp_worker_t *worker, const ucp_address_info_t *address);

/* For a peer that is not known yet: a lane that holds everything back, and thresholds that are
 * right for whatever lanes will follow: it stands for the transport with the shortest messages.
 * UCS_ERR_NO_DEVICE: no transport has messages. */
ucs_status_t ucp_lanes_open_nowhere(ucp_peer_t *peer);

/* Sets peer->proto anew after a lane was given up. */
ucs_status_t ucp_lanes_update_proto(ucp_peer_t *peer);

#endif
