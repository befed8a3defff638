/* Halyard: fuzzing: what clients and servers of socket addresses say to each other over TCP, while
 * the user accepts, rejects, forgets, closes and destroys.
 *
 * The input is a list of steps. The sockets are pairs of this process: one end is the library's, as
 * if TCP had made it, the other end ours to speak through.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "fuzz.h"

#include <ucp/wireup/sockaddr.h>
#include <ucs/sys/sys.h>

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FUZZ_SOCKETS  8
#define FUZZ_EPS      16
#define FUZZ_REQUESTS 8
#define FUZZ_STEPS    100

typedef struct {
    ucp_ep_h ep; /* NULL: closed */
    unsigned num_failures;
} fuzz_ep_t;

typedef struct {
    fuzz_pair_t        pair;
    fuzz_input_t       in;
    ucp_listener_h     listener;
    int                ours[FUZZ_SOCKETS]; /* our ends; -1: none */
    int                accepted;           /* the end that accept4 returns next; -1: none */
    ucp_conn_request_h requests[FUZZ_REQUESTS];
    unsigned           num_requests;
    fuzz_ep_t          eps[FUZZ_EPS];
    unsigned           num_eps;
} fuzz_conn_t;

static fuzz_conn_t *fuzz_state;

/* ---- sockets ---- */

/* Makes a pair, keeps one end in a place that is chosen; returns the library's. */
static int fuzz_socket_pair(fuzz_conn_t *state)
{
    int *place = &state->ours[fuzz_byte(&state->in) % FUZZ_SOCKETS];
    int fds[2];

    fuzz_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
                "no sockets");
    if (*place >= 0) {
        close(*place);
    }
    *place = fds[1];
    return fds[0];
}

static int fuzz_connect4(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
    int end;

    if (addr->sa_family != AF_INET) {
        return ucs_sys_real.connect(fd, addr, addrlen);
    }
    end = fuzz_socket_pair(fuzz_state);
    fuzz_expect(dup2(end, fd) == fd, "no descriptor");
    close(end);
    return 0;
}

static int fuzz_accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
    int end = fuzz_state->accepted;

    if ((fuzz_state->listener == NULL) || (fd != fuzz_state->listener->socket.fd)) {
        return ucs_sys_real.accept4(fd, addr, addrlen, flags);
    }
    fuzz_state->accepted = -1;
    errno                = EAGAIN;
    return end;
}

/* Over those that fuzz_pair_make has set. */
static void fuzz_take_over_sockets(void)
{
    static ucs_sys_ops_t ops;

    ops         = *ucs_sys;
    ops.connect = fuzz_connect4;
    ops.accept4 = fuzz_accept4;
    ucs_sys_set(&ops);
}

static void fuzz_say(fuzz_conn_t *state, const void *data, size_t length)
{
    int fd = state->ours[fuzz_byte(&state->in) % FUZZ_SOCKETS];

    if (fd >= 0) {
        (void)!send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* What the library has said at one of our ends is said at another: a client and a listener meet. */
static void fuzz_relay(fuzz_conn_t *state, unsigned from)
{
    int fd = state->ours[from % FUZZ_SOCKETS];
    char bytes[512];
    ssize_t length;

    length = (fd >= 0) ? recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) : 0;
    if (length > 0) {
        fuzz_say(state, bytes, (size_t)length);
    }
}

/* A right message, but for what the input changes of it. */
static void fuzz_say_message(fuzz_conn_t *state)
{
    uint8_t which        = fuzz_byte(&state->in);
    uint8_t patches      = fuzz_byte(&state->in) % 4;
    ucp_wire_conn_t head = {.magic   = UCP_WIRE_CONN_MAGIC,
                            .version = UCP_WIRE_VERSION,
                            .type    = (uint16_t)((which & 8) ? UCP_WIRE_CONN_WIDEN :
                                                                1 + (which % 3)),
                            .ordinal = UCP_WIRE_CONN_ORDINAL | (which & 0x70u)};
    uint8_t message[sizeof(head) + UCP_ADDRESS_MAX];
    ucp_address_t *address;
    size_t length;

    fuzz_expect(ucp_worker_get_address(state->pair.workers[which >> 7], &address, &length) ==
                    UCS_OK, "no address");
    head.length = (head.type >= UCP_WIRE_CONN_REJECT) ? 0 : (uint32_t)length;
    head.status = (head.type == UCP_WIRE_CONN_REJECT) ? -(int8_t)fuzz_byte(&state->in) : 0;
    memcpy(message, &head, sizeof(head));
    memcpy(message + sizeof(head), address, head.length);
    ucp_worker_release_address(state->pair.workers[which >> 7], address);
    length = sizeof(head) + head.length;
    for (; patches > 0; --patches) {
        which          = fuzz_byte(&state->in);
        message[which % length] = fuzz_byte(&state->in);
    }
    which = fuzz_byte(&state->in);
    fuzz_say(state, message, ((which & 3) == 0) ? which % length : length);
}

/* ---- what the user does ---- */

static void fuzz_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    fuzz_ep_t *entry = arg;

    fuzz_expect((entry->ep == ep) && (++entry->num_failures == 1) && (status != UCS_OK),
                "an error handler is called for nothing");
}

static void fuzz_request(ucp_conn_request_h request, void *arg)
{
    fuzz_conn_t *state = arg;

    if (state->num_requests == FUZZ_REQUESTS) {
        ucp_listener_reject(state->listener, request);
        return;
    }
    state->requests[state->num_requests++] = request;
}

static void fuzz_make_ep(fuzz_conn_t *state, ucp_worker_h worker, ucp_ep_params_t *params)
{
    fuzz_ep_t *entry = &state->eps[state->num_eps];

    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params->err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb  = fuzz_failed;
    params->err_handler.arg = entry;
    if (ucp_ep_create(worker, params, &entry->ep) == UCS_OK) {
        ++state->num_eps;
    } else {
        entry->ep = NULL;
    }
}

static void fuzz_client(fuzz_conn_t *state)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(1)};
    ucp_ep_params_t params   = {.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                              UCP_EP_PARAM_FIELD_FLAGS,
                                .flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                                .sockaddr   = {(struct sockaddr *)&where, sizeof(where)}};

    if (state->num_eps < FUZZ_EPS) {
        fuzz_make_ep(state, state->pair.workers[0], &params);
    }
}

static void fuzz_decide(fuzz_conn_t *state, unsigned how)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST};
    ucp_conn_request_attr_t attr;

    if (state->num_requests == 0) {
        return;
    }
    params.conn_request = state->requests[--state->num_requests];
    attr.field_mask     = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
    (void)ucp_conn_request_query(params.conn_request, &attr);
    if ((how == 0) || (state->num_eps == FUZZ_EPS)) {
        ucp_listener_reject(state->listener, params.conn_request);
    } else if (how < 3) {
        fuzz_make_ep(state, state->pair.workers[how - 1], &params);
    } /* else: forgotten */
}

static void fuzz_use_ep(fuzz_conn_t *state, unsigned how)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t ptr      = NULL;
    fuzz_ep_t *entry;

    if (state->num_eps == 0) {
        return;
    }
    entry = &state->eps[fuzz_byte(&state->in) % state->num_eps];
    if (entry->ep == NULL) {
        return;
    }
    switch (how) {
    case 0:
        ptr = ucp_tag_send_nbx(entry->ep, "hello", 5, 1, &param);
        break;
    case 1:
        ptr = ucp_tag_send_sync_nbx(entry->ep, "hello", 5, 1, &param);
        break;
    case 2:
        ptr = ucp_ep_flush_nbx(entry->ep, &param);
        break;
    case 3:
        ptr = ucp_stream_send_nbx(entry->ep, "hello", 5, &param);
        break;
    default:
        ptr       = ucp_ep_close_nb(entry->ep, (how & 1) ? UCP_EP_CLOSE_MODE_FORCE :
                                                          UCP_EP_CLOSE_MODE_FLUSH);
        entry->ep = NULL;
        break;
    }
    if (UCS_PTR_IS_PTR(ptr)) {
        ucp_request_free(ptr);
    }
}

static void fuzz_conn_step(fuzz_conn_t *state)
{
    unsigned what = fuzz_byte(&state->in);
    size_t length;
    int *fd;

    switch (what & 7) {
    case 0:
        fuzz_client(state);
        break;
    case 1:
        if (state->listener != NULL) {
            state->accepted = fuzz_socket_pair(state);
            state->listener->socket.handle(&state->listener->socket);
        }
        break;
    case 2:
        length = what >> 3;
        length = (length < state->in.left) ? length : state->in.left;
        state->in.data += length;
        state->in.left -= length;
        fuzz_say(state, state->in.data - length, length);
        break;
    case 3:
        fuzz_say_message(state);
        break;
    case 4:
        fd = &state->ours[(what >> 3) % FUZZ_SOCKETS];
        if (*fd >= 0) {
            close(*fd);
            *fd = -1;
        }
        break;
    case 5:
        fuzz_decide(state, (what >> 3) % 4);
        break;
    case 6:
        fuzz_use_ep(state, (what >> 3) % 6);
        break;
    default:
        if ((what >> 3) < 30) {
            fuzz_relay(state, what >> 3);
        } else if (state->listener == NULL) {
            break;
        } else if ((what >> 3) == 30) {
            state->listener->num_places ^= 1; /* a door, or none */
        } else {
            ucp_listener_destroy(state->listener);
            state->listener = NULL;
        }
        break;
    }
    fuzz_pair_progress(&state->pair);
}

int fuzz_conn(const uint8_t *data, size_t size)
{
    struct sockaddr_in any       = {.sin_family      = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    fuzz_conn_t state            = {.in = {data, size}, .accepted = -1};
    ucp_listener_params_t params = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {(struct sockaddr *)&any, sizeof(any)},
        .conn_handler = {fuzz_request, &state}};
    unsigned i;

    memset(state.ours, 0xff, sizeof(state.ours));
    fuzz_state = &state;
    fuzz_pair_make(&state.pair);
    fuzz_take_over_sockets();
    fuzz_expect(ucp_listener_create(state.pair.workers[1], &params, &state.listener) == UCS_OK,
                "no listener");
    for (i = 0; (i < FUZZ_STEPS) && (state.in.left > 0); ++i) {
        fuzz_conn_step(&state);
    }
    fuzz_pair_progress(&state.pair);
    fuzz_pair_drop(&state.pair);
    for (i = 0; i < FUZZ_SOCKETS; ++i) {
        if (state.ours[i] >= 0) {
            close(state.ours[i]);
        }
    }
    return 0;
}
