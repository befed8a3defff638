/* Halyard: configuration: filling, changing, copying and releasing structures of options by table.
 *
 * A new value is always made in a place of its own and moved into the structure when it is whole,
 * so that an error leaves the old value where it was.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/file.h>
#include <ucs/config/global.h>
#include <ucs/config/parser.h>
#include <ucs/debug/assert.h>
#include <ucs/debug/report.h>
#include <ucs/sys/string.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Variables of the environment that a fill looks at; with more it asks getenv each time. */
#define UCS_CONFIG_ENV_MAX 256

/* Bytes of text from outside that a message repeats. */
#define UCS_CONFIG_QUOTE_MAX 80

/* Room for one field of any type. */
typedef union {
    char                    bytes[64];
    ucs_config_allow_list_t list;
    double                  real;
    uint64_t                whole;
} ucs_config_field_t;

/* The environment's entries that can concern us, so that a table of a hundred rows does not search
 * the whole environment some hundred times. */
typedef struct {
    const char *entries[UCS_CONFIG_ENV_MAX];
    unsigned   count;
    int        overflow;
} ucs_config_env_t;

/* What a fill knows beside the table. */
typedef struct {
    ucs_config_env_t env;
    const char       *app_prefix;
    const char       *table_prefix;
    unsigned         flags;
} ucs_config_source_t;

/* A value found: its text, the variable's full name, and where it was. */
typedef struct {
    const char *text;
    char       name[UCS_CONFIG_NAME_MAX];
    const char *place;
} ucs_config_found_t;

static void *ucs_config_field(const void *opts, const ucs_config_row_t *row)
{
    return (char *)opts + row->offset;
}

/* ------------------------------------------------------------------ text for people */

void ucs_config_sanitize(const char *text, char *buf, size_t max)
{
    size_t i;

    for (i = 0; (i < max - 1) && (text[i] != '\0'); ++i) {
        buf[i] = (((unsigned char)text[i] < ' ') || (text[i] == 0x7f)) ? '?' : text[i];
    }

    buf[i] = '\0';
    if ((text[i] != '\0') && (i > 3)) {
        memcpy(buf + i - 3, "...", 3);
    }
}

static void ucs_config_append(char *buf, size_t max, const char *text, const char *value)
{
    size_t length = strlen(buf);

    snprintf(buf + length, max - length, "%s%s", text, value);
}

/* A bound in the words of its type. */
static void ucs_config_append_bound(const ucs_config_row_t *row, char *buf, size_t max,
                                    const char *text, uint64_t bound)
{
    ucs_config_field_t field = {.whole = bound};
    char value[UCS_STR_DOUBLE_MAX];

    if (row->type->size == sizeof(unsigned)) {
        *(unsigned *)&field = (unsigned)bound;
    } else if ((row->type == &ucs_config_type_double) ||
               (row->type == &ucs_config_type_bandwidth)) {
        field.real = (double)bound;
    }

    row->type->print(value, sizeof(value), &field, row);
    ucs_config_append(buf, max, text, value);
}

/* Words that are valid in a row: its type's, or those that it names, or (in `numbers`) those that
 * it allows beside a number; NULL-terminated, maybe none. */
static const char *const *ucs_config_words(const ucs_config_row_t *row, const char *numbers[3])
{
    unsigned count = 0;

    if (row->flags & UCS_CONFIG_ROW_INF) {
        numbers[count++] = UCS_CONFIG_WORD_INF;
    }
    if (row->flags & UCS_CONFIG_ROW_AUTO) {
        numbers[count++] = UCS_CONFIG_WORD_AUTO;
    }
    numbers[count] = NULL;
    return (row->type->words != NULL) ? row->type->words :
           (row->arg != NULL) ? row->arg : numbers;
}

void ucs_config_describe(const ucs_config_row_t *row, char *buf, size_t max)
{
    const char *const *words;
    const char *numbers[3];

    ucs_str_copy(buf, max, row->type->form);
    for (words = row->arg; (words != NULL) && (*words != NULL); ++words) {
        ucs_config_append(buf, max, (words == row->arg) ? ": " : ", ", *words);
    }
    if ((row->min != 0) && (row->max != 0)) {
        ucs_config_append_bound(row, buf, max, ", from ", row->min);
        ucs_config_append_bound(row, buf, max, " to ", row->max);
    } else if (row->min != 0) {
        ucs_config_append_bound(row, buf, max, ", at least ", row->min);
    } else if (row->max != 0) {
        ucs_config_append_bound(row, buf, max, ", at most ", row->max);
    }
    if (row->flags & UCS_CONFIG_ROW_POW2) {
        ucs_config_append(buf, max, ", a power of two", "");
    }
    if (row->flags & (UCS_CONFIG_ROW_INF | UCS_CONFIG_ROW_AUTO)) {
        for (words = ucs_config_words(row, numbers); *words != NULL; ++words) {
            ucs_config_append(buf, max, ", or ", *words);
        }
    }
}

/* The word meant by the first name of a text, mostly the only one, that is like one; or NULL. */
static const char *ucs_config_meant(const char *text, const char *const *words)
{
    char names[UCS_CONFIG_QUOTE_MAX], *rest;
    const char *name, *nearest;

    ucs_str_copy(names, sizeof(names), text);
    for (name = strtok_r(names, ", \t", &rest); name != NULL;
         name = strtok_r(NULL, ", \t", &rest)) {
        nearest = ucs_str_nearest(name, words);
        if ((nearest != NULL) && (strcasecmp(nearest, name) != 0)) {
            return nearest;
        }
    }

    return NULL;
}

/* One line about a wrong value, with the cure; `used`: the field that takes its place, or NULL. */
static void ucs_config_complain(const ucs_config_row_t *row, const ucs_config_found_t *found,
                                ucs_status_t status, const void *used)
{
    char quote[UCS_CONFIG_QUOTE_MAX], form[512], cure[256] = "", value[128];
    const char *nearest, *numbers[3];

    if (status == UCS_ERR_NO_MEMORY) {
        ucs_error("no memory to store %s", found->name);
        return;
    }

    ucs_config_sanitize(found->text, quote, sizeof(quote));
    ucs_config_describe(row, form, sizeof(form));
    nearest = ucs_config_meant(quote, ucs_config_words(row, numbers));
    if (nearest != NULL) {
        snprintf(cure, sizeof(cure), "; did you mean '%s'?", nearest);
    }
    if (used != NULL) {
        row->type->print(value, sizeof(value), used, row);
        ucs_config_append(cure, sizeof(cure), "; used instead: ", value);
    }

    ucs_log((used != NULL) ? UCS_LOG_LEVEL_WARN : UCS_LOG_LEVEL_ERROR,
            "%s='%s' (%s) is %s: expected %s%s", found->name, quote, found->place,
            (status == UCS_ERR_INVALID_PARAM) ? "not valid" : "out of range", form, cure);
}

/* ------------------------------------------------------------------ parsing one value */

/* The value without blanks around it. UCS_ERR_INVALID_PARAM if it is too long or not plain text. */
static ucs_status_t ucs_config_trim(const char *text, char *buf)
{
    size_t length, i;

    text  += strspn(text, " \t");
    length = strnlen(text, UCS_CONFIG_VALUE_MAX);
    if (length >= UCS_CONFIG_VALUE_MAX) {
        return UCS_ERR_INVALID_PARAM;
    }
    text = ucs_str_trim(text, &length);
    for (i = 0; i < length; ++i) {
        if (((unsigned char)text[i] < ' ') || (text[i] == 0x7f)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }

    memcpy(buf, text, length);
    buf[length] = '\0';
    return UCS_OK;
}

static ucs_status_t
ucs_config_parse(const ucs_config_row_t *row, const char *text, ucs_config_field_t *field)
{
    char value[UCS_CONFIG_VALUE_MAX];
    ucs_status_t status;

    ucs_assertv_always((row->size == row->type->size) && (row->size <= sizeof(*field)),
                       "%s is no field of type %s", row->name, row->type->name);
    status = ucs_config_trim(text, value);
    return (status == UCS_OK) ? row->type->parse(value, field, row) : status;
}

static void ucs_config_release_field(const ucs_config_row_t *row, void *field)
{
    if (row->type->release != NULL) {
        row->type->release(field);
    }
}

/* ------------------------------------------------------------------ finding a value */

static void ucs_config_env_init(ucs_config_env_t *env)
{
    char **entry;

    env->count    = 0;
    env->overflow = 0;
    if ((environ == NULL) || getauxval(AT_SECURE)) {
        return;
    }

    for (entry = environ; *entry != NULL; ++entry) {
        if (strstr(*entry, UCS_CONFIG_PREFIX) == NULL) {
            continue;
        }
        if (env->count == UCS_CONFIG_ENV_MAX) {
            env->overflow = 1;
            return;
        }
        env->entries[env->count++] = *entry;
    }
}

static const char *ucs_config_env_get(const ucs_config_env_t *env, const char *name)
{
    size_t length = strlen(name);
    unsigned i;

    if (env->overflow) {
        return secure_getenv(name);
    }

    for (i = 0; i < env->count; ++i) {
        if (!strncmp(env->entries[i], name, length) && (env->entries[i][length] == '=')) {
            return env->entries[i] + length + 1;
        }
    }

    return NULL;
}

const char *ucs_config_row_prefix(const ucs_config_row_t *row, const char *table_prefix)
{
    return (row->prefix != NULL) ? row->prefix : table_prefix;
}

int ucs_config_next_prefix(const char **list_p, char *buf)
{
    const char *list = *list_p;
    size_t length;

    if (list == NULL) {
        return 0;
    }

    length = strcspn(list, ",");
    snprintf(buf, UCS_CONFIG_NAME_MAX, "%.*s",
             (int)ucs_min(length, UCS_CONFIG_NAME_MAX - 1ul), list);
    *list_p = (list[length] == ',') ? list + length + 1 : NULL;
    return 1;
}

/* Look in one source (environment or files) under one application prefix ("" or "MPI_"). */
static int ucs_config_find_in(const ucs_config_source_t *source, const ucs_config_row_t *row,
                              const char *app, int in_files, ucs_config_found_t *found)
{
    const char *list = ucs_config_row_prefix(row, source->table_prefix);
    char prefix[UCS_CONFIG_NAME_MAX];
    int length;

    while (ucs_config_next_prefix(&list, prefix)) {
        length = snprintf(found->name, sizeof(found->name), "%s%s" UCS_CONFIG_PREFIX "%s%s",
                          app, (app[0] != '\0') ? "_" : "", prefix, row->name);
        if (length >= (int)sizeof(found->name)) {
            continue;
        }

        found->place = "environment";
        found->text  = in_files ? ucs_config_file_get(found->name, &found->place) :
                                  ucs_config_env_get(&source->env, found->name);
        if (found->text != NULL) {
            return 1;
        }
    }

    return 0;
}

static void ucs_config_find(const ucs_config_source_t *source, const ucs_config_row_t *row,
                            ucs_config_found_t *found)
{
    const char *app = (source->app_prefix != NULL) ? source->app_prefix : "";
    int in_files;

    for (in_files = 0; in_files < 2; ++in_files) {
        if (((app[0] != '\0') && ucs_config_find_in(source, row, app, in_files, found)) ||
            ucs_config_find_in(source, row, "", in_files, found)) {
            return;
        }
    }

    found->text  = row->dflt;
    found->place = "default";
}

/* ------------------------------------------------------------------ whole structures */

static ucs_status_t ucs_config_fill_row(void *opts, const ucs_config_row_t *row,
                                        const ucs_config_source_t *source)
{
    ucs_config_found_t found;
    ucs_config_field_t field;
    ucs_status_t status, used;

    ucs_config_find(source, row, &found);
    status = used = ucs_config_parse(row, found.text, &field);
    if (UCS_STATUS_IS_ERR(status) && (status != UCS_ERR_NO_MEMORY) &&
        (source->flags & UCS_CONFIG_FILL_DEFAULT) && (found.text != row->dflt)) {
        used = ucs_config_parse(row, row->dflt, &field);
    }
    if (status != UCS_OK) {
        ucs_config_complain(row, &found, status, UCS_STATUS_IS_ERR(used) ? NULL : &field);
    }
    if (UCS_STATUS_IS_ERR(used)) {
        return used;
    }

    memcpy(ucs_config_field(opts, row), &field, row->type->size);
    return UCS_OK;
}

/* Release the fields of the first `count` rows, or of all. */
static void ucs_config_release_rows(void *opts, const ucs_config_row_t *rows, size_t count)
{
    size_t i;

    for (i = 0; (i < count) && (rows[i].name != NULL); ++i) {
        ucs_config_release_field(&rows[i], ucs_config_field(opts, &rows[i]));
    }
}

ucs_status_t ucs_config_fill(void *opts, const ucs_config_row_t *rows, const char *app_prefix,
                             const char *table_prefix, unsigned flags)
{
    ucs_config_source_t source = {
        .app_prefix   = app_prefix,
        .table_prefix = table_prefix,
        .flags        = flags
    };
    ucs_status_t status;
    size_t i;

    ucs_config_hold_over_fork();
    ucs_config_env_init(&source.env);
    for (i = 0; rows[i].name != NULL; ++i) {
        status = ucs_config_fill_row(opts, &rows[i], &source);
        if (status != UCS_OK) {
            ucs_config_release_rows(opts, rows, i);
            return status;
        }
    }

    return UCS_OK;
}

static const ucs_config_row_t *
ucs_config_find_row(const ucs_config_row_t *rows, const char *table_prefix, const char *name)
{
    char prefix[UCS_CONFIG_NAME_MAX];
    const ucs_config_row_t *row;
    const char *list;
    size_t length;

    for (row = rows; row->name != NULL; ++row) {
        list = ucs_config_row_prefix(row, table_prefix);
        while (ucs_config_next_prefix(&list, prefix)) {
            length = strlen(prefix);
            if ((strncmp(name, prefix, length) == 0) && (strcmp(name + length, row->name) == 0)) {
                return row;
            }
        }
    }

    return NULL;
}

ucs_status_t ucs_config_set(void *opts, const ucs_config_row_t *rows, const char *table_prefix,
                            const char *name, const char *value)
{
    const ucs_config_row_t *row = ucs_config_find_row(rows, table_prefix, name);
    ucs_config_found_t found    = {.text = value, .place = "set by the program"};
    ucs_config_field_t field;
    ucs_status_t status;

    if (row == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    status = ucs_config_parse(row, value, &field);
    if (status != UCS_OK) {
        ucs_str_copy(found.name, sizeof(found.name), name);
        ucs_config_complain(row, &found, status, UCS_STATUS_IS_ERR(status) ? NULL : &field);
    }
    if (UCS_STATUS_IS_ERR(status)) {
        return status;
    }

    ucs_config_release_field(row, ucs_config_field(opts, row));
    memcpy(ucs_config_field(opts, row), &field, row->type->size);
    return UCS_OK;
}

ucs_status_t ucs_config_copy(void *dest, const void *src, const ucs_config_row_t *rows)
{
    ucs_status_t status;
    size_t i;

    for (i = 0; rows[i].name != NULL; ++i) {
        if (rows[i].type->copy == NULL) {
            memcpy(ucs_config_field(dest, &rows[i]), ucs_config_field(src, &rows[i]),
                   rows[i].type->size);
            continue;
        }

        status = rows[i].type->copy(ucs_config_field(dest, &rows[i]),
                                    ucs_config_field(src, &rows[i]));
        if (status != UCS_OK) {
            ucs_config_release_rows(dest, rows, i);
            return status;
        }
    }

    return UCS_OK;
}

void ucs_config_release(void *opts, const ucs_config_row_t *rows)
{
    ucs_config_release_rows(opts, rows, SIZE_MAX);
}

/* ------------------------------------------------------------------ print */

/* Comment lines of at most some 80 columns. */
static void ucs_config_print_wrapped(ucs_report_t *report, const char *text)
{
    size_t column = 0, length;

    for (text += strspn(text, " \n"); *text != '\0'; text += strspn(text, " \n")) {
        length = strcspn(text, " \n");
        if ((column == 0) || (column + length > 76)) {
            ucs_report_text(report, (column == 0) ? "#" : "\n#");
            column = 0;
        }
        ucs_report_text(report, " %.*s", (int)length, text);
        column += length + 1;
        text   += length;
    }
    ucs_report_text(report, "\n");
}

static void ucs_config_print_doc(ucs_report_t *report, const ucs_config_row_t *row)
{
    char form[512];

    ucs_config_describe(row, form, sizeof(form));
    ucs_report_text(report, "\n#\n");
    ucs_config_print_wrapped(report, row->help);
    ucs_report_data(report, "help", "%s", row->help);
    ucs_report_row(report, "expected -", "#\n# expected: %s\n# default:  %s\n#\n", form,
                   row->dflt);
}

/* The text of a row's default, after parsing: "8K" for "8192". */
static void ucs_config_default_text(const ucs_config_row_t *row, char *buf, size_t max)
{
    ucs_config_field_t field;

    if (ucs_config_parse(row, row->dflt, &field) != UCS_OK) {
        ucs_str_copy(buf, max, row->dflt);
        return;
    }

    row->type->print(buf, max, &field, row);
    ucs_config_release_field(row, &field);
}

static void ucs_config_print_row(ucs_report_t *report, const void *opts,
                                 const ucs_config_row_t *row, const char *name,
                                 ucs_config_print_flags_t flags)
{
    char value[UCS_CONFIG_VALUE_MAX], dflt[UCS_CONFIG_VALUE_MAX];
    int is_default;

    ucs_config_default_text(row, dflt, sizeof(dflt));
    if (opts != NULL) {
        row->type->print(value, sizeof(value), ucs_config_field(opts, row), row);
    } else {
        ucs_str_copy(value, sizeof(value), dflt);
    }

    is_default = !strcmp(value, dflt);
    ucs_report_open(report, NULL, '{');
    if (flags & UCS_CONFIG_PRINT_DOC) {
        ucs_config_print_doc(report, row);
    }
    ucs_report_row(report, "- name value", "%s%s=%s\n",
                   (is_default && (flags & UCS_CONFIG_PRINT_COMMENT_DEFAULT)) ? "# " : "", name,
                   value);
    ucs_report_data(report, "default changed?", "%s%d", dflt, !is_default);
    ucs_report_close(report);
    ++report->shown;
}

void ucs_config_print(FILE *stream, const char *title, const void *opts,
                      const ucs_config_row_t *rows, const char *table_prefix,
                      ucs_config_print_flags_t flags)
{
    char prefix[UCS_CONFIG_NAME_MAX], name[3 * UCS_CONFIG_NAME_MAX];
    ucs_report_t storage, *report = ucs_report_begin(stream, &storage);
    unsigned shown                = report->shown;
    const ucs_config_row_t *row;
    const char *list;

    if ((flags & UCS_CONFIG_PRINT_HEADER) && (title != NULL)) {
        ucs_report_text(report, "#\n# %s\n#\n%s", title,
                        (flags & UCS_CONFIG_PRINT_DOC) ? "" : "\n");
    }
    for (row = rows;
         (flags & (UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC)) && (row->name != NULL); ++row) {
        list = ucs_config_row_prefix(row, table_prefix);
        (void)ucs_config_next_prefix(&list, prefix);
        snprintf(name, sizeof(name), UCS_CONFIG_PREFIX "%s%s", prefix, row->name);
        if ((!(row->flags & UCS_CONFIG_ROW_HIDDEN) || (flags & UCS_CONFIG_PRINT_HIDDEN)) &&
            ((report->filter == NULL) || (strcasestr(name, report->filter) != NULL))) {
            ucs_config_print_row(report, opts, row, name, flags);
        }
    }

    if ((report->shown > shown) && (flags & (UCS_CONFIG_PRINT_HEADER | UCS_CONFIG_PRINT_DOC))) {
        ucs_report_text(report, "\n");
    }
    ucs_report_end(report, stream);
}
