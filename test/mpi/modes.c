/* Halyard: MPI's other ways to send, receive, wait and fail: persistent, synchronous, ready and
 * buffered sends, cancel, truncation, messages to oneself, waiting for some of many.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

static const size_t sizes[] = {0, 8, 1000, 10000, 100000, 3000000};

#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define SIZE_MAX_BYTES 3000000
#define MANY      64

static uint64_t seed_of(int sender, int message)
{
    return (uint64_t)sender * 1000003 + message;
}

/* One pair of persistent requests, started again and again with other data. */
static void persistent(void)
{
    MPI_Request requests[2];
    size_t i;
    int k;

    for (i = 0; i < NUM_SIZES; ++i) {
        uint8_t *out = check_buffer_alloc(sizes[i]);
        uint8_t *in  = check_buffer_alloc(sizes[i]);

        MPI_OK(MPI_Recv_init(in, (int)sizes[i], MPI_BYTE, check_partner, 4, MPI_COMM_WORLD,
                             &requests[0]));
        MPI_OK(MPI_Send_init(out, (int)sizes[i], MPI_BYTE, check_partner, 4, MPI_COMM_WORLD,
                             &requests[1]));
        for (k = 0; k < 10; ++k) {
            check_fill(out, sizes[i], seed_of(check_rank, k));
            memset(in, 0, sizes[i]);
            MPI_OK(MPI_Startall(2, requests));
            MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            check_filled(in, sizes[i], seed_of(check_partner, k), "persistent");
        }
        MPI_OK(MPI_Request_free(&requests[0]));
        MPI_OK(MPI_Request_free(&requests[1]));
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* A synchronous send must not complete before its receive is posted, and must complete after. */
static void synchronous(void)
{
    size_t i;
    int k, flag, go = 1;
    MPI_Request request;

    for (i = 0; i < NUM_SIZES; ++i) {
        uint8_t *buffer = check_buffer_alloc(sizes[i]);
        if (check_rank < check_partner) {
            check_fill(buffer, sizes[i], seed_of(check_rank, (int)i));
            MPI_OK(MPI_Issend(buffer, (int)sizes[i], MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                              &request));
            for (k = 0; k < 200; ++k) {
                MPI_OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
                CHECK(!flag, "%zu bytes: completed before the receive was posted", sizes[i]);
                if (flag) {
                    break;
                }
            }
            MPI_OK(MPI_Send(&go, 1, MPI_INT, check_partner, 2, MPI_COMM_WORLD));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Ssend(buffer, (int)sizes[i], MPI_BYTE, check_partner, 3, MPI_COMM_WORLD));
        } else {
            MPI_OK(MPI_Recv(&go, 1, MPI_INT, check_partner, 2, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            MPI_OK(MPI_Recv(buffer, (int)sizes[i], MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            check_filled(buffer, sizes[i], seed_of(check_partner, (int)i), "issend");
            memset(buffer, 0, sizes[i]);
            MPI_OK(MPI_Recv(buffer, (int)sizes[i], MPI_BYTE, check_partner, 3, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            check_filled(buffer, sizes[i], seed_of(check_partner, (int)i), "ssend");
        }
        check_buffer_free(buffer);
    }
}

/* Ready sends, which the receiver has announced to expect. */
static void ready(void)
{
    MPI_Request request;
    int go = 1;
    size_t i;

    for (i = 0; i < NUM_SIZES; ++i) {
        uint8_t *out = check_buffer_alloc(sizes[i]);
        uint8_t *in  = check_buffer_alloc(sizes[i]);

        check_fill(out, sizes[i], seed_of(check_rank, (int)i));
        MPI_OK(MPI_Irecv(in, (int)sizes[i], MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                         &request));
        MPI_OK(MPI_Sendrecv(&go, 1, MPI_INT, check_partner, 2, &go, 1, MPI_INT, check_partner, 2,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Rsend(out, (int)sizes[i], MPI_BYTE, check_partner, 1, MPI_COMM_WORLD));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        check_filled(in, sizes[i], seed_of(check_partner, (int)i), "rsend");
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* Buffered sends return at once although nobody receives yet; the source may be overwritten. */
static void buffered(void)
{
    const int room = (int)(NUM_SIZES * (SIZE_MAX_BYTES + MPI_BSEND_OVERHEAD));
    void *pool     = malloc(room), *detached;
    uint8_t *data  = check_buffer_alloc(SIZE_MAX_BYTES);
    int detached_size;
    size_t i;

    MPI_OK(MPI_Buffer_attach(pool, room));
    for (i = 0; i < NUM_SIZES; ++i) {
        check_fill(data, sizes[i], seed_of(check_rank, (int)i));
        MPI_OK(MPI_Bsend(data, (int)sizes[i], MPI_BYTE, check_partner, (int)i, MPI_COMM_WORLD));
        memset(data, 0xEE, sizes[i]);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (i = NUM_SIZES; i-- > 0;) {
        memset(data, 0, sizes[i]);
        MPI_OK(MPI_Recv(data, (int)sizes[i], MPI_BYTE, check_partner, (int)i, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        check_filled(data, sizes[i], seed_of(check_partner, (int)i), "bsend");
    }
    MPI_OK(MPI_Buffer_detach(&detached, &detached_size));
    CHECK(detached == pool, "another buffer was detached");
    check_buffer_free(data);
    free(pool);
}

/* Cancelled receives end as cancelled, do not touch their buffers and take no message. */
static void cancel_receive(void)
{
    uint8_t *unused[MANY], *in;
    MPI_Request requests[MANY];
    MPI_Status status;
    int k, flag;

    for (k = 0; k < MANY; ++k) {
        unused[k] = check_buffer_alloc(64);
        memset(unused[k], 0x77, 64);
        MPI_OK(MPI_Irecv(unused[k], 64, MPI_BYTE, (k % 2) ? check_partner : MPI_ANY_SOURCE,
                         (k % 3) ? 6 : MPI_ANY_TAG, MPI_COMM_WORLD, &requests[k]));
    }
    for (k = 0; k < MANY; ++k) {
        MPI_OK(MPI_Cancel(&requests[(k * 7) % MANY]));
    }
    for (k = 0; k < MANY; ++k) {
        MPI_OK(MPI_Wait(&requests[k], &status));
        MPI_OK(MPI_Test_cancelled(&status, &flag));
        CHECK(flag, "receive %d was not cancelled", k);
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));

    in = check_buffer_alloc(64);
    check_fill(in, 64, seed_of(check_rank, 5));
    MPI_OK(MPI_Sendrecv_replace(in, 64, MPI_BYTE, check_partner, 6, check_partner, 6,
                                MPI_COMM_WORLD, &status));
    check_filled(in, 64, seed_of(check_partner, 5), "after the cancel");
    check_buffer_free(in);
    for (k = 0; k < MANY; ++k) {
        CHECK((unused[k][0] == 0x77) && (unused[k][63] == 0x77), "cancelled buffer was written");
        check_buffer_free(unused[k]);
    }
}

/* Too small a buffer: the error, no byte beyond the buffer, and the next message is whole. */
static void truncation(void)
{
    static const struct {
        size_t sent, room;
    } pairs[] = {{100, 10}, {8, 0}, {20000, 19999}, {200000, 1000}, {4000000, 3999999}};
    int unexpected, ret, error_class;
    MPI_Request receive, send;
    MPI_Status status;
    size_t i;

    for (unexpected = 0; unexpected < 2; ++unexpected) {
        for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i) {
            uint8_t *out = check_buffer_alloc(pairs[i].sent);
            uint8_t *in  = check_buffer_alloc(pairs[i].room);
            uint8_t *all = check_buffer_alloc(pairs[i].sent);

            check_fill(out, pairs[i].sent, seed_of(check_rank, (int)i));
            if (!unexpected) {
                MPI_OK(MPI_Irecv(in, (int)pairs[i].room, MPI_BYTE, check_partner, 1,
                                 MPI_COMM_WORLD, &receive));
                MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
            }
            MPI_OK(MPI_Isend(out, (int)pairs[i].sent, MPI_BYTE, check_partner, 1, MPI_COMM_WORLD,
                             &send));
            if (unexpected) {
                MPI_OK(MPI_Probe(check_partner, 1, MPI_COMM_WORLD, &status));
                MPI_OK(MPI_Irecv(in, (int)pairs[i].room, MPI_BYTE, check_partner, 1,
                                 MPI_COMM_WORLD, &receive));
            }
            ret = MPI_Wait(&receive, &status);
            MPI_OK(MPI_Error_class(ret, &error_class));
            CHECK(error_class == MPI_ERR_TRUNCATE, "%zu bytes into %zu (%s): error class %d",
                  pairs[i].sent, pairs[i].room, unexpected ? "unexpected" : "expected",
                  error_class);
            MPI_OK(MPI_Wait(&send, MPI_STATUS_IGNORE));

            MPI_OK(MPI_Sendrecv(out, (int)pairs[i].sent, MPI_BYTE, check_partner, 2, all,
                                (int)pairs[i].sent, MPI_BYTE, check_partner, 2, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE));
            check_filled(all, pairs[i].sent, seed_of(check_partner, (int)i), "next message");
            check_buffer_free(all);
            check_buffer_free(in);
            check_buffer_free(out);
        }
    }
}

/* Messages to oneself: receive first, send first, sendrecv, probed. */
static void self(void)
{
    MPI_Request requests[2];
    MPI_Status status;
    size_t i;
    int order;

    for (i = 0; i < NUM_SIZES; ++i) {
        const int size = (int)sizes[i];
        uint8_t *out   = check_buffer_alloc(sizes[i]);
        uint8_t *in    = check_buffer_alloc(sizes[i]);

        check_fill(out, sizes[i], seed_of(check_rank, (int)i));
        for (order = 0; order < 2; ++order) {
            memset(in, 0, sizes[i]);
            if (order == 0) {
                MPI_OK(MPI_Irecv(in, size, MPI_BYTE, check_rank, 1, MPI_COMM_WORLD,
                                 &requests[0]));
                MPI_OK(MPI_Isend(out, size, MPI_BYTE, check_rank, 1, MPI_COMM_WORLD,
                                 &requests[1]));
            } else {
                MPI_OK(MPI_Isend(out, size, MPI_BYTE, check_rank, 1, MPI_COMM_WORLD,
                                 &requests[1]));
                MPI_OK(MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status));
                CHECK(status.MPI_SOURCE == check_rank, "probed source %d", status.MPI_SOURCE);
                MPI_OK(MPI_Irecv(in, size, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                                 &requests[0]));
            }
            MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            check_filled(in, sizes[i], seed_of(check_rank, (int)i), "self");
        }
        memset(in, 0, sizes[i]);
        MPI_OK(MPI_Sendrecv(out, size, MPI_BYTE, 0, 2, in, size, MPI_BYTE, 0, 2, MPI_COMM_SELF,
                            &status));
        check_filled(in, sizes[i], seed_of(check_rank, (int)i), "sendrecv with oneself");
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* Round the ring of all ranks, in place. */
static void sendrecv_ring(void)
{
    const int right = (check_rank + 1) % check_size;
    const int left  = (check_rank + check_size - 1) % check_size;
    size_t i;

    for (i = 0; i < NUM_SIZES; ++i) {
        uint8_t *data = check_buffer_alloc(sizes[i]);
        check_fill(data, sizes[i], seed_of(check_rank, (int)i));
        MPI_OK(MPI_Sendrecv_replace(data, (int)sizes[i], MPI_BYTE, right, 1, left, 1,
                                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        check_filled(data, sizes[i], seed_of(left, (int)i), "ring");
        check_buffer_free(data);
    }
}

/* Posts MANY receives with the tags 0.. and sends them in another order. */
static void many_start(uint8_t **in, uint8_t **out, MPI_Request *receives, MPI_Request *sends)
{
    int k;

    for (k = 0; k < MANY; ++k) {
        const size_t size = sizes[k % (NUM_SIZES - 1)];
        in[k]             = check_buffer_alloc(size);
        out[k]            = check_buffer_alloc(size);
        check_fill(out[k], size, seed_of(check_rank, k));
        MPI_OK(MPI_Irecv(in[k], (int)size, MPI_BYTE, check_partner, k, MPI_COMM_WORLD,
                         &receives[k]));
    }
    for (k = 0; k < MANY; ++k) {
        const int n = (k * 37 + 11) % MANY;
        MPI_OK(MPI_Isend(out[n], (int)sizes[n % (NUM_SIZES - 1)], MPI_BYTE, check_partner, n,
                         MPI_COMM_WORLD, &sends[n]));
    }
}

static void many_finish(uint8_t **in, uint8_t **out, MPI_Request *sends, const int *times)
{
    int k;

    MPI_OK(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
    for (k = 0; k < MANY; ++k) {
        CHECK(times[k] == 1, "receive %d completed %d times", k, times[k]);
        check_filled(in[k], sizes[k % (NUM_SIZES - 1)], seed_of(check_partner, k), "many");
        check_buffer_free(in[k]);
        check_buffer_free(out[k]);
    }
}

static void wait_any(void)
{
    uint8_t *in[MANY], *out[MANY];
    MPI_Request receives[MANY], sends[MANY];
    int times[MANY] = {0}, k, index;
    MPI_Status status;

    many_start(in, out, receives, sends);
    for (k = 0; k < MANY; ++k) {
        index = -1;
        MPI_OK(MPI_Waitany(MANY, receives, &index, &status));
        CHECK((index >= 0) && (index < MANY), "index %d", index);
        if ((index >= 0) && (index < MANY)) {
            CHECK(status.MPI_TAG == index, "request %d has tag %d", index, status.MPI_TAG);
            times[index]++;
        }
    }
    MPI_OK(MPI_Waitany(MANY, receives, &index, &status));
    CHECK(index == MPI_UNDEFINED, "a request was left: %d", index);
    many_finish(in, out, sends, times);
}

static void test_some(void)
{
    uint8_t *in[MANY], *out[MANY];
    MPI_Request receives[MANY], sends[MANY];
    MPI_Status statuses[MANY];
    int indices[MANY], times[MANY] = {0}, done = 0, count, k;

    many_start(in, out, receives, sends);
    while (done < MANY) {
        MPI_OK(((done % 2) == 0) ?
               MPI_Testsome(MANY, receives, &count, indices, statuses) :
               MPI_Waitsome(MANY, receives, &count, indices, statuses));
        CHECK((count >= 0) && (count <= MANY - done), "count %d", count);
        for (k = 0; k < count; ++k) {
            CHECK(statuses[k].MPI_TAG == indices[k], "request %d has tag %d", indices[k],
                  statuses[k].MPI_TAG);
            times[indices[k]]++;
        }
        done += count;
    }
    many_finish(in, out, sends, times);
}

/* Sends whose requests are given up at once still arrive. */
static void request_free(void)
{
    uint8_t *out[NUM_SIZES], *in;
    MPI_Request request;
    int done = 1;
    size_t i;

    for (i = 0; i < NUM_SIZES; ++i) {
        out[i] = check_buffer_alloc(sizes[i]);
        check_fill(out[i], sizes[i], seed_of(check_rank, (int)i));
        MPI_OK(MPI_Isend(out[i], (int)sizes[i], MPI_BYTE, check_partner, (int)i, MPI_COMM_WORLD,
                         &request));
        MPI_OK(MPI_Request_free(&request));
    }
    for (i = 0; i < NUM_SIZES; ++i) {
        in = check_buffer_alloc(sizes[i]);
        MPI_OK(MPI_Recv(in, (int)sizes[i], MPI_BYTE, check_partner, (int)i, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        check_filled(in, sizes[i], seed_of(check_partner, (int)i), "freed request");
        check_buffer_free(in);
    }
    MPI_OK(MPI_Sendrecv(&done, 1, MPI_INT, check_partner, 99, &done, 1, MPI_INT, check_partner,
                        99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (i = 0; i < NUM_SIZES; ++i) {
        check_buffer_free(out[i]);
    }
}

static void null_process(void)
{
    MPI_Status status;
    int data = 42, count = -1;

    MPI_OK(MPI_Send(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    MPI_OK(MPI_Recv(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
    MPI_OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK((count == 0) && (data == 42), "received %d ints, data %d", count, data);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "source %d", status.MPI_SOURCE);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"persistent", persistent},
        {"synchronous", synchronous},
        {"ready", ready},
        {"buffered", buffered},
        {"cancel_receive", cancel_receive},
        {"truncation", truncation},
        {"self", self},
        {"sendrecv_ring", sendrecv_ring},
        {"wait_any", wait_any},
        {"test_some", test_some},
        {"request_free", request_free},
        {"null_process", null_process},
    };

    return check_main(argc, argv, "modes", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
