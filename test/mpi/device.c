/* Halyard: MPI messages between memory of GPUs, of every kind that the driver has. The MPI library
 * need know nothing of GPUs: pml ucx hands the addresses on.
 *
 * Without a driver only the case of host memory runs.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"
#include "../../src/tools/perf/device.h"

#define LENGTH_MAX ((4u << 20) + 64)
#define ROUNDS     3

static const size_t lengths[] = {1, 8, 63, 256, 4096, 65537, (1 << 20) + 3, 4 << 20};

#define LENGTH_COUNT (sizeof(lengths) / sizeof(lengths[0]))

static perf_device_t device;

/* 1 if all ranks have one; else the case is skipped on all alike. */
static int have_device(void)
{
    int mine, all = 0;

    mine = device.is_open || (perf_device_open(&device, -1, (unsigned)check_rank) == 0);
    MPI_OK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (!all) {
        check_skip(mine ? "another rank has no device" : device.problem);
    }
    return all;
}

static void put(void *place, const uint8_t *bytes, size_t length)
{
    CHECK(perf_memory_copy(&device, place, bytes, length) == 0, "copy: %s", device.problem);
}

static void expect(const void *place, uint8_t *scratch, size_t length, uint64_t seed)
{
    memset(scratch, 0, length);
    CHECK(perf_memory_copy(&device, scratch, place, length) == 0, "copy: %s", device.problem);
    check_filled(scratch, length, seed, "device");
}

/* Back and forth, one by one and both at once. */
static void exchange(uint8_t *out, uint8_t *in, uint8_t *scratch, size_t length, uint64_t seed)
{
    const int count = (int)length, is_first = check_rank < check_partner;
    MPI_Request requests[2];
    int turn;

    for (turn = 0; turn < 2; ++turn) {
        if (turn == !is_first) {
            check_fill(scratch, length, seed + (uint64_t)check_rank);
            put(out, scratch, length);
            MPI_OK(MPI_Send(out, count, MPI_BYTE, check_partner, 1, MPI_COMM_WORLD));
        } else {
            MPI_OK(MPI_Recv(in, count, MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            expect(in, scratch, length, seed + (uint64_t)check_partner);
        }
    }
    check_fill(scratch, length, seed + 16 + (uint64_t)check_rank);
    put(out, scratch, length);
    MPI_OK(MPI_Irecv(in, count, MPI_BYTE, check_partner, 2, MPI_COMM_WORLD, &requests[0]));
    MPI_OK(MPI_Isend(out, count, MPI_BYTE, check_partner, 2, MPI_COMM_WORLD, &requests[1]));
    MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    expect(in, scratch, length, seed + 16 + (uint64_t)check_partner);
}

/* Pairs of kinds: the first of the pair has one, the second the other. A kind that a driver lacks
 * makes the case one that is skipped. */
static void run_kinds(perf_memory_t first, perf_memory_t second)
{
    const perf_memory_t kind = (check_rank < check_partner) ? first : second;
    uint8_t *scratch = malloc(LENGTH_MAX), *out, *in;
    int mine, all = 0, round;
    size_t i;

    out  = perf_memory_alloc(&device, kind, LENGTH_MAX);
    in   = perf_memory_alloc(&device, kind, LENGTH_MAX);
    mine = (scratch != NULL) && (out != NULL) && (in != NULL);
    MPI_OK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (!all) {
        check_skip(mine ? "another rank cannot allocate it" : device.problem);
    }
    for (i = 0; all && (i < LENGTH_COUNT); ++i) {
        for (round = 0; round < ROUNDS; ++round) {
            exchange(out + round, in + round, scratch, lengths[i], 100 * i + 40 * (uint64_t)round);
        }
    }
    if (out != NULL) {
        perf_memory_release(&device, kind, out, LENGTH_MAX);
    }
    if (in != NULL) {
        perf_memory_release(&device, kind, in, LENGTH_MAX);
    }
    free(scratch);
}

#define CASE(_name, _first, _second) \
    static void _name(void) \
    { \
        if (have_device()) { \
            run_kinds(PERF_MEMORY_##_first, PERF_MEMORY_##_second); \
        } \
    }

static void host(void)
{
    run_kinds(PERF_MEMORY_HOST, PERF_MEMORY_HOST);
}

CASE(cuda, CUDA, CUDA)
CASE(cuda_host, CUDA, HOST)
CASE(host_cuda, HOST, CUDA)
CASE(managed, MANAGED, MANAGED)
CASE(managed_cuda, MANAGED, CUDA)
CASE(async, ASYNC, ASYNC)
CASE(pool, POOL, POOL)
CASE(vmm, VMM, VMM)
CASE(vmm_private, VMM_PRIVATE, VMM_PRIVATE)
CASE(vmm_pieces, VMM_PIECES, VMM_PIECES)
CASE(pinned_cuda, PINNED, CUDA)
CASE(registered_async, REGISTERED, ASYNC)

/* The root's bytes reach everybody's memory. */
static void broadcast(void)
{
    uint8_t *scratch = malloc(LENGTH_MAX), *buffer;
    size_t i;

    if (!have_device()) {
        free(scratch);
        return;
    }
    buffer = perf_memory_alloc(&device, PERF_MEMORY_CUDA, LENGTH_MAX);
    CHECK(buffer != NULL, "alloc: %s", device.problem);
    for (i = 0; (buffer != NULL) && (i < LENGTH_COUNT); ++i) {
        check_fill(scratch, lengths[i], (check_rank == 0) ? i : 77);
        put(buffer, scratch, lengths[i]);
        MPI_OK(MPI_Bcast(buffer, (int)lengths[i], MPI_BYTE, 0, MPI_COMM_WORLD));
        expect(buffer, scratch, lengths[i], i);
    }
    if (buffer != NULL) {
        perf_memory_release(&device, PERF_MEMORY_CUDA, buffer, LENGTH_MAX);
    }
    free(scratch);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"host", host},
        {"cuda", cuda},
        {"cuda_and_host", cuda_host},
        {"host_and_cuda", host_cuda},
        {"managed", managed},
        {"managed_and_cuda", managed_cuda},
        {"default_pool", async},
        {"exportable_pool", pool},
        {"vmm", vmm},
        {"vmm_not_exportable", vmm_private},
        {"vmm_two_pieces", vmm_pieces},
        {"pinned_and_cuda", pinned_cuda},
        {"registered_and_default_pool", registered_async},
        {"broadcast", broadcast},
    };

    return check_main(argc, argv, "device", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
