/* Halyard: tests of cma: what the kernel may answer, and that each answer has its consequence.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "peer_process.h"

#include <seed.h>
#include <ucp/world.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>
#include <uct/cma/cma.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace uct_test;

namespace {

class cma_test : public testing::Test {
protected:
    void SetUp() override
    {
        if (m_a.status() == UCS_ERR_NO_DEVICE) {
            GTEST_SKIP() << "built without cma";
        }
        ASSERT_EQ(UCS_OK, m_a.status());
        ASSERT_EQ(UCS_OK, m_b.status());
        m_ep = m_a.connect(m_b.where());
    }

    void TearDown() override
    {
        ucs_fault_clear(nullptr);
        ucs_sys_set(nullptr);
    }

    ucs_status_t get(void *buffer, size_t length, uint64_t remote)
    {
        const uct_iov_t iov = {buffer, length, nullptr};

        return m_ep->ops->get_zcopy(m_ep, &iov, 1, remote, nullptr, nullptr);
    }

    ucs_status_t put(void *buffer, size_t length, uint64_t remote)
    {
        const uct_iov_t iov = {buffer, length, nullptr};

        return m_ep->ops->put_zcopy(m_ep, &iov, 1, remote, nullptr, nullptr);
    }

    void expect_failed(ucs_status_t status)
    {
        EXPECT_EQ(UCT_EP_FAILED, m_ep->state);
        m_a.progress();
        m_a.progress();
        ASSERT_EQ(1u, m_a.failed.size());
        EXPECT_EQ(status, m_a.failed[0].second);
    }

    log_levels m_quiet{"fatal"};
    worker m_a{uct_tl_find("cma")}, m_b{uct_tl_find("cma")};
    uct_ep_t *m_ep = nullptr;
    uint8_t m_here[4096], m_there[4096];
};

uint64_t address_of(const void *ptr)
{
    return reinterpret_cast<uintptr_t>(ptr);
}

uct_cma_iface_t *iface_of(const worker &w)
{
    return reinterpret_cast<uct_cma_iface_t *>(w.iface);
}

TEST_F(cma_test, costs_are_measured_and_plausible)
{
    const uct_limits_t limits = m_a.limits(UCT_OP_GET_ZCOPY);

    EXPECT_EQ(SIZE_MAX, limits.max);
    EXPECT_GT(limits.overhead_ns, 10);
    EXPECT_LT(limits.overhead_ns, 1e7);
    EXPECT_GT(limits.bytes_per_ns, 0.01);
    EXPECT_EQ(0u, m_a.limits(UCT_OP_AM_SHORT).max);
}

TEST_F(cma_test, costs_that_were_measured)
{
    const ucp_test::environment costs({{"UCX_CMA_OVERHEAD", "2.5us"}, {"UCX_CMA_BW", "7GBs"}});
    const uct_limits_t limits = worker(uct_tl_find("cma")).limits(UCT_OP_PUT_ZCOPY);

    EXPECT_DOUBLE_EQ(2500, limits.overhead_ns);
    EXPECT_DOUBLE_EQ(7, limits.bytes_per_ns);
}

TEST_F(cma_test, forbidden_from_the_start)
{
    char reason[UCT_REASON_MAX] = "";

    ucs_fault_set("process_vm_readv", "1+:EPERM");
    worker w(uct_tl_find("cma"));
    ASSERT_EQ(UCS_OK, w.status()) << "others tell why it cannot be used";
    const contact peer = m_b.where();
    EXPECT_FALSE(w.tl->iface.is_reachable(w.iface, peer.address.data(), peer.address.size(), 1,
                                          reason));
    EXPECT_NE(nullptr, strstr(reason, "permitted")) << reason;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, get(m_here, 8, address_of(m_there)));
    expect_failed(UCS_ERR_UNREACHABLE);
}

TEST_F(cma_test, forbidden_in_the_middle)
{
    EXPECT_EQ(UCS_OK, put(m_here, 8, address_of(m_there)));
    ucs_fault_set("process_vm_writev", "2:EPERM");
    EXPECT_EQ(UCS_OK, put(m_here, 8, address_of(m_there)));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, put(m_here, 8, address_of(m_there)));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, get(m_here, 8, address_of(m_there)));
    expect_failed(UCS_ERR_UNSUPPORTED);
}

TEST_F(cma_test, shortage_passes)
{
    ucs_fault_set("process_vm_readv", "2:ENOMEM");
    EXPECT_EQ(UCS_ERR_NO_MEMORY, get(m_here, 8, address_of(m_there)));
    EXPECT_EQ(UCS_OK, get(m_here, 8, address_of(m_there)));
    EXPECT_EQ(UCT_EP_LIVE, m_ep->state);
}

TEST_F(cma_test, memory_that_is_not_there)
{
    uint8_t *map = static_cast<uint8_t *>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, static_cast<void *>(map));
    munmap(map + 4096, 4096);

    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get(m_here, 8, 64));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, put(m_here, 8, 64));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get(m_here, 4096, address_of(map) + 4000)) << "a part";
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get(nullptr, 8, address_of(m_there))) << "our side";
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(m_here, 100, UINT64_MAX - 50));
    EXPECT_EQ(UCS_OK, get(m_here, 4096, address_of(map)));
    EXPECT_EQ(UCS_OK, get(nullptr, 0, 64)) << "no bytes, no fault";
    EXPECT_EQ(UCT_EP_LIVE, m_ep->state);
    m_a.progress();
    EXPECT_TRUE(m_a.failed.empty());
    munmap(map, 4096);
}

/* The pid belongs to another process now: its memory has something else at the cookie's place. */
TEST_F(cma_test, another_process_under_the_same_pid)
{
    EXPECT_EQ(UCS_OK, get(m_here, 8, address_of(m_there)));
    iface_of(m_b)->identity.uid[0] ^= 1;
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, get(m_here, 8, 64));
    expect_failed(UCS_ERR_CONNECTION_RESET);
}

/* A peer that names another place than that of its identity. */
contact elsewhere(contact peer, const void *place)
{
    const uint64_t address = address_of(place);

    EXPECT_EQ(sizeof(uint32_t) + sizeof(address), peer.address.size());
    memcpy(peer.address.data() + sizeof(uint32_t), &address, sizeof(address));
    return peer;
}

/* A peer names this process, and a place where it knows its own identity to be, for it has sent it
 * there: what it then had us write to it we would write to ourselves. */
TEST_F(cma_test, our_own_process_under_another_name)
{
    uct_cma_identity_t forged = {};

    uct_cma_make_mark(forged.mark, getpid(), address_of(&forged));
    memcpy(forged.uid, m_b.uid.data(), sizeof(forged.uid));
    m_ep = m_a.connect(elsewhere(m_b.where(), &forged));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, get(m_here, 8, address_of(m_there)));
    expect_failed(UCS_ERR_UNREACHABLE);
}

/* A place where the bytes of an identity stand by chance, or by a peer's choice of its own: in
 * another program, too. */
TEST_F(cma_test, a_place_that_is_no_identity)
{
    const uct_cma_identity_t copy = iface_of(m_b)->identity;

    m_ep = m_a.connect(elsewhere(m_b.where(), &copy));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, get(m_here, 8, address_of(m_there)));
    expect_failed(UCS_ERR_UNREACHABLE);
}

TEST_F(cma_test, a_dead_process)
{
    static uint8_t target[64];
    peer_process child([](channel &parent) {
        worker w(uct_tl_find("cma"));
        parent.put_contact(w.where());
        sleep(3 * LIMIT_S);
    });
    m_ep = m_a.connect(child.link().get_contact());
    EXPECT_EQ(UCS_OK, get(m_here, sizeof(target), address_of(target)));
    child.kill_now();
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, get(m_here, sizeof(target), address_of(target)));
    expect_failed(UCS_ERR_CONNECTION_RESET);
}

/* ---- what the kernel may do with long and scattered requests ---- */

seeded_random *g_random;

/* Moves a random part of what is asked for, as the real call may, and is sometimes interrupted. */
ssize_t reluctant_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                        const struct iovec *remote, unsigned long, unsigned long flags)
{
    struct iovec part = remote[0];

    if (g_random->one_in(5)) {
        errno = EINTR;
        return -1;
    }
    part.iov_len = 1 + g_random->below(part.iov_len);
    return ucs_sys_real.process_vm_readv(pid, local, local_count, &part, 1, flags);
}

TEST_F(cma_test, short_counts_and_interruptions)
{
    seeded_random rnd(37);
    ucs_sys_ops_t ops = ucs_sys_real;
    const bytes source = pattern(1, 100000);

    ASSERT_EQ(UCS_OK, get(m_here, 8, address_of(m_there)));
    g_random             = &rnd;
    ops.process_vm_readv = reluctant_readv;
    ucs_sys_set(&ops);
    for (unsigned i = 0; i < 300; ++i) {
        bytes dest(source.size());
        std::vector<uct_iov_t> iov;
        size_t at = 0;
        while (at < dest.size()) {
            const size_t length = std::min<size_t>(rnd.below(4000), dest.size() - at);
            iov.push_back({dest.data() + at, length, nullptr});
            at += length;
        }
        ASSERT_EQ(UCS_OK, m_ep->ops->get_zcopy(m_ep, iov.data(), static_cast<unsigned>(iov.size()),
                                               address_of(source.data()), nullptr, nullptr));
        ASSERT_TRUE(source == dest);
    }
}

struct {
    uint64_t next_local, next_remote, total, largest, calls;
} g_seen;

/* Moves nothing, but looks whether the requests follow each other; 2 GiB less a page is the most
 * that Linux moves in one call. */
ssize_t recording_writev(pid_t, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count, unsigned long)
{
    uint64_t sum = 0;

    EXPECT_EQ(1u, remote_count);
    EXPECT_EQ(g_seen.next_remote, address_of(remote[0].iov_base));
    for (unsigned long i = 0; i < local_count; ++i) {
        EXPECT_EQ(g_seen.next_local + sum, address_of(local[i].iov_base));
        sum += local[i].iov_len;
    }
    EXPECT_EQ(sum, remote[0].iov_len);
    g_seen.largest      = std::max(g_seen.largest, sum);
    sum                 = std::min<uint64_t>(sum, 0x7ffff000 / 3);
    g_seen.next_local  += sum;
    g_seen.next_remote += sum;
    g_seen.total       += sum;
    ++g_seen.calls;
    return static_cast<ssize_t>(sum);
}

TEST_F(cma_test, more_than_four_gigabytes)
{
    constexpr uint64_t LENGTH = 9ull << 30, LOCAL = 1ull << 40, REMOTE = 2ull << 40;
    ucs_sys_ops_t ops         = ucs_sys_real;
    std::vector<uct_iov_t> iov;
    uint64_t at = 0;

    ASSERT_EQ(UCS_OK, put(m_here, 8, address_of(m_there)));
    for (unsigned i = 0; i < 200; ++i) { /* one of them alone is larger than any call */
        const uint64_t length = (i == 199) ? LENGTH - at : (i == 7) ? 5ull << 30 : i * 12345;
        iov.push_back({reinterpret_cast<void *>(LOCAL + at), length, nullptr});
        at += length;
    }
    g_seen                = {LOCAL, REMOTE, 0, 0, 0};
    ops.process_vm_writev = recording_writev;
    ucs_sys_set(&ops);
    EXPECT_EQ(UCS_OK, m_ep->ops->put_zcopy(m_ep, iov.data(), static_cast<unsigned>(iov.size()),
                                           REMOTE, nullptr, nullptr));
    EXPECT_EQ(LENGTH, g_seen.total);
    EXPECT_LE(g_seen.largest, 0x7ffff000u);
    EXPECT_GT(g_seen.calls, 9u);
}

/* ---- a real filter of system calls ---- */

void forbid(long number)
{
    const uint32_t nr     = static_cast<uint32_t>(number);
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    };
    sock_fprog filter = {4, program};

    ASSERT_EQ(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    ASSERT_EQ(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

TEST_F(cma_test, seccomp)
{
    const contact peer = m_b.where();
    peer_process child([&](channel &) {
        worker before(uct_tl_find("cma"));
        uct_ep_t *ep       = before.connect(peer);
        const uct_iov_t iov = {m_here, 8, nullptr};
        EXPECT_EQ(UCS_OK, ep->ops->get_zcopy(ep, &iov, 1, address_of(m_there), nullptr, nullptr));

        forbid(SYS_process_vm_readv);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  ep->ops->get_zcopy(ep, &iov, 1, address_of(m_there), nullptr, nullptr));
        before.progress();
        EXPECT_EQ(1u, before.failed.size());

        worker after(uct_tl_find("cma"));
        char reason[UCT_REASON_MAX] = "";
        ASSERT_EQ(UCS_OK, after.status());
        EXPECT_FALSE(after.tl->iface.is_reachable(after.iface, peer.address.data(),
                                                  peer.address.size(), 1, reason));
        EXPECT_NE(nullptr, strstr(reason, "permitted")) << reason;
    });
    EXPECT_EQ(0, child.wait());
}

} // namespace
