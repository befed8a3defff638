/* Halyard: the bound on messages that wait at their receiver: tagged ones that nobody has asked for
 * yet, and active ones behind one that is fetched.
 *
 * A worker counts the memory of the messages that it keeps whole. Beyond its budget
 * (UCX_TM_UNEXP_BUDGET) it tells each peer that sends more of them to hold: from then on that peer
 * announces its messages and keeps their bytes itself, but for those that are no larger than an
 * announcement. When half of the budget is free again they are told to go on. So a receiver keeps
 * its budget, what was on its way when the peers heard that, and announcements. Who sends hears it
 * in progress: shared memory takes no more than 256 KiB and what its ring holds from one who calls
 * none.
 *
 * An active message that is announced for this reason is fetched whole for its handler, which
 * notices nothing. What is fetched counts too: where the budget is used up, the announced messages
 * of a sender are fetched one after the other.
 *
 * Who sends has said HELLO before its first message, so there is a way to tell it. A sender has no
 * cost: what it may send at once is one limit, which changes (ucp_ep_set_limits).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_TAG_BUDGET_H
#define UCP_OPS_TAG_BUDGET_H

#include <ucp/core/peer.h>

/* Bytes of a message that a peer sends whole all the same: to keep it takes as much memory as to
 * keep its announcement. */
#define UCP_TAG_TINY 64

/* The part of ucp_tag_budget_add beyond the budget: tells the sender of this message to hold. */
void ucp_tag_budget_hold(ucp_worker_t *worker);

/* The part of ucp_tag_budget_del where peers hold and half of the budget is free. */
void ucp_tag_budget_release(ucp_worker_t *worker);

/* Handler of UCP_WIRE_HOLD. */
void ucp_tag_hold_handle(void *worker, const void *data, size_t length);

/* Handlers of messages: one is kept whole, in so many bytes. */
UCS_INLINE void ucp_tag_budget_add(ucp_worker_t *worker, size_t size)
{
    worker->unexp_bytes += size;
    if (ucs_unlikely(worker->unexp_bytes > worker->context->options.unexp_budget)) {
        ucp_tag_budget_hold(worker);
    }
}

/* A message that was kept whole is about to be freed, or is its handler's. */
UCS_INLINE void ucp_tag_budget_del(ucp_worker_t *worker, size_t size)
{
    worker->unexp_bytes -= size;
    if (ucs_unlikely(worker->has_held) &&
        (worker->unexp_bytes <= worker->context->options.unexp_budget / 2)) {
        ucp_tag_budget_release(worker);
    }
}

/* Is this message to be announced because the peer has said so? Streams have a bound of their own.
 */
UCS_INLINE int ucp_tag_must_announce(const ucp_request_t *req)
{
    return ucs_unlikely(req->send.peer->is_holding) && (req->length > UCP_TAG_TINY) &&
           (req->kind != UCP_REQUEST_STREAM_SEND);
}

#endif
