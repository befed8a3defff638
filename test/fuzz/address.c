/* Halyard: fuzzing: worker addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "fuzz.h"

#include <ucp/wire/address.h>

#include <stdlib.h>
#include <string.h>

/* What is accepted is what pack produces. */
static void fuzz_address_round_trip(const uint8_t *data, size_t size)
{
    uint8_t again[UCP_ADDRESS_MAX];
    ucp_address_info_t info;
    size_t length;

    if (ucp_address_unpack(data, size, &info) == UCS_OK) {
        length = ucp_address_pack(&info, NULL);
        fuzz_expect((length <= size) && (length <= sizeof(again)), "longer than it was");
        fuzz_expect(ucp_address_pack(&info, again) == length, "two lengths");
        fuzz_expect(memcmp(again, data, length) == 0, "other bytes than there were");
    }
}

/* An address that arrives without its length: the library may read UCP_ADDRESS_MAX bytes. */
static void fuzz_address_connect(const uint8_t *data, size_t size)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    uint8_t buffer[UCP_ADDRESS_MAX];
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t ptr;
    fuzz_pair_t pair;
    ucp_ep_h ep;

    memset(buffer, 0, sizeof(buffer));
    memcpy(buffer, data, (size < sizeof(buffer)) ? size : sizeof(buffer));
    params.address = (const ucp_address_t *)buffer;
    fuzz_pair_make(&pair);
    if (ucp_ep_create(pair.workers[0], &params, &ep) == UCS_OK) {
        ptr = ucp_tag_send_nbx(ep, "hello", 5, 1, &param);
        if (UCS_PTR_IS_PTR(ptr)) {
            ucp_request_free(ptr);
        }
        fuzz_pair_progress(&pair);
    }
    fuzz_pair_drop(&pair);
}

int fuzz_address(const uint8_t *data, size_t size)
{
    ucp_address_info_t info;

    fuzz_address_round_trip(data, size);
    if (ucp_address_unpack(data, size, &info) == UCS_OK) {
        fuzz_address_connect(data, size);
    }
    return 0;
}
