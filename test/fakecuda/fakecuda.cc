/* Halyard: a CUDA driver without devices, for tests.
 *
 * It follows what a real driver was seen to do, where our code depends on it (driver 580).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "fakecuda.h"

#include <uct/cuda/cuda_driver.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int MAP_REFUSED = 205;

struct allocation {
    enum { DEVICE, MANAGED, PINNED, REGISTERED, IMPORTED } kind;
    uintptr_t base;
    size_t size;
    char *shadow; /* where its bytes can be reached */
    int fd;       /* -1: none of its own */
    int device;
    uct_cu_ctx_t ctx; /* NULL: pools and mapped pieces */
    uint64_t id;
    uintptr_t range; /* the reservation, of mapped pieces */
    size_t range_size; /* of pools: the offset in the file */
    int handle_types;
    CUmemPoolHandle_st *pool;
    std::string origin; /* imported: the handle */
    unsigned refs;
    bool sync_memops;
    bool is_foreign; /* of another process */
};

} // namespace

/* All of a pool lies in one file, so that who has its descriptor has its memory. */
struct CUmemPoolHandle_st {
    int fd, device, handle_types;
    bool is_imported, is_destroyed;
    size_t used;                /* bytes of the file that were given out */
    unsigned count;             /* allocations, or what is imported of them */
    std::set<int> accessible;   /* devices */
};

struct CUmod_st;

namespace {

constexpr int ALREADY_REGISTERED = 712; /* an error that the library need not tell from others */

struct copy {
    char *dest;
    const char *src;
    size_t length;
};

/* A kernel that copies, by blocks: each starts, and ends at a later tick. */
struct kernel_run {
    CUmod_st *module; /* NULL: none */
    uint64_t number;
    uint64_t *ended_p;
    unsigned row; /* blocks that share a copy */
    std::vector<size_t> row_ends; /* in the work's copies */
    std::vector<bool> is_off; /* of the blocks that have started */
    unsigned ended;
};

struct work {
    std::vector<copy> copies;
    int ticks;
    bool is_foreign; /* some memory is another process's */
    kernel_run kernel;
};

std::recursive_mutex lock;
std::map<uintptr_t, allocation> memory; /* by base */
std::map<uintptr_t, size_t> reservations;
std::map<int, int> piece_devices; /* by descriptor */
std::map<int, int> piece_types;   /* kinds of handles, by descriptor */
std::map<int, bool> piece_foreign;
std::map<std::string, uint64_t> calls;
std::map<uintptr_t, uint64_t> asked; /* questions about addresses */
std::set<const void *> alive; /* contexts, streams, events */
std::string fail_name;
uint64_t fail_at, fail_seen, misuses, pageable, foreign, last_id = 100;
int fail_result, fail_all, ticks = 2, devices = 2, version = 13000, lose, room = -1, linger;
int stuck; /* 1: copies of foreign memory, 2: all */
bool initialised, gone, capturing, kernel;

thread_local std::vector<uct_cu_ctx_t> stack;
thread_local int capture_mode;

} // namespace

struct CUctx_st {
    int device;
    uint64_t id;
    unsigned refs; /* of primary ones */
};

struct CUstream_st {
    uct_cu_ctx_t ctx;
    std::deque<work> queue;
    uint64_t posted, done;
};

/* What the kernel and whoever recalls it count in the device's memory. */
struct kernel_counts {
    uint32_t started, ended;
    uint64_t recalled;
};

struct CUmod_st {
    uct_cu_ctx_t ctx;
    uct_cu_ptr_t ptr;
    kernel_counts *counts; /* where they can be reached */
};

struct CUevent_st {
    uct_cu_ctx_t ctx;
    uct_cu_stream_t stream;
    uint64_t mark;
};

namespace {

CUctx_st primary[8];

uct_cu_ctx_t current()
{
    return stack.empty() ? nullptr : stack.back();
}

int misuse(const char *what, int result)
{
    if (misuses++ == 0) {
        fprintf(stderr, "fakecuda: %s\n", what);
    }
    return result;
}

/* What every call begins with. */
int enter(const char *name, bool needs_init = true)
{
    ++calls[name];
    if ((fail_at != 0) && (fail_name.empty() || (fail_name == name))) {
        ++fail_seen;
        if ((fail_seen == fail_at) || (fail_all && (fail_seen > fail_at))) {
            return fail_result;
        }
    }
    return gone ? UCT_CU_DEINITIALIZED : (needs_init && !initialised) ? UCT_CU_NOT_INITIALIZED : 0;
}

#define ENTER(_name) \
    std::lock_guard<std::recursive_mutex> guard(lock); \
    if (int result_ = enter(#_name)) { \
        return result_; \
    }

/* Calls that another thread's capture forbids. */
#define ENTER_UNSAFE(_name) \
    ENTER(_name) \
    if (capturing && (capture_mode != UCT_CU_CAPTURE_RELAXED)) { \
        return misuse(#_name " amid a capture", UCT_CU_CAPTURE_UNSUPPORTED); \
    }

/* Calls that wait for the kernels that run: whoever works for one of them would wait for ever. */
#define WAIT_FOR_KERNELS(_name) \
    if (kernel) { \
        return misuse(#_name " waits for a kernel", UCT_CU_NOT_READY); \
    }

#define NEED_CONTEXT() \
    if ((current() == nullptr) || !alive.count(current())) { \
        return UCT_CU_INVALID_CONTEXT; \
    }

allocation *find(uintptr_t address)
{
    auto it = memory.upper_bound(address);

    if ((it == memory.begin()) || ((--it)->second.base + it->second.size <= address)) {
        return nullptr;
    }
    return &it->second;
}

/* Place of a range where its bytes can be reached; NULL where a part of it is not there. */
char *reach(uintptr_t address, size_t length)
{
    const allocation *a = find(address);

    if (a == nullptr) {
        ++pageable;
        return reinterpret_cast<char *>(address);
    }
    while ((a != nullptr) && (a->base + a->size < address + length)) { /* pieces side by side */
        const allocation *next = find(a->base + a->size);
        if ((next == nullptr) || (a->range == 0) || (next->range != a->range)) {
            return nullptr;
        }
        a = next;
    }
    a = find(address);
    return a->shadow + (address - a->base);
}

/* Devices reach the memory of a pool when they were given access. */
bool is_forbidden(const allocation *a)
{
    return (a != nullptr) && (a->pool != nullptr) && (current() != nullptr) &&
           (a->pool->accessible.count(current()->device) == 0);
}

/* Shares of a copy that lie in one piece each. */
int cut(work &w, uintptr_t dest, uintptr_t src, size_t length)
{
    if ((reach(dest, length) == nullptr) || (reach(src, length) == nullptr)) {
        return UCT_CU_INVALID_VALUE;
    }
    if (is_forbidden(find(dest)) || is_forbidden(find(src))) {
        return misuse("a copy of a device without access to the pool", UCT_CU_INVALID_VALUE);
    }
    const allocation *to = find(dest), *from = find(src);
    if (((to != nullptr) && to->is_foreign && (lose >= 1)) ||
        ((from != nullptr) && from->is_foreign && (lose >= 2))) {
        return 0; /* without a word */
    }
    if (((to != nullptr) && to->is_foreign) || ((from != nullptr) && from->is_foreign)) {
        w.is_foreign = true;
        ++foreign;
    }
    while (length > 0) {
        size_t part = length;
        for (uintptr_t p : {dest, src}) {
            if (const allocation *a = find(p)) {
                part = std::min(part, a->base + a->size - p);
            }
        }
        w.copies.push_back({reach(dest, part), reach(src, part), part});
        dest   += part;
        src    += part;
        length -= part;
    }
    return 0;
}

size_t blocks_of(const kernel_run &k)
{
    return k.row_ends.size() * k.row;
}

/* Blocks that have started end, others start, as many as there is room for. */
void step(work &w)
{
    kernel_run &k         = w.kernel;
    kernel_counts &counts = *k.module->counts;

    for (; !linger && (k.ended < k.is_off.size()); ++k.ended, ++counts.ended) {
        const size_t row = k.ended / k.row;
        if (k.is_off[k.ended] || ((k.ended % k.row) != 0)) {
            continue;
        }
        for (size_t i = (row == 0) ? 0 : k.row_ends[row - 1]; i < k.row_ends[row]; ++i) {
            memmove(w.copies[i].dest, w.copies[i].src, w.copies[i].length);
        }
    }
    while ((k.is_off.size() < blocks_of(k)) &&
           ((room < 0) || (k.is_off.size() < static_cast<size_t>(room)))) {
        ++counts.started;
        k.is_off.push_back(k.number <= counts.recalled);
    }
    if (k.ended == blocks_of(k)) {
        counts.started = counts.ended = 0;
        __atomic_store_n(k.ended_p, k.number, __ATOMIC_RELEASE);
    }
}

bool is_over(const work &w)
{
    return (w.kernel.module == nullptr) || (w.kernel.ended == blocks_of(w.kernel));
}

bool has_room(const work &w)
{
    return (w.kernel.module == nullptr) || (!linger && (room < 0)) ||
           (!linger && (blocks_of(w.kernel) <= static_cast<size_t>(room)));
}

void pop(CUstream_st *stream)
{
    stream->queue.pop_front();
    ++stream->done;
}

void perform(CUstream_st *stream)
{
    work &w = stream->queue.front();

    if (w.kernel.module == nullptr) {
        for (const copy &c : w.copies) {
            memmove(c.dest, c.src, c.length);
        }
    }
    while (!is_over(w)) {
        step(w);
    }
    pop(stream);
}

bool is_stuck(const CUstream_st *stream)
{
    return !stream->queue.empty() && ((stuck > (stream->queue.front().is_foreign ? 0 : 1)) ||
                                      !has_room(stream->queue.front()));
}

void tick(CUstream_st *stream)
{
    if (stream->queue.empty()) {
        return;
    }
    work &w = stream->queue.front();
    if ((w.kernel.module != nullptr) && (stuck <= (w.is_foreign ? 0 : 1)) && (--w.ticks <= 0)) {
        step(w);
        if (is_over(w)) {
            pop(stream);
        }
    } else if (!is_stuck(stream) && (--w.ticks <= 0)) {
        perform(stream);
    }
}

std::set<CUstream_st *> streams;
std::set<CUevent_st *> events;
std::set<CUmod_st *> modules;

/* Nobody asks about streams of kernels. */
void tick_kernels()
{
    for (CUstream_st *stream : streams) {
        if (!stream->queue.empty() && (stream->queue.front().kernel.module != nullptr)) {
            tick(stream);
        }
    }
}

std::vector<copy> tail; /* of copies from pageable memory, after the call has returned */
std::deque<std::vector<char>> tail_bytes;

void finish_tail()
{
    for (const copy &c : tail) {
        memcpy(c.dest, c.src, c.length);
    }
    tail.clear();
    tail_bytes.clear();
}

void drain()
{
    finish_tail();
    for (CUstream_st *stream : streams) {
        while (!stream->queue.empty() && !is_stuck(stream)) {
            perform(stream);
        }
    }
}

int check_stream(uct_cu_stream_t stream)
{
    if ((stream == nullptr) || !alive.count(stream)) {
        return misuse("the default stream, or one that is gone", UCT_CU_INVALID_HANDLE);
    }
    return (stream->ctx == current()) ? 0 :
           misuse("a stream of another context", UCT_CU_INVALID_HANDLE);
}

/* Memory of devices lies in blocks of addresses of its own, as with a real driver: never beside
 * memory of the host in one block. */
constexpr size_t BLOCK = size_t(2) << 20;

size_t whole_blocks(size_t size)
{
    return (size + BLOCK - 1) & ~(BLOCK - 1);
}

std::deque<uintptr_t> given_back; /* addresses, the latest first: they are used again */

void give_back_blocks(uintptr_t place, size_t size)
{
    munmap(reinterpret_cast<void *>(place), whole_blocks(size));
    given_back.push_front(place);
    if (given_back.size() > 64) {
        given_back.pop_back();
    }
}

/* Addresses for so much. 0: there are none. */
uintptr_t reserve_blocks(size_t size)
{
    const size_t length = whole_blocks(size);
    const int flags     = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    for (auto it = given_back.begin(); it != given_back.end(); ++it) {
        const uintptr_t place = *it;
        if (mmap(reinterpret_cast<void *>(place), length, PROT_NONE, flags | MAP_FIXED_NOREPLACE,
                 -1, 0) != MAP_FAILED) {
            given_back.erase(it);
            return place;
        }
    }
    void *room       = mmap(nullptr, length + BLOCK, PROT_NONE, flags, -1, 0);
    const auto begin = reinterpret_cast<uintptr_t>(room);
    const auto place = whole_blocks(begin);
    if (room == MAP_FAILED) {
        return 0;
    }
    if (place > begin) {
        munmap(room, place - begin);
    }
    if (place < begin + BLOCK) {
        munmap(reinterpret_cast<void *>(place + length), begin + BLOCK - place);
    }
    return place;
}

/* New memory that only the second mapping reaches. */
int make_device(int fd, size_t size, uintptr_t place, allocation *a, size_t offset = 0)
{
    const size_t pages = (size + 4095) & ~4095ul;
    const off_t from   = static_cast<off_t>(offset);

    place = (place == 0) ? reserve_blocks(size) : place;
    if (place == 0) {
        return UCT_CU_OUT_OF_MEMORY;
    }
    void *address = mmap(reinterpret_cast<void *>(place), pages, PROT_NONE, MAP_SHARED | MAP_FIXED,
                         fd, from);
    void *shadow  = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);

    if ((address == MAP_FAILED) || (shadow == MAP_FAILED)) {
        return UCT_CU_OUT_OF_MEMORY;
    }
    *a        = allocation{};
    a->kind   = allocation::DEVICE;
    a->base   = reinterpret_cast<uintptr_t>(address);
    a->size   = size;
    a->shadow = static_cast<char *>(shadow);
    a->fd     = fd;
    a->id     = ++last_id;
    return 0;
}

int make_memory(size_t size, allocation *a)
{
    const int fd = memfd_create("fakecuda", MFD_CLOEXEC);

    if ((fd < 0) || (ftruncate(fd, static_cast<off_t>((size + 4095) & ~4095ul)) != 0)) {
        return UCT_CU_OUT_OF_MEMORY;
    }
    return make_device(fd, size, 0, a);
}

void end_pool(uct_cu_pool_t pool)
{
    if (pool->is_destroyed && (pool->count == 0)) {
        close(pool->fd);
    }
}

/* Does a copy still use memory that can be reached there? */
bool is_in_use(const char *begin, const char *end)
{
    for (const CUstream_st *stream : streams) {
        for (const work &w : stream->queue) {
            const char *ended = reinterpret_cast<const char *>(w.kernel.ended_p);
            if ((begin <= ended) && (ended < end)) {
                return true;
            }
            if ((w.kernel.module != nullptr) && (w.kernel.ended == w.kernel.is_off.size()) &&
                (w.kernel.number <= w.kernel.module->counts->recalled)) {
                continue; /* it was recalled, and touches nothing */
            }
            for (const copy &c : w.copies) {
                if (((c.dest < end) && (begin < c.dest + c.length)) ||
                    ((c.src < end) && (begin < c.src + c.length))) {
                    return true;
                }
            }
        }
    }
    return false;
}

void drop(std::map<uintptr_t, allocation>::iterator it)
{
    allocation &a      = it->second;
    const size_t pages = (a.size + 4095) & ~4095ul;

    drain();
    if (is_in_use(a.shadow, a.shadow + a.size)) {
        misuse("memory given back that a copy still uses", 0);
    }
    if (a.kind != allocation::REGISTERED) {
        if (a.shadow != reinterpret_cast<char *>(a.base)) {
            munmap(a.shadow, pages);
        }
        if (a.kind == allocation::PINNED) {
            munmap(reinterpret_cast<void *>(a.base), pages);
        } else if (a.range == 0) {
            give_back_blocks(a.base, pages);
        } else {
            mmap(reinterpret_cast<void *>(a.base), pages, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
    }
    if (a.pool != nullptr) {
        --a.pool->count;
        end_pool(a.pool);
    } else if (a.fd >= 0) {
        close(a.fd);
    }
    memory.erase(it);
}

/* Nothing new takes the place of what has ended, so that its use later is seen. It stays within
 * reach of those who look for leaks, also when the program ends. */
void bury(const void *object)
{
    static std::vector<const void *> &graves = *new std::vector<const void *>;

    alive.erase(object);
    graves.push_back(object);
}

template <typename T> void bury_all(std::set<T *> &things, uct_cu_ctx_t ctx)
{
    for (auto it = things.begin(); it != things.end();) {
        if ((*it)->ctx == ctx) {
            bury(*it);
            it = things.erase(it);
        } else {
            ++it;
        }
    }
}

void destroy(uct_cu_ctx_t ctx)
{
    bury(ctx);
    drain();
    bury_all(streams, ctx); /* with what does not end */
    bury_all(events, ctx);
    bury_all(modules, ctx);
    for (auto it = memory.begin(); it != memory.end();) {
        auto next = std::next(it);
        if (it->second.ctx == ctx) {
            drop(it);
        }
        it = next;
    }
    ctx->id = 0;
}

int allocate(uct_cu_ptr_t *ptr_p, size_t size)
{
    allocation a;

    if (size == 0) {
        return UCT_CU_INVALID_VALUE;
    }
    if (const int result = make_memory(size, &a)) {
        return result;
    }
    a.device       = current()->device;
    a.ctx          = current();
    memory[a.base] = a;
    *ptr_p         = a.base;
    return 0;
}

/* Pools stay within reach as what is buried does. */
uct_cu_pool_t make_pool(int fd, int device, int handle_types)
{
    static std::deque<CUmemPoolHandle_st> &pools = *new std::deque<CUmemPoolHandle_st>;

    pools.push_back({fd, device, handle_types, false, false, 0, 0, {device}});
    return &pools.back();
}

/* Adds a range of a pool's file. */
int map_pool(uct_cu_ptr_t *ptr_p, uct_cu_pool_t pool, size_t offset, size_t size)
{
    allocation a;

    if (const int result = make_device(pool->fd, size, 0, &a, offset)) {
        return result;
    }
    a.device       = pool->device;
    a.pool         = pool;
    a.range_size   = offset;
    memory[a.base] = a;
    *ptr_p         = a.base;
    ++pool->count;
    return 0;
}

/* What is told of an allocation of a pool. */
struct pool_pointer {
    uint64_t file, offset, size;
};

uint64_t file_of(int fd)
{
    struct stat st;

    return (fstat(fd, &st) == 0) ? st.st_ino : 0;
}

struct handle {
    uint32_t pid;
    int32_t fd;
    uint64_t size, id;
    int32_t device;
};

} // namespace

extern "C" {

uint64_t fakecuda_calls(const char *name)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    uint64_t count = 0;

    for (const auto &c : calls) {
        count += ((name == nullptr) || (c.first == name)) ? c.second : 0;
    }
    return count;
}

uint64_t fakecuda_asked(const void *address)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    return asked[reinterpret_cast<uintptr_t>(address)];
}

void fakecuda_fail(const char *name, uint64_t k, int result, int all)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    fail_name   = (name == nullptr) ? "" : name;
    fail_at     = k;
    fail_seen   = 0;
    fail_result = result;
    fail_all    = all;
}

uint64_t fakecuda_misuses(void)
{
    return misuses;
}

uint64_t fakecuda_foreign(void)
{
    return foreign;
}

uint64_t fakecuda_pageable(void)
{
    return pageable;
}

void *fakecuda_reach(const void *address, size_t length)
{
    const auto place = reinterpret_cast<uintptr_t>(address);
    std::lock_guard<std::recursive_mutex> guard(lock);

    return (find(place) == nullptr) ? const_cast<void *>(address) : reach(place, length);
}

unsigned fakecuda_depth(void)
{
    return static_cast<unsigned>(stack.size());
}

void fakecuda_set(const char *what, int value)
{
    const std::string name = what;

    (name == "ticks" ? ticks : name == "devices" ? devices : version) =
        (name == "ticks" || name == "devices" || name == "version") ? value : version;
    lose      = (name == "lose") ? value : lose;
    room      = (name == "room") ? value : room;
    linger    = (name == "linger") ? value : linger;
    if (name == "step") {
        tick_kernels();
    }
    capturing = (name == "capture") ? value != 0 : capturing;
    gone      = (name == "gone") ? value != 0 : gone;
    stuck     = (name == "stuck") ? value : stuck;
    kernel    = (name == "kernel") ? value != 0 : kernel;
}

/* ---- the driver, contexts, devices ---- */

int cuInit(unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    initialised = true;
    return enter("cuInit");
}

int cuGetErrorName(int, const char **text_p)
{
    *text_p = "FAKE_ERROR";
    return 0;
}

int cuCtxCreate_v2(uct_cu_ctx_t *ctx_p, unsigned, int device)
{
    ENTER(cuCtxCreate)
    *ctx_p = new CUctx_st{device, ++last_id, 0};
    alive.insert(*ctx_p);
    stack.push_back(*ctx_p);
    return 0;
}

int cuCtxDestroy_v2(uct_cu_ctx_t ctx)
{
    ENTER(cuCtxDestroy)
    if (!alive.count(ctx)) {
        return UCT_CU_INVALID_CONTEXT;
    }
    if (current() == ctx) {
        stack.pop_back();
    }
    destroy(ctx);
    return 0;
}

int cuCtxSetCurrent(uct_cu_ctx_t ctx)
{
    ENTER(cuCtxSetCurrent)
    if (!stack.empty()) {
        stack.pop_back();
    }
    if (ctx != nullptr) {
        stack.push_back(ctx);
    }
    return 0;
}

int cuCtxGetCurrent(uct_cu_ctx_t *ctx_p)
{
    ENTER(cuCtxGetCurrent)
    *ctx_p = current();
    return 0;
}

/* A real driver crashes with one that has ended. */
int cuCtxPushCurrent_v2(uct_cu_ctx_t ctx)
{
    ENTER(cuCtxPushCurrent)
    if (!alive.count(ctx)) {
        return misuse("a context entered that is gone", UCT_CU_INVALID_CONTEXT);
    }
    stack.push_back(ctx);
    tick_kernels();
    return 0;
}

int cuCtxPopCurrent_v2(uct_cu_ctx_t *ctx_p)
{
    std::lock_guard<std::recursive_mutex> guard(lock);

    ++calls["cuCtxPopCurrent"]; /* does not fail: nobody could do anything about it */
    if (stack.empty()) {
        return misuse("a context popped that was not pushed", UCT_CU_INVALID_CONTEXT);
    }
    *ctx_p = current();
    stack.pop_back();
    return 0;
}

int cuCtxGetDevice(int *device_p)
{
    ENTER(cuCtxGetDevice)
    NEED_CONTEXT()
    *device_p = current()->device;
    return 0;
}

/* The same. */
int cuCtxGetId(uct_cu_ctx_t ctx, unsigned long long *id_p)
{
    ENTER(cuCtxGetId)
    if (!alive.count(ctx)) {
        return misuse("the number of a context that is gone", UCT_CU_CONTEXT_IS_DESTROYED);
    }
    *id_p = (version < 12000) ? 0 : ctx->id;
    return 0;
}

int cuDeviceGetCount(int *count_p)
{
    ENTER(cuDeviceGetCount)
    *count_p = devices;
    return 0;
}

int cuDriverGetVersion(int *version_p)
{
    ENTER(cuDriverGetVersion)
    *version_p = version;
    return 0;
}

int cuDeviceCanAccessPeer(int *can_p, int, int)
{
    ENTER(cuDeviceCanAccessPeer)
    *can_p = 1;
    return 0;
}

int cuDeviceGet(int *device_p, int ordinal)
{
    ENTER(cuDeviceGet)
    *device_p = ordinal;
    return (ordinal < devices) ? 0 : UCT_CU_INVALID_VALUE;
}

int cuDeviceGetUuid_v2(uct_cu_uuid_t *uuid, int device)
{
    ENTER(cuDeviceGetUuid)
    memset(uuid, 0, sizeof(*uuid));
    snprintf(uuid->bytes, sizeof(uuid->bytes), "fake device %d", device);
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags_p, int *active_p)
{
    ENTER(cuDevicePrimaryCtxGetState)
    *flags_p  = 0;
    *active_p = (primary[device].refs > 0);
    return 0;
}

int cuDevicePrimaryCtxRetain(uct_cu_ctx_t *ctx_p, int device)
{
    ENTER(cuDevicePrimaryCtxRetain)
    *ctx_p = &primary[device];
    if (primary[device].refs++ == 0) {
        primary[device].device = device;
        primary[device].id     = ++last_id;
        alive.insert(*ctx_p);
    }
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER(cuDevicePrimaryCtxRelease)
    if (--primary[device].refs == 0) {
        destroy(&primary[device]);
    }
    return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode_p)
{
    ENTER(cuThreadExchangeStreamCaptureMode)
    std::swap(*mode_p, capture_mode);
    return 0;
}

/* ---- memory ---- */

int cuMemAlloc_v2(uct_cu_ptr_t *ptr_p, size_t size)
{
    ENTER_UNSAFE(cuMemAlloc)
    NEED_CONTEXT()
    return allocate(ptr_p, size);
}

int cuMemAllocFromPoolAsync(uct_cu_ptr_t *ptr_p, size_t size, uct_cu_pool_t pool, uct_cu_stream_t)
{
    ENTER_UNSAFE(cuMemAllocFromPoolAsync)
    NEED_CONTEXT()
    const size_t offset = pool->used;
    if ((size == 0) || pool->is_imported) {
        return UCT_CU_INVALID_VALUE;
    }
    pool->used += (size + 4095) & ~4095ul;
    return (ftruncate(pool->fd, static_cast<off_t>(pool->used)) != 0) ? UCT_CU_OUT_OF_MEMORY :
           map_pool(ptr_p, pool, offset, size);
}

int cuMemAllocAsync(uct_cu_ptr_t *ptr_p, size_t size, uct_cu_stream_t stream)
{
    static uct_cu_pool_t pools[8];

    ENTER_UNSAFE(cuMemAllocAsync)
    NEED_CONTEXT()
    uct_cu_pool_t &pool = pools[current()->device];
    if (pool == nullptr) {
        pool = make_pool(memfd_create("fakecuda", MFD_CLOEXEC), current()->device, 0);
    }
    return cuMemAllocFromPoolAsync(ptr_p, size, pool, stream);
}

/* Properties as in cuMemCreate. */
int cuMemPoolCreate(uct_cu_pool_t *pool_p, const int *properties)
{
    ENTER_UNSAFE(cuMemPoolCreate)
    *pool_p = make_pool(memfd_create("fakecuda", MFD_CLOEXEC), properties[3], properties[1]);
    return 0;
}

/* What is left of it keeps it. */
int cuMemPoolDestroy(uct_cu_pool_t pool)
{
    ENTER_UNSAFE(cuMemPoolDestroy)
    pool->is_destroyed = true;
    end_pool(pool);
    return 0;
}

int cuMemPoolSetAccess(uct_cu_pool_t pool, const uct_cu_access_t *access, size_t count)
{
    ENTER_UNSAFE(cuMemPoolSetAccess)
    for (size_t i = 0; i < count; ++i) {
        if ((access[i].location.type != UCT_CU_LOCATION_DEVICE) ||
            (access[i].location.id < 0) || (access[i].location.id >= devices)) {
            return UCT_CU_INVALID_VALUE;
        }
        pool->accessible.insert(access[i].location.id);
    }
    return 0;
}

int cuMemPoolExportToShareableHandle(void *out, uct_cu_pool_t pool, int type, unsigned long long)
{
    ENTER_UNSAFE(cuMemPoolExportToShareableHandle)
    if (((pool->handle_types & type) == 0) || (type != UCT_CU_HANDLE_DESCRIPTOR)) {
        return UCT_CU_INVALID_VALUE;
    }
    *static_cast<int *>(out) = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int cuMemPoolExportPointer(uct_cu_pool_pointer_t *out, uct_cu_ptr_t ptr)
{
    ENTER_UNSAFE(cuMemPoolExportPointer)
    const allocation *a = find(ptr);
    if ((a == nullptr) || (a->base != ptr) || (a->pool == nullptr) || a->pool->is_imported ||
        (a->pool->handle_types == 0)) {
        return UCT_CU_INVALID_VALUE;
    }
    const pool_pointer p = {file_of(a->pool->fd), a->range_size, a->size};
    memset(out, 0, sizeof(*out));
    memcpy(out, &p, sizeof(p));
    return 0;
}

/* Reachable from its own device only, until somebody says more; nothing tells which one that is,
 * so it is none. */
int cuMemPoolImportFromShareableHandle(uct_cu_pool_t *pool_p, void *in, int type,
                                       unsigned long long)
{
    ENTER_UNSAFE(cuMemPoolImportFromShareableHandle)
    const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(in)), F_DUPFD_CLOEXEC, 0);
    if ((fd < 0) || (type != UCT_CU_HANDLE_DESCRIPTOR)) {
        return UCT_CU_INVALID_VALUE;
    }
    *pool_p                = make_pool(fd, 0, 0);
    (*pool_p)->is_imported = true;
    (*pool_p)->accessible.clear();
    return 0;
}

int cuMemPoolImportPointer(uct_cu_ptr_t *ptr_p, uct_cu_pool_t pool, uct_cu_pool_pointer_t *in)
{
    ENTER_UNSAFE(cuMemPoolImportPointer)
    struct stat st;
    pool_pointer p;

    memcpy(&p, in, sizeof(p));
    if (!pool->is_imported || (p.file != file_of(pool->fd)) || (fstat(pool->fd, &st) != 0) ||
        (p.size == 0) || (p.offset > static_cast<uint64_t>(st.st_size)) ||
        (p.size > static_cast<uint64_t>(st.st_size) - p.offset) || (p.offset % 4096 != 0)) {
        return UCT_CU_INVALID_VALUE;
    }
    if (const int result = map_pool(ptr_p, pool, p.offset, p.size)) {
        return result;
    }
    memory[*ptr_p].kind       = allocation::IMPORTED;
    memory[*ptr_p].is_foreign = true;
    return 0;
}

/* Of this process; 64 GiB when there is nothing. */
int cuMemGetInfo_v2(size_t *free_p, size_t *total_p)
{
    ENTER(cuMemGetInfo)
    *total_p = size_t(64) << 30;
    *free_p  = *total_p;
    for (const auto &entry : memory) {
        if ((entry.second.kind == allocation::DEVICE) ||
            (entry.second.kind == allocation::MANAGED)) {
            *free_p -= entry.second.size;
        }
    }
    return 0;
}

int cuMemAllocManaged(uct_cu_ptr_t *ptr_p, size_t size, unsigned)
{
    ENTER_UNSAFE(cuMemAllocManaged)
    NEED_CONTEXT()
    if (const int result = allocate(ptr_p, size)) {
        return result;
    }
    mprotect(reinterpret_cast<void *>(*ptr_p), size, PROT_READ | PROT_WRITE);
    memory[*ptr_p].kind = allocation::MANAGED;
    return 0;
}

int cuMemFree_v2(uct_cu_ptr_t ptr)
{
    ENTER_UNSAFE(cuMemFree)
    WAIT_FOR_KERNELS(cuMemFree)
    const auto it = memory.find(ptr);
    if ((it == memory.end()) ||
        ((it->second.kind > allocation::MANAGED) &&
         ((it->second.kind != allocation::IMPORTED) || (it->second.pool == nullptr)))) {
        return UCT_CU_INVALID_VALUE;
    }
    drop(it);
    return 0;
}

int cuMemHostRegister_v2(void *address, size_t size, unsigned)
{
    ENTER_UNSAFE(cuMemHostRegister)
    NEED_CONTEXT()
    const uct_cu_ptr_t base = reinterpret_cast<uintptr_t>(address);
    const auto next         = memory.lower_bound(base + size);
    if ((next != memory.begin()) &&
        (std::prev(next)->first + std::prev(next)->second.size > base)) {
        return ALREADY_REGISTERED;
    }
    allocation a = {};
    a.kind       = allocation::REGISTERED;
    a.base       = reinterpret_cast<uintptr_t>(address);
    a.size       = size;
    a.shadow     = static_cast<char *>(address);
    a.fd         = -1;
    a.device     = current()->device;
    a.ctx        = current();
    a.id         = ++last_id;
    memory[a.base] = a;
    return 0;
}

int cuMemHostUnregister(void *address)
{
    ENTER_UNSAFE(cuMemHostUnregister)
    WAIT_FOR_KERNELS(cuMemHostUnregister)
    const auto it = memory.find(reinterpret_cast<uintptr_t>(address));
    if ((it == memory.end()) || (it->second.kind != allocation::REGISTERED)) {
        return misuse("unregistered what was not registered", UCT_CU_INVALID_VALUE);
    }
    const uintptr_t page = it->first & ~uintptr_t(4095);
    if (msync(reinterpret_cast<void *>(page), it->first + it->second.size - page, MS_ASYNC) != 0) {
        misuse("memory was unmapped before it was unregistered", 0);
    }
    drop(it);
    return 0;
}

int cuMemHostAlloc(void **address_p, size_t size, unsigned flags)
{
    ENTER_UNSAFE(cuMemHostAlloc)
    NEED_CONTEXT()
    *address_p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cuMemHostRegister_v2(*address_p, size, flags);
    memory[reinterpret_cast<uintptr_t>(*address_p)].kind = allocation::PINNED;
    return 0;
}

int cuMemFreeHost(void *address)
{
    ENTER_UNSAFE(cuMemFreeHost)
    WAIT_FOR_KERNELS(cuMemFreeHost)
    drop(memory.find(reinterpret_cast<uintptr_t>(address)));
    return 0;
}

/* Pieces mapped into a reservation; a handle is a descriptor. */
int cuMemAddressReserve(uct_cu_ptr_t *ptr_p, size_t size, size_t, uct_cu_ptr_t, unsigned long long)
{
    ENTER_UNSAFE(cuMemAddressReserve)
    *ptr_p = reserve_blocks(size);
    reservations[*ptr_p] = size;
    return (*ptr_p == 0) ? UCT_CU_OUT_OF_MEMORY : 0;
}

int cuMemCreate(unsigned long long *handle_p, size_t size, const void *properties,
                unsigned long long)
{
    ENTER_UNSAFE(cuMemCreate)
    const int fd = memfd_create("fakecuda", MFD_CLOEXEC);
    *handle_p    = static_cast<unsigned long long>(fd);
    /* Behind the type, the kinds of handles and the type of the location. */
    piece_devices[fd] = static_cast<const int *>(properties)[3];
    piece_types[fd]   = static_cast<const int *>(properties)[1];
    piece_foreign[fd] = false;
    return (ftruncate(fd, static_cast<off_t>(size)) == 0) ? 0 : UCT_CU_OUT_OF_MEMORY;
}

int cuMemRelease(unsigned long long handle)
{
    ENTER_UNSAFE(cuMemRelease)
    close(static_cast<int>(handle));
    return 0;
}

int cuMemMap(uct_cu_ptr_t ptr, size_t size, size_t, unsigned long long handle, unsigned long long)
{
    ENTER_UNSAFE(cuMemMap)
    auto range = reservations.upper_bound(ptr);
    allocation a;
    if (range == reservations.begin()) {
        return UCT_CU_INVALID_VALUE;
    }
    --range;
    struct stat st;
    if ((fstat(static_cast<int>(handle), &st) != 0) || (size > static_cast<size_t>(st.st_size))) {
        return UCT_CU_INVALID_VALUE;
    }
    if (const int result = make_device(dup(static_cast<int>(handle)), size, ptr, &a)) {
        return result;
    }
    a.device       = piece_devices[static_cast<int>(handle)];
    a.handle_types = piece_types[static_cast<int>(handle)];
    a.is_foreign   = piece_foreign[static_cast<int>(handle)];
    a.range        = range->first;
    a.range_size   = range->second;
    memory[a.base] = a;
    return 0;
}

int cuMemSetAccess(uct_cu_ptr_t, size_t, const void *, size_t)
{
    ENTER(cuMemSetAccess)
    return 0;
}

int cuMemUnmap(uct_cu_ptr_t ptr, size_t size)
{
    ENTER_UNSAFE(cuMemUnmap)
    for (const uct_cu_ptr_t end = ptr + size; ptr < end;) {
        const auto it = memory.find(ptr);
        if ((it == memory.end()) || (it->second.range == 0) || (it->second.size > end - ptr)) {
            return misuse("unmapped what is not mapped so", UCT_CU_INVALID_VALUE);
        }
        ptr += it->second.size;
        drop(it);
    }
    return 0;
}

int cuMemAddressFree(uct_cu_ptr_t ptr, size_t size)
{
    ENTER_UNSAFE(cuMemAddressFree)
    reservations.erase(ptr);
    give_back_blocks(ptr, size);
    return 0;
}

int cuMemRetainAllocationHandle(unsigned long long *handle_p, void *address)
{
    ENTER_UNSAFE(cuMemRetainAllocationHandle)
    const allocation *a = find(reinterpret_cast<uintptr_t>(address));
    if ((a == nullptr) || (a->range == 0)) {
        return UCT_CU_INVALID_VALUE;
    }
    const int fd = dup(a->fd);
    piece_types[fd]   = a->handle_types;
    piece_foreign[fd] = a->is_foreign;
    *handle_p       = static_cast<unsigned long long>(fd);
    return 0;
}

int cuMemExportToShareableHandle(void *out, unsigned long long handle, int type,
                                 unsigned long long)
{
    ENTER_UNSAFE(cuMemExportToShareableHandle)
    if (((piece_types[static_cast<int>(handle)] & type) == 0) ||
        (type != UCT_CU_HANDLE_DESCRIPTOR)) {
        return UCT_CU_INVALID_VALUE;
    }
    *static_cast<int *>(out) = dup(static_cast<int>(handle));
    return 0;
}

int cuMemImportFromShareableHandle(unsigned long long *handle_p, void *in, int)
{
    ENTER_UNSAFE(cuMemImportFromShareableHandle)
    const int fd      = dup(static_cast<int>(reinterpret_cast<intptr_t>(in)));
    piece_types[fd]   = 0;
    piece_devices[fd] = 0;
    piece_foreign[fd] = true;
    *handle_p         = static_cast<unsigned long long>(fd);
    return (fd >= 0) ? 0 : UCT_CU_INVALID_VALUE;
}

int cuPointerSetAttribute(const void *value, int attribute, uct_cu_ptr_t ptr)
{
    ENTER_UNSAFE(cuPointerSetAttribute)
    allocation *a = find(ptr);
    if ((a == nullptr) || (attribute != UCT_CU_POINTER_SYNC_MEMOPS)) {
        return UCT_CU_INVALID_VALUE;
    }
    finish_tail();
    a->sync_memops = *static_cast<const unsigned *>(value) != 0;
    return 0;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uct_cu_ptr_t ptr)
{
    ENTER(cuPointerGetAttributes)
    ++asked[ptr];
    const allocation *a = find(ptr);
    const allocation none = {};
    const bool is_host    = (a != nullptr) && ((a->kind == allocation::PINNED) ||
                                               (a->kind == allocation::REGISTERED));
    const bool is_legacy  = (a != nullptr) && (a->kind == allocation::DEVICE) &&
                            (a->ctx != nullptr);
    const auto set = [&](unsigned i, auto value) { memcpy(data[i], &value, sizeof(value)); };

    a = (a == nullptr) ? &none : a;
    for (unsigned i = 0; i < count; ++i) {
        switch (attributes[i]) {
        case UCT_CU_POINTER_CONTEXT:
            set(i, a->ctx);
            break;
        case UCT_CU_POINTER_MEMORY_TYPE:
            set(i, (a == &none) ? 0 : is_host ? UCT_CU_MEMORY_HOST : UCT_CU_MEMORY_DEVICE);
            break;
        case UCT_CU_POINTER_BUFFER_ID:
            set(i, a->id);
            break;
        case UCT_CU_POINTER_IS_MANAGED:
            set(i, static_cast<int>((a != &none) && (a->kind == allocation::MANAGED)));
            break;
        case UCT_CU_POINTER_ORDINAL:
            set(i, (a == &none) ? -2 : a->device);
            break;
        case UCT_CU_POINTER_SYNC_MEMOPS:
            set(i, static_cast<int>(a->sync_memops));
            break;
        case UCT_CU_POINTER_LEGACY_IPC:
            set(i, static_cast<int>(is_legacy));
            break;
        case UCT_CU_POINTER_RANGE_START:
            set(i, (a->range != 0) ? a->range : a->base);
            break;
        case UCT_CU_POINTER_RANGE_SIZE:
            set(i, (a->range != 0) ? a->range_size : a->size);
            break;
        case UCT_CU_POINTER_HANDLE_TYPES:
            set(i, static_cast<uint64_t>(a->handle_types));
            break;
        case UCT_CU_POINTER_POOL:
            set(i, a->pool);
            break;
        case UCT_CU_POINTER_MAPPING_BASE:
            set(i, a->base);
            break;
        case UCT_CU_POINTER_MAPPING_SIZE:
            set(i, (a->pool != nullptr) ? size_t(32) << 20 : a->size);
            break;
        default:
            return UCT_CU_INVALID_VALUE;
        }
    }
    return 0;
}

/* ---- streams, events, copies ---- */

int cuStreamCreate(uct_cu_stream_t *stream_p, unsigned flags)
{
    ENTER(cuStreamCreate)
    NEED_CONTEXT()
    if (flags != UCT_CU_STREAM_NON_BLOCKING) {
        return misuse("a stream that waits for the default one", UCT_CU_INVALID_VALUE);
    }
    *stream_p = new CUstream_st{current(), {}, 0, 0};
    alive.insert(*stream_p);
    streams.insert(*stream_p);
    return 0;
}

int cuStreamDestroy_v2(uct_cu_stream_t stream)
{
    ENTER(cuStreamDestroy)
    if (const int result = check_stream(stream)) {
        return result;
    }
    drain();
    bury(stream);
    if (stream->queue.empty()) {
        streams.erase(stream);
    }
    return 0;
}

int cuStreamQuery(uct_cu_stream_t stream)
{
    ENTER_UNSAFE(cuStreamQuery)
    if (const int result = check_stream(stream)) {
        return result;
    }
    tick(stream);
    return stream->queue.empty() ? 0 : UCT_CU_NOT_READY;
}

int cuStreamSynchronize(uct_cu_stream_t)
{
    ENTER_UNSAFE(cuStreamSynchronize)
    drain();
    return 0;
}

int cuCtxSynchronize(void)
{
    ENTER_UNSAFE(cuCtxSynchronize)
    drain();
    return 0;
}

int cuEventCreate(uct_cu_event_t *event_p, unsigned)
{
    ENTER(cuEventCreate)
    NEED_CONTEXT()
    *event_p = new CUevent_st{current(), nullptr, 0};
    alive.insert(*event_p);
    events.insert(*event_p);
    return 0;
}

int cuEventDestroy_v2(uct_cu_event_t event)
{
    ENTER(cuEventDestroy)
    if (!alive.count(event) || !alive.count(event->ctx)) {
        return misuse("an event that went with its context", UCT_CU_CONTEXT_IS_DESTROYED);
    }
    alive.erase(event);
    events.erase(event);
    delete event;
    return 0;
}

int cuEventRecord(uct_cu_event_t event, uct_cu_stream_t stream)
{
    ENTER(cuEventRecord)
    if (const int result = check_stream(stream)) {
        return result;
    }
    event->stream = stream;
    event->mark   = stream->posted;
    return (event->ctx == stream->ctx) ? 0 :
           misuse("an event of another context", UCT_CU_INVALID_HANDLE);
}

int cuEventQuery(uct_cu_event_t event)
{
    ENTER_UNSAFE(cuEventQuery)
    if (!alive.count(event) || (event->ctx != current())) {
        return misuse("an event without its context", UCT_CU_INVALID_HANDLE);
    }
    if (event->stream == nullptr) {
        return 0;
    }
    tick(event->stream);
    return (event->stream->done >= event->mark) ? 0 : UCT_CU_NOT_READY;
}

/* What a device still writes to memory of the host is lost where another stream writes there. */
static void check_writers(const CUstream_st *stream, const work &w)
{
    for (const copy &c : w.copies) {
        const allocation *to = find(reinterpret_cast<uintptr_t>(c.dest));
        if ((to == nullptr) || (to->kind != allocation::REGISTERED)) {
            continue;
        }
        for (const CUstream_st *other : streams) {
            for (const work &before : other->queue) {
                for (const copy &b : before.copies) {
                    if ((other != stream) && (b.dest < c.dest + c.length) &&
                        (c.dest < b.dest + b.length)) {
                        misuse("two streams write to one place", 0);
                    }
                }
            }
        }
    }
}

static int post(uct_cu_stream_t stream, work &&w)
{
    check_writers(stream, w);
    w.ticks = ticks;
    stream->queue.push_back(std::move(w));
    ++stream->posted;
    if ((ticks == 0) && !is_stuck(stream)) {
        perform(stream);
    }
    return 0;
}

int cuMemcpyAsync(uct_cu_ptr_t dest, uct_cu_ptr_t src, size_t length, uct_cu_stream_t stream)
{
    ENTER_UNSAFE(cuMemcpyAsync)
    work w = {};
    if (const int result = check_stream(stream)) {
        return result;
    }
    if (const int result = cut(w, dest, src, length)) {
        return result;
    }
    return post(stream, std::move(w));
}

/* From the host only. */
int cuMemcpy2DAsync_v2(const uct_cu_rows_t *rows, uct_cu_stream_t stream)
{
    ENTER_UNSAFE(cuMemcpy2DAsync)
    work w = {};
    if (const int result = check_stream(stream)) {
        return result;
    }
    if ((rows->src_type != UCT_CU_MEMORY_HOST) || (rows->dest_type != UCT_CU_MEMORY_DEVICE) ||
        (rows->src_pitch < rows->width) || (rows->dest_pitch < rows->width)) {
        return UCT_CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < rows->height; ++i) {
        const auto src = reinterpret_cast<uintptr_t>(rows->src_host) + i * rows->src_pitch;
        if (const int result = cut(w, rows->dest_device + i * rows->dest_pitch, src,
                                   rows->width)) {
            return result;
        }
    }
    return post(stream, std::move(w));
}

int cuMemcpyBatchAsync_v2(uct_cu_ptr_t *dests, uct_cu_ptr_t *srcs, size_t *lengths, size_t count,
                          uct_cu_copy_attributes_t *attributes, size_t *indices,
                          size_t num_attributes, uct_cu_stream_t stream)
{
    ENTER_UNSAFE(cuMemcpyBatchAsync)
    work w = {};
    if (const int result = check_stream(stream)) {
        return result;
    }
    if ((version < 12080) || (num_attributes != 1) || (indices[0] != 0) ||
        (attributes->src_access_order != UCT_CU_SRC_ORDER_STREAM)) {
        return (version < 12080) ? UCT_CU_NOT_SUPPORTED : UCT_CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
        if (const int result = cut(w, dests[i], srcs[i], lengths[i])) {
            return result;
        }
    }
    if (!w.copies.empty()) {
        std::swap(w.copies.front(), w.copies.back()); /* in no order */
    }
    return post(stream, std::move(w));
}

/* ---- kernels ---- */

int cuStreamCreateWithPriority(uct_cu_stream_t *stream_p, unsigned flags, int)
{
    return cuStreamCreate(stream_p, flags);
}

int cuMemHostGetDevicePointer_v2(uct_cu_ptr_t *ptr_p, void *address, unsigned)
{
    ENTER(cuMemHostGetDevicePointer)
    const allocation *a = find(reinterpret_cast<uintptr_t>(address));
    *ptr_p              = reinterpret_cast<uintptr_t>(address);
    return ((a != nullptr) && ((a->kind == allocation::PINNED) ||
                               (a->kind == allocation::REGISTERED))) ? 0 : UCT_CU_INVALID_VALUE;
}

int cuModuleLoadDataEx(uct_cu_module_t *module_p, const void *image, unsigned, int *, void **)
{
    ENTER_UNSAFE(cuModuleLoadDataEx)
    NEED_CONTEXT()
    WAIT_FOR_KERNELS(cuModuleLoadDataEx)
    uct_cu_ptr_t ptr;
    if ((strncmp(static_cast<const char *>(image), ".version ", 9) != 0) ||
        (allocate(&ptr, sizeof(kernel_counts)) != 0)) {
        return UCT_CU_INVALID_VALUE;
    }
    char *counts = find(ptr)->shadow;
    *module_p    = new CUmod_st{current(), ptr, reinterpret_cast<kernel_counts *>(counts)};
    alive.insert(*module_p);
    modules.insert(*module_p);
    return 0;
}

static int check_module(const CUmod_st *module)
{
    return (alive.count(module) && (module->ctx == current())) ? 0 :
           misuse("a module without its context", UCT_CU_INVALID_HANDLE);
}

int cuModuleUnload(uct_cu_module_t module)
{
    ENTER_UNSAFE(cuModuleUnload)
    WAIT_FOR_KERNELS(cuModuleUnload)
    if (const int result = check_module(module)) {
        return result;
    }
    drop(memory.find(module->ptr));
    bury(module);
    modules.erase(module);
    return 0;
}

/* A module has one function. */
int cuModuleGetFunction(uct_cu_function_t *function_p, uct_cu_module_t module, const char *name)
{
    ENTER(cuModuleGetFunction)
    *function_p = reinterpret_cast<uct_cu_function_t>(module);
    return (strcmp(name, "halyard_copy") == 0) ? check_module(module) : UCT_CU_NOT_FOUND;
}

int cuModuleGetGlobal_v2(uct_cu_ptr_t *ptr_p, size_t *length_p, uct_cu_module_t module,
                         const char *name)
{
    ENTER(cuModuleGetGlobal)
    *ptr_p    = module->ptr;
    *length_p = sizeof(kernel_counts);
    return (strcmp(name, "halyard_counts") == 0) ? check_module(module) : UCT_CU_NOT_FOUND;
}

/* What a kernel does not reach costs the program its context. */
static bool is_reached_by_kernels(uintptr_t address, size_t length)
{
    const allocation *a = find(address);

    return (a != nullptr) && (a->base + a->size >= address + length) &&
           ((a->kind == allocation::DEVICE) || (a->kind == allocation::IMPORTED)) &&
           ((a->ctx == nullptr) || (a->ctx == current())) && !is_forbidden(a);
}

int cuLaunchKernel(uct_cu_function_t function, unsigned x, unsigned y, unsigned z, unsigned,
                   unsigned, unsigned, unsigned, uct_cu_stream_t stream, void **, void **extra)
{
    ENTER_UNSAFE(cuLaunchKernel)
    struct params {
        uint64_t ended_ptr, number;
        struct {
            uint64_t dest, src, length;
        } copies[1];
    };
    const auto *p = static_cast<const params *>(extra[1]);
    const auto module = reinterpret_cast<uct_cu_module_t>(function);
    work w = {};
    if (int result = check_stream(stream) | check_module(module)) {
        return result;
    }
    if ((extra[0] != UCT_CU_LAUNCH_BUFFER) || (extra[2] != UCT_CU_LAUNCH_SIZE) || (z != 1) ||
        (extra[4] != nullptr) || (x == 0) || (y == 0) ||
        (*static_cast<size_t *>(extra[3]) != offsetof(params, copies) + y * 24)) {
        return UCT_CU_INVALID_VALUE;
    }
    w.kernel = {module, p->number, reinterpret_cast<uint64_t *>(p->ended_ptr), x, {}, {}, 0};
    for (unsigned i = 0; i < y; ++i) {
        const auto &c = p->copies[i];
        if (!is_reached_by_kernels(c.dest, c.length) || !is_reached_by_kernels(c.src, c.length)) {
            return misuse("a kernel touches what it does not reach", UCT_CU_INVALID_VALUE);
        }
        if (const int result = cut(w, c.dest, c.src, c.length)) {
            return result;
        }
        w.kernel.row_ends.push_back(w.copies.size());
    }
    return post(stream, std::move(w));
}

/* Of tests, which wait. */
int cuMemcpyHtoD_v2(uct_cu_ptr_t dest, const void *src, size_t length)
{
    ENTER_UNSAFE(cuMemcpyHtoD)
    work w = {};
    if (const int result = cut(w, dest, reinterpret_cast<uintptr_t>(src), length)) {
        return result;
    }
    finish_tail();
    const allocation *to = find(dest);
    for (const copy &c : w.copies) {
        if ((to != nullptr) && (to->kind == allocation::DEVICE) && !to->sync_memops &&
            (length >= 65536)) {
            tail_bytes.emplace_back(c.src, c.src + c.length);
            tail.push_back({c.dest, tail_bytes.back().data(), c.length});
        } else {
            memcpy(c.dest, c.src, c.length);
        }
    }
    return 0;
}

int cuMemcpyDtoH_v2(void *dest, uct_cu_ptr_t src, size_t length)
{
    ENTER_UNSAFE(cuMemcpyDtoH)
    return cuMemcpyHtoD_v2(reinterpret_cast<uintptr_t>(dest), reinterpret_cast<void *>(src),
                           length);
}

/* ---- other processes ---- */

int cuIpcGetMemHandle(uct_cu_ipc_handle_t *out, uct_cu_ptr_t ptr)
{
    ENTER_UNSAFE(cuIpcGetMemHandle)
    NEED_CONTEXT()
    const allocation *a = find(ptr);
    if ((a == nullptr) || (a->kind != allocation::DEVICE) || (a->ctx == nullptr)) {
        return UCT_CU_INVALID_VALUE;
    }
    const handle h = {static_cast<uint32_t>(getpid()), a->fd, a->size, a->id, a->device};
    memset(out, 0, sizeof(*out));
    memcpy(out, &h, sizeof(h));
    return 0;
}

int cuIpcOpenMemHandle_v2(uct_cu_ptr_t *ptr_p, uct_cu_ipc_handle_t in, unsigned)
{
    ENTER_UNSAFE(cuIpcOpenMemHandle)
    NEED_CONTEXT()
    const std::string origin(in.data, sizeof(handle));
    struct stat st;
    char path[64];
    handle h;
    allocation a;

    memcpy(&h, in.data, sizeof(h));
    if (h.pid == static_cast<uint32_t>(getpid())) {
        return UCT_CU_INVALID_CONTEXT;
    }
    for (auto &m : memory) {
        if (m.second.origin == origin) {
            if (m.second.ctx != current()) {
                return UCT_CU_ALREADY_MAPPED;
            }
            ++m.second.refs;
            *ptr_p = m.second.base;
            return 0;
        }
    }
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if ((fd < 0) || (fstat(fd, &st) != 0) || !S_ISREG(st.st_mode) || (h.size == 0) ||
        (h.size > static_cast<uint64_t>(st.st_size)) || (make_device(fd, h.size, 0, &a) != 0)) {
        return MAP_REFUSED;
    }
    a.kind         = allocation::IMPORTED;
    a.is_foreign   = true;
    a.device       = current()->device;
    a.ctx          = current();
    a.origin       = origin;
    a.refs         = 1;
    memory[a.base] = a;
    *ptr_p         = a.base;
    return 0;
}

int cuIpcCloseMemHandle(uct_cu_ptr_t ptr)
{
    ENTER_UNSAFE(cuIpcCloseMemHandle)
    WAIT_FOR_KERNELS(cuIpcCloseMemHandle)
    const auto it = memory.find(ptr);
    if ((it == memory.end()) || (it->second.kind != allocation::IMPORTED) ||
        (it->second.pool != nullptr)) {
        return misuse("closed a mapping that is not there", UCT_CU_INVALID_VALUE);
    }
    if (--it->second.refs == 0) {
        drop(it);
    }
    return 0;
}
}
