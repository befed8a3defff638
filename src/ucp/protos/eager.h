/* Halyard: eager protocol: a tagged message sent whole.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_EAGER_H
#define UCP_PROTOS_EAGER_H

#include <ucp/core/ep.h>
#include <ucp/wire/wire.h>

/* Handlers of UCP_WIRE_EAGER and UCP_WIRE_EAGER_SYNC. */
void ucp_eager_handle(void *worker, const void *data, size_t length);
void ucp_eager_sync_handle(void *worker, const void *data, size_t length);

/* Sends req->length bytes as one message. UCS_OK: sent; UCS_ERR_NO_RESOURCE: try again. */
ucs_status_t ucp_eager_send(ucp_request_t *req);

/* Fills a receive from a whole message: copies what fits, sets info. Returns the receive's status. */
ucs_status_t ucp_eager_deliver(ucp_request_t *req, uint64_t tag, const void *payload, size_t length);

#endif
