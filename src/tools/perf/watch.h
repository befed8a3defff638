/* Halyard: where a process of ucx_perftest stands, and what happens when it stands there too long.
 *
 * Each process names its stage in a slot. With --self the slots lie in shared memory and the
 * monitoring parent reads them (self.c); otherwise an alarm signal prints the own slot and ends
 * the process. Nothing runs in between, so nothing disturbs what is measured. A stage may be long
 * because others use the machine: its time begins anew where messages have come meanwhile.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_WATCH_H
#define PERF_WATCH_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

/* Exit codes of the tool. */
enum {
    PERF_EXIT_OK          = 0,
    PERF_EXIT_FAILED      = 1, /* wrong data, lost peer, library error, comparison worse */
    PERF_EXIT_USAGE       = 2,
    PERF_EXIT_UNSUPPORTED = 3, /* the library answers UCS_ERR_UNSUPPORTED */
    PERF_EXIT_TIMEOUT     = 4
};

typedef struct perf_watch_slot {
    _Atomic uint64_t beat;       /* raised at each change of stage */
    char             stage[120]; /* always NUL-terminated text; the last byte stays 0 */
} perf_watch_slot_t;

/* Uses `slot`, of which a monitor looks whether it still beats (owned by the caller, alive for the
 * rest of the process), or (NULL) one of its own: then the process ends with PERF_EXIT_TIMEOUT when
 * nothing happens in a stage for timeout_s seconds. Call once, from the main thread. */
void perf_watch_init(perf_watch_slot_t *slot, unsigned timeout_s);

/* Names the stage that begins in this thread and restarts the time limit of the process. Only a
 * thread that leads or follows a session has stages. */
void perf_watch_stage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A counter that grows with what a stage does, of the leader or the follower of a session; NULL:
 * there is none now. It stays until then. */
void perf_watch_counter(int is_leader, const uint64_t *counter);

/* The stage's text, for error messages. */
const char *perf_watch_where(void);

/* Prints "ucx_perftest: <text>" to stderr as one line. Returns -1. */
int perf_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for what is no error, unless silenced. */
void perf_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Silences perf_note() of this thread (-q). */
void perf_note_quiet(int quiet);

#endif
