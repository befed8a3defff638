/* Halyard: atomics on remote memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/core/device.h>
#include <ucp/ops/rma.h>
#include <string.h>

/* By ucp_atomic_op_t; ucp_atomic_fetch_op_t has the same values. */
static const uct_atomic_op_t ucp_amo_ops[] = {
    [UCP_ATOMIC_OP_ADD]   = UCT_ATOMIC_ADD,
    [UCP_ATOMIC_OP_SWAP]  = UCT_ATOMIC_SWAP,
    [UCP_ATOMIC_OP_CSWAP] = UCT_ATOMIC_CSWAP,
    [UCP_ATOMIC_OP_AND]   = UCT_ATOMIC_AND,
    [UCP_ATOMIC_OP_OR]    = UCT_ATOMIC_OR,
    [UCP_ATOMIC_OP_XOR]   = UCT_ATOMIC_XOR
};

UCS_INLINE ucs_status_t ucp_amo_load(ucp_ep_t *ep, const void *buffer, size_t size,
                                    uint64_t *value_p)
{
    ucs_status_t status = UCS_OK;

    *value_p = 0;
    if (ucs_unlikely(ucp_device_has(ep->worker, buffer))) {
        ucp_worker_lock(ep->worker);
        status = ucp_device_copy(ep->worker, value_p, buffer, size);
        ucp_worker_unlock(ep->worker);
    } else {
        memcpy(value_p, buffer, (size == sizeof(uint64_t)) ? sizeof(uint64_t) : sizeof(uint32_t));
    }
    return status;
}

UCS_INLINE void ucp_amo_store(void *buffer, uint64_t value, size_t size)
{
    if (size == sizeof(uint64_t)) {
        memcpy(buffer, &value, sizeof(uint64_t));
    } else {
        memcpy(buffer, &value, sizeof(uint32_t));
    }
}

ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t opcode, const void *buffer,
                                   size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                                   const ucp_request_param_t *param)
{
    uint32_t mask = param->op_attr_mask;
    void *reply   = (mask & UCP_OP_ATTR_FIELD_REPLY_BUFFER) ? param->reply_buffer : NULL;
    ucs_status_t status;
    uint64_t old;
    ucp_amo_t amo;
    size_t size;
    void *ptr;

    if (!(mask & UCP_OP_ATTR_FIELD_DATATYPE) || (count != 1)) {
        return ucp_request_end_without(param, UCP_REQUEST_ATOMIC, UCS_ERR_INVALID_PARAM);
    }
    size = (param->datatype == ucp_dt_make_contig(8)) ? 8 : 4;
    if ((param->datatype != ucp_dt_make_contig(size)) || ((remote_addr % size) != 0) ||
        ((unsigned)opcode >= ucs_array_size(ucp_amo_ops))) {
        return ucp_request_end_without(param, UCP_REQUEST_ATOMIC, UCS_ERR_INVALID_PARAM);
    }
    amo.op      = ucp_amo_ops[opcode];
    status = ucp_amo_load(ep, buffer, size, &amo.value);
    if (status != UCS_OK) {
        return ucp_request_end_without(param, UCP_REQUEST_ATOMIC, status);
    }
    amo.compare = 0;
    if (ucs_unlikely((opcode == UCP_ATOMIC_OP_CSWAP) || (opcode == UCP_ATOMIC_OP_SWAP))) {
        if (reply == NULL) {
            return ucp_request_end_without(param, UCP_REQUEST_ATOMIC, UCS_ERR_INVALID_PARAM);
        }
        if (opcode == UCP_ATOMIC_OP_CSWAP) {
            amo.compare = amo.value;
            status      = ucp_amo_load(ep, reply, size, &amo.value);
            if (status != UCS_OK) {
                return ucp_request_end_without(param, UCP_REQUEST_ATOMIC, status);
            }
        }
    }

    if (ucs_likely(!(mask & UCP_RMA_SLOW_MASK)) && ucs_likely(ucp_rma_is_open(ep)) &&
        ((reply == NULL) || ucs_likely(!ucp_device_has(ep->worker, reply)))) {
        ptr = ucp_rkey_local(rkey, (size == 8) ? UCP_RKEY_AMO64 : UCP_RKEY_AMO32, remote_addr,
                             size);
        if (ucs_likely(ptr != NULL)) {
            status = uct_atomic_apply(ptr, amo.op, (unsigned)size, amo.value, amo.compare, &old);
            if ((status == UCS_OK) && (reply != NULL)) {
                ucp_amo_store(reply, old, size);
            }
            return UCS_STATUS_PTR(status);
        }
    }
    return ucp_rma_post(ep, UCP_REQUEST_ATOMIC, reply, size, remote_addr, rkey, param, &amo);
}

/* ---- earlier forms ---- */

static ucs_status_ptr_t ucp_amo_start(ucp_ep_h ep, ucp_atomic_op_t opcode, uint64_t value,
                                      void *result, size_t size, uint64_t remote_addr,
                                      ucp_rkey_h rkey, ucp_send_callback_t cb)
{
    ucp_request_param_t param;

    ucp_request_nb_param(&param, cb);
    if ((size != 4) && (size != 8)) {
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype      = ucp_dt_make_contig(size);
    if (result != NULL) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = result;
    }
    return ucp_atomic_op_nbx(ep, opcode, &value, 1, remote_addr, rkey, &param);
}

ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t opcode, uint64_t value,
                             size_t op_size, uint64_t remote_addr, ucp_rkey_h rkey)
{
    static const ucp_atomic_op_t ops[UCP_ATOMIC_POST_OP_LAST] = {
        [UCP_ATOMIC_POST_OP_ADD] = UCP_ATOMIC_OP_ADD,
        [UCP_ATOMIC_POST_OP_AND] = UCP_ATOMIC_OP_AND,
        [UCP_ATOMIC_POST_OP_OR]  = UCP_ATOMIC_OP_OR,
        [UCP_ATOMIC_POST_OP_XOR] = UCP_ATOMIC_OP_XOR
    };
    ucp_worker_t *worker = ep->worker;
    ucs_status_ptr_t ptr;
    ucs_status_t status;

    if ((unsigned)opcode >= UCP_ATOMIC_POST_OP_LAST) {
        return UCS_ERR_INVALID_PARAM;
    }
    ptr    = ucp_amo_start(ep, ops[opcode], value, NULL, op_size, remote_addr, rkey, NULL);
    status = ucp_rma_forget(worker, ptr);
    return (status == UCS_INPROGRESS) ? UCS_OK : status;
}

ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t opcode, uint64_t value,
                                     void *result, size_t op_size, uint64_t remote_addr,
                                     ucp_rkey_h rkey, ucp_send_callback_t cb)
{
    return ucp_amo_start(ep, (ucp_atomic_op_t)opcode, value, result, op_size, remote_addr, rkey,
                         cb);
}

ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey)
{
    return ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, add, sizeof(add), remote_addr, rkey);
}

ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey)
{
    return ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, add, sizeof(add), remote_addr, rkey);
}

/* result: also holds the new value of a compare-and-swap. */
static ucs_status_t ucp_amo_wait(ucp_ep_h ep, ucp_atomic_op_t opcode, uint64_t value, void *result,
                                 size_t size, uint64_t remote_addr, ucp_rkey_h rkey)
{
    return ucp_request_wait(ep->worker, ucp_amo_start(ep, opcode, value, result, size, remote_addr,
                                                      rkey, NULL));
}

ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t *result)
{
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_ADD, add, result, sizeof(add), remote_addr, rkey);
}

ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t *result)
{
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_ADD, add, result, sizeof(add), remote_addr, rkey);
}

ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t *result)
{
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_SWAP, swap, result, sizeof(swap), remote_addr, rkey);
}

ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t *result)
{
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_SWAP, swap, result, sizeof(swap), remote_addr, rkey);
}

ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint32_t *result)
{
    *result = swap;
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_CSWAP, compare, result, sizeof(swap), remote_addr, rkey);
}

ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint64_t *result)
{
    *result = swap;
    return ucp_amo_wait(ep, UCP_ATOMIC_OP_CSWAP, compare, result, sizeof(swap), remote_addr, rkey);
}
