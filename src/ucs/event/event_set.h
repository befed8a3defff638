/* Halyard: a set of file descriptors to wait on, by epoll(7).
 *
 * Each descriptor has a pointer of its owner's. Once a descriptor has been removed its callback
 * does not run any more, not even for an event that was already fetched; so a callback may remove
 * any descriptor of the set, close it, and free its object, and a new descriptor may get the old
 * number.
 *
 * One thread at a time, save that ucs_event_set_fd may be polled from anywhere.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_EVENT_EVENT_SET_H
#define UCS_EVENT_EVENT_SET_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

/* What to wait for, and what has happened; bits. ERROR (broken, or the other end is gone) is always
 * waited for. EDGE is for adding: report a condition when it arises, not as long as it lasts. */
enum {
    UCS_EVENT_READ  = 1,
    UCS_EVENT_WRITE = 2,
    UCS_EVENT_ERROR = 4,
    UCS_EVENT_EDGE  = 8
};

typedef struct ucs_event_set ucs_event_set_t;

/* Called for a descriptor with its pointer, what has happened, and the argument of the wait. May
 * add, modify and remove descriptors of this set; may not wait on it or destroy it. */
typedef void (*ucs_event_set_cb_t)(void *data, unsigned events, void *arg);

/* Make an empty set. UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR (no descriptor to be had); logged. */
ucs_status_t ucs_event_set_create(ucs_event_set_t **set_p);

/* In a forked child: closes its copy of the set, which is the parent's. From then on only del and
 * destroy make sense. */
void ucs_event_set_disown(ucs_event_set_t *set);

/* Destroy a set; NULL is allowed. Its descriptors stay open. */
void ucs_event_set_destroy(ucs_event_set_t *set);

/* The set's own descriptor, readable when a wait would find something. The set keeps it. */
int ucs_event_set_fd(const ucs_event_set_t *set);

/* Add a descriptor. UCS_ERR_ALREADY_EXISTS (not logged): it is in the set. UCS_ERR_NO_MEMORY;
 * UCS_ERR_UNSUPPORTED: this kind of file cannot be waited on; UCS_ERR_IO_ERROR; logged. */
ucs_status_t ucs_event_set_add(ucs_event_set_t *set, int fd, unsigned events, void *data);

/* Change what is waited for. UCS_ERR_NO_ELEM (not logged): not in the set; UCS_ERR_IO_ERROR. */
ucs_status_t ucs_event_set_mod(ucs_event_set_t *set, int fd, unsigned events);

/* Remove a descriptor, before it is closed. UCS_ERR_NO_ELEM (not logged): not in the set. */
ucs_status_t ucs_event_set_del(ucs_event_set_t *set, int fd);

/* Wait at most timeout_ms (0: do not wait, -1: without limit) and run the callbacks of what has
 * happened, of up to 32 descriptors. *count_p (may be NULL) is the number of callbacks; it is 0
 * after the time, and when a signal came. UCS_ERR_IO_ERROR (logged). */
ucs_status_t ucs_event_set_wait(ucs_event_set_t *set, int timeout_ms, ucs_event_set_cb_t cb,
                                void *arg, unsigned *count_p);

END_C_DECLS

#endif
