/* Halyard: a process dies by SIGKILL in each state that an active message or a stream can be in:
 * as in test_kill.cc, each request of its peer ends once, within a second, and nothing is kept.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "survivor.h"

#include <deque>

using namespace kill_test;

namespace {

constexpr unsigned AM_ID = 7;

/* Word of every slot: the process handles active messages. */
constexpr unsigned WORD_LISTENS = 2;

/* The end of a request, told by its callback. */
struct ending {
    unsigned     calls  = 0;
    ucs_status_t status = UCS_INPROGRESS;
    size_t       length = 0;
};

void on_end(void *, ucs_status_t status, void *user_data)
{
    auto *end = static_cast<ending *>(user_data);

    ++end->calls;
    end->status = status;
}

void on_length(void *request, ucs_status_t status, size_t length, void *user_data)
{
    static_cast<ending *>(user_data)->length = length;
    on_end(request, status, user_data);
}

/* Operations of one process, and their ends. */
class operations {
public:
    /* Parameters with a callback that counts. */
    ucp_request_param_t param(uint32_t flags = 0)
    {
        ucp_request_param_t param = {};

        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                             UCP_OP_ATTR_FIELD_FLAGS;
        param.flags        = flags;
        param.cb.send      = on_end;
        m_ends.emplace_back();
        param.user_data = &m_ends.back();
        return param;
    }

    ucp_request_param_t param_of_length(uint32_t flags = 0)
    {
        ucp_request_param_t result = param(flags);

        result.cb.recv_stream = on_length;
        return result;
    }

    ucs_status_ptr_t am(ucp_ep_h ep, const void *data, size_t length, uint32_t flags = 0)
    {
        const ucp_request_param_t p = param(flags);

        return count(ucp_am_send_nbx(ep, AM_ID, "head", 4, data, length, &p));
    }

    ucs_status_ptr_t stream(ucp_ep_h ep, const void *data, size_t length)
    {
        const ucp_request_param_t p = param();

        return count(ucp_stream_send_nbx(ep, data, length, &p));
    }

    /* *length_p: of what comes inside the call. */
    ucs_status_ptr_t read(ucp_ep_h ep, void *data, size_t length, uint32_t flags, size_t *length_p)
    {
        const ucp_request_param_t p = param_of_length(flags);

        return count(ucp_stream_recv_nbx(ep, data, length, length_p, &p));
    }

    ucs_status_ptr_t take(ucp_worker_h worker, void *descriptor, void *data, size_t length)
    {
        const ucp_request_param_t p = param_of_length();

        return count(ucp_am_recv_data_nbx(worker, descriptor, data, length, &p));
    }

    /* Every operation that had a request has ended once. */
    void expect_all_ended_once() const
    {
        unsigned calls = 0;

        for (const ending &end : m_ends) {
            EXPECT_LE(end.calls, 1u);
            calls += end.calls;
        }
        EXPECT_EQ(m_requests, calls);
    }

    const ending &last() const
    {
        return m_ends.back();
    }

private:
    ucs_status_ptr_t count(ucs_status_ptr_t request)
    {
        m_requests += UCS_PTR_IS_PTR(request);
        return request;
    }

    std::deque<ending> m_ends;
    unsigned           m_requests = 0;
};

/* Handles active messages: keeps the last one, or calls `on_message`. */
struct sink {
    sink(self &me, node &n, uint32_t flags)
    {
        ucp_am_handler_param_t handler = {};

        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        handler.id         = AM_ID;
        handler.flags      = flags;
        handler.cb         = on_am;
        handler.arg        = this;
        EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(n.worker(), &handler));
        me.own().words[WORD_LISTENS] = 1;
    }

    static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data,
                              size_t length, const ucp_am_recv_param_t *param)
    {
        auto *me = static_cast<sink *>(arg);

        EXPECT_EQ(0, memcmp(header, "head", header_length));
        ++me->calls;
        me->reply_ep = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ? param->reply_ep
                                                                            : nullptr;
        if (!(param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA))) {
            return UCS_OK;
        }
        me->kept   = data;
        me->length = length;
        return UCS_INPROGRESS;
    }

    unsigned calls    = 0;
    void    *kept     = nullptr;
    size_t   length   = 0;
    ucp_ep_h reply_ep = nullptr;
};

/* Sends active messages to the survivor, once it handles them. */
void say_to_listener(self &me, node &n, operations &ops, const void *data, size_t length,
                     uint32_t flags = 0)
{
    me.waits_for("the survivor's handler");
    n.until([&]() { return me.at(SURVIVOR).words[WORD_LISTENS] != 0; });
    EXPECT_FALSE(UCS_PTR_IS_ERR(ops.am(n.ep(SURVIVOR), data, length, flags)));
}

/* A victim that takes nothing. */
void asleep(self &me)
{
    node n(me);

    say_ready(me, n);
    sleep_until_killed(me);
}

} // namespace

class kill_am_stream : public testing::TestWithParam<const char *> {
protected:
    static void run(const std::function<void(self &)> &survivor_func,
                    const std::function<void(self &)> &victim_func)
    {
        const char *scheme = GetParam();
        const auto with    = [=](const std::function<void(self &)> &func) {
            return [=](self &me) {
                setenv("UCX_RNDV_SCHEME", scheme, 1);
                func(me);
            };
        };

        kill_test::run(with(survivor_func), with(victim_func));
    }
};

INSTANTIATE_TEST_SUITE_P(, kill_am_stream, testing::Values("auto", "get_zcopy", "am"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             return std::string(info.param);
                         });

/* ---- active messages ---- */

TEST_P(kill_am_stream, am_sends_pending)
{
    run([](self &me) {
            operations ops;
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 300; ++i) {
                s.keep(ops.am(s.ep(), s.large(), 1000,
                              (i % 2) ? (uint32_t)UCP_AM_SEND_FLAG_REPLY : 0));
            }
            s.keep(ops.am(s.ep(), s.large(), LARGE));
            s.keep(ops.am(s.ep(), s.large(), 10, UCP_AM_SEND_FLAG_RNDV));
            s.flush();
            ASSERT_GT(s.in_flight(), 100u);
            s.kill_victim();
            EXPECT_GT(s.failed(), 100u);
            EXPECT_TRUE(UCS_PTR_IS_ERR(ops.am(s.ep(), s.large(), 10)));
            EXPECT_TRUE(UCS_PTR_IS_ERR(ops.am(s.ep(), s.large(), LARGE)));
            ops.expect_all_ended_once();
            s.end();
        }, asleep);
}

/* The victim's handler has kept the announcement. */
TEST_P(kill_am_stream, am_announced_not_taken)
{
    run([](self &me) {
            operations ops;
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.keep(ops.am(s.ep(), s.large(), LARGE));
            s.n().until([&]() { return me.at(VICTIM).words[1] != 0; });
            ASSERT_EQ(1u, s.in_flight());
            s.kill_victim();
            EXPECT_EQ(1u, s.failed());
            ops.expect_all_ended_once();
            s.end();
        },
        [](self &me) {
            node n(me);
            sink messages(me, n, 0);

            say_ready(me, n);
            n.until([&]() { return messages.kept != nullptr; });
            me.own().words[1] = 1;
            progress_until_killed(me, n);
        });
}

/* The survivor receives when the victim dies, after so many steps. */
TEST_P(kill_am_stream, am_receiving)
{
    for (unsigned turns : {0u, 1u, 3u, 10u}) {
        run([&](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                operations ops;
                survivor s(me);
                sink messages(me, s.n(), 0);

                s.connect_victim();
                s.hear_from_victim();
                s.until([&]() { return messages.kept != nullptr; });
                ASSERT_EQ(LARGE, messages.length);
                s.keep(ops.take(s.n().worker(), messages.kept, buffer.data(), LARGE));
                for (unsigned i = 0; (i < turns) && (s.in_flight() > 0);) {
                    i += (s.n().progress() > 0);
                }
                s.kill_victim();
                ops.expect_all_ended_once();
                if (ops.last().status == UCS_OK) {
                    EXPECT_EQ(LARGE, ops.last().length);
                    EXPECT_EQ(-1, mp::find_difference(buffer.data(), LARGE, TAG_LARGE));
                }
                s.end();
            },
            [](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                operations ops;
                node n(me);

                mp::fill(buffer.data(), LARGE, TAG_LARGE);
                say_ready(me, n);
                say_to_listener(me, n, ops, buffer.data(), LARGE);
                progress_until_killed(me, n);
            });
    }
}

/* The survivor takes what it has kept, or gives it back, when the sender is dead. */
TEST_P(kill_am_stream, am_taken_after_death)
{
    for (bool takes : {true, false}) {
        run([=](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                operations ops;
                survivor s(me);
                sink messages(me, s.n(), 0);

                s.connect_victim();
                s.hear_from_victim();
                s.until([&]() { return messages.kept != nullptr; });
                s.kill_victim();
                if (takes) {
                    s.keep(ops.take(s.n().worker(), messages.kept, buffer.data(), LARGE));
                    EXPECT_TRUE(s.until([&]() { return s.in_flight() == 0; }, bound_s()));
                    s.check_requests();
                    EXPECT_EQ(1u, s.failed());
                } else {
                    ucp_am_data_release(s.n().worker(), messages.kept);
                }
                ops.expect_all_ended_once();
                s.end();
            },
            [](self &me) {
                std::vector<uint8_t> buffer(LARGE);
                operations ops;
                node n(me);

                say_ready(me, n);
                say_to_listener(me, n, ops, buffer.data(), LARGE);
                progress_until_killed(me, n);
            });
    }
}

/* The library fetches a message for a handler that wants it whole, and others wait behind it: if it
 * does not come, they are handled all the same. */
TEST_P(kill_am_stream, am_fetched_whole)
{
    run([](self &me) {
            survivor s(me);
            sink messages(me, s.n(), UCP_AM_FLAG_WHOLE_MSG);

            s.connect_victim();
            s.hear_from_victim();
            s.n().until([&]() { return me.at(VICTIM).words[1] != 0; });
            s.kill_victim();
            s.until([&]() { return messages.calls >= 5; });
            if (messages.kept != nullptr) { /* it was read although the victim slept */
                EXPECT_EQ(LARGE, messages.length);
                EXPECT_EQ(-1, mp::find_difference(messages.kept, LARGE, TAG_LARGE));
                ucp_am_data_release(s.n().worker(), messages.kept);
            }
            EXPECT_EQ((messages.kept != nullptr) ? 6u : 5u, messages.calls);
            s.end();
        },
        [](self &me) {
            std::vector<uint8_t> buffer(LARGE);
            operations ops;
            node n(me);

            mp::fill(buffer.data(), LARGE, TAG_LARGE);
            say_ready(me, n);
            say_to_listener(me, n, ops, buffer.data(), LARGE);
            for (unsigned i = 0; i < 5; ++i) {
                EXPECT_EQ(nullptr, ops.am(n.ep(SURVIVOR), buffer.data(), 8));
            }
            me.own().words[1] = 1;
            sleep_until_killed(me);
        });
}

/* An answer to one who has died meanwhile. */
TEST_P(kill_am_stream, am_answered_after_death)
{
    run([](self &me) {
            operations ops;
            survivor s(me);
            sink messages(me, s.n(), 0);

            s.connect_victim();
            s.hear_from_victim();
            s.until([&]() { return messages.reply_ep != nullptr; });
            s.kill_victim();
            for (size_t length : {(size_t)8, LARGE}) {
                EXPECT_TRUE(UCS_PTR_IS_ERR(ops.am(messages.reply_ep, s.large(), length)));
            }
            ops.expect_all_ended_once();
            s.end();
        },
        [](self &me) {
            operations ops;
            node n(me);

            say_ready(me, n);
            say_to_listener(me, n, ops, nullptr, 0, UCP_AM_SEND_FLAG_REPLY);
            progress_until_killed(me, n);
        });
}

/* ---- streams ---- */

TEST_P(kill_am_stream, stream_sends_pending)
{
    run([](self &me) {
            operations ops;
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 300; ++i) {
                s.keep(ops.stream(s.ep(), s.large(), 1000));
            }
            s.keep(ops.stream(s.ep(), s.large(), LARGE));
            s.flush();
            ASSERT_GT(s.in_flight(), 100u);
            s.kill_victim();
            EXPECT_GT(s.failed(), 100u);
            EXPECT_TRUE(UCS_PTR_IS_ERR(ops.stream(s.ep(), s.large(), 10)));
            ops.expect_all_ended_once();
            s.end();
        }, asleep);
}

/* A victim that has received all and read nothing: what waits for being read fails. */
TEST_P(kill_am_stream, stream_unread)
{
    run([](self &me) {
            operations ops;
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            for (unsigned i = 0; i < 1000; ++i) {
                s.keep(ops.stream(s.ep(), s.large(), 4000));
                s.turn();
            }
            ASSERT_GT(s.in_flight(), 100u); /* beyond the bound they are announced */
            s.kill_victim();
            EXPECT_GT(s.failed(), 100u);
            ops.expect_all_ended_once();
            s.end();
        },
        [](self &me) {
            node n(me);

            say_ready(me, n);
            progress_until_killed(me, n);
        });
}

/* What has arrived before the death is read after it; then the stream has ended. */
TEST_P(kill_am_stream, stream_read_after_death)
{
    run([](self &me) {
            std::vector<uint8_t> buffer(1000);
            size_t length = 0;
            operations ops;
            survivor s(me);

            s.connect_victim();
            s.hear_from_victim();
            s.kill_victim();
            ucs_status_ptr_t request =
                ops.read(s.ep(), buffer.data(), 1000, UCP_STREAM_RECV_FLAG_WAITALL, &length);
            if (UCS_PTR_IS_ERR(request)) {
                ADD_FAILURE() << "what has come is lost: "
                              << ucs_status_string(UCS_PTR_STATUS(request));
            } else if (request == nullptr) {
                EXPECT_EQ(1000u, length);
            } else {
                ADD_FAILURE() << "what has come was not there at once";
                ucp_request_free(request);
            }
            EXPECT_EQ(-1, mp::find_difference(buffer.data(), 1000, TAG_EAGER));
            EXPECT_TRUE(UCS_PTR_IS_ERR(ops.read(s.ep(), buffer.data(), 1000, 0, &length)));
            ops.expect_all_ended_once();
            s.end();
        },
        [](self &me) {
            std::vector<uint8_t> buffer(1000);
            operations ops;
            node n(me);

            mp::fill(buffer.data(), 1000, TAG_EAGER);
            n.publish();
            n.connect(SURVIVOR);
            EXPECT_EQ(UCS_OK, n.wait(ops.stream(n.ep(SURVIVOR), buffer.data(), 1000)));
            say_ready(me, n);
            progress_until_killed(me, n);
        });
}

/* A receive that waits for more than has come, and one behind it. */
TEST_P(kill_am_stream, stream_receiving)
{
    for (unsigned turns : {0u, 1u, 3u, 10u}) {
        run([&](self &me) {
                std::vector<uint8_t> buffer(LARGE + 1000), rest(1000);
                size_t length = 0;
                operations ops;
                survivor s(me);

                s.connect_victim();
                s.hear_from_victim();
                s.keep(ops.read(s.ep(), buffer.data(), LARGE + 1000, UCP_STREAM_RECV_FLAG_WAITALL,
                                &length));
                s.keep(ops.read(s.ep(), rest.data(), 1000, 0, &length));
                ASSERT_EQ(2u, s.in_flight());
                /* what is sent never ends a read: there may be fewer steps until it is there */
                for (size_t i = 0, there = 0; (i < turns) && (there < LARGE);) {
                    i     += (s.n().progress() > 0);
                    there += (buffer[there] != 0) ? 4096 : 0;
                }
                s.kill_victim();
                EXPECT_EQ(2u, s.failed());
                ops.expect_all_ended_once();
                s.end();
            },
            [](self &me) {
                std::vector<uint8_t> buffer(LARGE, 1);
                operations ops;
                node n(me);

                say_ready(me, n);
                (void)ops.stream(n.ep(SURVIVOR), buffer.data(), 1000);
                (void)ops.stream(n.ep(SURVIVOR), buffer.data(), LARGE - 1000);
                progress_until_killed(me, n);
            });
    }
}
