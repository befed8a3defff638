/* Halyard: OpenSHMEM puts and gets of every kind: single values, arrays, strided, nonblocking, by
 * contexts, to the heap and to static memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "../mpi/check.h"

#define COUNT     500
#define LARGE     (1u << 20)
#define CONTEXTS  3
#define MANY      200

static long g_static[COUNT];

static int next_pe(void)
{
    return (check_rank + 1) % check_size;
}

static int previous_pe(void)
{
    return (check_rank + check_size - 1) % check_size;
}

/* Every form of one type: single values, arrays, strides, nonblocking. */
#define TYPE_CASE(_name, _ctype) \
    static void type_##_name(void) \
    { \
        _ctype *heap = shmem_malloc(COUNT * sizeof(_ctype)), out[COUNT], in[COUNT]; \
        int i; \
        for (i = 0; i < COUNT; ++i) { \
            out[i]  = (_ctype)((check_rank * 31 + i) % 100); \
            heap[i] = 0; \
        } \
        shmem_barrier_all(); \
        shmem_##_name##_put(heap, out, COUNT, next_pe()); \
        shmem_barrier_all(); \
        for (i = 0; (i < COUNT) && (heap[i] == (_ctype)((previous_pe() * 31 + i) % 100)); ++i) { \
        } \
        CHECK(i == COUNT, #_name " put: item %d", i); \
        shmem_##_name##_get(in, heap, COUNT, next_pe()); \
        CHECK(memcmp(in, out, sizeof(out)) == 0, #_name " get"); \
        shmem_barrier_all(); \
        shmem_##_name##_p(heap + 7, (_ctype)(check_rank + 3), next_pe()); \
        shmem_barrier_all(); \
        CHECK(heap[7] == (_ctype)(previous_pe() + 3), #_name " p"); \
        CHECK(shmem_##_name##_g(heap + 7, next_pe()) == (_ctype)(check_rank + 3), #_name " g"); \
        shmem_barrier_all(); \
        shmem_##_name##_iput(heap, out, 3, 2, 100, next_pe()); \
        shmem_barrier_all(); \
        for (i = 0; i < 100; ++i) { \
            if (heap[3 * i] != (_ctype)((previous_pe() * 31 + 2 * i) % 100)) { \
                break; \
            } \
        } \
        CHECK(i == 100, #_name " iput: item %d", i); \
        memset(in, 0, sizeof(in)); \
        shmem_##_name##_iget(in, heap, 4, 3, 100, next_pe()); \
        for (i = 0; (i < 100) && (in[4 * i] == out[2 * i]); ++i) { \
        } \
        CHECK(i == 100, #_name " iget: item %d", i); \
        shmem_barrier_all(); \
        shmem_##_name##_put_nbi(heap, out, COUNT, next_pe()); \
        shmem_quiet(); \
        shmem_barrier_all(); \
        memset(in, 0, sizeof(in)); \
        shmem_##_name##_get_nbi(in, heap, COUNT, next_pe()); \
        shmem_quiet(); \
        CHECK(memcmp(in, out, sizeof(out)) == 0, #_name " nbi"); \
        shmem_barrier_all(); \
        shmem_free(heap); \
    }

TYPE_CASE(char, char)
TYPE_CASE(short, short)
TYPE_CASE(int, int)
TYPE_CASE(long, long)
TYPE_CASE(longlong, long long)
TYPE_CASE(float, float)
TYPE_CASE(double, double)
TYPE_CASE(uint8, uint8_t)
TYPE_CASE(uint16, uint16_t)
TYPE_CASE(uint32, uint32_t)
TYPE_CASE(uint64, uint64_t)
TYPE_CASE(size, size_t)

/* Forms by the width of items. */
#define WIDTH_FORMS(_bits) \
    do { \
        const size_t bytes_ = COUNT * (_bits) / 8; \
        check_fill(out, bytes_, check_rank * 100 + (_bits)); \
        shmem_put##_bits(heap, out, COUNT, next_pe()); \
        shmem_barrier_all(); \
        check_filled(heap, bytes_, previous_pe() * 100 + (_bits), "put" #_bits); \
        memset(in, 0, bytes_); \
        shmem_get##_bits(in, heap, COUNT, next_pe()); \
        check_filled(in, bytes_, check_rank * 100 + (_bits), "get" #_bits); \
        shmem_barrier_all(); \
        check_fill(out, bytes_, check_rank * 200 + (_bits)); \
        shmem_put##_bits##_nbi(heap, out, COUNT, next_pe()); \
        shmem_barrier_all(); \
        check_filled(heap, bytes_, previous_pe() * 200 + (_bits), "put_nbi" #_bits); \
        shmem_get##_bits##_nbi(in, heap, COUNT, next_pe()); \
        shmem_quiet(); \
        check_filled(in, bytes_, check_rank * 200 + (_bits), "get_nbi" #_bits); \
        shmem_barrier_all(); \
    } while (0)

static void widths(void)
{
    uint8_t *heap = shmem_malloc(COUNT * 16);
    uint8_t *out = check_buffer_alloc(COUNT * 16), *in = check_buffer_alloc(COUNT * 16);

    WIDTH_FORMS(8);
    WIDTH_FORMS(16);
    WIDTH_FORMS(32);
    WIDTH_FORMS(64);
    WIDTH_FORMS(128);
    check_buffer_free(in);
    check_buffer_free(out);
    shmem_free(heap);
}

/* Sizes around the powers of two, from and to odd addresses. */
static void sizes(void)
{
    uint8_t *heap = shmem_malloc(LARGE + 64);
    size_t power, size, place;
    int k;

    for (power = 2; power <= LARGE; power *= 2) {
        for (k = -1; k <= 1; ++k) {
            uint8_t *out, *in;

            size  = power + k;
            place = size % 13;
            out   = check_buffer_alloc(size);
            in    = check_buffer_alloc(size);
            check_fill(out, size, check_rank + size);
            shmem_putmem(heap + place, out, size, next_pe());
            memset(out, 0xEE, size);
            shmem_barrier_all();
            check_filled(heap + place, size, previous_pe() + size, "putmem");
            shmem_getmem(in, heap + place, size, next_pe());
            check_filled(in, size, check_rank + size, "getmem");
            shmem_barrier_all();
            check_buffer_free(in);
            check_buffer_free(out);
        }
    }
    shmem_free(heap);
}

/* Static memory is as symmetric as the heap. */
static void static_memory(void)
{
    long out[COUNT], in[COUNT];
    int i;

    for (i = 0; i < COUNT; ++i) {
        out[i] = check_rank * 1000 + i;
    }
    shmem_barrier_all();
    shmem_long_put(g_static, out, COUNT, next_pe());
    shmem_barrier_all();
    for (i = 0; (i < COUNT) && (g_static[i] == previous_pe() * 1000 + i); ++i) {
    }
    CHECK(i == COUNT, "item %d is %ld", i, g_static[i % COUNT]);
    shmem_long_get(in, g_static, COUNT, next_pe());
    CHECK(memcmp(in, out, sizeof(out)) == 0, "get");
    CHECK(shmem_addr_accessible(g_static, next_pe()), "accessible");
    shmem_barrier_all();
}

/* Many puts in flight, each to its place, one quiet. */
static void many(void)
{
    uint64_t *heap = shmem_calloc(MANY * check_size, sizeof(*heap)), out[MANY], in[MANY];
    int i, pe;

    shmem_barrier_all();
    for (i = 0; i < MANY; ++i) {
        out[i] = check_rank * 10000 + i;
        for (pe = 0; pe < check_size; ++pe) {
            shmem_uint64_put_nbi(heap + check_rank * MANY + i, &out[i], 1, pe);
        }
    }
    shmem_quiet();
    shmem_barrier_all();
    for (pe = 0; pe < check_size; ++pe) {
        for (i = 0; (i < MANY) && (heap[pe * MANY + i] == (uint64_t)pe * 10000 + i); ++i) {
        }
        CHECK(i == MANY, "from %d: item %d", pe, i);
    }
    for (i = 0; i < MANY; ++i) {
        shmem_uint64_get_nbi(&in[i], heap + check_rank * MANY + i, 1, next_pe());
    }
    shmem_quiet();
    CHECK(memcmp(in, out, sizeof(out)) == 0, "gets in flight");
    shmem_barrier_all();
    shmem_free(heap);
}

/* Contexts complete what was given to them, each for itself. */
static void contexts(void)
{
    const long options[CONTEXTS] = {0, SHMEM_CTX_PRIVATE, SHMEM_CTX_SERIALIZED};
    long *heap                   = shmem_calloc(CONTEXTS * COUNT, sizeof(*heap)), out[COUNT], in;
    shmem_ctx_t contexts[CONTEXTS];
    int i, k, made = 0;

    shmem_barrier_all(); /* the zeroes of shmem_calloc() may come after its own barrier */
    for (k = 0; k < CONTEXTS; ++k) {
        if (shmem_ctx_create(options[k], &contexts[k]) != 0) {
            break;
        }
        made++;
    }
    CHECK(made == CONTEXTS, "%d contexts", made);
    for (k = 0; k < made; ++k) {
        for (i = 0; i < COUNT; ++i) {
            out[i] = check_rank * 5000 + k * 1000 + i;
        }
        shmem_ctx_long_put_nbi(contexts[k], heap + k * COUNT, out, COUNT, next_pe());
        shmem_ctx_fence(contexts[k]);
        shmem_ctx_long_p(contexts[k], heap + k * COUNT, -1 - k, next_pe());
        shmem_ctx_quiet(contexts[k]);
        shmem_ctx_long_get(contexts[k], &in, heap + k * COUNT + 9, 1, next_pe());
        CHECK(in == out[9], "context %d: got %ld", k, in);
    }
    shmem_barrier_all();
    for (k = 0; k < made; ++k) {
        CHECK(heap[k * COUNT] == -1 - k, "context %d: %ld", k, heap[k * COUNT]);
        for (i = 1; i < COUNT; ++i) {
            if (heap[k * COUNT + i] != previous_pe() * 5000 + k * 1000 + i) {
                break;
            }
        }
        CHECK(i == COUNT, "context %d: item %d", k, i);
    }
    for (k = 0; k < made; ++k) {
        shmem_ctx_destroy(contexts[k]);
    }
    shmem_barrier_all();
    shmem_free(heap);
}

/* Where a pointer to another's memory is given, loads and stores reach it. */
static void pointers(void)
{
    long *heap = shmem_malloc(sizeof(long));
    long *theirs;

    *heap = check_rank;
    shmem_barrier_all();
    CHECK(shmem_ptr(heap, check_rank) == heap, "own pointer");
    theirs = shmem_ptr(heap, next_pe());
    if (theirs != NULL) {
        CHECK(*(volatile long*)theirs == next_pe(), "loaded %ld", *theirs);
        shmem_barrier_all();
        *(volatile long*)theirs = 100 + check_rank;
    } else {
        shmem_barrier_all();
        shmem_long_p(heap, 100 + check_rank, next_pe());
    }
    shmem_barrier_all();
    CHECK(*heap == 100 + previous_pe(), "stored %ld", *heap);
    shmem_barrier_all();
    shmem_free(heap);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"char", type_char},
        {"short", type_short},
        {"int", type_int},
        {"long", type_long},
        {"longlong", type_longlong},
        {"float", type_float},
        {"double", type_double},
        {"uint8", type_uint8},
        {"uint16", type_uint16},
        {"uint32", type_uint32},
        {"uint64", type_uint64},
        {"size", type_size},
        {"widths", widths},
        {"sizes", sizes},
        {"static_memory", static_memory},
        {"many", many},
        {"contexts", contexts},
        {"pointers", pointers},
    };

    return check_main(argc, argv, "put_get", SHMEM_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
