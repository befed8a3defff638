/* Halyard: interfaces: their life, active-message table, failure reports and pending requests.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

#include <ucs/sys/sys.h>
#include <string.h>

/* Requests of one endpoint that are taken before the next endpoint has its turn: few, so that
 * endpoints which share buffers share them evenly. */
#define UCT_PENDING_TURN 4

/* Requests after which a progress call ends: many, because a queue that is filled as fast as it
 * drains never ends, and what passes through it costs several times as much (measured with 4: half
 * the messages a second of senders that run ahead). */
#define UCT_PENDING_MAX 64

static void uct_iface_am_drop(void *arg, const void *data UCS_UNUSED, size_t length UCS_UNUSED)
{
    uct_iface_t *iface = arg;

    ++iface->am_dropped;
}

void uct_iface_set_am(uct_iface_t *iface, unsigned id, uct_am_cb_t cb, void *arg,
                      uct_am_place_t place)
{
    ucs_assert_always(id < UCT_AM_ID_MAX);

    iface->am[id].cb    = (cb != NULL) ? cb : uct_iface_am_drop;
    iface->am[id].arg   = (cb != NULL) ? arg : iface;
    iface->am[id].place = place;
    iface->am[id].begin = NULL;
    iface->am[id].end   = NULL;
}

void uct_iface_set_am_parts(uct_iface_t *iface, unsigned id, uct_am_begin_cb_t begin,
                            uct_am_end_cb_t end)
{
    iface->am[id].begin = begin;
    iface->am[id].end   = end;
}

ucs_status_t uct_iface_open(uct_md_t *md, const uct_iface_params_t *params, uct_iface_t **iface_p)
{
    const uct_tl_t *tl = md->tl;
    ucs_status_t status;
    uct_iface_t *iface;
    unsigned id;

    ucs_assert(tl->iface_size >= sizeof(*iface));

    if (params->ep_failed == NULL) {
        ucs_error("interface of transport %s: no callback for failed endpoints", tl->name);
        return UCS_ERR_INVALID_PARAM;
    }

    iface = uct_object_alloc(tl->iface_size);
    if (iface == NULL) {
        ucs_error("no memory for an interface of transport %s", tl->name);
        return UCS_ERR_NO_MEMORY;
    }

    iface->tl     = tl;
    iface->md     = md;
    iface->params = *params;
    if (iface->params.sender == NULL) {
        iface->params.sender = &iface->sender;
    }
    ucs_list_head_init(&iface->ready);
    ucs_list_head_init(&iface->eps);
    ucs_list_head_init(&iface->failed);
    uct_ep_make_unready_ops(&tl->ep.live, &iface->unready_ops);
    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        uct_iface_set_am(iface, id, NULL, NULL, 0);
    }

    status = (tl->iface.open != NULL) ? tl->iface.open(iface) : UCS_OK;
    if (status != UCS_OK) {
        uct_iface_close(iface);
        return status;
    }

    *iface_p = iface;
    return UCS_OK;
}

int uct_iface_close(uct_iface_t *iface)
{
    int is_stuck;

    ucs_assert(ucs_list_is_empty(&iface->eps));

    if (iface->tl->iface.close != NULL) {
        iface->tl->iface.close(iface);
    }
    is_stuck = iface->is_stuck;
    ucs_assert(ucs_list_is_empty(&iface->ready) && !iface->is_serving);
    ucs_sys_free(iface);
    return is_stuck;
}

/* ------------------------------------------------------------------ pending requests */

static int uct_ep_may_retry(const uct_ep_t *ep)
{
    return (ep->state != UCT_EP_CONNECTING) && ucs_list_is_empty(&ep->failed_list);
}

void uct_ep_pending_wake(uct_ep_t *ep)
{
    if (!ucs_list_is_empty(&ep->pending) && ucs_list_is_empty(&ep->ready) &&
        (ep != ep->iface->served) && uct_ep_may_retry(ep)) {
        ucs_list_add_tail(&ep->iface->ready, &ep->ready);
    }
}

void uct_ep_pending_add(uct_ep_t *ep, uct_pending_t *pending)
{
    ucs_list_add_tail(&ep->pending, &pending->list);
    ++ep->iface->num_pending;
    uct_ep_pending_wake(ep);
}

void uct_ep_pending_remove(uct_ep_t *ep, uct_pending_t *pending)
{
    ucs_list_del(&pending->list);
    --ep->iface->num_pending;
    if (ucs_list_is_empty(&ep->pending)) {
        ucs_list_del(&ep->ready);
    }
}

void uct_ep_pending_purge(uct_ep_t *ep, uct_pending_purge_cb_t cb, void *arg)
{
    uct_iface_t *iface = ep->iface;
    ucs_list_link_t purged; /* what the callback adds stays */

    ucs_list_head_init(&purged);
    ucs_list_splice_tail(&purged, &ep->pending);
    ucs_list_del(&ep->ready);
    while (!ucs_list_is_empty(&purged)) {
        --iface->num_pending;
        cb(ucs_list_extract_head(&purged, uct_pending_t, list), arg);
    }
}

/* One turn of an endpoint, which has requests and is on no list. Returns how many got on. */
static unsigned uct_ep_pending_serve(uct_ep_t *ep)
{
    uct_iface_t *iface = ep->iface;
    unsigned count     = 0;
    uct_pending_t *pending;
    ucs_status_t status;

    iface->served = ep;
    do {
        pending = ucs_list_extract_head(&ep->pending, uct_pending_t, list);
        status  = pending->func(pending);
        if (status == UCS_ERR_NO_RESOURCE) {
            ucs_list_add_head(&ep->pending, &pending->list);
            break;
        }
        ++count;
        if (status == UCS_INPROGRESS) {
            ucs_list_add_tail(&ep->pending, &pending->list);
        } else { /* the request may be gone, */
            --iface->num_pending;
            if (iface->served == NULL) { /* and the endpoint is */
                return count;
            }
        }
    } while ((count < UCT_PENDING_TURN) && !ucs_list_is_empty(&ep->pending) &&
             uct_ep_may_retry(ep));
    iface->served = NULL;
    uct_ep_pending_wake(ep);
    return count;
}

/* ------------------------------------------------------------------ progress */

static unsigned uct_iface_report_failed(uct_iface_t *iface)
{
    unsigned count = 0;
    uct_ep_t *ep;

    while (!ucs_list_is_empty(&iface->failed)) {
        ep = ucs_list_extract_head(&iface->failed, uct_ep_t, failed_list);
        /* Before the callback, since that may close the endpoint: requests that it leaves in the
         * queue meet the error by themselves. */
        uct_ep_pending_wake(ep);
        iface->params.ep_failed(iface->params.arg, ep, ep->status);
        ++count;
    }
    return count;
}

/* Each round serves the endpoints that were ready at its begin. They have their turns in one order,
 * so where they share a resource the first takes most of it: after each round that took something
 * another endpoint is the first. */
static unsigned uct_iface_retry_pending(uct_iface_t *iface)
{
    unsigned total = 0, count;
    ucs_list_link_t round;

    if (iface->is_serving) { /* a request's func calls progress */
        return 0;
    }
    iface->is_serving = 1;
    do {
        count = 0;
        ucs_list_head_init(&round);
        ucs_list_splice_tail(&round, &iface->ready);
        while (!ucs_list_is_empty(&round)) {
            count += uct_ep_pending_serve(ucs_list_extract_head(&round, uct_ep_t, ready));
        }
        total += count;
        if ((count != 0) && !ucs_list_is_empty(&iface->ready)) {
            ucs_list_add_tail(&iface->ready, ucs_list_extract_head_link(&iface->ready));
        }
    } while ((count != 0) && (total < UCT_PENDING_MAX) && !ucs_list_is_empty(&iface->ready));
    iface->is_serving = 0;
    return total;
}

unsigned uct_iface_progress_work(uct_iface_t *iface)
{
    unsigned count = uct_iface_report_failed(iface);

    return count + uct_iface_retry_pending(iface);
}

void uct_report_choice(ucs_report_t *report, const char *choice, const char *before)
{
    const char *end, *name, *device, *reason;
    int is_not;

    for (; (choice != NULL) && (*choice != '\0'); choice = end + (*end == '\n')) {
        end    = choice + strcspn(choice, "\n");
        is_not = (strncmp(choice, "not ", 4) == 0);
        name   = choice + (is_not ? 4 : 0);
        device = memmem(name, (size_t)(end - name), " on ", 4);
        reason = memmem(name, (size_t)(end - name), ": ", 2);
        if ((device == NULL) || ((reason != NULL) && (!is_not || (reason < device)))) {
            ucs_report_row(report, "- note", "%s%.*s\n", before, (int)(end - choice), choice);
            continue;
        }
        reason = (reason == NULL) ? end : reason;
        ucs_report_row(report, "- - provider device - reason", "%s%s%.*s on %.*s%s%.*s\n", before,
                       is_not ? "not " : "", (int)(device - name), name,
                       (int)(reason - device - 4), device + 4, (reason < end) ? ": " : "",
                       (reason < end) ? (int)(end - reason - 2) : 0,
                       (reason < end) ? reason + 2 : "");
    }
}
