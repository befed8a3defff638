/* Halyard: loopback transport: memory, put and get.
 *
 * Put and get take any memory, since it is our own. Keys there are none: what this worker has
 * registered it finds in its own table.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/self/self.h>

#define UCS_LOG_COMPONENT "self"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

ucs_status_t uct_self_mem_alloc(uct_md_t *md, void *address, size_t length, unsigned flags,
                                uct_mem_t **mem_p)
{
    int fixed = (flags & UCT_MEM_ALLOC_FIXED) ? MAP_FIXED : 0;
    uct_mem_t *mem;
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

    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        ucs_error("no memory to describe %zu bytes", length);
        ucs_sys_munmap(ptr, length);
        return UCS_ERR_NO_MEMORY;
    }
    mem->md      = md;
    mem->address = ptr;
    mem->length  = length;
    *mem_p       = mem;
    return UCS_OK;
}

void uct_self_mem_release(uct_mem_t *mem)
{
    ucs_sys_munmap(mem->address, mem->length);
    ucs_sys_free(mem);
}

/* Source and destination may overlap. */
static ucs_status_t uct_self_copy(const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                                  int is_put)
{
    char *ptr = (char *)(uintptr_t)remote_addr;
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (iov[i].length != 0) {
            memmove(is_put ? ptr : iov[i].buffer, is_put ? iov[i].buffer : ptr, iov[i].length);
            ptr += iov[i].length;
        }
    }
    return UCS_OK;
}

ucs_status_t uct_self_put_zcopy(uct_ep_t *ep UCS_UNUSED, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                uct_completion_t *comp UCS_UNUSED)
{
    return uct_self_copy(iov, n, remote_addr, 1);
}

ucs_status_t uct_self_get_zcopy(uct_ep_t *ep UCS_UNUSED, const uct_iov_t *iov, unsigned n,
                                uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                uct_completion_t *comp UCS_UNUSED)
{
    return uct_self_copy(iov, n, remote_addr, 0);
}
