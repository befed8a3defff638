/* Halyard: tagged receives and probes.
 *
 * A receive either takes a message that has arrived, and then may end inside the call, or is
 * posted. Callbacks of receives may run inside the posting call, unlike those of sends.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/dt/dt.h>
#include <ucp/ops/tag_budget.h>
#include <ucp/protos/eager.h>
#include <ucp/protos/rndv.h>
#include <string.h>

/* Gives a message that has arrived to a receive. */
static ucs_status_ptr_t ucp_tag_recv_arrived(ucp_request_t *req, ucp_recv_desc_t *desc,
                                             const ucp_request_param_t *param)
{
    ucp_wire_rts_t rts;
    ucs_status_t status;
    ucp_peer_t *peer;

    if (desc->kind == UCP_TAG_MSG_RTS) {
        memcpy(&rts, desc + 1, sizeof(rts));
        peer = ucp_peer_of_kept(req->worker, desc->worker_id, desc->session);
        ucp_rndv_recv_start(req, peer, &rts, 0);
        ucp_worker_data_put(desc);
        return ucp_request_handle(req);
    }

    status = ucp_eager_deliver(req, desc->tag, desc + 1, desc->length);
    if (desc->kind == UCP_TAG_MSG_EAGER_SYNC) {
        peer = ucp_peer_of_kept(req->worker, desc->worker_id, desc->session);
        if (peer != NULL) {
            ucp_rndv_answer(peer, desc->request_id, UCS_OK);
        }
    }
    ucp_tag_budget_del(req->worker, ucs_mpool_obj_size(desc));
    ucp_worker_data_put(desc);
    return ucp_request_end_recv(req, status, param);
}

/* All that the short path of ucp_tag_recv_nbx leaves out. */
static UCS_NOINLINE ucs_status_ptr_t ucp_tag_recv_slow(ucp_worker_t *worker, void *buffer,
                                                       size_t count, ucp_tag_t tag,
                                                       ucp_tag_t tag_mask,
                                                       const ucp_request_param_t *param)
{
    const int must_end = (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0;
    ucp_recv_desc_t *desc;
    ucs_status_ptr_t ptr;
    ucp_request_t *req;

    ucp_worker_lock(worker);
    req = ucp_recv_request(worker, buffer, count, param, UCP_REQUEST_TAG_RECV, &ptr);
    if (req == NULL) {
        ucp_worker_unlock(worker);
        return ptr;
    }
    desc = ucp_tag_match_search(&worker->tag_match, tag, tag_mask);
    if (must_end && ((desc == NULL) || (desc->kind == UCP_TAG_MSG_RTS))) {
        ptr = ucp_request_end_immediately(req, UCS_ERR_NO_RESOURCE);
    } else if (desc != NULL) {
        ucp_tag_match_del_unexpected(&worker->tag_match, desc);
        ptr = ucp_tag_recv_arrived(req, desc, param);
    } else {
        req->info.sender_tag = tag;
        req->recv.mask       = tag_mask;
        ucp_tag_match_post(&worker->tag_match, req);
        ptr = ucp_request_handle(req);
    }
    ucp_worker_unlock(worker);
    return ptr;
}

ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t *param)
{
    size_t length = ucp_dt_contig_length(param, count);
    ucp_request_t *req;

    if (ucs_likely(length != SIZE_MAX) && ucs_likely(!worker->lock.enabled) &&
        ucs_likely(worker->tag_match.num_unexpected == 0) &&
        ucs_likely(!(param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) &&
        ucs_likely(ucp_worker_is_host(worker, buffer))) {
        req = ucp_request_get(worker, param, UCP_REQUEST_TAG_RECV);
        if (ucs_likely(req != NULL)) {
            req->buffer          = buffer;
            req->length          = length;
            req->datatype        = ucp_dt_make_contig(1);
            req->info.sender_tag = tag;
            req->recv.mask       = tag_mask;
            req->recv.step       = UCP_RECV_POSTED;
            ucp_tag_match_post(&worker->tag_match, req);
            return ucp_request_handle(req);
        }
    }
    return ucp_tag_recv_slow(worker, buffer, count, tag, tag_mask, param);
}

ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask,
                                   int remove, ucp_tag_recv_info_t *info)
{
    ucp_recv_desc_t *desc;

    ucp_worker_lock(worker);
    desc = ucp_tag_match_search(&worker->tag_match, tag, tag_mask);
    if (desc != NULL) {
        info->sender_tag = desc->tag;
        info->length     = desc->length;
        if (remove) {
            ucp_tag_match_del_unexpected(&worker->tag_match, desc);
            ucs_list_add_tail(&worker->tag_match.taken, &desc->arrival);
        }
    }
    ucp_worker_unlock(worker);
    return desc;
}

ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void *buffer, size_t count,
                                      ucp_tag_message_h message, const ucp_request_param_t *param)
{
    ucs_status_ptr_t ptr;
    ucp_request_t *req;

    ucp_worker_lock(worker);
    req = ucp_recv_request(worker, buffer, count, param, UCP_REQUEST_TAG_RECV, &ptr);
    if ((req != NULL) && (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) &&
        (message->kind == UCP_TAG_MSG_RTS)) {
        ptr = ucp_request_end_immediately(req, UCS_ERR_NO_RESOURCE);
    } else if (req != NULL) {
        ucs_list_del(&message->arrival);
        ptr = ucp_tag_recv_arrived(req, message, param);
    }
    ucp_worker_unlock(worker);
    return ptr;
}

/* ---- older forms: never NULL ---- */

ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask,
                                 ucp_tag_recv_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &param);
}

ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                                     ucp_datatype_t datatype, ucp_tag_message_h message,
                                     ucp_tag_recv_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_message(&param, datatype, (void *)cb);
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return ucp_tag_msg_recv_nbx(worker, buffer, count, message, &param);
}

ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t tag_mask, void *req)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REQUEST |
                         UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.datatype     = datatype;
    param.request      = req;
    ptr                = ucp_tag_recv_nbx(worker, buffer, count, tag, tag_mask, &param);
    return (UCS_PTR_IS_ERR(ptr)) ? UCS_PTR_RAW_STATUS(ptr)
                                 : UCS_OK; /* the request tells the rest */
}
