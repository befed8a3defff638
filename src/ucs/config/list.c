/* Halyard: configuration: the types of values that own memory: strings and lists of names.
 *
 * A list is one allocation: the array of pointers, and behind it the text with the commas turned
 * into ends. So a list is made, copied and released in one piece, and there is no half-made one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/parser.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define UCS_CONFIG_LIST_ALL "all"

/* ------------------------------------------------------------------ string */

static ucs_status_t ucs_config_string_parse(const char *text, void *field,
                                            const ucs_config_row_t *row UCS_UNUSED)
{
    char *copy = ucs_sys_strdup(text);

    if (copy == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    *(char **)field = copy;
    return UCS_OK;
}

void ucs_config_string_print(char *buf, size_t max, const void *field,
                             const ucs_config_row_t *row UCS_UNUSED)
{
    const char *text = *(char *const *)field;

    ucs_str_copy(buf, max, (text != NULL) ? text : "");
}

ucs_status_t ucs_config_string_copy(void *dest, const void *src)
{
    const char *text = *(char *const *)src;

    return ucs_config_string_parse((text != NULL) ? text : "", dest, NULL);
}

void ucs_config_string_release(void *field)
{
    ucs_sys_free(*(char **)field);
    *(char **)field = NULL;
}

/* ------------------------------------------------------------------ list */

/* One name of a list: blanks around it do not count, nor backslashes in front of it, by which
 * UCX's users say that they mean no alias. Returns what follows the comma, or NULL. */
static const char *ucs_config_list_next(const char *text, const char **name_p, size_t *length_p)
{
    size_t length     = strcspn(text, ",");
    const char *after = (text[length] == ',') ? text + length + 1 : NULL;

    text = ucs_str_trim(text, &length);
    while ((length > 1) && (*text == '\\')) {
        --length;
        text = ucs_str_trim(text + 1, &length);
    }

    *name_p   = text;
    *length_p = length;
    return after;
}

/* Number of names. UCS_ERR_INVALID_PARAM for an empty one among others, UCS_ERR_OUT_OF_RANGE for
 * too many. */
static ucs_status_t ucs_config_list_count(const char *text, unsigned *count_p)
{
    const char *next = text, *name;
    size_t length;

    *count_p = 0;
    while (next != NULL) {
        next = ucs_config_list_next(next, &name, &length);
        if (length == 0) {
            /* nothing at all is the empty list */
            return ((next == NULL) && (*count_p == 0)) ? UCS_OK : UCS_ERR_INVALID_PARAM;
        }
        if (++*count_p > UCS_CONFIG_LIST_MAX) {
            return UCS_ERR_OUT_OF_RANGE;
        }
    }

    return UCS_OK;
}

static ucs_status_t ucs_config_list_make(const char *text, ucs_config_names_array_t *array)
{
    ucs_config_names_array_t made = {.names = NULL};
    const char *next              = text, *name;
    unsigned count, i;
    size_t length;
    ucs_status_t status;
    char *to;

    status = ucs_config_list_count(text, &count);
    if (status != UCS_OK) {
        return status;
    }

    if (count == 0) {
        *array = made;
        return UCS_OK;
    }
    made.names = ucs_sys_malloc(count * sizeof(char *) + strlen(text) + 1);
    if (made.names == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    made.count = count;
    to         = (char *)(made.names + count);
    for (i = 0; i < count; ++i) {
        next = ucs_config_list_next(next, &name, &length);
        memcpy(to, name, length);
        to[length]    = '\0';
        made.names[i] = to;
        to           += length + 1;
    }

    *array = made;
    return UCS_OK;
}

static void ucs_config_list_release(void *field)
{
    ucs_config_names_array_t *array = field;

    ucs_sys_free(array->names);
    array->names = NULL;
    array->count = 0;
}

/* Where the row has words: some of them. */
static int ucs_config_list_is_sound(const ucs_config_names_array_t *array,
                                    const ucs_config_row_t *row)
{
    const char *const *word;
    unsigned i;

    for (i = 0; (row->arg != NULL) && (i < array->count); ++i) {
        for (word = row->arg; (*word != NULL) && (strcasecmp(*word, array->names[i]) != 0);
             ++word) {
        }
        if (*word == NULL) {
            return 0;
        }
    }

    return (row->arg == NULL) || (array->count > 0);
}

static ucs_status_t
ucs_config_list_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    ucs_config_names_array_t *array = field;
    ucs_status_t status             = ucs_config_list_make(text, array);

    if ((status == UCS_OK) && !ucs_config_list_is_sound(array, row)) {
        ucs_config_list_release(array);
        return UCS_ERR_INVALID_PARAM;
    }

    return status;
}

static void ucs_config_list_print(char *buf, size_t max, const void *field,
                                  const ucs_config_row_t *row UCS_UNUSED)
{
    const ucs_config_names_array_t *array = field;
    size_t length                         = 0;
    unsigned i;

    ucs_str_copy(buf, max, "");
    for (i = 0; (i < array->count) && (length < max); ++i) {
        snprintf(buf + length, max - length, "%s%s", (i > 0) ? "," : "", array->names[i]);
        length += strlen(buf + length);
    }
}

static ucs_status_t ucs_config_list_copy(void *dest, const void *src)
{
    const ucs_config_names_array_t *from = src;
    ucs_config_names_array_t made        = {.names = NULL, .count = from->count};
    const char *start                    = (const char *)from->names, *last;
    size_t bytes;
    unsigned i;

    if (from->count > 0) {
        last       = from->names[from->count - 1]; /* the block ends with it */
        bytes      = (size_t)(last - start) + strlen(last) + 1;
        made.names = ucs_sys_malloc(bytes);
        if (made.names == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        memcpy(made.names, start, bytes);
    }
    for (i = 0; i < made.count; ++i) {
        made.names[i] = (char *)made.names + (from->names[i] - start);
    }

    *(ucs_config_names_array_t *)dest = made;
    return UCS_OK;
}

/* ------------------------------------------------------------------ allow and deny list */

/* A list that contradicts itself: "all" beside other names, or '^' elsewhere than at the front. */
static int ucs_config_allow_is_sound(const ucs_config_names_array_t *array)
{
    unsigned i;

    for (i = 0; i < array->count; ++i) {
        if ((array->names[i][0] == '^') || !strcasecmp(array->names[i], UCS_CONFIG_LIST_ALL)) {
            return 0;
        }
    }

    return array->count > 0;
}

static ucs_status_t ucs_config_allow_parse(const char *text, void *field,
                                           const ucs_config_row_t *row)
{
    ucs_config_allow_list_t list = {.mode = UCS_CONFIG_ALLOW_LIST_ALLOW};
    ucs_status_t status;

    text += strspn(text, " \t");

    if (*text == '^') {
        list.mode = UCS_CONFIG_ALLOW_LIST_NEGATE;
        ++text;
    }

    status = ucs_config_list_make(text, &list.array);
    if (status != UCS_OK) {
        return status;
    }

    if ((list.mode == UCS_CONFIG_ALLOW_LIST_ALLOW) && (list.array.count == 1) &&
        !strcasecmp(list.array.names[0], UCS_CONFIG_LIST_ALL)) {
        ucs_config_list_release(&list.array);
        list.mode = UCS_CONFIG_ALLOW_LIST_ALLOW_ALL;
    } else if (!ucs_config_allow_is_sound(&list.array) &&
               ((list.array.count > 0) || !(row->flags & UCS_CONFIG_ROW_EMPTY))) {
        ucs_config_list_release(&list.array);
        return UCS_ERR_INVALID_PARAM;
    }

    *(ucs_config_allow_list_t *)field = list;
    return UCS_OK;
}

static void
ucs_config_allow_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    const ucs_config_allow_list_t *list = field;
    size_t length;

    if (list->mode == UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) {
        ucs_str_copy(buf, max, UCS_CONFIG_LIST_ALL);
        return;
    }

    ucs_str_copy(buf, max, (list->mode == UCS_CONFIG_ALLOW_LIST_NEGATE) ? "^" : "");
    length = strlen(buf);
    ucs_config_list_print(buf + length, max - length, &list->array, row);
}

static ucs_status_t ucs_config_allow_copy(void *dest, const void *src)
{
    const ucs_config_allow_list_t *from = src;
    ucs_config_allow_list_t *to         = dest;
    ucs_status_t status;

    status = ucs_config_list_copy(&to->array, &from->array);
    if (status == UCS_OK) {
        to->mode = from->mode;
    }

    return status;
}

static void ucs_config_allow_release(void *field)
{
    ucs_config_allow_list_t *list = field;

    ucs_config_list_release(&list->array);
    list->mode = UCS_CONFIG_ALLOW_LIST_ALLOW_ALL;
}

int ucs_config_allow_list_has(const ucs_config_allow_list_t *list, const char *name)
{
    unsigned i;

    for (i = 0; i < list->array.count; ++i) {
        if (ucs_str_match(list->array.names[i], name)) {
            return list->mode == UCS_CONFIG_ALLOW_LIST_ALLOW;
        }
    }

    return list->mode != UCS_CONFIG_ALLOW_LIST_ALLOW;
}

/* ------------------------------------------------------------------ the types */

const ucs_config_type_t ucs_config_type_string = {
    .name    = "string",
    .size    = sizeof(char *),
    .parse   = ucs_config_string_parse,
    .print   = ucs_config_string_print,
    .copy    = ucs_config_string_copy,
    .release = ucs_config_string_release,
    .form    = "text"
};

const ucs_config_type_t ucs_config_type_list = {
    .name    = "list",
    .size    = sizeof(ucs_config_names_array_t),
    .parse   = ucs_config_list_parse,
    .print   = ucs_config_list_print,
    .copy    = ucs_config_list_copy,
    .release = ucs_config_list_release,
    .form    = "names separated by commas"
};

const ucs_config_type_t ucs_config_type_allow = {
    .name    = "allow",
    .size    = sizeof(ucs_config_allow_list_t),
    .parse   = ucs_config_allow_parse,
    .print   = ucs_config_allow_print,
    .copy    = ucs_config_allow_copy,
    .release = ucs_config_allow_release,
    .form    = "'all', names to allow 'a,b', or names to leave out '^a,b' (one '^', in "
               "front of all)"
};
