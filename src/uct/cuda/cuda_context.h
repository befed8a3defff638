/* Halyard: cuda: contexts that are used for longer than a call.
 *
 * Programs destroy their contexts whenever they like, and calls in one that is gone crash, as may
 * the question for its number. So each has a mark, memory that the driver forgets with the context:
 * it is asked about that before the context is used again.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CUDA_CONTEXT_H
#define UCT_CUDA_CONTEXT_H

#include <uct/cuda/cuda_driver.h>

BEGIN_C_DECLS

typedef struct {
    uct_cu_ctx_t ctx;
    uint64_t     id;      /* see uct_cuda_context_id */
    void        *mark;    /* a page of ours, registered, or a byte of the device where that is not
                             allowed; NULL: neither is to be had */
    uint64_t     mark_id; /* tells it from later memory at its address */
    int          is_page;
} uct_cuda_context_t;

/* Registers memory of the host in the context that is current, for all of them; 0: the driver
 * refuses it, which is logged. */
int uct_cuda_host_register(const uct_cuda_driver_t *driver, void *address, size_t size, int level);

/* Memory of ours, registered in the context that is current, if that is allowed; NULL: none is to
 * be had. */
void *uct_cuda_host_make(const uct_cuda_driver_t *driver, size_t size, int *is_registered_p);

/* Its end; NULL: none. has_gone: the context, and with it the registration. is_idle: the context is
 * current, and no device uses the memory. Neither: it is theirs for ever. */
void uct_cuda_host_free(const uct_cuda_driver_t *driver, void *pages, size_t size,
                        int is_registered, int is_idle, int has_gone);

/* Marks the context that is current. */
void uct_cuda_context_init(const uct_cuda_driver_t *driver, uct_cu_ctx_t ctx, uint64_t id,
                           uct_cuda_context_t *context);

/* Is it certain that the context is gone? Without a mark it never is. */
int uct_cuda_context_has_gone(const uct_cuda_driver_t *driver, const uct_cuda_context_t *context);

/* Is it the one that is at this address now and has this number there? */
int uct_cuda_context_is(const uct_cuda_driver_t *driver, const uct_cuda_context_t *context,
                        uct_cu_ctx_t ctx, uint64_t id);

/* uct_cuda_enter, if it is still the same context; else an error, and nothing is entered. The
 * primary one has its address again after the program has reset the device, but nothing of what was
 * made in it before. */
ucs_status_t uct_cuda_context_enter(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver,
                                    const uct_cuda_context_t *context);

/* Removes the mark. is_alive: the context is current, and what removes memory does not hang there.
 * Neither that nor gone: the driver keeps it. */
void uct_cuda_context_cleanup(const uct_cuda_driver_t *driver, uct_cuda_context_t *context,
                              int is_alive, int has_gone);

/* Bytes of ours that it takes. */
size_t uct_cuda_context_memory(const uct_cuda_context_t *context);

END_C_DECLS

#endif
