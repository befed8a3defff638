/* Halyard: tests of the module loader.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <ucs/config/global.h>
#include <ucs/debug/log.h>
#include <ucs/sys/module.h>
#include <ucs/sys/sys.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

std::vector<std::string> g_lines;

ucs_log_func_rc_t capture(const char *, unsigned, const char *, ucs_log_level_t,
                          const ucs_log_component_config_t *, const char *message, va_list ap)
{
    char line[1024];
    vsnprintf(line, sizeof(line), message, ap);
    g_lines.push_back(line);
    return UCS_LOG_FUNC_RC_STOP;
}

/* Each test in a child: what was asked for is remembered for the life of a process. */
class module : public testing::Test {
protected:
    template <typename body_t>
    void in_child(const std::string &folder, const body_t &body)
    {
        const pid_t pid = fork();
        if (pid == 0) {
            if (ucs_global_opts_set("MODULE_DIR", folder.c_str()) != UCS_OK) {
                _exit(2);
            }
            g_lines.clear();
            ucs_log_set_levels("diag");
            ucs_log_push_handler(capture);
            body();
            fflush(stdout);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        EXPECT_EQ(0, status);
    }

    static std::string build_folder()
    {
        return std::string(HALYARD_BUILDDIR) + "/test/gtest/.libs";
    }
};

TEST_F(module, present)
{
    in_child(build_folder(), [] {
        void *handle = nullptr, *again = nullptr;
        ASSERT_EQ(UCS_OK, ucs_module_load("haltest", "sample", &handle));
        ASSERT_EQ(UCS_OK, ucs_module_load("haltest", "sample", &again));
        EXPECT_EQ(handle, again);
        const int *answer =
            static_cast<const int *>(ucs_module_symbol(handle, "test_module_answer"));
        ASSERT_NE(nullptr, answer);
        EXPECT_EQ(42, *answer);
        EXPECT_EQ(nullptr, ucs_module_symbol(handle, "something_else"));

        ucs_module_info_t info;
        ASSERT_EQ(UCS_OK, ucs_module_query(0, &info));
        EXPECT_STREQ("haltest", info.layer);
        EXPECT_STREQ("sample", info.name);
        EXPECT_STREQ("", info.reason);
        EXPECT_EQ(UCS_OK, info.status);
        EXPECT_EQ(build_folder() + "/libhaltest_sample.so", info.path);
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_module_query(1, &info));
        EXPECT_TRUE(g_lines.empty());
    });
}

TEST_F(module, absence_is_quiet)
{
    for (const char *folder : {"/nowhere", ""}) {
        in_child(folder, [] {
            void *handle = nullptr;
            for (int i = 0; i < 3; ++i) {
                EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_module_load("haltest", "none", &handle));
            }
            EXPECT_EQ(nullptr, handle);
            EXPECT_TRUE(g_lines.empty());
            ucs_module_info_t info;
            ASSERT_EQ(UCS_OK, ucs_module_query(0, &info));
            EXPECT_EQ(UCS_ERR_NO_ELEM, info.status);
            EXPECT_STREQ("", info.path);
            EXPECT_STREQ("not installed", info.reason);
        });
    }
}

TEST_F(module, broken_file_has_a_reason)
{
    char folder[] = "/tmp/halyard-module-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    const std::string path = std::string(folder) + "/libhaltest_broken.so";
    FILE *file             = fopen(path.c_str(), "w");
    fputs("this is not a library", file);
    fclose(file);
    in_child(folder, [] {
        void *handle = nullptr;
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucs_module_load("haltest", "broken", &handle));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucs_module_load("haltest", "broken", &handle));
        EXPECT_EQ(nullptr, handle);
        ASSERT_EQ(1u, g_lines.size());
        EXPECT_NE(std::string::npos, g_lines[0].find("haltest_broken is not used: "));
        ucs_module_info_t info;
        ASSERT_EQ(UCS_OK, ucs_module_query(0, &info));
        EXPECT_STRNE("", info.reason);
    });
    unlink(path.c_str());
    rmdir(folder);
}

TEST_F(module, names_cannot_lead_elsewhere)
{
    in_child(build_folder(), [] {
        void *handle = nullptr;
        for (const char *bad : {"", "..", "a/b", "../sample", "Sample", "a.so", "sample ", "\xff",
                                "a_name_that_is_much_too_long_for_the_table"}) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_module_load("haltest", bad, &handle)) << bad;
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_module_load(bad, "sample", &handle)) << bad;
        }
        ucs_module_info_t info;
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_module_query(0, &info));
    });
}

TEST_F(module, number_is_bounded)
{
    in_child("/nowhere", [] {
        void *handle = nullptr;
        for (int i = 0; i < UCS_MODULES_MAX; ++i) {
            EXPECT_EQ(UCS_ERR_NO_ELEM,
                      ucs_module_load("haltest", ("n" + std::to_string(i)).c_str(), &handle));
        }
        EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, ucs_module_load("haltest", "more", &handle));
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_module_load("haltest", "n3", &handle));
    });
}

} // namespace
