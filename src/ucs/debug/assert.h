/* Halyard: assertions: what our own code must hold, never what came from outside.
 *
 * ucs_assert is checked in debug builds (ENABLE_ASSERT) and compiles to nothing otherwise;
 * ucs_assert_always is for cold paths. A failure logs where and what, and aborts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_ASSERT_H
#define UCS_DEBUG_ASSERT_H

#include <ucs/debug/log.h>

/* With a message and its values. */
#define ucs_assertv_always(_cond, _fmt, ...) \
    do { \
        if (ucs_unlikely(!(_cond))) { \
            ucs_fatal("assertion '%s' failed: " _fmt, #_cond, ##__VA_ARGS__); \
        } \
    } while (0)

#define ucs_assert_always(_cond) \
    do { \
        if (ucs_unlikely(!(_cond))) { \
            ucs_fatal("assertion '%s' failed", #_cond); \
        } \
    } while (0)

#ifdef ENABLE_ASSERT
#define ucs_assert(_cond)            ucs_assert_always(_cond)
#define ucs_assertv(_cond, _fmt, ...) ucs_assertv_always(_cond, _fmt, ##__VA_ARGS__)
#else
/* not evaluated, but still compiled, so that it cannot rot and its variables count as used */
#define ucs_assert(_cond) \
    do { \
        (void)sizeof(!(_cond)); \
    } while (0)
#define ucs_assertv(_cond, _fmt, ...) ucs_assert(_cond)
#endif

#endif
