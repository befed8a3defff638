/* Halyard: named fault points: make the k-th call of something fail, on purpose and exactly.
 *
 * Every call of <ucs/sys/sys.h> that can fail is a fault point under its own name; other code adds
 * points with ucs_fault_point("name"). While nothing is programmed a point costs one load and one
 * predictable branch. Programmed by tests through the functions below, or by the user:
 *
 *     UCX_FAULT="mmap:3,malloc:10+,sendmsg:p0.01:seed5,process_vm_readv:1:EPERM"
 *
 * Specification, parts separated by colons:
 *     K         fail the K-th call from now on (the first is 1); 0 fails none, it only counts
 *     K+        fail the K-th call and all after it
 *     pX        fail each call with probability X, 0 to 1
 *     seedN     seed of the probability, default 1: the same seed fails the same calls
 *     EPERM...  the errno to set, as a name or a number; default: what suits the call
 * A name may end in '*' and then stands for all points that begin so; all of these are counted
 * together. A point fails if any entry that matches it says so.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_FAULT_H
#define UCS_DEBUG_FAULT_H

#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>
#include <pthread.h>
#include <stdint.h>

BEGIN_C_DECLS

/* At most so many entries, and bytes of a name with its end. */
#define UCS_FAULT_ENTRIES_MAX 32
#define UCS_FAULT_NAME_MAX    32

/* 0: nothing is programmed. 1: something is. 2: the environment has not been looked at. Read by the
 * inline functions only. */
extern int ucs_fault_state;

/* For who holds it over a fork (ucs/config/global.c). */
extern pthread_mutex_t ucs_fault_mutex;

/* The answer of a point while ucs_fault_state is not 0; callers use ucs_fault_hit. */
int ucs_fault_evaluate(const char *name, int default_errno);

/* Count a call at point `name`. Not zero if it must fail: errno is set then, and the caller returns
 * as the failed operation would, having done nothing. Any thread. */
UCS_INLINE int ucs_fault_hit(const char *name, int default_errno)
{
    return ucs_unlikely(__atomic_load_n(&ucs_fault_state, __ATOMIC_RELAXED)) &&
           ucs_fault_evaluate(name, default_errno);
}

/* A point of one's own; errno is EIO if it fails. */
#define ucs_fault_point(_name) ucs_fault_hit(_name, 5)

/* Program one entry: `spec` as above without the name. An entry of that very name is replaced and
 * its counts start at zero. Errors: UCS_ERR_INVALID_PARAM (nothing changed), UCS_ERR_EXCEEDS_LIMIT
 * (too many entries, or the name is too long). Any thread. */
ucs_status_t ucs_fault_set(const char *name, const char *spec);

/* Program a list in the form of UCX_FAULT. Entries before the first bad one stay in force. */
ucs_status_t ucs_fault_set_list(const char *list);

/* Remove the entry of that very name; NULL removes all. After this call the environment is not
 * looked at any more. */
void ucs_fault_clear(const char *name);

/* Calls that reached the entry of that very name and how many of them failed, since it was set.
 * UCS_ERR_NO_ELEM if there is none. Either pointer may be NULL. */
ucs_status_t ucs_fault_query(const char *name, uint64_t *calls_p, uint64_t *failed_p);

END_C_DECLS

#endif
