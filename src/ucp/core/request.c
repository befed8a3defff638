/* Halyard: requests: pool, end, and the public functions on them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/ep.h>
#include <ucp/core/flush.h>
#include <ucp/core/wakeup.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rdma.h>
#include <ucp/protos/rndv.h>
#include <ucs/debug/log.h>
#include <inttypes.h>

#define UCP_REQUEST_CHUNK 128

static void ucp_request_obj_init(ucs_mpool_t *mp, void *obj)
{
    ucp_worker_t *worker   = mp->params.arg;
    ucp_request_t *req     = obj;
    ucp_context_t *context = worker->context;

    atomic_init(&req->flags, 0);
    if (context->request_init != NULL) {
        context->request_init(ucp_request_handle(req));
    }
}

static void ucp_request_obj_cleanup(ucs_mpool_t *mp, void *obj)
{
    ucp_worker_t *worker = mp->params.arg;

    worker->context->request_cleanup(ucp_request_handle(obj));
}

ucs_status_t ucp_request_pool_init(ucp_worker_h worker)
{
    ucp_context_t *context    = worker->context;
    ucs_mpool_params_t params = {
        .name            = "requests",
        .elem_size       = sizeof(ucp_request_t) + context->user_request_size,
        .alignment       = UCS_CACHE_LINE_SIZE,
        .elems_per_chunk = UCP_REQUEST_CHUNK,
        .flags           = UCS_MPOOL_FLAG_NO_POISON, /* users look at requests after freeing them */
        .obj_init        = ucp_request_obj_init,
        .obj_cleanup     = (context->request_cleanup != NULL) ? ucp_request_obj_cleanup : NULL,
        .arg             = worker
    };

    return ucs_mpool_init(&worker->requests, &params);
}

static void ucp_request_call_user(ucp_request_t *req, ucs_status_t status)
{
    if (req->kind == UCP_REQUEST_TAG_RECV) {
        req->cb.recv(ucp_request_handle(req), status, &req->info, req->user_data);
    } else if (ucp_request_is_recv(req)) {
        req->cb.recv_length(ucp_request_handle(req), status, req->info.length, req->user_data);
    } else {
        req->cb.send(ucp_request_handle(req), status, req->user_data);
    }
}

void ucp_request_add_work(ucp_request_t *req)
{
    ucs_assert(!(req->held & UCP_REQUEST_HOLDS_WORK));
    req->held |= UCP_REQUEST_HOLDS_WORK;
    req->worker->deferred |= UCP_DEFERRED_SOME;
    ucs_list_add_tail(&req->worker->work, &req->work_list);
    ucp_wakeup_rouse(req->worker);
}

void ucp_request_want_work(ucp_request_t *req)
{
    if (!(req->held & UCP_REQUEST_HOLDS_WORK)) {
        ucp_request_add_work(req);
    }
}

void ucp_request_del_work(ucp_request_t *req)
{
    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_WORK;
    ucs_list_del(&req->work_list);
}

void ucp_request_release_held(ucp_request_t *req)
{
    ucp_worker_t *worker = req->worker;
    unsigned held        = req->held;

    req->held = 0;
    if (ucs_unlikely(held & UCP_REQUEST_HOLDS_COPY)) { /* its worker ends: dropped with the copy */
        req->held = (uint16_t)(held & (UCP_REQUEST_HOLDS_COPY | UCP_REQUEST_HOLDS_MEM));
        held     &= ~(unsigned)UCP_REQUEST_HOLDS_MEM;
    }
    if (held & UCP_REQUEST_HOLDS_EXPECTED) {
        ucp_tag_match_take(&worker->tag_match, req);
    }
    if (held & UCP_REQUEST_HOLDS_ID) {
        ucs_ptr_map_del(&worker->ids, ucp_request_is_recv(req) ? req->recv.id : req->send.id);
    }
    if (held & UCP_REQUEST_HOLDS_WORK) {
        ucs_list_del(&req->work_list);
    }
    if (held & UCP_REQUEST_HOLDS_SYNC) {
        ucp_rndv_put_sync_word(req);
    }
    if (held & UCP_REQUEST_HOLDS_TURN) {
        if (ucp_request_is_recv(req)) {
            ucp_learn_end(req->recv.learn, &req->recv.turn,
                          (req->recv.received == req->recv.total) ? req->recv.total : 0);
        } else { /* amid a part */
            ucp_learn_end(req->send.part.learn, &req->send.part.turn, 0);
        }
    }
    if (held & UCP_REQUEST_HOLDS_LIST) {
        ucs_list_del(&req->list);
        req->worker->num_reading -= (req->kind == UCP_REQUEST_TAG_RECV);
    }
    if (held & UCP_REQUEST_HOLDS_TRACKED) {
        ucp_ep_untrack(req);
    }
    if (held & UCP_REQUEST_HOLDS_HEADER) {
        ucp_worker_data_put((void *)req->send.header);
    }
    if (held & UCP_REQUEST_HOLDS_STAGE) {
        ucp_worker_data_put(req->buffer);
    }
    if (held & UCP_REQUEST_HOLDS_SLOT) {
        ucp_device_put_slot(req);
    }
    if (held & UCP_REQUEST_HOLDS_MEM) {
        ucp_rdma_release(req);
    }
    if (held & UCP_REQUEST_HOLDS_CHUNKS) {
        ucp_device_put_chunks(req);
    }
    if (held & UCP_REQUEST_HOLDS_WINDOW) {
        ucp_device_forget(req->worker, req);
    }
    if (held & UCP_REQUEST_HOLDS_DATATYPE) {
        ucp_dt_finish(req); /* last: the datatype may be gone after it */
    }
}

void ucp_request_complete(ucp_request_t *req, ucs_status_t status)
{
    uint32_t flags = ucp_request_flags(req);

    ucs_assert(!(flags & UCP_REQUEST_COMPLETED));
    ucs_assert(!(req->held & UCP_REQUEST_HOLDS_PENDING));
    if (ucs_unlikely(req->worker->is_ending)) { /* what these lead to may be gone */
        flags &= ~(uint32_t)UCP_REQUEST_CALLBACK;
    }
    if (req->held != 0) {
        if (ucs_unlikely(req->held & UCP_REQUEST_HOLDS_COPY)) {
            ucp_device_end_later(req, status);
            return;
        }
        if (ucs_unlikely(status != UCS_OK) && (status != UCS_ERR_CANCELED) &&
            ucp_request_is_rma(req)) {
            ucp_flush_rma_failed(req, status, (flags & UCP_REQUEST_RELEASED) != 0);
        }
        ucp_request_release_held(req);
    }

    req->status = status;
    UCS_PROBE4(request_done, req, (long)req->kind, (long)status, req->length);
    if (flags & UCP_REQUEST_RELEASED) {
        if (flags & UCP_REQUEST_CALLBACK) {
            ucp_request_call_user(req, status);
        }
        ucs_mpool_put(req);
        return;
    }

    /* R1: pairs with A1 in the status queries: who sees COMPLETED sees status and info. */
    atomic_store_explicit(&req->flags, flags | UCP_REQUEST_COMPLETED, memory_order_release);
    if (flags & UCP_REQUEST_CALLBACK) {
        ucp_request_call_user(req, status); /* may free the request */
    }
}

ucs_status_ptr_t ucp_request_end_immediately(ucp_request_t *req, ucs_status_t status)
{
    uint32_t flags = ucp_request_flags(req);

    if (req->held != 0) {
        ucp_request_release_held(req);
    }
    req->status = status;
    UCS_PROBE4(request_done, req, (long)req->kind, (long)status, req->length);
    if (flags & UCP_REQUEST_EXTERNAL) {
        atomic_store_explicit(&req->flags, flags | UCP_REQUEST_COMPLETED, memory_order_release);
    } else {
        ucs_mpool_put(req);
    }
    return UCS_STATUS_PTR(status);
}

ucs_status_ptr_t ucp_request_end_recv(ucp_request_t *req, ucs_status_t status,
                                      const ucp_request_param_t *param)
{
    if (param->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
        ucp_request_complete(req, status);
        return ucp_request_handle(req); /* only a name: the callback may have freed it */
    }
    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_RECV_INFO) {
        if (req->kind == UCP_REQUEST_TAG_RECV) {
            *param->recv_info.tag_info = req->info;
        } else {
            *param->recv_info.length = req->info.length;
        }
    }
    return ucp_request_end_immediately(req, status);
}

void ucp_request_end_unused(void *request, ucp_request_kind_t kind, ucs_status_t status)
{
    ucp_request_t *req = ucp_request_of(request);

    req->kind            = kind;
    req->status          = status;
    req->length          = 0;
    req->info.sender_tag = 0;
    req->datatype        = ucp_dt_make_contig(1);
    atomic_store_explicit(&req->flags, UCP_REQUEST_EXTERNAL | UCP_REQUEST_COMPLETED,
                          memory_order_release);
}

ucs_status_t ucp_request_wait(ucp_worker_h worker, ucs_status_ptr_t ptr)
{
    ucs_status_t status;
    int in_callback;

    if (!UCS_PTR_IS_PTR(ptr)) {
        return UCS_PTR_RAW_STATUS(ptr);
    }
    /* Seen with the lock held, it is this thread that is inside of progress. */
    ucp_worker_lock(worker);
    in_callback = (atomic_load_explicit(&worker->gate, memory_order_relaxed) &
                   UCP_GATE_PROGRESSING) != 0;
    ucp_worker_unlock(worker);
    do {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(ptr);
    } while ((status == UCS_INPROGRESS) && !in_callback);
    ucp_request_free(ptr);
    if (status == UCS_INPROGRESS) {
        ucs_diag("a blocking call inside a callback does not wait: the operation ends later");
        status = UCS_ERR_NO_PROGRESS;
    }
    return status;
}

/* ---- public ---- */

ucs_status_t ucp_request_check_status(void *request)
{
    ucp_request_t *req = ucp_request_of(request);

    /* A1: pairs with R1. */
    if (atomic_load_explicit(&req->flags, memory_order_acquire) & UCP_REQUEST_COMPLETED) {
        return req->status;
    }
    return UCS_INPROGRESS;
}

ucs_status_t ucp_tag_recv_request_test(void *request, ucp_tag_recv_info_t *info)
{
    ucs_status_t status = ucp_request_check_status(request);

    if ((status != UCS_INPROGRESS) && (info != NULL)) {
        *info = ucp_request_of(request)->info;
    }
    return status;
}

ucs_status_t ucp_request_test(void *request, ucp_tag_recv_info_t *info)
{
    ucp_request_t *req = ucp_request_of(request);

    return ucp_tag_recv_request_test(request, (req->kind == UCP_REQUEST_TAG_RECV) ? info : NULL);
}

int ucp_request_is_completed(void *request)
{
    return ucp_request_check_status(request) != UCS_INPROGRESS;
}

/* Both ways to give a request back; `flags_off`: what the rest of its life does without. */
static void ucp_request_give_back(void *request, uint32_t flags_off)
{
    ucp_request_t *req   = ucp_request_of(request);
    ucp_worker_t *worker = req->worker;
    uint32_t flags;

    ucp_worker_lock(worker);
    flags = ucp_request_flags(req);
    if (ucs_unlikely(!ucs_mpool_is_used(&worker->requests, req))) {
        ucs_warn("request %p was given back twice", request);
    } else if (flags & UCP_REQUEST_COMPLETED) {
        ucs_mpool_put(req);
    } else {
        atomic_store_explicit(&req->flags, (flags | UCP_REQUEST_RELEASED) & ~flags_off,
                              memory_order_relaxed);
    }
    ucp_worker_unlock(worker);
}

void ucp_request_free(void *request)
{
    ucp_request_give_back(request, UCP_REQUEST_CALLBACK);
}

void ucp_request_release(void *request)
{
    ucp_request_give_back(request, 0);
}

void *ucp_request_alloc(ucp_worker_h worker)
{
    ucp_request_t *req;

    ucp_worker_lock(worker);
    req = ucs_mpool_get(&worker->requests);
    if (req != NULL) {
        req->worker = worker;
        req->kind   = UCP_REQUEST_NONE;
        atomic_store_explicit(&req->flags, UCP_REQUEST_COMPLETED, memory_order_relaxed);
    }
    ucp_worker_unlock(worker);
    return (req == NULL) ? NULL : ucp_request_handle(req);
}

void ucp_request_cancel(ucp_worker_h worker, void *request)
{
    ucp_request_t *req;

    if (!UCS_PTR_IS_PTR(request)) {
        return; /* clients pass what a failed post returned */
    }

    req = ucp_request_of(request);
    ucp_worker_lock(worker);
    if (!(ucp_request_flags(req) & UCP_REQUEST_COMPLETED) &&
        ((req->held & UCP_REQUEST_HOLDS_EXPECTED) ||
         ((req->kind == UCP_REQUEST_STREAM_RECV) && (req->recv.step == UCP_RECV_POSTED) &&
          (req->recv.received == 0)))) {
        req->info.length = 0;
        ucp_request_complete(req, UCS_ERR_CANCELED);
    }
    ucp_worker_unlock(worker);
}

ucs_status_t ucp_request_query(void *request, ucp_request_attr_t *attr)
{
    static const char *const names[] = {"none", "flush", "close", "put of a list",
                                        "tag send", "message send", "stream send",
                                        "tag receive", "message receive", "stream receive",
                                        "put", "get", "atomic"};
    ucp_request_t *req = ucp_request_of(request);
    const int goes_on  = (ucp_request_check_status(request) == UCS_INPROGRESS);

    if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING) &&
        !(attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (goes_on) { /* what has ended does not change any more, and may have no worker */
        ucp_worker_lock(req->worker);
    }
    if (attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING) {
        snprintf(attr->debug_string, attr->debug_string_size, "%s tag 0x%" PRIx64 " length %zu %s",
                 names[req->kind], req->info.sender_tag, req->length,
                 ucs_status_string(ucp_request_check_status(request)));
    }
    if (attr->field_mask & UCP_REQUEST_ATTR_FIELD_STATUS) {
        attr->status = ucp_request_check_status(request);
    }
    if (attr->field_mask & UCP_REQUEST_ATTR_FIELD_MEM_TYPE) {
        attr->mem_type = ((req->kind > UCP_REQUEST_CLOSE) && ucp_dt_has_device(req->datatype)) ?
                         UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
    }
    if (goes_on) {
        ucp_worker_unlock(req->worker);
    }
    return UCS_OK;
}
