/* Halyard: mm: the sockets that connect interfaces; see mm_socket.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_socket.h"

#include <ucs/sys/sys.h>

/* Signals that are taken off a connection at a time; a peer could send without end. */
#define UCT_MM_SIGNALS_MAX 64

/* 20 ms in all: the kernel gives memory back meanwhile, or ends a process. */
#define UCT_MM_SAY_TRIES  100
#define UCT_MM_SAY_NAP_NS 200000

void uct_mm_socket_unlink(const uct_mm_md_t *md, uint16_t place, uint64_t name)
{
    struct sockaddr_un address;

    if (uct_socket_place_is_dir(place) &&
        (uct_socket_address(uct_mm_socket_dir(md), place, name, &address) > 0)) {
        ucs_sys_unlink(address.sun_path);
    }
}

void uct_mm_socket_close(uct_mm_iface_t *iface, uct_mm_source_t *source)
{
    struct epoll_event unused;

    if (source->fd >= 0) {
        ucs_sys_epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, source->fd, &unused);
        ucs_sys_shutdown(source->fd, SHUT_RDWR);
        ucs_sys_close(source->fd);
        source->fd = -1;
    }
}

int uct_mm_socket_watch(uct_mm_iface_t *iface, uct_mm_source_t *source)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = source};

    return ucs_sys_epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, source->fd, &event);
}

ucs_status_t uct_mm_socket_say(int fd, const void *data, size_t length)
{
    ucs_status_t status = uct_socket_send(fd, data, length, NULL, 0);
    unsigned i;

    for (i = 0; (i < UCT_MM_SAY_TRIES) && (status != UCS_OK) &&
                ((errno == ENOMEM) || (errno == ENOBUFS)); ++i) {
        ucs_sys_sleep_ns(UCT_MM_SAY_NAP_NS);
        status = uct_socket_send(fd, data, length, NULL, 0);
    }
    return status;
}

int uct_mm_connect_signal(int fd)
{
    static const uint8_t byte = 1;

    /* Else a failure is a peer with a full queue, which will wake for what it holds, or a dead
     * one. */
    return (uct_mm_socket_say(fd, &byte, sizeof(byte)) == UCS_OK) ||
           ((errno != ENOMEM) && (errno != ENOBUFS));
}

int uct_mm_socket_drain(int fd)
{
    uint8_t bytes[64];
    ssize_t length;
    unsigned i;

    for (i = 0; i < UCT_MM_SIGNALS_MAX; ++i) {
        length = uct_socket_recv(fd, bytes, sizeof(bytes), NULL, NULL);
        if (length <= 0) {
            return (length < 0) && (errno == EAGAIN);
        }
    }
    return 1;
}

int uct_mm_socket_is_ended(int fd)
{
    struct iovec iov;
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t length;
    char byte;

    iov.iov_base = &byte;
    iov.iov_len  = sizeof(byte);
    length       = ucs_sys_recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT);
    return (length == 0) || ((length < 0) && (errno != EAGAIN) && (errno != EINTR));
}

int uct_mm_is_rival(const cpu_set_t *own, const cpu_set_t *theirs)
{
    cpu_set_t common;

    CPU_AND(&common, own, theirs);
    return CPU_COUNT(&common) > 0;
}

int uct_mm_is_near(uct_mm_iface_t *iface, const cpu_set_t *own, const cpu_set_t *theirs)
{
    cpu_set_t all, inside;
    unsigned first = 0;

    while ((first < CPU_SETSIZE) && !CPU_ISSET(first, own)) {
        ++first;
    }
    if (first == CPU_SETSIZE) {
        return 0;
    }
    if (!CPU_ISSET(first, &iface->near_cpus)) { /* not known yet, or moved */
        ucs_sys_get_cache_cpus(first, &iface->near_cpus);
    }
    CPU_OR(&all, own, theirs);
    CPU_AND(&inside, &all, &iface->near_cpus);
    return (CPU_COUNT(theirs) > 0) && CPU_EQUAL(&inside, &all);
}

ucs_status_t uct_mm_socket_status(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
        return UCS_ERR_EXCEEDS_LIMIT;
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
        return UCS_ERR_NO_MEMORY;
    default:
        return UCS_ERR_UNREACHABLE;
    }
}
