/* Halyard: tests of the hash map against std::unordered_map.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/ds/hash.h>

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

namespace {

class hash_test : public testing::Test {
protected:
    hash_test()
    {
        ucs_hash_init(&m_hash);
    }

    ~hash_test() override
    {
        ucs_fault_clear("calloc");
        ucs_hash_cleanup(&m_hash);
    }

    void compare()
    {
        std::map<uint64_t, uint64_t> found;
        std::map<uint64_t, uint64_t> expected(m_model.begin(), m_model.end());
        size_t pos = 0;
        uint64_t key, *value;

        ASSERT_EQ(m_model.size(), ucs_hash_size(&m_hash));
        while (ucs_hash_next(&m_hash, &pos, &key, &value)) {
            ASSERT_TRUE(found.emplace(key, *value).second) << "key " << key << " seen twice";
        }
        ASSERT_EQ(expected, found);
    }

    void run(seeded_random &rnd, int steps, const std::function<uint64_t()> &make_key)
    {
        for (int step = 0; step < steps; ++step) {
            uint64_t key   = make_key();
            uint64_t value = rnd.bits();
            ucs_status_t status;
            uint64_t *found;

            /* Phases of growth and of decline. */
            bool grows = (step / 4000) % 2 == 0;
            switch (rnd.below(grows ? 3 : 6)) {
            case 0:
            case 1:
                status = ucs_hash_insert(&m_hash, key, value);
                if (status == UCS_ERR_NO_MEMORY) { /* only if there is no room at all */
                    ASSERT_EQ(m_hash.mask, m_hash.count);
                    ASSERT_EQ(0u, m_model.count(key));
                    break;
                }
                ASSERT_EQ(m_model.count(key) ? UCS_ERR_ALREADY_EXISTS : UCS_OK, status);
                m_model.emplace(key, value);
                break;
            case 2:
                found = ucs_hash_get(&m_hash, key);
                ASSERT_EQ(m_model.count(key) != 0, found != nullptr);
                if (found != nullptr) {
                    ASSERT_EQ(m_model[key], *found);
                    *found       = value;
                    m_model[key] = value;
                }
                break;
            default:
                ASSERT_EQ(m_model.count(key) ? UCS_OK : UCS_ERR_NO_ELEM,
                          ucs_hash_del(&m_hash, key));
                m_model.erase(key);
                break;
            }
            if (step % 512 == 0) {
                ASSERT_NO_FATAL_FAILURE(compare()) << "step " << step;
            }
        }
        ASSERT_NO_FATAL_FAILURE(compare());
    }

    ucs_hash_t m_hash;
    std::unordered_map<uint64_t, uint64_t> m_model;
};

TEST_F(hash_test, random_operations_few_keys)
{
    seeded_random rnd(3);
    run(rnd, 40000, [&] { return rnd.below(20); });
}

TEST_F(hash_test, random_operations_many_keys)
{
    seeded_random rnd(4);
    run(rnd, 40000, [&] { return rnd.below(3000) << 40; });
}

/* Keys that all want nearby slots: long runs of followers around the end of the table. */
TEST_F(hash_test, random_operations_crowded)
{
    seeded_random rnd(5);
    std::vector<uint64_t> keys;
    while (keys.size() < 60) {
        uint64_t key = rnd.bits();
        if ((ucs_hash_mix(key) & 0xff) >= 0xfc) {
            keys.push_back(key);
        }
    }
    run(rnd, 40000, [&] { return keys[rnd.below(keys.size())]; });
}

TEST_F(hash_test, random_operations_short_of_memory)
{
    seeded_random rnd(6);
    ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", "p0.99"));
    run(rnd, 40000, [&] { return rnd.below(2000); });
    uint64_t failed = 0;
    EXPECT_EQ(UCS_OK, ucs_fault_query("calloc", nullptr, &failed));
    EXPECT_GT(failed, 100u);
}

TEST_F(hash_test, pointers)
{
    int object;
    EXPECT_EQ(nullptr, ucs_hash_get_ptr(&m_hash, 0));
    EXPECT_EQ(nullptr, ucs_hash_get_ptr(&m_hash, 77));
    ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, 77, (uintptr_t)&object));
    EXPECT_EQ(&object, ucs_hash_get_ptr(&m_hash, 77));
}

TEST_F(hash_test, delete_without_output)
{
    ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, 1, 2));
    EXPECT_EQ(UCS_OK, ucs_hash_del(&m_hash, 1));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_hash_del(&m_hash, 1));
    EXPECT_EQ(0u, ucs_hash_size(&m_hash));
}

TEST_F(hash_test, clear_and_reuse)
{
    for (uint64_t key = 0; key < 1000; ++key) {
        ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, key, key));
    }
    ucs_hash_cleanup(&m_hash);
    compare();
    ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, 5, 6));
    m_model[5] = 6;
    compare();
}

/* Without memory an empty map refuses, and a map that has a table fills it to the last slot but
 * one, finds everything in it, and recovers. */
TEST_F(hash_test, no_memory)
{
    ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", "1+"));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_hash_insert(&m_hash, 1, 1));
    EXPECT_EQ(nullptr, ucs_hash_get(&m_hash, 1));
    compare();

    ucs_fault_clear("calloc");
    ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, 1, 1));
    m_model[1]   = 1;
    size_t slots = m_hash.mask + 1;
    ASSERT_EQ(UCS_OK, ucs_fault_set("calloc", "1+"));
    for (uint64_t key = 2; key < slots; ++key) {
        ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, key, key));
        m_model[key] = key;
    }
    EXPECT_EQ(slots, m_hash.mask + 1);
    EXPECT_EQ(UCS_ERR_NO_MEMORY, ucs_hash_insert(&m_hash, slots, 0));
    EXPECT_EQ(nullptr, ucs_hash_get(&m_hash, slots));
    compare();

    ucs_fault_clear("calloc");
    ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, slots, 9));
    m_model[slots] = 9;
    compare();
}

/* Patterns that tags and ids have must not pile up in few slots: the mean distance of a key from
 * the slot it wants stays near what random keys give (1/2 (1/(1-5/8) - 1) = 0.83). */
TEST_F(hash_test, structured_keys_spread)
{
    const std::vector<std::function<uint64_t(uint64_t)>> patterns = {
        [](uint64_t i) { return i; },
        [](uint64_t i) { return i << 8; },
        [](uint64_t i) { return i << 32; },
        [](uint64_t i) { return i << 50; },
        [](uint64_t i) { return (i & 63) << 58 | (i >> 6); },
        [](uint64_t i) { return (i & 127) << 32 | (i >> 7) << 4; },
        [](uint64_t i) { return 0x7f0000000000ull + i * 64; },
        [](uint64_t i) { return 0x7f0000000000ull + i * 4096; },
    };

    for (size_t n = 0; n < patterns.size(); ++n) {
        ucs_hash_cleanup(&m_hash);
        for (uint64_t i = 1; i <= 10000; ++i) {
            ASSERT_EQ(UCS_OK, ucs_hash_insert(&m_hash, patterns[n](i), i));
        }
        double distance = 0;
        for (size_t i = 0; i <= m_hash.mask; ++i) {
            if (m_hash.slots[i].key != 0) {
                distance += (i - ucs_hash_mix(m_hash.slots[i].key)) & m_hash.mask;
            }
        }
        EXPECT_LT(distance / m_hash.count, 2.0) << "pattern " << n;
    }
}

} // namespace
