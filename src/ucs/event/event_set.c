/* Halyard: a set of file descriptors to wait on, by epoll(7).
 *
 * The kernel is given the descriptor and the number of its registration, not a pointer: an event
 * whose registration is no longer the current one of its descriptor is stale and is dropped.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/log.h>
#include <ucs/ds/hash.h>
#include <ucs/event/event_set.h>
#include <ucs/sys/sys.h>

#define UCS_EVENT_SET_BATCH 32

/* A descriptor in the set. */
typedef struct {
    void     *data;
    uint32_t generation;
} ucs_event_entry_t;

struct ucs_event_set {
    int        epfd;
    uint32_t   generation;  /* of the latest registration */
    ucs_hash_t entries;     /* descriptor to ucs_event_entry_t */
};

static uint32_t ucs_event_set_to_epoll(unsigned events)
{
    return ((events & UCS_EVENT_READ) ? (uint32_t)EPOLLIN : 0u) |
           ((events & UCS_EVENT_WRITE) ? (uint32_t)EPOLLOUT : 0u) |
           ((events & UCS_EVENT_EDGE) ? (uint32_t)EPOLLET : 0u);
}

static unsigned ucs_event_set_from_epoll(uint32_t events)
{
    return ((events & EPOLLIN) ? (unsigned)UCS_EVENT_READ : 0u) |
           ((events & EPOLLOUT) ? (unsigned)UCS_EVENT_WRITE : 0u) |
           ((events & (EPOLLERR | EPOLLHUP)) ? (unsigned)UCS_EVENT_ERROR : 0u);
}

ucs_status_t ucs_event_set_create(ucs_event_set_t **set_p)
{
    ucs_event_set_t *set = ucs_sys_calloc(1, sizeof(*set));

    if (set == NULL) {
        ucs_error("no memory for an event set");
        return UCS_ERR_NO_MEMORY;
    }

    set->epfd = ucs_sys_epoll_create1(EPOLL_CLOEXEC);
    if (set->epfd < 0) {
        ucs_error("epoll_create1() failed: %m");
        ucs_sys_free(set);
        return UCS_ERR_IO_ERROR;
    }

    ucs_hash_init(&set->entries);
    *set_p = set;
    return UCS_OK;
}

void ucs_event_set_disown(ucs_event_set_t *set)
{
    if (set->epfd >= 0) {
        ucs_sys_close(set->epfd);
        set->epfd = -1;
    }
}

void ucs_event_set_destroy(ucs_event_set_t *set)
{
    size_t pos = 0;
    uint64_t fd, *value;

    if (set == NULL) {
        return;
    }

    while (ucs_hash_next(&set->entries, &pos, &fd, &value)) {
        ucs_sys_free((void *)(uintptr_t)*value);
    }
    ucs_hash_cleanup(&set->entries);
    ucs_event_set_disown(set);
    ucs_sys_free(set);
}

int ucs_event_set_fd(const ucs_event_set_t *set)
{
    return set->epfd;
}

static ucs_status_t ucs_event_set_ctl(ucs_event_set_t *set, int op, int fd, unsigned events,
                                      const ucs_event_entry_t *entry)
{
    struct epoll_event event = {
        .events   = ucs_event_set_to_epoll(events),
        .data.u64 = ((uint64_t)entry->generation << 32) | (uint32_t)fd
    };

    if (ucs_sys_epoll_ctl(set->epfd, op, fd, &event) == 0) {
        return UCS_OK;
    }

    ucs_error("epoll_ctl(fd %d) failed: %m", fd);
    return (errno == EPERM) ? UCS_ERR_UNSUPPORTED : UCS_ERR_IO_ERROR;
}

ucs_status_t ucs_event_set_add(ucs_event_set_t *set, int fd, unsigned events, void *data)
{
    ucs_event_entry_t *entry;
    ucs_status_t status;

    if (ucs_hash_get(&set->entries, (uint32_t)fd) != NULL) {
        return UCS_ERR_ALREADY_EXISTS;
    }

    entry = ucs_sys_malloc(sizeof(*entry));
    if (entry == NULL) {
        ucs_error("no memory to wait on fd %d", fd);
        return UCS_ERR_NO_MEMORY;
    }

    entry->data       = data;
    entry->generation = ++set->generation;
    status            = ucs_hash_insert(&set->entries, (uint32_t)fd, (uintptr_t)entry);
    if (status != UCS_OK) {
        ucs_error("no memory to wait on fd %d", fd);
        ucs_sys_free(entry);
        return status;
    }

    status = ucs_event_set_ctl(set, EPOLL_CTL_ADD, fd, events, entry);
    if (status != UCS_OK) {
        (void)ucs_hash_del(&set->entries, (uint32_t)fd, NULL);
        ucs_sys_free(entry);
    }

    return status;
}

ucs_status_t ucs_event_set_mod(ucs_event_set_t *set, int fd, unsigned events)
{
    ucs_event_entry_t *entry = ucs_hash_get_ptr(&set->entries, (uint32_t)fd);

    if (entry == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    return ucs_event_set_ctl(set, EPOLL_CTL_MOD, fd, events, entry);
}

ucs_status_t ucs_event_set_del(ucs_event_set_t *set, int fd)
{
    struct epoll_event unused = {.events = 0};
    uint64_t value;

    if (ucs_hash_del(&set->entries, (uint32_t)fd, &value) != UCS_OK) {
        return UCS_ERR_NO_ELEM;
    }

    /* fails only for a descriptor that is closed already, and then the kernel has forgotten it; no
     * fault point, since what is removed must stay removed */
    (void)ucs_sys->epoll_ctl(set->epfd, EPOLL_CTL_DEL, fd, &unused);
    ucs_sys_free((void *)(uintptr_t)value);
    return UCS_OK;
}

ucs_status_t ucs_event_set_wait(ucs_event_set_t *set, int timeout_ms, ucs_event_set_cb_t cb,
                                void *arg, unsigned *count_p)
{
    struct epoll_event events[UCS_EVENT_SET_BATCH];
    const ucs_event_entry_t *entry;
    unsigned count = 0;
    int ret, i;

    ret = ucs_sys_epoll_wait(set->epfd, events, UCS_EVENT_SET_BATCH, timeout_ms);
    if ((ret < 0) && (errno != EINTR)) {
        ucs_error("epoll_wait() failed: %m");
        return UCS_ERR_IO_ERROR;
    }

    for (i = 0; i < ret; ++i) {
        entry = ucs_hash_get_ptr(&set->entries, (uint32_t)events[i].data.u64);
        if ((entry != NULL) && (entry->generation == (uint32_t)(events[i].data.u64 >> 32))) {
            cb(entry->data, ucs_event_set_from_epoll(events[i].events), arg);
            ++count;
        }
    }

    if (count_p != NULL) {
        *count_p = count;
    }

    return UCS_OK;
}
