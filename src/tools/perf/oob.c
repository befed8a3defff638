/* Halyard: framed messages over a stream socket, with bounded waits.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "oob.h"
#include "clock.h"
#include "watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FRAME_MAGIC      UINT32_C(0x504c4148) /* "HALP" read as little-endian */
#define CONNECT_RETRY_MS 5000
#define CONNECT_RETRY_US 100000
#define PROGRESS_SPIN_NS 10e6
#define GREETING_MAX_NS  3e9

#define NOT_THIS_TOOL    "the other end (%s) is not this ucx_perftest: %s"
#define UNKNOWN_GREETING "it sent an unknown greeting (another program on that port, UCX's own " \
                         "ucx_perftest, or a machine of other byte order?)"

typedef struct frame {
    uint32_t magic;
    uint32_t type;
    uint32_t length;
    uint32_t zero;
} frame_t;

_Static_assert(sizeof(frame_t) == 16, "the frame header is on the wire");

void perf_oob_wrap(int fd, const char *peer, int timeout_ms, perf_channel_t *channel_p)
{
    channel_p->fd         = fd;
    channel_p->timeout_ms = timeout_ms;
    channel_p->progress   = NULL;
    snprintf(channel_p->peer, sizeof(channel_p->peer), "%s", peer);
}

void perf_oob_close(perf_channel_t *channel)
{
    if (channel->fd >= 0) {
        close(channel->fd);
        channel->fd = -1;
    }
}

/* Every message is waited for, so none may wait in the sender's kernel for more to come. */
static void set_nodelay(int fd)
{
    int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Returns a descriptor, or -1 with errno. */
static int listen_on(const struct sockaddr *address, socklen_t length)
{
    int on = 1, off = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6) { /* clients of IPv4 too, whatever the system's default */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if ((bind(fd, address, length) == 0) && (listen(fd, 1) == 0)) {
        return fd;
    }
    on = errno;
    close(fd);
    errno = on;
    return -1;
}

int perf_oob_listen(unsigned port, int ipv6)
{
    struct sockaddr_in6 address6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in address4  = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct sockaddr *address = ipv6 ? (const struct sockaddr*)&address6 :
                                            (const struct sockaddr*)&address4;
    int fd = listen_on(address, ipv6 ? sizeof(address6) : sizeof(address4));

    if (fd < 0) {
        perf_error("cannot listen on port %u: %s (%s)", port, strerror(errno),
                   (errno == EAFNOSUPPORT) ? "without -6: IPv4" : "another port: -p");
    }
    return fd;
}

/* An address that needs no file. Returns its length. */
static socklen_t local_address(const char *name, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un) {.sun_family = AF_UNIX};
    snprintf(address_p->sun_path + 1, sizeof(address_p->sun_path) - 1, "ucx_perftest-%u-%s",
             (unsigned)getuid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(address_p->sun_path + 1));
}

int perf_oob_listen_local(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = local_address(name, &address);
    int fd           = listen_on((const struct sockaddr*)&address, length);

    if (fd < 0) {
        perf_error("cannot listen on the local socket %s: %s", address.sun_path + 1,
                   strerror(errno));
    }
    return fd;
}

static void name_address(const struct sockaddr *address, socklen_t length, char *name, size_t size)
{
    char host[64], port[8];

    if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(name, size, "%s port %s", host, port);
    } else {
        snprintf(name, size, "(unknown address)");
    }
}

/* Bounds how long accept and recv wait (SO_RCVTIMEO), or connect (SO_SNDTIMEO); not by INFINITY. */
static void set_limit(int fd, int option, double ns)
{
    const double us            = isfinite(ns) ? fmax(ns / 1e3, 1) : 0; /* 0: no limit */
    const struct timeval limit = {.tv_sec  = (time_t)(us / 1e6),
                                  .tv_usec = (suseconds_t)fmod(us, 1e6)};

    (void)setsockopt(fd, SOL_SOCKET, option, &limit, sizeof(limit));
}

/* Why the other end is no ucx_perftest, which greets at once; NULL: it is. Takes nothing out. */
static const char *find_stranger(int fd, double end_ns)
{
    frame_t frame;
    ssize_t done;

    do { /* stopped and continued, it begins anew */
        set_limit(fd, SO_RCVTIMEO, fmin(end_ns - perf_now_ns(), GREETING_MAX_NS));
        done = recv(fd, &frame, sizeof(frame), MSG_PEEK | MSG_WAITALL);
    } while ((done < 0) && (errno == EINTR));
    if (done < 0) {
        return (errno == EAGAIN) ? "it sent no greeting" : strerror(errno);
    }
    if (done == 0) {
        return "it closed the connection";
    }
    return ((done == sizeof(frame)) && (frame.magic == FRAME_MAGIC)) ? NULL : UNKNOWN_GREETING;
}

/* Returns the descriptor of the next connection, or -1 after an error message. */
static int accept_next(int listen_fd, unsigned wait_s, double end_ns, char *name, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length;
    int fd;

    do {
        length = sizeof(address);
        set_limit(listen_fd, SO_RCVTIMEO, end_ns - perf_now_ns());
        fd = accept4(listen_fd, (struct sockaddr*)&address, &length, SOCK_CLOEXEC);
    } while ((fd < 0) && (errno == EINTR));
    if (fd < 0) {
        return (errno == EAGAIN) ? perf_error("no client came within %u s", wait_s) :
                                   perf_error("accept: %s", strerror(errno));
    }
    name_address((struct sockaddr*)&address, length, name, size);
    return fd;
}

int perf_oob_accept(int listen_fd, unsigned wait_s, int timeout_ms, perf_channel_t *channel_p)
{
    const double end_ns = (wait_s > 0) ? perf_now_ns() + wait_s * 1e9 : INFINITY;
    char name[sizeof(channel_p->peer)];
    const char *problem;
    int fd;

    for (;;) {
        fd = accept_next(listen_fd, wait_s, end_ns, name, sizeof(name));
        if (fd < 0) {
            return -1;
        }
        problem = find_stranger(fd, end_ns);
        if (problem == NULL) {
            set_nodelay(fd);
            perf_oob_wrap(fd, name, timeout_ms, channel_p);
            return 0;
        }
        perf_error(NOT_THIS_TOOL "; still waiting for a client", name, problem);
        close(fd);
    }
}

/* One attempt at one address, bounded. Returns a descriptor, or -1 with errno. */
static int connect_once(const struct addrinfo *info, int timeout_ms)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error;

    if (fd < 0) {
        return -1;
    }
    set_limit(fd, SO_SNDTIMEO, timeout_ms * 1e6);
    if (connect(fd, info->ai_addr, info->ai_addrlen) == 0) {
        set_nodelay(fd);
        return fd;
    }
    error = (errno == EINPROGRESS) ? ETIMEDOUT : errno;
    close(fd);
    errno = error;
    return -1;
}

/* Tries the addresses in turn, and again for a while as long as nobody listens there. Returns a
 * descriptor, or -1 with errno. */
static int connect_any(const struct addrinfo *list, int retry_ms, int timeout_ms)
{
    double end_ns = perf_now_ns() + retry_ms * 1e6;
    const struct addrinfo *entry;
    int fd;

    for (;;) {
        for (entry = list; entry != NULL; entry = entry->ai_next) {
            fd = connect_once(entry, timeout_ms);
            if (fd >= 0) {
                return fd;
            }
        }
        if ((errno != ECONNREFUSED) || (perf_now_ns() > end_ns)) {
            return -1;
        }
        usleep(CONNECT_RETRY_US);
    }
}

/* The host's addresses of this family. NULL after an error message, which knows of the other. */
static struct addrinfo *resolve(const char *host, unsigned port, int family)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char service[16];
    int status;

    snprintf(service, sizeof(service), "%u", port);
    status = getaddrinfo(host, service, &hints, &list);
    if (status == 0) {
        return list;
    }
    hints.ai_family = (family == AF_INET6) ? AF_INET : AF_INET6;
    if (getaddrinfo(host, service, &hints, &list) == 0) {
        freeaddrinfo(list);
        perf_error("host '%s' has addresses of %s", host, (family == AF_INET6) ?
                   "IPv4 only: leave out -6" : "IPv6 only: give both sides -6");
    } else {
        perf_error("cannot resolve host '%s': %s", host, gai_strerror(status));
    }
    return NULL;
}

/* What the user can do where no connection came about. */
static const char *connect_hint(int error, int ipv6)
{
    if (error != ECONNREFUSED) {
        return ipv6 ? "by IPv6; for IPv4 give its name, or its address of IPv4, without -6" :
                      "by IPv4; for IPv6 give both sides -6";
    }
    return ipv6 ? "is `ucx_perftest -6` waiting there? Without -6 it takes IPv4 only" :
                  "is `ucx_perftest` waiting there?";
}

int perf_oob_connect(const char *host, unsigned port, int ipv6, int timeout_ms,
                     perf_channel_t *channel_p)
{
    struct addrinfo *list;
    char name[96];
    int error, fd;

    ipv6 |= (strchr(host, ':') != NULL); /* no name has one */
    list  = resolve(host, port, ipv6 ? AF_INET6 : AF_INET);
    if (list == NULL) {
        return -1;
    }
    fd    = connect_any(list, (timeout_ms < CONNECT_RETRY_MS) ? timeout_ms : CONNECT_RETRY_MS,
                        timeout_ms);
    error = errno;
    freeaddrinfo(list);
    if (fd < 0) {
        return perf_error("cannot connect to %s port %u: %s (%s)", host, port, strerror(error),
                          connect_hint(error, ipv6));
    }
    snprintf(name, sizeof(name), "%s port %u", host, port);
    perf_oob_wrap(fd, name, timeout_ms, channel_p);
    return 0;
}

int perf_oob_connect_local(const char *name, int timeout_ms, perf_channel_t *channel_p)
{
    struct sockaddr_un address;
    struct addrinfo info = {.ai_family = AF_UNIX, .ai_addr = (struct sockaddr*)&address};
    int fd;

    info.ai_addrlen = local_address(name, &address);
    fd              = connect_any(&info, timeout_ms, timeout_ms);
    if (fd < 0) {
        return perf_error("nobody listens on the local socket %s: %s", address.sun_path + 1,
                          strerror(errno));
    }
    perf_oob_wrap(fd, address.sun_path + 1, timeout_ms, channel_p);
    return 0;
}

int perf_oob_is_own_user(const perf_channel_t *channel)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    return (getsockopt(channel->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) &&
           (peer.uid == getuid());
}

/* Waits until the descriptor is ready, at most until end_ns. Progress is called without a pause
 * at first, since the peer may be measuring what it needs our progress for. */
static int wait_ready(perf_channel_t *channel, short events, double end_ns)
{
    struct pollfd waiting = {.fd = channel->fd, .events = events};
    const double start_ns = perf_now_ns();
    double now_ns         = start_ns;
    int ready             = 0;
    int timeout_ms;

    while ((ready == 0) && (now_ns < end_ns)) {
        timeout_ms = (channel->progress == NULL)             ? (int)((end_ns - now_ns) / 1e6) + 1 :
                     (now_ns - start_ns < PROGRESS_SPIN_NS) ? 0 : 1;
        ready      = poll(&waiting, 1, timeout_ms);
        if ((ready < 0) && (errno == EINTR)) {
            ready = 0;
        }
        if ((ready == 0) && (channel->progress != NULL)) {
            channel->progress(channel->arg);
        }
        now_ns = perf_now_ns();
    }
    if (ready == 0) {
        perf_error("no answer from the peer (%s) for %d s, at: %s", channel->peer,
                   channel->timeout_ms / 1000, perf_watch_where());
    }
    return (ready > 0) ? 0 : -1;
}

/* Sends or receives all of it until end_ns; what is sent is only read. */
static int move_all(perf_channel_t *channel, int is_send, void *data, size_t length,
                    double end_ns)
{
    uint8_t *next = data;
    ssize_t done;

    while (length > 0) {
        done = is_send ? send(channel->fd, next, length, MSG_NOSIGNAL | MSG_DONTWAIT) :
                         recv(channel->fd, next, length, MSG_DONTWAIT);
        if (done > 0) {
            next   += done;
            length -= (size_t)done;
        } else if ((done < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
            if (wait_ready(channel, is_send ? POLLOUT : POLLIN, end_ns) != 0) {
                return -1;
            }
        } else {
            return perf_error("the peer (%s) is gone: %s, at: %s", channel->peer,
                              (done == 0) ? "it closed the connection" : strerror(errno),
                              perf_watch_where());
        }
    }
    return 0;
}

int perf_oob_send_parts(perf_channel_t *channel, perf_oob_type_t type, const struct iovec *parts,
                        unsigned count)
{
    frame_t frame = {.magic = FRAME_MAGIC, .type = type};
    double end_ns = perf_now_ns() + channel->timeout_ms * 1e6;
    int status;
    unsigned i;

    for (i = 0; i < count; ++i) {
        frame.length += (uint32_t)parts[i].iov_len;
    }
    status = move_all(channel, 1, &frame, sizeof(frame), end_ns);
    for (i = 0; (i < count) && (status == 0); ++i) {
        status = move_all(channel, 1, parts[i].iov_base, parts[i].iov_len, end_ns);
    }
    return status;
}

int perf_oob_send(perf_channel_t *channel, perf_oob_type_t type, const void *payload,
                  size_t length)
{
    const struct iovec part = {(void*)(uintptr_t)payload, length};

    return perf_oob_send_parts(channel, type, &part, 1);
}

void perf_oob_send_error(perf_channel_t *channel, const char *text)
{
    frame_t frame = {.magic  = FRAME_MAGIC,
                     .type   = PERF_OOB_ERROR,
                     .length = (uint32_t)strlen(text)};

    if (channel->fd >= 0) {
        (void)!send(channel->fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)!send(channel->fd, text, frame.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

const char *perf_oob_text(char *text, size_t size)
{
    char *next;

    text[size - 1] = '\0';
    for (next = text; *next != '\0'; ++next) {
        if ((*next < ' ') || (*next > '~')) {
            *next = '?';
        }
    }
    return text;
}

static int recv_error_text(perf_channel_t *channel, size_t length, double end_ns)
{
    char text[512] = "";

    if (length >= sizeof(text)) {
        length = sizeof(text) - 1;
    }
    return (move_all(channel, 0, text, length, end_ns) != 0) ? -1 :
           perf_error("the peer (%s) gave up: %s", channel->peer,
                      perf_oob_text(text, sizeof(text)));
}

int perf_oob_recv_any(perf_channel_t *channel, void *buffer, size_t capacity, size_t *length_p)
{
    double end_ns = perf_now_ns() + channel->timeout_ms * 1e6;
    frame_t frame;

    if (move_all(channel, 0, &frame, sizeof(frame), end_ns) != 0) {
        return -1;
    }
    if (frame.magic != FRAME_MAGIC) {
        return perf_error(NOT_THIS_TOOL, channel->peer, UNKNOWN_GREETING);
    }
    if (frame.type == PERF_OOB_ERROR) {
        return recv_error_text(channel, frame.length, end_ns);
    }
    if (frame.length > capacity) {
        return perf_error("the peer (%s) sent a message of type %u with %u bytes, at most %zu fit: "
                          "different versions of ucx_perftest?", channel->peer, frame.type,
                          frame.length, capacity);
    }
    if (move_all(channel, 0, buffer, frame.length, end_ns) != 0) {
        return -1;
    }
    *length_p = frame.length;
    return (int)(frame.type & INT32_MAX);
}

int perf_oob_recv(perf_channel_t *channel, perf_oob_type_t type, void *buffer, size_t length)
{
    size_t got = 0;
    int found  = perf_oob_recv_any(channel, buffer, length, &got);

    if (found < 0) {
        return -1;
    }
    if ((found != (int)type) || (got != length)) {
        return perf_error("the peer (%s) sent message type %d with %zu bytes where type %d with "
                          "%zu was due: different versions of ucx_perftest?", channel->peer,
                          found, got, (int)type, length);
    }
    return 0;
}

perf_peer_t perf_oob_look(const perf_channel_t *channel)
{
    struct pollfd state = {.fd = channel->fd, .events = POLLRDHUP};
    struct {
        frame_t frame;
        int32_t status;
    } start;
    const ssize_t done = recv(channel->fd, &start, sizeof(start), MSG_PEEK | MSG_DONTWAIT);

    if (done <= 0) {
        return ((done < 0) && ((errno == EAGAIN) || (errno == EINTR))) ? PERF_PEER_SILENT :
                                                                         PERF_PEER_GONE;
    }
    if ((done >= (ssize_t)sizeof(start.frame)) &&
        ((start.frame.type == PERF_OOB_ERROR) ||
         ((start.frame.type == PERF_OOB_RESULT) && (done == (ssize_t)sizeof(start)) &&
          (start.status != 0)))) {
        return PERF_PEER_FAILED;
    }
    return ((poll(&state, 1, 0) > 0) && (state.revents & (POLLRDHUP | POLLHUP | POLLERR))) ?
           PERF_PEER_GONE : PERF_PEER_SPOKE;
}
