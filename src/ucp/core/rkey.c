/* Halyard: remote keys.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/mem.h>
#include <ucp/core/rkey.h>
#include <ucs/debug/log.h>
#include <string.h>

#define UCP_RKEY_VERSION 1
#define UCP_RKEY_HEADER  28

const uint64_t ucp_rkey_features[UCP_RKEY_CLASSES] = {
    [UCP_RKEY_RMA]   = UCP_FEATURE_RMA,
    [UCP_RKEY_AMO32] = UCP_FEATURE_AMO32,
    [UCP_RKEY_AMO64] = UCP_FEATURE_AMO64
};

/* ---- packing ---- */

static size_t ucp_rkey_pack_bytes(const ucp_mem_t *mem, uint8_t *buffer)
{
    uint64_t fields[3] = {mem->id, (uintptr_t)mem->address, mem->length};
    size_t total       = UCP_RKEY_HEADER;
    uint8_t entry[UCT_RKEY_MAX];
    unsigned i;
    size_t length;

    for (i = 0; i < mem->context->num_tls; ++i) {
        const ucp_tl_resource_t *tl = &mem->context->tls[i];

        if ((mem->tls[i] == NULL) || (tl->tl->md.rkey_pack == NULL)) {
            continue;
        }
        length = tl->tl->md.rkey_pack(mem->tls[i], entry);
        if (length == 0) {
            continue;
        }
        if (total + UCP_RKEY_ENTRY + length > UCP_RKEY_MAX) {
            break; /* the others will do */
        }
        memcpy(buffer + total, &tl->wire_id, sizeof(tl->wire_id));
        buffer[total + 2] = (uint8_t)length;
        memcpy(buffer + total + UCP_RKEY_ENTRY, entry, length);
        total += UCP_RKEY_ENTRY + length;
    }
    buffer[0] = UCP_RKEY_VERSION;
    buffer[1] = (uint8_t)total;
    buffer[2] = (uint8_t)mem->type;
    buffer[3] = (uint8_t)(~mem->access & (UCP_MEM_READ | UCP_MEM_WRITE));
    memcpy(buffer + 4, fields, sizeof(fields));
    return total;
}

ucs_status_t ucp_memh_pack(ucp_mem_h memh, const ucp_memh_pack_params_t *params, void **buffer_p,
                           size_t *buffer_size_p)
{
    uint8_t *buffer;

    if ((params->field_mask & UCP_MEMH_PACK_PARAM_FIELD_FLAGS) &&
        (params->flags & UCP_MEMH_PACK_FLAG_EXPORT)) {
        return UCS_ERR_UNSUPPORTED;
    }
    buffer = ucs_sys_malloc(UCP_RKEY_MAX);
    if (buffer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    *buffer_size_p = ucp_rkey_pack_bytes(memh, buffer);
    *buffer_p      = buffer;
    if (!atomic_exchange_explicit(&memh->is_packed, 1, memory_order_relaxed) &&
        (memh->type == UCS_MEMORY_TYPE_HOST)) {
        ucp_mem_count_shared(1);
    }
    return UCS_OK;
}

void ucp_memh_buffer_release(void *buffer,
                             const ucp_memh_buffer_release_params_t *params UCS_UNUSED)
{
    ucs_sys_free(buffer);
}

ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h memh, void **rkey_buffer_p,
                           size_t *size_p)
{
    ucp_memh_pack_params_t params = {0};

    return (memh->context == context) ? ucp_memh_pack(memh, &params, rkey_buffer_p, size_p) :
           UCS_ERR_INVALID_PARAM;
}

void ucp_rkey_buffer_release(void *rkey_buffer)
{
    ucs_sys_free(rkey_buffer);
}

/* ---- unpacking ---- */

static void ucp_rkey_set_mapped(ucp_rkey_t *rkey, void *ptr)
{
    unsigned kind;

    rkey->ptr = ptr;
    for (kind = 0; (kind < UCP_RKEY_CLASSES) && (rkey->forbidden == 0); ++kind) {
        if (rkey->worker->context->features & ucp_rkey_features[kind]) {
            atomic_store_explicit(&rkey->mapped[kind], rkey->length, memory_order_release); /* R1 */
        }
    }
}

void ucp_rkey_map(ucp_rkey_t *rkey)
{
    ucs_status_t status;
    void *ptr;

    if ((rkey->uct == NULL) || (rkey->ptr != NULL)) {
        return;
    }
    status = rkey->uct->md->tl->md.rkey_ptr(rkey->uct, rkey->base, rkey->length, &ptr);
    if (status == UCS_OK) {
        ucp_rkey_set_mapped(rkey, ptr);
        rkey->is_plain = 1;
        ucp_mem_count_shared(1);
    } else if (status != UCS_ERR_NO_RESOURCE) {
        ucs_debug("memory of a peer cannot be mapped: %s", ucs_status_string(status));
        rkey->uct->md->tl->md.rkey_release(rkey->uct);
        rkey->uct = NULL;
    }
}

const void *ucp_rkey_net(const ucp_rkey_t *rkey, unsigned i, size_t *length_p)
{
    const uint8_t *entry;

    for (entry = rkey->net; entry < rkey->net + rkey->net_length;
         entry += UCP_RKEY_ENTRY + entry[2]) {
        if (memcmp(entry, &rkey->worker->context->tls[i].wire_id, sizeof(uint16_t)) == 0) {
            *length_p = entry[2];
            return entry + UCP_RKEY_ENTRY;
        }
    }
    return NULL;
}

static ucs_status_t ucp_rkey_keep_net(ucp_rkey_t *rkey, const uint8_t *entry)
{
    const size_t length = UCP_RKEY_ENTRY + entry[2];

    if (rkey->net == NULL) {
        rkey->net = ucs_sys_malloc(UCP_RKEY_MAX); /* of all entries together */
    }
    if (rkey->net == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(rkey->net + rkey->net_length, entry, length);
    rkey->net_length += length;
    return UCS_OK;
}

/* A transport's part of a key: the first that we have too and that can map is taken; what the
 * DEVICE lane copies by; and what a network reads and writes by. */
static ucs_status_t ucp_rkey_unpack_entry(ucp_context_t *context, ucp_rkey_t *rkey,
                                          const uint8_t *entry)
{
    uct_rkey_t **slot   = rkey->is_device ? &rkey->device : &rkey->uct;
    ucs_status_t status = UCS_OK;
    uint16_t wire_id;
    unsigned i;

    memcpy(&wire_id, entry, sizeof(wire_id));
    for (i = 0; i < context->num_tls; ++i) {
        const ucp_tl_resource_t *tl = &context->tls[i];

        if (tl->wire_id != wire_id) {
            continue;
        }
        if (tl->tl->kind == UCT_TL_KIND_NET) {
            return ucp_rkey_keep_net(rkey, entry);
        }
        if (*slot != NULL) {
            continue;
        }
        if (rkey->is_device ? (tl->tl->kind == UCT_TL_KIND_DEVICE) &&
                              (tl->tl->md.rkey_unpack != NULL) :
                              (tl->tl->md.rkey_ptr != NULL)) {
            status = tl->tl->md.rkey_unpack(tl->md, entry + UCP_RKEY_ENTRY, entry[2], slot);
        }
    }
    return (status == UCS_ERR_UNREACHABLE) ? UCS_OK : status;
}

static ucs_status_t ucp_rkey_unpack_bytes(ucp_context_t *context, ucp_rkey_t *rkey,
                                          const uint8_t *bytes)
{
    size_t total  = bytes[1];
    size_t offset = UCP_RKEY_HEADER;
    ucs_status_t status;
    uint64_t fields[3];

    if ((bytes[0] != UCP_RKEY_VERSION) || (total < UCP_RKEY_HEADER) ||
        (bytes[2] >= UCS_MEMORY_TYPE_LAST) || (bytes[3] > (UCP_MEM_READ | UCP_MEM_WRITE))) {
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(fields, bytes + 4, sizeof(fields));
    rkey->is_device = (bytes[2] != UCS_MEMORY_TYPE_HOST);
    rkey->forbidden = bytes[3];
    rkey->mem_id    = fields[0];
    rkey->base      = fields[1];
    rkey->length    = fields[2];
    if (rkey->length > UINT64_MAX - rkey->base) {
        return UCS_ERR_INVALID_PARAM;
    }
    while (offset < total) {
        if ((total - offset < UCP_RKEY_ENTRY) ||
            (total - offset - UCP_RKEY_ENTRY < bytes[offset + 2])) {
            return UCS_ERR_INVALID_PARAM;
        }
        status = ucp_rkey_unpack_entry(context, rkey, bytes + offset);
        if (status != UCS_OK) {
            return status;
        }
        offset += UCP_RKEY_ENTRY + bytes[offset + 2];
    }
    return UCS_OK;
}

/* Our own memory is reached as it is, if the key names a registration of ours. */
static ucs_status_t ucp_rkey_set_own(ucp_context_t *context, ucp_rkey_t *rkey)
{
    const ucp_mem_t *mem = ucp_mem_hold(context, rkey->mem_id, rkey->base, rkey->length, 0);

    if (mem == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    rkey->is_device = (mem->type != UCS_MEMORY_TYPE_HOST);
    ucp_mem_drop(context);
    if (!rkey->is_device) {
        ucp_rkey_set_mapped(rkey, (void *)(uintptr_t)rkey->base);
    }
    return UCS_OK;
}

ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void *rkey_buffer, ucp_rkey_h *rkey_p)
{
    ucp_worker_t *worker = ep->worker;
    ucs_status_t status;
    ucp_rkey_t *rkey;

    rkey = ucs_sys_calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    ucp_worker_lock(worker);
    rkey->owner  = ucp_uid_id(ep->peer->real_uid);
    rkey->worker = worker;
    status       = ucp_rkey_unpack_bytes(worker->context, rkey, rkey_buffer);
    if ((status == UCS_OK) && (rkey->owner == ucp_uid_id(worker->uid))) {
        status = ucp_rkey_set_own(worker->context, rkey);
    }
    ucp_worker_unlock(worker);
    if (status != UCS_OK) {
        ucp_rkey_destroy(rkey);
        return status;
    }
    *rkey_p = rkey;
    return UCS_OK;
}

void ucp_rkey_destroy(ucp_rkey_h rkey)
{
    ucp_mem_count_shared(-(int)rkey->is_plain);
    if (rkey->uct != NULL) {
        rkey->uct->md->tl->md.rkey_release(rkey->uct);
    }
    if (rkey->device != NULL) {
        rkey->device->md->tl->md.rkey_release(rkey->device);
    }
    ucs_sys_free(rkey->net);
    ucs_sys_free(rkey);
}

ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey, uint64_t raddr, void **addr_p)
{
    char *ptr;

    ucp_worker_lock(rkey->worker);
    ucp_rkey_map(rkey);
    ptr = rkey->ptr;
    ucp_worker_unlock(rkey->worker);
    if ((ptr == NULL) || !ucp_rkey_covers(rkey, raddr, 1)) {
        return UCS_ERR_UNREACHABLE;
    }
    *addr_p = ptr + (raddr - rkey->base);
    return UCS_OK;
}

ucs_status_t ucp_rkey_compare(ucp_worker_h worker UCS_UNUSED, ucp_rkey_h rkey1, ucp_rkey_h rkey2,
                              const ucp_rkey_compare_params_t *params, int *result)
{
    const uint64_t fields1[] = {rkey1->owner, rkey1->mem_id, rkey1->base, rkey1->length};
    const uint64_t fields2[] = {rkey2->owner, rkey2->mem_id, rkey2->base, rkey2->length};

    if (params->field_mask != 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    *result = memcmp(fields1, fields2, sizeof(fields1));
    return UCS_OK;
}
