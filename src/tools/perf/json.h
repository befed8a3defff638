/* Halyard: a small reader of JSON (RFC 8259), for --compare.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_JSON_H
#define PERF_JSON_H

/* A string, cut at 511 bytes and valid during the call, or with text NULL a number. */
typedef void (*perf_json_cb_t)(void *arg, const char *path, const char *text, double number);

/* Calls back for each string and number. Its path is the names and indices that lead to it, joined
 * by dots. Nesting is bounded. Returns NULL, or what is wrong. */
const char *perf_json_parse(const char *text, perf_json_cb_t callback, void *arg);

#endif
