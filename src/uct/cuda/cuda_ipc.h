/* Halyard: cuda_ipc: copies between this process and device memory of another one on the node.
 *
 * The owner registers memory (exports it: cuda_export.c) and hands out a key; the first copy with
 * the key maps the memory here (imports it: cuda_import.c), and later ones find the mapping in a
 * cache of the memory domain.
 *
 * How its caller uses it:
 *  - reg for any buffer of a message costs 0.2 us once its allocation has been exported.
 *    UCS_ERR_UNSUPPORTED: there is no way to export it (memory of the host, managed memory, more
 *    than 64 pieces, a piece or a pool without descriptor): stage it, without a warning.
 *    UCS_ERR_NO_RESOURCE: the driver refuses it, for want of something: the same, for a while.
 *  - get_zcopy and put_zcopy: local places of any kind, 16 at most; their registration, where there
 *    is one (iov.mem), spares a question to the driver. UCS_ERR_UNREACHABLE:
 *    nothing has happened and this path does not lead there: stage; the next attempt is refused
 *    quickly. UCS_ERR_NO_RESOURCE: the memory is being mapped, or the way there proved; try again.
 *    UCS_INPROGRESS: the completion comes from progress; when it is UCS_OK the bytes are at their
 *    place, so there is no flush.
 *    UCS_ERR_REJECTED: the same, for all memory of this owner and kind: it was tried and lost data.
 *  - The owner must not free memory while copies use its key. Freed and allocated again, it gets
 *    another key, and what was mapped for the old one is closed when the new one is used.
 *  - Endpoints need no connection and notice no death: a copy from memory of a process that died is
 *    not an error by itself. What was mapped of it is closed when something else is mapped.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_CUDA_IPC_H
#define UCT_CUDA_IPC_H

#include <uct/base/descriptor.h>
#include <uct/cuda/cuda_engine.h>

#include <ucs/ds/hash.h>
#include <ucs/sys/fork.h>
#include <pthread.h>

#define UCT_CUDA_IPC_IOV_MAX     16
#define UCT_CUDA_IPC_EXPORTS_MAX 256 /* exports, or descriptors of all, from which none is kept
                                        without user */
#define UCT_CUDA_RESULT_MAX      1024 /* results of the driver are below */

/* The address on the wire: what tells processes of the node apart, a hash of the number and of the
 * namespace that this counts in; in the order of the machine, as it is of use on this one only. Two
 * processes in 2^32 are taken for one, and stage what they could copy. */
typedef uint32_t uct_cuda_ipc_address_t;

typedef enum {
    UCT_CUDA_IPC_NONE,   /* cannot be exported; in a forked child: its parent did by descriptors */
    UCT_CUDA_IPC_LEGACY, /* cuIpcGetMemHandle */
    UCT_CUDA_IPC_PIECE,  /* mapped by the program itself: a descriptor */
    UCT_CUDA_IPC_POOL,   /* of a pool: the pool's descriptor */
    UCT_CUDA_IPC_KIND_LAST
} uct_cuda_ipc_kind_t;

/* Stands in the owner as long as a descriptor is valid. Who takes a copy of the descriptor reads
 * this before and afterwards: if it is the same, the copy is of the right object. */
typedef struct {
    uint64_t instance; /* 0: no longer */
    uint64_t id;
    uint64_t length;   /* of the piece */
    int32_t  fd;
    uint32_t reserved;
} uct_cuda_ipc_proof_t;

/* A remote key on the wire. */
typedef struct {
    uint8_t       version;
    uint8_t       kind;      /* uct_cuda_ipc_kind_t */
    uint16_t      place;     /* of the door: a tag */
    uint32_t      pid;       /* of the owner, */
    uint32_t      pid_ns;
    uint32_t      count;     /* of descriptors: pieces, mapped side by side */
    uint64_t      instance;  /* and the random number of its memory domain */
    uint64_t      address;   /* what is registered, */
    uint64_t      length;
    uint64_t      base;      /* and the allocation around it */
    uint64_t      size;
    uint64_t      id;
    uct_cu_uuid_t uuid;      /* of the device */
    uint64_t      probe;     /* id of memory of the same kind, for a proof; 0: there is none */
    union {
        struct {
            uint8_t  handle[64];   /* of the driver */
            uint8_t  probe[64];
        } legacy;
        struct {
            uint64_t name;         /* of a door of the owner, 0: it has none */
            uint64_t proof;        /* where the proofs stand in the owner */
            uint64_t probe;        /* and the probe's, a PIECE */
            uint64_t pool;         /* POOL: its number in the owner, */
            uint8_t  pointer[64];  /* uct_cu_pool_pointer_t */
            uint8_t  reserved[32];
        } shown;
    } by;
} uct_cuda_ipc_packed_t;

/* An allocation of this process that others may map. */
typedef struct uct_cuda_export {
    ucs_list_link_t       list;    /* in md->exports, the longest unused first; or md->probes */
    struct uct_cuda_export *probe; /* of the same kind and device; NULL: none could be had */
    unsigned              refs;    /* registrations; of a probe, exports */
    uct_cuda_ipc_kind_t   kind;
    uint64_t              again_ns; /* NONE: it is tried again then; UINT64_MAX: never */
    uct_cuda_place_t      place;
    uct_cu_uuid_t         uuid;
    uct_cu_ipc_handle_t   handle;  /* LEGACY */
    uct_cu_pool_pointer_t pointer; /* POOL */
    uint64_t              pool;    /* POOL: the first allocation that was seen of it */
    uct_descriptor_offer_t *offers; /* PIECE, POOL: a descriptor of ours each; also numbered by the
                                       piece: domain is md->instance and that */
    unsigned              count;
    uct_cuda_ipc_proof_t  proofs[]; /* of them */
} uct_cuda_export_t;

typedef struct {
    unsigned max_mappings;
    size_t   max_mapped;
    int      kernels;
} uct_cuda_ipc_config_t;

typedef struct {
    uct_md_t        super;
    pthread_mutex_t lock;          /* of all that follows; not held while the driver maps memory of
                                      others */
    int             is_open;
    ucs_fork_watch_t fork;         /* see cuda_fork.c, as for the next two */
    ucs_list_link_t forking;
    int             is_held;       /* the lock is, by who forks */
    uint64_t        instance;      /* random; another in a forked child */
    uint32_t        pid_ns;
    ucs_hash_t      export_of;     /* id of the allocation -> uct_cuda_export_t */
    ucs_list_link_t exports;
    unsigned        num_exports;
    ucs_list_link_t probes;        /* exports of memory of our own, see cuda_probe.c */
    ucs_hash_t      mapping_of;    /* see uct_cuda_mapping_slot -> uct_cuda_mapping_t */
    ucs_list_link_t mappings;      /* the longest unused first */
    unsigned        num_mappings;
    unsigned        num_opening;   /* of them, by threads that do not hold the lock */
    size_t          mapped;        /* bytes */
    uint64_t        looked_ns;     /* for owners that have gone */
    ucs_list_link_t contexts;      /* uct_cuda_ipc_context_t */
    int             num_devices;   /* of those below; 0: not asked */
    uct_cu_uuid_t   devices[UCT_CUDA_DEVICES_MAX];
    uint8_t         warned[UCT_CUDA_RESULT_MAX]; /* by result: it was told */
    pthread_mutex_t pool_lock;     /* of the list; held while the driver opens a pool */
    ucs_list_link_t pools;         /* of other processes */
} uct_cuda_ipc_md_t;

/* A pool of another process, for one device of this, while something of it is mapped. */
typedef struct {
    ucs_list_link_t list; /* in md->pools */
    uint32_t        pid;  /* of the owner, */
    uint64_t        instance;
    uint64_t        number;
    int             device;
    uct_cu_pool_t   pool;
    unsigned        refs; /* mappings */
} uct_cuda_pool_t;

typedef struct uct_cuda_words uct_cuda_words_t;

/* A context of this process that something is mapped in. */
typedef struct {
    ucs_list_link_t    list; /* in md->contexts */
    uct_cuda_context_t base;
    unsigned           refs; /* mappings */
    int                is_stuck; /* a copy there does not end */
    uct_cuda_words_t  *words;    /* of proofs that are over */
} uct_cuda_ipc_context_t;

typedef struct {
    int      fd;
    uint64_t length;
} uct_cuda_descriptor_t;

typedef struct uct_cuda_trial uct_cuda_trial_t;

/* Memory of another process in one context of this. */
typedef struct {
    ucs_list_link_t       list; /* in md->mappings */
    uct_cuda_ipc_md_t    *md;
    uct_cuda_ipc_packed_t key;
    uct_cuda_ipc_context_t *context;
    uct_cu_ptr_t          ptr;      /* of key.base; 0: it is not mapped */
    uint64_t              place_id; /* what the driver calls that here; 0: not told */
    int                   is_whole; /* the driver knows all of key.size there */
    uct_cuda_pool_t      *pool;     /* POOL; NULL: it is not open */
    uct_cuda_trial_t     *trial;    /* a probe's, under way; NULL: none is */
    unsigned              refs;     /* operations that use it; 1 more while it is being opened */
    int                   is_stale; /* no longer in the table: goes with its last user */
    int                   question; /* connection on which the descriptor is to come; -1: none */
    uint64_t              until_ns; /* it is waited for; refused: it is tried again then */
    ucs_status_t          status;   /* UCS_INPROGRESS: being opened; UCS_ERR_NO_RESOURCE: waits for
                                       a descriptor or a proof; UCS_ERR_NOT_CONNECTED: refused at
                                       the key's door; another error: refused */
    unsigned              count;    /* descriptors that are there */
    uct_cuda_descriptor_t descriptors[];
} uct_cuda_mapping_t;

typedef struct {
    uct_rkey_t            super;
    uct_cuda_ipc_packed_t key;
} uct_cuda_ipc_rkey_t;

UCS_INLINE uct_cuda_ipc_md_t *uct_cuda_ipc_md(uct_md_t *md)
{
    return ucs_container_of(md, uct_cuda_ipc_md_t, super);
}

UCS_INLINE uct_cuda_ipc_rkey_t *uct_cuda_ipc_rkey(uct_rkey_t *rkey)
{
    return ucs_container_of(rkey, uct_cuda_ipc_rkey_t, super);
}

/* The namespace that this process is numbered in; 0 where it cannot be told. */
uint32_t uct_cuda_ipc_pid_namespace(void);

/* From now on forked children keep none of the domain's descriptors. The end of that. */
void uct_cuda_fork_add(uct_cuda_ipc_md_t *md);
void uct_cuda_fork_remove(uct_cuda_ipc_md_t *md);

/* ---- the owner's side: operations of the memory domain ---- */

/* A descriptor of a piece, which is released here; result: what the driver said when it was asked
 * for the piece. -1: that or the export has failed, `what` in the log. Needs no context. */
int uct_cuda_piece_show(const uct_cuda_driver_t *driver, int result, uct_cu_piece_t piece,
                        const char *what);
/* A descriptor of the piece at an address, or -1. Needs no context. */
int uct_cuda_piece_export(const uct_cuda_driver_t *driver, uct_cu_ptr_t base);

/* A descriptor of the pool that the export's memory comes from, and what tells its allocation
 * (export->pointer); -1: it is not for others, or not now (export->again_ns). */
int uct_cuda_pool_export(const uct_cuda_driver_t *driver, uct_cuda_export_t *export);

ucs_status_t uct_cuda_ipc_mem_reg(uct_md_t *md, void *address, size_t length,
                                  const uct_mem_info_t *info, uct_mem_t **mem_p);
void uct_cuda_ipc_mem_release(uct_mem_t *mem);
/* What the registered memory is. */
const uct_cuda_place_t *uct_cuda_ipc_mem_place(const uct_mem_t *mem);
size_t uct_cuda_ipc_rkey_pack(uct_mem_t *mem, void *buffer);
void uct_cuda_exports_cleanup(uct_cuda_ipc_md_t *md);

/* An export for nobody yet; NULL without memory. Its handle; a descriptor more (-1: the export
 * comes to nothing). Its end. */
uct_cuda_export_t *uct_cuda_export_alloc(const uct_cuda_place_t *place);
int uct_cuda_export_fill_legacy(const uct_cuda_driver_t *driver, uct_cuda_export_t *export);
int uct_cuda_export_add(uct_cuda_ipc_md_t *md, uct_cuda_export_t *export, size_t length, int fd);
void uct_cuda_export_close(uct_cuda_export_t *export);
/* The allocation is still what it was. */
int uct_cuda_export_is_there(const uct_cuda_driver_t *driver, const uct_cuda_export_t *export);

/* Memory on which users of the export prove the way to it (cuda_probe.c), made if need be; NULL:
 * there is none. The export counts as its user. The lock is held. */
uct_cuda_export_t *uct_cuda_probe_get(uct_cuda_ipc_md_t *md, const uct_cuda_driver_t *driver,
                                      const uct_cuda_export_t *export);
void uct_cuda_probes_cleanup(uct_cuda_ipc_md_t *md);

/* ---- the user's side ---- */

/* Copies of the owner's descriptors that the mapping's key names. UCS_ERR_NO_RESOURCE: the owner
 * has been asked for one, and answers from its progress; UCS_ERR_TIMED_OUT: not in time, but it may
 * still; UCS_ERR_NOT_CONNECTED: it cannot be had at the key's door. */
ucs_status_t uct_cuda_descriptors_get(uct_cuda_mapping_t *mapping);
void uct_cuda_descriptors_close(uct_cuda_mapping_t *mapping);

/* Maps the memory behind descriptors, pieces (cuda_piece.c) or what the key names of a pool
 * (cuda_pool.c), in the context that is current. Returns what the driver says. */
int uct_cuda_piece_open(const uct_cuda_driver_t *driver, const uct_cuda_mapping_t *mapping,
                        uct_cu_ptr_t *ptr_p);
/* Needs no context. */
int uct_cuda_piece_close(const uct_cuda_driver_t *driver, uct_cu_ptr_t ptr, size_t length);
int uct_cuda_pool_open(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping);
/* The mapping uses the pool of its key if that is open already: its descriptor is not needed. */
void uct_cuda_pool_hold(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping);
/* ptr 0: it went with its context. */
int uct_cuda_pool_close(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                        uct_cuda_pool_t *pool, uct_cu_ptr_t ptr);

/* Is so much mapped there? The owner may have told a size that is not. */
int uct_cuda_is_mapped(const uct_cuda_driver_t *driver, uct_cu_ptr_t ptr, size_t length);

ucs_status_t uct_cuda_ipc_rkey_unpack(uct_md_t *md, const void *buffer, size_t length,
                                      uct_rkey_t **rkey_p);
void uct_cuda_ipc_rkey_release(uct_rkey_t *rkey);
int uct_cuda_ipc_rkey_is_on(uct_rkey_t *rkey, int device);
void uct_cuda_ipc_rkey_forget(uct_rkey_t *rkey);

/* Ordinal of the device that the key's memory is on; -1: this process does not see it. */
int uct_cuda_ipc_rkey_device(const uct_cuda_driver_t *driver, const uct_cuda_ipc_rkey_t *rkey);

/* The mapping of the key's memory in the queue's context, for use until it is put. May take
 * milliseconds the first time. UCS_ERR_NO_RESOURCE: it is being opened. UCS_ERR_UNREACHABLE: it
 * cannot be mapped; UCS_ERR_TIMED_OUT, _NOT_CONNECTED: not for now, not by this key.
 * UCS_ERR_REJECTED: what is written there does not arrive. */
ucs_status_t uct_cuda_mapping_get(const uct_cuda_driver_t *driver, uct_cuda_ipc_md_t *md,
                                  const uct_cuda_ipc_packed_t *key, uct_cuda_queue_t *queue,
                                  uct_cuda_mapping_t **mapping_p);
void uct_cuda_mapping_put(void *mapping);
void uct_cuda_mappings_cleanup(uct_cuda_ipc_md_t *md);

/* The key of the probe that a key names, which itself names none. */
void uct_cuda_probe_key(const uct_cuda_ipc_packed_t *key, uct_cuda_ipc_packed_t *probe);
UCS_INLINE int uct_cuda_key_is_probe(const uct_cuda_ipc_packed_t *key)
{
    return key->length == 0; /* no other's is */
}

/* Proves the way to the probe that is mapped. UCS_ERR_NO_RESOURCE: the copies are under way, ask
 * again; UCS_ERR_TIMED_OUT: they have not ended in time, but may still; UCS_ERR_REJECTED: data is
 * lost; UCS_ERR_UNREACHABLE: copies are refused. */
ucs_status_t uct_cuda_probe_prove(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping);

/* The end of the mapping's trial, if there is one; waits for the rest of its time. Where a device
 * may still write then, all that it uses stays: ptr is 0. */
void uct_cuda_trial_end(const uct_cuda_driver_t *driver, uct_cuda_mapping_t *mapping);

/* The end of what is kept for proofs in a context, as of the context (cuda_context.h). */
void uct_cuda_words_cleanup(const uct_cuda_driver_t *driver, uct_cuda_ipc_context_t *context,
                            int is_alive, int has_gone);

#endif
