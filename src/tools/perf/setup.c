/* Halyard: what a test needs of the library: context, worker, endpoint, buffers, for each lane.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

#define SPINS_POLLING (1u << 14)
#define SPINS_CROWDED 64
#define CLOSE_MAX_NS  5e9
#define ADDRESS_TAIL  512 /* zeros behind what the library is not told the end of */

/* Head of PERF_OOB_ADDRESS; the worker address and the packed key follow. */
typedef struct address_head {
    uint32_t address_length;
    uint32_t rkey_length;
    uint64_t remote_address;
} address_head_t;

_Static_assert(sizeof(address_head_t) == 16, "the head is on the wire");

static int is_one_sided(const perf_session_t *session)
{
    return (session->op->features & UCP_FEATURE_RMA) != 0;
}

/* Forces the protocol of a variant. */
static ucs_status_t modify_config(ucp_config_t *config, const perf_variant_t *variant)
{
    ucs_status_t status = ucp_config_modify(config, "RNDV_THRESH", variant->thresh);

    return (status == UCS_OK) ? ucp_config_modify(config, "RNDV_SCHEME", variant->scheme) : status;
}

int perf_setup_context(perf_session_t *session, unsigned index)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS};
    ucp_config_t *config;
    ucs_status_t status;

    params.features          = session->op->features;
    params.mt_workers_shared = session->params.threads > 1;
    params.estimated_num_eps = session->params.threads;
    if (session->params.flags & (PERF_FLAG_SLEEP | PERF_FLAG_WAKEUP)) {
        params.features |= UCP_FEATURE_WAKEUP;
    }
    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return perf_session_fail(session, status, "ucp_config_read");
    }
    status = (index == PERF_VARIANT_AUTO) ? UCS_OK :
                                            modify_config(config, &perf_variants[index]);
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &session->contexts[index]);
    }
    ucp_config_release(config);
    if (status != UCS_OK) {
        session->contexts[index] = NULL;
        return perf_session_fail(session, status, "ucp_init%s%s",
                                 (index == PERF_VARIANT_AUTO) ? "" : " with only protocol ",
                                 (index == PERF_VARIANT_AUTO) ? "" : perf_variants[index].name);
    }
    return 0;
}

static int create_worker(perf_session_t *session, perf_lane_t *lane)
{
    ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = (ucs_thread_mode_t)session->params.thread_mode};
    ucs_status_t status;

    status = ucp_worker_create(lane->context, &params, &lane->worker);
    if (status != UCS_OK) {
        lane->worker = NULL;
        return perf_session_fail(session, status, "ucp_worker_create");
    }
    if (session->params.flags & PERF_FLAG_SLEEP) {
        status = ucp_worker_get_efd(lane->worker, &lane->event_fd);
        if (status != UCS_OK) {
            lane->event_fd = -1;
            return perf_session_fail(session, status, "ucp_worker_get_efd (-E sleep)");
        }
    }
    return 0;
}

static perf_memory_t own_memory(const perf_session_t *session)
{
    return (perf_memory_t)session->params.memory[!session->leader];
}

/* Memory of this side's kind, touched. */
static int make_buffer(perf_session_t *session, uint8_t **buffer_p)
{
    const uint64_t size = session->params.span;

    *buffer_p = perf_memory_alloc(&session->device, own_memory(session), size);
    if ((*buffer_p == NULL) || (perf_memory_set(&session->device, own_memory(session), *buffer_p,
                                                0x5a, size) != 0)) {
        return perf_session_fail(session, UCS_ERR_NO_MEMORY, "a buffer of %llu bytes of %s: %s",
                                 (unsigned long long)size, perf_memory_names[own_memory(session)],
                                 session->device.problem);
    }
    return 0;
}

/* Registers memory of the tool's (buffer given), or has the library allocate some, as programs that
 * care do for memory of the host that a peer accesses. */
static int map_memory(perf_session_t *session, perf_lane_t *lane, void *buffer, ucp_mem_h *memh_p)
{
    const int nonblock          = (session->params.flags & PERF_FLAG_NONBLOCK) != 0;
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length     = session->params.span,
                                   .address    = buffer,
                                   .flags      = nonblock ? UCP_MEM_MAP_NONBLOCK : 0};
    ucs_status_t status;

    if (buffer == NULL) {
        params.flags |= UCP_MEM_MAP_ALLOCATE;
    }
    status = ucp_mem_map(lane->context, &params, memh_p);
    if (status != UCS_OK) {
        *memh_p = NULL;
        return perf_session_fail(session, status, "ucp_mem_map");
    }
    return 0;
}

static int allocate_remote(perf_session_t *session, perf_lane_t *lane)
{
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucs_status_t status;

    if (own_memory(session) != PERF_MEMORY_HOST) {
        return (make_buffer(session, &lane->recv_buffer) != 0) ? -1 :
               map_memory(session, lane, lane->recv_buffer, &lane->recv_memh);
    }
    if (map_memory(session, lane, NULL, &lane->recv_memh) != 0) {
        return -1;
    }
    status = ucp_mem_query(lane->recv_memh, &attributes);
    if (status != UCS_OK) {
        return perf_session_fail(session, status, "ucp_mem_query");
    }
    lane->recv_buffer = attributes.address;
    memset(lane->recv_buffer, 0, session->params.span);
    return 0;
}

/* -z: registers what is not yet, and passes the handles. */
static int register_buffers(perf_session_t *session, perf_lane_t *lane)
{
    if (!(session->params.flags & PERF_FLAG_MEMH) || (lane->context == NULL)) {
        return 0;
    }
    if ((map_memory(session, lane, lane->send_buffer, &lane->send_memh) != 0) ||
        ((lane->recv_memh == NULL) &&
         (map_memory(session, lane, lane->recv_buffer, &lane->recv_memh) != 0))) {
        return -1;
    }
    lane->send_param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    lane->send_param.memh          = lane->send_memh;
    lane->recv_param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    lane->recv_param.memh          = lane->recv_memh;
    return 0;
}

static int create_buffers(perf_session_t *session, perf_lane_t *lane)
{
    const perf_params_t *params = &session->params;
    const perf_lane_t *first    = &session->lanes[lane->index % params->threads];

    if (lane != first) { /* variants run one at a time, in the same memory */
        lane->send_buffer = first->send_buffer;
        lane->recv_buffer = first->recv_buffer;
        lane->mirror      = first->mirror;
        lane->layouts     = first->layouts;
        lane->am_header   = first->am_header;
        lane->samples     = first->samples;
        return 0;
    }
    if (make_buffer(session, &lane->send_buffer) != 0) {
        return -1;
    }
    if (!perf_memory_is_host(own_memory(session))) {
        lane->mirror = malloc(params->max_size + PERF_GUARD_AND_REPLY);
    }
    lane->layouts     = calloc(2 * params->window, sizeof(*lane->layouts));
    lane->am_header   = calloc(1, params->am_header + 1);
    if (session->leader) {
        lane->samples = malloc(PERF_SAMPLES_MAX * sizeof(*lane->samples));
    }
    if ((lane->layouts == NULL) || (lane->am_header == NULL) ||
        (session->leader && (lane->samples == NULL)) ||
        (!perf_memory_is_host(own_memory(session)) && (lane->mirror == NULL))) {
        return perf_session_fail(session, UCS_ERR_NO_MEMORY, "what a lane needs");
    }
    return is_one_sided(session) ? allocate_remote(session, lane) :
                                   make_buffer(session, &lane->recv_buffer);
}

/* Everything that a call needs besides buffer and length, prepared once. */
static void prepare_params(perf_session_t *session, perf_lane_t *lane)
{
    const uint32_t flags = session->params.flags;

    lane->send_param = (ucp_request_param_t) {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send      = perf_lane_send_cb,
        .user_data    = lane};
    lane->recv_param         = lane->send_param;
    lane->recv_param.cb.recv = perf_lane_recv_cb;
    lane->ack_param          = lane->send_param;
    lane->ack_recv_param     = lane->recv_param;
    lane->recv_mask          = (flags & PERF_FLAG_WILDCARD) ? 0 : UINT64_MAX;
    if (flags & PERF_FLAG_SEND_IOV) {
        lane->send_param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        lane->send_param.datatype      = ucp_dt_make_iov();
    }
    if (flags & PERF_FLAG_RECV_IOV) {
        lane->recv_param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        lane->recv_param.datatype      = ucp_dt_make_iov();
    }
}

/* 1 if threads that poll may keep others of the test from running. */
static int has_too_few_processors(const perf_session_t *session)
{
    int allowed = perf_pin_allowed();
    int threads = (int)session->params.threads;

    if (session->shared == NULL) {
        return (threads > allowed) || ((session->cpu_count == 0) && (allowed == 1));
    }
    return (threads > 1) ? (2 * threads > allowed) :
                           (session->shared->cpus[0] == session->shared->cpus[1]);
}

int perf_setup_worker(perf_session_t *session, unsigned index, ucp_context_h context)
{
    const int is_crowded = has_too_few_processors(session);
    perf_lane_t *lane    = &session->lanes[index];

    lane->index    = index;
    lane->context  = context;
    lane->leader   = session->leader;
    lane->params   = &session->params;
    lane->shared   = session->shared;
    lane->device   = &session->device;
    lane->channel  = (index % session->params.threads == 0) ? &session->channel : NULL;
    lane->stop     = &session->stop;
    lane->event_fd = -1;
    /* Where nothing is bound, the scheduler may put both sides on one processor for a while. */
    lane->yield    = is_crowded || ((session->shared == NULL) && (session->cpu_count == 0));
    prepare_params(session, lane);
    if ((context != NULL) && (create_worker(session, lane) != 0)) {
        return -1;
    }
    lane->spin_max = (lane->event_fd >= 0) ? 1 : is_crowded ? SPINS_CROWDED : SPINS_POLLING;
    return 0;
}

static int create_lane(perf_session_t *session, unsigned index)
{
    perf_lane_t *lane = &session->lanes[index];

    return ((perf_setup_worker(session, index,
                               session->contexts[index / session->params.threads]) == 0) &&
            (create_buffers(session, lane) == 0)) ? register_buffers(session, lane) : -1;
}

int perf_setup_lanes(perf_session_t *session, unsigned count)
{
    session->lanes = aligned_alloc(_Alignof(perf_lane_t), count * sizeof(perf_lane_t));
    if (session->lanes == NULL) {
        return perf_session_fail(session, UCS_ERR_NO_MEMORY, "lanes");
    }
    memset(session->lanes, 0, count * sizeof(perf_lane_t));
    session->lane_count = count;
    return 0;
}

int perf_setup_create(perf_session_t *session)
{
    const unsigned lanes = session->params.threads * session->params.variants;
    unsigned i;

    if ((perf_setup_device(session) != 0) || (perf_setup_lanes(session, lanes) != 0)) {
        return -1;
    }
    for (i = 0; (session->op->features != 0) && (i < session->params.variants); ++i) {
        if (perf_setup_context(session, i) != 0) {
            return -1;
        }
    }
    for (i = 0; i < lanes; ++i) {
        if (create_lane(session, i) != 0) {
            return -1;
        }
    }
    return 0;
}

int perf_setup_send_address(perf_session_t *session, perf_lane_t *lane)
{
    address_head_t head = {.remote_address = (uintptr_t)lane->recv_buffer};
    void *rkey          = NULL;
    size_t rkey_length  = 0, address_length;
    ucp_address_t *address;
    ucs_status_t status;
    int result;

    if (is_one_sided(session)) {
        status = ucp_rkey_pack(lane->context, lane->recv_memh, &rkey, &rkey_length);
        if (status != UCS_OK) {
            return perf_session_fail(session, status, "ucp_rkey_pack");
        }
    }
    status = ucp_worker_get_address(lane->worker, &address, &address_length);
    if (status == UCS_OK) {
        head.address_length = (uint32_t)address_length;
        head.rkey_length    = (uint32_t)rkey_length;
        result              = perf_oob_send_parts(&session->channel, PERF_OOB_ADDRESS,
                                                  (const struct iovec[]) {{&head, sizeof(head)},
                                                                          {address, address_length},
                                                                          {rkey, rkey_length}},
                                                  3);
        ucp_worker_release_address(lane->worker, address);
    } else {
        result = perf_session_fail(session, status, "ucp_worker_get_address");
    }
    if (rkey != NULL) {
        ucp_rkey_buffer_release(rkey);
    }
    return result;
}

/* The library tells that the peer is lost (not with -e none). */
static void on_endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    perf_lane_fail(arg, status, (status == UCS_ERR_CONNECTION_RESET) ? "the peer process is gone" :
                                                                      "the endpoint failed");
}

uint8_t *perf_setup_recv_address(perf_session_t *session, size_t *address_length_p)
{
    uint8_t *message = malloc(PERF_OOB_PAYLOAD_MAX + ADDRESS_TAIL);
    size_t length    = 0;
    address_head_t head;
    int type;

    if (message == NULL) {
        perf_session_fail(session, UCS_ERR_NO_MEMORY, "worker address");
        return NULL;
    }
    type = perf_oob_recv_any(&session->channel, message, PERF_OOB_PAYLOAD_MAX, &length);
    memcpy(&head, message, sizeof(head));
    if ((type != PERF_OOB_ADDRESS) || (length < sizeof(head)) || (head.address_length == 0) ||
        ((uint64_t)head.address_length + head.rkey_length != length - sizeof(head))) {
        if (type >= 0) {
            perf_session_fail(session, UCS_ERR_INVALID_PARAM, "the peer's worker address");
        }
        free(message);
        return NULL;
    }
    memset(message + length, 0, ADDRESS_TAIL);
    *address_length_p = head.address_length;
    return message;
}

int perf_setup_endpoint(perf_session_t *session, perf_lane_t *lane, const uint8_t *message)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = UCP_ERR_HANDLING_MODE_NONE};
    address_head_t head;
    ucs_status_t status;

    memcpy(&head, message, sizeof(head));
    params.address = (const ucp_address_t*)(message + sizeof(head));
    if (session->params.flags & PERF_FLAG_ERR_PEER) {
        params.field_mask      |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode         = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb   = on_endpoint_error;
        params.err_handler.arg  = lane;
    }
    status = ucp_ep_create(lane->worker, &params, &lane->ep);
    if (status != UCS_OK) {
        lane->ep = NULL;
        return perf_session_fail(session, status, "ucp_ep_create");
    }
    if (is_one_sided(session)) {
        status = ucp_ep_rkey_unpack(lane->ep, message + sizeof(head) + head.address_length,
                                    &lane->rkey);
        if (status != UCS_OK) {
            lane->rkey = NULL;
            return perf_session_fail(session, status, "ucp_ep_rkey_unpack");
        }
        lane->remote_address = head.remote_address;
    }
    return 0;
}

static int connect_worker(perf_session_t *session, perf_lane_t *lane)
{
    uint8_t *message;
    size_t length;
    int status;

    if (perf_setup_send_address(session, lane) != 0) {
        return -1;
    }
    message = perf_setup_recv_address(session, &length);
    status  = (message != NULL) ? perf_setup_endpoint(session, lane, message) : -1;
    free(message);
    return status;
}

int perf_setup_connect(perf_session_t *session)
{
    const perf_op_t *op = session->op;
    perf_lane_t *lane;
    unsigned i;

    for (i = 0; i < session->lane_count; ++i) {
        lane = &session->lanes[i];
        if ((op->open != NULL) && (op->open(lane, op) != UCS_OK)) {
            if (lane->status == UCS_ERR_CANCELED) { /* the peer's error text is waiting */
                (void)perf_oob_recv(&session->channel, PERF_OOB_READY, NULL, 0);
                return -1;
            }
            return perf_session_fail(session, lane->status, "%s", lane->problem);
        }
        if ((lane->worker != NULL) && (connect_worker(session, lane) != 0)) {
            return -1;
        }
    }
    return 0;
}

/* Closes the endpoint, bounded; the peer closes its own at the same time. */
static void close_endpoint(perf_lane_t *lane)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    double end_ns             = perf_now_ns() + CLOSE_MAX_NS;
    ucs_status_ptr_t request;

    request  = ucp_ep_close_nbx(lane->ep, &param);
    lane->ep = NULL;
    if ((request == NULL) || UCS_PTR_IS_ERR(request)) {
        return;
    }
    while ((ucp_request_check_status(request) == UCS_INPROGRESS) && (perf_now_ns() < end_ns)) {
        ucp_worker_progress(lane->worker);
    }
    ucp_request_free(request);
}

void perf_setup_disconnect(perf_session_t *session)
{
    unsigned i;

    perf_setup_device_disconnect(session);
    for (i = 0; i < session->lane_count; ++i) {
        if (session->lanes[i].rkey != NULL) {
            ucp_rkey_destroy(session->lanes[i].rkey);
            session->lanes[i].rkey = NULL;
        }
        if (session->lanes[i].ep != NULL) {
            close_endpoint(&session->lanes[i]);
        }
    }
}

static void destroy_buffers(perf_session_t *session, perf_lane_t *lane)
{
    if (lane->send_memh != NULL) {
        ucp_mem_unmap(lane->context, lane->send_memh);
    }
    if (lane->recv_memh != NULL) {
        ucp_mem_unmap(lane->context, lane->recv_memh);
    }
    if (lane->index >= session->params.threads) {
        return; /* the memory is that of the first variant */
    }
    if ((lane->recv_buffer != NULL) &&
        (!is_one_sided(session) || (own_memory(session) != PERF_MEMORY_HOST))) {
        perf_memory_release(&session->device, own_memory(session), lane->recv_buffer,
                            session->params.span);
    }
    if (lane->send_buffer != NULL) {
        perf_memory_release(&session->device, own_memory(session), lane->send_buffer,
                            session->params.span);
    }
    free(lane->mirror);
    free(lane->samples);
    free(lane->layouts);
    free(lane->am_header);
}

void perf_setup_destroy(perf_session_t *session)
{
    unsigned i;

    for (i = session->lane_count; i-- > 0;) {
        if (session->lanes[i].close != NULL) {
            session->lanes[i].close(&session->lanes[i]);
        }
        destroy_buffers(session, &session->lanes[i]);
        if (session->lanes[i].worker != NULL) {
            ucp_worker_destroy(session->lanes[i].worker);
        }
    }
    for (i = 0; i < PERF_VARIANT_COUNT; ++i) {
        if (session->contexts[i] != NULL) {
            ucp_cleanup(session->contexts[i]);
            session->contexts[i] = NULL;
        }
    }
    perf_setup_device_close(session);
    free(session->lanes);
    session->lanes      = NULL;
    session->lane_count = 0;
}
