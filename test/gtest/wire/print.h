/* Halyard: text of the messages between workers, for the simulator's trace.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_WIRE_PRINT_H
#define TEST_GTEST_WIRE_PRINT_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Safe for any id, bytes and length. */
void wire_print(unsigned id, const void *data, size_t length, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
