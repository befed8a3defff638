/* Halyard: the parts of a lane that are not on the measured path.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "lane.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>

#define SLEEP_MAX_MS 1000

ucs_status_t perf_lane_fail(perf_lane_t *lane, ucs_status_t status, const char *what)
{
    if (lane->status == UCS_OK) {
        lane->status = status;
        snprintf(lane->problem, sizeof(lane->problem), "%s", what);
    }
    return lane->status;
}

void perf_lane_fail_data(perf_lane_t *lane, uint64_t sequence, int64_t offset)
{
    char what[sizeof(lane->problem)];

    snprintf(what, sizeof(what), "wrong data: message %llu differs at byte %lld",
             (unsigned long long)sequence, (long long)offset);
    perf_lane_fail(lane, UCS_ERR_IO_ERROR, what);
}

/* Sleeps until the library has something to do, or the peer says something, as that a one-sided
 * test is over. The library says "busy" when an event came between the last poll and now. */
static void sleep_for_event(perf_lane_t *lane)
{
    struct pollfd waiting[] = {{.fd = lane->event_fd, .events = POLLIN},
                               {.fd     = (lane->channel != NULL) ? lane->channel->fd : -1,
                                .events = POLLIN}};
    ucs_status_t status     = ucp_worker_arm(lane->worker);

    if (status == UCS_OK) {
        (void)poll(waiting, 2, SLEEP_MAX_MS);
    } else if (status != UCS_ERR_BUSY) {
        perf_lane_fail(lane, status, "ucp_worker_arm");
    }
}

ucs_status_t perf_lane_idle(perf_lane_t *lane, int may_sleep)
{
    if (may_sleep && (lane->event_fd >= 0)) {
        sleep_for_event(lane);
    } else if (lane->yield) {
        sched_yield();
    }
    switch ((lane->channel != NULL) ? perf_oob_look(lane->channel) : PERF_PEER_SILENT) {
    case PERF_PEER_FAILED:
        return perf_lane_fail(lane, UCS_ERR_CANCELED, "the peer failed");
    case PERF_PEER_GONE:
        return perf_lane_fail(lane, UCS_ERR_CONNECTION_RESET, "the peer process is gone");
    default:
        return lane->status;
    }
}

void perf_lane_carry(perf_lane_t *lane, void *dest, const void *src, size_t size)
{
    if ((lane->mirror != NULL) && (perf_memory_copy(lane->device, dest, src, size) != 0)) {
        perf_lane_fail(lane, UCS_ERR_IO_ERROR, lane->device->problem);
    }
}

static void complete(void *request, ucs_status_t status, perf_lane_t *lane, uint64_t *counter,
                     const char *what)
{
    ++*counter;
    if (status != UCS_OK) {
        perf_lane_fail(lane, status, what);
    }
    ucp_request_free(request);
}

void perf_lane_send_cb(void *request, ucs_status_t status, void *user_data)
{
    perf_lane_t *lane = user_data;

    complete(request, status, lane, &lane->send_done, "a send completed");
}

void perf_lane_recv_cb(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *user_data)
{
    perf_lane_t *lane = user_data;

    (void)info;
    complete(request, status, lane, &lane->recv_done, "a receive completed");
}

void perf_lane_data_cb(void *request, ucs_status_t status, size_t length, void *user_data)
{
    perf_lane_t *lane = user_data;

    (void)length;
    complete(request, status, lane, &lane->recv_done, "a receive of data completed");
}

void perf_lane_layout(perf_lane_t *lane, int is_send, void *buffer, size_t size,
                      perf_layout_t *layout_p)
{
    uint32_t flag = is_send ? PERF_FLAG_SEND_IOV : PERF_FLAG_RECV_IOV;
    size_t offset = 0, part;
    unsigned i;

    if (!(lane->params->flags & flag)) {
        layout_p->buffer = buffer;
        layout_p->count  = size;
        return;
    }
    for (i = 0; i < 4; ++i) {
        part                    = (size - offset) / (4 - i);
        layout_p->iov[i].buffer = (uint8_t*)buffer + offset;
        layout_p->iov[i].length = part;
        offset                 += part;
    }
    layout_p->buffer = layout_p->iov;
    layout_p->count  = 4;
}
