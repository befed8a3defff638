/* Halyard: texts of the status codes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/type/status.h>

/* Indexed by -status; codes that no name is given to are NULL. */
static const char *const status_texts[] = {
    [-UCS_OK]                         = "success",
    [-UCS_ERR_NO_MESSAGE]             = "no message has arrived",
    [-UCS_ERR_NO_RESOURCE]            = "no resource is free now",
    [-UCS_ERR_IO_ERROR]               = "input/output error",
    [-UCS_ERR_NO_MEMORY]              = "out of memory",
    [-UCS_ERR_INVALID_PARAM]          = "invalid parameter",
    [-UCS_ERR_UNREACHABLE]            = "destination is unreachable",
    [-UCS_ERR_INVALID_ADDR]           = "invalid address",
    [-UCS_ERR_NOT_IMPLEMENTED]        = "function is not implemented",
    [-UCS_ERR_MESSAGE_TRUNCATED]      = "message was truncated",
    [-UCS_ERR_NO_PROGRESS]            = "no progress",
    [-UCS_ERR_BUFFER_TOO_SMALL]       = "buffer is too small",
    [-UCS_ERR_NO_ELEM]                = "no such element",
    [-UCS_ERR_SOME_CONNECTS_FAILED]   = "some connections failed",
    [-UCS_ERR_NO_DEVICE]              = "no usable device or transport",
    [-UCS_ERR_BUSY]                   = "busy",
    [-UCS_ERR_CANCELED]               = "operation was canceled",
    [-UCS_ERR_SHMEM_SEGMENT]          = "shared memory is not available",
    [-UCS_ERR_ALREADY_EXISTS]         = "element exists already",
    [-UCS_ERR_OUT_OF_RANGE]           = "value is out of range",
    [-UCS_ERR_TIMED_OUT]              = "operation timed out",
    [-UCS_ERR_EXCEEDS_LIMIT]          = "limit is exceeded",
    [-UCS_ERR_UNSUPPORTED]            = "operation is not supported",
    [-UCS_ERR_REJECTED]               = "peer rejected the connection",
    [-UCS_ERR_NOT_CONNECTED]          = "endpoint is not connected",
    [-UCS_ERR_CONNECTION_RESET]       = "peer closed the connection",
    [-UCS_ERR_FIRST_LINK_FAILURE]     = "first link failure",
    [-UCS_ERR_LAST_LINK_FAILURE]      = "last link failure",
    [-UCS_ERR_FIRST_ENDPOINT_FAILURE] = "first endpoint failure",
    [-UCS_ERR_LAST_ENDPOINT_FAILURE]  = "last endpoint failure",
    [-UCS_ERR_ENDPOINT_TIMEOUT]       = "peer does not answer"
};

const char *ucs_status_string(ucs_status_t status)
{
    unsigned index   = (unsigned)-(int)status;
    const char *text = NULL;

    if (status == UCS_INPROGRESS) {
        return "operation is in progress";
    }
    /* Any other positive value is a huge index. */
    if (index < ucs_static_array_size(status_texts)) {
        text = status_texts[index];
    }
    return (text != NULL) ? text : "unknown status";
}
