/* Halyard: a transport by itself: active messages, puts and gets as ucp calls them, without it.
 *
 * Each side opens the interface of the transport that -x names, and both connect with what the
 * channel carries. Memory that the transport makes known by mapping is put to and got
 * from by the processor, as ucp does it; -D zcopy has the transport copy.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"

#include <stdlib.h>
#include <string.h>
#include <ucs/sys/sys.h>
#include <uct/api/uct_tl.h>

#define AM_DATA_ID  1
#define AM_ACK_ID   2
#define COMPLETIONS (2 * PERF_WINDOW_MAX) /* more than are ever under way */
#define ADDRESS_MAX 255

typedef struct {
    uct_completion_t super;
    perf_lane_t     *lane;
} perf_uct_completion_t;

typedef struct perf_uct {
    const uct_tl_t       *tl;
    void                 *config;
    uct_md_t             *md;
    uct_iface_t          *iface;
    uct_ep_t             *ep;
    uct_mem_t            *mem[2];  /* the send buffer, and what the peer puts to or gets from */
    uint8_t              *buffer;  /* the lane's own receive buffer, where mem[1] is in its place */
    uct_rkey_t           *rkey;
    uint64_t              remote;
    unsigned              next;
    perf_uct_completion_t completions[COMPLETIONS];
} perf_uct_t;

/* What the sides tell each other. */
typedef struct {
    uint8_t  uid[UCT_UID_LEN];
    uint64_t node;
    uint64_t buffer;
    uint32_t length;
    uint32_t rkey_length; /* 0: the memory needs none */
    uint8_t  address[ADDRESS_MAX + 1];
    uint8_t  rkey[UCT_RKEY_MAX];
} perf_uct_hello_t;

static perf_uct_t *uct_of(perf_lane_t *lane)
{
    return lane->bare;
}

static unsigned uct_progress(perf_lane_t *lane)
{
    return uct_iface_progress(uct_of(lane)->iface);
}

/* ---- what comes ---- */

static void uct_on_data(void *arg, const void *data, size_t length)
{
    perf_lane_t *lane = arg;
    uint8_t *place;

    if (lane->params->flags & PERF_FLAG_VALIDATE) {
        place = perf_message_place(lane, length);
        if (place == NULL) {
            return;
        }
        memcpy(place, data, length);
    }
    ++lane->recv_done;
}

static void uct_on_ack(void *arg, const void *data, size_t length)
{
    perf_lane_t *lane = arg;

    (void)data;
    (void)length;
    ++lane->recv_done;
}

static void uct_on_failed(void *arg, uct_ep_t *ep, ucs_status_t status)
{
    (void)ep;
    perf_lane_fail(arg, status, "the endpoint failed");
}

static void uct_on_completion(uct_completion_t *self)
{
    perf_uct_completion_t *comp = (perf_uct_completion_t *)self;

    if (self->status != UCS_OK) {
        perf_lane_fail(comp->lane, self->status, "an operation's end");
    }
    ++comp->lane->send_done;
}

/* ---- operations ---- */

/* For the next operation, which takes it if it returns UCS_INPROGRESS. */
static uct_completion_t *uct_completion(perf_lane_t *lane)
{
    perf_uct_completion_t *comp = &uct_of(lane)->completions[uct_of(lane)->next % COMPLETIONS];

    comp->super = (uct_completion_t) {uct_on_completion, 1, UCS_OK};
    comp->lane  = lane;
    return &comp->super;
}

static size_t uct_pack(void *dest, void *arg, size_t max)
{
    const uct_iov_t *iov = arg;
    const size_t size    = (iov->length < max) ? iov->length : max;

    memcpy(dest, iov->buffer, size);
    return size;
}

static ucs_status_t uct_send_once(perf_lane_t *lane, unsigned id, uint8_t *buffer, size_t size)
{
    uct_ep_t *ep  = uct_of(lane)->ep;
    uct_iov_t iov = {buffer, size, uct_of(lane)->mem[0]};
    uint64_t header;

    if ((lane->params->way == PERF_UCT_BCOPY) && (id == AM_DATA_ID)) {
        return ep->ops->am_bcopy(ep, id, uct_pack, &iov, &size);
    }
    if ((lane->params->way == PERF_UCT_ZCOPY) && (id == AM_DATA_ID)) {
        return ep->ops->am_zcopy(ep, id, &iov, 1, uct_completion(lane));
    }
    if (size < sizeof(header)) {
        return ep->ops->am_short_iov(ep, id, &iov, 1);
    }
    memcpy(&header, buffer, sizeof(header));
    return ep->ops->am_short(ep, id, header, buffer + sizeof(header), size - sizeof(header));
}

/* Is the operation to be tried again, as it has found no room? With a completion it ends later. */
PERF_INLINE int uct_again(perf_lane_t *lane, ucs_status_t status, const char *what, unsigned *spins)
{
    if (status == UCS_ERR_NO_RESOURCE) {
        return perf_lane_turn(lane, spins) == UCS_OK;
    }
    if (status == UCS_INPROGRESS) {
        ++uct_of(lane)->next;
        ++lane->send_posted;
    } else if (status != UCS_OK) {
        perf_lane_fail(lane, status, what);
    }
    return 0;
}

static void uct_send(perf_lane_t *lane, const perf_layout_t *layout)
{
    unsigned spins = 0;

    while (uct_again(lane, uct_send_once(lane, AM_DATA_ID, layout->buffer, layout->count),
                     "a message", &spins)) {
    }
}

static void uct_ack(perf_lane_t *lane)
{
    unsigned spins = 0;

    while (uct_again(lane, uct_send_once(lane, AM_ACK_ID, lane->send_buffer, 8),
                     "an acknowledgement", &spins)) {
    }
}

static const perf_flow_t uct_flow = {uct_send, perf_post_none, uct_ack, perf_post_ack_none};

PERF_DEFINE_FLOW(uct_am, uct_flow)

static ucs_status_t uct_move_once(perf_lane_t *lane, size_t size, int is_put)
{
    perf_uct_t *uct = uct_of(lane);
    uct_iov_t iov   = {lane->send_buffer, size, uct->mem[0]};
    ucs_status_t status;
    void *ptr;

    if (lane->params->way == PERF_UCT_ZCOPY) {
        return (is_put ? uct->ep->ops->put_zcopy : uct->ep->ops->get_zcopy)(
                uct->ep, &iov, 1, uct->remote, uct->rkey, uct_completion(lane));
    }
    status = uct->tl->md.rkey_ptr(uct->rkey, uct->remote, size, &ptr);
    if (status == UCS_OK) {
        memcpy(is_put ? ptr : lane->send_buffer, is_put ? lane->send_buffer : ptr, size);
    }
    return status;
}

static void uct_put(perf_lane_t *lane, size_t size)
{
    unsigned spins = 0;

    while (uct_again(lane, uct_move_once(lane, size, 1), "a put", &spins)) {
    }
}

static void uct_get(perf_lane_t *lane, size_t size)
{
    unsigned spins = 0;

    while (uct_again(lane, uct_move_once(lane, size, 0), "a get", &spins)) {
    }
}

ucs_status_t perf_uct_put_latency(perf_lane_t *lane, const perf_step_t *step, perf_time_t *time_p)
{
    return perf_put_pingpong(lane, step, time_p, uct_put);
}

/* A put by the processor is in the peer's memory, and what has a completion is there when that
 * comes. */
PERF_DEFINE_ONE_SIDED(uct_put, uct_put, perf_lane_wait_sent)
PERF_DEFINE_ONE_SIDED(uct_get, uct_get, perf_lane_wait_sent)

/* ---- opening ---- */

/* Why the transport cannot do what the test wants; NULL: it can. */
static const char *uct_lacks(perf_lane_t *lane, int is_one_sided)
{
    const uct_ep_ops_t *ops = &uct_of(lane)->tl->ep.live;

    if (is_one_sided) {
        return (((lane->params->way == PERF_UCT_ZCOPY) && (ops->put_zcopy != NULL) &&
                 (ops->get_zcopy != NULL)) ||
                ((lane->params->way == PERF_UCT_SHORT) &&
                 (uct_of(lane)->tl->md.rkey_ptr != NULL))) ? NULL :
               "the transport has no such puts and gets (-D short: on mapped memory, or zcopy)";
    }
    return ((ops->am_short == NULL) ||
            ((lane->params->way == PERF_UCT_BCOPY) && (ops->am_bcopy == NULL)) ||
            ((lane->params->way == PERF_UCT_ZCOPY) && (ops->am_zcopy == NULL))) ?
           "the transport has no such messages (-D)" : NULL;
}

/* The longest of the test's messages. */
static size_t uct_message_max(perf_lane_t *lane)
{
    static const uct_op_t ops[] = {[PERF_UCT_SHORT] = UCT_OP_AM_SHORT,
                                   [PERF_UCT_BCOPY] = UCT_OP_AM_BCOPY,
                                   [PERF_UCT_ZCOPY] = UCT_OP_AM_ZCOPY};
    perf_uct_t *uct = lane->bare;
    uct_ep_t *ep    = uct->ep;
    uct_limits_t limits;
    size_t longest;

    uct->tl->iface.limits(uct->iface, ops[lane->params->way], UCS_MEMORY_TYPE_HOST, &limits);
    longest = ((lane->params->way == PERF_UCT_SHORT) && (ep->ops->long_max != NULL)) ?
              ep->ops->long_max(ep) : 0;
    return (longest > limits.max) ? longest : limits.max;
}

static ucs_status_t uct_open_objects(perf_lane_t *lane, int is_one_sided)
{
    perf_uct_t *uct           = uct_of(lane);
    const uct_md_ops_t *md    = &uct->tl->md;
    uct_iface_params_t params = {.ep_failed = uct_on_failed, .arg = lane};
    uint64_t random[2]        = {ucs_sys_random64(), ucs_sys_random64()};
    const size_t span         = lane->params->span;
    ucs_status_t status;

    memcpy(params.uid, random, sizeof(params.uid));
    status = uct_config_read(uct->tl, NULL, &uct->config);
    status = (status == UCS_OK) ? uct_md_open(uct->tl, uct->config, &uct->md) : status;
    status = (status == UCS_OK) ? uct_iface_open(uct->md, &params, &uct->iface) : status;
    if (status != UCS_OK) {
        return status;
    }
    uct_iface_set_am(uct->iface, AM_DATA_ID, uct_on_data, lane, UCT_AM_IN_PLACE);
    uct_iface_set_am(uct->iface, AM_ACK_ID, uct_on_ack, lane, UCT_AM_IN_PLACE);
    if ((md->reg != NULL) && (lane->params->way == PERF_UCT_ZCOPY)) {
        status = md->reg(uct->md, lane->send_buffer, span, NULL, &uct->mem[0]);
    }
    if (!is_one_sided || (status != UCS_OK)) {
        return status;
    }
    if (md->alloc != NULL) {
        status = md->alloc(uct->md, NULL, span, 0, &uct->mem[1]);
    } else if (md->reg != NULL) {
        status = md->reg(uct->md, lane->recv_buffer, span, NULL, &uct->mem[1]);
    }
    if ((status == UCS_OK) && (uct->mem[1] != NULL)) {
        uct->mem[1]->uid  = uct->iface->params.uid;
        uct->buffer       = lane->recv_buffer;
        lane->recv_buffer = uct->mem[1]->address;
        memset(lane->recv_buffer, 0, span);
    }
    return status;
}

/* Tells the other side where we are, and learns where it is. */
static ucs_status_t uct_exchange(perf_lane_t *lane, perf_uct_hello_t *theirs)
{
    perf_uct_t *uct       = lane->bare;
    perf_uct_hello_t mine = {.node = ucs_sys_node_id(), .buffer = (uintptr_t)lane->recv_buffer};

    memcpy(mine.uid, uct->iface->params.uid, sizeof(mine.uid));
    mine.length = (uint32_t)uct->tl->iface.get_address(uct->iface, mine.address);
    if ((uct->mem[1] != NULL) && (uct->tl->md.rkey_pack != NULL)) {
        mine.rkey_length = (uint32_t)uct->tl->md.rkey_pack(uct->mem[1], mine.rkey);
    }
    if ((perf_oob_send(lane->channel, PERF_OOB_ADDRESS, &mine, sizeof(mine)) != 0) ||
        (perf_oob_recv(lane->channel, PERF_OOB_ADDRESS, theirs, sizeof(*theirs)) != 0)) {
        return UCS_ERR_CONNECTION_RESET;
    }
    return ((theirs->length == 0) || (theirs->length > ADDRESS_MAX) ||
            (theirs->rkey_length > ((uct->tl->md.rkey_unpack != NULL) ? UCT_RKEY_MAX : 0))) ?
           UCS_ERR_INVALID_PARAM : UCS_OK;
}

static ucs_status_t uct_connect(perf_lane_t *lane, const perf_uct_hello_t *peer,
                                int needs_rkey)
{
    perf_uct_t *uct = lane->bare;
    char reason[UCT_REASON_MAX];
    unsigned spins = 0;
    ucs_status_t status;

    if (!uct->tl->iface.is_reachable(uct->iface, peer->address, peer->length,
                                     peer->node == ucs_sys_node_id(), reason)) {
        return perf_lane_fail(lane, UCS_ERR_UNREACHABLE, reason);
    }
    status = uct_ep_open(uct->iface, peer->uid, peer->address, peer->length, NULL, &uct->ep);
    if (status == UCS_OK) {
        uct->remote = peer->buffer;
        status = (peer->rkey_length > 0) ?
                 uct->tl->md.rkey_unpack(uct->md, peer->rkey, peer->rkey_length, &uct->rkey) :
                 needs_rkey ? UCS_ERR_UNREACHABLE : UCS_OK;
    }
    if (status == UCS_OK) {
        status = uct_ep_connect(uct->ep);
    }
    if ((status != UCS_OK) && (status != UCS_INPROGRESS)) {
        return status;
    }
    while ((uct->ep->state != UCT_EP_LIVE) && (perf_lane_turn(lane, &spins) == UCS_OK)) {
    }
    return lane->status;
}

static void uct_close(perf_lane_t *lane)
{
    perf_uct_t *uct = lane->bare;
    unsigned i;

    if (uct->ep != NULL) {
        uct_ep_close(uct->ep);
    }
    if (uct->rkey != NULL) {
        uct->tl->md.rkey_release(uct->rkey);
    }
    if (uct->iface != NULL) {
        uct_iface_close(uct->iface);
    }
    for (i = 0; i < 2; ++i) {
        if (uct->mem[i] != NULL) {
            uct->tl->md.release(uct->mem[i]);
        }
    }
    if (uct->buffer != NULL) {
        lane->recv_buffer = uct->buffer;
    }
    if (uct->md != NULL) {
        uct_md_close(uct->md);
    }
    if (uct->tl != NULL) {
        uct_config_release(uct->tl, uct->config);
    }
    free(uct);
}

ucs_status_t perf_uct_open(perf_lane_t *lane, const perf_op_t *op)
{
    const int is_one_sided = (op->run != perf_uct_am_latency) && (op->run != perf_uct_am_stream);
    perf_uct_t *uct        = calloc(1, sizeof(*uct));
    perf_uct_hello_t peer;
    const char *lack;
    ucs_status_t status;

    if (uct == NULL) {
        return perf_lane_fail(lane, UCS_ERR_NO_MEMORY, "completions");
    }
    lane->bare     = uct;
    lane->progress = uct_progress;
    lane->close    = uct_close;
    uct->tl        = uct_tl_find(lane->params->transport);
    if ((uct->tl == NULL) || (uct->tl->iface.get_address == NULL)) {
        return perf_lane_fail(lane, UCS_ERR_NO_DEVICE, "-x: there is no such transport with peers "
                                                       "(ucx_info -d)");
    }
    lack = uct_lacks(lane, is_one_sided);
    if (lack != NULL) {
        return perf_lane_fail(lane, UCS_ERR_UNSUPPORTED, lack);
    }
    status = uct_open_objects(lane, is_one_sided);
    status = (status == UCS_OK) ? uct_exchange(lane, &peer) : status;
    status = (status == UCS_OK) ?
             uct_connect(lane, &peer, is_one_sided && (lane->params->way == PERF_UCT_SHORT)) :
             status;
    if (status != UCS_OK) {
        return perf_lane_fail(lane, status, "opening the transport");
    }
    return (is_one_sided || (lane->params->max_size <= uct_message_max(lane))) ? UCS_OK :
           perf_lane_fail(lane, UCS_ERR_EXCEEDS_LIMIT,
                          "the transport has no messages of this length (-D)");
}
