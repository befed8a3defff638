/* Halyard: simulator: memory that peers reach, and what it must hold.
 *
 * A region is divided into words, which any number of workers change by atomics of one kind, so
 * that the end can be told whatever the order, and slots, which one worker at a time writes, so
 * that the shadow knows every byte. Whoever has an operation in flight on a slot posts a fence
 * before the next one that must come after it. An operation is over for others when a flush says
 * so.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_SIM_RMA_H
#define TEST_SIM_RMA_H

#include "world.h"

namespace sim {

/* What workers do to a word. */
enum class word_use { COUNT, FLIP, SET, CLEAR, TURN, SWAP };
constexpr unsigned WORD_USES = 6;

struct word {
    word_use use;
    unsigned size;
    uint64_t initial;
    uint64_t guess;       /* TURN: what the last compare-and-swap saw */
    bool is_lost = false; /* some operation may have been done or not */
    std::vector<op *> ops;
};

struct slot {
    size_t offset, length;
    bool is_lost = false;   /* nobody knows what is in it */
    std::vector<op *> ops;  /* in flight */
};

struct region {
    worker *owner;
    ucp_mem_h handle = nullptr;
    uint8_t *data    = nullptr;
    uint8_t *place   = nullptr; /* as of a buffer */
    size_t length    = 0;
    bool is_open     = false; /* registered */
    bool is_unmapped = false;
    bool is_gone     = false; /* its owner has left, or it was unmapped */
    buffer *buf      = nullptr; /* where it is the user's memory */
    std::vector<uint8_t> key; /* empty: there was no memory for it */
    std::vector<uint8_t> shadow;
    std::vector<word> words;
    std::vector<slot> slots;
};

} // namespace sim

#endif
