/* Halyard: random OpenSHMEM programs: puts, gets, stores, atomics, messages with flags, contexts
 * and collectives of some PEs, on static memory and on a heap that changes.
 *
 * All PEs derive the same steps from a seed and go through them in the same order, each doing its
 * part. No byte is part of two steps of a round, so a model tells what each PE's memory holds then.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "../mpi/check.h"

#define SEEDS        12
#define ROUNDS       4
#define STEPS        24 /* of a PE, in a round, at most */
#define STEPS_MAX    512
#define STATIC_BYTES 100000
#define HEAP_MIN     200000
#define HEAP_MAX     2500000
#define REDUCE_MAX   500

enum {
    PUT,
    PUT_NBI,
    OVERWRITE, /* twice, with a fence between */
    GET,
    GET_NBI,
    STORE,
    MESSAGE,   /* a put, a fence, a flag */
    ADD,       /* from here on: by all */
    CSWAP,
    COLLECTIVE /* once a round, the last to be run */
};

typedef struct {
    int      kind, origin, target, region, context;
    size_t   offset, length;
    uint64_t seed;
    uint8_t *buffer;
} step_t;

typedef struct {
    uint8_t *data, *models; /* the models of all PEs, one behind the other */
    size_t   size;
} region_t;

static uint8_t statics[STATIC_BYTES] __attribute__((aligned(16)));
static long flags[STEPS_MAX];
static long sync[SHMEM_REDUCE_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE];
static int64_t reduce_in[REDUCE_MAX], reduce_out[REDUCE_MAX], work[REDUCE_MAX];
static region_t regions[2];
static shmem_ctx_t contexts[2]; /* the default one, and a private one */
static long round_number = 1;

static uint8_t *model_of(int region, int pe)
{
    return regions[region].models + regions[region].size * pe;
}

static void region_begin(int region, uint8_t *data, size_t size, size_t kept, uint64_t seed)
{
    uint8_t *models = malloc(size * check_size);
    int pe;

    for (pe = 0; pe < check_size; ++pe) {
        check_fill(models + size * pe, size, seed + pe);
        if (kept > 0) {
            memcpy(models + size * pe, model_of(region, pe), kept);
        }
    }
    free(regions[region].models);
    regions[region] = (region_t){data, models, size};
    memcpy(data + kept, model_of(region, check_rank) + kept, size - kept);
}

static void heap_change(uint64_t *state)
{
    const size_t size = check_random_range(state, HEAP_MIN, HEAP_MAX);
    uint8_t *data     = regions[1].data;
    size_t kept       = 0;

    if (data == NULL) {
        data = shmem_malloc(size);
    } else if (check_random_range(state, 0, 1)) {
        kept = (size < regions[1].size) ? size : regions[1].size;
        data = shmem_realloc(data, size);
    } else {
        shmem_free(data);
        data = shmem_align(4096, size);
    }
    CHECK(data != NULL, "no memory for %zu bytes", size);
    region_begin(1, data, size, kept, check_random(state));
}

static int is_free(const step_t *steps, const step_t *step)
{
    for (; steps < step; ++steps) {
        if ((steps->target == step->target) && (steps->region == step->region) &&
            (steps->offset < step->offset + step->length) &&
            (step->offset < steps->offset + steps->length)) {
            return 0;
        }
    }
    return 1;
}

/* What the step leaves in the target's memory, in the model. */
static void model_apply(const step_t *step)
{
    uint8_t *at        = model_of(step->region, step->target) + step->offset;
    const uint64_t all = (uint64_t)check_size * (check_size + 1) / 2;
    uint64_t word;

    if ((step->kind == ADD) || (step->kind == CSWAP)) {
        memcpy(&word, at, sizeof(word));
        word += (step->kind == ADD) ? all * step->seed * 2 : (uint64_t)check_size;
        memcpy(at, &word, sizeof(word));
    } else if ((step->kind != GET) && (step->kind != GET_NBI)) {
        check_fill(at, step->length, step->seed);
    }
}

/* Returns 0 if there is no place for it. */
static int plan(const step_t *steps, step_t *step, uint64_t *state)
{
    static const size_t limits[] = {8, 64, 1000, 20000, 90000, 1000000};

    memset(step, 0, sizeof(*step));
    step->kind    = (int)check_random_range(state, 0, CSWAP);
    step->origin  = (int)check_random_range(state, 0, check_size - 1);
    step->target  = (int)check_random_range(state, 0, check_size - 1);
    step->region  = (int)check_random_range(state, 0, 1);
    step->context = (int)check_random_range(state, 0, 1);
    step->length  = check_random_range(state, 1, limits[check_random_range(state, 0, 5)]);
    step->seed    = check_random(state);
    if (step->length + 8 > regions[step->region].size) {
        return 0;
    }
    step->offset = check_random_range(state, 0, regions[step->region].size - step->length - 8);
    if (step->kind >= ADD) {
        step->length  = 8;
        step->offset &= ~(size_t)7;
    }
    return is_free(steps, step);
}

/* ---- steps ---- */

static void get_check(const step_t *step)
{
    const uint8_t *model = model_of(step->region, step->target) + step->offset;
    const int is_get     = (step->kind == GET) || (step->kind == GET_NBI);

    CHECK(!is_get || (memcmp(step->buffer, model, step->length) == 0),
          "%zu bytes of PE %d, kind %d", step->length, step->target, step->kind);
}

static void put(step_t *step, uint8_t *data, uint64_t seed)
{
    shmem_ctx_t context = contexts[step->context];

    check_fill(step->buffer, step->length, seed);
    if (step->kind == PUT_NBI) {
        shmem_ctx_putmem_nbi(context, data, step->buffer, step->length, step->target);
    } else {
        shmem_ctx_putmem(context, data, step->buffer, step->length, step->target);
        memset(step->buffer, 0, step->length);
    }
}

/* The part of the step's origin. */
static void operate(step_t *step)
{
    uint8_t *data       = regions[step->region].data + step->offset;
    shmem_ctx_t context = contexts[step->context];
    uint8_t *direct     = shmem_ptr(data, step->target);

    step->buffer = check_buffer_alloc(step->length);
    switch (step->kind) {
    case OVERWRITE:
    case MESSAGE:
        put(step, data, step->seed + 1);
        shmem_ctx_fence(context);
        put(step, data, step->seed);
        break;
    case GET:
        shmem_ctx_getmem(context, step->buffer, data, step->length, step->target);
        get_check(step);
        break;
    case GET_NBI:
        shmem_ctx_getmem_nbi(context, step->buffer, data, step->length, step->target);
        break;
    case STORE:
        if (direct != NULL) {
            check_fill(direct, step->length, step->seed);
            break;
        } /* fallthrough */
    default:
        put(step, data, step->seed);
    }
}

/* By the default context: without more operations a private one makes no progress. */
static void message(step_t *step, long *flag)
{
    if (check_rank == step->origin) {
        step->context = 0;
        operate(step);
        shmem_fence();
        shmem_long_p(flag, round_number, step->target);
    }
    if (check_rank == step->target) {
        shmem_long_wait_until(flag, SHMEM_CMP_EQ, round_number);
        check_filled(regions[step->region].data + step->offset, step->length, step->seed,
                     "message");
    }
}

static void raise_word(const step_t *step)
{
    uint64_t *word      = (uint64_t*)(regions[step->region].data + step->offset), old, seen;
    const uint64_t part = step->seed * (check_rank + 1);
    shmem_ctx_t context = contexts[step->context];

    if (step->kind == ADD) {
        shmem_ctx_ulong_atomic_add(context, word, part, step->target);
        shmem_ctx_ulong_atomic_fetch_add(context, word, part, step->target);
        return;
    }
    seen = shmem_ctx_ulong_atomic_fetch(context, word, step->target);
    do {
        old  = seen;
        seen = shmem_ctx_ulong_atomic_compare_swap(context, word, old, old + 1, step->target);
    } while (seen != old);
}

/* Of the PEs from `origin` on, or of each second of them: they meet, or add. */
static void collective(const step_t *step)
{
    const int stride  = (int)(step->seed % 2), count = 1 + (int)(step->seed % REDUCE_MAX);
    const int mine    = check_rank - step->origin;
    const int size    = ((check_size - 1 - step->origin) >> stride) + 1;
    const int64_t sum = (int64_t)size * (step->origin + 1) + ((size * (size - 1) / 2) << stride);
    int i, bad        = 0;

    if ((mine < 0) || (mine % (1 << stride) != 0)) {
        return;
    }
    if (step->seed & 4) {
        shmem_sync(step->origin, stride, size, sync);
        return;
    }
    for (i = 0; i < count; ++i) {
        reduce_in[i] = (int64_t)(check_rank + 1) * i;
    }
    shmem_long_sum_to_all(reduce_out, reduce_in, count, step->origin, stride, size, work, sync);
    for (i = 0; i < count; ++i) {
        bad += (reduce_out[i] != sum * i);
    }
    CHECK(bad == 0, "%d of %d sums of %d PEs from %d are wrong", bad, count, size, step->origin);
}

/* ---- a program ---- */

static void run(step_t *step, int index)
{
    if (step->kind == MESSAGE) {
        message(step, &flags[index]);
    } else if (step->kind == COLLECTIVE) {
        collective(step);
    } else if (step->kind >= ADD) {
        raise_word(step);
    } else if (step->origin == check_rank) {
        operate(step);
    }
}

static int round_plan(step_t *steps, uint64_t *state)
{
    int count = 1, i;

    plan(steps, steps, state);
    steps->kind   = COLLECTIVE;
    steps->length = 0;
    for (i = 0; (i < STEPS * check_size) && (count < STEPS_MAX); ++i) {
        if (plan(steps, &steps[count], state)) {
            model_apply(&steps[count++]);
        }
    }
    return count;
}

/* The context of its own is left alone from the first step to the last. */
static void round_run(step_t *steps, int count)
{
    int i;

    for (i = count - 1; i >= 0; --i) {
        run(&steps[i], i);
    }
    shmem_ctx_quiet(contexts[1]);
    shmem_barrier_all();
    for (i = 0; i < count; ++i) {
        if (steps[i].buffer != NULL) {
            get_check(&steps[i]);
            check_buffer_free(steps[i].buffer);
        }
    }
    for (i = 0; i < 2; ++i) {
        CHECK(memcmp(regions[i].data, model_of(i, check_rank), regions[i].size) == 0,
              "round %ld: wrong bytes in %s memory", round_number, i ? "heap" : "static");
    }
    shmem_barrier_all();
}

static void programs(void)
{
    step_t *steps = malloc(STEPS_MAX * sizeof(*steps));
    uint64_t seed, state;
    int i;

    for (i = 0; i < (int)(sizeof(sync) / sizeof(sync[0])); ++i) {
        sync[i] = SHMEM_SYNC_VALUE;
    }
    contexts[0] = SHMEM_CTX_DEFAULT;
    region_begin(0, statics, sizeof(statics), 0, 0);
    for (seed = 1; seed <= SEEDS; ++seed) {
        state = seed;
        CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &contexts[1]) == 0, "no context");
        for (i = 0; i < ROUNDS; ++i, ++round_number) {
            heap_change(&state);
            shmem_barrier_all();
            round_run(steps, round_plan(steps, &state));
        }
        shmem_ctx_destroy(contexts[1]);
    }
    shmem_free(regions[1].data);
    free(steps);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"programs", programs},
    };

    return check_main(argc, argv, "mixed", SHMEM_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
