/* Halyard: fills and checks messages for -V.
 *
 * A word is base + index * odd constant: as fast as memory, and a word from another message,
 * another place or half of an old message does not match.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "validate.h"

#include <string.h>
#include <ucs/ds/hash.h>

#define PATTERN_STEP UINT64_C(0x9e3779b97f4a7c15)
#define GUARD_BYTE   0xc7

uint64_t perf_pattern_base(uint64_t seed, unsigned direction, uint64_t sequence)
{
    return ucs_hash_mix(seed ^ ucs_hash_mix(sequence * 2 + (direction & 1) + 1));
}

void perf_pattern_fill(void *buffer, size_t size, uint64_t base)
{
    uint8_t *bytes = buffer;
    uint64_t word  = base;
    size_t i;

    for (i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
        memcpy(bytes + i, &word, sizeof(word));
        word += PATTERN_STEP;
    }
    word = ucs_hash_mix(word);
    memcpy(bytes + i, &word, size - i);
}

int64_t perf_pattern_check(const void *buffer, size_t size, uint64_t base)
{
    const uint8_t *bytes = buffer;
    uint64_t word        = base;
    uint8_t expected[sizeof(word)];
    uint64_t found;
    size_t i, k;

    for (i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
        memcpy(&found, bytes + i, sizeof(found));
        if (found != word) {
            break;
        }
        word += PATTERN_STEP;
    }
    if (i + sizeof(word) > size) {
        word = ucs_hash_mix(word);
    }
    memcpy(expected, &word, sizeof(word));
    for (k = 0; (k < sizeof(word)) && (i + k < size); ++k) {
        if (bytes[i + k] != expected[k]) {
            return (int64_t)(i + k);
        }
    }
    return -1;
}

void perf_guard_set(void *buffer, size_t size)
{
    memset((uint8_t*)buffer + size, GUARD_BYTE, PERF_GUARD_SIZE);
}

int64_t perf_guard_check(const void *buffer, size_t size)
{
    const uint8_t *bytes = buffer;
    size_t i;

    for (i = 0; i < PERF_GUARD_SIZE; ++i) {
        if (bytes[size + i] != GUARD_BYTE) {
            return (int64_t)(size + i);
        }
    }
    return -1;
}
