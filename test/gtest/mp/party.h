/* Halyard: what a process is in tests of connections: a context, a worker, and at most one
 * endpoint, whose failures are noted.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_PARTY_H
#define TEST_GTEST_MP_PARTY_H

#include "processes.h"

#include <ucp/server.h>

namespace mp {

class party {
public:
    explicit party(self &me, const ucp_test::context_options &options = {}) :
        m_me(me), m_context(options), m_worker(m_context)
    {
    }

    ucp_test::worker &get()
    {
        return m_worker;
    }

    ucp_context_h context() const
    {
        return m_context.handle();
    }

    void until(const std::function<bool()> &condition, const char *what)
    {
        m_me.waits_for("%s", what);
        const double end = now_s() + 0.8 * limit_s();
        while (!condition()) {
            m_worker.progress();
            ASSERT_LT(now_s(), end) << what;
        }
    }

    ucs_status_t wait(void *request)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_STATUS(request);
        }
        until([=] { return ucp_request_is_completed(request) != 0; }, "a request");
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }

    /* The endpoint that the parameters name, with an error handler. */
    void make_ep(ucp_ep_params_t &params)
    {
        params.field_mask |=
            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb  = server_test::on_failure;
        params.err_handler.arg = &failed;
        ASSERT_EQ(UCS_OK, ucp_ep_create(m_worker.handle(), &params, &ep));
    }

    void *send(const ucp_test::bytes &data, ucp_tag_t tag)
    {
        const ucp_request_param_t param = {};
        return ucp_tag_send_nbx(ep, data.data(), data.size(), tag, &param);
    }

    void receive(ucp_test::bytes &data, ucp_tag_t tag)
    {
        const ucp_request_param_t param = {};
        EXPECT_EQ(UCS_OK, wait(ucp_tag_recv_nbx(m_worker.handle(), data.data(), data.size(), tag,
                                                ~0ull, &param)));
    }

    ucp_ep_h ep = nullptr;
    server_test::failure failed;

protected:
    self &m_me;

private:
    ucp_test::context m_context;
    ucp_test::worker m_worker;
};

} // namespace mp

#endif
