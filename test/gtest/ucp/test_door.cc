/* Halyard: doors: workers whose address says where to ask for the address of their network, and who
 * asks there, in one process. Between hosts: mp/test_doors.cc.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <fake_sys.h>
#include <ucp/remote.h>
#include <ucp/server.h>

#include <algorithm>
#include <sys/resource.h>
#include <time.h>

extern "C" {
#include <ucp/wire/address.h>
#include <ucs/debug/fault.h>
}

using namespace server_test;

namespace {

/* The workers of one process are near to each other; the address of one for other nodes leads to
 * its door only, and what is heard there leads by shared memory, too. */
class door : public testing::Test {
public:
    ucp_ep_h connect(const bytes &address)
    {
        ucp_ep_h ep = nullptr;
        EXPECT_EQ(UCS_OK, make(address, &ep));
        return ep;
    }

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

    /* Other ones. */
    void open_with(uint64_t features)
    {
        context_options options;
        options.features = features;
        m_asking.reset();
        m_asked.reset();
        m_context.reset(new context(options));
        m_asked.reset(new worker(*m_context));
        m_asking.reset(new worker(*m_context));
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
    static bytes entry_of(const bytes &address, const char *name = "door")
    {
        ucp_address_info_t info;
        EXPECT_EQ(UCS_OK, ucp_address_unpack(address.data(), address.size(), &info));
        for (unsigned i = 0; i < info.num_entries; ++i) {
            if (info.entries[i].wire_id == ucp_address_wire_id(name)) {
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

    /* The address that whoever comes to the door is told. */
    bytes told(const bytes &entry)
    {
        const int fd = dial(entry);
        bytes all, part(4096);
        ssize_t got = -1;
        while (got != 0) {
            until([&] { return (got = recv(fd, part.data(), part.size(), MSG_DONTWAIT)) != -1; });
            got = std::max<ssize_t>(got, 0); /* in vain */
            all.insert(all.end(), part.begin(), part.begin() + got);
        }
        ::close(fd);
        EXPECT_LT(32u, all.size());
        return bytes(all.begin() + std::min<size_t>(32, all.size()), all.end());
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

/* Whoever comes is told, whatever it says or does not say; in hundreds at once, too. */
TEST_F(door, tells_all_who_come)
{
    const bytes address = address_of(*m_asked), entry = entry_of(address);
    std::vector<int> fds;
    for (unsigned i = 0; i < 300; ++i) {
        fds.push_back(dial(entry));
        if ((i % 3) == 1) {
            EXPECT_EQ(10, ::send(fds.back(), "rubbish...", 10, MSG_NOSIGNAL));
        } else if ((i % 3) == 2) {
            ::close(fds.back());
            fds.pop_back();
        }
    }
    for (int fd : fds) {
        uint8_t head[32];
        ssize_t got = -1;
        until([&] { return (got = recv(fd, head, 32, MSG_DONTWAIT)) != -1; });
        EXPECT_EQ(32, got);
        EXPECT_EQ(2, head[6]) << "an ACCEPT";
        ::close(fd);
    }
    ucp_ep_h ep      = connect(address);
    const bytes data = pattern(3, 50);
    void *sent       = send(ep, data, 1);
    EXPECT_EQ(data, receive(50, 1));
    EXPECT_EQ(UCS_OK, wait(sent));
    close(ep, UCP_EP_CLOSE_MODE_FLUSH);
}

/* A network that does not open for lack of memory, or of descriptors, may do when the next one
 * asks. */
TEST_F(door, of_a_network_that_opens_later)
{
    const bytes entry = entry_of(address_of(*m_asked));
    for (const char *point : {"mmap", "timerfd_create"}) {
        ASSERT_EQ(UCS_OK, ucs_fault_set(point, "1+"));
        EXPECT_TRUE(entry_of(told(entry), "ofi").empty()) << point;
        ucs_fault_clear(nullptr);
    }
    EXPECT_FALSE(entry_of(told(entry), "ofi").empty());
    m_log.take();
}

/* Without a descriptor left it still says no, and does not ask for ever to be progressed. */
TEST_F(door, has_no_descriptor_left)
{
    const bytes address = address_of(*m_asked), entry = entry_of(address);
    const int fd        = dial(entry);
    struct rlimit limit, low;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
    std::vector<int> all;
    low          = limit;
    low.rlim_cur = (rlim_t)fd + 1;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &low));
    for (int other; (other = dup(fd)) >= 0;) {
        all.push_back(other);
    }
    uint8_t head[32];
    ssize_t got = -1;
    until([&] { return (got = recv(fd, head, 32, MSG_DONTWAIT)) != -1; });
    EXPECT_EQ(32, got);
    EXPECT_EQ(3, head[6]) << "a REJECT";
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    for (int other : all) {
        ::close(other);
    }
    ::close(fd);
    m_log.take(); /* the first such says so */
}

/* More endpoints than descriptors: they go to their doors one after the other. */
TEST_F(door, is_one_of_many)
{
    std::vector<bytes> addresses;
    std::vector<ucp_ep_h> eps;
    std::vector<std::unique_ptr<worker>> others;
    std::vector<void *> sent;
    const bytes data = pattern(1, 30);
    for (unsigned i = 0; i < 40; ++i) {
        others.emplace_back(new worker(*m_context));
        addresses.push_back(address_of(*others.back()));
    }
    struct rlimit limit, low;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
    const int next = dup(0); /* the lowest that is free */
    ::close(next);
    low          = limit;
    low.rlim_cur = (rlim_t)next + 12;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &low));
    for (const bytes &address : addresses) {
        eps.push_back(connect(address));
        ASSERT_NE(nullptr, eps.back());
        sent.push_back(send(eps.back(), data, 1));
    }
    /* Each answers with an open network, and a connection, for which there have to be some. */
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    for (void *request : sent) {
        until([&] {
            for (const auto &other : others) {
                other->progress();
            }
            return !UCS_PTR_IS_PTR(request) || (ucp_request_check_status(request) == UCS_OK);
        });
        EXPECT_EQ(UCS_OK, wait(request));
    }
    for (ucp_ep_h ep : eps) {
        close(ep);
    }
    EXPECT_EQ(0, m_failed.calls);
    m_log.take(); /* what others found no descriptor for */
}

/* An endpoint that nobody uses fails without a line that looks like an error. */
TEST_F(door, of_who_has_gone_and_is_not_missed)
{
    const bytes address = address_of(*m_asked);
    m_asked.reset();
    ucp_ep_h ep = connect(address);
    until([&] { return m_failed.calls > 0; });
    close(ep);
    EXPECT_TRUE(m_log.take().empty());
}

/* One made in the handler asks anew. */
TEST_F(door, is_asked_again_in_the_handler)
{
    const bytes address = address_of(*m_asked), data = pattern(3, 50);
    const bytes bad     = with_entry(address, {1, 0, 4, 127, 77, 0, 1});
    struct again {
        door *test;
        bytes address;
        ucp_ep_h ep = nullptr;
    } again = {this, address};
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address         = reinterpret_cast<const ucp_address_t *>(bad.data());
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = [](void *arg, ucp_ep_h, ucs_status_t) {
        auto *self = static_cast<struct again *>(arg);
        self->ep   = self->test->connect(self->address);
    };
    params.err_handler.arg = &again;
    ucp_ep_h ep;
    ASSERT_EQ(UCS_OK, ucp_ep_create(m_asking->handle(), &params, &ep));
    until([&] { return again.ep != nullptr; });
    void *sent = send(again.ep, data, 1);
    EXPECT_EQ(data, receive(50, 1));
    EXPECT_EQ(UCS_OK, wait(sent));
    close(ep);
    close(again.ep, UCP_EP_CLOSE_MODE_FLUSH);
    EXPECT_EQ(0, m_failed.calls);
    m_log.take();
}

/* Who progresses seldom hears of those who come by few calls. */
TEST_F(door, of_who_looks_seldom)
{
    const int fd = dial(entry_of(address_of(*m_asked)));
    uint8_t head[32];
    unsigned calls = 0;
    while ((recv(fd, head, 32, MSG_DONTWAIT) == -1) && (calls < 100)) {
        usleep(5000);
        m_asked->progress();
        ++calls;
    }
    EXPECT_LT(calls, 30u);
    ::close(fd);
}

/* A worker without UCP_FEATURE_WAKEUP sleeps though it has a door, and hears of who comes. */
TEST_F(door, of_who_sleeps)
{
    environment environment(settings{{"UCX_IDLE", "sleep"}});
    context_options options;
    options.features = UCP_FEATURE_TAG;
    context context(options);
    worker worker(context);
    const bytes entry = entry_of(address_of(worker));
    const auto cpu_s = [] {
        struct timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (double)now.tv_sec + (1e-9 * (double)now.tv_nsec);
    };
    const double before_s = cpu_s();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
        worker.progress();
    }
    EXPECT_LT(cpu_s() - before_s, 0.15);
    const int fd = dial(entry);
    uint8_t head[32];
    ssize_t got = -1;
    for (unsigned i = 0; (i < 5000) && (got == -1); ++i) {
        worker.progress();
        got = recv(fd, head, 32, MSG_DONTWAIT);
    }
    EXPECT_EQ(32, got);
    ::close(fd);
}

/* No stranger has a server go to places that the stranger chooses. */
TEST_F(door, is_in_no_address_of_a_client)
{
    server server(*m_asked, address(AF_INET));
    const bytes whole = question(with_entry(address_of(*m_asking), {1, 0, 4, 127, 77, 0, 1}));
    uint8_t head[32];
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(0, ::connect(fd, server.where().get(), server.where().length()));
    EXPECT_EQ((ssize_t)whole.size(), ::send(fd, whole.data(), whole.size(), MSG_NOSIGNAL));
    ssize_t got = -1;
    until([&] { return (got = recv(fd, head, 32, MSG_DONTWAIT)) != -1; });
    EXPECT_EQ(0, got);
    EXPECT_TRUE(server.requests.empty());
    EXPECT_EQ(1u, m_log.take().size());
    ::close(fd);
}

/* The keys of memory must tell of a network whose devices write and read by themselves, and be
 * there before anybody asks. */
TEST_F(door, is_not_for_keys_of_rdma)
{
    context_options options;
    options.features = UCP_FEATURE_RMA;
    context context(options);
    for (const char *shown : {"/sys/class/infiniband", "/sys/class/cxi", ""}) {
        const fake_networks networks(shown);
        worker worker(context);
        EXPECT_EQ(*shown == 0, !entry_of(address_of(worker)).empty()) << shown;
    }
}

/* Elsewhere what is put before the answer is there goes to the memory all the same. */
TEST_F(door, what_is_put_meanwhile_arrives)
{
    const fake_networks networks("");
    open_with(UCP_FEATURE_RMA | UCP_FEATURE_AMO64);
    const ucp_request_param_t none = {};
    const bytes data               = pattern(1, 300000);
    bytes memory(8 + data.size()), got(data.size());
    mapping map(*m_context, memory.size(), memory.data());
    ucp_ep_h ep = connect(address_of(*m_asked));
    key key(ep, map.packed());
    uint64_t add = 5, before = 1;
    ucp_request_param_t fetch = {};
    fetch.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    fetch.datatype     = ucp_dt_make_contig(8);
    fetch.reply_buffer = &before;

    void *put     = ucp_put_nbx(ep, data.data(), data.size(), map.address(8), key.get(), &none);
    void *fetched = ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &add, 1, map.address(), key.get(),
                                      &fetch);
    void *flushed = ucp_ep_flush_nbx(ep, &none);
    EXPECT_TRUE(UCS_PTR_IS_PTR(put));
    EXPECT_EQ(0, memory[0]);
    EXPECT_EQ(UCS_OK, wait(flushed));
    EXPECT_EQ(UCS_OK, wait(put));
    EXPECT_EQ(UCS_OK, wait(fetched));
    EXPECT_EQ(0u, before);
    EXPECT_EQ(5, memory[0]);
    EXPECT_EQ(data, bytes(memory.begin() + 8, memory.end()));
    EXPECT_EQ(UCS_OK,
              wait(ucp_get_nbx(ep, got.data(), got.size(), map.address(8), key.get(), &none)));
    EXPECT_EQ(data, got);
    close(ep, UCP_EP_CLOSE_MODE_FLUSH);
    EXPECT_EQ(0, m_failed.calls);
}

void on_bytes(void *request, ucs_status_t status, size_t, void *user_data)
{
    on_send(request, status, user_data);
}

/* By a callback that runs as the first goes on; the worker it leads to came by itself. */
TEST_F(door, the_next_to_wait_is_closed)
{
    open_with(UCP_FEATURE_TAG | UCP_FEATURE_STREAM);
    worker other(*m_context);
    const bytes silent = entry_of(address_of(other));
    ucp_ep_h first     = connect(with_entry(address_of(*m_asked), silent));
    ucp_ep_h second    = connect(with_entry(address_of(other), silent));
    const uint64_t word             = 77;
    uint64_t got                    = 0;
    size_t length                   = 0;
    ending read;
    ucp_request_param_t param = send_param(&read);

    param.cb.recv_stream = on_bytes;
    read.action          = [&] {
        EXPECT_EQ(nullptr, ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FORCE));
    };
    ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(first, &got, sizeof(got), &length, &param)));
    const bytes address = m_asked->address();
    ucp_test_stream_comes(m_asking->handle(), address.data(), address.size(),
                          ucp_test_worker_id(m_asked->handle()), word);
    m_asking->progress();
    EXPECT_EQ(1, read.calls);
    EXPECT_EQ(word, got);
    close(first);
    EXPECT_EQ(0, m_failed.calls);
}

} // namespace
