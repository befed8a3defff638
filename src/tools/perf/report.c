/* Halyard: collection of results, and their way into files.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"
#include "tools/stdout.h"
#include "watch.h"

#include <errno.h>
#include <math.h>
#include <string.h>

perf_result_t *perf_report_add(perf_report_t *report, const char *test, perf_kind_t kind,
                               uint64_t size)
{
    perf_result_t *result;

    if (report->count == PERF_RESULTS_MAX) {
        perf_error("more than %d results", PERF_RESULTS_MAX);
        return NULL;
    }
    result = &report->results[report->count++];
    memset(result, 0, sizeof(*result));
    strncpy(result->test, test, sizeof(result->test) - 1);
    result->kind      = kind;
    result->size      = size;
    result->threads   = 1;
    result->us        = NAN;
    result->us_best   = NAN;
    result->bandwidth = NAN;
    result->rate      = NAN;
    result->limit_us  = NAN;
    result->limit_best = NAN;
    result->ratio     = NAN;
    result->ratio_best = NAN;
    return result;
}

void perf_result_finish(perf_result_t *result)
{
    if (result->us > 0) {
        result->rate      = 1e6 / result->us;
        result->bandwidth = (double)result->size * result->rate;
    }
    if (result->limit[0] != '\0') {
        result->ratio      = result->us / result->limit_us;
        result->ratio_best = result->us_best / result->limit_best;
    }
}

int perf_stdout_check(void)
{
    const char *problem = tool_write_problem(stdout);

    return (problem == NULL) ? 0 : perf_error("cannot write results to standard output: %s",
                                              problem);
}

FILE *perf_file_open(const char *name)
{
    FILE *file = fopen(name, "w");

    if (file == NULL) {
        perf_error("cannot write %s: %s", name, strerror(errno));
    }
    return file;
}

int perf_file_close(FILE *file, const char *name)
{
    const char *problem = tool_write_problem(file);

    if ((fclose(file) != 0) && (problem == NULL)) {
        problem = strerror(errno);
    }
    return (problem == NULL) ? 0 : perf_error("cannot write %s: %s", name, problem);
}

/* Lets `write` fill the file; standard output is checked when all is written. */
static int write_file(const perf_report_t *report, const char *name,
                      void (*write)(const perf_report_t*, FILE*))
{
    FILE *file;

    if (strcmp(name, "-") == 0) {
        write(report, stdout);
        return 0;
    }
    file = perf_file_open(name);
    if (file == NULL) {
        return -1;
    }
    write(report, file);
    return perf_file_close(file, name);
}

int perf_report_write(const perf_report_t *report)
{
    const perf_options_t *options = report->options;
    int status                    = 0;

    if (options->csv_stdout && (write_file(report, "-", perf_csv_write) != 0)) {
        status = -1;
    }
    if ((options->csv != NULL) && (write_file(report, options->csv, perf_csv_write) != 0)) {
        status = -1;
    }
    if ((options->md != NULL) && (write_file(report, options->md, perf_md_write) != 0)) {
        status = -1;
    }
    if ((options->json != NULL) && (write_file(report, options->json, perf_json_write) != 0)) {
        status = -1;
    }
    if ((options->plot != NULL) && (perf_plot_write(report, options->plot) != 0)) {
        status = -1;
    }
    return (perf_stdout_check() == 0) ? status : -1;
}
