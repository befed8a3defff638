/* Halyard: tests of protocol selection: golden tables for lanes of known cost, and properties for
 * any.
 *
 * When a cost function is changed on purpose the golden tables change: a failing one prints what
 * is chosen now.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucp/api/ucp.h>
#include <ucp/world.h>
#include <ucs/config/parser.h>
#include <ucs/debug/report.h>
#include <ucs/sys/sys.h>
#include <uct/api/uct_tl.h>

extern "C" {
#include <tools/perf/costs.h>
#include <ucp/proto/proto.h>
}

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using ucp_test::printed;

namespace {

constexpr size_t AUTO = UCS_CONFIG_AUTO_SIZE;
constexpr size_t INF  = UCS_CONFIG_INF_SIZE;

uct_limits_t limits(size_t max, double overhead_ns, double latency_ns, double bytes_per_ns)
{
    uct_limits_t limits = {};
    limits.max          = max;
    limits.overhead_ns  = overhead_ns;
    limits.latency_ns   = latency_ns;
    limits.bytes_per_ns = bytes_per_ns;
    return limits;
}

/* Lanes as on the machine of the first measurements: shared memory with rings of 8 KiB, and the
 * kernel's single copy. */
ucp_proto_lanes_t lanes(size_t am_max, bool has_copy, bool has_sync)
{
    ucp_proto_lanes_t lanes = {};
    lanes.am                = limits(am_max, 20, 70, 9);
    lanes.has_sync          = has_sync;
    lanes.am_name           = "ring";
    if (has_copy) {
        lanes.copy_name = "copier";
        lanes.get = lanes.put = limits(SIZE_MAX, 1500, 0, 12);
    } else {
        snprintf(lanes.copy_reason, sizeof(lanes.copy_reason), "there is no copier");
    }
    return lanes;
}

ucp_options_t options(size_t threshold = AUTO, ucp_rndv_scheme_t scheme = UCP_RNDV_SCHEME_AUTO)
{
    ucp_options_t options = {};
    options.rndv_thresh   = {threshold, threshold};
    options.rndv_scheme   = scheme;
    return options;
}

std::string table(const ucp_proto_range_t *ranges, unsigned count)
{
    std::string text;
    for (unsigned i = 0; i < count; ++i) {
        text += (i > 0) ? " " : "";
        text +=
            std::string(ucp_proto_names[ranges[i].proto]) + (ranges[i].forced ? "!" : "") + "..";
        text += (ranges[i].max == SIZE_MAX) ? "inf" : std::to_string(ranges[i].max);
    }
    return text;
}

ucp_proto_config_t fill(const ucp_proto_lanes_t &lanes, const ucp_options_t &options)
{
    ucp_proto_config_t config = {};
    config.lanes              = lanes;
    ucp_proto_config_fill(&config, &options);
    return config;
}

/* What holds for any lanes and options. */
void check(const ucp_proto_config_t &config)
{
    const struct {
        const ucp_proto_range_t *ranges;
        unsigned count;
    } sides[]                 = {{config.send, config.num_send}, {config.recv, config.num_recv}};
    bool used[UCP_PROTO_LAST] = {};

    for (const auto &side : sides) {
        ASSERT_GE(side.count, 1u);
        ASSERT_LE(side.count, static_cast<unsigned>(UCP_PROTO_RANGES));
        for (unsigned i = 0; i < side.count; ++i) {
            if (i > 0) {
                ASSERT_GT(side.ranges[i].max, side.ranges[i - 1].max);
                ASSERT_NE(side.ranges[i].proto, side.ranges[i - 1].proto);
            }
            used[side.ranges[i].proto] = true;
            /* what is chosen can carry it */
            if (side.ranges[i].proto == UCP_PROTO_EAGER) {
                ASSERT_EQ(config.send, side.ranges) << "a receiver does not choose eager";
                ASSERT_LE(side.ranges[i].max, config.eager_max);
            }
        }
        ASSERT_EQ(SIZE_MAX, side.ranges[side.count - 1].max) << "every size has a protocol";
    }
    for (int proto = 0; proto < UCP_PROTO_LAST; ++proto) {
        ASSERT_LT(strnlen(config.reason[proto], UCT_REASON_MAX),
                  static_cast<size_t>(UCT_REASON_MAX));
        if (!used[proto]) {
            ASSERT_GT(strlen(config.reason[proto]), 0u) << ucp_proto_names[proto] << " is not used";
        }
    }
}

/* ---- golden tables ---- */

struct golden_row {
    const char *name;
    size_t am_max;
    bool has_copy, has_sync;
    size_t threshold;
    ucp_rndv_scheme_t scheme;
    const char *send, *recv;
};

void PrintTo(const golden_row &row, std::ostream *out)
{
    *out << row.name;
}

class proto : public testing::TestWithParam<golden_row> {};

/* Name, largest message, single copies, common words, UCX_RNDV_THRESH, UCX_RNDV_SCHEME; protocol
 * and last size of each range for sends and for receives ("!": by an option). */
const golden_row golden_rows[] = {
    {"all", 8192, true, true, AUTO, UCP_RNDV_SCHEME_AUTO,
     "eager..8184 rndv/am..24975 rndv/both..inf", "rndv/am..24975 rndv/both..inf"},
    {"no_common_words", 8192, true, false, AUTO, UCP_RNDV_SCHEME_AUTO,
     "eager..8184 rndv/am..48780 rndv/get..inf", "rndv/am..48780 rndv/get..inf"},
    {"messages_only", 8192, false, true, AUTO, UCP_RNDV_SCHEME_AUTO, "eager..8184 rndv/am..inf",
     "rndv/am..inf"},
    {"large_messages", 65536, true, true, AUTO, UCP_RNDV_SCHEME_AUTO,
     "eager..32657 rndv/both..inf", "rndv/am..26126 rndv/both..inf"},
    {"small_messages", 256, true, true, AUTO, UCP_RNDV_SCHEME_AUTO,
     "eager..248 rndv/am..13737 rndv/both..inf", "rndv/am..13737 rndv/both..inf"},
    {"get", 8192, true, true, AUTO, UCP_RNDV_SCHEME_GET, "eager..8184 rndv/get..inf",
     "rndv/get..inf"},
    {"put", 8192, true, true, AUTO, UCP_RNDV_SCHEME_PUT, "eager..8184 rndv/put..inf",
     "rndv/put..inf"},
    {"both", 8192, true, true, AUTO, UCP_RNDV_SCHEME_BOTH, "eager..8184 rndv/both..inf",
     "rndv/both..inf"},
    {"am", 8192, true, true, AUTO, UCP_RNDV_SCHEME_AM, "eager..8184 rndv/am..inf", "rndv/am..inf"},
    {"both_without_words", 8192, true, false, AUTO, UCP_RNDV_SCHEME_BOTH,
     "eager..8184 rndv/am..inf", "rndv/am..inf"},
    {"from_0", 8192, true, true, 0, UCP_RNDV_SCHEME_AUTO, "rndv/am!..24975 rndv/both!..inf",
     "rndv/am..24975 rndv/both..inf"},
    {"from_0_get", 8192, true, true, 0, UCP_RNDV_SCHEME_GET, "rndv/get!..inf", "rndv/get..inf"},
    {"from_1", 8192, true, true, 1, UCP_RNDV_SCHEME_AUTO,
     "eager!..0 rndv/am!..24975 rndv/both!..inf", "rndv/am..24975 rndv/both..inf"},
    {"from_1001", 8192, true, true, 1001, UCP_RNDV_SCHEME_AUTO,
     "eager!..1000 rndv/am!..24975 rndv/both!..inf", "rndv/am..24975 rndv/both..inf"},
    {"from_1001_am", 8192, true, true, 1001, UCP_RNDV_SCHEME_AM, "eager!..1000 rndv/am!..inf",
     "rndv/am..inf"},
    {"from_1m", 8192, true, true, 1048576, UCP_RNDV_SCHEME_AUTO,
     "eager!..8184 rndv/am!..24975 rndv/both!..inf", "rndv/am..24975 rndv/both..inf"},
    {"never", 8192, true, true, INF, UCP_RNDV_SCHEME_AUTO,
     "eager!..8184 rndv/am!..24975 rndv/both!..inf", "rndv/am..24975 rndv/both..inf"},
};

INSTANTIATE_TEST_SUITE_P(golden, proto, testing::ValuesIn(golden_rows),
                         [](const testing::TestParamInfo<golden_row> &info) {
                             return std::string(info.param.name);
                         });

TEST_P(proto, choice)
{
    const golden_row &row = GetParam();
    const ucp_proto_config_t config =
        fill(lanes(row.am_max, row.has_copy, row.has_sync), options(row.threshold, row.scheme));
    ASSERT_NO_FATAL_FAILURE(check(config));
    EXPECT_EQ(row.send, table(config.send, config.num_send)) << row.name;
    EXPECT_EQ(row.recv, table(config.recv, config.num_recv)) << row.name;
}

/* Of two thresholds the one of the peer's kind counts. */
TEST(proto_selection, thresholds_of_the_node_and_of_networks)
{
    ucp_options_t both = options();
    both.rndv_thresh   = {1001, 65};
    for (const int is_net : {0, 1}) {
        ucp_proto_lanes_t way           = lanes(8192, false, false);
        way.is_net                      = is_net;
        const ucp_proto_config_t config = fill(way, both);
        EXPECT_EQ(is_net ? 65u : 1001u, config.rndv_thresh);
        EXPECT_EQ(is_net ? "eager!..64 rndv/am!..inf" : "eager!..1000 rndv/am!..inf",
                  table(config.send, config.num_send));
    }
}

/* ---- properties ---- */

TEST(proto_selection, same_inputs_same_answer)
{
    const auto first  = fill(lanes(8192, true, true), options());
    const auto second = fill(lanes(8192, true, true), options());
    EXPECT_EQ(0, memcmp(&first, &second, sizeof(first)));
}

/* At every size what is chosen is about as fast as the best that may be chosen. */
TEST(proto_selection, no_usable_protocol_is_clearly_faster)
{
    seeded_random random(601);
    for (int round = 0; round < 300; ++round) {
        ucp_proto_lanes_t lanes = {};
        const auto any_cost     = [&](double low, double high) {
            return low * pow(high / low, static_cast<double>(random.below(1000)) / 1000);
        };
        lanes.am           = limits(64ul << random.below(12), any_cost(5, 2000), any_cost(10, 5000),
                                    any_cost(0.5, 50));
        lanes.am_name      = "a";
        lanes.copy_name    = "c";
        lanes.has_sync     = random.one_in(2);
        const bool has_get = random.one_in(2), has_put = random.one_in(2);
        if (has_get) {
            lanes.get = limits(SIZE_MAX, any_cost(100, 20000), any_cost(1, 1000), any_cost(1, 400));
        }
        if (has_put) {
            lanes.put = limits(SIZE_MAX, any_cost(100, 20000), any_cost(1, 1000), any_cost(1, 400));
        }
        snprintf(lanes.copy_reason, sizeof(lanes.copy_reason), "no such copy");
        const ucp_proto_config_t config = fill(lanes, options());
        ASSERT_NO_FATAL_FAILURE(check(config));

        for (double exponent = 0; exponent < 36; exponent += 0.37) {
            const size_t length = static_cast<size_t>(exp2(exponent));
            for (bool is_send : {true, false}) {
                const ucp_proto_id_t chosen =
                    ucp_proto_lookup(is_send ? config.send : config.recv, length);
                double best = INFINITY;
                for (int proto = is_send ? 0 : 1; proto < UCP_PROTO_LAST; ++proto) {
                    const bool usable =
                        ((proto != UCP_PROTO_RNDV_GET) || has_get) &&
                        ((proto != UCP_PROTO_RNDV_PUT) || has_put) &&
                        ((proto != UCP_PROTO_RNDV_BOTH) || (has_get && has_put && lanes.has_sync));
                    if (usable) {
                        best = std::min(
                            best,
                            ucp_proto_time_ns(&config, static_cast<ucp_proto_id_t>(proto), length));
                    }
                }
                ASSERT_LE(ucp_proto_time_ns(&config, chosen, length), best * 1.3)
                    << ucp_proto_names[chosen] << " at " << length << " in round " << round;
            }
        }
    }
}

TEST(proto_selection, thresholds_are_exact)
{
    for (size_t threshold : {1ul, 2ul, 15ul, 16ul, 17ul, 100ul, 1001ul, 8183ul, 8184ul}) {
        const ucp_proto_config_t config = fill(lanes(8192, true, true), options(threshold));
        ASSERT_NO_FATAL_FAILURE(check(config));
        ASSERT_EQ(8184u, config.eager_max);
        for (size_t length = 0; length <= config.eager_max + 2; ++length) {
            const bool eager = ucp_proto_lookup(config.send, length) == UCP_PROTO_EAGER;
            ASSERT_EQ(length < threshold && length <= config.eager_max, eager)
                << "threshold " << threshold << " length " << length;
        }
    }
}

/* What an option asks for and the lanes cannot do is replaced, and the text says why. */
TEST(proto_selection, a_scheme_without_its_lane)
{
    for (ucp_rndv_scheme_t scheme :
         {UCP_RNDV_SCHEME_GET, UCP_RNDV_SCHEME_PUT, UCP_RNDV_SCHEME_BOTH}) {
        const ucp_proto_config_t config = fill(lanes(8192, false, true), options(AUTO, scheme));
        ASSERT_NO_FATAL_FAILURE(check(config));
        EXPECT_EQ(UCP_PROTO_RNDV_AM, ucp_proto_lookup(config.send, 1 << 20));
        EXPECT_STREQ("there is no copier", config.reason[UCP_PROTO_RNDV_GET]);
    }
}

std::string explained(const ucp_proto_config_t &config, bool is_json)
{
    return printed([&](FILE *file) {
        ucs_report_t report;
        ucs_report_init(&report, file, is_json);
        ucs_report_open(&report, nullptr, '{');
        ucp_proto_explain(&config, &report);
        ucs_report_close(&report);
    });
}

TEST(proto_selection, explanation)
{
    ucp_proto_config_t config = fill(lanes(8192, true, false), options());
    const std::string all = explained(config, false), json = explained(config, true);
    size_t lines = 0;
    for (size_t start = 0; start < all.size(); ++lines) {
        EXPECT_EQ("# ", all.substr(start, 2));
        start = all.find('\n', start) + 1;
        ASSERT_NE(0u, start);
    }
    /* the lanes, the ranges, and a line for each protocol that is not used */
    size_t reasons = 0;
    for (int proto = 0; proto < UCP_PROTO_LAST; ++proto) {
        if (config.reason[proto][0] != '\0') {
            ++reasons;
            EXPECT_NE(std::string::npos,
                      all.find(std::string(ucp_proto_names[proto]) + " not used: "));
            EXPECT_NE(std::string::npos,
                      json.find("\"protocol\": \"" + std::string(ucp_proto_names[proto]) +
                                "\",\n      \"reason\": \"" + config.reason[proto] + "\""));
        }
    }
    EXPECT_EQ(1 + config.num_send + reasons, lines);
    EXPECT_NE(std::string::npos, all.find("ring"));
    EXPECT_NE(std::string::npos, all.find("copier"));
}

TEST(proto_selection, messages_that_are_not_copied)
{
    ucp_proto_lanes_t net = lanes(8192, true, false);
    ucp_options_t options = ::options();

    EXPECT_EQ(SIZE_MAX, fill(net, options).zcopy_min);
    EXPECT_EQ(std::string::npos, explained(fill(net, options), false).find("where they lie"));
    net.zcopy     = net.am;
    net.zcopy.min = 3000;
    for (const size_t size : {size_t(3000), size_t(100), size_t(9000)}) {
        options.zcopy_thresh = (size == 3000) ? UCS_CONFIG_AUTO_SIZE : size;
        const ucp_proto_config_t config = fill(net, options);
        const std::string number        = std::to_string(size);
        EXPECT_EQ(size, config.zcopy_min);
        EXPECT_EQ(size > config.eager_max,
                  explained(config, false).find("\n#        eager from " + number +
                                                " bytes on from where they lie") ==
                      std::string::npos);
        EXPECT_NE(std::string::npos,
                  explained(config, true).find("{\"role\": \"messages not copied\", "
                                               "\"transport\": \"ring\", \"min\": " + number));
    }
    options.zcopy_thresh = UCS_CONFIG_INF_SIZE;
    EXPECT_EQ(SIZE_MAX, fill(net, options).zcopy_min);
}

/* Devices, those that are not used with their reasons, and what is neither. */
TEST(proto_selection, devices_in_both_forms)
{
    ucp_proto_lanes_t net = lanes(8192, true, false);
    net.is_net            = 1;
    net.am_choice         = "tcp;ofi_rxm on mlx5_0:1\nnot net on eth0: slow: \"very\"\n"
                            "without writes: it is on none\n";
    net.rail_choice[1]    = "tcp;ofi_rxm on mlx5_1:1\n";
    const ucp_proto_config_t config = fill(net, options());
    const std::string text = explained(config, false), json = explained(config, true);
    for (const char *line : {"\n#               tcp;ofi_rxm on mlx5_0:1\n",
                             "\n#               not net on eth0: slow: \"very\"\n",
                             "\n#               without writes: it is on none\n",
                             "\n#     rndv/get parts also by tcp;ofi_rxm on mlx5_1:1\n",
                             "\n#          put by messages: ring has none of its own\n"}) {
        EXPECT_NE(std::string::npos, text.find(line)) << line << text;
    }
    EXPECT_NE(std::string::npos, json.find(
        "\"devices\": [\n"
        "    {\"provider\": \"tcp;ofi_rxm\", \"device\": \"mlx5_0:1\", \"reason\": \"\"},\n"
        "    {\"provider\": \"net\", \"device\": \"eth0\", \"reason\": "
        "\"slow: \\\"very\\\"\"},\n"
        "    {\"note\": \"without writes: it is on none\"}\n"
        "  ],\n"
        "  \"rails\": [\n"
        "    {\"provider\": \"tcp;ofi_rxm\", \"device\": \"mlx5_1:1\", \"reason\": \"\"}\n"
        "  ],\n")) << json;
    EXPECT_NE(std::string::npos, json.find("\"reason\": \"has none of its own\"")) << json;
}

std::string costs(const perf_line_fit_t &eager, const perf_line_fit_t &get)
{
    return printed([&](FILE *file) { perf_costs_print(&eager, &get, file); });
}

TEST(proto_costs, the_times_that_settings_predict_give_these_settings)
{
    ucp_proto_lanes_t known = lanes(10240, true, true);
    known.am                = limits(10240, 8, 143, 6.25); /* the overhead is no setting */
    known.get = known.put   = limits(SIZE_MAX, 1234, 0, 12.5);
    const ucp_proto_config_t config = fill(known, options());
    perf_line_fit_t eager = {}, get = {};

    for (size_t size = 8; size <= (16u << 20); size *= 2) {
        if (size <= config.eager_max) {
            perf_line_fit_add(&eager, size, ucp_proto_time_ns(&config, UCP_PROTO_EAGER, size));
        }
        perf_line_fit_add(&get, size, ucp_proto_time_ns(&config, UCP_PROTO_RNDV_GET, size));
    }
    const std::string mm = "UCX_MM_LATENCY=143ns\nUCX_MM_BW=6250MBs\n";
    const std::string cma = "UCX_CMA_OVERHEAD=1234ns\nUCX_CMA_BW=12500MBs\n";
    EXPECT_NE(std::string::npos, costs(eager, get).find(mm + cma)) << costs(eager, get);

    perf_line_fit_t none = {}, one = {}, falling = {};
    EXPECT_NE(std::string::npos, costs(eager, none).find(mm));
    EXPECT_EQ(std::string::npos, costs(eager, none).find("CMA"));
    EXPECT_EQ("", costs(none, get));
    perf_line_fit_add(&one, 8, 150);
    EXPECT_EQ("", costs(one, get)) << "one point is no line";
    perf_line_fit_add(&one, 8, 160);
    EXPECT_EQ("", costs(one, get)) << "nor are two of one size";
    perf_line_fit_add(&falling, 8, 200);
    perf_line_fit_add(&falling, 8000, 100);
    EXPECT_EQ("", costs(falling, get));
}

TEST(proto_costs, noise_of_a_tenth_changes_them_by_not_much_more)
{
    perf_line_fit_t fit = {};
    double ns, bytes_per_ns;

    for (size_t size = 8; size <= 8192; size *= 2) {
        const double noise = ((size / 8) % 3 == 1) ? 1.1 : 0.95;
        perf_line_fit_add(&fit, size, noise * (140 + (static_cast<double>(size) / 5)));
    }
    ASSERT_EQ(0, perf_line_fit_solve(&fit, &ns, &bytes_per_ns));
    EXPECT_NEAR(140, ns, 21);
    EXPECT_NEAR(5, bytes_per_ns, 0.75);
}

} // namespace
