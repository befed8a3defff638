/* Halyard: contexts of UCX's threads that make progress, of which there are none here.
 *
 * Only programs that drive transports by themselves use them (src/uct/base/components.c).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>

ucs_status_t ucs_async_context_create(int mode UCS_UNUSED, void **async_p UCS_UNUSED)
{
    return UCS_ERR_UNSUPPORTED;
}

void ucs_async_context_destroy(void *async UCS_UNUSED)
{
}
