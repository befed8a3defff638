/* Halyard: tests of the map from ids to pointers against std::map.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/ds/ptr_map.h>

#include <map>
#include <set>
#include <vector>

namespace {

class ptr_map_test : public testing::Test {
protected:
    ptr_map_test()
    {
        ucs_ptr_map_init(&m_map);
    }

    ~ptr_map_test() override
    {
        ucs_fault_clear("realloc");
        ucs_ptr_map_cleanup(&m_map);
    }

    void *pointer(uint64_t n)
    {
        return reinterpret_cast<void *>(static_cast<uintptr_t>(0x1000 + n * 8));
    }

    uint64_t put(void *ptr)
    {
        uint64_t id = 0;
        EXPECT_EQ(UCS_OK, ucs_ptr_map_put(&m_map, ptr, &id));
        EXPECT_NE(0u, id);
        return id;
    }

    void run(uint64_t seed);

    void compare()
    {
        std::map<uint64_t, void *> found;
        uint32_t pos = 0;
        uint64_t id;
        void *ptr;

        while ((ptr = ucs_ptr_map_next(&m_map, &pos, &id)) != nullptr) {
            ASSERT_TRUE(found.emplace(id, ptr).second);
        }
        ASSERT_EQ(m_model, found);
        ASSERT_EQ(m_model.size(), m_map.count);
    }

    ucs_ptr_map_t m_map;
    std::map<uint64_t, void *> m_model;
};

void ptr_map_test::run(uint64_t seed)
{
    seeded_random rnd(seed);
    std::set<uint64_t> all_ids;
    std::vector<uint64_t> live, stale;

    for (int step = 0; step < 50000; ++step) {
        bool grows = (step / 5000) % 2 == 0;

        if (rnd.below(8) < (grows ? 4u : 2u)) {
            void *ptr   = pointer(rnd.below(1000)); /* the same pointer may have several ids */
            uint64_t id = 0;
            if (ucs_ptr_map_put(&m_map, ptr, &id) == UCS_ERR_NO_MEMORY) {
                ASSERT_EQ(m_map.num_entries, m_map.count);
                ASSERT_EQ(0u, id);
                continue;
            }
            ASSERT_NE(0u, id);
            ASSERT_TRUE(all_ids.insert(id).second) << "id given out twice";
            m_model[id] = ptr;
            live.push_back(id);
        } else if (rnd.one_in(2) && !live.empty()) {
            size_t n    = rnd.below(live.size());
            uint64_t id = live[n];
            ASSERT_EQ(m_model[id], ucs_ptr_map_get(&m_map, id));
            ASSERT_EQ(m_model[id], ucs_ptr_map_del(&m_map, id));
            ASSERT_EQ(nullptr, ucs_ptr_map_get(&m_map, id));
            ASSERT_EQ(nullptr, ucs_ptr_map_del(&m_map, id));
            m_model.erase(id);
            live[n] = live.back();
            live.pop_back();
            stale.push_back(id);
        } else if (!stale.empty()) {
            ASSERT_EQ(nullptr, ucs_ptr_map_get(&m_map, stale[rnd.below(stale.size())]));
        }

        /* What a hostile peer may send: any bits, and bits that are nearly right. */
        uint64_t id = rnd.one_in(2) ? rnd.bits() :
                      (rnd.below(64) << 32 | rnd.below(m_map.num_entries + 2));
        auto found  = m_model.find(id);
        ASSERT_EQ((found == m_model.end()) ? nullptr : found->second,
                  ucs_ptr_map_get(&m_map, id));
        if (step % 1024 == 0) {
            ASSERT_NO_FATAL_FAILURE(compare()) << "step " << step;
        }
    }
}

TEST_F(ptr_map_test, random_operations)
{
    run(8);
}

TEST_F(ptr_map_test, random_operations_hidden_short_of_memory)
{
    ucs_ptr_map_hide(&m_map);
    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "p0.9"));
    run(9);
}

TEST_F(ptr_map_test, free_entry_matches_no_id)
{
    uint64_t id = put(pointer(1));
    ucs_ptr_map_del(&m_map, id);

    /* The very words of the table are the best guess that there is. */
    for (uint32_t i = 0; i < m_map.num_entries; ++i) {
        EXPECT_EQ(nullptr, ucs_ptr_map_get(&m_map, m_map.entries[i].id));
        EXPECT_EQ(nullptr, ucs_ptr_map_get(&m_map, (m_map.entries[i].id >> 32 << 32) | i));
    }
    EXPECT_EQ(nullptr, ucs_ptr_map_get(&m_map, 0));
    EXPECT_EQ(nullptr, ucs_ptr_map_get(&m_map, UINT64_MAX));
}

TEST_F(ptr_map_test, entry_retires_when_generations_are_used_up)
{
    uint64_t id    = put(pointer(1));
    uint32_t index = static_cast<uint32_t>(id);
    ucs_ptr_map_del(&m_map, id);

    /* Four thousand million uses later: */
    m_map.entries[index].id |= uint64_t(UINT32_MAX) << 32;
    id = put(pointer(2));
    ASSERT_EQ(index, static_cast<uint32_t>(id));
    ASSERT_EQ(UINT32_MAX, id >> 32);
    ASSERT_EQ(pointer(2), ucs_ptr_map_del(&m_map, id));
    ASSERT_EQ(nullptr, ucs_ptr_map_get(&m_map, id));

    for (uint64_t i = 0; i < 100; ++i) {
        uint64_t other = put(pointer(i));
        EXPECT_NE(index, static_cast<uint32_t>(other));
        m_model[other] = pointer(i);
    }
    compare();
}

/* Who knows the ids of some entries, and what they were before, does not know the others'. */
TEST_F(ptr_map_test, hidden_ids)
{
    std::set<uint32_t> generations, steps;
    int value = 0;
    ucs_ptr_map_t map;

    ucs_ptr_map_init(&map);
    ucs_ptr_map_hide(&map);
    for (unsigned i = 0; i < 100; ++i) {
        uint64_t id, next;
        ASSERT_EQ(UCS_OK, ucs_ptr_map_put(&map, &value, &id));
        EXPECT_EQ(&value, ucs_ptr_map_del(&map, id));
        ASSERT_EQ(UCS_OK, ucs_ptr_map_put(&map, &value, &next));
        EXPECT_EQ(uint32_t(id), uint32_t(next));
        EXPECT_LT(id, next);
        EXPECT_EQ(nullptr, ucs_ptr_map_get(&map, id));
        EXPECT_EQ(&value, ucs_ptr_map_get(&map, next));
        generations.insert(uint32_t(id >> 32));
        steps.insert(uint32_t((next - id) >> 32));
    }
    EXPECT_GT(generations.size(), 98u);
    EXPECT_GT(steps.size(), 90u);
    ucs_ptr_map_cleanup(&map);
}

TEST_F(ptr_map_test, delete_during_walk)
{
    for (uint64_t i = 0; i < 100; ++i) {
        put(pointer(i));
    }
    uint32_t pos = 0;
    uint64_t id;
    size_t count = 0;
    while (void *ptr = ucs_ptr_map_next(&m_map, &pos, &id)) {
        ASSERT_EQ(ptr, ucs_ptr_map_del(&m_map, id));
        ++count;
    }
    EXPECT_EQ(100u, count);
    EXPECT_EQ(0u, m_map.count);
}

TEST_F(ptr_map_test, no_memory)
{
    uint64_t id = 77;

    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_ptr_map_put(&m_map, pointer(1), &id));
    EXPECT_EQ(77u, id) << "outputs are set on success only";

    ucs_fault_clear("realloc");
    do {
        void *ptr      = pointer(m_model.size());
        m_model[put(ptr)] = ptr;
    } while (m_map.count < m_map.num_entries);

    ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1+"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_ptr_map_put(&m_map, pointer(1), &id));
    compare();
}

} // namespace
