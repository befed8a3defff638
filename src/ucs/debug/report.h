/* Halyard: reports: what people read as lines and programs as JSON (RFC 8259), said once.
 *
 * A row is a printf format with a name for each value. As text it prints the format, as JSON the
 * names with the values, so that the two cannot tell different things. Uses the C library only:
 * tools that bind to the public interface alone have it built in. One thread at a time.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_REPORT_H
#define UCS_DEBUG_REPORT_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <locale.h>
#include <stdio.h>

BEGIN_C_DECLS

#define UCS_REPORT_DEPTH 8 /* objects and arrays around each other, the document included */

typedef struct {
    FILE       *stream;
    int         is_json;
    const char *filter; /* NULL, or what names of settings must contain to be shown */
    unsigned    shown;  /* settings that were */

    /* private */
    unsigned    depth;
    struct {
        char    kind;   /* '{', '['; 0: around the document */
        int     is_line; /* its members stand on one line */
        int     has_some;
    }           levels[UCS_REPORT_DEPTH + 1];
    char       *text;   /* of ucs_report_begin */
    size_t      length;
    locale_t    locale; /* the thread's before it; 0: not changed */
} ucs_report_t;

/* The report to which this process adds what it prints to that report's stream; NULL: none. Set by
 * tools: it turns what ucp_ep_print_info and its like print into JSON. */
extern ucs_report_t *ucs_report_shared;

void ucs_report_init(ucs_report_t *report, FILE *stream, int is_json);

/* The shared report if it is this stream's, else one of text in `storage`, which `end` writes to
 * the stream all at once. In between numbers have a point, whatever the program's locale says. */
ucs_report_t *ucs_report_begin(FILE *stream, ucs_report_t *storage);
void ucs_report_end(ucs_report_t *report, FILE *stream);

/* Open an object ('{') or an array ('['), with a name inside an object, else NULL. The document is
 * the outermost one. Nothing as text. */
void ucs_report_open(ucs_report_t *report, const char *name, char kind);
void ucs_report_close(ucs_report_t *report);

/* One row. `names` has a word for each conversion of the format (d i u x f g s p; a precision may
 * be a star): "name" is a number or a string, "name?" true or false (a number: is it not 0; a text:
 * is there one, and not one that begins with "no"), "-" not in JSON; numbers that are not finite
 * and SIZE_MAX, for no limit, are null. In an array the row is an object of its own, or with the
 * one name "=" a bare value. */
void ucs_report_row(ucs_report_t *report, const char *names, const char *format, ...)
    UCS_PRINTF(3, 4);

/* In one of the forms only. */
#define ucs_report_text(_report, ...) ucs_report_row(_report, "", __VA_ARGS__)
#define ucs_report_data(_report, ...) \
    do { \
        if ((_report)->is_json) { \
            ucs_report_row(_report, __VA_ARGS__); \
        } \
    } while (0)

/* A string of JSON, of at most `max` bytes of the text: whatever those hold, it is valid. */
void ucs_report_string(FILE *stream, const char *text, size_t max);

END_C_DECLS

#endif
