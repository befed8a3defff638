/* Halyard: rendezvous over a network that reads the peer's memory by itself.
 *
 * The sender registers its buffer with the lane for messages until its request ends, and the
 * announcement has the key. The receiver reads, a part at a time (step READ), and answers ATS. What
 * is not registered or cannot be read comes as messages.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/dt/dt.h>
#include <ucp/protos/rdma.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>

_Static_assert((UCP_WIRE_KEY_LEN == UCT_IFACE_KEY_LEN) && (UCP_WIRE_RAILS == UCT_RAILS_MAX),
               "an announcement holds all keys");

/* Would both sides choose reads for so many bytes? Of memory of a device they spare one side a copy
 * or two that take longer than any message. */
static int ucp_rndv_read_is_way(const ucp_peer_t *peer, size_t length, int has_device)
{
    return ucs_unlikely(peer->proto->lanes.has_reads) && !peer->is_provisional &&
           (ucp_proto_lookup(peer->proto->recv, has_device ? SIZE_MAX : length) ==
            UCP_PROTO_RNDV_GET);
}

void ucp_rndv_read_announce(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    if (ucp_rndv_read_is_way(req->send.peer, req->length, ucp_dt_is_device(req->datatype)) &&
        ucp_rdma_reaches(req, req->send.peer, 0) &&
        ucp_rdma_register(req, req->send.peer, NULL, req->length, 1)) {
        (void)req->copy.first.mem->md->tl->md.rkey_pack(req->copy.first.mem, &rts->address);
        rts->rails  = ucp_rdma_pack_rails(req, rts->keys);
        rts->flags |= UCP_WIRE_RTS_KEY | ((rts->rails != 0) ? UCP_WIRE_RTS_RAILS : 0);
    }
}

/* ---- receiver ---- */

static void ucp_rndv_read_ended(ucp_request_t *req, ucs_status_t status)
{
    size_t rest = req->recv.total - req->recv.offset;

    if ((status != UCS_OK) && ucp_rdma_goes_on_without_rails(req)) {
        return;
    }
    if ((status != UCS_OK) && req->recv.is_given_up) {
        ucp_rndv_send_ats(req, UCS_ERR_CONNECTION_RESET);
        ucp_request_complete(req, UCS_ERR_CONNECTION_RESET);
        return;
    }
    if (status != UCS_OK) {
        if (req->recv.has_device) {
            ucp_rdma_refuse_devices(req->recv.peer, status);
        }
        ucs_debug("reading %zu bytes of a peer: %s: they are asked for as messages", rest,
                  ucs_status_string(status));
        ucp_rndv_ask_for_rest(req, req->recv.offset, rest);
        return;
    }
    ucp_rndv_recv_count(req, req->copy.length);
    req->recv.offset += req->copy.length;
    if (req->recv.offset < req->recv.total) {
        ucp_request_add_work(req); /* behind others that wait for room, and what the peer says */
        return;
    }
    ucp_rndv_recv_read_all(req);
}

void ucp_rndv_read_step(ucp_request_t *req)
{
    ucp_rdma_part(req, req->recv.peer, req->recv.offset, req->recv.total - req->recv.offset,
                  req->recv.remote_addr + req->recv.offset, ucp_rndv_read_ended);
}

/* Where the way back is not connected yet messages are asked for: that can wait in the queue. */
int ucp_rndv_read_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    const int is_device  = ucp_dt_is_device(req->datatype);
    const int has_device = is_device || (rts->flags & UCP_WIRE_RTS_WRITES);
    unsigned rail;

    if (ucs_likely(!(rts->flags & UCP_WIRE_RTS_KEY)) ||
        !ucp_dt_is_block(req->datatype) ||
        (is_device && (peer->lanes[UCP_LANE_DEVICE] != NULL)) ||
        (peer->lanes[UCP_LANE_AM]->state != UCT_EP_LIVE) ||
        !ucp_rndv_read_is_way(peer, req->recv.total, has_device) ||
        !ucp_rdma_reaches(req, peer, rts->flags & UCP_WIRE_RTS_WRITES) ||
        !ucp_rdma_register(req, peer, NULL, req->recv.total, 0) ||
        !ucp_rdma_set_key(req, peer, UCP_LANE_AM, &rts->address, UCP_WIRE_KEY_LEN)) {
        return 0;
    }
    for (rail = 0; (rts->flags & UCP_WIRE_RTS_RAILS) && (rail < UCT_RAILS_MAX); ++rail) {
        if (rts->rails & (1u << rail)) {
            (void)ucp_rdma_set_key(req, peer, UCP_LANE_RAIL + rail, rts->keys[rail],
                                   UCP_WIRE_KEY_LEN);
        }
    }
    req->recv.has_device = (uint8_t)has_device;
    req->recv.step       = UCP_RECV_READ;
    ucp_request_add_work(req); /* never ends here */
    return 1;
}
