/* Halyard: every byte that one worker sends to another.
 *
 * All fields are of fixed width and little-endian, at offsets that are asserted below; what is not
 * used is zero. A message is an active message whose id is a ucp_wire_id_t. Whoever reads one
 * copies each field once, since a peer on the same node can change shared memory under the reader,
 * and checks it before use. ucp_wire_table has one row a message: it drives dispatch and fuzzing.
 *
 * Rendezvous. The sender announces (RTS). The receiver moves the data by one of:
 *   get   it reads the sender's buffer, then ATS; over a network by the key in the announcement
 *   put   RTR with its buffer's address; the sender writes, then FIN
 *   both  RTR, then both sides claim parts through a word in common memory, the receiver from the
 *         front, the sender from the back; a FIN follows each part that the sender wrote, ATS says
 *         that the receiver has read
 *         With CLAIM the sender sends what it claims as DATA, and the receiver begins to claim only
 *         when nothing comes from the sender for a while; ATS says that it has all
 *   data  RTR; the sender sends DATA messages
 * Get and put of device memory go by keys, which each side tells the other before it names one.
 * Where the announcement names a word in common memory, an RTR for a put may leave it open who
 * copies: who claims the word does, the sender when it reads the RTR, or the receiver if that has
 * not happened after a while, which then gets and says ATS.
 * Puts, gets and atomics that find no better way name the memory by the id in its remote key. A put
 * is sent in pieces, of which the last one names a request and is answered by RMA_END.
 *
 * An RTR asks for one range of the message. With UCP_WIRE_RTR_LAST no ATS will follow: the send
 * ends when the range is delivered. A send that ends without its message having been delivered is
 * told by CANCEL, at once, and again in answer to an RTR that comes later. Where its announcement
 * had a key by which the receiver may be reading, it asks for an answer: ATS, when no read is under
 * way any more. Until then, or for a moment at most, its buffer is not the user's again.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIRE_WIRE_H
#define UCP_WIRE_WIRE_H

#include <ucs/type/status.h>
#include <uct/api/uct_tl.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

#define UCP_WIRE_VERSION 1

#define UCP_WIRE_KEY_LEN 12 /* bytes of the key in an RTS: UCT_IFACE_KEY_LEN */
#define UCP_WIRE_RAILS   3  /* further devices of a network: UCT_RAILS_MAX */

/* Bytes of payload of EAGER and EAGER_SYNC at most: what a receiver keeps of a message that nobody
 * asked for yet. Transports may carry more. */
#define UCP_WIRE_EAGER_MAX 131072

typedef enum {
    UCP_WIRE_HELLO = 1,  /* the sender's worker address, before its first message */
    UCP_WIRE_EAGER,      /* tagged message, whole */
    UCP_WIRE_EAGER_SYNC, /* the same; the sender waits for ATS, sent when it is matched */
    UCP_WIRE_RTS,        /* tagged message, announced */
    UCP_WIRE_RTR,        /* ready to receive: deliver this range */
    UCP_WIRE_DATA,       /* a piece of an announced message */
    UCP_WIRE_FIN,        /* the sender has written so many bytes */
    UCP_WIRE_ATS,        /* the sender's buffer is free, or its sync message was matched */
    UCP_WIRE_CANCEL,     /* an announced message will not come */
    UCP_WIRE_PUT,        /* a piece of a put */
    UCP_WIRE_GET,        /* asks for bytes of memory */
    UCP_WIRE_GET_DATA,   /* a piece of what a GET asked for */
    UCP_WIRE_ATOMIC,     /* a change of one word */
    UCP_WIRE_RMA_END,    /* a put or atomic was done, or something refused */
    UCP_WIRE_AM,         /* active message, whole */
    UCP_WIRE_AM_REPLY,   /* the same; the handler gets an endpoint to answer on */
    UCP_WIRE_AM_RTS,     /* active message, announced: the user's header follows */
    UCP_WIRE_STREAM,     /* bytes of a stream */
    UCP_WIRE_STREAM_RTS, /* bytes of a stream, announced */
    UCP_WIRE_HOLD,       /* tagged messages are to be announced, or may come whole again */
    UCP_WIRE_KEY,        /* how the sender's device memory is reached, under a number */
    UCP_WIRE_FRAG,       /* a part of an announced message can be read in device memory */
    UCP_WIRE_FRAG_END,   /* it was read */
    UCP_WIRE_LAST
} ucp_wire_id_t;

typedef struct {
    uint32_t version;  /* UCP_WIRE_VERSION */
    uint32_t features; /* 0 */
    /* the packed worker address follows */
} ucp_wire_hello_t;

typedef struct {
    uint64_t tag;
    /* payload */
} ucp_wire_eager_t;

typedef struct {
    uint64_t tag;
    uint64_t worker_id;  /* the sending worker, known from HELLO */
    uint64_t request_id; /* for ATS */
    /* payload */
} ucp_wire_eager_sync_t;

enum {
    UCP_WIRE_RTS_CONTIG = 1, /* address is that of the whole message in the sender's memory */
    UCP_WIRE_RTS_SYNC   = 2, /* sync_index names a word of the sender's interface */
    UCP_WIRE_RTS_REPLY  = 4, /* active message: as AM_REPLY */
    UCP_WIRE_RTS_WHOLE  = 8, /* active message: the handler gets all of it at once */
    UCP_WIRE_RTS_FORCED = 16, /* active message: the user asked for the announcement */
    UCP_WIRE_RTS_DEVICE = 32, /* address is in device memory, told under the slot in the lower half
                                 of sync_index; what SYNC tells is in the upper one */
    UCP_WIRE_RTS_WRITES = 64, /* without CONTIG: the sender can write all the same (PUT); without
                                 DEVICE and KEY address tells the device: uct_mem_info_t.device_uid
                               */
    UCP_WIRE_RTS_PINNED = 128, /* CONTIG: devices of the sender's process reach it */
    UCP_WIRE_RTS_KEY    = 256, /* address and sync_index are a key for reading the message */
    UCP_WIRE_RTS_RAILS  = 512, /* the keys of further devices follow; else the message has no more
                                  than UCP_WIRE_RTS_LEN bytes */
    UCP_WIRE_RTS_EXCHANGE = 1024, /* the sender waits for messages, too, or moves some */
    UCP_WIRE_RTS_ENDS     = 2048  /* the upper half of flags is that of what the word 0 of the
                                     sender's interface counts: announced sends that ended early.
                                     Who has read a message looks at it again: as long as it is the
                                     same, what was read was the message */
};

#define UCP_WIRE_RTS_ENDS_SHIFT 16
/* In that word: the worker is being destroyed, and nobody may write to its memory. */
#define UCP_WIRE_ENDS_OVER      (1ull << 63)

typedef struct {
    uint64_t tag;        /* AM_RTS: a ucp_wire_am_t; STREAM_RTS: as ep of ucp_wire_stream_t */
    uint64_t worker_id;
    uint64_t request_id; /* for RTR and ATS */
    uint64_t length;     /* bytes of the message */
    uint64_t address;
    uint32_t sync_index;
    uint32_t flags;
    uint32_t rails;      /* RAILS: which of the keys there are: bits */
    uint8_t  keys[UCP_WIRE_RAILS][UCP_WIRE_KEY_LEN];
} ucp_wire_rts_t;

#define UCP_WIRE_RTS_LEN offsetof(ucp_wire_rts_t, rails)

enum {
    UCP_WIRE_RTR_PUT  = 1, /* write to address, then FIN */
    UCP_WIRE_RTR_BOTH = 2, /* claim parts from the back, write them, then FIN */
    UCP_WIRE_RTR_DATA = 3, /* send DATA messages */
    UCP_WIRE_RTR_MODE = 3, /* mask of the above */
    UCP_WIRE_RTR_LAST = 4, /* no ATS will follow */
    UCP_WIRE_RTR_DEVICE = 8, /* PUT: address is in device memory, told under `slot` */
    UCP_WIRE_RTR_FRAGS = 16, /* DATA: better as FRAGs */
    UCP_WIRE_RTR_CLAIM = 32, /* DEVICE: if the receiver has not claimed the message by the word of
                                its announcement, else ATS follows in spite of LAST; BOTH: what is
                                claimed goes as DATA */
    UCP_WIRE_RTR_WHOLE = 64, /* CLAIM, BOTH: the next ones of up to this length had better come
                                whole */
    UCP_WIRE_RTR_FAULT = 128 /* DATA: a copy has failed; the memory may not be there */
};

/* The halves of sync_index with UCP_WIRE_RTS_DEVICE. */
#define UCP_WIRE_RTS_SLOT_MASK  0xffffu
#define UCP_WIRE_RTS_WORD_SHIFT 16

typedef struct {
    uint64_t send_id;
    uint64_t recv_id;
    uint64_t address; /* of the receive buffer's byte 0 */
    uint64_t offset;  /* the range asked for */
    uint64_t length;
    uint32_t flags;
    uint32_t slot;
} ucp_wire_rtr_t;

typedef struct {
    uint64_t recv_id;
    uint64_t offset;
    /* payload */
} ucp_wire_data_t;

typedef struct {
    uint64_t recv_id;
    uint64_t length; /* bytes that were written */
} ucp_wire_fin_t;

typedef struct {
    uint64_t send_id;
    int32_t  status;
    uint32_t zero;
} ucp_wire_ats_t;

enum {
    UCP_WIRE_CANCEL_ASKS = 1 /* to be answered by ATS, once nobody reads by the announced key */
};

typedef struct {
    uint64_t send_id;
    int32_t  status; /* why */
    uint32_t flags;
} ucp_wire_cancel_t;

typedef struct {
    uint64_t mem_id;
    uint64_t address;
    uint64_t worker_id;
    uint64_t request_id; /* of the last piece; 0: more follow */
    /* payload */
} ucp_wire_put_t;

typedef struct {
    uint64_t mem_id;
    uint64_t address;
    uint64_t length;
    uint64_t worker_id;
    uint64_t request_id;
} ucp_wire_get_t;

typedef struct {
    uint64_t request_id;
    uint64_t address; /* of the payload's first byte */
    /* payload */
} ucp_wire_get_data_t;

typedef struct {
    uint64_t mem_id;
    uint64_t address;
    uint64_t worker_id;
    uint64_t request_id;
    uint64_t value;
    uint64_t compare; /* CSWAP */
    uint32_t op;      /* uct_atomic_op_t */
    uint32_t size;    /* 4 or 8 bytes */
} ucp_wire_atomic_t;

typedef struct {
    uint64_t request_id;
    uint64_t value;   /* atomic: before the change */
    int32_t  status;
    uint32_t zero;
} ucp_wire_rma_end_t;

/* What workers that connect by socket addresses say over TCP, before and beside all messages. */
#define UCP_WIRE_CONN_MAGIC 0x6e436148u

/* Endpoints made by a socket address do not count among the n-th: the client draws a number with
 * this bit for both, the server's with its lowest bit set. */
#define UCP_WIRE_CONN_ORDINAL 0x80000000u

/* Nor do a worker's to itself that it wants to pair with each other: they have the numbers from
 * this one on, in the order of their making, and those that differ by the lowest bit pair. */
#define UCP_WIRE_APART_ORDINAL 0xc0000000u

enum {
    UCP_WIRE_CONN_ASK    = 1, /* client: its worker's address follows */
    UCP_WIRE_CONN_ACCEPT = 2, /* server: yes; its worker's address follows; a door: unasked */
    UCP_WIRE_CONN_REJECT = 3, /* server: no, and why */
    UCP_WIRE_CONN_WIDEN  = 4  /* server: another ASK, with an address that leads over networks */
};

typedef struct {
    uint32_t magic;
    uint16_t version;   /* UCP_WIRE_VERSION */
    uint16_t type;
    uint32_t length;    /* bytes of the packed worker address */
    int32_t  status;    /* REJECT; else 0 */
    uint64_t client_id; /* ASK; 0: none */
    uint32_t ordinal;   /* ASK: of the client's endpoint, UCP_WIRE_CONN_ORDINAL and even */
    uint32_t zero;
} ucp_wire_conn_t;

_Static_assert(sizeof(ucp_wire_conn_t) == 32, "wire layout");
_Static_assert(offsetof(ucp_wire_conn_t, length) == 8, "wire layout");
_Static_assert(offsetof(ucp_wire_conn_t, client_id) == 16, "wire layout");
/* Endpoints are named by their ordinal: the n-th that one worker makes to another pairs with the
 * n-th that the other makes to it. */
typedef struct {
    uint16_t id;
    uint16_t header_length;
    uint32_t ep;            /* the one that pairs with the sender's, where a reply is wanted */
    /* AM: the user's header, zeros up to a multiple of 8 bytes, payload */
} ucp_wire_am_t;

typedef struct {
    ucp_wire_am_t am;
    uint64_t      worker_id;
    /* as in AM */
} ucp_wire_am_reply_t;

typedef struct {
    uint64_t worker_id;
    uint32_t ep;        /* the sender's endpoint */
    uint32_t read;      /* bytes that the sender has read since it said so last, of what came whole,
                         * and for each message what keeping it costs (a ucp_kept_t) */
    /* payload, if any */
} ucp_wire_stream_t;

typedef struct {
    uint32_t hold; /* 1: announce; 0: go on */
    uint32_t zero;
} ucp_wire_hold_t;

typedef struct {
    uint64_t worker_id;
    uint16_t slot;      /* another key is forgotten that it named */
    uint16_t wire_id;   /* of the transport */
    uint32_t zero;
    /* the transport's key follows; nothing: the memory is gone */
} ucp_wire_key_t;

typedef struct {
    uint64_t recv_id;
    uint64_t offset;  /* of the message */
    uint64_t length;
    uint64_t address; /* in device memory, told under `slot` */
    uint32_t slot;
    uint32_t zero;
} ucp_wire_frag_t;

typedef struct {
    uint64_t send_id;
    int32_t  status; /* an error: it could not be read, and none will be */
    uint32_t zero;
} ucp_wire_frag_end_t;

_Static_assert(sizeof(ucp_wire_frag_t) == 40, "wire layout");
_Static_assert(sizeof(ucp_wire_frag_end_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_key_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_hold_t) == 8, "wire layout");
_Static_assert(sizeof(ucp_wire_am_t) == 8, "wire layout");
_Static_assert(offsetof(ucp_wire_am_t, ep) == 4, "wire layout");
_Static_assert(sizeof(ucp_wire_am_reply_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_stream_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_hello_t) == 8, "wire layout");
_Static_assert(sizeof(ucp_wire_eager_t) == 8, "wire layout");
_Static_assert(sizeof(ucp_wire_eager_sync_t) == 24, "wire layout");
_Static_assert(offsetof(ucp_wire_eager_sync_t, request_id) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_rts_t) == 88, "wire layout");
_Static_assert(UCP_WIRE_RTS_LEN == 48, "wire layout");
_Static_assert(offsetof(ucp_wire_rts_t, keys) == 52, "wire layout");
_Static_assert(offsetof(ucp_wire_rts_t, length) == 24, "wire layout");
_Static_assert(offsetof(ucp_wire_rts_t, sync_index) == 40, "wire layout");
_Static_assert(offsetof(ucp_wire_rts_t, flags) - offsetof(ucp_wire_rts_t, address) ==
               UCP_WIRE_KEY_LEN, "wire layout");
_Static_assert(sizeof(ucp_wire_rtr_t) == 48, "wire layout");
_Static_assert(offsetof(ucp_wire_rtr_t, flags) == 40, "wire layout");
_Static_assert(sizeof(ucp_wire_data_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_fin_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_ats_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_cancel_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_put_t) == 32, "wire layout");
_Static_assert(sizeof(ucp_wire_get_t) == 40, "wire layout");
_Static_assert(sizeof(ucp_wire_get_data_t) == 16, "wire layout");
_Static_assert(sizeof(ucp_wire_atomic_t) == 56, "wire layout");
_Static_assert(offsetof(ucp_wire_atomic_t, op) == 48, "wire layout");
_Static_assert(sizeof(ucp_wire_rma_end_t) == 24, "wire layout");
_Static_assert(offsetof(ucp_wire_rma_end_t, status) == 16, "wire layout");

/* One kind of message. */
typedef struct {
    const char *name;
    size_t      header_length; /* bytes that every such message has */
    int         has_payload;   /* more bytes may follow */
    uct_am_place_t place;      /* the handler copies the header, and the payload to where it goes,
                                * or shows it to the user where it came */
    /* Acts on a message whose length has been checked. arg is the worker. NULL: id not in use. */
    void (*handle)(void *worker, const void *data, size_t length);
    /* Long ones part by part, see uct_iface_set_am_parts; or NULL. */
    void *(*begin)(void *worker, const void *header, size_t header_length, size_t length,
                   void **token_p);
    void (*end)(void *token, ucs_status_t status);
} ucp_wire_message_t;

extern const ucp_wire_message_t ucp_wire_table[UCP_WIRE_LAST];

/* The 8 bytes of an active message's head, which travel as one number. */
static inline ucp_wire_am_t ucp_wire_am_head(uint64_t word)
{
    ucp_wire_am_t am;

    __builtin_memcpy(&am, &word, sizeof(am));
    return am;
}

static inline uint64_t ucp_wire_am_word(uint16_t id, size_t header_length, uint32_t ep)
{
    return id | ((uint64_t)header_length << 16) | ((uint64_t)ep << 32);
}

/* True if `length` bytes can be a message of this id. */
int ucp_wire_length_ok(unsigned id, size_t length);

/* The same for a message that came, of an id in the table; warns where it is none. */
int ucp_wire_accepts(unsigned id, size_t length);

/* And copies its first bytes. */
static inline int ucp_wire_read(unsigned id, const void *data, size_t length, void *head,
                                size_t head_length)
{
    if (!ucp_wire_accepts(id, length)) {
        return 0;
    }
    __builtin_memcpy(head, data, head_length);
    return 1;
}

/* Takes the RTS at the beginning of a message of at least UCP_WIRE_RTS_LEN bytes; returns the bytes
 * that it has. 0: the message ends within it. */
size_t ucp_wire_rts_read(const void *data, size_t length, ucp_wire_rts_t *rts);

/* Bytes of an RTS of these flags. */
static inline size_t ucp_wire_rts_length(uint32_t flags)
{
    return (flags & UCP_WIRE_RTS_RAILS) ? sizeof(ucp_wire_rts_t) : UCP_WIRE_RTS_LEN;
}

/* A status that a peer sent: an error of the list, or `other`. */
static inline ucs_status_t ucp_wire_status(int32_t status, ucs_status_t other)
{
    return ((status < 0) && (status > UCS_ERR_LAST)) ? (ucs_status_t)status : other;
}

#endif
