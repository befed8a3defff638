/* Halyard: names and descriptions of the kinds of memory.
 *
 * Programs read these arrays by their names, so they are exported and not const at the outer level.
 * Each has an entry for every kind, one for UCS_MEMORY_TYPE_UNKNOWN, and a NULL at the end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/memory/memory_type.h>

const char *ucs_memory_type_names[] = {
    [UCS_MEMORY_TYPE_HOST]         = "host",
    [UCS_MEMORY_TYPE_CUDA]         = "cuda",
    [UCS_MEMORY_TYPE_CUDA_MANAGED] = "cuda-managed",
    [UCS_MEMORY_TYPE_ROCM]         = "rocm",
    [UCS_MEMORY_TYPE_ROCM_MANAGED] = "rocm-managed",
    [UCS_MEMORY_TYPE_RDMA]         = "rdma",
    [UCS_MEMORY_TYPE_ZE_HOST]      = "ze-host",
    [UCS_MEMORY_TYPE_ZE_DEVICE]    = "ze-device",
    [UCS_MEMORY_TYPE_ZE_MANAGED]   = "ze-managed",
    [UCS_MEMORY_TYPE_GAUDI]        = "gaudi",
    [UCS_MEMORY_TYPE_UNKNOWN]      = "unknown",
    [UCS_MEMORY_TYPE_UNKNOWN + 1]  = NULL
};

const char *ucs_memory_type_descs[] = {
    [UCS_MEMORY_TYPE_HOST]         = "host memory",
    [UCS_MEMORY_TYPE_CUDA]         = "memory of an NVIDIA GPU",
    [UCS_MEMORY_TYPE_CUDA_MANAGED] = "memory that migrates between host and NVIDIA GPU",
    [UCS_MEMORY_TYPE_ROCM]         = "memory of an AMD GPU",
    [UCS_MEMORY_TYPE_ROCM_MANAGED] = "memory that migrates between host and AMD GPU",
    [UCS_MEMORY_TYPE_RDMA]         = "memory of a network device",
    [UCS_MEMORY_TYPE_ZE_HOST]      = "Level Zero memory on the host",
    [UCS_MEMORY_TYPE_ZE_DEVICE]    = "Level Zero memory on the GPU",
    [UCS_MEMORY_TYPE_ZE_MANAGED]   = "Level Zero memory that migrates",
    [UCS_MEMORY_TYPE_GAUDI]        = "memory of a Gaudi accelerator",
    [UCS_MEMORY_TYPE_UNKNOWN]      = "unknown",
    [UCS_MEMORY_TYPE_UNKNOWN + 1]  = NULL
};
