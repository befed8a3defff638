/* Halyard: status codes, and the pointer that is either a status or an object.
 *
 * A status is one signed byte (a packed enum): structures and foreign-language bindings depend on
 * that size. Zero is success, one is "accepted, not finished", negative values are errors.
 * Included by every public header and by every layer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_TYPE_STATUS_H
#define UCS_TYPE_STATUS_H

#include <ucs/sys/compiler_def.h>
#include <stdint.h>

BEGIN_C_DECLS

typedef enum {
    UCS_OK                         = 0,    /* finished */
    UCS_INPROGRESS                 = 1,    /* accepted; finishes later */

    UCS_ERR_NO_MESSAGE             = -1,   /* nothing has arrived */
    UCS_ERR_NO_RESOURCE            = -2,   /* no room now; nothing was done, try again */
    UCS_ERR_IO_ERROR               = -3,   /* a device or system call failed */
    UCS_ERR_NO_MEMORY              = -4,   /* an allocation failed */
    UCS_ERR_INVALID_PARAM          = -5,   /* the caller passed a value that is not allowed */
    UCS_ERR_UNREACHABLE            = -6,   /* no path leads to the peer or its memory */
    UCS_ERR_INVALID_ADDR           = -7,   /* bytes given as an address are not one */
    UCS_ERR_NOT_IMPLEMENTED        = -8,   /* the function does nothing in this build */
    UCS_ERR_MESSAGE_TRUNCATED      = -9,   /* the message was longer than the buffer */
    UCS_ERR_NO_PROGRESS            = -10,  /* nothing advanced */
    UCS_ERR_BUFFER_TOO_SMALL       = -11,  /* the result does not fit the caller's buffer */
    UCS_ERR_NO_ELEM                = -12,  /* no such element */
    UCS_ERR_SOME_CONNECTS_FAILED   = -13,  /* part of several connections failed */
    UCS_ERR_NO_DEVICE              = -14,  /* no usable device or transport */
    UCS_ERR_BUSY                   = -15,  /* in use, or work is pending */
    UCS_ERR_CANCELED               = -16,  /* ended on the caller's wish */
    UCS_ERR_SHMEM_SEGMENT          = -17,  /* shared memory could not be had */
    UCS_ERR_ALREADY_EXISTS         = -18,  /* the element is there already */
    UCS_ERR_OUT_OF_RANGE           = -19,  /* an index or value is beyond its bounds */
    UCS_ERR_TIMED_OUT              = -20,  /* the time allowed has passed */
    UCS_ERR_EXCEEDS_LIMIT          = -21,  /* a configured or system limit was met */
    UCS_ERR_UNSUPPORTED            = -22,  /* cannot be done by what is present */
    UCS_ERR_REJECTED               = -23,  /* the peer refused the connection */
    UCS_ERR_NOT_CONNECTED          = -24,  /* the endpoint has no connection */
    UCS_ERR_CONNECTION_RESET       = -25,  /* the peer closed or died */

    UCS_ERR_FIRST_LINK_FAILURE     = -40,  /* -40 to -59: the link between the nodes */
    UCS_ERR_LAST_LINK_FAILURE      = -59,
    UCS_ERR_FIRST_ENDPOINT_FAILURE = -60,  /* -60 to -89: one endpoint */
    UCS_ERR_ENDPOINT_TIMEOUT       = -80,  /* the peer did not answer in time */
    UCS_ERR_LAST_ENDPOINT_FAILURE  = -89,

    UCS_ERR_LAST                   = -100  /* no status is below this one */
} UCS_S_PACKED ucs_status_t;

/* True for the codes reserved to failures of a link, and of an endpoint. */
#define UCS_IS_LINK_ERROR(_code) \
    (((_code) <= UCS_ERR_FIRST_LINK_FAILURE) && ((_code) >= UCS_ERR_LAST_LINK_FAILURE))
#define UCS_IS_ENDPOINT_ERROR(_code) \
    (((_code) <= UCS_ERR_FIRST_ENDPOINT_FAILURE) && ((_code) >= UCS_ERR_LAST_ENDPOINT_FAILURE))

#define UCS_STATUS_IS_ERR(_status) ((_status) < 0)

/* Result of an operation that may go on after the call: NULL where it has finished, an error status
 * as one of the 100 topmost addresses, or the address of an object (a request, or data). Address 1,
 * which UCS_INPROGRESS would be, is never returned. */
typedef void *ucs_status_ptr_t;

/* Whether a pointer carries an error; whether it is an object. */
#define UCS_PTR_IS_ERR(_ptr) ((uintptr_t)(_ptr) >= (uintptr_t)UCS_ERR_LAST)
#define UCS_PTR_IS_PTR(_ptr) (((uintptr_t)(_ptr) - 1) < ((uintptr_t)UCS_ERR_LAST - 1))

/* The status inside a pointer that is no object; the status of any pointer, an object counting as
 * UCS_INPROGRESS (this one evaluates _ptr twice); and the pointer that carries a status. */
#define UCS_PTR_RAW_STATUS(_ptr) ((ucs_status_t)(intptr_t)(_ptr))
#define UCS_PTR_STATUS(_ptr) \
    (UCS_PTR_IS_PTR(_ptr) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(_ptr))
#define UCS_STATUS_PTR(_status) ((void *)(intptr_t)(_status))

/* Text of a status, in English, never NULL, for any value. The string is constant and is not freed.
 * Values outside the enum give one shared text. Any thread; does not block. */
const char *ucs_status_string(ucs_status_t status);

END_C_DECLS

#endif
