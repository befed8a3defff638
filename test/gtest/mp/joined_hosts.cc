/* Halyard: fixture for tests with a process on each of several hosts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "joined_hosts.h"

#include <ucs/sys/sys.h>

#include <cstring>
#include <unistd.h>

namespace mp {

joined_hosts::joined_hosts(const char *provider, const network &what) :
    m_hosts(what), m_members(what.hosts), m_count(what.hosts), m_provider(provider)
{
}

void joined_hosts::SetUp()
{
    if (!m_hosts.why_not().empty()) {
        GTEST_SKIP() << m_hosts.why_not();
    }
    if (!ucp_test::is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    m_environment.set({{"UCX_OFI_PROVIDER", m_provider},
                       {"UCX_OFI_TIMEOUT", "2s"},
                       {"UCX_NET_ADDRESS", "y"}});
}

void joined_hosts::start(unsigned index, const processes::body &func)
{
    ucs_sys_id128_t parents;

    ucs_sys_boot_id(&parents);
    m_members.start(index, [this, func, parents](self &me) {
        ucs_sys_id128_t own;

        m_hosts.join(me.index());
        ucs_sys_boot_id(&own);
        /* else it would all go through shared memory */
        ASSERT_NE(0, memcmp(&parents, &own, sizeof(own)));
        func(me);
    });
}

void joined_hosts::start_all(const processes::body &func)
{
    for (unsigned i = 0; i < m_count; ++i) {
        start(i, func);
    }
}

bool joined_hosts::all_at(uint64_t stage)
{
    return m_members.until([this, stage]() {
        for (unsigned i = 0; i < m_count; ++i) {
            if (m_members.at(i).words[STAGE] < stage) {
                return false;
            }
        }
        return true;
    }, "a stage");
}

void joined_hosts::lose_amid(const processes::body &func, bool is_killed)
{
    start_all(func);
    ASSERT_TRUE(m_members.until([this]() { return m_members.at(0).words[STAGE] == 2; },
                                "a message"));
    if (is_killed) {
        m_members.kill_now(1);
    } else {
        m_hosts.set_link(1, false);
    }
    m_members.at(0).words[LOST] = 1;
    if (!is_killed) {
        ASSERT_TRUE(m_members.until([this]() { return m_members.at(0).words[STAGE] == 3; },
                                    "the news"));
        m_members.kill_now(1);
    }
    EXPECT_TRUE(m_members.join());
}

void joined_hosts::wait_for_a_busy_one(const char *timeout, double busy_s)
{
    m_environment.set({{"UCX_OFI_TIMEOUT", timeout}});
    start_all([busy_s](self &me) {
        node n(me);

        n.connect_all();
        exchange(n, me.index(), 100, 1);
        if (me.index() == 1) {
            usleep(static_cast<useconds_t>(busy_s * 1e6));
        }
        exchange(n, me.index(), 100000, 2);
        leave(n, 1 - me.index());
    });
    EXPECT_TRUE(m_members.join());
}

void exchange(node &n, unsigned me, size_t length, uint64_t tag)
{
    std::vector<uint8_t> out(length), in(length);
    const unsigned other = 1 - me;

    fill(out.data(), length, (tag << 1) + me);
    ucs_status_ptr_t sent = n.send(n.ep(other), out.data(), length, tag);
    ASSERT_EQ(UCS_OK, n.wait(n.recv(in.data(), length, tag)));
    EXPECT_EQ(-1, find_difference(in.data(), length, (tag << 1) + other)) << length;
    ASSERT_EQ(UCS_OK, n.wait(sent));
}

void leave(node &n, unsigned other)
{
    n.barrier();
    EXPECT_EQ(0u, n.errors(n.ep(other)).count);
    n.close(n.ep(other));
    n.barrier(); /* who leaves before the other has closed is an error to it */
}

window::window(node &n, unsigned other, std::vector<uint8_t> &memory)
{
    ucp_mem_map_params_t params = {};
    uint64_t where              = reinterpret_cast<uintptr_t>(memory.data());
    void *packed;
    size_t length;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = memory.data();
    params.length     = memory.size();
    EXPECT_EQ(UCS_OK, ucp_mem_map(n.context(), &params, &memh));
    EXPECT_EQ(UCS_OK, ucp_rkey_pack(n.context(), memh, &packed, &length));
    std::vector<uint8_t> key(length);
    ucs_status_ptr_t sent = n.send(n.ep(other), &where, 8, 1);
    EXPECT_EQ(UCS_OK, n.wait(n.recv(&there, 8, 1)));
    EXPECT_EQ(UCS_OK, n.wait(sent));
    sent = n.send(n.ep(other), packed, length, 2);
    EXPECT_EQ(UCS_OK, n.wait(n.recv(key.data(), key.size(), 2)));
    EXPECT_EQ(UCS_OK, n.wait(sent));
    ucp_rkey_buffer_release(packed);
    EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(n.ep(other), key.data(), &rkey));
}

} // namespace mp
