/* Halyard: every one-sided call of MPI, on every kind of window, under every way to synchronize.
 *
 * A window holds a slot for each rank, an array that all ranks add to, and counters. What a slot
 * must hold follows from the ranks of its writer and its owner.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define SLOT_BYTES     20000
#define SUM_COUNT      300
#define FETCHES        20
#define NUM_COUNTERS   2
#define VECTOR_BLOCKS  40
#define VECTOR_BLOCK   3
#define VECTOR_STRIDE  8
#define VECTOR_INTS    (VECTOR_BLOCKS * VECTOR_BLOCK)
#define PAGE_BYTES     4096
#define ODD_OFFSET     24

enum {
    KIND_CREATE,
    KIND_CREATE_UNALIGNED, /* MPICH over UCX 1.13 writes beside such a window */
    KIND_ALLOCATE,
    KIND_DYNAMIC,
    KIND_SHARED
};

enum {
    SYNC_FENCE,
    SYNC_PSCW,
    SYNC_LOCK_EXCLUSIVE,
    SYNC_LOCK_SHARED,
    SYNC_LOCK_ALL,
    SYNC_FLUSH_ALL
};

enum {
    COUNTER_FETCH,
    COUNTER_SWAP
};

typedef struct {
    MPI_Win   win;
    MPI_Group group; /* all ranks */
    uint8_t   *memory; /* that this program allocated */
    uint8_t   *base;
    MPI_Aint  *bases; /* displacement of each rank's memory */
    int       kind;
    int       sync;
} window_t;

static size_t slot_at(int rank)
{
    return (size_t)rank * SLOT_BYTES;
}

static size_t sums_at(void)
{
    return slot_at(check_size);
}

static size_t counters_at(void)
{
    return sums_at() + SUM_COUNT * sizeof(int);
}

static size_t window_bytes(void)
{
    return counters_at() + NUM_COUNTERS * sizeof(int64_t);
}

static size_t memory_bytes(void)
{
    return (window_bytes() + ODD_OFFSET + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t seed_of(int writer, int owner)
{
    return writer * 1000 + owner;
}

static void window_open(window_t *w, int kind, int sync)
{
    MPI_Comm node;
    MPI_Aint own = 0;

    memset(w, 0, sizeof(*w));
    w->kind  = kind;
    w->sync  = sync;
    w->bases = calloc(check_size, sizeof(*w->bases));
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &w->group));
    switch (kind) {
    case KIND_CREATE:
    case KIND_CREATE_UNALIGNED:
        w->memory = aligned_alloc(PAGE_BYTES, memory_bytes());
        w->base   = w->memory + ((kind == KIND_CREATE) ? 0 : ODD_OFFSET);
        MPI_OK(MPI_Win_create(w->base, window_bytes(), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->win));
        break;
    case KIND_ALLOCATE:
        MPI_OK(MPI_Win_allocate(window_bytes(), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->base,
                                &w->win));
        break;
    case KIND_DYNAMIC:
        w->memory = aligned_alloc(PAGE_BYTES, memory_bytes());
        w->base   = w->memory;
        MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win));
        MPI_OK(MPI_Win_attach(w->win, w->base, window_bytes()));
        MPI_OK(MPI_Get_address(w->base, &own));
        break;
    case KIND_SHARED:
        MPI_OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, check_rank,
                                   MPI_INFO_NULL, &node));
        MPI_OK(MPI_Win_allocate_shared(window_bytes(), 1, MPI_INFO_NULL, node, &w->base, &w->win));
        MPI_OK(MPI_Comm_free(&node));
        break;
    }
    MPI_OK(MPI_Allgather(&own, 1, MPI_AINT, w->bases, 1, MPI_AINT, MPI_COMM_WORLD));
    MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, w->win));
    memset(w->base, 0, window_bytes());
    MPI_OK(MPI_Win_unlock(check_rank, w->win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void window_close(window_t *w)
{
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (w->kind == KIND_DYNAMIC) {
        MPI_OK(MPI_Win_detach(w->win, w->base));
    }
    MPI_OK(MPI_Win_free(&w->win));
    free(w->memory);
    MPI_OK(MPI_Group_free(&w->group));
    free(w->bases);
}

static MPI_Aint place(const window_t *w, int target, size_t offset)
{
    return w->bases[target] + (MPI_Aint)offset;
}

/* Opens access to all ranks, except with locks of one target. */
static void epoch_begin(window_t *w)
{
    switch (w->sync) {
    case SYNC_FENCE:
        MPI_OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w->win));
        break;
    case SYNC_PSCW:
        MPI_OK(MPI_Win_post(w->group, 0, w->win));
        MPI_OK(MPI_Win_start(w->group, 0, w->win));
        break;
    case SYNC_LOCK_ALL:
    case SYNC_FLUSH_ALL:
        MPI_OK(MPI_Win_lock_all(0, w->win));
        break;
    }
}

static void target_begin(window_t *w, int target)
{
    if ((w->sync == SYNC_LOCK_EXCLUSIVE) || (w->sync == SYNC_LOCK_SHARED)) {
        MPI_OK(MPI_Win_lock((w->sync == SYNC_LOCK_SHARED) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE,
                            target, 0, w->win));
    }
}

/* With SYNC_LOCK_ALL each target is flushed by itself, locally first. */
static void target_end(window_t *w, int target)
{
    switch (w->sync) {
    case SYNC_LOCK_EXCLUSIVE:
    case SYNC_LOCK_SHARED:
        MPI_OK(MPI_Win_unlock(target, w->win));
        break;
    case SYNC_LOCK_ALL:
        MPI_OK(MPI_Win_flush_local(target, w->win));
        MPI_OK(MPI_Win_flush(target, w->win));
        break;
    }
}

/* After it, what all ranks did is visible to loads of the owner. */
static void epoch_end(window_t *w)
{
    switch (w->sync) {
    case SYNC_FENCE:
        MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
        break;
    case SYNC_PSCW:
        MPI_OK(MPI_Win_complete(w->win));
        MPI_OK(MPI_Win_wait(w->win));
        break;
    case SYNC_FLUSH_ALL:
        MPI_OK(MPI_Win_flush_local_all(w->win));
        MPI_OK(MPI_Win_flush_all(w->win));
        MPI_OK(MPI_Win_unlock_all(w->win));
        break;
    case SYNC_LOCK_ALL:
        MPI_OK(MPI_Win_unlock_all(w->win));
        break;
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void own_begin(window_t *w)
{
    MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, w->win));
}

static void own_end(window_t *w)
{
    MPI_OK(MPI_Win_unlock(check_rank, w->win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Each rank puts into its slot at every rank, then gets what it put there. */
static void put_get(window_t *w, size_t length)
{
    uint8_t **out = calloc(check_size, sizeof(*out));
    int rank;

    epoch_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        out[rank] = check_buffer_alloc(length);
        check_fill(out[rank], length, seed_of(check_rank, rank) + length);
        target_begin(w, rank);
        MPI_OK(MPI_Put(out[rank], (int)length, MPI_BYTE, rank,
                       place(w, rank, slot_at(check_rank)), (int)length, MPI_BYTE, w->win));
        target_end(w, rank);
    }
    epoch_end(w);
    own_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        check_filled(w->base + slot_at(rank), length, seed_of(rank, check_rank) + length, "put");
        memset(out[rank], 0, length);
    }
    own_end(w);

    epoch_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        target_begin(w, rank);
        MPI_OK(MPI_Get(out[rank], (int)length, MPI_BYTE, rank,
                       place(w, rank, slot_at(check_rank)), (int)length, MPI_BYTE, w->win));
        target_end(w, rank);
    }
    epoch_end(w);
    for (rank = 0; rank < check_size; ++rank) {
        check_filled(out[rank], length, seed_of(check_rank, rank) + length, "get");
        check_buffer_free(out[rank]);
    }
    free(out);
}

/* All ranks add to the same ints of every rank at the same time. */
static void accumulate(window_t *w)
{
    int *out = check_buffer_alloc(SUM_COUNT * sizeof(int));
    const int *sums;
    int rank, i;

    for (i = 0; i < SUM_COUNT; ++i) {
        out[i] = (check_rank + 1) * (i + 1);
    }
    epoch_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        target_begin(w, rank);
        MPI_OK(MPI_Accumulate(out, SUM_COUNT, MPI_INT, rank, place(w, rank, sums_at()), SUM_COUNT,
                              MPI_INT, MPI_SUM, w->win));
        target_end(w, rank);
    }
    epoch_end(w);
    own_begin(w);
    sums = (const int*)(w->base + sums_at());
    for (i = 0; i < SUM_COUNT; ++i) {
        if (sums[i] != check_size * (check_size + 1) / 2 * (i + 1)) {
            break;
        }
    }
    CHECK(i == SUM_COUNT, "accumulate: int %d is %d", i, sums[i < SUM_COUNT ? i : 0]);
    memset(w->base + sums_at(), 0, SUM_COUNT * sizeof(int));
    own_end(w);
    check_buffer_free(out);
}

/* Each int of the array is fetched and raised by one; of the values fetched from one place by all
 * ranks each occurs once. */
static void get_accumulate(window_t *w)
{
    int *ones    = check_buffer_alloc(SUM_COUNT * sizeof(int));
    int *fetched = check_buffer_alloc(SUM_COUNT * sizeof(int) * check_size);
    int *seen    = calloc((size_t)SUM_COUNT * check_size, sizeof(int));
    int *all     = calloc((size_t)SUM_COUNT * check_size, sizeof(int));
    int rank, i, k;

    for (i = 0; i < SUM_COUNT; ++i) {
        ones[i] = 1;
    }
    memset(fetched, 0xFF, SUM_COUNT * sizeof(int) * check_size);
    epoch_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        target_begin(w, rank);
        MPI_OK(MPI_Get_accumulate(ones, SUM_COUNT, MPI_INT, fetched + rank * SUM_COUNT, SUM_COUNT,
                                  MPI_INT, rank, place(w, rank, sums_at()), SUM_COUNT, MPI_INT,
                                  MPI_SUM, w->win));
        target_end(w, rank);
    }
    epoch_end(w);
    MPI_OK(MPI_Alltoall(fetched, SUM_COUNT, MPI_INT, all, SUM_COUNT, MPI_INT, MPI_COMM_WORLD));
    for (rank = 0; rank < check_size; ++rank) {
        for (i = 0; i < SUM_COUNT; ++i) {
            k = all[rank * SUM_COUNT + i];
            if ((k >= 0) && (k < check_size)) {
                seen[i * check_size + k]++;
            }
        }
    }
    for (i = 0; (i < SUM_COUNT * check_size) && (seen[i] == 1); ++i) {
    }
    CHECK(i == SUM_COUNT * check_size, "get_accumulate: place %d, value %d was fetched %d times",
          i / check_size, i % check_size, seen[i < SUM_COUNT * check_size ? i : 0]);
    own_begin(w);
    memset(w->base + sums_at(), 0, SUM_COUNT * sizeof(int));
    own_end(w);
    free(all);
    free(seen);
    check_buffer_free(fetched);
    check_buffer_free(ones);
}

/* A counter at rank 0 that all ranks raise: every value is given once. */
static void fetch_and_op(window_t *w)
{
    const int64_t one = 1;
    const int total   = FETCHES * check_size;
    int64_t mine[FETCHES], *all = calloc(total, sizeof(*all)), last = -1;
    char *seen                  = calloc(total, 1);
    MPI_Aint counter            = counters_at() + COUNTER_FETCH * sizeof(int64_t);
    int i;

    memset(mine, 0xFF, sizeof(mine));
    epoch_begin(w);
    for (i = 0; i < FETCHES; ++i) {
        target_begin(w, 0);
        MPI_OK(MPI_Fetch_and_op(&one, &mine[i], MPI_INT64_T, 0, place(w, 0, counter), MPI_SUM,
                                w->win));
        target_end(w, 0);
    }
    epoch_end(w);
    MPI_OK(MPI_Allgather(mine, FETCHES, MPI_INT64_T, all, FETCHES, MPI_INT64_T, MPI_COMM_WORLD));
    for (i = 0; i < total; ++i) {
        CHECK((all[i] >= 0) && (all[i] < total) && !seen[all[i]], "rank %d fetched %lld",
              i / FETCHES, (long long)all[i]);
        seen[((all[i] >= 0) && (all[i] < total)) ? all[i] : 0] = 1;
    }
    epoch_begin(w);
    target_begin(w, 0);
    MPI_OK(MPI_Fetch_and_op(NULL, &last, MPI_INT64_T, 0, place(w, 0, counter), MPI_NO_OP, w->win));
    target_end(w, 0);
    epoch_end(w);
    CHECK(last == total, "the counter ended at %lld of %d", (long long)last, total);
    free(seen);
    free(all);
}

/* Everyone wants to replace zero at every rank by its own mark: one wins, all others see a mark. */
static void compare_and_swap(window_t *w)
{
    const int64_t zero = 0, mark = check_rank + 1;
    MPI_Aint counter   = counters_at() + COUNTER_SWAP * sizeof(int64_t);
    int64_t *found     = calloc(check_size, sizeof(*found));
    int *won           = calloc(check_size, sizeof(*won));
    int rank;

    epoch_begin(w);
    for (rank = 0; rank < check_size; ++rank) {
        found[rank] = -1;
        target_begin(w, rank);
        MPI_OK(MPI_Compare_and_swap(&mark, &zero, &found[rank], MPI_INT64_T, rank,
                                    place(w, rank, counter), w->win));
        target_end(w, rank);
    }
    epoch_end(w);
    for (rank = 0; rank < check_size; ++rank) {
        CHECK((found[rank] >= 0) && (found[rank] <= check_size) && (found[rank] != mark),
              "rank %d held %lld", rank, (long long)found[rank]);
        won[rank] = (found[rank] == 0);
    }
    MPI_OK(MPI_Allreduce(MPI_IN_PLACE, won, check_size, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (rank = 0; rank < check_size; ++rank) {
        CHECK(won[rank] == 1, "%d ranks won at rank %d", won[rank], rank);
    }
    free(won);
    free(found);
}

/* A vector goes out of a dense buffer and comes back dense; its gaps stay untouched. */
static void derived(window_t *w)
{
    int *out = check_buffer_alloc(VECTOR_INTS * sizeof(int));
    int *in  = check_buffer_alloc(VECTOR_INTS * sizeof(int));
    int target = (check_rank + 1) % check_size, from = (check_rank + check_size - 1) % check_size;
    MPI_Datatype vector;
    const int *slot;
    int i, bad;

    MPI_OK(MPI_Type_vector(VECTOR_BLOCKS, VECTOR_BLOCK, VECTOR_STRIDE, MPI_INT, &vector));
    MPI_OK(MPI_Type_commit(&vector));
    own_begin(w);
    memset(w->base + slot_at(from), 0, SLOT_BYTES);
    own_end(w);
    for (i = 0; i < VECTOR_INTS; ++i) {
        out[i] = check_rank * 1000 + i;
        in[i]  = -1;
    }
    epoch_begin(w);
    target_begin(w, target);
    MPI_OK(MPI_Put(out, VECTOR_INTS, MPI_INT, target, place(w, target, slot_at(check_rank)), 1,
                   vector, w->win));
    target_end(w, target);
    epoch_end(w);
    epoch_begin(w);
    target_begin(w, target);
    MPI_OK(MPI_Accumulate(out, VECTOR_INTS, MPI_INT, target,
                          place(w, target, slot_at(check_rank)), 1, vector, MPI_SUM, w->win));
    target_end(w, target);
    epoch_end(w);
    epoch_begin(w);
    target_begin(w, target);
    MPI_OK(MPI_Get(in, VECTOR_INTS, MPI_INT, target, place(w, target, slot_at(check_rank)), 1,
                   vector, w->win));
    target_end(w, target);
    epoch_end(w);
    for (i = 0; (i < VECTOR_INTS) && (in[i] == 2 * out[i]); ++i) {
    }
    CHECK(i == VECTOR_INTS, "get of a vector: int %d is %d", i, in[i < VECTOR_INTS ? i : 0]);
    own_begin(w);
    slot = (const int*)(w->base + slot_at(from));
    for (bad = 0, i = 0; i < VECTOR_BLOCKS * VECTOR_STRIDE; ++i) {
        const int k = i % VECTOR_STRIDE;
        bad += (slot[i] != ((k < VECTOR_BLOCK) ?
                            2 * (from * 1000 + i / VECTOR_STRIDE * VECTOR_BLOCK + k) : 0));
    }
    CHECK(bad == 0, "%d ints of a vector are wrong at the target", bad);
    own_end(w);
    MPI_OK(MPI_Type_free(&vector));
    check_buffer_free(in);
    check_buffer_free(out);
}

static void exercise(int kind, int sync)
{
    static const size_t lengths[] = {1, 8, 100, 4096, SLOT_BYTES};
    window_t w;
    size_t i;

    window_open(&w, kind, sync);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        put_get(&w, lengths[i]);
    }
    accumulate(&w);
    get_accumulate(&w);
    fetch_and_op(&w);
    compare_and_swap(&w);
    derived(&w);
    window_close(&w);
}

#define EXERCISES(_name, _kind) \
    static void _name##_fence(void) \
    { \
        exercise(_kind, SYNC_FENCE); \
    } \
    static void _name##_pscw(void) \
    { \
        exercise(_kind, SYNC_PSCW); \
    } \
    static void _name##_lock_exclusive(void) \
    { \
        exercise(_kind, SYNC_LOCK_EXCLUSIVE); \
    } \
    static void _name##_lock_shared(void) \
    { \
        exercise(_kind, SYNC_LOCK_SHARED); \
    } \
    static void _name##_lock_all(void) \
    { \
        exercise(_kind, SYNC_LOCK_ALL); \
    } \
    static void _name##_flush_all(void) \
    { \
        exercise(_kind, SYNC_FLUSH_ALL); \
    }

EXERCISES(create, KIND_CREATE)
EXERCISES(allocate, KIND_ALLOCATE)
EXERCISES(dynamic, KIND_DYNAMIC)
EXERCISES(shared, KIND_SHARED)
EXERCISES(unaligned, KIND_CREATE_UNALIGNED)

#define CASES(_name) \
    {#_name "_fence", _name##_fence}, {#_name "_pscw", _name##_pscw}, \
    {#_name "_lock_exclusive", _name##_lock_exclusive}, \
    {#_name "_lock_shared", _name##_lock_shared}, {#_name "_lock_all", _name##_lock_all}, \
    {#_name "_flush_all", _name##_flush_all}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        CASES(create),
        CASES(allocate),
        CASES(dynamic),
        CASES(shared),
        CASES(unaligned),
    };

    return check_main(argc, argv, "rma", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
