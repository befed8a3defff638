/* Halyard: a locale in which numbers have a decimal comma, for tests that must not depend on it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCS_COMMA_LOCALE_H
#define TEST_GTEST_UCS_COMMA_LOCALE_H

#include <clocale>
#include <initializer_list>

/* Sets the first of some that is installed; false: none is. The caller sets "C" again. */
inline bool set_comma_locale()
{
    for (const char *name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR", "nl_NL.UTF-8"}) {
        if (setlocale(LC_ALL, name) != nullptr) {
            return true;
        }
    }
    return false;
}

#endif
