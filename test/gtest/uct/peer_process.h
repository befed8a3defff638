/* Halyard: a forked peer for the tests of transports: a process that runs a function, a channel to
 * it, and an end of it in any case.
 *
 * The child may use EXPECT_...: what fails there is printed and makes its exit code 1.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_PEER_PROCESS_H
#define TEST_GTEST_UCT_PEER_PROCESS_H

#include "world.h"

#include <functional>
#include <sys/types.h>

namespace uct_test {

/* A socket between parent and child that carries blocks of bytes. Reading has a time limit, after
 * which it returns false. */
class channel {
public:
    explicit channel(int fd) : m_fd(fd)
    {
    }

    void put(const bytes &data);
    bool get(bytes &data);
    void put_number(uint64_t number);
    uint64_t get_number(); /* UINT64_MAX: nothing came */
    void put_contact(const contact &c);
    contact get_contact();

    int fd() const
    {
        return m_fd;
    }

private:
    bool read_all(void *data, size_t length);

    int m_fd;
};

class peer_process {
public:
    using body = std::function<void(channel &parent)>;

    /* Forks; the child runs func and exits. Open interfaces after this, not before. */
    explicit peer_process(const body &func);
    ~peer_process();
    peer_process(const peer_process &) = delete;
    peer_process &operator=(const peer_process &) = delete;

    channel &link()
    {
        return m_link;
    }

    pid_t pid() const
    {
        return m_pid;
    }

    /* SIGKILL, and it is gone when this returns. */
    void kill_now();

    /* Waits for its end while progressing the workers; the exit code, 128 + signal, or -1 where the
     * time was over and it had to be killed. */
    int wait(const std::vector<worker *> &workers = {});

private:
    pid_t m_pid;
    channel m_link;
    bool m_reaped = false;
};

} // namespace uct_test

#endif
