/* Halyard: tag matching tests.
 *
 * Data and acknowledgements carry different tags, both matched in full unless -C asks for a
 * wildcard on the data.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#define DATA_TAG UINT64_C(0x1000000000000017)
#define ACK_TAG  UINT64_C(0x2000000000000018)

PERF_INLINE void tag_send(perf_lane_t *lane, const perf_layout_t *layout)
{
    perf_lane_sent(lane,
                   ucp_tag_send_nbx(lane->ep, layout->buffer, layout->count, DATA_TAG,
                                    &lane->send_param),
                   "ucp_tag_send_nbx");
}

PERF_INLINE void tag_send_sync(perf_lane_t *lane, const perf_layout_t *layout)
{
    perf_lane_sent(lane,
                   ucp_tag_send_sync_nbx(lane->ep, layout->buffer, layout->count, DATA_TAG,
                                         &lane->send_param),
                   "ucp_tag_send_sync_nbx");
}

PERF_INLINE void tag_post(perf_lane_t *lane, const perf_layout_t *layout)
{
    perf_lane_received(lane,
                       ucp_tag_recv_nbx(lane->worker, layout->buffer, layout->count, DATA_TAG,
                                        lane->recv_mask, &lane->recv_param),
                       "ucp_tag_recv_nbx");
}

/* -U: waits for the message as an unexpected one, then receives it. */
static void tag_post_probed(perf_lane_t *lane, const perf_layout_t *layout)
{
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    unsigned spins = 0;

    while ((message = ucp_tag_probe_nb(lane->worker, DATA_TAG, lane->recv_mask, 1, &info)) ==
           NULL) {
        if (perf_lane_turn(lane, &spins) != UCS_OK) {
            return;
        }
    }
    perf_lane_received(lane,
                       ucp_tag_msg_recv_nbx(lane->worker, layout->buffer, layout->count, message,
                                            &lane->recv_param),
                       "ucp_tag_msg_recv_nbx");
}

PERF_INLINE void tag_ack(perf_lane_t *lane)
{
    perf_lane_sent(lane,
                   ucp_tag_send_nbx(lane->ep, lane->send_buffer, 0, ACK_TAG, &lane->ack_param),
                   "ucp_tag_send_nbx of an acknowledgement");
}

PERF_INLINE void tag_post_ack(perf_lane_t *lane)
{
    perf_lane_received(lane,
                       ucp_tag_recv_nbx(lane->worker, lane->recv_buffer, 0, ACK_TAG, UINT64_MAX,
                                        &lane->ack_recv_param),
                       "ucp_tag_recv_nbx of an acknowledgement");
}

static const perf_flow_t tag_flow = {tag_send, tag_post, tag_ack, tag_post_ack};
static const perf_flow_t tag_sync_flow = {tag_send_sync, tag_post, tag_ack, tag_post_ack};
static const perf_flow_t tag_probed_flow = {tag_send, tag_post_probed, tag_ack, tag_post_ack};
static const perf_flow_t tag_sync_probed_flow = {tag_send_sync, tag_post_probed, tag_ack,
                                                 tag_post_ack};

/* A test with the flow of plain receives or, with -U, of probed ones. */
#define DEFINE_TESTS(_name, _flow, _probed_flow) \
    ucs_status_t perf_##_name##_latency(perf_lane_t *lane, const perf_step_t *step, \
                                        perf_time_t *time_p) \
    { \
        return (lane->params->flags & PERF_FLAG_UNEXPECTED) ? \
               perf_pingpong_modes(lane, step, time_p, &_probed_flow) : \
               perf_pingpong_modes(lane, step, time_p, &_flow); \
    } \
    \
    ucs_status_t perf_##_name##_stream(perf_lane_t *lane, const perf_step_t *step, \
                                       perf_time_t *time_p) \
    { \
        return (lane->params->flags & PERF_FLAG_UNEXPECTED) ? \
               perf_window_modes(lane, step, time_p, &_probed_flow, PERF_MODE_BATCH) : \
               perf_window_modes(lane, step, time_p, &_flow, 0); \
    }

DEFINE_TESTS(tag, tag_flow, tag_probed_flow)
DEFINE_TESTS(tag_sync, tag_sync_flow, tag_sync_probed_flow)

ucs_status_t perf_tag_exchange(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return (lane->params->flags & PERF_FLAG_VALIDATE) ?
           perf_exchange(lane, step, time_p, &tag_flow, PERF_MODE_CHECK) :
           perf_exchange(lane, step, time_p, &tag_flow, 0);
}
