/* Halyard: what the user asked of ucx_perftest.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "session.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PERF_SIZES_MAX    128
#define PERF_PERCENTS_MAX 8
#define PERF_ROUNDS_MAX   1000

typedef enum perf_mode {
    PERF_MODE_SERVER,  /* no host name: waits for a client */
    PERF_MODE_CLIENT,
    PERF_MODE_SELF,    /* --self, -t limits */
    PERF_MODE_COMPARE, /* --compare A B */
    PERF_MODE_HELP
} perf_mode_t;

typedef struct perf_options {
    perf_mode_t mode;
    int         op;          /* index of the test; -1: none named */
    int         limits_only; /* -t limits */
    const char *host;
    unsigned    port;
    int         ipv6;

    uint64_t sizes[PERF_SIZES_MAX];
    unsigned size_count;     /* 0: the default ones */
    uint64_t iters;          /* 0: as many as the time allows */
    uint64_t warmup;         /* UINT64_MAX: chosen */
    unsigned window;         /* 0: the test's own */
    unsigned threads;
    unsigned thread_mode;    /* ucs_thread_mode_t */
    unsigned am_header;
    uint32_t flags;          /* PERF_FLAG_* */
    uint64_t seed;
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
    int         no_text;     /* stdout carries CSV or JSON */
    int         quiet;       /* -q */
    const char *json;        /* file names; "-": stdout */
    const char *csv;
    const char *plot;
    const char *compare[2];
    double      tolerance;   /* --compare: a ratio above this is worse */

    int    argc;             /* for the record */
    char **argv;
} perf_options_t;

/* Reads the command line. Returns PERF_EXIT_OK, or PERF_EXIT_USAGE after an error message. */
int perf_options_parse(int argc, char **argv, perf_options_t *options_p);

/* Prints the help text. */
void perf_options_help(FILE *file);

/* Fills the parameters that both sides must agree on. The test must be known. Returns 0, or -1
 * after an error message when the sizes do not fit. */
int perf_options_params(const perf_options_t *options, int op, perf_params_t *params_p);

/* sizes.c: a list of sizes with units and ranges: "8,64,1k" or "8:1m" (powers of two between).
 * Returns 0, or -1 after an error message. */
int perf_sizes_parse(const char *text, uint64_t *sizes_p, unsigned capacity, unsigned *count_p);

/* A number from 'min' to 'max'; on error prints what option wanted it. */
int perf_number_parse(const char *option, const char *text, uint64_t min, uint64_t max,
                      uint64_t *value_p);

#endif
