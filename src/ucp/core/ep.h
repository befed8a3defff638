/* Halyard: endpoint: the user's handle on a peer.
 *
 * States: open -> closing (after close was called; the user's handle is dead) -> freed. A failed
 * peer's endpoints stay until the user closes them; their operations return the peer's status.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_EP_H
#define UCP_CORE_EP_H

#include <ucp/core/peer.h>
#include <ucp/ops/stream.h>

typedef struct ucp_ep {
    /* hot: what ucp_tag_send_nbx needs */
    uct_ep_t                *am;            /* the peer's lane for messages */
    /* Contiguous messages of fewer bytes than the first are sent at once, of fewer than the second
     * with the worker's lock held. Where there is a lock the first is 0 for good. */
    size_t                   short_limit;
    size_t                   locked_limit;
    ucp_worker_t            *worker;
    ucp_peer_t              *peer;

    ucs_list_link_t          list;          /* in worker->eps */
    ucs_list_link_t          peer_list;     /* in peer->eps */
    ucs_list_link_t          requests;      /* sends in flight, in posting order */
    ucs_list_link_t          failed_list;   /* in worker->failed_eps while the handler is due */
    ucs_list_link_t          watch_list;    /* in worker->watches while it is to be connected */
    size_t                   num_requests;
    size_t                   num_handed;    /* of these; see ucp_ep_hand_over */
    size_t                   num_flushes;   /* of it alone, whose ends the user has not heard of */
    ucp_err_handling_mode_t  err_mode;
    ucp_err_handler_cb_t     err_cb;
    void                    *err_arg;       /* of err_cb, unless there is user_data */
    void                    *user_data;
    char                     name[UCP_ENTITY_NAME_MAX];
    uint8_t                  has_user_data;
    uint8_t                  is_closing;
    uint8_t                  is_apart;      /* to its own worker, pairs with the next such one */
    uint8_t                  is_reported;   /* the error handler has run, or is due */
    uint8_t                  is_freed;      /* closed; while it is held its memory stays */
    struct ucp_conn_request *conn;          /* made by a socket address; else NULL */
    ucp_peer_t              *left[3];       /* former peers, kept for as long as the endpoint */
    unsigned                 num_left;
    ucs_status_t             rma_status;    /* for the next flush, see ucp_flush_rma_failed */
    uint8_t                  is_internal;   /* the library's: the user has not made it (yet) */
    uint8_t                  is_handed_out; /* internal, but the user may answer on it */
    unsigned                 num_holds;     /* by who goes on with it after callbacks */
    uint32_t                 ordinal;       /* among our endpoints to the peer */
    uint32_t                 pair;          /* of the peer's that pairs with it */
    ucp_stream_t             stream;
} ucp_ep_t;

typedef enum {
    UCP_EP_PAIRED_REPLY, /* to be given to the user, who may answer on it */
    UCP_EP_PAIRED_STREAM /* to keep what has come for it */
} ucp_ep_paired_t;

/* Has the user had our endpoint that pairs with the peer's endpoint `ordinal`, and closed it? */
int ucp_ep_was_closed(ucp_peer_t *peer, uint32_t ordinal);

/* Our endpoint that pairs with the peer's endpoint `ordinal`: the one of the same ordinal. Where
 * the user has none (yet), one of the library's, that a later ucp_ep_create hands to the user.
 * NULL: no memory; for a stream also where the user had it and has closed it. */
ucp_ep_t *ucp_ep_paired(ucp_peer_t *peer, uint32_t ordinal, ucp_ep_paired_t use);

/* One that the user was given with a message, to answer on; NULL: there is none. */
ucp_ep_t *ucp_ep_handed_out(const ucp_peer_t *peer);

/* Sets what the endpoint may send at once, by the state of its peer. */
void ucp_ep_set_limits(ucp_ep_t *ep);

/* The peer has come back and knows nothing of what was before: its endpoints are new ones, which
 * pair with those that the user has made since it left and will make. */
void ucp_ep_pair_anew(ucp_peer_t *peer);

/* Queues a send on its lane. */
void ucp_send_queue(ucp_request_t *req);
/* Takes it out of there, if it waits. */
void ucp_send_unqueue(ucp_request_t *req);

/* Puts a send that did not end inside its call on the endpoint's list. */
void ucp_ep_track(ucp_ep_t *ep, ucp_request_t *req);

/* A tracked send has been announced, or sent where it ends when its receiver has matched it, or all
 * that its receiver has asked for has been done: closes still wait for it, flushes no more, since
 * it may be received after what follows a flush. */
void ucp_ep_hand_over(ucp_request_t *req);

/* Its receiver asks for (more of) it: flushes that are posted from now on wait for it again. */
void ucp_ep_take_back(ucp_request_t *req);

/* A tracked send has ended: off the list, and on with the flushes that waited for it. */
void ucp_ep_untrack(ucp_request_t *req);

/* Takes the endpoint's requests off the lanes that it has and had; they stay on its list. */
void ucp_ep_unqueue(ucp_ep_t *ep);

/* Makes an endpoint one of this peer's; nothing of it is queued on its present lane. */
void ucp_ep_set_peer(ucp_ep_t *ep, ucp_peer_t *peer);

/* The peer has failed: the handler runs from the next progress. */
void ucp_ep_report_failure(ucp_ep_t *ep);

/* An endpoint with an error handler whose peer's death is to be heard of, though nothing may ever
 * be sent: it is connected by progress. Over a network, where a peer that computes may answer
 * nobody, only while a receive of its stream waits. */
void ucp_ep_watch(ucp_ep_t *ep);

/* Connects some of these. From progress, since it takes system calls. */
void ucp_ep_run_watches(ucp_worker_t *worker);

/* Calls the error handlers that are due; returns how many. */
unsigned ucp_ep_run_failure_handlers(ucp_worker_t *worker);

/* Ends every send in flight of the endpoint with `status`; without a word where the worker ends. */
void ucp_ep_purge(ucp_ep_t *ep, ucs_status_t status);

/* Around what calls the user's callbacks, which may close the endpoint, and looks at it again. */
UCS_INLINE void ucp_ep_hold(ucp_ep_t *ep)
{
    ++ep->num_holds;
}

void ucp_ep_release(ucp_ep_t *ep);

/* Frees an endpoint; its requests have ended. Its memory stays while it is held, and for as long as
 * it is among the last that the worker has freed. */
void ucp_ep_free(ucp_ep_t *ep);

/* Frees that memory, but for that of so many. */
void ucp_ep_forget_closed(ucp_worker_t *worker, unsigned max_left);

#endif
