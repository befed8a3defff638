/* Halyard: messages between device memory here and memory of the host in another process.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/protos/piped.h>

static void ucp_piped_go(ucp_request_t *req);

static size_t ucp_piped_length(const ucp_chunks_t *chunks, size_t offset)
{
    return ucs_min(chunks->end - offset, chunks->pool->chunk);
}

/* What begins at `offset` goes another way. */
static void ucp_piped_fail(ucp_chunks_t *chunks, size_t offset)
{
    chunks->is_failed = 1;
    chunks->offset    = ucs_min(chunks->offset, offset);
}

static void ucp_piped_end(ucp_request_t *req, ucs_status_t status)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (req->held & UCP_REQUEST_HOLDS_WORK) {
        ucp_request_del_work(req);
    }
    ucp_device_put_chunks(req);
    chunks->ops->end(req, chunks->offset, status);
}

static void ucp_piped_move(ucp_request_t *req, unsigned chunk, size_t offset)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (chunks->ops->move(req, ucp_device_chunk_address(chunks->pool, chunk), offset,
                          ucp_piped_length(chunks, offset)) != UCS_OK) {
        ucp_piped_fail(chunks, offset);
    }
}

static void ucp_piped_copied(ucp_request_t *req, ucs_status_t status)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (ucs_unlikely(status != UCS_OK)) {
        ucp_piped_end(req, status);
        return;
    }
    if (!ucp_request_is_outward(req)) {
        ucp_device_chunk_put(chunks->pool, &chunks->far);
    }
    ucp_piped_go(req);
}

/* Has the device copy between its memory and the near chunk. 0: it has failed. */
static int ucp_piped_copy(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    char *own            = (char *)req->buffer + chunks->near_offset;
    char *chunk          = ucp_device_chunk_address(chunks->pool, chunks->near);
    const int is_off     = ucp_request_is_outward(req);

    if (ucs_unlikely(ucp_device_copy_async(req, is_off ? chunk : own, is_off ? own : chunk,
                                           ucp_piped_length(chunks, chunks->near_offset),
                                           ucp_piped_copied) != UCS_INPROGRESS)) {
        ucp_piped_fail(chunks, chunks->near_offset);
        return 0;
    }
    return 1;
}

/* Takes a chunk for the next bytes. 0: none is free, a turn follows when one is. */
static int ucp_piped_begin(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    chunks->near = ucp_device_chunk_get(chunks->pool);
    if (chunks->near == UCP_DEVICE_NO_CHUNK) {
        ucp_device_chunk_wait(req); /* others of this worker have them, and go on */
        return 0;
    }
    chunks->near_offset = chunks->offset;
    chunks->offset     += ucp_piped_length(chunks, chunks->offset);
    return 1;
}

/* Passes the near chunk on, where the far one is free, and begins the next one, which is a turn of
 * its own where this processor begins. */
static void ucp_piped_go(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;
    const int is_off     = ucp_request_is_outward(req);

    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && (chunks->near != UCP_DEVICE_NO_CHUNK) &&
        !chunks->is_failed && !(req->held & UCP_REQUEST_HOLDS_COPY) &&
        (is_off || ucp_piped_copy(req))) {
        chunks->far        = chunks->near;
        chunks->far_offset = chunks->near_offset;
        chunks->near       = UCP_DEVICE_NO_CHUNK;
    }
    if (is_off && (chunks->far != UCP_DEVICE_NO_CHUNK)) {
        ucp_request_want_work(req); /* before it could wait for a chunk */
    }
    if ((chunks->near == UCP_DEVICE_NO_CHUNK) && !chunks->is_failed &&
        (chunks->offset < chunks->end)) {
        if (!is_off) {
            ucp_request_want_work(req);
        } else if (ucp_piped_begin(req)) {
            (void)ucp_piped_copy(req);
        }
    }
    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && !(req->held & UCP_REQUEST_HOLDS_COPY) &&
        (chunks->is_failed ||
         ((chunks->near == UCP_DEVICE_NO_CHUNK) && (chunks->offset == chunks->end)))) {
        ucp_piped_end(req, UCS_OK);
    }
}

void ucp_piped_turn(ucp_request_t *req)
{
    ucp_chunks_t *chunks = &req->copy.chunks;

    if (!ucp_request_is_outward(req)) {
        if (!ucp_piped_begin(req)) {
            return;
        }
        ucp_piped_move(req, chunks->near, chunks->near_offset);
    } else if (chunks->far != UCP_DEVICE_NO_CHUNK) {
        ucp_piped_move(req, chunks->far, chunks->far_offset);
        ucp_device_chunk_put(chunks->pool, &chunks->far);
    }
    ucp_piped_go(req);
}

int ucp_piped_start(ucp_request_t *req, const ucp_piped_ops_t *ops, size_t offset, size_t end)
{
    ucp_device_pool_t *pool = ucp_device_host_pool(req->worker, req->buffer, end - offset);

    if (pool == NULL) {
        return 0;
    }
    ucp_device_use_pool(req, pool);
    req->copy.chunks.ops    = ops;
    req->copy.chunks.offset = offset;
    req->copy.chunks.end    = end;
    return 1;
}
