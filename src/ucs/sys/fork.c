/* Halyard: what becomes of inherited objects in a forked child.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <pthread.h>
#include <ucs/debug/log.h>
#include <ucs/sys/fork.h>

/* Held over a fork, so that the list is whole in the child. */
static pthread_mutex_t ucs_fork_lock    = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t ucs_fork_watches = UCS_LIST_INITIALIZER(&ucs_fork_watches);
static pthread_once_t ucs_fork_once     = PTHREAD_ONCE_INIT;

static void ucs_fork_prepare(void)
{
    pthread_mutex_lock(&ucs_fork_lock);
}

static void ucs_fork_in_parent(void)
{
    pthread_mutex_unlock(&ucs_fork_lock);
}

static void ucs_fork_in_child(void)
{
    ucs_fork_watch_t *watch;

    ucs_list_for_each(watch, &ucs_fork_watches, list) {
        watch->in_child(watch);
    }
    pthread_mutex_unlock(&ucs_fork_lock);
}

/* Unloading the library takes the handlers back. */
static void ucs_fork_register(void)
{
    int error = pthread_atfork(ucs_fork_prepare, ucs_fork_in_parent, ucs_fork_in_child);

    if (error != 0) {
        ucs_diag("cannot keep connections from forked children: error %d", error);
    }
}

void ucs_fork_watch_add(ucs_fork_watch_t *watch, ucs_fork_cb_t in_child)
{
    pthread_once(&ucs_fork_once, ucs_fork_register);
    watch->in_child = in_child;
    pthread_mutex_lock(&ucs_fork_lock);
    ucs_list_add_tail(&ucs_fork_watches, &watch->list);
    pthread_mutex_unlock(&ucs_fork_lock);
}

void ucs_fork_watch_remove(ucs_fork_watch_t *watch)
{
    pthread_mutex_lock(&ucs_fork_lock);
    ucs_list_del(&watch->list);
    pthread_mutex_unlock(&ucs_fork_lock);
}
