/* Halyard: hash map from 64-bit keys to 64-bit values or pointers.
 *
 * Open addressing with linear probing in a power-of-two table; deletion shifts the followers back,
 * so there are no tombstones and look-ups do not slow down with age. Key 0 has its own place, so
 * that an empty slot needs no mark. An empty map owns no memory. The table grows when 5/8 full; if
 * there is no memory to grow it fills further, and adding fails only when the last slot but one is
 * taken. Not thread-safe. Nothing blocks but for memory.
 *
 * Pointers to values stay good until the next insert, del or cleanup.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_HASH_H
#define UCS_DS_HASH_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

typedef struct {
    uint64_t key; /* 0: slot is empty */
    uint64_t value;
} ucs_hash_slot_t;

typedef struct {
    ucs_hash_slot_t *slots; /* mask + 1 of them, at least one of them empty */
    size_t mask;
    size_t count;           /* keys in 'slots' */
    uint64_t zero_value;    /* value of key 0 */
    int has_zero;           /* key 0 is in the map */
} ucs_hash_t;

/* Spread a key over all bits: the two halves of its product with 2^64 divided by the golden ratio,
 * so that both high and low bits of the key reach the low bits of the result. */
UCS_INLINE uint64_t ucs_hash_mix(uint64_t key)
{
    unsigned __int128 product = (unsigned __int128)key * 0x9e3779b97f4a7c15ull;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Make an empty map; allocates nothing and cannot fail. */
void ucs_hash_init(ucs_hash_t *hash);

/* Free the memory; the map is empty and usable again. */
void ucs_hash_cleanup(ucs_hash_t *hash);

/* Store 'value' under a new 'key'. UCS_ERR_ALREADY_EXISTS, UCS_ERR_NO_MEMORY: nothing changed. */
ucs_status_t ucs_hash_insert(ucs_hash_t *hash, uint64_t key, uint64_t value);

/* Remove 'key'. UCS_ERR_NO_ELEM: not there. */
ucs_status_t ucs_hash_del(ucs_hash_t *hash, uint64_t key);

/* One step of a walk over all entries in no particular order: *pos is 0 at first. Returns 0 at the
 * end, otherwise 1 with the entry in the outputs. Values may be changed during a walk, the set of
 * keys not. */
int ucs_hash_next(ucs_hash_t *hash, size_t *pos, uint64_t *key_p, uint64_t **value_pp);

/* Number of keys. */
UCS_INLINE size_t ucs_hash_size(const ucs_hash_t *hash)
{
    return hash->count + (hash->has_zero != 0);
}

/* Bytes of memory that the map owns. */
UCS_INLINE size_t ucs_hash_memory(const ucs_hash_t *hash)
{
    return (hash->mask == 0) ? 0 : (hash->mask + 1) * sizeof(*hash->slots);
}

/* Where the value of 'key' is; NULL if the key is not in the map. */
UCS_INLINE uint64_t *ucs_hash_get(ucs_hash_t *hash, uint64_t key)
{
    ucs_hash_slot_t *slot;
    size_t i;

    if (ucs_unlikely(key == 0)) {
        return hash->has_zero ? &hash->zero_value : NULL;
    }

    for (i = ucs_hash_mix(key);; ++i) {
        slot = &hash->slots[i & hash->mask];
        if (slot->key == key) {
            return &slot->value;
        }
        if (slot->key == 0) {
            return NULL;
        }
    }
}

/* For maps whose values are pointers: the pointer under 'key', NULL if there is none. */
UCS_INLINE void *ucs_hash_get_ptr(ucs_hash_t *hash, uint64_t key)
{
    uint64_t *value = ucs_hash_get(hash, key);

    return (value != NULL) ? (void *)(uintptr_t)*value : NULL;
}

END_C_DECLS

#endif
