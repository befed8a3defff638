/* Halyard: reads and writes of a peer's memory that a network makes by itself.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rdma.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCP_RDMA_SHARE_MIN ((size_t)64 * 1024) /* bytes of a part that are worth another device */

struct ucp_rdma_rails {
    ucp_rdma_rail_t rail[UCT_RAILS_MAX];
    int             is_used; /* one of them has had a share of the last part */
};

int ucp_rdma_reaches(const ucp_request_t *req, const ucp_peer_t *peer, int peer_has_device)
{
    const int is_device = ucp_dt_is_device(req->datatype);

    return !(is_device || peer_has_device) ||
           (!peer->is_hmem_refused && (!is_device || peer->proto->lanes.has_device_reads));
}

static int ucp_rdma_register_lane(ucp_request_t *req, const ucp_peer_t *peer, unsigned lane,
                                  const ucp_mem_t *own, size_t length, int is_remote,
                                  ucp_rdma_rail_t *rail)
{
    uct_iface_t *iface  = peer->lanes[lane]->iface;
    ucs_status_t status = UCS_OK;

    rail->rkey    = NULL;
    rail->is_lent = (own != NULL) && (own->tls[peer->lane_tl[lane]] != NULL);
    if (rail->is_lent) {
        rail->mem = own->tls[peer->lane_tl[lane]];
    } else {
        status = iface->tl->iface.reg(iface, req->buffer, length,
                                      ucp_dt_is_device(req->datatype) ? &req->copy.info : NULL,
                                      is_remote, &rail->mem);
    }
    rail->is_registered = (status == UCS_OK);
    if (status != UCS_OK) {
        ucs_debug("%zu bytes are not registered with lane %u: %s", length, lane,
                  ucs_status_string(status));
    }
    return rail->is_registered;
}

static void ucp_rdma_release_lane(ucp_rdma_rail_t *rail)
{
    if ((rail->mem != NULL) && rail->is_registered && !rail->is_lent) {
        rail->mem->md->tl->md.release(rail->mem);
    }
    if (rail->rkey != NULL) {
        rail->rkey->md->tl->md.rkey_release(rail->rkey);
    }
}

static void ucp_rdma_register_rails(ucp_request_t *req, const ucp_peer_t *peer,
                                    const ucp_mem_t *own, size_t length, int is_remote)
{
    unsigned i, lane;

    for (i = 0; i < UCT_RAILS_MAX; ++i) {
        lane = UCP_LANE_RAIL + i;
        if ((peer->lanes[lane] == NULL) || (peer->lanes[lane]->state == UCT_EP_FAILED)) {
            continue;
        }
        if (req->copy.rails == NULL) {
            req->copy.rails = ucs_sys_calloc(1, sizeof(*req->copy.rails));
        }
        if (req->copy.rails != NULL) {
            (void)ucp_rdma_register_lane(req, peer, lane, own, length, is_remote,
                                         &req->copy.rails->rail[i]);
        }
    }
}

int ucp_rdma_register(ucp_request_t *req, const ucp_peer_t *peer, const ucp_mem_t *own,
                      size_t length, int is_remote)
{
    if (req->held & UCP_REQUEST_HOLDS_MEM) {
        return 1; /* an announcement is tried again */
    }
    if (!ucp_rdma_register_lane(req, peer, UCP_LANE_AM, own, length, is_remote,
                                &req->copy.first)) {
        return 0;
    }
    req->copy.rails = NULL;
    req->held      |= UCP_REQUEST_HOLDS_MEM;
    if ((length >= 2 * UCP_RDMA_SHARE_MIN) && (req->kind != UCP_REQUEST_PUT)) {
        ucp_rdma_register_rails(req, peer, own, length, is_remote);
    }
    return 1;
}

uint32_t ucp_rdma_pack_rails(const ucp_request_t *req, uint8_t keys[][UCP_WIRE_KEY_LEN])
{
    const ucp_rdma_rails_t *rails = req->copy.rails;
    uint32_t bits                 = 0;
    uct_mem_t *mem;
    unsigned i;

    for (i = 0; (rails != NULL) && (i < UCT_RAILS_MAX); ++i) {
        mem = rails->rail[i].is_registered ? rails->rail[i].mem : NULL;
        if (mem != NULL) {
            (void)mem->md->tl->md.rkey_pack(mem, keys[i]);
            bits |= 1u << i;
        }
    }
    return bits;
}

int ucp_rdma_set_key(ucp_request_t *req, ucp_peer_t *peer, unsigned lane, const void *packed,
                     size_t length)
{
    ucp_rdma_rails_t *rails = req->copy.rails;
    ucp_rdma_rail_t *rail   = &req->copy.first;
    uct_md_t *md;

    if (lane != UCP_LANE_AM) {
        rail = (rails != NULL) ? &rails->rail[lane - UCP_LANE_RAIL] : NULL;
    }
    if ((rail == NULL) || !rail->is_registered) {
        return 0;
    }
    md = ucp_peer_md(peer, lane);
    if (md->tl->md.rkey_unpack(md, packed, length, &rail->rkey) != UCS_OK) {
        rail->rkey = NULL;
    }
    return rail->rkey != NULL;
}

static void ucp_rdma_release_rails(ucp_request_t *req)
{
    unsigned i;

    for (i = 0; i < UCT_RAILS_MAX; ++i) {
        ucp_rdma_release_lane(&req->copy.rails->rail[i]);
    }
    ucs_sys_free(req->copy.rails);
    req->copy.rails = NULL;
}

int ucp_rdma_goes_on_without_rails(ucp_request_t *req)
{
    if ((req->copy.rails == NULL) || !req->copy.rails->is_used) {
        return 0;
    }
    ucp_rdma_release_rails(req);
    ucp_request_add_work(req);
    return 1;
}

void ucp_rdma_refuse_devices(ucp_peer_t *peer, ucs_status_t status)
{
    if ((peer->status == UCS_OK) && !peer->is_hmem_refused) {
        peer->is_hmem_refused = 1;
        ucs_diag("%s does not reach memory of devices, though its provider says so (%s): it goes "
                 "through the host's (UCX_OFI_HMEM=n)", peer->proto->lanes.am_name,
                 ucs_status_string(status));
    }
}

void ucp_rdma_release(ucp_request_t *req)
{
    ucp_rdma_release_lane(&req->copy.first);
    if (req->copy.rails != NULL) {
        ucp_rdma_release_rails(req);
    }
}

/* The rails, at most max, that may carry a share now: bits. Others are connected, for parts to
 * come. */
static unsigned ucp_rdma_find_rails(const ucp_request_t *req, const ucp_peer_t *peer, size_t max)
{
    unsigned bits = 0;
    uct_ep_t *lane;
    unsigned i;

    for (i = 0; (i < UCT_RAILS_MAX) && ((size_t)__builtin_popcount(bits) < max); ++i) {
        lane = peer->lanes[UCP_LANE_RAIL + i];
        if (req->copy.rails->rail[i].rkey == NULL) {
            continue;
        }
        if (lane->state == UCT_EP_LIVE) {
            bits |= 1u << i;
        } else if (lane->state == UCT_EP_IDLE) {
            (void)uct_ep_connect(lane);
        }
    }
    return bits;
}

/* Shares of at most `share` bytes behind that of the first lane, up to `end` bytes of the part. */
static void ucp_rdma_start_shares(ucp_request_t *req, ucp_peer_t *peer, unsigned rails,
                                  size_t offset, size_t share, size_t end, uint64_t remote_addr)
{
    ucp_rdma_rail_t *rail;
    ucs_status_t status;
    uct_ep_t *lane;
    uct_iov_t iov;

    for (; rails != 0; rails &= rails - 1) {
        rail = &req->copy.rails->rail[__builtin_ctz(rails)];
        lane = peer->lanes[UCP_LANE_RAIL + __builtin_ctz(rails)];
        iov  = (uct_iov_t){(char *)req->buffer + offset + req->copy.length,
                           ucs_min(share, end - req->copy.length), rail->mem};
        status = lane->ops->get_zcopy(lane, &iov, 1, remote_addr + req->copy.length, rail->rkey,
                                      &req->copy.comp);
        if (status == UCS_INPROGRESS) {
            req->copy.length         += iov.length;
            req->copy.rails->is_used  = 1;
            continue;
        }
        --req->copy.comp.count; /* what it does not take belongs to the next part */
        if (status != UCS_ERR_NO_RESOURCE) {
            rail->rkey->md->tl->md.rkey_release(rail->rkey);
            rail->rkey = NULL;
        }
    }
}

void ucp_rdma_abandon(ucp_request_t *req, ucp_peer_t *peer)
{
    uct_ep_t *lane;
    unsigned i;

    for (i = 0; (req->held & UCP_REQUEST_HOLDS_COPY) && (i < UCP_LANE_LAST); ++i) {
        lane = peer->lanes[i];
        if ((lane != NULL) && (lane->ops->abandon != NULL)) {
            lane->ops->abandon(lane, &req->copy.comp);
        }
    }
}

void ucp_rdma_part(ucp_request_t *req, ucp_peer_t *peer, size_t offset, size_t rest,
                   uint64_t remote_addr, ucp_device_then_cb_t then)
{
    uct_ep_t *lane     = peer->lanes[UCP_LANE_AM];
    const size_t end   = ucs_min(rest, peer->proto->lanes.get.max); /* that of writes is the same */
    unsigned rails     = ((req->copy.rails == NULL) || (end < 2 * UCP_RDMA_SHARE_MIN)) ? 0 :
                         ucp_rdma_find_rails(req, peer, (end / UCP_RDMA_SHARE_MIN) - 1);
    const int num      = 1 + __builtin_popcount(rails);
    const size_t share = (rails == 0) ? end : ucs_align_up((end / (size_t)num) + 1, 4096);
    uct_iov_t iov      = {(char *)req->buffer + offset, share, req->copy.first.mem};
    ucs_status_t status;

    req->copy.length = share;
    req->copy.comp   = (uct_completion_t){ucp_device_transferred, num, UCS_OK};
    req->copy.then   = then;
    if (req->copy.rails != NULL) {
        req->copy.rails->is_used = 0;
    }
    status = (ucp_request_is_outward(req) ? lane->ops->put_zcopy : lane->ops->get_zcopy)(
        lane, &iov, 1, remote_addr, req->copy.first.rkey, &req->copy.comp);
    if (ucs_likely(status == UCS_INPROGRESS)) {
        req->held |= UCP_REQUEST_HOLDS_COPY;
        ucp_rdma_start_shares(req, peer, rails, offset, share, end, remote_addr);
        if (ucp_request_is_recv(req) && ucs_unlikely(req->recv.is_given_up)) {
            ucp_rdma_abandon(req, peer);
        }
    } else if (status == UCS_ERR_NO_RESOURCE) {
        ucp_request_add_work(req); /* behind others that wait for room */
    } else {
        then(req, status);
    }
}
