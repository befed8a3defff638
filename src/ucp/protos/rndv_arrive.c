/* Halyard: rendezvous, the receiver's side: what comes from the sender.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/am.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <string.h>

ucp_peer_t *ucp_rndv_read_rts(ucp_worker_t *worker, unsigned id, const void *data, size_t length,
                              ucp_wire_rts_t *rts)
{
    size_t rts_length;

    if (!ucp_wire_accepts(id, length)) {
        return NULL;
    }
    rts_length = ucp_wire_rts_read(data, length, rts);
    if (ucs_unlikely((rts_length == 0) || ((id != UCP_WIRE_AM_RTS) && (rts_length != length)))) {
        ucs_warn("a peer's message %s has %zu bytes: dropped", ucp_wire_table[id].name, length);
        return NULL;
    }
    return ucp_peer_of_sender(worker, rts->worker_id, ucp_wire_table[id].name);
}

void ucp_rndv_drop(ucp_worker_t *worker, const ucp_wire_rts_t *rts, ucs_status_t status)
{
    ucp_peer_t *peer = ucp_peer_find(worker, rts->worker_id);

    if (peer != NULL) {
        ucp_rndv_answer(peer, rts->request_id, status);
    }
}

void ucp_rndv_rts_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_recv_desc_t *desc;
    ucp_wire_rts_t rts;
    ucp_request_t *req;
    ucp_peer_t *peer;

    peer = ucp_rndv_read_rts(worker, UCP_WIRE_RTS, data, length, &rts);
    if (peer == NULL) {
        return;
    }

    peer->is_unanswered = 0;
    req                 = ucp_tag_match_arrive(&worker->tag_match, rts.tag);
    if (req != NULL) {
        ucp_rndv_recv_start(req, peer, &rts, 1);
        return;
    }
    desc = ucp_worker_data_get(worker, sizeof(*desc) + sizeof(rts));
    if (desc == NULL) {
        ucs_error("no memory to keep the announcement of a message with tag 0x%lx: it is refused",
                  (unsigned long)rts.tag);
        ucp_rndv_answer(peer, rts.request_id, UCS_ERR_NO_MEMORY);
        return;
    }
    desc->tag        = rts.tag;
    desc->length     = rts.length;
    desc->worker_id  = rts.worker_id;
    desc->session    = peer->session;
    desc->request_id = rts.request_id;
    desc->kind       = UCP_TAG_MSG_RTS;
    memcpy(desc + 1, &rts, sizeof(rts));
    ucp_worker_count(worker, UCP_COUNT_UNEXPECTED);
    ucp_tag_match_add_unexpected(&worker->tag_match, desc);
}

ucp_request_t *ucp_rndv_find_recv(ucp_worker_t *worker, uint64_t id, uint64_t length,
                                  const char *what)
{
    ucp_request_t *req = ucs_ptr_map_get(&worker->ids, id);

    if ((req == NULL) || !ucp_request_is_recv(req) || !ucp_peer_is_sender(req->recv.peer)) {
        ucs_debug("%s for a receive that has ended: dropped", what);
        return NULL;
    }
    if (length > req->recv.total - req->recv.received) {
        ucs_warn("%s for more bytes than the message has left: dropped", what);
        return NULL;
    }
    return req;
}

void ucp_rndv_data_handle(void *arg, const void *data, size_t length)
{
    ucs_status_t status = UCS_OK;
    ucp_device_user_t user;
    ucp_wire_data_t head;
    ucp_request_t *req;
    size_t offset;

    if (!ucp_wire_read(UCP_WIRE_DATA, data, length, &head, sizeof(head))) {
        return;
    }
    length -= sizeof(head);
    req     = ucp_rndv_find_recv(arg, head.recv_id, length, "DATA");
    if (req == NULL) {
        return;
    }
    if ((head.offset < req->recv.base) || (length > req->recv.total) ||
        (head.offset - req->recv.base > req->recv.total - length)) {
        ucs_warn("peer sent DATA that ends behind the message: dropped");
        return;
    }

    ++req->recv.peer->num_data;
    offset = head.offset - req->recv.base;
    data   = (const char *)data + sizeof(head);
    if (ucp_dt_is_device(req->datatype)) {
        req->held |= UCP_REQUEST_HOLDS_WINDOW;
        user       = (ucp_device_user_t){.id = req, .result = &req->recv.result};
        ucp_device_write(req->worker, &user, (char *)req->buffer + offset,
                         req->recv.total - req->recv.received, data, length);
    } else if (ucs_unlikely(req->recv.is_suspect | req->recv.is_written) &&
               ucp_dt_is_contig(req->datatype) &&
               !ucs_sys_populate((const char *)req->buffer + offset, length, 1)) {
        status = UCS_ERR_INVALID_ADDR; /* what a copy could not be written to is not there */
    } else {
        status = ucp_dt_unpack(req, offset, data, length);
    }
    if ((status != UCS_OK) && (req->recv.result == UCS_OK)) {
        req->recv.result = status;
    }
    req->recv.received += length;
    ucp_rndv_recv_check_end(req);
}

void ucp_rndv_fin_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_fin_t fin;
    ucp_request_t *req;

    if (!ucp_wire_read(UCP_WIRE_FIN, data, length, &fin, sizeof(fin))) {
        return;
    }
    req = ucp_rndv_find_recv(arg, fin.recv_id, fin.length, "FIN");
    if (req != NULL) {
        ++req->recv.peer->num_data;
        req->recv.received += fin.length;
        ucp_rndv_recv_check_end(req);
    }
}

/* A message that was announced and has not met its receive yet. */
static ucp_recv_desc_t *ucp_rndv_find_announced(const ucs_list_link_t *list, uint64_t worker_id,
                                                uint64_t send_id)
{
    ucp_recv_desc_t *desc;

    ucs_list_for_each(desc, list, arrival) {
        if ((desc->kind == UCP_TAG_MSG_RTS) && (desc->worker_id == worker_id) &&
            (desc->request_id == send_id)) {
            return desc;
        }
    }
    return NULL;
}

ucs_status_t ucp_rndv_status_there(int32_t status, ucs_status_t unless)
{
    const ucs_status_t there = ucp_wire_status(status, unless);

    return (there == UCS_ERR_CANCELED) ? UCS_ERR_CONNECTION_RESET : there;
}

/* Ends what is there of an announced message. 0: the network or a device reads it still; of a
 * device no answer follows, which takes no longer than its sender waits. */
static int ucp_rndv_cancel(ucp_peer_t *peer, uint64_t send_id, ucs_status_t status)
{
    const uint64_t id    = ucp_uid_id(peer->uid);
    ucp_worker_t *worker = peer->worker;
    ucp_recv_desc_t *desc;
    ucp_request_t *req;
    int is_read;

    ucs_list_for_each(req, &peer->recvs, list) {
        if (req->recv.send_id == send_id) {
            is_read = ((req->recv.step == UCP_RECV_READ) || (req->recv.step == UCP_RECV_DEVICE)) &&
                      (req->held & UCP_REQUEST_HOLDS_COPY);
            ucp_request_complete(req, status);
            return !is_read;
        }
    }
    desc = ucp_rndv_find_announced(&worker->tag_match.arrival, id, send_id);
    if (desc != NULL) {
        ucp_tag_match_del_unexpected(&worker->tag_match, desc);
        ucp_worker_data_put(desc);
        return 1;
    }
    desc = ucp_rndv_find_announced(&worker->tag_match.taken, id, send_id);
    if (desc != NULL) {
        desc->worker_id = 0; /* as of a peer that is gone */
        return 1;
    }
    ucp_am_cancelled(peer, send_id);
    ucp_stream_cancelled(peer, send_id, status);
    return 1;
}

void ucp_rndv_cancel_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_cancel_t cancel;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_CANCEL, data, length, &cancel, sizeof(cancel))) {
        return;
    }
    peer = ucp_peer_of_connection(arg);
    if ((peer != NULL) &&
        ucp_rndv_cancel(peer, cancel.send_id,
                        ucp_rndv_status_there(cancel.status, UCS_ERR_CONNECTION_RESET)) &&
        (cancel.flags & UCP_WIRE_CANCEL_ASKS)) {
        ucp_rndv_answer(peer, cancel.send_id, UCS_OK);
    }
}
