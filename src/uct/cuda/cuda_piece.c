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
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <errno.h>

/* An owner that has not made progress for so long is not waited for any longer: the memory is
 * staged until its answer is there. */
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

int uct_cuda_piece_show(const uct_cuda_driver_t *driver, int result, uct_cu_piece_t piece,
                        const char *what)
{
    int fd = -1;

    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemExportToShareableHandle(&fd, piece, UCT_CU_HANDLE_DESCRIPTOR, 0);
        driver->cuMemRelease(piece);
    }
    if (result != UCT_CU_SUCCESS) {
        (void)uct_cuda_failed(driver, UCS_LOG_LEVEL_DEBUG, what, result);
        return -1;
    }
    return fd;
}

int uct_cuda_piece_export(const uct_cuda_driver_t *driver, uct_cu_ptr_t base)
{
    uct_cu_piece_t piece = 0;
    int result;

    if (!uct_cuda_piece_is_possible(driver)) {
        return -1;
    }
    result = driver->cuMemRetainAllocationHandle(&piece, (void *)(uintptr_t)base);
    return uct_cuda_piece_show(driver, result, piece, "export of a descriptor");
}

/* A proof of a key, if it is its own. */
static int uct_cuda_proof_read(const uct_cuda_ipc_packed_t *key, unsigned index,
                               uct_cuda_ipc_proof_t *proof)
{
    const uint64_t address = key->by.shown.proof + (index * sizeof(*proof));
    struct iovec local     = {proof, sizeof(*proof)};
    struct iovec remote    = {(void *)(uintptr_t)address, sizeof(*proof)};

    return (ucs_sys_process_vm_readv((pid_t)key->pid, &local, 1, &remote, 1, 0) ==
            (ssize_t)sizeof(*proof)) &&
           (proof->instance == key->instance) && (proof->id == key->id);
}

/* A descriptor from the owner's table; 0: that is not to be had. */
static int uct_cuda_descriptor_fetch(const uct_cuda_ipc_packed_t *key, unsigned index,
                                     uct_cuda_descriptor_t *descriptor)
{
    uct_cuda_ipc_proof_t before, after;
    int process;

    process = ucs_sys_pidfd_open((pid_t)key->pid, 0);
    if (process < 0) {
        return 0;
    }
    descriptor->fd = -1;
    if (uct_cuda_proof_read(key, index, &before)) {
        descriptor->fd     = ucs_sys_pidfd_getfd(process, before.fd, 0);
        descriptor->length = before.length;
    }
    ucs_sys_close(process);
    if ((descriptor->fd >= 0) &&
        (!uct_cuda_proof_read(key, index, &after) || (after.fd != before.fd))) {
        ucs_sys_close(descriptor->fd);
        return 0;
    }
    return descriptor->fd >= 0;
}

/* The answer to the question; see uct_cuda_descriptors_get. */
static ucs_status_t uct_cuda_descriptor_listen(uct_cuda_mapping_t *mapping,
                                               uct_cuda_descriptor_t *descriptor)
{
    ucs_status_t status;

    status = uct_descriptor_listen(&mapping->question, &descriptor->fd, &descriptor->length);
    if (status == UCS_ERR_NO_RESOURCE) {
        return (ucs_sys_clock_ns() > mapping->until_ns) ? UCS_ERR_TIMED_OUT : status;
    }
    return (status == UCS_ERR_UNREACHABLE) ? UCS_ERR_NOT_CONNECTED : status;
}

static ucs_status_t uct_cuda_descriptor_get(uct_cuda_mapping_t *mapping,
                                            uct_cuda_descriptor_t *descriptor)
{
    const uct_cuda_ipc_packed_t *key = &mapping->key;

    if (mapping->question >= 0) {
        return uct_cuda_descriptor_listen(mapping, descriptor);
    }
    if ((key->pid_ns == mapping->md->pid_ns) &&
        uct_cuda_descriptor_fetch(key, mapping->count, descriptor)) {
        return UCS_OK;
    }
    if (mapping->until_ns == 0) {
        mapping->until_ns = ucs_sys_clock_ns() + UCT_CUDA_ANSWER_NS;
    }
    mapping->question = uct_descriptor_ask(key->by.shown.name, key->place,
                                           key->instance + mapping->count, key->id);
    return ((mapping->question >= 0) || /* many ask at once: */
            ((errno == EAGAIN) && (ucs_sys_clock_ns() < mapping->until_ns))) ?
           UCS_ERR_NO_RESOURCE : UCS_ERR_NOT_CONNECTED;
}

ucs_status_t uct_cuda_descriptors_get(uct_cuda_mapping_t *mapping)
{
    ucs_status_t status = UCS_OK;

    while (mapping->count < mapping->key.count) {
        status = uct_cuda_descriptor_get(mapping, &mapping->descriptors[mapping->count]);
        if (status != UCS_OK) {
            break;
        }
        ++mapping->count;
    }
    if ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE)) {
        ucs_warn_once("device memory of process %u is staged: its descriptor cannot be had",
                      mapping->key.pid);
    }
    return status;
}

void uct_cuda_descriptors_close(uct_cuda_mapping_t *mapping)
{
    while (mapping->count > 0) {
        ucs_sys_close(mapping->descriptors[--mapping->count].fd);
    }
}

static int uct_cuda_piece_map(const uct_cuda_driver_t *driver,
                              const uct_cuda_descriptor_t *descriptor, uct_cu_ptr_t ptr)
{
    uct_cu_piece_t piece;
    int result;

    result = driver->cuMemImportFromShareableHandle(&piece, (void *)(intptr_t)descriptor->fd,
                                                    UCT_CU_HANDLE_DESCRIPTOR);
    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemMap(ptr, descriptor->length, 0, piece, 0);
        driver->cuMemRelease(piece);
    }
    return result;
}

/* Maps the pieces side by side. *mapped_p: bytes that are, also on failure. */
static int uct_cuda_pieces_map(const uct_cuda_driver_t *driver, const uct_cuda_mapping_t *mapping,
                               uct_cu_ptr_t ptr, size_t *mapped_p)
{
    uct_cu_access_t access = {{UCT_CU_LOCATION_DEVICE, 0}, UCT_CU_ACCESS_READ_WRITE};
    const size_t size      = mapping->key.size;
    int result             = driver->cuCtxGetDevice(&access.location.id);
    unsigned i;

    for (i = 0; (i < mapping->count) && (result == UCT_CU_SUCCESS); ++i) {
        if (mapping->descriptors[i].length > size - *mapped_p) {
            return UCT_CU_INVALID_VALUE;
        }
        result = uct_cuda_piece_map(driver, &mapping->descriptors[i], ptr + *mapped_p);
        if (result == UCT_CU_SUCCESS) {
            *mapped_p += mapping->descriptors[i].length;
        }
    }
    if ((result == UCT_CU_SUCCESS) && (*mapped_p < size)) {
        return UCT_CU_INVALID_VALUE;
    }
    return (result == UCT_CU_SUCCESS) ? driver->cuMemSetAccess(ptr, size, &access, 1) : result;
}

int uct_cuda_piece_open(const uct_cuda_driver_t *driver, const uct_cuda_mapping_t *mapping,
                        uct_cu_ptr_t *ptr_p)
{
    uct_cu_ptr_t ptr = 0;
    size_t mapped    = 0;
    int result;

    if (!uct_cuda_piece_is_possible(driver)) {
        return UCT_CU_NOT_SUPPORTED;
    }
    result = driver->cuMemAddressReserve(&ptr, mapping->key.size, 0, 0, 0);
    if (result != UCT_CU_SUCCESS) {
        return result;
    }
    result = uct_cuda_pieces_map(driver, mapping, ptr, &mapped);
    if (result == UCT_CU_SUCCESS) {
        *ptr_p = ptr;
        return UCT_CU_SUCCESS;
    }
    if (mapped > 0) {
        driver->cuMemUnmap(ptr, mapped);
    }
    driver->cuMemAddressFree(ptr, mapping->key.size);
    return result;
}

int uct_cuda_piece_close(const uct_cuda_driver_t *driver, uct_cu_ptr_t ptr, size_t length)
{
    uct_cuda_scope_t scope;
    const int is_relaxed = (uct_cuda_relax(&scope, driver) == UCS_OK);
    int result           = driver->cuMemUnmap(ptr, length);

    if (result == UCT_CU_SUCCESS) {
        result = driver->cuMemAddressFree(ptr, length);
    }
    if (is_relaxed) {
        uct_cuda_restore(&scope);
    }
    return result;
}
