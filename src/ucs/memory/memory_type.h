/* Halyard: kinds of memory that a buffer can lie in.
 *
 * The values are part of the binary interface. Programs built with headers older than 1.14 know
 * only the first five and pass 5 for "unknown"; the library therefore takes every kind that it
 * cannot handle as a wish to detect the kind itself.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_MEMORY_MEMORY_TYPE_H
#define UCS_MEMORY_MEMORY_TYPE_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum ucs_memory_type {
    UCS_MEMORY_TYPE_HOST,          /* ordinary memory of the process */
    UCS_MEMORY_TYPE_CUDA,          /* on an NVIDIA GPU */
    UCS_MEMORY_TYPE_CUDA_MANAGED,  /* migrates between host and NVIDIA GPU */
    UCS_MEMORY_TYPE_ROCM,          /* on an AMD GPU */
    UCS_MEMORY_TYPE_ROCM_MANAGED,  /* migrates between host and AMD GPU */
    UCS_MEMORY_TYPE_RDMA,          /* on a network device */
    UCS_MEMORY_TYPE_ZE_HOST,       /* Level Zero: host memory that the GPU can reach */
    UCS_MEMORY_TYPE_ZE_DEVICE,     /* Level Zero: on the GPU */
    UCS_MEMORY_TYPE_ZE_MANAGED,    /* Level Zero: migrates */
    UCS_MEMORY_TYPE_GAUDI,         /* on a Gaudi accelerator */
    UCS_MEMORY_TYPE_LAST,
    UCS_MEMORY_TYPE_UNKNOWN = UCS_MEMORY_TYPE_LAST  /* to be found out */
} ucs_memory_type_t;

/* Bits (1 << kind) of the kinds that the processor can load from and store to. */
#define UCS_MEMORY_TYPES_CPU_ACCESSIBLE \
    (UCS_BIT(UCS_MEMORY_TYPE_HOST) | UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED) | \
     UCS_BIT(UCS_MEMORY_TYPE_ROCM_MANAGED) | UCS_BIT(UCS_MEMORY_TYPE_ZE_HOST) | \
     UCS_BIT(UCS_MEMORY_TYPE_ZE_MANAGED))

/* Loop over the kinds; _x is an integer variable of the caller. */
#define ucs_memory_type_for_each(_x) \
    for ((_x) = UCS_MEMORY_TYPE_HOST; (_x) < UCS_MEMORY_TYPE_LAST; (_x)++)

/* Short name and description of each kind, indexed by it; entry UCS_MEMORY_TYPE_UNKNOWN is there
 * too, and a NULL ends each array. Read only. */
extern const char *ucs_memory_type_names[];
extern const char *ucs_memory_type_descs[];

END_C_DECLS

#endif
