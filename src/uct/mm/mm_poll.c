/* Halyard: mm: the event set of an interface: the listening socket and all connections.
 *
 * User callbacks run after a batch of events has been handled, never amid it, because they may
 * close endpoints that the batch still names.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_socket.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>

#define UCT_MM_BACKLOG    4096 /* the kernel lowers it to its own limit */
#define UCT_MM_EVENTS     16   /* taken from the kernel at a time */
#define UCT_MM_ROUNDS_MAX 8    /* batches of one poll */

/* 16 bits of what a path leads to; the lowest is clear. 0 if it leads nowhere. */
static uint16_t uct_mm_tag_of(const char *path, int flags)
{
    uint64_t mix = 0;
    struct stat st;
    int fd;

    fd = ucs_sys_open(path, O_RDONLY | O_CLOEXEC | flags, 0);
    if (fd < 0) {
        return 0;
    }
    if (ucs_sys_fstat(fd, &st) == 0) {
        mix = ((uint64_t)st.st_ino * 0x9e3779b97f4a7c15ull) ^ (uint64_t)st.st_dev;
        mix = ((mix >> 48) ^ (mix >> 32) ^ (mix >> 16) ^ mix) & 0xfffe;
        mix = (mix == 0) ? 2 : mix;
    }
    ucs_sys_close(fd);
    return (uint16_t)mix;
}

/* Tag of the directory of the configuration, 0 if there is none. Programs go to other directories,
 * so a path has to lead there from each. */
static uint16_t uct_mm_dir_tag(const uct_mm_md_t *md)
{
    const char *dir = uct_mm_socket_dir(md);
    uint16_t tag    = (*dir != '/') ? 0 : uct_mm_tag_of(dir, O_DIRECTORY);

    return (tag == 0) ? 0 : tag | 1;
}

/* A listening socket with a name in that place, or -1. */
static int uct_mm_listen_in(const uct_mm_iface_t *iface, uint16_t place)
{
    const int fd = uct_socket_create();
    struct sockaddr_un address;
    socklen_t length;
    int error;

    length = uct_socket_address(iface->door.dir, place, iface->door.name, &address);
    if ((fd >= 0) && (ucs_sys_bind(fd, (struct sockaddr *)&address, length) == 0)) {
        if (ucs_sys_listen(fd, UCT_MM_BACKLOG) == 0) {
            return fd;
        }
        uct_mm_socket_unlink(uct_mm_md(iface->super.md), place, iface->door.name);
    }
    error = errno;
    if (fd >= 0) {
        ucs_sys_close(fd);
    }
    errno = error;
    return -1;
}

/* The directory of the configuration, if it serves, is a place for all who can see it. */
static int uct_mm_listen_open(uct_mm_iface_t *iface)
{
    const uct_mm_md_t *md = uct_mm_md(iface->super.md);

    iface->net        = uct_mm_tag_of("/proc/self/ns/net", 0);
    iface->door.place = uct_mm_dir_tag(md);
    if (iface->door.place != 0) {
        iface->listen.fd = uct_mm_listen_in(iface, iface->door.place);
    }
    if (iface->listen.fd < 0) {
        if ((*iface->door.dir != '\0') && (*iface->door.dir != '/')) {
            ucs_warn_once("UCX_MM_SOCKET_DIR=%s is not used: a whole path (/...) is needed",
                          iface->door.dir);
        } else if (*iface->door.dir != '\0') {
            ucs_diag("UCX_MM_SOCKET_DIR does not serve, peers of other network namespaces cannot "
                     "be reached: %m");
        }
        iface->door.place     = iface->net;
        iface->listen.fd = uct_mm_listen_in(iface, iface->door.place);
    }
    return (iface->listen.fd < 0) ? -1 : uct_mm_socket_watch(iface, &iface->listen);
}

ucs_status_t uct_mm_connect_open(uct_mm_iface_t *iface)
{
    ucs_list_head_init(&iface->greeting);
    ucs_list_head_init(&iface->due);
    ucs_list_head_init(&iface->peers);
    ucs_list_head_init(&iface->gone);
    ucs_list_head_init(&iface->retries);
    iface->listen.kind = UCT_MM_SOURCE_LISTEN;
    iface->listen.fd   = -1;
    iface->spare_fd    = -1;
    iface->epoll_fd    = ucs_sys_epoll_create1(EPOLL_CLOEXEC);
    if (iface->epoll_fd < 0) {
        ucs_error("failed to make an event set: %m");
        return UCS_ERR_IO_ERROR;
    }

    iface->door.owner = iface->super.md;
    iface->door.uid   = iface->super.params.uid;
    iface->door.dir   = uct_mm_socket_dir(uct_mm_md(iface->super.md));
    iface->door.name  = ucs_sys_random64();
    if (uct_mm_listen_open(iface) != 0) {
        ucs_error("failed to listen on a unix socket: %m");
        return UCS_ERR_IO_ERROR;
    }

    iface->spare_fd = ucs_sys_fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
    return UCS_OK;
}

void uct_mm_connect_close(uct_mm_iface_t *iface)
{
    ucs_list_link_t *lists[] = {&iface->greeting, &iface->due, &iface->peers, &iface->gone};
    unsigned i;

    if (iface->greeting.next == NULL) { /* not even begun */
        return;
    }

    for (i = 0; i < ucs_array_size(lists); ++i) {
        while (!ucs_list_is_empty(lists[i])) {
            uct_mm_peer_free(iface, ucs_list_head(lists[i], uct_mm_peer_t, list));
        }
    }
    if (iface->listen.fd >= 0) { /* a forked child has lost it: the name is its parent's */
        uct_mm_socket_unlink(uct_mm_md(iface->super.md), iface->door.place, iface->door.name);
    }
    uct_mm_socket_close(iface, &iface->listen);
    if (iface->spare_fd >= 0) {
        ucs_sys_close(iface->spare_fd);
    }
    if (iface->epoll_fd >= 0) {
        ucs_sys_close(iface->epoll_fd);
    }
}

static unsigned uct_mm_source_event(uct_mm_iface_t *iface, uct_mm_source_t *source)
{
    switch (source->kind) {
    case UCT_MM_SOURCE_LISTEN:
        return uct_mm_listen_event(iface);
    case UCT_MM_SOURCE_PEER:
        return uct_mm_peer_event(iface, ucs_container_of(source, uct_mm_peer_t, source));
    default:
        return uct_mm_ep_event(iface, ucs_container_of(source, uct_mm_ep_t, source));
    }
}

unsigned uct_mm_connect_poll(uct_mm_iface_t *iface)
{
    struct epoll_event events[UCT_MM_EVENTS];
    unsigned done  = 0;
    unsigned round = 0;
    unsigned count;
    int i, found;

    if (ucs_unlikely(!ucs_list_is_empty(&iface->due))) {
        done += uct_mm_due_run(iface);
    }
    if (ucs_unlikely(iface->owes_signals)) {
        uct_mm_iface_pay_signals(iface);
    }
    do {
        found = ucs_sys_epoll_wait(iface->epoll_fd, events, UCT_MM_EVENTS, 0);
        count = 0;
        for (i = 0; i < found; ++i) {
            count += uct_mm_source_event(iface, events[i].data.ptr);
        }
        if ((found > 0) && (iface->super.params.rouse != NULL)) {
            /* Nobody signals again, and another thread may sleep that was to wake by this. */
            iface->super.params.rouse(iface->super.params.arg);
        }
        done += count;
        ++round;
    } while ((count > 0) && (round < UCT_MM_ROUNDS_MAX));

    if (ucs_unlikely(!ucs_list_is_empty(&iface->retries))) {
        uct_mm_retries_run(iface);
    }
    return done;
}

void uct_mm_connect_hurry(uct_mm_iface_t *iface)
{
    iface->look_turn    = iface->side.turns + 1;
    iface->next_poll_ns = 0;
}
