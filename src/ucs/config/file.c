/* Halyard: ucx.conf: variables from a file, for what the environment does not say.
 *
 * Entries live until the process ends (or a test replaces or clears them), so that whoever looks a
 * value up needs no copy.
 *
 * Nothing is logged while the mutex is held: the first message makes the log read its
 * configuration, which comes here again. What there is to say is noted down and said at the end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/file.h>
#include <ucs/config/parser.h>
#include <ucs/debug/log.h>
#include <ucs/ds/list.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define UCS_CONFIG_FILE_NAME "ucx.conf"

/* Where the build says that configuration files lie. */
#ifndef UCX_CONFIG_DIR
#define UCX_CONFIG_DIR "/etc/ucx"
#endif

/* What some editors put before text in UTF-8: no part of the first name. */
#define UCS_CONFIG_FILE_BOM "\xef\xbb\xbf"

/* Bytes of "file:line". */
#define UCS_CONFIG_PLACE_MAX 96

/* Complaints that one look at the files may give rise to, and the bytes of one. */
#define UCS_CONFIG_NOTES_MAX  4
#define UCS_CONFIG_NOTE_MAX   512

/* Whose file is trusted. */
typedef enum {
    UCS_CONFIG_TRUST_ANY,        /* the caller has chosen it */
    UCS_CONFIG_TRUST_ROOT,       /* root's or the user's own */
    UCS_CONFIG_TRUST_OWN         /* the user's own, passed over in silence otherwise */
} ucs_config_trust_t;

typedef struct {
    ucs_list_link_t list;
    char            place[UCS_CONFIG_PLACE_MAX];
    const char     *value; /* behind the key */
    char            key[];
} ucs_config_entry_t;

pthread_mutex_t ucs_config_file_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    int             searched;
    ucs_list_link_t entries;
    unsigned        num_notes;
    char            notes[UCS_CONFIG_NOTES_MAX][UCS_CONFIG_NOTE_MAX];
} ucs_config_files = {
    .entries = UCS_LIST_INITIALIZER(&ucs_config_files.entries)
};

/* ------------------------------------------------------------------ complaints */

static void ucs_config_note(const char *fmt, ...) UCS_PRINTF(1, 2);

static void ucs_config_note(const char *fmt, ...)
{
    va_list ap;

    if (ucs_config_files.num_notes < UCS_CONFIG_NOTES_MAX) {
        va_start(ap, fmt);
        vsnprintf(ucs_config_files.notes[ucs_config_files.num_notes],
                  sizeof(ucs_config_files.notes[0]), fmt, ap);
        va_end(ap);
    }

    ++ucs_config_files.num_notes;
}

/* Gives the mutex back, then says what was noted. */
static void ucs_config_file_unlock(void)
{
    const unsigned count = ucs_config_files.num_notes;
    char notes[UCS_CONFIG_NOTES_MAX][UCS_CONFIG_NOTE_MAX];
    unsigned i;

    if (count > 0) {
        memcpy(notes, ucs_config_files.notes, sizeof(notes));
        ucs_config_files.num_notes = 0;
    }
    pthread_mutex_unlock(&ucs_config_file_mutex);

    for (i = 0; i < ucs_min(count, (unsigned)UCS_CONFIG_NOTES_MAX); ++i) {
        ucs_warn("%s", notes[i]);
    }
    if (count > UCS_CONFIG_NOTES_MAX) {
        ucs_warn("%u more complaints about configuration files", count - i);
    }
}

/* ------------------------------------------------------------------ text to entries */

static ucs_config_entry_t *ucs_config_file_find(const char *key)
{
    ucs_config_entry_t *entry;

    ucs_list_for_each(entry, &ucs_config_files.entries, list) {
        if (!strcmp(entry->key, key)) {
            return entry;
        }
    }

    return NULL;
}

/* A new entry, which takes the place of one of that key. */
static ucs_status_t
ucs_config_file_add(const char *key, const char *value, const char *name, unsigned number)
{
    const size_t key_size      = strlen(key) + 1;
    const size_t value_size    = strlen(value) + 1;
    ucs_config_entry_t *former = ucs_config_file_find(key);
    ucs_config_entry_t *entry;

    entry = ucs_sys_malloc(sizeof(*entry) + key_size + value_size);
    if (entry == NULL) {
        ucs_config_note("%s:%u: no memory for the configuration", name, number);
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(entry->key, key, key_size);
    memcpy(entry->key + key_size, value, value_size);
    entry->value = entry->key + key_size;
    snprintf(entry->place, sizeof(entry->place), "%.80s:%u", name, number);
    ucs_list_insert_before((former != NULL) ? &former->list : &ucs_config_files.entries,
                           &entry->list);
    if (former != NULL) {
        ucs_list_del(&former->list);
        ucs_sys_free(former);
    }
    return UCS_OK;
}

/* Cut the blanks off both ends, in place. */
static char *ucs_config_file_strip(char *text)
{
    char *end;

    text += strspn(text, " \t\r");
    end   = text + strlen(text);
    while ((end > text) && (strchr(" \t\r", end[-1]) != NULL)) {
        --end;
    }

    *end = '\0';
    return text;
}

/* Cut off a comment behind a value: a ';' that follows a blank begins it, as in UCX's files. */
static void ucs_config_file_cut_comment(char *text)
{
    char *c;

    for (c = strchr(text, ';'); c != NULL; c = strchr(c + 1, ';')) {
        if ((c > text) && ((c[-1] == ' ') || (c[-1] == '\t'))) {
            *c = '\0';
            return;
        }
    }
}

static int ucs_config_file_is_key(const char *key)
{
    size_t length = strlen(key);

    return (length > 0) && (length < UCS_CONFIG_NAME_MAX) &&
           (strstr(key, UCS_CONFIG_PREFIX) != NULL) && (strpbrk(key, " \t") == NULL);
}

/* One line, without its end. `name` and `number` are for messages; *in_section is carried on. */
static ucs_status_t
ucs_config_file_line(const char *name, unsigned number, char *line, int *in_section)
{
    char *key, *equals;

    key = ucs_config_file_strip(line);
    if ((*key == '\0') || (*key == '#') || (*key == ';')) {
        return UCS_OK;
    }

    if (*key == '[') {
        if (!*in_section) {
            ucs_config_note("%s:%u: sections are not supported, their lines are skipped",
                            name, number);
        }
        *in_section = 1;
        return UCS_OK;
    }
    if (*in_section) {
        return UCS_OK;
    }

    equals = strpbrk(key, "=:");
    if (equals != NULL) {
        *equals = '\0';
        key     = ucs_config_file_strip(key);
    }
    if ((equals == NULL) || !ucs_config_file_is_key(key)) {
        ucs_config_note("%s:%u: expected a line UCX_NAME=VALUE", name, number);
        return UCS_ERR_INVALID_PARAM;
    }

    ucs_config_file_cut_comment(equals + 1);
    return ucs_config_file_add(key, ucs_config_file_strip(equals + 1), name, number);
}

/* Cut a text, which has room for its end, into lines. A wrong line is reported and passed over, and
 * makes the answer an error. */
static ucs_status_t ucs_config_file_lines(const char *name, char *text, size_t length)
{
    char *line = text, *end = text + length, *line_end;
    ucs_status_t result = UCS_OK, status;
    unsigned number     = 0;
    int in_section      = 0;

    if ((length >= strlen(UCS_CONFIG_FILE_BOM)) &&
        (memcmp(text, UCS_CONFIG_FILE_BOM, strlen(UCS_CONFIG_FILE_BOM)) == 0)) {
        line += strlen(UCS_CONFIG_FILE_BOM);
    }
    while (line < end) {
        line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = (line_end != NULL) ? line_end : end;
        ++number;

        if (memchr(line, '\0', (size_t)(line_end - line)) != NULL) {
            ucs_config_note("%s:%u: a zero byte: this is not a text file", name, number);
            return UCS_ERR_INVALID_PARAM;
        }

        *line_end = '\0';
        status    = ucs_config_file_line(name, number, line, &in_section);
        if (status == UCS_ERR_NO_MEMORY) {
            return status;
        }
        result = (result == UCS_OK) ? status : result;
        line   = line_end + 1;
    }

    return result;
}

/* ------------------------------------------------------------------ files */

/* Whether the open file may configure us. */
static ucs_status_t ucs_config_file_check(int fd, const char *path, ucs_config_trust_t trust)
{
    uid_t euid = ucs_sys_geteuid();
    struct stat info;

    if (ucs_sys_fstat(fd, &info) != 0) {
        ucs_config_note("cannot examine %s: %m", path);
        return UCS_ERR_IO_ERROR;
    }
    if (!S_ISREG(info.st_mode)) {
        return UCS_ERR_NO_ELEM;
    }
    if (trust == UCS_CONFIG_TRUST_ANY) {
        return UCS_OK;
    }

    if ((info.st_uid != euid) && ((trust == UCS_CONFIG_TRUST_OWN) || (info.st_uid != 0))) {
        if (trust != UCS_CONFIG_TRUST_OWN) {
            ucs_config_note("%s is not used: it belongs to user %u, not to root or user %u",
                            path, (unsigned)info.st_uid, (unsigned)euid);
        }
        return UCS_ERR_REJECTED;
    }
    if (info.st_mode & (S_IWGRP | S_IWOTH)) {
        ucs_config_note("%s is not used: others may write to it; cure: chmod go-w", path);
        return UCS_ERR_REJECTED;
    }

    return UCS_OK;
}

static ucs_status_t ucs_config_file_read_fd(int fd, const char *path, char *text)
{
    size_t length = 0;
    ssize_t ret;

    while (length < UCS_CONFIG_FILE_MAX) {
        ret = ucs_sys_read(fd, text + length, UCS_CONFIG_FILE_MAX - length);
        if (ret == 0) {
            return ucs_config_file_lines(path, text, length);
        }
        if (ret > 0) {
            length += (size_t)ret;
        } else if (errno != EINTR) {
            ucs_config_note("cannot read %s: %m", path);
            return UCS_ERR_IO_ERROR;
        }
    }

    ucs_config_note("%s is not used: it has %d bytes or more", path, UCS_CONFIG_FILE_MAX);
    return UCS_ERR_EXCEEDS_LIMIT;
}

/* A file that this user may not read, or only its folder? The former is meant for somebody. */
static int ucs_config_file_is_there(const char *path)
{
    const int fd = ucs_sys_open(path, O_PATH | O_CLOEXEC, 0);
    struct stat info;
    int is_there;

    if (fd < 0) {
        return 0;
    }
    is_there = (ucs_sys_fstat(fd, &info) == 0) && S_ISREG(info.st_mode);
    ucs_sys_close(fd);
    return is_there;
}

/* The mutex is held. Not blocking on open: the name might be that of a pipe. */
static ucs_status_t ucs_config_file_read(const char *path, ucs_config_trust_t trust)
{
    ucs_status_t status;
    char *text;
    int fd;

    fd = ucs_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) {
        if ((errno == EACCES) && (trust != UCS_CONFIG_TRUST_OWN) &&
            ucs_config_file_is_there(path)) {
            ucs_config_note("%s is not used: user %u may not read it", path,
                            (unsigned)ucs_sys_geteuid());
        }
        return UCS_ERR_NO_ELEM;
    }

    status = ucs_config_file_check(fd, path, trust);
    if (status == UCS_OK) {
        text = ucs_sys_malloc(UCS_CONFIG_FILE_MAX);
        if (text == NULL) {
            ucs_config_note("%s: no memory for the configuration", path);
            status = UCS_ERR_NO_MEMORY;
        } else {
            status = ucs_config_file_read_fd(fd, path, text);
            ucs_sys_free(text);
        }
    }

    ucs_sys_close(fd);
    return status;
}

static void ucs_config_file_read_in(const char *folder, ucs_config_trust_t trust)
{
    char path[PATH_MAX];

    if ((folder != NULL) && (folder[0] != '\0') &&
        (snprintf(path, sizeof(path), "%s/" UCS_CONFIG_FILE_NAME, folder) < (int)sizeof(path))) {
        (void)ucs_config_file_read(path, trust);
    }
}

/* "../etc/ucx" beside the folder of this library, or of the program where it is linked statically.
 * Not zero if it is known and fits. */
static int ucs_config_file_own_folder(char *folder, size_t max)
{
    Dl_info info;
    char *slash;

    if ((dladdr((void *)(uintptr_t)ucs_config_file_own_folder, &info) == 0) ||
        (info.dli_fname == NULL) || !ucs_str_copy(folder, max, info.dli_fname)) {
        return 0;
    }
    slash = strrchr(folder, '/');
    return (slash != NULL) &&
           ucs_str_copy(slash, max - (size_t)(slash - folder), "/../etc/ucx");
}

/* Takes the mutex and reads all files of the list, once. Errors leave what could be read. */
static void ucs_config_file_lock(void)
{
    char folder[PATH_MAX - 64];

    pthread_mutex_lock(&ucs_config_file_mutex);
    if (ucs_config_files.searched) {
        return;
    }

    ucs_config_files.searched = 1;
    ucs_config_file_read_in(UCX_CONFIG_DIR, UCS_CONFIG_TRUST_ROOT);
    if (ucs_config_file_own_folder(folder, sizeof(folder))) {
        ucs_config_file_read_in(folder, UCS_CONFIG_TRUST_ROOT);
    }
    if (!getauxval(AT_SECURE)) {
        ucs_config_file_read_in(getenv("HOME"), UCS_CONFIG_TRUST_ROOT);
        ucs_config_file_read_in(getenv("UCX_CONFIG_DIR"), UCS_CONFIG_TRUST_ROOT);
        ucs_config_file_read_in(".", UCS_CONFIG_TRUST_OWN);
    }
}

/* ------------------------------------------------------------------ what others call */

const char *ucs_config_file_get(const char *key, const char **place_p)
{
    const ucs_config_entry_t *entry;

    ucs_config_file_lock();
    entry = ucs_config_file_find(key);
    ucs_config_file_unlock();

    if (entry == NULL) {
        return NULL;
    }
    if (place_p != NULL) {
        *place_p = entry->place;
    }

    return entry->value;
}

const char *ucs_config_file_key(size_t i, const char **place_p)
{
    const ucs_config_entry_t *entry;
    const char *key = NULL;

    ucs_config_file_lock();
    ucs_list_for_each(entry, &ucs_config_files.entries, list) {
        if (i-- == 0) {
            key      = entry->key;
            *place_p = entry->place;
            break;
        }
    }
    ucs_config_file_unlock();
    return key;
}

ucs_status_t ucs_config_file_load(const char *path)
{
    ucs_status_t status;

    ucs_config_file_lock();
    status = ucs_config_file_read(path, UCS_CONFIG_TRUST_ANY);
    ucs_config_file_unlock();
    return status;
}

ucs_status_t ucs_config_file_parse(const char *name, const char *text, size_t length)
{
    char copy[UCS_CONFIG_FILE_MAX];
    ucs_status_t status;

    if (length >= sizeof(copy)) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    memcpy(copy, text, length);
    pthread_mutex_lock(&ucs_config_file_mutex);
    status = ucs_config_file_lines(name, copy, length);
    ucs_config_file_unlock();
    return status;
}

void ucs_config_file_clear(int search)
{
    pthread_mutex_lock(&ucs_config_file_mutex);
    while (!ucs_list_is_empty(&ucs_config_files.entries)) {
        ucs_sys_free(ucs_list_extract_head(&ucs_config_files.entries, ucs_config_entry_t, list));
    }
    ucs_config_files.searched = !search;
    pthread_mutex_unlock(&ucs_config_file_mutex);
}
