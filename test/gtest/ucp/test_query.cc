/* Halyard: tests of the queries and texts that test_context.cc and test_ep.cc do not reach: masks,
 * fields of an older header, names of requests, and texts that clients parse.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/device/ucp_host.h>
#include <ucp/world.h>

#include <cstdlib>
#include <cstring>
#include <regex>

using namespace ucp_test;

namespace {

/* Bytes that a query must not touch, and the query's own. */
template <typename Attr>
struct padded {
    Attr attr;
    uint8_t after[64];

    explicit padded(uint64_t mask)
    {
        memset(static_cast<void *>(this), 0xee, sizeof(*this));
        attr.field_mask = mask;
    }
    /* Everything behind `used` bytes is as it was, and so is the mask. */
    bool is_intact(uint64_t mask, size_t used) const
    {
        const auto *bytes = reinterpret_cast<const uint8_t *>(this);
        for (size_t i = used; i < sizeof(*this); ++i) {
            if (bytes[i] != 0xee) {
                return false;
            }
        }
        return attr.field_mask == mask;
    }
};

class query : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, query, testing::ValuesIn(some_variants()), variant_name);

/* A program of 1.13 has shorter structures: what its mask cannot name is not there. */
TEST_P(query, structures_of_an_older_header_are_not_overrun)
{
    pair pair(GetParam());
    const uint64_t context_mask = UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_THREAD_MODE |
                                  UCP_ATTR_FIELD_MEMORY_TYPES | UCP_ATTR_FIELD_NAME;
    padded<ucp_context_attr_t> context_attr(context_mask);
    EXPECT_EQ(UCS_OK, ucp_context_query(pair.ctx().handle(), &context_attr.attr));
    EXPECT_TRUE(context_attr.is_intact(context_mask, 64));
    EXPECT_TRUE(context_attr.attr.memory_types & 1);

    padded<ucp_ep_attr_t> ep_attr(UCP_EP_ATTR_FIELD_NAME);
    EXPECT_EQ(UCS_OK, ucp_ep_query(pair.ep(), &ep_attr.attr));
    EXPECT_TRUE(ep_attr.is_intact(UCP_EP_ATTR_FIELD_NAME, 40));

    padded<ucp_worker_attr_t> worker_attr(UCP_WORKER_ATTR_FIELD_THREAD_MODE);
    EXPECT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &worker_attr.attr));
    EXPECT_TRUE(worker_attr.is_intact(UCP_WORKER_ATTR_FIELD_THREAD_MODE, 12));
    EXPECT_EQ(GetParam().mode, worker_attr.attr.thread_mode);

    padded<ucp_lib_attr_t> lib_attr(UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL);
    EXPECT_EQ(UCS_OK, ucp_lib_query(&lib_attr.attr));
    EXPECT_EQ(UCS_THREAD_MODE_MULTI, lib_attr.attr.max_thread_level);
    EXPECT_TRUE(lib_attr.is_intact(UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL, 12));
}

TEST_P(query, nothing_asked_nothing_said)
{
    pair pair(GetParam());
    padded<ucp_context_attr_t> context_attr(0);
    EXPECT_EQ(UCS_OK, ucp_context_query(pair.ctx().handle(), &context_attr.attr));
    EXPECT_TRUE(context_attr.is_intact(0, 8));
    padded<ucp_worker_attr_t> worker_attr(0);
    EXPECT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &worker_attr.attr));
    EXPECT_TRUE(worker_attr.is_intact(0, 8));
    padded<ucp_ep_attr_t> ep_attr(0);
    EXPECT_EQ(UCS_OK, ucp_ep_query(pair.ep(), &ep_attr.attr));
    EXPECT_TRUE(ep_attr.is_intact(0, 8));
    padded<ucp_lib_attr_t> lib_attr(0);
    EXPECT_EQ(UCS_OK, ucp_lib_query(&lib_attr.attr));
    EXPECT_TRUE(lib_attr.is_intact(0, 8));
}

TEST_P(query, request_texts)
{
    pair pair(GetParam());
    ucp_worker_attr_t worker_attr;
    worker_attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING;
    ASSERT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &worker_attr));
    const bytes data(100);
    bytes got(100);
    const ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *send    = pair.send(data.data(), data.size(), 0xabcdef, true);
    void *receive = pair.receive(got.data(), got.size(), 0x123456);
    void *flush   = ucp_ep_flush_nbx(pair.ep(), &param);
    const struct {
        void *request;
        const char *what;
    } all[] = {{send, "tag send"}, {send, "abcdef"}, {receive, "tag receive"}, {receive, "123456"},
               {flush, "flush"}};
    for (const auto &each : all) {
        ASSERT_TRUE(UCS_PTR_IS_PTR(each.request));
        for (size_t room : {worker_attr.max_debug_string, size_t(5), size_t(1)}) {
            bytes text(room + 16, 0xee);
            ucp_request_attr_t attr;
            memset(&attr, 0xee, sizeof(attr));
            attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING |
                              UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE |
                              UCP_REQUEST_ATTR_FIELD_STATUS;
            attr.debug_string      = reinterpret_cast<char *>(text.data());
            attr.debug_string_size = room;
            ASSERT_EQ(UCS_OK, ucp_request_query(each.request, &attr));
            EXPECT_EQ(UCS_INPROGRESS, attr.status);
            const size_t length = strnlen(attr.debug_string, room);
            EXPECT_LT(length, room) << "not terminated";
            EXPECT_EQ(0xee, text[room]) << "written behind its end";
            if (room == worker_attr.max_debug_string) {
                EXPECT_LT(length, room - 1) << "cut: max_debug_string is too small";
                EXPECT_NE(nullptr, strstr(attr.debug_string, each.what)) << attr.debug_string;
            }
        }
    }
    ucp_request_cancel(pair.receiver().handle(), receive);
    ucp_request_free(receive);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(got.data(), got.size(), 0xabcdef)));
    EXPECT_EQ(UCS_OK, pair.wait(send));
    EXPECT_EQ(UCS_OK, pair.wait(flush));
}

/* Open MPI reads one line a resource with this very format, into 128 bytes. */
TEST_P(query, context_text_as_open_mpi_reads_it)
{
    pair pair(GetParam());
    const std::string text =
        printed([&](FILE *stream) { ucp_context_print_info(pair.ctx().handle(), stream); });
    unsigned count = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end       = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        char name[128]         = "";
        EXPECT_LT(line.size(), 128u) << line;
        if (sscanf(line.c_str(), "# resource %*d : md %*d dev %*d flags -- %127s", name) == 1) {
            EXPECT_NE(nullptr, strchr(name, '/')) << line;
            ++count;
        }
        at = end + 1;
    }
    EXPECT_GE(count, 1u) << text;
}

TEST_P(query, texts_have_whole_lines)
{
    pair pair(GetParam());
    const std::string texts[] = {
        printed([&](FILE *stream) { ucp_worker_print_info(pair.sender().handle(), stream); }),
        printed([&](FILE *stream) { ucp_ep_print_info(pair.ep(), stream); })};
    for (const std::string &text : texts) {
        ASSERT_FALSE(text.empty());
        EXPECT_EQ('#', text.front());
        EXPECT_EQ('\n', text.back());
    }
}

TEST_P(query, time_grows_with_the_size)
{
    pair pair(GetParam());
    ucp_ep_evaluate_perf_param_t param;
    ucp_ep_evaluate_perf_attr_t attr;
    double before    = 0;
    param.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
    attr.field_mask  = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
    for (size_t size : {size_t(1) << 10, size_t(1) << 16, size_t(1) << 20, size_t(1) << 26}) {
        param.message_size = size;
        ASSERT_EQ(UCS_OK, ucp_ep_evaluate_perf(pair.ep(), &param, &attr));
        EXPECT_GT(attr.estimated_time, before);
        EXPECT_LT(attr.estimated_time, 10.0);
        before = attr.estimated_time;
    }
}

/* mercury looks at the bits that it has set. */
TEST_P(query, masks_are_left_alone)
{
    constexpr uint64_t LATER = 1ull << 62; /* a field of a later header */
    pair pair(GetParam());
    const bytes address = pair.receiver().address();
    ucp_transport_entry_t entries[8];
    ucp_ep_attr_t ep_attr;
    const uint64_t ep_mask = LATER | UCP_EP_ATTR_FIELD_NAME | UCP_EP_ATTR_FIELD_USER_DATA |
                             UCP_EP_ATTR_FIELD_TRANSPORTS;
    ep_attr.field_mask     = ep_mask;
    ep_attr.transports     = {entries, 8, sizeof(entries[0])};
    EXPECT_EQ(UCS_OK, ucp_ep_query(pair.ep(), &ep_attr));
    EXPECT_EQ(ep_mask, ep_attr.field_mask);

    ucp_ep_evaluate_perf_param_t perf_param = {UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE, 8};
    ucp_ep_evaluate_perf_attr_t perf        = {LATER | UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME, 0};
    EXPECT_EQ(UCS_OK, ucp_ep_evaluate_perf(pair.ep(), &perf_param, &perf));
    EXPECT_EQ(LATER | UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME, perf.field_mask);

    ucp_worker_address_attr_t uid;
    uid.field_mask = LATER | UCP_WORKER_ADDRESS_ATTR_FIELD_UID;
    bytes copy     = address;
    EXPECT_EQ(UCS_OK, ucp_worker_address_query(reinterpret_cast<ucp_address_t *>(copy.data()),
                                               &uid));
    EXPECT_EQ(LATER | UCP_WORKER_ADDRESS_ATTR_FIELD_UID, uid.field_mask);

    ucp_datatype_attr_t dt_attr;
    dt_attr.field_mask = LATER | UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE;
    EXPECT_EQ(UCS_OK, ucp_dt_query(ucp_dt_make_contig(8), &dt_attr));
    EXPECT_EQ(LATER | UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE, dt_attr.field_mask);

    ucp_context_attr_t context_attr;
    context_attr.field_mask = LATER | UCP_ATTR_FIELD_REQUEST_SIZE;
    EXPECT_EQ(UCS_OK, ucp_context_query(pair.ctx().handle(), &context_attr));
    EXPECT_EQ(LATER | UCP_ATTR_FIELD_REQUEST_SIZE, context_attr.field_mask);

    ucp_worker_attr_t worker_attr;
    worker_attr.field_mask = LATER | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    EXPECT_EQ(UCS_OK, ucp_worker_query(pair.sender().handle(), &worker_attr));
    EXPECT_EQ(LATER | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER, worker_attr.field_mask);
}

/* Which provider of libfabric is used, and why another is not: that of the first round is switched
 * off in the second one. */
TEST(query_network, texts_name_the_provider_and_why_not_the_others)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    variant over_ofi{
        "ofi", {{"UCX_TLS", "ofi"}, {"UCX_PROTO_INFO", "y"}}, false, UCS_THREAD_MODE_SINGLE};
    std::string refused;
    for (unsigned round = 0; round < 2; ++round) {
        testing::internal::CaptureStdout();
        std::string texts[3], device;
        {
            pair pair(over_ofi);
            ucp_transport_entry_t entry = {};
            ucp_ep_attr_t attr;
            attr.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
            attr.transports = {&entry, 1, sizeof(entry)};
            EXPECT_EQ(UCS_OK, ucp_ep_query(pair.ep(), &attr));
            EXPECT_STREQ("ofi", entry.transport_name);
            device   = entry.device_name;
            texts[0] = printed(
                [&](FILE *stream) { ucp_worker_print_info(pair.sender().handle(), stream); });
            texts[1] = printed([&](FILE *stream) { ucp_ep_print_info(pair.ep(), stream); });
        }
        texts[2] = testing::internal::GetCapturedStdout();
        for (const std::string &text : texts) {
            std::smatch used;
            ASSERT_TRUE(std::regex_search(text, used, std::regex("\n# +(\\S+) on (\\S+)\n")))
                << text;
            EXPECT_NE(refused, used[1].str()) << text;
            EXPECT_EQ(device, used[2].str()) << "what programs that ask the endpoint are told";
            if (!refused.empty()) {
                EXPECT_TRUE(std::regex_search(text, std::regex("\n# +not " + refused + " on \\S+: "
                                                               "switched off by "
                                                               "UCX_OFI_PROVIDER\n"))) << text;
            }
            if ((round == 0) && (&text == &texts[2])) {
                refused = used[1].str();
            }
        }
        over_ofi.env.push_back({"UCX_OFI_PROVIDER", "^" + refused});
    }
}

/* Programs ask by a call whether GPUs can start transfers, and do without where they cannot. */
TEST(query_device, transfers_that_gpus_start_are_not_supported)
{
    ucp_device_mem_list_params_t list   = {};
    ucp_device_counter_params_t counter = {};
    ucp_device_local_mem_list_h local   = nullptr;
    ucp_device_remote_mem_list_h remote = nullptr;
    context_options options;
    options.features = UCP_FEATURE_RMA | UCP_FEATURE_DEVICE;
    log_catcher log; /* the feature itself does no harm */
    context context(options);
    worker worker(context);
    ucp_context_attr_t attr;

    EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucp_device_local_mem_list_create(&list, &local));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucp_device_remote_mem_list_create(&list, &remote));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucp_device_counter_init(worker.handle(), &counter, &attr));
    EXPECT_EQ(nullptr, local);
    EXPECT_EQ(nullptr, remote);
    EXPECT_EQ(0u, ucp_device_get_mem_list_length(nullptr));
    ucp_device_mem_list_release(nullptr);
    attr.field_mask = UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE;
    EXPECT_EQ(UCS_OK, ucp_context_query(context.handle(), &attr));
    EXPECT_EQ(0u, attr.device_counter_size);
}

TEST(query_version, each_part_may_be_left_out)
{
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, nullptr, nullptr);
    ucp_get_version(nullptr, &minor, nullptr);
    ucp_get_version(nullptr, nullptr, &release);
    EXPECT_EQ(std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release),
              ucp_get_version_string());
    EXPECT_EQ(1u, major);
    EXPECT_GE(minor, 13u);
}

} // namespace
