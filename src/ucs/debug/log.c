/* Halyard: logging.
 *
 * No locks: a message may come from any thread, and from the child of a fork that happened while
 * another thread was logging. Lines are whole because each is one write(2) in append mode. The
 * configuration is read by whoever logs first; who logs at the same moment gets the defaults.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/global.h>
#include <ucs/debug/log.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UCS_LOG_LINE_MAX       2048
#define UCS_LOG_HANDLERS_MAX   32
#define UCS_LOG_COMPONENTS_MAX 16
#define UCS_LOG_FRAMES_MAX     32
#define UCS_LOG_FILE_MAX       (PATH_MAX + UCS_LOG_PATH_MAX + 256) /* of a file's whole name */

#define UCS_LOG_SITE_BURST     5
#define UCS_LOG_SITE_PERIOD_NS 10000000000ull

enum {
    UCS_LOG_FD_CLOSED  = -1,
    UCS_LOG_FD_OPENING = -2,
    UCS_LOG_FD_NONE    = -3  /* no file is named, or it cannot be opened */
};

typedef struct {
    char            name[sizeof(((ucs_log_component_config_t *)0)->name)];
    ucs_log_level_t level;
} ucs_log_component_level_t;

typedef struct {
    ucs_log_level_t           level;   /* of components not named */
    unsigned                  count;
    ucs_log_component_level_t components[UCS_LOG_COMPONENTS_MAX];
} ucs_log_levels_t;

int ucs_log_threshold = UCS_LOG_LEVEL_PRINT;

const char *ucs_log_level_names[] = {
    [UCS_LOG_LEVEL_FATAL]       = "FATAL",
    [UCS_LOG_LEVEL_ERROR]       = "ERROR",
    [UCS_LOG_LEVEL_WARN]        = "WARN",
    [UCS_LOG_LEVEL_DIAG]        = "DIAG",
    [UCS_LOG_LEVEL_INFO]        = "INFO",
    [UCS_LOG_LEVEL_DEBUG]       = "DEBUG",
    [UCS_LOG_LEVEL_TRACE]       = "TRACE",
    [UCS_LOG_LEVEL_TRACE_REQ]   = "REQ",
    [UCS_LOG_LEVEL_TRACE_DATA]  = "DATA",
    [UCS_LOG_LEVEL_TRACE_ASYNC] = "ASYNC",
    [UCS_LOG_LEVEL_TRACE_FUNC]  = "FUNC",
    [UCS_LOG_LEVEL_TRACE_POLL]  = "POLL",
    [UCS_LOG_LEVEL_LAST]        = "LAST",
    [UCS_LOG_LEVEL_PRINT]       = "PRINT"
};

const char *const ucs_log_level_words[] = {
    "fatal", "error", "warn", "diag", "info", "debug", "trace", "req", "data", "async", "func",
    "poll", NULL
};

static struct {
    ucs_log_levels_t levels;

    int              handler_count;
    ucs_log_func_t   handlers[UCS_LOG_HANDLERS_MAX];

    char             folder[PATH_MAX]; /* in front of a path that does not begin with '/' */
    char             path[UCS_LOG_PATH_MAX];
    char             file[UCS_LOG_FILE_MAX]; /* what was opened, or was to be */
    char             filter[UCS_LOG_PATH_MAX];
    size_t           size_max;
    int              fd;
    int              number;    /* the only one that fd ever has; -1 before the first file, */
    dev_t            dev;       /* and what we have put there, which the program may have */
    ino_t            ino;       /* replaced: a daemon closes all that it has inherited */
    pid_t            fd_pid;    /* who opened fd: the name may hold the pid */
    size_t           written;   /* bytes since then */
} ucs_logger = {
    .levels        = {.level = UCS_LOG_LEVEL_WARN},
    .handler_count = 1,
    .handlers      = {ucs_log_default_handler},
    .fd            = UCS_LOG_FD_NONE,
    .number        = -1
};

/* ------------------------------------------------------------------ levels */

static int ucs_log_parse_level(const char *text, size_t length, ucs_log_level_t *level_p)
{
    int level;

    text = ucs_str_trim(text, &length);
    for (level = 0; level < UCS_LOG_LEVEL_LAST; ++level) {
        if ((strlen(ucs_log_level_names[level]) == length) &&
            !strncasecmp(ucs_log_level_names[level], text, length)) {
            *level_p = (ucs_log_level_t)level;
            return 1;
        }
    }

    return 0;
}

static ucs_status_t ucs_log_parse_levels(const char *text, ucs_log_levels_t *levels)
{
    ucs_log_component_level_t *component;
    const char *item, *equals, *name;
    size_t length, name_length;

    if ((text == NULL) || (text[0] == '\0')) {
        return UCS_ERR_INVALID_PARAM;
    }

    levels->level = UCS_LOG_LEVEL_WARN;
    levels->count = 0;
    for (item = text; *item != '\0'; item += length + (item[length] == ',')) {
        length = strcspn(item, ",");
        equals = memchr(item, '=', length);
        if (equals == NULL) {
            if (!ucs_log_parse_level(item, length, &levels->level)) {
                return UCS_ERR_INVALID_PARAM;
            }
            continue;
        }

        name_length = (size_t)(equals - item);
        name        = ucs_str_trim(item, &name_length);
        component   = &levels->components[levels->count];
        if ((levels->count == UCS_LOG_COMPONENTS_MAX) || (name_length == 0) ||
            (name_length >= sizeof(component->name)) ||
            !ucs_log_parse_level(equals + 1, length - (size_t)(equals - item) - 1,
                                 &component->level)) {
            return UCS_ERR_INVALID_PARAM;
        }

        memcpy(component->name, name, name_length);
        component->name[name_length] = '\0';
        ++levels->count;
    }

    return UCS_OK;
}

ucs_status_t ucs_log_check_levels(const char *text)
{
    ucs_log_levels_t levels;

    return ucs_log_parse_levels(text, &levels);
}

ucs_status_t ucs_log_set_levels(const char *text)
{
    ucs_log_levels_t levels;
    int threshold;
    unsigned i;

    if (ucs_log_parse_levels(text, &levels) != UCS_OK) {
        return UCS_ERR_INVALID_PARAM;
    }

    threshold = levels.level;
    for (i = 0; i < levels.count; ++i) {
        threshold = ucs_max(threshold, (int)levels.components[i].level);
    }

    ucs_logger.levels = levels;
    __atomic_store_n(&ucs_log_threshold, threshold, __ATOMIC_RELAXED);
    return UCS_OK;
}

static ucs_log_level_t ucs_log_component_level(const char *component)
{
    unsigned i;

    for (i = 0; i < ucs_logger.levels.count; ++i) {
        if (!strcmp(ucs_logger.levels.components[i].name, component)) {
            return ucs_logger.levels.components[i].level;
        }
    }

    return ucs_logger.levels.level;
}

/* ------------------------------------------------------------------ where it goes */

int ucs_log_expand_path(const char *pattern, char *path, size_t max)
{
    char value[256];
    size_t length = 0;
    int ret;

    for (; *pattern != '\0'; ++pattern) {
        value[0] = *pattern;
        value[1] = '\0';
        if ((pattern[0] == '%') && (pattern[1] == 'p')) {
            snprintf(value, sizeof(value), "%d", (int)ucs_sys_getpid());
            ++pattern;
        } else if ((pattern[0] == '%') && (pattern[1] == 'h')) {
            ucs_sys_hostname(value, sizeof(value));
            ++pattern;
        } else if ((pattern[0] == '%') && (pattern[1] == '%')) {
            ++pattern;
        }

        ret = snprintf(path + length, max - length, "%s", value);
        if ((size_t)ret >= max - length) {
            return 0;
        }
        length += (size_t)ret;
    }

    return 1;
}

int ucs_log_open_file(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const int fd    = ucs_sys->open(path, flags, 0644);

    if (fd >= 0) {
        (void)ucs_sys->fcntl(fd, F_SETFL, O_APPEND);
    }
    return fd;
}

static int ucs_log_open_in(const char *folder)
{
    char *file       = ucs_logger.file; /* no such thing belongs on a coroutine's stack */
    const size_t max = sizeof(ucs_logger.file);
    const int length = snprintf(file, max, "%s%s", folder, (folder[0] != '\0') ? "/" : "");

    if (!ucs_log_expand_path(ucs_logger.path, file + length, max - (size_t)length)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return ucs_log_open_file(file);
}

/* Open the file for a line of `length` bytes; where that fails the messages go to stderr, the
 * complaint first. The table is used without its fault points: a log line must not count as a call
 * of the code under test. */
static int ucs_log_open(size_t length)
{
    int fd = ucs_log_open_in(ucs_logger.folder), ret;
    char text[UCS_LOG_PATH_MAX + 512];
    struct stat info;

    if ((fd < 0) && ((errno == EACCES) || (errno == ENAMETOOLONG)) &&
        (ucs_logger.folder[0] != '\0')) { /* one above it may not be searched */
        fd = ucs_log_open_in("");
    }
    if (fd < 0) {
        ret = snprintf(text, sizeof(text), "ucs: cannot open log file '%s': %m; using stderr\n",
                       ucs_logger.path);
        (void)!ucs_sys->write(STDERR_FILENO, text, ucs_min((size_t)ret, sizeof(text) - 1));
        return UCS_LOG_FD_NONE;
    }

    length += (ucs_sys->fstat(fd, &info) == 0) ? (size_t)info.st_size : 0;
    __atomic_store_n(&ucs_logger.written, length, __ATOMIC_RELAXED);
    __atomic_store_n(&ucs_logger.fd_pid, ucs_sys_getpid(), __ATOMIC_RELAXED);
    return fd;
}

/* Is that what we have put under our number? */
static int ucs_log_is_own(int ret, const struct stat *info)
{
    return (ret == 0) && (info->st_dev == ucs_logger.dev) && (info->st_ino == ucs_logger.ino);
}

/* A file that has reached its size becomes NAME.1, replacing what had that name. Where another
 * process has done that before us, the file of that name is another one. */
static void ucs_log_rotate(void)
{
    static char old_file[UCS_LOG_FILE_MAX + 2]; /* one thread is here at a time */
    struct stat info;

    if (ucs_log_is_own(ucs_sys->stat(ucs_logger.file, &info), &info)) {
        snprintf(old_file, sizeof(old_file), "%s.1", ucs_logger.file);
        (void)!ucs_sys->rename(ucs_logger.file, old_file);
    }
}

/* Puts a file, or stderr, in the place of the last one, under the same number: another thread may
 * be about to write there, and a number that was given back would be somebody else's by then.
 * Returns what it was given, or that number instead of a file's. */
static int ucs_log_replace(int fd)
{
    struct stat info = {.st_ino = 0};

    if ((ucs_logger.number < 0) || (fd == ucs_logger.number) ||
        !ucs_log_is_own(ucs_sys->fstat(ucs_logger.number, &info), &info)) {
        ucs_logger.number = (fd >= 0) ? fd : -1;
    } else {
        (void)ucs_sys->dup3((fd >= 0) ? fd : STDERR_FILENO, ucs_logger.number, O_CLOEXEC);
        if (fd >= 0) {
            ucs_sys->close(fd);
            fd = ucs_logger.number;
        }
    }
    if (ucs_sys->fstat(ucs_logger.number, &info) == 0) {
        ucs_logger.dev = info.st_dev;
        ucs_logger.ino = info.st_ino;
    }
    return fd;
}

/* The descriptor to write a line of `length` bytes to. A thread that finds another one opening the
 * file takes stderr rather than wait: it might be waiting for a thread that a fork left behind. */
static int ucs_log_get_fd(size_t length)
{
    int fd = __atomic_load_n(&ucs_logger.fd, __ATOMIC_ACQUIRE); /* A0 */
    const size_t size_max = __atomic_load_n(&ucs_logger.size_max, __ATOMIC_RELAXED);
    int full, forked;

    if ((fd == UCS_LOG_FD_OPENING) || (fd == UCS_LOG_FD_NONE)) {
        return STDERR_FILENO;
    }

    full   = (fd >= 0) && (size_max > 0) &&
             (__atomic_add_fetch(&ucs_logger.written, length, __ATOMIC_RELAXED) > size_max);
    forked = (fd >= 0) &&
             (__atomic_load_n(&ucs_logger.fd_pid, __ATOMIC_RELAXED) != ucs_sys_getpid());
    if ((fd >= 0) && !full && !forked) {
        return fd;
    }

    if (!__atomic_compare_exchange_n(&ucs_logger.fd, &fd, UCS_LOG_FD_OPENING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE)) {
        return STDERR_FILENO;
    }

    if (full && !forked) {
        ucs_log_rotate();
    }
    fd = ucs_log_replace(ucs_log_open(length));
    __atomic_store_n(&ucs_logger.fd, fd, __ATOMIC_RELEASE); /* R0 */
    return (fd >= 0) ? fd : STDERR_FILENO;
}

ucs_status_t ucs_log_set_file(const char *name, size_t size_max, const char *source_filter)
{
    int fd;

    name          = (name != NULL) ? name : "";
    source_filter = (source_filter != NULL) ? source_filter : "";
    if ((strlen(name) >= sizeof(ucs_logger.path)) ||
        (strlen(source_filter) >= sizeof(ucs_logger.filter))) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    do { /* a thread that is opening the last one would end with that */
        fd = __atomic_load_n(&ucs_logger.fd, __ATOMIC_RELAXED);
    } while (((fd == UCS_LOG_FD_OPENING) && (ucs_sys_sched_yield() == 0)) ||
             !__atomic_compare_exchange_n(&ucs_logger.fd, &fd, UCS_LOG_FD_OPENING, 0,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    if (fd >= 0) {
        (void)ucs_log_replace(UCS_LOG_FD_NONE);
    }

    if ((name[0] == '\0') || (name[0] == '/') ||
        (ucs_sys_getcwd(ucs_logger.folder, sizeof(ucs_logger.folder)) == NULL)) {
        ucs_logger.folder[0] = '\0';
    }
    ucs_str_copy(ucs_logger.path, sizeof(ucs_logger.path), name);
    ucs_str_copy(ucs_logger.filter, sizeof(ucs_logger.filter), source_filter);
    __atomic_store_n(&ucs_logger.size_max, size_max, __ATOMIC_RELAXED);
    __atomic_store_n(&ucs_logger.fd, (name[0] != '\0') ? UCS_LOG_FD_CLOSED : UCS_LOG_FD_NONE,
                     __ATOMIC_RELEASE); /* R0 */
    return UCS_OK;
}

void ucs_log_in_child(void)
{
    int fd = UCS_LOG_FD_OPENING;

    (void)__atomic_compare_exchange_n(&ucs_logger.fd, &fd, UCS_LOG_FD_CLOSED, 0, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ the default handler */

static const char *ucs_log_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (slash != NULL) ? slash + 1 : path;
}

/* Text appended at `length`, cut at the end of the line buffer; returns the new length. */
static size_t ucs_log_append(char *line, size_t length, const char *fmt, ...) UCS_PRINTF(3, 4);

static size_t ucs_log_append(char *line, size_t length, const char *fmt, ...)
{
    va_list ap;
    int ret;

    va_start(ap, fmt);
    ret = vsnprintf(line + length, UCS_LOG_LINE_MAX - length, fmt, ap);
    va_end(ap);
    return (ret < 0) ? length : ucs_min(length + (size_t)ret, (size_t)UCS_LOG_LINE_MAX - 1);
}

ucs_log_func_rc_t
ucs_log_default_handler(const char *file, unsigned line_number, const char *function UCS_UNUSED,
                        ucs_log_level_t level, const ucs_log_component_config_t *comp_conf,
                        const char *message, va_list ap)
{
    int saved_errno  = errno;
    uint64_t wall_ns = ucs_sys_wall_clock_ns();
    char line[UCS_LOG_LINE_MAX], host[64];
    size_t length;
    int ret;

    if ((ucs_logger.filter[0] != '\0') && (level != UCS_LOG_LEVEL_FATAL) &&
        !ucs_str_match(ucs_logger.filter, file) &&
        !ucs_str_match(ucs_logger.filter, ucs_log_file_name(file))) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }

    ucs_sys_hostname(host, sizeof(host));
    length = ucs_log_append(line, 0, "[%llu.%06llu] [%s:%d] %s %s ",
                            (unsigned long long)(wall_ns / 1000000000ull),
                            (unsigned long long)(wall_ns / 1000ull % 1000000ull), host,
                            (int)ucs_sys_getpid(), comp_conf->name, ucs_log_level_names[level]);
    if ((level == UCS_LOG_LEVEL_FATAL) || (level >= UCS_LOG_LEVEL_DEBUG)) {
        length = ucs_log_append(line, length, "%s:%u ", ucs_log_file_name(file), line_number);
    }

    errno = saved_errno;
    ret   = vsnprintf(line + length, sizeof(line) - length, message, ap);
    if ((ret > 0) && ((size_t)ret >= sizeof(line) - length - 1)) {
        length = sizeof(line) - 5;
        memcpy(line + length, "...", 3);
        length += 3;
    } else if (ret > 0) {
        length += (size_t)ret;
    }

    line[length++] = '\n';
    (void)!ucs_sys->write(ucs_log_get_fd(length), line, length);
    errno = saved_errno;
    return UCS_LOG_FUNC_RC_CONTINUE;
}

/* ------------------------------------------------------------------ handlers */

void ucs_log_push_handler(ucs_log_func_t handler)
{
    int count = __atomic_load_n(&ucs_logger.handler_count, __ATOMIC_RELAXED);

    if (handler == NULL) {
        return;
    }
    if (count == UCS_LOG_HANDLERS_MAX) {
        ucs_warn("more than %d log handlers: the last one is ignored", UCS_LOG_HANDLERS_MAX);
        return;
    }

    __atomic_store_n(&ucs_logger.handlers[count], handler, __ATOMIC_RELAXED);
    __atomic_store_n(&ucs_logger.handler_count, count + 1, __ATOMIC_RELEASE); /* R1 */
}

void ucs_log_pop_handler(void)
{
    int count = __atomic_load_n(&ucs_logger.handler_count, __ATOMIC_RELAXED);

    if (count > 0) {
        __atomic_store_n(&ucs_logger.handler_count, count - 1, __ATOMIC_RELEASE); /* R1 */
    }
}

unsigned ucs_log_num_handlers(void)
{
    return (unsigned)__atomic_load_n(&ucs_logger.handler_count, __ATOMIC_RELAXED);
}

static void ucs_log_call_handlers(const char *file, unsigned line, const char *function,
                                  const char *component, ucs_log_level_t level,
                                  const char *message, va_list ap)
{
    ucs_log_component_config_t config = {
        .log_level   = ucs_log_component_level(component),
        .file_filter = ucs_logger.filter[0] ? ucs_logger.filter : "*"
    };
    ucs_log_func_rc_t rc = UCS_LOG_FUNC_RC_CONTINUE;
    ucs_log_func_t handler;
    va_list copy;
    int i;

    snprintf(config.name, sizeof(config.name), "%s", component);
    i = __atomic_load_n(&ucs_logger.handler_count, __ATOMIC_ACQUIRE); /* A1 */
    while ((i-- > 0) && (rc == UCS_LOG_FUNC_RC_CONTINUE)) {
        handler = __atomic_load_n(&ucs_logger.handlers[i], __ATOMIC_RELAXED);
        va_copy(copy, ap);
        rc = handler(file, line, function, level, &config, message, copy);
        va_end(copy);
    }
}

static void ucs_log_forward(const char *file, unsigned line, const char *function,
                            const char *component, ucs_log_level_t level, const char *message, ...)
    UCS_PRINTF(6, 7);

static void ucs_log_forward(const char *file, unsigned line, const char *function,
                            const char *component, ucs_log_level_t level, const char *message, ...)
{
    va_list ap;

    va_start(ap, message);
    ucs_log_call_handlers(file, line, function, component, level, message, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ dispatch */

/* True if the place may speak now; *missed_p is what it had to keep to itself before. Races between
 * threads can only make a count a little wrong. */
static int ucs_log_site_admit(ucs_log_site_t *site, uint32_t *missed_p)
{
    uint64_t now   = ucs_sys_clock_ns();
    uint64_t start = __atomic_load_n(&site->period_start_ns, __ATOMIC_RELAXED);

    *missed_p = 0;
    if ((start == 0) || (now - start > UCS_LOG_SITE_PERIOD_NS)) {
        __atomic_store_n(&site->period_start_ns, now | 1, __ATOMIC_RELAXED);
        __atomic_store_n(&site->shown, 1, __ATOMIC_RELAXED);
        *missed_p = __atomic_exchange_n(&site->suppressed, 0, __ATOMIC_RELAXED);
        return 1;
    }

    if (__atomic_add_fetch(&site->shown, 1, __ATOMIC_RELAXED) <= UCS_LOG_SITE_BURST) {
        return 1;
    }

    __atomic_sub_fetch(&site->shown, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&site->suppressed, 1, __ATOMIC_RELAXED);
    return 0;
}

void ucs_log_dispatch(ucs_log_site_t *site, const char *function, ucs_log_level_t level,
                      const char *fmt, ...)
{
    int saved_errno = errno;
    uint32_t missed = 0;
    va_list ap;

    (void)ucs_global_opts(); /* the first message makes the configuration be read */
    if ((level != UCS_LOG_LEVEL_PRINT) && (level > ucs_log_component_level(site->component))) {
        goto out;
    }
    if ((level <= UCS_LOG_LEVEL_INFO) && !ucs_log_site_admit(site, &missed)) {
        goto out;
    }

    if (missed > 0) {
        ucs_log_forward(site->file, site->line, function, site->component, level,
                        "the next message came %u more times and was not shown", missed);
    }

    errno = saved_errno;
    va_start(ap, fmt);
    ucs_log_call_handlers(site->file, site->line, function, site->component, level, fmt, ap);
    va_end(ap);

out:
    errno = saved_errno;
}

void ucs_log_fatal(const char *file, unsigned line, const char *function, const char *component,
                   const char *fmt, ...)
{
    int saved_errno = errno;
    void *frames[UCS_LOG_FRAMES_MAX];
    va_list ap;
    int count;

    (void)ucs_global_opts(); /* the first message makes the configuration be read */
    errno = saved_errno;
    va_start(ap, fmt);
    ucs_log_call_handlers(file, line, function, component, UCS_LOG_LEVEL_FATAL, fmt, ap);
    va_end(ap);

    count = backtrace(frames, UCS_LOG_FRAMES_MAX);
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
    abort();
}
