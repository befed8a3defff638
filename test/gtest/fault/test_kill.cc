/* Halyard: a process dies by SIGKILL in each state that a transfer can be in. What its peer has
 * under way with it ends with an error within a second, once; later calls return at once; a third
 * process notices nothing.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "companion.h"

#include <mp/node.h>
#include <mp/snapshot.h>
#include <seed.h>

#include <csignal>
#include <cstdlib>
#include <unistd.h>

using mp::companion;
using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned SURVIVOR  = 0;
constexpr unsigned VICTIM    = 1;
constexpr unsigned THIRD     = 2;
constexpr unsigned PROCESSES = 3;

constexpr size_t   LARGE       = 24u << 20;
constexpr uint64_t TAG_READY   = 0x1000;
constexpr uint64_t TAG_LARGE   = 0x1001;
constexpr uint64_t TAG_NOBODYS = 0x1002; /* nobody sends it */
constexpr uint64_t TAG_EAGER   = 0x1003;

/* Words of the survivor's slot. */
enum {
    WORD_KILL, /* the victim is to be killed */
    WORD_OVER  /* the third process may end */
};
/* Word of the victim's slot: time of its death in ns of the monotonic clock, 0: it lives. */
constexpr unsigned WORD_DEATH = 0;

double bound_s()
{
    return 1.0 * mp::slowness();
}

/* What the survivor has under way. */
class survivor {
public:
    survivor(self &me) : m_me(me), m_node(me)
    {
        m_node.publish();
        m_third     = std::make_unique<companion>(m_node, m_node.connect(THIRD), true);
        m_buffer    = std::vector<uint8_t>(LARGE);
        m_receiving = std::vector<uint8_t>(LARGE);
        mp::fill(m_buffer.data(), LARGE, TAG_LARGE);
    }

    node &n()
    {
        return m_node;
    }

    /* Progress, with the third process's traffic going on. */
    void turn()
    {
        m_node.progress();
        m_third->step();
    }

    template <typename condition_t>
    bool until(const condition_t &condition, double seconds)
    {
        const double end_s = mp::now_s() + seconds;

        while (!condition()) {
            if (mp::now_s() > end_s) {
                return false;
            }
            turn();
        }
        return true;
    }

    void connect_victim()
    {
        m_ep = m_node.connect(VICTIM);
    }

    void hear_from_victim()
    {
        char byte;

        m_me.waits_for("the first message of the victim");
        ucs_status_ptr_t request = m_node.recv(&byte, 1, TAG_READY);
        ASSERT_TRUE(until([&]() { return ucp_request_is_completed(request); }, 30));
        EXPECT_EQ(UCS_OK, m_node.wait(request));
    }

    void send(size_t length, uint64_t tag)
    {
        keep(m_node.send(m_ep, m_buffer.data(), length, tag));
    }

    void send_sync(size_t length, uint64_t tag)
    {
        const ucp_request_param_t param = {};

        keep(ucp_tag_send_sync_nbx(m_ep, m_buffer.data(), length, tag, &param));
    }

    void flush()
    {
        const ucp_request_param_t param = {};

        keep(ucp_ep_flush_nbx(m_ep, &param));
    }

    void recv(uint64_t tag)
    {
        keep(m_node.recv(m_receiving.data(), LARGE, tag));
        m_recv = m_requests.back();
    }

    size_t in_flight() const
    {
        size_t count = 0;

        for (ucs_status_ptr_t request : m_requests) {
            count += !ucp_request_is_completed(request);
        }
        return count;
    }

    /* Has the victim killed, and sees what comes of it. */
    void kill_victim(bool is_handler_due = true)
    {
        m_me.own().words[WORD_KILL] = 1;
        m_me.waits_for("the victim's death");
        ASSERT_TRUE(until([this]() { return m_me.at(VICTIM).words[WORD_DEATH] != 0; }, 30));
        const double death_s = 1e-9 * static_cast<double>(m_me.at(VICTIM).words[WORD_DEATH]);
        const uint64_t rounds = m_third->rounds();

        m_me.waits_for("requests with the dead: %zu of %zu", in_flight(), m_requests.size());
        until([this]() { return in_flight() == 0; }, death_s + bound_s() - mp::now_s());
        EXPECT_EQ(0u, in_flight()) << "requests did not end within " << bound_s() << " s";
        if (in_flight() > 0) {
            return;
        }
        check_requests();

        if (is_handler_due) {
            m_me.waits_for("the error handler");
            EXPECT_TRUE(until([this]() { return m_node.errors(m_ep).count > 0; },
                              death_s + bound_s() - mp::now_s())) << "no error handler was called";
            EXPECT_TRUE(UCS_STATUS_IS_ERR(m_node.errors(m_ep).status));
        }
        m_me.waits_for("the third process");
        EXPECT_TRUE(until([&]() { return m_third->rounds() >= rounds + 50; }, 20))
            << "the third process's messages do not get through";
    }

    /* How the requests have ended. */
    void check_requests()
    {
        for (ucs_status_ptr_t request : m_requests) {
            const ucs_status_t status = ucp_request_check_status(request);

            m_failed += (status != UCS_OK);
            if ((request == m_recv) && (status == UCS_OK)) {
                EXPECT_EQ(-1, mp::find_difference(m_receiving.data(), LARGE, TAG_LARGE));
            }
            ucp_request_free(request);
        }
        m_requests.clear();
    }

    /* Calls on the endpoint of the dead peer return an error at once. */
    void expect_dead_end()
    {
        const ucp_request_param_t param = {};

        for (size_t length : {(size_t)0, (size_t)8, (size_t)4000, (size_t)100000, LARGE}) {
            EXPECT_TRUE(UCS_PTR_IS_ERR(m_node.send(m_ep, m_buffer.data(), length, 1)))
                << length << " bytes";
            EXPECT_TRUE(UCS_PTR_IS_ERR(
                ucp_tag_send_sync_nbx(m_ep, m_buffer.data(), length, 1, &param)))
                << length << " bytes, sync";
        }
        EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_ep_flush_nbx(m_ep, &param)));
    }

    /* How many requests ended with an error. */
    size_t failed() const
    {
        return m_failed;
    }

    void end(bool is_handler_due = true)
    {
        const uint64_t rounds = m_third->rounds();

        EXPECT_EQ(is_handler_due ? 1u : 0u, m_node.errors(m_ep).count);
        m_node.close(m_ep);
        EXPECT_TRUE(until([&]() { return m_third->rounds() >= rounds + 50; }, 20));
        EXPECT_EQ(is_handler_due ? 1u : 0u, m_node.errors(m_ep).count);
        EXPECT_EQ(0u, m_node.errors(m_node.ep(THIRD)).count);
        m_third->end_first();
        m_me.own().words[WORD_OVER] = 1;
        m_me.waits_for("the third process's end");
        m_node.until([this]() { return m_me.at(THIRD).words[WORD_OVER] != 0; });
    }

    ucp_ep_h ep() const
    {
        return m_ep;
    }

    void keep(ucs_status_ptr_t request)
    {
        if (UCS_PTR_IS_ERR(request)) {
            ++m_failed; /* the news of the death has come already */
        } else if (request != nullptr) {
            m_requests.push_back(request);
        }
    }

private:
    self                         &m_me;
    node                          m_node;
    std::unique_ptr<companion>    m_third;
    ucp_ep_h                      m_ep = nullptr;
    std::vector<uint8_t>          m_buffer;
    std::vector<uint8_t>          m_receiving;
    std::vector<ucs_status_ptr_t> m_requests;
    ucs_status_ptr_t              m_recv   = nullptr;
    size_t                        m_failed = 0;
};

void third(self &me)
{
    node n(me);

    n.publish();
    companion c(n, n.connect(SURVIVOR), false);
    me.waits_for("messages of the survivor");
    while (me.at(SURVIVOR).words[WORD_OVER] == 0) {
        n.progress();
        c.step();
    }
    c.end_second();
    EXPECT_EQ(0u, n.errors(n.ep(SURVIVOR)).count);
    me.own().words[WORD_OVER] = 1;
}

void say_ready(self &me, node &n)
{
    char byte = 1;

    n.publish();
    n.connect(SURVIVOR);
    me.waits_for("the first message to leave");
    EXPECT_EQ(UCS_OK, n.wait(n.send(n.ep(SURVIVOR), &byte, 1, TAG_READY)));
}

void sleep_until_killed(self &me)
{
    me.waits_for("its death, without progress");
    for (;;) {
        pause();
    }
}

void progress_until_killed(self &me, node &n)
{
    me.waits_for("its death, in progress");
    for (;;) {
        n.progress();
    }
}

/* Kills the victim when the survivor asks for it. */
void run(const std::function<void(self &)> &survivor_func,
         const std::function<void(self &)> &victim_func)
{
    processes all(PROCESSES);

    all.start(SURVIVOR, survivor_func);
    all.start(VICTIM, victim_func);
    all.start(THIRD, third);
    if (all.until([&]() { return all.at(SURVIVOR).words[WORD_KILL] != 0; },
                  "the survivor to be ready")) {
        all.kill_now(VICTIM);
        all.at(VICTIM).words[WORD_DEATH] = static_cast<uint64_t>(mp::now_s() * 1e9);
    }
    EXPECT_TRUE(all.join());
    EXPECT_LE(all.log_lines(), 3u) << all.log();
    EXPECT_EQ(std::string::npos, all.log().find("ERROR")) << all.log();
    EXPECT_EQ(std::set<std::string>(),
              mp::leftovers({all.first_pid(0), all.first_pid(1), all.first_pid(2)}));
}

} // namespace

class kill_one : public testing::TestWithParam<const char *> {
protected:
    static std::function<void(self &)> with_scheme(const std::function<void(self &)> &func)
    {
        const char *scheme = GetParam();

        return [=](self &me) {
            setenv("UCX_RNDV_SCHEME", scheme, 1);
            func(me);
        };
    }
};

/* Sends of every kind to a peer that does not take them. */
TEST_P(kill_one, sends_pending)
{
    run(with_scheme([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 300; ++i) {
                s.send(1000, TAG_EAGER);
            }
            s.send(LARGE, TAG_LARGE);
            s.send_sync(100, TAG_EAGER);
            s.flush();
            ASSERT_GT(s.in_flight(), 100u);
            s.kill_victim();
            EXPECT_GT(s.failed(), 100u);
            s.expect_dead_end();
            s.end();
        }),
        with_scheme([](self &me) {
            node n(me);

            say_ready(me, n);
            sleep_until_killed(me);
        }));
}

/* A large send that was announced and not answered, and a synchronous one that arrived. */
TEST_P(kill_one, announced_not_matched)
{
    run(with_scheme([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.send(LARGE, TAG_LARGE);
            s.send_sync(100, TAG_EAGER);
            for (unsigned i = 0; i < 2000; ++i) {
                s.turn();
            }
            ASSERT_EQ(2u, s.in_flight());
            s.kill_victim();
            EXPECT_EQ(2u, s.failed());
            s.expect_dead_end();
            s.end();
        }),
        with_scheme([](self &me) {
            node n(me);

            say_ready(me, n);
            progress_until_killed(me, n);
        }));
}

/* In the middle of a large send. */
TEST_P(kill_one, sending)
{
    for (unsigned turns : {0u, 1u, 3u, 10u}) {
        run(with_scheme([&](self &me) {
                survivor s(me);

                s.connect_victim();
                s.hear_from_victim();
                s.send(LARGE, TAG_LARGE);
                s.n().until([&]() {
                    return (me.at(VICTIM).words[1] >= turns) || (s.in_flight() == 0);
                });
                s.kill_victim();
                s.expect_dead_end();
                s.end();
            }),
            with_scheme([](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                node n(me);

                say_ready(me, n);
                (void)n.recv(buffer.data(), LARGE, TAG_LARGE);
                me.waits_for("its death, in the middle of a message");
                for (;;) {
                    me.own().words[1] += (n.progress() > 0);
                }
            }));
    }
}

/* In the middle of a large receive. */
TEST_P(kill_one, receiving)
{
    for (unsigned turns : {0u, 1u, 3u, 10u}) {
        run(with_scheme([&](self &me) {
                survivor s(me);

                s.connect_victim();
                s.hear_from_victim();
                s.recv(TAG_LARGE);
                for (unsigned i = 0; (i < turns) && (s.in_flight() > 0);) {
                    i += (s.n().progress() > 0);
                }
                s.kill_victim();
                s.expect_dead_end();
                s.end();
            }),
            with_scheme([](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                node n(me);

                mp::fill(buffer.data(), LARGE, TAG_LARGE);
                say_ready(me, n);
                (void)n.send(n.ep(SURVIVOR), buffer.data(), LARGE, TAG_LARGE);
                progress_until_killed(me, n);
            }));
    }
}

/* A peer that stopped after its announcement: nothing of its message can come but by our
 * reading. */
TEST_P(kill_one, receiving_from_one_that_stopped)
{
    run(with_scheme([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.recv(TAG_LARGE);
            for (unsigned i = 0; i < 2000; ++i) {
                s.turn();
            }
            s.kill_victim();
            s.expect_dead_end();
            s.end();
        }),
        with_scheme([](self &me) {
            std::vector<uint8_t> buffer(LARGE);
            node n(me);

            mp::fill(buffer.data(), LARGE, TAG_LARGE);
            say_ready(me, n);
            (void)n.send(n.ep(SURVIVOR), buffer.data(), LARGE, TAG_LARGE);
            sleep_until_killed(me);
        }));
}

/* The receive comes when the sender is dead already: its announcement lies among the unexpected. */
TEST_P(kill_one, announced_before_death_received_after)
{
    run(with_scheme([](self &me) {
            survivor s(me);
            ucp_tag_recv_info_t info;

            s.connect_victim();
            s.hear_from_victim();
            ASSERT_TRUE(s.until([&]() {
                return ucp_tag_probe_nb(s.n().worker(), TAG_LARGE, UINT64_MAX, 0, &info) !=
                       nullptr;
            }, 30));
            EXPECT_EQ(LARGE, info.length);
            s.kill_victim();
            s.recv(TAG_LARGE);
            EXPECT_TRUE(s.until([&]() { return s.in_flight() == 0; }, bound_s()))
                << "a receive of a message whose sender is dead does not end";
            s.check_requests();
            EXPECT_EQ(1u, s.failed());
            s.end();
        }),
        with_scheme([](self &me) {
            std::vector<uint8_t> buffer(LARGE);
            node n(me);

            say_ready(me, n);
            (void)n.send(n.ep(SURVIVOR), buffer.data(), LARGE, TAG_LARGE);
            progress_until_killed(me, n);
        }));
}

INSTANTIATE_TEST_SUITE_P(, kill_one,
                         testing::Values("auto", "get_zcopy", "put_zcopy", "both", "am"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string(info.param);
                         });

/* What was posted and has met no message stays posted: it may be for somebody else. */
TEST(kill, posted_receives_stay)
{
    run([](self &me) {
            survivor s(me);
            char byte;

            s.connect_victim();
            s.hear_from_victim();
            ucs_status_ptr_t posted = s.n().recv(&byte, 1, TAG_NOBODYS);
            s.send(8, TAG_EAGER);
            s.kill_victim();
            EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(posted));
            ucp_request_cancel(s.n().worker(), posted);
            EXPECT_EQ(UCS_ERR_CANCELED, s.n().wait(posted));
            s.end();
        },
        [](self &me) {
            node n(me);

            say_ready(me, n);
            progress_until_killed(me, n);
        });
}

/* The address is that of a dead process before anything was sent to it. */
TEST(kill, dead_before_the_first_message)
{
    run([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.kill_victim(false);
            s.send(8, TAG_EAGER);
            s.send(LARGE, TAG_LARGE);
            s.send_sync(8, TAG_EAGER);
            s.kill_victim(); /* it is dead: only sees to the requests */
            EXPECT_EQ(3u, s.failed());
            s.expect_dead_end();
            s.end();
        },
        [](self &me) {
            node n(me);

            n.publish();
            sleep_until_killed(me);
        });
}

/* Who only listens to a peer learns of its death too. */
TEST(kill, handler_of_an_endpoint_that_never_sent)
{
    run([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.kill_victim();
            s.expect_dead_end();
            s.end();
        },
        [](self &me) {
            node n(me);

            say_ready(me, n);
            progress_until_killed(me, n);
        });
}

/* A close that waits for its sends ends with them; the handler is not called any more. */
TEST(kill, closing)
{
    run([](self &me) {
            const ucp_request_param_t param = {};
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 300; ++i) {
                s.send(1000, TAG_EAGER);
            }
            s.send(LARGE, TAG_LARGE);
            s.keep(ucp_ep_close_nbx(s.ep(), &param));
            s.kill_victim(false);
            EXPECT_EQ(0u, s.n().errors(s.ep()).count);
            s.connect_victim(); /* another endpoint to the same dead worker */
            s.send(8, TAG_EAGER);
            ASSERT_TRUE(s.until([&]() { return s.n().errors(s.ep()).count > 0; }, bound_s()));
            s.kill_victim(); /* only sees to the requests */
            s.expect_dead_end();
            s.end();
        },
        [](self &me) {
            node n(me);

            say_ready(me, n);
            sleep_until_killed(me);
        });
}

/* The victim has forked a child that has nothing to do with us and lives on: it inherited the
 * connections, but they are the victim's. */
TEST(kill, with_a_forked_child_that_lives_on)
{
    run([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 300; ++i) {
                s.send(1000, TAG_EAGER);
            }
            s.send(LARGE, TAG_LARGE);
            s.n().until([&]() { return me.at(VICTIM).words[1] != 0; });
            s.kill_victim();
            s.expect_dead_end();
            s.end();
        },
        [](self &me) {
            node n(me);

            say_ready(me, n);
            for (unsigned i = 0; i < 1000; ++i) {
                n.progress();
            }
            if (fork() == 0) {
                me.own().words[1] = 1;
                while (me.at(SURVIVOR).words[WORD_OVER] == 0) {
                    usleep(1000);
                }
                _exit(0);
            }
            sleep_until_killed(me);
        });
}

/* A peer that closes its endpoint has not failed: messages still reach it. */
TEST(kill, farewell_is_no_failure)
{
    run([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.n().until([&]() { return me.at(VICTIM).words[1] != 0; });
            for (unsigned i = 0; i < 20000; ++i) {
                s.turn();
            }
            EXPECT_EQ(0u, s.n().errors(s.ep()).count);
            s.send(LARGE, TAG_LARGE);
            ASSERT_TRUE(s.until([&]() { return s.in_flight() == 0; }, 20));
            s.check_requests();
            EXPECT_EQ(0u, s.failed());
            s.kill_victim();
            s.end();
        },
        [](self &me) {
            std::vector<uint8_t> buffer(LARGE);
            node n(me);

            say_ready(me, n);
            n.close(n.ep(SURVIVOR));
            me.own().words[1] = 1;
            EXPECT_EQ(UCS_OK, n.wait(n.recv(buffer.data(), LARGE, TAG_LARGE)));
            progress_until_killed(me, n);
        });
}
