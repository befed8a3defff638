/* Halyard: tests of the ofi transport: what is said between two of it, and comes again or late, or
 * is said by somebody else.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include "faulty_provider.h"
#include "peer_process.h"
#include "world.h"

#include <mp/processes.h>
#include <seed.h>
#include <ucp/world.h>

extern "C" {
#include <ucs/sys/sys.h>
#include <uct/ofi/ofi.h>
}

#include <chrono>
#include <cstring>
#include <thread>

using namespace uct_test;
using ucp_test::environment;
using ucp_test::settings;

namespace {

/* Two workers with an endpoint each to the other, and what may be said between them late; over
 * providers that tell of a peer's kernel, of its endpoint, and of neither. */
class ofi_late : public testing::TestWithParam<const char *> {
protected:
    void SetUp() override
    {
        if (!is_present(m_tl)) {
            GTEST_SKIP() << "no libfabric here";
        }
        m_environment.set({{"UCX_OFI_PROVIDER", GetParam()}});
        begin();
    }

    void begin()
    {
        m_a = std::make_unique<worker>(m_tl);
        m_b = std::make_unique<worker>(m_tl);
        if (m_a->status() == UCS_ERR_NO_DEVICE) {
            GTEST_SKIP() << "no such provider here";
        }
        ASSERT_EQ(UCS_OK, m_a->status());
        ASSERT_EQ(UCS_OK, m_b->status());
        m_a->on_message(1, [this](const uint8_t *, size_t) { ++m_received; });
        m_b->on_message(1, [this](const uint8_t *, size_t) { ++m_received; });
        m_there = m_a->connect(m_b->where());
        m_back  = m_b->connect(m_a->where());
        exchange();
    }

    /* A message each way. */
    void exchange()
    {
        m_received = 0;
        ASSERT_EQ(UCS_OK, send(both(), m_there, way::SHORT, 1, pattern(0, 100)));
        ASSERT_EQ(UCS_OK, send(both(), m_back, way::SHORT, 1, pattern(1, 100)));
        EXPECT_TRUE(run_until(both(), [this]() { return m_received == 2; })) << m_received;
        EXPECT_TRUE(m_a->failed.empty());
        EXPECT_TRUE(m_b->failed.empty());
        EXPECT_TRUE(m_a->gone.empty());
    }

    /* Comes what one side has sent while that side does nothing? */
    bool is_delivered_alone() const
    {
        return uct_ofi_iface(m_a->iface)->is_tcp != 0;
    }

    std::vector<worker *> both() const
    {
        return {m_a.get(), m_b.get()};
    }

    /* Says to a what b's side of this serial number has said once. */
    void say_to_a(unsigned type, uint32_t number, uint32_t serial)
    {
        const uct_ofi_peer_t *peer = uct_ofi_peer_find(uct_ofi_iface(m_a->iface),
                                                       m_b->uid.data());
        const contact where        = m_b->where();
        uct_ofi_intro_t intro      = {};

        intro.head.type      = static_cast<uint8_t>(type);
        intro.head.am_id     = 1;
        intro.head.number    = number;
        intro.head.taken     = (peer == nullptr) ? 0 : peer->tx_base;
        intro.head.serial    = serial;
        intro.head.token     = (peer == nullptr) ? 0 :
                               peer->own_token ^ uct_ofi_iface(m_a->iface)->secret;
        intro.token          = 12345;
        intro.version        = UCT_OFI_VERSION;
        intro.address_length = static_cast<uint8_t>(where.address.size());
        memcpy(intro.address, where.address.data(), where.address.size());
        memcpy(intro.from, m_b->uid.data(), UCT_UID_LEN);
        memcpy(intro.to, m_a->uid.data(), UCT_UID_LEN);
        uct_ofi_receive(uct_ofi_iface(m_a->iface), reinterpret_cast<char *>(&intro),
                        sizeof(intro));
    }

    environment m_environment;
    const uct_tl_t *m_tl = uct_tl_find("ofi");
    std::unique_ptr<worker> m_a, m_b;
    uct_ep_t *m_there = nullptr, *m_back = nullptr;
    unsigned m_received = 0;
};

/* What was sent to who computes arrives though the sender leaves meanwhile, and though it is more
 * than the receiver's kernel holds. */
TEST_P(ofi_late, messages_of_who_has_left)
{
    if (!is_delivered_alone()) {
        GTEST_SKIP() << "only the kernel of TCP delivers without the sender";
    }
    if (FI_MAJOR(uct_ofi_lib.version()) >= 2) { /* 4 of 100 runs */
        GTEST_SKIP() << "libfabric 2 may drop what came by a connection that was reset since";
    }
    unsigned sent = m_received;

    for (unsigned tries = 0; tries < 1000; ++tries) {
        if (post(m_there, way::SHORT, 1, pattern(sent, 16384), 0) == UCS_OK) {
            ++sent;
            tries = 0;
        }
        m_a->progress();
    }
    std::thread other([&]() {
        std::this_thread::sleep_for(std::chrono::milliseconds(500)); /* computes */
        EXPECT_TRUE(run_until({m_b.get()}, [&]() { return m_received == sent; }, 5));
    });
    m_a.reset();
    other.join();
    EXPECT_EQ(sent, m_received);
    EXPECT_TRUE(run_until({m_b.get()}, [&]() { return m_b->gone.size() == 1; }));
}

/* What b has said before it gave a up and began anew is not taken for what it says now. */
TEST_P(ofi_late, words_of_an_earlier_connection)
{
    for (unsigned type = 0; type < UCT_OFI_TYPES; ++type) {
        const uct_ofi_peer_t *peer = uct_ofi_ep(m_there)->peer;
        for (uint32_t number : {peer->rx_count, peer->tx_base, peer->rx_base + 7}) {
            if (type != UCT_OFI_REJECT) {
                say_to_a(type, number, peer->serial - 1);
            }
            exchange();
        }
    }
}

/* What it says once it has begun anew ends what was there before, but not that somebody says so. */
TEST_P(ofi_late, words_of_a_later_connection)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(m_there)->peer;

    for (uint32_t jump : {1u, 1000u, 0x7fffffffu}) {
        for (unsigned type : {UCT_OFI_HELLO, UCT_OFI_PING}) {
            say_to_a(type, 0, peer->serial + jump);
            say_to_a(type, 0, peer->serial); /* under another token */
            exchange();
        }
    }
    uct_ofi_peer_fail(uct_ofi_ep(m_back)->peer, UCS_ERR_IO_ERROR);
    m_b->failed.clear();
    m_b->close(m_back);
    m_back = m_b->connect(m_a->where());
    EXPECT_EQ(UCS_OK, send(both(), m_back, way::SHORT, 1, pattern(1, 100)));
    EXPECT_TRUE(run_until(both(), [this]() { return m_a->failed.size() == 1; }));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, m_a->failed.at(0).second);
    EXPECT_TRUE(run_until(both(), [this]() { return m_a->gone.size() == 1; }));
}

/* Who is introduced first by somebody else, who may give any number, or by a late copy of a word
 * of its own, is known by what it says itself. */
TEST_P(ofi_late, introductions_by_others)
{
    const uct_ofi_iface_t *iface = uct_ofi_iface(m_a->iface);
    uct_ofi_peer_t *own          = uct_ofi_ep(m_back)->peer;
    const uint32_t serial = own->own_serial, next = own->tx_count;

    const auto part = [&](bool is_kept) {
        own                 = uct_ofi_ep(m_back)->peer;
        own->num_under_way += is_kept;
        m_a->close(m_there);
        m_b->close(m_back);
        EXPECT_TRUE(run_until(both(), [&]() {
            return ucs_list_is_empty(&iface->peers) &&
                   (is_kept ? own->tx_state == UCT_OFI_TX_IDLE :
                              ucs_list_is_empty(&uct_ofi_iface(m_b->iface)->peers));
        }));
    };
    const auto meet = [&]() {
        m_received = 0;
        m_back     = m_b->connect(m_a->where());
        EXPECT_EQ(UCS_OK, send(both(), m_back, way::SHORT, 1, pattern(1, 100)));
        EXPECT_TRUE(run_until(both(), [this]() { return m_received == 1; }));
        m_there = m_a->connect(m_b->where());
        m_a->gone.clear();
        exchange();
    };

    part(true);
    say_to_a(UCT_OFI_HELLO, 0, serial); /* the first one again */
    meet();
    own->num_under_way -= 1;
    EXPECT_LT(next, own->tx_count);
    for (uint32_t jump : {1u, 1000u, 0x7fffffffu}) {
        part(false);
        say_to_a(UCT_OFI_HELLO, 0, serial + jump); /* the next is serial + 1 */
        meet();
        part(false);
        say_to_a(UCT_OFI_HELLO, jump, uct_ofi_iface(m_b->iface)->num_serials + 1);
        meet();
    }
}

/* Whose interface ends behind a farewell: in whichever order the two come. */
TEST_P(ofi_late, an_interface_that_leaves_first)
{
    const uct_ofi_peer_t *peer = uct_ofi_ep(m_there)->peer;
    const uint32_t next = peer->rx_count, serial = peer->serial;

    say_to_a(UCT_OFI_DATA, next + 2, serial); /* there is no such thing */
    say_to_a(UCT_OFI_LEAVE, next + 1, serial);
    say_to_a(UCT_OFI_BYE, next, serial);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, peer->status);
    EXPECT_TRUE(run_until(both(), [this]() { return m_a->failed.size() == 1; }));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, m_a->failed.at(0).second);
    EXPECT_EQ(1u, m_a->gone.size());
}

/* An endpoint that is closed while its introduction is said again: the other side has opened, and
 * hears of it. */
TEST_P(ofi_late, a_close_amid_an_introduction)
{
    if (!is_delivered_alone()) {
        GTEST_SKIP() << "only the kernel of TCP delivers without the sender";
    }
    m_a->close(m_there);
    EXPECT_TRUE(run_until(both(), [this]() { return m_b->gone.size() == 1; }));
    m_there = m_a->connect(m_b->where());
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(m_there));
    uct_ofi_peer_t *peer = uct_ofi_ep(m_there)->peer, *other = uct_ofi_ep(m_back)->peer;
    EXPECT_TRUE(run_until({m_a.get()}, [&]() {
        return (peer->say == 0) && (peer->num_under_way == 0);
    }));
    EXPECT_TRUE(run_until({m_b.get()}, [&]() { return other->rx_open != 0; }));
    uct_ofi_peer_say(peer, UCT_OFI_SAY_HELLO);
    m_a->close(m_there);
    EXPECT_TRUE(run_until(both(), [this]() { return m_b->gone.size() == 2; }));
}

/* Who hears that a direction has ended may say something by which the peer fails: it is not opened
 * anew then, by which it would stay for ever. */
TEST_P(ofi_late, a_failure_while_an_end_is_told)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(m_a->iface);
    uct_ofi_peer_t *peer   = uct_ofi_ep(m_there)->peer;

    m_b->close(m_back);
    EXPECT_TRUE(run_until(both(), [&]() { return !peer->rx_open; }));
    m_back = m_b->connect(m_a->where());
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(m_back));
    ASSERT_TRUE(run_until(both(), [&]() { return peer->rx_open != 0; }));
    iface->super.params.peer_gone = [](void *arg, const uint8_t *uid) {
        uct_ofi_iface_t *own = uct_ofi_iface(static_cast<worker *>(arg)->iface);
        own->super.params.peer_gone = nullptr;
        uct_ofi_peer_fail(uct_ofi_peer_find(own, uid), UCS_ERR_IO_ERROR);
    };
    say_to_a(UCT_OFI_HELLO, peer->rx_base + 1, peer->serial);
    EXPECT_TRUE(run_until(both(), [&]() {
        return ucs_list_is_empty(&iface->lost) && (m_a->failed.size() == 1);
    }));
}

/* Within a connection: what was about a direction that has been closed since is not about that
 * which was opened after it. */
TEST_P(ofi_late, words_of_a_closed_direction)
{
    uct_ofi_peer_t *peer   = uct_ofi_ep(m_there)->peer;
    const uint32_t tx_base = peer->tx_base, rx_base = peer->rx_base, serial = peer->serial;

    m_a->close(m_there);
    m_there = m_a->connect(m_b->where());
    exchange();
    ASSERT_EQ(peer, uct_ofi_ep(m_there)->peer);
    ASSERT_NE(tx_base, peer->tx_base);
    say_to_a(UCT_OFI_DROP, tx_base, serial);
    exchange();
    m_b->close(m_back);
    EXPECT_TRUE(run_until(both(), [&]() { return !peer->rx_open; }));
    say_to_a(UCT_OFI_HELLO, rx_base, serial);
    EXPECT_FALSE(peer->rx_open);
    m_a->gone.clear();
    m_back = m_b->connect(m_a->where());
    exchange();
}

/* Who has lost all memory of a peer says so: endpoints that wait for it go on. */
TEST_P(ofi_late, a_side_that_has_forgotten)
{
    uct_ofi_peer_t *peer  = uct_ofi_ep(m_there)->peer;
    const uint32_t serial = peer->serial;

    m_a->close(m_there); /* its farewell is due */
    m_there = m_a->connect(m_b->where());
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(m_there));
    say_to_a(UCT_OFI_REJECT, 0, serial - 1); /* b has met a since */
    EXPECT_TRUE(m_a->gone.empty());
    uct_ofi_peer_fail(uct_ofi_ep(m_back)->peer, UCS_ERR_IO_ERROR);
    EXPECT_TRUE(run_until(both(), [this]() { return m_a->gone.size() == 1; }));
    m_a->gone.clear();
    m_b->failed.clear();
    m_b->close(m_back);
    m_back = m_b->connect(m_a->where());
    exchange();
}

/* A farewell that got lost on the way, without a word, is said again: it holds up who comes next
 * only as long as it takes to notice. */
TEST_P(ofi_late, a_lost_farewell_is_said_again)
{
    uct_ofi_peer_t *peer = uct_ofi_ep(m_there)->peer;

    m_a->close(m_there);
    ASSERT_EQ(UCT_OFI_TX_CLOSING, peer->tx_state);
    peer->say        &= ~static_cast<unsigned>(UCT_OFI_SAY_BYE);
    peer->is_bye_said = 1; /* as if it had been sent */
    ++peer->tx_count;
    m_there = m_a->connect(m_b->where());
    exchange();
}

/* Who says much, and hears nothing: its introductions come, and are never answered. */
TEST_P(ofi_late, a_direction_that_does_not_open)
{
    log_levels quiet("fatal");
    const environment little(settings{{"UCX_OFI_TIMEOUT", "50ms"}});
    ASSERT_NO_FATAL_FAILURE(begin());
    m_a->close(m_there);
    const uct_ofi_peer_t *peer = uct_ofi_peer_find(uct_ofi_iface(m_a->iface), m_b->uid.data());
    EXPECT_TRUE(run_until(both(), [&]() {
        return (m_b->gone.size() == 1) && (peer->tx_state == UCT_OFI_TX_IDLE);
    }));
    const uint32_t number = peer->rx_base, serial = peer->serial;
    m_there = m_a->connect(m_b->where());
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(m_there));
    uint64_t said_ns = 0;
    ASSERT_TRUE(run_until({m_a.get()}, [&]() {
        if ((ucs_sys_clock_ns() - said_ns) > 10000000) { /* each answer takes `sockets` 5 ms */
            say_to_a(UCT_OFI_HELLO, number, serial);
            said_ns = ucs_sys_clock_ns();
        }
        return m_a->failed.size() == 1;
    }));
    EXPECT_EQ(UCS_ERR_IO_ERROR, m_a->failed.at(0).second);
}

INSTANTIATE_TEST_SUITE_P(, ofi_late, testing::Values("net", "sockets", "udp;ofi_rxd"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             const std::string name = info.param;
                             return name.substr(name.find('_') + 1);
                         });

/* ---- everything late ---- */

/* One side of two that connect, part and give each other up by chance. */
struct chance_side {
    explicit chance_side(const uct_tl_t *tl) : self(tl)
    {
        self.on_message(1, [this](const uint8_t *, size_t) { ++received; });
    }

    uct_ofi_iface_t *iface()
    {
        return uct_ofi_iface(self.iface);
    }

    /* An endpoint that has failed is closed. */
    void tidy()
    {
        self.failed.clear();
        if ((ep != nullptr) && (uct_ofi_ep(ep)->peer == nullptr) && has_tried) {
            close();
        }
    }

    void close()
    {
        self.close(ep);
        ep = nullptr;
    }

    worker self;
    uct_ep_t *ep      = nullptr;
    bool has_tried    = false; /* to connect */
    unsigned received = 0;
};

void act(seeded_random &rnd, chance_side &one, chance_side &other)
{
    uct_ofi_peer_t *peer = uct_ofi_peer_find(one.iface(), other.self.uid.data());

    switch (rnd.below(6)) {
    case 0:
    case 1:
        if (one.ep == nullptr) {
            one.ep        = one.self.connect(other.self.where());
            one.has_tried = false;
        }
        (void)post(one.ep, way::SHORT, 1, pattern(0, 100), 0);
        one.has_tried = true;
        break;
    case 2:
        if (one.ep != nullptr) {
            one.close();
        }
        break;
    case 3:
        if (rnd.one_in(4) && (peer != nullptr)) {
            uct_ofi_peer_fail(peer, UCS_ERR_IO_ERROR);
        }
        break;
    case 4:
        if (rnd.one_in(4)) {
            (void)one.self.tl->iface.drop_peer(one.self.iface, other.self.uid.data(), 0);
        }
        break;
    default:
        break;
    }
    for (uint64_t i = rnd.below(8); i > 0; --i) {
        one.self.progress();
        one.tidy();
    }
}

/* What comes again, or with a number that nobody has said. */
bytes forged(seeded_random &rnd, bytes said)
{
    uct_ofi_intro_t intro;

    if ((said.size() == sizeof(intro)) && rnd.one_in(4)) {
        memcpy(&intro, said.data(), sizeof(intro));
        for (uint32_t *each : {&intro.head.number, &intro.head.taken, &intro.head.serial,
                               &intro.answer}) {
            *each = rnd.one_in(3) ? static_cast<uint32_t>(rnd.bits()) :
                                    *each + static_cast<uint32_t>(rnd.below(5));
        }
        memcpy(said.data(), &intro, sizeof(intro));
    }
    return said;
}

/* Whatever has been said between two comes again, at any later time, or with numbers that nobody
 * has said, while they connect and part, and some of it gets lost: once that ends, they meet. */
TEST(ofi_again, two_that_live_can_meet)
{
    const uct_tl_t *tl = uct_tl_find("ofi");

    if (!is_present(tl)) {
        GTEST_SKIP() << "no libfabric here";
    }
    log_levels quiet("fatal");
    seeded_random rnd(51);
    for (unsigned round = 0; (round < 20) && !HasFailure(); ++round) {
        std::vector<bytes> said;
        faulty_provider provider(rnd.bits());
        const environment little(settings{{"UCX_OFI_TIMEOUT", "200ms"}});
        chance_side a(tl), b(tl);
        ASSERT_EQ(UCS_OK, a.self.status());
        ASSERT_EQ(UCS_OK, b.self.status());

        provider.said           = &said;
        provider.faults.spare   = true;
        provider.faults.swallow = rnd.one_in(2) ? 10 : 0;
        provider.faults.hold    = rnd.one_in(2) ? 4 : 0;
        for (unsigned i = 0; i < 400; ++i) {
            const bool is_a = rnd.one_in(2);
            act(rnd, is_a ? a : b, is_a ? b : a);
            if (rnd.one_in(2) && !said.empty()) {
                const bytes each = forged(rnd, said.at(rnd.below(said.size())));
                uct_ofi_receive(rnd.one_in(2) ? a.iface() : b.iface(),
                                reinterpret_cast<const char *>(each.data()), each.size());
            }
        }
        provider.said       = nullptr;
        provider.faults     = {};
        const unsigned at_a = a.received, at_b = b.received;
        EXPECT_TRUE(run_until({&a.self, &b.self}, [&]() {
            for (chance_side *each : {&a, &b}) {
                each->tidy();
                if (each->ep == nullptr) {
                    each->ep = each->self.connect((each == &a) ? b.self.where() : a.self.where());
                }
                (void)post(each->ep, way::SHORT, 1, pattern(0, 100), 0);
                each->has_tried = true;
            }
            return (a.received > at_a) && (b.received > at_b);
        })) << "round " << round;
    }
}

/* The death of who has computed for long is noticed as soon as anybody's. */
TEST(ofi_silent, death_of_who_computed)
{
    const uct_tl_t *tl = uct_tl_find("ofi");

    if (!is_present(tl)) {
        GTEST_SKIP() << "no libfabric here";
    }
    const environment little(settings{{"UCX_OFI_TIMEOUT", "500ms"}});
    peer_process peer([&](channel &parent) {
        worker b(tl);
        bool received = false;
        b.on_message(1, [&](const uint8_t *, size_t) { received = true; });
        parent.put_contact(b.where());
        EXPECT_TRUE(run_until({&b}, [&]() { return received; }));
        parent.put_number(1);
        (void)parent.get_number(); /* computes */
    });
    worker a(tl);
    ASSERT_EQ(UCS_OK, a.status());
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "nobody's kernel is asked";
    }
    uct_ep_t *ep = a.connect(peer.link().get_contact());
    ASSERT_EQ(UCS_OK, send({&a}, ep, way::SHORT, 1, pattern(0, 8)));
    ASSERT_EQ(1u, peer.link().get_number());

    const uct_ofi_peer_t *known = uct_ofi_ep(ep)->peer;
    ASSERT_TRUE(run_until({&a}, [&]() {
        return !a.failed.empty() || (known->num_probes > 16); /* at 32 it is asked there again */
    }));
    ASSERT_TRUE(a.failed.empty());
    peer.kill_now();
    mp::own_time time;
    EXPECT_TRUE(run_until({&a}, [&]() {
        return !a.failed.empty() || (time.s() > 3); /* six time-outs */
    }));
    EXPECT_EQ(1u, a.failed.size());
}

} // namespace

#endif
