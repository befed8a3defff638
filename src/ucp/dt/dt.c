/* Halyard: datatypes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/device.h>
#include <ucp/dt/dt.h>
#include <ucs/sys/sys.h>

/* Then req->copy.info tells about it. */
static int ucp_dt_on_device(ucp_request_t *req, const void *address)
{
    return (req->worker != NULL) && !ucp_worker_is_host(req->worker, address) &&
           ucp_device_query(req->worker, address, &req->copy.info);
}

static ucs_status_t ucp_dt_start_iov(ucp_request_t *req, const ucp_dt_iov_t *iov, size_t count)
{
    size_t length = 0;
    size_t i;

    for (i = 0; i < count; ++i) {
        if ((iov[i].length > 0) && ucp_dt_on_device(req, iov[i].buffer)) {
            req->datatype = UCP_DT_CLASS_DEVICE_IOV;
        }
        if (__builtin_add_overflow(length, iov[i].length, &length)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }
    req->iov_count = count;
    req->length    = length;
    return UCS_OK;
}

static ucs_status_t ucp_dt_start_generic(ucp_request_t *req, void *buffer, size_t count,
                                         int is_send)
{
    const ucp_dt_generic_t *dt = ucp_dt_generic(req->datatype);

    if (dt == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }
    req->dt_state = is_send ? dt->ops.start_pack(dt->context, buffer, count) :
                              dt->ops.start_unpack(dt->context, buffer, count);
    req->length   = dt->ops.packed_size(req->dt_state);
    req->held    |= UCP_REQUEST_HOLDS_DATATYPE;
    return UCS_OK;
}

ucs_status_t ucp_dt_start(ucp_request_t *req, void *buffer, size_t count, ucp_datatype_t datatype,
                          int is_send)
{
    req->buffer   = buffer;
    req->datatype = datatype;
    switch (datatype & UCP_DATATYPE_CLASS_MASK) {
    case UCP_DATATYPE_CONTIG:
        if (__builtin_mul_overflow(count, (size_t)(datatype >> UCP_DATATYPE_SHIFT), &req->length)) {
            return UCS_ERR_INVALID_PARAM;
        }
        if ((req->length > 0) && ucp_dt_on_device(req, buffer)) {
            req->datatype = UCP_DT_CLASS_DEVICE;
        }
        return UCS_OK;
    case UCP_DATATYPE_IOV:
        return ucp_dt_start_iov(req, buffer, count);
    case UCP_DATATYPE_GENERIC:
        return ucp_dt_start_generic(req, buffer, count, is_send);
    default:
        return UCS_ERR_INVALID_PARAM;
    }
}

/* One piece of an IOV to or from packed bytes. */
static ucs_status_t ucp_dt_copy_piece(ucp_request_t *req, char *piece, char *packed, size_t length,
                                      int is_pack)
{
    void *dest      = is_pack ? packed : piece;
    const void *src = is_pack ? piece : packed;

    if (ucs_unlikely(ucp_dt_has_device(req->datatype)) && ucp_dt_on_device(req, piece)) {
        return ucp_device_copy(req->worker, dest, src, length);
    }
    ucs_arch_copy(is_pack ? UCS_ARCH_COPY_OUT : UCS_ARCH_COPY_IN, dest, src, length);
    return UCS_OK;
}

/* Copies bytes offset..offset+length of an IOV; returns those that were. */
static size_t ucp_dt_iov_copy(ucp_request_t *req, size_t offset, char *packed, size_t length,
                              int is_pack)
{
    const ucp_dt_iov_t *iov = req->buffer;
    size_t done             = 0;
    size_t part, i;
    char *piece;

    for (i = 0; (i < req->iov_count) && (done < length); ++i) {
        if (offset >= iov[i].length) {
            offset -= iov[i].length;
            continue;
        }
        part  = ucs_min(iov[i].length - offset, length - done);
        piece = (char *)iov[i].buffer + offset;
        if (ucp_dt_copy_piece(req, piece, packed + done, part, is_pack) != UCS_OK) {
            break;
        }
        done  += part;
        offset = 0;
    }
    return done;
}

/* The user's function may give less than there is room for. So may a piece of a message, which ends
 * where an element does; what is to be all the rest is asked for until it is there. */
static size_t ucp_dt_pack_generic(ucp_request_t *req, size_t offset, char *dest, size_t length)
{
    const ucp_dt_generic_t *dt = ucp_dt_generic(req->datatype);
    size_t done                = 0;
    size_t part;

    do {
        part  = dt->ops.pack(req->dt_state, offset + done, dest + done, length - done);
        done += ucs_min(part, length - done); /* it is trusted with its data, not with ours */
    } while ((part > 0) && (done < length) && (offset + length == req->length));
    return done;
}

size_t ucp_dt_pack(ucp_request_t *req, size_t offset, void *dest, size_t max)
{
    size_t length = ucs_min(max, req->length - offset);

    switch (req->datatype & UCP_DATATYPE_CLASS_MASK) {
    case UCP_DATATYPE_CONTIG:
        if (length > 0) {
            ucs_arch_copy(UCS_ARCH_COPY_OUT, dest, (const char *)req->buffer + offset, length);
        }
        return length;
    case UCP_DATATYPE_IOV:
    case UCP_DT_CLASS_DEVICE_IOV:
        return ucp_dt_iov_copy(req, offset, dest, length, 1);
    case UCP_DT_CLASS_DEVICE:
        if (length < req->length) {
            req->held |= UCP_REQUEST_HOLDS_WINDOW;
        }
        return ucp_device_read(req->worker, req, (const char *)req->buffer + offset,
                               req->length - offset, dest, length);
    default:
        return ucp_dt_pack_generic(req, offset, dest, length);
    }
}

ucs_status_t ucp_dt_unpack(ucp_request_t *req, size_t offset, const void *src, size_t length)
{
    switch (req->datatype & UCP_DATATYPE_CLASS_MASK) {
    case UCP_DATATYPE_CONTIG:
        if (length > 0) {
            ucs_arch_copy(UCS_ARCH_COPY_IN, (char *)req->buffer + offset, src, length);
        }
        return UCS_OK;
    case UCP_DATATYPE_IOV:
    case UCP_DT_CLASS_DEVICE_IOV:
        return (ucp_dt_iov_copy(req, offset, (char *)(uintptr_t)src, length, 0) == length) ?
               UCS_OK : UCS_ERR_IO_ERROR;
    case UCP_DT_CLASS_DEVICE:
        return ucp_device_copy(req->worker, (char *)req->buffer + offset, src, length);
    default:
        return (length == 0) ? UCS_OK :
               ucp_dt_generic(req->datatype)->ops.unpack(req->dt_state, offset, src, length);
    }
}

void ucp_dt_finish(ucp_request_t *req)
{
    ucp_dt_generic(req->datatype)->ops.finish(req->dt_state);
}

/* ---- public ---- */

ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t *ops, void *context,
                                   ucp_datatype_t *datatype_p)
{
    ucp_dt_generic_t *dt = ucs_sys_memalign(UCS_BIT(UCP_DATATYPE_SHIFT), sizeof(*dt));

    if (dt == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    dt->ops     = *ops;
    dt->context = context;
    *datatype_p = (uintptr_t)dt | UCP_DATATYPE_GENERIC;
    return UCS_OK;
}

void ucp_dt_destroy(ucp_datatype_t datatype)
{
    if ((datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_GENERIC) {
        ucs_sys_free(ucp_dt_generic(datatype));
    }
}

ucs_status_t ucp_dt_query(ucp_datatype_t datatype, ucp_datatype_attr_t *attr)
{
    ucp_request_t req = {0};
    void *buffer =
        (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_BUFFER) ? (void *)attr->buffer : NULL;
    size_t count      = (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_COUNT) ? attr->count : 1;
    ucs_status_t status;

    if (!(attr->field_mask & UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE)) {
        return UCS_OK;
    }
    if (((datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_IOV) && (buffer == NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = ucp_dt_start(&req, buffer, count, datatype, 1);
    if (status != UCS_OK) {
        return status;
    }
    attr->packed_size = req.length;
    if (req.held & UCP_REQUEST_HOLDS_DATATYPE) {
        ucp_dt_finish(&req);
    }
    return UCS_OK;
}
