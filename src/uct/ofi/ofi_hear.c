/* Halyard: ofi: hearing: what peers say, in order, once, and only what they say now.
 * See ofi_wire.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

void uct_ofi_peer_heard(uct_ofi_peer_t *peer)
{
    peer->is_heard = 1;
    peer->is_known = 1;
    peer->num_lost = 0;
    if (ucs_unlikely(peer->asked_ns != 0)) {
        peer->asked_ns   = 0;
        peer->num_probes = 0;
        uct_ofi_probe_end(peer);
    }
}

/* By a message: providers may serve reads of its memory while its process does nothing. */
static void uct_ofi_peer_spoke(uct_ofi_peer_t *peer)
{
    peer->has_spoken = 1;
    uct_ofi_peer_heard(peer);
}

static void uct_ofi_tx_closed(uct_ofi_peer_t *peer)
{
    peer->tx_state    = UCT_OFI_TX_IDLE;
    peer->is_bye_said = 0;
    peer->say        &= ~(unsigned)UCT_OFI_SAY_BYE;
    if (!ucs_list_is_empty(&peer->eps)) {
        uct_ofi_tx_open(peer); /* somebody came meanwhile */
    } else {
        uct_ofi_peer_say(peer, 0);
    }
}

/* What the peer has opened is closed. */
static void uct_ofi_rx_closed(uct_ofi_peer_t *peer)
{
    peer->rx_open     = 0;
    peer->is_unwanted = 0;
    peer->say        &= ~(unsigned)(UCT_OFI_SAY_WELCOME | UCT_OFI_SAY_DROP);
    uct_ofi_gone(peer);
}

/* The peer has given up what it had with us, so what we have with it is over; endpoints that have
 * sent nothing go on with what it makes next. 0: there are others, and it has failed. */
static int uct_ofi_forgotten(uct_ofi_peer_t *peer)
{
    if ((peer->tx_state == UCT_OFI_TX_OPEN) || !ucs_list_is_empty(&peer->flushes) ||
        !ucs_list_is_empty(&peer->unsent) || (peer->num_rmas > 0) ||
        !ucs_list_is_empty(&peer->waiting)) {
        uct_ofi_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
        return 0;
    }
    if (peer->tx_state == UCT_OFI_TX_CLOSING) {
        peer->tx_taken = peer->tx_count;
        uct_ofi_tx_closed(peer);
    }
    if (peer->rx_open) {
        uct_ofi_rx_closed(peer);
        uct_ofi_drop_early(peer);
    }
    peer->rx_was_open = 0;
    return peer->status == UCS_OK;
}

/* Is what came said by the peer's side of now? If another side proves to be that, it is the one of
 * now: by our token if it is a later one, or by its answer to our question. */
static int uct_ofi_is_current(uct_ofi_peer_t *peer, uint32_t serial, int has_token,
                              uint32_t answer)
{
    if (ucs_likely(serial == peer->serial)) {
        return 1;
    }
    if ((peer->serial != 0) && (!has_token || ((int32_t)(serial - peer->serial) < 0)) &&
        ((answer == 0) || (answer != peer->question))) {
        ucs_debug("a message of another connection is dropped, the peer is asked");
        if (peer->question == 0) {
            peer->question = (uint32_t)ucs_sys_random64() | 1;
        }
        uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
        return 0;
    }
    if ((peer->serial != 0) && !uct_ofi_forgotten(peer)) {
        return 0;
    }
    peer->serial   = serial;
    peer->question = 0;
    return 1;
}

/* The peer tells how many messages it has taken. */
static void uct_ofi_taken(uct_ofi_peer_t *peer, uint32_t taken)
{
    if ((peer->tx_state < UCT_OFI_TX_OPEN) ||
        ((taken - peer->tx_taken) > (peer->tx_count - peer->tx_taken))) {
        return; /* of an earlier connection, or nonsense */
    }
    peer->tx_taken = taken;
    if (ucs_unlikely(!ucs_list_is_empty(&peer->flushes))) {
        uct_ofi_end_flushes(peer);
    }
    if (ucs_unlikely((peer->tx_state == UCT_OFI_TX_CLOSING) && (taken == peer->tx_count) &&
                     peer->is_bye_said)) {
        uct_ofi_tx_closed(peer);
    }
}

static void uct_ofi_welcomed(uct_ofi_peer_t *peer, const uct_ofi_intro_t *intro)
{
    uct_ofi_ep_t *ep, *next;

    if (peer->has_asked) {
        peer->port = intro->port;
    }
    if ((peer->tx_state != UCT_OFI_TX_OPENING) ||
        ((int32_t)(intro->head.taken - peer->tx_base) < 0) ||
        (memcmp(intro->from, peer->uid, UCT_UID_LEN) != 0)) {
        return;
    }
    peer->say     &= ~(unsigned)UCT_OFI_SAY_HELLO;
    peer->token    = intro->token;
    peer->tx_base  = intro->head.taken; /* or where somebody else has made it begin */
    peer->tx_count = intro->head.taken;
    peer->tx_taken = intro->head.taken;
    peer->tx_state = UCT_OFI_TX_OPEN;
    if (ucs_list_is_empty(&peer->eps)) {
        uct_ofi_tx_close(peer);
    }
    ucs_list_for_each_safe(ep, next, &peer->eps, peer_list) {
        uct_ep_set_live(&ep->super);
    }
}

/* A peer opens its direction, by the number of its next message. 0: it did so before, and that is
 * over, or it has failed. */
static int uct_ofi_rx_open(uct_ofi_peer_t *peer, uint32_t number)
{
    if (peer->rx_open) {
        if ((peer->rx_count != peer->rx_base) || ((int32_t)(number - peer->rx_base) <= 0)) {
            return 1; /* the welcome says where it begins */
        }
        uct_ofi_rx_closed(peer); /* nothing has come: it was opened by a late word */
        uct_ofi_drop_early(peer);
        if (peer->status != UCS_OK) { /* who was told has said something, in vain */
            return 0;
        }
    } else if (peer->rx_was_open && (number != peer->rx_count)) {
        return 0;
    }
    peer->rx_open     = 1;
    peer->rx_was_open = 1;
    peer->rx_discard  = 0;
    peer->rx_base     = number;
    peer->rx_count    = number;
    if (peer->tx_state == UCT_OFI_TX_OPENING) {
        /* Where both connect at once the provider net loses the one's without a word. */
        uct_ofi_peer_say(peer, UCT_OFI_SAY_HELLO);
    }
    return 1;
}

static void uct_ofi_rejected(uct_ofi_peer_t *peer, const uct_ofi_head_t *head)
{
    if (!head->am_id) {
        uct_ofi_peer_fail(peer, uct_ofi_peer_lost(peer));
    } else if ((peer->serial == 0) || ((int32_t)(head->serial - peer->serial) >= 0)) {
        if (uct_ofi_forgotten(peer)) {
            uct_ofi_peer_spoke(peer);
        }
    } /* else: it knows us again */
}

/* HELLO, PING, REJECT: from somebody who knows no token of ours. */
static void uct_ofi_introduced(uct_ofi_iface_t *iface, const uct_ofi_intro_t *intro)
{
    char reason[UCT_REASON_MAX];
    uct_ofi_peer_t *peer;
    const uint8_t *raw;
    int is_here;

    if ((intro->version != UCT_OFI_VERSION) ||
        (uct_ofi_address_parse(iface, intro->address, intro->address_length, 1, &raw, reason) !=
         UCS_OK)) {
        ucs_debug("an introduction that makes no sense is dropped");
        return;
    }
    peer = uct_ofi_peer_find(iface, intro->from);
    if (intro->head.type == UCT_OFI_REJECT) {
        if ((peer != NULL) && (intro->token == (peer->own_token ^ iface->secret))) {
            uct_ofi_rejected(peer, &intro->head);
        }
        return;
    }
    is_here = (memcmp(intro->to, iface->super.params.uid, UCT_UID_LEN) == 0);
    if (!is_here || ((intro->head.type == UCT_OFI_PING) && (peer == NULL))) {
        uct_ofi_reject(iface, intro, raw, is_here);
        return;
    }
    if ((peer != NULL) && (intro->head.type == UCT_OFI_PING)) {
        peer->heard_question = intro->head.number; /* whoever asks */
    }
    if ((peer != NULL) && !uct_ofi_is_current(peer, intro->head.serial, 0, intro->answer)) {
        if ((peer->status == UCS_OK) || (intro->head.type == UCT_OFI_PING)) {
            return;
        }
        peer = NULL; /* it has given us up, and begins anew */
    }
    if (intro->head.type == UCT_OFI_HELLO) {
        if ((peer == NULL) &&
            (uct_ofi_peer_get(iface, intro->from, raw,
                              intro->address_length - sizeof(uct_ofi_address_t), &peer) !=
             UCS_OK)) {
            ucs_warn("no memory for a peer, or half of its name is another's: it is refused");
            uct_ofi_reject(iface, intro, raw, 0);
            return;
        }
        peer->serial = intro->head.serial;
        if (!uct_ofi_rx_open(peer, intro->head.number)) {
            return;
        }
        peer->is_port_asked = (intro->port != 0) && iface->is_tcp;
        uct_ofi_peer_say(peer, UCT_OFI_SAY_WELCOME);
    } else {
        if ((intro->port != 0) && iface->is_tcp && peer->rx_open) {
            peer->is_port_asked = 1;
            uct_ofi_peer_say(peer, UCT_OFI_SAY_WELCOME);
        }
        uct_ofi_peer_say(peer, ((intro->head.number != 0) && peer->is_hello_said &&
                                (peer->tx_state == UCT_OFI_TX_OPENING)) ?
                                   UCT_OFI_SAY_ACK | UCT_OFI_SAY_HELLO : UCT_OFI_SAY_ACK);
    }
    if (peer->tx_state < UCT_OFI_TX_OPEN) {
        peer->token = intro->token; /* else it has been told by who answered to our name for it */
    }
    uct_ofi_peer_spoke(peer);
}

static void uct_ofi_take(uct_ofi_peer_t *peer, const uct_ofi_head_t *head, const char *data,
                         size_t length)
{
    uct_ofi_iface_t *iface = peer->iface;

    ++peer->rx_count;
    if (ucs_likely(head->type == UCT_OFI_DATA)) {
        if (ucs_unlikely((peer->rx_count - peer->rx_told) >= (UCT_OFI_WINDOW / 4))) {
            uct_ofi_peer_say(peer, UCT_OFI_SAY_ACK);
        }
        if (ucs_likely(!peer->rx_discard && (head->pad <= (length - sizeof(*head))))) {
            *iface->super.params.sender = peer->uid;
            uct_iface_deliver(&iface->super, head->am_id, data + sizeof(*head),
                              length - sizeof(*head) - head->pad);
        }
    } else if (head->type == UCT_OFI_BYE) {
        uct_ofi_peer_say(peer, UCT_OFI_SAY_ACK);
        uct_ofi_rx_closed(peer);
    } else { /* its interface is closed */
        uct_ofi_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
    }
}

/* Keeps a message until those before it have come. */
static void uct_ofi_keep(uct_ofi_peer_t *peer, uint32_t ahead, const char *data, size_t length)
{
    uct_ofi_early_t *early = ucs_sys_malloc(sizeof(*early) + length);
    uct_ofi_early_t *other;
    uct_ofi_head_t head;

    if (early == NULL) {
        ucs_error("no memory for a message that came before its turn: its sender is given up");
        uct_ofi_peer_fail(peer, UCS_ERR_NO_MEMORY);
        return;
    }
    early->length = length;
    memcpy(early->data, data, length);
    ucs_list_for_each(other, &peer->early, list) {
        memcpy(&head, other->data, sizeof(head));
        if ((head.number - peer->rx_count) == ahead) {
            ucs_sys_free(early); /* twice the same */
            return;
        }
        if ((head.number - peer->rx_count) > ahead) {
            break;
        }
    }
    ucs_list_insert_before(&other->list, &early->list);
}

/* Behind a farewell comes nothing but the interface's. */
static void uct_ofi_take_early(uct_ofi_peer_t *peer)
{
    uct_ofi_early_t *early;
    uct_ofi_head_t head;

    while (!ucs_list_is_empty(&peer->early) && (peer->status == UCS_OK)) {
        early = ucs_list_head(&peer->early, uct_ofi_early_t, list);
        memcpy(&head, early->data, sizeof(head));
        if ((head.number != peer->rx_count) || (!peer->rx_open && (head.type != UCT_OFI_LEAVE))) {
            break;
        }
        ucs_list_del(&early->list);
        uct_ofi_take(peer, &head, early->data, early->length);
        ucs_sys_free(early);
    }
    if (!peer->rx_open) {
        uct_ofi_drop_early(peer);
    }
}

static void uct_ofi_counted(uct_ofi_peer_t *peer, const uct_ofi_head_t *head, const char *data,
                            size_t length)
{
    uint32_t ahead = head->number - peer->rx_count;

    if (!peer->rx_open) {
        if (head->type == UCT_OFI_LEAVE) {
            uct_ofi_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
        }
    } else if (ucs_likely(ahead == 0)) {
        uct_ofi_take(peer, head, data, length);
        if (ucs_unlikely(!ucs_list_is_empty(&peer->early))) {
            uct_ofi_take_early(peer);
        }
    } else if (ahead <= (UCT_OFI_WINDOW + 1)) {
        uct_ofi_keep(peer, ahead, data, length);
    } /* else: had already, or nonsense */
}

void uct_ofi_receive(uct_ofi_iface_t *iface, const char *data, size_t length)
{
    uct_ofi_peer_t *peer;
    uct_ofi_intro_t intro;
    uct_ofi_head_t head;
    int is_intro;

    memcpy(&head, data, sizeof(head));
    is_intro = (head.type == UCT_OFI_HELLO) || (head.type == UCT_OFI_WELCOME) ||
               (head.type == UCT_OFI_PING) || (head.type == UCT_OFI_REJECT);
    if (iface->is_closing || (is_intro && (length < sizeof(intro)))) {
        return;
    }
    if (is_intro) {
        memcpy(&intro, data, sizeof(intro));
        if (head.type != UCT_OFI_WELCOME) {
            uct_ofi_introduced(iface, &intro);
            return;
        }
    }

    peer = ucs_ptr_map_get(&iface->by_token, head.token ^ iface->secret);
    if (ucs_unlikely(peer == NULL)) {
        ucs_debug("a message of kind %u for nobody is dropped", head.type);
        return;
    }
    if (!uct_ofi_is_current(peer, head.serial, 1,
                            (head.type == UCT_OFI_ACK)     ? head.number :
                            (head.type == UCT_OFI_WELCOME) ? intro.answer : 0)) {
        return;
    }
    uct_ofi_peer_spoke(peer);
    uct_ofi_taken(peer, head.taken);
    switch (head.type) {
    case UCT_OFI_DATA:
    case UCT_OFI_BYE:
    case UCT_OFI_LEAVE:
        uct_ofi_counted(peer, &head, data, length);
        break;
    case UCT_OFI_WELCOME:
        uct_ofi_welcomed(peer, &intro);
        break;
    case UCT_OFI_DROP:
        if (((peer->tx_state == UCT_OFI_TX_OPENING) || (peer->tx_state == UCT_OFI_TX_OPEN)) &&
            (head.number == peer->tx_base)) {
            uct_ofi_fail_eps(peer, UCS_ERR_CONNECTION_RESET);
        }
        break;
    default:
        break;
    }
}
