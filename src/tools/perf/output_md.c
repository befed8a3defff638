/* Halyard: results as a Markdown table (GitHub's form), for reports and issues.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"

#include <math.h>

/* Text that is not ours, as code: nothing in it is taken for Markdown. */
static void put_code(FILE *file, const char *what, const char *text)
{
    fprintf(file, "- %s: `` ", what);
    for (; *text != '\0'; ++text) {
        fputc(((unsigned char)*text < ' ') || (*text == '`') ? '?' : *text, file);
    }
    fputs(" ``\n", file);
}

static void put_us(FILE *file, double us)
{
    char text[24];

    fprintf(file, " %s |", perf_text_us(us, text));
}

static void put_row(const perf_report_t *report, const perf_result_t *result, FILE *file)
{
    const perf_options_t *options = report->options;
    char text[32];
    unsigned k;

    fprintf(file, "| %s | %s |", result->test, perf_text_size(result->size, text));
    put_us(file, result->us);
    for (k = 0; k < options->percent_count; ++k) {
        put_us(file, (k < result->percent_count) ? result->percent_us[k] : NAN);
    }
    fprintf(file, " %s |", perf_text_count(result->bandwidth / 1e6, options->numeric, text));
    fprintf(file, " %s | %s |", perf_text_count(result->rate, options->numeric, text),
            result->limit);
    put_us(file, result->limit_us);
    if (isfinite(result->ratio)) {
        fprintf(file, " %.2f |\n", result->ratio);
    } else {
        fputs(" |\n", file);
    }
}

void perf_md_write(const perf_report_t *report, FILE *file)
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
}
