/* Halyard: ofi: the choice of a provider, and addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>
#include <uct/ofi/ofi_devices.h>

#define UCS_LOG_COMPONENT "ofi"
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>

/* ---- the choice ---- */

/* From here on down: only where no offer has another. */
#define UCT_OFI_RANK_LAST 10

/* What is known of providers that say of themselves that they can do it. Those not named here, for
 * networks of their own, come first, in the order of the library. */
static const struct {
    const char *name;
    int         rank;   /* more is better; 0: only where the user names it */
    const char *reason; /* for a low one */
} uct_ofi_providers[] = {
    {"net", 60, ""},
    {"tcp", 60, ""},
    {"tcp;ofi_rxm", 50, "slower than one layer: 9.1 us against net's 3.6 where measured"},
    {"net;ofi_rxm", 40, "a layer more than net"},
    {"udp;ofi_rxd", 0, "1.17 loses messages, or changes them, once the kernel drops datagrams: "
                       "FI_OFI_RXD_MAX_UNACKED=32 kept that from happening"},
    {"sockets", UCT_OFI_RANK_LAST, "given up by its makers: 4.5 ms a message where measured"},
    {"shm", 0, "leads to the same node only"},
    {"sm2", 0, "leads to the same node only"}
};

/* Users write the whole name, or that of the provider below ("tcp" for "tcp;ofi_rxm"). Returns
 * where in the list it is, or -1. */
static int uct_ofi_list_find(const ucs_config_allow_list_t *list, const char *name)
{
    size_t core = strcspn(name, ";");
    const char *listed;
    int is_renamed;
    unsigned i;

    for (i = 0; i < list->array.count; ++i) {
        listed     = uct_ofi_lib_provider(list->array.names[i]);
        is_renamed = (listed != list->array.names[i]); /* "net" is not "tcp;ofi_rxm" */
        if ((strcmp(listed, name) == 0) ||
            (!is_renamed && (strlen(listed) == core) && (strncmp(listed, name, core) == 0))) {
            return (int)i;
        }
    }
    return -1;
}

/* What leads to this node only, or needs more than its bytes to be reached. */
static int uct_ofi_is_loopback(const void *address, size_t length)
{
    const struct sockaddr *sa = address;

    if ((sa != NULL) && (length >= sizeof(struct sockaddr_in)) && (sa->sa_family == AF_INET)) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    if ((sa != NULL) && (length >= sizeof(struct sockaddr_in6)) && (sa->sa_family == AF_INET6)) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    }
    return 0;
}

/* Providers that say what they reach do so with both bits. */
static int uct_ofi_is_node_only(const struct fi_info *info)
{
    return ((info->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) == FI_LOCAL_COMM) ||
           uct_ofi_is_loopback(info->src_addr, info->src_addrlen);
}

static int uct_ofi_is_link_local(const struct fi_info *info)
{
    const struct sockaddr_in6 *sa = info->src_addr;

    return (sa != NULL) && (info->src_addrlen >= sizeof(*sa)) && (sa->sin6_family == AF_INET6) &&
           IN6_IS_ADDR_LINKLOCAL(&sa->sin6_addr);
}

/* Marks the devices, one a provider, by which this host reaches others, since virtual bridges and
 * the like come first in some lists: those with the address that a datagram to outside would be
 * sent from. None is; the places outside are those set aside for examples. */
static void uct_ofi_mark_default(uct_ofi_candidate_t *all, unsigned count)
{
    struct sockaddr_in outside   = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    struct sockaddr_in6 outside6 = {
        .sin6_family = AF_INET6, .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}
    };
    const struct sockaddr *places[] = {(struct sockaddr *)&outside, (struct sockaddr *)&outside6};
    const socklen_t lengths[]       = {sizeof(outside), sizeof(outside6)};
    struct sockaddr_storage own;
    socklen_t length;
    int fd, is_known;
    int is_found = 0;
    unsigned i, k;
    size_t place;

    for (place = 0; (place < ucs_array_size(places)) && !is_found; ++place) {
        length   = sizeof(own);
        fd       = ucs_sys_socket(places[place]->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        is_known = (fd >= 0) && (ucs_sys_connect(fd, places[place], lengths[place]) == 0) &&
                   (ucs_sys_getsockname(fd, (struct sockaddr *)&own, &length) == 0);
        if (fd >= 0) {
            ucs_sys_close(fd);
        }
        for (i = 0; is_known && (i < count); ++i) {
            if ((all[i].info->src_addr == NULL) || (all[i].info->src_addrlen < lengths[place]) ||
                !uct_ofi_is_same_host(&own, all[i].info->src_addr)) {
                continue;
            }
            is_found = 1;
            for (k = 0; k < count; ++k) { /* its other addresses too */
                all[k].is_default |= uct_ofi_is_same_device(all[k].info, all[i].info);
            }
        }
    }
}

/* Returns what is wrong with the provider's buffers for several messages (seen with 1.17 where
 * no other is said), or NULL. */
static const char *uct_ofi_multi_recv_defect(const struct fi_info *info)
{
    const char *name = info->fabric_attr->prov_name;

    if (strstr(name, "ofi_rxm") != NULL) {
        /* Long messages: overwritten, with 4 ranks and 64 KiB messages in most runs. */
        return "it writes to buffers for several messages after it has given them back";
    }
    if (strstr(name, "ofi_rxd") != NULL) {
        /* They end with FI_ETRUNC. */
        return "it loses messages that do not fit in the rest of a buffer for several";
    }
    if ((strcmp(name, "sm2") == 0) || (strcmp(name, "shm") == 0)) {
        /* 2.5, and shm of 1.17: SIGSEGV in fi_setopt(FI_OPT_MIN_MULTI_RECV). */
        return "it crashes when it is told the least room in a buffer for several messages";
    }
    return NULL;
}

/* Why an offer cannot be used, or NULL. */
static const char *uct_ofi_refuse(const uct_ofi_config_t *config, const struct fi_info *info)
{
    int is_named = uct_ofi_list_find(&config->providers, info->fabric_attr->prov_name) >= 0;

    if ((config->providers.mode != UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) &&
        (is_named != (config->providers.mode == UCS_CONFIG_ALLOW_LIST_ALLOW))) {
        return "switched off by UCX_OFI_PROVIDER";
    }
    if ((config->devices.mode != UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) &&
        ((uct_ofi_device_find(config, info->domain_attr->name) >= 0) !=
         (config->devices.mode == UCS_CONFIG_ALLOW_LIST_ALLOW))) {
        return "switched off by UCX_NET_DEVICES";
    }
    if (info->ep_attr->max_msg_size < UCT_OFI_BUFFER_SIZE) {
        return "its messages are too short";
    }
    return uct_ofi_is_link_local(info) ? "its address has no meaning to another host" : NULL;
}

static int uct_ofi_prefers_ipv6(const uct_ofi_config_t *config)
{
    return strcasecmp(config->families.names[0], "inet6") == 0;
}

/* Sets the rank of an offer, and the reason why it is not higher. is_multi: the offer is to take
 * several messages into one buffer. */
static void uct_ofi_rank(const uct_ofi_config_t *config, int is_multi, uct_ofi_candidate_t *each)
{
    const struct fi_info *info = each->info;
    const char *name           = info->fabric_attr->prov_name;
    const char *refusal        = uct_ofi_refuse(config, info);
    int is_chosen              = (config->providers.mode == UCS_CONFIG_ALLOW_LIST_ALLOW);
    int rank                   = 100;
    size_t i;

    each->reason = "";
    for (i = 0; i < ucs_array_size(uct_ofi_providers); ++i) {
        if (strcmp(uct_ofi_providers[i].name, name) == 0) {
            rank            = uct_ofi_providers[i].rank;
            each->reason    = uct_ofi_providers[i].reason;
            each->is_routed = 1;
        }
    }
    each->speed = uct_ofi_speed(info, each->is_routed);
    if (is_multi && !is_chosen && (rank <= UCT_OFI_RANK_LAST)) {
        rank = 0; /* offers without such buffers may have better ones */
    }
    if ((refusal == NULL) && is_multi) {
        refusal = uct_ofi_multi_recv_defect(info);
        if ((refusal != NULL) && (each->reason[0] != '\0')) {
            refusal = each->reason; /* it comes behind others anyway */
        }
    }
    if ((refusal != NULL) || ((rank == 0) && !is_chosen)) {
        each->reason = (refusal != NULL) ? refusal : each->reason;
        each->rank   = -1;
        return;
    }
    each->rank = 4 * (is_chosen ? 1000 - uct_ofi_list_find(&config->providers, name) : rank);
    if (each->is_default && each->is_routed &&
        (config->devices.mode != UCS_CONFIG_ALLOW_LIST_ALLOW)) {
        each->rank += 2;
    }
    if (info->addr_format == (uct_ofi_prefers_ipv6(config) ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6) ||
        (info->addr_format == FI_SOCKADDR_IB)) {
        --each->rank;
    }
    if (uct_ofi_is_node_only(info)) {
        each->rank  /= 8000; /* 0: where there is nothing else */
        each->reason = "leads to this node only";
    }
}

/* ---- the offers ---- */

/* From rich to poor. Progress of our own first: with the other kind some providers start a
 * thread. */
static const uct_ofi_offer_t uct_ofi_offers[] = {
    {FI_MSG | FI_MULTI_RECV, FI_PROGRESS_MANUAL, FI_ORDER_SAS},
    {FI_MSG, FI_PROGRESS_MANUAL, FI_ORDER_SAS},
    {FI_MSG | FI_MULTI_RECV, FI_PROGRESS_UNSPEC, FI_ORDER_SAS},
    {FI_MSG, FI_PROGRESS_UNSPEC, FI_ORDER_NONE}
};

/* Why a provider's reads and writes of memory are not used, or NULL. */
static const char *uct_ofi_refuse_rma(const uct_ofi_config_t *config, const char *name)
{
    if (!config->has_rma) {
        return "without reads and writes of memory: switched off by UCX_OFI_RMA";
    }
    if (strstr(name, "ofi_rxd") != NULL) {
        return "without reads and writes of memory: they do not end once the peer is lost";
    }
    if (strcmp(name, "shm") == 0) {
        return "without reads and writes of memory: by a wrong key they end as by a right one";
    }
    return NULL;
}

/* Appends why an offer is not used; best: the one that is, or NULL. Once a device of the provider
 * that is used (a device has several addresses), and once another provider. */
static void uct_ofi_explain(uct_ofi_iface_t *iface, const struct fi_info *info, const char *reason,
                            const struct fi_info *best)
{
    const char *name   = info->fabric_attr->prov_name;
    const char *device = info->domain_attr->name;
    int is_other       = (best == NULL) || (strcmp(name, best->fabric_attr->prov_name) != 0);
    char head[256];

    if (!is_other && (strcmp(device, best->domain_attr->name) == 0)) {
        return;
    }
    if (reason[0] == '\0') {
        reason = is_other ? "another provider comes first" :
                            "another device comes first, and one is used";
    }
    snprintf(head, sizeof(head), "not %s on %s%s", name, is_other ? "" : device,
             is_other ? "" : ": ");
    if ((iface->choice == NULL) || (strstr(iface->choice, head) == NULL)) {
        ucs_str_append(&iface->choice, "not %s on %s: %s\n", name, device, reason);
    }
}

/* Ranks what there is, says in iface->choice what is thought of it, returns the best or NULL. */
static const struct fi_info *uct_ofi_judge(uct_ofi_iface_t *iface, uct_ofi_candidate_t *all,
                                           unsigned count, int is_multi)
{
    uct_ofi_candidate_t *best = NULL;
    const struct fi_info *info;
    int is_link_local;
    unsigned i;

    uct_ofi_sort_named(uct_ofi_config(iface), all, count);
    uct_ofi_mark_default(all, count);
    for (i = 0; i < count; ++i) {
        uct_ofi_rank(uct_ofi_config(iface), is_multi, &all[i]);
        if ((all[i].rank >= 0) && ((best == NULL) || uct_ofi_is_better(&all[i], best))) {
            best = &all[i];
        }
    }
    ucs_sys_free(iface->choice); /* what an earlier offer met is met again */
    iface->choice = NULL;
    if (best != NULL) {
        best = uct_ofi_share_out(all, count, best);
        if (uct_ofi_refuse_rma(uct_ofi_config(iface), best->info->fabric_attr->prov_name) == NULL) {
            uct_ofi_find_rails(iface, all, count, best);
        }
        ucs_str_append(&iface->choice, "%s on %s\n", best->info->fabric_attr->prov_name,
                       best->info->domain_attr->name);
    }
    info = (best != NULL) ? best->info : NULL;
    for (is_link_local = 0; is_link_local < 2; ++is_link_local) { /* these say least of the rest */
        for (i = 0; i < count; ++i) {
            if (uct_ofi_is_link_local(all[i].info) == is_link_local) {
                uct_ofi_explain(iface, all[i].info, all[i].reason, info);
            }
        }
    }
    return info;
}

/* A copy of the best of what there is, or NULL; iface->choice says why. */
static struct fi_info *uct_ofi_best(uct_ofi_iface_t *iface, const uct_ofi_offer_t *offer)
{
    struct fi_info *hints      = uct_ofi_lib_hints(offer);
    struct fi_info *list       = NULL;
    const struct fi_info *best = NULL;
    struct fi_info *copy       = NULL;
    uct_ofi_candidate_t *all;
    const struct fi_info *info;
    unsigned count = 0;
    int ret;

    if (hints == NULL) {
        return NULL;
    }
    ret = uct_ofi_lib.getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list);
    uct_ofi_lib.freeinfo(hints);
    if (ret != 0) {
        ucs_debug("fi_getinfo: %s", uct_ofi_lib.strerror(-ret));
        return NULL;
    }
    for (info = list; info != NULL; info = info->next) {
        ++count;
    }
    all = ucs_sys_calloc(ucs_max(count, 1u), sizeof(*all));
    if (all != NULL) {
        count = 0;
        for (info = list; info != NULL; info = info->next) {
            all[count++].info = info;
        }
        best = uct_ofi_judge(iface, all, count, (offer->caps & FI_MULTI_RECV) != 0);
        copy = (best != NULL) ? uct_ofi_lib.dupinfo(best) : NULL;
        ucs_sys_free(all);
    }
    uct_ofi_lib.freeinfo(list);
    return copy;
}

static int uct_ofi_is_same_offer(const struct fi_info *a, const struct fi_info *b)
{
    return uct_ofi_is_same_device(a, b) && (a->addr_format == b->addr_format);
}

/* The same offer with those capabilities, or NULL. */
static struct fi_info *uct_ofi_find_rma(const struct fi_info *own, struct fi_info *list,
                                        uint64_t caps)
{
    struct fi_info *info;

    for (info = list; info != NULL; info = info->next) {
        if (((info->caps & caps) == caps) &&
            (info->domain_attr->mr_key_size >= sizeof(uint32_t)) &&
            uct_ofi_is_same_offer(info, own)) {
            break;
        }
    }
    return info;
}

/* Replaces what is used by the same with reads of a peer's memory, and with writes where they end
 * when the bytes lie there, of memory of devices as well (FI_HMEM), if the provider has them. 0: it
 * has not. */
static int uct_ofi_add_rma(uct_ofi_iface_t *iface, int has_writes, uint64_t hmem)
{
    struct fi_info *hints = uct_ofi_lib.dupinfo(iface->info);
    struct fi_info *list  = NULL;
    struct fi_info *info  = NULL;
    uint64_t op_flags     = iface->info->tx_attr->op_flags;

    if (hints == NULL) {
        return 0;
    }
    hints->caps                |= FI_RMA | FI_READ | FI_REMOTE_READ | hmem |
                                  (has_writes ? FI_WRITE | FI_REMOTE_WRITE : 0);
    hints->tx_attr->caps        = 0;
    hints->tx_attr->op_flags    = has_writes ? FI_DELIVERY_COMPLETE : 0; /* only asks for it */
    hints->rx_attr->caps        = 0;
    hints->domain_attr->mr_mode = UCT_OFI_MR_MODES;
    if (uct_ofi_lib.getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list) == 0) {
        info = uct_ofi_find_rma(iface->info, list, FI_READ | FI_REMOTE_READ | hmem);
        info = (info != NULL) ? uct_ofi_lib.dupinfo(info) : NULL;
    }
    if (info != NULL) {
        uct_ofi_lib.freeinfo(iface->info);
        iface->info                    = info;
        iface->info->tx_attr->op_flags = op_flags;
        iface->info->caps             &= ~FI_HMEM | hmem; /* what was not asked for */
        iface->has_writes              = has_writes;
    }
    uct_ofi_lib.freeinfo(list);
    uct_ofi_lib.freeinfo(hints);
    return info != NULL;
}

/* Why reads and writes of memory, or writes, are not used, or NULL. */
static const char *uct_ofi_choose_rma(uct_ofi_iface_t *iface)
{
    const uct_ofi_config_t *config = uct_ofi_config(iface);
    const uint64_t hmem            = config->has_hmem ? FI_HMEM : 0;
    const char *refusal            = uct_ofi_refuse_rma(config,
                                                        iface->info->fabric_attr->prov_name);

    if ((refusal != NULL) || uct_ofi_add_rma(iface, 1, hmem) ||
        ((hmem != 0) && uct_ofi_add_rma(iface, 1, 0))) {
        return refusal;
    }
    return (uct_ofi_add_rma(iface, 0, hmem) || uct_ofi_add_rma(iface, 0, 0)) ?
           "without writes of memory: it does not tell when the bytes lie there "
           "(FI_DELIVERY_COMPLETE)" :
           "without reads and writes of memory: it has none";
}

/* How memory of GPUs is reached. */
static const char *uct_ofi_explain_hmem(const uct_ofi_iface_t *iface)
{
    return (iface->info->caps & FI_HMEM)      ? "reads and writes memory of GPUs" :
           uct_ofi_config(iface)->has_hmem ? "memory of GPUs goes through the host's: the provider "
                                             "does not reach it (FI_HMEM)" :
           "memory of GPUs goes through the host's: switched off by UCX_OFI_HMEM";
}

/* Makes the queue as long as our buffers need, if the provider can: some offer less than they have
 * when they are asked. */
static void uct_ofi_lengthen_queue(struct fi_info *own)
{
    struct fi_info *list  = NULL;
    struct fi_info *hints = (own->tx_attr->size < UCT_OFI_QUEUE) ? uct_ofi_lib.dupinfo(own) : NULL;
    const struct fi_info *info;

    if (hints == NULL) {
        return;
    }
    hints->tx_attr->size = UCT_OFI_QUEUE;
    (void)uct_ofi_lib.getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list);
    for (info = list; info != NULL; info = info->next) {
        if (uct_ofi_is_same_offer(info, own)) {
            own->tx_attr->size = ucs_max(own->tx_attr->size, info->tx_attr->size);
        }
    }
    uct_ofi_lib.freeinfo(list);
    uct_ofi_lib.freeinfo(hints);
}

/* A further interface uses what its lead has found. */
static ucs_status_t uct_ofi_rail_choose(uct_ofi_iface_t *iface)
{
    const uct_ofi_iface_t *lead = uct_ofi_iface(iface->super.params.lead);
    const struct fi_info *info  = lead->rails[iface->super.params.rail];

    iface->info = (info != NULL) ? uct_ofi_lib.dupinfo(info) : NULL;
    if (iface->info == NULL) {
        return UCS_ERR_NO_DEVICE;
    }
    (void)uct_ofi_choose_rma(iface);
    if (!(iface->info->caps & FI_READ)) {
        return UCS_ERR_NO_DEVICE;
    }
    iface->is_multi = lead->is_multi;
    ucs_str_append(&iface->choice, "%s on %s\n", iface->info->fabric_attr->prov_name,
                   iface->info->domain_attr->name);
    iface->super.choice = iface->choice;
    iface->super.device = iface->info->domain_attr->name;
    return UCS_OK;
}

/* ---- names that do not exist ---- */

static const char *uct_ofi_name_of(const struct fi_info *info, int is_device)
{
    return is_device ? info->domain_attr->name : info->fabric_attr->prov_name;
}

/* Does any offer have what element i of the user's list names? */
static int uct_ofi_has_name(const uct_ofi_config_t *config, const struct fi_info *list,
                            int is_device, unsigned i)
{
    uct_ofi_config_t one            = *config;
    ucs_config_names_array_t *array = is_device ? &one.devices.array : &one.providers.array;
    const struct fi_info *info;
    int is_found = 0;

    array->names += i;
    array->count  = 1;
    for (info = list; (info != NULL) && !is_found; info = info->next) {
        is_found = (is_device ? uct_ofi_device_find(&one, uct_ofi_name_of(info, 1)) :
                    uct_ofi_list_find(&one.providers, uct_ofi_name_of(info, 0))) >= 0;
    }
    return is_found;
}

/* Warns of names to use that no offer has, with those that there are. */
static void uct_ofi_check_list(const uct_ofi_config_t *config, const struct fi_info *list,
                               int is_device)
{
    const ucs_config_allow_list_t *names = is_device ? &config->devices : &config->providers;
    const struct fi_info *info, *other;
    char *there = NULL;
    unsigned i;

    if (names->mode != UCS_CONFIG_ALLOW_LIST_ALLOW) {
        return;
    }
    for (info = list; info != NULL; info = info->next) {
        for (other = list; (other != info) && (strcmp(uct_ofi_name_of(other, is_device),
                                                      uct_ofi_name_of(info, is_device)) != 0);
             other = other->next) {
        }
        if (other == info) {
            ucs_str_append(&there, " %s", uct_ofi_name_of(info, is_device));
        }
    }
    for (i = 0; i < names->array.count; ++i) {
        if (!uct_ofi_has_name(config, list, is_device, i)) {
            ucs_warn("%s: there is no '%s'; there are:%s",
                     is_device ? "UCX_NET_DEVICES" : "UCX_OFI_PROVIDER", names->array.names[i],
                     (there != NULL) ? there : " none");
        }
    }
    ucs_sys_free(there);
}

/* Once a context: do the devices and providers exist that the user names? */
static void uct_ofi_check_names(uct_ofi_iface_t *iface)
{
    const uct_ofi_offer_t *poorest = &uct_ofi_offers[ucs_array_size(uct_ofi_offers) - 1];
    const uct_ofi_config_t *config = uct_ofi_config(iface);
    uct_ofi_md_t *md               = uct_ofi_md(iface->super.md);
    struct fi_info *list           = NULL;
    struct fi_info *hints;
    int is_checked;

    pthread_mutex_lock(&md->lock);
    is_checked     = md->is_checked;
    md->is_checked = 1;
    pthread_mutex_unlock(&md->lock);
    if (is_checked || ((config->devices.mode != UCS_CONFIG_ALLOW_LIST_ALLOW) &&
                       (config->providers.mode != UCS_CONFIG_ALLOW_LIST_ALLOW))) {
        return;
    }
    hints = uct_ofi_lib_hints(poorest);
    if (hints != NULL) {
        (void)uct_ofi_lib.getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list);
        uct_ofi_lib.freeinfo(hints);
        uct_ofi_check_list(config, list, 0);
        uct_ofi_check_list(config, list, 1);
        uct_ofi_lib.freeinfo(list);
    }
}

ucs_status_t uct_ofi_provider_choose(uct_ofi_iface_t *iface)
{
    const char *line, *end, *reason;
    size_t i;

    if (iface->super.params.lead != NULL) {
        return uct_ofi_rail_choose(iface);
    }
    uct_ofi_check_names(iface);
    for (i = 0; (i < ucs_array_size(uct_ofi_offers)) && (iface->info == NULL); ++i) {
        iface->info     = uct_ofi_best(iface, &uct_ofi_offers[i]);
        iface->is_multi = (uct_ofi_offers[i].caps & FI_MULTI_RECV) != 0;
    }
    if (iface->info != NULL) {
        reason = uct_ofi_choose_rma(iface);
        if (reason != NULL) {
            ucs_str_append(&iface->choice, "%s\n", reason);
        }
        ucs_str_append(&iface->choice, "%s\n", uct_ofi_explain_hmem(iface));
        uct_ofi_lengthen_queue(iface->info);
        iface->super.device = iface->info->domain_attr->name;
    }
    line = iface->super.choice = iface->choice;
    for (; (line != NULL) && ((end = strchr(line, '\n')) != NULL); line = end + 1) {
        ucs_info("network: %.*s", (int)(end - line), line);
    }
    if (iface->info == NULL) {
        ucs_info("no network: libfabric %u.%u has no provider for it that is let in",
                 FI_MAJOR(uct_ofi_lib.version()), FI_MINOR(uct_ofi_lib.version()));
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

/* ---- addresses ---- */

/* FNV-1a of an address, with the checksum 0. */
static uint32_t uct_ofi_checksum(const uint8_t *address, size_t length)
{
    uint32_t hash = 2166136261u;
    size_t i;

    for (i = 0; i < length; ++i) {
        hash = (hash ^ (((i - offsetof(uct_ofi_address_t, checksum)) < sizeof(uint32_t)) ?
                        0 : address[i])) * 16777619u;
    }
    return hash;
}

ucs_status_t uct_ofi_address_make(uct_ofi_iface_t *iface)
{
    uct_ofi_address_t head = {.version  = UCT_OFI_VERSION,
                              .protocol = iface->info->ep_attr->protocol,
                              .format   = iface->info->addr_format};
    uint8_t *raw           = iface->address + sizeof(head);
    size_t length          = sizeof(iface->address) - sizeof(head);
    int ret;

    ret = fi_getname(&iface->ep->fid, raw, &length);
    if ((ret != 0) || (length > (sizeof(iface->address) - sizeof(head)))) {
        ucs_debug("fi_getname: %s, %zu bytes", uct_ofi_lib.strerror(-ret), length);
        return UCS_ERR_UNSUPPORTED;
    }
    head.length           = (uint8_t)length;
    head.is_loopback      = (uint8_t)(uct_ofi_is_loopback(raw, length) ||
                                 uct_ofi_is_node_only(iface->info) ||
                                 (strcmp(iface->info->fabric_attr->prov_name, "shm") == 0));
    iface->is_loopback    = head.is_loopback;
    iface->address_length = sizeof(head) + length;
    memcpy(iface->address, &head, sizeof(head));
    head.checksum = uct_ofi_checksum(iface->address, iface->address_length);
    memcpy(iface->address, &head, sizeof(head));
    iface->is_tcp = ((head.format == FI_SOCKADDR_IN) || (head.format == FI_SOCKADDR_IN6)) &&
                    ((strncmp(iface->info->fabric_attr->prov_name, "net", 3) == 0) ||
                     (strncmp(iface->info->fabric_attr->prov_name, "tcp", 3) == 0));
    iface->is_bare    = iface->is_tcp &&
                        (strchr(iface->info->fabric_attr->prov_name, ';') == NULL);
    iface->has_gather = iface->is_bare && (iface->info->tx_attr->iov_limit >= 3) &&
                        !(iface->info->domain_attr->mr_mode & FI_MR_LOCAL);
    return UCS_OK;
}

/* Has a provider's own address the form of ours? libfabric takes as many bytes as the form or the
 * family in them says, however many there are. */
static int uct_ofi_has_our_form(const uct_ofi_iface_t *iface, const uint8_t *raw, size_t length)
{
    const uint8_t *own = iface->address + sizeof(uct_ofi_address_t);
    uint32_t format    = iface->info->addr_format;

    if (format == FI_ADDR_STR) {
        return (length > 0) && (raw[length - 1] == '\0');
    }
    return (length == (iface->address_length - sizeof(uct_ofi_address_t))) &&
           (((format != FI_SOCKADDR_IN) && (format != FI_SOCKADDR_IN6)) ||
            (memcmp(raw, own, sizeof(sa_family_t)) == 0));
}

ucs_status_t uct_ofi_address_parse(const uct_ofi_iface_t *iface, const void *address,
                                   size_t length, int same_node, const uint8_t **raw_p,
                                   char reason[UCT_REASON_MAX])
{
    uct_ofi_address_t head = {0};

    if ((length >= sizeof(head)) && (length <= UCT_OFI_ADDRESS_MAX)) {
        memcpy(&head, address, sizeof(head));
    }
    *raw_p = (const uint8_t *)address + sizeof(head);
    if ((head.version != UCT_OFI_VERSION) || (head.length != (length - sizeof(head))) ||
        (head.checksum != uct_ofi_checksum(address, length))) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of ofi");
        return UCS_ERR_INVALID_ADDR;
    }
    if ((head.protocol == iface->info->ep_attr->protocol) &&
        (((head.format == FI_SOCKADDR_IN) && (iface->info->addr_format == FI_SOCKADDR_IN6)) ||
         ((head.format == FI_SOCKADDR_IN6) && (iface->info->addr_format == FI_SOCKADDR_IN)))) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is one of IPv%u, ours of IPv%u: "
                 "UCX_TCP_AF_PRIO on all hosts chooses", (head.format == FI_SOCKADDR_IN) ? 4 : 6,
                 (head.format == FI_SOCKADDR_IN) ? 6 : 4);
        return UCS_ERR_UNREACHABLE;
    }
    if ((head.protocol != iface->info->ep_attr->protocol) ||
        (head.format != iface->info->addr_format)) {
        snprintf(reason, UCT_REASON_MAX,
                 "the peer's network has protocol %u and addresses of form %u, ours %u and %u",
                 head.protocol, head.format, iface->info->ep_attr->protocol,
                 iface->info->addr_format);
        return UCS_ERR_UNREACHABLE;
    }
    if (!uct_ofi_has_our_form(iface, *raw_p, head.length)) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of its network");
        return UCS_ERR_INVALID_ADDR;
    }
    if (!same_node && (head.is_loopback || iface->is_loopback)) {
        snprintf(reason, UCT_REASON_MAX, "only one node can be reached by %s on %s",
                 iface->info->fabric_attr->prov_name, iface->info->domain_attr->name);
        return UCS_ERR_UNREACHABLE;
    }
    return UCS_OK;
}
