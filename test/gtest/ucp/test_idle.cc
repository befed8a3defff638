/* Halyard: tests of progress in vain: who gives the processor away, who sleeps, and that nothing is
 * slept through. The system is a table of the test's: its time passes as told, and calls count.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <seed.h>

#include <atomic>
#include <sched.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include <ucs/sys/sys.h>
}

using namespace ucp_test;

namespace {

std::atomic<uint64_t> g_now_ns, g_lost;
std::atomic<unsigned> g_yields, g_sleeps, g_slept_through;
uint64_t g_call_ns;  /* that a look at the clock takes */
uint64_t g_sleep_ns; /* and a sleep */
bool g_is_woken;     /* something ends each sleep */
bool g_others_run;   /* a yield lets somebody else run, */
uint64_t g_yield_ns; /* for so long */
std::atomic<bool> g_is_patient; /* who sleeps is woken or fails the test */

constexpr unsigned MANY    = 20000;
constexpr unsigned FEW     = 600;
constexpr int PATIENCE_MS  = 20000;
constexpr uint64_t SLICE_NS = 3000000;

int sleep_until_woken(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    const bool is_patient = g_is_patient && (timeout_ms > 0);

    g_sleeps     += (timeout_ms > 0);
    const int ret = ucs_sys_real.poll(fds, count, is_patient ? PATIENCE_MS : timeout_ms);
    g_slept_through += is_patient && (ret == 0);
    return ret;
}

class idle : public testing::Test {
protected:
    void SetUp() override
    {
        sched_getaffinity(0, sizeof(m_cpus), &m_cpus);
        g_now_ns   = ucs_sys_real.clock_ns();
        g_call_ns  = 100;
        g_sleep_ns = 1000000;
        g_lost     = 0;
        g_yields = g_sleeps = g_slept_through = 0;
        g_is_woken     = true;
        g_others_run   = true;
        g_yield_ns     = 0;
        g_is_patient   = false;
        m_ops          = ucs_sys_real;
        m_ops.clock_ns = []() -> uint64_t { return g_now_ns += g_call_ns; };
        m_ops.lost_turns  = []() -> uint64_t { return g_lost; };
        m_ops.sched_yield = []() {
            ++g_yields;
            g_lost   += g_others_run;
            g_now_ns += g_yield_ns;
            return 0;
        };
        m_ops.poll = [](struct pollfd *, nfds_t, int timeout_ms) {
            g_sleeps += (timeout_ms != 0);
            g_now_ns += g_sleep_ns;
            return (int)((timeout_ms != 0) && g_is_woken);
        };
        ucs_sys_set(&m_ops);
    }

    void TearDown() override
    {
        ucs_sys_set(nullptr);
        sched_setaffinity(0, sizeof(m_cpus), &m_cpus);
    }

    /* More processes than processors: the receiver and its peer have one. */
    static void use_one_cpu()
    {
        cpu_set_t cpus;

        CPU_ZERO(&cpus);
        CPU_SET(sched_getcpu(), &cpus);
        ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpus), &cpus));
    }

    static variant with(const std::string &mode, ucs_thread_mode_t threads)
    {
        return {"idle", {{"UCX_IDLE", mode}, {"UCX_TLS", "mm"}}, false, threads};
    }

    /* The other one has connected. Nothing of the way there counts. */
    static void meet(pair &pair)
    {
        uint64_t out = 5, in = 0;
        void *sent = pair.send(&out, sizeof(out), 1);

        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&in, sizeof(in), 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        pair.settle();
        g_yields = g_sleeps = 0;
    }

    static void progress_in_vain(worker &worker, unsigned count)
    {
        for (unsigned i = 0; i < count; ++i) {
            worker.progress();
        }
    }

    static void progress_in_vain(pair &pair, unsigned count)
    {
        progress_in_vain(pair.receiver(), count);
    }

    /* Another process gets the processor while we poll. */
    static void be_interrupted(worker &worker)
    {
        progress_in_vain(worker, 2048);
        g_lost   += 1;
        g_now_ns += SLICE_NS;
        progress_in_vain(worker, 1024);
    }

    static void be_interrupted(pair &pair)
    {
        be_interrupted(pair.receiver());
    }

    /* With the sender, which stands for another process until ucp_test_hide_workers(-1). */
    static void share_processor(pair &pair)
    {
        use_one_cpu();
        meet(pair);
        be_interrupted(pair);
        ucp_test_hide_workers(1);
    }

    ucs_sys_ops_t m_ops;
    cpu_set_t m_cpus;
};

TEST_F(idle, polls_while_nobody_else_wants_to_run)
{
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    use_one_cpu();
    meet(pair);
    for (int i = 0; i < 20; ++i) {
        progress_in_vain(pair, 3000);
        g_now_ns += SLICE_NS; /* the application computes */
    }
    EXPECT_EQ(0u, g_yields);
    EXPECT_EQ(0u, g_sleeps);
}

unsigned g_woken; /* sleeps that would have ended at once */

/* What keeps the descriptor readable until the next arm does not keep the library awake. */
TEST_F(idle, sleeps_between_an_event_and_the_next_arm)
{
    uint64_t out = 5, in = 0;
    int fd;

    g_woken    = 0;
    m_ops.poll = [](struct pollfd *fds, nfds_t count, int timeout_ms) {
        g_sleeps += (timeout_ms != 0);
        g_woken  += (timeout_ms != 0) && (ucs_sys_real.poll(fds, count, 0) > 0);
        g_now_ns += 1000000;
        return 0;
    };
    ucs_sys_set(&m_ops);
    pair pair(with("sleep", UCS_THREAD_MODE_SINGLE));
    meet(pair);
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(pair.receiver().handle(), &fd));
    while (ucp_worker_arm(pair.receiver().handle()) == UCS_ERR_BUSY) {
        pair.receiver().progress();
    }
    void *received = pair.receive(&in, sizeof(in), 1);
    EXPECT_EQ(UCS_OK, pair.wait(pair.send(&out, sizeof(out), 1)));
    EXPECT_EQ(UCS_OK, pair.wait(received));
    pair.settle();
    g_sleeps = g_woken = 0;
    progress_in_vain(pair, MANY);
    EXPECT_LT(0u, g_sleeps);
    EXPECT_EQ(0u, g_woken);
    struct pollfd event = {fd, POLLIN, 0};
    EXPECT_EQ(1, ucs_sys_real.poll(&event, 1, 0)) << "the user has not armed it";
    EXPECT_EQ(UCS_OK, ucp_worker_arm(pair.receiver().handle()));
    EXPECT_EQ(0, ucs_sys_real.poll(&event, 1, 0));
}

TEST_F(idle, polls_while_there_are_processors_for_all)
{
    if (CPU_COUNT(&m_cpus) < 2) {
        GTEST_SKIP() << "needs two processors";
    }
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    meet(pair);
    be_interrupted(pair); /* by somebody's daemon */
    progress_in_vain(pair, MANY);
    EXPECT_EQ(0u, g_yields);
    EXPECT_EQ(0u, g_sleeps);
}

/* Where strangers have had the processor a moment ago, what would be announced goes whole: it ends
 * without the receiver, for which it would wait a slice. */
TEST_F(idle, sends_whole_while_strangers_run)
{
    if (CPU_COUNT(&m_cpus) < 2) {
        GTEST_SKIP() << "needs two processors";
    }
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    bytes out = pattern(1, 30000), in(out.size());

    meet(pair);
    for (const bool is_crowded : {false, true, false}) {
        if (is_crowded) {
            be_interrupted(pair.sender());
        } else { /* 100 ms without them */
            g_now_ns += 200000000;
            progress_in_vain(pair.sender(), 2048);
        }
        /* Something long has come from the receiver, which just waits, for all that is known. */
        const ucp_request_param_t none = {};
        void *answer = ucp_tag_send_nbx(pair.ep_back(), out.data(), out.size(), 2, &none);
        void *posted = ucp_tag_recv_nbx(pair.sender().handle(), in.data(), in.size(), 2, ~0ull,
                                        &none);
        EXPECT_EQ(UCS_OK, pair.wait(posted));
        EXPECT_EQ(UCS_OK, pair.wait(answer));

        void *sent = pair.send(out.data(), out.size(), 1);
        progress_in_vain(pair.sender(), 10);
        EXPECT_EQ(is_crowded, !UCS_PTR_IS_PTR(sent) ||
                              (ucp_request_check_status(sent) == UCS_OK));
        EXPECT_EQ(UCS_OK, pair.wait(pair.receive(in.data(), in.size(), 1)));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        EXPECT_EQ(out, in);
    }
    EXPECT_EQ(0u, g_yields);
}

TEST_F(idle, yields_then_sleeps_while_others_run)
{
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    share_processor(pair);
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_yields, 100u);
    EXPECT_GT(g_sleeps, 100u);

    /* after a message it begins anew: by yielding */
    uint64_t out = 6, in = 0;
    void *received = pair.receive(&in, sizeof(in), 2);
    void *sent     = pair.send(&out, sizeof(out), 2);
    EXPECT_EQ(UCS_OK, pair.wait(received));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    g_yields = g_sleeps = 0;
    uint64_t before     = g_now_ns, now;
    do {
        now = g_now_ns;
        pair.receiver().progress();
    } while ((g_sleeps == 0) && (g_now_ns < before + 1000000));
    EXPECT_GE(g_yields, 2u);
    EXPECT_EQ(1u, g_sleeps);
    EXPECT_GT(now - before, 25000u) << "to wake a sleeper takes as long as many yields";

    /* nobody else runs any more: some last yields show it */
    g_others_run  = false;
    progress_in_vain(pair, MANY);
    g_now_ns     += 1000000;
    progress_in_vain(pair, MANY);
    g_yields = g_sleeps = 0;
    progress_in_vain(pair, MANY);
    EXPECT_EQ(0u, g_yields);
    EXPECT_EQ(0u, g_sleeps);
    ucp_test_hide_workers(-1);
}

/* A worker knows its master alone, and the master has other workers. */
TEST_F(idle, gives_away_where_its_peer_has_many_peers)
{
    if (CPU_COUNT(&m_cpus) < 2) {
        GTEST_SKIP() << "needs two processors";
    }
    cpu_set_t cpus = m_cpus;
    for (int cpu = 0; CPU_COUNT(&cpus) > 2; ++cpu) {
        CPU_CLR(cpu, &cpus);
    }
    ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpus), &cpus));

    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    const auto be_interrupted_and_wait = [&pair]() {
        be_interrupted(pair.sender());
        g_yields = 0;
        progress_in_vain(pair.sender(), MANY);
    };
    meet(pair);
    be_interrupted_and_wait();
    EXPECT_EQ(0u, g_yields) << "there are two of us";
    {
        worker other(pair.ctx());
        uint64_t out = 7, in = 0;
        ending sent;
        const ucp_request_param_t param = send_param(&sent);
        void *received = pair.receive(&in, sizeof(in), 3);
        void *request  = ucp_tag_send_nbx(other.connect(pair.receiver()), &out, sizeof(out), 3,
                                          &param);
        pair.progress_until([&]() {
            other.progress();
            return (ucp_request_check_status(received) != UCS_INPROGRESS) &&
                   (!UCS_PTR_IS_PTR(request) || (sent.calls > 0));
        });
        EXPECT_EQ(UCS_OK, pair.wait(received));
        be_interrupted_and_wait();
        EXPECT_GT(g_yields, 100u) << "there are three of us";
    }
}

/* The kernel moves processes from one processor to another: nobody sleeps on one that would sleep
 * too, and nobody keeps it from others before they have stayed away for long. */
TEST_F(idle, on_a_processor_that_nobody_else_wants_it_only_yields)
{
    g_sleep_ns = 1000;
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    share_processor(pair);
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_sleeps, 100u);

    g_others_run = false;
    progress_in_vain(pair, 2 * MANY); /* more than a millisecond */
    g_yields = g_sleeps = 0;
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_yields, 50u);
    EXPECT_EQ(0u, g_sleeps);

    g_others_run = true;
    progress_in_vain(pair, FEW);
    g_sleeps = 0;
    progress_in_vain(pair, FEW);
    EXPECT_GT(g_sleeps, 10u) << "one yield is enough to see that somebody runs";

    g_others_run = false;
    progress_in_vain(pair, 2 * MANY);
    g_now_ns += 100000000;
    progress_in_vain(pair, MANY);
    g_yields = g_sleeps = 0;
    progress_in_vain(pair, MANY);
    EXPECT_EQ(0u, g_yields);
    EXPECT_EQ(0u, g_sleeps);
    ucp_test_hide_workers(-1);
}

/* A yield costs a slice there, and who is woken is let in. */
TEST_F(idle, beside_somebody_who_keeps_the_processor_it_sleeps_at_once)
{
    g_sleep_ns = 1000;
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    share_processor(pair);
    for (const uint64_t yield_ns : {(uint64_t)600000, SLICE_NS}) { /* a peer's turn, another's */
        g_yield_ns = yield_ns;
        progress_in_vain(pair, MANY);
        g_yields = g_sleeps = 0;
        progress_in_vain(pair, FEW);
        EXPECT_EQ(yield_ns == SLICE_NS, g_yields == 0) << yield_ns;
        EXPECT_GT(g_sleeps, 10u);
    }

    g_now_ns  += 100000000; /* has he gone? */
    g_yield_ns = 0;
    g_yields = g_sleeps = 0;
    progress_in_vain(pair, FEW);
    EXPECT_GT(g_yields, 10u);
    ucp_test_hide_workers(-1);
}

/* MPI_Iprobe and MPI_Test between short pieces of work, by somebody who waits for nothing. */
TEST_F(idle, an_application_that_only_looks_is_not_put_to_sleep_time_and_again)
{
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    share_processor(pair);
    g_is_woken = false;
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_sleeps, 5u) << "it may be a long wait";
    EXPECT_LT(g_sleeps, 20u);
    EXPECT_GT(g_yields, 100u);

    g_now_ns += 100000000;
    g_is_woken = true; /* it was */
    g_sleeps   = 0;
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_sleeps, 100u);
    ucp_test_hide_workers(-1);
}

/* What comes for another worker, or is stored into shared memory, wakes nobody. */
TEST_F(idle, only_yields_where_something_may_come_that_wakes_nobody)
{
    context_options options;
    options.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE), options);
    use_one_cpu();
    meet(pair);
    be_interrupted(pair);
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_yields, 100u);
    EXPECT_EQ(0u, g_sleeps) << "two workers";

    ucp_test_hide_workers(1);
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_sleeps, 100u);

    ucp_mem_map_params_t params = {};
    ucp_mem_h mem               = nullptr;
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length     = 4096;
    params.flags      = UCP_MEM_MAP_ALLOCATE;
    ASSERT_EQ(UCS_OK, ucp_mem_map(pair.ctx().handle(), &params, &mem));
    ucp_mem_attr_t attr;
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    ASSERT_EQ(UCS_OK, ucp_mem_query(mem, &attr));
    void *packed  = nullptr;
    size_t length = 0;
    ucp_rkey_h rkey;
    ASSERT_EQ(UCS_OK, ucp_rkey_pack(pair.ctx().handle(), mem, &packed, &length));
    g_sleeps = 0;
    progress_in_vain(pair, MANY);
    EXPECT_EQ(0u, g_sleeps) << "memory that peers may write";
    ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(pair.ep(), packed, &rkey));
    void *mapped = nullptr;
    ASSERT_EQ(UCS_OK, ucp_rkey_ptr(rkey, (uintptr_t)attr.address, &mapped));
    ucp_rkey_buffer_release(packed);
    ASSERT_EQ(UCS_OK, ucp_mem_unmap(pair.ctx().handle(), mem));
    progress_in_vain(pair, MANY);
    EXPECT_EQ(0u, g_sleeps) << "mapped memory of a peer";

    ucp_rkey_destroy(rkey);
    progress_in_vain(pair, MANY);
    EXPECT_GT(g_sleeps, 100u);
    ucp_test_hide_workers(-1);
}

TEST_F(idle, an_application_that_works_between_calls_keeps_its_processor)
{
    pair pair(with("sleep", UCS_THREAD_MODE_SINGLE));
    meet(pair);
    for (unsigned i = 0; i < MANY; ++i) {
        g_now_ns += 5000;
        pair.receiver().progress();
    }
    EXPECT_EQ(0u, g_yields);
    EXPECT_EQ(0u, g_sleeps);
}

/* The application gives its processor away by itself, after each call in vain, and gets messages
 * now and then: it is seen to share its processor, without a yield of the library's. */
TEST_F(idle, an_application_that_yields_by_itself_shares_its_processor)
{
    pair pair(with("auto", UCS_THREAD_MODE_SINGLE));
    use_one_cpu();
    meet(pair);
    progress_in_vain(pair, FEW);
    EXPECT_EQ(0u, g_yields) << "nobody has run meanwhile";
    for (unsigned i = 0; i < 200; ++i) {
        uint64_t out = 5, in = 0;
        void *received = pair.receive(&in, sizeof(in), 1);
        EXPECT_EQ(UCS_OK, pair.wait(pair.send(&out, sizeof(out), 1)));
        EXPECT_EQ(UCS_OK, pair.wait(received));
        for (unsigned k = 0; k < 20; ++k) {
            pair.receiver().progress();
            g_now_ns += 5000;
            ++g_lost;
        }
    }
    EXPECT_EQ(0u, g_yields);
    progress_in_vain(pair, FEW);
    EXPECT_GT(g_yields, 0u);
}

/* How many of the lengths went whole: their sends ended though the receiver did nothing. */
unsigned whole_ones(const settings &env, std::initializer_list<size_t> lengths, bool sync = false)
{
    pair pair({"idle", env, false, UCS_THREAD_MODE_SINGLE});
    uint64_t out = 5, in = 0;
    unsigned count = 0;

    void *sent = pair.send(&out, sizeof(out), 1);
    EXPECT_EQ(UCS_OK, pair.wait(pair.receive(&in, sizeof(in), 1)));
    EXPECT_EQ(UCS_OK, pair.wait(sent));
    pair.settle();
    for (size_t length : lengths) {
        for (bool is_expected : {false, true}) {
            const bytes data = pattern(length, length);
            guarded dest(length);
            void *recv = is_expected ? pair.receive(dest.data(), length, length) : nullptr;
            sent       = pair.send(data.data(), length, length, sync);
            count     += (sent == nullptr);
            if (!is_expected) {
                pair.settle(); /* it is kept */
                recv = pair.receive(dest.data(), length, length);
            }
            EXPECT_EQ(UCS_OK, pair.wait(recv));
            EXPECT_EQ(UCS_OK, pair.wait(sent));
            EXPECT_EQ(-1, differs(dest.data(), length, length)) << length;
            EXPECT_TRUE(dest.is_intact());
        }
    }
    return count;
}

/* Announced messages wait for the receiver, who has no processor: those of up to 32 KiB go whole,
 * as far as there is room and the user has not said from where on they are announced. */
TEST(idle_long, messages_wait_for_nobody_where_processors_are_shared)
{
    const std::pair<std::string, std::string> shared{"UCX_IDLE", "yield"},
        alone{"UCX_IDLE", "poll"}, mm{"UCX_TLS", "mm"};

    EXPECT_EQ(6u, whole_ones({mm, shared}, {12000, 20000, 32768}));
    EXPECT_EQ(0u, whole_ones({mm, shared}, {32769, 131072, 1000000}));
    EXPECT_EQ(0u, whole_ones({mm, alone}, {32769, 65536, 131072}));
    EXPECT_EQ(0u, whole_ones({mm, shared}, {20000, 32768}, true)) << "synchronous ones do wait";
    EXPECT_EQ(2u, whole_ones({mm, shared, {"UCX_RNDV_THRESH", "30000"}}, {29999, 30000, 131072}));
    EXPECT_EQ(4u, whole_ones({mm, alone, {"UCX_RNDV_THRESH", "inf"}}, {29999, 131072, 131073}));
    EXPECT_EQ(0u, whole_ones({mm, shared, {"UCX_MM_BUFFER_THRESH", "inf"}}, {12000, 32768}));
}

/* Tagged messages either way, one after the other. */
class middle_messages {
public:
    static constexpr size_t LENGTH = 20000, MORE = 65537;

    /* The first has so many other peers. */
    explicit middle_messages(unsigned num_others = 0)
        : m_pair({"middle", {{"UCX_TLS", "mm"}, {"UCX_IDLE", "poll"}}, false,
                  UCS_THREAD_MODE_SINGLE}), m_data(pattern(1, MORE)), m_dest(MORE)
    {
        for (unsigned i = 0; i < num_others; ++i) {
            m_others.push_back(std::make_unique<worker>(m_pair.ctx()));
            EXPECT_NE(nullptr, m_pair.sender().connect(*m_others.back()));
        }
        (void)is_whole(false, 8);
        (void)is_whole(true, 8);
    }

    /* Sends one, which is received: was it sent whole, without a word of the receiver's? */
    bool is_whole(bool back, size_t length)
    {
        worker &to                      = back ? m_pair.sender() : m_pair.receiver();
        const ucp_ep_h ep               = back ? m_pair.ep_back() : m_pair.ep();
        const ucp_request_param_t plain = {};
        void *sent = ucp_tag_send_nbx(ep, m_data.data(), length, 1, &plain);
        void *recv = ucp_tag_recv_nbx(to.handle(), m_dest.data(), length, 1, ~0ull, &plain);
        EXPECT_EQ(UCS_OK, m_pair.wait(recv));
        EXPECT_EQ(UCS_OK, m_pair.wait(sent));
        EXPECT_EQ(0, memcmp(m_data.data(), m_dest.data(), length));
        return sent == nullptr;
    }

    /* The same, from the first to the second, while so many receives wait at the first. */
    bool is_whole_beside(unsigned receives, size_t length)
    {
        const ucp_request_param_t plain = {};
        std::vector<ucs_status_ptr_t> recvs;
        char other;

        for (unsigned i = 0; i < receives; ++i) {
            recvs.push_back(ucp_tag_recv_nbx(m_pair.sender().handle(), &other, 1, 77, ~0ull,
                                             &plain));
        }
        const bool is = is_whole(false, length);
        for (const ucs_status_ptr_t recv : recvs) {
            void *sent = ucp_tag_send_nbx(m_pair.ep_back(), "x", 1, 77, &plain);
            EXPECT_EQ(UCS_OK, m_pair.wait(recv));
            EXPECT_EQ(UCS_OK, m_pair.wait(sent));
        }
        return is;
    }

    /* The same, while one receive waits at the first and so many others have found their messages,
     * announced before, and have not read them. */
    bool is_whole_amid(unsigned receives, size_t length)
    {
        const ucp_request_param_t plain = {};
        std::vector<ucs_status_ptr_t> requests;
        const bytes out(200000);
        bytes in(out.size());

        for (unsigned i = 0; i < receives; ++i) {
            requests.push_back(ucp_tag_send_nbx(m_pair.ep_back(), out.data(), out.size(), 78,
                                                &plain));
        }
        for (unsigned i = 0; i < 100; ++i) {
            (void)ucp_worker_progress(m_pair.sender().handle());
        }
        for (unsigned i = 0; i < receives; ++i) {
            requests.push_back(ucp_tag_recv_nbx(m_pair.sender().handle(), in.data(), in.size(), 78,
                                                ~0ull, &plain));
            EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(requests.back()));
        }
        const bool is = is_whole_beside(1, length);
        for (const ucs_status_ptr_t request : requests) {
            EXPECT_EQ(UCS_OK, m_pair.wait(request));
        }
        return is;
    }

private:
    pair m_pair;
    std::vector<std::unique_ptr<worker>> m_others;
    const bytes m_data;
    bytes m_dest;
};

/* With a processor for everybody: a message of middle length is announced to who waits for it, that
 * is who has sent one since the last one to it, while no receive waits here. */
TEST_F(idle, messages_to_who_does_not_wait)
{
    constexpr size_t LENGTH = middle_messages::LENGTH;
    middle_messages m(2);

    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_FALSE(m.is_whole(false, LENGTH));
        EXPECT_FALSE(m.is_whole(true, LENGTH));
    }
    EXPECT_FALSE(m.is_whole(false, LENGTH));
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_TRUE(m.is_whole(false, LENGTH)) << "one way";
        (void)m.is_whole(true, 100); /* no answer */
    }
    EXPECT_FALSE(m.is_whole(false, middle_messages::MORE));
    (void)m.is_whole(true, 12000);
    EXPECT_FALSE(m.is_whole(false, LENGTH)) << "an answer";

    (void)m.is_whole(true, LENGTH);
    EXPECT_TRUE(m.is_whole_beside(1, LENGTH)) << "a receive waits";
    (void)m.is_whole(true, LENGTH);
    EXPECT_FALSE(m.is_whole(false, LENGTH));
}

/* Longer ones whose copy takes its time by how many receives wait: one as for an answer, as many as
 * in a group that exchanges with everybody; not around a ring, nor among a few neighbours, in
 * windows, or between two. None in a large such group. */
TEST_F(idle, messages_beside_receives_that_wait)
{
    const struct {
        unsigned receives;
        bool is_answered;
        unsigned peers, peers_long; /* so many make it go whole; 0: none do */
    } cases[] = {{0, true, 0, 0}, {0, false, 1, 3}, {1, true, 3, 0}, {1, false, 0, 0},
                 {2, true, 0, 0}, {2, false, 0, 0}, {8, true, 0, 0}, {8, false, 0, 0},
                 {9, true, 9, 9}, {9, false, 9, 9}, {10, true, 10, 10},
                 {17, true, 0, 0}, {17, false, 0, 0}};

    for (const unsigned copy_ns : {1000, 1700}) {
        for (const unsigned peers : {1, 2, 3, 8, 9, 17}) {
            middle_messages m(peers - 1);
            g_call_ns = copy_ns;
            for (unsigned i = 0; i < 50; ++i) {
                (void)m.is_whole(false, 16384); /* how long it takes is known */
            }
            for (const size_t length : {16384, 16385, 32768, 32769, 65536}) {
                for (const auto &one : cases) {
                    const bool is_crowd = (one.receives > 16) && (one.receives <= peers);
                    const bool is_any =
                        !is_crowd &&
                        ((length == 16384) || ((length <= 32768) && (copy_ns < 1500)));
                    SCOPED_TRACE(testing::Message()
                                 << length << " bytes, " << one.receives << " receives, "
                                 << (one.is_answered ? "" : "not ") << "answered, " << peers);
                    const unsigned enough = (length > 32768) ? one.peers_long : one.peers;
                    (void)m.is_whole(false, length);
                    if (one.is_answered) {
                        (void)m.is_whole(true, length);
                    }
                    EXPECT_EQ(is_any ? (one.receives > 0) || !one.is_answered :
                                       (enough != 0) && (peers >= enough),
                              m.is_whole_beside(one.receives, length));
                }
            }
        }
    }
}

/* Who comes late to such a group finds the messages of the others announced. */
TEST_F(idle, messages_beside_receives_that_read)
{
    constexpr unsigned PEERS = 17;
    middle_messages m(PEERS - 1);

    for (unsigned receives = 1; receives <= PEERS; ++receives) {
        SCOPED_TRACE(receives);
        EXPECT_EQ(receives + 1 != PEERS, m.is_whole_amid(receives, 16384));
    }
}

/* Nor where the copy takes longer than to wait: those are tried again once in a while. */
TEST_F(idle, slow_messages_to_who_does_not_wait)
{
    constexpr size_t LENGTH = middle_messages::LENGTH;
    middle_messages m;
    unsigned whole = 0;

    (void)m.is_whole(false, LENGTH);
    g_call_ns = 3000;
    for (unsigned i = 0; i < 100; ++i) {
        EXPECT_TRUE(m.is_whole(false, LENGTH)) << "fast enough";
    }
    g_call_ns = 10000;
    for (unsigned i = 0; i < 300; ++i) {
        whole += m.is_whole(false, LENGTH);
    }
    EXPECT_GE(whole, 4u);
    EXPECT_LE(whole, 4u + 20);
    g_call_ns = 1000;
    for (unsigned i = 0; i < 64; ++i) {
        (void)m.is_whole(false, LENGTH);
    }
    EXPECT_TRUE(m.is_whole(false, LENGTH)) << "it has got faster";
}

TEST_F(idle, modes)
{
    const struct {
        const char *name;
        ucs_thread_mode_t threads;
        bool yields, sleeps;
    } cases[] = {
        {"poll", UCS_THREAD_MODE_SINGLE, false, false},
        {"yield", UCS_THREAD_MODE_SINGLE, true, false},
        {"sleep", UCS_THREAD_MODE_SINGLE, true, true},
        {"sleep", UCS_THREAD_MODE_MULTI, true, false},
    };

    use_one_cpu();
    for (const auto &each : cases) {
        SCOPED_TRACE(each.name);
        pair pair(with(each.name, each.threads));
        meet(pair);
        be_interrupted(pair);
        progress_in_vain(pair, MANY);
        EXPECT_EQ(each.yields, g_yields > 0);
        EXPECT_EQ(each.sleeps, g_sleeps > 0);
    }
}

/* A sleep ends by what wakes it, or not at all here: what is missed takes the whole patience. */
class idle_wakes : public idle {
protected:
    void SetUp() override
    {
        idle::SetUp();
        m_ops.clock_ns    = ucs_sys_real.clock_ns;
        m_ops.lost_turns  = ucs_sys_real.lost_turns;
        m_ops.sched_yield = []() { return 0; }; /* who else runs here must not be why none sleeps */
        m_ops.poll        = sleep_until_woken;
    }

    void TearDown() override
    {
        EXPECT_EQ(0u, g_slept_through);
        idle::TearDown();
    }

    static void wait_asleep(worker &self, void *request)
    {
        while (UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request)) {
            self.progress();
        }
        if (UCS_PTR_IS_PTR(request)) {
            EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
            ucp_request_free(request);
        }
    }
};

TEST_F(idle_wakes, messages_of_all_sizes_at_random_moments)
{
    constexpr int COUNT = 2000;
    pair pair(with("sleep", UCS_THREAD_MODE_SINGLE));
    ucp_ep_h back  = pair.ep_back();
    const auto run = [&](worker &self, ucp_ep_h ep, uint64_t seed, bool begins) {
        const ucp_request_param_t param = {};
        seeded_random random(seed);
        bytes data(300000), buffer(300000);

        for (int i = 0; i < COUNT; ++i) {
            const size_t length = random.one_in(32) ? random.below(300000) : random.below(200);
            void *received =
                ucp_tag_recv_nbx(self.handle(), buffer.data(), buffer.size(), i, ~0ull, &param);

            if (!begins) {
                wait_asleep(self, received);
            }
            const uint64_t most = random.one_in(4) ? 500000 : 20000; /* they sleep after 30 us */
            for (uint64_t spin = random.below(most); spin > 0; --spin) {
                std::atomic_signal_fence(std::memory_order_seq_cst);
            }
            wait_asleep(self, ucp_tag_send_nbx(ep, data.data(), length, i, &param));
            if (begins) {
                wait_asleep(self, received);
            }
        }
    };
    g_is_patient = true;
    ucp_test_hide_workers(1); /* each thread stands for a process */
    std::thread other([&]() { run(pair.receiver(), back, 77, false); });
    run(pair.sender(), pair.ep(), 78, true);
    other.join();
    ucp_test_hide_workers(-1);
    g_is_patient = false;
    EXPECT_GT(g_sleeps, 50u);
}

TEST_F(idle_wakes, a_signal_and_a_new_peer)
{
    pair pair(with("sleep", UCS_THREAD_MODE_SINGLE));
    meet(pair);
    int fd = -1;
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(pair.receiver().handle(), &fd));

    std::atomic<bool> is_over{false};
    g_is_patient = true;
    std::thread sleeper([&]() {
        while (!is_over) {
            pair.receiver().progress();
        }
    });
    while (g_sleeps == 0) {
        usleep(100);
    }
    is_over = true;
    EXPECT_EQ(UCS_OK, ucp_worker_signal(pair.receiver().handle()));
    sleeper.join();
    g_is_patient = false;

    /* one that it has never heard of connects while it sleeps */
    EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(pair.receiver().handle()));
    uint64_t out = 9, in = 0;
    void *received = pair.receive(&in, sizeof(in), 3);
    g_sleeps       = 0;
    g_is_patient   = true;
    std::thread waiter([&]() { wait_asleep(pair.receiver(), received); });
    while (g_sleeps == 0) {
        usleep(100);
    }
    worker stranger(pair.ctx());
    ucp_ep_h ep                     = stranger.connect(pair.receiver());
    const ucp_request_param_t param = {};
    wait_asleep(stranger, ucp_tag_send_nbx(ep, &out, sizeof(out), 3, &param));
    wait_asleep(stranger, ucp_ep_flush_nbx(ep, &param));
    waiter.join();
    g_is_patient = false;
    EXPECT_EQ(9u, in);
}

} // namespace
