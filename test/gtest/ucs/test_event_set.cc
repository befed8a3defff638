/* Halyard: tests of the event set against a model of event descriptors.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/log.h>
#include <ucs/event/event_set.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>
#include <functional>
#include <map>
#include <poll.h>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

ucs_log_func_rc_t silent(const char *, unsigned, const char *, ucs_log_level_t,
                         const ucs_log_component_config_t *, const char *, va_list)
{
    return UCS_LOG_FUNC_RC_STOP;
}

class event_set : public testing::Test {
protected:
    void SetUp() override
    {
        ucs_fault_clear(nullptr);
        ASSERT_EQ(UCS_OK, ucs_event_set_create(&m_set));
    }

    void TearDown() override
    {
        ucs_fault_clear(nullptr);
        ucs_event_set_destroy(m_set);
    }

    using seen_t = std::map<void *, unsigned>;

    /* All that waits now, by several batches where one does not hold it: level-triggered. */
    seen_t collect(int timeout_ms = 0)
    {
        seen_t seen;
        unsigned count = 0;
        const auto cb  = [](void *data, unsigned events, void *arg) {
            (*static_cast<seen_t *>(arg))[data] |= events;
        };
        EXPECT_EQ(UCS_OK, ucs_event_set_wait(m_set, timeout_ms, cb, &seen, &count));
        EXPECT_EQ(count, seen.size());
        return seen;
    }

    ucs_event_set_t *m_set = nullptr;
};

struct model_fd {
    int fd;
    bool in_set;
    unsigned interest;
    bool readable;
};

TEST_F(event_set, random_operations_against_a_model)
{
    seeded_random rnd(50);
    std::vector<model_fd> model;
    for (int i = 0; i < 24; ++i) {
        model.push_back({eventfd(0, EFD_NONBLOCK), false, 0, false});
    }

    for (int step = 0; step < 20000; ++step) {
        model_fd &m      = model[rnd.below(model.size())];
        const auto events = static_cast<unsigned>(rnd.below(4)); /* any of READ and WRITE */
        uint64_t one      = 1;
        switch (rnd.below(6)) {
        case 0:
            ASSERT_EQ(m.in_set ? UCS_ERR_ALREADY_EXISTS : UCS_OK,
                      ucs_event_set_add(m_set, m.fd, events, &m));
            m.interest = m.in_set ? m.interest : events;
            m.in_set   = true;
            break;
        case 1:
            ASSERT_EQ(m.in_set ? UCS_OK : UCS_ERR_NO_ELEM,
                      ucs_event_set_mod(m_set, m.fd, events));
            m.interest = m.in_set ? events : m.interest;
            break;
        case 2:
            ASSERT_EQ(m.in_set ? UCS_OK : UCS_ERR_NO_ELEM, ucs_event_set_del(m_set, m.fd));
            m.in_set = false;
            break;
        case 3:
            ASSERT_EQ(8, write(m.fd, &one, 8));
            m.readable = true;
            break;
        case 4:
            ASSERT_EQ(m.readable ? 8 : -1, read(m.fd, &one, 8));
            m.readable = false;
            break;
        default: {
            seen_t expected;
            for (model_fd &other : model) {
                const unsigned happens = UCS_EVENT_WRITE | (other.readable ? 1u : 0u);
                if (other.in_set && (other.interest & happens)) {
                    expected[&other] = other.interest & happens;
                }
            }
            ASSERT_EQ(expected, collect()) << step;
            struct pollfd pfd = {ucs_event_set_fd(m_set), POLLIN, 0};
            ASSERT_EQ(expected.empty() ? 0 : 1, poll(&pfd, 1, 0));
            break;
        }
        }
    }
    for (model_fd &m : model) {
        close(m.fd);
    }
}

struct removal {
    ucs_event_set_t *set;
    std::vector<int> fds;
    std::set<void *> alive;
    int calls;
};

/* The first callback removes and closes all others, and new descriptors take their numbers. */
TEST_F(event_set, no_callback_after_removal)
{
    removal state = {m_set, {}, {}, 0};
    static int tokens[16];
    for (int i = 0; i < 16; ++i) {
        state.fds.push_back(eventfd(1, 0));
        ASSERT_EQ(UCS_OK, ucs_event_set_add(m_set, state.fds[i], UCS_EVENT_READ, &tokens[i]));
        state.alive.insert(&tokens[i]);
    }

    const auto cb = [](void *data, unsigned, void *arg) {
        auto *s = static_cast<removal *>(arg);
        ++s->calls;
        EXPECT_EQ(1u, s->alive.count(data));
        if (s->calls > 1) {
            return;
        }
        for (int i = 0; i < 16; ++i) {
            if (&tokens[i] != data) {
                EXPECT_EQ(UCS_OK, ucs_event_set_del(s->set, s->fds[i]));
                close(s->fds[i]);
                s->alive.erase(&tokens[i]);
            }
        }
        for (int i = 0; i < 16; ++i) {
            if (&tokens[i] != data) {
                s->fds[i] = eventfd(0, 0);
                EXPECT_EQ(UCS_OK,
                          ucs_event_set_add(s->set, s->fds[i], UCS_EVENT_READ, &tokens[i]));
            }
        }
    };
    unsigned count = 0;
    EXPECT_EQ(UCS_OK, ucs_event_set_wait(m_set, 0, cb, &state, &count));
    EXPECT_EQ(1u, count);
    EXPECT_EQ(1, state.calls);
    for (int fd : state.fds) {
        EXPECT_EQ(UCS_OK, ucs_event_set_del(m_set, fd));
        close(fd);
    }
}

TEST_F(event_set, the_end_of_the_other_side)
{
    int fds[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    ASSERT_EQ(UCS_OK, ucs_event_set_add(m_set, fds[0], 0, fds));
    EXPECT_TRUE(collect().empty());
    close(fds[1]);
    EXPECT_EQ((seen_t{{fds, UCS_EVENT_ERROR}}), collect());
    EXPECT_EQ(UCS_OK, ucs_event_set_mod(m_set, fds[0], UCS_EVENT_READ));
    EXPECT_EQ((seen_t{{fds, UCS_EVENT_ERROR | UCS_EVENT_READ}}), collect());
    close(fds[0]);
    EXPECT_EQ(UCS_OK, ucs_event_set_del(m_set, fds[0])); /* too late, but harmless */
}

TEST_F(event_set, edges_come_once)
{
    uint64_t one = 1;
    const int fd = eventfd(0, 0);
    ASSERT_EQ(UCS_OK, ucs_event_set_add(m_set, fd, UCS_EVENT_READ | UCS_EVENT_EDGE, &one));
    ASSERT_EQ(8, write(fd, &one, 8));
    EXPECT_EQ(1u, collect().size());
    EXPECT_EQ(0u, collect().size());
    ASSERT_EQ(8, write(fd, &one, 8));
    EXPECT_EQ(1u, collect().size());
    close(fd);
}

TEST_F(event_set, waiting_ends_with_the_time_or_a_signal)
{
    const uint64_t start = ucs_sys_clock_ns();
    EXPECT_TRUE(collect(20).empty());
    EXPECT_GE(ucs_sys_clock_ns() - start, 19000000u);
    ASSERT_EQ(UCS_OK, ucs_fault_set("epoll_wait", "1:EINTR"));
    EXPECT_TRUE(collect(-1).empty());
}

TEST_F(event_set, failures_are_statuses)
{
    ucs_log_push_handler(silent);
    const int fd   = eventfd(1, 0);
    const int file = open("/proc/self/exe", O_RDONLY);
    const auto cb  = [](void *, unsigned, void *) {};
    ucs_event_set_t *other = nullptr;

    EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucs_event_set_add(m_set, file, UCS_EVENT_READ, nullptr));
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucs_event_set_add(m_set, -1, UCS_EVENT_READ, nullptr));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_event_set_del(m_set, -1));

    for (const char *call : {"malloc", "calloc", "memalign", "epoll_ctl"}) {
        ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1"));
        const ucs_status_t status = ucs_event_set_add(m_set, fd, UCS_EVENT_READ, &other);
        ucs_fault_clear(nullptr);
        if (status == UCS_OK) {
            EXPECT_EQ(UCS_OK, ucs_event_set_del(m_set, fd)) << call; /* does not call it */
        }
        EXPECT_EQ(0u, collect().size()) << call;
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_event_set_del(m_set, fd)) << call;
    }

    ASSERT_EQ(UCS_OK, ucs_fault_set("epoll_create1", "1"));
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucs_event_set_create(&other));
    ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", "1"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_event_set_create(&other));
    EXPECT_EQ(nullptr, other);
    ASSERT_EQ(UCS_OK, ucs_fault_set("epoll_wait", "1:EBADF"));
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucs_event_set_wait(m_set, 0, cb, nullptr, nullptr));
    ucs_event_set_destroy(nullptr);
    close(fd);
    close(file);
    ucs_log_pop_handler();
}

} // namespace
