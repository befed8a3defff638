/* Halyard: workers that learned their addresses from each other while nobody says whether all of
 * them are on one node: none loads a network's library until one on another node asks at its door.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <fake_sys.h>
#include <mp/hosts.h>
#include <mp/party.h>

using namespace server_test;

namespace {

enum { FIRST, SECOND, COUNT };

/* Words on the board. */
enum { STAGE, SIGNAL, ADDRESS, KEY };
constexpr unsigned KEY_WORDS = 12;

constexpr uint64_t KEYS = UCP_FEATURE_RMA | UCP_FEATURE_AMO64;

ucp_test::context_options with(uint64_t features)
{
    ucp_test::context_options options;
    options.features = features;
    return options;
}

/* A process: its address is on the board, its endpoint leads to the other one. */
class member : public mp::party {
public:
    explicit member(mp::self &me, uint64_t features = UCP_FEATURE_TAG) :
        mp::party(me, with(features))
    {
        publish(get().address());
    }

    void publish(const bytes &address)
    {
        ASSERT_LE(address.size(), mp::ADDRESS_ROOM);
        memcpy(m_me.own().address, address.data(), address.size());
        m_me.own().address_length = (uint32_t)address.size();
        ++m_me.own().address_serial;
    }

    void connect()
    {
        mp::slot &other = m_me.at(1 - m_me.index());
        until([&] { return other.address_serial > 0; }, "an address");
        ucp_ep_params_t params = {};
        params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address         = reinterpret_cast<ucp_address_t *>(other.address);
        make_ep(params);
    }

    /* Both send to each other, and wait for what the other has sent. */
    void exchange()
    {
        for (size_t length : {0, 8, 5000, 1000000}) {
            const bytes data = pattern(length, length);
            bytes got(length);
            void *sent = send(data, length);
            receive(got, length);
            EXPECT_EQ(UCS_OK, wait(sent));
            EXPECT_EQ(data, got);
        }
    }

    /* Both have come so far. */
    void meet(uint64_t stage)
    {
        m_me.own().words[STAGE] = stage;
        until([&] { return m_me.at(1 - m_me.index()).words[STAGE] >= stage; }, "the other");
    }

    void close(unsigned mode)
    {
        EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nb(ep, mode)));
    }
};

void meet_and_exchange(mp::self &me, uint64_t features)
{
    member self(me, features);
    self.connect();
    self.exchange();
    self.meet(1);
    self.close(UCP_EP_CLOSE_MODE_FLUSH);
    self.meet(2);
    EXPECT_EQ(0, self.failed.calls);
}

/* Memory that the other one writes and reads: a counter, and bytes. */
class window {
public:
    window(mp::self &me, member &owner) :
        m_me(me), m_owner(owner), m_memory(sizeof(uint64_t) + LENGTH)
    {
        ucp_mem_map_params_t params = {};
        uint64_t words[KEY_WORDS]   = {};
        void *packed                = nullptr;
        size_t length               = 0;
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address    = m_memory.data();
        params.length     = m_memory.size();
        EXPECT_EQ(UCS_OK, ucp_mem_map(owner.context(), &params, &m_mem));
        EXPECT_EQ(UCS_OK, ucp_rkey_pack(owner.context(), m_mem, &packed, &length));
        EXPECT_LE(length, sizeof(words));
        memcpy(words, packed, length);
        ucp_rkey_buffer_release(packed);
        for (unsigned i = 0; i < KEY_WORDS; ++i) {
            me.own().words[KEY + i] = words[i];
        }
        me.own().words[ADDRESS] = reinterpret_cast<uintptr_t>(m_memory.data());
    }

    ~window()
    {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_owner.context(), m_mem));
    }

    /* The other one's, by the key that it had before it was asked for its network. */
    void use()
    {
        const mp::slot &other           = m_me.at(1 - m_me.index());
        const ucp_request_param_t param = {};
        const bytes data                = pattern(m_me.index(), LENGTH);
        bytes got(LENGTH);
        uint64_t words[KEY_WORDS];
        ucp_rkey_h rkey = nullptr;
        m_owner.until([&] { return other.words[ADDRESS] != 0; }, "its key");
        const uint64_t address = other.words[ADDRESS];
        for (unsigned i = 0; i < KEY_WORDS; ++i) {
            words[i] = other.words[KEY + i];
        }
        ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(m_owner.ep, words, &rkey));
        void *put = ucp_put_nbx(m_owner.ep, data.data(), LENGTH, address + sizeof(uint64_t), rkey,
                                &param);
        EXPECT_EQ(UCS_OK, ucp_atomic_post(m_owner.ep, UCP_ATOMIC_POST_OP_ADD, 5, sizeof(uint64_t),
                                          address, rkey));
        EXPECT_EQ(UCS_OK, m_owner.wait(ucp_ep_flush_nbx(m_owner.ep, &param)));
        EXPECT_EQ(UCS_OK, m_owner.wait(put));
        EXPECT_EQ(UCS_OK, m_owner.wait(ucp_get_nbx(m_owner.ep, got.data(), LENGTH,
                                                   address + sizeof(uint64_t), rkey, &param)));
        EXPECT_EQ(data, got);
        m_owner.meet(1);
        EXPECT_EQ(pattern(1 - m_me.index(), LENGTH),
                  bytes(m_memory.begin() + sizeof(uint64_t), m_memory.end()));
        EXPECT_EQ(5u, m_memory[0]);
        ucp_rkey_destroy(rkey);
    }

private:
    static constexpr size_t LENGTH = 1000000;

    mp::self &m_me;
    member &m_owner;
    bytes m_memory;
    ucp_mem_h m_mem = nullptr;
};

/* Who opens a network says that there is no such provider: who packs keys for one whose devices
 * write and read by themselves does. */
TEST(doors, of_one_node_open_no_network)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    for (uint64_t keys : {(uint64_t)0, KEYS}) {
        for (bool have_rdma : {false, true}) {
            mp::processes both(COUNT);
            both.start_all([=](mp::self &me) {
                const fake_networks networks(have_rdma ? "/sys/class/infiniband" : "");
                setenv("UCX_NET_ADDRESS", "auto", 1);
                setenv("UCX_OFI_PROVIDER", "nonesuch", 1);
                meet_and_exchange(me, UCP_FEATURE_TAG | keys);
            });
            EXPECT_TRUE(both.join());
            EXPECT_EQ((keys != 0) && have_rdma,
                      both.log().find("nonesuch") != std::string::npos) << both.log();
        }
    }
}

class doors_of_two_hosts : public testing::Test {
protected:
    explicit doors_of_two_hosts(int family = AF_INET) : m_hosts({COUNT, family}), m_both(COUNT) {}

    void SetUp() override
    {
        if (!m_hosts.why_not().empty()) {
            GTEST_SKIP() << m_hosts.why_not();
        }
        if (!is_present("ofi")) {
            GTEST_SKIP() << "built without libfabric";
        }
    }

    void start(unsigned index, const mp::processes::body &func)
    {
        m_both.start(index, [=](mp::self &me) {
            m_hosts.join(me.index());
            setenv("UCX_NET_ADDRESS", "auto", 1);
            func(me);
        });
    }

    void exchange()
    {
        for (unsigned index : {FIRST, SECOND}) {
            start(index, [](mp::self &me) { meet_and_exchange(me, UCP_FEATURE_TAG); });
        }
        EXPECT_TRUE(m_both.join());
    }

    /* One sends to another that has said where it is, and has gone, or goes before it looks. */
    void asks_in_vain(bool is_gone_before)
    {
        start(FIRST, [=](mp::self &me) {
            member self(me);
            while (!is_gone_before) {
                pause(); /* it does not look who is at the door */
            }
        });
        if (is_gone_before) {
            ASSERT_TRUE(m_both.until([&] { return !m_both.is_running(FIRST); }, "its end"));
        }
        start(SECOND, [](mp::self &me) {
            member self(me);
            const bytes data(100);
            self.connect();
            void *sent = self.send(data, 1);
            for (unsigned i = 0; i < 1000; ++i) {
                self.until([] { return true; }, "nothing");
                usleep(100);
            }
            me.own().words[STAGE] = 1;
            self.until([&] { return self.failed.calls > 0; }, "the news of its end");
            EXPECT_NE(UCS_OK, self.failed.status);
            EXPECT_EQ(self.failed.status, self.wait(sent));
            self.close(UCP_EP_CLOSE_MODE_FORCE);
            EXPECT_EQ(1, self.failed.calls);
        });
        if (!is_gone_before) {
            ASSERT_TRUE(
                m_both.until([&] { return m_both.at(SECOND).words[STAGE] == 1; }, "a while"));
            m_both.kill_now(FIRST);
        }
        EXPECT_TRUE(m_both.join());
    }

    mp::hosts m_hosts;
    mp::processes m_both;
};

TEST_F(doors_of_two_hosts, exchange)
{
    exchange();
}

/* Keys that do not tell of the network serve all the same. */
TEST_F(doors_of_two_hosts, with_keys)
{
    for (unsigned index : {FIRST, SECOND}) {
        start(index, [](mp::self &me) {
            const fake_networks networks("");
            member self(me, KEYS);
            window window(me, self);
            self.connect();
            window.use();
            self.close(UCP_EP_CLOSE_MODE_FLUSH);
            self.meet(2);
            EXPECT_EQ(0, self.failed.calls);
        });
    }
    EXPECT_TRUE(m_both.join());
}

class doors_of_ipv6_hosts : public doors_of_two_hosts {
protected:
    doors_of_ipv6_hosts() : doors_of_two_hosts(AF_INET6) {}
};

TEST_F(doors_of_ipv6_hosts, exchange)
{
    exchange();
}

TEST_F(doors_of_two_hosts, of_who_has_gone)
{
    asks_in_vain(true);
}

TEST_F(doors_of_two_hosts, of_who_dies_before_it_looks)
{
    asks_in_vain(false);
}

/* Its kernel says that it is there. */
TEST_F(doors_of_two_hosts, of_who_computes)
{
    start(FIRST, [](mp::self &me) {
        member self(me);
        while (me.own().words[SIGNAL] == 0) {
            usleep(1000);
        }
        usleep(6500000);
        self.connect();
        self.exchange();
        self.meet(1);
        self.close(UCP_EP_CLOSE_MODE_FLUSH);
        self.meet(2);
    });
    start(SECOND, [](mp::self &me) { meet_and_exchange(me, UCP_FEATURE_TAG); });
    while (m_both.at(SECOND).address_serial == 0) {
        usleep(1000);
    }
    m_both.at(FIRST).words[SIGNAL] = 1;
    EXPECT_TRUE(m_both.join());
}

/* Its host is not there any more, and no kernel says so. */
TEST_F(doors_of_two_hosts, whose_cable_is_out)
{
    start(FIRST, [](mp::self &me) {
        member self(me);
        me.own().words[STAGE] = 1;
        pause();
    });
    ASSERT_TRUE(m_both.until([&] { return m_both.at(FIRST).words[STAGE] == 1; }, "its address"));
    m_hosts.set_link(FIRST, false);
    start(SECOND, [](mp::self &me) {
        member self(me);
        const bytes data(100);
        mp::own_time time;
        self.connect();
        void *sent = self.send(data, 1);
        self.until([&] {
            return (self.failed.calls > 0) || (time.s() > 8 * mp::slowness());
        }, "the news of its end");
        EXPECT_EQ(1, self.failed.calls);
        EXPECT_NE(UCS_OK, self.wait(sent));
        self.close(UCP_EP_CLOSE_MODE_FORCE);
    });
    ASSERT_TRUE(m_both.until([&] { return !m_both.is_running(SECOND); }, "the news"));
    m_both.kill_now(FIRST);
}

} // namespace
