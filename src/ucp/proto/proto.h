/* Halyard: protocol selection: which protocol moves a message of a given size over given lanes,
 * and why.
 *
 * A protocol is a row: when it applies, and what it costs as a linear function of the size.
 * Selection is a pure function of the lanes' limits and the options, so both sides of a transfer
 * reach the same result. The outcome of each row (chosen, or the reason why not) is kept as text
 * for UCX_PROTO_INFO. Receivers then find out what announced messages really take, and those who
 * put and get what their copies and messages do (learn.h).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTO_PROTO_H
#define UCP_PROTO_PROTO_H

#include <ucp/core/context.h>
#include <ucp/proto/learn.h>
#include <ucs/debug/report.h>
#include <uct/api/uct_tl.h>

#define UCP_PROTO_CONFIGS 16 /* different sets of lanes that one worker can meet */
#define UCP_PROTO_RANGES  8

typedef enum {
    UCP_PROTO_EAGER,     /* one message */
    UCP_PROTO_RNDV_GET,  /* announced; the receiver reads */
    UCP_PROTO_RNDV_PUT,  /* announced; the sender writes */
    UCP_PROTO_RNDV_BOTH, /* announced; each side copies a part */
    UCP_PROTO_RNDV_AM,   /* announced; sent in pieces through messages */
    UCP_PROTO_LAST
} ucp_proto_id_t;

/* What the choice depends on. */
typedef struct {
    uct_limits_t am;         /* am_short: contiguous messages */
    uct_limits_t zcopy;      /* the same from where they lie; max 0: no */
    uct_limits_t get, put;   /* of the copy lane; max 0 without one */
    uct_limits_t write;      /* of the messaging lane, as get with has_reads; max 0 without */
    int          has_sync;   /* the messaging lane has common words */
    int          has_long;   /* and long messages, as far as the peer has room for them */
    int          has_reads;  /* get is of the messaging lane, of memory that is registered for it */
    int          has_device_reads; /* and of such memory of devices */
    int          is_net;     /* the messaging lane is a network's */
    const char  *am_name;    /* transports, for the text */
    const char  *am_choice;  /* uct_iface_t.choice */
    const char  *copy_name;
    const char  *device_name;
    const char  *rail_choice[UCT_RAILS_MAX]; /* of further devices of the network; NULL: none */
    char         copy_reason[UCT_REASON_MAX]; /* why there is no copy lane */
} ucp_proto_lanes_t;

typedef struct {
    size_t         max;      /* largest message of this range, inclusive */
    ucp_proto_id_t proto;
    int            forced;   /* by an option rather than by cost */
} ucp_proto_range_t;

/* Tagged messages up to so many bytes go whole to who does not just wait for them (ops/send.c):
 * longer ones take more time in two copies than in one, whoever waits. Beyond UNASKED_ANY, and
 * UNASKED_MOST where the sender's copy takes no longer than UNASKED_ANY_NS (near processors of Zen
 * 5: windows of 32 KiB 0.49 us each, announced 0.65), it depends on how many receives are posted
 * here: none, as where steps of a reduction go up a tree (beyond UNASKED_MOST not to the only other
 * process, which is sent windows of them); one, up to UNASKED_MOST, of a peer that sends to us as
 * we send to it; or more than UNASKED_FEW, but no more than one of each peer, where so many
 * processes read each other's memory at once that the kernel is in their way; with more than
 * UNASKED_CROWD, one of each peer, posted or with their announced messages found, none goes whole:
 * what they all write lies in no cache any more when it is read (alltoall of 16 KiB among 20 and
 * 28: 143 and 255 us, announced 112 and 165; who comes late finds announcements of all).
 * Around a ring, among a few neighbours, in windows, and between two processes alone
 * (UNASKED_PAIR: one may be a peer of its own) one copy is faster. Measured in collective
 * operations of 4, 8, 16, 20 and 28 processes, and windows of pairs, on 32 processors of Emerald
 * Rapids. Where the sender's copy takes longer than UNASKED_NS they are announced: between Zen 4's
 * processors without a common cache 32 KiB take 7 us, near ones 1 us.
 * With more processes than processors up to UNASKED_ANY go whole, and while at most one receive is
 * posted up to UNASKED_MOST: two copies of more, through memory that many processes use, take
 * longer than that the receiver runs twice (8 and 16 processes on two processors, alltoall of 64
 * KiB 0.32 and 1.8 ms whole, 0.27 and 1.2 announced, of 16 KiB even; allreduce of 32 KiB 58 and 190
 * us whole, 90 and 270). */
#define UCP_PROTO_UNASKED_ANY    16384
#define UCP_PROTO_UNASKED_ANY_NS 1500.0f
#define UCP_PROTO_UNASKED_MOST   32768
#define UCP_PROTO_UNASKED_MAX    65536
#define UCP_PROTO_UNASKED_FEW    8
#define UCP_PROTO_UNASKED_PAIR   2
#define UCP_PROTO_UNASKED_CROWD  16
#define UCP_PROTO_UNASKED_NS     8000.0f

/* And so to who has found that messages are the fastest way for announced ones of that length: any
 * that can go whole, if a receive was waiting for that one, else up to so many bytes (longer ones
 * are better kept by their sender than by a receiver that copies them once more), so many before
 * the next one is announced, by which the receiver measures. Measured, of a buffer that goes back
 * and forth: Granite Rapids 8 KiB 1.8 instead of 2.3 us; Zen 5, where the receiver copies one part
 * while the next is written, 64 KiB 1.29 instead of 1.73, 4.6 between processors without a common
 * cache. */
#define UCP_PROTO_WHOLE_MAX  16384
#define UCP_PROTO_WHOLE_NEXT 16

/* Of host memory up to so many bytes go whole: active messages, and what is sent on a stream while
 * more of it is unread or under way. Measured between two processors of Emerald Rapids, whole /
 * announced, us: 8 KiB to and fro 0.4 / 1.7 where the handler only counts it, 1.7 / 1.4 where it
 * copies it, in windows 0.3 / 0.8 and 0.5 / 0.8; 16 KiB 0.6 / 2.3 and 3.0 / 2.0, in windows 0.5 /
 * 1.2 and 1.0 / 1.4; 32 KiB copied to and fro 5.4 / 2.4. Windows of streams: 8 KiB 0.6 / 1.1 to
 * 1.9, 16 KiB 1.1 to 1.4 / 1.3 to 2.1, 24 KiB 2.1 / 1.9; to and fro as tagged messages. */
#define UCP_PROTO_LIGHT_MAX 16384

/* What is learned of; the ways of gets and puts are UCP_WAY_READ, which stands for the copy that
 * this side makes in either direction, and UCP_WAY_MESSAGES. */
typedef enum {
    UCP_LEARNED_ANNOUNCED,
    UCP_LEARNED_GET,
    UCP_LEARNED_PUT,
    UCP_LEARNED_LAST
} ucp_learned_t;

typedef struct {
    ucp_proto_lanes_t lanes;
    unsigned          tl[3 + UCT_RAILS_MAX]; /* key: transport of each lane, UINT_MAX for none */
    size_t            eager_max;      /* bytes of payload that one message can carry */
    size_t            zcopy_min;      /* from which it is not copied before; SIZE_MAX: never */
    size_t            rndv_thresh;    /* the user's, of this kind of peers, or automatic */
    int               is_told;        /* by UCX_PROTO_INFO */
    unsigned          num_send, num_recv;
    ucp_proto_range_t send[UCP_PROTO_RANGES]; /* all protocols */
    ucp_proto_range_t recv[UCP_PROTO_RANGES]; /* rendezvous only: the receiver's choice */
    unsigned          ways;           /* bits of ucp_way_t of announced messages among which is
                                         learned; 0: none */
    ucp_learn_t       learn[UCP_LEARNED_LAST][2]; /* of peers behind one cache with us [1], of
                                                     others [0] */
    char              reason[UCP_PROTO_LAST][UCT_REASON_MAX];
    size_t            rma_min[2];     /* bytes from which a network's own gets [0] and puts [1] pay;
                                         SIZE_MAX: never */
} ucp_proto_config_t;

extern const char *const ucp_proto_names[UCP_PROTO_LAST];

/* Fills ranges and reasons from lanes and options. Pure. */
void ucp_proto_config_fill(ucp_proto_config_t *config, const ucp_options_t *options);

/* Predicted time of one message, in ns; infinity where the protocol does not apply. */
double ucp_proto_time_ns(const ucp_proto_config_t *config, ucp_proto_id_t proto, size_t length);

/* Lanes, ranges and reasons: a line each as text; as JSON "lanes", "devices" and "protocols" (see
 * ucx_info.1), in the object that is open. */
void ucp_proto_explain(const ucp_proto_config_t *config, ucs_report_t *report);

/* Is there a choice for an announced message of `length` bytes that is to be learned? */
UCS_INLINE int ucp_proto_has_ways(const ucp_proto_config_t *config, size_t length)
{
    return (config->ways != 0) && (length >= UCP_LEARN_MIN);
}

/* The way by which `length` bytes (announced: UCP_LEARN_MIN at least) are to move, as learned or,
 * first, predicted; is_near: the peer is behind our cache. They begin to move: *learn_p and *turn
 * are for ucp_learn_end, with a length of UCP_LEARN_SHORT at least. */
ucp_way_t ucp_proto_learned(ucp_proto_config_t *config, ucp_learned_t what, int is_near,
                            size_t length, ucp_learn_t **learn_p, ucp_learn_turn_t *turn);

/* The protocol of announced messages that is a way. */
UCS_INLINE ucp_proto_id_t ucp_proto_of_way(ucp_way_t way)
{
    return (way == UCP_WAY_MESSAGES) ? UCP_PROTO_RNDV_AM :
           (way == UCP_WAY_BOTH) ? UCP_PROTO_RNDV_BOTH : UCP_PROTO_RNDV_GET;
}

UCS_INLINE ucp_proto_id_t ucp_proto_lookup(const ucp_proto_range_t *ranges, size_t length)
{
    while (length > ranges->max) {
        ++ranges;
    }
    return ranges->proto;
}

#endif
