/* Halyard: mm: the sending end of connections.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_socket.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <string.h>

static void uct_mm_connect_ended(uct_mm_iface_t *iface, uct_mm_ep_t *ep)
{
    iface->num_connecting -= ep->is_connecting;
    ep->is_connecting      = 0;
    ucs_list_del(&ep->retry);
}

void uct_mm_disconnect(uct_ep_t *tl_ep)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_ep->iface);
    uct_mm_ep_t *ep       = uct_mm_ep(tl_ep);

    uct_mm_connect_ended(iface, ep);
    iface->side.num_writers -= ep->is_writing;
    ep->is_writing           = 0;
    uct_mm_socket_close(iface, &ep->source);
}

/* Did the peer say why it does not want us? */
static int uct_mm_welcome_is_refusal(const uct_mm_welcome_t *welcome, ssize_t length)
{
    if ((length < (ssize_t)offsetof(uct_mm_welcome_t, num_segments)) ||
        (welcome->head.magic != UCT_SOCKET_MAGIC) ||
        (welcome->head.version != UCT_SOCKET_VERSION) ||
        (welcome->head.type != UCT_SOCKET_WELCOME) || (welcome->status == UCS_OK)) {
        return 0;
    }
    if (welcome->status == UCS_ERR_EXCEEDS_LIMIT) {
        ucs_warn("a peer on this node refused the connection: its rings take shorter messages "
                 "than ours (set UCX_MM_FIFO_SIZE and UCX_MM_SEG_SIZE alike everywhere), or it has "
                 "no file descriptor left (ulimit -n)");
    } else {
        ucs_diag("a peer on this node refused the connection: %s",
                 ucs_status_string((ucs_status_t)welcome->status));
    }
    return 1;
}

/* Our greeting could not be sent: a peer that has no descriptor left refuses before it comes. */
static ucs_status_t uct_mm_hello_status(int fd)
{
    const int error = errno;
    uct_mm_welcome_t welcome;
    ssize_t length;

    if (error == EPIPE) {
        length = uct_socket_recv(fd, &welcome, sizeof(welcome), NULL, NULL);
        if (uct_mm_welcome_is_refusal(&welcome, length)) {
            return UCS_ERR_REJECTED;
        }
    }
    ucs_diag("failed to greet a peer: %s", strerror(error));
    return uct_mm_socket_status(error);
}

static ucs_status_t uct_mm_ep_hello(uct_mm_iface_t *iface, uct_mm_ep_t *ep)
{
    const uct_mm_md_t *md = uct_mm_md(iface->super.md);
    uct_mm_hello_t hello;

    if (!uct_socket_is_ours(ep->source.fd)) {
        ucs_error("the peer's socket belongs to another user");
        return UCS_ERR_UNREACHABLE;
    }

    memset(&hello, 0, sizeof(hello));
    hello.head.magic   = UCT_SOCKET_MAGIC;
    hello.head.version = UCT_SOCKET_VERSION;
    hello.head.type    = UCT_SOCKET_HELLO;
    hello.message_max  = md->message_max;
    ucs_sys_get_cpus(&hello.cpus);
    memcpy(hello.uid, iface->super.params.uid, UCT_UID_LEN);
    memcpy(hello.expected, ep->super.peer_uid, UCT_UID_LEN);
    if ((uct_mm_socket_say(ep->source.fd, &hello, sizeof(hello)) != UCS_OK) ||
        (uct_mm_socket_watch(iface, &ep->source) != 0)) {
        return uct_mm_hello_status(ep->source.fd);
    }
    return UCS_INPROGRESS;
}

/* UCS_INPROGRESS: under way, or the peer's queue is full and the endpoint is among the retries. */
static ucs_status_t uct_mm_ep_try(uct_mm_iface_t *iface, uct_mm_ep_t *ep)
{
    const uct_mm_md_t *md = uct_mm_md(iface->super.md);
    struct sockaddr_un address;
    socklen_t length = uct_socket_address(uct_mm_socket_dir(md), ep->place, ep->name, &address);
    ucs_status_t status;
    int is_refused;

    if (ucs_sys_connect(ep->source.fd, (struct sockaddr *)&address, length) == 0) {
        ucs_list_del(&ep->retry);
        return uct_mm_ep_hello(iface, ep);
    }
    if (errno == EAGAIN) {
        if (ucs_list_is_empty(&ep->retry)) {
            ucs_list_add_tail(&iface->retries, &ep->retry);
        }
        return UCS_INPROGRESS;
    }
    status     = uct_mm_socket_status(errno);
    is_refused = (errno == ECONNREFUSED);
    ucs_diag("failed to connect to a peer on this node: %m");
    if (is_refused) {
        uct_mm_socket_unlink(md, ep->place, ep->name); /* its owner was killed */
    }
    return status;
}

ucs_status_t uct_mm_connect_start(uct_ep_t *tl_ep)
{
    uct_mm_iface_t *iface = uct_mm_iface(tl_ep->iface);
    uct_mm_ep_t *ep       = uct_mm_ep(tl_ep);
    ucs_status_t status;

    ep->source.fd = uct_socket_create();
    if (ep->source.fd < 0) {
        ucs_error("failed to make a socket to reach a peer on this node: %m");
        return uct_mm_socket_status(errno);
    }

    status = uct_mm_ep_try(iface, ep);
    if (status == UCS_INPROGRESS) {
        ++iface->num_connecting;
        ep->is_connecting = 1;
        uct_mm_connect_hurry(iface);
    }
    return status;
}

void uct_mm_connect_end(uct_ep_t *tl_ep)
{
    uct_mm_ep_t *ep = uct_mm_ep(tl_ep);
    unsigned i;

    uct_mm_disconnect(tl_ep);
    for (i = 0; i < ucs_array_size(ep->segments); ++i) {
        if (ep->segments[i] != NULL) {
            uct_mm_segment_put(ep->segments[i]);
        }
    }
}

static uct_mm_area_t uct_mm_welcome_area(const uct_mm_welcome_t *welcome)
{
    return welcome->is_small ? UCT_MM_AREA_SMALL : UCT_MM_AREA_USUAL;
}

/* Does the segment of buffers have an area there? */
static int uct_mm_welcome_has_area(const uct_mm_welcome_t *welcome, uint64_t offset,
                                   uct_mm_area_t area)
{
    const uct_mm_ring_shape_t shape = {welcome->lines, welcome->quantum};
    const uint64_t length           = welcome->buffers_length;

    return ((offset % UCT_MM_LINE_SIZE) == 0) && (offset <= length) &&
           ((length - offset) >= uct_mm_ring_buffers_size(&shape, area));
}

/* The numbers make sense; segments are checked when they are mapped. */
static int uct_mm_welcome_is_valid(const uct_mm_iface_t *iface, const uct_mm_welcome_t *welcome,
                                   ssize_t length)
{
    const uct_mm_md_t *md           = uct_mm_md(iface->super.md);
    const uct_mm_ring_shape_t shape = {welcome->lines, welcome->quantum};
    uint64_t in_segment;
    unsigned i;

    if ((length != sizeof(*welcome)) || (welcome->num_segments < 1) ||
        (welcome->num_segments > 2) || !uct_mm_ring_shape_is_valid(&shape) ||
        (uct_mm_ring_message_max(&shape) < md->message_max)) {
        return 0;
    }
    for (i = 0; i < welcome->num_segments; ++i) {
        if (!uct_mm_backing_list_has(&md->backings,
                                     (uct_mm_backing_t)welcome->segments[i].backing)) {
            return 0;
        }
    }

    if ((welcome->buffers_length > 0) &&
        ((welcome->segments[0].backing != UCT_MM_BACKING_MEMFD) ||
         !uct_mm_welcome_has_area(welcome, welcome->buffers_offset, uct_mm_welcome_area(welcome)) ||
         ((welcome->wide_offset > 0) &&
          !uct_mm_welcome_has_area(welcome, welcome->wide_offset, UCT_MM_AREA_WIDE)))) {
        return 0;
    }
    in_segment = welcome->segments[welcome->num_segments - 1].length;
    return (welcome->segments[0].length >= sizeof(uct_mm_main_t)) &&
           ((welcome->offset % UCT_MM_LINE_SIZE) == 0) && (welcome->offset <= in_segment) &&
           ((in_segment - welcome->offset) >= uct_mm_ring_size(&shape));
}

/* Maps what came with the welcome. The descriptors are gone afterwards. */
static ucs_status_t uct_mm_welcome_map(uct_mm_ep_t *ep, const uct_mm_welcome_t *welcome,
                                       const int *fds, unsigned num_fds)
{
    const uct_mm_ring_shape_t shape = {welcome->lines, welcome->quantum};
    const size_t thresh             = uct_mm_buffer_thresh(ep->super.iface->md);
    const uct_mm_wire_segment_t *wire;
    ucs_status_t status = UCS_OK;
    unsigned used       = 0;
    uint8_t *ring, *buffers;
    unsigned i;
    int fd;

    for (i = 0; (i < welcome->num_segments) && (status == UCS_OK); ++i) {
        wire = &welcome->segments[i];
        fd   = -1;
        if (wire->backing != UCT_MM_BACKING_SYSV) {
            if (used == num_fds) {
                ucs_warn("no file descriptor is left to map the memory of a peer (ulimit -n)");
                return UCS_ERR_EXCEEDS_LIMIT;
            }
            fd = fds[used++];
        }
        status = uct_mm_segment_attach((uct_mm_backing_t)wire->backing, fd, wire->shmid,
                                       wire->length, &ep->segments[i]);
    }
    /* Without the buffers there is the ring. */
    if ((status == UCS_OK) && (welcome->buffers_length > 0) && (used < num_fds) &&
        (thresh != UCS_CONFIG_INF_SIZE)) {
        (void)uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, fds[used++], -1, welcome->buffers_length,
                                    &ep->segments[2]);
    }
    while (used < num_fds) {
        ucs_sys_close(fds[used++]);
    }
    if (status != UCS_OK) {
        return status;
    }

    ep->main = ep->segments[0]->address;
    if ((ep->main->magic != UCT_MM_MAIN_MAGIC) ||
        (memcmp(ep->main->uid, ep->super.peer_uid, UCT_UID_LEN) != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }

    ring = (uint8_t *)ep->segments[welcome->num_segments - 1]->address + welcome->offset;
    (void)ucs_sys_populate(ring, uct_mm_ring_size(&shape), 1); /* else each page is a fault */
    uct_mm_writer_init(&ep->writer, ring, &shape, &uct_mm_iface(ep->super.iface)->side);
    if (ep->segments[2] != NULL) {
        buffers = (uint8_t *)ep->segments[2]->address + welcome->buffers_offset;
        uct_mm_writer_use_buffers(&ep->writer, buffers, &shape, uct_mm_welcome_area(welcome),
                                  thresh);
        if (welcome->wide_offset > 0) {
            uct_mm_buffers_init(&ep->writer.wide, (uint8_t *)ep->segments[2]->address +
                                welcome->wide_offset, &shape, UCT_MM_AREA_WIDE);
        }
    }
    ep->wake = &ep->main->wake;
    return UCS_OK;
}

static void uct_mm_ep_welcome(uct_mm_iface_t *iface, uct_mm_ep_t *ep)
{
    unsigned num_fds = 0;
    uct_mm_welcome_t welcome;
    cpu_set_t own;
    ucs_status_t status;
    ssize_t length;
    unsigned i;
    int fds[UCT_SOCKET_FDS_MAX];

    memset(&welcome, 0, sizeof(welcome));
    length = uct_socket_recv(ep->source.fd, &welcome, sizeof(welcome), fds, &num_fds);
    if ((length < 0) && (errno == ECONNRESET)) {
        /* It has closed without reading our greeting; what it said before is behind the error. */
        length = uct_socket_recv(ep->source.fd, &welcome, sizeof(welcome), fds, &num_fds);
    }
    if (length <= 0) {
        if ((length == 0) || (errno != EAGAIN)) {
            uct_ep_set_failed(&ep->super, UCS_ERR_CONNECTION_RESET);
        }
        return;
    }

    if (uct_mm_welcome_is_refusal(&welcome, length)) {
        status = UCS_ERR_REJECTED;
    } else if ((welcome.head.magic != UCT_SOCKET_MAGIC) ||
               (welcome.head.version != UCT_SOCKET_VERSION) ||
               !uct_mm_welcome_is_valid(iface, &welcome, length)) {
        ucs_diag("a peer on this node answered what is not understood");
        status = UCS_ERR_UNSUPPORTED;
    } else {
        status  = uct_mm_welcome_map(ep, &welcome, fds, num_fds);
        num_fds = 0;
        if (status != UCS_OK) {
            ucs_diag("failed to map the memory of a peer: %s", ucs_status_string(status));
        }
    }
    for (i = 0; i < num_fds; ++i) {
        ucs_sys_close(fds[i]);
    }

    if (status != UCS_OK) {
        uct_ep_set_failed(&ep->super, status);
        return;
    }
    uct_mm_connect_ended(iface, ep);
    ++iface->side.num_writers;
    ep->is_writing = 1;
    ucs_sys_get_cpus(&own);
    ep->is_rival = uct_mm_is_rival(&own, &welcome.cpus);
    ep->is_near  = uct_mm_is_near(iface, &own, &welcome.cpus);
    uct_ep_set_live(&ep->super);
}

ucs_status_t uct_mm_connect_check(uct_ep_t *ep)
{
    if (uct_mm_socket_is_ended(uct_mm_ep(ep)->source.fd)) {
        uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
    }
    return UCS_OK; /* the report comes from progress */
}

unsigned uct_mm_ep_event(uct_mm_iface_t *iface, uct_mm_ep_t *ep)
{
    if (ep->super.state == UCT_EP_CONNECTING) {
        uct_mm_ep_welcome(iface, ep);
        return ep->super.state != UCT_EP_CONNECTING;
    }
    if (uct_mm_socket_drain(ep->source.fd)) {
        return 0;
    }
    uct_ep_set_failed(&ep->super, UCS_ERR_CONNECTION_RESET);
    return 1;
}

void uct_mm_retries_run(uct_mm_iface_t *iface)
{
    uct_mm_ep_t *ep, *tmp;
    ucs_status_t status;

    ucs_list_for_each_safe(ep, tmp, &iface->retries, retry) {
        status = uct_mm_ep_try(iface, ep);
        if (status != UCS_INPROGRESS) {
            uct_ep_set_failed(&ep->super, status);
        }
    }
}
