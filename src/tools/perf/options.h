/* Halyard: what the user asked of ucx_perftest.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "session.h"

#include <stdint.h>
#include <stdio.h>

#define PERF_SIZES_MAX    128
#define PERF_PERCENTS_MAX 8
#define PERF_ROUNDS_MAX   1000

typedef enum perf_mode {
    PERF_MODE_SERVER,   /* no host name: waits for a client */
    PERF_MODE_CLIENT,
    PERF_MODE_SELF,     /* --self, -t limits */
    PERF_MODE_LOOPBACK, /* -l */
    PERF_MODE_COMPARE,  /* --compare A B */
    PERF_MODE_HELP
} perf_mode_t;

/* Forms of the results; perf_outputs[] has a row for each. */
typedef enum perf_output {
    PERF_OUTPUT_STDOUT, /* -v */
    PERF_OUTPUT_CSV,
    PERF_OUTPUT_MD,
    PERF_OUTPUT_JSON,
    PERF_OUTPUT_PLOT,
    PERF_OUTPUT_COUNT
} perf_output_t;

typedef struct perf_options {
    perf_mode_t mode;
    int         op;          /* index of the test; -1: none named */
    int         limits_only; /* -t limits */
    int         audit;       /* -t audit: op with every protocol */
    int         has_device;  /* -d */
    const char *host;
    unsigned    port;
    int         ipv6;
    unsigned    use_ranks;   /* -P: be a rank where mpirun has started this */

    uint64_t sizes[PERF_SIZES_MAX];
    unsigned size_count;
    uint64_t iters;          /* 0: as many as the time allows */
    uint64_t warmup;         /* UINT64_MAX: chosen */
    int      cpus[PERF_CPUS_MAX];
    unsigned cpu_count;

    double   percents[PERF_PERCENTS_MAX];
    unsigned percent_count;
    int      quick;
    unsigned rounds;         /* of --self; 0: chosen */
    unsigned timeout_s;      /* of one stage */
    int      timeout_given;

    int         numeric;     /* -N: thousands separated */
    int         final_only;  /* -f */
    int         csv_stdout;  /* -v */
    int         no_text;     /* stdout carries CSV, Markdown or JSON */
    int         quiet;       /* -q */
    int         explain;     /* -X: print what the library says about the endpoint */
    const char *files[PERF_OUTPUT_COUNT]; /* NULL: not wanted; "-": stdout */
    const char *compare[2];
    double      tolerance;   /* --compare, audit: a ratio above this is worse */

    perf_params_t params;    /* what both sides must agree on */

    int    argc;             /* for the record */
    char **argv;

    const char          *batch; /* -b: the tests are those of next and on */
    const char          *label; /* of a batch file's line */
    struct perf_options *next;
} perf_options_t;

/* Reads the command line. Returns PERF_EXIT_OK, or PERF_EXIT_USAGE after an error message. */
int perf_options_parse(int argc, char **argv, perf_options_t *options_p);

/* A batch file's line: adds its options to those of the command line, and checks the whole.
 * Returns 0, or -1 after an error message. */
int perf_options_parse_test(int argc, char **argv, perf_options_t *options);

/* batch.c: reads the file options->batch, checked, as options->next and on. Returns 0, or -1 after
 * an error message. */
int perf_batch_read(perf_options_t *options);

/* Prints the help text. */
void perf_options_help(FILE *file);

/* sizes.c: options->sizes from a list with units and ranges: "8,64,1k" or "8:1m" (powers of two
 * between). Returns 0, or -1 after an error message. */
int perf_sizes_parse(perf_options_t *options, const char *text);

/* The sizes that are taken where -s names none. */
const char *perf_sizes_default(const perf_options_t *options);

#endif
