/* Halyard: mm: memory that peers map, and remote keys.
 *
 * Allocated memory is a segment of its own. A remote key tells whose it is and which: a peer opens
 * the owner's descriptor through /proc, and checks by device and inode that it has got the very
 * object that the key names. Those are numbers of one kernel, whose identity the key has too: by
 * keys of other nodes, which come over networks, nothing is mapped. Where /proc does not lead there
 * (another process namespace, a process that cannot be looked into), it asks the owner's interface
 * for the descriptor; always for files, of which /proc has others, too.
 *
 * The mapping is made by the first use of a key and lasts as long as the key.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_socket.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define UCT_MM_RKEY_VERSION 2

/* A remote key on the wire, in the order of the machine: it is of use on this one only. */
typedef struct {
    uint8_t  version;
    uint8_t  backing; /* uct_mm_backing_t */
    uint16_t place;   /* of the socket: a tag */
    uint32_t pid;     /* of the owner, */
    int32_t  handle;  /* and its descriptor; System V: the segment's id */
    uint32_t node;    /* part of the kernel's identity */
    uint64_t device;  /* System V: the namespace of its ids */
    uint64_t inode;
    uint64_t base;    /* address in the owner */
    uint64_t length;  /* bytes */
    uint64_t name;    /* of a listening socket of the owner; 0: it had none */
} uct_mm_packed_rkey_t;

static_assert(sizeof(uct_mm_packed_rkey_t) == 56, "layout of a remote key");

typedef struct {
    uct_mem_t              super;
    uct_mm_segment_t      *segment;
    uct_descriptor_offer_t offer; /* of the segment's descriptor */
} uct_mm_mem_t;

typedef struct {
    uct_rkey_t           super;
    uct_mm_packed_rkey_t packed;
    uct_mm_segment_t    *segment; /* NULL: not mapped yet */
    int                  fd;      /* of the question to the owner; -1: not asked */
    int                  is_lost; /* there is no way to map it */
} uct_mm_rkey_t;

static uct_mm_rkey_t *uct_mm_rkey(uct_rkey_t *rkey)
{
    return ucs_container_of(rkey, uct_mm_rkey_t, super);
}

/* ------------------------------------------------------------------ the owner's side */

ucs_status_t uct_mm_mem_alloc(uct_md_t *tl_md, void *address, size_t length, unsigned flags,
                              uct_mem_t **mem_p)
{
    uct_mm_md_t *md = uct_mm_md(tl_md);
    unsigned how    = UCT_MM_SEGMENT_LAZY;
    uct_mm_backing_list_t backings;
    ucs_status_t status;
    uct_mm_mem_t *mem;

    if ((length == 0) || (length > ucs_sys_memory_limit()) || (length > (SIZE_MAX / 2))) {
        ucs_error("cannot allocate %zu bytes", length);
        return (length == 0) ? UCS_ERR_INVALID_PARAM : UCS_ERR_NO_MEMORY;
    }
    if ((flags & UCT_MEM_ALLOC_FIXED) != 0) {
        if ((address == NULL) || (((uintptr_t)address % ucs_sys_page_size()) != 0)) {
            ucs_error("memory cannot be placed at %p", address);
            return UCS_ERR_INVALID_PARAM;
        }
        how |= UCT_MM_SEGMENT_FIXED;
    }

    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        ucs_error("no memory to describe %zu bytes", length);
        return UCS_ERR_NO_MEMORY;
    }

    backings         = md->backings;
    backings.hugetlb = UCS_NO; /* FIFO_HUGETLB speaks of rings */
    status           = uct_mm_segment_create(&backings, address, length, how, &mem->segment);
    if (status != UCS_OK) {
        ucs_sys_free(mem);
        return status;
    }

    mem->super.md      = tl_md;
    mem->super.address = mem->segment->address;
    mem->super.length  = mem->segment->length;
    mem->offer.domain  = mem->segment->device;
    mem->offer.id      = mem->segment->inode;
    mem->offer.length  = mem->segment->length;
    mem->offer.fd      = mem->segment->fd;
    uct_descriptor_offer(&mem->offer);
    *mem_p = &mem->super;
    return UCS_OK;
}

void uct_mm_mem_release(uct_mem_t *tl_mem)
{
    uct_mm_mem_t *mem = ucs_container_of(tl_mem, uct_mm_mem_t, super);

    uct_descriptor_withdraw(&mem->offer);
    uct_mm_segment_put(mem->segment);
    ucs_sys_free(mem);
}

size_t uct_mm_rkey_pack(uct_mem_t *tl_mem, void *buffer)
{
    const uct_mm_mem_t *mem         = ucs_container_of(tl_mem, uct_mm_mem_t, super);
    const uct_mm_segment_t *segment = mem->segment;
    uct_mm_packed_rkey_t packed;

    memset(&packed, 0, sizeof(packed));
    packed.version = UCT_MM_RKEY_VERSION;
    packed.backing = (uint8_t)segment->backing;
    packed.node    = uct_mm_md(tl_mem->md)->node;
    packed.pid     = (uint32_t)ucs_sys_getpid();
    packed.handle  = (segment->backing == UCT_MM_BACKING_SYSV) ? segment->shmid : segment->fd;
    packed.device  = segment->device;
    packed.inode   = segment->inode;
    packed.base    = (uintptr_t)tl_mem->address;
    packed.length  = tl_mem->length;

    uct_descriptor_where(tl_mem->md, tl_mem->uid, &packed.name, &packed.place);
    memcpy(buffer, &packed, sizeof(packed));
    return sizeof(packed);
}

/* ------------------------------------------------------------------ the user's side */

ucs_status_t uct_mm_rkey_unpack(uct_md_t *tl_md, const void *buffer, size_t length,
                                uct_rkey_t **rkey_p)
{
    const uct_mm_md_t *md = uct_mm_md(tl_md);
    uct_mm_packed_rkey_t packed;
    uct_mm_rkey_t *rkey;

    if (length != sizeof(packed)) {
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(&packed, buffer, sizeof(packed));
    if ((packed.version != UCT_MM_RKEY_VERSION) || (packed.length == 0) ||
        (packed.length > (UINT64_MAX - packed.base)) || (packed.pid > INT32_MAX) ||
        (packed.handle < 0)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((packed.node != md->node) ||
        !uct_mm_backing_list_has(&md->backings, (uct_mm_backing_t)packed.backing)) {
        return UCS_ERR_UNREACHABLE;
    }

    rkey = ucs_sys_calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        ucs_error("no memory for a remote key");
        return UCS_ERR_NO_MEMORY;
    }
    rkey->super.md = tl_md;
    rkey->packed   = packed;
    rkey->fd       = -1;
    *rkey_p        = &rkey->super;
    return UCS_OK;
}

void uct_mm_rkey_release(uct_rkey_t *tl_rkey)
{
    uct_mm_rkey_t *rkey = uct_mm_rkey(tl_rkey);

    if (rkey->segment != NULL) {
        uct_mm_segment_put(rkey->segment);
    }
    if (rkey->fd >= 0) {
        ucs_sys_close(rkey->fd);
    }
    ucs_sys_free(rkey);
}

/* The descriptor of a memfd by way of /proc, or -1. It is looked at before it is opened, since it
 * might be any file of any process by now, and afterwards: only a memfd has seals. */
static int uct_mm_rkey_open_proc(const uct_mm_rkey_t *rkey)
{
    char path[64];
    struct stat st;
    int place;
    int fd = -1;

    snprintf(path, sizeof(path), "/proc/%u/fd/%d", rkey->packed.pid, rkey->packed.handle);
    place = ucs_sys_open(path, O_PATH | O_CLOEXEC, 0);
    if (place < 0) {
        return -1;
    }
    if ((ucs_sys_fstat(place, &st) == 0) && S_ISREG(st.st_mode) &&
        (st.st_dev == rkey->packed.device) && (st.st_ino == rkey->packed.inode)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
        fd = ucs_sys_open(path, O_RDWR | O_CLOEXEC, 0);
    }
    ucs_sys_close(place);
    return fd;
}

static ucs_status_t uct_mm_rkey_attach(uct_mm_rkey_t *rkey, int fd)
{
    uct_mm_segment_t *segment;
    ucs_status_t status;

    status = uct_mm_segment_attach((uct_mm_backing_t)rkey->packed.backing, fd, rkey->packed.handle,
                                   rkey->packed.length, &segment);
    if (status != UCS_OK) {
        return status;
    }
    if ((segment->device != rkey->packed.device) || (segment->inode != rkey->packed.inode)) {
        uct_mm_segment_put(segment);
        return UCS_ERR_INVALID_PARAM;
    }
    rkey->segment = segment;
    return UCS_OK;
}

/* Comes nearer to a mapping; UCS_OK: it is there. */
static UCS_NOINLINE ucs_status_t uct_mm_rkey_map(uct_mm_rkey_t *rkey)
{
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    int fd              = -1;
    uint64_t length;

    if (rkey->is_lost) {
        return UCS_ERR_UNREACHABLE;
    }

    if (rkey->fd >= 0) {
        status = uct_descriptor_listen(&rkey->fd, &fd, &length);
        status = (status == UCS_OK) ? uct_mm_rkey_attach(rkey, fd) : status;
    } else if ((uct_mm_segment_find((uct_mm_backing_t)rkey->packed.backing, rkey->packed.device,
                                    rkey->packed.inode, &rkey->segment) == UCS_OK)) {
        status = UCS_OK;
    } else if (rkey->packed.backing == UCT_MM_BACKING_SYSV) {
        status = uct_mm_rkey_attach(rkey, -1);
    } else {
        if (rkey->packed.backing == UCT_MM_BACKING_MEMFD) {
            fd = uct_mm_rkey_open_proc(rkey);
        }
        if (fd >= 0) {
            status = uct_mm_rkey_attach(rkey, fd);
        } else {
            rkey->fd = uct_descriptor_ask(rkey->packed.name, rkey->packed.place,
                                          rkey->packed.device, rkey->packed.inode);
            status   = (rkey->fd < 0) ? UCS_ERR_UNREACHABLE : UCS_ERR_NO_RESOURCE;
        }
    }

    if ((status == UCS_OK) && (rkey->segment->length < rkey->packed.length)) {
        status = UCS_ERR_INVALID_PARAM;
    }
    if (ucs_unlikely((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE))) {
        ucs_debug("memory of process %u cannot be mapped: %s", rkey->packed.pid,
                  ucs_status_string(status));
        rkey->is_lost = 1;
        status        = UCS_ERR_UNREACHABLE;
    }
    return status;
}

ucs_status_t uct_mm_rkey_ptr(uct_rkey_t *tl_rkey, uint64_t remote_addr, size_t length, void **ptr_p)
{
    uct_mm_rkey_t *rkey   = uct_mm_rkey(tl_rkey);
    const uint64_t offset = remote_addr - rkey->packed.base;
    ucs_status_t status;

    if (ucs_unlikely((offset > rkey->packed.length) ||
                     (length > (rkey->packed.length - offset)))) {
        return UCS_ERR_OUT_OF_RANGE;
    }
    if (ucs_unlikely((rkey->segment == NULL) || rkey->is_lost)) {
        status = uct_mm_rkey_map(rkey);
        if (status != UCS_OK) {
            return status;
        }
    }
    *ptr_p = (uint8_t *)rkey->segment->address + offset;
    return UCS_OK;
}
