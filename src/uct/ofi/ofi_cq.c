/* Halyard: ofi: the completion queue: what has come into receive buffers, and what has ended.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCT_OFI_POLL_MAX 16 /* completions that are taken at a time */
#define UCT_OFI_RENEWALS 8  /* for connections of peers that are not known yet */

/* Nothing comes any more, or ends, which no kernel of a peer tells: all would wait for ever, also
 * who waits for what the provider has. */
static UCS_COLD void uct_ofi_broken(uct_ofi_iface_t *iface, const char *what, ssize_t ret)
{
    ucs_error("libfabric's %s: its error %zd", what, -ret);
    while (!ucs_list_is_empty(&iface->peers)) {
        uct_ofi_peer_fail(ucs_list_head(&iface->peers, uct_ofi_peer_t, list), UCS_ERR_IO_ERROR);
    }
    iface->single = NULL; /* it cannot be recalled */
    uct_ofi_iface_end(iface, UCS_ERR_IO_ERROR);
}

/* ---- receive buffers ---- */

/* Where all buffers are used up when a message comes, the provider net (libfabric 1.17, not 2.5)
 * does not listen to that connection any more, and for each buffer that is posted then it listens
 * to one again: if buffers take many messages, the others wait for ever. Nothing tells of it, but
 * after it some buffer comes back. So from then on one is posted anew, now and then, as often as
 * there may be connections: one that takes a single message, as that has either been taken into it,
 * or can be recalled for certain. While a message is under way into it, others that come back are
 * posted; the next of them takes its place. */
static void uct_ofi_receives_suspect(uct_ofi_iface_t *iface)
{
    if (iface->has_single) {
        iface->num_renewals = UCT_OFI_RENEWALS + (2 * (unsigned)ucs_hash_size(&iface->by_uid));
    }
}

int uct_ofi_receives_must_renew(const uct_ofi_iface_t *iface)
{
    return (iface->num_renewals > 0) && (iface->single != NULL);
}

void uct_ofi_receives_renew(uct_ofi_iface_t *iface)
{
    uct_ofi_receive_t *receive = iface->single;
    ssize_t ret;

    if (receive->is_recalled) { /* it has not come back: a message is on its way into it */
        iface->single = NULL;
        return;
    }
    --iface->num_renewals;
    uct_ofi_enter(iface);
    ret = fi_cancel(&iface->ep->fid, &receive->super.context);
    uct_ofi_leave(iface);
    receive->is_recalled = (ret == 0);
}

void uct_ofi_receives_post(uct_ofi_iface_t *iface)
{
    void *desc = (iface->mr != NULL) ? fi_mr_desc(iface->mr) : NULL;
    uct_ofi_receive_t *receive;
    struct fi_msg msg;
    struct iovec iov;
    int is_single;
    unsigned i;
    ssize_t ret;

    for (i = 0; (i < (iface->num_receives + iface->num_spares)) && (iface->num_unposted > 0);
         ++i) {
        receive = &iface->receives[i];
        if (receive->super.is_posted) {
            continue;
        }
        iov = (struct iovec){receive->buffer, iface->receive_size};
        msg = (struct fi_msg){.msg_iov   = &iov,
                              .desc      = (desc != NULL) ? &desc : NULL,
                              .iov_count = 1,
                              .addr      = FI_ADDR_UNSPEC,
                              .context   = &receive->super.context};
        is_single = !iface->is_multi || (iface->has_single && (iface->single == NULL));
        uct_ofi_enter(iface);
        ret = fi_recvmsg(iface->ep, &msg, is_single ? 0 : FI_MULTI_RECV);
        uct_ofi_leave(iface);
        if (ret != 0) {
            ucs_trace_poll("fi_recvmsg: error %zd", ret);
            if ((ret != -FI_EAGAIN) && (iface->num_unposted == iface->num_receives) &&
                (++iface->num_refused == UCT_OFI_REFUSALS)) {
                uct_ofi_broken(iface, "endpoint takes no receive buffer any more", ret);
            }
            return; /* else tried again by the next progress */
        }
        receive->super.is_posted = 1;
        receive->is_released     = 0;
        receive->is_lost         = 0;
        receive->is_single       = is_single;
        receive->is_recalled     = 0;
        iface->single            = (is_single && iface->is_multi) ? receive : iface->single;
        receive->spoiled_ns      = 0;
        receive->bytes           = 0;
        receive->end             = 0;
        --iface->num_unposted;
        iface->num_refused = 0;
    }
}

void uct_ofi_receives_look(uct_ofi_iface_t *iface, uint64_t now_ns)
{
    uct_ofi_receive_t *receive;
    unsigned i;

    for (i = 0; (i < (iface->num_receives + iface->num_spares)) && (iface->num_lost > 0); ++i) {
        receive = &iface->receives[i];
        if (receive->super.is_posted && receive->is_lost &&
            ((now_ns - receive->spoiled_ns) >= uct_ofi_config(iface)->timeout_ns)) {
            receive->super.is_posted = 0; /* a spare one now, unless there were not enough */
            iface->num_unposted     += (iface->num_lost-- > iface->num_spares);
            uct_ofi_receives_suspect(iface);
        }
    }
}

/* ---- what ends ---- */

static void uct_ofi_send_ended(uct_ofi_iface_t *iface, uct_ofi_send_t *send, int error)
{
    uct_ofi_peer_t *peer   = send->peer;
    uct_completion_t *comp = send->comp;

    send->super.is_posted = 0;
    uct_ofi_send_put(iface, send);
    if (ucs_unlikely(peer == NULL)) {
        uct_ofi_addr_put(iface, send->where);
        --iface->num_under_way;
        --iface->num_strangers;
        return;
    }
    if (ucs_unlikely(error != 0)) {
        ucs_debug("a message was not sent: libfabric's error %d", error);
        uct_ofi_peer_unsent(peer, (const uct_ofi_head_t *)send->buffer);
    } else {
        peer->is_reached |= send->is_question;
    }
    uct_ofi_op_settle(peer, &send->super);
    uct_ofi_op_ended(peer);
    if (comp != NULL) {
        uct_completion_update(comp, (error == 0) ? UCS_OK : peer->status);
    }
}

/* The provider has a buffer no more. */
static void uct_ofi_receive_is_back(uct_ofi_iface_t *iface, uct_ofi_receive_t *receive)
{
    receive->super.is_posted = 0;
    ++iface->num_unposted;
}

/* Something has come into a buffer, or nothing will. */
static void uct_ofi_receive_used(uct_ofi_iface_t *iface, const uct_ofi_receive_t *receive)
{
    if (receive == iface->single) {
        iface->single = NULL;
    }
}

/* Takes a buffer back, unless it takes many messages and more are to come. */
static void uct_ofi_receive_returned(uct_ofi_iface_t *iface, uct_ofi_receive_t *receive,
                                     uint64_t flags)
{
    receive->is_released |= receive->is_single || (flags & FI_MULTI_RECV);
    uct_ofi_receive_used(iface, receive);
    /* Providers call a buffer released while they still fetch a long message into it, which came
     * before the last one: it is theirs until all of it has been told of. */
    if (receive->is_released && (receive->spoiled_ns == 0) && (receive->bytes >= receive->end)) {
        uct_ofi_receive_is_back(iface, receive);
        uct_ofi_receives_suspect(iface);
    } else if (ucs_unlikely(receive->is_released && (receive->spoiled_ns != 0) &&
                            !receive->is_lost)) {
        receive->is_lost     = 1;
        receive->spoiled_ns  = ucs_sys_clock_ns(); /* what is written there still, is so from now */
        iface->num_unposted += (iface->num_lost++ < iface->num_spares);
        uct_ofi_receives_suspect(iface);
    }
}

static void uct_ofi_received(uct_ofi_iface_t *iface, uct_ofi_receive_t *receive,
                             const struct fi_cq_data_entry *entry)
{
    const char *data     = (!receive->is_single && (entry->buf != NULL)) ? entry->buf :
                                                                           receive->buffer;
    const char *data_end = data + entry->len;

    if ((entry->flags & FI_RECV) && (entry->len >= sizeof(uct_ofi_head_t)) &&
        (entry->len <= UCT_OFI_BUFFER_SIZE)) {
        if (ucs_unlikely(((uintptr_t)data % 8) != 0)) {
            memcpy(iface->scratch, data, entry->len);
            data = iface->scratch;
        }
        uct_ofi_receive(iface, data, entry->len);
    }
    if (!receive->is_single && (entry->flags & FI_RECV)) {
        receive->end    = ucs_max(receive->end, (size_t)(data_end - receive->buffer));
        receive->bytes += entry->len;
    }
    uct_ofi_receive_returned(iface, receive, entry->flags);
}

static void uct_ofi_receive_failed(uct_ofi_iface_t *iface, uct_ofi_receive_t *receive,
                                   uint64_t flags, int error)
{
    ucs_debug("a message was not received: libfabric's error %d", error);
    if (iface->is_multi) {
        receive->spoiled_ns = ucs_sys_clock_ns(); /* nobody tells where it would have been */
    }
    uct_ofi_receive_returned(iface, receive, flags);
}

/* The provider has given an operation back; 0: a buffer that was recalled. Some tell of an error
 * twice: the other time nothing is there that it could be about. */
static int uct_ofi_op_returned(uct_ofi_iface_t *iface, uct_ofi_op_t *op,
                               const struct fi_cq_data_entry *entry, int error)
{
    uct_ofi_receive_t *receive;

    if (ucs_unlikely(!op->is_posted)) {
        ucs_debug("an operation that has ended ends again: libfabric's error %d", error);
        return 1;
    }
    switch (op->kind) {
    case UCT_OFI_OP_RECEIVE:
        receive = ucs_container_of(op, uct_ofi_receive_t, super);
        if (ucs_likely(error == 0)) {
            uct_ofi_received(iface, receive, entry);
        } else if ((error == FI_ECANCELED) && receive->is_recalled) {
            uct_ofi_receive_used(iface, receive);
            uct_ofi_receive_is_back(iface, receive);
            return 0;
        } else {
            uct_ofi_receive_failed(iface, receive, entry->flags, error);
        }
        break;
    case UCT_OFI_OP_RMA:
        uct_ofi_rma_op_ended(iface, ucs_container_of(op, uct_ofi_rma_t, super), error);
        break;
    default:
        uct_ofi_send_ended(iface, ucs_container_of(op, uct_ofi_send_t, super), error);
        break;
    }
    return 1;
}

/* Takes one error, and counts what is done; 0: none is next. */
static UCS_COLD int uct_ofi_poll_error(uct_ofi_iface_t *iface, unsigned *count)
{
    struct fi_cq_data_entry data = {0};
    struct fi_cq_err_entry entry;
    ssize_t ret;

    memset(&entry, 0, sizeof(entry));
    uct_ofi_enter(iface);
    ret = fi_cq_readerr(iface->cq, &entry, 0);
    uct_ofi_leave(iface);
    if (ret != 1) {
        return 0;
    }
    if (entry.op_context == NULL) {
        ucs_debug("a message sent by value got lost: libfabric's error %d", entry.err);
        uct_ofi_alive_suspect(iface);
        ++*count;
    } else {
        data.flags = entry.flags;
        *count    += (unsigned)uct_ofi_op_returned(iface, entry.op_context, &data,
                                                   (entry.err != 0) ? entry.err : FI_EIO);
    }
    return 1;
}

unsigned uct_ofi_poll(uct_ofi_iface_t *iface)
{
    struct fi_cq_data_entry entries[UCT_OFI_POLL_MAX];
    unsigned count = 0;
    ssize_t ret, i;

    if (ucs_unlikely(iface->ep == NULL)) {
        return 0;
    }
    uct_ofi_enter(iface);
    ret = fi_cq_read(iface->cq, entries, UCT_OFI_POLL_MAX);
    uct_ofi_leave(iface);
    iface->has_event |= (ret != -FI_EAGAIN); /* more may lie behind that */
    if (ret > 0) {
        for (i = 0; i < ret; ++i) {
            if (entries[i].op_context != NULL) { /* else of a message sent by value */
                count += (unsigned)uct_ofi_op_returned(iface, entries[i].op_context, &entries[i],
                                                       0);
            }
        }
    } else if (ucs_unlikely(ret == -FI_EAVAIL)) {
        /* All that there are, before a buffer is used again: one told twice names the same. */
        for (i = 0; (i < UCT_OFI_POLL_MAX) && uct_ofi_poll_error(iface, &count); ++i) {
        }
    } else if (ucs_unlikely((ret < 0) && (ret != -FI_EAGAIN))) {
        uct_ofi_broken(iface, "completion queue is broken", ret);
        return 0;
    }
    if (ucs_unlikely(iface->num_unposted > 0)) {
        uct_ofi_receives_post(iface);
    }
    return count;
}
