/* Halyard: ratios of two JSON files of this tool.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a result ---- */

typedef struct entry {
    char   test[PERF_NAME_MAX];
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

/* Takes a value of the file (a string without its quotes) with a path such as "results.3.us". */
static void take_value(results_t *results, const char *path, int is_string, const char *text,
                       int length)
{
    static const struct {
        const char *name;
        size_t      field;
    } numbers[] = {{"size", offsetof(entry_t, size)},       {"window", offsetof(entry_t, window)},
                   {"threads", offsetof(entry_t, threads)}, {"us", offsetof(entry_t, us)},
                   {"ratio", offsetof(entry_t, ratio)}};
    unsigned long index;
    entry_t *entry;
    char *field, *end;
    double number;
    unsigned i;

    if (strcmp(path, "format") == 0) {
        results->known_format = (length == (int)strlen(PERF_FORMAT)) &&
                                (strncmp(text, PERF_FORMAT, strlen(PERF_FORMAT)) == 0);
    } else if (strcmp(path, "record.library") == 0) {
        snprintf(results->library, sizeof(results->library), "%.*s", length, text);
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
    if (is_string && (strcmp(field, "test") == 0)) {
        snprintf(entry->test, sizeof(entry->test), "%.*s", length, text);
    }
    number = strtod(text, &end);
    for (i = 0; !is_string && (end != text) && (i < sizeof(numbers) / sizeof(numbers[0])); ++i) {
        if (strcmp(field, numbers[i].name) == 0) {
            *(double *)((char *)entry + numbers[i].field) = number;
        }
    }
}

/* ---- a small reader of JSON (RFC 8259) ----
 *
 * Input is hostile: nesting and paths are bounded, and nothing is read behind the NUL that ends the
 * text, which no other byte of a document is. Strings are told of as they are written: those that
 * are wanted, names and versions, have no escapes. */

#define DEPTH_MAX      16
#define PATH_MAX_BYTES 256
#define BLANKS         " \t\r\n"

typedef struct parser {
    const char *next;
    results_t  *results;
    char        path[PATH_MAX_BYTES]; /* names and indices that lead here, joined by dots */
    unsigned    depth;
} parser_t;

static int parse_value(parser_t *parser);

/* 1 and moves on, if the next character is this one. */
static int take(parser_t *parser, char wanted)
{
    parser->next += strspn(parser->next, BLANKS);
    if (*parser->next != wanted) {
        return 0;
    }
    ++parser->next;
    return 1;
}

/* A string whose opening quote is taken already; NULL: it does not end. */
static const char *take_string(parser_t *parser, int *length_p)
{
    const char *start = parser->next, *end = start;

    while ((*end != '"') && (*end != '\0')) {
        end += ((end[0] == '\\') && (end[1] != '\0')) ? 2 : 1;
    }
    if (*end == '\0') {
        return NULL;
    }
    *length_p    = (int)(end - start);
    parser->next = end + 1;
    return start;
}

static int parse_member(parser_t *parser, const char *name, int length)
{
    const size_t before = strlen(parser->path);
    int is_good;

    snprintf(parser->path + before, sizeof(parser->path) - before, "%s%.*s",
             (before > 0) ? "." : "", length, name);
    is_good              = parse_value(parser);
    parser->path[before] = '\0';
    return is_good;
}

/* An object or an array, whose opening bracket is taken already. */
static int parse_members(parser_t *parser, char end)
{
    unsigned count = 0;
    const char *name;
    char index[16];
    int length;

    if (take(parser, end)) {
        return 1;
    }
    do {
        length = snprintf(index, sizeof(index), "%u", count++);
        name   = index;
        if (end == '}') {
            name = take(parser, '"') ? take_string(parser, &length) : NULL;
            if ((name == NULL) || !take(parser, ':')) {
                return 0;
            }
        }
        if (!parse_member(parser, name, length)) {
            return 0;
        }
    } while (take(parser, ','));
    return take(parser, end);
}

/* A number, or one of the words. */
static int parse_word(parser_t *parser)
{
    static const char *const words[] = {"null", "true", "false"};
    const char *start                = parser->next;
    const size_t length              = strcspn(start, BLANKS ",]}");
    char *end;
    unsigned i;

    (void)strtod(start, &end);
    for (i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (strncmp(start, words[i], strlen(words[i])) == 0) {
            end = (char *)start + strlen(words[i]);
        }
    }
    if ((length == 0) || (end != start + length)) {
        return 0;
    }
    parser->next = end;
    take_value(parser->results, parser->path, 0, start, (int)length);
    return 1;
}

static int parse_value(parser_t *parser)
{
    const char *text;
    int is_good, length;

    if (++parser->depth > DEPTH_MAX) {
        return 0;
    }
    if (take(parser, '{')) {
        is_good = parse_members(parser, '}');
    } else if (take(parser, '[')) {
        is_good = parse_members(parser, ']');
    } else if (take(parser, '"')) {
        text    = take_string(parser, &length);
        is_good = (text != NULL);
        if (is_good) {
            take_value(parser->results, parser->path, 1, text, length);
        }
    } else {
        is_good = parse_word(parser);
    }
    --parser->depth;
    return is_good;
}

/* Takes each value but objects and arrays. Returns NULL, or where it is no JSON. */
static const char *parse_json(const char *text, results_t *results)
{
    parser_t parser   = {.next = text, .results = results};
    const int is_good = parse_value(&parser);

    parser.next += strspn(parser.next, BLANKS);
    return (is_good && (*parser.next == '\0')) ? NULL : parser.next;
}

/* ---- two results ---- */

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

static results_t *load(const char *name)
{
    results_t *results  = calloc(1, sizeof(*results));
    char *text          = read_file(name);
    const char *problem = NULL;
    int is_good         = 0;

    if ((results != NULL) && (text != NULL)) {
        problem = parse_json(text, results);
        is_good = (problem == NULL) && results->known_format;
        if (problem != NULL) {
            perf_error("%s: it is no JSON, as byte %zu shows", name, (size_t)(problem - text));
        } else if (!is_good) {
            perf_error("%s: it is not a result of `ucx_perftest --json`", name);
        }
    }
    free(text);
    if (!is_good) {
        free(results);
        results = NULL;
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
               perf_text_size((uint64_t)old->size).text, perf_text_us(old->us).text,
               perf_text_us(now->us).text, now->us / old->us, perf_text_us(old->ratio).text,
               perf_text_us(now->ratio).text, is_worse ? "  worse" : "");
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
