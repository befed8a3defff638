/* Halyard: worker addresses: packing, and the checks on what a peer hands us.
 *
 * Layout, little-endian, self-delimiting, any alignment, at most UCP_ADDRESS_MAX bytes:
 *   u8 version, u8 flags (0), u16 bytes in all, 16 bytes identity, u64 node,
 *   then entries: u16 transport, u8 length, bytes
 * An address has no length argument in the public interface: the total is read first and bounded.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIRE_ADDRESS_H
#define UCP_WIRE_ADDRESS_H

#include <ucs/type/status.h>
#include <uct/api/uct_tl.h>
#include <stddef.h>
#include <stdint.h>

#define UCP_ADDRESS_MAX     1024
#define UCP_ADDRESS_TL_MAX  255
#define UCP_ADDRESS_ENTRIES 32

typedef struct {
    uint16_t       wire_id; /* ucp_address_wire_id of the transport's name */
    uint8_t        length;
    const uint8_t *bytes;   /* in the packed address */
} ucp_address_entry_t;

typedef struct {
    uint8_t             uid[UCT_UID_LEN];
    uint64_t            node_id;
    unsigned            num_entries;
    ucp_address_entry_t entries[UCP_ADDRESS_ENTRIES];
} ucp_address_info_t;

/* Number that names a transport on the wire. */
uint16_t ucp_address_wire_id(const char *tl_name);

/* What an address tells for a transport; NULL: nothing. */
const ucp_address_entry_t *ucp_address_find(const ucp_address_info_t *info, uint16_t wire_id);

/* Bytes of the packed form; buffer may be NULL to learn them. */
size_t ucp_address_pack(const ucp_address_info_t *info, void *buffer);

/* Bytes of an address that unpack has accepted. */
size_t ucp_address_length(const void *buffer);

/* Checks and takes apart; `max` bounds what may be read (UCP_ADDRESS_MAX where unknown). info
 * points into `buffer`. UCS_ERR_INVALID_ADDR for anything that pack does not produce; never reads
 * past the end that the address itself names. Does not log. */
ucs_status_t ucp_address_unpack(const void *buffer, size_t max, ucp_address_info_t *info);

#endif
