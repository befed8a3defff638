/* Halyard: mm: writing and reading of the ring of lines; see mm_ring.h for its form.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "mm_ring.h"

#include <ucs/arch/cpu.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

/* Looks at the next line of a message, while its writer is at work on it, so many times: some
 * hundred ns, a few lines' way from another core. A writer that takes longer has been interrupted
 * or killed, and others are served. */
#define UCT_MM_GATHER_SPIN 200

int uct_mm_ring_shape_is_valid(const uct_mm_ring_shape_t *shape)
{
    return ucs_is_pow2(shape->lines) && (shape->lines >= UCT_MM_RING_LINES_MIN) &&
           (shape->lines <= UCT_MM_RING_LINES_MAX) && (shape->quantum >= 1) &&
           (shape->quantum <= shape->lines / 2);
}

UCS_INLINE uct_mm_line_t *uct_mm_ring_first_line(void *ring)
{
    return (uct_mm_line_t *)((uint8_t *)ring + sizeof(uct_mm_ring_control_t));
}

/* Further lines carry data from behind the sequence number on. */
UCS_INLINE uint8_t *uct_mm_line_rest(uct_mm_line_t *line)
{
    return (uint8_t *)line + offsetof(uct_mm_line_t, head);
}

/* ---- sending ---- */

/* Taking the next message's lines in advance halves its latency on Intel's processors, and doubles
 * it on AMD's (measured: 256 bytes to 4 KiB, Sapphire Rapids and Zen 4). */
static int uct_mm_writer_should_claim(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return 0;
#endif
}

void uct_mm_writer_init(uct_mm_writer_t *writer, void *ring, const uct_mm_ring_shape_t *shape)
{
    writer->lines       = uct_mm_ring_first_line(ring);
    writer->pos         = 0;
    writer->limit       = shape->lines;
    writer->mask        = shape->lines - 1;
    writer->shift       = ucs_ilog2((uint64_t)shape->lines);
    writer->control     = ring;
    writer->lines_max   = shape->lines - shape->quantum;
    writer->claim_ahead = uct_mm_writer_should_claim();
}

int uct_mm_writer_refresh(uct_mm_writer_t *writer, uint32_t count)
{
    const uint32_t read_pos = ucs_atomic_load_acquire(&writer->control->read_pos); /* A2 */

    writer->limit = read_pos + writer->mask + 1;
    return (int32_t)(writer->limit - writer->pos) >= (int32_t)count;
}

int uct_mm_writer_wish(uct_mm_writer_t *writer, uint32_t count)
{
    uint32_t read_pos;

    ucs_atomic_store_seq_cst(&writer->control->credit_wish, 1);      /* S4 */
    read_pos      = ucs_atomic_load_seq_cst(&writer->control->read_pos); /* S4, A2 */
    writer->limit = read_pos + writer->mask + 1;
    return (int32_t)(writer->limit - writer->pos) >= (int32_t)count;
}

/* Where in the caller's data the next line begins. */
typedef struct {
    const uct_iov_t *iov;
    const uint8_t   *src;
    size_t           left; /* bytes of *iov from src on */
} uct_mm_cursor_t;

/* Copies `length` bytes, which are there, from as many entries as it takes. */
static void uct_mm_cursor_copy(uct_mm_cursor_t *cursor, uint8_t *dest, size_t length)
{
    size_t part;

    for (;;) {
        part = ucs_min(length, cursor->left);
        if (part > 0) {
            memcpy(dest, cursor->src, part);
            cursor->src  += part;
            cursor->left -= part;
            dest         += part;
            length       -= part;
        }
        if (length == 0) {
            return;
        }
        ++cursor->iov;
        cursor->src  = cursor->iov->buffer;
        cursor->left = cursor->iov->length;
    }
}

/* Tells the cache that the lines of a message like the last one will be written next, but for the
 * first, which the receiver is looking at. */
static void uct_mm_writer_claim(const uct_mm_writer_t *writer, uint32_t count)
{
    const uint32_t free_lines = writer->limit - writer->pos;
    uint32_t i;

    for (i = 1; (i < count) && (i < free_lines); ++i) {
        ucs_arch_prefetch_write(uct_mm_writer_line(writer, writer->pos + i));
    }
}

ucs_status_t uct_mm_writer_send_iov(uct_mm_writer_t *writer, unsigned id, const uct_iov_t *iov,
                                    unsigned n, size_t length)
{
    const uint32_t count   = uct_mm_ring_lines(length);
    uct_mm_cursor_t cursor = {.iov = iov, .src = NULL, .left = 0};
    size_t left            = length;
    uct_mm_line_t *line;
    size_t part;

    ucs_assert(count <= writer->lines_max);
    if (ucs_unlikely(!uct_mm_writer_has_room(writer, count))) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (ucs_likely(n > 0)) {
        cursor.src  = iov->buffer;
        cursor.left = iov->length;
    }
    line = uct_mm_writer_line(writer, writer->pos);
    part = ucs_min(left, (size_t)UCT_MM_FIRST_DATA);
    if ((part == UCT_MM_FIRST_DATA) && (cursor.left >= part)) {
        memcpy(line->data, cursor.src, UCT_MM_FIRST_DATA);
        cursor.src  += part;
        cursor.left -= part;
    } else if (part > 0) {
        uct_mm_cursor_copy(&cursor, line->data, part);
    }
    left -= part;
    uct_mm_writer_publish_first(writer, line, id, length);

    while (left > 0) {
        line = uct_mm_writer_line(writer, writer->pos);
        if (ucs_likely((left >= UCT_MM_REST_DATA) && (cursor.left >= UCT_MM_REST_DATA))) {
            memcpy(uct_mm_line_rest(line), cursor.src, UCT_MM_REST_DATA);
            cursor.src  += UCT_MM_REST_DATA;
            cursor.left -= UCT_MM_REST_DATA;
            left        -= UCT_MM_REST_DATA;
        } else {
            part = ucs_min(left, (size_t)UCT_MM_REST_DATA);
            uct_mm_cursor_copy(&cursor, uct_mm_line_rest(line), part);
            left -= part;
        }
        ucs_atomic_store_release(&line->seq, uct_mm_writer_seq(writer, writer->pos)); /* R1 */
        ++writer->pos;
    }

    if (writer->claim_ahead && (count > 1)) {
        uct_mm_writer_claim(writer, count);
    }
    return UCS_OK;
}

/* ---- receiving ---- */

static void *uct_mm_staging_get(uct_mm_staging_t *staging)
{
    void *buffer = staging->free_list;

    if (ucs_likely(buffer != NULL)) {
        memcpy(&staging->free_list, buffer, sizeof(void *));
        return buffer;
    }

    buffer = ucs_sys_memalign(UCT_MM_LINE_SIZE, staging->size);
    if (buffer != NULL) {
        ++staging->count;
    }
    return buffer;
}

static void uct_mm_staging_put(uct_mm_staging_t *staging, void *buffer)
{
    memcpy(buffer, &staging->free_list, sizeof(void *));
    staging->free_list = buffer;
}

ucs_status_t uct_mm_staging_init(uct_mm_staging_t *staging, size_t size)
{
    void *buffer;

    staging->free_list = NULL;
    staging->count     = 0;
    staging->size      = ucs_align_up(size, UCT_MM_LINE_SIZE);
    buffer             = uct_mm_staging_get(staging);
    if (buffer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    uct_mm_staging_put(staging, buffer);
    return UCS_OK;
}

void uct_mm_staging_cleanup(uct_mm_staging_t *staging)
{
    void *buffer;

    while (staging->free_list != NULL) {
        buffer = staging->free_list;
        memcpy(&staging->free_list, buffer, sizeof(void *));
        ucs_sys_free(buffer);
        --staging->count;
    }
    ucs_assert(staging->count == 0);
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
    reader->message_max = (uint32_t)uct_mm_ring_message_max(shape);
    reader->control     = ring;
    reader->staging     = staging;

    for (i = 0; i < shape->lines; ++i) {
        ucs_atomic_store_relaxed(&reader->lines[i].seq, 0);
    }
    ucs_atomic_store_relaxed(&reader->control->read_pos, 0);
    ucs_atomic_store_relaxed(&reader->control->credit_wish, 0);
}

void uct_mm_reader_cleanup(uct_mm_reader_t *reader)
{
    if (reader->length != 0) {
        uct_mm_staging_put(reader->staging, reader->buffer);
        reader->length = 0;
    }
}

UCS_INLINE void uct_mm_reader_advance(uct_mm_reader_t *reader)
{
    const uint32_t pos = reader->pos + 1;

    reader->pos  = pos;
    reader->line = &reader->lines[pos & reader->mask];
    reader->seq  = (pos >> reader->shift) + 1;
}

/* Gives the lines back. Once a quantum, so the full order costs nothing that counts. */
static UCS_NOINLINE void uct_mm_reader_release(uct_mm_reader_t *reader)
{
    reader->released = reader->pos;
    ucs_atomic_store_seq_cst(&reader->control->read_pos, reader->pos); /* R2, S4 */
    if (ucs_unlikely(ucs_atomic_load_seq_cst(&reader->control->credit_wish) != 0)) { /* S4 */
        ucs_atomic_store_relaxed(&reader->control->credit_wish, 0);
        reader->attention |= UCT_MM_READER_SIGNAL;
    }
}

/* Takes the first line of a long message: returns 0 if that cannot be done now, or never. */
static int uct_mm_reader_begin(uct_mm_reader_t *reader, uint32_t head)
{
    const uint32_t length = head >> UCT_MM_ID_BITS;

    if (ucs_unlikely(length > reader->message_max)) {
        reader->attention |= UCT_MM_READER_BROKEN;
        return 0;
    }

    reader->buffer = uct_mm_staging_get(reader->staging);
    if (ucs_unlikely(reader->buffer == NULL)) {
        reader->attention |= UCT_MM_READER_NO_MEMORY;
        return 0; /* the line stays, the next call tries again */
    }
    reader->attention &= ~(unsigned)UCT_MM_READER_NO_MEMORY;

    memcpy(reader->buffer, reader->line->data, UCT_MM_FIRST_DATA);
    reader->got    = UCT_MM_FIRST_DATA;
    reader->length = length;
    reader->id     = head & (UCT_AM_ID_MAX - 1);
    uct_mm_reader_advance(reader);
    return 1;
}

/* Waits a moment for the next line. */
UCS_INLINE int uct_mm_reader_await(const uct_mm_reader_t *reader)
{
    unsigned i;

    for (i = 0; i < UCT_MM_GATHER_SPIN; ++i) {
        if (uct_mm_reader_ready(reader)) {
            return 1;
        }
    }
    return 0;
}

/* Goes on with a long message; true if it was completed and delivered. */
static int uct_mm_reader_gather(uct_mm_reader_t *reader, uct_iface_t *iface)
{
    uint32_t left = reader->length - reader->got;
    uint8_t *dest = reader->buffer + reader->got;
    uint32_t part;

    do {
        if (!uct_mm_reader_await(reader)) {
            reader->got = reader->length - left;
            return 0;
        }
        if (ucs_likely(left >= UCT_MM_REST_DATA)) {
            part = UCT_MM_REST_DATA;
            memcpy(dest, uct_mm_line_rest(reader->line), UCT_MM_REST_DATA);
        } else {
            part = left;
            memcpy(dest, uct_mm_line_rest(reader->line), part);
        }
        dest += part;
        left -= part;
        uct_mm_reader_advance(reader);
    } while (left > 0);

    uct_iface_deliver(iface, reader->id, reader->buffer, reader->length);
    reader->length = 0;
    uct_mm_staging_put(reader->staging, reader->buffer);
    return 1;
}

unsigned uct_mm_reader_receive(uct_mm_reader_t *reader, uct_iface_t *iface, unsigned max)
{
    unsigned count = 0;
    uint32_t head;
    uint32_t length;

    do {
        if (ucs_likely(reader->length == 0)) {
            head   = ucs_atomic_load_relaxed(&reader->line->head); /* once: a peer can change it */
            length = head >> UCT_MM_ID_BITS;
            if (ucs_likely(length <= UCT_MM_FIRST_DATA)) {
                uct_iface_deliver(iface, head & (UCT_AM_ID_MAX - 1), reader->line->data, length);
                uct_mm_reader_advance(reader);
            } else if (!uct_mm_reader_begin(reader, head) ||
                       !uct_mm_reader_gather(reader, iface)) {
                break;
            }
        } else if (!uct_mm_reader_gather(reader, iface)) {
            break;
        }
        ++count;
        if (ucs_unlikely((reader->pos - reader->released) >= reader->quantum)) {
            uct_mm_reader_release(reader);
        }
    } while ((count < max) && uct_mm_reader_ready(reader));

    reader->received += count;
    return count;
}
