/* Halyard: mm: interfaces: progress, waiting, limits, and the description of the transport.
 *
 * Progress looks at the next line of each hot ring. Once in a while it looks at the clock, and when
 * it is time, at the sockets: often while connections are being made, rarely otherwise, since that
 * costs a system call.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_iface.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <uct/base/registry.h>

#include <endian.h>
#include <stdio.h>
#include <string.h>

/* Progress calls between two looks at the clock; fewer where they come slowly or do much, so that
 * looks are about so far apart: peers see by them whether we listen. */
#define UCT_MM_LOOK_CALLS 64u
#define UCT_MM_LOOK_NS    5000ul

/* Looks between two checks for rings that have gone silent. */
#define UCT_MM_COOL_LOOKS 16

/* How often sockets are looked at: when connections are likely, while one of ours waits for a peer
 * that takes its time or a peer for what we owe it, and otherwise. */
#define UCT_MM_POLL_EAGER_NS   5000
#define UCT_MM_POLL_WAITING_NS 50000
#define UCT_MM_POLL_LAZY_NS    250000

/* How long connections are likely: after the interface was opened, and after any event. */
#define UCT_MM_EAGER_OPEN_NS  5000000
#define UCT_MM_EAGER_EVENT_NS 1000000

/* After so many turns in a row that have found a message, a turn looks for more than one: there is
 * a stream. A look at the line that the next message will be written to takes it from a sender that
 * is about to write it: processes that send to each other at the same time took half as long again
 * for 8 bytes (Sapphire Rapids). */
#define UCT_MM_STREAM_TURNS 4

/* After so many messages the other rings wait for the next call, so that whoever receives can post
 * for them what these have taken: what nobody waits for is copied twice (31 senders of 8 bytes to
 * one that has posted 64, Sapphire Rapids: 22 instead of 17 million a second). */
#define UCT_MM_CALL_MESSAGES 64

/* A store made before its thread learned that we may sleep is visible after this time: store
 * buffers drain in less than a microsecond, and at each interrupt. */
#define UCT_MM_WAKE_SETTLE_NS 100000

/* ------------------------------------------------------------------ progress */

static UCS_COLD void uct_mm_iface_attend(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    peer->reader.attention &= ~(unsigned)UCT_MM_READER_NO_MEMORY; /* the next call tries again */
    if ((peer->reader.attention & UCT_MM_READER_SIGNAL) != 0) {
        if (uct_mm_connect_signal(peer->source.fd)) {
            peer->reader.attention &= ~(unsigned)UCT_MM_READER_SIGNAL;
        } else {
            iface->owes_signals = 1;
        }
    }
    if (((peer->reader.attention & UCT_MM_READER_BROKEN) != 0) && (peer->source.fd >= 0)) {
        ucs_error("a peer on this node wrote what is no message: its connection is closed");
        uct_mm_peer_break(peer, 1);
    }
}

UCS_NOINLINE void uct_mm_iface_release(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    uct_mm_reader_release(&peer->reader, peer->reader.pos);
    if (ucs_unlikely(peer->reader.attention != 0)) {
        uct_mm_iface_attend(iface, peer);
    }
}

/* A signal too much does no harm. One for which there is still no memory takes long, so the others
 * wait with it. */
void uct_mm_iface_pay_signals(uct_mm_iface_t *iface)
{
    uct_ep_t *ep;
    unsigned i;

    iface->owes_signals = 0;
    for (i = 0; (i < iface->rings.length) && !iface->owes_signals; ++i) {
        if ((iface->rings.items[i]->reader.attention & UCT_MM_READER_SIGNAL) != 0) {
            uct_mm_iface_attend(iface, iface->rings.items[i]);
        }
    }
    ucs_list_for_each(ep, &iface->super.eps, list) {
        if ((ep->state == UCT_EP_LIVE) && !iface->owes_signals) {
            uct_mm_ep_rouse(uct_mm_ep(ep));
        }
    }
}

unsigned uct_mm_iface_receive(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    uct_mm_reader_t *reader = &peer->reader;
    const uint32_t turn     = iface->hot_turns;
    unsigned max            = 1;
    unsigned count;

    reader->in_a_row  = (turn - reader->last_turn <= 1) ? reader->in_a_row + 1 : 0;
    reader->last_turn = turn;
    if (reader->in_a_row >= UCT_MM_STREAM_TURNS) {
        max = iface->max_poll;
    }
    *iface->super.params.sender = peer->uid;
    count = uct_mm_reader_receive(reader, &iface->super, max);
    iface->side.received += count;
    if ((count < max) && !reader->has_enough) { /* a look in vain */
        reader->in_a_row = 0;
    }
    if (ucs_unlikely(peer->reader.attention != 0)) {
        uct_mm_iface_attend(iface, peer);
    }
    return count;
}

/* Messages taken from a ring; *is_long_p: the last was enough for a turn. */
UCS_INLINE unsigned uct_mm_iface_poll_ring(uct_mm_iface_t *iface, uct_mm_peer_t *peer,
                                           int *is_long_p)
{
    unsigned count = 0;

    *is_long_p = 0;
    if (uct_mm_reader_ready(&peer->reader)) {
        count      = uct_mm_iface_receive(iface, peer);
        *is_long_p = peer->reader.has_enough;
    } else if (ucs_unlikely(uct_mm_reader_should_release(&peer->reader))) {
        uct_mm_iface_release(iface, peer);
    }
    return count;
}

/* Receives from all rings, whose number handlers may change. */
static unsigned uct_mm_iface_poll_all(uct_mm_iface_t *iface)
{
    unsigned count = 0;
    unsigned i;
    int is_long;

    for (i = 0; i < iface->rings.length; ++i) {
        count += uct_mm_iface_poll_ring(iface, iface->rings.items[i], &is_long);
    }
    return count;
}

/* Receives from the hot rings, up to a long message or many short ones: nobody may wait for the
 * next one yet, which would be copied twice then (15 senders of 8 to 32 KiB to one, on Emerald
 * Rapids: 17 to 26 % less time). The next call goes on behind it. */
UCS_INLINE unsigned uct_mm_iface_poll_hot(uct_mm_iface_t *iface)
{
    unsigned count = 0;
    unsigned i;
    int is_long;

    iface->hot_turns += (iface->next_hot == 0);
    for (i = iface->next_hot; i < iface->num_hot; ++i) {
        count += uct_mm_iface_poll_ring(iface, iface->rings.items[i], &is_long);
        if (ucs_unlikely(is_long || (count >= UCT_MM_CALL_MESSAGES))) {
            iface->next_hot = (i + 1 < iface->num_hot) ? i + 1 : 0;
            return count;
        }
    }
    iface->next_hot = 0;
    return count;
}

static UCS_COLD unsigned uct_mm_iface_poll_sockets(uct_mm_iface_t *iface, uint64_t now)
{
    const int hurry      = (iface->next_poll_ns == 0); /* uct_mm_connect_hurry */
    const uint32_t lines = uct_mm_md(iface->super.md)->shape.lines;
    unsigned count       = uct_mm_connect_poll(iface);
    unsigned rounds      = 0;
    unsigned received;

    if (!ucs_list_is_empty(&iface->super.failed) || (iface->wake_since_ns != 0)) {
        /* What a peer sent before its end, no more messages than lines, is delivered before that
         * end is reported; what it rang for counts as done together with the signal. */
        do {
            received = uct_mm_iface_poll_all(iface);
            count   += received;
        } while ((received > 0) && !ucs_list_is_empty(&iface->super.failed) &&
                 (++rounds < lines));
    }
    if (hurry || (count > 0)) {
        iface->eager_until_ns = ucs_max(iface->eager_until_ns, now + UCT_MM_EAGER_EVENT_NS);
    }
    iface->next_poll_ns = now + ((now < iface->eager_until_ns) ? UCT_MM_POLL_EAGER_NS :
                                 ((iface->num_connecting > 0) || !ucs_list_is_empty(&iface->due)) ?
                                 UCT_MM_POLL_WAITING_NS : UCT_MM_POLL_LAZY_NS);
    return count + uct_mm_gone_report(iface);
}

static UCS_NOINLINE unsigned uct_mm_iface_look(uct_mm_iface_t *iface)
{
    const uint64_t now    = ucs_sys_clock_ns();
    const uint64_t passed = ucs_max(now - iface->last_look_ns, UCT_MM_LOOK_NS / UCT_MM_LOOK_CALLS);
    const uint64_t calls  = ((uint64_t)iface->interval * UCT_MM_LOOK_NS) / passed;

    iface->interval     = (unsigned)ucs_min(ucs_max(calls, 1ul), UCT_MM_LOOK_CALLS);
    iface->look_turn    = iface->side.turns + iface->interval;
    iface->last_look_ns = now;
    ucs_atomic_store_relaxed(&iface->main->looked_ns, now);
    if ((++iface->looks % UCT_MM_COOL_LOOKS) == 0) {
        uct_mm_rings_cool(iface);
    }
    return (now >= iface->next_poll_ns) ? uct_mm_iface_poll_sockets(iface, now) : 0;
}

static unsigned uct_mm_iface_progress(uct_iface_t *tl_iface)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);
    unsigned count        = uct_mm_iface_poll_hot(iface);

    if (ucs_unlikely(iface->rings.length > iface->num_hot)) {
        count += uct_mm_rings_poll_cold(iface);
    }
    if (ucs_unlikely(++iface->side.turns == iface->look_turn)) {
        count += uct_mm_iface_look(iface);
    }
    return count + uct_iface_progress_base(tl_iface);
}

/* ------------------------------------------------------------------ waiting */

static int uct_mm_iface_event_fd(uct_iface_t *tl_iface)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);

    if (iface->wake_since_ns == 0) {
        ucs_atomic_store_seq_cst(&iface->main->wake, UCT_MM_WAKE_AWAKE);
        iface->wake_since_ns = ucs_sys_clock_ns();
    }
    return iface->epoll_fd;
}

/* Senders that are out of credit and have more to send are to be signalled when there is some. */
static int uct_mm_iface_arm_senders(uct_mm_iface_t *iface)
{
    uct_ep_t *ep;

    ucs_list_for_each(ep, &iface->super.eps, list) {
        if ((ep->state == UCT_EP_LIVE) && uct_ep_has_pending(ep) &&
            uct_mm_writer_wish(&uct_mm_ep(ep)->writer, uct_mm_ep(ep)->wanted)) {
            return 0;
        }
    }
    return 1;
}

static int uct_mm_iface_arm_readers(uct_mm_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < iface->rings.length; ++i) {
        if (uct_mm_reader_ready_armed(&iface->rings.items[i]->reader)) { /* S3 */
            return 0;
        }
        if (uct_mm_reader_should_release(&iface->rings.items[i]->reader)) {
            uct_mm_iface_release(iface, iface->rings.items[i]);
        }
    }
    return 1;
}

static int uct_mm_iface_has_come(const uct_iface_t *tl_iface)
{
    const uct_mm_iface_t *iface = ucs_container_of(tl_iface, uct_mm_iface_t, super);
    unsigned i;

    for (i = 0; i < iface->rings.length; ++i) {
        if (uct_mm_reader_ready(&iface->rings.items[i]->reader)) { /* A1 */
            return 1;
        }
    }
    return 0;
}

/* Publish that we sleep, then look whether something came before that was seen. A sender publishes
 * its line, then looks whether we sleep. */
static ucs_status_t uct_mm_iface_event_arm(uct_iface_t *tl_iface)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);

    (void)uct_mm_iface_event_fd(tl_iface);
    if (uct_mm_connect_poll(iface) > 0) {
        uct_mm_connect_hurry(iface);
        return UCS_ERR_BUSY;
    }
    if (!ucs_list_is_empty(&tl_iface->failed) || !ucs_list_is_empty(&iface->gone) ||
        !ucs_list_is_empty(&iface->retries) || !ucs_list_is_empty(&iface->due) ||
        iface->owes_signals) {
        uct_mm_connect_hurry(iface); /* nobody signals that what failed before can be sent now */
        return UCS_ERR_BUSY;
    }
    if ((iface->rings.length > 0) &&
        ((ucs_sys_clock_ns() - iface->wake_since_ns) < UCT_MM_WAKE_SETTLE_NS)) {
        return UCS_ERR_BUSY; /* once in the interface's life */
    }

    ucs_atomic_store_seq_cst(&iface->main->wake, /* S3 */
                             (++iface->num_sleeps * UCT_MM_WAKE_SLEEP) + UCT_MM_WAKE_ARMED);
    if (!uct_mm_iface_arm_readers(iface) || !uct_mm_iface_arm_senders(iface) ||
        iface->owes_signals) {
        ucs_atomic_store_seq_cst(&iface->main->wake, UCT_MM_WAKE_AWAKE);
        return UCS_ERR_BUSY;
    }
    return UCS_OK;
}

/* ------------------------------------------------------------------ life */

static ucs_status_t uct_mm_iface_open(uct_iface_t *tl_iface)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);
    uct_mm_md_t *md       = uct_mm_md(tl_iface->md);
    ucs_status_t status;

    ucs_list_head_init(&iface->fork.list);
    ucs_list_head_init(&iface->door.list);

    iface->max_poll    = ((const uct_mm_config_t *)tl_iface->md->config)->max_poll;
    iface->interval    = 1;
    iface->look_turn   = 1;
    iface->epoll_fd    = -1;
    iface->pack_buffer = ucs_sys_memalign(UCT_MM_LINE_SIZE,
                                          ucs_align_up(md->message_max, UCT_MM_LINE_SIZE));
    if (iface->pack_buffer == NULL) {
        ucs_error("no memory for a buffer of %zu bytes", md->message_max);
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_mm_rings_init(iface);
    if (status == UCS_OK) {
        status = uct_mm_connect_open(iface);
    }
    if (status == UCS_OK) {
        uct_descriptor_open_door(&iface->door);
        uct_mm_fork_add(iface);
    }
    iface->side.am        = iface->super.am;
    iface->last_look_ns   = ucs_sys_clock_ns();
    iface->eager_until_ns = iface->last_look_ns + UCT_MM_EAGER_OPEN_NS;
    return status;
}

static void uct_mm_iface_close(uct_iface_t *tl_iface)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);

    uct_descriptor_close_door(&iface->door);
    ucs_fork_watch_remove(&iface->fork);
    uct_mm_connect_close(iface);
    uct_mm_rings_cleanup(iface);
    ucs_sys_free(iface->pack_buffer);
}

static size_t uct_mm_iface_get_address(uct_iface_t *tl_iface, void *buffer)
{
    const uct_descriptor_door_t *door = &uct_mm_iface(tl_iface)->door;
    const uct_mm_address_t address    = {htole64(door->name), htole16(door->place)};

    memcpy(buffer, &address, sizeof(address));
    return sizeof(address);
}

static int uct_mm_iface_is_reachable(uct_iface_t *tl_iface, const void *address, size_t length,
                                     int same_node, char reason[UCT_REASON_MAX])
{
    const uct_mm_iface_t *iface  = uct_mm_iface(tl_iface);
    const uct_mm_address_t *wire = address;
    uint16_t place;

    if (!same_node) {
        snprintf(reason, UCT_REASON_MAX, "not on this node");
        return 0;
    }
    if (length != sizeof(*wire)) {
        snprintf(reason, UCT_REASON_MAX, "an address of %zu bytes is not one of mm", length);
        return 0;
    }
    place = le16toh(wire->place);
    if (uct_socket_place_is_dir(place) ? (place != iface->door.place) :
        ((place != iface->net) && (place != 0) && (iface->net != 0))) {
        snprintf(reason, UCT_REASON_MAX, uct_socket_place_is_dir(place) ?
                 "listens in a directory that is not our UCX_MM_SOCKET_DIR" :
                 "in another network namespace (UCX_MM_SOCKET_DIR can be a way)");
        return 0;
    }
    if (uct_socket_place_is_dir(iface->door.place) && !uct_socket_place_is_dir(place)) {
        snprintf(reason, UCT_REASON_MAX, "it does not know our UCX_MM_SOCKET_DIR");
        return 0;
    }
    return 1;
}

/* What a message keeps this processor busy for was measured on today's processors. */
static void uct_mm_iface_limits(uct_iface_t *tl_iface, uct_op_t op, ucs_memory_type_t memory,
                                uct_limits_t *limits_p)
{
    const uct_mm_md_t *md         = uct_mm_md(tl_iface->md);
    const uct_mm_config_t *config = tl_iface->md->config;
    uct_limits_t limits           = {0};

    if (memory == UCS_MEMORY_TYPE_HOST) {
        switch (op) {
        case UCT_OP_AM_SHORT:
            limits.max          = md->message_max;
            limits.iov_max      = UINT16_MAX;
            limits.overhead_ns  = 8;
            limits.latency_ns   = (double)config->latency_ns;
            limits.bytes_per_ns = config->bandwidth / 1e9;
            break;
        case UCT_OP_AM_BCOPY:
            limits.max          = md->message_max;
            limits.iov_max      = 1;
            limits.overhead_ns  = 15;
            limits.latency_ns   = (double)config->latency_ns;
            limits.bytes_per_ns = config->bandwidth / 1.1e9; /* short ones: packed before */
            break;
        default:
            break;
        }
    }
    *limits_p = limits;
}

static int uct_mm_iface_has_sender(const uct_mm_iface_t *iface, const uint8_t uid[UCT_UID_LEN])
{
    unsigned i;

    for (i = 0; i < iface->rings.length; ++i) {
        if (memcmp(iface->rings.items[i]->uid, uid, UCT_UID_LEN) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A peer that is ours has rivals, too, whom we may not know: workers of one master. We are one of
 * them, it is one of ours. */
static unsigned uct_mm_iface_num_rivals(uct_iface_t *tl_iface)
{
    const uct_mm_iface_t *iface = uct_mm_iface(tl_iface);
    unsigned count              = uct_mm_rings_num_rivals(iface);
    uint32_t most               = 0;
    uct_ep_t *ep;

    ucs_list_for_each(ep, &tl_iface->eps, list) {
        if ((ep->state == UCT_EP_LIVE) && uct_mm_ep(ep)->is_rival) {
            count += !uct_mm_iface_has_sender(iface, ep->peer_uid);
            most   = ucs_max(most, ucs_atomic_load_relaxed(&uct_mm_ep(ep)->main->rivals));
        }
    }
    return ucs_min(ucs_max(count, most), (unsigned)INT_MAX);
}

static void uct_mm_iface_memory_used(uct_iface_t *tl_iface, size_t *shared_p, size_t *private_p)
{
    const uct_mm_iface_t *iface = uct_mm_iface(tl_iface);

    *shared_p  = uct_mm_rings_shared(iface);
    *private_p = sizeof(*iface) + uct_mm_md(tl_iface->md)->message_max +
                 (iface->staging.count * iface->staging.size) +
                 (iface->rings.capacity * sizeof(iface->rings.items[0])) +
                 (iface->rings.length * sizeof(uct_mm_peer_t)) +
                 (ucs_list_length(&tl_iface->eps) * sizeof(uct_mm_ep_t));
}

/* ------------------------------------------------------------------ words of both sides */

static ucs_status_t uct_mm_iface_sync_alloc(uct_iface_t *tl_iface, uint32_t *index_p,
                                            ucs_atomic_u64_t **word_p)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);
    uint32_t index;

    if (iface->sync_free == 0) {
        return UCS_ERR_NO_RESOURCE;
    }

    index             = (uint32_t)__builtin_ctzll(iface->sync_free);
    iface->sync_free &= iface->sync_free - 1;
    ucs_atomic_store_relaxed(&iface->main->sync[index].value, 0);
    *index_p = index;
    *word_p  = &iface->main->sync[index].value;
    return UCS_OK;
}

static void uct_mm_iface_sync_free(uct_iface_t *tl_iface, uint32_t index)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_iface);

    ucs_assert((index < UCT_MM_SYNC_WORDS) && ((iface->sync_free & (1ull << index)) == 0));
    iface->sync_free |= 1ull << index;
}

/* ------------------------------------------------------------------ the transport */

const uct_tl_t uct_mm_tl = {
    .name          = "mm",
    .help          = "shared memory between the processes of one node",
    .kind          = UCT_TL_KIND_SHM,
    .md_size       = sizeof(uct_mm_md_t),
    .iface_size    = sizeof(uct_mm_iface_t),
    .ep_size       = sizeof(uct_mm_ep_t),
    .config_rows   = uct_mm_config_rows,
    .config_prefix = "MM_,POSIX_,SYSV_,SM_",
    .config_size   = sizeof(uct_mm_config_t),
    .md = {
        .open         = uct_mm_md_open,
        .alloc        = uct_mm_mem_alloc,
        .release      = uct_mm_mem_release,
        .rkey_pack    = uct_mm_rkey_pack,
        .rkey_unpack  = uct_mm_rkey_unpack,
        .rkey_ptr     = uct_mm_rkey_ptr,
        .rkey_release = uct_mm_rkey_release
    },
    .iface = {
        .open         = uct_mm_iface_open,
        .close        = uct_mm_iface_close,
        .limits       = uct_mm_iface_limits,
        .get_address  = uct_mm_iface_get_address,
        .is_reachable = uct_mm_iface_is_reachable,
        .progress     = uct_mm_iface_progress,
        .event_fd     = uct_mm_iface_event_fd,
        .event_arm    = uct_mm_iface_event_arm,
        .has_come     = uct_mm_iface_has_come,
        .sync_alloc   = uct_mm_iface_sync_alloc,
        .sync_free    = uct_mm_iface_sync_free,
        .drop_peer    = uct_mm_iface_drop_peer,
        .num_rivals   = uct_mm_iface_num_rivals,
        .memory_used  = uct_mm_iface_memory_used
    },
    .ep = {
        .init    = uct_mm_ep_init,
        .connect = uct_mm_connect_start,
        .disconnect = uct_mm_disconnect,
        .close   = uct_mm_connect_end,
        .live = {
            .am_short     = uct_mm_ep_am_short,
            .am_short_iov = uct_mm_ep_am_short_iov,
            .am_bcopy     = uct_mm_ep_am_bcopy,
            .flush        = uct_mm_ep_flush,
            .check        = uct_mm_connect_check,
            .sync_map     = uct_mm_ep_sync_map,
            .is_attentive = uct_mm_ep_is_attentive,
            .is_near      = uct_mm_ep_is_near,
            .long_max     = uct_mm_ep_long_max,
            .has_room     = uct_mm_ep_has_room
        }
    }
};
