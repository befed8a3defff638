/* Halyard: endpoints: their life, and the change of state by change of the operation table.
 *
 *     idle --connect--> connecting --set_live--> live
 *       \__________________\_____________________/
 *                           \--set_failed--> failed, reported by the next progress
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

#include <ucs/sys/sys.h>
#include <string.h>

static uct_ep_t *uct_ep_alloc(uct_iface_t *iface, void *user)
{
    const uct_tl_t *tl = iface->tl;
    uct_ep_t *ep;

    ucs_assert(tl->ep_size >= sizeof(*ep));

    ep = uct_object_alloc(tl->ep_size);
    if (ep == NULL) {
        ucs_error("no memory for an endpoint of transport %s", tl->name);
        return NULL;
    }

    ep->iface = iface;
    ep->user  = user;
    ep->state = UCT_EP_IDLE;
    ep->ops   = &iface->unready_ops;
    ucs_list_head_init(&ep->ready);
    ucs_list_head_init(&ep->pending);
    ucs_list_head_init(&ep->failed_list);
    return ep;
}

ucs_status_t uct_ep_open(uct_iface_t *iface, const uint8_t peer_uid[UCT_UID_LEN],
                         const void *address, size_t length, void *user, uct_ep_t **ep_p)
{
    const uct_tl_t *tl = iface->tl;
    uct_ep_t *ep       = uct_ep_alloc(iface, user);
    ucs_status_t status;

    if (ep == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(ep->peer_uid, peer_uid, UCT_UID_LEN);
    status = tl->ep.init(ep, address, length);
    if (status != UCS_OK) {
        ucs_sys_free(ep);
        return status;
    }

    ucs_list_add_tail(&iface->eps, &ep->list);
    if (tl->ep.connect == NULL) {
        uct_ep_set_live(ep);
    }
    *ep_p = ep;
    return UCS_OK;
}

ucs_status_t uct_ep_open_nowhere(uct_iface_t *iface, void *user, uct_ep_t **ep_p)
{
    uct_ep_t *ep = uct_ep_alloc(iface, user);

    if (ep == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    ep->is_nowhere = 1;
    ep->state      = UCT_EP_CONNECTING; /* for ever: nobody makes it live */
    ucs_list_head_init(&ep->list);      /* the transport does not see it */
    *ep_p = ep;
    return UCS_OK;
}

static void uct_ep_drop_pending(uct_pending_t *pending UCS_UNUSED, void *arg UCS_UNUSED)
{
}

void uct_ep_close(uct_ep_t *ep)
{
    ucs_assert(!uct_ep_has_pending(ep));

    if (!ep->is_nowhere && (ep->iface->tl->ep.close != NULL)) {
        ep->iface->tl->ep.close(ep);
    }
    uct_ep_pending_purge(ep, uct_ep_drop_pending, NULL);
    if (ep->iface->served == ep) {
        ep->iface->served = NULL; /* tells who serves it that it is gone */
    }
    ucs_list_del(&ep->failed_list);
    ucs_list_del(&ep->list);
    ucs_sys_free(ep);
}

ucs_status_t uct_ep_connect(uct_ep_t *ep)
{
    ucs_status_t status;

    switch (ep->state) {
    case UCT_EP_LIVE:
        return UCS_OK;
    case UCT_EP_CONNECTING:
        return UCS_INPROGRESS;
    case UCT_EP_FAILED:
        return ep->status;
    case UCT_EP_IDLE:
        break;
    }

    ep->state = UCT_EP_CONNECTING;
    status    = ep->iface->tl->ep.connect(ep);
    if (status == UCS_OK) {
        uct_ep_set_live(ep);
    } else if (status != UCS_INPROGRESS) {
        uct_ep_set_failed(ep, status);
    } else if (ep->state == UCT_EP_LIVE) {
        status = UCS_OK; /* the transport was quicker than it said */
    }
    return (ep->state == UCT_EP_FAILED) ? ep->status : status;
}

void uct_ep_set_live(uct_ep_t *ep)
{
    if ((ep->state == UCT_EP_LIVE) || (ep->state == UCT_EP_FAILED)) {
        return;
    }
    ep->state = UCT_EP_LIVE;
    ep->ops   = &ep->iface->tl->ep.live;
    uct_ep_pending_wake(ep);
}

void uct_ep_set_failed(uct_ep_t *ep, ucs_status_t status)
{
    ucs_assert(UCS_STATUS_IS_ERR(status) && (status != UCS_ERR_NO_RESOURCE));

    if (ep->state == UCT_EP_FAILED) {
        return; /* the first cause counts */
    }
    ep->state  = UCT_EP_FAILED;
    ep->status = ((status == UCS_ERR_UNREACHABLE) && ep->was_met) ? UCS_ERR_CONNECTION_RESET :
                                                                    status;
    ep->ops    = &ep->iface->unready_ops;
    ucs_list_del(&ep->ready); /* until the failure has been reported */
    ucs_list_add_tail(&ep->iface->failed, &ep->failed_list);
    if (!ep->is_nowhere && (ep->iface->tl->ep.disconnect != NULL)) {
        ep->iface->tl->ep.disconnect(ep);
    }
    if (ep->iface->params.rouse != NULL) {
        ep->iface->params.rouse(ep->iface->params.arg);
    }
}
