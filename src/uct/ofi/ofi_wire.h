/* Halyard: ofi: what goes over the wire: little-endian, each message a multiple of 8 bytes.
 *
 *   HELLO    opens the sender's direction: who it is, whom it wants, its address and its token
 *   WELCOME  the answer: the receiver's token for this pair
 *   REJECT   the answer where the one wanted is not there (any more)
 *   PING     asks for an ACK, by a number; an introduction too, so that a stranger can say REJECT
 *   ACK      how many messages have been taken; every other message says that as well
 *   DATA     an active message; counted
 *   BYE      the sender's direction is closed; counted
 *   LEAVE    the sender's interface is closed, behind all that it has sent
 *   DROP     asks the peer to end its direction, by the number with which that was opened
 *
 * A token names an entry of the receiver's table by index and generation, mixed with a number that
 * each interface draws, so what was meant for a process that had this address before finds nothing.
 * A serial number names what the sender has made for the pair: it rises each time that a side gives
 * the other up and begins anew, so that what it said before is known by it, whichever way and
 * however late it comes. Within that, a direction that is closed and opened again is known by the
 * number of its first message.
 *
 * An introduction proves nothing: it may be late, or be said by somebody else. Where its serial
 * number is not the known one it is answered by a question, of a number by chance, to where the
 * peer is known to be; only who repeats that is believed, be its serial number earlier or later.
 *
 * Over TCP a HELLO or a PING may ask for the port that the other side's connection comes from, if
 * that side has made it, and a WELCOME tells: so one whose operations have to end can tell the
 * connection from those of others on that host. A peer that tells the port of another one there can
 * have that one's connection ended, when operations with itself are given up.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_OFI_OFI_WIRE_H
#define UCT_OFI_OFI_WIRE_H

#include <uct/api/uct_tl.h>

#define UCT_OFI_VERSION     3
#define UCT_OFI_ADDRESS_MAX 240 /* bytes of an address, with its head */

enum {
    UCT_OFI_HELLO,
    UCT_OFI_WELCOME,
    UCT_OFI_PING,
    UCT_OFI_BYE,
    UCT_OFI_DROP,
    UCT_OFI_ACK,
    UCT_OFI_REJECT,
    UCT_OFI_LEAVE,
    UCT_OFI_DATA,
    UCT_OFI_TYPES
};

typedef struct {
    uint8_t  type;
    uint8_t  am_id;  /* REJECT: 1 where the one wanted is there, but knows nothing of the asker */
    uint8_t  pad;    /* zero bytes behind the payload */
    uint8_t  zero;
    uint32_t number; /* DATA, BYE, LEAVE: of this message; DROP: above; PING: of the question, 0
                        is none; ACK: of the last question; else of the next message */
    uint64_t token;  /* of the receiver; HELLO, PING, REJECT: 0 */
    uint32_t taken;  /* messages of the other direction, so far */
    uint32_t serial; /* of the sender's side of the pair; REJECT: 0 */
} uct_ofi_head_t;

/* HELLO, WELCOME, PING, REJECT. */
typedef struct {
    uct_ofi_head_t head;
    uint8_t        from[UCT_UID_LEN];
    uint8_t        to[UCT_UID_LEN];
    uint64_t       token; /* that names the receiver to the sender */
    uint8_t        version;
    uint8_t        address_length;
    uint16_t       port;   /* HELLO, PING: 1 asks for it; WELCOME: above, 0: not known; else 0 */
    uint32_t       answer; /* number of the last question of the receiver's */
    uint8_t        address[UCT_OFI_ADDRESS_MAX];
} uct_ofi_intro_t;

/* The head of an address; the provider's own follows. */
typedef struct {
    uint8_t  version;
    uint8_t  is_loopback; /* leads to the same node only */
    uint8_t  length;      /* of the provider's own */
    uint8_t  zero;
    uint32_t protocol;    /* FI_PROTO_... */
    uint32_t format;      /* FI_SOCKADDR... */
    uint32_t checksum;    /* of all else */
} uct_ofi_address_t;

static_assert(sizeof(uct_ofi_head_t) == 24, "layout of a message");
static_assert(sizeof(uct_ofi_intro_t) == 72 + UCT_OFI_ADDRESS_MAX, "layout of an introduction");
static_assert(sizeof(uct_ofi_address_t) == 16, "layout of an address");
static_assert(sizeof(uct_ofi_intro_t) % 8 == 0, "messages are multiples of 8 bytes");

#endif
