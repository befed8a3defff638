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

/* Rows: messages of a header alone, those with more behind it, those of which that is taken from
 * where it came, those that are shown there to the user, and such as may be taken part by part. */
#define ROW(_name, _length, _handle, ...) \
    [UCP_WIRE_##_name] = \
        {.name = #_name, .header_length = (_length), .handle = (_handle), __VA_ARGS__}
#define HEADER(_name, _length, _handle)   ROW(_name, _length, _handle, .has_payload = 0)
#define PAYLOAD(_name, _length, _handle)  ROW(_name, _length, _handle, .has_payload = 1)
#define IN_PLACE(_name, _length, _handle) \
    ROW(_name, _length, _handle, .has_payload = 1, .place = UCT_AM_IN_PLACE)
#define SHOWN(_name, _length, _handle) \
    ROW(_name, _length, _handle, .has_payload = 1, .place = UCT_AM_SHOWN)
#define IN_PARTS(_name, _length, _handle, _begin, _end) \
    ROW(_name, _length, _handle, .has_payload = 1, .place = UCT_AM_IN_PLACE, .begin = _begin, \
        .end = _end)

const ucp_wire_message_t ucp_wire_table[UCP_WIRE_LAST] = {
    PAYLOAD(HELLO, sizeof(ucp_wire_hello_t), ucp_hello_handle),
    IN_PARTS(EAGER, sizeof(ucp_wire_eager_t), ucp_eager_handle, ucp_eager_begin, ucp_eager_end),
    IN_PLACE(EAGER_SYNC, sizeof(ucp_wire_eager_sync_t), ucp_eager_sync_handle),
    PAYLOAD(RTS, UCP_WIRE_RTS_LEN, ucp_rndv_rts_handle),
    HEADER(RTR, sizeof(ucp_wire_rtr_t), ucp_rndv_rtr_handle),
    IN_PLACE(DATA, sizeof(ucp_wire_data_t), ucp_rndv_data_handle),
    HEADER(FIN, sizeof(ucp_wire_fin_t), ucp_rndv_fin_handle),
    HEADER(ATS, sizeof(ucp_wire_ats_t), ucp_rndv_ats_handle),
    HEADER(CANCEL, sizeof(ucp_wire_cancel_t), ucp_rndv_cancel_handle),
    IN_PLACE(PUT, sizeof(ucp_wire_put_t), ucp_rma_put_handle),
    HEADER(GET, sizeof(ucp_wire_get_t), ucp_rma_get_handle),
    IN_PLACE(GET_DATA, sizeof(ucp_wire_get_data_t), ucp_rma_get_data_handle),
    HEADER(ATOMIC, sizeof(ucp_wire_atomic_t), ucp_rma_atomic_handle),
    HEADER(RMA_END, sizeof(ucp_wire_rma_end_t), ucp_rma_end_handle),
    SHOWN(AM, sizeof(ucp_wire_am_t), ucp_am_handle),
    SHOWN(AM_REPLY, sizeof(ucp_wire_am_reply_t), ucp_am_reply_handle),
    PAYLOAD(AM_RTS, UCP_WIRE_RTS_LEN, ucp_am_rts_handle),
    IN_PLACE(STREAM, sizeof(ucp_wire_stream_t), ucp_stream_handle),
    PAYLOAD(STREAM_RTS, UCP_WIRE_RTS_LEN, ucp_stream_rts_handle),
    HEADER(HOLD, sizeof(ucp_wire_hold_t), ucp_tag_hold_handle),
    PAYLOAD(KEY, sizeof(ucp_wire_key_t), ucp_device_key_handle),
    HEADER(FRAG, sizeof(ucp_wire_frag_t), ucp_rndv_frag_handle),
    HEADER(FRAG_END, sizeof(ucp_wire_frag_end_t), ucp_rndv_frag_end_handle),
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
