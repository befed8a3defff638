/* Halyard: tests of sleeping until something happens.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>
#include <ucs/debug/fault.h>

#include <seed.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include <ucs/sys/sys.h>
}

using namespace ucp_test;

namespace {

class wakeup : public variant_test {
protected:
    static int fd_of(worker &worker)
    {
        int fd = -1;
        EXPECT_EQ(UCS_OK, ucp_worker_get_efd(worker.handle(), &fd));
        return fd;
    }

    /* Is the descriptor readable each millisecond, whatever comes? */
    static bool is_polled()
    {
        for (const auto &each : GetParam().env) {
            if (each.first == "UCX_TLS") {
                return ucp_test::is_polled(each.second);
            }
        }
        return false;
    }

    static bool is_readable(int fd, int timeout_ms = 0)
    {
        struct pollfd event = {fd, POLLIN, 0};
        return poll(&event, 1, timeout_ms) > 0;
    }

    /* As clients do it: progress while there is work, then arm. */
    static void progress_and_arm(worker &worker)
    {
        ucs_status_t status;
        do {
            while (worker.progress() > 0) {
            }
            status = ucp_worker_arm(worker.handle());
        } while (status == UCS_ERR_BUSY);
        ASSERT_EQ(UCS_OK, status);
    }

    static constexpr int PATIENCE_MS = 20000;
};

std::vector<variant> wakeup_variants()
{
    std::vector<variant> list = some_variants();
    list.push_back({"mm_only", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_SINGLE});
    list.push_back({"from_0", {{"UCX_RNDV_THRESH", "0"}}, false, UCS_THREAD_MODE_SINGLE});
    return list;
}

INSTANTIATE_TEST_SUITE_P(all, wakeup, testing::ValuesIn(wakeup_variants()), variant_name);

TEST_P(wakeup, needs_its_feature)
{
    context_options options;
    options.features = UCP_FEATURE_TAG;
    pair pair(GetParam(), options);
    int fd = -77;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_worker_get_efd(pair.receiver().handle(), &fd));
    EXPECT_EQ(-77, fd);
}

TEST_P(wakeup, one_descriptor_for_life)
{
    pair pair(GetParam());
    const int fd = fd_of(pair.receiver());
    ASSERT_GE(fd, 0);
    for (int i = 0; i < 5; ++i) {
        uint64_t value = 1, got = 0;
        void *sent = pair.send(&value, 8, 1);
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(fd, fd_of(pair.receiver()));
    }
    EXPECT_GE(fcntl(fd, F_GETFD), 0);
    EXPECT_NE(0, fcntl(fd, F_GETFD) & FD_CLOEXEC);

    /* it can be put into a set of the client's */
    const int set            = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {}};
    EXPECT_EQ(0, epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    close(set);
}

TEST_P(wakeup, quiet_while_nothing_comes)
{
    if (is_polled()) {
        GTEST_SKIP() << "the provider has no descriptor: a clock wakes";
    }
    pair pair(GetParam());
    const int fd = fd_of(pair.receiver());
    pair.settle();
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_FALSE(is_readable(fd, 30));
    EXPECT_EQ(UCS_OK, ucp_worker_arm(pair.receiver().handle()))
        << "again, without an event between";
    EXPECT_FALSE(is_readable(fd));
}

TEST_P(wakeup, a_message_wakes)
{
    pair pair(GetParam());
    if (GetParam().is_self) {
        GTEST_SKIP() << "who sends to itself is awake";
    }
    const int fd = fd_of(pair.receiver());
    for (size_t length : {0ul, 8ul, 2000ul, 300000ul}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        for (bool posted : {true, false}) {
            void *received = posted ? pair.receive(buffer.data(), length, 1) : nullptr;
            pair.settle();
            ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
            ASSERT_TRUE(is_polled() || !is_readable(fd));
            void *sent = pair.send(data.data(), length, 1);
            /* The sender may have to progress, and the receiver in between. */
            const auto end = [&]() {
                ucp_tag_recv_info_t info;
                return posted ? ucp_request_is_completed(received)
                              : (ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) !=
                                 nullptr);
            };
            int sleeps = 0;
            while (!end()) {
                int waited = 0;
                while (!is_readable(fd, 1)) {
                    pair.sender().progress();
                    ASSERT_LT(++waited, PATIENCE_MS) << "sleeps for ever, length " << length;
                }
                ++sleeps;
                ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
            }
            EXPECT_GE(sleeps, 1);
            if (!posted) {
                received = pair.receive(buffer.data(), length, 1);
            }
            ASSERT_EQ(UCS_OK, pair.wait(received));
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(data, buffer);
        }
    }
}

/* Another thread may sleep while this one makes an endpoint whose end is to be told. */
/* What comes over it would wake nobody, so it is not offered to peers, until it opens. */
TEST(wakeup_failure, a_network_whose_events_cannot_be_added)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    log_catcher log;
    environment environment(settings{{"UCX_TLS", "mm,ofi"}, {"UCX_NET_ADDRESS", "y"}});
    context context;
    worker first(context), second(context);

    ASSERT_EQ(UCS_OK, ucs_fault_set("epoll_ctl", "1+"));
    const bytes without = first.address();
    ucs_fault_clear(nullptr);
    EXPECT_FALSE(log.take().empty());
    EXPECT_LT(without.size(), second.address().size());
    EXPECT_EQ(second.address().size(), first.address().size());
}

TEST(wakeup_failure, an_endpoint_to_a_dead_peer_wakes)
{
    const auto count = [](void *arg, ucp_ep_h, ucs_status_t) { ++*static_cast<int *>(arg); };
    context context;
    worker first(context);
    auto other    = std::make_unique<worker>(context);
    int calls[2]  = {0, 0};
    size_t length = 0;
    ucp_address_t *address = nullptr;
    ucp_ep_h eps[2];
    ucp_ep_params_t params = {};

    ASSERT_EQ(UCS_OK, ucp_worker_get_address(other->handle(), &address, &length));
    params.field_mask     = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address        = address;
    params.err_mode       = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = count;
    for (int i = 0; i < 2; ++i) {
        params.err_handler.arg = &calls[i];
        ASSERT_EQ(UCS_OK, ucp_ep_create(first.handle(), &params, &eps[i]));
        if (i == 0) {
            const uint64_t value            = 1;
            const ucp_request_param_t param = send_param(nullptr);
            ucp_tag_send_nbx(eps[0], &value, sizeof(value), 1, &param);
            for (int k = 0; k < 1000; ++k) {
                first.progress();
                other->progress();
            }
            other->destroy();
            while (calls[0] == 0) {
                first.progress();
            }
            do {
                while (first.progress() != 0) {
                }
            } while (ucp_worker_arm(first.handle()) == UCS_ERR_BUSY);
        }
    }
    int fd = -1;
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(first.handle(), &fd));
    struct pollfd event = {fd, POLLIN, 0};
    EXPECT_EQ(1, poll(&event, 1, 1000));
    while (calls[1] == 0) {
        first.progress();
    }
    for (ucp_ep_h ep : eps) {
        EXPECT_EQ(nullptr, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
    }
    ucp_worker_release_address(first.handle(), address);
}

TEST_P(wakeup, arm_is_busy_when_there_is_work)
{
    if (is_polled()) {
        GTEST_SKIP() << "the provider does not tell without progress";
    }
    pair pair(GetParam());
    uint64_t value = 1, got = 0;
    fd_of(pair.receiver());
    pair.settle();
    /* connect first, so that the message below lies in the receiver's memory at once */
    void *sent = pair.send(&value, 8, 1);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    pair.settle();

    sent = pair.send(&value, 8, 1);
    pair.sender().progress();
    if (!GetParam().is_self) {
        for (int i = 0; i < 1000; ++i) {
            pair.sender().progress();
        }
    }
    ucp_tag_recv_info_t info;
    if (ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) == nullptr) {
        EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(pair.receiver().handle()));
        EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(pair.receiver().handle()))
            << "until it is progressed";
    }
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, 8, 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
}

/* What is posted between arming and sleeping, and needs progress, ends the sleep: here a receive of
 * a message that waits to be fetched. */
TEST_P(wakeup, a_receive_after_arming_wakes)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "a worker fetches from itself at once";
    }
    pair pair(GetParam());
    const int fd     = fd_of(pair.receiver());
    const bytes data = pattern(300000, 1);
    bytes got(data.size());
    void *sent = pair.send(data.data(), data.size(), 1);
    ucp_tag_recv_info_t info;
    pair.progress_until([&] {
        return ucp_tag_probe_nb(pair.receiver().handle(), 1, ~0ull, 0, &info) != nullptr;
    });
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_FALSE(is_readable(fd));
    void *received = pair.receive(got.data(), got.size(), 1);
    EXPECT_TRUE(!UCS_PTR_IS_PTR(received) || is_readable(fd, PATIENCE_MS));
    EXPECT_EQ(UCS_OK, pair.wait(received));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    EXPECT_EQ(data, got);
}

/* Work that only progress does: the end of a send, of a flush. */
TEST_P(wakeup, arm_is_busy_when_a_callback_is_due)
{
    pair pair(GetParam());
    ending flushed;
    const ucp_request_param_t param = send_param(&flushed, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    pair.settle();
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(pair.ep(), &param)));
    EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(pair.sender().handle()));
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.sender()));
    EXPECT_EQ(1, flushed.calls);
}

TEST_P(wakeup, signal)
{
    pair pair(GetParam());
    ucp_worker_h worker = pair.receiver().handle();
    const int fd        = fd_of(pair.receiver());
    pair.settle();

    /* after arm */
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_EQ(UCS_OK, ucp_worker_signal(worker));
    EXPECT_TRUE(is_readable(fd));
    EXPECT_TRUE(is_readable(fd)) << "level-triggered";
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_FALSE(is_readable(fd));

    /* before wait: not lost */
    EXPECT_EQ(UCS_OK, ucp_worker_signal(worker));
    EXPECT_EQ(UCS_OK, ucp_worker_wait(worker));

    /* many are one */
    for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(UCS_OK, ucp_worker_signal(worker));
    }
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_FALSE(is_readable(fd));
}

TEST_P(wakeup, signal_from_another_thread_ends_wait)
{
    pair pair(GetParam());
    ucp_worker_h worker = pair.receiver().handle();
    fd_of(pair.receiver());
    for (int i = 0; i < 20; ++i) {
        std::thread other([&]() {
            if (i & 1) {
                usleep(500);
            }
            EXPECT_EQ(UCS_OK, ucp_worker_signal(worker));
        });
        pair.receiver().progress();
        EXPECT_EQ(UCS_OK, ucp_worker_wait(worker));
        other.join();
        while (pair.receiver().progress() > 0) {
        }
    }
}

/* Two threads, each sleeping whenever its worker has nothing to do: no message may find its
 * receiver asleep for ever, whatever the moment. */
TEST_P(wakeup, random_races)
{
    if (GetParam().is_self) {
        GTEST_SKIP() << "who sends to itself is awake";
    }
    pair pair(GetParam());
    ucp_ep_h back       = pair.ep_back();
    const int COUNT     = is_polled() ? 50 : 1500;
    std::atomic<int> num_wrong{0};
    const auto run = [&](worker &self, ucp_ep_h ep, uint64_t seed, bool begins) {
        std::mt19937_64 random(seed);
        const int fd                    = fd_of(self);
        const ucp_request_param_t param = send_param(nullptr);
        bytes data(70000), buffer(70000);
        const auto wait = [&](void *request) {
            while (UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request)) {
                if (self.progress() > 0) {
                    continue;
                }
                const ucs_status_t status = ucp_worker_arm(self.handle());
                if (status == UCS_ERR_BUSY) {
                    continue;
                }
                if ((status != UCS_OK) || !is_readable(fd, PATIENCE_MS)) {
                    ++num_wrong;
                    return;
                }
            }
            if (UCS_PTR_IS_PTR(request)) {
                num_wrong += (ucp_request_check_status(request) != UCS_OK);
                ucp_request_free(request);
            }
        };

        for (int i = 0; (i < COUNT) && (num_wrong == 0); ++i) {
            const size_t length = (random() % 16 == 0) ? random() % 60000 : random() % 200;
            void *received =
                ucp_tag_recv_nbx(self.handle(), buffer.data(), buffer.size(), i, ~0ull, &param);
            if (!begins) {
                wait(received);
            }
            for (uint64_t spin = random() % 2000; spin > 0; --spin) {
                std::atomic_signal_fence(std::memory_order_seq_cst);
            }
            wait(ucp_tag_send_nbx(ep, data.data(), length, i, &param));
            if (begins) {
                wait(received);
            }
        }
    };
    std::thread other([&]() { run(pair.receiver(), back, 401, false); });
    run(pair.sender(), pair.ep(), 402, true);
    other.join();
    EXPECT_EQ(0, num_wrong);
}

/* The descriptor of the user's own: events carry the user's data, get_efd has nothing to give. */
TEST_P(wakeup, reports_on_a_descriptor_of_the_user)
{
    pair pair(GetParam());
    const int set = epoll_create1(EPOLL_CLOEXEC);
    int mark      = 0;
    ucp_worker_params_t params;
    memset(&params, 0xee, sizeof(params));
    params.field_mask  = UCP_WORKER_PARAM_FIELD_EVENT_FD | UCP_WORKER_PARAM_FIELD_USER_DATA |
                        UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
    params.event_fd    = set;
    params.user_data   = &mark;
    params.thread_mode = GetParam().mode;
    params.events      = UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_RX;
    ucp_worker_h worker;
    ASSERT_EQ(UCS_OK, ucp_worker_create(pair.ctx().handle(), &params, &worker));
    int fd = -77;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_worker_get_efd(worker, &fd));
    EXPECT_EQ(-77, fd);

    struct epoll_event event = {};
    while (ucp_worker_arm(worker) == UCS_ERR_BUSY) {
        ucp_worker_progress(worker);
    }
    EXPECT_EQ(0, epoll_wait(set, &event, 1, 0));
    EXPECT_EQ(UCS_OK, ucp_worker_signal(worker));
    EXPECT_EQ(1, epoll_wait(set, &event, 1, PATIENCE_MS));
    EXPECT_EQ(&mark, event.data.ptr);
    ucp_worker_destroy(worker);
    EXPECT_EQ(0, epoll_wait(set, &event, 1, 0));
    close(set);

    /* One that is no set of events cannot be used. */
    params.event_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ucp_worker_h none = nullptr;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_worker_create(pair.ctx().handle(), &params, &none));
    EXPECT_EQ(nullptr, none);
    close(params.event_fd);
    take_log();
}

/* The first signal may be the first use of all, from several threads at once. */
TEST_P(wakeup, the_first_signal_races_with_the_first_wait)
{
    for (int i = 0; i < 30; ++i) {
        pair pair(GetParam());
        ucp_worker_h worker = pair.receiver().handle();
        std::vector<std::thread> others;
        for (int n = 0; n < 3; ++n) {
            others.emplace_back([=]() { EXPECT_EQ(UCS_OK, ucp_worker_signal(worker)); });
        }
        EXPECT_EQ(UCS_OK, ucp_worker_wait(worker));
        for (std::thread &other : others) {
            other.join();
        }
    }
}

TEST_P(wakeup, wait_mem_ends_by_itself)
{
    pair pair(GetParam());
    ucp_worker_h worker = pair.receiver().handle();
    std::atomic<uint64_t> word{0};
    for (int i = 0; i < 10; ++i) {
        ucp_worker_wait_mem(worker, &word); /* nobody changes it */
    }
    std::thread other([&]() { word = 1; });
    while (word == 0) {
        ucp_worker_wait_mem(worker, &word);
    }
    other.join();
    /* the last bytes of a page, at any alignment */
    char *page = static_cast<char *>(aligned_alloc(4096, 4096));
    memset(page, 0, 4096);
    for (int back : {1, 2, 3, 4, 8}) {
        ucp_worker_wait_mem(worker, page + 4096 - back);
    }
    free(page);
}

/* Under a clock of which each look takes a microsecond, and at one of which something happens. */
class wakeup_look : public testing::Test {
protected:
    static constexpr uint64_t LOOK_NS = 30000, SHORT_NS = 10000, LATE_NS = 100000;

    void TearDown() override
    {
        ucs_sys_set(nullptr);
    }

    /* How long it takes to arm the worker, and (*status_p) what comes of it. */
    static uint64_t arm(pair &pair, ucs_status_t *status_p)
    {
        while (pair.receiver().progress() > 0) {
        }
        const uint64_t start = s_now_ns;
        *status_p            = ucp_worker_arm(pair.receiver().handle());
        return s_now_ns - start;
    }

    static bool looks(pair &pair)
    {
        ucs_status_t status;
        const uint64_t ns = arm(pair, &status);
        EXPECT_EQ(UCS_OK, status);
        EXPECT_TRUE((ns < SHORT_NS) || (ns >= LOOK_NS)) << ns;
        return ns >= LOOK_NS;
    }

    /* A message that comes that long after the worker was armed. */
    static void message(pair &pair, uint64_t after_ns)
    {
        uint64_t got   = 0;
        void *received = pair.receive(&got, sizeof(got), 1);
        (void)looks(pair);
        s_now_ns += after_ns;
        EXPECT_EQ(UCS_OK, pair.wait(pair.send(&s_value, sizeof(s_value), 1)));
        EXPECT_EQ(UCS_OK, pair.wait(received));
    }

    void stop_clock(pair &pair)
    {
        uint64_t got   = 0;
        void *received = pair.receive(&got, sizeof(got), 1);
        EXPECT_EQ(UCS_OK, pair.wait(pair.send(&s_value, sizeof(s_value), 1))); /* they connect */
        EXPECT_EQ(UCS_OK, pair.wait(received));
        std::this_thread::sleep_for(std::chrono::milliseconds(2)); /* arming is busy for so long */
        for (ucs_status_t status = UCS_ERR_BUSY; status != UCS_OK;) {
            (void)arm(pair, &status);
        }
        s_now_ns   = ucs_sys_real.clock_ns() + (10 * LATE_NS);
        m_ops      = ucs_sys_real;
        s_tick     = nullptr;
        s_ticks    = 0;
        m_ops.clock_ns = []() -> uint64_t {
            if ((s_ticks > 0) && (--s_ticks == 0)) {
                s_tick();
            }
            return s_now_ns += 1000;
        };
        ucs_sys_set(&m_ops);
        message(pair, LATE_NS);
    }

    static std::atomic<uint64_t> s_now_ns;
    static std::function<void()> s_tick;
    static unsigned s_ticks;
    static const uint64_t s_value;
    ucs_sys_ops_t m_ops;
};

std::atomic<uint64_t> wakeup_look::s_now_ns;
std::function<void()> wakeup_look::s_tick;
unsigned wakeup_look::s_ticks;
const uint64_t wakeup_look::s_value = 5;

/* Who is woken soon looks before it sleeps, as long as that finds something. */
TEST_F(wakeup_look, what_comes_soon_is_looked_for)
{
    for (ucs_thread_mode_t mode : {UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_MULTI}) {
        pair pair({"mm", {{"UCX_TLS", "mm"}}, false, mode});
        stop_clock(pair);
        EXPECT_FALSE(looks(pair)) << "messages come late";
        message(pair, 0);
        for (int i = 0; i < 4; ++i) {
            EXPECT_TRUE(looks(pair)) << i;
        }
        EXPECT_FALSE(looks(pair)) << "all was in vain";

        message(pair, 0);
        EXPECT_FALSE(looks(pair)) << "once is not enough any more";
        message(pair, LATE_NS);
        message(pair, 0);
        EXPECT_FALSE(looks(pair)) << "one was late between";
        message(pair, 0);
        EXPECT_TRUE(looks(pair));

        /* amid the look */
        uint64_t got = 0;
        ucs_status_t status;
        void *received = pair.receive(&got, sizeof(got), 1);
        void *sent     = nullptr;
        s_tick         = [&]() { sent = pair.send(&s_value, sizeof(s_value), 1); };
        s_ticks        = 8;
        const uint64_t ns = arm(pair, &status);
        EXPECT_EQ(UCS_ERR_BUSY, status);
        EXPECT_LT(ns, LOOK_NS);
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        for (int i = 0; i < 4; ++i) {
            EXPECT_TRUE(looks(pair)) << i;
        }
        EXPECT_FALSE(looks(pair));
        ucs_sys_set(nullptr);
    }
}

/* What the progress of another thread takes while one looks: that one may wait for it, too. */
TEST_F(wakeup_look, another_thread_takes_what_comes)
{
    pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_MULTI});
    stop_clock(pair);
    message(pair, 0);
    EXPECT_TRUE(looks(pair));

    uint64_t got = 0;
    ucs_status_t status;
    void *received = pair.receive(&got, sizeof(got), 1);
    s_tick         = [&]() {
        EXPECT_EQ(UCS_OK, pair.wait(pair.send(&s_value, sizeof(s_value), 1)));
        while (ucp_request_check_status(received) == UCS_INPROGRESS) {
            pair.receiver().progress();
        }
    };
    s_ticks = 8;
    (void)arm(pair, &status);
    EXPECT_EQ(UCS_ERR_BUSY, status);
    EXPECT_EQ(UCS_OK, pair.wait(received));
}

/* Who wants to sleep does, and so do more processes than processors. */
TEST_F(wakeup_look, not_where_processors_are_shared)
{
    for (const char *idle : {"sleep", "yield"}) {
        pair pair({"mm", {{"UCX_TLS", "mm"}, {"UCX_IDLE", idle}}, false, UCS_THREAD_MODE_SINGLE});
        stop_clock(pair);
        for (int i = 0; i < 10; ++i) {
            message(pair, 0);
            EXPECT_FALSE(looks(pair));
        }
        ucs_sys_set(nullptr);
    }
}

/* A ring of a few lines that are given back by halves, and a message that takes two thirds. */
class wakeup_lines : public wakeup {
protected:
    /* The sender sleeps with the ring full and that message waiting, until half of it is free. */
    void SetUp() override
    {
        ucp_request_param_t at_once = {};
        at_once.op_attr_mask        = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
        m_pair.reset(new pair(GetParam()));
        void *sent = m_pair->send(&m_value, sizeof(m_value), 1);
        EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->receive(&m_value, sizeof(m_value), 1)));
        EXPECT_EQ(UCS_OK, m_pair->wait(sent));
        m_pair->settle();
        while (ucp_tag_send_nbx(m_pair->ep(), &m_value, sizeof(m_value), 1, &at_once) == nullptr) {
            ++m_count;
        }
        m_sent = m_pair->send(m_data.data(), m_data.size(), 2);
        ASSERT_TRUE(UCS_PTR_IS_PTR(m_sent));
        ASSERT_NO_FATAL_FAILURE(progress_and_arm(m_pair->sender()));
        ASSERT_FALSE(is_awake());
        for (unsigned i = 0; (i < m_count) && !is_awake(); ++i) {
            m_pair->receiver().progress();
        }
        ASSERT_TRUE(is_awake());
    }

    bool is_awake()
    {
        return is_readable(fd_of(m_pair->sender()));
    }

    /* The receiver takes all that is there, then the sender goes on. */
    void expect_the_rest()
    {
        bytes got(m_data.size());
        for (unsigned i = 0; i < 2 * m_count; ++i) {
            m_pair->receiver().progress();
        }
        EXPECT_TRUE(is_awake()) << "it sleeps for ever";
        EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->receive(got.data(), got.size(), 2)));
        EXPECT_EQ(UCS_OK, m_pair->wait(m_sent));
        EXPECT_EQ(m_data, got);
        for (unsigned i = 0; i < m_count; ++i) {
            EXPECT_EQ(UCS_OK, m_pair->wait(m_pair->receive(&m_value, sizeof(m_value), 1)));
        }
        m_pair.reset();
    }

    std::unique_ptr<pair> m_pair;

private:
    const bytes m_data = pattern(1, 2500);
    uint64_t m_value   = 1;
    unsigned m_count   = 0;
    void *m_sent       = nullptr;
};

INSTANTIATE_TEST_SUITE_P(mm, wakeup_lines,
                         testing::Values(variant{"64",
                                                 {{"UCX_TLS", "mm"},
                                                  {"UCX_MM_FIFO_SIZE", "64"},
                                                  {"UCX_MM_FIFO_MAX_POLL", "1"},
                                                  {"UCX_MM_BUFFER_THRESH", "inf"},
                                                  {"UCX_RNDV_THRESH", "inf"}},
                                                 false,
                                                 UCS_THREAD_MODE_MULTI}),
                         variant_name);

/* Another thread makes progress and takes the signal that there is room, though too little for the
 * message. That there is more later nobody signals. */
TEST_P(wakeup_lines, a_signal_that_another_thread_took)
{
    for (int i = 0; (i < 100000) && is_awake(); ++i) {
        ASSERT_EQ(0u, m_pair->sender().progress());
    }
    expect_the_rest();
}

/* The same signal, taken by whoever arms again, wakes nobody. */
TEST_P(wakeup_lines, a_signal_that_arming_took)
{
    EXPECT_EQ(UCS_OK, ucp_worker_arm(m_pair->sender().handle()));
    EXPECT_FALSE(is_awake());
    expect_the_rest();
}

/* What programs do that is not in the book. */
class wakeup_habits : public wakeup {
protected:
    static void meet(pair &pair)
    {
        uint64_t value = 0, got = 1;
        void *sent = pair.send(&value, sizeof(value), 1);
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&got, sizeof(got), 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        pair.settle();
    }

    /* The receiver makes progress when its descriptor is readable, and does not arm it again. */
    static void talk(pair &pair, int fd, int rounds)
    {
        for (int i = 0; i < rounds; ++i) {
            uint64_t value = i + 1, got = 0;
            void *received = pair.receive(&got, sizeof(got), 1);
            void *sent     = pair.send(&value, sizeof(value), 1);
            int waited     = 0;
            while (!ucp_request_is_completed(received)) {
                pair.sender().progress();
                if (is_readable(fd, 1)) {
                    pair.receiver().progress();
                } else {
                    ASSERT_LT(++waited, PATIENCE_MS) << "round " << i << " sleeps for ever";
                }
            }
            EXPECT_EQ(UCS_OK, pair.wait(received));
            EXPECT_EQ(UCS_OK, pair.wait(sent));
            EXPECT_EQ(value, got);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(all, wakeup_habits, testing::ValuesIn(wakeup_variants()), variant_name);

/* UCXX arms once, and again after a second at the earliest: messages came one a second. */
TEST_P(wakeup_habits, arms_once)
{
    pair pair(GetParam());
    if (GetParam().is_self) {
        GTEST_SKIP() << "who sends to itself is awake";
    }
    meet(pair);
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    ASSERT_NO_FATAL_FAILURE(talk(pair, fd_of(pair.receiver()), 50));
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_TRUE(is_polled() || !is_readable(fd_of(pair.receiver()), 30)) << "quiet once armed";
}

/* Event loops have a set of theirs around that of a library around ours; the kernel allows five. */
TEST_P(wakeup_habits, in_two_sets_of_the_user)
{
    pair pair(GetParam());
    if (GetParam().is_self) {
        GTEST_SKIP() << "who sends to itself is awake";
    }
    const int inner          = epoll_create1(EPOLL_CLOEXEC);
    const int outer          = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {}};
    EXPECT_EQ(0, epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
    EXPECT_EQ(0, epoll_ctl(inner, EPOLL_CTL_ADD, fd_of(pair.receiver()), &event));
    meet(pair);
    ASSERT_NO_FATAL_FAILURE(progress_and_arm(pair.receiver()));
    EXPECT_FALSE(is_readable(outer));
    ASSERT_NO_FATAL_FAILURE(talk(pair, outer, 5));
    close(inner);
    close(outer);
}

} // namespace
