/* Halyard: text helpers that do not depend on the locale and never write out of bounds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/compiler.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UCS_STR_WORD_MAX 64

static int ucs_str_is_digit(char c)
{
    return (c >= '0') && (c <= '9');
}

static char ucs_str_lower(char c)
{
    return ((c >= 'A') && (c <= 'Z')) ? (char)(c - 'A' + 'a') : c;
}

int ucs_str_copy(char *dest, size_t max, const char *src)
{
    size_t length = strnlen(src, max);

    if (max == 0) {
        return 0;
    }

    memcpy(dest, src, ucs_min(length, max - 1));
    dest[ucs_min(length, max - 1)] = '\0';
    return length < max;
}

static int ucs_str_is_blank(char c)
{
    return (c == ' ') || (c == '\t');
}

const char *ucs_str_trim(const char *text, size_t *length_p)
{
    while ((*length_p > 0) && ucs_str_is_blank(text[*length_p - 1])) {
        --*length_p;
    }
    for (; (*length_p > 0) && ucs_str_is_blank(*text); --*length_p) {
        ++text;
    }
    return text;
}

static const char *ucs_str_skip_digits(const char *text)
{
    while (ucs_str_is_digit(*text)) {
        ++text;
    }

    return text;
}

const char *ucs_str_parse_double(const char *text, double *value_p)
{
    const char *digits = text + (*text == '-');
    const char *end    = ucs_str_skip_digits(digits);
    const char *exponent;
    char copy[UCS_STR_WORD_MAX];
    locale_t c_locale;

    if (end == digits) {
        return NULL;
    }
    if ((end[0] == '.') && ucs_str_is_digit(end[1])) {
        end = ucs_str_skip_digits(end + 1);
    }
    if ((*end == 'e') || (*end == 'E')) {
        exponent = end + 1 + ((end[1] == '-') || (end[1] == '+'));
        end      = ucs_str_is_digit(*exponent) ? ucs_str_skip_digits(exponent) : end;
    }

    if ((size_t)(end - text) >= sizeof(copy)) {
        return NULL;
    }

    memcpy(copy, text, (size_t)(end - text));
    copy[end - text] = '\0';

    /* glibc answers "C" with a constant object: nothing is allocated, nothing to free */
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *value_p = (c_locale != (locale_t)0) ? strtod_l(copy, NULL, c_locale) : strtod(copy, NULL);
    return end;
}

const char *ucs_str_parse_u64(const char *text, uint64_t *value_p)
{
    uint64_t value = 0;

    if (!ucs_str_is_digit(*text)) {
        return NULL;
    }

    for (; ucs_str_is_digit(*text); ++text) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return NULL;
        }
    }

    *value_p = value;
    return text;
}

void ucs_str_print_double(char *buf, size_t max, double value)
{
    char text[UCS_STR_DOUBLE_MAX] = "0";
    double again                  = 0;
    int digits;
    char *c;

    /* whole numbers that a double holds exactly are not written with an exponent */
    if ((value > -1e15) && (value < 1e15) && ((double)(int64_t)value == value)) {
        snprintf(buf, max, "%lld", (long long)value);
        return;
    }

    for (digits = 1; digits <= 17; ++digits) {
        snprintf(text, sizeof(text), "%.*g", digits, value);

        /* whatever single byte the locale puts between the digits */
        for (c = text; *c != '\0'; ++c) {
            if (!ucs_str_is_digit(*c) && (strchr("+-e", *c) == NULL)) {
                *c = '.';
            }
        }
        if ((ucs_str_parse_double(text, &again) != NULL) && (again == value)) {
            break;
        }
    }

    ucs_str_copy(buf, max, text);
}

/* Optimal string alignment: a row of the table of distances between all beginnings at a time. */
unsigned ucs_str_distance(const char *a, const char *b)
{
    unsigned rows[3][UCS_STR_WORD_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2], *rotated;
    size_t a_length  = strnlen(a, UCS_STR_WORD_MAX);
    size_t b_length  = strnlen(b, UCS_STR_WORD_MAX);
    unsigned cost;
    size_t i, j;

    for (j = 0; j <= b_length; ++j) {
        last[j]   = (unsigned)j;
        before[j] = 0;
    }

    for (i = 1; i <= a_length; ++i) {
        row[0] = (unsigned)i;
        for (j = 1; j <= b_length; ++j) {
            cost   = ucs_str_lower(a[i - 1]) != ucs_str_lower(b[j - 1]);
            row[j] = ucs_min(ucs_min(last[j], row[j - 1]) + 1, last[j - 1] + cost);
            if ((i > 1) && (j > 1) && (ucs_str_lower(a[i - 1]) == ucs_str_lower(b[j - 2])) &&
                (ucs_str_lower(a[i - 2]) == ucs_str_lower(b[j - 1]))) {
                row[j] = ucs_min(row[j], before[j - 2] + 1);
            }
        }

        rotated = before;
        before  = last;
        last    = row;
        row     = rotated;
    }

    return last[b_length];
}

int ucs_str_is_near(const char *word, unsigned distance)
{
    size_t length = strlen(word);

    /* one slip in a short word, two in a longer one, three in a long one */
    return distance <= ((length <= 2) ? 0u : (length <= 5) ? 1u : (length <= 10) ? 2u : 3u);
}

const char *ucs_str_nearest(const char *word, const char *const *list)
{
    const char *best       = NULL;
    unsigned best_distance = ~0u;
    unsigned distance;

    for (; (list != NULL) && (*list != NULL); ++list) {
        distance = ucs_str_distance(word, *list);
        if (distance < best_distance) {
            best_distance = distance;
            best          = *list;
        }
    }

    return ((best != NULL) && ucs_str_is_near(word, best_distance)) ? best : NULL;
}

int ucs_str_match(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;

    while (*text != '\0') {
        if (*pattern == '*') {
            star   = pattern++;
            resume = text;
        } else if ((*pattern == '?') || (*pattern == *text)) {
            ++pattern;
            ++text;
        } else if (star != NULL) {
            /* let the last star take one character more: earlier stars need not be revisited */
            pattern = star + 1;
            text    = ++resume;
        } else {
            return 0;
        }
    }

    while (*pattern == '*') {
        ++pattern;
    }

    return *pattern == '\0';
}

void ucs_str_append(char **text_p, const char *fmt, ...)
{
    const size_t before = (*text_p != NULL) ? strlen(*text_p) : 0;
    char *text          = NULL;
    va_list ap;
    int length;

    va_start(ap, fmt);
    length = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (length >= 0) { /* else it cannot be encoded */
        text = ucs_sys_realloc(*text_p, before + (size_t)length + 1);
    }
    if (text != NULL) {
        va_start(ap, fmt);
        (void)vsnprintf(text + before, (size_t)length + 1, fmt, ap);
        va_end(ap);
        *text_p = text;
    }
}

long ucs_env_number(const char *name)
{
    const char *text = secure_getenv(name);
    char *end;
    long number;

    if ((text == NULL) || (*text == '\0')) {
        return -1;
    }
    number = strtol(text, &end, 10);
    return ((*end == '\0') && (number >= 0)) ? number : -1;
}

uint64_t ucs_hash_bytes(const void *data, size_t length, uint64_t seed)
{
    const unsigned char *bytes = data;
    uint64_t hash              = 0xcbf29ce484222325ull ^ seed;
    size_t i;

    for (i = 0; i < length; ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }

    return hash;
}

uint64_t ucs_str_hash(const char *text)
{
    return ucs_hash_bytes(text, strlen(text), 0);
}
