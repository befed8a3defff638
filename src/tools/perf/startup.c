/* Halyard: what it costs to start: time to the first message, endpoints, memory of an idle worker.
 *
 * Each run has two fresh processes that never used the library before, so that nothing is warm.
 * Memory is the growth, between before ucp_init and after ucp_worker_create, of what the kernel
 * says about this process's mappings: shared ones by their mapped size and by their resident part,
 * private ones by what is writable and, of it, by resident anonymous pages (heap, stacks, written
 * data of libraries).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "run.h"
#include "stats.h"
#include "validate.h"
#include "watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINTS 32 /* each to a worker of its own in the peer process */

/* Memory of a process, bytes; in the order of PERF_STARTUP_MEMORY. */
enum { SHARED_MAPPED, SHARED_RESIDENT, PRIVATE_MAPPED, PRIVATE_RESIDENT, MEMORY_COUNT };

/* All of it is NaN where the kernel does not tell. */
static void read_memory(double memory[MEMORY_COUNT])
{
    char line[512], permissions[8];
    int is_shared = 0, is_writable = 0, i;
    FILE *file    = fopen("/proc/self/smaps", "r");
    double kib;

    for (i = 0; i < MEMORY_COUNT; ++i) {
        memory[i] = (file == NULL) ? NAN : 0;
    }
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (sscanf(line, "%*[0-9a-f]-%*[0-9a-f] %7s", permissions) == 1) {
            is_shared   = permissions[3] == 's';
            is_writable = !is_shared && (permissions[1] == 'w');
        } else if ((is_shared || is_writable) && (sscanf(line, "Size: %lf kB", &kib) == 1)) {
            memory[is_shared ? SHARED_MAPPED : PRIVATE_MAPPED] += kib * 1024;
        } else if (sscanf(line, is_shared ? "Rss: %lf kB" : "Anonymous: %lf kB", &kib) == 1) {
            memory[is_shared ? SHARED_RESIDENT : PRIVATE_RESIDENT] += kib * 1024;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* The first message, from the leader, and the answer. */
static int exchange(perf_session_t *session)
{
    const perf_step_t step = {.size = 8, .window = 1, .iters = 1};
    perf_lane_t *lane      = &session->lanes[0];
    uint8_t memory[2][8 + PERF_GUARD_SIZE];
    perf_time_t time;

    memset(memory, 0, sizeof(memory));
    lane->send_buffer = memory[0];
    lane->recv_buffer = memory[1];
    (void)perf_tag_latency(lane, &step, &time);
    lane->send_buffer = lane->recv_buffer = NULL;
    return (lane->status == UCS_OK) ? 0 :
           perf_session_fail(session, lane->status, "start-up: %s", lane->problem);
}

/* Follower: more workers, to which the leader makes endpoints. */
static int offer_workers(perf_session_t *session)
{
    unsigned i;

    for (i = 1; i <= ENDPOINTS; ++i) {
        if ((perf_setup_worker(session, i, session->contexts[0]) != 0) ||
            (perf_setup_send_address(session, &session->lanes[i]) != 0)) {
            return -1;
        }
    }
    return 0;
}

/* Leader: endpoints beyond the first one, each to another worker. */
static int create_more(perf_session_t *session, double *values)
{
    uint8_t *messages[ENDPOINTS + 1];
    double before[MEMORY_COUNT], after[MEMORY_COUNT], start_ns;
    size_t length;
    unsigned i;

    for (i = 1; i <= ENDPOINTS; ++i) {
        session->lanes[i].worker = session->lanes[0].worker;
        messages[i]              = perf_setup_recv_address(session, &length);
        if (messages[i] == NULL) {
            return -1;
        }
    }
    read_memory(before);
    start_ns = perf_now_ns();
    for (i = 1; i <= ENDPOINTS; ++i) {
        if (perf_setup_endpoint(session, &session->lanes[i], messages[i]) != 0) {
            return -1;
        }
    }
    values[PERF_STARTUP_EP_EACH] = (perf_now_ns() - start_ns) / ENDPOINTS;
    read_memory(after);
    values[PERF_STARTUP_EP_EACH_BYTES] = (after[PRIVATE_RESIDENT] - before[PRIVATE_RESIDENT] +
                                          after[SHARED_RESIDENT] - before[SHARED_RESIDENT]) /
                                         ENDPOINTS;
    for (i = 1; i <= ENDPOINTS; ++i) {
        free(messages[i]);
    }
    return 0;
}

static int part(perf_session_t *session)
{
    unsigned i;

    perf_setup_disconnect(session);
    if (perf_session_ready(session) != 0) {
        return -1;
    }
    for (i = 1; session->leader && (i <= ENDPOINTS); ++i) {
        session->lanes[i].worker = NULL; /* it is the first lane's */
    }
    perf_setup_destroy(session);
    return 0;
}

/* From nothing to the first message. */
static int start(perf_session_t *session, int memory, double *values)
{
    double before[MEMORY_COUNT], after[MEMORY_COUNT], start_ns, before_ep_ns;
    uint8_t *message;
    size_t length;
    int status, i;

    if (memory) {
        read_memory(before); /* the first reading makes room for itself */
        read_memory(before);
    }
    start_ns = perf_now_ns();
    if (perf_setup_context(session, 0) != 0) {
        return -1;
    }
    values[PERF_STARTUP_INIT] = perf_now_ns() - start_ns;
    if (perf_setup_worker(session, 0, session->contexts[0]) != 0) {
        return -1;
    }
    if (memory) {
        read_memory(after);
        for (i = 0; i < MEMORY_COUNT; ++i) {
            values[PERF_STARTUP_MEMORY + i] = after[i] - before[i];
        }
    }
    if (perf_setup_send_address(session, &session->lanes[0]) != 0) {
        return -1;
    }
    message = perf_setup_recv_address(session, &length);
    if (message == NULL) {
        return -1;
    }
    before_ep_ns                  = perf_now_ns();
    status                        = perf_setup_endpoint(session, &session->lanes[0], message);
    values[PERF_STARTUP_EP_FIRST] = perf_now_ns() - before_ep_ns;
    free(message);
    if ((status != 0) || (exchange(session) != 0)) {
        return -1;
    }
    values[PERF_STARTUP_FIRST]   = perf_now_ns() - start_ns;
    values[PERF_STARTUP_ADDRESS] = (double)length;
    return 0;
}

int perf_startup_run(perf_session_t *session, int memory, perf_startup_t *startup_p)
{
    perf_startup_t startup = {.memory = memory};
    int status;

    session->op     = &perf_ops[perf_op_find("tag_lat")];
    session->params = (perf_params_t) {.threads = 1};
    perf_watch_stage("start-up: first message");
    if ((perf_session_ready(session) != 0) || (perf_setup_lanes(session, 1 + ENDPOINTS) != 0) ||
        (start(session, memory, startup.values) != 0)) {
        return -1;
    }
    perf_watch_stage("start-up: %d endpoints", ENDPOINTS);
    perf_session_progress(session);
    if (session->leader) {
        status = (create_more(session, startup.values) != 0) ? -1 :
                 perf_oob_send(&session->channel, PERF_OOB_STOP, NULL, 0);
    } else {
        status = (offer_workers(session) != 0) ? -1 :
                 perf_oob_recv(&session->channel, PERF_OOB_STOP, NULL, 0);
    }
    perf_watch_stage("start-up: closing");
    if ((status != 0) || (part(session) != 0)) {
        return -1;
    }
    if (session->leader) {
        startup.valid = 1;
        *startup_p    = startup;
    }
    return 0;
}

/* What runs measure, as JSON has it. */
static const struct {
    const char *name;
    double      unit;
} fields[PERF_STARTUP_COUNT] = {
    [PERF_STARTUP_INIT]          = {"init_us", 1e3},
    [PERF_STARTUP_FIRST]         = {"first_message_us", 1e3},
    [PERF_STARTUP_EP_FIRST]      = {"first_endpoint_us", 1e3},
    [PERF_STARTUP_EP_EACH]       = {"endpoint_us", 1e3},
    [PERF_STARTUP_EP_EACH_BYTES] = {"endpoint_bytes", 1},
    [PERF_STARTUP_ADDRESS]       = {"worker_address_bytes", 1},
    [PERF_STARTUP_MEMORY]        = {"worker_shared_mapped_bytes", 1},
    {"worker_shared_resident_bytes", 1},
    {"worker_private_mapped_bytes", 1},
    {"worker_private_resident_bytes", 1},
};

void perf_startup_gather(const perf_startup_t *runs, perf_report_t *report)
{
    double values[PERF_STARTUP_RUNS_MAX];
    unsigned run, i;
    size_t used;

    for (run = 0; run < PERF_STARTUP_RUNS_MAX; ++run) {
        report->startup_runs += runs[run].valid;
    }
    if (report->startup_runs == 0) {
        return;
    }
    for (i = 0; i < PERF_STARTUP_COUNT; ++i) {
        for (run = 0, used = 0; run < PERF_STARTUP_RUNS_MAX; ++run) {
            if (runs[run].valid && (runs[run].memory == (i >= PERF_STARTUP_MEMORY))) {
                values[used++] = runs[run].values[i];
            }
        }
        report->startup[i] = perf_median(values, used);
    }
}

void perf_startup_put(const perf_report_t *report, ucs_report_t *json)
{
    unsigned i;

    if (report->startup_runs == 0) {
        return;
    }
    ucs_report_open(json, "startup", '{');
    ucs_report_row(json, "runs endpoints", "%u%u", report->startup_runs, ENDPOINTS);
    for (i = 0; i < PERF_STARTUP_COUNT; ++i) {
        ucs_report_row(json, fields[i].name, "%f", report->startup[i] / fields[i].unit);
    }
    ucs_report_close(json);
}

void perf_startup_print(const perf_report_t *report)
{
    const double *startup = report->startup, *memory = &startup[PERF_STARTUP_MEMORY];
    const double mib      = 1024 * 1024;

    if (report->startup_runs == 0) {
        return;
    }
    printf("\nstart-up (%u runs in fresh processes, half of them for memory; medians):\n",
           report->startup_runs);
    printf("  ucp_init %.2f ms; to the first message sent and answered %.2f ms\n",
           startup[PERF_STARTUP_INIT] / 1e6, startup[PERF_STARTUP_FIRST] / 1e6);
    printf("  endpoint: first %.1f us; %d more, each to another worker, %.2f us",
           startup[PERF_STARTUP_EP_FIRST] / 1e3, ENDPOINTS, startup[PERF_STARTUP_EP_EACH] / 1e3);
    if (!isnan(startup[PERF_STARTUP_EP_EACH_BYTES])) {
        printf(" and %.2f KiB", startup[PERF_STARTUP_EP_EACH_BYTES] / 1024);
    }
    printf(" each; worker address %.0f B\n", startup[PERF_STARTUP_ADDRESS]);
    if (isnan(memory[SHARED_MAPPED])) {
        return; /* no /proc; or the devices' driver maps far more than the library */
    }
    printf("  idle worker: shared %.2f MiB mapped (%.2f resident), private %.2f MiB mapped (%.2f "
           "resident)\n",
           memory[SHARED_MAPPED] / mib, memory[SHARED_RESIDENT] / mib,
           memory[PRIVATE_MAPPED] / mib, memory[PRIVATE_RESIDENT] / mib);
}
