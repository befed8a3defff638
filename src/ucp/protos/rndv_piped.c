/* Halyard: rendezvous between device memory here and memory of the host in another process: the
 * device copies between its memory and a chunk of pinned memory of ours, this processor between
 * the chunk and the peer, one chunk while the device has another one.
 *
 * Receiver (step GET): far: chunk that the device empties; near: the next one, which has been read.
 * Sender (step PUT): near: chunk that the device fills; far: the one before, which is written.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/protos/rndv.h>

static size_t ucp_rndv_piped_length(const ucp_request_t *req, size_t offset, size_t end)
{
    return ucs_min(end - offset, req->copy.chunks.pool->chunk);
}

static char *ucp_rndv_piped_chunk(const ucp_request_t *req, unsigned chunk)
{
    return ucp_device_chunk_address(req->copy.chunks.pool, chunk);
}

static void ucp_rndv_piped_put(ucp_request_t *req, uint8_t *chunk)
{
    ucp_device_chunk_put(req->copy.chunks.pool, *chunk);
    *chunk = UCP_DEVICE_NO_CHUNK;
}

int ucp_rndv_piped_start(ucp_request_t *req)
{
    ucp_device_pool_t *pool = ucp_device_pool(req->worker, req->buffer, UCP_DEVICE_HOST);

    if (pool == NULL) {
        return 0;
    }
    ucp_device_use_pool(req, pool);
    ucp_request_add_work(req);
    return 1;
}

/* The processor's turn is due, unless it is already. */
static void ucp_rndv_piped_want_turn(ucp_request_t *req)
{
    if (!(req->held & UCP_REQUEST_HOLDS_WORK)) {
        ucp_request_add_work(req);
    }
}

/* ---- receiver ---- */

static void ucp_rndv_pull_go(ucp_request_t *req);

static void ucp_rndv_pull_stored(ucp_request_t *req, ucs_status_t status)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    size_t length        = ucp_rndv_piped_length(req, chunks->far_offset, req->recv.total);

    if ((status != UCS_OK) && (req->recv.result == UCS_OK)) {
        req->recv.result = status;
    }
    ucp_rndv_recv_count(req, length);
    ucp_rndv_piped_put(req, &chunks->far);
    ucp_rndv_pull_go(req);
}

/* Hands the chunk that has been read to the device. Not zero while the device copies; else it has
 * ended, and all that follows from it, which may be the end of the request. */
static int ucp_rndv_pull_store(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    size_t length        = ucp_rndv_piped_length(req, chunks->near_offset, req->recv.total);
    char *dest           = (char *)req->buffer + chunks->near_offset;
    ucs_status_t status;

    chunks->far        = chunks->near;
    chunks->far_offset = chunks->near_offset;
    chunks->near       = UCP_DEVICE_NO_CHUNK;
    status = ucp_device_copy_async(req, dest, ucp_rndv_piped_chunk(req, chunks->far), length,
                                   ucp_rndv_pull_stored);
    if (ucs_likely(status == UCS_INPROGRESS)) {
        return 1;
    }
    status = ucp_device_copy(req->worker, dest, ucp_rndv_piped_chunk(req, chunks->far), length);
    ucp_rndv_pull_stored(req, status);
    return 0;
}

static void ucp_rndv_pull_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK) &&
        !ucp_rndv_pull_store(req)) {
        return;
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && !chunks->is_failed &&
        (req->recv.offset < req->recv.total)) {
        ucp_rndv_piped_want_turn(req);
    } else if ((chunks->near == UCP_DEVICE_NO_CHUNK) && (chunks->far == UCP_DEVICE_NO_CHUNK)) {
        ucp_device_put_chunks(req);
        if (chunks->is_failed) {
            ucp_rndv_ask_for_rest(req, req->recv.offset, req->recv.total - req->recv.offset);
            return;
        }
        ucp_rndv_recv_read_all(req); /* not before: the sender may leave after it */
    }
}

void ucp_rndv_pull_turn(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    size_t length        = ucp_rndv_piped_length(req, req->recv.offset, req->recv.total);

    chunks->near = (uint8_t)ucp_device_chunk_get(chunks->pool);
    if (chunks->near == UCP_DEVICE_NO_CHUNK) {
        ucp_request_add_work(req); /* others of this worker have them, and go on */
        return;
    }
    chunks->near_offset = req->recv.offset;
    if (ucp_rndv_read(req, ucp_rndv_piped_chunk(req, chunks->near), req->recv.offset, length) ==
        UCS_OK) {
        req->recv.offset += length;
    } else {
        chunks->is_failed = 1;
        ucp_rndv_piped_put(req, &chunks->near);
    }
    ucp_rndv_pull_go(req);
}

/* ---- sender ---- */

static void ucp_rndv_push_go(ucp_request_t *req);

static void ucp_rndv_push_filled(ucp_request_t *req, ucs_status_t status)
{
    if (ucs_unlikely(status != UCS_OK)) {
        ucp_rndv_send_cancel(req, UCS_ERR_IO_ERROR);
        ucp_request_complete(req, UCS_ERR_IO_ERROR);
        return;
    }
    ucp_rndv_push_go(req);
}

/* Has the device fill a chunk. */
static void ucp_rndv_push_fill(ucp_request_t *req, unsigned chunk)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    size_t length        = ucp_rndv_piped_length(req, req->send.offset, req->send.end);
    const char *source   = (const char *)req->buffer + req->send.offset;
    ucs_status_t status;

    chunks->near        = (uint8_t)chunk;
    chunks->near_offset = req->send.offset;
    req->send.offset   += length;
    status = ucp_device_copy_async(req, ucp_rndv_piped_chunk(req, chunk), source, length,
                                   ucp_rndv_push_filled);
    if (ucs_unlikely(status != UCS_INPROGRESS)) {
        ucp_rndv_push_filled(req, ucp_device_copy(req->worker, ucp_rndv_piped_chunk(req, chunk),
                                                  source, length));
    }
}

static void ucp_rndv_push_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    unsigned chunk;

    if (chunks->is_failed) {
        if (!(req->held & UCP_REQUEST_HOLDS_COPY)) {
            ucp_device_put_chunks(req);
            ucp_rndv_put_end(req);
        }
        return;
    }
    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK) &&
        !(req->held & UCP_REQUEST_HOLDS_COPY)) {
        chunks->far        = chunks->near;
        chunks->far_offset = chunks->near_offset;
        chunks->near       = UCP_DEVICE_NO_CHUNK;
        ucp_rndv_piped_want_turn(req);
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && (req->send.offset < req->send.end)) {
        chunk = ucp_device_chunk_get(chunks->pool);
        if (chunk != UCP_DEVICE_NO_CHUNK) {
            ucp_rndv_push_fill(req, chunk); /* comes here again where it ends at once */
        } else {
            ucp_rndv_piped_want_turn(req); /* others of this worker have them, and go on */
        }
    } else if ((chunks->near == UCP_DEVICE_NO_CHUNK) && (chunks->far == UCP_DEVICE_NO_CHUNK)) {
        ucp_device_put_chunks(req);
        ucp_rndv_put_end(req);
    }
}

void ucp_rndv_push_turn(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    ucs_status_t status;
    size_t length;

    if (chunks->far != UCP_DEVICE_NO_CHUNK) {
        length = ucp_rndv_piped_length(req, chunks->far_offset, req->send.end);
        status = ucp_rndv_write(req, ucp_rndv_piped_chunk(req, chunks->far), chunks->far_offset,
                                length);
        ucp_rndv_piped_put(req, &chunks->far);
        if (ucs_likely(status == UCS_OK)) {
            req->send.put_bytes += length;
        } else {
            chunks->is_failed = 1;
            ucp_peer_copy_failed(req->send.peer, status);
            ucp_rndv_add_data(req, chunks->far_offset, req->send.end - chunks->far_offset);
        }
    }
    ucp_rndv_push_go(req);
}
