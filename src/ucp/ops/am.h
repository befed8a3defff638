/* Halyard: active messages.
 *
 * A message whose data fits goes whole; anything else is announced, and the handler gets a
 * descriptor or, where it wants all at once, the library receives the data first. Handlers run from
 * progress and may send, replace themselves and keep their data (ops/kept.h).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_AM_H
#define UCP_OPS_AM_H

#include <ucp/core/ep.h>

#define UCP_AM_HEADER_MAX 4096 /* bytes of the user's header, where the lanes carry that */

/* One id's handler: an entry of worker->am_handlers. */
typedef struct ucp_am_handler {
    union {
        ucp_am_recv_callback_t recv; /* NULL: none */
        ucp_am_callback_t      legacy;
    } cb;
    void    *arg;
    uint32_t flags;     /* enum ucp_am_cb_flags */
    uint8_t  is_legacy;
    uint8_t  is_plain;  /* data may be shown where it lies */
} ucp_am_handler_t;

/* Sends req->length bytes and the header as one message. UCS_OK: sent; UCS_ERR_NO_RESOURCE: try
 * again. */
ucs_status_t ucp_am_send_eager(ucp_request_t *req);

/* The head of a message, as it is sent now. */
uint64_t ucp_am_word(const ucp_request_t *req);

/* Before a send is queued: copies the header where the user's may be gone after the call. */
ucs_status_t ucp_am_keep_header(ucp_request_t *req);

/* An announced message will not come: a descriptor that the user keeps is no good any more. */
void ucp_am_cancelled(ucp_peer_t *peer, uint64_t send_id);

/* Handlers of UCP_WIRE_AM, UCP_WIRE_AM_REPLY and UCP_WIRE_AM_RTS. */
void ucp_am_handle(void *worker, const void *data, size_t length);
void ucp_am_reply_handle(void *worker, const void *data, size_t length);
void ucp_am_rts_handle(void *worker, const void *data, size_t length);

#endif
