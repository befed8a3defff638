/* Halyard: descriptors for other processes: questions and answers of any content.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "sys_meter.h"
#include "world.h"

#include <seed.h>
#include <ucs/debug/fault.h>
#include <uct/base/descriptor.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace uct_test;

namespace {

/* A listening socket of ours, and what is on offer there. */
class descriptor_test : public testing::Test {
protected:
    descriptor_test()
    {
        struct sockaddr_un address;
        const socklen_t length = uct_socket_address("", 0, NAME, &address);

        m_listener = uct_socket_create();
        EXPECT_EQ(0, bind(m_listener, reinterpret_cast<sockaddr *>(&address), length));
        EXPECT_EQ(0, listen(m_listener, 8));
        m_offer.domain = 5;
        m_offer.id     = 7;
        m_offer.length = 99;
        m_offer.fd     = memfd_create("test", MFD_CLOEXEC);
        uct_descriptor_offer(&m_offer);
    }

    ~descriptor_test() override
    {
        uct_descriptor_withdraw(&m_offer);
        close(m_offer.fd);
        close(m_listener);
    }

    /* Answers whoever has asked, as an owner does; what was asked. */
    bytes answer()
    {
        const int fd = accept(m_listener, nullptr, nullptr);
        uct_descriptor_question_t asked = {};
        bytes question(100);
        const ssize_t length = uct_socket_recv(fd, question.data(), question.size(), nullptr,
                                               nullptr);

        EXPECT_GT(length, 0);
        question.resize(static_cast<size_t>(length));
        m_is_question = uct_descriptor_hear(question.data(), question.size(), &asked);
        m_answered    = uct_descriptor_answer(fd, &asked);
        close(fd);
        return question;
    }

    const uint64_t NAME = 0x68616c7961726400ull + static_cast<uint64_t>(getpid());
    int m_listener;
    int m_is_question = 0;
    ucs_status_t m_answered = UCS_INPROGRESS;
    uct_descriptor_offer_t m_offer = {};
};

/* More descriptors than are taken: none comes in the padding behind those that are, none stays. */
TEST(socket, more_descriptors_than_are_taken)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(16 * sizeof(int))];
    } control;
    const size_t before = sys_meter::descriptors().size();
    int ends[2];

    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    for (unsigned sent = 1; sent <= 16; ++sent) {
        char word            = 'x';
        struct iovec iov     = {&word, 1};
        struct msghdr header = {};
        int fds[32], got[UCT_SOCKET_FDS_MAX + 1];
        unsigned count = 77;

        memset(&control, 0, sizeof(control));
        header.msg_iov        = &iov;
        header.msg_iovlen     = 1;
        header.msg_control    = control.bytes;
        header.msg_controllen = CMSG_SPACE(sent * sizeof(int));
        struct cmsghdr *cmsg  = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level      = SOL_SOCKET;
        cmsg->cmsg_type       = SCM_RIGHTS;
        cmsg->cmsg_len        = CMSG_LEN(sent * sizeof(int));
        std::fill(fds, fds + sent, ends[0]);
        memcpy(CMSG_DATA(cmsg), fds, sent * sizeof(int));
        ASSERT_EQ(1, sendmsg(ends[0], &header, 0));

        got[UCT_SOCKET_FDS_MAX] = -5;
        ASSERT_EQ(1, uct_socket_recv(ends[1], &word, 1, got, &count));
        EXPECT_EQ(std::min(sent, (unsigned)UCT_SOCKET_FDS_MAX), count);
        EXPECT_EQ(-5, got[UCT_SOCKET_FDS_MAX]);
        for (unsigned i = 0; i < std::min(count, (unsigned)UCT_SOCKET_FDS_MAX); ++i) {
            close(got[i]);
        }
    }
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(before, sys_meter::descriptors().size());
}

TEST_F(descriptor_test, the_door_of_a_worker)
{
    const uint8_t uids[][UCT_UID_LEN] = {{1}, {2}, {3}, {4}};
    uct_descriptor_door_t doors[3]    = {};
    uint64_t name;
    uint16_t place;

    uct_descriptor_where(nullptr, uids[0], &name, &place);
    EXPECT_EQ(0u, name);
    for (unsigned i = 0; i < 3; ++i) {
        doors[i].owner = &doors[i / 2];
        doors[i].uid   = uids[i];
        doors[i].name  = i + 10;
        doors[i].place = static_cast<uint16_t>(2 * i);
        uct_descriptor_open_door(&doors[i]);
    }
    for (unsigned i = 0; i < 3; ++i) {
        uct_descriptor_where(&doors[1], uids[i], &name, &place);
        EXPECT_EQ(i + 10, name);
        EXPECT_EQ(2 * i, place);
    }
    for (const uint8_t *uid : {uids[3], static_cast<const uint8_t *>(nullptr)}) {
        uct_descriptor_where(&doors[1], uid, &name, &place);
        EXPECT_EQ(12u, name) << "of the owner";
        uct_descriptor_where(nullptr, uid, &name, &place);
        EXPECT_EQ(10u, name) << "any";
    }
    for (uct_descriptor_door_t &door : doors) {
        uct_descriptor_close_door(&door);
    }
}

TEST_F(descriptor_test, who_asks_gets_it)
{
    struct stat mine, theirs;
    uint64_t told = 0;
    int fd        = -1;

    int connection = uct_descriptor_ask(NAME, 0, 5, 7);
    ASSERT_GE(connection, 0);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_descriptor_listen(&connection, &fd, &told));
    answer();
    EXPECT_EQ(1, m_is_question);
    EXPECT_EQ(UCS_OK, m_answered);
    ASSERT_EQ(UCS_OK, uct_descriptor_listen(&connection, &fd, &told));
    EXPECT_EQ(-1, connection);
    ASSERT_EQ(0, fstat(m_offer.fd, &mine));
    ASSERT_EQ(0, fstat(fd, &theirs));
    EXPECT_EQ(mine.st_ino, theirs.st_ino);
    EXPECT_EQ(99u, told);
    EXPECT_NE(0, fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);

    connection = uct_descriptor_ask(NAME, 0, 5, 8);
    answer();
    EXPECT_EQ(UCS_ERR_UNREACHABLE, uct_descriptor_listen(&connection, &fd, &told))
        << "not on offer";
    EXPECT_EQ(-1, uct_descriptor_ask(NAME + 1, 0, 5, 7)) << "nobody listens";
    EXPECT_EQ(-1, uct_descriptor_ask(0, 0, 5, 7)) << "no door";
    EXPECT_EQ(-1, uct_descriptor_ask(NAME, 1, 5, 7)) << "a directory that we have not";
}

/* The owner hears that an asker is done, though a child of that one holds the connection, too. */
TEST_F(descriptor_test, an_asker_with_a_child)
{
    uct_descriptor_question_t asked = {};
    uint64_t told;
    int fd = -1;

    int connection  = uct_descriptor_ask(NAME, 0, 5, 7);
    const int owner = accept(m_listener, nullptr, nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    EXPECT_EQ(ssize_t(sizeof(asked)),
              uct_socket_recv(owner, &asked, sizeof(asked), nullptr, nullptr));
    EXPECT_EQ(UCS_OK, uct_descriptor_answer(owner, &asked));
    EXPECT_EQ(UCS_OK, uct_descriptor_listen(&connection, &fd, &told));
    EXPECT_EQ(0, uct_socket_recv(owner, &asked, sizeof(asked), nullptr, nullptr));
    close(fd);
    close(owner);
    kill(pid, SIGKILL);
    EXPECT_EQ(pid, waitpid(pid, nullptr, 0));
}

/* What passes is told from what does not. */
TEST_F(descriptor_test, answers_that_cannot_be_sent)
{
    int connection = uct_descriptor_ask(NAME, 0, 5, 7);
    uint64_t told;
    int fd;

    ASSERT_GE(connection, 0);
    for (auto [error, status] : {std::make_pair(ETOOMANYREFS, UCS_ERR_NO_RESOURCE),
                                 {EAGAIN, UCS_ERR_NO_RESOURCE},
                                 {ENOBUFS, UCS_ERR_NO_RESOURCE},
                                 {ENOMEM, UCS_ERR_NO_RESOURCE},
                                 {EPIPE, UCS_ERR_CONNECTION_RESET},
                                 {EBADF, UCS_ERR_CONNECTION_RESET}}) {
        const uct_descriptor_question_t question = {
            {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_GET_DESCRIPTOR}, 5, 7};
        ASSERT_EQ(UCS_OK, ucs_fault_set("sendmsg", ("1:" + std::to_string(error)).c_str()));
        EXPECT_EQ(status, uct_descriptor_answer(m_listener, &question)) << strerror(error);
    }
    ASSERT_EQ(UCS_OK, ucs_fault_set("sendmsg", "1:ETOOMANYREFS"));
    answer();
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, m_answered);
    ucs_fault_clear(nullptr);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, uct_descriptor_listen(&connection, &fd, &told))
        << "the owner has ended the connection";
}

TEST_F(descriptor_test, questions_and_answers_that_say_anything)
{
    seeded_random rnd(61);
    const auto files = sys_meter::descriptors();
    bytes good;

    int first = uct_descriptor_ask(NAME, 0, 5, 7);
    good      = answer();
    close(first);
    for (unsigned i = 0; i < 500; ++i) {
        bytes said = rnd.one_in(2) ? good : pattern(rnd.bits(), rnd.below(100));
        if (!said.empty() && rnd.one_in(2)) {
            said[rnd.below(said.size())] ^= static_cast<uint8_t>(1 + rnd.below(255));
        }
        int ends[2];
        ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends));
        uct_descriptor_question_t question;
        if (uct_descriptor_hear(said.data(), said.size(), &question)) {
            EXPECT_EQ(UCS_OK, uct_descriptor_answer(ends[0], &question));
        }

        uint64_t length = 0;
        bytes told(rnd.below(32));
        for (uint8_t &byte : told) {
            byte = static_cast<uint8_t>(rnd.bits());
        }
        uct_socket_message_t head = {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_DESCRIPTOR};
        if (rnd.one_in(2)) {
            told.assign(24, 0);
            memcpy(told.data(), &head, sizeof(head));
            told[8] = rnd.one_in(2);
        }
        const int fds[2]     = {m_offer.fd, m_listener};
        const unsigned count = static_cast<unsigned>(rnd.below(3));
        int fd               = -1;
        (void)uct_socket_send(ends[0], told.data(), told.size(), fds, count);
        if (rnd.one_in(2)) {
            close(ends[0]);
            ends[0] = -1;
        }
        for (ucs_status_t status = UCS_OK; ends[1] >= 0;) {
            status = uct_descriptor_listen(&ends[1], &fd, &length);
            if (status == UCS_OK) {
                EXPECT_GE(fd, 0);
                close(fd);
            } else if (status == UCS_ERR_NO_RESOURCE) {
                close(ends[1]);
                ends[1] = -1;
            }
        }
        if (ends[0] >= 0) {
            close(ends[0]);
        }
    }
    EXPECT_EQ(files.size(), sys_meter::descriptors().size());
}

} // namespace
