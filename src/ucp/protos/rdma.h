/* Halyard: reads and writes of a peer's memory that a network makes by itself: what rendezvous
 * (rndv_read.c), puts and gets (ops/rma.c) have in common.
 *
 * The lane for messages carries them, a part at a time; the buffer of the request is registered for
 * as long as the request lasts, unless the user lends a registration of it. A request that ends
 * early while a part is under way ends when that has ended, since until then its buffer is used.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_RDMA_H
#define UCP_PROTOS_RDMA_H

#include <ucp/core/mem.h>
#include <ucp/core/peer.h>
#include <ucp/core/request.h>

/* Registers the request's buffer: for the peer to read (is_remote), or for parts. own: what the
 * user has mapped that holds it, which spares that, or NULL. 0: it is refused; 1: the request holds
 * UCP_REQUEST_HOLDS_MEM, with no key yet. */
int ucp_rdma_register(ucp_request_t *req, const ucp_peer_t *peer, const ucp_mem_t *own,
                      size_t length, int is_remote);

/* Sets the key for the parts, from what the peer's transport has packed. 0: it is none. */
int ucp_rdma_set_key(ucp_request_t *req, ucp_peer_t *peer, const void *packed, size_t length);

/* Starts the part that begins at `offset` of the buffer, of `rest` bytes at most. then: called when
 * it has ended, here too where it ends at once with an error, with ucp_rdma_part_length bytes done
 * or none. Where there is no room the request waits on the list of work. */
void ucp_rdma_part(ucp_request_t *req, ucp_peer_t *peer, int is_write, size_t offset, size_t rest,
                   uint64_t remote_addr, ucp_device_then_cb_t then);

/* Gives back what the request has registered, and its key. */
void ucp_rdma_release(ucp_request_t *req);

UCS_INLINE size_t ucp_rdma_part_length(const ucp_peer_t *peer, size_t rest)
{
    return ucs_min(rest, peer->proto->lanes.get.max); /* that of writes is the same */
}

#endif
