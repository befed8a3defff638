/* Halyard: a set of file descriptors to wait on, by epoll(7).
 *
 * The kernel is given the descriptor, not a pointer: a removal also strikes the descriptor from the
 * events that have been fetched and whose callbacks are yet to run.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/log.h>
#include <ucs/ds/hash.h>
#include <ucs/event/event_set.h>
#include <ucs/sys/sys.h>

#define UCS_EVENT_SET_BATCH 32

struct ucs_event_set {
    int                epfd;
    ucs_hash_t         data;    /* descriptor to the owner's pointer */
    int                fetched; /* events of the wait under way, */
    struct epoll_event events[UCS_EVENT_SET_BATCH]; /* with data.fd; -1: removed since */
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

    ucs_hash_init(&set->data);
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
    if (set == NULL) {
        return;
    }

    ucs_hash_cleanup(&set->data);
    ucs_event_set_disown(set);
    ucs_sys_free(set);
}

int ucs_event_set_fd(const ucs_event_set_t *set)
{
    return set->epfd;
}

static ucs_status_t ucs_event_set_ctl(ucs_event_set_t *set, int op, int fd, unsigned events)
{
    struct epoll_event event = {.events = ucs_event_set_to_epoll(events), .data.fd = fd};

    if (ucs_sys_epoll_ctl(set->epfd, op, fd, &event) == 0) {
        return UCS_OK;
    }

    ucs_error("epoll_ctl(fd %d) failed: %m", fd);
    return (errno == EPERM) ? UCS_ERR_UNSUPPORTED : UCS_ERR_IO_ERROR;
}

ucs_status_t ucs_event_set_add(ucs_event_set_t *set, int fd, unsigned events, void *data)
{
    ucs_status_t status = ucs_hash_insert(&set->data, (uint32_t)fd, (uintptr_t)data);

    if (status != UCS_OK) {
        if (status == UCS_ERR_NO_MEMORY) {
            ucs_error("no memory to wait on fd %d", fd);
        }
        return status;
    }

    status = ucs_event_set_ctl(set, EPOLL_CTL_ADD, fd, events);
    if (status != UCS_OK) {
        (void)ucs_hash_del(&set->data, (uint32_t)fd);
    }

    return status;
}

ucs_status_t ucs_event_set_mod(ucs_event_set_t *set, int fd, unsigned events)
{
    return (ucs_hash_get(&set->data, (uint32_t)fd) == NULL) ? UCS_ERR_NO_ELEM :
           ucs_event_set_ctl(set, EPOLL_CTL_MOD, fd, events);
}

ucs_status_t ucs_event_set_del(ucs_event_set_t *set, int fd)
{
    struct epoll_event unused = {.events = 0};
    int i;

    if (ucs_hash_del(&set->data, (uint32_t)fd) != UCS_OK) {
        return UCS_ERR_NO_ELEM;
    }

    for (i = 0; i < set->fetched; ++i) {
        if (set->events[i].data.fd == fd) {
            set->events[i].data.fd = -1;
        }
    }
    /* fails only for a descriptor that is closed already, and then the kernel has forgotten it; no
     * fault point, since what is removed must stay removed */
    (void)ucs_sys->epoll_ctl(set->epfd, EPOLL_CTL_DEL, fd, &unused);
    return UCS_OK;
}

ucs_status_t ucs_event_set_wait(ucs_event_set_t *set, int timeout_ms, ucs_event_set_cb_t cb,
                                void *arg, unsigned *count_p)
{
    const uint64_t *data;
    unsigned count = 0;
    int i;

    set->fetched = ucs_sys_epoll_wait(set->epfd, set->events, UCS_EVENT_SET_BATCH, timeout_ms);
    if ((set->fetched < 0) && (errno != EINTR)) {
        ucs_error("epoll_wait() failed: %m");
        return UCS_ERR_IO_ERROR;
    }

    for (i = 0; i < set->fetched; ++i) {
        data = ucs_hash_get(&set->data, (uint32_t)set->events[i].data.fd);
        if (data != NULL) {
            cb((void *)(uintptr_t)*data, ucs_event_set_from_epoll(set->events[i].events), arg);
            ++count;
        }
    }
    set->fetched = 0;

    if (count_p != NULL) {
        *count_p = count;
    }

    return UCS_OK;
}
