/* Halyard: the statistics that ucx_perftest reports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>

/* Median of n values; sorts them in place, smallest first. NaN when n is 0. */
double perf_median(double *values, size_t n);

/* Sorts n values in place; afterwards perf_percentile() can be asked. */
void perf_sort(double *values, size_t n);

/* The value at or below which `percent` (0 to 100) of the n sorted values lie (nearest rank).
 * n must not be 0. */
double perf_percentile(const double *sorted, size_t n, double percent);

#endif
