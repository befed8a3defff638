/* Halyard: ratios of two JSON files of this tool.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "report.h"
#include "watch.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a small reader of JSON (RFC 8259) ----
 *
 * Input is hostile: nesting, path and strings are bounded, and nothing is read behind the NUL that
 * ends the text, which no other byte of a document is. */

#define DEPTH_MAX 16
#define PATH_MAX_BYTES 256
#define TEXT_MAX 512

/* A string, cut at TEXT_MAX - 1 bytes and valid during the call, or with text NULL a number. */
typedef void (*value_cb_t)(void *arg, const char *path, const char *text, double number);

typedef struct parser {
    const char    *next;
    value_cb_t callback;
    void          *arg;
    char           path[PATH_MAX_BYTES];
    unsigned       depth;
} parser_t;

static const char *parse_value(parser_t *parser);

static void skip_space(parser_t *parser)
{
    parser->next += strspn(parser->next, " \t\r\n");
}

/* 1 and moves on, if the next character is this one. */
static int take(parser_t *parser, char wanted)
{
    skip_space(parser);
    if (*parser->next == wanted) {
        ++parser->next;
        return 1;
    }
    return 0;
}

/* An escape; what is not ASCII becomes '?': names and numbers are all that is needed. */
static const char *parse_escape(parser_t *parser, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found        = memchr(from, *parser->next, sizeof(from) - 1);
    unsigned long code;
    char digits[5] = "";

    if (found != NULL) {
        ++parser->next;
        *out = to[found - from];
        return NULL;
    }
    strncpy(digits, parser->next + (*parser->next == 'u'), 4);
    if ((*parser->next != 'u') || (strspn(digits, "0123456789abcdefABCDEF") != 4)) {
        return "a string has an unknown escape";
    }
    parser->next += 5;
    code          = strtoul(digits, NULL, 16);
    *out          = ((code >= ' ') && (code < 0x7f)) ? (char)code : '?';
    return NULL;
}

/* The opening quote is taken already. */
static const char *parse_string(parser_t *parser, char text[TEXT_MAX])
{
    size_t length = 0;
    const char *problem;
    char byte;

    while ((byte = *parser->next) != '"') {
        if (byte == '\0') {
            return "a string does not end";
        }
        ++parser->next;
        problem = (byte == '\\') ? parse_escape(parser, &byte) : NULL;
        if (problem != NULL) {
            return problem;
        }
        if (length + 1 < TEXT_MAX) {
            text[length++] = byte;
        }
    }
    ++parser->next;
    text[length] = '\0';
    return NULL;
}

/* A value that has a name, or a number in an array. */
static const char *parse_member(parser_t *parser, const char *name)
{
    const size_t before = strlen(parser->path);
    const char *problem;

    snprintf(parser->path + before, sizeof(parser->path) - before, "%s%s",
             (before > 0) ? "." : "", name);
    problem              = parse_value(parser);
    parser->path[before] = '\0';
    return problem;
}

/* An object or an array; the opening bracket is taken already. */
static const char *parse_members(parser_t *parser, int is_object)
{
    const char end      = is_object ? '}' : ']';
    const char *problem = NULL;
    unsigned index      = 0;
    char name[TEXT_MAX];

    if (take(parser, end)) {
        return NULL;
    }
    do {
        snprintf(name, sizeof(name), "%u", index++);
        if (is_object) {
            problem = take(parser, '"') ? parse_string(parser, name) :
                                          "an object's name is missing";
            if ((problem == NULL) && !take(parser, ':')) {
                problem = "a colon is missing";
            }
        }
        if (problem == NULL) {
            problem = parse_member(parser, name);
        }
    } while ((problem == NULL) && take(parser, ','));
    return (problem != NULL) ? problem :
           take(parser, end) ? NULL : "an object or array does not end";
}

/* A number, which is told of, or one of the words. */
static const char *parse_word(parser_t *parser)
{
    static const char *const words[] = {"null", "true", "false"};
    size_t length                    = 0;
    double number;
    char *end;
    unsigned i;

    while (isalnum((unsigned char)parser->next[length]) ||
           ((parser->next[length] != '\0') && (strchr("+-.", parser->next[length]) != NULL))) {
        ++length;
    }
    for (i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if ((length == strlen(words[i])) && (strncmp(parser->next, words[i], length) == 0)) {
            parser->next += length;
            return NULL;
        }
    }
    number = strtod(parser->next, &end);
    if ((length == 0) || (length != strspn(parser->next, "+-.eE0123456789")) ||
        (end != parser->next + length)) {
        return "a value is none that JSON knows";
    }
    parser->next = end;
    parser->callback(parser->arg, parser->path, NULL, number);
    return NULL;
}

static const char *parse_value(parser_t *parser)
{
    const char *problem;
    char text[TEXT_MAX];

    if (++parser->depth > DEPTH_MAX) {
        return "it is nested too deeply";
    }
    if (take(parser, '{')) {
        problem = parse_members(parser, 1);
    } else if (take(parser, '[')) {
        problem = parse_members(parser, 0);
    } else if (take(parser, '"')) {
        problem = parse_string(parser, text);
        if (problem == NULL) {
            parser->callback(parser->arg, parser->path, text, 0);
        }
    } else {
        problem = parse_word(parser);
    }
    --parser->depth;
    return problem;
}

/* Calls back for each string and number. Its path is the names and indices that lead to it, joined
 * by dots. Returns NULL, or what is wrong. */
static const char *parse_json(const char *text, value_cb_t callback, void *arg)
{
    parser_t parser     = {.next = text, .callback = callback, .arg = arg};
    const char *problem = parse_value(&parser);

    skip_space(&parser);
    return (problem != NULL)       ? problem :
           (*parser.next == '\0') ? NULL : "something follows its end";
}

/* ---- two results ---- */

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
    problem = parse_json(text, take_value, results);
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
