/* Halyard: what the code asks of the compiler.
 *
 * Internal to the source tree; the installed header with the public macros is
 * <ucs/sys/compiler_def.h>. Everything here also compiles as C++17, because the tests are C++.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_COMPILER_H
#define UCS_SYS_COMPILER_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that two cores exchange as one unit on every machine that we know. */
#define UCS_CACHE_LINE_SIZE 64

#define ucs_likely(_cond)   __builtin_expect(!!(_cond), 1)
#define ucs_unlikely(_cond) __builtin_expect(!!(_cond), 0)

#define UCS_INLINE   static inline __attribute__((always_inline))
#define UCS_NOINLINE __attribute__((noinline))

/* A function off the hot path: kept out of line, and branches to it count as unlikely. */
#define UCS_COLD __attribute__((cold, noinline))

#define UCS_UNUSED      __attribute__((unused))
#define UCS_PACKED      __attribute__((packed))
#define UCS_ALIGNED(_n) __attribute__((aligned(_n)))

/* The format string is argument _fmt (from 1), the first value argument _first; 0: a va_list. */
#define UCS_PRINTF(_fmt, _first) __attribute__((format(printf, _fmt, _first)))

/* True where AddressSanitizer, ThreadSanitizer is compiled in. */
#if defined(__SANITIZE_ADDRESS__)
#define UCS_HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UCS_HAVE_ASAN 1
#endif
#endif
#ifndef UCS_HAVE_ASAN
#define UCS_HAVE_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define UCS_HAVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UCS_HAVE_TSAN 1
#endif
#endif
#ifndef UCS_HAVE_TSAN
#define UCS_HAVE_TSAN 0
#endif

/* The object of type _type whose member _member lies at _ptr. The pointer's type is checked. */
#define ucs_container_of(_ptr, _type, _member) \
    (__extension__({ \
        const __typeof__(((_type *)0)->_member) *ucs_member_ptr_ = (_ptr); \
        (_type *)((char *)ucs_member_ptr_ - offsetof(_type, _member)); \
    }))

#define ucs_array_size(_array) (sizeof(_array) / sizeof((_array)[0]))

/* True for 1, 2, 4, 8, ...; false for 0. Evaluates its argument twice. */
#define ucs_is_pow2(_n) (((_n) > 0) && (((_n) & ((_n) - 1)) == 0))

/* Round to a multiple of _align, which must be a power of two. The type is that of _n, and the
 * result is a constant expression when both arguments are. ucs_align_up evaluates _align twice
 * and wraps when the result does not fit. */
#define ucs_align_down(_n, _align) ((_n) & ~(((__typeof__((_n) + 0))(_align)) - 1))
#define ucs_align_up(_n, _align) \
    ucs_align_down((_n) + (((__typeof__((_n) + 0))(_align)) - 1), _align)

/* Quotient rounded up; evaluates _d twice. */
#define ucs_div_round_up(_n, _d) (((_n) + (_d) - 1) / (_d))

/* The smaller and the larger of two values; each argument is evaluated once. Not constant
 * expressions. */
#ifdef __cplusplus
#define UCS_AUTO_TYPE auto
#else
#define UCS_AUTO_TYPE __auto_type
#endif
#define ucs_min(_a, _b) \
    (__extension__({ \
        UCS_AUTO_TYPE ucs_min_a_ = (_a); \
        UCS_AUTO_TYPE ucs_min_b_ = (_b); \
        (ucs_min_a_ < ucs_min_b_) ? ucs_min_a_ : ucs_min_b_; \
    }))
#define ucs_max(_a, _b) \
    (__extension__({ \
        UCS_AUTO_TYPE ucs_max_a_ = (_a); \
        UCS_AUTO_TYPE ucs_max_b_ = (_b); \
        (ucs_max_a_ > ucs_max_b_) ? ucs_max_a_ : ucs_max_b_; \
    }))

/* Index of the highest set bit; _n is a uint64_t and not zero. */
#define ucs_ilog2(_n) (63u - (unsigned)__builtin_clzll(_n))

#endif
