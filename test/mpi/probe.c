/* Halyard: MPI probes: probe, iprobe, mprobe and improbe, exact and with wildcards.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define MESSAGES 120

static const size_t sizes[] = {0, 1, 100, 3000, 9000, 70000, 1000000};

#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static size_t size_of(int sequence)
{
    return sizes[sequence % NUM_SIZES];
}

/* Sends MESSAGES to the partner, tag = sequence, without waiting. */
static void send_all(uint8_t **buffers, MPI_Request *requests)
{
    int i;

    for (i = 0; i < MESSAGES; ++i) {
        const size_t size = size_of(i);
        buffers[i]        = check_buffer_alloc(size);
        check_fill(buffers[i], size, check_rank * 1000 + i);
        MPI_OK(MPI_Isend(buffers[i], (int)size, MPI_BYTE, check_partner, i, MPI_COMM_WORLD,
                         &requests[i]));
    }
}

static void finish_all(uint8_t **buffers, MPI_Request *requests)
{
    int i;

    MPI_OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    for (i = 0; i < MESSAGES; ++i) {
        check_buffer_free(buffers[i]);
    }
}

static void check_probed(const MPI_Status *status, int tag)
{
    int count = -1;

    MPI_OK(MPI_Get_count(status, MPI_BYTE, &count));
    CHECK(status->MPI_SOURCE == check_partner, "source %d", status->MPI_SOURCE);
    CHECK(status->MPI_TAG == tag, "tag %d, expected %d", status->MPI_TAG, tag);
    CHECK((size_t)count == size_of(tag), "tag %d: %d bytes, expected %zu", tag, count,
          size_of(tag));
}

/* Probe tells the size, then the receive gets that message; in order and with wildcards. */
static void probe_receive(void)
{
    uint8_t *buffers[MESSAGES];
    MPI_Request requests[MESSAGES];
    MPI_Status status;
    int i;

    send_all(buffers, requests);
    for (i = 0; i < MESSAGES; ++i) {
        const size_t size = size_of(i);
        uint8_t *in       = check_buffer_alloc(size);
        MPI_OK(MPI_Probe(((i & 1) != 0) ? check_partner : MPI_ANY_SOURCE,
                         ((i & 2) != 0) ? i : MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        check_probed(&status, i);
        MPI_OK(MPI_Recv(in, (int)size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                        MPI_COMM_WORLD, &status));
        check_probed(&status, i);
        check_filled(in, size, check_partner * 1000 + i, "probed");
        check_buffer_free(in);
    }
    finish_all(buffers, requests);
}

/* A probe for what was not sent finds nothing; for what was sent finds it again and again. */
static void iprobe_selects(void)
{
    int flag, i, out = 5, in = 0;
    MPI_Request request;
    MPI_Status status;

    MPI_OK(MPI_Isend(&out, 1, MPI_INT, check_partner, 7, MPI_COMM_WORLD, &request));
    MPI_OK(MPI_Probe(check_partner, 7, MPI_COMM_WORLD, &status));
    for (i = 0; i < 20; ++i) {
        MPI_OK(MPI_Iprobe(check_partner, 8, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag, "found a message with tag 8");
        MPI_OK(MPI_Iprobe(check_rank, 7, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag, "found a message from myself");
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
        CHECK(flag, "probed message is gone");
        CHECK(!flag || (status.MPI_TAG == 7), "tag %d", status.MPI_TAG);
    }
    MPI_OK(MPI_Recv(&in, 1, MPI_INT, check_partner, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in == 5, "received %d", in);
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag, "found a message that was received");
}

/* A matched message belongs to who matched it: a later receive gets the next one. */
static void mprobe_owns(void)
{
    uint8_t *buffers[MESSAGES];
    MPI_Request requests[MESSAGES], receive;
    MPI_Message message;
    MPI_Status status;
    int i;

    send_all(buffers, requests);
    for (i = 0; i < MESSAGES; i += 2) {
        const size_t first  = size_of(i);
        const size_t second = size_of(i + 1);
        uint8_t *in         = check_buffer_alloc(first);
        uint8_t *next       = check_buffer_alloc(second);

        MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
        check_probed(&status, i);
        MPI_OK(MPI_Recv(next, (int)second, MPI_BYTE, check_partner, MPI_ANY_TAG, MPI_COMM_WORLD,
                        &status));
        check_probed(&status, i + 1);
        check_filled(next, second, check_partner * 1000 + i + 1, "next");
        if ((i % 4) == 0) {
            MPI_OK(MPI_Mrecv(in, (int)first, MPI_BYTE, &message, &status));
        } else {
            MPI_OK(MPI_Imrecv(in, (int)first, MPI_BYTE, &message, &receive));
            MPI_OK(MPI_Wait(&receive, &status));
        }
        check_probed(&status, i);
        CHECK(message == MPI_MESSAGE_NULL, "message handle is still set");
        check_filled(in, first, check_partner * 1000 + i, "matched");
        check_buffer_free(next);
        check_buffer_free(in);
    }
    finish_all(buffers, requests);
}

/* improbe from all sources while they send; messages received later than matched, in reverse. */
static void improbe_storm(void)
{
    const int total       = 30 * (check_size - 1);
    MPI_Message *messages = malloc(total * sizeof(*messages));
    MPI_Request *requests = malloc(total * sizeof(*requests));
    MPI_Status *statuses  = malloc(total * sizeof(*statuses));
    uint8_t **buffers     = malloc(total * sizeof(*buffers));
    int *next             = calloc(check_size, sizeof(*next));
    int found = 0, n = 0, flag, i, k, dest;

    for (k = 0; k < 30; ++k) {
        for (dest = 0; dest < check_size; ++dest) {
            if (dest != check_rank) {
                buffers[n] = check_buffer_alloc(size_of(k));
                check_fill(buffers[n], size_of(k), check_rank * 1000 + k);
                MPI_OK(MPI_Isend(buffers[n], (int)size_of(k), MPI_BYTE, dest, k, MPI_COMM_WORLD,
                                 &requests[n]));
                n++;
            }
        }
    }
    while (found < total) {
        MPI_OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &messages[found],
                           &statuses[found]));
        if (flag) {
            const int source = statuses[found].MPI_SOURCE;
            CHECK(statuses[found].MPI_TAG == next[source], "from %d tag %d before %d", source,
                  statuses[found].MPI_TAG, next[source]);
            next[source]++;
            found++;
        }
    }
    for (i = total - 1; i >= 0; --i) {
        const int tag     = statuses[i].MPI_TAG;
        const size_t size = size_of(tag);
        uint8_t *in       = check_buffer_alloc(size);
        MPI_OK(MPI_Mrecv(in, (int)size, MPI_BYTE, &messages[i], MPI_STATUS_IGNORE));
        check_filled(in, size, statuses[i].MPI_SOURCE * 1000 + tag, "matched");
        check_buffer_free(in);
    }
    MPI_OK(MPI_Waitall(total, requests, MPI_STATUSES_IGNORE));
    for (i = 0; i < total; ++i) {
        check_buffer_free(buffers[i]);
    }
    free(next);
    free(buffers);
    free(statuses);
    free(requests);
    free(messages);
}

/* No process at the other end: probes succeed at once with an empty status. */
static void null_process(void)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0, count = -1;

    MPI_OK(MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &status));
    CHECK(flag && (status.MPI_SOURCE == MPI_PROC_NULL), "iprobe of no process");
    MPI_OK(MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC, "mprobe of no process");
    MPI_OK(MPI_Mrecv(&count, 0, MPI_BYTE, &message, &status));
    MPI_OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 0, "received %d bytes from no process", count);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"probe_receive", probe_receive},
        {"iprobe_selects", iprobe_selects},
        {"mprobe_owns", mprobe_owns},
        {"improbe_storm", improbe_storm},
        {"null_process", null_process},
    };

    return check_main(argc, argv, "probe", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
