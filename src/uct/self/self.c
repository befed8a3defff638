/* Halyard: loopback transport: interface, messages and the descriptor.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>
#include <uct/self/self.h>

#define UCS_LOG_COMPONENT "self"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <string.h>
#include <sys/eventfd.h>

/* Messages that one progress call delivers at most, so that other transports have their turn. */
#define UCT_SELF_PROGRESS_MAX 32

/* Segments that the ring holds. */
#define UCT_SELF_RING_SEGS 8

static const ucs_config_row_t uct_self_config_rows[] = {
    UCS_CONFIG_ROW("SEG_SIZE", memunits, uct_self_config_t, seg_size, "8k",
                   "Largest message, in bytes; the ring that holds undelivered messages takes "
                   "eight times this.",
                   .min = 64, .max = 16u << 20, .flags = UCS_CONFIG_ROW_POW2),
    UCS_CONFIG_ROW_END
};

static uct_self_iface_t *uct_self_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_self_iface_t, super);
}

/* ------------------------------------------------------------------ ring */

static void *uct_self_ring_at(uct_self_iface_t *iface, uint64_t position)
{
    return iface->ring + (position & (iface->ring_size - 1));
}

/* Room for a record of `length` bytes of payload, or NULL. It becomes visible by
 * uct_self_commit. */
static void *uct_self_reserve(uct_self_iface_t *iface, size_t length)
{
    uint64_t size   = sizeof(uct_self_record_t) + ucs_align_up(length, 8);
    uint64_t to_end = iface->ring_size - (iface->tail & (iface->ring_size - 1));
    uint64_t skip   = (size > to_end) ? to_end : 0;
    uct_self_record_t *record;

    if (ucs_unlikely((size + skip) > (iface->ring_size - (iface->tail - iface->head)))) {
        return NULL;
    }

    if (skip != 0) {
        record         = uct_self_ring_at(iface, iface->tail);
        record->length = (uint32_t)(skip - sizeof(*record));
        record->id     = UCT_SELF_ID_SKIP;
        iface->tail   += skip;
    }
    return (uct_self_record_t *)uct_self_ring_at(iface, iface->tail) + 1;
}

/* A progress that waits in another thread is woken by the first message after it armed. */
static UCS_COLD void uct_self_signal(uct_self_iface_t *iface)
{
    uint64_t one = 1;

    if (ucs_sys_write(iface->event_fd, &one, sizeof(one)) == sizeof(one)) {
        iface->is_armed = 0;
    } /* else: the next message tries again, and arm finds the ring filled */
}

static void uct_self_commit(uct_self_iface_t *iface, unsigned id, size_t length)
{
    uct_self_record_t *record = uct_self_ring_at(iface, iface->tail);

    record->length = (uint32_t)length;
    record->id     = id;
    iface->tail   += sizeof(*record) + ucs_align_up(length, 8);
    if (ucs_unlikely(iface->is_armed)) {
        uct_self_signal(iface);
    }
}

/* ------------------------------------------------------------------ messages */

static ucs_status_t uct_self_am_short(uct_ep_t *ep, unsigned id, uint64_t header,
                                      const void *payload, size_t length)
{
    uct_self_iface_t *iface = uct_self_iface(ep->iface);
    char *dest;

    ucs_assert(length + sizeof(header) <= uct_self_seg_size(iface));

    dest = uct_self_reserve(iface, sizeof(header) + length);
    if (ucs_unlikely(dest == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }

    memcpy(dest, &header, sizeof(header));
    if (length != 0) {
        memcpy(dest + sizeof(header), payload, length);
    }
    uct_self_commit(iface, id, sizeof(header) + length);
    return UCS_OK;
}

static ucs_status_t uct_self_am_short_iov(uct_ep_t *ep, unsigned id, const uct_iov_t *iov,
                                          unsigned n)
{
    uct_self_iface_t *iface = uct_self_iface(ep->iface);
    size_t length           = uct_iov_length(iov, n);
    void *dest;

    ucs_assert(length <= uct_self_seg_size(iface));

    dest = uct_self_reserve(iface, length);
    if (ucs_unlikely(dest == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }

    uct_iov_gather(dest, iov, n);
    uct_self_commit(iface, id, length);
    return UCS_OK;
}

static ucs_status_t uct_self_am_bcopy(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg,
                                      size_t *length_p)
{
    uct_self_iface_t *iface = uct_self_iface(ep->iface);
    const size_t max        = *length_p;
    void *dest;

    ucs_assert(max <= uct_self_seg_size(iface));
    dest = uct_self_reserve(iface, max);
    if (ucs_unlikely(dest == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }

    *length_p = pack(dest, arg, max);
    ucs_assert(*length_p <= max);
    uct_self_commit(iface, id, *length_p);
    return UCS_OK;
}

static unsigned uct_self_deliver_one(uct_self_iface_t *iface)
{
    uct_self_record_t *record = uct_self_ring_at(iface, iface->head);
    uint32_t length           = record->length;

    if ((record->id != UCT_SELF_ID_SKIP) && !iface->is_discarding) {
        /* The record keeps its place until the handler has returned, so that what the handler sends
         * cannot overwrite it. */
        uct_iface_deliver(&iface->super, record->id, record + 1, length);
    }
    iface->head += sizeof(*record) + ucs_align_up((uint64_t)length, 8);
    return record->id != UCT_SELF_ID_SKIP;
}

static unsigned uct_self_report_gone(uct_self_iface_t *iface)
{
    const uct_iface_params_t *params = &iface->super.params;

    iface->is_ending     = 0;
    iface->is_discarding = 0;
    if (params->peer_gone != NULL) {
        params->peer_gone(params->arg, params->uid);
    }
    return 1;
}

static unsigned uct_self_progress(uct_iface_t *iface)
{
    uct_self_iface_t *self_iface = uct_self_iface(iface);
    uint64_t end                 = self_iface->tail; /* answers wait for the next call */
    unsigned count               = 0;

    *iface->params.sender = iface->params.uid;
    while ((self_iface->head != end) && (count < UCT_SELF_PROGRESS_MAX)) {
        count += uct_self_deliver_one(self_iface);
    }
    if ((count > 0) && (self_iface->head == self_iface->tail)) {
        /* the next message takes the memory that the last one left in the cache */
        self_iface->head = ucs_align_up(self_iface->tail, (uint64_t)self_iface->ring_size);
        self_iface->tail = self_iface->head;
    }
    if (ucs_unlikely(self_iface->is_ending) && (self_iface->head >= self_iface->end)) {
        count += uct_self_report_gone(self_iface);
    }
    return count + uct_iface_progress_base(iface);
}

/* ------------------------------------------------------------------ waiting */

static int uct_self_event_fd(uct_iface_t *iface)
{
    uct_self_iface_t *self_iface = uct_self_iface(iface);

    if (self_iface->event_fd < 0) {
        self_iface->event_fd = ucs_sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (self_iface->event_fd < 0) {
            ucs_error("failed to make an event descriptor: %m");
        }
    }
    return self_iface->event_fd;
}

static int uct_self_has_come(const uct_iface_t *iface)
{
    const uct_self_iface_t *self_iface = ucs_container_of(iface, uct_self_iface_t, super);

    return (self_iface->head != self_iface->tail) || self_iface->is_ending;
}

static ucs_status_t uct_self_event_arm(uct_iface_t *iface)
{
    uct_self_iface_t *self_iface = uct_self_iface(iface);
    uint64_t count;

    if (uct_self_has_come(iface) || uct_iface_has_work(iface)) {
        return UCS_ERR_BUSY;
    }

    if (self_iface->event_fd >= 0) {
        if (!self_iface->is_armed) {
            /* An old signal may be there or not; whether this read fails does not matter, since a
             * signal too much only wakes too early. */
            (void)!ucs_sys_read(self_iface->event_fd, &count, sizeof(count));
        }
        self_iface->is_armed = 1;
    }
    return UCS_OK;
}

/* ------------------------------------------------------------------ interface */

static ucs_status_t uct_self_iface_open(uct_iface_t *iface)
{
    uct_self_iface(iface)->event_fd = -1;
    return UCS_OK;
}

static void uct_self_iface_close(uct_iface_t *iface)
{
    uct_self_iface_t *self_iface = uct_self_iface(iface);

    if (self_iface->event_fd >= 0) {
        ucs_sys_close(self_iface->event_fd);
    }
    ucs_sys_free(self_iface->ring);
}

static void uct_self_limits(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory,
                            uct_limits_t *limits_p)
{
    uct_self_iface_t *self_iface = uct_self_iface(iface);

    memset(limits_p, 0, sizeof(*limits_p));
    if (memory != UCS_MEMORY_TYPE_HOST) {
        return;
    }

    /* The cost of a call and a copy that stays in the nearest cache, on any processor of today;
     * here there is nothing to choose from that could be cheaper. */
    limits_p->overhead_ns  = 10;
    limits_p->bytes_per_ns = 10;
    switch (op) {
    case UCT_OP_AM_SHORT:
    case UCT_OP_AM_BCOPY:
        limits_p->max     = uct_self_seg_size(self_iface);
        limits_p->iov_max = 1024;
        break;
    case UCT_OP_PUT_ZCOPY:
    case UCT_OP_GET_ZCOPY:
        limits_p->max     = SIZE_MAX;
        limits_p->iov_max = 1024;
        break;
    default:
        break;
    }
}

static size_t uct_self_get_address(uct_iface_t *iface, void *buffer)
{
    memcpy(buffer, iface->params.uid, UCT_UID_LEN);
    return UCT_UID_LEN;
}

static int uct_self_is_reachable(uct_iface_t *iface, const void *address, size_t length,
                                 int same_node UCS_UNUSED, char reason[UCT_REASON_MAX])
{
    if ((length == UCT_UID_LEN) && (memcmp(address, iface->params.uid, UCT_UID_LEN) == 0)) {
        return 1;
    }
    snprintf(reason, UCT_REASON_MAX, "the peer is not this worker");
    return 0;
}

static int uct_self_drop_peer(uct_iface_t *tl_iface, const uint8_t uid[UCT_UID_LEN], int discard)
{
    uct_self_iface_t *iface = uct_self_iface(tl_iface);

    if ((iface->ring == NULL) || (memcmp(uid, tl_iface->params.uid, UCT_UID_LEN) != 0)) {
        return 0;
    }
    iface->end            = iface->tail;
    iface->is_ending      = 1;
    iface->is_discarding |= (discard != 0);
    if (iface->is_armed) {
        uct_self_signal(iface);
    }
    return 1;
}

static void uct_self_memory_used(uct_iface_t *iface, size_t *shared_p, size_t *private_p)
{
    const uct_self_iface_t *self_iface = uct_self_iface(iface);

    *shared_p  = 0;
    *private_p = sizeof(*self_iface) + ((self_iface->ring != NULL) ? self_iface->ring_size : 0);
}

/* ------------------------------------------------------------------ endpoint */

static ucs_status_t uct_self_ep_init(uct_ep_t *ep, const void *address, size_t length)
{
    if (length != UCT_UID_LEN) {
        return UCS_ERR_INVALID_ADDR;
    }
    return (memcmp(address, ep->iface->params.uid, UCT_UID_LEN) == 0) ? UCS_OK :
           UCS_ERR_UNREACHABLE;
}

static ucs_status_t uct_self_ep_connect(uct_ep_t *ep)
{
    uct_self_iface_t *iface = uct_self_iface(ep->iface);

    if (iface->ring == NULL) {
        iface->ring_size = UCT_SELF_RING_SEGS * uct_self_seg_size(iface);
        iface->ring      = ucs_sys_memalign(UCS_CACHE_LINE_SIZE, iface->ring_size);
        if (iface->ring == NULL) {
            ucs_error("no memory for a ring of %llu bytes", (unsigned long long)iface->ring_size);
            return UCS_ERR_NO_MEMORY;
        }
    }
    return UCS_OK;
}

static ucs_status_t uct_self_flush(uct_ep_t *ep UCS_UNUSED, uct_completion_t *comp UCS_UNUSED)
{
    return UCS_OK;
}

static ucs_status_t uct_self_check(uct_ep_t *ep UCS_UNUSED)
{
    return UCS_OK;
}

const uct_tl_t uct_self_tl = {
    .name          = "self",
    .help          = "loopback: a worker with itself",
    .kind          = UCT_TL_KIND_SELF,
    .md_size       = sizeof(uct_md_t),
    .iface_size    = sizeof(uct_self_iface_t),
    .ep_size       = sizeof(uct_ep_t),
    .config_rows   = uct_self_config_rows,
    .config_prefix = "SELF_",
    .config_size   = sizeof(uct_self_config_t),
    .md = {
        .alloc   = uct_self_mem_alloc,
        .release = uct_self_mem_release
    },
    .iface = {
        .open         = uct_self_iface_open,
        .close        = uct_self_iface_close,
        .limits       = uct_self_limits,
        .get_address  = uct_self_get_address,
        .is_reachable = uct_self_is_reachable,
        .progress     = uct_self_progress,
        .event_fd     = uct_self_event_fd,
        .event_arm    = uct_self_event_arm,
        .has_come     = uct_self_has_come,
        .drop_peer    = uct_self_drop_peer,
        .memory_used  = uct_self_memory_used
    },
    .ep = {
        .init    = uct_self_ep_init,
        .connect = uct_self_ep_connect,
        .live = {
            .am_short     = uct_self_am_short,
            .am_short_iov = uct_self_am_short_iov,
            .am_bcopy     = uct_self_am_bcopy,
            .put_zcopy    = uct_self_put_zcopy,
            .get_zcopy    = uct_self_get_zcopy,
            .flush        = uct_self_flush,
            .check        = uct_self_check
        }
    }
};
