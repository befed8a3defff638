/* Halyard: receiving from streams.
 *
 * Invariants: posted receives and unread chunks are both there only while the first chunk is an
 * announcement whose bytes are being fetched. Callbacks come last in every function here, since
 * they may free the endpoint.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/dt/dt.h>
#include <ucp/ops/kept.h>
#include <ucp/ops/stream.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <string.h>

#define UCP_STREAM_FETCH_MAX ((size_t)64 * 1024) /* bytes of our memory that a fetch takes */

/* Contents of a chunk that is an announcement. While it is fetched it is nobody else's to free. */
typedef struct {
    ucp_wire_rts_t rts;
    ucp_ep_t      *ep;          /* NULL: the endpoint was closed meanwhile */
    ucp_request_t *part;        /* the receive of ours that fetches it; NULL: none does */
    ucp_request_t *req;         /* whose buffer it fills; NULL: memory of ours, a chunk */
} ucp_stream_rts_t;

/* ---- receives ---- */

/* Bytes that a receive takes of so many: a part of an element only where it has no whole one.
 * recv.offset: bytes of an element, or SIZE_MAX where the whole buffer is wanted. */
static size_t ucp_stream_room(const ucp_request_t *req, size_t length)
{
    const size_t total = req->recv.received + ucs_min(length, req->length - req->recv.received);
    const size_t rest  = ((total >= req->recv.offset) && (total < req->length)) ?
                         total % req->recv.offset : 0;

    return total - rest - req->recv.received;
}

static size_t ucp_stream_fill(ucp_request_t *req, const void *data, size_t length)
{
    ucs_status_t status;

    length = ucp_stream_room(req, length);
    status = ucp_dt_unpack(req, req->recv.received, data, length);
    if ((status != UCS_OK) && (req->recv.result == UCS_OK)) {
        req->recv.result = status;
    }
    req->recv.received += length;
    return length;
}

/* Would the receive end with so many bytes? */
static int ucp_stream_is_enough(const ucp_request_t *req, size_t received)
{
    return received >= ucs_min(req->length, req->recv.offset);
}

static int ucp_stream_is_done(const ucp_request_t *req)
{
    return ucp_stream_is_enough(req, req->recv.received);
}

static void ucp_stream_set_done(ucp_request_t *req, ucs_list_link_t *done)
{
    ucs_list_del(&req->list);
    ucs_list_add_tail(done, &req->list);
}

static void ucp_stream_complete(ucs_list_link_t *done)
{
    ucp_request_t *req;

    while (!ucs_list_is_empty(done)) {
        req              = ucs_list_head(done, ucp_request_t, list);
        req->info.length = req->recv.received;
        ucp_request_complete(req, req->recv.result); /* takes it off */
    }
}

/* ---- chunks ---- */

static void ucp_stream_add(ucp_ep_t *ep, ucp_kept_t *chunk)
{
    ucs_list_del(&chunk->list);
    ucs_list_add_tail(&ep->stream.chunks, &chunk->list);
}

/* Something has come or was read: the endpoint is in the worker's list if there are chunks. */
static void ucp_stream_update_ready(ucp_ep_t *ep)
{
    ucp_stream_t *stream = &ep->stream;

    if (ucs_list_is_empty(&stream->chunks)) {
        ucs_list_del(&stream->ready);
    } else if (ucs_list_is_empty(&stream->ready)) {
        ucs_list_add_tail(&ep->worker->stream_ready, &stream->ready);
    }
}

/* Of what has come whole, so much is read. The sender hears it early enough not to announce. */
static void ucp_stream_count_read(ucp_ep_t *ep, size_t cost)
{
    ep->stream.read += (uint32_t)cost;
    if (ep->stream.read >= UCP_STREAM_BUDGET / 8) {
        ucp_stream_say_read(ep);
    }
}

/* The user has got the last byte of a chunk. */
static void ucp_stream_count_chunk(ucp_ep_t *ep, const ucp_kept_t *chunk)
{
    if (chunk->kind == UCP_KEPT_DATA) {
        ucp_stream_count_read(ep, chunk->length + sizeof(*chunk));
    }
}

/* Moves bytes from a chunk to a receive; the chunk ends with its last byte. */
static void ucp_stream_read(ucp_ep_t *ep, ucp_request_t *req, ucp_kept_t *chunk)
{
    chunk->offset += ucp_stream_fill(req, (char *)ucp_kept_data(chunk) + chunk->offset,
                                     chunk->length - chunk->offset);
    if (chunk->offset == chunk->length) {
        ucp_stream_count_chunk(ep, chunk);
        ucp_kept_put(chunk);
    }
}

/* Drops an unread chunk. One that is being fetched is left to the end of that. */
static void ucp_stream_drop(ucp_ep_t *ep, ucp_kept_t *chunk, ucs_status_t status)
{
    ucp_stream_rts_t *announced = ucp_kept_data(chunk);

    if (chunk->kind == UCP_KEPT_RTS) {
        if (announced->part != NULL) {
            announced->ep = NULL;
            ucs_list_del(&chunk->list);
            ucs_list_add_tail(&ep->worker->kept, &chunk->list);
            if (announced->req != NULL) {
                ucs_list_del(&announced->req->list);
            }
            return;
        }
        ucp_rndv_drop(ep->worker, &announced->rts, status);
    }
    ucp_kept_put(chunk);
}

static void ucp_stream_drop_chunks(ucp_ep_t *ep, ucs_status_t status)
{
    while (!ucs_list_is_empty(&ep->stream.chunks)) {
        ucp_stream_drop(ep, ucs_list_head(&ep->stream.chunks, ucp_kept_t, list), status);
    }
}

/* ---- ends ---- */

/* Bytes are lost: what came after them must not be read. */
static void ucp_stream_break(ucp_ep_t *ep, ucs_status_t status)
{
    ep->stream.status = status;
    ucp_stream_drop_chunks(ep, status);
    ucp_stream_update_ready(ep);
}

/* A receive ends with an error: what it has got is lost with it. */
static void ucp_stream_lose(ucp_ep_t *ep, const ucp_request_t *req, ucs_status_t status)
{
    if (req->recv.received > 0) {
        ucp_stream_break(ep, status);
    }
}

/* Moves all receives that nobody is filling to `done`, to end with `status`. */
static void ucp_stream_give_up(ucp_ep_t *ep, ucs_status_t status, ucs_list_link_t *done)
{
    ucp_request_t *req, *next;

    ucs_list_for_each_safe(req, next, &ep->stream.recvs, list) {
        if (req->recv.step == UCP_RECV_POSTED) {
            req->recv.result = status;
            ucp_stream_set_done(req, done);
            ucp_stream_lose(ep, req, status);
        }
    }
}

void ucp_stream_purge(ucp_ep_t *ep, ucs_status_t status)
{
    ucs_list_link_t done;

    ucs_list_head_init(&done);
    ucp_stream_give_up(ep, status, &done);
    ucp_stream_complete(&done);
}

void ucp_stream_peer_gone(ucp_peer_t *peer)
{
    ucs_list_link_t done;
    ucp_ep_t *ep;

    ucs_list_head_init(&done);
    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if (ep->stream.status == UCS_OK) {
            ep->stream.status = UCS_ERR_CONNECTION_RESET;
        }
        ucp_stream_give_up(ep, UCS_ERR_CONNECTION_RESET, &done);
    }
    ucp_stream_complete(&done);
}

/* What fetches announced bytes, or NULL: those of the first announcement, if any. */
static ucp_request_t *ucp_stream_part(const ucp_stream_t *stream)
{
    ucp_kept_t *chunk;

    ucs_list_for_each(chunk, &stream->chunks, list) {
        if (chunk->kind == UCP_KEPT_RTS) {
            return ((ucp_stream_rts_t *)ucp_kept_data(chunk))->part;
        }
    }
    return NULL;
}

void ucp_stream_close(ucp_ep_t *ep)
{
    ucp_request_t *part = ucp_stream_part(&ep->stream);

    ep->stream.status = UCS_ERR_CANCELED;
    ucp_stream_drop_chunks(ep, UCS_ERR_CONNECTION_RESET);
    ucp_stream_update_ready(ep);
    if (part != NULL) { /* with the receive that it fills, which is the first */
        ucp_rndv_recv_give_up(part);
    }
    ucp_stream_purge(ep, UCS_ERR_CANCELED);
}

/* ---- announced bytes ---- */

static void ucp_stream_fetched(void *request, ucs_status_t status, size_t length, void *user_data);

/* Starts moving the next bytes of the first chunk, an announcement: into the receive where that is
 * contiguous, else (req NULL too) into memory of ours. */
static ucs_status_t ucp_stream_fetch(ucp_ep_t *ep, ucp_kept_t *chunk, ucp_request_t *req)
{
    ucp_stream_rts_t *announced = ucp_kept_data(chunk);
    size_t left                 = announced->rts.length - chunk->offset;
    ucp_request_param_t param   = {
        .op_attr_mask   = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_stream = ucp_stream_fetched,
        .user_data      = chunk
    };
    ucp_kept_t *piece           = NULL;
    ucp_request_t *part;

    if ((req != NULL) && ucp_dt_is_block(req->datatype)) {
        left = ucp_stream_room(req, left);
    } else {
        req   = NULL;
        left  = ucs_min(left, UCP_STREAM_FETCH_MAX);
        piece = ucp_kept_get(ep->worker, UCP_KEPT_PART, left, 1);
        if (piece == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }
    part = ucp_request_get(ep->worker, &param, UCP_REQUEST_STREAM_RECV);
    if (part == NULL) {
        if (piece != NULL) {
            ucp_kept_put(piece);
        }
        return UCS_ERR_NO_MEMORY;
    }

    announced->part = part;
    announced->req  = req;
    if (req != NULL) {
        part->buffer    = (char *)req->buffer + req->recv.received;
        part->datatype  = req->datatype;
        part->copy.info = req->copy.info;
        req->recv.step  = UCP_RECV_WAIT;
    } else {
        part->buffer   = ucp_kept_data(piece);
        part->datatype = ucp_dt_make_contig(1);
    }
    part->length           = left;
    part->recv.is_part     = (chunk->offset + left < announced->rts.length);
    part->recv.was_awaited = 0;
    ucp_rndv_recv_range(
        part, ucp_peer_of_kept(ep->worker, announced->rts.worker_id, chunk->session),
        &announced->rts, chunk->offset);
    return UCS_OK;
}

/* Gives chunks to posted receives. */
static void ucp_stream_match(ucp_ep_t *ep, ucs_list_link_t *done)
{
    ucp_stream_t *stream = &ep->stream;
    ucs_status_t status;
    ucp_kept_t *chunk;
    ucp_request_t *req;

    while (!ucs_list_is_empty(&stream->recvs) && !ucs_list_is_empty(&stream->chunks)) {
        req   = ucs_list_head(&stream->recvs, ucp_request_t, list);
        chunk = ucs_list_head(&stream->chunks, ucp_kept_t, list);
        if (chunk->kind == UCP_KEPT_RTS) {
            if (((ucp_stream_rts_t *)ucp_kept_data(chunk))->part != NULL) {
                break;
            }
            status = ucp_stream_fetch(ep, chunk, req);
            if (status == UCS_OK) {
                break;
            }
            req->recv.result = status;
            ucp_stream_set_done(req, done); /* the next may have more luck */
            ucp_stream_lose(ep, req, status);
            continue;
        }
        ucp_stream_read(ep, req, chunk);
        if (ucp_stream_is_done(req)) {
            ucp_stream_set_done(req, done);
        }
    }
    if (ucs_list_is_empty(&stream->chunks) && (stream->status != UCS_OK)) {
        ucp_stream_give_up(ep, stream->status, done);
    }
    ucp_stream_update_ready(ep);
}

/* What has come or been posted may find its counterpart. */
static void ucp_stream_go_on(ucp_ep_t *ep)
{
    ucs_list_link_t done;

    ucs_list_head_init(&done);
    ucp_stream_match(ep, &done);
    ucp_stream_complete(&done);
}

/* The endpoint may have been closed meanwhile. */
static void ucp_stream_fetched(void *request, ucs_status_t status, size_t length UCS_UNUSED,
                               void *user_data)
{
    ucp_worker_t *worker        = ucp_request_of(request)->worker;
    size_t total                = ucp_request_of(request)->recv.total;
    ucp_kept_t *chunk           = user_data;
    ucp_stream_rts_t *announced = ucp_kept_data(chunk);
    ucp_request_t *req          = announced->req;
    ucp_kept_t *piece           = (req != NULL) ? NULL :
                                  ucp_kept_of(ucp_request_of(request)->buffer);
    ucp_ep_t *ep                = announced->ep;
    const int is_over           = (status != UCS_OK) || (ep == NULL);
    ucs_list_link_t done;

    ucp_request_free(request);
    ucs_list_head_init(&done);
    announced->part = NULL;
    chunk->offset  += (status == UCS_OK) ? total : 0;
    if (req != NULL) {
        req->recv.received += (status == UCS_OK) ? total : 0;
        req->recv.step      = UCP_RECV_POSTED;
        if ((status == UCS_OK) && ucp_stream_is_done(req)) {
            ucp_stream_set_done(req, &done);
        } else if (ep == NULL) {
            req->recv.result = (status != UCS_OK) ? status : UCS_ERR_CANCELED;
            ucp_stream_set_done(req, &done);
        }
    } else if (is_over) {
        ucp_kept_put(piece);
    } else {
        ucs_list_del(&piece->list);
        ucs_list_insert_before(&chunk->list, &piece->list);
    }
    if (is_over && (chunk->offset < announced->rts.length)) {
        ucp_rndv_drop(worker, &announced->rts,
                      (status != UCS_OK) ? status : UCS_ERR_CONNECTION_RESET);
    }
    if (is_over || (chunk->offset == announced->rts.length)) {
        ucp_kept_put(chunk);
    }
    if ((ep != NULL) && (status != UCS_OK)) {
        ucs_debug("endpoint '%s': its stream ends amid a message: %s", ep->name,
                  ucs_status_string(status));
        ucp_stream_break(ep, status);
    }
    if (ep != NULL) {
        ucp_stream_match(ep, &done);
    }
    ucp_stream_complete(&done);
}

/* Not one that is being fetched: that fetch tells how it ends, once no device copies for it. */
static ucp_kept_t *ucp_stream_find_announced(ucp_ep_t *ep, uint64_t send_id)
{
    ucp_stream_rts_t *announced;
    ucp_kept_t *chunk;

    ucs_list_for_each(chunk, &ep->stream.chunks, list) {
        announced = ucp_kept_data(chunk);
        if ((chunk->kind == UCP_KEPT_RTS) && (announced->rts.request_id == send_id) &&
            (announced->part == NULL)) {
            return chunk;
        }
    }
    return NULL;
}

void ucp_stream_cancelled(ucp_peer_t *peer, uint64_t send_id, ucs_status_t status)
{
    ucp_kept_t *chunk;
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        chunk = ucp_stream_find_announced(ep, send_id);
        if (chunk != NULL) {
            ep->stream.status = status;
            while (ucs_list_tail(&ep->stream.chunks, ucp_kept_t, list) != chunk) {
                ucp_stream_drop(ep, ucs_list_tail(&ep->stream.chunks, ucp_kept_t, list), status);
            }
            ucp_kept_put(chunk);
            ucp_stream_go_on(ep);
            return;
        }
    }
}

void ucp_stream_move(ucp_ep_t *from, ucp_ep_t *to)
{
    ucp_kept_t *chunk;

    ucs_list_for_each(chunk, &from->stream.chunks, list) {
        if (chunk->kind == UCP_KEPT_RTS) {
            ((ucp_stream_rts_t *)ucp_kept_data(chunk))->ep = to;
        }
    }
    ucs_list_splice_tail(&to->stream.chunks, &from->stream.chunks);
    ucs_list_head_init(&from->stream.chunks);
    to->stream.status   = from->stream.status;
    to->stream.read    += from->stream.read;
    to->stream.unread  += from->stream.unread;
    from->stream.read   = 0;
    from->stream.unread = 0;
    ucp_stream_update_ready(from);
    if (to->is_closing) {
        ucp_stream_close(to); /* once more: nobody will read that either */
    } else {
        ucp_stream_go_on(to);
    }
}

void ucp_stream_cleanup(ucp_ep_t *ep)
{
    ucp_stream_t *stream = &ep->stream;

    ucp_stream_drop_chunks(ep, UCS_ERR_CONNECTION_RESET);
    while (!ucs_list_is_empty(&stream->recvs)) { /* the worker ends */
        ucp_request_release_held(ucs_list_head(&stream->recvs, ucp_request_t, list));
    }
    ucs_list_del(&stream->ready);
}

/* ---- messages ---- */

/* The endpoint that a message is for, or NULL: it was closed, or the peer is given up, because
 * there must be no hole in its stream. */
static ucp_ep_t *ucp_stream_find_ep(ucp_peer_t *peer, uint32_t ordinal)
{
    ucp_ep_t *ep = ucp_ep_paired(peer, ordinal, UCP_EP_PAIRED_STREAM);

    if (ep == NULL) {
        if (ucp_ep_was_closed(peer, ordinal)) {
            ucs_debug("bytes came for the stream of endpoint %u, which was closed: dropped",
                      ordinal);
        } else {
            ucs_error("bytes of a stream came before their endpoint, and cannot be kept");
            ucp_worker_give_up_sender(peer->worker, UCS_ERR_NO_MEMORY);
        }
    }
    return ep;
}

static void ucp_stream_no_memory(ucp_ep_t *ep, size_t length)
{
    ucs_error("no memory to keep %zu bytes of the stream of endpoint '%s': it ends before them",
              length, ep->name);
    ep->stream.status = UCS_ERR_NO_MEMORY;
    ucp_worker_give_up_sender(ep->worker, UCS_ERR_NO_MEMORY);
}

void ucp_stream_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_wire_stream_t head;
    ucs_list_link_t done;
    ucp_request_t *req;
    ucp_kept_t *chunk;
    ucp_peer_t *peer;
    ucp_ep_t *ep;
    size_t used;

    if (ucs_unlikely(!ucp_wire_read(UCP_WIRE_STREAM, data, length, &head, sizeof(head)))) {
        return;
    }
    data    = (const char *)data + sizeof(head);
    length -= sizeof(head);
    peer    = ucp_peer_of_sender(worker, head.worker_id, "STREAM");
    if (ucs_unlikely(peer == NULL)) {
        return;
    }
    ep = ucp_stream_find_ep(peer, head.ep);
    if (ucs_unlikely(ep == NULL)) {
        return;
    }
    ep->stream.unread -= ucs_min((size_t)head.read, ep->stream.unread);
    if (ucs_unlikely((length == 0) || (ep->stream.status != UCS_OK))) {
        return;
    }

    ucs_list_head_init(&done);
    while ((length > 0) && ucs_list_is_empty(&ep->stream.chunks) &&
           !ucs_list_is_empty(&ep->stream.recvs)) {
        req     = ucs_list_head(&ep->stream.recvs, ucp_request_t, list);
        used    = ucp_stream_fill(req, data, length);
        data    = (const char *)data + used;
        length -= used;
        ucp_stream_count_read(ep, used + ((length == 0) ? sizeof(*chunk) : 0));
        if (ucp_stream_is_done(req)) {
            ucp_stream_set_done(req, &done);
        }
    }
    if (length > 0) {
        chunk = ucp_kept_get(worker, UCP_KEPT_DATA, length, 1);
        if (chunk != NULL) {
            memcpy(ucp_kept_data(chunk), data, length);
            ucp_stream_add(ep, chunk);
        } else {
            ucp_stream_no_memory(ep, length);
        }
        ucp_stream_match(ep, &done);
    }
    ucp_stream_complete(&done);
}

void ucp_stream_rts_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_stream_rts_t *announced;
    ucp_wire_rts_t rts;
    ucp_kept_t *chunk;
    ucp_peer_t *peer;
    ucp_ep_t *ep;

    peer = ucp_rndv_read_rts(worker, UCP_WIRE_STREAM_RTS, data, length, &rts);
    if (peer == NULL) {
        return;
    }
    ep = (rts.tag > UINT32_MAX) ? NULL : ucp_stream_find_ep(peer, (uint32_t)rts.tag);
    if ((ep == NULL) || (ep->stream.status != UCS_OK) || (rts.length == 0)) {
        ucp_rndv_drop(worker, &rts, UCS_ERR_CONNECTION_RESET);
        return;
    }

    chunk = ucp_kept_get(worker, UCP_KEPT_RTS, sizeof(*announced), 1);
    if (chunk != NULL) {
        announced      = ucp_kept_data(chunk);
        *announced     = (ucp_stream_rts_t){.rts = rts, .ep = ep};
        chunk->session = peer->session;
        ucp_stream_add(ep, chunk);
    } else {
        ucp_stream_no_memory(ep, rts.length);
        ucp_rndv_drop(worker, &rts, UCS_ERR_NO_MEMORY);
    }
    ucp_stream_go_on(ep);
}

/* ---- public ---- */

/* Why nothing more will come, or UCS_OK. */
static ucs_status_t ucp_stream_end_status(const ucp_ep_t *ep)
{
    return (ep->stream.status != UCS_OK) ? ep->stream.status :
           ucp_peer_has_more(ep->peer)   ? UCS_OK :
           (ep->peer->status != UCS_OK)  ? ep->peer->status :
           ep->peer->is_gone             ? UCS_ERR_CONNECTION_RESET :
                                           UCS_OK;
}

/* Is what has come enough for a receive that may not wait? If not, what is announced is fetched for
 * the next one. */
static int ucp_stream_recv_can_end(ucp_ep_t *ep, const ucp_request_t *req)
{
    size_t there = 0;
    ucp_kept_t *chunk;

    if (!ucs_list_is_empty(&ep->stream.recvs)) {
        return req->length == 0;
    }
    ucs_list_for_each(chunk, &ep->stream.chunks, list) {
        if (chunk->kind == UCP_KEPT_RTS) {
            break;
        }
        there += chunk->length - chunk->offset;
    }
    if (ucp_stream_is_enough(req, there)) {
        return 1;
    }
    if ((&chunk->list != &ep->stream.chunks) &&
        (((ucp_stream_rts_t *)ucp_kept_data(chunk))->part == NULL)) {
        (void)ucp_stream_fetch(ep, chunk, NULL); /* without memory the next one tries again */
    }
    return 0;
}

/* Posts a receive, which ends at once if what has come is enough for it. */
static ucs_status_ptr_t ucp_stream_recv_start(ucp_ep_t *ep, ucp_request_t *req, size_t *length_p,
                                              const ucp_request_param_t *param)
{
    ucs_status_t status = UCS_OK;
    ucs_list_link_t done;

    if ((param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) &&
        !ucp_stream_recv_can_end(ep, req)) {
        status = ucp_stream_end_status(ep);
        return ucp_request_end_immediately(req, (status != UCS_OK) ? status : UCS_ERR_NO_RESOURCE);
    }
    ucs_list_head_init(&done);
    ucs_list_add_tail(&ep->stream.recvs, &req->list);
    if (!ucp_stream_is_done(req)) {
        ucp_stream_match(ep, &done);
    }
    if (ucp_stream_is_done(req)) {
        ucs_list_del(&req->list);
        *length_p = req->info.length = req->recv.received;
        return ucp_request_end_recv(req, req->recv.result, param);
    }
    if (!ucs_list_is_empty(&done)) {
        status = req->recv.result;
    } else if (ucs_list_is_empty(&ep->stream.chunks)) {
        status = ucp_stream_end_status(ep);
    }
    if (status != UCS_OK) {
        ucs_list_del(&req->list);
        ucp_stream_lose(ep, req, status);
        return ucp_request_end_immediately(req, status);
    }
    req->held |= UCP_REQUEST_HOLDS_LIST;
    ucp_ep_watch(ep);
    return ucp_request_handle(req);
}

ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void *buffer, size_t count, size_t *length,
                                     const ucp_request_param_t *param)
{
    uint32_t flags          = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) ? param->flags : 0;
    ucp_datatype_t datatype = ucp_dt_of(param);
    ucp_worker_t *worker    = ep->worker;
    ucs_status_ptr_t ptr;
    ucp_request_t *req;

    ucp_worker_lock(worker);
    req = ucp_recv_request(worker, buffer, count, param, UCP_REQUEST_STREAM_RECV, &ptr);
    if (req != NULL) {
        req->recv.received = 0;
        req->recv.result   = UCS_OK;
        req->recv.offset   = (flags & UCP_STREAM_RECV_FLAG_WAITALL) ? SIZE_MAX :
                             ucp_dt_is_contig(datatype) ? datatype >> UCP_DATATYPE_SHIFT : 1;
        ptr = ucp_stream_recv_start(ep, req, length, param);
    }
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep, void *buffer, size_t count,
                                    ucp_datatype_t datatype, ucp_stream_recv_callback_t cb,
                                    size_t *length, unsigned flags)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags         = flags;
    return ucp_stream_recv_nbx(ep, buffer, count, length, &param);
}

ucs_status_t ucp_stream_recv_request_test(void *request, size_t *length_p)
{
    ucs_status_t status = ucp_request_check_status(request);

    if (status != UCS_INPROGRESS) {
        *length_p = ucp_request_of(request)->info.length;
    }
    return status;
}

static ucs_status_ptr_t ucp_stream_lend(ucp_ep_t *ep, size_t *length)
{
    ucp_stream_rts_t *announced;
    ucs_status_t status;
    ucp_kept_t *chunk;

    if (!ucs_list_is_empty(&ep->stream.recvs)) {
        return NULL; /* the bytes are theirs */
    }
    if (ucs_list_is_empty(&ep->stream.chunks)) {
        return UCS_STATUS_PTR(ucp_stream_end_status(ep));
    }
    chunk = ucs_list_head(&ep->stream.chunks, ucp_kept_t, list);
    if (chunk->kind == UCP_KEPT_RTS) {
        announced = ucp_kept_data(chunk);
        status    = (announced->part != NULL) ? UCS_OK : ucp_stream_fetch(ep, chunk, NULL);
        if (status != UCS_OK) {
            ucp_stream_update_ready(ep); /* it is still there */
        }
        return UCS_STATUS_PTR(status);
    }

    /* The user gives it back by the address of its first byte. */
    ucp_stream_count_chunk(ep, chunk);
    chunk->length -= chunk->offset;
    memmove(ucp_kept_data(chunk), (char *)ucp_kept_data(chunk) + chunk->offset, chunk->length);
    *length = chunk->length;
    ucs_list_del(&chunk->list);
    ucs_list_add_tail(&ep->worker->kept, &chunk->list);
    ucp_stream_update_ready(ep);
    return ucp_kept_data(chunk);
}

ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep, size_t *length)
{
    ucs_status_ptr_t ptr;

    ucp_worker_lock(ep->worker);
    ptr = ucp_stream_lend(ep, length);
    ucp_worker_unlock(ep->worker);
    return ptr;
}

void ucp_stream_data_release(ucp_ep_h ep, void *data)
{
    ucp_worker_t *worker = ep->worker;

    ucp_worker_lock(worker);
    ucp_kept_put(ucp_kept_of(data));
    ucp_worker_unlock(worker);
}

ssize_t ucp_stream_worker_poll(ucp_worker_h worker, ucp_stream_poll_ep_t *poll_eps, size_t max_eps,
                               unsigned flags UCS_UNUSED)
{
    ucs_list_link_t *first = NULL;
    size_t count           = 0;
    ucs_list_link_t *link;
    ucp_ep_t *ep;

    ucp_worker_lock(worker);
    while ((count < max_eps) && !ucs_list_is_empty(&worker->stream_ready)) {
        link = worker->stream_ready.next;
        if (link == first) {
            break;
        }
        ucs_list_del(link);
        ep = ucs_container_of(link, ucp_ep_t, stream.ready);
        if (!ep->is_internal && !ep->is_closing && ucs_list_is_empty(&ep->stream.recvs)) {
            poll_eps[count].ep        = ep;
            poll_eps[count].user_data = ep->user_data;
            poll_eps[count].flags     = 0;
            ++count;
        } else {
            ucs_list_add_tail(&worker->stream_ready, link);
            first = (first == NULL) ? link : first;
        }
    }
    ucp_worker_unlock(worker);
    return (ssize_t)count;
}
