/* Halyard: the linear costs that fit measured latencies, as settings of the library.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_COSTS_H
#define PERF_COSTS_H

#include <stdint.h>
#include <stdio.h>

/* Sums for the straight line through points (bytes, ns), weighted so that relative errors count.
 * Zero it to begin. */
typedef struct perf_line_fit {
    unsigned count;
    double   w, x, y, xx, xy;
} perf_line_fit_t;

void perf_line_fit_add(perf_line_fit_t *fit, uint64_t size, double ns);

/* 0, or -1: fewer than two sizes, or a line that does not rise from above 0. */
int perf_line_fit_solve(const perf_line_fit_t *fit, double *ns_p, double *bytes_per_ns_p);

/* Writes "UCX_MM_LATENCY=..." and so on, a line each, under a heading, if there is a line through
 * eager, and one through get. These are the latencies of messages with these protocols, through
 * shared memory and by single copy. */
void perf_costs_print(const perf_line_fit_t *eager, const perf_line_fit_t *get, FILE *stream);

#endif
