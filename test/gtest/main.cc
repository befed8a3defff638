/* Halyard: main program of the unit tests.
 *
 * The tests run in a child process in its own process group; this process watches them. When one
 * test takes longer than its limit, the state of every process of the group is printed, the
 * group is killed, and the run fails naming the test. The watcher is a process and not a thread
 * because the tests fork, and because a hung process can be looked at from outside.
 *
 *   HALYARD_TEST_LIMIT=<seconds>  limit of one test (default 60; 0: no limit and no watcher,
 *                                 for debuggers)
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

/* Asked by LeakSanitizer. libfabric 1.17 keeps 600 bytes of each endpoint of the provider net. */
extern "C" const char *__lsan_default_suppressions();
extern "C" const char *__lsan_default_suppressions()
{
    return "leak:libfabric.so";
}

extern "C" const char *__lsan_default_options();
extern "C" const char *__lsan_default_options()
{
    return "print_suppressions=0"; /* tests count lines */
}

namespace {

constexpr int TEST_LIMIT_S_DEFAULT = 60;
constexpr int EXIT_TIME_LIMIT      = 124;

volatile sig_atomic_t g_group;

/* One line per start of a test goes to the watcher. Forked children of a test inherit the
 * descriptor but never start a test, so they never write. */
class start_reporter : public testing::EmptyTestEventListener {
public:
    explicit start_reporter(int fd) : m_fd(fd)
    {
    }

    void OnTestStart(const testing::TestInfo &info) override
    {
        report(std::string(info.test_suite_name()) + "." + info.name());
    }

    void OnTestProgramEnd(const testing::UnitTest &) override
    {
        report("(leaving the program)");
    }

private:
    void report(const std::string &name)
    {
        const std::string line = name + "\n";
        if (write(m_fd, line.data(), line.size()) < 0) {
            perror("write to the watcher");
        }
    }

    int m_fd;
};

void forward_signal(int signum)
{
    if (g_group > 0) {
        kill(-g_group, SIGKILL);
    }
    signal(signum, SIG_DFL);
    raise(signum);
}

std::vector<pid_t> group_members(pid_t group)
{
    std::vector<pid_t> members;
    DIR *proc = opendir("/proc");
    if (proc == nullptr) {
        return members;
    }
    while (struct dirent *entry = readdir(proc)) {
        const pid_t pid = static_cast<pid_t>(atoi(entry->d_name));
        if ((pid > 0) && (getpgid(pid) == group)) {
            members.push_back(pid);
        }
    }
    closedir(proc);
    return members;
}

void print_state(pid_t group)
{
    std::string command = std::string(HALYARD_SRCDIR) + "/contrib/run-limited.sh --dump";
    for (pid_t pid : group_members(group)) {
        command += " " + std::to_string(pid);
    }
    if (system(command.c_str()) != 0) {
        printf("could not run: %s\n", command.c_str());
    }
    fflush(stdout);
}

int run_tests(int report_fd)
{
    if (report_fd >= 0) {
        testing::UnitTest::GetInstance()->listeners().Append(new start_reporter(report_fd));
    }
    return RUN_ALL_TESTS();
}

int exit_code(int status, const std::string &test)
{
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    printf("[  FAILED  ] %s died by signal %d (%s) (0 ms)\n", test.c_str(), WTERMSIG(status),
           strsignal(WTERMSIG(status)));
    return 1;
}

/* Waits for the tests; returns the exit code of the whole. */
int watch(pid_t child, int report_fd, int limit_s)
{
    std::string test = "(before the first test)";
    std::string pending;
    char buffer[4096];

    for (;;) {
        struct pollfd event = {report_fd, POLLIN, 0};
        const int ret       = poll(&event, 1, limit_s * 1000);
        if ((ret < 0) && (errno == EINTR)) {
            continue;
        }
        if (ret == 0) {
            printf("\n*** time limit of %d s expired in %s\n", limit_s, test.c_str());
            fflush(stdout);
            print_state(child);
            kill(-child, SIGKILL);
            waitpid(child, nullptr, 0);
            printf("[  FAILED  ] %s: time limit expired (%d ms)\n", test.c_str(),
                   limit_s * 1000);
            return EXIT_TIME_LIMIT;
        }

        const ssize_t length = read(report_fd, buffer, sizeof(buffer));
        if (length <= 0) {
            break;
        }
        pending.append(buffer, length);
        size_t end;
        while ((end = pending.find('\n')) != std::string::npos) {
            test = pending.substr(0, end);
            pending.erase(0, end + 1);
        }
    }

    int status = 0;
    waitpid(child, &status, 0);
    kill(-child, SIGKILL);
    return exit_code(status, test);
}

} // namespace

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    /* Networks are loaded by the tests of networks only; deaths are noticed before these get
     * tired. */
    setenv("UCX_NET_ADDRESS", "n", 0);
#ifdef HAVE_OFI
    setenv("UCX_OFI_TIMEOUT", "2s", 0);
    /* By itself rxd sends more at a time than a socket holds, and breaks messages of what the
     * kernel drops of that. Libfabric looks at this once, when it is loaded. */
    setenv("FI_OFI_RXD_MAX_UNACKED", "32", 0);
#endif

    const char *limit = getenv("HALYARD_TEST_LIMIT");
    const int limit_s = (limit != nullptr) ? atoi(limit) : TEST_LIMIT_S_DEFAULT;
    if ((limit_s <= 0) || testing::GTEST_FLAG(list_tests)) {
        return run_tests(-1);
    }

    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        perror("pipe2");
        return 1;
    }

    const pid_t parent = getpid();
    const pid_t child  = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        close(fds[0]);
        return run_tests(fds[1]);
    }

    setpgid(child, child);
    g_group = child;
    signal(SIGINT, forward_signal);
    signal(SIGTERM, forward_signal);
    signal(SIGHUP, forward_signal);
    close(fds[1]);
    return watch(child, fds[0], limit_s);
}
