/* Halyard: ofi: what a forked child must not do.
 *
 * A child inherits the provider's connections. What it would send there, a farewell even, would
 * come out of the middle of the parent's messages; so what it has inherited fails, is not
 * progressed, and is forgotten without a word. The provider's descriptors stay open in it, as there
 * is no way to close them that the provider would not tell the peers. What it makes anew works.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <uct/ofi/ofi.h>

#include <pthread.h>

static void uct_ofi_fork_in_child(ucs_fork_watch_t *watch)
{
    uct_ofi_iface_t *iface = ucs_container_of(watch, uct_ofi_iface_t, fork);
    uct_ep_t *ep;

    iface->is_inherited = 1;
    /* Another thread of the parent may have held them. */
    pthread_mutex_init(&iface->lock, NULL);
    pthread_mutex_init(&uct_ofi_md(iface->super.md)->lock, NULL);
    ucs_list_for_each(ep, &iface->super.eps, list) {
        uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
    }
}

void uct_ofi_fork_add(uct_ofi_iface_t *iface)
{
    ucs_fork_watch_add(&iface->fork, uct_ofi_fork_in_child);
}

#endif
