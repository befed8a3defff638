/* Halyard: ofi: the addresses that the provider knows.
 *
 * Several may need the same one: a peer, another that was given up and is not freed yet, a refusal
 * under way. The provider is told of it once: `ofi_rxd` answers the same to who tells it twice, and
 * forgets it for both when the first of them asks for that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#include <string.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>

static uct_ofi_addr_t *uct_ofi_addr_make(uct_ofi_iface_t *iface, uint64_t key, const void *raw,
                                         size_t length)
{
    uct_ofi_addr_t *where = ucs_sys_calloc(1, sizeof(*where));
    int count;

    if (where == NULL) {
        return NULL;
    }
    where->key    = key;
    where->length = (uint8_t)length;
    memcpy(where->raw, raw, length);
    if (ucs_hash_insert(&iface->addrs, key, (uintptr_t)where) != UCS_OK) {
        ucs_sys_free(where);
        return NULL;
    }
    uct_ofi_enter(iface);
    count = fi_av_insert(iface->av, raw, 1, &where->addr, 0, NULL);
    uct_ofi_leave(iface);
    if (count != 1) {
        (void)ucs_hash_del(&iface->addrs, key);
        ucs_sys_free(where);
        return NULL;
    }
    return where;
}

uct_ofi_addr_t *uct_ofi_addr_get(uct_ofi_iface_t *iface, const void *raw, size_t length)
{
    const uint64_t key    = ucs_hash_bytes(raw, length, iface->secret);
    uct_ofi_addr_t *where = ucs_hash_get_ptr(&iface->addrs, key);

    if (where == NULL) {
        where = uct_ofi_addr_make(iface, key, raw, length);
    } else if ((where->length != length) || (memcmp(where->raw, raw, length) != 0)) {
        return NULL; /* another one of the same key: by chance that does not happen */
    }
    if (where != NULL) {
        ++where->num_users;
    }
    return where;
}

void uct_ofi_addr_put(uct_ofi_iface_t *iface, uct_ofi_addr_t *where)
{
    if (--where->num_users > 0) {
        return;
    }
    if (!iface->is_inherited) {
        uct_ofi_enter(iface);
        (void)fi_av_remove(iface->av, &where->addr, 1, 0);
        uct_ofi_leave(iface);
    }
    (void)ucs_hash_del(&iface->addrs, where->key);
    ucs_sys_free(where);
}

void uct_ofi_addrs_close(uct_ofi_iface_t *iface)
{
    size_t pos = 0;
    uint64_t *value;
    uint64_t key;

    while (ucs_hash_next(&iface->addrs, &pos, &key, &value)) {
        ucs_sys_free((void *)(uintptr_t)*value);
    }
    ucs_hash_cleanup(&iface->addrs);
}
