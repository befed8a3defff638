/* Halyard: cuda: contexts that are used for longer than a call: their marks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_context.h>

#define UCS_LOG_COMPONENT "cuda"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>
#include <sys/mman.h>

#define UCT_CUDA_MARK 4096ul /* bytes of a page that is one */

int uct_cuda_host_register(const uct_cuda_driver_t *driver, void *address, size_t size, int level)
{
    const int result = driver->cuMemHostRegister(address, size, UCT_CU_HOST_PORTABLE);

    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, level, "cuMemHostRegister", result);
    }
    return result == UCT_CU_SUCCESS;
}

void *uct_cuda_host_make(const uct_cuda_driver_t *driver, size_t size, int *is_registered_p)
{
    const int access = PROT_READ | PROT_WRITE;
    void *pages      = ucs_sys_mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED) {
        return NULL;
    }
    *is_registered_p = uct_cuda_host_register(driver, pages, size, UCS_LOG_LEVEL_DIAG);
    return pages;
}

void uct_cuda_host_free(const uct_cuda_driver_t *driver, void *pages, size_t size,
                        int is_registered, int is_idle, int has_gone)
{
    if (is_idle && is_registered) {
        driver->cuMemHostUnregister(pages);
    }
    if ((pages != NULL) && (is_idle || has_gone)) {
        ucs_sys_munmap(pages, size);
    }
}

/* 1 more than the number of what the driver knows at an address; 0: nothing. Few questions, since
 * this is asked before each turn of copies. */
static ucs_status_t uct_cuda_mark_query(const uct_cuda_driver_t *driver, const void *mark,
                                        uint64_t *id_p)
{
    int attributes[] = {UCT_CU_POINTER_MEMORY_TYPE, UCT_CU_POINTER_BUFFER_ID};
    unsigned type    = 0;
    uint64_t id      = 0;
    void *values[]   = {&type, &id};
    int result;

    result = driver->cuPointerGetAttributes(ucs_array_size(attributes), attributes, values,
                                            (uintptr_t)mark);
    if (ucs_unlikely((result != UCT_CU_SUCCESS) && (result != UCT_CU_INVALID_VALUE))) {
        return uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "cuPointerGetAttributes", result);
    }
    *id_p = ((result == UCT_CU_SUCCESS) && (type != 0)) ? id + 1 : 0;
    return UCS_OK;
}

static void uct_cuda_mark_make(const uct_cuda_driver_t *driver, uct_cuda_context_t *context)
{
    uct_cu_ptr_t ptr = 0;

    context->mark = uct_cuda_host_make(driver, UCT_CUDA_MARK, &context->is_page);
    if (context->is_page) {
        return;
    }
    if (context->mark != NULL) {
        ucs_sys_munmap(context->mark, UCT_CUDA_MARK);
    }
    context->mark = (driver->cuMemAlloc(&ptr, 1) == UCT_CU_SUCCESS) ? (void *)(uintptr_t)ptr : NULL;
}

void uct_cuda_context_init(const uct_cuda_driver_t *driver, uct_cu_ctx_t ctx, uint64_t id,
                           uct_cuda_context_t *context)
{
    *context = (uct_cuda_context_t){.ctx = ctx, .id = id};
    uct_cuda_mark_make(driver, context);
    if ((context->mark != NULL) &&
        ((uct_cuda_mark_query(driver, context->mark, &context->mark_id) != UCS_OK) ||
         (context->mark_id == 0))) { /* of no use */
        uct_cuda_context_cleanup(driver, context, 1, 0);
    }
}

int uct_cuda_context_has_gone(const uct_cuda_driver_t *driver, const uct_cuda_context_t *context)
{
    uint64_t id = 0;

    return (context->mark != NULL) &&
           (uct_cuda_mark_query(driver, context->mark, &id) == UCS_OK) && (id != context->mark_id);
}

int uct_cuda_context_is(const uct_cuda_driver_t *driver, const uct_cuda_context_t *context,
                        uct_cu_ctx_t ctx, uint64_t id)
{
    return (context->ctx == ctx) && (context->id == id) &&
           (ucs_likely(id != 0) || !uct_cuda_context_has_gone(driver, context));
}

ucs_status_t uct_cuda_context_enter(uct_cuda_scope_t *scope, const uct_cuda_driver_t *driver,
                                    const uct_cuda_context_t *context)
{
    const int has_mark = (context->mark != NULL);
    uint64_t id        = 0;
    ucs_status_t status;

    status = has_mark ? uct_cuda_mark_query(driver, context->mark, &id) :
                        uct_cuda_context_id(driver, context->ctx, &id);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }
    if (ucs_unlikely(id != (has_mark ? context->mark_id : context->id))) {
        return UCS_ERR_IO_ERROR;
    }
    return uct_cuda_enter(scope, driver, context->ctx);
}

void uct_cuda_context_cleanup(const uct_cuda_driver_t *driver, uct_cuda_context_t *context,
                              int is_alive, int has_gone)
{
    int is_ours = has_gone; /* the page: no device reaches it */

    if (context->is_page && is_alive) {
        is_ours = (driver->cuMemHostUnregister(context->mark) == UCT_CU_SUCCESS);
    } else if ((context->mark != NULL) && is_alive) {
        driver->cuMemFree((uintptr_t)context->mark);
    }
    if (context->is_page && is_ours) {
        ucs_sys_munmap(context->mark, UCT_CUDA_MARK);
    }
    context->mark    = NULL;
    context->is_page = 0;
}

size_t uct_cuda_context_memory(const uct_cuda_context_t *context)
{
    return context->is_page ? UCT_CUDA_MARK : 0;
}
