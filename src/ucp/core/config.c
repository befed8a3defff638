/* Halyard: the options of ucp, and the functions of the public interface on configurations.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/context.h>
#include <ucs/config/names.h>
#include <ucs/debug/log.h>
#include <string.h>

static const char *const ucp_rndv_scheme_names[] = {"auto",     "get_zcopy", "put_zcopy",
                                                    "both",     "am",        "get_ppln",
                                                    "put_ppln", "rkey_ptr",  NULL};

static const char *const ucp_idle_names[] = {"auto", "poll", "yield", "sleep", NULL};

#define UCP_ROW(_name, _type, _field, _dflt, _help, ...) \
    UCS_CONFIG_ROW(_name, _type, ucp_options_t, _field, _dflt, _help, ##__VA_ARGS__)

const ucs_config_row_t ucp_options_rows[] = {
    UCP_ROW("TLS", allow, tls, "all",
            "Transports to use: names, or ^names for all but these. Aliases: shm and sm mean all "
            "of shared memory on "
            "a node, mm its messages, cma its single copies; net and tcp mean ofi, the networks. A "
            "process always reaches itself."),
    UCP_ROW("RNDV_THRESH", memunits, rndv_thresh, "auto",
            "Bytes from which a message is announced before it is sent; auto: by predicted time.",
            .flags = UCS_CONFIG_ROW_AUTO | UCS_CONFIG_ROW_INF),
    UCP_ROW("RNDV_SCHEME", enum, rndv_scheme, "auto",
            "How announced messages move: the receiver reads (get_zcopy), the sender writes "
            "(put_zcopy), each copies "
            "a part (both), or in pieces through messages (am). get_ppln, put_ppln and rkey_ptr "
            "are taken as get_zcopy, put_zcopy and auto.",
            .arg = ucp_rndv_scheme_names),
    UCP_ROW("PROTO_INFO", bool, proto_info, "n",
            "Print which protocol serves which sizes, and why the others do not, on first use."),
    UCP_ROW("IDLE", enum, idle, "auto",
            "What progress does when it finds nothing again and again: it returns at once (poll), "
            "gives the processor away (yield), or, when that was in vain, sleeps until something "
            "comes, for 1 ms at most (sleep). auto: poll, but sleep while others of more processes "
            "than processors want to run.",
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
            "whole job is on one node. In any case they do where UCX_TLS lets only networks in, "
            "and where two workers meet by socket addresses of different hosts."),
    UCP_ROW("CONNECT_TIMEOUT", time, connect_timeout_ns, "60s",
            "How long a client waits for a server to accept it, and a server for a client to say "
            "what it wants."),
    UCP_ROW("MAX_RNDV_RAILS", uint, max_rails, "2",
            "Devices of a network, four at most, that carry parts of a long message at the same "
            "time, where they are equal and lead to the same process. Of networks that the kernel "
            "routes (tcp) those that UCX_NET_DEVICES names."),
    UCP_ROW("CM_REUSEADDR", bool, reuse_addr, "n",
            "Let several sockets of this user share an address, as a client that connects from its "
            "own listener's."),
    UCS_CONFIG_ROW_END};
