/* Halyard: tests of the arbiter against a model of deques.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/ds/arbiter.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

struct elem_t {
    ucs_arbiter_elem_t super;
    int id;
};

struct group_t {
    ucs_arbiter_group_t super;
    int id;
};

elem_t *to_elem(ucs_arbiter_elem_t *elem)
{
    return ucs_container_of(elem, elem_t, super);
}

group_t *to_group(ucs_arbiter_group_t *group)
{
    return ucs_container_of(group, group_t, super);
}

class arbiter_test : public testing::Test {
protected:
    using action_t = std::function<ucs_arbiter_result_t(group_t *, elem_t *)>;
    using purge_t  = std::function<void(group_t *, elem_t *)>;

    arbiter_test()
    {
        ucs_arbiter_init(&m_arbiter);
    }

    ~arbiter_test() override
    {
        for (auto &group : m_groups) {
            if (group != nullptr) {
                purge(group.get(), [](group_t *, elem_t *) {});
                ucs_arbiter_group_cleanup(&group->super);
            }
        }
        ucs_arbiter_cleanup(&m_arbiter);
    }

    group_t *make_group()
    {
        m_groups.push_back(std::make_unique<group_t>());
        group_t *group = m_groups.back().get();
        group->id      = static_cast<int>(m_groups.size()) - 1;
        ucs_arbiter_group_init(&m_arbiter, &group->super);
        return group;
    }

    elem_t *make_elem()
    {
        m_elems.push_back(std::make_unique<elem_t>());
        elem_t *elem = m_elems.back().get();
        elem->id     = static_cast<int>(m_elems.size()) - 1;
        ucs_arbiter_elem_init(&elem->super);
        return elem;
    }

    /* Add new elements at the tail and schedule. */
    group_t *fill(group_t *group, int count)
    {
        for (int i = 0; i < count; ++i) {
            ucs_arbiter_group_add_tail(&group->super, &make_elem()->super);
        }
        ucs_arbiter_group_schedule(&group->super);
        return group;
    }

    unsigned dispatch(unsigned limit, action_t action)
    {
        return ucs_arbiter_dispatch(&m_arbiter, limit, call_action, &action);
    }

    void purge(group_t *group, purge_t action)
    {
        ucs_arbiter_group_purge(&group->super, call_purge, &action);
    }

    static ucs_arbiter_result_t call_action(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem,
                                            void *arg)
    {
        return (*static_cast<action_t *>(arg))(to_group(group), to_elem(elem));
    }

    static void call_purge(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem, void *arg)
    {
        EXPECT_FALSE(ucs_arbiter_elem_is_queued(elem));
        (*static_cast<purge_t *>(arg))(to_group(group), to_elem(elem));
    }

    ucs_arbiter_t m_arbiter;
    std::vector<std::unique_ptr<group_t>> m_groups;
    std::vector<std::unique_ptr<elem_t>> m_elems;
};

TEST_F(arbiter_test, round_robin)
{
    std::string order;
    for (int count : {3, 1, 2}) {
        fill(make_group(), count);
    }
    auto action = [&](group_t *group, elem_t *elem) {
        order += std::to_string(group->id) + ":" + std::to_string(elem->id) + " ";
        return UCS_ARBITER_NEXT;
    };
    EXPECT_EQ(3u, dispatch(1, action));
    EXPECT_EQ("0:0 1:3 2:4 ", order);
    EXPECT_EQ(2u, dispatch(1, action));
    EXPECT_EQ("0:0 1:3 2:4 0:1 2:5 ", order);
    EXPECT_EQ(1u, dispatch(1, action));
    EXPECT_TRUE(ucs_arbiter_is_empty(&m_arbiter));
    EXPECT_EQ(0u, dispatch(1, action));

    order.clear();
    fill(m_groups[1].get(), 5);
    fill(m_groups[0].get(), 3);
    EXPECT_EQ(6u, dispatch(3, action));
    EXPECT_EQ("1:6 1:7 1:8 0:11 0:12 0:13 ", order);
    EXPECT_EQ(2u, dispatch(3, action));
}

TEST_F(arbiter_test, keep_deschedule_stop)
{
    group_t *kept = fill(make_group(), 2), *blocked = fill(make_group(), 2);
    group_t *stopping = fill(make_group(), 2);
    fill(make_group(), 2);
    std::vector<int> calls(4);

    auto action = [&](group_t *group, elem_t *) {
        ++calls[group->id];
        return (group == kept)     ? UCS_ARBITER_KEEP_GROUP :
               (group == blocked)  ? UCS_ARBITER_DESCHED_GROUP :
               (group == stopping) ? UCS_ARBITER_STOP :
                                     UCS_ARBITER_NEXT;
    };
    EXPECT_EQ(0u, dispatch(10, action));
    EXPECT_EQ((std::vector<int>{1, 1, 1, 0}), calls);

    /* The stopped group is first, those not reached next; the blocked one is not there. */
    std::vector<int> order;
    auto note = [&](group_t *group, elem_t *) {
        order.push_back(group->id);
        return UCS_ARBITER_KEEP_GROUP;
    };
    dispatch(10, note);
    EXPECT_EQ((std::vector<int>{2, 3, 0}), order);
    ucs_arbiter_group_schedule(&blocked->super);
    order.clear();
    dispatch(10, note);
    EXPECT_EQ((std::vector<int>{2, 3, 0, 1}), order);
}

/* With resources for one element a dispatch, each group gets its turn. */
TEST_F(arbiter_test, stop_is_fair)
{
    std::vector<int> served(3);
    for (int i = 0; i < 3; ++i) {
        fill(make_group(), 100);
    }
    for (int i = 0; i < 30; ++i) {
        int resources = 1;
        dispatch(10, [&](group_t *group, elem_t *) {
            if (resources == 0) {
                return UCS_ARBITER_STOP;
            }
            --resources;
            ++served[group->id];
            return UCS_ARBITER_NEXT;
        });
    }
    EXPECT_EQ((std::vector<int>{10, 10, 10}), served);
}

TEST_F(arbiter_test, schedule_during_callback_is_not_lost)
{
    group_t *group = fill(make_group(), 2);
    int calls      = 0;

    dispatch(1, [&](group_t *, elem_t *) {
        ++calls;
        ucs_arbiter_group_schedule(&group->super); /* the resource came just now */
        return UCS_ARBITER_DESCHED_GROUP;
    });
    EXPECT_EQ(2u, dispatch(2, [&](group_t *, elem_t *) {
        ++calls;
        return UCS_ARBITER_NEXT;
    }));
    EXPECT_EQ(3, calls);
}

TEST_F(arbiter_test, deschedule_during_callback)
{
    group_t *group = fill(make_group(), 5);

    EXPECT_EQ(1u, dispatch(10, [&](group_t *, elem_t *) {
        ucs_arbiter_group_deschedule(&group->super);
        return UCS_ARBITER_NEXT;
    }));
    EXPECT_TRUE(ucs_arbiter_is_empty(&m_arbiter));
    ucs_arbiter_group_schedule(&group->super);
    EXPECT_EQ(0u, dispatch(10, [&](group_t *, elem_t *) {
        ucs_arbiter_group_deschedule(&group->super);
        return UCS_ARBITER_KEEP_GROUP;
    }));
    EXPECT_TRUE(ucs_arbiter_is_empty(&m_arbiter));
    EXPECT_EQ(4u, ucs_list_length(&group->super.elems));
}

TEST_F(arbiter_test, nested_dispatch_returns_at_once)
{
    int depth = 0;
    fill(make_group(), 3);
    fill(make_group(), 3);
    auto inner = [&](group_t *, elem_t *) {
        ADD_FAILURE() << "called from the inner dispatch";
        return UCS_ARBITER_NEXT;
    };
    EXPECT_EQ(2u, dispatch(1, [&](group_t *, elem_t *) {
        ++depth;
        EXPECT_FALSE(ucs_arbiter_is_empty(&m_arbiter));
        fill(m_groups[0].get(), 1);
        EXPECT_EQ(0u, dispatch(10, inner));
        return UCS_ARBITER_NEXT;
    }));
    EXPECT_EQ(2, depth);
}

TEST_F(arbiter_test, group_cleaned_up_by_its_callback)
{
    group_t *group = fill(make_group(), 3);
    int purged     = 0;
    fill(make_group(), 1);

    EXPECT_EQ(2u, dispatch(10, [&](group_t *current, elem_t *) {
        if (current == group) {
            purge(group, [&](group_t *, elem_t *) { ++purged; });
            ucs_arbiter_group_cleanup(&group->super);
            m_groups[0].reset();
        }
        return UCS_ARBITER_NEXT;
    }));
    EXPECT_EQ(2, purged);
    EXPECT_TRUE(ucs_arbiter_is_empty(&m_arbiter));
}

TEST_F(arbiter_test, purge_may_add)
{
    group_t *group = fill(make_group(), 3);
    std::vector<int> purged;

    purge(group, [&](group_t *, elem_t *elem) {
        purged.push_back(elem->id);
        ucs_arbiter_group_add_tail(&group->super, &elem->super);
        ucs_arbiter_group_schedule(&group->super);
    });
    EXPECT_EQ((std::vector<int>{0, 1, 2}), purged);
    EXPECT_EQ(3u, ucs_list_length(&group->super.elems));
    EXPECT_FALSE(ucs_arbiter_is_empty(&m_arbiter));
}

TEST_F(arbiter_test, empty_group_is_not_scheduled)
{
    group_t *group = make_group();
    ucs_arbiter_group_schedule(&group->super);
    EXPECT_TRUE(ucs_arbiter_is_empty(&m_arbiter));
}

/* Random operations, from outside and from within callbacks, against a model that keeps the same
 * rules with plain containers. */
class arbiter_random_test : public arbiter_test {
protected:
    struct model_group {
        std::deque<int> elems; /* ids */
    };

    static constexpr int NUM_GROUPS = 6;

    void check()
    {
        for (int i = 0; i < NUM_GROUPS; ++i) {
            std::deque<int> found;
            ucs_arbiter_elem_t *elem;
            ucs_list_for_each(elem, &m_groups[i]->super.elems, list) {
                found.push_back(to_elem(elem)->id);
            }
            ASSERT_EQ(m_model[i].elems, found) << "group " << i;
        }
        std::deque<int> found;
        ucs_arbiter_group_t *group;
        ucs_list_for_each(group, &m_arbiter.ready, list) {
            found.push_back(to_group(group)->id);
        }
        ASSERT_EQ(m_ready, found);
        found.clear();
        ucs_list_for_each(group, &m_arbiter.round, list) {
            found.push_back(to_group(group)->id);
        }
        ASSERT_EQ(m_round, found);
    }

    static bool erase(std::deque<int> &from, int id)
    {
        auto it = std::find(from.begin(), from.end(), id);
        if (it == from.end()) {
            return false;
        }
        from.erase(it);
        return true;
    }

    bool is_listed(int id) const
    {
        return (std::find(m_ready.begin(), m_ready.end(), id) != m_ready.end()) ||
               (std::find(m_round.begin(), m_round.end(), id) != m_round.end());
    }

    void model_schedule(int id)
    {
        if (id == m_current) {
            m_wish = 1;
        } else if (!is_listed(id) && !m_model[id].elems.empty()) {
            m_ready.push_back(id);
        }
    }

    void model_deschedule(int id)
    {
        if (id == m_current) {
            m_wish = -1;
        } else {
            erase(m_ready, id);
            erase(m_round, id);
        }
    }

    /* One operation that is allowed anywhere. */
    void operate()
    {
        int id         = static_cast<int>(m_rnd->below(NUM_GROUPS));
        group_t *group = m_groups[id].get();
        elem_t *elem;

        switch (m_rnd->below(8)) {
        case 0:
        case 1:
            elem = make_elem();
            ucs_arbiter_group_add_tail(&group->super, &elem->super);
            m_model[id].elems.push_back(elem->id);
            break;
        case 2:
        case 3:
        case 4:
            ucs_arbiter_group_schedule(&group->super);
            model_schedule(id);
            break;
        case 5:
            ucs_arbiter_group_deschedule(&group->super);
            model_deschedule(id);
            break;
        case 6:
            if (m_rnd->one_in(8)) {
                std::deque<int> purged;
                std::deque<int> expected = m_model[id].elems;
                m_model[id].elems.clear();
                model_deschedule(id);
                purge(group, [&](group_t *, elem_t *elem) {
                    purged.push_back(elem->id);
                    if (m_rnd->one_in(4)) {
                        int to = static_cast<int>(m_rnd->below(NUM_GROUPS));
                        ucs_arbiter_group_add_tail(&m_groups[to]->super, &elem->super);
                        m_model[to].elems.push_back(elem->id);
                        ucs_arbiter_group_schedule(&m_groups[to]->super);
                        model_schedule(to);
                    }
                });
                ASSERT_EQ(expected, purged);
            }
            break;
        default:
            remove(group);
            break;
        }
    }

    /* Takes one of a group out, from anywhere in it. */
    void remove(group_t *group)
    {
        std::deque<int> &elems = m_model[group->id].elems;
        if (elems.empty()) {
            return;
        }
        elem_t *elem = m_elems[elems[m_rnd->below(elems.size())]].get();
        ucs_arbiter_group_remove(&group->super, &elem->super);
        EXPECT_FALSE(ucs_arbiter_elem_is_queued(&elem->super));
        erase(elems, elem->id);
        if (elems.empty() && (group->id != m_current)) {
            model_deschedule(group->id);
        }
    }

    /* The callback: check that it is called for what the model expects, do things, decide. */
    ucs_arbiter_result_t serve(group_t *group, elem_t *elem, unsigned limit)
    {
        if (m_current < 0) { /* a new visit */
            EXPECT_FALSE(m_round.empty());
            m_current = m_round.front();
            m_round.pop_front();
            m_served = 0;
        }
        EXPECT_EQ(m_current, group->id);
        EXPECT_EQ(m_model[group->id].elems.front(), elem->id);
        EXPECT_FALSE(ucs_arbiter_elem_is_queued(&elem->super));
        m_model[group->id].elems.pop_front();
        m_wish = 0;

        for (uint64_t n = m_rnd->below(4); n > 0; --n) {
            operate();
        }
        EXPECT_EQ(0u, dispatch(1, [](group_t *, elem_t *) { return UCS_ARBITER_NEXT; }));
        check();

        auto result = static_cast<ucs_arbiter_result_t>(
                std::max<int64_t>(static_cast<int64_t>(m_rnd->below(10)) - 6, 0));
        decide(result, elem->id, limit);
        return result;
    }

    /* What follows from the result. */
    void decide(ucs_arbiter_result_t result, int elem_id, unsigned limit)
    {
        auto &elems = m_model[m_current].elems;
        bool scheduled;

        if (result == UCS_ARBITER_NEXT) {
            ++m_served;
            ++m_done;
            if ((m_served < limit) && (m_wish != -1) && !elems.empty()) {
                return; /* the visit goes on */
            }
        } else {
            elems.push_front(elem_id);
        }

        scheduled = (result == UCS_ARBITER_DESCHED_GROUP) ? (m_wish == 1) : (m_wish != -1);
        if (scheduled && !elems.empty()) {
            if ((result == UCS_ARBITER_STOP) && (m_served == 0)) {
                m_round.push_front(m_current);
            } else {
                m_ready.push_back(m_current);
            }
        }
        m_current = -1;
    }

    seeded_random *m_rnd = nullptr;
    model_group m_model[NUM_GROUPS];
    std::deque<int> m_ready, m_round;
    int m_current     = -1;
    int m_wish        = 0;
    unsigned m_served = 0;
    unsigned m_done   = 0;
};

TEST_F(arbiter_random_test, random_operations)
{
    seeded_random rnd(12);
    m_rnd = &rnd;
    for (int i = 0; i < NUM_GROUPS; ++i) {
        make_group();
    }

    unsigned total = 0;
    for (int step = 0; step < 20000; ++step) {
        if (rnd.below(4) != 0) {
            operate();
        } else {
            unsigned limit = static_cast<unsigned>(rnd.below(4)) + 1;
            bool stopped   = false;
            m_done         = 0;
            m_round        = m_ready;
            m_ready.clear();
            unsigned done = dispatch(limit, [&](group_t *group, elem_t *elem) {
                ucs_arbiter_result_t result = serve(group, elem, limit);
                stopped = (result == UCS_ARBITER_STOP);
                return result;
            });
            ASSERT_EQ(m_done, done);
            ASSERT_TRUE(stopped || m_round.empty()) << "a group was not visited";
            m_ready.insert(m_ready.begin(), m_round.begin(), m_round.end());
            m_round.clear();
            total += done;
        }
        check();
        ASSERT_FALSE(HasFailure()) << "step " << step;
    }
    EXPECT_GT(total, 1000u) << "the test must have served something";
}

} // namespace
