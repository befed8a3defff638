/* Halyard: the ways in which the leader uses a session.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "report.h"
#include "session.h"

#include <ucs/debug/report.h>

/* run.c: the test named by -t over all sizes; rows are printed as they come. Returns 0, or -1
 * after an error message. */
int perf_run_test(perf_session_t *session, perf_report_t *report);

/* table.c: limits beside tag tests, in interleaved rounds (--self without -t, -t limits). */
int perf_run_table(perf_session_t *session, perf_report_t *report);

/* audit.c: the test with each protocol (-t audit). */
int perf_run_audit(perf_session_t *session, perf_report_t *report);

/* How many iterations of this step (its warmup and iters do not matter) fill about `target_ns`;
 * found by trying, but never with more than `tries_max` at once. Returns 0 on failure. */
uint64_t perf_run_calibrate(perf_session_t *session, const perf_step_t *what, double target_ns,
                            uint64_t tries_max);

/* All that the leader does on an open channel: opens the session, runs what the options say, writes
 * the files, closes. cpus[] are the processors of the test; count 0: it is not bound. Once in a
 * process. Returns an exit code. */
int perf_lead(perf_session_t *session, const perf_options_t *options, const int *cpus,
              unsigned count);

/* The same of the follower. */
int perf_follow(perf_session_t *session);

/* self.c: forks, pins, runs and watches the processes of --self. Returns an exit code. */
int perf_self_main(const perf_options_t *options);

/* remote.c: server and client. Return exit codes. */
int perf_server_main(const perf_options_t *options);
int perf_client_main(const perf_options_t *options);

/* remote.c: the threads of this side take turns among the processors that -c names; where there is
 * but one, it takes the `first` of them, counted from 0. */
void perf_lanes_bind(perf_session_t *session, const perf_options_t *options, unsigned first);

/* remote.c: binds this thread to the first of these processors; those that it starts take turns
 * among all. All are tried. `count` may be 0. Returns 0, or -1 after an error message. */
int perf_bind(const int *cpus, unsigned count, perf_session_t *session);

/* remote.c: both sides as threads of this process. Returns an exit code. */
int perf_loopback_main(const perf_options_t *options);

/* ranks.c */
typedef struct perf_ranks {
    int  rank, size;
    int  local_size; /* on this host; -1: not known */
    char job[64];    /* the same in all ranks of a host, and of no other job there */
} perf_ranks_t;

/* What a launcher (mpirun of Open MPI, MPICH and their kin) says about this process. Returns 1, or
 * 0 if none has started it, or it alone. */
int perf_ranks_find(perf_ranks_t *ranks_p);

/* Rank 0 leads, rank 1 follows. Returns an exit code. */
int perf_ranks_main(const perf_options_t *options, const perf_ranks_t *ranks);

/* startup.c: one side of one start-up run, by a session that has channel, shared and leader; the
 * leader stores what it found at *startup_p. Must be the first use of the library in this process.
 * Reading the memory map takes time, so a run measures either memory (`memory` = 1) or time.
 * Returns 0, or -1 after an error message. */
int perf_startup_run(perf_session_t *session, int memory, perf_startup_t *startup_p);

/* Medians of the valid ones among PERF_STARTUP_RUNS_MAX runs; prints them, and writes them as a
 * member of an object. */
void perf_startup_gather(const perf_startup_t *runs, perf_report_t *report);
void perf_startup_print(const perf_report_t *report);
void perf_startup_put(const perf_report_t *report, ucs_report_t *json);

#endif
