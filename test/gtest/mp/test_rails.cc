/* Halyard: long messages by several devices of a host at the same time.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/joined_hosts.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

using mp::exchange;
using mp::joined_hosts;
using mp::LAST;
using mp::leave;
using mp::LOST;
using mp::node;
using mp::self;
using mp::STAGE;
using mp::window;

namespace {

constexpr size_t LONG = 8u << 20;

/* Two hosts with two devices each, both named by their user. */
class rails : public joined_hosts {
protected:
    rails() : joined_hosts("net", {2, AF_INET, 9000, 2})
    {
    }

    void SetUp() override
    {
        joined_hosts::SetUp();
        m_environment.set({{"UCX_NET_DEVICES", "eth0,eth1"}});
    }

    ucp_test::environment m_environment;
};

/* Bytes that a device of the calling process's host has received. */
uint64_t received_by(const std::string &device)
{
    std::ifstream file("/proc/thread-self/net/dev");
    uint64_t bytes = 0;

    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if ((colon != std::string::npos) && (line.find(device) < colon)) {
            std::istringstream(line.substr(colon + 1)) >> bytes;
        }
    }
    return bytes;
}

/* Received by the second device while func runs, in parts of what comes by both. */
template <typename func_t>
double share_of_second(const func_t &func)
{
    const uint64_t first  = received_by("eth0");
    const uint64_t second = received_by("eth1");

    func();
    const double by_first  = static_cast<double>(received_by("eth0") - first);
    const double by_second = static_cast<double>(received_by("eth1") - second);
    return by_second / (by_first + by_second);
}

/* The second lane is connected by the first part that it could have carried: until messages come by
 * it, or (nobody counts on it) some rounds. */
void connect_both(node &n, self &me, bool is_counted_on = true)
{
    uint64_t tag = 1000;

    for (unsigned i = 0; i < (is_counted_on ? 1000 : 5); ++i) {
        const double share = share_of_second([&]() { exchange(n, me.index(), LONG, ++tag); });
        me.own().words[LAST] = is_counted_on && (share > 0.3);
        n.barrier();
        i = (me.at(0).words[LAST] && me.at(1).words[LAST]) ? 1000 : i;
        n.barrier();
    }
    EXPECT_EQ(is_counted_on ? 1u : 0u, me.own().words[LAST]);
}

TEST_F(rails, messages_use_both)
{
    start_all([](self &me) {
        node n(me);

        n.connect_all();
        connect_both(n, me);
        const double share = share_of_second([&]() {
            for (uint64_t tag = 1; tag <= 5; ++tag) {
                exchange(n, me.index(), LONG + (tag * 1001), tag);
            }
        });
        EXPECT_GT(share, 0.3);
        EXPECT_LT(share, 0.7);
        leave(n, 1 - me.index());
    });
    EXPECT_TRUE(m_members.join());
    EXPECT_EQ(0u, m_members.log_lines()) << m_members.log();
}

/* Announcements with more keys than one that wait for their receive. */
TEST_F(rails, messages_that_come_before_their_receives)
{
    start_all([](self &me) {
        std::vector<uint8_t> out(LONG), in(LONG);
        const unsigned other = 1 - me.index();
        node n(me);

        n.connect_all();
        connect_both(n, me);
        mp::fill(out.data(), LONG, me.index());
        ucs_status_ptr_t sent = n.send(n.ep(other), out.data(), LONG, 7);
        n.barrier(); /* comes behind the announcement */
        const double share = share_of_second([&]() {
            EXPECT_EQ(UCS_OK, n.wait(n.recv(in.data(), LONG, 7)));
        });
        EXPECT_GT(share, 0.2);
        EXPECT_EQ(-1, mp::find_difference(in.data(), LONG, other));
        ASSERT_EQ(UCS_OK, n.wait(sent));
        leave(n, other);
    });
    EXPECT_TRUE(m_members.join());
}

/* What an active message's handler was given. */
struct arrival {
    ucp_worker_h worker;
    std::string header;
    std::vector<uint8_t> data;
    ucs_status_ptr_t request = nullptr;
    bool is_there            = false;
};

ucs_status_t handle(void *arg, const void *header, size_t header_length, void *data, size_t length,
                    const ucp_am_recv_param_t *param)
{
    auto *here                 = static_cast<arrival *>(arg);
    ucp_request_param_t params = {};

    here->header.assign(static_cast<const char *>(header), header_length);
    here->data.resize(length);
    EXPECT_TRUE(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    here->request  = ucp_am_recv_data_nbx(here->worker, data, here->data.data(), length, &params);
    here->is_there = true;
    return UCS_INPROGRESS;
}

/* The user's header stands behind the keys. */
TEST_F(rails, active_messages_use_both)
{
    start_all([](self &me) {
        const char header[]  = "a header of some length";
        const unsigned other = 1 - me.index();
        std::vector<uint8_t> out(LONG);
        ucp_am_handler_param_t handler = {};
        ucp_request_param_t params     = {};
        arrival here;
        node n(me);

        here.worker        = n.worker();
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id         = 3;
        handler.cb         = handle;
        handler.arg        = &here;
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(n.worker(), &handler));
        n.connect_all();
        connect_both(n, me);
        mp::fill(out.data(), LONG, me.index());
        const double share = share_of_second([&]() {
            ucs_status_ptr_t sent = ucp_am_send_nbx(n.ep(other), 3, header, sizeof(header),
                                                    out.data(), LONG, &params);
            n.until([&]() { return here.is_there; });
            EXPECT_EQ(UCS_OK, n.wait(here.request));
            EXPECT_EQ(UCS_OK, n.wait(sent));
        });
        EXPECT_GT(share, 0.2);
        EXPECT_EQ(std::string(header, sizeof(header)), here.header);
        EXPECT_EQ(-1, mp::find_difference(here.data.data(), LONG, other));
        leave(n, other);
    });
    EXPECT_TRUE(m_members.join());
}

TEST_F(rails, gets_use_both)
{
    start_all([](self &me) {
        const unsigned other     = 1 - me.index();
        ucp_request_param_t none = {};
        std::vector<uint8_t> memory(LONG), local(LONG);
        node n(me);

        n.connect_all();
        mp::fill(memory.data(), LONG, me.index());
        const window remote(n, other, memory);
        connect_both(n, me);
        EXPECT_GT(share_of_second([&]() {
            ASSERT_EQ(UCS_OK, n.wait(ucp_get_nbx(n.ep(other), local.data(), LONG - 5,
                                                 remote.there + 5, remote.rkey, &none)));
            n.barrier(); /* the other side may still read */
        }), 0.2);
        mp::fill(memory.data(), LONG, other);
        EXPECT_EQ(0, memcmp(local.data(), memory.data() + 5, LONG - 5));
        n.barrier();
        ucp_rkey_destroy(remote.rkey);
        leave(n, other);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(n.context(), remote.memh));
    });
    EXPECT_TRUE(m_members.join());
}

/* Of a network that the kernel routes only what the user names, and no more than the user says. */
void use_one(self &me)
{
    node n(me);

    n.connect_all();
    const double share = share_of_second([&]() { connect_both(n, me, false); });
    EXPECT_LT(std::min(share, 1 - share), 0.01); /* nobody says which one where none is named */
    leave(n, 1 - me.index());
}

TEST_F(rails, one_where_none_is_named)
{
    unsetenv("UCX_NET_DEVICES");
    start_all(use_one);
    EXPECT_TRUE(m_members.join());
}

TEST_F(rails, one_where_the_user_says_so)
{
    m_environment.set({{"UCX_MAX_RNDV_RAILS", "1"}});
    start_all(use_one);
    EXPECT_TRUE(m_members.join());
}

/* The peer's user has switched it off: the others go on with one. */
TEST_F(rails, one_side_has_one)
{
    start_all([](self &me) {
        if (me.index() == 1) {
            setenv("UCX_NET_DEVICES", "eth0", 1);
        }
        use_one(me);
    });
    EXPECT_TRUE(m_members.join());
}

/* Messages go on, whole, when the second device has lost its cable, and nobody is told of an
 * error. */
TEST_F(rails, a_cable_of_the_second_is_cut)
{
    start_all([](self &me) {
        node n(me);
        uint64_t tag = 1;

        n.connect_all();
        connect_both(n, me);
        for (unsigned rounds = 0; rounds < 5; ++rounds) { /* after the cut */
            exchange(n, me.index(), 2 * LONG, ++tag);
            me.own().words[STAGE] = tag;
            me.own().words[LAST]  = me.at(0).words[LOST].load();
            n.barrier();
            rounds = (me.at(0).words[LAST] != 0) ? rounds : 0; /* both see what the first saw */
            n.barrier();
        }
        leave(n, 1 - me.index());
    });
    ASSERT_TRUE(all_at(3));
    m_hosts.set_link(1, false, 1);
    m_members.at(0).words[LOST] = 1;
    EXPECT_TRUE(m_members.join());
}

/* The second device is in a network of its own where the peer is not: the attempt to connect it
 * ends after the time-out, and nobody is told of an error. */
TEST_F(rails, the_second_leads_nowhere)
{
    m_hosts.set_apart(1, 1);
    start_all([](self &me) {
        node n(me);
        uint64_t tag = 1;

        n.connect_all();
        const double end_s = mp::now_s() + (1.5 * mp::TIMEOUT_S);
        for (bool is_over = false; !is_over;) {
            exchange(n, me.index(), LONG, ++tag);
            me.own().words[LAST] = mp::now_s() > end_s;
            n.barrier();
            is_over = me.at(0).words[LAST] != 0;
            n.barrier();
        }
        leave(n, 1 - me.index());
    });
    EXPECT_TRUE(m_members.join());
    EXPECT_EQ(0u, m_members.log_lines()) << m_members.log();
}

/* The way from one's device to the other's is dead, one by another device between the same hosts is
 * not: the question whether the peer lives takes the way of the messages, so that they end. */
TEST_F(rails, another_way_proves_nothing)
{
    m_hosts.set_apart(1, 1);
    start_all([](self &me) {
        setenv("UCX_NET_DEVICES", (me.index() == 0) ? "eth1" : "eth0", 1);
        std::vector<uint8_t> data(1000);
        node n(me);

        n.publish();
        ucp_ep_h ep              = n.connect(1 - me.index());
        ucs_status_ptr_t request = n.send(ep, data.data(), data.size(), 1);
        n.until([&]() { return n.errors(ep).count != 0; });
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, n.errors(ep).status);
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        n.barrier(); /* one that ends tells of it */
    });
    EXPECT_TRUE(m_members.join());
}

} // namespace
