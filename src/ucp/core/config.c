/* Halyard: the options of ucp, and the functions of the public interface on configurations.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/context.h>
#include <ucs/sys/string.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const ucp_rndv_scheme_names[] = {"auto",     "get_zcopy", "put_zcopy",
                                                    "both",     "am",        "get_ppln",
                                                    "put_ppln", "rkey_ptr",  NULL};

static const char *const ucp_idle_names[] = {"auto", "poll", "yield", "sleep", NULL};

/* ---- the type of RNDV_THRESH: one size, or one of each kind of peers ---- */

#define UCP_THRESHOLD_INTRA "intra:"
#define UCP_THRESHOLD_INTER "inter:"

/* One of the sizes. is_first: it may be that of all peers. */
static ucs_status_t ucp_thresholds_parse_one(const char *text, int is_first,
                                             const ucs_config_row_t *row, ucp_thresholds_t *made)
{
    const size_t skip  = strlen(UCP_THRESHOLD_INTRA);
    const int is_intra = !strncmp(text, UCP_THRESHOLD_INTRA, skip);
    const int is_inter = !strncmp(text, UCP_THRESHOLD_INTER, skip);
    ucs_status_t status;
    size_t size;

    if (!is_intra && !is_inter && !is_first) {
        return UCS_ERR_INVALID_PARAM;
    }
    status = ucs_config_type_memunits.parse(text + ((is_intra || is_inter) ? skip : 0), &size, row);
    if (status == UCS_OK) {
        made->intra = is_inter ? made->intra : size;
        made->inter = is_intra ? made->inter : size;
    }
    return status;
}

static ucs_status_t
ucp_thresholds_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    ucp_thresholds_t made = {UCS_CONFIG_AUTO_SIZE, UCS_CONFIG_AUTO_SIZE};
    const char *next      = text;
    char one[64];
    ucs_status_t status;
    size_t length;

    do {
        next  += (next != text); /* the comma */
        length = strcspn(next, ",");
        if (length >= sizeof(one)) {
            return UCS_ERR_INVALID_PARAM;
        }
        snprintf(one, sizeof(one), "%.*s", (int)length, next);
        status = ucp_thresholds_parse_one(one, next == text, row, &made);
        if (status != UCS_OK) {
            return status;
        }
        next += length;
    } while (*next != '\0');

    *(ucp_thresholds_t *)field = made;
    return UCS_OK;
}

static void
ucp_thresholds_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    const ucp_thresholds_t *thresholds = field;
    char intra[32], inter[32];

    ucs_config_type_memunits.print(intra, sizeof(intra), &thresholds->intra, row);
    ucs_config_type_memunits.print(inter, sizeof(inter), &thresholds->inter, row);
    if (thresholds->intra == thresholds->inter) {
        ucs_str_copy(buf, max, intra);
    } else {
        snprintf(buf, max, UCP_THRESHOLD_INTRA "%s," UCP_THRESHOLD_INTER "%s", intra, inter);
    }
}

static const ucs_config_type_t ucs_config_type_thresholds = {
    .name  = "thresholds",
    .size  = sizeof(ucp_thresholds_t),
    .parse = ucp_thresholds_parse,
    .print = ucp_thresholds_print,
    .form  = "bytes, such as 8192 or 8K, or those of the node and of the network, such as "
             "intra:64K,inter:16K; each"
};

/* ---- the type of PROTO_INFO: a switch, with what UCX has beside y and n ---- */

static ucs_status_t ucp_info_parse(const char *text, void *field, const ucs_config_row_t *row)
{
    if ((strcasecmp(text, "used") == 0) || (strpbrk(text, "*?") != NULL)) {
        *(int *)field = 1;
        return UCS_OK;
    }
    return ucs_config_type_bool.parse(text, field, row);
}

static void ucp_info_print(char *buf, size_t max, const void *field, const ucs_config_row_t *row)
{
    ucs_config_type_bool.print(buf, max, field, row);
}

static const ucs_config_type_t ucs_config_type_info = {
    .name  = "info",
    .size  = sizeof(int),
    .parse = ucp_info_parse,
    .print = ucp_info_print,
    .form  = "y, n, used, or a pattern such as *tag*"
};

/* ---- the table ---- */

#define UCP_ROW(_name, _type, _field, _dflt, _help, ...) \
    UCS_CONFIG_ROW(_name, _type, ucp_options_t, _field, _dflt, _help, ##__VA_ARGS__)

const ucs_config_row_t ucp_options_rows[] = {
    UCP_ROW("TLS", allow, tls, "all",
            "Transports to use: names, or ^names for all but these. Aliases: shm and sm mean all "
            "of shared memory on "
            "a node, mm its messages, cma its single copies; net and tcp mean ofi, the networks; "
            "cuda means cuda_copy and cuda_ipc, memory of GPUs. A process always reaches itself."),
    UCP_ROW("RNDV_THRESH", thresholds, rndv_thresh, "auto",
            "Bytes from which a message is announced before it is sent; auto: by predicted time. "
            "intra:SIZE,inter:SIZE, or one of the two: to peers that shared memory reaches, and "
            "over networks.",
            .flags = UCS_CONFIG_ROW_AUTO | UCS_CONFIG_ROW_INF),
    UCP_ROW("ZCOPY_THRESH", memunits, zcopy_thresh, "auto",
            "Bytes from which a message that is sent at once is sent from where it lies, where the "
            "transport can (networks over TCP), and ends when it has left; others are copied "
            "first. auto: from where that takes less time; inf: never.",
            .flags = UCS_CONFIG_ROW_AUTO | UCS_CONFIG_ROW_INF),
    UCP_ROW("RNDV_SCHEME", enum, rndv_scheme, "auto",
            "How announced messages move: the receiver reads (get_zcopy), the sender writes "
            "(put_zcopy), each copies "
            "a part (both), or in pieces through messages (am). get_ppln, put_ppln and rkey_ptr "
            "are taken as get_zcopy, put_zcopy and auto.",
            .arg = ucp_rndv_scheme_names),
    UCP_ROW("PROTO_INFO", info, proto_info, "n",
            "Print which protocol serves which sizes, and why the others do not, on first use. "
            "What UCX takes beside y and n (used, patterns such as *tag*) means y."),
    UCP_ROW("IDLE", enum, idle, "auto",
            "What progress does when it finds nothing again and again: it returns at once (poll), "
            "gives the processor away (yield), or, when that was in vain, sleeps until something "
            "comes, for 1 ms at most (sleep). auto: poll, but sleep while others of more processes "
            "than processors want to run. With poll, and auto while there are processors enough, "
            "ucp_worker_arm looks for 30 us before its caller sleeps where messages came soon.",
            .arg = ucp_idle_names),
    UCP_ROW("TM_BUCKETS", uint, tm_buckets, "1024",
            "Buckets of the tag matching table at first; it grows with the entries.", .min = 16,
            .max = 1 << 20, .flags = UCS_CONFIG_ROW_POW2 | UCS_CONFIG_ROW_HIDDEN),
    UCP_ROW("TM_UNEXP_BUDGET", memunits, unexp_budget, "64m",
            "Memory of a worker for tagged messages that came before their receives, and for "
            "active messages behind one that is fetched. Beyond it the senders are told to "
            "announce their messages, which then stay with them until they are received; "
            "messages of up to 64 bytes still come.",
            .flags = UCS_CONFIG_ROW_INF),
    UCP_ROW("NET_ADDRESS", ternary, net_address, "auto",
            "Do worker addresses lead from other nodes too? That loads libfabric, which takes 0.1 "
            "to 0.4 s. auto: unless the launcher (Open MPI's, MPICH's, Slurm's) says that the "
            "whole job is on one node; where it says nothing, they tell of a TCP port, and it is "
            "loaded once another node asks there, but at once for puts and gets where the host has "
            "RDMA devices. In any case they do where UCX_TLS lets only networks in, and where two "
            "workers meet by socket addresses of different hosts."),
    UCP_ROW("CONNECT_TIMEOUT", time, connect_timeout_ns, "60s",
            "How long a client waits for a server to accept it, and a server for a client to say "
            "what it wants; inf: for ever.", .max = INT64_MAX),
    UCP_ROW("MAX_RNDV_RAILS", uint, max_rails, "2",
            "Devices of a network, four at most, that carry parts of a long message at the same "
            "time, where they are equal and lead to the same process. Of networks that the kernel "
            "routes (tcp) those that UCX_NET_DEVICES names."),
    UCP_ROW("DEVICE_STAGING", bool, device_staging, "y",
            "Move device memory that its driver does not let other processes of the node map (not "
            "made for export, managed) through memory of the library's. n: sends of it that are "
            "announced, and its ucp_mem_map, end with UCS_ERR_UNSUPPORTED."),
    UCP_ROW("CM_REUSEADDR", bool, reuse_addr, "n",
            "Let several sockets of this user share an address, as a client that connects from its "
            "own listener's."),
    UCS_CONFIG_ROW_END};
