/* Halyard: conformance of transports: opening, closing, states of endpoints, hostile addresses, and
 * the failure of every single system call.
 *
 * Runs over every transport, plain and under each hook.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "sys_meter.h"
#include "world.h"

#include <seed.h>
#include <ucp/world.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <unistd.h>

using namespace uct_test;

namespace {

bool any(const uct_tl_t *)
{
    return true;
}

/* Some operation of the endpoint that needs its connection. */
ucs_status_t touch(uct_ep_t *ep, uct_completion_t *comp)
{
    static uint8_t buffer[64];
    uct_iov_t iov = {buffer, 0, nullptr};

    for (way how : WAYS) {
        if (has_way(ep->iface->tl, how)) {
            return post(ep, how, 1, pattern(0, 16), 0);
        }
    }
    return ep->ops->get_zcopy(ep, &iov, 1, 0, nullptr, comp);
}

class life_test : public pair_test {
};

TEST_P(life_test, addresses_are_short_and_reachable)
{
    const contact peer          = b().where();
    char reason[UCT_REASON_MAX] = "";

    EXPECT_GT(peer.address.size(), 0u);
    EXPECT_LE(peer.address.size(), 255u);
    EXPECT_TRUE(m_tl->iface.is_reachable(a().iface, peer.address.data(), peer.address.size(), 1,
                                         reason))
        << reason;
    if ((m_tl->kind == UCT_TL_KIND_SHM) || (m_tl->kind == UCT_TL_KIND_COPY)) {
        EXPECT_FALSE(m_tl->iface.is_reachable(a().iface, peer.address.data(), peer.address.size(),
                                              0, reason));
        EXPECT_NE('\0', reason[0]) << "a refusal has a reason";
    }
}

TEST_P(life_test, an_endpoint_costs_little_and_no_system_call)
{
    const contact peer = b().where();
    std::vector<uct_ep_t *> eps(100);
    sys_meter meter;

    for (uct_ep_t *&ep : eps) {
        ASSERT_EQ(UCS_OK, uct_ep_open(a().iface, peer.uid.data(), peer.address.data(),
                                      peer.address.size(), nullptr, &ep));
    }
    EXPECT_EQ(0u, meter.system_calls());
    const size_t hooks = std::count(GetParam().begin(), GetParam().end(), ':');
    EXPECT_LE(meter.blocks(), (1 + hooks) * eps.size()) << "an object, and one of each hook";
    for (uct_ep_t *ep : eps) {
        uct_ep_close(ep);
    }
    EXPECT_EQ(0u, meter.blocks());
    EXPECT_EQ(0u, meter.system_calls()) << "closing what was never used";
    EXPECT_LE(m_tl->ep_size, 2048u);
}

TEST_P(life_test, capabilities_are_the_same_in_every_state)
{
    uct_ep_t *ep       = a().connect(b().where());
    const auto compare = [&]() {
        const uct_ep_ops_t &live = m_tl->ep.live;
        EXPECT_EQ(live.am_short != nullptr, ep->ops->am_short != nullptr);
        EXPECT_EQ(live.am_short_iov != nullptr, ep->ops->am_short_iov != nullptr);
        EXPECT_EQ(live.am_bcopy != nullptr, ep->ops->am_bcopy != nullptr);
        EXPECT_EQ(live.am_zcopy != nullptr, ep->ops->am_zcopy != nullptr);
        EXPECT_EQ(live.put_zcopy != nullptr, ep->ops->put_zcopy != nullptr);
        EXPECT_EQ(live.get_zcopy != nullptr, ep->ops->get_zcopy != nullptr);
        EXPECT_EQ(live.flush != nullptr, ep->ops->flush != nullptr);
        EXPECT_EQ(live.check != nullptr, ep->ops->check != nullptr);
        EXPECT_EQ(live.sync_map != nullptr, ep->ops->sync_map != nullptr);
        EXPECT_EQ(live.abandon != nullptr, ep->ops->abandon != nullptr);
        if (live.abandon != nullptr) {
            const uct_completion_t unknown = {};
            ep->ops->abandon(ep, &unknown); /* nothing happens */
        }
    };

    compare();
    ASSERT_TRUE(run_until(both(), [&]() { return uct_ep_connect(ep) != UCS_INPROGRESS; }));
    EXPECT_EQ(&m_tl->ep.live, ep->ops);
    compare();
    uct_ep_set_failed(ep, UCS_ERR_IO_ERROR);
    compare();
    EXPECT_EQ(UCS_ERR_IO_ERROR, touch(ep, nullptr));
    EXPECT_EQ(UCS_ERR_IO_ERROR, uct_ep_connect(ep));
    EXPECT_TRUE(a().failed.empty()) << "reported from progress only";
    EXPECT_TRUE(run_until(both(), [&]() { return !a().failed.empty(); }));
    EXPECT_EQ(1u, a().failed.size());
}

TEST_P(life_test, closing_in_every_state)
{
    const contact peer = b().where();

    b().on_message(1, [](const uint8_t *, size_t) {});
    for (unsigned round = 0; round < 60; ++round) {
        uct_ep_t *ep = a().connect(peer);
        completion comp;
        ucs_status_t status = UCS_OK;

        switch (round % 5) {
        case 0: /* idle */
            break;
        case 1: /* connecting, unless that takes no time */
            (void)uct_ep_connect(ep);
            break;
        case 2: /* connecting for some progress calls */
            (void)uct_ep_connect(ep);
            for (unsigned i = 0; i < round / 5; ++i) {
                a().progress();
                b().progress();
            }
            break;
        case 3: /* live, with a message under way */
            status = persist(both(), [&]() { return touch(ep, &comp.base); });
            EXPECT_FALSE(UCS_STATUS_IS_ERR(status)) << ucs_status_string(status);
            break;
        default:
            uct_ep_set_failed(ep, UCS_ERR_IO_ERROR);
            break;
        }
        a().close(ep);
        if (status == UCS_INPROGRESS) {
            EXPECT_TRUE(run_until(both(), [&]() { return comp.calls != 0; }));
        }
    }
    for (unsigned i = 0; i < 200; ++i) {
        a().progress();
        b().progress();
    }
    EXPECT_TRUE(a().failed.empty()) << "a closed endpoint fails no more";
}

/* Opens everything a transport has, uses it a little, closes it. Any step may fail, but each ends.
 * */
void use_everything(const uct_tl_t *tl, bool must_end)
{
    worker a(tl);
    if (a.status() != UCS_OK) {
        return;
    }
    std::unique_ptr<worker> second;
    if (tl->kind != UCT_TL_KIND_SELF) {
        second = std::make_unique<worker>(tl);
        if (second->status() != UCS_OK) {
            return;
        }
    }
    worker &b = second ? *second : a;
    const std::vector<worker *> all = second ? std::vector<worker *>{&a, &b} :
                                               std::vector<worker *>{&a};
    uct_ep_t *ep       = nullptr;
    uct_mem_t *mem     = nullptr;
    uct_rkey_t *rkey   = nullptr;
    uint32_t index     = UINT32_MAX;
    ucs_atomic_u64_t *word;
    completion comp(1000);
    unsigned received = 0;

    if (tl->iface.event_fd != nullptr) {
        (void)tl->iface.event_fd(b.iface);
        (void)tl->iface.event_arm(b.iface);
    }
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    if (a.try_connect(b.where(), &ep) == UCS_OK) {
        for (unsigned i = 0; i < 4; ++i) {
            ucs_status_t status = UCS_ERR_NO_RESOURCE;
            run_until(all, [&]() {
                status = touch(ep, &comp.base);
                return status != UCS_ERR_NO_RESOURCE;
            }, must_end ? LIMIT_S : 0);
            if (must_end) {
                EXPECT_NE(UCS_ERR_NO_RESOURCE, status) << "a connection that never ends";
            }
        }
        for (unsigned i = 0; i < 50; ++i) {
            a.progress();
            b.progress();
        }
    }
    if ((tl->md.alloc != nullptr) && (tl->md.alloc(b.md, nullptr, 5000, 0, &mem) == UCS_OK)) {
        uint8_t packed[64];
        void *ptr;
        if ((tl->md.rkey_pack != nullptr) &&
            (tl->md.rkey_unpack(a.md, packed, tl->md.rkey_pack(mem, packed), &rkey) == UCS_OK)) {
            if (tl->md.rkey_ptr(rkey, reinterpret_cast<uintptr_t>(mem->address), 8, &ptr) ==
                UCS_OK) {
                memset(ptr, 1, 8);
            }
            tl->md.rkey_release(rkey);
        }
        tl->md.release(mem);
    }
    if ((tl->iface.sync_alloc != nullptr) &&
        (tl->iface.sync_alloc(b.iface, &index, &word) == UCS_OK)) {
        ucs_atomic_u64_t *mapped;
        if ((ep != nullptr) && (ep->ops->sync_map(ep, index, &mapped) == UCS_OK)) {
            mapped->store(1);
        }
        tl->iface.sync_free(b.iface, index);
    }
}

TEST_P(life_test, nothing_is_left)
{
    use_everything(m_tl, true); /* what is made once a process */

    const auto descriptors = sys_meter::descriptors();
    const auto mappings    = sys_meter::shared_mappings();
    sys_meter meter;
    for (unsigned i = 0; i < 20; ++i) {
        use_everything(m_tl, true);
    }
    EXPECT_EQ(0u, meter.blocks());
    EXPECT_EQ(descriptors, sys_meter::descriptors());
    EXPECT_EQ(mappings, sys_meter::shared_mappings());
}

/* The k-th call that can fail does, for every k; then the same with all calls after it failing
 * too. */
TEST_P(life_test, each_system_call_fails)
{
    use_everything(m_tl, true);
    m_a.reset();
    m_b.reset();

    log_levels quiet("fatal");
    const auto descriptors = sys_meter::descriptors();
    const auto mappings    = sys_meter::shared_mappings();
    for (const char *suffix : {"", "+"}) {
        uint64_t failed = 1;
        unsigned k;
        for (k = 1; failed != 0; ++k) {
            sys_meter meter;
            SCOPED_TRACE("fault point " + std::to_string(k) + suffix);
            ASSERT_EQ(UCS_OK, ucs_fault_set("*", (std::to_string(k) + suffix).c_str()));
            use_everything(m_tl, *suffix == '\0');
            ASSERT_EQ(UCS_OK, ucs_fault_query("*", nullptr, &failed));
            ucs_fault_clear(nullptr);

            ASSERT_EQ(0u, meter.blocks());
            ASSERT_EQ(descriptors, sys_meter::descriptors());
            ASSERT_EQ(mappings, sys_meter::shared_mappings());
            ASSERT_FALSE(HasFailure());
        }
        printf("[  calls   ] %u failed%s\n", k - 2, suffix);
        EXPECT_GE(k, 5u) << "hardly anything was tried";
    }
}

/* Random, cut and changed addresses: refused, or an endpoint that fails, but never a crash, and
 * never a message to somebody. */
TEST_P(life_test, hostile_addresses)
{
    seeded_random rnd(29);
    const contact peer = b().where();
    log_levels quiet("fatal");

    b().on_message(1, [](const uint8_t *, size_t) {});
    for (unsigned i = 0; i < 300; ++i) {
        contact wrong = peer;
        char reason[UCT_REASON_MAX];
        if (rnd.one_in(3)) {
            wrong.address = pattern(rnd.bits(), rnd.below(256));
        } else if (rnd.one_in(2)) {
            wrong.address.resize(rnd.below(wrong.address.size()));
        } else {
            wrong.address[rnd.below(wrong.address.size())] ^=
                static_cast<uint8_t>(1 + rnd.below(255));
        }
        (void)m_tl->iface.is_reachable(a().iface, wrong.address.data(), wrong.address.size(), 1,
                                       reason);
        uct_ep_t *ep        = nullptr;
        ucs_status_t status = a().try_connect(wrong, &ep);
        if (status != UCS_OK) {
            EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
            EXPECT_EQ(nullptr, ep);
            continue;
        }
        completion comp;
        status = persist(both(), [&]() { return touch(ep, &comp.base); });
        EXPECT_NE(UCS_ERR_NO_RESOURCE, status) << "a connection that never ends";
        if (status == UCS_INPROGRESS) {
            EXPECT_TRUE(run_until(both(), [&]() { return comp.calls != 0; }));
        }
        a().close(ep);
    }
}

/* The right address with another identity: whoever answers there is not the peer. */
TEST_P(life_test, the_wrong_identity)
{
    contact wrong = b().where();
    uct_ep_t *ep  = nullptr;
    log_levels quiet("fatal");

    wrong.uid[3] ^= 1;
    if (a().try_connect(wrong, &ep) != UCS_OK) {
        return;
    }
    if (is_loopback()) {
        return; /* the address is the identity */
    }
    bool received = false;
    b().on_message(1, [&](const uint8_t *, size_t) { received = true; });
    completion comp;
    ucs_status_t status = persist(both(), [&]() { return touch(ep, &comp.base); });
    if (status == UCS_INPROGRESS) {
        ASSERT_TRUE(run_until(both(), [&]() { return comp.calls != 0; }));
        status = comp.base.status;
    }
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status)) << ucs_status_string(status);
    EXPECT_NE(UCS_ERR_NO_RESOURCE, status);
    EXPECT_TRUE(run_until(both(), [&]() { return !a().failed.empty(); }));
    EXPECT_FALSE(received);
}

/* Nothing to do: no progress is counted, and arming succeeds sooner or later. */
TEST_P(life_test, an_idle_interface_is_idle)
{
    uct_ep_t *ep = a().connect(b().where());

    b().on_message(1, [](const uint8_t *, size_t) {});
    ASSERT_TRUE(run_until(both(), [&]() { return uct_ep_connect(ep) != UCS_INPROGRESS; }));
    EXPECT_EQ(UCS_OK, finish(both(), [&](uct_completion_t *comp) { return touch(ep, comp); }));
    for (unsigned i = 0; i < 1000; ++i) {
        a().progress();
        b().progress();
    }
    EXPECT_EQ(0u, a().progress());
    EXPECT_EQ(0u, b().progress());
    if (m_tl->iface.event_arm != nullptr) {
        struct pollfd event = {m_tl->iface.event_fd(b().iface), POLLIN, 0};
        /* what the network has done late may still be to be seen */
        EXPECT_TRUE(run_until(both(), [&]() {
            return (m_tl->iface.event_arm(b().iface) == UCS_OK) &&
                   (ucp_test::is_polled(m_tl->name) || (poll(&event, 1, 10) == 0));
        })) << "armed and idle, but readable";
        EXPECT_EQ(UCS_OK, finish({&a()}, [&](uct_completion_t *comp) { return touch(ep, comp); }));
        EXPECT_EQ(1, poll(&event, 1, LIMIT_S * 1000)) << "a message came after arm";
    }
}

INSTANTIATE_TEST_SUITE_P(transports, life_test, testing::ValuesIn(transports(any)), test_name);

} // namespace
