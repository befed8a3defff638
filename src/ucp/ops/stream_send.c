/* Halyard: sending on streams.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/dt/dt.h>
#include <ucp/ops/kept.h>
#include <ucp/ops/send.h>
#include <ucp/ops/stream.h>
#include <ucp/wire/wire.h>

#define UCP_STREAM_HEAD_EXTRA (sizeof(ucp_wire_stream_t) - sizeof(ucp_wire_eager_t))

static ucp_wire_stream_t ucp_stream_head(const ucp_ep_t *ep)
{
    return (ucp_wire_stream_t){
        .worker_id = ucp_uid_id(ep->worker->uid), .ep = ep->pair, .read = ep->stream.read};
}

/* So many bytes will lie at the receiver. */
static void ucp_stream_add_unread(ucp_ep_t *ep, size_t length)
{
    ep->stream.unread += (length > 0) ? length + sizeof(ucp_kept_t) : 0;
}

int ucp_stream_must_announce(const ucp_request_t *req)
{
    return (req->length > 0) && (req->send.ep->stream.unread >= UCP_STREAM_BUDGET);
}

int ucp_stream_is_busy(const ucp_request_t *req)
{
    return (req->send.ep->num_requests > 0) || (req->send.ep->stream.unread >= req->length);
}

void ucp_stream_say_read(ucp_ep_t *ep)
{
    ucp_wire_stream_t head = ucp_stream_head(ep);

    ep->stream.read = 0;
    if ((ep->peer->status == UCS_OK) && !ep->peer->is_gone) {
        ucp_peer_send_control(ep->peer, UCP_WIRE_STREAM, &head, sizeof(head));
    }
}

/* req: NULL where none is needed. */
static ucs_status_t ucp_stream_send_pieces(ucp_ep_t *ep, ucp_request_t *req, const void *buffer,
                                           size_t length)
{
    ucp_wire_stream_t head = ucp_stream_head(ep);
    uct_iov_t iov[2]       = {{&head, sizeof(head), NULL}, {(void *)buffer, length, NULL}};
    ucs_status_t status    = ucp_send_iov(ep, req, UCP_WIRE_STREAM, iov, 2);

    ep->stream.read -= (status == UCS_OK) ? head.read : 0;
    return status;
}

ucs_status_t ucp_stream_send_eager(ucp_request_t *req)
{
    ucp_ep_t *ep        = req->send.ep;
    ucs_status_t status = ucp_stream_send_pieces(ep, req, req->buffer, req->length);

    if (status == UCS_OK) {
        ucp_stream_add_unread(ep, req->length);
    }
    return status;
}

/* ---- public ---- */

/* As ucp_tag_send_short. */
UCS_INLINE ucs_status_t ucp_stream_send_short(ucp_ep_t *ep, size_t limit, const void *buffer,
                                              size_t count, const ucp_request_param_t *param)
{
    size_t length       = ucp_send_short_length(param, count);
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (ucs_likely(length < limit) && ucs_likely(length + UCP_STREAM_HEAD_EXTRA < limit) &&
        ucs_likely(ep->stream.unread < UCP_STREAM_BUDGET) &&
        ucs_likely(!uct_ep_has_pending(ep->am))) {
        status = ucp_stream_send_pieces(ep, NULL, buffer, length);
        if (ucs_likely(status == UCS_OK)) {
            ucp_stream_add_unread(ep, length);
        }
    }
    return status;
}

static UCS_NOINLINE ucs_status_ptr_t ucp_stream_send_slow(ucp_ep_t *ep, const void *buffer,
                                                          size_t count,
                                                          const ucp_request_param_t *param)
{
    ucs_status_t status  = UCS_ERR_NO_RESOURCE;
    ucp_send_form_t form;
    ucs_status_ptr_t ptr;
    ucp_request_t *req;

    ucp_worker_lock(ep->worker);
    if (ucp_send_may_be_short(ep, buffer)) {
        status = ucp_stream_send_short(ep, ep->locked_limit, buffer, count, param);
    }
    req = ucp_send_request(ep, buffer, count, param, UCP_REQUEST_STREAM_SEND, status, &ptr);
    if (req != NULL) {
        req->info.sender_tag = 0;
        form = (req->length == 0) ? UCP_SEND_FORM_WHOLE : UCP_SEND_FORM_AUTO;
        ptr  = ucp_send_start(req, param, UCP_STREAM_HEAD_EXTRA, form);
    }
    ucp_worker_unlock(ep->worker);
    return ptr;
}

ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                                     const ucp_request_param_t *param)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (ucs_likely(ucp_worker_is_host(ep->worker, buffer))) {
        status = ucp_stream_send_short(ep, ep->short_limit, buffer, count, param);
    }
    if (ucs_likely(status != UCS_ERR_NO_RESOURCE)) {
        return ucp_send_short_end(ep, param, UCP_REQUEST_STREAM_SEND, status);
    }
    return ucp_stream_send_slow(ep, buffer, count, param);
}

ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep, const void *buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_send_callback_t cb,
                                    unsigned flags UCS_UNUSED)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    return ucp_stream_send_nbx(ep, buffer, count, &param);
}
