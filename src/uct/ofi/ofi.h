/* Halyard: ofi: messages between nodes, through libfabric.
 *
 * libfabric.so.1 is opened by dlopen with the first interface. An interface is one endpoint of type
 * RDM of the provider that ofi_provider.c chooses; everything that it receives comes by posted
 * buffers, and what it sends is copied into its own buffers, or by value where it is short. Where
 * the provider has RMA, long messages are read by their receivers (ofi_rma.c).
 *
 * What a provider does not promise is done here, per peer and the same over all of them
 * (ofi_peer.c, ofi_wire.h): each direction is opened by an introduction and a welcome, which prove
 * who is at the address; messages carry a number, so that their order is restored and none is
 * taken twice; the receiver tells how far it has come, so that a sender knows what has arrived and
 * never sends more than a window ahead.
 *
 * Liveness (ofi_alive.c): who has said nothing for UCX_OFI_TIMEOUT / 10 is asked to answer. A
 * process that has died is noticed by the provider's error, a restarted one by its other identity.
 * One that does not answer, because it computes or because its host is gone, is told from the dead
 * by its kernel, where the provider is TCP: a connection to its listening socket is accepted
 * without the process. Since such a socket has room for so many only, most questions go to a port
 * where nobody listens, which is refused while the host is there. Elsewhere by its network card:
 * questions are sent so that they end when the peer's endpoint has them (FI_TRANSMIT_COMPLETE,
 * fi_cq(3)). No answer of any of these for UCX_OFI_TIMEOUT is the end of the peer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_OFI_OFI_H
#define UCT_OFI_OFI_H

#include <uct/api/uct_tl.h>
#include <uct/ofi/ofi_lib.h>
#include <uct/ofi/ofi_wire.h>

#include <ucs/ds/hash.h>
#include <ucs/ds/ptr_map.h>
#include <ucs/ds/list.h>
#include <ucs/sys/fork.h>

#include <pthread.h>
#include <sys/socket.h>

#define UCT_OFI_MESSAGE_MAX 131200 /* bytes of a message without our head: 128 KiB and more */
#define UCT_OFI_SINGLE_MAX  65664  /* the same over providers whose receive buffers take one each:
                                     they announce long ones, which we do faster */
#define UCT_OFI_BUFFER_SIZE (UCT_OFI_MESSAGE_MAX + sizeof(uct_ofi_head_t))
#define UCT_OFI_SHORT_MAX   512ul  /* longest message that is sent by value, with our header */
#define UCT_OFI_GATHER_MIN  16384  /* bytes that are not copied */
#define UCT_OFI_QUEUE       768ul  /* entries of the queue to send that a provider is asked for */
#define UCT_OFI_RMAS        64ul   /* reads and writes under way */
#define UCT_OFI_RMA_MAX    ((size_t)4 << 20)  /* bytes of one: answers come between them */
#define UCT_OFI_DEVICES_MAX 64     /* equal ones among which processes are spread */
#define UCT_OFI_KEYS_MAX    8      /* interfaces of one domain whose memory a key reaches */
#define UCT_OFI_WINDOW      256u   /* messages that a peer has not told of to have taken */
#define UCT_OFI_LOST_MAX    3      /* messages in a row that are said again */
#define UCT_OFI_PAUSE_NS    1000000ul /* of which the first of them waits 4, the next 16, ... */
#define UCT_OFI_SPARES       3u     /* receive buffers in reserve for each that is in use */
/* Seen over `tcp;ofi_rxm` (libfabric 1.17) after a process had died: fi_recvmsg failed with -256,
 * and took the buffer at the next call. Perhaps a message of the dead was waiting for one. */
#define UCT_OFI_REFUSALS    1000 /* in a row: no receive buffer is taken any more */
#define UCT_OFI_STRANGERS   8      /* refusals under way to those that are no peers */
#define UCT_OFI_RAIL_SIZE  (2 * UCT_OFI_BUFFER_SIZE) /* bytes of a receive buffer of an interface
                                                         that carries no messages of its user's */

typedef struct {
    ucs_config_allow_list_t providers;
    ucs_config_allow_list_t devices;
    ucs_config_names_array_t families; /* the first one comes first */
    int                     has_rma;
    int                     has_hmem;
    uint64_t                timeout_ns;
    unsigned                rx_buffers;
    size_t                  rx_size; /* bytes of each */
} uct_ofi_config_t;

typedef struct {
    uct_md_t        super;
    pthread_mutex_t lock;   /* of what follows, and of registered memory: any thread releases it */
    ucs_list_link_t ifaces; /* that have reads */
    int             is_checked; /* the names that the user gives were looked for */
    ucs_fork_watch_t fork;      /* a child has it unlocked */
} uct_ofi_md_t;

typedef struct uct_ofi_peer uct_ofi_peer_t;

/* What the provider is given as context of an operation; its own part comes first. */
typedef struct {
    struct fi_context2 context;
    enum {
        UCT_OFI_OP_SEND,
        UCT_OFI_OP_RECEIVE,
        UCT_OFI_OP_RMA
    }                  kind;
    int                is_posted; /* to the provider */
    int                is_given_up; /* counted in its peer's num_given_up, */
    int                is_forced;   /* and, by the user's word, in num_forced */
} uct_ofi_op_t;

/* An address that the provider knows. */
typedef struct {
    fi_addr_t addr;      /* its name for it */
    uint64_t  key;       /* ours */
    unsigned  num_users;
    uint8_t   length;    /* of the provider's own form: */
    /* aligned: where the provider is TCP a socket address */
    UCS_ALIGNED(8) uint8_t raw[UCT_OFI_ADDRESS_MAX];
} uct_ofi_addr_t;

/* A buffer of messages under way. */
typedef struct {
    uct_ofi_op_t     super;
    ucs_list_link_t  queue;  /* free, or waits to be sent */
    uct_ofi_peer_t  *peer;   /* NULL: a refusal to a stranger... */
    uct_ofi_addr_t  *where;  /* ...that is here */
    size_t           length;
    char            *buffer;
    void            *desc;   /* of its registration */
    uct_completion_t *comp;   /* not NULL: the buffer has `length` bytes of head, then padding, */
    struct iovec      payload; /* and this memory of the user's is sent between them */
    uint8_t          is_question; /* its end says, but over TCP, that the peer's endpoint has it */
} uct_ofi_send_t;

typedef struct {
    uct_ofi_op_t super;
    char        *buffer;
    int          is_released; /* by the provider's word */
    int          is_lost;     /* released and spoiled: counted in num_lost */
    int          is_single;   /* takes one message, see uct_ofi_receives_renew, */
    int          is_recalled; /* and none, by our word, if it has none yet */
    uint64_t     spoiled_ns;  /* since when a part of it is not accounted for; 0: all is */
    size_t       bytes;       /* of the messages in it so far, */
    size_t       end;         /* and where the farthest of them ends */
} uct_ofi_receive_t;

typedef struct {
    uct_ofi_op_t      super;
    ucs_list_link_t   queue;  /* free, or waits to be posted */
    uct_ofi_peer_t   *peer;   /* NULL: free */
    uct_completion_t *comp;   /* may be NULL */
    int               is_write;
    void             *buffer;
    size_t            length; /* bytes */
    void             *desc;   /* of the buffer's registration */
    uint64_t          remote_addr;
    uint64_t          key;
} uct_ofi_rma_t;

typedef struct {
    uct_iface_t         super;
    struct fi_info     *info;
    struct fi_info     *rails[UCT_RAILS_MAX]; /* other devices like it, for further interfaces */
    ucs_list_link_t     siblings;   /* ring of a lead and its further interfaces, no head */
    char               *choice;     /* which that is, and why not another */
    struct fid_fabric  *fabric;
    struct fid_domain  *domain;
    struct fid_av      *av;
    struct fid_cq      *cq;
    struct fid_ep      *ep;         /* NULL once that has ended: there is nobody to talk to */
    struct fid_mr      *mr;         /* of memory; NULL where the provider asks for none */
    char               *memory;     /* of receive buffers */
    char               *scratch;    /* for a message that came misaligned */
    size_t              memory_size;
    ucs_list_link_t     blocks;     /* of buffers to send from; these are... */
    unsigned            num_sends;  /* ...as many as may be in use, */
    unsigned            num_data;   /* as data may take, */
    unsigned            num_shared; /* and as peers have more than one of; */
    unsigned            num_made;   /* that there are, */
    unsigned            num_used;   /* that have ever been in use, */
    unsigned            num_busy;   /* and are */
    unsigned            num_under_way;
    unsigned            num_strangers;
    ucs_list_link_t     free_sends;
    uct_ofi_rma_t      *rmas;
    unsigned            num_rmas;  /* in all; 0: the provider has none */
    int                 has_told_refusal; /* of memory of devices */
    unsigned            num_free_rmas;
    ucs_list_link_t     free_rmas;
    int                 has_writes;
    int                 has_gather; /* messages can be sent from the user's memory */
    pthread_mutex_t     lock;       /* of the provider's objects, where threads share them */
    ucs_list_link_t     md_list;    /* in the domain's ifaces, or alone */
    ucs_list_link_t     mems;       /* uct_ofi_mem_t, of operations, */
    ucs_list_link_t     kept_mems;  /* and of the domain; */
    ucs_atomic_u64_t    num_kept;   /* their number; relaxed: it only says how often to poll */
    uct_ofi_receive_t  *receives;
    unsigned            num_receives; /* for the provider to have */
    unsigned            num_spares;   /* in addition: in place of the first that are lost */
    unsigned            num_lost;     /* receive buffers, until the time-out */
    unsigned            num_unposted;
    unsigned            num_refused; /* errors in a row for the first of them, while all are */
    int                 has_single; /* uct_ofi_receives_renew */
    uct_ofi_receive_t  *single;     /* the one that nothing is in, for all that is known; or NULL */
    unsigned            num_renewals; /* times that it is to be posted anew */
    size_t              receive_size;
    size_t              short_max;  /* bytes with our header that the provider takes by value */
    int                 is_multi;   /* a posted buffer takes many messages */
    size_t              message_max; /* bytes of one that we send, without our head */
    int                 is_tcp;     /* addresses are those of listening TCP sockets, */
    int                 is_bare;    /* and no other provider lies above that */
    int                 is_loopback; /* leads to this node only */
    int                 has_wait;   /* the completion queue has a descriptor */
    int                 is_closing;
    int                 is_inherited; /* this process is a forked child: not ours */
    ucs_fork_watch_t    fork;
    uint8_t             address[UCT_OFI_ADDRESS_MAX];
    size_t              address_length;
    uint64_t            secret;     /* that tokens are hidden by */
    uint32_t            num_serials; /* given to peers so far */
    ucs_hash_t          by_uid;     /* first 8 bytes of the identity -> peer */
    ucs_ptr_map_t       by_token;
    ucs_hash_t          addrs;      /* uct_ofi_addr_t by their keys */
    ucs_list_link_t     peers;
    ucs_list_link_t     lost;       /* peers that have failed and are not freed yet */
    ucs_list_link_t     todo;       /* peers that have something to say, or that may be freed */
    ucs_list_link_t     blocked;    /* peers that the provider takes nothing for at the moment */
    unsigned            turns;      /* calls of progress */
    unsigned            num_vain;   /* times that nothing was there, since something was */
    uint64_t            poll_tsc;   /* when the provider was asked last, if that was in vain, */
    uint64_t            poll_ticks; /* and until when it is not again */
    uint64_t            look_ns;    /* when peers were looked at last */
    int                 epoll_fd;    /* -1: nobody has asked for it */
    int                 has_own_set; /* epoll_fd is no other's */
    int                 timer_fd;
    int                 cq_fd;       /* the provider's; -1: it has none */
    ucs_status_t        events_status;
    int                 has_event;  /* something has happened since the last progress */
} uct_ofi_iface_t;

/* One direction, from us to the peer. */
typedef enum {
    UCT_OFI_TX_IDLE,
    UCT_OFI_TX_OPENING, /* introduced; waits for the welcome */
    UCT_OFI_TX_OPEN,
    UCT_OFI_TX_CLOSING  /* farewell said; waits until all has been taken */
} uct_ofi_tx_state_t;

/* What is to be said to a peer; bits. */
enum {
    UCT_OFI_SAY_HELLO   = 1 << UCT_OFI_HELLO,
    UCT_OFI_SAY_WELCOME = 1 << UCT_OFI_WELCOME,
    UCT_OFI_SAY_PING    = 1 << UCT_OFI_PING,
    UCT_OFI_SAY_BYE     = 1 << UCT_OFI_BYE,
    UCT_OFI_SAY_DROP    = 1 << UCT_OFI_DROP,
    UCT_OFI_SAY_ACK     = 1 << UCT_OFI_ACK
};

struct uct_ofi_peer {
    uct_ofi_iface_t   *iface;
    ucs_list_link_t    list;          /* in iface->peers, or in iface->lost once it has failed */
    ucs_list_link_t    todo;          /* in iface->todo, iface->blocked, or alone */
    ucs_list_link_t    eps;
    uct_ofi_addr_t    *where;
    uint64_t           own_token;     /* names the peer in what it sends us */
    uint64_t           token;         /* names us in what we send */
    uint32_t           own_serial;    /* of this object in what we send, */
    uint32_t           serial;        /* and of its counterpart there; 0: not known yet */
    uint32_t           question;      /* put to who has another serial number; 0: none is open */
    uint32_t           heard_question; /* the last of the peer's */
    unsigned           say;           /* UCT_OFI_SAY_... */
    unsigned           num_under_way; /* operations that the provider has */
    ucs_list_link_t    unsent;        /* buffers that the provider would not take yet, */
    ucs_list_link_t    waiting;       /* and reads and writes */
    uct_ofi_tx_state_t tx_state;
    unsigned           num_rmas;      /* reads and writes among those under way, */
    unsigned           num_waiting;   /* and in waiting */
    unsigned           num_given_up;  /* operations on the user's memory that nobody wants now, */
    unsigned           num_forced;    /* and the user has said so */
    unsigned           num_idle;      /* looks since one of them was given up, or ended */
    uint32_t           tx_base;       /* messages sent when our direction was opened last */
    uint32_t           rx_base;       /* messages taken when the other one was */
    uint32_t           tx_count;      /* messages sent... */
    uint32_t           tx_taken;      /* ...and taken by the peer... */
    uint32_t           tx_looked;     /* ...when it was looked at last */
    uint32_t           rx_count;      /* messages taken... */
    uint32_t           rx_told;       /* ...and told of */
    uint32_t           rx_looked;     /* ...and taken when it was looked at last */
    ucs_list_link_t    flushes;       /* uct_ofi_flush_t, in order */
    ucs_list_link_t    early;         /* uct_ofi_early_t, in order */
    uint64_t           asked_ns;      /* since when it owes an answer; 0: it does not */
    uint64_t           pause_ns;      /* until when nothing is said again; 0: now */
    int                probe_fd;      /* of a connection to its kernel under way, or -1 */
    ucs_status_t       status;        /* UCS_OK, or why it failed */
    unsigned           num_probes;    /* answered since it was heard last */
    uint8_t            num_stuck;     /* looks at which it was there, and no read had ended */
    uint8_t            num_untaken;   /* the same, and a message had not been taken */
    uint8_t            num_gaps;      /* looks at which messages waited for earlier ones */
    uint8_t            num_lost;      /* messages, since it was heard last */
    uint8_t            num_doubtful;  /* looks until a connection is taken for whole again */
    uint8_t            is_aside;      /* that connection leads where nobody listens */
    uint8_t            is_second;     /* it is tried because the other port did not answer */
    uint8_t            rx_open;       /* it has introduced itself */
    uint8_t            rx_was_open;   /* it has, since its serial number is known */
    uint8_t            rx_discard;
    uint8_t            is_hello_said; /* the peer may have opened this direction */
    uint8_t            is_bye_said;   /* and counted; it may have to be said again */
    uint8_t            is_unwanted;   /* what it has opened is to end */
    uint8_t            is_heard;      /* it has given a sign of life since it was looked at last, */
    uint8_t            has_spoken;    /* and that was a message: its process makes progress */
    uint8_t            is_reached;    /* a question has ended since it was asked last */
    uint8_t            was_away;      /* we were, since then */
    uint8_t            is_known;      /* it has ever said something */
    uint8_t            is_gone_due;   /* its end is to be reported by progress */
    uint8_t            is_port_asked; /* by the peer's last HELLO, or a PING since */
    uint8_t            has_asked;     /* the same of ours */
    uint8_t            has_cut;       /* a connection, for num_given_up */
    uint16_t           port;          /* that its connection comes from; 0: not known */
    uint8_t            uid[UCT_UID_LEN];
};

typedef struct {
    ucs_list_link_t   list;
    uint32_t          count; /* messages that must have been taken */
    uct_completion_t *comp;
} uct_ofi_flush_t;

/* A message that came before others that were sent earlier. */
typedef struct {
    ucs_list_link_t list;
    size_t          length;
    UCS_ALIGNED(8) char data[];
} uct_ofi_early_t;

typedef struct {
    uct_ep_t        super;
    uct_ofi_peer_t *peer;      /* NULL: not connected yet, or not any more */
    ucs_list_link_t peer_list;
    uint8_t         address_length;
    uint8_t         address[UCT_OFI_ADDRESS_MAX];
} uct_ofi_ep_t;

UCS_INLINE uct_ofi_iface_t *uct_ofi_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_ofi_iface_t, super);
}

UCS_INLINE uct_ofi_md_t *uct_ofi_md(uct_md_t *md)
{
    return ucs_container_of(md, uct_ofi_md_t, super);
}

/* Around each call of the provider's that is made again and again: where other threads register
 * memory, since providers that call themselves safe for threads are not for that (net, 1.17: reads
 * by peers fail). The domain's lock is taken before. */
UCS_INLINE void uct_ofi_enter(uct_ofi_iface_t *iface)
{
    if (ucs_unlikely(iface->super.params.is_shared)) {
        pthread_mutex_lock(&iface->lock);
    }
}

UCS_INLINE void uct_ofi_leave(uct_ofi_iface_t *iface)
{
    if (ucs_unlikely(iface->super.params.is_shared)) {
        pthread_mutex_unlock(&iface->lock);
    }
}

UCS_INLINE uct_ofi_ep_t *uct_ofi_ep(uct_ep_t *ep)
{
    return ucs_container_of(ep, uct_ofi_ep_t, super);
}

/* Bytes of zeros behind a message. */
UCS_INLINE size_t uct_ofi_pad(size_t length)
{
    return -length % 8;
}

/* ---- ofi_provider.c ---- */

/* Sets iface->info to what is used, and iface->rails; says at level info, and in iface->choice, why
 * the others are not. UCS_ERR_NO_DEVICE: nothing is left. */
ucs_status_t uct_ofi_provider_choose(uct_ofi_iface_t *iface);

/* Checks what a peer calls its address. UCS_ERR_INVALID_ADDR: it is none; UCS_ERR_UNREACHABLE: of
 * another network (reason is written). On success the provider's own address is at *raw_p. */
ucs_status_t uct_ofi_address_parse(const uct_ofi_iface_t *iface, const void *address,
                                   size_t length, int same_node, const uint8_t **raw_p,
                                   char reason[UCT_REASON_MAX]);

/* Writes iface->address. */
ucs_status_t uct_ofi_address_make(uct_ofi_iface_t *iface);

/* ---- ofi_addr.c ---- */

/* Makes an address known to the provider for one user more. NULL: the provider does not know it, or
 * no memory. */
uct_ofi_addr_t *uct_ofi_addr_get(uct_ofi_iface_t *iface, const void *raw, size_t length);

/* One user less; behind the last one the provider forgets it. */
void uct_ofi_addr_put(uct_ofi_iface_t *iface, uct_ofi_addr_t *where);

/* The end of all, behind the endpoint's: the provider has forgotten them. */
void uct_ofi_addrs_close(uct_ofi_iface_t *iface);

/* ---- ofi_send.c ---- */

/* Makes the first buffers, the others as they are needed. Returns libfabric's error, or 0. */
int uct_ofi_sends_open(uct_ofi_iface_t *iface);

/* The end of the buffers' registrations, and theirs. */
void uct_ofi_sends_deregister(uct_ofi_iface_t *iface);
void uct_ofi_sends_close(uct_ofi_iface_t *iface);

/* Ends what is sent from the user's memory; the provider must not use that any more. */
void uct_ofi_sends_abandon(uct_ofi_iface_t *iface, ucs_status_t status);

/* As uct_ofi_rma_give_up, of messages that are sent from the user's memory. */
void uct_ofi_sends_give_up(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer,
                           const uct_completion_t *comp);

/* A buffer to send from, or NULL: not now. is_data: for bytes of the user's. peer: NULL stands for
 * strangers. */
uct_ofi_send_t *uct_ofi_send_get(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer, int is_data);
void uct_ofi_send_put(uct_ofi_iface_t *iface, uct_ofi_send_t *send);

/* Gives a filled buffer to the provider; the buffer comes back by itself. UCS_ERR_NO_RESOURCE: not
 * now, the buffer stays the caller's; other errors: the peer has failed, the buffer is free. */
ucs_status_t uct_ofi_send_post(uct_ofi_iface_t *iface, uct_ofi_send_t *send);

/* The provider has taken an operation for the peer; it has given it back. */
void uct_ofi_op_started(uct_ofi_peer_t *peer);
void uct_ofi_op_ended(uct_ofi_peer_t *peer);

/* ---- ofi_cq.c ---- */

/* Gives the receive buffers to the provider that it does not have. */
void uct_ofi_receives_post(uct_ofi_iface_t *iface);

/* Takes buffers back of which a part was never told of, when whatever was under way into them has
 * ended: after the time-out of peers. Called now and then. */
void uct_ofi_receives_look(uct_ofi_iface_t *iface, uint64_t now_ns);

/* Posts a receive buffer anew, in case there are connections that the provider does not listen to.
 * Now and then, if it must be, and before a worker sleeps. */
int uct_ofi_receives_must_renew(const uct_ofi_iface_t *iface);
void uct_ofi_receives_renew(uct_ofi_iface_t *iface);

/* Takes what the provider has; returns the number of things done. */
unsigned uct_ofi_poll(uct_ofi_iface_t *iface);

/* ---- ofi_iface.c ---- */

/* As in uct_iface_ops_t. */
ucs_status_t uct_ofi_iface_open(uct_iface_t *iface);
void uct_ofi_iface_close(uct_iface_t *iface);

/* Closes the provider's endpoint, so that nothing touches the user's memory any more, then ends the
 * operations that it had. Again: nothing. */
void uct_ofi_iface_end(uct_ofi_iface_t *iface, ucs_status_t status);
unsigned uct_ofi_progress(uct_iface_t *iface);
int uct_ofi_event_fd(uct_iface_t *iface);
ucs_status_t uct_ofi_event_join(uct_iface_t *iface, int epoll_fd);
ucs_status_t uct_ofi_event_arm(uct_iface_t *iface);

/* ---- ofi_rma.c ---- */

/* Registers the interface's own buffers, where the provider asks for that, else *mr_p is NULL.
 * Returns libfabric's error, or 0. */
int uct_ofi_register_own(uct_ofi_iface_t *iface, void *memory, size_t size, struct fid_mr **mr_p);

/* The end of a registration; NULL is none. */
void uct_ofi_deregister(uct_ofi_iface_t *iface, struct fid_mr **mr_p);

/* After the buffers; the interface may have no reads. */
ucs_status_t uct_ofi_rma_open(uct_ofi_iface_t *iface);

/* The interface begins to end: no key is made for it any more. */
void uct_ofi_rma_leave(uct_ofi_iface_t *iface);

/* Memory is not registered with the interface any more. */
void uct_ofi_mems_close(uct_ofi_iface_t *iface);

/* Ends all operations, though the provider does not: where it never will. */
void uct_ofi_rma_abandon(uct_ofi_iface_t *iface, ucs_status_t status);

/* Posts those that wait; returns 0 where some still do. */
int uct_ofi_rma_post(uct_ofi_peer_t *peer, unsigned *count_p);

/* Ends those that wait, for a peer that has failed. */
void uct_ofi_rma_drop(uct_ofi_peer_t *peer);

/* Reads and writes that nobody wants any more: all of the peer's, which has failed (comp NULL), or
 * those of the completion, by the user's word (peer NULL). */
void uct_ofi_rma_give_up(uct_ofi_iface_t *iface, const uct_ofi_peer_t *peer,
                         const uct_completion_t *comp);

/* Ends those of them that the provider does not have. */
void uct_ofi_rma_drop_given_up(uct_ofi_peer_t *peer);

/* The provider has given one back; error: libfabric's, or 0. */
void uct_ofi_rma_op_ended(uct_ofi_iface_t *iface, uct_ofi_rma_t *op, int error);

/* As in uct_tl.h. */
ucs_status_t uct_ofi_md_open(uct_md_t *md);
void uct_ofi_md_close(uct_md_t *md);
ucs_status_t uct_ofi_md_reg(uct_md_t *md, void *address, size_t length,
                            const uct_mem_info_t *info, uct_mem_t **mem_p);
ucs_status_t uct_ofi_reg(uct_iface_t *iface, void *address, size_t length,
                         const uct_mem_info_t *info, int is_remote, uct_mem_t **mem_p);
void uct_ofi_mem_release(uct_mem_t *mem);
size_t uct_ofi_rkey_pack(uct_mem_t *mem, void *buffer);
ucs_status_t uct_ofi_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                 uct_rkey_t **rkey_p);
void uct_ofi_rkey_release(uct_rkey_t *rkey);
ucs_status_t uct_ofi_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                               uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp);
ucs_status_t uct_ofi_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                               uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp);

/* ---- ofi_peer.c: who we talk to ---- */

/* The peer of this identity, made if need be. address: parsed already. */
ucs_status_t uct_ofi_peer_get(uct_ofi_iface_t *iface, const uint8_t uid[UCT_UID_LEN],
                              const uint8_t *raw, size_t raw_length, uct_ofi_peer_t **peer_p);
uct_ofi_peer_t *uct_ofi_peer_find(uct_ofi_iface_t *iface, const uint8_t uid[UCT_UID_LEN]);

/* Has something said at the next turn; 0: only looks whether the peer can be freed. */
void uct_ofi_peer_say(uct_ofi_peer_t *peer, unsigned what);

/* Says what is to be said, frees peers that nobody needs; returns things done. From progress. */
unsigned uct_ofi_peers_work(uct_ofi_iface_t *iface);

/* Attaches and detaches an endpoint. Same outcomes as uct_ep_tl_ops_t.connect. */
ucs_status_t uct_ofi_peer_attach(uct_ofi_peer_t *peer, uct_ofi_ep_t *ep);
void uct_ofi_peer_detach(uct_ofi_ep_t *ep);

/* The end of a peer, in any call: endpoints and flushes end with status; the rest by progress. */
void uct_ofi_peer_fail(uct_ofi_peer_t *peer, ucs_status_t status);

/* It has given a sign of life. */
void uct_ofi_peer_heard(uct_ofi_peer_t *peer);

/* The provider has lost a message. */
void uct_ofi_peer_unsent(uct_ofi_peer_t *peer, const uct_ofi_head_t *head);

/* The status of a path that breaks. */
ucs_status_t uct_ofi_peer_lost(const uct_ofi_peer_t *peer);

/* Fills the head of a message that is counted. */
void uct_ofi_peer_head(uct_ofi_peer_t *peer, uct_ofi_head_t *head, unsigned type, unsigned am_id,
                       size_t pad);

/* The parts of a life that what a peer says begins and ends: our direction is opened and closed;
 * endpoints and flushes end; messages that wait for earlier ones are forgotten; the direction of
 * the peer has ended. */
void uct_ofi_tx_open(uct_ofi_peer_t *peer);
void uct_ofi_tx_close(uct_ofi_peer_t *peer);
void uct_ofi_fail_eps(uct_ofi_peer_t *peer, ucs_status_t status);
void uct_ofi_end_flushes(uct_ofi_peer_t *peer);
void uct_ofi_drop_early(uct_ofi_peer_t *peer);
void uct_ofi_gone(uct_ofi_peer_t *peer);

/* Tells one that wants somebody else that nobody of that name is here; or (is_here) one that asks
 * that it is not known any more. Lost without resources: it will ask again. */
void uct_ofi_reject(uct_ofi_iface_t *iface, const uct_ofi_intro_t *asked, const uint8_t *raw,
                    int is_here);

/* The end of the interface: says farewell to all, and waits until that and all before it has left,
 * but not for ever; frees all. */
void uct_ofi_peers_leave(uct_ofi_iface_t *iface);
void uct_ofi_peers_free(uct_ofi_iface_t *iface);

/* As in uct_iface_ops_t. */
int uct_ofi_drop_peer(uct_iface_t *iface, const uint8_t uid[UCT_UID_LEN], int discard);

/* ---- ofi_hear.c ---- */

/* One message from the provider; data is 8-byte aligned. */
void uct_ofi_receive(uct_ofi_iface_t *iface, const char *data, size_t length);

/* ---- ofi_alive.c ---- */

/* Asks those that have been silent, ends those that do not answer. Called now and then. */
void uct_ofi_alive_look(uct_ofi_iface_t *iface, uint64_t now_ns);

/* A connection with an unknown peer may have broken, and have lost a message. All that are
 * connected are asked at once; in doubt are those that have not taken, or not said so, all that was
 * sent to them: the lost one is none of the others'. */
void uct_ofi_alive_suspect(uct_ofi_iface_t *iface);

/* A connection with the peer may have broken, and have lost messages without a word: it is asked,
 * and what has not been taken, and our kernel does not have, is soon taken for lost. */
void uct_ofi_alive_doubt(uct_ofi_peer_t *peer);

/* The provider takes nothing for the peer: it may be about to connect again, to nobody. */
void uct_ofi_alive_blocked(uct_ofi_peer_t *peer);

/* The peer has to answer from now on; by something else than its answer to a PING, perhaps. */
void uct_ofi_alive_ask(uct_ofi_peer_t *peer, unsigned what);

/* Where the provider is TCP: has our kernel messages that a peer (NULL: any) has not taken and that
 * its kernel has not got yet? Looks through the descriptors of the process. */
int uct_ofi_is_delivering(const uct_ofi_iface_t *iface, const uct_ofi_peer_t *only);

/* Nobody wants the operation any more (is_forced: by the user's word). */
void uct_ofi_op_give_up(uct_ofi_peer_t *peer, uct_ofi_op_t *op, int is_forced);

/* It has ended. */
void uct_ofi_op_given_back(uct_ofi_peer_t *peer, uct_ofi_op_t *op);

UCS_INLINE void uct_ofi_op_settle(uct_ofi_peer_t *peer, uct_ofi_op_t *op)
{
    if (ucs_unlikely(op->is_given_up)) {
        uct_ofi_op_given_back(peer, op);
    }
}

/* Where the provider is TCP: the port from which a connection of this process leads to where the
 * peer listens; 0: none does, or several do. Looks through the descriptors of the process. */
uint16_t uct_ofi_own_port(const uct_ofi_peer_t *peer);

/* HELLO, PING: does somebody want to know from where the peer's connection comes? */
int uct_ofi_asks_port(const uct_ofi_peer_t *peer);

/* Gives up the question to the peer's kernel, if there is one. */
void uct_ofi_probe_end(uct_ofi_peer_t *peer);

/* Is the address (a sockaddr, of the length that its family has) of the same host as a? */
int uct_ofi_is_same_host(const struct sockaddr_storage *a, const void *address);

UCS_INLINE const uct_ofi_config_t *uct_ofi_config(const uct_ofi_iface_t *iface)
{
    return (const uct_ofi_config_t *)iface->super.md->config;
}

/* Time between looks, in ns. */
UCS_INLINE uint64_t uct_ofi_alive_interval(const uct_ofi_iface_t *iface)
{
    return uct_ofi_config(iface)->timeout_ns / 10;
}

#endif
