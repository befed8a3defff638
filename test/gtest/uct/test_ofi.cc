/* Halyard: tests of the ofi transport beyond the conformance suite: what strangers may do to it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "faulty_provider.h"
#include "sys_meter.h"
#include "world.h"

#include <fake_sys.h>
#include <mp/processes.h>
#include <seed.h>
#include <ucp/world.h>

#include "config.h"
#ifdef HAVE_OFI
extern "C" {
#include <ucs/sys/sys.h>
#include <ucs/sys/topo.h>
#include <uct/ofi/ofi_devices.h>
}
#endif

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace uct_test;
using ucp_test::environment;
using ucp_test::settings;

namespace {

class ofi : public testing::Test {
protected:
    void SetUp() override
    {
        if (!is_present(m_tl)) {
            GTEST_SKIP() << "built without libfabric";
        }
    }

    /* Registers memory that others are to read. False where nothing is read by itself: the test is
     * skipped. */
    bool lend(const worker &w, uint8_t *memory, size_t length, uct_mem_t **mem_p) const
    {
        const bool is_lent =
            m_tl->iface.reg(w.iface, memory, length, nullptr, 1, mem_p) == UCS_OK;
        if (!is_lent) {
            [] { GTEST_SKIP() << "nothing is read by itself here"; }();
        }
        return is_lent;
    }

    const uct_tl_t *m_tl = uct_tl_find("ofi");
};

/* Two workers that wait so long for silent peers. */
struct patient_pair {
    patient_pair(const uct_tl_t *tl, const char *timeout) :
        so_long(settings{{"UCX_OFI_TIMEOUT", timeout}}), a(tl), b(tl)
    {
        EXPECT_EQ(UCS_OK, a.status());
        EXPECT_EQ(UCS_OK, b.status());
    }

    const environment so_long;
    worker a, b;
};

/* The place of the provider's own address in ours. */
constexpr size_t HEAD = 16;

/* Somebody connects to the provider's port and leaves, as one who asks the kernel of a silent peer
 * does: nothing is left of it, and nobody else is disturbed. */
TEST_F(ofi, who_connects_and_leaves_is_forgotten)
{
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    unsigned received = 0;
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));

    struct sockaddr_in where;
    const bytes address = b.where().address;
    if (address.size() != HEAD + sizeof(where)) {
        GTEST_SKIP() << "no provider with addresses of IPv4";
    }
    if (strncmp(b.iface->choice, "udp", 3) == 0) {
        GTEST_SKIP() << "nobody connects to where datagrams go";
    }
    memcpy(&where, address.data() + HEAD, sizeof(where));
    const auto before = sys_meter::descriptors();
    for (unsigned i = 0; i < 300; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(0, connect(fd, reinterpret_cast<struct sockaddr *>(&where), sizeof(where)));
        close(fd);
        ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(i, 100)));
    }
    EXPECT_TRUE(run_until({&a, &b}, [&]() {
        return (received == 301) && (sys_meter::descriptors().size() <= before.size());
    }));
    EXPECT_EQ(301u, received);
    EXPECT_EQ(before.size(), sys_meter::descriptors().size());
    EXPECT_TRUE(a.failed.empty());
}

/* A child does with what it has inherited what programs do at their end: the parent and its peers
 * go on. */
void fork_amid_messages(const uct_tl_t *tl)
{
    auto a = std::make_unique<worker>(tl), b = std::make_unique<worker>(tl);
    ASSERT_EQ(UCS_OK, a->status());
    ASSERT_EQ(UCS_OK, b->status());
    unsigned received = 0;
    b->on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a->connect(b->where());
    for (unsigned i = 0; i < 20; ++i) {
        ASSERT_EQ(UCS_OK, send({a.get(), b.get()}, ep, way::SHORT, 1, pattern(i, 100)));
        const pid_t child = fork();
        if (child == 0) {
            const bool refused = UCS_STATUS_IS_ERR(post(ep, way::SHORT, 1, pattern(0, 8), 0));
            a->progress();
            b->progress();
            a.reset();
            b.reset();
            _exit(refused ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
    }
    EXPECT_TRUE(run_until({a.get(), b.get()}, [&]() { return received == 20; }));
    EXPECT_TRUE(a->failed.empty());
    EXPECT_TRUE(b->gone.empty());
}

TEST_F(ofi, a_forked_child_disturbs_nobody)
{
    fork_amid_messages(m_tl);
}

#ifdef HAVE_OFI

/* The same where the library of the network's devices keeps registered memory from the child. */
TEST_F(ofi, a_forked_child_has_no_registered_memory)
{
    faulty_provider provider(50);

    provider.says.registered = true;
    fork_amid_messages(m_tl);
    EXPECT_LT(0u, provider.seen.registered);
}

/* Reads of any length to and from any address: the bytes asked for, and no other. */
TEST_F(ofi, reads_of_odd_places)
{
    seeded_random rnd(43);
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    bytes source = pattern(7, 3u << 20);
    uint8_t packed[UCT_RKEY_MAX];
    uct_rkey_t *rkey;
    uct_mem_t *mem;

    if (!lend(b, source.data() + 1, source.size() - 1, &mem)) {
        return;
    }
    ASSERT_EQ(size_t(UCT_IFACE_KEY_LEN), m_tl->md.rkey_pack(mem, packed));
    ASSERT_EQ(UCS_OK, m_tl->md.rkey_unpack(a.md, packed, UCT_IFACE_KEY_LEN, &rkey));
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    for (unsigned i = 0; i < 300; ++i) {
        const size_t length = rnd.one_in(20) ? rnd.below(2u << 20) : rnd.below(5000);
        const size_t from   = 1 + rnd.below(source.size() - 1 - length);
        const size_t to     = rnd.below(64);
        bytes target(to + length + 64, 0xee), expected(target);
        uct_mem_t *local = nullptr;

        ASSERT_EQ(UCS_OK, m_tl->iface.reg(a.iface, target.data(), target.size(), nullptr, 0,
                                          &local));
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), length,
                    expected.begin() + static_cast<ptrdiff_t>(to));
        uct_iov_t iov = {target.data() + to, length, local};
        ASSERT_EQ(UCS_OK, finish({&a, &b}, [&](uct_completion_t *comp) {
            return ep->ops->get_zcopy(ep, &iov, 1,
                                      reinterpret_cast<uintptr_t>(source.data()) + from, rkey,
                                      comp);
        }));
        ASSERT_EQ(expected, target) << length << " bytes from " << from << " to " << to;
        if (local != nullptr) {
            m_tl->md.release(local);
        }
    }
    m_tl->md.rkey_release(rkey);
    m_tl->md.release(mem);
}

/* Reads of all that another worker has lent, into as much memory of the reader. */
class reading {
public:
    reading(const worker &reader, bytes &source, uct_mem_t *lent) :
        m_tl(reader.tl), m_source(source), m_target(source.size()), m_lent(lent)
    {
        uint8_t packed[UCT_RKEY_MAX];

        (void)m_tl->md.rkey_pack(lent, packed);
        EXPECT_EQ(UCS_OK, m_tl->md.rkey_unpack(reader.md, packed, UCT_IFACE_KEY_LEN, &m_rkey));
        EXPECT_EQ(UCS_OK, m_tl->iface.reg(reader.iface, m_target.data(), m_target.size(), nullptr,
                                          0, &m_local));
    }

    ~reading()
    {
        if (m_rkey != nullptr) {
            m_tl->md.rkey_release(m_rkey);
        }
        m_tl->md.release(m_lent);
        if (m_local != nullptr) {
            m_tl->md.release(m_local);
        }
    }

    reading(const reading &)            = delete;
    reading &operator=(const reading &) = delete;

    ucs_status_t start(uct_ep_t *ep, uct_completion_t *comp)
    {
        const uct_iov_t iov = {m_target.data(), m_target.size(), m_local};

        return ep->ops->get_zcopy(ep, &iov, 1, reinterpret_cast<uintptr_t>(m_source.data()), m_rkey,
                                  comp);
    }

private:
    const uct_tl_t *m_tl;
    bytes &m_source;
    bytes m_target;
    uct_mem_t *m_lent;
    uct_mem_t *m_local = nullptr;
    uct_rkey_t *m_rkey = nullptr;
};

/* A read that does not end although the peer is there: both end, with an error, for which the
 * worker does not look at every descriptor that a process may have. */
TEST_F(ofi, a_lost_read_ends)
{
    log_levels quiet("fatal");
    patient_pair both(m_tl, "50ms");
    worker &a = both.a, &b = both.b;
    bytes source = pattern(7, 1u << 20);
    uct_mem_t *mem;

    if (!lend(b, source.data(), source.size(), &mem)) {
        return;
    }
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "the provider gives nothing back";
    }
    reading all(a, source, mem);
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));

    completion comp;
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    ASSERT_EQ(UCS_INPROGRESS, all.start(ep, &comp.base));
    const sys_meter meter;
    EXPECT_TRUE(run_until({&a}, [&]() { /* b does nothing, but is said to be there */
        if (a.failed.empty()) {
            uct_ofi_peer_heard(peer);
        }
        return comp.calls > 0;
    }));
    EXPECT_GT(10000u, meter.system_calls());
    EXPECT_EQ(1, comp.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, comp.base.status);
    EXPECT_TRUE(run_until({&a}, [&]() { return a.failed.size() == 1; }));
}

/* The provider's connections are found among the descriptors of the process however few it may
 * have, by about as many calls as there have ever been (thousands, in other tests). */
TEST_F(ofi, connections_are_found_under_a_low_limit)
{
    worker a(m_tl), b(m_tl);
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "there are no connections";
    }
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));

    struct rlimit before;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    const uint16_t port = uct_ofi_own_port(uct_ofi_ep(ep)->peer);
    EXPECT_NE(0, port);
    for (const rlim_t low : {200, 100}) {
        const struct rlimit limit = {low, before.rlim_max};
        const sys_meter meter;
        EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
        EXPECT_EQ(port, uct_ofi_own_port(uct_ofi_ep(ep)->peer));
        EXPECT_GT(40000u, meter.system_calls());
    }
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
}

/* A message that has got lost on the way is noticed although nothing follows it; one that has been
 * taken is not mistaken for it. */
TEST_F(ofi, a_lost_last_message_is_noticed)
{
    log_levels quiet("fatal");
    patient_pair both(m_tl, "50ms");
    worker &a = both.a, &b = both.b;
    unsigned received = 0;

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(i, 100)));
    }
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 3; }));
    const uint64_t end_ns = ucs_sys_clock_ns() + 1000000000; /* twenty time-outs */
    (void)run_until({&a, &b}, [&]() { return ucs_sys_clock_ns() > end_ns; });
    ASSERT_TRUE(a.failed.empty());
    ASSERT_TRUE(b.failed.empty());
    ++uct_ofi_ep(ep)->peer->tx_count; /* as if it had been sent */
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return a.failed.size() == 1; }));
    EXPECT_EQ(UCS_ERR_IO_ERROR, a.failed.at(0).second);
}

/* What a connection has lost that broke is noticed soon where a read has failed by that; where
 * nothing is lost the peer is kept. */
TEST_F(ofi, a_message_lost_beside_a_read_is_noticed_soon)
{
    log_levels quiet("fatal");
    faulty_provider provider(51);
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b;
    bytes source = pattern(7, 4096);
    uct_mem_t *mem;

    if (!lend(b, source.data(), source.size(), &mem)) {
        return;
    }
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "there are no connections";
    }
    reading all(a, source, mem);
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    for (const unsigned lost : {0u, 1u}) {
        provider.faults.swallow = 1;
        EXPECT_EQ(UCS_ERR_IO_ERROR, finish({&a, &b}, [&](uct_completion_t *comp) {
            const ucs_status_t status = all.start(ep, comp);
            provider.faults.swallow = 0;
            return status;
        }));
        uct_ofi_ep(ep)->peer->tx_count += lost; /* as if it had been sent */
        uint64_t look_ns = 0;
        unsigned looks   = 0; /* ten a time-out */
        EXPECT_TRUE(run_until({&a, &b}, [&]() {
            looks  += (uct_ofi_iface(a.iface)->look_ns != look_ns);
            look_ns = uct_ofi_iface(a.iface)->look_ns;
            return !a.failed.empty() || (looks > 20);
        }));
        ASSERT_EQ(lost, a.failed.size());
    }
    EXPECT_EQ(UCS_ERR_IO_ERROR, a.failed.at(0).second);
}

/* While it lives the network brings nothing to a peer's kernel, so that ours says it again. */
class slow_network {
public:
    slow_network()
    {
        s_ops            = ucs_sys_real;
        s_ops.getsockopt = [](int fd, int level, int option, void *value, socklen_t *length) {
            const int ret = ucs_sys_real.getsockopt(fd, level, option, value, length);
            if ((ret == 0) && (level == IPPROTO_TCP) && (option == TCP_INFO)) {
                static_cast<struct tcp_info *>(value)->tcpi_unacked = 1;
            }
            return ret;
        };
        ucs_sys_set(&s_ops);
    }
    ~slow_network() { ucs_sys_set(nullptr); }

private:
    static ucs_sys_ops_t s_ops;
};

ucs_sys_ops_t slow_network::s_ops;

/* A message by value was lost, of whom nobody tells: who has taken all is not in doubt, nor is
 * taken for lost what our kernel still has. */
TEST_F(ofi, who_is_only_slow_is_not_given_up_soon)
{
    log_levels quiet("fatal");
    faulty_provider provider(52);
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b, c(m_tl);
    if (!uct_ofi_iface(a.iface)->is_tcp || (uct_ofi_iface(a.iface)->short_max < 64)) {
        GTEST_SKIP() << "there are no connections, or no messages by value";
    }
    uct_ep_t *ep = a.connect(b.where()), *other = a.connect(c.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    ASSERT_EQ(UCS_OK, send({&a, &c}, other, way::SHORT, 1, pattern(0, 8)));
    const uct_ofi_peer_t *slow = uct_ofi_ep(ep)->peer, *whole = uct_ofi_ep(other)->peer;
    ASSERT_TRUE(run_until({&a, &b, &c}, [&]() {
        return (slow->tx_taken == slow->tx_count) && (whole->tx_taken == whole->tx_count);
    }));
    provider.faults.swallow = 1;
    ASSERT_EQ(UCS_OK, ep->ops->am_short(ep, 1, 0, nullptr, 0));
    provider.faults.swallow = 0;
    EXPECT_TRUE(run_until({&a}, [&]() { return slow->num_doubtful > 0; }));
    EXPECT_EQ(0, whole->num_doubtful);
    EXPECT_NE(0u, whole->asked_ns);

    const auto look_20_times = [&]() { /* or until the loss is noticed */
        uint64_t look_ns = 0;
        unsigned looks   = 0; /* ten a time-out */
        EXPECT_TRUE(run_until({&a, &b, &c}, [&]() {
            looks  += (uct_ofi_iface(a.iface)->look_ns != look_ns);
            look_ns = uct_ofi_iface(a.iface)->look_ns;
            return !a.failed.empty() || (looks > 20);
        }));
    };
    {
        const slow_network network;
        look_20_times();
        ASSERT_TRUE(a.failed.empty());
    }
    look_20_times();
    ASSERT_EQ(1u, a.failed.size());
    EXPECT_EQ(UCS_ERR_IO_ERROR, a.failed.at(0).second);
}

/* Who computes takes no message, though its memory can be read meanwhile where the provider serves
 * that by itself: nothing is lost. */
TEST_F(ofi, reads_from_who_computes)
{
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b;
    bytes source = pattern(7, 4096);
    uct_mem_t *mem;
    unsigned received = 0, reads = 0;

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    if (!lend(b, source.data(), source.size(), &mem)) {
        return;
    }
    reading all(a, source, mem);
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));
    ASSERT_EQ(UCS_OK, send({&a}, ep, way::SHORT, 1, pattern(1, 8)));

    const uint64_t end_ns = ucs_sys_clock_ns() + 2000000000ul; /* ten time-outs */
    while (a.failed.empty() && (ucs_sys_clock_ns() < end_ns)) {
        struct fi_cq_data_entry none;
        completion comp;
        ASSERT_EQ(UCS_INPROGRESS, all.start(ep, &comp.base));
        ASSERT_TRUE(run_until({&a}, [&]() {
            (void)fi_cq_read(uct_ofi_iface(b.iface)->cq, &none, 0); /* b's provider serves it */
            return comp.calls == 1;
        }));
        ASSERT_EQ(UCS_OK, comp.base.status);
        ++reads;
    }
    EXPECT_GT(reads, 10u);
    EXPECT_TRUE(a.failed.empty());
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 2; }));
}

/* To whom so much time passes between looks each time that it was away. */
uint64_t g_ahead_ns;

TEST_F(ofi, who_makes_progress_seldom_hears_of_a_death)
{
    log_levels quiet("fatal");
    const environment so_long(settings{{"UCX_OFI_TIMEOUT", "1s"}});
    worker a(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "no kernel is asked";
    }
    auto b              = std::make_unique<worker>(m_tl);
    uct_ep_t *ep        = a.connect(b->where());
    ucs_sys_ops_t table = ucs_sys_real;
    b.reset();
    g_ahead_ns     = 0;
    table.clock_ns = []() { return ucs_sys_real.clock_ns() + g_ahead_ns; };
    const fake_sys fake(table);
    (void)post(ep, way::SHORT, 1, pattern(0, 8), 0);
    uint64_t look_ns = 0;
    EXPECT_TRUE(run_until({&a}, [&]() {
        if (uct_ofi_iface(a.iface)->look_ns != look_ns) {
            look_ns     = uct_ofi_iface(a.iface)->look_ns;
            g_ahead_ns += 700000000;
        }
        return !a.failed.empty();
    }));
    ASSERT_EQ(1u, a.failed.size());
}

/* A process that computes accepts no connections, so its kernel has soon no room for more of those
 * by which it is asked whether it lives: it is not given up. */
TEST_F(ofi, who_computes_for_long_is_not_given_up)
{
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b;
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "nobody's kernel is asked";
    }
    unsigned received = 0;
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));

    struct sockaddr_in6 own;
    const bytes address = b.where().address;
    unsigned found      = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        socklen_t length = sizeof(own), int_length = sizeof(int);
        int listens      = 0;
        if ((getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_length) == 0) && listens &&
            (getsockname(fd, reinterpret_cast<struct sockaddr *>(&own), &length) == 0) &&
            (memcmp(&own, address.data() + HEAD, 4) == 0)) { /* family and port */
            ASSERT_EQ(0, listen(fd, 1)); /* room for two; else it would take hours, or many */
            ++found;
        }
    }
    ASSERT_EQ(1u, found);
    uct_ofi_peer_t *peer  = uct_ofi_ep(ep)->peer;
    const uint64_t end_ns = ucs_sys_clock_ns() + 2000000000ul; /* ten time-outs */
    EXPECT_TRUE(run_until({&a}, [&]() {
        /* Once the question begins while something is to be said, by which it goes to the port
         * whose queue is full; that has been said before the question ends. */
        const unsigned unknown = 1u << 31;
        const bool is_held     = (peer->num_probes == 3) && (peer->probe_fd < 0);
        peer->say = is_held ? (peer->say | unknown) : (peer->say & ~unknown);
        return !a.failed.empty() || (ucs_sys_clock_ns() > end_ns);
    }));
    ASSERT_TRUE(a.failed.empty());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(1, 100)));
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 2; }));
}

/* A process that has no descriptor left to ask by takes nobody for dead who only computes. */
TEST_F(ofi, who_computes_is_not_given_up_for_lack_of_descriptors)
{
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b;
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "nobody's kernel is asked";
    }
    unsigned received = 0;
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));

    struct rlimit before;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    const struct rlimit none = {0, before.rlim_max};
    const uint64_t end_ns    = ucs_sys_clock_ns() + 1000000000ul; /* five time-outs */
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    EXPECT_TRUE(run_until({&a}, [&]() {
        return !a.failed.empty() || (ucs_sys_clock_ns() > end_ns);
    }));
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    ASSERT_TRUE(a.failed.empty());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(1, 100)));
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 2; }));
}

/* It does take the host for gone whose kernel has acknowledged nothing for so long, though it is
 * told so by no other connection. */
TEST_F(ofi, a_silent_host_is_given_up_for_lack_of_descriptors)
{
    log_levels quiet("fatal");
    patient_pair both(m_tl, "1s");
    worker &a = both.a, &b = both.b;
    if (!uct_ofi_iface(a.iface)->is_tcp) {
        GTEST_SKIP() << "nobody's kernel is asked";
    }
    unsigned received = 0;
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));

    /* What comes to b's sockets is dropped before their kernel sees it. */
    struct sock_filter none       = {BPF_RET | BPF_K, 0, 0, 0};
    const struct sock_fprog sieve = {1, &none};
    const uint16_t port           = htons(uct_ofi_own_port(uct_ofi_ep(ep)->peer));
    struct sockaddr_in6 remote;
    unsigned found = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        socklen_t length = sizeof(remote);
        if ((getpeername(fd, reinterpret_cast<struct sockaddr *>(&remote), &length) == 0) &&
            (remote.sin6_port == port)) {
            ASSERT_EQ(0, setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &sieve, sizeof(sieve)));
            ++found;
        }
    }
    ASSERT_EQ(1u, found);
    struct rlimit before;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    const struct rlimit limit = {1024, before.rlim_max};
    mp::own_time time;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    std::vector<int> fill;
    for (int fd; (fd = dup(0)) >= 0;) {
        fill.push_back(fd);
    }
    EXPECT_TRUE(run_until({&a}, [&]() { return !a.failed.empty() || (time.s() > 5); }));
    for (int fd : fill) {
        close(fd);
    }
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    ASSERT_EQ(1u, a.failed.size());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, a.failed.at(0).second);
}

/* A connection that is cut, as what the user has given up does not end, is the provider's: not one
 * by which another worker asks the same kernel. */
TEST_F(ofi, a_cut_spares_questions_of_other_workers)
{
    log_levels quiet("fatal");
    faulty_provider provider(57);
    bytes data = pattern(1, 60000);
    completion comp; /* ends with the interface at the latest */
    patient_pair both(m_tl, "1000s");
    worker &a = both.a, &b = both.b, c(m_tl);
    uct_ofi_iface_t *iface = uct_ofi_iface(a.iface);
    if (!iface->is_tcp || !iface->has_gather) {
        GTEST_SKIP() << "there are no connections, or nothing is sent from where it lies";
    }
    uct_ep_t *ep = a.connect(b.where()), *other = c.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, ep, way::SHORT, 1, pattern(0, 8)));
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, other, way::SHORT, 1, pattern(0, 8)));
    uct_ofi_peer_t *asker = uct_ofi_ep(other)->peer;
    uint64_t now_ns       = ucs_sys_clock_ns();
    ASSERT_EQ(UCS_OK, other->ops->check(other));
    uct_ofi_iface(c.iface)->look_ns = now_ns;
    asker->asked_ns                 = now_ns;
    uct_ofi_alive_look(uct_ofi_iface(c.iface), now_ns + 300000000000ul);
    ASSERT_LE(0, asker->probe_fd);

    const uct_iov_t iov  = {data.data(), data.size(), nullptr};
    provider.faults.keep = 1;
    ASSERT_EQ(UCS_INPROGRESS, ep->ops->am_zcopy(ep, 1, &iov, 1, &comp.base));
    ep->ops->abandon(ep, &comp.base);
    for (unsigned i = 0; (i < 10) && a.failed.empty(); ++i) {
        now_ns += 200000000000ul;
        uct_ofi_alive_look(iface, now_ns);
        a.progress();
    }
    EXPECT_EQ(1u, a.failed.size());
    EXPECT_TRUE(uct_ofi_ep(ep)->peer == nullptr);
    struct pollfd event = {asker->probe_fd, POLLIN, 0};
    EXPECT_EQ(0, poll(&event, 1, 0)); /* else it would be at its end */
}

/* What ends in the call that sends it does so for a worker that sleeps at once, too, also where it
 * lies behind a buffer that was recalled, which is told as an error. */
TEST_F(ofi, who_sleeps_after_sending_hears_that_it_has_ended)
{
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    uct_ofi_iface_t *iface = uct_ofi_iface(a.iface);
    if (!iface->has_gather) {
        GTEST_SKIP() << "nothing is sent from where it lies";
    }
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    bytes data          = pattern(1, 20000);
    const uct_iov_t iov = {data.data(), data.size(), nullptr};
    struct pollfd event = {m_tl->iface.event_fd(a.iface), POLLIN, 0};
    const auto is_awake = [&]() {
        const bool is_woken = (m_tl->iface.event_arm(a.iface) != UCS_OK) ||
                              (poll(&event, 1, 0) > 0);
        if (is_woken) {
            a.progress();
        }
        return is_woken;
    };
    for (unsigned i = 0; i < 10; ++i) {
        completion comp;
        EXPECT_TRUE(run_until({&b}, [&]() { return !is_awake(); }));
        iface->num_renewals = 1;
        if (uct_ofi_receives_must_renew(iface)) {
            uct_ofi_receives_renew(iface);
        }
        iface->num_renewals = 0;
        ASSERT_EQ(UCS_INPROGRESS, ep->ops->am_zcopy(ep, 1, &iov, 1, &comp.base));
        EXPECT_EQ(UCS_ERR_BUSY, m_tl->iface.event_arm(a.iface)); /* else only the timer wakes it */
        a.progress();
        EXPECT_TRUE((comp.calls == 1) || (m_tl->iface.event_arm(a.iface) == UCS_ERR_BUSY));
        ASSERT_TRUE(run_until({&b}, [&]() {
            (void)is_awake();
            return comp.calls == 1;
        }));
        EXPECT_EQ(UCS_OK, comp.base.status);
    }
}

/* Nor one that calls progress so seldom that the time for the answer is over when it asks. */
TEST_F(ofi, who_computes_is_not_given_up_by_who_asks_late)
{
    patient_pair both(m_tl, "1000s");
    worker &a = both.a, &b = both.b;
    uct_ofi_iface_t *iface = uct_ofi_iface(a.iface);
    if (!iface->is_tcp) {
        GTEST_SKIP() << "nobody's kernel is asked";
    }
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));
    uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    ASSERT_EQ(UCS_OK, ep->ops->check(ep));
    peer->num_probes     = 1; /* its kernel has answered before */
    iface->look_ns       = peer->asked_ns;
    for (const uint64_t at_s : {390, 850, 1300}) {
        uct_ofi_alive_look(iface, iface->look_ns + ((at_s * 1000000000ul) -
                                                    (iface->look_ns - peer->asked_ns)));
        ASSERT_EQ(UCS_OK, peer->status) << at_s;
    }
    EXPECT_EQ(2u, peer->num_probes);
}

/* Where nobody's kernel can be asked, who computes is there as long as the provider says that its
 * endpoint has our questions; when it does not say so any more, it is not. */
TEST_F(ofi, who_computes_is_there_as_the_provider_says)
{
    patient_pair both(m_tl, "200ms");
    worker &a = both.a, &b = both.b;
    unsigned received = 0;
    if (!uct_ofi_iface(a.iface)->is_multi) {
        GTEST_SKIP() << "the provider says so by itself, whatever the endpoint has";
    }
    uct_ofi_iface(a.iface)->is_tcp = 0;
    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 100)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));

    const uct_ofi_peer_t *peer = uct_ofi_ep(ep)->peer;
    EXPECT_TRUE(run_until({&a}, [&]() {
        struct fi_cq_data_entry none;
        (void)fi_cq_read(uct_ofi_iface(b.iface)->cq, &none, 0); /* what a network card does */
        return !a.failed.empty() || (peer->num_probes > 10);
    }));
    ASSERT_TRUE(a.failed.empty());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(1, 100)));
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return received == 2; }));
    EXPECT_TRUE(run_until({&a}, [&]() { return !a.failed.empty(); }));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, a.failed.at(0).second);
}

/* Who arms one of a worker's interfaces takes what has happened to all of them out of its set: that
 * is not forgotten. */
TEST_F(ofi, a_set_of_two_interfaces)
{
    faulty_provider provider(5);
    provider.says.devices = 2;
    const environment devices({{"UCX_OFI_PROVIDER", "net"}, {"UCX_NET_DEVICES", "fake0,fake1"}});
    auto senders = std::vector<std::unique_ptr<worker>>(2);
    for (auto &sender : senders) {
        sender = std::make_unique<worker>(m_tl);
        if (sender->status() == UCS_ERR_NO_DEVICE) {
            GTEST_SKIP() << "no provider net here";
        }
        ASSERT_EQ(UCS_OK, sender->status());
    }
    uct_iface_params_t params = {};
    uct_iface_t *ifaces[2]    = {};
    unsigned received         = 0;
    struct pollfd set         = {epoll_create1(EPOLL_CLOEXEC), POLLIN, 0};
    uct_md_t *md;

    params.ep_failed = [](void *, uct_ep_t *, ucs_status_t) {};
    params.num_rails = 1;
    params.uid[0]    = static_cast<uint8_t>(senders[0]->uid[0] + 1);
    ASSERT_EQ(UCS_OK, uct_md_open(m_tl, nullptr, &md));
    ASSERT_EQ(UCS_OK, uct_iface_open(md, &params, &ifaces[0]));
    params.lead = ifaces[0];
    ASSERT_EQ(UCS_OK, uct_iface_open(md, &params, &ifaces[1]));

    uct_ep_t *eps[2];
    const auto progress = [&]() {
        uct_iface_progress(ifaces[0]);
        uct_iface_progress(ifaces[1]);
    };
    for (unsigned i = 0; i < 2; ++i) {
        contact where = {{}, bytes(UINT8_MAX)};
        std::copy(params.uid, params.uid + UCT_UID_LEN, where.uid.begin());
        where.address.resize(m_tl->iface.get_address(ifaces[i], where.address.data()));
        uct_iface_set_am(ifaces[i], 1, [](void *arg, const void *, size_t) {
            ++*static_cast<unsigned *>(arg);
        }, &received, UCT_AM_COPIED);
        ASSERT_EQ(UCS_OK, m_tl->iface.event_join(ifaces[i], set.fd));
        eps[i] = senders[i]->connect(where);
        EXPECT_TRUE(run_until({senders[i].get()}, [&]() {
            progress();
            return post(eps[i], way::SHORT, 1, pattern(i, 8), 0) == UCS_OK;
        }));
    }
    EXPECT_TRUE(run_until({senders[0].get(), senders[1].get()}, [&]() {
        progress();
        return received == 2;
    }));
    for (unsigned i = 0; i < 2; ++i) {
        SCOPED_TRACE(i);
        const auto arm = [&](unsigned k) { return m_tl->iface.event_arm(ifaces[k]); };
        EXPECT_TRUE(run_until({senders[0].get(), senders[1].get()}, [&]() {
            progress();
            return (arm(0) == UCS_OK) && (arm(1) == UCS_OK) && (poll(&set, 1, 0) == 0);
        }));
        ASSERT_EQ(UCS_OK, post(eps[i], way::SHORT, 1, pattern(i, 8), 0));
        EXPECT_TRUE(run_until({senders[i].get()}, [&]() { return poll(&set, 1, 10) == 1; }));
        EXPECT_TRUE((arm(1 - i) != UCS_OK) || (poll(&set, 1, 0) == 1));
        EXPECT_TRUE((arm(i) != UCS_OK) || (poll(&set, 1, 0) == 1));
    }
    senders.clear();
    uct_iface_close(ifaces[1]);
    uct_iface_close(ifaces[0]);
    uct_md_close(md);
    close(set.fd);
}

/* Keys of other lengths than ours are none, and nothing is registered where the provider does not
 * read. */
TEST_F(ofi, refused_registrations_and_keys)
{
    uint8_t packed[UCT_RKEY_MAX] = {};
    uct_rkey_t *rkey             = nullptr;
    uct_mem_t *mem               = nullptr;
    uint64_t word                = 0;
    worker a(m_tl);

    ASSERT_EQ(UCS_OK, a.status());
    for (size_t length = 0; length < UCT_RKEY_MAX; ++length) {
        if ((length != UCT_IFACE_KEY_LEN) &&
            ((length < 21) || (length % 13 != 8) || (length > 8 + UCT_OFI_KEYS_MAX * 13))) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, m_tl->md.rkey_unpack(a.md, packed, length, &rkey));
        }
    }
    EXPECT_EQ(nullptr, rkey);
    uct_ofi_iface(a.iface)->num_rmas = 0;
    EXPECT_TRUE(UCS_STATUS_IS_ERR(m_tl->iface.reg(a.iface, &word, sizeof(word), nullptr, 1, &mem)));
    EXPECT_EQ(nullptr, mem);
    EXPECT_EQ(0u, a.limits(UCT_OP_GET_ZCOPY).max);
}

/* An address whose checksum is right but that says to be longer than it is, or is cut short. */
TEST_F(ofi, addresses_of_another_form_are_refused)
{
    worker a(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    const auto is_taken = [&](bytes address) {
        uct_ofi_address_t head;
        char reason[UCT_REASON_MAX] = "";
        memcpy(&head, address.data(), sizeof(head));
        head.length   = static_cast<uint8_t>(address.size() - sizeof(head));
        head.checksum = 0;
        memcpy(address.data(), &head, sizeof(head));
        uint32_t hash = 2166136261u; /* FNV-1a */
        for (uint8_t byte : address) {
            hash = (hash ^ byte) * 16777619u;
        }
        head.checksum = hash;
        memcpy(address.data(), &head, sizeof(head));
        const bool result = m_tl->iface.is_reachable(a.iface, address.data(), address.size(), 1,
                                                     reason);
        EXPECT_EQ(result, reason[0] == '\0');
        return result;
    };
    const bytes address = a.where().address;
    EXPECT_TRUE(is_taken(address));
    EXPECT_FALSE(is_taken(bytes(address.begin(), address.end() - 1)));
    EXPECT_FALSE(is_taken(bytes(address.begin(), address.begin() + HEAD)));
    bytes other = address;
    other.insert(other.end(), 12, 1);
    EXPECT_FALSE(is_taken(other));
    const uint32_t format = uct_ofi_iface(a.iface)->info->addr_format;
    if ((format == FI_SOCKADDR_IN) || (format == FI_SOCKADDR_IN6)) {
        other = address;
        other[HEAD] ^= AF_INET ^ AF_INET6;
        EXPECT_FALSE(is_taken(other));
    }
}

/* What an interface opens can fail at each call, also where the provider wants registered memory:
 * it says so and leaves nothing. */
TEST_F(ofi, opening_fails_at_each_call)
{
    std::make_unique<worker>(m_tl); /* what the library keeps */
    const auto descriptors = sys_meter::descriptors();

    for (bool registered : {false, true}) {
        faulty_provider provider(44);
        unsigned refused = 0;

        provider.says.registered = registered;
        for (unsigned n = 1; n < 100; ++n) {
            sys_meter meter;
            provider.fail_call(n);
            {
                worker a(m_tl);
                if (!provider.has_failed()) {
                    EXPECT_EQ(UCS_OK, a.status());
                    break;
                }
                refused += (a.status() != UCS_OK); /* there may be another way */
            }
            ASSERT_EQ(0u, meter.blocks()) << "call " << n;
        }
        EXPECT_LE(registered ? 8u : 5u, refused);
    }
    EXPECT_EQ(descriptors.size(), sys_meter::descriptors().size());
}

/* Says for the PCI devices 0 to 3 that 0 and 1 lie at node 0, the others at a node that is not
 * ours. */
int open_numa(const char *path, int flags, mode_t mode)
{
    unsigned bus;

    if (sscanf(path, "/sys/bus/pci/devices/0000:%02x:00.0/numa_node", &bus) != 1) {
        return ucs_sys_real.open(path, flags, mode);
    }
    const int fd = memfd_create("numa_node", MFD_CLOEXEC);
    EXPECT_EQ(2, pwrite(fd, (bus < 2) ? "0\n" : "9\n", 2, 0));
    return fd;
}

class ofi_devices : public ofi {
protected:
    void SetUp() override
    {
        ofi::SetUp();
        m_sys      = ucs_sys_real;
        m_sys.open = open_numa;
        ucs_sys_set(&m_sys);
    }

    void TearDown() override
    {
        ucs_sys_set(nullptr);
        unsetenv("SLURM_LOCALID");
        unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    }

    static std::string device(const worker &w)
    {
        return uct_ofi_iface(w.iface)->info->domain_attr->name;
    }

private:
    ucs_sys_ops_t m_sys;
};

/* Of devices that are equal the nearest ones are used, each by other processes, and the others say
 * why they are not. Messages, reads and writes go over them. */
TEST_F(ofi_devices, equal_ones_are_shared_out)
{
    const environment devices({{"UCX_OFI_PROVIDER", "net"},
                               {"UCX_NET_DEVICES", "fake0,fake1,fake2,fake3"}});
    faulty_provider provider(46);
    provider.says.devices = 4;
    const bool is_bound   = ucs_topo_process_node() == 0;
    std::vector<std::unique_ptr<worker>> workers;

    for (unsigned i = 0; i < 4; ++i) {
        setenv((i < 2) ? "SLURM_LOCALID" : "OMPI_COMM_WORLD_LOCAL_RANK",
               std::to_string(i).c_str(), 1);
        workers.push_back(std::make_unique<worker>(m_tl));
        if (workers.back()->status() == UCS_ERR_NO_DEVICE) {
            GTEST_SKIP() << "no provider net here";
        }
        ASSERT_EQ(UCS_OK, workers.back()->status());
        const std::string choice = workers.back()->iface->choice;
        const unsigned local = i / ucs_topo_num_nodes(); /* the others' are between them */
        EXPECT_EQ("fake" + std::to_string(is_bound ? local % 2 : i), device(*workers.back()));
        EXPECT_EQ(is_bound, choice.find("fake2: equal, but farther") != std::string::npos);
        EXPECT_NE(std::string::npos, choice.find(": equal; the processes of this node"));
        EXPECT_NE(std::string::npos, choice.find("switched off by UCX_NET_DEVICES"));
    }
    unsigned received = 0;
    workers[1]->on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = workers[0]->connect(workers[1]->where());
    ASSERT_EQ(UCS_OK, send({workers[0].get(), workers[1].get()}, ep, way::SHORT, 1,
                           pattern(1, 100)));
    EXPECT_TRUE(run_until({workers[0].get(), workers[1].get()}, [&]() { return received == 1; }));
}

/* What begins and ends a connection may get lost, or be called lost: it does so all the same. */
TEST_F(ofi, connections_whose_words_get_lost)
{
    seeded_random rnd(48);
    faulty_provider provider(rnd.bits());
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    unsigned received = 0;

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    provider.faults.spare   = true;
    provider.faults.swallow = 4;
    provider.faults.belie   = 4;
    provider.faults.repeat  = 2;
    for (unsigned i = 1; (i <= 50) && !HasFailure(); ++i) {
        uct_ep_t *ep = a.connect(b.where());
        EXPECT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(i, 100)));
        a.close(ep);
        EXPECT_TRUE(run_until({&a, &b}, [&]() { return b.gone.size() == i; }));
        EXPECT_EQ(i, received);
    }
    EXPECT_TRUE(a.failed.empty());
    EXPECT_LT(0u, provider.seen.farewells);
}

/* A provider that keeps a message for ever, though later ones get through, has lost it, even where
 * none comes behind it that would tell the receiver so. */
TEST_F(ofi, a_message_that_the_provider_keeps)
{
    const environment patience(settings{{"UCX_OFI_TIMEOUT", "100ms"}});
    faulty_provider provider(50);
    worker a(m_tl), b(m_tl);
    ucp_test::log_catcher log;
    unsigned received = 0;
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::BCOPY, 1, pattern(0, 60000)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return received == 1; }));
    provider.faults.keep = 1;
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::BCOPY, 1, pattern(1, 60000)));
    provider.faults.keep = 0;
    EXPECT_EQ(1u, provider.seen.kept);
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return !a.failed.empty(); }));
    const auto lines = log.take();
    ASSERT_EQ(1u, lines.size());
    EXPECT_NE(std::string::npos, lines[0].find("has lost a message to a peer that is there"));
    EXPECT_EQ(1u, received);
}

/* A peer that has failed is kept while the provider has something for it, but not what came from it
 * before its turn. */
TEST_F(ofi, early_messages_of_who_has_failed)
{
    log_levels quiet("fatal");
    faulty_provider provider(54);
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    uct_ep_t *to_b = a.connect(b.where()), *to_a = b.connect(a.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, to_b, way::SHORT, 1, pattern(0, 8)));
    ASSERT_EQ(UCS_OK, send({&a, &b}, to_a, way::SHORT, 1, pattern(0, 8)));
    uct_ofi_peer_t *peer = uct_ofi_ep(to_a)->peer;

    ++uct_ofi_ep(to_b)->peer->tx_count; /* as if it had been sent */
    ASSERT_EQ(UCS_OK, send({&a, &b}, to_b, way::SHORT, 1, pattern(1, 8)));
    ASSERT_TRUE(run_until({&a, &b}, [&]() { return !ucs_list_is_empty(&peer->early); }));
    provider.faults.keep = 1;
    ASSERT_EQ(UCS_OK, send({&a, &b}, to_a, way::BCOPY, 1, pattern(1, 60000)));
    uct_ofi_peer_fail(peer, UCS_ERR_IO_ERROR);
    EXPECT_TRUE(run_until({&b}, [&]() { return !b.failed.empty() && !b.gone.empty(); }));
    ASSERT_LT(0u, peer->num_under_way);
    EXPECT_TRUE(ucs_list_is_empty(&peer->early));
}

/* What cannot be read any more brings nothing to an end: that comes to all, though their peers'
 * kernels say that they are there, and once to operations that the provider has. */
TEST_F(ofi, a_broken_queue_is_the_end_of_all)
{
    log_levels quiet("fatal");
    faulty_provider provider(53);
    bytes source = pattern(7, 1u << 20);
    completion sending, fetching;
    unsigned sent = 0, fetched = 0;
    uct_mem_t *mem = nullptr;
    {
        worker a(m_tl), b(m_tl);
        std::unique_ptr<reading> all;
        ASSERT_EQ(UCS_OK, a.status());
        ASSERT_EQ(UCS_OK, b.status());
        uct_ep_t *ep = a.connect(b.where());
        ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
        if (m_tl->iface.reg(b.iface, source.data(), source.size(), nullptr, 1, &mem) == UCS_OK) {
            all     = std::make_unique<reading>(a, source, mem);
            fetched = 1;
            ASSERT_EQ(UCS_INPROGRESS, all->start(ep, &fetching.base));
        }
        if (uct_ofi_iface(a.iface)->has_gather) {
            const uct_iov_t iov = {source.data(), 60000, nullptr};
            sent                = 1;
            ASSERT_EQ(UCS_INPROGRESS, ep->ops->am_zcopy(ep, 1, &iov, 1, &sending.base));
        }
        provider.faults.broken = true;
        EXPECT_TRUE(run_until({&a, &b}, [&]() { return !a.failed.empty() && !b.gone.empty(); }));
        provider.faults.broken = false;
        ASSERT_EQ(1u, a.failed.size());
        EXPECT_EQ(UCS_ERR_IO_ERROR, a.failed.at(0).second);
        EXPECT_EQ(sent, static_cast<unsigned>(sending.calls));
        EXPECT_EQ(fetched, static_cast<unsigned>(fetching.calls));
        EXPECT_EQ((sent > 0) ? UCS_ERR_IO_ERROR : UCS_OK, sending.base.status);
        EXPECT_EQ((fetched > 0) ? UCS_ERR_IO_ERROR : UCS_OK, fetching.base.status);
        for (unsigned i = 0; i < 1000; ++i) { /* nobody asks the provider */
            a.progress();
            b.progress();
        }
        ep = a.connect(b.where());
        EXPECT_EQ(UCS_ERR_IO_ERROR, post(ep, way::SHORT, 1, pattern(0, 8), 0));
        for (worker *each : {&a, &b}) { /* who sleeps only now is woken by nothing */
            each->progress(); /* tells of the endpoint */
            struct pollfd event = {m_tl->iface.event_fd(each->iface), POLLIN, 0};
            EXPECT_LE(0, event.fd);
            EXPECT_EQ(UCS_OK, m_tl->iface.event_arm(each->iface));
            EXPECT_EQ(0, poll(&event, 1, 100));
        }
    }
    EXPECT_EQ(sent, static_cast<unsigned>(sending.calls));
    EXPECT_EQ(fetched, static_cast<unsigned>(fetching.calls));
}

/* Receive buffers that the provider refuses with an error are offered again, not by a sleeper that
 * does nothing else; without any the interface hears nobody, which is its end. */
TEST_F(ofi, an_end_of_receive_buffers_is_the_end_of_all)
{
    faulty_provider provider(56);
    worker a(m_tl), b(m_tl);
    ucp_test::log_catcher log;
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    uct_ofi_iface_t *iface = uct_ofi_iface(b.iface);
    if (!iface->is_multi) {
        GTEST_SKIP() << "buffers that take one message: both come to their end";
    }
    uct_ep_t *ep = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    ASSERT_LE(0, m_tl->iface.event_fd(b.iface));

    unsigned naps        = 0;
    provider.faults.full = true;
    EXPECT_TRUE(run_until({&a, &b}, [&]() {
        if (a.failed.empty() && b.gone.empty() && ((iface->num_unposted == 0) || (naps > 0))) {
            (void)post(ep, way::BCOPY, 1, pattern(0, 60000), 0);
        }
        naps += (iface->ep != nullptr) && (iface->num_unposted > 0) &&
                (m_tl->iface.event_arm(b.iface) == UCS_OK);
        return (b.gone.size() == 1) && (a.failed.size() == 1);
    }));
    EXPECT_LT(0u, naps);
    EXPECT_EQ(nullptr, iface->ep);
    worker c(m_tl);
    EXPECT_EQ(UCS_ERR_IO_ERROR, c.status());
    const auto lines = log.take();
    EXPECT_EQ(2u, lines.size()); /* b's and c's */
    for (const auto &line : lines) {
        EXPECT_NE(std::string::npos, line.find("endpoint takes no receive buffer any more"));
    }
}

/* An error for a buffer may be that of a message which waited for one, from who has died. */
TEST_F(ofi, receive_buffers_are_refused_for_a_moment)
{
    faulty_provider provider(57);
    worker a(m_tl), b(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    uct_ofi_iface_t *iface = uct_ofi_iface(b.iface);
    uct_ep_t *ep           = a.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));

    provider.faults.full = true;
    EXPECT_TRUE(run_until({&a, &b}, [&]() {
        (void)post(ep, way::BCOPY, 1, pattern(0, 60000), 0);
        return iface->num_unposted == iface->num_receives;
    }));
    for (int i = 0; i < 10; ++i) {
        b.progress();
    }
    provider.faults.full = false;
    EXPECT_TRUE(run_until({&a, &b}, [&]() { return iface->num_unposted == 0; }));
    EXPECT_EQ(UCS_OK, send({&a, &b}, ep, way::SHORT, 1, pattern(0, 8)));
    EXPECT_TRUE(a.failed.empty() && b.gone.empty());
}

/* Peers that take nothing hold nobody up: others get messages of any length, or, where the
 * provider's queue is too short for that, short ones at least; words are said; nothing is lost. */
TEST_F(ofi, who_takes_nothing_holds_nobody_up)
{
    const bytes data = pattern(0, 60000);

    for (size_t queue : {0, 16}) {
        faulty_provider provider(49);
        provider.says.queue = queue;
        worker a(m_tl), b(m_tl), c(m_tl);
        std::vector<std::unique_ptr<worker>> idle;
        std::vector<worker *> all = {&a, &b, &c};
        unsigned at_idle = 0, at_a = 0, at_b = 0, sent = 0;

        ASSERT_EQ(UCS_OK, a.status());
        if (!uct_ofi_iface(a.iface)->is_tcp) {
            GTEST_SKIP() << "who takes nothing is not told from who is gone";
        }
        a.on_message(1, [&](const uint8_t *, size_t) { ++at_a; });
        b.on_message(1, [&](const uint8_t *, size_t) { ++at_b; });
        /* A provider of two layers takes 80 MB for each. */
        const unsigned count = uct_ofi_iface(a.iface)->is_multi ? 100 : 10;
        for (unsigned i = 0; i < count; ++i) {
            idle.push_back(std::make_unique<worker>(m_tl));
            all.push_back(idle.back().get());
            idle.back()->on_message(1, [&](const uint8_t *, size_t) { ++at_idle; });
            uct_ep_t *ep = a.connect(idle.back()->where());
            ASSERT_EQ(UCS_OK, send(all, ep, way::SHORT, 1, pattern(0, 8)));
            ASSERT_TRUE(run_until(all, [&]() { return at_idle == i + 1; }));
        }
        for (auto &each : idle) { /* until the sockets are full, and nothing goes any more */
            uct_ep_t *ep = a.connect(each->where());
            ASSERT_EQ(UCS_OK, send({&a}, ep, way::SHORT, 1, pattern(0, 8)));
            ++sent;
            for (unsigned vain = 0; vain < 1000; ++vain) {
                if (post(ep, way::BCOPY, 1, data, 0) == UCS_OK) {
                    ++sent;
                    vain = 0;
                }
                a.progress();
            }
        }
        uct_ep_t *to_b = a.connect(b.where()), *to_a = c.connect(a.where());
        for (unsigned i = 0; i < 2 * UCT_OFI_WINDOW; ++i) { /* so each side has to say something */
            ASSERT_EQ(UCS_OK, send({&a, &b, &c}, to_a, way::SHORT, 1, pattern(i, 8))) << i;
            ASSERT_EQ(UCS_OK, send({&a, &b, &c}, to_b, way::SHORT, 1,
                                   pattern(i, (queue == 0) ? 60000 : 8))) << i;
        }
        EXPECT_TRUE(run_until({&a, &b, &c}, [&]() {
            return (at_a == 2 * UCT_OFI_WINDOW) && (at_b == 2 * UCT_OFI_WINDOW);
        }));
        EXPECT_TRUE(a.failed.empty());
        EXPECT_TRUE(run_until(all, [&]() { return at_idle == idle.size() + sent; }));
    }
}

/* Who leaves while the provider takes nothing says so once it does. */
TEST_F(ofi, a_farewell_in_a_storm)
{
    faulty_provider provider(45);
    std::unique_ptr<worker> a;
    worker b(m_tl);
    {
        const environment endless(settings{{"UCX_OFI_TIMEOUT", "1000s"}}); /* it asks nobody */
        a = std::make_unique<worker>(m_tl);
    }
    ASSERT_EQ(UCS_OK, a->status());
    ASSERT_EQ(UCS_OK, b.status());
    unsigned received = 0;

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = a->connect(b.where());
    ASSERT_EQ(UCS_OK, send({a.get(), &b}, ep, way::SHORT, 1, pattern(0, 100)));
    EXPECT_TRUE(run_until({a.get(), &b}, [&]() { return received == 1; }));
    provider.faults.storm = 1;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, post(ep, way::SHORT, 1, pattern(0, 8), 0)); /* by value */
    provider.faults.storm = 0; /* this one goes on until the queue has been read */
    a.reset();
    EXPECT_TRUE(run_until({&b}, [&]() { return b.gone.size() == 1; }));
}

/* Peers that die amid their messages leave buffers of which nobody knows what may still be written
 * to them: others take their place, so that those who live are heard. */
TEST_F(ofi, spoiled_buffers_are_replaced)
{
    /* None is taken back meanwhile. */
    const environment endless(settings{{"UCX_OFI_TIMEOUT", "1000s"}});
    faulty_provider provider(47);
    worker a(m_tl), b(m_tl), c(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    ASSERT_EQ(UCS_OK, c.status());
    uct_ofi_iface_t *iface = uct_ofi_iface(b.iface);
    if (!iface->is_multi) {
        GTEST_SKIP() << "a buffer that takes one message is told of as a whole";
    }
    unsigned received = 0;

    b.on_message(1, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *from_a = a.connect(b.where()), *from_c = c.connect(b.where());
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, from_a, way::SHORT, 1, pattern(0, 100)));
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, from_c, way::SHORT, 1, pattern(0, 100)));
    EXPECT_TRUE(run_until({&a, &b, &c}, [&]() { return received == 2; }));
    const unsigned total = iface->num_receives + iface->num_spares;
    /* a buffer is given back when it has no room for the longest message */
    const size_t length = 60000, room = iface->receive_size - UCT_OFI_BUFFER_SIZE;
    for (unsigned i = 1; i < total; ++i) {
        provider.faults.spoil = 1;
        ASSERT_EQ(UCS_OK, send({&a, &b}, from_a, way::BCOPY, 1, pattern(i, length)));
        ASSERT_TRUE(run_until({&a, &b}, [&]() { return provider.seen.spoiled == i; })) << i;
        provider.faults.spoil = 0;
        for (size_t bytes = 0; (iface->num_lost < i) && (bytes <= 2 * room); bytes += length) {
            ASSERT_EQ(UCS_OK, send({&a, &b}, from_a, way::BCOPY, 1, pattern(bytes, length)));
            for (unsigned turn = 0; turn < 100; ++turn) {
                a.progress();
                b.progress();
            }
        }
        ASSERT_EQ(i, iface->num_lost);
    }
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, from_c, way::SHORT, 1, pattern(0, 100)));
    EXPECT_TRUE(run_until({&a, &b, &c}, [&]() { return received == 3; })) << received;
    for (unsigned i = 0; i < 2; ++i) { /* and after their time they are in use again */
        uct_ofi_receives_look(iface, ucs_sys_clock_ns() + 2000000000000ul);
        EXPECT_EQ(0u, iface->num_lost);
        EXPECT_EQ((i == 0) ? iface->num_receives - 1 : 0, iface->num_unposted);
        EXPECT_TRUE(run_until({&b}, [&]() { return iface->num_unposted == 0; }));
    }
    const auto is_posted = [](const uct_ofi_receive_t &each) { return each.super.is_posted != 0; };
    EXPECT_EQ(iface->num_receives, std::count_if(iface->receives, iface->receives + total,
                                                 is_posted));
    ASSERT_EQ(UCS_OK, send({&a, &b, &c}, from_c, way::SHORT, 1, pattern(0, 100)));
    EXPECT_TRUE(run_until({&a, &b, &c}, [&]() { return received == 4; }));
}

/* Whatever comes in: nothing crashes, nothing stays, and others do not notice. The messages are
 * right but for some fields, or bytes by chance; tokens are those of nobody, as a stranger cannot
 * know better. */
TEST_F(ofi, hostile_messages)
{
    seeded_random rnd(41);
    log_levels quiet("fatal");
    worker a(m_tl), b(m_tl), stranger(m_tl);
    ASSERT_EQ(UCS_OK, a.status());
    ASSERT_EQ(UCS_OK, b.status());
    ASSERT_EQ(UCS_OK, stranger.status());
    const contact where = stranger.where();
    unsigned received   = 0;

    b.on_message(1, [&](const uint8_t *data, size_t length) {
        EXPECT_EQ(pattern(received, 64), bytes(data, data + length));
        ++received;
    });
    uct_ep_t *ep = a.connect(b.where());
    for (unsigned round = 0; round < 300; ++round) {
        for (unsigned i = 0; i < 100; ++i) {
            alignas(8) uint8_t buffer[512];
            uct_ofi_intro_t intro = {};
            const bytes noise     = pattern(rnd.bits(), sizeof(buffer));
            size_t length         = sizeof(intro);

            memcpy(buffer, noise.data(), sizeof(buffer));
            intro.head.type    = static_cast<uint8_t>(rnd.below(UCT_OFI_TYPES + 1));
            intro.head.number  = static_cast<uint32_t>(rnd.below(300));
            intro.head.pad     = static_cast<uint8_t>(rnd.one_in(4) ? rnd.below(256) : 0);
            intro.head.taken   = static_cast<uint32_t>(rnd.below(300));
            intro.head.token   = rnd.one_in(2) ? rnd.bits() : rnd.below(4);
            intro.token        = rnd.bits();
            intro.version      = UCT_OFI_VERSION;
            intro.address_length = static_cast<uint8_t>(where.address.size());
            memcpy(intro.address, where.address.data(), where.address.size());
            memcpy(intro.from, noise.data(), UCT_UID_LEN);
            if (rnd.one_in(2)) {
                memcpy(intro.from, stranger.uid.data(), UCT_UID_LEN);
            }
            memcpy(intro.to, b.uid.data(), UCT_UID_LEN);
            if (rnd.one_in(3)) {
                intro.to[rnd.below(UCT_UID_LEN)] ^= 1;
            }
            if (!rnd.one_in(4)) {
                memcpy(buffer, &intro, sizeof(intro));
            }
            if (rnd.one_in(3)) {
                buffer[rnd.below(sizeof(intro))] ^= static_cast<uint8_t>(1 + rnd.below(255));
            }
            if (rnd.one_in(3)) {
                length = sizeof(uct_ofi_head_t) + rnd.below(sizeof(buffer) - 23);
            }
            uct_ofi_receive(uct_ofi_iface(b.iface), reinterpret_cast<char *>(buffer), length);
        }
        ASSERT_EQ(UCS_OK, send({&a, &b, &stranger}, ep, way::SHORT, 1, pattern(round, 64)));
    }
    EXPECT_TRUE(run_until({&a, &b, &stranger}, [&]() { return received == 300; })) << received;
    EXPECT_TRUE(a.failed.empty());
}

/* Further devices pair without a router: what lies in the network that the provider names. */
TEST(ofi_rails, addresses_of_a_network)
{
    const struct {
        uint32_t format;
        const char *fabric, *address;
        int is_inside;
    } cases[] = {
        {FI_SOCKADDR_IN, "10.2.0.0/24", "10.2.0.255", 1},
        {FI_SOCKADDR_IN, "10.2.0.0/24", "10.2.1.0", 0},
        {FI_SOCKADDR_IN, "10.2.4.0/22", "10.2.7.9", 1},
        {FI_SOCKADDR_IN, "10.2.4.0/22", "10.2.8.1", 0},
        {FI_SOCKADDR_IN, "10.2.4.1/32", "10.2.4.1", 1},
        {FI_SOCKADDR_IN, "10.2.4.1/32", "10.2.4.2", 0},
        {FI_SOCKADDR_IN, "0.0.0.0/0", "1.2.3.4", 1},
        {FI_SOCKADDR_IN, "10.2.0.0/33", "9.9.9.9", 1}, /* means nothing */
        {FI_SOCKADDR_IN, "10.2.0.0", "9.9.9.9", 1},
        {FI_SOCKADDR_IN, "IB-0xfe80000000000000/24", "9.9.9.9", 1},
        {FI_SOCKADDR_IN, nullptr, "9.9.9.9", 1},
        {FI_ADDR_STR, "10.2.0.0/24", "9.9.9.9", 1},
        {FI_SOCKADDR_IN6, "fd00:210::/64", "fd00:210::7", 1},
        {FI_SOCKADDR_IN6, "fd00:210::/64", "fd00:210:0:1::7", 0},
        {FI_SOCKADDR_IN6, "fd00:210::/63", "fd00:210:0:1::7", 1},
        {FI_SOCKADDR_IN6, "fd00:210::7/128", "fd00:210::8", 0},
    };

    for (const auto &each : cases) {
        struct fi_fabric_attr fabric = {};
        struct sockaddr_storage peer = {};
        struct fi_info info          = {};
        std::string name             = (each.fabric == nullptr) ? "" : each.fabric;

        fabric.name      = (each.fabric == nullptr) ? nullptr : &name[0];
        info.fabric_attr = &fabric;
        info.addr_format = each.format;
        if (each.format == FI_SOCKADDR_IN6) {
            inet_pton(AF_INET6, each.address,
                      &reinterpret_cast<struct sockaddr_in6 *>(&peer)->sin6_addr);
        } else {
            inet_pton(AF_INET, each.address,
                      &reinterpret_cast<struct sockaddr_in *>(&peer)->sin_addr);
        }
        EXPECT_EQ(each.is_inside, uct_ofi_is_in_network(&info, &peer))
            << name << " " << each.address;
    }
}

#endif

} // namespace
