/* Halyard: the table of tests and limits.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "ops.h"
#include "shared.h"

#include <string.h>

#define LIMIT(_name, _what, _run, ...) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_LIMIT, __VA_ARGS__}
#define LATENCY(_name, _what, _run, _features, ...) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_LATENCY, \
     .features = _features, __VA_ARGS__}
#define STREAM(_name, _what, _run, _features, ...) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_BANDWIDTH, \
     .features = _features, .window = 64, .follower_times = 1, __VA_ARGS__}
#define ONE_SIDED(_name, _what, _run, _window) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_BANDWIDTH, \
     .features = UCP_FEATURE_RMA, .size_min = 1, .window = _window, .one_sided = 1}
#define ATOMIC(_name, _what, _run, _window) \
    {.name = _name, .what = _what, .run = _run, .kind = PERF_KIND_RATE, \
     .features = UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA, .size_min = 4, \
     .size_max = 8, .window = _window, .one_sided = 1}

#define UCT(_name, _what, _run, _kind, ...) \
    {.name = _name, .what = _what " of a transport (-x)", .run = _run, .kind = PERF_KIND_##_kind, \
     .size_min = 1, .open = perf_uct_open, .is_uct = 1, __VA_ARGS__}

const perf_op_t perf_ops[] = {
    LIMIT("line", "a cache line bounced between two cores", perf_limit_line),
    LIMIT("ring", "a message through a bare slot ring", perf_limit_ring,
          .size_max = PERF_RING_MESSAGE_MAX),
    LIMIT("ring stream", "messages streamed through that ring", perf_limit_ring_stream,
          .size_max = PERF_RING_MESSAGE_MAX, .follower_times = 1),
    LIMIT("memcpy", "memcpy by one core, the other idle", perf_limit_memcpy),
    LIMIT("reader", "process_vm_readv by the receiver", perf_limit_reader),
    LIMIT("both", "both processes copy half each", perf_limit_both),
    LIMIT("copy", "one copy by the driver, polled for", perf_limit_device_copy),
    LIMIT("batch", "copies by one call of the driver", perf_limit_device_batch, .window = 64),

    LATENCY("tag_lat", "tag matching latency", perf_tag_latency, UCP_FEATURE_TAG),
    STREAM("tag_bw", "tag matching bandwidth", perf_tag_stream, UCP_FEATURE_TAG),
    {.name = "tag_rate", .what = "tag matching message rate", .run = perf_tag_stream,
     .kind = PERF_KIND_RATE, .features = UCP_FEATURE_TAG, .window = 64, .follower_times = 1},
    {.name = "tag_bi_bw", .what = "tag matching bandwidth of both directions at once",
     .run = perf_tag_exchange, .kind = PERF_KIND_BANDWIDTH, .features = UCP_FEATURE_TAG,
     .window = 64},
    LATENCY("tag_sync_lat", "synchronous tag latency", perf_tag_sync_latency, UCP_FEATURE_TAG),
    STREAM("tag_sync_bw", "synchronous tag bandwidth", perf_tag_sync_stream, UCP_FEATURE_TAG),
    LATENCY("ucp_am_lat", "active message latency", perf_am_latency, UCP_FEATURE_AM,
            .open = perf_am_open),
    STREAM("ucp_am_bw", "active message bandwidth", perf_am_stream, UCP_FEATURE_AM,
           .open = perf_am_open),
    LATENCY("stream_lat", "stream latency", perf_bytes_latency, UCP_FEATURE_STREAM,
            .size_min = 1, .open = perf_bytes_open),
    STREAM("stream_bw", "stream bandwidth", perf_bytes_stream, UCP_FEATURE_STREAM,
           .size_min = 1, .open = perf_bytes_open),
    LATENCY("ucp_put_lat", "put latency", perf_put_latency, UCP_FEATURE_RMA, .size_min = 1),
    ONE_SIDED("ucp_put_bw", "put bandwidth, flushed", perf_put_stream, 64),
    ONE_SIDED("ucp_get", "get latency, bandwidth with -O", perf_get, 1),
    ATOMIC("ucp_add", "atomic add rate", perf_atomic_add, 64),
    ATOMIC("ucp_fadd", "atomic fetch-and-add", perf_atomic_fadd, 1),
    ATOMIC("ucp_swap", "atomic swap", perf_atomic_swap, 1),
    ATOMIC("ucp_cswap", "atomic compare-and-swap", perf_atomic_cswap, 1),
    LATENCY("ofi_lat", "latency of libfabric without the library", perf_ofi_latency, 0,
            .size_min = 1, .open = perf_ofi_open),
    STREAM("ofi_bw", "bandwidth of libfabric without the library", perf_ofi_stream, 0,
           .size_min = 1, .open = perf_ofi_open),
    UCT("am_lat", "active message latency", perf_uct_am_latency, LATENCY),
    UCT("am_bw", "active message bandwidth", perf_uct_am_stream, BANDWIDTH, .window = 64,
        .follower_times = 1),
    UCT("put_lat", "put latency", perf_uct_put_latency, LATENCY),
    UCT("put_bw", "put bandwidth", perf_uct_put, BANDWIDTH, .window = 64, .one_sided = 1),
    UCT("get", "get latency, with -O bandwidth", perf_uct_get, BANDWIDTH, .window = 1,
        .one_sided = 1),
    UCT("get_bw", "get bandwidth", perf_uct_get, BANDWIDTH, .window = 64, .one_sided = 1),
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

    for (i = 0; i < perf_op_count; ++i) {
        if (strcmp(perf_ops[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int perf_op_find_test(const char *name)
{
    const int op = perf_op_find(name);

    return ((op >= 0) && (perf_ops[op].kind != PERF_KIND_LIMIT)) ? op : -1;
}

const char *perf_op_refusal(const perf_op_t *op, const perf_params_t *params)
{
    const uint32_t flags   = params->flags;
    const int on_device    = perf_memory_any_device(params->memory);
    const int is_plain     = (op->features == 0); /* without the library */
    const int in_pieces    = (flags & (PERF_FLAG_SEND_IOV | PERF_FLAG_RECV_IOV)) != 0;
    const int is_one_sided = (op->features & UCP_FEATURE_RMA) != 0;
    const struct {
        int         is_so;
        const char *why;
    } reasons[] = {
        {is_plain && on_device, "it reads its buffers by the processor"},
        {(op->run == perf_put_latency) && on_device,
         "it polls its buffers by the processor (ucp_put_bw does not)"},
        {(op->run == perf_put_latency) && (flags & PERF_FLAG_SLEEP),
         "option -E: what a put has written wakes nobody"},
        {op->is_uct && (params->transport[0] == '\0'),
         "it wants a transport, such as -x mm (ucx_info -d)"},
        {!op->is_uct && (params->transport[0] != '\0'),
         "option -x belongs to tests of a transport by itself (am_lat, put_bw, ...); those of ucp "
         "are chosen by UCX_TLS"},
        {op->is_uct && in_pieces, "option -D: it takes short, bcopy or zcopy"},
        {!op->is_uct && (params->way != PERF_UCT_NO_WAY),
         "option -D: short, bcopy and zcopy belong to tests of a transport (-x)"},
        {op->is_uct && (params->am_header != 0) && (params->am_header != 8),
         "option -H: a transport's header has 8 bytes, of those of the message"},
        {is_plain && (in_pieces || (flags & PERF_FLAG_SLEEP) || (params->threads > 1)),
         "it is run by one thread, which polls (options -T, -E, -D)"},
        {op->one_sided && (flags & PERF_FLAG_VALIDATE),
         "option -V: it moves no messages that a receiver could check"},
        {!(op->features & UCP_FEATURE_TAG) && (flags & (PERF_FLAG_UNEXPECTED | PERF_FLAG_WILDCARD)),
         "options -U and -C belong to tag tests"},
        {(op->run == perf_tag_exchange) && (flags & PERF_FLAG_UNEXPECTED),
         "option -U: it receives before it sends"},
        {!op->one_sided && (flags & PERF_FLAG_PASSIVE), "option -o belongs to one-sided tests"},
        {!(op->features & UCP_FEATURE_AM) && (flags & PERF_FLAG_AM_COPY),
         "option -y belongs to active messages"},
        {!(op->features & UCP_FEATURE_AM) && !op->is_uct && (params->am_header != 0),
         "option -H belongs to active messages"},
        {(params->variants > 1) && (is_plain || is_one_sided || in_pieces),
         "protocols can be forced for contiguous messages only"},
        {is_one_sided && in_pieces, "option -D: it takes contiguous memory only"},
    };
    unsigned i;

    if ((op->run == perf_limit_device_copy) || (op->run == perf_limit_device_batch)) {
        return on_device ? NULL : "it copies memory of devices";
    }
    if (op->kind == PERF_KIND_LIMIT) {
        return on_device ? reasons[0].why : NULL;
    }
    for (i = 0; (i < sizeof(reasons) / sizeof(reasons[0])) && !reasons[i].is_so; ++i) {
    }
    return (i < sizeof(reasons) / sizeof(reasons[0])) ? reasons[i].why : NULL;
}
