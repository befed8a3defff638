/* Halyard: tests of bitmaps against std::vector<bool>.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/ds/bitmap.h>

#include <algorithm>
#include <vector>

namespace {

class bitmap_test : public testing::TestWithParam<size_t> {
protected:
    bitmap_test() : m_nbits(GetParam()), m_words(UCS_BITMAP_WORDS(m_nbits)), m_model(m_nbits)
    {
    }

    uint64_t *words()
    {
        return m_words.data();
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
            ASSERT_EQ(m_model[bit], ucs_bitmap_test(words(), bit)) << "bit " << bit;
            if (m_model[bit]) {
                expected.push_back(bit);
            }
        }
        for (bit = ucs_bitmap_ffs(words(), m_nbits, 0); bit < m_nbits;
             bit = ucs_bitmap_ffs(words(), m_nbits, bit + 1)) {
            found.push_back(bit);
        }
        ASSERT_EQ(expected, found);
        ASSERT_EQ(expected.size(), ucs_bitmap_count(words(), m_nbits));
    }

    const size_t m_nbits;
    std::vector<uint64_t> m_words;
    std::vector<bool> m_model;
};

TEST_P(bitmap_test, random_operations)
{
    seeded_random rnd(7);

    for (int step = 0; step < 5000; ++step) {
        size_t bit = (m_nbits > 0) ? rnd.below(m_nbits) : 0;

        switch (rnd.below(4)) {
        case 0:
        case 1:
            if (m_nbits > 0) {
                ucs_bitmap_set(words(), bit);
                m_model[bit] = true;
            }
            break;
        case 2:
            bit = rnd.below(m_nbits + 2);
            ASSERT_EQ(model_find(bit, true), ucs_bitmap_ffs(words(), m_nbits, bit));
            ASSERT_EQ(model_find(bit, false), ucs_bitmap_ffz(words(), m_nbits, bit));
            break;
        default:
            if (rnd.one_in(100)) { /* begun anew */
                m_words.assign(m_words.size(), 0);
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

} // namespace
