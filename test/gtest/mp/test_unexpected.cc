/* Halyard: messages that arrive before their receives, thousands of them, taken in any order;
 * receives before and after the arrival; messages of no bytes; receives that are taken back; the
 * memory that a flood of them takes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"
#include "seed.h"
#include "snapshot.h"

#include <algorithm>
#include <numeric>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned SENDER   = 0;
constexpr unsigned RECEIVER = 1;
constexpr unsigned MESSAGES = 6000;
constexpr uint64_t TAG_LAST = 1ull << 40;

/* Short ones, some that need a buffer of each size, some that are announced. */
size_t length_of(unsigned k)
{
    switch (k % 16) {
    case 7:
        return 3000 + k;
    case 11:
        return (k % 160 == 11) ? 100000 + k : 500;
    case 13:
        return 0;
    default:
        return k % 97;
    }
}

void send_all(self &me, node &n)
{
    std::vector<std::vector<uint8_t>> buffers;
    std::vector<ucs_status_ptr_t> requests;

    for (unsigned k = 0; k < MESSAGES; ++k) {
        buffers.emplace_back(length_of(k));
        mp::fill(buffers.back().data(), length_of(k), k);
        requests.push_back(n.send(n.ep(RECEIVER), buffers.back().data(), length_of(k), k));
        ASSERT_FALSE(UCS_PTR_IS_ERR(requests.back()));
    }
    requests.push_back(n.send(n.ep(RECEIVER), nullptr, 0, TAG_LAST));
    for (unsigned k = 0; k < requests.size(); ++k) {
        me.waits_for("message %u of %zu bytes to be taken", k, length_of(k));
        EXPECT_EQ(UCS_OK, n.wait(requests[k]));
    }
}

void receive_one(node &n, unsigned k)
{
    std::vector<uint8_t> buffer(length_of(k) + 8, 0x5a);
    ucp_tag_recv_info_t info = {};

    ASSERT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), buffer.size(), k), &info));
    ASSERT_EQ(k, info.sender_tag);
    ASSERT_EQ(length_of(k), info.length);
    ASSERT_EQ(-1, mp::find_difference(buffer.data(), length_of(k), k)) << "message " << k;
    ASSERT_EQ(8, std::count(buffer.end() - 8, buffer.end(), 0x5a)) << "message " << k;
}

/* All messages have arrived when the last one has; then they are received in this order. */
void run(const std::vector<unsigned> &order)
{
    processes both(2);

    both.start_all([&](self &me) {
        node n(me);

        n.connect_all();
        if (me.index() == SENDER) {
            send_all(me, n);
        } else {
            me.waits_for("the last message");
            ASSERT_EQ(UCS_OK, n.wait(n.recv(nullptr, 0, TAG_LAST)));
            for (unsigned k : order) {
                me.waits_for("message %u", k);
                receive_one(n, k);
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
}

std::vector<unsigned> ascending()
{
    std::vector<unsigned> order(MESSAGES);

    std::iota(order.begin(), order.end(), 0);
    return order;
}

} // namespace

TEST(unexpected, received_in_reverse)
{
    std::vector<unsigned> order = ascending();

    std::reverse(order.begin(), order.end());
    run(order);
}

TEST(unexpected, received_in_random_order)
{
    std::vector<unsigned> order = ascending();
    seeded_random random(4711);

    std::shuffle(order.begin(), order.end(), std::mt19937_64(random.bits()));
    run(order);
}

/* With a mask that leaves no bit, messages come in the order in which they were sent, whatever
 * their protocol. */
TEST(unexpected, any_tag_in_the_order_of_sending)
{
    processes both(2);

    both.start_all([&](self &me) {
        node n(me);

        n.connect_all();
        if (me.index() == SENDER) {
            send_all(me, n);
        } else {
            std::vector<uint8_t> buffer(200000);

            for (unsigned k = 0; k <= MESSAGES; ++k) {
                ucp_tag_recv_info_t info = {};
                const uint64_t tag       = (k == MESSAGES) ? TAG_LAST : k;

                me.waits_for("message %u", k);
                ASSERT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), buffer.size(), 0, 0), &info));
                ASSERT_EQ(tag, info.sender_tag);
                if (k < MESSAGES) {
                    ASSERT_EQ(length_of(k), info.length);
                    ASSERT_EQ(-1, mp::find_difference(buffer.data(), info.length, k));
                }
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
}

/* Receives posted at random before or after the arrival, some taken back and posted anew, on both
 * sides at once. */
TEST(unexpected, receives_before_and_after)
{
    seeded_random seed(90210);
    const uint64_t number = seed.bits();
    processes both(2);

    both.start_all([&](self &me) {
        struct receive {
            std::vector<uint8_t> buffer;
            ucs_status_ptr_t     request = nullptr;
        };
        std::mt19937_64 random(number + me.index());
        node n(me);
        std::vector<std::vector<uint8_t>> buffers(MESSAGES);
        std::vector<ucs_status_ptr_t> sends;
        std::vector<receive> receives(MESSAGES);
        std::vector<unsigned> send_order = ascending(), recv_order = ascending();
        size_t canceled = 0;

        std::shuffle(send_order.begin(), send_order.end(), random);
        std::shuffle(recv_order.begin(), recv_order.end(), random);
        n.connect_all();
        const auto post = [&](unsigned k) {
            receives[k].buffer.resize(length_of(k));
            receives[k].request = n.recv(receives[k].buffer.data(), length_of(k), k);
            ASSERT_TRUE(UCS_PTR_IS_PTR(receives[k].request));
        };

        for (size_t s = 0, r = 0; (s < MESSAGES) || (r < MESSAGES);) {
            if ((r == MESSAGES) || ((s < MESSAGES) && (random() % 2 == 0))) {
                const unsigned k = send_order[s++];
                buffers[k].resize(length_of(k));
                mp::fill(buffers[k].data(), length_of(k), k);
                sends.push_back(n.send(n.ep(1 - me.index()), buffers[k].data(), length_of(k), k));
                ASSERT_FALSE(UCS_PTR_IS_ERR(sends.back()));
            } else {
                const unsigned k = recv_order[r++];
                post(k);
                if (random() % 8 == 0) {
                    ucp_request_cancel(n.worker(), receives[k].request);
                    if (ucp_request_check_status(receives[k].request) == UCS_ERR_CANCELED) {
                        ++canceled;
                        ucp_request_free(receives[k].request);
                        post(k);
                    }
                }
            }
            if (random() % 16 == 0) {
                n.progress();
            }
        }
        EXPECT_GT(canceled, 10u);
        for (unsigned k = 0; k < MESSAGES; ++k) {
            ucp_tag_recv_info_t info = {};

            me.waits_for("message %u of %zu bytes", k, length_of(k));
            ASSERT_EQ(UCS_OK, n.wait(receives[k].request, &info));
            ASSERT_EQ(length_of(k), info.length);
            ASSERT_EQ(-1, mp::find_difference(receives[k].buffer.data(), length_of(k), k));
        }
        for (ucs_status_ptr_t request : sends) {
            EXPECT_EQ(UCS_OK, n.wait(request));
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
}

/* A receiver that does not post keeps its budget of a flood, and gets all of it afterwards.
 * listens: the sender calls progress after each message, else only where one is not taken at once.
 */
void flood(bool listens)
{
    constexpr unsigned COUNT = 6144;
    constexpr size_t LENGTH  = 4096;
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_TM_UNEXP_BUDGET", "1m", 1);
        std::vector<uint8_t> data(COUNT * LENGTH, 1); /* touched before memory is measured */
        node n(me);

        n.connect_all();
        if (me.index() == SENDER) {
            std::vector<ucs_status_ptr_t> requests;

            me.waits_for("connections both ways: the receiver's tells to hold");
            ASSERT_EQ(UCS_OK, n.wait(n.recv(nullptr, 0, TAG_LAST)));
            ASSERT_EQ(UCS_OK, n.wait(n.send(n.ep(RECEIVER), nullptr, 0, TAG_LAST)));
            for (unsigned k = 0; k < COUNT; ++k) {
                mp::fill(&data[k * LENGTH], LENGTH, k);
                requests.push_back(n.send(n.ep(RECEIVER), &data[k * LENGTH], LENGTH, k));
                if (listens || UCS_PTR_IS_PTR(requests.back())) {
                    n.progress();
                } else if (k % 4 == 0) {
                    usleep(50); /* the receiver takes what has been sent */
                }
            }
            requests.push_back(n.send(n.ep(RECEIVER), nullptr, 0, TAG_LAST));
            for (ucs_status_ptr_t request : requests) {
                me.waits_for("messages to be taken");
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
        } else {
            ASSERT_EQ(UCS_OK, n.wait(n.send(n.ep(SENDER), nullptr, 0, TAG_LAST)));
            ASSERT_EQ(UCS_OK, n.wait(n.recv(nullptr, 0, TAG_LAST)));
            const size_t before = mp::memory_of_self().anonymous;

            me.waits_for("the last message");
            ASSERT_EQ(UCS_OK, n.wait(n.recv(nullptr, 0, TAG_LAST)));
            /* The budget, announcements, and what was on its way. */
            EXPECT_LE(mp::memory_of_self().anonymous, before + (6u << 20));
            for (unsigned k = 0; k < COUNT; ++k) {
                ucp_tag_recv_info_t info = {};

                me.waits_for("message %u", k);
                ASSERT_EQ(UCS_OK, n.wait(n.recv(data.data(), LENGTH, 0, 0), &info));
                ASSERT_EQ(k, info.sender_tag);
                ASSERT_EQ(LENGTH, info.length);
                ASSERT_EQ(-1, mp::find_difference(data.data(), LENGTH, k)) << "message " << k;
            }
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
}

TEST(unexpected, a_flood_is_bounded)
{
    flood(true);
}

TEST(unexpected, a_flood_by_a_sender_that_does_not_listen)
{
    flood(false);
}
