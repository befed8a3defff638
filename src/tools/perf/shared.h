/* Halyard: memory that the processes of --self share: the lines and rings on which the machine's
 * limits are measured, each process's stage, and what the start-up runs found.
 *
 * Mapped once by the parent before it forks; zero is a valid start for every field.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_SHARED_H
#define PERF_SHARED_H

#include "device.h"
#include "watch.h"

#include <stdatomic.h>
#include <stdint.h>

#define PERF_LINE_SIZE 64

/* Largest message that goes through the bare ring, and bytes of one ring. */
#define PERF_RING_MESSAGE_MAX 8192
#define PERF_RING_BYTES       (640 * 1024)
#define PERF_RING_SLOTS_MAX   64

/* A line that one side writes and the other polls. Two lines apart, since the hardware fetches
 * lines in pairs. */
typedef struct perf_line {
    _Atomic uint64_t value;
    uint64_t         argument; /* travels with the value, in the same line */
    uint64_t         zero[14];
} perf_line_t;

_Static_assert(sizeof(perf_line_t) == 2 * PERF_LINE_SIZE, "a line and its neighbour");

/* Lines written by one side, polled by the other. */
typedef struct perf_side {
    perf_line_t bounce;
    perf_line_t barrier;
    perf_line_t credit; /* ring stream: messages taken */
    perf_line_t rts;    /* "a message waits here" */
    perf_line_t cts;    /* "put your half here" */
    perf_line_t sent;   /* the sender's half is done */
    perf_line_t taken;  /* the receiver's half is done */
} perf_side_t;

/* What start-up runs measure, in nanoseconds and bytes. */
enum {
    PERF_STARTUP_INIT,          /* ucp_config_read and ucp_init */
    PERF_STARTUP_FIRST,         /* from there to the first message received back */
    PERF_STARTUP_EP_FIRST,      /* the first endpoint */
    PERF_STARTUP_EP_EACH,       /* mean of the others */
    PERF_STARTUP_EP_EACH_BYTES, /* resident memory each */
    PERF_STARTUP_ADDRESS,       /* of the worker */
    PERF_STARTUP_MEMORY,        /* from here on of an idle worker: first what is shared, */
    PERF_STARTUP_COUNT = PERF_STARTUP_MEMORY + 4 /* then what is private; mapped, resident */
};

/* One run. */
typedef struct perf_startup {
    double values[PERF_STARTUP_COUNT];
    int    memory; /* this run measured memory, not time */
    int    valid;
} perf_startup_t;

#define PERF_STARTUP_RUNS_MAX 16

typedef struct perf_shared {
    _Alignas(4096) perf_side_t sides[2]; /* by who writes: 0 leader, 1 follower */
    perf_watch_slot_t          watch[2];
    int                        pids[2];
    int                        cpus[2];
    _Atomic int                go;  /* the children may start */
    uint8_t                    handle[PERF_DEVICE_HANDLE_SIZE]; /* of the follower's memory */
    perf_startup_t             startup[PERF_STARTUP_RUNS_MAX];
    _Alignas(4096) uint8_t     rings[2][PERF_RING_BYTES]; /* by who writes */
} perf_shared_t;

/* Maps it, zeroed and present. NULL on failure, which is printed. Lives until the process ends. */
perf_shared_t *perf_shared_map(void);

#endif
