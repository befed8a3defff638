/* Halyard: MPI collectives as a user of messages among all ranks, blocking and not.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

static const int counts[] = {1, 7, 500, 5000, 60000};

#define NUM_COUNTS (int)(sizeof(counts) / sizeof(counts[0]))
#define COUNT_MAX  60000

/* The value that rank contributes at a place. */
static int value_of(int rank, int place)
{
    return rank * 1009 + place * 7 + 1;
}

static int *ints(int count)
{
    return check_buffer_alloc(count * sizeof(int));
}

static void fill(int *data, int count, int rank)
{
    int i;

    for (i = 0; i < count; ++i) {
        data[i] = value_of(rank, i);
    }
}

static void check_values(const int *data, int count, int rank, int first, const char *what)
{
    int i;

    for (i = 0; (i < count) && (data[i] == value_of(rank, first + i)); ++i) {
    }
    CHECK(i == count, "%s: place %d of %d holds %d, expected %d", what, i, count,
          data[i < count ? i : 0], value_of(rank, first + i));
}

static void check_sums(const int *data, int count, int ranks, int first, const char *what)
{
    const int rank_sum = ranks * (ranks - 1) / 2 * 1009;
    int i;

    for (i = 0; i < count; ++i) {
        if (data[i] != rank_sum + ranks * ((first + i) * 7 + 1)) {
            break;
        }
    }
    CHECK(i == count, "%s: place %d of %d holds %d, expected %d", what, i, count,
          data[i < count ? i : 0], rank_sum + ranks * ((first + i) * 7 + 1));
}

/* Nobody leaves a barrier before all have entered: each rank tells the others that it entered. */
static void barrier(void)
{
    int i, dest, flag, token = 0, received;
    MPI_Request *requests = malloc(check_size * sizeof(*requests));
    MPI_Status status;

    for (i = 0; i < 20; ++i) {
        for (dest = 0; dest < check_size; ++dest) {
            MPI_OK(MPI_Isend(&token, 1, MPI_INT, dest, i, MPI_COMM_WORLD, &requests[dest]));
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        for (dest = 0; dest < check_size; ++dest) {
            MPI_OK(MPI_Recv(&received, 1, MPI_INT, dest, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        MPI_OK(MPI_Waitall(check_size, requests, MPI_STATUSES_IGNORE));
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag, "message %d is left", i);
    }
    free(requests);
}

static void broadcast(void)
{
    int *data = ints(COUNT_MAX), n, root;

    for (n = 0; n < NUM_COUNTS; ++n) {
        for (root = 0; root < check_size; ++root) {
            memset(data, 0, counts[n] * sizeof(int));
            if (check_rank == root) {
                fill(data, counts[n], root);
            }
            MPI_OK(MPI_Bcast(data, counts[n], MPI_INT, root, MPI_COMM_WORLD));
            check_values(data, counts[n], root, 0, "bcast");
        }
    }
    check_buffer_free(data);
}

static void reduce(void)
{
    int *out = ints(COUNT_MAX), *in = ints(COUNT_MAX), n;
    double mine, most;

    for (n = 0; n < NUM_COUNTS; ++n) {
        fill(out, counts[n], check_rank);
        memset(in, 0, counts[n] * sizeof(int));
        MPI_OK(MPI_Allreduce(out, in, counts[n], MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        check_sums(in, counts[n], check_size, 0, "allreduce");

        memset(in, 0, counts[n] * sizeof(int));
        MPI_OK(MPI_Reduce(out, in, counts[n], MPI_INT, MPI_SUM, n % check_size, MPI_COMM_WORLD));
        if (check_rank == n % check_size) {
            check_sums(in, counts[n], check_size, 0, "reduce");
        }

        memset(in, 0, counts[n] * sizeof(int));
        MPI_OK(MPI_Scan(out, in, counts[n], MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        check_sums(in, counts[n], check_rank + 1, 0, "scan");

        MPI_OK(MPI_Allreduce(MPI_IN_PLACE, out, counts[n], MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        check_sums(out, counts[n], check_size, 0, "allreduce in place");
    }
    mine = 1.5 * check_rank;
    MPI_OK(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    CHECK(most == 1.5 * (check_size - 1), "maximum is %g", most);
    check_buffer_free(in);
    check_buffer_free(out);
}

static void reduce_scatter(void)
{
    const int count = 3000;
    int *out = ints(count * check_size), *in = ints(count);

    fill(out, count * check_size, check_rank);
    MPI_OK(MPI_Reduce_scatter_block(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    check_sums(in, count, check_size, count * check_rank, "reduce_scatter_block");
    check_buffer_free(in);
    check_buffer_free(out);
}

static void gather_scatter(void)
{
    int *part = ints(COUNT_MAX), *whole = ints(COUNT_MAX * check_size), n, rank;

    for (n = 0; n < NUM_COUNTS; ++n) {
        const int count = counts[n], root = n % check_size;
        fill(part, count, check_rank);
        memset(whole, 0, (size_t)count * check_size * sizeof(int));
        MPI_OK(MPI_Gather(part, count, MPI_INT, whole, count, MPI_INT, root, MPI_COMM_WORLD));
        for (rank = 0; (check_rank == root) && (rank < check_size); ++rank) {
            check_values(whole + (size_t)rank * count, count, rank, 0, "gather");
        }
        memset(part, 0, count * sizeof(int));
        MPI_OK(MPI_Scatter(whole, count, MPI_INT, part, count, MPI_INT, root, MPI_COMM_WORLD));
        check_values(part, count, check_rank, 0, "scatter");
        memset(whole, 0, (size_t)count * check_size * sizeof(int));
        MPI_OK(MPI_Allgather(part, count, MPI_INT, whole, count, MPI_INT, MPI_COMM_WORLD));
        for (rank = 0; rank < check_size; ++rank) {
            check_values(whole + (size_t)rank * count, count, rank, 0, "allgather");
        }
    }
    check_buffer_free(whole);
    check_buffer_free(part);
}

static void all_to_all(void)
{
    int *out = ints(COUNT_MAX * check_size), *in = ints(COUNT_MAX * check_size), n, rank;

    for (n = 0; n < NUM_COUNTS; ++n) {
        const int count = counts[n];
        fill(out, count * check_size, check_rank);
        memset(in, 0, (size_t)count * check_size * sizeof(int));
        MPI_OK(MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD));
        for (rank = 0; rank < check_size; ++rank) {
            check_values(in + (size_t)rank * count, count, rank, count * check_rank, "alltoall");
        }
    }
    check_buffer_free(in);
    check_buffer_free(out);
}

/* Different counts for each pair of ranks, some of them zero. */
static void all_to_all_varied(void)
{
    int *send_counts = calloc(check_size, sizeof(int));
    int *recv_counts = calloc(check_size, sizeof(int));
    int *send_places = calloc(check_size, sizeof(int));
    int *recv_places = calloc(check_size, sizeof(int));
    int sent = 0, received = 0, rank, *out, *in;

    for (rank = 0; rank < check_size; ++rank) {
        send_counts[rank] = ((check_rank + rank) % 3) * 4000;
        recv_counts[rank] = send_counts[rank];
        send_places[rank] = sent;
        recv_places[rank] = received;
        sent             += send_counts[rank];
        received         += recv_counts[rank];
    }
    out = ints(sent);
    in  = ints(received);
    for (rank = 0; rank < check_size; ++rank) {
        fill(out + send_places[rank], send_counts[rank], check_rank + 10 * rank);
    }
    MPI_OK(MPI_Alltoallv(out, send_counts, send_places, MPI_INT, in, recv_counts, recv_places,
                         MPI_INT, MPI_COMM_WORLD));
    for (rank = 0; rank < check_size; ++rank) {
        check_values(in + recv_places[rank], recv_counts[rank], rank + 10 * check_rank, 0,
                     "alltoallv");
    }
    check_buffer_free(in);
    check_buffer_free(out);
    free(recv_places);
    free(send_places);
    free(recv_counts);
    free(send_counts);
}

/* Several at the same time, completed together, messages of the pairs in between. */
static void nonblocking(void)
{
    const int count = 4000;
    int *all = ints(count), *sum = ints(count), *mine = ints(count), *cast = ints(count);
    int token_out = check_rank, token_in = -1, i;
    MPI_Request requests[5];

    for (i = 0; i < 10; ++i) {
        fill(mine, count, check_rank);
        fill(cast, count, (check_rank == 0) ? 0 : 99);
        MPI_OK(MPI_Iallreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
        MPI_OK(MPI_Irecv(&token_in, 1, MPI_INT, check_partner, 5, MPI_COMM_WORLD, &requests[1]));
        MPI_OK(MPI_Ibcast(cast, count, MPI_INT, 0, MPI_COMM_WORLD, &requests[2]));
        MPI_OK(MPI_Isend(&token_out, 1, MPI_INT, check_partner, 5, MPI_COMM_WORLD,
                         &requests[3]));
        MPI_OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[4]));
        MPI_OK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
        check_sums(sum, count, check_size, 0, "iallreduce");
        check_values(cast, count, 0, 0, "ibcast");
        CHECK(token_in == check_partner, "token %d", token_in);
    }
    check_buffer_free(cast);
    check_buffer_free(mine);
    check_buffer_free(sum);
    check_buffer_free(all);
}

/* Communicators made, used and freed again and again. */
static void communicators(void)
{
    MPI_Comm half, copy;
    const int parity = check_rank % 2, halves = (check_size + 1 - parity) / 2;
    int i, sum, size, rank;

    for (i = 0; i < 30; ++i) {
        MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, parity, -check_rank, &half));
        MPI_OK(MPI_Comm_size(half, &size));
        MPI_OK(MPI_Comm_rank(half, &rank));
        CHECK(size == halves, "half has %d ranks", size);
        CHECK(rank == halves - 1 - check_rank / 2, "rank %d in the half", rank);
        MPI_OK(MPI_Comm_dup(half, &copy));
        MPI_OK(MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, copy));
        CHECK(sum == halves * (halves - 1) + parity * size, "sum %d in the half", sum);
        MPI_OK(MPI_Comm_free(&copy));
        MPI_OK(MPI_Comm_free(&half));
    }
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"barrier", barrier},
        {"broadcast", broadcast},
        {"reduce", reduce},
        {"reduce_scatter", reduce_scatter},
        {"gather_scatter", gather_scatter},
        {"all_to_all", all_to_all},
        {"all_to_all_varied", all_to_all_varied},
        {"nonblocking", nonblocking},
        {"communicators", communicators},
    };

    return check_main(argc, argv, "collective", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
