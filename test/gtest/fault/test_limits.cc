/* Halyard: resources run out: each call to the system fails once, or from some moment on; there
 * are no descriptors left. Nothing crashes or hangs: functions return errors, requests end, all
 * that was made can be destroyed, and the other process, which lacks nothing, gets its requests
 * back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/node.h>
#include <mp/snapshot.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/compiler.h>

#include <cstdlib>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned POOR    = 0; /* where calls fail */
constexpr unsigned HEALTHY = 1;

constexpr size_t LENGTHS[]       = {8, 2000, 200000};
constexpr unsigned LOOKS_MIN     = 100; /* after which a message that lies ready is lost */
constexpr unsigned LOG_LINES_MAX = 5;  /* where something fails */
constexpr unsigned LOG_LINES_ALL = 10; /* where everything does */

/* Words of a slot. */
enum {
    WORD_CALLS, /* of the poor one: calls that were counted */
    WORD_SENT,  /* its sends have ended: sent_t */
    WORD_LOST,  /* of the poor one: messages that were sent and did not come */
    WORD_DONE   /* it waits for nothing any more, and has destroyed its worker */
};

enum sent_t {
    SENT_NOT_YET,
    SENT_WELL,
    SENT_WITH_ERRORS /* not all that is waited for will come */
};

/* The operations of one process, of which each may fail. */
class attempt {
public:
    explicit attempt(self &me) : m_me(me)
    {
        ucp_worker_params_t worker_params = {};
        ucp_params_t params               = {};
        ucp_ep_params_t ep_params         = {};
        ucp_address_t *address;
        size_t length;

        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        if (ucp_init(&params, nullptr, &m_context) != UCS_OK) {
            m_context = nullptr;
            return;
        }
        if (ucp_worker_create(m_context, &worker_params, &m_worker) != UCS_OK) {
            m_worker = nullptr;
            return;
        }
        if (ucp_worker_get_address(m_worker, &address, &length) != UCS_OK) {
            return;
        }
        EXPECT_LE(length, sizeof(me.own().address));
        memcpy(me.own().address, address, length);
        me.own().address_serial = 1;
        ucp_worker_release_address(m_worker, address);

        me.waits_for("the other's address");
        while (other().address_serial == 0) {
            if ((other().words[WORD_SENT] != SENT_NOT_YET) || (other().words[WORD_DONE] != 0)) {
                return; /* it got nowhere */
            }
            progress();
        }
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                               UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        ep_params.err_mode   = UCP_ERR_HANDLING_MODE_PEER;
        ep_params.address    = reinterpret_cast<const ucp_address_t *>(other().address);
        if (ucp_ep_create(m_worker, &ep_params, &m_ep) != UCS_OK) {
            m_ep = nullptr;
        }
    }

    void exchange()
    {
        const ucp_request_param_t param = {};

        for (size_t length : LENGTHS) {
            if (m_worker != nullptr) {
                m_in.emplace_back(length);
                m_recvs.push_back(ucp_tag_recv_nbx(m_worker, m_in.back().data(), length, length,
                                                   UINT64_MAX, &param));
            }
            if (m_ep != nullptr) {
                m_out.emplace_back(length);
                mp::fill(m_out.back().data(), length, length);
                m_sends.push_back(ucp_tag_send_nbx(m_ep, m_out.back().data(), length, length,
                                                   &param));
            }
        }
    }

    /* Until everything has ended, or nothing more can come. Who cannot rely on any call may give up
     * when it has been quiet for a while. */
    void wait(bool may_give_up)
    {
        const double quiet_max_s = 0.2 * mp::slowness();
        mp::own_time quiet;

        m_me.waits_for("sends to end");
        while (!have_ended(m_sends) && (other().words[WORD_DONE] == 0) &&
               (!may_give_up || (quiet.s() < quiet_max_s))) {
            quiet = (progress() > 0) ? mp::own_time() : quiet;
        }
        m_me.own().words[WORD_SENT] = (are_ok(m_sends) ? SENT_WELL : SENT_WITH_ERRORS);

        m_me.waits_for("receives to end");
        unsigned looks = 0; /* in vain, at what the other one had sent before */
        quiet          = mp::own_time();
        while (!have_ended(m_recvs) && (other().words[WORD_DONE] == 0)) {
            const uint64_t sent = other().words[WORD_SENT]; /* before the look */

            if (sent == SENT_WITH_ERRORS) {
                break;
            }
            if ((progress() > 0) || ((sent == SENT_NOT_YET) && are_ok(m_sends))) {
                looks = 0;
                quiet = mp::own_time();
                continue;
            }
            looks += (sent == SENT_WELL);
            if ((m_me.index() == POOR) && (quiet.s() > quiet_max_s) &&
                ((sent != SENT_WELL) || (looks >= LOOKS_MIN))) {
                m_me.own().words[WORD_LOST] = (sent == SENT_WELL);
                break;
            }
        }
    }

    /* The other one's worker is gone: sends end, what nobody sent is taken back. */
    void expect_end()
    {
        if (m_worker == nullptr) {
            return;
        }
        m_me.waits_for("sends to one that gave up to end");
        while (!have_ended(m_sends)) {
            progress();
        }
        for (ucs_status_ptr_t request : m_recvs) {
            ucp_request_cancel(m_worker, request);
        }
        m_me.waits_for("receives from one that gave up to end");
        while (!have_ended(m_recvs)) {
            progress();
        }
    }

    /* What the other one sent before it left lies here and is taken in. */
    void finish()
    {
        m_me.waits_for("the rest, where no call fails");
        while (!have_ended(m_sends) || !have_ended(m_recvs)) {
            progress();
        }
    }

    /* What ended well is right. */
    void check() const
    {
        for (size_t i = 0; i < m_recvs.size(); ++i) {
            if (UCS_PTR_IS_PTR(m_recvs[i]) &&
                (ucp_request_check_status(m_recvs[i]) == UCS_OK)) {
                EXPECT_EQ(-1, mp::find_difference(m_in[i].data(), m_in[i].size(), LENGTHS[i]));
            }
        }
    }

    bool all_ok() const
    {
        return are_ok(m_sends) && are_ok(m_recvs);
    }

    std::string text() const
    {
        std::string text;
        for (const auto *list : {&m_sends, &m_recvs}) {
            for (ucs_status_ptr_t request : *list) {
                text += UCS_PTR_IS_PTR(request)
                            ? ucs_status_string(ucp_request_check_status(request))
                            : ucs_status_string(UCS_PTR_RAW_STATUS(request));
                text += ", ";
            }
        }
        return text;
    }

    /* Without a word to the other one. */
    void destroy()
    {
        for (const auto *list : {&m_sends, &m_recvs}) {
            for (ucs_status_ptr_t request : *list) {
                if (UCS_PTR_IS_PTR(request) && ucp_request_is_completed(request)) {
                    ucp_request_free(request);
                }
            }
        }
        if (m_worker != nullptr) {
            ucp_worker_destroy(m_worker);
        }
        if (m_context != nullptr) {
            ucp_cleanup(m_context);
        }
    }

private:
    mp::slot &other() const
    {
        return m_me.at(1 - m_me.index());
    }

    unsigned progress()
    {
        const unsigned count = (m_worker != nullptr) ? ucp_worker_progress(m_worker) : 0;

        if (count == 0) {
            sched_yield();
        }
        return count;
    }

    static bool are_ok(const std::vector<ucs_status_ptr_t> &list)
    {
        for (ucs_status_ptr_t request : list) {
            if (UCS_PTR_IS_ERR(request) ||
                (UCS_PTR_IS_PTR(request) && (ucp_request_check_status(request) != UCS_OK))) {
                return false;
            }
        }
        return list.size() == sizeof(LENGTHS) / sizeof(LENGTHS[0]);
    }

    static bool have_ended(const std::vector<ucs_status_ptr_t> &list)
    {
        for (ucs_status_ptr_t request : list) {
            if (UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request)) {
                return false;
            }
        }
        return true;
    }

    self                             &m_me;
    ucp_context_h                     m_context = nullptr;
    ucp_worker_h                      m_worker  = nullptr;
    ucp_ep_h                          m_ep      = nullptr;
    std::vector<std::vector<uint8_t>> m_in, m_out;
    std::vector<ucs_status_ptr_t>     m_sends, m_recvs;
};

void healthy(self &me)
{
    attempt a(me);

    a.exchange();
    a.wait(false);
    if (me.at(POOR).words[WORD_DONE] != 0) {
        a.expect_end();
    }
    a.check();
    a.destroy();
    me.own().words[WORD_DONE] = 1;
}

void poor(self &me, const std::string &faults)
{
    uint64_t calls = 0;

    ASSERT_EQ(UCS_OK, ucs_fault_set_list(faults.c_str()));
    attempt a(me);
    a.exchange();
    a.wait(faults.back() == '+');
    (void)ucs_fault_query("*", &calls, nullptr);
    me.own().words[WORD_CALLS] = calls;
    if (faults == "*:0") {
        a.finish();
        EXPECT_TRUE(a.all_ok()) << a.text();
    }
    a.check();
    a.destroy();
    me.own().words[WORD_DONE] = 1;
}

/* Returns the calls that were made. */
uint64_t run(const std::string &faults, unsigned log_lines_max = LOG_LINES_MAX)
{
    processes both(2);

    both.start(POOR, [&](self &me) { poor(me, faults); });
    both.start(HEALTHY, [&](self &me) { healthy(me); });
    EXPECT_TRUE(both.join()) << "UCX_FAULT=" << faults;
    EXPECT_LE(both.log_lines(), log_lines_max) << "UCX_FAULT=" << faults << "\n" << both.log();
    if (both.at(POOR).words[WORD_LOST] != 0) {
        EXPECT_NE(std::string::npos, both.log().find("ERROR"))
            << "a message was lost without a word, UCX_FAULT=" << faults;
    }
    return both.at(POOR).words[WORD_CALLS];
}

} // namespace

TEST(limits, each_call_fails_once)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "its waits are too short for a sanitizer";
#endif
    const uint64_t calls = run("*:0");

    printf("[          ] %u calls\n", (unsigned)calls);
    EXPECT_GT(calls, 20u);
    for (uint64_t k = 1; (k <= calls) && !HasFailure(); ++k) {
        run("*:" + std::to_string(k));
    }
}

/* With a sanitizer, where each process costs much, every third one. */
TEST(limits, each_call_and_all_after_it_fail)
{
    const uint64_t calls = run("*:0");
    const unsigned step  = (mp::slowness() > 1) ? 5 : 1;

    for (uint64_t k = 1; (k <= calls) && !HasFailure(); k += step) {
        run("*:" + std::to_string(k) + "+", LOG_LINES_ALL);
    }
}

/* One kind of call never works. (Without accept4 and epoll_wait nobody is heard, but who is not
 * heard cannot tell that from a peer that is slow.) */
TEST(limits, each_kind_of_call_fails)
{
    for (const char *name : {"malloc", "calloc", "realloc", "memalign", "mmap", "madvise",
                             "memfd_create", "ftruncate", "fallocate", "open", "read", "fstat",
                             "fchmod", "fcntl", "socket", "bind", "listen", "connect",
                             "getsockopt", "sendmsg", "recvmsg", "epoll_create1", "epoll_ctl",
                             "process_vm_readv", "process_vm_writev"}) {
        run(std::string(name) + ":1+");
        if (HasFailure()) {
            break;
        }
    }
}

/* Some calls fail at random. */
TEST(limits, calls_fail_at_random)
{
    const unsigned seeds = static_cast<unsigned>(100 / mp::slowness());

    for (unsigned seed = 1; (seed <= seeds) && !HasFailure(); ++seed) {
        run("*:p0.02:seed" + std::to_string(seed), LOG_LINES_ALL); /* of some hundred */
    }
}

/* The receiver has no descriptor left for another connection: the sender is told. */
TEST(limits, no_descriptor_left)
{
    for (unsigned spare = 0; (spare < 6) && !HasFailure(); ++spare) {
        processes both(2);

        both.start(POOR, [&](self &me) {
            attempt a(me);

            const rlim_t used         = mp::count_descriptors() + spare;
            const struct rlimit limit = {used, used};
            setrlimit(RLIMIT_NOFILE, &limit);
            a.exchange();
            a.wait(false);
            a.check();
            a.destroy();
            me.own().words[WORD_DONE] = 1;
        });
        both.start(HEALTHY, [](self &me) { healthy(me); });
        EXPECT_TRUE(both.join()) << spare << " descriptors to spare";
        EXPECT_LE(both.log_lines(), LOG_LINES_MAX) << both.log();
    }
}
