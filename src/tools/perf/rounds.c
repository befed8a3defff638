/* Halyard: measurements that take turns, for tables that compare them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "rounds.h"
#include "run.h"
#include "stats.h"
#include "watch.h"

#include <math.h>
#include <string.h>

#define ROUNDS          21
#define ROUNDS_QUICK    7
#define ROUND_NS        1.5e6
#define SIZE_NS         4e9   /* after that no more rounds of a size, on a busy machine */
#define SIZE_QUICK_NS   1.5e9
#define ATTEMPTS_MIN    3
#define UNDISTURBED_MIN 3  /* fewer undisturbed rounds than this: all count */
#define WARMUP_MIN      3  /* messages that find the caches full of what another cell has used */
#define STREAM_MIN      12 /* messages of a round that streams large ones */

/* Too large for the stack of a small container. */
static perf_cell_t cells[PERF_CELLS_MAX];

void perf_rounds_init(perf_rounds_t *rounds_p, perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;

    *rounds_p = (perf_rounds_t) {.session = session,
                                 .report  = report,
                                 .wanted  = (options->rounds != 0) ? options->rounds :
                                            options->quick         ? ROUNDS_QUICK : ROUNDS};
    report->statistic = "Median of interleaved rounds of about 1.5 ms";
}

void perf_rounds_begin(perf_rounds_t *rounds, uint64_t size)
{
    rounds->size       = size;
    rounds->cell_count = 0;
    rounds->unreliable = 0;
}

perf_cell_t *perf_cell_add(perf_rounds_t *rounds, unsigned op, unsigned variant, const char *name)
{
    perf_cell_t *cell = &cells[rounds->cell_count++];

    memset(cell, 0, sizeof(*cell));
    cell->step = (perf_step_t) {
        .op      = op,
        .variant = variant,
        .size    = rounds->size,
        .window  = (perf_ops[op].window != 0) ? rounds->session->params.window : 1};
    cell->result = perf_report_add(rounds->report, name, perf_ops[op].kind, rounds->size);
    return cell;
}

static int cell_calibrate(perf_rounds_t *rounds, perf_cell_t *cell)
{
    uint64_t iters = perf_run_calibrate(rounds->session, &cell->step, ROUND_NS, UINT64_MAX);

    if (iters == 0) {
        return -1;
    }
    if ((iters < STREAM_MIN) && (cell->step.window > 1)) {
        iters = STREAM_MIN;
    }
    if (perf_memory_any_device(rounds->session->params.memory) && (cell->step.window > 1) &&
        (iters < 2 * cell->step.window)) {
        iters = 2 * cell->step.window; /* the driver gets whole windows */
    }
    cell->step.iters  = (iters < 2) ? 2 : iters;
    cell->step.warmup = (cell->step.iters < 10 * WARMUP_MIN) ? WARMUP_MIN : cell->step.iters / 10;
    return 0;
}

static int cell_round(perf_rounds_t *rounds, perf_cell_t *cell, unsigned attempt)
{
    perf_measure_t measure;

    if (perf_session_step(rounds->session, &cell->step, &measure) != 0) {
        return -1;
    }
    if (measure.refused) {
        cell->refused   = 1;
        rounds->refused = 1;
        measure.us      = NAN;
    }
    cell->us[attempt]        = measure.us;
    cell->disturbed[attempt] = (uint8_t)measure.disturbed;
    cell->good              += !measure.disturbed;
    return 0;
}

unsigned perf_cell_values(const perf_rounds_t *rounds, const perf_cell_t *cell,
                          const perf_cell_t *divisor, double *values)
{
    unsigned count = 0, i;
    int all;

    for (all = 0; all < 2; ++all) {
        count = 0;
        for (i = 0; i < rounds->attempts; ++i) {
            if (all || (!cell->disturbed[i] && ((divisor == NULL) || !divisor->disturbed[i]))) {
                values[count++] = cell->us[i] / ((divisor != NULL) ? divisor->us[i] : 1);
            }
        }
        if (count >= fmin(UNDISTURBED_MIN, rounds->attempts)) {
            break;
        }
    }
    return count;
}

static void cell_finish(perf_rounds_t *rounds, perf_cell_t *cell)
{
    static double values[PERF_ATTEMPTS_MAX];

    if (cell->refused) {
        return; /* which no rounds, and so no disturbed ones, stand for */
    }
    cell->result->window     = (perf_ops[cell->step.op].window != 0) ? cell->step.window : 0;
    cell->result->iterations = cell->step.iters;
    cell->result->disturbed  = rounds->attempts - cell->good;
    cell->result->rounds     = perf_cell_values(rounds, cell, NULL, values);
    cell->result->us         = perf_median(values, cell->result->rounds);
    cell->result->us_best    = values[0];
    cell->result->unreliable = 2 * cell->good < rounds->wanted;
    rounds->unreliable      |= cell->result->unreliable;
    rounds->any_unreliable  |= cell->result->unreliable;
    perf_result_finish(cell->result);
}

int perf_rounds_run(perf_rounds_t *rounds)
{
    const perf_options_t *options = rounds->report->options;
    const double end_ns           = perf_now_ns() + (options->quick ? SIZE_QUICK_NS : SIZE_NS);
    unsigned attempt, i;
    int left = 1;

    for (i = 0; i < rounds->cell_count; ++i) {
        if ((cells[i].result == NULL) || (cell_calibrate(rounds, &cells[i]) != 0)) {
            return -1;
        }
    }
    for (attempt = 0; left && (attempt < PERF_ATTEMPTS * rounds->wanted); ++attempt) {
        if ((attempt >= ATTEMPTS_MIN) && (perf_now_ns() > end_ns)) {
            break;
        }
        left             = 0;
        rounds->attempts = attempt + 1;
        perf_text_progress(options, "%s: round %u of %u", perf_text_size(rounds->size).text,
                           attempt + 1, rounds->wanted);
        for (i = 0; i < rounds->cell_count; ++i) {
            if (cells[i].refused) {
                cells[i].us[attempt] = NAN;
                continue;
            }
            perf_watch_stage("table, %llu B, %s, round %u", (unsigned long long)rounds->size,
                             perf_ops[cells[i].step.op].name, attempt);
            if (cell_round(rounds, &cells[i], attempt) != 0) {
                return -1;
            }
            left |= cells[i].good < rounds->wanted;
        }
    }
    for (i = 0; i < rounds->cell_count; ++i) {
        cell_finish(rounds, &cells[i]);
    }
    return 0;
}

void perf_cell_judge(const perf_rounds_t *rounds, const perf_cell_t *cell,
                     const perf_cell_t *limit)
{
    static double ratios[PERF_ATTEMPTS_MAX];
    perf_result_t *result = cell->result;
    unsigned count;

    memcpy(result->limit, limit->result->test, sizeof(result->limit));
    result->limit_us   = limit->result->us;
    result->limit_best = limit->result->us_best;
    count              = perf_cell_values(rounds, cell, limit, ratios);
    result->ratio      = perf_median(ratios, count);
    result->ratio_best = result->us_best / result->limit_best;
}
