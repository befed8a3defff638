/* Halyard: shared memory: what the kernel does not let us send now is due, and sent later.
 *
 * Descriptors on their way are counted for a user, over all processes, and beyond RLIMIT_NOFILE of
 * them nobody but root may send more until some are received.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "peer_process.h"
#include "sys_meter.h"

#include <fake_sys.h>
#include <ucp/world.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>
#include <uct/mm/mm_iface.h>
#include <uct/mm/mm_socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace uct_test;

namespace {

constexpr unsigned ID_DATA = 1;

const uct_tl_t *mm()
{
    return uct_tl_find("mm");
}

/* What sending descriptors ends with (0: it works), where so many sends have worked, and how often
 * it was tried. Other messages go as they do. */
int g_error;
unsigned g_room, g_tries;

ssize_t sendmsg_refusing(int fd, const struct msghdr *message, int flags)
{
    if (message->msg_controllen > 0) {
        ++g_tries;
        if ((g_error != 0) && (g_room == 0)) {
            errno = g_error;
            return -1;
        }
        g_room -= (g_room > 0);
    }
    return ucs_sys_real.sendmsg(fd, message, flags);
}

/* A connection of somebody who has said HELLO. */
int knock_at(const worker &w, uint8_t who)
{
    const uct_mm_iface_t *iface = uct_mm_iface(w.iface);
    struct sockaddr_un address;
    const socklen_t length = uct_socket_address("", iface->door.place, iface->door.name, &address);
    const int fd           = uct_socket_create();
    uct_mm_hello_t hello   = {};

    hello.head = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_HELLO};
    memset(hello.uid, who, sizeof(hello.uid));
    memcpy(hello.expected, w.uid.data(), sizeof(hello.expected));
    hello.message_max = 100;
    EXPECT_EQ(0, connect(fd, reinterpret_cast<sockaddr *>(&address), length));
    EXPECT_EQ(UCS_OK, uct_socket_send(fd, &hello, sizeof(hello), nullptr, 0));
    return fd;
}

/* Has WELCOME come? It is taken off, with its descriptors. */
bool is_welcome(int fd)
{
    uct_mm_welcome_t welcome;

    return (uct_socket_recv(fd, &welcome, sizeof(welcome), nullptr, nullptr) ==
            sizeof(welcome)) && (welcome.status == UCS_OK);
}

/* The kernel has no memory, so many times more, for what is sent without descriptors. */
unsigned g_famine;

ssize_t sendmsg_without_memory(int fd, const struct msghdr *message, int flags)
{
    if ((message->msg_controllen == 0) && (g_famine > 0)) {
        errno = (--g_famine % 2) ? ENOMEM : ENOBUFS;
        return -1;
    }
    return ucs_sys_real.sendmsg(fd, message, flags);
}

class mm_due : public testing::Test {
protected:
    void SetUp() override
    {
        m_table         = ucs_sys_real;
        m_table.sendmsg = sendmsg_refusing;
        g_error         = ETOOMANYREFS;
        g_room          = 0;
        g_tries         = 0;
        ucs_sys_set(&m_table);
        m_worker = std::make_unique<worker>(mm());
        ASSERT_EQ(UCS_OK, m_worker->status());
    }

    void TearDown() override
    {
        m_worker.reset();
        ucs_sys_set(nullptr);
    }

    uct_mm_iface_t *iface() const
    {
        return uct_mm_iface(m_worker->iface);
    }

    size_t num_due() const
    {
        return ucs_list_length(&iface()->due);
    }

    int knock(uint8_t who = 0x55) const
    {
        return knock_at(*m_worker, who);
    }

    bool run(const std::function<bool()> &condition)
    {
        return run_until({m_worker.get()}, condition);
    }

    ucs_sys_ops_t m_table;
    std::unique_ptr<worker> m_worker;
};

/* Greetings, and the signal to who sleeps, come though there was no memory for them at first. */
TEST(mm_famine, is_waited_for)
{
    ucs_sys_ops_t table = ucs_sys_real;
    worker sender(mm()), receiver(mm());
    struct pollfd event = {mm()->iface.event_fd(receiver.iface), POLLIN, 0};
    unsigned received   = 0;

    table.sendmsg = sendmsg_without_memory;
    const fake_sys fake(table);
    receiver.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
    g_famine     = 5;
    uct_ep_t *ep = sender.connect(receiver.where());
    EXPECT_EQ(UCS_OK, send({&sender, &receiver}, ep, way::SHORT, ID_DATA, pattern(1, 8)));
    EXPECT_EQ(0u, g_famine);
    EXPECT_TRUE(run_until({&receiver}, [&]() {
        return (received == 1) && (mm()->iface.event_arm(receiver.iface) == UCS_OK) &&
               (poll(&event, 1, 0) == 0);
    }));
    g_famine = 5;
    EXPECT_EQ(UCS_OK, post(ep, way::SHORT, ID_DATA, pattern(1, 8), 0));
    EXPECT_EQ(1, poll(&event, 1, 0));
    EXPECT_EQ(0u, g_famine);
    EXPECT_TRUE(run_until({&receiver}, [&]() { return received == 2; }));
}

/* It lasts longer than anybody waits: who sleeps is signalled later, and nobody who owes that falls
 * asleep over it. */
TEST(mm_famine, signals_are_owed)
{
    constexpr unsigned LONG = 250; /* each signal is tried 101 times */
    const ucp_test::environment small(ucp_test::settings{{"UCX_MM_FIFO_SIZE", "16"}});
    ucs_sys_ops_t table = ucs_sys_real;
    worker sender(mm()), receiver(mm());
    struct pollfd at_receiver = {mm()->iface.event_fd(receiver.iface), POLLIN, 0};
    struct pollfd at_sender   = {mm()->iface.event_fd(sender.iface), POLLIN, 0};
    const bytes data          = pattern(1, 8);
    unsigned sent = 1, received = 0;

    receiver.on_message(ID_DATA, [&](const uint8_t *, size_t) { ++received; });
    uct_ep_t *ep = sender.connect(receiver.where());
    EXPECT_EQ(UCS_OK, send({&sender, &receiver}, ep, way::SHORT, ID_DATA, data));
    const auto sleeps = [&](worker &w, struct pollfd &event) {
        return run_until({&w}, [&]() {
            return (received == sent) && (mm()->iface.event_arm(w.iface) == UCS_OK) &&
                   (poll(&event, 1, 0) == 0);
        });
    };
    table.sendmsg = sendmsg_without_memory;
    const fake_sys fake(table);

    ASSERT_TRUE(sleeps(receiver, at_receiver));
    g_famine = LONG;
    EXPECT_EQ(UCS_OK, post(ep, way::SHORT, ID_DATA, data, 0));
    ++sent;
    EXPECT_EQ(UCS_ERR_BUSY, mm()->iface.event_arm(sender.iface));
    EXPECT_TRUE(run_until({&sender}, [&]() { return poll(&at_receiver, 1, 0) == 1; }));
    EXPECT_TRUE(run_until({&receiver}, [&]() { return received == sent; }));
    EXPECT_EQ(0u, g_famine);

    bool taken = false;
    pending request([&]() {
        const ucs_status_t status = post(ep, way::SHORT, ID_DATA, data, 0);
        taken                     = (status == UCS_OK);
        return status;
    });
    while (post(ep, way::SHORT, ID_DATA, data, 0) == UCS_OK) {
        ++sent;
    }
    uct_ep_pending_add(ep, &request.base);
    EXPECT_TRUE(run_until({&sender}, [&]() {
        return mm()->iface.event_arm(sender.iface) == UCS_OK;
    }));
    ASSERT_EQ(0, poll(&at_sender, 1, 0));
    g_famine = UINT_MAX;
    EXPECT_TRUE(run_until({&receiver}, [&]() { return received == sent; }));
    EXPECT_EQ(UCS_ERR_BUSY, mm()->iface.event_arm(receiver.iface));
    g_famine = LONG;
    EXPECT_TRUE(run_until({&receiver}, [&]() { return poll(&at_sender, 1, 0) == 1; }));
    EXPECT_TRUE(run_until({&sender}, [&]() { return taken; }));
    EXPECT_EQ(0u, g_famine);
}

/* Nobody takes the other for dead, nobody falls asleep over it, and then the message goes. */
TEST_F(mm_due, a_welcome_is_sent_later)
{
    for (int error : {ETOOMANYREFS, EAGAIN, ENOBUFS, ENOMEM}) {
        worker sender(mm());
        bool came = false;

        g_error = error;
        m_worker->on_message(ID_DATA, [&](const uint8_t *, size_t) { came = true; });
        (void)mm()->iface.event_fd(m_worker->iface);
        uct_ep_t *ep = sender.connect(m_worker->where());
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_connect(ep));
        ASSERT_TRUE(run([&]() { return num_due() == 1; })) << strerror(error);

        const unsigned before = g_tries;
        ASSERT_TRUE(run_until({m_worker.get(), &sender}, [&]() { return g_tries > before + 20; }));
        EXPECT_EQ(UCT_EP_CONNECTING, ep->state) << strerror(error);
        EXPECT_EQ(0u, sender.failed.size() + m_worker->gone.size());
        EXPECT_EQ(UCS_ERR_BUSY, mm()->iface.event_arm(m_worker->iface));

        g_error = 0;
        ASSERT_EQ(UCS_OK, send({&sender, m_worker.get()}, ep, way::SHORT, ID_DATA, pattern(1, 8)));
        EXPECT_TRUE(run([&]() { return came; }));
        EXPECT_EQ(0u, num_due());
        EXPECT_TRUE(run([&]() { return mm()->iface.event_arm(m_worker->iface) == UCS_OK; }));
        sender.close_all();
        EXPECT_TRUE(run([&]() { return m_worker->gone.size() == 1; }));
        m_worker->gone.clear();
    }
}

/* Who dies meanwhile, or is dropped, leaves no more behind than anybody else. */
TEST_F(mm_due, peers_that_go_before_their_welcome)
{
    close(knock()); /* the first one has memory made that is kept */
    ASSERT_TRUE(run([&]() { return m_worker->gone.size() == 1; }));
    const size_t files = sys_meter::descriptors().size();
    m_worker->gone.clear();

    const int dies = knock(1), is_dropped = knock(2), stays = knock(3);
    ASSERT_TRUE(run([&]() { return num_due() == 3; }));
    EXPECT_EQ(3u, iface()->rings.length);
    close(dies);
    ASSERT_TRUE(run([&]() { return m_worker->gone.size() == 1; }));
    EXPECT_EQ(1, m_worker->gone[0][0]);
    EXPECT_EQ(2u, num_due());

    const uid_bytes uid = [] { uid_bytes u; u.fill(2); return u; }();
    EXPECT_EQ(1, mm()->iface.drop_peer(m_worker->iface, uid.data(), 0));
    g_error = 0;
    ASSERT_TRUE(run([&]() { return m_worker->gone.size() == 2; })) << "who is dropped is reported";
    EXPECT_EQ(2, m_worker->gone[1][0]);
    EXPECT_FALSE(is_welcome(is_dropped));
    EXPECT_TRUE(is_welcome(stays));
    EXPECT_EQ(1u, iface()->rings.length);
    close(is_dropped);
    close(stays);
    ASSERT_TRUE(run([&]() { return m_worker->gone.size() == 3; }));
    EXPECT_EQ(0u, iface()->rings.length);
    EXPECT_EQ(files, sys_meter::descriptors().size());
}

/* An interface that is closed owes nobody anything. */
TEST_F(mm_due, the_end_of_an_interface_that_owes)
{
    const int fd = knock();
    char byte;

    ASSERT_TRUE(run([&]() { return num_due() == 1; }));
    m_worker = std::make_unique<worker>(mm());
    EXPECT_EQ(0, uct_socket_recv(fd, &byte, 1, nullptr, nullptr)) << "the end of file";
    close(fd);
}

/* However many wait, a poll tries once in vain, and sends no more than a turn, in order. */
TEST_F(mm_due, many_at_once)
{
    constexpr unsigned NUM = 60;
    std::vector<int> fds(NUM);

    for (int &fd : fds) {
        fd = knock();
    }
    ASSERT_TRUE(run([&]() { return num_due() == NUM; }));
    g_tries = 0;
    for (unsigned i = 0; i < 100; ++i) {
        uct_mm_connect_poll(iface());
    }
    EXPECT_EQ(100u, g_tries);

    g_room = 5;
    uct_mm_connect_poll(iface());
    EXPECT_EQ(NUM - 5, num_due());
    EXPECT_EQ(5, std::count_if(fds.begin(), fds.begin() + 5, is_welcome));
    g_error = 0;
    for (unsigned polls = 0; num_due() > 0; ++polls) {
        const size_t before = num_due();
        ASSERT_GT(uct_mm_connect_poll(iface()), 0u);
        EXPECT_LE(before - num_due(), 16u) << "more than a turn";
        ASSERT_LT(polls, NUM);
    }
    EXPECT_EQ(NUM - 5, std::count_if(fds.begin() + 5, fds.end(), is_welcome));
    for (int fd : fds) {
        close(fd);
    }
    EXPECT_TRUE(run([&]() { return iface()->rings.length == 0; }));
}

/* The owner of memory cannot send its descriptor: who has asked gets it later, or hears that there
 * will be none, and goes on without. */
TEST(mm_due_answer, a_descriptor_is_sent_later_or_never)
{
    for (const char *fault : {"1:ETOOMANYREFS", "1:ENOMEM", "1:ECONNRESET"}) {
        const bool is_passing = (std::string(fault) != "1:ECONNRESET");
        peer_process child([&](channel &parent) {
            worker w(mm());
            const uint64_t address = parent.get_number();
            ucs_status_t status    = UCS_ERR_NO_RESOURCE;
            bytes packed;
            uct_rkey_t *rkey;
            void *ptr;

            ASSERT_TRUE(parent.get(packed));
            ASSERT_EQ(UCS_OK, w.tl->md.rkey_unpack(w.md, packed.data(), packed.size(), &rkey));
            ASSERT_EQ(UCS_OK, ucs_fault_set("open", "1+:EACCES")); /* /proc leads nowhere */
            EXPECT_TRUE(run_until({&w}, [&]() {
                status = w.tl->md.rkey_ptr(rkey, address, 8000, &ptr);
                return status != UCS_ERR_NO_RESOURCE;
            })) << fault;
            ucs_fault_clear(nullptr);
            EXPECT_EQ(is_passing ? UCS_OK : UCS_ERR_UNREACHABLE, status) << fault;
            if (status == UCS_OK) {
                memset(ptr, 7, 8000);
            }
            w.tl->md.rkey_release(rkey);
        });
        worker w(mm());
        uct_mem_t *mem;
        bytes packed(64);
        uint64_t failed;

        ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 8000, 0, &mem));
        packed.resize(w.tl->md.rkey_pack(mem, packed.data()));
        const size_t files = sys_meter::descriptors().size();
        ASSERT_EQ(UCS_OK, ucs_fault_set("sendmsg", fault));
        child.link().put_number(reinterpret_cast<uintptr_t>(mem->address));
        child.link().put(packed);
        EXPECT_EQ(0, child.wait({&w}));
        EXPECT_EQ(UCS_OK, ucs_fault_query("sendmsg", nullptr, &failed));
        EXPECT_EQ(1u, failed);
        ucs_fault_clear(nullptr);
        EXPECT_EQ(is_passing ? 7 : 0, static_cast<uint8_t *>(mem->address)[7999]);
        EXPECT_TRUE(run_until({&w}, [&]() { return sys_meter::descriptors().size() == files; }));
        w.tl->md.release(mem);
    }
}

/* The same at the door: nobody falls asleep over an answer; who has asked and gone is forgotten. */
TEST_F(mm_due, answers)
{
    const int memory             = uct_mm_rings_main(iface())->segment->fd;
    uct_descriptor_offer_t offer = {{}, 5, 7, 99, memory};
    const size_t files           = sys_meter::descriptors().size();
    const auto ask               = [&]() {
        const int connection = uct_descriptor_ask(iface()->door.name, iface()->door.place, 5, 7);
        EXPECT_GE(connection, 0);
        EXPECT_TRUE(run([&]() { return (num_due() == 1) || (g_error == EPIPE); }));
        return connection;
    };
    uint64_t length;
    int fd = -1;

    uct_descriptor_offer(&offer);
    (void)mm()->iface.event_fd(m_worker->iface);
    int connection = ask();
    EXPECT_EQ(UCS_ERR_BUSY, mm()->iface.event_arm(m_worker->iface));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_descriptor_listen(&connection, &fd, &length));
    g_error = 0;
    EXPECT_TRUE(run([&]() {
        return uct_descriptor_listen(&connection, &fd, &length) == UCS_OK;
    }));
    EXPECT_EQ(99u, length);
    close(fd);
    EXPECT_EQ(0u, num_due());

    g_error    = ETOOMANYREFS;
    connection = ask();
    close(connection);
    EXPECT_TRUE(run([&]() { return num_due() == 0; }));

    g_error    = EPIPE;
    connection = ask();
    EXPECT_TRUE(run([&]() {
        return uct_descriptor_listen(&connection, &fd, &length) == UCS_ERR_UNREACHABLE;
    }));
    EXPECT_TRUE(run([&]() { return sys_meter::descriptors().size() == files; }));
    EXPECT_EQ(0u, m_worker->gone.size());
    EXPECT_EQ(UCS_OK, mm()->iface.event_arm(m_worker->iface));
    uct_descriptor_withdraw(&offer);
}

/* As where `ulimit -n` is low, but for nothing else. */
unsigned g_refused;

ssize_t sendmsg_of_the_poor(int fd, const struct msghdr *message, int flags)
{
    struct rlimit before, low;

    EXPECT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    low = {20, before.rlim_max};
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &low));
    const ssize_t length = ucs_sys_real.sendmsg(fd, message, flags);
    const int error      = errno;
    g_refused           += (length < 0) && (error == ETOOMANYREFS);
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    errno = error;
    return length;
}

/* The kernel's own limit, of a user who is not root. */
TEST(mm_due_kernel, peers_that_take_their_welcomes_late)
{
    peer_process child([](channel &) {
        ucs_sys_ops_t table = ucs_sys_real;
        std::vector<int> fds(40);

        if (geteuid() == 0) {
            ASSERT_EQ(0, setresuid(54321, 54321, 54321));
        }
        table.sendmsg = sendmsg_of_the_poor;
        ucs_sys_set(&table);
        worker w(mm());
        ASSERT_EQ(UCS_OK, w.status());
        for (int &fd : fds) {
            fd = knock_at(w, 0x55);
        }
        EXPECT_TRUE(run_until({&w}, [&]() {
            return uct_mm_iface(w.iface)->rings.length == fds.size();
        }));
        size_t welcomes = 0;
        EXPECT_TRUE(run_until({&w}, [&]() {
            for (int fd : fds) {
                welcomes += is_welcome(fd);
            }
            return welcomes == fds.size();
        })) << welcomes;
        EXPECT_EQ(0u, w.gone.size());
        EXPECT_GT(g_refused, 0u) << "the kernel has let everything through";
    });
    EXPECT_EQ(0, child.wait());
}

} // namespace
