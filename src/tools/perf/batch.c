/* Halyard: batch files (-b): a test a line, its name first, then options as on the command line.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "options.h"
#include "report.h"
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

/* A line is about the test only: who runs it, where and with which output is the command line's. */
static int is_about_test(const perf_options_t *line, const perf_options_t *all)
{
    return (line->mode == all->mode) && (line->host == all->host) && (line->port == all->port) &&
           (line->ipv6 == all->ipv6) && (line->timeout_s == all->timeout_s) &&
           (line->use_ranks == all->use_ranks) && (line->cpu_count == all->cpu_count) &&
           (memcmp(line->cpus, all->cpus, sizeof(all->cpus)) == 0) &&
           (line->percent_count == all->percent_count) &&
           (memcmp(line->percents, all->percents, sizeof(all->percents)) == 0) &&
           (memcmp(line->files, all->files, sizeof(all->files)) == 0) &&
           (line->csv_stdout == all->csv_stdout);
}

/* Reads the test of one line, which lives as long as the process. NULL after an error message. */
static perf_options_t *parse_line(const perf_options_t *all, char *text)
{
    perf_options_t *test = malloc(sizeof(*test));
    char *words[WORDS_MAX + 1] = {NULL};
    char *rest;
    int count = 0;

    if (test == NULL) {
        perf_error("no memory for a batch file");
        return NULL;
    }
    for (words[0] = strtok_r(text, " \t\r\n", &rest);
         (words[count] != NULL) && (++count < WORDS_MAX);
         words[count] = strtok_r(NULL, " \t\r\n", &rest)) {
    }
    *test       = *all;
    test->label = words[0];
    if (count == WORDS_MAX) {
        perf_error("more than %d words", WORDS_MAX - 1);
    } else if (strpbrk(words[0], ",|\"") != NULL) { /* it stands in tables */
        perf_error("a test's name has none of , | \", as '%s' has", words[0]);
    } else if (strlen(words[0]) >= PERF_NAME_MAX) {
        perf_error("a test's name has at most %d characters", PERF_NAME_MAX - 1);
    } else if (perf_options_parse_test(count, words, test) == 0) {
        if ((test->op >= 0) && is_about_test(test, all)) {
            return test;
        }
        perf_error("a test needs -t, and options that say what to measure");
    }
    free(test);
    return NULL;
}

int perf_batch_read(perf_options_t *options)
{
    perf_options_t all    = *options;
    perf_options_t **next = &options->next;
    unsigned number = 0, results = 0;
    size_t size           = 0;
    char *text            = NULL;
    FILE *file            = fopen(options->batch, "r");
    int status            = 0;

    if (file == NULL) {
        return perf_error("cannot read %s: %s", options->batch, strerror(errno));
    }
    while (getline(&text, &size, file) > 0) {
        ++number;
        if (strchr("#", text[strspn(text, " \t\r\n")]) != NULL) { /* nothing, or a comment */
            continue;
        }
        *next = parse_line(&all, text);
        if (*next != NULL) {
            results += (*next)->size_count * (*next)->params.variants;
        }
        if (results > PERF_RESULTS_MAX) {
            perf_error("more than %d results", PERF_RESULTS_MAX);
        }
        if ((*next == NULL) || (results > PERF_RESULTS_MAX)) {
            status = perf_error("in line %u of %s", number, options->batch);
            break;
        }
        if ((*next)->params.threads > options->params.threads) {
            options->params.threads = (*next)->params.threads;
        }
        next = &(*next)->next;
        text = NULL; /* its words are in use */
        size = 0;
    }
    if ((status == 0) && (ferror(file) || (options->next == NULL))) {
        status = perf_error(ferror(file) ? "cannot read %s" : "%s holds no test", options->batch);
    }
    free(text);
    fclose(file);
    return status;
}
