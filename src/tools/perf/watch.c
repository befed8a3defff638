/* Halyard: stages, time limit, and messages to stderr.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Thread_local perf_watch_slot_t own_slot;
static _Thread_local perf_watch_slot_t *given_slot = NULL;
static _Thread_local int notes_quiet               = 0;
static unsigned stage_limit_s                      = 0;

/* The counters of the follower and of the leader, of which -l has both in one process; what they
 * showed together when the time limit began. */
static const volatile uint64_t *_Atomic watched[2] = {NULL, NULL};
static _Atomic uint64_t watched_before             = 0;

static perf_watch_slot_t *current_slot(void)
{
    return (given_slot != NULL) ? given_slot : &own_slot;
}

/* In a signal handler only write() and _exit() are allowed, so no printf here. */
static void write_text(const char *text)
{
    size_t left = strlen(text);
    ssize_t done;

    while (left > 0) {
        done = write(STDERR_FILENO, text, left);
        if (done <= 0) {
            return;
        }
        text += done;
        left -= (size_t)done;
    }
}

static void beat(void)
{
    atomic_fetch_add_explicit(&current_slot()->beat, 1, memory_order_relaxed);
    alarm(stage_limit_s);
}

static uint64_t watched_now(void)
{
    const volatile uint64_t *counter;
    uint64_t count = 0;
    int i;

    for (i = 0; i < 2; ++i) {
        counter = watched[i];
        count  += (counter != NULL) ? *counter : 0;
    }
    return count;
}

static void on_alarm(int signal_number)
{
    const uint64_t count = watched_now();

    (void)signal_number;
    if (count != watched_before) {
        watched_before = count;
        beat();
        return;
    }
    if (given_slot != NULL) {
        return;
    }
    write_text("ucx_perftest: error: time limit of a stage exceeded (--timeout); this process stood"
               " at: ");
    write_text(current_slot()->stage);
    write_text("\n");
    _exit(PERF_EXIT_TIMEOUT);
}

void perf_watch_init(perf_watch_slot_t *slot, unsigned timeout_s)
{
    struct sigaction action;

    given_slot    = slot;
    stage_limit_s = timeout_s;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_alarm;
    action.sa_flags   = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
}

void perf_watch_stage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(current_slot()->stage, sizeof(own_slot.stage) - 1, format, args);
    va_end(args);
    beat();
}

void perf_watch_counter(int is_leader, const uint64_t *counter)
{
    watched[is_leader != 0] = counter;
    watched_before          = watched_now();
}

const char *perf_watch_where(void)
{
    return current_slot()->stage;
}

static void print_line(const char *prefix, const char *format, va_list args)
{
    char line[1024];

    vsnprintf(line, sizeof(line), format, args);
    fflush(stdout);
    fprintf(stderr, "ucx_perftest: %s%s\n", prefix, line);
}

int perf_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line("error: ", format, args);
    va_end(args);
    return -1;
}

void perf_note(const char *format, ...)
{
    va_list args;

    if (!notes_quiet) {
        va_start(args, format);
        print_line("", format, args);
        va_end(args);
    }
}

void perf_note_quiet(int quiet)
{
    notes_quiet = quiet;
}
