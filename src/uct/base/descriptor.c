/* Halyard: descriptors for other processes of the node, over Unix sockets.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/api/uct_tl.h>
#include <uct/base/descriptor.h>

#define UCS_LOG_COMPONENT "uct"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    uct_socket_message_t head;
    int32_t              status;
    int32_t              reserved;
    uint64_t             length;
} uct_descriptor_answer_t;

static pthread_mutex_t uct_descriptor_mutex  = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t uct_descriptor_doors  = {&uct_descriptor_doors, &uct_descriptor_doors};
static ucs_list_link_t uct_descriptor_offers = {&uct_descriptor_offers, &uct_descriptor_offers};
static pthread_once_t uct_descriptor_once    = PTHREAD_ONCE_INIT;

/* ---- sockets ---- */

int uct_socket_create(void)
{
    return ucs_sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int uct_socket_is_ours(int fd)
{
    struct ucred cred;
    socklen_t length = sizeof(cred);

    return (ucs_sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0) &&
           (cred.uid == ucs_sys_geteuid());
}

socklen_t uct_socket_address(const char *dir, uint16_t place, uint64_t name,
                             struct sockaddr_un *address)
{
    const int is_dir   = uct_socket_place_is_dir(place);
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

ucs_status_t uct_socket_send(int fd, const void *data, size_t length, const int *fds,
                             unsigned count)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(UCT_SOCKET_FDS_MAX * sizeof(int))];
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
    if (ucs_sys_sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length) {
        return UCS_OK;
    }
    return ((errno == ETOOMANYREFS) || (errno == EAGAIN) || (errno == ENOBUFS) ||
            (errno == ENOMEM) || (errno == EINTR)) ? UCS_ERR_NO_RESOURCE :
           UCS_ERR_CONNECTION_RESET;
}

ssize_t uct_socket_recv(int fd, void *data, size_t max, int fds[UCT_SOCKET_FDS_MAX],
                        unsigned *count_p)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(UCT_SOCKET_FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov     = {.iov_base = data, .iov_len = max};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg;
    ssize_t length;

    if (fds != NULL) {
        header.msg_control    = control.bytes;
        /* without the padding, in which the kernel would put one more */
        header.msg_controllen = CMSG_LEN(UCT_SOCKET_FDS_MAX * sizeof(int));
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

/* ---- the owner ---- */

static void uct_descriptor_lock(void)
{
    pthread_mutex_lock(&uct_descriptor_mutex);
}

static void uct_descriptor_unlock(void)
{
    pthread_mutex_unlock(&uct_descriptor_mutex);
}

static void uct_descriptor_register(void)
{
    int error = pthread_atfork(uct_descriptor_lock, uct_descriptor_unlock, uct_descriptor_unlock);

    if (error != 0) {
        ucs_diag("cannot keep descriptors from forked children: error %d", error);
    }
}

void uct_descriptor_guard_fork(void)
{
    pthread_once(&uct_descriptor_once, uct_descriptor_register);
}

static void uct_descriptor_list_add(ucs_list_link_t *head, ucs_list_link_t *link)
{
    uct_descriptor_lock();
    ucs_list_add_tail(head, link);
    uct_descriptor_unlock();
}

static void uct_descriptor_list_del(ucs_list_link_t *link)
{
    uct_descriptor_lock();
    ucs_list_del(link);
    uct_descriptor_unlock();
}

void uct_descriptor_open_door(uct_descriptor_door_t *door)
{
    uct_descriptor_list_add(&uct_descriptor_doors, &door->list);
}

void uct_descriptor_close_door(uct_descriptor_door_t *door)
{
    uct_descriptor_list_del(&door->list);
}

void uct_descriptor_offer(uct_descriptor_offer_t *offer)
{
    uct_descriptor_list_add(&uct_descriptor_offers, &offer->list);
}

void uct_descriptor_withdraw(uct_descriptor_offer_t *offer)
{
    uct_descriptor_list_del(&offer->list);
}

void uct_descriptor_where(const void *owner, const uint8_t *uid, uint64_t *name_p,
                          uint16_t *place_p)
{
    unsigned best = 0;
    const uct_descriptor_door_t *door;
    unsigned rank;

    *name_p  = 0;
    *place_p = 0;
    uct_descriptor_lock();
    ucs_list_for_each(door, &uct_descriptor_doors, list) {
        rank = ((uid != NULL) && (memcmp(door->uid, uid, UCT_UID_LEN) == 0)) ? 3 :
               (door->owner == owner) ? 2 : 1;
        if (rank > best) {
            best     = rank;
            *name_p  = door->name;
            *place_p = door->place;
        }
    }
    uct_descriptor_unlock();
}

int uct_descriptor_hear(const void *message, size_t length, uct_descriptor_question_t *question_p)
{
    if (length != sizeof(*question_p)) {
        return 0;
    }
    memcpy(question_p, message, sizeof(*question_p));
    return (question_p->head.magic == UCT_SOCKET_MAGIC) &&
           (question_p->head.type == UCT_SOCKET_GET_DESCRIPTOR);
}

ucs_status_t uct_descriptor_answer(int fd, const uct_descriptor_question_t *question)
{
    uct_descriptor_answer_t answer = {
        .head   = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_DESCRIPTOR},
        .status = UCS_ERR_NO_ELEM
    };
    const uct_descriptor_offer_t *offer;
    ucs_status_t status;
    int offered = -1;

    uct_descriptor_lock();
    ucs_list_for_each(offer, &uct_descriptor_offers, list) {
        if ((offer->domain == question->domain) && (offer->id == question->id) &&
            (offer->fd >= 0)) {
            offered       = offer->fd;
            answer.length = offer->length;
            answer.status = UCS_OK;
            break;
        }
    }
    status = uct_socket_send(fd, &answer, sizeof(answer), &offered, offered >= 0);
    uct_descriptor_unlock();
    return status;
}

/* ---- the asker ---- */

/* The directory of a place that this process listens in too; else "". */
static void uct_descriptor_dir(uint16_t place, char *dir, size_t max)
{
    const uct_descriptor_door_t *door;

    *dir = '\0';
    uct_descriptor_lock();
    ucs_list_for_each(door, &uct_descriptor_doors, list) {
        if (uct_socket_place_is_dir(place) && (door->place == place)) {
            snprintf(dir, max, "%s", door->dir);
        }
    }
    uct_descriptor_unlock();
}

int uct_descriptor_ask(uint64_t name, uint16_t place, uint64_t domain, uint64_t id)
{
    uct_descriptor_question_t question = {
        .head   = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_GET_DESCRIPTOR},
        .domain = domain,
        .id     = id
    };
    char dir[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct sockaddr_un address;
    socklen_t length;
    int fd;

    uct_descriptor_dir(place, dir, sizeof(dir));
    length = uct_socket_address(dir, place, name, &address);
    if ((name == 0) || (length == 0)) {
        errno = ENOENT;
        return -1;
    }
    fd = uct_socket_create();
    if (fd < 0) {
        return -1;
    }
    errno = EPERM; /* of a socket that is not ours */
    if ((ucs_sys_connect(fd, (struct sockaddr *)&address, length) == 0) &&
        uct_socket_is_ours(fd) &&
        (uct_socket_send(fd, &question, sizeof(question), NULL, 0) == UCS_OK)) {
        return fd;
    }
    ucs_sys_close(fd);
    return -1;
}

void uct_descriptor_hang_up(int *connection_p)
{
    ucs_sys_shutdown(*connection_p, SHUT_RDWR); /* a child that was forked may hold a copy */
    ucs_sys_close(*connection_p);
    *connection_p = -1;
}

ucs_status_t uct_descriptor_listen(int *connection_p, int *fd_p, uint64_t *length_p)
{
    ucs_status_t status = UCS_ERR_UNREACHABLE;
    uct_descriptor_answer_t answer;
    unsigned count = 0;
    ssize_t length;
    int fds[UCT_SOCKET_FDS_MAX];

    length = uct_socket_recv(*connection_p, &answer, sizeof(answer), fds, &count);
    if ((length < 0) && (errno == EAGAIN)) {
        return UCS_ERR_NO_RESOURCE;
    }
    uct_descriptor_hang_up(connection_p);
    if ((length == sizeof(answer)) && (answer.head.magic == UCT_SOCKET_MAGIC) &&
        (answer.head.type == UCT_SOCKET_DESCRIPTOR) && (answer.status == UCS_OK) && (count > 0)) {
        *fd_p     = fds[--count];
        *length_p = answer.length;
        status    = UCS_OK;
    }
    while (count > 0) {
        ucs_sys_close(fds[--count]);
    }
    return status;
}
