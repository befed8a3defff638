/* Halyard: data of tests, which depend on a number. In C, which the compiler optimizes, other than
 * the tests: their processors' time was that of making and comparing data for a good part.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_PATTERN_H
#define TEST_GTEST_PATTERN_H

#include <ucs/sys/compiler_def.h>

#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS

void pattern_fill(void *buffer, size_t length, uint64_t number);

/* The first place that differs from what pattern_fill() makes, or -1. */
ptrdiff_t pattern_differs(const void *buffer, size_t length, uint64_t number);

/* Whether all bytes are that one. */
int pattern_is_only(const void *buffer, size_t length, uint8_t byte);

END_C_DECLS

#endif
