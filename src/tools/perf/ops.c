/* Halyard: the table of tests and limits.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "ops.h"

#include <string.h>

#define LIMIT(_name, _what, _run) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_LIMIT}

#define ATOMICS (UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA)

const perf_op_t perf_ops[] = {
    [PERF_OP_LINE]        = LIMIT("line", "a cache line bounced between two cores",
                                  perf_limit_line),
    [PERF_OP_RING]        = LIMIT("ring", "a message through a bare slot ring", perf_limit_ring),
    [PERF_OP_RING_STREAM] = {.name = "ring stream", .what = "messages streamed through that ring",
                             .run = perf_limit_ring_stream, .kind = PERF_KIND_LIMIT,
                             .follower_times = 1},
    [PERF_OP_MEMCPY]      = LIMIT("memcpy", "memcpy by one core, the other idle",
                                  perf_limit_memcpy),
    [PERF_OP_READER]      = LIMIT("reader", "process_vm_readv by the receiver",
                                  perf_limit_reader),
    [PERF_OP_BOTH]        = LIMIT("both", "both processes copy half each", perf_limit_both),
    [PERF_OP_COPY]        = LIMIT("copy", "one copy by the driver, polled for",
                                  perf_limit_device_copy),
    [PERF_OP_BATCH]       = {.name = "batch", .what = "copies by one call of the driver",
                             .run = perf_limit_device_batch, .kind = PERF_KIND_LIMIT,
                             .window = 64},

    [PERF_OP_TESTS] =
    {.name = "tag_lat", .what = "tag matching latency", .run = perf_tag_latency,
     .kind = PERF_KIND_LATENCY, .features = UCP_FEATURE_TAG},
    {.name = "tag_bw", .what = "tag matching bandwidth", .run = perf_tag_stream,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_TAG, .window = 64, .follower_times = 1},
    {.name = "tag_rate", .what = "tag matching message rate", .run = perf_tag_stream,
     .kind = PERF_KIND_RATE, .features = UCP_FEATURE_TAG, .window = 64, .follower_times = 1},
    {.name = "tag_bi_bw", .what = "tag matching bandwidth of both directions at once",
     .run = perf_tag_exchange, .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_TAG,
     .window = 64},
    {.name = "tag_sync_lat", .what = "synchronous tag latency", .run = perf_tag_sync_latency,
     .kind = PERF_KIND_LATENCY, .features = UCP_FEATURE_TAG},
    {.name = "tag_sync_bw", .what = "synchronous tag bandwidth", .run = perf_tag_sync_stream,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_TAG, .window = 64, .follower_times = 1},
    {.name = "ucp_am_lat", .what = "active message latency", .run = perf_am_latency,
     .kind = PERF_KIND_LATENCY, .features = UCP_FEATURE_AM},
    {.name = "ucp_am_bw", .what = "active message bandwidth", .run = perf_am_stream,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_AM, .window = 64, .follower_times = 1},
    {.name = "stream_lat", .what = "stream latency", .run = perf_bytes_latency,
     .kind = PERF_KIND_LATENCY, .features = UCP_FEATURE_STREAM, .size_min = 1},
    {.name = "stream_bw", .what = "stream bandwidth", .run = perf_bytes_stream,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_STREAM, .size_min = 1, .window = 64,
     .follower_times = 1},
    {.name = "ucp_put_lat", .what = "put latency", .run = perf_put_latency,
     .kind = PERF_KIND_LATENCY, .features = UCP_FEATURE_RMA, .size_min = 1},
    {.name = "ucp_put_bw", .what = "put bandwidth, flushed", .run = perf_put_stream,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_RMA, .size_min = 1, .window = 64,
     .one_sided = 1},
    {.name = "ucp_get", .what = "get latency, bandwidth with -O", .run = perf_get,
     .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_RMA, .size_min = 1, .window = 1,
     .one_sided = 1},
    {.name = "ucp_add", .what = "atomic add rate", .run = perf_atomic_add,
     .kind = PERF_KIND_RATE, .features = ATOMICS, .size_min = 4, .size_max = 8, .window = 64,
     .one_sided = 1},
    {.name = "ucp_fadd", .what = "atomic fetch-and-add", .run = perf_atomic_fadd,
     .kind = PERF_KIND_RATE, .features = ATOMICS, .size_min = 4, .size_max = 8, .window = 1,
     .one_sided = 1},
    {.name = "ucp_swap", .what = "atomic swap", .run = perf_atomic_swap,
     .kind = PERF_KIND_RATE, .features = ATOMICS, .size_min = 4, .size_max = 8, .window = 1,
     .one_sided = 1},
    {.name = "ucp_cswap", .what = "atomic compare-and-swap", .run = perf_atomic_cswap,
     .kind = PERF_KIND_RATE, .features = ATOMICS, .size_min = 4, .size_max = 8, .window = 1,
     .one_sided = 1},
    {.name = "ofi_lat", .what = "latency of libfabric without the library",
     .run = perf_ofi_latency, .kind = PERF_KIND_LATENCY, .size_min = 1},
    {.name = "ofi_bw", .what = "bandwidth of libfabric without the library",
     .run = perf_ofi_stream, .kind = PERF_KIND_BANDWIDTH, .size_min = 1, .window = 64,
     .follower_times = 1},
};

/* Announced from 2 bytes, so that acknowledgements, of 0 or 1, are the same in all. */
const perf_variant_t perf_variants[PERF_VARIANT_COUNT] = {
    [PERF_VARIANT_AUTO]  = {"automatic", NULL, NULL},
    [PERF_VARIANT_EAGER] = {"eager", "inf", "auto"},
    [PERF_VARIANT_GET]   = {"rndv/get", "2", "get_zcopy"},
    {"rndv/put", "2", "put_zcopy"},
    {"rndv/both", "2", "both"},
    {"rndv/am", "2", "am"},
};

const unsigned perf_op_count = sizeof(perf_ops) / sizeof(perf_ops[0]);

int perf_op_find(const char *name)
{
    unsigned i;

    for (i = PERF_OP_TESTS; i < perf_op_count; ++i) {
        if (strcmp(perf_ops[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *perf_op_refusal(const perf_op_t *op, const uint8_t memory[2])
{
    const int is_host = !perf_memory_any_device(memory);

    if ((op->run == perf_limit_device_copy) || (op->run == perf_limit_device_batch)) {
        return is_host ? "it copies memory of devices" : NULL;
    }
    if (is_host) {
        return NULL;
    }
    return (op->features == 0)             ? "it reads its buffers by the processor" :
           (op->run == perf_put_latency)   ? "it polls its buffers by the processor (ucp_put_bw "
                                             "does not)" : NULL;
}

const char *perf_op_uct_name(const char *name)
{
    static const struct {
        const char *name, *instead;
    } uct_tests[] = {
        {"am_lat", "ucp_am_lat"},    {"put_lat", "ucp_put_lat"}, {"add_lat", "ucp_add"},
        {"get", "ucp_get"},          {"fadd", "ucp_fadd"},       {"swap", "ucp_swap"},
        {"cswap", "ucp_cswap"},      {"am_bw", "ucp_am_bw"},     {"put_bw", "ucp_put_bw"},
        {"get_bw", "ucp_get -O 32"}, {"add_mr", "ucp_add"},
    };
    unsigned i;

    for (i = 0; i < sizeof(uct_tests) / sizeof(uct_tests[0]); ++i) {
        if (strcmp(uct_tests[i].name, name) == 0) {
            return uct_tests[i].instead;
        }
    }
    return NULL;
}
