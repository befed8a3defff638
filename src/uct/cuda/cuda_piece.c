/* Halyard: cuda_ipc: memory that a program maps piece by piece (cuMemCreate, cuMemMap).
 *
 * A piece, as a pool, is exported as a descriptor. The importer takes a copy of it from the owner's
 * table of descriptors, which the kernel allows where it lets the one process look into the other;
 * elsewhere it asks the owner for one (base/descriptor.h). The number of a descriptor says little,
 * since it may have been used again; the proof that stands in the owner's memory
 * (uct_cuda_ipc_proof_t) is read before the copy is taken and afterwards, and shows that it was the
 * right one.
 *
 * An imported piece lives as long as somebody maps it, whatever its owner does.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <errno.h>

/* An owner that has not made progress for so long is not waited for any longer. */
#define UCT_CUDA_ANSWER_NS 2000000000ull

static int uct_cuda_piece_is_possible(const uct_cuda_driver_t *driver)
{
    return (driver->cuMemRetainAllocationHandle != NULL) &&
           (driver->cuMemExportToShareableHandle != NULL) &&
           (driver->cuMemImportFromShareableHandle != NULL) && (driver->cuMemRelease != NULL) &&
           (driver->cuMemAddressReserve != NULL) && (driver->cuMemAddressFree != NULL) &&
           (driver->cuMemMap != NULL) && (driver->cuMemSetAccess != NULL) &&
           (driver->cuMemUnmap != NULL);
}

int uct_cuda_piece_export(const uct_cuda_driver_t *driver, uct_cu_ptr_t base)
{
    int fd = -1;
    uct_cu_piece_t piece;
    int result;

    if (!uct_cuda_piece_is_possible(driver)) {
        return -1;
    }
    result = driver->cuMemRetainAllocationHandle(&piece, (void *)(uintptr_t)base);
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemExportToShareableHandle(&fd, piece, UCT_CU_HANDLE_DESCRIPTOR, 0);
        driver->cuMemRelease(piece);
    }
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, "export of a descriptor", result);
        return -1;
    }
    return fd;
}

/* The proof of a key, if it is its own. */
static int uct_cuda_proof_read(const uct_cuda_ipc_packed_t *key, uct_cuda_ipc_proof_t *proof)
{
    struct iovec local  = {proof, sizeof(*proof)};
    struct iovec remote = {(void *)(uintptr_t)key->proof, sizeof(*proof)};

    return (ucs_sys_process_vm_readv((pid_t)key->pid, &local, 1, &remote, 1, 0) ==
            (ssize_t)sizeof(*proof)) &&
           (proof->instance == key->instance) && (proof->id == key->id);
}

static int uct_cuda_descriptor_fetch(const uct_cuda_ipc_packed_t *key)
{
    int fd = -1;
    uct_cuda_ipc_proof_t before, after;
    int process;

    process = ucs_sys_pidfd_open((pid_t)key->pid, 0);
    if (process < 0) {
        return -1;
    }
    if (uct_cuda_proof_read(key, &before)) {
        fd = ucs_sys_pidfd_getfd(process, before.fd, 0);
    }
    ucs_sys_close(process);
    if ((fd >= 0) && (!uct_cuda_proof_read(key, &after) || (after.fd != before.fd))) {
        ucs_sys_close(fd);
        return -1;
    }
    return fd;
}

ucs_status_t uct_cuda_descriptor_get(uct_cuda_mapping_t *mapping, int *fd_p)
{
    const uct_cuda_ipc_packed_t *key = &mapping->key;
    ucs_status_t status              = UCS_ERR_UNREACHABLE;

    if (mapping->question >= 0) {
        status = uct_descriptor_listen(&mapping->question, fd_p);
        if ((status == UCS_ERR_NO_RESOURCE) && (ucs_sys_clock_ns() > mapping->until_ns)) {
            ucs_sys_close(mapping->question);
            mapping->question = -1;
            status            = UCS_ERR_UNREACHABLE;
        }
    } else {
        *fd_p = (key->pid_ns == mapping->md->pid_ns) ? uct_cuda_descriptor_fetch(key) : -1;
        if (*fd_p >= 0) {
            return UCS_OK;
        }
        if (mapping->until_ns == 0) {
            mapping->until_ns = ucs_sys_clock_ns() + UCT_CUDA_ANSWER_NS;
        }
        mapping->question = uct_descriptor_ask(key->name, key->place, key->instance, key->id);
        if ((mapping->question >= 0) || /* many ask at once: */
            ((errno == EAGAIN) && (ucs_sys_clock_ns() < mapping->until_ns))) {
            status = UCS_ERR_NO_RESOURCE;
        }
    }
    if (status == UCS_ERR_UNREACHABLE) {
        ucs_diag_once("device memory of process %u is staged: its descriptor cannot be had",
                      key->pid);
    }
    return status;
}

static int uct_cuda_piece_map(const uct_cuda_driver_t *driver, uct_cu_piece_t piece, size_t length,
                              uct_cu_ptr_t *ptr_p)
{
    uct_cu_access_t access = {{UCT_CU_LOCATION_DEVICE, 0}, UCT_CU_ACCESS_READ_WRITE};
    uct_cu_ptr_t ptr       = 0;
    int result;

    result = driver->cuCtxGetDevice(&access.location.id);
    result = (result != UCT_CU_SUCCESS) ? result :
             driver->cuMemAddressReserve(&ptr, length, 0, 0, 0);
    if (result != UCT_CU_SUCCESS) {
        return result;
    }
    result = driver->cuMemMap(ptr, length, 0, piece, 0);
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemSetAccess(ptr, length, &access, 1);
        if (result != UCT_CU_SUCCESS) {
            driver->cuMemUnmap(ptr, length);
        }
    }
    if (result != UCT_CU_SUCCESS) {
        driver->cuMemAddressFree(ptr, length);
        return result;
    }
    *ptr_p = ptr;
    return UCT_CU_SUCCESS;
}

int uct_cuda_piece_open(const uct_cuda_driver_t *driver, const uct_cuda_ipc_packed_t *key, int fd,
                        uct_cu_ptr_t *ptr_p)
{
    uct_cu_piece_t piece;
    int result;

    if (!uct_cuda_piece_is_possible(driver)) {
        return UCT_CU_NOT_SUPPORTED;
    }
    result = driver->cuMemImportFromShareableHandle(&piece, (void *)(intptr_t)fd,
                                                    UCT_CU_HANDLE_DESCRIPTOR);
    if (result == UCT_CU_SUCCESS) {
        result = uct_cuda_piece_map(driver, piece, key->size, ptr_p);
        driver->cuMemRelease(piece);
    }
    return result;
}

int uct_cuda_piece_close(const uct_cuda_driver_t *driver, uct_cu_ptr_t ptr, size_t length)
{
    const int result = driver->cuMemUnmap(ptr, length);

    return (result == UCT_CU_SUCCESS) ? driver->cuMemAddressFree(ptr, length) : result;
}
