/* Halyard: tests of the counters, and of where they are told.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/config/global.h>
#include <ucs/stats/counters.h>

#include <atomic>
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

namespace {

const char *const names[] = {"sent", "received", "retried"};
const ucs_counters_class_t test_class = {"object", 3, names};

std::string reported(const uint64_t *values, int is_json)
{
    char *text    = nullptr;
    size_t length = 0;
    FILE *stream  = open_memstream(&text, &length);
    ucs_report_t report;
    ucs_report_init(&report, stream, is_json);
    ucs_report_open(&report, nullptr, '{');
    ucs_counters_report(&report, &test_class, values);
    ucs_report_close(&report);
    fclose(stream);
    std::string result(text, length);
    free(text);
    return result;
}

std::string contents(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

TEST(counters, are_reported)
{
    seeded_random rnd(40);
    for (int round = 0; round < 1000; ++round) {
        uint64_t values[3] = {}, expected[3] = {};
        std::string text, json = "{\n  \"counters\": {";
        for (uint64_t i = rnd.below(20); i > 0; --i) {
            const uint64_t which = rnd.below(3), amount = rnd.bits() >> rnd.below(64);
            ucs_counter_add(&values[which], amount);
            expected[which] += amount;
        }
        for (int i = 0; i < 3; ++i) {
            const std::string number = std::to_string(expected[i]);
            ASSERT_EQ(expected[i], ucs_counter_get(&values[i]));
            text += (expected[i] == 0) ? "" :
                    "#" + std::string(24 - strlen(names[i]), ' ') + names[i] + ": " + number + "\n";
            json += std::string(i ? "," : "") + "\n    \"" + names[i] + "\": " + number;
        }
        ASSERT_EQ(text, reported(values, 0));
        ASSERT_EQ(json + "\n  }\n}\n", reported(values, 1));
    }
}

TEST(counters, reader_beside_the_writer)
{
    uint64_t value = 0;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        uint64_t last = 0;
        while (!stop) {
            const uint64_t now = ucs_counter_get(&value);
            EXPECT_GE(now, last);
            last = now;
        }
    });
    for (int i = 0; i < 100000; ++i) {
        ucs_counter_add(&value, 1);
    }
    stop = true;
    reader.join();
    EXPECT_EQ(100000u, ucs_counter_get(&value));
}

class counters_told : public testing::Test {
protected:
    counters_told()
    {
        EXPECT_NE(nullptr, mkdtemp(m_folder));
    }

    ~counters_told() override
    {
        EXPECT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", ""));
        EXPECT_EQ(UCS_OK, ucs_global_opts_set("STATS_FORMAT", "text"));
        EXPECT_EQ(0, system(("rm -r " + std::string(m_folder)).c_str()));
    }

    char m_folder[64]  = "/tmp/halyard-counters-XXXXXX";
    uint64_t m_some[3] = {7, 0, 1};
};

TEST_F(counters_told, in_a_file)
{
    const std::string name = std::string(m_folder) + "/stats", pid = std::to_string(getpid());
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", ("file:" + name + ".%p").c_str()));
    ucs_counters_tell(&test_class, "a name", m_some);
    EXPECT_EQ("# statistics of object a name, process " + pid + "\n"
              "#                    sent: 7\n#                 retried: 1\n",
              contents(name + "." + pid));

    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", ("file:" + name).c_str()));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_FORMAT", "json"));
    for (int i = 0; i < 2; ++i) { /* appended to */
        ucs_counters_tell(&test_class, "\"b\"", m_some);
    }
    const std::string one = "{\n  \"class\": \"object\",\n  \"object\": \"\\\"b\\\"\",\n"
                            "  \"process\": " + pid + ",\n  \"counters\": {\n    \"sent\": 7,\n"
                            "    \"received\": 0,\n    \"retried\": 1\n  }\n}\n";
    EXPECT_EQ(one + one, contents(name));
}

TEST_F(counters_told, nowhere_or_not_at_all)
{
    ucs_counters_tell(&test_class, "quiet", m_some);
    for (const char *wrong : {"file:", "udp:host:1", "out", "stdout:"}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_global_opts_set("STATS_DEST", wrong)) << wrong;
    }
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", "file:/none/such"));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "error"));
    ucs_counters_tell(&test_class, "lost", m_some); /* a warning, no more */
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "warn"));
}

/* Nobody reads the pipe: no reason to wait for ever. */
TEST_F(counters_told, pipe_that_nobody_reads)
{
    const std::string name = std::string(m_folder) + "/pipe";
    ASSERT_EQ(0, mkfifo(name.c_str(), 0600));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", ("file:" + name).c_str()));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "error"));
    ucs_counters_tell(&test_class, "lost", m_some); /* a warning, no more */
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "warn"));

    const int reader = open(name.c_str(), O_RDONLY | O_NONBLOCK);
    ucs_counters_tell(&test_class, "told", m_some);
    char text[256] = "";
    EXPECT_GT(read(reader, text, sizeof(text) - 1), 0);
    EXPECT_NE(nullptr, strstr(text, "statistics of object told"));
    close(reader);
}

/* A reader that takes its time holds up whoever tells, and not a fork, nor who changes options. */
TEST_F(counters_told, slowly)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], m_folder, sizeof(m_folder)) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    const std::string dest = "file:/proc/self/fd/" + std::to_string(ends[1]);
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", dest.c_str()));
    std::thread teller([&] { ucs_counters_tell(&test_class, "slow", m_some); });
    usleep(50000);
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("STATS_DEST", ""));
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    waitpid(pid, nullptr, 0);
    char text[1 << 16];
    EXPECT_GT(read(ends[0], text, sizeof(text)), 0);
    teller.join();
    close(ends[0]);
    close(ends[1]);
}

} // namespace
