/* Halyard: fuzzing: a pair of workers.
 *
 * Without single copies: a message may name any address of this process, which a copy would
 * overwrite as the protocol asks it to.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "fuzz.h"

#include <ucs/sys/sys.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_expect(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

/* Time flies, so that nobody waits for a peer that does not answer. */
static uint64_t fuzz_clock_ns(void)
{
    static uint64_t now_ns;

    now_ns += 10000000;
    return now_ns;
}

static void fuzz_hurry(void)
{
    static ucs_sys_ops_t ops;

    ops          = ucs_sys_real;
    ops.clock_ns = fuzz_clock_ns;
    ucs_sys_set(&ops);
}

static ucp_ep_h fuzz_connect(ucp_worker_h from, ucp_worker_h to)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = UCP_ERR_HANDLING_MODE_PEER};
    ucp_address_t *address;
    ucp_ep_h ep;
    size_t length;

    fuzz_expect(ucp_worker_get_address(to, &address, &length) == UCS_OK, "no address");
    params.address = address;
    fuzz_expect(ucp_ep_create(from, &params, &ep) == UCS_OK, "no endpoint");
    ucp_worker_release_address(to, address);
    return ep;
}

void fuzz_pair_make(fuzz_pair_t *pair)
{
    const uint64_t features     = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA |
                              UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_STREAM;
    ucp_params_t params         = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t wparams = {.field_mask = 0};
    ucp_config_t *config;
    int i;

    fuzz_hurry();
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    fuzz_expect(ucp_config_read(NULL, NULL, &config) == UCS_OK, "no configuration");
    fuzz_expect(ucp_config_modify(config, "TLS", "self,mm") == UCS_OK, "no transports");
    fuzz_expect(ucp_init(&params, config, &pair->context) == UCS_OK, "no context");
    ucp_config_release(config);
    for (i = 0; i < 2; ++i) {
        fuzz_expect(ucp_worker_create(pair->context, &wparams, &pair->workers[i]) == UCS_OK,
                    "no worker");
    }
    pair->self  = fuzz_connect(pair->workers[0], pair->workers[0]);
    pair->there = fuzz_connect(pair->workers[0], pair->workers[1]);
    pair->back  = fuzz_connect(pair->workers[1], pair->workers[0]);
}

void fuzz_pair_progress(fuzz_pair_t *pair)
{
    int i;

    for (i = 0; i < 8; ++i) {
        ucp_worker_progress(pair->workers[0]);
        ucp_worker_progress(pair->workers[1]);
    }
}

void fuzz_pair_drop(fuzz_pair_t *pair)
{
    ucp_worker_destroy(pair->workers[0]);
    ucp_worker_destroy(pair->workers[1]);
    ucp_cleanup(pair->context);
}
