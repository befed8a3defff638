/* Halyard: rendezvous between devices of memory that cannot be shown to other processes.
 *
 * The sender copies its memory, a chunk at a time, into memory of the library's on the same device,
 * which the receiver can read. While the receiver reads one chunk (FRAG, FRAG_END) the next one is
 * filled. Where a step fails the rest goes as messages; and so does all where messages go over a
 * network: nothing would tell a receiver that the send has ended early, and another has the chunk.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>

/* Turns of progress without a chunk after which messages do it: peers that never read may have all
 * of them. */
#define UCP_RNDV_STAGED_TURNS 1000000

/* ---- sender ---- */

/* Bytes of the chunk that begins at an offset of the message. */
static size_t ucp_rndv_staged_length(const ucp_request_t *req, size_t offset)
{
    return ucs_min(req->send.end - offset, req->copy.chunks.pool->chunk);
}

/* What the receiver has not read is sent as messages. */
static void ucp_rndv_staged_give_up(ucp_request_t *req)
{
    size_t offset = req->send.offset;

    if ((req->copy.chunks.far != UCP_DEVICE_NO_CHUNK) && !req->copy.chunks.is_refused) {
        req->copy.chunks.is_failed = 1; /* goes on when the receiver has read that one */
        return;
    }
    if (req->copy.chunks.far != UCP_DEVICE_NO_CHUNK) {
        offset = req->copy.chunks.far_offset;
    } else if (req->copy.chunks.near != UCP_DEVICE_NO_CHUNK) {
        offset = req->copy.chunks.near_offset;
    }
    ucp_device_put_chunks(req);
    req->send.num_data = 0;
    ucp_rndv_add_data(req, offset, req->send.end - offset);
    ucp_rndv_start_data(req);
}

static void ucp_rndv_staged_filled(ucp_request_t *req, ucs_status_t status)
{
    if ((status != UCS_OK) || req->copy.chunks.is_refused) {
        ucp_device_chunk_put(req->copy.chunks.pool, &req->copy.chunks.near);
        ucp_rndv_staged_give_up(req);
        return;
    }
    req->copy.chunks.near_offset = req->send.offset;
    req->send.offset             += ucp_rndv_staged_length(req, req->send.offset);
    ucp_rndv_staged_go(req);
}

/* Starts to fill a chunk. UCS_ERR_NO_RESOURCE: none is free. */
static ucs_status_t ucp_rndv_staged_fill(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    ucs_status_t status;

    chunks->near = ucp_device_chunk_get(chunks->pool);
    if (chunks->near == UCP_DEVICE_NO_CHUNK) {
        return UCS_ERR_NO_RESOURCE;
    }
    status = ucp_device_copy_async(req, ucp_device_chunk_address(chunks->pool, chunks->near),
                                   (char *)req->buffer + req->send.offset,
                                   ucp_rndv_staged_length(req, req->send.offset),
                                   ucp_rndv_staged_filled);
    if (status != UCS_INPROGRESS) {
        ucp_device_chunk_put(chunks->pool, &chunks->near);
    }
    return status;
}

static void ucp_rndv_staged_announce(ucp_request_t *req)
{
    ucp_wire_frag_t frag = {
        .recv_id = req->send.recv_id,
        .offset  = req->copy.chunks.near_offset,
        .length  = ucp_rndv_staged_length(req, req->copy.chunks.near_offset),
        .address = (uintptr_t)ucp_device_chunk_address(req->copy.chunks.pool,
                                                       req->copy.chunks.near),
        .slot    = req->copy.slot
    };

    req->copy.chunks.far        = req->copy.chunks.near;
    req->copy.chunks.far_offset = req->copy.chunks.near_offset;
    req->copy.chunks.near       = UCP_DEVICE_NO_CHUNK;
    ucp_peer_send_control(req->send.peer, UCP_WIRE_FRAG, &frag, sizeof(frag));
}

void ucp_rndv_staged_go(ucp_request_t *req)
{
    ucp_device_pool_t *pool = req->copy.chunks.pool;
    ucs_status_t status     = UCS_INPROGRESS;

    if (ucs_unlikely(ucp_device_pool(req->worker, req->buffer, pool->device) != pool)) {
        ucp_rndv_staged_give_up(req); /* it went with its context */
        return;
    }
    if ((req->copy.chunks.near != UCP_DEVICE_NO_CHUNK) &&
        (req->copy.chunks.far == UCP_DEVICE_NO_CHUNK)) {
        ucp_rndv_staged_announce(req);
    }
    if ((req->copy.chunks.near == UCP_DEVICE_NO_CHUNK) && (req->send.offset < req->send.end)) {
        status = ucp_rndv_staged_fill(req);
    }
    if ((status == UCS_ERR_NO_RESOURCE) && (req->copy.chunks.far != UCP_DEVICE_NO_CHUNK)) {
        return; /* goes on when the receiver has read that one */
    }
    if ((status == UCS_ERR_NO_RESOURCE) && (++req->copy.chunks.turns < UCP_RNDV_STAGED_TURNS)) {
        ucp_request_add_work(req); /* others give theirs back */
    } else if (status != UCS_INPROGRESS) {
        ucp_rndv_staged_give_up(req);
    }
}

int ucp_rndv_staged_start(ucp_request_t *req, size_t offset, size_t length)
{
    const unsigned am = req->send.peer->lane_tl[UCP_LANE_AM];
    ucp_device_pool_t *pool;
    uct_mem_info_t info;
    unsigned slot;

    if (!ucp_rndv_device_is_way(req) || (req->worker->tls[am].early_ends == NULL)) {
        return 0;
    }
    pool = ucp_device_pool(req->worker, req->buffer, req->copy.info.device);
    if ((pool == NULL) || !ucp_device_query(req->worker, pool->mem->address, &info)) {
        return 0;
    }
    if (!(req->held & UCP_REQUEST_HOLDS_SLOT)) {
        if (ucp_device_tell(req->send.peer, &info, &slot) != UCS_OK) {
            return 0;
        }
        ucp_device_use_slot(req, slot);
    }
    req->send.offset            = offset;
    req->send.end               = offset + length;
    req->send.step              = UCP_SEND_STAGED;
    ucp_device_use_pool(req, pool);
    ucp_rndv_staged_go(req);
    return 1;
}

void ucp_rndv_frag_end_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_frag_end_t end;
    ucp_request_t *req;

    if (!ucp_wire_read(UCP_WIRE_FRAG_END, data, length, &end, sizeof(end))) {
        return;
    }
    req = ucp_rndv_find_send(arg, end.send_id, "FRAG_END");
    if ((req == NULL) || (req->send.step != UCP_SEND_STAGED) ||
        (req->copy.chunks.far == UCP_DEVICE_NO_CHUNK)) {
        return; /* it has ended, or a peer says what cannot be */
    }
    if (end.status != UCS_OK) {
        req->copy.chunks.is_refused = 1;
        if (!(req->held & UCP_REQUEST_HOLDS_COPY)) {
            ucp_rndv_staged_give_up(req);
        }
        return;
    }
    ucp_device_chunk_put(req->copy.chunks.pool, &req->copy.chunks.far);
    if (req->held & UCP_REQUEST_HOLDS_COPY) {
        return; /* goes on when the next chunk is filled */
    }
    if (req->copy.chunks.is_failed) {
        ucp_rndv_staged_give_up(req);
        return;
    }
    if ((req->send.offset == req->send.end) &&
        (req->copy.chunks.near == UCP_DEVICE_NO_CHUNK)) {
        ucp_device_put_chunks(req);
        ucp_rndv_send_end(req);
    } else {
        ucp_rndv_staged_go(req);
    }
}

/* ---- receiver ---- */

static void ucp_rndv_frag_answer(ucp_request_t *req, ucs_status_t status)
{
    ucp_wire_frag_end_t end = {.send_id = req->recv.send_id, .status = status};

    ucp_peer_send_control(req->recv.peer, UCP_WIRE_FRAG_END, &end, sizeof(end));
}

static void ucp_rndv_frag_read(ucp_request_t *req, ucs_status_t status)
{
    if ((status == UCS_OK) && !ucp_rndv_was_there(req)) {
        status = UCS_ERR_CANCELED; /* the chunk may have been another message's by then */
    }
    if (status == UCS_OK) {
        ucp_rndv_recv_count(req, req->recv.offset);
    }
    ucp_rndv_frag_answer(req, status);
    ucp_rndv_recv_check_end(req);
}

void ucp_rndv_frag_handle(void *arg, const void *data, size_t length)
{
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    ucp_wire_frag_t frag;
    ucp_request_t *req;
    uct_rkey_t *rkey;

    if (!ucp_wire_read(UCP_WIRE_FRAG, data, length, &frag, sizeof(frag))) {
        return;
    }
    req = ucp_rndv_find_recv(arg, frag.recv_id, frag.length, "FRAG");
    if (req == NULL) {
        return;
    }
    if ((req->recv.step != UCP_RECV_WAIT) || (req->held & UCP_REQUEST_HOLDS_COPY) ||
        !ucp_dt_is_device(req->datatype) || (frag.length == 0) ||
        (frag.offset < req->recv.base) ||
        (frag.offset - req->recv.base > req->recv.total - frag.length)) {
        ucs_warn("peer sent a FRAG that does not suit the message: dropped");
        return;
    }
    rkey             = ucp_device_heard(req->recv.peer, frag.slot);
    req->recv.offset = frag.length; /* this copy's */
    if (rkey != NULL) {
        status = ucp_device_transfer(req, req->recv.peer, rkey, frag.offset - req->recv.base,
                                     frag.length, frag.address, ucp_rndv_frag_read);
    }
    if (status != UCS_INPROGRESS) {
        ucp_rndv_frag_answer(req, (status == UCS_OK) ? UCS_ERR_IO_ERROR : status);
    }
}
