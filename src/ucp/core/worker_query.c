/* Halyard: worker: its address and what it tells of itself.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/counters.h>
#include <ucp/core/worker.h>
#include <ucp/core/worker_memory.h>
#include <ucp/wire/address.h>
#include <ucp/wireup/door.h>
#include <ucp/wireup/net.h>
#include <ucs/debug/report.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCP_MAX_INFO_STRING 128
/* Clients copy this much from the address of an address, whatever its length. */
#define UCP_ADDRESS_READABLE 4096

ucs_status_t ucp_worker_pack_address(ucp_worker_t *worker, unsigned what,
                                     ucp_address_t **address_p, size_t *length_p)
{
    ucp_address_info_t info = {.node_id = worker->context->node_id};
    void *buffer;
    unsigned i;

    memcpy(info.uid, worker->uid, UCT_UID_LEN);
    ucp_worker_lock(worker); /* another thread may open the network just now */
    for (i = 0; i < worker->context->num_tls; ++i) {
        const ucp_tl_resource_t *tl = &worker->context->tls[i];
        const int is_net            = (tl->tl->kind == UCT_TL_KIND_NET);

        /* A worker knows its own address: the way to itself is not in it. */
        if ((worker->tls[i].iface == NULL) || (info.num_entries == UCP_ADDRESS_ENTRIES) ||
            (tl->tl->kind == UCT_TL_KIND_SELF) || (tl->tl->iface.get_address == NULL) ||
            !(what & (is_net ? UCP_ADDRESS_NET : UCP_ADDRESS_NEAR))) {
            continue;
        }
        info.entries[info.num_entries++] = (ucp_address_entry_t){
            tl->wire_id, (uint8_t)worker->tls[i].addr_length, worker->tls[i].addr};
        if (is_net) {
            what &= ~(unsigned)UCP_ADDRESS_DOOR;
        }
    }
    if ((what & UCP_ADDRESS_DOOR) && (worker->door != NULL) &&
        (info.num_entries < UCP_ADDRESS_ENTRIES)) {
        info.entries[info.num_entries++] = ucp_door_entry(worker->door);
    }
    ucp_worker_unlock(worker);

    buffer = ucs_sys_calloc(1, UCP_ADDRESS_READABLE);
    if (buffer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    *length_p  = ucp_address_pack(&info, buffer);
    *address_p = buffer;
    return UCS_OK;
}

/* An address that leads from other nodes, where it is to. flags: UCP_WORKER_ADDRESS_FLAG_...; where
 * it is not to, there is one address for all: Open MPI asks for one for other nodes in any job. */
static ucs_status_t ucp_worker_net_address(ucp_worker_t *worker, uint32_t flags,
                                           ucp_address_t **address_p, size_t *length_p)
{
    const ucp_net_need_t need = ucp_net_need(worker);
    unsigned what             = UCP_ADDRESS_NET | UCP_ADDRESS_DOOR;

    if ((need == UCP_NET_NEEDED) || ((need == UCP_NET_UNKNOWN) && !ucp_door_open(worker))) {
        (void)ucp_net_open(worker);
    }
    if ((need == UCP_NET_UNWANTED) || !(flags & UCP_WORKER_ADDRESS_FLAG_NET_ONLY)) {
        what |= UCP_ADDRESS_NEAR;
    }
    return ucp_worker_pack_address(worker, what, address_p, length_p);
}

ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr)
{
    uint32_t flags =
        (attr->field_mask & UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS) ? attr->address_flags : 0;

    if (attr->field_mask & UCP_WORKER_ATTR_FIELD_THREAD_MODE) {
        attr->thread_mode = worker->thread_mode;
    }
    if (attr->field_mask & UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER) {
        ucp_worker_lock(worker); /* another thread may open the network just now */
        attr->max_am_header = worker->am_header_max;
        ucp_worker_unlock(worker);
    }
    if (attr->field_mask & UCP_WORKER_ATTR_FIELD_NAME) {
        memcpy(attr->name, worker->name, sizeof(attr->name));
    }
    if (attr->field_mask & UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING) {
        attr->max_debug_string = UCP_MAX_INFO_STRING;
    }
    if (attr->field_mask & UCP_WORKER_ATTR_FIELD_ADDRESS) {
        return ucp_worker_net_address(worker, flags, &attr->address, &attr->address_length);
    }
    return UCS_OK;
}

ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **address_p,
                                    size_t *address_length_p)
{
    return ucp_worker_net_address(worker, 0, address_p, address_length_p);
}

void ucp_worker_release_address(ucp_worker_h worker UCS_UNUSED, ucp_address_t *address)
{
    ucs_sys_free(address);
}

ucs_status_t ucp_worker_address_query(ucp_address_t *address, ucp_worker_address_attr_t *attr)
{
    ucp_address_info_t info;
    ucs_status_t status = ucp_address_unpack(address, UCP_ADDRESS_MAX, &info);

    if (status != UCS_OK) {
        return status;
    }
    if (attr->field_mask & UCP_WORKER_ADDRESS_ATTR_FIELD_UID) {
        attr->worker_uid = ucp_uid_id(info.uid);
    }
    return UCS_OK;
}

void ucp_worker_print_info(ucp_worker_h worker, FILE *stream)
{
    ucs_report_t storage, *report;
    ucp_address_t *address;
    const uct_iface_t *iface;
    ucp_worker_memory_t memory;
    size_t length, shared, own;
    unsigned i;

    ucp_worker_lock(worker);
    report = ucs_report_begin(stream, &storage);
    ucs_report_row(report, "name", "#\n# UCP worker '%s'\n#\n", worker->name);
    if (ucp_worker_pack_address(worker, UCP_ADDRESS_NEAR | UCP_ADDRESS_NET | UCP_ADDRESS_DOOR,
                                &address, &length) == UCS_OK) {
        ucs_report_row(report, "address_bytes", "#                 address: %zu bytes\n", length);
        ucs_sys_free(address);
    }
    ucp_worker_memory(worker, &memory);
    ucs_report_open(report, "transports", '[');
    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        if ((worker->context->tls[i].rail > 0) && (iface == NULL)) {
            continue; /* the first one says which devices there are */
        }
        ucs_report_open(report, NULL, '{');
        ucs_report_row(report, "transport -", "#                 transport %s: %s\n",
                       worker->context->tls[i].name,
                       (iface != NULL) ? "open" : worker->tls[i].reason);
        ucs_report_data(report, "open? reason", "%d%s", iface != NULL,
                        (iface != NULL) ? "" : worker->tls[i].reason);
        if (iface != NULL) {
            iface->tl->iface.memory_used(worker->tls[i].iface, &shared, &own);
            ucs_report_row(report, "shared_bytes own_bytes",
                           "#                     %zu bytes shared, %zu of its own\n", shared, own);
            memory.shared += shared;
            memory.own    += own;
        }
        ucs_report_open(report, "devices", '[');
        uct_report_choice(report, (iface != NULL) ? iface->choice : NULL, "#                     ");
        ucs_report_close(report);
        ucs_report_close(report);
    }
    ucs_report_close(report);
    ucs_report_row(report, "shared_bytes own_bytes messages_bytes requests_bytes device_bytes",
                   "#                 memory: %zu bytes shared, %zu of its own (for messages %zu, "
                   "requests %zu), %zu of devices\n", memory.shared, memory.own, memory.messages,
                   memory.requests, memory.device);
    ucs_report_text(report, "#\n");
    ucs_counters_report(report, &ucp_counters_class, worker->counters);
    ucs_report_end(report, stream);
    ucp_worker_unlock(worker);
}
