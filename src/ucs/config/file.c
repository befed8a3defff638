/* Halyard: ucx.conf: variables from a file, for what the environment does not say.
 *
 * The text of each file is kept as one block, cut into keys and values in place; an array of
 * entries points into the blocks. Blocks and entries live until the process ends (or a test clears
 * them), so that whoever looks a value up needs no copy.
 *
 * Nothing is logged while the mutex is held: the first message makes the log read its
 * configuration, which comes here again. What there is to say is noted down and said at the end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <ucs/config/file.h>
#include <ucs/config/parser.h>
#include <ucs/debug/log.h>
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

/* Entries per allocation, and bytes of "file:line". */
#define UCS_CONFIG_FILE_STEP  32
#define UCS_CONFIG_PLACE_MAX  96

/* Complaints that one look at the files may give rise to, and the bytes of one. */
#define UCS_CONFIG_NOTES_MAX  4
#define UCS_CONFIG_NOTE_MAX   512

/* Whose file is trusted. */
typedef enum {
    UCS_CONFIG_TRUST_ANY,        /* the caller has chosen it */
    UCS_CONFIG_TRUST_ROOT,       /* root's or the user's own */
    UCS_CONFIG_TRUST_OWN         /* the user's own, passed over in silence otherwise */
} ucs_config_trust_t;

/* Things to say when the mutex is free. */
typedef struct {
    unsigned count;
    char     text[UCS_CONFIG_NOTES_MAX][UCS_CONFIG_NOTE_MAX];
} ucs_config_notes_t;

typedef struct ucs_config_block {
    struct ucs_config_block *next;
    char                    text[];
} ucs_config_block_t;

typedef struct {
    const char *key;
    const char *value;
    char       place[UCS_CONFIG_PLACE_MAX];
} ucs_config_entry_t;

static struct {
    pthread_mutex_t    mutex;
    int                searched;
    ucs_config_block_t *blocks;
    ucs_config_entry_t **entries;
    size_t             count;
    size_t             capacity;
} ucs_config_files = {
    .mutex = PTHREAD_MUTEX_INITIALIZER
};

/* ------------------------------------------------------------------ complaints */

static void ucs_config_note(ucs_config_notes_t *notes, const char *fmt, ...) UCS_PRINTF(2, 3);

static void ucs_config_note(ucs_config_notes_t *notes, const char *fmt, ...)
{
    va_list ap;

    if (notes->count < UCS_CONFIG_NOTES_MAX) {
        va_start(ap, fmt);
        vsnprintf(notes->text[notes->count], sizeof(notes->text[0]), fmt, ap);
        va_end(ap);
    }

    ++notes->count;
}

static void ucs_config_say_notes(const ucs_config_notes_t *notes)
{
    unsigned i;

    for (i = 0; i < ucs_min(notes->count, (unsigned)UCS_CONFIG_NOTES_MAX); ++i) {
        ucs_warn("%s", notes->text[i]);
    }
    if (notes->count > UCS_CONFIG_NOTES_MAX) {
        ucs_warn("%u more complaints about configuration files", notes->count - i);
    }
}

/* ------------------------------------------------------------------ text to entries */

static ucs_config_entry_t *ucs_config_file_find(const char *key)
{
    size_t i;

    for (i = 0; i < ucs_config_files.count; ++i) {
        if (!strcmp(ucs_config_files.entries[i]->key, key)) {
            return ucs_config_files.entries[i];
        }
    }

    return NULL;
}

/* The entry of a key, a new one if there is none; NULL without memory. */
static ucs_config_entry_t *ucs_config_file_entry(const char *key)
{
    ucs_config_entry_t *entry = ucs_config_file_find(key);
    ucs_config_entry_t **entries;
    size_t capacity;

    if (entry != NULL) {
        return entry;
    }

    if (ucs_config_files.count == ucs_config_files.capacity) {
        capacity = ucs_config_files.capacity + UCS_CONFIG_FILE_STEP;
        entries  = ucs_sys_realloc(ucs_config_files.entries, capacity * sizeof(*entries));
        if (entries == NULL) {
            return NULL;
        }
        ucs_config_files.entries  = entries;
        ucs_config_files.capacity = capacity;
    }

    entry = ucs_sys_calloc(1, sizeof(*entry));
    if (entry != NULL) {
        entry->key                                         = key;
        ucs_config_files.entries[ucs_config_files.count++] = entry;
    }

    return entry;
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
ucs_config_file_line(const char *name, unsigned number, char *line, int *in_section,
                     ucs_config_notes_t *notes)
{
    ucs_config_entry_t *entry;
    char *key, *equals;

    key = ucs_config_file_strip(line);
    if ((*key == '\0') || (*key == '#') || (*key == ';')) {
        return UCS_OK;
    }

    if (*key == '[') {
        if (!*in_section) {
            ucs_config_note(notes, "%s:%u: sections are not supported, their lines are skipped",
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
        ucs_config_note(notes, "%s:%u: expected a line UCX_NAME=VALUE", name, number);
        return UCS_ERR_INVALID_PARAM;
    }

    entry = ucs_config_file_entry(key);
    if (entry == NULL) {
        ucs_config_note(notes, "%s:%u: no memory for the configuration", name, number);
        return UCS_ERR_NO_MEMORY;
    }

    ucs_config_file_cut_comment(equals + 1);
    entry->value = ucs_config_file_strip(equals + 1);
    snprintf(entry->place, sizeof(entry->place), "%.80s:%u", name, number);
    return UCS_OK;
}

/* Cut a block into lines. A wrong line is reported and passed over, and makes the answer an error.
 * */
static ucs_status_t ucs_config_file_lines(const char *name, char *text, size_t length,
                                          ucs_config_notes_t *notes)
{
    char *line = text, *end = text + length, *line_end;
    ucs_status_t result = UCS_OK, status;
    unsigned number     = 0;
    int in_section      = 0;

    while (line < end) {
        line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = (line_end != NULL) ? line_end : end;
        ++number;

        if (memchr(line, '\0', (size_t)(line_end - line)) != NULL) {
            ucs_config_note(notes, "%s:%u: a zero byte: this is not a text file", name, number);
            return UCS_ERR_INVALID_PARAM;
        }

        *line_end = '\0';
        status    = ucs_config_file_line(name, number, line, &in_section, notes);
        if (status == UCS_ERR_NO_MEMORY) {
            return status;
        }
        result = (result == UCS_OK) ? status : result;
        line   = line_end + 1;
    }

    return result;
}

/* A copy of the text becomes a block, then entries. The mutex is held. */
static ucs_status_t ucs_config_file_take(const char *name, const char *text, size_t length,
                                         ucs_config_notes_t *notes)
{
    ucs_config_block_t *block = ucs_sys_malloc(sizeof(*block) + length + 1);

    if (block == NULL) {
        ucs_config_note(notes, "%s: no memory for the configuration", name);
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(block->text, text, length);
    block->text[length]     = '\0';
    block->next             = ucs_config_files.blocks;
    ucs_config_files.blocks = block;
    return ucs_config_file_lines(name, block->text, length, notes);
}

/* ------------------------------------------------------------------ files */

/* Whether the open file may configure us. */
static ucs_status_t ucs_config_file_check(int fd, const char *path, ucs_config_trust_t trust,
                                          ucs_config_notes_t *notes)
{
    uid_t euid = ucs_sys_geteuid();
    struct stat info;

    if (ucs_sys_fstat(fd, &info) != 0) {
        ucs_config_note(notes, "cannot examine %s: %m", path);
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
            ucs_config_note(notes, "%s is not used: it belongs to user %u, not to root or user %u",
                            path, (unsigned)info.st_uid, (unsigned)euid);
        }
        return UCS_ERR_REJECTED;
    }
    if (info.st_mode & (S_IWGRP | S_IWOTH)) {
        ucs_config_note(notes, "%s is not used: others may write to it; cure: chmod go-w", path);
        return UCS_ERR_REJECTED;
    }

    return UCS_OK;
}

static ucs_status_t
ucs_config_file_read_fd(int fd, const char *path, char *text, ucs_config_notes_t *notes)
{
    size_t length = 0;
    ssize_t ret;

    while (length < UCS_CONFIG_FILE_MAX) {
        ret = ucs_sys_read(fd, text + length, UCS_CONFIG_FILE_MAX - length);
        if (ret == 0) {
            return ucs_config_file_take(path, text, length, notes);
        }
        if (ret > 0) {
            length += (size_t)ret;
        } else if (errno != EINTR) {
            ucs_config_note(notes, "cannot read %s: %m", path);
            return UCS_ERR_IO_ERROR;
        }
    }

    ucs_config_note(notes, "%s is not used: it has %d bytes or more", path, UCS_CONFIG_FILE_MAX);
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
static ucs_status_t ucs_config_file_read(const char *path, ucs_config_trust_t trust,
                                         ucs_config_notes_t *notes)
{
    ucs_status_t status;
    char *text;
    int fd;

    fd = ucs_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) {
        if ((errno == EACCES) && (trust != UCS_CONFIG_TRUST_OWN) &&
            ucs_config_file_is_there(path)) {
            ucs_config_note(notes, "%s is not used: user %u may not read it", path,
                            (unsigned)ucs_sys_geteuid());
        }
        return UCS_ERR_NO_ELEM;
    }

    status = ucs_config_file_check(fd, path, trust, notes);
    if (status == UCS_OK) {
        text = ucs_sys_malloc(UCS_CONFIG_FILE_MAX);
        if (text == NULL) {
            ucs_config_note(notes, "%s: no memory for the configuration", path);
            status = UCS_ERR_NO_MEMORY;
        } else {
            status = ucs_config_file_read_fd(fd, path, text, notes);
            ucs_sys_free(text);
        }
    }

    ucs_sys_close(fd);
    return status;
}

static void ucs_config_file_read_in(const char *folder, ucs_config_trust_t trust,
                                    ucs_config_notes_t *notes)
{
    char path[PATH_MAX];

    if ((folder != NULL) && (folder[0] != '\0') &&
        (snprintf(path, sizeof(path), "%s/" UCS_CONFIG_FILE_NAME, folder) < (int)sizeof(path))) {
        (void)ucs_config_file_read(path, trust, notes);
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

/* All files of the list, once. Errors were logged and leave what could be read. The mutex is held.
 * */
static void ucs_config_file_search(ucs_config_notes_t *notes)
{
    char folder[PATH_MAX - 64];

    if (ucs_config_files.searched) {
        return;
    }

    ucs_config_files.searched = 1;
    ucs_config_file_read_in(UCX_CONFIG_DIR, UCS_CONFIG_TRUST_ROOT, notes);
    if (ucs_config_file_own_folder(folder, sizeof(folder))) {
        ucs_config_file_read_in(folder, UCS_CONFIG_TRUST_ROOT, notes);
    }
    if (!getauxval(AT_SECURE)) {
        ucs_config_file_read_in(getenv("HOME"), UCS_CONFIG_TRUST_ROOT, notes);
        ucs_config_file_read_in(getenv("UCX_CONFIG_DIR"), UCS_CONFIG_TRUST_ROOT, notes);
        ucs_config_file_read_in(".", UCS_CONFIG_TRUST_OWN, notes);
    }
}

/* ------------------------------------------------------------------ what others call */

const char *ucs_config_file_get(const char *key, const char **place_p)
{
    ucs_config_notes_t notes;
    ucs_config_entry_t *entry;

    notes.count = 0;
    pthread_mutex_lock(&ucs_config_files.mutex);
    ucs_config_file_search(&notes);
    entry = ucs_config_file_find(key);
    pthread_mutex_unlock(&ucs_config_files.mutex);

    ucs_config_say_notes(&notes);
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
    ucs_config_notes_t notes;
    const char *key = NULL;

    notes.count = 0;
    pthread_mutex_lock(&ucs_config_files.mutex);
    ucs_config_file_search(&notes);
    if (i < ucs_config_files.count) {
        key      = ucs_config_files.entries[i]->key;
        *place_p = ucs_config_files.entries[i]->place;
    }
    pthread_mutex_unlock(&ucs_config_files.mutex);
    ucs_config_say_notes(&notes);
    return key;
}

ucs_status_t ucs_config_file_load(const char *path)
{
    ucs_config_notes_t notes;
    ucs_status_t status;

    notes.count = 0;
    pthread_mutex_lock(&ucs_config_files.mutex);
    ucs_config_file_search(&notes);
    status = ucs_config_file_read(path, UCS_CONFIG_TRUST_ANY, &notes);
    pthread_mutex_unlock(&ucs_config_files.mutex);
    ucs_config_say_notes(&notes);
    return status;
}

ucs_status_t ucs_config_file_parse(const char *name, const char *text, size_t length)
{
    ucs_config_notes_t notes;
    ucs_status_t status;

    if (length >= UCS_CONFIG_FILE_MAX) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    notes.count = 0;
    pthread_mutex_lock(&ucs_config_files.mutex);
    status = ucs_config_file_take(name, text, length, &notes);
    pthread_mutex_unlock(&ucs_config_files.mutex);
    ucs_config_say_notes(&notes);
    return status;
}

void ucs_config_file_clear(int search)
{
    ucs_config_block_t *block;
    size_t i;

    pthread_mutex_lock(&ucs_config_files.mutex);
    for (i = 0; i < ucs_config_files.count; ++i) {
        ucs_sys_free(ucs_config_files.entries[i]);
    }
    ucs_sys_free(ucs_config_files.entries);
    while ((block = ucs_config_files.blocks) != NULL) {
        ucs_config_files.blocks = block->next;
        ucs_sys_free(block);
    }

    ucs_config_files.entries  = NULL;
    ucs_config_files.count    = 0;
    ucs_config_files.capacity = 0;
    ucs_config_files.searched = !search;
    pthread_mutex_unlock(&ucs_config_files.mutex);
}
