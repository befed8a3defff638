/* Halyard: a picture of the results, drawn by gnuplot.
 *
 * The data travel in the script itself, which is a file in memory: nothing is left behind.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SERIES_MAX 32

/* In gnuplot's single quotes only the quote itself is special. */
static void put_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text != '\0'; ++text) {
        if (*text == '\'') {
            fputc('\'', script);
        }
        fputc((*text == '\n') ? ' ' : *text, script);
    }
    fputc('\'', script);
}

/* The tests in the report, each by its first result. */
static unsigned find_series(const perf_report_t *report, const perf_result_t **series)
{
    unsigned count = 0, i, k;

    for (i = 0; i < report->count; ++i) {
        for (k = 0; (k < count) && (strcmp(series[k]->test, report->results[i].test) != 0); ++k) {
        }
        if ((k == count) && (count < SERIES_MAX)) {
            series[count++] = &report->results[i];
        }
    }
    return count;
}

/* A size of 0 has no place on a logarithmic axis. Where sizes start again (the table measures some
 * limits twice) an empty line keeps gnuplot from drawing back. */
static void put_data(FILE *script, const perf_report_t *report, const char *test, unsigned index)
{
    uint64_t last = 0;
    unsigned i;

    fprintf(script, "$data%u << EOD\n", index);
    for (i = 0; i < report->count; ++i) {
        const perf_result_t *result = &report->results[i];

        if ((strcmp(result->test, test) == 0) && (result->size > 0) &&
            isfinite(result->us)) {
            fprintf(script, "%s%llu %.6g %.6g\n", (result->size <= last) ? "\n" : "",
                    (unsigned long long)result->size, result->us, result->bandwidth / 1e9);
            last = result->size;
        }
    }
    fputs("EOD\n", script);
}

static int is_bandwidth(const perf_result_t *series)
{
    return (series->kind == PERF_KIND_BANDWIDTH) || (series->kind == PERF_KIND_RATE) ||
           (strcmp(series->test, "ring stream") == 0);
}

/* One panel: times, or bandwidths. */
static void put_panel(FILE *script, const perf_result_t *const *series, unsigned count,
                      int bandwidth)
{
    const char *separator = "plot";
    unsigned i;

    fprintf(script, "set ylabel '%s'\n", bandwidth ? "GB/s" : "microseconds, one way");
    for (i = 0; i < count; ++i) {
        if (is_bandwidth(series[i]) != bandwidth) {
            continue;
        }
        fprintf(script, "%s $data%u using 1:%d with linespoints %s title ", separator, i,
                bandwidth ? 3 : 2,
                (series[i]->kind == PERF_KIND_LIMIT) ? "dashtype 2 pointsize 0.5" : "linewidth 2");
        put_quoted(script, series[i]->test);
        separator = ",";
    }
    fputc('\n', script);
}

static void put_script(FILE *script, const perf_report_t *report, const char *name)
{
    int is_svg = strcmp(name + strlen(name) - 4, ".svg") == 0, has_both;
    unsigned panels[2] = {0, 0}, count, i;
    const perf_result_t *series[SERIES_MAX];
    char title[256];

    count = find_series(report, series);
    for (i = 0; i < count; ++i) {
        ++panels[is_bandwidth(series[i])];
        put_data(script, report, series[i]->test, i);
    }
    snprintf(title, sizeof(title), "libucp %.60s, %.120s", report->record.library,
             report->record.cpu);
    has_both = (panels[0] > 0) && (panels[1] > 0);
    fprintf(script, "set terminal %s size 1000,%d\nset multiplot layout %d,1 title ",
            is_svg ? "svg" : "png", has_both ? 1000 : 560, has_both ? 2 : 1);
    put_quoted(script, title);
    fputs(" noenhanced\nset key left top noenhanced\nset grid\nset logscale x 2\n"
          "set logscale y 10\nset format x '%.0b%B'\nset xlabel 'message size, bytes'\n", script);
    for (i = 0; i < 2; ++i) {
        if (panels[i] > 0) {
            put_panel(script, series, count, (int)i);
        }
    }
    fputs("unset multiplot\n", script);
}

int perf_plot_check(const perf_options_t *options)
{
    const char *name = options->files[PERF_OUTPUT_PLOT];

    if ((name == NULL) || (system("command -v gnuplot > /dev/null") == 0)) {
        return 0;
    }
    return perf_error("--plot %s: gnuplot is not installed (Debian: gnuplot-nox); --csv gives the "
                      "figures", name);
}

/* What gnuplot draws goes to the file through us: it does not look whether its writes succeed. */
static int draw(int script_fd, FILE *picture)
{
    char command[64], bytes[4096];
    size_t count;
    FILE *drawn;

    snprintf(command, sizeof(command), "exec gnuplot - < /proc/self/fd/%d", script_fd);
    drawn = popen(command, "re");
    if (drawn == NULL) {
        return -1;
    }
    while ((count = fread(bytes, 1, sizeof(bytes), drawn)) > 0) {
        (void)fwrite(bytes, 1, count, picture);
    }
    return pclose(drawn);
}

int perf_plot_write(const perf_report_t *report, FILE *picture)
{
    const char *name = report->options->files[PERF_OUTPUT_PLOT];
    int status       = -1;
    FILE *script;

    script = fdopen(memfd_create("gnuplot", 0), "w");
    if (script != NULL) {
        put_script(script, report, name);
        status = (fflush(script) == 0) ? draw(fileno(script), picture) : -1;
        fclose(script);
    }
    return (status == 0) ? 0 : perf_error("--plot %s: gnuplot failed", name);
}
