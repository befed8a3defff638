/* Halyard: tests of tagged messages over every variant of transports and protocols: data, status,
 * info, order, probes, truncation, cancellation.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <seed.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

using namespace ucp_test;

namespace {

constexpr size_t LENGTH_MAX = 1100000;

class tag : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, tag, testing::ValuesIn(all_variants()), variant_name);

enum when_t { BEFORE, AFTER };

/* One message into a buffer of its length; all that the receiver can see of it is checked. */
void transfer(pair &pair, size_t length, when_t when, bool sync)
{
    const bytes data         = pattern(length, length);
    const ucp_tag_t number   = 0x8000000000000000ull | (length << 1) | (when == BEFORE);
    ucp_tag_recv_info_t info = {1, 1};
    guarded buffer(length);
    void *sent, *received;

    if (when == BEFORE) {
        received = pair.receive(buffer.data(), length, number, ~0ull, &info);
        ASSERT_TRUE(UCS_PTR_IS_PTR(received));
        sent = pair.send(data.data(), length, number, sync);
    } else {
        sent                       = pair.send(data.data(), length, number, sync);
        ucp_tag_recv_info_t probed = {};
        pair.progress_until([&]() {
            return ucp_tag_probe_nb(pair.receiver().handle(), number, ~0ull, 0, &probed) != nullptr;
        });
        ASSERT_EQ(length, probed.length);
        ASSERT_EQ(number, probed.sender_tag);
        if (sync) {
            ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
            ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(sent));
        }
        received = pair.receive(buffer.data(), length, number, ~0ull, &info);
    }
    ASSERT_EQ(UCS_OK, pair.wait(received, &info)) << length;
    ASSERT_EQ(UCS_OK, pair.wait(sent)) << length;
    ASSERT_EQ(-1, differs(buffer.data(), length, length)) << length;
    ASSERT_TRUE(buffer.is_intact()) << length;
    ASSERT_EQ(number, info.sender_tag);
    ASSERT_EQ(length, info.length);
}

TEST_P(tag, expected_messages_of_all_sizes)
{
    pair pair(GetParam());
    for (size_t length : lengths(pair.ep(), LENGTH_MAX)) {
        ASSERT_NO_FATAL_FAILURE(transfer(pair, length, BEFORE, false));
    }
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}

TEST_P(tag, unexpected_messages_of_all_sizes)
{
    pair pair(GetParam());
    for (size_t length : lengths(pair.ep(), LENGTH_MAX)) {
        ASSERT_NO_FATAL_FAILURE(transfer(pair, length, AFTER, false));
    }
    EXPECT_EQ(0u, ucp_test_num_kept(pair.receiver().handle()));
}

TEST_P(tag, synchronous_messages_of_all_sizes)
{
    pair pair(GetParam());
    for (size_t length : lengths(pair.ep(), 70000)) {
        ASSERT_NO_FATAL_FAILURE(transfer(pair, length, BEFORE, true));
        ASSERT_NO_FATAL_FAILURE(transfer(pair, length, AFTER, true));
    }
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_controls(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.receiver().handle()));
}

TEST_P(tag, a_null_buffer_of_no_bytes)
{
    pair pair(GetParam());
    void *sent               = pair.send(nullptr, 0, 1);
    ucp_tag_recv_info_t info = {7, 7};
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(nullptr, 0, 1, ~0ull, &info), &info));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(1u, info.sender_tag);
    EXPECT_EQ(0u, info.length);
}

/* Messages do not overtake each other, however different their lengths and the ways they go. */
TEST_P(tag, order_is_kept)
{
    static const size_t sizes[] = {0, 1, 8, 60, 500, 3000, 9000, 40000, 200000};
    constexpr size_t COUNT      = 60;
    seeded_random random(201);
    pair pair(GetParam());

    for (bool posted_first : {true, false}) {
        std::vector<bytes> data, buffers(COUNT, bytes(200000));
        std::vector<ucp_tag_recv_info_t> infos(COUNT);
        std::vector<void *> sent, received;
        const auto post_all = [&]() {
            for (size_t i = 0; i < COUNT; ++i) {
                received.push_back(pair.receive(buffers[i].data(), buffers[i].size(), 5,
                                                (i % 3) ? ~0ull : 1, &infos[i]));
            }
        };

        if (posted_first) {
            post_all();
        }
        for (size_t i = 0; i < COUNT; ++i) {
            data.push_back(pattern(i, sizes[random.below(std::size(sizes))]));
            sent.push_back(pair.send(data[i].data(), data[i].size(), 5));
            ASSERT_FALSE(UCS_PTR_IS_ERR(sent.back()));
        }
        if (!posted_first) {
            pair.settle();
            post_all();
        }
        for (size_t i = 0; i < COUNT; ++i) {
            ASSERT_EQ(UCS_OK, pair.wait(received[i], &infos[i]));
            ASSERT_EQ(UCS_OK, pair.wait(sent[i]));
            ASSERT_EQ(data[i].size(), infos[i].length) << "message " << i;
            ASSERT_EQ(-1, differs(buffers[i].data(), data[i].size(), i)) << "message " << i;
        }
    }
}

/* ---- random traffic ---- */

/* All messages of one endpoint are in order, and so are all receives; then it does not depend on
 * time what goes where: each message in its turn has the first receive, of those posted at any time
 * and not yet given away, that matches it. That is the model. */
class traffic {
public:
    traffic(pair &pair, uint64_t seed) : m_pair(pair), m_random(seed)
    {
    }

    void run(int steps)
    {
        for (int i = 0; i < steps; ++i) {
            switch (m_random.below(5)) {
            case 0:
            case 1:
                send();
                break;
            case 2:
            case 3:
                receive();
                break;
            default:
                for (uint64_t rounds = m_random.below(6); rounds > 0; --rounds) {
                    m_pair.progress();
                }
                break;
            }
        }
    }

    void check()
    {
        m_pair.settle();
        for (message_t &message : m_sent) {
            match(message);
        }
        for (const auto &receive : m_received) {
            ASSERT_NO_FATAL_FAILURE(check(*receive));
        }
        for (const message_t &message : m_sent) {
            if (!message.is_matched) {
                ASSERT_NO_FATAL_FAILURE(drain(message));
            }
        }
        for (const message_t &message : m_sent) {
            ASSERT_EQ(UCS_OK, m_pair.wait(message.request));
        }
        ucp_tag_recv_info_t info;
        EXPECT_EQ(nullptr, ucp_tag_probe_nb(m_pair.receiver().handle(), 0, 0, 0, &info));
    }

private:
    struct message_t {
        ucp_tag_t tag;
        uint64_t number;
        bytes data;
        void *request   = nullptr;
        bool is_matched = false;
    };

    struct receive_t {
        explicit receive_t(size_t length) : buffer(length)
        {
        }

        ucp_tag_t tag, mask;
        guarded buffer;
        ucp_tag_recv_info_t info = {0, 0};
        void *request            = nullptr;
        const message_t *message = nullptr;
    };

    size_t length()
    {
        return m_random.below(m_random.one_in(6) ? 40000 : (m_random.one_in(3) ? 3000 : 130));
    }

    ucp_tag_t tag()
    {
        return m_random.below(3) << (m_random.below(2) * 62);
    }

    void send()
    {
        m_sent.push_back({tag(), m_next, pattern(m_next, length())});
        message_t &message = m_sent.back();
        ++m_next;
        message.request =
            m_pair.send(message.data.data(), message.data.size(), message.tag, m_random.one_in(4));
        EXPECT_FALSE(UCS_PTR_IS_ERR(message.request));
    }

    void receive()
    {
        static const uint64_t masks[] = {~0ull, ~0ull, ~0ull, 1ull << 62, 1, 0};
        m_received.push_back(std::make_unique<receive_t>(m_random.one_in(4) ? length() : 40000));
        receive_t &receive = *m_received.back();
        receive.tag        = tag();
        receive.mask       = masks[m_random.below(std::size(masks))];
        receive.request = m_pair.receive(receive.buffer.data(), receive.buffer.size(), receive.tag,
                                         receive.mask, &receive.info);
    }

    void match(message_t &message)
    {
        for (const auto &receive : m_received) {
            if ((receive->message == nullptr) &&
                (((receive->tag ^ message.tag) & receive->mask) == 0)) {
                receive->message   = &message;
                message.is_matched = true;
                return;
            }
        }
    }

    void check(receive_t &receive)
    {
        if (receive.message == nullptr) {
            ASSERT_TRUE(UCS_PTR_IS_PTR(receive.request));
            ucp_request_cancel(m_pair.receiver().handle(), receive.request);
            ASSERT_EQ(UCS_ERR_CANCELED, m_pair.wait(receive.request));
            return;
        }

        const message_t &message = *receive.message;
        const size_t room        = std::min(message.data.size(), receive.buffer.size());
        ASSERT_EQ((room < message.data.size()) ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK,
                  m_pair.wait(receive.request, &receive.info));
        ASSERT_EQ(message.tag, receive.info.sender_tag) << "message " << message.number;
        ASSERT_EQ(message.data.size(), receive.info.length) << "message " << message.number;
        ASSERT_TRUE((room == 0) || (memcmp(message.data.data(), receive.buffer.data(), room) == 0));
        ASSERT_TRUE(receive.buffer.is_intact());
    }

    void drain(const message_t &message)
    {
        const ucp_request_param_t param = receive_param(nullptr);
        ucp_tag_recv_info_t info        = {};
        guarded buffer(message.data.size());

        ucp_tag_message_h handle = ucp_tag_probe_nb(m_pair.receiver().handle(), 0, 0, 1, &info);
        ASSERT_NE(nullptr, handle);
        ASSERT_EQ(message.tag, info.sender_tag);
        ASSERT_EQ(message.data.size(), info.length);
        ASSERT_EQ(UCS_OK,
                  m_pair.wait(ucp_tag_msg_recv_nbx(m_pair.receiver().handle(), buffer.data(),
                                                   buffer.size(), handle, &param)));
        ASSERT_EQ(-1, differs(buffer.data(), buffer.size(), message.number));
        ASSERT_TRUE(buffer.is_intact());
    }

    pair &m_pair;
    seeded_random m_random;
    uint64_t m_next = 0;
    std::deque<message_t> m_sent;
    std::deque<std::unique_ptr<receive_t>> m_received;
};

TEST_P(tag, random_traffic_matches_as_the_model)
{
    pair pair(GetParam());
    for (uint64_t seed = 210; seed < 214; ++seed) {
        traffic traffic(pair, seed);
        traffic.run(400);
        ASSERT_NO_FATAL_FAILURE(traffic.check());
    }
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_kept(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.receiver().handle()));
}

/* Single copies that are refused in the midst of it, as by a system call filter. */
TEST_P(tag, random_traffic_while_copies_are_refused)
{
    for (uint64_t seed = 220; seed < 224; ++seed) {
        pair pair(GetParam());
        traffic traffic(pair, seed);
        traffic.run(150);
        ucp_test_refuse_copies((seed & 1) ? pair.ep() : pair.ep_back());
        traffic.run(150);
        ASSERT_NO_FATAL_FAILURE(traffic.check());
    }
}

TEST_P(tag, both_directions_at_once)
{
    pair pair(GetParam());
    std::vector<void *> requests;
    std::deque<bytes> data, buffers;

    for (uint64_t i = 0; i < 120; ++i) {
        const bool back     = (i & 1) && !GetParam().is_self;
        ucp_ep_h ep         = back ? pair.ep_back() : pair.ep();
        worker &destination = back ? pair.sender() : pair.receiver();
        const auto param    = send_param(nullptr);
        const size_t length = (i * 7919) % 90000;
        data.push_back(pattern(i, length));
        buffers.emplace_back(length);
        requests.push_back(ucp_tag_send_nbx(ep, data.back().data(), length, i, &param));
        requests.push_back(ucp_tag_recv_nbx(destination.handle(), buffers.back().data(), length, i,
                                            ~0ull, &param));
    }
    for (void *request : requests) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
    for (uint64_t i = 0; i < 120; ++i) {
        ASSERT_EQ(-1, differs(buffers[i].data(), buffers[i].size(), i));
    }
}

TEST_P(tag, thousands_of_unexpected_messages_in_reverse_order)
{
    constexpr uint64_t COUNT = 3000;
    pair pair(GetParam());
    std::vector<uint64_t> values(COUNT);
    std::vector<void *> requests;

    for (uint64_t i = 0; i < COUNT; ++i) {
        values[i] = i * 3;
        requests.push_back(pair.send(&values[i], sizeof(values[i]), i));
    }
    for (uint64_t i = COUNT; i-- > 0;) {
        uint64_t value = 0;
        ASSERT_EQ(UCS_OK, pair.wait(pair.receive(&value, sizeof(value), i)));
        ASSERT_EQ(i * 3, value);
    }
    for (void *request : requests) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
}

/* ---- truncation ---- */

TEST_P(tag, truncation)
{
    pair pair(GetParam());
    for (size_t length : {1ul, 9ul, 64ul, 2000ul, 30000ul, 300000ul}) {
        for (size_t room : {0ul, length / 2, length - 1}) {
            for (bool sync : {false, true}) {
                for (when_t when : {BEFORE, AFTER}) {
                    const bytes data         = pattern(length, length);
                    ucp_tag_recv_info_t info = {};
                    guarded buffer(room);
                    void *sent = nullptr, *received = nullptr;

                    if (when == AFTER) {
                        sent = pair.send(data.data(), length, 3, sync);
                        pair.settle();
                    }
                    received = pair.receive(buffer.data(), room, 3, ~0ull, &info);
                    if (when == BEFORE) {
                        sent = pair.send(data.data(), length, 3, sync);
                    }
                    ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, pair.wait(received, &info));
                    ASSERT_EQ(UCS_OK, pair.wait(sent));
                    ASSERT_EQ(length, info.length);
                    ASSERT_EQ(3u, info.sender_tag);
                    ASSERT_TRUE(buffer.is_intact());
                    ASSERT_EQ(0, memcmp(data.data(), buffer.data(), room));
                }
            }
        }
    }
}

/* ---- synchronous sends ---- */

TEST_P(tag, a_synchronous_send_waits_for_its_match)
{
    pair pair(GetParam());
    for (size_t length : {0ul, 8ul, 5000ul, 100000ul}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        ending end;
        const ucp_request_param_t param = send_param(&end);

        void *request = ucp_tag_send_sync_nbx(pair.ep(), data.data(), length, 9, &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(request));
        pair.settle();
        ASSERT_EQ(0, end.calls);
        ucp_tag_recv_info_t info;
        ASSERT_NE(nullptr, ucp_tag_probe_nb(pair.receiver().handle(), 9, ~0ull, 0, &info));
        pair.settle();
        ASSERT_EQ(0, end.calls) << "a probe is no match";
        ASSERT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), length, 9)));
        pair.progress_until([&]() { return end.calls > 0; });
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(UCS_OK, end.status);
        EXPECT_EQ(request, end.request);
        EXPECT_EQ(data, buffer);
    }
}

/* ---- probes ---- */

/* Its sender does not listen any more when the message is received, nor has it ever heard of the
 * receiver: what goes whole at most times does so at all. */
TEST(tag_plain, a_first_message_waits_for_nobody)
{
    for (size_t length : {3000, 4096, 6000, 8000}) {
        pair pair({"mm", {{"UCX_TLS", "mm,cma"}}, false, UCS_THREAD_MODE_SINGLE});
        const bytes data = pattern(length, length);
        bytes got(length);
        ucp_tag_recv_info_t info;
        void *sent = pair.send(data.data(), length, 7);

        pair.progress_until([&]() {
            return ucp_tag_probe_nb(pair.receiver().handle(), 7, ~0ull, 0, &info) != nullptr;
        });
        void *received = pair.receive(got.data(), length, 7);
        for (unsigned i = 0; (i < 1000) && UCS_PTR_IS_PTR(received) &&
                             (ucp_request_check_status(received) == UCS_INPROGRESS); ++i) {
            pair.receiver().progress();
        }
        EXPECT_EQ(data, got) << length << " bytes";
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
    }
}

TEST_P(tag, probes_see_messages_in_order_and_leave_them)
{
    pair pair(GetParam());
    ucp_worker_h worker             = pair.receiver().handle();
    const std::vector<size_t> sizes = {0, 5, 100000, 7000};
    std::vector<bytes> data;
    std::vector<void *> requests;
    ucp_tag_recv_info_t info;

    EXPECT_EQ(nullptr, ucp_tag_probe_nb(worker, 0, 0, 0, &info));
    for (size_t i = 0; i < sizes.size(); ++i) {
        data.push_back(pattern(i, sizes[i]));
        requests.push_back(pair.send(data[i].data(), sizes[i], 0x100 + i));
    }
    pair.settle();
    for (int again = 0; again < 2; ++again) {
        for (size_t i = 0; i < sizes.size(); ++i) {
            ASSERT_NE(nullptr, ucp_tag_probe_nb(worker, 0x100 + i, ~0ull, 0, &info));
            EXPECT_EQ(0x100 + i, info.sender_tag);
            EXPECT_EQ(sizes[i], info.length);
        }
        ASSERT_NE(nullptr, ucp_tag_probe_nb(worker, 0x100, 0x100, 0, &info));
        EXPECT_EQ(0x100u, info.sender_tag);
        EXPECT_EQ(nullptr, ucp_tag_probe_nb(worker, 0x200, 0x300, 0, &info));
    }

    /* Taken out, a message is invisible to the rest, and its receive can wait. */
    std::vector<ucp_tag_message_h> messages;
    for (size_t i = 0; i < sizes.size(); ++i) {
        messages.push_back(ucp_tag_probe_nb(worker, 0, 0, 1, &info));
        ASSERT_NE(nullptr, messages.back());
        EXPECT_EQ(0x100 + i, info.sender_tag);
        EXPECT_EQ(nullptr, ucp_tag_probe_nb(worker, 0x100 + i, ~0ull, 0, &info));
    }
    pair.settle();
    for (size_t i = sizes.size(); i-- > 0;) {
        guarded buffer(sizes[i]);
        ucp_tag_recv_info_t received = {};
        ucp_request_param_t param    = receive_param(nullptr, UCP_OP_ATTR_FIELD_RECV_INFO);
        param.recv_info.tag_info     = &received;
        ASSERT_EQ(UCS_OK, pair.wait(ucp_tag_msg_recv_nbx(worker, buffer.data(), sizes[i],
                                                         messages[i], &param),
                                    &received));
        EXPECT_EQ(-1, differs(buffer.data(), sizes[i], i));
        EXPECT_TRUE(buffer.is_intact());
        EXPECT_EQ(0x100 + i, received.sender_tag);
        EXPECT_EQ(sizes[i], received.length);
    }
    for (void *request : requests) {
        EXPECT_EQ(UCS_OK, pair.wait(request));
    }
}

/* Who probes in a loop without progress waits for ever, as with UCX; who does so between two calls
 * of progress sees no message come amid them. */
TEST_P(tag, a_probe_makes_no_progress)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "what is sent to oneself is there at once";
    }
    pair pair(GetParam());
    ucp_worker_h worker = pair.receiver().handle();
    uint64_t value = 1, got = 0;
    ucp_tag_recv_info_t info;
    void *sent = pair.send(&value, sizeof(value), 1); /* now there is a connection */
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, sizeof(got), 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    pair.settle();

    sent = pair.send(&value, sizeof(value), 2);
    for (int i = 0; i < 100; ++i) {
        pair.sender().progress();
        ASSERT_EQ(nullptr, ucp_tag_probe_nb(worker, 2, ~0ull, i & 1, &info));
    }
    pair.progress_until([&]() { return ucp_tag_probe_nb(worker, 2, ~0ull, 0, &info) != nullptr; });
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, sizeof(got), 2)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

TEST_P(tag, a_probed_message_that_is_too_long)
{
    pair pair(GetParam());
    for (size_t length : {20ul, 200000ul}) {
        const bytes data = pattern(1, length);
        guarded buffer(length / 2);
        ucp_tag_recv_info_t info        = {};
        const ucp_request_param_t param = receive_param(nullptr);
        void *sent                      = pair.send(data.data(), length, 1);
        pair.settle();
        ucp_tag_message_h message = ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 1, &info);
        ASSERT_NE(nullptr, message);
        EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED,
                  pair.wait(ucp_tag_msg_recv_nbx(pair.receiver().handle(), buffer.data(),
                                                 buffer.size(), message, &param)));
        EXPECT_TRUE(buffer.is_intact());
        EXPECT_EQ(UCS_OK, pair.wait(sent));
    }
}

/* ---- cancellation ---- */

TEST_P(tag, cancel_of_a_receive_without_message)
{
    pair pair(GetParam());
    for (uint64_t mask : {~0ull, 0ull}) {
        uint8_t byte = 0;
        ending end;
        const ucp_request_param_t param = receive_param(&end);
        void *request = ucp_tag_recv_nbx(pair.receiver().handle(), &byte, 1, 4, mask, &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(request));
        ucp_request_cancel(pair.receiver().handle(), request);
        EXPECT_EQ(1, end.calls) << "the callback comes inside the cancel";
        EXPECT_EQ(UCS_ERR_CANCELED, end.status);
        EXPECT_EQ(request, end.request);

        /* It is really gone: a message goes to the next one. */
        uint8_t sent       = 77;
        void *send_request = pair.send(&sent, 1, 4);
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&byte, 1, 4)));
        EXPECT_EQ(UCS_OK, pair.wait(send_request));
        EXPECT_EQ(77, byte);
        EXPECT_EQ(1, end.calls);
    }
}

TEST_P(tag, cancel_of_what_has_met_its_message_does_nothing)
{
    pair pair(GetParam());
    constexpr size_t LENGTH = 3000000;
    const bytes data        = pattern(1, LENGTH);
    bytes buffer(LENGTH);
    ending received, sent;
    const ucp_request_param_t rparam = receive_param(&received);
    const ucp_request_param_t sparam = send_param(&sent);

    void *send_request = ucp_tag_send_nbx(pair.ep(), data.data(), LENGTH, 1, &sparam);
    ASSERT_TRUE(UCS_PTR_IS_PTR(send_request));
    pair.settle();
    void *request =
        ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), LENGTH, 1, ~0ull, &rparam);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_request_cancel(pair.receiver().handle(), request);
    ucp_request_cancel(pair.sender().handle(), send_request); /* no effect on sends, ever */
    EXPECT_EQ(0, received.calls);
    EXPECT_EQ(0, sent.calls);
    pair.progress_until([&]() { return (received.calls > 0) && (sent.calls > 0); });
    EXPECT_EQ(UCS_OK, received.status);
    EXPECT_EQ(UCS_OK, sent.status);
    EXPECT_EQ(data, buffer);
    EXPECT_EQ(1, received.calls);
    EXPECT_EQ(1, sent.calls);
}

TEST_P(tag, cancel_ignores_what_is_no_request)
{
    pair pair(GetParam());
    ucp_request_cancel(pair.receiver().handle(), UCS_STATUS_PTR(UCS_ERR_NO_MEMORY));
    ucp_request_cancel(pair.receiver().handle(), nullptr);

    /* and what is over */
    uint8_t byte                    = 1;
    const ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *sent                      = pair.send(&byte, 1, 1);
    void *request = ucp_tag_recv_nbx(pair.receiver().handle(), &byte, 1, 1, ~0ull, &param);
    pair.progress_until([&]() { return ucp_request_is_completed(request) != 0; });
    ucp_request_cancel(pair.receiver().handle(), request);
    EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
    ucp_request_free(request);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

} // namespace
