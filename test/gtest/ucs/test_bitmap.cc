/* Halyard: tests of bitmaps against std::vector<bool>.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/ds/bitmap.h>

#include <algorithm>
#include <vector>

namespace {

class bitmap_test : public testing::TestWithParam<size_t> {
protected:
    bitmap_test() : m_nbits(GetParam()), m_words(ucs_bitmap_alloc(m_nbits)), m_model(m_nbits)
    {
    }

    ~bitmap_test() override
    {
        ucs_sys_free(m_words);
    }

    size_t model_find(size_t from, bool value) const
    {
        if (from >= m_nbits) {
            return m_nbits;
        }
        return std::find(m_model.begin() + from, m_model.end(), value) - m_model.begin();
    }

    void compare()
    {
        std::vector<size_t> expected, found;
        size_t bit;

        for (bit = 0; bit < m_nbits; ++bit) {
            ASSERT_EQ(m_model[bit], ucs_bitmap_test(m_words, bit)) << "bit " << bit;
            if (m_model[bit]) {
                expected.push_back(bit);
            }
        }
        ucs_bitmap_for_each(bit, m_words, m_nbits) {
            found.push_back(bit);
        }
        ASSERT_EQ(expected, found);
        ASSERT_EQ(expected.size(), ucs_bitmap_count(m_words, m_nbits));
        ASSERT_EQ(expected.empty(), !!ucs_bitmap_is_empty(m_words, m_nbits));
    }

    const size_t m_nbits;
    uint64_t *m_words;
    std::vector<bool> m_model;
};

TEST_P(bitmap_test, random_operations)
{
    seeded_random rnd(7);

    ASSERT_NE(nullptr, m_words);
    for (int step = 0; step < 5000; ++step) {
        size_t bit = (m_nbits > 0) ? rnd.below(m_nbits) : 0;

        switch (rnd.below(6)) {
        case 0:
        case 1:
            if (m_nbits > 0) {
                ucs_bitmap_set(m_words, bit);
                m_model[bit] = true;
            }
            break;
        case 2:
            if (m_nbits > 0) {
                ucs_bitmap_clear(m_words, bit);
                m_model[bit] = false;
            }
            break;
        case 3:
            bit = rnd.below(m_nbits + 2);
            ASSERT_EQ(model_find(bit, true), ucs_bitmap_ffs(m_words, m_nbits, bit));
            ASSERT_EQ(model_find(bit, false), ucs_bitmap_ffz(m_words, m_nbits, bit));
            break;
        case 4:
            if (rnd.one_in(100)) {
                ucs_bitmap_set_all(m_words, m_nbits);
                m_model.assign(m_nbits, true);
                ASSERT_EQ(m_nbits, ucs_bitmap_ffz(m_words, m_nbits, 0));
            }
            break;
        case 5:
            if (rnd.one_in(100)) {
                ucs_bitmap_clear_all(m_words, m_nbits);
                m_model.assign(m_nbits, false);
            }
            break;
        }
        if (step % 64 == 0) {
            ASSERT_NO_FATAL_FAILURE(compare()) << "step " << step;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(sizes, bitmap_test,
                         testing::Values(0, 1, 7, 63, 64, 65, 127, 128, 129, 1000));

TEST(bitmap, fixed_and_changed_during_walk)
{
    uint64_t words[UCS_BITMAP_WORDS(130)] = {0};
    std::vector<unsigned> seen;
    unsigned bit;

    static_assert(sizeof(words) == 24, "three words for 130 bits");
    ucs_bitmap_set(words, 0);
    ucs_bitmap_set(words, 64);
    ucs_bitmap_set(words, 129);
    ucs_bitmap_for_each(bit, words, 130u) {
        seen.push_back(bit);
        ucs_bitmap_clear(words, bit);
        if (bit == 0) {
            ucs_bitmap_set(words, 70); /* ahead of the walk: will be seen */
        }
    }
    EXPECT_EQ((std::vector<unsigned>{0, 64, 70, 129}), seen);
    EXPECT_TRUE(ucs_bitmap_is_empty(words, 130));
}

TEST(bitmap, no_memory)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", "1"));
    EXPECT_EQ(nullptr, ucs_bitmap_alloc(100));
    ucs_fault_clear("calloc");
}

} // namespace
