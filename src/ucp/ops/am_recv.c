/* Halyard: receiving active messages: handlers, and the data that they keep.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/dt/dt.h>
#include <ucp/ops/am.h>
#include <ucp/ops/kept.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

/* A message on its way to a handler. */
typedef struct {
    const ucp_am_handler_t *handler; /* its entry in the table may be gone after the call */
    unsigned    id;
    const void *header;
    size_t      header_length;
    size_t      length;   /* bytes of data */
    ucp_ep_h    reply_ep; /* NULL: none was asked for */
} ucp_am_msg_t;

/* ---- handlers ---- */

UCS_INLINE const ucp_am_handler_t *ucp_am_handler(ucp_worker_t *worker, unsigned id)
{
    return (ucs_likely(id < worker->num_am_handlers) &&
            ucs_likely(worker->am_handlers[id].cb.recv != NULL)) ? &worker->am_handlers[id] : NULL;
}

static UCS_NOINLINE UCS_COLD void ucp_am_no_handler(const ucp_worker_t *worker, unsigned id)
{
    if (!worker->is_ending) {
        ucs_warn("an active message came for id %u, which has no handler: dropped", id);
    }
}

static ucs_status_t ucp_am_set_handler(ucp_worker_t *worker, unsigned id,
                                       const ucp_am_handler_t *handler)
{
    ucp_am_handler_t *handlers;
    unsigned count;

    if (id > UINT16_MAX) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (id >= worker->num_am_handlers) {
        if (handler->cb.recv == NULL) {
            return UCS_OK;
        }
        count    = ucs_max(id + 1, 2 * worker->num_am_handlers);
        handlers = ucs_sys_calloc(count, sizeof(*handlers));
        if (handlers == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        if (worker->num_am_handlers > 0) {
            memcpy(handlers, worker->am_handlers, worker->num_am_handlers * sizeof(*handlers));
        }
        ucs_sys_free(worker->am_handlers);
        worker->am_handlers     = handlers;
        worker->num_am_handlers = count;
    }
    worker->am_handlers[id]          = *handler;
    worker->am_handlers[id].is_plain = !handler->is_legacy && (worker->am_alignment <= 8) &&
                                       !(handler->flags & UCP_AM_FLAG_PERSISTENT_DATA);
    return UCS_OK;
}

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
                                            const ucp_am_handler_param_t *param)
{
    uint64_t mask            = param->field_mask;
    ucp_am_handler_t handler = {
        .cb.recv = (mask & UCP_AM_HANDLER_PARAM_FIELD_CB) ? param->cb : NULL,
        .arg     = (mask & UCP_AM_HANDLER_PARAM_FIELD_ARG) ? param->arg : NULL,
        .flags   = (mask & UCP_AM_HANDLER_PARAM_FIELD_FLAGS) ? param->flags : 0
    };
    ucs_status_t status;

    if (!(mask & UCP_AM_HANDLER_PARAM_FIELD_ID) || !(mask & UCP_AM_HANDLER_PARAM_FIELD_CB)) {
        return UCS_ERR_INVALID_PARAM; /* to remove one, the callback is NULL */
    }
    ucp_worker_lock(worker);
    status = ucp_am_set_handler(worker, param->id, &handler);
    ucp_worker_unlock(worker);
    return status;
}

ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker, uint16_t id, ucp_am_callback_t cb,
                                       void *arg, uint32_t flags)
{
    ucp_am_handler_t handler = {.cb.legacy = cb, .arg = arg, .flags = flags, .is_legacy = 1};
    ucs_status_t status;

    ucp_worker_lock(worker);
    status = ucp_am_set_handler(worker, id, &handler);
    ucp_worker_unlock(worker);
    return status;
}

static ucs_status_t ucp_am_call(const ucp_am_msg_t *msg, void *data, uint64_t attr)
{
    const ucp_am_handler_t *handler = msg->handler;
    ucp_am_recv_param_t param       = {.recv_attr = attr, .reply_ep = msg->reply_ep};

    if (handler->is_legacy) {
        return handler->cb.legacy(handler->arg, data, msg->length, msg->reply_ep,
                                  (attr != 0) ? UCP_CB_PARAM_FLAG_DATA : 0);
    }
    if (msg->reply_ep != NULL) {
        param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
    }
    return handler->cb.recv(handler->arg, msg->header, msg->header_length, data, msg->length,
                            &param);
}

/* Shows data that is gone when the handler returns. */
UCS_INLINE void ucp_am_pass(ucp_worker_t *worker, const void *data, size_t length)
{
    worker->am_passing        = data;
    worker->am_passing_length = length;
}

/* The user is done with it. A handler that still looks at it gives the memory back by returning. */
static void ucp_am_take(ucp_kept_t *kept)
{
    if (kept->is_lent) {
        kept->is_taken = 1;
    } else {
        ucp_kept_put(kept);
    }
}

/* The user has no more need of it: an announcement is done with, its data unread. `status`: how its
 * send ends. */
static void ucp_am_give_back(ucp_worker_t *worker, ucp_kept_t *kept, ucs_status_t status)
{
    if (kept->kind == UCP_KEPT_RTS) {
        ucp_rndv_drop(worker, ucp_kept_data(kept), status);
    }
    ucp_am_take(kept);
}

/* Shows data in our memory, or a descriptor, to a handler, which may keep it. */
static void ucp_am_lend(ucp_worker_t *worker, const ucp_am_msg_t *msg, ucp_kept_t *kept)
{
    ucs_status_t status;

    kept->is_lent = 1;
    status        = ucp_am_call(msg, ucp_kept_data(kept),
                                (kept->kind == UCP_KEPT_RTS) ? UCP_AM_RECV_ATTR_FLAG_RNDV :
                                                               UCP_AM_RECV_ATTR_FLAG_DATA);
    kept->is_lent = 0;
    if (kept->is_taken) {
        ucp_kept_put(kept);
    } else if (status != UCS_INPROGRESS) {
        ucp_am_give_back(worker, kept, status);
    }
}

/* ---- order ---- */

/* A message that takes its time to come whole, or one behind it from the same sender: handlers see
 * them in the order in which they were sent, which clients build their own protocols on. */
typedef struct ucp_am_turn {
    ucs_list_link_t list;             /* in worker->am_turns */
    ucp_kept_t     *kept;
    uint8_t         uid[UCT_UID_LEN]; /* of the sender */
    unsigned        wire_id;          /* of a message kept as it came; 0: one that is fetched */
    ucs_status_t    status;           /* of the fetch */
} ucp_am_turn_t;

static ucp_am_turn_t *ucp_am_first_turn(ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN])
{
    ucp_am_turn_t *turn;

    ucs_list_for_each(turn, &worker->am_turns, list) {
        if (memcmp(turn->uid, uid, UCT_UID_LEN) == 0) {
            return turn;
        }
    }
    return NULL;
}

/* What the budget knows of: announcements are not counted. */
static size_t ucp_am_turn_size(const ucp_am_turn_t *turn)
{
    return (turn->wire_id == UCP_WIRE_AM_RTS) ? 0 : ucp_kept_size(turn->kept);
}

/* has_turn: it is the first of its sender's messages, and stays that. */
static void ucp_am_add_turn(ucp_worker_t *worker, ucp_am_turn_t *turn, ucp_kept_t *kept,
                            const uint8_t uid[UCT_UID_LEN], unsigned wire_id, int has_turn)
{
    turn->kept    = kept;
    turn->wire_id = wire_id;
    turn->status  = UCS_INPROGRESS;
    memcpy(turn->uid, uid, UCT_UID_LEN);
    if (has_turn) {
        ucs_list_add_head(&worker->am_turns, &turn->list);
    } else {
        ucs_list_add_tail(&worker->am_turns, &turn->list);
    }
    ucp_tag_budget_add(worker, ucp_am_turn_size(turn));
}

/* The peer to answer to for what was kept, by the number of its session, which is its alone. NULL:
 * who has come back does not wait for an answer. */
static ucp_peer_t *ucp_am_kept_peer(ucp_worker_t *worker, uint64_t worker_id,
                                    const ucp_kept_t *kept)
{
    ucp_peer_t *peer = ucp_peer_find(worker, worker_id);

    return ((peer != NULL) && (peer->session == kept->session) && (peer->session != 0)) ? peer :
                                                                                          NULL;
}

/* True if something of the same sender comes first: then the message is kept. What has been checked
 * of its beginning is kept as it was then: `data` may be the peer's to change. */
static UCS_NOINLINE int ucp_am_must_wait(ucp_worker_t *worker, unsigned wire_id,
                                         const void *checked, size_t checked_length,
                                         const void *data, size_t length)
{
    ucp_am_turn_t *turn;
    ucp_kept_t *kept;
    ucp_peer_t *peer;

    if ((worker->sender == NULL) || (ucp_am_first_turn(worker, worker->sender) == NULL)) {
        return 0;
    }
    kept = ucp_kept_get(worker, UCP_KEPT_DATA, sizeof(*turn) + length, sizeof(uint64_t));
    if (kept == NULL) {
        ucs_error("no memory for an active message of %zu bytes that has to wait", length);
        ucp_worker_give_up_sender(worker, UCS_ERR_NO_MEMORY);
        return 1;
    }
    turn = ucp_kept_data(kept);
    memcpy(turn + 1, checked, checked_length);
    memcpy((char *)(turn + 1) + checked_length, (const char *)data + checked_length,
           length - checked_length);
    peer          = ucp_peer_of_connection(worker);
    kept->session = (peer != NULL) ? peer->session : 0;
    ucp_am_add_turn(worker, turn, kept, worker->sender, wire_id, 0);
    return 1;
}

UCS_INLINE int ucp_am_waits(ucp_worker_t *worker, unsigned wire_id, const void *data,
                            size_t length)
{
    return ucs_unlikely(!ucs_list_is_empty(&worker->am_turns)) &&
           ucp_am_must_wait(worker, wire_id, data, 0, data, length);
}

/* ---- whole messages ---- */

static void ucp_am_deliver(ucp_worker_t *worker, const ucp_am_msg_t *msg, const void *data)
{
    ucp_kept_t *kept;

    if (!(msg->handler->flags & UCP_AM_FLAG_PERSISTENT_DATA) &&
        (((uintptr_t)data & (worker->am_alignment - 1)) == 0)) {
        ucp_am_pass(worker, data, msg->length);
        ucp_am_call(msg, (void *)data, 0);
        worker->am_passing = NULL;
        return;
    }
    kept = ucp_kept_get(worker, UCP_KEPT_DATA, msg->length, worker->am_alignment);
    if (kept == NULL) {
        ucs_error("no memory for an active message of %zu bytes to id %u", msg->length, msg->id);
        ucp_worker_give_up_sender(worker, UCS_ERR_NO_MEMORY);
        return;
    }
    memcpy(ucp_kept_data(kept), data, msg->length);
    ucp_am_lend(worker, msg, kept);
}

/* Where the data begins behind a header of so many bytes; 0: beyond the message. */
UCS_INLINE size_t ucp_am_data_offset(size_t head, size_t header_length, size_t length)
{
    size_t offset = head + ucs_align_up(header_length, 8);

    return ucs_likely(offset <= length) ? offset : 0;
}

UCS_INLINE void ucp_am_show(ucp_worker_t *worker, const void *data, size_t length)
{
    ucp_am_recv_param_t param = {.recv_attr = 0};
    const ucp_am_handler_t *handler;
    ucp_am_msg_t msg;
    ucp_wire_am_t am;
    size_t offset;

    memcpy(&am, data, sizeof(am));
    offset = ucp_am_data_offset(sizeof(am), am.header_length, length);
    if (ucs_unlikely(offset == 0)) {
        ucs_warn("peer sent an AM that ends within its header: dropped");
        return;
    }
    handler = ucp_am_handler(worker, am.id);
    if (ucs_unlikely(handler == NULL)) {
        ucp_am_no_handler(worker, am.id);
        return;
    }

    if (ucs_likely(handler->is_plain)) {
        ucp_am_pass(worker, (const char *)data + offset, length - offset);
        handler->cb.recv(handler->arg, (const char *)data + sizeof(am), am.header_length,
                         (char *)data + offset, length - offset, &param);
        worker->am_passing = NULL;
        return;
    }
    msg = (ucp_am_msg_t){handler, am.id, (const char *)data + sizeof(am), am.header_length,
                         length - offset, NULL};
    ucp_am_deliver(worker, &msg, (const char *)data + offset);
}

void ucp_am_handle(void *arg, const void *data, size_t length)
{
    if (ucs_unlikely(length < sizeof(ucp_wire_am_t)) && !ucp_wire_accepts(UCP_WIRE_AM, length)) {
        return;
    }
    if (!ucp_am_waits(arg, UCP_WIRE_AM, data, length)) {
        ucp_am_show(arg, data, length);
    }
}

/* Fills msg; 0: there is nobody to give it to. */
static int ucp_am_open(ucp_worker_t *worker, const ucp_wire_am_t *am, ucp_peer_t *peer,
                       int is_reply, const void *header, size_t length, ucp_am_msg_t *msg)
{
    *msg = (ucp_am_msg_t){ucp_am_handler(worker, am->id), am->id, header, am->header_length, length,
                          NULL};
    if (msg->handler == NULL) {
        ucp_am_no_handler(worker, am->id);
        return 0;
    }
    if (is_reply && (peer != NULL)) {
        msg->reply_ep = ucp_ep_paired(peer, am->ep, UCP_EP_PAIRED_REPLY);
        if (msg->reply_ep == NULL) {
            ucs_error("no memory for an endpoint to answer an active message on");
            ucp_worker_give_up_sender(worker, UCS_ERR_NO_MEMORY);
            return 0;
        }
    }
    return 1;
}

/* kept: in which it has waited, or NULL. */
static void ucp_am_show_reply(ucp_worker_t *worker, const void *data, size_t length,
                              const ucp_kept_t *kept)
{
    ucp_wire_am_reply_t head;
    ucp_am_msg_t msg;
    ucp_peer_t *peer;
    size_t offset;

    memcpy(&head, data, sizeof(head));
    offset = ucp_am_data_offset(sizeof(head), head.am.header_length, length);
    if (offset == 0) {
        ucs_warn("peer sent an AM_REPLY that ends within its header: dropped");
        return;
    }
    peer = (kept != NULL) ? ucp_am_kept_peer(worker, head.worker_id, kept) :
                            ucp_peer_of_sender(worker, head.worker_id, "AM_REPLY");
    if ((peer == NULL) && (kept == NULL)) {
        return;
    }
    if (ucp_am_open(worker, &head.am, peer, 1, (const char *)data + sizeof(head), length - offset,
                    &msg)) {
        ucp_am_deliver(worker, &msg, (const char *)data + offset);
    }
}

void ucp_am_reply_handle(void *arg, const void *data, size_t length)
{
    if (ucp_wire_accepts(UCP_WIRE_AM_REPLY, length) &&
        !ucp_am_waits(arg, UCP_WIRE_AM_REPLY, data, length)) {
        ucp_am_show_reply(arg, data, length, NULL);
    }
}

/* ---- announced messages ---- */

/* What stands behind the data of a message that the library receives for a handler. */
typedef struct {
    ucp_wire_rts_t rts;
    ucp_am_turn_t  turn;
    ucp_worker_t  *worker;
    /* header */
} ucp_am_fetch_t;

static ucp_am_fetch_t *ucp_am_fetch(ucp_kept_t *kept)
{
    return (ucp_am_fetch_t *)((char *)ucp_kept_data(kept) + ucs_align_up(kept->length, 8));
}

/* Gives it back, as its handler says. */
static void ucp_am_show_fetched(ucp_worker_t *worker, ucp_kept_t *kept)
{
    ucp_am_fetch_t *fetch = ucp_am_fetch(kept);
    ucp_wire_am_t am      = ucp_wire_am_head(fetch->rts.tag);
    ucp_am_msg_t msg;

    if (fetch->turn.status != UCS_OK) {
        ucs_debug("an active message of %zu bytes did not come whole: %s", kept->length,
                  ucs_status_string(fetch->turn.status));
    } else if (ucp_am_open(worker, &am, ucp_am_kept_peer(worker, fetch->rts.worker_id, kept),
                           fetch->rts.flags & UCP_WIRE_RTS_REPLY, fetch + 1, kept->length,
                           &msg)) {
        ucp_am_lend(worker, &msg, kept);
        return;
    }
    ucp_kept_put(kept);
}

static void ucp_am_fetched(void *request, ucs_status_t status, size_t length, void *user_data);

/* Receives the data for a handler that wants all of it at once. has_turn: before all others of the
 * sender. */
static ucs_status_t ucp_am_start_fetch(ucp_worker_t *worker, ucp_peer_t *peer,
                                       const ucp_wire_rts_t *rts, const void *header,
                                       size_t header_length, int has_turn)
{
    size_t tail               = sizeof(ucp_am_fetch_t) + 8 + header_length;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv_am   = ucp_am_fetched};
    ucp_am_fetch_t *fetch;
    ucp_request_t *req;
    ucp_kept_t *kept;

    kept = (rts->length > SIZE_MAX / 2) ? NULL :
           ucp_kept_get(worker, UCP_KEPT_DATA, rts->length + tail, worker->am_alignment);
    if (kept == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    param.user_data = kept;
    req             = ucp_request_get(worker, &param, UCP_REQUEST_AM_RECV);
    if (req == NULL) {
        ucp_kept_put(kept);
        return UCS_ERR_NO_MEMORY;
    }

    kept->length  = rts->length;
    kept->session = peer->session;
    fetch         = ucp_am_fetch(kept);
    fetch->rts    = *rts;
    fetch->worker = worker;
    if (header_length > 0) {
        memcpy(fetch + 1, header, header_length);
    }
    req->buffer   = ucp_kept_data(kept);
    req->length   = rts->length;
    req->datatype = ucp_dt_make_contig(1);
    ucp_am_add_turn(worker, &fetch->turn, kept, peer->uid, 0, has_turn);
    ucp_rndv_recv_start(req, peer, rts, 0);
    return UCS_OK;
}

/* May so much be fetched beside what is fetched already? */
static int ucp_am_has_room(const ucp_worker_t *worker, uint64_t length)
{
    size_t budget = worker->context->options.unexp_budget;

    return (worker->unexp_bytes < budget) && (length <= budget - worker->unexp_bytes);
}

/* has_turn: it has waited for what came before it. */
static void ucp_am_show_announced(ucp_worker_t *worker, ucp_peer_t *peer,
                                  const ucp_wire_rts_t *rts, const void *data, size_t length,
                                  int has_turn)
{
    size_t rts_length   = ucp_wire_rts_length(rts->flags);
    ucp_wire_am_t am    = ucp_wire_am_head(rts->tag);
    ucs_status_t status = UCS_OK;
    ucp_am_msg_t msg;
    ucp_kept_t *kept;

    if (am.header_length > length - rts_length) {
        ucs_warn("peer sent an AM_RTS that ends within its header: dropped");
        return;
    }
    if (!ucp_am_open(worker, &am, peer, rts->flags & UCP_WIRE_RTS_REPLY,
                     (const char *)data + rts_length, rts->length, &msg)) {
        /* as one that came whole */
        ucp_rndv_drop(worker, rts, worker->is_ending ? UCS_ERR_REJECTED : UCS_OK);
        return;
    }

    if (msg.handler->is_legacy || (rts->flags & UCP_WIRE_RTS_WHOLE) ||
        ((msg.handler->flags & UCP_AM_FLAG_WHOLE_MSG) && !(rts->flags & UCP_WIRE_RTS_FORCED))) {
        if (has_turn || ucp_am_has_room(worker, rts->length) ||
            !ucp_am_must_wait(worker, UCP_WIRE_AM_RTS, rts, rts_length, data, length)) {
            status = ucp_am_start_fetch(worker, peer, rts, msg.header, msg.header_length, has_turn);
        }
    } else if (has_turn || !ucp_am_must_wait(worker, UCP_WIRE_AM_RTS, rts, rts_length, data,
                                             length)) {
        kept = ucp_kept_get(worker, UCP_KEPT_RTS, sizeof(*rts), 1);
        if (kept != NULL) {
            kept->session = peer->session;
            memcpy(ucp_kept_data(kept), rts, sizeof(*rts));
            ucp_am_lend(worker, &msg, kept);
        } else {
            status = UCS_ERR_NO_MEMORY;
        }
    }
    if (status != UCS_OK) {
        ucs_error("no memory for an active message of %zu bytes to id %u: its sender is told",
                  msg.length, am.id);
        ucp_rndv_drop(worker, rts, status);
    }
}

void ucp_am_rts_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_rts_t rts;
    ucp_peer_t *peer = ucp_rndv_read_rts(arg, UCP_WIRE_AM_RTS, data, length, &rts);

    if (peer != NULL) {
        ucp_am_show_announced(arg, peer, &rts, data, length, 0);
    }
}

/* Shows a handler the message whose turn it is, and is done with it. */
static void ucp_am_show_turn(ucp_worker_t *worker, ucp_am_turn_t *turn)
{
    const void *data = turn + 1;
    size_t length    = turn->kept->length - sizeof(*turn);
    ucp_wire_rts_t rts;
    ucp_peer_t *peer;

    switch (turn->wire_id) {
    case UCP_WIRE_AM:
        ucp_am_show(worker, data, length);
        break;
    case UCP_WIRE_AM_REPLY:
        ucp_am_show_reply(worker, data, length, turn->kept);
        break;
    case UCP_WIRE_AM_RTS:
        (void)ucp_wire_rts_read(data, length, &rts);
        peer = ucp_peer_of_kept(worker, rts.worker_id, turn->kept->session);
        if (peer != NULL) { /* else it has parted since */
            ucp_am_show_announced(worker, peer, &rts, data, length, 1);
        }
        break;
    default:
        ucp_am_show_fetched(worker, turn->kept);
        return;
    }
    ucp_kept_put(turn->kept);
}

static void ucp_am_fetched(void *request, ucs_status_t status, size_t length UCS_UNUSED,
                           void *user_data)
{
    ucp_am_fetch_t *fetch = ucp_am_fetch(user_data);
    ucp_worker_t *worker  = fetch->worker;
    const uint8_t *sender = worker->sender;
    uint8_t uid[UCT_UID_LEN];
    ucp_am_turn_t *turn;

    ucp_request_free(request);
    fetch->turn.status = status;
    memcpy(uid, fetch->turn.uid, sizeof(uid));
    while (((turn = ucp_am_first_turn(worker, uid)) != NULL) &&
           ((turn->wire_id != 0) || (turn->status != UCS_INPROGRESS))) {
        ucs_list_del(&turn->list);
        ucp_tag_budget_del(worker, ucp_am_turn_size(turn));
        worker->sender = uid;
        ucp_am_show_turn(worker, turn);
        worker->sender = sender;
    }
}

/* ---- data that handlers keep ---- */

void ucp_am_cancelled(ucp_peer_t *peer, uint64_t send_id)
{
    ucp_am_turn_t *turn;
    ucp_wire_rts_t *rts;
    ucp_kept_t *kept;

    ucs_list_for_each(turn, &peer->worker->am_turns, list) {
        rts = (ucp_wire_rts_t *)(turn + 1);
        if ((turn->wire_id == UCP_WIRE_AM_RTS) && (rts->request_id == send_id) &&
            (rts->worker_id == ucp_uid_id(peer->uid))) {
            rts->worker_id = 0;
        }
    }

    ucs_list_for_each(kept, &peer->worker->kept, list) {
        rts = ucp_kept_data(kept);
        if ((kept->kind == UCP_KEPT_RTS) && (rts->request_id == send_id) &&
            (rts->worker_id == ucp_uid_id(peer->uid))) {
            rts->worker_id = 0; /* as of a peer that is gone */
        }
    }
}

/* Is it what a handler that runs was shown and may not keep? Nothing of ours stands before it. */
UCS_INLINE int ucp_am_is_passing(const ucp_worker_t *worker, const void *data)
{
    return (data == worker->am_passing) && (data != NULL);
}

static ucs_status_ptr_t ucp_am_recv_data_locked(ucp_worker_t *worker, void *data, void *buffer,
                                                size_t count, const ucp_request_param_t *param)
{
    const int is_passing = ucp_am_is_passing(worker, data);
    ucp_kept_t *kept     = ucp_kept_of(data);
    ucs_status_ptr_t ptr;
    ucp_request_t *req;
    ucs_status_t status;
    ucp_wire_rts_t rts;
    uint32_t session;

    if (!is_passing && kept->is_taken) {
        /* by the handler that still runs */
        return ucp_request_end_without(param, UCP_REQUEST_AM_RECV, UCS_ERR_INVALID_PARAM);
    }
    req = ucp_recv_request(worker, buffer, count, param, UCP_REQUEST_AM_RECV, &ptr);
    if (req == NULL) {
        if (!is_passing) {
            ucp_am_give_back(worker, kept, UCS_OK);
        }
        return ptr;
    }
    if (is_passing) {
        status = ucp_eager_deliver(req, 0, data, worker->am_passing_length);
        return ucp_request_end_recv(req, status, param);
    }
    if (kept->kind != UCP_KEPT_RTS) {
        status = ucp_eager_deliver(req, 0, ucp_kept_data(kept), kept->length);
        ucp_am_take(kept);
        return ucp_request_end_recv(req, status, param);
    }
    if (req->length == 0) { /* the way to say that the message is not wanted */
        ucp_am_give_back(worker, kept, UCS_OK);
        req->info.length = 0;
        return ucp_request_end_recv(req, UCS_OK, param);
    }
    if (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
        return ucp_request_end_immediately(req, UCS_ERR_NO_RESOURCE); /* it stays the user's */
    }
    memcpy(&rts, ucp_kept_data(kept), sizeof(rts));
    session = kept->session;
    ucp_am_take(kept);
    ucp_rndv_recv_start(req, ucp_peer_of_kept(worker, rts.worker_id, session), &rts, 0);
    return ucp_request_handle(req);
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer,
                                      size_t count, const ucp_request_param_t *param)
{
    ucs_status_ptr_t ptr;

    ucp_worker_lock(worker);
    ptr = ucp_am_recv_data_locked(worker, data_desc, buffer, count, param);
    ucp_worker_unlock(worker);
    return ptr;
}

void ucp_am_data_release(ucp_worker_h worker, void *data)
{
    ucp_kept_t *kept = ucp_kept_of(data);

    ucp_worker_lock(worker);
    if (!ucp_am_is_passing(worker, data) && !kept->is_taken) {
        ucp_am_give_back(worker, kept, UCS_OK);
    }
    ucp_worker_unlock(worker);
}
