/* Halyard: random programs: two or three processes with memory of all kinds that CUDA has, which
 * do everything at once that the interface offers, each byte checked.
 *
 * All processes derive the same plan from the program's seed: settings, areas of memory, and for
 * each round its operations, where their bytes lie on either side, and what must come of them. Each
 * process starts its own part in an order of its own. At the end of a round all its areas must be
 * what the plan says, the bytes between messages too.
 *
 *   HALYARD_PROGRAMS=N      so many programs
 *   HALYARD_TEST_SEED=S     the first one has this seed, the next one S + 1, and so on
 *   HALYARD_TEST_LIMIT=T    longer than usual, for slow machines
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "program.h"

#include <csignal>
#include <execinfo.h>

using mp::processes;
using mp::self;
using mp::programs::plan;
using mp::programs::program;

namespace {

constexpr uint64_t SEED          = 20261129;
constexpr unsigned PROGRAMS      = 50;
constexpr unsigned PROGRAMS_REAL = 10; /* contexts of a real device take their time */

struct sigaction g_actions_before[NSIG];

void on_crash(int signum, siginfo_t *info, void *)
{
    void *frames[64];
    char text[64];
    const int length = snprintf(text, sizeof(text), "*** signal %d at %p: ", signum, info->si_addr);

    (void)!write(STDERR_FILENO, text, static_cast<size_t>(length));
    (void)!write(STDERR_FILENO, mp::programs::where, strlen(mp::programs::where));
    (void)!write(STDERR_FILENO, "\n", 1);
    backtrace_symbols_fd(frames, backtrace(frames, std::size(frames)), STDERR_FILENO);
    sigaction(signum, &g_actions_before[signum], nullptr);
    if (info->si_code <= 0) {
        raise(signum); /* nothing will do again what has led here */
    }
}

void watch_crashes()
{
    struct sigaction action = {};
    void *frame;

    backtrace(&frame, 1); /* loads what it needs */
    action.sa_sigaction = on_crash;
    action.sa_flags     = SA_SIGINFO;
    for (int signum : {SIGSEGV, SIGBUS, SIGABRT}) {
        sigaction(signum, &action, &g_actions_before[signum]);
    }
}

unsigned program_count()
{
    const char *number = getenv("HALYARD_PROGRAMS");

    return (number != nullptr) ? static_cast<unsigned>(strtoul(number, nullptr, 0)) :
           mp::is_gpu_real()   ? PROGRAMS_REAL :
                                 static_cast<unsigned>(PROGRAMS / mp::slowness());
}

class mp_cuda_programs : public testing::TestWithParam<unsigned> {
};

} // namespace

TEST_P(mp_cuda_programs, every_byte)
{
    NEED_GPU();
    const uint64_t seed = chosen_seed(SEED) + GetParam();
    const plan p(seed);
    processes all(p.count());

    SCOPED_TRACE("HALYARD_TEST_SEED=" + std::to_string(seed) + " HALYARD_PROGRAMS=1 repeats: " +
                 p.text());
    all.start_all([&](self &me) {
        watch_crashes();
        plan mine(seed);
        program run(me, mine, seed);
        for (unsigned round = 0; round < mine.rounds(); ++round) {
            run.run_round(round);
        }
    });
    EXPECT_TRUE(all.join());
    const size_t lines = all.log_lines("cannot be mapped by other processes"); /* one a reason */
    EXPECT_TRUE(mp::is_gpu_real() || ((all.log_lines() == lines) && (lines <= 2 * p.count())))
        << all.log();
}

INSTANTIATE_TEST_SUITE_P(all, mp_cuda_programs, testing::Range(0u, program_count()));
