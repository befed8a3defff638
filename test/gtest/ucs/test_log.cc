/* Halyard: tests of logging and assertions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#define UCS_LOG_LEVEL_COMPILED UCS_LOG_LEVEL_TRACE_POLL
#define UCS_LOG_COMPONENT      "logtest"
#include <seed.h>
#include <ucs/config/global.h>
#include <ucs/debug/assert.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

/* A program that logs and pushes handlers before anything of the library was initialised. */
struct early {
    early()
    {
        ucs_log_push_handler([](const char *, unsigned, const char *, ucs_log_level_t,
                                const ucs_log_component_config_t *, const char *, va_list) {
            ++count;
            return UCS_LOG_FUNC_RC_STOP;
        });
        ucs_warn("from a constructor");
        ucs_log_pop_handler();
    }

    static int count;
};

int early::count = 0;
const early g_early;

struct record {
    ucs_log_level_t level;
    std::string component;
    std::string text;
};

std::vector<record> g_records;
std::vector<int> g_calls;
uint64_t g_now = 1;
int g_writes;

ucs_log_func_rc_t capture(const char *, unsigned, const char *, ucs_log_level_t level,
                          const ucs_log_component_config_t *component, const char *message,
                          va_list ap)
{
    char line[4096];
    vsnprintf(line, sizeof(line), message, ap);
    g_records.push_back({level, component->name, line});
    return UCS_LOG_FUNC_RC_STOP;
}

class log : public testing::Test {
protected:
    void SetUp() override
    {
        (void)ucs_global_opts();
        ucs_fault_clear(nullptr);
        char name[] = "/tmp/halyard-log-XXXXXX";
        m_dir       = mkdtemp(name);
        m_sys       = ucs_sys_real;
        g_records.clear();
        g_calls.clear();
    }

    void TearDown() override
    {
        ucs_sys_set(nullptr);
        ucs_log_set_levels("warn");
        ucs_log_set_file(nullptr, 0, nullptr);
        EXPECT_EQ(1u, ucs_log_num_handlers());
        EXPECT_EQ(0, system(("rm -rf " + m_dir).c_str()));
    }

    static std::string contents(const std::string &path)
    {
        std::ifstream file(path);
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    static std::vector<std::string> lines(const std::string &path)
    {
        std::vector<std::string> result;
        std::istringstream text(contents(path));
        for (std::string line; std::getline(text, line);) {
            result.push_back(line);
        }
        return result;
    }

    std::string m_dir;
    ucs_sys_ops_t m_sys;
};

/* A place of its own for each message, so that none is held back as a repetition. */
void log_at(ucs_log_level_t level)
{
    ucs_log_site_t site = UCS_LOG_SITE_INIT;
    if (ucs_log_is_enabled(level)) {
        ucs_log_dispatch(&site, __func__, level, "level %d", static_cast<int>(level));
    }
}

TEST_F(log, works_before_any_initialisation)
{
    EXPECT_EQ(1, early::count);
}

TEST_F(log, levels)
{
    ucs_log_push_handler(capture);
    for (int shown = 0; shown < UCS_LOG_LEVEL_LAST; ++shown) {
        ASSERT_EQ(UCS_OK, ucs_log_set_levels(ucs_log_level_words[shown]));
        for (int level = 0; level < UCS_LOG_LEVEL_LAST; ++level) {
            g_records.clear();
            log_at(static_cast<ucs_log_level_t>(level));
            EXPECT_EQ((level <= shown) ? 1u : 0u, g_records.size()) << shown << " " << level;
        }
    }
    EXPECT_EQ(nullptr, ucs_log_level_words[UCS_LOG_LEVEL_LAST]);
    ucs_log_pop_handler();
}

TEST_F(log, levels_of_components)
{
    ucs_log_push_handler(capture);
    ASSERT_EQ(UCS_OK, ucs_log_set_levels("error,logtest=debug,mm=trace"));
    log_at(UCS_LOG_LEVEL_DEBUG);
    log_at(UCS_LOG_LEVEL_TRACE);
    ASSERT_EQ(1u, g_records.size());
    EXPECT_EQ("logtest", g_records[0].component);
    ASSERT_EQ(UCS_OK, ucs_log_set_levels("logtest=error,debug"));
    log_at(UCS_LOG_LEVEL_WARN);
    EXPECT_EQ(1u, g_records.size());
    ASSERT_EQ(UCS_OK, ucs_log_set_levels("error , logtest = debug ,\tmm =trace "));
    log_at(UCS_LOG_LEVEL_DEBUG);
    EXPECT_EQ(2u, g_records.size());

    EXPECT_EQ(UCS_OK, ucs_log_check_levels("warn,")); /* a comma at the end is forgiven */
    for (const char *bad : {"", "loud", ",", "warn,=debug", "warn,mm=", "warn,mm=loud", "=",
                            "warn,a_name_that_is_too_long=debug", "1"}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_log_check_levels(bad)) << bad;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_log_set_levels(bad)) << bad;
    }
    std::string many = "warn";
    for (int i = 0; i < 16; ++i) {
        many += ",c" + std::to_string(i) + "=info";
    }
    EXPECT_EQ(UCS_OK, ucs_log_check_levels(many.c_str()));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_log_check_levels((many + ",d=info").c_str()));
    ucs_log_pop_handler();
}

TEST_F(log, hostile_levels_do_not_crash)
{
    seeded_random rnd(30);
    const char *const pieces[] = {"warn", "debug", ",", "=", "mm", "x", "\xff", "trace", "poll"};
    for (int i = 0; i < 20000; ++i) {
        std::string text;
        for (uint64_t n = rnd.below(40); n > 0; --n) {
            text += pieces[rnd.below(9)];
        }
        (void)ucs_log_check_levels(text.c_str());
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_log_check_levels(nullptr));
}

TEST_F(log, errno_is_shown_and_kept)
{
    ucs_log_push_handler(capture);
    errno = ENOSPC;
    ucs_error("it failed: %m");
    EXPECT_EQ(ENOSPC, errno);
    ASSERT_EQ(1u, g_records.size());
    EXPECT_EQ(std::string("it failed: ") + strerror(ENOSPC), g_records[0].text);
    ucs_log_pop_handler();
}

void repeat(int number)
{
    ucs_warn("number %d", number);
}

TEST_F(log, repetitions_are_counted_not_shown)
{
    m_sys.clock_ns = [] { return g_now; };
    ucs_sys_set(&m_sys);
    ucs_log_push_handler(capture);
    for (int i = 0; i < 100; ++i) {
        repeat(i);
        g_now += 1000000;
    }
    ASSERT_EQ(5u, g_records.size());
    EXPECT_EQ("number 4", g_records[4].text);

    ucs_warn("another place is not affected");
    EXPECT_EQ(6u, g_records.size());

    g_now += 11000000000ull;
    g_records.clear();
    repeat(100);
    ASSERT_EQ(2u, g_records.size());
    EXPECT_NE(std::string::npos, g_records[0].text.find("95 more times"));
    EXPECT_EQ("number 100", g_records[1].text);

    g_records.clear();
    for (int i = 0; i < 3; ++i) {
        ucs_warn_once("once %d", i);
    }
    ASSERT_EQ(1u, g_records.size());

    ASSERT_EQ(UCS_OK, ucs_log_set_levels("debug"));
    g_records.clear();
    for (int i = 0; i < 100; ++i) {
        ucs_debug("a trace must be complete %d", i);
    }
    EXPECT_EQ(100u, g_records.size());
    ucs_log_pop_handler();
}

template <int id, ucs_log_func_rc_t rc>
ucs_log_func_rc_t numbered(const char *, unsigned, const char *, ucs_log_level_t,
                           const ucs_log_component_config_t *, const char *, va_list)
{
    g_calls.push_back(id);
    return rc;
}

TEST_F(log, handlers_are_a_stack)
{
    ucs_log_push_handler(numbered<1, UCS_LOG_FUNC_RC_STOP>);
    ucs_log_push_handler(numbered<2, UCS_LOG_FUNC_RC_CONTINUE>);
    ucs_log_push_handler(nullptr);
    EXPECT_EQ(3u, ucs_log_num_handlers());
    ucs_error("x");
    EXPECT_EQ((std::vector<int>{2, 1}), g_calls);
    ucs_log_push_handler(numbered<3, UCS_LOG_FUNC_RC_STOP>);
    g_calls.clear();
    ucs_error("x");
    EXPECT_EQ((std::vector<int>{3}), g_calls);
    ucs_log_pop_handler();
    ucs_log_pop_handler();

    g_calls.clear();
    while (ucs_log_num_handlers() < 32) {
        ucs_log_push_handler(numbered<1, UCS_LOG_FUNC_RC_STOP>);
    }
    ucs_log_push_handler(numbered<4, UCS_LOG_FUNC_RC_STOP>);
    EXPECT_EQ(32u, ucs_log_num_handlers());
    while (ucs_log_num_handlers() > 0) {
        ucs_log_pop_handler();
    }
    ucs_log_pop_handler();
    ucs_error("nobody listens");
    EXPECT_EQ(0u, ucs_log_num_handlers());
    ucs_log_push_handler(ucs_log_default_handler);
    EXPECT_EQ((std::vector<int>{1}), g_calls); /* the warning of the one too many */
}

TEST_F(log, a_line_is_one_write)
{
    const std::string path = m_dir + "/log";
    m_sys.write            = [](int fd, const void *buf, size_t size) {
        ++g_writes;
        return write(fd, buf, size);
    };
    ucs_sys_set(&m_sys);
    g_writes = 0;
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ucs_error("first %s", "line");
    ucs_warn("second");
    EXPECT_EQ(2, g_writes);

    char host[64];
    ucs_sys_hostname(host, sizeof(host));
    const auto written = lines(path);
    ASSERT_EQ(2u, written.size());
    char expected[256];
    unsigned long long seconds, micros;
    ASSERT_EQ(2, sscanf(written[0].c_str(), "[%llu.%llu]", &seconds, &micros));
    snprintf(expected, sizeof(expected), "[%llu.%06llu] [%s:%d] logtest ERROR first line", seconds,
             micros, host, static_cast<int>(getpid()));
    EXPECT_EQ(expected, written[0]);
    EXPECT_NEAR(static_cast<double>(time(nullptr)), static_cast<double>(seconds), 100.0);
}

TEST_F(log, long_lines_are_cut)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    for (size_t size = 1900; size < 2100; ++size) {
        ucs_log_site_t site = UCS_LOG_SITE_INIT;
        ucs_log_dispatch(&site, "f", UCS_LOG_LEVEL_ERROR, "<%s>", std::string(size, 'x').c_str());
    }
    const auto written = lines(path);
    ASSERT_EQ(200u, written.size());
    bool cut = false;
    for (size_t i = 0; i < written.size(); ++i) {
        const bool whole = (written[i].back() == '>');
        EXPECT_TRUE(whole || (written[i].substr(written[i].size() - 3) == "...")) << i;
        EXPECT_FALSE(cut && whole);
        cut = cut || !whole;
        EXPECT_LT(written[i].size(), 2048u);
        if (whole) {
            EXPECT_NE(std::string::npos, written[i].find("<" + std::string(1900 + i, 'x') + ">"));
        }
    }
    EXPECT_TRUE(cut);
}

TEST_F(log, file_name_has_process_and_host)
{
    char host[64];
    ucs_sys_hostname(host, sizeof(host));
    ASSERT_EQ(UCS_OK, ucs_log_set_file((m_dir + "/%p.%h.%%").c_str(), 0, nullptr));
    ucs_error("parent");
    const pid_t pid = fork();
    if (pid == 0) {
        ucs_warn("child");
        _exit(0);
    }
    waitpid(pid, nullptr, 0);
    const auto name = [&](pid_t p) { return m_dir + "/" + std::to_string(p) + "." + host + ".%"; };
    ASSERT_EQ(1u, lines(name(getpid())).size());
    ASSERT_EQ(1u, lines(name(pid)).size());
    EXPECT_NE(std::string::npos, lines(name(pid))[0].find("child"));
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT,
              ucs_log_set_file(std::string(UCS_LOG_PATH_MAX, 'x').c_str(), 0, nullptr));
}

TEST_F(log, file_size_is_bounded)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 4096, nullptr));
    std::string last;
    for (int i = 0; i < 500; ++i) {
        ucs_log_site_t site = UCS_LOG_SITE_INIT;
        last                = "message " + std::to_string(i) + " ";
        ucs_log_dispatch(&site, "f", UCS_LOG_LEVEL_ERROR, "%s", last.c_str());
        ASSERT_LE(contents(path).size(), 4096u);
    }
    EXPECT_NE(std::string::npos, contents(path).find(last));
    const size_t old_size = contents(path + ".1").size();
    EXPECT_GT(old_size, 3000u);
    EXPECT_LE(old_size, 4096u);
}

/* While one thread is about to write, another one's line begins the file anew, and a third opens a
 * file of its own. */
TEST_F(log, no_line_goes_to_the_file_of_somebody_else)
{
    static std::string others;
    static int others_fd, writes;
    const std::string path = m_dir + "/log";
    others                 = m_dir + "/others";
    others_fd              = -1;
    writes                 = 0;
    m_sys.close            = [](int fd) {
        const int ret = close(fd);
        if (others_fd < 0) {
            others_fd = open(others.c_str(), O_WRONLY | O_CREAT, 0600);
        }
        return ret;
    };
    m_sys.write = [](int fd, const void *buf, size_t count) {
        if (++writes == 2) {
            ucs_error("%s", std::string(1500, 'y').c_str());
        }
        return write(fd, buf, count);
    };
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 4096, nullptr));
    ucs_sys_set(&m_sys);
    ucs_error("%s", std::string(1500, 'x').c_str());
    ucs_error("%s", std::string(1500, 'z').c_str());
    ucs_sys_set(nullptr);
    EXPECT_GE(others_fd, 0);
    EXPECT_EQ("", contents(others));
    EXPECT_EQ(1u, lines(path + ".1").size());
    EXPECT_EQ(2u, lines(path).size());
    close(others_fd);
    ASSERT_EQ(UCS_OK, ucs_log_set_file((m_dir + "/next").c_str(), 0, nullptr));
    ucs_error("the next file");
    EXPECT_EQ(1u, lines(m_dir + "/next").size());
    EXPECT_EQ(2u, lines(path).size());
}

/* A process that forks and closes all that it has inherited goes on with a log of its own. */
TEST_F(log, goes_on_after_all_descriptors_are_closed)
{
    const std::string path = m_dir + "/log", others = m_dir + "/others";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ucs_error("parent");
    const pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 3; fd < 256; ++fd) {
            close(fd);
        }
        ucs_error("first");
        (void)open(others.c_str(), O_WRONLY | O_CREAT, 0600);
        ucs_error("second");
        _exit(0);
    }
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(3u, lines(path).size());
    EXPECT_EQ("", contents(others));
}

/* One that has a file of its own under the number of the log by then keeps it. */
TEST_F(log, keeps_off_what_has_its_number)
{
    const std::string path = m_dir + "/log", others = m_dir + "/others";
    for (const bool forks : {false, true}) {
        const pid_t pid = fork();
        if (pid == 0) {
            ucs_log_set_file(path.c_str(), 0, nullptr);
            ucs_error("first");
            for (int fd = 3; fd < 256; ++fd) {
                close(fd);
            }
            const int own = open(others.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (!forks) {
                ucs_log_set_file((path + ".next").c_str(), 0, nullptr);
            }
            if (!forks || (fork() == 0)) {
                ucs_error("second");
                (void)!write(own, "own\n", 4);
            }
            wait(nullptr);
            _exit(0);
        }
        waitpid(pid, nullptr, 0);
        EXPECT_EQ("own\n", contents(others)) << forks;
    }
    EXPECT_EQ(3u, lines(path).size());
    EXPECT_EQ(1u, lines(path + ".next").size());
}

/* Fills the log until it is begun anew. */
void log_much(const std::string &text)
{
    for (int i = 0; i < 3; ++i) {
        ucs_log_site_t site = UCS_LOG_SITE_INIT;
        ucs_log_dispatch(&site, "f", UCS_LOG_LEVEL_ERROR, "%s %s", text.c_str(),
                         std::string(1500, 'x').c_str());
    }
}

/* A name without a folder means the one in which the program was. */
TEST_F(log, stays_in_its_folder)
{
    const pid_t pid = fork();
    if (pid == 0) {
        int wrong = (mkdir((m_dir + "/else").c_str(), 0700) != 0) || (chdir(m_dir.c_str()) != 0) ||
                    (ucs_log_set_file("log", 4096, nullptr) != UCS_OK) || (chdir("else") != 0);
        std::ofstream("log") << "mine\n";
        log_much("one");
        _exit(wrong);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);
    EXPECT_EQ("mine\n", contents(m_dir + "/else/log"));
    EXPECT_EQ(2u, lines(m_dir + "/log.1").size());
    EXPECT_EQ(1u, lines(m_dir + "/log").size());
}

/* Of processes that share a file only one renames it. */
TEST_F(log, shared_file_is_begun_anew_once)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 4096, nullptr));
    ucs_error("ours");
    ASSERT_EQ(0, rename(path.c_str(), (path + ".1").c_str()));
    std::ofstream(path) << "another process's\n";
    log_much("ours");
    EXPECT_NE(std::string::npos, contents(path + ".1").find("logtest ERROR ours\n"));
    EXPECT_NE(std::string::npos, contents(path).find("another process's"));
}

/* A child that was forked while another thread opened the file opens it itself. */
TEST_F(log, child_opens_what_another_thread_was_opening)
{
    static std::atomic<int> opens;
    const std::string path = m_dir + "/log";
    opens                  = 0;
    m_sys.open             = [](const char *name, int flags, mode_t mode) {
        while (opens == 1) {
            usleep(100);
        }
        return ucs_sys_real.open(name, flags, mode);
    };
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ucs_sys_set(&m_sys);
    std::thread other([] {
        opens = 1;
        log_at(UCS_LOG_LEVEL_ERROR);
    });
    while (opens == 0) {
        usleep(100);
    }
    usleep(10000);
    const pid_t pid = fork();
    if (pid == 0) {
        opens = 2;
        log_at(UCS_LOG_LEVEL_ERROR);
        _exit(0);
    }
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(1u, lines(path).size());
    opens = 2;
    other.join();
    EXPECT_EQ(2u, lines(path).size());
}

/* Who opens the last file does not bring it back. */
TEST_F(log, another_file_while_one_is_opened)
{
    static std::atomic<int> opens;
    const std::string path = m_dir + "/log", next = m_dir + "/next";
    opens                  = 0;
    m_sys.open             = [](const char *name, int flags, mode_t mode) {
        opens = 1;
        usleep(50000);
        return ucs_sys_real.open(name, flags, mode);
    };
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ucs_sys_set(&m_sys);
    std::thread other([] { log_at(UCS_LOG_LEVEL_ERROR); });
    while (opens == 0) {
        usleep(100);
    }
    ASSERT_EQ(UCS_OK, ucs_log_set_file(next.c_str(), 0, nullptr));
    other.join();
    log_at(UCS_LOG_LEVEL_ERROR);
    EXPECT_EQ(1u, lines(next).size());
}

/* A pipe that nobody reads is no place to wait in. */
TEST_F(log, unread_pipe_means_stderr)
{
    const std::string path = m_dir + "/pipe";
    ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    testing::internal::CaptureStderr();
    ucs_error("lost?");
    EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find("lost?"));

    const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ucs_error("found");
    char text[256] = "";
    EXPECT_GT(read(reader, text, sizeof(text) - 1), 0);
    EXPECT_NE(nullptr, strstr(text, "found"));
    close(reader);
}

TEST_F(log, source_filter)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, "other_*.c"));
    ucs_error("filtered");
    EXPECT_EQ("", contents(path));
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, "test_l?g.cc"));
    ucs_error("passed");
    EXPECT_EQ(1u, lines(path).size());
}

TEST_F(log, unwritable_file_means_stderr)
{
    testing::internal::CaptureStderr();
    ASSERT_EQ(UCS_OK, ucs_log_set_file((m_dir + "/none/log").c_str(), 0, nullptr));
    ucs_error("lost?");
    ucs_error("no");
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(std::string::npos, text.find("cannot open log file"));
    EXPECT_NE(std::string::npos, text.find("lost?"));
    EXPECT_NE(std::string::npos, text.find("no\n"));
}

TEST_F(log, lines_of_threads_do_not_mix)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 0, nullptr));
    ASSERT_EQ(UCS_OK, ucs_log_set_levels("debug"));
    ucs_error("opens the file");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            const std::string text(100, static_cast<char>('a' + t));
            for (int i = 0; i < 500; ++i) {
                ucs_debug("<%s>", text.c_str());
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const auto written = lines(path);
    ASSERT_EQ(2001u, written.size());
    for (size_t i = 1; i < written.size(); ++i) {
        const std::string body = written[i].substr(written[i].find('<'));
        ASSERT_EQ("<" + std::string(100, body[1]) + ">", body);
    }
}

TEST_F(log, the_log_is_no_call_under_test)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_fault_set("*", "1+"));
    ASSERT_EQ(UCS_OK, ucs_log_set_file(path.c_str(), 4096, nullptr));
    ucs_error("heard although every call fails");
    uint64_t calls = 1;
    ucs_fault_query("*", &calls, nullptr);
    ucs_fault_clear(nullptr);
    EXPECT_EQ(0u, calls);
    EXPECT_EQ(1u, lines(path).size());
}

TEST_F(log, options_take_effect)
{
    const std::string path = m_dir + "/log";
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_FILE", path.c_str()));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "info,logtest=debug"));
    log_at(UCS_LOG_LEVEL_DEBUG);
    EXPECT_EQ(1u, lines(path).size());

    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_FILE", ""));
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    ASSERT_EQ(UCS_OK, ucs_global_opts_reload());
    EXPECT_EQ(UCS_LOG_LEVEL_FATAL, ucs_log_threshold);
    unsetenv("UCX_LOG_LEVEL");
    ASSERT_EQ(UCS_OK, ucs_global_opts_reload());
    EXPECT_EQ(UCS_LOG_LEVEL_WARN, ucs_log_threshold);
}

TEST_F(log, assertions)
{
    ucs_assert_always(1 + 1 == 2);
    ucs_assertv_always(1 + 1 == 2, "not %d", 1);
    EXPECT_DEATH(ucs_assert_always(1 + 1 == 3),
                 "FATAL test_log.cc:[0-9]+ assertion '1 \\+ 1 == 3'");
    EXPECT_DEATH(ucs_assertv_always(g_now == 0, "now is %d", 7), "failed: now is 7");
    EXPECT_DEATH(ucs_fatal("the end: %m"), "FATAL .*the end");
#ifdef ENABLE_ASSERT
    EXPECT_DEATH(ucs_assert(g_now == 0), "assertion");
#else
    int evaluated = 0;
    ucs_assert(++evaluated == 0);
    EXPECT_EQ(0, evaluated);
#endif
}

} // namespace
