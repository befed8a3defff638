/* Halyard: what an idle worker and an endpoint may cost: memory, system calls, bytes of address.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"
#include "snapshot.h"
#include "syscall_count.h"

#include <ucp/world.h>
#include <ucs/sys/compiler.h>

#include <cstring>
#include <malloc.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr size_t   SHARED_MAX    = 1u << 20; /* of an idle worker */
constexpr size_t   BUFFERS_MAX   = 36u << 20; /* mapped for the buffers of its rings */
constexpr size_t   PRIVATE_MAX   = 2u << 20;
constexpr size_t   ADDRESS_MAX   = 64;
constexpr size_t   ENDPOINT_MAX  = 2048;     /* bytes */
constexpr unsigned ENDPOINTS     = 1000;
constexpr unsigned UNEXPECTED    = 10000;    /* messages */

/* Where the identity lies in an address: each value is another peer. */
constexpr size_t UID_OFFSET = 4;

void run_alone(const std::function<void(self &)> &func)
{
    processes one(1);

    one.start_all(func);
    EXPECT_TRUE(one.join());
    EXPECT_EQ(0u, one.log_lines()) << one.log();
}

/* Endpoints to peers that nobody ever talked to. */
class stranger_endpoints {
public:
    explicit stranger_endpoints(self &me, node &n) : m_node(n), m_addresses(ENDPOINTS)
    {
        n.publish();
        for (unsigned i = 0; i < ENDPOINTS; ++i) {
            m_addresses[i].assign(me.own().address,
                                  me.own().address + me.own().address_length);
            for (unsigned k = 0; k < 16; ++k) {
                m_addresses[i][UID_OFFSET + k] =
                    static_cast<uint8_t>((i + 1) * (k + 7) * 2654435761u >> 11);
            }
            memcpy(&m_addresses[i][UID_OFFSET], &i, sizeof(i));
        }
    }

    void create()
    {
        ucp_ep_params_t params = {};

        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        for (unsigned i = 0; i < ENDPOINTS; ++i) {
            params.address = reinterpret_cast<const ucp_address_t *>(m_addresses[i].data());
            m_failed += (ucp_ep_create(m_node.worker(), &params, &m_eps[i]) != UCS_OK);
        }
    }

    void close()
    {
        for (ucp_ep_h ep : m_eps) {
            m_node.close(ep);
        }
    }

    unsigned failed() const
    {
        return m_failed;
    }

private:
    node                             &m_node;
    std::vector<std::vector<uint8_t>> m_addresses;
    ucp_ep_h                          m_eps[ENDPOINTS];
    unsigned                          m_failed = 0;
};

struct told_memory {
    size_t shared, own, messages;
};

told_memory memory_told_by(ucp_worker_h worker)
{
    const std::string text =
        ucp_test::printed([&](FILE *stream) { ucp_worker_print_info(worker, stream); });
    const char *row  = strstr(text.c_str(), "memory: ");
    told_memory told = {};

    EXPECT_EQ(3, (row == nullptr) ? 0 :
                 sscanf(row, "memory: %zu bytes shared, %zu of its own (for messages %zu",
                        &told.shared, &told.own, &told.messages)) << text;
    return told;
}

} // namespace

TEST(footprint, memory_of_an_idle_worker)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    run_alone([](self &me) {
        malloc_trim(0); /* what earlier tests have left free would serve, and not be seen */
        const mp::memory_use before = mp::memory_of_self();
        node n(me);

        n.publish();
        for (unsigned i = 0; i < 100000; ++i) {
            ucp_worker_progress(n.worker());
        }
        const mp::memory_use after = mp::memory_of_self();

        printf("[          ] idle worker: %zu KiB shared, %zu KiB private\n",
               (after.shared_size - before.shared_size) / 1024,
               (after.anonymous - before.anonymous) / 1024);
        EXPECT_LE(after.shared_size - before.shared_size, SHARED_MAX);
        EXPECT_GT(after.shared_size, before.shared_size); /* or else it is measured wrongly */
        if (mp::slowness() > 1) {
            GTEST_SKIP() << "private memory is the sanitizer's";
        }
        EXPECT_LE(after.anonymous - before.anonymous, PRIVATE_MAX);
        EXPECT_GT(after.anonymous, before.anonymous);
    });
}

/* Memory of a pair that has exchanged all kinds of messages: what peers cost each other. */
TEST(footprint, memory_of_a_pair)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    processes both(2);

    both.start_all([](self &me) {
        std::vector<uint8_t> buffer(1u << 20);
        memset(buffer.data(), 1, buffer.size());
        const mp::memory_use before = mp::memory_of_self();
        node n(me);

        n.connect_all();
        for (size_t length = 1; length <= buffer.size(); length *= 2) {
            ucs_status_ptr_t request = (me.index() == 0) ?
                                       n.send(n.ep(1), buffer.data(), length, 1) :
                                       n.recv(buffer.data(), length, 1);
            EXPECT_EQ(UCS_OK, n.wait(request));
        }
        n.barrier();
        const mp::memory_use after = mp::memory_of_self();
        printf("[          ] process %u of a pair: %zu KiB shared, %zu KiB mapped, "
               "%zu KiB private\n",
               me.index(), (after.shared_used - before.shared_used) / 1024,
               (after.shared_size - before.shared_size) / 1024,
               (after.anonymous - before.anonymous) / 1024);
        EXPECT_LE(after.shared_used - before.shared_used, 2 * SHARED_MAX); /* the peer's too */
        EXPECT_LE(after.shared_size - before.shared_size, 2 * (SHARED_MAX + BUFFERS_MAX));
        if (mp::slowness() == 1) {
            EXPECT_LE(after.anonymous - before.anonymous, PRIVATE_MAX);
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

/* What the worker tells of its memory, against what the kernel gave this process for it: shared
 * memory by what its descriptors hold, its own by pages. */
TEST(footprint, what_a_worker_tells_of_its_memory)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    if (mp::slowness() > 1) {
        GTEST_SKIP() << "private memory is the sanitizer's";
    }
    processes both(2);

    both.start_all([](self &me) {
        std::vector<uint8_t> buffer(4000);
        malloc_trim(0);
        const mp::memory_use before = mp::memory_of_self();
        node n(me);

        n.connect_all();
        if (me.index() == 0) {
            for (unsigned i = 0; i < UNEXPECTED; ++i) {
                EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(1), buffer.data(), buffer.size(), i)));
            }
        }
        n.barrier(); /* they have come before its last message */
        if (me.index() == 1) {
            const told_memory told = memory_told_by(n.worker());
            const size_t own       = mp::memory_of_self().anonymous - before.anonymous;
            const size_t shared    = mp::shared_memory_made();

            EXPECT_GT(told.messages, UNEXPECTED * buffer.size());
            EXPECT_NEAR(told.own, own, own / 10);
            EXPECT_NEAR(told.shared, shared, shared / 20);
            for (unsigned i = 0; i < UNEXPECTED; ++i) {
                EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), buffer.size(), i)));
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

TEST(footprint, bytes_of_an_address)
{
    run_alone([](self &me) {
        node n(me);

        n.publish();
        printf("[          ] address: %u bytes\n", me.own().address_length);
        EXPECT_LE(me.own().address_length, ADDRESS_MAX);
    });
}

TEST(footprint, an_endpoint_takes_no_system_call)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    const auto one_call = []() { (void)getppid(); };
    std::string reason;

    if (mp::count_syscalls(one_call, &reason) < 0) {
        GTEST_SKIP() << reason;
    }
    run_alone([&](self &me) {
        std::string numbers;
        node n(me);
        stranger_endpoints strangers(me, n);

        /* The heap grows by system calls now and then: let it be large enough before. */
        mallopt(M_TOP_PAD, 64 << 20);
        mallopt(M_MMAP_THRESHOLD, 64 << 20);
        mallopt(M_TRIM_THRESHOLD, 256 << 20);
        void *volatile large = malloc(32 << 20); /* or else the compiler leaves the pair out */
        free(large);
        ASSERT_EQ(1, mp::count_syscalls(one_call, &numbers)); /* counting works */

        const long count = mp::count_syscalls([&]() { strangers.create(); }, &numbers);
        EXPECT_EQ(0u, strangers.failed());
        EXPECT_EQ(0, count) << "system calls:" << numbers;
        strangers.close();
    });
}

TEST(footprint, memory_of_an_endpoint)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    if (mp::slowness() > 1) {
        GTEST_SKIP() << "the heap is the sanitizer's";
    }
    run_alone([](self &me) {
        node n(me);
        stranger_endpoints strangers(me, n);

        const struct mallinfo2 before = mallinfo2();
        strangers.create();
        const struct mallinfo2 after = mallinfo2();
        const size_t bytes = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) /
                             ENDPOINTS;
        printf("[          ] endpoint: %zu bytes\n", bytes);
        EXPECT_EQ(0u, strangers.failed());
        EXPECT_LE(bytes, ENDPOINT_MAX);
        EXPECT_GT(bytes, 0u);
        strangers.close();
    });
}
