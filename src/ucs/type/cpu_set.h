/* Halyard: a set of up to 1024 processors, independent of the system's cpu_set_t.
 *
 * Installed; field cpu_mask of ucp_worker_params_t. 128 bytes on every platform with 8-bit bytes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_TYPE_CPU_SET_H
#define UCS_TYPE_CPU_SET_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long int ucs_cpu_mask_t;

#define UCS_CPU_SETSIZE 1024
#define UCS_NCPUBITS    (8 * sizeof(ucs_cpu_mask_t))

/* Word that holds processor _cpu, and its bit in that word. */
#define UCS_CPUELT(_cpu)  ((_cpu) / UCS_NCPUBITS)
#define UCS_CPUMASK(_cpu) ((ucs_cpu_mask_t)1 << ((_cpu) % UCS_NCPUBITS))

typedef struct {
    ucs_cpu_mask_t ucs_bits[UCS_CPU_SETSIZE / UCS_NCPUBITS];
} ucs_cpu_set_t;

/* Empty the set; add a processor; take one out. A number of 1024 or more changes nothing. */
#define UCS_CPU_ZERO(_cpusetp) \
    do { \
        size_t _word; \
        for (_word = 0; _word < UCS_CPU_SETSIZE / UCS_NCPUBITS; ++_word) { \
            (_cpusetp)->ucs_bits[_word] = 0; \
        } \
    } while (0)

#define UCS_CPU_SET(_cpu, _cpusetp) \
    do { \
        size_t _number = (size_t)(_cpu); \
        if (_number < UCS_CPU_SETSIZE) { \
            (_cpusetp)->ucs_bits[UCS_CPUELT(_number)] |= UCS_CPUMASK(_number); \
        } \
    } while (0)

#define UCS_CPU_CLR(_cpu, _cpusetp) \
    do { \
        size_t _number = (size_t)(_cpu); \
        if (_number < UCS_CPU_SETSIZE) { \
            (_cpusetp)->ucs_bits[UCS_CPUELT(_number)] &= ~UCS_CPUMASK(_number); \
        } \
    } while (0)

/* 1 where processor cpu is in the set, else 0, also for numbers outside 0..1023. Any thread. */
static __inline__ int ucs_cpu_is_set(int cpu, const ucs_cpu_set_t *cpusetp)
{
    if ((cpu < 0) || (cpu >= UCS_CPU_SETSIZE)) {
        return 0;
    }
    return (cpusetp->ucs_bits[UCS_CPUELT((size_t)cpu)] & UCS_CPUMASK((size_t)cpu)) != 0;
}

/* Lowest processor of the set, 0 where the set is empty. Any thread. */
static __inline__ int ucs_cpu_set_find_lcs(const ucs_cpu_set_t *cpu_mask)
{
    int cpu;

    for (cpu = 0; cpu < UCS_CPU_SETSIZE; ++cpu) {
        if (ucs_cpu_is_set(cpu, cpu_mask)) {
            return cpu;
        }
    }
    return 0;
}

#endif
