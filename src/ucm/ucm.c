/* Halyard: the functions of libucm that MPI libraries call.
 *
 * ucm.h says why there is nothing to do in them. They must stay free of allocation, locks and
 * system calls: callers are inside the allocator.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucm/api/ucm.h>

void ucm_set_external_event(int events)
{
    (void)events;
}

void ucm_unset_external_event(int events)
{
    (void)events;
}

ucs_status_t ucm_test_events(int events)
{
    (void)events;
    return UCS_OK;
}

ucs_status_t ucm_test_external_events(int events)
{
    (void)events;
    return UCS_OK;
}

void ucm_vm_mmap(void *addr, size_t length)
{
    (void)addr;
    (void)length;
}

void ucm_vm_munmap(void *addr, size_t length)
{
    (void)addr;
    (void)length;
}
