/* Halyard: mm: the objects of the shared-memory transport, and what its files share.
 *
 *   mm_segment  shared memory      mm_ring     the ring of lines
 *   mm_rings    rings of an interface's own segments, and their peers
 *   mm_socket   the connections between interfaces: mm_connect their sending end, mm_accept the
 *               receiving one, mm_poll all of them
 *   mm_fork     what forked children lose
 *   mm_iface    progress, waiting, limits      mm_ep  sending
 *   mm_md       configuration
 *   mm_mem      memory that peers map
 *
 * An interface listens on a Unix socket of the abstract namespace. Each endpoint connects to its
 * peer's socket and is given one ring in the peer's memory: one connection, one direction, one
 * ring.
 * The connection carries nothing but the descriptors at its start, signals to a sleeping peer, and
 * the end of file that tells that the other side is gone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_MM_IFACE_H
#define UCT_MM_IFACE_H

#include "mm_ring.h"
#include "mm_segment.h"

#include <ucs/arch/atomic.h>
#include <ucs/ds/list.h>
#include <ucs/sys/fork.h>
#include <ucs/sys/sys.h>
#include <uct/api/uct_tl.h>
#include <uct/base/descriptor.h>

#include <stdint.h>

BEGIN_C_DECLS

#define UCT_MM_SYNC_WORDS     64 /* of an interface */
#define UCT_MM_ATTENTIVE_NS   20000ul /* since a peer's last look at the clock */

/* Rings of an interface that have buffers, the first peers': as buffers_used has bits. */
#define UCT_MM_BUFFERED_RINGS 64

/* ---- shared memory ---- */

#define UCT_MM_MAIN_MAGIC 0x336d6d4879616c48ull

/* Whether the owner of an interface has to be signalled. */
typedef enum {
    UCT_MM_WAKE_NEVER, /* it has never slept: senders need not order anything */
    UCT_MM_WAKE_AWAKE, /* it may sleep: senders look at this word after each message */
    UCT_MM_WAKE_ARMED, /* it sleeps or is about to: a sender signals it and takes this back */
    UCT_MM_WAKE_SLEEP = 4 /* ARMED has so much more each time: who comes late takes no other back */
} uct_mm_wake_t;

typedef struct {
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u64_t value;
} uct_mm_sync_word_t;

/* Start of the first segment of an interface; its first rings follow. Rings of further segments
 * begin at their start. Each word that is written alone has a line of its own. */
typedef struct {
    UCS_ALIGNED(UCT_MM_LINE_SIZE) uint64_t magic;
    uint8_t            uid[UCT_UID_LEN];
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u32_t wake; /* uct_mm_wake_t */
    UCS_ALIGNED(UCT_MM_LINE_SIZE) ucs_atomic_u64_t looked_ns; /* when it looked at its clock last */
    ucs_atomic_u32_t   rivals; /* senders to it that may run where it runs */
    uct_mm_sync_word_t sync[UCT_MM_SYNC_WORDS];
} uct_mm_main_t;

static_assert(sizeof(uct_mm_main_t) == (3 + UCT_MM_SYNC_WORDS) * UCT_MM_LINE_SIZE,
              "layout shared by processes");

/* ---- memory domain ---- */

typedef struct {
    unsigned                 fifo_size;      /* lines */
    unsigned                 fifo_elem_size; /* bytes */
    size_t                   seg_size;       /* bytes */
    double                   release_factor;
    uint64_t                 latency_ns;
    double                   bandwidth;      /* bytes per second */
    unsigned                 max_poll;
    int                      hugetlb; /* ucs_ternary_auto_value_t */
    size_t                   buffer_thresh; /* bytes */
    ucs_config_names_array_t backing;
    char                    *socket_dir;     /* "": none */
} uct_mm_config_t;

typedef struct {
    uct_md_t              super;
    uct_mm_ring_shape_t   shape;
    uct_mm_backing_list_t backings;
    size_t                message_max; /* bytes of a message, header included */
    uint32_t              node;        /* of the running kernel's identity, for remote keys */
} uct_mm_md_t;

/* ---- interface ---- */

typedef enum {
    UCT_MM_SOURCE_LISTEN,
    UCT_MM_SOURCE_PEER, /* a connection that was accepted: its messages come in a ring of ours */
    UCT_MM_SOURCE_EP    /* a connection of ours */
} uct_mm_source_kind_t;

/* What the event set knows of a socket. */
typedef struct {
    uct_mm_source_kind_t kind;
    int                  fd; /* -1: none */
} uct_mm_source_t;

/* A block of rings: one segment. */
typedef struct {
    ucs_list_link_t   list;
    uct_mm_segment_t *segment;
    size_t            first;  /* offset of the first ring */
    unsigned          count;
    unsigned          used;
    uint8_t           taken[]; /* one a ring */
} uct_mm_block_t;

/* Who sends to us, or asks for a descriptor. */
typedef struct {
    uct_mm_reader_t reader; /* first: progress looks at nothing else */
    ucs_list_link_t list;   /* in iface->greeting, ->due, ->peers or ->gone */
    uct_mm_source_t source;
    unsigned        slot;   /* in iface->rings.items */
    unsigned        index;  /* of the ring in its block */
    uct_mm_block_t *block;  /* NULL: it has said nothing yet, or asks */
    int             buffers; /* which of iface->buffers its ring has, or -1 */
    uint64_t        received_before; /* messages at the last look */
    int             is_rival;        /* it may run where we run */
    uint8_t         uid[UCT_UID_LEN];
    int             is_asking;
    uct_descriptor_question_t question;
} uct_mm_peer_t;

typedef struct {
    uct_iface_t       super;

    /* what each progress reads */
    uct_mm_side_t     side;
    uint32_t          look_turn; /* of progress, which looks at the clock */
    unsigned          interval;  /* turns between two looks */
    unsigned          num_hot;   /* the first so many rings are polled each time, */
    unsigned          next_hot;  /* where the next progress begins */
    uint32_t          hot_turns; /* times that they have all been looked at */
    unsigned          cold_next; /* the others a few at a time */
    unsigned          max_poll;
    struct {
        uct_mm_peer_t **items;
        size_t          length, capacity;
    } rings;

    ucs_fork_watch_t  fork;
    uint64_t          last_look_ns;
    uint64_t          next_poll_ns;  /* of the sockets */
    uint64_t          eager_until_ns;
    uint64_t          wake_since_ns; /* when senders were told that we may sleep; 0: never */
    uint32_t          num_sleeps;
    unsigned          looks;
    unsigned          num_connecting;
    int               epoll_fd;
    int               owes_signals; /* the kernel had no memory for one */
    int               spare_fd; /* given up when descriptors run out, to refuse a peer in words */
    uint16_t          net;      /* tag of the network namespace, 0 if unknown */
    uct_descriptor_door_t door; /* the listening socket: its name and its place */
    uct_mm_source_t   listen;
    uct_mm_main_t    *main;
    uint64_t          sync_free; /* bit set: word is free */
    uct_mm_staging_t  staging;
    uint8_t          *pack_buffer;
    ucs_list_link_t   blocks;
    uct_mm_segment_t *buffers;      /* of UCT_MM_BUFFERED_RINGS rings; NULL: none */
    uint64_t          buffers_used; /* bits */
    int               buffers_tried; /* to be made */
    unsigned          num_usual;    /* the first of them, of UCT_MM_AREA_USUAL */
    ucs_list_link_t   greeting; /* accepted, nothing said yet; who has asked and was answered */
    ucs_list_link_t   due;      /* their WELCOME or DESCRIPTOR could not be sent yet */
    ucs_list_link_t   peers;
    ucs_list_link_t   gone;     /* to be drained, reported and freed */
    ucs_list_link_t   retries;  /* endpoints whose peer had no room for another connection */
    cpu_set_t         near_cpus; /* behind one cache with the first that we run on */
} uct_mm_iface_t;

/* ---- endpoint ---- */

typedef struct {
    uct_ep_t          super;
    UCS_ALIGNED(UCT_MM_LINE_SIZE) uct_mm_writer_t writer;
    ucs_atomic_u32_t *wake;       /* of the peer */
    uint32_t          wanted;     /* lines that the last refused message would have taken */
    uct_mm_source_t   source;
    uint8_t           is_rival;   /* the peer may run where we run */
    uint8_t           is_near;    /* behind the same cache, for certain */
    uint8_t           is_connecting; /* it is among iface->num_connecting */
    uint8_t           is_writing;    /* and among iface->side.num_writers */
    uct_mm_main_t    *main;       /* of the peer */
    uct_mm_segment_t *segments[3]; /* the peer's first one, that of the ring if it is another, and
                                    * that of the buffers, if there are any */
    ucs_list_link_t   retry;      /* in iface->retries */
    uint64_t          name;       /* of the peer's listening socket */
    uint16_t          place;      /* and where that is: a tag */
} uct_mm_ep_t;

/* An address, little endian. */
typedef struct {
    uint64_t name;  /* of the listening socket */
    uint16_t place; /* and where that is: a tag */
} UCS_S_PACKED uct_mm_address_t;

static_assert(sizeof(uct_mm_address_t) == 10, "layout of an address");

UCS_INLINE uct_mm_md_t *uct_mm_md(uct_md_t *md)
{
    return ucs_container_of(md, uct_mm_md_t, super);
}

/* The configuration's. */
UCS_INLINE size_t uct_mm_buffer_thresh(const uct_md_t *md)
{
    return ((const uct_mm_config_t *)md->config)->buffer_thresh;
}

UCS_INLINE uct_mm_iface_t *uct_mm_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_mm_iface_t, super);
}

UCS_INLINE uct_mm_ep_t *uct_mm_ep(uct_ep_t *ep)
{
    return ucs_container_of(ep, uct_mm_ep_t, super);
}

/* ---- mm_rings.c ---- */

/* First segment and the lists of rings. Errors are logged; cleanup accepts what open left. */
ucs_status_t uct_mm_rings_init(uct_mm_iface_t *iface);
void uct_mm_rings_cleanup(uct_mm_iface_t *iface);

/* Gives a peer a ring, making a new segment when all are taken. Errors are logged. */
ucs_status_t uct_mm_rings_add(uct_mm_iface_t *iface, uct_mm_peer_t *peer);
void uct_mm_rings_remove(uct_mm_iface_t *iface, uct_mm_peer_t *peer);

/* Segment of the first block: where uct_mm_main_t lies. */
uct_mm_block_t *uct_mm_rings_main(const uct_mm_iface_t *iface);

/* Moves rings that were silent for long out of the set that each progress polls. */
void uct_mm_rings_cool(uct_mm_iface_t *iface);
/* Polls some of the others; returns messages delivered. */
unsigned uct_mm_rings_poll_cold(uct_mm_iface_t *iface);

/* Senders that may run where we run. */
unsigned uct_mm_rings_num_rivals(const uct_mm_iface_t *iface);
/* Bytes of the shared segments. */
size_t uct_mm_rings_shared(const uct_mm_iface_t *iface);
/* Which area the ring has whose buffers are the index-th. */
uct_mm_area_t uct_mm_buffers_area(const uct_mm_iface_t *iface, unsigned index);

/* ---- mm_poll.c ---- */

/* Listening socket and event set. Errors are logged; close accepts what open left. */
ucs_status_t uct_mm_connect_open(uct_mm_iface_t *iface);
void uct_mm_connect_close(uct_mm_iface_t *iface);

/* Looks at all sockets: accepts, answers, finds out who is gone. Returns things done, signals not
 * counted. Calls nobody: failed endpoints are queued, the gone are in iface->gone. */
unsigned uct_mm_connect_poll(uct_mm_iface_t *iface);

/* Has the sockets looked at by the next progress. */
void uct_mm_connect_hurry(uct_mm_iface_t *iface);

/* ---- mm_accept.c: the receiving end ---- */

/* Events of the listening socket and of an accepted one; return things done. */
unsigned uct_mm_listen_event(uct_mm_iface_t *iface);
unsigned uct_mm_peer_event(uct_mm_iface_t *iface, uct_mm_peer_t *peer);

/* Says some of what could not be sent before; returns things done. */
unsigned uct_mm_due_run(uct_mm_iface_t *iface);

/* Breaks with a peer. It is gone when it has closed its end of the connection, too: until then it
 * may write into its ring, which can be given to nobody else. */
void uct_mm_peer_break(uct_mm_peer_t *peer, int discard);
int uct_mm_iface_drop_peer(uct_iface_t *iface, const uint8_t uid[UCT_UID_LEN], int discard);
void uct_mm_peer_free(uct_mm_iface_t *iface, uct_mm_peer_t *peer);

/* Delivers what the gone have left behind, then reports them. Calls peer_gone. */
unsigned uct_mm_gone_report(uct_mm_iface_t *iface);

/* ---- mm_connect.c: the sending end ---- */

/* See uct_ep_tl_ops_t. */
ucs_status_t uct_mm_connect_start(uct_ep_t *ep);
void uct_mm_disconnect(uct_ep_t *ep);
void uct_mm_connect_end(uct_ep_t *ep);
ucs_status_t uct_mm_connect_check(uct_ep_t *ep);

unsigned uct_mm_ep_event(uct_mm_iface_t *iface, uct_mm_ep_t *ep);

/* Tries the connections again for which the peer had no room. */
void uct_mm_retries_run(uct_mm_iface_t *iface);

/* Wakes whoever sleeps at the other end; 0: the kernel has no memory for that. */
int uct_mm_connect_signal(int fd);

/* ---- mm_iface.c ---- */

/* Takes messages from a ring whose next line is there. */
unsigned uct_mm_iface_receive(uct_mm_iface_t *iface, uct_mm_peer_t *peer);
/* Gives the lines that were read back to their sender. */
void uct_mm_iface_release(uct_mm_iface_t *iface, uct_mm_peer_t *peer);
/* Sends the signals that are owed, as far as the kernel has memory for them. */
void uct_mm_iface_pay_signals(uct_mm_iface_t *iface);

/* ---- mm_md.c ---- */

extern const ucs_config_row_t uct_mm_config_rows[];

ucs_status_t uct_mm_md_open(uct_md_t *md);

/* ---- mm_mem.c: see uct_md_ops_t ---- */

ucs_status_t uct_mm_mem_alloc(uct_md_t *md, void *address, size_t length, unsigned flags,
                              uct_mem_t **mem_p);
void uct_mm_mem_release(uct_mem_t *mem);
size_t uct_mm_rkey_pack(uct_mem_t *mem, void *buffer);
ucs_status_t uct_mm_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                uct_rkey_t **rkey_p);
ucs_status_t uct_mm_rkey_ptr(uct_rkey_t *rkey, uint64_t remote_addr, size_t length, void **ptr_p);
void uct_mm_rkey_release(uct_rkey_t *rkey);

/* ---- mm_fork.c ---- */

/* From now on, as long as iface->fork is watched, a forked child loses what it inherits of the
 * interface. After open, and to be removed before close: all lists must be there. */
void uct_mm_fork_add(uct_mm_iface_t *iface);

/* ---- mm_ep.c: see uct_ep_tl_ops_t ---- */

ucs_status_t uct_mm_ep_init(uct_ep_t *ep, const void *address, size_t length);
ucs_status_t uct_mm_ep_am_short(uct_ep_t *ep, unsigned id, uint64_t header, const void *payload,
                                size_t length);
ucs_status_t uct_mm_ep_am_short_iov(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n);
ucs_status_t uct_mm_ep_am_bcopy(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg,
                                size_t *length_p);
ucs_status_t uct_mm_ep_flush(uct_ep_t *ep, uct_completion_t *comp);
ucs_status_t uct_mm_ep_sync_map(uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p);
int uct_mm_ep_is_attentive(uct_ep_t *ep);
int uct_mm_ep_is_near(uct_ep_t *ep);
size_t uct_mm_ep_long_max(uct_ep_t *ep);
int uct_mm_ep_has_room(uct_ep_t *ep, size_t length, unsigned count);

/* Signals the peer if it sleeps. */
void uct_mm_ep_rouse(uct_mm_ep_t *ep);

END_C_DECLS

#endif
