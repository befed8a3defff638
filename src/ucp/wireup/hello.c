/* Halyard: HELLO.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/ep.h>
#include <ucp/core/provisional.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/hello.h>
#include <ucs/debug/log.h>
#include <string.h>

ucs_status_t ucp_peer_send_hello(ucp_peer_t *peer)
{
    ucp_wire_hello_t hello = {.version = UCP_WIRE_VERSION};
    ucp_address_t *address;
    uct_iov_t iov[2];
    ucs_status_t status;

    if (peer->hello_sent) {
        return UCS_OK;
    }
    if (peer->is_provisional) {
        return UCS_ERR_NO_RESOURCE;
    }
    iov[0].buffer = &hello;
    iov[0].length = sizeof(hello);
    status        = ucp_worker_pack_address(peer->worker, UCP_ADDRESS_NEAR | UCP_ADDRESS_NET,
                                            &address, &iov[1].length);
    if (status != UCS_OK) {
        return status;
    }
    iov[1].buffer = address;
    status = peer->lanes[UCP_LANE_AM]->ops->am_short_iov(peer->lanes[UCP_LANE_AM], UCP_WIRE_HELLO,
                                                         iov, 2);
    if (status == UCS_OK) {
        peer->hello_sent = 1;
        ucp_peer_set_limits(peer);
    }
    ucp_worker_release_address(peer->worker, address);
    return status;
}

void ucp_hello_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_address_info_t info;
    ucp_wire_hello_t hello;
    uint8_t address[UCP_ADDRESS_MAX];
    size_t address_length;
    ucs_status_t status;
    ucp_peer_t *peer;

    if (!ucp_wire_accepts(UCP_WIRE_HELLO, length)) {
        return;
    }

    memcpy(&hello, data, sizeof(hello));
    address_length = ucs_min(length - sizeof(hello), sizeof(address));
    memcpy(address, (const char *)data + sizeof(hello),
           address_length); /* checked below, so no second look */
    if ((hello.version != UCP_WIRE_VERSION) ||
        (ucp_address_unpack(address, address_length, &info) != UCS_OK)) {
        ucs_warn(
            "peer speaks version %u of the protocol, this library %u, or sent no address: dropped",
            hello.version, UCP_WIRE_VERSION);
        ucp_worker_give_up_sender(worker, UCS_ERR_REJECTED);
        return;
    }
    if ((worker->sender != NULL) && (memcmp(info.uid, worker->sender, UCT_UID_LEN) != 0)) {
        ucs_warn("peer introduces itself by the identity of another: dropped");
        ucp_worker_give_up_sender(worker, UCS_ERR_REJECTED);
        return;
    }
    status = ucp_peer_get(worker, &info, &peer);
    if (status != UCS_OK) { /* it says itself what is wrong */
        ucp_worker_give_up_sender(worker, status);
        return;
    }
    if (peer->status != UCS_OK) {
        ucp_peer_hang_up(peer); /* no answer of ours would reach it; what it has sent counts */
    }
    if (peer->hello_received) {
        if (!peer->is_gone) { /* the end of the former connection has not come yet */
            ucp_peer_end_recvs(peer, UCS_ERR_CONNECTION_RESET, UCP_RECVS_ALL);
            ucp_stream_peer_gone(peer);
        }
        ucp_ep_pair_anew(peer);
    }
    peer->is_gone        = 0;
    peer->hello_received = 1;
    peer->is_held        = 0; /* what it was told before it has forgotten, if it came anew */
    peer->is_heard       = 1;
    peer->session        = ++worker->num_sessions;
    peer->lanes[UCP_LANE_AM]->was_met = 1;
    ucp_successors_rouse(worker); /* one may have asked for the way to it */
}
