/* Halyard: median and percentiles.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_double(const void *left, const void *right)
{
    double a = *(const double*)left, b = *(const double*)right;

    return (a > b) - (a < b);
}

static int compare_sample(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t*)left, b = *(const uint32_t*)right;

    return (a > b) - (a < b);
}

double perf_median(double *values, size_t n)
{
    if (n == 0) {
        return NAN;
    }
    qsort(values, n, sizeof(*values), compare_double);
    return (n % 2) ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void perf_sort_samples(uint32_t *samples, size_t n)
{
    qsort(samples, n, sizeof(*samples), compare_sample);
}

uint32_t perf_percentile(const uint32_t *sorted, size_t n, double percent)
{
    double rank = ceil(percent / 100 * (double)n);

    if (rank < 1) {
        rank = 1;
    }
    if (rank > (double)n) {
        rank = (double)n;
    }
    return sorted[(size_t)rank - 1];
}
