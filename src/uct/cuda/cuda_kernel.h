/* Halyard: cuda: copies by a kernel of ours, where the program allows it (UCX_CUDA_IPC_KERNELS).
 *
 * The driver takes 1.25 us to hand a short copy to a copy engine, also in batches, and 5 us to
 * start a kernel that makes 128 of them. One alone is faster by an engine (8.2 against 11.7 us),
 * and so are long ones (measured on two H200). Within a device the driver copies by kernels itself,
 * one for each copy: 4.2 us.
 *
 * A kernel starts when the device has room for it, but another one that fills the device may wait
 * for the very bytes (within a device the driver's copies wait then, too). So ours can be recalled.
 * Each of its blocks counts itself first and looks then whether that has happened; whoever recalls
 * writes that first and reads the counts then, by copies of the driver's. One of both sees the
 * other (store, fence, load on either side), so when as many blocks have ended as have started none
 * touches memory any more, and the driver makes the copies; some are made twice, which nobody sees
 * but who watches the places of a put. Kernels are not used for a while then.
 *
 * Loading the kernel waits for all that run in its context (measured: driver 580), so it may wait
 * for ever where one of the program's waits for a message: that is why it has to be allowed.
 *
 * All of a queue; calls are made in its context.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CUDA_KERNEL_H
#define UCT_CUDA_KERNEL_H

#include <uct/cuda/cuda_driver.h>

#include <ucs/arch/atomic.h>
#include <ucs/ds/list.h>

#define UCT_CUDA_KERNEL_MAX    128           /* copies of one */
#define UCT_CUDA_KERNEL_ENOUGH 16            /* for a second beside the first, which leaves it half:
                                                the device has work while we end copies */
#define UCT_CUDA_KERNEL_FAR    (256ul << 10) /* bytes of a copy to another device, up to which
                                                kernels are faster in a window of 64, */
#define UCT_CUDA_KERNEL_NEAR   (4ul << 20)   /* and of one within a device */
#define UCT_CUDA_PAGE          4096ul

/* What the device and we write to each other; a page of ours. */
typedef struct {
    ucs_atomic_u64_t ended;     /* number of the kernel that has ended last */
    uint64_t         recalled;  /* goes to the device's own memory, */
    ucs_atomic_u32_t counts[2]; /* and this comes from there: blocks that have started, and ended */
} uct_cuda_kernel_page_t;

typedef enum {
    UCT_CUDA_KERNELS_NEW,
    UCT_CUDA_KERNELS_READY,
    UCT_CUDA_KERNELS_REFUSED
} uct_cuda_kernels_state_t;

typedef struct {
    uct_cuda_kernels_state_t state;
    uct_cu_module_t          module;
    uct_cu_function_t        function;
    uct_cu_stream_t          stream;
    uct_cu_ptr_t             counts;   /* of blocks, in the device's memory, and what is recalled */
    uct_cuda_kernel_page_t  *page;
    uct_cu_ptr_t             page_ptr; /* for the device */
    int                      is_registered;
    uint64_t                 last;     /* number of the one that was started last */
    uint64_t                 recalled; /* none up to this number copies any more */
    int                      is_recalling;
    unsigned                 num_refusals; /* of the driver, in a row, to recall them */
    uint64_t                 until_ns; /* those that have not ended then are recalled */
    uint64_t                 again_ns; /* and none is started before this time, */
    uint64_t                 pause_ns; /* for so long */
} uct_cuda_kernels_t;

/* How many of the copies at the head of the list one kernel makes now; 0: engines do it. is_idle:
 * nothing is with the device. Loads the kernel at the first time. */
unsigned uct_cuda_kernels_take(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                               const ucs_list_link_t *copies, int is_idle);

/* Starts one for all copies of the list, UCT_CUDA_KERNEL_MAX at most. Returns its number; 0: the
 * driver refuses it. */
uint64_t uct_cuda_kernels_start(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                                const ucs_list_link_t *copies);

/* Has it ended, with all copied? 0: not, or it is recalled. No call of the driver, nor is the next
 * one. */
int uct_cuda_kernels_have_ended(uct_cuda_kernels_t *kernels, uint64_t number);

/* Is it time to recall those that have not, or is that under way? */
int uct_cuda_kernels_are_due(const uct_cuda_kernels_t *kernels);

/* Has it ended? UCS_OK: all is copied; UCS_INPROGRESS; UCS_ERR_CANCELED: it was recalled, engines
 * are to copy. Recalls those that take too long; `stream` is one for copy engines. */
ucs_status_t uct_cuda_kernels_poll(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                                   uint64_t number, uct_cu_stream_t stream);

/* Not zero: one that has not ended is not known to be recalled. */
int uct_cuda_kernels_may_copy(const uct_cuda_kernels_t *kernels);

/* is_alive: the context is current; has_gone: it is certain that it is gone. What the device may
 * still use stays. */
void uct_cuda_kernels_cleanup(uct_cuda_kernels_t *kernels, const uct_cuda_driver_t *driver,
                              int is_alive, int has_gone);

/* The kernel, for the driver's compiler. */
extern const char uct_cuda_kernel_ptx[];

#endif
