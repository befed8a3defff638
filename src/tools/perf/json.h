/* Halyard: a small reader of JSON (RFC 8259), for --compare.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_JSON_H
#define PERF_JSON_H

#include <stddef.h>

typedef enum perf_json_type {
    PERF_JSON_NULL,
    PERF_JSON_BOOL,
    PERF_JSON_NUMBER,
    PERF_JSON_STRING
} perf_json_type_t;

typedef struct perf_json_value {
    perf_json_type_t type;
    double           number; /* number, or 0 and 1 of a bool */
    const char      *text;   /* string, cut at 511 bytes; valid during the call */
} perf_json_value_t;

typedef void (*perf_json_cb_t)(void *arg, const char *path, const perf_json_value_t *value);

/* Calls back for each value that is neither object nor array. Its path is the names and indices
 * that lead to it, joined by dots. Nesting is bounded. Returns NULL, or what is wrong. */
const char *perf_json_parse(const char *text, size_t length, perf_json_cb_t callback, void *arg);

#endif
