/* Halyard: puts of scatter-gather lists (UCP_DATATYPE_SGL on both sides).
 *
 * Each entry is a put of its own, by whatever way; the list is a request beside them, not tracked
 * by its endpoint, that ends with the last of them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/dt/dt.h>
#include <ucp/ops/rma.h>

#define UCP_RMA_LIST_LOCAL  (UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS)
#define UCP_RMA_LIST_REMOTE (UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS)

/* What a call says of both sides. */
typedef struct {
    const ucp_dt_local_sgl_t  *local;
    const ucp_dt_remote_sgl_t *remote;
    size_t                     count;
} ucp_rma_list_t;

static ucs_status_t ucp_rma_list_check_params(const ucp_rma_list_t *list,
                                              const ucp_request_param_t *param)
{
    const uint32_t needed = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE |
                            UCP_OP_ATTR_FIELD_REMOTE;

    if (((param->op_attr_mask & needed) != needed) || (list->local == NULL) ||
        (list->remote == NULL) || (param->datatype != ucp_dt_make_sgl()) ||
        (param->remote_datatype != ucp_dt_make_sgl()) ||
        ((param->op_attr_mask & UCP_OP_ATTR_FIELD_REMOTE_COUNT) &&
         (param->remote_count != list->count)) ||
        ((list->local->field_mask & UCP_RMA_LIST_LOCAL) != UCP_RMA_LIST_LOCAL) ||
        ((list->remote->field_mask & UCP_RMA_LIST_REMOTE) != UCP_RMA_LIST_REMOTE)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if ((list->count > 0) &&
        ((list->local->buffers == NULL) || (list->local->lengths == NULL) ||
         (list->remote->remote_addrs == NULL) || (list->remote->rkeys == NULL) ||
         ((list->local->field_mask & UCP_DT_LOCAL_SGL_FIELD_MEMHS) &&
          (list->local->memhs == NULL)) ||
         ((list->remote->field_mask & UCP_DT_REMOTE_SGL_FIELD_LENGTHS) &&
          (list->remote->lengths == NULL)))) {
        return UCS_ERR_INVALID_PARAM;
    }
    /* How the other side of repeated blocks lies is not said by the interface. */
    return (list->local->field_mask &
            (UCP_DT_LOCAL_SGL_FIELD_COUNTS | UCP_DT_LOCAL_SGL_FIELD_STRIDES)) ?
           UCS_ERR_UNSUPPORTED : UCS_OK;
}

static ucp_mem_h ucp_rma_list_memh(const ucp_rma_list_t *list, size_t i)
{
    return (list->local->field_mask & UCP_DT_LOCAL_SGL_FIELD_MEMHS) ? list->local->memhs[i] : NULL;
}

static ucs_status_t ucp_rma_list_check_entry(ucp_ep_t *ep, const ucp_rma_list_t *list, size_t i,
                                             int is_immediate)
{
    size_t length    = list->local->lengths[i];
    uint64_t address = list->remote->remote_addrs[i];
    ucp_rkey_t *rkey = list->remote->rkeys[i];
    ucs_status_t status;

    if ((rkey == NULL) || ((list->remote->field_mask & UCP_DT_REMOTE_SGL_FIELD_LENGTHS) &&
                           (list->remote->lengths[i] != length))) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (length == 0) {
        return UCS_OK;
    }
    status = ucp_rma_check(ep->worker, list->local->buffers[i], length,
                           ucp_rma_list_memh(list, i), address, rkey, UCP_MEM_WRITE);
    if (status != UCS_OK) {
        return status;
    }
    if (is_immediate) {
        ucp_rkey_map(rkey);
        if (!ucp_rma_is_open(ep) || (ucp_rkey_local(rkey, UCP_RKEY_RMA, address, length) == NULL)) {
            return UCS_ERR_NO_RESOURCE;
        }
    }
    return UCS_OK;
}

/* All entries are looked at before the first byte moves. */
static ucs_status_t ucp_rma_list_check(ucp_ep_t *ep, const ucp_rma_list_t *list,
                                       const ucp_request_param_t *param)
{
    ucs_status_t status = ucp_rma_list_check_params(list, param);
    size_t i;

    if (ep->peer->status != UCS_OK) {
        return ep->peer->status;
    }
    if (!(ep->worker->context->features & ucp_rkey_features[UCP_RKEY_RMA])) {
        return UCS_ERR_UNSUPPORTED;
    }
    for (i = 0; (i < list->count) && (status == UCS_OK); ++i) {
        status = ucp_rma_list_check_entry(ep, list, i,
                                          param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    }
    return status;
}

static void ucp_rma_list_entry_ended(void *request UCS_UNUSED, ucs_status_t status, void *arg)
{
    ucp_request_t *req = arg;

    if (status != UCS_OK) {
        req->put_list.status = status;
    }
    if (--req->put_list.remaining == 0) {
        ucp_request_complete(req, req->put_list.status);
    }
}

/* Posts the entries. no_immediate: the last one is in flight afterwards even where it is done, so
 * that flushes wait for the list's callback as for any other. */
static void ucp_rma_list_post_entries(ucp_request_t *req, ucp_ep_t *ep, const ucp_rma_list_t *list,
                                      uint32_t no_immediate)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;
    size_t i;

    param.cb.send   = ucp_rma_list_entry_ended;
    param.user_data = req;
    for (i = 0; (i < list->count) && (req->put_list.status == UCS_OK); ++i) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.memh         = ucp_rma_list_memh(list, i);
        if ((param.memh != NULL) && (list->remote->rkeys[i]->net != NULL)) {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH; /* others have no use for it */
        }
        if (i + 1 == list->count) {
            param.op_attr_mask |= no_immediate;
        }
        ptr = ucp_put_nbx(ep, list->local->buffers[i], list->local->lengths[i],
                          list->remote->remote_addrs[i], list->remote->rkeys[i], &param);
        if (UCS_PTR_IS_PTR(ptr)) {
            ++req->put_list.remaining;
            ucp_request_release(ptr); /* it still calls us */
        } else if (UCS_PTR_IS_ERR(ptr)) {
            req->put_list.status = UCS_PTR_STATUS(ptr);
        }
        req->length += list->local->lengths[i];
    }
}

static ucs_status_ptr_t ucp_rma_list_post_locked(ucp_ep_t *ep, const ucp_rma_list_t *list,
                                                 const ucp_request_param_t *param)
{
    const uint32_t no_immediate = param->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    ucp_request_t *req          = ucp_request_get(ep->worker, param, UCP_REQUEST_PUT_LIST);

    if (req == NULL) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    }
    req->info.sender_tag    = 0;
    req->info.length        = 0;
    req->length             = 0;
    req->datatype           = ucp_dt_make_contig(1);
    req->put_list.remaining = 1; /* until all are posted */
    req->put_list.status    = ucp_rma_list_check(ep, list, param);
    if (req->put_list.status == UCS_OK) {
        ucp_rma_list_post_entries(req, ep, list, no_immediate);
    }

    if (--req->put_list.remaining > 0) {
        return ucp_request_handle(req);
    }
    if ((req->put_list.status == UCS_OK) && no_immediate) { /* an empty list: from progress */
        ucp_request_add_work(req);
        return ucp_request_handle(req);
    }
    return ucp_request_end_immediately(req, req->put_list.status);
}

ucs_status_ptr_t ucp_rma_list_post(ucp_ep_t *ep, const void *buffer, size_t count,
                                   const ucp_request_param_t *param)
{
    const ucp_rma_list_t list = {
        .local  = buffer,
        .remote = (param->op_attr_mask & UCP_OP_ATTR_FIELD_REMOTE) ? param->remote : NULL,
        .count  = count
    };
    ucs_status_ptr_t ptr;

    ucp_worker_lock(ep->worker);
    ptr = ucp_rma_list_post_locked(ep, &list, param);
    ucp_worker_unlock(ep->worker);
    return ptr;
}
