/* Halyard: the memory that a worker holds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/device.h>
#include <ucp/core/ep.h>
#include <ucp/core/peer.h>
#include <ucp/core/worker_memory.h>
#include <ucp/ops/am.h>
#include <ucp/ops/kept.h>

/* Of data that are in none of the worker's pools. */
static size_t ucp_kept_memory(const ucs_list_link_t *list)
{
    size_t size = 0;
    const ucp_kept_t *kept;

    ucs_list_for_each(kept, list, list) {
        size += kept->is_pooled ? 0 : ucp_kept_size(kept);
    }
    return size;
}

static size_t ucp_messages_memory(const ucp_worker_t *worker)
{
    size_t size = ucp_kept_memory(&worker->kept);
    const ucp_ep_t *ep;
    unsigned i;

    for (i = 0; i < UCP_DATA_POOLS; ++i) {
        size += ucs_mpool_memory(&worker->data_pools[i]);
    }
    ucs_list_for_each(ep, &worker->eps, list) {
        size += ucp_kept_memory(&ep->stream.chunks);
    }
    return size;
}

/* Tables, endpoints, and the peers behind them. */
static size_t ucp_tables_memory(const ucp_worker_t *worker)
{
    const ucp_tag_match_t *tm = &worker->tag_match;
    const ucs_ptr_map_t *ids  = &worker->ids;

    return sizeof(*worker) + (2 * ucp_tag_match_num_buckets(tm) * sizeof(*tm->expected)) +
           ucs_hash_memory(&worker->peers) + (ids->num_entries * sizeof(*ids->entries)) +
           (worker->num_am_handlers * sizeof(ucp_am_handler_t)) +
           ((ucs_list_length(&worker->eps) + worker->num_closed_eps) * sizeof(ucp_ep_t)) +
           (ucs_hash_size(&worker->peers) * sizeof(ucp_peer_t));
}

static void ucp_device_memory(const ucp_device_t *device, ucp_worker_memory_t *memory)
{
    const ucp_device_pool_t *pool;

    for (pool = device->pools; pool != NULL; pool = pool->next) {
        *((pool->device < 0) ? &memory->own : &memory->device) += pool->mem->length;
    }
    memory->own += (device->read_window.mem != NULL) ? device->read_window.mem->length : 0;
    memory->own += (device->write_window.mem != NULL) ? device->write_window.mem->length : 0;
}

void ucp_worker_memory(const ucp_worker_t *worker, ucp_worker_memory_t *memory)
{
    *memory          = (ucp_worker_memory_t){0};
    memory->messages = ucp_messages_memory(worker);
    memory->requests = ucs_mpool_memory(&worker->requests) + ucs_mpool_memory(&worker->controls);
    memory->own      = ucp_tables_memory(worker) + memory->messages + memory->requests;
    ucp_device_memory(&worker->device, memory);
}
