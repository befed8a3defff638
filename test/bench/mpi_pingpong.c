/* Halyard: one-way time of MPI messages between two ranks, and the time of MPI_Init.
 *
 *   mpi_pingpong [SIZE...]     prints "SIZE MICROSECONDS" for each, "init MILLISECONDS" first
 *
 * The figure is the least of several rounds: what else runs on the machine only adds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS  20
#define ROUND_S 0.02

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Seconds of `count` messages there and back. */
static double exchange_s(char *buffer, int size, int rank, int count)
{
    double start;
    int i;

    MPI_Barrier(MPI_COMM_WORLD);
    start = now_s();
    for (i = 0; i < count; ++i) {
        if (rank == 0) {
            MPI_Send(buffer, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    return now_s() - start;
}

static double one_way_us(int size, int rank)
{
    char *buffer = malloc(size > 0 ? size : 1);
    double least = 1e9, once;
    int count = 10, round;

    memset(buffer, 1, size);
    once  = exchange_s(buffer, size, rank, count) / count;
    count = (int)(ROUND_S / once) + 1;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (round = 0; round < ROUNDS; ++round) {
        once  = exchange_s(buffer, size, rank, count) / count / 2 * 1e6;
        least = (once < least) ? once : least;
    }
    free(buffer);
    return least;
}

int main(int argc, char **argv)
{
    double start = now_s(), init_s, us;
    int rank, ranks, i;

    MPI_Init(&argc, &argv);
    init_s = now_s() - start;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        fprintf(stderr, "mpi_pingpong: two ranks are needed\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Allreduce(MPI_IN_PLACE, &init_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("init %.2f\n", init_s * 1e3);
    }
    for (i = 1; i < argc; ++i) {
        us = one_way_us(atoi(argv[i]), rank);
        if (rank == 0) {
            printf("%s %.3f\n", argv[i], us);
        }
    }
    MPI_Finalize();
    return 0;
}
