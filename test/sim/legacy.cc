/* Halyard: simulator: the forms of operations that came before ucp_request_param_t: their callbacks
 * know the request alone, or the caller brings the request's memory and asks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <algorithm>

namespace sim {

namespace {

enum class form { NBX, NB, NBR };

/* The one that the request was made for; inside its call that is not known yet. */
op &op_of(const void *request)
{
    const auto &ops  = the_world->ops;
    const auto found = std::find_if(ops.rbegin(), ops.rend(), [&](const auto &o) {
        return o->is_legacy && !o->is_done && ((o->request == request) || o->is_posting);
    });

    if (found == ops.rend()) {
        sim_fail("a callback of a request that nobody has made");
        abort();
    }
    return **found;
}

void on_legacy_end(void *request, ucs_status_t status)
{
    on_end(request, status, &op_of(request));
}

void on_legacy_receive(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    on_receive(request, status, info, &op_of(request));
}

/* One in ten of those that the older forms can do, which know no hints. */
form choose(op &o, const ucp_request_param_t *param, bool has_nbr, ucp_datatype_t *datatype_p)
{
    const bool is_nbr = has_nbr && !o.has_callback && !o.memory.empty();

    *datatype_p = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) ? param->datatype :
                                                                       ucp_dt_make_contig(1);
    if (is_nbr && sim_chance(0.5)) {
        o.needs_request = false;
        return form::NBR;
    }
    if (!o.memory.empty() || !sim_chance(0.1)) {
        return form::NBX;
    }
    o.is_legacy     = true;
    o.needs_request = false;
    o.has_callback  = true;
    return form::NB;
}

/* What UCP_OP_ATTR_FIELD_REQUEST has it return. */
ucs_status_ptr_t of_nbr(const op &o, ucs_status_t status)
{
    return (status == UCS_INPROGRESS) ? o.request : UCS_STATUS_PTR(status);
}

} // namespace

ucs_status_ptr_t tag_send(op &o, const void *data, size_t count, uint64_t tag,
                          const ucp_request_param_t *param)
{
    const ucp_ep_h ep   = o.ep->handle;
    ucp_datatype_t type = 0;

    switch (choose(o, param, !o.is_sync, &type)) {
    case form::NB:
        return o.is_sync ? ucp_tag_send_sync_nb(ep, data, count, type, tag, on_legacy_end) :
                           ucp_tag_send_nb(ep, data, count, type, tag, on_legacy_end);
    case form::NBR:
        return of_nbr(o, ucp_tag_send_nbr(ep, data, count, type, tag, o.request));
    default:
        return o.is_sync ? ucp_tag_send_sync_nbx(ep, data, count, tag, param) :
                           ucp_tag_send_nbx(ep, data, count, tag, param);
    }
}

ucs_status_ptr_t tag_receive(op &o, void *data, size_t count, ucp_tag_message_h message,
                             const ucp_request_param_t *param)
{
    const ucp_worker_h worker = o.owner->handle;
    ucp_datatype_t type       = 0;
    ucs_status_t status;

    switch (choose(o, param, message == nullptr, &type)) {
    case form::NB:
        return (message != nullptr) ?
                   ucp_tag_msg_recv_nb(worker, data, count, type, message, on_legacy_receive) :
                   ucp_tag_recv_nb(worker, data, count, type, o.tag, o.mask, on_legacy_receive);
    case form::NBR:
        status = ucp_tag_recv_nbr(worker, data, count, type, o.tag, o.mask, o.request);
        return (status == UCS_OK) ? o.request : UCS_STATUS_PTR(status);
    default:
        return (message != nullptr) ?
                   ucp_tag_msg_recv_nbx(worker, data, count, message, param) :
                   ucp_tag_recv_nbx(worker, data, count, o.tag, o.mask, param);
    }
}

ucs_status_ptr_t stream_send(op &o, const void *data, size_t count,
                             const ucp_request_param_t *param)
{
    ucp_datatype_t type = 0;

    return (choose(o, param, false, &type) == form::NB) ?
               ucp_stream_send_nb(o.ep->handle, data, count, type, on_legacy_end, 0) :
               ucp_stream_send_nbx(o.ep->handle, data, count, param);
}

ucs_status_ptr_t flush(op &o, const ucp_request_param_t *param)
{
    const ucp_worker_h worker = o.owner->handle;
    ucp_datatype_t unused;

    if (choose(o, param, false, &unused) == form::NB) {
        return (o.ep != nullptr) ? ucp_ep_flush_nb(o.ep->handle, 0, on_legacy_end) :
                                   ucp_worker_flush_nb(worker, 0, on_legacy_end);
    }
    return (o.ep != nullptr) ? ucp_ep_flush_nbx(o.ep->handle, param) :
                               ucp_worker_flush_nbx(worker, param);
}

ucs_status_ptr_t put_or_get(op &o, void *data, size_t count, uint64_t address, ucp_rkey_h key,
                            const ucp_request_param_t *param)
{
    const ucp_ep_h ep   = o.ep->handle;
    const bool is_plain = (o.how == layout::CONTIG) && (o.unit == 1);
    ucp_datatype_t unused;

    if (is_plain && (choose(o, param, false, &unused) == form::NB)) {
        return (o.what == kind::PUT) ?
                   ucp_put_nb(ep, data, count, address, key, on_legacy_end) :
                   ucp_get_nb(ep, data, count, address, key, on_legacy_end);
    }
    return (o.what == kind::PUT) ? ucp_put_nbx(ep, data, count, address, key, param) :
                                   ucp_get_nbx(ep, data, count, address, key, param);
}

} // namespace sim
