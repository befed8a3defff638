/* Halyard: datatypes: where the bytes of a message lie in the user's memory.
 *
 * Contiguous types are a multiplication; everything else is reached by packing and unpacking at
 * offsets in ascending order, which the user's functions of a generic type rely on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_DT_DT_H
#define UCP_DT_DT_H

#include <ucp/core/request.h>
#include <ucs/arch/cpu.h>

/* A generic datatype; the id is its address with class bits set. */
typedef struct {
    ucp_generic_dt_ops_t ops;
    void                *context;
} ucp_dt_generic_t;

UCS_INLINE int ucp_dt_is_contig(ucp_datatype_t datatype)
{
    return (datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_CONTIG;
}

/* Classes of requests whose memory this processor does not reach by itself. No user's datatype gets
 * here as one of them: lists, whose class is 4 too, are put entry by entry (ops/rma_list.c). */
#define UCP_DT_CLASS_DEVICE     3 /* contiguous, on a device */
#define UCP_DT_CLASS_DEVICE_IOV 4 /* an IOV with parts on a device */

/* Contiguous, all of it on a device. */
UCS_INLINE int ucp_dt_is_device(ucp_datatype_t datatype)
{
    return (datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DT_CLASS_DEVICE;
}

/* One block of memory, wherever it is. */
UCS_INLINE int ucp_dt_is_block(ucp_datatype_t datatype)
{
    return ucp_dt_is_contig(datatype) || ucp_dt_is_device(datatype);
}

/* On a device, or partly. */
UCS_INLINE int ucp_dt_has_device(ucp_datatype_t datatype)
{
    uint64_t type = datatype & UCP_DATATYPE_CLASS_MASK;

    return (type == UCP_DT_CLASS_DEVICE) || (type == UCP_DT_CLASS_DEVICE_IOV);
}

UCS_INLINE ucp_dt_generic_t *ucp_dt_generic(ucp_datatype_t datatype)
{
    return (ucp_dt_generic_t *)(uintptr_t)(datatype & ~(ucp_datatype_t)UCP_DATATYPE_CLASS_MASK);
}

/* The datatype that a call uses. */
UCS_INLINE ucp_datatype_t ucp_dt_of(const ucp_request_param_t *param)
{
    return (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) ? param->datatype
                                                              : ucp_dt_make_contig(1);
}

/* Bytes of a contiguous message. SIZE_MAX: it is of another class, or the length overflows. */
UCS_INLINE size_t ucp_dt_contig_length(const ucp_request_param_t *param, size_t count)
{
    size_t length;

    if (ucs_likely(!(param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE)) ||
        (param->datatype == ucp_dt_make_contig(1))) {
        return count;
    }
    return (!ucp_dt_is_contig(param->datatype) ||
            __builtin_mul_overflow(count, (size_t)(param->datatype >> UCP_DATATYPE_SHIFT),
                                   &length)) ? SIZE_MAX : length;
}

/* Attaches buffer, count and datatype to a request, of one of the classes above where the memory is
 * a device's; sets its length. For a generic type calls
 * start_pack or start_unpack (finish is then held). UCS_ERR_INVALID_PARAM: no such class, or the
 * length overflows. */
ucs_status_t ucp_dt_start(ucp_request_t *req, void *buffer, size_t count, ucp_datatype_t datatype,
                          int is_send);

/* Copies up to `max` bytes of the message from `offset` on into dest; returns the bytes; fewer
 * where a copy off a device fails. */
size_t ucp_dt_pack(ucp_request_t *req, size_t offset, void *dest, size_t max);

/* Pieces of a message, all but its last, are multiples of this, so that the user's unpack function,
 * which may refuse halves (MPICH's does), gets whole elements: those of 1, 2, 4, ... 64 and of 3,
 * 6, 12, ... 192 bytes. */
#define UCP_DT_PIECE_ALIGN 192

/* Bytes of a piece for which there is `room`. */
UCS_INLINE size_t ucp_dt_piece_max(size_t room)
{
    return (room > UCP_DT_PIECE_ALIGN) ? room - (room % UCP_DT_PIECE_ALIGN) : room;
}

/* Takes `length` bytes of the message at `offset`; the caller has checked that they fit. */
ucs_status_t ucp_dt_unpack(ucp_request_t *req, size_t offset, const void *src, size_t length);

/* The end of a generic type's use. */
void ucp_dt_finish(ucp_request_t *req);

/* Copy of at most 16 bytes without a call. */
UCS_INLINE void ucp_copy_16(char *dest, const char *src, size_t length)
{
    if (length >= 8) {
        uint64_t first, last;

        __builtin_memcpy(&first, src, 8);
        __builtin_memcpy(&last, src + length - 8, 8);
        __builtin_memcpy(dest, &first, 8);
        __builtin_memcpy(dest + length - 8, &last, 8);
    } else if (length >= 4) {
        uint32_t first, last;

        __builtin_memcpy(&first, src, 4);
        __builtin_memcpy(&last, src + length - 4, 4);
        __builtin_memcpy(dest, &first, 4);
        __builtin_memcpy(dest + length - 4, &last, 4);
    } else if (length > 0) {
        dest[0]          = src[0];
        dest[length / 2] = src[length / 2];
        dest[length - 1] = src[length - 1];
    }
}

/* Copy of the bytes of a message that has come; 8 bytes, the most frequent length, first. */
UCS_INLINE void ucp_copy(void *dest, const void *src, size_t length)
{
    if (ucs_likely(length == 8)) {
        __builtin_memcpy(dest, src, 8);
    } else if (length <= 16) {
        ucp_copy_16(dest, src, length);
    } else {
        ucs_arch_copy(UCS_ARCH_COPY_IN, dest, src, length);
    }
}

#endif
