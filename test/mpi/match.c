/* Halyard: MPI matching: wildcards, many senders, floods of unexpected messages, order.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define STORM_MESSAGES  300 /* from each rank to each other rank */
#define STORM_SIZE_MAX  3000
#define STORM_TAGS      7
#define MODEL_MESSAGES  400
#define MODEL_TAGS      5
#define MODEL_SIZE      64
#define MODEL_SEEDS     5
#define FUNNEL_MESSAGES 200
#define FLOOD_MESSAGES  4000
#define FLOOD_SIZE_MAX  1024
#define LARGE_MESSAGES  48
#define LARGE_SIZE      100000

/* What each message begins with. */
typedef struct {
    int32_t source;
    int32_t tag;
    int32_t sequence;
    int32_t length; /* of the whole message */
} head_t;

static uint64_t seed_of(const head_t *head)
{
    return ((uint64_t)head->source << 40) ^ ((uint64_t)head->sequence << 8) ^ head->tag;
}

static void make_message(uint8_t *buffer, int tag, int sequence, size_t length)
{
    const head_t head = {check_rank, tag, sequence, (int32_t)length};

    memcpy(buffer, &head, sizeof(head));
    check_fill(buffer + sizeof(head), length - sizeof(head), seed_of(&head));
}

/* Checks a message against its own head and the status. */
static head_t check_message(const uint8_t *buffer, const MPI_Status *status)
{
    int count = -1;
    head_t head;

    memcpy(&head, buffer, sizeof(head));
    MPI_OK(MPI_Get_count(status, MPI_BYTE, &count));
    CHECK(count == head.length, "received %d bytes of %d", count, head.length);
    CHECK(status->MPI_SOURCE == head.source, "status has source %d, message %d",
          status->MPI_SOURCE, head.source);
    CHECK(status->MPI_TAG == head.tag, "status has tag %d, message %d", status->MPI_TAG,
          head.tag);
    if (count == head.length) {
        check_filled(buffer + sizeof(head), count - sizeof(head), seed_of(&head), "message");
    }
    return head;
}

static int storm_tag(int source, int dest, int sequence)
{
    return (source * 31 + dest * 17 + sequence * 13) % STORM_TAGS;
}

static size_t storm_size(int source, int sequence)
{
    uint64_t state = source * 100003 + sequence;
    return check_random_range(&state, sizeof(head_t), STORM_SIZE_MAX);
}

/* Sends STORM_MESSAGES to each other rank without waiting; buffers and requests are freed by
 * storm_sent(). */
static MPI_Request *storm_send(uint8_t **buffer_p)
{
    const int total       = STORM_MESSAGES * (check_size - 1);
    MPI_Request *requests = malloc(total * sizeof(*requests));
    uint8_t *buffer       = check_buffer_alloc((size_t)total * STORM_SIZE_MAX);
    int n = 0, dest, sequence;

    for (sequence = 0; sequence < STORM_MESSAGES; ++sequence) {
        for (dest = 0; dest < check_size; ++dest) {
            if (dest != check_rank) {
                uint8_t *message  = buffer + (size_t)n * STORM_SIZE_MAX;
                const int tag     = storm_tag(check_rank, dest, sequence);
                const size_t size = storm_size(check_rank, sequence);
                make_message(message, tag, sequence, size);
                MPI_OK(MPI_Isend(message, (int)size, MPI_BYTE, dest, tag, MPI_COMM_WORLD,
                                 &requests[n++]));
            }
        }
    }
    *buffer_p = buffer;
    return requests;
}

static void storm_sent(MPI_Request *requests, uint8_t *buffer)
{
    MPI_OK(MPI_Waitall(STORM_MESSAGES * (check_size - 1), requests, MPI_STATUSES_IGNORE));
    free(requests);
    check_buffer_free(buffer);
}

/* All receives posted with both wildcards before anything is sent: from each source the messages
 * come in the order of sending. */
static void wildcard_posted(void)
{
    const int total       = STORM_MESSAGES * (check_size - 1);
    MPI_Request *receives = malloc(total * sizeof(*receives));
    MPI_Status *statuses  = malloc(total * sizeof(*statuses));
    uint8_t *in           = check_buffer_alloc((size_t)total * STORM_SIZE_MAX);
    int *next             = calloc(check_size, sizeof(*next));
    MPI_Request *sends;
    uint8_t *out;
    int i;

    for (i = 0; i < total; ++i) {
        MPI_OK(MPI_Irecv(in + (size_t)i * STORM_SIZE_MAX, STORM_SIZE_MAX, MPI_BYTE,
                         MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[i]));
    }
    sends = storm_send(&out);
    MPI_OK(MPI_Waitall(total, receives, statuses));
    for (i = 0; i < total; ++i) {
        const head_t head = check_message(in + (size_t)i * STORM_SIZE_MAX, &statuses[i]);
        CHECK(head.sequence == next[head.source], "from %d came message %d before %d",
              head.source, head.sequence, next[head.source]);
        next[head.source] = head.sequence + 1;
    }
    storm_sent(sends, out);
    free(next);
    check_buffer_free(in);
    free(statuses);
    free(receives);
}

/* The same with blocking receives, while messages arrive. */
static void wildcard_blocking(void)
{
    const int total = STORM_MESSAGES * (check_size - 1);
    uint8_t *in     = check_buffer_alloc(STORM_SIZE_MAX);
    int *next       = calloc(check_size, sizeof(*next));
    MPI_Request *sends;
    MPI_Status status;
    uint8_t *out;
    int i;

    sends = storm_send(&out);
    for (i = 0; i < total; ++i) {
        MPI_OK(MPI_Recv(in, STORM_SIZE_MAX, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                        MPI_COMM_WORLD, &status));
        const head_t head = check_message(in, &status);
        CHECK(head.sequence == next[head.source], "from %d came message %d before %d",
              head.source, head.sequence, next[head.source]);
        next[head.source] = head.sequence + 1;
    }
    storm_sent(sends, out);
    free(next);
    check_buffer_free(in);
}

/* One wildcard at a time: any source with a given tag, then any tag from a given source. Each
 * message of a storm is received once. */
static void wildcard_half(void)
{
    uint8_t *in = check_buffer_alloc(STORM_SIZE_MAX);
    int received = 0, source, dest, sequence, tag;
    MPI_Request *sends;
    MPI_Status status;
    uint8_t *out;

    sends = storm_send(&out);
    for (tag = 0; tag < STORM_TAGS / 2; ++tag) {
        for (source = 0; source < check_size; ++source) {
            dest = check_rank;
            for (sequence = 0; sequence < STORM_MESSAGES; ++sequence) {
                if ((source != dest) && (storm_tag(source, dest, sequence) == tag)) {
                    MPI_OK(MPI_Recv(in, STORM_SIZE_MAX, MPI_BYTE, MPI_ANY_SOURCE, tag,
                                    MPI_COMM_WORLD, &status));
                    check_message(in, &status);
                    CHECK(status.MPI_TAG == tag, "tag %d", status.MPI_TAG);
                    received++;
                }
            }
        }
    }
    for (source = 0; source < check_size; ++source) {
        for (sequence = 0; sequence < STORM_MESSAGES; ++sequence) {
            if ((source != check_rank) &&
                (storm_tag(source, check_rank, sequence) >= STORM_TAGS / 2)) {
                MPI_OK(MPI_Recv(in, STORM_SIZE_MAX, MPI_BYTE, source, MPI_ANY_TAG,
                                MPI_COMM_WORLD, &status));
                const head_t head = check_message(in, &status);
                CHECK(head.source == source, "from %d", head.source);
                CHECK(head.sequence == sequence, "message %d before %d", head.sequence, sequence);
                received++;
            }
        }
    }
    CHECK(received == STORM_MESSAGES * (check_size - 1), "received %d", received);
    storm_sent(sends, out);
    check_buffer_free(in);
}

/* A sequence of messages from the partner and of receives with and without wildcard. */
typedef struct {
    int tags[MODEL_MESSAGES];     /* of the messages, in order of sending */
    int wanted[MODEL_MESSAGES];   /* by the receives, in order of posting */
    int expected[MODEL_MESSAGES]; /* message that each receive gets, -1: none */
} model_t;

/* MPI's rule: a message goes to the earliest receive that fits, a receive takes the earliest
 * message that fits. With one sender the two give the same pairs whatever comes first (all
 * messages prefer receives in the same order, and the other way round), so one model serves for
 * messages that find receives posted and for messages that wait. */
static void model_make(model_t *model, uint64_t seed)
{
    int message, receive;

    for (receive = 0; receive < MODEL_MESSAGES; ++receive) {
        model->tags[receive]     = (int)check_random_range(&seed, 0, MODEL_TAGS - 1);
        model->wanted[receive]   = (check_random(&seed) % 2 != 0) ? MPI_ANY_TAG :
                                   (int)check_random_range(&seed, 0, MODEL_TAGS - 1);
        model->expected[receive] = -1;
    }
    for (message = 0; message < MODEL_MESSAGES; ++message) {
        for (receive = 0; receive < MODEL_MESSAGES; ++receive) {
            if ((model->expected[receive] < 0) &&
                ((model->wanted[receive] == MPI_ANY_TAG) ||
                 (model->wanted[receive] == model->tags[message]))) {
                model->expected[receive] = message;
                break;
            }
        }
    }
}

static void model_send(const model_t *model, uint8_t *out, MPI_Request *sends)
{
    int i;

    for (i = 0; i < MODEL_MESSAGES; ++i) {
        make_message(out + i * MODEL_SIZE, model->tags[i], i, MODEL_SIZE);
        MPI_OK(MPI_Isend(out + i * MODEL_SIZE, MODEL_SIZE, MPI_BYTE, check_partner,
                         model->tags[i], MPI_COMM_WORLD, &sends[i]));
    }
}

/* Posts the receives that will get a message; returns how many will not. */
static int model_receive(const model_t *model, uint8_t *in, MPI_Request *receives)
{
    int i, left = 0;

    for (i = 0; i < MODEL_MESSAGES; ++i) {
        receives[i] = MPI_REQUEST_NULL;
        if (model->expected[i] < 0) {
            left++;
            continue;
        }
        MPI_OK(MPI_Irecv(in + i * MODEL_SIZE, MODEL_SIZE, MPI_BYTE, check_partner,
                         model->wanted[i], MPI_COMM_WORLD, &receives[i]));
    }
    return left;
}

static void model_run(int receives_first, uint64_t seed)
{
    MPI_Request receives[MODEL_MESSAGES], sends[MODEL_MESSAGES];
    MPI_Status statuses[MODEL_MESSAGES];
    uint8_t *in  = check_buffer_alloc(MODEL_MESSAGES * MODEL_SIZE);
    uint8_t *out = check_buffer_alloc(MODEL_MESSAGES * MODEL_SIZE);
    model_t model;
    int i, left;

    model_make(&model, seed);
    if (receives_first) {
        left = model_receive(&model, in, receives);
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        model_send(&model, out, sends);
    } else {
        model_send(&model, out, sends);
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        left = model_receive(&model, in, receives);
    }
    MPI_OK(MPI_Waitall(MODEL_MESSAGES, receives, statuses));
    for (i = 0; i < MODEL_MESSAGES; ++i) {
        if (model.expected[i] >= 0) {
            const head_t head = check_message(in + i * MODEL_SIZE, &statuses[i]);
            CHECK(head.sequence == model.expected[i], "receive %d took message %d, expected %d",
                  i, head.sequence, model.expected[i]);
        }
    }
    for (i = 0; i < left; ++i) {
        MPI_OK(MPI_Recv(in, MODEL_SIZE, MPI_BYTE, check_partner, MPI_ANY_TAG, MPI_COMM_WORLD,
                        &statuses[0]));
        check_message(in, &statuses[0]);
    }
    MPI_OK(MPI_Waitall(MODEL_MESSAGES, sends, MPI_STATUSES_IGNORE));
    check_buffer_free(out);
    check_buffer_free(in);
}

static void model_expected(void)
{
    uint64_t seed;

    for (seed = 1; seed <= MODEL_SEEDS; ++seed) {
        model_run(1, seed);
    }
}

static void model_unexpected(void)
{
    uint64_t seed;

    for (seed = 1; seed <= MODEL_SEEDS; ++seed) {
        model_run(0, seed);
    }
}

/* All send to rank 0, small and large mixed; rank 0 answers each with its sequence number. */
static void many_to_one(void)
{
    static const size_t sizes[] = {sizeof(head_t), 200, 5000, 70000};
    const size_t size_max       = 70000;
    uint8_t *buffer             = check_buffer_alloc(size_max);
    MPI_Status status;
    int i, answer;

    if (check_rank != 0) {
        for (i = 0; i < FUNNEL_MESSAGES; ++i) {
            const size_t size = sizes[(i + check_rank) % 4];
            make_message(buffer, i % 3, i, size);
            MPI_OK(MPI_Send(buffer, (int)size, MPI_BYTE, 0, i % 3, MPI_COMM_WORLD));
        }
        for (i = 0; i < FUNNEL_MESSAGES; ++i) {
            MPI_OK(MPI_Recv(&answer, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(answer == i, "answer %d, expected %d", answer, i);
        }
    } else {
        for (i = 0; i < FUNNEL_MESSAGES * (check_size - 1); ++i) {
            MPI_OK(MPI_Recv(buffer, (int)size_max, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                            MPI_COMM_WORLD, &status));
            answer = check_message(buffer, &status).sequence;
            MPI_OK(MPI_Send(&answer, 1, MPI_INT, status.MPI_SOURCE, 9, MPI_COMM_WORLD));
        }
    }
    check_buffer_free(buffer);
}

/* Sends `count` messages that nobody has asked for, each with its own tag; the other side takes
 * them in reverse. */
static void flood(int count, size_t size_min, size_t size_max, int reverse)
{
    MPI_Request *requests = malloc(count * sizeof(*requests));
    uint8_t *out          = check_buffer_alloc(count * size_max);
    uint8_t *in           = check_buffer_alloc(size_max);
    uint64_t state        = 5 + check_rank;
    MPI_Status status;
    int i;

    for (i = 0; i < count; ++i) {
        const size_t size = check_random_range(&state, size_min, size_max);
        make_message(out + i * size_max, i, i, size);
        MPI_OK(MPI_Isend(out + i * size_max, (int)size, MPI_BYTE, check_partner, i,
                         MPI_COMM_WORLD, &requests[i]));
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (i = 0; i < count; ++i) {
        const int tag = reverse ? count - 1 - i : i;
        MPI_OK(MPI_Recv(in, (int)size_max, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                        &status));
        const head_t head = check_message(in, &status);
        CHECK(head.sequence == tag, "message %d, expected %d", head.sequence, tag);
    }
    MPI_OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    check_buffer_free(in);
    check_buffer_free(out);
    free(requests);
}

static void flood_reverse(void)
{
    flood(FLOOD_MESSAGES, sizeof(head_t), FLOOD_SIZE_MAX, 1);
}

static void flood_in_order(void)
{
    flood(FLOOD_MESSAGES, sizeof(head_t), FLOOD_SIZE_MAX, 0);
}

static void flood_large_reverse(void)
{
    flood(LARGE_MESSAGES, LARGE_SIZE / 10, LARGE_SIZE, 1);
}

/* The same source and tag in two communicators are two streams. */
static void communicators(void)
{
    MPI_Comm other;
    int i, out[2], in;
    MPI_Request requests[2 * MODEL_TAGS];

    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    for (i = 0; i < MODEL_TAGS; ++i) {
        out[0] = 10;
        out[1] = 20;
        MPI_OK(MPI_Isend(&out[0], 1, MPI_INT, check_partner, 3, MPI_COMM_WORLD,
                         &requests[2 * i]));
        MPI_OK(MPI_Isend(&out[1], 1, MPI_INT, check_partner, 3, other, &requests[2 * i + 1]));
    }
    for (i = 0; i < MODEL_TAGS; ++i) {
        MPI_OK(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, MPI_STATUS_IGNORE));
        CHECK(in == 20, "got %d in the second communicator", in);
    }
    for (i = 0; i < MODEL_TAGS; ++i) {
        MPI_OK(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        CHECK(in == 10, "got %d in the first communicator", in);
    }
    MPI_OK(MPI_Waitall(2 * MODEL_TAGS, requests, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Comm_free(&other));
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"wildcard_posted", wildcard_posted},
        {"wildcard_blocking", wildcard_blocking},
        {"wildcard_half", wildcard_half},
        {"model_expected", model_expected},
        {"model_unexpected", model_unexpected},
        {"many_to_one", many_to_one},
        {"flood_reverse", flood_reverse},
        {"flood_in_order", flood_in_order},
        {"flood_large_reverse", flood_large_reverse},
        {"communicators", communicators},
    };

    return check_main(argc, argv, "match", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
