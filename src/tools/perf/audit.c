/* Halyard: -t audit: is the protocol that the library chooses the fastest one?
 *
 * The same test runs with the automatic choice and with every protocol forced, in contexts of their
 * own between the same two processes, in interleaved rounds. What the library uses is asked of it
 * (ucp_ep_print_info), before and after: a protocol that it does not use where it is forced, as
 * eager for large messages, is not measured, and one that it gave up on the way does not count.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "costs.h"
#include "rounds.h"
#include "run.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PROTO_MAX 16 /* bytes of a protocol's name */

/* What the library tells of the endpoint; the caller frees it. NULL without memory. */
static char *endpoint_info(const perf_session_t *session, unsigned variant)
{
    char *text  = NULL;
    size_t used = 0;
    FILE *file  = open_memstream(&text, &used);

    if (file == NULL) {
        return NULL;
    }
    ucp_ep_print_info(session->lanes[variant].ep, file);
    fclose(file);
    return text;
}

/* The protocol of messages of this size: the last range "# FROM..TO NAME: ..." that has it; those
 * that the library has learned come last. */
static void find_proto(const perf_session_t *session, unsigned variant, uint64_t size,
                       char proto[PROTO_MAX])
{
    char *text = endpoint_info(session, variant), *line, *rest = NULL;
    unsigned long long from, to;
    char name[PROTO_MAX], end[24];

    snprintf(proto, PROTO_MAX, "?");
    if (text == NULL) {
        return;
    }
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (sscanf(line, "# %llu..%23[^ ] %15[^: ]:", &from, end, name) != 3) {
            continue;
        }
        to = (strcmp(end, "inf") == 0) ? ULLONG_MAX : strtoull(end, NULL, 10);
        if ((from <= size) && (size <= to)) {
            snprintf(proto, PROTO_MAX, "%s", name);
        }
    }
    free(text);
}

/* Prints settings with which the library's predictions fit what was measured. */
static void print_costs(const perf_session_t *session, const perf_line_fit_t *fits)
{
    static const perf_line_fit_t none = {0};
    char *text = endpoint_info(session, PERF_VARIANT_AUTO);

    if ((text != NULL) && (strstr(text, "messages by mm,") != NULL)) {
        perf_costs_print(&fits[PERF_VARIANT_EAGER],
                         (strstr(text, "single copy by cma\n") != NULL) ? &fits[PERF_VARIANT_GET] :
                                                                          &none, stdout);
    }
    free(text);
}

static void print_head(const perf_rounds_t *rounds)
{
    unsigned i;

    printf("# %s, us one way, with the protocol that is chosen and with each one forced\n",
           perf_ops[rounds->report->options->op].name);
    printf("%8s | %-18s |", "size", "automatic");
    for (i = PERF_VARIANT_AUTO + 1; i < PERF_VARIANT_COUNT; ++i) {
        printf(" %9s", perf_variants[i].name);
    }
    printf(" | %-10s %6s\n", "best", "ratio");
}

/* best: the fastest forced protocol; PERF_VARIANT_AUTO if none could be forced. is_best: it is the
 * one chosen. */
static void print_row(const perf_rounds_t *rounds, perf_cell_t *const *cells, const char *chosen,
                      unsigned best, int is_best, int is_worse)
{
    unsigned i;

    printf("%8s | %-10s%8s |", perf_text_size(rounds->size).text, chosen,
           perf_text_us(cells[PERF_VARIANT_AUTO]->result->us).text);
    for (i = PERF_VARIANT_AUTO + 1; i < PERF_VARIANT_COUNT; ++i) {
        printf(" %9s", (cells[i] != NULL) ? perf_text_us(cells[i]->result->us).text : "-");
    }
    if (best == PERF_VARIANT_AUTO) {
        printf(" | %-10s %6s", "-", "-");
    } else if (is_best) {
        printf(" | %-10s %6s", perf_variants[best].name, "=");
    } else {
        printf(" | %-10s %6.2f", perf_variants[best].name,
               cells[PERF_VARIANT_AUTO]->result->ratio);
    }
    printf("%s%s\n", is_worse ? " !" : "", rounds->unreliable ? " *" : "");
    fflush(stdout);
}

/* The automatic choice and every protocol that can be forced at this size. fits: of each. */
static int run_size(perf_rounds_t *rounds, perf_line_fit_t fits[PERF_VARIANT_COUNT])
{
    const perf_options_t *options = rounds->report->options;
    perf_cell_t *cells[PERF_VARIANT_COUNT] = {NULL};
    unsigned best = PERF_VARIANT_AUTO, i;
    char chosen[PROTO_MAX], proto[PROTO_MAX], test[24];
    int is_best, is_worse;

    for (i = 0; i < PERF_VARIANT_COUNT; ++i) {
        find_proto(rounds->session, i, rounds->size, proto);
        if (i == PERF_VARIANT_AUTO) {
            cells[i] = perf_cell_add(rounds, (unsigned)options->op, i,
                                     perf_ops[options->op].name);
        } else if (strcmp(proto, perf_variants[i].name) == 0) {
            snprintf(test, sizeof(test), "%s %s", perf_ops[options->op].name, proto);
            cells[i] = perf_cell_add(rounds, (unsigned)options->op, i, test);
        }
    }
    if (perf_rounds_run(rounds) != 0) {
        return -1;
    }
    find_proto(rounds->session, PERF_VARIANT_AUTO, rounds->size, chosen);
    for (i = PERF_VARIANT_AUTO + 1; i < PERF_VARIANT_COUNT; ++i) {
        find_proto(rounds->session, i, rounds->size, proto);
        if (strcmp(proto, perf_variants[i].name) != 0) {
            cells[i] = NULL;
        }
        if (cells[i] == NULL) {
            continue;
        }
        perf_line_fit_add(&fits[i], rounds->size, cells[i]->result->us * 1e3);
        if ((best == PERF_VARIANT_AUTO) ||
            (cells[i]->result->us < cells[best]->result->us)) {
            best = i;
        }
    }
    if (best != PERF_VARIANT_AUTO) {
        perf_cell_judge(rounds, cells[PERF_VARIANT_AUTO], cells[best]);
    }
    /* Where the choice is the best one, a difference is chance: it is the same code. */
    is_best  = (best != PERF_VARIANT_AUTO) && (strcmp(chosen, perf_variants[best].name) == 0);
    is_worse = (best != PERF_VARIANT_AUTO) && !is_best &&
               (cells[PERF_VARIANT_AUTO]->result->ratio > options->tolerance);
    rounds->report->worse += (unsigned)is_worse;
    perf_text_progress_end();
    if (!options->no_text) {
        print_row(rounds, cells, chosen, best, is_best, is_worse);
    }
    return 0;
}

int perf_run_audit(perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;
    const int with_words          = !options->no_text && !options->final_only;
    perf_line_fit_t fits[PERF_VARIANT_COUNT] = {{0}};
    perf_rounds_t rounds;
    unsigned i;

    perf_rounds_init(&rounds, session, report);
    if (with_words) {
        print_head(&rounds);
    }
    for (i = 0; i < options->size_count; ++i) {
        perf_rounds_begin(&rounds, options->sizes[i]);
        if (run_size(&rounds, fits) != 0) {
            perf_text_progress_end();
            return -1;
        }
    }
    if (with_words) {
        printf("\n%s.\nratio: the automatic choice's time to that of the best protocol in the same "
               "round, median; =: it is the best; !: more than --tolerance.\n", report->statistic);
        ucp_ep_print_info(session->lanes[PERF_VARIANT_AUTO].ep, stdout);
        if (perf_ops[options->op].kind == PERF_KIND_LATENCY) {
            print_costs(session, fits);
        }
        if (rounds.any_unreliable) {
            printf("* The machine was busy: fewer than half of the wanted rounds were "
                   "undisturbed.\n");
        }
    }
    if (!options->no_text) {
        printf("%u of %u sizes: the automatic choice takes more than %g times as long as the best "
               "protocol\n", report->worse, options->size_count, options->tolerance);
    }
    return 0;
}
