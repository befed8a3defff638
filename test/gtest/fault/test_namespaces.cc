/* Halyard: processes in containers: namespaces of their own for process ids, System V memory,
 * mounts (a private /dev/shm), users; processes that others may not look into. Messages go through
 * all of them at the speed of shared memory; where a single copy is not possible, nobody is told
 * so.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/node.h>
#include <mp/restrict.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr int NOT_DUMPABLE = 1 << 0;
constexpr int NO_KCMP      = 1 << 1; /* what Docker's filter forbids, too */
constexpr int PRIVATE_SHM  = 1 << 2;
constexpr int SOCKET_DIR   = 1 << 3; /* a directory that both see */

struct isolation {
    const char *name;
    int         first_flags;  /* namespaces of the first process, as for unshare() */
    int         second_flags;
    int         others;       /* of both */
};

std::ostream &operator<<(std::ostream &out, const isolation &i)
{
    return out << i.name;
}

const isolation ISOLATIONS[] = {
    {"none", 0, 0, 0},
    {"pid_of_one", CLONE_NEWPID, 0, 0},
    {"pid_of_each", CLONE_NEWPID, CLONE_NEWPID, 0}, /* both have number 1 */
    {"ipc_of_each", CLONE_NEWIPC, CLONE_NEWIPC, 0},
    {"mounts_of_each", CLONE_NEWNS, CLONE_NEWNS, PRIVATE_SHM},
    {"user_of_one", CLONE_NEWUSER, 0, 0},
    {"user_of_each", CLONE_NEWUSER, CLONE_NEWUSER, 0},
    {"pod", CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS,
     CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS, PRIVATE_SHM | NO_KCMP},
    {"network_of_one", CLONE_NEWNET, 0, SOCKET_DIR},
    {"network_of_each", CLONE_NEWNET, CLONE_NEWNET, SOCKET_DIR},
    {"container",
     CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET,
     CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET,
     PRIVATE_SHM | NO_KCMP | SOCKET_DIR},
    {"not_dumpable", 0, 0, NOT_DUMPABLE},
    {"filtered", 0, 0, NO_KCMP},
};

std::string isolate(int flags, int others)
{
    std::string why;

    if ((others & PRIVATE_SHM) != 0) {
        why   = mp::private_shared_memory(1u << 20);
        flags &= ~(CLONE_NEWNS | CLONE_NEWIPC);
    }
    if (why.empty() && (flags != 0) && (unshare(flags) != 0)) {
        why = std::string("unshare: ") + strerror(errno);
    }
    if (why.empty() && ((others & NO_KCMP) != 0)) {
        why = mp::deny_syscalls({SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd,
                                 SYS_kcmp, SYS_ptrace}, EPERM);
    }
    if ((others & NOT_DUMPABLE) != 0) {
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    return why;
}

void exchange(self &me)
{
    const unsigned other = 1 - me.index();
    node n(me);

    n.publish();
    n.connect(other);
    for (size_t length = 0; length < (4u << 20); length = (length * 4) + 3) {
        std::vector<uint8_t> out(length), in(length);

        mp::fill(out.data(), length, length + me.index());
        me.waits_for("a message of %zu bytes", length);
        ucs_status_ptr_t sent = n.send(n.ep(other), out.data(), length, length);
        EXPECT_EQ(UCS_OK, n.wait(n.recv(in.data(), length, length)));
        EXPECT_EQ(-1, mp::find_difference(in.data(), length, length + other));
        EXPECT_EQ(UCS_OK, n.wait(sent));
    }
    n.barrier();
    EXPECT_EQ(0u, n.errors(n.ep(other)).count);
    n.barrier(); /* who leaves before the other has looked is an error to it */
}

} // namespace

/* A directory of a test, empty again at its end. */
class socket_dir {
public:
    socket_dir()
    {
        EXPECT_NE(nullptr, mkdtemp(m_path));
    }

    ~socket_dir()
    {
        EXPECT_EQ(0, rmdir(m_path)) << m_path << ": " << strerror(errno);
    }

    void use() const
    {
        setenv("UCX_MM_SOCKET_DIR", m_path, 1);
    }

private:
    char m_path[32] = "/tmp/halyard-test-XXXXXX";
};

class namespaces : public testing::TestWithParam<isolation> {};

TEST_P(namespaces, messages_pass)
{
    const isolation how = GetParam();
    std::string why;
    socket_dir dir;
    processes both(2);

    if (mp::run_apart([&]() {
            why = isolate(how.first_flags, how.others);
            if (!why.empty()) {
                GTEST_SKIP() << why;
            }
        }) == 77) {
        GTEST_SKIP() << "see above";
    }
    both.start_all([&](self &me) {
        const int flags = (me.index() == 0) ? how.first_flags : how.second_flags;

        if ((how.others & SOCKET_DIR) != 0) {
            dir.use();
        }
        ASSERT_EQ("", isolate(flags, how.others));
        if ((flags & CLONE_NEWPID) != 0) {
            /* it holds for children only */
            EXPECT_EQ(0, mp::run_apart([&]() { exchange(me); }));
        } else {
            exchange(me);
        }
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
}

INSTANTIATE_TEST_SUITE_P(, namespaces, testing::ValuesIn(ISOLATIONS),
                         [](const testing::TestParamInfo<isolation> &info) {
                             return std::string(info.param.name);
                         });

/* The name of one that was killed goes when it is met the next time. */
TEST(socket_directory, is_clean_after_a_death)
{
    socket_dir dir;
    processes both(2);

    both.start(0, [&](self &me) {
        dir.use();
        node n(me);
        n.publish();
        n.until([]() { return false; });
    });
    ASSERT_TRUE(both.until([&]() { return both.at(0).address_serial != 0; }, "an address"));
    both.kill_now(0);
    both.start(1, [&](self &me) {
        dir.use();
        node n(me);
        ucp_ep_h ep = n.connect(0);
        char byte   = 0;

        EXPECT_EQ(UCS_ERR_UNREACHABLE, n.wait(n.send(ep, &byte, 1, 1)));
        n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
    });
    EXPECT_TRUE(both.join());
}

/* Processes of two users are no peers, and are told so. */
TEST(users, do_not_meet)
{
    processes both(2);

    if ((geteuid() != 0) || (seteuid(54321) != 0) || (seteuid(0) != 0)) {
        GTEST_SKIP() << "only root can become another user, where there are others";
    }
    both.start_all([&](self &me) {
        setenv("UCX_TLS", "shm", 1);
        if (me.index() == 1) {
            ASSERT_EQ(0, setuid(54321));
        }
        node n(me);
        n.publish();
        for (size_t length : {8, 1 << 20}) {
            ucp_ep_h ep = n.connect(1 - me.index());
            std::vector<uint8_t> data(length);
            EXPECT_EQ(UCS_ERR_UNREACHABLE, n.wait(n.send(ep, data.data(), length, 1)));
            n.close(ep, UCP_EP_CLOSE_FLAG_FORCE);
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_NE(std::string::npos, both.log().find("belongs to another user")) << both.log();
}

/* Abstract sockets do not reach into another network namespace: said once, at the endpoint. */
TEST(network_namespace, is_told_at_the_endpoint)
{
    processes both(2);

    if (mp::run_apart([]() {
            if (unshare(CLONE_NEWNET) != 0) {
                GTEST_SKIP() << "unshare: " << strerror(errno);
            }
        }) == 77) {
        GTEST_SKIP() << "see above";
    }
    both.start_all([&](self &me) {
        ucp_ep_params_t params = {};
        ucp_ep_h ep;

        if (me.index() == 0) {
            ASSERT_EQ(0, unshare(CLONE_NEWNET));
        }
        node n(me);
        n.publish();
        n.until([&]() { return me.at(1 - me.index()).address_serial != 0; });
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address    =
            reinterpret_cast<const ucp_address_t *>(me.at(1 - me.index()).address);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_ep_create(n.worker(), &params, &ep));
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(2u, both.log_lines()) << both.log();
    EXPECT_NE(std::string::npos, both.log().find("network namespace")) << both.log();
}
