/* Halyard: eager protocol: a tagged message sent whole.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_EAGER_H
#define UCP_PROTOS_EAGER_H

#include <ucp/core/ep.h>
#include <ucp/dt/dt.h>
#include <ucp/wire/wire.h>

/* Handlers of UCP_WIRE_EAGER and UCP_WIRE_EAGER_SYNC. */
void ucp_eager_handle(void *worker, const void *data, size_t length);
void ucp_eager_sync_handle(void *worker, const void *data, size_t length);

/* Parts of a UCP_WIRE_EAGER that a receive waits for, see uct_iface_set_am_parts. */
void *ucp_eager_begin(void *worker, const void *header, size_t header_length, size_t length,
                      void **token_p);
void ucp_eager_end(void *token, ucs_status_t status);

/* A receive of `count` elements of a message of any kind, not posted yet. NULL with *end_p, what
 * the call returns. */
UCS_INLINE ucp_request_t *ucp_recv_request(ucp_worker_t *worker, void *buffer, size_t count,
                                           const ucp_request_param_t *param,
                                           ucp_request_kind_t kind, ucs_status_ptr_t *end_p)
{
    ucp_request_t *req = ucp_request_get(worker, param, kind);
    ucs_status_t status;

    if (ucs_unlikely(req == NULL)) {
        *end_p = UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        return NULL;
    }
    req->recv.step = UCP_RECV_POSTED;
    if (ucs_likely(!(param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE)) &&
        ucs_likely(ucp_worker_is_host(worker, buffer))) {
        req->buffer   = buffer;
        req->length   = count;
        req->datatype = ucp_dt_make_contig(1);
        return req;
    }
    status = ucp_dt_start(req, buffer, count, ucp_dt_of(param), 0);
    if (status != UCS_OK) {
        *end_p = ucp_request_end_immediately(req, status);
        return NULL;
    }
    return req;
}

/* Sends req->length bytes as one message. UCS_OK: sent, step SYNC if that is to be answered;
 * UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_eager_send(ucp_request_t *req);

/* The part of ucp_eager_deliver for other datatypes and for messages that do not fit. */
ucs_status_t ucp_eager_deliver_slow(ucp_request_t *req, const void *payload, size_t length);

/* Fills a receive from a whole message: copies what fits, sets info. Returns the receive's status.
 */
UCS_INLINE ucs_status_t ucp_eager_deliver(ucp_request_t *req, uint64_t tag, const void *payload,
                                          size_t length)
{
    req->info.sender_tag = tag;
    req->info.length     = length;
    if (ucs_likely(ucp_dt_is_contig(req->datatype) && (length <= req->length))) {
        ucp_copy(req->buffer, payload, length);
        return UCS_OK;
    }
    return ucp_eager_deliver_slow(req, payload, length);
}

#endif
