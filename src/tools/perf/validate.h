/* Halyard: contents of messages for -V: every byte depends on seed, direction, message and place.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_VALIDATE_H
#define PERF_VALIDATE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes behind every receive buffer that no message may touch. */
#define PERF_GUARD_SIZE 64

/* Start value of message number `sequence` in one direction. */
uint64_t perf_pattern_base(uint64_t seed, unsigned direction, uint64_t sequence);

/* Fills `size` bytes with the message that starts with `base`. */
void perf_pattern_fill(void *buffer, size_t size, uint64_t base);

/* Offset of the first byte that is not the one perf_pattern_fill() wrote; -1 when all are. */
int64_t perf_pattern_check(const void *buffer, size_t size, uint64_t base);

/* Sets and checks the guard behind a buffer of `size` bytes (PERF_GUARD_SIZE more are owned by
 * the caller). The check returns the offset of the first changed byte counted from the buffer's
 * start, or -1. */
void perf_guard_set(void *buffer, size_t size);
int64_t perf_guard_check(const void *buffer, size_t size);

#endif
