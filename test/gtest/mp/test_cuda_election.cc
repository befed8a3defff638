/* Halyard: two processes on one device, of which the elected one, here always the sender, is to do
 * the copies: where it is busy the other one takes them, each message is copied once by one of
 * them, and whatever fails or dies on the way ends as ever.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_side.h"
#include "fake_sys.h"
#include "restrict.h"
#include "seed.h"

#include <memory>
#include <sys/syscall.h>
#include <thread>

using mp::calls;
using mp::copies;
using mp::fail;
using mp::gpu;
using mp::gpu_buffer;
using mp::hold_copies;
using mp::node;
using mp::operation;
using mp::processes;
using mp::self;
using mp::side;
using mp::COPIES;
using mp::ROLE;
using mp::SENDER;
using mp::RECEIVER;
using mp::TAG;
using mp::STEP;

namespace {

struct way {
    operation   op;
    size_t      length;
    bool        sleeps; /* the receiver */
    const char *name;
};

std::ostream &operator<<(std::ostream &out, const way &w)
{
    return out << w.name;
}

class mp_cuda_election : public testing::TestWithParam<way> {
};

void pause(seeded_random &random, unsigned max_us)
{
    const uint64_t us = random.below(max_us);

    if (us > max_us / 4) {
        usleep(static_cast<unsigned>(us));
    }
}

} // namespace

/* The sender makes no progress from its call until the receiver has everything. */
TEST_P(mp_cuda_election, a_sender_that_is_busy)
{
    const way w = GetParam();
    constexpr unsigned ROUNDS = 4; /* the first one finds nothing mapped */
    processes all(2);

    NEED_GPU();
    all.start_all([&](self &me) {
        side s(me);
        gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, w.length);
        ASSERT_TRUE(buffer.is_made()) << s.g().problem();
        s.use(buffer);
        for (unsigned round = 1; round <= ROUNDS; ++round) {
            SCOPED_TRACE(round);
            buffer.put(w.length, s.is_sender() ? round : 0);
            s.n().barrier();
            const uint64_t before = copies();
            void *request         = nullptr;
            if (s.is_sender()) {
                request = s.post(w.op, buffer, w.length);
                ASSERT_TRUE(UCS_PTR_IS_PTR(request));
                s.sleep_until(round);
                EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(request));
            } else {
                me.waits_for("message %u of a sender that is busy", round);
                request = s.post(w.op, buffer, w.length);
            }
            while (w.sleeps && !s.is_sender() && !ucp_request_is_completed(request)) {
                if (ucp_worker_progress(s.n().worker()) == 0) {
                    EXPECT_EQ(UCS_OK, ucp_worker_wait(s.n().worker()));
                }
            }
            EXPECT_EQ(UCS_OK, s.n().wait(request));
            s.reach(round);
            if (s.is_sender()) {
                EXPECT_EQ(before, copies());
            } else if ((round > 1) && !mp::is_gpu_real()) { /* that proved the way */
                EXPECT_EQ(before + 1, copies());
            }
            buffer.expect(w.length, round);
            s.n().barrier();
        }
    });
    EXPECT_TRUE(all.join());
    EXPECT_EQ(0u, all.log_lines()) << all.log();
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_election,
                         testing::Values(way{operation::TAG, 40, false, "tag_small"},
                                         way{operation::TAG, 300000, false, "tag"},
                                         way{operation::TAG, 300000, true, "tag_asleep"},
                                         way{operation::AM, 300000, false, "am"},
                                         way{operation::STREAM, 300000, false, "stream"}),
                         [](const testing::TestParamInfo<way> &info) {
                             return std::string(info.param.name);
                         });

/* Who copies is open each time: the pauses are about as long as the receiver waits. */
static void race(perf_memory_t kind, unsigned window, unsigned rounds, bool is_once,
                 const std::function<void(side &s)> &prepare)
{
    constexpr size_t LENGTH = 70000;
    constexpr unsigned KEYS = 64; /* of allocations in use at a time: others are staged */
    seeded_random random(4711);
    const uint64_t seeds[] = {random.bits(), random.bits()};
    processes all(2);

    all.start_all([&](self &me) {
        side s(me);
        std::vector<std::unique_ptr<gpu_buffer>> buffers;
        std::vector<ucs_status_ptr_t> requests(window);
        seeded_random pauses(seeds[s.is_sender()]);
        for (unsigned i = 0; i < window; ++i) {
            buffers.push_back(std::make_unique<gpu_buffer>(s.g(), kind, LENGTH));
            ASSERT_TRUE(buffers.back()->is_made()) << s.g().problem();
        }
        prepare(s);
        uint64_t before = 0;
        for (unsigned round = 0; round < rounds; ++round) {
            SCOPED_TRACE(round);
            if (round == 5) { /* either has proved the way, or will not before its first copy */
                before = copies();
            }
            for (unsigned i = 0; i < window; ++i) {
                buffers[i]->put(LENGTH, s.is_sender() ? (round * window) + i + 1 : 0);
            }
            s.n().barrier();
            me.waits_for("the messages of round %u", round);
            for (unsigned i = 0; i < window; ++i) {
                requests[i] = s.post(operation::TAG, *buffers[i], LENGTH);
            }
            for (unsigned i = 0; i < window; ++i) {
                const ucs_status_ptr_t request = requests[i];
                while (ucp_request_check_status(request) == UCS_INPROGRESS) {
                    pause(pauses, 150);
                    ucp_worker_progress(s.n().worker());
                }
                EXPECT_EQ(UCS_OK, s.n().wait(request));
                if (!s.is_sender()) {
                    buffers[i]->expect(LENGTH, (round * window) + i + 1);
                }
            }
        }
        me.own().words[COPIES] = copies() - before;
        s.n().barrier();
        if (is_once && s.is_sender() && !mp::is_gpu_real()) {
            const uint64_t sum = me.own().words[COPIES] + s.other().words[COPIES];
            EXPECT_GE((rounds - 5) * window, sum);
            if (window <= KEYS) {
                EXPECT_EQ((rounds - 5) * window, sum);
            }
        }
        s.n().barrier();
    });
    EXPECT_TRUE(all.join());
}

/* Both ways have been proved. */
static void use_both_ways(side &s)
{
    constexpr size_t LENGTH = 3000;
    gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, LENGTH);

    ASSERT_TRUE(buffer.is_made()) << s.g().problem();
    for (uint64_t id = 1; id <= 2; ++id) {
        buffer.put(LENGTH, id);
        s.n().barrier();
        void *request = s.post(operation::TAG, buffer, LENGTH);
        if (s.is_sender() && (id == 1)) {
            s.sleep_until(1);
        }
        EXPECT_EQ(UCS_OK, s.n().wait(request));
        s.reach(id);
        s.n().barrier();
    }
}

TEST(mp_cuda_election_race, one_at_a_time)
{
    NEED_GPU();
    race(PERF_MEMORY_CUDA, 1, 400, true, use_both_ways);
}

TEST(mp_cuda_election_race, many_at_a_time)
{
    NEED_GPU();
    race(PERF_MEMORY_CUDA, 60, 20, true, use_both_ways);
}

TEST(mp_cuda_election_race, more_than_there_are_words)
{
    NEED_GPU();
    race(PERF_MEMORY_CUDA, 80, 20, true, use_both_ways);
}

/* A sender that copies other messages comes to this one, too: each time that it is heard of it is
 * waited for anew. */
TEST(mp_cuda_election_turn, of_a_sender_that_copies_others)
{
    constexpr size_t LENGTH  = 70000;
    constexpr uint64_t LATER = 1000000; /* longer than it is waited for */
    static uint64_t now_ns;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([](self &me) {
        side s(me);
        gpu_buffer first(s.g(), PERF_MEMORY_CUDA, LENGTH), second(s.g(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(first.is_made() && second.is_made()) << s.g().problem();
        const auto progress = [&]() {
            for (int i = 0; i < 100; ++i) {
                s.n().progress();
            }
        };
        use_both_ways(s);
        first.put(LENGTH, s.is_sender() ? 11 : 0);
        second.put(LENGTH, s.is_sender() ? 12 : 0);
        s.n().barrier();
        if (s.is_sender()) {
            void *requests[] = {s.post(operation::TAG, first, LENGTH),
                                s.post(operation::TAG, second, LENGTH)};
            s.reach(3);
            s.sleep_until(3);
            EXPECT_EQ(UCS_OK, s.n().wait(requests[0]));
            s.reach(4);
            s.sleep_until(4);
            EXPECT_EQ(UCS_OK, s.n().wait(requests[1]));
        } else {
            s.sleep_until(3);
            ucs_sys_ops_t ops = ucs_sys_real;
            ops.clock_ns      = []() { return now_ns; };
            now_ns            = ucs_sys_real.clock_ns();
            const fake_sys fake(ops);
            void *one = s.post(operation::TAG, first, LENGTH);
            progress(); /* asks */
            s.reach(3);
            s.sleep_until(4);
            const uint64_t before = copies();
            void *two             = s.post(operation::TAG, second, LENGTH);
            now_ns += LATER;
            progress(); /* hears that the first one is there */
            EXPECT_TRUE(ucp_request_is_completed(one));
            EXPECT_EQ(before, copies());
            now_ns += LATER;
            progress(); /* hears nothing, and copies */
            EXPECT_EQ(before + 1, copies());
            EXPECT_EQ(UCS_OK, s.n().wait(one));
            EXPECT_EQ(UCS_OK, s.n().wait(two));
            s.reach(4);
        }
        first.expect(LENGTH, 11);
        second.expect(LENGTH, 12);
        s.n().barrier();
    });
    EXPECT_TRUE(all.join());
}

/* The receiver may not map: what it takes it has to give back. */
TEST(mp_cuda_election_race, receiver_cannot_map)
{
    NEED_FAKE_GPU();
    race(PERF_MEMORY_CUDA, 3, 100, false, [](side &s) {
        if (!s.is_sender()) {
            fail("cuIpcOpenMemHandle", true);
        }
    });
}

/* The receiver has to ask the sender for descriptors, which that answers when it makes progress. */
TEST(mp_cuda_election_race, descriptors_are_asked_for)
{
    NEED_FAKE_GPU();
    const int code = mp::run_apart([]() {
        const std::string why = mp::deny_syscalls({SYS_pidfd_getfd, SYS_ptrace}, EPERM);
        if (!why.empty()) {
            GTEST_SKIP() << why;
        }
        race(PERF_MEMORY_VMM, 3, 40, false, [](side &) {});
    });
    if (code == 77) {
        GTEST_SKIP() << "system calls cannot be denied here";
    }
    EXPECT_EQ(0, code);
}

namespace {

/* One message, whose sender is busy until the receiver has called a function of the driver, which
 * fails, that once or always. */
void exchange_refused(self &me, side &s, const char *function, bool always, uint64_t id)
{
    constexpr size_t LENGTH = 300000;
    gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, LENGTH);

    ASSERT_TRUE(buffer.is_made()) << s.g().problem();
    buffer.put(LENGTH, s.is_sender() ? id : 0);
    s.n().barrier();
    const uint64_t before = calls(function);
    void *request         = s.post(operation::TAG, buffer, LENGTH);
    if (s.is_sender()) {
        s.sleep_until(id);
    } else {
        fail(function, always);
        me.waits_for("its copy to be refused");
        s.n().until([&]() { return calls(function) > before; });
        s.reach(id);
    }
    EXPECT_EQ(UCS_OK, s.n().wait(request));
    buffer.expect(LENGTH, id);
    s.n().barrier();
}

} // namespace

/* What the receiver cannot take the sender does, as if nobody had tried. */
TEST(mp_cuda_election_refused, the_mapping)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me);
        exchange_refused(me, s, "cuIpcOpenMemHandle", true, 1);
        EXPECT_EQ(s.is_sender(), copies() > 0);
    });
    EXPECT_TRUE(all.join());
}

/* What the receiver has taken and fails comes as messages. */
TEST(mp_cuda_election_refused, the_copy)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me);
        use_both_ways(s);
        const uint64_t before = copies();
        exchange_refused(me, s, "cuMemcpyAsync", false, 3);
        EXPECT_EQ(before, copies());
    });
    EXPECT_TRUE(all.join());
}

/* The send is given up while the receiver copies: the receive ends too, and messages pass. */
TEST(mp_cuda_election_refused, the_send_is_given_up)
{
    constexpr size_t LENGTH = 300000;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me);
        use_both_ways(s);
        gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << s.g().problem();
        buffer.put(LENGTH, s.is_sender() ? 3 : 0);
        const uint64_t before = copies();
        s.n().barrier();
        hold_copies(!s.is_sender());
        void *request = s.post(operation::TAG, buffer, LENGTH);
        if (s.is_sender()) {
            s.sleep_until(3);
            s.n().close(s.ep(), UCP_EP_CLOSE_FLAG_FORCE);
            EXPECT_EQ(UCS_ERR_CANCELED, s.n().wait(request));
            (void)s.n().connect(!me.index());
            s.reach(3);
        } else {
            me.waits_for("its copy to begin");
            s.n().until([&]() { return copies() > before; });
            s.reach(3);
            s.sleep_until(3);
            hold_copies(false);
            me.waits_for("the end of a receive whose send was given up");
            EXPECT_NE(UCS_INPROGRESS, s.n().wait(request));
        }
        s.n().barrier();
        buffer.put(LENGTH, s.is_sender() ? 4 : 0);
        s.n().barrier();
        EXPECT_EQ(UCS_OK, s.n().wait(s.post(operation::TAG, buffer, LENGTH)));
        buffer.expect(LENGTH, 4);
        s.n().barrier();
    });
    EXPECT_TRUE(all.join());
}

namespace {

struct death {
    int         victim; /* SENDER or RECEIVER */
    bool        amid;   /* while the receiver copies; else when it has been announced */
    const char *name;
};

std::ostream &operator<<(std::ostream &out, const death &d)
{
    return out << d.name;
}

class mp_cuda_election_kill : public testing::TestWithParam<death> {
};

constexpr unsigned GO_ON = 3; /* word: the other process is dead */

} // namespace

/* One of the two dies while the sender is busy: what the other one waits for ends. */
TEST_P(mp_cuda_election_kill, one_of_both)
{
    const death d           = GetParam();
    constexpr size_t LENGTH = 300000;
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me);
        use_both_ways(s);
        gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, LENGTH);
        ASSERT_TRUE(buffer.is_made()) << s.g().problem();
        buffer.put(LENGTH, s.is_sender() ? 3 : 0);
        const uint64_t before = copies();
        s.n().barrier();
        hold_copies(d.amid && !s.is_sender());
        void *request = s.post(operation::TAG, buffer, LENGTH);
        if (d.amid && !s.is_sender()) {
            me.waits_for("its copy to begin");
            s.n().until([&]() { return copies() > before; });
        }
        s.reach(3);
        me.waits_for("the death of the other process");
        while ((me.own().words[ROLE] == static_cast<uint64_t>(d.victim)) ||
               (me.own().words[GO_ON] == 0)) {
            if (s.is_sender() || d.amid) {
                usleep(100);
            } else {
                s.n().progress(); /* takes the copy, or not any more */
            }
        }
        hold_copies(false);
        me.waits_for("the end of its request");
        const ucs_status_t status = s.n().wait(request);
        if (s.is_sender()) { /* the receiver may have had it all */
            EXPECT_TRUE((status != UCS_OK) || !d.amid);
        } else if (status == UCS_OK) {
            buffer.expect(LENGTH, 3);
        }
        me.waits_for("the news of the death");
        s.n().until([&]() { return s.n().errors(s.ep()).count > 0; });
        s.n().close(s.ep(), UCP_EP_CLOSE_FLAG_FORCE);
    });
    if (all.until([&]() { return (all.at(0).words[STEP] == 3) && (all.at(1).words[STEP] == 3); },
                  "a message under way")) {
        const unsigned victim = (all.at(0).words[ROLE] == static_cast<uint64_t>(d.victim)) ? 0 : 1;
        all.kill_now(victim);
        all.at(!victim).words[GO_ON] = 1;
    }
    EXPECT_TRUE(all.join());
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_election_kill,
                         testing::Values(death{SENDER, false, "sender"},
                                         death{SENDER, true, "sender_amid"},
                                         death{RECEIVER, false, "receiver"},
                                         death{RECEIVER, true, "receiver_amid"}),
                         [](const testing::TestParamInfo<death> &info) {
                             return std::string(info.param.name);
                         });

/* ---- workers that are destroyed ---- */

namespace {

/* Process 0 sends what process 1 has it write, by its device, into memory of process 1's. The first
 * message finds the way, the next one is sent. */
class written {
public:
    static constexpr size_t LENGTH = 300000;

    explicit written(self &me) : m_me(me), m_gpu(0), m_buffer(m_gpu, PERF_MEMORY_CUDA, LENGTH)
    {
        setenv("UCX_RNDV_SCHEME", "put_zcopy", 1);
        m_node = std::make_unique<node>(me);
        m_node->connect_all();
        m_buffer.put(LENGTH, is_sender() ? 1 : 0);
        m_node->barrier();
        EXPECT_EQ(UCS_OK, m_node->wait(start()));
        m_buffer.put(LENGTH, is_sender() ? 2 : 0);
        m_node->barrier();
    }

    bool is_sender() const
    {
        return m_me.index() == 0;
    }
    ucs_status_ptr_t start()
    {
        return is_sender() ? m_node->send(m_node->ep(1), m_buffer.place(LENGTH), LENGTH, TAG) :
                             m_node->recv(m_buffer.place(LENGTH), LENGTH, TAG);
    }
    node &n()
    {
        return *m_node;
    }
    gpu_buffer &buffer()
    {
        return m_buffer;
    }
    void destroy()
    {
        m_node.reset();
    }
    void reach(uint64_t step)
    {
        m_me.own().words[STEP] = step;
    }
    void sleep_until(uint64_t step)
    {
        while (m_me.at(!m_me.index()).words[STEP] < step) {
            usleep(100);
        }
    }

private:
    self &m_me;
    gpu m_gpu;
    gpu_buffer m_buffer;
    std::unique_ptr<node> m_node;
};

} // namespace

/* The receiver's is, before the sender looks at what it is asked for. */
TEST(mp_cuda_end, of_a_receiver_that_has_asked)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([](self &me) {
        written message(me);
        if (message.is_sender()) {
            void *request = message.start();
            message.reach(1);
            message.sleep_until(1);
            (void)message.n().wait(request);
            message.reach(2);
            return;
        }
        message.sleep_until(1);
        EXPECT_TRUE(UCS_PTR_IS_PTR(message.start()));
        for (int i = 0; i < 1000; ++i) {
            message.n().progress();
        }
        message.destroy();
        message.buffer().put(written::LENGTH, 3);
        message.reach(1);
        message.sleep_until(2);
        message.buffer().expect(written::LENGTH, 3);
    });
    EXPECT_TRUE(all.join());
}

/* The sender's is, while its device copies: the receiver does not hear of it before the copy has
 * ended. */
TEST(mp_cuda_end, of_a_sender_that_copies)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([](self &me) {
        written message(me);
        if (message.is_sender()) {
            const uint64_t before = copies();
            hold_copies(true);
            EXPECT_TRUE(UCS_PTR_IS_PTR(message.start()));
            message.n().until([&]() { return copies() > before; });
            std::thread device([]() {
                usleep(300000);
                hold_copies(false);
            });
            message.destroy();
            device.join();
            message.reach(1);
            return;
        }
        void *request = message.start();
        (void)message.n().wait(request);
        message.buffer().put(written::LENGTH, 3);
        message.sleep_until(1);
        message.buffer().expect(written::LENGTH, 3);
    });
    EXPECT_TRUE(all.join());
}
