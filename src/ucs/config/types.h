/* Halyard: plain types of the configuration and of logging that the public interface names.
 *
 * Installed. The parser, the tables and the values themselves are internal and stand elsewhere.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_TYPES_H
#define UCS_CONFIG_TYPES_H

#include <ucs/sys/compiler_def.h>
#include <sys/types.h>
#include <sys/socket.h>

BEGIN_C_DECLS

/* How important a log message is; a message is shown if its level is at most the configured one. */
typedef enum {
    UCS_LOG_LEVEL_FATAL,        /* the process cannot go on */
    UCS_LOG_LEVEL_ERROR,        /* an operation failed and its caller is told */
    UCS_LOG_LEVEL_WARN,         /* unexpected, but the work goes on */
    UCS_LOG_LEVEL_DIAG,         /* why something was adjusted or left out */
    UCS_LOG_LEVEL_INFO,
    UCS_LOG_LEVEL_DEBUG,
    UCS_LOG_LEVEL_TRACE,
    UCS_LOG_LEVEL_TRACE_REQ,    /* each request */
    UCS_LOG_LEVEL_TRACE_DATA,   /* each message on the wire */
    UCS_LOG_LEVEL_TRACE_ASYNC,
    UCS_LOG_LEVEL_TRACE_FUNC,   /* each call */
    UCS_LOG_LEVEL_TRACE_POLL,   /* each poll, found or not */
    UCS_LOG_LEVEL_LAST,
    UCS_LOG_LEVEL_PRINT         /* always shown */
} ucs_log_level_t;

/* A switch that may be left to the library. */
typedef enum ucs_ternary_auto_value {
    UCS_NO   = 0,
    UCS_YES  = 1,   /* fail where it cannot be had */
    UCS_TRY  = 2,   /* use it where it can be had */
    UCS_AUTO = 3,
    UCS_TERNARY_LAST
} ucs_ternary_auto_value_t;

typedef enum ucs_on_off_auto_value {
    UCS_CONFIG_OFF  = 0,
    UCS_CONFIG_ON   = 1,
    UCS_CONFIG_AUTO = 2,
    UCS_CONFIG_ON_OFF_LAST
} ucs_on_off_auto_value_t;

/* What ucp_config_print writes; bits. */
typedef enum {
    UCS_CONFIG_PRINT_CONFIG          = UCS_BIT(0),  /* KEY=VALUE lines */
    UCS_CONFIG_PRINT_HEADER          = UCS_BIT(1),  /* the title first */
    UCS_CONFIG_PRINT_DOC             = UCS_BIT(2),  /* each variable's help and syntax */
    UCS_CONFIG_PRINT_HIDDEN          = UCS_BIT(3),  /* variables for experts too */
    UCS_CONFIG_PRINT_COMMENT_DEFAULT = UCS_BIT(4)   /* unchanged values as comments */
} ucs_config_print_flags_t;

/* A list inside a configuration structure: _array_name[0 .. count - 1]. `truncated` is not zero
 * where the text held more elements than the list can. */
#define UCS_CONFIG_ARRAY_FIELD(_type, _array_name) \
    struct { \
        _type    *_array_name; \
        unsigned count; \
        unsigned truncated; \
    }

#define UCS_CONFIG_STRING_ARRAY_FIELD(_array_name) UCS_CONFIG_ARRAY_FIELD(char *, _array_name)

typedef UCS_CONFIG_STRING_ARRAY_FIELD(names) ucs_config_names_array_t;

/* Meaning of a list of names: everything, only these ("a,b"), or all but these ("^a,b"). */
typedef enum {
    UCS_CONFIG_ALLOW_LIST_ALLOW_ALL,
    UCS_CONFIG_ALLOW_LIST_ALLOW,
    UCS_CONFIG_ALLOW_LIST_NEGATE
} ucs_config_allow_list_mode_t;

typedef struct {
    ucs_config_names_array_t     array;
    ucs_config_allow_list_mode_t mode;
} ucs_config_allow_list_t;

/* A socket address with its length in bytes. The memory stays the caller's. */
typedef struct ucs_sock_addr {
    const struct sockaddr *addr;
    socklen_t             addrlen;
} ucs_sock_addr_t;

/* Log level of one part of the library. file_filter is a file name pattern, or NULL for all. */
typedef struct ucs_log_component_config {
    ucs_log_level_t log_level;
    char            name[16];
    const char      *file_filter;
} ucs_log_component_config_t;

END_C_DECLS

#endif
