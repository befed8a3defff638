/* Halyard: several processes of a test.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "processes.h"

#include <ucs/sys/compiler.h>

#include <sstream>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
#define SLOWNESS 5.0
#else
#define SLOWNESS 1.0
#endif

#if UCS_HAVE_ASAN
extern "C" int __lsan_do_recoverable_leak_check(void);
#endif

namespace mp {

static constexpr int EXIT_SKIPPED = 77;

double now_s()
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<double>(ts.tv_sec) + (static_cast<double>(ts.tv_nsec) * 1e-9);
}

double limit_s()
{
    const char *limit = getenv("HALYARD_TEST_LIMIT");
    const int seconds = (limit != nullptr) ? atoi(limit) : 60;

    return (seconds > 0) ? 0.6 * seconds : 1e9; /* 0: a debugger is at work */
}

double slowness()
{
    return SLOWNESS;
}

void self::waits_for(const char *format, ...) const
{
    va_list args;

    va_start(args, format);
    vsnprintf(own().waits_for, sizeof(own().waits_for), format, args);
    va_end(args);
}

/* Expectations that have failed or were skipped so far; a forked process inherits its parent's. */
static int count_parts()
{
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

#if UCS_HAVE_ASAN
/* The search for leaks runs in a helper that the runtime clones, and that must see its parent and
 * be allowed to trace it. The helper of a process that has made a namespace of process ids for its
 * children sees none, and the process would wait for it for ever. */
static bool can_look_for_leaks()
{
    struct stat own, of_children;

    return (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0) && (stat("/proc/self/ns/pid", &own) == 0) &&
           (stat("/proc/self/ns/pid_for_children", &of_children) == 0) &&
           (own.st_ino == of_children.st_ino);
}
#endif

/* Exit code of a forked process of a test. */
static int child_exit_code(int inherited_parts)
{
    const testing::TestResult *result =
        testing::UnitTest::GetInstance()->current_test_info()->result();
    int code = 0;

    for (int i = inherited_parts; i < result->total_part_count(); ++i) {
        if (result->GetTestPartResult(i).failed()) {
            code = 1;
        } else if ((code == 0) && result->GetTestPartResult(i).skipped()) {
            code = EXIT_SKIPPED;
        }
    }

#if UCS_HAVE_ASAN
    if ((code == 0) && can_look_for_leaks() && __lsan_do_recoverable_leak_check()) {
        code = 1;
    }
#endif
    fflush(stdout);
    fflush(stderr);
    return code;
}

processes::processes(unsigned count) :
    m_members(count), m_log_fd(open("/tmp", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600)),
    m_start_s(now_s())
{
    void *memory = mmap(nullptr, count * sizeof(slot), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if ((memory == MAP_FAILED) || (m_log_fd < 0)) {
        perror("board of the processes of a test");
        abort();
    }
    m_board = new (memory) slot[count]();
}

processes::~processes()
{
    kill_all();
    if (testing::Test::HasFailure()) {
        printf("*** standard error of the processes:\n%s", log().c_str());
    }
    close(m_log_fd);
    munmap(m_board, m_members.size() * sizeof(slot));
}

void processes::start(unsigned index, const body &func)
{
    const pid_t parent = getpid();

    fflush(stdout);
    fflush(stderr);
    const pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        abort();
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        dup2(m_log_fd, STDERR_FILENO);
        const int parts = count_parts();
        self me(index, static_cast<unsigned>(m_members.size()), m_board);
        func(me);
        me.waits_for("nothing: at its end");
        _exit(child_exit_code(parts));
    }
    m_members[index].pid = pid;
    if (m_members[index].first_pid == 0) {
        m_members[index].first_pid = pid;
    }
}

void processes::start_all(const body &func)
{
    for (unsigned i = 0; i < m_members.size(); ++i) {
        start(i, func);
    }
}

void processes::kill_now(unsigned index)
{
    member &m = m_members[index];

    if (m.pid > 0) {
        kill(m.pid, SIGKILL);
        waitpid(m.pid, nullptr, 0);
        m.pid = 0;
    }
}

void processes::signal(unsigned index, int signum)
{
    if (m_members[index].pid > 0) {
        kill(m_members[index].pid, signum);
    }
}

void processes::kill_all()
{
    for (unsigned i = 0; i < m_members.size(); ++i) {
        kill_now(i);
    }
}

/* Collects those that have ended. Returns whether all that ended did so without an error. */
bool processes::reap()
{
    for (unsigned i = 0; i < m_members.size(); ++i) {
        int status;

        if ((m_members[i].pid <= 0) || (waitpid(m_members[i].pid, &status, WNOHANG) == 0)) {
            continue;
        }
        m_members[i].pid = 0;
        if (WIFSIGNALED(status)) {
            ADD_FAILURE() << "process " << i << " died by signal " << WTERMSIG(status) << " ("
                          << strsignal(WTERMSIG(status)) << "), last waiting for: "
                          << m_board[i].waits_for;
            m_failed = true;
        } else if (WEXITSTATUS(status) != 0) {
            ADD_FAILURE() << "process " << i << " ended with " << WEXITSTATUS(status)
                          << ", last waiting for: " << m_board[i].waits_for;
            m_failed = true;
        }
    }
    return !m_failed;
}

void processes::print_state()
{
    std::string command = std::string(HALYARD_SRCDIR) + "/contrib/run-limited.sh --dump";

    for (unsigned i = 0; i < m_members.size(); ++i) {
        if (m_members[i].pid > 0) {
            printf("*** process %u (pid %d) waits for: %s\n", i, (int)m_members[i].pid,
                   m_board[i].waits_for);
            command += " " + std::to_string(m_members[i].pid);
        }
    }
    fflush(stdout);
    if (system(command.c_str()) != 0) {
        printf("could not run: %s\n", command.c_str());
    }
    fflush(stdout);
}

bool processes::until(const std::function<bool()> &condition, const char *what)
{
    while (!condition()) {
        if (!reap()) {
            kill_all(); /* the others would wait for the one that failed */
            return false;
        }
        if (now_s() - m_start_s > limit_s()) {
            ADD_FAILURE() << "time limit of " << limit_s() << " s expired, waiting for " << what;
            print_state();
            kill_all();
            m_failed = true;
            return false;
        }
        usleep(200);
    }
    return !m_failed;
}

bool processes::join()
{
    const auto all_ended = [this]() {
        (void)reap();
        for (const member &m : m_members) {
            if (m.pid > 0) {
                return false;
            }
        }
        return true;
    };

    return until(all_ended, "the end of all processes");
}

std::string processes::log() const
{
    std::string text;
    char buffer[4096];
    ssize_t length;

    while ((length = pread(m_log_fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) >
           0) {
        text.append(buffer, static_cast<size_t>(length));
    }
    return text;
}

size_t processes::log_lines(const std::string &part) const
{
    std::istringstream text(log());
    std::string line;
    size_t count = 0;

    while (std::getline(text, line)) {
        count += (line.find(part) != std::string::npos);
    }
    return count;
}

int run_apart(const std::function<void()> &func)
{
    int status = 0;

    fflush(stdout);
    fflush(stderr);
    const pid_t parent = getpid();
    const pid_t pid    = fork();
    if (pid < 0) {
        perror("fork");
        abort();
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if ((getppid() != parent) && (getpid() != 1)) { /* the first of a namespace sees none */
            _exit(1);
        }
        const int parts = count_parts();
        func();
        _exit(child_exit_code(parts));
    }
    while ((waitpid(pid, &status, 0) < 0) && (errno == EINTR)) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace mp
