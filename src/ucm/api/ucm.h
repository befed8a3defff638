/* Halyard: the functions of libucm that MPI libraries call.
 *
 * UCX watches changes of the address space by patching the C library. Halyard patches nothing and
 * keeps nothing that such a change could make wrong, so it needs no events: these functions accept
 * what callers report and answer that nothing is missing. Open MPI links against four of them; it
 * calls ucm_vm_munmap inside munmap, madvise and brk, where no allocation, lock or system call is
 * allowed.
 * All may be called by any thread at any time, before any other call of the library too, and none
 * of them blocks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCM_API_UCM_H
#define UCM_API_UCM_H

#include <ucs/config/types.h>
#include <ucs/memory/memory_type.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

BEGIN_C_DECLS

/* Changes of the address space; bits. */
typedef enum ucm_event_type {
    UCM_EVENT_NONE                = 0,
    UCM_EVENT_MMAP                = UCS_BIT(0),
    UCM_EVENT_MUNMAP              = UCS_BIT(1),
    UCM_EVENT_MREMAP              = UCS_BIT(2),
    UCM_EVENT_SHMAT               = UCS_BIT(3),
    UCM_EVENT_SHMDT               = UCS_BIT(4),
    UCM_EVENT_SBRK                = UCS_BIT(5),
    UCM_EVENT_MADVISE             = UCS_BIT(6),
    UCM_EVENT_BRK                 = UCS_BIT(7),
    UCM_EVENT_VM_MAPPED           = UCS_BIT(16),  /* any call that made addresses valid */
    UCM_EVENT_VM_UNMAPPED         = UCS_BIT(17),  /* any call that made them invalid */
    UCM_EVENT_MEM_TYPE_ALLOC      = UCS_BIT(20),  /* memory that is not the host's */
    UCM_EVENT_MEM_TYPE_FREE       = UCS_BIT(21),
    UCM_EVENT_FLAG_NO_INSTALL     = UCS_BIT(24),
    UCM_EVENT_FLAG_EXISTING_ALLOC = UCS_BIT(25)
} ucm_event_type_t;

/* The caller will report these events itself, by ucm_vm_mmap and ucm_vm_munmap; no longer will. */
void ucm_set_external_event(int events);
void ucm_unset_external_event(int events);

/* Whether all that needs the given events learns of them, from the library, from the caller's
 * reports. UCS_OK always. */
ucs_status_t ucm_test_events(int events);
ucs_status_t ucm_test_external_events(int events);

/* The caller has mapped, is about to unmap, length bytes at addr. */
void ucm_vm_mmap(void *addr, size_t length);
void ucm_vm_munmap(void *addr, size_t length);

END_C_DECLS

#endif
