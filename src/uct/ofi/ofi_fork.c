/* Halyard: ofi: what a forked child must not do.
 *
 * A child inherits the provider's connections. What it would send there, a farewell even, would
 * come out of the middle of the parent's messages; so what it has inherited fails, is not
 * progressed, and is forgotten without a word. The provider's descriptors stay open in it, as there
 * is no way to close them that the provider would not tell the peers. What it makes anew works.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_OFI

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <pthread.h>
#include <ucs/debug/log.h>

/* All interfaces of the process. Held over a fork, so that the list is whole in the child. */
static pthread_mutex_t uct_ofi_fork_lock   = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t uct_ofi_fork_ifaces = {&uct_ofi_fork_ifaces, &uct_ofi_fork_ifaces};
static pthread_once_t uct_ofi_fork_once    = PTHREAD_ONCE_INIT;

static void uct_ofi_fork_prepare(void)
{
    pthread_mutex_lock(&uct_ofi_fork_lock);
}

static void uct_ofi_fork_in_parent(void)
{
    pthread_mutex_unlock(&uct_ofi_fork_lock);
}

static void uct_ofi_fork_in_child(void)
{
    uct_ofi_iface_t *iface;
    uct_ep_t *ep;

    ucs_list_for_each(iface, &uct_ofi_fork_ifaces, fork_list) {
        iface->is_inherited = 1;
        /* Another thread of the parent may have held them. */
        pthread_mutex_init(&iface->lock, NULL);
        pthread_mutex_init(&uct_ofi_md(iface->super.md)->lock, NULL);
        ucs_list_for_each(ep, &iface->super.eps, list) {
            uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
        }
    }
    uct_ofi_fork_in_parent();
}

static void uct_ofi_fork_register(void)
{
    int error = pthread_atfork(uct_ofi_fork_prepare, uct_ofi_fork_in_parent,
                               uct_ofi_fork_in_child);

    if (error != 0) {
        ucs_diag("cannot keep connections from forked children: error %d", error);
    }
}

void uct_ofi_fork_add(uct_ofi_iface_t *iface)
{
    pthread_once(&uct_ofi_fork_once, uct_ofi_fork_register);
    pthread_mutex_lock(&uct_ofi_fork_lock);
    ucs_list_add_tail(&uct_ofi_fork_ifaces, &iface->fork_list);
    pthread_mutex_unlock(&uct_ofi_fork_lock);
}

void uct_ofi_fork_remove(uct_ofi_iface_t *iface)
{
    pthread_mutex_lock(&uct_ofi_fork_lock);
    ucs_list_del(&iface->fork_list);
    pthread_mutex_unlock(&uct_ofi_fork_lock);
}

#endif
