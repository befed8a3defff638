/* Halyard: ofi: reads of a peer's memory, where the provider has them, and the keys for it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_OFI

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

/* Memory that is registered with the provider. */
typedef struct {
    uct_mem_t        super;
    uct_ofi_iface_t *iface;
    ucs_list_link_t  list; /* in iface->mems */
    struct fid_mr   *mr;   /* NULL once the interface is closed */
    uint32_t         key;
} uct_ofi_mem_t;

typedef struct {
    uct_rkey_t super;
    uint64_t   base; /* address of the first byte in its owner */
    uint64_t   key;
} uct_ofi_rkey_t;

/* What goes over the wire of a key, little-endian. */
typedef struct {
    uint64_t base;
    uint32_t key;
} UCS_PACKED uct_ofi_wire_key_t;

static_assert(sizeof(uct_ofi_wire_key_t) == UCT_IFACE_KEY_LEN, "layout of a key");

/* ---- memory ---- */

static void uct_ofi_mem_close(uct_ofi_mem_t *mem)
{
    int ret;

    ucs_list_del(&mem->list);
    if ((mem->mr != NULL) && !mem->iface->is_inherited) {
        ret = fi_close(&mem->mr->fid);
        if (ret != 0) {
            ucs_debug("fi_close of registered memory: error %d", ret);
        }
    }
    mem->mr = NULL;
}

ucs_status_t uct_ofi_reg(uct_iface_t *tl_iface, void *address, size_t length, int is_remote,
                         uct_mem_t **mem_p)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    int mode               = iface->info->domain_attr->mr_mode;
    uct_ofi_mem_t *mem;
    uint64_t key;
    int ret;

    if ((iface->num_reads == 0) || iface->is_inherited) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (!is_remote && !(mode & FI_MR_LOCAL)) {
        *mem_p = NULL;
        return UCS_OK;
    }
    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    mem->super = (uct_mem_t){tl_iface->md, address, length};
    mem->iface = iface;
    ucs_list_add_tail(&iface->mems, &mem->list);
    /* Where the provider makes no key of its own; one that is in use already is an error. */
    key = (uint32_t)ucs_sys_random64();
    ret = fi_mr_reg(iface->domain, address, length, is_remote ? FI_REMOTE_READ : FI_READ, 0, key,
                    0, &mem->mr, NULL);
    if (ret != 0) {
        mem->mr = NULL;
    } else if (mode & FI_MR_ENDPOINT) {
        ret = fi_mr_bind(mem->mr, &iface->ep->fid, 0);
        ret = (ret == 0) ? fi_mr_enable(mem->mr) : ret;
    }
    key      = (ret == 0) ? fi_mr_key(mem->mr) : 0;
    mem->key = (uint32_t)key;
    if ((ret != 0) || (is_remote && (key != mem->key))) {
        ucs_debug("memory at %p, %zu bytes, cannot be registered: libfabric's error %d, key %lx",
                  address, length, ret, (unsigned long)key);
        uct_ofi_mem_close(mem);
        ucs_sys_free(mem);
        return UCS_ERR_IO_ERROR;
    }
    *mem_p = &mem->super;
    return UCS_OK;
}

void uct_ofi_mem_release(uct_mem_t *tl_mem)
{
    uct_ofi_mem_t *mem = ucs_container_of(tl_mem, uct_ofi_mem_t, super);

    uct_ofi_mem_close(mem);
    ucs_sys_free(mem);
}

size_t uct_ofi_rkey_pack(uct_mem_t *tl_mem, void *buffer)
{
    uct_ofi_mem_t *mem          = ucs_container_of(tl_mem, uct_ofi_mem_t, super);
    uct_ofi_wire_key_t wire_key = {(uintptr_t)tl_mem->address, mem->key};

    memcpy(buffer, &wire_key, sizeof(wire_key));
    return sizeof(wire_key);
}

ucs_status_t uct_ofi_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                 uct_rkey_t **rkey_p)
{
    uct_ofi_wire_key_t wire_key;
    uct_ofi_rkey_t *rkey;

    if (length != sizeof(wire_key)) {
        return UCS_ERR_INVALID_PARAM;
    }
    rkey = ucs_sys_malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(&wire_key, buffer, sizeof(wire_key));
    rkey->super.md = md;
    rkey->base     = wire_key.base;
    rkey->key      = wire_key.key;
    *rkey_p        = &rkey->super;
    return UCS_OK;
}

void uct_ofi_rkey_release(uct_rkey_t *rkey)
{
    ucs_sys_free(ucs_container_of(rkey, uct_ofi_rkey_t, super));
}

/* ---- reads ---- */

static void uct_ofi_read_end(uct_ofi_iface_t *iface, uct_ofi_read_t *read, ucs_status_t status)
{
    uct_completion_t *comp = read->comp;

    read->peer            = NULL;
    read->super.is_posted = 0;
    ucs_queue_push_head(&iface->free_reads, &read->queue);
    if (comp != NULL) {
        uct_completion_update(comp, status);
    }
}

/* Returns libfabric's error, or 0. */
static ssize_t uct_ofi_read_post(uct_ofi_read_t *read)
{
    uct_ofi_peer_t *peer = read->peer;
    ssize_t ret;

    ret = fi_read(peer->iface->ep, read->buffer, read->length, read->desc, peer->addr,
                  read->remote_addr, read->key, &read->super.context);
    if (ucs_likely(ret == 0)) {
        read->super.is_posted = 1;
        ++peer->num_reads;
        uct_ofi_op_started(peer);
    } else if (ret != -FI_EAGAIN) {
        ucs_debug("fi_read: error %zd", ret);
    }
    return ret;
}

int uct_ofi_reads_post(uct_ofi_peer_t *peer, unsigned *count_p)
{
    ucs_queue_elem_t *elem;
    uct_ofi_read_t *read;
    ssize_t ret;

    while ((peer->status == UCS_OK) && ((elem = ucs_queue_pull(&peer->unread)) != NULL)) {
        read = ucs_container_of(elem, uct_ofi_read_t, queue);
        ret  = uct_ofi_read_post(read);
        if (ret == -FI_EAGAIN) {
            ucs_queue_push_head(&peer->unread, elem);
            return 0;
        }
        if (ret != 0) {
            uct_ofi_read_end(peer->iface, read, UCS_ERR_IO_ERROR);
        }
        ++*count_p;
    }
    return 1;
}

/* A peer stays as long as reads wait for it. */
static void uct_ofi_reads_drop_until(uct_ofi_peer_t *peer, const uct_ofi_read_t *last,
                                     ucs_status_t status)
{
    uct_ofi_read_t *read;

    while (last->peer == peer) {
        read = ucs_container_of(ucs_queue_pull(&peer->unread), uct_ofi_read_t, queue);
        uct_ofi_read_end(peer->iface, read, status);
    }
}

void uct_ofi_reads_drop(uct_ofi_peer_t *peer)
{
    ucs_queue_elem_t *elem;

    while ((elem = ucs_queue_pull(&peer->unread)) != NULL) {
        uct_ofi_read_end(peer->iface, ucs_container_of(elem, uct_ofi_read_t, queue),
                         peer->status);
    }
}

/* What the provider does not take now waits here: it may have to connect first, for which the
 * caller would poll. */
ucs_status_t uct_ofi_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                               uint64_t remote_addr, uct_rkey_t *tl_rkey, uct_completion_t *comp)
{
    uct_ofi_peer_t *peer   = uct_ofi_ep(ep)->peer;
    uct_ofi_iface_t *iface = peer->iface;
    uct_ofi_rkey_t *rkey;
    ucs_queue_elem_t *elem;
    uct_ofi_read_t *read;
    ssize_t ret;

    if ((n != 1) || (tl_rkey == NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (iov->length == 0) {
        return UCS_OK;
    }
    rkey = ucs_container_of(tl_rkey, uct_ofi_rkey_t, super);
    if ((remote_addr < rkey->base) || (remote_addr > UINT64_MAX - iov->length)) {
        return UCS_ERR_OUT_OF_RANGE; /* the provider checks the rest, but not that */
    }
    elem = ucs_queue_pull(&iface->free_reads);
    if (elem == NULL) {
        return (iface->num_reads == 0) ? UCS_ERR_UNSUPPORTED : UCS_ERR_NO_RESOURCE;
    }
    read              = ucs_container_of(elem, uct_ofi_read_t, queue);
    read->peer        = peer;
    read->comp        = comp;
    read->buffer      = iov->buffer;
    read->length      = iov->length;
    read->desc        = (iov->mem == NULL) ? NULL :
                        fi_mr_desc(ucs_container_of(iov->mem, uct_ofi_mem_t, super)->mr);
    read->remote_addr = (iface->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) ?
                        remote_addr : remote_addr - rkey->base;
    read->key         = rkey->key;
    ret = ucs_queue_is_empty(&peer->unread) ? uct_ofi_read_post(read) : -FI_EAGAIN;
    if (ucs_likely(ret == 0)) {
        return UCS_INPROGRESS;
    }
    if (ret == -FI_EAGAIN) {
        ucs_queue_push(&peer->unread, &read->queue);
        uct_ofi_peer_say(peer, 0);
        return UCS_INPROGRESS;
    }
    read->peer = NULL;
    ucs_queue_push_head(&iface->free_reads, &read->queue);
    return UCS_ERR_IO_ERROR;
}

void uct_ofi_read_ended(uct_ofi_iface_t *iface, uct_ofi_read_t *read, int error)
{
    uct_ofi_peer_t *peer = read->peer;
    ucs_status_t status  = UCS_OK;

    --peer->num_reads;
    peer->num_stuck = 0;
    if (ucs_likely(error == 0)) {
        uct_ofi_peer_heard(peer);
    } else {
        status = (peer->status != UCS_OK) ? peer->status : UCS_ERR_IO_ERROR;
        ucs_debug("a read has failed: libfabric's error %d", error);
        if (peer->status == UCS_OK) {
            uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING); /* it may be the connection */
        }
    }
    uct_ofi_op_ended(peer);
    uct_ofi_read_end(iface, read, status);
}

/* ---- opening and closing ---- */

ucs_status_t uct_ofi_reads_open(uct_ofi_iface_t *iface)
{
    unsigned count, i;

    if (!(iface->info->caps & FI_RMA)) {
        return UCS_OK;
    }
    count        = (unsigned)ucs_min(UCT_OFI_READS, iface->info->tx_attr->size - iface->num_sends);
    iface->reads = ucs_sys_calloc(ucs_max(count, 1u), sizeof(*iface->reads));
    if (iface->reads == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    iface->num_reads = count;
    for (i = 0; i < count; ++i) {
        iface->reads[i].super.kind = UCT_OFI_OP_READ;
        ucs_queue_push(&iface->free_reads, &iface->reads[i].queue);
    }
    return UCS_OK;
}

void uct_ofi_reads_abandon(uct_ofi_iface_t *iface, ucs_status_t status)
{
    const unsigned count = iface->num_reads;
    uct_ofi_peer_t *peer;
    unsigned i;

    iface->num_reads = 0; /* no more of them */
    for (i = 0; i < count; ++i) {
        peer = iface->reads[i].peer;
        if (peer == NULL) {
            continue;
        }
        if (!iface->reads[i].super.is_posted) { /* takes it and those before it off their queue */
            uct_ofi_reads_drop_until(peer, &iface->reads[i], status);
        } else {
            uct_ofi_read_end(iface, &iface->reads[i], status);
        }
    }
}

void uct_ofi_reads_close(uct_ofi_iface_t *iface)
{
    uct_ofi_reads_abandon(iface, UCS_ERR_CANCELED);
    while (!ucs_list_is_empty(&iface->mems)) {
        uct_ofi_mem_close(ucs_list_head(&iface->mems, uct_ofi_mem_t, list));
    }
    ucs_sys_free(iface->reads);
}

#endif
