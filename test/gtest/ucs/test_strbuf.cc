/* Halyard: tests of the string buffer against std::string.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/ds/strbuf.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

/* What a buffer of at most 'max' characters must hold. */
struct model {
    explicit model(size_t max) : max(max)
    {
    }

    void append(const std::string &more)
    {
        text += more;
        if (text.size() > max) {
            text.resize(max);
        }
    }

    const size_t max;
    std::string text;
};

void random_operations(ucs_string_buffer_t *strb, model &expected, seeded_random &rnd, int steps)
{
    for (int step = 0; step < steps; ++step) {
        std::string text(rnd.below(rnd.one_in(10) ? 200 : 10), 'a' + rnd.below(26));
        int number = static_cast<int>(rnd.bits());

        switch (rnd.below(7)) {
        case 0:
        case 1:
        case 2:
        case 3:
            ucs_string_buffer_appendf(strb, "%s", text.c_str());
            expected.append(text);
            break;
        case 4:
            ucs_string_buffer_appendf(strb, "<%d> ,", number);
            expected.append("<" + std::to_string(number) + "> ,");
            break;
        case 5:
            ucs_string_buffer_appendf(strb, "%s", "");
            break;
        case 6:
            if (rnd.one_in(30)) {
                ucs_string_buffer_reset(strb);
                expected.text.clear();
            }
            break;
        }
        ASSERT_EQ(expected.text, ucs_string_buffer_cstr(strb)) << "step " << step;
        ASSERT_EQ(expected.text.size(), strb->length);
    }
}

TEST(strbuf, growing)
{
    seeded_random rnd(9);
    ucs_string_buffer_t strb;
    model expected(SIZE_MAX);

    ucs_string_buffer_init(&strb);
    EXPECT_STREQ("", ucs_string_buffer_cstr(&strb));
    random_operations(&strb, expected, rnd, 5000);
    ucs_string_buffer_cleanup(&strb);
    EXPECT_STREQ("", ucs_string_buffer_cstr(&strb));
}

TEST(strbuf, fixed)
{
    seeded_random rnd(10);

    for (size_t size = 1; size < 100; ++size) {
        /* One allocation of the exact size: AddressSanitizer sees a byte too many, and so do the
         * guard bytes where it is not there. */
        std::vector<char> storage(size + 8, '#');
        ucs_string_buffer_t strb;
        model expected(size - 1);

        ucs_string_buffer_init_fixed(&strb, storage.data(), size);
        random_operations(&strb, expected, rnd, 200);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "size " << size;
        ASSERT_EQ("########", std::string(storage.data() + size, 8));
        ucs_string_buffer_cleanup(&strb);
        ASSERT_STREQ("", ucs_string_buffer_cstr(&strb));
    }
}

TEST(strbuf, no_memory)
{
    ucs_string_buffer_t strb;

    ucs_string_buffer_init(&strb);
    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    ucs_string_buffer_appendf(&strb, "%d", 5);
    ucs_string_buffer_appendf(&strb, "%s", "abc");
    EXPECT_STREQ("", ucs_string_buffer_cstr(&strb));

    ucs_fault_clear("realloc");
    ucs_string_buffer_reset(&strb);
    ucs_string_buffer_appendf(&strb, "%d", 5);
    size_t capacity = strb.capacity;
    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    ucs_string_buffer_appendf(&strb, "%s", std::string(1000, 'x').c_str());
    ucs_fault_clear("realloc");
    EXPECT_EQ("5" + std::string(capacity - 2, 'x'), ucs_string_buffer_cstr(&strb));
    ucs_string_buffer_cleanup(&strb);
}

} // namespace
