/* Halyard: text of the messages between workers; see print.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <wire/print.h>

#include <inttypes.h>
#include <string.h>
#include <ucp/wire/wire.h>

typedef struct {
    const char *label;
    size_t     offset, size;
    char       form; /* x: hexadecimal, u: decimal, d: with a sign */
} field_t;

#define FIELD(_type, _field, _label, _form) \
    {_label, offsetof(ucp_wire_##_type##_t, _field), sizeof(((ucp_wire_##_type##_t *)0)->_field), \
     _form}

#define RTS_FIELDS \
    FIELD(rts, tag, "tag", 'x'), FIELD(rts, worker_id, "from", 'x'), \
    FIELD(rts, request_id, "request", 'x'), FIELD(rts, length, "length", 'u'), \
    FIELD(rts, address, "address", 'x'), FIELD(rts, sync_index, "sync", 'u'), \
    FIELD(rts, flags, "flags", 'x')

/* A field without a label ends a message's. */
static const field_t fields[UCP_WIRE_LAST][9] = {
    [UCP_WIRE_HELLO] = {FIELD(hello, version, "version", 'u'),
        FIELD(hello, features, "features", 'x')},
    [UCP_WIRE_EAGER] = {FIELD(eager, tag, "tag", 'x')},
    [UCP_WIRE_EAGER_SYNC] = {FIELD(eager_sync, tag, "tag", 'x'),
        FIELD(eager_sync, worker_id, "from", 'x'), FIELD(eager_sync, request_id, "request", 'x')},
    [UCP_WIRE_RTS] = {RTS_FIELDS},
    [UCP_WIRE_RTR] = {FIELD(rtr, send_id, "send", 'x'), FIELD(rtr, recv_id, "recv", 'x'),
        FIELD(rtr, address, "address", 'x'), FIELD(rtr, offset, "offset", 'u'),
        FIELD(rtr, length, "length", 'u'), FIELD(rtr, flags, "flags", 'x')},
    [UCP_WIRE_DATA] = {FIELD(data, recv_id, "recv", 'x'), FIELD(data, offset, "offset", 'u')},
    [UCP_WIRE_FIN] = {FIELD(fin, recv_id, "recv", 'x'), FIELD(fin, length, "length", 'u')},
    [UCP_WIRE_ATS] = {FIELD(ats, send_id, "send", 'x'), FIELD(ats, status, "status", 'd')},
    [UCP_WIRE_CANCEL] = {FIELD(cancel, send_id, "send", 'x'),
        FIELD(cancel, status, "status", 'd')},
    [UCP_WIRE_PUT] = {FIELD(put, mem_id, "memory", 'x'), FIELD(put, address, "address", 'x'),
        FIELD(put, worker_id, "from", 'x'), FIELD(put, request_id, "request", 'x')},
    [UCP_WIRE_GET] = {FIELD(get, mem_id, "memory", 'x'), FIELD(get, address, "address", 'x'),
        FIELD(get, length, "length", 'u'), FIELD(get, worker_id, "from", 'x'),
        FIELD(get, request_id, "request", 'x')},
    [UCP_WIRE_GET_DATA] = {FIELD(get_data, request_id, "request", 'x'),
        FIELD(get_data, address, "address", 'x')},
    [UCP_WIRE_ATOMIC] = {FIELD(atomic, mem_id, "memory", 'x'),
        FIELD(atomic, address, "address", 'x'), FIELD(atomic, worker_id, "from", 'x'),
        FIELD(atomic, request_id, "request", 'x'), FIELD(atomic, value, "value", 'x'),
        FIELD(atomic, compare, "compare", 'x'), FIELD(atomic, op, "operation", 'u'),
        FIELD(atomic, size, "size", 'u')},
    [UCP_WIRE_RMA_END] = {FIELD(rma_end, request_id, "request", 'x'),
        FIELD(rma_end, value, "value", 'x'), FIELD(rma_end, status, "status", 'd')},
    [UCP_WIRE_AM] = {FIELD(am, id, "id", 'u'), FIELD(am, header_length, "header", 'u')},
    [UCP_WIRE_AM_REPLY] = {FIELD(am_reply, am.id, "id", 'u'),
        FIELD(am_reply, am.header_length, "header", 'u'), FIELD(am_reply, worker_id, "from", 'x'),
        FIELD(am_reply, am.ep, "endpoint", 'u')},
    [UCP_WIRE_AM_RTS] = {RTS_FIELDS},
    [UCP_WIRE_STREAM] = {FIELD(stream, worker_id, "from", 'x'),
        FIELD(stream, ep, "endpoint", 'u'), FIELD(stream, read, "read", 'u')},
    [UCP_WIRE_STREAM_RTS] = {RTS_FIELDS},
    [UCP_WIRE_HOLD] = {FIELD(hold, hold, "hold", 'u')},
    [UCP_WIRE_KEY] = {FIELD(key, worker_id, "from", 'x'), FIELD(key, slot, "slot", 'u'),
        FIELD(key, wire_id, "transport", 'u')},
    [UCP_WIRE_FRAG] = {FIELD(frag, recv_id, "recv", 'x'), FIELD(frag, offset, "offset", 'u'),
        FIELD(frag, length, "length", 'u'), FIELD(frag, address, "address", 'x'),
        FIELD(frag, slot, "slot", 'u')},
    [UCP_WIRE_FRAG_END] = {FIELD(frag_end, send_id, "send", 'x'),
        FIELD(frag_end, status, "status", 'd')}
};

void wire_print(unsigned id, const void *data, size_t length, FILE *out)
{
    const field_t *field;
    uint64_t value;

    if (!ucp_wire_length_ok(id, length)) {
        fprintf(out, "id %u of %zu bytes is no message", id, length);
        return;
    }

    fprintf(out, "%s", ucp_wire_table[id].name);
    for (field = fields[id]; field->label != NULL; ++field) {
        value = 0;
        memcpy(&value, (const char *)data + field->offset, field->size);
        if (field->form == 'd') {
            fprintf(out, " %s %d", field->label, (int)value);
        } else {
            fprintf(out, (field->form == 'x') ? " %s 0x%" PRIx64 : " %s %" PRIu64, field->label,
                    value);
        }
    }
    if (ucp_wire_table[id].has_payload) {
        fprintf(out, " and %zu bytes", length - ucp_wire_table[id].header_length);
    }
}
