/* Halyard: worker: life, progress, lock.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/ep.h>
#include <ucp/core/flush.h>
#include <ucp/core/idle.h>
#include <ucp/core/provisional.h>
#include <ucp/core/wakeup.h>
#include <ucp/ops/rma.h>
#include <ucp/ops/am.h>
#include <ucp/ops/kept.h>
#include <ucp/protos/rndv.h>
#include <ucp/wire/wire.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

/* Longest that destroying a worker waits for its last answers to leave, and for devices' copies. */
#define UCP_DRAIN_NS        100000000ul
#define UCP_DRAIN_COPIES_NS 5000000000ul

/* Looks at a lock that another thread has: some, with pauses in between; then yields, and now and
 * then a sleep. */
#define UCP_LOCK_SPINS       12u
#define UCP_LOCK_PAUSES_LOG2 5u
#define UCP_LOCK_YIELDS      64u
#define UCP_LOCK_SLEEP_NS    50000ul

static const size_t ucp_data_pool_sizes[UCP_DATA_POOLS] = {
    64, 256, 1024, 4096, 16384, 65536, UCP_WIRE_EAGER_MAX};

/* ---- lock ---- */

__thread char ucp_thread_mark;

/* Looks less and less often. Two processes on a Xeon, the worker of each shared by 2, 4 and 7
 * threads, 8 bytes a message: 0.4, 1.4 and 3.8 us (looks always one pause apart: 0.5, 1.7, 4.7; by
 * an adaptive pthread_mutex_t: 0.9, 2.6, 6.5). Who has waited for long lets others run, at last
 * also such of a lower priority. */
void ucp_lock_wait(ucp_lock_t *lock)
{
    unsigned looks = 0;
    unsigned i;

    do {
        if (looks < UCP_LOCK_SPINS) {
            for (i = 0; i < (1u << ucs_min(looks, UCP_LOCK_PAUSES_LOG2)); ++i) {
                ucs_arch_cpu_relax();
            }
        } else if (looks % UCP_LOCK_YIELDS != 0) {
            ucs_sys_sched_yield();
        } else {
            ucs_sys_sleep_ns(UCP_LOCK_SLEEP_NS);
        }
        ++looks;
    } while (!ucp_lock_try(lock));
}

/* ---- memory for messages ---- */

static ucs_status_t ucp_worker_pools_init(ucp_worker_t *worker)
{
    ucs_mpool_params_t control_params = {
        .name = "control messages", .elem_size = sizeof(ucp_control_t), .elems_per_chunk = 32
    };
    ucs_mpool_params_t params = {.name = "unexpected messages", .alignment = 16};
    ucs_status_t status;
    unsigned i;

    status = ucp_request_pool_init(worker);
    if (status == UCS_OK) {
        status = ucs_mpool_init(&worker->controls, &control_params);
    }
    for (i = 0; (status == UCS_OK) && (i < UCP_DATA_POOLS); ++i) {
        params.elem_size       = ucp_data_pool_sizes[i] + sizeof(ucp_recv_desc_t);
        params.elems_per_chunk = (unsigned)ucs_max(65536 / params.elem_size, (size_t)8);
        status                 = ucs_mpool_init(&worker->data_pools[i], &params);
    }
    return status;
}

void *ucp_worker_data_get(ucp_worker_t *worker, size_t size)
{
    unsigned i;

    size -= ucs_min(size, sizeof(ucp_recv_desc_t));
    for (i = 0; i < UCP_DATA_POOLS; ++i) {
        if (size <= ucp_data_pool_sizes[i]) {
            return ucs_mpool_get(&worker->data_pools[i]);
        }
    }
    return NULL;
}

void ucp_worker_data_put(void *data)
{
    ucs_mpool_put(data);
}

/* ---- interfaces ---- */

static void ucp_worker_rouse(void *arg)
{
    ucp_wakeup_rouse(arg);
}

/* A worker reads its own messages by itself, and looks whether they are still there. */
static void ucp_worker_count_early_ends(ucp_worker_tl_t *wtl)
{
    uct_iface_t *iface = wtl->iface;
    uint32_t index;

    wtl->early_ends = NULL;
    if ((iface->tl->iface.sync_alloc != NULL) &&
        (iface->tl->iface.sync_alloc(iface, &index, &wtl->early_ends) == UCS_OK) && (index != 0)) {
        iface->tl->iface.sync_free(iface, index); /* one that has lent words before */
        wtl->early_ends = NULL;
    }
}

void ucp_worker_open_tl(ucp_worker_t *worker, unsigned i)
{
    const ucp_tl_resource_t *resource = &worker->context->tls[i];
    ucp_worker_tl_t *wtl              = &worker->tls[i];
    const uct_tl_t *tl                = resource->tl;
    uct_iface_params_t params         = {
        .ep_failed = ucp_peer_ep_failed,
        .rouse     = ucp_worker_rouse,
        .peer_gone = ucp_peer_gone,
        .arg       = worker,
        .sender    = &worker->sender,
        .is_shared = worker->context->is_shared || (worker->thread_mode == UCS_THREAD_MODE_MULTI),
        .num_rails = ucs_max(worker->context->options.max_rails, 1u) - 1
    };
    uct_limits_t limits;
    ucs_status_t status;
    unsigned id;

    wtl->is_tried = 1;
    memcpy(params.uid, worker->uid, UCT_UID_LEN);
    if (resource->rail > 0) { /* who parts from it may be there by the first way */
        params.peer_gone = NULL;
        params.lead      = worker->tls[resource->lead].iface;
        params.rail      = resource->rail - 1;
    }
    status = ((resource->rail > 0) && (params.lead == NULL)) ? UCS_ERR_NO_DEVICE :
             uct_iface_open(resource->md, &params, &wtl->iface);
    if (status == UCS_OK) {
        status = ucp_wakeup_add_iface(worker, wtl->iface); /* that comes later than others */
        if (status != UCS_OK) {
            uct_iface_close(wtl->iface);
        }
    }
    if (status != UCS_OK) {
        wtl->iface    = NULL;
        wtl->is_tried = (resource->rail > 0) ? worker->tls[resource->lead].is_tried :
                                               (status == UCS_ERR_NO_DEVICE);
        snprintf(wtl->reason, sizeof(wtl->reason), "%s does not open: %s", resource->name,
                 ((resource->rail > 0) && (status == UCS_ERR_NO_DEVICE)) ?
                     "no further device is like the first one" : ucs_status_string(status));
        ucs_log((resource->rail > 0) ? UCS_LOG_LEVEL_DEBUG : UCS_LOG_LEVEL_INFO, "%s", wtl->reason);
        return;
    }

    ucp_worker_count_early_ends(wtl);
    for (id = 1; (resource->rail == 0) && (id < UCP_WIRE_LAST); ++id) { /* rails have no messages */
        uct_iface_set_am(wtl->iface, id, ucp_wire_table[id].handle, worker,
                         ucp_wire_table[id].place);
        uct_iface_set_am_parts(wtl->iface, id, ucp_wire_table[id].begin, ucp_wire_table[id].end);
    }
    tl->iface.limits(wtl->iface, UCT_OP_AM_SHORT, UCS_MEMORY_TYPE_HOST, &limits);
    if (limits.max > 0) { /* an announcement carries the header */
        limits.max           -= ucs_min(limits.max, sizeof(ucp_wire_rts_t));
        worker->am_header_max = ucs_min(worker->am_header_max, limits.max);
    }
    wtl->addr_length =
        (tl->iface.get_address == NULL) ? 0 : tl->iface.get_address(wtl->iface, wtl->addr);
    /* The way to oneself is looked at once it is used. Copies are made inside the calls. */
    if ((tl->kind != UCT_TL_KIND_SELF) && (tl->kind != UCT_TL_KIND_COPY) &&
        (tl->kind != UCT_TL_KIND_DEVICE)) {
        ucp_worker_activate(worker, wtl->iface);
    }
}

/* The gate is changed with the lock held only; relaxed because the lock orders all else. */
static unsigned ucp_worker_gate(const ucp_worker_t *worker)
{
    return atomic_load_explicit(&worker->gate, memory_order_relaxed);
}

static void ucp_worker_gate_set(ucp_worker_t *worker, unsigned bits)
{
    atomic_store_explicit(&worker->gate, ucp_worker_gate(worker) | bits, memory_order_relaxed);
}

static void ucp_worker_gate_clear(ucp_worker_t *worker, unsigned bits)
{
    atomic_store_explicit(&worker->gate, ucp_worker_gate(worker) & ~bits, memory_order_relaxed);
}

int ucp_worker_hold_progress(ucp_worker_t *worker)
{
    const int is_held = (ucp_worker_gate(worker) & UCP_GATE_PROGRESSING) != 0;

    ucp_worker_gate_set(worker, UCP_GATE_PROGRESSING);
    return is_held;
}

void ucp_worker_release_progress(ucp_worker_t *worker, int was_held)
{
    if (!was_held) {
        ucp_worker_gate_clear(worker, UCP_GATE_PROGRESSING);
    }
}

void ucp_worker_add_active(ucp_worker_t *worker, unsigned (*progress)(uct_iface_t *iface),
                           uct_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < worker->num_active; ++i) {
        if (worker->active[i].iface == iface) {
            return;
        }
    }
    worker->active[worker->num_active].progress = progress;
    worker->active[worker->num_active].iface    = iface;
    ++worker->num_active;
    ucp_worker_gate_clear(worker, UCP_GATE_NO_IFACE);
}

void ucp_worker_del_active(ucp_worker_t *worker, const uct_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < worker->num_active; ++i) {
        if (worker->active[i].iface == iface) {
            worker->active[i] = worker->active[--worker->num_active];
        }
    }
    if (worker->num_active == 0) {
        ucp_worker_gate_set(worker, UCP_GATE_NO_IFACE);
    }
}

void ucp_worker_activate(ucp_worker_t *worker, uct_iface_t *iface)
{
    if (iface->tl->iface.progress != NULL) {
        ucp_worker_add_active(worker, iface->tl->iface.progress, iface);
    }
}

/* ---- life ---- */

static void ucp_worker_set_params(ucp_worker_t *worker, const ucp_worker_params_t *params)
{
    uint64_t mask = params->field_mask;

    worker->thread_mode   = (mask & UCP_WORKER_PARAM_FIELD_THREAD_MODE) ? params->thread_mode :
                            UCS_THREAD_MODE_SINGLE;
    worker->client_id     = (mask & UCP_WORKER_PARAM_FIELD_CLIENT_ID) ? params->client_id : 0;
    worker->user_event_fd = (mask & UCP_WORKER_PARAM_FIELD_EVENT_FD) ? params->event_fd : -1;
    worker->user_data     = (mask & UCP_WORKER_PARAM_FIELD_USER_DATA) ? params->user_data : NULL;
    worker->am_alignment  = 1;
    if ((mask & UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT) && (params->am_alignment != 0)) {
        worker->am_alignment = params->am_alignment;
    }
    worker->am_header_max = UCP_AM_HEADER_MAX;
    ucp_entity_name(worker->name, (mask & UCP_WORKER_PARAM_FIELD_NAME) ? params->name : NULL,
                    worker);
    ucp_peer_make_up_uid(worker->uid);
}

/* What needs no memory. */
static void ucp_worker_init_empty(ucp_worker_t *worker)
{
    ucs_list_head_init(&worker->work);
    ucs_list_head_init(&worker->asked);
    ucs_list_head_init(&worker->coming);
    ucs_list_head_init(&worker->eps);
    ucs_list_head_init(&worker->closed_eps);
    ucs_list_head_init(&worker->failed_eps);
    ucs_list_head_init(&worker->watches);
    ucs_list_head_init(&worker->successors);
    ucs_list_head_init(&worker->retired);
    ucs_list_head_init(&worker->late);
    ucs_list_head_init(&worker->flushes);
    ucs_list_head_init(&worker->kept);
    ucs_list_head_init(&worker->am_turns);
    ucs_list_head_init(&worker->stream_ready);
    ucs_list_head_init(&worker->answerable.list);
    ucs_list_head_init(&worker->counted.list);
    ucs_list_head_init(&worker->fork.list);
    ucs_hash_init(&worker->peers);
    ucs_ptr_map_init(&worker->ids);
}

/* In a forked child, whose only thread this is. */
static void ucp_worker_in_child(ucs_fork_watch_t *watch)
{
    ucp_worker_t *worker = ucs_container_of(watch, ucp_worker_t, fork);
    const void *owner    = atomic_load_explicit(&worker->lock.owner, memory_order_relaxed);

    worker->is_inherited = 1;
    worker->deferred    |= UCP_DEFERRED_SOME;
    /* Who held it, if it was another thread, is gone. */
    if (owner != &ucp_thread_mark) {
        atomic_store_explicit(&worker->lock.owner, NULL, memory_order_relaxed);
        if (owner != NULL) {
            ucp_worker_gate_clear(worker, UCP_GATE_PROGRESSING);
        }
    }
    if (worker->sockets != NULL) {
        ucp_sockets_disown(worker->sockets);
    }
}

/* All but the networks. */
static void ucp_worker_open_tls(ucp_worker_t *worker)
{
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        if (worker->context->tls[i].tl->kind == UCT_TL_KIND_NET) {
            snprintf(worker->tls[i].reason, UCT_REASON_MAX, "not needed yet");
        } else {
            ucp_worker_open_tl(worker, i);
        }
    }
}

/* The memory that a worker is made of, as much of it as there is. */
static void ucp_worker_free(ucp_worker_t *worker)
{
    unsigned i;

    for (i = 0; i < UCP_DATA_POOLS; ++i) {
        ucs_mpool_cleanup(&worker->data_pools[i], 0);
    }
    ucs_mpool_cleanup(&worker->controls, 0);
    ucs_mpool_cleanup(&worker->requests, 0);
    ucp_tag_match_cleanup(&worker->tag_match);
    ucs_sys_free(worker->am_handlers);
    ucs_sys_free(worker);
}

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                               ucp_worker_h *worker_p)
{
    ucp_worker_t *worker;
    ucs_status_t status;

    if ((params->field_mask & UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT) &&
        (params->am_alignment & (params->am_alignment - 1))) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((params->field_mask & UCP_WORKER_PARAM_FIELD_THREAD_MODE) &&
        ((unsigned)params->thread_mode >= UCS_THREAD_MODE_LAST)) {
        ucs_error("workers have no thread mode %d", (int)params->thread_mode);
        return UCS_ERR_INVALID_PARAM;
    }
    worker =
        ucs_sys_memalign(UCS_CACHE_LINE_SIZE, ucs_align_up(sizeof(*worker), UCS_CACHE_LINE_SIZE));
    if (worker == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memset(worker, 0, sizeof(*worker));
    worker->context  = context;
    worker->event_fd = -1;
    worker->epoll_fd = -1;
    ucp_worker_set_params(worker, params);
    ucp_worker_init_empty(worker);

    status = ucp_tag_match_init(&worker->tag_match, context->options.tm_buckets);
    if (status == UCS_OK) {
        status = ucp_worker_pools_init(worker);
    }
    if (status != UCS_OK) {
        ucp_worker_free(worker);
        return status;
    }

    worker->lock.enabled = (worker->thread_mode == UCS_THREAD_MODE_MULTI);
    ucp_idle_init(worker);
    ucp_worker_gate_set(worker, UCP_GATE_NO_IFACE | (worker->lock.enabled ? UCP_GATE_LOCKED : 0));

    ucp_worker_open_tls(worker);
    status = ucp_device_init(worker);
    /* Now, so that any thread may signal without a look at what another one opens. */
    if ((status == UCS_OK) && (context->features & UCP_FEATURE_WAKEUP)) {
        status = ucp_wakeup_open(worker);
    }
    if (status != UCS_OK) {
        ucp_worker_destroy(worker);
        return status;
    }
    ucs_fork_watch_add(&worker->fork, ucp_worker_in_child);
    *worker_p = worker;
    return UCS_OK;
}

/* What is left when the user destroys a worker ends without a word to the user. */
static void ucp_worker_drop_requests(ucp_worker_t *worker)
{
    ucp_tag_match_t *tm = &worker->tag_match;
    ucp_recv_desc_t *desc;
    ucp_request_t *req;

    while ((desc = ucp_tag_match_search(tm, 0, 0)) != NULL) {
        ucp_tag_match_del_unexpected(tm, desc);
        ucp_worker_data_put(desc);
    }
    ucp_tag_match_drop_expected(tm);
    while (!ucs_list_is_empty(&worker->work)) {
        req = ucs_list_head(&worker->work, ucp_request_t, work_list);
        ucp_request_release_held(req);
    }
}

/* Are peers writing into buffers of receives, which will be the user's again? */
static int ucp_worker_is_written(ucp_worker_t *worker)
{
    const ucp_request_t *req;
    const ucp_peer_t *peer;
    uint64_t *value;
    uint64_t key;
    size_t pos = 0;

    while (ucs_hash_next(&worker->peers, &pos, &key, &value)) {
        peer = (const ucp_peer_t *)(uintptr_t)*value;
        ucs_list_for_each(req, &peer->recvs, list) {
            if (ucp_rndv_is_written(req)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Answers that wait for a connection are the end of somebody's request: give them a moment to
 * leave, and peers one to end their copies into our memory; none begins another, see
 * UCP_WIRE_ENDS_OVER. A peer that does not progress cannot hold us longer. Devices may, until they
 * have ended all of our copies, also those into peers' memory: once peers hear of our end, that is
 * their users'. */
static int ucp_worker_should_drain(ucp_worker_t *worker, uint64_t since_ns)
{
    const uint64_t waited_ns = ucs_sys_clock_ns() - since_ns;

    return (worker->device.num_copies > 0) ? (waited_ns < UCP_DRAIN_COPIES_NS) :
           ((worker->num_controls > 0) || ucp_worker_is_written(worker)) &&
           (waited_ns < UCP_DRAIN_NS);
}

static void ucp_worker_drain_controls(ucp_worker_t *worker)
{
    const uint64_t now_ns = ucs_sys_clock_ns();
    ucp_request_t *req;
    ucp_ep_t *ep;
    unsigned i;

    ucp_successors_abandon(worker);
    ucs_list_for_each(ep, &worker->eps, list) {
        if (ep->peer->is_provisional) {
            ucp_peer_abandon(ep->peer); /* no server will say who it is */
        }
    }
    ucp_tag_match_drop_expected(&worker->tag_match);
    ucs_list_for_each(req, &worker->work, work_list) {
        ucp_rndv_stop_sender(req);
    }
    worker->num_am_handlers = 0; /* what comes meanwhile is for nobody */
    ucp_worker_gate_set(worker, UCP_GATE_PROGRESSING);
    while (ucp_worker_should_drain(worker, now_ns)) {
        for (i = 0; i < worker->num_active; ++i) {
            worker->active[i].progress(worker->active[i].iface);
        }
    }
}

/* Has the user not waited for all that it has sent? */
static int ucp_worker_is_abandoned(const ucp_worker_t *worker)
{
    const ucp_ep_t *ep;

    ucs_list_for_each(ep, &worker->eps, list) {
        if (!ucs_list_is_empty(&ep->requests)) {
            return 1;
        }
    }
    return !ucs_list_is_empty(&worker->flushes);
}

void ucp_worker_destroy(ucp_worker_h worker)
{
    const int is_abandoned = ucp_worker_is_abandoned(worker);
    uint64_t *value;
    uint64_t key;
    ucp_ep_t *ep, *next;
    size_t pos = 0;
    unsigned i;

    if (!worker->is_inherited) {
        ucs_counters_tell(&ucp_counters_class, worker->name, worker->counters);
    }
    worker->is_ending = 1;
    /* All announced messages end now, and nobody begins to copy to us. */
    for (i = 0; i < worker->context->num_tls; ++i) {
        if (worker->tls[i].early_ends != NULL) {
            (void)ucs_atomic_fetch_add(worker->tls[i].early_ends, UCP_WIRE_ENDS_OVER + 1);
        }
    }
    ucs_fork_watch_remove(&worker->fork);
    ucp_sockets_cleanup(worker);
    ucp_worker_drain_controls(worker);
    ucp_worker_drop_requests(worker);
    while (!ucs_list_is_empty(&worker->flushes)) { /* they name endpoints */
        ucp_request_release_held(ucs_list_head(&worker->flushes, ucp_request_t, list));
    }
    ucp_rndv_given_up_end_all(worker, NULL);
    while (!ucs_list_is_empty(&worker->late)) {
        ucp_request_release_held(ucs_list_head(&worker->late, ucp_request_t, list));
    }
    ucs_list_for_each_safe(ep, next, &worker->eps, list) {
        ep->is_closing = 1;
        ucp_ep_purge(ep, UCS_ERR_CANCELED);
    }
    ucs_list_for_each_safe(ep, next, &worker->eps, list) {
        ucp_ep_free(ep);
    }
    while (ucs_hash_next(&worker->peers, &pos, &key, &value)) {
        ucp_peer_destroy((ucp_peer_t *)(uintptr_t)*value);
    }
    for (i = 0; i < worker->context->num_tls; ++i) {
        if (worker->tls[i].early_ends != NULL) {
            worker->tls[i].iface->tl->iface.sync_free(worker->tls[i].iface, 0);
        }
    }
    for (i = 0; i < worker->context->num_tls; ++i) {
        if (worker->tls[i].iface != NULL) {
            worker->tls[i].iface->is_abandoned = is_abandoned;
            worker->device.is_stuck |= uct_iface_close(worker->tls[i].iface);
        }
    }
    ucp_wakeup_cleanup(worker); /* interfaces have taken what is theirs out of the set */
    while (!ucs_list_is_empty(&worker->kept)) { /* copies of devices into them have ended */
        ucp_kept_put(ucs_list_head(&worker->kept, ucp_kept_t, list));
    }
    ucp_device_cleanup(worker);
    ucp_idle_count_workers(-1);
    ucp_ep_forget_closed(worker, 0);
    ucs_hash_cleanup(&worker->peers);
    ucs_ptr_map_cleanup(&worker->ids);
    ucp_worker_free(worker);
}

/* ---- progress ---- */

/* One step of each request on the list of work; returns the steps done. */
static unsigned ucp_worker_work(ucp_worker_t *worker)
{
    ucs_list_link_t todo;
    ucp_request_t *req;
    unsigned count = 0;

    /* Each entry gets one turn: what a step adds again waits for the next call. */
    ucs_list_head_init(&todo);
    ucs_list_splice_tail(&todo, &worker->work);
    while (!ucs_list_is_empty(&todo)) {
        req = ucs_list_head(&todo, ucp_request_t, work_list);
        ucp_request_del_work(req);
        if (ucp_request_is_send(req)) {
            ucp_rndv_send_work(req);
        } else if (ucp_request_is_recv(req)) {
            ucp_rndv_recv_work(req);
        } else if (ucp_request_is_rma(req)) {
            ucp_rma_work(req);
        } else if (req->kind == UCP_REQUEST_PUT_LIST) {
            ucp_request_complete(req, req->put_list.status);
        } else {
            ucp_flush_work(req);
        }
        ++count;
    }
    return count;
}

static UCS_NOINLINE unsigned ucp_worker_run_deferred(ucp_worker_t *worker, int idle)
{
    unsigned count;

    if (worker->deferred == UCP_DEFERRED_LOOKS) {
        return ucp_rndv_overdue(worker);
    }
    worker->deferred = 0; /* set again by what is added meanwhile, or left */
    count            = ucp_rndv_overdue(worker); /* before copies: all is read that came */
    count           += ucp_worker_work(worker);
    ucp_ep_run_watches(worker);
    count           += ucp_ep_run_failure_handlers(worker);
    count           += ucp_conn_fail_lost(worker, idle);
    ucp_peers_reap(worker);
    ucp_successors_settle(worker); /* after those whose place they take */
    return count;
}

UCS_INLINE unsigned ucp_worker_progress_all(ucp_worker_t *worker)
{
    unsigned count;
    unsigned i;

    ucp_worker_gate_set(worker, UCP_GATE_PROGRESSING);
    count = worker->active[0].progress(worker->active[0].iface);
    for (i = 1; ucs_unlikely(i < worker->num_active); ++i) {
        count += worker->active[i].progress(worker->active[i].iface);
    }
    if (ucs_unlikely(worker->deferred)) {
        count += ucp_worker_run_deferred(worker, count == 0);
    }
    ucp_worker_gate_clear(worker, UCP_GATE_PROGRESSING);
    if (ucs_unlikely(worker->is_waiting) && (count > 0)) {
        ucp_wakeup_found(worker);
    }
    return count;
}

static UCS_NOINLINE unsigned ucp_worker_progress_gated(ucp_worker_t *worker)
{
    ucp_idle_action_t action = UCP_IDLE_NOTHING;
    unsigned count           = 0;

    ucp_worker_lock(worker);
    if (!(ucp_worker_gate(worker) & (UCP_GATE_PROGRESSING | UCP_GATE_NO_IFACE))) {
        count = ucp_worker_progress_all(worker);
        if (ucp_idle_is_turn(worker, count)) {
            action = ucp_idle_choose(worker);
            if (action != UCP_IDLE_NOTHING) {
                ucp_worker_count(worker, UCP_COUNT_YIELDS);
            }
        }
    } else if (!(ucp_worker_gate(worker) & UCP_GATE_PROGRESSING) && worker->deferred) {
        ucp_worker_gate_set(worker, UCP_GATE_PROGRESSING);
        count = ucp_worker_run_deferred(worker, 1);
        ucp_worker_gate_clear(worker, UCP_GATE_PROGRESSING);
    }
    ucp_worker_unlock(worker);
    if (action != UCP_IDLE_NOTHING) {
        ucs_sys_sched_yield(); /* who sleeps leaves the worker to no other thread */
    }
    return count;
}

unsigned ucp_worker_progress(ucp_worker_h worker)
{
    unsigned count;

    if (ucs_unlikely(ucp_worker_gate(worker) != 0)) {
        return ucp_worker_progress_gated(worker);
    }
    count = ucp_worker_progress_all(worker);
    if (ucs_unlikely(ucp_idle_is_turn(worker, count))) {
        ucp_idle_turn(worker);
    }
    return count;
}
