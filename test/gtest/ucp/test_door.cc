/* Halyard: doors: workers whose address says where to ask for the address of their network, and who
 * asks there, in one process. Between hosts: mp/test_doors.cc.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/server.h>

#include <algorithm>

extern "C" {
#include <ucp/wire/address.h>
}

using namespace server_test;

namespace {

/* The workers of one process are near to each other; the address of one for other nodes leads to
 * its door only, and what is heard there leads by shared memory, too. */
class door : public testing::Test {
protected:
    door() :
        m_environment(settings{{"UCX_NET_ADDRESS", "auto"}, {"UCX_TLS", "self,mm,cma,ofi"}})
    {
    }

    void SetUp() override
    {
        m_context.reset(new context());
        m_asked.reset(new worker(*m_context));
        m_asking.reset(new worker(*m_context));
        if (!is_present("ofi")) {
            GTEST_SKIP() << "built without libfabric";
        }
        if (entry_of(address_of(*m_asked)).empty()) {
            GTEST_SKIP() << "this host has no address but that of the loopback";
        }
    }

    static bytes address_of(worker &worker)
    {
        ucp_worker_attr_t attr;
        attr.field_mask    = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
        attr.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
        EXPECT_EQ(UCS_OK, ucp_worker_query(worker.handle(), &attr));
        const auto *data = reinterpret_cast<const uint8_t *>(attr.address);
        bytes result(data, data + attr.address_length);
        ucp_worker_release_address(worker.handle(), attr.address);
        return result;
    }

    /* What it says of its door. */
    static bytes entry_of(const bytes &address)
    {
        ucp_address_info_t info;
        EXPECT_EQ(UCS_OK, ucp_address_unpack(address.data(), address.size(), &info));
        for (unsigned i = 0; i < info.num_entries; ++i) {
            if (info.entries[i].wire_id == ucp_address_wire_id("door")) {
                return bytes(info.entries[i].bytes, info.entries[i].bytes + info.entries[i].length);
            }
        }
        return bytes();
    }

    /* An address with another entry for its door. */
    static bytes with_entry(const bytes &address, const bytes &entry)
    {
        ucp_address_info_t info;
        EXPECT_EQ(UCS_OK, ucp_address_unpack(address.data(), address.size(), &info));
        info.num_entries = 1;
        info.entries[0]  = {ucp_address_wire_id("door"), (uint8_t)entry.size(), entry.data()};
        bytes result(ucp_address_pack(&info, nullptr));
        ucp_address_pack(&info, result.data());
        return result;
    }

    ucs_status_t make(const bytes &address, ucp_ep_h *ep_p)
    {
        ucp_ep_params_t params = {};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address         = reinterpret_cast<const ucp_address_t *>(address.data());
        params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb  = on_failure;
        params.err_handler.arg = &m_failed;
        return ucp_ep_create(m_asking->handle(), &params, ep_p);
    }

    ucp_ep_h connect(const bytes &address)
    {
        ucp_ep_h ep = nullptr;
        EXPECT_EQ(UCS_OK, make(address, &ep));
        return ep;
    }

    void until(const std::function<bool()> &condition)
    {
        const auto end = std::chrono::steady_clock::now() + PATIENCE;
        while (!condition()) {
            m_asking->progress();
            if (m_asked != nullptr) {
                m_asked->progress();
            }
            ASSERT_LT(std::chrono::steady_clock::now(), end);
        }
    }

    ucs_status_t wait(void *request)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_RAW_STATUS(request);
        }
        until([=] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }

    void close(ucp_ep_h ep, unsigned mode = UCP_EP_CLOSE_MODE_FORCE)
    {
        EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nb(ep, mode)));
    }

    void *send(ucp_ep_h ep, const bytes &data, ucp_tag_t tag)
    {
        const ucp_request_param_t param = {};
        return ucp_tag_send_nbx(ep, data.data(), data.size(), tag, &param);
    }

    bytes receive(size_t length, ucp_tag_t tag)
    {
        const ucp_request_param_t param = {};
        bytes got(length);
        EXPECT_EQ(UCS_OK, wait(ucp_tag_recv_nbx(m_asked->handle(), got.data(), length, tag, ~0ull,
                                                &param)));
        return got;
    }

    /* The endpoint fails for want of a way, its requests with it, and nothing is left of it. */
    void fails(const bytes &address, ucs_status_t status)
    {
        ucp_ep_h ep      = connect(address);
        const bytes data = pattern(1, 100);
        void *sent       = send(ep, data, 1);
        until([&] { return m_failed.calls > 0; });
        EXPECT_EQ(status, m_failed.status);
        EXPECT_EQ(status, wait(sent));
        close(ep);
        EXPECT_EQ(1, m_failed.calls);
        m_failed = {};
    }

    /* A socket that is connected to the door. */
    int dial(const bytes &entry)
    {
        struct sockaddr_in where = {};
        uint16_t port;
        memcpy(&port, entry.data(), 2);
        where.sin_family = AF_INET;
        where.sin_port   = htons(port);
        memcpy(&where.sin_addr, &entry[3], 4);
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(0, ::connect(fd, reinterpret_cast<struct sockaddr *>(&where), sizeof(where)));
        return fd;
    }

    log_catcher m_log;
    environment m_environment;
    failure m_failed;
    std::unique_ptr<context> m_context;
    std::unique_ptr<worker> m_asked, m_asking;
};

/* All that was sent on all endpoints comes in order, once the answer is there. */
TEST_F(door, what_is_sent_meanwhile_comes)
{
    const bytes address = address_of(*m_asked);
    ucp_ep_h eps[]      = {connect(address), connect(address)};
    std::vector<void *> sent;
    std::vector<bytes> data;
    for (unsigned i = 0; i < 40; ++i) {
        data.push_back(pattern(i, (i % 10 == 9) ? 300000 : 100 * i));
        sent.push_back(send(eps[i & 1], data.back(), i));
    }
    for (unsigned i = 0; i < data.size(); ++i) {
        EXPECT_EQ(data[i], receive(data[i].size(), i)) << i;
    }
    for (void *request : sent) {
        EXPECT_EQ(UCS_OK, wait(request));
    }
    for (ucp_ep_h ep : eps) {
        close(ep, UCP_EP_CLOSE_MODE_FLUSH);
    }
    EXPECT_EQ(0, m_failed.calls);
}

/* And a later endpoint finds the worker at once. */
TEST_F(door, is_asked_once)
{
    const bytes address = address_of(*m_asked), data = pattern(3, 50);
    ucp_ep_h first      = connect(address);
    void *sent          = send(first, data, 1);
    EXPECT_EQ(data, receive(50, 1));
    EXPECT_EQ(UCS_OK, wait(sent));
    ucp_ep_h second = connect(address);
    EXPECT_EQ(nullptr, send(second, data, 2));
    EXPECT_EQ(data, receive(50, 2));
    close(first, UCP_EP_CLOSE_MODE_FLUSH);
    close(second, UCP_EP_CLOSE_MODE_FLUSH);
}

TEST_F(door, is_closed_before_the_answer)
{
    const bytes address = address_of(*m_asked);
    for (unsigned mode : {UCP_EP_CLOSE_MODE_FORCE, UCP_EP_CLOSE_MODE_FLUSH}) {
        close(connect(address), mode);
    }
    ucp_ep_h ep      = connect(address);
    const bytes data = pattern(1, 100);
    void *sent       = send(ep, data, 1);
    close(ep);
    EXPECT_EQ(UCS_ERR_CANCELED, wait(sent));
    connect(address); /* and the worker ends amid */
    m_asking->destroy();
    m_asking.reset(new worker(*m_context));
    EXPECT_EQ(0, m_failed.calls);
}

/* Nobody listens any more; another one does. */
TEST_F(door, of_who_has_gone)
{
    const bytes address = address_of(*m_asked);
    m_asked.reset();
    fails(address, UCS_ERR_NOT_CONNECTED);
    EXPECT_EQ(1u, m_log.take().size()) << "one line says what is wrong";
}

TEST_F(door, of_another_worker)
{
    worker other(*m_context);
    fails(with_entry(address_of(other), entry_of(address_of(*m_asked))), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(1u, m_log.take().size());
}

/* One good place among bad ones is enough. */
TEST_F(door, with_places_that_lead_nowhere)
{
    const bytes address = address_of(*m_asked), data = pattern(3, 50);
    bytes entry         = entry_of(address);
    const bytes nowhere = {4, 127, 77, 0, 1};
    entry.insert(entry.begin() + 2, nowhere.begin(), nowhere.end());
    ucp_ep_h ep = connect(with_entry(address, entry));
    void *sent  = send(ep, data, 1);
    EXPECT_EQ(data, receive(50, 1));
    EXPECT_EQ(UCS_OK, wait(sent));
    close(ep, UCP_EP_CLOSE_MODE_FLUSH);
}

/* Entries cut off anywhere, and of any bytes, are refused or lead nowhere; none is read beyond. */
TEST_F(door, entries_that_are_none)
{
    const bytes address = address_of(*m_asked);
    const bytes entry   = entry_of(address);
    for (const bytes &bad :
         {bytes(), bytes(1, 7), bytes(2, 7), bytes{1, 2, 4}, bytes{1, 2, 5, 0, 0},
          bytes{1, 2, 16, 1, 2, 3}, bytes{1, 2, 4, 127, 77, 0}, bytes{1, 2, 255, 1, 2, 3}}) {
        ucp_ep_h ep;
        EXPECT_GT(UCS_OK, make(with_entry(address, bad), &ep)) << bad.size();
    }
    seeded_random random(1);
    for (unsigned i = 0; i < 50; ++i) {
        bytes bad = {0, 0, 4, 127, 1, 2, (uint8_t)random.below(3)};
        bad[random.below(bad.size())] ^= (uint8_t)(1u << random.below(8));
        bad[3] = 127; /* nobody else is asked */
        ucp_ep_h ep;
        if (make(with_entry(address, bad), &ep) == UCS_OK) {
            close(ep);
        }
    }
    m_log.take();
}

/* Who says what is no question is hung up on, and the door stays open. */
TEST_F(door, hears_questions_only)
{
    const bytes address = address_of(*m_asked), entry = entry_of(address);
    const uint32_t magic   = 0x6e436148u;
    const uint16_t version = 1;
    for (uint16_t type : {1, 2, 3, 4, 5, 6}) {
        for (uint32_t length : {0u, 10u, 0xffffffffu}) {
            const int fd = dial(entry);
            uint8_t head[32] = {}, answer[32];
            memcpy(head, &magic, 4);
            memcpy(head + 4, &version, 2);
            memcpy(head + 6, &type, 2);
            memcpy(head + 8, &length, 4);
            EXPECT_EQ(32, ::send(fd, head, 32, MSG_NOSIGNAL));
            ssize_t got = -1;
            until([&] { return (got = recv(fd, answer, 32, MSG_DONTWAIT)) != -1; });
            EXPECT_EQ(((type == 5) && (length == 0)) ? 32 : 0, got) << type << ", " << length;
            ::close(fd);
        }
    }
    m_log.take();
    ucp_ep_h ep      = connect(address);
    const bytes data = pattern(3, 50);
    void *sent       = send(ep, data, 1);
    EXPECT_EQ(data, receive(50, 1));
    EXPECT_EQ(UCS_OK, wait(sent));
    close(ep, UCP_EP_CLOSE_MODE_FLUSH);
}

/* The keys of memory must tell of the network, and be there before anybody asks. */
TEST_F(door, is_not_for_keys)
{
    context_options options;
    options.features = UCP_FEATURE_RMA;
    context context(options);
    worker worker(context);
    EXPECT_TRUE(entry_of(address_of(worker)).empty());
}

} // namespace
