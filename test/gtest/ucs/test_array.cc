/* Halyard: tests of the growable array against std::vector.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/ds/array.h>

#include <vector>

namespace {

struct point {
    int x;
    uint64_t y;

    bool operator==(const point &other) const
    {
        return (x == other.x) && (y == other.y);
    }
};

class array_test : public testing::Test {
protected:
    array_test()
    {
        ucs_array_init(&m_array);
    }

    ~array_test() override
    {
        ucs_fault_clear("realloc");
        ucs_array_cleanup(&m_array);
    }

    void compare()
    {
        ASSERT_TRUE(m_model == std::vector<point>(m_array.items, m_array.items + m_array.length));
        ASSERT_LE(m_array.length, m_array.capacity);
    }

    UCS_ARRAY(point) m_array;
    std::vector<point> m_model;
};

TEST_F(array_test, random_operations)
{
    seeded_random rnd(6);

    for (int step = 0; step < 20000; ++step) {
        point value = {static_cast<int>(rnd.below(1000)), rnd.bits()};

        switch (rnd.below(7)) {
        case 0:
        case 1:
        case 2:
            ASSERT_EQ(UCS_OK, ucs_array_push(&m_array, value));
            m_model.push_back(value);
            break;
        case 3:
            ASSERT_EQ(UCS_OK, ucs_array_push(&m_array, {value.x, 5}));
            m_model.push_back({value.x, 5});
            break;
        case 4:
        case 5:
            if (!m_model.empty()) {
                ASSERT_TRUE(m_model.back() == ucs_array_pop(&m_array));
                m_model.pop_back();
            }
            break;
        case 6:
            if (rnd.one_in(50)) {
                ASSERT_EQ(UCS_OK, ucs_array_reserve(&m_array, m_array.length + 10));
                ASSERT_GE(m_array.capacity, m_array.length + 10);
            } else if (rnd.one_in(100)) {
                ucs_array_cleanup(&m_array);
                m_model.clear();
            }
            break;
        }
        ASSERT_NO_FATAL_FAILURE(compare()) << "step " << step;
    }
}

TEST_F(array_test, growth_is_geometric)
{
    void *last = nullptr;
    int moves  = 0;

    for (int i = 0; i < 100000; ++i) {
        ASSERT_EQ(UCS_OK, ucs_array_push(&m_array, {i, 0}));
        moves += (m_array.items != last);
        last   = m_array.items;
    }
    EXPECT_LT(moves, 32);
}

TEST_F(array_test, no_memory)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_array_push(&m_array, {1, 1}));
    EXPECT_EQ(UCS_OK, ucs_array_reserve(&m_array, 0));
    compare();

    ucs_fault_clear("realloc");
    do {
        ASSERT_EQ(UCS_OK, ucs_array_push(&m_array, {1, 2}));
        m_model.push_back({1, 2});
    } while (m_array.length < m_array.capacity);

    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_array_push(&m_array, {1, 1}));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_array_reserve(&m_array, 1000));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_array_reserve(&m_array, SIZE_MAX / 2)) << "size overflows";
    compare();
}

} // namespace
