/* Halyard: device memory as ucp sees it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/mem.h>
#include <ucp/core/wakeup.h>
#include <ucp/dt/dt.h>
#include <ucp/protos/rdma.h>
#include <ucp/protos/rndv.h>
#include <ucs/arch/cpu.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define UCP_DEVICE_TRUST_NS  8000.0             /* see device.h */
#define UCP_DEVICE_STACK_MAX ((size_t)64 << 20) /* so near a program's stack nothing is mapped */

/* Of this thread; length 0: it has not been looked for. */
static __thread ucp_device_range_t ucp_device_stack __attribute__((tls_model("initial-exec")));

/* ---- which memory it is ---- */

/* A field of the process's status line (proc(5)), behind the name, which may hold spaces; 0: not
 * told. */
static uintptr_t ucp_device_stat(const char *line, int field)
{
    const char *pos = strrchr(line, ')');

    for (; (pos != NULL) && (field > 2); --field) {
        pos = strchr(pos + 1, ' ');
    }
    return (pos == NULL) ? 0 : (uintptr_t)strtoull(pos, NULL, 10);
}

/* Static data: what is written to of the first object, which is the program. */
static int ucp_device_find_data(struct dl_phdr_info *info, size_t size UCS_UNUSED, void *arg)
{
    ucp_device_range_t *data = arg;
    const ElfW(Phdr) *header;
    unsigned i;

    for (i = 0; i < info->dlpi_phnum; ++i) {
        header = &info->dlpi_phdr[i];
        if ((header->p_type == PT_LOAD) && (header->p_flags & PF_W)) {
            *data = (ucp_device_range_t){info->dlpi_addr + header->p_vaddr, header->p_memsz};
        }
    }
    return 1;
}

/* What of the process is the host's for certain; a child has it at the same place. */
typedef struct {
    uintptr_t          heap; /* its start; 0: not told */
    ucp_device_range_t data, first_stack;
} ucp_device_own_t;

static void ucp_device_look_for_own(ucp_device_own_t *own)
{
    char line[1024];
    size_t length = 0;
    uintptr_t top;

    memset(own, 0, sizeof(*own));
    (void)ucs_sys_read_file("/proc/self/stat", line, sizeof(line) - 1, &length);
    line[length] = '\0';
    own->heap    = ucp_device_stat(line, 47);
    top          = ucp_device_stat(line, 28); /* of the first thread's stack */
    if (top != 0) {
        own->first_stack = (ucp_device_range_t){top - UCP_DEVICE_STACK_MAX, UCP_DEVICE_STACK_MAX};
    }
    (void)dl_iterate_phdr(ucp_device_find_data, &own->data);
}

/* Looked for once, or by each worker until one keeps it: a fork may leave nobody who does. */
static void ucp_device_find_own(ucp_worker_t *worker)
{
    enum { NONE, KEEPING, KEPT };
    static ucp_device_own_t kept;
    static int state;
    ucp_device_own_t own;
    int none = NONE;

    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == KEPT) { /* A0 */
        own = kept;
    } else {
        ucp_device_look_for_own(&own);
        if ((own.heap != 0) && __atomic_compare_exchange_n(&state, &none, KEEPING, 0,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            kept = own;
            __atomic_store_n(&state, KEPT, __ATOMIC_RELEASE); /* R0 */
        }
    }

    worker->host_base          = own.heap;
    worker->host_length        = 0;
    worker->device.data        = own.data;
    worker->device.first_stack = own.first_stack;
}

ucs_status_t ucp_device_init(ucp_worker_t *worker)
{
    ucp_device_t *device = &worker->device;
    ucp_context_t *context = worker->context;
    unsigned i;

    worker->host_base   = 0;
    worker->host_length = SIZE_MAX;
    for (i = 0; i < context->num_tls; ++i) {
        if ((context->tls[i].tl->md.mem_query != NULL) &&
            (context->tls[i].tl->iface.copy != NULL)) {
            if (worker->tls[i].iface == NULL) { /* which opens wherever there is memory */
                ucs_error("memory of devices could not be told from the host's: %s",
                          worker->tls[i].reason);
                return UCS_ERR_NO_MEMORY;
            }
            device->md          = context->tls[i].md;
            device->iface       = worker->tls[i].iface;
            device->trust       = (uint64_t)(UCP_DEVICE_TRUST_NS * 1e-9 * ucs_arch_tsc_hz());
            ucp_device_find_own(worker);
            break;
        }
    }
    return UCS_OK;
}

static void ucp_device_free_window(ucp_device_window_t *window)
{
    if (window->mem != NULL) {
        window->mem->md->tl->md.release(window->mem);
    }
}

void ucp_device_cleanup(ucp_worker_t *worker)
{
    ucp_device_pool_t *pool;

    while ((pool = worker->device.pools) != NULL) {
        worker->device.pools = pool->next;
        pool->mem->is_lost   = worker->device.is_stuck; /* the device has it */
        pool->mem->md->tl->md.release(pool->mem);
        ucs_sys_free(pool);
    }
    ucp_device_free_window(&worker->device.read_window);
    ucp_device_free_window(&worker->device.write_window);
}

/* Was the block around the address the host's a moment ago? */
static int ucp_device_was_host(const ucp_device_t *device, uintptr_t address)
{
    uintptr_t block                = address >> UCP_DEVICE_BLOCK_BITS;
    const ucp_device_block_t *host = &device->hosts[block % UCP_DEVICE_BLOCKS];

    return device->is_started && (host->block == block) &&
           (ucs_arch_read_tsc() - host->tsc < device->trust);
}

static int ucp_device_is_inside(const ucp_device_range_t *range, uintptr_t address)
{
    return address - range->base < range->length;
}

/* In a frame of this thread that calls us? A program may run on stacks of its own. */
static int ucp_device_is_stack(uintptr_t address)
{
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);

    return (address > frame) && ucp_device_is_inside(&ucp_device_stack, address) &&
           ucp_device_is_inside(&ucp_device_stack, frame);
}

static void ucp_device_find_stack(const ucp_device_t *device)
{
    pthread_attr_t attributes;
    void *base    = NULL;
    size_t length = 0;

    if (ucp_device_is_inside(&device->first_stack, (uintptr_t)__builtin_frame_address(0))) {
        ucp_device_stack = device->first_stack;
        return;
    }
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        (void)pthread_attr_getstack(&attributes, &base, &length);
        pthread_attr_destroy(&attributes);
    }
    length           = ucs_min(length, UCP_DEVICE_STACK_MAX);
    ucp_device_stack = (ucp_device_range_t){(uintptr_t)base, ucs_max(length, (size_t)1)};
}

int ucp_device_is_host(const ucp_worker_t *worker, uintptr_t address)
{
    const ucp_device_t *device = &worker->device;

    return ucp_device_is_inside(&device->data, address) || ucp_device_is_stack(address) ||
           ucp_device_is_idle(device) ||
           (!worker->lock.enabled && ucp_device_was_host(device, address));
}

/* Inside the heap as it is now? */
static int ucp_device_is_heap(ucp_worker_t *worker, uintptr_t address)
{
    size_t length;

    if ((worker->host_base == 0) || (address < worker->host_base)) {
        return 0;
    }
    length = (uintptr_t)sbrk(0) - worker->host_base;
    __atomic_store_n(&worker->host_length, length, __ATOMIC_RELAXED); /* read without the lock */
    return address - worker->host_base < length;
}

UCS_COLD int ucp_device_is_unreadable(const void *address, ucs_status_t status)
{
    struct iovec remote = {(void *)(uintptr_t)address, 1};
    char byte;
    struct iovec local = {&byte, 1};

    ucs_diag("the driver of the devices does not tell what memory at %p is: %s", address,
             ucs_status_string(status));
    return (ucs_sys_process_vm_readv(ucs_sys_getpid(), &local, 1, &remote, 1, 0) < 0) &&
           (errno == EFAULT);
}

/* What the driver says of the address, or that it does not run; as ucp_device_query. */
static int ucp_device_ask(ucp_worker_t *worker, const void *address, uct_mem_info_t *info_p)
{
    ucp_device_t *device = &worker->device;
    uintptr_t block      = (uintptr_t)address >> UCP_DEVICE_BLOCK_BITS;
    uint64_t now         = ucs_arch_read_tsc(); /* before the answer, which is no younger */
    uint64_t now_ns      = device->is_started ? 0 : ucs_sys_clock_coarse_ns();
    ucs_status_t status  = device->md->tl->md.mem_query(device->md, address, 1, info_p);

    if (status == UCS_ERR_NO_DEVICE) {
        __atomic_store_n(&device->asked_ns, now_ns, __ATOMIC_RELAXED);
        return 0;
    }
    __atomic_store_n(&device->is_started, 1, __ATOMIC_RELAXED);
    if (ucs_unlikely(status != UCS_OK)) {
        *info_p = (uct_mem_info_t){.type = UCS_MEMORY_TYPE_CUDA, .base = (void *)address};
        return ucp_device_is_unreadable(address, status);
    }
    if (info_p->type != UCS_MEMORY_TYPE_HOST) {
        return 1;
    }
    device->hosts[block % UCP_DEVICE_BLOCKS] = (ucp_device_block_t){block, now};
    if (ucs_unlikely(ucp_device_stack.length == 0)) {
        ucp_device_find_stack(device);
    }
    return 0;
}

int ucp_device_query(ucp_worker_t *worker, const void *address, uct_mem_info_t *info_p)
{
    ucp_device_t *device = &worker->device;

    if ((device->had != NULL) && (device->had == address) &&
        (ucs_arch_read_tsc() - device->had_tsc < device->trust)) {
        device->had = NULL;
        *info_p     = device->had_info;
        return 1;
    }
    if ((device->md == NULL) || ucp_device_is_idle(device) ||
        ucp_device_was_host(device, (uintptr_t)address) ||
        ucp_device_is_heap(worker, (uintptr_t)address)) {
        return 0;
    }
    return ucp_device_ask(worker, address, info_p);
}

int ucp_device_is_used(ucp_worker_t *worker)
{
    uct_mem_info_t info;

    if ((worker->device.md != NULL) && !worker->device.is_started &&
        !ucp_device_is_idle(&worker->device)) {
        (void)ucp_device_ask(worker, worker, &info);
    }
    return worker->device.is_started;
}

int ucp_device_reaches(ucp_worker_t *worker, const void *address)
{
    const ucp_device_t *device = &worker->device;
    uct_mem_info_t info;

    return ucp_device_is_used(worker) &&
           (device->md->tl->md.mem_query(device->md, address, 1, &info) == UCS_OK) &&
           (info.type == UCS_MEMORY_TYPE_HOST) && info.is_pinned;
}

int ucp_device_is_whole(ucp_request_t *req, size_t length)
{
    uct_md_t *md         = req->worker->device.md;
    uct_mem_info_t *info = &req->copy.info;
    uct_mem_info_t all;

    if (ucs_likely(length <= info->length - ((uintptr_t)req->buffer - (uintptr_t)info->base))) {
        return 1;
    }
    if ((md->tl->md.mem_query(md, req->buffer, length, &all) != UCS_OK) ||
        (all.type == UCS_MEMORY_TYPE_HOST) ||
        (length > all.length - ((uintptr_t)req->buffer - (uintptr_t)all.base))) {
        return 0;
    }
    *info = all;
    return 1;
}

int ucp_device_has_slow(ucp_worker_t *worker, const void *address)
{
    ucp_device_t *device = &worker->device;
    int is_device;

    ucp_worker_lock(worker);
    device->had     = NULL;
    device->had_tsc = ucs_arch_read_tsc();
    is_device       = ucp_device_query(worker, address, &device->had_info);
    device->had     = is_device ? address : NULL; /* who sends it asks again in a moment */
    ucp_worker_unlock(worker);
    return is_device;
}

/* ---- copies by this side ---- */

static ucs_status_t ucp_device_copy_now(ucp_worker_t *worker, void *dest, const void *src,
                                        size_t length, unsigned flags)
{
    uct_iface_t *iface = worker->device.iface;

    return (length == 0) ? UCS_OK : iface->tl->iface.copy(iface, dest, src, length, flags, NULL);
}

ucs_status_t ucp_device_copy(ucp_worker_t *worker, void *dest, const void *src, size_t length)
{
    return ucp_device_copy_now(worker, dest, src, length, 0);
}

ucs_status_t ucp_device_stage(ucp_request_t *req)
{
    void *copy = ucp_worker_data_get(req->worker, ucs_max(req->length, (size_t)1));

    if (copy == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    if (ucp_dt_pack(req, 0, copy, req->length) != req->length) {
        ucp_worker_data_put(copy);
        return UCS_ERR_IO_ERROR;
    }
    req->buffer   = copy;
    req->datatype = ucp_dt_make_contig(1);
    req->held    |= UCP_REQUEST_HOLDS_STAGE;
    return UCS_OK;
}

/* ---- windows ---- */

/* The window is there and free of what was in it. 0: there is none. */
static int ucp_device_window_take(ucp_worker_t *worker, ucp_device_window_t *window,
                                  const ucp_device_user_t *user, void *address)
{
    uct_md_t *md = worker->device.md;

    if ((window->mem == NULL) && (md->tl->md.alloc(md, address, UCP_DEVICE_WINDOW,
                                                   UCT_MEM_ALLOC_PINNED, &window->mem) != UCS_OK)) {
        window->mem = NULL;
        return 0;
    }
    if (window->mem->is_lost) {
        return 0;
    }
    window->user    = *user;
    window->address = address;
    window->length  = 0;
    return 1;
}

size_t ucp_device_read(ucp_worker_t *worker, const void *user, const void *address, size_t rest,
                       void *dest, size_t length)
{
    ucp_device_window_t *window  = &worker->device.read_window;
    const ucp_device_user_t mine = {.id = user};
    char *first                  = (char *)(uintptr_t)address;
    size_t offset                = (uintptr_t)first - (uintptr_t)window->address;
    ucs_status_t status;

    length = ucs_min(length, UCP_DEVICE_WINDOW);
    if ((window->user.id != user) || (first < window->address) || (offset > window->length) ||
        (length > window->length - offset)) {
        if ((length == rest) || !ucp_device_window_take(worker, window, &mine, first)) {
            return (ucp_device_copy(worker, dest, address, length) == UCS_OK) ? length : 0;
        }
        window->length = ucs_min(rest, UCP_DEVICE_WINDOW);
        offset         = 0;
        status = ucp_device_copy(worker, window->mem->address, first, window->length);
        if (status != UCS_OK) {
            window->mem->is_lost |= (status == UCS_ERR_TIMED_OUT); /* the device may still write */
            window->user.id       = NULL;
            return 0;
        }
    }
    memcpy(dest, (char *)window->mem->address + offset, length);
    return length;
}

/* A peer's memory may have been unmapped since the peer began. What a receive waits for nobody
 * looks at before it ends; of puts, a word is written at once. */
static ucs_status_t ucp_device_store(ucp_worker_t *worker, const ucp_device_user_t *user,
                                     void *address, const void *src, size_t length)
{
    ucs_status_t status = UCS_ERR_INVALID_ADDR;

    if (user->mem_id == 0) {
        status = ucp_device_copy_now(worker, address, src, length,
                                     worker->device.is_shared ? UCT_COPY_IN_ROWS : 0);
    } else if (ucp_mem_hold(worker->context, user->mem_id, (uintptr_t)address, length,
                            UCP_MEM_WRITE) != NULL) {
        status = ucp_device_copy(worker, address, src, length);
        ucp_mem_drop(worker->context);
    }
    if ((status != UCS_OK) && (*user->result == UCS_OK)) {
        *user->result = status;
    }
    return status;
}

static void ucp_device_empty_window(ucp_worker_t *worker, ucp_device_window_t *window)
{
    ucs_status_t status;

    if (window->user.id != NULL) {
        status = ucp_device_store(worker, &window->user, window->address, window->mem->address,
                                  window->length);
        window->mem->is_lost |= (status == UCS_ERR_TIMED_OUT); /* the device may still read */
        window->user.id       = NULL;
    }
}

void ucp_device_write(ucp_worker_t *worker, const ucp_device_user_t *user, void *address,
                      size_t rest, const void *src, size_t length)
{
    ucp_device_window_t *window = &worker->device.write_window;
    const int is_ours           = (window->user.id == user->id);

    if (!is_ours || ((char *)address != window->address + window->length) ||
        (length > UCP_DEVICE_WINDOW - window->length)) {
        if (is_ours || (length < rest)) {
            ucp_device_empty_window(worker, window);
        }
        if ((!is_ours && (length == rest)) || (length > UCP_DEVICE_WINDOW) ||
            !ucp_device_window_take(worker, window, user, address)) {
            (void)ucp_device_store(worker, user, address, src, length);
            return;
        }
    }
    memcpy((char *)window->mem->address + window->length, src, length);
    window->length += length;
}

void ucp_device_flush(ucp_worker_t *worker, const void *user)
{
    ucp_device_window_t *window = &worker->device.write_window;

    if (window->user.id == user) {
        ucp_device_empty_window(worker, window);
    }
}

void ucp_device_forget(ucp_worker_t *worker, const void *user)
{
    ucp_window_forget(&worker->device.read_window, user);
    ucp_window_forget(&worker->device.write_window, user);
}

/* ---- copies of the DEVICE lane ---- */

void ucp_device_transferred(uct_completion_t *comp)
{
    ucp_request_t *req        = ucs_container_of(comp, ucp_request_t, copy.comp);
    ucp_device_then_cb_t then = req->copy.then;

    if (!(req->held & UCP_REQUEST_HOLDS_COPY)) {
        return;
    }
    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_COPY;
    if (req->worker->is_ending) { /* without a word to the user */
        if (req->held & UCP_REQUEST_HOLDS_MEM) {
            req->held &= (uint16_t)~UCP_REQUEST_HOLDS_MEM;
            ucp_rdma_release(req);
        }
    } else if (then == NULL) {
        ucp_rndv_ended_late(req);
        ucp_request_complete(req, req->copy.late);
    } else {
        then(req, comp->status);
    }
}

void ucp_device_end_later(ucp_request_t *req, ucs_status_t status)
{
    uint16_t keep = req->held & (UCP_REQUEST_HOLDS_COPY | UCP_REQUEST_HOLDS_CHUNKS |
                                 UCP_REQUEST_HOLDS_TRACKED | UCP_REQUEST_HOLDS_MEM);

    if (ucp_request_is_send(req) && (req->send.step == UCP_SEND_GIVEN_UP)) { /* until it answers */
        keep |= req->held & (UCP_REQUEST_HOLDS_ID | UCP_REQUEST_HOLDS_WORK);
    }
    if (keep & UCP_REQUEST_HOLDS_TRACKED) { /* flushes still wait for it, a purge is done with it */
        ucs_list_del(&req->list);
        ucs_list_add_tail(&req->worker->late, &req->list);
    } else if (ucp_request_is_recv(req) && (req->recv.step == UCP_RECV_READ) &&
               (req->held & UCP_REQUEST_HOLDS_LIST)) { /* a close by force may give it up */
        ucs_list_del(&req->list);
        ucs_list_add_tail(&req->recv.peer->late, &req->list);
        keep |= UCP_REQUEST_HOLDS_LIST;
    }
    req->copy.then = NULL;
    req->copy.late = status;
    req->held     &= (uint16_t)~keep;
    ucp_request_release_held(req);
    req->held = keep;
}

void ucp_device_refuse(ucp_peer_t *peer, ucs_status_t status)
{
    const int is_lost  = (status == UCS_ERR_REJECTED);
    const char *reason = is_lost ? "what is written there does not arrive" :
                                   ucs_status_string(status);

    if (peer->is_device_refused) {
        return;
    }
    peer->is_device_refused = 1;
    ucs_log(is_lost ? UCS_LOG_LEVEL_WARN : UCS_LOG_LEVEL_DIAG,
            "copies between devices to a peer are refused (%s): memory of the host is used",
            reason);
    if (peer->worker->context->options.proto_info) {
        printf("# %12s not used any more: %s\n", "rndv/device", reason);
        fflush(stdout);
    }
}

static void ucp_device_copied(uct_completion_t *comp)
{
    --ucs_container_of(comp, ucp_request_t, copy.comp)->worker->device.num_copies;
    ucp_device_transferred(comp);
}

/* The end of a copy is found by progress, and no event announces it. */
static void ucp_device_hold_copy(ucp_request_t *req, uct_iface_t *iface)
{
    req->held |= UCP_REQUEST_HOLDS_COPY;
    ++req->worker->device.num_copies;
    ucp_worker_activate(req->worker, iface);
    ucp_wakeup_rouse(req->worker);
}

ucs_status_t ucp_device_transfer(ucp_request_t *req, ucp_peer_t *peer, uct_rkey_t *rkey,
                                 size_t offset, size_t length, uint64_t remote_addr,
                                 ucp_device_then_cb_t then)
{
    uct_ep_t *lane = peer->lanes[UCP_LANE_DEVICE];
    uct_iov_t iov  = {(char *)req->buffer + offset, length, NULL};
    ucs_status_t status;
    unsigned slot;

    if (lane == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    if (ucp_dt_is_device(req->datatype) && (req->copy.info.id != 0) &&
        (ucp_device_know(peer, &req->copy.info, &slot) == UCS_OK)) {
        iov.mem = peer->keys->told[slot].mem; /* spares the transport to ask what it is */
    }
    if (ucs_unlikely(lane->state == UCT_EP_IDLE)) {
        status = uct_ep_connect(lane); /* copies inside one node need nobody's answer */
        if (status != UCS_OK) {
            return (status == UCS_INPROGRESS) ? UCS_ERR_NO_RESOURCE : status;
        }
    }
    req->copy.comp = (uct_completion_t){ucp_device_copied, 1, UCS_OK};
    req->copy.then = then;
    status = (ucp_request_is_outward(req) ? lane->ops->put_zcopy : lane->ops->get_zcopy)(
        lane, &iov, 1, remote_addr, rkey, &req->copy.comp);
    if (status == UCS_INPROGRESS) {
        ucp_device_hold_copy(req, lane->iface);
    } else if (ucs_unlikely(status == UCS_ERR_REJECTED)) {
        ucp_device_refuse(peer, status);
    }
    return status;
}

ucs_status_t ucp_device_copy_async(ucp_request_t *req, void *dest, const void *src, size_t length,
                                   ucp_device_then_cb_t then)
{
    uct_iface_t *iface = req->worker->device.iface;
    ucs_status_t status;

    req->copy.comp = (uct_completion_t){ucp_device_copied, 1, UCS_OK};
    req->copy.then = then;
    status         = iface->tl->iface.copy(iface, dest, src, length, 0, &req->copy.comp);
    if (status == UCS_INPROGRESS) {
        ucp_device_hold_copy(req, iface);
    }
    return (status == UCS_OK) ? UCS_ERR_IO_ERROR : status;
}

/* ---- chunks ---- */

#define UCP_DEVICE_SHORT_MAX ((size_t)16 * 1024)

static const struct {
    size_t   chunk;
    unsigned num;
} ucp_device_pool_sizes[] = {
    [0]                 = {(size_t)8 * 1024 * 1024, 4}, /* of a device */
    [-UCP_DEVICE_HOST]  = {(size_t)256 * 1024, 4},      /* stay in the processor's cache */
    [-UCP_DEVICE_SHORT] = {UCP_DEVICE_SHORT_MAX, UCP_DEVICE_NO_CHUNK}
};

/* Is the memory what it was? That of a device goes with its context; that of the host stays, but
 * devices do not reach it any more. */
static int ucp_device_pool_is_there(ucp_device_t *own, const ucp_device_pool_t *pool)
{
    uct_mem_info_t info;

    if (own->md->tl->md.mem_query(own->md, pool->mem->address, 1, &info) != UCS_OK) {
        return 0;
    }
    return (pool->device < 0) ? (info.is_pinned || !pool->is_pinned) :
           ((info.type != UCS_MEMORY_TYPE_HOST) && (info.id == pool->id));
}

static ucp_device_pool_t *ucp_device_pool_make(ucp_device_t *own, void *like, int device)
{
    const int kind          = ucs_max(-device, 0);
    const unsigned num      = ucp_device_pool_sizes[kind].num;
    ucp_device_pool_t *pool = ucs_sys_calloc(1, sizeof(*pool));
    uct_mem_info_t info = {0};

    if (pool == NULL) {
        return NULL;
    }
    if (own->md->tl->md.alloc(own->md, like, ucp_device_pool_sizes[kind].chunk * num,
                              (kind != 0) ? UCT_MEM_ALLOC_PINNED : UCT_MEM_ALLOC_DEVICE,
                              &pool->mem) != UCS_OK) {
        ucs_sys_free(pool);
        return NULL;
    }
    if (own->md->tl->md.mem_query(own->md, pool->mem->address, 1, &info) == UCS_OK) {
        pool->id        = info.id;
        pool->is_pinned = info.is_pinned;
    }
    ucs_list_head_init(&pool->waiting);
    pool->chunk  = pool->mem->length / num;
    pool->num    = num;
    pool->device = device;
    pool->next   = own->pools;
    own->pools   = pool;
    return pool;
}

ucp_device_pool_t *ucp_device_pool(ucp_worker_t *worker, void *like, int device)
{
    ucp_device_t *own = &worker->device;
    ucp_device_pool_t **link;
    ucp_device_pool_t *pool;

    for (link = &own->pools; *link != NULL; link = &(*link)->next) {
        pool = *link;
        if (pool->device != device) {
            continue;
        }
        if (ucp_device_pool_is_there(own, pool)) {
            return pool;
        }
        if (pool->users != 0) { /* it went with its context, under those that use it */
            return (device < 0) ? pool : NULL;
        }
        *link = pool->next;
        own->md->tl->md.release(pool->mem);
        ucs_sys_free(pool);
        break;
    }
    return ucp_device_pool_make(own, like, device);
}

ucp_device_pool_t *ucp_device_host_pool(ucp_worker_t *worker, void *like, size_t length)
{
    return ucp_device_pool(worker, like, (length <= UCP_DEVICE_SHORT_MAX) ? UCP_DEVICE_SHORT :
                                                                            UCP_DEVICE_HOST);
}

void ucp_device_use_pool(ucp_request_t *req, ucp_device_pool_t *pool)
{
    req->copy.chunks = (ucp_chunks_t){
        .pool = pool, .near = UCP_DEVICE_NO_CHUNK, .far = UCP_DEVICE_NO_CHUNK
    };
    req->held |= UCP_REQUEST_HOLDS_CHUNKS;
    ++pool->users;
}

uint8_t ucp_device_chunk_get(ucp_device_pool_t *pool)
{
    unsigned chunk = (unsigned)__builtin_ctz(~pool->in_use);

    if (chunk >= pool->num) {
        return UCP_DEVICE_NO_CHUNK;
    }
    pool->in_use |= 1u << chunk;
    return (uint8_t)chunk;
}

void ucp_device_chunk_put(ucp_device_pool_t *pool, uint8_t *chunk)
{
    ucp_request_t *req;

    pool->in_use &= ~((1u << *chunk) & ((1u << UCP_DEVICE_NO_CHUNK) - 1));
    *chunk        = UCP_DEVICE_NO_CHUNK;
    if (!ucs_list_is_empty(&pool->waiting) && (pool->in_use != (1u << pool->num) - 1)) {
        req = ucs_list_head(&pool->waiting, ucp_request_t, work_list);
        ucp_request_del_work(req);
        ucp_request_add_work(req);
    }
}

void ucp_device_chunk_wait(ucp_request_t *req)
{
    if (!(req->held & UCP_REQUEST_HOLDS_WORK)) {
        req->held |= UCP_REQUEST_HOLDS_WORK;
        ucs_list_add_tail(&req->copy.chunks.pool->waiting, &req->work_list);
    }
}

/* One that was to take a chunk may end instead: the next one is told by giving back what it has. */
void ucp_device_put_chunks(ucp_request_t *req)
{
    ucp_device_pool_t *pool = req->copy.chunks.pool;

    req->held &= (uint16_t)~UCP_REQUEST_HOLDS_CHUNKS;
    --pool->users;
    ucp_device_chunk_put(pool, &req->copy.chunks.near);
    ucp_device_chunk_put(pool, &req->copy.chunks.far);
}
