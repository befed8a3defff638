/* Halyard: a small reader of JSON.
 *
 * Input is hostile: every access is checked against the end, nesting and path are bounded.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define PATH_MAX_BYTES 256
#define TEXT_MAX 512

typedef struct parser {
    const char    *next, *end;
    perf_json_cb_t callback;
    void          *arg;
    char           path[PATH_MAX_BYTES];
    size_t         path_length;
    unsigned       depth;
} parser_t;

static const char *parse_value(parser_t *parser);

static void skip_space(parser_t *parser)
{
    while ((parser->next < parser->end) && (strchr(" \t\r\n", *parser->next) != NULL) &&
           (*parser->next != '\0')) {
        ++parser->next;
    }
}

/* 1 and moves on, if the next character is this one. */
static int take(parser_t *parser, char wanted)
{
    skip_space(parser);
    if ((parser->next < parser->end) && (*parser->next == wanted)) {
        ++parser->next;
        return 1;
    }
    return 0;
}

/* An escape; what is not ASCII becomes '?': names and numbers are all that is needed. */
static const char *parse_escape(parser_t *parser, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned code            = 0, i;
    const char *found;

    if (parser->next >= parser->end) {
        return "a string does not end";
    }
    if (*parser->next != 'u') {
        found = (*parser->next != '\0') ? strchr(from, *parser->next) : NULL;
        if (found == NULL) {
            return "a string has an unknown escape";
        }
        *out = to[found - from];
        ++parser->next;
        return NULL;
    }
    ++parser->next;
    for (i = 0; i < 4; ++i, ++parser->next) {
        if ((parser->next >= parser->end) || !isxdigit((unsigned char)*parser->next)) {
            return "a string has an unknown escape";
        }
        code = code * 16 + (unsigned)(isdigit((unsigned char)*parser->next) ?
                                      *parser->next - '0' :
                                      tolower((unsigned char)*parser->next) - 'a' + 10);
    }
    *out = ((code >= ' ') && (code < 0x7f)) ? (char)code : '?';
    return NULL;
}

/* The opening quote is taken already. */
static const char *parse_string(parser_t *parser, char text[TEXT_MAX])
{
    size_t length = 0;
    const char *problem;
    char byte;

    for (;;) {
        if (parser->next >= parser->end) {
            return "a string does not end";
        }
        byte = *parser->next++;
        if (byte == '"') {
            text[length] = '\0';
            return NULL;
        }
        if (byte == '\\') {
            problem = parse_escape(parser, &byte);
            if (problem != NULL) {
                return problem;
            }
        }
        if (length + 1 < TEXT_MAX) {
            text[length++] = byte;
        }
    }
}

/* Appends to the path; returns the length to go back to. */
static size_t path_push(parser_t *parser, const char *name)
{
    size_t before = parser->path_length;
    int n;

    n = snprintf(parser->path + before, sizeof(parser->path) - before, "%s%s",
                 (before > 0) ? "." : "", name);
    if ((n > 0) && ((size_t)n < sizeof(parser->path) - before)) {
        parser->path_length += (size_t)n;
    } else {
        parser->path_length = sizeof(parser->path) - 1;
    }
    return before;
}

static void path_pop(parser_t *parser, size_t before)
{
    parser->path_length  = before;
    parser->path[before] = '\0';
}

/* An object or an array; the opening bracket is taken already. */
static const char *parse_members(parser_t *parser, int is_object)
{
    const char end = is_object ? '}' : ']';
    unsigned index = 0;
    const char *problem;
    char name[TEXT_MAX];
    size_t before;

    if (take(parser, end)) {
        return NULL;
    }
    do {
        snprintf(name, sizeof(name), "%u", index++);
        problem = !is_object ? NULL : take(parser, '"') ? parse_string(parser, name) :
                                                         "an object's name is missing";
        if ((problem == NULL) && is_object && !take(parser, ':')) {
            problem = "a colon is missing";
        }
        if (problem != NULL) {
            return problem;
        }
        before  = path_push(parser, name);
        problem = parse_value(parser);
        path_pop(parser, before);
        if (problem != NULL) {
            return problem;
        }
    } while (take(parser, ','));
    return take(parser, end) ? NULL : "an object or array does not end";
}

/* A number, which is told of, or one of the words. */
static const char *parse_word(parser_t *parser)
{
    char text[64], *end;
    size_t length = 0;
    double number;

    while ((parser->next < parser->end) && (length + 1 < sizeof(text)) &&
           (isalnum((unsigned char)*parser->next) ||
            ((*parser->next != '\0') && (strchr("+-.", *parser->next) != NULL)))) {
        text[length++] = *parser->next++;
    }
    text[length] = '\0';
    if ((strcmp(text, "null") == 0) || (strcmp(text, "true") == 0) ||
        (strcmp(text, "false") == 0)) {
        return NULL;
    }
    number = strtod(text, &end);
    if ((length != strspn(text, "+-.eE0123456789")) || (end == text) || (*end != '\0')) {
        return "a value is none that JSON knows";
    }
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

const char *perf_json_parse(const char *text, size_t length, perf_json_cb_t callback, void *arg)
{
    parser_t parser = {.next = text, .end = text + length, .callback = callback, .arg = arg};
    const char *problem;

    problem = parse_value(&parser);
    if (problem != NULL) {
        return problem;
    }
    skip_space(&parser);
    return (parser.next == parser.end) ? NULL : "something follows its end";
}
