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
#include "watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINTS     32 /* each to a worker of its own in the peer process */
#define STARTUP_TAG   7
#define WAIT_MAX_NS   10e9
#define CLOCK_POLLS   1024

typedef struct memory {
    double shared_mapped, shared_resident, private_mapped, private_resident; /* bytes */
} memory_t;

typedef struct startup {
    perf_channel_t *channel;
    int             leader;
    ucp_context_h   context;
    ucp_worker_h    worker;
    ucp_ep_h        ep;
    ucp_ep_h        more[ENDPOINTS];         /* leader */
    void           *addresses[ENDPOINTS];    /* leader: of the peer's other workers */
    ucp_worker_h    workers[ENDPOINTS];      /* follower: those workers */
    uint8_t         address[PERF_OOB_PAYLOAD_MAX]; /* the peer's */
    size_t          own_address_length;
} startup_t;

/* Too large for a stack. */
static startup_t state;

static int failed(ucs_status_t status, const char *what)
{
    perf_error("start-up: %s: %s", what, ucs_status_string(status));
    perf_oob_send_error(state.channel, what);
    return -1;
}

static int read_memory(memory_t *memory_p)
{
    char line[512], permissions[8];
    int is_shared = 0, is_writable = 0;
    double kib;
    FILE *file;

    memset(memory_p, 0, sizeof(*memory_p));
    file = fopen("/proc/self/smaps", "r");
    if (file == NULL) {
        return -1;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%*[0-9a-f]-%*[0-9a-f] %7s", permissions) == 1) {
            is_shared   = permissions[3] == 's';
            is_writable = !is_shared && (permissions[1] == 'w');
        } else if (is_shared && (sscanf(line, "Size: %lf kB", &kib) == 1)) {
            memory_p->shared_mapped += kib * 1024;
        } else if (is_shared && (sscanf(line, "Rss: %lf kB", &kib) == 1)) {
            memory_p->shared_resident += kib * 1024;
        } else if (is_writable && (sscanf(line, "Size: %lf kB", &kib) == 1)) {
            memory_p->private_mapped += kib * 1024;
        } else if (!is_shared && (sscanf(line, "Anonymous: %lf kB", &kib) == 1)) {
            memory_p->private_resident += kib * 1024;
        }
    }
    fclose(file);
    return 0;
}

static int create_worker(ucp_worker_h *worker_p)
{
    ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t status        = ucp_worker_create(state.context, &params, worker_p);

    return (status == UCS_OK) ? 0 : failed(status, "ucp_worker_create");
}

static int create_context(double *init_ns_p)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    double start_ns     = perf_now_ns();
    ucp_config_t *config;
    ucs_status_t status;

    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return failed(status, "ucp_config_read");
    }
    status = ucp_init(&params, config, &state.context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return failed(status, "ucp_init");
    }
    *init_ns_p = perf_now_ns() - start_ns;
    return 0;
}

static int send_address(ucp_worker_h worker)
{
    ucp_address_t *address;
    ucs_status_t status;
    size_t length;
    int result;

    status = ucp_worker_get_address(worker, &address, &length);
    if (status != UCS_OK) {
        return failed(status, "ucp_worker_get_address");
    }
    state.own_address_length = length;
    result = perf_oob_send(state.channel, PERF_OOB_ADDRESS, address, length);
    ucp_worker_release_address(worker, address);
    return result;
}

/* Receives an address into state.address. */
static int recv_address(size_t *length_p)
{
    return (perf_oob_recv_any(state.channel, state.address, sizeof(state.address), length_p) ==
            PERF_OOB_ADDRESS) ? 0 : -1;
}

static int create_endpoint(const void *address, ucp_ep_h *ep_p)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address    = (const ucp_address_t*)address};
    ucs_status_t status    = ucp_ep_create(state.worker, &params, ep_p);

    return (status == UCS_OK) ? 0 : failed(status, "ucp_ep_create");
}

/* Progresses until the request is done, bounded. Frees it. */
static int finish(ucs_status_ptr_t request, const char *what)
{
    double end_ns  = perf_now_ns() + WAIT_MAX_NS;
    unsigned polls = 0;
    ucs_status_t status;

    if (request == NULL) {
        return 0;
    }
    if (UCS_PTR_IS_ERR(request)) {
        return failed(UCS_PTR_STATUS(request), what);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(state.worker);
        if ((++polls % CLOCK_POLLS == 0) &&
            (perf_oob_is_closed(state.channel) || (perf_now_ns() > end_ns))) {
            return failed(UCS_ERR_TIMED_OUT, what);
        }
    }
    ucp_request_free(request);
    return (status == UCS_OK) ? 0 : failed(status, what);
}

static int send_one(void)
{
    static const uint64_t value  = 1;
    ucp_request_param_t param    = {.op_attr_mask = 0};

    return finish(ucp_tag_send_nbx(state.ep, &value, sizeof(value), STARTUP_TAG, &param),
                  "the first send");
}

static int recv_one(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t value;

    return finish(ucp_tag_recv_nbx(state.worker, &value, sizeof(value), STARTUP_TAG, UINT64_MAX,
                                   &param),
                  "the first receive");
}

/* Follower: more workers, to which the leader makes endpoints. */
static int offer_workers(void)
{
    unsigned i;

    for (i = 0; i < ENDPOINTS; ++i) {
        if ((create_worker(&state.workers[i]) != 0) || (send_address(state.workers[i]) != 0)) {
            return -1;
        }
    }
    return 0;
}

/* Leader: endpoints beyond the first one, each to another worker. */
static int create_more(perf_startup_t *startup)
{
    memory_t before, after;
    double start_ns;
    size_t length;
    unsigned i;
    int known;

    for (i = 0; i < ENDPOINTS; ++i) {
        if (recv_address(&length) != 0) {
            return -1;
        }
        state.addresses[i] = malloc(length);
        if (state.addresses[i] == NULL) {
            return failed(UCS_ERR_NO_MEMORY, "addresses");
        }
        memcpy(state.addresses[i], state.address, length);
    }
    known    = read_memory(&before);
    start_ns = perf_now_ns();
    for (i = 0; i < ENDPOINTS; ++i) {
        if (create_endpoint(state.addresses[i], &state.more[i]) != 0) {
            return -1;
        }
    }
    startup->ep_each_ns    = (perf_now_ns() - start_ns) / ENDPOINTS;
    known                 |= read_memory(&after);
    startup->endpoints     = ENDPOINTS;
    startup->ep_each_bytes = (known == 0) ? (after.private_resident - before.private_resident +
                                             after.shared_resident - before.shared_resident) /
                                            ENDPOINTS : NAN;
    return 0;
}

static void progress_until_message(void)
{
    double end_ns = perf_now_ns() + WAIT_MAX_NS;
    unsigned i;

    while ((perf_oob_poll(state.channel) == 0) && (perf_now_ns() < end_ns)) {
        ucp_worker_progress(state.worker);
        for (i = 0; (i < ENDPOINTS) && (state.workers[i] != NULL); ++i) {
            ucp_worker_progress(state.workers[i]);
        }
    }
}

static int close_endpoint(ucp_ep_h ep)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(ucp_ep_close_nbx(ep, &param), "closing an endpoint");
}

static int part(void)
{
    unsigned i;

    if (state.leader) {
        for (i = 0; i < ENDPOINTS; ++i) {
            if (close_endpoint(state.more[i]) != 0) {
                return -1;
            }
        }
    }
    if ((close_endpoint(state.ep) != 0) ||
        (perf_oob_send(state.channel, PERF_OOB_READY, NULL, 0) != 0)) {
        return -1;
    }
    progress_until_message();
    if (perf_oob_recv(state.channel, PERF_OOB_READY, NULL, 0) != 0) {
        return -1;
    }
    for (i = 0; i < ENDPOINTS; ++i) {
        free(state.addresses[i]);
        if (state.workers[i] != NULL) {
            ucp_worker_destroy(state.workers[i]);
        }
    }
    ucp_worker_destroy(state.worker);
    ucp_cleanup(state.context);
    return 0;
}

/* From nothing to the first message. */
static int start(int memory, perf_startup_t *startup)
{
    memory_t before, after;
    double start_ns, before_ep_ns;
    size_t length;
    int known = -1;

    if (memory) {
        /* The first reading makes room for itself. */
        (void)read_memory(&before);
        known = read_memory(&before);
    }
    start_ns = perf_now_ns();
    if ((create_context(&startup->init_ns) != 0) || (create_worker(&state.worker) != 0)) {
        return -1;
    }
    if (memory && (known == 0) && (read_memory(&after) == 0)) {
        startup->shared_mapped    = after.shared_mapped - before.shared_mapped;
        startup->shared_resident  = after.shared_resident - before.shared_resident;
        startup->private_mapped   = after.private_mapped - before.private_mapped;
        startup->private_resident = after.private_resident - before.private_resident;
    }
    if ((send_address(state.worker) != 0) || (recv_address(&length) != 0)) {
        return -1;
    }
    before_ep_ns = perf_now_ns();
    if (create_endpoint(state.address, &state.ep) != 0) {
        return -1;
    }
    startup->ep_first_ns = perf_now_ns() - before_ep_ns;
    if ((state.leader && (send_one() != 0)) || (recv_one() != 0) ||
        (!state.leader && (send_one() != 0))) {
        return -1;
    }
    startup->first_ns      = perf_now_ns() - start_ns;
    startup->address_bytes = (double)state.own_address_length;
    return 0;
}

int perf_startup_run(perf_channel_t *channel, int leader, int memory, perf_startup_t *startup_p)
{
    perf_startup_t startup = {.memory = (uint32_t)memory};

    memset(&state, 0, sizeof(state));
    state.channel = channel;
    state.leader  = leader;
    perf_watch_stage("start-up: first message");
    if ((perf_oob_send(channel, PERF_OOB_READY, NULL, 0) != 0) ||
        (perf_oob_recv(channel, PERF_OOB_READY, NULL, 0) != 0) ||
        (start(memory, &startup) != 0)) {
        return -1;
    }
    perf_watch_stage("start-up: %d endpoints", ENDPOINTS);
    if (leader) {
        if ((create_more(&startup) != 0) ||
            (perf_oob_send(channel, PERF_OOB_STOP, NULL, 0) != 0)) {
            return -1;
        }
    } else {
        if (offer_workers() != 0) {
            return -1;
        }
        progress_until_message();
        if (perf_oob_recv(channel, PERF_OOB_STOP, NULL, 0) != 0) {
            return -1;
        }
    }
    perf_watch_stage("start-up: closing");
    if (part() != 0) {
        return -1;
    }
    if (leader) {
        startup.valid = 1;
        *startup_p    = startup;
    }
    return 0;
}

/* Median of one field over the runs that measured it. */
static double median_of(const perf_startup_t *runs, uint32_t memory, size_t offset)
{
    double values[PERF_STARTUP_RUNS_MAX];
    size_t used = 0;
    unsigned i;

    for (i = 0; i < PERF_STARTUP_RUNS_MAX; ++i) {
        if (runs[i].valid && (runs[i].memory == memory)) {
            memcpy(&values[used++], (const char*)&runs[i] + offset, sizeof(double));
        }
    }
    return perf_median(values, used);
}

void perf_startup_gather(const perf_startup_t *runs, perf_report_t *report)
{
    perf_startup_t *startup = &report->startup;
    unsigned i;

    for (i = 0; i < PERF_STARTUP_RUNS_MAX; ++i) {
        report->startup_runs += runs[i].valid;
    }
    if (report->startup_runs == 0) {
        return;
    }
#define MEDIAN(_field, _memory) \
    startup->_field = median_of(runs, _memory, offsetof(perf_startup_t, _field))
    MEDIAN(init_ns, 0);
    MEDIAN(first_ns, 0);
    MEDIAN(ep_first_ns, 0);
    MEDIAN(ep_each_ns, 0);
    MEDIAN(ep_each_bytes, 0);
    MEDIAN(address_bytes, 0);
    MEDIAN(shared_mapped, 1);
    MEDIAN(shared_resident, 1);
    MEDIAN(private_mapped, 1);
    MEDIAN(private_resident, 1);
#undef MEDIAN
    startup->endpoints = ENDPOINTS;
    startup->valid     = 1;
}

void perf_startup_print(const perf_report_t *report)
{
    const perf_startup_t *startup = &report->startup;
    const double mib              = 1024 * 1024;

    if (!startup->valid) {
        return;
    }
    printf("\nstart-up (medians of %u runs in fresh processes):\n", report->startup_runs);
    printf("  ucp_init %.2f ms; to the first message sent and answered %.2f ms\n",
           startup->init_ns / 1e6, startup->first_ns / 1e6);
    printf("  endpoint: first %.1f us; %u more, each to another worker, %.2f us and %.2f KiB "
           "each; worker address %.0f B\n", startup->ep_first_ns / 1e3, startup->endpoints,
           startup->ep_each_ns / 1e3, startup->ep_each_bytes / 1024, startup->address_bytes);
    if (isnan(startup->shared_mapped)) {
        return; /* the devices' driver maps far more than the library */
    }
    printf("  idle worker: shared %.2f MiB mapped (%.2f resident), private %.2f MiB mapped (%.2f "
           "resident)\n",
           startup->shared_mapped / mib, startup->shared_resident / mib,
           startup->private_mapped / mib, startup->private_resident / mib);
}
