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
    result  = &report->results[report->count++];
    *result = (perf_result_t) {.kind = kind, .size = size, .threads = 1, .us = NAN,
                               .us_best = NAN, .bandwidth = NAN, .rate = NAN, .limit_us = NAN,
                               .limit_best = NAN, .ratio = NAN, .ratio_best = NAN};
    strncpy(result->test, test, sizeof(result->test) - 1);
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

/* One form of the results; standard output is checked when all is written. */
typedef struct output {
    const char *name; /* NULL: not wanted; "-": standard output */
    void      (*write)(const perf_report_t *report, FILE *file);
} output_t;

static int write_output(const perf_report_t *report, const output_t *output)
{
    FILE *file;

    if (output->name == NULL) {
        return 0;
    }
    if (strcmp(output->name, "-") == 0) {
        output->write(report, stdout);
        return 0;
    }
    file = perf_file_open(output->name);
    if (file == NULL) {
        return -1;
    }
    output->write(report, file);
    return perf_file_close(file, output->name);
}

int perf_report_write(const perf_report_t *report)
{
    const perf_options_t *options = report->options;
    const output_t outputs[]      = {{options->csv_stdout ? "-" : NULL, perf_csv_write},
                                     {options->csv, perf_csv_write},
                                     {options->md, perf_md_write},
                                     {options->json, perf_json_write}};
    int status = 0;
    unsigned i;

    for (i = 0; i < sizeof(outputs) / sizeof(outputs[0]); ++i) {
        status |= write_output(report, &outputs[i]);
    }
    if (options->plot != NULL) {
        status |= perf_plot_write(report, options->plot);
    }
    return (perf_stdout_check() == 0) ? status : -1;
}
