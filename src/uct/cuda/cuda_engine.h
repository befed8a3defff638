/* Halyard: cuda: the engine that makes the copies of one interface.
 *
 * A queue a context, with a stream of its own. A copy that finds its queue idle goes to the driver
 * inside the call; those that come while others are under way wait for the next progress, which
 * hands all of them over by one call, since that costs a fraction of single ones. Two batches are
 * with the driver at most, one at work and one behind it: each costs 3 us of the processor besides
 * its copies (two thirds of it to find that it is done), so that four at a time, which are smaller,
 * took a sixth of the rate of short messages (measured on two H200).
 *
 * A batch gets an event only when another follows it; the last one ends when the stream is idle,
 * which saves the recording where it would count. A kernel may make the copies of a batch
 * (cuda_kernel.h), in a stream of its own; the next copy waits for progress, too, then.
 *
 * Pageable memory of the host goes piece by piece through a ring that the device reaches, because
 * the driver would wait for such copies; the pieces are copies like others, so that short ones come
 * in batches too. The ring is our own memory, registered: memory that the driver allocates would
 * vanish with the program's context.
 *
 * Programs destroy their contexts whenever they like: whether that of a queue is still there is
 * asked before it is used (cuda_context.h), and for idle queues when another is made.
 *
 * Belongs to one worker; nothing here locks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CUDA_ENGINE_H
#define UCT_CUDA_ENGINE_H

#include <uct/api/uct_tl.h>
#include <uct/cuda/cuda_context.h>
#include <uct/cuda/cuda_kernel.h>

#include <ucs/ds/mpool.h>

#define UCT_CUDA_BATCHES     2             /* with the driver at a time */
#define UCT_CUDA_BATCH_MAX   32            /* copies of a batch */
#define UCT_CUDA_BATCH_BYTES (32ul << 20)  /* after which a batch is closed */
#define UCT_CUDA_PIECE       (128ul << 10) /* of pageable memory, bytes, */
#define UCT_CUDA_ROWS_MAX    (32ul << 10)  /* bytes of a copy that is short, see cuda_now.c */
#define UCT_CUDA_RING        (512ul << 10) /* and of those on their way */

typedef struct uct_cuda_engine uct_cuda_engine_t;
typedef struct uct_cuda_queue  uct_cuda_queue_t;
typedef struct uct_cuda_copy   uct_cuda_copy_t;

/* One contiguous part of an operation, in terms of the driver. */
typedef struct {
    uct_cuda_queue_t *queue;
    uct_cu_ptr_t      dest, src;
    size_t            length;
    int               is_staged; /* one side is pageable: */
    int               to_host;   /* that of the destination */
    int               by_kernel; /* kernels of the queue's context reach all of both sides */
    int               in_rows;   /* short, from the host, where the device is another process's,
                                    too: see cuda_now.c */
} uct_cuda_part_t;

/* One that is under way. Those of an operation have a leader, the first, which ends with the
 * last. */
struct uct_cuda_copy {
    ucs_list_link_t   elem;
    uct_cuda_part_t   part;     /* of what goes through the ring: what is left of it */
    uct_cuda_copy_t  *leader;
    size_t            ring_end; /* of a piece in the ring; 0: it is none */
    void             *host;     /* of a piece: where it goes from there, or NULL */
    unsigned          left;    /* leader: copies that have not ended */
    ucs_status_t      status;  /* leader: first error */
    uct_completion_t *comp;    /* leader */
    void             *pinned;  /* leader: what the engine's unpin is called with, or NULL */
};

typedef struct {
    ucs_list_link_t  copies;
    uct_cu_event_t   event;     /* NULL: not made yet */
    int              has_event; /* it is recorded */
    uint64_t         kernel;    /* number of the one that makes the copies; 0: copy engines do */
} uct_cuda_batch_t;

/* Pieces take room in the order in which they end. */
typedef struct {
    char  *buffer;      /* NULL: not made yet */
    int    is_registered;
    size_t given, back; /* bytes so far, with those that were left out at the end */
} uct_cuda_ring_t;

/* Of copies that are waited for. */
typedef struct {
    uct_cu_stream_t stream; /* NULL: not made yet */
    char           *buffer; /* for pageable memory, likewise */
    int             is_registered;
    int             is_stuck; /* a copy was given up: no other one until it has ended */
} uct_cuda_now_t;

struct uct_cuda_queue {
    ucs_list_link_t    list; /* in engine->queues */
    uct_cuda_engine_t *engine;
    uct_cuda_context_t context;
    uct_cu_stream_t    stream;
    ucs_list_link_t    waiting; /* copies for the next batch */
    unsigned           num_waiting;
    ucs_list_link_t    staged;  /* copies through the ring, before they are in pieces */
    uct_cuda_batch_t   batches[UCT_CUDA_BATCHES];
    unsigned           first;   /* batch with the driver */
    unsigned           num_batches;
    uct_cuda_ring_t    ring;
    uct_cuda_now_t     now;
    uct_cuda_kernels_t kernels;
    int                gathers; /* a kernel was used last: more copies are likely to come */
    unsigned           num_doubts; /* turns in a row without an answer of the driver */
    int                is_dead; /* the context is gone, or cannot be used, */
    int                is_left; /* and the driver had copies then */
};

struct uct_cuda_engine {
    const uct_cuda_driver_t *driver;     /* NULL until the first queue */
    ucs_list_link_t          queues;
    ucs_mpool_t              copies;
    ucs_list_link_t          done;       /* leaders whose completion has to be called */
    unsigned                 num_active; /* operations that have not ended */
    int                      no_batches; /* the driver has refused one */
    int                      last_error; /* result that was logged last */
    int                      is_stuck;   /* a queue has ended under a copy, maybe */
    void                   (*unpin)(void *pinned);
};

/* A part whose places are of these kinds, one at least a device's. */
void uct_cuda_part_init(uct_cuda_part_t *part, uct_cuda_queue_t *queue, uct_cu_ptr_t dest,
                        uct_cuda_kind_t dest_kind, uct_cu_ptr_t src, uct_cuda_kind_t src_kind,
                        size_t length);

/* unpin may be NULL. */
ucs_status_t uct_cuda_engine_init(uct_cuda_engine_t *engine, void (*unpin)(void *pinned));

/* The queue of a context. Errors: the context is gone, or the driver refuses. */
ucs_status_t uct_cuda_engine_queue(uct_cuda_engine_t *engine, const uct_cuda_driver_t *driver,
                                   uct_cu_ctx_t ctx, uct_cuda_queue_t **queue_p);

/* An error is shown once until another one comes: a broken context fails everything. */
ucs_status_t uct_cuda_engine_failed(uct_cuda_engine_t *engine, const char *call, int result);

/* Makes a copy and waits for it; see uct_cuda_engine_post. */
ucs_status_t uct_cuda_copy_now(uct_cuda_engine_t *engine, const uct_cuda_part_t *part);

/* Has a copy that was given up still not ended? In the context that is current. */
int uct_cuda_now_is_stuck(const uct_cuda_driver_t *driver, uct_cuda_now_t *now);

/* Starts an operation of n >= 1 parts: UCS_INPROGRESS; comp is called from progress, with an error
 * where the driver refuses a part; or UCS_ERR_NO_RESOURCE: nothing happened. comp NULL: UCS_OK
 * once all is copied, or an error; UCS_ERR_TIMED_OUT: it does not end, so the device may still read
 * and write the places, but for pageable ones; until it has ended others fail at once. pinned (may
 * be NULL) is released when the operation has ended, and also with every result but
 * UCS_INPROGRESS. */
ucs_status_t uct_cuda_engine_post(uct_cuda_engine_t *engine, const uct_cuda_part_t *parts,
                                  unsigned n, uct_completion_t *comp, void *pinned);

/* ---- an interface with an engine; operations as in uct_tl.h ---- */

typedef struct {
    uct_iface_t       super;
    uct_cuda_engine_t engine;
} uct_cuda_iface_t;

UCS_INLINE uct_cuda_engine_t *uct_cuda_iface_engine(uct_iface_t *iface)
{
    return &ucs_container_of(iface, uct_cuda_iface_t, super)->engine;
}

ucs_status_t uct_cuda_md_open(uct_md_t *md);
void uct_cuda_iface_close(uct_iface_t *iface);
unsigned uct_cuda_iface_progress(uct_iface_t *iface);
ucs_status_t uct_cuda_iface_event_arm(uct_iface_t *iface);
void uct_cuda_iface_memory_used(uct_iface_t *iface, size_t *shared_p, size_t *private_p);

#endif
