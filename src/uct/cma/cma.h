/* Halyard: cma: copies between the memories of two processes of one node.
 *
 * By process_vm_readv and process_vm_writev. No messages, no remote keys: the kernel checks each
 * access. An address names a process and where in it the worker's identity stands; connecting reads
 * that identity, and whoever cannot read the right 16 bytes has no path. A peer could name our own
 * process, and have sent us its identity in a message: within a process a secret stands behind the
 * identity, which is not sent to anybody. Operations are complete when they return.
 *
 * What an operation returns when the kernel refuses (the range must then be moved by another path,
 * whole, since a part of it may have been copied):
 *   UCS_ERR_INVALID_ADDR      EFAULT: part of the range is not there; the endpoint stays live
 *   UCS_ERR_NO_MEMORY         ENOMEM: the kernel had no memory; the endpoint stays live
 *   UCS_ERR_CONNECTION_RESET  ESRCH: the peer is gone; the endpoint has failed
 *   UCS_ERR_UNSUPPORTED       EPERM, ENOSYS and others: not allowed any more; the endpoint failed
 *   UCS_ERR_INVALID_PARAM     the range ends beyond the address space
 * Connecting fails with UCS_ERR_UNREACHABLE whatever the cause: with process namespaces a missing
 * process need not be a dead one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CMA_CMA_H
#define UCT_CMA_CMA_H

#include <uct/api/uct_tl.h>
#include <ucs/sys/sys.h>

#include <sys/types.h>

/* The address on the wire, little endian: u32 pid, u64 place of the identity. */
#define UCT_CMA_ADDRESS_LEN 12

typedef struct {
    uint64_t overhead_ns;
    double   bandwidth; /* bytes per second */
} uct_cma_config_t;

typedef struct {
    uct_md_t super;
    int      error;        /* errno with which this process cannot read even itself; 0: it can */
    double   overhead_ns;  /* of one call to another process */
    double   bytes_per_ns;
} uct_cma_md_t;

/* What an address leads to. The uid is what a peer says of itself, and may stand anywhere: that the
 * place is an identity at all is told by the mark, which is made of the address. */
typedef struct {
    uint64_t mark[2];
    uint8_t  uid[UCT_UID_LEN];
    uint64_t secret; /* of the process */
} uct_cma_identity_t;

/* No place has its own mark by chance. */
UCS_INLINE void uct_cma_make_mark(uint64_t mark[2], pid_t pid, uint64_t cookie)
{
    uint64_t state = cookie ^ ((uint64_t)pid << 32);

    mark[0] = ucs_random_next(&state);
    mark[1] = ucs_random_next(&state);
}

typedef struct {
    uct_iface_t        super;
    uct_cma_identity_t identity;
} uct_cma_iface_t;

typedef struct {
    uct_ep_t super;
    pid_t    pid;
    uint64_t cookie; /* where the peer's identity stands */
} uct_cma_ep_t;

#endif
