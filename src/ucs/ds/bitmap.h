/* Halyard: bitmaps of any length.
 *
 * A bitmap is an array of 64-bit words that the caller owns. 'nbits' is its length in bits and
 * 'bit' an index below it, which is not checked. Bits of the last word beyond the length are always
 * zero. Not thread-safe.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_BITMAP_H
#define UCS_DS_BITMAP_H

#include <ucs/sys/compiler.h>
#include <stddef.h>
#include <stdint.h>

#define UCS_BITMAP_WORDS(_nbits) (((_nbits) + 63) / 64)

UCS_INLINE void ucs_bitmap_set(uint64_t *words, size_t bit)
{
    words[bit / 64] |= (uint64_t)1 << (bit % 64);
}

UCS_INLINE int ucs_bitmap_test(const uint64_t *words, size_t bit)
{
    return (words[bit / 64] >> (bit % 64)) & 1;
}

/* The first bit at or after 'from' that is set, or 'nbits' if there is none. */
UCS_INLINE size_t ucs_bitmap_ffs(const uint64_t *words, size_t nbits, size_t from)
{
    size_t index = from / 64;
    uint64_t word;

    if (from >= nbits) {
        return nbits;
    }

    word = words[index] & (~(uint64_t)0 << (from % 64));
    while (word == 0) {
        if (++index == UCS_BITMAP_WORDS(nbits)) {
            return nbits;
        }
        word = words[index];
    }
    return index * 64 + (size_t)__builtin_ctzll(word);
}

/* The first bit at or after 'from' that is clear, or 'nbits' if there is none. */
UCS_INLINE size_t ucs_bitmap_ffz(const uint64_t *words, size_t nbits, size_t from)
{
    size_t index = from / 64;
    uint64_t word;

    if (from >= nbits) {
        return nbits;
    }

    word = ~words[index] & (~(uint64_t)0 << (from % 64));
    while (word == 0) {
        if (++index == UCS_BITMAP_WORDS(nbits)) {
            return nbits;
        }
        word = ~words[index];
    }
    return ucs_min(index * 64 + (size_t)__builtin_ctzll(word), nbits);
}

/* Number of bits set. */
UCS_INLINE size_t ucs_bitmap_count(const uint64_t *words, size_t nbits)
{
    size_t count = 0;
    size_t i;

    for (i = 0; i < UCS_BITMAP_WORDS(nbits); ++i) {
        count += (size_t)__builtin_popcountll(words[i]);
    }
    return count;
}

#endif
