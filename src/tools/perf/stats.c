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

void perf_sort(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare_double);
}

double perf_median(double *values, size_t n)
{
    if (n == 0) {
        return NAN;
    }
    perf_sort(values, n);
    return (n % 2) ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double perf_percentile(const double *sorted, size_t n, double percent)
{
    /* Where the rank is a whole number, what doubles lack must not make it the next one. */
    const double rank = ceil(percent / 100 * (double)n - 1e-6);

    return sorted[(size_t)fmin(fmax(rank, 1), (double)n) - 1];
}
