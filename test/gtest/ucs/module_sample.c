/* Halyard: a loadable part with one symbol, for the tests of the loader.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

extern const int test_module_answer;

const int test_module_answer = 42;
