/* Halyard: traffic between hosts: all kinds of operations over each provider, hosts that are
 * reached badly or not at all, processes that die, and those that are only busy.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/joined_hosts.h>

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

using mp::exchange;
using mp::joined_hosts;
using mp::leave;
using mp::LOST;
using mp::node;
using mp::processes;
using mp::self;
using mp::STAGE;
using mp::LAST;
using mp::TIMEOUT_S;
using mp::window;

namespace {

class between_hosts : public joined_hosts, public testing::WithParamInterface<const char *> {
protected:
    between_hosts() : joined_hosts(GetParam())
    {
    }
};

/* Hosts that are not joined as usual. */
struct kind {
    const char *name;
    const char *provider;
    mp::network network;
};

void PrintTo(const kind &value, std::ostream *out)
{
    *out << value.name;
}

class between_hosts_of : public joined_hosts, public testing::WithParamInterface<kind> {
protected:
    between_hosts_of() : joined_hosts(GetParam().provider, GetParam().network)
    {
    }
};

struct bad_line {
    const char *name;
    mp::line line;
};

void PrintTo(const bad_line &value, std::ostream *out)
{
    *out << value.name;
}

const bad_line BAD_LINES[] = {
    {"lost",      {0.0005, 0, 0.02, 0, 1 << 20, 2}},
    {"reordered", {0.0005, 0.003, 0, 0, 1 << 20, 3}},
    {"slow",      {0.0005, 0, 0, 4e6, 100000, 4}},
    {"all",       {0.001, 0.001, 0.01, 2e7, 200000, 5}}
};

using badly = std::tuple<const char *, bad_line>;

class between_hosts_badly : public joined_hosts, public testing::WithParamInterface<badly> {
protected:
    between_hosts_badly() : joined_hosts(std::get<0>(GetParam()))
    {
    }
};

class between_hosts_ipv6 : public joined_hosts {
protected:
    between_hosts_ipv6() : joined_hosts("net", {2, AF_INET6})
    {
    }
};

class between_hosts_four : public joined_hosts {
protected:
    between_hosts_four() : joined_hosts("net", {4})
    {
    }
};

void messages_of_all_sizes(self &me)
{
    node n(me);
    uint64_t tag = 0;

    n.connect_all();
    for (size_t length = 0; length < (8u << 20); length = (length * 3) + 1) {
        me.waits_for("a message of %zu bytes", length);
        for (unsigned i = 0; i < 5; ++i) {
            exchange(n, me.index(), length, ++tag);
        }
    }
    leave(n, 1 - me.index());
}

TEST_P(between_hosts, messages_of_all_sizes)
{
    start_all(messages_of_all_sizes);
    EXPECT_TRUE(m_members.join());
    EXPECT_EQ(0u, m_members.log_lines()) << m_members.log();
}

TEST_P(between_hosts_of, messages_of_all_sizes)
{
    start_all(messages_of_all_sizes);
    EXPECT_TRUE(m_members.join());
    EXPECT_EQ(0u, m_members.log_lines()) << m_members.log();
}

/* Everybody sends everybody short messages, and long ones, which are read, at once. */
void exchange_with_all(node &n, self &me, uint64_t round)
{
    std::vector<ucs_status_ptr_t> requests;
    std::vector<std::vector<uint8_t>> in, out;
    std::vector<uint64_t> ids;

    for (unsigned i = 0; i < me.count(); ++i) {
        for (size_t length : {0u, 100u, 60000u, 3u << 20}) {
            if (i == me.index()) {
                continue;
            }
            ids.push_back((round << 40) + (i << 30) + length);
            in.emplace_back(length);
            out.emplace_back(length);
            requests.push_back(n.recv(in.back().data(), length, ids.back()));
            const uint64_t id = (round << 40) + (me.index() << 30) + length;
            mp::fill(out.back().data(), length, id);
            requests.push_back(n.send(n.ep(i), out.back().data(), length, id));
        }
    }
    for (ucs_status_ptr_t request : requests) {
        ASSERT_EQ(UCS_OK, n.wait(request));
    }
    for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(-1, mp::find_difference(in[i].data(), in[i].size(), ids[i])) << in[i].size();
    }
}

/* One of them is without its cable for less than the time-out, however long it takes to put it in
 * again. */
TEST_F(between_hosts_four, everybody_with_everybody_in_spite_of_an_outage)
{
    m_environment.set({{"UCX_OFI_TIMEOUT", "100s"}});
    start_all([](self &me) {
        node n(me);

        n.connect_all();
        for (uint64_t round = 1, last = 0; last == 0; ++round) {
            me.waits_for("round %u", (unsigned)round);
            exchange_with_all(n, me, round);
            me.own().words[STAGE] = round;
            me.own().words[LAST]  = me.own().words[LOST] ? round : 0;
            n.barrier();
            last = me.at(0).words[LAST];
            n.barrier();
        }
        for (unsigned i = 0; i < me.count(); ++i) {
            EXPECT_EQ(0u, n.errors(n.ep(i)).count);
            n.close(n.ep(i));
        }
        n.barrier();
    });
    ASSERT_TRUE(all_at(1));
    m_hosts.set_link(3, false);
    usleep(250000);
    m_hosts.set_link(3, true);
    m_members.at(0).words[LOST] = 1;
    EXPECT_TRUE(m_members.join());
}

TEST_P(between_hosts, many_messages_at_once)
{
    start_all([](self &me) {
        constexpr unsigned COUNT = 3000;
        node n(me);
        std::vector<ucs_status_ptr_t> requests;
        std::vector<std::vector<uint8_t>> in, out;

        n.connect_all();
        for (unsigned i = 0; i < COUNT; ++i) {
            const size_t length = ((i % 50) == 7) ? 100000 + i : (i * 7) % 3000;
            in.emplace_back(length);
            out.emplace_back(length);
            mp::fill(out[i].data(), length, (2 * i) + me.index());
            requests.push_back(n.recv(in[i].data(), length, i));
        }
        for (unsigned i = 0; i < COUNT; ++i) {
            requests.push_back(n.send(n.ep(1 - me.index()), out[i].data(), out[i].size(), i));
        }
        for (size_t i = 0; i < requests.size(); ++i) {
            me.waits_for("request %zu", i);
            ASSERT_EQ(UCS_OK, n.wait(requests[i]));
        }
        for (unsigned i = 0; i < COUNT; ++i) {
            ASSERT_EQ(-1, mp::find_difference(in[i].data(), in[i].size(),
                                              (2 * i) + 1 - me.index())) << i;
        }
        leave(n, 1 - me.index());
    });
    EXPECT_TRUE(m_members.join());
}

TEST_P(between_hosts, puts_gets_and_atomics)
{
    start_all([](self &me) {
        constexpr size_t LENGTH = 300000;
        const unsigned other    = 1 - me.index();
        ucp_request_param_t none = {};
        std::vector<uint8_t> memory(LENGTH), local(LENGTH);
        node n(me);

        n.connect_all();
        const window remote(n, other, memory);
        const ucp_rkey_h rkey = remote.rkey;
        uint64_t there        = remote.there;

        mp::fill(local.data(), LENGTH, me.index());
        ASSERT_EQ(UCS_OK, n.wait(ucp_put_nbx(n.ep(other), local.data(), LENGTH, there, rkey,
                                             &none)));
        ASSERT_EQ(UCS_OK, n.wait(ucp_ep_flush_nbx(n.ep(other), &none)));
        n.barrier();
        EXPECT_EQ(-1, mp::find_difference(memory.data(), LENGTH, other));
        std::fill(local.begin(), local.end(), 0);
        ASSERT_EQ(UCS_OK, n.wait(ucp_get_nbx(n.ep(other), local.data(), LENGTH, there, rkey,
                                             &none)));
        EXPECT_EQ(-1, mp::find_difference(local.data(), LENGTH, me.index()));
        n.barrier();

        memset(memory.data(), 0, 8);
        n.barrier();
        for (unsigned i = 0; i < 100; ++i) {
            uint64_t one              = 1;
            ucp_request_param_t param = {};
            param.op_attr_mask        = UCP_OP_ATTR_FIELD_DATATYPE;
            param.datatype            = ucp_dt_make_contig(8);
            ASSERT_EQ(UCS_OK, n.wait(ucp_atomic_op_nbx(n.ep(other), UCP_ATOMIC_OP_ADD, &one, 1,
                                                       there, rkey, &param)));
        }
        ASSERT_EQ(UCS_OK, n.wait(ucp_ep_flush_nbx(n.ep(other), &none)));
        n.barrier();
        memcpy(&there, memory.data(), 8);
        EXPECT_EQ(100u, there);
        ucp_rkey_destroy(rkey);
        leave(n, other);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(n.context(), remote.memh));
    });
    EXPECT_TRUE(m_members.join());
}

/* What was in flight ends with an error, once, and so does what comes after. */
TEST_P(between_hosts, a_killed_process)
{
    start(0, [](self &me) {
        std::vector<uint8_t> data(1u << 20);
        uint64_t word = 0;
        node n(me);

        n.publish();
        ucp_ep_h ep = n.connect(1);
        exchange(n, 0, 1000, 1);
        ucs_status_ptr_t receive = n.recv(&word, 8, 2);
        ucs_status_ptr_t send    = n.send(ep, data.data(), data.size(), 3);
        me.own().words[STAGE]    = 1;
        n.until([&]() { return me.own().words[LOST] != 0; });
        EXPECT_TRUE(n.until([&]() { return n.errors(ep).count != 0; }, mp::news_s()));
        EXPECT_TRUE((n.errors(ep).status == UCS_ERR_CONNECTION_RESET) ||
                    (n.errors(ep).status == UCS_ERR_ENDPOINT_TIMEOUT))
            << ucs_status_string(n.errors(ep).status);
        EXPECT_TRUE(UCS_STATUS_IS_ERR(n.wait(send)));
        ASSERT_TRUE(UCS_PTR_IS_PTR(receive)); /* by tag: anybody may still send it */
        ucp_request_cancel(n.worker(), receive);
        (void)n.wait(receive);
        EXPECT_TRUE(UCS_STATUS_IS_ERR(n.wait(n.send(ep, &word, 8, 4))));
        EXPECT_EQ(1u, n.errors(ep).count);
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);

        /* another process there, with the same address perhaps, is somebody else */
        me.own().words[STAGE] = 2;
        n.connect(1, 2);
        exchange(n, 0, 5000, 5);
        me.own().words[STAGE] = 3;
        n.until([&]() { return me.at(1).words[STAGE] == 3; });
    });
    start(1, [](self &me) {
        node n(me);

        n.publish();
        n.connect(0);
        exchange(n, 1, 1000, 1);
        n.until([]() { return false; });
    });
    ASSERT_TRUE(m_members.until([this]() { return m_members.at(0).words[STAGE] == 1; }, "traffic"));
    m_members.kill_now(1);
    m_members.at(0).words[LOST] = 1;
    ASSERT_TRUE(m_members.until([this]() { return m_members.at(0).words[STAGE] == 2; },
                                "the news"));
    start(1, [](self &me) {
        node n(me);

        n.publish();
        n.connect(0);
        exchange(n, 1, 5000, 5);
        me.own().words[STAGE] = 3;
        n.until([&]() { return me.at(0).words[STAGE] == 3; });
    });
    EXPECT_TRUE(m_members.join());
}

/* One host has both kinds of addresses, the other has one: they meet where the user says which. */
TEST_F(between_hosts_ipv6, another_host_has_both)
{
    m_hosts.add_ipv4(0);
    setenv("UCX_TCP_AF_PRIO", "inet6,inet", 1);
    start_all(messages_of_all_sizes);
    EXPECT_TRUE(m_members.join());
    unsetenv("UCX_TCP_AF_PRIO");
    start_all([](self &me) {
        const mp::slot &other  = me.at(1 - me.index());
        ucp_ep_params_t params = {};
        ucp_ep_h ep;
        node n(me);

        n.publish();
        n.until([&]() { return other.address_serial == 2; });
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address    = reinterpret_cast<const ucp_address_t *>(other.address);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_ep_create(n.worker(), &params, &ep));
        n.barrier();
    });
    EXPECT_TRUE(m_members.join());
    EXPECT_NE(std::string::npos, m_members.log().find("UCX_TCP_AF_PRIO on all hosts chooses"));
}

/* The port that the provider listens on, of a worker whose address stands on the board: where its
 * address of IPv6 is, behind the port and 4 more bytes. */
uint16_t port_of(const mp::slot &slot, const std::string &address)
{
    struct sockaddr_in6 where;
    uint8_t ip[16];

    EXPECT_EQ(1, inet_pton(AF_INET6, address.c_str(), ip));
    const uint8_t *end = slot.address + slot.address_length;
    const uint8_t *at  = std::search(slot.address, end, ip, ip + sizeof(ip));
    EXPECT_NE(end, at);
    memcpy(&where, at - offsetof(struct sockaddr_in6, sin6_addr), sizeof(where));
    return ntohs(where.sin6_port);
}

/* Nobody has noticed yet that the old one is gone: what is sent to it fails, and the new one, which
 * has its address, does not get it. */
TEST_F(between_hosts_ipv6, a_new_process_at_the_same_port)
{
    if (dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) {
        GTEST_SKIP() << "an earlier test has loaded libfabric, which looks at its ports once";
    }
    const std::string there = m_hosts.address(1);
    start(0, [&](self &me) {
        std::vector<uint8_t> data(1u << 20);
        node n(me);

        n.publish();
        ucp_ep_h ep         = n.connect(1);
        const uint16_t port = port_of(me.at(1), there);
        exchange(n, 0, 1000, 1);
        me.own().words[STAGE] = 1;
        while (me.at(1).address_serial < 2) {
            usleep(1000);
        }
        EXPECT_EQ(port, port_of(me.at(1), there));
        EXPECT_GT(0, n.wait(n.send(ep, data.data(), data.size(), 2)));
        n.until([&]() { return n.errors(ep).count != 0; });
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, n.errors(ep).status);
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        n.connect(1, 2);
        exchange(n, 0, 5000, 3);
        leave(n, 1);
    });
    const auto other = [](self &me) {
        ucp_tag_recv_info_t info;

        setenv("FI_NET_PORT_LOW_RANGE", "21001", 1);
        setenv("FI_NET_PORT_HIGH_RANGE", "21001", 1);
        setenv("FI_TCP_PORT_LOW_RANGE", "21001", 1); /* since libfabric 1.18 */
        setenv("FI_TCP_PORT_HIGH_RANGE", "21001", 1);
        node n(me);
        n.publish();
        n.connect(0);
        if (me.own().address_serial == 1) {
            exchange(n, 1, 1000, 1);
            n.until([]() { return false; });
        }
        exchange(n, 1, 5000, 3);
        EXPECT_EQ(nullptr, ucp_tag_probe_nb(n.worker(), 0, 0, 0, &info));
        leave(n, 0);
    };
    start(1, other);
    ASSERT_TRUE(m_members.until([this]() { return m_members.at(0).words[STAGE] == 1; },
                                "traffic"));
    m_members.kill_now(1);
    start(1, other);
    EXPECT_TRUE(m_members.join());
}

/* One side is lost while its memory is being read: the receive ends with an error, once. The reader
 * stops amid it, with one of the pieces under way, until the other side is lost. */
void receive_from_who_is_lost(self &me)
{
    constexpr size_t LENGTH = 40u << 20;
    std::vector<uint8_t> data(LENGTH);
    node n(me);

    n.publish();
    ucp_ep_h ep = n.connect(1 - me.index());
    exchange(n, me.index(), 1000, 1);
    if (me.index() == 1) {
        (void)n.send(ep, data.data(), LENGTH, 2); /* announced, and nothing more is done */
        me.own().words[STAGE] = 1;
        for (;;) {
            usleep(1000);
        }
    }
    ucs_status_ptr_t receive = n.recv(data.data(), LENGTH, 2);
    n.until([&]() { return me.at(1).words[STAGE] == 1; });
    n.until([]() { return false; }, 0.003); /* it reads */
    EXPECT_FALSE(ucp_request_is_completed(receive));
    me.own().words[STAGE] = 2;
    while (me.own().words[LOST] == 0) {
        usleep(1000);
    }
    EXPECT_TRUE(n.until([&]() {
        return (n.errors(ep).count != 0) && ucp_request_is_completed(receive);
    }, mp::news_s()));
    EXPECT_GT(0, n.wait(receive));
    EXPECT_EQ(1u, n.errors(ep).count);
    n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
    me.own().words[STAGE] = 3;
}

TEST_P(between_hosts, a_process_killed_amid_a_message)
{
    lose_amid(receive_from_who_is_lost, true);
}

TEST_P(between_hosts, a_cable_cut_amid_a_message)
{
    lose_amid(receive_from_who_is_lost, false);
}

TEST_F(between_hosts_ipv6, a_cable_cut_amid_a_message)
{
    lose_amid(receive_from_who_is_lost, false);
}

/* Puts and gets under way to one who is lost end with an error, once each. */
void reach_for_who_is_lost(self &me)
{
    constexpr size_t LENGTH = 40u << 20;
    std::vector<uint8_t> memory(LENGTH), data(LENGTH);
    std::vector<ucs_status_ptr_t> requests;
    ucp_request_param_t none = {};
    node n(me);

    n.publish();
    ucp_ep_h ep = n.connect(1 - me.index());
    exchange(n, me.index(), 1000, 3);
    const window remote(n, 1 - me.index(), memory);
    if (me.index() == 1) {
        me.own().words[STAGE] = 1;
        for (;;) {
            usleep(1000);
        }
    }
    n.until([&]() { return me.at(1).words[STAGE] == 1; });
    for (unsigned i = 0; i < 2; ++i) {
        requests.push_back(ucp_put_nbx(ep, data.data(), LENGTH, remote.there, remote.rkey, &none));
        requests.push_back(ucp_get_nbx(ep, data.data(), LENGTH, remote.there, remote.rkey, &none));
    }
    n.until([]() { return false; }, 0.003);
    me.own().words[STAGE] = 2;
    while (me.own().words[LOST] == 0) {
        usleep(1000);
    }
    EXPECT_TRUE(n.until([&]() {
        return (n.errors(ep).count != 0) &&
               std::all_of(requests.begin(), requests.end(), [](ucs_status_ptr_t each) {
                   return !UCS_PTR_IS_PTR(each) || ucp_request_is_completed(each);
               });
    }, mp::news_s()));
    for (ucs_status_ptr_t each : requests) {
        EXPECT_GT(0, n.wait(each));
    }
    EXPECT_EQ(1u, n.errors(ep).count);
    ucp_rkey_destroy(remote.rkey);
    n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
    EXPECT_EQ(UCS_OK, ucp_mem_unmap(n.context(), remote.memh));
    me.own().words[STAGE] = 3;
}

TEST_P(between_hosts, a_process_killed_amid_puts_and_gets)
{
    lose_amid(reach_for_who_is_lost, true);
}

TEST_P(between_hosts, a_cable_cut_amid_puts_and_gets)
{
    lose_amid(reach_for_who_is_lost, false);
}

TEST_P(between_hosts, a_busy_process_is_not_dead)
{
    if (strcmp(GetParam(), "udp;ofi_rxd") == 0) {
        GTEST_SKIP() << "no kernel answers for the process";
    }
    wait_for_a_busy_one("2s", 3 * TIMEOUT_S);
}

TEST_F(between_hosts_ipv6, a_busy_process_is_not_dead)
{
    wait_for_a_busy_one("500ms", 1.5);
}

/* A cable is cut: both sides hear of it within the time-out. */
TEST_P(between_hosts, a_cut_cable)
{
    start_all([](self &me) {
        std::vector<uint8_t> data(1u << 20);
        node n(me);

        n.publish();
        ucp_ep_h ep = n.connect(1 - me.index());
        exchange(n, me.index(), 1000, 1);
        n.barrier();
        me.own().words[STAGE]  = 1;
        n.until([&]() { return me.at(1).words[STAGE] == 2; });
        ucs_status_ptr_t send  = n.send(ep, data.data(), data.size(), 2);
        EXPECT_TRUE(n.until([&]() { return n.errors(ep).count != 0; }, mp::news_s()));
        EXPECT_TRUE(UCS_STATUS_IS_ERR(n.wait(send)));
        EXPECT_EQ(1u, n.errors(ep).count);
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
    });
    ASSERT_TRUE(m_members.until([this]() {
        return (m_members.at(0).words[STAGE] == 1) && (m_members.at(1).words[STAGE] == 1);
    }, "traffic"));
    m_hosts.set_link(1, false);
    m_members.at(1).words[STAGE] = 2;
    EXPECT_TRUE(m_members.join());
}

/* Packets that come late, in another order, slowly, or not. */
void exchange_over_a_bad_line(self &me)
{
    node n(me);
    uint64_t tag = 0;

    n.connect_all();
    for (unsigned i = 0; i < 15; ++i) {
        me.waits_for("message %u", i);
        exchange(n, me.index(), (i % 5 == 4) ? 200000 : i * 100, ++tag);
    }
    leave(n, 1 - me.index());
}

TEST_P(between_hosts_badly, messages_are_exact)
{
    m_hosts.impair(0, std::get<1>(GetParam()).line);
    start_all(exchange_over_a_bad_line);
    EXPECT_TRUE(m_members.join());
}

INSTANTIATE_TEST_SUITE_P(, between_hosts, testing::Values("net", "tcp;ofi_rxm", "udp;ofi_rxd"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             std::string name = info.param;
                             std::replace(name.begin(), name.end(), ';', '_');
                             return name;
                         });

INSTANTIATE_TEST_SUITE_P(, between_hosts_badly,
                         testing::Combine(testing::Values("net", "tcp;ofi_rxm", "udp;ofi_rxd"),
                                          testing::ValuesIn(BAD_LINES)),
                         [](const testing::TestParamInfo<badly> &info) {
                             std::string name = std::get<0>(info.param);
                             std::replace(name.begin(), name.end(), ';', '_');
                             return name + "_" + std::get<1>(info.param).name;
                         });

INSTANTIATE_TEST_SUITE_P(, between_hosts_of,
                         testing::Values(kind{"mtu_9000", "net", {2, AF_INET, 9000}},
                                         kind{"ipv6", "net", {2, AF_INET6}},
                                         kind{"ofi_rxm_ipv6", "tcp;ofi_rxm",
                                              {2, AF_INET6, 9000}}),
                         [](const testing::TestParamInfo<kind> &info) {
                             return info.param.name;
                         });

} // namespace
