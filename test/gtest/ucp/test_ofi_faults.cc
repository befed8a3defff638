/* Halyard: tests of messages over a libfabric that makes trouble (uct/faulty_provider.h): what the
 * program does not have to know of is not seen but for the time that it takes; after errors that
 * break a connection each operation ends once, and nothing is left.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <mp/processes.h>
#include <seed.h>
#include <ucp/world.h>
#include <uct/faulty_provider.h>
#include <uct/world.h>

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace ucp_test;
using uct_test::faulty_provider;

namespace {

constexpr unsigned SLOTS    = 40; /* messages under way in each direction */
constexpr unsigned ROUNDS   = 10; /* pairs of workers, one after the other */
constexpr auto     PATIENCE = std::chrono::seconds(20);

struct trouble {
    const char *name;
    faulty_provider::traits says;
    faulty_provider::rates faults;
    unsigned messages;
    std::vector<size_t faulty_provider::counts::*> expected; /* what must have happened */
};

void PrintTo(const trouble &value, std::ostream *out)
{
    *out << value.name;
}

/* A message under way. */
struct slot {
    bytes in, out;
    size_t length   = 0;
    uint64_t number = 0;
    bool is_used    = false;
    ending sent, received;
    void *receive   = nullptr;
};

class side {
public:
    explicit side(const context &context) : worker(context)
    {
    }

    ucp_test::worker worker;
    ucp_ep_h ep      = nullptr;
    bool has_failed  = false;
    slot slots[SLOTS];
};

void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    auto *self = static_cast<side *>(arg);

    EXPECT_EQ(self->ep, ep);
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
    EXPECT_FALSE(self->has_failed);
    self->has_failed = true;
}

class traffic {
public:
    explicit traffic(seeded_random &rnd) : m_rnd(rnd)
    {
        connect(0);
        connect(1);
    }

    /* Sends so many both ways, until one fails; checks them. */
    void run(unsigned count)
    {
        unsigned started = 0;
        m_failed = false;
        while (!m_failed && !testing::Test::HasFailure()) {
            for (unsigned i = 0; i < 2 * SLOTS; ++i) {
                slot &each = m_sides[i % 2].slots[i / 2];
                if (!each.is_used && (started < count)) {
                    start(i % 2, each);
                    ++started;
                }
            }
            if (!wait([this]() { return finish() || m_failed; })) {
                return;
            }
            if ((started == count) && (num_used() == 0)) {
                return;
            }
        }
    }

    /* After a failure: what is under way ends. */
    void end()
    {
        for (side &each : m_sides) {
            close(each);
        }
        for (side &each : m_sides) {
            for (slot &s : each.slots) {
                if (s.is_used && (s.received.calls == 0)) {
                    ucp_request_cancel(other(each).worker.handle(), s.receive);
                }
            }
        }
        wait([this]() {
            finish();
            return num_used() == 0;
        });
    }

    bool has_failed() const
    {
        return m_failed;
    }

    void expect_clean()
    {
        EXPECT_TRUE(wait([this]() {
            return (ucp_test_num_requests(m_sides[0].worker.handle()) == 0) &&
                   (ucp_test_num_requests(m_sides[1].worker.handle()) == 0);
        }));
    }

private:
    void connect(unsigned index)
    {
        side &self      = m_sides[index];
        self.has_failed = false;
        self.ep         = self.worker.connect(m_sides[1 - index].worker, UCP_ERR_HANDLING_MODE_PEER,
                                              on_failure, &self);
    }

    void close(side &self)
    {
        ucp_request_param_t param = {};

        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags        = UCP_EP_CLOSE_FLAG_FORCE;
        self.worker.forget(self.ep);
        void *request = ucp_ep_close_nbx(self.ep, &param);
        EXPECT_FALSE(UCS_PTR_IS_ERR(request));
        if (UCS_PTR_IS_PTR(request)) {
            EXPECT_TRUE(wait([request]() {
                return ucp_request_check_status(request) != UCS_INPROGRESS;
            }));
            ucp_request_free(request);
        }
    }

    side &other(side &self)
    {
        return m_sides[(&self == &m_sides[0]) ? 1 : 0];
    }

    size_t length()
    {
        const uint64_t dice = m_rnd.below(1000);

        return (dice < 3)   ? m_rnd.below(1u << 20) :
               (dice < 15)  ? m_rnd.below(1u << 16) :
               (dice < 100) ? m_rnd.below(5000) : m_rnd.below(300);
    }

    void start(unsigned index, slot &each)
    {
        side &from = m_sides[index], &to = m_sides[1 - index];

        each.is_used = true;
        each.number  = ++m_number;
        each.length  = length();
        each.in.resize(each.length + 1);
        each.in.back() = 0xa5;
        each.out.resize(each.length);
        fill(each.out.data(), each.length, each.number);
        each.sent                  = ending();
        each.received              = ending();
        each.received.free_request = false;
        if (m_rnd.one_in(2)) { /* else it is unexpected, perhaps */
            receive(to, each);
            send(from, each);
        } else {
            send(from, each);
            receive(to, each);
        }
    }

    void send(side &from, slot &each)
    {
        const ucp_request_param_t param = send_param(&each.sent);

        ended_at_once(&each.sent, ucp_tag_send_nbx(from.ep, each.out.data(), each.length,
                                                   each.number, &param));
    }

    void receive(side &to, slot &each)
    {
        const ucp_request_param_t param = receive_param(&each.received,
                                                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL);

        each.receive = ucp_tag_recv_nbx(to.worker.handle(), each.in.data(), each.length,
                                        each.number, ~0ull, &param);
        EXPECT_TRUE(UCS_PTR_IS_PTR(each.receive));
    }

    static void ended_at_once(ending *end, ucs_status_ptr_t ptr)
    {
        if (!UCS_PTR_IS_PTR(ptr)) {
            EXPECT_EQ(0, end->calls);
            end->calls  = 1;
            end->status = UCS_PTR_RAW_STATUS(ptr);
        }
    }

    /* Whether any message has ended. */
    bool finish()
    {
        bool any = false;

        for (side &self : m_sides) {
            m_failed |= self.has_failed;
            for (slot &each : self.slots) {
                if (!each.is_used || (each.sent.calls == 0) || (each.received.calls == 0)) {
                    continue;
                }
                check(each);
                ucp_request_free(each.receive);
                each.is_used = false;
                any          = true;
            }
        }
        return any;
    }

    void check(const slot &each)
    {
        EXPECT_EQ(1, each.sent.calls);
        EXPECT_EQ(1, each.received.calls);
        EXPECT_EQ(0xa5, each.in.back());
        if (each.received.status == UCS_OK) {
            EXPECT_EQ(each.length, each.received.info.length);
            EXPECT_EQ(0, memcmp(each.in.data(), each.out.data(), each.length))
                << "message " << each.number << ", " << each.length << " bytes: differs at "
                << differs(each.in.data(), each.length, each.number);
        }
        m_failed |= (each.sent.status != UCS_OK) || (each.received.status != UCS_OK);
    }

    unsigned num_used() const
    {
        unsigned count = 0;

        for (const side &self : m_sides) {
            count += static_cast<unsigned>(std::count_if(
                std::begin(self.slots), std::end(self.slots),
                [](const slot &each) { return each.is_used; }));
        }
        return count;
    }

    template <typename condition_t>
    bool wait(const condition_t &condition)
    {
        const auto end  = std::chrono::steady_clock::now() + PATIENCE;
        unsigned rounds = 0;

        while (!condition()) {
            m_sides[0].worker.progress();
            m_sides[1].worker.progress();
            if (((++rounds % 256) == 0) && (std::chrono::steady_clock::now() > end)) {
                ADD_FAILURE() << "what is waited for does not come; " << num_used()
                              << " messages are under way";
                return false;
            }
        }
        return true;
    }

    seeded_random &m_rnd;
    context m_context;
    side m_sides[2]   = {side(m_context), side(m_context)};
    uint64_t m_number = 0;
    bool m_failed     = false;
};

class ofi_trouble : public testing::TestWithParam<trouble> {
protected:
    void SetUp() override
    {
        if (!is_present("ofi")) {
            GTEST_SKIP() << "no libfabric here";
        }
        m_environment.set({{"UCX_TLS", "ofi"},
                           {"UCX_RNDV_THRESH", "8k"},
                           {"UCX_ZCOPY_THRESH", "4k"}});
        m_expected          = GetParam().expected;
        const auto gathered = std::find(m_expected.begin(), m_expected.end(),
                                        &faulty_provider::counts::gathered);
        if ((gathered != m_expected.end()) && !uct_test::network_has(UCT_OP_AM_ZCOPY)) {
            m_expected.erase(gathered);
        }
        const auto reads = &faulty_provider::counts::reads;
        if ((std::count(m_expected.begin(), m_expected.end(), reads) > 0) &&
            !uct_test::network_has(UCT_OP_GET_ZCOPY)) {
            GTEST_SKIP() << "the network has no reads and writes, or they are not used";
        }
    }

    bool has_seen_all(const faulty_provider &provider) const
    {
        return std::all_of(m_expected.begin(), m_expected.end(), [&](const auto member) {
            return provider.seen.*member > 0;
        });
    }

    void expect_seen(const faulty_provider &provider) const
    {
        for (const auto member : m_expected) {
            EXPECT_LT(0u, provider.seen.*member);
        }
    }

    environment m_environment;
    log_catcher m_log;
    std::vector<size_t faulty_provider::counts::*> m_expected;
};

std::string trouble_name(const testing::TestParamInfo<trouble> &info)
{
    return info.param.name;
}

trouble make(const char *name, unsigned messages,
             std::vector<size_t faulty_provider::counts::*> expected,
             const std::function<void(faulty_provider::traits &, faulty_provider::rates &)> &set)
{
    trouble result = {name, {}, {}, messages, std::move(expected)};

    set(result.says, result.faults);
    return result;
}

using counts = faulty_provider::counts;
using traits = faulty_provider::traits;
using rates  = faulty_provider::rates;

/* ---- what nobody has to know of ---- */

class ofi_hidden_trouble : public ofi_trouble {};

TEST_P(ofi_hidden_trouble, all_arrives)
{
    seeded_random rnd(61);
    faulty_provider provider(rnd.bits());

    provider.says   = GetParam().says;
    provider.faults = GetParam().faults;
    {
        traffic both(rnd);
        unsigned goes = 0;
        do { /* when what is said again, and may be lost, is up to the clock */
            both.run(static_cast<unsigned>(GetParam().messages / mp::slowness()));
        } while (!both.has_failed() && !has_seen_all(provider) && (++goes < 20));
        EXPECT_FALSE(both.has_failed());
        both.expect_clean();
    }
    expect_seen(provider);
}

INSTANTIATE_TEST_SUITE_P(
    all, ofi_hidden_trouble,
    testing::Values(
        make("none", 100000, {&counts::reads, &counts::gathered}, [](traits &, rates &) {}),
        make("storms", 100000, {&counts::again, &counts::gathered},
             [](traits &, rates &faults) { faults.storm = 20; }),
        make("late_completions", 100000, {&counts::held, &counts::gathered},
             [](traits &, rates &faults) { faults.hold = 2; }),
        make("queues_of_16", 100000, {&counts::reads, &counts::gathered},
             [](traits &says, rates &) { says.queue = 16; }),
        make("a_buffer_a_message", 100000, {&counts::held, &counts::again},
             [](traits &says, rates &faults) {
                 says.single  = true;
                 says.queue   = 16;
                 faults.hold  = 3;
                 faults.storm = 50;
             }),
        make("refusals", 100000, {&counts::refused, &counts::reads},
             [](traits &, rates &faults) { faults.refuse = 2; }),
        make("registered_buffers", 100000, {&counts::reads},
             [](traits &says, rates &) { says.registered = true; }),
        make("short_reads", 100000, {&counts::reads, &counts::cut, &counts::belied},
             [](traits &, rates &faults) {
                 faults.cut   = 3;
                 faults.belie = 10;
                 faults.spare = true;
             }),
        make("lost_controls", 100000, {&counts::swallowed, &counts::repeated},
             [](traits &, rates &faults) {
                 faults.swallow = 16;
                 faults.repeat  = 2;
                 faults.spare   = true;
             }),
        make("all_together", 100000,
             {&counts::again, &counts::held, &counts::refused, &counts::swallowed, &counts::cut,
              &counts::belied, &counts::repeated, &counts::reads},
             [](traits &says, rates &faults) {
                 says.queue      = 16;
                 says.registered = true;
                 faults.storm    = 50;
                 faults.refuse   = 2;
                 faults.hold     = 3;
                 faults.swallow  = 30;
                 faults.belie    = 15;
                 faults.cut      = 5;
                 faults.repeat   = 2;
                 faults.spare    = true;
             })),
    trouble_name);

/* ---- what breaks connections ---- */

class ofi_fatal_trouble : public ofi_trouble {};

TEST_P(ofi_fatal_trouble, everything_ends_once)
{
    seeded_random rnd(62);
    faulty_provider provider(rnd.bits());
    unsigned failures = 0;

    m_environment.set({{"UCX_OFI_TIMEOUT", "50ms"}});
    provider.says = GetParam().says;
    for (unsigned i = 0; (i < ROUNDS) && !HasFailure(); ++i) {
        traffic both(rnd);
        provider.faults = {};
        both.run(SLOTS);
        EXPECT_FALSE(both.has_failed());
        provider.faults = GetParam().faults;
        both.run(GetParam().messages / ROUNDS);
        if (both.has_failed()) {
            ++failures;
            both.end();
        }
        both.expect_clean();
    }
    EXPECT_LT(0u, failures);
    expect_seen(provider);
    m_log.take();
}

INSTANTIATE_TEST_SUITE_P(
    all, ofi_fatal_trouble,
    testing::Values(
        make("lost_messages", 20000, {&counts::swallowed},
             [](traits &, rates &faults) { faults.swallow = 300; }),
        make("false_errors", 20000, {&counts::belied},
             [](traits &, rates &faults) { faults.belie = 30; }),
        make("lost_receives", 20000, {&counts::spoiled},
             [](traits &, rates &faults) { faults.spoil = 300; }),
        make("errors_told_twice", 20000, {&counts::repeated},
             [](traits &says, rates &faults) {
                 says.single    = true;
                 faults.swallow = 100;
                 faults.belie   = 50;
                 faults.spoil   = 300;
                 faults.repeat  = 1;
             }),
        make("all_together", 20000, {&counts::repeated},
             [](traits &says, rates &faults) {
                 says.queue      = 16;
                 says.registered = true;
                 faults.storm    = 50;
                 faults.swallow  = 300;
                 faults.belie    = 100;
                 faults.cut      = 5;
                 faults.spoil    = 500;
                 faults.repeat   = 2;
             })),
    trouble_name);

} // namespace

#endif
