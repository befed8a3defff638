/* Halyard: mm: the event set of an interface: the listening socket and all connections.
 *
 * User callbacks run after a batch of events has been handled, never amid it, because they may
 * close endpoints that the batch still names.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "mm_socket.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>

#define UCT_MM_BACKLOG    4096 /* the kernel lowers it to its own limit */
#define UCT_MM_EVENTS     16   /* taken from the kernel at a time */
#define UCT_MM_ROUNDS_MAX 8    /* batches of one poll */

uint16_t uct_mm_connect_net(void)
{
    struct stat st;
    uint16_t tag = 0;
    int fd;

    fd = ucs_sys_open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0) {
        if (ucs_sys_fstat(fd, &st) == 0) {
            tag = (uint16_t)(st.st_ino ^ (st.st_ino >> 16));
            tag = (tag == 0) ? 1 : tag;
        }
        ucs_sys_close(fd);
    }
    return tag;
}

ucs_status_t uct_mm_connect_open(uct_mm_iface_t *iface)
{
    struct sockaddr_un address;
    socklen_t length;

    ucs_list_head_init(&iface->greeting);
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

    iface->net       = uct_mm_connect_net();
    iface->name      = ucs_sys_random64();
    iface->listen.fd = uct_mm_socket_create();
    length           = uct_mm_socket_address(iface->name, &address);
    if ((iface->listen.fd < 0) ||
        (ucs_sys_bind(iface->listen.fd, (struct sockaddr *)&address, length) != 0) ||
        (ucs_sys_listen(iface->listen.fd, UCT_MM_BACKLOG) != 0) ||
        (uct_mm_socket_watch(iface, &iface->listen) != 0)) {
        ucs_error("failed to listen on an abstract unix socket: %m");
        return UCS_ERR_IO_ERROR;
    }

    iface->spare_fd = ucs_sys_fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
    return UCS_OK;
}

void uct_mm_connect_close(uct_mm_iface_t *iface)
{
    ucs_list_link_t *lists[] = {&iface->greeting, &iface->peers, &iface->gone};
    unsigned i;

    if (iface->greeting.next == NULL) { /* not even begun */
        return;
    }

    for (i = 0; i < ucs_array_size(lists); ++i) {
        while (!ucs_list_is_empty(lists[i])) {
            uct_mm_peer_free(iface, ucs_list_head(lists[i], uct_mm_peer_t, list));
        }
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

    do {
        found = ucs_sys_epoll_wait(iface->epoll_fd, events, UCT_MM_EVENTS, 0);
        count = 0;
        for (i = 0; i < found; ++i) {
            count += uct_mm_source_event(iface, events[i].data.ptr);
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
    iface->countdown    = 1;
    iface->next_poll_ns = 0;
}
