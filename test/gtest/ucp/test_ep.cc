/* Halyard: tests of endpoints: flush, close, several of them to one peer, failure, and workers that
 * go away with everything in flight.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <algorithm>
#include <cstring>

using namespace ucp_test;

namespace {

class ep : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, ep, testing::ValuesIn(all_variants()), variant_name);

constexpr size_t LONG_LENGTH = 400000;

/* ---- addresses and handles ---- */

TEST_P(ep, two_to_one_address)
{
    pair pair(GetParam());
    ucp_ep_h second = pair.sender().connect(pair.receiver());
    ASSERT_NE(pair.ep(), second);

    uint64_t values[] = {1, 2, 3}, got[3] = {};
    const ucp_request_param_t param = send_param(nullptr);
    void *sent[]                    = {ucp_tag_send_nbx(pair.ep(), &values[0], 8, 1, &param),
                                       ucp_tag_send_nbx(second, &values[1], 8, 2, &param), nullptr};
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got[i], 8, i + 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent[i]));
        EXPECT_EQ(values[i], got[i]);
    }

    /* one goes, the other stays */
    pair.sender().forget(second);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FLUSH)));
    sent[2] = ucp_tag_send_nbx(pair.ep(), &values[2], 8, 3, &param);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got[2], 8, 3)));
    EXPECT_EQ(UCS_OK, pair.wait(sent[2]));
    EXPECT_EQ(3u, got[2]);
}

/* Any alignment, anything behind it, and freed at once. */
TEST_P(ep, address_at_any_place)
{
    pair pair(GetParam());
    const bytes address = pair.receiver().address();
    ASSERT_LE(address.size(), 64u);
    for (size_t shift = 0; shift < 9; ++shift) {
        auto memory = std::make_unique<bytes>(address.size() + 4096, 0xd7);
        memcpy(memory->data() + shift, address.data(), address.size());
        ucp_ep_params_t params;
        ucp_ep_h second   = nullptr;
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address    = reinterpret_cast<ucp_address_t *>(memory->data() + shift);
        ASSERT_EQ(UCS_OK, ucp_ep_create(pair.sender().handle(), &params, &second));
        memory.reset();
        uint64_t value = shift, got = ~0ull;
        const ucp_request_param_t param = send_param(nullptr);
        void *sent                      = ucp_tag_send_nbx(second, &value, 8, 1, &param);
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(shift, got);
        EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FLUSH)));
    }
}

TEST_P(ep, addresses_of_one_worker_are_equal)
{
    pair pair(GetParam());
    EXPECT_EQ(pair.receiver().address(), pair.receiver().address());
    if (!GetParam().is_self) {
        EXPECT_NE(pair.receiver().address(), pair.sender().address());
    }

    ucp_worker_attr_t attr;
    memset(&attr, 0xee, sizeof(attr));
    attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    ASSERT_EQ(UCS_OK, ucp_worker_query(pair.receiver().handle(), &attr));
    ASSERT_EQ(pair.receiver().address().size(), attr.address_length);
    EXPECT_EQ(0, memcmp(attr.address, pair.receiver().address().data(), attr.address_length));
    /* MPICH copies as much from it, whatever its length */
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < 4096; ++i) {
        sum = sum + reinterpret_cast<const uint8_t *>(attr.address)[i];
    }
    ucp_worker_release_address(pair.receiver().handle(), attr.address);
}

TEST(ep_parameters, wrong_ones_are_refused_with_one_line)
{
    log_catcher log;
    context context;
    worker worker(context);
    ucp_ep_params_t params;
    ucp_ep_h ep = nullptr;
    bytes garbage(2048, 0x11);

    memset(&params, 0xee, sizeof(params));
    params.field_mask = 0;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_ep_create(worker.handle(), &params, &ep));
    EXPECT_EQ(1u, log.take().size());
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = nullptr;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_ep_create(worker.handle(), &params, &ep));
    EXPECT_EQ(1u, log.take().size());
    params.address = reinterpret_cast<ucp_address_t *>(garbage.data());
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, ucp_ep_create(worker.handle(), &params, &ep));
    EXPECT_EQ(1u, log.take().size());
    const bytes address = worker.address();
    params.address      = reinterpret_cast<const ucp_address_t *>(address.data());
    params.field_mask  |= UCP_EP_PARAM_FIELD_FLAGS;
    params.flags        = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER; /* to which socket? */
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_ep_create(worker.handle(), &params, &ep));
    EXPECT_EQ(1u, log.take().size());
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode   = static_cast<ucp_err_handling_mode_t>(7);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_ep_create(worker.handle(), &params, &ep));
    EXPECT_EQ(1u, log.take().size());
    EXPECT_EQ(nullptr, ep);
}

TEST(worker_parameters, a_thread_mode_that_there_is_not)
{
    log_catcher log;
    context context;
    ucp_worker_params_t params = {};
    params.field_mask          = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode         = static_cast<ucs_thread_mode_t>(77);
    ucp_worker_h worker        = nullptr;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_worker_create(context.handle(), &params, &worker));
    EXPECT_EQ(1u, log.take().size());
    EXPECT_EQ(nullptr, worker);
}

TEST_P(ep, names_and_query)
{
    pair pair(GetParam());
    const bytes address = pair.receiver().address();
    ucp_ep_params_t params;
    ucp_ep_h second = nullptr;
    memset(&params, 0xee, sizeof(params));
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_NAME | UCP_EP_PARAM_FIELD_USER_DATA;
    params.address   = reinterpret_cast<const ucp_address_t *>(address.data());
    params.name      = "a name that is much longer than what an attribute can hold of it";
    params.user_data = &pair;
    ASSERT_EQ(UCS_OK, ucp_ep_create(pair.sender().handle(), &params, &second));

    ucp_transport_entry_t entries[4];
    ucp_ep_attr_t attr;
    memset(&attr, 0xee, sizeof(attr));
    attr.field_mask =
        UCP_EP_ATTR_FIELD_NAME | UCP_EP_ATTR_FIELD_USER_DATA | UCP_EP_ATTR_FIELD_TRANSPORTS;
    attr.transports.entries     = entries;
    attr.transports.num_entries = 4;
    attr.transports.entry_size  = sizeof(entries[0]);
    const uint64_t mask         = attr.field_mask;
    ASSERT_EQ(UCS_OK, ucp_ep_query(second, &attr));
    EXPECT_EQ(mask, attr.field_mask);
    EXPECT_EQ(31u, strlen(attr.name));
    EXPECT_EQ(0, strncmp(attr.name, params.name, 31));
    EXPECT_EQ(&pair, attr.user_data);
    ASSERT_GE(attr.transports.num_entries, 1u);
    ASSERT_LE(attr.transports.num_entries, 2u);
    for (unsigned i = 0; i < attr.transports.num_entries; ++i) {
        EXPECT_GT(strlen(entries[i].transport_name), 0u);
        EXPECT_GT(strlen(entries[i].device_name), 0u);
    }
    attr.transports.num_entries = 0;
    ASSERT_EQ(UCS_OK, ucp_ep_query(second, &attr));
    EXPECT_EQ(0u, attr.transports.num_entries);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FLUSH)));

    ucp_ep_evaluate_perf_param_t perf_param;
    ucp_ep_evaluate_perf_attr_t perf;
    double before         = 0;
    perf_param.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
    perf.field_mask       = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
    for (size_t size : {0ul, 100ul, 10000ul, 100000000ul}) {
        perf_param.message_size = size;
        ASSERT_EQ(UCS_OK, ucp_ep_evaluate_perf(pair.ep(), &perf_param, &perf));
        EXPECT_GT(perf.estimated_time, 0);
        EXPECT_GE(perf.estimated_time, before);
        EXPECT_LT(perf.estimated_time, 10.0);
        before = perf.estimated_time;
    }
}

TEST_P(ep, prints)
{
    pair pair(GetParam());
    char *text    = nullptr;
    size_t length = 0;
    FILE *stream  = open_memstream(&text, &length);
    ucp_ep_print_info(pair.ep(), stream);
    ucp_worker_print_info(pair.sender().handle(), stream);
    ucp_context_print_info(pair.ctx().handle(), stream);
    fclose(stream);
    EXPECT_GT(length, 100u);
    for (const char *line = text; *line != '\0';) {
        const char *end = strchr(line, '\n');
        ASSERT_NE(nullptr, end);
        EXPECT_EQ('#', *line);
        line = end + 1;
    }
    free(text);
}

/* What the two workers have done is counted, on the side that did it. */
TEST_P(ep, counts)
{
    pair pair(GetParam());
    constexpr unsigned COUNT = 5;
    bytes data(8, 'x'), buffer(8);
    std::vector<void *> sends;
    for (unsigned i = 0; i < COUNT; ++i) {
        auto param = send_param(nullptr);
        sends.push_back(ucp_tag_send_nbx(pair.ep(), data.data(), data.size(), 1, &param));
    }
    pair.progress_until([&] { return counted(pair.receiver(), "unexpected") == COUNT; });
    EXPECT_EQ(COUNT, counted(pair.receiver(), "unexpected"));
    EXPECT_EQ(COUNT, counted(pair.sender(), "sent_at_once") +
                     counted(pair.sender(), "sent_whole") + counted(pair.sender(), "announced"));
    if (&pair.sender() != &pair.receiver()) {
        EXPECT_EQ(0u, counted(pair.receiver(), "sent_at_once"));
        EXPECT_EQ(0u, counted(pair.sender(), "unexpected"));
    }
    for (void *send : sends) {
        auto param = receive_param(nullptr);
        EXPECT_EQ(UCS_OK, pair.wait(ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(),
                                                     buffer.size(), 1, ~0ull, &param)));
        EXPECT_EQ(UCS_OK, pair.wait(send));
    }
}

/* ---- flush ---- */

TEST_P(ep, flush_with_nothing_in_flight)
{
    pair pair(GetParam());
    const ucp_request_param_t param = send_param(nullptr);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_flush_nbx(pair.ep(), &param)));
    EXPECT_EQ(UCS_OK, pair.wait(ucp_worker_flush_nbx(pair.sender().handle(), &param)));
    EXPECT_EQ(UCS_OK, ucp_ep_flush(pair.ep()));
    EXPECT_EQ(UCS_OK, ucp_worker_flush(pair.sender().handle()));
    EXPECT_EQ(UCS_OK, ucp_worker_fence(pair.sender().handle()));

    bytes memory(pair.ctx().request_size());
    ucp_request_param_t own = send_param(nullptr, UCP_OP_ATTR_FIELD_REQUEST);
    own.request             = memory.data() + memory.size();
    (void)ucp_ep_flush_nbx(pair.ep(), &own); /* clients ask the memory, which knows always */
    pair.progress_until([&]() { return ucp_request_is_completed(own.request) != 0; });
    EXPECT_EQ(UCS_OK, ucp_request_check_status(own.request));

    ending end;
    const ucp_request_param_t forced = send_param(&end, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void *request                    = ucp_ep_flush_nbx(pair.ep(), &forced);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    EXPECT_EQ(0, end.calls);
    pair.progress_until([&]() { return end.calls > 0; });
    EXPECT_EQ(UCS_OK, end.status);
}

/* A flush ends after what was sent before it, freed or not, and not after what came later. */
TEST_P(ep, flush_waits_for_what_came_before)
{
    pair pair(GetParam());
    ucp_ep_h second   = pair.sender().connect(pair.receiver());
    const bytes small = pattern(2, 100);
    const bytes data  = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    const ucp_request_param_t none = {};

    if (announces_all(GetParam())) {
        GTEST_SKIP() << "what is announced is not waited for";
    }
    for (int form = 0; form < 4; ++form) {
        const bool is_worker = form & 1;
        const bool is_freed  = form & 2;
        ending flushed, sent;
        unsigned count = 0;
        const ucp_request_param_t param = send_param(&flushed);

        sent.free_request = false;
        void *last = send_until_queued(pair.ep(), small, 1, &sent, &count);
        ASSERT_TRUE(UCS_PTR_IS_PTR(last));
        if (is_freed) {
            ucp_request_free(last);
        }
        void *flush = is_worker ? ucp_worker_flush_nbx(pair.sender().handle(), &param)
                                : ucp_ep_flush_nbx(pair.ep(), &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
        ASSERT_EQ(nullptr, ucp_ep_flush_nbx(second, &none)) << "nothing of it is in flight";
        void *late = pair.send(data.data(), data.size(), 2, true);
        ASSERT_EQ(0, flushed.calls) << "form " << form;
        pair.progress_until([&]() { return flushed.calls > 0; });
        ASSERT_EQ(UCS_OK, flushed.status);
        ASSERT_EQ(is_freed ? 0 : 1, sent.calls) << "the send's callback comes before the flush's";
        if (!is_freed) {
            ucp_request_free(last);
        }
        ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(late));
        for (unsigned i = 0; i < count; ++i) {
            ASSERT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
        }
        ASSERT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 2)));
        ASSERT_EQ(UCS_OK, pair.wait(late));
    }
}

/* What ends when it is received may be received after what follows a flush: MPI's flushes and
 * fences share endpoints with its messages. A close waits for it. */
TEST_P(ep, flush_waits_for_no_receiver)
{
    for (const bool is_worker : {false, true}) {
        pair pair(GetParam());
        ucp_ep_h ep      = pair.sender().connect(pair.receiver());
        const bytes data = pattern(1, LONG_LENGTH);
        bytes buffer(LONG_LENGTH);
        const ucp_request_param_t param = send_param(nullptr);
        std::vector<void *> sent;

        for (int round = 0; round < 2; ++round) { /* before and after there is a connection */
            for (const size_t length : {size_t(8), LONG_LENGTH}) {
                sent.push_back(ucp_tag_send_sync_nbx(ep, data.data(), length, 1, &param));
                ASSERT_TRUE(UCS_PTR_IS_PTR(sent.back()));
            }
            ASSERT_EQ(UCS_OK,
                      pair.wait(is_worker ? ucp_worker_flush_nbx(pair.sender().handle(), &param)
                                          : ucp_ep_flush_nbx(ep, &param)));
        }
        pair.sender().forget(ep);
        void *closed = ucp_ep_close_nbx(ep, &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(closed));
        pair.settle();
        for (size_t i = 0; i < sent.size(); ++i) {
            ASSERT_EQ(UCS_INPROGRESS, ucp_request_check_status(closed));
            ASSERT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
            ASSERT_EQ(UCS_OK, pair.wait(sent[i]));
        }
        ASSERT_EQ(UCS_OK, pair.wait(closed));
        expect_clean(pair);
    }
}

/* What the receiver has asked for is waited for again. */
TEST_P(ep, flush_waits_for_what_was_asked_for)
{
    pair pair(GetParam());
    const bytes data = pattern(1, 4000000);
    bytes buffer(data.size());
    unsigned num_waited             = 0;
    const ucp_request_param_t param = send_param(nullptr);

    for (int steps = 0; steps < 20; ++steps) {
        void *received = pair.receive(buffer.data(), buffer.size(), 1);
        void *sent     = pair.send(data.data(), data.size(), 1);
        ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
        for (int i = 0; i < steps; ++i) {
            pair.progress();
        }
        void *flush = ucp_ep_flush_nbx(pair.ep(), &param);
        if (UCS_PTR_IS_PTR(flush)) {
            /* what it waits for was asked for: it goes without a further word of the receiver's
             * user */
            num_waited += (ucp_request_check_status(sent) == UCS_INPROGRESS);
        }
        ASSERT_EQ(UCS_OK, pair.wait(flush));
        ASSERT_EQ(UCS_OK, pair.wait(received));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(-1, differs(buffer.data(), buffer.size(), 1));
    }
    if (GetParam().name == "no_cma") { /* pieces go by messages, for which there is no room */
        EXPECT_GT(num_waited, 0u);
    }
    expect_clean(pair);
}

TEST_P(ep, many_flushes_at_once)
{
    pair pair(GetParam());
    std::vector<void *> requests;
    std::vector<bytes> buffers;
    int order = 0;
    std::vector<std::unique_ptr<ending>> flushed;
    std::vector<int> ended;

    for (int i = 0; i < 40; ++i) {
        buffers.push_back(pattern(i, 20000));
        requests.push_back(pair.send(buffers.back().data(), 20000, 1, (i % 3) == 0));
        flushed.push_back(std::make_unique<ending>());
        flushed.back()->action = [&ended, &order, i]() {
            ended.push_back(i);
            ++order;
        };
        const ucp_request_param_t param =
            send_param(flushed.back().get(), UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        void *flush = (i & 1) ? ucp_ep_flush_nbx(pair.ep(), &param)
                              : ucp_worker_flush_nbx(pair.sender().handle(), &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    }
    bytes buffer(20000);
    for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
        ASSERT_EQ(-1, differs(buffer.data(), buffer.size(), i));
    }
    pair.progress_until([&]() { return order == 40; });
    EXPECT_TRUE(std::is_sorted(ended.begin(), ended.end()));
    for (void *request : requests) {
        EXPECT_EQ(UCS_OK, pair.wait(request));
    }
}

/* ---- close ---- */

TEST_P(ep, close_needs_no_peer)
{
    pair pair(GetParam());
    uint64_t value = 1, got = 0;
    void *received = pair.receive(&got, 8, 1);
    void *sent     = pair.send(&value, 8, 1); /* now there is a connection */
    EXPECT_EQ(UCS_OK, pair.wait(received));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    sent = nullptr;
    if (strcmp(ucp_test_protocol(pair.ep(), 8), "eager") == 0) {
        sent = pair.send(&value, 8, 2);
    }

    /* The peer does not progress any more. */
    pair.sender().forget(pair.ep());
    void *request = ucp_ep_close_nb(pair.ep(), UCP_EP_CLOSE_MODE_FLUSH);
    for (int i = 0; UCS_PTR_IS_PTR(request) && (i < 100000); ++i) {
        pair.sender().progress();
        if (ucp_request_is_completed(request)) {
            break;
        }
    }
    if (UCS_PTR_IS_PTR(request)) {
        EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
    }
    EXPECT_EQ(UCS_OK, pair.wait(request));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

/* The handle is dead, the peer's is not: what comes by that is received as before. */
TEST_P(ep, what_the_peer_sends_after_a_close_is_received)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "one endpoint leads both ways";
    }
    pair pair(GetParam());
    const ucp_request_param_t param = send_param(nullptr);
    ucp_worker_h closer             = pair.sender().handle();
    ucp_ep_h back                   = pair.ep_back();

    for (size_t length : {size_t(8), LONG_LENGTH}) {
        const bytes data = pattern(length, length);
        bytes before(length), after(length);
        void *received = ucp_tag_recv_nbx(closer, before.data(), length, 1, ~0ull, &param);
        ucp_ep_h ep    = pair.sender().connect(pair.receiver());
        void *sent     = ucp_tag_send_nbx(ep, data.data(), 8, 3, &param);
        bytes got(8);
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(got.data(), 8, 3)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        pair.sender().forget(ep);
        EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH)));
        if (length == LONG_LENGTH) { /* now it is the last one */
            pair.sender().forget(pair.ep());
            EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(pair.ep(), UCP_EP_CLOSE_MODE_FLUSH)));
        }
        void *sends[] = {ucp_tag_send_nbx(back, data.data(), length, 1, &param),
                         ucp_tag_send_nbx(back, data.data(), length, 2, &param)};
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(ucp_tag_recv_nbx(closer, after.data(), length, 2, ~0ull,
                                                     &param)));
        EXPECT_EQ(UCS_OK, pair.wait(sends[0]));
        EXPECT_EQ(UCS_OK, pair.wait(sends[1]));
        EXPECT_EQ(data, before);
        EXPECT_EQ(data, after);
    }
}

TEST_P(ep, close_waits_for_sends_in_flight)
{
    pair pair(GetParam());
    const bytes data = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    ending sent, closed;
    const ucp_request_param_t sparam = send_param(&sent);
    ucp_request_param_t cparam       = send_param(&closed);

    void *request = ucp_tag_send_sync_nbx(pair.ep(), data.data(), data.size(), 1, &sparam);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    pair.sender().forget(pair.ep());
    void *close = ucp_ep_close_nbx(pair.ep(), &cparam);
    ASSERT_TRUE(UCS_PTR_IS_PTR(close));
    pair.settle();
    EXPECT_EQ(0, closed.calls);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
    pair.progress_until([&]() { return closed.calls > 0; });
    EXPECT_EQ(1, sent.calls);
    EXPECT_EQ(UCS_OK, closed.status);
    EXPECT_EQ(data, buffer);
}

/* Also where nothing else is left: flushes of which the user hears from progress are operations. */
TEST_P(ep, close_ends_behind_flushes)
{
    for (uint32_t flags : {0u, static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE)}) {
        pair pair(GetParam());
        ending flushed, closed;
        int told_before = -1;

        const ucp_ep_h second =
            pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER,
                                  [](void *, ucp_ep_h, ucs_status_t) {});
        const ucp_request_param_t fparam = send_param(&flushed, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ucp_request_param_t cparam       = send_param(&closed, UCP_OP_ATTR_FIELD_FLAGS);

        cparam.flags  = flags;
        closed.action = [&]() { told_before = flushed.calls; };
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(second, &fparam)));
        pair.sender().forget(second);
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_close_nbx(second, &cparam)));
        pair.progress_until([&]() { return closed.calls > 0; });
        EXPECT_EQ(1, told_before);
        EXPECT_EQ(UCS_OK, closed.status);
    }
}

TEST_P(ep, close_request_freed_in_flight)
{
    pair pair(GetParam());
    const bytes data = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    void *sent = pair.send(data.data(), data.size(), 1, true);
    pair.sender().forget(pair.ep());
    void *close = ucp_disconnect_nb(pair.ep());
    ASSERT_TRUE(UCS_PTR_IS_PTR(close));
    ucp_request_free(close);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}

TEST_P(ep, blocking_destroy)
{
    pair pair(GetParam());
    uint64_t value = 3, got = 0;
    void *received = pair.receive(&got, 8, 1);
    void *sent     = pair.send(&value, 8, 1);
    EXPECT_EQ(UCS_OK, pair.wait(received));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    pair.sender().forget(pair.ep());
    ucp_ep_destroy(pair.ep());
    EXPECT_EQ(3u, got);
}

/* Programs do so: it is told, and does no harm. */
TEST_P(ep, closed_again)
{
    if (UCS_HAVE_ASAN) {
        GTEST_SKIP() << "AddressSanitizer is to see what is used after its end";
    }
    pair pair(GetParam());
    std::vector<ucp_ep_h> eps;
    for (int i = 0; i < 100; ++i) { /* more than are remembered: all memory is given back */
        eps.push_back(pair.sender().connect(pair.receiver()));
        pair.sender().forget(eps.back());
        EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(eps.back(), UCP_EP_CLOSE_MODE_FLUSH)));
    }
    ucp_ep_destroy(eps.back());
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED),
              ucp_ep_close_nb(eps.back(), UCP_EP_CLOSE_MODE_FLUSH));
    uint64_t value = 3, got = 0;
    void *sent = pair.send(&value, 8, 1);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(3u, got);
}

/* So it is while the close waits for what was sent, and amid one that waits for nothing. */
TEST_P(ep, closed_again_before_it_is_closed)
{
    pair pair(GetParam());
    const bytes data = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    const void *again = UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED);
    void *sent        = pair.send(data.data(), data.size(), 1, true);
    pair.sender().forget(pair.ep());
    void *close = ucp_disconnect_nb(pair.ep());
    ASSERT_TRUE(UCS_PTR_IS_PTR(close));
    EXPECT_EQ(again, ucp_ep_close_nb(pair.ep(), UCP_EP_CLOSE_MODE_FLUSH));
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(UCS_OK, pair.wait(close));

    ucp_ep_h second = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER);
    ending cancelled;
    const ucp_request_param_t param = send_param(&cancelled);
    cancelled.action                = [&]() {
        EXPECT_EQ(again, ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FORCE));
    };
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(second, data.data(), 8, 1, &param)));
    pair.sender().forget(second);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FORCE)));
    EXPECT_EQ(1, cancelled.calls);
    pair.settle();
}

TEST_P(ep, forced_close_needs_error_handling)
{
    pair pair(GetParam());
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM),
              ucp_ep_close_nb(pair.ep(), UCP_EP_CLOSE_MODE_FORCE));
    uint64_t value = 3, got = 0;
    void *sent = pair.send(&value, 8, 1); /* and nothing has happened */
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

void never(void *, ucp_ep_h, ucs_status_t)
{
    ADD_FAILURE() << "the error handler is called after close";
}

TEST_P(ep, forced_close_ends_everything)
{
    pair pair(GetParam());
    ucp_ep_h second  = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER, never);
    const bytes data = pattern(1, LONG_LENGTH);
    bytes buffer(LONG_LENGTH);
    std::vector<std::unique_ptr<ending>> sends;

    for (int i = 0; i < 20; ++i) {
        sends.push_back(std::make_unique<ending>());
        const ucp_request_param_t param =
            send_param(sends.back().get(), UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        const size_t length = (i & 1) ? 8 : LONG_LENGTH;
        void *request = (i & 2) ? ucp_tag_send_sync_nbx(second, data.data(), length, 5, &param)
                                : ucp_tag_send_nbx(second, data.data(), length, 5, &param);
        ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    }
    void *other =
        pair.send(data.data(), data.size(), 7, true); /* by another endpoint to the peer */
    pair.sender().forget(second);
    const int before = sends[0]->calls;
    EXPECT_EQ(0, before);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FORCE)));
    for (const auto &each : sends) {
        ASSERT_EQ(1, each->calls);
        ASSERT_EQ(UCS_ERR_CANCELED, each->status);
    }
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(buffer.data(), buffer.size(), 7)));
    EXPECT_EQ(UCS_OK, pair.wait(other));
    EXPECT_EQ(data, buffer);
    pair.settle();
}

TEST_P(ep, a_flush_is_cancelled_with_its_sends)
{
    pair pair(GetParam());
    ucp_ep_h second = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER, never);
    const ucp_request_param_t param = send_param(nullptr);
    const bytes data = pattern(1, 100);
    ending sent;
    unsigned count;

    if (announces_all(GetParam())) {
        GTEST_SKIP() << "a flush does not wait for what is announced";
    }
    ASSERT_TRUE(UCS_PTR_IS_PTR(send_until_queued(second, data, 1, &sent, &count)));
    void *flush = ucp_ep_flush_nbx(second, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    pair.sender().forget(second);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FORCE)));
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    EXPECT_EQ(UCS_ERR_CANCELED, pair.wait(flush));
    pair.settle();
}

/* What comes while the answers of a worker that ends leave is nobody's. */
TEST(ep_end, a_worker_that_ends_tells_nobody)
{
    context_options options;
    options.features = UCP_FEATURE_TAG | UCP_FEATURE_AM;
    context one(options), another(options);
    worker sender(one);
    auto receiver = std::make_unique<worker>(another);
    ucp_ep_h ep   = sender.connect(*receiver);
    ending of_receive;
    unsigned calls = 0;
    uint64_t value = 1, got = 0;
    const ucp_request_param_t param  = send_param(nullptr);
    const ucp_request_param_t posted = receive_param(&of_receive);
    ucp_am_handler_param_t handler   = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id         = 1;
    handler.arg        = &calls;
    handler.cb         = [](void *arg, const void *, size_t, void *, size_t,
                    const ucp_am_recv_param_t *) {
        ++*static_cast<unsigned *>(arg);
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(receiver->handle(), &handler));

    void *received = ucp_tag_recv_nbx(receiver->handle(), &got, sizeof(got), 1, ~0ull, &param);
    void *sent     = ucp_tag_send_sync_nbx(ep, &value, sizeof(value), 1, &param);
    while (ucp_request_check_status(received) == UCS_INPROGRESS) {
        receiver->progress();
        if (ucp_request_check_status(received) == UCS_INPROGRESS) {
            sender.progress();
        }
    }
    ucp_request_free(received);
    EXPECT_LT(0u, ucp_test_num_controls(receiver->handle())) << "its answer waits";
    ASSERT_TRUE(UCS_PTR_IS_PTR(
        ucp_tag_recv_nbx(receiver->handle(), &got, sizeof(got), 2, ~0ull, &posted)));
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(nullptr, ucp_am_send_nbx(ep, 1, nullptr, 0, &value, sizeof(value), &param));
    }
    EXPECT_EQ(nullptr, ucp_tag_send_nbx(ep, &value, sizeof(value), 2, &param));
    receiver->destroy();
    EXPECT_EQ(0u, calls);
    EXPECT_EQ(0, of_receive.calls);
    ucp_request_free(sent);
}

/* A rank sends, closes, destroys its worker and exits; the receive is posted later. */
TEST_P(ep, what_was_sent_arrives_after_the_sender_is_gone)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "needs two workers";
    }
    environment environment(GetParam().env);
    context context;
    worker receiver(context, GetParam().mode);
    auto sender = std::make_unique<worker>(context, GetParam().mode);
    ucp_ep_h ep = sender->connect(receiver);
    if (strcmp(ucp_test_protocol(ep, 8), "eager") != 0) {
        GTEST_SKIP() << "what is announced needs its sender";
    }
    uint64_t values[20];
    std::vector<void *> requests;
    const ucp_request_param_t param = send_param(nullptr);

    for (uint64_t i = 0; i < 20; ++i) {
        values[i] = i * 11;
        requests.push_back(ucp_tag_send_nbx(ep, &values[i], 8, i, &param));
    }
    sender->forget(ep);
    requests.push_back(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH));
    for (int i = 0; i < 1000000; ++i) {
        receiver.progress();
        sender->progress();
        if (std::all_of(requests.begin(), requests.end(), [](void *request) {
                return !UCS_PTR_IS_PTR(request) || ucp_request_is_completed(request);
            })) {
            break;
        }
    }
    for (void *request : requests) {
        if (UCS_PTR_IS_PTR(request)) {
            ASSERT_EQ(UCS_OK, ucp_request_check_status(request));
            ucp_request_free(request);
        }
    }
    sender.reset();
    for (uint64_t i = 0; i < 20; ++i) {
        uint64_t got                     = 0;
        const ucp_request_param_t rparam = receive_param(nullptr);
        void *request = ucp_tag_recv_nbx(receiver.handle(), &got, 8, i, ~0ull, &rparam);
        for (int n = 0; UCS_PTR_IS_PTR(request) && (n < 1000000); ++n) {
            receiver.progress();
            if (ucp_request_is_completed(request)) {
                break;
            }
        }
        if (UCS_PTR_IS_PTR(request)) {
            ASSERT_EQ(UCS_OK, ucp_request_check_status(request)) << "message " << i;
            ucp_request_free(request);
        }
        ASSERT_EQ(i * 11, got);
    }
}

/* A flush that is due outlives its endpoint. */
TEST_P(ep, closed_while_a_flush_is_due)
{
    pair pair(GetParam());
    ending flushed[2], sent;
    const ucp_request_param_t fparam  = send_param(&flushed[0], UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const ucp_request_param_t fparam2 = send_param(&flushed[1], UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const ucp_request_param_t sparam  = send_param(&sent);
    ucp_ep_h ep    = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER, never);
    uint64_t value = 1;

    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(ep, &fparam)));
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(ep, &value, 8, 1, &sparam)));
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(ep, &fparam2)));
    pair.sender().forget(ep);
    EXPECT_EQ(UCS_OK, pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE)));
    pair.progress_until([&]() { return (flushed[0].calls > 0) && (flushed[1].calls > 0); });
    EXPECT_EQ(UCS_ERR_CANCELED, sent.status);
    EXPECT_EQ(UCS_OK, flushed[0].status);
    pair.settle();
}

/* ---- failure ---- */

struct failure {
    int calls           = 0;
    ucp_ep_h ep         = nullptr;
    ucs_status_t status = UCS_OK;
    bool close          = false;
    void *close_request = nullptr;
};

void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    auto *self = static_cast<failure *>(arg);

    ++self->calls;
    self->ep     = ep;
    self->status = status;
    if (self->close) {
        self->close_request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
    }
}

TEST_P(ep, failure_of_the_peer)
{
    for (bool close_in_handler : {false, true}) {
        pair pair(GetParam());
        failure failure;
        failure.close = close_in_handler;
        ucp_ep_h ep = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER, on_failure,
                                            &failure);
        const bytes data = pattern(1, LONG_LENGTH);
        std::vector<std::unique_ptr<ending>> sends;

        for (int i = 0; i < 12; ++i) {
            sends.push_back(std::make_unique<ending>());
            const ucp_request_param_t param =
                send_param(sends.back().get(), UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
            void *request =
                (i & 2)
                    ? ucp_tag_send_sync_nbx(ep, data.data(), (i & 1) ? 8 : LONG_LENGTH, 5, &param)
                    : ucp_tag_send_nbx(ep, data.data(), (i & 1) ? 8 : LONG_LENGTH, 5, &param);
            ASSERT_TRUE(UCS_PTR_IS_PTR(request));
        }
        ucp_test_peer_fail(ep, UCS_ERR_CONNECTION_RESET);
        ucp_test_peer_fail(ep, UCS_ERR_CONNECTION_RESET);
        EXPECT_EQ(0, failure.calls) << "the handler is called from progress";
        pair.sender().progress();
        EXPECT_EQ(1, failure.calls);
        EXPECT_EQ(ep, failure.ep);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failure.status);
        for (const auto &each : sends) {
            EXPECT_EQ(1, each->calls);
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, each->status);
        }

        if (close_in_handler) {
            pair.sender().forget(ep);
            EXPECT_FALSE(UCS_PTR_IS_ERR(failure.close_request));
            pair.wait(failure.close_request);
        } else {
            /* Later calls return at once. */
            const ucp_request_param_t param = send_param(nullptr);
            const void *reset               = UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET);
            EXPECT_EQ(reset, ucp_tag_send_nbx(ep, data.data(), 8, 1, &param));
            EXPECT_EQ(reset, ucp_tag_send_nbx(ep, data.data(), LONG_LENGTH, 1, &param));
            EXPECT_EQ(reset, ucp_tag_send_sync_nbx(ep, data.data(), 8, 1, &param));
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET,
                      ucp_tag_send_nbr(ep, data.data(), 8, ucp_dt_make_contig(1), 1,
                                       bytes(4096).data() + 4096));
            EXPECT_EQ(UCS_ERR_CONNECTION_RESET, pair.wait(ucp_ep_flush_nbx(ep, &param)));
        }
        pair.sender().progress();
        EXPECT_EQ(1, failure.calls);
    }
}

/* UCXX and async-ucx tell their endpoints apart by it. */
TEST_P(ep, user_data_goes_to_the_error_handler)
{
    for (bool is_modified : {false, true}) {
        pair pair(GetParam());
        const bytes address = pair.receiver().address();
        failure by_argument, by_data;
        ucp_ep_params_t params, later;
        ucp_ep_h ep = nullptr;

        memset(&params, 0xee, sizeof(params));
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address         = reinterpret_cast<const ucp_address_t *>(address.data());
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb  = on_failure;
        params.err_handler.arg = &by_argument;
        params.user_data       = &by_data;
        later                  = params;
        later.field_mask       = UCP_EP_PARAM_FIELD_USER_DATA;
        params.field_mask     |= is_modified ? 0 : UCP_EP_PARAM_FIELD_USER_DATA;
        ASSERT_EQ(UCS_OK, ucp_ep_create(pair.sender().handle(), &params, &ep));
        if (is_modified) {
            ASSERT_EQ(nullptr, ucp_ep_modify_nb(ep, &later));
        }
        ucp_test_peer_fail(ep, UCS_ERR_CONNECTION_RESET);
        pair.sender().progress();
        EXPECT_EQ(0, by_argument.calls);
        EXPECT_EQ(1, by_data.calls);
        EXPECT_EQ(ep, by_data.ep);
        pair.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    }
}

/* What a program asks for to hear of failures costs it no transport and no protocol. */
TEST_P(ep, error_handling_changes_no_choice)
{
    environment environment(GetParam().env);
    context context;
    std::string texts[2];
    for (int i = 0; i < 2; ++i) {
        worker first(context, GetParam().mode), second(context, GetParam().mode);
        const ucp_ep_h ep =
            first.connect(GetParam().is_self ? first : second,
                          (i == 0) ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
                          (i == 0) ? nullptr : never);
        texts[i] = printed([&](FILE *stream) { ucp_ep_print_info(ep, stream); });
        texts[i].erase(0, texts[i].find("\n#\n")); /* its name */
    }
    EXPECT_LT(100u, texts[0].size());
    EXPECT_EQ(texts[0], texts[1]);
}

/* The callback of a request that failed closes the endpoint, or the one after it. */
TEST_P(ep, closed_inside_callbacks_of_failed_requests)
{
    for (int which = 0; which < 2; ++which) {
        pair pair(GetParam());
        ucp_ep_h eps[2];
        ending sends[2];
        uint64_t value = 1;

        for (int i = 0; i < 2; ++i) {
            eps[i] = pair.sender().connect(pair.receiver(), UCP_ERR_HANDLING_MODE_PEER, never);
            const ucp_request_param_t param = send_param(&sends[i]);
            ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(eps[i], &value, 8, 9, &param)));
        }
        sends[0].action = [&]() {
            for (int i = 0; i < 2; ++i) {
                if ((which == 0) && (i == 1)) {
                    continue;
                }
                ucp_ep_h ep = eps[(which == 0) ? 0 : i];
                pair.sender().forget(ep);
                void *request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
                ASSERT_FALSE(UCS_PTR_IS_ERR(request));
                if (request != nullptr) {
                    ucp_request_free(request);
                }
            }
        };
        sends[1].action = [&]() {
            if (which == 0) {
                pair.sender().forget(eps[1]);
                void *request = ucp_ep_close_nb(eps[1], UCP_EP_CLOSE_MODE_FORCE);
                if (UCS_PTR_IS_PTR(request)) {
                    ucp_request_free(request);
                }
            }
        };
        ucp_test_peer_fail(eps[0], UCS_ERR_CONNECTION_RESET);
        pair.sender().progress();
        EXPECT_EQ(1, sends[0].calls);
        EXPECT_EQ(1, sends[1].calls);
    }
}

TEST_P(ep, failure_while_receiving)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "needs two workers";
    }
    pair pair(GetParam());
    ucp_ep_h back    = pair.ep_back();
    const bytes data = pattern(1, 3000000);
    bytes buffer(data.size()), other(8);
    ending received, waiting;
    const ucp_request_param_t rparam = receive_param(&received);
    const ucp_request_param_t wparam = receive_param(&waiting);

    void *sent = pair.send(data.data(), data.size(), 1);
    ucp_tag_recv_nbx(pair.receiver().handle(), other.data(), other.size(), 2, ~0ull, &wparam);
    ucp_tag_recv_info_t info;
    pair.progress_until([&]() {
        return ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) != nullptr;
    });
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(),
                                                buffer.size(), 1, ~0ull, &rparam)));
    ucp_test_peer_fail(back, UCS_ERR_CONNECTION_RESET);
    /* What the peer has sent before is delivered; then it notices and closes its side. */
    pair.progress_until([&]() { return received.calls > 0; });
    EXPECT_EQ(1, received.calls);
    if (received.status == UCS_OK) {
        EXPECT_EQ(data, buffer);
    } else {
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, received.status);
    }
    EXPECT_EQ(0, waiting.calls) << "anybody may still send to it";
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
}

TEST_P(ep, failure_with_an_announced_message)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "needs two workers";
    }
    pair pair(GetParam());
    ucp_ep_h back    = pair.ep_back();
    const bytes data = pattern(1, 3000000);
    bytes buffer(data.size());
    void *sent = pair.send(data.data(), data.size(), 1);
    ucp_tag_recv_info_t info;
    pair.progress_until([&]() {
        return ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) != nullptr;
    });
    ucp_test_peer_fail(back, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, pair.wait(pair.receive(buffer.data(), buffer.size(), 1)));
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
}

/* ---- the end of a worker ---- */

TEST_P(ep, worker_destroyed_with_everything_in_flight)
{
    for (int stage = 0; stage < 6; ++stage) {
        environment environment(GetParam().env);
        context context;
        worker first(context, GetParam().mode);
        std::unique_ptr<worker> second;
        if (!GetParam().is_self) {
            second = std::make_unique<worker>(context, GetParam().mode);
        }
        worker &other                   = (second != nullptr) ? *second : first;
        ucp_ep_h ep                     = first.connect(other);
        ucp_ep_h closed                 = first.connect(other);
        const bytes data                = pattern(1, 3000000);
        bytes buffers[3]                = {bytes(data.size()), bytes(data.size()), bytes(100)};
        const ucp_request_param_t param = send_param(nullptr);
        ucp_request_param_t flags       = send_param(nullptr, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        ucp_tag_recv_info_t info;

        for (ucp_tag_t tag = 0; tag < 8; ++tag) {
            ucp_tag_send_nbx(ep, data.data(), (tag & 1) ? data.size() : 50, tag, &param);
            ucp_tag_send_sync_nbx(ep, data.data(), (tag & 2) ? data.size() : 50, tag, &param);
        }
        ucp_ep_flush_nbx(ep, &flags);
        ucp_worker_flush_nbx(first.handle(), &flags);
        ucp_tag_send_sync_nbx(closed, data.data(), 60, 100, &param);
        first.forget(closed);
        ucp_ep_close_nbx(closed, &flags);
        ucp_tag_recv_nbx(other.handle(), buffers[0].data(), data.size(), 3, ~0ull, &param);
        ucp_tag_recv_nbx(other.handle(), buffers[1].data(), data.size(), 1, 1, &param);
        ucp_tag_recv_nbx(other.handle(), buffers[2].data(), 100, 77, 0xff, &param);
        for (int i = 0; i < stage * stage * 20; ++i) {
            first.progress();
            other.progress();
        }
        (void)ucp_tag_probe_nb(other.handle(), 0, 1, 1, &info); /* taken out and never received */
        first.destroy();
        if (second != nullptr) {
            for (int i = 0; i < 20; ++i) {
                other.progress();
            }
        }
    }
    take_log(); /* whether a peer that went away is worth a line is not this test's matter */
}

TEST_P(ep, receiver_destroyed_first)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "needs two workers";
    }
    environment environment(GetParam().env);
    context context;
    worker sender(context, GetParam().mode);
    auto receiver = std::make_unique<worker>(context, GetParam().mode);
    failure failure;
    ucp_ep_h ep      = sender.connect(*receiver, UCP_ERR_HANDLING_MODE_PEER, on_failure, &failure);
    const bytes data = pattern(1, LONG_LENGTH);
    ending sent;
    const ucp_request_param_t param = send_param(&sent);
    void *request = ucp_tag_send_sync_nbx(ep, data.data(), data.size(), 1, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    for (int i = 0; i < 500; ++i) {
        sender.progress();
        receiver->progress();
    }
    receiver.reset();
    for (int i = 0; (i < 20000000) && ((sent.calls == 0) || (failure.calls == 0)); ++i) {
        sender.progress();
    }
    EXPECT_EQ(1, sent.calls);
    EXPECT_TRUE(UCS_STATUS_IS_ERR(sent.status)) << sent.status;
    EXPECT_EQ(1, failure.calls);
    take_log();
}

/* The receiver ends at some moment of several long messages both ways. */
TEST_P(ep, receiver_destroyed_amid_long_messages)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "needs two workers";
    }
    const bytes data = pattern(1, 2000000); /* the worker that stays may read it to its end */
    std::vector<bytes> places(8, bytes(data.size()));
    for (int stage = 0; stage < 10; ++stage) {
        environment environment(GetParam().env);
        environment.set({{"UCX_OFI_TIMEOUT", "500ms"}}); /* the end waits for so long */
        context context;
        worker sender(context, GetParam().mode);
        auto receiver  = std::make_unique<worker>(context, GetParam().mode);
        ucp_ep_h there = sender.connect(*receiver);
        ucp_ep_h back  = receiver->connect(sender);
        const ucp_request_param_t param = send_param(nullptr);

        for (size_t i = 0; i < places.size(); ++i) {
            worker &to = (i & 1) ? sender : *receiver;
            ucp_tag_recv_nbx(to.handle(), places[i].data(), data.size(), 1, ~0ull, &param);
            ucp_tag_send_nbx((i & 1) ? back : there, data.data(), data.size(), 1, &param);
        }
        for (int i = 0; i < stage * 25; ++i) {
            sender.progress();
            receiver->progress();
        }
        receiver.reset();
        for (int i = 0; i < 50; ++i) {
            sender.progress();
        }
    }
    take_log(); /* whether a peer that went away is worth a line is not this test's matter */
}

} // namespace
