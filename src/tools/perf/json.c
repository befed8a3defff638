/* Halyard: a small reader of JSON.
 *
 * Input is hostile: nesting, path and strings are bounded, and nothing is read behind the NUL that
 * ends the text, which no other byte of a document is.
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
    const char    *next;
    perf_json_cb_t callback;
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

const char *perf_json_parse(const char *text, perf_json_cb_t callback, void *arg)
{
    parser_t parser     = {.next = text, .callback = callback, .arg = arg};
    const char *problem = parse_value(&parser);

    skip_space(&parser);
    return (problem != NULL)       ? problem :
           (*parser.next == '\0') ? NULL : "something follows its end";
}
