/* Halyard: fuzzing: packed remote keys.
 *
 * The first byte chooses a beginning: a key of the peer's own, with the rest of the input laid over
 * it from the place that the second byte names; or the input alone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "fuzz.h"

#include <ucp/core/rkey.h>

#include <string.h>

#define FUZZ_MEMORY 4096

static void fuzz_rkey_use(fuzz_pair_t *pair, ucp_ep_h ep, const uint8_t *buffer, uint64_t address)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t ptr;
    char data[16] = {0};
    ucp_rkey_h rkey;
    void *local;

    if (ucp_ep_rkey_unpack(ep, buffer, &rkey) != UCS_OK) {
        return;
    }
    /* Behind the key's range: what is inside of it may be anybody's memory, as a key says. */
    (void)ucp_rkey_ptr(rkey, address, &local);
    ptr = ucp_put_nbx(ep, data, sizeof(data), rkey->base + rkey->length, rkey, &param);
    fuzz_expect(!UCS_PTR_IS_PTR(ptr) || (rkey->length == UINT64_MAX), "put behind the key's end");
    fuzz_pair_progress(pair);
    ucp_rkey_destroy(rkey);
}

int fuzz_rkey(const uint8_t *data, size_t size)
{
    static uint8_t memory[FUZZ_MEMORY];
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length     = sizeof(memory)};
    uint8_t buffer[2 * UCP_RKEY_MAX];
    size_t length, offset;
    fuzz_pair_t pair;
    ucp_mem_h mem;
    void *packed;

    if (size < 2) {
        return 0;
    }
    fuzz_pair_make(&pair);
    params.address = (data[0] & 2) ? NULL : memory;
    params.flags   = (data[0] & 2) ? UCP_MEM_MAP_ALLOCATE : 0;
    fuzz_expect(ucp_mem_map(pair.context, &params, &mem) == UCS_OK, "no registration");
    fuzz_expect(ucp_rkey_pack(pair.context, mem, &packed, &length) == UCS_OK, "no key");
    memset(buffer, 0, sizeof(buffer));
    offset = 0;
    if (data[0] & 1) {
        memcpy(buffer, packed, length);
        offset = data[1];
    }
    ucp_rkey_buffer_release(packed);
    size -= 2;
    size  = (size < sizeof(buffer) - offset) ? size : sizeof(buffer) - offset;
    memcpy(buffer + offset, data + 2, size);
    fuzz_rkey_use(&pair, (data[0] & 4) ? pair.self : pair.there, buffer, (uintptr_t)memory);
    fuzz_expect(ucp_mem_unmap(pair.context, mem) == UCS_OK, "not unmapped");
    fuzz_pair_drop(&pair);
    return 0;
}
