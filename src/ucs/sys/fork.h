/* Halyard: what becomes of inherited objects in a forked child.
 *
 * A child inherits descriptors and shared memory of its parent's, and would act in its name. Who
 * owns such things has them watched; before fork() returns in the child its callback takes them
 * out of the child's hands, without a word to anybody.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_FORK_H
#define UCS_SYS_FORK_H

#include <ucs/ds/list.h>

typedef struct ucs_fork_watch ucs_fork_watch_t;

/* Runs in the child, whose only thread it has; other threads of the parent may have been anywhere
 * but in the two functions below. It must not call them. */
typedef void (*ucs_fork_cb_t)(ucs_fork_watch_t *watch);

struct ucs_fork_watch {
    ucs_list_link_t list; /* of all of the process */
    ucs_fork_cb_t   in_child;
};

/* From now on `in_child` is called in every child, in the order of adding. Any thread; the caller
 * keeps the memory until it is removed. */
void ucs_fork_watch_add(ucs_fork_watch_t *watch, ucs_fork_cb_t in_child);

/* Ends that. No effect on a watch whose list link is initialised and was not added. Any thread. */
void ucs_fork_watch_remove(ucs_fork_watch_t *watch);

#endif
