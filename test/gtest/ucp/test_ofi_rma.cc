/* Halyard: tests of puts and gets that a network makes by itself, over a libfabric that makes
 * trouble (uct/faulty_provider.h): what is written and read is exact, whatever part of it went as
 * messages in the end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <mp/processes.h>
#include <seed.h>
#include <ucp/remote.h>
#include <uct/faulty_provider.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace ucp_test;
using uct_test::faulty_provider;

namespace {

constexpr unsigned AREAS   = 16; /* with one operation at a time in each */
constexpr size_t AREA_SIZE = 96 * 1024;
constexpr unsigned ROUNDS  = 6; /* pairs of workers, one after the other */

const settings ENV = {{"UCX_TLS", "ofi"}};
const way NETWORK  = {{"network", ENV, false, UCS_THREAD_MODE_SINGLE}, false, false};

const way TWO_DEVICES = {{"two devices",
                          {{"UCX_TLS", "ofi"}, {"UCX_OFI_PROVIDER", "net"},
                           {"UCX_NET_DEVICES", "fake0,fake1"}},
                          false, UCS_THREAD_MODE_SINGLE}, false, false};

using counts = faulty_provider::counts;

struct trouble {
    const char *name;
    faulty_provider::traits says;
    faulty_provider::rates faults;
    std::vector<size_t counts::*> expected; /* what must have happened */
};

void PrintTo(const trouble &value, std::ostream *out)
{
    *out << value.name;
}

/* Memory of the receiver against what it must hold. */
class model {
public:
    model(remote &target, seeded_random &rnd) : m_target(target), m_rnd(rnd), m_areas(AREAS)
    {
        m_bytes.resize(AREAS * AREA_SIZE);
        memset(target.data(), 0, m_bytes.size());
    }

    void run(unsigned count)
    {
        unsigned started = 0;
        m_target.world().progress_until([&]() {
            unsigned used = 0;
            for (area &each : m_areas) {
                if (each.is_used && (each.end.calls > 0)) {
                    finish(each);
                }
                if (!each.is_used && (started < count) && !testing::Test::HasFailure()) {
                    start(each);
                    ++started;
                }
                used += each.is_used;
            }
            return used == 0;
        });
    }

    /* A flush tells that all is there, without anybody's help. */
    void expect_exact()
    {
        EXPECT_EQ(0, memcmp(m_bytes.data(), m_target.data(), m_bytes.size()));
    }

    void forget()
    {
        for (area &each : m_areas) {
            if (each.is_used && each.is_put) {
                memcpy(place(each), each.data.data(), each.data.size());
            }
        }
    }

    /* Starts puts in all areas and returns while they are under way. */
    void start_puts()
    {
        for (area &each : m_areas) {
            start(each, true);
        }
    }

private:
    struct area {
        bool is_used = false;
        bool is_put  = false;
        size_t offset = 0;
        bytes data;
        ending end;
    };

    uint8_t *place(const area &each)
    {
        return m_bytes.data() + (static_cast<size_t>(&each - m_areas.data()) * AREA_SIZE) +
               each.offset;
    }

    void start(area &each, bool is_put)
    {
        const size_t length = 1 + m_rnd.below(m_rnd.one_in(4) ? 5000 : AREA_SIZE);

        each.is_used = true;
        each.is_put  = is_put;
        each.offset  = m_rnd.below(AREA_SIZE - length + 1);
        each.data    = pattern(m_rnd.bits(), length);
        each.end     = ending();
        const ucp_request_param_t param = send_param(&each.end);
        const uint64_t address = m_target.address(static_cast<size_t>(place(each) -
                                                                      m_bytes.data()));
        ucp_ep_h ep            = m_target.world().ep();
        ucs_status_ptr_t ptr   = is_put ?
            ucp_put_nbx(ep, each.data.data(), length, address, m_target.rkey(), &param) :
            ucp_get_nbx(ep, each.data.data(), length, address, m_target.rkey(), &param);
        if (!UCS_PTR_IS_PTR(ptr)) {
            each.end.calls  = 1;
            each.end.status = UCS_PTR_RAW_STATUS(ptr);
        }
    }

    void start(area &each)
    {
        start(each, m_rnd.one_in(2));
    }

    void finish(area &each)
    {
        EXPECT_EQ(1, each.end.calls);
        EXPECT_EQ(UCS_OK, each.end.status);
        if (each.is_put) {
            memcpy(place(each), each.data.data(), each.data.size());
        } else {
            EXPECT_EQ(0, memcmp(place(each), each.data.data(), each.data.size()));
        }
        each.is_used = false;
    }

    remote &m_target;
    seeded_random &m_rnd;
    std::vector<area> m_areas;
    bytes m_bytes;
};

class ofi_rma_trouble : public testing::TestWithParam<trouble> {
protected:
    void SetUp() override
    {
        need_network_reads();
    }

    log_catcher m_log;
};

TEST_P(ofi_rma_trouble, memory_is_exact)
{
    seeded_random rnd(71);
    faulty_provider provider(rnd.bits());

    provider.says = GetParam().says;
    for (unsigned i = 0; (i < ROUNDS) && !HasFailure(); ++i) {
        provider.faults = GetParam().faults;
        provider.faults.swallow = 0; /* see test_ofi_faults.cc */
        remote remote(NETWORK, AREAS * AREA_SIZE);
        model model(remote, rnd);
        model.run(AREAS);
        provider.faults.swallow = GetParam().faults.swallow;
        model.run(static_cast<unsigned>(2000 / mp::slowness()));
        model.start_puts();
        ASSERT_EQ(UCS_OK, remote.flush());
        model.forget();
        model.expect_exact();
        model.run(1);
    }
    for (const auto member : GetParam().expected) {
        EXPECT_LT(0u, provider.seen.*member);
    }
}

trouble make(const char *name, std::vector<size_t counts::*> expected,
             const std::function<void(faulty_provider::traits &, faulty_provider::rates &)> &set)
{
    trouble result = {name, {}, {}, std::move(expected)};

    set(result.says, result.faults);
    return result;
}

using traits = faulty_provider::traits;
using rates  = faulty_provider::rates;

INSTANTIATE_TEST_SUITE_P(
    all, ofi_rma_trouble,
    testing::Values(
        make("none", {&counts::reads, &counts::writes}, [](traits &, rates &) {}),
        make("storms", {&counts::again, &counts::writes},
             [](traits &, rates &faults) { faults.storm = 20; }),
        make("late_completions", {&counts::held, &counts::writes},
             [](traits &, rates &faults) { faults.hold = 2; }),
        make("queues_of_16", {&counts::reads, &counts::writes},
             [](traits &says, rates &) { says.queue = 16; }),
        make("refusals", {&counts::refused, &counts::writes},
             [](traits &says, rates &faults) {
                 says.registered = true;
                 faults.refuse   = 3;
             }),
        make("registered_buffers", {&counts::reads, &counts::writes},
             [](traits &says, rates &) { says.registered = true; }),
        make("short_and_false", {&counts::cut, &counts::belied},
             [](traits &, rates &faults) {
                 faults.cut   = 3;
                 faults.belie = 10;
                 faults.spare = true;
             }),
        make("lost", {&counts::swallowed, &counts::repeated},
             [](traits &, rates &faults) {
                 faults.swallow = 5;
                 faults.repeat  = 2;
                 faults.spare   = true;
             }),
        make("all_together",
             {&counts::again, &counts::held, &counts::refused, &counts::swallowed, &counts::cut,
              &counts::belied, &counts::repeated, &counts::reads, &counts::writes},
             [](traits &says, rates &faults) {
                 says.queue      = 16;
                 says.registered = true;
                 faults.storm    = 50;
                 faults.refuse   = 5;
                 faults.hold     = 3;
                 faults.swallow  = 30;
                 faults.belie    = 30;
                 faults.cut      = 5;
                 faults.repeat   = 2;
                 faults.spare    = true;
             })),
    [](const testing::TestParamInfo<trouble> &info) { return std::string(info.param.name); });

class ofi_rma : public testing::Test {
protected:
    void SetUp() override
    {
        need_network_reads();
    }

    static std::string told(ucp_ep_h ep)
    {
        return printed([ep](FILE *stream) { ucp_ep_print_info(ep, stream); });
    }

    log_catcher m_log;
};

/* Where a write may end before the bytes are there, puts are messages; gets are not. */
TEST_F(ofi_rma, early_writes_are_not_used)
{
    seeded_random rnd(72);
    faulty_provider provider(rnd.bits());

    provider.says.early = true;
    remote remote(NETWORK, AREAS * AREA_SIZE);
    model model(remote, rnd);
    model.run(200);
    ASSERT_EQ(UCS_OK, remote.flush());
    model.expect_exact();
    EXPECT_EQ(0u, provider.seen.writes);
    EXPECT_LT(0u, provider.seen.reads);
    EXPECT_NE(std::string::npos, told(remote.world().ep()).find("FI_DELIVERY_COMPLETE"));
}

/* The provider of the memory's owner decides: another version may not do what ours does. */
TEST_F(ofi_rma, memory_that_takes_no_writes_is_only_read)
{
    constexpr size_t SIZE = 1 << 20;
    seeded_random rnd(74);
    faulty_provider provider(rnd.bits());
    pair pair(NETWORK.world, {RMA_FEATURES, 0, nullptr, nullptr});
    provider.says.early = true;
    worker owner(pair.ctx());
    const mapping memory(pair.ctx(), SIZE);
    bytes local            = pattern(1, SIZE);
    ucp_ep_h exact         = pair.ep();
    ucp_ep_h early         = pair.sender().connect(owner);
    const auto finish      = [&](ucs_status_ptr_t ptr) {
        pair.progress_until([&]() {
            owner.progress();
            return !UCS_PTR_IS_PTR(ptr) || (ucp_request_check_status(ptr) != UCS_INPROGRESS);
        });
        return pair.wait(ptr);
    };
    const ucp_request_param_t none = {};

    for (ucp_ep_h ep : {early, exact}) {
        const key key(ep, memory.packed());
        ASSERT_EQ(UCS_OK, key.status());
        const auto before = provider.seen;
        ASSERT_EQ(UCS_OK, finish(ucp_get_nbx(ep, local.data(), 8, memory.address(), key.get(),
                                             &none))); /* connects */
        local = pattern((ep == early) ? 2 : 3, SIZE);
        ASSERT_EQ(UCS_OK, finish(ucp_put_nbx(ep, local.data(), SIZE, memory.address(), key.get(),
                                             &none)));
        ASSERT_EQ(UCS_OK, finish(ucp_ep_flush_nbx(ep, &none)));
        EXPECT_EQ(0, memcmp(local.data(), memory.data(), SIZE));
        EXPECT_EQ(ep == exact, provider.seen.writes > before.writes);
        const bytes sent = std::exchange(local, bytes(SIZE));
        ASSERT_EQ(UCS_OK, finish(ucp_get_nbx(ep, local.data(), SIZE, memory.address(), key.get(),
                                             &none)));
        EXPECT_EQ(sent, local);
        EXPECT_LT(before.reads, provider.seen.reads);
    }
}

TEST_F(ofi_rma, switched_off)
{
    environment environment(settings{{"UCX_OFI_RMA", "n"}});
    seeded_random rnd(73);
    faulty_provider provider(rnd.bits());
    remote remote(NETWORK, AREAS * AREA_SIZE);
    model model(remote, rnd);

    model.run(200);
    ASSERT_EQ(UCS_OK, remote.flush());
    model.expect_exact();
    EXPECT_EQ(0u, provider.seen.writes + provider.seen.reads);
    EXPECT_NE(std::string::npos, told(remote.world().ep()).find("UCX_OFI_RMA"));
}

/* Gets by two devices at once are exact, also where either breaks off amid its share; some begin
 * anew with the first device alone, some end as messages. */
TEST_F(ofi_rma, gets_by_two_devices_that_break)
{
    constexpr size_t SIZE = 6 << 20, LONG = 1 << 20;

    for (unsigned kind = 0; kind < 3; ++kind) {
        SCOPED_TRACE(kind);
        seeded_random rnd(80 + kind);
        faulty_provider provider(rnd.bits());
        provider.says.devices    = 2;
        provider.says.registered = (kind == 1);
        provider.says.queue      = (kind == 2) ? 16 : 0;
        remote remote(TWO_DEVICES, SIZE);
        if (told(remote.world().ep()).find("fake1") == std::string::npos) {
            GTEST_SKIP() << "no provider net here";
        }
        const bytes data = pattern(kind, SIZE);
        memcpy(remote.data(), data.data(), SIZE);
        bytes local(SIZE);
        const auto get = [&](size_t offset, size_t length) {
            ending end;
            const ucp_request_param_t param = send_param(&end);
            ucs_status_ptr_t ptr = ucp_get_nbx(remote.world().ep(), local.data(), length,
                                               remote.address(offset), remote.rkey(), &param);
            ASSERT_TRUE(UCS_PTR_IS_PTR(ptr));
            remote.world().progress_until([&]() { return end.calls > 0; });
            ASSERT_EQ(UCS_OK, end.status);
            ASSERT_EQ(0, memcmp(local.data(), data.data() + offset, length));
            memset(local.data(), 0, length);
        };

        size_t before;
        do { /* until the second one is connected */
            before = provider.seen.reads;
            get(0, LONG);
        } while (provider.seen.reads < before + 2);
        before = provider.seen.reads;
        for (unsigned i = 0; i < 10; ++i) {
            get(i, LONG);
        }
        EXPECT_EQ(before + 20, provider.seen.reads);
        provider.faults.cut   = 3;
        provider.faults.hold  = 3;
        provider.faults.storm = 20;
        for (unsigned i = 0; (i < 60) && !HasFailure(); ++i) {
            const size_t offset = rnd.below(SIZE);
            get(offset, 1 + rnd.below(SIZE - offset));
        }
        EXPECT_LT(10u, provider.seen.cut);
    }
}

/* A peer that is lost by its first device while both read of it, and takes nothing: the get ends
 * though nothing is known of the second device. */
TEST_F(ofi_rma, a_get_by_two_devices_of_which_the_first_fails)
{
    constexpr size_t LONG = 1 << 20;
    environment environment(settings{{"UCX_OFI_TIMEOUT", "300ms"}});
    faulty_provider provider(87);
    provider.says.devices = 2;
    remote remote(TWO_DEVICES, LONG);
    pair &world = remote.world();
    if (told(world.ep()).find("fake1") == std::string::npos) {
        GTEST_SKIP() << "no provider net here";
    }
    bytes local(LONG);
    ending end;
    const auto get = [&]() {
        const ucp_request_param_t param = send_param(&end);
        const size_t before             = provider.seen.reads;
        end                             = ending();
        EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_get_nbx(world.ep(), local.data(), LONG, remote.address(0),
                                               remote.rkey(), &param)));
        for (unsigned i = 0; (i < 100) && (provider.seen.reads < before + 2); ++i) {
            world.sender().progress();
        }
        return provider.seen.reads - before;
    };

    while (get() < 2) { /* until the second one is connected */
        world.progress_until([&]() { return end.calls > 0; });
    }
    EXPECT_EQ(0, end.calls);
    ucp_test_lane_fail(world.ep(), UCS_ERR_IO_ERROR);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((end.calls == 0) && (std::chrono::steady_clock::now() < give_up)) {
        world.sender().progress();
    }
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, end.status);
    m_log.take();
}

/* One packed key reaches the memory through every worker of its context that was there; those that
 * came later are asked by messages, as are those whose network is gone. */
TEST_F(ofi_rma, a_key_serves_all_workers)
{
    environment environment(ENV);
    faulty_provider provider(74);
    context here({RMA_FEATURES, 0, nullptr, nullptr}), there({RMA_FEATURES, 0, nullptr, nullptr});
    worker from(here);
    std::vector<std::unique_ptr<worker>> to;
    bytes memory(1 << 20), back(memory.size());
    mapping mapping(there, memory.size(), memory.data());
    const bytes without = mapping.packed();
    const auto wait     = [&](ucs_status_ptr_t ptr) {
        ucs_status_t status = UCS_PTR_RAW_STATUS(ptr);
        while (UCS_PTR_IS_PTR(ptr) &&
               ((status = ucp_request_check_status(ptr)) == UCS_INPROGRESS)) {
            from.progress();
            for (auto &each : to) {
                each->progress();
            }
        }
        if (UCS_PTR_IS_PTR(ptr)) {
            ucp_request_free(ptr);
        }
        return status;
    };

    for (unsigned i = 0; i < 3; ++i) {
        to.push_back(std::make_unique<worker>(there));
        (void)to.back()->address();
    }
    const bytes packed = mapping.packed();
    EXPECT_EQ(28u, without.size());
    EXPECT_EQ(28u + 3 + 8 + (3 * 13), packed.size());
    to.push_back(std::make_unique<worker>(there));
    for (unsigned i = 0; i < 4; ++i) {
        const size_t writes       = provider.seen.writes;
        ucp_ep_h ep               = from.connect(*to[i]);
        ucp_request_param_t param = {};
        const bytes data          = pattern(i, memory.size());
        key key(ep, packed);
        ASSERT_EQ(UCS_OK, key.status());
        ASSERT_EQ(UCS_OK, wait(ucp_get_nbx(ep, back.data(), 8, mapping.address(), key.get(),
                                           &param))); /* connects */
        ASSERT_EQ(UCS_OK, wait(ucp_put_nbx(ep, data.data(), data.size(), mapping.address(),
                                           key.get(), &param)));
        EXPECT_EQ(data, memory);
        EXPECT_EQ((i < 3) ? 1u : 0u, provider.seen.writes - writes);
        ASSERT_EQ(UCS_OK, wait(ucp_get_nbx(ep, back.data(), back.size(), mapping.address(),
                                           key.get(), &param)));
        EXPECT_EQ(data, back);
    }
    to[1].reset(); /* what it had registered is gone with it, the rest with the memory */
    EXPECT_EQ(28u + 3 + 8 + (3 * 13), mapping.packed().size());
}

/* What mm allocates has two entries in its key. */
TEST_F(ofi_rma, allocated_memory_is_for_networks_too)
{
    environment environment(settings{{"UCX_TLS", "mm,ofi"}, {"UCX_NET_ADDRESS", "y"}});
    context here({RMA_FEATURES, 0, nullptr, nullptr}), there({RMA_FEATURES, 0, nullptr, nullptr});
    worker from(here), to(there);
    mapping mapping(there, 10000);

    (void)to.address();
    key key(from.connect(to), mapping.packed());
    ASSERT_EQ(UCS_OK, key.status());
    EXPECT_TRUE(ucp_test_has_net_key(key.get()));
}

/* Workers of one context whose memory another one writes. */
class targets {
public:
    static constexpr size_t LENGTH = 100000;

    void put(unsigned target, ending *end)
    {
        const ucp_request_param_t param = send_param(end);
        ucs_status_ptr_t ptr = ucp_put_nbx(eps[target], data.data(), LENGTH,
                                           mapped.address(), keys[target]->get(), &param);

        if (!UCS_PTR_IS_PTR(ptr)) {
            end->calls  = 1;
            end->status = UCS_PTR_RAW_STATUS(ptr);
        }
    }

    /* Until it has ended; the first target may be deaf. */
    void run(const ending &end, bool is_deaf)
    {
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);

        while ((end.calls == 0) && (std::chrono::steady_clock::now() < give_up)) {
            from.progress();
            to[1].progress();
            if (!is_deaf) {
                to[0].progress();
            }
        }
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(UCS_OK, end.status);
    }

    targets()
    {
        for (unsigned i = 0; i < 2; ++i) {
            (void)to[i].address();
        }
        for (unsigned i = 0; i < 2; ++i) {
            ending end;
            eps[i]  = from.connect(to[i]);
            keys[i] = std::make_unique<ucp_test::key>(eps[i], mapped.packed());
            put(i, &end);
            run(end, false);
        }
        writes = provider.seen.writes;
    }

    environment tls{ENV};
    faulty_provider provider{78};
    context here{{RMA_FEATURES, 0, nullptr, nullptr}};
    context there{{RMA_FEATURES, 0, nullptr, nullptr}};
    bytes memory   = bytes(LENGTH);
    bytes data     = pattern(1, LENGTH);
    mapping mapped{there, LENGTH, memory.data()};
    worker from{here};
    worker to[2]{worker{there}, worker{there}};
    ucp_ep_h eps[2];
    std::unique_ptr<key> keys[2];
    size_t writes = 0;
};

TEST_F(ofi_rma, who_takes_nothing_leaves_room_for_others)
{
    targets all;
    std::vector<ending> ends(200);
    ending other;

    for (ending &each : ends) {
        all.put(0, &each);
    }
    all.put(1, &other);
    all.run(other, true);
    EXPECT_EQ(0, ends.back().calls);
    for (const ending &each : ends) {
        all.run(each, false);
    }
    EXPECT_LE(all.writes + ends.size() + 1, all.provider.seen.writes);
    EXPECT_EQ(all.data, all.memory);
}

/* Puts that the provider has not taken end with their worker. */
TEST_F(ofi_rma, the_end_while_puts_wait)
{
    targets all;
    std::vector<ending> ends(40);

    all.provider.faults.storm = 1;
    for (ending &each : ends) {
        all.put(0, &each);
    }
    all.from.progress();
    all.keys[0].reset();
    all.keys[1].reset();
    all.from.destroy();
    EXPECT_EQ(all.writes, all.provider.seen.writes);
}

/* A message that was being read when its sender gave it up, and stopped: once the reader gives the
 * sender up as well, by force, the receive ends. */
TEST_F(ofi_rma, a_receive_that_both_sides_give_up)
{
    environment environment(settings{{"UCX_TLS", "ofi"}, {"UCX_OFI_TIMEOUT", "300ms"}});
    faulty_provider provider(79);
    context here({UCP_FEATURE_TAG, 0, nullptr, nullptr});
    worker from(here), to(here);
    const auto ignore = [](void *, ucp_ep_h, ucs_status_t) {};
    ucp_ep_h eps[2]   = {from.connect(to, UCP_ERR_HANDLING_MODE_PEER, ignore),
                         to.connect(from, UCP_ERR_HANDLING_MODE_PEER, ignore)};
    const bytes out = pattern(1, 4 << 20);
    bytes in(out.size());
    ending sent, received, closed[2];
    const auto run = [&](bool is_both, const std::function<bool()> &is_done) {
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!is_done() && (std::chrono::steady_clock::now() < give_up)) {
            to.progress();
            if (is_both) {
                from.progress();
            }
        }
        return is_done();
    };
    const auto exchange = [&](ucp_ep_h ep, worker &other, size_t length) {
        const ucp_request_param_t receive = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const ucp_request_param_t send    = send_param(&sent, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        sent = received = ending();
        (void)ucp_tag_recv_nbx(other.handle(), in.data(), length, 5, ~0ull, &receive);
        (void)ucp_tag_send_nbx(ep, out.data(), length, 5, &send);
    };
    const auto close = [&](worker &w, unsigned i) {
        ucp_request_param_t param = send_param(&closed[i], UCP_OP_ATTR_FIELD_FLAGS);
        param.flags               = UCP_EP_CLOSE_FLAG_FORCE;
        w.forget(eps[i]);
        closed[i].calls = (ucp_ep_close_nbx(eps[i], &param) == nullptr);
    };

    for (unsigned i = 0; i < 2; ++i) { /* connects */
        exchange(eps[i], (i == 0) ? to : from, 8);
        ASSERT_TRUE(run(true, [&]() { return (received.calls > 0) && (sent.calls > 0); }));
    }
    const size_t reads = provider.seen.reads;
    exchange(eps[0], to, out.size());
    ASSERT_TRUE(run(false, [&]() { return provider.seen.reads > reads; }));
    close(from, 0);
    for (unsigned i = 0; i < 1000; ++i) {
        to.progress();
    }
    EXPECT_EQ(0, received.calls);
    close(to, 1);
    EXPECT_TRUE(run(false, [&]() { return received.calls > 0; }));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, received.status);
    EXPECT_TRUE(run(true, [&]() { return (closed[0].calls > 0) && (closed[1].calls > 0); }));
    EXPECT_EQ(1, received.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    m_log.take();
}

/* A buffer that the user has mapped is registered once, others for each operation. */
TEST_F(ofi_rma, mapped_buffers_are_registered_once)
{
    faulty_provider provider(76);
    provider.says.registered = true;
    remote remote(NETWORK);
    bytes data = pattern(1, 100000), back(data.size());
    mapping own(remote.world().ctx(), data.size(), data.data());
    ucp_request_param_t param = {};
    const auto run            = [&]() {
        const size_t before = provider.seen.registered;
        for (unsigned i = 0; i < 10; ++i) {
            EXPECT_EQ(UCS_OK, remote.world().wait(ucp_put_nbx(
                remote.world().ep(), data.data(), data.size(), remote.address(), remote.rkey(),
                &param)));
            EXPECT_EQ(0, memcmp(data.data(), remote.data(), data.size()));
        }
        return provider.seen.registered - before;
    };

    EXPECT_EQ(UCS_OK, remote.world().wait(remote.get(back.data(), 8, 0))); /* connects */
    EXPECT_EQ(10u, run());
    param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    param.memh         = own.handle();
    EXPECT_EQ(1u, run());
    EXPECT_EQ(20u, provider.seen.writes);
}

/* Other threads map memory, make keys and end both while a worker works. */
TEST_F(ofi_rma, memory_of_other_threads)
{
    environment environment(ENV);
    seeded_random rnd(75);
    remote remote({{"threads", ENV, false, UCS_THREAD_MODE_MULTI}, false, false},
                  AREAS * AREA_SIZE);
    model model(remote, rnd);
    std::atomic<bool> is_ending(false);
    std::vector<std::thread> others;

    for (unsigned i = 0; i < 2; ++i) {
        others.emplace_back([&]() {
            bytes memory(100000);
            while (!is_ending) {
                mapping own(remote.world().ctx(), memory.size(), memory.data());
                EXPECT_LT(28u, own.packed().size());
            }
        });
    }
    model.run(static_cast<unsigned>(1000 / mp::slowness()));
    is_ending = true;
    for (std::thread &each : others) {
        each.join();
    }
    ASSERT_EQ(UCS_OK, remote.flush());
    model.expect_exact();
}

} // namespace

#endif
