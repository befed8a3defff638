/* Halyard: x86_64. Included by <ucs/arch/cpu.h> only, which documents the functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_X86_64_H
#define UCS_ARCH_X86_64_H

#include <ucs/sys/compiler.h>

#include <emmintrin.h>

UCS_INLINE void ucs_arch_cpu_relax(void)
{
    __builtin_ia32_pause();
}

UCS_INLINE void ucs_arch_full_fence(void)
{
    _mm_mfence();
}

UCS_INLINE uint64_t ucs_arch_read_tsc(void)
{
    return __builtin_ia32_rdtsc();
}

/* CLDEMOTE (%rax), in bytes since assemblers want an option to know it. */
UCS_INLINE void ucs_arch_demote(const void *ptr)
{
    __asm__ volatile(".byte 0x0f, 0x1c, 0x00" ::"a"(ptr) : "memory");
}

/* ThreadSanitizer does not see what this publishes. */
#if !UCS_HAVE_TSAN
#define UCS_ARCH_HAVE_STORE_16

/* Processors with AVX do an aligned store of 16 bytes at once (Intel's manual, volume 3, 9.1.1;
 * AMD's, volume 2, 7.3.2), and stores are seen in their order: the compiler has to keep it too. */
UCS_INLINE void ucs_arch_store_16(void *dest, uint64_t first, uint64_t second)
{
    __m128i high = _mm_cvtsi64_si128((long long)second);

    __asm__ volatile("" : "+x"(high)::"memory"); /* in a register: gcc would store it to load it */
    _mm_store_si128((__m128i *)dest,
                    _mm_unpacklo_epi64(_mm_cvtsi64_si128((long long)first), high));
    __asm__ volatile("" ::: "memory");
}
#endif

#endif
