/* Halyard: eager protocol.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/dt/dt.h>
#include <ucp/ops/send.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCP_EAGER_SHORT 16   /* bytes that ucp_copy copies without a call */
#define UCP_EAGER_LONG  8192 /* bytes from which on messages are timed */

/* ---- sender ---- */

/* The way of messages that do not lie in one piece, are not copied, or are to be answered, which
 * have more of a head. */
static ucs_status_t ucp_eager_send_pieces(ucp_request_t *req)
{
    const int is_sync          = req->send.is_sync;
    ucp_wire_eager_sync_t head = {
        .tag        = req->info.sender_tag,
        .worker_id  = ucp_uid_id(req->worker->uid),
        .request_id = req->send.id
    };
    uct_iov_t iov[2]           = {
        {&head, is_sync ? sizeof(head) : sizeof(ucp_wire_eager_t), NULL},
        {req->buffer, req->length, NULL}
    };
    ucs_status_t status;

    status = ucp_send_whole(req, is_sync ? UCP_WIRE_EAGER_SYNC : UCP_WIRE_EAGER, iov, 2);
    if (is_sync && (status == UCS_OK)) {
        req->send.step = UCP_SEND_SYNC;
    }
    return status;
}

/* Notes how fast long messages are. One that is faster than lately tells more than a slower one,
 * beside which something else happened. */
static ucs_status_t ucp_eager_send_long(ucp_request_t *req, uct_ep_t *lane)
{
    ucp_peer_t *peer     = req->send.peer;
    const uint64_t start = ucs_sys_clock_ns();
    ucs_status_t status;
    uint64_t ns;
    float rate;

    status = lane->ops->am_short(lane, UCP_WIRE_EAGER, req->info.sender_tag, req->buffer,
                                 req->length);
    if (status == UCS_OK) {
        ns               = ucs_sys_clock_ns() - start;
        rate             = (float)req->length / (float)ucs_max(ns, 1ul);
        peer->whole_rate = ucs_max(rate, peer->whole_rate - ((peer->whole_rate - rate) / 8));
    }
    return status;
}

ucs_status_t ucp_eager_send(ucp_request_t *req)
{
    uct_ep_t *lane = req->send.peer->lanes[UCP_LANE_AM];

    if (req->send.is_sync || req->send.is_zcopy || !ucp_dt_is_contig(req->datatype)) {
        return ucp_eager_send_pieces(req);
    }
    if (ucs_unlikely(req->length >= UCP_EAGER_LONG)) {
        return ucp_eager_send_long(req, lane);
    }
    return lane->ops->am_short(lane, UCP_WIRE_EAGER, req->info.sender_tag, req->buffer,
                               req->length);
}

/* ---- receiver ---- */

ucs_status_t ucp_eager_deliver_slow(ucp_request_t *req, const void *payload, size_t length)
{
    size_t room         = ucs_min(length, req->length);
    ucs_status_t status = UCS_OK;

    if (room < length) {
        status = UCS_ERR_MESSAGE_TRUNCATED;
    }
    if (room > 0) {
        ucs_status_t unpack_status = ucp_dt_unpack(req, 0, payload, room);

        if (unpack_status != UCS_OK) {
            status = unpack_status;
        }
    }
    return status;
}

static UCS_NOINLINE ucs_status_t ucp_eager_unexpected(ucp_worker_t *worker, ucp_tag_msg_kind_t kind,
                                              uint64_t tag, const ucp_peer_t *peer,
                                              uint64_t request_id, const void *payload,
                                              size_t length)
{
    ucp_recv_desc_t *desc = ucp_worker_data_get(worker, sizeof(*desc) + length);

    if (desc == NULL) {
        ucs_error("no memory to keep a message of %zu bytes with tag 0x%lx", length,
                  (unsigned long)tag);
        return UCS_ERR_NO_MEMORY;
    }
    desc->tag        = tag;
    desc->length     = length;
    desc->worker_id  = (peer != NULL) ? ucp_uid_id(peer->uid) : 0;
    desc->session    = (peer != NULL) ? peer->session : 0;
    desc->request_id = request_id;
    desc->kind       = kind;
    memcpy(desc + 1, payload, length);
    ucp_worker_count(worker, UCP_COUNT_UNEXPECTED);
    ucp_tag_match_add_unexpected(&worker->tag_match, desc);
    ucp_tag_budget_add(worker, ucs_mpool_obj_size(desc));
    return UCS_OK;
}

/* `length` bytes of payload have come, or begin to come, from the sender of the connection. */
static void ucp_eager_note_answer(ucp_worker_t *worker, size_t length)
{
    ucp_peer_t *peer;

    if (ucs_unlikely(length >= UCP_SEND_ANSWER_MIN)) {
        peer = ucp_peer_of_connection(worker);
        if (peer != NULL) {
            peer->is_unanswered = 0;
        }
    }
}

/* Ends a receive with a short message that it has room for; false if it is to end otherwise. */
UCS_INLINE int ucp_eager_deliver_short(ucp_tag_match_t *tm, ucp_request_t *req, uint64_t tag,
                                       const char *payload, size_t size)
{
    if (ucs_unlikely((req == NULL) || !ucp_dt_is_contig(req->datatype) || (size > req->length))) {
        return 0;
    }
    ucp_tag_match_take(tm, req);
    req->info.sender_tag = tag;
    req->info.length     = size;
    ucp_copy(req->buffer, payload, size);
    ucp_request_complete_recv(req, UCS_OK);
    return 1;
}

static UCS_NOINLINE void ucp_eager_handle_any(ucp_worker_t *worker, const void *data, size_t length)
{
    ucp_tag_match_t *tm = &worker->tag_match;
    const char *payload = (const char *)data + sizeof(ucp_wire_eager_t);
    ucp_request_t *req;
    uint64_t tag;

    if (ucs_unlikely(length < sizeof(ucp_wire_eager_t)) &&
        !ucp_wire_accepts(UCP_WIRE_EAGER, length)) {
        return;
    }
    memcpy(&tag, data, sizeof(tag));
    length -= sizeof(ucp_wire_eager_t);
    ucp_eager_note_answer(worker, length);

    req = ucp_tag_match_find(tm, tag);
    if ((length <= UCP_EAGER_SHORT) && ucp_eager_deliver_short(tm, req, tag, payload, length)) {
        return;
    }
    if (ucs_likely(req != NULL)) {
        ucp_tag_match_take(tm, req);
        ucp_request_complete_recv(req, ucp_eager_deliver(req, tag, payload, length));
    } else if (ucp_eager_unexpected(worker, UCP_TAG_MSG_EAGER, tag, NULL, 0, payload, length) !=
               UCS_OK) {
        ucp_worker_give_up_sender(worker, UCS_ERR_NO_MEMORY);
    }
}

/* The way of a short message that is waited for: all that is called is called last, so nothing has
 * to be saved. Anything else is left to the function above. */
void ucp_eager_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker  = arg;
    ucp_tag_match_t *tm   = &worker->tag_match;
    const char *payload   = (const char *)data + sizeof(ucp_wire_eager_t);
    const size_t size     = length - sizeof(ucp_wire_eager_t); /* huge if there is no header */
    uint64_t tag;

    if (ucs_likely((size <= UCP_EAGER_SHORT) && (tm->num_wild == 0))) {
        memcpy(&tag, data, sizeof(tag));
        if (ucs_likely(ucp_eager_deliver_short(tm, ucp_tag_match_find_selective(tm, tag), tag,
                                               payload, size))) {
            return;
        }
    }
    ucp_eager_handle_any(worker, data, length);
}

/* Only for what needs nothing but its bytes: all else can wait until it is whole. */
void *ucp_eager_begin(void *arg, const void *header, size_t header_length, size_t length,
                      void **token_p)
{
    ucp_worker_t *worker = arg;
    ucp_tag_match_t *tm  = &worker->tag_match;
    ucp_request_t *req;
    uint64_t tag;

    if (header_length != sizeof(ucp_wire_eager_t)) {
        return NULL;
    }
    memcpy(&tag, header, sizeof(tag));
    req = ucp_tag_match_find(tm, tag);
    if ((req == NULL) || !ucp_dt_is_contig(req->datatype) || (length > req->length)) {
        return NULL;
    }
    ucp_tag_match_take(tm, req);
    ucp_eager_note_answer(worker, length);
    req->info.sender_tag = tag;
    req->info.length     = length;
    req->recv.step       = UCP_RECV_COMES;
    ucs_list_add_tail(&worker->coming, &req->list);
    *token_p             = req;
    return req->buffer;
}

void ucp_eager_end(void *token, ucs_status_t status)
{
    ucp_request_t *req = token;

    ucs_list_del(&req->list);
    if (req->worker->is_ending) { /* without a word, as all that is left then */
        ucp_request_release_held(req);
    } else {
        ucp_request_complete_recv(req, status);
    }
}

void ucp_eager_sync_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucp_wire_eager_sync_t head;
    ucs_status_t status;
    ucp_request_t *req;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_EAGER_SYNC, data, length, &head, sizeof(head))) {
        return;
    }
    peer = ucp_peer_of_sender(worker, head.worker_id, "EAGER_SYNC");
    if (peer == NULL) {
        return;
    }
    peer->is_unanswered = 0;
    length             -= sizeof(head);
    data                = (const char *)data + sizeof(head);

    req = ucp_tag_match_arrive(&worker->tag_match, head.tag);
    if (req == NULL) {
        status = ucp_eager_unexpected(worker, UCP_TAG_MSG_EAGER_SYNC, head.tag, peer,
                                      head.request_id, data, length);
        if (status != UCS_OK) {
            ucp_rndv_answer(peer, head.request_id, status);
        }
        return;
    }
    ucp_rndv_answer(peer, head.request_id, UCS_OK);
    ucp_request_complete(req, ucp_eager_deliver(req, head.tag, data, length));
}
