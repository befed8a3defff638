/* Halyard: what the tests of listeners share: socket addresses, a server, and a fixture with a
 * client and a server that are two workers of one thread unless said otherwise; everything advances
 * by ucp_worker_progress alone.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCP_SERVER_H
#define TEST_GTEST_UCP_SERVER_H

#include <ucp/world.h>

#include <seed.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace server_test {

using namespace ucp_test;

constexpr auto PATIENCE = std::chrono::seconds(20);

struct address {
    struct sockaddr_storage storage = {};

    address() = default;
    explicit address(int family, uint16_t port = 0)
    {
        storage.ss_family = (sa_family_t)family;
        if (family == AF_INET) {
            auto *in            = reinterpret_cast<struct sockaddr_in *>(&storage);
            in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            in->sin_port        = htons(port);
        } else {
            auto *in      = reinterpret_cast<struct sockaddr_in6 *>(&storage);
            in->sin6_addr = in6addr_loopback;
            in->sin6_port = htons(port);
        }
    }

    const struct sockaddr *get() const
    {
        return reinterpret_cast<const struct sockaddr *>(&storage);
    }
    socklen_t length() const
    {
        return (storage.ss_family == AF_INET) ? sizeof(struct sockaddr_in)
                                              : sizeof(struct sockaddr_in6);
    }
    uint16_t port() const
    {
        return ntohs((storage.ss_family == AF_INET)
                         ? reinterpret_cast<const struct sockaddr_in *>(&storage)->sin_port
                         : reinterpret_cast<const struct sockaddr_in6 *>(&storage)->sin6_port);
    }
    bool operator==(const address &other) const
    {
        return memcmp(&storage, &other.storage, length()) == 0;
    }
};

inline bool has_ipv6()
{
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const address any(AF_INET6);
    const bool ok = (fd >= 0) && (bind(fd, any.get(), any.length()) == 0);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* A message as it is sent: by hand, so that the test knows the format by itself. */
inline bytes question(const bytes &worker_address, uint16_t type = 1)
{
    bytes data(32);
    const uint32_t magic = 0x6e436148u, length = (uint32_t)worker_address.size();
    const uint32_t ordinal = 0x80000002u;
    const uint16_t version = 1;
    memcpy(&data[0], &magic, 4);
    memcpy(&data[4], &version, 2);
    memcpy(&data[6], &type, 2);
    memcpy(&data[8], &length, 4);
    memcpy(&data[24], &ordinal, 4);
    data.insert(data.end(), worker_address.begin(), worker_address.end());
    return data;
}

/* A listener, and the clients that asked and were not answered yet. */
class server {
public:
    server(worker &on, const address &where)
    {
        ucp_listener_params_t params;
        memset(&params, 0xee, sizeof(params));
        params.field_mask =
            UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
        params.sockaddr.addr    = where.get();
        params.sockaddr.addrlen = where.length();
        params.conn_handler.cb  = [](ucp_conn_request_h request, void *arg) {
            static_cast<server *>(arg)->requests.push_back(request);
        };
        params.conn_handler.arg = this;
        status                  = ucp_listener_create(on.handle(), &params, &m_handle);
    }
    ~server()
    {
        for (ucp_conn_request_h request : requests) {
            EXPECT_EQ(UCS_OK, ucp_listener_reject(m_handle, request));
        }
        destroy();
    }
    server(const server &)            = delete;
    server &operator=(const server &) = delete;

    void destroy()
    {
        if (m_handle != nullptr) {
            ucp_listener_destroy(std::exchange(m_handle, nullptr));
        }
    }
    /* It has gone with its worker. */
    void forget()
    {
        m_handle = nullptr;
    }
    address where() const
    {
        ucp_listener_attr_t attr;
        memset(&attr, 0xee, sizeof(attr));
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        EXPECT_EQ(UCS_OK, ucp_listener_query(m_handle, &attr));
        EXPECT_EQ((uint64_t)UCP_LISTENER_ATTR_FIELD_SOCKADDR, attr.field_mask);
        address result;
        result.storage = attr.sockaddr;
        return result;
    }
    ucp_listener_h handle() const
    {
        return m_handle;
    }
    ucp_conn_request_h take()
    {
        ucp_conn_request_h request = requests.front();
        requests.erase(requests.begin());
        return request;
    }

    ucs_status_t status;
    std::vector<ucp_conn_request_h> requests;

private:
    ucp_listener_h m_handle = nullptr;
};

/* What an endpoint's error handler was told. */
struct failure {
    int calls           = 0;
    ucs_status_t status = UCS_OK;
    ucp_ep_h ep         = nullptr;
    std::function<void(ucp_ep_h)> action;
};

inline void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    auto *failed = static_cast<failure *>(arg);
    ++failed->calls;
    failed->status = status;
    failed->ep     = ep;
    if (failed->action) {
        failed->action(ep);
    }
}

struct place {
    std::string name;
    settings env;
    int family;
    ucs_thread_mode_t mode;
    bool is_self; /* client and server are one worker */
};

inline void PrintTo(const place &value, std::ostream *out)
{
    *out << value.name;
}

class server_fixture : public testing::TestWithParam<place> {
protected:
    server_fixture() : m_environment(GetParam().env) {}

    void SetUp() override
    {
        if ((GetParam().family == AF_INET6) && !has_ipv6()) {
            GTEST_SKIP() << "this machine has no IPv6";
        }
        context_options options;
        options.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP | UCP_FEATURE_AM | UCP_FEATURE_RMA |
                           UCP_FEATURE_AMO64 | UCP_FEATURE_STREAM;
        m_context        = std::make_unique<context>(options);
        m_workers.push_back(std::make_unique<worker>(*m_context, GetParam().mode));
        if (!GetParam().is_self) {
            m_workers.push_back(std::make_unique<worker>(*m_context, GetParam().mode));
        }
    }

    void TearDown() override
    {
        for (auto &[owner, ep] : m_eps) {
            close(ep, UCP_EP_CLOSE_MODE_FLUSH);
        }
        m_workers.clear();
        m_context.reset();
        EXPECT_TRUE(m_log.take().empty());
    }

    worker &client()
    {
        return *m_workers.front();
    }
    worker &host()
    {
        return *m_workers.back();
    }
    std::unique_ptr<server> serve(const address &where = address(GetParam().family))
    {
        auto result = std::make_unique<server>(host(), where);
        EXPECT_EQ(UCS_OK, result->status);
        return result;
    }

    unsigned progress()
    {
        unsigned count = 0;
        for (auto &each : m_workers) {
            count += each->progress();
        }
        return count;
    }

    void until(const std::function<bool()> &condition)
    {
        const auto end = std::chrono::steady_clock::now() + PATIENCE;
        while (!condition()) {
            progress();
            ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited in vain";
        }
    }

    ucs_status_t wait(void *request)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_STATUS(request);
        }
        until([=] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }

    static ucp_ep_params_t client_params(const address &where, failure *failed)
    {
        ucp_ep_params_t params;
        memset(&params, 0xee, sizeof(params));
        params.field_mask       = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr.addr    = where.get();
        params.sockaddr.addrlen = where.length();
        add_handler(params, failed);
        return params;
    }

    static void add_handler(ucp_ep_params_t &params, failure *failed)
    {
        if (failed != nullptr) {
            params.field_mask |=
                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
            params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler.cb  = on_failure;
            params.err_handler.arg = failed;
        }
    }

    ucp_ep_h create(worker &owner, const ucp_ep_params_t &params)
    {
        ucp_ep_h ep = nullptr;
        EXPECT_EQ(UCS_OK, ucp_ep_create(owner.handle(), &params, &ep));
        m_eps.emplace_back(&owner, ep);
        return ep;
    }

    ucp_ep_h connect(const address &where, failure *failed = nullptr)
    {
        return create(client(), client_params(where, failed));
    }

    ucp_ep_h accept(worker &owner, ucp_conn_request_h request, failure *failed = nullptr)
    {
        ucp_ep_params_t params;
        memset(&params, 0xee, sizeof(params));
        params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = request;
        add_handler(params, failed);
        return create(owner, params);
    }

    ucp_ep_h accept_one(server &server, failure *failed = nullptr)
    {
        until([&] { return !server.requests.empty(); });
        return accept(host(), server.take(), failed);
    }

    /* Not this object's any more. */
    void forget(ucp_ep_h ep)
    {
        for (auto each = m_eps.begin(); each != m_eps.end(); ++each) {
            if (each->second == ep) {
                m_eps.erase(each);
                return;
            }
        }
    }

    void close(ucp_ep_h ep, unsigned mode)
    {
        EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nb(ep, mode)));
    }
    void close_now(ucp_ep_h ep, unsigned mode)
    {
        forget(ep);
        close(ep, mode);
    }

    static void *send(ucp_ep_h ep, const bytes &data, ucp_tag_t tag, ending *end = nullptr)
    {
        ucp_request_param_t param = {};
        if (end != nullptr) {
            param = send_param(end);
        }
        return ucp_tag_send_nbx(ep, data.data(), data.size(), tag, &param);
    }

    static void *receive(worker &on, bytes &data, ucp_tag_t tag)
    {
        ucp_request_param_t param = {};
        return ucp_tag_recv_nbx(on.handle(), data.data(), data.size(), tag, ~0ull, &param);
    }

    /* One message each way. */
    void exchange(ucp_ep_h client_ep, ucp_ep_h server_ep, size_t length = 1000)
    {
        const bytes there = pattern(1, length), back = pattern(2, length);
        bytes got_there(length), got_back(length);
        void *first  = receive(host(), got_there, 77);
        void *second = receive(client(), got_back, 78);
        void *ping   = send(client_ep, there, 77);
        void *pong   = send(server_ep, back, 78);
        EXPECT_EQ(UCS_OK, wait(first));
        EXPECT_EQ(UCS_OK, wait(second));
        EXPECT_EQ(UCS_OK, wait(ping));
        EXPECT_EQ(UCS_OK, wait(pong));
        EXPECT_EQ(there, got_there);
        EXPECT_EQ(back, got_back);
    }

    std::vector<std::string> take_log()
    {
        return m_log.take();
    }

private:
    log_catcher m_log;
    environment m_environment;

protected:
    std::unique_ptr<context> m_context;
    std::vector<std::unique_ptr<worker>> m_workers;
    std::vector<std::pair<worker *, ucp_ep_h>> m_eps;
};

inline const place places[] = {
    {"ipv4", {}, AF_INET, UCS_THREAD_MODE_SINGLE, false},
    {"ipv6", {}, AF_INET6, UCS_THREAD_MODE_SINGLE, false},
    {"multi", {}, AF_INET, UCS_THREAD_MODE_MULTI, false},
    {"rndv", {{"UCX_RNDV_THRESH", "0"}}, AF_INET, UCS_THREAD_MODE_SINGLE, false},
    {"one_worker", {}, AF_INET, UCS_THREAD_MODE_SINGLE, true}};

inline std::string place_name(const testing::TestParamInfo<place> &info)
{
    return info.param.name;
}

} // namespace server_test

#endif
