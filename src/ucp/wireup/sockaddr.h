/* Halyard: client-server connections by socket addresses.
 *
 * The host's TCP carries one question and one answer, in which the two workers tell each other
 * their addresses (wire/wire.h, ucp_wire_conn_t); data then takes the best transport, as between
 * workers that learned their addresses by other means.
 *
 *   client  CONNECTING -> ASKING (ASK sent) -> UP
 *   seeker  CONNECTING -> ASKING (a door speaks first) -> freed (wireup/door.h)
 *   server  HALF_OPEN (reading ASK) -> REQUEST (the user's, until the listener's worker ends, which
 *           rejects it) -> UP (ACCEPT sent)
 *   either  UP -> LOST (end of file: the other endpoint was closed, or its process is gone)
 *
 * Networks take long to load, so addresses lead over them only where that is needed: a client whose
 * connection stays in its host asks without, and a server that cannot reach it by memory (another
 * container, the end of a tunnel) has it ask once more (WIDEN).
 *
 * A client's endpoint begins on a provisional peer, whose lane holds back what is sent
 * (ucp_peer_create_provisional); when the answer is there the endpoint moves to the real peer with
 * all that waits. An endpoint that is lost moves to a provisional peer that fails, since the real
 * peer may be alive and serve other endpoints.
 *
 * A worker's sockets are gathered in one event set, which progress looks at every few calls while
 * there is any; a timer bounds hand-shakes. Nothing here blocks. Called with the worker's lock.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIREUP_SOCKADDR_H
#define UCP_WIREUP_SOCKADDR_H

#include <ucp/core/ep.h>
#include <ucp/wire/wire.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#define UCP_LISTEN_BACKLOG 1024
#define UCP_DOOR_MAX       128 /* bytes of the entry of a door in an address */
#define UCP_SOCKETS_BATCH  32  /* events that are fetched at a time */

typedef struct ucp_socket       ucp_socket_t;
typedef struct ucp_conn_request ucp_conn_t;

/* A descriptor in the worker's event set. */
struct ucp_socket {
    ucs_list_link_t list;    /* in sockets->all */
    ucp_worker_t   *worker;  /* whose set it is in */
    void          (*handle)(ucp_socket_t *socket); /* something has happened to it */
    int             fd;      /* -1: closed */
};

typedef enum {
    UCP_CONN_HALF_OPEN,
    UCP_CONN_REQUEST,
    UCP_CONN_CONNECTING,
    UCP_CONN_ASKING,
    UCP_CONN_UP,
    UCP_CONN_LOST,   /* on the list of those whose endpoint is about to fail */
    UCP_CONN_CLOSED
} ucp_conn_state_t;

/* A connection: of an endpoint, or asking to become one. */
struct ucp_conn_request {
    ucp_socket_t            socket;
    ucs_list_link_t         waiting;     /* in handshakes, requests, late or lost */
    ucp_conn_state_t        state;
    unsigned                patience;    /* calls of progress that a lost one waits for silence */
    int                     is_gone;     /* its peer has left since it is there */
    ucp_ep_t               *ep;
    ucp_peer_t             *sought;      /* a seeker: provisional, of the worker behind the door */
    ucs_list_link_t         seekers;     /* in sockets->seekers */
    ucp_listener_h          listener;    /* while HALF_OPEN */
    uint64_t                deadline_ns; /* of the hand-shake, or of what may come once LOST */
    struct sockaddr_storage local, remote;
    uint8_t                *message;     /* what was received, until it was used */
    size_t                  received;
    uint64_t                client_id;
    uint32_t                ordinal;     /* of our endpoint, see UCP_WIRE_CONN_ORDINAL */
    uint8_t                 is_far;      /* addresses are to lead over networks */
    uint8_t                 was_widened; /* the client was asked for such a one */
};

struct ucp_listener {
    ucp_socket_t                  socket;
    ucp_listener_conn_handler_t   conn_handler;
    ucp_listener_accept_handler_t accept_handler;
    unsigned                      num_places; /* a door's: bytes of places; 0: the user's */
    uint8_t                       places[UCP_DOOR_MAX]; /* see wireup/door.h */
};

struct ucp_sockets {
    ucp_worker_t    *worker;
    int              epoll_fd;     /* the set; -1: none yet, or our parent's, before a fork */
    int              num_events;   /* that were fetched, while their handlers run */
    ucp_socket_t     timer;        /* due at the first deadline of handshakes and late */
    ucs_list_link_t  all;          /* ucp_socket_t */
    ucs_list_link_t  handshakes;   /* ucp_conn_t by deadline */
    ucs_list_link_t  late;         /* ucp_conn_t by deadline: over a network more may come */
    ucs_list_link_t  lost;         /* ucp_conn_t whose endpoint fails once nothing more comes */
    ucs_list_link_t  requests;     /* ucp_conn_t: of our listeners, the user's to decide */
    ucs_list_link_t  seekers;      /* ucp_conn_t that are, */
    unsigned         num_seekers;
    pthread_mutex_t  request_lock; /* of that list: they may be accepted on another worker */
    int              spare_fd;     /* given up to turn a client away when there is no other */
    unsigned         num_half_open;
    unsigned         countdown;    /* to the next look, or where all is quiet to the next time */
    uint64_t         looked_ns;    /* when */
    int              is_inherited; /* by a forked child: all are closed */
    struct epoll_event events[UCP_SOCKETS_BATCH]; /* by socket; NULL: it was removed since */
};

/* ---- sockets.c ---- */

/* Bytes of a socket address of a family that is supported, 0 for others. */
socklen_t ucp_sockaddr_length(const struct sockaddr *addr);

/* What an error of a socket call means for an endpoint. */
ucs_status_t ucp_socket_status(int error);

/* Opens a non-blocking socket bound to `addr` (NULL: to none). Logs. UCS_ERR_BUSY: in use;
 * UCS_ERR_UNREACHABLE: not one of this machine; UCS_ERR_INVALID_PARAM: no such family. */
ucs_status_t ucp_socket_open(ucp_worker_t *worker, int family, const ucs_sock_addr_t *addr,
                             int *fd_p);

/* Adds a descriptor, whose `handle` is set, to the worker's set; it is not closed on failure. Once
 * it is taken out its handler does not run any more, not even for an event that was fetched before:
 * so a handler may take out any of the set, close it, and free its object. */
ucs_status_t ucp_socket_add(ucp_socket_t *socket, ucp_worker_t *worker, int fd, uint32_t events);

/* Changes what is waited for (EPOLLIN, EPOLLOUT). */
ucs_status_t ucp_socket_await(const ucp_socket_t *socket, uint32_t events);

/* Takes it out; returns the descriptor, which stays open, or -1. */
int ucp_socket_remove(ucp_socket_t *socket);

/* Takes it out and closes it. No effect without one. */
void ucp_socket_close(ucp_socket_t *socket);

/* Sets the timer to the first deadline. */
void ucp_sockets_set_timer(ucp_sockets_t *sockets);

/* Keeps a descriptor for when there is no other, if one can be had. */
void ucp_sockets_keep_spare(ucp_sockets_t *sockets);

/* Whether the sockets have events or endpoints are about to fail: progress is due. */
int ucp_sockets_have_work(ucp_worker_t *worker);

/* In a forked child: closes its copies, without a word; connections end with its next progress. */
void ucp_sockets_disown(ucp_sockets_t *sockets);

/* Closes all connections and listeners of a worker that is being destroyed. */
void ucp_sockets_cleanup(ucp_worker_t *worker);

/* ---- conn.c ---- */

/* A connection to a socket address (local: from one, or NULL) that begins: its clock is the
 * caller's to start. *error_p: its errno, or 0. */
ucs_status_t ucp_conn_dial(ucp_worker_t *worker, const struct sockaddr *remote,
                           const ucs_sock_addr_t *local, ucp_conn_t **conn_p, int *error_p);

/* Sends a message with the address of a worker, which the other end must be able to reach, is_far
 * over networks. */
ucs_status_t ucp_conn_send_address(ucp_worker_t *worker, int fd, int is_far, ucp_wire_conn_t *head);

/* The time of a hand-shake begins. */
void ucp_conn_start_clock(ucp_conn_t *conn);

/* The hand-shake has ended, this way or that. */
void ucp_conn_set_state(ucp_conn_t *conn, ucp_conn_state_t state);

/* Without a word, one whose socket is closed. */
void ucp_conn_free(ucp_conn_t *conn);

/* The listening socket has clients. */
void ucp_conn_accept_clients(ucp_socket_t *listener);

/* Ends the connections of a listener that the user has not seen. */
void ucp_conn_forget_listener(ucp_listener_h listener);

/* Starts connecting ep, whose peer is provisional. What fails later, fails the endpoint. */
ucs_status_t ucp_conn_connect(ucp_ep_t *ep, const ucp_ep_params_t *params);

/* The worker's address that the other end has sent, which was checked when it came. */
const void *ucp_conn_address(const ucp_conn_t *conn);

/* ep, on the client's peer, answers a request, which is its connection. */
ucs_status_t ucp_conn_accept(ucp_conn_t *conn, ucp_ep_t *ep);

/* A client's endpoint of this ordinal waits for its server's answer; messages may overtake that. */
int ucp_conn_is_awaited(const ucp_worker_t *worker, uint32_t ordinal);

/* Answers no, with the reason, and frees the request. */
void ucp_conn_reject(ucp_conn_t *conn, ucs_status_t status);

/* The endpoint is about to be freed: ends its connection. A hand-shake is given up. */
void ucp_conn_close(ucp_conn_t *conn);

/* Ends a connection that is not up yet; its endpoint fails, one that nobody has seen is freed. */
void ucp_conn_fail(ucp_conn_t *conn, ucs_status_t status);

/* All that the peer has sent is there: connections with it that are lost wait for nothing more. */
void ucp_conn_peer_gone(ucp_peer_t *peer);

/* Fails the endpoints whose connection was lost, once what came before has been received: `idle`
 * says that the transports were silent just now. Returns how many. */
unsigned ucp_conn_fail_lost(ucp_worker_t *worker, int idle);

#endif
