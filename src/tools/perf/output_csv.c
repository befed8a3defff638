/* Halyard: results as comma-separated values, one line a result.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"

#include <math.h>

/* A number, or nothing where there is none. */
static void put_number(FILE *file, double value)
{
    if (isfinite(value)) {
        fprintf(file, ",%.6g", value);
    } else {
        fputc(',', file);
    }
}

void perf_csv_write(const perf_report_t *report, FILE *file)
{
    const perf_options_t *options = report->options;
    const perf_result_t *result;
    unsigned i, k;

    fputs("test,size,window,threads,iterations,rounds,disturbed,us,us_best", file);
    for (k = 0; k < options->percent_count; ++k) {
        fprintf(file, ",p%g_us", options->percents[k]);
    }
    fputs(",bandwidth_MBps,rate_mps,limit,limit_us,limit_us_best,ratio,ratio_best,validated\n",
          file);
    for (i = 0; i < report->count; ++i) {
        result = &report->results[i];
        fprintf(file, "%s,%llu,%u,%u,%llu,%u,%u", result->test,
                (unsigned long long)result->size, result->window, result->threads,
                (unsigned long long)result->iterations, result->rounds, result->disturbed);
        put_number(file, result->us);
        put_number(file, result->us_best);
        for (k = 0; k < options->percent_count; ++k) {
            put_number(file, (k < result->percent_count) ? result->percent_us[k] : NAN);
        }
        put_number(file, result->bandwidth / 1e6);
        put_number(file, result->rate);
        fprintf(file, ",%s", result->limit);
        put_number(file, result->limit_us);
        put_number(file, result->limit_best);
        put_number(file, result->ratio);
        put_number(file, result->ratio_best);
        fprintf(file, ",%d\n", result->validated);
    }
}
