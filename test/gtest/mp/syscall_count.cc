/* Halyard: counts the system calls of a piece of code.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "syscall_count.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF          0
#define PR_SYS_DISPATCH_ON           1
#endif

namespace mp {

#if defined(__x86_64__)

static constexpr char ALLOW = 0; /* SYSCALL_DISPATCH_FILTER_ALLOW */
static constexpr char BLOCK = 1;

static volatile char g_selector;
static long          g_count;
static long          g_numbers[16];

/* Makes the call that was held back. Its return through the kernel (rt_sigreturn) must pass, so the
 * handler leaves by a system call while the selector allows it, and the trampoline sets it back. */
static void on_syscall(int, siginfo_t *info, void *context)
{
    greg_t *regs = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;

    g_selector = ALLOW;
    if (g_count < 16) {
        g_numbers[g_count] = info->si_syscall;
    }
    ++g_count;
    const long ret = syscall(info->si_syscall, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX],
                             regs[REG_R10], regs[REG_R8], regs[REG_R9]);
    regs[REG_RAX]  = (ret == -1) ? -errno : ret;
}

long count_syscalls(const std::function<void()> &func, std::string *numbers_p)
{
    struct sigaction action = {}, old;

    action.sa_sigaction = on_syscall;
    action.sa_flags     = SA_SIGINFO;
    sigaction(SIGSYS, &action, &old);
    g_count    = 0;
    g_selector = ALLOW;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &g_selector) != 0) {
        *numbers_p = std::string("syscall user dispatch: ") + strerror(errno);
        sigaction(SIGSYS, &old, nullptr);
        return -1;
    }

    g_selector = BLOCK;
    func();
    g_selector = ALLOW;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
    sigaction(SIGSYS, &old, nullptr);

    numbers_p->clear();
    for (long i = 0; (i < g_count) && (i < 16); ++i) {
        *numbers_p += " " + std::to_string(g_numbers[i]);
    }
    return g_count;
}

#else

long count_syscalls(const std::function<void()> &, std::string *numbers_p)
{
    *numbers_p = "only on x86_64";
    return -1;
}

#endif

} // namespace mp
