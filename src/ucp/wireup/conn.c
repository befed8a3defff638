/* Halyard: client-server connections by socket addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/flush.h>
#include <ucp/core/provisional.h>
#include <ucp/core/wakeup.h>
#include <ucp/wireup/door.h>
#include <ucp/wireup/lanes.h>
#include <ucp/wireup/net.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCP_HALF_OPEN_MAX 256  /* clients that have not said yet what they want */
#define UCP_SILENCE_NS 2000000000ul /* time for that in any case: theirs to make progress */
#define UCP_ACCEPT_TURN   16   /* clients that one call of progress lets in */
#define UCP_LOST_PATIENCE 1000 /* calls of progress that a lost endpoint waits for silence */
/* Least time that one over a network waits: TCP sends again after 200 ms what got lost last. */
#define UCP_LOST_NET_NS   300000000ul
#define UCP_LOST_NET_TURN 64 /* and calls, since not each of them asks the network */
/* Time for a host to say that it is there: of a door some places may lead nowhere. Then its kernel
 * is asked from time to time while its worker may compute: nothing is said to it that could wait
 * for an acknowledgement. */
#define UCP_SEEK_NS 5000000000ul

/* ---- one connection ---- */

static void ucp_conn_handle(ucp_socket_t *socket);

static ucp_conn_t *ucp_conn_alloc(ucp_conn_state_t state)
{
    ucp_conn_t *conn = ucs_sys_calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return NULL;
    }
    conn->message = ucs_sys_malloc(sizeof(ucp_wire_conn_t) + UCP_ADDRESS_MAX);
    if (conn->message == NULL) {
        ucs_sys_free(conn);
        return NULL;
    }
    conn->state         = state;
    conn->socket.fd     = -1;
    conn->socket.handle = ucp_conn_handle;
    ucs_list_head_init(&conn->waiting);
    return conn;
}

void ucp_conn_free(ucp_conn_t *conn)
{
    ucs_sys_free(conn->message);
    ucs_sys_free(conn);
}

void ucp_conn_start_clock(ucp_conn_t *conn)
{
    ucp_worker_t *worker    = conn->socket.worker;
    ucp_sockets_t *sockets  = worker->sockets;
    ucs_list_link_t *before = sockets->handshakes.prev;

    conn->deadline_ns =
        ucs_sys_clock_ns() + ((conn->sought != NULL) ? UCP_SEEK_NS :
                                                       worker->context->options.connect_timeout_ns);
    while ((before != &sockets->handshakes) &&
           (ucs_container_of(before, ucp_conn_t, waiting)->deadline_ns > conn->deadline_ns)) {
        before = before->prev;
    }
    ucs_list_insert_before(before->next, &conn->waiting);
    sockets->num_half_open += (conn->state == UCP_CONN_HALF_OPEN);
    ucp_sockets_set_timer(sockets);
}

static void ucp_conn_stop_clock(ucp_conn_t *conn)
{
    ucp_sockets_t *sockets = conn->socket.worker->sockets;

    if (!ucs_list_is_empty(&conn->waiting)) {
        ucs_list_del(&conn->waiting);
        sockets->num_half_open -= (conn->state == UCP_CONN_HALF_OPEN);
        if (ucs_list_is_empty(&sockets->handshakes)) {
            ucp_sockets_set_timer(sockets);
        }
    }
}

void ucp_conn_set_state(ucp_conn_t *conn, ucp_conn_state_t state)
{
    ucp_conn_stop_clock(conn);
    conn->state = state;
}

void ucp_conn_fail(ucp_conn_t *conn, ucs_status_t status)
{
    ucp_conn_state_t state = conn->state;

    ucp_conn_set_state(conn, UCP_CONN_CLOSED);
    ucp_socket_close(&conn->socket);
    if (state == UCP_CONN_HALF_OPEN) {
        ucs_debug("a client is given up: %s", ucs_status_string(status));
        ucp_conn_free(conn);
    } else if (conn->sought != NULL) {
        ucp_door_in_vain(conn, status);
    } else {
        ucs_diag("endpoint '%s' cannot connect: %s", conn->ep->name, ucs_status_string(status));
        uct_ep_set_failed(conn->ep->am, status); /* the rest from progress */
    }
}

/* Sends one message. A new connection has room for it: what does not fit is an error. */
static ucs_status_t ucp_conn_send(int fd, const ucp_wire_conn_t *head, const void *address)
{
    struct iovec iov[2] = {
        {(void *)head, sizeof(*head)}, {(void *)address, head->length}
    };
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t sent      = ucs_sys_sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent == (ssize_t)(sizeof(*head) + head->length)) {
        return UCS_OK;
    }
    return (sent < 0) ? ucp_socket_status(errno) : UCS_ERR_IO_ERROR;
}

/* A server's answer without an address. */
static ucs_status_t ucp_conn_say(int fd, uint16_t type, ucs_status_t why)
{
    const ucp_wire_conn_t head = {.magic   = UCP_WIRE_CONN_MAGIC,
                                  .version = UCP_WIRE_VERSION,
                                  .type    = type,
                                  .status  = why};

    return ucp_conn_send(fd, &head, NULL);
}

ucs_status_t ucp_conn_send_address(ucp_worker_t *worker, int fd, int is_far, ucp_wire_conn_t *head)
{
    ucp_address_t *address;
    ucs_status_t status;
    size_t length;

    if (is_far || ucp_net_is_needed(worker)) {
        (void)ucp_net_open(worker);
    }
    status = ucp_worker_pack_address(worker, UCP_ADDRESS_NEAR | UCP_ADDRESS_NET, &address, &length);
    if (status == UCS_OK) {
        head->magic   = UCP_WIRE_CONN_MAGIC;
        head->version = UCP_WIRE_VERSION;
        head->length  = (uint32_t)length;
        status        = ucp_conn_send(fd, head, address);
        ucp_worker_release_address(worker, address);
    }
    return status;
}

/* ---- receiving ---- */

static int ucp_conn_head_ok(const ucp_conn_t *conn, const ucp_wire_conn_t *head)
{
    int is_server = (conn->state == UCP_CONN_HALF_OPEN);

    if ((head->magic != UCP_WIRE_CONN_MAGIC) || (head->version != UCP_WIRE_VERSION)) {
        return 0;
    }
    if ((head->type == UCP_WIRE_CONN_WIDEN) && conn->was_widened) {
        return 0;
    }
    if ((head->type == UCP_WIRE_CONN_REJECT) || (head->type == UCP_WIRE_CONN_WIDEN)) {
        return !is_server && (head->length == 0);
    }
    if (is_server &&
        ((head->ordinal & (UCP_WIRE_APART_ORDINAL | 1)) != UCP_WIRE_CONN_ORDINAL)) {
        return 0;
    }
    return (head->type == (is_server ? UCP_WIRE_CONN_ASK : UCP_WIRE_CONN_ACCEPT)) &&
           (head->length > 0) && (head->length <= UCP_ADDRESS_MAX);
}

/* Takes what has arrived of the message. UCS_OK: it is whole, and its head and address make sense;
 * UCS_INPROGRESS: not whole yet; an error: the connection is to be given up. */
static ucs_status_t ucp_conn_receive(ucp_conn_t *conn, ucp_wire_conn_t *head,
                                     ucp_address_info_t *info)
{
    size_t wanted = sizeof(*head);
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t length;

    for (;;) {
        if (conn->received >= sizeof(*head)) {
            memcpy(head, conn->message, sizeof(*head));
            if (!ucp_conn_head_ok(conn, head)) {
                ucs_warn("what a socket peer sends is no connection message: it is given up");
                return UCS_ERR_INVALID_PARAM;
            }
            wanted = sizeof(*head) + head->length;
        }
        if (conn->received == wanted) {
            break;
        }
        iov.iov_base = conn->message + conn->received;
        iov.iov_len  = wanted - conn->received;
        length       = ucs_sys_recvmsg(conn->socket.fd, &msg, MSG_DONTWAIT);
        if (length < 0) {
            return ((errno == EAGAIN) || (errno == EINTR)) ? UCS_INPROGRESS
                                                           : ucp_socket_status(errno);
        }
        if (length == 0) {
            return UCS_ERR_CONNECTION_RESET;
        }
        conn->received += (size_t)length;
    }

    if ((head->length > 0) &&
        (ucp_address_unpack(conn->message + sizeof(*head), head->length, info) != UCS_OK)) {
        ucs_warn("a socket peer sends bytes that are no worker address: it is given up");
        return UCS_ERR_INVALID_ADDR;
    }
    if ((head->length > 0) && ucp_door_is_in(info)) { /* no stranger chooses whom we dial */
        ucs_warn("a socket peer sends an address that would have to be asked for: it is given up");
        return UCS_ERR_INVALID_ADDR;
    }
    return UCS_OK;
}

/* ---- client ---- */

static ucs_status_t ucp_conn_ask(const ucp_conn_t *conn)
{
    ucp_wire_conn_t head = {.type      = UCP_WIRE_CONN_ASK,
                            .client_id = conn->client_id,
                            .ordinal   = conn->ordinal};

    return ucp_conn_send_address(conn->socket.worker, conn->socket.fd, conn->is_far, &head);
}

static ucs_status_t ucp_conn_widen(ucp_conn_t *conn)
{
    conn->was_widened = 1;
    conn->is_far      = 1;
    conn->received    = 0;
    return ucp_conn_ask(conn);
}

const void *ucp_conn_address(const ucp_conn_t *conn)
{
    return conn->message + sizeof(ucp_wire_conn_t);
}

static void ucp_conn_answered(ucp_conn_t *conn)
{
    ucp_address_info_t info = {.num_entries = 0};
    ucp_wire_conn_t head;
    ucs_status_t status;
    ucp_peer_t *peer;

    status = ucp_conn_receive(conn, &head, &info);
    if ((status == UCS_OK) && (head.type == UCP_WIRE_CONN_WIDEN)) {
        status = ucp_conn_widen(conn);
        if (status == UCS_OK) {
            return;
        }
    }
    if (status == UCS_INPROGRESS) {
        return;
    }
    if ((status == UCS_OK) && (head.type == UCP_WIRE_CONN_REJECT)) {
        status = (head.status == UCS_ERR_UNREACHABLE) ? UCS_ERR_UNREACHABLE : UCS_ERR_REJECTED;
    }
    if (conn->sought != NULL) {
        ucp_door_found(conn, &info, status);
        return;
    }
    if (status == UCS_OK) {
        status = ucp_peer_get_or_await(conn->socket.worker, ucp_conn_address(conn), &peer);
    }
    if (status == UCS_OK) {
        status = peer->status;
    }
    if (status != UCS_OK) {
        ucp_conn_fail(conn, status);
        return;
    }
    ucp_conn_set_state(conn, UCP_CONN_UP);
    ucs_sys_free(conn->message);
    conn->message = NULL;
    ucp_ep_leave_provisional(conn->ep, peer);
}

/* The TCP connection is there, or is not. */
static void ucp_conn_connected(ucp_conn_t *conn)
{
    ucs_status_t status;
    int error        = 0;
    socklen_t size   = sizeof(error);
    int fd           = conn->socket.fd;

    if ((ucs_sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) || (error != 0)) {
        ucp_conn_fail(conn, ucp_socket_status(error));
        return;
    }
    status = (conn->sought == NULL) ? ucp_conn_ask(conn) : UCS_OK; /* a door speaks first */
    if (status == UCS_OK) {
        status = ucp_socket_await(&conn->socket, EPOLLIN);
    }
    if (status != UCS_OK) {
        ucp_conn_fail(conn, status);
        return;
    }
    conn->state = UCP_CONN_ASKING; /* the clock goes on */
    if (conn->sought != NULL) {
        ucp_conn_stop_clock(conn);
        (void)ucp_net_open(conn->socket.worker); /* while the other one does */
    }
}

/* Which addresses are to be used is set on success only. */
static ucs_status_t ucp_conn_check_params(const ucp_ep_params_t *params,
                                          const ucs_sock_addr_t **local_p)
{
    int has_local = (params->field_mask & UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR) != 0;

    if ((params->sockaddr.addr == NULL) || (ucp_sockaddr_length(params->sockaddr.addr) == 0) ||
        (has_local && (params->local_sockaddr.addr != NULL) &&
         (params->local_sockaddr.addr->sa_family != params->sockaddr.addr->sa_family))) {
        ucs_error("ucp_ep_create: the socket address is not of IPv4 or IPv6, or the local one is "
                  "not of its family");
        return UCS_ERR_INVALID_PARAM;
    }
    *local_p = (has_local && (params->local_sockaddr.addr != NULL)) ? &params->local_sockaddr
                                                                    : NULL;
    return UCS_OK;
}

ucs_status_t ucp_conn_dial(ucp_worker_t *worker, const struct sockaddr *remote,
                           const ucs_sock_addr_t *local, ucp_conn_t **conn_p, int *error_p)
{
    ucp_conn_t *conn = ucp_conn_alloc(UCP_CONN_CONNECTING);
    socklen_t length = sizeof(conn->local);
    ucs_status_t status;
    int fd;

    if (conn == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    status = ucp_socket_open(worker, remote->sa_family, local, &fd);
    if (status != UCS_OK) {
        ucp_conn_free(conn);
        return status;
    }
    *error_p = ((ucs_sys_connect(fd, remote, ucp_sockaddr_length(remote)) != 0) &&
                (errno != EINPROGRESS)) ? errno : 0;
    status   = ucp_socket_add(&conn->socket, worker, fd, EPOLLOUT);
    if (status != UCS_OK) {
        ucs_sys_close(fd);
        ucp_conn_free(conn);
        return status;
    }
    (void)ucs_sys_getsockname(fd, (struct sockaddr *)&conn->local, &length);
    memcpy(&conn->remote, remote, ucp_sockaddr_length(remote));
    conn->is_far = !ucp_net_is_local(&conn->local, &conn->remote);
    *conn_p      = conn;
    return UCS_OK;
}

ucs_status_t ucp_conn_connect(ucp_ep_t *ep, const ucp_ep_params_t *params)
{
    const ucs_sock_addr_t *local;
    ucs_status_t status;
    ucp_conn_t *conn;
    int error;

    status = ucp_conn_check_params(params, &local);
    if (status == UCS_OK) {
        status = ucp_conn_dial(ep->worker, params->sockaddr.addr, local, &conn, &error);
    }
    if (status != UCS_OK) {
        return status;
    }
    if ((params->field_mask & UCP_EP_PARAM_FIELD_FLAGS) &&
        (params->flags & UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID)) {
        conn->client_id = ep->worker->client_id;
    }
    conn->ordinal = UCP_WIRE_CONN_ORDINAL | ((uint32_t)ucs_sys_random64() & 0x3ffffffeu);
    conn->ep      = ep;
    ep->conn      = conn;
    ucp_conn_start_clock(conn);
    if (error != 0) {
        ucp_conn_fail(conn, ucp_socket_status(error));
    }
    return UCS_OK;
}

/* ---- server ---- */

/* The client that is given up to make room for another: the one that has been silent for longest.
 * NULL: not even that has been for long, or it has only not been heard yet; the kernel keeps those
 * that come meanwhile. */
static ucp_conn_t *ucp_conn_silent(ucp_sockets_t *sockets)
{
    const uint64_t timeout_ns = sockets->worker->context->options.connect_timeout_ns;
    const uint64_t now_ns     = ucs_sys_clock_ns();
    struct pollfd word        = {.events = POLLIN};
    ucp_conn_t *conn;

    ucs_list_for_each(conn, &sockets->handshakes, waiting) {
        if (conn->state == UCP_CONN_HALF_OPEN) {
            word.fd = conn->socket.fd;
            return (((now_ns + timeout_ns - conn->deadline_ns) < UCP_SILENCE_NS) ||
                    (ucs_sys_poll(&word, 1, 0) > 0)) ? NULL : conn;
        }
    }
    return NULL;
}

static void ucp_conn_evict(ucp_conn_t *conn)
{
    ucs_warn("more than %d clients are connected that ask for nothing: the oldest of them is given "
             "up",
             UCP_HALF_OPEN_MAX);
    ucp_conn_fail(conn, UCS_ERR_EXCEEDS_LIMIT);
}

static void ucp_conn_begin(ucp_listener_h listener, int fd, const struct sockaddr_storage *remote)
{
    ucp_worker_t *worker = listener->socket.worker;
    ucp_conn_t *conn     = ucp_conn_alloc(UCP_CONN_HALF_OPEN);
    socklen_t length     = sizeof(conn->local);

    if ((conn == NULL) ||
        (ucp_socket_add(&conn->socket, worker, fd, EPOLLIN) != UCS_OK)) {
        ucs_error("no memory for a client: it is turned away");
        ucs_sys_close(fd);
        if (conn != NULL) {
            ucp_conn_free(conn);
        }
        return;
    }
    conn->listener = listener;
    conn->remote   = *remote;
    (void)ucs_sys_getsockname(fd, (struct sockaddr *)&conn->local, &length);
    ucp_conn_start_clock(conn);
}

/* No descriptor is left for a client: gives up the spare one to turn it away, since the kernel
 * would go on reporting it for ever. */
static int ucp_conn_turn_away(ucp_sockets_t *sockets, int listen_fd)
{
    int fd;

    ucs_warn_once("no descriptor is left for clients: they are turned away (%m; ulimit -n)");
    if (sockets->spare_fd < 0) {
        return 0;
    }
    ucs_sys_close(sockets->spare_fd);
    sockets->spare_fd = -1;
    fd                = ucs_sys_accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        (void)ucp_conn_say(fd, UCP_WIRE_CONN_REJECT, UCS_ERR_EXCEEDS_LIMIT);
        ucs_sys_shutdown(fd, SHUT_WR);
        ucs_sys_close(fd);
    }
    ucp_sockets_keep_spare(sockets);
    return fd >= 0;
}

void ucp_conn_accept_clients(ucp_socket_t *socket)
{
    ucp_listener_h listener = ucs_container_of(socket, struct ucp_listener, socket);
    ucp_sockets_t *sockets  = socket->worker->sockets;
    struct sockaddr_storage remote;
    ucp_conn_t *silent;
    socklen_t length;
    unsigned i;
    int fd;

    ucp_sockets_keep_spare(sockets);
    for (i = 0; i < UCP_ACCEPT_TURN; ++i) {
        silent = NULL;
        if ((sockets->num_half_open == UCP_HALF_OPEN_MAX) && (listener->num_places == 0)) {
            silent = ucp_conn_silent(sockets);
            if (silent == NULL) {
                return;
            }
        }
        length = sizeof(remote);
        memset(&remote, 0, sizeof(remote));
        fd = ucs_sys_accept4(socket->fd, (struct sockaddr *)&remote, &length,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) ||
                 (errno == ENOBUFS)) &&
                ucp_conn_turn_away(sockets, socket->fd)) {
                continue;
            }
            return;
        }
        if (listener->num_places > 0) {
            ucp_door_tell(socket->worker, fd);
            continue;
        }
        if (silent != NULL) {
            ucp_conn_evict(silent);
        }
        ucp_conn_begin(listener, fd, &remote);
    }
}

void ucp_conn_forget_listener(ucp_listener_h listener)
{
    ucp_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &listener->socket.worker->sockets->handshakes, waiting) {
        if ((conn->state == UCP_CONN_HALF_OPEN) && (conn->listener == listener)) {
            ucp_conn_fail(conn, UCS_ERR_CANCELED);
        }
    }
}

/* The older form: an endpoint at once. */
static void ucp_conn_accept_itself(ucp_listener_h listener, ucp_conn_t *conn)
{
    ucp_listener_accept_handler_t handler = listener->accept_handler;
    ucp_ep_params_t params                = {.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                             .conn_request = conn};
    ucp_ep_h ep;

    if (ucp_ep_create(listener->socket.worker, &params, &ep) == UCS_OK) {
        handler.cb(ep, handler.arg);
    }
}

/* A request is on a list, so that it is not forgotten, until somebody decides, in any thread. */
static void ucp_conn_take_request(ucp_conn_t *conn)
{
    ucp_sockets_t *sockets = conn->socket.worker->sockets;

    pthread_mutex_lock(&sockets->request_lock);
    ucs_list_del(&conn->waiting);
    pthread_mutex_unlock(&sockets->request_lock);
}

static void ucp_conn_asked(ucp_conn_t *conn)
{
    ucp_sockets_t *sockets  = conn->socket.worker->sockets;
    ucp_listener_h listener = conn->listener;
    ucp_address_info_t info;
    ucp_wire_conn_t head;
    ucs_status_t status;

    status = ucp_conn_receive(conn, &head, &info);
    if (status == UCS_INPROGRESS) {
        return;
    }
    if ((status == UCS_OK) && !ucp_lanes_are_near(conn->socket.worker, &info)) {
        conn->is_far = 1;
        if (!conn->was_widened && ucp_lanes_lack_net(conn->socket.worker, &info)) {
            conn->was_widened = 1;
            conn->received    = 0;
            status            = ucp_conn_say(conn->socket.fd, UCP_WIRE_CONN_WIDEN, UCS_OK);
            if (status == UCS_OK) {
                return;
            }
        }
    }
    if (status != UCS_OK) {
        ucp_conn_fail(conn, status);
        return;
    }
    /* From here on no worker listens to it, until it is accepted on one. */
    ucp_conn_set_state(conn, UCP_CONN_REQUEST);
    conn->socket.fd = ucp_socket_remove(&conn->socket);
    conn->client_id = head.client_id;
    conn->ordinal   = head.ordinal | 1;
    pthread_mutex_lock(&sockets->request_lock);
    ucs_list_add_tail(&sockets->requests, &conn->waiting);
    pthread_mutex_unlock(&sockets->request_lock);
    if (listener->conn_handler.cb != NULL) {
        listener->conn_handler.cb(conn, listener->conn_handler.arg);
    } else {
        ucp_conn_accept_itself(listener, conn);
    }
}

ucs_status_t ucp_conn_accept(ucp_conn_t *conn, ucp_ep_t *ep)
{
    ucp_wire_conn_t head = {.type = UCP_WIRE_CONN_ACCEPT};
    int fd               = conn->socket.fd;
    ucs_status_t status;

    ucp_conn_take_request(conn);
    conn->socket.fd = -1;
    status          = ucp_socket_add(&conn->socket, ep->worker, fd, EPOLLIN);
    if ((status == UCS_OK) &&
        (ucp_conn_send_address(ep->worker, fd, conn->is_far, &head) == UCS_ERR_NO_MEMORY)) {
        status = UCS_ERR_NO_MEMORY; /* a client that has gone is noticed by the end of file */
        (void)ucp_socket_remove(&conn->socket);
    }
    if (status != UCS_OK) {
        conn->socket.fd = fd;
        return status;
    }
    conn->state = UCP_CONN_UP;
    conn->ep    = ep;
    ucs_sys_free(conn->message);
    conn->message = NULL;
    return UCS_OK;
}

int ucp_conn_is_awaited(const ucp_worker_t *worker, uint32_t ordinal)
{
    const ucp_conn_t *conn;

    if (worker->sockets != NULL) {
        ucs_list_for_each(conn, &worker->sockets->handshakes, waiting) {
            if ((conn->ep != NULL) && (conn->ordinal == ordinal)) {
                return 1;
            }
        }
    }
    return 0;
}

void ucp_conn_reject(ucp_conn_t *conn, ucs_status_t status)
{
    ucp_conn_take_request(conn);
    (void)ucp_conn_say(conn->socket.fd, UCP_WIRE_CONN_REJECT, status);
    ucs_sys_shutdown(conn->socket.fd, SHUT_WR);
    ucs_sys_close(conn->socket.fd);
    ucp_conn_free(conn);
}

/* ---- up, and the end ---- */

static int ucp_conn_is_net(const ucp_conn_t *conn)
{
    const ucp_context_t *context = conn->socket.worker->context;
    unsigned tl                  = conn->ep->peer->lane_tl[UCP_LANE_AM];

    return (tl < context->num_tls) && (context->tls[tl].tl->kind == UCT_TL_KIND_NET);
}

/* The endpoint fails by the progress that finds silence. */
static void ucp_conn_lose(ucp_conn_t *conn)
{
    ucs_list_add_tail(&conn->socket.worker->sockets->lost, &conn->waiting);
    conn->socket.worker->deferred |= UCP_DEFERRED_SOME;
}

void ucp_conn_peer_gone(ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if (ep->conn == NULL) {
            continue;
        }
        ep->conn->is_gone = 1;
        if (ep->conn->state == UCP_CONN_LOST) {
            ucs_list_del(&ep->conn->waiting);
            ucp_conn_lose(ep->conn);
        }
    }
}

/* Nothing more is said on a connection that is up: whatever is there to be read is its end. Where
 * its peer has left, but has come back since, there may be more. */
static void ucp_conn_ended(ucp_conn_t *conn)
{
    ucp_sockets_t *sockets = conn->socket.worker->sockets;

    ucp_socket_close(&conn->socket);
    conn->state       = UCP_CONN_LOST;
    conn->patience    = UCP_LOST_PATIENCE;
    conn->deadline_ns = ucs_sys_clock_ns() + UCP_LOST_NET_NS;
    if (ucp_conn_is_net(conn) && !(conn->is_gone && conn->ep->peer->is_gone)) {
        ucs_list_add_tail(&sockets->late, &conn->waiting); /* the timer goes on with it */
        ucp_sockets_set_timer(sockets);
    } else {
        ucp_conn_lose(conn);
    }
}

static void ucp_conn_handle(ucp_socket_t *socket)
{
    ucp_conn_t *conn = ucs_container_of(socket, ucp_conn_t, socket);

    switch (conn->state) {
    case UCP_CONN_HALF_OPEN:
        ucp_conn_asked(conn);
        break;
    case UCP_CONN_CONNECTING:
        ucp_conn_connected(conn);
        break;
    case UCP_CONN_ASKING:
        ucp_conn_answered(conn);
        break;
    default:
        ucp_conn_ended(conn);
        break;
    }
}

/* The real peer may live on and serve others: only this endpoint fails, by moving to a peer that
 * does; without a word where it is being closed, which waits for its sends. 0: there is no memory
 * for that now. */
static int ucp_conn_fail_ep(ucp_ep_t *ep)
{
    ucp_peer_t *former = ep->peer;
    ucp_peer_t *peer;

    if (former->status != UCS_OK) {
        return 1; /* known */
    }
    if (ucp_peer_create_provisional(ep->worker, &peer) != UCS_OK) {
        ucs_diag_once("endpoint '%s' is lost, and there is no memory to say so: it is tried again",
                      ep->name);
        return 0;
    }
    ucp_flush_ep_lost(ep, UCS_ERR_CONNECTION_RESET);
    ucp_ep_unqueue(ep);
    ucp_ep_set_peer(ep, peer);
    ucp_peer_leave_unused(former);
    uct_ep_set_failed(ep->am, UCS_ERR_CONNECTION_RESET);
    return 1;
}

/* May something that was sent before the end still come? Over a network the end overtakes messages,
 * and silence tells nothing of what is under way: its time has been waited for before. */
static int ucp_conn_awaits_more(ucp_conn_t *conn, int idle)
{
    conn->patience -= (conn->patience > 0);
    return ucp_conn_is_net(conn) ? conn->patience > (UCP_LOST_PATIENCE - UCP_LOST_NET_TURN) :
                                   !idle && (conn->patience > 0);
}

unsigned ucp_conn_fail_lost(ucp_worker_t *worker, int idle)
{
    unsigned count = 0;
    ucp_conn_t *conn, *next;

    if ((worker->sockets == NULL) || ucs_list_is_empty(&worker->sockets->lost)) {
        return 0;
    }
    idle = idle && !ucp_wakeup_has_come(worker); /* not each call looks at all senders */
    ucs_list_for_each_safe(conn, next, &worker->sockets->lost, waiting) {
        if (ucp_conn_awaits_more(conn, idle) || !ucp_conn_fail_ep(conn->ep)) {
            /* more may lie in our queues, or there was no memory */
            worker->deferred |= UCP_DEFERRED_SOME;
            continue;
        }
        ucs_list_del(&conn->waiting);
        conn->state = UCP_CONN_CLOSED;
        ++count;
    }
    return count;
}

void ucp_conn_close(ucp_conn_t *conn)
{
    ucp_ep_t *ep = conn->ep;

    if (conn->socket.worker->sockets != NULL) {
        ucp_conn_set_state(conn, UCP_CONN_CLOSED);
        ucp_socket_close(&conn->socket);
    }
    ep->conn = NULL;
    ucp_conn_free(conn);
}
