/* Halyard: placing memory on NUMA nodes, by libnuma.
 *
 * libnuma is opened with dlopen: it looks through /sys when it is loaded, which programs that never
 * place memory should not pay for.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/log.h>
#include <ucs/sys/library.h>
#include <ucs/sys/numa.h>
#include <ucs/sys/sys.h>
#ifdef HAVE_NUMA
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#endif

#ifdef HAVE_NUMA

#define UCS_NUMA_MASK_BITS  1024
#define UCS_NUMA_WORD_BITS  (8 * sizeof(unsigned long))
#define UCS_NUMA_MASK_WORDS (UCS_NUMA_MASK_BITS / UCS_NUMA_WORD_BITS)

/* The functions of libnuma that are used. */
typedef struct {
    __typeof__(&numa_available) available;
    __typeof__(&mbind)          mbind;
    __typeof__(&get_mempolicy)  get_mempolicy;
} ucs_numa_t;

static ucs_numa_t ucs_numa;
static int ucs_numa_has_all;
static pthread_once_t ucs_numa_once = PTHREAD_ONCE_INIT;

static void ucs_numa_init(void)
{
    static const ucs_library_function_t functions[] = {
        {"numa_available", offsetof(ucs_numa_t, available), 0},
        {"mbind", offsetof(ucs_numa_t, mbind), 0},
        {"get_mempolicy", offsetof(ucs_numa_t, get_mempolicy), 0}
    };
    char reason[256];

    if (ucs_library_open("libnuma.so.1", functions, ucs_array_size(functions), &ucs_numa, reason,
                         sizeof(reason)) == NULL) {
        ucs_debug("no NUMA binding: %s", reason);
    } else if (ucs_numa.available() < 0) {
        ucs_debug("no NUMA binding: the kernel does not support it");
    } else {
        ucs_numa_has_all = 1;
    }
}

static int ucs_numa_is_usable(void)
{
    pthread_once(&ucs_numa_once, ucs_numa_init);
    return ucs_numa_has_all;
}

/* What a failed call means to callers. */
static ucs_status_t ucs_numa_status(const char *call)
{
    if ((errno == EINVAL) || (errno == EFAULT)) {
        return UCS_ERR_INVALID_PARAM;
    }

    ucs_debug("%s failed: %m", call);
    return UCS_ERR_UNSUPPORTED;
}

/* The kernel takes one bit less than it is told of (mbind(2)), hence the + 1. */
static ucs_status_t
ucs_numa_set_policy(void *addr, size_t length, int mode, const unsigned long *mask)
{
    uintptr_t page  = ucs_sys_page_size();
    uintptr_t start = ucs_align_down((uintptr_t)addr, page);
    uintptr_t end   = ucs_align_up((uintptr_t)addr + length, page);

    if (ucs_fault_hit("mbind", EPERM) ||
        (ucs_numa.mbind((void *)start, end - start, mode, mask, UCS_NUMA_MASK_BITS + 1, 0) !=
         0)) {
        return ucs_numa_status("mbind()");
    }

    return UCS_OK;
}

ucs_status_t ucs_numa_bind(void *addr, size_t length, int node)
{
    unsigned long mask[UCS_NUMA_MASK_WORDS] = {0};

    if (!ucs_numa_is_usable()) {
        return UCS_ERR_UNSUPPORTED;
    }
    if ((node < 0) || (node >= UCS_NUMA_MASK_BITS)) {
        return UCS_ERR_INVALID_PARAM;
    }

    mask[(unsigned)node / UCS_NUMA_WORD_BITS] = 1ul << ((unsigned)node % UCS_NUMA_WORD_BITS);
    return ucs_numa_set_policy(addr, length, MPOL_PREFERRED, mask);
}

ucs_status_t ucs_numa_query(void *addr, int *node_p)
{
    int node = 0;

    if (!ucs_numa_is_usable()) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (ucs_numa.get_mempolicy(&node, NULL, 0, addr, MPOL_F_NODE | MPOL_F_ADDR) != 0) {
        return ucs_numa_status("get_mempolicy()");
    }

    *node_p = node;
    return UCS_OK;
}

#else

ucs_status_t ucs_numa_bind(void *addr UCS_UNUSED, size_t length UCS_UNUSED, int node UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucs_numa_query(void *addr UCS_UNUSED, int *node_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

#endif
