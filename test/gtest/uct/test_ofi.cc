/* Halyard: tests of the ofi transport beyond the conformance suite: what strangers may do to it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "sys_meter.h"
#include "world.h"

#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace uct_test;

namespace {

class ofi : public testing::Test {
protected:
    void SetUp() override
    {
        if (!is_present(m_tl)) {
            GTEST_SKIP() << "built without libfabric";
        }
    }

    const uct_tl_t *m_tl = uct_tl_find("ofi");
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

} // namespace
