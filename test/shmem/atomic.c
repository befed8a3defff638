/* Halyard: OpenSHMEM atomic operations of every kind and type: their results, and that none is
 * lost when all PEs work on the same words.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "../mpi/check.h"

#define ROUNDS 100

/* shmem_int_atomic_compare_swap() of Open MPI 4.1.4 overwrites its own stack, over any UCX. */
#define SWAPS(_ctype) (sizeof(_ctype) == 8)

static int next_pe(void)
{
    return (check_rank + 1) % check_size;
}

/* What each operation leaves in a word of the next PE, and what it returns. */
#define ARITHMETIC_CASE(_name, _ctype) \
    static void arithmetic_##_name(void) \
    { \
        _ctype *word = shmem_malloc(sizeof(_ctype)), old; \
        const int to = next_pe(); \
        *word        = 5; \
        shmem_barrier_all(); \
        CHECK(shmem_atomic_fetch(word, to) == 5, "fetch"); \
        old = shmem_atomic_swap(word, (_ctype)9, to); \
        CHECK(old == 5, "swap gave %lld", (long long)old); \
        if (SWAPS(_ctype)) { \
            old = shmem_atomic_compare_swap(word, (_ctype)8, (_ctype)1, to); \
            CHECK(old == 9, "failing compare_swap gave %lld", (long long)old); \
            old = shmem_atomic_compare_swap(word, (_ctype)9, (_ctype)20, to); \
            CHECK(old == 9, "compare_swap gave %lld", (long long)old); \
        } else { \
            shmem_atomic_set(word, (_ctype)20, to); \
        } \
        old = shmem_atomic_fetch_add(word, (_ctype)3, to); \
        CHECK(old == 20, "fetch_add gave %lld", (long long)old); \
        old = shmem_atomic_fetch_inc(word, to); \
        CHECK(old == 23, "fetch_inc gave %lld", (long long)old); \
        shmem_atomic_add(word, (_ctype)6, to); \
        shmem_atomic_inc(word, to); \
        old = shmem_atomic_fetch(word, to); \
        CHECK(old == 31, "add and inc left %lld", (long long)old); \
        shmem_atomic_set(word, (_ctype)77, to); \
        old = shmem_atomic_fetch(word, to); \
        CHECK(old == 77, "set left %lld", (long long)old); \
        shmem_barrier_all(); \
        CHECK(*word == 77, "the owner sees %lld", (long long)*word); \
        shmem_barrier_all(); \
        *word = 0; \
        shmem_barrier_all(); \
        hammer_##_name(word); \
        shmem_free(word); \
    }

/* All PEs raise one word of PE 0 in every way. */
#define HAMMER(_name, _ctype) \
    static void hammer_##_name(_ctype *word) \
    { \
        const int per_round = 7 + SWAPS(_ctype); \
        _ctype seen = 0, wanted; \
        int i; \
        for (i = 0; i < ROUNDS; ++i) { \
            shmem_atomic_inc(word, 0); \
            shmem_atomic_add(word, (_ctype)2, 0); \
            CHECK(shmem_atomic_fetch_add(word, (_ctype)3, 0) >= (_ctype)(6 * i), "goes back"); \
            shmem_atomic_fetch_inc(word, 0); \
            for (wanted = seen + 1; SWAPS(_ctype) && (seen != wanted);) { \
                wanted = seen; \
                seen   = shmem_atomic_compare_swap(word, wanted, (_ctype)(wanted + 1), 0); \
            } \
        } \
        shmem_barrier_all(); \
        seen = shmem_atomic_fetch(word, 0); \
        CHECK(seen == (_ctype)(per_round * ROUNDS * check_size), "the counter is %lld of %d", \
              (long long)seen, per_round * ROUNDS * check_size); \
        shmem_barrier_all(); \
    }

#define BITS_CASE(_name, _ctype) \
    static void fetch_##_name(void) \
    { \
        _ctype *word = shmem_malloc(sizeof(_ctype)), old; \
        const int to = next_pe(); \
        *word        = 0xF0; \
        shmem_barrier_all(); \
        old = shmem_atomic_fetch_and(word, (_ctype)0x3C, to); \
        CHECK(old == 0xF0, "fetch_and gave %llx", (long long)old); \
        old = shmem_atomic_fetch_or(word, (_ctype)0x03, to); \
        CHECK(old == 0x30, "fetch_or gave %llx", (long long)old); \
        old = shmem_atomic_fetch_xor(word, (_ctype)0x11, to); \
        CHECK(old == 0x33, "fetch_xor gave %llx", (long long)old); \
        old = shmem_atomic_fetch(word, to); \
        CHECK(old == 0x22, "fetch_xor left %llx", (long long)old); \
        shmem_barrier_all(); \
        shmem_free(word); \
    } \
    static void post_##_name(void) \
    { \
        _ctype *word = shmem_malloc(sizeof(_ctype)), old; \
        const int to = next_pe(); \
        *word        = 0x22; \
        shmem_barrier_all(); \
        shmem_atomic_or(word, (_ctype)0x40, to); \
        shmem_atomic_xor(word, (_ctype)0x0F, to); \
        shmem_atomic_and(word, (_ctype)0x6F, to); \
        old = shmem_atomic_fetch(word, to); \
        CHECK(old == ((((0x22 | 0x40) ^ 0x0F)) & 0x6F), "left %llx", (long long)old); \
        shmem_barrier_all(); \
        *word = 0; \
        shmem_barrier_all(); \
        shmem_atomic_or(word, (_ctype)1 << (check_rank % 31), 0); \
        shmem_barrier_all(); \
        old = shmem_atomic_fetch(word, 0); \
        CHECK(old == ((_ctype)1 << check_size) - 1, "bits %llx", (long long)old); \
        shmem_barrier_all(); \
        shmem_free(word); \
    }

HAMMER(int, int)
HAMMER(long, long)
HAMMER(longlong, long long)
HAMMER(uint, unsigned)
HAMMER(ulong, unsigned long)
HAMMER(ulonglong, unsigned long long)

ARITHMETIC_CASE(int, int)
ARITHMETIC_CASE(long, long)
ARITHMETIC_CASE(longlong, long long)
ARITHMETIC_CASE(uint, unsigned)
ARITHMETIC_CASE(ulong, unsigned long)
ARITHMETIC_CASE(ulonglong, unsigned long long)

BITS_CASE(uint, unsigned)
BITS_CASE(ulong, unsigned long)
BITS_CASE(int32, int32_t)
BITS_CASE(int64, int64_t)
BITS_CASE(uint32, uint32_t)
BITS_CASE(uint64, uint64_t)

static void floating(void)
{
    double *real = shmem_malloc(sizeof(double)), old;
    float *small = shmem_malloc(sizeof(float)), small_old;

    *real  = 1.5;
    *small = 2.5f;
    shmem_barrier_all();
    old = shmem_atomic_swap(real, 3.25, next_pe());
    CHECK(old == 1.5, "swap gave %g", old);
    small_old = shmem_atomic_fetch(small, next_pe());
    CHECK(small_old == 2.5f, "fetch gave %g", small_old);
    shmem_atomic_set(small, 4.5f, next_pe());
    shmem_barrier_all();
    CHECK((*real == 3.25) && (*small == 4.5f), "%g and %g", *real, *small);
    shmem_barrier_all();
    shmem_free(small);
    shmem_free(real);
}

/* Tickets drawn from one counter, once directly and once by a context: each is given once. */
static void tickets(void)
{
    long *counter    = shmem_calloc(1, sizeof(long));
    char *given      = shmem_calloc(2 * ROUNDS * check_size, 1);
    shmem_ctx_t own  = SHMEM_CTX_DEFAULT;
    const int failed = shmem_ctx_create(0, &own);
    int i, twice     = 0;
    char one         = 1;

    CHECK(!failed, "no context");
    shmem_barrier_all();
    for (i = 0; i < 2 * ROUNDS; ++i) {
        const long ticket = (i % 2) ? shmem_atomic_fetch_inc(counter, 0) :
                                      shmem_ctx_long_atomic_fetch_inc(own, counter, 0);

        twice += (ticket < 0) || (ticket >= 2 * ROUNDS * check_size);
        if (!twice) {
            twice += shmem_char_g(given + ticket, 0);
            shmem_char_put(given + ticket, &one, 1, 0);
        }
    }
    shmem_quiet();
    CHECK(twice == 0, "%d tickets are wrong", twice);
    shmem_barrier_all();
    if (!failed) {
        shmem_ctx_destroy(own);
    }
    CHECK((check_rank != 0) || (*counter == 2 * ROUNDS * check_size), "counter %ld", *counter);
    shmem_barrier_all();
    shmem_free(given);
    shmem_free(counter);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"int", arithmetic_int},
        {"long", arithmetic_long},
        {"longlong", arithmetic_longlong},
        {"uint", arithmetic_uint},
        {"ulong", arithmetic_ulong},
        {"ulonglong", arithmetic_ulonglong},
        {"bits_uint", post_uint},
        {"bits_ulong", post_ulong},
        {"bits_int32", post_int32},
        {"bits_int64", post_int64},
        {"bits_uint32", post_uint32},
        {"bits_uint64", post_uint64},
        {"fetch_bits_uint", fetch_uint},
        {"fetch_bits_ulong", fetch_ulong},
        {"fetch_bits_int32", fetch_int32},
        {"fetch_bits_int64", fetch_int64},
        {"fetch_bits_uint32", fetch_uint32},
        {"fetch_bits_uint64", fetch_uint64},
        {"floating", floating},
        {"tickets", tickets},
    };

    return check_main(argc, argv, "atomic", SHMEM_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
