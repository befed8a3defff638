/* Halyard: what the transports for device memory cost, beside the driver itself.
 *
 * Usage: cuda_uct [fake libcuda]. One line a figure, bytes checked. Exit code 77: no device.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/api/uct_tl.h>
#include <uct/cuda/cuda_driver.h>

#include <ucs/sys/sys.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   (64ul << 20)
#define WINDOW 64

#define CHECK(_cond) \
    do { \
        if (!(_cond)) { \
            fprintf(stderr, "cuda_uct.c:%d: %s\n", __LINE__, #_cond); \
            exit(1); \
        } \
    } while (0)

static void *library;

static int cuda_start(const char *path, int device)
{
    const uct_cuda_driver_t *driver;
    int (*init)(unsigned);
    int (*set_current)(uct_cu_ctx_t ctx);
    uct_cu_ctx_t ctx;
    int count = 0;

    library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        return 0;
    }
    init        = (int (*)(unsigned))(uintptr_t)dlsym(library, "cuInit");
    set_current = (int (*)(uct_cu_ctx_t))(uintptr_t)dlsym(library, "cuCtxSetCurrent");
    driver      = uct_cuda_driver();
    if ((driver == NULL) || (init(0) != 0) || (driver->cuDeviceGetCount(&count) != 0) ||
        (count == 0)) {
        return 0;
    }
    CHECK(driver->cuDevicePrimaryCtxRetain(&ctx, device % count) == 0);
    CHECK(set_current(ctx) == 0);
    return count;
}

static void *cuda_alloc(size_t size)
{
    uct_cu_ptr_t ptr;

    CHECK(uct_cuda_driver()->cuMemAlloc(&ptr, size) == 0);
    return (void *)(uintptr_t)ptr;
}

static void ep_failed(void *arg UCS_UNUSED, uct_ep_t *ep UCS_UNUSED, ucs_status_t status)
{
    fprintf(stderr, "endpoint failed: %s\n", ucs_status_string(status));
}

static void open_tl(const char *name, uct_md_t **md_p, uct_iface_t **iface_p)
{
    uct_iface_params_t params = {.ep_failed = ep_failed};

    CHECK(uct_md_open(uct_tl_find(name), NULL, md_p) == UCS_OK);
    CHECK(uct_iface_open(*md_p, &params, iface_p) == UCS_OK);
}

static void close_tl(uct_md_t *md, uct_iface_t *iface)
{
    uct_iface_close(iface);
    uct_md_close(md);
}

static void completed(uct_completion_t *comp UCS_UNUSED)
{
}

static double now_us(void)
{
    return (double)ucs_sys_clock_ns() * 1e-3;
}

static void wait_for(uct_iface_t *iface, uct_completion_t *comp)
{
    while (comp->count > 0) {
        uct_iface_progress(iface);
    }
    CHECK(comp->status == UCS_OK);
}

/* One copy at a time, and a window of them; comp NULL: inside the call. */
typedef ucs_status_t (*start_cb_t)(void *arg, size_t offset, size_t length, uct_completion_t *comp);

static double time_one(uct_iface_t *iface, start_cb_t start, void *arg, size_t length, int waits)
{
    const int rounds = (length > (1ul << 20)) ? 20 : 500;
    double begin     = 0;
    ucs_status_t status;
    int i;

    for (i = -rounds / 10; i < rounds; ++i) {
        uct_completion_t comp = {completed, 1, UCS_OK};
        if (i == 0) {
            begin = now_us();
        }
        status = start(arg, 0, length, waits ? NULL : &comp);
        CHECK(status == (waits ? UCS_OK : UCS_INPROGRESS));
        if (!waits) {
            wait_for(iface, &comp);
        }
    }
    return (now_us() - begin) / rounds;
}

static double time_window(uct_iface_t *iface, start_cb_t start, void *arg, size_t length)
{
    const int rounds = 20;
    double begin     = 0;
    int i, k;

    for (i = -2; i < rounds; ++i) {
        uct_completion_t comp = {completed, WINDOW, UCS_OK};
        if (i == 0) {
            begin = now_us();
        }
        for (k = 0; k < WINDOW; ++k) {
            CHECK(start(arg, (size_t)k * length, length, &comp) == UCS_INPROGRESS);
        }
        wait_for(iface, &comp);
    }
    return (now_us() - begin) / rounds / WINDOW;
}

/* ---- within the process ---- */

typedef struct {
    uct_iface_t *iface;
    char        *dest, *src;
} place_t;

static ucs_status_t start_copy(void *arg, size_t offset, size_t length, uct_completion_t *comp)
{
    place_t *p = arg;

    return p->iface->tl->iface.copy(p->iface, p->dest + offset, p->src + offset, length, 0, comp);
}

static double time_raw(char *dest, char *src, size_t length)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver();
    double begin                    = 0;
    uct_cu_stream_t stream;
    int i;

    CHECK(driver->cuStreamCreate(&stream, UCT_CU_STREAM_NON_BLOCKING) == 0);
    for (i = -50; i < 500; ++i) {
        if (i == 0) {
            begin = now_us();
        }
        CHECK(driver->cuMemcpyAsync((uintptr_t)dest, (uintptr_t)src, length, stream) == 0);
        while (driver->cuStreamQuery(stream) == UCT_CU_NOT_READY) {
        }
    }
    driver->cuStreamDestroy(stream);
    return (now_us() - begin) / 500;
}

/* The driver's own batch; 0 where it has none. */
static double time_raw_batch(char *dest, char *src, size_t length)
{
    const uct_cuda_driver_t *driver     = uct_cuda_driver();
    uct_cu_copy_attributes_t attributes = {.src_access_order = UCT_CU_SRC_ORDER_STREAM};
    size_t index                        = 0;
    double begin                        = 0;
    uct_cu_ptr_t dests[WINDOW], srcs[WINDOW];
    size_t lengths[WINDOW];
    uct_cu_stream_t stream;
    int i;

    for (i = 0; i < WINDOW; ++i) {
        dests[i]   = (uintptr_t)dest + (size_t)i * length;
        srcs[i]    = (uintptr_t)src + (size_t)i * length;
        lengths[i] = length;
    }
    CHECK(driver->cuStreamCreate(&stream, UCT_CU_STREAM_NON_BLOCKING) == 0);
    for (i = -2; i < 20; ++i) {
        if (i == 0) {
            begin = now_us();
        }
        if ((driver->cuMemcpyBatchAsync == NULL) ||
            (driver->cuMemcpyBatchAsync(dests, srcs, lengths, WINDOW, &attributes, &index, 1,
                                        stream) != 0)) {
            return 0;
        }
        while (driver->cuStreamQuery(stream) == UCT_CU_NOT_READY) {
        }
    }
    driver->cuStreamDestroy(stream);
    return (now_us() - begin) / 20 / WINDOW;
}

static void measure_queries(uct_md_t *md, char *device)
{
    static char data[64];
    char *places[] = {data, device + 100};
    uct_mem_info_t info;
    double begin;
    int i, k;

    for (i = 0; i < 2; ++i) {
        begin = now_us();
        for (k = 0; k < 100000; ++k) {
            (void)md->tl->md.mem_query(md, places[i], 1, &info);
        }
        printf("mem_query %-30s %8.3f us\n", (i == 0) ? "host" : "device",
               (now_us() - begin) / 100000);
    }
}

static void measure_copies(void)
{
    static const size_t sizes[] = {8, 65536, 1ul << 20};
    char *device                = cuda_alloc(SIZE);
    char *other                 = cuda_alloc(SIZE);
    char *host                  = malloc(SIZE);
    char *back                  = malloc(SIZE);
    uct_iface_t *iface;
    place_t place;
    uct_md_t *md;
    size_t i;

    open_tl("cuda_copy", &md, &iface);
    measure_queries(md, device);
    for (i = 0; i < SIZE; ++i) {
        host[i] = (char)(i * 2654435761u >> 13);
    }
    place = (place_t){iface, device, host};
    CHECK(start_copy(&place, 0, SIZE, NULL) == UCS_OK);
    place = (place_t){iface, other, device};
    for (i = 0; i < ucs_array_size(sizes); ++i) {
        printf("device to device %8zu B: driver       %8.2f us\n", sizes[i],
               time_raw(other, device, sizes[i]));
        printf("device to device %8zu B: driver's batch %6.2f us each\n", sizes[i],
               time_raw_batch(other, device, sizes[i]));
        printf("device to device %8zu B: completion   %8.2f us\n", sizes[i],
               time_one(iface, start_copy, &place, sizes[i], 0));
        printf("device to device %8zu B: in the call  %8.2f us\n", sizes[i],
               time_one(iface, start_copy, &place, sizes[i], 1));
        printf("device to device %8zu B: window of 64 %8.2f us each\n", sizes[i],
               time_window(iface, start_copy, &place, sizes[i]));
    }
    place = (place_t){iface, back, device};
    for (i = 0; i < ucs_array_size(sizes); ++i) {
        printf("device to pageable %6zu B: in the call  %8.2f us\n", sizes[i],
               time_one(iface, start_copy, &place, sizes[i], 1));
    }
    printf("device to pageable, 64 MiB %28.2f GB/s\n",
           SIZE * 1e-3 / time_one(iface, start_copy, &place, SIZE, 0));
    CHECK(memcmp(host, back, SIZE) == 0);
    place = (place_t){iface, device, host};
    printf("pageable to device, 64 MiB %28.2f GB/s\n",
           SIZE * 1e-3 / time_one(iface, start_copy, &place, SIZE, 0));
    close_tl(md, iface);
    free(host);
    free(back);
}

/* ---- between processes ---- */

typedef struct {
    uint64_t address;
    uint64_t key_length;
    uint8_t  key[UCT_RKEY_MAX];
    uint64_t contact_length;
    uint8_t  contact[255];
} news_t;

static void own(int fd, const char *path)
{
    char *host = malloc(SIZE);
    uct_iface_t *iface;
    place_t place;
    uct_mem_t *mem;
    uct_md_t *md, *copy_md;
    news_t news = {0};
    size_t i;
    char *device;
    char end;

    CHECK(cuda_start(path, 1) > 0);
    device = cuda_alloc(SIZE);
    open_tl("cuda_copy", &copy_md, &iface);
    for (i = 0; i < SIZE; ++i) {
        host[i] = (char)(i * 2654435761u >> 11);
    }
    place = (place_t){iface, device, host};
    CHECK(start_copy(&place, 0, SIZE, NULL) == UCS_OK);
    close_tl(copy_md, iface);

    open_tl("cuda_ipc", &md, &iface);
    CHECK(md->tl->md.reg(md, device, SIZE, NULL, &mem) == UCS_OK);
    news.address        = (uintptr_t)device;
    news.key_length     = md->tl->md.rkey_pack(mem, news.key);
    news.contact_length = iface->tl->iface.get_address(iface, news.contact);
    CHECK(write(fd, &news, sizeof(news)) == sizeof(news));
    (void)!read(fd, &end, 1);
    md->tl->md.release(mem);
    close_tl(md, iface);
    exit(0);
}

typedef struct {
    uct_ep_t   *ep;
    char       *local;
    uint64_t    remote;
    uct_rkey_t *rkey;
    int         is_put;
} remote_t;

static ucs_status_t start_remote(void *arg, size_t offset, size_t length, uct_completion_t *comp)
{
    remote_t *r   = arg;
    uct_iov_t iov = {r->local + offset, length, NULL};

    return r->is_put ?
           r->ep->ops->put_zcopy(r->ep, &iov, 1, r->remote + offset, r->rkey, comp) :
           r->ep->ops->get_zcopy(r->ep, &iov, 1, r->remote + offset, r->rkey, comp);
}

static void measure_keys(uct_md_t *md, char *device)
{
    double begin = now_us();
    uint8_t key[UCT_RKEY_MAX];
    uct_mem_t *mem;
    int i;

    for (i = 0; i < 10000; ++i) {
        CHECK(md->tl->md.reg(md, device + i, 1000, NULL, &mem) == UCS_OK);
        (void)md->tl->md.rkey_pack(mem, key);
        md->tl->md.release(mem);
    }
    printf("register, pack, release %25.3f us\n", (now_us() - begin) / 10000);
}

static void measure_remote(int fd)
{
    static const size_t sizes[]       = {8, 65536, 262144, 1ul << 20};
    const uint8_t uid[UCT_UID_LEN]    = {1};
    remote_t r                        = {.local = cuda_alloc(SIZE)};
    char *host                        = malloc(SIZE);
    uct_iface_t *iface, *copy_iface;
    uct_md_t *md, *copy_md;
    place_t place;
    double begin;
    news_t news;
    size_t i;

    open_tl("cuda_ipc", &md, &iface);
    open_tl("cuda_copy", &copy_md, &copy_iface);
    CHECK(recv(fd, &news, sizeof(news), MSG_WAITALL) == sizeof(news));
    CHECK(uct_ep_open(iface, uid, news.contact, news.contact_length, NULL, &r.ep) == UCS_OK);
    CHECK(md->tl->md.rkey_unpack(md, news.key, news.key_length, &r.rkey) == UCS_OK);
    r.remote = news.address;
    begin    = now_us();
    CHECK(start_remote(&r, 0, SIZE, NULL) == UCS_OK);
    printf("first get, 64 MiB %31.2f us\n", now_us() - begin);
    place = (place_t){copy_iface, host, r.local};
    CHECK(start_copy(&place, 0, SIZE, NULL) == UCS_OK);
    for (i = 0; i < SIZE; ++i) {
        CHECK(host[i] == (char)(i * 2654435761u >> 11));
    }
    measure_keys(md, r.local);
    for (r.is_put = 0; r.is_put < 2; ++r.is_put) {
        for (i = 0; i < ucs_array_size(sizes); ++i) {
            double one    = time_one(iface, start_remote, &r, sizes[i], 0);
            double window = time_window(iface, start_remote, &r, sizes[i]);
            printf("%s %8zu B: %8.2f us, window of 64: %6.2f us each, %6.1f GB/s\n",
                   r.is_put ? "put" : "get", sizes[i], one, window, sizes[i] * 1e-3 / window);
        }
    }
    md->tl->md.rkey_release(r.rkey);
    uct_ep_close(r.ep);
    close_tl(md, iface);
    close_tl(copy_md, copy_iface);
    free(host);
}

int main(int argc, char **argv)
{
    const char *path = (argc > 1) ? argv[1] : "libcuda.so.1";
    int fds[2], status;
    pid_t child;

    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(fds[0]);
        own(fds[1], path);
    }
    close(fds[1]);
    if (cuda_start(path, 0) == 0) {
        printf("no device\n");
        return 77;
    }
    measure_copies();
    measure_remote(fds[0]);
    CHECK(write(fds[0], "", 1) == 1);
    CHECK((waitpid(child, &status, 0) == child) && (status == 0));
    return 0;
}
