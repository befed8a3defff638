/* Halyard: wire-up: a worker's door.
 *
 * Where nobody says whether all of a job is on one node, a worker's address does not tell of its
 * network, which takes long to load, but of its door: a TCP socket that tells whoever comes an
 * address that does (UCP_WIRE_CONN_ACCEPT). Only then the network is opened. In the address:
 *   entry "door": u16 port, then for each place u8 4 or 16, and that many bytes of an address of
 *   IPv4 or IPv6, in the network's order
 * Who makes an endpoint there, and does not reach it by memory, tries all places at once, and takes
 * the worker of the right identity; what is sent meanwhile waits on a provisional peer
 * (core/provisional.h). Called with the worker's lock.
 *
 * Not for workers of puts and gets where a network's devices carry these out (ucp_net_has_rdma):
 * the keys of their memory have to tell of its registration, and may be packed before anybody asks.
 * Elsewhere keys that do not tell of it lead to messages, which take as long over TCP as the
 * writes and reads of its providers do (up to 1 MiB as measured).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIREUP_DOOR_H
#define UCP_WIREUP_DOOR_H

#include <ucp/wire/address.h>
#include <ucp/wireup/sockaddr.h>

/* 1: the worker's door is open, by this call or an earlier one, or its network is, or there is none
 * to be opened; takes the lock. 0: there can be no door: no socket, no address that other nodes
 * could reach, or keys are to be packed. */
int ucp_door_open(ucp_worker_t *worker);

/* What addresses tell of it. */
ucp_address_entry_t ucp_door_entry(ucp_listener_h door);

/* Does an address lead to a door? */
int ucp_door_is_in(const ucp_address_info_t *address);

/* Does an address, of a worker that is not near, lead to its door only, and have we a network? */
int ucp_door_is_needed(const ucp_worker_t *worker, const ucp_address_info_t *address);

/* Goes there for the address of the worker that `sought`, a provisional peer, waits for: one seeker
 * (ucp_conn_t) to each place. ucp_successor_found is called, or `sought` fails with the last of
 * them. UCS_ERR_BUSY: so many are under way that it is to be tried again once some have ended,
 * which rouses those that wait. Other errors are logged. */
ucs_status_t ucp_door_knock(ucp_peer_t *sought, const ucp_address_info_t *address);

/* A seeker's place has told an address, if the status says so; or it has led nowhere, and the
 * seeker ends. */
void ucp_door_found(ucp_conn_t *seeker, const ucp_address_info_t *info, ucs_status_t status);
void ucp_door_in_vain(ucp_conn_t *seeker, ucs_status_t status);

/* Ends the seekers of such a peer, without a word. */
void ucp_door_leave(ucp_peer_t *sought);

/* Somebody has come to the door, by this descriptor, and wants one thing: is told at once, so that
 * nobody has to be waited for. */
void ucp_door_tell(ucp_worker_t *worker, int fd);

#endif
