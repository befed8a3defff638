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

void ucp_rma_put_handle(void *arg, const void *data, size_t length)
{
    ucp_worker_t *worker = arg;
    ucs_status_t status  = UCS_OK;
    const ucp_mem_t *mem;
    ucp_wire_put_t put;
    ucp_peer_t *peer;

    if (!ucp_wire_accepts(UCP_WIRE_PUT, length)) {
        return;
    }
    memcpy(&put, data, sizeof(put));
    length -= sizeof(put);
    peer    = ucp_peer_of_sender(worker, put.worker_id, "PUT");
    if (peer == NULL) {
        return;
    }
    mem  = ucp_mem_hold(worker->context, put.mem_id, put.address, length, UCP_MEM_WRITE);
    data = (const char *)data + sizeof(put);
    if (mem != NULL) {
        if (ucs_likely(mem->type == UCS_MEMORY_TYPE_HOST)) {
            ucp_copy((void *)(uintptr_t)put.address, data, length);
        } else {
            status = ucp_device_copy(worker, (void *)(uintptr_t)put.address, data, length);
        }
        ucp_mem_drop(worker->context);
    } else {
        status = ucp_rma_refuse(put.address, length);
    }
    if ((peer->put_status == UCS_OK) || (put.mem_id != peer->put_mem_id) ||
        (put.address != peer->put_address)) { /* another put: that one ended amid its pieces */
        peer->put_status = status;
    }
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

    if (!ucp_wire_accepts(UCP_WIRE_GET, length)) {
        return;
    }
    memcpy(&get, data, sizeof(get));
    peer = ucp_peer_of_sender(arg, get.worker_id, "GET");
    if (peer != NULL) {
        ucp_peer_send_control(peer, UCP_WIRE_GET_DATA, &get, sizeof(get));
    }
}

/* A piece of registered memory as a message; from a device, by way of a copy, which may fail. */
static ucs_status_t ucp_rma_send_get_piece(ucp_peer_t *peer, const ucp_mem_t *mem, uct_iov_t *iov,
                                           int32_t *failed_p)
{
    uct_ep_t *lane = peer->lanes[UCP_LANE_AM];
    void *copy     = NULL;
    ucs_status_t status;

    if (ucs_unlikely(mem->type != UCS_MEMORY_TYPE_HOST)) {
        copy = ucp_worker_data_get(peer->worker, iov[1].length);
        if (copy == NULL) {
            return UCS_ERR_NO_RESOURCE;
        }
        status        = ucp_device_copy(peer->worker, copy, iov[1].buffer, iov[1].length);
        iov[1].buffer = copy;
        if (status != UCS_OK) {
            ucp_worker_data_put(copy);
            *failed_p = status;
            return UCS_OK;
        }
    }
    status = lane->ops->am_short_iov(lane, UCP_WIRE_GET_DATA, iov, 2);
    if (copy != NULL) {
        ucp_worker_data_put(copy);
    }
    return status;
}

ucs_status_t ucp_rma_send_get_data(ucp_peer_t *peer, ucp_wire_get_t *get)
{
    ucp_context_t *context = peer->worker->context;
    uct_ep_t *lane         = peer->lanes[UCP_LANE_AM];
    size_t piece_max       = peer->proto->lanes.am.max - sizeof(ucp_wire_get_data_t);
    ucs_status_t status    = UCS_OK;
    ucp_wire_rma_end_t end = {.request_id = get->request_id};
    ucp_wire_get_data_t head;
    const ucp_mem_t *mem;
    uct_iov_t iov[2];

    piece_max = ucs_min(piece_max, (size_t)UCP_WIRE_EAGER_MAX); /* what a copy has room for */
    piece_max = ucp_dt_piece_max(piece_max);
    while ((get->length > 0) && (status == UCS_OK)) {
        head   = (ucp_wire_get_data_t){get->request_id, get->address};
        iov[0] = (uct_iov_t){&head, sizeof(head), NULL};
        iov[1] = (uct_iov_t){(void *)(uintptr_t)get->address, ucs_min(get->length, piece_max),
                             NULL};
        mem    = ucp_mem_hold(context, get->mem_id, get->address, iov[1].length, UCP_MEM_READ);
        if (mem != NULL) {
            status = ucp_rma_send_get_piece(peer, mem, iov, &end.status);
            ucp_mem_drop(context);
        } else {
            end.status = ucp_rma_refuse(get->address, iov[1].length);
        }
        if (end.status != UCS_OK) {
            iov[0] = (uct_iov_t){&end, sizeof(end), NULL};
            return lane->ops->am_short_iov(lane, UCP_WIRE_RMA_END, iov, 1);
        }
        if (status == UCS_OK) {
            get->address += iov[1].length;
            get->length  -= iov[1].length;
        }
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

    if (!ucp_wire_accepts(UCP_WIRE_ATOMIC, length)) {
        return;
    }
    memcpy(&atomic, data, sizeof(atomic));
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

void ucp_rma_get_data_handle(void *arg, const void *data, size_t length)
{
    ucp_wire_get_data_t head;
    ucs_status_t status;
    ucp_request_t *req;

    if (!ucp_wire_accepts(UCP_WIRE_GET_DATA, length)) {
        return;
    }
    memcpy(&head, data, sizeof(head));
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
    status = ucp_dt_unpack(req, req->send.offset, (const char *)data + sizeof(head), length);
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

    if (!ucp_wire_accepts(UCP_WIRE_RMA_END, length)) {
        return;
    }
    memcpy(&end, data, sizeof(end));
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
