/* Halyard: a library that takes over signals as it is loaded, for test_library.cc.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <signal.h>

int library_greedy_answer(void);

static void ignore(int number)
{
    (void)number;
}

__attribute__((constructor)) static void take_over(void)
{
    signal(SIGTERM, ignore);
    signal(SIGSEGV, ignore);
    signal(SIGUSR1, ignore);
}

int library_greedy_answer(void)
{
    return 42;
}
