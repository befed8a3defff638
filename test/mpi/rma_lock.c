/* Halyard: what MPI's one-sided calls promise beyond arriving: exclusion by locks, order and
 * atomicity of accumulates, every operation on every type, requests, large transfers.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <sched.h>

#define ROUNDS      30
#define WORDS       64
#define LARGE_BYTES (3u << 20)
#define REQUESTS    12
#define REGIONS     5
#define LINE_WORDS  8

static int next_rank(void)
{
    return (check_rank + 1) % check_size;
}

static int previous_rank(void)
{
    return (check_rank + check_size - 1) % check_size;
}

/* A window of zeroed words at every rank, allocated by MPI. The words fill whole lines, because
 * MPICH over UCX 1.13 reaches windows at odd places wrongly; `small` has such. */
static MPI_Win words_open(int64_t **base, size_t words, MPI_Comm comm)
{
    MPI_Win win;
    int rank;


    words = (words + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
    MPI_OK(MPI_Comm_rank(comm, &rank));
    MPI_OK(MPI_Win_allocate(words * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, comm, base,
                            &win));
    MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
    memset(*base, 0, words * sizeof(int64_t));
    MPI_OK(MPI_Win_unlock(rank, win));
    MPI_OK(MPI_Barrier(comm));
    return win;
}

static int64_t word_at(MPI_Win win, int rank, MPI_Aint place)
{
    int64_t value = -1;

    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    MPI_OK(MPI_Get(&value, 1, MPI_INT64_T, rank, place, 1, MPI_INT64_T, win));
    MPI_OK(MPI_Win_unlock(rank, win));
    return value;
}

/* Get, raise, put: with an exclusive lock no step of anybody else's comes between. */
static void exclusive_counter(void)
{
    int64_t *base, value;
    MPI_Win win = words_open(&base, 1, MPI_COMM_WORLD);
    int target, i;

    for (i = 0; i < ROUNDS; ++i) {
        target = i % check_size;
        MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win));
        MPI_OK(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_flush(target, win));
        value++;
        MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_unlock(target, win));
    }
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (target = 0; target < check_size; ++target) {
        const int raised = (ROUNDS - target + check_size - 1) / check_size * check_size;
        value            = word_at(win, target, 0);
        CHECK(value == raised, "the counter of rank %d is %lld of %d", target, (long long)value,
              raised);
    }
    MPI_OK(MPI_Win_free(&win));
}

/* Writers hold exclusive locks and write all words alike; readers with shared locks see no mix. */
static void readers_and_writers(void)
{
    int64_t *base, words[WORDS];
    MPI_Win win = words_open(&base, WORDS, MPI_COMM_WORLD);
    int i, k;

    for (i = 0; i < ROUNDS; ++i) {
        if ((check_rank + i) % 3 == 0) {
            for (k = 0; k < WORDS; ++k) {
                words[k] = check_rank * 1000 + i;
            }
            MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
            for (k = 0; k < WORDS; k += 16) {
                MPI_OK(MPI_Put(words + k, 16, MPI_INT64_T, 0, k, 16, MPI_INT64_T, win));
                MPI_OK(MPI_Win_flush(0, win));
            }
        } else {
            memset(words, 0xFF, sizeof(words));
            MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
            MPI_OK(MPI_Get(words, WORDS, MPI_INT64_T, 0, 0, WORDS, MPI_INT64_T, win));
        }
        MPI_OK(MPI_Win_unlock(0, win));
        for (k = 1; (k < WORDS) && (words[k] == words[0]); ++k) {
        }
        CHECK((k == WORDS) && (words[0] >= 0), "word 0 is %lld, word %d is %lld",
              (long long)words[0], k, (long long)words[k < WORDS ? k : 0]);
    }
    MPI_OK(MPI_Win_free(&win));
}

/* A lock of tickets made of fetch_and_op, around a counter that is not atomic. */
static void ticket_lock(void)
{
    enum { TICKET, SERVING, COUNTER, NUM_PLACES };
    const int64_t one = 1;
    int64_t *base, ticket, serving, value;
    MPI_Win win = words_open(&base, NUM_PLACES, MPI_COMM_WORLD);
    int i;

    MPI_OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (i = 0; i < ROUNDS; ++i) {
        MPI_OK(MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, TICKET, MPI_SUM, win));
        MPI_OK(MPI_Win_flush(0, win));
        for (;;) {
            MPI_OK(MPI_Fetch_and_op(NULL, &serving, MPI_INT64_T, 0, SERVING, MPI_NO_OP, win));
            MPI_OK(MPI_Win_flush(0, win));
            if (serving == ticket) {
                break;
            }
            sched_yield();
        }
        MPI_OK(MPI_Get(&value, 1, MPI_INT64_T, 0, COUNTER, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_flush(0, win));
        value++;
        MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, 0, COUNTER, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_flush(0, win));
        MPI_OK(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, SERVING, 1, MPI_INT64_T, MPI_SUM, win));
        MPI_OK(MPI_Win_flush(0, win));
    }
    MPI_OK(MPI_Win_unlock_all(win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    value = word_at(win, 0, COUNTER);
    CHECK(value == ROUNDS * check_size, "the counter is %lld of %d", (long long)value,
          ROUNDS * check_size);
    MPI_OK(MPI_Win_free(&win));
}

/* Swaps that fail are tried again: nothing is lost. 32 and 64 bits. */
static void swap_counter(void)
{
    int64_t *base, seen, wanted, value;
    int32_t seen32, wanted32, value32;
    MPI_Win win = words_open(&base, 2, MPI_COMM_WORLD);
    int i;

    MPI_OK(MPI_Win_lock_all(0, win));
    for (i = 0, seen = 0; i < ROUNDS; ++i) {
        do {
            wanted = seen;
            value  = wanted + 1;
            MPI_OK(MPI_Compare_and_swap(&value, &wanted, &seen, MPI_INT64_T, 0, 0, win));
            MPI_OK(MPI_Win_flush(0, win));
        } while (seen != wanted);
    }
    for (i = 0, seen32 = 0; i < ROUNDS; ++i) {
        do {
            wanted32 = seen32;
            value32  = wanted32 + 3;
            MPI_OK(MPI_Compare_and_swap(&value32, &wanted32, &seen32, MPI_INT32_T, 0, 1, win));
            MPI_OK(MPI_Win_flush_local(0, win));
        } while (seen32 != wanted32);
    }
    MPI_OK(MPI_Win_unlock_all(win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    value = word_at(win, 0, 0);
    CHECK(value == ROUNDS * check_size, "the counter is %lld", (long long)value);
    value = word_at(win, 0, 1);
    CHECK(value == 3 * ROUNDS * check_size, "the counter of 32 bits is %lld", (long long)value);
    MPI_OK(MPI_Win_free(&win));
}

/* Accumulates from one rank to one place take effect in the order of the calls. */
static void accumulate_order(void)
{
    int64_t *base, values[ROUNDS], fetched[ROUNDS], i;
    MPI_Win win      = words_open(&base, check_size, MPI_COMM_WORLD);
    const int target = next_rank();

    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win));
    for (i = 0; i < ROUNDS; ++i) {
        values[i] = 100 + i;
        if (i % 3 == 0) {
            MPI_OK(MPI_Get_accumulate(&values[i], 1, MPI_INT64_T, &fetched[i], 1, MPI_INT64_T,
                                      target, check_rank, 1, MPI_INT64_T, MPI_REPLACE, win));
        } else if (i % 3 == 1) {
            MPI_OK(MPI_Accumulate(&values[i], 1, MPI_INT64_T, target, check_rank, 1, MPI_INT64_T,
                                  MPI_REPLACE, win));
        } else {
            MPI_OK(MPI_Fetch_and_op(&values[i], &fetched[i], MPI_INT64_T, target, check_rank,
                                    MPI_REPLACE, win));
        }
    }
    MPI_OK(MPI_Win_unlock(target, win));
    for (i = 1; i < ROUNDS; ++i) {
        CHECK((i % 3 == 1) || (fetched[i] == values[i - 1]), "call %lld fetched %lld",
              (long long)i, (long long)fetched[i]);
    }
    i = word_at(win, target, check_rank);
    CHECK(i == values[ROUNDS - 1], "at last there is %lld", (long long)i);
    MPI_OK(MPI_Win_free(&win));
}

/* The old values are fetched, in memory that peers do not map. */
static void replaced(int count)
{
    const size_t length = (size_t)count * sizeof(int64_t);
    const int target    = next_rank();
    int64_t *base = aligned_alloc(64, (length + 63) / 64 * 64), *out = malloc(length);
    int64_t *in   = malloc(length);
    int round, i;
    MPI_Win win;

    memset(base, 0, length);
    MPI_OK(MPI_Win_create(base, length, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (round = 1; round <= 10 * ROUNDS; ++round) {
        for (i = 0; i < count; ++i) {
            out[i] = round;
            in[i]  = -1;
        }
        MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win));
        MPI_OK(MPI_Get_accumulate(out, count, MPI_INT64_T, in, count, MPI_INT64_T, target, 0,
                                  count, MPI_INT64_T, MPI_REPLACE, win));
        MPI_OK(MPI_Win_unlock(target, win));
        for (i = 0; (i < count) && (in[i] == round - 1); ++i) {
        }
        CHECK(i == count, "round %d: word %d of %d was %lld", round, i, count,
              (long long)in[i < count ? i : 0]);
    }
    MPI_OK(MPI_Win_free(&win));
    free(base);
    free(out);
    free(in);
}

static void replaced_values(void)
{
    replaced(1);
    replaced(489);
    replaced(5000);
}

/* What an operation on integers makes of two values; bits only for those that have them. */
static int64_t integer_result(MPI_Op op, int64_t held, int64_t given)
{
    return (op == MPI_SUM)  ? held + given :
           (op == MPI_PROD) ? held * given :
           (op == MPI_MAX)  ? (held > given ? held : given) :
           (op == MPI_MIN)  ? (held < given ? held : given) :
           (op == MPI_LAND) ? (held && given) :
           (op == MPI_LOR)  ? (held || given) :
           (op == MPI_LXOR) ? (!held != !given) :
           (op == MPI_BAND) ? (held & given) :
           (op == MPI_BOR)  ? (held | given) :
           (op == MPI_BXOR) ? (held ^ given) :
           (op == MPI_NO_OP) ? held :
                               given;
}

#define OPERATIONS_OF(_name, _ctype, _mpitype, _ops) \
    static void _name(MPI_Win win, _ctype *own) \
    { \
        size_t k; \
        for (k = 0; k < sizeof(_ops) / sizeof(_ops[0]); ++k) { \
            _ctype held[3] = {12, 5, 0}, given[3] = {10, 3, 1}, seen[3] = {0}; \
            int target = next_rank(), i; \
            MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win)); \
            memcpy(own, held, sizeof(held)); \
            MPI_OK(MPI_Win_unlock(check_rank, win)); \
            MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); \
            MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win)); \
            MPI_OK(MPI_Get_accumulate(given, 2, _mpitype, seen, 2, _mpitype, target, 0, 2, \
                                      _mpitype, _ops[k], win)); \
            MPI_OK(MPI_Fetch_and_op(&given[2], &seen[2], _mpitype, target, \
                                    2 * sizeof(_ctype), _ops[k], win)); \
            MPI_OK(MPI_Win_unlock(target, win)); \
            MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); \
            MPI_OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win)); \
            for (i = 0; i < 3; ++i) { \
                const _ctype right = (_ctype)integer_result(_ops[k], (int64_t)held[i], \
                                                            (int64_t)given[i]); \
                CHECK(seen[i] == held[i], #_mpitype ": operation %zu fetched %g", k, \
                      (double)seen[i]); \
                CHECK(own[i] == right, #_mpitype ": operation %zu of %g and %g gave %g", k, \
                      (double)held[i], (double)given[i], (double)own[i]); \
            } \
            MPI_OK(MPI_Win_unlock(check_rank, win)); \
            MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); \
        } \
    }

static MPI_Op integer_ops[12];
static MPI_Op real_ops[6];

OPERATIONS_OF(operations_int8, int8_t, MPI_INT8_T, integer_ops)
OPERATIONS_OF(operations_uint16, uint16_t, MPI_UINT16_T, integer_ops)
OPERATIONS_OF(operations_int32, int32_t, MPI_INT32_T, integer_ops)
OPERATIONS_OF(operations_uint64, uint64_t, MPI_UINT64_T, integer_ops)
OPERATIONS_OF(operations_float, float, MPI_FLOAT, real_ops)
OPERATIONS_OF(operations_double, double, MPI_DOUBLE, real_ops)

static void operations(void)
{
    MPI_Op integer[] = {MPI_SUM,  MPI_PROD, MPI_MAX, MPI_MIN,  MPI_LAND,  MPI_LOR,
                        MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_NO_OP, MPI_REPLACE};
    MPI_Op real[]    = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_NO_OP, MPI_REPLACE};
    void *base;
    MPI_Win win;

    memcpy(integer_ops, integer, sizeof(integer));
    memcpy(real_ops, real, sizeof(real));
    MPI_OK(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    operations_int8(win, base);
    operations_uint16(win, base);
    operations_int32(win, base);
    operations_uint64(win, base);
    operations_float(win, base);
    operations_double(win, base);
    MPI_OK(MPI_Win_free(&win));
}

/* Operations with a request each, completed in any order. */
static void requests(void)
{
    int64_t *base, out[REQUESTS], in[REQUESTS], sums[REQUESTS], old[REQUESTS];
    MPI_Win win      = words_open(&base, 2 * REQUESTS * check_size, MPI_COMM_WORLD);
    const int target = next_rank(), first = 2 * REQUESTS * check_rank;
    MPI_Request list[2 * REQUESTS];
    int i;

    MPI_OK(MPI_Win_lock_all(0, win));
    for (i = 0; i < REQUESTS; ++i) {
        out[i] = check_rank * 100 + i;
        MPI_OK(MPI_Rput(&out[i], 1, MPI_INT64_T, target, first + i, 1, MPI_INT64_T, win,
                        &list[2 * i]));
        MPI_OK(MPI_Raccumulate(&out[i], 1, MPI_INT64_T, target, first + REQUESTS + i, 1,
                               MPI_INT64_T, MPI_SUM, win, &list[2 * i + 1]));
    }
    MPI_OK(MPI_Waitall(2 * REQUESTS, list, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Win_flush(target, win));
    for (i = 0; i < REQUESTS; ++i) {
        in[i]  = -1;
        old[i] = -1;
        MPI_OK(MPI_Rget(&in[i], 1, MPI_INT64_T, target, first + i, 1, MPI_INT64_T, win,
                        &list[2 * i]));
        MPI_OK(MPI_Rget_accumulate(&out[i], 1, MPI_INT64_T, &old[i], 1, MPI_INT64_T, target,
                                   first + REQUESTS + i, 1, MPI_INT64_T, MPI_SUM, win,
                                   &list[2 * i + 1]));
    }
    MPI_OK(MPI_Waitall(2 * REQUESTS, list, MPI_STATUSES_IGNORE));
    for (i = 0; i < REQUESTS; ++i) {
        CHECK(in[i] == out[i], "rget: word %d is %lld", i, (long long)in[i]);
        CHECK(old[i] == out[i], "rget_accumulate: word %d was %lld", i, (long long)old[i]);
    }
    MPI_OK(MPI_Win_flush_all(win));
    MPI_OK(MPI_Rget(sums, REQUESTS, MPI_INT64_T, target, first + REQUESTS, REQUESTS, MPI_INT64_T,
                    win, &list[0]));
    MPI_OK(MPI_Wait(&list[0], MPI_STATUS_IGNORE));
    for (i = 0; i < REQUESTS; ++i) {
        CHECK(sums[i] == 2 * out[i], "raccumulate: word %d is %lld", i, (long long)sums[i]);
    }
    MPI_OK(MPI_Win_unlock_all(win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_OK(MPI_Win_free(&win));
}

/* Megabytes put, got and added, to memory of MPI and of the program. */
static void large_one(void *base, MPI_Win win)
{
    const int target = next_rank(), ints = LARGE_BYTES / sizeof(int);
    uint8_t *out = check_buffer_alloc(LARGE_BYTES), *in = check_buffer_alloc(LARGE_BYTES);
    int i;

    check_fill(out, LARGE_BYTES, check_rank);
    memset(in, 0, LARGE_BYTES);
    MPI_OK(MPI_Win_fence(0, win));
    MPI_OK(MPI_Put(out, LARGE_BYTES, MPI_BYTE, target, 0, LARGE_BYTES, MPI_BYTE, win));
    MPI_OK(MPI_Win_fence(0, win));
    check_filled(base, LARGE_BYTES, previous_rank(), "large put");
    MPI_OK(MPI_Win_fence(0, win));
    MPI_OK(MPI_Get(in, LARGE_BYTES, MPI_BYTE, target, 0, LARGE_BYTES, MPI_BYTE, win));
    MPI_OK(MPI_Win_fence(0, win));
    check_filled(in, LARGE_BYTES, check_rank, "large get");
    for (i = 0; i < ints; ++i) {
        ((int*)in)[i] = i;
    }
    MPI_OK(MPI_Accumulate(in, ints, MPI_INT, target, 0, ints, MPI_INT, MPI_REPLACE, win));
    MPI_OK(MPI_Accumulate(in, ints, MPI_INT, target, 0, ints, MPI_INT, MPI_SUM, win));
    MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    for (i = 0; (i < ints) && (((int*)base)[i] == 2 * i); ++i) {
    }
    CHECK(i == ints, "large accumulate: int %d is %d", i, ((int*)base)[i < ints ? i : 0]);
    check_buffer_free(in);
    check_buffer_free(out);
}

static void large(void)
{
    void *base;
    MPI_Win win;

    MPI_OK(MPI_Win_allocate(LARGE_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    large_one(base, win);
    MPI_OK(MPI_Win_free(&win));
    base = aligned_alloc(4096, LARGE_BYTES);
    MPI_OK(MPI_Win_create(base, LARGE_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    large_one(base, win);
    MPI_OK(MPI_Win_free(&win));
    free(base);
}

/* Regions come and go while the window stays; those that are left are reached. */
static void attach_detach(void)
{
    const size_t length = 3 * 4096;
    uint8_t *regions[REGIONS], *out = check_buffer_alloc(length);
    MPI_Aint own[REGIONS], others[REGIONS];
    MPI_Win win;
    int round, i;

    MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (i = 0; i < REGIONS; ++i) {
        regions[i] = aligned_alloc(4096, length);
    }
    for (round = 0; round < 4; ++round) {
        for (i = 0; i < REGIONS; ++i) {
            MPI_OK(MPI_Win_attach(win, regions[i], length));
            MPI_OK(MPI_Get_address(regions[i], &own[i]));
        }
        MPI_OK(MPI_Win_detach(win, regions[round]));
        MPI_OK(MPI_Sendrecv(own, REGIONS, MPI_AINT, previous_rank(), round, others, REGIONS,
                            MPI_AINT, next_rank(), round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        for (i = 0; i < REGIONS; ++i) {
            if (i != round) {
                check_fill(out, length, check_rank * 10 + i + round);
                MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win));
                MPI_OK(MPI_Put(out, (int)length, MPI_BYTE, next_rank(), others[i], (int)length,
                               MPI_BYTE, win));
                MPI_OK(MPI_Win_unlock(next_rank(), win));
            }
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        for (i = 0; i < REGIONS; ++i) {
            if (i != round) {
                MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, check_rank, 0, win));
                check_filled(regions[i], length, previous_rank() * 10 + i + round, "region");
                MPI_OK(MPI_Win_unlock(check_rank, win));
                MPI_OK(MPI_Win_detach(win, regions[i]));
            }
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI_OK(MPI_Win_free(&win));
    for (i = 0; i < REGIONS; ++i) {
        free(regions[i]);
    }
    check_buffer_free(out);
}

/* Plain loads of memory that all ranks of a node share, after others stored there. */
static void shared_loads(void)
{
    int64_t *own, *theirs;
    MPI_Aint size;
    MPI_Win win;
    MPI_Comm node;
    int unit, i, rank, ranks;

    MPI_OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI_OK(MPI_Comm_rank(node, &rank));
    MPI_OK(MPI_Comm_size(node, &ranks));
    MPI_OK(MPI_Win_allocate_shared((rank + 1) * 8 * sizeof(int64_t), sizeof(int64_t),
                                   MPI_INFO_NULL, node, &own, &win));
    MPI_OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (i = 0; i < 8 * (rank + 1); ++i) {
        own[i] = rank * 100 + i;
    }
    MPI_OK(MPI_Win_sync(win));
    MPI_OK(MPI_Barrier(node));
    MPI_OK(MPI_Win_sync(win));
    for (rank = 0; rank < ranks; ++rank) {
        MPI_OK(MPI_Win_shared_query(win, rank, &size, &unit, &theirs));
        CHECK(size == (MPI_Aint)((rank + 1) * 8 * sizeof(int64_t)), "rank %d has %ld bytes", rank,
              (long)size);
        for (i = 0; (i < 8 * (rank + 1)) && (theirs[i] == rank * 100 + i); ++i) {
        }
        CHECK(i == 8 * (rank + 1), "word %d of rank %d is wrong", i, rank);
    }
    MPI_OK(MPI_Barrier(node));
    MPI_OK(MPI_Win_unlock_all(win));
    MPI_OK(MPI_Win_free(&win));
    MPI_OK(MPI_Comm_free(&node));
}

/* Several windows at a time, on halves of the ranks too; the attributes say what was asked. */
static void windows(void)
{
    int64_t *first, *second, value = check_rank + 1;
    MPI_Win all, half;
    MPI_Comm comm;
    void *attribute;
    int found, rank, size, round;

    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, check_rank % 2, check_rank, &comm));
    MPI_OK(MPI_Comm_rank(comm, &rank));
    MPI_OK(MPI_Comm_size(comm, &size));
    for (round = 0; round < 5; ++round) {
        all  = words_open(&first, 3, MPI_COMM_WORLD);
        half = words_open(&second, 4, comm);
        MPI_OK(MPI_Win_get_attr(all, MPI_WIN_BASE, &attribute, &found));
        CHECK(found && (attribute == first), "base %p, not %p", attribute, (void*)first);
        MPI_OK(MPI_Win_get_attr(half, MPI_WIN_SIZE, &attribute, &found));
        CHECK(found && (*(MPI_Aint*)attribute == 64), "size");
        MPI_OK(MPI_Win_get_attr(half, MPI_WIN_DISP_UNIT, &attribute, &found));
        CHECK(found && (*(int*)attribute == sizeof(int64_t)), "unit");
        MPI_OK(MPI_Win_fence(0, all));
        MPI_OK(MPI_Win_fence(0, half));
        MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, next_rank(), 2, 1, MPI_INT64_T, all));
        MPI_OK(MPI_Accumulate(&value, 1, MPI_INT64_T, (rank + 1) % size, 3, 1, MPI_INT64_T,
                              MPI_SUM, half));
        MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, half));
        MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, all));
        CHECK(first[2] == previous_rank() + 1, "word is %lld", (long long)first[2]);
        CHECK(second[3] == 2 * ((rank + size - 1) % size) + check_rank % 2 + 1,
              "word in the half is %lld", (long long)second[3]);
        MPI_OK(MPI_Win_free(&all));
        MPI_OK(MPI_Win_free(&half));
    }
    MPI_OK(MPI_Comm_free(&comm));
}

/* Access and exposure among neighbours only, and MPI_Win_test() instead of waiting. */
static void pscw_neighbours(void)
{
    int64_t *base, value;
    MPI_Win win = words_open(&base, 1, MPI_COMM_WORLD);
    MPI_Group world, to, from;
    int target = next_rank(), source = previous_rank(), i, done;

    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI_OK(MPI_Group_incl(world, 1, &target, &to));
    MPI_OK(MPI_Group_incl(world, 1, &source, &from));
    for (i = 0; i < ROUNDS; ++i) {
        value = check_rank * 1000 + i;
        MPI_OK(MPI_Win_post(from, 0, win));
        MPI_OK(MPI_Win_start(to, 0, win));
        MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_complete(win));
        for (done = 0; !done;) {
            MPI_OK(MPI_Win_test(win, &done));
        }
        CHECK(*(volatile int64_t*)base == source * 1000 + i, "round %d: %lld", i,
              (long long)*base);
    }
    MPI_OK(MPI_Group_free(&from));
    MPI_OK(MPI_Group_free(&to));
    MPI_OK(MPI_Group_free(&world));
    MPI_OK(MPI_Win_free(&win));
}

/* Windows of a few bytes, which MPI may put next to each other. */
static void small(void)
{
    int64_t *base, value;
    MPI_Win win;
    int i;

    for (i = 0; i < ROUNDS; ++i) {
        value = check_rank * 1000 + i;
        MPI_OK(MPI_Win_allocate(sizeof(*base), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
        MPI_OK(MPI_Win_fence(0, win));
        MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, next_rank(), 0, 1, MPI_INT64_T, win));
        MPI_OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        CHECK(*base == previous_rank() * 1000 + i, "round %d: %lld", i, (long long)*base);
        MPI_OK(MPI_Win_free(&win));
    }
}

/* A flush does not wait for messages that are received behind it only. */
static void flush_amid_messages(void)
{
    static char data[LARGE_BYTES], got[LARGE_BYTES];
    int64_t *base, value = check_rank + 1, heard = 0;
    MPI_Win win = words_open(&base, 1, MPI_COMM_WORLD);
    MPI_Request sent[2];

    memset(data, check_rank + 1, sizeof(data));
    MPI_OK(MPI_Isend(data, LARGE_BYTES, MPI_CHAR, next_rank(), 1, MPI_COMM_WORLD, &sent[0]));
    MPI_OK(MPI_Issend(&value, 1, MPI_INT64_T, next_rank(), 2, MPI_COMM_WORLD, &sent[1]));
    MPI_OK(MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win));
    MPI_OK(MPI_Put(&value, 1, MPI_INT64_T, next_rank(), 0, 1, MPI_INT64_T, win));
    MPI_OK(MPI_Win_flush(next_rank(), win));
    MPI_OK(MPI_Win_unlock(next_rank(), win));
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(word_at(win, check_rank, 0) == previous_rank() + 1, "the put has not arrived");
    MPI_OK(MPI_Recv(&heard, 1, MPI_INT64_T, previous_rank(), 2, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    CHECK(heard == previous_rank() + 1, "another message came");
    MPI_OK(MPI_Recv(got, LARGE_BYTES, MPI_CHAR, previous_rank(), 1, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    CHECK((got[0] == previous_rank() + 1) && (got[LARGE_BYTES - 1] == previous_rank() + 1),
          "the long message is wrong");
    MPI_OK(MPI_Waitall(2, sent, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"exclusive_counter", exclusive_counter},
        {"readers_and_writers", readers_and_writers},
        {"ticket_lock", ticket_lock},
        {"swap_counter", swap_counter},
        {"accumulate_order", accumulate_order},
        {"replaced_values", replaced_values},
        {"operations", operations},
        {"requests", requests},
        {"large", large},
        {"attach_detach", attach_detach},
        {"shared_loads", shared_loads},
        {"windows", windows},
        {"pscw_neighbours", pscw_neighbours},
        {"small", small},
        {"flush_amid_messages", flush_amid_messages},
    };

    return check_main(argc, argv, "rma_lock", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
