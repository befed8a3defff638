/* Halyard: wakeup.
 *
 * The worker's descriptor is an epoll set of every interface's own descriptor and of an eventfd
 * that ucp_worker_signal writes. It stays the same for the worker's life.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/idle.h>
#include <ucp/core/wakeup.h>
#include <ucp/protos/rndv.h>
#include <ucp/wireup/sockaddr.h>
#include <ucs/arch/cpu.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <sys/eventfd.h>

/* To wake a thread takes 5 us, 40 and more where its processor has begun to sleep, too, and a
 * system call of the sender's. So where what an armed worker waits for has come soon, its sleep
 * included, the next armings look for it first for a while. Those that look in vain become fewer:
 * it may be that the peer cannot run while we look. */
#define UCP_WAKEUP_SOON_NS      50000u
#define UCP_WAKEUP_LOOK_NS      30000u
#define UCP_WAKEUP_LOOKS_MAX    2000 /* at the transports, each time */
#define UCP_WAKEUP_TURNS        4    /* armings that look after the last that found something */
#define UCP_WAKEUP_PATIENCE_MAX 1024

#define UCP_WAIT_MEM_SPINS 200
#define UCP_WAIT_MEM_NS    20000ul

/* In a forked child the sets and the eventfd are its parent's. */
static int ucp_wakeup_is_own(const ucp_worker_t *worker)
{
    return ucs_sys_getpid() == worker->pid;
}

ucs_status_t ucp_wakeup_add(ucp_worker_t *worker, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    if (worker->epoll_fd < 0) {
        return UCS_OK;
    }
    if (ucs_sys_epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        ucs_error("cannot gather the descriptors to sleep on: %m");
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

ucs_status_t ucp_wakeup_add_iface(ucp_worker_t *worker, uct_iface_t *iface)
{
    int fd;

    if ((worker->epoll_fd < 0) || (iface->tl->iface.event_fd == NULL)) {
        return UCS_OK;
    }
    if (iface->tl->iface.event_join != NULL) {
        return iface->tl->iface.event_join(iface, worker->epoll_fd);
    }
    fd = iface->tl->iface.event_fd(iface);
    return (fd >= 0) ? ucp_wakeup_add(worker, fd) : UCS_OK;
}

void ucp_wakeup_del(ucp_worker_t *worker, int fd)
{
    struct epoll_event unused = {.events = 0};

    if ((worker->epoll_fd >= 0) && ucp_wakeup_is_own(worker)) {
        (void)ucs_sys_epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, fd, &unused);
    }
}

/* Makes the worker's descriptor part of the user's own. */
static ucs_status_t ucp_wakeup_add_to_user(ucp_worker_t *worker)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker->user_data};

    if (worker->user_event_fd < 0) {
        return UCS_OK;
    }
    if (ucs_sys_epoll_ctl(worker->user_event_fd, EPOLL_CTL_ADD, worker->epoll_fd, &event) != 0) {
        ucs_error("ucp_worker_create: cannot add events to descriptor %d: %m",
                  worker->user_event_fd);
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

ucs_status_t ucp_wakeup_open(ucp_worker_t *worker)
{
    ucs_status_t status;
    unsigned i;

    worker->look.patience = 1;

    worker->pid      = ucs_sys_getpid();
    worker->epoll_fd = ucs_sys_epoll_create1(EPOLL_CLOEXEC);
    worker->event_fd = ucs_sys_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if ((worker->epoll_fd < 0) || (worker->event_fd < 0)) {
        ucs_error("cannot open descriptors to sleep on: %m");
        return UCS_ERR_IO_ERROR;
    }

    status = ucp_wakeup_add(worker, worker->event_fd);
    for (i = 0; (i < worker->context->num_tls) && (status == UCS_OK); ++i) {
        if (worker->tls[i].iface != NULL) {
            status = ucp_wakeup_add_iface(worker, worker->tls[i].iface);
        }
    }
    return (status == UCS_OK) ? ucp_wakeup_add_to_user(worker) : status;
}

void ucp_wakeup_cleanup(ucp_worker_t *worker)
{
    struct epoll_event unused = {.events = 0};

    if (worker->epoll_fd >= 0) {
        /* A child's copies keep the sets alive: nothing of ours is to be left in them. */
        ucp_wakeup_del(worker, worker->event_fd);
        if ((worker->user_event_fd >= 0) && ucp_wakeup_is_own(worker)) {
            (void)ucs_sys_epoll_ctl(worker->user_event_fd, EPOLL_CTL_DEL, worker->epoll_fd,
                                    &unused);
        }
        ucs_sys_close(worker->epoll_fd);
    }
    if (worker->event_fd >= 0) {
        ucs_sys_close(worker->event_fd);
    }
    worker->epoll_fd = -1;
    worker->event_fd = -1;
}

static int ucp_wakeup_has_work(ucp_worker_t *worker)
{
    return !ucs_list_is_empty(&worker->work) || !ucs_list_is_empty(&worker->failed_eps) ||
           !ucs_list_is_empty(&worker->watches) || ucp_sockets_have_work(worker) ||
           ucp_rndv_is_watching(worker);
}

/* UCS_ERR_BUSY: there is something to do for progress. */
static ucs_status_t ucp_wakeup_arm(ucp_worker_t *worker)
{
    ucs_status_t status;
    uct_iface_t *iface;
    unsigned i;

    if (ucp_wakeup_has_work(worker)) {
        return UCS_ERR_BUSY;
    }
    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        if ((iface == NULL) || (iface->tl->iface.event_arm == NULL)) {
            continue;
        }
        status = iface->tl->iface.event_arm(iface);
        if (status != UCS_OK) {
            return status;
        }
    }
    return UCS_OK;
}

int ucp_wakeup_has_come(const ucp_worker_t *worker)
{
    const uct_iface_t *iface;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        iface = worker->tls[i].iface;
        if ((iface != NULL) && (iface->tl->iface.has_come != NULL) &&
            iface->tl->iface.has_come(iface)) {
            return 1;
        }
    }
    return 0;
}

/* Looks for a while whether something comes. The lock is held, but for pauses, in which another
 * thread's progress may take it; the caller of that has to hear of it as well. */
static int ucp_wakeup_look(ucp_worker_t *worker)
{
    ucp_wakeup_look_t *look = &worker->look;
    const uint64_t start_ns = look->armed_ns;
    unsigned i;

    if ((look->turns == 0) || ucp_idle_is_shared(worker)) { /* UCX_IDLE=sleep: it is */
        return 0;
    }
    if (ucp_wakeup_has_work(worker)) {
        return 1;
    }
    worker->is_waiting = 1;
    for (i = 0; (i < UCP_WAKEUP_LOOKS_MAX) &&
                (ucs_sys_clock_ns() - start_ns < UCP_WAKEUP_LOOK_NS); ++i) {
        if (!worker->is_waiting || ucp_wakeup_has_come(worker)) {
            look->turns    = UCP_WAKEUP_TURNS;
            look->patience = 1;
            return 1;
        }
        ucp_worker_unlock(worker);
        ucs_arch_cpu_relax();
        ucp_worker_lock(worker);
    }
    if (!worker->is_waiting) {
        return 1;
    }
    if ((look->turns > 0) && (--look->turns == 0)) {
        look->patience = (uint16_t)ucs_min(2 * look->patience, UCP_WAKEUP_PATIENCE_MAX);
        look->num_soon = 0;
    }
    return 0;
}

void ucp_wakeup_found(ucp_worker_t *worker)
{
    ucp_wakeup_look_t *look = &worker->look;

    if (ucs_sys_clock_ns() - look->armed_ns >= UCP_WAKEUP_SOON_NS) {
        look->num_soon = 0;
    } else if ((look->turns == 0) && (++look->num_soon >= look->patience)) {
        look->turns = UCP_WAKEUP_TURNS;
    }
    worker->is_waiting = 0;
    ucp_wakeup_rouse(worker);
}

ucs_status_t ucp_wakeup_doze(ucp_worker_t *worker, int timeout_ms)
{
    struct pollfd fds[UCP_TL_MAX + 1];
    nfds_t count  = 0;
    uint64_t held = 0;
    uct_iface_t *iface;
    int is_over;
    unsigned i;

    if (ucp_wakeup_arm(worker) != UCS_OK) {
        return UCS_ERR_BUSY;
    }
    if (worker->epoll_fd >= 0) {
        fds[count++].fd = worker->epoll_fd;
    } else {
        if (worker->sockets != NULL) {
            fds[count++].fd = worker->sockets->epoll_fd;
        }
        for (i = 0; i < worker->context->num_tls; ++i) {
            iface = worker->tls[i].iface;
            if ((iface != NULL) && (iface->tl->iface.event_fd != NULL)) {
                fds[count++].fd = iface->tl->iface.event_fd(iface);
            }
        }
    }
    for (i = 0; i < count; ++i) {
        fds[i].events = POLLIN;
    }
    if (count == 0) {
        return UCS_ERR_BUSY;
    }
    /* What keeps the descriptor readable for the user would end every sleep. */
    if (worker->is_held && (ucs_sys_read(worker->event_fd, &held, sizeof(held)) != sizeof(held))) {
        held = 0;
    }
    is_over = (ucs_sys_poll(fds, count, timeout_ms) == 0);
    if (held > 0) {
        (void)!ucs_sys_write(worker->event_fd, &held, sizeof(held));
    }
    return is_over ? UCS_ERR_TIMED_OUT : UCS_OK;
}

void ucp_wakeup_hold(ucp_worker_t *worker)
{
    uint64_t one = 1;

    worker->is_armed = 0;
    worker->is_held  = ucp_wakeup_is_own(worker) &&
                       (ucs_sys_write(worker->event_fd, &one, sizeof(one)) == sizeof(one));
}

/* ---- public ---- */

static ucs_status_t ucp_wakeup_check(ucp_worker_t *worker)
{
    if (worker->event_fd >= 0) {
        return worker->is_inherited ? UCS_ERR_CONNECTION_RESET : UCS_OK;
    }
    ucs_debug("the context was made without UCP_FEATURE_WAKEUP");
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd)
{
    ucs_status_t status = ucp_wakeup_check(worker);

    if ((status == UCS_OK) && (worker->user_event_fd >= 0)) {
        ucs_debug("events of this worker are reported on the user's own descriptor");
        status = UCS_ERR_INVALID_PARAM;
    }
    if (status == UCS_OK) {
        *fd = worker->epoll_fd;
    }
    return status;
}

static int ucp_wakeup_has_sleepers(ucp_worker_t *worker)
{
    return ucs_unlikely(ucs_atomic_load_acquire(&worker->num_sleepers) > 0); /* A9 */
}

/* What keeps the descriptor readable, a signal, and what is found here, are for all threads in
 * ucp_worker_wait: who arms takes it from none that has not seen it yet. */
static ucs_status_t ucp_wakeup_arm_user(ucp_worker_t *worker)
{
    const uint64_t is_seen = worker->is_held && !ucp_wakeup_has_sleepers(worker);
    uint64_t num_signals;
    ucs_status_t status;

    if (ucs_sys_read(worker->event_fd, &num_signals, sizeof(num_signals)) != sizeof(num_signals)) {
        num_signals = 0;
    }
    worker->is_armed      = 0; /* what comes from here on, this call finds by itself */
    worker->look.armed_ns = ucs_sys_clock_ns();
    /* A signal of the user's that came since the last time counts as an event. */
    status             = ((num_signals > is_seen) || ucp_wakeup_look(worker)) ?
                         UCS_ERR_BUSY : ucp_wakeup_arm(worker);
    worker->is_held    = 0;
    worker->is_armed   = (status == UCS_OK);
    worker->is_waiting = worker->is_armed;
    if ((status == UCS_ERR_BUSY) && ucp_wakeup_has_sleepers(worker)) {
        ucp_wakeup_hold(worker);
    }
    return status;
}

ucs_status_t ucp_worker_arm(ucp_worker_h worker)
{
    ucs_status_t status = ucp_wakeup_check(worker);

    if (status == UCS_OK) {
        ucp_worker_lock(worker);
        status = ucp_wakeup_arm_user(worker);
        ucp_worker_unlock(worker);
    }
    return status;
}

static void ucp_wakeup_slept(void *arg)
{
    ucp_worker_t *worker = arg;

    (void)ucs_atomic_fetch_add(&worker->num_sleepers, -1); /* R9 */
}

/* Programs may cancel a thread that sleeps. */
ucs_status_t ucp_worker_wait(ucp_worker_h worker)
{
    struct pollfd pfd   = {.fd = worker->epoll_fd, .events = POLLIN};
    ucs_status_t status = ucp_wakeup_check(worker);
    int ret;

    if (status != UCS_OK) {
        return status;
    }
    ucp_worker_lock(worker);
    status = ucp_wakeup_arm_user(worker);
    if (status == UCS_OK) {
        (void)ucs_atomic_fetch_add(&worker->num_sleepers, 1);
    }
    ucp_worker_unlock(worker);
    if (status != UCS_OK) {
        if (ucp_wakeup_has_sleepers(worker)) {
            ucs_sys_sched_yield(); /* to those who have yet to see what has happened */
        }
        return (status == UCS_ERR_BUSY) ? UCS_OK : status;
    }
    pthread_cleanup_push(ucp_wakeup_slept, worker);
    do {
        ret = ucs_sys_poll(&pfd, 1, -1);
    } while ((ret < 0) && (errno == EINTR));
    pthread_cleanup_pop(1);
    return (ret < 0) ? UCS_ERR_IO_ERROR : UCS_OK;
}

void ucp_worker_wait_mem(ucp_worker_h worker UCS_UNUSED, void *address)
{
    const uint32_t *word = (const uint32_t *)((uintptr_t)address & ~(uintptr_t)3);
    uint32_t before      = __atomic_load_n(word, __ATOMIC_RELAXED);
    unsigned i;

    /* Who stores to memory wakes nobody: look for a while, then sleep for a while. */
    for (i = 0; i < UCP_WAIT_MEM_SPINS; ++i) {
        if (__atomic_load_n(word, __ATOMIC_RELAXED) != before) {
            return;
        }
        ucs_arch_cpu_relax();
    }
    ucs_sys_sleep_ns(UCP_WAIT_MEM_NS);
}

ucs_status_t ucp_worker_signal(ucp_worker_h worker)
{
    ucs_status_t status = ucp_wakeup_check(worker);
    uint64_t value      = 1;

    if (status != UCS_OK) {
        return status;
    }
    /* A counter that is full stays readable: nothing is lost. */
    if ((ucs_sys_write(worker->event_fd, &value, sizeof(value)) < 0) && (errno != EAGAIN)) {
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}
