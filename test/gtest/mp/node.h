/* Halyard: what a process of a test holds of the library: a context, a worker, endpoints.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_NODE_H
#define TEST_GTEST_MP_NODE_H

#include "processes.h"

#include <map>
#include <ucp/api/ucp.h>

namespace mp {

/* Data that tells its place: byte i of message `id`. */
void fill(void *data, size_t length, uint64_t id);

/* Offset of the first byte that differs from fill(), or -1. */
ssize_t find_difference(const void *data, size_t length, uint64_t id);

/* How often the error handler of an endpoint ran, and with what. */
struct ep_errors {
    unsigned     count  = 0;
    ucs_status_t status = UCS_OK;
    double       time_s = 0;
};

class node {
public:
    explicit node(self &me, ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE);
    ~node();
    node(const node &) = delete;
    node &operator=(const node &) = delete;

    ucp_context_h context() const
    {
        return m_context;
    }

    ucp_worker_h worker() const
    {
        return m_worker;
    }

    /* Processes, this one among them. */
    unsigned count() const
    {
        return m_me.count();
    }

    /* Puts the worker's address on the board. */
    void publish();

    /* An endpoint to the worker whose address stands on the board; waits until there is one of at
     * least that serial number. With an error handler and error mode PEER. */
    ucp_ep_h connect(unsigned index, uint32_t serial = 1);

    /* publish() and connect() to all; own_ep() of oneself too. */
    void connect_all();

    ucp_ep_h ep(unsigned index) const
    {
        return m_eps.at(index);
    }

    const ep_errors &errors(ucp_ep_h ep) const
    {
        return m_errors.at(ep);
    }

    /* Closes an endpoint and waits for it. */
    void close(ucp_ep_h ep, unsigned flags = 0);

    /* One progress; gives the processor away where nothing happened, since others need it. */
    unsigned progress();

    /* Progress until condition() is true. */
    template <typename condition_t>
    void until(const condition_t &condition)
    {
        while (!condition()) {
            progress();
        }
    }

    /* The same, but for seconds of this process at most; whether the condition came true. */
    template <typename condition_t>
    bool until(const condition_t &condition, double seconds)
    {
        own_time time;

        while (!condition()) {
            if (time.s() > seconds) {
                return false;
            }
            progress();
        }
        return true;
    }

    /* Waits for a request, frees it, returns its status. */
    ucs_status_t wait(ucs_status_ptr_t request, ucp_tag_recv_info_t *info = nullptr);

    ucs_status_ptr_t send(ucp_ep_h ep, const void *data, size_t length, uint64_t tag);
    ucs_status_ptr_t recv(void *data, size_t length, uint64_t tag, uint64_t mask = UINT64_MAX);

    /* Until all processes have called it as often as this one. */
    void barrier();

private:
    static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status);

    self                         &m_me;
    ucp_context_h                 m_context = nullptr;
    ucp_worker_h                  m_worker  = nullptr;
    std::map<unsigned, ucp_ep_h>  m_eps;
    std::map<ucp_ep_h, ep_errors> m_errors;
    unsigned                      m_idle = 0;
};

/* Word of a slot that node::barrier uses. */
constexpr unsigned BARRIER_WORD = SLOT_WORDS - 1;

} // namespace mp

#endif
