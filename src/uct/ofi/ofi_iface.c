/* Halyard: ofi: an interface: progress, waiting, opening and closing.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/ofi/ofi.h>

#define UCS_LOG_COMPONENT "ofi"
#include <string.h>
#include <sys/timerfd.h>
#include <ucs/arch/cpu.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCT_OFI_VAIN_MAX   1000   /* polls in vain after which the provider is asked seldom: */
#define UCT_OFI_VAIN_MASK  7      /* by every eighth call, */
#define UCT_OFI_VAIN_NS    20000  /* if that much time has passed */
#define UCT_OFI_LOOK_MASK  63 /* turns but one between looks at the clock */
/* Sleep of a worker that the provider cannot wake, or not for what it waits for. */
#define UCT_OFI_NO_WAIT_NS 1000000ul

#define UCT_OFI_EVENTS 16 /* more than a worker has descriptors */

/* ---- progress ---- */

/* To ask the provider costs a system call where it has none of its own to say: while nothing comes
 * it is asked seldom, so that it does not slow other transports down. */
static int uct_ofi_is_turn(uct_ofi_iface_t *iface)
{
    uint64_t now;

    if (iface->has_event) {
        iface->has_event = 0;
        return 1;
    }
    /* What is under way, and what others do to our memory, move on in the provider's progress; not
     * what some providers never end once the peer is lost. */
    if ((iface->num_vain < UCT_OFI_VAIN_MAX) || !ucs_list_is_empty(&iface->mems) ||
        uct_ofi_receives_must_renew(iface) ||
        ((atomic_load_explicit(&iface->num_kept, memory_order_relaxed) > 0) &&
         !ucs_list_is_empty(&iface->peers)) ||
        ((iface->num_under_way > 0) && ucs_list_is_empty(&iface->lost))) {
        return 1;
    }
    if ((iface->turns & UCT_OFI_VAIN_MASK) != 0) {
        return 0;
    }
    now = ucs_arch_read_tsc(); /* calls may be far from each other */
    if ((now - iface->poll_tsc) < iface->poll_ticks) {
        return 0;
    }
    iface->poll_tsc = now;
    return 1;
}

/* Is nobody there to talk to, and no turn to ask whether somebody has come? Programs that use other
 * transports only, and have this one open because nobody has told them so, would lose a tenth of
 * their speed to what follows. */
UCS_INLINE int uct_ofi_is_alone(const uct_ofi_iface_t *iface)
{
    return ((iface->turns & UCT_OFI_VAIN_MASK) != 0) && (iface->num_vain >= UCT_OFI_VAIN_MAX) &&
           ucs_list_is_empty(&iface->peers) && ucs_list_is_empty(&iface->lost) &&
           ucs_list_is_empty(&iface->mems) && !iface->has_event;
}

unsigned uct_ofi_progress(uct_iface_t *tl_iface)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    unsigned count         = 0;

    ++iface->turns;
    if (ucs_likely(uct_ofi_is_alone(iface))) {
        return uct_iface_progress_base(tl_iface);
    }
    if (ucs_unlikely(iface->is_inherited)) {
        uct_ofi_rma_abandon(iface, UCS_ERR_CONNECTION_RESET);
        uct_ofi_sends_abandon(iface, UCS_ERR_CONNECTION_RESET);
        return uct_iface_progress_base(tl_iface);
    }
    if (ucs_unlikely(iface->ep == NULL)) { /* what its peers leave behind */
        return uct_ofi_peers_work(iface) + uct_iface_progress_base(tl_iface);
    }
    if (uct_ofi_is_turn(iface)) {
        count           = uct_ofi_poll(iface);
        iface->num_vain = (count > 0) ? 0 : iface->num_vain + 1;
    }
    if (ucs_unlikely((iface->turns & UCT_OFI_LOOK_MASK) == 0)) {
        uct_ofi_alive_look(iface, ucs_sys_clock_ns());
        if (ucs_unlikely(uct_ofi_receives_must_renew(iface))) {
            uct_ofi_receives_renew(iface);
        }
    }
    if (ucs_unlikely(!ucs_list_is_empty(&iface->todo) || !ucs_list_is_empty(&iface->blocked))) {
        count += uct_ofi_peers_work(iface);
    }
    return count + uct_iface_progress_base(tl_iface);
}

/* ---- waiting ---- */

static ucs_status_t uct_ofi_events_add(uct_ofi_iface_t *iface, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    return (ucs_sys_epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) ?
           UCS_ERR_IO_ERROR : UCS_OK;
}

/* Nothing wakes the set any more. */
static void uct_ofi_events_remove(uct_ofi_iface_t *iface)
{
    struct epoll_event unused = {.events = 0};

    if ((iface->epoll_fd >= 0) && !iface->is_inherited) { /* else it is the parent's set */
        (void)ucs_sys_epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, iface->timer_fd, &unused);
        (void)ucs_sys_epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, iface->cq_fd, &unused);
    }
}

static void uct_ofi_events_close(uct_ofi_iface_t *iface)
{
    uct_ofi_events_remove(iface);
    if (iface->has_own_set && (iface->epoll_fd >= 0)) {
        ucs_sys_close(iface->epoll_fd);
    }
    if (iface->timer_fd >= 0) {
        ucs_sys_close(iface->timer_fd);
    }
    iface->has_own_set = 0;
    iface->epoll_fd = iface->timer_fd = iface->cq_fd = -1;
}

/* epoll_fd: the set to use. */
static ucs_status_t uct_ofi_events_open(uct_ofi_iface_t *iface, int epoll_fd)
{
    ucs_status_t status;
    int fd;

    iface->epoll_fd = epoll_fd;
    iface->timer_fd = ucs_sys_timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if ((epoll_fd < 0) || (iface->timer_fd < 0)) {
        ucs_error("failed to make descriptors to sleep on: %m");
        return UCS_ERR_IO_ERROR;
    }
    status = uct_ofi_events_add(iface, iface->timer_fd, EPOLLIN);
    if (status != UCS_OK) {
        ucs_error("cannot gather the descriptors of a network to sleep on: %m");
        return status;
    }
    if (!iface->has_wait || (fi_control(&iface->cq->fid, FI_GETWAIT, &fd) != 0)) {
        iface->has_wait = 0;
        return UCS_OK;
    }
    /* By edges: the descriptor of the provider net stays readable for ever once something has
     * come. */
    if (uct_ofi_events_add(iface, fd, EPOLLIN | EPOLLET) == UCS_OK) {
        iface->cq_fd = fd;
    } else { /* ELOOP: the program's sets and the provider's are too many in each other */
        ucs_info("the network's descriptor cannot be waited on (%m): a sleeping worker looks for "
                 "messages now and then");
        iface->has_wait = 0;
    }
    return UCS_OK;
}

ucs_status_t uct_ofi_event_join(uct_iface_t *tl_iface, int epoll_fd)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);

    iface->events_status = uct_ofi_events_open(iface, epoll_fd);
    if (iface->events_status != UCS_OK) {
        uct_ofi_events_close(iface);
    }
    return iface->events_status;
}

int uct_ofi_event_fd(uct_iface_t *tl_iface)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);

    if (iface->epoll_fd < 0) {
        iface->has_own_set = 1;
        (void)uct_ofi_event_join(tl_iface, ucs_sys_epoll_create1(EPOLL_CLOEXEC));
    }
    return iface->epoll_fd;
}

/* Keeps an event for the interface whose descriptor this is; 0: no provider's. */
static int uct_ofi_keep_event(uct_ofi_iface_t *iface, int fd)
{
    ucs_list_link_t *link = &iface->siblings;
    uct_ofi_iface_t *sibling;

    do {
        sibling = ucs_container_of(link, uct_ofi_iface_t, siblings);
        if (sibling->cq_fd == fd) {
            sibling->has_event = 1;
            return 1;
        }
        link = link->next;
    } while (link != &iface->siblings);
    return 0;
}

/* Is there something that no new event would tell of? What has happened until now is taken out of
 * the set, so the next progress has to look for it, since the provider does not; in the set of a
 * worker that is what has happened to siblings too, which may have been armed before. */
static int uct_ofi_has_arrived(uct_ofi_iface_t *iface)
{
    struct fid *fid = &iface->cq->fid;
    struct epoll_event events[UCT_OFI_EVENTS];
    int is_siblings = 0;
    int i, num_events, ret;

    num_events = ucs_sys_epoll_wait(iface->epoll_fd, events, UCT_OFI_EVENTS, 0);
    for (i = 0; i < num_events; ++i) {
        is_siblings |= uct_ofi_keep_event(iface, events[i].data.fd);
    }
    uct_ofi_enter(iface);
    ret = fi_trywait(iface->fabric, &fid, 1);
    uct_ofi_leave(iface);
    if (ret != 0) {
        iface->has_event = 1;
    }
    return iface->has_event || is_siblings;
}

/* The timer wakes a worker to ask silent peers; where the provider has no descriptor it does so
 * often, to find messages, and so it does to try again what found no room: a provider whose peer
 * takes nothing may have no event to tell. */
ucs_status_t uct_ofi_event_arm(uct_iface_t *tl_iface)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    struct itimerspec timer;
    uint64_t time_ns, unused;
    int has_pending;

    if (iface->is_inherited) {
        return UCS_OK; /* nothing comes */
    }
    if (!ucs_list_is_empty(&tl_iface->failed) || !ucs_list_is_empty(&iface->todo)) {
        return UCS_ERR_BUSY;
    }
    if (iface->ep == NULL) {
        return UCS_OK;
    }
    if (uct_ofi_receives_must_renew(iface)) {
        iface->turns |= UCT_OFI_LOOK_MASK; /* by the next progress */
        return UCS_ERR_BUSY;
    }
    if (iface->epoll_fd < 0) {
        return iface->events_status; /* nobody has asked for it, or nothing would wake */
    }
    (void)!ucs_sys_read(iface->timer_fd, &unused, sizeof(unused)); /* an old event, perhaps */
    if (iface->has_wait && uct_ofi_has_arrived(iface)) {
        return UCS_ERR_BUSY;
    }
    has_pending = !ucs_list_is_empty(&tl_iface->ready);
    time_ns = (!iface->has_wait || !ucs_list_is_empty(&iface->blocked) || has_pending ||
               (iface->num_unposted > 0)) ?
              UCT_OFI_NO_WAIT_NS :
              (ucs_list_is_empty(&iface->peers) && ucs_list_is_empty(&iface->lost) &&
               (iface->num_lost == 0)) ?
              0 : uct_ofi_alive_interval(iface);
    memset(&timer, 0, sizeof(timer));
    timer.it_value.tv_sec  = (time_t)(time_ns / 1000000000ul);
    timer.it_value.tv_nsec = (long)(time_ns % 1000000000ul);
    (void)ucs_sys_timerfd_settime(iface->timer_fd, 0, &timer, NULL);
    iface->turns |= UCT_OFI_LOOK_MASK; /* the next progress looks at everything */
    return UCS_OK;
}

/* ---- opening ---- */

static ucs_status_t uct_ofi_check(int ret, const char *what)
{
    if (ret == 0) {
        return UCS_OK;
    }
    ucs_info("%s: %s", what, uct_ofi_lib.strerror(-ret));
    return (ret == -FI_ENOMEM) ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
}

static ucs_status_t uct_ofi_open_queue(uct_ofi_iface_t *iface)
{
    struct fi_cq_attr attr = {.size     = iface->info->tx_attr->size + iface->info->rx_attr->size,
                              .format   = FI_CQ_FORMAT_DATA,
                              .wait_obj = FI_WAIT_FD};

    iface->has_wait = 1;
    if (fi_cq_open(iface->domain, &attr, &iface->cq, NULL) == 0) {
        return UCS_OK;
    }
    iface->has_wait = 0;
    attr.wait_obj   = FI_WAIT_NONE;
    return uct_ofi_check(fi_cq_open(iface->domain, &attr, &iface->cq, NULL), "fi_cq_open");
}

static ucs_status_t uct_ofi_open_objects(uct_ofi_iface_t *iface)
{
    struct fi_av_attr av_attr = {.type = iface->info->domain_attr->av_type};
    size_t message_max        = UCT_OFI_BUFFER_SIZE;
    ucs_status_t status;
    int ret;

    status = uct_ofi_check(uct_ofi_lib.fabric(iface->info->fabric_attr, &iface->fabric, NULL),
                           "fi_fabric");
    status = (status != UCS_OK) ? status :
             uct_ofi_check(fi_domain(iface->fabric, iface->info, &iface->domain, NULL),
                           "fi_domain");
    status = (status != UCS_OK) ? status : uct_ofi_open_queue(iface);
    status = (status != UCS_OK) ? status :
             uct_ofi_check(fi_av_open(iface->domain, &av_attr, &iface->av, NULL), "fi_av_open");
    status = (status != UCS_OK) ? status :
             uct_ofi_check(fi_endpoint(iface->domain, iface->info, &iface->ep, NULL),
                           "fi_endpoint");
    if (status != UCS_OK) {
        return status;
    }
    ret = fi_ep_bind(iface->ep, &iface->av->fid, 0);
    ret = (ret == 0) ? fi_ep_bind(iface->ep, &iface->cq->fid, FI_TRANSMIT | FI_RECV) : ret;
    if ((ret == 0) && iface->is_multi) {
        ret = fi_setopt(&iface->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &message_max,
                        sizeof(message_max));
    }
    ret = (ret == 0) ? fi_enable(iface->ep) : ret;
    return uct_ofi_check(ret, "fi_enable");
}

/* Buffers in one block: one to align in, those to receive into. */
static ucs_status_t uct_ofi_open_receives(uct_ofi_iface_t *iface)
{
    const uct_ofi_config_t *config = uct_ofi_config(iface);
    int is_rail                    = (iface->super.params.lead != NULL);
    size_t rx_size                 = is_rail ? UCT_OFI_RAIL_SIZE : config->rx_size;
    size_t total                   = is_rail ? 2 * rx_size : config->rx_buffers * rx_size;
    unsigned num_receives;
    char *next;
    unsigned i;

    iface->message_max  = iface->is_multi ? UCT_OFI_MESSAGE_MAX : UCT_OFI_SINGLE_MAX;
    iface->receive_size = iface->is_multi ? ucs_align_up(rx_size, 64) :
                          ucs_align_up(UCT_OFI_BUFFER_SIZE, 64);
    iface->has_single   = iface->is_multi && iface->is_bare;
    iface->num_receives = (unsigned)ucs_min(ucs_max(total / iface->receive_size, (size_t)2) +
                                            (iface->has_single != 0),
                                            iface->info->rx_attr->size);
    iface->num_spares   = iface->is_multi ? UCT_OFI_SPARES * iface->num_receives : 0;
    iface->num_unposted = iface->num_receives;
    num_receives        = iface->num_receives + iface->num_spares;
    iface->receives     = ucs_sys_calloc(num_receives, sizeof(*iface->receives));
    if (iface->receives == NULL) {
        ucs_error("no memory for the buffers of a network");
        return UCS_ERR_NO_MEMORY;
    }
    iface->memory_size = ucs_align_up(UCT_OFI_BUFFER_SIZE, 4096) +
                         (num_receives * iface->receive_size);
    /* Touched as it is used. */
    iface->memory = ucs_sys_mmap(NULL, iface->memory_size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (iface->memory == MAP_FAILED) {
        iface->memory = NULL;
        ucs_error("no memory for the buffers of a network: %m");
        return UCS_ERR_NO_MEMORY;
    }
    iface->scratch = iface->memory;
    next           = iface->memory + iface->memory_size - (num_receives * iface->receive_size);
    for (i = 0; i < num_receives; ++i, next += iface->receive_size) {
        iface->receives[i].buffer     = next;
        iface->receives[i].super.kind = UCT_OFI_OP_RECEIVE;
    }
    return uct_ofi_check(uct_ofi_register_own(iface, iface->memory, iface->memory_size,
                                              &iface->mr), "fi_mr_reg");
}

/* A forked child inherits the provider's connections. What it would send there, a farewell even,
 * would come out of the middle of the parent's messages; so what it has inherited fails, is not
 * progressed, and is forgotten without a word. The provider's descriptors stay open in it, as there
 * is no way to close them that the provider would not tell the peers. What it makes anew works. */
static void uct_ofi_fork_in_child(ucs_fork_watch_t *watch)
{
    uct_ofi_iface_t *iface = ucs_container_of(watch, uct_ofi_iface_t, fork);
    uct_ep_t *ep;

    iface->is_inherited = 1;
    /* Another thread of the parent may have held them. */
    pthread_mutex_init(&iface->lock, NULL);
    pthread_mutex_init(&uct_ofi_md(iface->super.md)->lock, NULL);
    ucs_list_for_each(ep, &iface->super.eps, list) {
        uct_ep_set_failed(ep, UCS_ERR_CONNECTION_RESET);
    }
}

ucs_status_t uct_ofi_iface_open(uct_iface_t *tl_iface)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    unsigned tries         = 0;
    const char *reason;
    ucs_status_t status;

    iface->epoll_fd = iface->timer_fd = iface->cq_fd = -1;
    pthread_mutex_init(&iface->lock, NULL);
    ucs_list_head_init(&iface->peers);
    ucs_list_head_init(&iface->lost);
    ucs_list_head_init(&iface->siblings);
    if (iface->super.params.lead != NULL) {
        ucs_list_add_tail(&uct_ofi_iface(iface->super.params.lead)->siblings, &iface->siblings);
    }
    ucs_fork_watch_add(&iface->fork, uct_ofi_fork_in_child);
    ucs_list_head_init(&iface->todo);
    ucs_list_head_init(&iface->blocked);
    ucs_list_head_init(&iface->blocks);
    ucs_list_head_init(&iface->free_sends);
    ucs_list_head_init(&iface->free_rmas);
    ucs_list_head_init(&iface->md_list);
    ucs_list_head_init(&iface->mems);
    ucs_list_head_init(&iface->kept_mems);
    ucs_hash_init(&iface->by_uid);
    ucs_ptr_map_init(&iface->by_token);
    ucs_hash_init(&iface->addrs);
    iface->secret     = ucs_sys_random64();
    iface->poll_ticks = (uint64_t)(UCT_OFI_VAIN_NS * 1e-9 * ucs_arch_tsc_hz());

    reason = uct_ofi_lib_open();
    if (reason != NULL) {
        ucs_info("no networks: %s", reason);
        return UCS_ERR_NO_DEVICE;
    }
    status = uct_ofi_provider_choose(iface);
    status = (status != UCS_OK) ? status : uct_ofi_open_objects(iface);
    status = (status != UCS_OK) ? status : uct_ofi_address_make(iface);
    status = (status != UCS_OK) ? status : uct_ofi_open_receives(iface);
    status = (status != UCS_OK) ? status :
             uct_ofi_check(uct_ofi_sends_open(iface), "buffers to send from");
    status = (status != UCS_OK) ? status : uct_ofi_rma_open(iface);
    if (status == UCS_OK) {
        iface->short_max = ucs_min(iface->info->tx_attr->inject_size, UCT_OFI_SHORT_MAX);
        do {
            uct_ofi_receives_post(iface);
        } while ((iface->num_refused > 0) && (iface->ep != NULL) && (++tries < UCT_OFI_REFUSALS));
        status = (iface->ep != NULL) ? UCS_OK : UCS_ERR_IO_ERROR;
    }
    return status;
}

/* fid: the first field of an object; NULL: there is none. */
static void uct_ofi_close_fid(const uct_ofi_iface_t *iface, struct fid *fid)
{
    int ret = ((fid == NULL) || iface->is_inherited) ? 0 : fi_close(fid);

    if (ret != 0) {
        ucs_debug("fi_close: error %d", ret);
    }
}

/* Of what the interface keeps for itself. */
static void uct_ofi_deregister_own(uct_ofi_iface_t *iface)
{
    uct_ofi_deregister(iface, &iface->mr);
    uct_ofi_sends_deregister(iface);
}

/* Memory that is in use stays registered until the endpoint has ended, where the provider ends one
 * that memory is bound to. */
static void uct_ofi_close_ep(uct_ofi_iface_t *iface)
{
    struct fid_ep *ep = iface->ep;
    int ret;

    if ((ep == NULL) || iface->is_inherited) {
        return;
    }
    uct_ofi_enter(iface);
    iface->ep = NULL;
    ret       = fi_close(&ep->fid);
    uct_ofi_leave(iface);
    if (ret == -FI_EBUSY) {
        uct_ofi_mems_close(iface);
        uct_ofi_deregister_own(iface);
        uct_ofi_close_fid(iface, &ep->fid);
    } else if (ret != 0) {
        ucs_debug("fi_close of an endpoint: error %d", ret);
    }
}

void uct_ofi_iface_end(uct_ofi_iface_t *iface, ucs_status_t status)
{
    uct_ofi_events_remove(iface);
    iface->has_wait = 0; /* nor is the queue's descriptor, which may stay readable, added later */
    uct_ofi_close_ep(iface);
    uct_ofi_sends_abandon(iface, status);
    uct_ofi_rma_abandon(iface, status);
}

void uct_ofi_iface_close(uct_iface_t *tl_iface)
{
    uct_ofi_iface_t *iface = uct_ofi_iface(tl_iface);
    unsigned i;

    ucs_fork_watch_remove(&iface->fork);
    ucs_list_del(&iface->siblings);
    uct_ofi_rma_leave(iface);
    iface->is_closing = 1;
    if ((iface->address_length > 0) && (iface->ep != NULL) && !iface->is_inherited) {
        uct_ofi_peers_leave(iface);
    }
    uct_ofi_peers_free(iface);
    uct_ofi_events_close(iface);
    uct_ofi_iface_end(iface, UCS_ERR_CANCELED);
    uct_ofi_mems_close(iface);
    uct_ofi_deregister_own(iface);
    uct_ofi_close_fid(iface, (struct fid *)iface->av);
    uct_ofi_close_fid(iface, (struct fid *)iface->cq);
    uct_ofi_close_fid(iface, (struct fid *)iface->domain);
    uct_ofi_close_fid(iface, (struct fid *)iface->fabric);
    if (uct_ofi_lib_open() == NULL) {
        uct_ofi_lib.freeinfo(iface->info);
        for (i = 0; i < UCT_RAILS_MAX; ++i) {
            uct_ofi_lib.freeinfo(iface->rails[i]);
        }
    }
    if (iface->memory != NULL) {
        ucs_sys_munmap(iface->memory, iface->memory_size);
    }
    uct_ofi_sends_close(iface);
    pthread_mutex_destroy(&iface->lock);
    ucs_sys_free(iface->choice);
    ucs_sys_free(iface->receives);
    ucs_sys_free(iface->rmas);
    ucs_hash_cleanup(&iface->by_uid);
    ucs_ptr_map_cleanup(&iface->by_token);
    uct_ofi_addrs_close(iface);
}
