/* Halyard: simulator: chance, virtual time, the log of events and the replaced ucs_sys.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <wire/print.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIM_KEPT_EVENTS 80
#define SIM_UNMAPPED_MAX 1024

/* What a look at the clock takes, so that whoever waits by looking at it comes to an end. */
#define SIM_LOOK_NS 20000

sim_plan_t sim_plan;
int sim_faults_on;

/* ---- chance ---- */

static uint64_t sim_state;

void sim_seed(uint64_t seed)
{
    sim_state = seed * 0x9e3779b97f4a7c15ull;
}

uint64_t sim_random(void)
{
    return ucs_random_next(&sim_state);
}

uint64_t sim_below(uint64_t end)
{
    return sim_random() % end;
}

uint64_t sim_between(uint64_t first, uint64_t last)
{
    return first + sim_below(last - first + 1);
}

int sim_chance(double probability)
{
    return (probability > 0) && ((double)(sim_random() >> 11) < probability * 0x1p53);
}

/* ---- time ---- */

static uint64_t sim_time_ns;

uint64_t sim_now(void)
{
    return sim_time_ns;
}

void sim_advance(uint64_t duration_ns)
{
    sim_time_ns += duration_ns;
}

/* ---- events ---- */

typedef struct {
    uint64_t    time_ns;
    const char *what;
    uint64_t    args[3];
} sim_event_t;

static struct {
    sim_event_t kept[SIM_KEPT_EVENTS];
    uint64_t    count;
    uint64_t    hash;
    int         trace;
} sim_events;

static void sim_event_print(const sim_event_t *event)
{
    printf("  %12llu ns  %-20s %llu %llu %llu\n", (unsigned long long)event->time_ns, event->what,
           (unsigned long long)event->args[0], (unsigned long long)event->args[1],
           (unsigned long long)event->args[2]);
}

static void sim_hash_add(uint64_t value)
{
    sim_events.hash = (sim_events.hash ^ value) * 0x100000001b3ull;
    sim_events.hash ^= sim_events.hash >> 29;
}

void sim_event(const char *what, uint64_t a, uint64_t b, uint64_t c)
{
    sim_event_t *event = &sim_events.kept[sim_events.count % SIM_KEPT_EVENTS];
    const char *pos;

    *event = (sim_event_t){sim_time_ns, what, {a, b, c}};
    ++sim_events.count;
    sim_hash_add(sim_time_ns);
    for (pos = what; *pos != '\0'; ++pos) {
        sim_hash_add((uint8_t)*pos);
    }
    sim_hash_add(a);
    sim_hash_add(b);
    sim_hash_add(c);
    if (sim_events.trace) {
        sim_event_print(event);
    }
}

void sim_events_reset(int trace)
{
    memset(&sim_events, 0, sizeof(sim_events));
    sim_events.trace = trace;
    sim_time_ns      = 1000000000;
}

uint64_t sim_events_hash(void)
{
    return sim_events.hash;
}

uint64_t sim_events_count(void)
{
    return sim_events.count;
}

void sim_events_print_last(void)
{
    uint64_t i = (sim_events.count > SIM_KEPT_EVENTS) ? sim_events.count - SIM_KEPT_EVENTS : 0;

    if (sim_events.trace) {
        return; /* they are above */
    }
    for (; i < sim_events.count; ++i) {
        sim_event_print(&sim_events.kept[i % SIM_KEPT_EVENTS]);
    }
}

void sim_event_message(unsigned id, const void *data, size_t length)
{
    if (sim_events.trace) {
        printf("                   ");
        wire_print(id, data, length, stdout);
        printf("\n");
    }
}

/* ---- memory ---- */

static size_t sim_live;
static uint64_t sim_failed;

static int sim_alloc_fails(size_t size)
{
    if (!sim_faults_on || !sim_chance(sim_plan.fail_alloc)) {
        return 0;
    }
    ++sim_failed;
    sim_event("allocation fails", size, 0, 0);
    sim_world_lacks_memory();
    errno = ENOMEM;
    return 1;
}

static void *sim_alloc_done(void *ptr)
{
    sim_live += (ptr != NULL);
    return ptr;
}

static void *sim_malloc(size_t size)
{
    return sim_alloc_fails(size) ? NULL : sim_alloc_done(ucs_sys_real.malloc(size));
}

static void *sim_calloc(size_t count, size_t size)
{
    return sim_alloc_fails(count * size) ? NULL : sim_alloc_done(ucs_sys_real.calloc(count, size));
}

static void *sim_realloc(void *ptr, size_t size)
{
    if (sim_alloc_fails(size)) {
        return NULL;
    }
    return (ptr == NULL) ? sim_alloc_done(ucs_sys_real.malloc(size))
                         : ucs_sys_real.realloc(ptr, size);
}

static void *sim_memalign(size_t alignment, size_t size)
{
    return sim_alloc_fails(size) ? NULL : sim_alloc_done(ucs_sys_real.memalign(alignment, size));
}

static void sim_free(void *ptr)
{
    sim_live -= (ptr != NULL);
    ucs_sys_real.free(ptr);
}

static void *sim_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
    return sim_alloc_fails(length) ? MAP_FAILED
                                   : ucs_sys_real.mmap(addr, length, prot, flags, fd, offset);
}

/* The places stay empty until the end of the run: whether something else comes there depends on
 * what the process has done before. */
static struct {
    void  *address;
    size_t length;
} sim_unmapped[SIM_UNMAPPED_MAX];
static unsigned sim_num_unmapped;

static int sim_munmap(void *address, size_t length)
{
    void *place = mmap(address, length, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

    ucs_assert_always((place == address) && (sim_num_unmapped < SIM_UNMAPPED_MAX));
    sim_unmapped[sim_num_unmapped].address = address;
    sim_unmapped[sim_num_unmapped].length  = length;
    ++sim_num_unmapped;
    return 0;
}

void sim_system_reset(void)
{
    while (sim_num_unmapped > 0) {
        --sim_num_unmapped;
        munmap(sim_unmapped[sim_num_unmapped].address, sim_unmapped[sim_num_unmapped].length);
    }
}

size_t sim_system_live(void)
{
    return sim_live;
}

uint64_t sim_system_failed(void)
{
    return sim_failed;
}

/* ---- the rest of the table ---- */

static uint64_t sim_clock_ns(void)
{
    sim_time_ns += SIM_LOOK_NS;
    return sim_time_ns;
}

/* Simulated processes have a processor each. */
static uint64_t sim_lost_turns(void)
{
    return 0;
}

static int sim_sched_yield(void)
{
    sim_time_ns += SIM_LOOK_NS;
    return 0;
}

static int sim_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    sim_time_ns += (timeout_ms > 0) ? (uint64_t)timeout_ms * 1000000 : SIM_LOOK_NS;
    return ucs_sys_real.poll(fds, count, 0);
}

void sim_system_install(void)
{
    static ucs_sys_ops_t ops;

    ops               = ucs_sys_real;
    ops.clock_ns      = sim_clock_ns;
    ops.clock_coarse_ns = sim_now; /* nobody waits by it */
    ops.wall_clock_ns = sim_clock_ns;
    ops.random64      = sim_random;
    ops.sched_yield   = sim_sched_yield;
    ops.lost_turns    = sim_lost_turns;
    ops.sleep_ns      = sim_advance;
    ops.malloc        = sim_malloc;
    ops.calloc        = sim_calloc;
    ops.realloc       = sim_realloc;
    ops.memalign      = sim_memalign;
    ops.free          = sim_free;
    ops.mmap          = sim_mmap;
    ops.munmap        = sim_munmap;
    ops.poll          = sim_poll;
    sim_tcp_install(&ops);
    ucs_sys_set(&ops);
}
