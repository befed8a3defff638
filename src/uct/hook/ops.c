/* Halyard: hooks: the operations of wrapped endpoints.
 *
 * Each asks uct_hook_enter whether it may happen, calls the transport's own operation, and shows
 * the result to uct_hook_leave. Which of them a wrapper has, hook.c decides by what the transport
 * has.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/hook/hook.h>

#define UCS_LOG_COMPONENT "hook"
#include <ucs/debug/log.h>
#include <string.h>

static ucs_status_t uct_hook_fail(uct_ep_t *ep, ucs_status_t status)
{
    ++uct_hook_ep(ep)->num_ops;
    /* A wrong address is a fault of the one operation. */
    if (status != UCS_ERR_INVALID_ADDR) {
        uct_ep_set_failed(ep, status);
    }
    return status;
}

static ucs_status_t uct_hook_enter_at_once(uct_ep_t *ep)
{
    uct_hook_iface_t *iface = uct_hook_iface(ep->iface);

    return ((iface->kinds & UCT_HOOK_FAULT) &&
            (uct_hook_ep(ep)->num_ops + 1 == iface->config->fail_op)) ?
           uct_hook_fail(ep, uct_hook_statuses[iface->config->fail_status]) : UCS_OK;
}

static ucs_status_t uct_hook_enter(uct_ep_t *ep)
{
    uct_hook_iface_t *iface = uct_hook_iface(ep->iface);

    return uct_hook_chance(iface, iface->config->no_resource) ? UCS_ERR_NO_RESOURCE :
                                                               uct_hook_enter_at_once(ep);
}

static ucs_status_t uct_hook_leave(uct_ep_t *ep, const char *name, size_t length,
                                   ucs_status_t status)
{
    uct_hook_iface_t *iface = uct_hook_iface(ep->iface);

    if (iface->kinds & UCT_HOOK_TRACE) {
        ucs_debug("%s ep %p: %s of %zu bytes: %s", ep->iface->tl->name, (void *)ep, name, length,
                  ucs_status_string(status));
    }
    if ((iface->kinds & UCT_HOOK_FAULT) && !UCS_STATUS_IS_ERR(status) &&
        (++uct_hook_ep(ep)->num_ops == iface->config->death)) {
        uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
    }
    return status;
}

/* ------------------------------------------------------------------ messages, common words */

/* An operation that may meet a fault; _length: its bytes once it is done. Messages are delayed
 * where they arrive. */
#define UCT_HOOK_OP(_op, _params, _args, _length) \
    static ucs_status_t uct_hook_##_op _params \
    { \
        ucs_status_t status = uct_hook_enter(ep); \
        \
        if (status == UCS_OK) { \
            status = uct_hook_inner_ops(ep)->_op _args; \
        } \
        return uct_hook_leave(ep, #_op, _length, status); \
    }

UCT_HOOK_OP(am_short,
            (uct_ep_t *ep, unsigned id, uint64_t header, const void *payload, size_t length),
            (ep, id, header, payload, length), length)
UCT_HOOK_OP(am_short_iov, (uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n),
            (ep, id, iov, n), uct_iov_length(iov, n))
UCT_HOOK_OP(am_bcopy,
            (uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg, size_t *length_p),
            (ep, id, pack, arg, length_p), (status == UCS_OK) ? *length_p : 0)
UCT_HOOK_OP(am_zcopy,
            (uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n, uct_completion_t *comp),
            (ep, id, iov, n, comp), uct_iov_length(iov, n))
UCT_HOOK_OP(sync_map, (uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p),
            (ep, index, word_p), sizeof(**word_p))

/* ------------------------------------------------------------------ memory */

/* An operation without completion cannot end later. */
static int uct_hook_is_delayed(const uct_ep_t *ep, const uct_completion_t *comp)
{
    return (uct_hook_iface(ep->iface)->kinds & UCT_HOOK_DELAY) && (comp != NULL);
}

/* Has an operation happen later. Copies have entries. */
static ucs_status_t uct_hook_delay(uct_ep_t *ep, uct_hook_delayed_kind_t kind,
                                   const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                                   uct_rkey_t *rkey, uct_completion_t *comp)
{
    uct_hook_iface_t *iface     = uct_hook_iface(ep->iface);
    uct_hook_delayed_t *delayed = uct_hook_delayed_make(iface, kind, n * sizeof(*iov));

    if (delayed == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (n != 0) {
        memcpy(delayed->data, iov, n * sizeof(*iov));
    }
    delayed->ep          = ep;
    delayed->length      = n;
    delayed->remote_addr = remote_addr;
    delayed->rkey        = rkey;
    delayed->comp        = comp;
    uct_hook_delayed_add(iface, delayed);
    return UCS_INPROGRESS;
}

ucs_status_t uct_hook_inner_copy(uct_ep_t *ep, uct_hook_delayed_kind_t kind, const uct_iov_t *iov,
                                 unsigned n, uint64_t remote_addr, uct_rkey_t *rkey,
                                 uct_completion_t *comp)
{
    const uct_ep_ops_t *ops = uct_hook_inner_ops(ep);

    return ((kind == UCT_HOOK_PUT) ? ops->put_zcopy : ops->get_zcopy)(ep, iov, n, remote_addr, rkey,
                                                                      comp);
}

/* Copies from and to any memory of a peer, without key, happen at once or not at all. Those of
 * devices are not delayed, as the key may go with the call. */
static ucs_status_t uct_hook_copy(uct_ep_t *ep, uct_hook_delayed_kind_t kind, const uct_iov_t *iov,
                                  unsigned n, uint64_t remote_addr, uct_rkey_t *rkey,
                                  uct_completion_t *comp)
{
    ucs_status_t status = (rkey == NULL) ? uct_hook_enter_at_once(ep) : uct_hook_enter(ep);

    if (status == UCS_OK) {
        status = (uct_hook_is_delayed(ep, comp) && (ep->iface->tl->kind != UCT_TL_KIND_DEVICE)) ?
                 uct_hook_delay(ep, kind, iov, n, remote_addr, rkey, comp) :
                 uct_hook_inner_copy(ep, kind, iov, n, remote_addr, rkey, comp);
    }
    return uct_hook_leave(ep, (kind == UCT_HOOK_PUT) ? "put_zcopy" : "get_zcopy",
                          uct_iov_length(iov, n), status);
}

static ucs_status_t uct_hook_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                       uint64_t remote_addr, uct_rkey_t *rkey,
                                       uct_completion_t *comp)
{
    return uct_hook_copy(ep, UCT_HOOK_PUT, iov, n, remote_addr, rkey, comp);
}

static ucs_status_t uct_hook_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                       uint64_t remote_addr, uct_rkey_t *rkey,
                                       uct_completion_t *comp)
{
    return uct_hook_copy(ep, UCT_HOOK_GET, iov, n, remote_addr, rkey, comp);
}

/* ------------------------------------------------------------------ order and state */

static ucs_status_t uct_hook_flush(uct_ep_t *ep, uct_completion_t *comp)
{
    ucs_status_t status = uct_hook_enter(ep);

    if (status == UCS_OK) {
        status = (uct_hook_ep(ep)->num_delayed == 0) ? uct_hook_inner_ops(ep)->flush(ep, comp) :
                 (comp == NULL)           ? UCS_ERR_NO_RESOURCE :
                 uct_hook_delay(ep, UCT_HOOK_FLUSH, NULL, 0, 0, NULL, comp);
    }
    return uct_hook_leave(ep, "flush", 0, status);
}

static ucs_status_t uct_hook_check(uct_ep_t *ep)
{
    return uct_hook_leave(ep, "check", 0, uct_hook_inner_ops(ep)->check(ep));
}

static void uct_hook_abandon(uct_ep_t *ep, const uct_completion_t *comp)
{
    uct_hook_delayed_detach(ep, comp);
    uct_hook_inner_ops(ep)->abandon(ep, comp);
}

const uct_ep_ops_t uct_hook_ep_ops = {
    .am_short     = uct_hook_am_short,
    .am_short_iov = uct_hook_am_short_iov,
    .am_bcopy     = uct_hook_am_bcopy,
    .am_zcopy     = uct_hook_am_zcopy,
    .put_zcopy    = uct_hook_put_zcopy,
    .get_zcopy    = uct_hook_get_zcopy,
    .flush        = uct_hook_flush,
    .check        = uct_hook_check,
    .sync_map     = uct_hook_sync_map,
    .abandon      = uct_hook_abandon
};
