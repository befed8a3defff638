/* Halyard: the sockets of a worker.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/wakeup.h>
#include <ucp/wireup/door.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <fcntl.h>
#include <sys/timerfd.h>

/* Calls of progress from one look at the sockets to the next, which is a system call, or where no
 * hand-shake is under way to a look at the clock; and the time from one look to the next then. */
#define UCP_LOOK_HANDSHAKE 4
#define UCP_LOOK_QUIET     128
#define UCP_LOOK_QUIET_NS  50000ul

/* ---- the set ---- */

/* Looks what has happened, without waiting, and has it handled. */
static unsigned ucp_sockets_look(ucp_sockets_t *sockets)
{
    unsigned count = 0;
    ucp_socket_t *socket;
    int i;

    sockets->num_events = ucs_sys_epoll_wait(sockets->epoll_fd, sockets->events,
                                             UCP_SOCKETS_BATCH, 0);
    if ((sockets->num_events < 0) && (errno != EINTR)) {
        ucs_error("epoll_wait() failed: %m");
    }
    for (i = 0; i < sockets->num_events; ++i) {
        socket = sockets->events[i].data.ptr;
        if (socket != NULL) { /* else it was removed since */
            socket->handle(socket);
            ++count;
        }
    }
    sockets->num_events = 0;
    return count;
}

static ucs_status_t ucp_sockets_ctl(const ucp_sockets_t *sockets, int op, int fd, uint32_t events,
                                    const ucp_socket_t *socket)
{
    struct epoll_event event = {.events = events, .data.ptr = (void *)(uintptr_t)socket};

    if (ucs_sys_epoll_ctl(sockets->epoll_fd, op, fd, &event) == 0) {
        return UCS_OK;
    }
    ucs_error("epoll_ctl(fd %d) failed: %m", fd);
    return UCS_ERR_IO_ERROR;
}

/* Each is told that something has happened: that it is closed is what it finds. */
static unsigned ucp_sockets_end_inherited(ucp_sockets_t *sockets)
{
    ucp_socket_t *socket, *next;
    unsigned count = 0;

    ucs_list_for_each_safe(socket, next, &sockets->all, list) {
        if ((socket->handle != ucp_conn_accept_clients) && (socket != &sockets->timer)) {
            socket->handle(socket);
            ++count;
        }
    }
    return count;
}

/* Stands among the worker's interfaces: what it is given is not one. */
static unsigned ucp_sockets_progress(uct_iface_t *self)
{
    ucp_sockets_t *sockets = (void *)self;
    uint64_t now_ns;

    if (ucs_likely(sockets->countdown-- > 0)) {
        return 0;
    }
    sockets->countdown = UCP_LOOK_HANDSHAKE;
    if (ucs_unlikely(sockets->is_inherited)) {
        return ucp_sockets_end_inherited(sockets);
    }
    if (ucs_list_is_empty(&sockets->handshakes)) {
        now_ns = ucs_sys_clock_ns();
        if (now_ns - sockets->looked_ns < UCP_LOOK_QUIET_NS) {
            sockets->countdown = UCP_LOOK_QUIET;
            return 0;
        }
        /* few calls are made in that time: the next is not to be far */
        if (now_ns - sockets->looked_ns < 4 * UCP_LOOK_QUIET_NS) {
            sockets->countdown = UCP_LOOK_QUIET;
        }
        sockets->looked_ns = now_ns;
    }
    return ucp_sockets_look(sockets);
}

void ucp_sockets_set_timer(ucp_sockets_t *sockets)
{
    struct itimerspec time = {{0, 0}, {0, 0}};
    uint64_t deadline_ns   = UINT64_MAX;

    if (!ucs_list_is_empty(&sockets->handshakes)) {
        deadline_ns = ucs_list_head(&sockets->handshakes, ucp_conn_t, waiting)->deadline_ns;
    }
    if (!ucs_list_is_empty(&sockets->late)) {
        deadline_ns = ucs_min(deadline_ns,
                              ucs_list_head(&sockets->late, ucp_conn_t, waiting)->deadline_ns);
    }
    if (deadline_ns != UINT64_MAX) {
        time.it_value.tv_sec  = (time_t)(deadline_ns / 1000000000ul);
        time.it_value.tv_nsec = (long)(deadline_ns % 1000000000ul);
    }
    (void)ucs_sys_timerfd_settime(sockets->timer.fd, TFD_TIMER_ABSTIME, &time, NULL);
}

static void ucp_sockets_timer(ucp_socket_t *timer)
{
    ucp_sockets_t *sockets = timer->worker->sockets;
    uint64_t now_ns        = ucs_sys_clock_ns();
    uint64_t times;
    ucp_conn_t *conn;

    (void)ucs_sys_read(timer->fd, &times, sizeof(times));
    while (!ucs_list_is_empty(&sockets->handshakes)) {
        conn = ucs_list_head(&sockets->handshakes, ucp_conn_t, waiting);
        if (conn->deadline_ns > now_ns) {
            break;
        }
        ucp_conn_fail(conn, UCS_ERR_ENDPOINT_TIMEOUT);
    }
    while (!ucs_list_is_empty(&sockets->late)) {
        conn = ucs_list_head(&sockets->late, ucp_conn_t, waiting);
        if (conn->deadline_ns > now_ns) {
            break;
        }
        ucs_list_del(&conn->waiting);
        ucs_list_add_tail(&sockets->lost, &conn->waiting);
        sockets->worker->deferred |= UCP_DEFERRED_SOME;
    }
    ucp_sockets_set_timer(sockets);
}

static ucs_status_t ucp_sockets_add_timer(ucp_sockets_t *sockets)
{
    ucs_status_t status;
    int fd;

    sockets->timer.handle = ucp_sockets_timer;
    fd                    = ucs_sys_timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) {
        status = ucp_socket_status(errno);
        ucs_error("cannot open a timer for connections: %m");
        return status;
    }
    status = ucp_socket_add(&sockets->timer, sockets->worker, fd, EPOLLIN);
    if (status != UCS_OK) {
        ucs_sys_close(fd);
    }
    return status;
}

static ucs_status_t ucp_sockets_open(ucp_worker_t *worker)
{
    ucp_sockets_t *sockets;
    ucs_status_t status;

    if (worker->sockets != NULL) {
        return UCS_OK;
    }
    sockets = ucs_sys_calloc(1, sizeof(*sockets));
    if (sockets == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    sockets->worker   = worker;
    sockets->timer.fd = -1;
    sockets->spare_fd = -1;
    ucs_list_head_init(&sockets->all);
    ucs_list_head_init(&sockets->handshakes);
    ucs_list_head_init(&sockets->late);
    ucs_list_head_init(&sockets->lost);
    ucs_list_head_init(&sockets->requests);
    ucs_list_head_init(&sockets->seekers);
    pthread_mutex_init(&sockets->request_lock, NULL);
    worker->sockets   = sockets;
    sockets->epoll_fd = ucs_sys_epoll_create1(EPOLL_CLOEXEC);
    if (sockets->epoll_fd < 0) {
        status = ucp_socket_status(errno);
        ucs_error("epoll_create1() failed: %m");
    } else {
        status = ucp_sockets_add_timer(sockets);
    }
    if (status == UCS_OK) {
        status = ucp_wakeup_add(worker, sockets->epoll_fd);
    }
    if (status != UCS_OK) {
        ucp_sockets_cleanup(worker);
        return status;
    }
    ucp_worker_add_active(worker, ucp_sockets_progress, (uct_iface_t *)(void *)sockets);
    return UCS_OK;
}

void ucp_sockets_keep_spare(ucp_sockets_t *sockets)
{
    if (sockets->spare_fd < 0) {
        sockets->spare_fd = ucs_sys_fcntl(sockets->epoll_fd, F_DUPFD_CLOEXEC, 0);
    }
}

int ucp_sockets_have_work(ucp_worker_t *worker)
{
    struct pollfd pfd = {.events = POLLIN};

    if (worker->sockets == NULL) {
        return 0;
    }
    pfd.fd = worker->sockets->epoll_fd;
    if ((pfd.fd < 0) || ((ucs_sys_poll(&pfd, 1, 0) <= 0) &&
                         ucs_list_is_empty(&worker->sockets->lost))) {
        return 0;
    }
    worker->sockets->countdown = 0;
    worker->sockets->looked_ns = 0;
    return 1;
}

/* ---- one socket ---- */

socklen_t ucp_sockaddr_length(const struct sockaddr *addr)
{
    return (addr->sa_family == AF_INET)    ? sizeof(struct sockaddr_in)
           : (addr->sa_family == AF_INET6) ? sizeof(struct sockaddr_in6)
                                           : 0;
}

ucs_status_t ucp_socket_status(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return UCS_ERR_NOT_CONNECTED;
    case ECONNRESET:
    case EPIPE:
        return UCS_ERR_CONNECTION_RESET;
    case ETIMEDOUT:
        return UCS_ERR_ENDPOINT_TIMEOUT;
    case EADDRINUSE:
        return UCS_ERR_BUSY;
    case EMFILE:
    case ENFILE:
        return UCS_ERR_EXCEEDS_LIMIT;
    case ENOMEM:
    case ENOBUFS:
        return UCS_ERR_NO_MEMORY;
    case EACCES:
    case EPERM:
        return UCS_ERR_IO_ERROR;
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

ucs_status_t ucp_socket_open(ucp_worker_t *worker, int family, const ucs_sock_addr_t *addr,
                             int *fd_p)
{
    ucs_status_t status;
    int one = 1;
    int fd;

    fd = ucs_sys_socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        status = ucp_socket_status(errno);
        ucs_log((errno == EAFNOSUPPORT) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                "cannot open a socket: %m");
        return status;
    }
    if (addr != NULL) {
        /* A server that is started again need not wait for its old connections to time out. */
        (void)ucs_sys_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (worker->context->options.reuse_addr) {
            (void)ucs_sys_setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
        }
        if (ucs_sys_bind(fd, addr->addr, ucp_sockaddr_length(addr->addr)) != 0) {
            status = ucp_socket_status(errno);
            ucs_diag("cannot use a socket address: %m");
            ucs_sys_close(fd);
            return status;
        }
    }
    *fd_p = fd;
    return UCS_OK;
}

ucs_status_t ucp_socket_add(ucp_socket_t *socket, ucp_worker_t *worker, int fd, uint32_t events)
{
    /* What a forked child inherits leads nowhere, and its sets are its parent's. */
    ucs_status_t status = worker->is_inherited ? UCS_ERR_CONNECTION_RESET :
                                                 ucp_sockets_open(worker);

    if (status == UCS_OK) {
        status = ucp_sockets_ctl(worker->sockets, EPOLL_CTL_ADD, fd, events, socket);
    }
    if (status != UCS_OK) {
        return status;
    }
    socket->fd     = fd;
    socket->worker = worker;
    ucs_list_add_tail(&worker->sockets->all, &socket->list);
    worker->sockets->countdown = 0;
    return UCS_OK;
}

ucs_status_t ucp_socket_await(const ucp_socket_t *socket, uint32_t events)
{
    return ucp_sockets_ctl(socket->worker->sockets, EPOLL_CTL_MOD, socket->fd, events, socket);
}

int ucp_socket_remove(ucp_socket_t *socket)
{
    struct epoll_event unused = {.events = 0};
    int fd                    = socket->fd;
    ucp_sockets_t *sockets;
    int i;

    if (fd >= 0) {
        sockets = socket->worker->sockets;
        for (i = 0; i < sockets->num_events; ++i) {
            if (sockets->events[i].data.ptr == socket) {
                sockets->events[i].data.ptr = NULL;
            }
        }
        /* no fault point, since what is removed must stay removed */
        (void)ucs_sys->epoll_ctl(sockets->epoll_fd, EPOLL_CTL_DEL, fd, &unused);
        socket->fd = -1;
    }
    if (socket->worker != NULL) { /* inherited ones have no descriptor any more */
        ucs_list_del(&socket->list);
    }
    return fd;
}

void ucp_socket_close(ucp_socket_t *socket)
{
    int fd = ucp_socket_remove(socket);

    if (fd >= 0) {
        ucs_sys_shutdown(fd, SHUT_RDWR); /* a child that was forked may hold a copy */
        ucs_sys_close(fd);
    }
}

static void ucp_socket_disown(ucp_socket_t *socket)
{
    if (socket->fd >= 0) {
        ucs_sys_close(socket->fd);
        socket->fd = -1;
    }
}

void ucp_sockets_disown(ucp_sockets_t *sockets)
{
    ucp_socket_t *socket;
    ucp_conn_t *conn;

    pthread_mutex_init(&sockets->request_lock, NULL); /* another thread may have held it */
    sockets->num_events = 0; /* the fork may be in the handler of one */
    ucs_list_for_each(socket, &sockets->all, list) {
        ucp_socket_disown(socket);
    }
    ucs_list_for_each(conn, &sockets->requests, waiting) {
        ucp_socket_disown(&conn->socket);
    }
    if (sockets->spare_fd >= 0) {
        ucs_sys_close(sockets->spare_fd);
        sockets->spare_fd = -1;
    }
    if (sockets->epoll_fd >= 0) {
        ucs_sys_close(sockets->epoll_fd);
        sockets->epoll_fd = -1;
    }
    sockets->is_inherited = 1;
    sockets->countdown    = 0;
}

void ucp_sockets_cleanup(ucp_worker_t *worker)
{
    ucp_sockets_t *sockets = worker->sockets;
    ucp_socket_t *socket;
    ucp_conn_t *conn;

    if (sockets == NULL) {
        return;
    }
    ucp_socket_close(&sockets->timer);
    while (!ucs_list_is_empty(&sockets->all)) {
        socket = ucs_list_head(&sockets->all, ucp_socket_t, list);
        if (socket->handle == ucp_conn_accept_clients) {
            ucp_listener_destroy(ucs_container_of(socket, struct ucp_listener, socket));
            continue;
        }
        conn = ucs_container_of(socket, ucp_conn_t, socket);
        if (conn->ep != NULL) {
            ucp_conn_close(conn);
        } else if (conn->sought != NULL) {
            ucp_door_leave(conn->sought);
        } else {
            ucp_conn_fail(conn, UCS_ERR_CANCELED);
        }
    }
    ucs_list_splice_tail(&sockets->lost, &sockets->late);
    while (!ucs_list_is_empty(&sockets->lost)) {
        ucp_conn_close(ucs_list_head(&sockets->lost, ucp_conn_t, waiting));
    }
    while (!ucs_list_is_empty(&sockets->requests)) {
        ucp_conn_reject(ucs_list_head(&sockets->requests, ucp_conn_t, waiting), UCS_ERR_REJECTED);
    }
    pthread_mutex_destroy(&sockets->request_lock);
    if (sockets->spare_fd >= 0) {
        ucs_sys_close(sockets->spare_fd);
    }
    ucp_worker_del_active(worker, (uct_iface_t *)(void *)sockets);
    if (sockets->epoll_fd >= 0) {
        ucp_wakeup_del(worker, sockets->epoll_fd);
        ucs_sys_close(sockets->epoll_fd);
    }
    ucs_sys_free(sockets);
    worker->sockets = NULL;
    worker->door    = NULL;
}
