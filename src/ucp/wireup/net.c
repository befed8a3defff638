/* Halyard: wire-up: when a worker opens its way to other nodes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/wireup/net.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>

int ucp_net_open(ucp_worker_t *worker)
{
    int is_new = 0;
    unsigned i;

    ucp_worker_lock(worker);
    for (i = 0; !worker->is_inherited && (i < worker->context->num_tls); ++i) {
        if ((worker->context->tls[i].tl->kind == UCT_TL_KIND_NET) && !worker->tls[i].is_tried) {
            ucp_worker_open_tl(worker, i);
            is_new |= (worker->tls[i].iface != NULL);
        }
    }
    ucp_worker_unlock(worker);
    return is_new;
}

/* What the launcher says of where the job is. */
static ucp_net_need_t ucp_net_of_launcher(void)
{
    static const char *const pairs[][2] = { /* processes on this node, and in all */
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
        {"MPI_LOCALNRANKS", "PMI_SIZE"}
    };
    long some = ucs_env_number("SLURM_STEP_NUM_NODES");
    long here, all;
    size_t i;

    for (i = 0; i < ucs_array_size(pairs); ++i) {
        here = ucs_env_number(pairs[i][0]);
        all  = ucs_env_number(pairs[i][1]);
        if ((here > 0) && (all > 0)) {
            return (here == all) ? UCP_NET_UNWANTED : UCP_NET_NEEDED;
        }
    }
    return (some == 1) ? UCP_NET_UNWANTED : (some > 1) ? UCP_NET_NEEDED : UCP_NET_UNKNOWN;
}

int ucp_net_is_needed(const ucp_worker_t *worker)
{
    int has_messages = 0;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        has_messages |= (worker->context->tls[i].tl->kind == UCT_TL_KIND_SHM);
    }
    return !has_messages || (worker->context->options.net_address == UCS_YES);
}

ucp_net_need_t ucp_net_need(const ucp_worker_t *worker)
{
    return ucp_net_is_needed(worker) ? UCP_NET_NEEDED :
           (worker->context->options.net_address == UCS_NO) ? UCP_NET_UNWANTED :
                                                              ucp_net_of_launcher();
}

int ucp_net_has_rdma(void)
{
    static const char *const classes[] = {"/sys/class/infiniband", "/sys/class/cxi"};
    size_t i;
    int fd;

    for (i = 0; i < ucs_array_size(classes); ++i) {
        fd = ucs_sys_open(classes[i], O_PATH | O_CLOEXEC, 0);
        if (fd >= 0) {
            ucs_sys_close(fd);
            return 1;
        }
    }
    return 0;
}

int ucp_net_is_local(const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
    const struct sockaddr_in6 *local6 = (const struct sockaddr_in6 *)local;
    const struct sockaddr_in *local4  = (const struct sockaddr_in *)local;

    if (local->ss_family != remote->ss_family) {
        return 0;
    }
    return (local->ss_family == AF_INET6) ?
           (memcmp(&local6->sin6_addr, &((const struct sockaddr_in6 *)remote)->sin6_addr,
                   sizeof(local6->sin6_addr)) == 0) :
           (local4->sin_addr.s_addr == ((const struct sockaddr_in *)remote)->sin_addr.s_addr);
}
