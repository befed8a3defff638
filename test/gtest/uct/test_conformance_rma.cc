/* Halyard: conformance of transports: put, get, atomics, remote keys and sync words.
 *
 * Runs over every transport that reaches a peer's memory, plain and under each hook, against a
 * model of that memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <seed.h>

#include <algorithm>
#include <cstring>

using namespace uct_test;

namespace {

bool has_rma(const uct_tl_t *tl)
{
    return can_transfer(tl, true) || can_transfer(tl, false);
}

bool has_rkeys(const uct_tl_t *tl)
{
    return tl->md.rkey_pack != nullptr;
}

bool has_mapping(const uct_tl_t *tl)
{
    return tl->md.rkey_ptr != nullptr;
}

bool has_sync(const uct_tl_t *tl)
{
    return tl->iface.sync_alloc != nullptr;
}

constexpr size_t TARGET_SIZE = 256 * 1024;

class rma_test : public pair_test {
protected:
    void SetUp() override
    {
        pair_test::SetUp();
        if (IsSkipped() || HasFatalFailure()) {
            return;
        }

        if (m_tl->md.alloc != nullptr) {
            ASSERT_EQ(UCS_OK, m_tl->md.alloc(b().md, nullptr, TARGET_SIZE, 0, &m_mem));
            ASSERT_GE(m_mem->length, TARGET_SIZE);
            m_target = static_cast<uint8_t *>(m_mem->address);
        } else {
            m_own.resize(TARGET_SIZE);
            m_target = m_own.data();
            if (m_tl->md.reg != nullptr) {
                ASSERT_EQ(UCS_OK, m_tl->md.reg(b().md, m_target, TARGET_SIZE, nullptr, &m_mem));
            }
        }
        memset(m_target, 0, TARGET_SIZE);
        m_model.resize(TARGET_SIZE);

        m_ep = a().connect(b().where());
        unpack();
    }

    void TearDown() override
    {
        if (m_rkey != nullptr) {
            m_tl->md.rkey_release(m_rkey);
        }
        if (m_a != nullptr) {
            m_a->close_all();
        }
        if (m_mem != nullptr) {
            m_tl->md.release(m_mem);
        }
    }

    void unpack()
    {
        if ((m_mem == nullptr) || (m_tl->md.rkey_pack == nullptr)) {
            return;
        }
        m_packed.resize(UCT_RKEY_MAX);
        m_packed.resize(m_tl->md.rkey_pack(m_mem, m_packed.data()));
        if (m_packed.empty()) {
            GTEST_SKIP() << "nothing is reached by itself here";
        }
        ASSERT_EQ(UCS_OK, m_tl->md.rkey_unpack(a().md, m_packed.data(), m_packed.size(), &m_rkey));
    }

    uint64_t remote(size_t offset) const
    {
        return reinterpret_cast<uintptr_t>(m_target) + offset;
    }

    ucs_status_t put(const bytes &data, size_t offset, uint64_t seed)
    {
        const auto iov = cut(const_cast<uint8_t *>(data.data()), data.size(), seed,
                             transfer_iov_max(a(), true));
        return finish(both(), [&](uct_completion_t *comp) {
            return transfer(m_ep, true, iov.data(), static_cast<unsigned>(iov.size()),
                            remote(offset), m_rkey, comp);
        });
    }

    ucs_status_t get(bytes &data, size_t offset, uint64_t seed)
    {
        const auto iov = cut(data.data(), data.size(), seed, transfer_iov_max(a(), false));
        return finish(both(), [&](uct_completion_t *comp) {
            return transfer(m_ep, false, iov.data(), static_cast<unsigned>(iov.size()),
                            remote(offset), m_rkey, comp);
        });
    }

    ucs_status_t flush()
    {
        return (m_tl->ep.live.flush == nullptr) ? UCS_OK :
               finish(both(), [&](uct_completion_t *comp) { return m_ep->ops->flush(m_ep, comp); });
    }

    static std::vector<uct_iov_t> cut(uint8_t *data, size_t length, uint64_t seed,
                                      unsigned iov_max)
    {
        std::vector<uct_iov_t> iov;
        /* more than a system call takes in one batch */
        const unsigned count = std::min(1 + static_cast<unsigned>(seed % 100), iov_max);

        for (unsigned i = 0; i < count; ++i) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            const size_t share = std::min<size_t>(length, 2 * TARGET_SIZE / count);
            const size_t part  = (i + 1 == count) ? length : (seed >> 33) % (share + 1);
            iov.push_back({data, part, nullptr});
            data   += part;
            length -= part;
        }
        return iov;
    }

    uct_ep_t *m_ep     = nullptr;
    uct_mem_t *m_mem   = nullptr;
    uct_rkey_t *m_rkey = nullptr;
    uint8_t *m_target  = nullptr;
    bytes m_own, m_model, m_packed;
};

class rkey_test : public rma_test {
};

class map_test : public rma_test {
protected:
    uint8_t *map(size_t offset, size_t length)
    {
        void *ptr = nullptr;

        EXPECT_EQ(UCS_OK, persist(both(), [&]() {
            return m_tl->md.rkey_ptr(m_rkey, remote(offset), length, &ptr);
        }));
        return static_cast<uint8_t *>(ptr);
    }
};

TEST_P(rma_test, random_operations_against_a_model)
{
    seeded_random rnd(11);
    const bool has_put = can_transfer(m_tl, true);
    const bool has_get = can_transfer(m_tl, false);

    for (unsigned i = 0; i < 3000; ++i) {
        const size_t limit  = rnd.one_in(8) ? TARGET_SIZE : 300;
        const size_t length = rnd.below(limit + 1);
        const size_t offset = rnd.below(TARGET_SIZE - length + 1);

        if (has_get && rnd.one_in(2)) {
            bytes data = pattern(i, length);
            ASSERT_EQ(UCS_OK, get(data, offset, rnd.bits()));
            ASSERT_TRUE(std::equal(data.begin(), data.end(), m_model.begin() + offset))
                << "get of " << length << " at " << offset;
        } else if (has_put) {
            const bytes data = pattern(i, length);
            ASSERT_EQ(UCS_OK, put(data, offset, rnd.bits()));
            std::copy(data.begin(), data.end(), m_model.begin() + offset);
        }
    }
    ASSERT_EQ(UCS_OK, flush());
    EXPECT_EQ(0, memcmp(m_target, m_model.data(), TARGET_SIZE));
}

uint64_t model_atomic(int op, uint64_t old, uint64_t value, uint64_t compare)
{
    switch (op) {
    case UCT_ATOMIC_ADD:
        return old + value;
    case UCT_ATOMIC_AND:
        return old & value;
    case UCT_ATOMIC_OR:
        return old | value;
    case UCT_ATOMIC_XOR:
        return old ^ value;
    case UCT_ATOMIC_SWAP:
        return value;
    default:
        return (old == compare) ? value : old;
    }
}

TEST_P(map_test, atomics_against_a_model)
{
    uint8_t *mapped = map(0, TARGET_SIZE);
    seeded_random rnd(13);

    ASSERT_NE(nullptr, mapped);

    for (unsigned i = 0; i < 5000; ++i) {
        const int op        = static_cast<int>(rnd.below(UCT_ATOMIC_CSWAP + 1));
        const unsigned size = rnd.one_in(2) ? 4 : 8;
        const size_t offset = rnd.below(16) * 8 + ((size == 4) ? rnd.below(2) * 4 : 0);
        const uint64_t mask = (size == 4) ? 0xffffffffull : ~0ull;
        const bool fetches  = !rnd.one_in(3);
        uint64_t old = 0, result = 0x5555555555555555ull;
        memcpy(&old, m_model.data() + offset, size);
        const uint64_t value   = rnd.bits();
        const uint64_t compare = rnd.one_in(2) ? old : rnd.bits();

        ASSERT_EQ(UCS_OK, uct_atomic_apply(mapped + offset, op, size, value, compare,
                                           fetches ? &result : nullptr));
        if (fetches) {
            ASSERT_EQ(old, result) << "op " << op << " size " << size;
        }
        const uint64_t now = model_atomic(op, old, value & mask, compare & mask) & mask;
        memcpy(m_model.data() + offset, &now, size);
    }
    EXPECT_EQ(0, memcmp(m_target, m_model.data(), TARGET_SIZE));
}

TEST_P(map_test, wrong_atomics_are_refused)
{
    uint8_t *mapped = map(0, TARGET_SIZE);
    struct {
        int op;
        unsigned size;
        size_t offset;
    } const wrong[] = {{UCT_ATOMIC_ADD, 3, 0},  {UCT_ATOMIC_ADD, 0, 0}, {UCT_ATOMIC_ADD, 16, 0},
                       {UCT_ATOMIC_ADD, 8, 4},  {UCT_ATOMIC_ADD, 4, 2}, {99, 8, 0}};

    for (const auto &w : wrong) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_atomic_apply(mapped + w.offset, w.op, w.size, 1, 0, nullptr))
            << w.op << " " << w.size << " " << w.offset;
    }
    EXPECT_EQ(m_model, bytes(m_target, m_target + TARGET_SIZE));
}

/* A key opens what it was made for and nothing else. */
TEST_P(rkey_test, ranges_outside_the_key_are_refused)
{
    const size_t end = m_mem->length;
    uint8_t byte     = 0;
    uct_iov_t iov    = {&byte, 1, nullptr};
    const uint64_t wrong[] = {remote(end), remote(end) + 4096, remote(0) - 1, 0, UINT64_MAX};

    for (uint64_t address : wrong) {
        if (m_tl->ep.live.get_zcopy != nullptr) {
            EXPECT_TRUE(UCS_STATUS_IS_ERR(finish(both(), [&](uct_completion_t *comp) {
                return m_ep->ops->get_zcopy(m_ep, &iov, 1, address, m_rkey, comp);
            }))) << address;
        }
        if (m_tl->md.rkey_ptr != nullptr) {
            void *ptr;
            const ucs_status_t status = persist(both(), [&]() {
                return m_tl->md.rkey_ptr(m_rkey, address, 1, &ptr);
            });
            EXPECT_TRUE(UCS_STATUS_IS_ERR(status)) << address;
        }
    }
}

TEST_P(map_test, mapped_keys_show_the_memory)
{
    uint8_t *ptr = map(100, 1000);

    ASSERT_NE(nullptr, ptr);
    memset(ptr, 0x5a, 1000);
    EXPECT_EQ(bytes(1000, 0x5a), bytes(m_target + 100, m_target + 1100));
    EXPECT_EQ(0, m_target[99]);
    EXPECT_EQ(0, m_target[1100]);
}

/* Changed, cut and random keys: an error or a key, never a crash. */
TEST_P(rkey_test, hostile_keys)
{
    seeded_random rnd(17);

    for (unsigned i = 0; i < 2000; ++i) {
        bytes packed = m_packed;
        if (rnd.one_in(2)) {
            packed[rnd.below(packed.size())] ^= static_cast<uint8_t>(1 + rnd.below(255));
        } else if (rnd.one_in(2)) {
            packed.resize(rnd.below(65));
        } else {
            packed = pattern(rnd.bits(), rnd.below(65));
        }
        uct_rkey_t *rkey = nullptr;
        const ucs_status_t status = m_tl->md.rkey_unpack(a().md, packed.data(), packed.size(),
                                                         &rkey);
        if (status == UCS_OK) {
            ASSERT_NE(nullptr, rkey);
            m_tl->md.rkey_release(rkey);
        } else {
            EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
            EXPECT_EQ(nullptr, rkey) << "outputs are set on success only";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(transports, rma_test, testing::ValuesIn(transports(has_rma)), test_name);
INSTANTIATE_TEST_SUITE_P(transports, rkey_test, testing::ValuesIn(transports(has_rkeys)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(transports, map_test, testing::ValuesIn(transports(has_mapping)),
                         test_name);

/* ---- sync words ---- */

class sync_test : public pair_test {
};

TEST_P(sync_test, both_sides_see_one_word)
{
    uct_ep_t *ep             = a().connect(b().where());
    ucs_atomic_u64_t *theirs = nullptr, *ours = nullptr;
    uint32_t index           = 0;

    for (unsigned round = 0; round < 10; ++round) {
        ASSERT_EQ(UCS_OK, m_tl->iface.sync_alloc(b().iface, &index, &theirs));
        EXPECT_EQ(0u, theirs->load()) << "a word begins with zero";
        ASSERT_EQ(UCS_OK, persist(both(), [&]() { return ep->ops->sync_map(ep, index, &ours); }));
        theirs->fetch_add(3);
        EXPECT_EQ(3u, ours->fetch_add(4));
        EXPECT_EQ(7u, theirs->load());
        m_tl->iface.sync_free(b().iface, index);
    }
}

TEST_P(sync_test, words_are_distinct_and_return)
{
    std::vector<uint32_t> indices;
    std::vector<ucs_atomic_u64_t *> words;
    ucs_atomic_u64_t *word;
    uint32_t index;
    size_t first_round = 0;

    for (unsigned round = 0; round < 3; ++round) {
        while ((words.size() < 100000) &&
               (m_tl->iface.sync_alloc(b().iface, &index, &word) == UCS_OK)) {
            EXPECT_EQ(0u, word->load());
            word->store(index + 1);
            indices.push_back(index);
            words.push_back(word);
        }
        EXPECT_GE(words.size(), 32u);
        EXPECT_LT(words.size(), 100000u) << "nothing bounds the words";
        first_round = (round == 0) ? words.size() : first_round;
        EXPECT_EQ(first_round, words.size()) << "words were lost";
        for (size_t i = 0; i < words.size(); ++i) {
            EXPECT_EQ(indices[i] + 1u, words[i]->load()) << "two words at one place";
            m_tl->iface.sync_free(b().iface, indices[i]);
        }
        indices.clear();
        words.clear();
    }
}

TEST_P(sync_test, indices_from_a_hostile_peer)
{
    uct_ep_t *ep           = a().connect(b().where());
    ucs_atomic_u64_t *word = nullptr;
    uint32_t index         = 0;

    ASSERT_EQ(UCS_OK, m_tl->iface.sync_alloc(b().iface, &index, &word));
    ASSERT_EQ(UCS_OK, persist(both(), [&]() { return ep->ops->sync_map(ep, index, &word); }));
    for (uint32_t wrong : {UINT32_MAX, UINT32_MAX / 2, 0x7fffffffu, 0x01000000u}) {
        const ucs_status_t status = persist(both(), [&]() {
            return ep->ops->sync_map(ep, wrong, &word);
        });
        EXPECT_TRUE(UCS_STATUS_IS_ERR(status)) << wrong;
    }
    m_tl->iface.sync_free(b().iface, index);
}

INSTANTIATE_TEST_SUITE_P(transports, sync_test, testing::ValuesIn(transports(has_sync)), test_name);

} // namespace
