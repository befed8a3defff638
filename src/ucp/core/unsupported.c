/* Halyard: functions of the public interface that this version does not have yet.
 *
 * They return UCS_ERR_UNSUPPORTED, as the interface allows where a capability is missing;
 * ARCHITECTURE.md lists them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <ucp/api/device/ucp_host.h>
#include <ucp/api/ucp.h>
#include <ucs/sys/compiler.h>

void ucp_am_data_release(ucp_worker_h worker UCS_UNUSED, void *data UCS_UNUSED)
{
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker UCS_UNUSED, void *data_desc UCS_UNUSED,
                                      void *buffer UCS_UNUSED, size_t count UCS_UNUSED,
                                      const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep UCS_UNUSED, uint16_t id UCS_UNUSED,
                                const void *buffer UCS_UNUSED, size_t count UCS_UNUSED,
                                ucp_datatype_t datatype UCS_UNUSED,
                                ucp_send_callback_t cb UCS_UNUSED, unsigned flags UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep UCS_UNUSED, unsigned id UCS_UNUSED,
                                 const void *header UCS_UNUSED, size_t header_length UCS_UNUSED,
                                 const void *buffer UCS_UNUSED, size_t count UCS_UNUSED,
                                 const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_device_counter_init(ucp_worker_h worker UCS_UNUSED,
                                     const ucp_device_counter_params_t *params UCS_UNUSED,
                                     void *counter_ptr UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

uint64_t ucp_device_counter_read(ucp_worker_h worker UCS_UNUSED,
                                 const ucp_device_counter_params_t *params UCS_UNUSED,
                                 void *counter_ptr UCS_UNUSED)
{
    return 0;
}

uint32_t ucp_device_get_mem_list_length(const void *handle UCS_UNUSED)
{
    return 0;
}

ucs_status_t ucp_device_local_mem_list_create(const ucp_device_mem_list_params_t *params UCS_UNUSED,
                                              ucp_device_local_mem_list_h *handle_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_device_mem_list_release(void *handle UCS_UNUSED)
{
}

ucs_status_t
ucp_device_remote_mem_list_create(const ucp_device_mem_list_params_t *params UCS_UNUSED,
                                  ucp_device_remote_mem_list_h *handle_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_stream_data_release(ucp_ep_h ep UCS_UNUSED, void *data UCS_UNUSED)
{
}

ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep UCS_UNUSED, size_t *length UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED,
                                    size_t count UCS_UNUSED, ucp_datatype_t datatype UCS_UNUSED,
                                    ucp_stream_recv_callback_t cb UCS_UNUSED,
                                    size_t *length UCS_UNUSED, unsigned flags UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED,
                                     size_t count UCS_UNUSED, size_t *length UCS_UNUSED,
                                     const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_stream_recv_request_test(void *request UCS_UNUSED, size_t *length_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                                    size_t count UCS_UNUSED, ucp_datatype_t datatype UCS_UNUSED,
                                    ucp_send_callback_t cb UCS_UNUSED, unsigned flags UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                                     size_t count UCS_UNUSED,
                                     const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ssize_t ucp_stream_worker_poll(ucp_worker_h worker UCS_UNUSED,
                               ucp_stream_poll_ep_t *poll_eps UCS_UNUSED, size_t max_eps UCS_UNUSED,
                               unsigned flags UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

/* MPICH registers a handler when it starts and uses it for one-sided communication only. No active
 * message can be sent yet, so none is ever received: that nothing is stored cannot be noticed. */
ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker UCS_UNUSED, uint16_t id UCS_UNUSED,
                                       ucp_am_callback_t cb UCS_UNUSED, void *arg UCS_UNUSED,
                                       uint32_t flags UCS_UNUSED)
{
    return UCS_OK;
}

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker UCS_UNUSED,
                                            const ucp_am_handler_param_t *param UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}
