/* Halyard: wakeup.
 *
 * The worker's descriptor is an epoll set of every interface's own descriptor and of an eventfd
 * that ucp_worker_signal writes. It stays the same for the worker's life.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/wakeup.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <sys/eventfd.h>

static ucs_status_t ucp_wakeup_add(int epfd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return (ucs_sys_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0) ? UCS_OK : UCS_ERR_IO_ERROR;
}

/* Opens the descriptor on first use. Called with the lock held. */
static ucs_status_t ucp_wakeup_open(ucp_worker_t *worker)
{
    ucs_status_t status;
    uct_iface_t *iface;
    unsigned i;
    int fd;

    if (worker->epoll_fd >= 0) {
        return UCS_OK;
    }
    worker->epoll_fd = ucs_sys_epoll_create1(EPOLL_CLOEXEC);
    worker->event_fd = ucs_sys_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if ((worker->epoll_fd < 0) || (worker->event_fd < 0)) {
        ucs_error("cannot open descriptors to sleep on: %m");
        ucp_wakeup_cleanup(worker);
        return UCS_ERR_IO_ERROR;
    }

    status = ucp_wakeup_add(worker->epoll_fd, worker->event_fd);
    for (i = 0; (i < worker->context->num_tls) && (status == UCS_OK); ++i) {
        iface = worker->tls[i].iface;
        if ((iface == NULL) || (iface->tl->iface.event_fd == NULL)) {
            continue;
        }
        fd = iface->tl->iface.event_fd(iface);
        if (fd >= 0) {
            status = ucp_wakeup_add(worker->epoll_fd, fd);
        }
    }
    if (status != UCS_OK) {
        ucs_error("cannot gather the descriptors to sleep on: %m");
        ucp_wakeup_cleanup(worker);
    }
    return status;
}

void ucp_wakeup_cleanup(ucp_worker_t *worker)
{
    if (worker->epoll_fd >= 0) {
        ucs_sys_close(worker->epoll_fd);
    }
    if (worker->event_fd >= 0) {
        ucs_sys_close(worker->event_fd);
    }
    worker->epoll_fd = -1;
    worker->event_fd = -1;
}

static int ucp_wakeup_has_work(const ucp_worker_t *worker)
{
    return !ucs_list_is_empty(&worker->work) || !ucs_list_is_empty(&worker->failed_eps);
}

static ucs_status_t ucp_wakeup_arm_ifaces(ucp_worker_t *worker)
{
    ucs_status_t status;
    uct_iface_t *iface;
    unsigned i;

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

/* ---- public ---- */

ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd)
{
    ucs_status_t status;

    if (!(worker->context->features & UCP_FEATURE_WAKEUP)) {
        ucs_debug("ucp_worker_get_efd: the context was made without UCP_FEATURE_WAKEUP");
        return UCS_ERR_INVALID_PARAM;
    }
    ucp_worker_lock(worker);
    status = ucp_wakeup_open(worker);
    if (status == UCS_OK) {
        *fd = worker->epoll_fd;
    }
    ucp_worker_unlock(worker);
    return status;
}

ucs_status_t ucp_worker_arm(ucp_worker_h worker)
{
    ucs_status_t status;
    uint64_t value;

    if (!(worker->context->features & UCP_FEATURE_WAKEUP)) {
        return UCS_ERR_INVALID_PARAM;
    }
    ucp_worker_lock(worker);
    status = ucp_wakeup_open(worker);
    if (status == UCS_OK) {
        /* A signal that came since the last time counts as an event. */
        if (ucs_sys_read(worker->event_fd, &value, sizeof(value)) == sizeof(value)) {
            status = UCS_ERR_BUSY;
        } else {
            status = ucp_wakeup_has_work(worker) ? UCS_ERR_BUSY : ucp_wakeup_arm_ifaces(worker);
        }
    }
    ucp_worker_unlock(worker);
    return status;
}

ucs_status_t ucp_worker_wait(ucp_worker_h worker)
{
    struct pollfd pfd = {.events = POLLIN};
    ucs_status_t status;
    int ret;

    status = ucp_worker_arm(worker);
    if (status == UCS_ERR_BUSY) {
        return UCS_OK;
    }
    if (status != UCS_OK) {
        return status;
    }
    pfd.fd = worker->epoll_fd;
    do {
        ret = ucs_sys_poll(&pfd, 1, -1);
    } while ((ret < 0) && (errno == EINTR));
    return (ret < 0) ? UCS_ERR_IO_ERROR : UCS_OK;
}

ucs_status_t ucp_worker_signal(ucp_worker_h worker)
{
    uint64_t value = 1;

    if (!(worker->context->features & UCP_FEATURE_WAKEUP)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (worker->event_fd < 0) {
        ucp_worker_lock(worker);
        (void)ucp_wakeup_open(worker);
        ucp_worker_unlock(worker);
    }
    /* A counter that is full stays readable: nothing is lost. */
    if ((ucs_sys_write(worker->event_fd, &value, sizeof(value)) < 0) && (errno != EAGAIN)) {
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}
