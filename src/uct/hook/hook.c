/* Halyard: hooks: names, descriptors, interfaces and the life of endpoints.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/hook/hook.h>

#define UCS_LOG_COMPONENT "hook"
#include <ucs/config/names.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <pthread.h>
#include <string.h>

static const char *const uct_hook_status_names[] = {
    "io", "reset", "timeout", "unreachable", "unsupported", "address", NULL
};

const ucs_status_t uct_hook_statuses[] = {
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

static const char *const uct_hook_names[] = {"fault", "delay", "trace"}; /* by their bits */

int uct_hook_chance(uct_hook_iface_t *iface, double probability)
{
    return (iface->kinds & UCT_HOOK_FAULT) && (probability > 0) &&
           ((double)(ucs_random_next(&iface->random) >> 11) * 0x1p-53 < probability);
}

/* ------------------------------------------------------------------ what arrives */

/* Late, like the messages before it; without memory these come now. */
static void uct_hook_arrival(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind, unsigned id,
                             const void *data, size_t length)
{
    const uint8_t *sender       = *iface->user.sender;
    uct_hook_delayed_t *delayed = NULL;

    if (iface->kinds & UCT_HOOK_DELAY) {
        delayed = uct_hook_delayed_make(iface, kind, length);
    }
    if (delayed == NULL) {
        uct_hook_delayed_progress(iface, 1);
        uct_hook_deliver(iface, kind, id, data, length, sender);
        return;
    }

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
}

static void uct_hook_am(void *arg, const void *data, size_t length)
{
    uct_hook_am_t *am       = arg;
    uct_hook_iface_t *iface = uct_hook_iface(am->iface);

    if (iface->kinds & UCT_HOOK_TRACE) {
        ucs_debug("%s: received id %u, %zu bytes", am->iface->tl->name, am->id, length);
    }
    uct_hook_arrival(iface, UCT_HOOK_AM, am->id, data, length);
}

static void uct_hook_peer_gone(void *arg, const uint8_t uid[UCT_UID_LEN])
{
    uct_hook_arrival(arg, UCT_HOOK_PEER_GONE, 0, uid, UCT_UID_LEN);
}

static void uct_hook_ep_failed(void *arg, uct_ep_t *ep, ucs_status_t status)
{
    uct_hook_iface_t *iface = arg;

    iface->user.ep_failed(iface->user.arg, ep, status);
}

static void uct_hook_rouse(void *arg)
{
    uct_hook_iface_t *iface = arg;

    iface->user.rouse(iface->user.arg);
}

/* Puts ours before the handlers that the user has set since the last call. Messages come whole to
 * them, never in parts: they may be held back. */
static void uct_hook_catch_messages(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    unsigned id;

    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        if (iface->am[id].cb != uct_hook_am) {
            hook->am[id] = (uct_hook_am_t){iface, id, iface->am[id]};
            uct_iface_set_am(iface, id, uct_hook_am, &hook->am[id],
                             UCT_AM_COPIED);
        }
    }
}

/* ------------------------------------------------------------------ domain and interface */

static ucs_status_t uct_hook_md_open(uct_md_t *md)
{
    const uct_tl_t *inner = uct_hook_tl(md->tl)->inner;
    ucs_status_t status   = (inner->md.open != NULL) ? inner->md.open(md) : UCS_OK;

    return (status != UCS_OK) ? status :
           ucs_config_fill(uct_hook_config(md), uct_hook_config_rows, NULL, "HOOK_", 0);
}

static ucs_status_t uct_hook_iface_open(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    const uct_tl_t *inner  = uct_hook_tl(iface->tl)->inner;

    hook->iface  = iface;
    hook->kinds  = uct_hook_tl(iface->tl)->kinds;
    hook->config = uct_hook_config(iface->md);
    hook->random = hook->config->seed;
    hook->user   = iface->params;
    ucs_list_head_init(&hook->delayed);

    iface->params.arg       = hook;
    iface->params.ep_failed = uct_hook_ep_failed;
    iface->params.rouse     = (hook->user.rouse != NULL) ? uct_hook_rouse : NULL;
    iface->params.peer_gone = (hook->user.peer_gone != NULL) ? uct_hook_peer_gone : NULL;

    return (inner->iface.open != NULL) ? inner->iface.open(iface) : UCS_OK;
}

static void uct_hook_iface_close(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    const uct_tl_t *inner  = uct_hook_tl(iface->tl)->inner;
    uct_hook_delayed_t *delayed;

    if (inner->iface.close != NULL) {
        inner->iface.close(iface);
    }
    while (!ucs_list_is_empty(&hook->delayed)) {
        delayed = ucs_list_extract_head(&hook->delayed, uct_hook_delayed_t, list);
        if (delayed->comp != NULL) {
            uct_completion_update(delayed->comp, UCS_ERR_CANCELED);
        }
        ucs_sys_free(delayed);
    }
}

static unsigned uct_hook_progress(uct_iface_t *iface)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);
    unsigned count;

    uct_hook_catch_messages(iface);
    ++hook->now;
    count = uct_hook_tl(iface->tl)->inner->iface.progress(iface);
    return count + uct_hook_delayed_progress(hook, 0);
}

static ucs_status_t uct_hook_event_arm(uct_iface_t *iface)
{
    return !ucs_list_is_empty(&uct_hook_iface(iface)->delayed) ? UCS_ERR_BUSY :
           uct_hook_tl(iface->tl)->inner->iface.event_arm(iface);
}

static ucs_status_t uct_hook_iface_reg(uct_iface_t *iface, void *address, size_t length,
                                       const uct_mem_info_t *info, int is_remote,
                                       uct_mem_t **mem_p)
{
    uct_hook_iface_t *hook = uct_hook_iface(iface);

    return uct_hook_chance(hook, hook->config->no_resource) ? UCS_ERR_NO_RESOURCE :
           uct_hook_tl(iface->tl)->inner->iface.reg(iface, address, length, info, is_remote,
                                                        mem_p);
}

/* ------------------------------------------------------------------ endpoint */

static ucs_status_t uct_hook_ep_connect(uct_ep_t *ep)
{
    uct_hook_iface_t *iface = uct_hook_iface(ep->iface);
    const uct_tl_t *inner   = uct_hook_tl(ep->iface->tl)->inner;
    ucs_status_t status;

    if (uct_hook_chance(iface, iface->config->connect_fail)) {
        return UCS_ERR_UNREACHABLE;
    }

    status = (inner->ep.connect != NULL) ? inner->ep.connect(ep) : UCS_OK;
    if (iface->kinds & UCT_HOOK_TRACE) {
        ucs_debug("%s ep %p: connect: %s", ep->iface->tl->name, (void *)ep,
                  ucs_status_string(status));
    }
    return status;
}

static void uct_hook_ep_close(uct_ep_t *ep)
{
    const uct_tl_t *inner = uct_hook_tl(ep->iface->tl)->inner;

    uct_hook_delayed_detach(ep, NULL);
    if (inner->ep.close != NULL) {
        inner->ep.close(ep);
    }
}

/* ------------------------------------------------------------------ descriptor */

/* Changes an operation that the transport has. */
#define UCT_HOOK_WRAP(_ops, _op, _func) \
    (_ops)->_op = ((_ops)->_op != NULL) ? (_func) : NULL

static void uct_hook_tl_fill(uct_hook_tl_t *tl)
{
    uct_iface_ops_t *iface = &tl->super.iface;
    uct_ep_ops_t *live     = &tl->super.ep.live;

    tl->super.help       = "another transport, wrapped for tests";
    tl->super.md_size    = uct_hook_offset(tl->inner->md_size) + sizeof(uct_hook_config_t);
    tl->super.iface_size = uct_hook_offset(tl->inner->iface_size) + sizeof(uct_hook_iface_t);
    tl->super.ep_size    = uct_hook_offset(tl->inner->ep_size) + sizeof(uct_hook_ep_t);

    tl->super.md.open = uct_hook_md_open;
    iface->open       = uct_hook_iface_open;
    iface->close      = uct_hook_iface_close;
    iface->progress   = uct_hook_progress;
    UCT_HOOK_WRAP(iface, event_arm, uct_hook_event_arm);
    UCT_HOOK_WRAP(iface, reg, uct_hook_iface_reg);

    tl->super.ep.connect = uct_hook_ep_connect;
    tl->super.ep.close   = uct_hook_ep_close;
    UCT_HOOK_WRAP(live, am_short, uct_hook_ep_ops.am_short);
    UCT_HOOK_WRAP(live, am_short_iov, uct_hook_ep_ops.am_short_iov);
    UCT_HOOK_WRAP(live, am_bcopy, uct_hook_ep_ops.am_bcopy);
    UCT_HOOK_WRAP(live, am_zcopy, uct_hook_ep_ops.am_zcopy);
    UCT_HOOK_WRAP(live, put_zcopy, uct_hook_ep_ops.put_zcopy);
    UCT_HOOK_WRAP(live, get_zcopy, uct_hook_ep_ops.get_zcopy);
    UCT_HOOK_WRAP(live, flush, uct_hook_ep_ops.flush);
    UCT_HOOK_WRAP(live, check, uct_hook_ep_ops.check);
    UCT_HOOK_WRAP(live, sync_map, uct_hook_ep_ops.sync_map);
    UCT_HOOK_WRAP(live, abandon, uct_hook_ep_ops.abandon);
    /* What these promise a hook does not keep. */
    live->is_attentive = NULL;
    live->is_near      = NULL;
    live->long_max     = NULL;
    live->has_room     = NULL;
}

/* All wrappers that were made; they live as long as the process. */
static ucs_list_link_t uct_hook_tls = UCS_LIST_INITIALIZER(&uct_hook_tls);
static pthread_mutex_t uct_hook_tls_mutex = PTHREAD_MUTEX_INITIALIZER;

static const uct_tl_t *uct_hook_find_or_make(const char *name, unsigned kinds,
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
    tl->super = *inner;
    tl->kinds = kinds;
    tl->inner = inner;
    snprintf(tl->super.name, sizeof(tl->super.name), "%s", name);
    uct_hook_tl_fill(tl);
    ucs_list_add_tail(&uct_hook_tls, &tl->list);
    return &tl->super;
}

/* Which hooks stand before the transport's name, to which *name_p moves; 0: none, or others. */
static unsigned uct_hook_parse(const char **name_p)
{
    unsigned kinds = 0, i;
    const char *colon;
    size_t length;

    for (; (colon = strchr(*name_p, ':')) != NULL; *name_p = colon + 1) {
        length = (size_t)(colon - *name_p);
        for (i = 0; (i < ucs_array_size(uct_hook_names)) &&
             ((strlen(uct_hook_names[i]) != length) ||
              (strncmp(*name_p, uct_hook_names[i], length) != 0)); ++i) {
        }
        if (i == ucs_array_size(uct_hook_names)) {
            return 0;
        }
        kinds |= 1u << i;
    }
    return kinds;
}

const uct_tl_t *uct_hook_find(const char *name)
{
    const uct_tl_t *inner, *tl;
    const char *rest = name;
    unsigned kinds   = uct_hook_parse(&rest);

    if ((kinds == 0) || (strlen(name) >= UCT_TL_NAME_MAX)) {
        return NULL;
    }
    inner = uct_tl_find(rest);
    if (inner == NULL) {
        return NULL;
    }
    (void)ucs_config_table_add("hook", "HOOK_", uct_hook_config_rows);
    pthread_mutex_lock(&uct_hook_tls_mutex);
    tl = uct_hook_find_or_make(name, kinds, inner);
    pthread_mutex_unlock(&uct_hook_tls_mutex);
    return tl;
}
