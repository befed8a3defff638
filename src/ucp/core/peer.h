/* Halyard: peer: another worker (or this one) as seen from a worker, with the lanes that lead to
 * it.
 *
 * Endpoints of the user are handles on a peer: two endpoints to one worker share its lanes. Peers
 * are made by ucp_ep_create or by a HELLO and found by worker id. Opening lanes makes no system
 * call; they connect on first use.
 *
 * States: alive -> failed (once; who is reached again is a new peer, see ucp_peer_get), or gone (it
 * closed its connections) -> reaped, from progress, when no endpoint is left. Messages name peers
 * by id, so those that wait for a receive may outlive their sender.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_CORE_PEER_H
#define UCP_CORE_PEER_H

#include <ucp/core/worker.h>

/* What a lane is for; wireup/lanes.c has the table that fills the roles. */
typedef enum {
    UCP_LANE_AM,   /* messages */
    UCP_LANE_COPY, /* whole buffers in one copy: get and put */
    UCP_LANE_DEVICE, /* copies between device memory of both sides */
    UCP_LANE_RAIL, /* the first of those over further devices of the network that has messages */
    UCP_LANE_LAST = UCP_LANE_RAIL + UCT_RAILS_MAX
} ucp_lane_role_t;

#define UCP_SEND_ANSWER_MIN 4096 /* bytes of a message that is an answer: ucp_send_is_unasked */
#define UCP_PEER_WHOLE_RATE 32.0f /* before any has: so high that the first, for which the kernel
                                     has to give memory, tell little */
#define UCP_CONTROL_MAX 56 /* bytes of a control message: each fits in one line of shared memory */

/* A control message that waits for resources. */
typedef struct {
    uct_pending_t pending;
    ucp_peer_t   *peer;
    uint64_t      sn;     /* among the worker's sends, for flush */
    uint8_t       id;
    uint8_t       length;
    UCS_ALIGNED(8) uint8_t data[UCP_CONTROL_MAX]; /* a message, read by its fields */
} ucp_control_t;

struct ucp_peer {
    ucp_worker_t         *worker;
    uct_ep_t             *lanes[UCP_LANE_LAST]; /* an endpoint may serve several roles */
    unsigned              lane_tl[UCP_LANE_LAST]; /* index into context->tls */
    ucp_proto_config_t   *proto;       /* thresholds for these lanes */
    ucs_list_link_t       eps;         /* the user's endpoints */
    ucs_list_link_t       recvs;       /* receives that wait for this peer */
    ucs_list_link_t       late;        /* those of them for which only a network still reads */
    size_t                num_controls; /* that wait for resources, and flushes for them */
    size_t                num_answers;  /* of these; see ucp_control_is_answer */
    uint32_t              session;      /* a number for each HELLO of its, never used again */
    uint32_t              num_data;     /* messages DATA and FIN that have come from it */
    uint64_t              lost_sync;    /* sync words of ended sends that it may still claim by */
    _Atomic unsigned      rma_gate;     /* 0: puts, gets and atomics may run straight through: none
                                         * is in flight, and the peer lives */
    struct {
        unsigned          num;
        uint64_t          start, end;   /* all of their memory lies between */
    }                     rma[3];       /* puts, gets, atomics in flight */
    unsigned              num_fenced;   /* of them, that wait for others, or are about to begin */
    ucs_list_link_t       fenced;       /* those that wait, by work_list, as they were posted */
    uint32_t              next_ordinal; /* of the next endpoint that the user makes, */
    uint32_t              next_apart;   /* and with UCP_EP_PARAMS_FLAGS_NO_LOOPBACK */
    unsigned              num_internal; /* endpoints that the user did not make */
    float                 whole_rate;   /* bytes per ns of long messages that went whole to it,
                                         * lately */
    unsigned              num_slow;     /* that would have gone so, had they been faster */
    uint32_t              whole_max;    /* tagged messages of so many bytes had better go whole, as
                                         * it has found, */
    uint16_t              whole_left;   /* for so many more of them */
    ucs_status_t          status;      /* UCS_OK, or why it failed */
    ucs_status_t          put_status;  /* first error among the pieces of its put so far */
    uint64_t              put_mem_id;  /* where the next piece of that put goes */
    uint64_t              put_address;
    struct ucp_device_keys *keys;      /* of device memory; NULL: none yet */
    ucs_list_link_t       retired;     /* in worker->retired while nobody may need it any more, or
                                        * in kept->list; one with an address in
                                        * worker->successors */
    struct ucp_peers_kept *kept;       /* of the worker, which keeps it for a while; else NULL */
    uint8_t              *address;     /* provisional: of the worker whose former peer has to part
                                        * first, or that is asked for another one; else NULL */
    uint8_t               has_asked;   /* it is, or has been */
    uint8_t               hello_sent;
    uint8_t               hello_received;
    uint8_t               is_held;      /* it was told to announce its tagged messages */
    uint8_t               is_holding;   /* it has told us so */
    uint8_t               is_unanswered; /* no tagged message of UCP_SEND_ANSWER_MIN bytes has come
                                          * from it since the last one to it, see send.c */
    uint8_t               is_heard;     /* it has introduced itself, or is connected to us */
    unsigned              num_left;    /* endpoints that have moved on, see ucp_ep_set_peer */
    uint8_t               is_provisional;
    uint8_t               is_gone;     /* its connections to us have ended: nothing more comes */
    uint8_t               copy_state;  /* ucp_copy_state_t */
    uint8_t               is_device_refused; /* the DEVICE lane has failed once */
    uint8_t               is_put_refused; /* nor is it for what the peer can read instead */
    uint8_t               is_hmem_refused; /* the network failed with memory of a device */
    uint8_t               uid[UCT_UID_LEN];
    uint8_t               real_uid[UCT_UID_LEN]; /* of the worker that it is, was, or waits for
                                                  * where that is known */
};

typedef enum {
    UCP_COPY_UNPROVED, /* the lane is there, nobody has tried it */
    UCP_COPY_WORKS,
    UCP_COPY_NONE      /* no lane, or it failed */
} ucp_copy_state_t;

/* The memory domain of a lane that is there. */
UCS_INLINE uct_md_t *ucp_peer_md(const ucp_peer_t *peer, ucp_lane_role_t role)
{
    return peer->worker->context->tls[peer->lane_tl[role]].md;
}

/* The peer that an address belongs to, made if need be: also where one has failed that nothing can
 * come from any more, which then is known by its address no longer. UCS_ERR_UNREACHABLE: no lane
 * can carry messages (logged with the reasons). */
ucs_status_t ucp_peer_get(ucp_worker_t *worker, const ucp_address_info_t *address,
                          ucp_peer_t **peer_p);

/* An identity that no other worker has. */
void ucp_peer_make_up_uid(uint8_t uid[UCT_UID_LEN]);

/* A new peer of this identity; without an address (NULL) its lane leads nowhere. */
ucs_status_t ucp_peer_create(ucp_worker_t *worker, const uint8_t uid[UCT_UID_LEN],
                             const ucp_address_info_t *address, ucp_peer_t **peer_p);

/* The end of a provisional peer that nobody needs any more; what it held back stays unsent. */
void ucp_peer_abandon(ucp_peer_t *peer);

/* By worker id; NULL if there is none. */
ucp_peer_t *ucp_peer_find(ucp_worker_t *worker, uint64_t worker_id);

/* Closes the lanes and frees a peer; all of its requests must have ended. */
void ucp_peer_destroy(ucp_peer_t *peer);

/* Has the peer reaped by a later progress, if it is dead or gone, or has never said a word, and no
 * endpoint is left. */
void ucp_peer_retire(ucp_peer_t *peer);

/* Frees the peers that nobody needs any more. From progress, outside of the transports. */
void ucp_peers_reap(ucp_worker_t *worker);

/* Can nothing come from the peer any more, since it has failed, or left? Whoever is connected to us
 * may have sent more that lies in our rings, its introduction even, until its connections have
 * ended: that must not be taken for what it sends once it has come back. A forked child hears
 * nothing of that. */
UCS_INLINE int ucp_peer_is_over(const ucp_peer_t *peer)
{
    return (peer->is_heard && !peer->worker->is_inherited) ? peer->is_gone :
                                                             (peer->status != UCS_OK);
}

/* Has the peer failed while some of what it sent may lie undelivered here, all of a message
 * perhaps? Then the end of its own connection, which comes behind that, ends receives. */
UCS_INLINE int ucp_peer_has_more(const ucp_peer_t *peer)
{
    return (peer->status == UCS_ERR_CONNECTION_RESET) && peer->hello_received &&
           !ucp_peer_is_over(peer);
}

typedef enum {
    UCP_RECVS_ALL,
    UCP_RECVS_UNWRITTEN, /* all but those into which the peer may be writing */
    UCP_RECVS_READING    /* of these, those that read its memory by themselves, which it will not
                          * keep for us */
} ucp_recvs_t;

/* Ends receives that wait for a peer. What is left ends with its connection to us. */
void ucp_peer_end_recvs(ucp_peer_t *peer, ucs_status_t status, ucp_recvs_t which);

/* Ends the connections that the peer has made to us, behind what it has sent. */
void ucp_peer_hang_up(ucp_peer_t *peer);

/* Ends everything that involves the peer with `status`, once. From progress. */
void ucp_peer_fail(ucp_peer_t *peer, ucs_status_t status);

/* Handlers of messages: did the message that is being handled come from this peer? */
int ucp_peer_is_sender(const ucp_peer_t *peer);

/* Handlers of messages: the peer whose connection the message came by. NULL: the transport does not
 * know it, or it has not introduced itself. */
ucp_peer_t *ucp_peer_of_connection(ucp_worker_t *worker);

/* Handlers of messages: the peer that calls itself worker_id, if it is the sender and has
 * introduced itself. NULL: it broke the rules, and the connection with whoever sent this is ended,
 * since its request would never be answered; `what` names the message in the log. */
ucp_peer_t *ucp_peer_of_sender(ucp_worker_t *worker, uint64_t worker_id, const char *what);

/* The peer that a message kept since then is to be answered to. NULL: it has parted meanwhile, and
 * so what it wanted has ended, even if it has come back. */
ucp_peer_t *ucp_peer_of_kept(ucp_worker_t *worker, uint64_t worker_id, uint32_t session);

/* Handlers of messages: ends the connection with the sender, because its message is lost to us
 * (`why`), so that both sides know of it. */
void ucp_worker_give_up_sender(ucp_worker_t *worker, ucs_status_t why);

/* Callbacks for uct. */
void ucp_peer_ep_failed(void *worker, uct_ep_t *ep, ucs_status_t status);
void ucp_peer_gone(void *worker, const uint8_t uid[UCT_UID_LEN]);

/* True if single copies to the peer work; proves it on first use (one system call). */
int ucp_peer_can_copy(ucp_peer_t *peer);

/* Single copy failed: the peer's transfers take another path from now on. */
void ucp_peer_copy_failed(ucp_peer_t *peer, ucs_status_t status);

/* Sends a message of one header now, or queues a copy behind what already waits. UCP_WIRE_GET_DATA
 * takes the GET that is answered, and advances it; UCP_WIRE_HELLO takes nothing. The order among
 * messages of one peer is kept. Without memory the peer fails: a lost control message would be a
 * hang. */
void ucp_peer_send_control(ucp_peer_t *peer, unsigned id, void *msg, size_t length);

/* Tries a queued control message again; what identifies them among the pending ones of a lane. */
ucs_status_t ucp_control_retry(uct_pending_t *pending);

/* The end of a queued control message, sent or not. */
void ucp_control_end(ucp_control_t *control);

/* Sets what the endpoints may send at once. */
void ucp_peer_set_limits(ucp_peer_t *peer);

/* Sends HELLO if this peer has not had one. UCS_ERR_NO_RESOURCE: try again later. */
ucs_status_t ucp_peer_send_hello(ucp_peer_t *peer);

#endif
