/* Halyard: cuda: copies by a kernel: starting, its end, recall.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_engine.h>

#define UCS_LOG_COMPONENT "cuda"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

/* Measured on two H200: fewer are as fast by engines; 32 blocks come near to what more of them
 * reach. */
#define UCT_CUDA_KERNEL_MIN     4
#define UCT_CUDA_KERNEL_BLOCKS  128
#define UCT_CUDA_KERNEL_SHARE   (16ul << 10) /* bytes of a block, where there are that many */
#define UCT_CUDA_KERNEL_THREADS 512

/* Places that differ modulo 16 are copied byte by byte. */
#define UCT_CUDA_KERNEL_ODD     (4ul << 10)

/* So long, and a tenth of a nanosecond for each byte, is no kernel under way whose device has room
 * for it. */
#define UCT_CUDA_KERNEL_NS      100000ull
#define UCT_CUDA_PAUSE_MIN_NS   1000000ull
#define UCT_CUDA_PAUSE_MAX_NS   1000000000ull

/* Of the driver to recall kernels, until they count as lost. */
#define UCT_CUDA_REFUSALS       1000



/* As cuda_kernel_ptx.c reads them. */
typedef struct {
    uint64_t ended_ptr;
    uint64_t number;
    struct {
        uint64_t dest, src, length;
    } copies[UCT_CUDA_KERNEL_MAX];
} uct_cuda_kernel_params_t;

_Static_assert(sizeof(uct_cuda_kernel_params_t) == 3088, "as the kernel declares them");

/* ------------------------------------------------------------------ loading */

static int uct_cuda_kernels_load(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver)
{
    int option     = UCT_CU_JIT_CACHE_MODE;
    void *value    = NULL; /* no files in the user's home */
    size_t size    = 0;
    int result;

    result = driver->cuModuleLoadDataEx(&kernels->module, uct_cuda_kernel_ptx, 1, &option, &value);
    if (result != UCT_CU_SUCCESS) {
        kernels->module = NULL;
        return result;
    }
    result = driver->cuModuleGetFunction(&kernels->function, kernels->module, "halyard_copy");
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuModuleGetGlobal(&kernels->counts, &size, kernels->module,
                                           "halyard_counts");
    }
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuStreamCreateWithPriority(&kernels->stream, UCT_CU_STREAM_NON_BLOCKING,
                                                    UCT_CU_PRIORITY_HIGH);
    }
    if (result == UCT_CU_SUCCESS) {
        kernels->page = uct_cuda_host_make(driver, UCT_CUDA_PAGE, &kernels->is_registered);
        result        = kernels->is_registered ?
                        driver->cuMemHostGetDevicePointer(&kernels->page_ptr, kernels->page, 0) :
                        UCT_CU_OUT_OF_MEMORY;
    }
    return result;
}

static int uct_cuda_kernels_are_there(const uct_cuda_driver_t *driver)
{
    return (driver->cuModuleLoadDataEx != NULL) && (driver->cuModuleGetFunction != NULL) &&
           (driver->cuModuleGetGlobal != NULL) && (driver->cuModuleUnload != NULL) &&
           (driver->cuLaunchKernel != NULL) && (driver->cuStreamCreateWithPriority != NULL) &&
           (driver->cuMemHostGetDevicePointer != NULL);
}

static UCS_COLD void uct_cuda_kernels_init(uct_cuda_kernels_t *kernels,
                                           const uct_cuda_driver_t *driver)
{
    const int result = uct_cuda_kernels_are_there(driver) ?
                       uct_cuda_kernels_load(kernels, driver) : UCT_CU_NOT_SUPPORTED;

    if (result == UCT_CU_SUCCESS) {
        kernels->pause_ns = UCT_CUDA_PAUSE_MIN_NS;
        kernels->state    = UCT_CUDA_KERNELS_READY;
        return;
    }
    (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DIAG, "loading a kernel for short copies", result);
    uct_cuda_kernels_cleanup(kernels, driver, 1, 0);
    kernels->state = UCT_CUDA_KERNELS_REFUSED;
}

/* Some were started that have not ended. */
static int uct_cuda_kernels_are_out(const uct_cuda_kernels_t *kernels)
{
    return (kernels->page != NULL) &&
           (ucs_atomic_load_acquire(&kernels->page->ended) != kernels->last);
}

int uct_cuda_kernels_may_copy(const uct_cuda_kernels_t *kernels)
{
    return uct_cuda_kernels_are_out(kernels) && (kernels->recalled != kernels->last);
}

void uct_cuda_kernels_cleanup(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                              int is_alive, int has_gone)
{
    const int is_idle = is_alive && !uct_cuda_kernels_are_out(kernels);

    uct_cuda_host_free(driver, kernels->page, UCT_CUDA_PAGE, kernels->is_registered, is_idle,
                       has_gone);
    if (is_idle && (kernels->stream != NULL)) {
        driver->cuStreamDestroy(kernels->stream);
    }
    if (is_idle && (kernels->module != NULL)) {
        driver->cuModuleUnload(kernels->module);
    }
    *kernels = (uct_cuda_kernels_t){0};
}

/* ------------------------------------------------------------------ starting */

static int uct_cuda_kernel_makes(const uct_cuda_part_t *part)
{
    return part->by_kernel && ((((part->dest ^ part->src) % 16) == 0) ||
                               (part->length <= UCT_CUDA_KERNEL_ODD));
}

/* After a recall: not before those kernels have ended and the pause is over. */
static int uct_cuda_kernels_are_paused(const uct_cuda_kernels_t *kernels)
{
    return (kernels->recalled == kernels->last) && (kernels->last > 0) &&
           (uct_cuda_kernels_are_out(kernels) || (ucs_sys_clock_ns() < kernels->again_ns));
}

unsigned uct_cuda_kernels_take(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                               const ucs_list_link_t *copies, int is_idle)
{
    size_t bytes = 0;
    unsigned n   = 0;
    const uct_cuda_copy_t *copy;

    if (kernels->state == UCT_CUDA_KERNELS_REFUSED) {
        return 0;
    }
    ucs_list_for_each(copy, copies, elem) {
        if ((n == UCT_CUDA_KERNEL_MAX) || (bytes >= UCT_CUDA_BATCH_BYTES) ||
            !uct_cuda_kernel_makes(&copy->part)) {
            break;
        }
        bytes += copy->part.length;
        ++n;
    }
    if ((n < UCT_CUDA_KERNEL_MIN) || kernels->is_recalling ||
        uct_cuda_kernels_are_paused(kernels)) {
        return 0;
    }
    if (ucs_unlikely(kernels->state == UCT_CUDA_KERNELS_NEW)) {
        uct_cuda_kernels_init(kernels, driver);
    }
    if (kernels->state != UCT_CUDA_KERNELS_READY) {
        return 0;
    }
    return (is_idle && (n >= 2 * UCT_CUDA_KERNEL_ENOUGH)) ? n / 2 : n;
}

uint64_t uct_cuda_kernels_start(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                                const ucs_list_link_t *copies)
{
    size_t longest = 0, bytes = 0;
    unsigned n     = 0;
    uct_cuda_kernel_params_t params;
    const uct_cuda_copy_t *copy;
    size_t size, blocks;
    int result;

    params.ended_ptr = kernels->page_ptr + offsetof(uct_cuda_kernel_page_t, ended);
    params.number    = kernels->last + 1;
    ucs_list_for_each(copy, copies, elem) {
        params.copies[n].dest   = copy->part.dest;
        params.copies[n].src    = copy->part.src;
        params.copies[n].length = copy->part.length;
        longest                 = ucs_max(longest, copy->part.length);
        bytes                  += copy->part.length;
        ++n;
    }
    blocks = ucs_min(longest / UCT_CUDA_KERNEL_SHARE, UCT_CUDA_KERNEL_BLOCKS / n);
    size   = offsetof(uct_cuda_kernel_params_t, copies) + n * sizeof(params.copies[0]);
    {
        void *extra[] = {UCT_CU_LAUNCH_BUFFER, &params, UCT_CU_LAUNCH_SIZE, &size, NULL};

        result = driver->cuLaunchKernel(kernels->function, (unsigned)ucs_max(blocks, 1ul), n, 1,
                                        UCT_CUDA_KERNEL_THREADS, 1, 1, 0, kernels->stream, NULL,
                                        extra);
    }
    if (ucs_unlikely(result != UCT_CU_SUCCESS)) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DIAG, "cuLaunchKernel", result);
        kernels->state = UCT_CUDA_KERNELS_REFUSED;
        return 0;
    }
    kernels->until_ns = ucs_sys_clock_ns() + UCT_CUDA_KERNEL_NS + (bytes / 10);
    return ++kernels->last;
}

/* ------------------------------------------------------------------ ends */

static int uct_cuda_kernels_look(const uct_cuda_kernels_t *kernels,
                                 const uct_cuda_driver_t *driver, uct_cu_stream_t stream)
{
    return driver->cuMemcpyAsync(kernels->page_ptr + offsetof(uct_cuda_kernel_page_t, counts),
                                 kernels->counts, sizeof(kernels->page->counts), stream);
}

/* Result of the driver; what is under way in the stream has ended. */
static int uct_cuda_kernels_recall(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                                   uct_cu_stream_t stream)
{
    int result;

    if (!kernels->is_recalling) {
        kernels->page->recalled = kernels->last;
        result = driver->cuMemcpyAsync(kernels->counts + sizeof(kernels->page->counts),
                                       kernels->page_ptr +
                                           offsetof(uct_cuda_kernel_page_t, recalled),
                                       sizeof(kernels->page->recalled), stream);
        if (result != UCT_CU_SUCCESS) {
            return result;
        }
        ucs_diag_once("a kernel that makes short copies has not ended in time, as where others "
                      "fill the device: copy engines make them for a while");
        kernels->is_recalling    = 1;
        kernels->page->counts[0] = kernels->page->counts[1] + 1;
    }
    if (ucs_atomic_load_acquire(&kernels->page->counts[0]) != kernels->page->counts[1]) {
        return uct_cuda_kernels_look(kernels, driver, stream);
    }
    kernels->is_recalling = 0;
    kernels->recalled     = kernels->last;
    kernels->again_ns     = ucs_sys_clock_ns() + kernels->pause_ns;
    kernels->pause_ns     = ucs_min(2 * kernels->pause_ns, UCT_CUDA_PAUSE_MAX_NS);
    return UCT_CU_SUCCESS;
}

int uct_cuda_kernels_have_ended(uct_cuda_kernels_t *kernels, uint64_t number)
{
    /* Where they are recalled it may have ended without a copy. */
    if (kernels->is_recalling || (number <= kernels->recalled) ||
        (ucs_atomic_load_acquire(&kernels->page->ended) < number)) {
        return 0;
    }
    kernels->pause_ns = UCT_CUDA_PAUSE_MIN_NS;
    return 1;
}

int uct_cuda_kernels_are_due(const uct_cuda_kernels_t *kernels)
{
    return kernels->is_recalling || (kernels->recalled == kernels->last) ||
           (ucs_sys_clock_ns() >= kernels->until_ns);
}

ucs_status_t uct_cuda_kernels_poll(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                                   uint64_t number, uct_cu_stream_t stream)
{
    int result;

    if (number <= kernels->recalled) {
        return UCS_ERR_CANCELED;
    }
    if (uct_cuda_kernels_have_ended(kernels, number)) {
        return UCS_OK;
    }
    if (!uct_cuda_kernels_are_due(kernels)) {
        return UCS_INPROGRESS;
    }
    result = uct_cuda_query(driver, NULL, stream);
    if (result == UCT_CU_NOT_READY) {
        return UCS_INPROGRESS;
    }
    if (result == UCT_CU_SUCCESS) {
        result = uct_cuda_kernels_recall(kernels, driver, stream);
    }
    if (ucs_likely(result == UCT_CU_SUCCESS)) {
        kernels->num_refusals = 0;
        return (number <= kernels->recalled) ? UCS_ERR_CANCELED : UCS_INPROGRESS;
    }
    if (++kernels->num_refusals < UCT_CUDA_REFUSALS) {
        return UCS_INPROGRESS;
    }
    return uct_cuda_failed(driver, UCS_LOG_LEVEL_ERROR, "recalling a kernel", result);
}
