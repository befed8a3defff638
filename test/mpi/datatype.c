/* Halyard: MPI messages of derived datatypes, small and large, against a list of byte offsets.
 *
 * For each datatype a function names the offset of its k-th int. What is sent, what must arrive and
 * what must stay untouched follow from that list, not from MPI's own packing.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <stddef.h>

#define UNTOUCHED 0xEE

typedef struct {
    const char   *name;
    int          ints; /* data of one item */
    size_t       extent;
    size_t       (*offset)(int k); /* of the k-th int of an item, in bytes */
    MPI_Datatype (*create)(void);
} layout_t;

/* contiguous */
static size_t contiguous_offset(int k)
{
    return k * sizeof(int);
}

static MPI_Datatype contiguous_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_contiguous(12, MPI_INT, &type));
    return type;
}

/* vector: 4 blocks of 3, 7 apart */
static size_t vector_offset(int k)
{
    return ((k / 3) * 7 + k % 3) * sizeof(int);
}

static MPI_Datatype vector_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_vector(4, 3, 7, MPI_INT, &type));
    return type;
}

/* indexed: blocks of 1, 4, 2, 5 with growing gaps, the second block lies before the first */
static const int indexed_lengths[]       = {1, 4, 2, 5};
static const int indexed_displacements[] = {6, 0, 9, 20};

static size_t indexed_offset(int k)
{
    int block = 0;

    while (k >= indexed_lengths[block]) {
        k -= indexed_lengths[block++];
    }
    return (indexed_displacements[block] + k) * sizeof(int);
}

static MPI_Datatype indexed_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_indexed(4, indexed_lengths, indexed_displacements, MPI_INT, &type));
    return type;
}

/* a C struct: holes between the members that are sent */
typedef struct {
    char   not_sent;
    int    head;
    double not_sent_either;
    int    body[5];
    short  gap;
    int    tail[6];
} record_t;

static size_t struct_offset(int k)
{
    return (k == 0) ? offsetof(record_t, head) :
           (k < 6) ? offsetof(record_t, body) + (k - 1) * sizeof(int) :
                     offsetof(record_t, tail) + (k - 6) * sizeof(int);
}

static MPI_Datatype struct_create(void)
{
    const int lengths[]            = {1, 5, 6};
    const MPI_Aint displacements[] = {offsetof(record_t, head), offsetof(record_t, body),
                                      offsetof(record_t, tail)};
    const MPI_Datatype types[]     = {MPI_INT, MPI_INT, MPI_INT};
    MPI_Datatype members, type;

    MPI_OK(MPI_Type_create_struct(3, lengths, displacements, types, &members));
    MPI_OK(MPI_Type_create_resized(members, 0, sizeof(record_t), &type));
    MPI_OK(MPI_Type_free(&members));
    return type;
}

/* subarray: a 2 x 3 x 2 block within 4 x 5 x 6 */
static size_t subarray_offset(int k)
{
    const int x = 1 + k / 6, y = 2 + (k / 2) % 3, z = 3 + k % 2;
    return ((x * 5 + y) * 6 + z) * sizeof(int);
}

static MPI_Datatype subarray_create(void)
{
    const int sizes[] = {4, 5, 6}, parts[] = {2, 3, 2}, starts[] = {1, 2, 3};
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type));
    return type;
}

/* resized: one int in each 20 bytes */
static size_t resized_offset(int k)
{
    (void)k;
    return 0;
}

static MPI_Datatype resized_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_resized(MPI_INT, 0, 20, &type));
    return type;
}

/* a vector of vectors, by byte strides */
static size_t nested_offset(int k)
{
    return (k / 4) * 100 + ((k % 4) / 2) * 24 + (k % 2) * sizeof(int);
}

static MPI_Datatype nested_create(void)
{
    MPI_Datatype inner, type;

    MPI_OK(MPI_Type_create_hvector(2, 2, 24, MPI_INT, &inner));
    MPI_OK(MPI_Type_create_hvector(3, 1, 100, inner, &type));
    MPI_OK(MPI_Type_free(&inner));
    return type;
}

/* blocks of equal length, by items and by bytes; of different lengths by bytes */
static const int block_places[]      = {10, 0, 5, 30};
static const MPI_Aint byte_places[]  = {20, 64, 0, 100};
static const int byte_block_length[] = {4, 1, 5, 2};

static size_t indexed_block_offset(int k)
{
    return (block_places[k / 3] + k % 3) * sizeof(int);
}

static MPI_Datatype indexed_block_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_indexed_block(4, 3, block_places, MPI_INT, &type));
    return type;
}

static size_t hindexed_block_offset(int k)
{
    return byte_places[k / 3] + (k % 3) * sizeof(int);
}

static MPI_Datatype hindexed_block_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_hindexed_block(4, 3, byte_places, MPI_INT, &type));
    return type;
}

static size_t hindexed_offset(int k)
{
    int block = 0;

    while (k >= byte_block_length[block]) {
        k -= byte_block_length[block++];
    }
    return byte_places[block] + k * sizeof(int);
}

static MPI_Datatype hindexed_create(void)
{
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_hindexed(4, byte_block_length, byte_places, MPI_INT, &type));
    return type;
}

/* darray: the part of process 1 of 2 x 2 of a 6 x 8 matrix: rows in blocks, columns two by two */
static size_t darray_offset(int k)
{
    const int row = k / 4, column = 2 + (k % 4 / 2) * 4 + k % 2;
    return (row * 8 + column) * sizeof(int);
}

static MPI_Datatype darray_create(void)
{
    const int sizes[]   = {6, 8};
    const int spreads[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    const int args[]    = {MPI_DISTRIBUTE_DFLT_DARG, 2};
    const int grid[]    = {2, 2};
    MPI_Datatype type;

    MPI_OK(MPI_Type_create_darray(4, 1, 2, sizes, spreads, args, grid, MPI_ORDER_C, MPI_INT,
                                  &type));
    return type;
}

/* a copy of the struct's type, made after the original has been used */
static MPI_Datatype dup_create(void)
{
    MPI_Datatype original = struct_create(), type;

    MPI_OK(MPI_Type_commit(&original));
    MPI_OK(MPI_Type_dup(original, &type));
    MPI_OK(MPI_Type_free(&original));
    return type;
}

static const layout_t layouts[] = {
    {"contiguous", 12, 48, contiguous_offset, contiguous_create},
    {"vector", 12, 96, vector_offset, vector_create},
    {"indexed", 12, 100, indexed_offset, indexed_create},
    {"struct", 12, sizeof(record_t), struct_offset, struct_create},
    {"subarray", 12, 480, subarray_offset, subarray_create},
    {"resized", 1, 20, resized_offset, resized_create},
    {"nested", 12, 232, nested_offset, nested_create},
    {"indexed_block", 12, 132, indexed_block_offset, indexed_block_create},
    {"hindexed_block", 12, 112, hindexed_block_offset, hindexed_block_create},
    {"hindexed", 12, 108, hindexed_offset, hindexed_create},
    {"darray", 12, 192, darray_offset, darray_create},
    {"dup", 12, sizeof(record_t), struct_offset, dup_create},
};

#define NUM_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static size_t offset_of(const layout_t *layout, int k)
{
    return (k / layout->ints) * layout->extent + layout->offset(k % layout->ints);
}

static size_t span_of(const layout_t *layout, int ints)
{
    return (ints / layout->ints) * layout->extent;
}

/* Checks each int of a received buffer, and that nothing between them was written. */
static void check_received(const layout_t *to, const uint8_t *in, const layout_t *from, int ints,
                           uint64_t seed)
{
    const size_t span = span_of(to, ints);
    uint8_t *wanted   = malloc(span);
    int k;
    size_t b, i;

    memset(wanted, UNTOUCHED, span);
    for (k = 0; k < ints; ++k) {
        for (b = 0; b < sizeof(int); ++b) {
            wanted[offset_of(to, k) + b] = check_byte(seed, offset_of(from, k) + b);
        }
    }
    for (i = 0; (i < span) && (in[i] == wanted[i]); ++i) {
    }
    CHECK(i == span, "%s to %s, %d ints: byte %zu of %zu is 0x%02x, expected 0x%02x", from->name,
          to->name, ints, i, span, in[i < span ? i : 0], wanted[i < span ? i : 0]);
    free(wanted);
}

/* Both partners send as `from` and receive as `to`, at the same time or one after the other. */
static void exchange(const layout_t *from, MPI_Datatype from_type, const layout_t *to,
                     MPI_Datatype to_type, int ints, int tag)
{
    uint8_t *out = check_buffer_alloc(span_of(from, ints));
    uint8_t *in  = check_buffer_alloc(span_of(to, ints));
    int elements = -1;
    MPI_Request requests[2];
    MPI_Status status;

    check_fill(out, span_of(from, ints), check_rank * 1000 + tag);
    memset(in, UNTOUCHED, span_of(to, ints));
    MPI_OK(MPI_Irecv(in, ints / to->ints, to_type, check_partner, tag, MPI_COMM_WORLD,
                     &requests[0]));
    MPI_OK(MPI_Isend(out, ints / from->ints, from_type, check_partner, tag, MPI_COMM_WORLD,
                     &requests[1]));
    MPI_OK(MPI_Wait(&requests[0], &status));
    MPI_OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    MPI_OK(MPI_Get_elements(&status, to_type, &elements));
    CHECK(elements == ints, "%s to %s: %d elements of %d", from->name, to->name, elements, ints);
    check_received(to, in, from, ints, check_partner * 1000 + tag);
    check_buffer_free(in);
    check_buffer_free(out);
}

/* Every type to every other; of large messages a fifth of the pairs, each type both ways. */
static void all_pairs(int ints)
{
    const size_t step = (ints > 12 * 40) ? 5 : 1;
    MPI_Datatype types[NUM_LAYOUTS];
    size_t i, j;

    for (i = 0; i < NUM_LAYOUTS; ++i) {
        types[i] = layouts[i].create();
        MPI_OK(MPI_Type_commit(&types[i]));
    }
    for (i = 0; i < NUM_LAYOUTS; ++i) {
        for (j = i % step; j < NUM_LAYOUTS; j += step) {
            exchange(&layouts[i], types[i], &layouts[j], types[j], ints, (int)(i * 20 + j));
        }
    }
    for (i = 0; i < NUM_LAYOUTS; ++i) {
        MPI_OK(MPI_Type_free(&types[i]));
    }
}

static void tiny(void)
{
    all_pairs(12);
}

static void small(void)
{
    all_pairs(12 * 40);
}

static void middle(void)
{
    all_pairs(12 * 1500);
}

static void large(void)
{
    all_pairs(12 * 20000);
}

/* Messages of derived types that wait before they are received, in reverse order. */
static void unexpected(void)
{
    static const int ints[] = {12, 12 * 100, 12 * 9000};
    MPI_Datatype types[NUM_LAYOUTS];
    MPI_Request requests[NUM_LAYOUTS];
    uint8_t *out[NUM_LAYOUTS];
    size_t n, i;

    for (i = 0; i < NUM_LAYOUTS; ++i) {
        types[i] = layouts[i].create();
        MPI_OK(MPI_Type_commit(&types[i]));
    }
    for (n = 0; n < 3; ++n) {
        for (i = 0; i < NUM_LAYOUTS; ++i) {
            out[i] = check_buffer_alloc(span_of(&layouts[i], ints[n]));
            check_fill(out[i], span_of(&layouts[i], ints[n]), check_rank * 50 + i);
            MPI_OK(MPI_Isend(out[i], ints[n] / layouts[i].ints, types[i], check_partner, (int)i,
                             MPI_COMM_WORLD, &requests[i]));
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
        for (i = NUM_LAYOUTS; i-- > 0;) {
            const layout_t *to = &layouts[(i + 1) % NUM_LAYOUTS];
            uint8_t *in        = check_buffer_alloc(span_of(to, ints[n]));
            memset(in, UNTOUCHED, span_of(to, ints[n]));
            MPI_OK(MPI_Recv(in, ints[n] / to->ints, types[(i + 1) % NUM_LAYOUTS], check_partner,
                            (int)i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            check_received(to, in, &layouts[i], ints[n], check_partner * 50 + i);
            check_buffer_free(in);
        }
        MPI_OK(MPI_Waitall(NUM_LAYOUTS, requests, MPI_STATUSES_IGNORE));
        for (i = 0; i < NUM_LAYOUTS; ++i) {
            check_buffer_free(out[i]);
        }
    }
    for (i = 0; i < NUM_LAYOUTS; ++i) {
        MPI_OK(MPI_Type_free(&types[i]));
    }
}

/* To itself, and freed while in use: the type lives until the messages have completed. */
static void self_and_free(void)
{
    const layout_t *layout = &layouts[1];
    const int ints         = 12 * 5000;
    uint8_t *out           = check_buffer_alloc(span_of(layout, ints));
    uint8_t *in            = check_buffer_alloc(span_of(layout, ints));
    MPI_Datatype type      = layout->create();
    MPI_Request requests[2];

    MPI_OK(MPI_Type_commit(&type));
    check_fill(out, span_of(layout, ints), 3);
    memset(in, UNTOUCHED, span_of(layout, ints));
    MPI_OK(MPI_Isend(out, ints / 12, type, 0, 0, MPI_COMM_SELF, &requests[0]));
    MPI_OK(MPI_Irecv(in, ints / 12, type, 0, 0, MPI_COMM_SELF, &requests[1]));
    MPI_OK(MPI_Type_free(&type));
    MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    check_received(layout, in, layout, ints, 3);
    check_buffer_free(in);
    check_buffer_free(out);
}

/* Elements of more than 4 bytes from a contiguous buffer into one with gaps: some libraries cannot
 * unpack half an element, so pieces of messages must not end amid one. */
static void wide_elements(void)
{
    static const int counts[]   = {40, 4000, 40000};
    const MPI_Datatype basics[] = {MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX, MPI_LONG_DOUBLE,
                                   MPI_C_LONG_DOUBLE_COMPLEX};
    MPI_Request request;
    MPI_Datatype type;
    uint8_t *out, *in;
    size_t i, k;
    int size, n;

    for (i = 0; i < sizeof(basics) / sizeof(basics[0]); ++i) {
        MPI_OK(MPI_Type_size(basics[i], &size));
        for (n = 0; n < 3; ++n) {
            out = check_buffer_alloc((size_t)counts[n] * size);
            in  = check_buffer_alloc((size_t)counts[n] * size * 3 / 2);
            memset(out, 0, (size_t)counts[n] * size); /* padding need not be sent */
            memset(in, UNTOUCHED, (size_t)counts[n] * size * 3 / 2);
            for (k = 0; k < (size_t)counts[n]; ++k) { /* what a long double has besides stays 0 */
                check_fill(out + (k * size), 8, k + check_rank);
            }
            MPI_OK(MPI_Type_vector(counts[n] / 4, 4, 6, basics[i], &type));
            MPI_OK(MPI_Type_commit(&type));
            MPI_OK(MPI_Isend(out, counts[n], basics[i], check_partner, n, MPI_COMM_WORLD,
                             &request));
            MPI_OK(MPI_Recv(in, 1, type, check_partner, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            MPI_OK(MPI_Type_free(&type));
            for (k = 0; k < (size_t)counts[n]; ++k) {
                check_fill(out, 8, k + check_partner);
                CHECK(memcmp(in + (((k / 4) * 6 + (k % 4)) * size), out, 8) == 0,
                      "element %zu of %d, of %d bytes each", k, counts[n], size);
            }
            CHECK(in[4 * size] == UNTOUCHED, "a gap was written to");
            check_buffer_free(in);
            check_buffer_free(out);
        }
    }
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"tiny", tiny},
        {"small", small},
        {"middle", middle},
        {"large", large},
        {"unexpected", unexpected},
        {"self_and_free", self_and_free},
        {"wide_elements", wide_elements},
    };

    return check_main(argc, argv, "datatype", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
