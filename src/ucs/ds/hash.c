/* Halyard: hash map from 64-bit keys: everything but the look-up.
 *
 * Invariant of linear probing: between the slot that a key's hash names and the slot where the key
 * is, no slot is empty. Deletion keeps it by moving back each follower whose own slot allows it
 * (Knuth, The Art of Computer Programming, vol. 3, section 6.4, algorithm R).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/hash.h>

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#define UCS_HASH_SLOTS_MIN 16

/* The table of every empty map. It is never written: an insertion needs two empty slots. */
static const ucs_hash_slot_t ucs_hash_no_slots[1];

void ucs_hash_init(ucs_hash_t *hash)
{
    hash->slots      = (ucs_hash_slot_t *)ucs_hash_no_slots;
    hash->mask       = 0;
    hash->count      = 0;
    hash->zero_value = 0;
    hash->has_zero   = 0;
}

void ucs_hash_cleanup(ucs_hash_t *hash)
{
    if (hash->mask != 0) {
        ucs_sys_free(hash->slots);
    }
    ucs_hash_init(hash);
}

/* The slot where 'key' is or where it would be stored. */
static ucs_hash_slot_t *ucs_hash_probe(const ucs_hash_t *hash, uint64_t key)
{
    size_t i = ucs_hash_mix(key) & hash->mask;

    while ((hash->slots[i].key != key) && (hash->slots[i].key != 0)) {
        i = (i + 1) & hash->mask;
    }
    return &hash->slots[i];
}

/* Double the table. Without memory nothing changes. */
static void ucs_hash_grow(ucs_hash_t *hash)
{
    size_t num_slots = (hash->mask == 0) ? UCS_HASH_SLOTS_MIN : (hash->mask + 1) * 2;
    ucs_hash_t larger;
    size_t i;

    larger       = *hash;
    larger.mask  = num_slots - 1;
    larger.slots = (ucs_hash_slot_t *)ucs_sys_calloc(num_slots, sizeof(*larger.slots));
    if (larger.slots == NULL) {
        return;
    }

    for (i = 0; i <= hash->mask; ++i) {
        if (hash->slots[i].key != 0) {
            *ucs_hash_probe(&larger, hash->slots[i].key) = hash->slots[i];
        }
    }
    if (hash->mask != 0) {
        ucs_sys_free(hash->slots);
    }
    *hash = larger;
}

ucs_status_t ucs_hash_insert(ucs_hash_t *hash, uint64_t key, uint64_t value)
{
    ucs_hash_slot_t *slot;

    if (key == 0) {
        if (hash->has_zero) {
            return UCS_ERR_ALREADY_EXISTS;
        }
        hash->has_zero   = 1;
        hash->zero_value = value;
        return UCS_OK;
    }

    slot = ucs_hash_probe(hash, key);
    if (slot->key == key) {
        return UCS_ERR_ALREADY_EXISTS;
    }

    if ((hash->count + 1) * 8 > (hash->mask + 1) * 5) {
        ucs_hash_grow(hash);
        if (hash->count == hash->mask) {
            return UCS_ERR_NO_MEMORY; /* the last empty slot ends all searches */
        }
        slot = ucs_hash_probe(hash, key);
    }

    ucs_assert(slot->key == 0);
    slot->key   = key;
    slot->value = value;
    ++hash->count;
    return UCS_OK;
}

/* Empty slot 'hole' and close the gap. */
static void ucs_hash_erase(ucs_hash_t *hash, size_t hole)
{
    size_t i = hole;
    size_t home;

    for (;;) {
        i = (i + 1) & hash->mask;
        if (hash->slots[i].key == 0) {
            break;
        }
        /* The follower may move into the hole if that does not lie before its own slot. */
        home = ucs_hash_mix(hash->slots[i].key) & hash->mask;
        if (((i - home) & hash->mask) >= ((i - hole) & hash->mask)) {
            hash->slots[hole] = hash->slots[i];
            hole              = i;
        }
    }

    hash->slots[hole].key = 0;
    --hash->count;
}

ucs_status_t ucs_hash_del(ucs_hash_t *hash, uint64_t key)
{
    uint64_t *value = ucs_hash_get(hash, key);

    if (value == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    if (key == 0) {
        hash->has_zero = 0;
    } else {
        ucs_hash_erase(hash, (size_t)(ucs_container_of(value, ucs_hash_slot_t, value) -
                                      hash->slots));
    }
    return UCS_OK;
}

int ucs_hash_next(ucs_hash_t *hash, size_t *pos, uint64_t *key_p, uint64_t **value_pp)
{
    ucs_hash_slot_t *slot;

    if (*pos == 0) {
        ++*pos;
        if (hash->has_zero) {
            *key_p    = 0;
            *value_pp = &hash->zero_value;
            return 1;
        }
    }

    while (*pos <= hash->mask + 1) {
        slot = &hash->slots[*pos - 1];
        ++*pos;
        if (slot->key != 0) {
            *key_p    = slot->key;
            *value_pp = &slot->value;
            return 1;
        }
    }
    return 0;
}
