/* Halyard: processors without a file of their own. Included by <ucs/arch/cpu.h> only, which
 * documents the functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_GENERIC_H
#define UCS_ARCH_GENERIC_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/sys.h>

UCS_INLINE void ucs_arch_cpu_relax(void)
{
    __asm__ volatile("" ::: "memory");
}

UCS_INLINE void ucs_arch_full_fence(void)
{
    __sync_synchronize();
}

UCS_INLINE void ucs_arch_demote(const void *ptr)
{
    (void)ptr;
}

/* The clock itself: a tick is a nanosecond. */
UCS_INLINE uint64_t ucs_arch_read_tsc(void)
{
    return ucs_sys_clock_ns();
}

#endif
