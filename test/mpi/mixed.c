/* Halyard: random MPI programs: messages of every mode and of types with gaps, received in every
 * way, some after a cancelled receive that their arrival races with, while collectives are under
 * way on the same communicators.
 *
 * All ranks derive the same messages from a seed; in which order a rank posts them is its own.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define SEEDS         16
#define MESSAGES      40 /* of a rank */
#define COMMS         3
#define BLOCKS_MAX    24
#define GAP_MAX       40
#define GAP_VALUE     0x5C
#define TAGS_OF_SEED  1000
#define REDUCE_MAX    3000
#define BSEND_MAX     5000
#define CANCEL_SPINS  3000

enum {
    SEND_STANDARD,
    SEND_SYNCHRONOUS,
    SEND_BUFFERED,
    SEND_PERSISTENT,
    SEND_MODES
};

enum {
    RECEIVE_POSTED,
    RECEIVE_PERSISTENT,
    RECEIVE_CANCELLED, /* once, and posted again where that was in time */
    RECEIVE_PROBED,    /* from here on: after all has been posted */
    RECEIVE_MATCHED,
    RECEIVE_POLLED,
    RECEIVE_MODES
};

/* Blocks of bytes in the order of the type, which is not always that of their offsets. */
typedef struct {
    MPI_Datatype type;
    int          count;
    int          lengths[BLOCKS_MAX];
    MPI_Aint     offsets[BLOCKS_MAX];
    size_t       span;
} layout_t;

typedef struct {
    layout_t    layout;
    uint8_t     *data;
    MPI_Request request;
} side_t;

typedef struct {
    int      source, dest, comm, tag, any_source, send_mode, receive_mode;
    size_t   size;
    uint64_t seed;
    side_t   out, in;
} message_t;

static MPI_Comm comms[COMMS];

/* A rank of the world in each of the communicators: the same, in reverse, by one further. */
static int rank_in(int comm, int rank)
{
    const int ranks[COMMS] = {rank, check_size - 1 - rank, (rank + 1) % check_size};
    return ranks[comm];
}

static void comms_open(void)
{
    int i;

    for (i = 0; i < COMMS; ++i) {
        MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, rank_in(i, check_rank), &comms[i]));
        MPI_OK(MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN));
    }
}

static void comms_close(void)
{
    int i;

    for (i = 0; i < COMMS; ++i) {
        MPI_OK(MPI_Comm_free(&comms[i]));
    }
}

/* ---- data ---- */

static void layout_make(layout_t *layout, uint64_t seed, size_t size, int is_contiguous)
{
    const int most   = is_contiguous ? 1 : BLOCKS_MAX;
    const int gap    = is_contiguous ? 0 : GAP_MAX;
    uint64_t state   = seed;
    size_t left      = size;
    int i, other;

    layout->count = (int)check_random_range(&state, 1, most);
    layout->span  = 0;
    for (i = 0; i < layout->count; ++i) {
        const size_t share = (i + 1 == layout->count) ? left : check_random_range(&state, 0, left);
        layout->span      += check_random_range(&state, 0, gap);
        layout->lengths[i] = (int)share;
        layout->offsets[i] = (MPI_Aint)layout->span;
        layout->span      += share;
        left              -= share;
    }
    for (i = layout->count - 1; (i > 0) && (seed % 2 == 0); --i) {
        const layout_t before = *layout;
        other                  = (int)check_random_range(&state, 0, i);
        layout->lengths[i]     = before.lengths[other];
        layout->offsets[i]     = before.offsets[other];
        layout->lengths[other] = before.lengths[i];
        layout->offsets[other] = before.offsets[i];
    }
    MPI_OK(MPI_Type_create_hindexed(layout->count, layout->lengths, layout->offsets, MPI_BYTE,
                                    &layout->type));
    MPI_OK(MPI_Type_commit(&layout->type));
}

/* What memory holds with the message in it, or without it. */
static void layout_write(const layout_t *layout, uint8_t *data, uint64_t seed, int is_there)
{
    size_t position = 0;
    int i, k;

    memset(data, GAP_VALUE, layout->span);
    for (i = 0; (i < layout->count) && is_there; ++i) {
        for (k = 0; k < layout->lengths[i]; ++k) {
            data[layout->offsets[i] + k] = check_byte(seed, position++);
        }
    }
}

static void layout_check(const layout_t *layout, const uint8_t *data, const message_t *message,
                         int is_there, const char *what)
{
    uint8_t *expected = check_buffer_alloc(layout->span);
    size_t i          = 0;

    layout_write(layout, expected, message->seed, is_there);
    while ((i < layout->span) && (data[i] == expected[i])) {
        ++i;
    }
    CHECK(i == layout->span, "%s, tag %d from %d, %zu bytes, modes %d %d: byte %zu of %zu", what,
          message->tag, message->source, message->size, message->send_mode, message->receive_mode,
          i, layout->span);
    check_buffer_free(expected);
}

static void side_open(side_t *side, const message_t *message, uint64_t seed, int is_contiguous,
                      int is_there)
{
    layout_make(&side->layout, seed, message->size, is_contiguous);
    side->data    = check_buffer_alloc(side->layout.span);
    side->request = MPI_REQUEST_NULL;
    layout_write(&side->layout, side->data, message->seed, is_there);
}

static void side_close(side_t *side, const message_t *message, int is_persistent, const char *what)
{
    MPI_OK(MPI_Wait(&side->request, MPI_STATUS_IGNORE));
    if (is_persistent) {
        MPI_OK(MPI_Request_free(&side->request));
    }
    layout_check(&side->layout, side->data, message, 1, what);
    MPI_OK(MPI_Type_free(&side->layout.type));
    check_buffer_free(side->data);
}

/* ---- messages ---- */

static void plan(message_t *message, uint64_t *state, int source, int tag)
{
    static const size_t limits[] = {16, 300, 5000, 20000, 140000, 600000};

    memset(message, 0, sizeof(*message));
    message->source       = source;
    message->tag          = tag;
    message->dest         = (int)check_random_range(state, 0, check_size - 1);
    message->comm         = (int)check_random_range(state, 0, COMMS - 1);
    message->send_mode    = (int)check_random_range(state, 0, SEND_MODES - 1);
    message->receive_mode = (int)check_random_range(state, 0, RECEIVE_MODES - 1);
    message->any_source   = (message->receive_mode != RECEIVE_CANCELLED) &&
                            (check_random_range(state, 0, 2) == 0);
    message->size         = check_random_range(state, 0, limits[check_random_range(state, 0, 5)]);
    message->seed         = check_random(state);
    if ((message->send_mode == SEND_BUFFERED) && (message->size > BSEND_MAX)) {
        message->send_mode = SEND_STANDARD;
    }
}

/* MPICH 4.0 packs a few bytes with gaps wrongly for MPI_Ibsend, over any UCX. */
static void post_send(message_t *message)
{
    const int dest      = rank_in(message->comm, message->dest);
    const MPI_Comm comm = comms[message->comm];
    side_t *out         = &message->out;

    side_open(out, message, message->seed + 1, message->send_mode == SEND_BUFFERED, 1);
    switch (message->send_mode) {
    case SEND_STANDARD:
        MPI_OK(MPI_Isend(out->data, 1, out->layout.type, dest, message->tag, comm,
                         &out->request));
        break;
    case SEND_SYNCHRONOUS:
        MPI_OK(MPI_Issend(out->data, 1, out->layout.type, dest, message->tag, comm,
                          &out->request));
        break;
    case SEND_BUFFERED:
        MPI_OK(MPI_Ibsend(out->data, 1, out->layout.type, dest, message->tag, comm,
                          &out->request));
        break;
    default:
        MPI_OK(MPI_Send_init(out->data, 1, out->layout.type, dest, message->tag, comm,
                             &out->request));
        MPI_OK(MPI_Start(&out->request));
    }
}

static int source_of(const message_t *message)
{
    return message->any_source ? MPI_ANY_SOURCE : rank_in(message->comm, message->source);
}

static void post_receive(message_t *message)
{
    const MPI_Comm comm = comms[message->comm];
    const int source    = source_of(message);
    side_t *in          = &message->in;
    volatile unsigned spins;
    MPI_Status status;
    int was_cancelled;

    side_open(in, message, message->seed + 2, 0, 0);
    if (message->receive_mode == RECEIVE_PERSISTENT) {
        MPI_OK(MPI_Recv_init(in->data, 1, in->layout.type, source, message->tag, comm,
                             &in->request));
        MPI_OK(MPI_Start(&in->request));
        return;
    }
    MPI_OK(MPI_Irecv(in->data, 1, in->layout.type, source, message->tag, comm, &in->request));
    if (message->receive_mode == RECEIVE_CANCELLED) {
        for (spins = message->seed % CANCEL_SPINS; spins > 0; --spins) {
        }
        MPI_OK(MPI_Cancel(&in->request));
        MPI_OK(MPI_Wait(&in->request, &status));
        MPI_OK(MPI_Test_cancelled(&status, &was_cancelled));
        if (was_cancelled) {
            layout_check(&in->layout, in->data, message, 0, "cancelled");
            MPI_OK(MPI_Irecv(in->data, 1, in->layout.type, source, message->tag, comm,
                             &in->request));
        }
    }
}

static void receive_late(message_t *message)
{
    const MPI_Comm comm = comms[message->comm];
    const int source    = source_of(message);
    side_t *in          = &message->in;
    int found           = 0, bytes;
    MPI_Message matched;
    MPI_Status status;

    side_open(in, message, message->seed + 2, 0, 0);
    switch (message->receive_mode) {
    case RECEIVE_PROBED:
        MPI_OK(MPI_Probe(source, message->tag, comm, &status));
        MPI_OK(MPI_Irecv(in->data, 1, in->layout.type, status.MPI_SOURCE, status.MPI_TAG, comm,
                         &in->request));
        break;
    case RECEIVE_MATCHED:
        MPI_OK(MPI_Mprobe(source, message->tag, comm, &matched, &status));
        MPI_OK(MPI_Imrecv(in->data, 1, in->layout.type, &matched, &in->request));
        break;
    default:
        while (!found) {
            MPI_OK(MPI_Improbe(source, message->tag, comm, &found, &matched, &status));
        }
        MPI_OK(MPI_Imrecv(in->data, 1, in->layout.type, &matched, &in->request));
    }
    MPI_OK(MPI_Get_count(&status, MPI_BYTE, &bytes));
    CHECK((bytes == (int)message->size) &&
          (status.MPI_SOURCE == rank_in(message->comm, message->source)),
          "found %d bytes from %d, expected %zu from %d", bytes, status.MPI_SOURCE, message->size,
          message->source);
}

/* ---- a program ---- */

static void post_all(message_t *messages, int count, uint64_t *order)
{
    const int start = (int)check_random_range(order, 0, count - 1);
    int pass, i;

    /* sends and receives mixed: of a message to oneself now this is first, now that */
    for (pass = 0; pass < 2; ++pass) {
        for (i = 0; i < count; ++i) {
            message_t *message   = &messages[(start + i) % count];
            const int is_receive = (message->tag % 3 == (int)(*order % 3)) ? !pass : pass;
            if (!is_receive && (message->source == check_rank)) {
                post_send(message);
            } else if (is_receive && (message->dest == check_rank) &&
                       (message->receive_mode < RECEIVE_PROBED)) {
                post_receive(message);
            }
        }
    }
}

static void close_all(message_t *messages, int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        if (messages[i].dest == check_rank) {
            side_close(&messages[i].in, &messages[i],
                       messages[i].receive_mode == RECEIVE_PERSISTENT, "received");
        }
    }
    for (i = 0; i < count; ++i) {
        if (messages[i].source == check_rank) {
            side_close(&messages[i].out, &messages[i], messages[i].send_mode == SEND_PERSISTENT,
                       "sent");
        }
    }
}

static void program(uint64_t seed)
{
    const int count     = MESSAGES * check_size;
    message_t *messages = malloc(count * sizeof(*messages));
    uint64_t state      = seed, order = seed * 100 + check_rank;
    const int length    = (int)check_random_range(&state, 1, REDUCE_MAX);
    int64_t *own        = malloc(length * sizeof(*own));
    int64_t *sums       = malloc(COMMS * length * sizeof(*sums));
    const int64_t sum   = (int64_t)check_size * (check_size + 1) / 2;
    MPI_Request reductions[COMMS];
    int i;

    for (i = 0; i < count; ++i) {
        plan(&messages[i], &state, i % check_size, (int)seed * TAGS_OF_SEED + i);
    }
    for (i = 0; i < length; ++i) {
        own[i] = (int64_t)(check_rank + 1) * i;
    }
    for (i = 0; i < COMMS; ++i) {
        MPI_OK(MPI_Iallreduce(own, sums + i * length, length, MPI_INT64_T, MPI_SUM, comms[i],
                              &reductions[i]));
    }
    post_all(messages, count, &order);
    for (i = 0; i < count; ++i) {
        if ((messages[i].dest == check_rank) && (messages[i].receive_mode >= RECEIVE_PROBED)) {
            receive_late(&messages[i]);
        }
    }
    close_all(messages, count);
    MPI_OK(MPI_Waitall(COMMS, reductions, MPI_STATUSES_IGNORE));
    for (i = 0; i < COMMS * length; ++i) {
        CHECK(sums[i] == sum * (i % length), "sum %d is %lld", i, (long long)sums[i]);
    }
    free(sums);
    free(own);
    free(messages);
}

static void programs(void)
{
    const int bytes = MESSAGES * (BSEND_MAX + MPI_BSEND_OVERHEAD) * 2;
    void *buffer    = malloc(bytes);
    uint64_t seed;
    int size;

    comms_open();
    MPI_OK(MPI_Buffer_attach(buffer, bytes));
    for (seed = 1; seed <= SEEDS; ++seed) {
        program(seed);
    }
    MPI_OK(MPI_Buffer_detach(&buffer, &size));
    comms_close();
    free(buffer);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"programs", programs},
    };

    return check_main(argc, argv, "mixed", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
