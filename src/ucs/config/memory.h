/* Halyard: configuration: amounts and kinds of memory as people write them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_MEMORY_H
#define UCS_CONFIG_MEMORY_H

#include <stddef.h>
#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

/* Amount and kind of memory from "SIZE" (then of the host) or "SIZE,KIND", such as "64K,cuda".
 * UCS_ERR_INVALID_PARAM, _OUT_OF_RANGE, not logged: it is not. */
ucs_status_t ucs_config_parse_memory(const char *text, size_t *length_p, ucs_memory_type_t *type_p);

END_C_DECLS

#endif
