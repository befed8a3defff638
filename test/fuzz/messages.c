/* Halyard: fuzzing: messages of a peer, in any order, while operations are under way.
 *
 * The input is a list of steps. A step that is a message has an id, bytes, and patches: places
 * where a name that means something now (of a request, a worker, a registration, an address) is
 * put in.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "fuzz.h"

#include <ucp/core/worker.h>
#include <ucp/core/mem.h>
#include <ucp/wire/wire.h>

#include <stdlib.h>
#include <string.h>

#define FUZZ_BUFFER   4096
#define FUZZ_BUFFERS  8
#define FUZZ_REQUESTS 64
#define FUZZ_STEPS    200

typedef struct {
    fuzz_pair_t pair;
    uint8_t     buffers[FUZZ_BUFFERS][FUZZ_BUFFER];
    unsigned    num_buffers;
    void       *requests[FUZZ_REQUESTS];
    unsigned    num_requests;
    ucp_mem_h   mem;
    fuzz_input_t in;
} fuzz_messages_t;

static void fuzz_posted(fuzz_messages_t *state, ucs_status_ptr_t ptr)
{
    if (!UCS_PTR_IS_PTR(ptr)) {
        return;
    }
    if (state->num_requests < FUZZ_REQUESTS) {
        state->requests[state->num_requests++] = ptr;
    } else {
        ucp_request_free(ptr);
    }
}

/* Buffers stay until the end: requests may hold them. */
static uint8_t *fuzz_buffer(fuzz_messages_t *state)
{
    return state->buffers[state->num_buffers++ % FUZZ_BUFFERS];
}

static void fuzz_post(fuzz_messages_t *state, unsigned what)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    size_t length             = fuzz_byte(&state->in) * (size_t)16;
    uint8_t tag               = fuzz_byte(&state->in) & 3;
    uint8_t *buffer           = fuzz_buffer(state);
    ucp_worker_h worker       = state->pair.workers[0];

    switch (what % 4) {
    case 0:
        fuzz_posted(state, ucp_tag_recv_nbx(worker, buffer, length, tag,
                                            (length & 16) ? ~0ull : 0, &param));
        break;
    case 1:
        fuzz_posted(state, ucp_tag_send_nbx(state->pair.there, buffer, length, tag, &param));
        break;
    case 2:
        fuzz_posted(state, ucp_tag_send_sync_nbx(state->pair.self, buffer, length, tag, &param));
        break;
    default:
        fuzz_posted(state, ucp_tag_send_sync_nbx(state->pair.back, buffer, length, tag, &param));
        break;
    }
}

/* A name that is right at this moment. */
static uint64_t fuzz_name(const fuzz_messages_t *state, uint8_t which)
{
    uint64_t id   = 0;
    uint32_t pos  = 0;
    unsigned skip = which >> 3;

    switch (which & 7) {
    case 0:
        return ucp_uid_id(state->pair.workers[0]->uid);
    case 1:
        return ucp_uid_id(state->pair.workers[1]->uid);
    case 2:
        return state->mem->id;
    case 3:
        return (uintptr_t)state->mem->address + skip;
    case 4:
        return (uintptr_t)state->buffers[skip % FUZZ_BUFFERS];
    case 5:
        return skip * (uint64_t)256;
    default:
        while ((ucs_ptr_map_next(&state->pair.workers[0]->ids, &pos, &id) != NULL) &&
               (skip-- > 0)) {
        }
        return id;
    }
}

static void fuzz_message(fuzz_messages_t *state, unsigned from)
{
    unsigned id      = 1 + (fuzz_byte(&state->in) % (UCP_WIRE_LAST - 1));
    size_t length    = fuzz_byte(&state->in);
    unsigned patches = fuzz_byte(&state->in) % 6;
    uint64_t name;
    size_t offset;
    uint8_t *bytes;

    length = (length < state->in.left) ? length : state->in.left;
    bytes  = aligned_alloc(8, (length + 15) & ~(size_t)7);
    fuzz_expect(bytes != NULL, "no memory");
    memset(bytes, 0, (length + 15) & ~(size_t)7);
    memcpy(bytes, state->in.data, length);
    state->in.data += length;
    state->in.left -= length;
    for (; patches > 0; --patches) {
        offset = (fuzz_byte(&state->in) % 8) * (size_t)8;
        name   = fuzz_name(state, fuzz_byte(&state->in));
        if (offset + sizeof(name) <= length) {
            memcpy(bytes + offset, &name, sizeof(name));
        }
    }
    state->pair.workers[0]->sender = (from == 0) ? state->pair.workers[1]->uid
                                     : (from == 1) ? state->pair.workers[0]->uid
                                                   : NULL;
    ucp_wire_table[id].handle(state->pair.workers[0], bytes, length);
    state->pair.workers[0]->sender = NULL;
    free(bytes);
}

static void fuzz_step(fuzz_messages_t *state)
{
    unsigned what = fuzz_byte(&state->in);

    switch (what & 7) {
    case 0:
    case 1:
        fuzz_post(state, what >> 3);
        break;
    case 2:
        fuzz_pair_progress(&state->pair);
        break;
    case 3:
        if (state->num_requests > 0) {
            ucp_request_cancel(state->pair.workers[0],
                               state->requests[(what >> 3) % state->num_requests]);
        }
        break;
    default:
        fuzz_message(state, (what >> 3) % 3);
        break;
    }
}

int fuzz_messages(const uint8_t *data, size_t size)
{
    fuzz_messages_t *state = calloc(1, sizeof(*state));
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length     = FUZZ_BUFFER,
                                   .flags      = UCP_MEM_MAP_ALLOCATE};
    unsigned steps;

    fuzz_expect(state != NULL, "no memory");
    fuzz_pair_make(&state->pair);
    fuzz_expect(ucp_mem_map(state->pair.context, &params, &state->mem) == UCS_OK, "no memory");
    state->in.data = data;
    state->in.left = size;
    for (steps = 0; (steps < FUZZ_STEPS) && (state->in.left > 0); ++steps) {
        fuzz_step(state);
    }
    fuzz_pair_progress(&state->pair);
    fuzz_pair_drop(&state->pair);
    free(state);
    return 0;
}
