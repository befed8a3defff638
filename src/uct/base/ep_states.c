/* Halyard: what operations do on endpoints that are not live.
 *
 * Idle or connecting: the first operation starts the connection; while that is under way nothing
 * can be sent. Failed: each operation returns why.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

/* UCS_OK: the endpoint is live now. Else what the operation has to return. */
static ucs_status_t uct_ep_become_live(uct_ep_t *ep)
{
    ucs_status_t status = uct_ep_connect(ep);

    return (status == UCS_INPROGRESS) ? UCS_ERR_NO_RESOURCE : status;
}

static ucs_status_t uct_ep_unready_am_short(uct_ep_t *ep, unsigned id, uint64_t header,
                                            const void *payload, size_t length)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->am_short(ep, id, header, payload, length) : status;
}

static ucs_status_t uct_ep_unready_am_short_iov(uct_ep_t *ep, unsigned id, const uct_iov_t *iov,
                                                unsigned n)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->am_short_iov(ep, id, iov, n) : status;
}

static ucs_status_t uct_ep_unready_am_bcopy(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack,
                                            void *arg, size_t *length_p)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->am_bcopy(ep, id, pack, arg, length_p) : status;
}

static ucs_status_t uct_ep_unready_am_zcopy(uct_ep_t *ep, unsigned id, const uct_iov_t *iov,
                                            unsigned n, uct_completion_t *comp)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->am_zcopy(ep, id, iov, n, comp) : status;
}

static ucs_status_t uct_ep_unready_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                             uint64_t remote_addr, uct_rkey_t *rkey,
                                             uct_completion_t *comp)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->put_zcopy(ep, iov, n, remote_addr, rkey, comp) : status;
}

static ucs_status_t uct_ep_unready_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                             uint64_t remote_addr, uct_rkey_t *rkey,
                                             uct_completion_t *comp)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->get_zcopy(ep, iov, n, remote_addr, rkey, comp) : status;
}

static ucs_status_t uct_ep_unready_flush(uct_ep_t *ep, uct_completion_t *comp UCS_UNUSED)
{
    return (ep->state == UCT_EP_FAILED) ? ep->status : UCS_OK; /* nothing has been sent */
}

static ucs_status_t uct_ep_unready_check(uct_ep_t *ep)
{
    ucs_status_t status = uct_ep_connect(ep);

    return (status == UCS_INPROGRESS) ? UCS_OK : status;
}

static ucs_status_t uct_ep_unready_sync_map(uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p)
{
    ucs_status_t status = uct_ep_become_live(ep);

    return (status == UCS_OK) ? ep->ops->sync_map(ep, index, word_p) : status;
}

void uct_ep_make_unready_ops(const uct_ep_ops_t *live, uct_ep_ops_t *ops_p)
{
    ops_p->am_short     = (live->am_short != NULL) ? uct_ep_unready_am_short : NULL;
    ops_p->am_short_iov = (live->am_short_iov != NULL) ? uct_ep_unready_am_short_iov : NULL;
    ops_p->am_bcopy     = (live->am_bcopy != NULL) ? uct_ep_unready_am_bcopy : NULL;
    ops_p->am_zcopy     = (live->am_zcopy != NULL) ? uct_ep_unready_am_zcopy : NULL;
    ops_p->put_zcopy    = (live->put_zcopy != NULL) ? uct_ep_unready_put_zcopy : NULL;
    ops_p->get_zcopy    = (live->get_zcopy != NULL) ? uct_ep_unready_get_zcopy : NULL;
    ops_p->flush        = (live->flush != NULL) ? uct_ep_unready_flush : NULL;
    ops_p->check        = (live->check != NULL) ? uct_ep_unready_check : NULL;
    ops_p->sync_map     = (live->sync_map != NULL) ? uct_ep_unready_sync_map : NULL;
    ops_p->is_attentive = NULL;
    ops_p->is_near      = NULL;
    ops_p->long_max     = NULL;
    ops_p->has_room     = NULL;
    ops_p->abandon      = live->abandon;
}
