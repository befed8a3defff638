/* Halyard: what the tests of ucp share: environments, contexts, pairs of workers, and the variants
 * of transports and protocols over which each test of an operation runs.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCP_WORLD_H
#define TEST_GTEST_UCP_WORLD_H

#include <gtest/gtest.h>

#include <ucp/api/ucp.h>
#include <ucp/internals.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace ucp_test {

using settings = std::vector<std::pair<std::string, std::string>>;
using bytes    = std::vector<uint8_t>;

/* Environment variables for the life of the object. */
class environment {
public:
    environment() = default;
    explicit environment(const settings &values)
    {
        set(values);
    }
    ~environment();
    environment(const environment &)            = delete;
    environment &operator=(const environment &) = delete;

    void set(const settings &values);

private:
    settings m_before;                    /* to be set again */
    std::vector<std::string> m_not_there; /* to be removed again */
};

/* Catches log messages of level warn and more severe; those that nobody took fail the test. */
class log_catcher {
public:
    log_catcher();
    ~log_catcher();
    log_catcher(const log_catcher &)            = delete;
    log_catcher &operator=(const log_catcher &) = delete;

    /* The lines so far; they count as expected. */
    std::vector<std::string> take();
};

/* One way to run a test. */
struct variant {
    std::string name;
    settings env;
    bool is_self; /* one worker that sends to itself */
    ucs_thread_mode_t mode;
};

/* Was the library built with what a transport needs? */
bool is_present(const char *transport);

/* Are these transports (in the form of UCX_TLS) over a provider that the user names and that has no
 * descriptor to sleep on? Who sleeps then looks for messages each millisecond. */
bool is_polled(const std::string &tls);

std::vector<variant> all_variants();
/* A few that differ most, for tests that take long. */
std::vector<variant> some_variants();
/* Does the variant send no message of some bytes whole? */
bool announces_all(const variant &variant);
/* Does it send by a network, whose receivers read announced messages by a key? */
bool is_network(const variant &variant);
std::string variant_name(const testing::TestParamInfo<variant> &info);

inline void PrintTo(const variant &value, std::ostream *out)
{
    *out << value.name;
}

/* Bytes that depend on a number. */
void fill(void *buffer, size_t length, uint64_t number);
bytes pattern(uint64_t number, size_t length);
/* The first place that differs, or -1. */
ptrdiff_t differs(const void *buffer, size_t length, uint64_t number);

/* A buffer with bytes around it that nobody may change. */
class guarded {
public:
    explicit guarded(size_t length);
    uint8_t *data()
    {
        return m_bytes.data() + GUARD;
    }
    size_t size() const
    {
        return m_bytes.size() - (2 * GUARD);
    }
    bool is_intact() const;

private:
    static constexpr size_t GUARD = 64;
    bytes m_bytes;
};

struct context_options {
    uint64_t features                      = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    size_t request_size                    = 0;
    ucp_request_init_callback_t init       = nullptr;
    ucp_request_cleanup_callback_t cleanup = nullptr;
};

class worker;

class context {
public:
    explicit context(const context_options &options = {});
    ~context();
    context(const context &)            = delete;
    context &operator=(const context &) = delete;

    ucp_context_h handle() const
    {
        return m_handle;
    }
    size_t request_size() const;

private:
    ucp_context_h m_handle = nullptr;
};

/* With its endpoints, which it closes before it goes. */
class worker {
public:
    explicit worker(const context &context, ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE);
    ~worker();
    worker(const worker &)            = delete;
    worker &operator=(const worker &) = delete;

    ucp_worker_h handle() const
    {
        return m_handle;
    }
    bytes address() const;
    ucp_ep_h connect(const worker &peer,
                     ucp_err_handling_mode_t err_mode = UCP_ERR_HANDLING_MODE_NONE,
                     ucp_err_handler_cb_t cb = nullptr, void *arg = nullptr);
    /* The endpoint is not this object's to close any more. */
    void forget(ucp_ep_h ep);
    /* Destroys it with whatever is in flight. */
    void destroy();
    unsigned progress()
    {
        return ucp_worker_progress(m_handle);
    }

private:
    ucp_worker_h m_handle = nullptr;
    std::vector<ucp_ep_h> m_eps;
};

/* Two workers, or one, with an endpoint from the first to the second. */
class pair {
public:
    explicit pair(const variant &variant, const context_options &options = {});
    ~pair();
    pair(const pair &)            = delete;
    pair &operator=(const pair &) = delete;

    worker &sender()
    {
        return *m_workers.front();
    }
    worker &receiver()
    {
        return *m_workers.back();
    }
    ucp_ep_h ep() const
    {
        return m_ep;
    }
    /* From the receiver to the sender, made on first use. */
    ucp_ep_h ep_back();
    const context &ctx() const
    {
        return m_context;
    }
    unsigned progress();
    /* Until the condition holds; a failure where it takes too long. */
    void progress_until(const std::function<bool()> &condition);
    /* Until nothing more happens. */
    void settle();
    /* The end of an operation, from what its call returned; frees the request. *info: of a tag
     * receive that did not end in its call. */
    ucs_status_t wait(ucs_status_ptr_t ptr, ucp_tag_recv_info_t *info = nullptr);

    ucs_status_ptr_t send(const void *buffer, size_t length, ucp_tag_t tag, bool sync = false);
    ucs_status_ptr_t receive(void *buffer, size_t length, ucp_tag_t tag, ucp_tag_t mask = ~0ull,
                             ucp_tag_recv_info_t *info = nullptr);

private:
    environment m_environment;
    context m_context;
    std::vector<std::unique_ptr<worker>> m_workers;
    ucp_ep_h m_ep      = nullptr;
    ucp_ep_h m_ep_back = nullptr;
};

/* How an operation ended, filled by the callbacks below, whose user data it is. */
struct ending {
    int calls                = 0;
    void *request            = nullptr;
    ucs_status_t status      = UCS_INPROGRESS;
    ucp_tag_recv_info_t info = {};
    bool free_request        = true; /* in the callback */
    std::function<void()> action;    /* at the end of the callback */
};

void on_send(void *request, ucs_status_t status, void *user_data);
void on_receive(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                void *user_data);

/* Sends one tagged message after the other until one finds no room: that one's request. *count: of
 * all that were sent. */
void *send_until_queued(ucp_ep_h ep, const bytes &data, ucp_tag_t tag, ending *sent,
                        unsigned *count);

/* Parameters with a callback. */
ucp_request_param_t send_param(ending *end, uint32_t more_mask = 0);
ucp_request_param_t receive_param(ending *end, uint32_t more_mask = 0);

/* What a function writes to a stream. */
std::string printed(const std::function<void(FILE *)> &print);

/* What a worker says that it has counted under a name; 0 where it says nothing. */
uint64_t counted(worker &worker, const std::string &name);

/* Fixture of the tests that run over variants. */
class variant_test : public testing::TestWithParam<variant> {
protected:
    void TearDown() override;
    std::vector<std::string> take_log()
    {
        return m_log.take();
    }
    /* Lengths at which something may change for these lanes, and their neighbours. */
    static std::vector<size_t> lengths(ucp_ep_h ep, size_t max);
    /* Nothing is in flight or kept any more. */
    static void expect_clean(pair &pair);

private:
    log_catcher m_log;
};

} // namespace ucp_test

#endif
