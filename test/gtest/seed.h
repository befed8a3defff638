/* Halyard: random numbers of a test, the same in each run, and printed so that a failure can be
 * repeated: HALYARD_TEST_SEED=N replaces the seed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_SEED_H
#define TEST_GTEST_SEED_H

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

class dice {
public:
    explicit dice(uint64_t seed) : m_engine(seed)
    {
    }

    /* All 64 bits. */
    uint64_t bits()
    {
        return m_engine();
    }

    /* 0 to limit - 1. The remainder's bias does not matter to tests. */
    uint64_t below(uint64_t limit)
    {
        return m_engine() % limit;
    }

    bool one_in(uint64_t n)
    {
        return below(n) == 0;
    }

private:
    std::mt19937_64 m_engine;
};

/* The seed of a test: the one given, or what replaces it; printed. */
inline uint64_t chosen_seed(uint64_t seed)
{
    const char *replacement = getenv("HALYARD_TEST_SEED");

    if (replacement != nullptr) {
        seed = strtoull(replacement, nullptr, 0);
    }
    printf("[   seed   ] %" PRIu64 "\n", seed);
    return seed;
}

class seeded_random : public dice {
public:
    explicit seeded_random(uint64_t seed) : dice(chosen_seed(seed))
    {
    }
};

#endif
