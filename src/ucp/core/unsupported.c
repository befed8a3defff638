/* Halyard: functions of the public interface that this version does not have yet.
 *
 * They return UCS_ERR_UNSUPPORTED, as the interface allows where a capability is missing;
 * ARCHITECTURE.md lists them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/api/device/ucp_host.h>
#include <ucp/api/ucp.h>
#include <ucs/sys/compiler.h>

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
