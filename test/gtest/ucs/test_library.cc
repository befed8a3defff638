/* Halyard: tests of opening other people's libraries.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

extern "C" {
#include <ucs/sys/library.h>
}

#include <cmath>
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

} // namespace
