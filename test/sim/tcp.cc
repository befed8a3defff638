/* Halyard: simulator: TCP within the simulated node: the calls of the replaced table that listeners
 * and client endpoints make.
 *
 * Bytes, ends and connections take their time as messages do. Descriptors are numbers above those
 * of the system; what is called with others is the system's.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <ucs/sys/sys.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <map>

namespace {

constexpr int FIRST_FD        = 1 << 20;
constexpr uint16_t FIRST_PORT = 10000;

enum class role { STREAM, LISTENER, EPOLL, TIMER, EVENT, IFACE };

struct segment {
    uint64_t time_ns;
    std::string bytes;
};

struct object {
    role what      = role::STREAM;
    unsigned owner = 0; /* its worker */
    uint16_t port = 0, remote_port = 0;
    int peer = -1;              /* the other end; -1: not (any more) there */
    int error              = 0; /* of a connection that was refused */
    uint64_t connected_ns  = 0; /* 0: it was not asked for */
    uint64_t last_ns       = 0; /* the latest of what is on its way here */
    uint64_t end_ns        = 0; /* the other end's; 0: not ended */
    std::deque<segment> in;
    std::deque<std::pair<uint64_t, int>> clients;        /* of a listener */
    std::map<int, std::pair<uint32_t, uint64_t>> watched; /* of an event set */
    uint64_t deadline_ns = 0;                             /* of a timer */
    uint64_t value       = 0;                             /* of an event counter */
    const void *iface    = nullptr;
};

std::map<int, object> g_objects;
int g_next_fd      = FIRST_FD;
uint16_t g_port    = FIRST_PORT;

object *find(int fd)
{
    const auto pos = g_objects.find(fd);
    return (pos != g_objects.end()) ? &pos->second : nullptr;
}

int fail(int error)
{
    errno = error;
    return -1;
}

int make(role what)
{
    object &o = g_objects[g_next_fd];
    o.what    = what;
    o.owner   = sim::the_world->current->number;
    return g_next_fd++;
}

uint64_t arrival(object &to)
{
    uint64_t time_ns = sim_now() + sim_plan.delay_ns;

    if (sim_faults_on && sim_chance(sim_plan.tail)) {
        time_ns += sim_below(sim_plan.tail_ns + 1);
    }
    to.last_ns = std::max(to.last_ns, time_ns);
    return to.last_ns;
}

void put_address(uint16_t port, struct sockaddr *addr, socklen_t *length)
{
    struct sockaddr_in in = {};

    in.sin_family      = AF_INET;
    in.sin_port        = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(addr, &in, std::min<size_t>(*length, sizeof(in)));
    *length = sizeof(in);
}

uint16_t port_of(const struct sockaddr *addr)
{
    return ntohs(reinterpret_cast<const struct sockaddr_in *>(addr)->sin_port);
}

int listener_at(uint16_t port)
{
    for (const auto &[fd, o] : g_objects) {
        if ((o.what == role::LISTENER) && (o.port == port)) {
            return fd;
        }
    }
    return -1;
}

uint32_t ready(const object &o, uint32_t events);

/* Is something of an event set to be seen? The user's signals are no reason to progress. */
bool has_ready(const object &set, bool with_signals)
{
    for (const auto &[fd, wanted] : set.watched) {
        const object *o = find(fd);
        if ((o != nullptr) && (with_signals || (o->what != role::EVENT)) &&
            (ready(*o, wanted.first) != 0)) {
            return true;
        }
    }
    return false;
}

/* When something can be read here, or UINT64_MAX. */
uint64_t readable_at(const object &o)
{
    if (o.what == role::LISTENER) {
        return o.clients.empty() ? UINT64_MAX : o.clients.front().first;
    }
    if (o.what == role::TIMER) {
        return (o.deadline_ns != 0) ? o.deadline_ns : UINT64_MAX;
    }
    if (o.what == role::EVENT) {
        return (o.value > 0) ? 0 : UINT64_MAX;
    }
    if (o.what == role::IFACE) {
        return sim_net_is_woken(o.iface) ? 0 : UINT64_MAX;
    }
    if (o.what == role::EPOLL) {
        return has_ready(o, true) ? 0 : UINT64_MAX;
    }
    return !o.in.empty() ? o.in.front().time_ns : (o.end_ns != 0) ? o.end_ns : UINT64_MAX;
}

uint32_t ready(const object &o, uint32_t events)
{
    uint32_t found = (readable_at(o) <= sim_now()) ? (uint32_t)EPOLLIN : 0;

    if ((o.what == role::STREAM) && (o.connected_ns != 0) && (o.connected_ns <= sim_now())) {
        found |= (uint32_t)EPOLLOUT;
    }
    return found & events;
}

/* The other end of a stream that ends here learns of it. */
void end(object &o)
{
    object *peer = find(o.peer);

    if (peer != nullptr) {
        peer->end_ns = arrival(*peer);
    }
    o.peer = -1;
}

void release(int fd)
{
    object &o = *find(fd);

    if (o.what == role::LISTENER) {
        for (const auto &client : o.clients) {
            end(*find(client.second));
            g_objects.erase(client.second);
        }
    }
    end(o);
    g_objects.erase(fd);
}

/* ---- the calls ---- */

int tcp_socket(int, int, int)
{
    return make(role::STREAM);
}

int tcp_setsockopt(int, int, int, const void *, socklen_t)
{
    return 0;
}

int tcp_getsockopt(int fd, int, int, void *value, socklen_t *)
{
    memcpy(value, &find(fd)->error, sizeof(int));
    return 0;
}

int tcp_bind(int fd, const struct sockaddr *addr, socklen_t)
{
    const uint16_t port = port_of(addr);

    if ((port != 0) && (listener_at(port) >= 0)) {
        return fail(EADDRINUSE);
    }
    find(fd)->port = (port != 0) ? port : g_port++;
    return 0;
}

int tcp_listen(int fd, int)
{
    find(fd)->what = role::LISTENER;
    return 0;
}

int tcp_connect(int fd, const struct sockaddr *addr, socklen_t)
{
    object &client     = *find(fd);
    const int listener = listener_at(port_of(addr));

    client.port         = g_port++;
    client.remote_port  = port_of(addr);
    client.connected_ns = sim_now() + (2 * sim_plan.delay_ns) + 1;
    if (listener < 0) {
        client.error = ECONNREFUSED;
        return fail(EINPROGRESS);
    }
    object &server     = *find(listener);
    const int accepted = make(role::STREAM);
    object &other      = *find(accepted);
    other.owner        = server.owner;
    other.port         = server.port;
    other.remote_port  = client.port;
    other.connected_ns = sim_now();
    other.peer         = fd;
    client.peer        = accepted;
    server.clients.push_back({arrival(server), accepted});
    sim_event("tcp connect", client.owner, server.owner, client.port);
    return fail(EINPROGRESS);
}

int tcp_accept4(int fd, struct sockaddr *addr, socklen_t *length, int)
{
    object &server = *find(fd);

    if (server.clients.empty() || (server.clients.front().first > sim_now())) {
        return fail(EAGAIN);
    }
    const int accepted = server.clients.front().second;
    server.clients.pop_front();
    put_address(find(accepted)->remote_port, addr, length);
    return accepted;
}

int tcp_getsockname(int fd, struct sockaddr *addr, socklen_t *length)
{
    put_address(find(fd)->port, addr, length);
    return 0;
}

ssize_t tcp_sendmsg(int fd, const struct msghdr *msg, int)
{
    object *peer = find(find(fd)->peer);
    std::string bytes;

    for (size_t i = 0; i < msg->msg_iovlen; ++i) {
        bytes.append(static_cast<const char *>(msg->msg_iov[i].iov_base),
                     msg->msg_iov[i].iov_len);
    }
    if (peer == nullptr) {
        return fail(EPIPE);
    }
    peer->in.push_back({arrival(*peer), bytes});
    return (ssize_t)bytes.size();
}

ssize_t tcp_recvmsg(int fd, struct msghdr *msg, int)
{
    object &o = *find(fd);

    if (readable_at(o) > sim_now()) {
        return fail(EAGAIN);
    }
    if (o.in.empty()) {
        return 0;
    }
    std::string &bytes  = o.in.front().bytes;
    const size_t length = std::min({bytes.size(), msg->msg_iov[0].iov_len,
                                    (size_t)sim_between(1, 4096)}); /* as TCP may cut it */
    memcpy(msg->msg_iov[0].iov_base, bytes.data(), length);
    bytes.erase(0, length);
    if (bytes.empty()) {
        o.in.pop_front();
    }
    return (ssize_t)length;
}

int tcp_shutdown(int fd, int)
{
    end(*find(fd));
    return 0;
}

int tcp_close(int fd)
{
    if (find(fd) == nullptr) {
        return ucs_sys_real.close(fd);
    }
    release(fd);
    return 0;
}

ssize_t tcp_read(int fd, void *buf, size_t count)
{
    object *o = find(fd);

    if (o == nullptr) {
        return ucs_sys_real.read(fd, buf, count);
    }
    if ((o->what == role::EVENT) && (o->value == 0)) {
        return fail(EAGAIN);
    }
    memset(buf, 0, count);
    memcpy(buf, &o->value, std::min(count, sizeof(o->value)));
    o->value       = 0;
    o->deadline_ns = 0;
    return (ssize_t)count;
}

ssize_t tcp_write(int fd, const void *buf, size_t count)
{
    object *o = find(fd);

    if (o == nullptr) {
        return ucs_sys_real.write(fd, buf, count);
    }
    ++o->value;
    return (ssize_t)count;
}

int tcp_eventfd(unsigned, int)
{
    return make(role::EVENT);
}

int tcp_timerfd_create(int, int)
{
    return make(role::TIMER);
}

int tcp_timerfd_settime(int fd, int, const struct itimerspec *value, struct itimerspec *)
{
    object *o = find(fd);

    if (o == nullptr) {
        return fail(EBADF); /* closed before the last of its connections */
    }
    o->deadline_ns = ((uint64_t)value->it_value.tv_sec * 1000000000) +
                     (uint64_t)value->it_value.tv_nsec;
    return 0;
}

int tcp_epoll_create1(int)
{
    return make(role::EPOLL);
}

int tcp_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    auto &watched = find(epfd)->watched;

    if (op == EPOLL_CTL_DEL) {
        watched.erase(fd);
    } else {
        const uint32_t events = event->events; /* packed */
        const uint64_t data   = event->data.u64;
        watched[fd]           = {events, data};
    }
    return 0;
}

int tcp_epoll_wait(int epfd, struct epoll_event *events, int max, int)
{
    int count = 0;

    for (const auto &[fd, wanted] : find(epfd)->watched) {
        const object *o      = find(fd);
        const uint32_t found = (o != nullptr) ? ready(*o, wanted.first) : 0;
        if ((found != 0) && (count < max)) {
            events[count].events   = found;
            events[count].data.u64 = wanted.second;
            ++count;
        }
    }
    return count;
}

} // namespace

void sim_tcp_install(void *table)
{
    auto *ops = static_cast<ucs_sys_ops_t *>(table);

    ops->socket          = tcp_socket;
    ops->setsockopt      = tcp_setsockopt;
    ops->getsockopt      = tcp_getsockopt;
    ops->bind            = tcp_bind;
    ops->listen          = tcp_listen;
    ops->connect         = tcp_connect;
    ops->accept4         = tcp_accept4;
    ops->getsockname     = tcp_getsockname;
    ops->sendmsg         = tcp_sendmsg;
    ops->recvmsg         = tcp_recvmsg;
    ops->shutdown        = tcp_shutdown;
    ops->close           = tcp_close;
    ops->read            = tcp_read;
    ops->write           = tcp_write;
    ops->eventfd         = tcp_eventfd;
    ops->timerfd_create  = tcp_timerfd_create;
    ops->timerfd_settime = tcp_timerfd_settime;
    ops->epoll_create1   = tcp_epoll_create1;
    ops->epoll_ctl       = tcp_epoll_ctl;
    ops->epoll_wait      = tcp_epoll_wait;
}

uint16_t sim_tcp_last_port(void)
{
    return (uint16_t)(g_port - 1);
}

uint64_t sim_tcp_next_ns(void)
{
    uint64_t next_ns = UINT64_MAX;

    for (const auto &[fd, o] : g_objects) {
        for (const uint64_t time_ns : {readable_at(o), o.connected_ns}) {
            /* nobody waits for a timer alone */
            if ((time_ns > sim_now()) && (o.what != role::TIMER)) {
                next_ns = std::min(next_ns, time_ns);
            }
        }
    }
    return next_ns;
}

int sim_tcp_make_event(const void *iface)
{
    const int fd = make(role::IFACE);

    find(fd)->iface = iface;
    return fd;
}

int sim_tcp_is_ready(int fd)
{
    return has_ready(*find(fd), true);
}

int sim_tcp_has_ready(void)
{
    for (const auto &[fd, o] : g_objects) {
        if ((o.what == role::EPOLL) &&
            (sim::the_world->workers[o.owner]->state == sim::life::ALIVE) &&
            has_ready(o, false)) {
            return 1;
        }
    }
    return 0;
}

void sim_tcp_kill(unsigned number)
{
    for (auto &[fd, o] : g_objects) {
        if (o.owner != number) {
            continue;
        }
        if (o.what == role::LISTENER) {
            o.port = 0; /* nobody is let in any more */
        }
        end(o);
    }
}

void sim_tcp_reset(void)
{
    if (!g_objects.empty()) {
        sim_fail("%zu descriptors are still open", g_objects.size());
    }
    g_objects.clear();
    g_next_fd = FIRST_FD;
    g_port    = FIRST_PORT;
}
