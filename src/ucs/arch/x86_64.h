/* Halyard: x86_64. Included by <ucs/arch/cpu.h> only, which documents the functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_X86_64_H
#define UCS_ARCH_X86_64_H

#include <ucs/sys/compiler.h>

UCS_INLINE void ucs_arch_cpu_relax(void)
{
    __builtin_ia32_pause();
}

UCS_INLINE uint64_t ucs_arch_read_tsc(void)
{
    return __builtin_ia32_rdtsc();
}

#endif
