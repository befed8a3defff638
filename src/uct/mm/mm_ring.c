/* Halyard: mm: writing of the ring of lines; see mm_ring.h for its form.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_ring.h"

#include <ucs/arch/cpu.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

/* Bytes from which on messages go through buffers: all, or only those of streams where single ones
 * take longer so. They are written and read by one copy each, and lie so far apart that the longer
 * ones have left both processors' own caches when their place is written again, which takes half
 * the time that a line takes which the reader still holds. Measured: on Zen 4 messages of 2 to 8
 * KiB take 30 to 40 % less time than in lines, on Sapphire Rapids streams of 1 to 8 KiB have 1.3 to
 * 3.5 times the bandwidth, but single messages below 3 KiB take longer. On Zen 5 those below 1 KiB
 * do (512 B: 0.105 us instead of 0.092; 1 KiB 0.12 both, between processors without a common cache
 * 0.52 both). Single ones that are shown to the user where they are (UCT_AM_SHOWN) always do: on
 * Emerald Rapids 1, 1.5, 2 KiB take 0.26, 0.27, 0.28 us instead of 0.41, 0.53, 0.61, in windows
 * 0.12, 0.11, 0.14 instead of 0.14, 0.18, 0.22. Who reads all of them has 0.58, 0.66, 0.74 instead
 * of 0.41, 0.54, 0.62, in windows 0.22, 0.25, 0.24 instead of 0.23, 0.27, 0.28. */
#define UCT_MM_BUFFER_MIN            1024
#define UCT_MM_BUFFER_SINGLE_MIN     3072
#define UCT_MM_BUFFER_SINGLE_MIN_AMD 1280

/* Buffers whose memory is asked for at once; no ring has fewer. */
#define UCT_MM_BUFFERS_READY UCT_MM_RING_LINES_MIN

/* Bytes sent without a turn of progress after which there is no new credit. */
#define UCT_MM_UNHEARD_MAX ((size_t)256 * 1024)

/* Bytes a ns below which a copy into a buffer was slow; copies from one look at that to the next,
 * while they are fast, and while they go past the caches; slow ones from which on they do. */
#define UCT_MM_SLOW_RATE  6
#define UCT_MM_NEAR_LOOKS 16
#define UCT_MM_FAR_LOOKS  64
#define UCT_MM_SLOW_LOOKS 4

int uct_mm_ring_shape_is_valid(const uct_mm_ring_shape_t *shape)
{
    return ucs_is_pow2(shape->lines) && (shape->lines >= UCT_MM_RING_LINES_MIN) &&
           (shape->lines <= UCT_MM_RING_LINES_MAX) && (shape->quantum >= 1) &&
           (shape->quantum <= shape->lines / 2);
}

/* ---- sending ---- */

void uct_mm_writer_init(uct_mm_writer_t *writer, void *ring, const uct_mm_ring_shape_t *shape,
                        const uct_mm_side_t *side)
{
    writer->lines       = uct_mm_ring_first_line(ring);
    writer->pos         = 0;
    writer->limit       = shape->lines;
    writer->mask        = shape->lines - 1;
    writer->shift       = ucs_ilog2((uint64_t)shape->lines);
    writer->control     = ring;
    writer->lines_max   = shape->lines - shape->quantum;
    writer->at_once     = ucs_arch_can_store_16();
    /* Taking the next message's lines in advance halves its latency on Intel's processors, and
     * doubles it on AMD's (measured: 256 bytes to 4 KiB, Sapphire Rapids and Zen 4). */
    writer->claim_ahead = (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_INTEL) != 0;
    writer->can_demote  = (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_CLDEMOTE) != 0;
    writer->buffer_min  = SIZE_MAX;
    writer->single_min  = SIZE_MAX;
    writer->long_max    = 0;
    memset(&writer->buffers, 0, sizeof(writer->buffers));
    memset(&writer->wide, 0, sizeof(writer->wide));
    writer->side        = side;
    writer->turn        = side->turns;
    writer->unheard     = 0;
}

/* From where on a single message does not take longer: measured as above. */
static size_t uct_mm_writer_single_min(void)
{
    return (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_AMD) ? UCT_MM_BUFFER_SINGLE_MIN_AMD :
                                                            UCT_MM_BUFFER_SINGLE_MIN;
}

void uct_mm_buffers_init(uct_mm_buffers_t *buffers, void *address,
                         const uct_mm_ring_shape_t *shape, uct_mm_area_t area)
{
    const uint32_t count = uct_mm_ring_buffers(shape, area);

    buffers->address   = address;
    buffers->size      = uct_mm_ring_buffer_size(shape, area);
    buffers->long_max  = uct_mm_ring_long_max(shape, area);
    buffers->mask      = count - 1;
    buffers->stride    = shape->lines / count;
    buffers->pos       = 0;
    buffers->num_ready = 0;
}

void uct_mm_writer_use_buffers(uct_mm_writer_t *writer, void *address,
                               const uct_mm_ring_shape_t *shape, uct_mm_area_t area, size_t min)
{
    const int is_auto = (min == UCT_MM_BUFFER_AUTO);

    uct_mm_buffers_init(&writer->buffers, address, shape, area);
    writer->buffer_min  = is_auto ? UCT_MM_BUFFER_MIN : min;
    writer->single_min  = is_auto ? uct_mm_writer_single_min() : min;
    writer->long_max    =
        (writer->single_min <= uct_mm_ring_message_max(shape)) ? writer->buffers.long_max : 0;
    writer->answered    = 0;
    writer->unanswered  = 0;
    writer->is_amd      = (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_AMD) != 0;
    writer->can_be_far  = (uint8_t)ucs_arch_can_copy_far();
    writer->is_far      = 0;
    writer->num_slow    = 0;
    writer->num_copies  = 0;
}

/* A message of buffer_min and more: true if it belongs to a stream. */
static int uct_mm_writer_streams(uct_mm_writer_t *writer)
{
    if (writer->side->received != writer->answered) {
        writer->answered   = writer->side->received;
        writer->unanswered = 0;
    }
    if (writer->unanswered < UCT_MM_STREAM_MIN) {
        ++writer->unanswered;
        return 0;
    }
    return 1;
}

UCS_INLINE int uct_mm_writer_should_buffer(uct_mm_writer_t *writer, unsigned id, size_t length)
{
    return (length >= writer->buffer_min) &&
           (uct_mm_writer_streams(writer) || (length >= writer->single_min) ||
            (writer->side->am[id].place == UCT_AM_SHOWN));
}

int uct_mm_writer_refresh(uct_mm_writer_t *writer, uint32_t count)
{
    const uint32_t read_pos = ucs_atomic_load_acquire(&writer->control->read_pos); /* A2 */
    const uint32_t limit    = read_pos + writer->mask + 1;

    if (writer->turn != writer->side->turns) {
        writer->turn    = writer->side->turns;
        writer->unheard = 0;
    }
    if (writer->unheard >= UCT_MM_UNHEARD_MAX) {
        return 0;
    }
    writer->unheard += (size_t)(limit - writer->limit) * UCT_MM_LINE_SIZE;
    writer->limit    = limit;
    return (int32_t)(limit - writer->pos) >= (int32_t)count;
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

/* An empty entry may have no address, to which not even 0 may be added. */
UCS_INLINE void uct_mm_cursor_advance(uct_mm_cursor_t *cursor, size_t length)
{
    if (length > 0) {
        cursor->src  += length;
        cursor->left -= length;
    }
}

/* Copies at most UCT_MM_LINE_SIZE bytes, which are there, from as many entries as it takes. */
static void uct_mm_cursor_copy(uct_mm_cursor_t *cursor, uint8_t *dest, size_t length)
{
    size_t part;

    for (;;) {
        part = ucs_min(length, cursor->left);
        uct_mm_copy_short(dest, cursor->src, part);
        uct_mm_cursor_advance(cursor, part);
        dest   += part;
        length -= part;
        if (length == 0) {
            return;
        }
        ++cursor->iov;
        cursor->src  = cursor->iov->buffer;
        cursor->left = cursor->iov->length;
    }
}

/* Lines of messages of several are pushed towards the reader, once they are visible: on Emerald
 * Rapids that takes 10 to 20 % off the latency of 64 bytes to 2 KiB, and 20 to 35 off the time that
 * a message of a stream of 64 to 512 takes. A message of one line takes as long as before. What
 * lies in buffers is not: that takes the writer as long as its copy; readers of many writers take
 * less time then, but whoever writes to many takes more. */
UCS_INLINE void uct_mm_writer_demote(const uct_mm_writer_t *writer, const void *line)
{
    if (writer->can_demote) {
        ucs_arch_demote(line);
    }
}

UCS_INLINE void uct_mm_writer_publish(const uct_mm_writer_t *writer, uct_mm_line_t *line,
                                      uint32_t pos)
{
    ucs_atomic_store_release(&line->seq, uct_mm_writer_seq(writer, pos)); /* R1 */
    uct_mm_writer_demote(writer, line);
}

/* Whole lines from one place; returns the bytes sent. The position is kept in a register: for all
 * that the compiler knows, the copies could change it in memory. */
UCS_INLINE size_t uct_mm_writer_whole_lines(uct_mm_writer_t *writer, const uint8_t *src,
                                            size_t length)
{
    uint32_t pos = writer->pos;
    size_t left  = length;
    uint32_t first;
    uint64_t second;
    uint8_t *line;

    while (left >= UCT_MM_REST_DATA) {
        line = (uint8_t *)uct_mm_writer_line(writer, pos);
        memcpy(line + 48, src + 44, 16);
        memcpy(line + 32, src + 28, 16);
        memcpy(line + 16, src + 12, 16);
        memcpy(&second, src + 4, sizeof(second));
        memcpy(&first, src, sizeof(first));
        ucs_arch_publish_16(line, uct_mm_line_word(uct_mm_writer_seq(writer, pos), first), second,
                            writer->at_once); /* R1 */
        uct_mm_writer_demote(writer, line);
        src  += UCT_MM_REST_DATA;
        left -= UCT_MM_REST_DATA;
        ++pos;
    }
    writer->pos = pos;
    return length - left;
}

/* Lines behind the first one, from several entries. */
static void uct_mm_writer_rest(uct_mm_writer_t *writer, uct_mm_cursor_t *cursor, size_t left)
{
    uct_mm_line_t *line;
    size_t part;

    while (left > 0) {
        part  = uct_mm_writer_whole_lines(writer, cursor->src, ucs_min(left, cursor->left));
        left -= part;
        uct_mm_cursor_advance(cursor, part);
        if (left > 0) { /* the last bytes, or a line from several entries */
            line = uct_mm_writer_line(writer, writer->pos);
            part = ucs_min(left, (size_t)UCT_MM_REST_DATA);
            uct_mm_cursor_copy(cursor, uct_mm_line_rest(line), part);
            uct_mm_writer_publish(writer, line, writer->pos++);
            left -= part;
        }
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

/* The next buffers' memory at once takes the kernel half as long as when they are touched. In the
 * wide area short messages leave most of it untouched. */
static void uct_mm_buffers_ready(uct_mm_buffers_t *buffers, size_t length)
{
    if ((buffers->stride > 1) || (length >= buffers->size / 2)) {
        (void)ucs_sys_populate(buffers->address + (buffers->num_ready * buffers->size),
                               UCT_MM_BUFFERS_READY * buffers->size, 1);
    }
    buffers->num_ready += UCT_MM_BUFFERS_READY;
}

/* The lines that a message takes and does not use have the numbers of a lap not too long ago. */
UCS_INLINE void uct_mm_writer_fill(uct_mm_writer_t *writer, uint32_t pos, uint32_t count)
{
    uint32_t i, seq;

    for (i = 1; i < count; ++i) {
        seq = uct_mm_writer_seq(writer, pos + i);
        if (ucs_unlikely((seq & (UCT_MM_FILL_LAPS - 1)) == 0)) {
            ucs_atomic_store_relaxed(&uct_mm_writer_line(writer, pos + i)->seq, seq);
        }
    }
}

UCS_INLINE void uct_mm_copy_iov(uint8_t *dest, const uct_iov_t *iov, unsigned n,
                                ucs_arch_copy_t how)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (iov[i].length > 0) { /* an empty entry may have no address */
            ucs_arch_copy(how, dest, iov[i].buffer, iov[i].length);
            dest += iov[i].length;
        }
    }
}

/* Copies from one that is timed to the next. */
static unsigned uct_mm_writer_look_interval(const uct_mm_writer_t *writer)
{
    return writer->is_far ? UCT_MM_FAR_LOOKS : (writer->num_slow > 0) ? 1 : UCT_MM_NEAR_LOOKS;
}

/* Is it time to look how long a copy takes the usual way? */
static int uct_mm_writer_should_look(uct_mm_writer_t *writer)
{
    if (++writer->num_copies < uct_mm_writer_look_interval(writer)) {
        return 0;
    }
    writer->num_copies = 0;
    return 1;
}

/* Gathers a message in buffers. Where the receiver, which has the lines from the last lap, shares
 * no cache with us, that goes at 2.5 bytes a ns on Zen 4; where it does, at 9 at least. Past the
 * caches neither side takes long (8 KiB, copied in and out: 0.6 us instead of 3.4), but a receiver
 * that shares a cache then misses it (0.6 us instead of 0.3). Processors of virtual machines do not
 * tell, and move. So copies that take long are found out, and once in a while one goes the usual
 * way to see whether that has become faster. */
static void uct_mm_writer_copy(uct_mm_writer_t *writer, uint8_t *dest, const uct_iov_t *iov,
                               unsigned n, size_t length)
{
    uint64_t start;

    if ((length <= UCS_ARCH_COPY_MIN) || !writer->can_be_far ||
        ucs_likely(!uct_mm_writer_should_look(writer))) {
        uct_mm_copy_iov(dest, iov, n, writer->is_far ? UCS_ARCH_COPY_FAR : UCS_ARCH_COPY_OUT);
        return;
    }
    start = ucs_sys_clock_ns();
    uct_mm_copy_iov(dest, iov, n, UCS_ARCH_COPY_OUT);
    if ((ucs_sys_clock_ns() - start) * UCT_MM_SLOW_RATE < length) {
        writer->num_slow = 0;
        writer->is_far   = 0;
    } else if (++writer->num_slow >= UCT_MM_SLOW_LOOKS) {
        writer->num_slow = UCT_MM_SLOW_LOOKS;
        writer->is_far   = 1;
    }
}

/* Bytes of a message in buffers that go in its line: those before the payload, if they leave it
 * its place at the start of a line. Measured, us: Zen 5, one cache, 4 KiB 0.27 -> 0.25, 8 KiB 0.33
 * -> 0.31, in streams 0.11 -> 0.10 and 0.16 -> 0.15; no common cache 0.98 -> 0.80, 1.2 -> 1.04;
 * Sapphire Rapids 3 and 4 KiB 1.34 -> 1.2, 1.45 -> 1.35, but in streams 0.52 -> 0.61. */
UCS_INLINE size_t uct_mm_header_length(const uct_mm_writer_t *writer, const uct_iov_t *iov,
                                       unsigned n, size_t length)
{
    const size_t header = (n > 1) ? length - iov[n - 1].length : 0;

    return ((header <= UCT_MM_HEADER_MAX) && (header % sizeof(uint64_t) == 0) &&
            (writer->is_amd || (writer->unanswered < UCT_MM_STREAM_MIN))) ? header : 0;
}

/* The header of a message in buffers goes into its line. */
UCS_INLINE void uct_mm_writer_head(uct_mm_line_t *line, const uct_iov_t *iov, size_t header,
                                   uint32_t parts)
{
    uct_mm_cursor_t start = {iov, iov->buffer, iov->length};

    line->data[0] = (uint8_t)(header | ((parts > 1) ? UCT_MM_IN_PARTS : 0));
    uct_mm_cursor_copy(&start, line->data + sizeof(uint64_t), header);
}

static void uct_mm_writer_copy_part(uct_mm_writer_t *writer, uint8_t *dest,
                                    const uct_iov_t *payload, uint32_t count, uint32_t index)
{
    const size_t first = uct_mm_part_start(payload->length, count, index);
    const size_t end   = uct_mm_part_end(payload->length, count, index);
    uct_iov_t part     = {(uint8_t *)payload->buffer + first, end - first, NULL};

    uct_mm_writer_copy(writer, dest + first, &part, 1, part.length);
}

static void uct_mm_writer_further_parts(uct_mm_writer_t *writer, uint8_t *dest,
                                        const uct_iov_t *payload, uint32_t count, uint32_t pos)
{
    uint32_t i;

    for (i = 1; i < count; ++i) {
        uct_mm_writer_copy_part(writer, dest, payload, count, i);
        uct_mm_writer_publish(writer, uct_mm_writer_line(writer, pos + i), pos + i); /* R1 */
    }
}

/* Where a message of that length goes but for its first `header` bytes, which its line takes;
 * *count_p: the buffers that it takes. NULL: there is no room. */
static uint8_t *uct_mm_writer_reserve(uct_mm_writer_t *writer, uct_mm_buffers_t *buffers,
                                      size_t length, size_t header, uint32_t *count_p)
{
    uint32_t first;
    uint8_t *dest;

    ucs_assert(length <= buffers->long_max);
    *count_p = uct_mm_buffers_take(buffers, length, &first);
    if (ucs_unlikely(!uct_mm_writer_has_room(writer, *count_p * buffers->stride))) {
        return NULL;
    }
    dest = uct_mm_buffers_payload(buffers, first);
    while (ucs_unlikely(dest + length - header > /* on the first lap */
                        buffers->address + (buffers->num_ready * buffers->size))) {
        uct_mm_buffers_ready(buffers, length);
    }
    return dest;
}

/* Makes the first of the parts of a message visible. */
static void uct_mm_writer_publish_buffer(uct_mm_writer_t *writer, uct_mm_buffers_t *buffers,
                                         unsigned id, size_t length, uint32_t lines,
                                         uint32_t parts)
{
    const uint32_t area = (buffers == &writer->wide) ? UCT_MM_HEAD_WIDE : 0;
    uct_mm_line_t *line = uct_mm_writer_line(writer, writer->pos);

    uct_mm_writer_fill(writer, writer->pos + parts - 1, lines - parts + 1);
    ucs_atomic_store_relaxed(&line->head,
                             UCT_MM_HEAD_BUFFER | area | uct_mm_line_head(id, length));
    uct_mm_writer_publish(writer, line, writer->pos); /* R1: of the buffer, too */
    writer->unheard += length;
}

/* The message goes into the next buffer, or several. */
static ucs_status_t uct_mm_writer_send_buffer(uct_mm_writer_t *writer, unsigned id,
                                              const uct_iov_t *iov, unsigned n, size_t length)
{
    uct_mm_buffers_t *buffers = uct_mm_writer_area(writer, length);
    const size_t header       = uct_mm_header_length(writer, iov, n, length);
    const uint32_t pos        = writer->pos;
    uct_mm_line_t *line       = uct_mm_writer_line(writer, pos);
    uint32_t parts            = 1;
    uint32_t count, lines;
    uint8_t *dest;

    dest = uct_mm_writer_reserve(writer, buffers, length, header, &count);
    if (dest == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    lines = count * buffers->stride;
    if (header == 0) {
        uct_mm_writer_copy(writer, dest, iov, n, length);
        line->data[0] = 0;
    } else {
        if (writer->side->am[id].begin != NULL) {
            parts = uct_mm_parts_count(length - header, lines);
        }
        uct_mm_writer_copy_part(writer, dest, &iov[n - 1], parts, 0);
        uct_mm_writer_head(line, iov, header, parts);
    }
    uct_mm_writer_publish_buffer(writer, buffers, id, length, lines, parts);
    if (parts > 1) {
        uct_mm_writer_further_parts(writer, dest, &iov[n - 1], parts, pos);
    }
    writer->last  = pos + parts - 1;
    writer->pos   = pos + lines;
    buffers->pos += count;
    return UCS_OK;
}

/* Is a message packed where it is read? Not past the caches, and not when a copy is to be timed. */
static int uct_mm_writer_packs_there(uct_mm_writer_t *writer, size_t length)
{
    if (writer->is_far) {
        return 0;
    }
    if ((length <= UCS_ARCH_COPY_MIN) || !writer->can_be_far) {
        return 1;
    }
    if (writer->num_copies + 1u >= uct_mm_writer_look_interval(writer)) {
        return 0;
    }
    ++writer->num_copies;
    return 1;
}

/* The same, packed where it is read. */
static ucs_status_t uct_mm_writer_pack_buffer(uct_mm_writer_t *writer, unsigned id,
                                              uct_pack_cb_t pack, void *arg, size_t *length_p)
{
    const size_t max          = *length_p;
    uct_mm_buffers_t *buffers = uct_mm_writer_area(writer, max);
    const uint32_t pos        = writer->pos;
    uint32_t count, first;
    uint8_t *dest, *packed;

    packed = uct_mm_writer_reserve(writer, buffers, max, 0, &count);
    if (packed == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    *length_p = pack(packed, arg, max);
    ucs_assert((*length_p <= max) && (writer->pos == pos));
    count = uct_mm_buffers_take(buffers, *length_p, &first);
    dest  = uct_mm_buffers_payload(buffers, first);
    if (dest != packed) { /* it is shorter, and fits before the end of the area */
        memmove(dest, packed, *length_p);
    }
    uct_mm_writer_line(writer, pos)->data[0] = 0;
    uct_mm_writer_publish_buffer(writer, buffers, id, *length_p, count * buffers->stride, 1);
    writer->last  = pos;
    writer->pos   = pos + (count * buffers->stride);
    buffers->pos += count;
    return UCS_OK;
}

void uct_mm_writer_send_two(uct_mm_writer_t *writer, unsigned id, uint64_t header,
                            const uint8_t *payload, size_t length)
{
    uct_mm_line_t *line = uct_mm_writer_line(writer, writer->pos);
    uct_mm_line_t *next = uct_mm_writer_line(writer, writer->pos + 1);

    uct_mm_copy_short(uct_mm_line_rest(next), payload + UCT_MM_INLINE_MAX,
                      length - UCT_MM_INLINE_MAX);
    uct_mm_writer_publish(writer, next, writer->pos + 1);
    memcpy(line->data + sizeof(header), payload, UCT_MM_INLINE_MAX);
    uct_mm_writer_publish_headed(writer, line, id, header, sizeof(header) + length);
    uct_mm_writer_demote(writer, line);
    ++writer->pos;
    if (writer->claim_ahead) {
        uct_mm_writer_claim(writer, 2);
    }
}

ucs_status_t uct_mm_writer_send_pair(uct_mm_writer_t *writer, unsigned id, const void *header,
                                     size_t header_length, const void *payload, size_t length)
{
    const size_t total   = header_length + length;
    const uint32_t count = uct_mm_ring_lines(total);
    size_t part          = ucs_min(length, UCT_MM_FIRST_DATA - header_length);
    const uint8_t *src   = payload;
    uct_mm_line_t *line;
    uint64_t word;

    ucs_assert(header_length <= UCT_MM_FIRST_DATA);
    if (uct_mm_writer_should_buffer(writer, id, total)) {
        const uct_iov_t iov[] = {{(void *)header, header_length, NULL},
                                 {(void *)payload, length, NULL}};

        return uct_mm_writer_send_buffer(writer, id, iov, 2, total);
    }
    ucs_assert(count <= writer->lines_max);
    if (ucs_unlikely(!uct_mm_writer_has_room(writer, count))) {
        return UCS_ERR_NO_RESOURCE;
    }

    line = uct_mm_writer_line(writer, writer->pos);
    if (ucs_likely(header_length == sizeof(word))) {
        memcpy(&word, header, sizeof(word));
        uct_mm_copy_short(line->data + sizeof(word), src, part);
        uct_mm_writer_publish_headed(writer, line, id, word, total);
    } else {
        uct_mm_copy_short(line->data, header, header_length);
        uct_mm_copy_short(line->data + header_length, src, part);
        uct_mm_writer_publish_first(writer, line, id, total);
    }
    uct_mm_writer_demote(writer, line);
    writer->last = writer->pos + count - 2;
    if (length == part) {
        return UCS_OK;
    }

    part += uct_mm_writer_whole_lines(writer, src + part, length - part);
    if (part < length) {
        line = uct_mm_writer_line(writer, writer->pos);
        uct_mm_copy_short(uct_mm_line_rest(line), src + part, length - part);
        uct_mm_writer_publish(writer, line, writer->pos++);
    }
    if (writer->claim_ahead) {
        uct_mm_writer_claim(writer, count);
    }
    return UCS_OK;
}

static ucs_status_t uct_mm_writer_send_lines(uct_mm_writer_t *writer, unsigned id,
                                             const uct_iov_t *iov, unsigned n, size_t length)
{
    const uint32_t count   = uct_mm_ring_lines(length);
    const size_t first     = ucs_min(length, (size_t)UCT_MM_FIRST_DATA);
    uct_mm_cursor_t cursor = {.iov = iov, .src = NULL, .left = 0};
    uct_mm_line_t *line;

    ucs_assert(count <= writer->lines_max);
    if (ucs_unlikely(!uct_mm_writer_has_room(writer, count))) {
        return UCS_ERR_NO_RESOURCE;
    }

    line = uct_mm_writer_line(writer, writer->pos);
    if (ucs_likely(n > 0)) {
        cursor.src  = iov->buffer;
        cursor.left = iov->length;
        uct_mm_cursor_copy(&cursor, line->data, first);
    }
    uct_mm_writer_publish_first(writer, line, id, length);
    uct_mm_writer_demote(writer, line);
    writer->last = writer->pos + count - 2;

    if (count > 1) {
        uct_mm_writer_rest(writer, &cursor, length - first);
        if (writer->claim_ahead) {
            uct_mm_writer_claim(writer, count);
        }
    }
    return UCS_OK;
}

ucs_status_t uct_mm_writer_send_iov(uct_mm_writer_t *writer, unsigned id, const uct_iov_t *iov,
                                    unsigned n, size_t length)
{
    return uct_mm_writer_should_buffer(writer, id, length) ?
           uct_mm_writer_send_buffer(writer, id, iov, n, length) :
           uct_mm_writer_send_lines(writer, id, iov, n, length);
}

ucs_status_t uct_mm_writer_send_packed(uct_mm_writer_t *writer, unsigned id, uct_pack_cb_t pack,
                                       void *arg, void *space, size_t *length_p)
{
    const int is_buffered = uct_mm_writer_should_buffer(writer, id, *length_p);
    const uint32_t lines  = is_buffered ? uct_mm_writer_lines_up_to(writer, *length_p) :
                                          uct_mm_ring_lines(*length_p);
    uct_iov_t iov         = {.buffer = space};
    ucs_status_t status;

    if (is_buffered && uct_mm_writer_packs_there(writer, *length_p)) {
        return uct_mm_writer_pack_buffer(writer, id, pack, arg, length_p);
    }
    /* first, because what has been packed cannot be given back */
    if (ucs_unlikely(!uct_mm_writer_has_room(writer, lines))) {
        return UCS_ERR_NO_RESOURCE;
    }
    *length_p = iov.length = pack(space, arg, *length_p);
    status = is_buffered ? uct_mm_writer_send_buffer(writer, id, &iov, 1, iov.length) :
                           uct_mm_writer_send_lines(writer, id, &iov, 1, iov.length);
    ucs_assert(status == UCS_OK);
    return status;
}
