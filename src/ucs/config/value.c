/* Halyard: configuration: the types of values that are one number or one word.
 *
 * Parsing never depends on the locale, never overflows, and what print writes parse reads back as
 * the same value. Lists and strings are in list.c.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/parser.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/string.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A unit's name and its factor. */
typedef struct {
    const char *name;
    uint64_t   factor;
} ucs_config_unit_t;

/* ------------------------------------------------------------------ one of several words */

typedef struct {
    const char *word;
    int        value;
} ucs_config_word_t;

/* The first word of a value is the one shown. A switch takes the first two values only. */
static const ucs_config_word_t ucs_config_words[] = {
    {"n", UCS_NO}, {"y", UCS_YES}, {"try", UCS_TRY}, {"auto", UCS_AUTO},
    {"no", UCS_NO}, {"yes", UCS_YES}, {"off", UCS_NO}, {"on", UCS_YES},
    {"false", UCS_NO}, {"true", UCS_YES}, {"0", UCS_NO}, {"1", UCS_YES}, {NULL, 0}
};

static ucs_status_t
ucs_config_word_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    const ucs_config_word_t *word = ucs_config_words;

    while ((word->word != NULL) && (strcasecmp(text, word->word) != 0)) {
        ++word;
    }
    if ((word->word == NULL) ||
        ((word->value > UCS_YES) && (row->type != &ucs_config_type_ternary))) {
        return UCS_ERR_INVALID_PARAM;
    }

    *(int *)field = word->value;
    return UCS_OK;
}

static void ucs_config_word_print(char *buf, size_t max, const void *field,
                                  const ucs_config_row_t *row UCS_UNUSED)
{
    const ucs_config_word_t *word = ucs_config_words;

    while ((word->word != NULL) && (word->value != *(const int *)field)) {
        ++word;
    }

    ucs_str_copy(buf, max, (word->word != NULL) ? word->word : "?");
}

static ucs_status_t
ucs_config_enum_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    const char *const *names = row->arg;
    unsigned i;

    for (i = 0; names[i] != NULL; ++i) {
        if (!strcasecmp(text, names[i])) {
            *(unsigned *)field = i;
            return UCS_OK;
        }
    }

    return UCS_ERR_INVALID_PARAM;
}

static void
ucs_config_enum_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    const char *const *names = row->arg;
    unsigned i;

    for (i = 0; (names[i] != NULL) && (i < *(const unsigned *)field); ++i) {
    }

    ucs_str_copy(buf, max, (names[i] != NULL) ? names[i] : "?");
}

/* ------------------------------------------------------------------ numbers */

/* Put the nearest value that obeys the row's bounds in the place of one that does not. Rows of
 * powers of two have such bounds, at least 1. */
static ucs_status_t ucs_config_bound(uint64_t *value_p, const ucs_config_row_t *row)
{
    const uint64_t given = *value_p;
    uint64_t value       = ucs_max(given, row->min), below;

    if (row->max != 0) {
        value = ucs_min(value, row->max);
    }
    if ((row->flags & UCS_CONFIG_ROW_POW2) && !ucs_is_pow2(value)) {
        below = 1ull << (63 - __builtin_clzll(value));
        value = (value - below <= below / 2) ? below : 2 * below;
    }

    *value_p = value;
    return (value == given) ? UCS_OK : UCS_INPROGRESS;
}

/* The default in place of an "auto" which means nothing else in that row. */
static const char *ucs_config_resolve_auto(const char *text, const ucs_config_row_t *row)
{
    return (!strcasecmp(text, UCS_CONFIG_WORD_AUTO) && !(row->flags & UCS_CONFIG_ROW_AUTO) &&
            (row->dflt != NULL)) ? row->dflt : text;
}

/* "inf" is `largest`, "auto" one less, where the row allows them; "inf" the row's largest value
 * where it does not. Not zero if it was one of them. */
static int ucs_config_parse_special(const char *text, const ucs_config_row_t *row,
                                    uint64_t largest, uint64_t *value_p)
{
    if (((row->flags & UCS_CONFIG_ROW_INF) || (row->max != 0)) &&
        !strcasecmp(text, UCS_CONFIG_WORD_INF)) {
        *value_p = (row->flags & UCS_CONFIG_ROW_INF) ? largest : row->max;
        return 1;
    }
    if ((row->flags & UCS_CONFIG_ROW_AUTO) && !strcasecmp(text, UCS_CONFIG_WORD_AUTO)) {
        *value_p = largest - 1;
        return 1;
    }

    return 0;
}

/* The factor of a unit's name; 0 if there is no such unit. Letters' case does not matter. */
static uint64_t ucs_config_find_unit(const ucs_config_unit_t *units, const char *name)
{
    for (; units->name != NULL; ++units) {
        if (!strcasecmp(name, units->name)) {
            return units->factor;
        }
    }

    return 0;
}

static const ucs_config_unit_t ucs_config_no_units[] = {{"", 1}, {NULL, 0}};

/* number[unit] into [0, largest - 2]. Whole numbers are exact over the whole range; a number with a
 * fraction is rounded to the nearest, where there are units. */
static ucs_status_t ucs_config_parse_scaled(const char *text, const ucs_config_unit_t *units,
                                            const ucs_config_row_t *row, uint64_t largest,
                                            uint64_t *value_p)
{
    uint64_t value = 0, factor = 1;
    double real    = 0;
    const char *end, *real_end;

    text = ucs_config_resolve_auto(text, row);
    if (ucs_config_parse_special(text, row, largest, value_p)) {
        return UCS_OK;
    }

    real_end = (*text != '-') ? ucs_str_parse_double(text, &real) : NULL;
    if (real_end == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    factor = ucs_config_find_unit(units, real_end);
    if (factor == 0) {
        return UCS_ERR_INVALID_PARAM;
    }

    end = ucs_str_parse_u64(text, &value);
    if (end == real_end) {
        if (__builtin_mul_overflow(value, factor, &value)) {
            return UCS_ERR_OUT_OF_RANGE;
        }
    } else if (units == ucs_config_no_units) {
        return (end == NULL) ? UCS_ERR_OUT_OF_RANGE : UCS_ERR_INVALID_PARAM;
    } else {
        real = real * (double)factor + 0.5;
        if (!(real < 9e18)) {
            return UCS_ERR_OUT_OF_RANGE;
        }
        value = (uint64_t)real;
    }

    if ((value >= largest - 1) && (row->max == 0)) {
        return UCS_ERR_OUT_OF_RANGE;
    }

    *value_p = value;
    return ucs_config_bound(value_p, row);
}

/* The largest unit that divides the value, which is shown in full. */
static void ucs_config_print_scaled(char *buf, size_t max, uint64_t value, uint64_t largest,
                                    const ucs_config_unit_t *units, const ucs_config_row_t *row)
{
    const ucs_config_unit_t *best = units;

    if ((value == largest) && (row->flags & UCS_CONFIG_ROW_INF)) {
        ucs_str_copy(buf, max, UCS_CONFIG_WORD_INF);
        return;
    }
    if ((value == largest - 1) && (row->flags & UCS_CONFIG_ROW_AUTO)) {
        ucs_str_copy(buf, max, UCS_CONFIG_WORD_AUTO);
        return;
    }

    for (; (value > 0) && (units->name != NULL); ++units) {
        if ((value % units->factor == 0) && (units->factor > best->factor)) {
            best = units;
        }
    }

    snprintf(buf, max, "%llu%s", (unsigned long long)(value / best->factor), best->name);
}

static ucs_status_t ucs_config_int_parse(const char *text, void *field,
                                         const ucs_config_row_t *row UCS_UNUSED)
{
    const char *digits = text + (*text == '-');
    uint64_t value;
    const char *end;

    end = ucs_str_parse_u64(digits, &value);
    if ((end == NULL) ? (*digits < '0' || *digits > '9') : (*end != '\0')) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((end == NULL) || (value > (uint64_t)INT_MAX + (digits != text))) {
        return UCS_ERR_OUT_OF_RANGE;
    }

    *(int *)field = (int)((digits != text) ? -(int64_t)value : (int64_t)value);
    return UCS_OK;
}

static void ucs_config_int_print(char *buf, size_t max, const void *field,
                                 const ucs_config_row_t *row UCS_UNUSED)
{
    snprintf(buf, max, "%d", *(const int *)field);
}

/* ------------------------------------------------------------------ bytes and time */

static const ucs_config_unit_t ucs_config_memory_units[] = {
    {"", 1}, {"b", 1},
    {"K", 1ull << 10}, {"kb", 1ull << 10}, {"kib", 1ull << 10},
    {"M", 1ull << 20}, {"mb", 1ull << 20}, {"mib", 1ull << 20},
    {"G", 1ull << 30}, {"gb", 1ull << 30}, {"gib", 1ull << 30},
    {"T", 1ull << 40}, {"tb", 1ull << 40}, {"tib", 1ull << 40},
    {NULL, 0}
};

/* Seconds when no unit is given. */
static const ucs_config_unit_t ucs_config_time_units[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"", 1000000000},
    {"min", 60000000000ull}, {NULL, 0}
};

/* Reading and showing of a type of whole numbers. */
#define UCS_CONFIG_SCALED(_name, _field, _largest, _units) \
    static ucs_status_t \
    ucs_config_##_name##_parse(const char *text, void *field, const ucs_config_row_t *row) \
    { \
        uint64_t value      = 0; \
        ucs_status_t status = ucs_config_parse_scaled(text, _units, row, _largest, &value); \
        \
        if (!UCS_STATUS_IS_ERR(status)) { \
            *(_field *)field = (_field)value; \
        } \
        return status; \
    } \
    \
    static void ucs_config_##_name##_print(char *buf, size_t max, const void *field, \
                                           const ucs_config_row_t *row) \
    { \
        ucs_config_print_scaled(buf, max, *(const _field *)field, _largest, _units, row); \
    }

UCS_CONFIG_SCALED(uint, unsigned, UINT_MAX, ucs_config_no_units)
UCS_CONFIG_SCALED(u64, uint64_t, UINT64_MAX, ucs_config_no_units)
UCS_CONFIG_SCALED(memunits, size_t, SIZE_MAX, ucs_config_memory_units)
UCS_CONFIG_SCALED(time, uint64_t, UINT64_MAX, ucs_config_time_units)

/* ------------------------------------------------------------------ real numbers */

static ucs_status_t
ucs_config_double_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    double value;
    const char *end;

    if ((row->flags & UCS_CONFIG_ROW_INF) && !strcasecmp(text, UCS_CONFIG_WORD_INF)) {
        *(double *)field = INFINITY;
        return UCS_OK;
    }
    if ((row->flags & UCS_CONFIG_ROW_AUTO) && !strcasecmp(text, UCS_CONFIG_WORD_AUTO)) {
        *(double *)field = UCS_CONFIG_AUTO_DOUBLE;
        return UCS_OK;
    }

    end = ucs_str_parse_double(text, &value);
    if ((end == NULL) || (*end != '\0')) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!isfinite(value) || ((row->flags & UCS_CONFIG_ROW_AUTO) && (value < 0)) ||
        ((row->max != 0) && ((value < (double)row->min) || (value > (double)row->max)))) {
        return UCS_ERR_OUT_OF_RANGE;
    }

    *(double *)field = value;
    return UCS_OK;
}

/* The words for real numbers; not zero if the value is one of them. */
static int ucs_config_print_real_word(char *buf, size_t max, double value,
                                      const ucs_config_row_t *row)
{
    if (isinf(value)) {
        ucs_str_copy(buf, max, UCS_CONFIG_WORD_INF);
        return 1;
    }
    if ((row->flags & UCS_CONFIG_ROW_AUTO) && (value == UCS_CONFIG_AUTO_DOUBLE)) {
        ucs_str_copy(buf, max, UCS_CONFIG_WORD_AUTO);
        return 1;
    }

    return 0;
}

static void
ucs_config_double_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    if (!ucs_config_print_real_word(buf, max, *(const double *)field, row)) {
        ucs_str_print_double(buf, max, *(const double *)field);
    }
}

/* [kMGT](B|b)(s|ps|/s) as a factor to bytes per second; 0 if it is none of these. */
static double ucs_config_bandwidth_unit(const char *unit)
{
    static const char prefixes[] = "kmgtKMGT";
    const char *prefix;
    double factor = 1;
    int power;

    prefix = (*unit != '\0') ? strchr(prefixes, *unit) : NULL;
    if (prefix != NULL) {
        for (power = (int)((prefix - prefixes) % 4); power >= 0; --power) {
            factor *= 1000;
        }
        ++unit;
    }

    if ((*unit != 'B') && (*unit != 'b')) {
        return 0;
    }
    if (*unit == 'b') {
        factor /= 8;
    }

    ++unit;
    return (!strcmp(unit, "s") || !strcmp(unit, "ps") || !strcmp(unit, "/s")) ? factor : 0;
}

static ucs_status_t
ucs_config_bandwidth_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    double value, factor;
    const char *end;

    text = ucs_config_resolve_auto(text, row);
    if (!strcasecmp(text, UCS_CONFIG_WORD_INF) || !strcasecmp(text, UCS_CONFIG_WORD_AUTO)) {
        return ucs_config_double_parse(text, field, row);
    }

    end = (*text != '-') ? ucs_str_parse_double(text, &value) : NULL;
    if (end == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    factor = ucs_config_bandwidth_unit(end);
    if (factor == 0) {
        return UCS_ERR_INVALID_PARAM;
    }

    value *= factor;
    if (!isfinite(value)) {
        return UCS_ERR_OUT_OF_RANGE;
    }

    *(double *)field = fmax(value, (double)row->min);
    return (*(double *)field == value) ? UCS_OK : UCS_INPROGRESS;
}

/* The largest unit in which the value survives being read again. */
static void
ucs_config_bandwidth_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    static const char *const units[]   = {"TBs", "GBs", "MBs", "kBs", "Bs"};
    static const ucs_config_row_t free = {.name = NULL};
    double value                       = *(const double *)field, factor, again;
    char text[UCS_STR_DOUBLE_MAX];
    size_t i;

    if (ucs_config_print_real_word(buf, max, value, row)) {
        return;
    }

    for (i = 0; i < ucs_array_size(units); ++i) {
        factor = ucs_config_bandwidth_unit(units[i]);
        ucs_str_print_double(text, sizeof(text), value / factor);
        snprintf(buf, max, "%s%s", text, units[i]);
        if ((value >= factor) && (ucs_config_bandwidth_parse(buf, &again, &free) == UCS_OK) &&
            (again == value)) {
            return;
        }
    }
}

/* ------------------------------------------------------------------ the types */

static const char *const ucs_config_bool_names[]    = {"yes", "no", "on", "off", "true", "false",
                                                       NULL};
static const char *const ucs_config_ternary_names[] = {"yes", "no", "try", "auto", "on", "off",
                                                       NULL};

const ucs_config_type_t ucs_config_type_bool = {
    .name  = "bool",
    .size  = sizeof(int),
    .parse = ucs_config_word_parse,
    .print = ucs_config_word_print,
    .form  = "y or n",
    .words = ucs_config_bool_names
};

const ucs_config_type_t ucs_config_type_ternary = {
    .name  = "ternary",
    .size  = sizeof(int),
    .parse = ucs_config_word_parse,
    .print = ucs_config_word_print,
    .form  = "y, n, try or auto",
    .words = ucs_config_ternary_names
};

/* A type of numbers, read and shown by the functions of its name. */
#define UCS_CONFIG_NUMBER_TYPE(_name, _field, _form) \
    const ucs_config_type_t ucs_config_type_##_name = { \
        .name  = #_name, \
        .size  = sizeof(_field), \
        .parse = ucs_config_##_name##_parse, \
        .print = ucs_config_##_name##_print, \
        .form  = (_form) \
    }

UCS_CONFIG_NUMBER_TYPE(int, int, "a whole number");
UCS_CONFIG_NUMBER_TYPE(uint, unsigned, "a whole number, not negative");
UCS_CONFIG_NUMBER_TYPE(u64, uint64_t, "a whole number, not negative");
UCS_CONFIG_NUMBER_TYPE(double, double, "a number");
UCS_CONFIG_NUMBER_TYPE(memunits, size_t, "bytes, such as 4096, 8K, 1.5MB or 2g (units of 1024)");
UCS_CONFIG_NUMBER_TYPE(time, uint64_t, "a time, such as 3s, 1.5ms, 10us or 500ns");
UCS_CONFIG_NUMBER_TYPE(bandwidth, double, "a rate, such as 10GBs (bytes) or 800Mbps (bits)");

ucs_status_t ucs_config_parse_memory(const char *text, size_t *length_p, ucs_memory_type_t *type_p)
{
    static const ucs_config_row_t row = {.name = "size", .type = &ucs_config_type_memunits};
    size_t digits                     = strcspn(text, ",");
    int type                          = UCS_MEMORY_TYPE_HOST;
    char size[UCS_CONFIG_NAME_MAX];
    ucs_status_t status;

    if (digits >= sizeof(size)) {
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(size, text, digits);
    size[digits] = '\0';
    if (text[digits] == ',') {
        for (type = 0; (type < UCS_MEMORY_TYPE_LAST) &&
             (strcmp(ucs_memory_type_names[type], text + digits + 1) != 0); ++type) {
        }
    }
    if (type == UCS_MEMORY_TYPE_LAST) {
        return UCS_ERR_INVALID_PARAM;
    }
    status = row.type->parse(size, length_p, &row);
    if (status == UCS_OK) {
        *type_p = (ucs_memory_type_t)type;
    }
    return status;
}

const ucs_config_type_t ucs_config_type_enum = {
    .name  = "enum",
    .size  = sizeof(unsigned),
    .parse = ucs_config_enum_parse,
    .print = ucs_config_enum_print,
    .form  = "one of"
};
