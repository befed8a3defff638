/* Halyard: what differs between processors.
 *
 * Each of x86_64.h, aarch64.h and generic.h, of which exactly one is included, defines the inline
 * functions
 *     ucs_arch_cpu_relax()  a hint inside a loop that waits for another core; not a fence
 *     ucs_arch_read_tsc()   the tick counter: cheap, constant rate, equal on all cores of a node,
 *                           and neither ordered with the instructions around it nor a fence
 *     ucs_arch_full_fence() no load or store passes it, in either direction, as other processes see
 *                           it (a read-modify-write does not do that everywhere)
 *     ucs_arch_demote()     a hint that the line at an address, just written, will be read by
 *                           another core: to the cache that both share
 * and may define UCS_ARCH_HAVE_STORE_16 with
 *     ucs_arch_store_16()   one store of 16 bytes, see ucs_arch_publish_16
 * and cpu.c the rest. The tick counter is for measuring. Time on which behaviour depends comes from
 * ucs_sys_clock_ns(), which a test can replace.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_CPU_H
#define UCS_ARCH_CPU_H

#include <ucs/arch/atomic.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <string.h>

#if defined(__x86_64__)
#include <ucs/arch/x86_64.h>
#elif defined(__aarch64__)
#include <ucs/arch/aarch64.h>
#else
#include <ucs/arch/generic.h>
#endif

BEGIN_C_DECLS

/* Instructions that both the processor and the operating system offer. */
enum {
    UCS_ARCH_CPU_FLAG_AVX        = 1u << 0,
    UCS_ARCH_CPU_FLAG_TSC_STABLE = 1u << 1, /* the tick counter has a constant rate */
    UCS_ARCH_CPU_FLAG_AMD        = 1u << 2, /* who made it: what lines of other cores cost, and */
    UCS_ARCH_CPU_FLAG_INTEL      = 1u << 3, /* copies, was measured on both, and differs */
    UCS_ARCH_CPU_FLAG_CLDEMOTE   = 1u << 4, /* ucs_arch_demote does something */
    UCS_ARCH_CPU_FLAG_ZEN_5      = 1u << 5  /* AMD's of this family, or of a later one */
};

/* The flags of this machine, UCS_ARCH_CPU_FLAG_xx. Looked up once. Any thread. */
unsigned ucs_arch_cpu_flags(void);

/* Ticks of ucs_arch_read_tsc() in a second, never 0. From the processor where it tells; otherwise
 * measured on the first call, which then takes about 0.2 ms, to some 0.1 %. Any thread. */
double ucs_arch_tsc_hz(void);

/* True if ucs_arch_publish_16 may be told that 16 bytes are stored at once. */
int ucs_arch_can_store_16(void);

/* Stores 16 bytes at an address aligned to them, as a release: who sees, with acquire order, any of
 * the first 8 sees the second 8 too, and all that was written before. at_once: what
 * ucs_arch_can_store_16 says, looked up before; one store takes less time than two. */
UCS_INLINE void ucs_arch_publish_16(void *dest, uint64_t first, uint64_t second, int at_once)
{
    ucs_atomic_u64_t *words = (ucs_atomic_u64_t *)dest;

#ifdef UCS_ARCH_HAVE_STORE_16
    if (ucs_likely(at_once)) {
        ucs_arch_store_16(dest, first, second);
        return;
    }
#else
    (void)at_once;
#endif
    ucs_atomic_store_relaxed(&words[1], second);
    ucs_atomic_store_release(&words[0], first);
}

/* Bytes from which on, and up to which, the copies below are more than memcpy on some processors.
 * The C library copies by vector registers below the first itself (glibc: x86.rep_movsb_threshold).
 */
#define UCS_ARCH_COPY_MIN ((size_t)2048)
#define UCS_ARCH_COPY_MAX ((size_t)256 * 1024)

typedef enum {
    UCS_ARCH_COPY_IN,  /* of what another core has written */
    UCS_ARCH_COPY_OUT, /* of what another core will read */
    UCS_ARCH_COPY_FAR  /* the same where it shares no cache with this one: past the caches, so that
                          their lines need not be taken from it */
} ucs_arch_copy_t;

/* memcpy of more than UCS_ARCH_COPY_MIN bytes. */
void ucs_arch_copy_long(ucs_arch_copy_t how, void *dest, const void *src, size_t length);

/* Is UCS_ARCH_COPY_FAR another way than the others? */
int ucs_arch_can_copy_far(void);

/* memcpy; `length` may be 0. Short ones of all kinds are the same. */
UCS_INLINE void ucs_arch_copy(ucs_arch_copy_t how, void *dest, const void *src, size_t length)
{
    if (length <= UCS_ARCH_COPY_MIN) {
        memcpy(dest, src, length);
    } else {
        ucs_arch_copy_long(how, dest, src, length);
    }
}

/* Bring the line at 'ptr' near, to write it (taking it from other cores). Never faults. */
UCS_INLINE void ucs_arch_prefetch_write(const void *ptr)
{
    __builtin_prefetch(ptr, 1, 3);
}

END_C_DECLS

#endif
