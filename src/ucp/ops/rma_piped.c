/* Halyard: puts and gets between device memory here and memory of the host in another process: the
 * device copies between its memory and a chunk of pinned memory of ours, this processor between the
 * chunk and the peer, as in rndv_piped.c.
 *
 * Get: near: chunk that has been read; far: the one before, which the device empties. Put: near:
 * chunk that the device fills; far: the one before, which is to be written. send.offset: what lies
 * before it is in chunks, or has gone. What is not begun goes as messages where a step fails.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/rma.h>

static void ucp_rma_piped_go(ucp_request_t *req);

static int ucp_rma_is_put(const ucp_request_t *req)
{
    return req->kind == UCP_REQUEST_PUT;
}

static size_t ucp_rma_piped_length(const ucp_request_t *req, size_t offset)
{
    return ucs_min(req->length - offset, req->copy.chunks.pool->chunk);
}

/* What begins at `offset` goes another way. */
static void ucp_rma_piped_fail(ucp_request_t *req, size_t offset)
{
    req->copy.chunks.is_failed = 1;
    req->send.offset           = ucs_min(req->send.offset, offset);
}

/* This processor's copy between a chunk and the peer. */
static void ucp_rma_piped_move(ucp_request_t *req, unsigned chunk, size_t offset)
{
    ucp_peer_t *peer = req->send.peer;
    uct_ep_t *lane   = peer->lanes[UCP_LANE_COPY];
    uct_iov_t iov    = {ucp_device_chunk_address(req->copy.chunks.pool, chunk),
                        ucp_rma_piped_length(req, offset), NULL};
    ucs_status_t status;

    status = (ucp_rma_is_put(req) ? lane->ops->put_zcopy : lane->ops->get_zcopy)(
        lane, &iov, 1, req->send.remote_addr + offset, NULL, NULL);
    if (ucs_unlikely(status != UCS_OK)) {
        ucp_rma_piped_fail(req, offset);
        if (status != UCS_ERR_NO_RESOURCE) {
            ucp_peer_copy_failed(peer, status);
        }
    }
}

static void ucp_rma_piped_copied(ucp_request_t *req, ucs_status_t status)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (ucs_unlikely(status != UCS_OK)) { /* the device may still copy, so no other way is tried */
        ucp_request_complete(req, status);
        return;
    }
    if (!ucp_rma_is_put(req)) {
        ucp_device_chunk_put(chunks->pool, chunks->far);
        chunks->far = UCP_DEVICE_NO_CHUNK;
    }
    ucp_rma_piped_go(req);
}

/* Has the device copy between its memory and the near chunk. 0: it has failed. */
static int ucp_rma_piped_copy(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    char *own            = (char *)req->buffer + chunks->near_offset;
    char *chunk          = ucp_device_chunk_address(chunks->pool, chunks->near);
    ucs_status_t status;

    status = ucp_device_copy_async(req, ucp_rma_is_put(req) ? chunk : own,
                                   ucp_rma_is_put(req) ? own : chunk,
                                   ucp_rma_piped_length(req, chunks->near_offset),
                                   ucp_rma_piped_copied);
    if (ucs_unlikely(status != UCS_INPROGRESS)) {
        ucp_rma_piped_fail(req, chunks->near_offset);
    }
    return status == UCS_INPROGRESS;
}

/* Takes a chunk for the next bytes. 0: none is free, a turn follows when one is. */
static int ucp_rma_piped_begin(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    chunks->near = (uint8_t)ucp_device_chunk_get(chunks->pool);
    if (chunks->near == UCP_DEVICE_NO_CHUNK) {
        ucp_device_chunk_wait(req);
        return 0;
    }
    chunks->near_offset = req->send.offset;
    req->send.offset   += ucp_rma_piped_length(req, req->send.offset);
    return 1;
}

/* Passes the near chunk on, where the far one is free, and begins the next one, which is a turn of
 * its own where this processor begins. */
static void ucp_rma_piped_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    const int is_put     = ucp_rma_is_put(req);

    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK) &&
        !chunks->is_failed && !(req->held & UCP_REQUEST_HOLDS_COPY) &&
        (is_put || ucp_rma_piped_copy(req))) {
        chunks->far        = chunks->near;
        chunks->far_offset = chunks->near_offset;
        chunks->near       = UCP_DEVICE_NO_CHUNK;
    }
    if (is_put && (chunks->far != UCP_DEVICE_NO_CHUNK)) {
        ucp_request_want_work(req); /* before it could wait for a chunk */
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && !chunks->is_failed &&
        (req->send.offset < req->length)) {
        if (!is_put) {
            ucp_request_want_work(req);
        } else if (ucp_rma_piped_begin(req)) {
            (void)ucp_rma_piped_copy(req);
        }
    }
    if ((chunks->far != UCP_DEVICE_NO_CHUNK) || (req->held & UCP_REQUEST_HOLDS_COPY)) {
        return;
    }
    if (chunks->is_failed) {
        if (req->held & UCP_REQUEST_HOLDS_WORK) {
            ucp_request_del_work(req);
        }
        ucp_device_put_chunks(req);
        ucp_rma_start_messages(req);
    } else if ((chunks->near == UCP_DEVICE_NO_CHUNK) && (req->send.offset == req->length)) {
        ucp_request_complete(req, UCS_OK);
    }
}

void ucp_rma_piped_turn(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (!ucp_rma_is_put(req)) {
        if (!ucp_rma_piped_begin(req)) {
            return;
        }
        ucp_rma_piped_move(req, chunks->near, chunks->near_offset);
    } else if (chunks->far != UCP_DEVICE_NO_CHUNK) {
        ucp_rma_piped_move(req, chunks->far, chunks->far_offset);
        ucp_device_chunk_put(chunks->pool, chunks->far);
        chunks->far = UCP_DEVICE_NO_CHUNK;
    }
    ucp_rma_piped_go(req);
}

int ucp_rma_can_pipe(const ucp_request_t *req)
{
    const uct_ep_ops_t *ops;

    if ((req->kind == UCP_REQUEST_ATOMIC) || !ucp_dt_is_device(req->datatype) ||
        req->send.to_device || !ucp_peer_can_copy(req->send.peer)) {
        return 0;
    }
    ops = req->send.peer->lanes[UCP_LANE_COPY]->ops;
    return (ucp_rma_is_put(req) ? ops->put_zcopy : ops->get_zcopy) != NULL;
}

int ucp_rma_piped_start(ucp_request_t *req)
{
    ucp_device_pool_t *pool;

    pool = ucp_rma_can_pipe(req) ? ucp_device_host_pool(req->worker, req->buffer, req->length) :
                                   NULL;
    if (pool == NULL) {
        return 0;
    }
    req->send.step = UCP_SEND_DEVICE;
    ucp_device_use_pool(req, pool);
    ucp_rma_piped_turn(req);
    return 1;
}
