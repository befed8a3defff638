/* Halyard: aarch64. Included by <ucs/arch/cpu.h> only, which documents the functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_AARCH64_H
#define UCS_ARCH_AARCH64_H

#include <ucs/sys/compiler.h>

UCS_INLINE void ucs_arch_cpu_relax(void)
{
    /* yield does nothing on most cores; isb stalls for about the time that x86's pause does. */
    __asm__ volatile("isb" ::: "memory");
}

UCS_INLINE void ucs_arch_full_fence(void)
{
    __asm__ volatile("dmb ish" ::: "memory");
}

UCS_INLINE void ucs_arch_demote(const void *ptr)
{
    (void)ptr;
}

UCS_INLINE uint64_t ucs_arch_read_tsc(void)
{
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

#endif
