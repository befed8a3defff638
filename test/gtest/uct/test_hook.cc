/* Halyard: tests of the hooks: that they do what they say, and only that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <ucp/world.h>
#include <ucs/debug/log.h>

#include <cstdarg>
#include <cstring>
#include <map>

using namespace uct_test;

namespace {

class hook_test : public testing::Test {
protected:
    void set(const std::string &name, const std::string &value)
    {
        m_environment.set({{"UCX_HOOK_" + name, value}});
    }

    void open(const char *name)
    {
        m_worker = std::make_unique<worker>(uct_tl_find(name));
        ASSERT_EQ(UCS_OK, m_worker->status());
        m_ep = m_worker->connect(m_worker->where());
    }

    worker &w()
    {
        return *m_worker;
    }

    ucs_status_t send_one(uint64_t number = 0)
    {
        return m_ep->ops->am_short(m_ep, 1, number, nullptr, 0);
    }

    std::unique_ptr<worker> m_worker;
    uct_ep_t *m_ep = nullptr;
    ucp_test::environment m_environment;
};

TEST_F(hook_test, fault_refuses_as_often_as_told_and_repeats_itself)
{
    std::vector<std::vector<ucs_status_t>> runs;

    set("NO_RESOURCE", "0.25");
    for (const char *seed : {"5", "5", "6"}) {
        set("SEED", seed);
        open("fault:self");
        runs.emplace_back();
        unsigned refused = 0;
        for (unsigned i = 0; i < 4000; ++i) {
            runs.back().push_back(send_one());
            refused += (runs.back().back() == UCS_ERR_NO_RESOURCE);
            w().progress();
        }
        EXPECT_GT(refused, 800u);
        EXPECT_LT(refused, 1200u);
    }
    EXPECT_EQ(runs[0], runs[1]);
    EXPECT_NE(runs[0], runs[2]);
}

TEST_F(hook_test, fault_fails_the_operation_it_was_told)
{
    set("NO_RESOURCE", "0");
    set("FAIL_OP", "5");
    set("FAIL_STATUS", "timeout");
    open("fault:self");
    for (unsigned i = 1; i < 5; ++i) {
        ASSERT_EQ(UCS_OK, send_one());
    }
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, send_one());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, send_one());
    EXPECT_TRUE(run_until({&w()}, [&]() { return !w().failed.empty(); }));
    EXPECT_EQ(1u, w().failed.size());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, w().failed[0].second);
}

TEST_F(hook_test, a_wrong_address_fails_one_operation_only)
{
    set("NO_RESOURCE", "0");
    set("FAIL_OP", "2");
    set("FAIL_STATUS", "address");
    open("fault:self");
    EXPECT_EQ(UCS_OK, send_one());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, send_one());
    EXPECT_EQ(UCS_OK, send_one());
    EXPECT_EQ(UCT_EP_LIVE, m_ep->state);
}

TEST_F(hook_test, fault_kills_the_endpoint_after_as_many_operations)
{
    unsigned received = 0;

    set("NO_RESOURCE", "0");
    set("DEATH", "7");
    open("fault:self");
    w().on_message(1, [&](const uint8_t *, size_t) { ++received; });
    for (unsigned i = 0; i < 7; ++i) {
        ASSERT_EQ(UCS_OK, send_one());
    }
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, send_one());
    EXPECT_TRUE(run_until({&w()}, [&]() { return !w().failed.empty(); }));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, w().failed[0].second);
    EXPECT_EQ(7u, received) << "what was accepted arrives";
}

TEST_F(hook_test, fault_refuses_connections)
{
    set("CONNECT_FAIL", "1");
    open("fault:self");
    EXPECT_EQ(UCS_ERR_UNREACHABLE, send_one());
    EXPECT_EQ(UCT_EP_FAILED, m_ep->state);
    EXPECT_TRUE(run_until({&w()}, [&]() { return !w().failed.empty(); }));
}

TEST_F(hook_test, delay_holds_messages_back_in_order)
{
    std::vector<uint64_t> received;

    set("DELAY", "10");
    open("delay:self");
    w().on_message(1, [&](const uint8_t *data, size_t length) {
        uint64_t number;
        ASSERT_EQ(sizeof(number), length);
        memcpy(&number, data, length);
        received.push_back(number);
    });
    ASSERT_EQ(UCS_OK, send_one(0));
    for (unsigned i = 0; i < 5; ++i) {
        w().progress();
    }
    ASSERT_EQ(UCS_OK, send_one(1));
    ASSERT_EQ(UCS_OK, send_one(2));
    for (unsigned i = 0; i < 5; ++i) {
        w().progress();
        EXPECT_TRUE(received.empty());
    }
    w().progress();
    EXPECT_EQ((std::vector<uint64_t>{0}), received);
    EXPECT_EQ(UCS_ERR_BUSY, w().tl->iface.event_arm(w().iface));
    for (unsigned i = 0; i < 5; ++i) {
        w().progress();
    }
    EXPECT_EQ((std::vector<uint64_t>{0, 1, 2}), received);
    EXPECT_EQ(UCS_OK, w().tl->iface.event_arm(w().iface));
}

TEST_F(hook_test, delay_completes_copies_later)
{
    uint64_t target = 0, value = 42;
    uct_iov_t iov   = {&value, sizeof(value), nullptr};
    completion put, flush;

    set("DELAY", "4");
    open("delay:self");
    ASSERT_EQ(UCS_INPROGRESS,
              m_ep->ops->put_zcopy(m_ep, &iov, 1, reinterpret_cast<uintptr_t>(&target), nullptr,
                                   &put.base));
    ASSERT_EQ(UCS_INPROGRESS, m_ep->ops->flush(m_ep, &flush.base));
    for (unsigned i = 0; i < 3; ++i) {
        w().progress();
        EXPECT_EQ(0, put.calls);
        EXPECT_EQ(0u, target);
    }
    w().progress();
    EXPECT_EQ(1, put.calls);
    EXPECT_EQ(1, flush.calls);
    EXPECT_EQ(UCS_OK, put.base.status);
    EXPECT_EQ(42u, target);
}

TEST_F(hook_test, delayed_copies_of_a_closed_endpoint_are_cancelled)
{
    uint64_t target = 0, value = 42;
    uct_iov_t iov   = {&value, sizeof(value), nullptr};
    completion first, second;

    open("delay:self");
    ASSERT_EQ(UCS_INPROGRESS,
              m_ep->ops->put_zcopy(m_ep, &iov, 1, reinterpret_cast<uintptr_t>(&target), nullptr,
                                   &first.base));
    w().close(m_ep);
    EXPECT_TRUE(run_until({&w()}, [&]() { return first.calls == 1; }));
    EXPECT_EQ(UCS_ERR_CANCELED, first.base.status);
    EXPECT_EQ(0u, target);

    m_ep = w().connect(w().where());
    ASSERT_EQ(UCS_INPROGRESS,
              m_ep->ops->put_zcopy(m_ep, &iov, 1, reinterpret_cast<uintptr_t>(&target), nullptr,
                                   &second.base));
    m_worker.reset();
    EXPECT_EQ(1, second.calls) << "the interface ends what it holds";
    EXPECT_EQ(UCS_ERR_CANCELED, second.base.status);
}

unsigned g_lines;

ucs_log_func_rc_t count_lines(const char *, unsigned, const char *, ucs_log_level_t,
                              const ucs_log_component_config_t *, const char *format, va_list args)
{
    char text[512];

    vsnprintf(text, sizeof(text), format, args);
    g_lines += (strstr(text, "am_short of 0 bytes") != nullptr);
    return UCS_LOG_FUNC_RC_STOP;
}

TEST_F(hook_test, trace_writes_a_line_an_operation)
{
    log_levels shown("warn,hook=debug");
    open("trace:self");
    g_lines = 0;
    ucs_log_push_handler(count_lines);
    for (unsigned i = 0; i < 25; ++i) {
        EXPECT_EQ(UCS_OK, send_one());
    }
    ucs_log_pop_handler();
    EXPECT_EQ(25u, g_lines);
}

} // namespace
