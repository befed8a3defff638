/* Halyard: the table of messages, and their text form.
 *
 * The handlers live with the operations that own the messages (ops/, protos/, wireup/).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

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
#include <inttypes.h>
#include <string.h>

static void ucp_wire_print_hello(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_hello_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "version %u features 0x%x address of %zu bytes", msg.version,
                              msg.features, length - sizeof(msg));
}

static void ucp_wire_print_eager(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_eager_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "tag 0x%" PRIx64 " payload %zu", msg.tag, length - sizeof(msg));
}

static void ucp_wire_print_eager_sync(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_eager_sync_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(
        strb, "tag 0x%" PRIx64 " from 0x%" PRIx64 " request 0x%" PRIx64 " payload %zu", msg.tag,
        msg.worker_id, msg.request_id, length - sizeof(msg));
}

static void ucp_wire_print_rts(const void *data, size_t length UCS_UNUSED,
                               ucs_string_buffer_t *strb)
{
    ucp_wire_rts_t msg;

    memcpy(&msg, data, UCP_WIRE_RTS_LEN);
    ucs_string_buffer_appendf(strb,
                              "tag 0x%" PRIx64 " from 0x%" PRIx64 " request 0x%" PRIx64
                              " length %" PRIu64 " address 0x%" PRIx64 " sync %u flags 0x%x",
                              msg.tag, msg.worker_id, msg.request_id, msg.length, msg.address,
                              msg.sync_index, msg.flags);
}

static void ucp_wire_print_rtr(const void *data, size_t length UCS_UNUSED,
                               ucs_string_buffer_t *strb)
{
    ucp_wire_rtr_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb,
                              "send 0x%" PRIx64 " recv 0x%" PRIx64 " address 0x%" PRIx64
                              " range %" PRIu64 "+%" PRIu64 " flags 0x%x",
                              msg.send_id, msg.recv_id, msg.address, msg.offset, msg.length,
                              msg.flags);
}

static void ucp_wire_print_data(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_data_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "recv 0x%" PRIx64 " offset %" PRIu64 " payload %zu",
                              msg.recv_id, msg.offset, length - sizeof(msg));
}

static void ucp_wire_print_fin(const void *data, size_t length UCS_UNUSED,
                               ucs_string_buffer_t *strb)
{
    ucp_wire_fin_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "recv 0x%" PRIx64 " length %" PRIu64, msg.recv_id, msg.length);
}

static void ucp_wire_print_ats(const void *data, size_t length UCS_UNUSED,
                               ucs_string_buffer_t *strb)
{
    ucp_wire_ats_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "send 0x%" PRIx64 " status %d", msg.send_id, msg.status);
}

static void ucp_wire_print_cancel(const void *data, size_t length UCS_UNUSED,
                                  ucs_string_buffer_t *strb)
{
    ucp_wire_cancel_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "send 0x%" PRIx64 " status %d", msg.send_id, msg.status);
}

static void ucp_wire_print_put(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_put_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb,
                              "memory 0x%" PRIx64 " address 0x%" PRIx64 " from 0x%" PRIx64
                              " request 0x%" PRIx64 " payload %zu",
                              msg.mem_id, msg.address, msg.worker_id, msg.request_id,
                              length - sizeof(msg));
}

static void ucp_wire_print_get(const void *data, size_t length UCS_UNUSED,
                               ucs_string_buffer_t *strb)
{
    ucp_wire_get_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb,
                              "memory 0x%" PRIx64 " range 0x%" PRIx64 "+%" PRIu64
                              " from 0x%" PRIx64 " request 0x%" PRIx64,
                              msg.mem_id, msg.address, msg.length, msg.worker_id, msg.request_id);
}

static void ucp_wire_print_get_data(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_get_data_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "request 0x%" PRIx64 " address 0x%" PRIx64 " payload %zu",
                              msg.request_id, msg.address, length - sizeof(msg));
}

static void ucp_wire_print_atomic(const void *data, size_t length UCS_UNUSED,
                                  ucs_string_buffer_t *strb)
{
    ucp_wire_atomic_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb,
                              "memory 0x%" PRIx64 " address 0x%" PRIx64 " from 0x%" PRIx64
                              " request 0x%" PRIx64 " value 0x%" PRIx64 " compare 0x%" PRIx64
                              " operation %u size %u",
                              msg.mem_id, msg.address, msg.worker_id, msg.request_id, msg.value,
                              msg.compare, msg.op, msg.size);
}

static void ucp_wire_print_rma_end(const void *data, size_t length UCS_UNUSED,
                                   ucs_string_buffer_t *strb)
{
    ucp_wire_rma_end_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "request 0x%" PRIx64 " value 0x%" PRIx64 " status %d",
                              msg.request_id, msg.value, msg.status);
}

static void ucp_wire_print_am(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_am_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "id %u header %u payload %zu", msg.id, msg.header_length,
                              length - sizeof(msg));
}

static void ucp_wire_print_am_reply(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_am_reply_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "id %u header %u from 0x%" PRIx64 " endpoint %u payload %zu",
                              msg.am.id, msg.am.header_length, msg.worker_id, msg.am.ep,
                              length - sizeof(msg));
}

static void ucp_wire_print_stream(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_stream_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "from 0x%" PRIx64 " endpoint %u payload %zu", msg.worker_id,
                              msg.ep, length - sizeof(msg));
}

static void ucp_wire_print_hold(const void *data, size_t length UCS_UNUSED,
                                ucs_string_buffer_t *strb)
{
    ucp_wire_hold_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "hold %u", msg.hold);
}

static void ucp_wire_print_key(const void *data, size_t length, ucs_string_buffer_t *strb)
{
    ucp_wire_key_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb, "from 0x%" PRIx64 " slot %u transport %u key of %zu",
                              msg.worker_id, msg.slot, msg.wire_id, length - sizeof(msg));
}

static void ucp_wire_print_frag(const void *data, size_t length UCS_UNUSED,
                                ucs_string_buffer_t *strb)
{
    ucp_wire_frag_t msg;

    memcpy(&msg, data, sizeof(msg));
    ucs_string_buffer_appendf(strb,
                              "recv 0x%" PRIx64 " range %" PRIu64 "+%" PRIu64 " address 0x%" PRIx64
                              " slot %u", msg.recv_id, msg.offset, msg.length, msg.address,
                              msg.slot);
}

const ucp_wire_message_t ucp_wire_table[UCP_WIRE_LAST] = {
    [UCP_WIRE_HELLO] = {
        .name          = "HELLO",
        .header_length = sizeof(ucp_wire_hello_t),
        .has_payload   = 1,
        .handle        = ucp_hello_handle,
        .print         = ucp_wire_print_hello
    },
    [UCP_WIRE_EAGER] = {
        .name          = "EAGER",
        .header_length = sizeof(ucp_wire_eager_t),
        .has_payload   = 1,
        .handle        = ucp_eager_handle,
        .print         = ucp_wire_print_eager
    },
    [UCP_WIRE_EAGER_SYNC] = {
        .name          = "EAGER_SYNC",
        .header_length = sizeof(ucp_wire_eager_sync_t),
        .has_payload   = 1,
        .handle        = ucp_eager_sync_handle,
        .print         = ucp_wire_print_eager_sync
    },
    [UCP_WIRE_RTS] = {
        .name          = "RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1, /* keys */
        .handle        = ucp_rndv_rts_handle,
        .print         = ucp_wire_print_rts
    },
    [UCP_WIRE_RTR] = {
        .name          = "RTR",
        .header_length = sizeof(ucp_wire_rtr_t),
        .handle        = ucp_rndv_rtr_handle,
        .print         = ucp_wire_print_rtr
    },
    [UCP_WIRE_DATA] = {
        .name          = "DATA",
        .header_length = sizeof(ucp_wire_data_t),
        .has_payload   = 1,
        .handle        = ucp_rndv_data_handle,
        .print         = ucp_wire_print_data
    },
    [UCP_WIRE_FIN] = {
        .name          = "FIN",
        .header_length = sizeof(ucp_wire_fin_t),
        .handle        = ucp_rndv_fin_handle,
        .print         = ucp_wire_print_fin
    },
    [UCP_WIRE_ATS] = {
        .name          = "ATS",
        .header_length = sizeof(ucp_wire_ats_t),
        .handle        = ucp_rndv_ats_handle,
        .print         = ucp_wire_print_ats
    },
    [UCP_WIRE_CANCEL] = {
        .name          = "CANCEL",
        .header_length = sizeof(ucp_wire_cancel_t),
        .handle        = ucp_rndv_cancel_handle,
        .print         = ucp_wire_print_cancel
    },
    [UCP_WIRE_PUT] = {
        .name          = "PUT",
        .header_length = sizeof(ucp_wire_put_t),
        .has_payload   = 1,
        .handle        = ucp_rma_put_handle,
        .print         = ucp_wire_print_put
    },
    [UCP_WIRE_GET] = {
        .name          = "GET",
        .header_length = sizeof(ucp_wire_get_t),
        .handle        = ucp_rma_get_handle,
        .print         = ucp_wire_print_get
    },
    [UCP_WIRE_GET_DATA] = {
        .name          = "GET_DATA",
        .header_length = sizeof(ucp_wire_get_data_t),
        .has_payload   = 1,
        .handle        = ucp_rma_get_data_handle,
        .print         = ucp_wire_print_get_data
    },
    [UCP_WIRE_ATOMIC] = {
        .name          = "ATOMIC",
        .header_length = sizeof(ucp_wire_atomic_t),
        .handle        = ucp_rma_atomic_handle,
        .print         = ucp_wire_print_atomic
    },
    [UCP_WIRE_RMA_END] = {
        .name          = "RMA_END",
        .header_length = sizeof(ucp_wire_rma_end_t),
        .handle        = ucp_rma_end_handle,
        .print         = ucp_wire_print_rma_end
    },
    [UCP_WIRE_AM] = {
        .name          = "AM",
        .header_length = sizeof(ucp_wire_am_t),
        .has_payload   = 1,
        .handle        = ucp_am_handle,
        .print         = ucp_wire_print_am
    },
    [UCP_WIRE_AM_REPLY] = {
        .name          = "AM_REPLY",
        .header_length = sizeof(ucp_wire_am_reply_t),
        .has_payload   = 1,
        .handle        = ucp_am_reply_handle,
        .print         = ucp_wire_print_am_reply
    },
    [UCP_WIRE_AM_RTS] = {
        .name          = "AM_RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1,
        .handle        = ucp_am_rts_handle,
        .print         = ucp_wire_print_rts
    },
    [UCP_WIRE_STREAM] = {
        .name          = "STREAM",
        .header_length = sizeof(ucp_wire_stream_t),
        .has_payload   = 1,
        .handle        = ucp_stream_handle,
        .print         = ucp_wire_print_stream
    },
    [UCP_WIRE_STREAM_RTS] = {
        .name          = "STREAM_RTS",
        .header_length = UCP_WIRE_RTS_LEN,
        .has_payload   = 1, /* keys */
        .handle        = ucp_stream_rts_handle,
        .print         = ucp_wire_print_rts
    },
    [UCP_WIRE_HOLD] = {
        .name          = "HOLD",
        .header_length = sizeof(ucp_wire_hold_t),
        .handle        = ucp_tag_hold_handle,
        .print         = ucp_wire_print_hold
    },
    [UCP_WIRE_KEY] = {
        .name          = "KEY",
        .header_length = sizeof(ucp_wire_key_t),
        .has_payload   = 1,
        .handle        = ucp_device_key_handle,
        .print         = ucp_wire_print_key
    },
    [UCP_WIRE_FRAG] = {
        .name          = "FRAG",
        .header_length = sizeof(ucp_wire_frag_t),
        .handle        = ucp_rndv_frag_handle,
        .print         = ucp_wire_print_frag
    },
    [UCP_WIRE_FRAG_END] = {
        .name          = "FRAG_END",
        .header_length = sizeof(ucp_wire_frag_end_t),
        .handle        = ucp_rndv_frag_end_handle,
        .print         = ucp_wire_print_ats /* the same fields */
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

void ucp_wire_print(unsigned id, const void *data, size_t length, ucs_string_buffer_t *strb)
{
    if (!ucp_wire_length_ok(id, length)) {
        ucs_string_buffer_appendf(strb, "id %u of %zu bytes is no message", id, length);
        return;
    }

    ucs_string_buffer_appendf(strb, "%s ", ucp_wire_table[id].name);
    ucp_wire_table[id].print(data, length, strb);
}
