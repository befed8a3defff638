/* Halyard: mm: what a forked child must not keep.
 *
 * A child inherits our connections, and as long as it holds them our peers see no end of file when
 * we die. It inherits our rings, in which a second writer would do damage, and our event set, which
 * it shares with us. So the child closes its copies, without a farewell, and gets empty memory in
 * the place of the rings: what it does with inherited objects ends with an error and reaches
 * nobody. What it makes anew works.
 *
 * Memory that the user has allocated stays shared, as it is with any fork. Programs that are
 * started (exec) inherit nothing anyway.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_iface.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <pthread.h>

static pthread_once_t uct_mm_fork_once = PTHREAD_ONCE_INIT;

static void uct_mm_fork_close(int *fd_p)
{
    if (*fd_p >= 0) {
        ucs_sys_close(*fd_p);
        *fd_p = -1;
    }
}

static void uct_mm_fork_forget_ep(uct_mm_ep_t *ep)
{
    unsigned i;

    uct_mm_fork_close(&ep->source.fd);
    for (i = 0; i < ucs_array_size(ep->segments); ++i) {
        if (ep->segments[i] != NULL) {
            uct_mm_segment_detach(ep->segments[i]);
        }
    }
    uct_ep_set_failed(&ep->super, UCS_ERR_CONNECTION_RESET);
}

static void uct_mm_fork_in_child(ucs_fork_watch_t *watch)
{
    uct_mm_iface_t *iface    = ucs_container_of(watch, uct_mm_iface_t, fork);
    ucs_list_link_t *lists[] = {&iface->greeting, &iface->due, &iface->peers, &iface->gone};
    uct_mm_block_t *block;
    uct_mm_peer_t *peer;
    uct_ep_t *ep;
    unsigned i;

    ucs_list_del(&iface->door.list);
    uct_mm_fork_close(&iface->listen.fd);
    uct_mm_fork_close(&iface->spare_fd);
    uct_mm_fork_close(&iface->epoll_fd);
    for (i = 0; i < ucs_array_size(lists); ++i) {
        ucs_list_for_each(peer, lists[i], list) {
            uct_mm_fork_close(&peer->source.fd);
        }
    }
    ucs_list_for_each(ep, &iface->super.eps, list) {
        uct_mm_fork_forget_ep(uct_mm_ep(ep));
    }
    ucs_list_for_each(block, &iface->blocks, list) {
        uct_mm_segment_detach(block->segment);
    }
    if (iface->buffers != NULL) {
        uct_mm_segment_detach(iface->buffers);
    }
}

/* Other threads are not to be in the midst of the table when the process forks. After the watch has
 * been registered, since the child is to unlock last. */
static void uct_mm_fork_register(void)
{
    int error = pthread_atfork(uct_mm_segment_table_lock, uct_mm_segment_table_unlock,
                               uct_mm_segment_table_unlock);

    if (error != 0) {
        ucs_diag("cannot keep connections from forked children: error %d", error);
    }
}

void uct_mm_fork_add(uct_mm_iface_t *iface)
{
    ucs_fork_watch_add(&iface->fork, uct_mm_fork_in_child);
    uct_descriptor_guard_fork();
    pthread_once(&uct_mm_fork_once, uct_mm_fork_register);
}
