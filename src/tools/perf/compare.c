/* Halyard: ratios of two JSON files of this tool.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "json.h"
#include "report.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    char   test[24];
    double size, window, threads;
    double us;
    double ratio; /* to the limit; NaN if none */
    int    found; /* compared already */
} entry_t;

typedef struct results {
    entry_t entries[PERF_RESULTS_MAX];
    size_t  count;
    int     known_format;
    char    library[64];
} results_t;

/* What the file holds up to a NUL, which no JSON has; the caller frees it. NULL after an error
 * message. */
static char *read_file(const char *name)
{
    FILE *file  = fopen(name, "r");
    char *text  = NULL;
    size_t size = 0;

    if ((file == NULL) || (getdelim(&text, &size, '\0', file) < 0)) {
        perf_error("cannot read %s", name);
        free(text);
        text = NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Called for each value of the file, with its path such as "results.3.us"; text: of a string. */
static void take_value(void *arg, const char *path, const char *text, double number)
{
    static const struct {
        const char *name;
        size_t      field;
    } numbers[] = {{"size", offsetof(entry_t, size)},       {"window", offsetof(entry_t, window)},
                   {"threads", offsetof(entry_t, threads)}, {"us", offsetof(entry_t, us)},
                   {"ratio", offsetof(entry_t, ratio)}};
    results_t *results = arg;
    unsigned long index;
    entry_t *entry;
    char *field;
    unsigned i;

    if ((strcmp(path, "format") == 0) && (text != NULL)) {
        results->known_format = strcmp(text, "halyard-perftest-1") == 0;
    } else if ((strcmp(path, "record.library") == 0) && (text != NULL)) {
        snprintf(results->library, sizeof(results->library), "%s", text);
    }
    if (strncmp(path, "results.", 8) != 0) {
        return;
    }
    index = strtoul(path + 8, &field, 10);
    if ((*field != '.') || (index >= PERF_RESULTS_MAX)) {
        return;
    }
    ++field;
    entry = &results->entries[index];
    while (results->count <= index) {
        results->entries[results->count++] = (entry_t) {.us = NAN, .ratio = NAN};
    }
    if ((text != NULL) && (strcmp(field, "test") == 0)) {
        snprintf(entry->test, sizeof(entry->test), "%s", text);
    }
    for (i = 0; (text == NULL) && (i < sizeof(numbers) / sizeof(numbers[0])); ++i) {
        if (strcmp(field, numbers[i].name) == 0) {
            *(double *)((char *)entry + numbers[i].field) = number;
        }
    }
}

static results_t *load(const char *name)
{
    results_t *results = calloc(1, sizeof(*results));
    char *text         = read_file(name);
    const char *problem;

    if ((results == NULL) || (text == NULL)) {
        free(results);
        free(text);
        return NULL;
    }
    problem = perf_json_parse(text, take_value, results);
    free(text);
    if ((problem == NULL) && !results->known_format) {
        problem = "it is not a result of `ucx_perftest --json`";
    }
    if (problem != NULL) {
        perf_error("%s: %s", name, problem);
        free(results);
        return NULL;
    }
    return results;
}

/* The first like it that was not found before: a table measures some limits twice. */
static const entry_t *find(results_t *results, const entry_t *like)
{
    entry_t *entry;
    size_t i;

    for (i = 0; i < results->count; ++i) {
        entry = &results->entries[i];
        if (!entry->found && (strcmp(entry->test, like->test) == 0) &&
            (entry->size == like->size) && (entry->window == like->window) &&
            (entry->threads == like->threads)) {
            entry->found = 1;
            return entry;
        }
    }
    return NULL;
}

/* Prints the table. Returns how many common results are worse in B, or -1 if none is common. */
static int print_ratios(const results_t *a, results_t *b, double tolerance)
{
    char size[24], us_a[24], us_b[24], ratio_a[24], ratio_b[24];
    int common = 0, worse = 0, is_worse;
    const entry_t *old, *now;
    size_t i;

    printf("%-14s %8s %10s %10s %8s   %s\n", "test", "size", "A us", "B us", "B / A",
           "times the limit, A and B");
    for (i = 0; i < a->count; ++i) {
        old = &a->entries[i];
        now = find(b, old);
        if ((now == NULL) || !isfinite(old->us) || !isfinite(now->us) || (old->us <= 0)) {
            continue;
        }
        ++common;
        is_worse = now->us / old->us > tolerance;
        worse   += is_worse;
        printf("%-14s %8s %10s %10s %8.3f   %6s %6s%s\n", old->test,
               perf_text_size((uint64_t)old->size, size), perf_text_us(old->us, us_a),
               perf_text_us(now->us, us_b), now->us / old->us, perf_text_us(old->ratio, ratio_a),
               perf_text_us(now->ratio, ratio_b), is_worse ? "  worse" : "");
    }
    return (common == 0) ? -1 : worse;
}

int perf_compare(const perf_options_t *options)
{
    results_t *a = load(options->compare[0]);
    results_t *b = load(options->compare[1]);
    int worse    = -1;

    if ((a != NULL) && (b != NULL)) {
        printf("# A: %s (libucp %s)\n# B: %s (libucp %s)\n", options->compare[0], a->library,
               options->compare[1], b->library);
        worse = print_ratios(a, b, options->tolerance);
        if (worse < 0) {
            perf_error("the two files have no result in common");
        } else {
            printf("# %d worse than %g times\n", worse, options->tolerance);
        }
    }
    free(a);
    free(b);
    return ((perf_stdout_check() == 0) && (worse == 0)) ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}
