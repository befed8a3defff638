/* Halyard: what one call of ucx_perftest found, and the forms in which it is written.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "options.h"
#include "ops.h"
#include "shared.h"

#include <stdint.h>
#include <stdio.h>

#define PERF_RESULTS_MAX 2048 /* more than one test has, a table of the most sizes included */
#define PERF_ENV_MAX     64
#define PERF_NAME_MAX    64 /* bytes of a test's name */

#define PERF_FORMAT "halyard-perftest-1" /* of JSON */

/* One test or limit at one size. Times are microseconds of one message, one way. Fields that do
 * not apply are NaN, 0 or empty. */
typedef struct perf_result {
    char        test[PERF_NAME_MAX];
    perf_kind_t kind;
    uint64_t    size;
    unsigned    window, threads;
    uint64_t    iterations;
    unsigned    rounds;         /* that the statistic is made of */
    unsigned    disturbed;      /* rounds thrown away since the kernel preempted a process */
    double      us;             /* median of the rounds; with one test: the mean over all */
    double      us_best;        /* best round */
    double      bandwidth;      /* bytes a second, from us */
    double      rate;           /* messages a second, from us */
    unsigned    percent_count;  /* 0, or as many as the options name */
    double      percent_us[PERF_PERCENTS_MAX];
    char        limit[24];      /* the limit that applies; empty: none */
    double      limit_us, limit_best;
    double      ratio;          /* us / limit_us */
    double      ratio_best;     /* us_best / limit_best */
    int         validated;
    int         unreliable;     /* too few undisturbed rounds */
} perf_result_t;

/* Where and with what the figures were taken. */
typedef struct perf_record {
    char date[32];         /* UTC, ISO 8601 */
    char cpu[128];
    char kernel[160];
    char governor[32];
    char library[64];      /* version that libucp reports */
    char library_file[256];
    char cpus[64];         /* processors used */
    char command[512];
    int  online_cpus;
    int  env_count;        /* UCX_* variables; strings of the environment itself */
    const char *env[PERF_ENV_MAX];
} perf_record_t;

typedef struct perf_report {
    const perf_options_t *options;
    const char    *statistic; /* how `us` was taken */
    perf_record_t  record;
    perf_result_t  results[PERF_RESULTS_MAX];
    unsigned       count;
    double         startup[PERF_STARTUP_COUNT]; /* medians */
    unsigned       startup_runs; /* 0: not measured */
    unsigned       worse;     /* sizes at which an audit found a better protocol */
} perf_report_t;

/* record.c: fills the record; cpus[] are those in use, count 0 when not bound. */
void perf_record_fill(perf_record_t *record_p, const perf_options_t *options, const int *cpus,
                      unsigned count);

/* Appends a cleared result and returns it; NULL when full. */
perf_result_t *perf_report_add(perf_report_t *report, const char *test, perf_kind_t kind,
                               uint64_t size);

/* Derives bandwidth and rate from the time. */
void perf_result_finish(perf_result_t *result);

/* A form of the results, by perf_output_t: the option that wants it, and what writes it, which
 * returns 0, or -1 after an error message; the caller looks for errors of the file. */
typedef struct perf_output_row {
    const char *option;
    int       (*write)(const perf_report_t *report, FILE *file);
} perf_output_row_t;

extern const perf_output_row_t perf_outputs[PERF_OUTPUT_COUNT];

/* Returns 0, or -1 after an error message if something that was printed did not get there. */
int perf_stdout_check(void);

/* Writes what the options ask for, and checks standard output. Returns 0, or -1 after an error
 * message. */
int perf_report_write(const perf_report_t *report);

/* output_text.c */
void perf_text_head(const perf_report_t *report);       /* of a single test */
void perf_text_row(const perf_report_t *report, const perf_result_t *result);
void perf_text_record(const perf_report_t *report);     /* "measured with" */
void perf_text_progress(const perf_options_t *options, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
void perf_text_progress_end(void);

/* A number as text. */
typedef struct perf_text {
    char text[32];
} perf_text_t;

perf_text_t perf_text_size(uint64_t size); /* 64, 8K, 1M */
perf_text_t perf_text_us(double us);
perf_text_t perf_text_count(double value, int thousands);

/* plot.c: 0, or -1 after an error message. The check is for the beginning: is gnuplot there, if it
 * is to draw? */
int perf_plot_check(const perf_options_t *options);
int perf_plot_write(const perf_report_t *report, FILE *picture);

/* compare.c: table of ratios of two JSON files. Returns an exit code. */
int perf_compare(const perf_options_t *options);

#endif
