/* Halyard: tests of opening other people's libraries.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

extern "C" {
#include <ucs/sys/library.h>
}

#include <cmath>
#include <csignal>
#include <cstddef>
#include <dlfcn.h>
#include <string>

namespace {

typedef struct {
    double (*root)(double);
    double (*cube_root)(double);
    void *after;
} table_t;

/* What the C library brings along. */
const char *const g_file = "libm.so.6";

class library : public testing::Test {
protected:
    void *open(const char *file, const char *second, int is_optional, size_t max)
    {
        const ucs_library_function_t functions[] = {
            {"sqrt", offsetof(table_t, root), 0},
            {second, offsetof(table_t, cube_root), is_optional}
        };
        return ucs_library_open(file, functions, 2, &m_table, m_reason, max);
    }

    table_t m_table   = {nullptr, nullptr, this};
    char m_reason[64] = "none";
};

TEST_F(library, finds_functions)
{
    void *const handle = open(g_file, "cbrt", 0, sizeof(m_reason));
    ASSERT_NE(nullptr, handle);
    EXPECT_EQ(3, m_table.root(9));
    EXPECT_EQ(2, m_table.cube_root(8));
    EXPECT_EQ(this, m_table.after);
    EXPECT_STREQ("none", m_reason);
    EXPECT_EQ(0, dlclose(handle));
}

TEST_F(library, what_is_optional_may_be_missing)
{
    void *const handle = open(g_file, "no_such_function", 1, sizeof(m_reason));
    ASSERT_NE(nullptr, handle);
    EXPECT_EQ(3, m_table.root(9));
    EXPECT_EQ(nullptr, m_table.cube_root);
    EXPECT_EQ(0, dlclose(handle));
}

TEST_F(library, says_what_is_missing)
{
    EXPECT_EQ(nullptr, open(g_file, "no_such_function", 0, sizeof(m_reason)));
    EXPECT_STREQ("libm.so.6 has no no_such_function", m_reason);
    EXPECT_EQ(nullptr, open("libhalyard-none.so.1", "cbrt", 0, sizeof(m_reason)));
    EXPECT_NE(std::string::npos, std::string(m_reason).find("libhalyard-none.so.1")) << m_reason;
    EXPECT_EQ(nullptr, open(g_file, "no_such_function", 0, 8));
    EXPECT_STREQ("libm.so", m_reason);
}

constexpr int RESTORER = 0x04000000; /* what the C library adds to all that it sets */

void handler(int)
{
}

/* Some take over signals as they are loaded; what the program has set stays. */
TEST_F(library, leaves_signals_alone)
{
    int (*answer)()                          = nullptr;
    const ucs_library_function_t functions[] = {{"library_greedy_answer", 0, 0}};
    struct sigaction mine                    = {}, before[3], now;
    const int numbers[]                      = {SIGTERM, SIGSEGV, SIGUSR1};
    mine.sa_handler                          = handler;
    mine.sa_flags                            = SA_RESTART | SA_NODEFER;
    sigaddset(&mine.sa_mask, SIGCHLD);
    ASSERT_EQ(0, sigaction(SIGUSR1, &mine, nullptr));
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(0, sigaction(numbers[i], nullptr, &before[i]));
    }
    void *const handle = ucs_library_open(HALYARD_BUILDDIR "/test/gtest/.libs/libgreedy.so",
                                          functions, 1, &answer, m_reason, sizeof(m_reason));
    ASSERT_NE(nullptr, handle) << m_reason;
    EXPECT_EQ(42, answer());
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(0, sigaction(numbers[i], nullptr, &now));
        EXPECT_EQ(before[i].sa_handler, now.sa_handler) << numbers[i];
        EXPECT_EQ(before[i].sa_flags | RESTORER, now.sa_flags | RESTORER) << numbers[i];
        EXPECT_EQ(sigismember(&before[i].sa_mask, SIGCHLD), sigismember(&now.sa_mask, SIGCHLD));
    }
    signal(SIGUSR1, SIG_DFL);
    EXPECT_EQ(0, dlclose(handle));
}

} // namespace
