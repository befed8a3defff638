/* Halyard: puts, gets and atomics by messages: the side that owns the memory, and the answers.
 *
 * Whatever a message says is looked up in the table of registered memory before a byte is touched.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/mem.h>
#include <ucp/dt/dt.h>
#include <ucp/ops/rma.h>
#include <ucs/debug/log.h>
#include <pthread.h>
#include <string.h>

/* Held from the reading to the writing of what atomics change on a device: another worker, of
 * another thread, may be asked to change the same memory. */
static pthread_mutex_t ucp_rma_device_atomics = PTHREAD_MUTEX_INITIALIZER;

static ucs_status_t ucp_rma_refuse(uint64_t address, size_t length)
{
    ucs_diag("a peer asked for %zu bytes at 0x%lx, which are not registered, or not for that",
             length, (unsigned long)address);
    return UCS_ERR_INVALID_ADDR;
}

static void ucp_rma_send_end(ucp_peer_t *peer, uint64_t request_id, uint64_t value,
                             ucs_status_t status)
{
    ucp_wire_rma_end_t end = {.request_id = request_id, .value = value, .status = status};

    ucp_peer_send_control(peer, UCP_WIRE_RMA_END, &end, sizeof(end));
}

/* ---- requests of peers ---- */

/* Pieces for a device go there together. */
static void ucp_rma_put_on_device(ucp_peer_t *peer, const ucp_wire_put_t *put, const void *data,
                                  size_t length, int is_first)
{
    ucp_device_user_t user = {peer, &peer->put_status, put->mem_id};

    if (is_first) {
        ucp_device_flush(peer->worker, peer); /* of a put that ended amid its pieces */
        peer->put_status = UCS_OK;
    }
    ucp_device_write(peer->worker, &user, (void *)(uintptr_t)put->address,
                     length + (put->request_id == 0), data, length);
    if (put->request_id != 0) {
        ucp_device_flush(peer->worker, peer);
    }
}

static void ucp_rma_put_piece(ucp_peer_t *peer, const ucp_wire_put_t *put, const void *data,
                              size_t length, int is_first)
{
    ucp_context_t *context = peer->worker->context;
    const ucp_mem_t *mem   = ucp_mem_hold(context, put->mem_id, put->address, length,
                                          UCP_MEM_WRITE);
    int is_device;

    if (mem == NULL) {
        peer->put_status = ucp_rma_refuse(put->address, length);
        return;
    }
    is_device = (mem->type != UCS_MEMORY_TYPE_HOST);
    if (ucs_likely(!is_device)) {
        ucp_copy((void *)(uintptr_t)put->address, data, length);
    }
    ucp_mem_drop(context);
    if (ucs_unlikely(is_device)) {
        ucp_rma_put_on_device(peer, put, data, length, is_first);
    }
}

void ucp_rma_put_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_put_t put;
    ucp_peer_t *peer;
    int is_first;

    if (!ucp_wire_read(UCP_WIRE_PUT, data, length, &put, sizeof(put))) {
        return;
    }
    length -= sizeof(put);
    peer    = ucp_peer_of_sender(arg, put.worker_id, "PUT");
    if (peer == NULL) {
        return;
    }
    is_first = (put.mem_id != peer->put_mem_id) || (put.address != peer->put_address);
    if (is_first) {
        peer->put_status = UCS_OK; /* another put: that one ended amid its pieces */
    }
    ucp_rma_put_piece(peer, &put, (const char *)data + sizeof(put), length, is_first);
    peer->put_mem_id  = put.mem_id;
    peer->put_address = put.address + length;
    if (put.request_id != 0) { /* the last piece tells of all, which follow one another */
        ucp_rma_send_end(peer, put.request_id, 0, peer->put_status);
        peer->put_status = UCS_OK;
    }
}

void ucp_rma_get_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_get_t get;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_GET, data, length, &get, sizeof(get))) {
        return;
    }
    peer = ucp_peer_of_sender(arg, get.worker_id, "GET");
    if (peer != NULL) {
        ucp_peer_send_control(peer, UCP_WIRE_GET_DATA, &get, sizeof(get));
    }
}

typedef struct {
    ucp_peer_t           *peer;
    const ucp_wire_get_t *get;
    size_t                length; /* bytes of data that were packed; 0: a device has failed */
} ucp_rma_get_piece_t;

static size_t ucp_rma_pack_from_device(void *dest, void *arg, size_t max)
{
    ucp_rma_get_piece_t *piece = arg;
    const ucp_wire_get_t *get  = piece->get;
    ucp_wire_get_data_t head   = {get->request_id, get->address};

    memcpy(dest, &head, sizeof(head));
    piece->length = ucp_device_read(piece->peer->worker, piece->peer,
                                    (void *)(uintptr_t)get->address, get->length,
                                    (char *)dest + sizeof(head),
                                    ucs_min(ucp_dt_piece_max(max - sizeof(head)),
                                            get->length));
    return sizeof(head) + piece->length;
}

/* A piece of registered memory as a message. */
static ucs_status_t ucp_rma_send_get_piece(ucp_rma_get_piece_t *piece, const ucp_mem_t *mem)
{
    const ucp_wire_get_t *get = piece->get;
    ucp_peer_t *peer          = piece->peer;
    uct_ep_t *lane            = peer->lanes[UCP_LANE_AM];
    size_t piece_max          = peer->proto->lanes.am.max - sizeof(ucp_wire_get_data_t);
    ucp_wire_get_data_t head;
    size_t length             = peer->proto->lanes.am.max;
    uct_iov_t iov[2];

    if (ucs_unlikely(mem->type != UCS_MEMORY_TYPE_HOST)) {
        return lane->ops->am_bcopy(lane, UCP_WIRE_GET_DATA, ucp_rma_pack_from_device, piece,
                                   &length);
    }
    piece->length = ucs_min(get->length, ucp_dt_piece_max(piece_max));
    head          = (ucp_wire_get_data_t){get->request_id, get->address};
    iov[0]        = (uct_iov_t){&head, sizeof(head), NULL};
    iov[1]        = (uct_iov_t){(void *)(uintptr_t)get->address, piece->length, NULL};
    return lane->ops->am_short_iov(lane, UCP_WIRE_GET_DATA, iov, 2);
}

ucs_status_t ucp_rma_send_get_data(ucp_peer_t *peer, ucp_wire_get_t *get)
{
    ucp_context_t *context    = peer->worker->context;
    uct_ep_t *lane            = peer->lanes[UCP_LANE_AM];
    ucp_rma_get_piece_t piece = {peer, get, 0};
    ucs_status_t status       = UCS_OK;
    ucp_wire_rma_end_t end    = {.request_id = get->request_id};
    uct_iov_t iov             = {&end, sizeof(end), NULL};
    const ucp_mem_t *mem;

    while ((get->length > 0) && (status == UCS_OK)) {
        mem = ucp_mem_hold(context, get->mem_id, get->address, get->length, UCP_MEM_READ);
        if (mem == NULL) {
            end.status = ucp_rma_refuse(get->address, get->length);
        } else {
            status = ucp_rma_send_get_piece(&piece, mem);
            ucp_mem_drop(context);
            end.status = ((status == UCS_OK) && (piece.length == 0)) ? UCS_ERR_IO_ERROR : UCS_OK;
        }
        if (end.status != UCS_OK) {
            status = lane->ops->am_short_iov(lane, UCP_WIRE_RMA_END, &iov, 1);
            break;
        }
        if (status == UCS_OK) {
            get->address += piece.length;
            get->length  -= piece.length;
        }
    }
    if (status != UCS_ERR_NO_RESOURCE) {
        ucp_window_forget(&peer->worker->device.read_window, peer);
    }
    return status;
}

/* Memory of a device is changed by this side only, so that what peers do to it agrees. */
static ucs_status_t ucp_rma_apply_on_device(ucp_worker_t *worker, const ucp_wire_atomic_t *atomic,
                                            uint64_t *old_p)
{
    void *target = (void *)(uintptr_t)atomic->address;
    ucs_status_t status;
    uint64_t copy;

    if (((atomic->size != 4) && (atomic->size != 8)) || (atomic->address % atomic->size != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }
    pthread_mutex_lock(&ucp_rma_device_atomics);
    status = ucp_device_copy(worker, &copy, target, atomic->size);
    if (status == UCS_OK) {
        status = uct_atomic_apply(&copy, (int)atomic->op, atomic->size, atomic->value,
                                  atomic->compare, old_p);
    }
    if (status == UCS_OK) {
        status = ucp_device_copy(worker, target, &copy, atomic->size);
    }
    pthread_mutex_unlock(&ucp_rma_device_atomics);
    return status;
}

void ucp_rma_atomic_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    uint64_t old         = 0;
    const ucp_mem_t *mem;
    ucp_wire_atomic_t atomic;
    ucs_status_t status;
    ucp_peer_t *peer;

    if (!ucp_wire_read(UCP_WIRE_ATOMIC, data, length, &atomic, sizeof(atomic))) {
        return;
    }
    peer = ucp_peer_of_sender(worker, atomic.worker_id, "ATOMIC");
    if (peer == NULL) {
        return;
    }
    mem = ucp_mem_hold(worker->context, atomic.mem_id, atomic.address, atomic.size,
                        UCP_MEM_READ | UCP_MEM_WRITE);
    if (mem != NULL) {
        status = (mem->type != UCS_MEMORY_TYPE_HOST) ?
                 ucp_rma_apply_on_device(worker, &atomic, &old) :
                 uct_atomic_apply((void *)(uintptr_t)atomic.address, (int)atomic.op, atomic.size,
                                  atomic.value, atomic.compare, &old);
        ucp_mem_drop(worker->context);
    } else {
        status = ucp_rma_refuse(atomic.address, atomic.size);
    }
    ucp_rma_send_end(peer, atomic.request_id, old, status);
}

/* ---- answers ---- */

/* The request that waits for an answer, or NULL: dropped. */
static ucp_request_t *ucp_rma_find_request(ucp_worker_t *worker, uint64_t id)
{
    ucp_request_t *req = ucs_ptr_map_get(&worker->ids, id);

    if ((req == NULL) || !ucp_request_is_rma(req) || (req->send.step != UCP_SEND_WAIT) ||
        !ucp_peer_is_sender(req->send.peer)) {
        ucs_debug("answer for a put, get or atomic that has ended: dropped");
        return NULL;
    }
    return req;
}

/* A piece for a device of ours; with the last one all are there, or the result says why not. */
static ucs_status_t ucp_rma_get_to_device(ucp_request_t *req, const void *data, size_t length)
{
    ucp_device_user_t user = {.id = req, .result = &req->copy.late};
    const size_t rest      = req->length - req->send.offset;

    req->held |= UCP_REQUEST_HOLDS_WINDOW;
    ucp_device_write(req->worker, &user, (char *)req->buffer + req->send.offset, rest, data,
                     length);
    if (length == rest) {
        ucp_device_flush(req->worker, req);
    }
    return req->copy.late;
}

void ucp_rma_get_data_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_get_data_t head;
    ucs_status_t status;
    ucp_request_t *req;

    if (!ucp_wire_read(UCP_WIRE_GET_DATA, data, length, &head, sizeof(head))) {
        return;
    }
    length -= sizeof(head);
    req     = ucp_rma_find_request(arg, head.request_id);
    if (req == NULL) {
        return;
    }
    if ((req->kind != UCP_REQUEST_GET) ||
        (head.address != req->send.remote_addr + req->send.offset) ||
        (length > req->send.end - req->send.offset)) {
        ucs_warn("peer sent a GET_DATA that does not suit the get: dropped");
        return;
    }
    data   = (const char *)data + sizeof(head);
    status = ucp_dt_is_device(req->datatype) ? ucp_rma_get_to_device(req, data, length) :
                                               ucp_dt_unpack(req, req->send.offset, data, length);
    req->send.offset += length;
    if (status != UCS_OK) {
        ucp_request_complete(req, status);
    } else if (req->send.offset == req->send.end) {
        ucp_rma_part_answered(req);
    }
}

void ucp_rma_end_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_rma_end_t end;
    ucs_status_t status;
    ucp_request_t *req;

    if (!ucp_wire_read(UCP_WIRE_RMA_END, data, length, &end, sizeof(end))) {
        return;
    }
    req = ucp_rma_find_request(arg, end.request_id);
    if (req == NULL) {
        return;
    }
    status = ucp_wire_status(end.status, UCS_OK);
    if ((req->kind == UCP_REQUEST_GET) && (status == UCS_OK)) {
        ucs_warn("peer ended a get without its data: dropped");
        return;
    }
    if ((req->kind == UCP_REQUEST_ATOMIC) && (status == UCS_OK) && (req->buffer != NULL)) {
        status = ucp_rma_put_result(req, &end.value);
    }
    if ((req->kind == UCP_REQUEST_PUT) && (status == UCS_OK)) {
        if (req->send.offset == req->send.end) {
            ucp_rma_part_answered(req);
            return;
        }
        if (ucp_dt_has_device(req->datatype)) {
            status = UCS_ERR_IO_ERROR; /* a copy off the device has failed */
        }
    }
    ucp_request_complete(req, status);
}
