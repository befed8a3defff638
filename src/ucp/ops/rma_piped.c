/* Halyard: puts and gets between device memory here and memory of the host in another process, by
 * single copies from or to chunks of pinned memory (protos/piped.h).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/ops/rma.h>
#include <ucp/protos/piped.h>

static ucs_status_t ucp_rma_piped_move(ucp_request_t *req, void *chunk, size_t offset,
                                       size_t length)
{
    ucs_status_t status = ucp_rma_single_copy(req, chunk, offset, length);

    if (ucs_unlikely(status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE)) {
        ucp_peer_copy_failed(req->send.peer, status);
    }
    return status;
}

static void ucp_rma_piped_end(ucp_request_t *req, size_t offset, ucs_status_t status)
{
    if ((status != UCS_OK) || (offset == req->length)) {
        ucp_request_complete(req, status);
        return;
    }
    req->send.offset = offset;
    ucp_rma_start_messages(req);
}

static const ucp_piped_ops_t ucp_rma_piped = {ucp_rma_piped_move, ucp_rma_piped_end};

int ucp_rma_piped_start(ucp_request_t *req)
{
    if (!ucp_rma_can_pipe(req) || !ucp_piped_start(req, &ucp_rma_piped, 0, req->length)) {
        return 0;
    }
    req->send.step = UCP_SEND_DEVICE;
    ucp_piped_turn(req);
    return 1;
}
