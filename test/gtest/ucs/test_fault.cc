/* Halyard: tests of the fault points against a model that counts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/config/global.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

class fault : public testing::Test {
protected:
    void SetUp() override
    {
        ucs_fault_clear(nullptr);
    }

    void TearDown() override
    {
        unsetenv("UCX_FAULT");
        ucs_fault_clear(nullptr);
    }

    static uint64_t calls(const char *name)
    {
        uint64_t calls = 0;
        EXPECT_EQ(UCS_OK, ucs_fault_query(name, &calls, nullptr)) << name;
        return calls;
    }

    static uint64_t failed(const char *name)
    {
        uint64_t failed = 0;
        EXPECT_EQ(UCS_OK, ucs_fault_query(name, nullptr, &failed)) << name;
        return failed;
    }
};

TEST_F(fault, exactly_the_kth_call_fails)
{
    for (uint64_t k = 1; k <= 40; ++k) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", std::to_string(k).c_str()));
        for (uint64_t call = 1; call <= 50; ++call) {
            void *ptr = ucs_sys_malloc(16);
            EXPECT_EQ(call == k, ptr == nullptr) << k << " " << call;
            ucs_sys_free(ptr);
        }
        EXPECT_EQ(50u, calls("malloc"));
        EXPECT_EQ(1u, failed("malloc"));
    }
}

TEST_F(fault, kth_and_all_later_calls_fail)
{
    for (uint64_t k = 1; k <= 20; ++k) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("point", (std::to_string(k) + "+").c_str()));
        for (uint64_t call = 1; call <= 30; ++call) {
            errno = 0;
            EXPECT_EQ(call >= k, ucs_fault_point("point") != 0);
            EXPECT_EQ((call >= k) ? EIO : 0, errno);
        }
    }
}

TEST_F(fault, zero_only_counts)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("*", "0"));
    for (int i = 0; i < 7; ++i) {
        void *ptr = ucs_sys_malloc(1);
        EXPECT_NE(nullptr, ptr);
        ucs_sys_free(ptr);
        EXPECT_FALSE(ucs_fault_point("mine"));
    }
    EXPECT_EQ(14u, calls("*"));
    EXPECT_EQ(0u, failed("*"));
}

TEST_F(fault, errno_is_kept_when_the_call_goes_on)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "2:ENOSPC"));
    errno = 1234;
    EXPECT_FALSE(ucs_fault_point("p"));
    EXPECT_EQ(1234, errno);
    EXPECT_TRUE(ucs_fault_point("p"));
    EXPECT_EQ(ENOSPC, errno);
    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "1:99"));
    EXPECT_TRUE(ucs_fault_point("p"));
    EXPECT_EQ(99, errno);
}

struct model_entry {
    uint64_t first;
    bool stay;
    uint64_t calls;
    uint64_t failed;
};

TEST_F(fault, random_programs_against_a_model)
{
    seeded_random rnd(10);
    const std::vector<std::string> points   = {"mmap", "malloc", "memalign", "send", "sendmsg"};
    const std::vector<std::string> patterns = {"mmap", "malloc", "m*", "send*", "sendmsg", "*"};
    std::map<std::string, model_entry> model;

    for (int step = 0; step < 20000; ++step) {
        const std::string &pattern = patterns[rnd.below(patterns.size())];
        switch (rnd.below(20)) {
        case 0: {
            const model_entry entry = {rnd.below(6), rnd.one_in(3), 0, 0};
            const std::string spec  = std::to_string(entry.first) + (entry.stay ? "+" : "");
            ASSERT_EQ(UCS_OK, ucs_fault_set(pattern.c_str(), spec.c_str()));
            model[pattern] = entry;
            break;
        }
        case 1:
            ucs_fault_clear(pattern.c_str());
            model.erase(pattern);
            break;
        default: {
            const std::string &point = points[rnd.below(points.size())];
            bool expected            = false;
            for (auto &item : model) {
                const std::string stem = item.first.substr(0, item.first.size() - 1);
                if ((item.first != point) &&
                    ((item.first.back() != '*') || (point.compare(0, stem.size(), stem) != 0))) {
                    continue;
                }
                model_entry &entry = item.second;
                ++entry.calls;
                const bool fails = (entry.first > 0) &&
                                   (entry.stay ? (entry.calls >= entry.first) :
                                                 (entry.calls == entry.first));
                entry.failed += fails;
                expected      = expected || fails;
            }
            ASSERT_EQ(expected, ucs_fault_hit(point.c_str(), EIO) != 0) << step;
            break;
        }
        }
        ASSERT_EQ(model.empty() ? 0 : 1, ucs_fault_state);
    }
    for (const auto &item : model) {
        EXPECT_EQ(item.second.calls, calls(item.first.c_str()));
        EXPECT_EQ(item.second.failed, failed(item.first.c_str()));
    }
}

TEST_F(fault, probability_follows_the_seed)
{
    std::vector<bool> first, second, other;
    for (std::vector<bool> *run : {&first, &second, &other}) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("p", (run == &other) ? "p0.3:seed8" : "p0.3:seed7"));
        for (int i = 0; i < 10000; ++i) {
            run->push_back(ucs_fault_point("p"));
        }
        EXPECT_NEAR(3000.0, static_cast<double>(failed("p")), 300.0);
    }
    EXPECT_EQ(first, second);
    EXPECT_NE(first, other);

    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "p0"));
    ASSERT_EQ(UCS_OK, ucs_fault_set("q", "p1"));
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(ucs_fault_point("p"));
        EXPECT_TRUE(ucs_fault_point("q"));
    }
}

TEST_F(fault, wrong_specifications_change_nothing)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "1+"));
    for (const char *bad : {"", "x", "-1", "1-", "1++", "p", "p2", "p-1", "p0.5x", "pnan",
                            "1:seed", "1:seedx", "1:EWHAT", "1:0", "1:99999", "1:EPERM1", ":", "+",
                            "99999999999999999999"}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set("p", bad)) << bad;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set("new", bad)) << bad;
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set("", "1"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set(nullptr, "1"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set("p", nullptr));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set("p", std::string(1000, '1').c_str()));
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, ucs_fault_set(std::string(1000, 'n').c_str(), "1"));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_fault_query("new", nullptr, nullptr));
    EXPECT_TRUE(ucs_fault_point("p"));
}

TEST_F(fault, table_is_bounded)
{
    for (int i = 0; i < UCS_FAULT_ENTRIES_MAX; ++i) {
        ASSERT_EQ(UCS_OK, ucs_fault_set(("n" + std::to_string(i)).c_str(), "1"));
    }
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, ucs_fault_set("more", "1"));
    EXPECT_EQ(UCS_OK, ucs_fault_set("n5", "2"));
    ucs_fault_clear("n5");
    EXPECT_EQ(UCS_OK, ucs_fault_set("more", "1"));
}

TEST_F(fault, list_and_environment)
{
    EXPECT_EQ(UCS_OK, ucs_fault_set_list("mmap:3,malloc:10+,sendmsg:p0.01:seed5,,x:1:EPERM"));
    for (const char *name : {"mmap", "malloc", "sendmsg", "x"}) {
        EXPECT_EQ(UCS_OK, ucs_fault_query(name, nullptr, nullptr)) << name;
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_fault_set_list("a:1,b,c:1"));
    EXPECT_EQ(UCS_OK, ucs_fault_query("a", nullptr, nullptr));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_fault_query("c", nullptr, nullptr));

    /* a process that has just started looks at the environment at its first fault point */
    ucs_fault_clear(nullptr);
    setenv("UCX_FAULT", "eventfd:2:ENOSYS", 1);
    ucs_fault_state = 2;
    const int fd = ucs_sys_eventfd(0, 0);
    EXPECT_GE(fd, 0);
    ucs_sys_close(fd);
    EXPECT_EQ(1, ucs_fault_state);
    EXPECT_EQ(-1, ucs_sys_eventfd(0, 0));
    EXPECT_EQ(ENOSYS, errno);

    ucs_fault_clear(nullptr);
    unsetenv("UCX_FAULT");
    ucs_fault_state = 2;
    EXPECT_FALSE(ucs_fault_point("x"));
    EXPECT_EQ(0, ucs_fault_state);
}

TEST_F(fault, hostile_lists_do_not_crash)
{
    seeded_random rnd(11);
    const std::string alphabet = "malloc:,+0123456789pseedE.*\x01\xff";
    for (int i = 0; i < 20000; ++i) {
        std::string text(rnd.below(80), ' ');
        for (char &c : text) {
            c = alphabet[rnd.below(alphabet.size())];
        }
        (void)ucs_fault_set_list(text.c_str());
        if (rnd.one_in(20)) {
            ucs_fault_clear(nullptr);
        }
    }
    ucs_fault_clear(nullptr);
    EXPECT_FALSE(ucs_fault_point("malloc"));
}

TEST_F(fault, threads_share_one_count)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "5000"));
    std::vector<std::thread> threads;
    std::vector<int> hits(4);
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t, &hits] {
            for (int i = 0; i < 2500; ++i) {
                hits[t] += ucs_fault_point("p");
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(1, hits[0] + hits[1] + hits[2] + hits[3]);
    EXPECT_EQ(10000u, calls("p"));
}

/* A child is forked while another thread is at a point: nobody would ever leave that there. */
TEST_F(fault, child_of_a_fork_passes)
{
    (void)ucs_global_opts();
    ASSERT_EQ(UCS_OK, ucs_fault_set("p", "0"));
    std::atomic<bool> stop(false);
    std::thread other([&] {
        while (!stop) {
            (void)ucs_fault_point("p");
        }
    });
    int status = 0;
    for (int i = 0; (i < 50) && (status == 0); ++i) {
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            _exit(ucs_fault_point("p"));
        }
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
    }
    stop = true;
    other.join();
    EXPECT_EQ(0, status);
}

} // namespace
