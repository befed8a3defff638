/* Halyard: wire-up: lanes by a table of roles with scores and reasons.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/wireup/lanes.h>
#include <ucp/wireup/net.h>
#include <ucs/debug/log.h>
#include <limits.h>
#include <string.h>

#define UCP_NO_TL UINT_MAX

/* A role: what a transport must offer, at which message size candidates are compared. */
typedef struct {
    const char *name;
    int         required;
    uct_op_t    op;     /* compared by its cost... */
    ucs_memory_type_t memory; /* ...on this kind of memory... */
    size_t      length; /* ...at this size */
    int (*has)(const uct_tl_t *tl);
    const char *missing;
} ucp_lane_row_t;

static int ucp_lane_has_am(const uct_tl_t *tl)
{
    return (tl->ep.live.am_short != NULL) && (tl->ep.live.am_short_iov != NULL);
}

static int ucp_lane_has_copy(const uct_tl_t *tl)
{
    /* Of any memory, registered or not, which only these kinds can. */
    return ((tl->kind == UCT_TL_KIND_SELF) || (tl->kind == UCT_TL_KIND_COPY)) &&
           ((tl->ep.live.get_zcopy != NULL) || (tl->ep.live.put_zcopy != NULL));
}

static int ucp_lane_has_device(const uct_tl_t *tl)
{
    return (tl->kind == UCT_TL_KIND_DEVICE) && (tl->ep.live.get_zcopy != NULL) &&
           (tl->ep.live.put_zcopy != NULL);
}

static const ucp_lane_row_t ucp_lane_rows[UCP_LANE_RAIL] = {
    [UCP_LANE_AM]     = {"messages", 1, UCT_OP_AM_SHORT, UCS_MEMORY_TYPE_HOST, 8, ucp_lane_has_am,
                         "no messages"},
    [UCP_LANE_COPY]   = {"single copy", 0, UCT_OP_GET_ZCOPY, UCS_MEMORY_TYPE_HOST, 1 << 20,
                         ucp_lane_has_copy, "no copies from any memory"},
    [UCP_LANE_DEVICE] = {"device memory", 0, UCT_OP_GET_ZCOPY, UCS_MEMORY_TYPE_CUDA, 1 << 20,
                         ucp_lane_has_device, "no copies between devices"}};

static int ucp_lane_is_self(const ucp_peer_t *peer)
{
    return memcmp(peer->uid, peer->worker->uid, UCT_UID_LEN) == 0;
}

/* What an address tells for transport i; NULL: nothing. */
static const ucp_address_entry_t *ucp_lane_entry(const ucp_worker_t *worker,
                                                 const ucp_address_info_t *address, unsigned i)
{
    return ucp_address_find(address, worker->context->tls[i].wire_id);
}

/* Where the peer is for transport i: in its address, or for ourselves what we know. 0 if it is not
 * there. */
static int ucp_lane_find_entry(const ucp_peer_t *peer, const ucp_address_info_t *address,
                               unsigned i, ucp_address_entry_t *entry)
{
    const ucp_worker_tl_t *wtl       = &peer->worker->tls[i];
    const ucp_address_entry_t *found = ucp_lane_entry(peer->worker, address, i);

    if (ucp_lane_is_self(peer)) {
        *entry = (ucp_address_entry_t){0, (uint8_t)wtl->addr_length, wtl->addr};
    } else if (found != NULL) {
        *entry = *found;
    } else {
        return 0;
    }
    return 1;
}

int ucp_lanes_are_near(const ucp_worker_t *worker, const ucp_address_info_t *address)
{
    const int same_node = (address->node_id == worker->context->node_id);
    const ucp_address_entry_t *entry;
    char reason[UCT_REASON_MAX];
    uct_iface_t *iface;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        entry = ucp_lane_entry(worker, address, i);
        if ((worker->context->tls[i].tl->kind == UCT_TL_KIND_SHM) && (iface != NULL) &&
            (entry != NULL) &&
            iface->tl->iface.is_reachable(iface, entry->bytes, entry->length, same_node, reason)) {
            return 1;
        }
    }
    return memcmp(address->uid, worker->uid, UCT_UID_LEN) == 0;
}

int ucp_lanes_lack_net(const ucp_worker_t *worker, const ucp_address_info_t *address)
{
    int has_net = 0;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        if (worker->context->tls[i].tl->kind == UCT_TL_KIND_NET) {
            has_net = 1;
            if (ucp_lane_entry(worker, address, i) != NULL) {
                return 0;
            }
        }
    }
    return has_net;
}

/* Predicted time of the role's operation through transport i, or a negative number and the reason,
 * which may stand in `storage`. */
static double ucp_lane_score(const ucp_peer_t *peer, const ucp_address_info_t *address,
                             const ucp_lane_row_t *row, unsigned i, const char **reason_p,
                             char storage[UCT_REASON_MAX])
{
    ucp_worker_t *worker = peer->worker;
    const uct_tl_t *tl   = worker->context->tls[i].tl;
    int same_node        = (address->node_id == worker->context->node_id);
    int is_self          = ucp_lane_is_self(peer);
    ucp_address_entry_t entry;
    uct_limits_t limits;

    if (!row->has(tl)) {
        *reason_p = row->missing;
        return -1;
    }
    if (worker->tls[i].iface == NULL) {
        *reason_p = worker->tls[i].reason;
        return -1;
    }
    if (worker->context->tls[i].rail > 0) {
        *reason_p = "carries parts of long messages only";
        return -1;
    }
    if (is_self != (tl->kind == UCT_TL_KIND_SELF)) {
        *reason_p =
            is_self ? "not for a worker's own messages" : "only for a worker's own messages";
        return -1;
    }
    if (!ucp_lane_find_entry(peer, address, i, &entry)) {
        *reason_p = "not in the peer's address";
        return -1;
    }
    if (!is_self && (tl->iface.is_reachable != NULL) &&
        !tl->iface.is_reachable(worker->tls[i].iface, entry.bytes, entry.length, same_node,
                                storage)) {
        *reason_p = storage;
        return -1;
    }

    tl->iface.limits(worker->tls[i].iface, row->op, row->memory, &limits);
    return limits.overhead_ns + limits.latency_ns + ((double)row->length / limits.bytes_per_ns);
}

/* Why no transport serves a role, in one line. */
static void ucp_lane_explain(const ucp_peer_t *peer, const ucp_address_info_t *address,
                             const ucp_lane_row_t *row)
{
    char text[512] = "", storage[UCT_REASON_MAX];
    const char *reason = "";
    size_t used        = 0;
    unsigned i;

    for (i = 0; i < peer->worker->context->num_tls; ++i) {
        if ((peer->worker->context->tls[i].rail == 0) &&
            (used < sizeof(text)) &&
            (ucp_lane_score(peer, address, row, i, &reason, storage) < 0)) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s: %s",
                                     (i > 0) ? ", " : "", peer->worker->context->tls[i].name,
                                     reason);
        }
    }
    ucs_log(row->required ? UCS_LOG_LEVEL_ERROR : UCS_LOG_LEVEL_DEBUG,
            "no transport for %s to this peer (%s)", row->name, text);
}

/* The transport that serves a role best, or UCP_NO_TL. */
static unsigned ucp_lane_choose(const ucp_peer_t *peer, const ucp_address_info_t *address,
                                const ucp_lane_row_t *row)
{
    unsigned best  = UCP_NO_TL;
    double best_ns = 0;
    char storage[UCT_REASON_MAX];
    const char *reason = "";
    unsigned i;

    for (i = 0; i < peer->worker->context->num_tls; ++i) {
        double time_ns = ucp_lane_score(peer, address, row, i, &reason, storage);

        if ((time_ns >= 0) && ((best == UCP_NO_TL) || (time_ns < best_ns))) {
            best    = i;
            best_ns = time_ns;
        }
    }
    return best;
}

/* Does the peer's address lead over a network that we have not opened? */
static int ucp_lane_may_need_net(const ucp_peer_t *peer, const ucp_address_info_t *address)
{
    const ucp_worker_t *worker = peer->worker;
    ucp_address_entry_t entry;
    unsigned i;

    for (i = 0; !ucp_lane_is_self(peer) && (i < worker->context->num_tls); ++i) {
        if ((worker->context->tls[i].tl->kind == UCT_TL_KIND_NET) && !worker->tls[i].is_tried &&
            ucp_lane_find_entry(peer, address, i, &entry)) {
            return 1;
        }
    }
    return 0;
}

static ucs_status_t ucp_lane_open(ucp_peer_t *peer, const ucp_address_info_t *address,
                                  ucp_lane_role_t role)
{
    const ucp_lane_row_t *row = &ucp_lane_rows[role];
    ucp_worker_t *worker      = peer->worker;
    unsigned best             = ucp_lane_choose(peer, address, row);
    ucp_address_entry_t entry;
    unsigned i;

    if ((best == UCP_NO_TL) && row->required && ucp_lane_may_need_net(peer, address) &&
        ucp_net_open(worker)) {
        best = ucp_lane_choose(peer, address, row);
    }
    peer->lane_tl[role] = best;
    if (best == UCP_NO_TL) {
        ucp_lane_explain(peer, address, row);
        return row->required ? UCS_ERR_UNREACHABLE : UCS_OK;
    }
    for (i = 0; i < (unsigned)role; ++i) {
        if (peer->lane_tl[i] == best) {
            peer->lanes[role] = peer->lanes[i]; /* one endpoint serves both */
            return UCS_OK;
        }
    }
    if (!ucp_lane_find_entry(peer, address, best, &entry)) {
        return UCS_ERR_UNREACHABLE; /* cannot be: the score looked there */
    }
    return uct_ep_open(worker->tls[best].iface, peer->uid, entry.bytes, entry.length, peer,
                       &peer->lanes[role]);
}

/* Further devices of the network that carries messages, each to the device of the same number. */
static void ucp_lanes_open_rails(ucp_peer_t *peer, const ucp_address_info_t *address)
{
    ucp_worker_t *worker   = peer->worker;
    ucp_context_t *context = worker->context;
    char reason[UCT_REASON_MAX];
    ucp_address_entry_t entry;
    uct_iface_t *iface;
    unsigned i, role;

    for (i = 0; i < context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        role  = UCP_LANE_RAIL + context->tls[i].rail - 1;
        if ((context->tls[i].rail == 0) || (context->tls[i].lead != peer->lane_tl[UCP_LANE_AM]) ||
            (iface == NULL) || !ucp_lane_find_entry(peer, address, i, &entry) ||
            !iface->tl->iface.is_reachable(iface, entry.bytes, entry.length,
                                           address->node_id == context->node_id, reason)) {
            continue;
        }
        if (uct_ep_open(iface, peer->uid, entry.bytes, entry.length, peer, &peer->lanes[role]) ==
            UCS_OK) {
            peer->lane_tl[role] = i;
        } else {
            peer->lanes[role] = NULL;
        }
    }
}

static void ucp_lanes_fill(ucp_peer_t *peer, ucp_proto_lanes_t *lanes)
{
    ucp_worker_t *worker = peer->worker;
    uct_iface_t *am      = worker->tls[peer->lane_tl[UCP_LANE_AM]].iface;
    uct_iface_t *copy;
    uct_limits_t device;
    unsigned rail;

    lanes->is_net    = (am->tl->kind == UCT_TL_KIND_NET);
    lanes->am_name   = am->tl->name;
    lanes->am_choice = am->choice;
    if (peer->lane_tl[UCP_LANE_DEVICE] != UCP_NO_TL) {
        lanes->device_name = worker->context->tls[peer->lane_tl[UCP_LANE_DEVICE]].tl->name;
    }
    lanes->has_sync = (am->tl->iface.sync_alloc != NULL) && (am->tl->ep.live.sync_map != NULL);
    lanes->has_long = (am->tl->ep.live.long_max != NULL);
    am->tl->iface.limits(am, UCT_OP_AM_SHORT, UCS_MEMORY_TYPE_HOST, &lanes->am);
    if (am->tl->ep.live.am_zcopy != NULL) {
        am->tl->iface.limits(am, UCT_OP_AM_ZCOPY, UCS_MEMORY_TYPE_HOST, &lanes->zcopy);
    }
    if ((peer->lane_tl[UCP_LANE_COPY] != UCP_NO_TL) && (peer->copy_state != UCP_COPY_NONE)) {
        copy             = worker->tls[peer->lane_tl[UCP_LANE_COPY]].iface;
        lanes->copy_name = copy->tl->name;
        if (copy->tl->ep.live.get_zcopy != NULL) {
            copy->tl->iface.limits(copy, UCT_OP_GET_ZCOPY, UCS_MEMORY_TYPE_HOST, &lanes->get);
        }
        if (copy->tl->ep.live.put_zcopy != NULL) {
            copy->tl->iface.limits(copy, UCT_OP_PUT_ZCOPY, UCS_MEMORY_TYPE_HOST, &lanes->put);
        }
    } else if (am->tl->iface.reg != NULL) {
        am->tl->iface.limits(am, UCT_OP_GET_ZCOPY, UCS_MEMORY_TYPE_HOST, &lanes->get);
        am->tl->iface.limits(am, UCT_OP_PUT_ZCOPY, UCS_MEMORY_TYPE_HOST, &lanes->write);
        lanes->has_reads = (lanes->get.max > 0);
        am->tl->iface.limits(am, UCT_OP_GET_ZCOPY, UCS_MEMORY_TYPE_CUDA, &device);
        lanes->has_device_reads = (device.max > 0);
        lanes->copy_name = lanes->has_reads ? am->tl->name : NULL;
    }
    for (rail = 0; rail < UCT_RAILS_MAX; ++rail) {
        if (peer->lanes[UCP_LANE_RAIL + rail] != NULL) {
            lanes->rail_choice[rail] = peer->lanes[UCP_LANE_RAIL + rail]->iface->choice;
        }
    }
}

/* The table for lanes of which the first num are the key's, or NULL. */
static ucp_proto_config_t *ucp_lanes_find_proto(ucp_worker_t *worker, const unsigned *key,
                                                unsigned num)
{
    unsigned i;

    for (i = 0; i < worker->num_proto; ++i) {
        if (memcmp(worker->proto[i].tl, key, num * sizeof(*key)) == 0) {
            return &worker->proto[i];
        }
    }
    return NULL;
}

/* UCX_PROTO_INFO: each once, by a peer that it carries something for: no provisional one. */
static void ucp_lanes_tell(const ucp_peer_t *peer)
{
    ucs_report_t storage, *report;

    if (peer->worker->context->options.proto_info && !peer->proto->is_told &&
        !peer->lanes[UCP_LANE_AM]->is_nowhere) {
        peer->proto->is_told = 1;
        report               = ucs_report_begin(stdout, &storage);
        ucp_proto_explain(peer->proto, report);
        ucs_report_end(report, stdout);
        fflush(stdout);
    }
}

ucs_status_t ucp_lanes_update_proto(ucp_peer_t *peer)
{
    ucp_worker_t *worker = peer->worker;
    unsigned key[UCP_LANE_LAST];
    ucp_proto_config_t *config;

    _Static_assert(sizeof(key) == sizeof(config->tl), "the key has all lanes");
    memcpy(key, peer->lane_tl, sizeof(key));
    if (peer->copy_state == UCP_COPY_NONE) {
        key[UCP_LANE_COPY] = UCP_NO_TL;
    }
    config = ucp_lanes_find_proto(worker, key, UCP_LANE_LAST);
    if ((config == NULL) && (worker->num_proto == UCP_PROTO_CONFIGS)) {
        config = ucp_lanes_find_proto(worker, key, UCP_LANE_RAIL); /* only told of there */
    }
    if (config != NULL) {
        peer->proto = config;
        ucp_lanes_tell(peer);
        return UCS_OK;
    }
    if (worker->num_proto == UCP_PROTO_CONFIGS) {
        ucs_error("more than %d combinations of transports in one worker", UCP_PROTO_CONFIGS);
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    config = &worker->proto[worker->num_proto++];
    memcpy(config->tl, key, sizeof(key));
    snprintf(config->lanes.copy_reason, UCT_REASON_MAX, "%s",
             "no transport copies from any memory to this peer");
    ucp_lanes_fill(peer, &config->lanes);
    ucp_proto_config_fill(config, &worker->context->options);
    peer->proto = config;
    ucp_lanes_tell(peer);
    return UCS_OK;
}

ucs_status_t ucp_lanes_open(ucp_peer_t *peer, const ucp_address_info_t *address)
{
    ucs_status_t status;
    ucp_lane_role_t role;

    for (role = 0; role < UCP_LANE_LAST; ++role) {
        peer->lane_tl[role] = UCP_NO_TL;
        status = (role < UCP_LANE_RAIL) ? ucp_lane_open(peer, address, role) : UCS_OK;
        if (status != UCS_OK) {
            return status;
        }
    }
    ucp_lanes_open_rails(peer, address);

    /* Copies inside one process need no proof. */
    peer->copy_state = (peer->lanes[UCP_LANE_COPY] == NULL) ? UCP_COPY_NONE
                       : (peer->lanes[UCP_LANE_COPY] == peer->lanes[UCP_LANE_AM])
                           ? UCP_COPY_WORKS
                           : UCP_COPY_UNPROVED;
    return ucp_lanes_update_proto(peer);
}

ucs_status_t ucp_lanes_open_nowhere(ucp_peer_t *peer)
{
    ucp_worker_t *worker = peer->worker;
    unsigned least       = UCP_NO_TL;
    size_t least_max     = SIZE_MAX;
    ucs_status_t status;
    uct_limits_t limits;
    ucp_lane_role_t role;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        if ((worker->tls[i].iface == NULL) || !ucp_lane_has_am(worker->context->tls[i].tl)) {
            continue;
        }
        worker->context->tls[i].tl->iface.limits(worker->tls[i].iface, UCT_OP_AM_SHORT,
                                                 UCS_MEMORY_TYPE_HOST, &limits);
        if ((least == UCP_NO_TL) || (limits.max < least_max)) {
            least     = i;
            least_max = limits.max;
        }
    }
    if (least == UCP_NO_TL) {
        return UCS_ERR_NO_DEVICE;
    }
    for (role = 0; role < UCP_LANE_LAST; ++role) {
        peer->lane_tl[role] = UCP_NO_TL;
    }
    peer->lane_tl[UCP_LANE_AM] = least;
    peer->copy_state           = UCP_COPY_NONE;
    status = uct_ep_open_nowhere(worker->tls[least].iface, peer, &peer->lanes[UCP_LANE_AM]);
    return (status == UCS_OK) ? ucp_lanes_update_proto(peer) : status;
}
