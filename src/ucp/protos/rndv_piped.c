/* Halyard: rendezvous between device memory here and memory of the host in another process, by
 * single copies from or to chunks of pinned memory (piped.h). The receiver (step GET) reads, or the
 * sender (step PUT) writes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/protos/piped.h>
#include <ucp/protos/rndv.h>

/* ---- receiver ---- */

static void ucp_rndv_pull_end(ucp_request_t *req, size_t offset, ucs_status_t status)
{
    if (status != UCS_OK) {
        if (req->recv.result == UCS_OK) {
            req->recv.result = status;
        }
        offset = req->recv.total;
    }
    ucp_rndv_recv_count(req, offset);
    if (offset < req->recv.total) {
        ucp_rndv_ask_for_rest(req, offset, req->recv.total - offset);
    } else {
        ucp_rndv_recv_read_all(req); /* not before: the sender may leave after it */
    }
}

static const ucp_piped_ops_t ucp_rndv_pull = {ucp_rndv_read, ucp_rndv_pull_end};

/* ---- sender ---- */

static ucs_status_t ucp_rndv_push_move(ucp_request_t *req, void *chunk, size_t offset,
                                       size_t length)
{
    ucs_status_t status = ucp_rndv_write(req, chunk, offset, length);

    if (ucs_likely(status == UCS_OK)) {
        req->send.put_bytes += length;
    } else {
        ucp_peer_copy_failed(req->send.peer, status);
    }
    return status;
}

static void ucp_rndv_push_end(ucp_request_t *req, size_t offset, ucs_status_t status)
{
    if (status != UCS_OK) {
        ucp_rndv_send_cancel(req, UCS_ERR_IO_ERROR);
        ucp_request_complete(req, UCS_ERR_IO_ERROR);
        return;
    }
    ucp_rndv_add_data(req, offset, req->send.end - offset);
    ucp_rndv_put_end(req);
}

static const ucp_piped_ops_t ucp_rndv_push = {ucp_rndv_push_move, ucp_rndv_push_end};

int ucp_rndv_piped_start(ucp_request_t *req)
{
    const int is_there = ucp_request_is_recv(req) ?
                         ucp_piped_start(req, &ucp_rndv_pull, 0, req->recv.total) :
                         ucp_piped_start(req, &ucp_rndv_push, req->send.offset, req->send.end);

    if (is_there) {
        ucp_request_add_work(req);
    }
    return is_there;
}
