/* Halyard: every collective of MPI, blocking and not, in place where MPI has it, on communicators
 * derived in every way.
 *
 * What rank r contributes at a place is value_of(r, place); every result follows from that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#define NUM_COUNTS 4

typedef struct {
    MPI_Comm comm;
    int      rank;
    int      size;
    int      nonblocking;
    int      in_place;
    int      count;
    int      root;
} group_t;

static const int counts[NUM_COUNTS] = {1, 13, 1700, 30000};

/* A call that gives a request in the nonblocking form. */
#define COLLECTIVE(_g, _name, _iname, ...) \
    do { \
        if ((_g)->nonblocking) { \
            MPI_Request request_; \
            MPI_OK(MPI_##_iname(__VA_ARGS__, (_g)->comm, &request_)); \
            MPI_OK(MPI_Wait(&request_, MPI_STATUS_IGNORE)); \
        } else { \
            MPI_OK(MPI_##_name(__VA_ARGS__, (_g)->comm)); \
        } \
    } while (0)

/* What a rank gives: in place it stands in the buffer of the result. */
#define OWN(_g, _buffer) ((_g)->in_place ? MPI_IN_PLACE : (void*)(_buffer))

static int value_of(int rank, int place)
{
    return rank * 911 + place * 5 + 2;
}

static int sum_of(int ranks, int place)
{
    return ranks * (ranks - 1) / 2 * 911 + ranks * (place * 5 + 2);
}

static int *ints(size_t count)
{
    int *data = check_buffer_alloc(count * sizeof(int));

    memset(data, 0xC3, count * sizeof(int));
    return data;
}

static void fill(int *data, int count, int rank, int first)
{
    int i;

    for (i = 0; i < count; ++i) {
        data[i] = value_of(rank, first + i);
    }
}

static void check_values(const group_t *g, const int *data, int rank, int first, const char *what)
{
    int i;

    for (i = 0; (i < g->count) && (data[i] == value_of(rank, first + i)); ++i) {
    }
    CHECK(i == g->count, "%s%s: place %d of %d is %d, expected %d", g->nonblocking ? "i" : "",
          what, i, g->count, data[i < g->count ? i : 0], value_of(rank, first + i));
}

static void check_sums(const group_t *g, const int *data, int ranks, int first, const char *what)
{
    int i;

    for (i = 0; (i < g->count) && (data[i] == sum_of(ranks, first + i)); ++i) {
    }
    CHECK(i == g->count, "%s%s: place %d of %d is %d, expected %d", g->nonblocking ? "i" : "",
          what, i, g->count, data[i < g->count ? i : 0], sum_of(ranks, first + i));
}

static void barrier(const group_t *g)
{
    MPI_Request request;

    if (g->nonblocking) {
        MPI_OK(MPI_Ibarrier(g->comm, &request));
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        MPI_OK(MPI_Barrier(g->comm));
    }
}

static void bcast(const group_t *g)
{
    int *data = ints(g->count);

    if (g->rank == g->root) {
        fill(data, g->count, g->root, 0);
    }
    COLLECTIVE(g, Bcast, Ibcast, data, g->count, MPI_INT, g->root);
    check_values(g, data, g->root, 0, "bcast");
    check_buffer_free(data);
}

static void gather(const group_t *g)
{
    int *part = ints(g->count), *whole = ints((size_t)g->count * g->size), rank;
    const int own_in_place = g->in_place && (g->rank == g->root);
    const void *out        = own_in_place ? MPI_IN_PLACE : part;

    fill(part, g->count, g->rank, 0);
    memcpy(whole + g->rank * g->count, part, g->count * sizeof(int));
    COLLECTIVE(g, Gather, Igather, out, g->count, MPI_INT, whole, g->count, MPI_INT, g->root);
    for (rank = 0; (g->rank == g->root) && (rank < g->size); ++rank) {
        check_values(g, whole + rank * g->count, rank, 0, "gather");
    }
    check_buffer_free(whole);
    check_buffer_free(part);
}

static void scatter(const group_t *g)
{
    int *part = ints(g->count), *whole = ints((size_t)g->count * g->size);
    const int own_in_place = g->in_place && (g->rank == g->root);
    void *in               = own_in_place ? MPI_IN_PLACE : part;

    fill(whole, g->count * g->size, g->root, 0);
    COLLECTIVE(g, Scatter, Iscatter, whole, g->count, MPI_INT, in, g->count, MPI_INT, g->root);
    check_values(g, own_in_place ? whole + g->rank * g->count : part, g->root,
                 g->rank * g->count, "scatter");
    check_buffer_free(whole);
    check_buffer_free(part);
}

/* Counts and places of the varied forms: rank r has (r % 3) * count / 2, with a gap after each. */
typedef struct {
    int *counts;
    int *places;
    int total;
} varied_t;

static varied_t varied_open(const group_t *g)
{
    varied_t v = {calloc(g->size, sizeof(int)), calloc(g->size, sizeof(int)), 0};
    int rank;

    for (rank = 0; rank < g->size; ++rank) {
        v.counts[rank] = (rank % 3) * g->count / 2;
        v.places[rank] = v.total;
        v.total       += v.counts[rank] + 3;
    }
    return v;
}

static void varied_close(varied_t *v)
{
    free(v->counts);
    free(v->places);
}

static void gatherv(const group_t *g)
{
    varied_t v = varied_open(g);
    int *part = ints(v.counts[g->rank]), *whole = ints(v.total), rank;
    group_t of = *g;

    fill(part, v.counts[g->rank], g->rank, 0);
    COLLECTIVE(g, Gatherv, Igatherv, part, v.counts[g->rank], MPI_INT, whole, v.counts, v.places,
               MPI_INT, g->root);
    for (rank = 0; (g->rank == g->root) && (rank < g->size); ++rank) {
        of.count = v.counts[rank];
        check_values(&of, whole + v.places[rank], rank, 0, "gatherv");
        CHECK(whole[v.places[rank] + v.counts[rank]] == (int)0xC3C3C3C3, "gap after %d", rank);
    }
    memset(part, 0, v.counts[g->rank] * sizeof(int));
    COLLECTIVE(g, Scatterv, Iscatterv, whole, v.counts, v.places, MPI_INT, part, v.counts[g->rank],
               MPI_INT, g->root);
    of.count = v.counts[g->rank];
    check_values(&of, part, g->rank, 0, "scatterv");

    fill(whole + v.places[g->rank], v.counts[g->rank], g->rank, 0);
    COLLECTIVE(g, Allgatherv, Iallgatherv, OWN(g, part), v.counts[g->rank], MPI_INT, whole,
               v.counts, v.places, MPI_INT);
    for (rank = 0; rank < g->size; ++rank) {
        of.count = v.counts[rank];
        check_values(&of, whole + v.places[rank], rank, 0, "allgatherv");
    }
    check_buffer_free(whole);
    check_buffer_free(part);
    varied_close(&v);
}

static void allgather(const group_t *g)
{
    int *part = ints(g->count), *whole = ints((size_t)g->count * g->size), rank;

    fill(part, g->count, g->rank, 0);
    memcpy(whole + g->rank * g->count, part, g->count * sizeof(int));
    COLLECTIVE(g, Allgather, Iallgather, OWN(g, part), g->count, MPI_INT, whole, g->count,
               MPI_INT);
    for (rank = 0; rank < g->size; ++rank) {
        check_values(g, whole + rank * g->count, rank, 0, "allgather");
    }
    check_buffer_free(whole);
    check_buffer_free(part);
}

static void alltoall(const group_t *g)
{
    int *out = ints((size_t)g->count * g->size), *in = ints((size_t)g->count * g->size), rank;

    fill(out, g->count * g->size, g->rank, 0);
    memcpy(in, out, (size_t)g->count * g->size * sizeof(int));
    COLLECTIVE(g, Alltoall, Ialltoall, OWN(g, out), g->count, MPI_INT, in, g->count, MPI_INT);
    for (rank = 0; rank < g->size; ++rank) {
        check_values(g, in + rank * g->count, rank, g->count * g->rank, "alltoall");
    }
    check_buffer_free(in);
    check_buffer_free(out);
}

/* Between ranks a and b go ((a + b) % 3) * count / 2 ints: alltoallv counts them, alltoallw gives
 * a type for each. */
static void alltoallv(const group_t *g)
{
    int *n = calloc(g->size, sizeof(int)), *at = calloc(g->size, sizeof(int));
    int *at_bytes = calloc(g->size, sizeof(int)), total = 0, rank, *out, *in;
    MPI_Datatype *types = calloc(g->size, sizeof(*types));
    group_t of          = *g;

    for (rank = 0; rank < g->size; ++rank) {
        n[rank]        = ((g->rank + rank) % 3) * g->count / 2;
        at[rank]       = total;
        at_bytes[rank] = total * (int)sizeof(int);
        types[rank]    = MPI_INT;
        total         += n[rank];
    }
    out = ints(total);
    in  = ints(total);
    for (rank = 0; rank < g->size; ++rank) {
        fill(out + at[rank], n[rank], g->rank, rank);
    }
    COLLECTIVE(g, Alltoallv, Ialltoallv, out, n, at, MPI_INT, in, n, at, MPI_INT);
    for (rank = 0; rank < g->size; ++rank) {
        of.count = n[rank];
        check_values(&of, in + at[rank], rank, g->rank, "alltoallv");
    }
    memset(in, 0, total * sizeof(int));
    COLLECTIVE(g, Alltoallw, Ialltoallw, out, n, at_bytes, types, in, n, at_bytes, types);
    for (rank = 0; rank < g->size; ++rank) {
        of.count = n[rank];
        check_values(&of, in + at[rank], rank, g->rank, "alltoallw");
    }
    check_buffer_free(in);
    check_buffer_free(out);
    free(types);
    free(at_bytes);
    free(at);
    free(n);
}

static void reduce(const group_t *g)
{
    int *out = ints(g->count), *in = ints(g->count);
    /* MPICH 4.0 crashes in a reduce in place to another root, over any UCX. */
    const int own_in_place = g->in_place && (g->rank == g->root) && (g->root == 0);

    fill(out, g->count, g->rank, 0);
    memcpy(in, out, g->count * sizeof(int));
    COLLECTIVE(g, Reduce, Ireduce, own_in_place ? MPI_IN_PLACE : (void*)out, in, g->count, MPI_INT,
               MPI_SUM, g->root);
    if (g->rank == g->root) {
        check_sums(g, in, g->size, 0, "reduce");
    }
    memcpy(in, out, g->count * sizeof(int));
    COLLECTIVE(g, Allreduce, Iallreduce, OWN(g, out), in, g->count, MPI_INT, MPI_SUM);
    check_sums(g, in, g->size, 0, "allreduce");
    memcpy(in, out, g->count * sizeof(int));
    COLLECTIVE(g, Scan, Iscan, OWN(g, out), in, g->count, MPI_INT, MPI_SUM);
    check_sums(g, in, g->rank + 1, 0, "scan");
    memcpy(in, out, g->count * sizeof(int));
    COLLECTIVE(g, Exscan, Iexscan, OWN(g, out), in, g->count, MPI_INT, MPI_SUM);
    if (g->rank > 0) {
        check_sums(g, in, g->rank, 0, "exscan");
    }
    check_buffer_free(in);
    check_buffer_free(out);
}

static void reduce_scatter(const group_t *g)
{
    const int total = g->count * g->size;
    int *out = ints(total), *in = ints(total), *each = calloc(g->size, sizeof(int)), rank;
    group_t of = *g;
    int first  = 0;

    fill(out, total, g->rank, 0);
    memcpy(in, out, total * sizeof(int));
    COLLECTIVE(g, Reduce_scatter_block, Ireduce_scatter_block, OWN(g, out), in, g->count, MPI_INT,
               MPI_SUM);
    check_sums(g, in, g->size, g->count * g->rank, "reduce_scatter_block");
    for (rank = 0; rank < g->size; ++rank) {
        each[rank] = (rank % 2) ? g->count / 2 : g->count;
        first     += (rank < g->rank) ? each[rank] : 0;
    }
    memcpy(in, out, total * sizeof(int));
    COLLECTIVE(g, Reduce_scatter, Ireduce_scatter, OWN(g, out), in, each, MPI_INT, MPI_SUM);
    of.count = each[g->rank];
    check_sums(&of, in, g->size, first, "reduce_scatter");
    free(each);
    check_buffer_free(in);
    check_buffer_free(out);
}

typedef void (*collective_t)(const group_t *g);

/* A collective in all its forms, with all counts, from several roots. */
static void forms(MPI_Comm comm, collective_t run)
{
    group_t g = {.comm = comm};
    int i;

    MPI_OK(MPI_Comm_rank(comm, &g.rank));
    MPI_OK(MPI_Comm_size(comm, &g.size));
    for (i = 0; i < NUM_COUNTS * 4; ++i) {
        g.count       = counts[i % NUM_COUNTS];
        g.nonblocking = (i / NUM_COUNTS) % 2;
        g.in_place    = i / NUM_COUNTS / 2;
        g.root        = i % g.size;
        run(&g);
    }
}

static void on_all_communicators(collective_t run)
{
    MPI_Comm reversed, parts, copy, some, ring;
    MPI_Group all, few;
    int every_second[3] = {0, check_size, 2}, periodic = 1;

    forms(MPI_COMM_WORLD, run);
    forms(MPI_COMM_SELF, run);
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -check_rank, &reversed));
    forms(reversed, run);
    MPI_OK(MPI_Comm_split(reversed, check_rank % 3, 0, &parts));
    forms(parts, run);
    MPI_OK(MPI_Comm_dup(parts, &copy));
    forms(copy, run);
    MPI_OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &check_size, &periodic, 1, &ring));
    forms(ring, run);

    every_second[1] = (check_size - 1) / 2 * 2;
    MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    MPI_OK(MPI_Group_range_incl(all, 1, &every_second, &few));
    MPI_OK(MPI_Comm_create(MPI_COMM_WORLD, few, &some));
    if (some != MPI_COMM_NULL) {
        forms(some, run);
        MPI_OK(MPI_Comm_free(&some));
    }
    MPI_OK(MPI_Group_free(&few));
    MPI_OK(MPI_Group_free(&all));
    MPI_OK(MPI_Comm_free(&ring));
    MPI_OK(MPI_Comm_free(&copy));
    MPI_OK(MPI_Comm_free(&parts));
    MPI_OK(MPI_Comm_free(&reversed));
    CHECK(1, "done");
}

#define ON_ALL(_name) \
    static void _name##_forms(void) \
    { \
        on_all_communicators(_name); \
    }

ON_ALL(barrier)
ON_ALL(bcast)
ON_ALL(gather)
ON_ALL(scatter)
ON_ALL(gatherv)
ON_ALL(allgather)
ON_ALL(alltoall)
ON_ALL(alltoallv)
ON_ALL(reduce)
ON_ALL(reduce_scatter)

/* Exchange with the neighbours of a ring of ranks, both forms, of several sizes. */
static void neighbours(void)
{
    const int left = (check_rank + check_size - 1) % check_size;
    const int right = (check_rank + 1) % check_size;
    int periodic = 1, k, *out, *in;
    MPI_Comm ring;
    group_t g = {0};

    MPI_OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &check_size, &periodic, 0, &ring));
    g.comm = ring;
    for (k = 0; k < 2 * NUM_COUNTS; ++k) {
        int each[2] = {counts[k / 2], counts[k / 2]}, at[2] = {0, counts[k / 2]};

        g.count       = counts[k / 2];
        g.nonblocking = k % 2;
        out           = ints(2 * g.count);
        in            = ints(2 * g.count);
        fill(out, g.count, check_rank, 0);
        fill(out + g.count, g.count, check_rank, 7);
        COLLECTIVE(&g, Neighbor_allgather, Ineighbor_allgather, out, g.count, MPI_INT, in, g.count,
                   MPI_INT);
        check_values(&g, in, left, 0, "neighbor_allgather, left");
        check_values(&g, in + g.count, right, 0, "neighbor_allgather, right");
        if (check_size > 2) {
            /* With two ranks or one, both neighbours are the same and implementations differ. */
            COLLECTIVE(&g, Neighbor_alltoall, Ineighbor_alltoall, out, g.count, MPI_INT, in,
                       g.count, MPI_INT);
            check_values(&g, in, left, 7, "neighbor_alltoall, left");
            check_values(&g, in + g.count, right, 0, "neighbor_alltoall, right");
            memset(in, 0, 2 * g.count * sizeof(int));
            COLLECTIVE(&g, Neighbor_alltoallv, Ineighbor_alltoallv, out, each, at, MPI_INT, in,
                       each, at, MPI_INT);
            check_values(&g, in, left, 7, "neighbor_alltoallv, left");
            check_values(&g, in + g.count, right, 0, "neighbor_alltoallv, right");
        }
        check_buffer_free(in);
        check_buffer_free(out);
    }
    MPI_OK(MPI_Comm_free(&ring));
}

/* The ranks below the middle and those above form two groups that talk to each other. */
static void between_groups(void)
{
    const int low = (check_size + 1) / 2, is_low = (check_rank < low);
    const int others = is_low ? check_size - low : low, first = is_low ? low : 0;
    int rank, i, sum, *in, mine[8];
    MPI_Comm half, inter, merged;

    if (check_size < 2) {
        check_skip("two groups need two ranks");
        return;
    }
    MPI_OK(MPI_Comm_split(MPI_COMM_WORLD, is_low, check_rank, &half));
    MPI_OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first, 5, &inter));
    MPI_OK(MPI_Comm_remote_size(inter, &i));
    CHECK(i == others, "%d others", i);
    in = ints(8 * others);
    fill(mine, 8, check_rank, 0);
    MPI_OK(MPI_Allgather(mine, 8, MPI_INT, in, 8, MPI_INT, inter));
    for (rank = 0; rank < others; ++rank) {
        for (i = 0; (i < 8) && (in[rank * 8 + i] == value_of(first + rank, i)); ++i) {
        }
        CHECK(i == 8, "int %d of rank %d", i, first + rank);
    }
    MPI_OK(MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, inter));
    CHECK(sum == others * first + others * (others - 1) / 2, "sum of the others is %d", sum);
    MPI_OK(MPI_Barrier(inter));
    i = (check_rank == 0) ? 4711 : 0;
    MPI_OK(MPI_Bcast(&i, 1, MPI_INT, is_low ? (check_rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0,
                     inter));
    CHECK(i == ((check_rank == 0) || !is_low ? 4711 : 0), "bcast gave %d", i);
    MPI_OK(MPI_Intercomm_merge(inter, !is_low, &merged));
    MPI_OK(MPI_Comm_rank(merged, &rank));
    MPI_OK(MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(sum == check_size * (check_size - 1) / 2, "sum of all is %d", sum);
    CHECK(rank == check_rank, "rank %d when merged", rank);
    MPI_OK(MPI_Comm_free(&merged));
    MPI_OK(MPI_Comm_free(&inter));
    MPI_OK(MPI_Comm_free(&half));
    check_buffer_free(in);
}

/* An operation that is not commutative: 2 x 2 matrices, multiplied in the order of ranks. */
static void multiply(void *given, void *held, int *count, MPI_Datatype *type)
{
    const uint32_t *a = given;
    uint32_t *b       = held, c[4];
    int i;

    (void)type;
    for (i = 0; i < *count; ++i, a += 4, b += 4) {
        c[0] = a[0] * b[0] + a[1] * b[2];
        c[1] = a[0] * b[1] + a[1] * b[3];
        c[2] = a[2] * b[0] + a[3] * b[2];
        c[3] = a[2] * b[1] + a[3] * b[3];
        memcpy(b, c, sizeof(c));
    }
}

static void matrix_of(uint32_t *m, int rank, int place)
{
    m[0] = rank + 1;
    m[1] = place + 2;
    m[2] = 3;
    m[3] = rank * 7 + place;
}

static void user_operation(void)
{
    enum { MATRICES = 700 };
    uint32_t *out = check_buffer_alloc(MATRICES * 16), *in = check_buffer_alloc(MATRICES * 16);
    uint32_t right[4], next[4];
    MPI_Datatype matrix;
    MPI_Request request;
    int one = 1, i, rank, form;
    MPI_Op op;

    MPI_OK(MPI_Type_contiguous(4, MPI_UINT32_T, &matrix));
    MPI_OK(MPI_Type_commit(&matrix));
    MPI_OK(MPI_Op_create(multiply, 0, &op));
    for (form = 0; form < 3; ++form) {
        for (i = 0; i < MATRICES; ++i) {
            matrix_of(out + 4 * i, check_rank, i);
        }
        if (form == 0) {
            MPI_OK(MPI_Allreduce(out, in, MATRICES, matrix, op, MPI_COMM_WORLD));
        } else if (form == 1) {
            MPI_OK(MPI_Iallreduce(out, in, MATRICES, matrix, op, MPI_COMM_WORLD, &request));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            MPI_OK(MPI_Scan(out, in, MATRICES, matrix, op, MPI_COMM_WORLD));
        }
        for (i = 0; i < MATRICES; ++i) {
            matrix_of(next, (form == 2) ? check_rank : check_size - 1, i);
            for (rank = (form == 2) ? check_rank - 1 : check_size - 2; rank >= 0; --rank) {
                matrix_of(right, rank, i);
                multiply(right, next, &one, &matrix);
            }
            if (memcmp(next, in + 4 * i, 16) != 0) {
                break;
            }
        }
        CHECK(i == MATRICES, "form %d: matrix %d is wrong", form, i);
    }
    MPI_OK(MPI_Op_free(&op));
    MPI_OK(MPI_Type_free(&matrix));
    check_buffer_free(in);
    check_buffer_free(out);
}

/* The rank that holds the extreme goes with it. */
static void extremes(void)
{
    struct {
        double value;
        int    rank;
    } mine = {(check_rank * 3) % check_size + 0.5, check_rank}, most, least;
    int owner;

    MPI_OK(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    MPI_OK(MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    for (owner = 0; (owner * 3) % check_size + 0.5 != most.value; ++owner) {
    }
    CHECK(most.rank == owner, "rank %d holds %g, not %d", owner, most.value, most.rank);
    CHECK((least.value == 0.5) && (least.rank == 0), "rank %d holds %g", least.rank, least.value);
}

/* Many nonblocking ones at once, on two communicators, completed in reverse. */
static void in_flight(void)
{
    enum { MANY = 24, COUNT = 900 };
    int *out[MANY], *in[MANY], i, k;
    MPI_Request requests[MANY];
    MPI_Comm copy;

    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    for (i = 0; i < MANY; ++i) {
        out[i] = ints(COUNT);
        in[i]  = ints(COUNT);
        fill(out[i], COUNT, check_rank, i);
        MPI_OK(MPI_Iallreduce(out[i], in[i], COUNT, MPI_INT, MPI_SUM,
                              (i % 2) ? copy : MPI_COMM_WORLD, &requests[i]));
    }
    for (i = MANY; i-- > 0;) {
        MPI_OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (k = 0; (k < COUNT) && (in[i][k] == sum_of(check_size, i + k)); ++k) {
        }
        CHECK(k == COUNT, "iallreduce %d: int %d is wrong", i, k);
        check_buffer_free(in[i]);
        check_buffer_free(out[i]);
    }
    MPI_OK(MPI_Comm_free(&copy));
}

/* Columns of a matrix sent as rows. */
static void derived_types(void)
{
    enum { ROWS = 50, COLUMNS = 30 };
    int *matrix = ints(ROWS * COLUMNS), *in = ints((size_t)ROWS * check_size), i, rank;
    MPI_Datatype column, spaced;

    MPI_OK(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column));
    MPI_OK(MPI_Type_create_resized(column, 0, sizeof(int), &spaced));
    MPI_OK(MPI_Type_commit(&spaced));
    fill(matrix, ROWS * COLUMNS, check_rank, 0);
    MPI_OK(MPI_Allgather(matrix + 4, 1, spaced, in, ROWS, MPI_INT, MPI_COMM_WORLD));
    for (rank = 0; rank < check_size; ++rank) {
        for (i = 0; (i < ROWS) && (in[rank * ROWS + i] == value_of(rank, i * COLUMNS + 4)); ++i) {
        }
        CHECK(i == ROWS, "row %d from rank %d is %d", i, rank, in[rank * ROWS + (i % ROWS)]);
    }
    MPI_OK(MPI_Bcast(matrix + 7, 2, spaced, check_size - 1, MPI_COMM_WORLD));
    for (i = 0; i < ROWS * COLUMNS; ++i) {
        const int column_of = i % COLUMNS, sent = (column_of == 7) || (column_of == 8);
        if (matrix[i] != value_of(sent ? check_size - 1 : check_rank, i)) {
            break;
        }
    }
    CHECK(i == ROWS * COLUMNS, "place %d after the broadcast of columns", i);
    MPI_OK(MPI_Type_free(&spaced));
    MPI_OK(MPI_Type_free(&column));
    check_buffer_free(in);
    check_buffer_free(matrix);
}

int main(int argc, char **argv)
{
    static const check_case_t cases[] = {
        {"barrier", barrier_forms},
        {"bcast", bcast_forms},
        {"gather", gather_forms},
        {"scatter", scatter_forms},
        {"varied", gatherv_forms},
        {"allgather", allgather_forms},
        {"alltoall", alltoall_forms},
        {"alltoall_varied", alltoallv_forms},
        {"reduce", reduce_forms},
        {"reduce_scatter", reduce_scatter_forms},
        {"neighbours", neighbours},
        {"between_groups", between_groups},
        {"user_operation", user_operation},
        {"extremes", extremes},
        {"in_flight", in_flight},
        {"derived_types", derived_types},
    };

    return check_main(argc, argv, "collective_all", MPI_THREAD_SINGLE, cases,
                      sizeof(cases) / sizeof(cases[0]));
}
