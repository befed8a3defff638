/* Halyard: ofi: devices, see ofi_devices.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi_devices.h>

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <ucs/sys/topo.h>

/* Users of UCX write the port behind the name, which may hold '*' and '?'. */
int uct_ofi_device_find(const uct_ofi_config_t *config, const char *name)
{
    const ucs_config_allow_list_t *list = &config->devices;
    char listed[128];
    unsigned i;

    for (i = 0; i < list->array.count; ++i) {
        snprintf(listed, sizeof(listed), "%.*s", (int)strcspn(list->array.names[i], ":"),
                 list->array.names[i]);
        if (ucs_str_match(listed, name) || ucs_str_match(list->array.names[i], name)) {
            return (int)i;
        }
    }
    return -1;
}

void uct_ofi_sort_named(const uct_ofi_config_t *config, uct_ofi_candidate_t *all, unsigned count)
{
    uct_ofi_candidate_t each;
    unsigned i, k;
    int place;

    for (i = 1; (config->devices.mode == UCS_CONFIG_ALLOW_LIST_ALLOW) && (i < count); ++i) {
        each  = all[i];
        place = uct_ofi_device_find(config, each.info->domain_attr->name);
        for (k = i; (k > 0) &&
             (uct_ofi_device_find(config, all[k - 1].info->domain_attr->name) > place); --k) {
            all[k] = all[k - 1];
        }
        all[k] = each;
    }
}

int uct_ofi_is_same_device(const struct fi_info *a, const struct fi_info *b)
{
    return (strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name) == 0) &&
           (strcmp(a->domain_attr->name, b->domain_attr->name) == 0);
}

size_t uct_ofi_speed(const struct fi_info *info, int is_routed)
{
    char path[128], text[32];
    size_t length;
    long megabits;

    if ((info->nic != NULL) && (info->nic->link_attr != NULL)) {
        return info->nic->link_attr->speed;
    }
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", info->domain_attr->name);
    if (!is_routed || (ucs_sys_read_file(path, text, sizeof(text), &length) != UCS_OK)) {
        return 0;
    }
    megabits = strtol(text, NULL, 10);
    return (megabits > 0) ? (size_t)megabits * 1000000 : 0;
}

int uct_ofi_is_better(const uct_ofi_candidate_t *a, const uct_ofi_candidate_t *b)
{
    return (a->rank > b->rank) ||
           ((a->rank == b->rank) &&
            (strcmp(a->info->fabric_attr->prov_name, b->info->fabric_attr->prov_name) == 0) &&
            (a->speed > b->speed));
}

/* As good, and leading to the same peers. */
static int uct_ofi_is_equal(const uct_ofi_candidate_t *a, const uct_ofi_candidate_t *b)
{
    const char *fabric_a = a->info->fabric_attr->name;
    const char *fabric_b = b->info->fabric_attr->name;

    return (a->rank == b->rank) && (a->info->addr_format == b->info->addr_format) &&
           (strcmp(a->info->fabric_attr->prov_name, b->info->fabric_attr->prov_name) == 0) &&
           (a->speed == b->speed) && (fabric_a != NULL) && (fabric_b != NULL) &&
           (strcmp(fabric_a, fabric_b) == 0);
}

/* From the NUMA node that this process is bound to, in units of ucs_topo_distance; the same for all
 * where it is bound to none, or the machine does not tell. */
static unsigned uct_ofi_distance(const struct fi_info *info)
{
    unsigned distance = UCS_TOPO_DISTANCE_LOCAL;
    int own           = ucs_topo_process_node();
    const struct fi_pci_attr *pci;
    char bus_id[16];
    int node;

    if ((own == UCS_TOPO_NODE_ANY) || (info->nic == NULL) || (info->nic->bus_attr == NULL) ||
        (info->nic->bus_attr->bus_type != FI_BUS_PCI)) {
        return distance;
    }
    pci = &info->nic->bus_attr->attr.pci;
    snprintf(bus_id, sizeof(bus_id), "%04x:%02x:%02x.%x", pci->domain_id, pci->bus_id,
             pci->device_id, pci->function_id & 0xf);
    if ((ucs_topo_pci_node(bus_id, &node) == UCS_OK) && (node != UCS_TOPO_NODE_ANY) &&
        (ucs_topo_distance(own, node, &distance) != UCS_OK)) {
        distance = 2 * UCS_TOPO_DISTANCE_LOCAL; /* a node that holds no memory */
    }
    return distance;
}

/* What the launcher of a job says by its variable among these; -1: nothing. */
static long uct_ofi_launcher_number(const char *open_mpi, const char *mpich, const char *slurm)
{
    const char *const names[] = {open_mpi, mpich, slurm};
    long number               = -1;
    size_t i;

    for (i = 0; (i < ucs_array_size(names)) && (number < 0); ++i) {
        number = ucs_env_number(names[i]);
    }
    return number;
}

/* Which of the processes of a job on this node this one is. */
static unsigned uct_ofi_local_rank(void)
{
    const long number = uct_ofi_launcher_number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                                "SLURM_LOCALID");

    return (unsigned)((number >= 0) ? number : ucs_sys_getpid());
}

/* Is it the first address of its device among those equal to best? */
static int uct_ofi_is_first(const uct_ofi_candidate_t *all, const uct_ofi_candidate_t *each,
                            const uct_ofi_candidate_t *best)
{
    const uct_ofi_candidate_t *other;

    for (other = all; other < each; ++other) {
        if (uct_ofi_is_equal(other, best) && uct_ofi_is_same_device(other->info, each->info)) {
            return 0;
        }
    }
    return uct_ofi_is_equal(each, best);
}

uct_ofi_candidate_t *uct_ofi_share_out(uct_ofi_candidate_t *all, unsigned count,
                                       uct_ofi_candidate_t *best)
{
    uct_ofi_candidate_t *nearest[UCT_OFI_DEVICES_MAX];
    unsigned num_devices = 0;
    unsigned num_nearest = 0;
    unsigned rank, i;

    for (i = 0; i < count; ++i) {
        num_devices += uct_ofi_is_first(all, &all[i], best);
    }
    for (i = 0; (num_devices > 1) && (i < count); ++i) { /* else the topology is not asked for */
        if (!uct_ofi_is_first(all, &all[i], best)) {
            continue;
        }
        all[i].distance = uct_ofi_distance(all[i].info);
        if ((num_nearest > 0) && (all[i].distance < nearest[0]->distance)) {
            num_nearest = 0;
        }
        if (((num_nearest == 0) || (all[i].distance == nearest[0]->distance)) &&
            (num_nearest < UCT_OFI_DEVICES_MAX)) {
            nearest[num_nearest++] = &all[i];
        }
    }
    if (num_nearest > 0) {
        /* Launchers deal processes out to NUMA nodes by turns, and each node has devices of its
         * own: those of this node are numbered without the others. */
        rank = uct_ofi_local_rank() / ((num_nearest < num_devices) ? ucs_topo_num_nodes() : 1);
        best = nearest[rank % num_nearest];
    }
    for (i = 0; (num_devices > 1) && (i < count); ++i) {
        if (uct_ofi_is_first(all, &all[i], best)) {
            all[i].reason = (all[i].distance > best->distance) ?
                            "equal, but farther from this process" :
                            "equal; the processes of this node share them out";
        }
    }
    return best;
}

/* Can a device carry parts of what goes by best's? It is as good, as near, and as fast where that
 * is known, since shares are equal. Of a routed network the user has named it: it might lead
 * nowhere. */
static int uct_ofi_is_rail(int is_named, const uct_ofi_candidate_t *best,
                           const uct_ofi_candidate_t *each)
{
    if ((each->rank != best->rank) || (each->info->addr_format != best->info->addr_format) ||
        (strcmp(each->info->fabric_attr->prov_name, best->info->fabric_attr->prov_name) != 0) ||
        ((each->speed != best->speed) && (each->speed != 0) && (best->speed != 0))) {
        return 0;
    }
    return is_named || (!best->is_routed && uct_ofi_is_equal(each, best) &&
                        (uct_ofi_distance(each->info) <= uct_ofi_distance(best->info)));
}

/* Do as many processes as there are devices like best's share them out? Then none is left over. */
static int uct_ofi_is_shared_out(const uct_ofi_candidate_t *all, unsigned count,
                                 const uct_ofi_candidate_t *best)
{
    unsigned num_devices = 0;
    unsigned i;

    for (i = 0; i < count; ++i) {
        num_devices += (unsigned)uct_ofi_is_first(all, &all[i], best);
    }
    return uct_ofi_launcher_number("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                   "SLURM_NTASKS_PER_NODE") >= (long)num_devices;
}

/* Is the device best's, or one that was taken already? */
static int uct_ofi_is_taken(const uct_ofi_iface_t *iface, const uct_ofi_candidate_t *best,
                            const struct fi_info *info)
{
    unsigned i;

    for (i = 0; (i < UCT_RAILS_MAX) && (iface->rails[i] != NULL); ++i) {
        if (uct_ofi_is_same_device(iface->rails[i], info)) {
            return 1;
        }
    }
    return uct_ofi_is_same_device(best->info, info);
}

void uct_ofi_find_rails(uct_ofi_iface_t *iface, uct_ofi_candidate_t *all, unsigned count,
                        const uct_ofi_candidate_t *best)
{
    const unsigned max = ucs_min(iface->super.params.num_rails, UCT_RAILS_MAX + 0u);
    const int is_named = (uct_ofi_config(iface)->devices.mode == UCS_CONFIG_ALLOW_LIST_ALLOW);
    unsigned num       = 0;
    uct_ofi_candidate_t *each;
    unsigned i;

    if (!is_named && uct_ofi_is_shared_out(all, count, best)) {
        return;
    }
    /* Round the list, those of best's network first. */
    for (i = 1; (i < (2 * count)) && (num < max); ++i) {
        each = &all[((unsigned)(best - all) + i) % count];
        if (uct_ofi_is_rail(is_named, best, each) && !uct_ofi_is_taken(iface, best, each->info) &&
            ((i > count) || uct_ofi_is_equal(each, best))) {
            iface->rails[num] = uct_ofi_lib.dupinfo(each->info);
            num              += (iface->rails[num] != NULL);
        }
    }
    for (i = 0; i < count; ++i) {
        if ((num > 0) && !uct_ofi_is_same_device(best->info, all[i].info) &&
            uct_ofi_is_taken(iface, best, all[i].info)) {
            all[i].reason = "another device comes first; this one carries parts of long messages";
        }
    }
}

int uct_ofi_is_in_network(const struct fi_info *info, const void *address)
{
    const char *fabric  = info->fabric_attr->name;
    const int is_6      = (info->addr_format == FI_SOCKADDR_IN6);
    const char *slash   = (fabric != NULL) ? strchr(fabric, '/') : NULL;
    const uint8_t *peer = (const uint8_t *)address; /* not aligned */
    uint8_t own[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN];
    long bits;
    int shift;

    peer += is_6 ? offsetof(struct sockaddr_in6, sin6_addr) :
                   offsetof(struct sockaddr_in, sin_addr);
    if ((slash == NULL) || ((size_t)(slash - fabric) >= sizeof(text)) ||
        (!is_6 && (info->addr_format != FI_SOCKADDR_IN))) {
        return 1;
    }
    snprintf(text, sizeof(text), "%.*s", (int)(slash - fabric), fabric);
    bits = strtol(slash + 1, NULL, 10);
    if ((inet_pton(is_6 ? AF_INET6 : AF_INET, text, own) != 1) || (bits < 0) ||
        (bits > (is_6 ? 128 : 32))) {
        return 1;
    }
    shift = (int)((8 - (bits % 8)) % 8);
    return (memcmp(own, peer, (size_t)bits / 8) == 0) &&
           ((shift == 0) ||
            ((own[bits / 8] >> shift) == (peer[bits / 8] >> shift)));
}
