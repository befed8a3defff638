/* Halyard: loopback transport: memory, remote keys, put and get.
 *
 * A remote key says which range it opens; every access is checked against it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/self/self.h>

#define UCS_LOG_COMPONENT "self"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

/* On the wire of a remote key: little endian. */
typedef struct {
    uint64_t token;
    uint64_t address;
    uint64_t length;
} uct_self_packed_rkey_t;

static_assert(sizeof(uct_self_packed_rkey_t) == UCT_SELF_RKEY_LEN, "layout of a remote key");

ucs_status_t uct_self_md_open(uct_md_t *md)
{
    uct_self_md_t *self_md = ucs_container_of(md, uct_self_md_t, super);

    self_md->token = ucs_sys_random64();
    return UCS_OK;
}

static ucs_status_t uct_self_mem_create(uct_md_t *md, void *address, size_t length, int is_mapped,
                                        uct_mem_t **mem_p)
{
    uct_self_mem_t *mem = ucs_sys_malloc(sizeof(*mem));

    if (mem == NULL) {
        ucs_error("no memory to register %zu bytes", length);
        return UCS_ERR_NO_MEMORY;
    }

    mem->super.md      = md;
    mem->super.address = address;
    mem->super.length  = length;
    mem->is_mapped     = is_mapped;
    *mem_p             = &mem->super;
    return UCS_OK;
}

ucs_status_t uct_self_mem_alloc(uct_md_t *md, void *address, size_t length, unsigned flags,
                                uct_mem_t **mem_p)
{
    int fixed = (flags & UCT_MEM_ALLOC_FIXED) ? MAP_FIXED : 0;
    ucs_status_t status;
    void *ptr;

    if ((length == 0) || (length > (SIZE_MAX / 2))) {
        return UCS_ERR_INVALID_PARAM;
    }

    length = ucs_align_up(length, ucs_sys_page_size());
    ptr    = ucs_sys_mmap(address, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    if (ptr == MAP_FAILED) {
        ucs_error("failed to map %zu bytes: %m", length);
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_self_mem_create(md, ptr, length, 1, mem_p);
    if (status != UCS_OK) {
        ucs_sys_munmap(ptr, length);
    }
    return status;
}

ucs_status_t uct_self_mem_reg(uct_md_t *md, void *address, size_t length, uct_mem_t **mem_p)
{
    return uct_self_mem_create(md, address, length, 0, mem_p);
}

void uct_self_mem_release(uct_mem_t *mem)
{
    uct_self_mem_t *self_mem = ucs_container_of(mem, uct_self_mem_t, super);

    if (self_mem->is_mapped) {
        ucs_sys_munmap(mem->address, mem->length);
    }
    ucs_sys_free(self_mem);
}

size_t uct_self_rkey_pack(uct_mem_t *mem, void *buffer)
{
    uct_self_md_t *md             = ucs_container_of(mem->md, uct_self_md_t, super);
    uct_self_packed_rkey_t packed = {md->token, (uintptr_t)mem->address, mem->length};

    memcpy(buffer, &packed, sizeof(packed));
    return sizeof(packed);
}

ucs_status_t uct_self_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                  uct_rkey_t **rkey_p)
{
    uct_self_md_t *self_md = ucs_container_of(md, uct_self_md_t, super);
    uct_self_packed_rkey_t packed;
    uct_self_rkey_t *rkey;

    if (length != sizeof(packed)) {
        return UCS_ERR_INVALID_PARAM;
    }

    memcpy(&packed, buffer, sizeof(packed));
    if (packed.token != self_md->token) {
        return UCS_ERR_UNREACHABLE;
    }
    if (packed.length > (UINT64_MAX - packed.address)) {
        return UCS_ERR_INVALID_PARAM;
    }

    rkey = ucs_sys_malloc(sizeof(*rkey));
    if (rkey == NULL) {
        ucs_error("no memory for a remote key");
        return UCS_ERR_NO_MEMORY;
    }

    rkey->super.md = md;
    rkey->address  = packed.address;
    rkey->length   = packed.length;
    *rkey_p        = &rkey->super;
    return UCS_OK;
}

void uct_self_rkey_release(uct_rkey_t *rkey)
{
    ucs_sys_free(ucs_container_of(rkey, uct_self_rkey_t, super));
}

ucs_status_t uct_self_rkey_ptr(uct_rkey_t *rkey, uint64_t remote_addr, size_t length, void **ptr_p)
{
    uct_self_rkey_t *self_rkey = ucs_container_of(rkey, uct_self_rkey_t, super);
    uint64_t offset            = remote_addr - self_rkey->address; /* huge if it lies before */

    if ((offset > self_rkey->length) || (length > (self_rkey->length - offset))) {
        return UCS_ERR_OUT_OF_RANGE;
    }
    *ptr_p = (void *)(uintptr_t)remote_addr;
    return UCS_OK;
}

/* ------------------------------------------------------------------ operations */

/* Copy between the entries and a range of the key; source and destination may overlap. */
static ucs_status_t uct_self_copy(const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                                  uct_rkey_t *rkey, int is_put)
{
    size_t total = 0;
    ucs_status_t status;
    unsigned i;
    void *ptr;

    for (i = 0; i < n; ++i) {
        if (__builtin_add_overflow(total, iov[i].length, &total)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }

    if (rkey == NULL) {
        ptr = (void *)(uintptr_t)remote_addr; /* any memory: it is our own */
    } else {
        status = uct_self_rkey_ptr(rkey, remote_addr, total, &ptr);
        if (status != UCS_OK) {
            return status;
        }
    }

    for (i = 0; i < n; ++i) {
        if (iov[i].length != 0) {
            memmove(is_put ? ptr : iov[i].buffer, is_put ? iov[i].buffer : ptr, iov[i].length);
            ptr = (char *)ptr + iov[i].length;
        }
    }
    return UCS_OK;
}

ucs_status_t uct_self_put_zcopy(uct_ep_t *ep UCS_UNUSED, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey,
                                uct_completion_t *comp UCS_UNUSED)
{
    return uct_self_copy(iov, n, remote_addr, rkey, 1);
}

ucs_status_t uct_self_get_zcopy(uct_ep_t *ep UCS_UNUSED, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey,
                                uct_completion_t *comp UCS_UNUSED)
{
    return uct_self_copy(iov, n, remote_addr, rkey, 0);
}
