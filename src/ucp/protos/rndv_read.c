/* Halyard: rendezvous over a network that reads the peer's memory by itself.
 *
 * The sender registers its buffer with the lane for messages until its request ends, and the
 * announcement has the key. The receiver reads, a part at a time (step READ), and answers ATS. What
 * is not registered or cannot be read comes as messages. A receive that ends early while a read is
 * under way ends when that has ended, since its buffer is written until then.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>

_Static_assert(UCP_WIRE_KEY_LEN == UCT_IFACE_KEY_LEN, "an announcement holds a key");

/* Would both sides choose reads for so many bytes? */
static int ucp_rndv_read_is_way(const ucp_peer_t *peer, size_t length)
{
    return ucs_unlikely(peer->proto->lanes.has_reads) && !peer->is_provisional &&
           (ucp_proto_lookup(peer->proto->recv, length) == UCP_PROTO_RNDV_GET);
}

/* Registers the request's buffer. 0: it is refused. */
static int ucp_rndv_read_register(ucp_request_t *req, const ucp_peer_t *peer, size_t length,
                                  int is_remote)
{
    uct_iface_t *iface = peer->lanes[UCP_LANE_AM]->iface;
    ucs_status_t status;

    if (req->held & UCP_REQUEST_HOLDS_MEM) {
        return 1; /* the announcement is tried again */
    }
    status = iface->tl->iface.reg(iface, req->buffer, length, is_remote, &req->copy.mem);
    if (status != UCS_OK) {
        ucs_debug("a message of %zu bytes is not read but sent in pieces: %s", length,
                  ucs_status_string(status));
        return 0;
    }
    req->copy.rkey = NULL;
    req->held     |= UCP_REQUEST_HOLDS_MEM;
    return 1;
}

void ucp_rndv_read_release(ucp_request_t *req)
{
    if (req->copy.mem != NULL) {
        req->copy.mem->md->tl->md.release(req->copy.mem);
    }
    if (req->copy.rkey != NULL) {
        req->copy.rkey->md->tl->md.rkey_release(req->copy.rkey);
    }
}

void ucp_rndv_read_announce(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    if (ucp_rndv_read_is_way(req->send.peer, req->length) &&
        ucp_rndv_read_register(req, req->send.peer, req->length, 1)) {
        (void)req->copy.mem->md->tl->md.rkey_pack(req->copy.mem, &rts->address);
        rts->flags |= UCP_WIRE_RTS_KEY;
    }
}

/* ---- receiver ---- */

static void ucp_rndv_read_ended(ucp_request_t *req, ucs_status_t status)
{
    size_t length = ucs_min(req->recv.total - req->recv.offset,
                            req->recv.peer->proto->lanes.get.max);

    if (status != UCS_OK) {
        ucs_debug("reading %zu bytes of a peer: %s: they are asked for as messages", length,
                  ucs_status_string(status));
        ucp_rndv_ask_for_rest(req, req->recv.offset, req->recv.total - req->recv.offset);
        return;
    }
    ucp_rndv_recv_count(req, length);
    req->recv.offset += length;
    if (req->recv.offset < req->recv.total) {
        ucp_request_add_work(req); /* behind others that wait for room, and what the peer says */
        return;
    }
    ucp_rndv_recv_read_all(req);
}

void ucp_rndv_read_step(ucp_request_t *req)
{
    ucp_peer_t *peer = req->recv.peer;
    uct_ep_t *lane   = peer->lanes[UCP_LANE_AM];
    uct_iov_t iov    = {(char *)req->buffer + req->recv.offset,
                        ucs_min(req->recv.total - req->recv.offset, peer->proto->lanes.get.max),
                        req->copy.mem};
    ucs_status_t status;

    req->copy.comp = (uct_completion_t){ucp_device_transferred, 1, UCS_OK};
    req->copy.then = ucp_rndv_read_ended;
    status         = lane->ops->get_zcopy(lane, &iov, 1, req->recv.remote_addr + req->recv.offset,
                                          req->copy.rkey, &req->copy.comp);
    if (ucs_likely(status == UCS_INPROGRESS)) {
        req->held |= UCP_REQUEST_HOLDS_COPY;
    } else if (status == UCS_ERR_NO_RESOURCE) {
        ucp_request_add_work(req);
    } else {
        ucp_rndv_read_ended(req, status);
    }
}

/* Where the way back is not connected yet messages are asked for: that can wait in the queue. */
int ucp_rndv_read_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    uct_md_t *md;

    if (ucs_likely(!(rts->flags & UCP_WIRE_RTS_KEY)) || !ucp_dt_is_contig(req->datatype) ||
        (peer->lanes[UCP_LANE_AM]->state != UCT_EP_LIVE) ||
        !ucp_rndv_read_is_way(peer, req->recv.total) ||
        !ucp_rndv_read_register(req, peer, req->recv.total, 0)) {
        return 0;
    }
    md = ucp_peer_md(peer, UCP_LANE_AM);
    if (md->tl->md.rkey_unpack(md, &rts->address, UCP_WIRE_KEY_LEN, &req->copy.rkey) != UCS_OK) {
        return 0;
    }
    req->recv.step = UCP_RECV_READ;
    ucp_request_add_work(req); /* never ends here */
    return 1;
}
