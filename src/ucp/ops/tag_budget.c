/* Halyard: the bound on messages that wait at their receiver.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/ops/tag_budget.h>
#include <ucs/debug/log.h>
#include <string.h>

static void ucp_tag_set_holding(ucp_peer_t *peer, int hold)
{
    peer->is_holding = (uint8_t)hold;
    ucp_peer_set_limits(peer);
}

static void ucp_tag_tell(ucp_peer_t *peer, int hold)
{
    ucp_wire_hold_t msg = {.hold = (uint32_t)hold};

    peer->is_held = (uint8_t)hold;
    if (memcmp(peer->uid, peer->worker->uid, UCT_UID_LEN) == 0) {
        ucp_tag_set_holding(peer, hold); /* a message to us would wait behind our own */
    } else if ((peer->status == UCS_OK) && !peer->is_gone) {
        ucp_peer_send_control(peer, UCP_WIRE_HOLD, &msg, sizeof(msg));
    }
}

void ucp_tag_budget_hold(ucp_worker_t *worker)
{
    ucp_peer_t *peer = ucp_peer_of_connection(worker);

    if ((peer != NULL) && !peer->is_held) {
        ucs_debug("messages that wait take %zu bytes: a peer is told to announce",
                  worker->unexp_bytes);
        worker->has_held = 1;
        ucp_tag_tell(peer, 1);
    }
}

void ucp_tag_budget_release(ucp_worker_t *worker)
{
    ucp_peer_t *peer;
    uint64_t *value;
    uint64_t key;
    size_t pos = 0;

    worker->has_held = 0;
    while (ucs_hash_next(&worker->peers, &pos, &key, &value)) {
        peer = (ucp_peer_t *)(uintptr_t)*value;
        if (peer->is_held) {
            ucp_tag_tell(peer, 0);
        }
    }
}

void ucp_tag_hold_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_wire_hold_t msg;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_HOLD, data, length, &msg, sizeof(msg))) {
        return;
    }
    peer = ucp_peer_of_connection(worker);
    if (peer != NULL) { /* else we have parted: nothing more goes there */
        ucp_tag_set_holding(peer, msg.hold != 0);
    }
}
