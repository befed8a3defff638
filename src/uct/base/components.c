/* Halyard: what programs bind to that drive UCX's transports by themselves.
 *
 * Open MPI's btl/uct (since version 5 a part of its library) begins by asking which components
 * there are. Here there are none, since transports serve ucp alone, so it leaves itself out. The
 * other functions that it names are there because a program that is bound whole when it starts
 * (-z now) would not start without them; after that answer nobody calls them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>

#include <stddef.h>

/* Sets *components_p to NULL and *num_components_p to 0. Any thread; never blocks. */
ucs_status_t uct_query_components(void ***components_p, unsigned *num_components_p)
{
    *components_p     = NULL;
    *num_components_p = 0;
    return UCS_OK;
}

void uct_release_component_list(void **components UCS_UNUSED)
{
}

#define UCT_NEEDS_COMPONENT(_name) \
    ucs_status_t _name(void) \
    { \
        return UCS_ERR_UNSUPPORTED; \
    }

UCT_NEEDS_COMPONENT(uct_component_query)
UCT_NEEDS_COMPONENT(uct_ep_connect_to_ep)
UCT_NEEDS_COMPONENT(uct_ep_create)
UCT_NEEDS_COMPONENT(uct_ep_destroy)
UCT_NEEDS_COMPONENT(uct_ep_get_address)
UCT_NEEDS_COMPONENT(uct_iface_get_address)
UCT_NEEDS_COMPONENT(uct_iface_get_device_address)
UCT_NEEDS_COMPONENT(uct_iface_query)
UCT_NEEDS_COMPONENT(uct_iface_set_am_handler)
UCT_NEEDS_COMPONENT(uct_md_config_read)
UCT_NEEDS_COMPONENT(uct_md_iface_config_read)
UCT_NEEDS_COMPONENT(uct_md_mem_dereg)
UCT_NEEDS_COMPONENT(uct_md_mem_reg)
UCT_NEEDS_COMPONENT(uct_md_mkey_pack)
UCT_NEEDS_COMPONENT(uct_md_query)
UCT_NEEDS_COMPONENT(uct_md_query_tl_resources)
UCT_NEEDS_COMPONENT(uct_release_tl_resource_list)
UCT_NEEDS_COMPONENT(uct_rkey_release)
UCT_NEEDS_COMPONENT(uct_rkey_unpack)
UCT_NEEDS_COMPONENT(uct_worker_create)
UCT_NEEDS_COMPONENT(uct_worker_destroy)
