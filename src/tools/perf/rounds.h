/* Halyard: measurements that take turns, for tables that compare them.
 *
 * For each size a few measurements ("cells") take turns in rounds of about a millisecond, so that
 * whatever disturbs the machine disturbs all of them alike. Measurements during which the kernel
 * preempted one of the processes are left out and repeated. Times are medians of the rounds. A
 * ratio is the median of the ratios within each round; beside it stands the ratio of the two best
 * rounds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_ROUNDS_H
#define PERF_ROUNDS_H

#include "report.h"
#include "session.h"

#define PERF_ATTEMPTS     3 /* times the rounds wanted, before disturbed ones are accepted */
#define PERF_ATTEMPTS_MAX (PERF_ATTEMPTS * PERF_ROUNDS_MAX)
#define PERF_CELLS_MAX    8

typedef struct perf_cell {
    perf_step_t    step;
    unsigned       good;                  /* undisturbed rounds */
    double         us[PERF_ATTEMPTS_MAX]; /* of every round */
    uint8_t        disturbed[PERF_ATTEMPTS_MAX];
    int            refused;
    perf_result_t *result;
} perf_cell_t;

typedef struct perf_rounds {
    perf_session_t *session;
    perf_report_t  *report;
    unsigned        wanted;         /* undisturbed rounds of each cell */
    unsigned        cell_count;
    unsigned        attempts;       /* rounds run at this size */
    uint64_t        size;
    int             refused;        /* process_vm_readv is not permitted */
    int             unreliable;     /* some cell of this size is */
    int             any_unreliable; /* some cell of some size is */
} perf_rounds_t;

/* For a whole table; sets the report's statistic. */
void perf_rounds_init(perf_rounds_t *rounds_p, perf_session_t *session, perf_report_t *report);

/* Begins a size: no cells. */
void perf_rounds_begin(perf_rounds_t *rounds, uint64_t size);

/* Adds a measurement, at most PERF_CELLS_MAX a size; its result has that name. Valid until the next
 * size begins. */
perf_cell_t *perf_cell_add(perf_rounds_t *rounds, unsigned op, unsigned variant, const char *name);

/* Runs all cells of this size in turn and fills their results. Returns 0, or -1 after an error
 * message. */
int perf_rounds_run(perf_rounds_t *rounds);

/* The rounds of a cell that count, divided by those of another cell (NULL: by 1). On a busy
 * machine there may be hardly any undisturbed rounds: then all of them count. Returns how many. */
unsigned perf_cell_values(const perf_rounds_t *rounds, const perf_cell_t *cell,
                          const perf_cell_t *divisor, double *values);

/* Puts a limit beside a result and derives the ratios: of each round's two times the median, so
 * that it holds even where a hypervisor moves the processors apart from one round to the next. */
void perf_cell_judge(const perf_rounds_t *rounds, const perf_cell_t *cell,
                     const perf_cell_t *limit);

#endif
