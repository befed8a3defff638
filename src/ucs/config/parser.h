/* Halyard: configuration: tables of rows that say name, default, meaning and type of a value.
 *
 * A structure of options has a table of ucs_config_row_t, ended by a row without a name. The table
 * is all the documentation there is: help, dump, parser and man page come from it.
 *
 *     static const ucs_config_row_t rows[] = {
 *         UCS_CONFIG_ROW("FIFO_SIZE", uint, opts_t, fifo_size, "256", "Slots of a receive ring.",
 *                        .min = 16, .max = 65536, .flags = UCS_CONFIG_ROW_POW2),
 *         UCS_CONFIG_ROW("MODE", enum, opts_t, mode, "auto", "How it is done.",
 *                        .arg = mode_names),
 *         UCS_CONFIG_ROW_END
 *     };
 *
 * A value is looked for under these names, the first found counts:
 *     environment  <app>_UCX_<table><name>, then UCX_<table><name>
 *     ucx.conf     the same two names (see <ucs/config/file.h>)
 *     the row's default
 * <table> is a prefix such as "MM_"; a list "MM_,POSIX_,SYSV_" allows further spellings after the
 * first, which is the one shown. A set-user-id process does not look at the environment or files.
 *
 * Values come from users and are hostile: anything is either accepted or refused with one line that
 * names variable, value, expected form and the nearest valid word; nothing crashes. A number beyond
 * the row's bounds, which may suit UCX, is replaced by the nearest one within, with a warning.
 *
 * All functions: any thread, not two at once on one structure; nothing blocks but for files.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_PARSER_H
#define UCS_CONFIG_PARSER_H

#include <ucs/config/types.h>
#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

BEGIN_C_DECLS

#define UCS_CONFIG_PREFIX "UCX_"

#define UCS_CONFIG_WORD_INF  "inf"
#define UCS_CONFIG_WORD_AUTO "auto"

/* Bytes of a full variable name, and of a value in text form, each with its end. Longer values, and
 * values with control characters, are refused whatever their type. Blanks around a value are not
 * part of it. */
#define UCS_CONFIG_NAME_MAX  128
#define UCS_CONFIG_VALUE_MAX 4096

/* Names in one list. */
#define UCS_CONFIG_LIST_MAX 256

/* Words for numbers that are no number, where a row allows them: "inf" is the largest value of the
 * field's type, "auto" the largest but one; for `double` and bandwidth they are these. Users of UCX
 * write them for whole numbers of any kind: other rows read "auto" as their default, and "inf" as
 * their largest value where they have one. */
#define UCS_CONFIG_INF_SIZE     SIZE_MAX
#define UCS_CONFIG_AUTO_SIZE    (SIZE_MAX - 1)
#define UCS_CONFIG_INF_U64      UINT64_MAX
#define UCS_CONFIG_AUTO_U64     (UINT64_MAX - 1)
#define UCS_CONFIG_INF_UINT     UINT_MAX
#define UCS_CONFIG_AUTO_UINT    (UINT_MAX - 1)
#define UCS_CONFIG_AUTO_DOUBLE  (-1.0)

/* Properties of a row; bits. */
enum {
    UCS_CONFIG_ROW_POW2   = 1, /* the number must be a power of two */
    UCS_CONFIG_ROW_INF    = 2, /* "inf" is allowed */
    UCS_CONFIG_ROW_AUTO   = 4, /* "auto" is allowed */
    UCS_CONFIG_ROW_HIDDEN = 8, /* for experts: shown with UCS_CONFIG_PRINT_HIDDEN only */
    UCS_CONFIG_ROW_EMPTY  = 16 /* a list of names to allow may be empty: none is */
};

typedef struct ucs_config_row ucs_config_row_t;

/* A type of values. `size` is that of the field. Fields are written on success only. */
typedef struct ucs_config_type {
    const char *name;
    size_t     size;

    /* Turn text into a field. UCS_INPROGRESS: outside the row's bounds, the field is the nearest
     * value within; UCS_ERR_INVALID_PARAM: not of the expected form; UCS_ERR_OUT_OF_RANGE: of the
     * form, but more than the type or a list can hold; UCS_ERR_NO_MEMORY. */
    ucs_status_t (*parse)(const char *text, void *field, const ucs_config_row_t *row);

    /* Turn a field into text that parses to the same. Cut at `max` bytes, always terminated. */
    void (*print)(char *buf, size_t max, const void *field, const ucs_config_row_t *row);

    /* Make a second field of a first one's value. NULL: the bytes are copied. */
    ucs_status_t (*copy)(void *dest, const void *src);

    /* Release what the field owns. NULL: nothing. */
    void (*release)(void *field);

    /* The expected form in a few words; the names of the row's `arg` and its bounds follow. */
    const char *form;

    /* Words that are valid whatever the row says, NULL-terminated, or NULL. */
    const char *const *words;
} ucs_config_type_t;

struct ucs_config_row {
    const char              *name;
    const char              *dflt;
    const char              *help;   /* whole sentences, the unit among them */
    size_t                  offset;
    size_t                  size;    /* of the field; must be the type's */
    const ucs_config_type_t *type;
    const void              *arg;    /* NULL-terminated array of names. enum: the values; list:
                                      * what it may hold, one at least (NULL: anything) */
    uint64_t                min;     /* bounds of unsigned types, in the field's unit; */
    uint64_t                max;     /* 0: none */
    unsigned                flags;   /* UCS_CONFIG_ROW_... */
    const char              *prefix; /* in place of the table's; NULL: the table's */
};

/* A row: name, end of the type's name, structure, field, default, help, and what else there is to
 * say, as designated initialisers (arg, min, max, flags, prefix). */
#define UCS_CONFIG_ROW(_name, _type, _struct, _field, _dflt, _help, ...) \
    { \
        .name   = (_name), \
        .dflt   = (_dflt), \
        .help   = (_help), \
        .offset = offsetof(_struct, _field), \
        .size   = sizeof(((_struct *)0)->_field), \
        .type   = &ucs_config_type_##_type, \
        ##__VA_ARGS__ \
    }

#ifdef __cplusplus
#define UCS_CONFIG_ROW_END {}
#else
#define UCS_CONFIG_ROW_END {.name = NULL}
#endif

/* The types and their fields. */
extern const ucs_config_type_t ucs_config_type_bool;      /* int: 0, 1 */
extern const ucs_config_type_t ucs_config_type_ternary;   /* int: UCS_NO, _YES, _TRY, _AUTO */
extern const ucs_config_type_t ucs_config_type_int;       /* int */
extern const ucs_config_type_t ucs_config_type_uint;      /* unsigned */
extern const ucs_config_type_t ucs_config_type_u64;       /* uint64_t */
extern const ucs_config_type_t ucs_config_type_double;    /* double */
extern const ucs_config_type_t ucs_config_type_memunits;  /* size_t, bytes; K is 1024 and so on */
extern const ucs_config_type_t ucs_config_type_time;      /* uint64_t, ns; "3s" "10us" "1.5ms" */
extern const ucs_config_type_t ucs_config_type_bandwidth; /* double, bytes per second; "10GBs",
                                                           * "800Mbps": decimal, B bytes, b bits */
extern const ucs_config_type_t ucs_config_type_string;    /* char *, never NULL */
extern const ucs_config_type_t ucs_config_type_enum;      /* unsigned: index into row->arg */
extern const ucs_config_type_t ucs_config_type_list;      /* ucs_config_names_array_t: "a,b", "" */
extern const ucs_config_type_t ucs_config_type_allow;     /* ucs_config_allow_list_t: "all", "a,b",
                                                           * "^a,b" */

/* Parts of the type of strings, for types of strings that mean something. */
void ucs_config_string_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row);
ucs_status_t ucs_config_string_copy(void *dest, const void *src);
void ucs_config_string_release(void *field);

/* What ucs_config_fill does about a wrong value; bits. */
enum {
    UCS_CONFIG_FILL_DEFAULT = 1 /* say so, but go on with the row's default */
};

/* Fill all fields of `opts` (whose contents before do not matter). app_prefix is the application's,
 * such as "MPI", or NULL; table_prefix is the table's, or "". Errors (logged):
 * UCS_ERR_INVALID_PARAM, UCS_ERR_OUT_OF_RANGE for a wrong value, UCS_ERR_NO_MEMORY;
 * `opts` then holds nothing that must be released. */
ucs_status_t ucs_config_fill(void *opts, const ucs_config_row_t *rows, const char *app_prefix,
                             const char *table_prefix, unsigned flags);

/* Change one field from text; `name` is spelled with the table's prefix and without UCX_.
 * UCS_ERR_NO_ELEM, not logged: no such row here. Other errors as above, logged; nothing changed. */
ucs_status_t ucs_config_set(void *opts, const ucs_config_row_t *rows, const char *table_prefix,
                            const char *name, const char *value);

/* Make `dest` a deep copy. UCS_ERR_NO_MEMORY: `dest` holds nothing that must be released. */
ucs_status_t ucs_config_copy(void *dest, const void *src, const ucs_config_row_t *rows);

/* Release what the fields own; they are zero afterwards and may be released again. */
void ucs_config_release(void *opts, const ucs_config_row_t *rows);

/* Write the table and its values to `stream`: with UCS_CONFIG_PRINT_CONFIG lines
 * UCX_<table><name>=<value> and nothing else unless DOC, HEADER or COMMENT_DEFAULT ask for
 * comments. `title` may be NULL. `opts` may be NULL: the defaults are shown. */
void ucs_config_print(FILE *stream, const char *title, const void *opts,
                      const ucs_config_row_t *rows, const char *table_prefix,
                      ucs_config_print_flags_t flags);

/* The expected form of a row's values with its bounds, for people. */
void ucs_config_describe(const ucs_config_row_t *row, char *buf, size_t max);

/* Text for a message: what is not printable becomes '?', and what is long is cut. */
void ucs_config_sanitize(const char *text, char *buf, size_t max);

/* The prefixes of a row's variables, in a table whose own are given. */
const char *ucs_config_row_prefix(const ucs_config_row_t *row, const char *table_prefix);

/* The next prefix of a list such as "MM_,POSIX_" into buf, of UCS_CONFIG_NAME_MAX bytes; *list_p
 * moves on. Returns 0 at the end of the list; "" is a list of one empty prefix. */
int ucs_config_next_prefix(const char **list_p, char *buf);

/* Amount and kind of memory from "SIZE" (then of the host) or "SIZE,KIND", such as "64K,cuda".
 * UCS_ERR_INVALID_PARAM, _OUT_OF_RANGE, not logged: it is not. */
ucs_status_t ucs_config_parse_memory(const char *text, size_t *length_p, ucs_memory_type_t *type_p);

/* True if the list lets the name pass. Its elements may hold '*' and '?'. */
int ucs_config_allow_list_has(const ucs_config_allow_list_t *list, const char *name);

END_C_DECLS

#endif
