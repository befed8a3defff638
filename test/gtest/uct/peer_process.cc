/* Halyard: a forked peer for the tests of transports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "peer_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace uct_test {

void channel::put(const bytes &data)
{
    const uint64_t length = data.size();
    bytes block(sizeof(length));

    memcpy(block.data(), &length, sizeof(length));
    block.insert(block.end(), data.begin(), data.end());
    if (::send(m_fd, block.data(), block.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(block.size())) {
        perror("channel");
    }
}

bool channel::read_all(void *data, size_t length)
{
    uint8_t *next = static_cast<uint8_t *>(data);

    while (length > 0) {
        struct pollfd event = {m_fd, POLLIN, 0};
        if ((poll(&event, 1, LIMIT_S * 1000) <= 0) && (errno != EINTR)) {
            return false;
        }
        const ssize_t ret = read(m_fd, next, length);
        if (ret <= 0) {
            return false;
        }
        next   += ret;
        length -= static_cast<size_t>(ret);
    }
    return true;
}

bool channel::get(bytes &data)
{
    uint64_t length;

    if (!read_all(&length, sizeof(length))) {
        return false;
    }
    data.resize(length);
    return read_all(data.data(), length);
}

void channel::put_number(uint64_t number)
{
    bytes data(sizeof(number));

    memcpy(data.data(), &number, sizeof(number));
    put(data);
}

uint64_t channel::get_number()
{
    uint64_t number = UINT64_MAX;
    bytes data;

    if (get(data) && (data.size() == sizeof(number))) {
        memcpy(&number, data.data(), sizeof(number));
    }
    return number;
}

void channel::put_contact(const contact &c)
{
    put(bytes(c.uid.begin(), c.uid.end()));
    put(c.address);
}

contact channel::get_contact()
{
    contact c = {};
    bytes uid;

    if (!get(uid) || (uid.size() != c.uid.size()) || !get(c.address)) {
        ADD_FAILURE() << "the other process sent no address";
        return c;
    }
    std::copy(uid.begin(), uid.end(), c.uid.begin());
    return c;
}

static int run_child(const peer_process::body &func, int fd)
{
    channel parent(fd);

    alarm(3 * LIMIT_S);
    func(parent);
    fflush(stdout);
    return testing::Test::HasFailure() ? 1 : 0;
}

peer_process::peer_process(const body &func) : m_pid(-1), m_link(-1)
{
    const pid_t parent = getpid();
    int fds[2];

    fflush(stdout);
    if ((socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) || ((m_pid = fork()) < 0)) {
        perror("peer process");
        abort();
    }
    if (m_pid == 0) {
        ::close(fds[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit((getppid() == parent) ? run_child(func, fds[1]) : 1);
    }
    ::close(fds[1]);
    m_link = channel(fds[0]);
}

peer_process::~peer_process()
{
    if (!m_reaped) {
        kill_now();
    }
    ::close(m_link.fd());
}

void peer_process::kill_now()
{
    kill(m_pid, SIGKILL);
    waitpid(m_pid, nullptr, 0);
    m_reaped = true;
}

int peer_process::wait(const std::vector<worker *> &workers)
{
    int status = 0;

    const bool ended = run_until(
        workers,
        [&]() {
            const pid_t ret = waitpid(m_pid, &status, WNOHANG);
            if ((ret == 0) && workers.empty()) {
                usleep(200);
            }
            return ret == m_pid;
        }, 3 * LIMIT_S);
    if (!ended) {
        kill_now();
        return -1;
    }
    m_reaped = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace uct_test
