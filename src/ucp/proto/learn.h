/* Halyard: what long messages really take, and by which way they therefore go.
 *
 * Costs are predicted from constants and from what one process can measure of itself; what a
 * message takes between two depends on where they run (two processors behind one cache move lines
 * four times as fast as two that have none in common, measured), and on how many others run there
 * (a copy that both sides make waits for both). So the receivers of a worker time the announced
 * messages that could go in several ways: for each octave of sizes a trial of the way in use, then
 * one of each other, and where one was faster a second of the way in use, since the first messages
 * of all find caches cold; the fastest one serves the next ones, and then all are tried anew: after
 * as many as the trials took, of long messages up to LEARN_FIRST times, then twice as many each
 * time, where the same way was the fastest again four times, and at most LEARN_SETTLED times.
 * Messages that use memory for the first time are not timed, as it takes longer (LEARN_COLD).
 *
 * What a program does next may go better by another way. So while one is in use a message in
 * WATCHED that moves alone is timed, and when SLOW_MIN of those, one after the other, have been far
 * slower than such have been since the trials (twice as many each time that nothing came of it),
 * all ways are tried anew.
 *
 * Who puts or gets does the same with its own parts (ops/rma.h): copies, or messages to its peer.
 * There short ones matter, too; those of less than 1 KiB are one octave, where each counts alike.
 *
 * A trial has RUNS runs. A run begins when a message of the trial has ended while none moves that
 * was asked for another way; it ends with a message that began in it, after RUN_MIN messages or
 * RUN_BYTES, and with those that end at once with that one, faster than any is copied (AT_ONCE), as
 * messages of a window may. Until a message that began later ends as many end as are moved,
 * whichever order they are served in, if they are alike. (Senders of windows beside senders of
 * single messages are measured by the latter's ends, and less well.) What a run has moved is what
 * began in it or what ended in it, whichever is less; its time is all that passed, but of pauses,
 * in which nothing was under way, no more than a program needs to fill a buffer and to look at it:
 * a copy leaves buffers in the other processor's cache, from which the program then has to fetch
 * them, messages leave both buffers where they are used (Granite Rapids, 64 KiB that are written,
 * sent, received and read, each way: 15 us by copies, 10 by messages; the transfer alone 3 and 8);
 * and where two send to each other, one's way takes the other's time. A run that ends amid messages
 * counts together with the next, whose part one side may have done before (Zen 5, windows of 1 MiB
 * by both: 53, 21, 53, 21 bytes a ns). The best is the result, since whatever else happens only
 * adds; where some ways had windows and others single messages little is learned. Messages that
 * might become the fastest, while another way is in use, are tried until each of a ring's buffers
 * has been used again (Zen 5, 128 KiB: 6.3 us the first time, 3.3 from then on; copies 5.5).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTO_LEARN_H
#define UCP_PROTO_LEARN_H

#include <stddef.h>
#include <stdint.h>

#define UCP_LEARN_MIN        ((size_t)8192) /* shorter ones are not announced, only put and got */
#define UCP_LEARN_OCTAVES    16u            /* what is longer belongs to the last */
#define UCP_LEARN_SHORT      ((size_t)512)  /* all below twice that are an octave, each as long */
#define UCP_LEARN_RUNS       4u
#define UCP_LEARN_RUN_MIN    4u
#define UCP_LEARN_RUN_BYTES  ((size_t)2 << 20)
#define UCP_LEARN_RUN_LONG   ((size_t)64 << 20) /* bytes of one that needs no third */
#define UCP_LEARN_AT_ONCE    100u /* bytes a ns */
#define UCP_LEARN_LAP        ((size_t)7 << 19) /* bytes by which all buffers are used again */
#define UCP_LEARN_COLD_GAIN  2.0f /* more than that times as fast they do not become by it */
#define UCP_LEARN_PAUSE_NS    2000u /* what counts of a pause: so much, */
#define UCP_LEARN_PAUSE_BYTES 2u    /* and a ns for so many bytes of the next message */
#define UCP_LEARN_COLD       256u /* units of memory that messages use for the first time, and which
                                     take longer, so that they are not timed: a ring's buffers */
#define UCP_LEARN_UNIT       ((size_t)16384)
#define UCP_LEARN_UNIT_OCTAVE 5u
#define UCP_LEARN_TRIAL_MAX  512u /* messages after which a trial ends whatever it has found */
#define UCP_LEARN_FIRST      8u /* times as many messages as the first trials, before the next */
#define UCP_LEARN_SETTLED    128u
#define UCP_LEARN_SHORT_SETTLED 512u /* the same below UCP_LEARN_MIN, where the slower way takes
                                        ten times as long */
#define UCP_LEARN_GAIN       1.05 /* by which another way must be faster */
#define UCP_LEARN_UNLIKE_GAIN 2.2 /* the same of a window's messages and single ones, whose time
                                     holds their answers' */
#define UCP_LEARN_WATCHED    16u
#define UCP_LEARN_FAR_SLOWER 0.6f /* times the usual rate */
#define UCP_LEARN_SLOW_MIN   4u
#define UCP_LEARN_SLOW_MAX   1024u

typedef enum {
    UCP_WAY_READ,     /* the receiver copies */
    UCP_WAY_BOTH,     /* each side copies a part */
    UCP_WAY_MESSAGES,
    UCP_WAYS
} ucp_way_t;

typedef enum {
    UCP_LEARN_NEW,
    UCP_LEARN_TRIAL,
    UCP_LEARN_IN_USE
} ucp_learn_phase_t;

/* Messages of one octave. */
typedef struct {
    float    rate[UCP_WAYS]; /* bytes per ns of the last trial; 0: it has told nothing */
    float    best;           /* of this trial's runs */
    float    usual;          /* of messages alone while the way is in use; 0: there were none */
    uint32_t left;           /* messages until the phase ends */
    uint32_t tried;          /* messages of the trials */
    uint64_t begun, ended;   /* bytes of messages that have in this run */
    uint64_t moved;          /* in this trial's runs */
    uint64_t last_begun, last_ended, last_ns; /* of a run that counts together with this */
    uint64_t time_ns;        /* of this run, up to since_ns */
    uint64_t since_ns;
    uint64_t due_begun;      /* what had begun, and its time, when the run could end */
    uint64_t due_ns;
    uint32_t under_way[UCP_WAYS];
    uint32_t serial;         /* messages that have begun */
    uint32_t first;          /* of them when this run, or its last part, began */
    uint32_t last;           /* and when the last one ended */
    uint32_t count;          /* messages that have ended in this run */
    uint8_t  is_open;        /* there is a run, */
    uint8_t  is_due;         /* which ends if no other message does at once */
    uint8_t  runs;           /* of this trial, that have ended */
    uint8_t  phase;          /* ucp_learn_phase_t */
    uint8_t  way;            /* in use */
    uint8_t  trial;          /* the way that is tried */
    uint8_t  number;         /* of the trial */
    uint8_t  is_window;      /* messages of this run moved at the same time */
    uint8_t  windows;        /* a bit for each way whose best run was such a one */
    uint8_t  is_again;       /* the way in use is tried once more, as another one was faster */
    uint16_t num_slow;       /* messages alone, one after the other, that were far slower, */
    uint16_t max_slow;       /* of which so many lead to trials; 0: SLOW_MIN */
    uint16_t patience;       /* times as many messages as the trials have before the next ones; 0:
                                there have been none */
} ucp_learn_octave_t;

/* Of one set of lanes. Zero is its start. */
typedef struct {
    ucp_learn_octave_t octaves[UCP_LEARN_OCTAVES];
    uint16_t           used[UCP_LEARN_UNIT_OCTAVE + 1]; /* units of memory by messages of the octave
                                                           or longer ones */
} ucp_learn_t;

/* One message under way. */
typedef struct {
    uint32_t serial;
    uint8_t  octave;
    uint8_t  way;
    uint8_t  number;   /* of the trial that it belongs to */
    uint8_t  is_timed; /* it goes by the way that is tried, */
    uint8_t  is_alone; /* or by the one in use, and nothing else moved when it began */
} ucp_learn_turn_t;

/* The way for the next message of `length` bytes. ways: a bit for each that is possible, always the
 * same ones; predicted: the one of them to begin with. *changed_p: trials have ended with this
 * message, and another way than before them is in use. */
ucp_way_t ucp_learn_choose(ucp_learn_t *learn, size_t length, unsigned ways, ucp_way_t predicted,
                           int *changed_p);

/* A message of `length` bytes begins to move. */
void ucp_learn_begin(ucp_learn_t *learn, ucp_learn_turn_t *turn, size_t length, ucp_way_t way);

/* It has ended; `length`: bytes, 0 where it has not come whole. */
void ucp_learn_end(ucp_learn_t *learn, const ucp_learn_turn_t *turn, size_t length);

/* Are these the first trials of all? */
int ucp_learn_is_first(const ucp_learn_t *learn, const ucp_learn_turn_t *turn);

/* Was the way of a message found best for its octave, and nothing is being tried? */
int ucp_learn_is_settled(const ucp_learn_t *learn, const ucp_learn_turn_t *turn);

/* Octave of a length, and the least length of an octave. */
unsigned ucp_learn_octave(size_t length);
size_t ucp_learn_octave_min(unsigned octave);

#endif
