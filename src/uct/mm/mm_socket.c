/* Halyard: mm: the sockets that connect interfaces; see mm_socket.h.
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

#include <ucs/sys/sys.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Signals that are taken off a connection at a time; a peer could send without end. */
#define UCT_MM_SIGNALS_MAX 64

socklen_t uct_mm_socket_address(const uct_mm_md_t *md, uint16_t place, uint64_t name,
                                struct sockaddr_un *address)
{
    const char *dir    = ((const uct_mm_config_t *)md->super.config)->socket_dir;
    const int is_dir   = uct_mm_place_is_dir(place);
    char *path         = address->sun_path + !is_dir; /* abstract names begin with a zero */
    const size_t room  = sizeof(address->sun_path) - 1;
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length = snprintf(path, room, "%s%shalyard-mm-%016" PRIx64, is_dir ? dir : "",
                      is_dir ? "/" : "", name);
    if (((size_t)length >= room) || (is_dir && (*dir == '\0'))) {
        return 0;
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

void uct_mm_socket_unlink(const uct_mm_md_t *md, uint16_t place, uint64_t name)
{
    struct sockaddr_un address;

    if (uct_mm_place_is_dir(place) && (uct_mm_socket_address(md, place, name, &address) > 0)) {
        ucs_sys_unlink(address.sun_path);
    }
}

int uct_mm_socket_create(void)
{
    return ucs_sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int uct_mm_socket_is_ours(int fd)
{
    struct ucred cred;
    socklen_t length = sizeof(cred);

    return (ucs_sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0) &&
           (cred.uid == ucs_sys_geteuid());
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

int uct_mm_socket_send(int fd, const void *data, size_t length, const int *fds, unsigned count)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov     = {.iov_base = (void *)data, .iov_len = length};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg;

    if (count > 0) {
        memset(&control, 0, sizeof(control));
        header.msg_control    = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsg                  = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level      = SOL_SOCKET;
        cmsg->cmsg_type       = SCM_RIGHTS;
        cmsg->cmsg_len        = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    return (ucs_sys_sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length) ? 0 : -1;
}

ssize_t uct_mm_socket_recv(int fd, void *data, size_t max, int fds[2], unsigned *count_p)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov     = {.iov_base = data, .iov_len = max};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg;
    ssize_t length;

    if (fds != NULL) {
        header.msg_control    = control.bytes;
        header.msg_controllen = sizeof(control.bytes);
        *count_p              = 0;
    }
    do {
        length = ucs_sys_recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((length < 0) && (errno == EINTR));

    if ((length >= 0) && (fds != NULL)) {
        cmsg = CMSG_FIRSTHDR(&header);
        if ((cmsg != NULL) && (cmsg->cmsg_level == SOL_SOCKET) && (cmsg->cmsg_type == SCM_RIGHTS)) {
            *count_p = (unsigned)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(cmsg), *count_p * sizeof(int));
        }
        while ((length == 0) && (*count_p > 0)) { /* descriptors beside nothing */
            ucs_sys_close(fds[--*count_p]);
        }
    }
    return length;
}

void uct_mm_connect_signal(int fd)
{
    static const uint8_t byte = 1;

    /* A failure is a peer with a full queue, which will wake for what it holds, or a dead one. */
    (void)uct_mm_socket_send(fd, &byte, sizeof(byte), NULL, 0);
}

int uct_mm_socket_drain(int fd)
{
    uint8_t bytes[64];
    ssize_t length;
    unsigned i;

    for (i = 0; i < UCT_MM_SIGNALS_MAX; ++i) {
        length = uct_mm_socket_recv(fd, bytes, sizeof(bytes), NULL, NULL);
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

int uct_mm_is_rival(const ucs_sys_cpus_t *cpus)
{
    uint64_t common = 0;
    ucs_sys_cpus_t own;
    unsigned i;

    ucs_sys_get_cpus(&own);
    for (i = 0; i < UCS_SYS_CPU_WORDS; ++i) {
        common |= own.words[i] & cpus->words[i];
    }
    return common != 0;
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
