/* Halyard: the options that belong to the process and not to a context: logging, warnings,
 * counters.
 *
 * Reading them may itself log, and logging asks for them: whoever comes while they are being read
 * is given the defaults, so there is neither a lock nor a recursion.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/file.h>
#include <ucs/config/global.h>
#include <ucs/config/names.h>
#include <ucs/debug/fault.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <pthread.h>
#include <string.h>

enum {
    UCS_GLOBAL_OPTS_NONE,
    UCS_GLOBAL_OPTS_READING,
    UCS_GLOBAL_OPTS_READY
};

#define UCS_GLOBAL_WAIT_MS 1000

static const ucs_global_opts_t ucs_global_defaults = {
    .log_level            = (char *)(uintptr_t)"warn",
    .log_file             = (char *)(uintptr_t)"",
    .log_file_size        = UCS_CONFIG_INF_SIZE,
    .log_file_filter      = (char *)(uintptr_t)"*",
    .warn_unused_env_vars = 1,
    .stats_dest           = (char *)(uintptr_t)""
};

static ucs_global_opts_t ucs_global_values;
static int ucs_global_state              = UCS_GLOBAL_OPTS_NONE;
static __thread int ucs_global_is_reader; /* this thread reads them */
static pthread_mutex_t ucs_global_mutex = PTHREAD_MUTEX_INITIALIZER; /* the values' texts */
static pthread_once_t ucs_config_once   = PTHREAD_ONCE_INIT;

/* ------------------------------------------------------------------ the type of LOG_LEVEL */

static ucs_status_t
ucs_config_levels_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    ucs_status_t status = ucs_log_check_levels(text);

    return (status == UCS_OK) ? ucs_config_type_string.parse(text, field, row) : status;
}

static const ucs_config_type_t ucs_config_type_levels = {
    .name    = "levels",
    .size    = sizeof(char *),
    .parse   = ucs_config_levels_parse,
    .print   = ucs_config_string_print,
    .copy    = ucs_config_string_copy,
    .release = ucs_config_string_release,
    .form    = "a level (fatal, error, warn, diag, info, debug, trace, req, data, async, func, "
               "poll), or levels of parts: warn,mm=debug",
    .words   = ucs_log_level_words
};

/* ------------------------------------------------------------------ the type of STATS_DEST */

static ucs_status_t
ucs_config_dest_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    const size_t length = strlen(UCS_STATS_DEST_FILE);

    if ((text[0] != '\0') && (strcmp(text, "stdout") != 0) && (strcmp(text, "stderr") != 0) &&
        ((strncmp(text, UCS_STATS_DEST_FILE, length) != 0) || (text[length] == '\0'))) {
        return UCS_ERR_INVALID_PARAM;
    }
    return ucs_config_type_string.parse(text, field, row);
}

static const ucs_config_type_t ucs_config_type_dest = {
    .name    = "destination",
    .size    = sizeof(char *),
    .parse   = ucs_config_dest_parse,
    .print   = ucs_config_string_print,
    .copy    = ucs_config_string_copy,
    .release = ucs_config_string_release,
    .form    = "stdout, stderr or file:NAME"
};

static const char *const ucs_stats_formats[] = {"text", "json", NULL};

const ucs_config_row_t ucs_global_rows[] = {
    UCS_CONFIG_ROW("LOG_LEVEL", levels, ucs_global_opts_t, log_level, "warn",
                   "How much is logged: messages of this level and of all more important ones. "
                   "Levels above debug exist in debug builds only."),
    UCS_CONFIG_ROW("LOG_FILE", string, ucs_global_opts_t, log_file, "",
                   "File that messages are appended to; %p stands for the process id, %h for the "
                   "host. Empty: standard error."),
    UCS_CONFIG_ROW("LOG_FILE_SIZE", memunits, ucs_global_opts_t, log_file_size, "inf",
                   "Size in bytes at which the log file is renamed to NAME.1 and begun anew.",
                   .min = 4096, .flags = UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW("LOG_FILE_FILTER", string, ucs_global_opts_t, log_file_filter, "*",
                   "Only messages from source files of this name are logged; '*' and '?' stand "
                   "for any text and any letter."),
    UCS_CONFIG_ROW("WARN_UNUSED_ENV_VARS", bool, ucs_global_opts_t, warn_unused_env_vars, "y",
                   "Warn, once each, of variables UCX_... that nobody knows."),
    UCS_CONFIG_ROW("STATS_DEST", dest, ucs_global_opts_t, stats_dest, "",
                   "Where each worker tells, when it is destroyed, what it has done: stdout, "
                   "stderr, or file:NAME, which is appended to; %p in NAME stands for the process "
                   "id, %h for the host. Empty: nowhere."),
    UCS_CONFIG_ROW("STATS_FORMAT", enum, ucs_global_opts_t, stats_format, "text",
                   "How it tells that: lines for people, or an object of JSON for each worker.",
                   .arg = ucs_stats_formats),
    UCS_CONFIG_ROW_END
};

/* ------------------------------------------------------------------ reading and changing */

/* Put what stands in the options into effect. The level's text has been checked. */
static ucs_status_t ucs_global_apply(const ucs_global_opts_t *opts)
{
    size_t size_max = (opts->log_file_size == UCS_CONFIG_INF_SIZE) ? 0 : opts->log_file_size;

    (void)ucs_log_set_levels(opts->log_level);
    return ucs_log_set_file(opts->log_file, size_max, opts->log_file_filter);
}

static void ucs_global_complain(ucs_status_t status)
{
    if (status != UCS_OK) {
        ucs_warn("the name of the log file, or its filter, has more than %d letters and is not "
                 "used", UCS_LOG_PATH_MAX - 1);
    }
}

static ucs_status_t ucs_global_read(void)
{
    ucs_global_opts_t values;
    ucs_status_t status;

    status = ucs_config_table_add("process", "", ucs_global_rows);
    if (status == UCS_OK) {
        status = ucs_config_fill(&values, ucs_global_rows, NULL, "",
                                 UCS_CONFIG_FILL_DEFAULT);
    }
    if (status != UCS_OK) {
        (void)ucs_global_apply(&ucs_global_defaults);
        return status;
    }

    ucs_global_values = values;
    ucs_global_complain(ucs_global_apply(&ucs_global_values));
    return UCS_OK;
}

const ucs_global_opts_t *ucs_global_opts(void)
{
    int state = __atomic_load_n(&ucs_global_state, __ATOMIC_ACQUIRE); /* A0 */

    if (state == UCS_GLOBAL_OPTS_READY) {
        return &ucs_global_values;
    }
    if ((state == UCS_GLOBAL_OPTS_READING) ||
        !__atomic_compare_exchange_n(&ucs_global_state, &state, UCS_GLOBAL_OPTS_READING, 0,
                                     __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
        return &ucs_global_defaults;
    }

    /* without memory the defaults serve now, and the next caller tries again */
    ucs_global_is_reader = 1;
    state = (ucs_global_read() == UCS_OK) ? UCS_GLOBAL_OPTS_READY : UCS_GLOBAL_OPTS_NONE;
    ucs_global_is_reader = 0;
    __atomic_store_n(&ucs_global_state, state, __ATOMIC_RELEASE); /* R0 */
    return (state == UCS_GLOBAL_OPTS_READY) ? &ucs_global_values : &ucs_global_defaults;
}

/* In the order in which they are taken inside each other. */
static void ucs_config_lock_all(void)
{
    pthread_mutex_lock(&ucs_global_mutex);
    pthread_mutex_lock(&ucs_config_file_mutex);
    pthread_mutex_lock(&ucs_config_names_mutex);
    pthread_mutex_lock(&ucs_fault_mutex);
}

static void ucs_config_unlock_all(void)
{
    pthread_mutex_unlock(&ucs_fault_mutex);
    pthread_mutex_unlock(&ucs_config_names_mutex);
    pthread_mutex_unlock(&ucs_config_file_mutex);
    pthread_mutex_unlock(&ucs_global_mutex);
}

/* What another thread was at, nobody ends here. */
static void ucs_config_in_child(void)
{
    if ((ucs_global_state == UCS_GLOBAL_OPTS_READING) && !ucs_global_is_reader) {
        ucs_global_state = UCS_GLOBAL_OPTS_NONE;
    }
    ucs_log_in_child();
    ucs_config_unlock_all();
}

/* Without memory for it nothing is said, as the log would read the configuration. */
static void ucs_config_register_fork(void)
{
    (void)pthread_atfork(ucs_config_lock_all, ucs_config_unlock_all, ucs_config_in_child);
}

void ucs_config_hold_over_fork(void)
{
    pthread_once(&ucs_config_once, ucs_config_register_fork);
}

/* Not zero, and the mutex is taken: the options have been read. For another thread that reads them
 * it waits a while only, as that one may call a handler, which may wait for us. */
static int ucs_global_lock(void)
{
    const ucs_global_opts_t *opts = ucs_global_opts();
    unsigned left_ms              = UCS_GLOBAL_WAIT_MS;

    while ((opts != &ucs_global_values) && !ucs_global_is_reader && (left_ms-- > 0) &&
           (__atomic_load_n(&ucs_global_state, __ATOMIC_RELAXED) != UCS_GLOBAL_OPTS_NONE)) {
        ucs_sys_sleep_ns(1000000);
        opts = ucs_global_opts();
    }
    if (opts != &ucs_global_values) {
        return 0;
    }
    pthread_mutex_lock(&ucs_global_mutex);
    return 1;
}

ucs_status_t ucs_global_opts_copy(ucs_global_opts_t *copy)
{
    ucs_status_t status = UCS_ERR_NO_MEMORY;

    if (ucs_global_lock()) {
        status = ucs_config_copy(copy, &ucs_global_values, ucs_global_rows);
        pthread_mutex_unlock(&ucs_global_mutex);
        if (status != UCS_OK) {
            ucs_error("no memory to copy the process's options");
        }
    }
    return status;
}

/* Exchange the fields of one name. */
static void ucs_global_swap(ucs_global_opts_t *opts, const char *name)
{
    const ucs_config_row_t *row = ucs_global_rows;
    char *ours, *theirs, field[sizeof(uint64_t)];

    while (strcmp(row->name, name) != 0) {
        ++row;
    }
    ours   = (char *)&ucs_global_values + row->offset;
    theirs = (char *)opts + row->offset;
    memcpy(field, ours, row->size);
    memcpy(ours, theirs, row->size);
    memcpy(theirs, field, row->size);
}

/* Nothing is logged with the mutex held: a handler may come here again, or fork. */
ucs_status_t ucs_global_opts_set(const char *name, const char *value)
{
    ucs_global_opts_t opts = {.log_level = NULL};
    ucs_status_t status    = ucs_config_set(&opts, ucs_global_rows, "", name, value);
    ucs_status_t applied;

    if (status != UCS_OK) {
        return status;
    }
    status = UCS_ERR_NO_MEMORY;
    if (ucs_global_lock()) {
        ucs_global_swap(&opts, name);
        applied = ucs_global_apply(&ucs_global_values);
        pthread_mutex_unlock(&ucs_global_mutex);
        ucs_global_complain(applied);
        status = UCS_OK;
    }
    ucs_config_release(&opts, ucs_global_rows);
    return status;
}

ucs_status_t ucs_global_opts_reload(void)
{
    int state = __atomic_exchange_n(&ucs_global_state, UCS_GLOBAL_OPTS_NONE, __ATOMIC_ACQUIRE);

    if (state == UCS_GLOBAL_OPTS_READY) {
        ucs_config_release(&ucs_global_values, ucs_global_rows);
    }

    return (ucs_global_opts() == &ucs_global_values) ? UCS_OK : UCS_ERR_NO_MEMORY;
}
