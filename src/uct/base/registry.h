/* Halyard: the transports that are part of libuct.
 *
 * A transport defines one of these tables in its own folder and is named here and in one row of
 * registry.c, nowhere else.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_BASE_REGISTRY_H
#define UCT_BASE_REGISTRY_H

#include <uct/api/uct_tl.h>

BEGIN_C_DECLS

extern const uct_tl_t uct_self_tl;
extern const uct_tl_t uct_mm_tl;
extern const uct_tl_t uct_cma_tl;
extern const uct_tl_t uct_cuda_copy_tl;
extern const uct_tl_t uct_cuda_ipc_tl;
extern const uct_tl_t uct_ofi_tl;

END_C_DECLS

#endif
