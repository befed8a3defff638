/* Halyard: loopback transport: a worker's messages to itself, and access to its own memory.
 *
 * A message is copied into a bounded ring and delivered by the next progress, since a handler must
 * not run inside the sender's operation. Put and get act on the memory at once.
 *
 * Ring: records at 8-byte aligned positions that count up without wrapping; the place of a record
 * is its position modulo the ring's size, and a record is never split: what is left of the ring's
 * end is skipped by a record of id UCT_SELF_ID_SKIP.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_SELF_SELF_H
#define UCT_SELF_SELF_H

#include <uct/api/uct_tl.h>

#define UCT_SELF_ID_SKIP 0xffffffffu

typedef struct {
    size_t seg_size;
} uct_self_config_t;

typedef struct {
    uint32_t length; /* bytes of payload behind the record's head */
    uint32_t id;
} uct_self_record_t;

typedef struct {
    uct_iface_t super;
    uint8_t    *ring;      /* made by the first connection */
    uint64_t    ring_size;
    uint64_t    head;      /* position of the next record to deliver */
    uint64_t    tail;      /* position of the next record to write */
    uint64_t    end;       /* where what an ended connection has sent ends */
    uint8_t     is_ending; /* it has yet to be reported */
    uint8_t     is_discarding; /* what it has sent is not delivered */
    int         event_fd;  /* -1: nobody has asked for it */
    int         is_armed;  /* the next message must be signalled */
} uct_self_iface_t;

UCS_INLINE size_t uct_self_seg_size(const uct_self_iface_t *iface)
{
    return ((const uct_self_config_t *)iface->super.md->config)->seg_size;
}

/* Memory of this process as seen by itself (self_mem.c). */
ucs_status_t uct_self_mem_alloc(uct_md_t *md, void *address, size_t length, unsigned flags,
                                uct_mem_t **mem_p);
void uct_self_mem_release(uct_mem_t *mem);
ucs_status_t uct_self_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp);
ucs_status_t uct_self_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp);

#endif
