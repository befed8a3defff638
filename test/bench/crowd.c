/* Halyard: many processes of one node at once, over whichever libucp is found at run time: forked
 * by the program itself, one worker each, addresses exchanged in shared memory.
 *
 *   crowd ring    [OPTIONS]  a token goes round: time of a hop
 *   crowd gather  [OPTIONS]  all send 8 bytes to the first: messages a second
 *   crowd pairs   [OPTIONS]  neighbours send 8 bytes to each other: messages a second of all
 *   crowd wired   [OPTIONS]  each exchanges a message with each: memory of a process
 *
 *   -n COUNT   processes (default 16)
 *   -c COUNT   processors to use, of those allowed (default all); with -b each process keeps one
 *   -b         process i on the processor i modulo their number, where others may be too
 *   -l COUNT   laps of the token, or messages of each sender (default 2000)
 *   -r COUNT   rounds (default 3): the best and the median are printed
 *   -y         a process that finds nothing to do gives its processor away
 *
 * Prints one line: what, processes, figures. Exit status 0 unless something failed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <ucp/api/ucp.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES_MAX 512
#define ROUNDS_MAX    32
#define ADDRESS_MAX   1024
#define WINDOW        64 /* messages that a sender has under way */
#define TIME_LIMIT_S  120
#define MIB           1048576.0

typedef struct {
    _Atomic int address_length; /* 0: not there yet */
    uint8_t     address[ADDRESS_MAX];
    double      figure[ROUNDS_MAX];
    double      shared, private; /* bytes */
} process_t;

typedef struct {
    _Atomic unsigned arrived;
    process_t        processes[PROCESSES_MAX];
} board_t;

static struct {
    const char *what;
    unsigned    count, cpus, rounds;
    long        laps;
    int         does_bind, does_yield;
} options = {.count = 16, .rounds = 3, .laps = 2000};

static board_t *board;
static unsigned own, barriers;
static ucp_worker_h worker;
static ucp_ep_h eps[PROCESSES_MAX];

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "crowd: process %u: %s: %s\n", own, what, why);
    _exit(1);
}

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fail(what, ucs_status_string(status));
    }
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (1e-9 * (double)now.tv_nsec);
}

static void progress(void)
{
    if ((ucp_worker_progress(worker) == 0) && options.does_yield) {
        sched_yield();
    }
}

static void barrier(void)
{
    atomic_fetch_add(&board->arrived, 1);
    ++barriers;
    while (atomic_load(&board->arrived) < barriers * options.count) {
        if (ucp_worker_progress(worker) == 0) {
            sched_yield();
        }
    }
}

static void finish(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "a message");
    }
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress();
        }
        check(ucp_request_check_status(request), "a message");
        ucp_request_free(request);
    }
}

/* Made once, as its making takes longer than a third of the call. */
static const ucp_request_param_t plain;

static ucs_status_ptr_t post_send(unsigned to, const void *data)
{
    return ucp_tag_send_nbx(eps[to], data, sizeof(uint64_t), own, &plain);
}

static ucs_status_ptr_t post_recv(unsigned from, int is_any, void *data)
{
    return ucp_tag_recv_nbx(worker, data, sizeof(uint64_t), from, is_any ? 0 : UINT64_MAX, &plain);
}

static void connect_to(unsigned index)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    process_t *peer        = &board->processes[index];

    if (eps[index] == NULL) {
        params.address = (const ucp_address_t *)peer->address;
        check(ucp_ep_create(worker, &params, &eps[index]), "ucp_ep_create");
    }
}

/* ---- what is measured ---- */

static void ring_round(unsigned round)
{
    const unsigned next = (own + 1) % options.count;
    const unsigned last = (own + options.count - 1) % options.count;
    uint64_t token      = 0;
    uint64_t value;
    double start;
    long i;

    connect_to(next);
    barrier();
    start = now_s();
    for (i = 0; i < options.laps; ++i) {
        if (own > 0) {
            finish(post_recv(last, 0, &token));
        }
        value = token + 1;
        finish(post_send(next, &value));
        if (own == 0) {
            finish(post_recv(last, 0, &token));
        }
    }
    board->processes[own].figure[round] =
        1e6 * (now_s() - start) / ((double)options.laps * options.count);
    if ((own == 0) && (token != (uint64_t)options.laps * options.count)) {
        fail("the token", "it has not passed everybody");
    }
}

/* Keeps WINDOW messages under way. Exactly one of post_send and post_recv is used. */
static void stream(unsigned peer, int is_send, int is_any, long count)
{
    static uint64_t data[WINDOW];
    ucs_status_ptr_t requests[WINDOW] = {NULL};
    long i;

    for (i = 0; i < count; ++i) {
        finish(requests[i % WINDOW]);
        requests[i % WINDOW] = is_send ? post_send(peer, &data[i % WINDOW]) :
                               post_recv(peer, is_any, &data[i % WINDOW]);
    }
    for (i = 0; i < WINDOW; ++i) {
        finish(requests[i]);
    }
}

static void gather_round(unsigned round)
{
    double start;

    if (own > 0) {
        connect_to(0);
    }
    barrier();
    start = now_s();
    if (own == 0) {
        stream(0, 0, 1, options.laps * (options.count - 1));
    } else {
        stream(0, 1, 0, options.laps);
    }
    board->processes[own].figure[round] =
        1e-6 * (double)options.laps * (options.count - 1) / (now_s() - start);
}

static void pairs_round(unsigned round)
{
    const unsigned peer = own ^ 1;
    static uint64_t out[WINDOW], in[WINDOW];
    ucs_status_ptr_t sends[WINDOW] = {NULL}, recvs[WINDOW] = {NULL};
    double start;
    long i;

    connect_to(peer);
    barrier();
    start = now_s();
    for (i = 0; i < options.laps + WINDOW; ++i) {
        finish(recvs[i % WINDOW]);
        finish(sends[i % WINDOW]);
        recvs[i % WINDOW] = (i < options.laps) ? post_recv(peer, 0, &in[i % WINDOW]) : NULL;
        sends[i % WINDOW] = (i < options.laps) ? post_send(peer, &out[i % WINDOW]) : NULL;
    }
    board->processes[own].figure[round] =
        1e-6 * (double)options.laps * options.count / (now_s() - start);
}

/* Adds up mappings of /proc/self/smaps: proportional size of shared memory without the board, which
 * is a file of no disk that is deleted, and private pages that were written. */
static void measure_memory(double *shared_p, double *private_p)
{
    FILE *file    = fopen("/proc/self/smaps", "r");
    int is_shared = 0, is_board = 0;
    unsigned long start, kib;
    char line[512], mode[8];

    *shared_p = *private_p = 0;
    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (sscanf(line, "%lx-%*x %7s", &start, mode) == 2) {
            is_shared = (mode[3] == 's');
            is_board  = (start == (unsigned long)(uintptr_t)board);
        } else if (is_shared && !is_board && (sscanf(line, "Pss: %lu kB", &kib) == 1)) {
            *shared_p += 1024.0 * (double)kib;
        } else if (!is_shared && (sscanf(line, "Anonymous: %lu kB", &kib) == 1)) {
            *private_p += 1024.0 * (double)kib;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void wired_round(void)
{
    static uint64_t in[PROCESSES_MAX], out[PROCESSES_MAX];
    static ucs_status_ptr_t recvs[PROCESSES_MAX], sends[PROCESSES_MAX];
    unsigned i;

    for (i = 0; i < options.count; ++i) {
        if (i != own) {
            connect_to(i);
            recvs[i] = post_recv(i, 0, &in[i]);
            sends[i] = post_send(i, &out[i]);
        }
    }
    for (i = 0; i < options.count; ++i) {
        if (i != own) {
            finish(recvs[i]);
            finish(sends[i]);
        }
    }
    barrier();
    measure_memory(&board->processes[own].shared, &board->processes[own].private);
}

/* ---- processes ---- */

static void bind_process(void)
{
    cpu_set_t allowed, chosen;
    unsigned cpu, count = 0;

    CPU_ZERO(&chosen);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    if ((options.cpus == 0) || (options.cpus > (unsigned)CPU_COUNT(&allowed))) {
        options.cpus = (unsigned)CPU_COUNT(&allowed);
    }
    for (cpu = 0; (cpu < CPU_SETSIZE) && (count < options.cpus); ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) {
            if (!options.does_bind || ((own % options.cpus) == count)) {
                CPU_SET(cpu, &chosen);
            }
            ++count;
        }
    }
    sched_setaffinity(0, sizeof(chosen), &chosen);
}

static void run_process(void)
{
    const ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                               .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    double shared_before, private_before;
    ucp_context_h context;
    ucp_address_t *address;
    size_t length;
    unsigned i;

    bind_process();
    alarm(TIME_LIMIT_S);
    measure_memory(&shared_before, &private_before);
    check(ucp_init(&params, NULL, &context), "ucp_init");
    check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    if (length > ADDRESS_MAX) {
        fail("ucp_worker_get_address", "longer than expected");
    }
    memcpy(board->processes[own].address, address, length);
    atomic_store(&board->processes[own].address_length, (int)length);
    ucp_worker_release_address(worker, address);

    barrier();
    for (i = 0; i < options.rounds; ++i) {
        switch (options.what[0]) {
        case 'r':
            ring_round(i);
            break;
        case 'g':
            gather_round(i);
            break;
        case 'p':
            pairs_round(i);
            break;
        default:
            wired_round();
            board->processes[own].shared  -= shared_before;
            board->processes[own].private -= private_before;
            i = options.rounds;
            break;
        }
    }
    barrier(); /* who is gone would be an error to the others */
    _exit(0);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_figures(void)
{
    double *figures = board->processes[0].figure; /* the first process sees the whole of it */
    double all[ROUNDS_MAX], shared = 0, private = 0;
    unsigned i, j;

    if (options.what[0] == 'w') {
        for (i = 0; i < options.count; ++i) {
            shared  += board->processes[i].shared / options.count;
            private += board->processes[i].private / options.count;
        }
        printf("wired %u: shared %.2f private %.2f MiB a process\n", options.count, shared / MIB,
               private / MIB);
        return;
    }
    memcpy(all, figures, sizeof(all));
    if (options.what[0] == 'p') { /* the slowest pair decides */
        for (i = 0; i < options.rounds; ++i) {
            for (j = 0; j < options.count; ++j) {
                all[i] = (board->processes[j].figure[i] < all[i]) ? board->processes[j].figure[i] :
                         all[i];
            }
        }
    }
    qsort(all, options.rounds, sizeof(all[0]), compare);
    printf("%s %u: best %.3f median %.3f %s\n", options.what, options.count,
           all[(options.what[0] == 'r') ? 0 : options.rounds - 1], all[options.rounds / 2],
           (options.what[0] == 'r') ? "us a hop" : "million messages a second");
}

static void read_options(int argc, char **argv)
{
    int letter;

    if (argc < 2) {
        fail("usage", "crowd ring|gather|pairs|wired [-n] [-c] [-b] [-l] [-r] [-y]");
    }
    options.what = argv[1];
    optind       = 2;
    while ((letter = getopt(argc, argv, "n:c:bl:r:y")) != -1) {
        switch (letter) {
        case 'n':
            options.count = (unsigned)atoi(optarg);
            break;
        case 'c':
            options.cpus = (unsigned)atoi(optarg);
            break;
        case 'b':
            options.does_bind = 1;
            break;
        case 'l':
            options.laps = atol(optarg);
            break;
        case 'r':
            options.rounds = (unsigned)atoi(optarg);
            break;
        case 'y':
            options.does_yield = 1;
            break;
        default:
            exit(1);
        }
    }
    if ((strchr("rgpw", options.what[0]) == NULL) || (options.count < 2) ||
        (options.count > PROCESSES_MAX) || (options.rounds < 1) || (options.rounds > ROUNDS_MAX) ||
        (options.laps < 1) || ((options.what[0] == 'p') && ((options.count % 2) != 0))) {
        fail("usage", "an option is out of range");
    }
}

int main(int argc, char **argv)
{
    int status, is_bad = 0;
    pid_t pid;
    unsigned i;

    read_options(argc, argv);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        fail("mmap", "no memory");
    }
    for (i = 0; i < options.count; ++i) {
        pid = fork();
        if (pid < 0) {
            fail("fork", "no process"); /* the others end by PDEATHSIG */
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            own = i;
            run_process();
        }
    }
    for (i = 0; i < options.count; ++i) {
        if ((wait(&status) < 0) || (status != 0)) {
            is_bad = 1;
            break;
        }
    }
    if (!is_bad) {
        print_figures();
    }
    return is_bad;
}
