/* Halyard: MPI processes that are started, or meet, while the job runs: spawn, accept and connect.
 *
 * A started process is this program with the argument "child": it says what it found wrong by a
 * sum over all.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define ROUNDS 3

/* Of two processes that start at once one waits in MPI_Init for ever, now and then, with Debian's
   Open MPI 4.1.4 and PMIx 4.2.2: mpirun never answers it. So without any UCX (pml ob1): 3 runs of
   133; one process at a time: 2 of some 500. */
#if defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION < 5)
#define CHILDREN 1
#else
#define CHILDREN 2
#endif

static char *g_program; /* by which it was started */

/* Debian's MPICH 4.0.2 refuses all of this, over any UCX. */
#if defined(MPICH_NUMVERSION) && (MPICH_NUMVERSION < 40100000)
#define IS_REFUSED 1
#else
#define IS_REFUSED 0
#endif

static const size_t sizes[] = {0, 8, 400, 20000, 400000, 4000000};

#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Each of one group with each of the other, both ways at once. */
static void exchange(MPI_Comm inter)
{
    int me = 0, count = 0, i;
    MPI_Request *requests;
    uint8_t *sent, **received;
    size_t k;

    MPI_OK(MPI_Comm_rank(inter, &me));
    MPI_OK(MPI_Comm_remote_size(inter, &count));
    requests = malloc(2 * (size_t)count * sizeof(*requests));
    received = malloc((size_t)count * sizeof(*received));
    for (k = 0; k < NUM_SIZES; ++k) {
        sent = check_buffer_alloc(sizes[k]);
        check_fill(sent, sizes[k], (uint64_t)me);
        for (i = 0; i < count; ++i) {
            received[i] = check_buffer_alloc(sizes[k]);
            MPI_OK(MPI_Irecv(received[i], (int)sizes[k], MPI_BYTE, i, (int)k, inter,
                             &requests[i]));
        }
        for (i = 0; i < count; ++i) {
            MPI_OK(MPI_Isend(sent, (int)sizes[k], MPI_BYTE, i, (int)k, inter,
                             &requests[count + i]));
        }
        MPI_OK(MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE));
        for (i = 0; i < count; ++i) {
            check_filled(received[i], sizes[k], (uint64_t)i, "from the other group");
            check_buffer_free(received[i]);
        }
        check_buffer_free(sent);
    }
    free(received);
    free(requests);
}

/* What all processes of both groups find wrong, in one communicator of both. */
static int sum_of_all(MPI_Comm inter, int is_high, int value, int size_expected)
{
    int sum = -1, size = 0;
    MPI_Comm intra;

    MPI_OK(MPI_Intercomm_merge(inter, is_high, &intra));
    MPI_OK(MPI_Comm_size(intra, &size));
    CHECK((size_expected == 0) || (size == size_expected), "%d processes in all", size);
    MPI_OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, intra));
    MPI_OK(MPI_Comm_free(&intra));
    return sum;
}

/* ---- started processes ---- */

static int child_main(int argc, char **argv)
{
    MPI_Comm parent;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_ARE_FATAL);
    exchange(parent);
    (void)sum_of_all(parent, 1, check_failures(), 0);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

static void start_processes(void)
{
    char child[]      = "child";
    char *arguments[] = {child, NULL};
    int codes[CHILDREN], sum, i;
    MPI_Comm inter;

    if (IS_REFUSED) {
        check_skip("this MPI starts no processes");
        return;
    }
    for (i = 0; i < ROUNDS; ++i) {
        MPI_OK(MPI_Comm_spawn(g_program, arguments, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                              &inter, codes));
        exchange(inter);
        sum = sum_of_all(inter, 0, 0, check_size + CHILDREN);
        CHECK(sum == 0, "children found %d errors", sum);
        MPI_OK(MPI_Comm_disconnect(&inter));
    }
}

/* ---- two groups that meet ---- */

static void accept_and_connect(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    int i;

    if (IS_REFUSED || (check_size < 2)) {
        check_skip("one process, or this MPI connects none");
        return;
    }
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, check_rank % 2, check_rank, &half));
    for (i = 0; i < ROUNDS; ++i) {
        if (check_rank == 0) {
            MPI_OK(MPI_Open_port(MPI_INFO_NULL, port));
        }
        MPI_OK(MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD));
        if (check_rank % 2 == 0) {
            MPI_OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter));
        } else {
            MPI_OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter));
        }
        exchange(inter);
        CHECK(sum_of_all(inter, check_rank % 2, 1, check_size) == check_size, "wrong sum");
        MPI_OK(MPI_Comm_disconnect(&inter));
        if (check_rank == 0) {
            MPI_OK(MPI_Close_port(port));
        }
    }
    MPI_OK(MPI_Comm_free(&half));
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"start_processes", start_processes},
        {"accept_and_connect", accept_and_connect},
    };

    if ((argc > 1) && (strcmp(argv[1], "child") == 0)) {
        return child_main(argc, argv);
    }
    g_program = argv[0];
    return check_main(argc, argv, "dynamic", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
