/* Halyard: the ways in which the leader uses a session.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "report.h"
#include "session.h"

/* run.c: the test named by -t over all sizes; rows are printed as they come. Returns 0, or -1
 * after an error message. */
int perf_run_test(perf_session_t *session, perf_report_t *report);

/* table.c: limits beside tag tests, in interleaved rounds (--self without -t, -t limits). */
int perf_run_table(perf_session_t *session, perf_report_t *report);

/* Fills in the sizes that the table will have, for the buffers. */
void perf_run_table_sizes(perf_options_t *options);

/* How many iterations of this size fill about `target_ns`; found by trying, but never with more
 * than `tries_max` at once. Returns 0 on failure. */
uint64_t perf_run_calibrate(perf_session_t *session, unsigned op, uint64_t size, unsigned window,
                            double target_ns, uint64_t tries_max);

/* self.c: forks, pins, runs and watches the processes of --self. Returns an exit code. */
int perf_self_main(const perf_options_t *options);

/* remote.c: server and client. Return exit codes. */
int perf_server_main(const perf_options_t *options);
int perf_client_main(const perf_options_t *options);

/* startup.c: one side of one start-up run; the leader stores what it found at *startup_p. Must be
 * the first use of the library in this process. Reading the memory map takes time, so a run
 * measures either memory (`memory` = 1) or time. Returns 0, or -1 after an error message. */
int perf_startup_run(perf_channel_t *channel, int leader, int memory, perf_startup_t *startup_p);

/* Medians of the valid runs; prints them unless told to be quiet. */
void perf_startup_gather(const perf_startup_t *runs, unsigned count, perf_report_t *report);
void perf_startup_print(const perf_report_t *report);

/* The exit code that belongs to how a session ended. */
int perf_exit_code(ucs_status_t status);

#endif
