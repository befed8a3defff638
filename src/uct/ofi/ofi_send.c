/* Halyard: ofi: buffers to send from.
 *
 * A peer that takes nothing keeps the buffers of what was sent to it, and must not hold what others
 * need. So one that has a message under way gets another buffer only out of UCT_OFI_SENDS, while
 * more of those are left than it has; one that has none gets one in any case, up to what the
 * provider's queue has room for, and UCT_OFI_SENDS_MAX. Should data be under way to so many, what
 * has no bytes of the user's still finds buffers: a quarter is kept for that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCT_OFI_SENDS      64u  /* buffers that peers have more than one of */
#define UCT_OFI_SENDS_MAX  512u /* in all, of 64 MiB, where the provider's queue has room */
#define UCT_OFI_BLOCK_SIZE 8u   /* buffers that are made at a time */
#define UCT_OFI_BLOCK_HEAD ucs_align_up(sizeof(uct_ofi_block_t), 4096)

/* Buffers, behind this, in pages of their own: those of registered memory may be missing in a child
 * that was forked, which still takes apart what it has inherited. */
typedef struct {
    ucs_list_link_t list; /* in iface->blocks */
    struct fid_mr  *mr;   /* NULL where the provider asks for none */
    uct_ofi_send_t  sends[UCT_OFI_BLOCK_SIZE];
} uct_ofi_block_t;

static const size_t uct_ofi_block_buffers = UCT_OFI_BLOCK_SIZE * UCT_OFI_BUFFER_SIZE;
static const size_t uct_ofi_block_bytes   = UCT_OFI_BLOCK_HEAD +
                                            (UCT_OFI_BLOCK_SIZE * UCT_OFI_BUFFER_SIZE);

/* ---- buffers ---- */

/* Returns libfabric's error, or 0. */
static int uct_ofi_block_add(uct_ofi_iface_t *iface)
{
    uct_ofi_block_t *block;
    int ret;

    /* Touched as it is used. */
    block = ucs_sys_mmap(NULL, uct_ofi_block_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        return -FI_ENOMEM;
    }
    ret = uct_ofi_register_own(iface, (char *)block + UCT_OFI_BLOCK_HEAD, uct_ofi_block_buffers,
                               &block->mr);
    if (ret != 0) {
        ucs_sys_munmap(block, uct_ofi_block_bytes);
        return ret;
    }
    ucs_list_add_tail(&iface->blocks, &block->list);
    iface->num_made += UCT_OFI_BLOCK_SIZE;
    return 0;
}

int uct_ofi_sends_open(uct_ofi_iface_t *iface)
{
    const size_t queue = iface->info->tx_attr->size;

    /* A short queue has room for reads too, and for more than data. */
    iface->num_sends  = (unsigned)ucs_min(UCT_OFI_SENDS_MAX, queue - (queue / 4));
    iface->num_data   = iface->num_sends - ((iface->num_sends + 2) / 4);
    iface->num_shared = ucs_min(UCT_OFI_SENDS, iface->num_data);
    return uct_ofi_block_add(iface);
}

void uct_ofi_sends_deregister(uct_ofi_iface_t *iface)
{
    uct_ofi_block_t *block;

    ucs_list_for_each(block, &iface->blocks, list) {
        uct_ofi_deregister(iface, &block->mr);
    }
}

void uct_ofi_sends_abandon(uct_ofi_iface_t *iface, ucs_status_t status)
{
    uct_completion_t *comp;
    uct_ofi_block_t *block;
    unsigned i;

    ucs_list_for_each(block, &iface->blocks, list) {
        for (i = 0; i < UCT_OFI_BLOCK_SIZE; ++i) {
            comp = block->sends[i].super.is_posted ? block->sends[i].comp : NULL;
            if (comp != NULL) {
                block->sends[i].comp = NULL;
                uct_completion_update(comp, status);
            }
        }
    }
}

void uct_ofi_sends_give_up(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer,
                           const uct_completion_t *comp)
{
    uct_ofi_block_t *block;
    uct_ofi_send_t *send;
    unsigned i;

    ucs_list_for_each(block, &iface->blocks, list) {
        for (i = 0; i < UCT_OFI_BLOCK_SIZE; ++i) {
            send = &block->sends[i];
            if (send->super.is_posted && (send->comp != NULL) &&
                ((comp == NULL) ? (send->peer == peer) : (send->comp == comp))) {
                uct_ofi_op_give_up(send->peer, &send->super, comp != NULL);
            }
        }
    }
}

void uct_ofi_sends_close(uct_ofi_iface_t *iface)
{
    uct_ofi_block_t *block;

    while (!ucs_list_is_empty(&iface->blocks)) {
        block = ucs_list_extract_head(&iface->blocks, uct_ofi_block_t, list);
        ucs_sys_munmap(block, uct_ofi_block_bytes);
    }
}

/* One that was never in use, or NULL. */
static uct_ofi_send_t *uct_ofi_send_new(uct_ofi_iface_t *iface)
{
    uct_ofi_block_t *block;
    uct_ofi_send_t *send;
    unsigned i;

    if ((iface->num_used == iface->num_made) && (uct_ofi_block_add(iface) != 0)) {
        ucs_debug("no memory for a buffer to send from");
        return NULL;
    }
    block        = ucs_list_tail(&iface->blocks, uct_ofi_block_t, list);
    i            = iface->num_used++ % UCT_OFI_BLOCK_SIZE;
    send         = &block->sends[i];
    send->buffer = (char *)block + UCT_OFI_BLOCK_HEAD + (i * UCT_OFI_BUFFER_SIZE);
    send->desc   = (block->mr != NULL) ? fi_mr_desc(block->mr) : NULL;
    return send;
}

uct_ofi_send_t *uct_ofi_send_get(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer, int is_data)
{
    const unsigned num_held = (peer != NULL) ? peer->num_under_way - peer->num_rmas : 0;
    uct_ofi_send_t *send;

    if (ucs_unlikely((iface->num_busy >= (is_data ? iface->num_data : iface->num_sends)) ||
                     ((num_held > 0) && ((num_held + iface->num_busy) >= iface->num_shared)))) {
        return NULL;
    }
    send = ucs_list_is_empty(&iface->free_sends) ? uct_ofi_send_new(iface) :
           ucs_list_extract_head(&iface->free_sends, uct_ofi_send_t, queue);
    if (send != NULL) {
        ++iface->num_busy;
        send->is_question = 0;
        send->comp        = NULL;
    }
    return send;
}

void uct_ofi_send_put(uct_ofi_iface_t *iface, uct_ofi_send_t *send)
{
    --iface->num_busy;
    ucs_list_add_head(&iface->free_sends, &send->queue);
}

/* ---- messages ---- */

void uct_ofi_op_started(uct_ofi_peer_t *peer)
{
    uct_ofi_iface_t *iface = peer->iface;

    iface->num_vain  = 0;
    iface->has_event = 1; /* it may have ended in the call, of which no event need tell */
    ++iface->num_under_way;
    ++peer->num_under_way;
}

void uct_ofi_op_ended(uct_ofi_peer_t *peer)
{
    --peer->iface->num_under_way;
    --peer->num_under_way;
    if (ucs_unlikely((peer->num_under_way == 0) && (peer->tx_state == UCT_OFI_TX_IDLE))) {
        uct_ofi_peer_say(peer, 0); /* this may have been what it was kept for */
    }
}

static ssize_t uct_ofi_send_plain(uct_ofi_iface_t *iface, uct_ofi_send_t *send)
{
    return fi_send(iface->ep, send->buffer, send->length, send->desc, send->where->addr,
                   &send->super.context);
}

static ssize_t uct_ofi_send_gathered(uct_ofi_iface_t *iface, uct_ofi_send_t *send)
{
    const struct iovec iov[] = {{send->buffer, send->length},
                                send->payload,
                                {send->buffer + send->length,
                                 uct_ofi_pad(send->length + send->payload.iov_len)}};

    return fi_sendv(iface->ep, iov, NULL, (iov[2].iov_len > 0) ? 3 : 2, send->where->addr,
                    &send->super.context);
}

static ssize_t uct_ofi_send_question(uct_ofi_iface_t *iface, uct_ofi_send_t *send)
{
    struct iovec iov  = {send->buffer, send->length};
    struct fi_msg msg = {.msg_iov   = &iov,
                         .desc      = (send->desc != NULL) ? &send->desc : NULL,
                         .iov_count = 1,
                         .addr      = send->where->addr,
                         .context   = &send->super.context};
    ssize_t ret       = fi_sendmsg(iface->ep, &msg, FI_TRANSMIT_COMPLETE);

    if ((ret == 0) || (ret == -FI_EAGAIN)) {
        return ret;
    }
    send->is_question = 0; /* not by this provider */
    return uct_ofi_send_plain(iface, send);
}

ucs_status_t uct_ofi_send_post(uct_ofi_iface_t *iface, uct_ofi_send_t *send)
{
    uct_ofi_peer_t *peer = send->peer;
    ssize_t ret;

    uct_ofi_enter(iface);
    if (ucs_unlikely(send->is_question) && !iface->is_tcp) {
        ret = uct_ofi_send_question(iface, send);
    } else if (send->comp != NULL) {
        ret = uct_ofi_send_gathered(iface, send);
    } else {
        ret = uct_ofi_send_plain(iface, send);
    }
    uct_ofi_leave(iface);
    if (ucs_likely(ret == 0)) {
        send->super.is_posted = 1;
        if (ucs_likely(peer != NULL)) {
            uct_ofi_op_started(peer);
        } else {
            ++iface->num_under_way;
        }
        return UCS_OK;
    }
    if (ret == -FI_EAGAIN) {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_debug("fi_send: error %zd", ret);
    uct_ofi_send_put(iface, send);
    if (peer == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    uct_ofi_peer_fail(peer, uct_ofi_peer_lost(peer));
    return peer->status;
}
