/* Halyard: tests of messages: tag matching, active messages, byte streams.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#include <string.h>

/* ---- tag matching ----
 *
 * Data and acknowledgements carry different tags, both matched in full unless -C asks for a
 * wildcard on the data. */

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
#define DEFINE_TAG_TESTS(_name, _flow, _probed_flow) \
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

DEFINE_TAG_TESTS(tag, tag_flow, tag_probed_flow)
DEFINE_TAG_TESTS(tag_sync, tag_sync_flow, tag_sync_probed_flow)

ucs_status_t perf_tag_exchange(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return (lane->params->flags & PERF_FLAG_VALIDATE) ?
           perf_exchange(lane, step, time_p, &tag_flow, PERF_MODE_CHECK) :
           perf_exchange(lane, step, time_p, &tag_flow, 0);
}

/* ---- active messages ----
 *
 * The handler counts what comes as receives. Eager data is used where the library has it: it is
 * not copied, unless -y says so or -V wants to check it after the window. Rendezvous data goes to
 * the lane's buffer. */

#define AM_DATA_ID 1
#define AM_ACK_ID  2

static ucs_status_t am_on_data(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    perf_lane_t *lane = arg;
    uint8_t *place;

    (void)header;
    if (__builtin_expect(header_length != lane->params->am_header, 0)) {
        perf_lane_fail(lane, UCS_ERR_IO_ERROR, "an active message's header has another length");
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        place = perf_message_place(lane, length);
        if (place != NULL) {
            perf_lane_received(lane,
                               ucp_am_recv_data_nbx(lane->worker, data, place, length,
                                                    &lane->am_param),
                               "ucp_am_recv_data_nbx");
        }
        return UCS_OK;
    }
    if (lane->params->flags & (PERF_FLAG_VALIDATE | PERF_FLAG_AM_COPY)) {
        place = perf_message_place(lane, length);
        if (place != NULL) {
            memcpy(perf_lane_view(lane, place), data, length);
            perf_lane_carry(lane, place, lane->mirror, length);
        }
    }
    ++lane->recv_done;
    return UCS_OK;
}

static ucs_status_t am_on_ack(void *arg, const void *header, size_t header_length, void *data,
                              size_t length, const ucp_am_recv_param_t *param)
{
    perf_lane_t *lane = arg;

    (void)header;
    (void)header_length;
    (void)data;
    (void)length;
    (void)param;
    ++lane->recv_done;
    return UCS_OK;
}

static ucs_status_t am_register(perf_lane_t *lane, unsigned id, ucp_am_recv_callback_t callback)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = id,
        .cb         = callback,
        .arg        = lane};

    return ucp_worker_set_am_recv_handler(lane->worker, &param);
}

ucs_status_t perf_am_open(perf_lane_t *lane, const perf_op_t *op)
{
    ucs_status_t status = am_register(lane, AM_DATA_ID, am_on_data);

    (void)op;
    lane->am_param               = lane->recv_param;
    lane->am_param.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_DATATYPE;
    lane->am_param.cb.recv_am    = perf_lane_data_cb;
    status = (status == UCS_OK) ? am_register(lane, AM_ACK_ID, am_on_ack) : status;
    return (status == UCS_OK) ? UCS_OK :
                                perf_lane_fail(lane, status, "ucp_worker_set_am_recv_handler");
}

PERF_INLINE void am_send(perf_lane_t *lane, const perf_layout_t *layout)
{
    perf_lane_sent(lane,
                   ucp_am_send_nbx(lane->ep, AM_DATA_ID, lane->am_header, lane->params->am_header,
                                   layout->buffer, layout->count, &lane->send_param),
                   "ucp_am_send_nbx");
}

PERF_INLINE void am_ack(perf_lane_t *lane)
{
    perf_lane_sent(lane,
                   ucp_am_send_nbx(lane->ep, AM_ACK_ID, NULL, 0, lane->send_buffer, 0,
                                   &lane->ack_param),
                   "ucp_am_send_nbx of an acknowledgement");
}

static const perf_flow_t am_flow = {am_send, perf_post_none, am_ack, perf_post_ack_none};

PERF_DEFINE_FLOW(am, am_flow)

/* ---- byte streams ----
 *
 * Messages are cut out of the stream by receives that wait for all of their bytes. */

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
