/* Halyard: simulator: the node's memory: what transports allocate, register and map.
 *
 * Memory lives until the end of the run, as mapped memory lives for as long as somebody maps it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <ucs/sys/sys.h>

#include <stdlib.h>
#include <string.h>

#define SIM_MEMORIES_MAX 8192
#define SIM_KEY_MAGIC    0x6b6d6973u

typedef struct {
    uct_mem_t super;
    uint32_t  index;
} sim_mem_t;

static struct {
    char  *block;   /* where it was allocated, else NULL */
    char  *address;
    size_t length;
    int    is_released;
} sim_memories[SIM_MEMORIES_MAX];
static uint32_t sim_num_memories;

static ucs_status_t sim_memory_add(uct_md_t *md, char *block, char *address, size_t length,
                                   uct_mem_t **mem_p)
{
    sim_mem_t *mem = ucs_sys_calloc(1, sizeof(*mem));

    if ((mem == NULL) || (sim_num_memories == SIM_MEMORIES_MAX)) {
        ucs_sys_free(mem);
        free(block);
        return UCS_ERR_NO_MEMORY;
    }
    mem->super.md                          = md;
    mem->super.address                     = address;
    mem->super.length                      = length;
    mem->index                             = sim_num_memories;
    sim_memories[sim_num_memories].block   = block;
    sim_memories[sim_num_memories].address = address;
    sim_memories[sim_num_memories].length  = length;
    ++sim_num_memories;
    *mem_p = &mem->super;
    return UCS_OK;
}

static ucs_status_t sim_memory_alloc(uct_md_t *md, void *address UCS_UNUSED, size_t length,
                                     unsigned flags, uct_mem_t **mem_p)
{
    char *block;

    if (flags & UCT_MEM_ALLOC_FIXED) {
        return UCS_ERR_UNSUPPORTED;
    }
    block = calloc(1, length);
    if (block == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    return sim_memory_add(md, block, block, length, mem_p);
}

static ucs_status_t sim_memory_reg(uct_md_t *md, void *address, size_t length,
                                   const uct_mem_info_t *info UCS_UNUSED, uct_mem_t **mem_p)
{
    if (sim_faults_on && sim_chance(sim_plan.fail_reg)) {
        sim_event("registration fails", length, 0, 0);
        return UCS_ERR_IO_ERROR;
    }
    return sim_memory_add(md, NULL, address, length, mem_p);
}

static void sim_memory_release(uct_mem_t *uct_mem)
{
    sim_mem_t *mem = ucs_container_of(uct_mem, sim_mem_t, super);

    sim_memories[mem->index].is_released = 1;
    ucs_sys_free(mem);
}

static size_t sim_memory_pack(uct_mem_t *uct_mem, void *buffer)
{
    return sim_number_pack(buffer, ucs_container_of(uct_mem, sim_mem_t, super)->index,
                           SIM_KEY_MAGIC);
}

static ucs_status_t sim_memory_unpack(uct_md_t *md, const void *buffer, size_t length,
                                      uct_rkey_t **rkey_p)
{
    return sim_rkey_unpack(md, buffer, length, SIM_KEY_MAGIC, sim_num_memories, rkey_p);
}

static ucs_status_t sim_memory_map(uct_rkey_t *rkey, uint64_t remote, size_t length, void **ptr_p)
{
    uint32_t index  = ucs_container_of(rkey, sim_rkey_t, super)->index;
    uint64_t offset = remote - (uintptr_t)sim_memories[index].address;

    if (sim_faults_on && sim_chance(sim_plan.slow_map)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (sim_memories[index].is_released || (sim_faults_on && sim_chance(sim_plan.refuse_map))) {
        sim_event("map refused", index, 0, 0);
        return UCS_ERR_UNREACHABLE;
    }
    if ((offset > sim_memories[index].length) ||
        (length > sim_memories[index].length - offset)) {
        return UCS_ERR_OUT_OF_RANGE;
    }
    sim_event("map", index, length, 0);
    *ptr_p = sim_memories[index].address + offset;
    return UCS_OK;
}

void sim_memory_prepare(uct_tl_t *tl, int can_alloc, int can_reg, int can_map)
{
    tl->md.alloc   = can_alloc ? sim_memory_alloc : NULL;
    tl->md.reg     = can_reg ? sim_memory_reg : NULL;
    tl->md.release = sim_memory_release;
    if (can_map) {
        tl->md.rkey_pack    = sim_memory_pack;
        tl->md.rkey_unpack  = sim_memory_unpack;
        tl->md.rkey_ptr     = sim_memory_map;
        tl->md.rkey_release = sim_rkey_release;
    }
}

void sim_memory_reset(void)
{
    while (sim_num_memories > 0) {
        free(sim_memories[--sim_num_memories].block);
        memset(&sim_memories[sim_num_memories], 0, sizeof(sim_memories[0]));
    }
}
