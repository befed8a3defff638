/* Halyard: reports: what people read as lines and programs as JSON (RFC 8259), said once.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/report.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

ucs_report_t *ucs_report_shared;

void ucs_report_init(ucs_report_t *report, FILE *stream, int is_json)
{
    memset(report, 0, sizeof(*report));
    report->stream  = stream;
    report->is_json = is_json;
}

ucs_report_t *ucs_report_begin(FILE *stream, ucs_report_t *storage)
{
    FILE *whole;

    if ((ucs_report_shared != NULL) && (ucs_report_shared->stream == stream)) {
        return ucs_report_shared;
    }
    ucs_report_init(storage, stream, 0);
    /* glibc answers "C" with a constant object: nothing is allocated, nothing to free */
    storage->locale = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    whole = open_memstream(&storage->text, &storage->length);
    if (whole != NULL) {
        storage->stream = whole;
    }
    return storage;
}

void ucs_report_end(ucs_report_t *report, FILE *stream)
{
    if (report->stream != stream) {
        (void)fclose(report->stream);
        (void)fwrite(report->text, 1, report->length, stream);
        free(report->text);
    }
    (void)uselocale(report->locale);
}

/* Length of the valid UTF-8 sequence at text, 0 if it is none (RFC 3629). */
static unsigned ucs_report_utf8_length(const unsigned char *text, size_t max)
{
    unsigned length, i;

    if (text[0] < 0x80) {
        return 1;
    }
    length = (text[0] >= 0xc2 && text[0] <= 0xdf) ? 2 :
             (text[0] >= 0xe0 && text[0] <= 0xef) ? 3 :
             (text[0] >= 0xf0 && text[0] <= 0xf4) ? 4 : 0;
    if (length > max) {
        return 0;
    }
    for (i = 1; i < length; ++i) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (((text[0] == 0xe0) && (text[1] < 0xa0)) || ((text[0] == 0xed) && (text[1] > 0x9f)) ||
        ((text[0] == 0xf0) && (text[1] < 0x90)) || ((text[0] == 0xf4) && (text[1] > 0x8f))) {
        return 0;
    }
    return length;
}

void ucs_report_string(FILE *stream, const char *text, size_t max)
{
    const unsigned char *next = (const unsigned char *)text;
    size_t left               = strnlen(text, max);
    unsigned length;

    fputc('"', stream);
    for (; left > 0; left -= length, next += length) {
        length = ucs_report_utf8_length(next, left);
        if ((*next == '"') || (*next == '\\')) {
            fprintf(stream, "\\%c", *next);
        } else if ((*next < ' ') || (*next == 0x7f) || (length == 0)) {
            fprintf(stream, "\\u%04x", *next);
            length = 1;
        } else {
            fwrite(next, 1, length, stream);
        }
    }
    fputc('"', stream);
}

/* What stands before a member or an element. */
static void ucs_report_next(ucs_report_t *report, const char *name, size_t length)
{
    int has_some = report->levels[report->depth].has_some;

    report->levels[report->depth].has_some = 1;
    fputs(has_some ? "," : "", report->stream);
    if (report->levels[report->depth].is_line) {
        fputs(has_some ? " " : "", report->stream);
    } else if (report->depth > 0) {
        fprintf(report->stream, "\n%*s", (int)(2 * report->depth), "");
    }
    if (name != NULL) {
        fprintf(report->stream, "\"%.*s\": ", (int)length, name);
    }
}

void ucs_report_open(ucs_report_t *report, const char *name, char kind)
{
    if (report->is_json) {
        ucs_report_next(report, name, (name != NULL) ? strlen(name) : 0);
        fputc(kind, report->stream);
        ++report->depth;
        report->levels[report->depth].kind     = kind;
        report->levels[report->depth].is_line  = (kind == '{') && (report->depth > 3);
        report->levels[report->depth].has_some = 0;
    }
}

void ucs_report_close(ucs_report_t *report)
{
    unsigned level = report->depth;

    if (report->is_json) {
        --report->depth;
        if (report->levels[level].has_some && !report->levels[level].is_line) {
            fprintf(report->stream, "\n%*s", (int)(2 * report->depth), "");
        }
        fputs((report->levels[level].kind == '{') ? "}" : "]", report->stream);
        fputs((report->depth == 0) ? "\n" : "", report->stream);
    }
}

/* One conversion, as it stands in the format behind the %. */
typedef struct {
    int  longs;     /* letters l, or what is as long */
    int  precision; /* a star's, else -1 */
    char letter;
} ucs_report_conversion_t;

/* The value of the next conversion, under the next name; the caller's arguments move on. */
static void ucs_report_member(ucs_report_t *report, const char *name, size_t length,
                              const ucs_report_conversion_t *conversion, va_list *args)
{
    int is_truth            = (length > 0) && (name[length - 1] == '?');
    int is_shown            = (length > 0) && (name[0] != '-');
    int is_true             = 0;
    const char *text        = NULL;
    double number           = NAN;
    char value[64];

    snprintf(value, sizeof(value), "null");
    switch (conversion->letter) {
    case 's':
        text    = va_arg(*args, const char *);
        text    = (text == NULL) ? "" : text;
        is_true = (text[0] != '\0') && (strncmp(text, "no", 2) != 0);
        break;
    case 'p':
        (void)va_arg(*args, void *);
        break;
    case 'd': case 'i': {
        long long whole = (conversion->longs > 1)  ? va_arg(*args, long long) :
                          (conversion->longs == 1) ? va_arg(*args, long) : va_arg(*args, int);
        is_true         = (whole != 0);
        snprintf(value, sizeof(value), "%lld", whole);
        break;
    }
    case 'u': case 'x': {
        unsigned long long whole =
            (conversion->longs > 1)  ? va_arg(*args, unsigned long long) :
            (conversion->longs == 1) ? va_arg(*args, unsigned long) : va_arg(*args, unsigned);
        is_true = (whole != 0);
        if (whole != SIZE_MAX) {
            snprintf(value, sizeof(value), "%llu", whole);
        }
        break;
    }
    default:
        number  = va_arg(*args, double);
        is_true = (number != 0);
        if (isfinite(number)) {
            snprintf(value, sizeof(value), "%.9g", number);
        }
        break;
    }
    if (!is_shown) {
        return;
    }
    ucs_report_next(report, (name[0] == '=') ? NULL : name, length - (is_truth != 0));
    if (is_truth) {
        fputs(is_true ? "true" : "false", report->stream);
    } else if (text != NULL) {
        ucs_report_string(report->stream, text,
                          (conversion->precision < 0) ? SIZE_MAX : (size_t)conversion->precision);
    } else {
        fputs(value, report->stream);
    }
}

static void ucs_report_members(ucs_report_t *report, const char *names, const char *format,
                               va_list *args)
{
    ucs_report_conversion_t conversion;
    size_t length;

    while ((format = strchr(format, '%')) != NULL) {
        conversion.longs     = 0;
        conversion.precision = -1;
        for (++format; strchr("-+ #.0123456789*lzh", *format) != NULL; ++format) {
            conversion.longs += (*format == 'l') || (*format == 'z');
            if (*format == '*') {
                conversion.precision = va_arg(*args, int);
            }
        }
        conversion.letter = *format++;
        if (conversion.letter != '%') {
            length = strcspn(names, " ");
            ucs_report_member(report, names, length, &conversion, args);
            names += length + (names[length] == ' ');
        }
    }
}

void ucs_report_row(ucs_report_t *report, const char *names, const char *format, ...)
{
    int is_element = (report->levels[report->depth].kind == '[') && (names[0] != '=');
    va_list args;

    va_start(args, format);
    if (!report->is_json) {
        (void)vfprintf(report->stream, format, args);
    } else if (names[0] != '\0') {
        if (is_element) {
            ucs_report_open(report, NULL, '{');
            report->levels[report->depth].is_line = 1;
        }
        ucs_report_members(report, names, format, &args);
        if (is_element) {
            ucs_report_close(report);
        }
    }
    va_end(args);
}
