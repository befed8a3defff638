/* Halyard: the table of messages.
 *
 * The handlers live with the operations that own the messages (ops/, protos/, wireup/).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/ops/rma.h>
#include <ucp/ops/am.h>
#include <ucp/ops/stream.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/hello.h>
#include <ucs/debug/log.h>
#include <string.h>

const ucp_wire_message_t ucp_wire_table[UCP_WIRE_LAST] = {
    [UCP_WIRE_HELLO] = {
        .name          = "HELLO",
        .header_length = sizeof(ucp_wire_hello_t),
        .has_payload   = 1,
        .handle        = ucp_hello_handle
    },
    [UCP_WIRE_EAGER] = {
        .name          = "EAGER",
        .header_length = sizeof(ucp_wire_eager_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_eager_handle
    },
    [UCP_WIRE_EAGER_SYNC] = {
        .name          = "EAGER_SYNC",
        .header_length = sizeof(ucp_wire_eager_sync_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_eager_sync_handle
    },
    [UCP_WIRE_RTS] = {
        .name          = "RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1, /* keys */
        .handle        = ucp_rndv_rts_handle
    },
    [UCP_WIRE_RTR] = {
        .name          = "RTR",
        .header_length = sizeof(ucp_wire_rtr_t),
        .handle        = ucp_rndv_rtr_handle
    },
    [UCP_WIRE_DATA] = {
        .name          = "DATA",
        .header_length = sizeof(ucp_wire_data_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_rndv_data_handle
    },
    [UCP_WIRE_FIN] = {
        .name          = "FIN",
        .header_length = sizeof(ucp_wire_fin_t),
        .handle        = ucp_rndv_fin_handle
    },
    [UCP_WIRE_ATS] = {
        .name          = "ATS",
        .header_length = sizeof(ucp_wire_ats_t),
        .handle        = ucp_rndv_ats_handle
    },
    [UCP_WIRE_CANCEL] = {
        .name          = "CANCEL",
        .header_length = sizeof(ucp_wire_cancel_t),
        .handle        = ucp_rndv_cancel_handle
    },
    [UCP_WIRE_PUT] = {
        .name          = "PUT",
        .header_length = sizeof(ucp_wire_put_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_rma_put_handle
    },
    [UCP_WIRE_GET] = {
        .name          = "GET",
        .header_length = sizeof(ucp_wire_get_t),
        .handle        = ucp_rma_get_handle
    },
    [UCP_WIRE_GET_DATA] = {
        .name          = "GET_DATA",
        .header_length = sizeof(ucp_wire_get_data_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_rma_get_data_handle
    },
    [UCP_WIRE_ATOMIC] = {
        .name          = "ATOMIC",
        .header_length = sizeof(ucp_wire_atomic_t),
        .handle        = ucp_rma_atomic_handle
    },
    [UCP_WIRE_RMA_END] = {
        .name          = "RMA_END",
        .header_length = sizeof(ucp_wire_rma_end_t),
        .handle        = ucp_rma_end_handle
    },
    [UCP_WIRE_AM] = {
        .name          = "AM",
        .header_length = sizeof(ucp_wire_am_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_am_handle
    },
    [UCP_WIRE_AM_REPLY] = {
        .name          = "AM_REPLY",
        .header_length = sizeof(ucp_wire_am_reply_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_am_reply_handle
    },
    [UCP_WIRE_AM_RTS] = {
        .name          = "AM_RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1,
        .handle        = ucp_am_rts_handle
    },
    [UCP_WIRE_STREAM] = {
        .name          = "STREAM",
        .header_length = sizeof(ucp_wire_stream_t),
        .has_payload   = 1,
        .in_place      = 1,
        .handle        = ucp_stream_handle
    },
    [UCP_WIRE_STREAM_RTS] = {
        .name          = "STREAM_RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1, /* keys */
        .handle        = ucp_stream_rts_handle
    },
    [UCP_WIRE_HOLD] = {
        .name          = "HOLD",
        .header_length = sizeof(ucp_wire_hold_t),
        .handle        = ucp_tag_hold_handle
    },
    [UCP_WIRE_KEY] = {
        .name          = "KEY",
        .header_length = sizeof(ucp_wire_key_t),
        .has_payload   = 1,
        .handle        = ucp_device_key_handle
    },
    [UCP_WIRE_FRAG] = {
        .name          = "FRAG",
        .header_length = sizeof(ucp_wire_frag_t),
        .handle        = ucp_rndv_frag_handle
    },
    [UCP_WIRE_FRAG_END] = {
        .name          = "FRAG_END",
        .header_length = sizeof(ucp_wire_frag_end_t),
        .handle        = ucp_rndv_frag_end_handle
    }
};

int ucp_wire_length_ok(unsigned id, size_t length)
{
    const ucp_wire_message_t *message;

    if ((id >= UCP_WIRE_LAST) || (ucp_wire_table[id].handle == NULL)) {
        return 0;
    }

    message = &ucp_wire_table[id];
    return message->has_payload ? (length >= message->header_length)
                                : (length == message->header_length);
}

int ucp_wire_accepts(unsigned id, size_t length)
{
    if (ucs_likely(ucp_wire_length_ok(id, length))) {
        return 1;
    }
    ucs_warn("a peer's message %s has %zu bytes: dropped", ucp_wire_table[id].name, length);
    return 0;
}

size_t ucp_wire_rts_read(const void *data, size_t length, ucp_wire_rts_t *rts)
{
    size_t rts_length;

    memcpy(rts, data, UCP_WIRE_RTS_LEN);
    rts_length = ucp_wire_rts_length(rts->flags);
    if (ucs_unlikely(length < rts_length)) {
        return 0;
    }
    memcpy(&rts->rails, (const char *)data + UCP_WIRE_RTS_LEN, rts_length - UCP_WIRE_RTS_LEN);
    return rts_length;
}
