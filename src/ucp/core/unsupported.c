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

ucs_status_t ucp_atomic_add32(ucp_ep_h ep UCS_UNUSED, uint32_t add UCS_UNUSED,
                              uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_add64(ucp_ep_h ep UCS_UNUSED, uint64_t add UCS_UNUSED,
                              uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep UCS_UNUSED, uint32_t compare UCS_UNUSED,
                                uint32_t swap UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                                ucp_rkey_h rkey UCS_UNUSED, uint32_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep UCS_UNUSED, uint64_t compare UCS_UNUSED,
                                uint64_t swap UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                                ucp_rkey_h rkey UCS_UNUSED, uint64_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep UCS_UNUSED, uint32_t add UCS_UNUSED,
                               uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED,
                               uint32_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep UCS_UNUSED, uint64_t add UCS_UNUSED,
                               uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED,
                               uint64_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep UCS_UNUSED,
                                     ucp_atomic_fetch_op_t opcode UCS_UNUSED,
                                     uint64_t value UCS_UNUSED, void *result UCS_UNUSED,
                                     size_t op_size UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                                     ucp_rkey_h rkey UCS_UNUSED, ucp_send_callback_t cb UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep UCS_UNUSED, ucp_atomic_op_t opcode UCS_UNUSED,
                                   const void *buffer UCS_UNUSED, size_t count UCS_UNUSED,
                                   uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED,
                                   const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_atomic_post(ucp_ep_h ep UCS_UNUSED, ucp_atomic_post_op_t opcode UCS_UNUSED,
                             uint64_t value UCS_UNUSED, size_t op_size UCS_UNUSED,
                             uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_swap32(ucp_ep_h ep UCS_UNUSED, uint32_t swap UCS_UNUSED,
                               uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED,
                               uint32_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_atomic_swap64(ucp_ep_h ep UCS_UNUSED, uint64_t swap UCS_UNUSED,
                               uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED,
                               uint64_t *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request UCS_UNUSED,
                                    ucp_conn_request_attr_t *attr UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
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

ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep UCS_UNUSED, const void *rkey_buffer UCS_UNUSED,
                                ucp_rkey_h *rkey_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_get(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED, size_t length UCS_UNUSED,
                     uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED,
                            size_t length UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                            ucp_rkey_h rkey UCS_UNUSED, ucp_send_callback_t cb UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_get_nbi(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED, size_t length UCS_UNUSED,
                         uint64_t remote_addr UCS_UNUSED, ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep UCS_UNUSED, void *buffer UCS_UNUSED,
                             size_t count UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                             ucp_rkey_h rkey UCS_UNUSED,
                             const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_listener_create(ucp_worker_h worker UCS_UNUSED,
                                 const ucp_listener_params_t *params UCS_UNUSED,
                                 ucp_listener_h *listener_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_listener_destroy(ucp_listener_h listener UCS_UNUSED)
{
}

ucs_status_t ucp_listener_query(ucp_listener_h listener UCS_UNUSED,
                                ucp_listener_attr_t *attr UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_listener_reject(ucp_listener_h listener UCS_UNUSED,
                                 ucp_conn_request_h conn_request UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_mem_advise(ucp_context_h context UCS_UNUSED, ucp_mem_h memh UCS_UNUSED,
                            ucp_mem_advise_params_t *params UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_mem_map(ucp_context_h context UCS_UNUSED,
                         const ucp_mem_map_params_t *params UCS_UNUSED,
                         ucp_mem_h *memh_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_mem_print_info(const char *mem_size UCS_UNUSED, ucp_context_h context UCS_UNUSED,
                        FILE *stream UCS_UNUSED)
{
}

ucs_status_t ucp_mem_query(const ucp_mem_h memh UCS_UNUSED, ucp_mem_attr_t *attr UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_mem_unmap(ucp_context_h context UCS_UNUSED, ucp_mem_h memh UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_memh_buffer_release(void *buffer UCS_UNUSED,
                             const ucp_memh_buffer_release_params_t *params UCS_UNUSED)
{
}

ucs_status_t ucp_memh_pack(ucp_mem_h memh UCS_UNUSED,
                           const ucp_memh_pack_params_t *params UCS_UNUSED,
                           void **buffer_p UCS_UNUSED, size_t *buffer_size_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_put(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                     size_t length UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                     ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                            size_t length UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                            ucp_rkey_h rkey UCS_UNUSED, ucp_send_callback_t cb UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

ucs_status_t ucp_put_nbi(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                         size_t length UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                         ucp_rkey_h rkey UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep UCS_UNUSED, const void *buffer UCS_UNUSED,
                             size_t count UCS_UNUSED, uint64_t remote_addr UCS_UNUSED,
                             ucp_rkey_h rkey UCS_UNUSED,
                             const ucp_request_param_t *param UCS_UNUSED)
{
    return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
}

void ucp_rkey_buffer_release(void *rkey_buffer UCS_UNUSED)
{
}

ucs_status_t ucp_rkey_compare(ucp_worker_h worker UCS_UNUSED, ucp_rkey_h rkey1 UCS_UNUSED,
                              ucp_rkey_h rkey2 UCS_UNUSED,
                              const ucp_rkey_compare_params_t *params UCS_UNUSED,
                              int *result UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucp_rkey_destroy(ucp_rkey_h rkey UCS_UNUSED)
{
}

ucs_status_t ucp_rkey_pack(ucp_context_h context UCS_UNUSED, ucp_mem_h memh UCS_UNUSED,
                           void **rkey_buffer_p UCS_UNUSED, size_t *size_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey UCS_UNUSED, uint64_t raddr UCS_UNUSED,
                          void **addr_p UCS_UNUSED)
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

void ucp_worker_wait_mem(ucp_worker_h worker UCS_UNUSED, void *address UCS_UNUSED)
{
}
