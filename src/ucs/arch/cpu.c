/* Halyard: detection of processor features and of the tick counter's rate.
 *
 * Both results are computed by whoever asks first; threads that ask at the same time compute the
 * same, so plain relaxed stores publish them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/arch/cpu.h>

#include <ucs/arch/atomic.h>
#include <ucs/sys/sys.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* Time over which the rate is measured: two clock readings are uncertain by some 50 ns each. */
#define UCS_ARCH_TSC_WINDOW_NS 200000

/* Give up measuring after so many clock readings: a replaced clock need not run. */
#define UCS_ARCH_TSC_READINGS_MAX 100000

/* Marks flags as looked up. */
#define UCS_ARCH_CPU_FLAGS_VALID (1u << 31)

#if defined(__x86_64__)

#define UCS_ARCH_CPUID_CLDEMOTE (1u << 25) /* leaf 7, ecx */
#define UCS_ARCH_FAMILY_ZEN_5   0x1a

/* Register state that the operating system saves: XCR0. Only if CPUID says that it can be read. */
static uint64_t ucs_arch_xcr0(void)
{
    unsigned low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* Of leaf 1's eax: AMD's manual, volume 3, appendix E.3. */
static unsigned ucs_arch_family(unsigned eax)
{
    const unsigned base = (eax >> 8) & 0xf;

    return base + ((base == 0xf) ? ((eax >> 20) & 0xff) : 0);
}

static unsigned ucs_arch_detect_flags(void)
{
    unsigned flags = 0;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0; /* gcc does not see that they are set */

    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) {
        flags |= (ebx == signature_AMD_ebx)   ? UCS_ARCH_CPU_FLAG_AMD :
                 (ebx == signature_INTEL_ebx) ? UCS_ARCH_CPU_FLAG_INTEL : 0;
    }
    /* AVX also needs the operating system to save xmm and ymm: bits 1 and 2. */
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_AVX) && (ecx & bit_OSXSAVE) &&
        ((ucs_arch_xcr0() & 0x06) == 0x06)) {
        flags |= UCS_ARCH_CPU_FLAG_AVX;
    }
    if ((flags & UCS_ARCH_CPU_FLAG_AMD) && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
        (ucs_arch_family(eax) >= UCS_ARCH_FAMILY_ZEN_5)) {
        flags |= UCS_ARCH_CPU_FLAG_ZEN_5;
    }
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ecx & UCS_ARCH_CPUID_CLDEMOTE)) {
        flags |= UCS_ARCH_CPU_FLAG_CLDEMOTE;
    }
    if (__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx)) {
        flags |= (edx & (1u << 8)) ? UCS_ARCH_CPU_FLAG_TSC_STABLE : 0;
    }
    return flags;
}

/* The rate as CPUID tells it, or 0: leaf 0x15 (crystal rate and ratio), or 0x40000010 (kHz, from
 * hypervisors). Leaf 0x16 is not used: it gives a rounded marketing figure. */
static double ucs_arch_known_tsc_hz(void)
{
    unsigned eax, ebx, ecx, edx;

    if (__get_cpuid(0x15, &eax, &ebx, &ecx, &edx) && (eax != 0) && (ebx != 0) && (ecx != 0)) {
        return (double)ecx * ebx / eax;
    }

    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 31))) {
        __cpuid(0x40000000, eax, ebx, ecx, edx);
        if ((eax >= 0x40000010) && (eax < 0x40010000)) {
            __cpuid(0x40000010, eax, ebx, ecx, edx);
            return eax * 1e3;
        }
    }
    return 0;
}

#elif defined(__aarch64__)

/* The counter's rate is constant by architecture. */
static unsigned ucs_arch_detect_flags(void)
{
    return UCS_ARCH_CPU_FLAG_TSC_STABLE;
}

static double ucs_arch_known_tsc_hz(void)
{
    uint64_t hz;

    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
    return (double)hz;
}

#else

static unsigned ucs_arch_detect_flags(void)
{
    return UCS_ARCH_CPU_FLAG_TSC_STABLE;
}

static double ucs_arch_known_tsc_hz(void)
{
    return 1e9;
}

#endif

unsigned ucs_arch_cpu_flags(void)
{
    static ucs_atomic_u32_t cached;
    unsigned flags = ucs_atomic_load_relaxed(&cached);

    if (ucs_unlikely(flags == 0)) {
        flags = ucs_arch_detect_flags() | UCS_ARCH_CPU_FLAGS_VALID;
        ucs_atomic_store_relaxed(&cached, flags);
    }
    return flags & ~UCS_ARCH_CPU_FLAGS_VALID;
}

#if defined(__x86_64__)

#define UCS_ARCH_COPY_STEP  128  /* bytes of one turn of the loop */
#define UCS_ARCH_COPY_AHEAD 2048 /* asked for before they are read */

#define UCS_ARCH_AVX __attribute__((target("avx")))

UCS_ARCH_AVX UCS_INLINE void ucs_arch_copy_step(char *dest, const char *src)
{
    const __m256i part0 = _mm256_loadu_si256((const __m256i *)src);
    const __m256i part1 = _mm256_loadu_si256((const __m256i *)(src + 32));
    const __m256i part2 = _mm256_loadu_si256((const __m256i *)(src + 64));
    const __m256i part3 = _mm256_loadu_si256((const __m256i *)(src + 96));

    _mm256_storeu_si256((__m256i *)dest, part0);
    _mm256_storeu_si256((__m256i *)(dest + 32), part1);
    _mm256_storeu_si256((__m256i *)(dest + 64), part2);
    _mm256_storeu_si256((__m256i *)(dest + 96), part3);
}

/* Whole turns store at multiples of 32; the first bytes and the last, which the others may overlap,
 * come by turns of their own. More than two of these. */
UCS_ARCH_AVX UCS_INLINE void ucs_arch_copy_avx(char *dest, const char *src, size_t length,
                                               size_t ahead)
{
    char *const last           = dest + length - UCS_ARCH_COPY_STEP;
    const char *const src_last = src + length - UCS_ARCH_COPY_STEP;
    const size_t skip          = 32 - ((uintptr_t)dest & 31);
    size_t i;

    for (i = 0; i < ucs_min(ahead, length); i += 64) {
        __builtin_prefetch(src + i, 0, 2);
    }
    ucs_arch_copy_step(dest, src);
    for (dest += skip, src += skip; dest < last; dest += UCS_ARCH_COPY_STEP) {
        if ((ahead > 0) && (src + ahead < src_last)) {
            __builtin_prefetch(src + ahead, 0, 2);
            __builtin_prefetch(src + ahead + 64, 0, 2);
        }
        ucs_arch_copy_step(dest, src);
        src += UCS_ARCH_COPY_STEP;
    }
    ucs_arch_copy_step(last, src_last);
}

/* By stores that go to memory: who holds the lines loses them and is not asked for them. Stores
 * that follow the copy do not overtake it. */
UCS_ARCH_AVX static void ucs_arch_copy_far_avx(char *dest, const char *src, size_t length)
{
    const size_t skip = 64 - ((uintptr_t)dest & 63);
    const char *src_end = src + length - UCS_ARCH_COPY_STEP;

    ucs_arch_copy_step(dest, src);
    for (dest += skip, src += skip; src < src_end; dest += 64, src += 64) {
        _mm256_stream_si256((__m256i *)dest, _mm256_loadu_si256((const __m256i *)src));
        _mm256_stream_si256((__m256i *)(dest + 32),
                            _mm256_loadu_si256((const __m256i *)(src + 32)));
    }
    ucs_arch_copy_step(dest + (src_end - src), src_end);
    _mm_sfence();
}

UCS_ARCH_AVX static void ucs_arch_copy_in_avx(char *dest, const char *src, size_t length)
{
    ucs_arch_copy_avx(dest, src, length, UCS_ARCH_COPY_AHEAD);
}

UCS_ARCH_AVX static void ucs_arch_copy_out_avx(char *dest, const char *src, size_t length)
{
    ucs_arch_copy_avx(dest, src, length, 0);
}

#endif

/* Zen 3 and later say that they have a fast string instruction, so glibc before 2.40 uses it; for
 * lines that another core holds it takes up to twice the time of vector registers (measured on
 * Zen 4; https://sourceware.org/bugzilla/show_bug.cgi?id=30994). What another core has written is
 * asked for ahead, which the processor by itself does within a page only. On Zen 5 it is the other
 * way round (messages of 8 KiB through a buffer, by the string instruction: 0.35 us instead of
 * 0.48, between processors without a common cache 1.2 instead of 2.0), and on Intel's processors:
 * it takes a third of the time to write, as it asks for lines without reading them; so it is on
 * Zen 4 for what lies in no cache. */
static int ucs_arch_copies_by_avx(size_t length)
{
    const unsigned flags = UCS_ARCH_CPU_FLAG_AMD | UCS_ARCH_CPU_FLAG_AVX;

    return (length <= UCS_ARCH_COPY_MAX) &&
           ((ucs_arch_cpu_flags() & (flags | UCS_ARCH_CPU_FLAG_ZEN_5)) == flags);
}

void ucs_arch_copy_long(ucs_arch_copy_t how, void *dest, const void *src, size_t length)
{
#if defined(__x86_64__)
    if (ucs_arch_copies_by_avx(length)) {
        if (how == UCS_ARCH_COPY_IN) {
            ucs_arch_copy_in_avx(dest, src, length);
        } else if (how == UCS_ARCH_COPY_OUT) {
            ucs_arch_copy_out_avx(dest, src, length);
        } else {
            ucs_arch_copy_far_avx(dest, src, length);
        }
        return;
    }
#else
    (void)how;
#endif
    memcpy(dest, src, length);
}

int ucs_arch_can_copy_far(void)
{
    return ucs_arch_copies_by_avx(UCS_ARCH_COPY_MIN);
}

int ucs_arch_can_store_16(void)
{
    return (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_AVX) != 0;
}

/* Read clock and counter at the same moment, as near as one of several attempts gets. */
static void ucs_arch_read_both(uint64_t *tsc_p, uint64_t *ns_p)
{
    uint64_t best = UINT64_MAX;
    uint64_t before, after, ns;
    int i;

    for (i = 0; i < 8; ++i) {
        before = ucs_arch_read_tsc();
        ns     = ucs_sys_clock_ns();
        after  = ucs_arch_read_tsc();
        if (after - before < best) {
            best   = after - before;
            *tsc_p = before + best / 2;
            *ns_p  = ns;
        }
    }
}

/* The rate against the clock; 1e9 where the clock stands still. */
static double ucs_arch_measure_tsc_hz(void)
{
    uint64_t start_tsc = 0, start_ns = 0, end_tsc = 0, end_ns = 0;
    int i;

    ucs_arch_read_both(&start_tsc, &start_ns);
    for (i = 0; i < UCS_ARCH_TSC_READINGS_MAX; ++i) {
        if (ucs_sys_clock_ns() - start_ns >= UCS_ARCH_TSC_WINDOW_NS) {
            break;
        }
    }
    ucs_arch_read_both(&end_tsc, &end_ns);

    if ((end_ns <= start_ns) || (end_tsc <= start_tsc)) {
        return 1e9;
    }
    return (double)(end_tsc - start_tsc) * 1e9 / (double)(end_ns - start_ns);
}

double ucs_arch_tsc_hz(void)
{
    static ucs_atomic_u64_t cached_bits; /* a double; all zero bits: not known yet */
    uint64_t bits = ucs_atomic_load_relaxed(&cached_bits);
    double hz;

    if (ucs_unlikely(bits == 0)) {
        hz = ucs_arch_known_tsc_hz();
        if (hz <= 0) {
            hz = ucs_arch_measure_tsc_hz();
        }
        memcpy(&bits, &hz, sizeof(bits));
        ucs_atomic_store_relaxed(&cached_bits, bits);
    }

    memcpy(&hz, &bits, sizeof(hz));
    return hz;
}
