/* Halyard: worker addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/wire/address.h>
#include <ucp/wire/wire.h>
#include <string.h>

#define UCP_ADDRESS_HEADER (4 + UCT_UID_LEN + 8)
#define UCP_ADDRESS_ENTRY  3

uint16_t ucp_address_wire_id(const char *tl_name)
{
    uint32_t hash = 2166136261u; /* FNV-1a, folded */

    for (; *tl_name != '\0'; ++tl_name) {
        hash = (hash ^ (uint8_t)*tl_name) * 16777619u;
    }
    return (uint16_t)(hash ^ (hash >> 16));
}

const ucp_address_entry_t *ucp_address_find(const ucp_address_info_t *info, uint16_t wire_id)
{
    unsigned i;

    for (i = 0; i < info->num_entries; ++i) {
        if (info->entries[i].wire_id == wire_id) {
            return &info->entries[i];
        }
    }
    return NULL;
}

size_t ucp_address_pack(const ucp_address_info_t *info, void *buffer)
{
    size_t total = UCP_ADDRESS_HEADER;
    uint8_t *out = buffer;
    uint16_t total16;
    unsigned i;

    for (i = 0; i < info->num_entries; ++i) {
        total += UCP_ADDRESS_ENTRY + info->entries[i].length;
    }
    if (out == NULL) {
        return total;
    }

    total16 = (uint16_t)total;
    out[0]  = UCP_WIRE_VERSION;
    out[1]  = 0;
    memcpy(out + 2, &total16, sizeof(total16));
    memcpy(out + 4, info->uid, UCT_UID_LEN);
    memcpy(out + 4 + UCT_UID_LEN, &info->node_id, sizeof(info->node_id));
    out += UCP_ADDRESS_HEADER;
    for (i = 0; i < info->num_entries; ++i) {
        memcpy(out, &info->entries[i].wire_id, sizeof(uint16_t));
        out[2] = info->entries[i].length;
        if (info->entries[i].length > 0) {
            memcpy(out + UCP_ADDRESS_ENTRY, info->entries[i].bytes, info->entries[i].length);
        }
        out += UCP_ADDRESS_ENTRY + info->entries[i].length;
    }
    return total;
}

size_t ucp_address_length(const void *buffer)
{
    uint16_t total;

    memcpy(&total, (const uint8_t *)buffer + 2, sizeof(total));
    return total;
}

ucs_status_t ucp_address_unpack(const void *buffer, size_t max, ucp_address_info_t *info)
{
    const uint8_t *in = buffer;
    size_t offset     = UCP_ADDRESS_HEADER;
    uint16_t total;

    if ((max < UCP_ADDRESS_HEADER) || (in[0] != UCP_WIRE_VERSION) || (in[1] != 0)) {
        return UCS_ERR_INVALID_ADDR;
    }
    memcpy(&total, in + 2, sizeof(total));
    if ((total < UCP_ADDRESS_HEADER) || (total > max) || (total > UCP_ADDRESS_MAX)) {
        return UCS_ERR_INVALID_ADDR;
    }

    memcpy(info->uid, in + 4, UCT_UID_LEN);
    memcpy(&info->node_id, in + 4 + UCT_UID_LEN, sizeof(info->node_id));
    for (info->num_entries = 0; offset < total; ++info->num_entries) {
        ucp_address_entry_t *entry = &info->entries[info->num_entries];

        if ((info->num_entries == UCP_ADDRESS_ENTRIES) || (total - offset < UCP_ADDRESS_ENTRY) ||
            (total - offset - UCP_ADDRESS_ENTRY < in[offset + 2])) {
            return UCS_ERR_INVALID_ADDR;
        }
        memcpy(&entry->wire_id, in + offset, sizeof(entry->wire_id));
        entry->length = in[offset + 2];
        entry->bytes  = in + offset + UCP_ADDRESS_ENTRY;
        offset       += UCP_ADDRESS_ENTRY + entry->length;
    }
    return UCS_OK;
}
