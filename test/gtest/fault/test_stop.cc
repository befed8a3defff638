/* Halyard: a peer that is stopped (SIGSTOP, a debugger, a swapped-out machine) is not dead: what is
 * sent to it waits, everybody else goes on, and when it continues nothing is lost.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "companion.h"

#include <mp/node.h>

#include <csignal>
#include <fstream>
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
void expect_others_go_on(node &n, companion &c)
{
    const uint64_t rounds = c.rounds();

    EXPECT_TRUE(n.until([&]() {
        c.step();
        return c.rounds() >= rounds + 1000;
    }, 20));
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

void run(const std::function<void(self &)> &sender, const std::function<void(self &)> &stopped)
{
    processes all(3);

    all.start(SENDER, sender);
    all.start(STOPPED, stopped);
    all.start(THIRD, third);
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

/* A forced close of the endpoint to the other ends at once, whatever that one does. */
void force_close(node &n)
{
    ucp_request_param_t param = {};
    unsigned turns            = 0;

    param.op_attr_mask       = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags              = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t closing = ucp_ep_close_nbx(n.ep(STOPPED), &param);
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
            expect_others_go_on(n, c);
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
            expect_others_go_on(n, c);
            ASSERT_GT(s.in_flight(), 0u);

            force_close(n);
            EXPECT_EQ(0u, s.in_flight());
            for (ucs_status_ptr_t request : s.requests) {
                const ucs_status_t status = n.wait(request);
                EXPECT_TRUE((status == UCS_OK) || (status == UCS_ERR_CANCELED));
            }
            expect_others_go_on(n, c);
            wish(me, n, WISH_CONTINUE);
            expect_others_go_on(n, c);
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
            expect_others_go_on(n, c);

            force_close(n);
            for (ucs_status_ptr_t request : s.requests) {
                n.wait(request);
            }
            wish(me, n, WISH_CONTINUE);
            n.wait(received); /* well, if it could be read; else it ends with its sender */
            expect_others_go_on(n, c);
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
            expect_others_go_on(n, c);
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
