/* Halyard: reads and writes of a peer's memory that a network makes by itself: what rendezvous
 * (rndv_read.c), puts and gets (ops/rma.c) have in common.
 *
 * The lane for messages carries them, a part at a time; the buffer of the request is registered for
 * as long as the request lasts, unless the user lends a registration of it. A request that ends
 * early while a part is under way ends when that has ended, since until then its buffer is used.
 *
 * Rails: where further devices of the network lead to the peer, each carries a share of a part that
 * is read. A lane of them is connected by the first part that it could have carried, and used once
 * it is: that proves that it leads to the peer. A share that fails is read again by the lane for
 * messages, with all of its part. Writes do not use them: one that has failed by one device might
 * still arrive, behind what was written later by another.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_RDMA_H
#define UCP_PROTOS_RDMA_H

#include <ucp/core/mem.h>
#include <ucp/core/peer.h>
#include <ucp/core/request.h>
#include <ucp/wire/wire.h>

/* Registers the request's buffer: for the peer to read (is_remote), or for parts; with the rails
 * too. own: what the user has mapped that holds it, which spares that, or NULL. 0: it is refused;
 * 1: the request holds UCP_REQUEST_HOLDS_MEM, with no key yet. */
int ucp_rdma_register(ucp_request_t *req, const ucp_peer_t *peer, const ucp_mem_t *own,
                      size_t length, int is_remote);

/* Does the network reach both buffers? What the host has it does. */
int ucp_rdma_reaches(const ucp_request_t *req, const ucp_peer_t *peer, int peer_has_device);

/* Keys of what is registered with rails for the peer to read; returns a bit for each. */
uint32_t ucp_rdma_pack_rails(const ucp_request_t *req, uint8_t keys[][UCP_WIRE_KEY_LEN]);

/* Sets the key for the parts by a lane, of messages or a rail, which may do without, from what the
 * peer's transport has packed. 0: it is none. */
int ucp_rdma_set_key(ucp_request_t *req, ucp_peer_t *peer, unsigned lane, const void *packed,
                     size_t length);

/* Starts the part that begins at `offset` of the buffer, of `rest` bytes at most. then: called when
 * it has ended, here too where it ends at once with an error, with req->copy.length bytes done or
 * none. Where there is no room the request waits on the list of work. */
void ucp_rdma_part(ucp_request_t *req, ucp_peer_t *peer, size_t offset, size_t rest,
                   uint64_t remote_addr, ucp_device_then_cb_t then);

/* The network has failed with memory of a device, of this side or of the peer: from now on such
 * memory goes through that of the host (one line tells). A peer that is lost is no such failure. */
void ucp_rdma_refuse_devices(ucp_peer_t *peer, ucs_status_t status);

/* The user gives up what networks do with the request's memory, if they do: it ends soon, and well
 * where the peer takes part. */
void ucp_rdma_abandon(ucp_request_t *req, ucp_peer_t *peer);

/* A part has failed: it is tried once more, and the request uses no rails any more. 0: none had a
 * share of that part. */
int ucp_rdma_goes_on_without_rails(ucp_request_t *req);

/* Gives back what the request has registered, and its keys. */
void ucp_rdma_release(ucp_request_t *req);

#endif
