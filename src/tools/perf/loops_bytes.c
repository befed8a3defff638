/* Halyard: tests of the byte-stream interface.
 *
 * Messages are cut out of the stream by receives that wait for all of their bytes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

static void bytes_param(ucp_request_param_t *param)
{
    param->op_attr_mask  |= UCP_OP_ATTR_FIELD_FLAGS;
    param->flags          = UCP_STREAM_RECV_FLAG_WAITALL;
    param->cb.recv_stream = perf_lane_data_cb;
}

ucs_status_t perf_bytes_open(perf_lane_t *lane, const perf_op_t *op)
{
    (void)op;
    bytes_param(&lane->recv_param);
    bytes_param(&lane->ack_recv_param);
    return UCS_OK;
}

PERF_INLINE void bytes_send(perf_lane_t *lane, const perf_layout_t *layout)
{
    perf_lane_sent(lane,
                   ucp_stream_send_nbx(lane->ep, layout->buffer, layout->count,
                                       &lane->send_param),
                   "ucp_stream_send_nbx");
}

PERF_INLINE void bytes_post(perf_lane_t *lane, const perf_layout_t *layout)
{
    size_t length;

    perf_lane_received(lane,
                       ucp_stream_recv_nbx(lane->ep, layout->buffer, layout->count, &length,
                                           &lane->recv_param),
                       "ucp_stream_recv_nbx");
}

PERF_INLINE void bytes_ack(perf_lane_t *lane)
{
    perf_lane_sent(lane, ucp_stream_send_nbx(lane->ep, lane->send_buffer, 1, &lane->ack_param),
                   "ucp_stream_send_nbx of an acknowledgement");
}

PERF_INLINE void bytes_post_ack(perf_lane_t *lane)
{
    size_t length;

    perf_lane_received(lane,
                       ucp_stream_recv_nbx(lane->ep, lane->recv_buffer, 1, &length,
                                           &lane->ack_recv_param),
                       "ucp_stream_recv_nbx of an acknowledgement");
}

static const perf_flow_t bytes_flow = {bytes_send, bytes_post, bytes_ack, bytes_post_ack};

PERF_DEFINE_FLOW(bytes, bytes_flow)
