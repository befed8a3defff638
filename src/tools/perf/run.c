/* Halyard: one test over a list of sizes, as client or with --self -t.
 *
 * A size runs in parts of about a tenth, so that progress can be shown and the best part told;
 * no clock is read within a part. Percentiles come from a pass of their own, since reading the
 * counter in each iteration costs time that must not be in the mean.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "run.h"
#include "stats.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>

#define PARTS              10
#define TARGET_NS          1e9
#define TARGET_QUICK_NS    1e8
#define WARMUP_NS          2e7
#define CALIBRATION_STEPS  16
#define ITERS_MAX          (UINT64_C(1) << 40)
#define TICKS_NS           20e6

/* Duration of one iteration of each lane. */
static double iteration_ns(const perf_session_t *session, const perf_op_t *op,
                           const perf_measure_t *measure)
{
    if (op->kind == PERF_KIND_LATENCY) {
        return measure->us * 2e3;
    }
    return measure->us * 1e3 * session->params.threads;
}

uint64_t perf_run_calibrate(perf_session_t *session, const perf_step_t *what, double target_ns,
                            uint64_t tries_max)
{
    perf_step_t step  = *what;
    double fastest_ns = INFINITY, ns;
    unsigned enough   = 0, i;
    uint64_t wanted   = 1;
    int is_slow       = 0;
    perf_measure_t measure;

    step.warmup = 1;
    step.iters  = 1;
    /* The first tries hold the cost of starting, so never trust more than a tenfold step; any of
     * them may be hit by the scheduler, so never believe a slow one alone. Where others use the
     * machine all are: no more is tried than that takes its time. */
    for (i = 0; (i < CALIBRATION_STEPS) && (enough < 3); ++i) {
        perf_watch_stage("%s, %llu B, finding the number of iterations", perf_ops[step.op].name,
                         (unsigned long long)step.size);
        if (perf_session_step(session, &step, &measure) != 0) {
            return 0;
        }
        if (measure.refused) {
            return 1;
        }
        ns         = fmax(iteration_ns(session, &perf_ops[step.op], &measure), 1);
        fastest_ns = fmin(fastest_ns, ns);
        wanted     = (uint64_t)(target_ns / fastest_ns);
        is_slow    = ns * (double)step.iters > target_ns / 2;
        if ((wanted <= step.iters * 10) || (step.iters * 10 > tries_max) || is_slow) {
            ++enough;
        } else {
            step.iters *= 10;
        }
    }
    if (is_slow && (wanted > step.iters * 10)) {
        wanted = step.iters * 10;
    }
    return (wanted < 1) ? 1 : (wanted > ITERS_MAX) ? ITERS_MAX : wanted;
}

/* Nanoseconds a tick of perf_ticks(). The first call measures it: not in timed code. */
static double tick_ns(void)
{
    static double ns = 0;
    double start_ns, end_ns;
    uint64_t start, end;

    if (ns == 0) {
        start_ns = perf_now_ns();
        start    = perf_ticks();
        do {
            end_ns = perf_now_ns();
            end    = perf_ticks();
        } while (end_ns - start_ns < TICKS_NS);
        ns = (end > start) ? (end_ns - start_ns) / (double)(end - start) : 1;
    }
    return ns;
}

/* Percentiles of all lanes' samples. */
static int take_percentiles(perf_session_t *session, const perf_options_t *options,
                            perf_result_t *result)
{
    const double us_per_tick = tick_ns() / 2e3;
    size_t total = 0, used = 0, k;
    double *all;
    unsigned i;

    for (i = 0; i < session->params.threads; ++i) {
        total += session->lanes[i].sample_count;
    }
    all = malloc((total + 1) * sizeof(*all));
    if (all == NULL) {
        return perf_error("no memory for %zu samples", total);
    }
    for (i = 0; i < session->params.threads; ++i) {
        for (k = 0; k < session->lanes[i].sample_count; ++k) {
            all[used++] = (double)session->lanes[i].samples[k] * us_per_tick;
        }
    }
    perf_sort(all, total);
    for (i = 0; (i < options->percent_count) && (total > 0); ++i) {
        result->percent_us[i] = perf_percentile(all, total, options->percents[i]);
        result->percent_count = i + 1;
    }
    free(all);
    return 0;
}

static int run_samples(perf_session_t *session, perf_report_t *report, perf_step_t step,
                       uint64_t iters, perf_result_t *result)
{
    perf_measure_t measure;

    perf_watch_stage("%s, %llu B, percentiles", perf_ops[step.op].name,
                     (unsigned long long)step.size);
    step.flags  = PERF_STEP_SAMPLES;
    step.warmup = 10;
    step.iters  = (iters > PERF_SAMPLES_MAX) ? PERF_SAMPLES_MAX : iters;
    if (perf_session_step(session, &step, &measure) != 0) {
        return -1;
    }
    return take_percentiles(session, report->options, result);
}

/* The timed parts of one size. */
static int run_parts(perf_session_t *session, perf_report_t *report, perf_step_t *step,
                     uint64_t iters, uint64_t part, perf_result_t *result)
{
    const char *name = perf_ops[step->op].name;
    double ns = 0, messages = 0;
    uint64_t done = 0;
    perf_measure_t measure;

    while (done < iters) {
        step->iters = (iters - done < part) ? iters - done : part;
        perf_watch_stage("%s, %llu B, iteration %llu of %llu", name,
                         (unsigned long long)step->size, (unsigned long long)done,
                         (unsigned long long)iters);
        perf_text_progress(report->options, "%s, %s: %llu of %llu", name,
                           perf_text_size(step->size).text, (unsigned long long)done,
                           (unsigned long long)iters);
        if (perf_session_step(session, step, &measure) != 0) {
            return -1;
        }
        ns       += measure.us * 1e3 * (double)measure.messages;
        messages += (double)measure.messages;
        if (!(result->us_best <= measure.us)) {
            result->us_best = measure.us;
        }
        result->disturbed += (unsigned)measure.disturbed;
        ++result->rounds;
        done        += step->iters;
        step->warmup = 1;
    }
    result->us         = ns / 1e3 / messages;
    result->iterations = iters;
    return 0;
}

static int run_size(perf_session_t *session, perf_report_t *report, uint64_t size)
{
    const perf_options_t *options = report->options;
    const perf_op_t *op           = &perf_ops[options->op];
    double target_ns              = options->quick ? TARGET_QUICK_NS : TARGET_NS;
    perf_step_t step = {.op = (uint32_t)options->op, .size = size,
                        .window = session->params.window};
    perf_result_t *result;
    uint64_t fitting, iters, part;

    fitting = perf_run_calibrate(session, &step, target_ns,
                                 (options->iters != 0) ? options->iters / 10 : UINT64_MAX);
    result  = perf_report_add(report, (options->label != NULL) ? options->label : op->name,
                              op->kind, size);
    if ((fitting == 0) || (result == NULL)) {
        return -1;
    }
    iters       = (options->iters != 0) ? options->iters : fitting;
    part        = (fitting < iters) ? fitting : iters;
    part        = (part + PARTS - 1) / PARTS;
    if ((iters < 1000) && (iters <= fitting)) {
        /* So few come in one part: the start of each part is not free. */
        part = iters;
    }
    step.warmup = (options->warmup != UINT64_MAX) ? options->warmup :
                  (uint64_t)((double)fitting * WARMUP_NS / target_ns) + 1;

    result->window    = (op->window != 0) ? session->params.window : 0;
    result->threads   = session->params.threads;
    result->validated = (session->params.flags & PERF_FLAG_VALIDATE) != 0;
    if (run_parts(session, report, &step, iters, part, result) != 0) {
        return -1;
    }
    if ((op->kind == PERF_KIND_LATENCY) &&
        (run_samples(session, report, step, (iters < fitting) ? iters : fitting, result) != 0)) {
        return -1;
    }
    perf_result_finish(result);
    perf_text_progress_end();
    perf_text_row(report, result);
    return 0;
}

int perf_run_test(perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;
    unsigned i;

    report->statistic = (session->params.flags & PERF_FLAG_VALIDATE) ?
                        "mean of all iterations, with filling and checking of every byte" :
                        (perf_ops[options->op].kind == PERF_KIND_LATENCY) ?
                        "mean of all iterations, percentiles of a second pass" :
                        "mean of all iterations";
    (void)tick_ns();
    perf_text_head(report);
    for (i = 0; i < options->size_count; ++i) {
        if (run_size(session, report, options->sizes[i]) != 0) {
            perf_text_progress_end();
            return -1;
        }
    }
    return 0;
}

/* A first step goes before: an endpoint may know its way only once its peer has answered. */
static int explain(perf_session_t *session, const perf_options_t *options, int is_table)
{
    perf_step_t step = {.op = (uint32_t)options->op, .size = options->sizes[0], .warmup = 1,
                        .iters = 1, .window = session->params.window};
    perf_measure_t measure;

    if (!is_table && (perf_session_step(session, &step, &measure) != 0)) {
        return -1;
    }
    ucp_ep_print_info(session->lanes[0].ep, stdout);
    return 0;
}

static int run_session(perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;
    const int is_table            = (options->op < 0) || options->audit;

    if (options->explain && !options->no_text && (session->lanes[0].ep != NULL) &&
        (explain(session, options, is_table) != 0)) {
        return -1;
    }
    if (!is_table) {
        return perf_run_test(session, report);
    }
    if (!options->no_text && !options->quiet) {
        perf_text_record(report);
    }
    return options->audit ? perf_run_audit(session, report) : perf_run_table(session, report);
}

/* The exit code that belongs to how a session ended. */
static int exit_code(const perf_session_t *session, int status)
{
    if (session->status == UCS_ERR_UNSUPPORTED) {
        return PERF_EXIT_UNSUPPORTED;
    }
    return (status != 0) ? PERF_EXIT_FAILED : PERF_EXIT_OK;
}

int perf_lead(perf_session_t *session, const perf_options_t *all, const int *cpus,
              unsigned count)
{
    static perf_report_t report;
    const perf_options_t *options = (all->batch != NULL) ? all->next : all;
    int status                    = 0;

    perf_record_fill(&report.record, all, cpus, count);
    if (session->shared != NULL) {
        perf_startup_gather(session->shared->startup, &report);
    }
    session->leader = 1;
    for (; (options != NULL) && (status == 0); options = options->next) {
        report.options  = options;
        session->params = options->params;
        if (options->next != NULL) {
            session->params.flags |= PERF_FLAG_MORE;
        }
        status = perf_session_open(session);
        if (status == 0) {
            status = run_session(session, &report);
        }
        perf_session_close(session, status == 0);
    }
    report.options = all;
    if (status == 0) {
        if (!all->no_text) {
            perf_startup_print(&report);
        }
        if ((perf_report_write(&report) != 0) || (report.worse > 0)) {
            status = -1;
        }
    }
    return exit_code(session, status);
}

int perf_follow(perf_session_t *session)
{
    int status;

    do {
        status = perf_session_open(session);
        if (status == 0) {
            perf_note("test: %s", session->params.test);
            status = perf_session_serve(session);
        }
        perf_session_close(session, status == 0);
    } while ((status == 0) && (session->params.flags & PERF_FLAG_MORE));
    return exit_code(session, status);
}
