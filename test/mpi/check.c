/* Halyard: frame of the MPI and OpenSHMEM test programs, see check.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "check.h"

#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#define GUARD_BYTES   64
#define GUARD_VALUE   0xA5
#define REPORTED_MAX  5
#define LIBRARY_COUNT 4

typedef struct {
    size_t  length;
    uint8_t guard[GUARD_BYTES];
} buffer_head_t;

int check_rank;
int check_size;
int check_partner;

static const char *g_program;
static const char *g_case;
static const char *g_skip_reason;
static FILE *g_results;
static int g_thread_level;
static long g_checks;
static long g_failures;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

#ifdef CHECK_SHMEM
static void world_init(int *argc, char ***argv, int required_threads)
{
    (void)argc;
    (void)argv;
    shmem_init_thread(required_threads, &g_thread_level);
    check_rank = shmem_my_pe();
    check_size = shmem_n_pes();
}

static void world_barrier(void)
{
    shmem_barrier_all();
}

static int world_finalize(void)
{
    shmem_finalize();
    return 1;
}

static void world_abort(void)
{
    shmem_global_exit(1);
}
#else
static void world_init(int *argc, char ***argv, int required_threads)
{
    MPI_Init_thread(argc, argv, required_threads, &g_thread_level);
    MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check_size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static void world_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static int world_finalize(void)
{
    return MPI_Finalize() == MPI_SUCCESS;
}

static void world_abort(void)
{
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#endif

void check_that(int ok, const char *file, int line, const char *format, ...)
{
    va_list args;
    char text[512];

    pthread_mutex_lock(&g_lock);
    g_checks++;
    if (!ok) {
        g_failures++;
        if (g_failures <= REPORTED_MAX) {
            va_start(args, format);
            vsnprintf(text, sizeof(text), format, args);
            va_end(args);
            printf("%s.%s rank %d: %s:%d: %s\n", g_program, g_case, check_rank, file, line, text);
            fflush(stdout);
        }
    }
    pthread_mutex_unlock(&g_lock);
}

void check_skip(const char *reason)
{
    g_skip_reason = reason;
}

int check_thread_level(void)
{
    return g_thread_level;
}

int check_failures(void)
{
    return (int)g_failures;
}

void *check_buffer_alloc(size_t length)
{
    buffer_head_t *head = malloc(sizeof(*head) + length + GUARD_BYTES);

    if (head == NULL) {
        fprintf(stderr, "%s: no memory for %zu bytes\n", g_program, length);
        world_abort();
    }
    head->length = length;
    memset(head->guard, GUARD_VALUE, GUARD_BYTES);
    memset((uint8_t*)(head + 1) + length, GUARD_VALUE, GUARD_BYTES);
    return head + 1;
}

void check_buffer_free(void *buffer)
{
    buffer_head_t *head  = (buffer_head_t*)buffer - 1;
    const uint8_t *after = (uint8_t*)buffer + head->length;
    int intact           = 1;
    size_t i;

    for (i = 0; i < GUARD_BYTES; ++i) {
        intact &= (head->guard[i] == GUARD_VALUE) && (after[i] == GUARD_VALUE);
    }
    CHECK(intact, "bytes were written outside a buffer of %zu bytes", head->length);
    free(head);
}

static uint64_t pattern_word(uint64_t seed, size_t index)
{
    return (seed + 1) * 0x9E3779B97F4A7C15ull + index * 0xD1B54A32D192ED03ull;
}

void check_fill(void *buffer, size_t length, uint64_t seed)
{
    size_t i;

    for (i = 0; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) {
        const uint64_t word = pattern_word(seed, i / sizeof(word));
        memcpy((uint8_t*)buffer + i, &word, sizeof(word));
    }
    for (; i < length; ++i) {
        ((uint8_t*)buffer)[i] = check_byte(seed, i);
    }
}

uint8_t check_byte(uint64_t seed, size_t position)
{
    const uint64_t word = pattern_word(seed, position / sizeof(word));
    return ((const uint8_t*)&word)[position % sizeof(word)];
}

void check_filled(const void *buffer, size_t length, uint64_t seed, const char *what)
{
    const uint8_t *bytes = buffer;
    size_t i             = 0;

    for (; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) {
        const uint64_t word = pattern_word(seed, i / sizeof(word));
        if (memcmp(bytes + i, &word, sizeof(word)) != 0) {
            break;
        }
    }
    for (; i < length; ++i) {
        if (bytes[i] != check_byte(seed, i)) {
            break;
        }
    }
    CHECK(i == length, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, length,
          bytes[i < length ? i : 0], check_byte(seed, i));
}

uint64_t check_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

size_t check_random_range(uint64_t *state, size_t min, size_t max)
{
    return min + check_random(state) % (max - min + 1);
}

/* Are the libraries that this process has mapped those of the folder, and no others? */
static void check_mapped_libraries(const char *folder)
{
    static const char *names[LIBRARY_COUNT] = {"libucp.so", "libuct.so", "libucs.so",
                                               "libucm.so"};
    char wanted[PATH_MAX], line[PATH_MAX + 128], path[PATH_MAX];
    int found[LIBRARY_COUNT] = {0};
    FILE *maps;
    size_t i;

    if (realpath(folder, wanted) == NULL) {
        CHECK(0, "no folder %s", folder);
        return;
    }
    maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) {
        CHECK(0, "/proc/self/maps cannot be read");
        return;
    }
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%*s %*s %*s %*s %*s %4095[^\n]", path) != 1) {
            continue;
        }
        for (i = 0; i < LIBRARY_COUNT; ++i) {
            const char *base = strrchr(path, '/');
            if ((base != NULL) && (strncmp(base + 1, names[i], strlen(names[i])) == 0)) {
                char copy[PATH_MAX];
                found[i] = 1;
                strcpy(copy, path);
                CHECK(strcmp(dirname(copy), wanted) == 0, "%s is mapped, wanted from %s", path,
                      wanted);
            }
        }
    }
    fclose(maps);
    CHECK(found[0], "no libucp.so is mapped: it is not used");
}

static void write_result(const char *result)
{
    fprintf(g_results, "%s %s.%s\n", result, g_program, g_case);
    fflush(g_results);
}

static void finish_case(void)
{
    int ok = (g_failures == 0) && (g_checks > 0);

    if (g_skip_reason != NULL) {
        if (check_rank == 0) {
            printf("%s.%s skipped: %s\n", g_program, g_case, g_skip_reason);
        }
        write_result("SKIP");
        return;
    }
    if (g_checks == 0) {
        printf("%s.%s rank %d: nothing was checked\n", g_program, g_case, check_rank);
    }
    if (g_failures > REPORTED_MAX) {
        printf("%s.%s rank %d: %ld checks failed\n", g_program, g_case, check_rank, g_failures);
    }
    write_result(ok ? "PASS" : "FAIL");
}

static void begin_case(const char *name)
{
    g_case        = name;
    g_checks      = 0;
    g_failures    = 0;
    g_skip_reason = NULL;
}

static void open_results(const char *folder)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s.%d", folder, g_program, check_rank);
    g_results = fopen(path, "w");
    if (g_results == NULL) {
        perror(path);
        world_abort();
    }
}

int check_main(int argc, char **argv, const char *program, int required_threads,
               const check_case_t *cases, size_t num_cases)
{
    size_t i;

    g_program = program;
    g_case    = "init";
    if (argc != 3) {
        fprintf(stderr, "usage: %s RESULTS_FOLDER LIBRARY_FOLDER\n", program);
        return 2;
    }
    world_init(&argc, &argv, required_threads);
    check_partner = ((check_rank ^ 1) < check_size) ? (check_rank ^ 1) : check_rank;
    open_results(argv[1]);

    begin_case("library");
    if (strcmp(argv[2], "-") == 0) {
        check_skip("no folder of libraries was given");
    } else {
        check_mapped_libraries(argv[2]);
    }
    finish_case();

    for (i = 0; i < num_cases; ++i) {
        world_barrier();
        begin_case(cases[i].name);
        cases[i].run();
        finish_case();
    }

    begin_case("finalize");
    CHECK(world_finalize(), "finalization failed");
    finish_case();
    fclose(g_results);
    return 0;
}
