/* Halyard: tests of streams over every variant of transports and protocols: a stream's bytes come
 * in order and once, in pieces of any size; they wait for who has not made its endpoint yet; who
 * does not read holds the sender up; what is left ends with its endpoint.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <seed.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ucp_test;

namespace {

context_options stream_options()
{
    context_options options;
    options.features = UCP_FEATURE_STREAM | UCP_FEATURE_TAG;
    return options;
}

ucs_status_ptr_t send(ucp_ep_h ep, const void *data, size_t length, uint32_t more_mask = 0)
{
    const ucp_request_param_t param = send_param(nullptr, more_mask);
    return ucp_stream_send_nbx(ep, data, length, &param);
}

void on_bytes(void *request, ucs_status_t status, size_t length, void *user_data)
{
    static_cast<ending *>(user_data)->info.length = length;
    on_send(request, status, user_data);
}

/* A receive whose end is told to `end`, be it at once or later. */
void *receive(ucp_ep_h ep, void *buffer, size_t length, bool all, ending *end)
{
    ucp_request_param_t param = send_param(end, UCP_OP_ATTR_FIELD_FLAGS);
    size_t received           = ~size_t(0);
    param.cb.recv_stream      = on_bytes;
    param.flags               = all ? UCP_STREAM_RECV_FLAG_WAITALL : 0;
    void *ptr = ucp_stream_recv_nbx(ep, buffer, length, &received, &param);
    if (!UCS_PTR_IS_PTR(ptr)) {
        end->calls       = 1;
        end->status      = UCS_PTR_RAW_STATUS(ptr);
        end->info.length = received;
    }
    return ptr;
}

/* The endpoint on which the receiver reads. */
ucp_ep_h reader(pair &pair, const variant &variant)
{
    return variant.is_self ? pair.ep() : pair.ep_back();
}

class stream : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, stream, testing::ValuesIn(all_variants()), variant_name);

/* WAITALL gives exactly what was asked for, posted before or after the bytes come. */
TEST_P(stream, messages_of_all_sizes)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    for (size_t length : lengths(pair.ep(), 300000)) {
        for (bool posted : {true, false}) {
            const bytes data = pattern(length, length);
            guarded buffer(length);
            ending end;
            if (posted) {
                receive(ep, buffer.data(), length, true, &end);
            }
            const ucs_status_ptr_t sent = send(pair.ep(), data.data(), length);
            ASSERT_FALSE(UCS_PTR_IS_ERR(sent));
            if (!posted) {
                pair.progress();
                receive(ep, buffer.data(), length, true, &end);
            }
            pair.progress_until([&]() { return end.calls > 0; });
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(1, end.calls);
            ASSERT_EQ(UCS_OK, end.status);
            ASSERT_EQ(length, end.info.length);
            ASSERT_EQ(-1, differs(buffer.data(), length, length)) << length;
            ASSERT_TRUE(buffer.is_intact());
        }
    }
    expect_clean(pair);
}

/* Short messages go at once where several threads may share the worker, too. */
TEST(stream_short, goes_at_once)
{
    for (ucs_thread_mode_t mode : {UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_MULTI}) {
        pair pair({"mm", {{"UCX_TLS", "mm"}}, false, mode}, stream_options());
        const uint64_t words[] = {1, 2};
        uint64_t buffer[2]     = {};
        ending end;
        EXPECT_EQ(UCS_OK, pair.wait(send(pair.ep(), &words[0], sizeof(words[0])))); /* HELLO */
        const uint64_t before = counted(pair.sender(), "sent_at_once");
        EXPECT_EQ(nullptr, send(pair.ep(), &words[1], sizeof(words[1])));
        EXPECT_EQ(before + 1, counted(pair.sender(), "sent_at_once"));
        (void)receive(pair.ep_back(), buffer, sizeof(buffer), true, &end);
        pair.progress_until([&]() { return end.calls > 0; });
        EXPECT_EQ(0, memcmp(words, buffer, sizeof(buffer)));
    }
}

/* A receive that may not wait takes nothing unless it ends at once. */
TEST_P(stream, receives_that_may_not_wait)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep         = reader(pair, GetParam());
    const bytes data          = pattern(3, 12);
    bytes buffer(12);
    ucp_request_param_t param = {};
    size_t length             = 0;
    param.op_attr_mask        = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags               = UCP_STREAM_RECV_FLAG_WAITALL;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              UCS_PTR_RAW_STATUS(ucp_stream_recv_nbx(ep, buffer.data(), 12, &length, &param)));
    const ucs_status_ptr_t first = send(pair.ep(), data.data(), 8);
    pair.progress();
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              UCS_PTR_RAW_STATUS(ucp_stream_recv_nbx(ep, buffer.data(), 12, &length, &param)));
    const ucs_status_ptr_t second = send(pair.ep(), data.data() + 8, 4);
    pair.progress_until([&]() { /* announced bytes come too */
        return ucp_stream_recv_nbx(ep, buffer.data(), 12, &length, &param) == nullptr;
    });
    EXPECT_EQ(12u, length);
    EXPECT_EQ(data, buffer);
    EXPECT_EQ(UCS_OK, pair.wait(first));
    EXPECT_EQ(UCS_OK, pair.wait(second));
    expect_clean(pair);
}

/* Random cuts on both sides: what is read is what was written, by receives with and without
 * WAITALL, several posted at once, by pieces in place, of contiguous and scattered memory. */
TEST_P(stream, random_traffic)
{
    constexpr size_t TOTAL = 2500000;
    seeded_random random(901);
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    const bytes data  = pattern(7, TOTAL);
    bytes out(TOTAL);
    size_t written = 0, read = 0;
    std::vector<ucs_status_ptr_t> sends;
    std::deque<std::unique_ptr<ucp_dt_iov_t[]>> iovs;

    struct reading {
        ending end;
        size_t length;
        bytes buffer;
        std::unique_ptr<ucp_dt_iov_t[]> iov;
        bool all;
    };
    std::deque<std::unique_ptr<reading>> readings;
    const auto size = [&]() {
        return random.one_in(6) ? random.below(120000)
                                : (random.one_in(3) ? random.below(9000) : random.below(100));
    };
    const auto harvest = [&]() {
        while (!readings.empty() && (readings.front()->end.calls > 0)) {
            const reading &done = *readings.front();
            ASSERT_EQ(UCS_OK, done.end.status);
            ASSERT_LE(done.end.info.length, done.length);
            ASSERT_LE(read + done.end.info.length, TOTAL);
            if (done.all) {
                ASSERT_EQ(done.length, done.end.info.length);
            } else {
                ASSERT_TRUE((done.end.info.length > 0) || (done.length == 0));
            }
            std::copy_n(done.buffer.begin(), done.end.info.length, out.begin() + read);
            read += done.end.info.length;
            readings.pop_front();
        }
    };

    for (int round = 0; (read < TOTAL) && (round < 2000000); ++round) {
        if ((written < TOTAL) && (sends.size() < 3000) && random.one_in(2)) {
            const size_t length = std::min(TOTAL - written, size());
            ucp_request_param_t param = send_param(nullptr);
            const void *buffer        = data.data() + written;
            size_t count              = length;
            if (random.one_in(5)) {
                iovs.push_back(std::make_unique<ucp_dt_iov_t[]>(2));
                auto *start        = const_cast<uint8_t *>(data.data()) + written;
                iovs.back()[0]     = {start, length / 3};
                iovs.back()[1]     = {start + (length / 3), length - (length / 3)};
                param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
                param.datatype     = ucp_dt_make_iov();
                buffer             = iovs.back().get();
                count              = 2;
            }
            sends.push_back(ucp_stream_send_nbx(pair.ep(), buffer, count, &param));
            ASSERT_FALSE(UCS_PTR_IS_ERR(sends.back()));
            written += length;
        }
        if ((readings.size() < 4) && random.one_in(2)) {
            const bool in_place = readings.empty() && random.one_in(3);
            if (in_place) {
                size_t length = 0;
                void *piece   = ucp_stream_recv_data_nb(ep, &length);
                ASSERT_FALSE(UCS_PTR_IS_ERR(piece));
                if (piece != nullptr) {
                    ASSERT_LE(read + length, TOTAL);
                    memcpy(out.data() + read, piece, length);
                    read += length;
                    ucp_stream_data_release(ep, piece);
                }
            } else {
                auto next        = std::make_unique<reading>();
                size_t committed = read;
                for (const auto &each : readings) {
                    committed += each->length;
                }
                next->all    = random.one_in(2);
                next->length = std::min(size(), TOTAL - std::min(TOTAL, committed));
                next->buffer.resize(next->length);
                ucp_request_param_t param = send_param(&next->end, UCP_OP_ATTR_FIELD_FLAGS);
                size_t received           = 0;
                param.cb.recv_stream      = on_bytes;
                param.flags               = next->all ? UCP_STREAM_RECV_FLAG_WAITALL : 0;
                void *buffer              = next->buffer.data();
                size_t count              = next->length;
                if (random.one_in(4)) {
                    next->iov           = std::make_unique<ucp_dt_iov_t[]>(2);
                    next->iov[0]        = {next->buffer.data(), next->length / 2};
                    next->iov[1]        = {next->buffer.data() + (next->length / 2),
                                           next->length - (next->length / 2)};
                    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
                    param.datatype      = ucp_dt_make_iov();
                    buffer              = next->iov.get();
                    count               = 2;
                }
                void *ptr = ucp_stream_recv_nbx(ep, buffer, count, &received, &param);
                if (!UCS_PTR_IS_PTR(ptr)) {
                    next->end.calls       = 1;
                    next->end.status      = UCS_PTR_RAW_STATUS(ptr);
                    next->end.info.length = received;
                }
                readings.push_back(std::move(next));
            }
        }
        if (random.one_in(2)) {
            pair.progress();
        }
        ASSERT_NO_FATAL_FAILURE(harvest());
    }
    ASSERT_EQ(TOTAL, read);
    ASSERT_EQ(-1, differs(out.data(), TOTAL, 7));
    for (ucs_status_ptr_t request : sends) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
    /* receives that found the end of what is sent wait still */
    for (const auto &each : readings) {
        ASSERT_EQ(0u, each->end.calls * each->length);
    }
}

/* Without WAITALL a receive ends with whole elements only. */
TEST_P(stream, elements_are_not_cut)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    const bytes data  = pattern(1, 20);
    bytes buffer(80);
    ending end;
    ucp_request_param_t param = send_param(&end, UCP_OP_ATTR_FIELD_DATATYPE);
    size_t received           = 0;
    param.cb.recv_stream      = on_bytes;
    param.datatype            = ucp_dt_make_contig(8);
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(ep, buffer.data(), 10, &received, &param)));
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), data.data(), 5)));
    pair.settle();
    EXPECT_EQ(0, end.calls);
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), data.data() + 5, 11)));
    pair.progress_until([&]() { return end.calls == 1; });
    EXPECT_EQ(UCS_OK, end.status);
    EXPECT_EQ(16u, end.info.length);
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.begin() + 16, data.begin()));
    pair.settle();
}

/* It ends with those that are there; what there is of the next is left to the next receive, however
 * it has come. */
TEST_P(stream, a_part_of_an_element_is_left)
{
    constexpr size_t ELEMENT = 8, REST = 3;
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    for (size_t whole : {size_t(2), size_t(700), size_t(40000)}) {
        for (bool is_posted : {false, true}) {
            SCOPED_TRACE(testing::Message() << whole << (is_posted ? ", posted" : ""));
            const bytes data = pattern(whole, (whole + 1) * ELEMENT);
            bytes buffer(data.size() + ELEMENT);
            size_t received = 0, at = 0;
            ending end;
            ucp_request_param_t param = send_param(&end, UCP_OP_ATTR_FIELD_DATATYPE);
            param.cb.recv_stream      = on_bytes;
            param.datatype            = ucp_dt_make_contig(ELEMENT);
            const auto read           = [&] {
                end = {};
                void *r = ucp_stream_recv_nbx(ep, &buffer[at], (buffer.size() - at) / ELEMENT,
                                              &received, &param);
                ASSERT_FALSE(UCS_PTR_IS_ERR(r));
                end.calls += (r == nullptr);
            };
            if (is_posted) {
                read();
            }
            const ucs_status_ptr_t sent = send(pair.ep(), data.data(), (whole * ELEMENT) + REST);
            if (!is_posted) {
                pair.settle();
                read();
            }
            for (;;) {
                pair.progress_until([&] { return end.calls > 0; });
                at += (end.info.length > 0) ? end.info.length : received;
                if (at == whole * ELEMENT) {
                    break;
                }
                ASSERT_EQ(0u, at % ELEMENT);
                ASSERT_LT(at, whole * ELEMENT);
                read();
            }
            read();
            pair.settle();
            EXPECT_EQ(0, end.calls);
            const ucs_status_ptr_t rest = send(pair.ep(), &data[at + REST], ELEMENT - REST);
            pair.progress_until([&] { return end.calls > 0; });
            EXPECT_EQ(ELEMENT, end.info.length);
            buffer.resize(data.size());
            EXPECT_EQ(data, buffer);
            EXPECT_EQ(UCS_OK, pair.wait(sent));
            EXPECT_EQ(UCS_OK, pair.wait(rest));
        }
    }
    expect_clean(pair);
}

/* The older calls, and the test of a receive's request. */
TEST_P(stream, older_calls)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    const bytes data  = pattern(1, 100);
    bytes buffer(100);
    size_t length      = 0;
    const auto ignored = [](void *, ucs_status_t, size_t) {};
    void *request      = ucp_stream_recv_nb(ep, buffer.data(), 100, ucp_dt_make_contig(1), ignored,
                                            &length, UCP_STREAM_RECV_FLAG_WAITALL);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    EXPECT_EQ(UCS_INPROGRESS, ucp_stream_recv_request_test(request, &length));
    ASSERT_EQ(UCS_OK, pair.wait(ucp_stream_send_nb(pair.ep(), data.data(), 100,
                                                   ucp_dt_make_contig(1),
                                                   [](void *, ucs_status_t) {}, 0)));
    pair.progress_until([&]() { return ucp_request_is_completed(request) != 0; });
    EXPECT_EQ(UCS_OK, ucp_stream_recv_request_test(request, &length));
    EXPECT_EQ(100u, length);
    EXPECT_EQ(data, buffer);
    ucp_request_free(request);
    expect_clean(pair);
}

/* Endpoints do not share streams: the n-th of one side pairs with the n-th of the other, and bytes
 * wait for an endpoint that is not there yet. */
TEST_P(stream, each_endpoint_has_its_own)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h second = pair.sender().connect(pair.receiver());
    const bytes first_data = pattern(1, 50), second_data = pattern(2, 60);
    const ucs_status_ptr_t sends[] = {send(second, second_data.data(), 60),
                                      send(pair.ep(), first_data.data(), 50)};
    pair.settle();
    ucp_ep_h readers[2] = {pair.ep(), second};
    if (!GetParam().is_self) {
        readers[0] = pair.ep_back();
        readers[1] = pair.receiver().connect(pair.sender());
    }
    bytes first(50), secondly(60);
    ending first_end, second_end;
    receive(readers[0], first.data(), 50, true, &first_end);
    receive(readers[1], secondly.data(), 60, true, &second_end);
    pair.progress_until([&]() { return (first_end.calls > 0) && (second_end.calls > 0); });
    EXPECT_EQ(first_data, first);
    EXPECT_EQ(second_data, secondly);
    for (ucs_status_ptr_t request : sends) {
        EXPECT_EQ(UCS_OK, pair.wait(request));
    }
    expect_clean(pair);
}

/* The endpoints that have something to read: told of once, until more comes or some is read. */
TEST_P(stream, poll)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    ucp_worker_h worker = pair.receiver().handle();
    ucp_stream_poll_ep_t ready[4];
    EXPECT_EQ(0, ucp_stream_worker_poll(worker, ready, 4, 0));
    const bytes data            = pattern(1, 10);
    const ucs_status_ptr_t sent = send(pair.ep(), data.data(), 10);
    pair.progress_until([&]() { return ucp_stream_worker_poll(worker, ready, 4, 0) > 0; });
    EXPECT_EQ(ep, ready[0].ep);
    EXPECT_EQ(0, ucp_stream_worker_poll(worker, ready, 4, 0));
    const ucs_status_ptr_t more = send(pair.ep(), data.data(), 10);
    pair.progress_until([&]() { return ucp_stream_worker_poll(worker, ready, 4, 0) > 0; });
    EXPECT_EQ(ep, ready[0].ep);
    EXPECT_EQ(0, ucp_stream_worker_poll(worker, ready, 4, 0));

    bytes buffer(15);
    ending end, rest;
    receive(ep, buffer.data(), 15, true, &end);
    pair.progress_until([&]() { return end.calls > 0; });
    EXPECT_EQ(0, ucp_stream_worker_poll(worker, ready, 0, 0));
    EXPECT_EQ(1, ucp_stream_worker_poll(worker, ready, 4, 0));
    EXPECT_EQ(ep, ready[0].ep);
    receive(ep, buffer.data(), 5, true, &rest);
    pair.progress_until([&]() { return rest.calls > 0; });
    EXPECT_EQ(0, ucp_stream_worker_poll(worker, ready, 4, 0));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(UCS_OK, pair.wait(more));
    expect_clean(pair);
}

/* A piece that was partly read is given in place from where the reading stopped. */
TEST_P(stream, rest_of_a_piece)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep           = reader(pair, GetParam());
    const bytes data            = pattern(1, 100);
    const ucs_status_ptr_t sent = send(pair.ep(), data.data(), 100);
    bytes buffer(30);
    ending end;
    receive(ep, buffer.data(), 30, true, &end);
    pair.progress_until([&]() { return end.calls > 0; });
    size_t length = 0;
    void *piece   = nullptr;
    pair.progress_until([&]() {
        piece = ucp_stream_recv_data_nb(ep, &length);
        return piece != nullptr;
    });
    ASSERT_FALSE(UCS_PTR_IS_ERR(piece));
    ASSERT_EQ(70u, length);
    EXPECT_EQ(0, memcmp(piece, data.data() + 30, 70));
    ucp_stream_data_release(ep, piece);
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(nullptr, ucp_stream_recv_data_nb(ep, &length));
    expect_clean(pair);
}

/* Who does not read is not filled without bound: sends beyond a budget stay with the sender. */
TEST_P(stream, back_pressure)
{
    constexpr size_t LENGTH = 200, COUNT = 20000; /* four million bytes */
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    const bytes data  = pattern(3, LENGTH);
    std::vector<ucs_status_ptr_t> waiting;
    for (size_t i = 0; i < COUNT; ++i) {
        const ucs_status_ptr_t ptr = send(pair.ep(), data.data(), LENGTH);
        ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
        if (UCS_PTR_IS_PTR(ptr)) {
            waiting.push_back(ptr);
        }
        if (i % 16 == 0) {
            pair.progress();
        }
    }
    pair.settle();
    const size_t ended = std::count_if(waiting.begin(), waiting.end(), [](void *request) {
        return ucp_request_is_completed(request) != 0;
    });
    /* what the receiver has: what has ended at the sender */
    EXPECT_LE((COUNT - waiting.size() + ended) * LENGTH, 600000u);
    bytes buffer(LENGTH);
    for (size_t i = 0; i < COUNT; ++i) {
        ending end;
        receive(ep, buffer.data(), LENGTH, true, &end);
        pair.progress_until([&]() { return end.calls > 0; });
        ASSERT_EQ(UCS_OK, end.status);
        ASSERT_EQ(data, buffer) << i;
    }
    for (ucs_status_ptr_t request : waiting) {
        ASSERT_EQ(UCS_OK, pair.wait(request));
    }
    expect_clean(pair);
}

/* Nothing is announced to who reads, in whatever way: it says so, alone or with what it sends. */
TEST(stream_short, who_reads_is_not_announced_to)
{
    constexpr size_t LENGTH = 1000, COUNT = 4000; /* eight times the budget */
    enum { RECEIVED, IN_PIECES, SHOWN, ANSWERED, WAYS };
    const bytes data = pattern(1, LENGTH);
    for (int way = 0; way < WAYS; ++way) {
        pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE},
                  stream_options());
        const size_t piece = (way == IN_PIECES) ? 300 : LENGTH;
        for (size_t i = 0; i < COUNT; ++i) {
            const ucs_status_ptr_t sent = send(pair.ep(), data.data(), LENGTH);
            bytes buffer(LENGTH);
            size_t length = 0;
            void *shown   = nullptr;
            for (size_t done = 0; (way != SHOWN) && (done < LENGTH); done += length) {
                ending end;
                length = std::min(piece, LENGTH - done);
                receive(pair.ep_back(), &buffer[done], length, true, &end);
                pair.progress_until([&]() { return end.calls > 0; });
                ASSERT_EQ(UCS_OK, end.status);
            }
            if (way == SHOWN) {
                pair.progress_until([&]() {
                    shown = ucp_stream_recv_data_nb(pair.ep_back(), &length);
                    return shown != nullptr;
                });
                ASSERT_EQ(LENGTH, length);
                memcpy(buffer.data(), shown, LENGTH);
                ucp_stream_data_release(pair.ep_back(), shown);
            } else if (way == ANSWERED) {
                ending end;
                const ucs_status_ptr_t answer = send(pair.ep_back(), data.data(), LENGTH);
                receive(pair.ep(), buffer.data(), LENGTH, true, &end);
                pair.progress_until([&]() { return end.calls > 0; });
                ASSERT_EQ(UCS_OK, pair.wait(answer));
            }
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(data, buffer) << way << ", message " << i;
        }
        EXPECT_EQ(0u, counted(pair.sender(), "announced")) << way;
        EXPECT_EQ(0u, counted(pair.receiver(), "announced")) << way;
    }
}

/* Nor where only the sender does not hear what is read: what is more waits for its progress. */
TEST(stream_short, who_does_not_look_announces_nothing)
{
    constexpr size_t LENGTH = 1000, COUNT = 1000; /* twice the budget */
    pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE}, stream_options());
    const bytes data = pattern(1, LENGTH);
    std::vector<ucs_status_ptr_t> sent;
    std::vector<bytes> buffers(COUNT, bytes(LENGTH));
    std::vector<ending> ends(COUNT);
    receive(pair.ep_back(), buffers[0].data(), LENGTH, true, &ends[0]);
    ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), data.data(), LENGTH)));
    pair.progress_until([&]() { return ends[0].calls > 0; });
    for (size_t i = 1; i < COUNT; ++i) {
        sent.push_back(send(pair.ep(), data.data(), LENGTH));
        receive(pair.ep_back(), buffers[i].data(), LENGTH, true, &ends[i]);
        ucp_worker_progress(pair.receiver().handle());
    }
    for (ucs_status_ptr_t ptr : sent) {
        ASSERT_EQ(UCS_OK, pair.wait(ptr));
    }
    pair.progress_until([&]() { return ends.back().calls > 0; });
    for (size_t i = 0; i < COUNT; ++i) {
        ASSERT_EQ(data, buffers[i]) << i;
    }
    EXPECT_EQ(0u, counted(pair.sender(), "announced"));
}

/* Several of up to 16 KiB go whole, whatever one alone would do. */
TEST(stream_short, windows_go_whole)
{
    for (const char *bandwidth : {"100MBs", "100000MBs"}) {
        for (size_t length : {6000ul, 16384ul, 32768ul}) {
            pair pair({"mm", {{"UCX_TLS", "mm,cma"}, {"UCX_MM_BW", bandwidth}}, false,
                       UCS_THREAD_MODE_SINGLE}, stream_options());
            constexpr size_t COUNT = 10;
            const bytes data       = pattern(2, length);
            std::vector<ucs_status_ptr_t> sent;
            std::vector<bytes> buffers(COUNT, bytes(length));
            std::vector<ending> ends(COUNT);
            ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), data.data(), 0))); /* connects */
            pair.settle();
            for (size_t i = 0; i < COUNT; ++i) {
                receive(pair.ep_back(), buffers[i].data(), length, true, &ends[i]);
                sent.push_back(send(pair.ep(), data.data(), length));
            }
            for (ucs_status_ptr_t ptr : sent) {
                ASSERT_EQ(UCS_OK, pair.wait(ptr));
            }
            pair.progress_until([&]() { return ends.back().calls > 0; });
            for (size_t i = 0; i < COUNT; ++i) {
                ASSERT_EQ(data, buffers[i]) << i;
            }
            EXPECT_LE(counted(pair.sender(), "announced"), (length > 16384) ? COUNT : 1u)
                << length << " bytes, " << bandwidth;
        }
    }
}

/* Messages without bytes use up nothing. */
TEST(stream_short, empty_messages_are_not_counted)
{
    constexpr size_t LENGTH = 1000, COUNT = 20000;
    pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE}, stream_options());
    const bytes data = pattern(1, LENGTH);
    bytes buffer(LENGTH);
    ending end;
    for (size_t i = 0; i < COUNT; ++i) {
        ASSERT_EQ(UCS_OK, pair.wait(send(pair.ep(), nullptr, 0)));
    }
    receive(pair.ep_back(), buffer.data(), LENGTH, true, &end);
    const ucs_status_ptr_t sent = send(pair.ep(), data.data(), LENGTH);
    pair.progress_until([&]() { return end.calls > 0; });
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(data, buffer);
    EXPECT_EQ(0u, counted(pair.sender(), "announced"));
}

/* ---- ends ---- */

/* Closing ends posted receives and drops what was not read; the sender of what was announced is
 * told. */
TEST_P(stream, closed_with_unread_bytes)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one endpoint on both ends";
    }
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = pair.receiver().connect(pair.sender());
    const bytes data  = pattern(1, 200000);
    std::vector<ucs_status_ptr_t> sends;
    for (size_t length : {100ul, 200000ul, 100ul}) {
        sends.push_back(send(pair.ep(), data.data(), length));
    }
    pair.settle();
    bytes buffer(50);
    ending some;
    receive(ep, buffer.data(), 50, true, &some);
    pair.progress_until([&]() { return some.calls == 1; });
    pair.receiver().forget(ep);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH)));
    for (ucs_status_ptr_t request : sends) {
        const ucs_status_t status = pair.wait(request);
        EXPECT_TRUE((status == UCS_OK) || (status == UCS_ERR_CONNECTION_RESET))
            << ucs_status_string(status);
    }
    /* more is dropped, or told of */
    const ucs_status_t late = pair.wait(send(pair.ep(), data.data(), 200000));
    EXPECT_TRUE((late == UCS_ERR_CONNECTION_RESET) || (late == UCS_OK)) << ucs_status_string(late);
    expect_clean(pair);
}

TEST_P(stream, closed_with_posted_receives)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = pair.receiver().connect(pair.sender());
    bytes buffer(500);
    ending ends[3];
    for (ending &end : ends) {
        ASSERT_TRUE(UCS_PTR_IS_PTR(receive(ep, buffer.data(), 500, true, &end)));
    }
    ends[0].free_request = false;
    pair.receiver().forget(ep);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH)));
    for (const ending &end : ends) {
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(UCS_ERR_CANCELED, end.status);
    }
    ucp_request_free(ends[0].request);
    expect_clean(pair);
}

TEST_P(stream, cancelled_receives)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    bytes buffer(500);
    ending end;
    void *request = receive(ep, buffer.data(), 500, false, &end);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_request_cancel(pair.receiver().handle(), request);
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, end.status);
    /* the bytes go to the next */
    const bytes data            = pattern(1, 9);
    const ucs_status_ptr_t sent = send(pair.ep(), data.data(), 9);
    ending next;
    receive(ep, buffer.data(), 9, true, &next);
    pair.progress_until([&]() { return next.calls == 1; });
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(-1, differs(buffer.data(), 9, 1));
    expect_clean(pair);
}

/* The peer goes away: what has come can be read; what waits for more ends with an error. */
TEST_P(stream, the_peer_leaves)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = pair.ep_back();
    const bytes data  = pattern(1, 100);
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(pair.ep(), data.data(), 40)));
    bytes buffer(100);
    ending first, second;
    receive(ep, buffer.data(), 20, true, &first);
    pair.progress_until([&]() { return first.calls == 1; });
    receive(ep, buffer.data() + 20, 80, true, &second);
    ASSERT_EQ(UCS_OK, first.status);
    pair.settle();
    pair.sender().destroy();
    pair.progress_until([&]() { return second.calls == 1; });
    EXPECT_TRUE(UCS_STATUS_IS_ERR(second.status));
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.begin() + 40, data.begin()));
    take_log();
}

/* What has been sent comes before the end, also where the own connection is seen to end first. */
TEST(stream_late, the_peer_leaves)
{
    const variant late = {"late", {{"UCX_TLS", "delay:mm"}, {"UCX_HOOK_DELAY", "300"}}, false,
                          UCS_THREAD_MODE_SINGLE};
    pair pair(late, stream_options());
    const ucp_ep_h ep = pair.ep_back();
    const bytes data  = pattern(1, 100);
    bytes buffer(100);
    ending first, rest;
    log_catcher log;
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(ep, data.data(), 1)));
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(pair.ep(), data.data(), 20)));
    receive(ep, buffer.data(), 20, true, &first);
    pair.progress_until([&]() { return first.calls == 1; });
    pair.settle();
    receive(ep, buffer.data() + 20, 80, true, &rest);
    ASSERT_EQ(nullptr, send(pair.ep(), data.data() + 20, 80));
    pair.sender().destroy();
    pair.progress_until([&]() { return rest.calls == 1; });
    EXPECT_EQ(UCS_OK, rest.status) << ucs_status_string(rest.status);
    EXPECT_EQ(data, buffer);
}

/* What waits in a forked child for peers of its parent's ends, as they say nothing to it. */
TEST(stream_fork, inherited_receives_end)
{
    const variant way = {"way",
                         {{"UCX_TLS", "mm"}, {"UCX_RNDV_THRESH", "1000"},
                          {"UCX_RNDV_SCHEME", "am"}},
                         false, UCS_THREAD_MODE_SINGLE};
    const ucp_request_param_t none = {};
    pair pair(way, stream_options());
    const ucp_ep_h ep = pair.ep_back();
    const bytes data  = pattern(1, 4 << 20);
    bytes buffer(20), message(data.size());
    ending first, before, after;
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(ep, data.data(), 1)));
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(pair.ep(), data.data(), 20)));
    receive(ep, buffer.data(), 20, true, &first);
    pair.progress_until([&]() { return first.calls == 1; });
    pair.settle();
    void *posted = receive(ep, buffer.data(), 20, true, &before);
    void *tagged = ucp_tag_recv_nbx(pair.receiver().handle(), message.data(), message.size(), 1,
                                    ~0ull, &none);
    void *sent   = ucp_tag_send_nbx(pair.ep(), data.data(), data.size(), 1, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(posted) && UCS_PTR_IS_PTR(tagged) && UCS_PTR_IS_PTR(sent));
    for (unsigned i = 0; i < 1000; ++i) { /* it is asked for, and not answered yet */
        pair.receiver().progress();
    }
    const pid_t pid = fork();
    if (pid == 0) {
        size_t length;
        for (unsigned i = 0; i < 1000; ++i) {
            pair.receiver().progress();
        }
        receive(ep, buffer.data(), 20, true, &after);
        _exit(((before.calls == 1) && UCS_STATUS_IS_ERR(before.status) &&
               UCS_STATUS_IS_ERR(ucp_request_check_status(tagged)) && (after.calls == 1) &&
               UCS_STATUS_IS_ERR(after.status) &&
               UCS_PTR_IS_ERR(ucp_stream_recv_data_nb(ep, &length))) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(UCS_OK, pair.wait(tagged));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(data, message);
    ucp_request_cancel(pair.receiver().handle(), posted);
    EXPECT_EQ(1, before.calls);
}

/* A receive waits for its peer, also where neither side has ever said anything: it hears of its
 * end. */
TEST_P(stream, the_peer_leaves_without_a_word)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    pair pair(GetParam(), stream_options());
    unsigned handled      = 0;
    const auto on_failure = [](void *arg, ucp_ep_h, ucs_status_t) {
        ++*static_cast<unsigned *>(arg);
    };
    const ucp_ep_h ep = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER,
                                              on_failure, &handled);
    bytes buffer(8);
    ending end;
    receive(ep, buffer.data(), buffer.size(), true, &end);
    pair.settle();
    EXPECT_EQ(0u, end.calls);
    pair.receiver().destroy();
    pair.progress_until([&] { return (end.calls > 0) && (handled > 0); });
    EXPECT_EQ(1u, end.calls);
    EXPECT_TRUE(UCS_STATUS_IS_ERR(end.status)) << ucs_status_string(end.status);
    EXPECT_EQ(1u, handled);
    take_log();
}

/* Ends the connections of shared memory of this process, as a death does. */
void cut_connections()
{
    for (int fd = 0; fd < 1024; ++fd) {
        int type = 0;
        sockaddr_storage remote;
        socklen_t type_length = sizeof(type), length = sizeof(remote);
        if ((getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) == 0) &&
            (type == SOCK_SEQPACKET) &&
            (getpeername(fd, reinterpret_cast<sockaddr *>(&remote), &length) == 0)) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

/* After a connection has broken, and both sides have seen that, new endpoints have new streams:
 * that of a reader, who never says anything, is not ended by the writer's return. */
TEST(stream_again, a_reader_whose_peer_comes_back)
{
    const environment over(settings{{"UCX_TLS", "mm,cma"}});
    log_catcher log;
    const context ctx(stream_options());
    worker reads(ctx), writes(ctx);
    unsigned failed       = 0;
    const auto on_failure = [](void *arg, ucp_ep_h, ucs_status_t) {
        ++*static_cast<unsigned *>(arg);
    };
    const auto until = [&](const std::function<bool()> &condition) {
        for (unsigned i = 0; (i < 1000000) && !condition(); ++i) {
            reads.progress();
            writes.progress();
        }
        ASSERT_TRUE(condition());
    };
    bytes buffer(8);
    std::vector<ucp_ep_h> former;
    for (uint8_t round = 0; (round < 3) && !HasFailure(); ++round) {
        const ucp_ep_h reader = reads.connect(writes);
        const ucp_ep_h writer = writes.connect(reads, UCP_ERR_HANDLING_MODE_PEER, on_failure,
                                               &failed);
        ending first, rest;
        const ucs_status_ptr_t sent = send(writer, &round, 1);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sent));
        for (unsigned i = 0; i < 1000; ++i) { /* the peer is there again */
            reads.progress();
            writes.progress();
        }
        receive(reader, buffer.data(), 1, true, &first);
        until([&]() { return first.calls == 1; });
        if (sent != nullptr) {
            ucp_request_free(sent);
        }
        EXPECT_EQ(UCS_OK, first.status) << ucs_status_string(first.status);
        EXPECT_EQ(round, buffer[0]);
        receive(reader, buffer.data(), 1, true, &rest);
        failed = 0;
        cut_connections();
        until([&]() { return (failed == 1) && (rest.calls == 1); });
        EXPECT_TRUE(UCS_STATUS_IS_ERR(rest.status));
        writes.forget(writer);
        EXPECT_EQ(nullptr, ucp_ep_close_nb(writer, UCP_EP_CLOSE_MODE_FORCE));
        former.push_back(reader);
    }
    /* What is sent on an endpoint of a former connection ends, and a close waits for nothing. */
    const ucp_ep_h writer = writes.connect(reads);
    const uint8_t word    = 9;
    const ucs_status_ptr_t said = send(writer, &word, 1);
    ASSERT_FALSE(UCS_PTR_IS_ERR(said));
    const bytes data(4 << 20, 1);
    for (const ucp_ep_h ep : former) {
        const ucs_status_ptr_t sent = send(ep, data.data(), data.size());
        until([&]() {
            return !UCS_PTR_IS_PTR(sent) || (ucp_request_check_status(sent) != UCS_INPROGRESS);
        });
        reads.forget(ep);
        const ucs_status_ptr_t closed = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH);
        until([&]() {
            return !UCS_PTR_IS_PTR(closed) ||
                   (ucp_request_check_status(closed) != UCS_INPROGRESS);
        });
        for (const ucs_status_ptr_t ptr : {sent, closed}) {
            if (UCS_PTR_IS_PTR(ptr)) {
                ucp_request_free(ptr);
            }
        }
    }
    if (said != nullptr) {
        ucp_request_free(said);
    }
    log.take();
}

/* A connection to the peer that breaks lets come what the peer sends before it notices; then a
 * receive ends that has got a part of its bytes, be it posted before or after that, and nothing is
 * read behind the gap. */
void read_behind_a_gap(bool is_posted)
{
    log_catcher log;
    const environment over(settings{{"UCX_TLS", "fault:mm"}, {"UCX_HOOK_NO_RESOURCE", "0"}});
    const context writing(stream_options());
    const environment death(settings{{"UCX_HOOK_DEATH", "4"}});
    const context reading(stream_options());
    worker writes(writing), reads(reading);
    unsigned failed       = 0;
    const auto on_failure = [](void *arg, ucp_ep_h, ucs_status_t) {
        ++*static_cast<unsigned *>(arg);
    };
    const ucp_ep_h writer = writes.connect(reads);
    const ucp_ep_h reader = reads.connect(writes, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failed);
    const bytes data      = pattern(1, 100);
    bytes buffer(200);
    ending part, rest;

    if (is_posted) {
        receive(reader, buffer.data(), buffer.size(), true, &part);
    }
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(writer, data.data(), 40)));
    for (unsigned i = 0; i < 1000; ++i) {
        writes.progress();
        reads.progress();
    }
    ASSERT_EQ(0, part.calls);
    ASSERT_EQ(0u, failed);
    for (unsigned i = 0; i < 10; ++i) { /* until its own endpoint dies */
        EXPECT_FALSE(UCS_PTR_IS_PTR(send(reader, data.data(), 8)));
    }
    for (unsigned i = 0; (i < 1000) && (failed == 0); ++i) {
        reads.progress();
    }
    if (!is_posted) {
        receive(reader, buffer.data(), buffer.size(), true, &part);
    }
    ASSERT_EQ(0, part.calls);
    EXPECT_EQ(nullptr, send(writer, data.data() + 40, 60)); /* it has heard nothing yet */
    for (unsigned i = 0; (i < 100000) && (part.calls == 0); ++i) {
        writes.progress();
        reads.progress();
    }
    ASSERT_EQ(1, part.calls);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, part.status);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), buffer.begin()));
    EXPECT_TRUE(UCS_PTR_IS_ERR(receive(reader, buffer.data(), 8, false, &rest)));
    EXPECT_EQ(1u, failed);
    log.take();
}

TEST(stream_gap, nothing_is_read_behind_it)
{
    read_behind_a_gap(true);
    read_behind_a_gap(false);
}

/* Endpoints to their own worker: with NO_LOOPBACK each one pairs with the next one that is made so,
 * else with itself. */
TEST(stream_apart, own_endpoints_pair)
{
    const environment over(settings{{"UCX_TLS", "self,mm,cma"}});
    const context ctx(stream_options());
    const worker own(ctx);
    const bytes address = own.address();
    std::vector<ucp_ep_h> eps;
    const auto make = [&](unsigned flags) {
        ucp_ep_params_t params = {};
        params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_FLAGS;
        params.address         = reinterpret_cast<const ucp_address_t *>(address.data());
        params.flags           = flags;
        ucp_ep_h ep            = nullptr;
        EXPECT_EQ(UCS_OK, ucp_ep_create(own.handle(), &params, &ep));
        eps.push_back(ep);
        return ep;
    };
    const auto passes = [&](ucp_ep_h from, ucp_ep_h to, uint8_t value) {
        ending end;
        uint8_t got = 0;
        EXPECT_FALSE(UCS_PTR_IS_ERR(send(from, &value, 1)));
        receive(to, &got, 1, true, &end);
        for (unsigned i = 0; (i < 1000) && (end.calls == 0); ++i) {
            ucp_worker_progress(own.handle());
        }
        EXPECT_EQ(1, end.calls);
        EXPECT_EQ(value, got);
    };
    const ucp_ep_h plain = make(0), first = make(UCP_EP_PARAMS_FLAGS_NO_LOOPBACK);
    const uint8_t early  = 7;
    EXPECT_FALSE(UCS_PTR_IS_ERR(send(first, &early, 1))); /* kept for who is not there yet */
    ucp_worker_progress(own.handle());
    const ucp_ep_h second = make(UCP_EP_PARAMS_FLAGS_NO_LOOPBACK), more = make(0);
    const ucp_ep_h third  = make(UCP_EP_PARAMS_FLAGS_NO_LOOPBACK);
    const ucp_ep_h fourth = make(UCP_EP_PARAMS_FLAGS_NO_LOOPBACK);
    ending end;
    uint8_t got = 0;
    receive(second, &got, 1, true, &end);
    EXPECT_EQ(1, end.calls);
    EXPECT_EQ(early, got);
    passes(first, second, 1);
    passes(second, first, 2);
    passes(third, fourth, 3);
    passes(fourth, third, 4);
    passes(plain, plain, 5);
    passes(more, more, 6);
    for (const ucp_ep_h ep : eps) {
        const ucp_request_param_t param = {};
        const ucs_status_ptr_t closed   = ucp_ep_close_nbx(ep, &param);
        while (UCS_PTR_IS_PTR(closed) && (ucp_request_check_status(closed) == UCS_INPROGRESS)) {
            ucp_worker_progress(own.handle());
        }
        if (UCS_PTR_IS_PTR(closed)) {
            ucp_request_free(closed);
        }
    }
}

/* One that asks for more than there is hears of the end too. */
TEST_P(stream, end_of_receives_that_may_not_wait)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    pair pair(GetParam(), stream_options());
    const bytes data = pattern(1, 8);
    bytes buffer(12);
    size_t length             = 0;
    ucs_status_t status       = UCS_OK;
    ucp_request_param_t param = {};
    param.op_attr_mask        = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags               = UCP_STREAM_RECV_FLAG_WAITALL;
    const auto ends = [&](size_t count) {
        status = UCS_PTR_RAW_STATUS(
            ucp_stream_recv_nbx(pair.ep_back(), buffer.data(), count, &length, &param));
        return status != UCS_ERR_NO_RESOURCE;
    };
    ASSERT_FALSE(UCS_PTR_IS_ERR(send(pair.ep(), data.data(), 8)));
    pair.progress_until([&]() { return ends(4); });
    EXPECT_EQ(UCS_OK, status);
    pair.sender().destroy();
    pair.progress_until([&]() { return ends(12); });
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
    take_log();
}

void on_failure(void *arg, ucp_ep_h, ucs_status_t)
{
    ++*static_cast<int *>(arg);
}

void progress_both(worker &from, worker &to, const std::function<bool()> &condition,
                   int rounds = 10000000)
{
    for (int i = 0; (i < rounds) && !condition(); ++i) {
        from.progress();
        to.progress();
    }
}

/* Each side closes with a message of the other's unread, or read in part: neither close waits for
 * the other, nor an endpoint to oneself for itself. */
TEST_P(stream, both_close_with_messages_unread)
{
    environment environment(GetParam().env);
    context context(stream_options());
    worker from(context, GetParam().mode), to(context, GetParam().mode);
    worker &other      = GetParam().is_self ? from : to;
    const ucp_ep_h ep  = from.connect(other);
    const ucp_ep_h in  = GetParam().is_self ? ep : to.connect(from);
    const bytes data   = pattern(1, 1000000);
    bytes buffer(1000);
    ending sent[2], received;
    std::vector<ucs_status_ptr_t> requests, closings;
    receive(in, buffer.data(), buffer.size(), true, &received);
    for (int i = 0; i < 2; ++i) {
        const ucp_request_param_t param = send_param(&sent[i]);
        requests.push_back(
            ucp_stream_send_nbx((i == 0) ? ep : in, data.data(), data.size(), &param));
        ASSERT_FALSE(UCS_PTR_IS_ERR(requests.back()));
    }
    progress_both(from, to, []() { return false; }, 3000);
    from.forget(ep);
    closings.push_back(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
    if (in != ep) {
        to.forget(in);
        closings.push_back(ucp_ep_close_nb(in, UCP_EP_CLOSE_MODE_FLUSH));
    }
    const auto is_over = [&](int i) {
        return !UCS_PTR_IS_PTR(requests[i]) || (sent[i].calls == 1);
    };
    const auto all_closed = [&]() {
        return std::all_of(closings.begin(), closings.end(), [](ucs_status_ptr_t ptr) {
            return !UCS_PTR_IS_PTR(ptr) || ucp_request_is_completed(ptr);
        });
    };
    progress_both(from, to, [&]() {
        return all_closed() && is_over(0) && is_over(1) && (received.calls == 1);
    });
    EXPECT_TRUE(all_closed());
    EXPECT_TRUE(is_over(0) && is_over(1));
    EXPECT_EQ(1, received.calls);
    for (ucs_status_ptr_t ptr : closings) {
        if (UCS_PTR_IS_PTR(ptr)) {
            ucp_request_free(ptr);
        }
    }
}

/* A forced close in the middle of a long message: its reader is told, and nothing hangs. */
TEST_P(stream, forced_close_amid_a_message)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    environment environment(GetParam().env);
    context context(stream_options());
    worker from(context, GetParam().mode), to(context, GetParam().mode);
    int failures      = 0;
    const ucp_ep_h ep = from.connect(to, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failures);
    const ucp_ep_h in = to.connect(from);
    const bytes data  = pattern(1, 1000000);
    bytes buffer(1000000);
    ending sent, received, rest;
    const ucp_request_param_t param = send_param(&sent);
    void *ptr = ucp_stream_send_nbx(ep, data.data(), data.size(), &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(ptr));
    receive(in, buffer.data(), 1000, true, &received);
    progress_both(from, to, [&]() { return received.calls == 1; });
    ASSERT_EQ(UCS_OK, received.status);
    from.forget(ep);
    void *closing = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
    if (UCS_PTR_IS_PTR(ptr)) {
        if (is_network(GetParam())) { /* who could read it has to answer */
            progress_both(from, to, [&]() { return sent.calls == 1; });
        }
        EXPECT_EQ(1, sent.calls);
        EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    }
    progress_both(from, to, []() { return false; }, 2000);
    receive(in, buffer.data() + 1000, buffer.size() - 1000, true, &rest);
    progress_both(from, to, [&]() { return rest.calls == 1; });
    EXPECT_EQ(1, rest.calls);
    EXPECT_TRUE(UCS_STATUS_IS_ERR(rest.status)) << ucs_status_string(rest.status);
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.begin() + 1000, data.begin()));
    if (UCS_PTR_IS_PTR(closing)) {
        ucp_request_free(closing);
    }
    EXPECT_EQ(0, failures);
    take_log();
}

/* May the sender write into the receiver's memory, or a network that the receiver has asked? */
bool is_written_by_others(const variant &variant)
{
    return is_network(variant) || (std::count(variant.env.begin(), variant.env.end(),
                                              std::pair<std::string, std::string>(
                                                  "UCX_RNDV_SCHEME", "put_zcopy")) > 0);
}

/* The reader closes amid a message whose sender does nothing: its receive ends with the close. */
TEST_P(stream, closed_by_the_reader_amid_a_message)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    environment environment(GetParam().env);
    for (const unsigned mode : {UCP_EP_CLOSE_MODE_FLUSH, UCP_EP_CLOSE_MODE_FORCE}) {
        context context(stream_options());
        worker from(context, GetParam().mode), to(context, GetParam().mode);
        int failures      = 0;
        const ucp_ep_h in = to.connect(from, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failures);
        const bytes data  = pattern(1, 4 << 20);
        bytes buffer(data.size());
        ending received;
        ucp_stream_poll_ep_t ready;
        void *sent = send(from.connect(to), data.data(), data.size());
        ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
        progress_both(from, to, [&]() {
            return ucp_stream_worker_poll(to.handle(), &ready, 1, 0) == 1;
        });
        receive(in, buffer.data(), buffer.size(), true, &received);
        to.progress();
        ASSERT_EQ(0, received.calls);

        to.forget(in);
        void *closing = ucp_ep_close_nb(in, mode);
        if (is_written_by_others(GetParam())) { /* that may have been all */
            progress_both(from, to, [&]() { return received.calls == 1; });
        } else {
            EXPECT_EQ(UCS_ERR_CANCELED, received.status);
        }
        EXPECT_EQ(1, received.calls);
        bytes().swap(buffer); /* nobody writes to it any more */
        progress_both(from, to, [&]() { return ucp_request_check_status(sent) != UCS_INPROGRESS; });
        EXPECT_NE(UCS_INPROGRESS, ucp_request_check_status(sent));
        ucp_request_free(sent);
        if (UCS_PTR_IS_PTR(closing)) {
            ucp_request_free(closing);
        }
        EXPECT_EQ(0, failures);
    }
}

/* Both close amid a message: its memory is the sender's again once its send has ended, and not
 * before who reads it has; other endpoints between the two go on. */
TEST_P(stream, closed_on_both_sides_amid_a_message)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one worker on both ends";
    }
    environment environment(GetParam().env);
    context context(stream_options());
    worker from(context, GetParam().mode), to(context, GetParam().mode);
    int failures         = 0;
    const ucp_ep_h in    = to.connect(from);
    const ucp_ep_h out   = from.connect(to, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failures);
    const ucp_ep_h other = to.connect(from), others = from.connect(to);
    bytes buffer(64 << 20), byte(1);
    ending sent, received, rest;
    ucp_stream_poll_ep_t ready;
    const ucp_request_param_t param = send_param(&sent);
    void *hello = send(in, "y", 1);
    receive(out, byte.data(), 1, true, &rest);
    progress_both(from, to, [&]() { return rest.calls == 1; });
    rest       = ending();
    void *data = mmap(nullptr, buffer.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    ASSERT_NE(MAP_FAILED, data);
    memset(data, 7, buffer.size());
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_stream_send_nbx(out, data, buffer.size(), &param)));
    progress_both(from, to, [&]() {
        return ucp_stream_worker_poll(to.handle(), &ready, 1, 0) == 1;
    });
    receive(in, buffer.data(), buffer.size(), true, &received);
    to.progress();
    ASSERT_EQ(0, received.calls);

    to.forget(in);
    from.forget(out);
    void *closing[] = {ucp_ep_close_nb(in, UCP_EP_CLOSE_MODE_FLUSH),
                       ucp_ep_close_nb(out, UCP_EP_CLOSE_MODE_FORCE)};
    for (int i = 0; i < 50; ++i) {
        to.progress(); /* it is asked whether it still reads */
    }
    for (int i = 0; i < 20; ++i) {
        from.progress(); /* and may have answered */
    }
    progress_both(from, to, [&]() { return sent.calls == 1; });
    EXPECT_EQ(1, sent.calls);
    EXPECT_EQ(0, munmap(data, buffer.size()));
    progress_both(from, to, [&]() { return received.calls == 1; });
    EXPECT_EQ(1, received.calls);
    void *sent_there = send(others, "y", 1);
    receive(other, byte.data(), 1, true, &rest);
    progress_both(from, to, [&]() { return rest.calls == 1; });
    EXPECT_EQ('y', byte[0]);
    for (void *request : {closing[0], closing[1], hello, sent_there}) {
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
    EXPECT_EQ(0, failures);
    take_log();
}

/* The sender hears of the close though what its reader has begun to fetch is not the first. */
TEST_P(stream, closed_by_the_reader_before_it_has_read_what_is_fetched)
{
    if (GetParam().is_self || is_written_by_others(GetParam())) {
        GTEST_SKIP() << "what others write is waited for";
    }
    environment environment(GetParam().env);
    context context(stream_options());
    worker from(context, GetParam().mode), to(context, GetParam().mode);
    const ucp_ep_h in = to.connect(from), out = from.connect(to);
    const bytes data  = pattern(1, 4 << 20);
    bytes buffer(4096);
    ucp_stream_poll_ep_t ready;
    size_t length;
    ucp_request_param_t at_once = {};
    at_once.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FIELD_FLAGS;
    at_once.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
    ending heard;
    void *hello = send(in, "y", 1); /* so that an answer finds its way later */
    receive(out, buffer.data(), 1, true, &heard);
    void *first = send(out, data.data(), 100);
    void *sent  = send(out, data.data(), data.size());
    ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
    for (int i = 0; i < 100000; ++i) {
        from.progress();
        to.progress();
    }
    ASSERT_EQ(1, heard.calls);
    EXPECT_EQ(1, ucp_stream_worker_poll(to.handle(), &ready, 1, 0));
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_stream_recv_nbx(in, buffer.data(), buffer.size(), &length, &at_once));
    to.forget(in);
    void *closing = ucp_ep_close_nb(in, UCP_EP_CLOSE_MODE_FLUSH);
    for (int i = 0; (i < 10000000) && UCS_PTR_IS_PTR(closing) &&
                    (ucp_request_check_status(closing) == UCS_INPROGRESS); ++i) {
        to.progress();
    }
    for (int i = 0; (i < 10000000) && (ucp_request_check_status(sent) == UCS_INPROGRESS); ++i) {
        from.progress(); /* the reader does nothing more */
    }
    EXPECT_NE(UCS_INPROGRESS, ucp_request_check_status(sent));
    for (void *request : {closing, hello, first, sent}) {
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
}

/* Whichever allocation fails: every operation ends, and what is read before is right. */
TEST(stream_shortage, every_allocation_may_fail)
{
    const bytes data  = pattern(1, 400000);
    unsigned failures = 0;

    for (const char *point : {"malloc", "calloc", "memalign", "mmap"}) {
        for (unsigned k = 1; k < 60; ++k) {
            log_catcher log;
            environment environment(settings{{"UCX_TLS", "mm,cma"}});
            context context(stream_options());
            worker from(context), to(context);
            int failed        = 0;
            const ucp_ep_h ep = from.connect(to, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failed);
            const bytes address = from.address();
            bytes out;
            ASSERT_EQ(UCS_OK, ucs_fault_set(point, std::to_string(k).c_str()));

            std::vector<void *> requests;
            size_t written = 0;
            for (size_t length : {10ul, 5000ul, 300000ul, 100ul, 90000ul}) {
                void *ptr = send(ep, data.data() + written, length);
                if (UCS_PTR_IS_ERR(ptr)) {
                    break;
                }
                written += length;
                if (UCS_PTR_IS_PTR(ptr)) {
                    requests.push_back(ptr);
                }
            }
            for (int i = 0; i < 300; ++i) {
                from.progress();
                to.progress();
            }
            ucp_ep_params_t params;
            ucp_ep_h in       = nullptr;
            params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
            params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
            while (ucp_ep_create(to.handle(), &params, &in) == UCS_ERR_NO_MEMORY) {
            }
            ASSERT_NE(nullptr, in);
            size_t length    = 0;
            bool is_over     = false;
            unsigned refused = 0; /* in a row: once may pass, a stream that ended does not */
            for (int i = 0; (i < 1000000) && !is_over; ++i) {
                void *piece = ucp_stream_recv_data_nb(in, &length);
                if (UCS_PTR_IS_PTR(piece)) {
                    out.insert(out.end(), static_cast<uint8_t *>(piece),
                               static_cast<uint8_t *>(piece) + length);
                    ucp_stream_data_release(in, piece);
                }
                refused = UCS_PTR_IS_ERR(piece) ? refused + 1 : 0;
                /* a peer that failed before it was ever heard of cannot be missed */
                is_over = (out.size() == written) || (refused > 1000) ||
                          ((failed > 0) && (i > 20000));
                from.progress();
                to.progress();
            }
            uint64_t count = 0;
            ucs_fault_query(point, nullptr, &count);
            ucs_fault_clear(nullptr);
            ASSERT_TRUE(is_over) << point << " " << k << " " << out.size();
            ASSERT_LE(out.size(), written);
            ASSERT_TRUE(std::equal(out.begin(), out.end(), data.begin())) << point << " " << k;
            for (int i = 0; i < 100000; ++i) {
                from.progress();
                to.progress();
                if (std::all_of(requests.begin(), requests.end(), [](void *request) {
                        return ucp_request_is_completed(request) != 0;
                    })) {
                    break;
                }
            }
            for (void *request : requests) {
                EXPECT_TRUE(ucp_request_is_completed(request)) << point << " " << k;
                ucp_request_free(request);
            }
            (void)log.take();
            if (count == 0) {
                break;
            }
            ++failures;
        }
    }
    EXPECT_GT(failures, 10u);
}

/* The worker ends with everything in flight. */
TEST_P(stream, worker_ends_amid_everything)
{
    pair pair(GetParam(), stream_options());
    const ucp_ep_h ep = reader(pair, GetParam());
    const bytes data  = pattern(1, 500000);
    bytes buffer(500000);
    for (size_t length : {10ul, 500000ul, 1000ul}) {
        const ucs_status_ptr_t ptr = send(pair.ep(), data.data(), length);
        if (UCS_PTR_IS_PTR(ptr)) {
            ucp_request_free(ptr);
        }
    }
    pair.progress();
    ending end;
    receive(ep, buffer.data(), 300000, true, &end);
    pair.progress();
    size_t length = 0;
    (void)ucp_stream_recv_data_nb(ep, &length); /* not given back */
    pair.receiver().destroy();
    take_log();
}

} // namespace
