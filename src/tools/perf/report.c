/* Halyard: collection of results, and their way into files.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"
#include "run.h"
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
}

int perf_stdout_check(void)
{
    const char *problem = tool_write_problem(stdout);

    return (problem == NULL) ? 0 : perf_error("cannot write results to standard output: %s",
                                              problem);
}

/* ---- comma-separated values ---- */

/* A number, or nothing where there is none. */
static void put_number(FILE *file, double value)
{
    if (isfinite(value)) {
        fprintf(file, ",%.6g", value);
    } else {
        fputc(',', file);
    }
}

static int write_csv(const perf_report_t *report, FILE *file)
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
    return 0;
}

/* ---- Markdown: a table of GitHub's form, for reports and issues ---- */

/* Text that is not ours, as code: nothing in it is taken for Markdown. */
static void put_code(FILE *file, const char *what, const char *text)
{
    fprintf(file, "- %s: `` ", what);
    for (; *text != '\0'; ++text) {
        fputc(((unsigned char)*text < ' ') || (*text == '`') ? '?' : *text, file);
    }
    fputs(" ``\n", file);
}

static void put_row(const perf_report_t *report, const perf_result_t *result, FILE *file)
{
    const perf_options_t *options = report->options;
    unsigned k;

    fprintf(file, "| %s | %s | %s |", result->test, perf_text_size(result->size).text,
            perf_text_us(result->us).text);
    for (k = 0; k < options->percent_count; ++k) {
        fprintf(file, " %s |",
                perf_text_us((k < result->percent_count) ? result->percent_us[k] : NAN).text);
    }
    fprintf(file, " %s | %s | %s | %s |",
            perf_text_count(result->bandwidth / 1e6, options->numeric).text,
            perf_text_count(result->rate, options->numeric).text, result->limit,
            perf_text_us(result->limit_us).text);
    if (isfinite(result->ratio)) {
        fprintf(file, " %.2f |\n", result->ratio);
    } else {
        fputs(" |\n", file);
    }
}

static int write_md(const perf_report_t *report, FILE *file)
{
    const perf_options_t *options = report->options;
    unsigned i;

    fputs("| test | size | us |", file);
    for (i = 0; i < options->percent_count; ++i) {
        fprintf(file, " %g %% |", options->percents[i]);
    }
    fputs(" MB/s | messages/s | limit | us | ratio |\n|---|--:|--:|", file);
    for (i = 0; i < options->percent_count; ++i) {
        fputs("--:|", file);
    }
    fputs("--:|--:|---|--:|--:|\n", file);
    for (i = 0; i < report->count; ++i) {
        put_row(report, &report->results[i], file);
    }
    fputc('\n', file);
    put_code(file, "processor", report->record.cpu);
    put_code(file, "kernel", report->record.kernel);
    put_code(file, "library", report->record.library);
    put_code(file, "command", report->record.command);
    for (i = 0; i < (unsigned)report->record.env_count; ++i) {
        put_code(file, "environment", report->record.env[i]);
    }
    return 0;
}

/* ---- JSON (RFC 8259): results, start-up and run record ---- */

static void put_record(ucs_report_t *json, const perf_record_t *record)
{
    int i;

    ucs_report_open(json, "record", '{');
    ucs_report_row(json, "date library library_file cpu online_cpus", "%s%s%s%s%d", record->date,
                   record->library, record->library_file, record->cpu, record->online_cpus);
    if (record->cpus[0] != '\0') {
        ucs_report_row(json, "bound_to", "%s", record->cpus);
    } else {
        ucs_report_row(json, "bound_to", "%f", NAN); /* null */
    }
    ucs_report_row(json, "governor kernel command", "%s%s%s", record->governor, record->kernel,
                   record->command);
    ucs_report_open(json, "environment", '[');
    for (i = 0; i < record->env_count; ++i) {
        ucs_report_row(json, "=", "%s", record->env[i]);
    }
    ucs_report_close(json);
    ucs_report_close(json);
}

static void put_result(ucs_report_t *json, const perf_options_t *options,
                       const perf_result_t *result)
{
    static const char *const kinds[] = {[PERF_KIND_LATENCY] = "latency",
                                        [PERF_KIND_BANDWIDTH] = "bandwidth",
                                        [PERF_KIND_RATE] = "rate", [PERF_KIND_LIMIT] = "limit"};
    char name[32];
    unsigned i;

    ucs_report_open(json, NULL, '{');
    ucs_report_row(json,
                   "test kind size window threads iterations rounds disturbed us us_best "
                   "bytes_per_second messages_per_second",
                   "%s%s%llu%u%u%llu%u%u%f%f%f%f", result->test, kinds[result->kind],
                   (unsigned long long)result->size, result->window, result->threads,
                   (unsigned long long)result->iterations, result->rounds, result->disturbed,
                   result->us, result->us_best, result->bandwidth, result->rate);
    if (result->percent_count > 0) {
        ucs_report_open(json, "percentiles", '{');
        for (i = 0; i < result->percent_count; ++i) {
            snprintf(name, sizeof(name), "%g", options->percents[i]);
            ucs_report_row(json, name, "%f", result->percent_us[i]);
        }
        ucs_report_close(json);
    }
    if (result->limit[0] != '\0') {
        ucs_report_row(json, "limit limit_us limit_us_best ratio ratio_best", "%s%f%f%f%f",
                       result->limit, result->limit_us, result->limit_best, result->ratio,
                       result->ratio_best);
    }
    ucs_report_row(json, "validated? unreliable?", "%d%d", result->validated, result->unreliable);
    ucs_report_close(json);
}

static int write_json(const perf_report_t *report, FILE *file)
{
    ucs_report_t json;
    unsigned i;

    ucs_report_init(&json, file, 1);
    ucs_report_open(&json, NULL, '{');
    ucs_report_row(&json, "format", "%s", PERF_FORMAT);
    put_record(&json, &report->record);
    ucs_report_row(&json, "statistic", "%s", report->statistic);
    perf_startup_put(report, &json);
    ucs_report_open(&json, "results", '[');
    for (i = 0; i < report->count; ++i) {
        put_result(&json, report->options, &report->results[i]);
    }
    ucs_report_close(&json);
    ucs_report_close(&json);
    return 0;
}

/* ---- all of them ---- */

const perf_output_row_t perf_outputs[PERF_OUTPUT_COUNT] = {
    [PERF_OUTPUT_STDOUT] = {"-v", write_csv},
    [PERF_OUTPUT_CSV]    = {"--csv", write_csv},
    [PERF_OUTPUT_MD]     = {"--md", write_md},
    [PERF_OUTPUT_JSON]   = {"--json", write_json},
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
