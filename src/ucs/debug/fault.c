/* Halyard: named fault points: make the k-th call of something fail, on purpose and exactly.
 *
 * A short table of programmed entries under one mutex: whoever programs faults does not look for
 * speed, and all who do not never come here. Nothing in this file goes through <ucs/sys/sys.h>,
 * which calls it, nor allocates.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/fault.h>
#include <ucs/config/parser.h>
#include <ucs/debug/log.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    UCS_FAULT_STATE_OFF     = 0,
    UCS_FAULT_STATE_ARMED   = 1,
    UCS_FAULT_STATE_UNKNOWN = 2
};

/* Longest specification, with its end. */
#define UCS_FAULT_SPEC_MAX 64

typedef struct {
    char     name[UCS_FAULT_NAME_MAX];
    uint64_t first;         /* number of the first call that fails; 0 for none */
    int      stay;          /* all calls after it fail too */
    uint64_t threshold;     /* probability in units of 2^-53, where `first` is 0 */
    uint64_t random_state;
    int      error;         /* errno to set; 0: the call's own */
    uint64_t calls;
    uint64_t failed;
} ucs_fault_entry_t;

int ucs_fault_state = UCS_FAULT_STATE_UNKNOWN;

pthread_mutex_t ucs_fault_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    unsigned          count;
    ucs_fault_entry_t entries[UCS_FAULT_ENTRIES_MAX];
} ucs_faults;

static const struct {
    const char *name;
    int        value;
} ucs_fault_errnos[] = {
    {"EPERM", EPERM},       {"ENOENT", ENOENT},   {"ESRCH", ESRCH},
    {"EINTR", EINTR},       {"EIO", EIO},         {"EBADF", EBADF},
    {"EAGAIN", EAGAIN},     {"ENOMEM", ENOMEM},   {"EACCES", EACCES},
    {"EFAULT", EFAULT},     {"EBUSY", EBUSY},     {"EEXIST", EEXIST},
    {"ENODEV", ENODEV},     {"EINVAL", EINVAL},   {"ENFILE", ENFILE},
    {"EMFILE", EMFILE},     {"EFBIG", EFBIG},     {"ENOSPC", ENOSPC},
    {"EPIPE", EPIPE},       {"ENOSYS", ENOSYS},   {"ENOBUFS", ENOBUFS},
    {"ECONNRESET", ECONNRESET}, {"ECONNREFUSED", ECONNREFUSED},
    {"EADDRINUSE", EADDRINUSE}, {"ETIMEDOUT", ETIMEDOUT}, {"ETOOMANYREFS", ETOOMANYREFS}
};

static int ucs_fault_parse_errno(const char *text, int *error_p)
{
    const char *end;
    uint64_t value;
    size_t i;

    end = ucs_str_parse_u64(text, &value);
    if ((end != NULL) && (*end == '\0') && (value > 0) && (value < 4096)) {
        *error_p = (int)value;
        return 1;
    }

    for (i = 0; i < ucs_array_size(ucs_fault_errnos); ++i) {
        if (!strcmp(text, ucs_fault_errnos[i].name)) {
            *error_p = ucs_fault_errnos[i].value;
            return 1;
        }
    }

    return 0;
}

/* The first part: K, K+ or pX. */
static int ucs_fault_parse_when(const char *text, ucs_fault_entry_t *entry)
{
    const char *end;
    double probability;

    if (text[0] == 'p') {
        end = ucs_str_parse_double(text + 1, &probability);
        if ((end == NULL) || (*end != '\0') || (probability < 0.0) || (probability > 1.0)) {
            return 0;
        }
        entry->threshold = (uint64_t)(probability * (double)(1ull << 53));
        return 1;
    }

    end = ucs_str_parse_u64(text, &entry->first);
    if (end == NULL) {
        return 0;
    }

    entry->stay = (*end == '+');
    return end[entry->stay] == '\0';
}

static int ucs_fault_parse(const char *spec, ucs_fault_entry_t *entry)
{
    char copy[UCS_FAULT_SPEC_MAX];
    char *saved, *part;
    const char *end;

    if (!ucs_str_copy(copy, sizeof(copy), spec)) {
        return 0;
    }

    part = strtok_r(copy, ":", &saved);
    if ((part == NULL) || !ucs_fault_parse_when(part, entry)) {
        return 0;
    }

    entry->random_state = 1;
    while ((part = strtok_r(NULL, ":", &saved)) != NULL) {
        if (!strncmp(part, "seed", 4)) {
            end = ucs_str_parse_u64(part + 4, &entry->random_state);
            if ((end == NULL) || (*end != '\0')) {
                return 0;
            }
        } else if (!ucs_fault_parse_errno(part, &entry->error)) {
            return 0;
        }
    }

    return 1;
}

/* Program the environment's list, once. Other threads' calls meanwhile pass unharmed. */
static void ucs_fault_init(void)
{
    int expected = UCS_FAULT_STATE_UNKNOWN;
    const char *list;
    ucs_status_t status;
    char quote[80];

    if (!__atomic_compare_exchange_n(&ucs_fault_state, &expected, UCS_FAULT_STATE_OFF, 0,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        return;
    }

    list = secure_getenv("UCX_FAULT");
    if (list == NULL) {
        return;
    }

    status = ucs_fault_set_list(list);
    if (status != UCS_OK) {
        ucs_config_sanitize(list, quote, sizeof(quote));
        ucs_error("UCX_FAULT='%s' is not a list of NAME:K[+] or NAME:pX, each with optional :seedN "
                  "and :ERRNO, separated by commas; what follows the mistake is ignored", quote);
    }
}

static ucs_fault_entry_t *ucs_fault_find(const char *name)
{
    unsigned i;

    for (i = 0; i < ucs_faults.count; ++i) {
        if (!strcmp(ucs_faults.entries[i].name, name)) {
            return &ucs_faults.entries[i];
        }
    }

    return NULL;
}

/* Publish whether any entry is left. The mutex is held. */
static void ucs_fault_update_state(void)
{
    __atomic_store_n(&ucs_fault_state,
                     (ucs_faults.count > 0) ? UCS_FAULT_STATE_ARMED : UCS_FAULT_STATE_OFF,
                     __ATOMIC_RELAXED);
}

ucs_status_t ucs_fault_set(const char *name, const char *spec)
{
    ucs_fault_entry_t parsed = {.first = 0}, *entry;
    ucs_status_t status = UCS_OK;

    ucs_fault_init();
    if ((name == NULL) || (spec == NULL) || (name[0] == '\0')) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!ucs_str_copy(parsed.name, sizeof(parsed.name), name)) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    if (!ucs_fault_parse(spec, &parsed)) {
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_lock(&ucs_fault_mutex);
    entry = ucs_fault_find(name);
    if ((entry == NULL) && (ucs_faults.count < UCS_FAULT_ENTRIES_MAX)) {
        entry = &ucs_faults.entries[ucs_faults.count++];
    }
    if (entry == NULL) {
        status = UCS_ERR_EXCEEDS_LIMIT;
    } else {
        *entry = parsed;
    }
    ucs_fault_update_state();
    pthread_mutex_unlock(&ucs_fault_mutex);
    return status;
}

ucs_status_t ucs_fault_set_list(const char *list)
{
    char item[UCS_FAULT_NAME_MAX + UCS_FAULT_SPEC_MAX];
    size_t length;
    char *colon;
    ucs_status_t status;

    if (list == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    for (; *list != '\0'; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        if (length == 0) {
            continue;
        }
        if (length >= sizeof(item)) {
            return UCS_ERR_INVALID_PARAM;
        }

        memcpy(item, list, length);
        item[length] = '\0';
        colon        = strchr(item, ':');
        if (colon == NULL) {
            return UCS_ERR_INVALID_PARAM;
        }

        *colon = '\0';
        status = ucs_fault_set(item, colon + 1);
        if (status != UCS_OK) {
            return status;
        }
    }

    return UCS_OK;
}

void ucs_fault_clear(const char *name)
{
    ucs_fault_entry_t *entry;

    ucs_fault_init();
    pthread_mutex_lock(&ucs_fault_mutex);
    if (name == NULL) {
        ucs_faults.count = 0;
    } else {
        entry = ucs_fault_find(name);
        if (entry != NULL) {
            *entry = ucs_faults.entries[--ucs_faults.count];
        }
    }
    ucs_fault_update_state();
    pthread_mutex_unlock(&ucs_fault_mutex);
}

ucs_status_t ucs_fault_query(const char *name, uint64_t *calls_p, uint64_t *failed_p)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;
    ucs_fault_entry_t *entry;

    pthread_mutex_lock(&ucs_fault_mutex);
    entry = ucs_fault_find(name);
    if (entry != NULL) {
        status = UCS_OK;
        if (calls_p != NULL) {
            *calls_p = entry->calls;
        }
        if (failed_p != NULL) {
            *failed_p = entry->failed;
        }
    }
    pthread_mutex_unlock(&ucs_fault_mutex);
    return status;
}

static int ucs_fault_matches(const ucs_fault_entry_t *entry, const char *name)
{
    size_t length = strlen(entry->name);

    if (entry->name[length - 1] == '*') {
        return !strncmp(entry->name, name, length - 1);
    }

    return !strcmp(entry->name, name);
}

/* Count the call at one entry; not zero if it fails. */
static int ucs_fault_entry_hit(ucs_fault_entry_t *entry)
{
    int fails;

    ++entry->calls;
    if (entry->threshold > 0) {
        fails = (ucs_random_next(&entry->random_state) >> 11) < entry->threshold;
    } else {
        fails = (entry->first > 0) &&
                (entry->stay ? (entry->calls >= entry->first) : (entry->calls == entry->first));
    }

    entry->failed += fails;
    return fails;
}

int ucs_fault_evaluate(const char *name, int default_errno)
{
    int error = 0, fails = 0, saved_errno = errno;
    unsigned i;

    ucs_fault_init();
    pthread_mutex_lock(&ucs_fault_mutex);
    for (i = 0; i < ucs_faults.count; ++i) {
        if (!ucs_fault_matches(&ucs_faults.entries[i], name) ||
            !ucs_fault_entry_hit(&ucs_faults.entries[i])) {
            continue;
        }
        fails = 1;
        error = ucs_faults.entries[i].error ? ucs_faults.entries[i].error : default_errno;
    }
    pthread_mutex_unlock(&ucs_fault_mutex);

    /* a call that goes on must find errno as it was */
    errno = fails ? error : saved_errno;
    return fails;
}
