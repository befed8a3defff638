/* Halyard: sending active messages.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/dt/dt.h>
#include <ucp/ops/am.h>
#include <ucp/ops/send.h>
#include <ucp/wire/wire.h>
#include <string.h>

#define UCP_AM_SMALL_HEADER 48 /* bytes: is copied behind the message's head, to be one piece */
#define UCP_AM_ANNOUNCE_FLAGS (UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV)

/* ---- whole messages ---- */

/* req: NULL where none is needed. */
static ucs_status_t ucp_am_send_pieces(ucp_ep_t *ep, ucp_request_t *req, uint64_t word,
                                       int is_reply, const void *header, const void *buffer,
                                       size_t length)
{
    static const uint64_t zeros = 0;
    size_t header_length        = ucp_wire_am_head(word).header_length;
    unsigned id                 = is_reply ? UCP_WIRE_AM_REPLY : UCP_WIRE_AM;
    size_t head_length          = is_reply ? sizeof(ucp_wire_am_reply_t) : sizeof(ucp_wire_am_t);
    uint64_t head[2 + (UCP_AM_SMALL_HEADER / 8)];
    uct_iov_t iov[4];

    head[0] = word;
    if (is_reply) {
        head[1] = ucp_uid_id(ep->worker->uid);
    }
    if (header_length <= UCP_AM_SMALL_HEADER) {
        if (header_length > 0) {
            head[(head_length + header_length - 1) / 8] = 0;
            ucp_copy((char *)head + head_length, header, header_length);
        }
        iov[0] = (uct_iov_t){head, head_length + ucs_align_up(header_length, 8), NULL};
        iov[1] = (uct_iov_t){(void *)buffer, length, NULL};
        return ucp_send_iov(ep, req, id, iov, 2);
    }
    iov[0] = (uct_iov_t){head, head_length, NULL};
    iov[1] = (uct_iov_t){(void *)header, header_length, NULL};
    iov[2] = (uct_iov_t){(void *)&zeros, ucs_align_up(header_length, 8) - header_length, NULL};
    iov[3] = (uct_iov_t){(void *)buffer, length, NULL};
    return ucp_send_iov(ep, req, id, iov, 4);
}

uint64_t ucp_am_word(const ucp_request_t *req)
{
    uint64_t ordinal = req->send.ep->pair; /* as it is now: the peer may have been found late */

    return req->info.sender_tag |
           ((req->send.am_flags & UCP_WIRE_RTS_REPLY) ? ordinal << 32 : 0);
}

ucs_status_t ucp_am_send_eager(ucp_request_t *req)
{
    return ucp_am_send_pieces(req->send.ep, req, ucp_am_word(req),
                              (req->send.am_flags & UCP_WIRE_RTS_REPLY) != 0, req->send.header,
                              req->buffer, req->length);
}

ucs_status_t ucp_am_keep_header(ucp_request_t *req)
{
    size_t length = ucp_wire_am_head(req->info.sender_tag).header_length;
    void *copy;

    if (!req->send.copies_header || (length == 0)) {
        return UCS_OK;
    }
    copy = ucp_worker_data_get(req->worker, length);
    if (copy == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(copy, req->send.header, length);
    req->send.header = copy;
    req->held       |= UCP_REQUEST_HOLDS_HEADER;
    return UCS_OK;
}

/* ---- public ---- */

static ucs_status_t ucp_am_send_check(const ucp_worker_t *worker, unsigned id,
                                      size_t header_length, uint32_t flags)
{
    if ((id > UINT16_MAX) || (header_length > worker->am_header_max) ||
        ((flags & UCP_AM_ANNOUNCE_FLAGS) == UCP_AM_ANNOUNCE_FLAGS)) {
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

/* As ucp_tag_send_short; the limits of the id and of the header are far above a word's. */
UCS_INLINE ucs_status_t ucp_am_send_short(ucp_ep_t *ep, size_t limit, unsigned id,
                                          const void *header, size_t header_length,
                                          const void *buffer, size_t count,
                                          const ucp_request_param_t *param, uint32_t flags)
{
    size_t length = ucp_send_short_length(param, count);

    if (ucs_likely(length < limit) && ucs_likely(header_length <= UCP_AM_SMALL_HEADER) &&
        ucs_likely(!(flags & (UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_RNDV)) &&
                   (id <= UINT16_MAX)) &&
        ucs_likely(!uct_ep_has_pending(ep->am))) {
        if (header_length == 0) {
            return ep->am->ops->am_short(ep->am, UCP_WIRE_AM, id, buffer, length);
        }
        if (length + UCP_AM_SMALL_HEADER < limit) {
            return ucp_am_send_pieces(ep, NULL, ucp_wire_am_word((uint16_t)id, header_length, 0), 0,
                                      header, buffer, length);
        }
    }
    return UCS_ERR_NO_RESOURCE;
}

static UCS_NOINLINE ucs_status_ptr_t ucp_am_send_slow(ucp_ep_t *ep, unsigned id, const void *header,
                                                      size_t header_length, const void *buffer,
                                                      size_t count,
                                                      const ucp_request_param_t *param,
                                                      uint32_t flags)
{
    int is_reply         = (flags & UCP_AM_SEND_FLAG_REPLY) != 0;
    ucp_send_form_t form = (flags & UCP_AM_SEND_FLAG_EAGER) ? UCP_SEND_FORM_WHOLE :
                           (flags & UCP_AM_SEND_FLAG_RNDV)  ? UCP_SEND_FORM_ANNOUNCED :
                                                              UCP_SEND_FORM_AUTO;
    ucs_status_ptr_t ptr;
    ucs_status_t status;
    ucp_request_t *req;

    ucp_worker_lock(ep->worker);
    status = ucp_am_send_check(ep->worker, id, header_length, flags);
    if (status != UCS_OK) {
        ucp_worker_unlock(ep->worker);
        return ucp_request_end_without(param, UCP_REQUEST_AM_SEND, status);
    }
    status = UCS_ERR_NO_RESOURCE;
    if (ucp_send_may_be_short(ep, buffer)) {
        status = ucp_am_send_short(ep, ep->locked_limit, id, header, header_length, buffer, count,
                                   param, flags);
    }
    req = ucp_send_request(ep, buffer, count, param, UCP_REQUEST_AM_SEND, status, &ptr);
    if (req != NULL) {
        req->info.sender_tag    = ucp_wire_am_word((uint16_t)id, header_length, 0);
        req->send.header        = header;
        req->send.copies_header = (flags & UCP_AM_SEND_FLAG_COPY_HEADER) != 0;
        req->send.am_flags      = (uint8_t)((is_reply ? UCP_WIRE_RTS_REPLY : 0) |
                                            ((form == UCP_SEND_FORM_WHOLE) ? UCP_WIRE_RTS_WHOLE :
                                             (form == UCP_SEND_FORM_ANNOUNCED) ?
                                                UCP_WIRE_RTS_FORCED : 0));
        ptr = ucp_send_start(req, param, ucs_align_up(header_length, 8) + (is_reply ? 8 : 0), form);
    }
    ucp_worker_unlock(ep->worker);
    return ptr;
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                 const void *buffer, size_t count, const ucp_request_param_t *param)
{
    uint32_t flags = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) ? param->flags : 0;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (ucs_likely(ucp_worker_is_host(ep->worker, buffer))) {
        status = ucp_am_send_short(ep, ep->short_limit, id, header, header_length, buffer, count,
                                   param, flags);
    }
    if (ucs_likely(status != UCS_ERR_NO_RESOURCE)) {
        return ucp_send_short_end(ep, param, UCP_REQUEST_AM_SEND, status);
    }
    return ucp_am_send_slow(ep, id, header, header_length, buffer, count, param, flags);
}

ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void *buffer, size_t count,
                                ucp_datatype_t datatype, ucp_send_callback_t cb, unsigned flags)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    /* handlers have always got them whole */
    param.flags = flags | ((flags & UCP_AM_SEND_FLAG_RNDV) ? 0 : UCP_AM_SEND_FLAG_EAGER);
    return ucp_am_send_nbx(ep, id, NULL, 0, buffer, count, &param);
}
