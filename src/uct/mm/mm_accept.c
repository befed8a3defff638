/* Halyard: mm: the receiving end of connections: who may write into our rings, and who is gone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_socket.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>
#include <string.h>

/* Connections accepted at a time. */
#define UCT_MM_ACCEPT_TURN 16

/* What is due that one poll says. */
#define UCT_MM_DUE_TURN 16

void uct_mm_peer_free(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    if (peer->block != NULL) {
        uct_mm_rings_remove(iface, peer);
    }
    if (*iface->super.params.sender == peer->uid) {
        *iface->super.params.sender = NULL;
    }
    uct_mm_socket_close(iface, &peer->source);
    ucs_list_del(&peer->list);
    ucs_sys_free(peer);
}

static void uct_mm_welcome_init(uct_mm_welcome_t *welcome, ucs_status_t status)
{
    memset(welcome, 0, sizeof(*welcome));
    welcome->head.magic   = UCT_SOCKET_MAGIC;
    welcome->head.version = UCT_SOCKET_VERSION;
    welcome->head.type    = UCT_SOCKET_WELCOME;
    welcome->status       = status;
}

static void uct_mm_welcome_add(uct_mm_welcome_t *welcome, const uct_mm_segment_t *segment, int *fds,
                               unsigned *num_fds)
{
    uct_mm_wire_segment_t *wire = &welcome->segments[welcome->num_segments++];

    wire->length  = segment->length;
    wire->shmid   = segment->shmid;
    wire->backing = segment->backing;
    if (segment->fd >= 0) {
        fds[(*num_fds)++] = segment->fd;
    }
}

/* Who speaks, and is it us that it wants? */
static ucs_status_t uct_mm_hello_check(const uct_mm_iface_t *iface, const uct_mm_hello_t *hello,
                                       ssize_t length)
{
    const uct_mm_ring_shape_t *shape = &uct_mm_md(iface->super.md)->shape;

    if ((length != sizeof(*hello)) || (hello->head.magic != UCT_SOCKET_MAGIC) ||
        (hello->head.type != UCT_SOCKET_HELLO)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (hello->head.version != UCT_SOCKET_VERSION) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (memcmp(hello->expected, iface->super.params.uid, UCT_UID_LEN) != 0) {
        return UCS_ERR_INVALID_ADDR;
    }
    if (hello->message_max > uct_mm_ring_message_max(shape)) {
        return UCS_ERR_EXCEEDS_LIMIT; /* our FIFO_SIZE is smaller than the sender's */
    }
    return UCS_OK;
}

static void uct_mm_peer_refuse(int fd, ucs_status_t status)
{
    uct_mm_welcome_t welcome;

    uct_mm_welcome_init(&welcome, status);
    (void)uct_socket_send(fd, &welcome, sizeof(welcome), NULL, 0);
}

/* Says WELCOME to a peer that has a ring; see uct_socket_send. */
static ucs_status_t uct_mm_peer_welcome(uct_mm_iface_t *iface, const uct_mm_peer_t *peer)
{
    const uct_mm_ring_shape_t *shape = &uct_mm_md(iface->super.md)->shape;
    const uct_mm_reader_t *reader    = &peer->reader;
    uct_mm_segment_t *main           = uct_mm_rings_main(iface)->segment;
    unsigned num_fds                 = 0;
    const uint8_t *start;
    uct_mm_welcome_t welcome;
    int fds[UCT_SOCKET_FDS_MAX];

    uct_mm_welcome_init(&welcome, UCS_OK);
    ucs_sys_get_cpus(&welcome.cpus);
    uct_mm_welcome_add(&welcome, main, fds, &num_fds);
    if (peer->block->segment != main) {
        uct_mm_welcome_add(&welcome, peer->block->segment, fds, &num_fds);
    }
    if (peer->buffers >= 0) {
        start                  = iface->buffers->address;
        fds[num_fds++]         = iface->buffers->fd;
        welcome.buffers_length = iface->buffers->length;
        welcome.buffers_offset = (size_t)(reader->buffers.address - start);
        welcome.wide_offset    = (reader->wide.long_max > 0) ?
                                 (size_t)(reader->wide.address - start) : 0;
        welcome.is_small       = uct_mm_buffers_area(iface, (unsigned)peer->buffers) ==
                                 UCT_MM_AREA_SMALL;
    }
    welcome.lines   = shape->lines;
    welcome.quantum = shape->quantum;
    welcome.offset  = peer->block->first + (peer->index * uct_mm_ring_size(shape));
    return uct_socket_send(peer->source.fd, &welcome, sizeof(welcome), fds, num_fds);
}

/* Reads the first datagram of a connection. UCS_OK: an answer is due, or the peer has a ring, and
 * WELCOME is; another but UCS_INPROGRESS: the connection is of no use. */
static ucs_status_t uct_mm_peer_greet(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    uct_mm_hello_t hello;
    cpu_set_t own;
    ucs_status_t status;
    ssize_t length;

    length = uct_socket_recv(peer->source.fd, &hello, sizeof(hello), NULL, NULL);
    if (length <= 0) {
        return ((length < 0) && (errno == EAGAIN)) ? UCS_INPROGRESS : UCS_ERR_CONNECTION_RESET;
    }

    peer->is_asking = uct_descriptor_hear(&hello, (size_t)length, &peer->question);
    if (peer->is_asking) {
        return UCS_OK;
    }

    status = uct_mm_hello_check(iface, &hello, length);
    if (status == UCS_OK) {
        memcpy(peer->uid, hello.uid, UCT_UID_LEN);
        ucs_sys_get_cpus(&own);
        peer->is_rival = uct_mm_is_rival(&own, &hello.cpus);
        status         = uct_mm_rings_add(iface, peer);
    }
    if (status != UCS_OK) {
        uct_mm_peer_refuse(peer->source.fd, status);
    }
    return status;
}

/* Makes a new connection known. */
static void uct_mm_peer_accept(uct_mm_iface_t *iface, int fd)
{
    uct_mm_peer_t *peer;

    peer = ucs_sys_memalign(UCT_MM_LINE_SIZE, sizeof(*peer));
    if ((peer == NULL) || !uct_socket_is_ours(fd)) {
        ucs_debug("a connection was refused: %s", (peer == NULL) ? "no memory" : "another user's");
        ucs_sys_free(peer);
        ucs_sys_close(fd);
        return;
    }

    memset(peer, 0, sizeof(*peer));
    peer->source.kind = UCT_MM_SOURCE_PEER;
    peer->source.fd   = fd;
    ucs_list_add_tail(&iface->greeting, &peer->list);
    if (uct_mm_socket_watch(iface, &peer->source) != 0) {
        ucs_error("failed to watch a connection: %m");
        uct_mm_peer_free(iface, peer);
    }
}

/* No descriptor is left: gives up the spare one to tell one peer so, since the kernel would go on
 * reporting it for ever. */
static int uct_mm_listen_refuse(uct_mm_iface_t *iface)
{
    uct_mm_hello_t hello;
    int fd;

    ucs_warn_once("no file descriptor left for connections of peers (%m): each takes two "
                  "(ulimit -n)");
    if (iface->spare_fd < 0) {
        return 0;
    }

    ucs_sys_close(iface->spare_fd);
    fd = ucs_sys_accept4(iface->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        (void)uct_socket_recv(fd, &hello, sizeof(hello), NULL, NULL);
        uct_mm_peer_refuse(fd, UCS_ERR_EXCEEDS_LIMIT);
        ucs_sys_close(fd);
    }
    iface->spare_fd = ucs_sys_fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0;
}

unsigned uct_mm_listen_event(uct_mm_iface_t *iface)
{
    unsigned count = 0;
    int fd;

    if (iface->spare_fd < 0) { /* another thread was quicker to take it when it was used */
        iface->spare_fd = ucs_sys_fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
    }
    while (count < UCT_MM_ACCEPT_TURN) {
        fd = ucs_sys_accept4(iface->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            uct_mm_peer_accept(iface, fd);
        } else if (errno == EAGAIN) {
            break;
        } else if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) ||
                   (errno == ENOBUFS)) {
            if (!uct_mm_listen_refuse(iface)) {
                break;
            }
        } /* else: that peer is gone again */
        ++count;
    }
    return count;
}

void uct_mm_peer_break(uct_mm_peer_t *peer, int discard)
{
    if (discard) {
        uct_mm_reader_silence(&peer->reader);
    }
    ucs_sys_shutdown(peer->source.fd, SHUT_WR);
}

int uct_mm_iface_drop_peer(uct_iface_t *tl_iface, const uint8_t uid[UCT_UID_LEN], int discard)
{
    uct_mm_iface_t *iface          = uct_mm_iface(tl_iface);
    const ucs_list_link_t *lists[] = {&iface->due, &iface->peers};
    int is_there                   = 0;
    uct_mm_peer_t *peer;
    unsigned i;

    for (i = 0; i < ucs_array_size(lists); ++i) {
        ucs_list_for_each(peer, lists[i], list) {
            if (memcmp(peer->uid, uid, UCT_UID_LEN) == 0) {
                uct_mm_peer_break(peer, discard);
                is_there = 1;
            }
        }
    }
    ucs_list_for_each(peer, &iface->gone, list) {
        if (memcmp(peer->uid, uid, UCT_UID_LEN) == 0) {
            if (discard) {
                uct_mm_reader_silence(&peer->reader);
            }
            is_there = 1;
        }
    }
    return is_there;
}

/* The end of a connection on which something was said. */
static void uct_mm_peer_end(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    if (peer->is_asking) {
        uct_mm_peer_free(iface, peer);
    } else {
        uct_mm_socket_close(iface, &peer->source);
        ucs_list_del(&peer->list);
        ucs_list_add_tail(&iface->gone, &peer->list);
    }
}

/* Says what is due to a peer. Returns 0 if that cannot be sent yet: the peer keeps its ring and its
 * turn. */
static unsigned uct_mm_due_tell(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    const ucs_status_t status = peer->is_asking ?
                                uct_descriptor_answer(peer->source.fd, &peer->question) :
                                uct_mm_peer_welcome(iface, peer);

    if (status == UCS_ERR_NO_RESOURCE) {
        ucs_diag_once("peers wait for descriptors that cannot be sent yet: %m");
        return 0;
    }
    if (status == UCS_OK) {
        ucs_list_del(&peer->list);
        ucs_list_add_tail(peer->is_asking ? &iface->greeting : &iface->peers, &peer->list);
    } else { /* it writes into no ring that it knows nothing of */
        ucs_debug("a connection has ended before its welcome or answer: %m");
        uct_mm_peer_end(iface, peer);
    }
    return 1;
}

/* In order: where the kernel refuses one it refuses all, as nothing else is under way on these
 * connections. */
unsigned uct_mm_due_run(uct_mm_iface_t *iface)
{
    unsigned count = 0;

    while ((count < UCT_MM_DUE_TURN) && !ucs_list_is_empty(&iface->due) &&
           uct_mm_due_tell(iface, ucs_list_head(&iface->due, uct_mm_peer_t, list))) {
        ++count;
    }
    return count;
}

unsigned uct_mm_peer_event(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    ucs_status_t status;

    if ((peer->block != NULL) || peer->is_asking) {
        if (uct_mm_socket_drain(peer->source.fd)) {
            return 0;
        }
        uct_mm_peer_end(iface, peer);
        return 1;
    }

    if (!ucs_list_is_empty(&iface->gone)) {
        return 0; /* it may be one of those: their end is reported first */
    }
    status = uct_mm_peer_greet(iface, peer);
    if (status == UCS_INPROGRESS) {
        return 0;
    }
    if (status != UCS_OK) {
        ucs_debug("a connection was refused: %s", ucs_status_string(status));
        uct_mm_peer_free(iface, peer);
        return 1;
    }
    ucs_list_del(&peer->list);
    ucs_list_add_tail(&iface->due, &peer->list);
    if (ucs_list_head(&iface->due, uct_mm_peer_t, list) == peer) { /* else others are first */
        (void)uct_mm_due_tell(iface, peer);
    }
    return 1;
}

static int uct_mm_peer_has_another(const uct_mm_iface_t *iface, const uct_mm_peer_t *peer)
{
    const ucs_list_link_t *lists[] = {&iface->due, &iface->peers, &iface->gone};
    const uct_mm_peer_t *other;
    unsigned i;

    for (i = 0; i < ucs_array_size(lists); ++i) {
        ucs_list_for_each(other, lists[i], list) {
            if ((other != peer) && (memcmp(other->uid, peer->uid, UCT_UID_LEN) == 0)) {
                return 1;
            }
        }
    }
    return 0;
}

/* All that a peer which is gone has left in its ring, where no more messages are than lines. */
static unsigned uct_mm_gone_drain(uct_mm_iface_t *iface, uct_mm_peer_t *peer)
{
    const uint32_t lines = uct_mm_md(iface->super.md)->shape.lines;
    unsigned count       = 0;
    unsigned delivered;

    peer->reader.attention = 0;
    while ((count < lines) && uct_mm_reader_ready(&peer->reader)) {
        *iface->super.params.sender = peer->uid;
        delivered = uct_mm_reader_receive(&peer->reader, &iface->super, lines - count);
        if (delivered == 0) {
            break;
        }
        count += delivered;
    }
    return count;
}

/* Delivers what the gone have left behind, then reports them. */
unsigned uct_mm_gone_report(uct_mm_iface_t *iface)
{
    uint8_t uid[UCT_UID_LEN];
    unsigned count = 0;
    uct_mm_peer_t *peer;
    int is_last;

    while (!ucs_list_is_empty(&iface->gone)) {
        peer   = ucs_list_head(&iface->gone, uct_mm_peer_t, list);
        count += uct_mm_gone_drain(iface, peer);
        if ((peer->reader.attention & UCT_MM_READER_NO_MEMORY) != 0) {
            break; /* there is more, for a later call */
        }

        is_last = !uct_mm_peer_has_another(iface, peer);
        memcpy(uid, peer->uid, UCT_UID_LEN);
        uct_mm_peer_free(iface, peer);
        ++count;
        if (is_last && (iface->super.params.peer_gone != NULL)) {
            iface->super.params.peer_gone(iface->super.params.arg, uid);
        }
    }
    return count;
}
