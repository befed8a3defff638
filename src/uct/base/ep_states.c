/* Halyard: what operations do on endpoints that are not live.
 *
 * Idle or connecting: the first operation starts the connection; while that is under way nothing
 * can be sent. Failed: each operation returns why.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

#include <string.h>

/* UCS_OK: the endpoint is live now. Else what the operation has to return. */
static ucs_status_t uct_ep_become_live(uct_ep_t *ep)
{
    ucs_status_t status = uct_ep_connect(ep);

    return (status == UCS_INPROGRESS) ? UCS_ERR_NO_RESOURCE : status;
}

/* An operation that is done once the endpoint is live. */
#define UCT_EP_UNREADY(_op, _params, _args) \
    static ucs_status_t uct_ep_unready_##_op _params \
    { \
        ucs_status_t status = uct_ep_become_live(ep); \
        \
        return (status == UCS_OK) ? ep->ops->_op _args : status; \
    }

UCT_EP_UNREADY(am_short,
               (uct_ep_t *ep, unsigned id, uint64_t header, const void *payload, size_t length),
               (ep, id, header, payload, length))
UCT_EP_UNREADY(am_short_iov, (uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n),
               (ep, id, iov, n))
UCT_EP_UNREADY(am_bcopy,
               (uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg, size_t *length_p),
               (ep, id, pack, arg, length_p))
UCT_EP_UNREADY(am_zcopy,
               (uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n,
                uct_completion_t *comp),
               (ep, id, iov, n, comp))
UCT_EP_UNREADY(put_zcopy,
               (uct_ep_t *ep, const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                uct_rkey_t *rkey, uct_completion_t *comp),
               (ep, iov, n, remote_addr, rkey, comp))
UCT_EP_UNREADY(get_zcopy,
               (uct_ep_t *ep, const uct_iov_t *iov, unsigned n, uint64_t remote_addr,
                uct_rkey_t *rkey, uct_completion_t *comp),
               (ep, iov, n, remote_addr, rkey, comp))
UCT_EP_UNREADY(sync_map, (uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p),
               (ep, index, word_p))

static ucs_status_t uct_ep_unready_flush(uct_ep_t *ep, uct_completion_t *comp UCS_UNUSED)
{
    return (ep->state == UCT_EP_FAILED) ? ep->status : UCS_OK; /* nothing has been sent */
}

static ucs_status_t uct_ep_unready_check(uct_ep_t *ep)
{
    ucs_status_t status = uct_ep_connect(ep);

    return (status == UCS_INPROGRESS) ? UCS_OK : status;
}

#define UCT_EP_SET_UNREADY(_ops, _live, _op) \
    (_ops)->_op = ((_live)->_op != NULL) ? uct_ep_unready_##_op : NULL

void uct_ep_make_unready_ops(const uct_ep_ops_t *live, uct_ep_ops_t *ops_p)
{
    memset(ops_p, 0, sizeof(*ops_p));
    UCT_EP_SET_UNREADY(ops_p, live, am_short);
    UCT_EP_SET_UNREADY(ops_p, live, am_short_iov);
    UCT_EP_SET_UNREADY(ops_p, live, am_bcopy);
    UCT_EP_SET_UNREADY(ops_p, live, am_zcopy);
    UCT_EP_SET_UNREADY(ops_p, live, put_zcopy);
    UCT_EP_SET_UNREADY(ops_p, live, get_zcopy);
    UCT_EP_SET_UNREADY(ops_p, live, flush);
    UCT_EP_SET_UNREADY(ops_p, live, check);
    UCT_EP_SET_UNREADY(ops_p, live, sync_map);
    ops_p->abandon = live->abandon;
}
