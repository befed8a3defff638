/* Halyard: ofi: who lives. See ofi.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <unistd.h>

#define UCT_OFI_FDS_MAX 65536ul /* descriptors that are looked at where /proc tells no number */
/* Looks between which later messages wait for the same one, or who is there does not take one, or
 * reads of who is there do not end. */
#define UCT_OFI_GAPS_MAX 40
/* The same behind an error that a connection may have broken by, for so many looks. */
#define UCT_OFI_GAPS_BROKEN  4
#define UCT_OFI_LOOKS_BROKEN 10
/* For which operations may go on that were given up by the user, or after a failure. */
#define UCT_OFI_LOOKS_FORCED 2u
#define UCT_OFI_LOOKS_FAILED 10u
#define UCT_OFI_LOOKS_CUT    4u /* in which the provider sees that a connection was cut */
/* SO_RCVLOWAT of questions to kernels, by which any thread tells them from the provider's: nothing
 * is ever read from them. */
#define UCT_OFI_PROBE_MARK 1789
#define UCT_OFI_PORT_ASIDE 1 /* nobody listens there, on hosts that are asked whether they live */

/* It is waited from now on for a sign of life. */
static void uct_ofi_alive_wait(uct_ofi_peer_t *peer, uint64_t now_ns)
{
    peer->asked_ns   = now_ns;
    peer->is_reached = 0;
    peer->was_away   = 0;
}

void uct_ofi_alive_ask(uct_ofi_peer_t *peer, unsigned what)
{
    if (peer->asked_ns == 0) {
        uct_ofi_alive_wait(peer, ucs_sys_clock_ns());
    }
    uct_ofi_peer_say(peer, what);
}

void uct_ofi_alive_doubt(uct_ofi_peer_t *peer)
{
    if (peer->iface->is_tcp) {
        if (peer->num_doubtful == 0) { /* what was slow before has nothing to do with it */
            peer->num_gaps    = 0;
            peer->num_untaken = 0;
        }
        peer->num_doubtful = UCT_OFI_LOOKS_BROKEN;
    }
    uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
}

static int uct_ofi_is_connected(const uct_ofi_peer_t *peer)
{
    return (peer->tx_state != UCT_OFI_TX_IDLE) || peer->rx_open || (peer->num_rmas > 0);
}

void uct_ofi_alive_suspect(uct_ofi_iface_t *iface)
{
    uct_ofi_peer_t *peer;

    ucs_list_for_each(peer, &iface->peers, list) {
        if (peer->tx_taken != peer->tx_count) {
            uct_ofi_alive_doubt(peer);
        } else if (uct_ofi_is_connected(peer)) {
            uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
        }
    }
}

/* ---- the peer's kernel ---- */

/* By a reset: libfabric 1.17 keeps the descriptor of a connection that ends in order before it has
 * asked for anything, for ever. */
void uct_ofi_probe_end(uct_ofi_peer_t *peer)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (peer->probe_fd >= 0) {
        (void)ucs_sys_setsockopt(peer->probe_fd, SOL_SOCKET, SO_LINGER, &at_once,
                                 sizeof(at_once));
        ucs_sys_close(peer->probe_fd);
        peer->probe_fd = -1;
    }
}

/* Starts a connection to where the peer listens, or aside of that, from where the messages come:
 * another way between the hosts proves nothing. It is closed again without a word. 0: no way leads
 * there; else no answer can be there yet. */
static int uct_ofi_probe_start(uct_ofi_peer_t *peer, int is_aside)
{
    const size_t own_length        = peer->iface->address_length - sizeof(uct_ofi_address_t);
    struct sockaddr_storage own    = {0};
    struct sockaddr_storage remote = {0};
    const int on                   = 1;
    const int mark                 = UCT_OFI_PROBE_MARK;
    int fd;

    memcpy(&remote, peer->where->raw, peer->where->length);
    if (is_aside) {
        ((struct sockaddr_in *)&remote)->sin_port = htons(UCT_OFI_PORT_ASIDE); /* of in6 too */
    }
    fd = ucs_sys_socket(remote.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) { /* tried again by the next look */
        return 1;
    }
    /* Else each would take a port from all others, wherever they lead. */
    (void)ucs_sys_setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    (void)ucs_sys_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));
    memcpy(&own, peer->iface->address + sizeof(uct_ofi_address_t), own_length);
    ((struct sockaddr_in *)&own)->sin_port = 0; /* of in6 too */
    if ((ucs_sys_bind(fd, (struct sockaddr *)&own, (socklen_t)own_length) != 0) ||
        ((ucs_sys_connect(fd, (struct sockaddr *)&remote, peer->where->length) != 0) &&
         (errno != EINPROGRESS) && (errno != ECONNREFUSED))) {
        ucs_debug("asking the kernel of a silent peer: %m");
        ucs_sys_close(fd);
        return 0;
    }
    peer->probe_fd  = fd;
    peer->is_aside  = (uint8_t)is_aside;
    peer->is_second = 0;
    return 1;
}

/* UCS_OK: the peer's process is there, or (aside) its host; UCS_INPROGRESS: no answer yet; else it
 * is not. */
static ucs_status_t uct_ofi_probe_result(uct_ofi_peer_t *peer)
{
    struct pollfd event = {peer->probe_fd, POLLOUT, 0};
    int error           = 0;
    socklen_t length    = sizeof(error);

    if (ucs_sys_poll(&event, 1, 0) != 1) {
        return UCS_INPROGRESS;
    }
    if (ucs_sys_getsockopt(peer->probe_fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
    }
    uct_ofi_probe_end(peer);
    if ((error == ECONNREFUSED) || (error == ECONNRESET)) {
        return peer->is_aside ? UCS_OK : UCS_ERR_CONNECTION_RESET;
    }
    return (error == 0) ? UCS_OK : UCS_INPROGRESS;
}

/* Where the peer listens the kernel keeps each question, closed or not, until the process accepts
 * it; once its queue is full it drops what comes, as a host does that is gone. So it is asked there
 * ever more seldom, but when the provider takes no words for the peer: it may have lost its
 * connection, which it does not tell when the process has died. */
static int uct_ofi_probe_is_aside(const uct_ofi_peer_t *peer)
{
    return ((peer->num_probes & (peer->num_probes - 1)) != 0) && /* not 0, 1, 2, 4, 8, ... */
           ((peer->say == 0) || (peer->num_under_way > 0));
}

/* ---- connections of the provider's ---- */

static uint16_t uct_ofi_port(const void *address)
{
    return ((const struct sockaddr_in *)address)->sin_port; /* in6 has it at the same place */
}

int uct_ofi_is_same_host(const struct sockaddr_storage *a, const void *address)
{
    const struct sockaddr_in6 *b = address;

    return (a->ss_family == b->sin6_family) &&
           ((a->ss_family == AF_INET6) ?
            (memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &b->sin6_addr,
                    sizeof(b->sin6_addr)) == 0) :
            (((const struct sockaddr_in *)a)->sin_addr.s_addr ==
             ((const struct sockaddr_in *)address)->sin_addr.s_addr));
}

/* Which connections with a peer are meant: those that we have made; also the one that it tells to
 * have made; also any that its host has. */
typedef enum {
    UCT_OFI_REACH_OURS,
    UCT_OFI_REACH_TOLD,
    UCT_OFI_REACH_HOST
} uct_ofi_reach_t;

/* A search among the descriptors of the process for those that lead to somebody. */
typedef struct {
    int                     fd;
    int                     end;
    struct sockaddr_storage remote; /* to whom this one leads */
} uct_ofi_search_t;

/* A search takes a call for each place that the process has for descriptors, hardly more than twice
 * what it has ever had open. /proc/self is of the first thread, which may have ended. Where no
 * descriptor is left to ask by, those below the limit are open. */
static uct_ofi_search_t uct_ofi_search(void)
{
    static const char field[] = "\nFDSize:\t";
    char text[1024]           = ""; /* the field is among the first */
    const char *place;
    size_t length;
    unsigned long end;

    (void)ucs_sys_read_file("/proc/thread-self/status", text, sizeof(text), &length);
    place = strstr(text, field);
    end   = (place != NULL) ? strtoul(place + sizeof(field) - 1, NULL, 10) :
                              ucs_min((unsigned long)sysconf(_SC_OPEN_MAX), UCT_OFI_FDS_MAX);
    return (uct_ofi_search_t){.fd = -1, .end = (int)end};
}

/* 0: there is no other. */
static int uct_ofi_search_next(uct_ofi_search_t *search, const uct_ofi_iface_t *iface)
{
    socklen_t length;

    while (++search->fd < search->end) {
        length = (socklen_t)(iface->address_length - sizeof(uct_ofi_address_t));
        if (ucs_sys_getsockopt(search->fd, SOL_SOCKET, SO_PEERNAME, &search->remote, &length) ==
            0) {
            return 1;
        }
    }
    return 0;
}

/* The port of our end. */
static in_port_t uct_ofi_local_port(int fd)
{
    struct sockaddr_storage local = {0};
    socklen_t length              = sizeof(local);

    (void)ucs_sys_getsockname(fd, (struct sockaddr *)&local, &length);
    return uct_ofi_port(&local);
}

/* Of any worker of the process. */
static int uct_ofi_is_probe(int fd)
{
    int mark         = 0;
    socklen_t length = sizeof(mark);

    (void)ucs_sys_getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &length);
    return mark == UCT_OFI_PROBE_MARK;
}

/* Is it a connection of the provider's with the peer? */
static int uct_ofi_is_connection(const uct_ofi_peer_t *peer, const uct_ofi_search_t *search,
                                 uct_ofi_reach_t reach)
{
    const uint8_t *own     = peer->iface->address + sizeof(uct_ofi_address_t);
    const in_port_t port   = uct_ofi_port(&search->remote);
    const int is_candidate = (reach == UCT_OFI_REACH_HOST) ||
                             ((reach == UCT_OFI_REACH_TOLD) && (peer->port != 0) &&
                              (port == htons(peer->port)));

    return uct_ofi_is_same_host(&search->remote, peer->where->raw) &&
           ((port == uct_ofi_port(peer->where->raw)) ||
            (is_candidate && (uct_ofi_local_port(search->fd) == uct_ofi_port(own)))) &&
           !uct_ofi_is_probe(search->fd);
}

uint16_t uct_ofi_own_port(const uct_ofi_peer_t *peer)
{
    uct_ofi_search_t search = uct_ofi_search();
    uint16_t port           = 0;

    while (uct_ofi_search_next(&search, peer->iface)) {
        if (!uct_ofi_is_connection(peer, &search, UCT_OFI_REACH_OURS)) {
            continue;
        }
        if (port != 0) {
            return 0; /* another worker's: we cannot tell which is ours */
        }
        port = ntohs(uct_ofi_local_port(search.fd));
    }
    return port;
}

/* TCP would go on for a quarter of an hour, and write to buffers of requests that have ended if the
 * host came back: ends the connections by which the provider still has something of ours, and
 * returns how many. It has no call for that, but ends its operations when its connection ends. */
static unsigned uct_ofi_cut(const uct_ofi_peer_t *peer, uct_ofi_reach_t reach)
{
    uct_ofi_search_t search;
    unsigned count = 0;

    if (!peer->iface->is_tcp || (peer->num_under_way == 0)) {
        return 0;
    }
    search = uct_ofi_search();
    while (uct_ofi_search_next(&search, peer->iface)) {
        if (uct_ofi_is_connection(peer, &search, reach)) {
            (void)ucs_sys_shutdown(search.fd, SHUT_RDWR);
            ++count;
        }
    }
    ucs_debug("%u connections with a peer that is given up are ended", count);
    return count;
}

static struct tcp_info uct_ofi_tcp_info(int fd)
{
    struct tcp_info info = {0};
    socklen_t length     = sizeof(info);

    (void)ucs_sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return info;
}

/* Does our kernel say something to the peer's again and again that has not answered for so long? A
 * host that is there acknowledges what its processes do not take, too. */
static int uct_ofi_is_unanswered(const uct_ofi_peer_t *peer, uint64_t waited_ns)
{
    uct_ofi_search_t search = uct_ofi_search();
    struct tcp_info info;

    while (uct_ofi_search_next(&search, peer->iface)) {
        if (uct_ofi_is_connection(peer, &search, UCT_OFI_REACH_HOST)) {
            info = uct_ofi_tcp_info(search.fd);
            if ((info.tcpi_retransmits > 0) &&
                ((info.tcpi_last_ack_recv * 1000000ull) >= waited_ns)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Has the kernel at the other end got all that was written to a socket? */
static int uct_ofi_is_delivered(int fd)
{
    const struct tcp_info info = uct_ofi_tcp_info(fd);

    return (info.tcpi_unacked == 0) && (info.tcpi_notsent_bytes == 0);
}

int uct_ofi_is_delivering(const uct_ofi_iface_t *iface, const uct_ofi_peer_t *only)
{
    const uct_ofi_peer_t *peer;
    uct_ofi_search_t search;
    int is_untaken = 0;

    ucs_list_for_each(peer, &iface->peers, list) {
        is_untaken |= (peer->tx_taken != peer->tx_count);
    }
    if (!is_untaken) {
        return 0;
    }
    search = uct_ofi_search();
    while (uct_ofi_search_next(&search, iface)) {
        ucs_list_for_each(peer, &iface->peers, list) {
            if (((only == NULL) || (peer == only)) && (peer->tx_taken != peer->tx_count) &&
                uct_ofi_is_connection(peer, &search, UCT_OFI_REACH_HOST) &&
                !uct_ofi_is_delivered(search.fd)) {
                return 1;
            }
        }
    }
    return 0;
}

/* ---- looking ---- */

static void uct_ofi_alive_judge(uct_ofi_peer_t *peer, uint64_t now_ns, uint64_t timeout_ns)
{
    uint64_t waited_ns  = now_ns - peer->asked_ns;
    uint64_t patient_ns = (timeout_ns * ((peer->num_probes == 0) ? 2 : 4)) / 10;
    ucs_status_t status = UCS_INPROGRESS;
    int is_begun        = 0; /* a question, just now: the last look may be long ago */

    if (peer->probe_fd >= 0) {
        status = uct_ofi_probe_result(peer);
        if ((status == UCS_INPROGRESS) && (waited_ns >= ((timeout_ns * 6) / 10)) &&
            !peer->is_second) {
            uct_ofi_probe_end(peer); /* a queue that is full, or a wall before the other port */
            is_begun        = uct_ofi_probe_start(peer, !peer->is_aside);
            peer->is_second = 1;
        }
    } else if (waited_ns < patient_ns) {
        return;
    } else if (peer->iface->is_tcp) {
        is_begun = uct_ofi_probe_start(peer, uct_ofi_probe_is_aside(peer));
    } else if (peer->is_reached) {
        status = UCS_OK;
    }
    if (is_begun && (peer->probe_fd < 0)) { /* no descriptor is left to ask by */
        is_begun = !uct_ofi_is_unanswered(peer, waited_ns);
        if (is_begun) { /* who cannot ask must not judge */
            peer->asked_ns = now_ns;
        }
    }
    if (((status == UCS_OK) || !peer->iface->is_tcp) && (peer->num_under_way == peer->num_rmas)) {
        /* The question may have been lost, or was no introduction, and came to who has forgotten
         * us. */
        uct_ofi_peer_say(peer, UCT_OFI_SAY_PING);
    }
    if (status == UCS_OK) {
        uct_ofi_alive_wait(peer, now_ns); /* it is there, and busy with something else */
        ++peer->num_probes;
    } else if (status != UCS_INPROGRESS) {
        uct_ofi_peer_fail(peer, status);
    } else if ((waited_ns >= ((timeout_ns * 8) / 10)) && !is_begun) {
        ucs_diag("a peer has not answered for %.1f s: it is given up", (double)waited_ns / 1e9);
        (void)uct_ofi_cut(peer, UCT_OFI_REACH_HOST); /* no other process lives there */
        uct_ofi_peer_fail(peer, UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

void uct_ofi_alive_blocked(uct_ofi_peer_t *peer)
{
    uct_ofi_iface_t *iface = peer->iface;

    if (!iface->is_tcp || !peer->is_known || (peer->asked_ns == 0) || (peer->num_probes > 0) ||
        (peer->num_under_way > 0) || (iface->num_busy == iface->num_sends)) {
        return;
    }
    if (peer->probe_fd < 0) {
        (void)uct_ofi_probe_start(peer, 0);
    } else {
        uct_ofi_alive_judge(peer, ucs_sys_clock_ns(), uct_ofi_config(iface)->timeout_ns);
    }
}

/* Is what has been missing for so many looks taken for lost? In a whole connection only after long.
 * In one that may have broken soon, as nobody would bring it any more; unless our kernel still has
 * something for the peer's, which it may bring again and again for longer than that. */
static int uct_ofi_is_long(const uct_ofi_peer_t *peer, unsigned looks)
{
    return (looks > UCT_OFI_GAPS_MAX) ||
           ((looks > UCT_OFI_GAPS_BROKEN) && (peer->num_doubtful > 0) &&
            (peer->tx_state != UCT_OFI_TX_OPENING) && !uct_ofi_is_delivering(peer->iface, peer));
}

/* Says what the network has lost on the way to or from a peer that is there, or NULL. A peer tells
 * with all that it says what it has taken: that it says something is asked for. Who says nothing
 * may only compute, though its memory can be read. */
static const char *uct_ofi_alive_loss(uct_ofi_peer_t *peer)
{
    int is_opening = (peer->tx_state == UCT_OFI_TX_OPENING);
    int is_untaken = is_opening ||
                     ((peer->tx_state >= UCT_OFI_TX_OPEN) && (peer->tx_taken != peer->tx_count) &&
                      (peer->tx_taken == peer->tx_looked));

    if (ucs_list_is_empty(&peer->early) || (peer->rx_count != peer->rx_looked)) {
        peer->num_gaps  = 0;
        peer->rx_looked = peer->rx_count;
    } else {
        ++peer->num_gaps;
    }
    if (!is_untaken) {
        peer->num_untaken = 0;
        peer->tx_looked   = peer->tx_taken;
    } else {
        /* What the provider still holds may wait behind more of that, unless a later question has
         * got through: `tcp;ofi_rxm` keeps a long message for ever whose connection breaks while it
         * is fetched. An introduction is the first. */
        peer->num_untaken += peer->has_spoken &&
                             (is_opening || peer->is_reached ||
                              (peer->num_under_way == peer->num_rmas));
    }
    peer->num_stuck += (peer->num_rmas > 0) && peer->is_heard;
    peer->num_doubtful -= (peer->num_doubtful > 0) && (peer->num_gaps == 0) && !is_untaken;
    return uct_ofi_is_long(peer, peer->num_gaps)    ? "a message of" :
           uct_ofi_is_long(peer, peer->num_untaken) ? "a message to" :
           (peer->num_stuck > UCT_OFI_GAPS_MAX)     ? "an operation with" : NULL;
}

/* ---- what nobody wants any more ---- */

int uct_ofi_asks_port(const uct_ofi_peer_t *peer)
{
    const uct_ofi_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if (ep->super.may_abandon) {
            return peer->iface->is_tcp;
        }
    }
    return 0;
}

void uct_ofi_op_give_up(uct_ofi_peer_t *peer, uct_ofi_op_t *op, int is_forced)
{
    if (!op->is_given_up) {
        op->is_given_up = 1;
        ++peer->num_given_up;
        peer->num_idle = 0;
    }
    if (is_forced && !op->is_forced) {
        op->is_forced = 1;
        ++peer->num_forced;
        peer->num_idle = 0;
    }
    uct_ofi_peer_say(peer, 0); /* what the provider does not have ends by the peer's next turn */
}

void uct_ofi_op_given_back(uct_ofi_peer_t *peer, uct_ofi_op_t *op)
{
    peer->num_given_up -= (unsigned)op->is_given_up;
    peer->num_forced   -= (unsigned)op->is_forced;
    peer->num_idle      = 0; /* it does take something */
    op->is_given_up     = 0;
    op->is_forced       = 0;
}

/* A peer that lives and takes nothing may keep the user's memory for ever. After a failure, which
 * most often ends operations by itself, it has about as long as for an answer; where the user has
 * given up, two looks. Where no connection is known as its, or that was not the one, the user's
 * word ends all of its host's then. */
static void uct_ofi_given_up_look(uct_ofi_peer_t *peer)
{
    const unsigned due  = (peer->num_forced > 0) ? UCT_OFI_LOOKS_FORCED : UCT_OFI_LOOKS_FAILED;
    const unsigned last = due + (peer->has_cut ? UCT_OFI_LOOKS_CUT : 1);
    unsigned count;

    if ((peer->num_given_up == 0) || !peer->iface->is_tcp || (peer->num_idle >= last)) {
        return;
    }
    if (++peer->num_idle == due) {
        count         = uct_ofi_cut(peer, UCT_OFI_REACH_TOLD);
        peer->has_cut = (count > 0);
    } else if ((peer->num_idle == last) && (peer->num_forced > 0)) {
        count = uct_ofi_cut(peer, UCT_OFI_REACH_HOST);
    } else {
        return;
    }
    ucs_diag("%u operations that were given up do not end: %u connections are", peer->num_given_up,
             count);
    if ((count > 0) || (peer->num_idle == last)) {
        uct_ofi_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
    }
}

void uct_ofi_alive_look(uct_ofi_iface_t *iface, uint64_t now_ns)
{
    uint64_t timeout_ns = uct_ofi_config(iface)->timeout_ns;
    uint64_t gap_ns     = now_ns - iface->look_ns;
    uct_ofi_peer_t *peer, *next;
    const char *loss;

    if (gap_ns < uct_ofi_alive_interval(iface)) {
        return;
    }
    iface->look_ns = now_ns;
    uct_ofi_receives_look(iface, now_ns);
    ucs_list_for_each(peer, &iface->lost, list) {
        uct_ofi_given_up_look(peer);
    }
    ucs_list_for_each_safe(peer, next, &iface->peers, list) {
        uct_ofi_given_up_look(peer);
        if ((peer->status != UCS_OK) || !uct_ofi_is_connected(peer)) {
            continue;
        }
        loss = uct_ofi_alive_loss(peer);
        if (loss != NULL) {
            ucs_log((iface->super.params.lead != NULL) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                    "the network has lost %s a peer that is there: it is given up", loss);
            (void)uct_ofi_cut(peer, UCT_OFI_REACH_OURS);
            uct_ofi_peer_fail(peer, UCS_ERR_IO_ERROR);
            continue;
        }
        if (peer->asked_ns != 0) {
            /* It is we who were away: its answer may lie here. Where we always are, its kernel can
             * be judged all the same, which one look asks and which has answered by the next. */
            if ((gap_ns > (timeout_ns / 2)) && !(peer->was_away && iface->is_tcp)) {
                peer->asked_ns = now_ns;
                peer->was_away = 1;
            }
            uct_ofi_alive_judge(peer, now_ns, timeout_ns);
        } else if (!peer->is_heard || (peer->num_untaken > 0) ||
                   (peer->tx_state == UCT_OFI_TX_OPENING)) {
            uct_ofi_alive_ask(peer, UCT_OFI_SAY_PING);
        }
        if ((peer->tx_state == UCT_OFI_TX_OPEN) && !peer->has_asked && uct_ofi_asks_port(peer)) {
            uct_ofi_peer_say(peer, UCT_OFI_SAY_PING);
        }
        if ((peer->tx_state == UCT_OFI_TX_OPENING) && (peer->status == UCS_OK)) {
            uct_ofi_peer_say(peer, UCT_OFI_SAY_HELLO); /* it may have got lost */
        }
        if ((peer->num_untaken > 1) && peer->is_bye_said && (peer->status == UCS_OK)) {
            uct_ofi_peer_say(peer, UCT_OFI_SAY_BYE);
        }
        if (peer->is_unwanted && peer->rx_open) {
            uct_ofi_peer_say(peer, UCT_OFI_SAY_DROP);
        }
        peer->is_heard   = 0;
        peer->has_spoken = 0;
    }
}
