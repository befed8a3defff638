/* Halyard: tables for people.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static int progress_shown = 0;

perf_text_t perf_text_size(uint64_t size)
{
    static const char *const units[] = {"", "K", "M", "G"};
    unsigned unit                    = 0;
    perf_text_t text;

    while ((size >= 1024) && (size % 1024 == 0) && (unit < 3)) {
        size /= 1024;
        ++unit;
    }
    snprintf(text.text, sizeof(text.text), "%llu%s", (unsigned long long)size, units[unit]);
    return text;
}

/* Three digits that mean something; "-" for what was not measured. */
perf_text_t perf_text_us(double us)
{
    perf_text_t text = {"-"};

    if (isfinite(us)) {
        snprintf(text.text, sizeof(text.text),
                 (us < 9.9995) ? "%.3f" : (us < 99.995) ? "%.2f" : "%.1f", us);
    }
    return text;
}

perf_text_t perf_text_count(double value, int thousands)
{
    perf_text_t text = {"-"};
    char plain[32];
    size_t length, i, out = 0;

    if (!isfinite(value)) {
        return text;
    }
    snprintf(plain, sizeof(plain), "%.0f", value);
    length = strlen(plain);
    for (i = 0; (i < length) && (out < sizeof(text.text) - 2); ++i) {
        if (thousands && (i > 0) && ((length - i) % 3 == 0)) {
            text.text[out++] = ',';
        }
        text.text[out++] = plain[i];
    }
    text.text[out] = '\0';
    return text;
}

void perf_text_progress(const perf_options_t *options, const char *format, ...)
{
    va_list args;

    if (options->quiet || !isatty(STDERR_FILENO)) {
        return;
    }
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
    progress_shown = 1;
}

void perf_text_progress_end(void)
{
    if (progress_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress_shown = 0;
    }
}

void perf_text_record(const perf_report_t *report)
{
    const perf_record_t *record = &report->record;
    int i;

    printf("# %s, libucp %s%s%s%s\n", record->date, record->library,
           (record->library_file[0] != '\0') ? " (" : "", record->library_file,
           (record->library_file[0] != '\0') ? ")" : "");
    printf("# %s, %d processors, %s%s%s\n", record->cpu, record->online_cpus, record->kernel,
           (record->governor[0] != '\0') ? ", governor " : "", record->governor);
    if (record->cpus[0] != '\0') {
        printf("# bound to processors %s\n", record->cpus);
    } else {
        printf("# not bound to processors (-c)\n");
    }
    for (i = 0; i < record->env_count; ++i) {
        printf("# %s\n", record->env[i]);
    }
}

/* Which line of a batch file. */
static void print_label(const perf_options_t *options)
{
    if (options->label != NULL) {
        printf("%-16s ", options->label);
    }
}

void perf_text_head(const perf_report_t *report)
{
    const perf_options_t *options = report->options;
    const perf_op_t *op           = &perf_ops[options->op];
    char name[16];
    unsigned i;

    if (options->final_only || options->no_text) {
        return;
    }
    if (!options->quiet) {
        perf_text_record(report);
    }
    printf("# %s: %s; %s\n", op->name, op->what, report->statistic);
    print_label(options);
    printf("%8s %12s %10s", "size", "iterations",
           (op->kind == PERF_KIND_LATENCY) ? "latency us" : "us a msg");
    for (i = 0; (op->kind == PERF_KIND_LATENCY) && (i < options->percent_count); ++i) {
        snprintf(name, sizeof(name), "p%g", options->percents[i]);
        printf(" %9s", name);
    }
    printf(" %12s %14s\n", "MB/s", "messages/s");
}

void perf_text_row(const perf_report_t *report, const perf_result_t *result)
{
    const perf_options_t *options = report->options;
    unsigned i;

    if (options->no_text) {
        return;
    }
    print_label(options);
    printf("%8s ", options->final_only ? perf_text_count((double)result->size, 0).text :
                                         perf_text_size(result->size).text);
    printf("%12s ", perf_text_count((double)result->iterations, options->numeric).text);
    printf("%10s", perf_text_us(result->us).text);
    for (i = 0; i < result->percent_count; ++i) {
        printf(" %9s", perf_text_us(result->percent_us[i]).text);
    }
    printf(" %12.2f ", result->bandwidth / 1e6);
    printf("%14s\n", perf_text_count(result->rate, options->numeric).text);
    fflush(stdout);
}
