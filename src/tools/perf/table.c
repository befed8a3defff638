/* Halyard: the table of --self: this machine's limits and, beside them, what the library reaches.
 *
 * For each size a few measurements ("cells") take turns in rounds of about a millisecond, so that
 * whatever disturbs the machine disturbs all of them alike. Measurements during which the kernel
 * preempted one of the processes are left out and repeated. Times are medians of the rounds. A
 * ratio is the median of the ratios within each round; beside it stands the ratio of the two best
 * rounds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

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
#define UNDISTURBED_MIN 3 /* fewer undisturbed rounds than this: all count */
#define ATTEMPTS        3 /* times the rounds wanted, before disturbed ones are accepted */
#define ATTEMPTS_MAX    (ATTEMPTS * PERF_ROUNDS_MAX)
#define LINE_BYTES_MAX  8 /* up to here the bounced line is the limit */
#define COPY_BYTES_MIN  4096
#define STREAM_MIN      12 /* messages of a round that streams large ones */
#define CELLS_MAX       8
#define MOVED_FACTOR    1.5 /* between two sizes, of the bounced line */

static const uint64_t sizes_full[] = {0,     8,      64,     256,     1024,    4096,     8192,
                                      16384, 65536,  262144, 1048576, 4194304, 16777216};
static const uint64_t sizes_quick[] = {8, 64, 1024, 8192, 65536, 1048576};

typedef struct cell {
    unsigned       op;
    unsigned       window;
    uint64_t       iters;
    unsigned       good;             /* undisturbed rounds */
    double         us[ATTEMPTS_MAX]; /* of every round */
    uint8_t        disturbed[ATTEMPTS_MAX];
    int            refused;
    perf_result_t *result;
} cell_t;

/* Too large for the stack of a small container. */
static cell_t cells[CELLS_MAX];

typedef struct table {
    perf_session_t *session;
    perf_report_t  *report;
    unsigned        rounds;
    unsigned        cell_count;
    unsigned        attempts; /* rounds run at this size */
    uint64_t        size;
    int             refused;    /* process_vm_readv is not permitted */
    int             unreliable; /* some cell of some size is */
} table_t;

static cell_t *cell_add(table_t *table, unsigned op, const char *name)
{
    cell_t *cell = &cells[table->cell_count++];

    memset(cell, 0, sizeof(*cell));
    cell->op     = op;
    cell->window = (perf_ops[op].window != 0) ? table->session->params.window : 1;
    cell->result = perf_report_add(table->report, name, perf_ops[op].kind, table->size);
    return cell;
}

static int cell_calibrate(table_t *table, cell_t *cell)
{
    uint64_t iters = perf_run_calibrate(table->session, cell->op, table->size, cell->window,
                                        ROUND_NS, UINT64_MAX);

    if (iters == 0) {
        return -1;
    }
    if ((iters < STREAM_MIN) && (cell->window > 1)) {
        iters = STREAM_MIN;
    }
    cell->iters = (iters < 2) ? 2 : iters;
    return 0;
}

static int cell_round(table_t *table, cell_t *cell, unsigned attempt)
{
    perf_step_t step = {.op     = cell->op,
                        .size   = table->size,
                        .window = cell->window,
                        .warmup = cell->iters / 10 + 1,
                        .iters  = cell->iters};
    perf_measure_t measure;

    if (perf_session_step(table->session, &step, &measure) != 0) {
        return -1;
    }
    if (measure.refused) {
        cell->refused  = 1;
        table->refused = 1;
        measure.us    = NAN;
    }
    cell->us[attempt]        = measure.us;
    cell->disturbed[attempt] = (uint8_t)measure.disturbed;
    cell->good              += !measure.disturbed;
    return 0;
}

/* The rounds of a cell that count, divided by those of another cell (NULL: by 1). On a busy
 * machine there may be hardly any undisturbed rounds: then all of them count. Returns how many. */
static unsigned cell_values(const table_t *table, const cell_t *cell, const cell_t *divisor,
                            double *values)
{
    unsigned count = 0, i;
    int all;

    for (all = 0; all < 2; ++all) {
        count = 0;
        for (i = 0; i < table->attempts; ++i) {
            if (all || (!cell->disturbed[i] && ((divisor == NULL) || !divisor->disturbed[i]))) {
                values[count++] = cell->us[i] / ((divisor != NULL) ? divisor->us[i] : 1);
            }
        }
        if (count >= fmin(UNDISTURBED_MIN, table->attempts)) {
            break;
        }
    }
    return count;
}

static void cell_finish(table_t *table, cell_t *cell)
{
    static double values[ATTEMPTS_MAX];

    cell->result->window     = (perf_ops[cell->op].window != 0) ? cell->window : 0;
    cell->result->iterations = cell->iters;
    cell->result->disturbed  = table->attempts - cell->good;
    cell->result->rounds     = cell_values(table, cell, NULL, values);
    cell->result->us_best    = perf_minimum(values, cell->result->rounds);
    cell->result->us         = perf_median(values, cell->result->rounds);
    cell->result->unreliable = 2 * cell->good < table->rounds;
    table->unreliable       |= cell->result->unreliable;
    perf_result_finish(cell->result);
}

/* All cells of one size, in turn. */
static int run_cells(table_t *table)
{
    const perf_options_t *options = table->report->options;
    const double end_ns           = perf_now_ns() + (options->quick ? SIZE_QUICK_NS : SIZE_NS);
    unsigned attempt, i;
    char size[24];
    int left = 1;

    perf_watch_stage("table, %llu B, finding the number of iterations",
                     (unsigned long long)table->size);
    for (i = 0; i < table->cell_count; ++i) {
        if ((cells[i].result == NULL) || (cell_calibrate(table, &cells[i]) != 0)) {
            return -1;
        }
    }
    for (attempt = 0; left && (attempt < ATTEMPTS * table->rounds); ++attempt) {
        if ((attempt >= ATTEMPTS_MIN) && (perf_now_ns() > end_ns)) {
            break;
        }
        left            = 0;
        table->attempts = attempt + 1;
        perf_text_progress(options, "%s: round %u of %u", perf_text_size(table->size, size),
                           attempt + 1, table->rounds);
        for (i = 0; i < table->cell_count; ++i) {
            if (cells[i].refused) {
                cells[i].us[attempt] = NAN;
                continue;
            }
            perf_watch_stage("table, %llu B, %s, round %u", (unsigned long long)table->size,
                             perf_ops[cells[i].op].name, attempt);
            if (cell_round(table, &cells[i], attempt) != 0) {
                return -1;
            }
            left |= cells[i].good < table->rounds;
        }
    }
    for (i = 0; i < table->cell_count; ++i) {
        cell_finish(table, &cells[i]);
    }
    return 0;
}

/* Puts a limit beside a result and derives the ratios: of each round's two times the median, so
 * that it holds even where a hypervisor moves the processors apart from one round to the next. */
static void judge(const table_t *table, const cell_t *cell, const cell_t *limit)
{
    static double ratios[ATTEMPTS_MAX];
    perf_result_t *result = cell->result;
    unsigned count;

    memcpy(result->limit, limit->result->test, sizeof(result->limit));
    result->limit_us   = limit->result->us;
    result->limit_best = limit->result->us_best;
    count              = cell_values(table, cell, limit, ratios);
    result->ratio      = perf_median(ratios, count);
    result->ratio_best = result->us_best / result->limit_best;
}

static double us_of(const cell_t *cell)
{
    return (cell != NULL) ? cell->result->us : NAN;
}

static void print_us(double us, int width)
{
    char text[24];

    printf("%*s", width, perf_text_us(us, text));
}

static void print_ratio(double ratio, int width)
{
    if (isfinite(ratio)) {
        printf("%*.2f", width, ratio);
    } else {
        printf("%*s", width, "-");
    }
}

static void print_head(const table_t *table)
{
    const int tests = !table->report->options->limits_only;

    printf("\n%8s | %-37s |", "", "limits of this machine, us one way");
    printf("%s\n", tests ? " tag latency, us                     | tag bandwidth, GB/s" : "");
    printf("%8s |%7s %7s %7s %7s %7s |", "size", "line", "ring", "memcpy", "reader", "both");
    printf("%s\n", tests ? "  libucp   limit  of      ratio  best |  libucp   limit  ratio  best"
                         : "");
}

static void print_bandwidth(const perf_result_t *stream)
{
    double limit = (double)stream->size / stream->limit_us / 1e3;

    if (stream->size == 0) {
        printf("%8s %7s", "-", "-");
    } else {
        printf("%8.2f", stream->bandwidth / 1e9);
        if (isfinite(limit)) {
            printf(" %7.2f", limit);
        } else {
            printf(" %7s", "-");
        }
    }
    print_ratio(stream->ratio, 7);
    print_ratio(stream->ratio_best, 6);
}

static int run_row(table_t *table)
{
    const uint64_t size  = table->size;
    const int tests      = !table->report->options->limits_only;
    const int small      = size <= PERF_RING_MESSAGE_MAX;
    cell_t *line, *ring = NULL, *copy = NULL, *reader = NULL, *both = NULL;
    cell_t *stream_limit = NULL, *latency = NULL, *stream = NULL;
    char text[24];
    unsigned i;

    table->cell_count = 0;
    line   = cell_add(table, PERF_OP_LINE, "line");
    ring   = small ? cell_add(table, PERF_OP_RING, "ring") : NULL;
    latency = tests ? cell_add(table, (unsigned)perf_op_find("tag_lat"), "tag_lat") : NULL;
    copy   = (size > 0) ? cell_add(table, PERF_OP_MEMCPY, "memcpy") : NULL;
    reader = (size >= COPY_BYTES_MIN) ? cell_add(table, PERF_OP_READER, "reader") : NULL;
    both   = (size >= COPY_BYTES_MIN) ? cell_add(table, PERF_OP_BOTH, "both") : NULL;
    stream_limit = small ? cell_add(table, PERF_OP_RING_STREAM, "ring stream") : NULL;
    stream = tests ? cell_add(table, (unsigned)perf_op_find("tag_bw"), "tag_bw") : NULL;
    if (run_cells(table) != 0) {
        return -1;
    }
    if (tests) {
        judge(table, latency, (size <= LINE_BYTES_MAX) ? line : small ? ring : both);
        judge(table, stream, small ? stream_limit : both);
    }
    perf_text_progress_end();
    if (table->report->options->no_text) {
        return 0;
    }
    printf("%8s |", perf_text_size(size, text));
    print_us(us_of(line), 7);
    print_us(us_of(ring), 8);
    print_us(us_of(copy), 8);
    print_us(us_of(reader), 8);
    print_us(us_of(both), 8);
    printf(" |");
    if (tests) {
        print_us(latency->result->us, 8);
        print_us(latency->result->limit_us, 8);
        printf("  %-6s", latency->result->limit);
        print_ratio(latency->result->ratio, 7);
        print_ratio(latency->result->ratio_best, 6);
        printf(" |");
        print_bandwidth(stream->result);
    }
    for (i = 0; (i < table->cell_count) && !cells[i].result->unreliable; ++i) {
    }
    printf("%s\n", (i < table->cell_count) ? " *" : "");
    fflush(stdout);
    return 0;
}

/* Message rate of 8 bytes, in messages for each bounced cache line. */
static int run_rate(table_t *table)
{
    static double ratios[ATTEMPTS_MAX];
    cell_t *line, *stream_limit, *rate;
    double per_line;

    table->size       = 8;
    table->cell_count = 0;
    line              = cell_add(table, PERF_OP_LINE, "line");
    stream_limit      = cell_add(table, PERF_OP_RING_STREAM, "ring stream");
    rate              = cell_add(table, (unsigned)perf_op_find("tag_rate"), "tag_rate");
    if (run_cells(table) != 0) {
        return -1;
    }
    judge(table, rate, stream_limit);
    per_line = perf_median(ratios, cell_values(table, line, rate, ratios));
    perf_text_progress_end();
    if (!table->report->options->no_text) {
        printf("\ntag rate, 8 B, window %u: %.2f million messages a second, %.2f in the time of a "
               "bounced line (best round: %.2f);\n  the bare ring streams %.1f million\n",
               rate->window, rate->result->rate / 1e6, per_line,
               line->result->us_best / rate->result->us_best, stream_limit->result->rate / 1e6);
    }
    return 0;
}

static void explain(const table_t *table)
{
    const perf_report_t *report = table->report;
    double shortest = INFINITY, longest = 0;
    unsigned disturbed = 0, i;

    for (i = 0; i < report->count; ++i) {
        disturbed += report->results[i].disturbed;
        if (strcmp(report->results[i].test, "line") == 0) {
            shortest = fmin(shortest, report->results[i].us);
            longest  = fmax(longest, report->results[i].us);
        }
    }
    printf("\n%s.\nratio: median over the rounds of libucp's time / the limit's in the same "
           "round; best: of the best rounds.\nline: two cores bounce a cache line. ring: a bare "
           "slot ring, copy in and copy out (bandwidth: streamed).\nreader: process_vm_readv by "
           "the receiver. both: each side copies half at the same time, notifications included.\n"
           "%u measurements were left out because the kernel preempted a process.\n",
           report->statistic, disturbed);
    if (longest > MOVED_FACTOR * shortest) {
        printf("The bounced line took %.3f to %.3f us: something moves these processors (a "
               "hypervisor?); compare ratios, not times.\n", shortest, longest);
    }
    if (table->unreliable) {
        printf("* The machine was busy: fewer than half of the wanted rounds were undisturbed; "
               "measure again on a quiet machine.\n");
    }
    if (table->refused) {
        printf("The kernel forbids process_vm_readv between the two processes (%s).\n",
               table->session->lanes[0].problem);
    }
}

void perf_run_table_sizes(perf_options_t *options)
{
    if (options->size_count > 0) {
        return;
    }
    if (options->quick) {
        memcpy(options->sizes, sizes_quick, sizeof(sizes_quick));
        options->size_count = sizeof(sizes_quick) / sizeof(sizes_quick[0]);
    } else {
        memcpy(options->sizes, sizes_full, sizeof(sizes_full));
        options->size_count = sizeof(sizes_full) / sizeof(sizes_full[0]);
    }
}

int perf_run_table(perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;
    perf_options_t with_sizes     = *options;
    table_t table                 = {.session = session, .report = report};
    unsigned i;

    table.rounds = (options->rounds != 0) ? options->rounds :
                   options->quick         ? ROUNDS_QUICK : ROUNDS;
    report->statistic = "Median of interleaved rounds of about 1.5 ms";
    perf_run_table_sizes(&with_sizes);
    if (!options->no_text) {
        print_head(&table);
    }
    for (i = 0; i < with_sizes.size_count; ++i) {
        table.size = with_sizes.sizes[i];
        if (run_row(&table) != 0) {
            perf_text_progress_end();
            return -1;
        }
    }
    if (!options->limits_only && (run_rate(&table) != 0)) {
        return -1;
    }
    if (!options->no_text && !options->final_only) {
        explain(&table);
    }
    return 0;
}
