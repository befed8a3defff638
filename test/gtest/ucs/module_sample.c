/* Halyard: a loadable part with one symbol, for the tests of the loader.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

extern const int test_module_answer;

const int test_module_answer = 42;
