/* Halyard: reads and writes of a peer's memory that a network makes by itself.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/protos/rdma.h>
#include <ucs/debug/log.h>

int ucp_rdma_register(ucp_request_t *req, const ucp_peer_t *peer, const ucp_mem_t *own,
                      size_t length, int is_remote)
{
    uct_iface_t *iface  = peer->lanes[UCP_LANE_AM]->iface;
    ucs_status_t status = UCS_OK;

    if (req->held & UCP_REQUEST_HOLDS_MEM) {
        return 1; /* an announcement is tried again */
    }
    req->copy.is_lent = (own != NULL) && (own->tls[peer->lane_tl[UCP_LANE_AM]] != NULL);
    if (req->copy.is_lent) {
        req->copy.mem = own->tls[peer->lane_tl[UCP_LANE_AM]];
    } else {
        status = iface->tl->iface.reg(iface, req->buffer, length, is_remote, &req->copy.mem);
    }
    if (status != UCS_OK) {
        ucs_debug("%zu bytes go as messages: their memory is not registered: %s", length,
                  ucs_status_string(status));
        return 0;
    }
    req->copy.rkey = NULL;
    req->held     |= UCP_REQUEST_HOLDS_MEM;
    return 1;
}

int ucp_rdma_set_key(ucp_request_t *req, ucp_peer_t *peer, const void *packed, size_t length)
{
    uct_md_t *md = ucp_peer_md(peer, UCP_LANE_AM);

    return md->tl->md.rkey_unpack(md, packed, length, &req->copy.rkey) == UCS_OK;
}

void ucp_rdma_release(ucp_request_t *req)
{
    if ((req->copy.mem != NULL) && !req->copy.is_lent) {
        req->copy.mem->md->tl->md.release(req->copy.mem);
    }
    if (req->copy.rkey != NULL) {
        req->copy.rkey->md->tl->md.rkey_release(req->copy.rkey);
    }
}

void ucp_rdma_part(ucp_request_t *req, ucp_peer_t *peer, int is_write, size_t offset, size_t rest,
                   uint64_t remote_addr, ucp_device_then_cb_t then)
{
    uct_ep_t *lane = peer->lanes[UCP_LANE_AM];
    uct_iov_t iov  = {(char *)req->buffer + offset, ucp_rdma_part_length(peer, rest),
                      req->copy.mem};
    ucs_status_t status;

    req->copy.comp = (uct_completion_t){ucp_device_transferred, 1, UCS_OK};
    req->copy.then = then;
    status         = (is_write ? lane->ops->put_zcopy : lane->ops->get_zcopy)(
        lane, &iov, 1, remote_addr, req->copy.rkey, &req->copy.comp);
    if (ucs_likely(status == UCS_INPROGRESS)) {
        req->held |= UCP_REQUEST_HOLDS_COPY;
    } else if (status == UCS_ERR_NO_RESOURCE) {
        ucp_request_add_work(req); /* behind others that wait for room */
    } else {
        then(req, status);
    }
}
