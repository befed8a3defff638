/* Halyard: PEs of NVSHMEM move data by its UCX transport, and look at every byte.
 *
 *   nvshmem_pes PES TEST...    tests: see the table at the end; "measure" prints figures instead
 *
 * The PEs are forked, and spread over the GPUs; the parent says where each one stood if they do not
 * end in time. What NVSHMEM does not offer where PEs share a GPU (most collectives, waiting on the
 * host) is not used: the PEs meet by memory that they share. nvshmem_devices.c says what NVSHMEM
 * needs besides.
 *
 * "stream" wants CUDA_MODULE_LOADING=EAGER where the symmetric memory is the GPU's: kernels that
 * wait for a put keep others from being loaded (over any UCX). "fetch" ends only where it is the
 * host's, and without a network card: else NVSHMEM's transport waits, or crashes in its handler.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PES 8
#define MAX_SIZE (16ul << 20)
#define EDGE 64ul /* bytes on either side of a block that nobody may touch */
#define WORDS 1024
#define TIME_LIMIT 100 /* seconds */

#define CUDA(call)                                                                          \
    do {                                                                                    \
        const cudaError_t cuda_error = (call);                                              \
        if (cuda_error != cudaSuccess) {                                                    \
            fprintf(stderr, "PE %d: %s: %s\n", pe, #call, cudaGetErrorString(cuda_error));  \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

typedef struct {
    pthread_barrier_t barrier;
    nvshmemx_uniqueid_t id;
    struct {
        char stage[64];
        size_t size;
    } pe[MAX_PES];
} board_t;

typedef void (*move_t)(char *to, char *from, size_t size, int peer);

static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 4096, 8191, 65536, 65537,
                               1ul << 20, (1ul << 20) + 1, MAX_SIZE};
static board_t *board;
static int pe, num_pes, round_number;
static char *source, *target; /* symmetric, of the GPU */
static uint64_t *words;       /* symmetric: WORDS for each PE */
static char *expected, *seen; /* of the host */
static cudaStream_t stream;

static void stage(const char *name, size_t size)
{
    snprintf(board->pe[pe].stage, sizeof(board->pe[pe].stage), "%s", name);
    board->pe[pe].size = size;
}

static void meet(void)
{
    CUDA(cudaDeviceSynchronize());
    pthread_barrier_wait(&board->barrier);
}

static void wrong(const char *what, size_t place, size_t size)
{
    fprintf(stderr, "PE %d: %s of %zu bytes: byte %zu is wrong\n", pe, what, size, place);
    exit(1);
}

static void fill(char *bytes, size_t size, int owner, int number)
{
    uint64_t state = (owner + 1) * 0x9e3779b97f4a7c15ull + number * 0xbf58476d1ce4e5b9ull;
    size_t i;

    for (i = 0; i < size; ++i) {
        state    = state * 6364136223846793005ull + 1442695040888963407ull;
        bytes[i] = (char)(state >> 56);
    }
}

/* ---- the ways to move ---- */

__global__ void kernel_put(char *to, char *from, size_t size, int peer)
{
    nvshmem_putmem(to, from, size, peer);
    nvshmem_quiet();
}

__global__ void kernel_put_nbi(char *to, char *from, size_t size, int peer)
{
    nvshmemx_putmem_nbi_block(to, from, size, peer);
    if (threadIdx.x == 0) {
        nvshmem_quiet();
    }
}

__global__ void kernel_get(char *to, char *from, size_t size, int peer)
{
    nvshmem_getmem(to, from, size, peer);
}

__global__ void kernel_words(uint64_t *to, int count, uint64_t first, int peer)
{
    for (int i = 0; i < count; ++i) {
        nvshmem_uint64_p(to + i, first + i, peer);
    }
    nvshmem_quiet();
}

__global__ void kernel_read_words(uint64_t *to, const uint64_t *from, int count, int peer)
{
    for (int i = 0; i < count; ++i) {
        to[i] = nvshmem_uint64_g(from + i, peer);
    }
}

__global__ void kernel_add(uint64_t *to, int count, int peer)
{
    for (int i = 0; i < count; ++i) {
        nvshmem_uint64_atomic_inc(to, peer);
        nvshmem_uint64_atomic_add(to + 1, 3, peer);
        nvshmem_uint64_atomic_or(to + 2, 1ull << i, peer);
        nvshmem_uint64_atomic_xor(to + 3, i + 1, peer);
        nvshmem_uint32_atomic_add((uint32_t *)(to + 4), 5, peer);
    }
    nvshmem_quiet();
}

__global__ void kernel_fetch(uint64_t *to, uint64_t *got, int count, int self, int peer)
{
    for (int i = 0; i < count; ++i) {
        got[i] = nvshmem_uint64_atomic_fetch_add(to, 1, peer);
        nvshmem_uint64_atomic_set(to + 8 + self, i, peer);
        nvshmem_quiet();
        got[count + i] = nvshmem_uint64_atomic_swap(to + 8 + self, 1000 + i, peer);
        got[2 * count + i] =
            nvshmem_uint64_atomic_compare_swap(to + 8 + self, 1000 + i, 7, peer);
    }
    nvshmem_quiet();
}

static void host_put(char *to, char *from, size_t size, int peer)
{
    nvshmem_putmem(to, from, size, peer);
    nvshmem_quiet();
}

static void host_put_nbi(char *to, char *from, size_t size, int peer)
{
    nvshmem_putmem_nbi(to, from, size, peer);
    nvshmem_quiet();
}

/* Over a transport the host's get may return before the bytes are there. */
static void host_get(char *to, char *from, size_t size, int peer)
{
    nvshmem_getmem(to, from, size, peer);
    nvshmem_quiet();
}

static void host_get_nbi(char *to, char *from, size_t size, int peer)
{
    nvshmem_getmem_nbi(to, from, size, peer);
    nvshmem_quiet();
}

static void stream_put(char *to, char *from, size_t size, int peer)
{
    nvshmemx_putmem_on_stream(to, from, size, peer, stream);
    nvshmemx_quiet_on_stream(stream);
    CUDA(cudaStreamSynchronize(stream));
}

static void stream_put_nbi(char *to, char *from, size_t size, int peer)
{
    nvshmemx_putmem_nbi_on_stream(to, from, size, peer, stream);
    nvshmemx_quiet_on_stream(stream);
    CUDA(cudaStreamSynchronize(stream));
}

static void stream_get(char *to, char *from, size_t size, int peer)
{
    nvshmemx_getmem_on_stream(to, from, size, peer, stream);
    CUDA(cudaStreamSynchronize(stream));
}

static void device_put(char *to, char *from, size_t size, int peer)
{
    kernel_put<<<1, 1, 0, stream>>>(to, from, size, peer);
    CUDA(cudaStreamSynchronize(stream));
}

static void device_put_nbi(char *to, char *from, size_t size, int peer)
{
    kernel_put_nbi<<<1, 64, 0, stream>>>(to, from, size, peer);
    CUDA(cudaStreamSynchronize(stream));
}

static void device_get(char *to, char *from, size_t size, int peer)
{
    kernel_get<<<1, 1, 0, stream>>>(to, from, size, peer);
    CUDA(cudaStreamSynchronize(stream));
}

/* ---- the tests ---- */

/* One block from each PE to the next, or from it, which begins at an odd place where `shift` is. */
static void move_block(const char *name, move_t move, int is_get, size_t size, size_t shift)
{
    const int next  = (pe + 1) % num_pes;
    const int owner = is_get ? next : (pe + num_pes - 1) % num_pes;
    size_t i;

    stage(name, size);
    ++round_number;
    fill(expected, size, pe, round_number);
    CUDA(cudaMemcpy(source + shift, expected, size, cudaMemcpyHostToDevice));
    CUDA(cudaMemset(target, 0x5a, size + 2 * EDGE));
    meet();
    move(target + EDGE, source + shift, size, next);
    meet();
    CUDA(cudaMemcpy(seen, target, size + 2 * EDGE, cudaMemcpyDeviceToHost));
    fill(expected, size, owner, round_number);
    for (i = 0; i < EDGE; ++i) {
        if ((seen[i] != 0x5a) || (seen[EDGE + size + i] != 0x5a)) {
            wrong(name, i, size);
        }
    }
    if (memcmp(seen + EDGE, expected, size) != 0) {
        for (i = 0; seen[EDGE + i] == expected[i]; ++i) {
        }
        wrong(name, i, size);
    }
}

static void move_blocks(const char *name, move_t move, int is_get)
{
    size_t i;

    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        move_block(name, move, is_get, sizes[i], 0);
        move_block(name, move, is_get, sizes[i] - (sizes[i] == MAX_SIZE), 1);
    }
    if (pe == 0) {
        printf("%s: right\n", name);
    }
}

static void clear_words(void)
{
    CUDA(cudaMemset(words, 0, MAX_PES * WORDS * sizeof(*words)));
    meet();
}

static void check_words(const char *name, int owner, const uint64_t *from, uint64_t first)
{
    uint64_t *copy = (uint64_t *)seen;
    int i;

    CUDA(cudaMemcpy(copy, from, WORDS * sizeof(*copy), cudaMemcpyDeviceToHost));
    for (i = 0; i < WORDS; ++i) {
        if (copy[i] != first + i) {
            fprintf(stderr, "PE %d: %s: word %d of PE %d is %llx\n", pe, name, i, owner,
                    (unsigned long long)copy[i]);
            exit(1);
        }
    }
}

/* Words to everybody at the same time, one by one, by the host and by a kernel; and back. */
static void move_words(int is_device)
{
    const char *name = is_device ? "device p, g" : "host p";
    int other, i;

    stage(name, sizeof(*words));
    clear_words();
    for (other = 0; other < num_pes; ++other) {
        const uint64_t first = (uint64_t)(pe + 1) << 40;

        if (is_device) {
            kernel_words<<<1, 1, 0, stream>>>(words + pe * WORDS, WORDS, first, other);
            CUDA(cudaStreamSynchronize(stream));
            continue;
        }
        for (i = 0; i < WORDS; ++i) {
            nvshmem_uint64_p(words + pe * WORDS + i, first + i, other);
        }
    }
    nvshmem_quiet();
    meet();
    for (other = 0; other < num_pes; ++other) {
        check_words(name, other, words + other * WORDS, (uint64_t)(other + 1) << 40);
    }
    if (is_device) {
        other = (pe + 1) % num_pes;
        kernel_read_words<<<1, 1, 0, stream>>>((uint64_t *)target, words + other * WORDS, WORDS,
                                               other);
        CUDA(cudaStreamSynchronize(stream));
        check_words(name, other, (uint64_t *)target, (uint64_t)(other + 1) << 40);
    }
    meet();
    if (pe == 0) {
        printf("%s: right\n", name);
    }
}

/* Who sees a word that was put after a fence sees the block that was put before it. */
static void test_fence(void)
{
    const int next = (pe + 1) % num_pes, before = (pe + num_pes - 1) % num_pes;
    const size_t size = 200000;
    uint64_t word;
    int i;

    stage("fence", size);
    clear_words();
    for (i = 1; i <= 50; ++i) {
        fill(expected, size, pe, i);
        CUDA(cudaMemcpy(source, expected, size, cudaMemcpyHostToDevice));
        CUDA(cudaDeviceSynchronize());
        nvshmem_putmem_nbi(target, source, size, next);
        nvshmem_fence();
        nvshmem_uint64_p(words, i, next);
        do {
            CUDA(cudaMemcpy(&word, words, sizeof(word), cudaMemcpyDeviceToHost));
        } while (word != (uint64_t)i);
        CUDA(cudaMemcpy(seen, target, size, cudaMemcpyDeviceToHost));
        fill(expected, size, before, i);
        if (memcmp(seen, expected, size) != 0) {
            wrong("fence", 0, size);
        }
        nvshmem_quiet();
        meet();
    }
    if (pe == 0) {
        printf("fence: right\n");
    }
}

/* The host and a kernel at the same time, many pieces to everybody, one wait in the end. */
static void test_mixed(void)
{
    const size_t piece = 5000, count = 100;
    int other;
    size_t i;

    stage("mixed", piece);
    fill(expected, piece * count, pe, 7);
    CUDA(cudaMemcpy(source, expected, piece * count, cudaMemcpyHostToDevice));
    meet();
    for (other = 0; other < num_pes; ++other) {
        char *to = target + pe * 2 * piece * count;

        kernel_put_nbi<<<1, 64, 0, stream>>>(to + piece * count, source, piece * count, other);
        for (i = 0; i < count; ++i) {
            nvshmem_putmem_nbi(to + i * piece, source + i * piece, piece, other);
        }
    }
    CUDA(cudaStreamSynchronize(stream));
    nvshmem_quiet();
    meet();
    for (other = 0; other < num_pes; ++other) {
        fill(expected, piece * count, other, 7);
        CUDA(cudaMemcpy(seen, target + other * 2 * piece * count, 2 * piece * count,
                        cudaMemcpyDeviceToHost));
        if ((memcmp(seen, expected, piece * count) != 0) ||
            (memcmp(seen + piece * count, expected, piece * count) != 0)) {
            wrong("mixed", 0, piece);
        }
    }
    meet();
    if (pe == 0) {
        printf("mixed: right\n");
    }
}

/* The local side is memory of the host that was registered. */
static void test_buffer(void)
{
    char *buffer = (char *)mmap(NULL, 2 * MAX_SIZE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int next = (pe + 1) % num_pes;
    size_t i;

    if (nvshmemx_buffer_register(buffer, 2 * MAX_SIZE) != 0) {
        fprintf(stderr, "PE %d: nvshmemx_buffer_register fails\n", pe);
        exit(1);
    }
    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        const size_t size = sizes[i];

        stage("buffer", size);
        fill(buffer, size, pe, (int)i);
        meet();
        host_put(target, buffer, size, next);
        host_get_nbi(buffer + MAX_SIZE, target, size, next);
        if (memcmp(buffer, buffer + MAX_SIZE, size) != 0) {
            wrong("buffer", 0, size);
        }
        meet();
        CUDA(cudaMemcpy(seen, target, size, cudaMemcpyDeviceToHost));
        fill(expected, size, (pe + num_pes - 1) % num_pes, (int)i);
        if (memcmp(seen, expected, size) != 0) {
            wrong("buffer", 0, size);
        }
        meet();
    }
    nvshmemx_buffer_unregister(buffer);
    munmap(buffer, 2 * MAX_SIZE);
    if (pe == 0) {
        printf("buffer: right\n");
    }
}

static void test_add(void)
{
    const int count = 64;
    uint64_t got[5], want[5] = {(uint64_t)count * num_pes, 3ull * count * num_pes, ~0ull, 0,
                                5ull * count * num_pes};
    int other, i;

    stage("add", sizeof(*words));
    clear_words();
    for (i = 0; i < count; ++i) {
        want[3] ^= (num_pes % 2 == 0) ? 0 : (uint64_t)i + 1;
    }
    for (other = 0; other < num_pes; ++other) {
        kernel_add<<<1, 1, 0, stream>>>(words, count, other);
    }
    CUDA(cudaStreamSynchronize(stream));
    meet();
    CUDA(cudaMemcpy(got, words, sizeof(got), cudaMemcpyDeviceToHost));
    for (i = 0; i < 5; ++i) {
        if (got[i] != want[i]) {
            fprintf(stderr, "PE %d: add: word %d is %llx, not %llx\n", pe, i,
                    (unsigned long long)got[i], (unsigned long long)want[i]);
            exit(1);
        }
    }
    meet();
    if (pe == 0) {
        printf("add: right\n");
    }
}

static void test_fetch(void)
{
    const int count = 200;
    uint64_t *got   = (uint64_t *)seen, sum;
    int other, i;

    stage("fetch", sizeof(*words));
    clear_words();
    for (other = 0; other < num_pes; ++other) {
        kernel_fetch<<<1, 1, 0, stream>>>(words, (uint64_t *)source, count, pe, other);
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaMemcpy(got, source, 3 * count * sizeof(*got), cudaMemcpyDeviceToHost));
        for (i = 0; i < count; ++i) {
            if (((i > 0) && (got[i] <= got[i - 1])) || (got[count + i] != (uint64_t)i) ||
                (got[2 * count + i] != 1000u + i)) {
                fprintf(stderr, "PE %d: fetch: round %d: %llu %llu %llu\n", pe, i,
                        (unsigned long long)got[i], (unsigned long long)got[count + i],
                        (unsigned long long)got[2 * count + i]);
                exit(1);
            }
        }
    }
    meet();
    CUDA(cudaMemcpy(&sum, words, sizeof(sum), cudaMemcpyDeviceToHost));
    if (sum != (uint64_t)count * num_pes) {
        wrong("fetch", 0, sizeof(sum));
    }
    meet();
    if (pe == 0) {
        printf("fetch: right\n");
    }
}

/* ---- figures ---- */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* PE 0 moves for a fifth of a second; the others' threads of NVSHMEM make progress meanwhile. */
static void measure_one(const char *name, move_t move, size_t size)
{
    double start, passed;
    int count = 0, i;

    stage(name, size);
    meet();
    if (pe == 0) {
        for (i = 0; i < 3; ++i) {
            move(target, source, size, 1);
        }
        start = now();
        do {
            move(target, source, size, 1);
            ++count;
            passed = now() - start;
        } while (passed < 0.2);
        printf("%-14s %9zu  %9.2f us  %9.1f MB/s\n", name, size, passed / count * 1e6,
               size * count / passed / 1e6);
    }
    meet();
}

static void measure(void)
{
    const struct {
        const char *name;
        move_t move;
    } ways[] = {{"host put", host_put},     {"host get", host_get},     {"stream put", stream_put},
                {"stream get", stream_get}, {"device put", device_put}, {"device get", device_get}};

    for (const auto &way : ways) {
        for (size_t size : {8ul, 4096ul, 65536ul, 1ul << 20, MAX_SIZE}) {
            measure_one(way.name, way.move, size);
        }
    }
}

/* ---- the whole ---- */

static void test_device(void)
{
    move_blocks("device put", device_put, 0);
    move_blocks("device put_nbi", device_put_nbi, 0);
    move_blocks("device get", device_get, 1);
    move_words(1);
}

static void test_host(void)
{
    move_blocks("host put", host_put, 0);
    move_blocks("host put_nbi", host_put_nbi, 0);
    move_blocks("host get", host_get, 1);
    move_blocks("host get_nbi", host_get_nbi, 1);
    move_words(0);
}

static void test_stream(void)
{
    move_blocks("stream put", stream_put, 0);
    move_blocks("stream put_nbi", stream_put_nbi, 0);
    move_blocks("stream get", stream_get, 1);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"device", test_device}, {"host", test_host},     {"stream", test_stream},
             {"fence", test_fence},   {"mixed", test_mixed},   {"buffer", test_buffer},
             {"add", test_add},       {"fetch", test_fetch},   {"measure", measure}};

static int run_pe(int argc, char **argv)
{
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    int num_devices, count = 0, i;

    stage("init", 0);
    CUDA(cudaGetDeviceCount(&num_devices));
    CUDA(cudaSetDevice(pe % num_devices));
    CUDA(cudaFree(0));
    if ((pe == 0) && (nvshmemx_get_uniqueid(&board->id) != 0)) {
        return 1;
    }
    meet();
    nvshmemx_set_attr_uniqueid_args(pe, num_pes, &board->id, &attr);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != 0) {
        return 1;
    }
    stage("allocate", MAX_SIZE);
    source   = (char *)nvshmem_malloc(MAX_SIZE);
    target   = (char *)nvshmem_malloc(MAX_SIZE + 2 * EDGE);
    words    = (uint64_t *)nvshmem_malloc(MAX_PES * WORDS * sizeof(*words));
    expected = (char *)malloc(MAX_SIZE);
    seen     = (char *)malloc(MAX_SIZE + 2 * EDGE);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (nvshmem_ptr(target, (pe + 1) % num_pes) != NULL) {
        fprintf(stderr, "PE %d: NVSHMEM does without its transport\n", pe);
        return 1;
    }
    for (i = 2; i < argc; ++i) {
        for (const auto &test : tests) {
            if (strcmp(test.name, argv[i]) == 0) {
                test.run();
                ++count;
            }
        }
        stage("barrier", 0);
        nvshmem_barrier_all();
    }
    stage("finalize", 0);
    nvshmem_free(words);
    nvshmem_free(target);
    nvshmem_free(source);
    nvshmem_finalize();
    stage("end", 0);
    return count != argc - 2;
}

int main(int argc, char **argv)
{
    pid_t pids[MAX_PES];
    pthread_barrierattr_t attr;
    int i, status, num_left, num_failed = 0, ticks = TIME_LIMIT * 100;

    num_pes = (argc > 2) ? atoi(argv[1]) : 0;
    if ((num_pes < 2) || (num_pes > MAX_PES)) {
        fprintf(stderr, "usage: nvshmem_pes PES TEST...\n");
        return 2;
    }
    board = (board_t *)mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &attr, num_pes);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (pe = 0; pe < num_pes; ++pe) {
        pids[pe] = fork();
        if (pids[pe] == 0) {
            exit(run_pe(argc, argv));
        }
    }
    for (num_left = num_pes; (num_left > 0) && (num_failed == 0) && (ticks > 0); --ticks) {
        while ((num_left > 0) && (waitpid(-1, &status, WNOHANG) > 0)) {
            num_failed += (status != 0);
            --num_left;
        }
        usleep(10000);
    }
    if ((num_left == 0) && (num_failed == 0)) {
        printf("all PEs agree\n");
        return 0;
    }
    for (i = 0; i < num_pes; ++i) {
        fprintf(stderr, "PE %d: %s, %zu bytes\n", i, board->pe[i].stage, board->pe[i].size);
        kill(pids[i], SIGKILL);
    }
    fprintf(stderr, "%s\n", (num_failed > 0) ? "a PE failed" : "out of time");
    return 1;
}
