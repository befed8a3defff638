/* Halyard: rendezvous between device memory of two processes: one copy, by the device.
 *
 * The announcement names the slot under which the receiver knows the sender's memory. The receiver
 * reads (step DEVICE), or has the sender write (RTR with a slot of its own): where both buffers lie
 * on one device, one process of the two copies in both directions, since the device takes 145 us to
 * change over from one process to the other. It is the one with the lesser identity. Where there is
 * no key, or the copy is refused, the bytes go through memory of the host as messages. Between two
 * devices writing costs two messages more and was not faster in all (measured).
 *
 * A receive into memory of the host reads from the device too, where its process uses one, and a
 * send from pinned memory writes to it.
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
#include <string.h>

static int ucp_rndv_device_is_copier(const ucp_peer_t *peer)
{
    return memcmp(peer->worker->uid, peer->uid, UCT_UID_LEN) < 0;
}

int ucp_rndv_device_is_way(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;

    return ucp_dt_is_device(req->datatype) && (peer->lanes[UCP_LANE_DEVICE] != NULL) &&
           !peer->is_device_refused;
}

unsigned ucp_rndv_device_host_flag(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;

    return (ucs_unlikely(req->worker->device.is_started) &&
            (peer->lanes[UCP_LANE_DEVICE] != NULL) && !peer->is_device_refused &&
            !peer->is_pinned_refused && ucp_device_reaches(req->worker, req->buffer)) ?
           UCP_WIRE_RTS_PINNED : 0;
}

/* ---- sender ---- */

ucs_status_t ucp_rndv_device_announce(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    ucs_status_t status;
    unsigned slot;

    rts->flags |= UCP_WIRE_RTS_WRITES;
    if (!(req->held & UCP_REQUEST_HOLDS_SLOT)) {
        if (!ucp_rndv_device_is_way(req) || !ucp_device_is_whole(req, req->length)) {
            return UCS_OK;
        }
        status = ucp_device_tell(req->send.peer, &req->copy.info, &slot);
        if (status == UCS_ERR_UNSUPPORTED) {
            return UCS_OK;
        }
        if (status != UCS_OK) {
            return status;
        }
        ucp_device_use_slot(req, slot);
    }
    rts->flags     |= UCP_WIRE_RTS_DEVICE;
    rts->sync_index = req->copy.slot;
    rts->address    = (uintptr_t)req->buffer;
    return UCS_OK;
}

static void ucp_rndv_device_put_end(ucp_request_t *req, ucs_status_t status)
{
    size_t length = req->send.end - req->send.offset;

    if (status == UCS_OK) {
        req->send.put_bytes += length;
    } else {
        if (!ucp_dt_is_device(req->datatype)) {
            req->send.peer->is_pinned_refused = 1; /* the receiver reads from now on */
        } else if (status != UCS_ERR_UNREACHABLE) {
            ucp_device_refuse(req->send.peer, status);
        }
        ucp_rndv_add_data(req, req->send.offset, length);
    }
    ucp_rndv_put_end(req);
}

int ucp_rndv_device_is_writing(const ucp_request_t *req)
{
    return (req->send.step == UCP_SEND_DEVICE) && (req->held & UCP_REQUEST_HOLDS_COPY);
}

void ucp_rndv_device_late_cancel(ucp_request_t *req)
{
    if (ucp_request_is_send(req) && (req->send.step == UCP_SEND_DEVICE)) {
        ucp_rndv_tell_cancel(req->send.peer, req->send.id, req->copy.late);
    }
}

void ucp_rndv_device_put(ucp_request_t *req)
{
    ucp_peer_t *peer    = req->send.peer;
    uct_rkey_t *rkey    = ucp_device_heard(peer, req->send.slot);
    ucs_status_t status = UCS_ERR_UNREACHABLE;

    if (rkey != NULL) {
        status = ucp_device_transfer(req, peer, rkey, 1, req->send.offset,
                                     req->send.end - req->send.offset,
                                     req->send.remote_addr + req->send.offset,
                                     ucp_rndv_device_put_end);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        ucp_request_add_work(req);
    } else if (status != UCS_INPROGRESS) {
        ucp_rndv_device_put_end(req, status);
    }
}

/* ---- receiver ---- */

/* Has the sender write; 0: it cannot be asked now. */
static int ucp_rndv_device_ask_put(ucp_request_t *req, ucp_peer_t *peer)
{
    unsigned slot;

    if (ucp_device_tell(peer, &req->copy.info, &slot) != UCS_OK) {
        return 0;
    }
    ucp_device_use_slot(req, slot);
    req->recv.step = UCP_RECV_WAIT;
    ucp_rndv_send_rtr(req, 0, req->recv.total,
                      UCP_WIRE_RTR_PUT | UCP_WIRE_RTR_DEVICE | UCP_WIRE_RTR_LAST);
    return 1;
}

static int ucp_rndv_device_is_on(uct_rkey_t *rkey, int device)
{
    const uct_md_ops_t *ops = &rkey->md->tl->md;

    return (ops->rkey_is_on != NULL) && ops->rkey_is_on(rkey, device);
}

/* Who copies? Both sides would do it the same way. */
static int ucp_rndv_device_wants_put(const ucp_request_t *req, const ucp_peer_t *peer,
                                     uct_rkey_t *rkey)
{
    const unsigned scheme = req->worker->context->options.rndv_scheme;

    if (scheme != UCP_RNDV_SCHEME_AUTO) {
        return scheme == UCP_RNDV_SCHEME_PUT;
    }
    return !ucp_rndv_device_is_copier(peer) &&
           ucp_rndv_device_is_on(rkey, req->copy.info.device);
}

/* The receiver's own copy does not work: messages do, for this one; where it was between devices,
 * and more than this memory is out of reach, for those that follow too. */
static void ucp_rndv_device_give_up(ucp_request_t *req, ucs_status_t status)
{
    if (ucp_dt_is_device(req->datatype) && (status != UCS_ERR_UNREACHABLE)) {
        ucp_device_refuse(req->recv.peer, status);
    }
    ucp_rndv_ask_for_rest(req, 0, req->recv.total);
}

int ucp_rndv_device_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    uct_rkey_t *rkey;

    if (ucs_likely(!(rts->flags & (UCP_WIRE_RTS_WRITES | UCP_WIRE_RTS_PINNED))) ||
        peer->is_device_refused || (peer->lanes[UCP_LANE_DEVICE] == NULL)) {
        return 0;
    }
    if (rts->flags & UCP_WIRE_RTS_PINNED) {
        return ucp_dt_is_device(req->datatype) &&
               ucp_device_is_whole(req, req->recv.total) &&
               ucp_rndv_device_ask_put(req, peer);
    }
    if (!(rts->flags & UCP_WIRE_RTS_DEVICE)) {
        if (!ucp_dt_is_device(req->datatype)) {
            return 0;
        }
        ucp_rndv_send_rtr(req, 0, req->recv.total,
                          UCP_WIRE_RTR_DATA | UCP_WIRE_RTR_FRAGS | UCP_WIRE_RTR_LAST);
        return 1;
    }
    rkey = ucp_device_heard(peer, rts->sync_index);
    if (rkey == NULL) {
        return 0;
    }
    if (ucp_dt_is_device(req->datatype)) {
        if (!ucp_device_is_whole(req, req->recv.total)) {
            return 0;
        }
        if (ucp_rndv_device_wants_put(req, peer, rkey) && ucp_rndv_device_ask_put(req, peer)) {
            return 1;
        }
    } else if (!ucp_dt_is_contig(req->datatype) || !req->worker->device.is_started) {
        return 0;
    }
    req->recv.step = UCP_RECV_DEVICE;
    req->recv.slot = (uint8_t)rts->sync_index;
    ucp_rndv_device_get(req);
    return 1;
}

static void ucp_rndv_device_got(ucp_request_t *req, ucs_status_t status)
{
    if (status != UCS_OK) {
        ucp_rndv_device_give_up(req, status);
        return;
    }
    req->recv.received = req->recv.total;
    ucp_rndv_recv_read_all(req);
}

void ucp_rndv_device_get(ucp_request_t *req)
{
    ucp_peer_t *peer    = req->recv.peer;
    uct_rkey_t *rkey    = ucp_device_heard(peer, req->recv.slot);
    ucs_status_t status = UCS_ERR_UNREACHABLE;

    if (rkey != NULL) {
        status = ucp_device_transfer(req, peer, rkey, 0, 0, req->recv.total, req->recv.remote_addr,
                                     ucp_rndv_device_got);
    }
    if (status == UCS_OK) { /* ends from progress */
        req->recv.received = req->recv.total;
        req->recv.step     = UCP_RECV_WAIT;
        ucp_rndv_send_ats(req, UCS_OK);
        ucp_request_add_work(req);
    } else if (status == UCS_ERR_NO_RESOURCE) {
        ucp_request_add_work(req);
    } else if (status != UCS_INPROGRESS) {
        ucp_rndv_device_give_up(req, status);
    }
}
