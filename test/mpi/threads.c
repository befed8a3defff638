/* Halyard: MPI_THREAD_MULTIPLE: every thread of every rank sends, probes, takes part in
 * collectives and reaches into windows at the same time.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <pthread.h>

#define THREADS    3
#define MESSAGES   60
#define ROUNDS     15
#define SIZE_MAX_B 40000

typedef struct {
    pthread_t handle;
    int       number;
    MPI_Comm  comm; /* of this thread and those of the same number in other ranks */
    MPI_Win   win;
    int64_t   *base;
} thread_t;

static MPI_Comm g_shared_comm;
static int g_taken;
static pthread_mutex_t g_taken_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t size_of(int thread, int k)
{
    uint64_t state = thread * 1000 + k;

    return (k % 3 == 0) ? check_random_range(&state, 0, 200) :
                          check_random_range(&state, 0, SIZE_MAX_B);
}

static uint64_t seed_of(int rank, int thread, int k)
{
    return ((uint64_t)rank * THREADS + thread) * MESSAGES + k;
}

/* Runs a function in THREADS threads, each with a communicator of its own. */
static void run_threads(void *(*function)(void*))
{
    thread_t threads[THREADS];
    int i;

    if (check_thread_level() < MPI_THREAD_MULTIPLE) {
        check_skip("MPI provides no MPI_THREAD_MULTIPLE");
        return;
    }
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &g_shared_comm));
    g_taken = 0;
    for (i = 0; i < THREADS; ++i) {
        threads[i].number = i;
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm));
        MPI_OK(MPI_Win_allocate(64, sizeof(int64_t), MPI_INFO_NULL, threads[i].comm,
                                &threads[i].base, &threads[i].win));
        memset(threads[i].base, 0, 64);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (i = 0; i < THREADS; ++i) {
        if (pthread_create(&threads[i].handle, NULL, function, &threads[i]) != 0) {
            fprintf(stderr, "threads: no thread could be made\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i].handle, NULL);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (i = 0; i < THREADS; ++i) {
        MPI_OK(MPI_Win_free(&threads[i].win));
        MPI_OK(MPI_Comm_free(&threads[i].comm));
    }
    MPI_OK(MPI_Comm_free(&g_shared_comm));
}

/* Thread t of each rank exchanges with thread t of the next and the previous rank. */
static void *exchange_thread(void *argument)
{
    thread_t *t    = argument;
    const int next = (check_rank + 1) % check_size;
    const int from = (check_rank + check_size - 1) % check_size;
    uint8_t *out = check_buffer_alloc(SIZE_MAX_B), *in = check_buffer_alloc(SIZE_MAX_B);
    MPI_Request requests[2];
    MPI_Status status;
    int k, count;

    for (k = 0; k < MESSAGES; ++k) {
        const size_t size = size_of(t->number, k);
        const int tag     = k * THREADS + t->number;

        check_fill(out, size, seed_of(check_rank, t->number, k));
        memset(in, 0, size);
        MPI_OK(MPI_Irecv(in, SIZE_MAX_B, MPI_BYTE, (k % 2) ? from : MPI_ANY_SOURCE, tag,
                         g_shared_comm, &requests[0]));
        if (k % 5 == 0) {
            MPI_OK(MPI_Issend(out, (int)size, MPI_BYTE, next, tag, g_shared_comm, &requests[1]));
        } else {
            MPI_OK(MPI_Isend(out, (int)size, MPI_BYTE, next, tag, g_shared_comm, &requests[1]));
        }
        MPI_OK(MPI_Wait(&requests[0], &status));
        MPI_OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        MPI_OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK((count == (int)size) && (status.MPI_SOURCE == from), "%d bytes of %zu from %d",
              count, size, status.MPI_SOURCE);
        check_filled(in, size, seed_of(from, t->number, k), "exchange");
    }
    check_buffer_free(in);
    check_buffer_free(out);
    return NULL;
}

static void exchange(void)
{
    run_threads(exchange_thread);
}

/* All threads of a rank take messages of one tag by matched probes: each message goes to one. */
static void *take_thread(void *argument)
{
    thread_t *t         = argument;
    const int next      = (check_rank + 1) % check_size;
    uint8_t *in         = check_buffer_alloc(SIZE_MAX_B);
    uint8_t *out        = check_buffer_alloc(SIZE_MAX_B);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message;
    MPI_Status status;
    int sent = 0, all_taken = 0, flag, count, head[2];

    while ((sent < MESSAGES) || (request != MPI_REQUEST_NULL) || !all_taken) {
        if (request != MPI_REQUEST_NULL) {
            MPI_OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        } else if (sent < MESSAGES) {
            const size_t size = size_of(t->number, sent) + sizeof(head);
            head[0]           = t->number;
            head[1]           = sent;
            memcpy(out, head, sizeof(head));
            check_fill(out + sizeof(head), size - sizeof(head),
                       seed_of(check_rank, t->number, sent));
            MPI_OK(MPI_Isend(out, (int)size, MPI_BYTE, next, 7, g_shared_comm, &request));
            sent++;
        }
        MPI_OK(MPI_Improbe(MPI_ANY_SOURCE, 7, g_shared_comm, &flag, &message, &status));
        if (flag) {
            MPI_OK(MPI_Get_count(&status, MPI_BYTE, &count));
            MPI_OK(MPI_Mrecv(in, count, MPI_BYTE, &message, &status));
            memcpy(head, in, sizeof(head));
            CHECK((head[0] >= 0) && (head[0] < THREADS) &&
                  (count == (int)(size_of(head[0], head[1]) + sizeof(head))),
                  "message %d of thread %d has %d bytes", head[1], head[0], count);
            check_filled(in + sizeof(head), count - sizeof(head),
                         seed_of(status.MPI_SOURCE, head[0], head[1]), "taken");
        }
        pthread_mutex_lock(&g_taken_lock);
        g_taken  += flag;
        all_taken = (g_taken == THREADS * MESSAGES);
        pthread_mutex_unlock(&g_taken_lock);
    }
    check_buffer_free(out);
    check_buffer_free(in);
    return NULL;
}

static void matched_probes(void)
{
    run_threads(take_thread);
}

static void *collective_thread(void *argument)
{
    thread_t *t = argument;
    int i, k, *in = calloc(check_size, sizeof(int)), out[400], sum[400];
    MPI_Request request;

    for (i = 0; i < ROUNDS; ++i) {
        k = check_rank * 10 + t->number + i;
        MPI_OK(MPI_Allgather(&k, 1, MPI_INT, in, 1, MPI_INT, t->comm));
        for (k = 0; (k < check_size) && (in[k] == k * 10 + t->number + i); ++k) {
        }
        CHECK(k == check_size, "thread %d, round %d: rank %d gave %d", t->number, i, k,
              in[k % check_size]);
        for (k = 0; k < 400; ++k) {
            out[k] = check_rank + t->number * k;
        }
        MPI_OK(MPI_Iallreduce(out, sum, 400, MPI_INT, MPI_SUM, t->comm, &request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (k = 0; k < 400; ++k) {
            if (sum[k] != check_size * (check_size - 1) / 2 + check_size * t->number * k) {
                break;
            }
        }
        CHECK(k == 400, "thread %d, round %d: sum %d is %d", t->number, i, k, sum[k % 400]);
        k = (check_rank == i % check_size) ? 1000 + i : -1;
        MPI_OK(MPI_Bcast(&k, 1, MPI_INT, i % check_size, t->comm));
        CHECK(k == 1000 + i, "thread %d, round %d: %d", t->number, i, k);
    }
    free(in);
    return NULL;
}

static void collectives(void)
{
    run_threads(collective_thread);
}

/* Each thread raises a counter in its own window at every rank, by locks and by fetch and add. */
static void *window_thread(void *argument)
{
    const int64_t one = 1;
    thread_t *t       = argument;
    int64_t old, value;
    int i, target;

    for (i = 0; i < ROUNDS; ++i) {
        for (target = 0; target < check_size; ++target) {
            MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, t->win));
            MPI_OK(MPI_Fetch_and_op(&one, &old, MPI_INT64_T, target, 0, MPI_SUM, t->win));
            MPI_OK(MPI_Win_unlock(target, t->win));
            CHECK((old >= 0) && (old < ROUNDS * check_size), "fetched %lld", (long long)old);
            MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, t->win));
            MPI_OK(MPI_Get(&value, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, t->win));
            MPI_OK(MPI_Win_flush(target, t->win));
            value++;
            MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, t->win));
            MPI_OK(MPI_Win_unlock(target, t->win));
        }
    }
    MPI_OK(MPI_Barrier(t->comm));
    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, check_rank, 0, t->win));
    CHECK(t->base[0] == ROUNDS * check_size, "fetch and add: %lld", (long long)t->base[0]);
    CHECK(t->base[1] == ROUNDS * check_size, "with locks: %lld", (long long)t->base[1]);
    MPI_OK(MPI_Win_unlock(check_rank, t->win));
    return NULL;
}

static void windows(void)
{
    run_threads(window_thread);
}

/* Every thread does something else at the same time, on the same communicators. */
static void *mixed_thread(void *argument)
{
    thread_t *t = argument;

    switch (t->number % 3) {
    case 0:
        return exchange_thread(t);
    case 1:
        return collective_thread(t);
    default:
        return window_thread(t);
    }
}

static void mixed(void)
{
    run_threads(mixed_thread);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"exchange", exchange},
        {"matched_probes", matched_probes},
        {"collectives", collectives},
        {"windows", windows},
        {"mixed", mixed},
    };

    return check_main(argc, argv, "threads", MPI_THREAD_MULTIPLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
