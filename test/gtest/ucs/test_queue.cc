/* Halyard: tests of the FIFO against std::deque.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/ds/queue.h>

#include <deque>
#include <memory>
#include <vector>

namespace {

struct item {
    char padding[24];
    ucs_queue_elem_t elem;
};

class queue_test : public testing::Test {
protected:
    queue_test()
    {
        ucs_queue_head_init(&m_queues[0]);
        ucs_queue_head_init(&m_queues[1]);
    }

    item *make()
    {
        m_items.push_back(std::make_unique<item>());
        return m_items.back().get();
    }

    void compare(int n)
    {
        std::vector<item *> found;
        std::vector<item *> expected(m_models[n].begin(), m_models[n].end());
        item *elem;

        ucs_queue_for_each(elem, &m_queues[n], elem) {
            found.push_back(elem);
        }
        ASSERT_EQ(expected, found);
        ASSERT_EQ(expected.empty(), !!ucs_queue_is_empty(&m_queues[n]));
        if (!expected.empty()) {
            ASSERT_EQ(expected.front(), ucs_queue_head_elem(&m_queues[n], item, elem));
        }
    }

    ucs_queue_head_t m_queues[2];
    std::deque<item *> m_models[2];
    std::vector<std::unique_ptr<item>> m_items;
};

TEST_F(queue_test, random_operations)
{
    seeded_random rnd(2);

    for (int step = 0; step < 20000; ++step) {
        int n       = static_cast<int>(rnd.below(2));
        auto *queue = &m_queues[n];
        auto &model = m_models[n];

        switch (rnd.below(5)) {
        case 0:
        case 1:
            model.push_back(make());
            ucs_queue_push(queue, &model.back()->elem);
            break;
        case 2:
            model.push_front(make());
            ucs_queue_push_head(queue, &model.front()->elem);
            break;
        case 3:
        case 4:
            if (model.empty()) {
                ASSERT_EQ(nullptr, ucs_queue_pull(queue));
            } else {
                ASSERT_EQ(model.front(), ucs_queue_pull_elem(queue, item, elem));
                model.pop_front();
            }
            break;
        }
        if (step % 8 == 0) {
            ASSERT_NO_FATAL_FAILURE(compare(0)) << "step " << step;
            ASSERT_NO_FATAL_FAILURE(compare(1)) << "step " << step;
        }
    }
}

} // namespace
