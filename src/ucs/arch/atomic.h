/* Halyard: atomics under short names that C and C++ share.
 *
 * In C the types are C11 _Atomic and the operations those of <stdatomic.h>; in C++, where that
 * header does not exist before C++23, they are std::atomic, of the same size and representation, so
 * that the tests can look at the same memory. There are no stand-alone fences: ThreadSanitizer does
 * not see them, and no algorithm here needs one (ucp_worker_fence is about the user's memory: see
 * ucs_arch_full_fence). All types are lock-free and may lie in memory
 * shared by processes; zero bytes are the value 0.
 *
 * At each use a comment names the pair: an acquire "A3" reads what the release "R3" published.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_ARCH_ATOMIC_H
#define UCS_ARCH_ATOMIC_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define UCS_ATOMIC_STD_ std::
#define UCS_ATOMIC_TYPE_(_type) std::atomic<_type>
#else
#include <stdatomic.h>
#define UCS_ATOMIC_STD_
#define UCS_ATOMIC_TYPE_(_type) _Atomic _type
#endif

typedef UCS_ATOMIC_TYPE_(uint8_t) ucs_atomic_u8_t;
typedef UCS_ATOMIC_TYPE_(uint16_t) ucs_atomic_u16_t;
typedef UCS_ATOMIC_TYPE_(uint32_t) ucs_atomic_u32_t;
typedef UCS_ATOMIC_TYPE_(uint64_t) ucs_atomic_u64_t;

static_assert(sizeof(ucs_atomic_u8_t) == 1, "layout shared by processes");
static_assert(sizeof(ucs_atomic_u16_t) == 2, "layout shared by processes");
static_assert(sizeof(ucs_atomic_u32_t) == 4, "layout shared by processes");
static_assert(sizeof(ucs_atomic_u64_t) == 8, "layout shared by processes");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must not take a lock");

#define ucs_atomic_load_relaxed(_ptr) \
    UCS_ATOMIC_STD_ atomic_load_explicit(_ptr, UCS_ATOMIC_STD_ memory_order_relaxed)
#define ucs_atomic_load_acquire(_ptr) \
    UCS_ATOMIC_STD_ atomic_load_explicit(_ptr, UCS_ATOMIC_STD_ memory_order_acquire)
#define ucs_atomic_store_relaxed(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_store_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_relaxed)
#define ucs_atomic_store_release(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_store_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_release)

/* Sequentially consistent: for the handshakes in which each side writes its own flag and then reads
 * the other's (arm against signal). */
#define ucs_atomic_load_seq_cst(_ptr) \
    UCS_ATOMIC_STD_ atomic_load_explicit(_ptr, UCS_ATOMIC_STD_ memory_order_seq_cst)
#define ucs_atomic_store_seq_cst(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_store_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_seq_cst)

/* Read-modify-write, acquire and release in one; each returns the value before. */
#define ucs_atomic_fetch_add(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_fetch_add_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_acq_rel)
#define ucs_atomic_fetch_or(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_fetch_or_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_acq_rel)
#define ucs_atomic_fetch_and(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_fetch_and_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_acq_rel)
#define ucs_atomic_exchange(_ptr, _value) \
    UCS_ATOMIC_STD_ atomic_exchange_explicit(_ptr, _value, UCS_ATOMIC_STD_ memory_order_acq_rel)

/* If *_ptr equals *_expected_p store _desired and return true; otherwise *_expected_p becomes the
 * value found, with acquire order, and false is returned. Does not fail without cause. */
#define ucs_atomic_cas(_ptr, _expected_p, _desired) \
    UCS_ATOMIC_STD_ atomic_compare_exchange_strong_explicit( \
        _ptr, _expected_p, _desired, UCS_ATOMIC_STD_ memory_order_acq_rel, \
        UCS_ATOMIC_STD_ memory_order_acquire)

#endif
