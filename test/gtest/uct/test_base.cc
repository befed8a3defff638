/* Halyard: tests of what the base does for every transport, over a transport that follows a script.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <seed.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

using namespace uct_test;

namespace {

/* What the scripted transport does next, and what it was asked for. */
struct script_state {
    ucs_status_t md_open    = UCS_OK;
    ucs_status_t iface_open = UCS_OK;
    ucs_status_t init       = UCS_OK;
    ucs_status_t connect    = UCS_OK;
    ucs_status_t send       = UCS_OK;
    bool live_in_connect    = false;
    unsigned md_opens = 0, md_closes = 0, iface_opens = 0, iface_closes = 0;
    unsigned inits = 0, connects = 0, sends = 0, ep_closes = 0;
};

script_state g_script;

struct script_config {
    unsigned number;
    char *text;
};

const ucs_config_row_t g_script_rows[] = {
    UCS_CONFIG_ROW("NUMBER", uint, script_config, number, "7", "A number.", .arg = nullptr,
                   .min = 0, .max = 0, .flags = 0, .prefix = nullptr),
    UCS_CONFIG_ROW("TEXT", string, script_config, text, "hello", "A text.", .arg = nullptr,
                   .min = 0, .max = 0, .flags = 0, .prefix = nullptr),
    UCS_CONFIG_ROW_END
};

bool is_zero(const void *object, size_t from, size_t size)
{
    const uint8_t *data = static_cast<const uint8_t *>(object);

    return std::all_of(data + from, data + size, [](uint8_t byte) { return byte == 0; });
}

struct script_ep {
    uct_ep_t super;
    uint8_t extra[200];
};

ucs_status_t script_ep_init(uct_ep_t *ep, const void *, size_t)
{
    ++g_script.inits;
    EXPECT_TRUE(is_zero(ep, sizeof(uct_ep_t), sizeof(script_ep)));
    return g_script.init;
}

ucs_status_t script_connect(uct_ep_t *ep)
{
    ++g_script.connects;
    if (g_script.live_in_connect) {
        uct_ep_set_live(ep);
    }
    return g_script.connect;
}

ucs_status_t script_am_short(uct_ep_t *ep, unsigned, uint64_t, const void *, size_t)
{
    EXPECT_EQ(UCT_EP_LIVE, ep->state);
    ++g_script.sends;
    return g_script.send;
}

ucs_status_t script_get(uct_ep_t *, const uct_iov_t *, unsigned, uint64_t, uct_rkey_t *,
                        uct_completion_t *)
{
    return UCS_OK;
}

const uct_tl_t *script_tl()
{
    static uct_tl_t tl = []() {
        uct_tl_t t = {};
        strcpy(t.name, "script");
        t.kind          = UCT_TL_KIND_SHM;
        t.md_size       = sizeof(uct_md_t) + 100;
        t.iface_size    = sizeof(uct_iface_t) + 100;
        t.ep_size       = sizeof(script_ep);
        t.config_rows   = g_script_rows;
        t.config_prefix = "SCRIPT_";
        t.config_size   = sizeof(script_config);
        t.md.open       = [](uct_md_t *md) {
            ++g_script.md_opens;
            EXPECT_TRUE(is_zero(md, sizeof(uct_md_t), sizeof(uct_md_t) + 100));
            return g_script.md_open;
        };
        t.md.close   = [](uct_md_t *) { ++g_script.md_closes; };
        t.iface.open = [](uct_iface_t *iface) {
            ++g_script.iface_opens;
            EXPECT_TRUE(is_zero(iface, sizeof(uct_iface_t), sizeof(uct_iface_t) + 100));
            return g_script.iface_open;
        };
        t.iface.close       = [](uct_iface_t *) { ++g_script.iface_closes; };
        t.iface.progress    = [](uct_iface_t *iface) { return uct_iface_progress_base(iface); };
        t.ep.init           = script_ep_init;
        t.ep.connect        = script_connect;
        t.ep.close          = [](uct_ep_t *) { ++g_script.ep_closes; };
        t.ep.live.am_short  = script_am_short;
        t.ep.live.get_zcopy = script_get;
        t.ep.live.flush     = [](uct_ep_t *, uct_completion_t *) { return UCS_OK; };
        return t;
    }();
    return &tl;
}

ucs_status_t send_one(uct_ep_t *ep)
{
    return ep->ops->am_short(ep, 1, 0, nullptr, 0);
}

class base_test : public testing::Test {
protected:
    void SetUp() override
    {
        g_script = script_state();
        m_worker = std::make_unique<worker>(script_tl());
        ASSERT_EQ(UCS_OK, m_worker->status());
    }

    worker &w()
    {
        return *m_worker;
    }

    uct_ep_t *make_ep()
    {
        return w().connect(contact{{}, {1, 2, 3}});
    }

    pending *add(uct_ep_t *ep, std::function<ucs_status_t()> func)
    {
        m_requests.push_back(std::make_unique<pending>(std::move(func)));
        uct_ep_pending_add(ep, &m_requests.back()->base);
        return m_requests.back().get();
    }

    std::deque<std::unique_ptr<pending>> m_requests; /* outlives the worker's queues */
    std::unique_ptr<worker> m_worker;
};

/* ---- registry ---- */

TEST(registry, names_are_found_once)
{
    size_t count;
    const uct_tl_t *const *tls = uct_tl_list(&count);

    ASSERT_GE(count, 3u);
    for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(tls[i], uct_tl_find(tls[i]->name)) << tls[i]->name;
        EXPECT_NE(nullptr, tls[i]->help) << tls[i]->name;
        if ((strcmp(tls[i]->name, "ofi") == 0) && !is_present(tls[i])) {
            continue; /* built without libfabric it is but a name */
        }
        /* What knows memory only (cuda_copy) has no endpoints. */
        EXPECT_TRUE((tls[i]->ep.init != nullptr) || (tls[i]->iface.copy != nullptr))
            << tls[i]->name;
        EXPECT_NE(nullptr, tls[i]->iface.limits) << tls[i]->name;
        EXPECT_EQ(tls[i]->ep.init == nullptr, tls[i]->iface.get_address == nullptr)
            << tls[i]->name;
        EXPECT_EQ(tls[i]->ep.init == nullptr, tls[i]->iface.is_reachable == nullptr)
            << tls[i]->name;
        EXPECT_NE(nullptr, tls[i]->iface.progress) << tls[i]->name;
        EXPECT_EQ(tls[i]->md.reg == nullptr && tls[i]->md.alloc == nullptr &&
                  tls[i]->iface.reg == nullptr, tls[i]->md.release == nullptr) << tls[i]->name;
        EXPECT_EQ(tls[i]->md.rkey_pack == nullptr, tls[i]->md.rkey_unpack == nullptr);
        EXPECT_EQ(tls[i]->md.rkey_pack == nullptr, tls[i]->md.rkey_release == nullptr);
        EXPECT_EQ(tls[i]->iface.sync_alloc == nullptr, tls[i]->ep.live.sync_map == nullptr);
        EXPECT_TRUE((tls[i]->iface.event_fd == nullptr) || (tls[i]->iface.event_arm != nullptr));
    }
    for (const char *name : {"", "nothing", "fault:", "fault:nothing", "self ", "fault:delay:",
                             "trace:fault:delay:trace:fault:self"}) {
        EXPECT_EQ(nullptr, uct_tl_find(name)) << name;
    }
}

TEST(registry, hooks_are_made_once_and_nest)
{
    const uct_tl_t *hook = uct_tl_find("trace:delay:self");

    ASSERT_NE(nullptr, hook);
    EXPECT_STREQ("trace:delay:self", hook->name);
    EXPECT_EQ(hook, uct_tl_find("trace:delay:self"));
    EXPECT_NE(hook, uct_tl_find("delay:self"));
    EXPECT_EQ(UCT_TL_KIND_SELF, hook->kind);
    EXPECT_EQ(nullptr, uct_tl_find("fault:cma")->ep.live.am_short);
    EXPECT_NE(nullptr, uct_tl_find("fault:cma")->ep.live.get_zcopy);
}

/* ---- configuration ---- */

TEST(transport_config, environment_copy_and_errors)
{
    const uct_tl_t *tl = script_tl();
    void *config;
    uct_md_t *md;

    g_script = script_state();
    setenv("UCX_SCRIPT_NUMBER", "42", 1);
    setenv("UCX_SCRIPT_TEXT", "bye", 1);
    ASSERT_EQ(UCS_OK, uct_config_read(tl, nullptr, &config));
    setenv("UCX_SCRIPT_NUMBER", "43", 1);
    ASSERT_EQ(UCS_OK, uct_md_open(tl, config, &md));
    uct_config_release(tl, config); /* the domain has a copy */
    EXPECT_EQ(42u, static_cast<script_config *>(md->config)->number);
    EXPECT_STREQ("bye", static_cast<script_config *>(md->config)->text);
    uct_md_close(md);

    ASSERT_EQ(UCS_OK, uct_md_open(tl, nullptr, &md));
    EXPECT_EQ(43u, static_cast<script_config *>(md->config)->number);
    uct_md_close(md);

    log_levels quiet("fatal");
    setenv("UCX_SCRIPT_NUMBER", "many", 1);
    const uct_md_t *const before = md;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_md_open(tl, nullptr, &md));
    EXPECT_EQ(before, md) << "outputs are set on success only";
    unsetenv("UCX_SCRIPT_NUMBER");
    unsetenv("UCX_SCRIPT_TEXT");
    EXPECT_EQ(g_script.md_opens, g_script.md_closes);
}

/* ---- object life ---- */

TEST_F(base_test, open_that_fails_half_way_is_closed)
{
    g_script.iface_open = UCS_ERR_NO_DEVICE;
    {
        worker other(script_tl());
        EXPECT_EQ(UCS_ERR_NO_DEVICE, other.status());
        EXPECT_EQ(1u, g_script.iface_closes);
    }
    EXPECT_EQ(1u, g_script.md_closes);

    g_script.md_open = UCS_ERR_NO_MEMORY;
    worker third(script_tl());
    EXPECT_EQ(UCS_ERR_NO_MEMORY, third.status());
    EXPECT_EQ(2u, g_script.md_closes);

    uct_ep_t *ep  = nullptr;
    g_script.init = UCS_ERR_INVALID_ADDR;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, w().try_connect(contact{{}, {1}}, &ep));
    EXPECT_EQ(nullptr, ep);
    EXPECT_EQ(0u, g_script.ep_closes);
    EXPECT_TRUE(ucs_list_is_empty(&w().iface->eps));
}

TEST_F(base_test, an_interface_needs_the_failure_callback)
{
    uct_iface_params_t params = {};
    uct_iface_t *iface        = nullptr;

    log_levels quiet("fatal");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_iface_open(w().md, &params, &iface));
    EXPECT_EQ(nullptr, iface);
}

/* ---- states ---- */

TEST_F(base_test, first_operation_connects_and_goes_through)
{
    uct_ep_t *ep = make_ep();

    EXPECT_EQ(UCT_EP_IDLE, ep->state);
    EXPECT_EQ(0u, g_script.connects);
    EXPECT_EQ(UCS_OK, ep->ops->flush(ep, nullptr)) << "nothing has been sent";
    EXPECT_EQ(0u, g_script.connects);
    EXPECT_EQ(UCS_OK, send_one(ep));
    EXPECT_EQ(1u, g_script.connects);
    EXPECT_EQ(1u, g_script.sends);
    EXPECT_EQ(UCT_EP_LIVE, ep->state);
    EXPECT_EQ(&script_tl()->ep.live, ep->ops);
    EXPECT_EQ(UCS_OK, send_one(ep));
    EXPECT_EQ(1u, g_script.connects);
    EXPECT_EQ(UCS_OK, uct_ep_connect(ep));
}

TEST_F(base_test, operations_wait_for_the_connection)
{
    g_script.connect = UCS_INPROGRESS;
    uct_ep_t *ep     = make_ep();

    for (unsigned i = 0; i < 3; ++i) {
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, send_one(ep));
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, ep->ops->get_zcopy(ep, nullptr, 0, 0, nullptr, nullptr));
        EXPECT_EQ(UCS_INPROGRESS, uct_ep_connect(ep));
        EXPECT_EQ(UCT_EP_CONNECTING, ep->state);
    }
    EXPECT_EQ(1u, g_script.connects) << "started once";
    EXPECT_EQ(0u, g_script.sends);
    uct_ep_set_live(ep);
    EXPECT_EQ(UCS_OK, send_one(ep));
}

TEST_F(base_test, a_transport_may_be_live_before_connect_returns)
{
    g_script.connect         = UCS_INPROGRESS;
    g_script.live_in_connect = true;
    uct_ep_t *ep             = make_ep();

    EXPECT_EQ(UCS_OK, uct_ep_connect(ep));
    EXPECT_EQ(UCT_EP_LIVE, ep->state);
}

TEST_F(base_test, a_refused_connection_fails_the_endpoint_once)
{
    g_script.connect = UCS_ERR_UNREACHABLE;
    uct_ep_t *ep     = make_ep();

    EXPECT_EQ(UCS_ERR_UNREACHABLE, send_one(ep));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, send_one(ep));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, ep->ops->flush(ep, nullptr));
    EXPECT_EQ(1u, g_script.connects);
    EXPECT_TRUE(w().failed.empty());
    EXPECT_GT(w().progress(), 0u);
    ASSERT_EQ(1u, w().failed.size());
    EXPECT_EQ(ep, w().failed[0].first);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, w().failed[0].second);
    uct_ep_set_failed(ep, UCS_ERR_IO_ERROR);
    uct_ep_set_live(ep);
    EXPECT_EQ(UCT_EP_FAILED, ep->state) << "for good";
    EXPECT_EQ(0u, w().progress());
    EXPECT_EQ(1u, w().failed.size());
    EXPECT_EQ(UCS_ERR_UNREACHABLE, send_one(ep)) << "the first cause counts";
}

TEST_F(base_test, a_closed_endpoint_is_not_reported)
{
    uct_ep_t *ep = make_ep();

    uct_ep_set_failed(ep, UCS_ERR_IO_ERROR);
    w().close(ep);
    EXPECT_EQ(0u, w().progress());
    EXPECT_TRUE(w().failed.empty());
    EXPECT_EQ(1u, g_script.ep_closes);
}

/* The report of one endpoint closes it and fails another one. */
TEST_F(base_test, reports_may_close_and_fail_endpoints)
{
    static std::vector<uct_ep_t *> reported;
    uct_iface_params_t params = {};
    uct_iface_t *iface;
    uct_ep_t *eps[4];
    uint8_t uid[UCT_UID_LEN] = {};

    reported.clear();
    params.arg       = eps;
    params.ep_failed = [](void *arg, uct_ep_t *ep, ucs_status_t) {
        uct_ep_t **all = static_cast<uct_ep_t **>(arg);
        reported.push_back(ep);
        if (ep == all[0]) {
            uct_ep_set_failed(all[2], UCS_ERR_IO_ERROR);
            uct_ep_close(all[1]); /* failed too, and not reported yet */
        }
        uct_ep_close(ep);
    };
    ASSERT_EQ(UCS_OK, uct_iface_open(w().md, &params, &iface));
    for (uct_ep_t *&ep : eps) {
        ASSERT_EQ(UCS_OK, uct_ep_open(iface, uid, "x", 1, nullptr, &ep));
    }
    uct_ep_set_failed(eps[0], UCS_ERR_IO_ERROR);
    uct_ep_set_failed(eps[1], UCS_ERR_IO_ERROR);
    EXPECT_EQ(2u, uct_iface_progress(iface));
    EXPECT_EQ((std::vector<uct_ep_t *>{eps[0], eps[2]}), reported);
    EXPECT_EQ(UCT_EP_IDLE, eps[3]->state);
    uct_ep_close(eps[3]);
    uct_iface_close(iface);
}

/* ---- pending requests ---- */

TEST_F(base_test, requests_sleep_while_connecting)
{
    g_script.connect = UCS_INPROGRESS;
    uct_ep_t *ep     = make_ep();
    unsigned calls   = 0;

    for (unsigned i = 0; i < 2; ++i) {
        add(ep, [&]() {
            ++calls;
            return send_one(ep);
        });
    }
    EXPECT_EQ(2u, w().iface->num_pending);
    w().progress();
    EXPECT_EQ(1u, calls) << "the first starts the connection";
    EXPECT_FALSE(uct_iface_has_work(w().iface)) << "nothing to do until it is there";
    for (unsigned i = 0; i < 10; ++i) {
        w().progress();
    }
    EXPECT_EQ(1u, calls);
    uct_ep_set_live(ep);
    EXPECT_TRUE(uct_iface_has_work(w().iface));
    w().progress();
    EXPECT_EQ(3u, calls);
    EXPECT_EQ(2u, g_script.sends);
    EXPECT_EQ(0u, w().iface->num_pending);
    EXPECT_FALSE(uct_ep_has_pending(ep));
}

TEST_F(base_test, requests_of_a_failed_endpoint_meet_the_error_after_the_report)
{
    uct_ep_t *ep = make_ep();
    std::vector<ucs_status_t> results;

    g_script.connect = UCS_INPROGRESS;
    for (unsigned i = 0; i < 10; ++i) {
        add(ep, [&]() {
            const ucs_status_t status = send_one(ep);
            if (status == UCS_ERR_NO_RESOURCE) {
                return status;
            }
            EXPECT_EQ(1u, w().failed.size()) << "before the report";
            results.push_back(status);
            return UCS_OK;
        });
    }
    w().progress();
    uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
    for (unsigned i = 0; i < 10; ++i) {
        w().progress();
    }
    EXPECT_EQ(std::vector<ucs_status_t>(10, UCS_ERR_CONNECTION_RESET), results);
    EXPECT_EQ(0u, w().iface->num_pending);
}

/* The endpoint fails in the middle of a round in which its requests still have their turn. */
TEST_F(base_test, requests_of_this_round_wait_for_the_report_too)
{
    uct_ep_t *first = make_ep(), *second = make_ep();
    bool ended      = false;

    add(first, [&]() {
        uct_ep_set_failed(second, UCS_ERR_CONNECTION_RESET);
        return UCS_OK;
    });
    add(second, [&]() {
        EXPECT_EQ(1u, w().failed.size()) << "before the report";
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, send_one(second));
        ended = true;
        return UCS_OK;
    });
    w().progress();
    EXPECT_FALSE(ended);
    w().progress();
    EXPECT_TRUE(ended);
}

/* What func returns decides: taken over, again first, or again last. */
TEST_F(base_test, results_of_requests)
{
    uct_ep_t *ep = make_ep();
    std::string order;
    int turns_of_b = 0;
    bool blocked   = true;

    add(ep, [&]() { order += 'a'; return blocked ? UCS_ERR_NO_RESOURCE : UCS_OK; });
    add(ep, [&]() { order += 'b'; return (turns_of_b++ == 0) ? UCS_INPROGRESS : UCS_OK; });
    add(ep, [&]() { order += 'c'; return UCS_OK; });
    w().progress();
    w().progress();
    EXPECT_EQ("aa", order);
    blocked = false;
    for (unsigned i = 0; i < 3; ++i) {
        w().progress();
    }
    EXPECT_EQ("aaabcb", order);
    EXPECT_EQ(0u, w().iface->num_pending);
}

TEST_F(base_test, endpoints_have_their_turns)
{
    std::vector<uct_ep_t *> eps;
    std::string order;

    for (unsigned count : {6u, 1u, 5u}) {
        const char name = static_cast<char>('a' + eps.size());
        eps.push_back(make_ep());
        for (unsigned i = 0; i < count; ++i) {
            add(eps.back(), [&order, name]() { order += name; return UCS_OK; });
        }
    }
    w().progress();
    EXPECT_EQ("aaaabcccccaa", order) << "after a round another is the first";
}

/* A request that is being tried is off its queue; whatever it does to queues takes effect. */
TEST_F(base_test, requests_that_meddle_with_queues)
{
    uct_ep_t *ep = make_ep(), *other = make_ep();
    std::string order;
    pending *removed = nullptr;

    add(ep, [&]() {
        order += 'a';
        EXPECT_TRUE(uct_ep_has_pending(ep));
        EXPECT_EQ(0u, w().progress()) << "another is being tried";
        uct_ep_pending_remove(ep, &removed->base);
        EXPECT_FALSE(uct_ep_has_pending(ep));
        add(ep, [&]() { order += 'b'; return UCS_OK; });
        w().close(other);
        return UCS_OK;
    });
    removed = add(ep, [&]() { order += 'x'; return UCS_OK; });
    add(other, [&]() { order += 'y'; return UCS_OK; });
    w().progress();
    EXPECT_EQ("ab", order);
    EXPECT_EQ(0u, w().iface->num_pending);
    EXPECT_FALSE(uct_iface_has_work(w().iface));
}

TEST_F(base_test, requests_that_a_purge_adds_stay)
{
    uct_ep_t *ep = make_ep();
    unsigned ran = 0;

    for (unsigned i = 0; i < 3; ++i) {
        add(ep, [&]() { ++ran; return UCS_OK; });
    }
    std::function<void()> again = [&]() { add(ep, [&]() { ran += 10; return UCS_OK; }); };
    uct_ep_pending_purge(ep, [](uct_pending_t *, void *arg) {
        (*static_cast<std::function<void()> *>(arg))();
    }, &again);
    EXPECT_EQ(3u, w().iface->num_pending);
    w().progress();
    EXPECT_EQ(30u, ran);
}

/* Random adding, purging, closing and failing, from outside and from inside of requests, against a
 * model that knows for each endpoint which requests wait and in which order. */
TEST_F(base_test, random_pending_operations_against_a_model)
{
    seeded_random rnd(31);
    std::map<uct_ep_t *, std::deque<int>> model;
    std::vector<uct_ep_t *> eps;
    std::map<uct_pending_t *, int> numbers;
    int next   = 0;
    size_t ran = 0;

    std::function<void(uct_ep_t *)> add_one = [&](uct_ep_t *ep) {
        const int number = next++;
        model[ep].push_back(number);
        pending *request = add(ep, [&, ep, number]() {
            EXPECT_EQ(number, model[ep].front());
            if (rnd.one_in(3)) {
                if (rnd.one_in(3)) {
                    add_one(eps[rnd.below(eps.size())]);
                }
                return UCS_ERR_NO_RESOURCE;
            }
            if (rnd.one_in(5)) {
                model[ep].pop_front();
                model[ep].push_back(number);
                return UCS_INPROGRESS;
            }
            model[ep].pop_front();
            ++ran;
            if (rnd.one_in(20)) { /* this endpoint goes, with what waits on it */
                model.erase(ep);
                eps.erase(std::find(eps.begin(), eps.end(), ep));
                w().close(ep);
            }
            return UCS_OK;
        });
        numbers[&request->base] = number;
    };

    for (unsigned step = 0; step < 20000; ++step) {
        if (eps.size() < 6) {
            eps.push_back(make_ep());
            model[eps.back()];
        }
        uct_ep_t *ep = eps[rnd.below(eps.size())];
        switch (rnd.below(8)) {
        case 0: {
            auto expected = model[ep];
            auto check    = std::make_pair(&numbers, &expected);
            uct_ep_pending_purge(ep, [](uct_pending_t *self, void *arg) {
                auto &c = *static_cast<decltype(check) *>(arg);
                ASSERT_FALSE(c.second->empty());
                EXPECT_EQ(c.second->front(), (*c.first)[self]);
                c.second->pop_front();
            }, &check);
            EXPECT_TRUE(expected.empty());
            model[ep].clear();
            break;
        }
        case 1:
            if (rnd.one_in(10)) {
                model.erase(ep);
                eps.erase(std::find(eps.begin(), eps.end(), ep));
                w().close(ep);
            }
            break;
        case 2:
        case 3:
            w().progress();
            break;
        default:
            add_one(ep);
            break;
        }
        size_t waiting = 0;
        for (const auto &entry : model) {
            ASSERT_EQ(entry.second.empty(), !uct_ep_has_pending(entry.first));
            waiting += entry.second.size();
        }
        ASSERT_EQ(waiting, w().iface->num_pending);
    }
    EXPECT_GT(ran, 1000u);
}

/* Queues that share one resource, of which a little comes at a time. */
TEST_F(base_test, scarce_resources_are_shared_evenly)
{
    for (unsigned gift : {1u, 2u, 3u, 5u, 7u}) {
        std::vector<unsigned> taken(5);
        std::vector<uct_ep_t *> eps;
        unsigned left = 0;

        for (unsigned i = 0; i < taken.size(); ++i) {
            eps.push_back(make_ep());
            for (unsigned k = 0; k < 1000; ++k) {
                add(eps[i], [&, i]() {
                    if (left == 0) {
                        return UCS_ERR_NO_RESOURCE;
                    }
                    --left;
                    ++taken[i];
                    return UCS_OK;
                });
            }
        }
        for (unsigned turn = 0; turn < 500; ++turn) {
            left = ((turn % 3) == 0) ? gift : 0;
            w().progress();
            EXPECT_EQ(0u, left);
            const auto range = std::minmax_element(taken.begin(), taken.end());
            ASSERT_LE(*range.second - *range.first, 20u) << "gift " << gift << " turn " << turn;
        }
        w().close_all();
    }
}

/* ---- messages ---- */

TEST_F(base_test, messages_for_nobody_are_counted)
{
    std::vector<unsigned> lengths;

    w().on_message(3, [&](const uint8_t *, size_t length) {
        lengths.push_back(static_cast<unsigned>(length));
    });
    alignas(8) const uint8_t data[8] = {};
    uct_iface_deliver(w().iface, 3, data, 8);
    uct_iface_deliver(w().iface, 4, data, 8);
    uct_iface_deliver(w().iface, UCT_AM_ID_MAX, data, 8);
    uct_iface_deliver(w().iface, UINT32_MAX, data, 8);
    EXPECT_EQ((std::vector<unsigned>{8}), lengths);
    EXPECT_EQ(3u, w().iface->am_dropped);
    uct_iface_set_am(w().iface, 3, nullptr, nullptr, UCT_AM_COPIED);
    uct_iface_deliver(w().iface, 3, data, 8);
    EXPECT_EQ(4u, w().iface->am_dropped);
}

/* ---- completions ---- */

TEST(completion_count, first_error_counts)
{
    completion comp(3);

    uct_completion_update(&comp.base, UCS_OK);
    uct_completion_update(&comp.base, UCS_ERR_IO_ERROR);
    EXPECT_EQ(0, comp.calls);
    uct_completion_update(&comp.base, UCS_ERR_NO_MEMORY);
    EXPECT_EQ(1, comp.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, comp.base.status);
}

} // namespace
