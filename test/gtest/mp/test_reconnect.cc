/* Halyard: two workers that part by force and meet again at once, over and over, by a network: what
 * is left of an earlier connection is not taken for the new one. Each round ends, well or with an
 * error; after one that ended with an error a later one goes well. And new workers that connect to
 * each other at the same time, which makes two connections of the provider's: no round fails.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/node.h>
#include <seed.h>
#include <ucp/world.h>

#include <algorithm>
#include <cstdlib>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned ROUNDS   = 50;
constexpr unsigned MESSAGES = 8;     /* of a round, each way */
constexpr unsigned PAIRS    = 20;    /* of new workers; to end one takes 0.2 s over tcp;ofi_rxm, */
constexpr double   ENOUGH_S = 10;    /* and under load 10 times that: then there are fewer */
constexpr double   LIMIT_S  = 30;     /* of a round, and until one goes well; no measurement */
constexpr int      FDS      = 256;   /* descriptors among which connections are looked for */
constexpr uint64_t REST     = ~0ull; /* tag of what is under way at the end of a round */

/* Words on the board. */
enum { STARTED, ENDED, ILL };

struct way {
    const char *name;
    const char *provider;
    bool        is_cut; /* in some rounds connections break */
};

void PrintTo(const way &value, std::ostream *out)
{
    *out << value.name;
}

/* Ends the TCP connections of this process, as a provider does that loses one. */
void cut_connections()
{
    struct sockaddr_storage remote;

    for (int fd = 0; fd < FDS; ++fd) {
        socklen_t length = sizeof(remote);
        if ((getpeername(fd, reinterpret_cast<struct sockaddr *>(&remote), &length) == 0) &&
            ((remote.ss_family == AF_INET) || (remote.ss_family == AF_INET6))) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

bool has_ended(ucs_status_ptr_t request)
{
    return !UCS_PTR_IS_PTR(request) || (ucp_request_check_status(request) != UCS_INPROGRESS);
}

bool have_ended(const std::vector<ucs_status_ptr_t> &requests)
{
    return std::all_of(requests.begin(), requests.end(), has_ended);
}

class meeting {
public:
    meeting(self &me, const way &how) : m_me(me), m_how(how), m_node(me), m_rnd(70 + me.index())
    {
        m_node.publish();
    }

    void run()
    {
        double well_s = mp::now_s();

        for (unsigned round = 1; !testing::Test::HasFailure(); ++round) {
            meet(STARTED, round);
            m_me.own().words[ILL] = exchange(round) ? 0 : round;
            meet(ENDED, round);
            if ((m_me.at(0).words[ILL] != round) && (m_me.at(1).words[ILL] != round)) {
                well_s = mp::now_s();
                if (round >= ROUNDS) {
                    break;
                }
            }
            ASSERT_LT(mp::now_s() - well_s, LIMIT_S * mp::slowness()) << "no round goes well";
        }
    }

private:
    /* Both come here, without a word through the library. */
    void meet(unsigned word, unsigned round)
    {
        m_me.own().words[word] = round;
        m_me.waits_for("word %u of round %u", word, round);
        m_node.until([&]() { return m_me.at(1 - m_me.index()).words[word] >= round; });
    }

    /* Messages both ways, until all have come or the endpoint has failed, or that of the other
     * side, which may not have sent a word: were they all there? */
    bool exchange(unsigned round)
    {
        std::vector<std::vector<uint8_t>> in(MESSAGES), out(MESSAGES);
        std::vector<ucs_status_ptr_t> receives, sends, rest;
        const ucp_ep_h ep = m_node.connect(1 - m_me.index());
        bool is_well      = true;

        for (unsigned i = 0; i < MESSAGES; ++i) {
            const uint64_t tag  = (round * MESSAGES) + i;
            const size_t length = (i == 5) ? 20000 : ((round * 13) + (i * 700)) % 3000;
            in[i].resize(length);
            out[i].resize(length);
            mp::fill(out[i].data(), length, (tag << 1) + m_me.index());
            receives.push_back(m_node.recv(in[i].data(), length, tag));
            sends.push_back(m_node.send(ep, out[i].data(), length, tag));
            if (m_how.is_cut && m_rnd.one_in(20)) {
                m_node.progress();
                cut_connections();
            }
        }
        EXPECT_TRUE(m_node.until([&]() {
            return (m_node.errors(ep).count > 0) ||
                   (m_me.at(1 - m_me.index()).words[ILL] == round) ||
                   (have_ended(sends) && have_ended(receives));
        }, LIMIT_S)) << "round " << round << " of process " << m_me.index() << " hangs";
        for (unsigned i = 0; (i < MESSAGES) && (round % 2 == 0); ++i) {
            rest.push_back(m_node.send(ep, out[i].data(), out[i].size(), REST));
        }
        m_node.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        for (unsigned i = 0; i < MESSAGES; ++i) {
            if (!has_ended(receives[i])) {
                ucp_request_cancel(m_node.worker(), receives[i]);
            }
            const bool has_come = (m_node.wait(receives[i]) == UCS_OK);
            EXPECT_TRUE(!has_come || (mp::find_difference(
                in[i].data(), in[i].size(),
                (((round * MESSAGES) + i) << 1) + 1 - m_me.index()) == -1));
            is_well = (m_node.wait(sends[i]) == UCS_OK) && has_come && is_well;
        }
        for (ucs_status_ptr_t each : rest) {
            (void)m_node.wait(each);
        }
        return is_well;
    }

    self         &m_me;
    const way    &m_how;
    node          m_node;
    seeded_random m_rnd;
};

/* The later one begins up to a millisecond after the other: somewhere amid its connecting. */
void connect_at_once(self &me)
{
    const double end_s = mp::now_s() + ENOUGH_S;
    std::mt19937 engine(80 + me.index());

    for (unsigned i = 1; (me.at(0).words[ENDED] == 0) && !testing::Test::HasFailure(); ++i) {
        std::vector<uint64_t> in(5 * MESSAGES), out(5 * MESSAGES);
        std::vector<ucs_status_ptr_t> requests;
        node n(me);

        n.publish();
        const ucp_ep_h ep = n.connect(1 - me.index(), i);
        n.barrier();
        for (const double start_s = mp::now_s() + (engine() % 1000) * 1e-6;
             mp::now_s() < start_s;) {
        }
        for (size_t k = 0; k < in.size(); ++k) {
            requests.push_back(n.recv(&in[k], sizeof(in[k]), k));
            requests.push_back(n.send(ep, &out[k], sizeof(out[k]), k));
        }
        me.waits_for("the messages of pair %u", i);
        n.until([&]() { return (n.errors(ep).count > 0) || have_ended(requests); });
        EXPECT_EQ(0u, n.errors(ep).count) << ucs_status_string(n.errors(ep).status);
        n.barrier();
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        for (ucs_status_ptr_t each : requests) {
            EXPECT_TRUE(testing::Test::HasFailure() || (n.wait(each) == UCS_OK));
        }
        if (me.index() == 0) {
            me.own().words[ENDED] = (i == PAIRS) || (mp::now_s() > end_s);
        }
        n.barrier();
    }
}

class reconnect : public testing::TestWithParam<way> {
protected:
    void SetUp() override
    {
        if (!ucp_test::is_present("ofi")) {
            GTEST_SKIP() << "built without libfabric";
        }
        m_environment.set({{"UCX_TLS", "ofi"},
                           {"UCX_OFI_PROVIDER", GetParam().provider},
                           {"UCX_OFI_TIMEOUT", "3s"},
                           {"UCX_RNDV_THRESH", "8k"}});
    }

    ucp_test::environment m_environment;
};

TEST_P(reconnect, at_once)
{
    const way how = GetParam();
    processes members(2);

    members.start_all([&how](self &me) { meeting(me, how).run(); });
    EXPECT_TRUE(members.join());
}

TEST_P(reconnect, both_connect_at_once)
{
    if (GetParam().is_cut) {
        GTEST_SKIP() << "a message that is lost with its connection ends the peer";
    }
    processes members(2);

    members.start_all(connect_at_once);
    EXPECT_TRUE(members.join());
}

INSTANTIATE_TEST_SUITE_P(, reconnect,
                         testing::Values(way{"net", "net", false},
                                         way{"net_cut", "net", true},
                                         way{"rxm", "tcp;ofi_rxm", false},
                                         way{"rxm_cut", "tcp;ofi_rxm", true}),
                         [](const testing::TestParamInfo<way> &info) { return info.param.name; });

} // namespace
