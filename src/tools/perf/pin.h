/* Halyard: on which processors the two sides of ucx_perftest run.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_PIN_H
#define PERF_PIN_H

#include <stddef.h>

/* The line that the system tells of a processor in a file of that name; "" without. */
void perf_pin_read(int cpu, const char *name, char *line, size_t size);

/* Chooses two processors that this process may use: two different cores of one package if there
 * are, else what comes nearest.
 * Returns 2 (two processors), 1 (only one allowed: both entries name it), or 0 (unknown). */
int perf_pin_choose(int cpus_p[2]);

/* 1 if the two processors are hardware threads of one core. 0 if not or not known. */
int perf_pin_same_core(int a, int b);

/* Binds the calling thread to one processor. Returns 0, or the errno. */
int perf_pin_to(int cpu);

/* Whether it could be bound to that processor: the same, but it stays where it was. */
int perf_pin_try(int cpu);

/* Says which of these the calling thread cannot be bound to. Returns 0: it can to all; else -1. */
int perf_pin_check(const int *cpus, unsigned count);

/* How many processors the calling thread may use. */
int perf_pin_allowed(void);

#endif
