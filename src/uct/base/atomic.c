/* Halyard: atomics of transports on memory that this processor can reach.
 *
 * The words are changed by C11 atomics, so that they agree with those of other threads and of other
 * processes that map the same memory, whichever transport these came by.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

/* The function for words of _bits bits. */
#define UCT_ATOMIC_DEFINE_APPLY(_bits) \
    static ucs_status_t uct_atomic_apply##_bits(ucs_atomic_u##_bits##_t *target, int op, \
                                                uint##_bits##_t value, uint##_bits##_t compare, \
                                                uint64_t *result_p) \
    { \
        switch (op) { \
        case UCT_ATOMIC_ADD: \
            *result_p = ucs_atomic_fetch_add(target, value); \
            return UCS_OK; \
        case UCT_ATOMIC_AND: \
            *result_p = ucs_atomic_fetch_and(target, value); \
            return UCS_OK; \
        case UCT_ATOMIC_OR: \
            *result_p = ucs_atomic_fetch_or(target, value); \
            return UCS_OK; \
        case UCT_ATOMIC_XOR: \
            *result_p = atomic_fetch_xor_explicit(target, value, memory_order_acq_rel); \
            return UCS_OK; \
        case UCT_ATOMIC_SWAP: \
            *result_p = ucs_atomic_exchange(target, value); \
            return UCS_OK; \
        case UCT_ATOMIC_CSWAP: \
            (void)ucs_atomic_cas(target, &compare, value); \
            *result_p = compare; /* what was there, whether it was exchanged or not */ \
            return UCS_OK; \
        default: \
            return UCS_ERR_INVALID_PARAM; \
        } \
    }

UCT_ATOMIC_DEFINE_APPLY(32)
UCT_ATOMIC_DEFINE_APPLY(64)

ucs_status_t uct_atomic_apply(void *target, int op, unsigned size, uint64_t value, uint64_t compare,
                              uint64_t *result_p)
{
    uint64_t unused;

    result_p = (result_p != NULL) ? result_p : &unused;
    if (((size != 4) && (size != 8)) || (((uintptr_t)target % size) != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }
    return (size == 4) ?
           uct_atomic_apply32(target, op, (uint32_t)value, (uint32_t)compare, result_p) :
           uct_atomic_apply64(target, op, value, compare, result_p);
}
