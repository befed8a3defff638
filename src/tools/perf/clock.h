/* Halyard: the two clocks of ucx_perftest.
 *
 * Whole loops are timed by the monotonic clock, single iterations by the processor's counter: a
 * clock_gettime() in every iteration would cost a good part of an 8-byte message.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_CLOCK_H
#define PERF_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic time in nanoseconds. Does not block; any thread. */
static inline double perf_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The processor's own counter, whose rate run.c finds. It is not ordered against other
 * instructions: good for statistics over many iterations, where an error of some nanoseconds does
 * not add up. */
static inline uint64_t perf_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return (uint64_t)perf_now_ns();
#endif
}

#endif
