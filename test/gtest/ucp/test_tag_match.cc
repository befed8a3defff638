/* Halyard: tests of tag matching against a model: two ordered vectors.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucp/internals.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

constexpr uint64_t EXACT     = UINT64_MAX;
constexpr uint64_t MPICH_TAG = 0xffffffff9fffffffull; /* MPICH: all but two bits */
constexpr uint64_t OMPI_ANY  = 0x80000000000fffffull; /* Open MPI: any source */
constexpr uint64_t MPICH_ANY = 0xffff000090000000ull; /* MPICH: any source, any tag */

struct receive_t {
    uint64_t tag, mask;
    int number;
    void *posted;
};

struct message_t {
    uint64_t tag;
    int number;
};

/* The table and its model, side by side. */
class tag_match_pair {
public:
    explicit tag_match_pair(unsigned num_buckets) : m_match(ucp_test_match_create(num_buckets))
    {
    }

    ~tag_match_pair()
    {
        ucp_test_match_destroy(m_match);
    }

    void post(uint64_t tag, uint64_t mask)
    {
        void *posted = ucp_test_match_post(m_match, tag, mask, m_next);
        m_receives.push_back({tag, mask, m_next++, posted});
    }

    void cancel(size_t i)
    {
        ucp_test_match_cancel(m_match, m_receives[i].posted);
        m_receives.erase(m_receives.begin() + static_cast<ptrdiff_t>(i));
    }

    void arrive(uint64_t tag)
    {
        const auto first =
            std::find_if(m_receives.begin(), m_receives.end(), [&](const receive_t &receive) {
                return ((receive.tag ^ tag) & receive.mask) == 0;
            });
        const int number = m_next++;
        const int found  = ucp_test_match_arrive(m_match, tag, number);
        if (first == m_receives.end()) {
            ASSERT_EQ(-1, found);
            m_messages.push_back({tag, number});
        } else {
            ASSERT_EQ(first->number, found);
            m_receives.erase(first);
        }
    }

    void search(uint64_t tag, uint64_t mask, bool remove)
    {
        const auto first =
            std::find_if(m_messages.begin(), m_messages.end(), [&](const message_t &message) {
                return ((message.tag ^ tag) & mask) == 0;
            });
        const int found = ucp_test_match_search(m_match, tag, mask, remove);
        if (first == m_messages.end()) {
            ASSERT_EQ(-1, found);
            return;
        }
        ASSERT_EQ(first->number, found);
        if (remove) {
            m_messages.erase(first);
        }
    }

    size_t num_receives() const
    {
        return m_receives.size();
    }

    size_t num_messages() const
    {
        return m_messages.size();
    }

    size_t buckets() const
    {
        return ucp_test_match_buckets(m_match);
    }

private:
    ucp_test_match_t *m_match;
    int m_next = 0;
    std::vector<receive_t> m_receives;
    std::vector<message_t> m_messages;
};

class tag_match : public testing::Test {
protected:
    void TearDown() override
    {
        ucs_fault_clear(nullptr);
    }

    /* A tag as MPI libraries make them, from few values so that they meet. */
    static uint64_t random_tag(seeded_random &random)
    {
        const uint64_t context = random.below(3);
        const uint64_t rank    = random.below(4);
        const uint64_t tag     = random.below(6);
        if (random.one_in(64)) {
            return random.bits();
        }
        return (random.one_in(2)) ? (context << 48) | (rank << 28) | tag
                                  : (tag << 40) | (rank << 20) | context | (random.below(2) << 63);
    }

    static uint64_t random_mask(seeded_random &random)
    {
        static const uint64_t masks[] = {EXACT,     EXACT,    EXACT,     EXACT, MPICH_TAG,
                                         MPICH_TAG, OMPI_ANY, MPICH_ANY, 0};
        if (random.one_in(256)) {
            return random.bits() | random.bits(); /* three quarters of the bits: about selective */
        }
        return random.one_in(64) ? random.bits()
                                 : masks[random.below(sizeof(masks) / sizeof(masks[0]))];
    }

    static void step(seeded_random &random, tag_match_pair &pair, uint64_t kind)
    {
        if (kind < 40) {
            pair.post(random_tag(random), random_mask(random));
        } else if (kind < 80) {
            pair.arrive(random_tag(random));
        } else if (kind < 90) {
            pair.search(random_tag(random), random_mask(random), random.one_in(2));
        } else if (pair.num_receives() > 0) {
            pair.cancel(random.below(pair.num_receives()));
        }
    }
};

TEST_F(tag_match, random_operations)
{
    seeded_random random(101);
    for (int round = 0; round < 20; ++round) {
        tag_match_pair pair(2u << random.below(8));
        for (int i = 0; i < 2000; ++i) {
            ASSERT_NO_FATAL_FAILURE(step(random, pair, random.below(100)))
                << "round " << round << " step " << i;
        }
    }
}

/* One side grows long before the other comes: phases of posts, of arrivals, of both. */
TEST_F(tag_match, long_queues)
{
    seeded_random random(102);
    for (int round = 0; round < 4; ++round) {
        tag_match_pair pair(2);
        for (int i = 0; i < 6000; ++i) {
            const int phase = (i / 500) % 4;
            ASSERT_NO_FATAL_FAILURE(step(random, pair,
                                         (phase == 0)   ? random.below(40)
                                         : (phase == 1) ? 40 + random.below(40)
                                                        : random.below(100)));
        }
    }
}

/* Masks that all differ: the hash loses a bit now and then while entries are in the table. */
TEST_F(tag_match, masks_that_narrow_the_hash)
{
    seeded_random random(103);
    for (int round = 0; round < 10; ++round) {
        tag_match_pair pair(16);
        for (int i = 0; i < 400; ++i) {
            const uint64_t mask = ~(1ull << random.below(64));
            const uint64_t tag  = random.below(4) << random.below(62);
            switch (random.below(4)) {
            case 0:
                pair.post(tag, mask);
                break;
            case 1:
                pair.search(tag, mask, true);
                break;
            default:
                ASSERT_NO_FATAL_FAILURE(pair.arrive(tag));
                break;
            }
        }
    }
}

TEST_F(tag_match, table_grows_and_keeps_order)
{
    tag_match_pair pair(2);
    for (uint64_t i = 0; i < 3000; ++i) {
        pair.post(i / 3, EXACT);
    }
    EXPECT_GE(pair.buckets(), 1024u);
    for (uint64_t i = 3000; i-- > 0;) {
        ASSERT_NO_FATAL_FAILURE(pair.arrive(i / 3));
    }
    EXPECT_EQ(0u, pair.num_receives());

    for (uint64_t i = 0; i < 30000; ++i) {
        ASSERT_NO_FATAL_FAILURE(pair.arrive(i % 10000));
    }
    for (uint64_t i = 10000; i-- > 9900;) {
        ASSERT_NO_FATAL_FAILURE(pair.search(i, EXACT, true));
        ASSERT_NO_FATAL_FAILURE(pair.search(i, EXACT, true));
        ASSERT_NO_FATAL_FAILURE(pair.search(i, EXACT, false));
    }
    EXPECT_EQ(29800u, pair.num_messages());
}

/* Without memory to grow into, matching stays right. */
TEST_F(tag_match, growth_that_fails)
{
    seeded_random random(104);
    for (int k = 1; k <= 12; ++k) {
        tag_match_pair pair(2);
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", std::to_string(k).c_str()));
        for (int i = 0; i < 800; ++i) {
            ASSERT_NO_FATAL_FAILURE(step(random, pair, random.below(100)));
        }
        uint64_t failed = 0;
        ASSERT_EQ(UCS_OK, ucs_fault_query("malloc", nullptr, &failed));
        ucs_fault_clear(nullptr);
        if (failed == 0) {
            EXPECT_GT(k, 4); /* or the point was not reached at all */
            break;
        }
    }

    tag_match_pair pair(2);
    ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", "1+"));
    for (uint64_t i = 0; i < 500; ++i) {
        pair.post(i, EXACT);
    }
    EXPECT_EQ(2u, pair.buckets());
    for (uint64_t i = 500; i-- > 0;) {
        ASSERT_NO_FATAL_FAILURE(pair.arrive(i));
    }
    EXPECT_EQ(0u, pair.num_receives());
}

TEST_F(tag_match, init_without_memory)
{
    for (int k = 1; k <= 2; ++k) {
        ASSERT_EQ(UCS_OK, ucs_fault_set("malloc", std::to_string(k).c_str()));
        EXPECT_EQ(nullptr, ucp_test_match_create(64));
        ucs_fault_clear(nullptr);
    }
}

/* A receive that was posted earlier wins, whichever of the two tables it is in. */
TEST_F(tag_match, order_between_exact_and_wildcard)
{
    for (int order = 0; order < 2; ++order) {
        ucp_test_match_t *match = ucp_test_match_create(16);
        const uint64_t masks[]  = {order ? 0 : EXACT, order ? EXACT : 0};
        ucp_test_match_post(match, 7, masks[0], 1);
        ucp_test_match_post(match, 7, masks[1], 2);
        EXPECT_EQ(1, ucp_test_match_arrive(match, 7, 3));
        EXPECT_EQ(2, ucp_test_match_arrive(match, 7, 4));
        EXPECT_EQ(-1, ucp_test_match_arrive(match, 7, 5));
        ucp_test_match_destroy(match);
    }
}

/* Every bit of the tag counts, bit 63 as well. */
TEST_F(tag_match, every_bit_counts)
{
    for (int bit = 0; bit < 64; ++bit) {
        ucp_test_match_t *match = ucp_test_match_create(16);
        ucp_test_match_post(match, 0, EXACT, 1);
        EXPECT_EQ(-1, ucp_test_match_arrive(match, 1ull << bit, 2));
        EXPECT_EQ(-1, ucp_test_match_search(match, 0, EXACT, 0));
        EXPECT_EQ(2, ucp_test_match_search(match, 0, ~(1ull << bit), 0));
        EXPECT_EQ(2, ucp_test_match_search(match, 1ull << bit, 1ull << bit, 1));
        EXPECT_EQ(1, ucp_test_match_arrive(match, 0, 3));
        ucp_test_match_destroy(match);
    }
}

} // namespace
