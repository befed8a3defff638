/* Halyard: stands in for what NVSHMEM's UCX transport looks for, so that it starts on any machine.
 *
 * As libgdrapi.so.2 it is GDRCopy, whose mappings are the addresses themselves: right for symmetric
 * memory of the host; that of a GPU nobody may touch by them. As libibverbs.so.1 it is a network
 * card: then NVSHMEM leaves atomics to UCX (ucp_atomic_post, ucp_atomic_op_nbx); without it they
 * are active messages, and the processor of the target touches the memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    unsigned long address;
} handle_t;

typedef struct {
    uint64_t address, length;
    uint32_t page_size;
    uint64_t cycles;
    uint32_t cycles_per_ms;
    unsigned is_mapped;
} info_t;

/* ---- GDRCopy 2.4 ---- */

void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 4;
}

int gdr_driver_get_version(void *gdr, int *major, int *minor)
{
    (void)gdr;
    gdr_runtime_get_version(major, minor);
    return 0;
}

void *gdr_open(void)
{
    static char gdr;

    return &gdr;
}

int gdr_close(void *gdr)
{
    (void)gdr;
    return 0;
}

int gdr_pin_buffer(void *gdr, unsigned long address, size_t size, uint64_t token, uint32_t space,
                   handle_t *handle)
{
    (void)gdr, (void)size, (void)token, (void)space;
    handle->address = address;
    return 0;
}

int gdr_unpin_buffer(void *gdr, handle_t handle)
{
    (void)gdr, (void)handle;
    return 0;
}

int gdr_map(void *gdr, handle_t handle, void **address_p, size_t size)
{
    (void)gdr, (void)size;
    *address_p = (void *)handle.address;
    return 0;
}

int gdr_unmap(void *gdr, handle_t handle, void *address, size_t size)
{
    (void)gdr, (void)handle, (void)address, (void)size;
    return 0;
}

int gdr_get_info(void *gdr, handle_t handle, info_t *info)
{
    (void)gdr;
    memset(info, 0, sizeof(*info));
    info->address   = handle.address;
    info->length    = 1ull << 40;
    info->page_size = 65536;
    info->is_mapped = 1;
    return 0;
}

/* NVSHMEM reads only to have waited for what was written; nothing is written by a card here. */
int gdr_copy_from_mapping(handle_t handle, void *to, const void *from, size_t size)
{
    (void)handle, (void)to, (void)from, (void)size;
    return 0;
}

int gdr_copy_to_mapping(handle_t handle, void *to, const void *from, size_t size)
{
    (void)handle;
    memcpy(to, from, size);
    return 0;
}

/* ---- a network card ---- */

void **ibv_get_device_list(int *count_p)
{
    static void *list[2] = {list, NULL};

    if (count_p != NULL) {
        *count_p = 1;
    }
    return list;
}

void ibv_free_device_list(void **list)
{
    (void)list;
}
