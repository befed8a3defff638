/* Halyard: mm: the ring of cache lines through which one sender reaches one receiver.
 *
 * The ring lies in the receiver's segment: a control block and a power of two of 64-byte lines. A
 * message takes consecutive lines. Every line carries a sequence number that follows from its
 * position (lap + 1, never 0), and is published by one release store of it, so the reader takes
 * lines as they come and nothing is ever zeroed between laps. Zero is "nothing here". Where the
 * processor can, the sequence number and the 12 bytes behind it are one store, and the line's other
 * bytes are written from its end to there, in aligned parts: on Zen 4 messages of 1 to 8 KiB take
 * 25 % less time so than with unaligned parts and a store of the number alone.
 *
 *   first line    [u32 sequence][u32 length << 5 | id][56 bytes of data]
 *   further ones  [u32 sequence][60 bytes of data]
 *
 * A ring may have buffers, in one area or two. A long message goes there as a whole, into as many
 * as it needs side by side, behind those of the last such message of the area (both sides count),
 * or before all if they are too few at the end. Its first line says so, and it takes its share of
 * the lines, so the buffers are free: so many buffers ago is at least a lap of lines ago. The lines
 * behind its first are not written, but for their number in one of UCT_MM_FILL_LAPS laps, so that
 * none ever has that of a lap long ago, which comes again after 2^32 lines.
 *
 *   line          [u32 sequence][u32 UCT_MM_HEAD_BUFFER | UCT_MM_HEAD_WIDE | length << 5 | id]
 *                 [u64 length of its header | UCT_MM_IN_PARTS][the header, up to 48 bytes]
 *
 * The reader puts the header before the payload: it has the line anyway, and waits for none of the
 * buffer. A long payload is told of part by part, by numbers of further lines of the message.
 *
 * A message of one line is handed to its handler in place; a longer one is gathered into memory of
 * the receiver while its lines arrive, or copied there unless its handler bears the buffer. None
 * takes more lines than the ring has beyond a release quantum, so that every message fits.
 * What the other side can write is hostile: positions are masked, fields are read once, lengths are
 * checked before use; the worst that a bad peer of the same user gets is garbled messages.
 *
 * Pairs:  R1/A1  a line's sequence: its data, from sender to receiver
 *         R2/A2  read position: the lines before it are the sender's again
 *         S3     wake word against lines; S4: credit wish against read position. Each side writes
 *                its own and then reads the other's, all sequentially consistent: one of them sees.
 *
 * Not thread-safe: a writer and a reader belong to one interface each. Nothing here blocks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_MM_RING_H
#define UCT_MM_RING_H

#include <ucs/arch/atomic.h>
#include <ucs/arch/cpu.h>
#include <ucs/sys/compiler.h>
#include <uct/api/uct_tl.h>

#include <string.h>

BEGIN_C_DECLS

#define UCT_MM_LINE_SIZE  64
#define UCT_MM_FIRST_DATA 56 /* bytes of data in a message's first line */
#define UCT_MM_REST_DATA  60 /* and in each further one */
#define UCT_MM_INLINE_MAX (UCT_MM_FIRST_DATA - 8) /* bytes beside an 8-byte header */
#define UCT_MM_ID_BITS    5
#define UCT_MM_HEAD_BUFFER 0x80000000u /* in a first line's head: the data lies in a buffer, */
#define UCT_MM_HEAD_WIDE   0x40000000u /* of the wide area */
#define UCT_MM_HEAD_FLAGS  (UCT_MM_HEAD_BUFFER | UCT_MM_HEAD_WIDE)

#define UCT_MM_BUFFER_AUTO (SIZE_MAX - 1)
#define UCT_MM_HEADER_MAX  (UCT_MM_FIRST_DATA - 8) /* bytes of a message in buffers in its line */
#define UCT_MM_IN_PARTS    1u /* beside the header's length, a multiple of 8 */
#define UCT_MM_PART_MIN    ((size_t)8192)        /* bytes of a part, */
#define UCT_MM_PARTED_MIN  (3 * UCT_MM_PART_MIN) /* and of a payload: two parts gain nothing */
#define UCT_MM_LONG_MESSAGES 16 /* of a ring, as long as which one in buffers is at most */
#define UCT_MM_FILL_LAPS 1024u /* power of two, fewer than there are numbers of laps */

#define UCT_MM_RING_LINES_MIN 16
#define UCT_MM_RING_LINES_MAX 65536

static_assert(((uint64_t)UCT_MM_RING_LINES_MAX * UCT_MM_REST_DATA) <
              (UCT_MM_HEAD_WIDE >> UCT_MM_ID_BITS), "a length must fit below the flags");
static_assert((1 << UCT_MM_ID_BITS) == UCT_AM_ID_MAX, "an id must fit its bits");
static_assert(((uint64_t)UCT_MM_RING_LINES_MAX * UCT_MM_FILL_LAPS) <= (UINT64_C(1) << 30),
              "a line's number must be new long before it comes again");

typedef struct {
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u32_t seq;
    ucs_atomic_u32_t head;                    /* of a first line; else the data begins here */
    uint8_t          data[UCT_MM_FIRST_DATA];
} uct_mm_line_t;

/* Start of a ring in shared memory; its lines follow. The two words lie in lines of their own
 * because different sides write them. */
typedef struct {
    /* receiver: lines given back */
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u32_t read_pos;
    /* sender: 1: signal me when you give lines back */
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u32_t credit_wish;
} uct_mm_ring_control_t;

static_assert(sizeof(uct_mm_line_t) == UCT_MM_LINE_SIZE, "layout shared by processes");
static_assert(sizeof(uct_mm_ring_control_t) == 2 * UCT_MM_LINE_SIZE, "layout shared by processes");

UCS_INLINE uct_mm_line_t *uct_mm_ring_first_line(void *ring)
{
    return (uct_mm_line_t *)((uint8_t *)ring + sizeof(uct_mm_ring_control_t));
}

/* Further lines carry data from behind the sequence number on. */
UCS_INLINE uint8_t *uct_mm_line_rest(uct_mm_line_t *line)
{
    return (uint8_t *)line + offsetof(uct_mm_line_t, head);
}

/* Shape of a ring, the same for both sides. */
typedef struct {
    uint32_t lines;   /* power of two, UCT_MM_RING_LINES_MIN to _MAX */
    uint32_t quantum; /* lines that the reader gives back at a time, 1 to lines / 2 */
} uct_mm_ring_shape_t;

/* Bytes of a ring with its control block. */
UCS_INLINE size_t uct_mm_ring_size(const uct_mm_ring_shape_t *shape)
{
    return sizeof(uct_mm_ring_control_t) + ((size_t)shape->lines * UCT_MM_LINE_SIZE);
}

/* Bytes of the longest message. */
UCS_INLINE size_t uct_mm_ring_message_max(const uct_mm_ring_shape_t *shape)
{
    return UCT_MM_FIRST_DATA +
           ((size_t)(shape->lines - shape->quantum - 1) * UCT_MM_REST_DATA);
}

/* Areas of a ring's buffers: one of the first two, and perhaps the wide one. */
typedef enum {
    UCT_MM_AREA_USUAL,
    UCT_MM_AREA_SMALL, /* where many senders have one: a receiver's together stay in caches */
    UCT_MM_AREA_WIDE   /* see uct_mm_writer_area */
} uct_mm_area_t;

/* Buffers of an area: of the wide one as many as lines. Powers of two. */
UCS_INLINE uint32_t uct_mm_ring_buffers(const uct_mm_ring_shape_t *shape, uct_mm_area_t area)
{
    return (area == UCT_MM_AREA_WIDE) ? shape->lines :
           ucs_max(shape->lines / ((area == UCT_MM_AREA_SMALL) ? 8 : 2),
                   (uint32_t)UCT_MM_RING_LINES_MIN);
}

/* Bytes of a buffer: a line for a header, and the longest message of a ring in the wide area, else
 * a quarter of that. An odd number of lines, so that buffers do not all begin in the same sets of a
 * cache. */
UCS_INLINE size_t uct_mm_ring_buffer_size(const uct_mm_ring_shape_t *shape, uct_mm_area_t area)
{
    return (ucs_align_up(uct_mm_ring_message_max(shape) / ((area == UCT_MM_AREA_WIDE) ? 1 : 4),
                         UCT_MM_LINE_SIZE) + UCT_MM_LINE_SIZE) | UCT_MM_LINE_SIZE;
}

/* Bytes of an area. */
UCS_INLINE size_t uct_mm_ring_buffers_size(const uct_mm_ring_shape_t *shape, uct_mm_area_t area)
{
    return uct_mm_ring_buffers(shape, area) * uct_mm_ring_buffer_size(shape, area);
}

/* Bytes of the longest message that goes there: so few buffers that the lines for them, and for as
 * many that are left out, are no more than a message may take. */
UCS_INLINE size_t uct_mm_ring_long_max(const uct_mm_ring_shape_t *shape, uct_mm_area_t area)
{
    const size_t most = ((size_t)uct_mm_ring_buffers(shape, area) *
                         (shape->lines - shape->quantum)) / (2 * (size_t)shape->lines);

    return ucs_min((most * uct_mm_ring_buffer_size(shape, area)) - UCT_MM_LINE_SIZE,
                   UCT_MM_LONG_MESSAGES * uct_mm_ring_message_max(shape));
}

/* An area of a ring's buffers, as one side sees it. */
typedef struct {
    uint8_t *address;
    size_t   size;      /* bytes of each */
    size_t   long_max;  /* of a message; 0: there is no such area */
    uint32_t mask;
    uint32_t stride;    /* lines that each takes */
    uint32_t pos;       /* buffers that were taken */
    uint32_t num_ready; /* whose memory was there before they were used; the writer's */
} uct_mm_buffers_t;

/* An empty area in memory of uct_mm_ring_buffers_size bytes. A ring may have buffers, and then a
 * wide area, too. The reader does this to its `buffers` and `wide`, after init; the writer to
 * `wide`, once it uses buffers. */
void uct_mm_buffers_init(uct_mm_buffers_t *buffers, void *address,
                         const uct_mm_ring_shape_t *shape, uct_mm_area_t area);

/* Buffers that a message needs side by side: a line for a header comes first. */
UCS_INLINE uint32_t uct_mm_buffers_count(const uct_mm_buffers_t *buffers, size_t length)
{
    return (uint32_t)((UCT_MM_LINE_SIZE + length + buffers->size - 1) / buffers->size);
}

/* Buffers that a message takes, with those that it leaves out at the end; *first_p: where it lies.
 * It takes `stride` times as many lines. */
UCS_INLINE uint32_t uct_mm_buffers_take(const uct_mm_buffers_t *buffers, size_t length,
                                        uint32_t *first_p)
{
    const uint32_t index = buffers->pos & buffers->mask;
    uint32_t count       = 1;

    *first_p = index;
    if (ucs_unlikely(UCT_MM_LINE_SIZE + length > buffers->size)) {
        count = uct_mm_buffers_count(buffers, length);
        if (count > buffers->mask + 1 - index) {
            *first_p  = 0;
            count    += buffers->mask + 1 - index;
        }
    }
    return count;
}

/* The payload of a message whose first buffer this is: behind the line for a header. */
UCS_INLINE uint8_t *uct_mm_buffers_payload(const uct_mm_buffers_t *buffers, uint32_t first)
{
    return buffers->address + (first * buffers->size) + UCT_MM_LINE_SIZE;
}

/* Parts of a payload in buffers that takes so many lines. */
UCS_INLINE uint32_t uct_mm_parts_count(size_t length, uint32_t lines)
{
    return (length < UCT_MM_PARTED_MIN) ? 1 :
           (uint32_t)ucs_min(length / UCT_MM_PART_MIN, (size_t)lines);
}

/* Bytes before part `index` of `count`, and up to its end. */
UCS_INLINE size_t uct_mm_part_start(size_t length, uint32_t count, uint32_t index)
{
    return (index == 0) ? 0 : index * ucs_align_down(length / count, (size_t)UCT_MM_LINE_SIZE);
}

UCS_INLINE size_t uct_mm_part_end(size_t length, uint32_t count, uint32_t index)
{
    return (index + 1 == count) ? length : uct_mm_part_start(length, count, index + 1);
}

/* True if the numbers (from a peer) describe a ring. */
int uct_mm_ring_shape_is_valid(const uct_mm_ring_shape_t *shape);

/* ---- sending ---- */

/* What the writer's side does meanwhile; outlives the writer. */
typedef struct {
    uint64_t received; /* messages, from anybody */
    uint32_t turns;    /* calls of progress, which hear what receivers have to say */
    uint32_t num_writers; /* rings to which it writes */
    const uct_am_handler_t *am; /* messages with a `begin` go in parts, as the reader has it, too */
} uct_mm_side_t;

typedef struct {
    uct_mm_line_t         *lines;
    uint32_t               pos;   /* line to be written next; counts on, modulo 2^32 */
    uint32_t               last;  /* line that completed the last message but for short ones */
    uint32_t               limit; /* lines before this position are ours to write */
    uint32_t               mask;
    uint32_t               shift; /* log2 of the number of lines */
    uct_mm_ring_control_t *control;
    uint32_t               lines_max;   /* of a message */
    int                    at_once;     /* for ucs_arch_publish_16 */
    int                    claim_ahead; /* fetch the next message's lines in advance */
    int                    can_demote;  /* ucs_arch_demote does something */
    uct_mm_buffers_t       buffers;
    uct_mm_buffers_t       wide;        /* if there is such an area */
    size_t                 long_max;    /* bytes of the longest message there; 0: those of a ring */
    size_t                 buffer_min;  /* bytes from which on messages of a stream go there, */
    size_t                 single_min;  /* and single ones, too */
    const uct_mm_side_t   *side;
    uint32_t               turn;        /* of the side when there was new credit last, */
    size_t                 unheard;     /* and bytes that were sent since a turn */
    uint64_t               answered;    /* what side->received was lately */
    unsigned               unanswered;  /* messages from buffer_min on sent since then, while few */
    uint8_t                is_amd;      /* see uct_mm_header_length */
    uint8_t                can_be_far;  /* see uct_mm_writer_copy */
    uint8_t                is_far;      /* copies go past the caches, as the usual way was slow */
    uint8_t                num_slow;    /* looks at that way, one after the other */
    uint8_t                num_copies;  /* since the last look */
} uct_mm_writer_t;

/* ring: memory of uct_mm_ring_size bytes whose sequence numbers and read position are zero. */
void uct_mm_writer_init(uct_mm_writer_t *writer, void *ring, const uct_mm_ring_shape_t *shape,
                        const uct_mm_side_t *side);

/* Lets messages of `min` bytes and more (UCT_MM_BUFFER_AUTO: as suits this processor and what is
 * sent) go through buffers: memory of uct_mm_ring_buffers_size bytes, which the reader has been
 * told of. */
void uct_mm_writer_use_buffers(uct_mm_writer_t *writer, void *address,
                               const uct_mm_ring_shape_t *shape, uct_mm_area_t area, size_t min);

/* Looks at the read position again; true if `count` lines may be written now: not where much has
 * been sent without a turn of our side's progress, by which it hears that the receiver has enough.
 */
int uct_mm_writer_refresh(uct_mm_writer_t *writer, uint32_t count);

/* Say that a signal is wanted when the reader gives lines back. True if `count` lines are free
 * already: no signal will come then. */
int uct_mm_writer_wish(uct_mm_writer_t *writer, uint32_t count);

/* Sends a header of at most UCT_MM_FIRST_DATA bytes and a payload, together at most
 * uct_mm_ring_message_max, or writer->long_max. UCS_ERR_NO_RESOURCE: no room, nothing was done. */
ucs_status_t uct_mm_writer_send_pair(uct_mm_writer_t *writer, unsigned id, const void *header,
                                     size_t header_length, const void *payload, size_t length);

/* Sends an 8-byte header and UCT_MM_INLINE_MAX + 1 to UCT_MM_INLINE_MAX + UCT_MM_REST_DATA bytes:
 * two lines, for which there is credit. The second line goes first: the receiver looks at nothing
 * but the first, and its processor fetches both at once (8 % less time on Sapphire Rapids). */
void uct_mm_writer_send_two(uct_mm_writer_t *writer, unsigned id, uint64_t header,
                            const uint8_t *payload, size_t length);

/* Sends iov[0..n), `length` bytes in all. Otherwise the same. */
ucs_status_t uct_mm_writer_send_iov(uct_mm_writer_t *writer, unsigned id, const uct_iov_t *iov,
                                    unsigned n, size_t length);

/* Sends what `pack` writes, at most *length_p bytes: where they are read, or to `space` first.
 * Otherwise the same; *length_p: bytes sent. */
ucs_status_t uct_mm_writer_send_packed(uct_mm_writer_t *writer, unsigned id, uct_pack_cb_t pack,
                                       void *arg, void *space, size_t *length_p);

/* Lines of a message. */
UCS_INLINE uint32_t uct_mm_ring_lines(size_t length)
{
    return (length <= UCT_MM_FIRST_DATA) ? 1 :
           1 + (uint32_t)((length - UCT_MM_FIRST_DATA + UCT_MM_REST_DATA - 1) / UCT_MM_REST_DATA);
}

/* So many messages without one in the other direction are the beginning of a stream. */
#define UCT_MM_STREAM_MIN 4

/* Bytes from which on single messages use the wide area. */
#define UCT_MM_WIDE_SINGLE_MIN 9216

/* Where a message that goes through buffers has its place. That in the wide area has left both
 * processors' own caches when it is written again: that takes half the time where they have no
 * cache in common (Zen 4), and streams of 4 and 8 KiB a third less where they have (Zen 5), but
 * single messages of up to 8 KiB there take 1.3 to 1.7 times as long, beyond (16 KiB) 0.8 times. On
 * Intel's there is no such area: streams of 4 and 8 KiB would be 15 % slower (Granite Rapids). It
 * is used while this process sends to nobody else: with more processes than two the caches that
 * they share would not hold so much (4 on 2 processors: 16 KiB to all in 25 us by the wide areas,
 * in 13 by the others). */
UCS_INLINE uct_mm_buffers_t *uct_mm_writer_area(uct_mm_writer_t *writer, size_t length)
{
    return ((writer->wide.long_max > 0) && (writer->side->num_writers <= 1) &&
            (writer->is_far || (writer->unanswered >= UCT_MM_STREAM_MIN) ||
             (length >= UCT_MM_WIDE_SINGLE_MIN))) ? &writer->wide : &writer->buffers;
}

/* Lines that a message takes if it is sent now, at most: it may go through buffers. */
UCS_INLINE uint32_t uct_mm_writer_lines(uct_mm_writer_t *writer, size_t length)
{
    const uct_mm_buffers_t *area = uct_mm_writer_area(writer, length);
    uint32_t first;

    return (length < writer->single_min) ? uct_mm_ring_lines(length) :
           uct_mm_buffers_take(area, length, &first) * area->stride;
}

/* The same of any message of up to `max` bytes: one that is too long for the end of the area leaves
 * out fewer buffers than it takes. */
UCS_INLINE uint32_t uct_mm_writer_lines_up_to(const uct_mm_writer_t *writer, size_t max)
{
    const uint32_t lines           = uct_mm_ring_lines(ucs_min(max, writer->single_min));
    const uct_mm_buffers_t *buffers = &writer->buffers; /* of the wide ones it takes one */

    return (buffers->long_max == 0) ? lines :
           ucs_max(lines, ((2 * uct_mm_buffers_count(buffers, max)) - 1) * buffers->stride);
}

/* By what was seen of the read position last. */
UCS_INLINE int uct_mm_writer_has_credit(const uct_mm_writer_t *writer, uint32_t count)
{
    return (int32_t)(writer->limit - writer->pos) >= (int32_t)count;
}

UCS_INLINE int uct_mm_writer_has_room(uct_mm_writer_t *writer, uint32_t count)
{
    return ucs_likely(uct_mm_writer_has_credit(writer, count)) ||
           uct_mm_writer_refresh(writer, count);
}

UCS_INLINE uct_mm_line_t *uct_mm_writer_line(const uct_mm_writer_t *writer, uint32_t pos)
{
    return &writer->lines[pos & writer->mask];
}

UCS_INLINE uint32_t uct_mm_writer_seq(const uct_mm_writer_t *writer, uint32_t pos)
{
    return (pos >> writer->shift) + 1;
}

/* The first 8 bytes of a line. */
UCS_INLINE uint64_t uct_mm_line_word(uint32_t seq, uint32_t next)
{
    const uint32_t words[] = {seq, next};
    uint64_t word;

    memcpy(&word, words, sizeof(word));
    return word;
}

/* What stands behind the sequence number in a message's first line. */
UCS_INLINE uint32_t uct_mm_line_head(unsigned id, size_t length)
{
    return ((uint32_t)length << UCT_MM_ID_BITS) | id;
}

/* Makes the first line of a message visible whose data begins with `header`, of 8 bytes; what
 * follows has been written. `length`: of all data. */
UCS_INLINE void uct_mm_writer_publish_headed(uct_mm_writer_t *writer, uct_mm_line_t *line,
                                             unsigned id, uint64_t header, size_t length)
{
    const uint32_t pos = writer->pos;

    ucs_arch_publish_16(line, /* R1 */
                        uct_mm_line_word(uct_mm_writer_seq(writer, pos),
                                         uct_mm_line_head(id, length)),
                        header, writer->at_once);
    writer->pos = pos + 1;
}

/* Fixes the head of a message in its first line and makes the line visible. */
UCS_INLINE void uct_mm_writer_publish_first(uct_mm_writer_t *writer, uct_mm_line_t *line,
                                            unsigned id, size_t length)
{
    const uint32_t pos = writer->pos;

    ucs_atomic_store_relaxed(&line->head, uct_mm_line_head(id, length));
    ucs_atomic_store_release(&line->seq, uct_mm_writer_seq(writer, pos)); /* R1 */
    writer->pos = pos + 1;
}

/* Copies 0 to 64 bytes without a call; overlapping parts instead of a loop. */
UCS_INLINE void uct_mm_copy_short(uint8_t *dest, const uint8_t *src, size_t length)
{
    if (ucs_likely(length == 8)) {
        memcpy(dest, src, 8);
    } else if (length >= 16) {
        uint8_t last[16];

        memcpy(last, src + length - 16, 16);
        if (length > 32) {
            memcpy(dest + 16, src + 16, 16);
            if (length > 48) {
                memcpy(dest + 32, src + 32, 16);
            }
        }
        memcpy(dest, src, 16);
        memcpy(dest + length - 16, last, 16);
    } else if (length >= 8) {
        memcpy(dest, src, 8);
        memcpy(dest + length - 8, src + length - 8, 8);
    } else if (length >= 4) {
        memcpy(dest, src, 4);
        memcpy(dest + length - 4, src + length - 4, 4);
    } else if (length > 0) {
        dest[0]          = src[0];
        dest[length / 2] = src[length / 2];
        dest[length - 1] = src[length - 1];
    }
}

/* ---- receiving ---- */

/* Buffers of an interface in which messages of several lines are gathered. One suffices while each
 * message is completed before the next is begun; one more exists for each unfinished message. */
typedef struct {
    void  *spare; /* or NULL */
    size_t size;  /* bytes of each */
    size_t count; /* buffers that exist */
} uct_mm_staging_t;

/* One buffer is made at once, so that memory runs short at open and not later. */
/* Each buffer has room for `size` bytes in whole lines, because lines are copied whole. */
ucs_status_t uct_mm_staging_init(uct_mm_staging_t *staging, size_t size);
/* No message may be unfinished. */
void uct_mm_staging_cleanup(uct_mm_staging_t *staging);

/* A message in buffers. */
typedef struct {
    uct_mm_buffers_t *area;
    uint8_t          *payload;
    uint8_t          *dest;    /* where its parts belong; NULL: it is to be there as a whole */
    void             *token;   /* of who said so */
    size_t            length;  /* of the payload */
    uint32_t          header;  /* bytes before it */
    uint32_t          id;
    uint32_t          buffers; /* that it takes */
    uint32_t          parts;
    uint32_t          next;    /* of the parts, while it is not all there */
} uct_mm_long_t;

/* What the owner of a reader has to do something about. */
enum {
    UCT_MM_READER_BROKEN    = 1, /* the sender wrote what is no message: nothing more is read */
    UCT_MM_READER_SIGNAL    = 2, /* the sender waits for a signal that lines are free */
    UCT_MM_READER_NO_MEMORY = 4  /* no buffer for the next message, which waits in the ring */
};

typedef struct {
    uct_mm_line_t         *line;     /* the next one */
    uint32_t               seq;      /* which it carries once it is there */
    uint32_t               pos;      /* of it */
    uint32_t               mask;
    uint32_t               shift;
    uint32_t               released; /* read position last given back */
    uint32_t               quantum;
    uint32_t               due;      /* lines at which they are given back amid messages */
    uint32_t               got;      /* bytes gathered */
    uint32_t               length;   /* of the message that is being taken; 0: none is */
    uint32_t               id;
    uint32_t               message_max;
    unsigned               attention; /* UCT_MM_READER_... */
    int                    has_enough; /* a message was delivered that is enough for a turn */
    uct_mm_line_t         *lines;
    uint8_t               *buffer;    /* in which it is being gathered; NULL: it is `parted` */
    uct_mm_long_t          parted;
    uct_mm_ring_control_t *control;
    uct_mm_staging_t      *staging;
    uint64_t               received;  /* messages */
    uint32_t               last_turn; /* of those that look at all, in which a message was there, */
    uint32_t               in_a_row;  /* and how many of them came one after the other; */
    uint32_t               num_full;  /* looks for several, one after the other, that found all */
    uct_mm_buffers_t       buffers;
    uct_mm_buffers_t       wide;
} uct_mm_reader_t;

/* Makes the ring empty and starts reading it. No writer may be active. staging's buffers must hold
 * uct_mm_ring_message_max bytes, or uct_mm_ring_long_max if it gets buffers. */
void uct_mm_reader_init(uct_mm_reader_t *reader, void *ring, const uct_mm_ring_shape_t *shape,
                        uct_mm_staging_t *staging);

/* Drops a message that is not all there. */
void uct_mm_reader_cleanup(uct_mm_reader_t *reader, uct_iface_t *iface);

/* Gives the lines before `pos` back to the sender. */
void uct_mm_reader_release(uct_mm_reader_t *reader, uint32_t pos);

/* The parts of uct_mm_reader_receive for messages of several lines: one from its first line on, and
 * one that an earlier call left unfinished. True if it was delivered. */
int uct_mm_reader_long(uct_mm_reader_t *reader, uct_iface_t *iface, uint32_t head);
int uct_mm_reader_resume(uct_mm_reader_t *reader, uct_iface_t *iface);

/* Nothing more is read from the ring, whatever its sender writes. Also amid a receive. */
void uct_mm_reader_silence(uct_mm_reader_t *reader);

/* True if the next line is there. */
UCS_INLINE int uct_mm_reader_ready(const uct_mm_reader_t *reader)
{
    return ucs_atomic_load_acquire(&reader->line->seq) == reader->seq; /* A1 */
}

/* The same within the total order of S3: for a receiver that is about to sleep. */
UCS_INLINE int uct_mm_reader_ready_armed(const uct_mm_reader_t *reader)
{
    return ucs_atomic_load_seq_cst(&reader->line->seq) == reader->seq; /* S3 */
}

/* True if lines are to be given back now that nothing has come. The store that does it waits for
 * the sender's processor, so it is left to such a moment, unless half of the ring is read before.
 */
UCS_INLINE int uct_mm_reader_should_release(const uct_mm_reader_t *reader)
{
    return (reader->pos - reader->released) >= reader->quantum;
}

/* The line `ahead` of the position is the next one that is looked at; the position stays. */
UCS_INLINE void uct_mm_reader_expect(uct_mm_reader_t *reader, uint32_t ahead)
{
    const uint32_t pos = reader->pos + ahead;

    reader->line = &reader->lines[pos & reader->mask];
    reader->seq  = (pos >> reader->shift) + 1;
}

UCS_INLINE void uct_mm_reader_advance(uct_mm_reader_t *reader, uint32_t count)
{
    reader->pos += count;
    uct_mm_reader_expect(reader, 0);
}

/* A reader whose last turns were full looks whether so many lines more are there. If so, it is
 * behind its writer, and fetches the line so many ahead of each message, as its processor does not
 * look that far ahead by itself (Sapphire Rapids, 8 B: 10 to 20 % more messages). Lines that are
 * not written yet would be taken from the writer (Zen 5, no common cache: 10 to 25 % fewer). */
#define UCT_MM_BEHIND_TURNS 4u
#define UCT_MM_BEHIND_LINES 96u
#define UCT_MM_AHEAD_LINES  8u

UCS_INLINE int uct_mm_reader_is_behind(const uct_mm_reader_t *reader)
{
    const uint32_t pos = reader->pos + UCT_MM_BEHIND_LINES;

    return (reader->num_full >= UCT_MM_BEHIND_TURNS) &&
           (ucs_atomic_load_relaxed(&reader->lines[pos & reader->mask].seq) ==
            (pos >> reader->shift) + 1);
}

/* A message of that many bytes is enough for a turn. */
#define UCT_MM_TURN_BYTES 1536u

/* Delivers to the handlers of `iface` at most `max` messages, and none behind a long one, since it
 * may be that nobody waits for the next yet; the next line must be there. Returns the number
 * delivered, which is 0 while a message is not complete. */
UCS_INLINE unsigned uct_mm_reader_receive(uct_mm_reader_t *reader, uct_iface_t *iface,
                                          unsigned max)
{
    const int is_behind = (max > 1) && uct_mm_reader_is_behind(reader);
    unsigned count      = 0;
    uint32_t length     = 0;
    uint32_t head;

    do {
        if (ucs_likely(reader->length == 0)) {
            head   = ucs_atomic_load_relaxed(&reader->line->head); /* once: a peer can change it */
            length = head >> UCT_MM_ID_BITS;
            if (ucs_likely(length <= UCT_MM_FIRST_DATA)) {
                if (is_behind) {
                    __builtin_prefetch(&reader->lines[(reader->pos + UCT_MM_AHEAD_LINES) &
                                                      reader->mask]);
                }
                uct_iface_deliver(iface, head & (UCT_AM_ID_MAX - 1), reader->line->data, length);
                uct_mm_reader_advance(reader, 1);
            } else if (!uct_mm_reader_long(reader, iface, head)) {
                length = 0;
                break;
            } else {
                length = (head & ~UCT_MM_HEAD_FLAGS) >> UCT_MM_ID_BITS;
            }
        } else if (!uct_mm_reader_resume(reader, iface)) {
            break;
        } else {
            length = UCT_MM_TURN_BYTES;
        }
        ++count;
        if (ucs_unlikely((reader->pos - reader->released) >= reader->due)) {
            uct_mm_reader_release(reader, reader->pos);
        }
    } while ((count < max) && uct_mm_reader_ready(reader) && (length < UCT_MM_TURN_BYTES));

    reader->received  += count;
    reader->has_enough = (length >= UCT_MM_TURN_BYTES);
    if (max > 1) {
        reader->num_full = (count == max) ? reader->num_full + 1 : 0;
    }
    return count;
}

END_C_DECLS

#endif
