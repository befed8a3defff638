/* Halyard: mm: the rings of an interface: where they lie, who writes to them, which are polled.
 *
 * Rings lie in blocks, each one segment; a further block is made when all rings are taken, each
 * twice as large as the one before up to a limit. A freed ring is used again for the next peer.
 *
 * Polling costs a load a ring, so with many peers only the hot ones, from which something came
 * lately, are looked at by each progress; the cold ones take turns, a few a call.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_iface.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/arch/cpu.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UCT_MM_BLOCK_FIRST 4  /* rings of the first block */
#define UCT_MM_BLOCK_MAX   64 /* and of later ones at most */

/* Buffers are for rings up to this size. */
#define UCT_MM_BUFFERED_LINES 256

/* Rings whose area is of the usual size, in the order of their senders' coming, but no more than
 * the machine has processors. Alltoall among 28 of 4, 8 and 16 KiB on Emerald Rapids: 66, 108, 243
 * us with that size for all, 57, 95, 224 so; among 16 of 16 KiB on two processors 0.57 and 0.47 ms,
 * the first calls 0.81 and 0.59, as a process touches 5 instead of 13 MB. */
#define UCT_MM_USUAL_RINGS 16

/* Rings that have a wide area, too, where that is of use. */
#define UCT_MM_WIDE_RINGS 4

/* Up to so many rings are always hot. */
#define UCT_MM_HOT_MIN 8

/* Cold rings that one progress looks at. */
#define UCT_MM_COLD_TURN 4

/* ------------------------------------------------------------------ blocks */

static uct_mm_ring_shape_t *uct_mm_rings_shape(const uct_mm_iface_t *iface)
{
    return &uct_mm_md(iface->super.md)->shape;
}

static ucs_status_t uct_mm_block_create(uct_mm_iface_t *iface, unsigned count, size_t first,
                                        uct_mm_block_t **block_p)
{
    const size_t ring_size = uct_mm_ring_size(uct_mm_rings_shape(iface));
    uct_mm_block_t *block;
    ucs_status_t status;

    block = ucs_sys_calloc(1, sizeof(*block) + count);
    if (block == NULL) {
        ucs_error("no memory for a block of %u rings", count);
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_mm_segment_create(&uct_mm_md(iface->super.md)->backings, NULL,
                                   first + (count * ring_size), 0, &block->segment);
    if (status != UCS_OK) {
        ucs_sys_free(block);
        return status;
    }

    block->first = first;
    block->count = count;
    ucs_list_add_tail(&iface->blocks, &block->list);
    *block_p = block;
    return UCS_OK;
}

uct_mm_block_t *uct_mm_rings_main(const uct_mm_iface_t *iface)
{
    return ucs_list_head(&iface->blocks, uct_mm_block_t, list);
}

/* Can there be buffers beside the rings? Only if our rings have got the kind of memory that they
 * take, so that there is nothing to try where it is forbidden. */
static int uct_mm_buffers_may_be(const uct_mm_iface_t *iface)
{
    const uct_mm_md_t *md = uct_mm_md(iface->super.md);

    return (md->shape.lines <= UCT_MM_BUFFERED_LINES) && (md->backings.hugetlb != UCS_YES) &&
           (uct_mm_buffer_thresh(&md->super) != UCS_CONFIG_INF_SIZE) &&
           (uct_mm_rings_main(iface)->segment->backing == UCT_MM_BACKING_MEMFD);
}

ucs_status_t uct_mm_rings_init(uct_mm_iface_t *iface)
{
    uct_mm_block_t *block;
    ucs_status_t status;

    ucs_list_head_init(&iface->blocks);
    status = uct_mm_block_create(iface, UCT_MM_BLOCK_FIRST, sizeof(uct_mm_main_t), &block);
    if (status != UCS_OK) {
        return status;
    }

    iface->main        = block->segment->address;
    iface->main->magic = UCT_MM_MAIN_MAGIC;
    memcpy(iface->main->uid, iface->super.params.uid, UCT_UID_LEN);
    iface->sync_free = UINT64_MAX;
    return uct_mm_staging_init(&iface->staging, uct_mm_buffers_may_be(iface) ?
                               uct_mm_ring_long_max(uct_mm_rings_shape(iface), UCT_MM_AREA_WIDE) :
                               uct_mm_ring_message_max(uct_mm_rings_shape(iface)));
}

void uct_mm_rings_cleanup(uct_mm_iface_t *iface)
{
    uct_mm_block_t *block, *tmp;

    ucs_assert(iface->rings.length == 0);
    if (iface->blocks.next == NULL) { /* not even initialised */
        return;
    }

    ucs_list_for_each_safe(block, tmp, &iface->blocks, list) {
        ucs_assert(block->used == 0);
        ucs_list_del(&block->list);
        uct_mm_segment_put(block->segment);
        ucs_sys_free(block);
    }
    if (iface->buffers != NULL) {
        uct_mm_segment_put(iface->buffers);
    }
    uct_mm_staging_cleanup(&iface->staging);
    ucs_sys_free(iface->rings.items);
}

size_t uct_mm_rings_shared(const uct_mm_iface_t *iface)
{
    uct_mm_block_t *block;
    struct stat st;
    size_t length = 0;

    if ((iface->buffers != NULL) && (ucs_sys_fstat(iface->buffers->fd, &st) == 0)) {
        length = (size_t)st.st_blocks * S_BLKSIZE; /* pages that were used */
    }
    ucs_list_for_each(block, &iface->blocks, list) {
        length += block->segment->length;
    }
    return length;
}

/* ------------------------------------------------------------------ buffers */

/* The kernel promises no more memory than it has: a page that comes with its first touch may then
 * be refused, which ends the process. */
static int uct_mm_overcommit_is_strict(void)
{
    char text[8];
    size_t length;

    return (ucs_sys_read_file("/proc/sys/vm/overcommit_memory", text, sizeof(text), &length) ==
            UCS_OK) && (text[0] == '2');
}

/* The first so many rings with buffers have a wide area as well (uct_mm_writer_area). */
static unsigned uct_mm_num_wide(void)
{
    return (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_AMD) ? UCT_MM_WIDE_RINGS : 0;
}

uct_mm_area_t uct_mm_buffers_area(const uct_mm_iface_t *iface, unsigned index)
{
    return (index < iface->num_usual) ? UCT_MM_AREA_USUAL : UCT_MM_AREA_SMALL;
}

/* Where in iface->buffers those of the ring lie that has the index-th ones, and its wide area:
 * these are at the end. */
static size_t uct_mm_buffers_offset(const uct_mm_iface_t *iface, unsigned index)
{
    const uct_mm_ring_shape_t *shape = uct_mm_rings_shape(iface);
    const unsigned usual             = ucs_min(index, iface->num_usual);

    return (usual * uct_mm_ring_buffers_size(shape, UCT_MM_AREA_USUAL)) +
           ((index - usual) * uct_mm_ring_buffers_size(shape, UCT_MM_AREA_SMALL));
}

static size_t uct_mm_wide_offset(const uct_mm_iface_t *iface, unsigned index)
{
    return uct_mm_buffers_offset(iface, UCT_MM_BUFFERED_RINGS) +
           (index * uct_mm_ring_buffers_size(uct_mm_rings_shape(iface), UCT_MM_AREA_WIDE));
}

/* Nothing is reserved: a page is there once it is used, which of all kinds only memfd does without
 * a file system that may be full. */
static void uct_mm_buffers_create(uct_mm_iface_t *iface)
{
    static const uct_mm_backing_list_t memfd = {
        .kinds = {UCT_MM_BACKING_MEMFD, UCT_MM_BACKING_NONE}, .hugetlb = UCS_NO
    };

    iface->buffers_tried = 1;
    iface->num_usual     = (unsigned)ucs_min(ucs_max(sysconf(_SC_NPROCESSORS_ONLN), 1),
                                             UCT_MM_USUAL_RINGS);
    if (uct_mm_buffers_may_be(iface) && !uct_mm_overcommit_is_strict()) {
        (void)uct_mm_segment_create(&memfd, NULL,
                                    uct_mm_wide_offset(iface, uct_mm_num_wide()),
                                    UCT_MM_SEGMENT_LAZY | UCT_MM_SEGMENT_EXTRA, &iface->buffers);
    }
}

static void uct_mm_buffers_add(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    const uct_mm_ring_shape_t *shape = uct_mm_rings_shape(iface);
    unsigned index;
    uint8_t *start;

    if (!iface->buffers_tried) {
        uct_mm_buffers_create(iface);
    }
    peer->buffers = -1;
    if ((iface->buffers != NULL) && (iface->buffers_used != UINT64_MAX)) {
        index                = (unsigned)__builtin_ctzll(~iface->buffers_used);
        peer->buffers        = (int)index;
        iface->buffers_used |= 1ul << index;
        start                = iface->buffers->address;
        uct_mm_buffers_init(&peer->reader.buffers, start + uct_mm_buffers_offset(iface, index),
                            shape, uct_mm_buffers_area(iface, index));
        if (index < uct_mm_num_wide()) {
            uct_mm_buffers_init(&peer->reader.wide, start + uct_mm_wide_offset(iface, index), shape,
                                UCT_MM_AREA_WIDE);
        }
    }
}

static void uct_mm_buffers_remove(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    if (peer->buffers >= 0) {
        iface->buffers_used &= ~(1ul << peer->buffers);
        peer->buffers        = -1;
    }
}

/* ------------------------------------------------------------------ rings and peers */

static ucs_status_t uct_mm_rings_find_block(uct_mm_iface_t *iface, uct_mm_block_t **block_p)
{
    unsigned count = UCT_MM_BLOCK_FIRST;
    uct_mm_block_t *block;

    ucs_list_for_each(block, &iface->blocks, list) {
        if (block->used < block->count) {
            *block_p = block;
            return UCS_OK;
        }
        count = ucs_min(2 * block->count, (unsigned)UCT_MM_BLOCK_MAX);
    }
    return uct_mm_block_create(iface, count, 0, block_p);
}

static void uct_mm_rings_swap(uct_mm_iface_t *iface, unsigned a, unsigned b)
{
    uct_mm_peer_t **rings = iface->rings.items;
    uct_mm_peer_t *peer   = rings[a];

    rings[a]       = rings[b];
    rings[b]       = peer;
    rings[a]->slot = a;
    rings[b]->slot = b;
}

static void uct_mm_rings_heat(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    uct_mm_rings_swap(iface, peer->slot, iface->num_hot);
    ++iface->num_hot;
}

unsigned uct_mm_rings_num_rivals(const uct_mm_iface_t *iface)
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < iface->rings.length; ++i) {
        count += (unsigned)iface->rings.items[i]->is_rival;
    }
    return count;
}

/* Room for one more. */
static ucs_status_t uct_mm_rings_reserve(uct_mm_iface_t *iface)
{
    const size_t capacity = ucs_max(2 * iface->rings.capacity, (size_t)4);
    uct_mm_peer_t **items;

    if (iface->rings.length < iface->rings.capacity) {
        return UCS_OK;
    }
    items = ucs_sys_realloc(iface->rings.items, capacity * sizeof(*items));
    if (items == NULL) {
        ucs_error("no memory for %zu peers", iface->rings.length + 1);
        return UCS_ERR_NO_MEMORY;
    }
    iface->rings.items    = items;
    iface->rings.capacity = capacity;
    return UCS_OK;
}

ucs_status_t uct_mm_rings_add(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    const uct_mm_ring_shape_t *shape = uct_mm_rings_shape(iface);
    uct_mm_block_t *block;
    ucs_status_t status;
    unsigned index;

    status = uct_mm_rings_reserve(iface);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_mm_rings_find_block(iface, &block);
    if (status != UCS_OK) {
        return status;
    }

    for (index = 0; block->taken[index]; ++index) {
    }
    ucs_assert(index < block->count);
    block->taken[index] = 1;
    ++block->used;

    peer->block           = block;
    peer->index           = index;
    peer->received_before = 0;
    uct_mm_reader_init(&peer->reader, (uint8_t *)block->segment->address + block->first +
                       (index * uct_mm_ring_size(shape)), shape, &iface->staging);
    uct_mm_buffers_add(iface, peer);

    peer->slot = (unsigned)iface->rings.length;
    iface->rings.items[iface->rings.length++] = peer;
    uct_mm_rings_heat(iface, peer);
    ucs_atomic_store_relaxed(&iface->main->rivals, uct_mm_rings_num_rivals(iface));
    return UCS_OK;
}

void uct_mm_rings_remove(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    if (peer->slot < iface->num_hot) {
        --iface->num_hot;
        uct_mm_rings_swap(iface, peer->slot, iface->num_hot);
    }
    uct_mm_rings_swap(iface, peer->slot, (unsigned)iface->rings.length - 1);
    --iface->rings.length;
    ucs_atomic_store_relaxed(&iface->main->rivals, uct_mm_rings_num_rivals(iface));

    uct_mm_reader_cleanup(&peer->reader, &iface->super);
    uct_mm_buffers_remove(iface, peer);
    peer->block->taken[peer->index] = 0;
    --peer->block->used;
    peer->block = NULL;
}

/* ------------------------------------------------------------------ hot and cold */

void uct_mm_rings_cool(uct_mm_iface_t *iface)
{
    uct_mm_peer_t *peer;
    unsigned i = iface->num_hot;

    while ((i > 0) && (iface->num_hot > UCT_MM_HOT_MIN)) {
        --i;
        peer = iface->rings.items[i];
        if (peer->reader.received == peer->received_before) {
            --iface->num_hot;
            uct_mm_rings_swap(iface, i, iface->num_hot);
        }
        peer->received_before = peer->reader.received;
    }
}

unsigned uct_mm_rings_poll_cold(uct_mm_iface_t *iface)
{
    const unsigned num_rings = (unsigned)iface->rings.length;
    const unsigned turns     = ucs_min(num_rings - iface->num_hot, (unsigned)UCT_MM_COLD_TURN);
    unsigned count           = 0;
    uct_mm_peer_t *peer;
    unsigned i;

    for (i = 0; i < turns; ++i) {
        if ((iface->cold_next < iface->num_hot) || (iface->cold_next >= iface->rings.length)) {
            iface->cold_next = iface->num_hot;
            if (iface->cold_next == iface->rings.length) {
                break;
            }
        }
        peer = iface->rings.items[iface->cold_next++];
        if (uct_mm_reader_ready(&peer->reader)) {
            uct_mm_rings_heat(iface, peer);
            count += uct_mm_iface_receive(iface, peer);
        } else if (uct_mm_reader_should_release(&peer->reader)) {
            uct_mm_iface_release(iface, peer); /* it got cold before it was looked at in vain */
        }
    }
    return count;
}
