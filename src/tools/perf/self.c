/* Halyard: --self: forks the two processes of a test, binds them, and watches over them.
 *
 * The parent never uses the library. It sleeps until a child ends or a second has passed, so it
 * does not disturb what is measured; when a child dies or stands still too long it says where each
 * of the two stood, and ends both by their ids.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "run.h"
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STARTUP_RUNS       10
#define STARTUP_RUNS_QUICK 4
#define GO_POLL_US         50
#define LINGER_NS          3e9 /* from the first child's failure to the end of the other */

typedef struct pair {
    const perf_options_t *options;
    perf_shared_t        *shared;
    int                   bound;     /* processors chosen: 2, 1 shared, 0 none */
    int                   startup;   /* index of the start-up run; -1: the test itself */
    sigset_t              ended;     /* the signal that a child has */
} pair_t;

static int run_session(const pair_t *pair, perf_session_t *session)
{
    const perf_options_t *options = pair->options;

    if (options->params.threads > 1) {
        perf_lanes_bind(session, options, !session->leader);
    }
    if (!session->leader) {
        return perf_follow(session);
    }
    return (session->cpu_count > 0) ?
           perf_lead(session, options, session->cpus, session->cpu_count) :
           perf_lead(session, options, pair->shared->cpus, (unsigned)pair->bound);
}

static int run_startup(const pair_t *pair, perf_session_t *session, int index)
{
    const perf_params_t *params = &pair->options->params;

    if (perf_params_use_device(params, (unsigned)index) &&
        (perf_device_open(&session->device, params->device[index], (unsigned)index) != 0)) {
        perf_error("%s", session->device.problem);
        return PERF_EXIT_FAILED;
    }
    return (perf_startup_run(session, !perf_params_use_device(params, 0) && (pair->startup % 2),
                             &pair->shared->startup[pair->startup]) == 0) ?
           PERF_EXIT_OK : PERF_EXIT_FAILED;
}

/* A child: bound, watched, gone when the parent is gone. */
static int child_main(const pair_t *pair, int index, int fd, pid_t parent)
{
    static perf_session_t session;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        return PERF_EXIT_FAILED;
    }
    perf_watch_init(&pair->shared->watch[index], pair->options->timeout_s);
    perf_note_quiet(pair->options->quiet || (pair->startup >= 0) || (index == 1));
    session.shared = pair->shared;
    session.leader = (index == 0);
    perf_oob_wrap(fd, (index == 0) ? "process 1" : "process 0", PERF_OOB_WATCHED_MS,
                  &session.channel);
    if (pair->bound > 0) {
        (void)perf_pin_to(pair->shared->cpus[index]); /* the parent has tried it */
    }
    /* The limits need both ids. */
    while (!atomic_load_explicit(&pair->shared->go, memory_order_acquire)) {
        usleep(GO_POLL_US);
    }
    return (pair->startup >= 0) ? run_startup(pair, &session, index) :
                                  run_session(pair, &session);
}

static void print_process(const perf_shared_t *shared, int index, const char *state)
{
    fprintf(stderr, "ucx_perftest:   process %d (id %d, %s) %s, at: %.119s\n", index,
            shared->pids[index], (index == 0) ? "leader" : "peer", state,
            shared->watch[index].stage);
}

typedef struct monitor {
    int      alive[2];
    int      status[2]; /* as of waitpid() */
    uint64_t beats;     /* of both */
    double   beat_ns;   /* when the last came */
    double   failed_ns; /* when the first child failed; 0: none */
} monitor_t;

/* Takes in the children that ended. */
static void reap(const pair_t *pair, monitor_t *monitor)
{
    char text[96];
    int i;

    for (i = 0; i < 2; ++i) {
        if (!monitor->alive[i] ||
            (waitpid(pair->shared->pids[i], &monitor->status[i], WNOHANG) !=
             pair->shared->pids[i])) {
            continue;
        }
        monitor->alive[i] = 0;
        if (WIFSIGNALED(monitor->status[i])) {
            snprintf(text, sizeof(text), "was ended by signal %d (%s)",
                     WTERMSIG(monitor->status[i]), strsignal(WTERMSIG(monitor->status[i])));
            print_process(pair->shared, i, text);
        }
        if ((monitor->status[i] != 0) && (monitor->failed_ns == 0)) {
            monitor->failed_ns = perf_now_ns();
        }
    }
}

/* 1 when for too long none of the children has come any further: one may wait for the other. */
static int is_stuck(const pair_t *pair, monitor_t *monitor)
{
    const perf_watch_slot_t *watch = pair->shared->watch;
    const double now_ns            = perf_now_ns();
    const uint64_t beats           = atomic_load_explicit(&watch[0].beat, memory_order_relaxed) +
                                     atomic_load_explicit(&watch[1].beat, memory_order_relaxed);

    if ((beats != monitor->beats) || (monitor->beat_ns == 0)) {
        monitor->beats   = beats;
        monitor->beat_ns = now_ns;
    }
    return now_ns - monitor->beat_ns > (pair->options->timeout_s + 2) * 1e9;
}

/* Says in which state each child is (NULL: nothing of the ended), and ends it. */
static void end_children(const pair_t *pair, monitor_t *monitor, const char *alive,
                         const char *ended)
{
    int i;

    for (i = 0; i < 2; ++i) {
        if (monitor->alive[i] || (ended != NULL)) {
            print_process(pair->shared, i, monitor->alive[i] ? alive : ended);
        }
    }
    for (i = 0; i < 2; ++i) {
        if (monitor->alive[i]) {
            kill(pair->shared->pids[i], SIGKILL);
            waitpid(pair->shared->pids[i], &monitor->status[i], 0);
        }
    }
}

/* The side that found a reason knows more than the one that lost its peer. */
static int pair_exit_code(const monitor_t *monitor)
{
    int code = PERF_EXIT_OK, i, own;

    for (i = 0; i < 2; ++i) {
        own = WIFEXITED(monitor->status[i]) ? WEXITSTATUS(monitor->status[i]) : PERF_EXIT_FAILED;
        if (own > code) {
            code = own;
        }
    }
    return code;
}

/* Waits for both children. Returns an exit code. */
static int watch_children(const pair_t *pair)
{
    monitor_t monitor         = {.alive = {1, 1}};
    struct timespec one_second = {.tv_sec = 1};

    for (;;) {
        reap(pair, &monitor);
        if (!monitor.alive[0] && !monitor.alive[1]) {
            break;
        }
        if ((monitor.failed_ns != 0) && (perf_now_ns() - monitor.failed_ns > LINGER_NS)) {
            end_children(pair, &monitor, "still ran and was ended", NULL);
            break;
        }
        if (is_stuck(pair, &monitor)) {
            perf_error("no progress for %u s (--timeout)", pair->options->timeout_s);
            end_children(pair, &monitor, "stood", "had ended");
            return PERF_EXIT_TIMEOUT;
        }
        (void)sigtimedwait(&pair->ended, NULL, &one_second);
    }
    return pair_exit_code(&monitor);
}

/* Forks both sides, gives each its end of a socketpair, and waits for them. */
static int run_pair(const pair_t *pair)
{
    pid_t parent = getpid();
    int ends[2], i;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        perf_error("socketpair: %s", strerror(errno));
        return PERF_EXIT_FAILED;
    }
    fflush(NULL);
    memset(pair->shared->watch, 0, sizeof(pair->shared->watch));
    atomic_store_explicit(&pair->shared->go, 0, memory_order_relaxed);
    for (i = 0; i < 2; ++i) {
        pid = fork();
        if (pid < 0) {
            perf_error("fork: %s", strerror(errno));
            if (i == 1) {
                kill(pair->shared->pids[0], SIGKILL);
                waitpid(pair->shared->pids[0], NULL, 0);
            }
            return PERF_EXIT_FAILED;
        }
        if (pid == 0) {
            sigset_t none;

            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            close(ends[!i]);
            exit(child_main(pair, i, ends[i], parent));
        }
        pair->shared->pids[i] = pid;
    }
    close(ends[0]);
    close(ends[1]);
    atomic_store_explicit(&pair->shared->go, 1, memory_order_release);
    return watch_children(pair);
}

/* Chooses processors and says what it could not do. Returns 0, or -1 after an error message. */
static int choose_cpus(pair_t *pair)
{
    const perf_options_t *options = pair->options;
    int *cpus                     = pair->shared->cpus;

    /* Figures of other processors are not what was asked for. */
    if (perf_pin_check(options->cpus, options->cpu_count) != 0) {
        return -1;
    }
    if (options->params.threads > 1) {
        /* The threads bind themselves when -c names processors for them. */
        cpus[1] = 1;
        return 0;
    }
    if (options->cpu_count >= 2) {
        cpus[0]     = options->cpus[0];
        cpus[1]     = options->cpus[1];
        pair->bound = 2;
    } else {
        pair->bound = perf_pin_choose(cpus);
        if ((perf_pin_try(cpus[0]) != 0) || (perf_pin_try(cpus[1]) != 0)) {
            pair->bound = 0;
        }
    }
    if (pair->bound == 0) {
        cpus[0] = 0;
        cpus[1] = 1;
        perf_note("note: the processes cannot be bound to processors here, and are not");
    } else if ((pair->bound == 1) || (cpus[0] == cpus[1])) {
        perf_note("note: both processes share processor %d: the figures are those of the "
                  "scheduler, not of the machine", cpus[0]);
    } else if (perf_pin_same_core(cpus[0], cpus[1])) {
        perf_note("note: processors %d and %d are threads of one core", cpus[0], cpus[1]);
    }
    return 0;
}

int perf_self_main(const perf_options_t *options)
{
    pair_t pair = {.options = options, .startup = -1};
    int status, runs;

    pair.shared = perf_shared_map();
    if ((pair.shared == NULL) || (choose_cpus(&pair) != 0)) {
        return PERF_EXIT_FAILED;
    }
    sigemptyset(&pair.ended);
    sigaddset(&pair.ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &pair.ended, NULL);
    if ((options->op < 0) && !options->limits_only && (options->batch == NULL)) {
        runs = options->quick ? STARTUP_RUNS_QUICK : STARTUP_RUNS;
        if (perf_params_use_device(&options->params, 0) ||
            perf_params_use_device(&options->params, 1)) {
            /* Starting a device's driver takes a second. */
            runs = options->quick ? 0 : STARTUP_RUNS_QUICK;
        }
        for (pair.startup = 0; pair.startup < runs; ++pair.startup) {
            status = run_pair(&pair);
            if (status != PERF_EXIT_OK) {
                perf_error("start-up run failed");
                return status;
            }
        }
        pair.startup = -1;
    }
    return run_pair(&pair);
}
