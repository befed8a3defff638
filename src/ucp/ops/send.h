/* Halyard: sends of messages: what tagged messages, active messages and streams share.
 *
 * A send that cannot end inside its call has a request: it is sent whole or announced, at once or,
 * where the lane has no room, in its turn from the lane's queue.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_SEND_H
#define UCP_OPS_SEND_H

#include <ucp/core/ep.h>

/* What the short paths do not look at: with these clear, the call has nothing to say but the
 * message. A callback and its user data do not matter where no request is made. */
#define UCP_SEND_SLOW_MASK \
    (UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL)

typedef enum {
    UCP_SEND_FORM_AUTO,     /* by cost */
    UCP_SEND_FORM_WHOLE,    /* whole, where one message can carry it */
    UCP_SEND_FORM_ANNOUNCED
} ucp_send_form_t;

/* A request for sending count elements, with its datatype started; the caller sets what belongs to
 * its operation and calls ucp_send_start. NULL with *error_p, what the call returns. */
ucp_request_t *ucp_send_request(ucp_ep_t *ep, const void *buffer, size_t count,
                                const ucp_request_param_t *param, ucp_request_kind_t kind,
                                ucs_status_ptr_t *error_p);

/* Sends or queues. extra: bytes that the whole message has besides its first 8 and its payload.
 * Returns what the call returns. */
ucs_status_ptr_t ucp_send_start(ucp_request_t *req, const ucp_request_param_t *param, size_t extra,
                                ucp_send_form_t form);

#endif
