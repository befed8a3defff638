/* Halyard: ofi: peers: introductions, the order of messages, what has been taken, farewells.
 *
 * A peer is kept while an endpoint leads to it, while it is connected to us, or while the provider
 * still has something for it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

/* Longest that closing waits for the provider to send the last messages, other than over TCP. */
#define UCT_OFI_DRAIN_NS 100000000ul

/* Kinds that are said by the head alone or by an introduction, in the order of saying. */
static const uint8_t uct_ofi_says[] = {UCT_OFI_HELLO, UCT_OFI_WELCOME, UCT_OFI_BYE,
                                       UCT_OFI_PING,  UCT_OFI_DROP,    UCT_OFI_ACK};

static uint64_t uct_ofi_uid_key(const uint8_t uid[UCT_UID_LEN])
{
    uint64_t key;

    memcpy(&key, uid, sizeof(key));
    return key;
}

uct_ofi_peer_t *uct_ofi_peer_find(uct_ofi_iface_t *iface, const uint8_t uid[UCT_UID_LEN])
{
    uct_ofi_peer_t *peer = (ucs_hash_size(&iface->by_uid) == 0) ? NULL :
                           ucs_hash_get_ptr(&iface->by_uid, uct_ofi_uid_key(uid));

    return ((peer != NULL) && (memcmp(peer->uid, uid, UCT_UID_LEN) == 0)) ? peer : NULL;
}

/* Nothing finds the peer any more. */
static void uct_ofi_peer_unlink(uct_ofi_peer_t *peer)
{
    uct_ofi_iface_t *iface = peer->iface;

    if (peer->own_token != 0) {
        (void)ucs_ptr_map_del(&iface->by_token, peer->own_token);
        (void)ucs_hash_del(&iface->by_uid, uct_ofi_uid_key(peer->uid));
        peer->own_token = 0;
    }
    ucs_list_del(&peer->list);
}

void uct_ofi_drop_early(uct_ofi_peer_t *peer)
{
    uct_ofi_early_t *early;

    while (!ucs_list_is_empty(&peer->early)) {
        early = ucs_list_extract_head(&peer->early, uct_ofi_early_t, list);
        ucs_sys_free(early);
    }
}

static void uct_ofi_peer_free(uct_ofi_peer_t *peer)
{
    uct_ofi_peer_unlink(peer);
    ucs_list_del(&peer->todo);
    uct_ofi_probe_end(peer);
    uct_ofi_drop_early(peer);
    if (peer->where != NULL) {
        uct_ofi_addr_put(peer->iface, peer->where);
    }
    ucs_sys_free(peer);
}

ucs_status_t uct_ofi_peer_get(uct_ofi_iface_t *iface, const uint8_t uid[UCT_UID_LEN],
                              const uint8_t *raw, size_t raw_length, uct_ofi_peer_t **peer_p)
{
    uct_ofi_peer_t *peer = uct_ofi_peer_find(iface, uid);
    ucs_status_t status;

    if (peer != NULL) {
        *peer_p = peer;
        return UCS_OK;
    }
    peer = ucs_sys_calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    peer->iface      = iface;
    peer->probe_fd   = -1;
    peer->own_serial = ++iface->num_serials;
    peer->own_serial += (peer->own_serial == 0);
    memcpy(peer->uid, uid, UCT_UID_LEN);
    ucs_list_head_init(&peer->list);
    ucs_list_head_init(&peer->todo);
    ucs_list_head_init(&peer->eps);
    ucs_list_head_init(&peer->flushes);
    ucs_list_head_init(&peer->early);
    ucs_list_head_init(&peer->unsent);
    ucs_list_head_init(&peer->waiting);

    status = ucs_ptr_map_put(&iface->by_token, peer, &peer->own_token);
    if (status == UCS_OK) {
        status = ucs_hash_insert(&iface->by_uid, uct_ofi_uid_key(uid), (uintptr_t)peer);
        if (status != UCS_OK) {
            (void)ucs_ptr_map_del(&iface->by_token, peer->own_token);
            peer->own_token = 0;
        }
    }
    if (status == UCS_OK) {
        peer->where = uct_ofi_addr_get(iface, raw, raw_length);
        status      = (peer->where != NULL) ? UCS_OK : UCS_ERR_UNREACHABLE;
    }
    if (status != UCS_OK) {
        uct_ofi_peer_free(peer);
        return status;
    }
    ucs_list_add_tail(&iface->peers, &peer->list);
    iface->num_renewals += iface->has_single ? 2 : 0; /* others may wait behind it */
    *peer_p = peer;
    return UCS_OK;
}

void uct_ofi_peer_say(uct_ofi_peer_t *peer, unsigned what)
{
    peer->say |= what;
    if (ucs_list_is_empty(&peer->todo)) {
        ucs_list_add_tail(&peer->iface->todo, &peer->todo);
    }
}

/* ---- endpoints ---- */

void uct_ofi_tx_open(uct_ofi_peer_t *peer)
{
    peer->tx_state      = UCT_OFI_TX_OPENING;
    peer->tx_base       = peer->tx_count;
    peer->is_hello_said = 0;
    peer->has_asked     = 0;
    peer->port          = 0;
    uct_ofi_alive_ask(peer, UCT_OFI_SAY_HELLO);
}

void uct_ofi_tx_close(uct_ofi_peer_t *peer)
{
    peer->tx_state    = UCT_OFI_TX_CLOSING;
    peer->is_bye_said = 0;
    uct_ofi_alive_ask(peer, UCT_OFI_SAY_BYE);
}

ucs_status_t uct_ofi_peer_attach(uct_ofi_peer_t *peer, uct_ofi_ep_t *ep)
{
    ep->peer = peer;
    ucs_list_add_tail(&peer->eps, &ep->peer_list);
    if (peer->tx_state == UCT_OFI_TX_IDLE) {
        uct_ofi_tx_open(peer);
    }
    return (peer->tx_state == UCT_OFI_TX_OPEN) ? UCS_OK : UCS_INPROGRESS;
}

/* Nobody wants any more what the provider does with the user's memory for the peer. */
static void uct_ofi_peer_give_up(uct_ofi_peer_t *peer)
{
    if ((peer->num_under_way + peer->num_waiting) > 0) {
        uct_ofi_rma_give_up(peer->iface, peer, NULL);
        uct_ofi_sends_give_up(peer->iface, peer, NULL);
    }
}

void uct_ofi_peer_detach(uct_ofi_ep_t *ep)
{
    uct_ofi_peer_t *peer = ep->peer;

    ep->peer = NULL;
    ucs_list_del(&ep->peer_list);
    if (!ucs_list_is_empty(&peer->eps) || (peer->status != UCS_OK)) {
        return;
    }
    if (ep->super.state == UCT_EP_FAILED) {
        uct_ofi_peer_give_up(peer);
    }
    if (peer->tx_state == UCT_OFI_TX_OPEN) {
        uct_ofi_tx_close(peer);
    } else if ((peer->tx_state == UCT_OFI_TX_OPENING) && !peer->is_hello_said) {
        peer->tx_state = UCT_OFI_TX_IDLE; /* it has heard nothing yet */
        peer->say     &= ~(unsigned)UCT_OFI_SAY_HELLO;
        peer->asked_ns = 0;
        uct_ofi_peer_say(peer, 0);
    }
}

void uct_ofi_fail_eps(uct_ofi_peer_t *peer, ucs_status_t status)
{
    uct_ofi_ep_t *ep;

    uct_ofi_peer_give_up(peer);
    while (!ucs_list_is_empty(&peer->eps)) {
        ep = ucs_list_head(&peer->eps, uct_ofi_ep_t, peer_list);
        uct_ofi_peer_detach(ep);
        uct_ep_set_failed(&ep->super, status);
    }
}

ucs_status_t uct_ofi_peer_lost(const uct_ofi_peer_t *peer)
{
    return peer->is_known ? UCS_ERR_CONNECTION_RESET : UCS_ERR_UNREACHABLE;
}

void uct_ofi_peer_fail(uct_ofi_peer_t *peer, ucs_status_t status)
{
    uct_ofi_iface_t *iface = peer->iface;

    if (peer->status != UCS_OK) {
        return;
    }
    ucs_debug("a peer is lost: %s", ucs_status_string(status));
    peer->status      = status;
    peer->is_gone_due = peer->rx_open;
    peer->rx_open     = 0;
    peer->tx_state    = UCT_OFI_TX_IDLE;
    peer->say         = 0;
    uct_ofi_peer_unlink(peer);
    ucs_list_add_tail(&iface->lost, &peer->list);
    uct_ofi_probe_end(peer);
    uct_ofi_drop_early(peer); /* the provider may keep the peer for ever */
    while (!ucs_list_is_empty(&peer->unsent)) {
        uct_ofi_send_put(iface, ucs_list_extract_head(&peer->unsent, uct_ofi_send_t, queue));
    }
    uct_ofi_fail_eps(peer, status);
    uct_ofi_peer_say(peer, 0); /* the rest from progress */
}

/* Providers lose messages where both sides connect at the same time, too. What has no bytes of the
 * user's is said again, unless it is about something that is over. Not at once: `tcp;ofi_rxm` needs
 * some milliseconds to see that a connection of its own has broken, and loses all until then. */
void uct_ofi_peer_unsent(uct_ofi_peer_t *peer, const uct_ofi_head_t *head)
{
    const uint64_t now_ns = ucs_sys_clock_ns();
    const unsigned type   = head->type;

    /* what is lost during the pause was said before it: one break, one loss */
    if ((type < UCT_OFI_REJECT) && (now_ns >= peer->pause_ns)) {
        ++peer->num_lost;
        peer->has_asked = 0; /* what comes is another connection */
        peer->pause_ns = now_ns + (UCT_OFI_PAUSE_NS << (2 * peer->num_lost));
    }
    if ((type >= UCT_OFI_REJECT) || (peer->num_lost > UCT_OFI_LOST_MAX)) {
        uct_ofi_peer_fail(peer, uct_ofi_peer_lost(peer));
    } else if ((peer->status == UCS_OK) &&
               ((type != UCT_OFI_HELLO) || (peer->tx_state == UCT_OFI_TX_OPENING)) &&
               ((type != UCT_OFI_WELCOME) || peer->rx_open) &&
               ((type != UCT_OFI_BYE) || peer->is_bye_said) &&
               ((type != UCT_OFI_DROP) || (peer->rx_open && (head->number == peer->rx_base)))) {
        uct_ofi_peer_say(peer, 1u << type);
    }
}

void uct_ofi_gone(uct_ofi_peer_t *peer)
{
    const uct_iface_params_t *params = &peer->iface->super.params;

    if ((params->peer_gone != NULL) && !peer->iface->is_closing) {
        params->peer_gone(params->arg, peer->uid);
    }
}

int uct_ofi_drop_peer(uct_iface_t *tl_iface, const uint8_t uid[UCT_UID_LEN], int discard)
{
    uct_ofi_peer_t *peer = uct_ofi_peer_find(uct_ofi_iface(tl_iface), uid);

    if ((peer == NULL) || !peer->rx_open) {
        return 0;
    }
    peer->rx_discard |= (discard != 0);
    peer->is_unwanted = 1;
    uct_ofi_alive_ask(peer, UCT_OFI_SAY_DROP);
    return 1;
}

/* ---- saying ---- */

void uct_ofi_peer_head(uct_ofi_peer_t *peer, uct_ofi_head_t *head, unsigned type, unsigned am_id,
                       size_t pad)
{
    head->type    = (uint8_t)type;
    head->am_id   = (uint8_t)am_id;
    head->pad     = (uint8_t)pad;
    head->zero    = 0;
    head->number  = peer->tx_count;
    head->token   = peer->token;
    head->taken   = peer->rx_count;
    head->serial  = peer->own_serial;
    peer->rx_told = peer->rx_count;
}

static void uct_ofi_intro_fill(uct_ofi_iface_t *iface, uct_ofi_intro_t *intro, const uint8_t *from,
                               const uint8_t *to, uint64_t token)
{
    memset(&intro->address, 0, sizeof(intro->address));
    memcpy(intro->from, from, UCT_UID_LEN);
    memcpy(intro->to, to, UCT_UID_LEN);
    memcpy(intro->address, iface->address, iface->address_length);
    intro->port           = 0;
    intro->answer         = 0;
    intro->token          = token;
    intro->version        = UCT_OFI_VERSION;
    intro->address_length = (uint8_t)iface->address_length;
}

static uint32_t uct_ofi_say_number(const uct_ofi_peer_t *peer, unsigned type)
{
    switch (type) {
    case UCT_OFI_PING:
        return peer->question;
    case UCT_OFI_ACK:
        return peer->heard_question;
    case UCT_OFI_DROP:
        return peer->rx_base;
    case UCT_OFI_BYE:
        return peer->tx_count - peer->is_bye_said;
    default:
        return peer->tx_count;
    }
}

/* UCS_ERR_NO_RESOURCE: not now; other errors: the peer has failed. */
static ucs_status_t uct_ofi_say_one(uct_ofi_peer_t *peer, unsigned type)
{
    uct_ofi_iface_t *iface = peer->iface;
    uct_ofi_send_t *send   = uct_ofi_send_get(iface, peer, 0);
    int is_asking          = 0;
    uct_ofi_intro_t *intro;
    ucs_status_t status;

    if (send == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    intro        = (uct_ofi_intro_t *)send->buffer;
    send->peer   = peer;
    send->where  = peer->where;
    send->length = sizeof(intro->head);
    send->is_question = (type == UCT_OFI_PING);
    uct_ofi_peer_head(peer, &intro->head, type, 0, 0);
    intro->head.number = uct_ofi_say_number(peer, type);
    if ((type == UCT_OFI_HELLO) || (type == UCT_OFI_WELCOME) || (type == UCT_OFI_PING)) {
        uct_ofi_intro_fill(iface, intro, iface->super.params.uid, peer->uid,
                           peer->own_token ^ iface->secret);
        intro->answer = peer->heard_question;
        if (type == UCT_OFI_WELCOME) {
            intro->port = peer->is_port_asked ? uct_ofi_own_port(peer) : 0;
        } else if ((type == UCT_OFI_HELLO) || !peer->has_asked) {
            intro->port = (uint16_t)uct_ofi_asks_port(peer);
            is_asking   = (intro->port != 0);
        }
        send->length  = sizeof(*intro);
    }
    status = uct_ofi_send_post(iface, send);
    peer->has_asked |= is_asking && (status == UCS_OK);
    if (status == UCS_ERR_NO_RESOURCE) {
        uct_ofi_send_put(iface, send);
    } else if ((type == UCT_OFI_BYE) && (status == UCS_OK) && !peer->is_bye_said) {
        peer->is_bye_said = 1;
        ++peer->tx_count;
    }
    peer->is_hello_said |= (type == UCT_OFI_HELLO) && (status == UCS_OK);
    return status;
}

void uct_ofi_reject(uct_ofi_iface_t *iface, const uct_ofi_intro_t *asked, const uint8_t *raw,
                    int is_here)
{
    uct_ofi_intro_t *intro;
    uct_ofi_send_t *send;

    send = (iface->num_strangers < UCT_OFI_STRANGERS) ? uct_ofi_send_get(iface, NULL, 0) : NULL;
    if (send == NULL) {
        return;
    }
    send->where = uct_ofi_addr_get(iface, raw,
                                   asked->address_length - sizeof(uct_ofi_address_t));
    if (send->where == NULL) {
        uct_ofi_send_put(iface, send);
        return;
    }
    intro        = (uct_ofi_intro_t *)send->buffer;
    send->peer   = NULL;
    send->length = sizeof(*intro);
    intro->head  = (uct_ofi_head_t){.type   = UCT_OFI_REJECT,
                                    .am_id  = (uint8_t)is_here,
                                    .serial = iface->num_serials};
    uct_ofi_intro_fill(iface, intro, asked->to, asked->from, asked->token);
    switch (uct_ofi_send_post(iface, send)) {
    case UCS_OK:
        ++iface->num_strangers;
        break;
    case UCS_ERR_NO_RESOURCE:
        uct_ofi_send_put(iface, send);
        /* fallthrough */
    default:
        uct_ofi_addr_put(iface, send->where);
        break;
    }
}

/* Returns 1 when nothing is left to be said. Reads and writes that wait hold nothing else up. */
static int uct_ofi_speak(uct_ofi_peer_t *peer, unsigned *count_p)
{
    uct_ofi_iface_t *iface = peer->iface;
    uct_ofi_send_t *send;
    ucs_status_t status;
    int is_all = 1;
    size_t i;

    if (ucs_unlikely((peer->num_given_up > 0) && (peer->num_waiting > 0))) {
        uct_ofi_rma_drop_given_up(peer);
    }
    while (!ucs_list_is_empty(&peer->unsent)) {
        send   = ucs_list_extract_head(&peer->unsent, uct_ofi_send_t, queue);
        status = uct_ofi_send_post(iface, send);
        if (status == UCS_ERR_NO_RESOURCE) {
            ucs_list_add_head(&peer->unsent, &send->queue);
            return 0;
        }
        ++*count_p;
    }
    if (peer->status == UCS_OK) {
        is_all = uct_ofi_rma_post(peer, count_p);
    }
    if ((peer->pause_ns != 0) && (peer->say != 0)) {
        if (ucs_sys_clock_ns() < peer->pause_ns) {
            return 0;
        }
        peer->pause_ns = 0;
    }
    for (i = 0; (i < ucs_array_size(uct_ofi_says)) && (peer->say != 0); ++i) {
        unsigned bit = 1u << uct_ofi_says[i];

        if (!(peer->say & bit)) {
            continue;
        }
        status = uct_ofi_say_one(peer, uct_ofi_says[i]);
        if (status == UCS_ERR_NO_RESOURCE) {
            return 0;
        }
        peer->say &= ~bit;
        ++*count_p;
    }
    return is_all;
}

void uct_ofi_end_flushes(uct_ofi_peer_t *peer)
{
    uct_ofi_flush_t *flush;

    while (!ucs_list_is_empty(&peer->flushes)) {
        flush = ucs_list_head(&peer->flushes, uct_ofi_flush_t, list);
        if ((peer->status == UCS_OK) && ((int32_t)(peer->tx_taken - flush->count) < 0)) {
            return;
        }
        ucs_list_del(&flush->list);
        uct_completion_update(flush->comp, peer->status);
        ucs_sys_free(flush);
    }
}

static int uct_ofi_peer_is_needed(const uct_ofi_peer_t *peer)
{
    return (peer->num_under_way > 0) || !ucs_list_is_empty(&peer->waiting) ||
           !ucs_list_is_empty(&peer->eps) || peer->rx_open ||
           (peer->tx_state != UCT_OFI_TX_IDLE) || (peer->say != 0);
}

unsigned uct_ofi_peers_work(uct_ofi_iface_t *iface)
{
    unsigned count = 0;
    ucs_list_link_t todo;
    uct_ofi_peer_t *peer;

    ucs_list_head_init(&todo);
    ucs_list_splice_tail(&todo, &iface->todo);
    ucs_list_splice_tail(&todo, &iface->blocked);
    while (!ucs_list_is_empty(&todo)) {
        peer = ucs_list_extract_head(&todo, uct_ofi_peer_t, todo);
        if (!uct_ofi_speak(peer, &count)) {
            ucs_list_del(&peer->todo);
            ucs_list_add_tail(&iface->blocked, &peer->todo);
            uct_ofi_alive_blocked(peer);
        }
        if (peer->status != UCS_OK) {
            uct_ofi_end_flushes(peer);
            uct_ofi_rma_drop(peer);
            if (peer->is_gone_due) {
                peer->is_gone_due = 0;
                uct_ofi_gone(peer);
                ++count;
            }
        }
        if (!uct_ofi_peer_is_needed(peer)) {
            uct_ofi_peer_free(peer);
        }
    }
    return count;
}

/* ---- the end ---- */

/* 0: the provider does not take it all now. */
static int uct_ofi_say_farewell(uct_ofi_iface_t *iface)
{
    uct_ofi_peer_t *peer, *next;
    unsigned unused = 0;
    int is_all      = 1;

    ucs_list_for_each_safe(peer, next, &iface->peers, list) {
        if (!peer->rx_open && (peer->tx_state < UCT_OFI_TX_OPEN)) {
            continue;
        }
        if (!uct_ofi_speak(peer, &unused) ||
            ((peer->status == UCS_OK) &&
             (uct_ofi_say_one(peer, UCT_OFI_LEAVE) == UCS_ERR_NO_RESOURCE))) {
            is_all = 0;
            continue;
        }
        peer->rx_open  = 0; /* said */
        peer->tx_state = UCT_OFI_TX_IDLE;
    }
    return is_all;
}

/* Does a peer that is there still have to get a part of what was sent to it over TCP? */
static int uct_ofi_owes(const uct_ofi_iface_t *iface)
{
    const uct_ofi_peer_t *peer;

    if (!iface->is_tcp) {
        return 0;
    }
    ucs_list_for_each(peer, &iface->peers, list) {
        if (peer->is_known && (peer->num_under_way > peer->num_rmas)) {
            return 1;
        }
    }
    return uct_ofi_is_delivering(iface, NULL);
}

/* What the peer's kernel has it delivers. What ours still has it forgets, once the provider's
 * sockets are closed, as soon as the peer answers anything: so that has to leave before. Who takes
 * nothing, because it computes, has as long for it as for an answer. */
void uct_ofi_peers_leave(uct_ofi_iface_t *iface)
{
    uint64_t now_ns        = ucs_sys_clock_ns();
    const uint64_t end_ns  = now_ns + UCT_OFI_DRAIN_NS;
    const uint64_t late_ns = now_ns + (iface->super.is_abandoned ?
                                       0 : uct_ofi_config(iface)->timeout_ns);

    while (((!uct_ofi_say_farewell(iface) || (iface->num_under_way > 0)) && (now_ns < end_ns)) ||
           ((now_ns < late_ns) && uct_ofi_owes(iface))) {
        uct_ofi_poll(iface);
        now_ns = ucs_sys_clock_ns();
    }
    if (!iface->super.is_abandoned && (now_ns >= late_ns) && uct_ofi_owes(iface)) {
        ucs_diag("a network is closed before its peers have got all that was sent");
    }
}

void uct_ofi_peers_free(uct_ofi_iface_t *iface)
{
    uct_ofi_peer_t *peer;

    ucs_list_splice_tail(&iface->lost, &iface->peers);
    while (!ucs_list_is_empty(&iface->lost)) {
        peer = ucs_list_head(&iface->lost, uct_ofi_peer_t, list);
        if (peer->status == UCS_OK) {
            peer->status = UCS_ERR_CANCELED;
        }
        uct_ofi_end_flushes(peer);
        uct_ofi_rma_drop(peer);
        uct_ofi_peer_free(peer);
    }
}
