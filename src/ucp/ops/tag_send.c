/* Halyard: tagged sends.
 *
 * The short path at the top carries the message rate and latency of small messages: a contiguous
 * message that fits is handed to the transport at once. Everything else gets a request.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/ops/send.h>
#include <ucp/wire/wire.h>

/* A message from memory of the host that needs no request. UCS_ERR_NO_RESOURCE: it does. */
UCS_INLINE ucs_status_t ucp_tag_send_short(ucp_ep_t *ep, size_t limit, const void *buffer,
                                           size_t count, ucp_tag_t tag,
                                           const ucp_request_param_t *param)
{
    size_t length = ucp_send_short_length(param, count);

    if (ucs_likely(length < limit) && ucs_likely(!uct_ep_has_pending(ep->am))) {
        return ep->am->ops->am_short(ep->am, UCP_WIRE_EAGER, tag, buffer, length);
    }
    return UCS_ERR_NO_RESOURCE;
}

static UCS_NOINLINE ucs_status_ptr_t ucp_tag_send_slow(ucp_ep_t *ep, const void *buffer,
                                                       size_t count, ucp_tag_t tag,
                                                       const ucp_request_param_t *param,
                                                       int is_sync)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    ucs_status_ptr_t ptr;
    ucp_request_t *req;

    ucp_worker_lock(ep->worker);
    if (!is_sync && ucp_send_may_be_short(ep, buffer)) {
        status = ucp_tag_send_short(ep, ep->locked_limit, buffer, count, tag, param);
    }
    req = ucp_send_request(ep, buffer, count, param, UCP_REQUEST_TAG_SEND, status, &ptr);
    if (req != NULL) {
        req->info.sender_tag = tag;
        req->send.is_sync    = (uint8_t)is_sync;
        ptr = ucp_send_start(req, param,
                             is_sync ? sizeof(ucp_wire_eager_sync_t) - sizeof(ucp_wire_eager_t) : 0,
                             UCP_SEND_FORM_AUTO);
    }
    ucp_worker_unlock(ep->worker);
    return ptr;
}

/* ---- public ---- */

ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t *param)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (ucs_likely(ucp_worker_is_host(ep->worker, buffer))) {
        status = ucp_tag_send_short(ep, ep->short_limit, buffer, count, tag, param);
    }
    if (ucs_likely(status != UCS_ERR_NO_RESOURCE)) {
        return ucp_send_short_end(ep, param, UCP_REQUEST_TAG_SEND, status);
    }
    return ucp_tag_send_slow(ep, buffer, count, tag, param, 0);
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t *param)
{
    return ucp_tag_send_slow(ep, buffer, count, tag, param, 1);
}

ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    return ucp_tag_send_nbx(ep, buffer, count, tag, &param);
}

ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    return ucp_tag_send_sync_nbx(ep, buffer, count, tag, &param);
}

ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void *req)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REQUEST;
    param.datatype     = datatype;
    param.request      = req;
    ptr                = ucp_tag_send_nbx(ep, buffer, count, tag, &param);
    return UCS_PTR_STATUS(ptr);
}
