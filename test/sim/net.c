/* Halyard: simulator: the node: a transport for messages, one for single copies, one to oneself.
 *
 * A connection is a queue of messages, each with the time from which it can be seen, in order. The
 * far end sees it when its worker progresses after that time. What hosts and connections need
 * lives until the end of the run, so that what a dead worker left behind can be delivered.
 *
 * This file takes the place of the product's registry of transports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <uct/base/registry.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <stdlib.h>
#include <string.h>

#define SIM_SYNC_WORDS  8
#define SIM_HOSTS_MAX   256
#define SIM_CONNS_MAX   4096
#define SIM_ADDRESS_LEN 8
#define SIM_PEER        0x5133

typedef struct sim_message {
    struct sim_message *next;
    sim_parts_t         parts;
    sim_lent_t         *lent;    /* not NULL: not all of it has left its sender */
    uint32_t            id;
    uint32_t            header;  /* bytes before the payload, or 0: not known */
    uint32_t            length;
    uint64_t            data[];
} sim_message_t;

/* One worker as the node sees it. */
typedef struct {
    unsigned         number;
    int              is_open;      /* its interface for messages */
    int              is_dead;
    uint8_t          uid[UCT_UID_LEN];
    uint64_t         sync_used;
    ucs_atomic_u64_t sync[SIM_SYNC_WORDS];
    unsigned         conns_in[SIM_CONNS_MAX / 16];
    unsigned         num_in;
    unsigned         conns_out[SIM_CONNS_MAX / 16];
    unsigned         num_out;
} sim_host_t;

typedef struct {
    uct_iface_t super;
    sim_host_t *host;
    int         event_fd; /* 0: nobody has asked for it */
    int         is_armed;
} sim_iface_t;

typedef struct sim_conn sim_conn_t;

typedef struct {
    uct_ep_t    super;
    unsigned    peer;  /* number of its host */
    sim_conn_t *conn;  /* NULL until connected, and for copies */
    int         is_refused;
} sim_ep_t;

typedef enum {
    SIM_CONN_CALLING,  /* on its way to the target */
    SIM_CONN_ANSWERED, /* and back */
    SIM_CONN_REFUSED,
    SIM_CONN_OPEN
} sim_conn_state_t;

struct sim_conn {
    sim_host_t      *source, *target;
    sim_ep_t        *ep;          /* NULL once it is closed or has failed */
    sim_conn_state_t state;
    int              is_self;
    int              is_accepted; /* the target knows of it */
    int              is_dropped;  /* by the target */
    int              is_silenced; /* nothing of it is delivered any more */
    int              is_forgotten; /* by the target: it has seen the end */
    uint64_t         time_ns;     /* when the call or the answer is there */
    uint64_t         ends_ns;     /* the source's end is seen by the target; 0: not ended */
    uint64_t         reset_ns;    /* the target's end is seen by the source; 0: not */
    uint64_t         storm_ns;    /* no resources until then */
    uint64_t         last_ns;     /* of the latest message */
    sim_message_t   *first, **end;
    unsigned         num_messages;
    sim_place_t      place;       /* of the first one, that comes in parts */
};

static struct {
    unsigned    owner;
    sim_host_t *hosts[SIM_HOSTS_MAX];
    sim_conn_t *conns[SIM_CONNS_MAX];
    unsigned    num_conns;
    unsigned    num_ifaces;
    unsigned    num_syncs;
    uint8_t     wounds[SIM_HOSTS_MAX][SIM_HOSTS_MAX];
} sim_net;

static uct_tl_t sim_tls[5]; /* oneself, messages, copies, devices */
static const uct_tl_t *sim_tl_list[5];

static sim_iface_t *sim_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, sim_iface_t, super);
}

static sim_ep_t *sim_ep(uct_ep_t *ep)
{
    return ucs_container_of(ep, sim_ep_t, super);
}

static uint64_t sim_delay(void)
{
    uint64_t delay_ns = sim_plan.delay_ns + sim_below((sim_plan.delay_ns / 4) + 1);

    if (sim_faults_on && sim_chance(sim_plan.tail)) {
        delay_ns += sim_below(sim_plan.tail_ns + 1);
    }
    return delay_ns;
}

static void *sim_new(size_t size)
{
    void *object = calloc(1, size);

    if (object == NULL) {
        abort();
    }
    return object;
}

/* ---- messages ---- */

/* Where messages of the dead go. */
static sim_message_t *sim_message_void(size_t length)
{
    static uint64_t storage[(sizeof(sim_message_t) + SIM_AM_MAX) / 8];

    ucs_assert_always(length <= SIM_AM_MAX);
    return (sim_message_t *)storage;
}

/* A message at the end of the connection's queue, or NULL: no resources. header: the bytes before
 * its payload if that may come in parts, else 0. */
static sim_message_t *sim_message_add(uct_ep_t *uct_ep, unsigned id, size_t header, size_t length)
{
    sim_conn_t *conn = sim_ep(uct_ep)->conn;
    sim_message_t *message;

    if (sim_iface(uct_ep->iface)->host->is_dead || (conn->reset_ns != 0)) {
        return sim_message_void(length); /* nobody reads them any more */
    }
    ucs_assert_always((conn != NULL) && (length <= ucs_max(sim_plan.am_max, sim_plan.long_max)));
    if (sim_faults_on) {
        if ((sim_now() >= conn->storm_ns) && sim_chance(sim_plan.storm)) {
            conn->storm_ns = sim_now() + sim_below(50 * (sim_plan.delay_ns + 1000));
            sim_event("storm", conn->source->number, conn->target->number, conn->storm_ns);
        }
        if ((sim_now() < conn->storm_ns) || sim_chance(sim_plan.no_resource)) {
            return NULL;
        }
    }
    if (conn->num_messages >= sim_plan.capacity) {
        return NULL;
    }

    message          = sim_new(sizeof(*message) + ucs_align_up(length, 8));
    message->id      = id;
    message->header  = (uint32_t)header;
    message->length  = (uint32_t)length;
    if ((header == 0) || conn->is_self || (uct_ep->iface->am[id].begin == NULL)) {
        header = length;
    }
    sim_parts_draw(&message->parts, ucs_max(conn->last_ns, sim_now() + sim_delay()),
                   length - header);
    conn->last_ns    = sim_parts_last_ns(&message->parts);
    *conn->end       = message;
    conn->end        = &message->next;
    ++conn->num_messages;
    sim_event("message", (conn->source->number << 8) | conn->target->number, id, length);
    return message;
}

static void sim_message_drop(sim_conn_t *conn, sim_message_t **link)
{
    sim_message_t *message = *link;

    *link = message->next;
    if (*link == NULL) {
        conn->end = link;
    }
    --conn->num_messages;
    if (message->lent != NULL) {
        sim_lent_lose(message->lent, conn->reset_ns);
    }
    free(message);
}

static void sim_message_drop_first(sim_conn_t *conn)
{
    sim_message_drop(conn, &conn->first);
}

/* Its sender dies: what has not left it is lost, with all behind it. */
static void sim_conn_cut_off(sim_conn_t *conn)
{
    sim_message_t **link = &conn->first;

    while ((*link != NULL) && ((*link)->lent == NULL)) {
        link = &(*link)->next;
    }
    while (*link != NULL) {
        sim_message_drop(conn, link);
    }
}

/* The message that its sender is still writing, or NULL: that has left off. */
static sim_message_t *sim_conn_written(const sim_conn_t *conn)
{
    sim_message_t *message = (conn->ep != NULL) ? conn->first : NULL;

    while ((message != NULL) && (message->next != NULL)) {
        message = message->next;
    }
    return ((message != NULL) && (sim_parts_last_ns(&message->parts) > sim_now()) &&
            (message->parts.count > 1)) ? message : NULL;
}

static ucs_status_t sim_am_short(uct_ep_t *ep, unsigned id, uint64_t header, const void *payload,
                                 size_t length)
{
    sim_message_t *message = sim_message_add(ep, id, sizeof(header), sizeof(header) + length);

    if (message == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    message->data[0] = header;
    if (length > 0) {
        memcpy(&message->data[1], payload, length);
    }
    return UCS_OK;
}

/* Returns where what follows belongs. */
static char *sim_message_gather(sim_message_t *message, const uct_iov_t *iov, unsigned n)
{
    char *dest = (char *)message->data;
    unsigned i;

    for (i = 0; i < n; dest += iov[i++].length) {
        if (iov[i].length > 0) {
            memcpy(dest, iov[i].buffer, iov[i].length);
        }
    }
    return dest;
}

static ucs_status_t sim_am_short_iov(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n)
{
    sim_message_t *message = sim_message_add(ep, id, (n > 1) ? iov[0].length : 0,
                                             uct_iov_length(iov, n));

    if (message == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    (void)sim_message_gather(message, iov, n);
    return UCS_OK;
}

static ucs_status_t sim_am_bcopy(uct_ep_t *ep, unsigned id, uct_pack_cb_t pack, void *arg,
                                 size_t *length_p)
{
    sim_message_t *message = sim_message_add(ep, id, 0, sim_plan.am_max);
    size_t length;

    if (message == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_assert_always(*length_p <= sim_plan.am_max);
    length = pack(message->data, arg, *length_p);
    ucs_assert_always(length <= *length_p);
    message->length = (uint32_t)length;
    *length_p       = length;
    return UCS_OK;
}

static ucs_status_t sim_am_zcopy(uct_ep_t *ep, unsigned id, const uct_iov_t *iov, unsigned n,
                                 uct_completion_t *comp)
{
    const sim_conn_t *conn = sim_ep(ep)->conn;
    const int is_in_vain   = sim_iface(ep->iface)->host->is_dead || (conn->reset_ns != 0);
    sim_message_t *message = sim_message_add(ep, id, 0, uct_iov_length(iov, n));

    if (message == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (is_in_vain) {
        return UCS_OK;
    }
    sim_lent_start(conn->source->number, &message->lent,
                   sim_message_gather(message, iov, n - 1), &iov[n - 1], comp);
    return UCS_INPROGRESS;
}

/* ---- connections ---- */

static sim_conn_t *sim_conn_new(sim_ep_t *ep, sim_host_t *source, sim_host_t *target)
{
    sim_conn_t *conn = sim_new(sizeof(*conn));

    ucs_assert_always((sim_net.num_conns < SIM_CONNS_MAX) &&
                      (source->num_out < ucs_array_size(source->conns_out)) &&
                      (target->num_in < ucs_array_size(target->conns_in)));
    conn->source                        = source;
    conn->target                        = target;
    conn->ep                            = ep;
    conn->is_self                       = (ep->super.iface->tl->kind == UCT_TL_KIND_SELF);
    conn->end                           = &conn->first;
    source->conns_out[source->num_out++] = sim_net.num_conns;
    target->conns_in[target->num_in++]   = sim_net.num_conns;
    sim_net.conns[sim_net.num_conns++]   = conn;
    ep->conn                             = conn;
    return conn;
}

/* What came by an earlier connection comes before what comes by a later one: transports see to it
 * (uct_mm reads a ring to its end first, uct_ofi knows the later one's serial number). */
static void sim_conn_follow(sim_conn_t *conn)
{
    const sim_conn_t *other;
    unsigned i;

    for (i = 0; i < conn->target->num_in; ++i) {
        other = sim_net.conns[conn->target->conns_in[i]];
        if ((other != conn) && (other->source == conn->source) && !other->is_forgotten) {
            conn->last_ns = ucs_max(conn->last_ns, ucs_max(other->last_ns, other->ends_ns) + 1);
        }
    }
}

static ucs_status_t sim_ep_connect(uct_ep_t *uct_ep)
{
    sim_ep_t *ep       = sim_ep(uct_ep);
    sim_host_t *source = sim_iface(uct_ep->iface)->host;
    sim_host_t *target = sim_net.hosts[ep->peer];
    sim_conn_t *conn;

    if (!target->is_open) {
        sim_event("nobody there", source->number, target->number, 0);
        return UCS_ERR_CONNECTION_RESET;
    }
    if (sim_faults_on && sim_chance(sim_plan.refuse_connection)) {
        sim_event("cannot connect", source->number, target->number, 0);
        sim_net.wounds[source->number][target->number] = 1;
        return UCS_ERR_UNREACHABLE;
    }
    conn = sim_conn_new(ep, source, target);
    sim_conn_follow(conn);
    if (conn->is_self || sim_chance(sim_plan.instant_connect)) {
        conn->state       = SIM_CONN_OPEN;
        conn->is_accepted = 1;
        return UCS_OK;
    }
    conn->state   = SIM_CONN_CALLING;
    conn->time_ns = sim_now() + sim_delay();
    sim_event("connect", source->number, target->number, 0);
    return UCS_INPROGRESS;
}

static void sim_conn_detach(sim_conn_t *conn)
{
    conn->ep->conn = NULL;
    conn->ep       = NULL;
    if (conn->ends_ns == 0) {
        conn->ends_ns = ucs_max(conn->last_ns, sim_now() + sim_delay());
    }
}

static void sim_ep_close(uct_ep_t *uct_ep)
{
    if (sim_ep(uct_ep)->conn != NULL) {
        sim_conn_detach(sim_ep(uct_ep)->conn);
    }
}

static void sim_ep_disconnect(uct_ep_t *uct_ep)
{
    if (uct_ep->iface->tl->kind != UCT_TL_KIND_SELF) { /* as with the real one */
        sim_ep_close(uct_ep);
    }
}

static void sim_conn_cut(sim_conn_t *conn)
{
    if (conn->reset_ns == 0) {
        conn->reset_ns = sim_now() + sim_delay();
    }
}

/* The target has closed or died. */
static void sim_conn_reset(sim_conn_t *conn)
{
    sim_conn_cut(conn);
    while (conn->first != NULL) {
        sim_message_drop_first(conn);
    }
}

/* The bytes may leave in time, or the connection breaks for it. */
static void sim_abandon(uct_ep_t *ep, const uct_completion_t *comp)
{
    sim_conn_t *conn       = sim_ep(ep)->conn;
    sim_message_t *message = ((conn != NULL) && (conn->reset_ns == 0)) ? conn->first : NULL;

    while ((message != NULL) && !sim_lent_is_of(message->lent, comp)) {
        message = message->next;
    }
    if ((message != NULL) && sim_chance(0.5)) {
        sim_event("abandon", conn->source->number, conn->target->number, 0);
        sim_net.wounds[conn->source->number][conn->target->number] = 1;
        sim_conn_cut(conn);
        sim_conn_cut_off(conn);
    }
}

static ucs_status_t sim_ep_check(uct_ep_t *uct_ep)
{
    sim_conn_t *conn = sim_ep(uct_ep)->conn;

    if ((conn != NULL) && !conn->target->is_open) {
        sim_conn_detach(conn);
        uct_ep_set_failed(uct_ep, UCS_ERR_CONNECTION_RESET);
    }
    return UCS_OK;
}

/* Has the source's side of a connection something to see? */
static int sim_conn_source_is_due(const sim_conn_t *conn)
{
    return (conn->ep != NULL) &&
           (((conn->reset_ns != 0) && (conn->reset_ns <= sim_now())) ||
            (((conn->state == SIM_CONN_ANSWERED) || (conn->state == SIM_CONN_REFUSED)) &&
             (conn->time_ns <= sim_now())));
}

static unsigned sim_conn_source_event(sim_conn_t *conn)
{
    uct_ep_t *ep;

    if (!sim_conn_source_is_due(conn)) {
        return 0;
    }
    ep = &conn->ep->super;
    if ((conn->reset_ns != 0) && (conn->reset_ns <= sim_now())) {
        sim_event("reset", conn->source->number, conn->target->number, 0);
        sim_conn_detach(conn);
        uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
        return 1;
    }
    if (conn->state == SIM_CONN_ANSWERED) {
        sim_event("connected", conn->source->number, conn->target->number, 0);
        conn->state = SIM_CONN_OPEN;
        uct_ep_set_live(ep);
        return 1;
    }
    sim_event("refused", conn->source->number, conn->target->number, 0);
    sim_conn_detach(conn);
    uct_ep_set_failed(ep, UCS_ERR_REJECTED);
    return 1;
}

static int sim_host_has_another(const sim_host_t *host, const sim_conn_t *conn)
{
    const sim_conn_t *other;
    unsigned i;

    for (i = 0; i < host->num_in; ++i) {
        other = sim_net.conns[host->conns_in[i]];
        if ((other != conn) && other->is_accepted && !other->is_forgotten &&
            (other->source == conn->source)) {
            return 1;
        }
    }
    return 0;
}

static int sim_conn_is_called(const sim_conn_t *conn)
{
    return (conn->state == SIM_CONN_CALLING) && (conn->ep != NULL) && (conn->time_ns <= sim_now());
}

static int sim_message_is_there(const sim_message_t *message)
{
    return (sim_parts_next_ns(&message->parts) <= sim_now()) && (message->lent == NULL);
}

/* When the target's side has a message, a part of one or the end to see, as far as is known. */
static uint64_t sim_conn_next_ns(const sim_conn_t *conn)
{
    if (conn->is_forgotten || ((conn->first != NULL) && (conn->first->lent != NULL))) {
        return UINT64_MAX;
    }
    if ((conn->first != NULL) && !sim_parts_are_over(&conn->first->parts)) {
        return sim_parts_next_ns(&conn->first->parts);
    }
    return (conn->ends_ns != 0) ? conn->ends_ns : UINT64_MAX;
}

static int sim_conn_has_ended(const sim_conn_t *conn)
{
    return ((conn->first == NULL) || sim_parts_are_over(&conn->first->parts)) &&
           (sim_conn_next_ns(conn) <= sim_now());
}

/* Has the target's side something to see? */
static int sim_conn_target_is_due(const sim_conn_t *conn)
{
    return !conn->is_forgotten &&
           (sim_conn_is_called(conn) || (sim_conn_next_ns(conn) <= sim_now()));
}

/* Takes what is there of the first message. */
static void sim_conn_take(sim_conn_t *conn, uct_iface_t *iface)
{
    sim_message_t *message = conn->first;
    const uint32_t route   = (conn->source->number << 8) | conn->target->number;
    const char *payload    = (const char *)message->data + message->header;
    const size_t length    = message->length - message->header;

    *iface->params.sender = conn->source->uid;
    if (sim_parts_begin(&message->parts) && !conn->is_silenced) {
        sim_event("begins", route, message->id, message->length);
        sim_place_open(&conn->place, iface, message->id, message->data, message->header, length);
    }
    if (!sim_parts_take(&message->parts, &conn->place, conn->target->number, payload, length)) {
        return;
    }
    sim_event("delivered", route, message->id, message->length);
    sim_event_message(message->id, message->data, message->length);
    if (!sim_place_close(&conn->place, iface, UCS_OK) && !conn->is_silenced) {
        uct_iface_deliver(iface, message->id, message->data, message->length);
    }
    sim_message_drop_first(conn); /* its place was taken until now */
}

/* What the target's side sees: a call, messages, the end. */
static unsigned sim_conn_target_event(sim_conn_t *conn, uct_iface_t *iface)
{
    unsigned budget = (unsigned)sim_between(1, 8);
    unsigned count  = 0;

    if (conn->is_forgotten) {
        return 0;
    }
    if (sim_conn_is_called(conn)) {
        conn->time_ns = sim_now() + sim_delay();
        if (sim_faults_on && sim_chance(sim_plan.refuse_connection)) {
            sim_net.wounds[conn->source->number][conn->target->number] = 1;
            conn->state        = SIM_CONN_REFUSED;
            conn->is_forgotten = 1;
            return 1;
        }
        conn->state       = SIM_CONN_ANSWERED;
        conn->is_accepted = 1;
        return 1;
    }
    while ((conn->first != NULL) && sim_message_is_there(conn->first) && (count < budget)) {
        sim_conn_take(conn, iface);
        ++count;
    }
    if (sim_conn_has_ended(conn)) {
        conn->is_forgotten = 1;
        while (conn->first != NULL) {
            sim_message_drop_first(conn);
        }
        (void)sim_place_close(&conn->place, iface, UCS_ERR_CONNECTION_RESET);
        if (conn->is_accepted && (!conn->is_self || conn->is_dropped) &&
            !sim_host_has_another(conn->target, conn)) {
            sim_event("gone", conn->source->number, conn->target->number, 0);
            iface->params.peer_gone(iface->params.arg, conn->source->uid);
        }
        ++count;
    }
    return count;
}

static unsigned sim_progress(uct_iface_t *iface)
{
    sim_host_t *host = sim_iface(iface)->host;
    int is_self      = (iface->tl->kind == UCT_TL_KIND_SELF);
    unsigned count   = 0;
    unsigned n       = host->num_out;
    unsigned first, i;
    sim_conn_t *conn;

    sim_iface(iface)->is_armed = 0;
    if (!is_self) {
        sim_world_turn(host->number);
        n = host->num_out;
    }
    for (i = 0; i < n; ++i) {
        conn   = sim_net.conns[host->conns_out[i]];
        count += (conn->is_self == is_self) ? sim_conn_source_event(conn) : 0;
    }
    if (host->is_dead) {
        return uct_iface_progress_base(iface);
    }
    count += is_self ? 0 : sim_lent_progress(host->number, sim_now());
    n     = host->num_in;
    first = (n > 1) ? (unsigned)sim_below(n) : 0;
    for (i = 0; i < n; ++i) {
        conn   = sim_net.conns[host->conns_in[(first + i) % n]];
        count += (conn->is_self == is_self) ? sim_conn_target_event(conn, iface) : 0;
    }
    return count + uct_iface_progress_base(iface);
}

/* ---- sleep ---- */

static int sim_iface_is_due(const sim_iface_t *iface)
{
    const sim_host_t *host = iface->host;
    int is_self            = (iface->super.tl->kind == UCT_TL_KIND_SELF);
    const sim_conn_t *conn;
    unsigned i;

    for (i = 0; i < host->num_out; ++i) {
        conn = sim_net.conns[host->conns_out[i]];
        if ((conn->is_self == is_self) && sim_conn_source_is_due(conn)) {
            return 1;
        }
    }
    if (!host->is_dead && !is_self && sim_lent_is_due(host->number)) {
        return 1;
    }
    for (i = 0; (i < host->num_in) && !host->is_dead; ++i) {
        conn = sim_net.conns[host->conns_in[i]];
        if ((conn->is_self == is_self) && sim_conn_target_is_due(conn)) {
            return 1;
        }
    }
    return 0;
}

int sim_net_is_woken(const void *iface)
{
    return ((const sim_iface_t *)iface)->is_armed && sim_iface_is_due(iface);
}

static int sim_event_fd(uct_iface_t *iface)
{
    if (sim_iface(iface)->event_fd == 0) {
        sim_iface(iface)->event_fd = sim_tcp_make_event(sim_iface(iface));
    }
    return sim_iface(iface)->event_fd;
}

static ucs_status_t sim_event_arm(uct_iface_t *iface)
{
    if (uct_iface_has_work(iface) || sim_iface_is_due(sim_iface(iface))) {
        return UCS_ERR_BUSY;
    }
    sim_iface(iface)->is_armed = 1;
    return UCS_OK;
}

/* What has been sent is delivered still, unless it is discarded; what comes after is lost. */
static int sim_drop_peer(uct_iface_t *iface, const uint8_t uid[UCT_UID_LEN], int discard)
{
    sim_host_t *host = sim_iface(iface)->host;
    int is_there     = 0;
    sim_conn_t *conn;
    unsigned i;

    for (i = 0; i < host->num_in; ++i) {
        conn = sim_net.conns[host->conns_in[i]];
        if ((conn->is_self != (iface->tl->kind == UCT_TL_KIND_SELF)) ||
            (memcmp(conn->source->uid, uid, UCT_UID_LEN) != 0)) {
            continue;
        }
        conn->is_dropped  = 1;
        conn->is_silenced = conn->is_silenced || discard;
        if (discard && (conn->place.dest != NULL)) {
            sim_parts_stop(&conn->first->parts);
        }
        if (conn->is_accepted && !conn->is_forgotten) {
            is_there = 1;
            if (conn->ends_ns == 0) {
                sim_event("drop", conn->source->number, host->number, 0);
                sim_conn_cut(conn);
                conn->ends_ns = ucs_max(conn->last_ns, sim_now());
            }
        }
    }
    return is_there;
}

/* ---- copies ---- */

static ucs_status_t sim_copy_connect(uct_ep_t *uct_ep)
{
    sim_host_t *source = sim_iface(uct_ep->iface)->host;

    if (!sim_net.hosts[sim_ep(uct_ep)->peer]->is_open ||
        (sim_faults_on && sim_chance(sim_plan.refuse_copy))) {
        sim_event("no copies", source->number, sim_ep(uct_ep)->peer, 0);
        return UCS_ERR_UNREACHABLE;
    }
    return UCS_OK;
}

static ucs_status_t sim_copy(uct_ep_t *uct_ep, const uct_iov_t *iov, unsigned n, uint64_t remote,
                             int is_put)
{
    unsigned peer = sim_ep(uct_ep)->peer;
    unsigned self = sim_iface(uct_ep->iface)->host->number;
    size_t length;
    unsigned i;

    if (!sim_net.hosts[peer]->is_open || !sim_net.hosts[self]->is_open) {
        uct_ep_set_failed(uct_ep, UCS_ERR_CONNECTION_RESET);
        return UCS_ERR_CONNECTION_RESET;
    }
    /* What is the path for messages as well cannot end because of a copy. */
    if ((uct_ep->iface->tl->kind != UCT_TL_KIND_SELF) && sim_faults_on &&
        sim_chance(sim_plan.refuse_copy)) {
        sim_event("copies end", self, peer, (uint64_t)is_put);
        uct_ep_set_failed(uct_ep, UCS_ERR_UNSUPPORTED);
        return UCS_ERR_UNSUPPORTED;
    }
    if (sim_faults_on && sim_chance(sim_plan.fail_copy)) {
        sim_event("copy fails", self, peer, (uint64_t)is_put);
        return UCS_ERR_NO_MEMORY;
    }
    for (i = 0; i < n; ++i) {
        length = iov[i].length;
        if (!sim_world_may_copy(peer, remote, length, is_put)) {
            if (is_put || !sim_plan.has_sync || sim_chance(0.5) ||
                !sim_world_is_given_back(peer, (void *)(uintptr_t)remote, length)) {
                return UCS_ERR_INVALID_ADDR;
            }
            sim_event("get of what is gone", self, peer, length);
            memset(iov[i].buffer, 0xdd, length); /* it has other uses by now */
            return UCS_OK;
        }
        sim_event(is_put ? "put" : "get", self, peer, length);
        memcpy(is_put ? (void *)(uintptr_t)remote : iov[i].buffer,
               is_put ? iov[i].buffer : (void *)(uintptr_t)remote, length);
        remote += length;
        sim_advance((uint64_t)((double)length / sim_plan.copy_bytes_per_ns));
    }
    return UCS_OK;
}

static ucs_status_t sim_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                  uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                  uct_completion_t *comp UCS_UNUSED)
{
    return sim_copy(ep, iov, n, remote_addr, 1);
}

static ucs_status_t sim_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                  uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                  uct_completion_t *comp UCS_UNUSED)
{
    return sim_copy(ep, iov, n, remote_addr, 0);
}

/* ---- words that both sides can claim by ---- */

static ucs_status_t sim_sync_alloc(uct_iface_t *iface, uint32_t *index_p,
                                   ucs_atomic_u64_t **word_p)
{
    sim_host_t *host = sim_iface(iface)->host;
    uint32_t i;

    for (i = 0; i < SIM_SYNC_WORDS; ++i) {
        if (!(host->sync_used & UCS_BIT(i))) {
            host->sync_used |= UCS_BIT(i);
            ++sim_net.num_syncs;
            ucs_atomic_store_relaxed(&host->sync[i], 0);
            *index_p = i;
            *word_p  = &host->sync[i];
            return UCS_OK;
        }
    }
    return UCS_ERR_NO_RESOURCE;
}

static void sim_sync_free(uct_iface_t *iface, uint32_t index)
{
    sim_host_t *host = sim_iface(iface)->host;

    if ((index >= SIM_SYNC_WORDS) || !(host->sync_used & UCS_BIT(index))) {
        sim_fail("worker %u frees the sync word %u that it does not hold", host->number, index);
        return;
    }
    host->sync_used &= ~UCS_BIT(index);
    --sim_net.num_syncs;
}

static ucs_status_t sim_sync_map(uct_ep_t *ep, uint32_t index, ucs_atomic_u64_t **word_p)
{
    if (index >= SIM_SYNC_WORDS) {
        return UCS_ERR_OUT_OF_RANGE;
    }
    *word_p = &sim_net.hosts[sim_ep(ep)->peer]->sync[index];
    return UCS_OK;
}

/* ---- what the transports share ---- */

size_t sim_number_pack(void *buffer, uint32_t number, uint32_t kind)
{
    uint32_t words[2] = {number, kind};

    memcpy(buffer, words, sizeof(words));
    return sizeof(words);
}

ucs_status_t sim_number_unpack(const void *buffer, size_t length, uint32_t kind, uint32_t end,
                               uint32_t *number_p)
{
    uint32_t words[2];

    if (length != sizeof(words)) {
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(words, buffer, sizeof(words));
    if ((words[1] != kind) || (words[0] >= end)) {
        return UCS_ERR_INVALID_PARAM;
    }
    *number_p = words[0];
    return UCS_OK;
}

ucs_status_t sim_rkey_unpack(uct_md_t *md, const void *buffer, size_t length, uint32_t kind,
                             uint32_t end, uct_rkey_t **rkey_p)
{
    sim_rkey_t *rkey;
    uint32_t index;

    if (sim_number_unpack(buffer, length, kind, end, &index) != UCS_OK) {
        return UCS_ERR_INVALID_PARAM;
    }
    rkey = ucs_sys_calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    rkey->super.md = md;
    rkey->index    = index;
    *rkey_p        = &rkey->super;
    return UCS_OK;
}

void sim_rkey_release(uct_rkey_t *rkey)
{
    ucs_sys_free(ucs_container_of(rkey, sim_rkey_t, super));
}

static void sim_memory_used(uct_iface_t *iface, size_t *shared_p, size_t *private_p)
{
    *shared_p  = 0;
    *private_p = iface->tl->iface_size;
}

void sim_tl_init(uct_tl_t *tl, const char *name, uct_tl_kind_t kind, size_t iface_size,
                 size_t ep_size)
{
    memset(tl, 0, sizeof(*tl));
    snprintf(tl->name, sizeof(tl->name), "%s", name);
    tl->help              = "simulated";
    tl->kind              = kind;
    tl->md_size           = sizeof(uct_md_t);
    tl->iface_size        = iface_size;
    tl->ep_size           = ep_size;
    tl->iface.memory_used = sim_memory_used;
}

/* ---- interfaces and endpoints ---- */

static int sim_is_attentive(uct_ep_t *ep UCS_UNUSED)
{
    return sim_chance(sim_plan.attentive);
}

static size_t sim_long_max(uct_ep_t *ep UCS_UNUSED)
{
    return sim_plan.long_max;
}

static ucs_status_t sim_iface_open(uct_iface_t *iface)
{
    sim_host_t *host = sim_net.hosts[sim_net.owner];

    if (host == NULL) {
        host         = sim_new(sizeof(*host));
        host->number = sim_net.owner;
        memcpy(host->uid, iface->params.uid, UCT_UID_LEN);
        sim_net.hosts[sim_net.owner] = host;
    }
    sim_iface(iface)->host = host;
    host->is_open         |= (iface->tl->kind == UCT_TL_KIND_SHM);
    ++sim_net.num_ifaces;
    return UCS_OK;
}

/* Its peers learn that nobody listens any more. */
static void sim_host_leave(sim_host_t *host)
{
    sim_conn_t *conn;
    unsigned i;

    host->is_open = 0;
    for (i = 0; i < host->num_in; ++i) {
        conn               = sim_net.conns[host->conns_in[i]];
        conn->is_forgotten = 1;
        sim_conn_reset(conn);
    }
}

static void sim_iface_close(uct_iface_t *iface)
{
    sim_host_t *host = sim_iface(iface)->host;
    unsigned i;

    if (host == NULL) {
        return;
    }
    if (sim_iface(iface)->event_fd != 0) {
        ucs_sys_close(sim_iface(iface)->event_fd);
    }
    --sim_net.num_ifaces;
    if (iface->tl->kind == UCT_TL_KIND_SHM) {
        (void)sim_lent_progress(host->number, UINT64_MAX);
        for (i = 0; i < host->num_in; ++i) {
            (void)sim_place_close(&sim_net.conns[host->conns_in[i]]->place, iface,
                                  UCS_ERR_CONNECTION_RESET);
        }
    }
    if ((iface->tl->kind == UCT_TL_KIND_SHM) && !host->is_dead) {
        sim_event("iface closes", host->number, 0, 0);
        if (host->sync_used != 0) {
            sim_fail("worker %u keeps sync words 0x%llx", host->number,
                     (unsigned long long)host->sync_used);
        }
        sim_host_leave(host);
    }
    sim_net.num_syncs -= (unsigned)__builtin_popcountll(host->sync_used);
    host->sync_used    = 0;
}

static void sim_limits(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory,
                       uct_limits_t *limits_p)
{
    int is_copy = (op == UCT_OP_PUT_ZCOPY) || (op == UCT_OP_GET_ZCOPY);
    int is_am   = (op == UCT_OP_AM_SHORT) || (op == UCT_OP_AM_BCOPY) ||
                  ((op == UCT_OP_AM_ZCOPY) && (iface->tl->ep.live.am_zcopy != NULL));

    memset(limits_p, 0, sizeof(*limits_p));
    if ((memory != UCS_MEMORY_TYPE_HOST) ||
        !(is_am ? (iface->tl->ep.live.am_short != NULL)
                : is_copy && (((op == UCT_OP_PUT_ZCOPY) ? iface->tl->ep.live.put_zcopy != NULL
                                                        : iface->tl->ep.live.get_zcopy != NULL)))) {
        return;
    }
    limits_p->max          = is_am ? sim_plan.am_max : SIZE_MAX;
    limits_p->min          = (op == UCT_OP_AM_ZCOPY) ? sim_plan.zcopy_min : 0;
    limits_p->iov_max      = 16;
    limits_p->overhead_ns  = is_am ? 50 : 400;
    limits_p->latency_ns   = is_am ? 100 : 0;
    /* In half of the seeds long messages had better go in pieces. */
    limits_p->bytes_per_ns = !is_am ? sim_plan.copy_bytes_per_ns :
                             (sim_plan.copy_bytes_per_ns < 10) ? 20 : 5;
}

static size_t sim_get_address(uct_iface_t *iface, void *buffer)
{
    return sim_number_pack(buffer, sim_iface(iface)->host->number, SIM_PEER);
}

static int sim_is_reachable(uct_iface_t *iface UCS_UNUSED, const void *address UCS_UNUSED,
                            size_t length, int same_node, char reason[UCT_REASON_MAX])
{
    if ((length == SIM_ADDRESS_LEN) && same_node) {
        return 1;
    }
    snprintf(reason, UCT_REASON_MAX, "not of this simulation");
    return 0;
}

static ucs_status_t sim_ep_init(uct_ep_t *ep, const void *address, size_t length)
{
    if ((sim_number_unpack(address, length, SIM_PEER, SIM_HOSTS_MAX, &sim_ep(ep)->peer) !=
         UCS_OK) || (sim_net.hosts[sim_ep(ep)->peer] == NULL)) {
        return UCS_ERR_INVALID_ADDR;
    }
    return UCS_OK;
}

static ucs_status_t sim_flush(uct_ep_t *ep UCS_UNUSED, uct_completion_t *comp UCS_UNUSED)
{
    return UCS_OK;
}

static void sim_tl_base(uct_tl_t *tl, const char *name, uct_tl_kind_t kind)
{
    sim_tl_init(tl, name, kind, sizeof(sim_iface_t), sizeof(sim_ep_t));
    tl->iface.open         = sim_iface_open;
    tl->iface.close        = sim_iface_close;
    tl->iface.limits       = sim_limits;
    tl->iface.get_address  = sim_get_address;
    tl->iface.is_reachable = sim_is_reachable;
    tl->ep.init            = sim_ep_init;
    tl->ep.disconnect      = sim_ep_disconnect;
    tl->ep.close           = sim_ep_close;
    tl->ep.live.check      = sim_ep_check;
}

static void sim_tl_messages(uct_tl_t *tl)
{
    tl->iface.progress       = sim_progress;
    tl->iface.event_fd       = sim_event_fd;
    tl->iface.event_arm      = sim_event_arm;
    tl->iface.drop_peer      = sim_drop_peer;
    tl->ep.connect           = sim_ep_connect;
    tl->ep.live.am_short     = sim_am_short;
    tl->ep.live.am_short_iov = sim_am_short_iov;
    tl->ep.live.am_bcopy     = sim_am_bcopy;
    if ((sim_plan.zcopy_min > 0) && (tl->kind != UCT_TL_KIND_SELF)) {
        tl->ep.live.am_zcopy = sim_am_zcopy;
        tl->ep.live.abandon  = sim_abandon;
    }
    tl->ep.live.flush        = sim_flush;
    if (sim_plan.attentive > 0) {
        tl->ep.live.is_attentive = sim_is_attentive;
    }
    if (sim_plan.long_max > 0) {
        tl->ep.live.long_max = sim_long_max;
    }
    if (sim_plan.has_sync && (tl->kind != UCT_TL_KIND_SELF)) {
        tl->iface.sync_alloc  = sim_sync_alloc;
        tl->iface.sync_free   = sim_sync_free;
        tl->ep.live.sync_map  = sim_sync_map;
    }
}

static void sim_tl_copies(uct_tl_t *tl)
{
    tl->ep.live.put_zcopy = sim_plan.has_put ? sim_put_zcopy : NULL;
    tl->ep.live.get_zcopy = sim_plan.has_get ? sim_get_zcopy : NULL;
}

void sim_net_prepare(void)
{
    sim_tl_base(&sim_tls[0], "self", UCT_TL_KIND_SELF);
    sim_tl_messages(&sim_tls[0]);
    sim_tl_copies(&sim_tls[0]);
    sim_memory_prepare(&sim_tls[0], 1, 0, 0);
    sim_tl_base(&sim_tls[1], "sim", UCT_TL_KIND_SHM);
    sim_tl_messages(&sim_tls[1]);
    sim_memory_prepare(&sim_tls[1], sim_plan.has_map, sim_plan.maps_reg,
                       sim_plan.has_map || sim_plan.maps_reg);
    sim_tl_base(&sim_tls[2], "simcopy", UCT_TL_KIND_COPY);
    sim_tl_copies(&sim_tls[2]);
    sim_memory_prepare(&sim_tls[2], 0, sim_plan.has_reg, 0);
    sim_tls[2].ep.connect = sim_copy_connect;
    sim_tl_list[0] = sim_plan.own_self ? &sim_tls[0] : &uct_self_tl;
    sim_tl_list[1] = &sim_tls[1];
    sim_tl_list[2] = &sim_tls[2];
    sim_devices_prepare(&sim_tls[3], &sim_tls[4]);
    sim_tl_list[3] = &sim_tls[3];
    sim_tl_list[4] = &sim_tls[4];
}

const uct_tl_t *const *uct_tl_list(size_t *count_p)
{
    *count_p = ucs_array_size(sim_tl_list) - ((sim_plan.on_device > 0) ? 0 : 2);
    return sim_tl_list;
}

const uct_tl_t *uct_tl_find(const char *name UCS_UNUSED)
{
    return NULL;
}

/* ---- the node as a whole ---- */

void sim_net_set_owner(unsigned number)
{
    ucs_assert_always(number < SIM_HOSTS_MAX);
    sim_net.owner = number;
}

unsigned sim_net_owner(void)
{
    return sim_net.owner;
}

int sim_net_is_dead(unsigned number)
{
    return (sim_net.hosts[number] != NULL) && sim_net.hosts[number]->is_dead;
}

int sim_net_is_open(unsigned number)
{
    return (sim_net.hosts[number] != NULL) && sim_net.hosts[number]->is_open;
}

int sim_net_is_writing(unsigned number)
{
    const sim_host_t *host = sim_net.hosts[number];
    unsigned i;

    for (i = 0; (host != NULL) && (i < host->num_out); ++i) {
        if (sim_conn_written(sim_net.conns[host->conns_out[i]]) != NULL) {
            return 1;
        }
    }
    return 0;
}

void sim_net_kill(unsigned number)
{
    sim_host_t *host = sim_net.hosts[number];
    sim_message_t *message;
    sim_conn_t *conn;
    unsigned i;

    if (host == NULL) {
        return; /* no interface of its opened */
    }
    host->is_dead = 1;
    sim_tcp_kill(number);
    for (i = 0; i < host->num_out; ++i) {
        conn = sim_net.conns[host->conns_out[i]];
        sim_conn_cut_off(conn);
        message = sim_conn_written(conn);
        if (message != NULL) {
            sim_parts_cut(&message->parts);
        }
        if (conn->ep != NULL) {
            sim_conn_detach(conn);
        }
    }
    sim_host_leave(host);
}

uint64_t sim_net_next_ns(void)
{
    uint64_t next_ns = ucs_min(ucs_min(sim_tcp_next_ns(), sim_devices_next_ns()),
                               sim_lent_next_ns());
    sim_conn_t *conn;
    unsigned i;

    for (i = 0; i < sim_net.num_conns; ++i) {
        conn = sim_net.conns[i];
        next_ns = ucs_min(next_ns, sim_conn_next_ns(conn));
        if (conn->ep != NULL) {
            if (conn->reset_ns != 0) {
                next_ns = ucs_min(next_ns, conn->reset_ns);
            } else if (conn->state != SIM_CONN_OPEN) {
                next_ns = ucs_min(next_ns, conn->time_ns);
            }
        }
    }
    return next_ns;
}

int sim_net_is_wounded(unsigned from, unsigned to)
{
    return sim_net.wounds[from][to] || sim_net.wounds[to][from];
}

void sim_net_check_end(void)
{
    if (sim_net.num_ifaces != 0) {
        sim_fail("%u interfaces are still open", sim_net.num_ifaces);
    }
    if (sim_net.num_syncs != 0) {
        sim_fail("%u sync words are still held", sim_net.num_syncs);
    }
    sim_devices_check_end();
    sim_lent_check_end();
}

void sim_net_reset(void)
{
    unsigned i;

    for (i = 0; i < sim_net.num_conns; ++i) {
        while (sim_net.conns[i]->first != NULL) {
            sim_message_drop_first(sim_net.conns[i]);
        }
        free(sim_net.conns[i]);
    }
    for (i = 0; i < SIM_HOSTS_MAX; ++i) {
        free(sim_net.hosts[i]);
    }
    memset(&sim_net, 0, sizeof(sim_net));
}
