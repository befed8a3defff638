/* Halyard: ofi: registered memory; reads and writes of a peer's memory, where the provider has
 * them, and the keys for it. A write ends when the bytes lie at the peer (FI_DELIVERY_COMPLETE).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCT_OFI_HOST (-1) /* in place of a device */

/* Memory that is registered with the provider of one interface, which may be closed before; or what
 * the domain knows of memory that peers of any of its interfaces reach: then `next` leads to the
 * registrations, which the first key made. */
typedef struct uct_ofi_mem {
    uct_mem_t           super;
    uct_ofi_iface_t    *iface; /* NULL: of the domain, or closed */
    ucs_list_link_t     list;  /* in iface->mems or kept_mems */
    struct fid_mr      *mr;
    uint32_t            key;
    int                 is_kept; /* one of a domain's */
    int                 device;  /* on which it lies: the ordinal; UCT_OFI_HOST */
    struct uct_ofi_mem *next;
} uct_ofi_mem_t;

/* What goes over the wire of a key, little-endian. Of an interface's memory, to read: no more than
 * this; of a domain's: `base`, then an entry an interface. */
typedef struct {
    uint64_t base; /* address of the first byte in its owner */
    uint32_t key;
} UCS_PACKED uct_ofi_wire_key_t;

typedef struct {
    uint64_t uid; /* first bytes of the identity of the interface's worker */
    uint32_t key;
    uint8_t  is_writable; /* its provider takes writes, which the peer's own does not tell */
} UCS_PACKED uct_ofi_wire_entry_t;

typedef struct {
    uct_rkey_t           super;
    uint64_t             base;
    uint32_t             key;
    unsigned             num_entries; /* 0: the key is for whoever it was sent to */
    uct_ofi_wire_entry_t entries[UCT_OFI_KEYS_MAX];
} uct_ofi_rkey_t;

static_assert(sizeof(uct_ofi_wire_key_t) == UCT_IFACE_KEY_LEN, "layout of a key");
static_assert(sizeof(uint64_t) + (UCT_OFI_KEYS_MAX * sizeof(uct_ofi_wire_entry_t)) <= UCT_RKEY_MAX,
              "a key has room for all entries");

/* ---- memory: any thread ---- */

/* Counts memory that peers may read and write at any time; with the domain's lock. */
static void uct_ofi_kept_add(uct_ofi_mem_t *mem, int num)
{
    atomic_fetch_add_explicit(&mem->iface->num_kept, (uint64_t)(mem->is_kept ? num : 0),
                              memory_order_relaxed);
}

void uct_ofi_deregister(uct_ofi_iface_t *iface, struct fid_mr **mr_p)
{
    int ret;

    if ((*mr_p != NULL) && !iface->is_inherited) {
        uct_ofi_enter(iface);
        ret = fi_close(&(*mr_p)->fid);
        uct_ofi_leave(iface);
        if (ret != 0) {
            ucs_debug("fi_close of registered memory: error %d", ret);
        }
    }
    *mr_p = NULL;
}

/* Returns libfabric's error, or 0. */
static int uct_ofi_register(uct_ofi_iface_t *iface, void *address, size_t length, int device,
                            uint64_t access, struct fid_mr **mr_p)
{
    /* Where the provider makes no key of its own; one that is in use already is an error. */
    const uint64_t key           = (uint32_t)ucs_sys_random64();
    const struct iovec iov       = {address, length};
    const struct fi_mr_attr attr = {.mr_iov        = &iov,
                                    .iov_count     = 1,
                                    .access        = access,
                                    .requested_key = key,
                                    .iface         = FI_HMEM_CUDA,
                                    .device.cuda   = device};
    int ret;

    uct_ofi_enter(iface);
    ret = (iface->ep == NULL)      ? -FI_EIO :
          (device != UCT_OFI_HOST) ? fi_mr_regattr(iface->domain, &attr, 0, mr_p) :
          fi_mr_reg(iface->domain, address, length, access, 0, key, 0, mr_p, NULL);
    if (ret != 0) {
        *mr_p = NULL;
    } else if (iface->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        ret = fi_mr_bind(*mr_p, &iface->ep->fid, 0);
        ret = (ret == 0) ? fi_mr_enable(*mr_p) : ret;
    }
    uct_ofi_leave(iface);
    if (ret != 0) {
        uct_ofi_deregister(iface, mr_p);
    }
    return ret;
}

int uct_ofi_register_own(uct_ofi_iface_t *iface, void *memory, size_t size, struct fid_mr **mr_p)
{
    *mr_p = NULL;
    return (iface->info->domain_attr->mr_mode & FI_MR_LOCAL) ?
           uct_ofi_register(iface, memory, size, UCT_OFI_HOST, FI_SEND | FI_RECV, mr_p) : 0;
}

/* With the domain's lock. */
static void uct_ofi_mem_close(uct_ofi_mem_t *mem)
{
    if (mem->iface == NULL) {
        return;
    }
    ucs_list_del(&mem->list);
    uct_ofi_kept_add(mem, -1);
    uct_ofi_deregister(mem->iface, &mem->mr);
    mem->iface = NULL;
}

static int uct_ofi_reaches(const uct_ofi_iface_t *iface, int device)
{
    return (device == UCT_OFI_HOST) || ((iface->info->caps & FI_HMEM) != 0);
}

/* The device whose memory it is, or UCT_OFI_HOST. 0: no provider takes such memory. */
static int uct_ofi_mem_device(const uct_mem_info_t *info, int *device_p)
{
    *device_p = (info == NULL) ? UCT_OFI_HOST : info->device;
    return (info == NULL) || (info->type == UCS_MEMORY_TYPE_CUDA);
}

/* Do operations of the interface need such memory of this process registered? */
static int uct_ofi_needs_desc(const uct_ofi_iface_t *iface, int device)
{
    return (iface->info->domain_attr->mr_mode &
            (FI_MR_LOCAL | ((device == UCT_OFI_HOST) ? 0 : FI_MR_HMEM))) != 0;
}

/* With the domain's lock. */
static ucs_status_t uct_ofi_mem_open(uct_ofi_iface_t *iface, void *address, size_t length,
                                     int device, uint64_t access, uct_ofi_mem_t **mem_p)
{
    uct_ofi_mem_t *mem;
    uint64_t key;
    int ret;

    if (!uct_ofi_reaches(iface, device)) {
        return UCS_ERR_UNSUPPORTED;
    }
    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    mem->super   = (uct_mem_t){.md = iface->super.md, .address = address, .length = length};
    mem->device  = device;
    mem->iface   = iface;
    mem->is_kept = (access & FI_REMOTE_READ) && (access & FI_READ);
    ucs_list_add_tail(mem->is_kept ? &iface->kept_mems : &iface->mems, &mem->list);
    uct_ofi_kept_add(mem, 1);
    ret      = uct_ofi_register(iface, address, length, device, access, &mem->mr);
    key      = (ret == 0) ? fi_mr_key(mem->mr) : 0;
    mem->key = (uint32_t)key;
    if ((ret != 0) || ((access & FI_REMOTE_READ) && (key != mem->key))) {
        if ((device != UCT_OFI_HOST) && !iface->has_told_refusal) {
            iface->has_told_refusal = 1;
            ucs_diag("memory of GPU %d cannot be registered with %s (libfabric's error %d): it "
                     "goes through the host's", device, iface->info->fabric_attr->prov_name, ret);
        }
        ucs_debug("memory at %p, %zu bytes, device %d, cannot be registered: libfabric's error %d, "
                  "key %lx", address, length, device, ret, (unsigned long)key);
        uct_ofi_mem_close(mem);
        ucs_sys_free(mem);
        return UCS_ERR_IO_ERROR;
    }
    *mem_p = mem;
    return UCS_OK;
}

ucs_status_t uct_ofi_reg(uct_iface_t *tl_iface, void *address, size_t length,
                         const uct_mem_info_t *info, int is_remote, uct_mem_t **mem_p)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    uct_ofi_md_t *md       = uct_ofi_md(tl_iface->md);
    uct_ofi_mem_t *mem     = NULL;
    ucs_status_t status;
    int device;

    if ((iface->num_rmas == 0) || iface->is_inherited || !uct_ofi_mem_device(info, &device) ||
        !uct_ofi_reaches(iface, device)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (!is_remote && !uct_ofi_needs_desc(iface, device)) {
        *mem_p = NULL;
        return UCS_OK;
    }
    pthread_mutex_lock(&md->lock);
    status = uct_ofi_mem_open(iface, address, length, device,
                              is_remote ? FI_REMOTE_READ : FI_READ | FI_WRITE, &mem);
    pthread_mutex_unlock(&md->lock);
    if (status == UCS_OK) {
        *mem_p = &mem->super;
    }
    return status;
}

/* Memory of a domain is registered once a key for it is made. */
ucs_status_t uct_ofi_md_reg(uct_md_t *md, void *address, size_t length,
                            const uct_mem_info_t *info, uct_mem_t **mem_p)
{
    uct_ofi_mem_t *mem;
    int device;

    if (!uct_ofi_mem_device(info, &device)) {
        return UCS_ERR_UNSUPPORTED;
    }
    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    mem->super  = (uct_mem_t){.md = md, .address = address, .length = length};
    mem->device = device;
    *mem_p      = &mem->super;
    return UCS_OK;
}

void uct_ofi_mem_release(uct_mem_t *tl_mem)
{
    uct_ofi_mem_t *mem = ucs_container_of(tl_mem, uct_ofi_mem_t, super);
    uct_ofi_md_t *md   = uct_ofi_md(tl_mem->md);
    uct_ofi_mem_t *next;

    pthread_mutex_lock(&md->lock);
    for (; mem != NULL; mem = next) {
        next = mem->next;
        uct_ofi_mem_close(mem);
        ucs_sys_free(mem);
    }
    pthread_mutex_unlock(&md->lock);
}

/* The registration of a domain's memory with an interface, or NULL. With the domain's lock. */
static uct_ofi_mem_t *uct_ofi_mem_of(uct_ofi_mem_t *head, uct_ofi_iface_t *iface)
{
    uint64_t access       = FI_REMOTE_READ | FI_READ |
                      (iface->has_writes ? FI_REMOTE_WRITE | FI_WRITE : 0);
    uct_ofi_mem_t **place = &head->next;
    uct_ofi_mem_t *mem;

    while ((mem = *place) != NULL) {
        if (mem->iface == iface) {
            return mem;
        }
        if (mem->iface == NULL) { /* of an interface that is closed */
            *place = mem->next;
            ucs_sys_free(mem);
        } else {
            place = &mem->next;
        }
    }
    if (uct_ofi_mem_open(iface, head->super.address, head->super.length, head->device, access,
                         &mem) != UCS_OK) {
        return NULL;
    }
    mem->next  = head->next;
    head->next = mem;
    return mem;
}

size_t uct_ofi_rkey_pack(uct_mem_t *tl_mem, void *buffer)
{
    uct_ofi_mem_t *mem            = ucs_container_of(tl_mem, uct_ofi_mem_t, super);
    uct_ofi_md_t *md              = uct_ofi_md(tl_mem->md);
    uct_ofi_wire_key_t wire_key   = {(uintptr_t)tl_mem->address, mem->key};
    uct_ofi_wire_entry_t *entries = (void *)((char *)buffer + sizeof(wire_key.base));
    unsigned count                = 0;
    uct_ofi_iface_t *iface;
    const uct_ofi_mem_t *own;

    memcpy(buffer, &wire_key.base, sizeof(wire_key.base));
    if (mem->mr != NULL) {
        memcpy(buffer, &wire_key, sizeof(wire_key));
        return sizeof(wire_key);
    }
    pthread_mutex_lock(&md->lock);
    ucs_list_for_each(iface, &md->ifaces, md_list) {
        own = ((count < UCT_OFI_KEYS_MAX) && !iface->is_inherited) ? uct_ofi_mem_of(mem, iface) :
                                                                     NULL;
        if (own != NULL) {
            entries[count] = (uct_ofi_wire_entry_t){.key         = own->key,
                                                    .is_writable = iface->has_writes != 0};
            memcpy(&entries[count].uid, iface->super.params.uid, sizeof(entries->uid));
            ++count;
        }
    }
    pthread_mutex_unlock(&md->lock);
    return (count == 0) ? 0 : sizeof(wire_key.base) + (count * sizeof(*entries));
}

ucs_status_t uct_ofi_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                 uct_rkey_t **rkey_p)
{
    uct_ofi_wire_key_t wire_key;
    size_t rest = length - sizeof(wire_key.base);
    uct_ofi_rkey_t *rkey;

    if ((length < sizeof(wire_key)) || (rest > sizeof(rkey->entries)) ||
        ((length != sizeof(wire_key)) && ((rest % sizeof(*rkey->entries)) != 0))) {
        return UCS_ERR_INVALID_PARAM;
    }
    rkey = ucs_sys_malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(&wire_key, buffer, sizeof(wire_key));
    rkey->super.md    = md;
    rkey->base        = wire_key.base;
    rkey->key         = wire_key.key;
    rkey->num_entries = (unsigned)(rest / sizeof(*rkey->entries));
    memcpy(rkey->entries, (const char *)buffer + sizeof(wire_key.base),
           rkey->num_entries * sizeof(*rkey->entries));
    *rkey_p = &rkey->super;
    return UCS_OK;
}

/* The key that a peer made. */
static ucs_status_t uct_ofi_rkey_find(const uct_ofi_rkey_t *rkey, const uct_ofi_peer_t *peer,
                                      int is_write, uint64_t *key_p)
{
    const uct_ofi_wire_entry_t *entry;
    unsigned i;

    for (i = 0; i < rkey->num_entries; ++i) {
        entry = &rkey->entries[i];
        if (memcmp(&entry->uid, peer->uid, sizeof(entry->uid)) == 0) {
            *key_p = entry->key;
            return (!is_write || entry->is_writable) ? UCS_OK : UCS_ERR_UNSUPPORTED;
        }
    }
    *key_p = rkey->key;
    return (rkey->num_entries > 0) ? UCS_ERR_UNREACHABLE :
           is_write                ? UCS_ERR_UNSUPPORTED : UCS_OK;
}

void uct_ofi_rkey_release(uct_rkey_t *rkey)
{
    ucs_sys_free(ucs_container_of(rkey, uct_ofi_rkey_t, super));
}

/* ---- operations ---- */

static void uct_ofi_rma_op_put(uct_ofi_iface_t *iface, uct_ofi_rma_t *op)
{
    op->peer = NULL;
    ++iface->num_free_rmas;
    ucs_list_add_head(&iface->free_rmas, &op->queue);
}

/* The next one that waits, taken off its queue, or NULL. */
static uct_ofi_rma_t *uct_ofi_rma_pull(uct_ofi_peer_t *peer)
{
    if (ucs_list_is_empty(&peer->waiting)) {
        return NULL;
    }
    --peer->num_waiting;
    return ucs_list_extract_head(&peer->waiting, uct_ofi_rma_t, queue);
}

static void uct_ofi_rma_op_end(uct_ofi_iface_t *iface, uct_ofi_rma_t *op, ucs_status_t status)
{
    uct_completion_t *comp = op->comp;

    uct_ofi_op_settle(op->peer, &op->super);
    op->super.is_posted = 0;
    uct_ofi_rma_op_put(iface, op);
    if (comp != NULL) {
        uct_completion_update(comp, status);
    }
}

/* Returns libfabric's error, or 0. */
static ssize_t uct_ofi_rma_op_post(uct_ofi_rma_t *op)
{
    uct_ofi_peer_t *peer = op->peer;
    fi_addr_t addr       = peer->where->addr;
    struct iovec iov     = {op->buffer, op->length};
    struct fi_rma_iov rma_iov = {op->remote_addr, op->length, op->key};
    struct fi_msg_rma msg     = {.msg_iov       = &iov,
                                 .desc          = &op->desc,
                                 .iov_count     = 1,
                                 .addr          = addr,
                                 .rma_iov       = &rma_iov,
                                 .rma_iov_count = 1,
                                 .context       = &op->super.context};
    ssize_t ret;

    uct_ofi_enter(peer->iface);
    ret = op->is_write ?
          fi_writemsg(peer->iface->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION) :
          fi_read(peer->iface->ep, op->buffer, op->length, op->desc, addr, op->remote_addr,
                  op->key, &op->super.context);
    uct_ofi_leave(peer->iface);
    if (ucs_likely(ret == 0)) {
        op->super.is_posted = 1;
        ++peer->num_rmas;
        uct_ofi_op_started(peer);
    } else if (ret != -FI_EAGAIN) {
        ucs_debug("%s: error %zd", op->is_write ? "fi_writemsg" : "fi_read", ret);
    }
    return ret;
}

/* The others stay in order. */
void uct_ofi_rma_drop_given_up(uct_ofi_peer_t *peer)
{
    ucs_list_link_t dropped;
    uct_ofi_rma_t *op;
    unsigned i;

    ucs_list_head_init(&dropped);
    for (i = peer->num_waiting; i > 0; --i) {
        op = uct_ofi_rma_pull(peer);
        if (op->super.is_given_up) {
            ucs_list_add_tail(&dropped, &op->queue);
        } else {
            ucs_list_add_tail(&peer->waiting, &op->queue);
            ++peer->num_waiting;
        }
    }
    while (!ucs_list_is_empty(&dropped)) {
        op = ucs_list_extract_head(&dropped, uct_ofi_rma_t, queue);
        uct_ofi_rma_op_end(peer->iface, op, UCS_ERR_CANCELED);
    }
}

int uct_ofi_rma_post(uct_ofi_peer_t *peer, unsigned *count_p)
{
    uct_ofi_rma_t *op;
    ssize_t ret;

    while ((peer->status == UCS_OK) && ((op = uct_ofi_rma_pull(peer)) != NULL)) {
        ret = uct_ofi_rma_op_post(op);
        if (ret == -FI_EAGAIN) {
            ucs_list_add_head(&peer->waiting, &op->queue);
            ++peer->num_waiting;
            return 0;
        }
        if (ret != 0) {
            uct_ofi_rma_op_end(peer->iface, op, UCS_ERR_IO_ERROR);
        }
        ++*count_p;
    }
    return 1;
}

/* A peer stays as long as operations wait for it. */
static void uct_ofi_rma_drop_until(uct_ofi_peer_t *peer, const uct_ofi_rma_t *last,
                                   ucs_status_t status)
{
    while (last->peer == peer) {
        uct_ofi_rma_op_end(peer->iface, uct_ofi_rma_pull(peer), status);
    }
}

void uct_ofi_rma_drop(uct_ofi_peer_t *peer)
{
    uct_ofi_rma_t *op;

    while ((op = uct_ofi_rma_pull(peer)) != NULL) {
        uct_ofi_rma_op_end(peer->iface, op, peer->status);
    }
}

void uct_ofi_rma_give_up(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer,
                         const uct_completion_t *comp)
{
    uct_ofi_rma_t *op;
    unsigned i;

    for (i = 0; i < iface->num_rmas; ++i) {
        op = &iface->rmas[i];
        if ((op->peer != NULL) && ((comp == NULL) ? (op->peer == peer) : (op->comp == comp))) {
            uct_ofi_op_give_up(op->peer, &op->super, comp != NULL);
        }
    }
}

/* The descriptor of local memory that operations of the interface use; of a domain's it is
 * registered now, if need be. 0: that is refused. */
static int uct_ofi_rma_desc(uct_ofi_iface_t *iface, uct_mem_t *tl_mem, void **desc_p)
{
    uct_ofi_md_t *md = uct_ofi_md(iface->super.md);
    uct_ofi_mem_t *mem;

    *desc_p = NULL;
    if (tl_mem == NULL) {
        return 1;
    }
    mem = ucs_container_of(tl_mem, uct_ofi_mem_t, super);
    if (!uct_ofi_needs_desc(iface, mem->device)) {
        return uct_ofi_reaches(iface, mem->device);
    }
    if (mem->mr == NULL) {
        pthread_mutex_lock(&md->lock);
        mem = uct_ofi_mem_of(mem, iface);
        pthread_mutex_unlock(&md->lock);
        if (mem == NULL) {
            return 0;
        }
    }
    *desc_p = fi_mr_desc(mem->mr);
    return 1;
}

/* What the provider does not take now waits here: it may have to connect first, for which the
 * caller would poll. */
static ucs_status_t uct_ofi_rma_start(uct_ep_t *ep, int is_write, const uct_iov_t *iov, unsigned n,
                                      uint64_t remote_addr, uct_rkey_t *tl_rkey,
                                      uct_completion_t *comp)
{
    uct_ofi_peer_t *peer   = uct_ofi_ep(ep)->peer;
    uct_ofi_iface_t *iface = peer->iface;
    uct_ofi_rkey_t *rkey;
    ucs_status_t status;
    uct_ofi_rma_t *op;
    uint64_t key;
    void *desc;
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
    status = uct_ofi_rkey_find(rkey, peer, is_write, &key);
    if (status != UCS_OK) {
        return status;
    }
    if (!uct_ofi_rma_desc(iface, iov->mem, &desc)) {
        return UCS_ERR_IO_ERROR;
    }
    if (iface->num_rmas == 0) {
        return UCS_ERR_UNSUPPORTED;
    }
    /* Who takes nothing must not hold what others need. */
    if ((peer->num_rmas + peer->num_waiting) >= iface->num_free_rmas) {
        return UCS_ERR_NO_RESOURCE;
    }
    op = ucs_list_extract_head(&iface->free_rmas, uct_ofi_rma_t, queue);
    --iface->num_free_rmas;
    op->peer        = peer;
    op->comp        = comp;
    op->is_write    = is_write;
    op->buffer      = iov->buffer;
    op->length      = iov->length;
    op->desc        = desc;
    op->remote_addr = (iface->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) ?
                      remote_addr : remote_addr - rkey->base;
    op->key         = key;
    ret             = ucs_list_is_empty(&peer->waiting) ? uct_ofi_rma_op_post(op) : -FI_EAGAIN;
    if (ucs_likely(ret == 0)) {
        return UCS_INPROGRESS;
    }
    if (ret == -FI_EAGAIN) {
        ucs_list_add_tail(&peer->waiting, &op->queue);
        ++peer->num_waiting;
        uct_ofi_peer_say(peer, 0);
        return UCS_INPROGRESS;
    }
    uct_ofi_rma_op_put(iface, op);
    return UCS_ERR_IO_ERROR;
}

ucs_status_t uct_ofi_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                               uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp)
{
    return uct_ofi_rma_start(ep, 0, iov, n, remote_addr, rkey, comp);
}

ucs_status_t uct_ofi_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                               uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp)
{
    return uct_ofi_ep(ep)->peer->iface->has_writes ?
           uct_ofi_rma_start(ep, 1, iov, n, remote_addr, rkey, comp) : UCS_ERR_UNSUPPORTED;
}

void uct_ofi_rma_op_ended(uct_ofi_iface_t *iface, uct_ofi_rma_t *op, int error)
{
    uct_ofi_peer_t *peer = op->peer;
    ucs_status_t status  = UCS_OK;

    --peer->num_rmas;
    peer->num_stuck = 0;
    if (ucs_likely(error == 0)) {
        uct_ofi_peer_heard(peer);
    } else {
        status = (peer->status != UCS_OK) ? peer->status : UCS_ERR_IO_ERROR;
        ucs_debug("a %s has failed: libfabric's error %d", op->is_write ? "write" : "read", error);
        if (peer->status == UCS_OK) {
            uct_ofi_alive_doubt(peer);
        }
    }
    uct_ofi_op_ended(peer);
    uct_ofi_rma_op_end(iface, op, status);
}

/* ---- opening and closing ---- */

/* Another thread of the parent may have held it. */
static void uct_ofi_md_in_child(ucs_fork_watch_t *watch)
{
    pthread_mutex_init(&ucs_container_of(watch, uct_ofi_md_t, fork)->lock, NULL);
}

ucs_status_t uct_ofi_md_open(uct_md_t *tl_md)
{
    uct_ofi_md_t *md = uct_ofi_md(tl_md);

    pthread_mutex_init(&md->lock, NULL);
    ucs_fork_watch_add(&md->fork, uct_ofi_md_in_child);
    ucs_list_head_init(&md->ifaces);
    return UCS_OK;
}

void uct_ofi_md_close(uct_md_t *tl_md)
{
    ucs_fork_watch_remove(&uct_ofi_md(tl_md)->fork);
    pthread_mutex_destroy(&uct_ofi_md(tl_md)->lock);
}

ucs_status_t uct_ofi_rma_open(uct_ofi_iface_t *iface)
{
    uct_ofi_md_t *md = uct_ofi_md(iface->super.md);
    unsigned count, i;

    if (!(iface->info->caps & FI_RMA)) {
        return UCS_OK;
    }
    count       = (unsigned)ucs_min(UCT_OFI_RMAS, iface->info->tx_attr->size - iface->num_sends);
    iface->rmas = ucs_sys_calloc(ucs_max(count, 1u), sizeof(*iface->rmas));
    if (iface->rmas == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    iface->num_rmas      = count;
    iface->num_free_rmas = count;
    for (i = 0; i < count; ++i) {
        iface->rmas[i].super.kind = UCT_OFI_OP_RMA;
        ucs_list_add_tail(&iface->free_rmas, &iface->rmas[i].queue);
    }
    pthread_mutex_lock(&md->lock);
    ucs_list_add_tail(&md->ifaces, &iface->md_list);
    pthread_mutex_unlock(&md->lock);
    return UCS_OK;
}

void uct_ofi_rma_abandon(uct_ofi_iface_t *iface, ucs_status_t status)
{
    const unsigned count = iface->num_rmas;
    uct_ofi_peer_t *peer;
    unsigned i;

    iface->num_rmas = 0; /* no more of them */
    for (i = 0; i < count; ++i) {
        peer = iface->rmas[i].peer;
        if (peer == NULL) {
            continue;
        }
        iface->rmas[i].super.is_given_up = 0; /* the peer may be freed */
        if (!iface->rmas[i].super.is_posted) { /* takes it and those before it off their queue */
            uct_ofi_rma_drop_until(peer, &iface->rmas[i], status);
        } else {
            uct_ofi_rma_op_end(iface, &iface->rmas[i], status);
        }
    }
}

void uct_ofi_rma_leave(uct_ofi_iface_t *iface)
{
    uct_ofi_md_t *md = uct_ofi_md(iface->super.md);

    pthread_mutex_lock(&md->lock);
    ucs_list_del(&iface->md_list);
    pthread_mutex_unlock(&md->lock);
}

void uct_ofi_mems_close(uct_ofi_iface_t *iface)
{
    uct_ofi_md_t *md = uct_ofi_md(iface->super.md);

    pthread_mutex_lock(&md->lock);
    ucs_list_splice_tail(&iface->mems, &iface->kept_mems);
    while (!ucs_list_is_empty(&iface->mems)) {
        uct_ofi_mem_close(ucs_list_head(&iface->mems, uct_ofi_mem_t, list));
    }
    pthread_mutex_unlock(&md->lock);
}
