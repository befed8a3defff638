/* Halyard: the table of --self: this machine's limits and, beside them, what the library reaches.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "rounds.h"
#include "run.h"
#include "stats.h"

#include <math.h>
#include <string.h>

#define LINE_BYTES_MAX 8 /* up to here the bounced line is the limit */
#define COPY_BYTES_MIN 4096
#define STREAM_BYTES_MIN (UINT64_C(64) << 10) /* of devices: below it the rate says it */
#define STREAM_BYTES_MAX (UINT64_C(4) << 20)
#define MOVED_FACTOR   1.5 /* between two sizes, of the bounced line */

static int is_on_device(const perf_rounds_t *table)
{
    return perf_memory_any_device(table->session->params.memory);
}

static double us_of(const perf_cell_t *cell)
{
    return (cell != NULL) ? cell->result->us : NAN;
}

static void print_ratio(double ratio, int width)
{
    if (isfinite(ratio)) {
        printf("%*.2f", width, ratio);
    } else {
        printf("%*s", width, "-");
    }
}

static void print_head(const perf_rounds_t *table)
{
    static const char *const limits[] = {" limits of this machine, us one way    |",
                                         "   line    ring  memcpy  reader    both |"};
    static const char *const tests[]  = {
        " tag latency, us                     | tag bandwidth, GB/s",
        "  libucp   limit  of      ratio  best |  libucp   limit  ratio  best"};
    const int on_device = is_on_device(table);
    const int tested    = on_device || !table->report->options->limits_only;
    int i;

    putchar('\n');
    for (i = 0; i < 2; ++i) {
        printf("%8s |%s%s\n", (i == 0) ? "" : "size", on_device ? "" : limits[i],
               tested ? tests[i] : "");
    }
}

static void print_gbps(const perf_rounds_t *table, const perf_cell_t *cell)
{
    print_ratio((table->size > 0) ? (double)table->size / us_of(cell) / 1e3 : NAN, 8);
}

/* A test's time in parts of its limit's: the usual one, the best one. */
static void print_ratios(const perf_cell_t *cell)
{
    print_ratio((cell != NULL) ? cell->result->ratio : NAN, 7);
    print_ratio((cell != NULL) ? cell->result->ratio_best : NAN, 6);
}

/* The tests' half of a row, each test beside its limit; cells that are NULL were not measured. */
static void print_tests(const perf_rounds_t *table, const perf_cell_t *latency,
                        const perf_cell_t *latency_limit, const perf_cell_t *stream,
                        const perf_cell_t *stream_limit)
{
    printf("%8s%8s  %-6s", perf_text_us(us_of(latency)).text,
           perf_text_us(us_of(latency_limit)).text, latency_limit->result->test);
    print_ratios(latency);
    printf(" |");
    print_gbps(table, stream);
    print_gbps(table, stream_limit);
    print_ratios(stream);
}

/* What a table measures at a size, in this order. */
enum { LINE, RING, COPY, LATENCY, MEMCPY, READER, BOTH, RING_STREAM, BATCH, STREAM, CELL_COUNT };

static const struct {
    unsigned    cell;
    int         on_device; /* of which table */
    const char *name;
    uint64_t    size_min, size_max;
} cell_rows[] = {
    {LINE, 0, "line", 0, UINT64_MAX},
    {RING, 0, "ring", 0, PERF_RING_MESSAGE_MAX},
    {LATENCY, 0, "tag_lat", 0, UINT64_MAX},
    {MEMCPY, 0, "memcpy", 1, UINT64_MAX},
    {READER, 0, "reader", COPY_BYTES_MIN, UINT64_MAX},
    {BOTH, 0, "both", COPY_BYTES_MIN, UINT64_MAX},
    {RING_STREAM, 0, "ring stream", 0, PERF_RING_MESSAGE_MAX},
    {STREAM, 0, "tag_bw", 0, UINT64_MAX},
    {COPY, 1, "copy", 0, UINT64_MAX},
    {LATENCY, 1, "tag_lat", 0, UINT64_MAX},
    {BATCH, 1, "batch", STREAM_BYTES_MIN, STREAM_BYTES_MAX},
    {STREAM, 1, "tag_bw", STREAM_BYTES_MIN, STREAM_BYTES_MAX},
};

static perf_cell_t *add_cell(perf_rounds_t *table, const char *name)
{
    return perf_cell_add(table, (unsigned)perf_op_find(name), 0, name);
}

/* Adds this size's cells, NULL where there is none, and runs them. */
static int run_cells(perf_rounds_t *table, perf_cell_t *cells[CELL_COUNT])
{
    const int on_device = is_on_device(table);
    const int tests     = !table->report->options->limits_only;
    unsigned i;

    for (i = 0; i < sizeof(cell_rows) / sizeof(cell_rows[0]); ++i) {
        if ((cell_rows[i].on_device == on_device) && (table->size >= cell_rows[i].size_min) &&
            (table->size <= cell_rows[i].size_max) &&
            (tests || ((cell_rows[i].cell != LATENCY) && (cell_rows[i].cell != STREAM)))) {
            cells[cell_rows[i].cell] = add_cell(table, cell_rows[i].name);
        }
    }
    return perf_rounds_run(table);
}

static int run_row(perf_rounds_t *table)
{
    static const unsigned limits[] = {LINE, RING, MEMCPY, READER, BOTH};
    const int on_device            = is_on_device(table);
    perf_cell_t *cells[CELL_COUNT] = {NULL}, *latency_limit, *stream_limit;
    unsigned i;

    if (run_cells(table, cells) != 0) {
        return -1;
    }
    latency_limit = on_device                       ? cells[COPY] :
                    (table->size <= LINE_BYTES_MAX) ? cells[LINE] :
                    (cells[RING] != NULL)           ? cells[RING] : cells[BOTH];
    stream_limit  = on_device                      ? cells[BATCH] :
                    (cells[RING_STREAM] != NULL)   ? cells[RING_STREAM] : cells[BOTH];
    if (cells[LATENCY] != NULL) {
        perf_cell_judge(table, cells[LATENCY], latency_limit);
    }
    if (cells[STREAM] != NULL) {
        perf_cell_judge(table, cells[STREAM], stream_limit);
    }
    perf_text_progress_end();
    if (table->report->options->no_text) {
        return 0;
    }
    printf("%8s |", perf_text_size(table->size).text);
    for (i = 0; !on_device && (i < sizeof(limits) / sizeof(limits[0])); ++i) {
        printf("%*s", (i == 0) ? 7 : 8, perf_text_us(us_of(cells[limits[i]])).text);
    }
    if (!on_device) {
        printf(" |");
    }
    if (on_device || (cells[LATENCY] != NULL)) {
        print_tests(table, cells[LATENCY], latency_limit, cells[STREAM], stream_limit);
    }
    printf("%s\n", table->unreliable ? " *" : "");
    fflush(stdout);
    return 0;
}

/* Message rate of 8 bytes; in the memory of processors in messages for each bounced cache line. */
static int run_rate(perf_rounds_t *table)
{
    static double ratios[PERF_ATTEMPTS_MAX];
    const int on_device = is_on_device(table);
    perf_cell_t *line, *limit, *rate;

    perf_rounds_begin(table, 8);
    line  = on_device ? NULL : add_cell(table, "line");
    limit = add_cell(table, on_device ? "batch" : "ring stream");
    rate  = add_cell(table, "tag_rate");
    if (perf_rounds_run(table) != 0) {
        return -1;
    }
    perf_cell_judge(table, rate, limit);
    perf_text_progress_end();
    if (table->report->options->no_text) {
        return 0;
    }
    printf("\ntag rate, 8 B, window %u: ", rate->step.window);
    if (on_device) {
        printf("%.3f million messages a second; the driver copies %.3f million (ratio %.2f)\n",
               rate->result->rate / 1e6, limit->result->rate / 1e6, rate->result->ratio);
    } else {
        printf("%.2f million messages a second, %.2f in the time of a bounced line (best round: "
               "%.2f);\n  the bare ring streams %.1f million\n", rate->result->rate / 1e6,
               perf_median(ratios, perf_cell_values(table, line, rate, ratios)),
               line->result->us_best / rate->result->us_best, limit->result->rate / 1e6);
    }
    return 0;
}

static void explain_device(const perf_rounds_t *table)
{
    const perf_device_t *device = &table->session->device;

    printf("\n%s. Memory: %s on one side, %s on the other", table->report->statistic,
           perf_memory_names[table->session->params.memory[0]],
           perf_memory_names[table->session->params.memory[1]]);
    if (device->is_open) {
        printf("; this one's device: %d of %d, %s, driver %d.%d", device->ordinal, device->count,
               device->name, device->driver / 1000, device->driver % 1000 / 10);
    }
    printf(".\ncopy: one process copies and polls, cuMemAlloc's memory, pinned where it is the "
           "host's. batch: a window of such copies %s, then polled for.\n",
           device->has_no_batch ? "one by one (the driver takes no cuMemcpyBatchAsync)" :
                                  "in one call");
    if (table->refused) {
        printf("The driver refuses to open the other side's memory (%s).\n",
               table->session->lanes[0].problem);
    }
}

static void explain(const perf_rounds_t *table)
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
    if (table->any_unreliable) {
        printf("* The machine was busy: fewer than half of the wanted rounds were undisturbed; "
               "measure again on a quiet machine.\n");
    }
    if (table->refused) {
        printf("The kernel forbids process_vm_readv between the two processes (%s).\n",
               table->session->lanes[0].problem);
    }
}

int perf_run_table(perf_session_t *session, perf_report_t *report)
{
    const perf_options_t *options = report->options;
    perf_rounds_t table;
    unsigned i;

    perf_rounds_init(&table, session, report);
    if (!options->no_text) {
        print_head(&table);
    }
    for (i = 0; i < options->size_count; ++i) {
        perf_rounds_begin(&table, options->sizes[i]);
        if (run_row(&table) != 0) {
            perf_text_progress_end();
            return -1;
        }
    }
    if (!options->limits_only && (run_rate(&table) != 0)) {
        return -1;
    }
    if (!options->no_text && !options->final_only) {
        if (is_on_device(&table)) {
            explain_device(&table);
        } else {
            explain(&table);
        }
    }
    return 0;
}
