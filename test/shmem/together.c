/* Halyard: what OpenSHMEM's PEs do together: order and completion, waiting for each other's
 * stores, locks, collectives, the symmetric heap.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "../mpi/check.h"

#define ROUNDS    50
#define COUNT     400
#define HEAP_MANY 40

static long g_sync[SHMEM_COLLECT_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE +
                   SHMEM_ALLTOALL_SYNC_SIZE];
static long g_lock;
static int g_work_int[COUNT + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static double g_work_double[COUNT + SHMEM_REDUCE_MIN_WRKDATA_SIZE];

static int next_pe(void)
{
    return (check_rank + 1) % check_size;
}

static int previous_pe(void)
{
    return (check_rank + check_size - 1) % check_size;
}

static void sync_init(void)
{
    size_t i;

    for (i = 0; i < sizeof(g_sync) / sizeof(g_sync[0]); ++i) {
        g_sync[i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
}

/* Data, fence, flag: who sees the flag sees the data. */
static void fence_and_wait(void)
{
    uint64_t *data = shmem_calloc(COUNT, sizeof(*data)), out[COUNT];
    long *flag = shmem_calloc(1, sizeof(*flag)), *taken = shmem_calloc(1, sizeof(*taken));
    int i, k;

    shmem_barrier_all();
    for (i = 1; i <= ROUNDS; ++i) {
        for (k = 0; k < COUNT; ++k) {
            out[k] = (uint64_t)check_rank * 100000 + i * 1000 + k;
        }
        if (i % 2) {
            shmem_uint64_put(data, out, COUNT, next_pe());
        } else {
            shmem_uint64_put_nbi(data, out, COUNT, next_pe());
        }
        shmem_fence();
        shmem_long_p(flag, i, next_pe());
        shmem_long_wait_until(flag, SHMEM_CMP_EQ, i);
        for (k = 0; k < COUNT; ++k) {
            if (((volatile uint64_t*)data)[k] != (uint64_t)previous_pe() * 100000 + i * 1000 + k) {
                break;
            }
        }
        CHECK(k == COUNT, "round %d: word %d", i, k);
        shmem_long_p(taken, i, previous_pe());
        shmem_long_wait_until(taken, SHMEM_CMP_GE, i);
        shmem_quiet();
    }
    shmem_barrier_all();
    shmem_free(taken);
    shmem_free(flag);
    shmem_free(data);
}

/* Waiting for words that atomics change, in every comparison, by waiting and by testing. */
static void wait_and_test(void)
{
    int *word = shmem_malloc(sizeof(*word)), i;
    static const int comparisons[] = {SHMEM_CMP_EQ, SHMEM_CMP_NE, SHMEM_CMP_GT,
                                      SHMEM_CMP_GE, SHMEM_CMP_LT, SHMEM_CMP_LE};
    static const int from[]  = {0, 5, 5, 4, 5, 6};
    static const int until[] = {5, 5, 5, 5, 5, 5};
    static const int to[]    = {5, 6, 6, 5, 4, 5};

    for (i = 0; i < 12; ++i) {
        const int k = i / 2;

        *word = from[k];
        shmem_barrier_all();
        CHECK(!shmem_int_test(word, comparisons[k], until[k]), "comparison %d holds early", k);
        shmem_barrier_all();
        shmem_atomic_add(word, to[k] - from[k], next_pe());
        if (i % 2) {
            shmem_int_wait_until(word, comparisons[k], until[k]);
        } else {
            while (!shmem_int_test(word, comparisons[k], until[k])) {
            }
        }
        CHECK(*(volatile int*)word == to[k], "comparison %d: %d", k, *word);
        shmem_barrier_all();
    }
    shmem_free(word);
}

/* A counter of PE 0 that is read and written under a lock. */
static void set_lock(void)
{
    long *counter = shmem_calloc(1, sizeof(*counter)), value;
    int i;

    shmem_barrier_all();
    for (i = 0; i < ROUNDS; ++i) {
        shmem_set_lock(&g_lock);
        value = shmem_long_g(counter, 0);
        shmem_long_p(counter, value + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&g_lock);
    }
    shmem_barrier_all();
    value = shmem_long_g(counter, 0);
    CHECK(value == ROUNDS * check_size, "the counter is %ld", value);
    shmem_barrier_all();
    shmem_free(counter);
}

/* A lock that is held cannot be had, one that is free can. Nobody tries while others do: Open MPI
 * 4.1.4 does not come to an end then, over any UCX. */
static void test_lock(void)
{
    int pe;

    for (pe = 0; pe < check_size; ++pe) {
        if (pe == check_rank) {
            CHECK(shmem_test_lock(&g_lock) == 0, "the lock is not free");
        }
        shmem_barrier_all();
        if (check_rank == (pe + 1) % check_size && check_size > 1) {
            CHECK(shmem_test_lock(&g_lock) != 0, "the lock was held");
        }
        shmem_barrier_all();
        if (pe == check_rank) {
            shmem_clear_lock(&g_lock);
        }
        shmem_barrier_all();
    }
    CHECK(1, "done");
}

static void barriers(void)
{
    long *seen = shmem_calloc(check_size, sizeof(*seen));
    int i, pe;

    sync_init();
    for (i = 1; i <= ROUNDS; ++i) {
        for (pe = 0; pe < check_size; ++pe) {
            shmem_long_p(seen + check_rank, i, pe);
        }
        if (i % 2) {
            shmem_barrier_all();
        } else {
            shmem_barrier(0, 0, check_size, g_sync);
        }
        for (pe = 0; pe < check_size; ++pe) {
            CHECK(((volatile long*)seen)[pe] >= i, "round %d: PE %d is at %ld", i, pe, seen[pe]);
        }
        shmem_sync_all();
    }
    shmem_barrier_all();
    shmem_free(seen);
}

static void broadcast(void)
{
    uint32_t *out = shmem_malloc(COUNT * 4), *in = shmem_calloc(COUNT, 4);
    uint64_t *out8 = shmem_malloc(COUNT * 8), *in8 = shmem_calloc(COUNT, 8);
    int root, i;

    sync_init();
    for (root = 0; root < check_size; ++root) {
        for (i = 0; i < COUNT; ++i) {
            out[i]  = check_rank * 1000 + i;
            out8[i] = check_rank * 2000 + i;
        }
        shmem_barrier_all();
        shmem_broadcast32(in, out, COUNT, root, 0, 0, check_size, g_sync);
        shmem_barrier_all();
        shmem_broadcast64(in8, out8, COUNT, root, 0, 0, check_size, g_sync);
        for (i = 0; (check_rank != root) && (i < COUNT); ++i) {
            if ((in[i] != (uint32_t)(root * 1000 + i)) || (in8[i] != (uint64_t)root * 2000 + i)) {
                break;
            }
        }
        CHECK((check_rank == root) || (i == COUNT), "from %d: item %d", root, i);
        shmem_barrier_all();
    }
    shmem_free(in8);
    shmem_free(out8);
    shmem_free(in);
    shmem_free(out);
}

static void collect(void)
{
    const int mine = check_rank + 1, total = check_size * (check_size + 1) / 2;
    uint64_t *out = shmem_malloc((check_size + COUNT) * 8);
    uint64_t *in = shmem_calloc(total + COUNT * check_size, 8);
    int pe, i, bad = 0, at = 0;

    sync_init();
    for (i = 0; i < check_size + COUNT; ++i) {
        out[i] = check_rank * 3000 + i;
    }
    shmem_barrier_all();
    shmem_collect64(in, out, mine, 0, 0, check_size, g_sync);
    for (pe = 0; pe < check_size; ++pe) {
        for (i = 0; i <= pe; ++i) {
            bad += (in[at++] != (uint64_t)pe * 3000 + i);
        }
    }
    CHECK(bad == 0, "collect: %d words are wrong", bad);
    shmem_barrier_all();
    shmem_fcollect64(in, out, COUNT, 0, 0, check_size, g_sync);
    for (i = 0; i < COUNT * check_size; ++i) {
        bad += (in[i] != (uint64_t)(i / COUNT) * 3000 + i % COUNT);
    }
    CHECK(bad == 0, "fcollect: %d words are wrong", bad);
    shmem_barrier_all();
    shmem_free(in);
    shmem_free(out);
}

static void all_to_all(void)
{
    uint32_t *out = shmem_malloc(COUNT * check_size * 4), *in;
    int pe, i, bad = 0;

    in = shmem_calloc(COUNT * check_size, 4);
    sync_init();
    for (i = 0; i < COUNT * check_size; ++i) {
        out[i] = check_rank * 100000 + i;
    }
    shmem_barrier_all();
    shmem_alltoall32(in, out, COUNT, 0, 0, check_size, g_sync);
    for (pe = 0; pe < check_size; ++pe) {
        for (i = 0; i < COUNT; ++i) {
            bad += (in[pe * COUNT + i] != (uint32_t)(pe * 100000 + check_rank * COUNT + i));
        }
    }
    CHECK(bad == 0, "%d words are wrong", bad);
    shmem_barrier_all();
    shmem_free(in);
    shmem_free(out);
}

static void reduce(void)
{
    int *out = shmem_malloc(COUNT * sizeof(int)), *in = shmem_calloc(COUNT, sizeof(int)), i;
    double *real_out = shmem_malloc(COUNT * sizeof(double));
    double *real_in  = shmem_calloc(COUNT, sizeof(double));
    int bad          = 0;

    sync_init();
    for (i = 0; i < COUNT; ++i) {
        out[i]      = check_rank + i;
        real_out[i] = 0.5 * check_rank + i;
    }
    shmem_barrier_all();
    shmem_int_sum_to_all(in, out, COUNT, 0, 0, check_size, g_work_int, g_sync);
    for (i = 0; i < COUNT; ++i) {
        bad += (in[i] != check_size * (check_size - 1) / 2 + check_size * i);
    }
    CHECK(bad == 0, "sum: %d are wrong", bad);
    shmem_barrier_all();
    shmem_int_max_to_all(in, out, COUNT, 0, 0, check_size, g_work_int, g_sync);
    for (i = 0; i < COUNT; ++i) {
        bad += (in[i] != check_size - 1 + i);
    }
    CHECK(bad == 0, "max: %d are wrong", bad);
    shmem_barrier_all();
    shmem_int_or_to_all(in, out, COUNT, 0, 0, check_size, g_work_int, g_sync);
    CHECK((in[0] & (check_size - 1)) == check_size - 1 || (check_size & (check_size - 1)),
          "or: %d", in[0]);
    shmem_barrier_all();
    shmem_double_min_to_all(real_in, real_out, COUNT, 0, 0, check_size, g_work_double, g_sync);
    for (i = 0; i < COUNT; ++i) {
        bad += (real_in[i] != i);
    }
    CHECK(bad == 0, "min: %d are wrong", bad);
    shmem_barrier_all();
    shmem_free(real_in);
    shmem_free(real_out);
    shmem_free(in);
    shmem_free(out);
}

/* Allocations of all sizes come and go; each is symmetric, aligned and does not touch another. */
static void heap(void)
{
    uint8_t *blocks[HEAP_MANY] = {NULL}, *aligned;
    size_t sizes[HEAP_MANY];
    uint64_t state = 42;
    int i, k;

    for (k = 0; k < 120; ++k) {
        i = (int)check_random_range(&state, 0, HEAP_MANY - 1);
        if (blocks[i] != NULL) {
            check_filled(blocks[i], sizes[i], previous_pe() * 100 + i, "heap");
            shmem_free(blocks[i]);
            blocks[i] = NULL;
            continue;
        }
        sizes[i]  = check_random_range(&state, 1, 60000);
        blocks[i] = shmem_malloc(sizes[i]);
        CHECK(blocks[i] != NULL, "no memory for %zu", sizes[i]);
        if ((blocks[i] != NULL) && (i % 4 == 0)) {
            sizes[i] += 5000;
            blocks[i] = shmem_realloc(blocks[i], sizes[i]);
        }
        if (blocks[i] != NULL) {
            uint8_t *out = check_buffer_alloc(sizes[i]);
            check_fill(out, sizes[i], check_rank * 100 + i);
            shmem_putmem(blocks[i], out, sizes[i], next_pe());
            check_buffer_free(out);
        }
        shmem_barrier_all();
    }
    for (i = 0; i < HEAP_MANY; ++i) {
        if (blocks[i] != NULL) {
            check_filled(blocks[i], sizes[i], previous_pe() * 100 + i, "heap");
            shmem_free(blocks[i]);
        }
    }
    aligned = shmem_align(4096, 100);
    CHECK((aligned != NULL) && ((uintptr_t)aligned % 4096 == 0), "aligned to %p", (void*)aligned);
    shmem_free(aligned);
}

static void queries(void)
{
    int major = 0, minor = 0;
    char name[SHMEM_MAX_NAME_LEN];

    shmem_info_get_version(&major, &minor);
    shmem_info_get_name(name);
    CHECK(major >= 1, "version %d.%d of %s", major, minor, name);
    CHECK(shmem_pe_accessible(next_pe()), "next PE");
    CHECK(!shmem_pe_accessible(check_size), "no such PE");
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"fence_and_wait", fence_and_wait},
        {"wait_and_test", wait_and_test},
        {"set_lock", set_lock},
        {"test_lock", test_lock},
        {"barriers", barriers},
        {"broadcast", broadcast},
        {"collect", collect},
        {"all_to_all", all_to_all},
        {"reduce", reduce},
        {"heap", heap},
        {"queries", queries},
    };

    return check_main(argc, argv, "together", SHMEM_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
