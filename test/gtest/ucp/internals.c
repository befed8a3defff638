/* Halyard: what the tests of ucp must see of its inside.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "internals.h"

#include <ucp/core/ep.h>
#include <ucp/core/idle.h>
#include <ucp/core/rkey.h>
#include <ucp/ops/kept.h>
#include <ucp/ops/tag_match.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/sys/sys.h>

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- workers and endpoints ---- */

size_t ucp_test_thresholds(ucp_ep_h ep, size_t *sizes, size_t max)
{
    const ucp_proto_config_t *proto = ep->peer->proto;
    size_t count                    = 0;
    unsigned i;

    for (i = 0; (i < proto->num_send) && (count < max); ++i) {
        sizes[count++] = proto->send[i].max;
    }
    for (i = 0; (i < proto->num_recv) && (count < max); ++i) {
        sizes[count++] = proto->recv[i].max;
    }
    if (count < max) {
        sizes[count++] = proto->eager_max;
    }
    return count;
}

const char *ucp_test_protocol(ucp_ep_h ep, size_t length)
{
    return ucp_proto_names[ucp_proto_lookup(ep->peer->proto->send, length)];
}

unsigned ucp_test_num_requests(ucp_worker_h worker)
{
    return ucs_mpool_num_used(&worker->requests);
}

void ucp_test_hide_workers(int change)
{
    ucp_idle_count_workers(-change);
}

void ucp_test_look_always(ucp_worker_h worker)
{
    worker->host_base          = 0;
    worker->device.data.length = 0;
    worker->device.trust       = 0;
}

int ucp_test_was_handed(void *request)
{
    const ucp_request_t *req = ucp_request_of(request);

    return ucp_request_is_send(req) &&
           (req->send.is_handed || (req->send.flush_sn != req->send.sn));
}

int ucp_test_is_amid(void *request)
{
    const ucp_request_t *req = ucp_request_of(request);

    return (req->kind == UCP_REQUEST_TAG_RECV) && (req->recv.step != UCP_RECV_POSTED);
}

unsigned ucp_test_num_controls(ucp_worker_h worker)
{
    return ucs_mpool_num_used(&worker->controls);
}

unsigned ucp_test_num_kept(ucp_worker_h worker)
{
    return (unsigned)worker->tag_match.num_unexpected;
}

size_t ucp_test_unexp_bytes(ucp_worker_h worker)
{
    return worker->unexp_bytes;
}

int ucp_test_is_holding(ucp_ep_h ep)
{
    return ep->peer->is_holding;
}

unsigned ucp_test_num_kept_data(ucp_worker_h worker)
{
    return (unsigned)ucs_list_length(&worker->kept);
}

size_t ucp_test_kept_bytes(ucp_worker_h worker)
{
    size_t bytes = 0;
    ucp_kept_t *kept;

    ucs_list_for_each(kept, &worker->kept, list) {
        bytes += kept->length;
    }
    return bytes;
}

size_t ucp_test_num_ids(ucp_worker_h worker)
{
    return worker->ids.count;
}

uint64_t ucp_test_worker_id(ucp_worker_h worker)
{
    return ucp_uid_id(worker->uid);
}

uint64_t ucp_test_request_id(void *request, ucp_ep_h ep)
{
    const ucp_request_t *req = ucp_request_of(request);
    const ucp_peer_t *peer;

    if (!(req->held & UCP_REQUEST_HOLDS_ID)) {
        return 0;
    }
    peer = ucp_request_is_recv(req) ? req->recv.peer : req->send.peer;
    if ((ep != NULL) && (ep->peer != peer)) {
        return 0;
    }
    return ucp_request_is_recv(req) ? req->recv.id : req->send.id;
}

int ucp_test_knows(ucp_worker_h worker, ucp_worker_h other)
{
    return ucp_peer_find(worker, ucp_uid_id(other->uid)) != NULL;
}

size_t ucp_test_num_peers(ucp_worker_h worker)
{
    return ucs_hash_size(&worker->peers);
}

unsigned ucp_test_ordinal(ucp_ep_h ep)
{
    return ep->ordinal;
}

void ucp_test_peer_fail(ucp_ep_h ep, ucs_status_t status)
{
    uct_ep_set_failed(ep->am, status);
    ucp_peer_fail(ep->peer, status);
}

void ucp_test_lane_fail(ucp_ep_h ep, ucs_status_t status)
{
    uct_ep_set_failed(ep->am, status);
}

void ucp_test_peer_gone(ucp_ep_h ep)
{
    ucp_peer_gone(ep->worker, ep->peer->uid);
}

void ucp_test_refuse_copies(ucp_ep_h ep)
{
    ucp_peer_copy_failed(ep->peer, UCS_ERR_UNSUPPORTED);
}

int ucp_test_has_net_key(ucp_rkey_h rkey)
{
    return rkey->net != NULL;
}

ucs_status_t ucp_test_inject(ucp_ep_h ep, unsigned id, const void *data, size_t length)
{
    uct_ep_t *lane = ep->peer->lanes[UCP_LANE_AM];
    uct_iov_t iov  = {(void *)data, length, NULL};

    return lane->ops->am_short_iov(lane, id, &iov, 1);
}

void ucp_test_handle(ucp_worker_h worker, unsigned id, const void *data, size_t length)
{
    worker->sender = NULL;
    ucp_wire_table[id].handle(worker, data, length);
}

void ucp_test_handle_from(ucp_ep_h ep, unsigned id, const void *data, size_t length)
{
    ep->worker->sender = ep->peer->uid;
    ucp_wire_table[id].handle(ep->worker, data, length);
    ep->worker->sender = NULL;
}

void ucp_test_stream_comes(ucp_worker_h worker, const void *address, size_t address_length,
                           uint64_t worker_id, uint64_t word)
{
    const ucp_wire_hello_t hello = {UCP_WIRE_VERSION, 0};
    const struct {
        ucp_wire_stream_t head;
        uint64_t          word;
    } stream = {{worker_id, 0, 0}, word};
    char introduction[sizeof(hello) + UCP_ADDRESS_MAX];

    memcpy(introduction, &hello, sizeof(hello));
    memcpy(introduction + sizeof(hello), address, address_length);
    ucp_test_handle(worker, UCP_WIRE_HELLO, introduction, sizeof(hello) + address_length);
    ucp_test_handle(worker, UCP_WIRE_STREAM, &stream, sizeof(stream));
}

/* ---- sockets ---- */

#define UCP_TEST_SOCKETS 16

static ucp_socket_t g_sockets[UCP_TEST_SOCKETS];
static unsigned g_num_handled;

static void ucp_test_socket_handle(ucp_socket_t *socket)
{
    ucp_worker_h worker = socket->worker;
    ucp_socket_t *other;

    if (g_num_handled++ > 0) {
        return;
    }
    for (other = g_sockets; other < g_sockets + UCP_TEST_SOCKETS; ++other) {
        if (other != socket) {
            close(ucp_socket_remove(other));
        }
    }
    for (other = g_sockets; other < g_sockets + UCP_TEST_SOCKETS; ++other) {
        if ((other != socket) &&
            (ucp_socket_add(other, worker, eventfd(0, EFD_CLOEXEC), EPOLLIN) != UCS_OK)) {
            abort();
        }
    }
    close(ucp_socket_remove(socket));
}

unsigned ucp_test_take_out_sockets(ucp_worker_h worker)
{
    ucp_socket_t *socket;
    unsigned i;

    g_num_handled = 0;
    for (socket = g_sockets; socket < g_sockets + UCP_TEST_SOCKETS; ++socket) {
        socket->handle = ucp_test_socket_handle;
        if (ucp_socket_add(socket, worker, eventfd(1, EFD_CLOEXEC), EPOLLIN) != UCS_OK) {
            abort();
        }
    }
    for (i = 0; i < 3; ++i) {
        worker->sockets->countdown = 0;
        worker->sockets->looked_ns = 0;
        ucp_worker_progress(worker);
    }
    for (socket = g_sockets; socket < g_sockets + UCP_TEST_SOCKETS; ++socket) {
        if (socket->fd >= 0) {
            close(ucp_socket_remove(socket));
        }
    }
    return g_num_handled;
}

ucs_status_t ucp_test_add_socket(ucp_worker_h worker, int fd)
{
    ucp_socket_t socket = {.handle = ucp_test_socket_handle};
    ucs_status_t status = ucp_socket_add(&socket, worker, fd, EPOLLIN);

    if (status == UCS_OK) {
        ucp_socket_remove(&socket);
    }
    return status;
}

/* ---- matching ---- */

struct ucp_test_match {
    ucp_tag_match_t table;
};

typedef struct {
    ucp_request_t super;
    int number;
} ucp_test_receive_t;

typedef struct {
    ucp_recv_desc_t super;
    int number;
} ucp_test_message_t;

ucp_test_match_t *ucp_test_match_create(unsigned num_buckets)
{
    ucp_test_match_t *match = calloc(1, sizeof(*match));

    if ((match != NULL) && (ucp_tag_match_init(&match->table, num_buckets) != UCS_OK)) {
        ucp_tag_match_cleanup(&match->table);
        free(match);
        return NULL;
    }
    return match;
}

void ucp_test_match_destroy(ucp_test_match_t *match)
{
    ucp_recv_desc_t *desc;
    ucp_request_t *req;

    while ((desc = ucp_tag_match_search(&match->table, 0, 0)) != NULL) {
        ucp_tag_match_del_unexpected(&match->table, desc);
        free(desc);
    }
    while (match->table.num_wild != 0) {
        req = ucs_list_head(&match->table.wild, ucp_request_t, list);
        ucp_tag_match_take(&match->table, req);
        free(req);
    }
    for (size_t i = 0; i < ucp_test_match_buckets(match); ++i) {
        while (!ucs_list_is_empty(&match->table.expected[i])) {
            req = ucs_list_head(&match->table.expected[i], ucp_request_t, list);
            ucp_tag_match_take(&match->table, req);
            free(req);
        }
    }
    ucp_tag_match_cleanup(&match->table);
    free(match);
}

void *ucp_test_match_post(ucp_test_match_t *match, uint64_t tag, uint64_t mask, int number)
{
    ucp_test_receive_t *receive = calloc(1, sizeof(*receive));

    if (receive == NULL) {
        abort();
    }
    receive->super.info.sender_tag = tag;
    receive->super.recv.mask       = mask;
    receive->number                = number;
    ucp_tag_match_post(&match->table, &receive->super);
    return receive;
}

void ucp_test_match_cancel(ucp_test_match_t *match, void *posted)
{
    ucp_tag_match_take(&match->table, posted);
    free(posted);
}

int ucp_test_match_arrive(ucp_test_match_t *match, uint64_t tag, int number)
{
    ucp_request_t *req = ucp_tag_match_arrive(&match->table, tag);
    ucp_test_message_t *message;
    int found;

    if (req != NULL) {
        found = ((ucp_test_receive_t *)req)->number;
        free(req);
        return found;
    }

    message = calloc(1, sizeof(*message));
    if (message == NULL) {
        abort();
    }
    message->super.tag = tag;
    message->number    = number;
    ucp_tag_match_add_unexpected(&match->table, &message->super);
    return -1;
}

int ucp_test_match_search(ucp_test_match_t *match, uint64_t tag, uint64_t mask, int remove)
{
    ucp_recv_desc_t *desc = ucp_tag_match_search(&match->table, tag, mask);
    int found;

    if (desc == NULL) {
        return -1;
    }
    found = ((ucp_test_message_t *)desc)->number;
    if (remove) {
        ucp_tag_match_del_unexpected(&match->table, desc);
        free(desc);
    }
    return found;
}

size_t ucp_test_match_buckets(const ucp_test_match_t *match)
{
    return (size_t)1 << (64 - match->table.shift);
}
