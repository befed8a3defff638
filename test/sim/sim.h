/* Halyard: simulator: what its parts share: the source of chance, virtual time, the log of events,
 * the plan that a seed draws, and the simulated node.
 *
 * Everything is single-threaded. The product is the real one but for the bottom: the table ucs_sys
 * (clock, chance, memory) and the transports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_SIM_SIM_H
#define TEST_SIM_SIM_H

#include <uct/api/uct_tl.h>

BEGIN_C_DECLS

/* ---- chance: the one source ---- */

void sim_seed(uint64_t seed);
uint64_t sim_random(void);
/* Below `end`, which is not 0. */
uint64_t sim_below(uint64_t end);
/* first..last */
uint64_t sim_between(uint64_t first, uint64_t last);
int sim_chance(double probability);

#define SIM_AM_MAX 65536 /* of any plan */

/* Operations that a seed draws more or fewer of. */
typedef enum {
    SIM_TAGS,
    SIM_MESSAGES,
    SIM_STREAMS,
    SIM_MEMORY,
    SIM_SOCKETS,
    SIM_FAMILIES,
    SIM_ALL = SIM_FAMILIES /* the others */
} sim_family_t;

/* ---- what a seed draws; a fault of probability 0 does not happen ---- */

typedef struct {
    unsigned    num_workers;
    unsigned    num_steps;
    unsigned    ops_percent;      /* of the steps that post something */
    size_t      length_max;       /* of a message */
    size_t      am_max;           /* of a transport's message */
    size_t      zcopy_min;        /* bytes from which one is sent from where it lies, or 0, */
    uint64_t    lent_ns;          /* and until when it has left at the latest */
    size_t      long_max;         /* of a long one, or 0 */
    double      parts;            /* a message comes in parts */
    int         is_narrow;        /* receives know all but 8 bits of the tag */
    unsigned    capacity;         /* messages in flight on a connection */
    uint64_t    delay_ns;         /* of each message at least */
    uint64_t    tail_ns;          /* of some at most */
    double      tail;
    double      instant_connect;
    double      no_resource;      /* of one operation */
    double      storm;            /* that one begins, for a time */
    double      refuse_connection;
    double      refuse_copy;      /* the path ends */
    double      fail_copy;        /* this one range */
    double      fail_alloc;
    double      fail_reg;
    double      slow_map;         /* memory cannot be mapped yet */
    double      refuse_map;       /* nor ever */
    double      kill;             /* a step */
    double      leave;            /* a step: a worker is destroyed, another made */
    double      callback_posts;   /* a callback posts something */
    double      starve;           /* a worker does not progress for a time */
    double      sleep;            /* a worker that finds nothing to do sleeps; 0: cannot */
    int         has_sync;
    int         has_get, has_put;
    int         has_map;          /* memory that the library allocates can be mapped */
    int         has_reg;          /* other memory is registered */
    int         maps_reg;         /* and can then be mapped */
    int         own_self;         /* messages to oneself go through a simulated transport */
    double      copy_bytes_per_ns;
    const char *rndv_thresh;
    const char *rndv_scheme;
    int         is_multi;         /* UCS_THREAD_MODE_MULTI */
    unsigned    share[SIM_FAMILIES]; /* of the operations, by family */
    const char *unexp_budget;
    double      attentive;        /* a peer says that it listens; 0: it cannot say */
    double      on_device;        /* a buffer lies on a device; 0: there is none */
    double      fail_device;      /* a copy within a process */
    double      shown;            /* other processes can reach what lies on a device */
    unsigned    num_devices;
    size_t      device_room;      /* bytes on a device to stage by, at most */
} sim_plan_t;

extern sim_plan_t sim_plan;

/* 0 while nothing may go wrong on purpose: start, the end of a run. */
extern int sim_faults_on;

/* ---- time ---- */

uint64_t sim_now(void);
void sim_advance(uint64_t duration_ns);

/* ---- events: hashed, the last ones kept, printed under --trace ---- */

void sim_event(const char *what, uint64_t a, uint64_t b, uint64_t c);
void sim_events_reset(int trace);
uint64_t sim_events_hash(void);
uint64_t sim_events_count(void);
void sim_events_print_last(void);
/* The text of a message, under --trace only. */
void sim_event_message(unsigned id, const void *data, size_t length);

/* A rule is broken: printed, with the events before it and the command that replays the run. The
 * run goes on; the first failure of a seed counts. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- system: the replaced table ---- */

void sim_system_install(void);
/* At the end of a run. */
void sim_system_reset(void);
/* Objects allocated by the product that are there now. */
size_t sim_system_live(void);
/* Allocations that were made to fail so far. */
uint64_t sim_system_failed(void);

/* ---- TCP on the node (tcp.cc) ---- */

/* Puts its calls into the table. */
void sim_tcp_install(void *ops);
/* The port that was given out last. */
uint16_t sim_tcp_last_port(void);
/* As sim_net_next_ns. */
uint64_t sim_tcp_next_ns(void);
/* Is there anything that a worker has only to look at? */
int sim_tcp_has_ready(void);
void sim_tcp_kill(unsigned number);
/* A descriptor of an interface of the worker at work, readable when sim_net_is_woken(iface). */
int sim_tcp_make_event(const void *iface);
/* Would who waits for the descriptor wake? */
int sim_tcp_is_ready(int fd);
/* At the end of a run: all is closed. */
void sim_tcp_reset(void);

/* ---- what the transports share ---- */

typedef struct {
    uct_rkey_t super;
    uint32_t   index; /* of the memory that it names */
} sim_rkey_t;

/* A number in a message or address, with what kind of thing it numbers; at least 8 bytes. */
size_t sim_number_pack(void *buffer, uint32_t number, uint32_t kind);
/* UCS_ERR_INVALID_PARAM: it is no number of this kind below `end`. */
ucs_status_t sim_number_unpack(const void *buffer, size_t length, uint32_t kind, uint32_t end,
                               uint32_t *number_p);
/* A key that is such a number. */
ucs_status_t sim_rkey_unpack(uct_md_t *md, const void *buffer, size_t length, uint32_t kind,
                             uint32_t end, uct_rkey_t **rkey_p);
void sim_rkey_release(uct_rkey_t *rkey);
/* Clears a transport and fills in what all have. */
void sim_tl_init(uct_tl_t *tl, const char *name, uct_tl_kind_t kind, size_t iface_size,
                 size_t ep_size);

/* ---- messages that are sent from where they lie (net_lent.c) ---- */

typedef struct sim_lent sim_lent_t;

/* The sender's bytes go to dest later; *owner is not NULL until then. */
void sim_lent_start(unsigned number, sim_lent_t **owner, void *dest, const uct_iov_t *iov,
                    uct_completion_t *comp);
/* The message is gone: the sender's memory comes back with an error, at time_ns or later. */
void sim_lent_lose(sim_lent_t *lent, uint64_t time_ns);
int sim_lent_is_of(const sim_lent_t *lent, const uct_completion_t *comp); /* lent: NULL is none */
/* What the sender's progress does at that time. */
unsigned sim_lent_progress(unsigned number, uint64_t until_ns);
int sim_lent_is_due(unsigned number);
/* As sim_net_next_ns. */
uint64_t sim_lent_next_ns(void);
void sim_lent_check_end(void);

/* ---- messages that come in parts (net_parts.c) ---- */

typedef struct {
    uint64_t time_ns; /* when the first is there */
    uint64_t gap_ns;  /* until the next one is */
    unsigned count;
    unsigned come;    /* of them will; fewer: its sender has died amid it */
    unsigned taken;
} sim_parts_t;

/* Where the parts of the message at hand go. dest NULL: nowhere. */
typedef struct {
    char    *dest;
    void    *token;
    unsigned id;
} sim_place_t;

/* Of a message that can be seen from time_ns on. length: of the payload that may be taken part by
 * part. */
void sim_parts_draw(sim_parts_t *parts, uint64_t time_ns, size_t length);
uint64_t sim_parts_last_ns(const sim_parts_t *parts);
/* When another one is there; UINT64_MAX: never. */
uint64_t sim_parts_next_ns(const sim_parts_t *parts);
/* Its sender dies: those that are not there yet do not come. */
void sim_parts_cut(sim_parts_t *parts);
/* Those that have not been taken will not be. */
void sim_parts_stop(sim_parts_t *parts);
/* None of them will be there any more that has not been taken. */
int sim_parts_are_over(const sim_parts_t *parts);
/* Some are there of a message of which none has been taken, and not all. */
int sim_parts_begin(const sim_parts_t *parts);
/* Takes what is there of the payload, for the worker `number`; 1: now all has come. */
int sim_parts_take(sim_parts_t *parts, const sim_place_t *place, unsigned number,
                   const char *payload, size_t length);
/* Asks the message's handler for a place. */
void sim_place_open(sim_place_t *place, uct_iface_t *iface, unsigned id, const void *data,
                    size_t header, size_t length);
/* 0: there is none. */
int sim_place_close(sim_place_t *place, uct_iface_t *iface, ucs_status_t status);

/* ---- memory ---- */

/* Gives a transport the operations of a memory domain. */
void sim_memory_prepare(uct_tl_t *tl, int can_alloc, int can_reg, int can_map);
void sim_memory_reset(void);

/* ---- devices (devices.c) ---- */

typedef enum {
    SIM_SHOWN,   /* on a device; other processes can reach it */
    SIM_HIDDEN,  /* on a device; nobody else can */
    SIM_MANAGED, /* the same, of another kind */
    SIM_PINNED   /* the host's, which devices reach */
} sim_device_kind_t;

/* Memory of the user's; *storage_p: where its bytes are for the user, until the end of the run. */
void *sim_device_alloc(sim_device_kind_t kind, int device, size_t length, void **storage_p);
void sim_device_free(void *address);
/* The storage of any address; that itself where it is the host's. */
char *sim_device_storage(const void *address);
/* Makes the two transports: of a process's own memory, and to that of others. */
void sim_devices_prepare(uct_tl_t *own, uct_tl_t *ipc);
/* As sim_net_next_ns. */
uint64_t sim_devices_next_ns(void);
void sim_devices_check_end(void);
void sim_devices_reset(void);

/* ---- the node ---- */

/* Whose interfaces are opened next: ifaces of the worker `number` (never used twice in a run). */
void sim_net_set_owner(unsigned number);
unsigned sim_net_owner(void);
void sim_net_reset(void);
/* The worker is dead from now on: nothing of it runs any more, its peers hear of it. */
void sim_net_kill(unsigned number);
/* Has the worker its interface for messages? */
int sim_net_is_open(unsigned number);
/* Are there parts of a message of its that its peer cannot see yet? */
int sim_net_is_writing(unsigned number);
/* Has it been killed? */
int sim_net_is_dead(unsigned number);
/* After the plan is drawn and before any context: makes the transports. */
void sim_net_prepare(void);
/* Is there something to see for an interface that has been armed? */
int sim_net_is_woken(const void *iface);
/* When something happens next by itself, or UINT64_MAX. */
uint64_t sim_net_next_ns(void);
/* The transports' own books: empty when no interface is open. */
void sim_net_check_end(void);

/* Does the path from one worker to another, or back, bear a wound: a connection that was
 * refused, or given up with what was sent on it? */
int sim_net_is_wounded(unsigned from, unsigned to);

/* May [address, address + length) of worker `number` be read or written by a peer now? Answered by
 * the world: 1 yes; 0: not there any more, rightly so; it reports what is wrong itself. */
int sim_world_may_copy(unsigned number, uint64_t address, size_t length, int is_write);
/* The same of a copy that could begin. */
int sim_world_may_go_on(unsigned number, uint64_t address, size_t length, int is_write);

/* May the worker itself, a device or its network for it, read and write there? As above, but a
 * request does not end before their copy. */
int sim_world_may_touch(unsigned number, const void *address, size_t length);
/* Has the operation that it was for ended? */
int sim_world_is_given_back(unsigned number, const void *address, size_t length);

/* The worker `number` makes progress: where it is inside a blocking call, it is another's turn. */
void sim_world_turn(unsigned number);

/* An allocation of the worker at work was made to fail. */
void sim_world_lacks_memory(void);

END_C_DECLS

#endif
