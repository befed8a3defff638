/* Halyard: rendezvous between device memory of two processes: one copy, by the device.
 *
 * The announcement names the slot under which the receiver knows the sender's memory. The receiver
 * reads (step DEVICE), or has the sender write (RTR with a slot of its own): where both buffers lie
 * on one device, one process of the two copies in both directions, since the device takes 145 us to
 * change over from one process to the other. It is the one with the lesser identity. Where there is
 * no key, or the copy is refused, the bytes go through memory of the host as messages. Between two
 * devices writing costs two messages more and was not faster in all (measured), but where many
 * short copies wait at once the processor is what takes the time (0.9 us each in the driver), so
 * the sender is asked for its share of them.
 *
 * Where the sender is to copy it may be busy with something else. So it offers the copy with its
 * announcement, by a word in common memory (as those by which both sides of a message claim parts),
 * and who changes the word first copies: the sender when it finds that it was asked, or the
 * receiver if that takes too long. The sender touches no memory of others for that, and nobody
 * waits for an answer. The word holds the number of the send, so that whoever comes too late, after
 * the word has been given to another send, claims nothing.
 *
 * A receive into memory of the host reads from the device too, where its process uses one, and a
 * send from pinned memory writes to it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

/* How long a sender may take to begin. One that makes progress needs some microseconds, and on one
 * device more while it hands other copies to the driver (each takes 4 to 5 us of its processor, up
 * to 32 of them go in one call); the receiver's own copy costs 145 more than the sender's there. So
 * who waits for this long and then copies has not lost much more than twice what the better choice
 * would have cost, whichever that was. From a sender that is heard of meanwhile the wait begins
 * anew. */
#define UCP_RNDV_DEVICE_WAIT_NS 100000u
#define UCP_RNDV_DEVICE_COPY_NS 5000u

/* Copies that both sides share: of so many bytes at most, since longer ones keep the devices busy,
 * while so many of the sender's are in flight, and so many more than the sender's are the
 * receiver's. */
#define UCP_RNDV_DEVICE_SHARED_MAX   ((size_t)256 * 1024)
#define UCP_RNDV_DEVICE_SHARED_SENDS 4u
#define UCP_RNDV_DEVICE_SHARED_MORE  3u

/* Between buffers of one device that others cannot map (H200), to and fro: messages take 23 us for
 * 8 bytes, 37 for 64 KiB, 78 for 256 KiB, 125 for 512 KiB; FRAGs 166. In windows of 64: messages 31
 * us for 64 KiB, 102 for 256 KiB, 236 for 512 KiB; FRAGs 82 for 1 MiB. */
#define UCP_RNDV_DEVICE_BY_HOST_MAX ((size_t)256 * 1024)

/* States of the word. Bits that neither numbers of requests have (ucs_ptr_map) nor claims of parts,
 * for which the word may serve another time; 0: it is settled. */
#define UCP_RNDV_OFFERED(_send_id) ((_send_id) | (1ull << 63))
#define UCP_RNDV_TAKEN(_send_id)   (UCP_RNDV_OFFERED(_send_id) | (1ull << 31))

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

    return ((peer->lanes[UCP_LANE_DEVICE] != NULL) && !peer->is_device_refused &&
            !peer->is_put_refused && ucp_device_reaches(req->worker, req->buffer)) ?
           UCP_WIRE_RTS_PINNED : 0;
}

/* ---- sender ---- */

/* May the receiver want this side to copy, without being held up by that? */
static int ucp_rndv_device_may_copy(const ucp_request_t *req)
{
    const ucp_peer_t *peer = req->send.peer;

    return !peer->is_put_refused &&
           (ucp_rndv_device_is_copier(peer) ||
            (req->worker->num_sends > UCP_RNDV_DEVICE_SHARED_SENDS));
}

/* Lets the receiver take the copy, where this side is to do it. Doing without is always possible.
 */
static void ucp_rndv_device_offer(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    ucp_peer_t *peer = req->send.peer;
    uct_iface_t *am  = peer->lanes[UCP_LANE_AM]->iface;

    if (!(req->held & UCP_REQUEST_HOLDS_SYNC)) {
        if (!ucp_rndv_device_may_copy(req) || !peer->proto->lanes.has_sync ||
            (am->tl->iface.sync_alloc(am, &req->send.sync_index, &req->send.sync_word) != UCS_OK)) {
            return;
        }
        req->held |= UCP_REQUEST_HOLDS_SYNC;
        /* This word too orders nothing but itself: the data is ordered by the messages. */
        atomic_store_explicit(req->send.sync_word, UCP_RNDV_OFFERED(req->send.id),
                              memory_order_relaxed);
    }
    rts->flags      |= UCP_WIRE_RTS_SYNC;
    rts->sync_index |= req->send.sync_index << UCP_WIRE_RTS_WORD_SHIFT;
}

int ucp_rndv_device_claim(ucp_request_t *req)
{
    return atomic_exchange_explicit(req->send.sync_word, 0, memory_order_relaxed) !=
           UCP_RNDV_TAKEN(req->send.id);
}

ucs_status_t ucp_rndv_device_announce(ucp_request_t *req, ucp_wire_rts_t *rts)
{
    ucs_status_t status;
    unsigned slot;

    rts->flags  |= UCP_WIRE_RTS_WRITES;
    rts->address = req->copy.info.device_uid; /* unless it is announced otherwise */
    if (!(req->held & UCP_REQUEST_HOLDS_SLOT)) {
        if (!ucp_rndv_device_is_way(req)) {
            return UCS_OK;
        }
        status = ucp_device_is_whole(req, req->length) ?
                 ucp_device_tell(req->send.peer, &req->copy.info, &slot) : UCS_ERR_REJECTED;
        if (status == UCS_ERR_REJECTED) {
            return req->worker->context->options.device_staging ? UCS_OK : UCS_ERR_UNSUPPORTED;
        }
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
    ucp_rndv_device_offer(req, rts);
    return UCS_OK;
}

static int ucp_rndv_device_is_on(uct_rkey_t *rkey, int device)
{
    const uct_md_ops_t *ops = &rkey->md->tl->md;

    return (ops->rkey_is_on != NULL) && ops->rkey_is_on(rkey, device);
}

/* Could the receiver as well read what this side could not write? */
static int ucp_rndv_device_is_read_too(const ucp_request_t *req)
{
    uct_rkey_t *rkey = ucp_device_heard(req->send.peer, req->send.slot);

    return !ucp_dt_is_device(req->datatype) ||
           ((req->held & UCP_REQUEST_HOLDS_SYNC) && (rkey != NULL) &&
            !ucp_rndv_device_is_on(rkey, req->copy.info.device));
}

static void ucp_rndv_device_put_end(ucp_request_t *req, ucs_status_t status)
{
    size_t length = req->send.end - req->send.offset;

    if (status == UCS_OK) {
        req->send.put_bytes += length;
    } else {
        if (ucp_rndv_device_is_read_too(req)) {
            req->send.peer->is_put_refused = 1; /* it does from now on */
        } else if (status != UCS_ERR_UNREACHABLE) {
            ucp_device_refuse(req->send.peer, status);
        }
        ucp_rndv_add_data(req, req->send.offset, length);
    }
    ucp_rndv_put_end(req);
}

void ucp_rndv_device_put(ucp_request_t *req)
{
    ucp_peer_t *peer    = req->send.peer;
    uct_rkey_t *rkey    = ucp_device_heard(peer, req->send.slot);
    ucs_status_t status = UCS_ERR_UNREACHABLE;

    if ((rkey != NULL) && !ucp_rndv_is_receiver_over(peer)) {
        status = ucp_device_transfer(req, peer, rkey, req->send.offset,
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

static void ucp_rndv_device_send_ask(ucp_request_t *req, unsigned flags)
{
    ucp_rndv_send_rtr(req, 0, req->recv.total,
                      UCP_WIRE_RTR_PUT | UCP_WIRE_RTR_DEVICE | UCP_WIRE_RTR_LAST | flags);
}

/* Has the sender write; 0: it cannot be asked now. */
static int ucp_rndv_device_ask_put(ucp_request_t *req, ucp_peer_t *peer, unsigned flags)
{
    unsigned slot;

    if (ucp_device_tell(peer, &req->copy.info, &slot) != UCS_OK) {
        return 0;
    }
    ucp_device_use_slot(req, slot);
    req->recv.step       = UCP_RECV_WAIT;
    req->recv.is_written = 1;
    ucp_rndv_device_send_ask(req, flags);
    return 1;
}

int ucp_rndv_device_is_copied_there(const ucp_request_t *req)
{
    uct_rkey_t *rkey = ucp_device_heard(req->recv.peer, req->recv.slot);

    return (rkey != NULL) && ucp_rndv_device_is_on(rkey, req->copy.info.device);
}

uint64_t ucp_rndv_device_wait_ns(const ucp_request_t *req)
{
    const unsigned num = ucs_min(req->worker->device.num_asked, (unsigned)UCP_DEVICE_SLOTS);

    return UCP_RNDV_DEVICE_WAIT_NS +
           (ucp_rndv_device_is_copied_there(req) ? num * UCP_RNDV_DEVICE_COPY_NS : 0);
}

/* May the receiver take a copy that it has asked for? */
static int ucp_rndv_device_is_offered(const ucp_request_t *req, const ucp_peer_t *peer,
                                      const ucp_wire_rts_t *rts)
{
    return (rts->flags & UCP_WIRE_RTS_SYNC) && peer->proto->lanes.has_sync &&
           !req->recv.is_part && (req->recv.base == 0);
}

/* The same where the receiver may take the copy, if the announcement offers it. */
static int ucp_rndv_device_ask_copier(ucp_request_t *req, ucp_peer_t *peer,
                                      const ucp_wire_rts_t *rts)
{
    const int is_offered = ucp_rndv_device_is_offered(req, peer, rts);

    if (!ucp_rndv_device_ask_put(req, peer, is_offered ? UCP_WIRE_RTR_CLAIM : 0)) {
        return 0;
    }
    if (is_offered) {
        req->recv.slot     = (uint8_t)(rts->sync_index & UCP_WIRE_RTS_SLOT_MASK);
        req->recv.word     = (uint16_t)(rts->sync_index >> UCP_WIRE_RTS_WORD_SHIFT);
        req->recv.num_data = peer->num_data;
        ucp_rndv_watch(req, ucp_rndv_device_wait_ns(req));
    }
    return 1;
}

/* Does this side have more to copy than others have for it, and nothing else that is under way? */
static int ucp_rndv_device_is_shared(const ucp_request_t *req, const ucp_peer_t *peer,
                                     const ucp_wire_rts_t *rts)
{
    const ucp_worker_t *worker = req->worker;

    return ucp_rndv_device_is_offered(req, peer, rts) &&
           (req->recv.total <= UCP_RNDV_DEVICE_SHARED_MAX) &&
           (worker->device.num_copies > worker->device.num_asked + UCP_RNDV_DEVICE_SHARED_MORE) &&
           (worker->num_sends == 0);
}

/* Who copies? Both sides would do it the same way. 1: the sender has been asked to. */
static int ucp_rndv_device_leave(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts,
                                 uct_rkey_t *rkey)
{
    const unsigned scheme = req->worker->context->options.rndv_scheme;
    const int is_shared   = ucp_rndv_device_is_shared(req, peer, rts);

    if (scheme != UCP_RNDV_SCHEME_AUTO) {
        return (scheme == UCP_RNDV_SCHEME_PUT) && ucp_rndv_device_ask_put(req, peer, 0);
    }
    if (!is_shared && ucp_rndv_device_is_copier(peer)) {
        return 0;
    }
    return (ucp_rndv_device_is_on(rkey, req->copy.info.device) ?
            !ucp_rndv_device_is_copier(peer) : is_shared) &&
           ucp_rndv_device_ask_copier(req, peer, rts);
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

/* Are both buffers on one device, where FRAGs make it change over for each, and messages, which go
 * by its copy engines, take less time than that? */
static int ucp_rndv_device_is_by_host(ucp_request_t *req, const ucp_wire_rts_t *rts)
{
    if ((rts->flags & UCP_WIRE_RTS_KEY) || (rts->address == 0) ||
        (rts->address != req->copy.info.device_uid)) {
        return 0;
    }
    req->worker->device.is_shared = 1;
    return req->recv.total <= UCP_RNDV_DEVICE_BY_HOST_MAX;
}

int ucp_rndv_device_start(ucp_request_t *req, ucp_peer_t *peer, const ucp_wire_rts_t *rts)
{
    uct_rkey_t *rkey;
    unsigned slot;

    if (ucs_likely(!(rts->flags & (UCP_WIRE_RTS_WRITES | UCP_WIRE_RTS_PINNED))) ||
        peer->is_device_refused || (peer->lanes[UCP_LANE_DEVICE] == NULL)) {
        return 0;
    }
    if (rts->flags & UCP_WIRE_RTS_PINNED) {
        return ucp_dt_is_device(req->datatype) &&
               ucp_device_is_whole(req, req->recv.total) &&
               ucp_rndv_device_ask_put(req, peer, 0);
    }
    if (!(rts->flags & UCP_WIRE_RTS_DEVICE)) {
        if (!ucp_dt_is_device(req->datatype) || ucp_rndv_device_is_by_host(req, rts)) {
            return 0;
        }
        ucp_rndv_send_rtr(req, 0, req->recv.total,
                          UCP_WIRE_RTR_DATA | UCP_WIRE_RTR_FRAGS | UCP_WIRE_RTR_LAST);
        return 1;
    }
    slot = rts->sync_index & UCP_WIRE_RTS_SLOT_MASK;
    rkey = ucp_device_heard(peer, slot);
    if (rkey == NULL) {
        return 0;
    }
    if (ucp_dt_is_device(req->datatype)) {
        if (!ucp_device_is_whole(req, req->recv.total)) {
            return 0;
        }
        if (ucp_rndv_device_leave(req, peer, rts, rkey)) {
            return 1;
        }
    } else if (!ucp_dt_is_contig(req->datatype) || !ucp_device_is_used(req->worker)) {
        return 0;
    }
    req->recv.step = UCP_RECV_DEVICE;
    req->recv.slot = (uint8_t)slot;
    ucp_rndv_device_get(req);
    return 1;
}

static void ucp_rndv_device_got(ucp_request_t *req, ucs_status_t status)
{
    if (status != UCS_OK) {
        ucp_rndv_device_give_up(req, status);
        return;
    }
    if (ucs_unlikely(!ucp_rndv_was_there(req))) {
        ucp_rndv_ask_for_rest(req, 0, req->recv.total); /* its sender says whether it is gone */
        return;
    }
    req->recv.received = req->recv.total;
    ucp_rndv_recv_read_all(req);
}

static ucs_status_t ucp_rndv_device_read(ucp_request_t *req)
{
    ucp_peer_t *peer = req->recv.peer;
    uct_rkey_t *rkey = ucp_device_heard(peer, req->recv.slot);

    return (rkey == NULL) ? UCS_ERR_UNREACHABLE :
           ucp_device_transfer(req, peer, rkey, 0, req->recv.total, req->recv.remote_addr,
                               ucp_rndv_device_got);
}

/* Goes on from what _read has returned. */
static void ucp_rndv_device_go_on(ucp_request_t *req, ucs_status_t status)
{
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

void ucp_rndv_device_get(ucp_request_t *req)
{
    if (ucs_unlikely(ucp_rndv_is_connecting(req))) {
        ucp_request_add_work(req);
        return;
    }
    ucp_rndv_device_go_on(req, ucp_rndv_device_read(req));
}

/* ---- receiver, where the sender does not begin ---- */

static int ucp_rndv_device_swap(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Starts the copy that was claimed. What cannot be started now is the sender's again, which is
 * asked once more if it has found it taken meanwhile. UCS_ERR_NO_RESOURCE: try again later. */
static ucs_status_t ucp_rndv_device_read_taken(ucp_request_t *req, _Atomic uint64_t *word,
                                               uint64_t taken, uint64_t offered)
{
    ucs_status_t status = ucp_rndv_device_read(req);

    if ((status == UCS_OK) || (status == UCS_INPROGRESS)) {
        req->recv.step = UCP_RECV_DEVICE;
        ucp_rndv_device_go_on(req, status);
    } else if (!ucp_rndv_device_swap(word, taken, offered)) {
        ucp_rndv_device_send_ask(req, 0);
        return UCS_OK;
    }
    return status;
}

unsigned ucp_rndv_device_take(ucp_request_t *req)
{
    const uint64_t offered = UCP_RNDV_OFFERED(req->recv.send_id);
    const uint64_t taken   = UCP_RNDV_TAKEN(req->recv.send_id);
    ucp_peer_t *peer       = req->recv.peer;
    uct_ep_t *am           = peer->lanes[UCP_LANE_AM];
    _Atomic uint64_t *word;
    ucs_status_t status;

    if (peer->is_device_refused || (req->recv.received > 0) ||
        (req->held & UCP_REQUEST_HOLDS_COPY)) {
        return 0;
    }
    status = am->ops->sync_map(am, req->recv.word, &word);
    if (status == UCS_OK) {
        if (!ucp_rndv_device_swap(word, offered, taken)) {
            return 0; /* the sender copies, or has ended */
        }
        status = ucp_rndv_device_read_taken(req, word, taken, offered);
    }
    if (status == UCS_ERR_NO_RESOURCE) { /* not connected, or not mapped yet */
        ucp_rndv_watch(req, ucp_rndv_device_wait_ns(req));
    }
    return (status == UCS_OK) || (status == UCS_INPROGRESS);
}
