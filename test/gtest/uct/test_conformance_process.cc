/* Halyard: conformance of transports between processes: messages, memory, waiting, and death.
 *
 * Runs over every transport that leads to other processes, plain and under each hook.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "peer_process.h"

#include <seed.h>
#include <ucp/world.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace uct_test;

namespace {

constexpr unsigned ID_DATA = 1, ID_ECHO = 2, ID_STOP = 3;

bool reaches_processes(const uct_tl_t *tl)
{
    return tl->kind != UCT_TL_KIND_SELF;
}

bool sends_to_processes(const uct_tl_t *tl)
{
    return reaches_processes(tl) && has_messages(tl);
}

bool copies_between_processes(const uct_tl_t *tl)
{
    return reaches_processes(tl) && can_transfer(tl, true) && can_transfer(tl, false);
}

bool detects_death(const uct_tl_t *tl)
{
    return reaches_processes(tl) && (tl->ep.live.check != nullptr);
}

bool wakes(const uct_tl_t *tl)
{
    return sends_to_processes(tl) && (tl->iface.event_fd != nullptr);
}

bool shares_words(const uct_tl_t *tl)
{
    return reaches_processes(tl) && (tl->iface.sync_alloc != nullptr);
}

way first_way(const uct_tl_t *tl)
{
    return *std::find_if(std::begin(WAYS), std::end(WAYS),
                         [tl](way how) { return has_way(tl, how); });
}

uint64_t number_of(const uint8_t *data)
{
    uint64_t number;

    memcpy(&number, data, sizeof(number));
    return number;
}

/* A message that carries its number and whose every byte follows from that. */
bytes numbered(uint64_t number, size_t length)
{
    bytes data = pattern(number, length);

    memcpy(data.data(), &number, sizeof(number));
    return data;
}

size_t length_of(uint64_t number, size_t max)
{
    return 8 + (number * 2654435761u) % (((number % 16) == 0) ? max - 7 : 200);
}

class process_test : public testing::TestWithParam<std::string> {
protected:
    process_test() : m_tl(uct_tl_find(GetParam().c_str()))
    {
    }

    void SetUp() override
    {
        if (!is_present(m_tl)) {
            GTEST_SKIP() << "no device for " << GetParam();
        }
    }

    const uct_tl_t *m_tl;
};

class process_am_test : public process_test {
};

/* The other side of the message tests: answers each message with the same until told to stop. */
void echo(const uct_tl_t *tl, channel &parent)
{
    worker w(tl);
    const way how = first_way(tl);
    std::deque<std::unique_ptr<pending>> requests;
    bool stop = false;

    ASSERT_EQ(UCS_OK, w.status());
    parent.put_contact(w.where());
    uct_ep_t *ep = w.connect(parent.get_contact());
    w.on_message(ID_DATA, [&](const uint8_t *data, size_t length) {
        const bytes copy(data, data + length);
        if (!uct_ep_has_pending(ep) && (post(ep, how, ID_ECHO, copy, 0) == UCS_OK)) {
            return;
        }
        requests.push_back(std::make_unique<pending>([=]() {
            return post(ep, how, ID_ECHO, copy, 0);
        }));
        uct_ep_pending_add(ep, &requests.back()->base);
    });
    w.on_message(ID_STOP, [&](const uint8_t *, size_t) { stop = true; });
    EXPECT_TRUE(run_until({&w}, [&]() { return stop && !uct_ep_has_pending(ep); }));
    EXPECT_TRUE(w.failed.empty());
}

TEST_P(process_am_test, echo_of_random_messages)
{
    constexpr unsigned NUM_MESSAGES = 10000;
    seeded_random rnd(3);
    peer_process child([this](channel &parent) { echo(m_tl, parent); });
    worker w(m_tl);
    uint64_t received = 0;

    ASSERT_EQ(UCS_OK, w.status());
    child.link().put_contact(w.where());
    uct_ep_t *ep     = w.connect(child.link().get_contact());
    const size_t max = std::min<size_t>(way_max(w, first_way(m_tl)), 32768);

    w.on_message(ID_ECHO, [&](const uint8_t *data, size_t length) {
        ASSERT_EQ(numbered(received, length_of(received, max)), bytes(data, data + length));
        ++received;
    });
    for (uint64_t i = 0; i < NUM_MESSAGES; ++i) {
        std::vector<way> ways;
        const bytes data = numbered(i, length_of(i, max));
        for (way how : WAYS) {
            if (has_way(m_tl, how) && (data.size() <= way_max(w, how))) {
                ways.push_back(how);
            }
        }
        ASSERT_EQ(UCS_OK, send({&w}, ep, ways[rnd.below(ways.size())], ID_DATA, data, i));
    }
    EXPECT_TRUE(run_until({&w}, [&]() { return received == NUM_MESSAGES; })) << received;
    ASSERT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_STOP, numbered(0, 8)));
    EXPECT_EQ(0, child.wait({&w}));
}

TEST_P(process_am_test, many_to_one)
{
    constexpr unsigned NUM_CHILDREN = 4, NUM_MESSAGES = 3000;
    std::vector<std::unique_ptr<peer_process>> children;
    std::vector<uint64_t> received(NUM_CHILDREN);
    size_t total = 0;

    for (unsigned i = 0; i < NUM_CHILDREN; ++i) {
        children.push_back(std::make_unique<peer_process>([this, i](channel &parent) {
            worker w(m_tl);
            ASSERT_EQ(UCS_OK, w.status());
            uct_ep_t *ep     = w.connect(parent.get_contact());
            const size_t max = std::min<size_t>(way_max(w, first_way(m_tl)), 8192);
            for (uint64_t k = 0; k < NUM_MESSAGES; ++k) {
                ASSERT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), 10 + i,
                                       numbered(k, length_of(k, max))));
            }
            if (m_tl->ep.live.flush != nullptr) {
                EXPECT_EQ(UCS_OK, finish({&w}, [&](uct_completion_t *comp) {
                    return ep->ops->flush(ep, comp);
                }));
            }
        }));
    }

    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    const size_t max = std::min<size_t>(way_max(w, first_way(m_tl)), 8192);
    for (unsigned i = 0; i < NUM_CHILDREN; ++i) {
        w.on_message(10 + i, [&, i](const uint8_t *data, size_t length) {
            ASSERT_EQ(numbered(received[i], length_of(received[i], max)),
                      bytes(data, data + length));
            ++received[i];
            ++total;
        });
        children[i]->link().put_contact(w.where());
    }

    /* What was accepted arrives even when its sender has left, and before the news of that. */
    EXPECT_TRUE(run_until({&w}, [&]() { return w.gone.size() == NUM_CHILDREN; }))
        << w.gone.size();
    EXPECT_EQ(NUM_CHILDREN * NUM_MESSAGES, total);
    for (auto &child : children) {
        EXPECT_EQ(0, child->wait({&w}));
    }
    EXPECT_EQ(NUM_CHILDREN, w.gone.size()) << "reported once each";
}

/* A peer is killed at a random moment of its sending. What arrives is whole and in order, its end
 * is reported once, and other peers notice nothing. */
TEST_P(process_am_test, killed_while_sending)
{
    seeded_random rnd(5);
    const unsigned num_kills = (m_tl->kind == UCT_TL_KIND_NET) ? 2 : 12; /* noticed late there */
    peer_process other([this](channel &parent) { echo(m_tl, parent); });

    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    other.link().put_contact(w.where());
    uct_ep_t *other_ep = w.connect(other.link().get_contact());
    uint64_t echoed    = 0;
    w.on_message(ID_ECHO, [&](const uint8_t *data, size_t) {
        EXPECT_EQ(echoed, number_of(data));
        ++echoed;
    });

    for (unsigned round = 0; round < num_kills; ++round) {
        uint64_t received = 0;
        const size_t max  = std::min<size_t>(way_max(w, first_way(m_tl)), 4096);
        peer_process child([&](channel &parent) {
            /* A fresh interface; the parent's belongs to the parent. */
            worker sender(m_tl);
            ASSERT_EQ(UCS_OK, sender.status());
            parent.put_contact(sender.where());
            uct_ep_t *ep = sender.connect(parent.get_contact());
            sender.on_message(ID_DATA, [](const uint8_t *, size_t) {});
            for (uint64_t k = 0;; ++k) {
                if (send({&sender}, ep, first_way(m_tl), 20, numbered(k, length_of(k, max))) !=
                    UCS_OK) {
                    break;
                }
            }
        });

        child.link().put_contact(w.where());
        const contact peer = child.link().get_contact();
        uct_ep_t *ep       = w.connect(peer);
        w.on_message(20, [&](const uint8_t *data, size_t length) {
            ASSERT_EQ(numbered(received, length_of(received, max)), bytes(data, data + length));
            ++received;
        });
        ASSERT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_DATA, numbered(0, 8)));
        const uint64_t wanted = rnd.below(3000);
        ASSERT_TRUE(run_until({&w}, [&]() { return received >= wanted; }));
        child.kill_now();

        EXPECT_TRUE(run_until({&w}, [&]() { return !w.failed.empty() && !w.gone.empty(); }))
            << w.failed.size() << " failed, " << w.gone.size() << " gone";
        ASSERT_EQ(UCS_OK, send({&w}, other_ep, first_way(m_tl), ID_DATA, numbered(round, 64)));
        EXPECT_TRUE(run_until({&w}, [&]() { return echoed == round + 1; })) << "another peer";
        for (unsigned i = 0; i < 200; ++i) {
            w.progress();
        }

        ASSERT_EQ(1u, w.failed.size()) << "reported once";
        EXPECT_EQ(ep, w.failed[0].first);
        EXPECT_TRUE((w.failed[0].second == UCS_ERR_CONNECTION_RESET) ||
                    (w.failed[0].second == UCS_ERR_ENDPOINT_TIMEOUT))
            << ucs_status_string(w.failed[0].second);
        ASSERT_EQ(1u, w.gone.size()) << "reported once";
        EXPECT_EQ(peer.uid, w.gone[0]);
        EXPECT_EQ(UCT_EP_FAILED, ep->state);
        EXPECT_EQ(w.failed[0].second,
                  post(ep, first_way(m_tl), ID_DATA, numbered(0, 8), 0));
        w.close(ep);
        w.failed.clear();
        w.gone.clear();
    }

    ASSERT_EQ(UCS_OK, send({&w}, other_ep, first_way(m_tl), ID_STOP, numbered(0, 8)));
    EXPECT_EQ(0, other.wait({&w}));
}

/* Requests that wait for a peer which dies are handed back. */
TEST_P(process_am_test, death_with_pending_requests)
{
    peer_process child([this](channel &parent) {
        worker w(m_tl);
        ASSERT_EQ(UCS_OK, w.status());
        parent.put_contact(w.where());
        uct_ep_t *ep = w.connect(parent.get_contact());
        bool started = false;
        w.on_message(ID_DATA, [&](const uint8_t *, size_t) { started = true; });
        ASSERT_TRUE(run_until({&w}, [&]() { return started; }));
        EXPECT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_ECHO, numbered(0, 8)));
        parent.put_number(1);
        sleep(3 * LIMIT_S); /* takes nothing more */
    });

    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    child.link().put_contact(w.where());
    uct_ep_t *ep = w.connect(child.link().get_contact());
    ASSERT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_DATA, numbered(0, 8)));
    bool answered = false;
    w.on_message(ID_ECHO, [&](const uint8_t *, size_t) { answered = true; });
    ASSERT_TRUE(run_until({&w}, [&]() { return answered; }));
    ASSERT_EQ(1u, child.link().get_number());

    unsigned refused = 0;
    for (unsigned i = 0; (refused < 100) && (i < 1000000); ++i) {
        refused = (post(ep, first_way(m_tl), ID_DATA, numbered(i, 64), 0) == UCS_OK) ?
                  0 : refused + 1;
    }
    ASSERT_EQ(100u, refused);

    std::vector<std::unique_ptr<pending>> requests;
    unsigned ended = 0;
    for (unsigned i = 0; i < 50; ++i) {
        requests.push_back(std::make_unique<pending>([&, ep]() {
            const ucs_status_t status = post(ep, first_way(m_tl), ID_DATA, numbered(0, 64), 0);
            if (status == UCS_ERR_NO_RESOURCE) {
                return status;
            }
            EXPECT_NE(UCS_OK, status);
            ++ended;
            return UCS_OK;
        }));
        uct_ep_pending_add(ep, &requests.back()->base);
    }
    child.kill_now();
    /* Nobody purges here, so the requests meet the error themselves. */
    EXPECT_TRUE(run_until({&w}, [&]() { return (ended == 50) && (w.failed.size() == 1); }))
        << ended << " requests, " << w.failed.size() << " failures";
    EXPECT_EQ(0u, w.iface->num_pending);
}

/* However many endpoints a peer has opened, it is gone once. */
TEST_P(process_am_test, a_peer_with_several_endpoints_is_gone_once)
{
    constexpr unsigned NUM_EPS = 8;
    unsigned received          = 0;
    peer_process child([&](channel &parent) {
        worker w(m_tl);
        ASSERT_EQ(UCS_OK, w.status());
        parent.put_contact(w.where());
        const contact peer = parent.get_contact();
        for (unsigned i = 0; i < NUM_EPS; ++i) {
            uct_ep_t *ep = w.connect(peer);
            EXPECT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_DATA, numbered(i, 8)));
            if ((i % 3) == 2) { /* one that leaves takes nobody with it */
                w.close(ep);
            }
        }
        run_until({&w}, []() { return false; }, 3 * LIMIT_S);
    });

    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    w.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
    const contact peer = child.link().get_contact();
    child.link().put_contact(w.where());
    ASSERT_TRUE(run_until({&w}, [&]() { return received == NUM_EPS; }));
    for (unsigned i = 0; i < 1000; ++i) {
        w.progress();
    }
    EXPECT_TRUE(w.gone.empty());
    child.kill_now();
    EXPECT_TRUE(run_until({&w}, [&]() { return !w.gone.empty(); }));
    for (unsigned i = 0; i < 1000; ++i) {
        w.progress();
    }
    ASSERT_EQ(1u, w.gone.size());
    EXPECT_EQ(peer.uid, w.gone[0]);
}

/* The peer is gone before the first message. */
TEST_P(process_am_test, connecting_to_the_dead)
{
    contact peer;
    {
        peer_process child([this](channel &parent) {
            worker w(m_tl);
            ASSERT_EQ(UCS_OK, w.status());
            parent.put_contact(w.where());
            sleep(3 * LIMIT_S);
        });
        peer = child.link().get_contact();
        child.kill_now();
    }

    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(peer);
    const ucs_status_t status = persist({&w}, [&]() {
        return post(ep, first_way(m_tl), ID_DATA, numbered(0, 8), 0);
    });
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status)) << status;
    EXPECT_NE(UCS_ERR_NO_RESOURCE, status) << "it never ended";
    EXPECT_TRUE(run_until({&w}, [&]() { return !w.failed.empty(); }));
    EXPECT_EQ(1u, w.failed.size());
    EXPECT_EQ(UCT_EP_FAILED, ep->state);
}

INSTANTIATE_TEST_SUITE_P(transports, process_am_test,
                         testing::ValuesIn(transports(sends_to_processes)), test_name);

/* ---- memory of another process ---- */

class process_rma_test : public process_test {
};

constexpr size_t TARGET_SIZE = 1 << 20;

/* The other side: offers memory, and shows at the end what is in it. */
void offer_memory(const uct_tl_t *tl, channel &parent)
{
    worker w(tl);
    uct_mem_t *mem  = nullptr;
    uint8_t *target = nullptr;
    bytes own, packed;

    ASSERT_EQ(UCS_OK, w.status());
    if (tl->md.alloc != nullptr) {
        ASSERT_EQ(UCS_OK, tl->md.alloc(w.md, nullptr, TARGET_SIZE, 0, &mem));
        target = static_cast<uint8_t *>(mem->address);
    } else {
        own.resize(TARGET_SIZE);
        target = own.data();
        if (tl->md.reg != nullptr) {
            ASSERT_EQ(UCS_OK, tl->md.reg(w.md, target, TARGET_SIZE, nullptr, &mem));
        }
    }
    memset(target, 0, TARGET_SIZE);
    if (tl->md.rkey_pack != nullptr) {
        packed.resize(UCT_RKEY_MAX);
        packed.resize(tl->md.rkey_pack(mem, packed.data()));
    }
    parent.put_contact(w.where());
    parent.put_number(reinterpret_cast<uintptr_t>(target));
    parent.put(packed);

    struct pollfd event = {parent.fd(), POLLIN, 0};
    run_until({&w}, [&]() { return poll(&event, 1, 0) == 1; }, 3 * LIMIT_S);
    EXPECT_EQ(1u, parent.get_number());
    parent.put(bytes(target, target + TARGET_SIZE));
    EXPECT_EQ(2u, parent.get_number());
    if (mem != nullptr) {
        tl->md.release(mem);
    }
}

TEST_P(process_rma_test, random_puts_and_gets)
{
    seeded_random rnd(23);
    peer_process child([this](channel &parent) { offer_memory(m_tl, parent); });
    worker w(m_tl);
    uct_rkey_t *rkey = nullptr;
    bytes packed, model(TARGET_SIZE);

    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep        = w.connect(child.link().get_contact());
    const uint64_t base = child.link().get_number();
    ASSERT_TRUE(child.link().get(packed));
    if ((m_tl->md.rkey_unpack != nullptr) && packed.empty()) {
        child.link().put_number(1);
        ASSERT_TRUE(child.link().get(packed));
        child.link().put_number(2);
        EXPECT_EQ(0, child.wait({&w}));
        GTEST_SKIP() << "nothing is reached by itself here";
    }
    if (m_tl->md.rkey_unpack != nullptr) {
        ASSERT_EQ(UCS_OK, m_tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
    }

    for (unsigned i = 0; i < 600; ++i) {
        const size_t length = rnd.below(rnd.one_in(4) ? TARGET_SIZE + 1 : 5000);
        const size_t offset = rnd.below(TARGET_SIZE - length + 1);
        const bool is_put   = rnd.one_in(2);
        const bool is_whole = transfer_iov_max(w, false) == 1;
        const size_t cut    = is_whole ? length : length / 3;
        bytes data          = pattern(i, length);
        uct_iov_t iov[2]    = {{data.data(), cut, nullptr},
                               {data.data() + cut, length - cut, nullptr}};
        ASSERT_EQ(UCS_OK, finish({&w}, [&](uct_completion_t *comp) {
            return transfer(ep, is_put, iov, is_whole ? 1 : 2, base + offset, rkey, comp);
        }));
        if (is_put) {
            std::copy(data.begin(), data.end(), model.begin() + offset);
        } else {
            ASSERT_TRUE(std::equal(data.begin(), data.end(), model.begin() + offset));
        }
    }
    if (m_tl->ep.live.flush != nullptr) {
        ASSERT_EQ(UCS_OK, finish({&w}, [&](uct_completion_t *c) { return ep->ops->flush(ep, c); }));
    }

    bytes shown;
    child.link().put_number(1);
    ASSERT_TRUE(child.link().get(shown));
    EXPECT_TRUE(shown == model);
    child.link().put_number(2);
    EXPECT_EQ(0, child.wait({&w}));
    if (rkey != nullptr) {
        m_tl->md.rkey_release(rkey);
    }
}

INSTANTIATE_TEST_SUITE_P(transports, process_rma_test,
                         testing::ValuesIn(transports(copies_between_processes)), test_name);

/* ---- sync words ---- */

class process_sync_test : public process_test {
};

TEST_P(process_sync_test, both_processes_count_on_one_word)
{
    constexpr uint64_t TIMES = 100000;
    peer_process child([this](channel &parent) {
        worker w(m_tl);
        ucs_atomic_u64_t *word;
        uint32_t index;

        ASSERT_EQ(UCS_OK, w.status());
        ASSERT_EQ(UCS_OK, m_tl->iface.sync_alloc(w.iface, &index, &word));
        parent.put_contact(w.where());
        parent.put_number(index);
        ASSERT_TRUE(run_until({&w}, [&]() { return word->load() != 0; }));
        for (uint64_t i = 0; i < TIMES; ++i) {
            word->fetch_add(1);
        }
        EXPECT_TRUE(run_until({&w}, [&]() { return word->load() == 2 * TIMES + 1; }))
            << word->load();
    });

    worker w(m_tl);
    ucs_atomic_u64_t *word = nullptr;
    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep         = w.connect(child.link().get_contact());
    const uint32_t index = static_cast<uint32_t>(child.link().get_number());
    ASSERT_EQ(UCS_OK, persist({&w}, [&]() { return ep->ops->sync_map(ep, index, &word); }));
    word->fetch_add(1);
    for (uint64_t i = 0; i < TIMES; ++i) {
        word->fetch_add(1);
    }
    EXPECT_EQ(0, child.wait({&w}));
}

INSTANTIATE_TEST_SUITE_P(transports, process_sync_test, testing::ValuesIn(transports(shares_words)),
                         test_name);

/* ---- waiting ---- */

class process_wake_test : public process_test {
protected:
    /* Waits without progress; false: nothing came within the limit. */
    static bool wait_armed(worker &w)
    {
        const int fd              = w.tl->iface.event_fd(w.iface);
        const ucs_status_t status = w.tl->iface.event_arm(w.iface);

        if (status == UCS_ERR_BUSY) {
            return true;
        }
        EXPECT_EQ(UCS_OK, status);
        struct pollfd event = {fd, POLLIN, 0};
        return poll(&event, 1, LIMIT_S * 1000) == 1;
    }
};

/* Messages at random distances to a receiver that sleeps whenever it has nothing to do: each wakes
 * it, or it does not fall asleep. Both directions, so that both are receivers. */
TEST_P(process_wake_test, no_wake_up_is_lost)
{
    const uint64_t NUM_ROUNDS = ucp_test::is_polled(m_tl->name) ? 300 : 3000;
    auto play = [this, NUM_ROUNDS](worker &w, uct_ep_t *ep, bool begins, uint64_t seed) {
        seeded_random rnd(seed);
        uint64_t received = 0;
        w.on_message(ID_DATA, [&](const uint8_t *data, size_t) {
            EXPECT_EQ(received, number_of(data));
            ++received;
        });
        for (uint64_t i = 0; i < NUM_ROUNDS; ++i) {
            if (begins || (i != 0)) {
                for (uint64_t spin = rnd.below(rnd.one_in(8) ? 20000 : 600); spin > 0; --spin) {
                    asm volatile("" ::: "memory");
                }
                const uint64_t number = begins ? i : i - 1;
                if (send({&w}, ep, first_way(m_tl), ID_DATA, numbered(number, 8)) != UCS_OK) {
                    ADD_FAILURE() << "message " << number;
                    return;
                }
            }
            while (received <= i) {
                if ((w.progress() == 0) && !wait_armed(w)) {
                    ADD_FAILURE() << "message " << i << " did not wake the receiver";
                    return;
                }
            }
        }
        if (!begins) {
            EXPECT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_DATA,
                                   numbered(NUM_ROUNDS - 1, 8)));
        }
    };

    peer_process child([&](channel &parent) {
        worker w(m_tl);
        ASSERT_EQ(UCS_OK, w.status());
        parent.put_contact(w.where());
        play(w, w.connect(parent.get_contact()), false, 2);
        EXPECT_EQ(1u, parent.get_number());
    });
    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    child.link().put_contact(w.where());
    play(w, w.connect(child.link().get_contact()), true, 1);
    child.link().put_number(1);
    EXPECT_EQ(0, child.wait({&w}));
}

/* A sleeping worker hears of a peer's death. */
TEST_P(process_wake_test, death_wakes)
{
    peer_process child([this](channel &parent) {
        worker w(m_tl);
        ASSERT_EQ(UCS_OK, w.status());
        parent.put_contact(w.where());
        w.on_message(ID_DATA, [&](const uint8_t *, size_t) { parent.put_number(1); });
        run_until({&w}, []() { return false; }, 3 * LIMIT_S);
    });
    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(child.link().get_contact());
    ASSERT_EQ(UCS_OK, send({&w}, ep, first_way(m_tl), ID_DATA, numbered(0, 8)));
    ASSERT_EQ(1u, child.link().get_number());
    child.kill_now();
    for (unsigned i = 0; w.failed.empty() && (i < 100000); ++i) {
        if ((w.progress() == 0) && !wait_armed(w)) {
            break;
        }
    }
    EXPECT_EQ(1u, w.failed.size());
}

INSTANTIATE_TEST_SUITE_P(transports, process_wake_test, testing::ValuesIn(transports(wakes)),
                         test_name);

/* ---- death, where somebody asks ---- */

class process_check_test : public process_test {
};

TEST_P(process_check_test, check_tells_the_living_from_the_dead)
{
    peer_process child([this](channel &parent) {
        worker w(m_tl);
        ASSERT_EQ(UCS_OK, w.status());
        parent.put_contact(w.where());
        run_until({&w}, []() { return false; }, 3 * LIMIT_S);
    });
    worker w(m_tl);
    ASSERT_EQ(UCS_OK, w.status());
    uct_ep_t *ep = w.connect(child.link().get_contact());

    for (unsigned i = 0; i < 1000; ++i) {
        ASSERT_EQ(UCS_OK, ep->ops->check(ep));
        w.progress();
    }
    ASSERT_TRUE(run_until({&w}, [&]() { return ep->state == UCT_EP_LIVE; }));
    EXPECT_TRUE(w.failed.empty());

    child.kill_now();
    EXPECT_TRUE(run_until({&w}, [&]() {
        if (ep->state != UCT_EP_FAILED) {
            (void)ep->ops->check(ep);
        }
        return !w.failed.empty();
    }));
    for (unsigned i = 0; i < 100; ++i) {
        (void)ep->ops->check(ep);
        w.progress();
    }
    ASSERT_EQ(1u, w.failed.size());
    if (ucp_test::is_polled(m_tl->name)) { /* some of these have nothing that tells of a death */
        EXPECT_TRUE((w.failed[0].second == UCS_ERR_CONNECTION_RESET) ||
                    (w.failed[0].second == UCS_ERR_ENDPOINT_TIMEOUT)) << w.failed[0].second;
    } else {
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, w.failed[0].second);
    }
}

INSTANTIATE_TEST_SUITE_P(transports, process_check_test,
                         testing::ValuesIn(transports(detects_death)), test_name);

} // namespace
