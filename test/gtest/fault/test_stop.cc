/* Halyard: a peer that is stopped (SIGSTOP, a debugger, a swapped-out machine) is not dead: what is
 * sent to it waits, everybody else goes on, and when it continues nothing is lost.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "companion.h"

#include <mp/node.h>
#include <ucp/world.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <set>
#include <unistd.h>

using mp::companion;
using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned SENDER  = 0;
constexpr unsigned STOPPED = 1;
constexpr unsigned THIRD   = 2;

constexpr unsigned MESSAGES = 400;

/* Words of the sender's slot: it asks the coordinator to stop and to continue the other. */
enum {
    WORD_WISH,
    WORD_OVER
};
enum {
    WISH_STOP = 1,
    WISH_CONTINUE
};
/* Word of the other's slot: the wish that was granted. */
constexpr unsigned WORD_GRANTED = 0;

size_t length_of(unsigned k)
{
    return (k % 50 == 49) ? 300000 + k : (k * 17) % 2000;
}

bool is_stopped(pid_t pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;

    std::getline(file, line);
    const size_t end = line.rfind(')');
    return (end != std::string::npos) && (end + 2 < line.size()) && (line[end + 2] == 'T');
}

void wish(self &me, node &n, uint64_t what)
{
    me.own().words[WORD_WISH] = what;
    n.until([&]() { return me.at(STOPPED).words[WORD_GRANTED] == what; });
}

struct sends {
    std::vector<std::vector<uint8_t>> buffers;
    std::vector<ucs_status_ptr_t>     requests;

    void post(node &n, ucp_ep_h ep)
    {
        for (unsigned k = 0; k < MESSAGES; ++k) {
            buffers.emplace_back(length_of(k));
            mp::fill(buffers.back().data(), length_of(k), k);
            requests.push_back(n.send(ep, buffers.back().data(), length_of(k), k));
            EXPECT_FALSE(UCS_PTR_IS_ERR(requests.back()));
        }
    }

    unsigned in_flight() const
    {
        unsigned count = 0;

        for (ucs_status_ptr_t request : requests) {
            count += UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request);
        }
        return count;
    }
};

void third(self &me)
{
    node n(me);

    n.publish();
    companion c(n, n.connect(SENDER), false);
    while (me.at(SENDER).words[WORD_OVER] == 0) {
        n.progress();
        c.step();
    }
    c.end_second();
}

/* Traffic of the third process while the other is stopped. */
void expect_others_go_on(companion &c, unsigned rounds = 1000)
{
    const uint64_t end = c.rounds() + rounds;

    c.until([&]() { return c.rounds() >= end; });
}

void receive_all(self &me, node &n)
{
    for (unsigned k = 0; k < MESSAGES; ++k) {
        std::vector<uint8_t> buffer(length_of(k));

        me.waits_for("message %u", k);
        EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), buffer.size(), k)));
        EXPECT_EQ(-1, mp::find_difference(buffer.data(), buffer.size(), k));
    }
}

void run(const std::function<void(self &)> &sender, const std::function<void(self &)> &stopped,
         const std::function<void(self &)> &other = third)
{
    processes all(3);

    all.start(SENDER, sender);
    all.start(STOPPED, stopped);
    all.start(THIRD, other);
    const auto wished = [&](uint64_t what) {
        return all.until([&]() { return all.at(SENDER).words[WORD_WISH] == what; }, "a wish");
    };

    if (wished(WISH_STOP)) {
        all.signal(STOPPED, SIGSTOP);
        if (all.until([&]() { return is_stopped(all.pid(STOPPED)); }, "it to stop")) {
            all.at(STOPPED).words[WORD_GRANTED] = WISH_STOP;
            if (wished(WISH_CONTINUE)) {
                all.signal(STOPPED, SIGCONT);
                all.at(STOPPED).words[WORD_GRANTED] = WISH_CONTINUE;
            }
        }
    }
    EXPECT_TRUE(all.join());
    EXPECT_EQ(0u, all.log_lines()) << all.log();
}

void greet(node &n, unsigned index)
{
    char byte = 1;

    EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(index), &byte, 1, MESSAGES)));
    EXPECT_EQ(UCS_OK, n.wait(n.recv(&byte, 1, MESSAGES)));
}

/* Starts a forced close of the endpoint to the other. */
ucs_status_ptr_t start_force_close(node &n)
{
    ucp_request_param_t param = {};

    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    return ucp_ep_close_nbx(n.ep(STOPPED), &param);
}

/* It ends at once, whatever the other does. */
void force_close(node &n)
{
    ucs_status_ptr_t closing = start_force_close(n);
    unsigned turns           = 0;

    while (UCS_PTR_IS_PTR(closing) && !ucp_request_is_completed(closing) && (turns < 100)) {
        n.progress();
        ++turns;
    }
    EXPECT_LT(turns, 100u);
    EXPECT_EQ(UCS_OK, n.wait(closing));
}

} // namespace

TEST(stopped_peer, nothing_is_lost)
{
    run([](self &me) {
            node n(me);
            sends s;

            n.publish();
            companion c(n, n.connect(THIRD), true);
            n.connect(STOPPED);
            greet(n, STOPPED);
            wish(me, n, WISH_STOP);
            s.post(n, n.ep(STOPPED));
            expect_others_go_on(c);
            EXPECT_GT(s.in_flight(), MESSAGES / 4); /* it does wait */
            EXPECT_EQ(0u, n.errors(n.ep(STOPPED)).count);

            wish(me, n, WISH_CONTINUE);
            me.waits_for("all messages to leave");
            n.until([&]() {
                c.step();
                return s.in_flight() == 0;
            });
            for (ucs_status_ptr_t request : s.requests) {
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
            c.end_first();
            me.own().words[WORD_OVER] = 1;
            n.close(n.ep(STOPPED));
        },
        [](self &me) {
            node n(me);

            n.publish();
            n.connect(SENDER);
            greet(n, SENDER);
            receive_all(me, n);
            n.close(n.ep(SENDER));
        });
}

/* A forced close does not wait for a peer that does not move. */
TEST(stopped_peer, forced_close_ends_at_once)
{
    run([](self &me) {
            node n(me);
            sends s;

            n.publish();
            companion c(n, n.connect(THIRD), true);
            n.connect(STOPPED);
            greet(n, STOPPED);
            wish(me, n, WISH_STOP);
            s.post(n, n.ep(STOPPED));
            expect_others_go_on(c);
            ASSERT_GT(s.in_flight(), 0u);

            force_close(n);
            EXPECT_EQ(0u, s.in_flight());
            for (ucs_status_ptr_t request : s.requests) {
                const ucs_status_t status = n.wait(request);
                EXPECT_TRUE((status == UCS_OK) || (status == UCS_ERR_CANCELED));
            }
            expect_others_go_on(c);
            wish(me, n, WISH_CONTINUE);
            expect_others_go_on(c);
            c.end_first();
            me.own().words[WORD_OVER] = 1;
        },
        [](self &me) {
            node n(me);

            n.publish();
            n.connect(SENDER);
            greet(n, SENDER);
            me.waits_for("the end of the sender");
            n.until([&]() { return me.at(SENDER).words[WORD_OVER] != 0; });
        });
}

/* Nor for an answer that finds no room in its ring. */
TEST(stopped_peer, forced_close_waits_for_no_answer)
{
    constexpr size_t LENGTH  = 1000000; /* announced, and read without its sender */
    constexpr ucp_tag_t LONG = MESSAGES + 1;

    run([](self &me) {
            ucp_tag_recv_info_t info;
            std::vector<uint8_t> buffer(LENGTH);
            node n(me);
            sends s;

            n.publish();
            companion c(n, n.connect(THIRD), true);
            n.connect(STOPPED);
            greet(n, STOPPED);
            me.waits_for("the announcement");
            n.until([&]() {
                return ucp_tag_probe_nb(n.worker(), LONG, ~0ull, 0, &info) != nullptr;
            });
            wish(me, n, WISH_STOP);
            const uint64_t last = 1;
            for (unsigned i = 0; (s.in_flight() == 0) && (i < 100000); ++i) {
                s.requests = {n.send(n.ep(STOPPED), &last, sizeof(last), MESSAGES)};
            }
            ASSERT_EQ(1u, s.in_flight());
            auto *received = n.recv(buffer.data(), buffer.size(), LONG);
            expect_others_go_on(c);

            force_close(n);
            for (ucs_status_ptr_t request : s.requests) {
                n.wait(request);
            }
            wish(me, n, WISH_CONTINUE);
            n.wait(received); /* well, if it could be read; else it ends with its sender */
            expect_others_go_on(c);
            c.end_first();
            me.own().words[WORD_OVER] = 1;
        },
        [](self &me) {
            std::vector<uint8_t> data(LENGTH);
            node n(me);

            n.publish();
            n.connect(SENDER);
            greet(n, SENDER);
            auto *sent = n.send(n.ep(SENDER), data.data(), data.size(), LONG);
            me.waits_for("the end of the sender");
            n.until([&]() { return me.at(SENDER).words[WORD_OVER] != 0; });
            n.wait(sent);
        });
}

/* A flush waits for a peer that is stopped, and ends when it continues. */
TEST(stopped_peer, flush_waits)
{
    run([](self &me) {
            const ucp_request_param_t param = {};
            node n(me);
            sends s;

            n.publish();
            companion c(n, n.connect(THIRD), true);
            n.connect(STOPPED);
            greet(n, STOPPED);
            wish(me, n, WISH_STOP);
            s.post(n, n.ep(STOPPED));
            const uint64_t last     = 1; /* the first that finds no room */
            ucs_status_ptr_t queued = nullptr;
            for (unsigned i = 0; (queued == nullptr) && (i < 100000); ++i) {
                queued = n.send(n.ep(STOPPED), &last, sizeof(last), MESSAGES);
            }
            ucs_status_ptr_t flush = ucp_ep_flush_nbx(n.ep(STOPPED), &param);
            ASSERT_TRUE(UCS_PTR_IS_PTR(queued) && UCS_PTR_IS_PTR(flush));
            expect_others_go_on(c);
            EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(flush));

            wish(me, n, WISH_CONTINUE);
            EXPECT_EQ(UCS_OK, n.wait(flush));
            EXPECT_EQ(UCS_OK, ucp_request_check_status(queued));
            EXPECT_EQ(UCS_OK, n.wait(queued));
            for (ucs_status_ptr_t request : s.requests) {
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
            c.end_first();
            me.own().words[WORD_OVER] = 1;
            n.close(n.ep(STOPPED));
        },
        [](self &me) {
            node n(me);

            n.publish();
            n.connect(SENDER);
            greet(n, SENDER);
            receive_all(me, n);
            n.close(n.ep(SENDER));
        });
}

/* ---- over a network, which uses the memory of operations until their peer has taken part ---- */

namespace {

constexpr size_t NET_LENGTH      = 8u << 20; /* of a read or write */
constexpr size_t NET_MESSAGE     = 60000;    /* goes from where it lies */
constexpr size_t NET_ANSWERED    = 1u << 20; /* announced, so that there is an answer */
constexpr unsigned NET_MESSAGES  = 300;      /* more than a connection holds */
constexpr unsigned NET_ROUNDS    = 100;      /* each of which takes slices where others run, too */
constexpr uint64_t NET_TAG       = 77;
constexpr unsigned WORD_ENDED    = 0;        /* of the third one's slot: it has looked at the end */
constexpr unsigned WORD_ADDRESS  = 2;        /* of what the stopped one lets be accessed, */
constexpr unsigned WORD_KEY      = 3;        /* and from here on its key */
constexpr unsigned NUM_KEY_WORDS = 12;

enum class what { put, get, send, receive };
constexpr const char *NET_NAMES[] = {"put", "get", "send", "receive"};

struct net_case {
    what operation;
    bool is_called; /* the others make the connections */
    bool is_late;   /* there is one before there is an endpoint that can be closed by force */
};

class stopped_network_peer : public testing::TestWithParam<net_case> {
protected:
    void SetUp() override
    {
        if (!ucp_test::is_present("ofi")) {
            GTEST_SKIP() << "built without libfabric";
        }
    }
};

/* Messages in both directions; who is first makes the connection. */
void greet_in_turn(node &n, ucp_ep_h ep, bool is_first)
{
    char byte = 1;

    for (unsigned turn = 0; turn < 2; ++turn) {
        if ((turn == 0) == is_first) {
            EXPECT_EQ(UCS_OK, n.wait(n.send(ep, &byte, 1, MESSAGES)));
        } else {
            EXPECT_EQ(UCS_OK, n.wait(n.recv(&byte, 1, MESSAGES)));
        }
    }
}

/* Connected sockets of the process, by the ports of both ends. */
std::set<std::pair<uint16_t, uint16_t>> net_connections()
{
    std::set<std::pair<uint16_t, uint16_t>> found;

    for (int fd = 0; fd < 1024; ++fd) {
        sockaddr_in own = {}, other = {};
        socklen_t own_length = sizeof(own), other_length = sizeof(other);
        if ((getsockname(fd, reinterpret_cast<sockaddr *>(&own), &own_length) == 0) &&
            (getpeername(fd, reinterpret_cast<sockaddr *>(&other), &other_length) == 0) &&
            ((own.sin_family == AF_INET) || (own.sin_family == AF_INET6))) {
            found.emplace(own.sin_port, other.sin_port); /* of in6 too */
        }
    }
    return found;
}

void net_third(self &me, bool is_first)
{
    setenv("UCX_TLS", "ofi", 1);
    node n(me);

    n.publish();
    companion c(n, n.connect(SENDER), is_first);
    c.until([&]() { return c.rounds() > 0; });
    const auto connections = net_connections();
    EXPECT_EQ(1u, connections.size());
    while (me.at(SENDER).words[WORD_OVER] == 0) {
        c.turn();
    }
    EXPECT_EQ(connections, net_connections());
    EXPECT_EQ(0u, n.errors(n.ep(SENDER)).count);
    if (is_first) {
        c.end_first();
        me.own().words[WORD_ENDED] = 1;
    } else {
        me.own().words[WORD_ENDED] = 1;
        c.end_second();
    }
}

/* What came before there was an endpoint; and time for the question that goes with that. */
void net_hear_first(node &n, companion &c)
{
    std::vector<uint8_t> buffer(NET_ANSWERED);

    EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), buffer.size(), MESSAGES + 1)));
    n.connect(STOPPED);
    EXPECT_FALSE(c.until([]() { return false; }, 1.5));
}

void net_stopped(self &me, bool is_first, bool is_late)
{
    setenv("UCX_TLS", "ofi", 1);
    std::vector<uint8_t> memory(NET_LENGTH);
    uint64_t words[NUM_KEY_WORDS] = {};
    ucp_mem_map_params_t params   = {};
    void *packed                  = nullptr;
    size_t length                 = 0;
    ucp_mem_h mem                 = nullptr;
    node n(me);

    n.publish();
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = memory.data();
    params.length     = memory.size();
    ASSERT_EQ(UCS_OK, ucp_mem_map(n.context(), &params, &mem));
    ASSERT_EQ(UCS_OK, ucp_rkey_pack(n.context(), mem, &packed, &length));
    ASSERT_LE(length, sizeof(words));
    memcpy(words, packed, length);
    ucp_rkey_buffer_release(packed);
    for (unsigned i = 0; i < NUM_KEY_WORDS; ++i) {
        me.own().words[WORD_KEY + i] = words[i];
    }
    me.own().words[WORD_ADDRESS] = reinterpret_cast<uintptr_t>(memory.data());
    n.connect(SENDER);
    ucs_status_ptr_t sent = n.send(n.ep(SENDER), memory.data(), NET_LENGTH, NET_TAG);
    if (is_late) {
        std::vector<uint8_t> data(NET_ANSWERED);
        EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(SENDER), data.data(), data.size(), MESSAGES + 1)));
    }
    greet_in_turn(n, n.ep(SENDER), is_first);
    me.waits_for("the end of the sender");
    n.until([&]() { return me.at(SENDER).words[WORD_OVER] != 0; });
    ASSERT_EQ(UCS_OK, ucp_mem_unmap(n.context(), mem));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, n.wait(sent));
}

/* Until the message of the one that is to be stopped has been announced. */
void net_wait_announced(node &n)
{
    ucp_tag_recv_info_t info;

    n.until([&]() {
        return ucp_tag_probe_nb(n.worker(), NET_TAG, ~0ull, 0, &info) != nullptr;
    });
}

/* Starts operations on memory that lasts until the test has ended. */
std::vector<ucs_status_ptr_t> net_start(self &me, node &n, what operation,
                                        std::vector<uint8_t> &buffer, ucp_rkey_h *rkey_p)
{
    const ucp_request_param_t param = {};
    uint64_t words[NUM_KEY_WORDS];
    std::vector<ucs_status_ptr_t> requests;

    for (unsigned i = 0; i < NUM_KEY_WORDS; ++i) {
        words[i] = me.at(STOPPED).words[WORD_KEY + i];
    }
    EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(n.ep(STOPPED), words, rkey_p));
    if (operation == what::send) {
        for (unsigned i = 0; i < NET_MESSAGES; ++i) {
            requests.push_back(n.send(n.ep(STOPPED), buffer.data(), NET_MESSAGE, NET_TAG));
            n.progress();
        }
    } else if (operation == what::receive) {
        requests.push_back(n.recv(buffer.data(), buffer.size(), NET_TAG));
    } else {
        const uint64_t remote = me.at(STOPPED).words[WORD_ADDRESS];
        requests.push_back((operation == what::put) ?
                           ucp_put_nbx(n.ep(STOPPED), buffer.data(), buffer.size(), remote,
                                       *rkey_p, &param) :
                           ucp_get_nbx(n.ep(STOPPED), buffer.data(), buffer.size(), remote,
                                       *rkey_p, &param));
    }
    return requests;
}

/* The same once the other has been greeted and stopped. */
std::vector<ucs_status_ptr_t> net_start_with_stopped(self &me, node &n, companion &c,
                                                     const net_case &how,
                                                     std::vector<uint8_t> &buffer,
                                                     ucp_rkey_h *rkey_p)
{
    greet_in_turn(n, n.ep(STOPPED), !how.is_called);
    expect_others_go_on(c, NET_ROUNDS);
    net_wait_announced(n);
    wish(me, n, WISH_STOP);
    auto requests = net_start(me, n, how.operation, buffer, rkey_p);
    expect_others_go_on(c, NET_ROUNDS);
    return requests;
}

/* The end of the traffic with the third one, whose connection lasts until it has looked at it. */
void net_end(self &me, node &n, companion &c, bool is_called)
{
    const auto has_ended = [&]() { return me.at(THIRD).words[WORD_ENDED] != 0; };

    if (is_called) {
        me.own().words[WORD_OVER] = 1;
        c.until(has_ended);
        c.end_second();
    } else {
        c.pause_first();
        me.own().words[WORD_OVER] = 1;
        n.until(has_ended);
        n.close(n.ep(THIRD));
    }
}

} // namespace

/* A forced close gives the memory of all operations back, soon, and costs only the connection with
 * the one that is stopped. */
TEST_P(stopped_network_peer, forced_close_gives_memory_back)
{
    const bool is_called = GetParam().is_called;

    run([&](self &me) {
            setenv("UCX_TLS", "ofi", 1);
            std::vector<uint8_t> buffer(NET_LENGTH);
            ucp_rkey_h rkey = nullptr;
            node n(me);

            n.publish();
            companion c(n, n.connect(THIRD), !is_called);
            if (GetParam().is_late) {
                net_hear_first(n, c);
            } else {
                n.connect(STOPPED);
            }
            auto requests = net_start_with_stopped(me, n, c, GetParam(), buffer, &rkey);
            ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(requests.back()));

            requests.push_back(start_force_close(n));
            EXPECT_TRUE(c.until([&]() {
                return std::all_of(requests.begin(), requests.end(), [](ucs_status_ptr_t request) {
                    return !UCS_PTR_IS_PTR(request) || ucp_request_is_completed(request);
                });
            }, 4));
            EXPECT_EQ(UCS_OK, n.wait(requests.back()));
            requests.pop_back();
            EXPECT_EQ((GetParam().operation == what::receive) ? UCS_ERR_CONNECTION_RESET :
                                                                UCS_ERR_CANCELED,
                      n.wait(requests.back()));
            requests.pop_back();
            for (ucs_status_ptr_t request : requests) {
                const ucs_status_t status = n.wait(request);
                EXPECT_TRUE((status == UCS_OK) || (status == UCS_ERR_CANCELED));
            }
            ucp_rkey_destroy(rkey);
            expect_others_go_on(c, NET_ROUNDS);
            EXPECT_EQ(0u, n.errors(n.ep(THIRD)).count);
            wish(me, n, WISH_CONTINUE);
            expect_others_go_on(c, NET_ROUNDS);
            net_end(me, n, c, is_called);
        },
        [&](self &me) { net_stopped(me, is_called, GetParam().is_late); },
        [&](self &me) { net_third(me, is_called); });
}

/* The worker is destroyed while they are about to end. */
TEST_P(stopped_network_peer, a_worker_ends_after_a_forced_close)
{
    const bool is_called = GetParam().is_called;

    run([&](self &me) {
            setenv("UCX_TLS", "ofi", 1);
            std::vector<uint8_t> buffer(NET_LENGTH);
            ucp_rkey_h rkey = nullptr;
            {
                node n(me);
                n.publish();
                companion c(n, n.connect(THIRD), !is_called);
                n.connect(STOPPED);
                const auto requests = net_start_with_stopped(me, n, c, GetParam(), buffer, &rkey);
                EXPECT_FALSE(UCS_PTR_IS_ERR(start_force_close(n)));
                EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](void *request) {
                    return UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request);
                }));
                ucp_rkey_destroy(rkey);
                net_end(me, n, c, is_called);
            }
            me.own().words[WORD_WISH] = WISH_CONTINUE;
        },
        [&](self &me) { net_stopped(me, is_called, false); },
        [&](self &me) { net_third(me, is_called); });
}

INSTANTIATE_TEST_SUITE_P(all, stopped_network_peer,
                         testing::Values(net_case{what::put, false, false},
                                         net_case{what::put, true, false},
                                         net_case{what::put, true, true},
                                         net_case{what::get, false, false},
                                         net_case{what::get, true, false},
                                         net_case{what::send, false, false},
                                         net_case{what::send, true, false},
                                         net_case{what::receive, false, false},
                                         net_case{what::receive, true, false}),
                         [](const testing::TestParamInfo<net_case> &info) {
                             return std::string(NET_NAMES[static_cast<int>(info.param.operation)]) +
                                    (info.param.is_called ? "_called" : "_calling") +
                                    (info.param.is_late ? "_before" : "");
                         });
