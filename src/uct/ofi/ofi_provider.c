/* Halyard: ofi: the library, the choice of a provider, and addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_OFI

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

/* ---- the library ---- */

ucs_status_t uct_ofi_lib_load(const uct_ofi_lib_t **lib_p)
{
    const char *reason;
    const uct_ofi_lib_t *lib = uct_ofi_lib_open(&reason);

    if (lib == NULL) {
        ucs_info("no networks: %s", reason);
        return UCS_ERR_NO_DEVICE;
    }
    *lib_p = lib;
    return UCS_OK;
}

/* ---- the choice ---- */

/* What is known of providers that say of themselves that they can do it. Those not named here, for
 * networks of their own, come first, in the order of the library. */
static const struct {
    const char *name;
    int         rank;   /* more is better; 0: only where the user names it */
    const char *reason; /* for a low one */
} uct_ofi_providers[] = {
    {"net", 60, ""},
    {"tcp", 60, ""},
    {"tcp;ofi_rxm", 50, "slower than net: 9.1 us against 3.6 where both were measured"},
    {"net;ofi_rxm", 40, "a layer more than net"},
    {"udp;ofi_rxd", 0, "1.17 loses messages, or changes them, once the kernel drops datagrams: "
                       "FI_OFI_RXD_MAX_UNACKED=32 kept that from happening"},
    {"sockets", 10, "given up by its makers: 4.5 ms a message where it was measured"},
    {"shm", 0, "leads to the same node only"}
};

/* Users write the whole name, or that of the provider below ("tcp" for "tcp;ofi_rxm"). Returns
 * where in the list it is, or -1. */
static int uct_ofi_list_find(const ucs_config_allow_list_t *list, const char *name)
{
    size_t core = strcspn(name, ";");
    unsigned i;

    for (i = 0; i < list->array.count; ++i) {
        if ((strcmp(list->array.names[i], name) == 0) ||
            ((strlen(list->array.names[i]) == core) &&
             (strncmp(list->array.names[i], name, core) == 0))) {
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

static int uct_ofi_is_link_local(const struct fi_info *info)
{
    const struct sockaddr_in6 *sa = info->src_addr;

    return (sa != NULL) && (info->src_addrlen >= sizeof(*sa)) && (sa->sin6_family == AF_INET6) &&
           IN6_IS_ADDR_LINKLOCAL(&sa->sin6_addr);
}

/* The device by which this host reaches others, since virtual bridges and the like come first in
 * some lists: the one with the address that a datagram to outside would be sent from. None is; the
 * places outside are those set aside for examples. Empty where nothing is known. */
static const char *uct_ofi_default_device(const struct fi_info *list)
{
    struct sockaddr_in outside   = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    struct sockaddr_in6 outside6 = {
        .sin6_family = AF_INET6, .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}
    };
    const struct sockaddr *places[] = {(struct sockaddr *)&outside, (struct sockaddr *)&outside6};
    const socklen_t lengths[]       = {sizeof(outside), sizeof(outside6)};
    const struct fi_info *info;
    struct sockaddr_storage own;
    socklen_t length;
    int fd, is_known;
    size_t i;

    for (i = 0; i < ucs_array_size(places); ++i) {
        length   = sizeof(own);
        fd       = ucs_sys_socket(places[i]->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        is_known = (fd >= 0) && (ucs_sys_connect(fd, places[i], lengths[i]) == 0) &&
                   (ucs_sys_getsockname(fd, (struct sockaddr *)&own, &length) == 0);
        if (fd >= 0) {
            ucs_sys_close(fd);
        }
        for (info = list; is_known && (info != NULL); info = info->next) {
            if ((info->src_addr != NULL) && (info->src_addrlen >= lengths[i]) &&
                uct_ofi_is_same_host(&own, info->src_addr)) {
                return info->domain_attr->name;
            }
        }
    }
    return "";
}

/* The rank of an offer, or a negative number and the reason. */
static int uct_ofi_rank(const uct_ofi_iface_t *iface, const struct fi_info *info,
                        const char *device, const char **reason_p)
{
    const uct_ofi_config_t *config = uct_ofi_config(iface);
    const char *name               = info->fabric_attr->prov_name;
    int named                      = uct_ofi_list_find(&config->providers, name);
    int is_chosen = (config->providers.mode == UCS_CONFIG_ALLOW_LIST_ALLOW) && (named >= 0);
    int rank      = 100;
    size_t i;

    *reason_p = "";
    if ((config->providers.mode != UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) &&
        ((named >= 0) != (config->providers.mode == UCS_CONFIG_ALLOW_LIST_ALLOW))) {
        *reason_p = "switched off by UCX_OFI_PROVIDER";
        return -1;
    }
    if (!ucs_config_allow_list_has(&config->devices, info->domain_attr->name)) {
        *reason_p = "switched off by UCX_OFI_DEVICES";
        return -1;
    }
    if (info->ep_attr->max_msg_size < UCT_OFI_BUFFER_SIZE) {
        *reason_p = "its messages are too short";
        return -1;
    }
    if (uct_ofi_is_link_local(info)) {
        *reason_p = "its address has no meaning to another host";
        return -1;
    }
    for (i = 0; i < ucs_array_size(uct_ofi_providers); ++i) {
        if (strcmp(uct_ofi_providers[i].name, name) == 0) {
            rank      = uct_ofi_providers[i].rank;
            *reason_p = uct_ofi_providers[i].reason;
        }
    }
    if (is_chosen) {
        rank = 1000 - named;
    } else if (rank == 0) {
        return -1;
    }
    rank = 4 * rank;
    if (strcmp(info->domain_attr->name, device) == 0) {
        rank += 2;
    }
    if ((info->addr_format == FI_SOCKADDR_IN6) || (info->addr_format == FI_SOCKADDR_IB)) {
        --rank; /* the older form is preferred, as by other libraries */
    }
    if (uct_ofi_is_loopback(info->src_addr, info->src_addrlen)) {
        rank     /= 8000; /* 0: where there is nothing else */
        *reason_p = "leads to this node only";
    }
    return rank;
}

/* What is asked for, from rich to poor. Progress of our own first: with the other kind some
 * providers start a thread. */
typedef struct {
    uint64_t         caps;
    enum fi_progress progress;
    uint64_t         order;
} uct_ofi_offer_t;

static const uct_ofi_offer_t uct_ofi_offers[] = {
    {FI_MSG | FI_MULTI_RECV, FI_PROGRESS_MANUAL, FI_ORDER_SAS},
    {FI_MSG, FI_PROGRESS_MANUAL, FI_ORDER_SAS},
    {FI_MSG | FI_MULTI_RECV, FI_PROGRESS_UNSPEC, FI_ORDER_SAS},
    {FI_MSG, FI_PROGRESS_UNSPEC, FI_ORDER_NONE}
};

static struct fi_info *uct_ofi_hints(const uct_ofi_lib_t *lib, const uct_ofi_offer_t *offer)
{
    struct fi_info *hints = lib->dupinfo(NULL);

    if (hints != NULL) {
        hints->caps                       = offer->caps;
        hints->mode                       = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type              = FI_EP_RDM;
        hints->domain_attr->mr_mode       = UCT_OFI_MR_MODES;
        hints->domain_attr->threading     = FI_THREAD_DOMAIN;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->domain_attr->data_progress = offer->progress;
        hints->tx_attr->msg_order         = offer->order;
        hints->rx_attr->msg_order         = offer->order;
    }
    return hints;
}

/* Returns what is wrong with the provider's buffers for several messages (seen with 1.17), or
 * NULL. */
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
    return NULL;
}

/* The same where the offer is to take several messages into one buffer. */
static int uct_ofi_offer_rank(const uct_ofi_iface_t *iface, const uct_ofi_offer_t *offer,
                              const struct fi_info *info, const char *device,
                              const char **reason_p)
{
    int rank           = uct_ofi_rank(iface, info, device, reason_p);
    const char *defect = (offer->caps & FI_MULTI_RECV) ? uct_ofi_multi_recv_defect(info) : NULL;

    if ((rank >= 0) && (defect != NULL)) {
        if ((*reason_p)[0] == '\0') { /* else it comes behind others anyway */
            *reason_p = defect;
        }
        return -1;
    }
    return rank;
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
    size_t length;

    if (!is_other && (strcmp(device, best->domain_attr->name) == 0)) {
        return;
    }
    if (reason[0] == '\0') {
        reason = is_other ? "another provider comes first" :
                            "another device comes first, and one is used";
    }
    length = (size_t)snprintf(head, sizeof(head), "not %s on ", name);
    if (!is_other && (length < sizeof(head))) {
        snprintf(head + length, sizeof(head) - length, "%s: ", device);
    }
    if (strstr(ucs_string_buffer_cstr(&iface->choice), head) == NULL) {
        ucs_string_buffer_appendf(&iface->choice, "not %s on %s: %s\n", name, device, reason);
    }
}

/* The best of what there is, or NULL; iface->choice says why. */
static struct fi_info *uct_ofi_best(uct_ofi_iface_t *iface, const uct_ofi_lib_t *lib,
                                    const uct_ofi_offer_t *offer)
{
    struct fi_info *hints = uct_ofi_hints(lib, offer);
    struct fi_info *list  = NULL;
    struct fi_info *best  = NULL;
    int best_rank         = -1;
    const char *device, *reason;
    struct fi_info *info;
    int ret, rank, is_link_local;

    if (hints == NULL) {
        return NULL;
    }
    ret = lib->getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list);
    lib->freeinfo(hints);
    if (ret != 0) {
        ucs_debug("fi_getinfo: %s", lib->strerror(-ret));
        return NULL;
    }
    device = uct_ofi_default_device(list);
    for (info = list; info != NULL; info = info->next) {
        rank = uct_ofi_offer_rank(iface, offer, info, device, &reason);
        if (rank > best_rank) {
            best      = info;
            best_rank = rank;
        }
    }
    ucs_string_buffer_reset(&iface->choice); /* what an earlier offer met is met again */
    if (best != NULL) {
        ucs_string_buffer_appendf(&iface->choice, "%s on %s\n", best->fabric_attr->prov_name,
                                  best->domain_attr->name);
    }
    for (is_link_local = 0; is_link_local < 2; ++is_link_local) { /* these say least of the rest */
        for (info = list; info != NULL; info = info->next) {
            (void)uct_ofi_offer_rank(iface, offer, info, device, &reason);
            if (uct_ofi_is_link_local(info) == is_link_local) {
                uct_ofi_explain(iface, info, reason, best);
            }
        }
    }
    best = (best != NULL) ? lib->dupinfo(best) : NULL;
    lib->freeinfo(list);
    return best;
}

/* The same provider, device and form of address, with reads of a peer's memory; or NULL. */
static struct fi_info *uct_ofi_find_reads(const struct fi_info *own, struct fi_info *list)
{
    struct fi_info *info;

    for (info = list; info != NULL; info = info->next) {
        if ((info->caps & FI_READ) && (info->caps & FI_REMOTE_READ) &&
            (info->domain_attr->mr_key_size >= sizeof(uint32_t)) &&
            (strcmp(info->fabric_attr->prov_name, own->fabric_attr->prov_name) == 0) &&
            (strcmp(info->domain_attr->name, own->domain_attr->name) == 0) &&
            (info->addr_format == own->addr_format)) {
            break;
        }
    }
    return info;
}

/* Replaces what is used by the same with reads of a peer's memory, and with writes where they end
 * when the bytes lie there, if the provider has them. 0: it has not. */
static int uct_ofi_add_rma(uct_ofi_iface_t *iface, const uct_ofi_lib_t *lib, int has_writes)
{
    struct fi_info *hints = lib->dupinfo(iface->info);
    struct fi_info *list  = NULL;
    struct fi_info *info  = NULL;
    uint64_t op_flags     = iface->info->tx_attr->op_flags;

    if (hints == NULL) {
        return 0;
    }
    hints->caps                |= FI_RMA | FI_READ | FI_REMOTE_READ |
                                  (has_writes ? FI_WRITE | FI_REMOTE_WRITE : 0);
    hints->tx_attr->caps        = 0;
    hints->tx_attr->op_flags    = has_writes ? FI_DELIVERY_COMPLETE : 0; /* only asks for it */
    hints->rx_attr->caps        = 0;
    hints->domain_attr->mr_mode = UCT_OFI_MR_MODES;
    if (lib->getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list) == 0) {
        info = uct_ofi_find_reads(iface->info, list);
        info = (info != NULL) ? lib->dupinfo(info) : NULL;
    }
    if (info != NULL) {
        lib->freeinfo(iface->info);
        iface->info                    = info;
        iface->info->tx_attr->op_flags = op_flags;
        iface->has_writes              = has_writes;
    }
    lib->freeinfo(list);
    lib->freeinfo(hints);
    return info != NULL;
}

/* Why reads and writes of memory, or writes, are not used, or NULL. */
static const char *uct_ofi_choose_rma(uct_ofi_iface_t *iface, const uct_ofi_lib_t *lib)
{
    const char *name = iface->info->fabric_attr->prov_name;

    if (!uct_ofi_config(iface)->has_rma) {
        return "without reads and writes of memory: switched off by UCX_OFI_RMA";
    }
    if (strstr(name, "ofi_rxd") != NULL) {
        return "without reads and writes of memory: they do not end once the peer is lost";
    }
    if (strcmp(name, "shm") == 0) {
        return "without reads and writes of memory: by a wrong key they end as by a right one";
    }
    if (uct_ofi_add_rma(iface, lib, 1)) {
        return NULL;
    }
    return uct_ofi_add_rma(iface, lib, 0) ?
           "without writes of memory: it does not tell when the bytes lie there "
           "(FI_DELIVERY_COMPLETE)" :
           "without reads and writes of memory: it has none";
}

ucs_status_t uct_ofi_provider_choose(uct_ofi_iface_t *iface, const uct_ofi_lib_t *lib)
{
    const char *line, *end, *reason;
    size_t i;

    for (i = 0; (i < ucs_array_size(uct_ofi_offers)) && (iface->info == NULL); ++i) {
        iface->info     = uct_ofi_best(iface, lib, &uct_ofi_offers[i]);
        iface->is_multi = (uct_ofi_offers[i].caps & FI_MULTI_RECV) != 0;
    }
    if (iface->info != NULL) {
        reason = uct_ofi_choose_rma(iface, lib);
        if (reason != NULL) {
            ucs_string_buffer_appendf(&iface->choice, "%s\n", reason);
        }
    }
    line = iface->super.choice = ucs_string_buffer_cstr(&iface->choice);
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        ucs_info("network: %.*s", (int)(end - line), line);
    }
    if (iface->info == NULL) {
        ucs_info("no network: libfabric %u.%u has no provider for it that is let in",
                 FI_MAJOR(lib->version()), FI_MINOR(lib->version()));
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

/* ---- addresses ---- */

/* FNV-1a of the head, with the checksum 0, and of what follows. */
static uint32_t uct_ofi_checksum(const uct_ofi_address_t *head, const uint8_t *raw)
{
    uct_ofi_address_t copy = *head;
    const uint8_t *bytes   = (const uint8_t *)&copy;
    uint32_t hash          = 2166136261u;
    size_t i;

    copy.checksum = 0;
    for (i = 0; i < sizeof(copy); ++i) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    for (i = 0; i < head->length; ++i) {
        hash = (hash ^ raw[i]) * 16777619u;
    }
    return hash;
}

ucs_status_t uct_ofi_address_make(uct_ofi_iface_t *iface, const uct_ofi_lib_t *lib)
{
    uct_ofi_address_t head = {.version  = UCT_OFI_VERSION,
                              .protocol = iface->info->ep_attr->protocol,
                              .format   = iface->info->addr_format};
    uint8_t *raw           = iface->address + sizeof(head);
    size_t length          = sizeof(iface->address) - sizeof(head);
    int ret;

    ret = fi_getname(&iface->ep->fid, raw, &length);
    if ((ret != 0) || (length > (sizeof(iface->address) - sizeof(head)))) {
        ucs_debug("fi_getname: %s, %zu bytes", lib->strerror(-ret), length);
        return UCS_ERR_UNSUPPORTED;
    }
    head.length           = (uint8_t)length;
    head.is_loopback      = (uint8_t)(uct_ofi_is_loopback(raw, length) ||
                                 (strcmp(iface->info->fabric_attr->prov_name, "shm") == 0));
    head.checksum         = uct_ofi_checksum(&head, raw);
    iface->is_loopback    = head.is_loopback;
    iface->address_length = sizeof(head) + length;
    memcpy(iface->address, &head, sizeof(head));
    iface->is_tcp = ((head.format == FI_SOCKADDR_IN) || (head.format == FI_SOCKADDR_IN6)) &&
                    ((strncmp(iface->info->fabric_attr->prov_name, "net", 3) == 0) ||
                     (strncmp(iface->info->fabric_attr->prov_name, "tcp", 3) == 0));
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
    uct_ofi_address_t head;

    if ((length < sizeof(head)) || (length > UCT_OFI_ADDRESS_MAX)) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of ofi");
        return UCS_ERR_INVALID_ADDR;
    }
    memcpy(&head, address, sizeof(head));
    *raw_p = (const uint8_t *)address + sizeof(head);
    if ((head.version != UCT_OFI_VERSION) || (head.length != (length - sizeof(head))) ||
        (head.checksum != uct_ofi_checksum(&head, *raw_p))) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of ofi");
        return UCS_ERR_INVALID_ADDR;
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

#endif
