/* Halyard: ofi: endpoints, messages and the descriptor.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>

#define UCS_LOG_COMPONENT "ofi"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#ifdef HAVE_OFI

#include <string.h>
#include <uct/ofi/ofi_devices.h>

static const char *const uct_ofi_families[] = {"inet", "inet6", NULL};

static const ucs_config_row_t uct_ofi_config_rows[] = {
    UCS_CONFIG_ROW("PROVIDER", allow, uct_ofi_config_t, providers, "all",
                   "Providers of libfabric to use, the first that works (net,tcp;ofi_rxm), or "
                   "^names for all but these (^sockets). UCX_LOG_LEVEL=info tells which there "
                   "are, which one is used and why not the others."),
    UCS_CONFIG_ROW("DEVICES", allow, uct_ofi_config_t, devices, "all",
                   "Network devices to use, by the names that libfabric gives to its domains "
                   "(eth0, mlx5_0 or mlx5_0:1), or ^names for all but these. UCX_OFI_DEVICES means "
                   "the same where this is not set.",
                   .flags = UCS_CONFIG_ROW_EMPTY, .prefix = "NET_,OFI_"),
    UCS_CONFIG_ROW("AF_PRIO", list, uct_ofi_config_t, families, "inet,inet6",
                   "Which of a device's addresses is used, of IPv4 (inet) or IPv6 (inet6): the "
                   "same on all hosts. Another first where some of them have that form only.",
                   .arg = uct_ofi_families, .prefix = "TCP_,OFI_"),
    UCS_CONFIG_ROW("HMEM", bool, uct_ofi_config_t, has_hmem, "y",
                   "Let the provider read and write memory of GPUs, where it says that it can "
                   "(FI_HMEM). Else such memory is copied to the host's on its way."),
    UCS_CONFIG_ROW("RMA", bool, uct_ofi_config_t, has_rma, "y",
                   "Reads and writes of a peer's memory by the provider, where it has them."),
    UCS_CONFIG_ROW("TIMEOUT", time, uct_ofi_config_t, timeout_ns, "5s",
                   "How long a peer may be silent that was asked to answer, and its host as well, "
                   "before it is given up. Who says nothing is asked after a tenth of this.",
                   .min = 10000000),
    UCS_CONFIG_ROW("RX_BUFFERS", uint, uct_ofi_config_t, rx_buffers, "4",
                   "Receive buffers of a worker; over TCP there is one more.", .min = 2,
                   .max = 1024),
    UCS_CONFIG_ROW("RX_SIZE", memunits, uct_ofi_config_t, rx_size, "264k",
                   "Bytes of each receive buffer.", .min = 2 * UCT_OFI_BUFFER_SIZE,
                   .max = 1u << 30),
    UCS_CONFIG_ROW_END
};

/* ---- messages ---- */

/* May a message go to the peer now? */
static int uct_ofi_may_send(const uct_ofi_peer_t *peer)
{
    return ((peer->tx_count - peer->tx_taken) < UCT_OFI_WINDOW) &&
           ucs_list_is_empty(&peer->unsent);
}

/* Fills the head and the padding of a message whose payload lies behind the head. */
static size_t uct_ofi_frame(uct_ofi_peer_t *peer, char *message, unsigned id, size_t length)
{
    size_t pad = uct_ofi_pad(length);

    uct_ofi_peer_head(peer, (uct_ofi_head_t *)message, UCT_OFI_DATA, id, pad);
    memset(message + sizeof(uct_ofi_head_t) + length, 0, pad);
    return sizeof(uct_ofi_head_t) + length + pad;
}

static ucs_status_t uct_ofi_send_value(uct_ofi_peer_t *peer, char *message, unsigned id,
                                       size_t length)
{
    uct_ofi_iface_t *iface = peer->iface;
    ssize_t ret;

    length = uct_ofi_frame(peer, message, id, length);
    uct_ofi_enter(iface);
    ret = fi_inject(iface->ep, message, length, peer->where->addr);
    uct_ofi_leave(iface);
    if (ucs_likely(ret == 0)) {
        iface->num_vain = 0;
        ++peer->tx_count;
        return UCS_OK;
    }
    if (ret == -FI_EAGAIN) {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_debug("fi_inject: error %zd", ret);
    uct_ofi_peer_fail(peer, uct_ofi_peer_lost(peer));
    return peer->status;
}

/* A filled buffer. What the provider does not take now waits here, since a pack function is not
 * called twice. */
static ucs_status_t uct_ofi_send_buffer(uct_ofi_peer_t *peer, uct_ofi_send_t *send, unsigned id,
                                        size_t length)
{
    ucs_status_t status;

    send->peer   = peer;
    send->where  = peer->where;
    send->length = uct_ofi_frame(peer, send->buffer, id, length);
    status       = uct_ofi_send_post(peer->iface, send);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        ucs_list_add_tail(&peer->unsent, &send->queue);
        uct_ofi_peer_say(peer, 0);
        status = UCS_OK;
    }
    peer->tx_count += (status == UCS_OK);
    return status;
}

static ucs_status_t uct_ofi_am_short_iov(uct_ep_t *ep, unsigned id, const uct_iov_t *iov,
                                         unsigned n)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    const size_t length  = uct_iov_length(iov, n);
    uct_ofi_send_t *send;

    if (ucs_unlikely(!uct_ofi_may_send(peer))) {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_assert(length <= peer->iface->message_max);
    if ((length + uct_ofi_pad(length) + sizeof(uct_ofi_head_t)) <= peer->iface->short_max) {
        UCS_ALIGNED(8) char message[UCT_OFI_SHORT_MAX];

        uct_iov_gather(message + sizeof(uct_ofi_head_t), iov, n);
        return uct_ofi_send_value(peer, message, id, length);
    }
    send = uct_ofi_send_get(peer->iface, peer, 1);
    if (ucs_unlikely(send == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }
    uct_iov_gather(send->buffer + sizeof(uct_ofi_head_t), iov, n);
    return uct_ofi_send_buffer(peer, send, id, length);
}

static ucs_status_t uct_ofi_am_short(uct_ep_t *ep, unsigned id, uint64_t header,
                                     const void *payload, size_t length)
{
    uct_iov_t iov[2] = {{&header, sizeof(header), NULL}, {(void *)payload, length, NULL}};

    return uct_ofi_am_short_iov(ep, id, iov, 2);
}

static ucs_status_t uct_ofi_am_bcopy(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg,
                                     size_t *length_p)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    uct_ofi_send_t *send = uct_ofi_may_send(peer) ? uct_ofi_send_get(peer->iface, peer, 1) : NULL;
    ucs_status_t status;
    size_t length;

    if (ucs_unlikely(send == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_assert(*length_p <= peer->iface->message_max);
    length = pack(send->buffer + sizeof(uct_ofi_head_t), arg, *length_p);
    ucs_assert(length <= *length_p);
    status = uct_ofi_send_buffer(peer, send, id, length);
    if (status == UCS_OK) {
        *length_p = length;
    }
    return status;
}

static ucs_status_t uct_ofi_am_zcopy(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n,
                                     uct_completion_t *comp)
{
    uct_ofi_peer_t *peer     = uct_ofi_ep(ep)->peer;
    const uct_iov_t *payload = &iov[n - 1];
    uct_ofi_send_t *send = uct_ofi_may_send(peer) ? uct_ofi_send_get(peer->iface, peer, 1) : NULL;
    ucs_status_t status;
    size_t pad;

    if (ucs_unlikely(send == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }
    send->peer    = peer;
    send->where   = peer->where;
    send->comp    = comp;
    send->length  = sizeof(uct_ofi_head_t) + uct_iov_length(iov, n - 1);
    send->payload = (struct iovec){payload->buffer, payload->length};
    uct_iov_gather(send->buffer + sizeof(uct_ofi_head_t), iov, n - 1);
    pad           = uct_ofi_pad(send->length + payload->length);
    uct_ofi_peer_head(peer, (uct_ofi_head_t *)send->buffer, UCT_OFI_DATA, id, pad);
    memset(send->buffer + send->length, 0, pad);
    status = uct_ofi_send_post(peer->iface, send);
    if (status == UCS_ERR_NO_RESOURCE) {
        uct_ofi_send_put(peer->iface, send);
    }
    peer->tx_count += (status == UCS_OK);
    return (status == UCS_OK) ? UCS_INPROGRESS : status;
}

static ucs_status_t uct_ofi_flush(uct_ep_t *ep, uct_completion_t *comp)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    uct_ofi_flush_t *flush;

    if (peer->tx_taken == peer->tx_count) {
        return UCS_OK;
    }
    if (comp != NULL) {
        flush = ucs_sys_malloc(sizeof(*flush));
        if (flush == NULL) {
            return UCS_ERR_NO_RESOURCE;
        }
        flush->count = peer->tx_count;
        flush->comp  = comp;
        ucs_list_add_tail(&peer->flushes, &flush->list);
    }
    uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
    return UCS_INPROGRESS;
}

static void uct_ofi_abandon(uct_ep_t *ep, const uct_completion_t *comp)
{
    uct_ofi_rma_give_up(uct_ofi_iface(ep->iface), NULL, comp);
    uct_ofi_sends_give_up(uct_ofi_iface(ep->iface), NULL, comp);
}

static ucs_status_t uct_ofi_ep_check(uct_ep_t *ep)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;

    if (peer->asked_ns == 0) {
        uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
    }
    return UCS_OK;
}

/* ---- endpoints ---- */

static ucs_status_t uct_ofi_ep_init(uct_ep_t *tl_ep, const void *address, size_t length)
{
    uct_ofi_ep_t *ep = uct_ofi_ep(tl_ep);
    char reason[UCT_REASON_MAX];
    const uint8_t *raw;
    ucs_status_t status;

    status = uct_ofi_address_parse(uct_ofi_iface(tl_ep->iface), address, length, 1, &raw, reason);
    if (status == UCS_OK) {
        ep->address_length = (uint8_t)(length - sizeof(uct_ofi_address_t));
        memcpy(ep->address, raw, ep->address_length);
    }
    return status;
}

static ucs_status_t uct_ofi_ep_connect(uct_ep_t *tl_ep)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_ep->iface);
    uct_ofi_ep_t *ep       = uct_ofi_ep(tl_ep);
    uct_ofi_peer_t *peer;
    ucs_status_t status;

    if (iface->is_inherited || (iface->ep == NULL)) {
        return iface->is_inherited ? UCS_ERR_CONNECTION_RESET : UCS_ERR_IO_ERROR;
    }
    status = uct_ofi_peer_get(iface, tl_ep->peer_uid, ep->address, ep->address_length, &peer);
    return (status == UCS_OK) ? uct_ofi_peer_attach(peer, ep) : status;
}

static void uct_ofi_ep_close(uct_ep_t *tl_ep)
{
    if (uct_ofi_ep(tl_ep)->peer != NULL) {
        uct_ofi_peer_detach(uct_ofi_ep(tl_ep));
    }
}

/* ---- interface ---- */

static void uct_ofi_limits(uct_iface_t *tl_iface, uct_op_t op, ucs_memory_type_t memory,
                           uct_limits_t *limits_p)
{
    const uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    const int is_reached         = (memory == UCS_MEMORY_TYPE_HOST) ||
                           ((memory == UCS_MEMORY_TYPE_CUDA) && (iface->info->caps & FI_HMEM));

    memset(limits_p, 0, sizeof(*limits_p));
    if (is_reached && (iface->num_rmas > 0) &&
        ((op == UCT_OP_GET_ZCOPY) || ((op == UCT_OP_PUT_ZCOPY) && iface->has_writes))) {
        limits_p->max     = ucs_min(UCT_OFI_RMA_MAX, iface->info->ep_attr->max_msg_size);
        limits_p->iov_max = 1;
        limits_p->overhead_ns  = 1500;
        limits_p->latency_ns   = 10000;
        limits_p->bytes_per_ns = 10;
    }
    if ((memory == UCS_MEMORY_TYPE_HOST) && ((op == UCT_OP_AM_SHORT) || (op == UCT_OP_AM_BCOPY) ||
                                             ((op == UCT_OP_AM_ZCOPY) && iface->has_gather))) {
        limits_p->min     = (op == UCT_OP_AM_ZCOPY) ? UCT_OFI_GATHER_MIN : 0;
        limits_p->max     = iface->message_max;
        limits_p->iov_max = UINT16_MAX;
        /* The provider net over loopback, on a server of 2023. */
        limits_p->overhead_ns  = 1500;
        limits_p->latency_ns   = 3000;
        limits_p->bytes_per_ns = 6;
    }
}

static size_t uct_ofi_get_address(uct_iface_t *tl_iface, void *buffer)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);

    memcpy(buffer, iface->address, iface->address_length);
    return iface->address_length;
}

static int uct_ofi_is_reachable(uct_iface_t *iface, const void *address, size_t length,
                                int same_node, char reason[UCT_REASON_MAX])
{
    const uint8_t *raw;

    if (uct_ofi_address_parse(uct_ofi_iface(iface), address, length, same_node, &raw, reason) !=
        UCS_OK) {
        return 0;
    }
    /* Further devices pair with those that they lead to without a router. */
    if ((iface->params.lead != NULL) && !uct_ofi_is_in_network(uct_ofi_iface(iface)->info, raw)) {
        snprintf(reason, UCT_REASON_MAX, "the peer's device is in another network");
        return 0;
    }
    return 1;
}

static void uct_ofi_memory_used(uct_iface_t *tl_iface, size_t *shared_p, size_t *private_p)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);

    *shared_p  = 0;
    *private_p = sizeof(*iface) +
                 ((iface->num_receives + ucs_min(iface->num_lost, iface->num_spares)) *
                  iface->receive_size) +
                 (iface->num_used * UCT_OFI_BUFFER_SIZE) +
                 (iface->num_rmas * sizeof(*iface->rmas));
}

#else

static ucs_status_t uct_ofi_md_open(uct_md_t *md UCS_UNUSED)
{
    ucs_debug("this build was configured without libfabric");
    return UCS_ERR_NO_DEVICE;
}

#endif

const uct_tl_t uct_ofi_tl = {
    .name = "ofi",
    .help = "messages between nodes, by libfabric",
    .kind = UCT_TL_KIND_NET,
#ifdef HAVE_OFI
    .md_size       = sizeof(uct_ofi_md_t),
    .iface_size    = sizeof(uct_ofi_iface_t),
    .ep_size       = sizeof(uct_ofi_ep_t),
    .config_rows   = uct_ofi_config_rows,
    .config_prefix = "OFI_",
    .config_size   = sizeof(uct_ofi_config_t),
    .max_rails     = UCT_RAILS_MAX,
    .md = {
        .open         = uct_ofi_md_open,
        .close        = uct_ofi_md_close,
        .reg          = uct_ofi_md_reg,
        .release      = uct_ofi_mem_release,
        .rkey_pack    = uct_ofi_rkey_pack,
        .rkey_unpack  = uct_ofi_rkey_unpack,
        .rkey_release = uct_ofi_rkey_release
    },
    .iface = {
        .open         = uct_ofi_iface_open,
        .close        = uct_ofi_iface_close,
        .limits       = uct_ofi_limits,
        .get_address  = uct_ofi_get_address,
        .is_reachable = uct_ofi_is_reachable,
        .progress     = uct_ofi_progress,
        .event_fd     = uct_ofi_event_fd,
        .event_join   = uct_ofi_event_join,
        .event_arm    = uct_ofi_event_arm,
        .reg          = uct_ofi_reg,
        .drop_peer    = uct_ofi_drop_peer,
        .memory_used  = uct_ofi_memory_used
    },
    .ep = {
        .init    = uct_ofi_ep_init,
        .connect = uct_ofi_ep_connect,
        .disconnect = uct_ofi_ep_close,
        .close   = uct_ofi_ep_close,
        .live = {
            .am_short     = uct_ofi_am_short,
            .am_short_iov = uct_ofi_am_short_iov,
            .am_bcopy     = uct_ofi_am_bcopy,
            .am_zcopy     = uct_ofi_am_zcopy,
            .get_zcopy    = uct_ofi_get_zcopy,
            .put_zcopy    = uct_ofi_put_zcopy,
            .flush        = uct_ofi_flush,
            .check        = uct_ofi_ep_check,
            .abandon      = uct_ofi_abandon
        }
    }
#else
    .md_size    = sizeof(uct_md_t),
    .iface_size = sizeof(uct_iface_t),
    .ep_size    = sizeof(uct_ep_t),
    .md         = {.open = uct_ofi_md_open}
#endif
};
