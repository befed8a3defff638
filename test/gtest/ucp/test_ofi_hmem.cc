/* Halyard: tests of networks that read and write memory of devices by themselves (FI_HMEM), over a
 * libfabric that says so (uct/faulty_provider.h) and the driver of test/fakecuda: the bytes are
 * exact whatever kind of memory lies at the two ends, go past the host where the provider takes
 * both, and through it where it does not, or fails.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include <ucp/remote.h>
#include <uct/cuda_program.h>
#include <uct/faulty_provider.h>

extern "C" {
#include <ucs/debug/log.h>
}

#include <cstdarg>
#include <cstring>

using namespace ucp_test;
using uct_test::cuda_program;
using uct_test::faulty_provider;
using uct_test::in_process;
using uct_test::is_device;
using kind = cuda_program::kind;

namespace {

constexpr size_t LENGTH_MAX = 9u << 20; /* several reads */

const variant NETWORK = {"network", {{"UCX_TLS", "ofi,cuda_copy"}}, false,
                         UCS_THREAD_MODE_SINGLE};
const context_options OPTIONS = {UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM, 0, nullptr,
                                 nullptr};

/* A program with a device, a network, and two workers. */
class program {
public:
    explicit program(bool has_hmem = true, const settings &more = {}, unsigned devices = 0) :
        m_provider(91)
    {
        m_environment.set(more);
        cuda.init();
        cuda.create_context();
        m_provider.says.hmem    = has_hmem;
        m_provider.says.devices = devices;
        m_pair                  = std::make_unique<pair>(NETWORK, OPTIONS);
        exchange(kind::PAGEABLE, kind::PAGEABLE, 300000); /* connects the two, both ways */
    }

    /* One message, byte by byte. */
    void exchange(kind from, kind to, size_t length)
    {
        SCOPED_TRACE(testing::Message() << length << " bytes from kind " << static_cast<int>(from)
                                        << " to " << static_cast<int>(to));
        const auto out   = cuda.make(from, length);
        const auto in    = cuda.make(to, length);
        const bytes data = pattern(++m_number, length);
        cuda.write(out.address, data);
        cuda.write(in.address, bytes(length));
        m_copies = copies();
        ucs_status_ptr_t received = m_pair->receive(in.address, length, 5);
        EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->send(out.address, length, 5)));
        EXPECT_EQ(UCS_OK, m_pair->wait(received));
        m_copies = copies() - m_copies;
        EXPECT_TRUE(cuda.read(in.address, length) == data);
        cuda.free(out);
        cuda.free(in);
    }

    /* A put and a get between the two kinds of memory. */
    void put_get(kind own, kind there, size_t length)
    {
        SCOPED_TRACE(testing::Message() << length << " bytes of kind " << static_cast<int>(own)
                                        << " and " << static_cast<int>(there));
        const auto local  = cuda.make(own, length);
        const auto target = cuda.make(there, length);
        const bytes first = pattern(++m_number, length), second = pattern(++m_number, length);
        cuda.write(local.address, first);
        cuda.write(target.address, bytes(length));
        {
            const mapping memory(m_pair->ctx(), length, static_cast<uint8_t *>(target.address));
            const key remote(m_pair->ep(), memory.packed());
            const ucp_request_param_t param = {};
            m_copies = copies();
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_put_nbx(m_pair->ep(), local.address, length,
                                                       memory.address(), remote.get(), &param)));
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_ep_flush_nbx(m_pair->ep(), &param)));
            m_copies = copies() - m_copies;
            EXPECT_TRUE(cuda.read(target.address, length) == first);
            cuda.write(target.address, second);
            const uint64_t before = copies();
            EXPECT_EQ(UCS_OK, m_pair->wait(ucp_get_nbx(m_pair->ep(), local.address, length,
                                                       memory.address(), remote.get(), &param)));
            m_copies += copies() - before;
            EXPECT_TRUE(cuda.read(local.address, length) == second);
        }
        cuda.free(local);
        cuda.free(target);
    }

    /* Copies of the device that the last exchange took. */
    uint64_t num_copies() const
    {
        return m_copies;
    }

    faulty_provider &provider()
    {
        return m_provider;
    }

    pair &world()
    {
        return *m_pair;
    }

    cuda_program cuda;

private:
    uint64_t copies()
    {
        uint64_t count = 0;

        for (const char *name : {"cuMemcpyAsync", "cuMemcpyBatchAsync", "cuMemcpyHtoDAsync_v2",
                                 "cuMemcpyDtoHAsync_v2"}) {
            count += cuda.calls(name);
        }
        return count;
    }

    environment m_environment;
    faulty_provider m_provider;
    std::unique_ptr<pair> m_pair;
    uint64_t m_number = 0;
    uint64_t m_copies = 0;
};

class ofi_hmem : public testing::Test {
protected:
    void SetUp() override
    {
        need_network_reads();
        if (cuda_program::is_real()) {
            GTEST_SKIP() << "the provider reaches no memory of real devices";
        }
    }

    log_catcher m_log;
};

TEST_F(ofi_hmem, every_kind_of_memory_to_every_other)
{
    in_process([]() {
        program p;
        for (const kind from : uct_test::CUDA_KINDS) {
            for (const kind to : uct_test::CUDA_KINDS) {
                for (const size_t length : {8, 4096, 100001, 300000}) {
                    p.exchange(from, to, length);
                }
            }
        }
    });
}

/* Long messages between devices, or a device and the host, are no copies of a device. */
TEST_F(ofi_hmem, announced_messages_go_past_the_host)
{
    in_process([]() {
        program p;
        for (const kind from : {kind::DEVICE, kind::SHARED_POOL, kind::PAGEABLE}) {
            for (const kind to : {kind::DEVICE, kind::POOL, kind::PAGEABLE}) {
                if (!is_device(from) && !is_device(to)) {
                    continue;
                }
                const size_t before = p.provider().seen.hmem;
                for (const size_t length : {size_t(1) << 20, LENGTH_MAX}) {
                    p.exchange(from, to, length);
                    EXPECT_EQ(0u, p.num_copies());
                }
                EXPECT_EQ(before + 2 * (is_device(from) + is_device(to)),
                          p.provider().seen.hmem);
            }
        }
        EXPECT_LT(0u, counted(p.world().receiver(), "read_by_network"));
    });
}

/* Each of two network devices reads its share; the second is connected by the first message. */
TEST_F(ofi_hmem, two_network_devices_share_a_message)
{
    in_process([]() {
        program p(true, {{"UCX_OFI_PROVIDER", "net"}, {"UCX_NET_DEVICES", "fake0,fake1"}}, 2);
        const std::string told = printed([&p](FILE *stream) {
            ucp_ep_print_info(p.world().ep(), stream);
        });
        if (told.find("fake1") == std::string::npos) {
            return; /* no provider net here */
        }
        p.exchange(kind::DEVICE, kind::DEVICE, LENGTH_MAX);
        p.world().settle();
        const size_t before = p.provider().seen.hmem;
        const size_t reads  = p.provider().seen.reads;
        p.exchange(kind::DEVICE, kind::DEVICE, LENGTH_MAX);
        EXPECT_EQ(0u, p.num_copies());
        EXPECT_EQ(before + 4, p.provider().seen.hmem);
        EXPECT_LT(reads + 3, p.provider().seen.reads); /* three parts of 4 MiB by one device */
    });
}

TEST_F(ofi_hmem, puts_and_gets_of_device_memory)
{
    in_process([]() {
        program p;
        for (const kind own : {kind::DEVICE, kind::MANAGED, kind::PAGEABLE}) {
            for (const kind there : {kind::DEVICE, kind::MANAGED, kind::PAGEABLE}) {
                for (const size_t length : {size_t(8), size_t(70000), LENGTH_MAX}) {
                    p.put_get(own, there, length);
                    if ((own != kind::MANAGED) && (there != kind::MANAGED)) {
                        EXPECT_EQ(0u, p.num_copies());
                    }
                }
            }
        }
        EXPECT_LT(0u, p.provider().seen.hmem);
        EXPECT_LT(0u, p.provider().seen.writes);
    });
}

/* Short ones go through the host, unless the user has them announced. */
TEST_F(ofi_hmem, the_users_threshold_counts)
{
    for (const char *thresh : {"auto", "1000"}) {
        in_process([thresh]() {
            program p(true, {{"UCX_RNDV_THRESH", thresh}});
            p.exchange(kind::DEVICE, kind::DEVICE, 5000);
            EXPECT_EQ((strcmp(thresh, "auto") == 0) ? 0u : 2u, p.provider().seen.hmem);
            const std::string told = printed([&p](FILE *stream) {
                ucp_ep_print_info(p.world().ep(), stream);
            });
            EXPECT_NE(std::string::npos, told.find("from and to device memory")) << told;
        });
    }
}

/* A provider without it, or one that is told to do without. */
TEST_F(ofi_hmem, through_the_host_where_the_provider_does_not_reach_devices)
{
    for (const bool has_hmem : {false, true}) {
        in_process([has_hmem]() {
            program p(has_hmem, {{"UCX_OFI_HMEM", has_hmem ? "n" : "y"}});
            for (const kind to : {kind::DEVICE, kind::PAGEABLE}) {
                p.exchange(kind::DEVICE, to, LENGTH_MAX);
                p.put_get(to, kind::DEVICE, 70000);
            }
            EXPECT_EQ(0u, p.provider().seen.hmem);
            const std::string told = printed([&p](FILE *stream) {
                ucp_ep_print_info(p.world().ep(), stream);
            });
            EXPECT_NE(std::string::npos, told.find(has_hmem ? "switched off by UCX_OFI_HMEM" :
                                                              "(FI_HMEM)")) << told;
        });
    }
}

/* Registrations that are refused, by chance and always, and reads and writes that fail. */
TEST_F(ofi_hmem, what_the_provider_refuses_goes_through_the_host)
{
    for (const unsigned refuse : {1u, 2u, 0u}) {
        in_process([refuse]() {
            program p;
            p.provider().faults.refuse = refuse;
            p.provider().faults.cut    = (refuse == 0) ? 1 : 0;
            for (unsigned i = 0; i < 4; ++i) {
                for (const kind from : {kind::DEVICE, kind::PAGEABLE}) {
                    for (const kind to : {kind::DEVICE, kind::PAGEABLE}) {
                        p.exchange(from, to, 200000 + i);
                        p.put_get(from, to, 100000 + i);
                    }
                }
            }
            if (refuse == 0) { /* one failure is enough for this peer, of each side */
                const size_t before = p.provider().seen.reads + p.provider().seen.writes;
                p.exchange(kind::DEVICE, kind::DEVICE, 200000);
                EXPECT_EQ(before, p.provider().seen.reads + p.provider().seen.writes);
            } else {
                EXPECT_LT(0u, p.provider().seen.refused);
            }
        });
    }
}

unsigned g_num_refusals;

ucs_log_func_rc_t count_refusals(const char *, unsigned, const char *, ucs_log_level_t,
                                 const ucs_log_component_config_t *, const char *message, va_list)
{
    g_num_refusals += strstr(message, "cannot be registered with") != nullptr;
    return UCS_LOG_FUNC_RC_STOP;
}

/* One line tells of it, however many messages there are. */
TEST_F(ofi_hmem, one_line_tells_that_memory_is_refused)
{
    in_process([]() {
        program p;
        ucs_log_set_levels("diag");
        ucs_log_push_handler(count_refusals);
        p.provider().faults.refuse = 1;
        for (unsigned i = 0; i < 5; ++i) {
            p.exchange(kind::DEVICE, kind::PAGEABLE, 200000);
        }
        ucs_log_pop_handler();
        EXPECT_EQ(1u, g_num_refusals);
    });
}

} // namespace

#endif
