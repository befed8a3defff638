/* Halyard: random MPI traffic among all ranks, from one thread and from several at once.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <pthread.h>

#define ROUNDS          40
#define IN_FLIGHT       24 /* messages of a rank in one round */
#define THREADS         3
#define THREAD_MESSAGES 300

/* Message k of a round, from a rank: where it goes and how long it is. Every rank computes the
 * plans of all others, so it knows what it will receive. */
typedef struct {
    int    dest;
    size_t size;
} plan_t;

static plan_t plan_of(int source, int round, int k)
{
    static const size_t limits[] = {64, 2000, 9000, 40000, 200000, 1500000};
    uint64_t state = ((uint64_t)round << 32) + source * 1000 + k;
    plan_t plan;

    plan.dest = (int)check_random_range(&state, 0, check_size - 1);
    plan.size = check_random_range(&state, 0, limits[check_random_range(&state, 0, 5)]);
    return plan;
}

static uint64_t seed_of(int source, int round, int k)
{
    return ((uint64_t)source << 40) + ((uint64_t)round << 16) + k;
}

typedef struct {
    uint8_t *data;
    size_t  size;
    int     source;
    int     k;
} message_t;

/* Sends and receives of a round are posted in an order of their own on each rank, so that some
 * messages find their receive posted and others do not. */
static void round_run(int round, int late_receives)
{
    const int most        = IN_FLIGHT * check_size;
    message_t *messages   = malloc(most * sizeof(*messages));
    MPI_Request *receives = malloc(most * sizeof(*receives));
    MPI_Request sends[IN_FLIGHT];
    uint8_t *out[IN_FLIGHT];
    int count = 0, source, k, pass, i;

    for (source = 0; source < check_size; ++source) {
        for (k = 0; k < IN_FLIGHT; ++k) {
            const plan_t plan = plan_of(source, round, k);
            if (plan.dest == check_rank) {
                messages[count].data   = check_buffer_alloc(plan.size);
                messages[count].size   = plan.size;
                messages[count].source = source;
                messages[count++].k    = k;
            }
        }
    }
    for (pass = 0; pass < 2; ++pass) {
        if (pass != late_receives) {
            for (i = 0; i < IN_FLIGHT; ++i) {
                const plan_t plan = plan_of(check_rank, round, i);
                out[i]            = check_buffer_alloc(plan.size);
                check_fill(out[i], plan.size, seed_of(check_rank, round, i));
                MPI_OK(MPI_Isend(out[i], (int)plan.size, MPI_BYTE, plan.dest, i, MPI_COMM_WORLD,
                                 &sends[i]));
            }
        } else {
            for (i = count - 1; i >= 0; --i) {
                MPI_OK(MPI_Irecv(messages[i].data, (int)messages[i].size, MPI_BYTE,
                                 messages[i].source, messages[i].k, MPI_COMM_WORLD,
                                 &receives[i]));
            }
        }
    }
    MPI_OK(MPI_Waitall(count, receives, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Waitall(IN_FLIGHT, sends, MPI_STATUSES_IGNORE));
    for (i = 0; i < count; ++i) {
        check_filled(messages[i].data, messages[i].size,
                     seed_of(messages[i].source, round, messages[i].k), "traffic");
        check_buffer_free(messages[i].data);
    }
    for (i = 0; i < IN_FLIGHT; ++i) {
        check_buffer_free(out[i]);
    }
    free(receives);
    free(messages);
}

static void random_pairs(void)
{
    int round;

    for (round = 0; round < ROUNDS; ++round) {
        round_run(round, (round + check_rank) % 2);
    }
}

/* Each thread talks to the thread of the same number in the partner. */
static void *thread_run(void *arg)
{
    const int number = *(const int*)arg;
    uint64_t state   = number;
    int k;

    for (k = 0; k < THREAD_MESSAGES; ++k) {
        const size_t size = check_random_range(&state, 0, ((k % 10) == 0) ? 300000 : 3000);
        const int tag     = number * 1000 + k;
        uint8_t *out      = check_buffer_alloc(size);
        uint8_t *in       = check_buffer_alloc(size);
        MPI_Request requests[2];
        MPI_Status status;

        check_fill(out, size, seed_of(check_rank, number, k));
        if (((k % 2) == 0) || (check_partner == check_rank)) { /* the last of an odd number */
            MPI_OK(MPI_Irecv(in, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                             &requests[0]));
            MPI_OK(MPI_Isend(out, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                             &requests[1]));
            MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        } else if (check_rank < check_partner) {
            MPI_OK(MPI_Send(out, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD));
            MPI_OK(MPI_Recv(in, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                            &status));
        } else {
            MPI_OK(MPI_Recv(in, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                            &status));
            MPI_OK(MPI_Send(out, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD));
        }
        check_filled(in, size, seed_of(check_partner, number, k), "thread");
        check_buffer_free(in);
        check_buffer_free(out);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t handles[THREADS];
    int numbers[THREADS], i;

    if (check_thread_level() < MPI_THREAD_MULTIPLE) {
        check_skip("MPI provides no MPI_THREAD_MULTIPLE");
        return;
    }
    for (i = 0; i < THREADS; ++i) {
        numbers[i] = i;
        CHECK(pthread_create(&handles[i], NULL, thread_run, &numbers[i]) == 0, "no thread");
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(handles[i], NULL);
    }
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"random_pairs", random_pairs},
        {"threads", threads},
    };

    return check_main(argc, argv, "traffic", MPI_THREAD_MULTIPLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
