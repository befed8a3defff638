/* Halyard: what the files of src/uct/base share among themselves.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_BASE_BASE_H
#define UCT_BASE_BASE_H

#include <uct/api/uct_tl.h>

#define UCS_LOG_COMPONENT "uct"
#include <ucs/debug/assert.h>

/* Zeroed memory for an object of a transport, on a cache line of its own; NULL without memory.
 * Released by ucs_sys_free. */
void *uct_object_alloc(size_t size);

/* Has progress try an endpoint's requests, where it has some and their time has come: it is neither
 * connecting nor failed without a report yet. */
void uct_ep_pending_wake(uct_ep_t *ep);

/* The table of endpoints that are not live: an operation is there where `live` has one. */
void uct_ep_make_unready_ops(const uct_ep_ops_t *live, uct_ep_ops_t *ops_p);

#endif
