/* Halyard: hooks: what happens later.
 *
 * One queue an interface, in the order in which things were asked for or arrived; all wait equally
 * long, so the queue's head is always the next. An operation that finds no resource when its time
 * has come holds up all that is behind it, which keeps the order.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/hook/hook.h>

#define UCS_LOG_COMPONENT "hook"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

uct_hook_delayed_t *uct_hook_delayed_make(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind,
                                          size_t size)
{
    uct_hook_delayed_t *delayed = ucs_sys_calloc(1, sizeof(*delayed) + size);

    if (delayed == NULL) {
        ucs_diag("%s: no memory to delay %zu bytes", iface->iface->tl->name, size);
        return NULL;
    }
    delayed->kind = kind;
    return delayed;
}

void uct_hook_delayed_add(uct_hook_iface_t *iface, uct_hook_delayed_t *delayed)
{
    delayed->due = iface->now + iface->config->delay;
    ucs_list_add_tail(&iface->delayed, &delayed->list);
    if (delayed->ep != NULL) {
        ++uct_hook_ep(delayed->ep)->num_delayed;
    }
}

void uct_hook_delayed_detach(uct_ep_t *ep, const uct_completion_t *comp)
{
    uct_hook_delayed_t *delayed;

    if (uct_hook_ep(ep)->num_delayed == 0) {
        return;
    }
    ucs_list_for_each(delayed, &uct_hook_iface(ep->iface)->delayed, list) {
        if ((delayed->ep == ep) && ((comp == NULL) || (delayed->comp == comp))) {
            delayed->ep = NULL;
            --uct_hook_ep(ep)->num_delayed;
        }
    }
}

static ucs_status_t uct_hook_delayed_execute(uct_hook_delayed_t *delayed)
{
    uct_ep_t *ep = delayed->ep;

    if (ep == NULL) {
        return UCS_ERR_CANCELED;
    }
    if (ep->state == UCT_EP_FAILED) {
        return ep->status;
    }

    return (delayed->kind == UCT_HOOK_FLUSH) ? uct_hook_inner_ops(ep)->flush(ep, delayed->comp) :
           uct_hook_inner_copy(ep, delayed->kind, delayed->data, (unsigned)delayed->length,
                               delayed->remote_addr, delayed->rkey, delayed->comp);
}

/* Off the queue and done with, except for the memory. */
static void uct_hook_delayed_remove(uct_hook_delayed_t *delayed)
{
    ucs_list_del(&delayed->list);
    if (delayed->ep != NULL) {
        --uct_hook_ep(delayed->ep)->num_delayed;
    }
}

void uct_hook_deliver(uct_hook_iface_t *iface, uct_hook_delayed_kind_t kind, unsigned id,
                      const void *data, size_t length, const uint8_t *sender)
{
    const uct_am_handler_t *handler = &iface->am[id].user;

    if (kind == UCT_HOOK_PEER_GONE) {
        iface->user.peer_gone(iface->user.arg, data);
        return;
    }
    *iface->user.sender = sender;
    handler->cb(handler->arg, data, length);
}

/* Returns 0 if it cannot happen yet. */
static int uct_hook_delayed_happen(uct_hook_iface_t *iface, uct_hook_delayed_t *delayed)
{
    ucs_status_t status;

    if ((delayed->kind == UCT_HOOK_AM) || (delayed->kind == UCT_HOOK_PEER_GONE)) {
        uct_hook_delayed_remove(delayed);
        uct_hook_deliver(iface, delayed->kind, delayed->id, delayed->data, delayed->length,
                         delayed->has_sender ? delayed->sender : NULL);
        *iface->user.sender = NULL;
    } else {
        status = uct_hook_delayed_execute(delayed);
        if (status == UCS_ERR_NO_RESOURCE) {
            return 0;
        }
        uct_hook_delayed_remove(delayed);
        if (status != UCS_INPROGRESS) {
            uct_completion_update(delayed->comp, status);
        }
    }
    ucs_sys_free(delayed);
    return 1;
}

unsigned uct_hook_delayed_progress(uct_hook_iface_t *iface, int all)
{
    unsigned count = 0;
    uct_hook_delayed_t *delayed;

    while (!ucs_list_is_empty(&iface->delayed)) {
        delayed = ucs_list_head(&iface->delayed, uct_hook_delayed_t, list);
        if ((!all && (delayed->due > iface->now)) || !uct_hook_delayed_happen(iface, delayed)) {
            break;
        }
        ++count;
    }
    return count;
}
