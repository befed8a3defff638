/* Halyard: MPI messages of every size, back and forth between pairs, each byte checked.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define SIZE_MAX_LOG2 24
#define WINDOW        16

/* 0, and around each power of two up to 16 MiB */
static size_t size_at(size_t index)
{
    return (index == 0) ? 0 : ((size_t)1 << ((index - 1) / 3)) - 1 + (index - 1) % 3;
}

static size_t size_count(void)
{
    return 1 + 3 * (SIZE_MAX_LOG2 + 1);
}

static int repeat_of(size_t size)
{
    return (size <= 4096) ? 10 : (size <= (1 << 20)) ? 3 : 1;
}

static uint64_t seed_of(int sender, size_t size, int repeat)
{
    return ((uint64_t)sender << 40) + (size << 4) + repeat;
}

static void check_status(const MPI_Status *status, size_t size, int tag)
{
    int count = -1;

    MPI_OK(MPI_Get_count(status, MPI_BYTE, &count));
    CHECK((size_t)count == size, "received %d bytes of %zu", count, size);
    CHECK(status->MPI_SOURCE == check_partner, "source %d", status->MPI_SOURCE);
    CHECK(status->MPI_TAG == tag, "tag %d, expected %d", status->MPI_TAG, tag);
}

static void blocking(void)
{
    MPI_Status status;
    size_t i;
    int k;

    for (i = 0; i < size_count(); ++i) {
        const size_t size = size_at(i);
        uint8_t *out      = check_buffer_alloc(size);
        uint8_t *in       = check_buffer_alloc(size);

        for (k = 0; k < repeat_of(size); ++k) {
            const int tag = (int)i * 16 + k;
            memset(in, 0, size);
            check_fill(out, size, seed_of(check_rank, size, k));
            if (check_rank < check_partner) {
                MPI_OK(MPI_Send(out, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD));
                MPI_OK(MPI_Recv(in, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                                &status));
            } else {
                MPI_OK(MPI_Recv(in, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD,
                                &status));
                MPI_OK(MPI_Send(out, (int)size, MPI_BYTE, check_partner, tag, MPI_COMM_WORLD));
            }
            check_status(&status, size, tag);
            check_filled(in, size, seed_of(check_partner, size, k), "blocking");
        }
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* Both sides send and receive at the same time. */
static void nonblocking(void)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    size_t i;
    int k;

    for (i = 0; i < size_count(); ++i) {
        const size_t size = size_at(i);
        uint8_t *out      = check_buffer_alloc(size);
        uint8_t *in       = check_buffer_alloc(size);

        for (k = 0; k < repeat_of(size); ++k) {
            memset(in, 0, size);
            check_fill(out, size, seed_of(check_rank, size, k));
            MPI_OK(MPI_Irecv(in, (int)size, MPI_BYTE, check_partner, k, MPI_COMM_WORLD,
                             &requests[0]));
            MPI_OK(MPI_Isend(out, (int)size, MPI_BYTE, check_partner, k, MPI_COMM_WORLD,
                             &requests[1]));
            MPI_OK(MPI_Waitall(2, requests, statuses));
            check_status(&statuses[0], size, k);
            check_filled(in, size, seed_of(check_partner, size, k), "nonblocking");
        }
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* Many in flight in one direction, then in the other, at sizes around the change of protocols. */
static void window(void)
{
    static const size_t sizes[] = {0, 8, 1000, 8192, 65536, 300000};
    MPI_Request requests[WINDOW];
    uint8_t *buffers[WINDOW];
    size_t i;
    int k, direction;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        const int size = (int)sizes[i];

        for (direction = 0; direction < 2; ++direction) {
            const int sends = ((check_rank < check_partner) == (direction == 0));
            for (k = 0; k < WINDOW; ++k) {
                buffers[k] = check_buffer_alloc(size);
                if (sends) {
                    check_fill(buffers[k], size, seed_of(check_rank, size, k));
                    MPI_OK(MPI_Isend(buffers[k], size, MPI_BYTE, check_partner, k,
                                     MPI_COMM_WORLD, &requests[k]));
                } else {
                    MPI_OK(MPI_Irecv(buffers[k], size, MPI_BYTE, check_partner, k,
                                     MPI_COMM_WORLD, &requests[k]));
                }
            }
            MPI_OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
            for (k = 0; k < WINDOW; ++k) {
                const int sender = sends ? check_rank : check_partner;
                check_filled(buffers[k], size, seed_of(sender, size, k), "window");
                check_buffer_free(buffers[k]);
            }
        }
    }
}

/* The sender writes over its buffer as soon as the send has completed. */
static void buffer_reuse(void)
{
    static const size_t sizes[] = {1, 64, 4000, 20000, 200000, 2000000};
    size_t i;
    int k;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        const size_t size = sizes[i];
        uint8_t *buffer   = check_buffer_alloc(size);

        for (k = 0; k < 8; ++k) {
            if (check_rank < check_partner) {
                check_fill(buffer, size, seed_of(check_rank, size, k));
                MPI_OK(MPI_Send(buffer, (int)size, MPI_BYTE, check_partner, 1, MPI_COMM_WORLD));
                memset(buffer, 0xEE, size);
                CHECK(buffer[size - 1] == 0xEE, "own buffer");
            } else {
                MPI_OK(MPI_Recv(buffer, (int)size, MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE));
                check_filled(buffer, size, seed_of(check_partner, size, k), "reuse");
            }
        }
        check_buffer_free(buffer);
    }
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"blocking", blocking},
        {"nonblocking", nonblocking},
        {"window", window},
        {"buffer_reuse", buffer_reuse},
    };

    return check_main(argc, argv, "pingpong", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
