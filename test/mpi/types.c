/* Halyard: MPI messages of every basic type, of absolute addresses, of packed data, and what MPI
 * says about types.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <stddef.h>

#define ITEMS 1000

typedef struct {
    const char   *name;
    MPI_Datatype type;
    size_t       bytes;
} basic_t;

/* Sends and receives at the same time with the partner. */
static void swap(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count,
                 MPI_Datatype in_type, int tag, MPI_Status *status)
{
    MPI_OK(MPI_Sendrecv(out, out_count, out_type, check_partner, tag, in, in_count, in_type,
                        check_partner, tag, MPI_COMM_WORLD, status));
}

static void basic_types(void)
{
    const basic_t types[] = {
        {"char", MPI_CHAR, sizeof(char)},
        {"signed char", MPI_SIGNED_CHAR, sizeof(char)},
        {"unsigned char", MPI_UNSIGNED_CHAR, sizeof(char)},
        {"byte", MPI_BYTE, 1},
        {"wchar", MPI_WCHAR, sizeof(wchar_t)},
        {"short", MPI_SHORT, sizeof(short)},
        {"unsigned short", MPI_UNSIGNED_SHORT, sizeof(short)},
        {"int", MPI_INT, sizeof(int)},
        {"unsigned", MPI_UNSIGNED, sizeof(int)},
        {"long", MPI_LONG, sizeof(long)},
        {"unsigned long", MPI_UNSIGNED_LONG, sizeof(long)},
        {"long long", MPI_LONG_LONG, sizeof(long long)},
        {"unsigned long long", MPI_UNSIGNED_LONG_LONG, sizeof(long long)},
        {"float", MPI_FLOAT, sizeof(float)},
        {"double", MPI_DOUBLE, sizeof(double)},
        {"long double", MPI_LONG_DOUBLE, sizeof(long double)},
        {"bool", MPI_C_BOOL, 1},
        {"int8", MPI_INT8_T, 1},
        {"int16", MPI_INT16_T, 2},
        {"int32", MPI_INT32_T, 4},
        {"int64", MPI_INT64_T, 8},
        {"uint8", MPI_UINT8_T, 1},
        {"uint16", MPI_UINT16_T, 2},
        {"uint32", MPI_UINT32_T, 4},
        {"uint64", MPI_UINT64_T, 8},
        {"float complex", MPI_C_FLOAT_COMPLEX, 2 * sizeof(float)},
        {"double complex", MPI_C_DOUBLE_COMPLEX, 2 * sizeof(double)},
        {"long double complex", MPI_C_LONG_DOUBLE_COMPLEX, 2 * sizeof(long double)},
        {"address", MPI_AINT, sizeof(MPI_Aint)},
        {"offset", MPI_OFFSET, sizeof(MPI_Offset)},
        {"count", MPI_COUNT, sizeof(MPI_Count)},
        {"packed", MPI_PACKED, 1},
        {"two ints", MPI_2INT, 2 * sizeof(int)},
    };
    size_t i;
    int size, count;
    MPI_Status status;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        const size_t length = types[i].bytes * ITEMS;
        uint8_t *out = check_buffer_alloc(length), *in = check_buffer_alloc(length);

        MPI_OK(MPI_Type_size(types[i].type, &size));
        CHECK((size_t)size == types[i].bytes, "%s has %d bytes", types[i].name, size);
        check_fill(out, length, check_rank * 100 + i);
        memset(in, 0, length);
        swap(out, ITEMS, types[i].type, in, ITEMS, types[i].type, (int)i, &status);
        MPI_OK(MPI_Get_count(&status, types[i].type, &count));
        CHECK(count == ITEMS, "%s: %d items", types[i].name, count);
        check_filled(in, length, check_partner * 100 + i, types[i].name);
        check_buffer_free(in);
        check_buffer_free(out);
    }
}

/* Pairs of a value and an index have holes, which need not arrive. */
#define PAIR_TYPE(_ctype, _mpitype) \
    do { \
        struct { \
            _ctype value; \
            int    index; \
        } out_[ITEMS], in_[ITEMS]; \
        int i_; \
        memset(in_, 0, sizeof(in_)); \
        for (i_ = 0; i_ < ITEMS; ++i_) { \
            out_[i_].value = (_ctype)(check_rank + i_ % 100); \
            out_[i_].index = i_ * 3; \
        } \
        swap(out_, ITEMS, _mpitype, in_, ITEMS, _mpitype, 1, MPI_STATUS_IGNORE); \
        for (i_ = 0; i_ < ITEMS; ++i_) { \
            if ((in_[i_].value != (_ctype)(check_partner + i_ % 100)) || \
                (in_[i_].index != i_ * 3)) { \
                break; \
            } \
        } \
        CHECK(i_ == ITEMS, #_mpitype ": item %d", i_); \
    } while (0)

static void pairs(void)
{
    PAIR_TYPE(short, MPI_SHORT_INT);
    PAIR_TYPE(long, MPI_LONG_INT);
    PAIR_TYPE(float, MPI_FLOAT_INT);
    PAIR_TYPE(double, MPI_DOUBLE_INT);
    PAIR_TYPE(long double, MPI_LONG_DOUBLE_INT);
}

/* Variables on the stack, in the heap and in static memory. */
typedef struct {
    int    *near;
    double *far;
    char   *still;
} places_t;

static MPI_Datatype places_type(const places_t *places)
{
    const int lengths[]        = {20, 500, 300};
    const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR};
    MPI_Aint addresses[3];
    MPI_Datatype type;

    MPI_OK(MPI_Get_address(places->near, &addresses[0]));
    MPI_OK(MPI_Get_address(places->far, &addresses[1]));
    MPI_OK(MPI_Get_address(places->still, &addresses[2]));
    MPI_OK(MPI_Type_create_struct(3, lengths, addresses, types, &type));
    MPI_OK(MPI_Type_commit(&type));
    return type;
}

/* They are sent from and received to MPI_BOTTOM. */
static void absolute_addresses(void)
{
    static char stills[2][300];
    double *fars      = calloc(1000, sizeof(double));
    int nears[2][20]  = {{0}}, i, bad = 0;
    places_t out      = {nears[0], fars, stills[0]}, in = {nears[1], fars + 500, stills[1]};
    MPI_Datatype sent = places_type(&out), received = places_type(&in);
    MPI_Request requests[2];

    for (i = 0; i < 500; ++i) {
        out.near[i % 20]   = check_rank * 100 + i % 20;
        out.far[i]         = check_rank + i * 0.5;
        out.still[i % 300] = (char)(check_rank + i % 300);
    }
    MPI_OK(MPI_Isend(MPI_BOTTOM, 1, sent, check_partner, 0, MPI_COMM_WORLD, &requests[0]));
    MPI_OK(MPI_Irecv(MPI_BOTTOM, 1, received, check_partner, 0, MPI_COMM_WORLD, &requests[1]));
    MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (i = 0; i < 500; ++i) {
        bad += (in.near[i % 20] != check_partner * 100 + i % 20);
        bad += (in.far[i] != check_partner + i * 0.5);
        bad += (in.still[i % 300] != (char)(check_partner + i % 300));
    }
    CHECK(bad == 0, "%d values are wrong", bad);
    MPI_OK(MPI_Type_free(&sent));
    MPI_OK(MPI_Type_free(&received));
    free(fars);
}

/* Packed piece by piece, sent as packed, received as the type and the other way round. */
static void packed(void)
{
    int ints[60], in[60], i, position = 0, bytes, k;
    MPI_Datatype vector;
    MPI_Status status;
    uint8_t *buffer;

    MPI_OK(MPI_Type_vector(10, 3, 6, MPI_INT, &vector));
    MPI_OK(MPI_Type_commit(&vector));
    MPI_OK(MPI_Pack_size(1, vector, MPI_COMM_WORLD, &bytes));
    buffer = check_buffer_alloc(2 * bytes);
    for (i = 0; i < 60; ++i) {
        ints[i] = check_rank * 1000 + i;
    }
    MPI_OK(MPI_Pack(ints, 1, vector, buffer, 2 * bytes, &position, MPI_COMM_WORLD));
    memset(in, 0xFF, sizeof(in));
    swap(buffer, position, MPI_PACKED, in, 1, vector, 1, &status);
    for (i = 0; i < 60; ++i) {
        CHECK(in[i] == ((i % 6 < 3) && (i < 57) ? check_partner * 1000 + i : -1),
              "unpacked by the receive: int %d is %d", i, in[i]);
    }
    swap(ints, 1, vector, buffer, 2 * bytes, MPI_PACKED, 2, &status);
    MPI_OK(MPI_Get_count(&status, MPI_PACKED, &k));
    memset(in, 0xFF, sizeof(in));
    position = 0;
    MPI_OK(MPI_Unpack(buffer, k, &position, in, 30, MPI_INT, MPI_COMM_WORLD));
    for (i = 0; i < 30; ++i) {
        CHECK(in[i] == check_partner * 1000 + i / 3 * 6 + i % 3, "unpacked: int %d is %d", i,
              in[i]);
    }
    check_buffer_free(buffer);
    MPI_OK(MPI_Type_free(&vector));
}

/* One struct of several basic types, in arrays, short and long, with a gap at its end. */
typedef struct {
    char   letter;
    short  small[3];
    double real;
    float  reals[5];
    int    whole;
    char   text[13];
} record_t;

static void mixed_struct(void)
{
    const int lengths[]            = {1, 3, 1, 5, 1, 13};
    const MPI_Aint places[]        = {offsetof(record_t, letter), offsetof(record_t, small),
                                      offsetof(record_t, real),   offsetof(record_t, reals),
                                      offsetof(record_t, whole),  offsetof(record_t, text)};
    const MPI_Datatype types[]     = {MPI_CHAR, MPI_SHORT, MPI_DOUBLE, MPI_FLOAT, MPI_INT,
                                      MPI_CHAR};
    static const int item_counts[] = {1, 30, 700, 9000};
    MPI_Datatype members, type;
    MPI_Status status;
    MPI_Aint low, extent;
    int n, i, count;

    MPI_OK(MPI_Type_create_struct(6, lengths, places, types, &members));
    MPI_OK(MPI_Type_create_resized(members, 0, sizeof(record_t), &type));
    MPI_OK(MPI_Type_commit(&type));
    MPI_OK(MPI_Type_get_extent(type, &low, &extent));
    CHECK((low == 0) && (extent == sizeof(record_t)), "extent %ld", (long)extent);
    for (n = 0; n < 4; ++n) {
        const int items = item_counts[n];
        record_t *out   = check_buffer_alloc(items * sizeof(*out));
        record_t *in    = check_buffer_alloc(items * sizeof(*in));

        memset(in, 0, items * sizeof(*in));
        for (i = 0; i < items; ++i) {
            record_t one = {.letter = (char)i, .small = {i, check_rank, 2}, .real = i * 0.25};
            one.reals[4] = check_rank + 0.5f;
            one.whole    = -i;
            snprintf(one.text, sizeof(one.text), "%d", i);
            out[i] = one;
        }
        swap(out, items, type, in, items, type, n, &status);
        MPI_OK(MPI_Get_count(&status, type, &count));
        CHECK(count == items, "%d items of %d", count, items);
        for (i = 0; i < items; ++i) {
            if ((in[i].letter != (char)i) || (in[i].small[0] != (short)i) ||
                (in[i].small[1] != check_partner) || (in[i].real != i * 0.25) ||
                (in[i].reals[4] != check_partner + 0.5f) || (in[i].whole != -i) ||
                (atoi(in[i].text) != i)) {
                break;
            }
        }
        CHECK(i == items, "record %d of %d", i, items);
        check_buffer_free(in);
        check_buffer_free(out);
    }
    MPI_OK(MPI_Type_free(&type));
    MPI_OK(MPI_Type_free(&members));
}

/* Fewer items than there is room for, an incomplete item, none at all. */
static void partial(void)
{
    int out[64], in[64], count, elements, k;
    MPI_Datatype three;
    MPI_Status status;

    MPI_OK(MPI_Type_vector(3, 1, 2, MPI_INT, &three));
    MPI_OK(MPI_Type_commit(&three));
    for (k = 0; k < 64; ++k) {
        out[k] = check_rank * 100 + k;
    }
    for (k = 0; k <= 9; ++k) {
        memset(in, 0xFF, sizeof(in));
        swap(out, k, MPI_INT, in, 4, three, k, &status);
        MPI_OK(MPI_Get_elements(&status, three, &elements));
        MPI_OK(MPI_Get_count(&status, three, &count));
        CHECK(elements == k, "%d elements of %d", elements, k);
        CHECK(count == ((k % 3) ? MPI_UNDEFINED : k / 3), "%d items for %d elements", count, k);
        CHECK((k == 0) ? in[0] == -1 : in[(k - 1) / 3 * 5 + (k - 1) % 3 * 2] ==
              check_partner * 100 + k - 1, "the last of %d elements", k);
    }
    MPI_OK(MPI_Type_free(&three));
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"basic_types", basic_types},
        {"pairs", pairs},
        {"absolute_addresses", absolute_addresses},
        {"packed", packed},
        {"mixed_struct", mixed_struct},
        {"partial", partial},
    };

    return check_main(argc, argv, "types", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
