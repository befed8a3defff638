/* Halyard: tests of reports: the two forms of one row, and strings that are anything.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "comma_locale.h"

#include <gtest/gtest.h>

#include <seed.h>
#include <ucp/world.h>
#include <ucs/debug/report.h>

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

using ucp_test::printed;

namespace {

std::string said(int is_json, const std::function<void(ucs_report_t *)> &say)
{
    return printed([&](FILE *stream) {
        ucs_report_t report;
        ucs_report_init(&report, stream, is_json);
        ucs_report_open(&report, nullptr, '{');
        say(&report);
        ucs_report_close(&report);
    });
}

std::string string_of(const std::string &text)
{
    return printed([&](FILE *stream) { ucs_report_string(stream, text.c_str(), SIZE_MAX); });
}

void say_everything(ucs_report_t *report)
{
    ucs_report_text(report, "head %d%%\n", 7);
    ucs_report_row(report, "name - size", "%-4s|%u|%zu%%\n", "a\"b", 5u, size_t(1) << 40);
    ucs_report_open(report, "rows", '[');
    ucs_report_row(report, "cut yes? no? empty? some? zero?", "%.*s %d %s%s%s%d\n", 2, "abc", -1,
                   "no (why)", "", "x", 0);
    ucs_report_row(report, "real none half any", "%.2f %g %5.1f %zu\n", 0.123456789,
                   double(NAN), 1.5, SIZE_MAX);
    ucs_report_row(report, "- large", "%p %lld\n", static_cast<void *>(nullptr), -(1ll << 62));
    ucs_report_close(report);
    ucs_report_open(report, "bare", '[');
    ucs_report_row(report, "=", "%x", 255u);
    ucs_report_row(report, "=", "%s\n", "b");
    ucs_report_close(report);
    ucs_report_open(report, "empty", '[');
    ucs_report_close(report);
    ucs_report_data(report, "hidden", "%lu", 1ul);
}

/* What the library prints by itself looks the same in every program, whose locale stays. */
TEST(report, numbers_do_not_depend_on_the_locale)
{
    if (!set_comma_locale()) {
        GTEST_SKIP() << "no locale with a decimal comma is installed";
    }
    EXPECT_EQ("1.50", printed([](FILE *stream) {
                  ucs_report_t storage, *report = ucs_report_begin(stream, &storage);
                  ucs_report_text(report, "%.2f", 1.5);
                  ucs_report_end(report, stream);
              }));
    EXPECT_EQ("1,50", printed([](FILE *stream) { fprintf(stream, "%.2f", 1.5); }));
    setlocale(LC_ALL, "C");
}

TEST(report, one_row_is_a_line_and_an_object)
{
    EXPECT_EQ("head 7%\na\"b |5|1099511627776%\nab -1 no (why)x0\n0.12 nan   1.5 "
              "18446744073709551615\n(nil) -4611686018427387904\nffb\n",
              said(0, say_everything));
    EXPECT_EQ("{\n"
              "  \"name\": \"a\\\"b\",\n"
              "  \"size\": 1099511627776,\n"
              "  \"rows\": [\n"
              "    {\"cut\": \"ab\", \"yes\": true, \"no\": false, \"empty\": false, "
              "\"some\": true, \"zero\": false},\n"
              "    {\"real\": 0.123456789, \"none\": null, \"half\": 1.5, \"any\": null},\n"
              "    {\"large\": -4611686018427387904}\n"
              "  ],\n"
              "  \"bare\": [\n    255,\n    \"b\"\n  ],\n"
              "  \"empty\": [],\n"
              "  \"hidden\": 1\n"
              "}\n",
              said(1, say_everything));
}

TEST(report, strings)
{
    EXPECT_EQ("\"\"", string_of(""));
    EXPECT_EQ("\"\\\"\\\\/\\u0009\\u007f\"", string_of("\"\\/\t\x7f"));
    EXPECT_EQ("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"",
              string_of("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    /* bytes that are no UTF-8: overlong, surrogates, beyond the last, alone, cut */
    EXPECT_EQ("\"\\u00c0\\u0080\"", string_of("\xc0\x80"));
    EXPECT_EQ("\"\\u00ed\\u00a0\\u0080\"", string_of("\xed\xa0\x80"));
    EXPECT_EQ("\"\\u00f4\\u0090\\u0080\\u0080\"", string_of("\xf4\x90\x80\x80"));
    EXPECT_EQ("\"\\u0080x\\u00e2\\u0082\"", string_of("\x80x\xe2\x82"));
    EXPECT_EQ("\"a\\u00c3\"", printed([](FILE *stream) {
                  ucs_report_string(stream, "a\xc3\xa4", 2);
              }));
}

/* Whatever the bytes, the string ends where it should and holds nothing that JSON forbids. */
TEST(report, strings_of_random_bytes)
{
    seeded_random rnd(77);
    for (int i = 0; i < 20000; ++i) {
        std::string text(rnd.below(40), ' ');
        for (char &byte : text) {
            byte = static_cast<char>(1 + rnd.below(255));
        }
        const std::string json = string_of(text);
        ASSERT_GE(json.size(), 2u);
        size_t at = 1, left = text.size();
        for (; at + 1 < json.size(); ++at, left -= (left > 0)) {
            ASSERT_GE(static_cast<unsigned char>(json[at]), 0x20u);
            ASSERT_NE('"', json[at]);
            if (json[at] == '\\') {
                at += (json[at + 1] == 'u') ? 5 : 1;
            }
        }
        ASSERT_EQ(0u, left) << json;
        ASSERT_EQ(json.size(), at + 1);
    }
}

/* What a library prints to the stream of the process's report joins it; else it is text. */
TEST(report, the_report_of_the_process)
{
    const auto print = [](FILE *stream) {
        ucs_report_t storage, *report = ucs_report_begin(stream, &storage);
        ucs_report_row(report, "value", "value %d\n", 5);
        ucs_report_end(report, stream);
    };
    EXPECT_EQ("value 5\n", printed(print));
    EXPECT_EQ("{\n  \"value\": 5\n}\n", said(1, [&](ucs_report_t *report) {
        ucs_report_shared = report;
        print(report->stream);
        EXPECT_EQ("value 5\n", printed(print));
        ucs_report_shared = nullptr;
    }));
}

} // namespace
