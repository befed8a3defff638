/* Halyard: tests of the configuration: types, sources and their order, files, messages, fuzz.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/config/file.h>
#include <ucs/config/global.h>
#include <ucs/config/names.h>
#include <ucs/config/parser.h>
#include <ucs/debug/fault.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* rows without arg, min, max or flags are meant */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace {

const char *const mode_names[] = {"eager", "rndv", "auto", nullptr};

struct opts {
    int yes;
    int ternary;
    int number;
    unsigned count;
    unsigned slots;
    uint64_t large;
    double ratio;
    size_t size;
    size_t seg;
    uint64_t time;
    double bandwidth;
    double min_bandwidth;
    char *text;
    unsigned mode;
    ucs_config_names_array_t list;
    ucs_config_names_array_t parts;
    ucs_config_allow_list_t tls;
};

const ucs_config_row_t rows[] = {
    UCS_CONFIG_ROW("YES", bool, opts, yes, "y", "A switch."),
    UCS_CONFIG_ROW("TERNARY", ternary, opts, ternary, "try", "A switch of four."),
    UCS_CONFIG_ROW("NUMBER", int, opts, number, "-5", "A number."),
    UCS_CONFIG_ROW("COUNT", uint, opts, count, "inf", "A number.",
                   .flags = UCS_CONFIG_ROW_INF | UCS_CONFIG_ROW_AUTO),
    UCS_CONFIG_ROW("SLOTS", uint, opts, slots, "256", "A number of slots.", .min = 16,
                   .max = 65536, .flags = UCS_CONFIG_ROW_POW2),
    UCS_CONFIG_ROW("LARGE", u64, opts, large, "123456789012345", "A number."),
    UCS_CONFIG_ROW("RATIO", double, opts, ratio, "0.25", "A ratio.",
                   .flags = UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW("SIZE", memunits, opts, size, "auto", "Bytes.",
                   .flags = UCS_CONFIG_ROW_INF | UCS_CONFIG_ROW_AUTO),
    UCS_CONFIG_ROW("SEG", memunits, opts, seg, "8256", "Bytes of a segment. A help text so long "
                   "that it has to be broken over several lines when it is shown to people.",
                   .min = 64, .max = 1 << 20),
    UCS_CONFIG_ROW("TIME", time, opts, time, "1.5ms", "A time.", .flags = UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW("BANDWIDTH", bandwidth, opts, bandwidth, "12GBs", "A rate.",
                   .flags = UCS_CONFIG_ROW_AUTO),
    UCS_CONFIG_ROW("MIN_BANDWIDTH", bandwidth, opts, min_bandwidth, "5MBs", "A rate.", .min = 1),
    UCS_CONFIG_ROW("TEXT", string, opts, text, "some text", "Any text."),
    UCS_CONFIG_ROW("MODE", enum, opts, mode, "auto", "What to do.", .arg = mode_names),
    UCS_CONFIG_ROW("LIST", list, opts, list, "", "Names.", .flags = UCS_CONFIG_ROW_HIDDEN),
    UCS_CONFIG_ROW("PARTS", list, opts, parts, "auto", "Some of these names.", .arg = mode_names),
    UCS_CONFIG_ROW("TLS", allow, opts, tls, "all", "Names to allow."),
    UCS_CONFIG_ROW_END
};

/* Two spellings of the table's prefix; the first is the one shown. */
const char *const PREFIX = "CT_,CTX_";

std::vector<std::string> g_log;

ucs_log_func_rc_t capture(const char *, unsigned, const char *, ucs_log_level_t level,
                          const ucs_log_component_config_t *, const char *message, va_list ap)
{
    char line[2048];
    if (level > UCS_LOG_LEVEL_WARN) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    vsnprintf(line, sizeof(line), message, ap);
    g_log.push_back(line);
    return UCS_LOG_FUNC_RC_STOP;
}

/* Moves a period of the log's repeat limit at each look: here every message must be heard. */
uint64_t hasty_clock()
{
    static uint64_t now = 1;
    return now += 100000000000ull;
}

class config : public testing::Test {
protected:
    void SetUp() override
    {
        (void)ucs_global_opts();
        m_sys          = ucs_sys_real;
        m_sys.clock_ns = hasty_clock;
        ucs_sys_set(&m_sys);
        ucs_fault_clear(nullptr);
        ucs_config_file_clear(0);
        save_environment();
        g_log.clear();
        ucs_log_push_handler(capture);
    }

    void TearDown() override
    {
        release();
        ucs_log_pop_handler();
        clear_environment();
        for (const auto &variable : m_saved) {
            setenv(variable.first.c_str(), variable.second.c_str(), 1);
        }
        ucs_fault_clear(nullptr);
        ucs_config_file_clear(0);
        ucs_sys_set(nullptr);
    }

    /* What the program of the tests has set is there again after the test. */
    void save_environment()
    {
        m_saved = variables();
        clear_environment();
    }

    static std::vector<std::pair<std::string, std::string>> variables()
    {
        std::vector<std::pair<std::string, std::string>> found;
        for (char **entry = environ; *entry != nullptr; ++entry) {
            const std::string name = std::string(*entry).substr(0, strcspn(*entry, "="));
            if (name.find("UCX_") != std::string::npos) {
                found.emplace_back(name, getenv(name.c_str()));
            }
        }
        return found;
    }

    static void clear_environment()
    {
        for (const auto &variable : variables()) {
            unsetenv(variable.first.c_str());
        }
    }

    std::vector<std::pair<std::string, std::string>> m_saved;

    ucs_status_t fill(const char *app = nullptr, unsigned flags = 0)
    {
        release();
        memset(&m_opts, 0xee, sizeof(m_opts));
        const ucs_status_t status = ucs_config_fill(&m_opts, rows, app, PREFIX, flags);
        m_filled                  = (status == UCS_OK);
        return status;
    }

    void release()
    {
        if (m_filled) {
            ucs_config_release(&m_opts, rows);
            m_filled = false;
        }
    }

    ucs_status_t set(const std::string &name, const std::string &value)
    {
        return ucs_config_set(&m_opts, rows, PREFIX, ("CT_" + name).c_str(), value.c_str());
    }

    std::string get(const std::string &name)
    {
        char buf[UCS_CONFIG_VALUE_MAX] = "";
        for (const ucs_config_row_t *row = rows; row->name != nullptr; ++row) {
            if (name == row->name) {
                const char *field = reinterpret_cast<const char *>(&m_opts) + row->offset;
                row->type->print(buf, sizeof(buf), field, row);
                return buf;
            }
        }
        ADD_FAILURE() << "no row " << name;
        return buf;
    }

    void accepts(const char *name, const char *value, const char *shown)
    {
        EXPECT_EQ(UCS_OK, set(name, value)) << name << "=" << value;
        EXPECT_EQ(shown, get(name)) << name << "=" << value;
        EXPECT_TRUE(g_log.empty());
    }

    /* Out of range: the nearest value takes its place, and one line says so. */
    void adjusts(const char *name, const char *value, const char *shown)
    {
        EXPECT_EQ(UCS_OK, set(name, value)) << name << "=" << value;
        EXPECT_EQ(shown, get(name)) << name << "=" << value;
        ASSERT_EQ(1u, g_log.size()) << name << "=" << value;
        EXPECT_NE(std::string::npos,
                  g_log[0].find(std::string("CT_") + name + "='" + value + "'")) << g_log[0];
        EXPECT_NE(std::string::npos, g_log[0].find("out of range: expected ")) << g_log[0];
        EXPECT_NE(std::string::npos, g_log[0].find(std::string("; used instead: ") + shown))
            << g_log[0];
        g_log.clear();
    }

    /* The value is refused with one line that names variable, value and expected form. */
    void refuses(const char *name, const std::string &value, ucs_status_t expected)
    {
        const std::string before = get(name);
        g_log.clear();
        EXPECT_EQ(expected, set(name, value)) << name << "=" << value;
        EXPECT_EQ(before, get(name)) << name << "=" << value;
        ASSERT_EQ(1u, g_log.size()) << name << "=" << value;
        EXPECT_NE(std::string::npos, g_log[0].find(std::string("CT_") + name + "='"));
        EXPECT_NE(std::string::npos, g_log[0].find("expected "));
        g_log.clear();
    }

    std::string print(const void *options, int flags, const char *title = nullptr)
    {
        char *text    = nullptr;
        size_t length = 0;
        FILE *stream  = open_memstream(&text, &length);
        ucs_config_print(stream, title, options, rows, PREFIX,
                         static_cast<ucs_config_print_flags_t>(flags));
        fclose(stream);
        std::string result(text, length);
        free(text);
        return result;
    }

    opts m_opts;
    bool m_filled = false;
    ucs_sys_ops_t m_sys;
};

TEST_F(config, defaults)
{
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(1, m_opts.yes);
    EXPECT_EQ(UCS_TRY, m_opts.ternary);
    EXPECT_EQ(-5, m_opts.number);
    EXPECT_EQ(UCS_CONFIG_INF_UINT, m_opts.count);
    EXPECT_EQ(256u, m_opts.slots);
    EXPECT_EQ(123456789012345u, m_opts.large);
    EXPECT_EQ(0.25, m_opts.ratio);
    EXPECT_EQ(UCS_CONFIG_AUTO_SIZE, m_opts.size);
    EXPECT_EQ(8256u, m_opts.seg);
    EXPECT_EQ(1500000u, m_opts.time);
    EXPECT_EQ(12e9, m_opts.bandwidth);
    EXPECT_STREQ("some text", m_opts.text);
    EXPECT_EQ(2u, m_opts.mode);
    EXPECT_EQ(0u, m_opts.list.count);
    EXPECT_EQ(UCS_CONFIG_ALLOW_LIST_ALLOW_ALL, m_opts.tls.mode);
    EXPECT_TRUE(g_log.empty());
}

TEST_F(config, words)
{
    ASSERT_EQ(UCS_OK, fill());
    for (const char *word : {"y", "yes", "YES", "on", "true", "1", " y ", "\tYes"}) {
        accepts("YES", word, "y");
    }
    for (const char *word : {"n", "no", "off", "False", "0"}) {
        accepts("YES", word, "n");
        accepts("TERNARY", word, "n");
    }
    accepts("TERNARY", "yes", "y");
    accepts("TERNARY", "try", "try");
    accepts("TERNARY", "auto", "auto");
    for (const char *word : {"", "x", "2", "try", "auto", "yess", "y n"}) {
        refuses("YES", word, UCS_ERR_INVALID_PARAM);
    }
    refuses("TERNARY", "maybe", UCS_ERR_INVALID_PARAM);

    accepts("MODE", "eager", "eager");
    accepts("MODE", "RNDV", "rndv");
    EXPECT_EQ(1u, m_opts.mode);
    refuses("MODE", "", UCS_ERR_INVALID_PARAM);
    refuses("MODE", "eage", UCS_ERR_INVALID_PARAM);
    refuses("MODE", "1", UCS_ERR_INVALID_PARAM);
}

TEST_F(config, numbers)
{
    ASSERT_EQ(UCS_OK, fill());
    accepts("NUMBER", "0", "0");
    accepts("NUMBER", "-0", "0");
    accepts("NUMBER", "2147483647", "2147483647");
    accepts("NUMBER", "-2147483648", "-2147483648");
    refuses("NUMBER", "2147483648", UCS_ERR_OUT_OF_RANGE);
    refuses("NUMBER", "-2147483649", UCS_ERR_OUT_OF_RANGE);
    refuses("NUMBER", "99999999999999999999999", UCS_ERR_OUT_OF_RANGE);
    for (const char *bad : {"", "-", "+1", "1.5", "0x10", "1k", "inf", "- 1", "1 2"}) {
        refuses("NUMBER", bad, UCS_ERR_INVALID_PARAM);
    }

    accepts("COUNT", "4294967293", "4294967293");
    accepts("COUNT", "inf", "inf");
    EXPECT_EQ(UINT_MAX, m_opts.count);
    accepts("COUNT", "auto", "auto");
    EXPECT_EQ(UCS_CONFIG_AUTO_UINT, m_opts.count);
    refuses("COUNT", "4294967294", UCS_ERR_OUT_OF_RANGE); /* would read as auto */
    refuses("COUNT", "4294967296", UCS_ERR_OUT_OF_RANGE);
    refuses("COUNT", "18446744073709551617", UCS_ERR_OUT_OF_RANGE);
    for (const char *bad : {"", "-1", "1.5", "1e3", "4k", "infinite", "0x4"}) {
        refuses("COUNT", bad, UCS_ERR_INVALID_PARAM);
    }

    for (unsigned slots = 16; slots <= 65536; slots *= 2) {
        accepts("SLOTS", std::to_string(slots).c_str(), std::to_string(slots).c_str());
    }
    const struct {
        const char *given, *nearest;
    } slots[] = {{"0", "16"}, {"1", "16"}, {"8", "16"}, {"17", "16"}, {"24", "16"}, {"25", "32"},
                 {"100", "128"}, {"255", "256"}, {"257", "256"}, {"65535", "65536"},
                 {"65537", "65536"}, {"131072", "65536"}, {"4294967296", "65536"}};
    for (const auto &s : slots) {
        adjusts("SLOTS", s.given, s.nearest);
    }
    accepts("SLOTS", "inf", "65536");
    accepts("SLOTS", "auto", "256");

    accepts("LARGE", "18446744073709551613", "18446744073709551613");
    refuses("LARGE", "18446744073709551616", UCS_ERR_OUT_OF_RANGE);
    refuses("LARGE", "inf", UCS_ERR_INVALID_PARAM);

    accepts("RATIO", "3", "3");
    accepts("RATIO", "-0.5", "-0.5");
    accepts("RATIO", "1e-3", "0.001");
    accepts("RATIO", "0.1", "0.1");
    accepts("RATIO", "inf", "inf");
    for (const char *bad : {"", ".", "1.2.3", "nan", "0,5", "auto", "1e", "1x", "--1"}) {
        refuses("RATIO", bad, UCS_ERR_INVALID_PARAM);
    }
    refuses("RATIO", "1e999", UCS_ERR_OUT_OF_RANGE);
}

TEST_F(config, sizes_times_rates)
{
    ASSERT_EQ(UCS_OK, fill());
    accepts("SIZE", "0", "0");
    accepts("SIZE", "8k", "8K");
    accepts("SIZE", "8KB", "8K");
    accepts("SIZE", "8192b", "8K");
    accepts("SIZE", "1.5MB", "1536K");
    accepts("SIZE", "2gib", "2G");
    accepts("SIZE", "3T", "3T");
    accepts("SIZE", "1000", "1000");
    accepts("SIZE", "inf", "inf");
    EXPECT_EQ(SIZE_MAX, m_opts.size);
    accepts("SIZE", "auto", "auto");
    accepts("SIZE", "16777215T", "16777215T");
    refuses("SIZE", "16777216T", UCS_ERR_OUT_OF_RANGE);
    refuses("SIZE", "1e30", UCS_ERR_OUT_OF_RANGE);
    refuses("SIZE", "18446744073709551615", UCS_ERR_OUT_OF_RANGE); /* would read as inf */
    for (const char *bad : {"", "k", "-1", "8q", "8 k", "8kk", "1.5.2k", "8kbs", "infx"}) {
        refuses("SIZE", bad, UCS_ERR_INVALID_PARAM);
    }
    accepts("SEG", "64", "64");
    accepts("SEG", "1M", "1M");
    adjusts("SEG", "63", "64");
    adjusts("SEG", "0", "64");
    adjusts("SEG", "1025k", "1M");
    accepts("SEG", "inf", "1M");
    accepts("SEG", "auto", "8256");

    accepts("TIME", "3s", "3s");
    accepts("TIME", "3", "3s");
    accepts("TIME", "10us", "10us");
    EXPECT_EQ(10000u, m_opts.time);
    accepts("TIME", "0.5us", "500ns");
    accepts("TIME", "1500ms", "1500ms");
    accepts("TIME", "120s", "2min");
    accepts("TIME", "0", "0ns");
    accepts("TIME", "inf", "inf");
    accepts("TIME", "auto", "1500us");
    for (const char *bad : {"", "s", "-1s", "3h", "3 s", "1sec"}) {
        refuses("TIME", bad, UCS_ERR_INVALID_PARAM);
    }
    refuses("TIME", "1e12s", UCS_ERR_OUT_OF_RANGE);

    accepts("BANDWIDTH", "10GBs", "10GBs");
    EXPECT_EQ(10e9, m_opts.bandwidth);
    accepts("BANDWIDTH", "800Mbps", "100MBs");
    accepts("BANDWIDTH", "1.5TB/s", "1.5TBs");
    accepts("BANDWIDTH", "100Bs", "100Bs");
    accepts("BANDWIDTH", "8kb/s", "1kBs");
    accepts("BANDWIDTH", "auto", "auto");
    EXPECT_EQ(UCS_CONFIG_AUTO_DOUBLE, m_opts.bandwidth);
    accepts("MIN_BANDWIDTH", "auto", "5MBs");
    adjusts("MIN_BANDWIDTH", "0MBs", "1Bs");
    for (const char *bad : {"", "10", "10G", "10GB", "-1GBs", "10GBss", "GBs", "inf", "10Gs"}) {
        refuses("BANDWIDTH", bad, UCS_ERR_INVALID_PARAM);
    }
}

TEST_F(config, texts_and_lists)
{
    ASSERT_EQ(UCS_OK, fill());
    accepts("TEXT", "", "");
    accepts("TEXT", "a=b, c", "a=b, c");
    accepts("TEXT", "  padded\t", "padded");
    accepts("TEXT", "\xc3\xa4", "\xc3\xa4");
    refuses("TEXT", "two\nlines", UCS_ERR_INVALID_PARAM);
    refuses("TEXT", "bell\x07", UCS_ERR_INVALID_PARAM);
    accepts("TEXT", std::string(UCS_CONFIG_VALUE_MAX - 1, 'x').c_str(),
            std::string(UCS_CONFIG_VALUE_MAX - 1, 'x').c_str());
    refuses("TEXT", std::string(UCS_CONFIG_VALUE_MAX, 'x'), UCS_ERR_INVALID_PARAM);
    refuses("TEXT", "a" + std::string(UCS_CONFIG_VALUE_MAX, ' ') + "b", UCS_ERR_INVALID_PARAM);

    accepts("LIST", "a,b,c", "a,b,c");
    accepts("LIST", " a , b ", "a,b");
    EXPECT_EQ(2u, m_opts.list.count);
    EXPECT_STREQ("b", m_opts.list.names[1]);
    accepts("LIST", "", "");
    accepts("LIST", "^x,all", "^x,all");
    for (const char *bad : {",", "a,", ",a", "a,,b", "a, ,b"}) {
        refuses("LIST", bad, UCS_ERR_INVALID_PARAM);
    }
    std::string many = "n";
    for (int i = 1; i < UCS_CONFIG_LIST_MAX; ++i) {
        many += ",n";
    }
    accepts("LIST", many.c_str(), many.c_str());
    refuses("LIST", many + ",n", UCS_ERR_OUT_OF_RANGE);

    accepts("TLS", "all", "all");
    EXPECT_TRUE(ucs_config_allow_list_has(&m_opts.tls, "mm"));
    accepts("TLS", "mm,cma", "mm,cma");
    EXPECT_TRUE(ucs_config_allow_list_has(&m_opts.tls, "cma"));
    EXPECT_FALSE(ucs_config_allow_list_has(&m_opts.tls, "self"));
    accepts("TLS", "\\mm, \\cma", "mm,cma"); /* UCX: no alias of that name is meant */
    accepts("TLS", "^mm, cuda_*", "^mm,cuda_*");
    EXPECT_FALSE(ucs_config_allow_list_has(&m_opts.tls, "mm"));
    EXPECT_FALSE(ucs_config_allow_list_has(&m_opts.tls, "cuda_ipc"));
    EXPECT_TRUE(ucs_config_allow_list_has(&m_opts.tls, "self"));
    for (const char *bad : {"", "^", "a,^b", "^a,^b", "all,a", "a,all", "^all", "a,,b"}) {
        refuses("TLS", bad, UCS_ERR_INVALID_PARAM);
    }
}

TEST_F(config, messages_name_the_cure)
{
    ASSERT_EQ(UCS_OK, fill());
    const struct {
        const char *name, *value, *part;
    } cases[] = {
        {"MODE", "eagr", "did you mean 'eager'?"},
        {"MODE", "xyzzy", "one of: eager, rndv, auto"},
        {"PARTS", "rndv,eagr", "by commas: eager, rndv, auto; did you mean 'eager'?"},
        {"PARTS", "", "by commas: eager, rndv, auto"},
        {"YES", "yse", "did you mean 'yes'?"},
        {"SIZE", "autp", "did you mean 'auto'?"},
        {"SLOTS", "x", "from 16 to 65536, a power of two"},
        {"COUNT", "4294967296", "out of range"},
        {"SEG", "x", "from 64 to 1M"},
        {"COUNT", "x", ", or inf, or auto"},
        {"TLS", "a,^b", "one '^', in front of all"},
        {"TEXT", "a\nb", "'a?b'"},
    };
    for (const auto &c : cases) {
        g_log.clear();
        EXPECT_NE(UCS_OK, set(c.name, c.value));
        ASSERT_EQ(1u, g_log.size());
        EXPECT_NE(std::string::npos, g_log[0].find(c.part)) << g_log[0];
    }
    g_log.clear();
    EXPECT_NE(UCS_OK, set("MODE", std::string(3000, 'z')));
    ASSERT_EQ(1u, g_log.size());
    EXPECT_LT(g_log[0].size(), 400u);
}

TEST_F(config, set_knows_its_rows)
{
    ASSERT_EQ(UCS_OK, fill());
    for (const char *name : {"CT_NONE", "YES", "UCX_CT_YES", "", "CT_", "ct_YES", "CT_YES "}) {
        EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_config_set(&m_opts, rows, PREFIX, name, "y")) << name;
    }
    EXPECT_EQ(UCS_OK, ucs_config_set(&m_opts, rows, PREFIX, "CTX_SLOTS", "64"));
    EXPECT_EQ("64", get("SLOTS"));
    EXPECT_EQ(UCS_OK, ucs_config_set(&m_opts, rows, "", "SLOTS", "32"));
    EXPECT_EQ("32", get("SLOTS"));
    EXPECT_TRUE(g_log.empty());
    char buf[4];
    ucs_config_type_string.print(buf, sizeof(buf), &m_opts.text, nullptr);
    EXPECT_STREQ("som", buf);
}

/* Where a list of names to allow may be empty, it allows none; a '^' before nothing all. */
TEST_F(config, empty_list_to_allow)
{
    static const ucs_config_row_t own_rows[] = {
        UCS_CONFIG_ROW("TLS", allow, opts, tls, "all", "Names.", .flags = UCS_CONFIG_ROW_EMPTY),
        UCS_CONFIG_ROW_END
    };
    opts o = {};
    ASSERT_EQ(UCS_OK, ucs_config_fill(&o, own_rows, nullptr, PREFIX, 0));
    EXPECT_TRUE(ucs_config_allow_list_has(&o.tls, "mm"));
    ASSERT_EQ(UCS_OK, ucs_config_set(&o, own_rows, PREFIX, "CT_TLS", ""));
    EXPECT_FALSE(ucs_config_allow_list_has(&o.tls, "mm"));
    ASSERT_EQ(UCS_OK, ucs_config_set(&o, own_rows, PREFIX, "CT_TLS", "^"));
    EXPECT_TRUE(ucs_config_allow_list_has(&o.tls, "mm"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_config_set(&o, own_rows, PREFIX, "CT_TLS", "all,a"));
    ucs_config_release(&o, own_rows);
    g_log.clear();
}

/* A row's own prefixes stand in place of the table's. */
TEST_F(config, prefix_of_a_row)
{
    static const ucs_config_row_t own_rows[] = {
        UCS_CONFIG_ROW("SLOTS", uint, opts, slots, "1", "Slots.", .prefix = "NET_,CT_"),
        UCS_CONFIG_ROW("NUMBER", int, opts, number, "-5", "A number."),
        UCS_CONFIG_ROW_END
    };
    opts o = {};
    setenv("UCX_CT_SLOTS", "2", 1);
    setenv("UCX_CTX_SLOTS", "4", 1); /* the table's: not this row's */
    ASSERT_EQ(UCS_OK, ucs_config_fill(&o, own_rows, nullptr, PREFIX, 0));
    EXPECT_EQ(2u, o.slots);
    setenv("UCX_NET_SLOTS", "3", 1);
    ASSERT_EQ(UCS_OK, ucs_config_fill(&o, own_rows, nullptr, PREFIX, 0));
    EXPECT_EQ(3u, o.slots);
    EXPECT_EQ(UCS_OK, ucs_config_set(&o, own_rows, PREFIX, "NET_SLOTS", "5"));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_config_set(&o, own_rows, PREFIX, "CTX_SLOTS", "6"));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_config_set(&o, own_rows, PREFIX, "NET_NUMBER", "6"));
    EXPECT_EQ(5u, o.slots);

    char *text  = nullptr;
    size_t size = 0;
    FILE *file  = open_memstream(&text, &size);
    ucs_config_print(file, nullptr, &o, own_rows, PREFIX, UCS_CONFIG_PRINT_CONFIG);
    fclose(file);
    EXPECT_STREQ("UCX_NET_SLOTS=5\nUCX_CT_NUMBER=-5\n", text);
    free(text);

    ASSERT_EQ(UCS_OK, ucs_config_table_add("test", PREFIX, own_rows));
    EXPECT_EQ(1u, ucs_config_warn_unknown(nullptr)) << "CTX_SLOTS";
    ucs_config_table_remove(own_rows);
}

TEST_F(config, order_of_sources)
{
    /* weakest first: each one added must win over those before */
    const std::vector<std::pair<std::string, std::string>> sources = {
        {"file", "UCX_CTX_SLOTS"},     {"file", "UCX_CT_SLOTS"},
        {"file", "MPI_UCX_CTX_SLOTS"}, {"file", "MPI_UCX_CT_SLOTS"},
        {"env", "UCX_CTX_SLOTS"},      {"env", "UCX_CT_SLOTS"},
        {"env", "MPI_UCX_CTX_SLOTS"},  {"env", "MPI_UCX_CT_SLOTS"}};

    ASSERT_EQ(UCS_OK, fill("MPI"));
    EXPECT_EQ(256u, m_opts.slots);
    unsigned value = 16;
    for (const auto &source : sources) {
        const std::string text = std::to_string(value);
        if (source.first == "env") {
            setenv(source.second.c_str(), text.c_str(), 1);
        } else {
            const std::string line = source.second + "=" + text + "\n";
            ASSERT_EQ(UCS_OK, ucs_config_file_parse("conf", line.data(), line.size()));
        }
        ASSERT_EQ(UCS_OK, fill("MPI"));
        EXPECT_EQ(value, m_opts.slots) << source.first << " " << source.second;
        value *= 2;
    }

    /* another application's prefix, or none, does not see MPI's */
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(512u, m_opts.slots);
    ASSERT_EQ(UCS_OK, fill("Charm++"));
    EXPECT_EQ(512u, m_opts.slots);
    setenv("Charm++_UCX_CT_SLOTS", "4096", 1);
    ASSERT_EQ(UCS_OK, fill("Charm++"));
    EXPECT_EQ(4096u, m_opts.slots);
    EXPECT_TRUE(g_log.empty());
}

TEST_F(config, many_variables_in_the_environment)
{
    for (int i = 0; i < 400; ++i) {
        setenv(("A_UCX_" + std::to_string(i)).c_str(), "x", 1);
    }
    setenv("UCX_CT_SLOTS", "32", 1);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(32u, m_opts.slots);
}

TEST_F(config, wrong_value_fails_or_leaves_the_default)
{
    setenv("UCX_CT_SLOTS", "100", 1);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(128u, m_opts.slots);
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("UCX_CT_SLOTS='100' (environment)"));
    EXPECT_NE(std::string::npos, g_log[0].find("used instead: 128"));

    g_log.clear();
    setenv("UCX_CT_SLOTS", "many", 1);
    setenv("UCX_CT_TEXT", "kept", 1);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, fill());
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("UCX_CT_SLOTS='many' (environment)"));

    g_log.clear();
    ASSERT_EQ(UCS_OK, fill(nullptr, UCS_CONFIG_FILL_DEFAULT));
    EXPECT_EQ(256u, m_opts.slots);
    EXPECT_STREQ("kept", m_opts.text);
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("used instead: 256"));

    unsetenv("UCX_CT_SLOTS");
    g_log.clear();
    ASSERT_EQ(UCS_OK, ucs_config_file_parse("my.conf", "\n\nUCX_CT_MODE=x\n", 16));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, fill());
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("UCX_CT_MODE='x' (my.conf:3)"));
}

TEST_F(config, file_with_a_byte_order_mark)
{
    const std::string text = "\xef\xbb\xbfUCX_CT_SLOTS=32\n";

    ASSERT_EQ(UCS_OK, ucs_config_file_parse("my.conf", text.data(), text.size()));
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(32u, m_opts.slots);
    for (size_t length = 0; length < 4; ++length) {
        EXPECT_EQ((length == 0) || (length == 3) ? UCS_OK : UCS_ERR_INVALID_PARAM,
                  ucs_config_file_parse("short.conf", text.data(), length));
    }
}

/* Every allocation of fill, set and copy fails once: a status, and nothing is lost (ASan looks). */
TEST_F(config, no_memory_is_a_status)
{
    uint64_t calls = 0;
    setenv("UCX_CT_LIST", "a,b,c", 1);
    setenv("UCX_CT_TLS", "^a", 1);
    ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", "0"));
    ASSERT_EQ(UCS_OK, fill());
    ASSERT_EQ(UCS_OK, ucs_fault_query("malloc", &calls, nullptr));
    EXPECT_EQ(4u, calls);
    for (uint64_t k = 1; k <= calls; ++k) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", std::to_string(k).c_str()));
        EXPECT_EQ(UCS_ERR_NO_MEMORY, fill());
    }

    ucs_fault_clear(nullptr);
    ASSERT_EQ(UCS_OK, fill());
    for (uint64_t k = 1; k <= calls; ++k) {
        opts copy;
        memset(&copy, 0xee, sizeof(copy));
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", std::to_string(k).c_str()));
        EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_config_copy(&copy, &m_opts, rows));
    }
    for (const char *name : {"TEXT", "LIST", "TLS"}) {
        const std::string before = get(name);
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", "1"));
        EXPECT_EQ(UCS_ERR_NO_MEMORY, set(name, "new"));
        EXPECT_EQ(before, get(name));
    }
}

TEST_F(config, copy_is_deep)
{
    opts copy;
    ASSERT_EQ(UCS_OK, fill());
    ASSERT_EQ(UCS_OK, set("TEXT", "one"));
    ASSERT_EQ(UCS_OK, set("LIST", "a,b"));
    ASSERT_EQ(UCS_OK, set("TLS", "^x"));
    ASSERT_EQ(UCS_OK, ucs_config_copy(&copy, &m_opts, rows));
    const std::string before = print(&copy, UCS_CONFIG_PRINT_CONFIG);
    EXPECT_EQ(before, print(&m_opts, UCS_CONFIG_PRINT_CONFIG));
    ASSERT_EQ(UCS_OK, set("TEXT", "two"));
    ASSERT_EQ(UCS_OK, set("LIST", "c"));
    ASSERT_EQ(UCS_OK, set("TLS", "all"));
    EXPECT_EQ(before, print(&copy, UCS_CONFIG_PRINT_CONFIG));
    ucs_config_release(&copy, rows);
    ucs_config_release(&copy, rows);
}

TEST_F(config, print_is_what_programs_parse)
{
    ASSERT_EQ(UCS_OK, fill());
    const std::string text = print(&m_opts, UCS_CONFIG_PRINT_CONFIG, nullptr);
    EXPECT_EQ(text, print(nullptr, UCS_CONFIG_PRINT_CONFIG)); /* the defaults */
    EXPECT_EQ(0u, text.find("UCX_CT_YES=y\n"));
    EXPECT_NE(std::string::npos, text.find("\nUCX_CT_TLS=all\n"));
    EXPECT_EQ(std::string::npos, text.find('#'));
    EXPECT_EQ(std::string::npos, text.find("UCX_CT_LIST"));
    EXPECT_EQ("", print(&m_opts, 0));

    const std::string all = print(&m_opts, UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HIDDEN);
    EXPECT_NE(std::string::npos, all.find("\nUCX_CT_LIST=\n"));

    ASSERT_EQ(UCS_OK, set("SLOTS", "512"));
    const std::string documented =
        print(&m_opts, UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC | UCS_CONFIG_PRINT_HEADER |
                           UCS_CONFIG_PRINT_COMMENT_DEFAULT, "The title");
    EXPECT_EQ(0u, documented.find("#\n# The title\n#\n"));
    EXPECT_NE(std::string::npos, documented.find("\n# UCX_CT_YES=y\n"));
    EXPECT_NE(std::string::npos, documented.find("\nUCX_CT_SLOTS=512\n"));
    EXPECT_NE(std::string::npos, documented.find("# A number of slots.\n"));
    EXPECT_NE(std::string::npos, documented.find("# default:  256\n"));
    for (size_t start = 0; start < documented.size();) {
        const size_t end = documented.find('\n', start);
        EXPECT_LT(end - start, 130u);
        start = end + 1;
    }
}

/* What is printed is read back as the same, for random values of every type. */
TEST_F(config, print_and_parse_are_inverse)
{
    seeded_random rnd(20);
    ASSERT_EQ(UCS_OK, fill());
    for (int i = 0; i < 5000; ++i) {
        m_opts.yes     = static_cast<int>(rnd.below(2));
        m_opts.ternary = static_cast<int>(rnd.below(UCS_TERNARY_LAST));
        m_opts.number  = static_cast<int>(rnd.bits());
        m_opts.count   = static_cast<unsigned>(rnd.bits() >> (32 + rnd.below(32)));
        m_opts.slots   = 16u << rnd.below(13);
        m_opts.large   = rnd.bits() >> (1 + rnd.below(63));
        m_opts.size    = (rnd.bits() >> (1 + rnd.below(63)));
        m_opts.seg     = 64 + rnd.below((1 << 20) - 63);
        m_opts.time    = rnd.bits() >> (1 + rnd.below(63));
        m_opts.mode    = static_cast<unsigned>(rnd.below(3));
        m_opts.bandwidth = static_cast<double>(rnd.below(1u << 30)) *
                           std::pow(10.0, static_cast<double>(rnd.below(6)));
        do {
            const uint64_t bits = rnd.bits();
            memcpy(&m_opts.ratio, &bits, sizeof(bits));
        } while (!std::isfinite(m_opts.ratio));

        const int flags        = UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HIDDEN;
        const std::string text = print(&m_opts, flags);
        ucs_config_file_clear(0);
        ASSERT_EQ(UCS_OK, ucs_config_file_parse("printed", text.data(), text.size()));
        opts again;
        memset(&again, 0, sizeof(again));
        ASSERT_EQ(UCS_OK, ucs_config_fill(&again, rows, nullptr, PREFIX, 0)) << text;
        ASSERT_EQ(m_opts.yes, again.yes);
        ASSERT_EQ(m_opts.ternary, again.ternary);
        ASSERT_EQ(m_opts.number, again.number);
        ASSERT_EQ(m_opts.count, again.count);
        ASSERT_EQ(m_opts.large, again.large);
        ASSERT_EQ(m_opts.ratio, again.ratio);
        ASSERT_EQ(m_opts.size, again.size);
        ASSERT_EQ(m_opts.seg, again.seg);
        ASSERT_EQ(m_opts.time, again.time);
        ASSERT_EQ(m_opts.bandwidth, again.bandwidth) << text;
        ASSERT_EQ(text, print(&again, flags));
        ucs_config_release(&again, rows);
    }
}

/* ------------------------------------------------------------------ files */

class config_file : public config {
protected:
    void SetUp() override
    {
        config::SetUp();
        char name[] = "/tmp/halyard-config-XXXXXX";
        m_dir       = mkdtemp(name);
        m_home      = getenv("HOME") ? getenv("HOME") : "";
        m_cwd       = get_current_dir_name();
        setenv("HOME", (m_dir + "/home").c_str(), 1);
        for (const char *sub : {"", "/home", "/conf", "/cwd"}) {
            mkdir((m_dir + sub).c_str(), 0755);
        }
        ASSERT_EQ(0, chdir((m_dir + "/cwd").c_str()));
        ucs_config_file_clear(1);
    }

    void TearDown() override
    {
        EXPECT_EQ(0, chdir(m_cwd));
        free(m_cwd);
        setenv("HOME", m_home.c_str(), 1);
        EXPECT_EQ(0, system(("rm -rf " + m_dir).c_str()));
        config::TearDown();
    }

    std::string write_file(const std::string &name, const std::string &text, mode_t mode = 0644)
    {
        const std::string path = m_dir + name;
        FILE *file             = fopen(path.c_str(), "w");
        fwrite(text.data(), 1, text.size(), file);
        fclose(file);
        chmod(path.c_str(), mode);
        return path;
    }

    std::string m_dir;
    std::string m_home;
    char *m_cwd = nullptr;
};

TEST_F(config_file, later_files_override_earlier_ones)
{
    write_file("/home/ucx.conf", "UCX_CT_SLOTS=16\nUCX_CT_MODE=eager\nUCX_CT_NUMBER=1\n");
    write_file("/conf/ucx.conf", "UCX_CT_SLOTS = 32\nUCX_CT_MODE =rndv\r\n");
    write_file("/cwd/ucx.conf", "# a comment\n\n   UCX_CT_SLOTS=  64  \n");
    setenv("UCX_CONFIG_DIR", (m_dir + "/conf").c_str(), 1);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(64u, m_opts.slots);
    EXPECT_EQ(1u, m_opts.mode);
    EXPECT_EQ(1, m_opts.number);

    setenv("UCX_CT_SLOTS", "128", 1);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(128u, m_opts.slots);

    const char *place = nullptr;
    EXPECT_STREQ("rndv", ucs_config_file_get("UCX_CT_MODE", &place));
    EXPECT_EQ(m_dir + "/conf/ucx.conf:2", place);
    EXPECT_EQ(nullptr, ucs_config_file_get("UCX_CT_NONE", nullptr));
    EXPECT_STREQ("UCX_CT_SLOTS", ucs_config_file_key(0, &place));
    EXPECT_EQ(nullptr, ucs_config_file_key(3, &place));
    EXPECT_TRUE(g_log.empty());

    /* read once */
    write_file("/conf/ucx.conf", "UCX_CT_MODE=auto\n");
    EXPECT_STREQ("rndv", ucs_config_file_get("UCX_CT_MODE", nullptr));
}

/* As UCX reads such files, libinih's way; but for sections. */
TEST_F(config_file, comments_and_colons)
{
    write_file("/cwd/ucx.conf", "; a comment\n;UCX_CT_SLOTS=16\n  ; another\n"
                                "UCX_CT_SLOTS=64 ; behind a value\nUCX_CT_MODE: rndv\t;\n"
                                "UCX_CT_TEXT=tcp;ofi_rxm\nUCX_CT_NUMBER=7;\n");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, fill());
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("UCX_CT_NUMBER='7;'")) << g_log[0];

    g_log.clear();
    ASSERT_EQ(UCS_OK, fill(nullptr, UCS_CONFIG_FILL_DEFAULT));
    EXPECT_EQ(64u, m_opts.slots);
    EXPECT_EQ(1u, m_opts.mode);
    EXPECT_STREQ("tcp;ofi_rxm", m_opts.text);
}

TEST_F(config_file, who_may_write_must_be_trusted)
{
    setenv("UCX_CONFIG_DIR", (m_dir + "/conf").c_str(), 1);
    write_file("/conf/ucx.conf", "UCX_CT_SLOTS=32\n", 0666);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(256u, m_opts.slots);
    ASSERT_EQ(1u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find("chmod go-w"));

    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can make another user's file";
    }
    g_log.clear();
    chmod((m_dir + "/conf/ucx.conf").c_str(), 0644);
    ASSERT_EQ(0, chown((m_dir + "/conf/ucx.conf").c_str(), 12345, 0));
    const std::string cwd_file = write_file("/cwd/ucx.conf", "UCX_CT_SLOTS=64\n");
    ASSERT_EQ(0, chown(cwd_file.c_str(), 12345, 0));
    ucs_config_file_clear(1);
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(256u, m_opts.slots);
    ASSERT_EQ(1u, g_log.size()); /* not a word about the working directory's */
    EXPECT_NE(std::string::npos, g_log[0].find("belongs to user 12345"));

    /* nobody's process does not take root's file from the working directory, nor a stranger's */
    ASSERT_EQ(0, chown(cwd_file.c_str(), 0, 0));
    ASSERT_EQ(0, chmod(m_dir.c_str(), 0755));
    const pid_t pid = fork();
    if (pid == 0) {
        ucs_config_file_clear(1);
        const bool done = (setuid(54321) == 0) && (fill() == UCS_OK) && (m_opts.slots == 256);
        _exit(done ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);
}

/* A file that its user cannot read is told of; a folder that hides whether there is one is not. */
TEST_F(config_file, who_may_not_read_is_told)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    setenv("UCX_CONFIG_DIR", (m_dir + "/conf").c_str(), 1);
    write_file("/conf/ucx.conf", "UCX_CT_SLOTS=32\n", 0600);
    write_file("/cwd/ucx.conf", "UCX_CT_SLOTS=64\n", 0600);
    write_file("/home/ucx.conf", "UCX_CT_SLOTS=16\n", 0644);
    ASSERT_EQ(0, chmod(m_dir.c_str(), 0755));
    ASSERT_EQ(0, chmod((m_dir + "/home").c_str(), 0700));
    ASSERT_EQ(0, chmod((m_dir + "/conf").c_str(), 0755));
    const pid_t pid = fork();
    if (pid == 0) {
        ucs_config_file_clear(1);
        const bool done = (setuid(54321) == 0) && (fill() == UCS_OK) && (m_opts.slots == 256) &&
                          (g_log.size() == 1) &&
                          (g_log[0].find("conf/ucx.conf is not used: user 54321 may not read it") !=
                           std::string::npos);
        _exit(done ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);
}

TEST_F(config_file, odd_files)
{
    const std::string fifo = m_dir + "/cwd/ucx.conf";
    ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600)); /* must not block */
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_TRUE(g_log.empty());
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_config_file_load((m_dir + "/none").c_str()));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_config_file_load(m_dir.c_str()));

    const std::string large = write_file("/large", std::string(UCS_CONFIG_FILE_MAX, '\n'));
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, ucs_config_file_load(large.c_str()));
    const std::string fits = write_file("/fits", std::string(UCS_CONFIG_FILE_MAX - 1, '\n'));
    EXPECT_EQ(UCS_OK, ucs_config_file_load(fits.c_str()));

    g_log.clear();
    const std::string path =
        write_file("/bad", "UCX_CT_SLOTS=32\nnonsense\n=x\nA B=1\nUCX_CT_MODE=rndv\n"
                           "[cpu]\nUCX_CT_NUMBER=7\n[other]\nUCX_CT_NUMBER=8");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_config_file_load(path.c_str()));
    ASSERT_EQ(4u, g_log.size());
    EXPECT_NE(std::string::npos, g_log[0].find(":2: expected a line UCX_NAME=VALUE"));
    EXPECT_NE(std::string::npos, g_log[3].find(":6: sections are not supported"));
    ASSERT_EQ(UCS_OK, fill());
    EXPECT_EQ(32u, m_opts.slots);
    EXPECT_EQ(1u, m_opts.mode);
    EXPECT_EQ(-5, m_opts.number);

    ASSERT_EQ(UCS_OK, ucs_fault_set("read", "1"));
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucs_config_file_load(path.c_str()));
    ASSERT_EQ(UCS_OK, ucs_fault_set("read", "1:EINTR"));
    EXPECT_EQ(UCS_OK, ucs_config_file_load(fits.c_str()));
    for (const char *call : {"1", "2", "3"}) {
        ucs_config_file_clear(0);
        ucs_fault_clear(nullptr);
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", call));
        EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_config_file_load(path.c_str())) << call;
    }
}

TEST_F(config_file, hostile_files_do_not_crash)
{
    seeded_random rnd(21);
    const std::string alphabet = "UCX_CT_SLOTS=MODE 1\n\n\r\t#;:[]\\\"=\x01\xff";
    for (int i = 0; i < 3000; ++i) {
        std::string text(rnd.below(400), ' ');
        for (char &c : text) {
            c = rnd.one_in(300) ? '\0' : alphabet[rnd.below(alphabet.size())];
        }
        (void)ucs_config_file_parse("fuzz", text.data(), text.size());
        g_log.clear();
        if (rnd.one_in(10)) {
            if (fill(nullptr, UCS_CONFIG_FILL_DEFAULT) == UCS_OK) {
                (void)print(&m_opts, UCS_CONFIG_PRINT_CONFIG);
            }
            ucs_config_file_clear(0);
        }
    }
}

/* ------------------------------------------------------------------ fuzz and unknown names */

TEST_F(config, hostile_values_do_not_crash)
{
    seeded_random rnd(22);
    const char *const pieces[] = {"inf", "auto", "all", "^", ",", "1", "9", "999999999999", ".",
                                  "e",
                                  "-", "K", "GBs", "us", "y", "try", "eager", " ", "\t", "\n",
                                  "\x7f", "\xff", "%s%n", "=", "0", "a", "\\"};
    ASSERT_EQ(UCS_OK, fill());
    unsigned accepted = 0;
    for (int i = 0; i < 30000; ++i) {
        std::string value;
        for (uint64_t n = rnd.below(6); n > 0; --n) {
            value += pieces[rnd.below(sizeof(pieces) / sizeof(pieces[0]))];
        }
        const ucs_config_row_t &row =
            rows[rnd.below(sizeof(rows) / sizeof(rows[0]) - 1)];
        const std::string before  = get(row.name);
        const ucs_status_t status = set(row.name, value);
        const std::string after   = get(row.name);
        if (status == UCS_OK) {
            /* what was accepted is shown in a form that is accepted and shown alike */
            ++accepted;
            ASSERT_EQ(UCS_OK, set(row.name, after)) << row.name << "=" << value;
            ASSERT_EQ(after, get(row.name));
        } else {
            ASSERT_EQ(before, after) << row.name << "=" << value;
        }
        g_log.clear();
    }
    EXPECT_GT(accepted, 1000u);
}

TEST_F(config, unknown_variables_get_one_warning)
{
    ASSERT_EQ(UCS_OK, ucs_config_table_add("test", PREFIX, rows));
    ASSERT_EQ(UCS_OK, ucs_config_table_add("test", PREFIX, rows));
    setenv("UCX_CT_SLTOS", "1", 1);
    setenv("UCX_CT_SLOTS", "32", 1);
    setenv("UCX_CTX_MODE", "eager", 1);
    setenv("APP_UCX_WHATEVER_THAT_IS", "1", 1);
    setenv("OTHER_UCX_WHATEVER", "1", 1);
    for (const char *foreign :
         {"UCX_DC_MLX5_TX_POLICY", "UCX_MEM_EVENTS", "UCX_MEM_MALLOC_HOOKS", "UCX_IB_GID_INDEX",
          "UCX_KEEPALIVE_INTERVAL", "UCX_PROTO_ENABLE", "UCX_POSIX_USE_PROC_LINK",
          "UCX_HANDLE_ERRORS", "UCX_MEMTYPE_CACHE", "UCX_SOCKADDR_TLS_PRIORITY",
          "UCX_UD_TIMEOUT", "UCX_RNDV_FRAG_MEM_TYPE", "UCX_MEM_MMAP_HOOK_MODE",
          "UCX_CUDA_IPC_CACHE", "UCX_TCP_CM_REUSEADDR", "UCX_ROOT", "UCX_FAULT",
          "UCX_CONFIG_DIR", "UCX_LOG_LEVEL"}) {
        setenv(foreign, (strcmp(foreign, "UCX_LOG_LEVEL") == 0) ? "warn" : "", 1);
    }
    ASSERT_EQ(UCS_OK, ucs_config_file_parse("conf", "UCX_CT_NUMBR=1\n", 15));

    EXPECT_EQ(3u, ucs_config_warn_unknown("APP"));
    ASSERT_EQ(3u, g_log.size());
    std::string all;
    for (const std::string &line : g_log) {
        all += line + "\n";
    }
    EXPECT_NE(std::string::npos, all.find("UCX_CT_SLTOS is not known and has no effect; did you "
                                          "mean UCX_CT_SLOTS?"));
    EXPECT_NE(std::string::npos, all.find("APP_UCX_WHATEVER_THAT_IS is not known"));
    EXPECT_NE(std::string::npos, all.find("UCX_CT_NUMBR (conf:1) is not known and has no effect; "
                                          "did you mean UCX_CT_NUMBER?"));

    /* only once in the life of the process */
    g_log.clear();
    EXPECT_EQ(0u, ucs_config_warn_unknown("APP"));
    EXPECT_EQ(1u, ucs_config_warn_unknown("OTHER"));

    g_log.clear();
    for (int i = 0; i < 20; ++i) {
        setenv(("UCX_QQQQQQQ" + std::to_string(i)).c_str(), "1", 1);
    }
    EXPECT_EQ(20u, ucs_config_warn_unknown(nullptr));
    EXPECT_EQ(5u, g_log.size());

    EXPECT_TRUE(ucs_config_name_is_used("CT_SLOTS"));
    EXPECT_TRUE(ucs_config_name_is_used("CTX_SLOTS"));
    EXPECT_FALSE(ucs_config_name_is_used("SLOTS"));
    EXPECT_TRUE(ucs_config_name_is_foreign("RC_MLX5_TX_QUEUE_LEN"));
    EXPECT_FALSE(ucs_config_name_is_foreign("CT_SLOTS"));
    /* keys that programs set by ucp_config_modify and that must not be refused */
    for (const char *key :
         {"HANDLE_ERRORS", "CM_REUSEADDR", "MEMTYPE_COPY_ENABLE", "ZCOPY_THRESH", "RNDV_THRESH",
          "RNDV_SCHEME", "MAX_RMA_RAILS", "IB_PCI_RELAXED_ORDERING", "RC_FENCE",
          "RNDV_MEMTYPE_DIRECT_SIZE", "RKEY_PTR_SEG_SIZE", "RX_MPOOL_SIZES", "ALLOC", "FAILURE",
          "CMA_MEMORY_INVALIDATE", "CMA_FAILURE", "POSIX_MAX_NUM_EPS", "MAX_NUM_EPS", "SM_ALLOC",
          "MM_RECV_OVERHEAD", "REVERSE_SL", "FRAG_MEM_TYPE",
          "RC_GDA_NUM_CHANNELS", "MAX_HCA_PER_GPU", "RNDV_PIPELINE_ERROR_HANDLING",
          "ADDRESS_VERSION", "MAX_COMPONENT_MDS", "MEMTYPE_REG_WHOLE_ALLOC_TYPES"}) {
        EXPECT_TRUE(ucs_config_name_is_foreign(key)) << key;
    }
    ucs_config_table_remove(rows);
    EXPECT_FALSE(ucs_config_name_is_used("CT_SLOTS"));
}

TEST_F(config, warnings_can_be_switched_off)
{
    setenv("UCX_SOMETHING_ELSE_ENTIRELY", "1", 1);
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("WARN_UNUSED_ENV_VARS", "n"));
    EXPECT_EQ(0u, ucs_config_warn_unknown(nullptr));
    ASSERT_EQ(UCS_OK, ucs_global_opts_set("WARN_UNUSED_ENV_VARS", "y"));
    EXPECT_EQ(1u, ucs_config_warn_unknown(nullptr));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_global_opts_set("NONE", "y"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_global_opts_set("LOG_LEVEL", "loud"));
}

TEST_F(config, tables_are_bounded)
{
    static ucs_config_row_t many[UCS_CONFIG_TABLES_MAX + 1][1];
    ucs_config_table_t table;
    unsigned added = 0;
    for (auto &one : many) {
        const ucs_status_t status = ucs_config_table_add("t", "T_", one);
        if (status != UCS_OK) {
            EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, status);
            break;
        }
        ++added;
    }
    EXPECT_LE(added, static_cast<unsigned>(UCS_CONFIG_TABLES_MAX));
    EXPECT_TRUE(ucs_config_table_get(UCS_CONFIG_TABLES_MAX - 1, &table));
    EXPECT_FALSE(ucs_config_table_get(UCS_CONFIG_TABLES_MAX, &table));
    for (auto &one : many) {
        ucs_config_table_remove(one);
    }
    EXPECT_FALSE(ucs_config_table_get(UCS_CONFIG_TABLES_MAX - added, &table));
}

TEST_F(config, own_defaults_are_valid)
{
    ucs_global_opts_t values;
    ASSERT_EQ(UCS_OK, ucs_config_fill(&values, ucs_global_rows, nullptr, "", 0));
    EXPECT_STREQ("warn", values.log_level);
    ucs_config_release(&values, ucs_global_rows);
}

/* Another thread is inside the configuration at the moment of a fork: what it holds there nobody
 * would ever give back in the child. */
TEST_F(config, forked_child_finds_no_lock_held)
{
    static const std::chrono::seconds limit(20);
    std::atomic<bool> stop(false);
    std::thread other([&] {
        while (!stop.load()) {
            ucs_config_table_t table;
            ucs_global_opts_t copy;
            ucs_global_opts_copy(&copy);
            ucs_config_release(&copy, ucs_global_rows);
            ucs_config_table_get(0, &table);
            ucs_config_file_get("UCX_NONE", nullptr);
        }
    });
    int status = 0;

    ASSERT_EQ(UCS_OK, fill());
    for (int i = 0; (i < 100) && (status == 0); ++i) {
        const auto end  = std::chrono::steady_clock::now() + limit;
        const pid_t pid = fork();
        if (pid == 0) {
            ucs_config_table_t table;
            ucs_global_opts_t copy;
            ucs_global_opts_copy(&copy);
            ucs_config_release(&copy, ucs_global_rows);
            ucs_config_table_get(0, &table);
            _exit((ucs_config_file_get("UCX_NONE", nullptr) == nullptr) ? 0 : 1);
        }
        ASSERT_GT(pid, 0);
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() > end) {
                ADD_FAILURE() << "child " << i << " waits";
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                break;
            }
            usleep(100);
        }
    }
    stop.store(true);
    other.join();
    EXPECT_EQ(0, status);
}

/* What a log handler does of its own accord when the library complains. */
ucs_log_func_rc_t change_the_level(const char *, unsigned, const char *, ucs_log_level_t,
                                   const ucs_log_component_config_t *, const char *, va_list)
{
    static bool is_inside;
    if (!is_inside) {
        is_inside       = true;
        const pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        waitpid(pid, nullptr, 0);
        g_log.push_back((ucs_global_opts_set("LOG_LEVEL", "warn") == UCS_OK) ? "changed" : "not");
        is_inside = false;
    }
    return UCS_LOG_FUNC_RC_STOP;
}

TEST_F(config, handlers_may_change_options)
{
    ucs_log_push_handler(change_the_level);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_global_opts_set("LOG_LEVEL", "loud"));
    EXPECT_EQ(UCS_OK, ucs_global_opts_set("LOG_FILE", std::string(1000, 'x').c_str()));
    EXPECT_EQ(UCS_OK, ucs_global_opts_set("LOG_FILE", ""));
    ucs_log_pop_handler();
    EXPECT_GE(g_log.size(), 2u); /* the log may add how often others were not heard */
    for (const std::string &told : g_log) {
        EXPECT_EQ("changed", told);
    }
}

TEST_F(config, handlers_may_change_options_that_find_no_memory)
{
    ucs_global_opts_t copy;
    ucs_log_push_handler(change_the_level);
    ucs_fault_set("malloc", "1");
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_global_opts_copy(&copy));
    ucs_fault_clear("malloc");
    ucs_log_pop_handler();
    EXPECT_EQ((std::vector<std::string>{"changed"}), g_log);
}

std::atomic<int> g_complaint; /* 1: somebody is told of a wrong value; 2: and goes on */

ucs_log_func_rc_t complain_slowly(const char *, unsigned, const char *, ucs_log_level_t,
                                  const ucs_log_component_config_t *, const char *, va_list)
{
    int none = 0;
    g_complaint.compare_exchange_strong(none, 1);
    while (g_complaint == 1) {
        usleep(100);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

/* One thread reads the options, another one changes them, and a child that has lost the first. */
TEST_F(config, others_change_what_is_being_read)
{
    g_complaint = 0;
    setenv("UCX_LOG_LEVEL", "loud", 1);
    ucs_log_push_handler(complain_slowly);
    std::thread reader([] { EXPECT_EQ(UCS_OK, ucs_global_opts_reload()); });
    while (g_complaint == 0) {
        usleep(100);
    }

    const pid_t pid = fork();
    if (pid == 0) {
        g_complaint = 2;
        _exit((ucs_global_opts_set("LOG_LEVEL", "info") == UCS_OK) &&
              (ucs_log_threshold == UCS_LOG_LEVEL_INFO) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(0, status);

    std::thread waker([] {
        usleep(50000);
        g_complaint = 2;
    });
    EXPECT_EQ(UCS_OK, ucs_global_opts_set("LOG_LEVEL", "info"));
    EXPECT_EQ(UCS_LOG_LEVEL_INFO, ucs_log_threshold);
    waker.join();
    reader.join();
    ucs_log_pop_handler();
    unsetenv("UCX_LOG_LEVEL");
    EXPECT_EQ(UCS_OK, ucs_global_opts_reload());
}

} // namespace
