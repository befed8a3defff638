/* Halyard: logging.
 *
 * A message has a level and a component: define UCS_LOG_COMPONENT (at most 15 letters, default
 * "ucs") before including this header. A message that is not shown costs one load and one branch;
 * levels above UCS_LOG_LEVEL_COMPILED cost nothing. Wording: lower case, the cause and not a guess,
 * the object it is about, %m for a failed system call.
 *
 * Environment: UCX_LOG_LEVEL=warn, or with levels of single components, warn,mm=trace,ucp=debug;
 * UCX_LOG_FILE (%p pid, %h host), UCX_LOG_FILE_SIZE, UCX_LOG_FILE_FILTER; read at the first
 * message. A place in the source that repeats itself is heard five times within ten seconds; what
 * follows is counted, and the count comes with the next message shown. That holds for fatal to
 * info.
 *
 * Any thread, any time, after fork too; errno is kept; no lock is taken and nothing is allocated.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_LOG_H
#define UCS_DEBUG_LOG_H

#include <ucs/debug/log_def.h>
#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

#ifndef UCS_LOG_COMPONENT
#define UCS_LOG_COMPONENT "ucs"
#endif

/* The most detailed level that is compiled in: all of them in debug builds only. */
#ifndef UCS_LOG_LEVEL_COMPILED
#ifdef ENABLE_ASSERT
#define UCS_LOG_LEVEL_COMPILED UCS_LOG_LEVEL_TRACE_POLL
#else
#define UCS_LOG_LEVEL_COMPILED UCS_LOG_LEVEL_DEBUG
#endif
#endif

/* One place in the source that logs. The macros below define it; nobody else looks inside. */
typedef struct {
    const char *file;
    unsigned   line;
    const char *component;
    uint32_t   shown;           /* messages shown in this period */
    uint32_t   suppressed;      /* messages not shown since the last that was */
    uint64_t   period_start_ns;
} ucs_log_site_t;

#define UCS_LOG_SITE_INIT {__FILE__, __LINE__, UCS_LOG_COMPONENT, 0, 0, 0}

/* The most detailed level that any component shows; higher than all levels until the configuration
 * has been read. */
extern int ucs_log_threshold;

/* True if a message of this level may be shown. */
#define ucs_log_is_enabled(_level) \
    (((int)(_level) <= (int)UCS_LOG_LEVEL_COMPILED) && \
     ucs_unlikely((int)(_level) <= __atomic_load_n(&ucs_log_threshold, __ATOMIC_RELAXED)))

#define ucs_log(_level, _fmt, ...) \
    do { \
        if (ucs_log_is_enabled(_level)) { \
            static ucs_log_site_t ucs_log_site_ = UCS_LOG_SITE_INIT; \
            ucs_log_dispatch(&ucs_log_site_, __func__, _level, _fmt, ##__VA_ARGS__); \
        } \
    } while (0)

/* The same, but only the first time that this place is reached with the level shown. */
#define ucs_log_once(_level, _fmt, ...) \
    do { \
        static int ucs_log_done_; \
        if (ucs_log_is_enabled(_level) && \
            !__atomic_exchange_n(&ucs_log_done_, 1, __ATOMIC_RELAXED)) { \
            ucs_log(_level, _fmt, ##__VA_ARGS__); \
        } \
    } while (0)

#define ucs_error(_fmt, ...)       ucs_log(UCS_LOG_LEVEL_ERROR, _fmt, ##__VA_ARGS__)
#define ucs_warn(_fmt, ...)        ucs_log(UCS_LOG_LEVEL_WARN, _fmt, ##__VA_ARGS__)
#define ucs_diag(_fmt, ...)        ucs_log(UCS_LOG_LEVEL_DIAG, _fmt, ##__VA_ARGS__)
#define ucs_info(_fmt, ...)        ucs_log(UCS_LOG_LEVEL_INFO, _fmt, ##__VA_ARGS__)
#define ucs_debug(_fmt, ...)       ucs_log(UCS_LOG_LEVEL_DEBUG, _fmt, ##__VA_ARGS__)
#define ucs_trace_poll(_fmt, ...)  ucs_log(UCS_LOG_LEVEL_TRACE_POLL, _fmt, ##__VA_ARGS__)

#define ucs_warn_once(_fmt, ...)   ucs_log_once(UCS_LOG_LEVEL_WARN, _fmt, ##__VA_ARGS__)
#define ucs_diag_once(_fmt, ...)   ucs_log_once(UCS_LOG_LEVEL_DIAG, _fmt, ##__VA_ARGS__)

/* Say why, show where (a backtrace on stderr) and abort the process. Only for what our own code has
 * done wrong: no input, peer or shortage may lead here. */
#define ucs_fatal(_fmt, ...) \
    ucs_log_fatal(__FILE__, __LINE__, __func__, UCS_LOG_COMPONENT, _fmt, ##__VA_ARGS__)

/* The macros' far ends. */
void ucs_log_dispatch(ucs_log_site_t *site, const char *function, ucs_log_level_t level,
                      const char *fmt, ...) UCS_COLD UCS_PRINTF(4, 5);
void ucs_log_fatal(const char *file, unsigned line, const char *function, const char *component,
                   const char *fmt, ...) UCS_COLD UCS_F_NORETURN UCS_PRINTF(5, 6);

/* Set the levels from the text of UCX_LOG_LEVEL. UCS_ERR_INVALID_PARAM and no change if it has none
 * of the forms above; does not log. */
ucs_status_t ucs_log_set_levels(const char *text);

/* The same check without the change. */
ucs_status_t ucs_log_check_levels(const char *text);

/* Names of the levels as one writes them, NULL-terminated. */
extern const char *const ucs_log_level_words[];

/* Where the default handler writes: a file name with %p and %h (of the folder in which the program
 * is now), its size in bytes after which it is renamed to NAME.1 and begun anew (0: unbounded), and
 * a pattern for the source files that may speak (NULL or "*": all). NULL or "" for the name:
 * stderr. Takes effect with the next message. A name of UCS_LOG_PATH_MAX bytes or more gives
 * UCS_ERR_EXCEEDS_LIMIT. One thread at a time. */
#define UCS_LOG_PATH_MAX 512
ucs_status_t ucs_log_set_file(const char *name, size_t size_max, const char *source_filter);

/* A file's name, in `max` bytes, of a pattern with %p (process id), %h (host) and %%. Not zero if
 * it fits. */
int ucs_log_expand_path(const char *pattern, char *path, size_t max);

/* Open a file to append to, for writes that block; a pipe that nobody reads is an error. No fault
 * point. */
int ucs_log_open_file(const char *path);

/* After a fork: the file that another thread was about to open is opened by the next message. */
void ucs_log_in_child(void);

END_C_DECLS

#endif
