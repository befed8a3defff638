/* Halyard: mm: sending.
 *
 * A message is complete for the sender when its lines are published: they lie in the receiver's
 * memory and need no more help, not even this process.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_iface.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <endian.h>

ucs_status_t uct_mm_ep_init(uct_ep_t *tl_ep, const void *address, size_t length)
{
    const uct_mm_address_t *wire = address;
    uct_mm_ep_t *ep              = uct_mm_ep(tl_ep);

    if (length != sizeof(*wire)) {
        ucs_error("an address of %zu bytes is not one of mm", length);
        return UCS_ERR_INVALID_ADDR;
    }

    ep->name        = le64toh(wire->name);
    ep->place       = le16toh(wire->place);
    ep->source.kind = UCT_MM_SOURCE_EP;
    ep->source.fd   = -1;
    ucs_list_head_init(&ep->retry);
    return UCS_OK;
}

/* Whoever takes the word back has signalled before: one that is stopped in between keeps nobody
 * asleep. */
void uct_mm_ep_rouse(uct_mm_ep_t *ep)
{
    uint32_t word = ucs_atomic_load_seq_cst(ep->wake); /* S3 */

    if ((word % UCT_MM_WAKE_SLEEP) != UCT_MM_WAKE_ARMED) {
        return;
    }
    if (uct_mm_connect_signal(ep->source.fd)) {
        (void)ucs_atomic_cas(ep->wake, &word, UCT_MM_WAKE_AWAKE);
    } else {
        uct_mm_iface(ep->super.iface)->owes_signals = 1;
    }
}

/* The receiver may sleep. Publishing the last line once more, now in the order of S3, makes sure
 * that either it finds the line before it sleeps or we find that it sleeps. */
static UCS_NOINLINE ucs_status_t uct_mm_ep_wake(uct_mm_ep_t *ep, uint32_t last)
{
    uct_mm_line_t *line = uct_mm_writer_line(&ep->writer, last);

    ucs_atomic_store_seq_cst(&line->seq, uct_mm_writer_seq(&ep->writer, last)); /* S3 */
    uct_mm_ep_rouse(ep);
    return UCS_OK;
}

/* After a message whose last line stood at `last`. The word's line is written when the receiver
 * sleeps and wakes, not otherwise, so this reads our own cache. */
UCS_INLINE ucs_status_t uct_mm_ep_sent(uct_mm_ep_t *ep, uint32_t last)
{
    if (ucs_unlikely(ucs_atomic_load_relaxed(ep->wake) != UCT_MM_WAKE_NEVER)) {
        return uct_mm_ep_wake(ep, last);
    }
    return UCS_OK;
}

/* The end of a sending function: `status` is the ring's answer. */
UCS_INLINE ucs_status_t uct_mm_ep_result(uct_mm_ep_t *ep, ucs_status_t status, size_t length)
{
    if (ucs_unlikely(status != UCS_OK)) {
        ep->wanted = uct_mm_writer_lines(&ep->writer, length);
        return status;
    }
    return uct_mm_ep_sent(ep, ep->writer.last);
}

UCS_INLINE void uct_mm_ep_check_length(const uct_mm_ep_t *ep, size_t length)
{
    ucs_assertv(length <= ucs_max(uct_mm_md(ep->super.iface->md)->message_max,
                                  ep->writer.long_max), "length %zu", length);
}

/* A message of several lines, or one that finds no credit at hand. */
static UCS_NOINLINE ucs_status_t uct_mm_ep_am_short_slow(uct_mm_ep_t *ep, unsigned id,
                                                         uint64_t header, const void *payload,
                                                         size_t length)
{
    ucs_status_t status;

    uct_mm_ep_check_length(ep, sizeof(header) + length);
    status = uct_mm_writer_send_pair(&ep->writer, id, &header, sizeof(header), payload, length);
    return uct_mm_ep_result(ep, status, sizeof(header) + length);
}

/* A message of two lines, for which there is credit. */
static UCS_NOINLINE ucs_status_t uct_mm_ep_am_short_two(uct_mm_ep_t *ep, unsigned id,
                                                        uint64_t header, const void *payload,
                                                        size_t length)
{
    uct_mm_writer_send_two(&ep->writer, id, header, payload, length);
    return uct_mm_ep_sent(ep, ep->writer.pos - 1);
}

/* All that is called is called last, so nothing has to be saved. */
ucs_status_t uct_mm_ep_am_short(uct_ep_t *tl_ep, unsigned id, uint64_t header, const void *payload,
                                size_t length)
{
    uct_mm_ep_t *ep = uct_mm_ep(tl_ep);
    uct_mm_line_t *line;

    header = htole64(header);
    if (ucs_unlikely(length > UCT_MM_INLINE_MAX) &&
        (length <= UCT_MM_INLINE_MAX + UCT_MM_REST_DATA) &&
        uct_mm_writer_has_credit(&ep->writer, 2)) {
        return uct_mm_ep_am_short_two(ep, id, header, payload, length);
    }
    if (ucs_unlikely((length > UCT_MM_INLINE_MAX) || !uct_mm_writer_has_credit(&ep->writer, 1))) {
        return uct_mm_ep_am_short_slow(ep, id, header, payload, length);
    }

    line = uct_mm_writer_line(&ep->writer, ep->writer.pos);
    uct_mm_copy_short(line->data + sizeof(header), payload, length);
    uct_mm_writer_publish_headed(&ep->writer, line, id, header, sizeof(header) + length);
    return uct_mm_ep_sent(ep, ep->writer.pos - 1);
}

ucs_status_t uct_mm_ep_am_short_iov(uct_ep_t *tl_ep, unsigned id, const uct_iov_t *iov, unsigned n)
{
    uct_mm_ep_t *ep = uct_mm_ep(tl_ep);
    size_t length   = uct_iov_length(iov, n);
    ucs_status_t status;

    uct_mm_ep_check_length(ep, length);

    if (ucs_likely((n == 2) && (iov[0].length <= UCT_MM_FIRST_DATA))) {
        status = uct_mm_writer_send_pair(&ep->writer, id, iov[0].buffer, iov[0].length,
                                         iov[1].buffer, iov[1].length);
    } else {
        status = uct_mm_writer_send_iov(&ep->writer, id, iov, n, length);
    }
    return uct_mm_ep_result(ep, status, length);
}

ucs_status_t uct_mm_ep_am_bcopy(uct_ep_t *tl_ep, unsigned id, uct_pack_cb_t pack, void *arg,
                                size_t *length_p)
{
    uct_mm_ep_t *ep  = uct_mm_ep(tl_ep);
    const size_t max = *length_p;
    ucs_status_t status;

    ucs_assertv(max <= uct_mm_md(tl_ep->iface->md)->message_max, "length %zu", max);
    status = uct_mm_writer_send_packed(&ep->writer, id, pack, arg,
                                       uct_mm_iface(tl_ep->iface)->pack_buffer, length_p);
    if (ucs_unlikely(status != UCS_OK)) {
        ep->wanted = uct_mm_writer_lines_up_to(&ep->writer, max);
        return status;
    }
    return uct_mm_ep_sent(ep, ep->writer.last);
}

ucs_status_t uct_mm_ep_flush(uct_ep_t *tl_ep UCS_UNUSED, uct_completion_t *comp UCS_UNUSED)
{
    return UCS_OK; /* all that was accepted lies in the peer's memory */
}

ucs_status_t uct_mm_ep_sync_map(uct_ep_t *tl_ep, uint32_t index, ucs_atomic_u64_t **word_p)
{
    if (index >= UCT_MM_SYNC_WORDS) { /* from a peer */
        return UCS_ERR_OUT_OF_RANGE;
    }
    *word_p = &uct_mm_ep(tl_ep)->main->sync[index].value;
    return UCS_OK;
}

size_t uct_mm_ep_long_max(uct_ep_t *tl_ep)
{
    return uct_mm_ep(tl_ep)->writer.long_max;
}

int uct_mm_ep_has_room(uct_ep_t *tl_ep, size_t length, unsigned count)
{
    uct_mm_ep_t *ep      = uct_mm_ep(tl_ep);
    const size_t single  = ucs_min(length, (size_t)UCT_MM_WIDE_SINGLE_MIN - 1); /* may take more */
    const uint32_t most  = ucs_max(uct_mm_writer_lines(&ep->writer, length),
                                   uct_mm_writer_lines(&ep->writer, single));
    const uint32_t lines = ucs_min(most * count, ep->writer.lines_max);

    if (uct_mm_writer_has_room(&ep->writer, lines)) {
        return 1;
    }
    ep->wanted = lines;
    return 0;
}

int uct_mm_ep_is_near(uct_ep_t *tl_ep)
{
    return uct_mm_ep(tl_ep)->is_near;
}

/* By the clock that both read; what a peer with another one wrote is neither young nor old. */
int uct_mm_ep_is_attentive(uct_ep_t *tl_ep)
{
    const uint64_t looked = ucs_atomic_load_relaxed(&uct_mm_ep(tl_ep)->main->looked_ns);

    return (ucs_sys_clock_ns() - looked + UCT_MM_ATTENTIVE_NS) < (2 * UCT_MM_ATTENTIVE_NS);
}
