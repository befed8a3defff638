/* Halyard: tests of memory pools against a set of live objects.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/debug/log_def.h>
#include <ucs/ds/mpool.h>
#include <ucs/sys/sys.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

std::vector<std::string> g_messages;

ucs_log_func_rc_t collect_message(const char *, unsigned, const char *, ucs_log_level_t,
                                  const ucs_log_component_config_t *, const char *message,
                                  va_list ap)
{
    char text[512];

    vsnprintf(text, sizeof(text), message, ap);
    g_messages.push_back(text);
    return UCS_LOG_FUNC_RC_STOP;
}

/* What the callbacks saw: how often each object was made and destroyed. */
struct life {
    std::map<void *, int> made, destroyed;
};

void obj_init(ucs_mpool_t *mp, void *obj)
{
    static_cast<life *>(mp->params.arg)->made[obj]++;
    memset(obj, 0x5a, mp->params.elem_size);
}

void obj_cleanup(ucs_mpool_t *mp, void *obj)
{
    static_cast<life *>(mp->params.arg)->destroyed[obj]++;
}

class mpool_test : public testing::Test {
protected:
    mpool_test()
    {
        g_messages.clear();
        m_sys          = ucs_sys_real;
        m_sys.clock_ns = later;
        ucs_sys_set(&m_sys);
        ++g_periods;
        ucs_log_push_handler(collect_message);
        m_params.name            = "test";
        m_params.elem_size       = 40;
        m_params.elems_per_chunk = 10;
        m_params.arg             = &m_life;
    }

    ~mpool_test() override
    {
        ucs_fault_clear("memalign");
        ucs_log_pop_handler();
        ucs_sys_set(&ucs_sys_real);
    }

    /* What others have logged before must not keep our messages back. */
    static uint64_t later()
    {
        return ucs_sys_real.clock_ns() + (g_periods * 3600000000000ull);
    }

    /* The log may add how often others were not heard. */
    static size_t num_messages(const char *text)
    {
        return std::count_if(g_messages.begin(), g_messages.end(), [=](const std::string &line) {
            return line.find(text) != std::string::npos;
        });
    }

    void init()
    {
        ASSERT_EQ(UCS_OK, ucs_mpool_init(&m_mp, &m_params));
    }

    ucs_mpool_t m_mp;
    ucs_mpool_params_t m_params = {};
    life m_life;

private:
    static inline uint64_t g_periods = 0;
    ucs_sys_ops_t m_sys;
};

struct layout {
    size_t elem_size, alignment;
    unsigned elems_per_chunk;
};

class mpool_layout_test : public mpool_test, public testing::WithParamInterface<layout> {
};

TEST_P(mpool_layout_test, random_operations)
{
    const layout &p = GetParam();
    seeded_random rnd(11);
    std::map<char *, unsigned char> live; /* object to the byte that fills it */
    unsigned most = 0;
    size_t refused = 0;

    m_params.elem_size       = p.elem_size;
    m_params.alignment       = p.alignment;
    m_params.elems_per_chunk = p.elems_per_chunk;
    m_params.obj_init        = obj_init;
    m_params.obj_cleanup     = obj_cleanup;
    init();
    ASSERT_EQ(UCS_OK, ucs_fault_set("memalign", "p0.5"));

    for (int step = 0; step < 10000; ++step) {
        bool grows = (step / 500) % 2 == 0;
        if (rnd.below(8) < (grows ? 5u : 3u)) {
            char *obj = static_cast<char *>(ucs_mpool_get(&m_mp));
            if (obj == nullptr) {
                ASSERT_EQ(m_mp.num_elems, live.size());
                ++refused;
                continue;
            }
            ASSERT_EQ(&m_mp, ucs_mpool_of(obj));
            ASSERT_EQ(1, m_life.made[obj]);
            ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(obj) % std::max(p.alignment, size_t(8)));
            unsigned char fill = rnd.below(256);
            memset(obj, fill, p.elem_size);
            auto result = live.emplace(obj, fill);
            ASSERT_TRUE(result.second) << "object given out twice";
            if (result.first != live.begin()) {
                ASSERT_GE(obj - std::prev(result.first)->first, ptrdiff_t(p.elem_size + 8));
            }
            most = std::max(most, unsigned(live.size()));
        } else if (!live.empty()) {
            auto it = live.lower_bound(std::next(live.begin(), rnd.below(live.size()))->first);
            char *obj          = it->first;
            unsigned char fill = it->second;
            ASSERT_EQ(std::string(p.elem_size, char(fill)), std::string(obj, p.elem_size));
            ucs_mpool_put(obj);
            live.erase(it);
        }
        ASSERT_EQ(live.size(), ucs_mpool_num_used(&m_mp));
    }

    ASSERT_GE(m_mp.num_elems, most);
    ASSERT_EQ(m_mp.num_elems, m_life.made.size());
    for (auto &entry : live) {
        ucs_mpool_put(entry.first);
    }
    ucs_mpool_cleanup(&m_mp, 1);
    ASSERT_EQ(m_life.made, m_life.destroyed) << "each object is made and destroyed once";
    ASSERT_EQ((refused > 0) ? 1u : 0u, num_messages("no memory for")) << "said once";
}

INSTANTIATE_TEST_SUITE_P(layouts, mpool_layout_test,
                         testing::Values(layout{1, 0, 1}, layout{8, 1, 7}, layout{40, 8, 100},
                                         layout{64, 64, 32}, layout{200, 64, 32},
                                         layout{100, 128, 5}, layout{96, 32, 16},
                                         layout{5000, 4096, 3}));

TEST_F(mpool_test, last_released_comes_first)
{
    init();
    void *first = ucs_mpool_get(&m_mp), *second = ucs_mpool_get(&m_mp);
    EXPECT_LT(first, second) << "a new chunk is used upwards";
    ucs_mpool_put(first);
    ucs_mpool_put(second);
    EXPECT_EQ(second, ucs_mpool_get(&m_mp));
    EXPECT_EQ(first, ucs_mpool_get(&m_mp));
    ucs_mpool_put(first);
    ucs_mpool_put(second);
    ucs_mpool_cleanup(&m_mp, 1);
    EXPECT_TRUE(g_messages.empty());
}

TEST_F(mpool_test, bytes_survive_release_where_not_poisoned)
{
    m_params.flags = UCS_MPOOL_FLAG_NO_POISON;
    init();
    char *obj = static_cast<char *>(ucs_mpool_get(&m_mp));
    memset(obj, 0x77, m_params.elem_size);
    ucs_mpool_put(obj);
    EXPECT_EQ(std::string(m_params.elem_size, 0x77), std::string(obj, m_params.elem_size));
    EXPECT_EQ(obj, ucs_mpool_get(&m_mp));
    EXPECT_EQ(std::string(m_params.elem_size, 0x77), std::string(obj, m_params.elem_size));
    ucs_mpool_put(obj);
    ucs_mpool_cleanup(&m_mp, 1);
}

#if UCS_HAVE_ASAN
TEST_F(mpool_test, free_objects_are_poisoned)
{
    init();
    char *obj = static_cast<char *>(ucs_mpool_get(&m_mp));
    EXPECT_EQ(nullptr, __asan_region_is_poisoned(obj, m_params.elem_size));
    ucs_mpool_put(obj);
    EXPECT_EQ(obj, __asan_region_is_poisoned(obj, m_params.elem_size));
    ucs_mpool_cleanup(&m_mp, 1);
}
#endif

TEST_F(mpool_test, untouched_memory_is_not_made)
{
    m_params.elems_per_chunk = 1000;
    m_params.elem_size       = 1024;
    m_params.obj_init        = obj_init;
    m_params.obj_cleanup     = obj_cleanup;
    init();
    void *obj = ucs_mpool_get(&m_mp);
    EXPECT_LE(m_mp.num_elems, 4u) << "no more than a page's worth";
    ucs_mpool_put(obj);
    ucs_mpool_cleanup(&m_mp, 1);
    EXPECT_LE(m_life.made.size(), 4u);
    EXPECT_EQ(m_life.made, m_life.destroyed);
}

TEST_F(mpool_test, leaks_are_counted)
{
    m_params.obj_init    = obj_init;
    m_params.obj_cleanup = obj_cleanup;
    init();
    void *kept = ucs_mpool_get(&m_mp);
    ucs_mpool_get(&m_mp);
    ucs_mpool_get(&m_mp);
    ucs_mpool_put(kept);
    ucs_mpool_cleanup(&m_mp, 1);
    ASSERT_EQ(1u, g_messages.size());
    EXPECT_NE(std::string::npos, g_messages[0].find("mpool test: 2 of 10 objects"));
    EXPECT_EQ(m_life.made, m_life.destroyed);
}

TEST_F(mpool_test, leaks_are_not_mentioned_where_not_asked)
{
    init();
    ucs_mpool_get(&m_mp);
    ucs_mpool_cleanup(&m_mp, 0);
    EXPECT_TRUE(g_messages.empty());
}

TEST_F(mpool_test, cleanup_of_zeros_and_twice)
{
    memset(&m_mp, 0, sizeof(m_mp));
    ucs_mpool_cleanup(&m_mp, 1);
    init();
    ucs_mpool_put(ucs_mpool_get(&m_mp));
    ucs_mpool_cleanup(&m_mp, 1);
    ucs_mpool_cleanup(&m_mp, 1);
    EXPECT_TRUE(g_messages.empty());
}

TEST_F(mpool_test, no_memory)
{
    std::vector<void *> objects;

    init();
    for (int i = 0; i < 10; ++i) {
        objects.push_back(ucs_mpool_get(&m_mp));
    }
    ASSERT_EQ(UCS_OK, ucs_fault_set("memalign", "1+"));
    EXPECT_EQ(nullptr, ucs_mpool_get(&m_mp));
    EXPECT_EQ(nullptr, ucs_mpool_get(&m_mp));
    EXPECT_EQ(1u, num_messages("no memory for")) << "said once";
    g_messages.clear();

    ucs_mpool_put(objects.back());
    EXPECT_EQ(objects.back(), ucs_mpool_get(&m_mp));

    ucs_fault_clear("memalign");
    objects.push_back(ucs_mpool_get(&m_mp));
    EXPECT_NE(nullptr, objects.back());
    for (void *obj : objects) {
        ucs_mpool_put(obj);
    }
    ucs_mpool_cleanup(&m_mp, 1);
    EXPECT_TRUE(g_messages.empty());
}

TEST_F(mpool_test, impossible_sizes)
{
    m_params.elem_size       = SIZE_MAX / 8;
    m_params.elems_per_chunk = 1000;
    init();
    EXPECT_EQ(nullptr, ucs_mpool_get(&m_mp));
    EXPECT_EQ(1u, num_messages("no memory for"));
    ucs_mpool_cleanup(&m_mp, 1);
}

TEST_F(mpool_test, invalid_parameters)
{
    const ucs_mpool_params_t good = m_params;

    auto expect_invalid = [this] {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_mpool_init(&m_mp, &m_params));
    };

    m_params.elem_size = 0;
    expect_invalid();
    EXPECT_EQ(1u, g_messages.size()); /* the log suppresses repetitions of a line */
    m_params.elem_size = SIZE_MAX;
    expect_invalid();
    m_params           = good;
    m_params.alignment = 48;
    expect_invalid();
    m_params.alignment = 3;
    expect_invalid();
    m_params                 = good;
    m_params.elems_per_chunk = 0;
    expect_invalid();
}

/* ucs_mpool_put makes this check in builds with assertions. */
TEST_F(mpool_test, foreign_objects_are_detected)
{
    ucs_log_pop_handler();
    m_params.flags    = UCS_MPOOL_FLAG_NO_POISON;
    m_params.obj_init = obj_init;
    init();
    char *obj   = static_cast<char *>(ucs_mpool_get(&m_mp));
    char *other = static_cast<char *>(ucs_mpool_get(&m_mp));
    ucs_mpool_check_used(obj);
    ucs_mpool_check_used(other);

    /* A fake header in front of memory that is no object. */
    alignas(8) char foreign[64];
    ucs_mpool_t *mp = &m_mp;
    memcpy(foreign, &mp, sizeof(mp));
    EXPECT_DEATH(ucs_mpool_check_used(foreign + 8), "assertion");
    memcpy(obj, &mp, sizeof(mp));
    EXPECT_DEATH(ucs_mpool_check_used(obj + 8), "assertion");

    ucs_mpool_put(other);
    EXPECT_DEATH(ucs_mpool_check_used(other), "assertion") << "released twice";
    ucs_mpool_put(obj);
    EXPECT_DEATH(ucs_mpool_check_used(obj), "assertion") << "released twice";

    ucs_mpool_cleanup(&m_mp, 1);
    ucs_log_push_handler(collect_message);
}

} // namespace
