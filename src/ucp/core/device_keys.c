/* Halyard: keys of device memory: what a worker has told its peers of, and what they have told.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/wire/wire.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

/* Messages of device memory after which a slot is looked at, which takes up to 0.2 us. */
#define UCP_DEVICE_LOOK 4

static struct ucp_device_keys *ucp_device_keys(ucp_peer_t *peer)
{
    if (peer->keys == NULL) {
        peer->keys = ucs_sys_calloc(1, sizeof(*peer->keys));
    }
    return peer->keys;
}

/* Releases the key that was heard for a slot, if any; is_gone: so is what was mapped by it. */
static void ucp_device_unhear(struct ucp_device_keys *keys, unsigned slot, int is_gone)
{
    uct_rkey_t *rkey = keys->heard[slot];

    if (rkey == NULL) {
        return;
    }
    if (is_gone && (rkey->md->tl->md.rkey_forget != NULL)) {
        rkey->md->tl->md.rkey_forget(rkey);
    }
    rkey->md->tl->md.rkey_release(rkey);
    keys->heard[slot] = NULL;
}

void ucp_device_keys_free(ucp_peer_t *peer)
{
    struct ucp_device_keys *keys = peer->keys;
    unsigned i;

    if (keys == NULL) {
        return;
    }
    for (i = 0; i < UCP_DEVICE_SLOTS; ++i) {
        if (keys->told[i].mem != NULL) {
            keys->told[i].mem->md->tl->md.release(keys->told[i].mem);
        }
        ucp_device_unhear(keys, i, 1); /* nobody will say when its memory is gone */
    }
    ucs_sys_free(keys);
    peer->keys = NULL;
}

/* Is the slot's allocation gone? */
static int ucp_device_is_gone(const ucp_worker_t *worker, const struct ucp_device_keys *keys,
                              unsigned slot)
{
    uct_md_t *md        = worker->device.md;
    const size_t length = (keys->told[slot].mem == NULL) ? 1 : keys->told[slot].mem->length;
    uct_mem_info_t info;

    return (md->tl->md.mem_query(md, (void *)keys->told[slot].base, length, &info) != UCS_OK) ||
           (info.type == UCS_MEMORY_TYPE_HOST) || (info.id != keys->told[slot].id);
}

/* A slot for another allocation: a free one, else one whose allocation is gone, else the one that
 * was used the longest ago. UCP_DEVICE_SLOTS: all are in use. */
static unsigned ucp_device_free_slot(ucp_worker_t *worker, struct ucp_device_keys *keys)
{
    unsigned best = UCP_DEVICE_SLOTS;
    unsigned i;

    for (i = 0; i < UCP_DEVICE_SLOTS; ++i) {
        if (keys->told[i].id == 0) {
            return i;
        }
        if (keys->told[i].uses > 0) {
            continue;
        }
        if (keys->told[i].mem == NULL) { /* ucp_device_look_at has found those that are gone */
            if (keys->told[i].is_told) {
                continue; /* the peer has to hear of it first */
            }
            if (ucp_device_is_gone(worker, keys, i)) {
                return i;
            }
        }
        if ((best == UCP_DEVICE_SLOTS) || (keys->told[i].used_sn < keys->told[best].used_sn)) {
            best = i;
        }
    }
    return best;
}

/* mem NULL: the memory is gone. */
static ucs_status_t ucp_device_send_key(ucp_peer_t *peer, unsigned slot, uct_mem_t *mem)
{
    uct_ep_t *lane     = peer->lanes[UCP_LANE_AM];
    ucp_wire_key_t key = {
        .worker_id = ucp_uid_id(peer->worker->uid),
        .slot      = (uint16_t)slot,
        .wire_id   = peer->worker->context->tls[peer->lane_tl[UCP_LANE_DEVICE]].wire_id
    };
    uint8_t packed[UCT_RKEY_MAX];
    uct_iov_t iov[2] = {{&key, sizeof(key), NULL}, {packed, 0, NULL}};

    if (mem != NULL) {
        iov[1].length = mem->md->tl->md.rkey_pack(mem, packed);
    }
    return lane->ops->am_short_iov(lane, UCP_WIRE_KEY, iov, 1 + (mem != NULL));
}

/* Gives back what an allocation that is gone was kept by, and tells the peer. The number of the
 * allocation stays in the slot: no other has it ever. */
static void ucp_device_look_at(ucp_peer_t *peer, unsigned slot)
{
    struct ucp_device_keys *keys = peer->keys;
    uct_mem_t *mem               = keys->told[slot].mem;

    if ((keys->told[slot].uses > 0) || (keys->told[slot].id == 0)) {
        return;
    }
    if ((mem != NULL) && ucp_device_is_gone(peer->worker, keys, slot)) {
        mem->md->tl->md.release(mem);
        keys->told[slot].mem = NULL;
    }
    if ((keys->told[slot].mem == NULL) && keys->told[slot].is_told &&
        (ucp_device_send_key(peer, slot, NULL) == UCS_OK)) {
        keys->told[slot].is_told = 0;
    }
}

/* Registers the allocation of a slot; one that is refused for now is tried with each message: the
 * transport knows how seldom to try. */
static void ucp_device_show(ucp_peer_t *peer, const uct_mem_info_t *info, unsigned slot)
{
    struct ucp_device_keys *keys = peer->keys;
    uct_md_t *md                 = ucp_peer_md(peer, UCP_LANE_DEVICE);
    ucs_status_t status;

    status = md->tl->md.reg(md, info->base, info->length, info, &keys->told[slot].mem);
    keys->told[slot].is_hidden = (status == UCS_ERR_UNSUPPORTED);
    if (status == UCS_OK) {
        keys->told[slot].mem->uid = peer->worker->uid;
        return;
    }
    keys->told[slot].mem = NULL;
    if (!peer->worker->device.is_warned) {
        peer->worker->device.is_warned = 1;
        ucs_diag("device memory at %p cannot be shown to other processes (%s): it is %s",
                 info->base, ucs_status_string(status),
                 peer->worker->context->options.device_staging ? "staged" :
                                                                 "refused (UCX_DEVICE_STAGING=n)");
    }
}

/* The slot of an allocation that is not known yet. */
static ucs_status_t ucp_device_register(ucp_peer_t *peer, const uct_mem_info_t *info,
                                        unsigned *slot_p)
{
    struct ucp_device_keys *keys = peer->keys;
    uct_mem_t *mem;
    unsigned slot;

    for (slot = 0; slot < UCP_DEVICE_SLOTS; ++slot) { /* new memory often comes for old */
        ucp_device_look_at(peer, slot);
    }
    slot = ucp_device_free_slot(peer->worker, keys);
    if (slot == UCP_DEVICE_SLOTS) {
        return UCS_ERR_UNSUPPORTED; /* to wait for one would hold up what frees them */
    }
    mem = keys->told[slot].mem;
    if (mem != NULL) {
        mem->md->tl->md.release(mem);
    }
    ucp_device_show(peer, info, slot);
    keys->told[slot].id      = info->id;
    keys->told[slot].base    = (uintptr_t)info->base;
    keys->told[slot].is_told = 0;
    *slot_p                  = slot;
    return UCS_OK;
}

ucs_status_t ucp_device_know(ucp_peer_t *peer, const uct_mem_info_t *info, unsigned *slot_p)
{
    struct ucp_device_keys *keys = ucp_device_keys(peer);
    ucs_status_t status;
    unsigned slot;

    if ((peer->lanes[UCP_LANE_DEVICE] == NULL) || (keys == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }
    for (slot = 0; (slot < UCP_DEVICE_SLOTS) && (keys->told[slot].id != info->id); ++slot) {
        if (keys->told[slot].id == 0) {
            slot = UCP_DEVICE_SLOTS; /* the others are free too */
            break;
        }
    }
    if (slot == UCP_DEVICE_SLOTS) {
        status = ucp_device_register(peer, info, &slot);
        if (status != UCS_OK) {
            return status;
        }
    }
    keys->told[slot].used_sn = ++keys->num_used;
    *slot_p                  = slot;
    return UCS_OK;
}

ucs_status_t ucp_device_tell(ucp_peer_t *peer, const uct_mem_info_t *info, unsigned *slot_p)
{
    ucs_status_t status = (info->id == 0) ? UCS_ERR_UNSUPPORTED :
                                            ucp_device_know(peer, info, slot_p);
    struct ucp_device_keys *keys = peer->keys;
    uct_mem_t *mem;

    if (status != UCS_OK) { /* keys may be NULL */
        return status;
    }
    if ((++keys->num_told % UCP_DEVICE_LOOK) == 0) {
        keys->next = (keys->told[keys->next].id == 0) ? 0 : keys->next;
        if (keys->next != *slot_p) {
            ucp_device_look_at(peer, keys->next);
        }
        keys->next = (keys->next + 1) % UCP_DEVICE_SLOTS;
    }
    if (ucs_unlikely(keys->told[*slot_p].mem == NULL) && !keys->told[*slot_p].is_hidden) {
        ucp_device_show(peer, info, *slot_p);
    }
    mem = keys->told[*slot_p].mem;
    if (mem == NULL) {
        return UCS_ERR_REJECTED;
    }
    if (!keys->told[*slot_p].is_told) {
        status = ucp_device_send_key(peer, *slot_p, mem);
        if (status == UCS_OK) {
            keys->told[*slot_p].is_told = 1;
        }
    }
    return status;
}

void ucp_device_use_slot(ucp_request_t *req, unsigned slot)
{
    ucp_peer_t *peer = ucp_request_is_recv(req) ? req->recv.peer : req->send.peer;

    req->copy.slot = (uint8_t)slot;
    req->held     |= UCP_REQUEST_HOLDS_SLOT;
    ++peer->keys->told[slot].uses;
    req->worker->device.num_asked += (unsigned)ucp_request_is_recv(req);
}

void ucp_device_put_slot(ucp_request_t *req)
{
    ucp_peer_t *peer = ucp_request_is_recv(req) ? req->recv.peer : req->send.peer;

    --peer->keys->told[req->copy.slot].uses;
    req->worker->device.num_asked -= (unsigned)ucp_request_is_recv(req);
}

uct_rkey_t *ucp_device_heard(const ucp_peer_t *peer, unsigned slot)
{
    return ((peer->keys != NULL) && (slot < UCP_DEVICE_SLOTS)) ? peer->keys->heard[slot] : NULL;
}

void ucp_device_key_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker   = arg;
    ucs_status_t status    = UCS_ERR_UNREACHABLE;
    struct ucp_device_keys *keys;
    ucp_wire_key_t key;
    ucp_peer_t *peer;
    uct_md_t *md;

    if (!ucp_wire_read(UCP_WIRE_KEY, data, length, &key, sizeof(key))) {
        return;
    }
    peer = ucp_peer_of_sender(worker, key.worker_id, "KEY");
    if (peer == NULL) {
        return;
    }
    keys = ucp_device_keys(peer);
    if ((keys == NULL) || (key.slot >= UCP_DEVICE_SLOTS) ||
        (length - sizeof(key) > UCT_RKEY_MAX)) {
        ucs_warn("peer sent a KEY that cannot be: dropped");
        return;
    }
    ucp_device_unhear(keys, key.slot, length == sizeof(key));
    if (length == sizeof(key)) {
        return;
    }
    if ((peer->lanes[UCP_LANE_DEVICE] != NULL) &&
        (worker->context->tls[peer->lane_tl[UCP_LANE_DEVICE]].wire_id == key.wire_id)) {
        md     = ucp_peer_md(peer, UCP_LANE_DEVICE);
        status = md->tl->md.rkey_unpack(md, (const char *)data + sizeof(key), length - sizeof(key),
                                        &keys->heard[key.slot]);
    }
    if (status != UCS_OK) {
        keys->heard[key.slot] = NULL;
        ucs_debug("device memory of a peer is not reached from here: %s",
                  ucs_status_string(status));
    }
}
