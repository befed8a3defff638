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

const perf_output_row_t perf_outputs[PERF_OUTPUT_COUNT] = {
    [PERF_OUTPUT_STDOUT] = {"-v", perf_csv_write},
    [PERF_OUTPUT_CSV]    = {"--csv", perf_csv_write},
    [PERF_OUTPUT_MD]     = {"--md", perf_md_write},
    [PERF_OUTPUT_JSON]   = {"--json", perf_json_write},
    [PERF_OUTPUT_PLOT]   = {"--plot", perf_plot_write},
};

/* One form; standard output is checked when all is written. */
static int write_output(const perf_report_t *report, perf_output_t output)
{
    const char *name = report->options->files[output];
    const char *problem;
    FILE *file;
    int status;

    if (strcmp(name, "-") == 0) {
        return perf_outputs[output].write(report, stdout);
    }
    file = fopen(name, "w");
    if (file == NULL) {
        return perf_error("cannot write %s: %s", name, strerror(errno));
    }
    status  = perf_outputs[output].write(report, file);
    problem = tool_write_problem(file);
    if ((fclose(file) != 0) && (problem == NULL)) {
        problem = strerror(errno);
    }
    return (problem == NULL) ? status : perf_error("cannot write %s: %s", name, problem);
}

int perf_report_write(const perf_report_t *report)
{
    int status = 0;
    unsigned i;

    for (i = 0; i < PERF_OUTPUT_COUNT; ++i) {
        if (report->options->files[i] != NULL) {
            status |= write_output(report, (perf_output_t)i);
        }
    }
    return (perf_stdout_check() == 0) ? status : -1;
}
