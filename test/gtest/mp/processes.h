/* Halyard: several processes of a test: forked, watched, killed, and what they tell each other.
 *
 * The test itself is the coordinator: it starts processes, waits for them, kills them, and uses
 * nothing of the library. All of them see one board in shared memory with a slot for each process:
 * its address, numbers whose meaning belongs to the test, and a text that says what it waits for.
 * When the time limit expires, that text and the kernel's view of each process are printed, and
 * these processes and no others are killed.
 *
 * A process may use EXPECT_... and ASSERT_...: what fails there is printed and makes its exit code
 * 1, which the coordinator reports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_PROCESSES_H
#define TEST_GTEST_MP_PROCESSES_H

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace mp {

constexpr unsigned SLOT_WORDS   = 32;
constexpr size_t   ADDRESS_ROOM = 256;

struct slot {
    std::atomic<uint32_t> address_serial; /* raised when a new address has been written */
    uint32_t              address_length;
    uint8_t               address[ADDRESS_ROOM];
    std::atomic<uint64_t> words[SLOT_WORDS];
    char                  waits_for[160];
};

/* Monotonic time in seconds. */
double now_s();

/* Seconds that this process had, to bound what it waits for: of what passes between two looks a few
 * milliseconds count at most, since longer it was stopped, or others had the processor. */
class own_time {
public:
    double s()
    {
        const double now = now_s();

        m_sum += std::min(now - m_last, LOOK_MAX_S);
        m_last = now;
        return m_sum;
    }

private:
    static constexpr double LOOK_MAX_S = 0.01;

    double m_last = now_s();
    double m_sum  = 0;
};

/* Limit of a whole test of several processes: below that of main.cc, with time to print. */
double limit_s();

/* How much slower than usual things may be: 1, more under sanitizers. */
double slowness();

/* What a process knows of itself and the others. */
class self {
public:
    self(unsigned index, unsigned count, slot *board) :
        m_index(index), m_count(count), m_board(board)
    {
    }

    unsigned index() const
    {
        return m_index;
    }

    unsigned count() const
    {
        return m_count;
    }

    slot &at(unsigned index) const
    {
        return m_board[index];
    }

    slot &own() const
    {
        return m_board[m_index];
    }

    /* Shown when the time limit expires. */
    void waits_for(const char *format, ...) const __attribute__((format(printf, 2, 3)));

private:
    unsigned m_index;
    unsigned m_count;
    slot    *m_board;
};

class processes {
public:
    using body = std::function<void(self &me)>;

    explicit processes(unsigned count);
    ~processes(); /* kills what still runs */
    processes(const processes &) = delete;
    processes &operator=(const processes &) = delete;

    /* Forks process `index`, which runs func and exits. An index may be started again once its
     * process was reaped. */
    void start(unsigned index, const body &func);
    void start_all(const body &func);

    void kill_now(unsigned index);          /* SIGKILL, and it is gone when this returns */
    void signal(unsigned index, int signum);

    bool is_running(unsigned index) const
    {
        return m_members[index].pid > 0;
    }

    pid_t pid(unsigned index) const
    {
        return m_members[index].pid;
    }

    /* Of its first process, also when that has ended. */
    pid_t first_pid(unsigned index) const
    {
        return m_members[index].first_pid;
    }

    slot &at(unsigned index)
    {
        return m_board[index];
    }

    /* Until condition() is true; fails the test and returns false on expiry, or where a process
     * ends with an error meanwhile. */
    bool until(const std::function<bool()> &condition, const char *what);

    /* Until all have ended by themselves. */
    bool join();

    /* What all processes have written to standard error so far. It is printed where the test
     * fails. */
    std::string log() const;
    size_t log_lines(const std::string &part = "") const; /* in which this stands */

private:
    struct member {
        pid_t pid       = 0; /* 0: none, or reaped */
        pid_t first_pid = 0;
    };

    bool reap();
    void print_state();
    void kill_all();

    std::vector<member> m_members;
    slot               *m_board;
    int                 m_log_fd;
    double              m_start_s;
    bool                m_failed = false;
};

/* Runs func in a forked process, so that what it does to its process (namespaces, limits, filters)
 * stays there. Returns its exit code: 0, 1 where an expectation failed, 77 where it skipped, 128 +
 * signal. */
int run_apart(const std::function<void()> &func);

} // namespace mp

#endif
