/* Halyard: fuzzing: a libFuzzer program for one target.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return FUZZ_TARGET(data, size);
}
