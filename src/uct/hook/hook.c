/* Halyard: hooks: names, descriptors, memory domains, interfaces and the life of endpoints.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/hook/hook.h>

#define UCS_LOG_COMPONENT "hook"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <pthread.h>
#include <string.h>

static const char *const uct_hook_status_names[] = {
    "io", "reset", "timeout", "unreachable", "unsupported", "address", NULL
};

static const ucs_status_t uct_hook_statuses[] = {
    UCS_ERR_IO_ERROR,    UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT,
    UCS_ERR_UNREACHABLE, UCS_ERR_UNSUPPORTED,      UCS_ERR_INVALID_ADDR
};

static_assert(ucs_array_size(uct_hook_statuses) == ucs_array_size(uct_hook_status_names) - 1,
              "a name for each status");

static const ucs_config_row_t uct_hook_config_rows[] = {
    UCS_CONFIG_ROW("SEED", u64, uct_hook_config_t, seed, "1",
                   "Seed of the hooks' random decisions: the same seed, the same decisions."),
    UCS_CONFIG_ROW("NO_RESOURCE", double, uct_hook_config_t, no_resource, "0.1",
                   "fault: probability that an operation finds no resource."),
    UCS_CONFIG_ROW("FAIL_OP", u64, uct_hook_config_t, fail_op, "0",
                   "fault: number of the operation of each endpoint that fails; 0: none."),
    UCS_CONFIG_ROW("FAIL_STATUS", enum, uct_hook_config_t, fail_status, "io",
                   "fault: how that operation fails.", .arg = uct_hook_status_names),
    UCS_CONFIG_ROW("CONNECT_FAIL", double, uct_hook_config_t, connect_fail, "0",
                   "fault: probability that a connection fails."),
    UCS_CONFIG_ROW("DEATH", u64, uct_hook_config_t, death, "0",
                   "fault: number of operations after which an endpoint dies; 0: never."),
    UCS_CONFIG_ROW("DELAY", uint, uct_hook_config_t, delay, "3",
                   "delay: progress calls by which messages and operations are late."),
    UCS_CONFIG_ROW_END
};

static const char *const uct_hook_prefixes[UCT_HOOK_LAST] = {
    [UCT_HOOK_FAULT] = "fault:",
    [UCT_HOOK_DELAY] = "delay:",
    [UCT_HOOK_TRACE] = "trace:"
};

static const uct_hook_tl_t *uct_hook_tl(const uct_tl_t *tl)
{
    return ucs_container_of(tl, uct_hook_tl_t, super);
}

static uct_md_t *uct_hook_inner_md(uct_md_t *md)
{
    return ucs_container_of(md, uct_hook_md_t, super)->inner;
}

ucs_status_t uct_hook_fail_status(const uct_hook_config_t *config)
{
    return uct_hook_statuses[config->fail_status];
}

int uct_hook_chance(uct_hook_iface_t *iface, double probability)
{
    uint64_t x;

    if (probability <= 0) {
        return 0;
    }
    /* splitmix64 (Steele, Lea, Flood, OOPSLA 2014) */
    x = (iface->random += 0x9e3779b97f4a7c15ull);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x = x ^ (x >> 31);
    return (double)(x >> 11) * 0x1p-53 < probability;
}

/* ------------------------------------------------------------------ memory domain */

static ucs_status_t uct_hook_md_open(uct_md_t *md)
{
    return uct_md_open(uct_hook_tl(md->tl)->inner, NULL,
                       &ucs_container_of(md, uct_hook_md_t, super)->inner);
}

static void uct_hook_md_close(uct_md_t *md)
{
    if (uct_hook_inner_md(md) != NULL) {
        uct_md_close(uct_hook_inner_md(md));
    }
}

static ucs_status_t uct_hook_mem_alloc(uct_md_t *md, void *address, size_t length, unsigned flags,
                                       uct_mem_t **mem_p)
{
    uct_md_t *inner = uct_hook_inner_md(md);

    return inner->tl->md.alloc(inner, address, length, flags, mem_p);
}

static ucs_status_t uct_hook_mem_reg(uct_md_t *md, void *address, size_t length, uct_mem_t **mem_p)
{
    uct_md_t *inner = uct_hook_inner_md(md);

    return inner->tl->md.reg(inner, address, length, mem_p);
}

static ucs_status_t uct_hook_mem_query(uct_md_t *md, const void *address, size_t length,
                                       uct_mem_info_t *info_p)
{
    uct_md_t *inner = uct_hook_inner_md(md);

    return inner->tl->md.mem_query(inner, address, length, info_p);
}

static ucs_status_t uct_hook_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                         uct_rkey_t **rkey_p)
{
    uct_md_t *inner = uct_hook_inner_md(md);

    return inner->tl->md.rkey_unpack(inner, buffer, length, rkey_p);
}

/* ------------------------------------------------------------------ what the inner one reports */

static void uct_hook_ep_failed(void *arg UCS_UNUSED, uct_ep_t *inner, ucs_status_t status)
{
    uct_hook_ep_t *ep = inner->user;

    ucs_list_del(&ep->connecting);
    uct_ep_set_failed(&ep->super, status);
}

/* Late, like the messages before it; without memory these come now. */
static void uct_hook_arrival(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind, unsigned id,
                             const void *data, size_t length)
{
    uct_iface_t *super          = &iface->super;
    const uint8_t *sender       = *super->params.sender;
    uct_hook_delayed_t *delayed = NULL;

    if (iface->kind == UCT_HOOK_DELAY) {
        delayed = uct_hook_delayed_make(iface, kind, length);
    }

    if (delayed != NULL) {
        delayed->id     = id;
        delayed->length = length;
        if (length != 0) {
            memcpy(delayed->data, data, length);
        }
        if (sender != NULL) {
            delayed->has_sender = 1;
            memcpy(delayed->sender, sender, UCT_UID_LEN);
        }
        uct_hook_delayed_add(iface, delayed);
        return;
    }

    uct_hook_delayed_progress(iface, 1);
    if (kind == UCT_HOOK_AM) {
        *super->params.sender = sender;
        uct_iface_deliver(super, id, data, length);
    } else {
        super->params.peer_gone(super->params.arg, data);
    }
}

static void uct_hook_peer_gone(void *arg, const uint8_t uid[UCT_UID_LEN])
{
    uct_hook_iface_t *iface = arg;

    if (iface->super.params.peer_gone != NULL) {
        uct_hook_arrival(iface, UCT_HOOK_PEER_GONE, 0, uid, UCT_UID_LEN);
    }
}

static void uct_hook_am(void *arg, const void *data, size_t length)
{
    uct_hook_am_t *am       = arg;
    uct_hook_iface_t *iface = uct_hook_iface(am->iface);

    if (iface->kind == UCT_HOOK_TRACE) {
        ucs_debug("%s: received id %u, %zu bytes", iface->super.tl->name, am->id, length);
    }
    uct_hook_arrival(iface, UCT_HOOK_AM, am->id, data, length);
}

/* ------------------------------------------------------------------ interface */

static ucs_status_t uct_hook_iface_open(uct_iface_t *iface)
{
    uct_hook_iface_t *hook    = uct_hook_iface(iface);
    uct_iface_params_t params = iface->params;
    ucs_status_t status;
    unsigned id;

    hook->config = iface->md->config;
    hook->kind   = uct_hook_tl(iface->tl)->kind;
    hook->random = hook->config->seed;
    ucs_list_head_init(&hook->delayed);
    ucs_list_head_init(&hook->connecting);

    params.ep_failed = uct_hook_ep_failed;
    params.rouse     = NULL; /* what an inner endpoint meets is reported by ours */
    params.peer_gone = uct_hook_peer_gone;
    params.arg       = hook;
    params.lead      = (params.lead != NULL) ? uct_hook_iface(params.lead)->inner : NULL;
    status = uct_iface_open(uct_hook_inner_md(iface->md), &params, &hook->inner);
    if (status != UCS_OK) {
        return status;
    }
    iface->choice = hook->inner->choice;

    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        hook->am[id].iface = iface;
        hook->am[id].id    = id;
        uct_iface_set_am(hook->inner, id, uct_hook_am, &hook->am[id], 0);
    }
    return UCS_OK;
}

static void uct_hook_iface_close(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    uct_hook_delayed_t *delayed;

    if (hook->inner != NULL) {
        hook->inner->is_abandoned = iface->is_abandoned;
        iface->is_stuck           = uct_iface_close(hook->inner);
    }
    while (!ucs_list_is_empty(&hook->delayed)) {
        delayed = ucs_list_extract_head(&hook->delayed, uct_hook_delayed_t, list);
        if (delayed->comp != NULL) {
            uct_completion_update(delayed->comp, UCS_ERR_CANCELED);
        }
        ucs_sys_free(delayed);
    }
}

static void uct_hook_limits(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory,
                            uct_limits_t *limits_p)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    inner->tl->iface.limits(inner, op, memory, limits_p);
}

static size_t uct_hook_get_address(uct_iface_t *iface, void *buffer)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.get_address(inner, buffer);
}

static int uct_hook_is_reachable(uct_iface_t *iface, const void *address, size_t length,
                                 int same_node, char reason[UCT_REASON_MAX])
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.is_reachable(inner, address, length, same_node, reason);
}

/* Endpoints whose inner one is connected now. */
static void uct_hook_progress_connecting(uct_hook_iface_t *iface)
{
    uct_hook_ep_t *ep, *tmp;

    ucs_list_for_each_safe(ep, tmp, &iface->connecting, connecting) {
        if (ep->inner->state == UCT_EP_LIVE) {
            ucs_list_del(&ep->connecting);
            uct_ep_set_live(&ep->super);
        }
    }
}

static unsigned uct_hook_progress(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    unsigned count;

    ++hook->now;
    count = uct_iface_progress(hook->inner);
    uct_hook_progress_connecting(hook);
    count += uct_hook_delayed_progress(hook, 0);
    return count + uct_iface_progress_base(iface);
}

static int uct_hook_event_fd(uct_iface_t *iface)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.event_fd(inner);
}

static ucs_status_t uct_hook_event_join(uct_iface_t *iface, int epoll_fd)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.event_join(inner, epoll_fd);
}

static ucs_status_t uct_hook_event_arm(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);

    if (uct_iface_has_work(iface) || (hook->num_delayed != 0)) {
        return UCS_ERR_BUSY;
    }
    return hook->inner->tl->iface.event_arm(hook->inner);
}

static ucs_status_t uct_hook_copy(uct_iface_t *iface, void *dest, const void *src, size_t length,
                                  uct_completion_t *comp)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.copy(inner, dest, src, length, comp);
}

static ucs_status_t uct_hook_iface_reg(uct_iface_t *iface, void *address, size_t length,
                                       int is_remote, uct_mem_t **mem_p)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);

    if ((hook->kind == UCT_HOOK_FAULT) && uct_hook_chance(hook, hook->config->no_resource)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return hook->inner->tl->iface.reg(hook->inner, address, length, is_remote, mem_p);
}

static ucs_status_t uct_hook_sync_alloc(uct_iface_t *iface, uint32_t *index_p,
                                        ucs_atomic_u64_t **word_p)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.sync_alloc(inner, index_p, word_p);
}

static void uct_hook_sync_free(uct_iface_t *iface, uint32_t index)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    inner->tl->iface.sync_free(inner, index);
}

static int uct_hook_drop_peer(uct_iface_t *iface, const uint8_t uid[UCT_UID_LEN], int discard)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.drop_peer(inner, uid, discard);
}

static unsigned uct_hook_num_rivals(uct_iface_t *iface)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    return inner->tl->iface.num_rivals(inner);
}

static void uct_hook_memory_used(uct_iface_t *iface, size_t *shared_p, size_t *private_p)
{
    uct_iface_t *inner = uct_hook_iface(iface)->inner;

    inner->tl->iface.memory_used(inner, shared_p, private_p);
    *private_p += sizeof(uct_hook_iface_t);
}

/* ------------------------------------------------------------------ endpoint */

static ucs_status_t uct_hook_ep_init(uct_ep_t *ep, const void *address, size_t length)
{
    uct_hook_ep_t *hook = uct_hook_ep(ep);

    ucs_list_head_init(&hook->connecting);
    return uct_ep_open(uct_hook_iface(ep->iface)->inner, ep->peer_uid, address, length, hook,
                       &hook->inner);
}

static ucs_status_t uct_hook_ep_connect(uct_ep_t *ep)
{
    uct_hook_iface_t *iface = uct_hook_iface(ep->iface);
    uct_hook_ep_t *hook     = uct_hook_ep(ep);
    ucs_status_t status;

    if ((iface->kind == UCT_HOOK_FAULT) && uct_hook_chance(iface, iface->config->connect_fail)) {
        return UCS_ERR_UNREACHABLE;
    }

    hook->inner->may_abandon = ep->may_abandon;
    status = uct_ep_connect(hook->inner);
    if (status == UCS_INPROGRESS) {
        ucs_list_add_tail(&iface->connecting, &hook->connecting);
    }
    if (iface->kind == UCT_HOOK_TRACE) {
        ucs_debug("%s ep %p: connect: %s", ep->iface->tl->name, (void *)ep,
                  ucs_status_string(status));
    }
    return status;
}

static void uct_hook_ep_disconnect(uct_ep_t *ep)
{
    uct_ep_set_failed(uct_hook_ep(ep)->inner, ep->status);
}

static void uct_hook_ep_close(uct_ep_t *ep)
{
    uct_hook_ep_t *hook = uct_hook_ep(ep);

    uct_hook_delayed_detach(hook, NULL);
    ucs_list_del(&hook->connecting);
    uct_ep_close(hook->inner);
}

/* ------------------------------------------------------------------ descriptor */

#define UCT_HOOK_WRAP(_tl, _group, _op, _func) \
    (_tl)->super._group._op = ((_tl)->inner->_group._op != NULL) ? (_func) : NULL

static void uct_hook_tl_fill(uct_hook_tl_t *tl)
{
    tl->super.help          = "another transport, wrapped for tests";
    tl->super.kind          = tl->inner->kind;
    tl->super.max_rails     = tl->inner->max_rails;
    tl->super.md_size       = sizeof(uct_hook_md_t);
    tl->super.iface_size    = sizeof(uct_hook_iface_t);
    tl->super.ep_size       = sizeof(uct_hook_ep_t);
    tl->super.config_rows   = uct_hook_config_rows;
    tl->super.config_prefix = "HOOK_";
    tl->super.config_size   = sizeof(uct_hook_config_t);

    tl->super.md       = tl->inner->md; /* memory and keys know the inner domain */
    tl->super.md.open  = uct_hook_md_open;
    tl->super.md.close = uct_hook_md_close;
    UCT_HOOK_WRAP(tl, md, alloc, uct_hook_mem_alloc);
    UCT_HOOK_WRAP(tl, md, reg, uct_hook_mem_reg);
    UCT_HOOK_WRAP(tl, md, mem_query, uct_hook_mem_query);
    UCT_HOOK_WRAP(tl, md, rkey_unpack, uct_hook_rkey_unpack);

    tl->super.iface.open         = uct_hook_iface_open;
    tl->super.iface.close        = uct_hook_iface_close;
    tl->super.iface.limits       = uct_hook_limits;
    tl->super.iface.progress     = uct_hook_progress;
    UCT_HOOK_WRAP(tl, iface, get_address, uct_hook_get_address);
    UCT_HOOK_WRAP(tl, iface, is_reachable, uct_hook_is_reachable);
    UCT_HOOK_WRAP(tl, iface, event_fd, uct_hook_event_fd);
    UCT_HOOK_WRAP(tl, iface, event_join, uct_hook_event_join);
    UCT_HOOK_WRAP(tl, iface, event_arm, uct_hook_event_arm);
    UCT_HOOK_WRAP(tl, iface, copy, uct_hook_copy);
    UCT_HOOK_WRAP(tl, iface, reg, uct_hook_iface_reg);
    UCT_HOOK_WRAP(tl, iface, sync_alloc, uct_hook_sync_alloc);
    UCT_HOOK_WRAP(tl, iface, sync_free, uct_hook_sync_free);
    UCT_HOOK_WRAP(tl, iface, drop_peer, uct_hook_drop_peer);
    UCT_HOOK_WRAP(tl, iface, num_rivals, uct_hook_num_rivals);
    UCT_HOOK_WRAP(tl, iface, memory_used, uct_hook_memory_used);

    tl->super.ep.init    = uct_hook_ep_init;
    tl->super.ep.connect = uct_hook_ep_connect;
    tl->super.ep.disconnect = uct_hook_ep_disconnect;
    tl->super.ep.close   = uct_hook_ep_close;
    UCT_HOOK_WRAP(tl, ep.live, am_short, uct_hook_ep_ops.am_short);
    UCT_HOOK_WRAP(tl, ep.live, am_short_iov, uct_hook_ep_ops.am_short_iov);
    UCT_HOOK_WRAP(tl, ep.live, am_bcopy, uct_hook_ep_ops.am_bcopy);
    UCT_HOOK_WRAP(tl, ep.live, am_zcopy, uct_hook_ep_ops.am_zcopy);
    UCT_HOOK_WRAP(tl, ep.live, put_zcopy, uct_hook_ep_ops.put_zcopy);
    UCT_HOOK_WRAP(tl, ep.live, get_zcopy, uct_hook_ep_ops.get_zcopy);
    UCT_HOOK_WRAP(tl, ep.live, flush, uct_hook_ep_ops.flush);
    UCT_HOOK_WRAP(tl, ep.live, check, uct_hook_ep_ops.check);
    UCT_HOOK_WRAP(tl, ep.live, sync_map, uct_hook_ep_ops.sync_map);
    UCT_HOOK_WRAP(tl, ep.live, abandon, uct_hook_ep_ops.abandon);
}

/* All wrappers that were made; they live as long as the process. */
static ucs_list_link_t uct_hook_tls = UCS_LIST_INITIALIZER(&uct_hook_tls);
static pthread_mutex_t uct_hook_tls_mutex = PTHREAD_MUTEX_INITIALIZER;

static const uct_tl_t *uct_hook_find_or_make(const char *name, uct_hook_kind_t kind,
                                             const uct_tl_t *inner)
{
    uct_hook_tl_t *tl;

    ucs_list_for_each(tl, &uct_hook_tls, list) {
        if (strcmp(tl->super.name, name) == 0) {
            return &tl->super;
        }
    }

    tl = ucs_sys_calloc(1, sizeof(*tl));
    if (tl == NULL) {
        ucs_error("no memory for transport %s", name);
        return NULL;
    }
    snprintf(tl->super.name, sizeof(tl->super.name), "%s", name);
    tl->kind  = kind;
    tl->inner = inner;
    uct_hook_tl_fill(tl);
    ucs_list_add_tail(&uct_hook_tls, &tl->list);
    return &tl->super;
}

const uct_tl_t *uct_hook_find(const char *name)
{
    const uct_tl_t *inner, *tl;
    unsigned kind;
    size_t length;

    if (strlen(name) >= UCT_TL_NAME_MAX) {
        return NULL;
    }

    for (kind = 0; kind < UCT_HOOK_LAST; ++kind) {
        length = strlen(uct_hook_prefixes[kind]);
        if (strncmp(name, uct_hook_prefixes[kind], length) != 0) {
            continue;
        }
        inner = uct_tl_find(name + length);
        if (inner == NULL) {
            return NULL;
        }
        pthread_mutex_lock(&uct_hook_tls_mutex);
        tl = uct_hook_find_or_make(name, (uct_hook_kind_t)kind, inner);
        pthread_mutex_unlock(&uct_hook_tls_mutex);
        return tl;
    }
    return NULL;
}
