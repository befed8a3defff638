/* Halyard: active message tests.
 *
 * The handler counts what comes as receives. Eager data is used where the library has it: it is
 * not copied, unless -y says so or -V wants to check it after the window. Rendezvous data goes to
 * the lane's buffer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#include <string.h>

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
            perf_lane_store(lane, place, length);
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
