/* Halyard: cma: probe, connection by proof, copies, and the descriptor.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/registry.h>
#include <uct/cma/cma.h>

#define UCS_LOG_COMPONENT "cma"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Switched off by configure, the transport still has its name and says that it cannot be opened. */
#ifdef HAVE_CMA
#define UCT_CMA_IS_BUILT 1
#else
#define UCT_CMA_IS_BUILT 0
#endif

/* Entries that go to the kernel in one call, and bytes: the kernel moves at most 2 GiB less a
 * page. */
#define UCT_CMA_BATCH     64
#define UCT_CMA_BATCH_MAX (1ul << 30)

/* The probe: a copy of this size, each kind of call this many times, the least time counting. */
#define UCT_CMA_PROBE_SIZE  16384
#define UCT_CMA_PROBE_TIMES 4

/* Used where no time passes during the probe (virtual time): process_vm_readv of Linux 6.1 on an
 * x86_64 server of 2023, 8 bytes and the growth up to 1 MiB. */
#define UCT_CMA_OVERHEAD_NS  1400.0
#define UCT_CMA_BYTES_PER_NS 13.0

/* Calls to another process take this many times as long as those to oneself (same machine). */
#define UCT_CMA_OTHER_FACTOR 1.3

static const ucs_config_row_t uct_cma_config_rows[] = {
    UCS_CONFIG_ROW("OVERHEAD", time, uct_cma_config_t, overhead_ns, "auto",
                   "Time of a copy of no bytes, by which protocols are chosen; ucx_perftest -t "
                   "audit measures it; auto: that of a few copies within the process, and some "
                   "more.",
                   .flags = UCS_CONFIG_ROW_AUTO),
    UCS_CONFIG_ROW("BW", bandwidth, uct_cma_config_t, bandwidth, "auto",
                   "Bytes per second of copies, likewise.", .min = 1,
                   .flags = UCS_CONFIG_ROW_AUTO),
    UCS_CONFIG_ROW_END
};

static pthread_once_t uct_cma_once = PTHREAD_ONCE_INIT;
static uint64_t uct_cma_secret;

static uct_cma_md_t *uct_cma_md(uct_md_t *md)
{
    return ucs_container_of(md, uct_cma_md_t, super);
}

static uct_cma_iface_t *uct_cma_iface(uct_iface_t *iface)
{
    return ucs_container_of(iface, uct_cma_iface_t, super);
}

static uct_cma_ep_t *uct_cma_ep(uct_ep_t *ep)
{
    return ucs_container_of(ep, uct_cma_ep_t, super);
}

/* ------------------------------------------------------------------ memory domain */

/* Times a read of one's own memory; *best_ns: the least so far. 0: it failed, errno is set. */
static int uct_cma_time_read(char *dest, char *src, size_t length, double *best_ns)
{
    struct iovec local  = {dest, length};
    struct iovec remote = {src, length};
    uint64_t start      = ucs_sys_clock_ns();
    ssize_t ret         = ucs_sys_process_vm_readv(ucs_sys_getpid(), &local, 1, &remote, 1, 0);

    *best_ns = ucs_min(*best_ns, (double)(ucs_sys_clock_ns() - start));
    return ret >= 0;
}

/* Times of short and of long reads, in turn: what disturbs those of one length only would make the
 * difference wrong, and that is the rate. */
static int uct_cma_probe(char *buffer, double *small_ns, double *large_ns)
{
    int i, works = 1;

    *small_ns = *large_ns = INFINITY;
    for (i = 0; works && (i < UCT_CMA_PROBE_TIMES); ++i) {
        works = uct_cma_time_read(buffer, buffer + UCT_CMA_PROBE_SIZE, 8, small_ns) &&
                uct_cma_time_read(buffer, buffer + UCT_CMA_PROBE_SIZE, UCT_CMA_PROBE_SIZE,
                                  large_ns);
    }
    return works;
}

/* Takes about 20 us. */
static ucs_status_t uct_cma_md_open(uct_md_t *md)
{
    const uct_cma_config_t *config = md->config;
    uct_cma_md_t *cma_md           = uct_cma_md(md);
    double small, large;
    char *buffer;

    if (!UCT_CMA_IS_BUILT) {
        ucs_debug("this build was configured without cma");
        return UCS_ERR_NO_DEVICE;
    }

    cma_md->overhead_ns  = UCT_CMA_OVERHEAD_NS;
    cma_md->bytes_per_ns = UCT_CMA_BYTES_PER_NS;

    buffer = ucs_sys_calloc(2, UCT_CMA_PROBE_SIZE);
    if (buffer == NULL) {
        ucs_error("no memory to probe process_vm_readv");
        return UCS_ERR_NO_MEMORY;
    }

    memset(buffer, 1, 2 * UCT_CMA_PROBE_SIZE); /* page faults are not part of the cost */
    if (!uct_cma_probe(buffer, &small, &large)) {
        cma_md->error = errno;
        ucs_debug("process_vm_readv does not work here: %m");
    } else if ((small > 0) && (large > small)) {
        cma_md->overhead_ns  = small * UCT_CMA_OTHER_FACTOR;
        cma_md->bytes_per_ns = UCT_CMA_PROBE_SIZE / (large - small);
    }
    if (config->overhead_ns != UCS_CONFIG_AUTO_U64) {
        cma_md->overhead_ns = (double)config->overhead_ns;
    }
    if (config->bandwidth != UCS_CONFIG_AUTO_DOUBLE) {
        cma_md->bytes_per_ns = config->bandwidth / 1e9;
    }
    ucs_sys_free(buffer);
    return UCS_OK;
}

/* ------------------------------------------------------------------ interface */

/* Nothing depends on its value, so it need not be drawn from what repeats a run. */
static void uct_cma_draw_secret(void)
{
    uct_cma_secret = ucs_sys_real.random64();
}

static ucs_status_t uct_cma_iface_open(uct_iface_t *tl_iface)
{
    uct_cma_iface_t *iface = uct_cma_iface(tl_iface);

    pthread_once(&uct_cma_once, uct_cma_draw_secret);
    uct_cma_make_mark(iface->identity.mark, ucs_sys_getpid(), (uintptr_t)&iface->identity);
    memcpy(iface->identity.uid, tl_iface->params.uid, UCT_UID_LEN);
    iface->identity.secret = uct_cma_secret;
    return UCS_OK;
}

static void uct_cma_limits(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory,
                           uct_limits_t *limits_p)
{
    uct_cma_md_t *md = uct_cma_md(iface->md);

    memset(limits_p, 0, sizeof(*limits_p));
    if ((memory == UCS_MEMORY_TYPE_HOST) &&
        ((op == UCT_OP_PUT_ZCOPY) || (op == UCT_OP_GET_ZCOPY))) {
        limits_p->max          = SIZE_MAX;
        limits_p->iov_max      = 1024;
        limits_p->overhead_ns  = md->overhead_ns;
        limits_p->bytes_per_ns = md->bytes_per_ns;
    }
}

static size_t uct_cma_get_address(uct_iface_t *iface, void *buffer)
{
    uint32_t pid    = (uint32_t)ucs_sys_getpid();
    uint64_t cookie = (uintptr_t)&uct_cma_iface(iface)->identity;

    memcpy(buffer, &pid, sizeof(pid));
    memcpy((char *)buffer + sizeof(pid), &cookie, sizeof(cookie));
    return UCT_CMA_ADDRESS_LEN;
}

static ucs_status_t uct_cma_parse_address(const void *address, size_t length, pid_t *pid_p,
                                          uint64_t *cookie_p)
{
    uint32_t pid;

    if (length != UCT_CMA_ADDRESS_LEN) {
        return UCS_ERR_INVALID_ADDR;
    }

    memcpy(&pid, address, sizeof(pid));
    if ((pid == 0) || (pid > INT32_MAX)) {
        return UCS_ERR_INVALID_ADDR;
    }
    memcpy(cookie_p, (const char *)address + sizeof(pid), sizeof(*cookie_p));
    *pid_p = (pid_t)pid;
    return UCS_OK;
}

static int uct_cma_is_reachable(uct_iface_t *iface, const void *address, size_t length,
                                int same_node, char reason[UCT_REASON_MAX])
{
    uint64_t cookie;
    pid_t pid;

    if (!same_node) {
        snprintf(reason, UCT_REASON_MAX, "the peer is on another node");
        return 0;
    }
    if (uct_cma_md(iface->md)->error != 0) {
        errno = uct_cma_md(iface->md)->error;
        snprintf(reason, UCT_REASON_MAX, "process_vm_readv does not work here: %m");
        return 0;
    }
    if (uct_cma_parse_address(address, length, &pid, &cookie) != UCS_OK) {
        snprintf(reason, UCT_REASON_MAX, "the peer's address is not one of cma");
        return 0;
    }
    return 1;
}

static unsigned uct_cma_progress(uct_iface_t *iface)
{
    return uct_iface_progress_base(iface);
}

static void uct_cma_memory_used(uct_iface_t *iface UCS_UNUSED, size_t *shared_p, size_t *private_p)
{
    *shared_p  = 0;
    *private_p = sizeof(uct_cma_iface_t);
}

/* ------------------------------------------------------------------ endpoint */

static ucs_status_t uct_cma_ep_init(uct_ep_t *ep, const void *address, size_t length)
{
    return uct_cma_parse_address(address, length, &uct_cma_ep(ep)->pid, &uct_cma_ep(ep)->cookie);
}

/* Reads the peer's identity. Returns 0 if it is the right one, else an errno; ESRCH also for the
 * right place in a wrong process. */
static int uct_cma_prove(uct_cma_ep_t *ep)
{
    const int is_here           = (ep->pid == ucs_sys_getpid());
    uct_cma_identity_t identity = {.secret = uct_cma_secret};
    const size_t length         = is_here ? sizeof(identity) :
                                            offsetof(uct_cma_identity_t, secret);
    struct iovec local          = {&identity, length};
    struct iovec remote         = {(void *)(uintptr_t)ep->cookie, length};
    uint64_t mark[2];
    ssize_t ret;

    uct_cma_make_mark(mark, ep->pid, ep->cookie);
    ret = ucs_sys_process_vm_readv(ep->pid, &local, 1, &remote, 1, 0);
    if (ret < 0) {
        return errno;
    }
    return (((size_t)ret == length) && (identity.secret == uct_cma_secret) &&
            (memcmp(identity.mark, mark, sizeof(mark)) == 0) &&
            (memcmp(identity.uid, ep->super.peer_uid, sizeof(identity.uid)) == 0)) ? 0 : ESRCH;
}

static ucs_status_t uct_cma_ep_connect(uct_ep_t *ep)
{
    int error = uct_cma_prove(uct_cma_ep(ep));

    if (error != 0) {
        errno = error;
        ucs_diag("no path by process_vm_readv to process %d: %m", (int)uct_cma_ep(ep)->pid);
        return UCS_ERR_UNREACHABLE;
    }
    return UCS_OK;
}

/* The kernel has refused. Anything but a bad address or shortage is the end of the endpoint. */
static UCS_COLD ucs_status_t uct_cma_refused(uct_cma_ep_t *ep, int error)
{
    if (error == EFAULT) {
        /* A range that is not there, or a process that is not the peer any more. */
        error = uct_cma_prove(ep);
        if (error == 0) {
            return UCS_ERR_INVALID_ADDR;
        }
        error = (error == EFAULT) ? ESRCH : error;
    }

    switch (error) {
    case ENOMEM:
        return UCS_ERR_NO_MEMORY;
    case ESRCH:
        uct_ep_set_failed(&ep->super, UCS_ERR_CONNECTION_RESET);
        break;
    default:
        errno = error;
        ucs_diag("process_vm_readv/writev of process %d is not possible any more: %m",
                 (int)ep->pid);
        uct_ep_set_failed(&ep->super, UCS_ERR_UNSUPPORTED);
        break;
    }
    return ep->super.status;
}

typedef struct {
    const uct_iov_t *iov;   /* the entry that comes next */
    unsigned        n;      /* entries from there */
    size_t          offset; /* bytes of the first one that are done */
} uct_cma_cursor_t;

/* Fill `batch` from the cursor, which stays; returns the entries used. */
static unsigned uct_cma_gather(const uct_cma_cursor_t *cursor, struct iovec *batch, size_t *total_p)
{
    size_t offset  = cursor->offset;
    size_t total   = 0;
    unsigned count = 0;
    unsigned i;

    for (i = 0; (i < cursor->n) && (count < UCT_CMA_BATCH) && (total < UCT_CMA_BATCH_MAX); ++i) {
        if (cursor->iov[i].length > offset) {
            batch[count].iov_base = (void *)((uintptr_t)cursor->iov[i].buffer + offset);
            batch[count].iov_len  = ucs_min(cursor->iov[i].length - offset,
                                            UCT_CMA_BATCH_MAX - total);
            total                += batch[count].iov_len;
            ++count;
        }
        offset = 0;
    }
    *total_p = total;
    return count;
}

static void uct_cma_advance(uct_cma_cursor_t *cursor, size_t length)
{
    size_t left;

    while (length > 0) {
        left = cursor->iov->length - cursor->offset;
        if (length < left) {
            cursor->offset += length;
            return;
        }
        length        -= left;
        cursor->offset = 0;
        ++cursor->iov;
        --cursor->n;
    }
}

static ucs_status_t uct_cma_copy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                 uint64_t remote_addr, int is_put)
{
    uct_cma_ep_t *cma_ep    = uct_cma_ep(ep);
    uct_cma_cursor_t cursor = {iov, n, 0};
    struct iovec batch[UCT_CMA_BATCH], remote;
    unsigned count;
    size_t total;
    ssize_t ret;

    for (;;) {
        count = uct_cma_gather(&cursor, batch, &total);
        if (total == 0) {
            return UCS_OK;
        }
        if (total > (UINT64_MAX - remote_addr)) {
            return UCS_ERR_INVALID_PARAM;
        }

        remote.iov_base = (void *)(uintptr_t)remote_addr;
        remote.iov_len  = total;
        ret             = is_put ?
                          ucs_sys_process_vm_writev(cma_ep->pid, batch, count, &remote, 1, 0) :
                          ucs_sys_process_vm_readv(cma_ep->pid, batch, count, &remote, 1, 0);
        if (ucs_unlikely(ret <= 0)) {
            if ((ret < 0) && (errno == EINTR)) {
                continue;
            }
            return uct_cma_refused(cma_ep, (ret == 0) ? EFAULT : errno);
        }
        uct_cma_advance(&cursor, (size_t)ret);
        remote_addr += (size_t)ret;
    }
}

static ucs_status_t uct_cma_put_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                      uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                      uct_completion_t *comp UCS_UNUSED)
{
    return uct_cma_copy(ep, iov, n, remote_addr, 1);
}

static ucs_status_t uct_cma_get_zcopy(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                      uint64_t remote_addr, uct_rkey_t *rkey UCS_UNUSED,
                                      uct_completion_t *comp UCS_UNUSED)
{
    return uct_cma_copy(ep, iov, n, remote_addr, 0);
}

static ucs_status_t uct_cma_flush(uct_ep_t *ep UCS_UNUSED, uct_completion_t *comp UCS_UNUSED)
{
    return UCS_OK;
}

static ucs_status_t uct_cma_check(uct_ep_t *ep)
{
    int error = uct_cma_prove(uct_cma_ep(ep));

    return (error == 0) ? UCS_OK : uct_cma_refused(uct_cma_ep(ep), error);
}

const uct_tl_t uct_cma_tl = {
    .name          = "cma",
    .help          = "copies between processes of a node by process_vm_readv and process_vm_writev",
    .kind          = UCT_TL_KIND_COPY,
    .md_size       = sizeof(uct_cma_md_t),
    .iface_size    = sizeof(uct_cma_iface_t),
    .ep_size       = sizeof(uct_cma_ep_t),
    .config_rows   = uct_cma_config_rows,
    .config_prefix = "CMA_",
    .config_size   = sizeof(uct_cma_config_t),
    .md = {
        .open = uct_cma_md_open
    },
    .iface = {
        .open         = uct_cma_iface_open,
        .limits       = uct_cma_limits,
        .get_address  = uct_cma_get_address,
        .is_reachable = uct_cma_is_reachable,
        .progress     = uct_cma_progress,
        .memory_used  = uct_cma_memory_used
    },
    .ep = {
        .init    = uct_cma_ep_init,
        .connect = uct_cma_ep_connect,
        .live = {
            .put_zcopy = uct_cma_put_zcopy,
            .get_zcopy = uct_cma_get_zcopy,
            .flush     = uct_cma_flush,
            .check     = uct_cma_check
        }
    }
};
