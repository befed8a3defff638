/* Halyard: a process dies by SIGKILL in each state that a transfer can be in. What its peer has
 * under way with it ends with an error within a second, once; later calls return at once; a third
 * process notices nothing.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "survivor.h"

#include <csignal>
#include <sys/mman.h>

using namespace kill_test;

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
                s.await_message_of_victim();
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
                me.own().words[WORD_SENT] = 1;
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
            s.await_message_of_victim();
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
            me.own().words[WORD_SENT] = 1;
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
            s.until([&]() {
                return ucp_tag_probe_nb(s.n().worker(), TAG_LARGE, UINT64_MAX, 0, &info) !=
                       nullptr;
            });
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

/* Memory of which the second half cannot be read: who sends it gets stuck amid that. */
uint8_t *half_a_buffer(size_t length)
{
    auto *buffer = static_cast<uint8_t *>(mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction stuck = {};

    mp::fill(buffer, length, TAG_LARGE);
    EXPECT_EQ(0, mprotect(buffer + (length / 2), length / 2, PROT_NONE));
    stuck.sa_handler = [](int) {
        for (;;) {
            pause();
        }
    };
    EXPECT_EQ(0, sigaction(SIGSEGV, &stuck, nullptr));
    return buffer;
}

/* A long message that goes whole, whose sender gets stuck amid it and dies: the receive whose
 * buffer has got the first parts ends with an error, one that comes later stays posted. */
TEST(kill, sending_whole)
{
    constexpr size_t LENGTH = 128 << 10;

    for (bool is_awaited : {true, false}) {
        run([&](self &me) {
                setenv("UCX_RNDV_THRESH", "200000", 1);
                std::vector<uint8_t> buffer(LENGTH);
                survivor s(me);

                s.connect_victim();
                s.hear_from_victim();
                ucs_status_ptr_t request = nullptr;
                if (is_awaited) {
                    request = s.n().recv(buffer.data(), LENGTH, TAG_LARGE);
                }
                s.send(1, TAG_EAGER);
                me.waits_for("the first parts of the message");
                s.until([&]() { return me.at(VICTIM).words[WORD_SENT] != 0; });
                const auto has_begun = [&]() { return buffer[LENGTH / 4] != 0; };
                if (is_awaited) {
                    s.until(has_begun);
                } else {
                    EXPECT_FALSE(s.until(has_begun, 0.2));
                }
                EXPECT_EQ(0, buffer[LENGTH - 1]);
                if (is_awaited) {
                    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(request));
                    ucp_request_cancel(s.n().worker(), request); /* it has met its message */
                    EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(request));
                    s.keep(request);
                }
                s.kill_victim();
                EXPECT_EQ(is_awaited ? 1u : 0u, s.failed());
                request = s.n().recv(buffer.data(), LENGTH, TAG_LARGE);
                EXPECT_FALSE(s.until([&]() { return ucp_request_is_completed(request); }, 0.1));
                ucp_request_cancel(s.n().worker(), request);
                EXPECT_EQ(UCS_ERR_CANCELED, s.n().wait(request));
                s.expect_dead_end();
                s.end();
            },
            [](self &me) {
                setenv("UCX_RNDV_THRESH", "200000", 1);
                uint8_t *buffer = half_a_buffer(LENGTH);
                node n(me);
                char byte;

                say_ready(me, n);
                n.wait(n.recv(&byte, 1, TAG_EAGER));
                me.waits_for("its death amid a message");
                me.own().words[WORD_SENT] = 1;
                n.send(n.ep(SURVIVOR), buffer, LENGTH, TAG_LARGE);
                ADD_FAILURE() << "it was read";
            });
    }
}

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

/* Nothing was ever sent either way: whoever has a handler watches all the same. */
TEST(kill, handler_of_an_endpoint_without_messages)
{
    run([](self &me) {
            survivor s(me);

            s.connect_victim();
            s.until([]() { return false; }, 0.2); /* until they are connected */
            s.kill_victim();
            s.expect_dead_end();
            s.end();
        },
        [](self &me) {
            node n(me);

            n.publish();
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
            s.until([&]() { return s.in_flight() == 0; });
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
