/* Halyard: host side of operations that a GPU starts (UCP_FEATURE_DEVICE).
 *
 * The host prepares lists of memory and counters; GPU code uses them. <ucp/api/ucp.h> explains the
 * thread rules and what holds where nothing is said about errors. Not there yet: each function that
 * makes something returns UCS_ERR_UNSUPPORTED, the others do nothing, or return 0.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_API_DEVICE_UCP_HOST_H
#define UCP_API_DEVICE_UCP_HOST_H

#include <ucp/api/ucp_def.h>

BEGIN_C_DECLS

/* Lists in GPU memory: of this process's memory, of peers' memory. The handles are passed to GPU
 * code as they are. */
typedef struct ucp_device_local_mem_list  *ucp_device_local_mem_list_h;
typedef struct ucp_device_remote_mem_list *ucp_device_remote_mem_list_h;

enum ucp_device_mem_list_elem_field {
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH        = UCS_BIT(0),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY        = UCS_BIT(1),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR  = UCS_BIT(2),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR = UCS_BIT(3),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH      = UCS_BIT(4),
    UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP          = UCS_BIT(5)
};

/* One element: local memory (memh, local_addr) or a peer's (ep, rkey, remote_addr). */
typedef struct ucp_device_mem_list_elem {
    uint64_t   field_mask;  /* enum ucp_device_mem_list_elem_field */
    ucp_mem_h  memh;
    void       *local_addr;
    size_t     length;      /* bytes */
    uint64_t   remote_addr;
    ucp_rkey_h rkey;
    ucp_ep_h   ep;
} ucp_device_mem_list_elem_t;

enum ucp_device_mem_list_params_field {
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS     = UCS_BIT(0),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE = UCS_BIT(1),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS = UCS_BIT(2),
    UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER       = UCS_BIT(3)
};

typedef struct ucp_device_mem_list_params {
    uint64_t                         field_mask;    /* enum ucp_device_mem_list_params_field */
    size_t                           element_size;  /* sizeof(ucp_device_mem_list_elem_t) of the
                                                     * caller: the step between elements */
    size_t                           num_elements;
    ucp_worker_h                     worker;        /* for lists of local memory */
    const ucp_device_mem_list_elem_t *elements;     /* read during the call only */
} ucp_device_mem_list_params_t;

enum ucp_device_counter_params_field {
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE = UCS_BIT(0),
    UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH     = UCS_BIT(1)
};

typedef struct ucp_device_counter_params {
    uint64_t          field_mask;  /* enum ucp_device_counter_params_field */
    ucs_memory_type_t mem_type;    /* of the counter; detected where absent */
    ucp_mem_h         memh;        /* registration that covers the counter */
} ucp_device_counter_params_t;

/* Makes a list of local memory. handle_p: a new object, the caller's, for
 * ucp_device_mem_list_release; the registrations it names outlive it. Threads: worker. */
ucs_status_t ucp_device_local_mem_list_create(const ucp_device_mem_list_params_t *params,
                                              ucp_device_local_mem_list_h *handle_p);

/* Makes a list of peers' memory; the endpoints and keys that it names outlive it.
 * Errors: UCS_ERR_NOT_CONNECTED while an endpoint's connection is being made: progress the worker
 * and call again. Threads: worker. */
ucs_status_t ucp_device_remote_mem_list_create(const ucp_device_mem_list_params_t *params,
                                               ucp_device_remote_mem_list_h *handle_p);

/* Number of elements of a list of either kind. Threads: any. */
uint32_t ucp_device_get_mem_list_length(const void *handle);

/* Frees a list of either kind, which no GPU code may be using. Threads: worker. */
void ucp_device_mem_list_release(void *handle);

/* Sets up a counter that peers can add to, with value 0. counter_ptr: device_counter_size bytes (of
 * ucp_context_query) in GPU memory, the caller's. Threads: worker. */
ucs_status_t ucp_device_counter_init(ucp_worker_h worker,
                                     const ucp_device_counter_params_t *params, void *counter_ptr);

/* Value of a counter. Threads: worker. May wait for a copy from the GPU. */
uint64_t ucp_device_counter_read(ucp_worker_h worker, const ucp_device_counter_params_t *params,
                                 void *counter_ptr);

END_C_DECLS

#endif
