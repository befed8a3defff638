/* Halyard: mm: reading of the ring of lines; see mm_ring.h for its form.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_ring.h"

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

/* Looks at the next line of a message, while its writer is at work on it, so many times: some
 * hundred ns, a few lines' way from another core. A writer that takes longer has been interrupted
 * or killed, and others are served. */
#define UCT_MM_GATHER_SPIN 200

/* The buffer at hand, which stays there until it is taken; NULL without memory. */
UCS_INLINE void *uct_mm_staging_look(uct_mm_staging_t *staging)
{
    if (ucs_unlikely(staging->spare == NULL)) {
        staging->spare = ucs_sys_memalign(UCT_MM_LINE_SIZE, staging->size);
        staging->count += (staging->spare != NULL);
    }
    return staging->spare;
}

static void uct_mm_staging_put(uct_mm_staging_t *staging, void *buffer)
{
    if (staging->spare == NULL) {
        staging->spare = buffer;
    } else {
        ucs_sys_free(buffer);
        --staging->count;
    }
}

ucs_status_t uct_mm_staging_init(uct_mm_staging_t *staging, size_t size)
{
    staging->spare = NULL;
    staging->count = 0;
    staging->size  = ucs_align_up(size, UCT_MM_LINE_SIZE);
    return (uct_mm_staging_look(staging) != NULL) ? UCS_OK : UCS_ERR_NO_MEMORY;
}

void uct_mm_staging_cleanup(uct_mm_staging_t *staging)
{
    ucs_assert(staging->count == (staging->spare != NULL));
    ucs_sys_free(staging->spare);
    staging->spare = NULL;
    staging->count = 0;
}

void uct_mm_reader_init(uct_mm_reader_t *reader, void *ring, const uct_mm_ring_shape_t *shape,
                        uct_mm_staging_t *staging)
{
    uint32_t i;

    memset(reader, 0, sizeof(*reader));
    reader->lines       = uct_mm_ring_first_line(ring);
    reader->line        = reader->lines;
    reader->seq         = 1;
    reader->mask        = shape->lines - 1;
    reader->shift       = ucs_ilog2((uint64_t)shape->lines);
    reader->quantum     = shape->quantum;
    reader->due         = shape->lines / 2;
    reader->message_max = (uint32_t)uct_mm_ring_message_max(shape);
    reader->control     = ring;
    reader->staging     = staging;

    for (i = 0; i < shape->lines; ++i) {
        ucs_atomic_store_relaxed(&reader->lines[i].seq, 0);
    }
    ucs_atomic_store_relaxed(&reader->control->read_pos, 0);
    ucs_atomic_store_relaxed(&reader->control->credit_wish, 0);
}

void uct_mm_reader_silence(uct_mm_reader_t *reader)
{
    static uct_mm_line_t silence; /* its number, 0, is that of no line */

    reader->lines = &silence;
    reader->mask  = 0;
    reader->line  = &silence;
}

void uct_mm_reader_cleanup(uct_mm_reader_t *reader, uct_iface_t *iface)
{
    if (reader->length != 0) {
        reader->length = 0;
        if (reader->buffer != NULL) {
            uct_mm_staging_put(reader->staging, reader->buffer);
        } else if (reader->parted.dest != NULL) {
            iface->am[reader->parted.id].end(reader->parted.token, UCS_ERR_CONNECTION_RESET);
        }
    }
}

void uct_mm_reader_release(uct_mm_reader_t *reader, uint32_t pos)
{
    reader->released = pos;
    ucs_atomic_store_seq_cst(&reader->control->read_pos, pos); /* R2, S4 */
    if (ucs_unlikely(ucs_atomic_load_seq_cst(&reader->control->credit_wish) != 0)) { /* S4 */
        ucs_atomic_store_relaxed(&reader->control->credit_wish, 0);
        reader->attention |= UCT_MM_READER_SIGNAL;
    }
}

/* Waits a moment for a line. */
UCS_INLINE int uct_mm_line_await(const uct_mm_line_t *line, uint32_t seq)
{
    unsigned i = UCT_MM_GATHER_SPIN;

    while (ucs_unlikely(ucs_atomic_load_acquire(&line->seq) != seq)) { /* A1 */
        if (--i == 0) {
            return 0;
        }
    }
    return 1;
}

/* A message of several lines that is being gathered. */
typedef struct {
    uint8_t *buffer;
    uint32_t got;    /* bytes */
    uint32_t length;
    uint32_t id;
} uct_mm_gather_t;

/* Gathers what is there; true if the message was completed and delivered. The position is kept in
 * registers: for all that the compiler knows, the copies could change it in memory. */
UCS_INLINE int uct_mm_reader_gather(uct_mm_reader_t *reader, uct_iface_t *iface,
                                    uct_mm_gather_t *message)
{
    uint8_t *dest       = message->buffer + message->got;
    uint32_t left       = message->length - message->got;
    uct_mm_line_t *line = reader->line;
    uint32_t seq        = reader->seq;
    uint32_t pos        = reader->pos;
    uint32_t due        = reader->due;
    uint32_t part;

    if (message->length > reader->message_max / 2) {
        due = reader->quantum; /* the sender may have the next one of this size ready */
    }

    while ((left > 0) && uct_mm_line_await(line, seq)) {
        /* Whole lines, also the last: the buffers have room, and a copy of fixed size is short. */
        memcpy(dest, uct_mm_line_rest(line), UCT_MM_REST_DATA);
        part  = ucs_min(left, (uint32_t)UCT_MM_REST_DATA);
        dest += part;
        left -= part;
        ++pos;
        line  = &reader->lines[pos & reader->mask];
        seq   = (pos >> reader->shift) + 1;
        if (ucs_unlikely((pos - reader->released) >= due)) {
            uct_mm_reader_release(reader, pos);
        }
    }

    reader->line = line;
    reader->seq  = seq;
    reader->pos  = pos;
    if (ucs_unlikely(left > 0)) {
        message->got = message->length - left;
        return 0;
    }
    uct_iface_deliver(iface, message->id, message->buffer, message->length);
    return 1;
}

/* A message in buffers is all there: hands it over, copied unless its handler bears that the sender
 * changes it meanwhile. */
static int uct_mm_reader_finish(uct_mm_reader_t *reader, uct_iface_t *iface,
                                const uct_mm_long_t *message)
{
    const size_t length = message->header + message->length;
    uint8_t *data       = message->payload - message->header;
    uint8_t *staging;

    if (iface->am[message->id].place == UCT_AM_COPIED) {
        staging = uct_mm_staging_look(reader->staging);
        if (ucs_unlikely(staging == NULL)) {
            reader->attention |= UCT_MM_READER_NO_MEMORY; /* it stays, for the next call */
            return 0;
        }
        ucs_arch_copy(UCS_ARCH_COPY_IN, staging, data, length);
        data = staging;
    }
    reader->length = 0;
    uct_iface_deliver(iface, message->id, data, length);
    message->area->pos += message->buffers;
    uct_mm_reader_advance(reader, message->buffers * message->area->stride);
    return 1;
}

/* Takes what is there of a message in parts; true if that was all. */
static int uct_mm_reader_resume_parts(uct_mm_reader_t *reader, uct_iface_t *iface)
{
    uct_mm_long_t *message = &reader->parted;
    size_t first, end;

    if (message->dest == NULL) {
        return uct_mm_line_await(reader->line, reader->seq) &&
               uct_mm_reader_finish(reader, iface, message);
    }
    while (message->next < message->parts) {
        if (!uct_mm_line_await(reader->line, reader->seq)) {
            return 0;
        }
        first = uct_mm_part_start(message->length, message->parts, message->next);
        end   = uct_mm_part_end(message->length, message->parts, message->next);
        ucs_arch_copy(UCS_ARCH_COPY_IN, message->dest + first, message->payload + first,
                      end - first);
        uct_mm_reader_expect(reader, ++message->next);
    }
    reader->length      = 0;
    message->area->pos += message->buffers;
    uct_mm_reader_advance(reader, message->buffers * message->area->stride);
    UCS_PROBE2(message, message->id, message->header + message->length);
    iface->am[message->id].end(message->token, UCS_OK);
    return 1;
}

int uct_mm_reader_resume(uct_mm_reader_t *reader, uct_iface_t *iface)
{
    uct_mm_gather_t message = {reader->buffer, reader->got, reader->length, reader->id};

    if (message.buffer == NULL) {
        return uct_mm_reader_resume_parts(reader, iface);
    }
    if (!uct_mm_reader_gather(reader, iface, &message)) {
        reader->got = message.got;
        return 0;
    }
    reader->length = 0;
    uct_mm_staging_put(reader->staging, reader->buffer);
    return 1;
}

/* The message has been begun only. Its parts are taken as they come, if its handler has a place for
 * them. */
static int uct_mm_reader_begin(uct_mm_reader_t *reader, uct_iface_t *iface, uct_mm_long_t *message)
{
    const uct_am_handler_t *am = &iface->am[message->id];

    if (am->begin != NULL) {
        message->dest = am->begin(am->arg, message->payload - message->header, message->header,
                                  message->length, &message->token);
    }
    reader->parted = *message;
    reader->buffer = NULL;
    reader->length = (uint32_t)message->length;
    uct_mm_reader_expect(reader, (message->dest != NULL) ? 0 : message->parts - 1);
    return uct_mm_reader_resume_parts(reader, iface);
}

/* A message of `length` bytes in the next buffers. */
static int uct_mm_reader_take_buffer(uct_mm_reader_t *reader, uct_mm_buffers_t *buffers,
                                     uct_iface_t *iface, unsigned id, size_t length)
{
    uint32_t first;
    const uint32_t count = uct_mm_buffers_take(buffers, length, &first);
    const uct_mm_line_t *line = reader->line;
    const uint8_t start  = line->data[0]; /* once */
    const size_t header  = ucs_min(ucs_min((size_t)(start & ~7u), (size_t)UCT_MM_HEADER_MAX),
                                   length);
    uct_mm_long_t message = {
        .area    = buffers,
        .payload = uct_mm_buffers_payload(buffers, first),
        .header  = (uint32_t)header,
        .length  = length - header,
        .id      = id,
        .buffers = count,
        .parts   = 1
    };

    uct_mm_copy_short(message.payload - header, line->data + sizeof(uint64_t), header);
    if (start & UCT_MM_IN_PARTS) {
        message.parts = uct_mm_parts_count(message.length, count * buffers->stride);
    }
    if (message.parts > 1) {
        uct_mm_reader_expect(reader, message.parts - 1);
        if (!uct_mm_reader_ready(reader)) {
            return uct_mm_reader_begin(reader, iface, &message);
        }
    }
    return uct_mm_reader_finish(reader, iface, &message);
}

int uct_mm_reader_long(uct_mm_reader_t *reader, uct_iface_t *iface, uint32_t head)
{
    uct_mm_buffers_t *area  = !(head & UCT_MM_HEAD_BUFFER) ? NULL :
                              (head & UCT_MM_HEAD_WIDE) ? &reader->wide : &reader->buffers;
    uct_mm_gather_t message = {
        .buffer = uct_mm_staging_look(reader->staging),
        .got    = UCT_MM_FIRST_DATA,
        .length = (head & ~UCT_MM_HEAD_FLAGS) >> UCT_MM_ID_BITS,
        .id     = head & (UCT_AM_ID_MAX - 1)
    };
    const size_t longest    = (area != NULL) ? area->long_max : reader->message_max;
    const size_t shortest   = (area != NULL) ? 0 : UCT_MM_FIRST_DATA + 1; /* else one line is all */

    if (ucs_unlikely((message.length > longest) || (message.length < shortest) ||
                     (longest == 0))) { /* 0: no such area */
        reader->attention |= UCT_MM_READER_BROKEN;
        return 0;
    }
    if (ucs_unlikely(message.buffer == NULL)) {
        reader->attention |= UCT_MM_READER_NO_MEMORY; /* the line stays, for the next call */
        return 0;
    }
    if (area != NULL) {
        return uct_mm_reader_take_buffer(reader, area, iface, message.id, message.length);
    }

    memcpy(message.buffer, reader->line->data, UCT_MM_FIRST_DATA);
    uct_mm_reader_advance(reader, 1);
    if (ucs_likely(uct_mm_reader_gather(reader, iface, &message))) {
        return 1;
    }

    reader->staging->spare = NULL; /* taken until the rest comes */
    reader->buffer         = message.buffer;
    reader->got            = message.got;
    reader->length         = message.length;
    reader->id             = message.id;
    return 0;
}
