/* Halyard: tests of the doubly linked list against std::list.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/ds/list.h>

#include <algorithm>
#include <list>
#include <memory>
#include <vector>

namespace {

struct item {
    int value;
    ucs_list_link_t link;
};

class list_test : public testing::Test {
protected:
    static constexpr int NUM_LISTS = 3;

    list_test()
    {
        for (auto &head : m_heads) {
            ucs_list_head_init(&head);
        }
    }

    item *make()
    {
        m_items.push_back(std::make_unique<item>());
        m_items.back()->value = static_cast<int>(m_items.size());
        ucs_list_head_init(&m_items.back()->link);
        return m_items.back().get();
    }

    /* Compare forwards, backwards and by all queries. */
    void compare(int n)
    {
        std::vector<item *> found, backwards;
        std::vector<item *> expected(m_models[n].begin(), m_models[n].end());
        item *elem;

        ucs_list_for_each(elem, &m_heads[n], link) {
            found.push_back(elem);
        }
        ASSERT_EQ(expected, found);

        for (ucs_list_link_t *link = m_heads[n].prev; link != &m_heads[n]; link = link->prev) {
            backwards.push_back(ucs_container_of(link, item, link));
        }
        std::reverse(backwards.begin(), backwards.end());
        ASSERT_EQ(expected, backwards);

        ASSERT_EQ(expected.size(), ucs_list_length(&m_heads[n]));
        ASSERT_EQ(expected.empty(), !!ucs_list_is_empty(&m_heads[n]));
        if (!expected.empty()) {
            ASSERT_EQ(expected.front(), ucs_list_head(&m_heads[n], item, link));
            ASSERT_EQ(expected.back(), ucs_list_tail(&m_heads[n], item, link));
        }
    }

    ucs_list_link_t m_heads[NUM_LISTS];
    std::list<item *> m_models[NUM_LISTS];
    std::vector<std::unique_ptr<item>> m_items;
};

TEST_F(list_test, random_operations)
{
    seeded_random rnd(1);

    for (int step = 0; step < 20000; ++step) {
        int n       = static_cast<int>(rnd.below(NUM_LISTS));
        auto *head  = &m_heads[n];
        auto &model = m_models[n];
        auto pos    = model.begin();
        if (!model.empty()) {
            std::advance(pos, rnd.below(model.size()));
        }

        switch (rnd.below(6)) {
        case 0:
            model.push_front(make());
            ucs_list_add_head(head, &model.front()->link);
            break;
        case 1:
            model.push_back(make());
            ucs_list_add_tail(head, &model.back()->link);
            break;
        case 2:
            if (!model.empty()) {
                item *added = make();
                ucs_list_insert_before(&(*pos)->link, &added->link);
                model.insert(pos, added);
            }
            break;
        case 3:
        case 4:
            if (!model.empty()) {
                item *deleted = *pos;
                model.erase(pos);
                ucs_list_del(&deleted->link);
                ASSERT_TRUE(ucs_list_is_empty(&deleted->link));
                ucs_list_del(&deleted->link); /* again: no effect */
            }
            break;
        case 5:
            if (rnd.one_in(20)) {
                int other = (n + 1) % NUM_LISTS;
                ucs_list_splice_tail(head, &m_heads[other]);
                model.splice(model.end(), m_models[other]);
            } else if (!model.empty()) {
                ASSERT_EQ(model.front(), ucs_list_extract_head(head, item, link));
                model.pop_front();
            }
            break;
        }
        for (int i = 0; (step % 16 == 0) && (i < NUM_LISTS); ++i) {
            ASSERT_NO_FATAL_FAILURE(compare(i)) << "step " << step;
        }
    }
}

TEST_F(list_test, for_each_safe_may_free)
{
    ucs_list_link_t *head = &m_heads[0];
    std::vector<int> seen;
    item *elem, *tmp;

    for (int i = 0; i < 100; ++i) {
        item *added  = new item;
        added->value = i;
        ucs_list_add_tail(head, &added->link);
    }

    ucs_list_for_each_safe(elem, tmp, head, link) {
        seen.push_back(elem->value);
        if (elem->value % 3 != 0) {
            ucs_list_del(&elem->link);
            delete elem;
        }
    }
    ASSERT_EQ(100u, seen.size());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(34u, ucs_list_length(head));

    ucs_list_for_each_safe(elem, tmp, head, link) {
        EXPECT_EQ(0, elem->value % 3);
        ucs_list_del(&elem->link);
        delete elem;
    }
    EXPECT_TRUE(ucs_list_is_empty(head));
}

TEST(list_static, initializer)
{
    static ucs_list_link_t head = UCS_LIST_INITIALIZER(&head);
    EXPECT_TRUE(ucs_list_is_empty(&head));
}

} // namespace
