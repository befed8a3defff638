/* Halyard: protocol selection.
 *
 * The cost of a protocol is a sum of the lanes' linear terms: a message costs its overhead and
 * latency and its bytes; a rendezvous adds the messages of its hand-shake to its copy. The lower
 * envelope over the sizes is found by probing sizes in steps of a quarter of an octave: costs are
 * linear, so between two probes with the same winner there is no other one that would matter.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/proto/proto.h>
#include <ucp/wire/wire.h>
#include <ucs/debug/log.h>
#include <math.h>

const char *const ucp_proto_names[UCP_PROTO_LAST] = {
    [UCP_PROTO_EAGER]     = "eager",
    [UCP_PROTO_RNDV_GET]  = "rndv/get",
    [UCP_PROTO_RNDV_PUT]  = "rndv/put",
    [UCP_PROTO_RNDV_BOTH] = "rndv/both",
    [UCP_PROTO_RNDV_AM]   = "rndv/am"
};

#define UCP_PROTO_CLAIM_MOVES 4 /* times that the claim word changes caches in a short transfer */

/* What lanes have to offer for a protocol; bits. */
enum {
    UCP_PROTO_NEEDS_GET  = 1,
    UCP_PROTO_NEEDS_PUT  = 2,
    UCP_PROTO_NEEDS_SYNC = 4
};

/* One row: what it takes, and what it costs. */
typedef struct {
    unsigned needs;
    double (*time_ns)(const ucp_proto_config_t *config, double length);
    ucp_rndv_scheme_t scheme; /* the option's value that asks for it; AUTO: not a rendezvous */
} ucp_proto_row_t;

static double ucp_proto_copy_ns(const uct_limits_t *limits, double length)
{
    return limits->overhead_ns + limits->latency_ns + (length / limits->bytes_per_ns);
}

static double ucp_proto_message_ns(const ucp_proto_config_t *config, double length)
{
    return ucp_proto_copy_ns(&config->lanes.am, length);
}

static double ucp_proto_eager_ns(const ucp_proto_config_t *config, double length)
{
    return (length > (double)config->eager_max) ? INFINITY : ucp_proto_message_ns(config, length);
}

static double ucp_proto_get_ns(const ucp_proto_config_t *config, double length)
{
    return ucp_proto_message_ns(config, UCP_WIRE_RTS_LEN) +
           ucp_proto_copy_ns(&config->lanes.get, length) +
           config->lanes.am.overhead_ns; /* of ATS: its latency is not waited for */
}

static double ucp_proto_put_ns(const ucp_proto_config_t *config, double length)
{
    return ucp_proto_message_ns(config, UCP_WIRE_RTS_LEN) +
           ucp_proto_message_ns(config, sizeof(ucp_wire_rtr_t)) +
           ucp_proto_copy_ns(&config->lanes.put, length) +
           ucp_proto_message_ns(config, sizeof(ucp_wire_fin_t));
}

/* Both copy at the same time; together they end when half of what they do one after the other is
 * done. Beside the messages, the word that they claim by goes to and fro between their caches. */
static double ucp_proto_both_ns(const ucp_proto_config_t *config, double length)
{
    double copies = (ucp_proto_copy_ns(&config->lanes.get, length) +
                     ucp_proto_copy_ns(&config->lanes.put, length)) /
                    2;
    double start  = config->lanes.get.overhead_ns / 2; /* not halved: each side pays its own */

    return ucp_proto_message_ns(config, UCP_WIRE_RTS_LEN) +
           ucp_proto_message_ns(config, sizeof(ucp_wire_rtr_t)) + start + (copies / 2) +
           ucp_proto_message_ns(config, sizeof(ucp_wire_fin_t)) +
           (UCP_PROTO_CLAIM_MOVES * config->lanes.am.latency_ns);
}

static double ucp_proto_am_ns(const ucp_proto_config_t *config, double length)
{
    double pieces = ceil(length / (double)(config->eager_max - sizeof(ucp_wire_data_t)));

    return ucp_proto_message_ns(config, UCP_WIRE_RTS_LEN) +
           ucp_proto_message_ns(config, sizeof(ucp_wire_rtr_t)) +
           ucp_proto_message_ns(config, length) + (pieces * config->lanes.am.overhead_ns);
}

static const ucp_proto_row_t ucp_proto_rows[UCP_PROTO_LAST] = {
    [UCP_PROTO_EAGER]     = {0, ucp_proto_eager_ns, UCP_RNDV_SCHEME_AUTO},
    [UCP_PROTO_RNDV_GET]  = {UCP_PROTO_NEEDS_GET, ucp_proto_get_ns, UCP_RNDV_SCHEME_GET},
    [UCP_PROTO_RNDV_PUT]  = {UCP_PROTO_NEEDS_PUT, ucp_proto_put_ns, UCP_RNDV_SCHEME_PUT},
    [UCP_PROTO_RNDV_BOTH] = {UCP_PROTO_NEEDS_GET | UCP_PROTO_NEEDS_PUT | UCP_PROTO_NEEDS_SYNC,
                             ucp_proto_both_ns, UCP_RNDV_SCHEME_BOTH},
    [UCP_PROTO_RNDV_AM]   = {0, ucp_proto_am_ns, UCP_RNDV_SCHEME_AM}
};

/* Why a protocol cannot be used, or NULL. */
static const char *ucp_proto_lacks(const ucp_proto_lanes_t *lanes, unsigned needs)
{
    if (((needs & UCP_PROTO_NEEDS_GET) && (lanes->get.max == 0)) ||
        ((needs & UCP_PROTO_NEEDS_PUT) && (lanes->put.max == 0))) {
        return lanes->copy_reason;
    }
    return ((needs & UCP_PROTO_NEEDS_SYNC) && !lanes->has_sync) ?
           "the lane for messages has no words that both sides can claim by" : NULL;
}

double ucp_proto_time_ns(const ucp_proto_config_t *config, ucp_proto_id_t proto, size_t length)
{
    return ucp_proto_rows[proto].time_ns(config, (double)length);
}

/* The cheapest usable row for a size; `first`: EAGER, or RNDV_GET to leave eager out. */
static ucp_proto_id_t ucp_proto_best(const ucp_proto_config_t *config, const uint8_t *usable,
                                     ucp_proto_id_t first, size_t length)
{
    ucp_proto_id_t best = UCP_PROTO_RNDV_AM;
    double best_ns      = INFINITY;
    ucp_proto_id_t proto;
    double time_ns;

    for (proto = first; proto < UCP_PROTO_LAST; ++proto) {
        time_ns = usable[proto] ? ucp_proto_time_ns(config, proto, length) : INFINITY;
        if (time_ns < best_ns) {
            best    = proto;
            best_ns = time_ns;
        }
    }
    return best;
}

/* Next size to probe; ends with SIZE_MAX. */
static size_t ucp_proto_next_size(size_t size)
{
    return (size < 64) ? size + 16 : (size > ((size_t)1 << 40)) ? SIZE_MAX : size + (size / 4);
}

static unsigned ucp_proto_ranges(const ucp_proto_config_t *config, const uint8_t *usable,
                                 ucp_proto_id_t first, ucp_proto_range_t *ranges)
{
    const int forced = (first == UCP_PROTO_EAGER) && (config->rndv_thresh != UCS_CONFIG_AUTO_SIZE);
    unsigned count   = 0;
    ucp_proto_id_t proto;
    size_t size, next;

    for (size = 0;; size = next) {
        proto = (forced && (size < config->rndv_thresh) && (size <= config->eager_max)) ?
                UCP_PROTO_EAGER :
                ucp_proto_best(config, usable, forced ? UCP_PROTO_RNDV_GET : first, size);
        next  = ucp_proto_next_size(size);
        /* Do not step over the ends of what one message can carry and of what the user has set. */
        if ((size < config->eager_max) && (next > config->eager_max)) {
            next = config->eager_max;
        } else if (size == config->eager_max) {
            next = config->eager_max + 1;
        }
        if ((size < config->rndv_thresh) && (next > config->rndv_thresh)) {
            next = config->rndv_thresh;
        }

        if ((count > 0) && ((ranges[count - 1].proto == proto) || (count == UCP_PROTO_RANGES))) {
            ranges[count - 1].max = next - 1;
        } else {
            ranges[count].proto  = proto;
            ranges[count].forced = forced;
            ranges[count].max    = next - 1;
            ++count;
        }
        if (size == SIZE_MAX) {
            ranges[count - 1].max = SIZE_MAX;
            return count;
        }
    }
}

static int ucp_proto_is_used(const ucp_proto_range_t *ranges, unsigned count, ucp_proto_id_t proto)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        if (ranges[i].proto == proto) {
            return 1;
        }
    }
    return 0;
}

/* A get or put by messages: one asks or brings, one answers. */
static double ucp_proto_rma_am_ns(const ucp_proto_config_t *config, double length)
{
    double pieces = ceil(length / (double)(config->eager_max - sizeof(ucp_wire_put_t)));

    return ucp_proto_message_ns(config, sizeof(ucp_wire_get_t)) +
           ucp_proto_message_ns(config, length) + (pieces * config->lanes.am.overhead_ns);
}

static const uct_limits_t *ucp_proto_rma_limits(const ucp_proto_config_t *config, int is_put)
{
    static const uct_limits_t none;

    return !config->lanes.has_reads ? &none : is_put ? &config->lanes.write : &config->lanes.get;
}

/* Costs are linear: what pays at a size pays at all above it. */
static size_t ucp_proto_rma_min(const ucp_proto_config_t *config, int is_put)
{
    const uct_limits_t *limits = ucp_proto_rma_limits(config, is_put);
    size_t size                = (limits->max > 0) ? 1 : SIZE_MAX;

    while ((size < SIZE_MAX) && (ucp_proto_copy_ns(limits, (double)size) >=
                                 ucp_proto_rma_am_ns(config, (double)size))) {
        size = ucp_proto_next_size(size);
    }
    return size;
}

void ucp_proto_config_fill(ucp_proto_config_t *config, const ucp_options_t *options)
{
    uint8_t usable[UCP_PROTO_LAST];
    ucp_proto_id_t proto;
    const char *reason;

    config->rndv_thresh = config->lanes.is_net ? options->rndv_thresh.inter :
                                                 options->rndv_thresh.intra;
    config->eager_max =
        ucs_min(config->lanes.am.max - sizeof(ucp_wire_eager_t), (size_t)UCP_WIRE_EAGER_MAX);
    config->zcopy_min = (config->lanes.zcopy.max == 0) ? SIZE_MAX :
                        (options->zcopy_thresh != UCS_CONFIG_AUTO_SIZE) ?
                        ucs_max(options->zcopy_thresh, (size_t)1) : config->lanes.zcopy.min;
    for (proto = 0; proto < UCP_PROTO_LAST; ++proto) {
        reason = ucp_proto_lacks(&config->lanes, ucp_proto_rows[proto].needs);
        if ((reason == NULL) && (options->rndv_scheme != UCP_RNDV_SCHEME_AUTO) &&
            (proto != UCP_PROTO_EAGER) && (options->rndv_scheme != ucp_proto_rows[proto].scheme)) {
            reason = "switched off by UCX_RNDV_SCHEME";
        }
        usable[proto] = (reason == NULL);
        snprintf(config->reason[proto], UCT_REASON_MAX, "%s", (reason == NULL) ? "" : reason);
    }

    config->num_send = ucp_proto_ranges(config, usable, UCP_PROTO_EAGER, config->send);
    config->num_recv = ucp_proto_ranges(config, usable, UCP_PROTO_RNDV_GET, config->recv);
    config->ways =
        (config->lanes.has_sync && usable[UCP_PROTO_RNDV_GET] && usable[UCP_PROTO_RNDV_AM]) ?
        (1u << UCP_WAY_READ) | ((unsigned)usable[UCP_PROTO_RNDV_BOTH] << UCP_WAY_BOTH) |
        (1u << UCP_WAY_MESSAGES) : 0;
    for (proto = 0; proto < UCP_PROTO_LAST; ++proto) {
        if (usable[proto] && !ucp_proto_is_used(config->send, config->num_send, proto)) {
            snprintf(config->reason[proto], UCT_REASON_MAX, "slower than the others at every size");
        }
    }
    config->rma_min[0] = ucp_proto_rma_min(config, 0);
    config->rma_min[1] = ucp_proto_rma_min(config, 1);
}

/* ---- what is learned ---- */

static const char *const ucp_learned_names[UCP_LEARNED_LAST] = {
    [UCP_LEARNED_ANNOUNCED] = "announced messages",
    [UCP_LEARNED_GET]       = "gets",
    [UCP_LEARNED_PUT]       = "puts"
};

static const char *ucp_proto_way_name(ucp_learned_t what, ucp_way_t way)
{
    return (what == UCP_LEARNED_ANNOUNCED) ? ucp_proto_names[ucp_proto_of_way(way)] :
           (way == UCP_WAY_MESSAGES) ? "messages" : "copies";
}

/* What a way has reached in an octave of messages of `length` bytes. */
static const char *ucp_proto_rate(const ucp_learn_octave_t *octave, ucp_way_t way, size_t length,
                                  char text[24])
{
    const double bytes_per_ns = (double)octave->rate[way];

    if (ucp_learn_octave(length) == 0) {
        snprintf(text, 24, "%.2f M/s", bytes_per_ns / (double)UCP_LEARN_SHORT * 1e3);
    } else {
        snprintf(text, 24, "%.1f GB/s", bytes_per_ns);
    }
    return text;
}

static ucp_way_t ucp_proto_predict_way(const ucp_proto_config_t *config, ucp_learned_t what,
                                       size_t length)
{
    ucp_proto_id_t proto;

    if (what != UCP_LEARNED_ANNOUNCED) {
        return (length < UCP_LEARN_MIN) ? UCP_WAY_MESSAGES : UCP_WAY_READ;
    }
    proto = ucp_proto_lookup(config->recv, length);
    return (proto == UCP_PROTO_RNDV_GET) ? UCP_WAY_READ :
           (proto == UCP_PROTO_RNDV_BOTH) ? UCP_WAY_BOTH : UCP_WAY_MESSAGES;
}

ucp_way_t ucp_proto_learned(ucp_proto_config_t *config, ucp_learned_t what, int is_near,
                            size_t length, ucp_learn_t **learn_p, ucp_learn_turn_t *turn)
{
    const unsigned ways = (what == UCP_LEARNED_ANNOUNCED) ?
                          config->ways : (1u << UCP_WAY_READ) | (1u << UCP_WAY_MESSAGES);
    const ucp_way_t predicted        = ucp_proto_predict_way(config, what, length);
    ucp_learn_t *learn               = &config->learn[what][is_near];
    const ucp_learn_octave_t *octave = &learn->octaves[ucp_learn_octave(length)];
    const ucp_way_t before           = octave->way;
    char now_rate[24], rate[24];
    int is_changed;
    ucp_way_t way;

    way = ucp_learn_choose(learn, length, ways, predicted, &is_changed);
    if (ucs_unlikely(is_changed)) {
        ucs_info("%s from %zu bytes on%s go by %s from now on: at %s, by %s at %s",
                 ucp_learned_names[what], ucp_learn_octave_min(ucp_learn_octave(length)),
                 is_near ? " of peers behind our cache" : "", ucp_proto_way_name(what, way),
                 ucp_proto_rate(octave, way, length, now_rate), ucp_proto_way_name(what, before),
                 ucp_proto_rate(octave, before, length, rate));
    }
    ucp_learn_begin(learn, turn, ucs_max(length, UCP_LEARN_SHORT), way);
    *learn_p = learn;
    return way;
}

/* ---- the explanation ---- */

/* A lane, with the terms that costs are made of. */
static void ucp_proto_explain_lane(ucs_report_t *report, const char *role, const char *transport,
                                   const uct_limits_t *limits)
{
    if (limits->max > 0) {
        ucs_report_data(report, "role transport max overhead_ns latency_ns bytes_per_ns",
                        "%s%s%zu%f%f%f", role, transport, limits->max, limits->overhead_ns,
                        limits->latency_ns, limits->bytes_per_ns);
    }
}

/* Begins the object of one protocol; what it has for an operation stands in it. */
static void ucp_proto_explain_open(ucs_report_t *report, const char *operation, const char *memory)
{
    ucs_report_open(report, NULL, '{');
    ucs_report_data(report, "operation memory datatype", "%s%s%s", operation, memory, "contig");
}

static void ucp_proto_explain_range(const ucp_proto_config_t *config,
                                    const ucp_proto_range_t *range, size_t from,
                                    ucs_report_t *report)
{
    int is_message = (range->proto == UCP_PROTO_EAGER) || (range->proto == UCP_PROTO_RNDV_AM);
    size_t span    = ucs_min(range->max - from, (size_t)1 << 20);
    double from_ns = ucp_proto_time_ns(config, range->proto, from);
    char to[24]    = "inf";

    if (range->max < SIZE_MAX) {
        snprintf(to, sizeof(to), "%zu", range->max);
    }
    ucp_proto_explain_open(report, "send", "host");
    ucs_report_row(report, "min - protocol predicted_us - forced?",
                   "# %12zu..%s %s: predicted %.2f us at %zu%s\n", from, to,
                   ucp_proto_names[range->proto], from_ns / 1e3, from,
                   range->forced ? " (UCX_RNDV_THRESH)" : "");
    ucs_report_data(report, "max transport ns_per_byte", "%zu%s%f", range->max,
                    is_message ? config->lanes.am_name : config->lanes.copy_name,
                    (ucp_proto_time_ns(config, range->proto, from + span) - from_ns) /
                        (double)span);
    ucs_report_close(report);
}

/* What has been learned so far, an octave of sizes a line. */
static void ucp_proto_explain_learned(const ucp_proto_config_t *config, ucp_learned_t what,
                                      int is_near, ucs_report_t *report)
{
    const char *subject = (what == UCP_LEARNED_ANNOUNCED) ? "" : ucp_learned_names[what];
    const ucp_learn_octave_t *octave;
    char to[24], others[96], rate[24];
    ucp_way_t way;
    size_t length;
    unsigned i;

    for (i = 0; i < UCP_LEARN_OCTAVES; ++i) {
        octave = &config->learn[what][is_near].octaves[i];
        length = 0;
        for (way = 0; way < UCP_WAYS; ++way) {
            if ((way != octave->way) && (octave->rate[way] > 0)) {
                length += (size_t)snprintf(others + length, sizeof(others) - length, ", %s %s",
                                           ucp_proto_way_name(what, way),
                                           ucp_proto_rate(octave, way, ucp_learn_octave_min(i),
                                                          rate));
            }
        }
        if ((octave->rate[octave->way] > 0) && (length > 0)) {
            snprintf(to, sizeof(to), "%zu", ucp_learn_octave_min(i + 1) - 1);
            ucs_report_text(report, "# %12zu..%s %s%s%s%s: measured %s%s\n",
                            ucp_learn_octave_min(i), (i + 1 < UCP_LEARN_OCTAVES) ? to : "inf",
                            subject, (subject[0] == '\0') ? "" : " by ",
                            ucp_proto_way_name(what, octave->way),
                            is_near ? " (peers behind one cache)" : "",
                            ucp_proto_rate(octave, octave->way, ucp_learn_octave_min(i), rate),
                            others);
        }
    }
}

/* Gets and puts over a network; other lanes map the memory or copy it. */
static void ucp_proto_explain_rma(const ucp_proto_config_t *config, int is_put,
                                  ucs_report_t *report)
{
    const uct_limits_t *limits = ucp_proto_rma_limits(config, is_put);
    const char *name           = is_put ? "put" : "get";
    size_t min                 = config->rma_min[is_put];

    ucp_proto_explain_open(report, name, "host");
    ucs_report_data(report, "protocol transport min max", "%s%s%d%zu", "messages",
                    config->lanes.am_name, 0, (min < SIZE_MAX) ? min - 1 : min);
    ucs_report_close(report);
    ucp_proto_explain_open(report, name, "host");
    ucs_report_data(report, "protocol", "%s", name);
    if (min < SIZE_MAX) {
        ucs_report_row(report, "- min transport predicted_us",
                       "# %12s by messages, from %zu bytes on by %s: predicted %.2f us\n", name,
                       min, config->lanes.am_name, ucp_proto_copy_ns(limits, (double)min) / 1e3);
        ucs_report_data(report, "max ns_per_byte", "%zu%f", SIZE_MAX, 1 / limits->bytes_per_ns);
    } else {
        ucs_report_row(report, "- transport reason", "# %12s by messages: %s %s\n", name,
                       config->lanes.am_name,
                       (limits->max == 0) ? "has none of its own" : "is slower at every size");
    }
    ucs_report_close(report);
}

static void ucp_proto_explain_devices(const ucp_proto_lanes_t *lanes, ucs_report_t *report)
{
    if (lanes->device_name != NULL) {
        ucp_proto_explain_open(report, "send", "cuda");
        ucs_report_row(report, "protocol transport", "# %12s by %s, between device memory\n",
                       "rndv/device", lanes->device_name);
        ucs_report_close(report);
    }
    if (lanes->has_device_reads) {
        ucp_proto_explain_open(report, "send", "cuda");
        ucs_report_row(report, "protocol transport",
                       "# %12s by %s, from and to device memory, where messages are announced\n",
                       ucp_proto_names[UCP_PROTO_RNDV_GET], lanes->am_name);
        ucs_report_close(report);
    }
}

void ucp_proto_explain(const ucp_proto_config_t *config, ucs_report_t *report)
{
    const ucp_proto_lanes_t *lanes = &config->lanes;
    ucp_learned_t what;
    ucp_proto_id_t proto;
    unsigned i;
    int is_put;

    ucs_report_text(report,
                    "# tagged messages from host memory: messages by %s, single copy by %s\n",
                    lanes->am_name, (lanes->copy_name == NULL) ? "none" : lanes->copy_name);
    ucs_report_open(report, "lanes", '[');
    ucp_proto_explain_lane(report, "messages", lanes->am_name, &lanes->am);
    if (config->zcopy_min < SIZE_MAX) {
        ucs_report_data(report, "role transport min max", "%s%s%zu%zu", "messages not copied",
                        lanes->am_name, config->zcopy_min, lanes->zcopy.max);
    }
    ucp_proto_explain_lane(report, "reads", lanes->copy_name, &lanes->get);
    ucp_proto_explain_lane(report, "writes", lanes->copy_name,
                           lanes->has_reads ? &lanes->write : &lanes->put);
    ucs_report_close(report);
    ucs_report_open(report, "devices", '[');
    uct_report_choice(report, lanes->am_choice, "#               ");
    ucs_report_close(report);
    ucs_report_open(report, "rails", '[');
    for (i = 0; i < UCT_RAILS_MAX; ++i) {
        uct_report_choice(report, lanes->rail_choice[i], "#     rndv/get parts also by ");
    }
    ucs_report_close(report);

    ucs_report_open(report, "protocols", '[');
    for (i = 0; i < config->num_send; ++i) {
        ucp_proto_explain_range(config, &config->send[i],
                                (i == 0) ? 0 : config->send[i - 1].max + 1, report);
    }
    if (config->zcopy_min <= config->eager_max) {
        ucs_report_text(report, "# %12s from %zu bytes on from where they lie, not copied first\n",
                        ucp_proto_names[UCP_PROTO_EAGER], config->zcopy_min);
    }
    if (lanes->has_long && (config->eager_max < UCP_WIRE_EAGER_MAX)) {
        ucs_report_text(report, "# %12s up to %d bytes to whoever has buffers for it, where "
                        "processes wait for processors or UCX_RNDV_THRESH says so; active messages "
                        "and windows of streams up to %d bytes; tagged ones up to %d bytes to who "
                        "has sent none since, or while receives wait (up to %d by how many), and "
                        "all to who has found messages faster (up to %d where no receive waits)\n",
                        ucp_proto_names[UCP_PROTO_EAGER], UCP_WIRE_EAGER_MAX,
                        UCP_PROTO_LIGHT_MAX, UCP_PROTO_UNASKED_ANY, UCP_PROTO_UNASKED_MAX,
                        UCP_PROTO_WHOLE_MAX);
    }
    for (what = 0; what < UCP_LEARNED_LAST; ++what) {
        ucp_proto_explain_learned(config, what, 0, report);
        ucp_proto_explain_learned(config, what, 1, report);
    }
    ucp_proto_explain_devices(lanes, report);
    for (proto = 0; proto < UCP_PROTO_LAST; ++proto) {
        if (config->reason[proto][0] != '\0') {
            ucp_proto_explain_open(report, "send", "host");
            ucs_report_row(report, "protocol reason", "# %12s not used: %s\n",
                           ucp_proto_names[proto], config->reason[proto]);
            ucs_report_close(report);
        }
    }
    for (is_put = 0; lanes->is_net && (is_put < 2); ++is_put) {
        ucp_proto_explain_rma(config, is_put, report);
    }
    ucs_report_close(report);
}
