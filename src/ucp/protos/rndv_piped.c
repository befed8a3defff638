/* Halyard: rendezvous between device memory here and memory of the host in another process: the
 * device copies between its memory and a chunk of pinned memory of ours, this processor between
 * the chunk and the peer, one chunk while the device has another one.
 *
 * Receiver (step GET): far: chunk that the device empties; near: the next one, which has been read.
 * Sender (step PUT): near: chunk that the device fills; far: the one before, which is written.
 *
 * What the device does not begin to copy goes as messages. Nothing here waits for a device: a copy
 * that is given up would leave it a chunk that is used for something else.
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
    ucp_device_pool_t *pool = ucp_device_host_pool(req->worker, req->buffer, req->length);

    if (pool == NULL) {
        return 0;
    }
    ucp_device_use_pool(req, pool);
    ucp_request_add_work(req);
    return 1;
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

/* Hands the chunk that has been read to the device. */
static void ucp_rndv_pull_store(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    size_t length        = ucp_rndv_piped_length(req, chunks->near_offset, req->recv.total);
    char *dest           = (char *)req->buffer + chunks->near_offset;

    if (ucs_likely(ucp_device_copy_async(req, dest, ucp_rndv_piped_chunk(req, chunks->near), length,
                                         ucp_rndv_pull_stored) == UCS_INPROGRESS)) {
        chunks->far        = chunks->near;
        chunks->far_offset = chunks->near_offset;
        chunks->near       = UCP_DEVICE_NO_CHUNK;
        return;
    }
    chunks->is_failed = 1;
    req->recv.offset  = chunks->near_offset;
    ucp_rndv_piped_put(req, &chunks->near);
}

static void ucp_rndv_pull_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK)) {
        ucp_rndv_pull_store(req);
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && !chunks->is_failed &&
        (req->recv.offset < req->recv.total)) {
        ucp_request_want_work(req);
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
        ucp_device_chunk_wait(req); /* others of this worker have them, and go on */
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
static void ucp_rndv_push_fill(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    const size_t offset  = req->send.offset;
    size_t length        = ucp_rndv_piped_length(req, offset, req->send.end);
    unsigned chunk       = ucp_device_chunk_get(chunks->pool);

    if (chunk == UCP_DEVICE_NO_CHUNK) {
        ucp_device_chunk_wait(req); /* others of this worker have them, and go on */
    } else if (ucs_likely(ucp_device_copy_async(req, ucp_rndv_piped_chunk(req, chunk),
                                                (const char *)req->buffer + offset, length,
                                                ucp_rndv_push_filled) == UCS_INPROGRESS)) {
        chunks->near        = (uint8_t)chunk;
        chunks->near_offset = offset;
        req->send.offset   += length;
    } else {
        ucp_device_chunk_put(chunks->pool, chunk);
        chunks->is_failed = 1;
    }
}

/* Where it has failed, what begins at send.offset goes as messages; a chunk before that is written
 * first. */
static void ucp_rndv_push_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK) &&
        !chunks->is_failed && !(req->held & UCP_REQUEST_HOLDS_COPY)) {
        chunks->far        = chunks->near;
        chunks->far_offset = chunks->near_offset;
        chunks->near       = UCP_DEVICE_NO_CHUNK;
        ucp_request_want_work(req);
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && !chunks->is_failed &&
        (req->send.offset < req->send.end)) {
        ucp_rndv_push_fill(req);
    }
    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && !(req->held & UCP_REQUEST_HOLDS_COPY) &&
        (chunks->is_failed || (req->send.offset == req->send.end))) {
        ucp_device_put_chunks(req);
        ucp_rndv_add_data(req, req->send.offset, req->send.end - req->send.offset);
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
            req->send.offset  = chunks->far_offset;
            ucp_peer_copy_failed(req->send.peer, status);
        }
    }
    ucp_rndv_push_go(req);
}
