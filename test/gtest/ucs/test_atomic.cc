/* Halyard: tests of the atomics, and of what the processor files offer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <ucs/arch/atomic.h>
#include <ucs/arch/cpu.h>
#include <ucs/sys/sys.h>

#include <seed.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

TEST(atomic, operations)
{
    ucs_atomic_u32_t word;

    ucs_atomic_store_relaxed(&word, 5u);
    EXPECT_EQ(5u, ucs_atomic_fetch_add(&word, 3u));
    EXPECT_EQ(8u, ucs_atomic_fetch_add(&word, ~0u));
    EXPECT_EQ(7u, ucs_atomic_fetch_or(&word, 8u));
    EXPECT_EQ(15u, ucs_atomic_fetch_and(&word, 6u));
    EXPECT_EQ(6u, ucs_atomic_exchange(&word, 9u));

    uint32_t expected = 1;
    EXPECT_FALSE(ucs_atomic_cas(&word, &expected, 2u));
    EXPECT_EQ(9u, expected);
    EXPECT_TRUE(ucs_atomic_cas(&word, &expected, 2u));
    EXPECT_EQ(2u, ucs_atomic_load_acquire(&word));
    ucs_atomic_store_release(&word, 3u);
    EXPECT_EQ(3u, ucs_atomic_load_relaxed(&word));
    ucs_atomic_store_seq_cst(&word, 4u);
    EXPECT_EQ(4u, ucs_atomic_load_seq_cst(&word));
}

TEST(atomic, counts_of_two_threads_add_up)
{
    constexpr uint64_t COUNT = 20000;
    static ucs_atomic_u64_t sum;

    ucs_atomic_store_relaxed(&sum, uint64_t(0));
    auto work = [] {
        for (uint64_t i = 0; i < COUNT; ++i) {
            ucs_atomic_fetch_add(&sum, 1);
            uint64_t expected = ucs_atomic_load_relaxed(&sum);
            while (!ucs_atomic_cas(&sum, &expected, expected + 1)) {
            }
        }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(COUNT * 4, ucs_atomic_load_acquire(&sum));
}

/* What is written before a release is seen after the acquire that reads it; ThreadSanitizer checks
 * the same. */
TEST(atomic, release_publishes)
{
    constexpr uint32_t COUNT = 10000;
    static ucs_atomic_u32_t turn;
    static uint64_t data;

    data = 0;
    ucs_atomic_store_relaxed(&turn, 0u);
    auto play = [](uint32_t parity) {
        unsigned in_vain = 0;
        for (uint32_t i = parity; i < COUNT; i += 2) {
            while (ucs_atomic_load_acquire(&turn) != i) { /* A0 */
                ucs_arch_cpu_relax();
                if (++in_vain % 500 == 0) {
                    usleep(1); /* after a yield whoever computes beside us has a whole turn */
                }
            }
            ASSERT_EQ(i, data);
            data = i + 1;
            ucs_atomic_store_release(&turn, i + 1); /* R0 */
        }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(COUNT, data);
}

TEST(arch, flags_agree_with_the_compiler)
{
    unsigned flags = ucs_arch_cpu_flags();

    EXPECT_EQ(flags, ucs_arch_cpu_flags());
#if defined(__x86_64__)
    EXPECT_EQ(!!__builtin_cpu_supports("avx"), !!(flags & UCS_ARCH_CPU_FLAG_AVX));
#endif
}

TEST(arch, ticks_agree_with_the_clock)
{
    double hz = ucs_arch_tsc_hz();

    EXPECT_EQ(hz, ucs_arch_tsc_hz());
    EXPECT_GT(hz, 1e6);
    EXPECT_LT(hz, 1e11);

    if (!(ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_TSC_STABLE)) {
        GTEST_SKIP() << "the tick counter's rate varies on this machine";
    }
    /* The readings of the two bracket each other, so being interrupted between them only widens
     * the bounds: no limit on time is asserted. */
    uint64_t clock0 = ucs_sys_clock_ns();
    uint64_t tsc0   = ucs_arch_read_tsc();
    uint64_t clock1 = ucs_sys_clock_ns();
    ucs_sys_sleep_ns(20 * 1000 * 1000);
    uint64_t clock2 = ucs_sys_clock_ns();
    uint64_t tsc1   = ucs_arch_read_tsc();
    uint64_t clock3 = ucs_sys_clock_ns();
    double elapsed  = (tsc1 - tsc0) * 1e9 / hz;
    EXPECT_GE(elapsed, (clock2 - clock1) * 0.98);
    EXPECT_LE(elapsed, (clock3 - clock0) * 1.02);
}

/* The other thread writes pairs of which both halves come from one number, with a word before them
 * that counts on: whoever sees the first half sees the second, or a later one. */
TEST(arch, sixteen_bytes_are_published_together)
{
    constexpr uint64_t ROUNDS = 200000;
    struct alignas(16) {
        ucs_atomic_u64_t pair[2];
        ucs_atomic_u64_t before;
    } shared;

    uint64_t changes = 0; /* that were seen; several, or the two have not run at the same time */
    for (int i = 0; (i < 2) || ((changes < 4) && (i < 200)); ++i) {
        const int at_once = ucs_arch_can_store_16() && (i % 2 == 1);
        ucs_atomic_store_relaxed(&shared.pair[0], 0);
        ucs_atomic_store_relaxed(&shared.pair[1], 0);
        ucs_atomic_store_relaxed(&shared.before, 0);

        std::thread writer([&] {
            for (uint64_t i = 1; i <= ROUNDS; ++i) {
                ucs_atomic_store_relaxed(&shared.before, 7 * i);
                ucs_arch_publish_16(&shared, i, 3 * i, at_once);
            }
        });
        uint64_t first = 0, wrong = 0;
        while (first < ROUNDS) {
            const uint64_t seen = ucs_atomic_load_acquire(&shared.pair[0]);
            wrong   += (seen < first);
            changes += (seen != first);
            first    = seen;
            wrong   += (ucs_atomic_load_relaxed(&shared.pair[1]) < 3 * first);
            wrong   += (ucs_atomic_load_relaxed(&shared.before) < 7 * first);
        }
        writer.join();
        EXPECT_EQ(0u, wrong);
        EXPECT_EQ(3 * ROUNDS, ucs_atomic_load_relaxed(&shared.pair[1]));
    }
    EXPECT_GE(changes, 4u);
}

/* Around the lengths at which the way changes, at every alignment of either side: all bytes, and
 * none beside them. */
TEST(arch, copies)
{
    constexpr size_t GUARD = 160, MOST = UCS_ARCH_COPY_MAX + 300;
    seeded_random random(71);
    std::vector<uint8_t> src(MOST + GUARD), dest(MOST + (2 * GUARD));

    for (uint8_t &byte : src) {
        byte = static_cast<uint8_t>(random.bits());
    }
    for (unsigned i = 0; i < 3000; ++i) {
        const size_t around = (i % 40 == 0) ? UCS_ARCH_COPY_MAX : UCS_ARCH_COPY_MIN;
        const size_t length = (i % 3 == 0) ? random.below(UCS_ARCH_COPY_MIN + 2) :
                              around - 130 + random.below(261);
        const size_t from = random.below(GUARD), to = GUARD + random.below(64);
        memset(dest.data(), 0xa5, to + length + GUARD);
        ucs_arch_copy((i % 3 == 1) ? UCS_ARCH_COPY_FAR :
                      (i % 2 == 0) ? UCS_ARCH_COPY_IN : UCS_ARCH_COPY_OUT,
                      dest.data() + to, src.data() + from, length);
        ASSERT_EQ(0, memcmp(dest.data() + to, src.data() + from, length)) << length;
        ASSERT_EQ(static_cast<long>(to), std::count(dest.begin(), dest.begin() + to, 0xa5));
        ASSERT_EQ(static_cast<long>(GUARD),
                  std::count(dest.begin() + to + length, dest.begin() + to + length + GUARD, 0xa5))
            << length;
    }
}

TEST(arch, prefetch_never_faults)
{
    for (uintptr_t address : {uintptr_t(0), uintptr_t(1), UINTPTR_MAX, uintptr_t(1) << 62}) {
        ucs_arch_prefetch_write(reinterpret_cast<void *>(address));
    }
    SUCCEED();
}

} // namespace
