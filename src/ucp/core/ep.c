/* Halyard: endpoint.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/flush.h>
#include <ucp/core/provisional.h>
#include <ucp/core/wakeup.h>
#include <ucp/ops/rma.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/rndv.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

#define UCP_EP_WATCHES      8    /* endpoints that are connected at a time */
/* closed ones whose memory a worker keeps, unless uses of it are to be found */
#define UCP_EP_CLOSED_MAX   (UCS_HAVE_ASAN ? 0u : 64u)
#define UCP_EP_INTERNAL_MAX 1024 /* endpoints of one peer that the user did not make */

void ucp_ep_track(ucp_ep_t *ep, ucp_request_t *req)
{
    ucs_list_add_tail(&ep->requests, &req->list);
    req->held   |= UCP_REQUEST_HOLDS_TRACKED;
    req->send.sn = req->send.flush_sn = ep->worker->send_sn++;
    ++ep->num_requests;
    ++ep->worker->num_sends;
    req->send.is_handed = 0;
    if (ucp_send_waits_for_receiver(req)) {
        ucp_ep_hand_over(req);
    }
}

void ucp_ep_hand_over(ucp_request_t *req)
{
    ucp_worker_t *worker = req->worker;

    ucs_assert(!req->send.is_handed);
    req->send.is_handed = 1;
    ++req->send.ep->num_handed;
    ++worker->num_handed;
    if (ucs_unlikely(!ucs_list_is_empty(&worker->flushes))) {
        ucp_flush_send_ended(worker, req->send.ep, req->send.peer, req->send.flush_sn,
                             UCP_FLUSH_OF_FLUSH);
    }
}

void ucp_ep_take_back(ucp_request_t *req)
{
    if (req->send.is_handed) {
        req->send.is_handed = 0;
        --req->send.ep->num_handed;
        --req->worker->num_handed;
        req->send.flush_sn = req->worker->send_sn++;
    }
}

void ucp_ep_untrack(ucp_request_t *req)
{
    ucp_worker_t *worker = req->worker;

    ucs_list_del(&req->list);
    --req->send.ep->num_requests;
    --worker->num_sends;
    req->send.ep->num_handed -= req->send.is_handed;
    worker->num_handed       -= req->send.is_handed;
    if (ucs_unlikely(req->send.ep->is_internal)) {
        ucp_peer_retire(req->send.peer); /* it may have waited for this one */
    }
    if (ucp_request_is_rma(req)) {
        ucp_rma_ended(req);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&worker->flushes))) {
        if (!req->send.is_handed) {
            ucp_flush_send_ended(worker, req->send.ep, req->send.peer, req->send.flush_sn,
                                 UCP_FLUSH_OF_FLUSH);
        }
        ucp_flush_send_ended(worker, req->send.ep, req->send.peer, req->send.sn,
                             UCP_FLUSH_OF_CLOSE);
    }
}

void ucp_ep_unqueue(ucp_ep_t *ep)
{
    ucp_request_t *req;

    ucs_list_for_each(req, &ep->requests, list) {
        ucp_send_unqueue(req);
    }
}

void ucp_ep_set_limits(ucp_ep_t *ep)
{
    const ucp_peer_t *peer         = ep->peer;
    const ucp_proto_range_t *first = &peer->proto->send[0];
    size_t limit                   = 0;

    /* The first message goes the long way, behind HELLO. */
    if ((first->proto == UCP_PROTO_EAGER) && peer->hello_sent && (peer->status == UCS_OK)) {
        limit = ucs_min(ucs_min(first->max, peer->proto->eager_max) + 1, peer->proto->zcopy_min);
        if (peer->is_holding) {
            limit = ucs_min(limit, (size_t)UCP_TAG_TINY + 1);
        }
    }
    ep->locked_limit = limit;
    if (!ep->worker->lock.enabled) { /* else it is 0 for good, and read without the lock */
        ep->short_limit = limit;
    }
}

/* It can be closed by force: its lanes may have to give operations up. */
static void ucp_ep_warn_lanes(ucp_ep_t *ep)
{
    unsigned i;

    for (i = 0; (ep->err_mode != UCP_ERR_HANDLING_MODE_NONE) && (i < UCP_LANE_LAST); ++i) {
        if (ep->peer->lanes[i] != NULL) {
            ep->peer->lanes[i]->may_abandon = 1;
        }
    }
}

/* Makes an endpoint that of the peer which pairs with the peer's endpoint `ordinal`. */
static void ucp_ep_attach(ucp_ep_t *ep, ucp_peer_t *peer, uint32_t ordinal)
{
    if (ep->peer != NULL) { /* another thread may look at it without the lock */
        ucs_assert(ep->num_left < ucs_array_size(ep->left));
        ep->left[ep->num_left++] = ep->peer;
        ++ep->peer->num_left;
    }
    ucs_list_del(&ep->peer_list);
    ucs_list_add_tail(&peer->eps, &ep->peer_list);
    __atomic_store_n(&ep->peer, peer, __ATOMIC_RELEASE); /* R7: pairs with A7 in ucp_rma_is_open */
    ep->am      = peer->lanes[UCP_LANE_AM];
    ep->ordinal = ordinal;
    ep->pair    = ordinal ^ (ordinal >> 31); /* see UCP_WIRE_CONN_ORDINAL */
    ucp_ep_set_limits(ep);
    ucp_ep_warn_lanes(ep);
}

void ucp_ep_forget_closed(ucp_worker_t *worker, unsigned max_left)
{
    ucp_ep_t *ep;

    while (worker->num_closed_eps > max_left) {
        ep = ucs_list_extract_head(&worker->closed_eps, ucp_ep_t, list);
        --worker->num_closed_eps;
        ucs_sys_free(ep);
    }
}

/* Keeps the memory of an endpoint that is no more: there are programs that close one again. */
static void ucp_ep_bury(ucp_ep_t *ep)
{
    ucs_list_add_tail(&ep->worker->closed_eps, &ep->list);
    ++ep->worker->num_closed_eps;
    ucp_ep_forget_closed(ep->worker, UCP_EP_CLOSED_MAX);
}

/* A new endpoint, without a peer yet; NULL without memory. */
static ucp_ep_t *ucp_ep_new(ucp_worker_t *worker)
{
    ucp_ep_t *ep = ucs_sys_calloc(1, sizeof(*ep));

    if (ep != NULL) {
        ep->worker   = worker;
        ep->err_mode = UCP_ERR_HANDLING_MODE_NONE;
        ucs_list_head_init(&ep->requests);
        ucs_list_head_init(&ep->failed_list);
        ucs_list_head_init(&ep->watch_list);
        ucs_list_head_init(&ep->peer_list);
        ucs_list_add_tail(&worker->eps, &ep->list);
        ucs_list_head_init(&ep->stream.chunks);
        ucs_list_head_init(&ep->stream.recvs);
        ucs_list_head_init(&ep->stream.ready);
        ucp_entity_name(ep->name, NULL, ep);
    }
    return ep;
}

static ucp_ep_t *ucp_ep_find(ucp_peer_t *peer, uint32_t ordinal)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if ((ep->ordinal == ordinal) && !ep->is_closing) {
            return ep;
        }
    }
    return NULL;
}

ucp_ep_t *ucp_ep_handed_out(const ucp_peer_t *peer)
{
    ucp_ep_t *ep;

    ucs_list_for_each(ep, &peer->eps, peer_list) {
        if (ep->is_handed_out) {
            return ep;
        }
    }
    return NULL;
}

/* See ucp_ep_was_closed; `ep` is what bears the ordinal now, or NULL: one of the library's
 * may have taken its place, to answer on. */
static int ucp_ep_is_past(const ucp_peer_t *peer, const ucp_ep_t *ep, uint32_t ordinal)
{
    if ((ep != NULL) && !ep->is_internal) {
        return 0;
    }
    if ((ordinal >= UCP_WIRE_APART_ORDINAL) && (ordinal != UINT32_MAX) &&
        (memcmp(peer->uid, peer->worker->uid, UCT_UID_LEN) == 0)) {
        return ordinal < peer->next_apart;
    }
    return (ordinal & UCP_WIRE_CONN_ORDINAL) ? !ucp_conn_is_awaited(peer->worker, ordinal) &&
                                               !ucp_successors_have(peer->worker, ordinal) :
                                               (ordinal < peer->next_ordinal);
}

int ucp_ep_was_closed(ucp_peer_t *peer, uint32_t ordinal)
{
    return ucp_ep_is_past(peer, ucp_ep_find(peer, ordinal), ordinal);
}

ucp_ep_t *ucp_ep_paired(ucp_peer_t *peer, uint32_t ordinal, ucp_ep_paired_t use)
{
    ucp_ep_t *ep = ucp_ep_find(peer, ordinal);

    if ((use == UCP_EP_PAIRED_STREAM) && ucp_ep_is_past(peer, ep, ordinal)) {
        return NULL;
    }
    if (ep == NULL) {
        if (peer->num_internal >= UCP_EP_INTERNAL_MAX) {
            /* who has so many that nobody made cannot tell them apart any more */
            return (use == UCP_EP_PAIRED_REPLY) ? ucp_ep_handed_out(peer) : NULL;
        }
        ep = ucp_ep_new(peer->worker);
        if (ep == NULL) {
            return NULL;
        }
        ucp_ep_attach(ep, peer, ordinal);
        ep->is_internal = 1;
        ++peer->num_internal;
    }
    if (use == UCP_EP_PAIRED_REPLY) {
        ep->is_handed_out = 1;
    }
    return ep;
}

void ucp_ep_pair_anew(ucp_peer_t *peer)
{
    ucp_ep_t *ep, *next;

    peer->next_ordinal = 0;
    ucs_list_for_each_safe(ep, next, &peer->eps, peer_list) {
        if ((ep->ordinal & UCP_WIRE_CONN_ORDINAL) && (ep->ordinal != UINT32_MAX)) {
            continue;
        }
        if ((ep->stream.status == UCS_OK) && !ep->is_internal) {
            ep->ordinal = ep->pair = peer->next_ordinal++;
            ep->stream.unread = ep->stream.read = 0;
            continue;
        }
        ep->ordinal = ep->pair = UINT32_MAX;
        if (ep->is_internal && !ep->is_handed_out) {
            ucp_ep_free(ep);
        }
    }
}

/* Those made by a socket address hear of a death by their connection's end. */
void ucp_ep_watch(ucp_ep_t *ep)
{
    const int is_awaited = !ucs_list_is_empty(&ep->stream.recvs);

    if ((ep->err_mode != UCP_ERR_HANDLING_MODE_NONE) && (ep->err_cb != NULL) &&
        (ep->conn == NULL) && !ep->peer->is_provisional && (ep->am->state == UCT_EP_IDLE) &&
        (is_awaited || (ep->am->iface->tl->kind != UCT_TL_KIND_NET)) &&
        ucs_list_is_empty(&ep->watch_list)) {
        ucs_list_add_tail(&ep->worker->watches, &ep->watch_list);
        ep->worker->deferred |= UCP_DEFERRED_SOME;
        ucp_wakeup_rouse(ep->worker);
    }
}

void ucp_ep_run_watches(ucp_worker_t *worker)
{
    unsigned i;
    ucp_ep_t *ep;

    for (i = 0; (i < UCP_EP_WATCHES) && !ucs_list_is_empty(&worker->watches); ++i) {
        ep = ucs_list_extract_head(&worker->watches, ucp_ep_t, watch_list);
        if (!ep->is_closing && !ep->peer->is_provisional && (ep->peer->status == UCS_OK)) {
            /* Not without a word: who waits for the end of a former connection of ours would take
             * this one for it, see ucp_hello_handle. */
            ucp_peer_send_control(ep->peer, UCP_WIRE_HELLO, NULL, 0);
        }
    }
    worker->deferred |= ucs_list_is_empty(&worker->watches) ? 0 : UCP_DEFERRED_SOME;
}

/* Where the ordinal of the user's next endpoint to a peer is counted. */
static uint32_t *ucp_ep_next_ordinal(ucp_peer_t *peer, int is_apart)
{
    return is_apart ? &peer->next_apart : &peer->next_ordinal;
}

void ucp_ep_set_peer(ucp_ep_t *ep, ucp_peer_t *peer)
{
    uint32_t ordinal = (ep->conn != NULL) ? ep->conn->ordinal :
                                            (*ucp_ep_next_ordinal(peer, ep->is_apart))++;
    ucp_ep_t *before = peer->is_provisional ? NULL : ucp_ep_find(peer, ordinal);

    ucp_ep_attach(ep, peer, ordinal);
    if ((ep->conn != NULL) && !peer->is_provisional) {
        peer->lanes[UCP_LANE_AM]->was_met = 1; /* by a socket */
    }
    ucp_ep_watch(ep);
    if ((before != NULL) && before->is_internal) {
        /* the peer was quicker to use what it pairs with */
        ucp_stream_move(before, ep);
        before->ordinal = UINT32_MAX;
        if (!before->is_handed_out) {
            ucp_ep_free(before);
        }
    }
}

/* The user's next endpoint to the peer: one of the library's that the peer has already used, or a
 * new one. NULL without memory. */
static ucp_ep_t *ucp_ep_next(ucp_peer_t *peer, int is_apart)
{
    uint32_t *ordinal = ucp_ep_next_ordinal(peer, is_apart);
    ucp_ep_t *ep      = peer->is_provisional ? NULL : ucp_ep_find(peer, *ordinal);

    if (ep != NULL) {
        ep->is_internal = 0;
        ep->is_reported = 0;
        --peer->num_internal;
        ++*ordinal;
        return ep;
    }
    ep = ucp_ep_new(peer->worker);
    if (ep != NULL) {
        ep->is_apart = is_apart;
        ucp_ep_set_peer(ep, peer);
    }
    return ep;
}

void ucp_ep_release(ucp_ep_t *ep)
{
    if ((--ep->num_holds == 0) && ep->is_freed) {
        ucp_ep_bury(ep);
    }
}

void ucp_ep_purge(ucp_ep_t *ep, ucs_status_t status)
{
    const int is_ending = ep->worker->is_ending;
    ucp_request_t *req;

    ucp_ep_unqueue(ep);
    ucp_ep_hold(ep);
    while (!ucs_list_is_empty(&ep->requests)) {
        req = ucs_list_head(&ep->requests, ucp_request_t, list);
        if (is_ending) {
            ucp_request_release_held(req);
        } else if (ucp_rndv_is_delivered(req)) {
            ucp_request_complete(req, UCS_OK);
        } else {
            ucp_rndv_send_cancel(req, status);
            ucp_request_complete(req, status); /* the user may close the endpoint here */
        }
    }
    ucp_ep_release(ep);
}

void ucp_ep_free(ucp_ep_t *ep)
{
    ucp_peer_t *peer = ep->peer;

    ucs_assert(ep->num_requests == 0);
    if (ep->conn != NULL) {
        ucp_conn_close(ep->conn);
    }
    ucp_stream_cleanup(ep);
    peer->num_internal -= ep->is_internal;
    ucs_list_del(&ep->list);
    ucs_list_del(&ep->peer_list);
    ucp_peer_leave_unused(peer);
    ucs_list_del(&ep->failed_list);
    ucs_list_del(&ep->watch_list);
    while (ep->num_left > 0) {
        --ep->left[--ep->num_left]->num_left;
        ucp_peer_retire(ep->left[ep->num_left]);
    }
    ep->is_freed = 1;
    if (ep->num_holds == 0) {
        ucp_ep_bury(ep);
    }
    ucp_peer_retire(peer);
}

/* ---- failure ---- */

/* Is the end of the endpoint told to the user? One made by a socket address has a connection of its
 * own whose end is seen in every mode. */
static int ucp_ep_has_handler(const ucp_ep_t *ep)
{
    return (ep->err_cb != NULL) &&
           ((ep->err_mode != UCP_ERR_HANDLING_MODE_NONE) || (ep->conn != NULL));
}

void ucp_ep_report_failure(ucp_ep_t *ep)
{
    if (ep->is_reported || ep->is_closing) {
        return;
    }
    ep->is_reported = 1;
    if (ep->is_internal) {
        return;
    }
    if (!ucp_ep_has_handler(ep)) {
        ucs_diag("endpoint '%s': %s, and it has no error handler", ep->name,
                 ucs_status_string(ep->peer->status));
        return;
    }
    ucs_list_add_tail(&ep->worker->failed_eps, &ep->failed_list);
    ep->worker->deferred |= UCP_DEFERRED_SOME;
    ucp_wakeup_rouse(ep->worker); /* another thread may sleep, with the lock free */
}

unsigned ucp_ep_run_failure_handlers(ucp_worker_t *worker)
{
    ucs_list_link_t due;
    unsigned count = 0;
    ucp_ep_t *ep;

    /* A handler may make an endpoint that fails at once: its turn is the next call. */
    ucs_list_head_init(&due);
    ucs_list_splice_tail(&due, &worker->failed_eps);
    while (!ucs_list_is_empty(&due)) {
        ep = ucs_list_extract_head(&due, ucp_ep_t, failed_list);
        ++count;
        if (!ep->is_closing && ucp_ep_has_handler(ep)) { /* another may have taken it away */
            ep->err_cb(ep->has_user_data ? ep->user_data : ep->err_arg, ep,
                       ep->peer->status); /* may close the endpoint */
        }
    }
    return count;
}

/* ---- public ---- */

/* Takes over what the mask names; the rest stays. */
static void ucp_ep_set_params(ucp_ep_t *ep, const ucp_ep_params_t *params)
{
    uint64_t mask = params->field_mask;

    if (mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) {
        ep->err_mode = params->err_mode;
        if (ep->peer != NULL) {
            ucp_ep_warn_lanes(ep);
        }
    }
    if (mask & UCP_EP_PARAM_FIELD_ERR_HANDLER) {
        ep->err_cb  = params->err_handler.cb;
        ep->err_arg = params->err_handler.arg;
    }
    if (mask & UCP_EP_PARAM_FIELD_USER_DATA) {
        ep->user_data     = params->user_data;
        ep->has_user_data = 1;
    }
    if (mask & UCP_EP_PARAM_FIELD_NAME) {
        ucp_entity_name(ep->name, params->name, ep);
    }
}

/* The peer that the parameters name, provisional where it is a server, or a worker whose former
 * peer has yet to part. */
static ucs_status_t ucp_ep_find_peer(ucp_worker_t *worker, const ucp_ep_params_t *params,
                                     ucp_conn_t *request, int is_client, ucp_peer_t **peer_p)
{
    if (is_client) {
        return ucp_peer_create_provisional(worker, peer_p);
    }
    if ((request == NULL) && (!(params->field_mask & UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) ||
                              (params->address == NULL))) {
        ucs_error("ucp_ep_create: no remote address is given");
        return UCS_ERR_INVALID_PARAM;
    }
    return ucp_peer_get_or_await(
        worker, (request != NULL) ? ucp_conn_address(request) : params->address, peer_p);
}

static ucs_status_t ucp_ep_create_locked(ucp_worker_t *worker, const ucp_ep_params_t *params,
                                         ucp_conn_t *request, int is_client, ucp_ep_t **ep_p)
{
    ucs_status_t status;
    ucp_peer_t *peer;
    ucp_ep_t *ep;
    int is_apart;

    status = ucp_ep_find_peer(worker, params, request, is_client, &peer);
    if (status != UCS_OK) {
        return status;
    }
    is_apart = !is_client && (params->field_mask & UCP_EP_PARAM_FIELD_FLAGS) &&
               (params->flags & UCP_EP_PARAMS_FLAGS_NO_LOOPBACK) &&
               (memcmp(peer->uid, worker->uid, UCT_UID_LEN) == 0);
    ep       = (request == NULL) ? ucp_ep_next(peer, is_apart) : ucp_ep_new(worker);
    if (ep == NULL) {
        ucp_peer_leave_unused(peer);
        return UCS_ERR_NO_MEMORY;
    }

    ucp_ep_set_params(ep, params);
    if (is_client) {
        status = ucp_conn_connect(ep, params);
    } else if (request != NULL) {
        ep->conn = request;
        ucp_ep_set_peer(ep, peer);
        status = ucp_conn_accept(request, ep);
    }
    if (status != UCS_OK) {
        ep->conn = NULL;
        ucp_ep_free(ep);
        return status;
    }
    if (peer->status != UCS_OK) {
        ucp_ep_report_failure(ep);
    }
    ucp_ep_watch(ep);
    *ep_p = ep;
    return UCS_OK;
}

static ucs_status_t ucp_ep_check_params(const ucp_ep_params_t *params)
{
    const uint64_t mask = params->field_mask;

    if ((mask & UCP_EP_PARAM_FIELD_FLAGS) && (params->flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER) &&
        !(mask & UCP_EP_PARAM_FIELD_SOCK_ADDR)) {
        ucs_error("an endpoint of a client needs the server's socket address");
        return UCS_ERR_INVALID_PARAM;
    }
    if ((mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) &&
        ((unsigned)params->err_mode > UCP_ERR_HANDLING_MODE_FAILOVER)) {
        ucs_error("endpoints have no error handling mode %d", (int)params->err_mode);
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep_p)
{
    uint64_t mask = params->field_mask;
    int is_client = (mask & UCP_EP_PARAM_FIELD_SOCK_ADDR) && (mask & UCP_EP_PARAM_FIELD_FLAGS) &&
                    (params->flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER);
    ucp_conn_t *request =
        (!is_client && (mask & UCP_EP_PARAM_FIELD_CONN_REQUEST)) ? params->conn_request : NULL;
    ucs_status_t status = ucp_ep_check_params(params);

    if (status == UCS_OK) {
        ucp_worker_lock(worker);
        status = ucp_ep_create_locked(worker, params, request, is_client, ep_p);
        ucp_worker_unlock(worker);
    }
    if ((status != UCS_OK) && (request != NULL)) {
        ucp_conn_reject(request, status);
    }
    return status;
}

ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h ep, const ucp_ep_params_t *params)
{
    const ucs_status_t status = ucp_ep_check_params(params);

    if (status != UCS_OK) {
        return UCS_STATUS_PTR(status);
    }
    if (params->field_mask & (UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_SOCK_ADDR)) {
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    ucp_worker_lock(ep->worker);
    ucp_ep_set_params(ep, params);
    ucp_ep_watch(ep);
    ucp_worker_unlock(ep->worker);
    return NULL;
}

/* The lanes of the peer, each once. */
static void ucp_ep_query_transports(const ucp_peer_t *peer, ucp_transports_t *transports)
{
    unsigned count = 0;
    const uct_iface_t *iface;
    unsigned role;

    for (role = 0; (role < UCP_LANE_LAST) && (count < transports->num_entries); ++role) {
        ucp_transport_entry_t *entry =
            (void *)((char *)transports->entries + (count * transports->entry_size));

        if ((peer->lanes[role] == NULL) || peer->is_provisional ||
            ((role > 0) && (peer->lanes[role] == peer->lanes[0])) ||
            ((role >= UCP_LANE_RAIL) && (peer->lanes[role]->state != UCT_EP_LIVE))) {
            continue;
        }
        iface                 = peer->lanes[role]->iface;
        entry->transport_name = iface->tl->name;
        entry->device_name    = (iface->device != NULL) ? iface->device : "memory";
        ++count;
    }
    transports->num_entries = count;
}

ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr)
{
    if ((ep->conn == NULL) &&
        (attr->field_mask &
         (UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR))) {
        return UCS_ERR_NOT_CONNECTED;
    }
    ucp_worker_lock(ep->worker);
    if (attr->field_mask & UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR) {
        attr->local_sockaddr = ep->conn->local;
    }
    if (attr->field_mask & UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) {
        attr->remote_sockaddr = ep->conn->remote;
    }
    if (attr->field_mask & UCP_EP_ATTR_FIELD_NAME) {
        memcpy(attr->name, ep->name, sizeof(attr->name));
    }
    if (attr->field_mask & UCP_EP_ATTR_FIELD_USER_DATA) {
        attr->user_data = ep->user_data;
    }
    if (attr->field_mask & UCP_EP_ATTR_FIELD_TRANSPORTS) {
        ucp_ep_query_transports(ep->peer, &attr->transports);
    }
    ucp_worker_unlock(ep->worker);
    return UCS_OK;
}

ucs_status_t ucp_ep_evaluate_perf(ucp_ep_h ep, const ucp_ep_evaluate_perf_param_t *param,
                                  ucp_ep_evaluate_perf_attr_t *attr)
{
    const ucp_proto_config_t *proto;

    if (!(param->field_mask & UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE)) {
        return UCS_ERR_INVALID_PARAM;
    }
    ucp_worker_lock(ep->worker);
    proto = ep->peer->proto;
    if (attr->field_mask & UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME) {
        attr->estimated_time =
            ucp_proto_time_ns(proto, ucp_proto_lookup(proto->send, param->message_size),
                              param->message_size) /
            1e9;
    }
    ucp_worker_unlock(ep->worker);
    return UCS_OK;
}

void ucp_ep_print_info(ucp_ep_h ep, FILE *stream)
{
    ucs_report_t storage, *report;

    ucp_worker_lock(ep->worker);
    report = ucs_report_begin(stream, &storage);
    ucs_report_row(report, "name", "#\n# UCP endpoint %s\n#\n", ep->name);
    if (ep->peer->is_provisional) {
        ucs_report_row(report, "reason", "# not known yet: %s\n",
                       (ep->peer->status != UCS_OK) ? ucs_status_string(ep->peer->status) :
                                                      "the peer has yet to answer");
    } else {
        ucp_proto_explain(ep->peer->proto, report);
    }
    ucs_report_end(report, stream);
    ucp_worker_unlock(ep->worker);
}
