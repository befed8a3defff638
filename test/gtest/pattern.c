/* Halyard: data of tests.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "pattern.h"

#include <string.h>

static uint64_t next_word(uint64_t *state)
{
    *state = (*state * 6364136223846793005ull) + 1442695040888963407ull;
    return *state ^ (*state >> 29);
}

static uint64_t first_state(uint64_t number)
{
    return (number + 1) * 0x9e3779b97f4a7c15ull;
}

void pattern_fill(void *buffer, size_t length, uint64_t number)
{
    uint64_t state = first_state(number);
    uint8_t *out   = buffer;
    uint64_t word;
    size_t i;

    for (i = 0; i + sizeof(word) <= length; i += sizeof(word)) {
        word = next_word(&state);
        memcpy(out + i, &word, sizeof(word));
    }
    if (i < length) {
        word = next_word(&state);
        memcpy(out + i, &word, length - i);
    }
}

ptrdiff_t pattern_differs(const void *buffer, size_t length, uint64_t number)
{
    uint64_t state    = first_state(number);
    uint64_t word     = next_word(&state);
    const uint8_t *in = buffer;
    uint64_t found;
    size_t i = 0;

    while (length - i >= sizeof(found)) {
        memcpy(&found, in + i, sizeof(found));
        if (found != word) {
            break;
        }
        word = next_word(&state);
        i   += sizeof(found);
    }
    while ((i < length) && (in[i] == ((const uint8_t *)&word)[i % sizeof(word)])) {
        ++i;
    }
    return (i == length) ? -1 : (ptrdiff_t)i;
}

int pattern_is_only(const void *buffer, size_t length, uint8_t byte)
{
    const uint8_t *in = buffer;

    return (length == 0) || ((in[0] == byte) && (memcmp(in, in + 1, length - 1) == 0));
}
