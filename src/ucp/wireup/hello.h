/* Halyard: HELLO: tells a peer our worker's address, so that it can answer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_WIREUP_HELLO_H
#define UCP_WIREUP_HELLO_H

#include <stddef.h>

/* Handler of UCP_WIRE_HELLO. */
void ucp_hello_handle(void *worker, const void *data, size_t length);

#endif
