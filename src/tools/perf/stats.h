/* Halyard: the statistics that ucx_perftest reports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Median of n values; sorts them in place, smallest first. NaN when n is 0. */
double perf_median(double *values, size_t n);

/* Sorts n samples in place; afterwards perf_percentile() can be asked. */
void perf_sort_samples(uint32_t *samples, size_t n);

/* The sample at or below which `percent` (0 to 100) of the n sorted samples lie (nearest rank).
 * n must not be 0. */
uint32_t perf_percentile(const uint32_t *sorted, size_t n, double percent);

#endif
