/* Halyard: the same loops directly on libfabric: what the network gives without the library.
 *
 * Messages between endpoints of type RDM, sent from and received into the test's buffers. Receives
 * are not told apart by tags: between two sides data goes one way and acknowledgements the other.
 * UCX_OFI_PROVIDER and UCX_NET_DEVICES, one name each, say which network as they do to the library.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "loops.h"
#include "ops.h"
#include "watch.h"

#ifdef HAVE_OFI

#include <stdlib.h>
#include <string.h>
#include <uct/ofi/ofi_lib.h>

#define NAME_MAX_BYTES 240
#define CONTEXTS       (4 * PERF_WINDOW_MAX) /* more than are ever under way */
#define ACK_BYTES      8

typedef struct perf_ofi {
    struct fi_info      *info;
    struct fid_fabric   *fabric;
    struct fid_domain   *domain;
    struct fid_av       *av;
    struct fid_cq       *cq;
    struct fid_ep       *ep;
    struct fid_mr       *mr[2]; /* of the send and of the receive buffer */
    void                *desc[2];
    fi_addr_t            peer;
    unsigned             next_context;
    struct fi_context2   contexts[CONTEXTS];
} perf_ofi_t;

/* What the sides tell each other. */
typedef struct {
    uint32_t protocol; /* FI_PROTO_... */
    uint8_t  bytes[NAME_MAX_BYTES];
} perf_ofi_name_t;

static unsigned ofi_progress(perf_lane_t *lane)
{
    perf_ofi_t *ofi = lane->bare;
    struct fi_cq_msg_entry entries[16];
    struct fi_cq_err_entry error = {0};
    ssize_t ret                  = fi_cq_read(ofi->cq, entries, 16);
    ssize_t i;

    if (ret == -FI_EAVAIL) {
        (void)fi_cq_readerr(ofi->cq, &error, 0);
        perf_lane_fail(lane, UCS_ERR_IO_ERROR, uct_ofi_lib.strerror(error.err));
        return 1;
    }
    for (i = 0; i < ret; ++i) {
        if (entries[i].flags & FI_RECV) {
            ++lane->recv_done;
        } else if (entries[i].op_context != NULL) {
            ++lane->send_done;
        }
    }
    return (ret > 0) ? (unsigned)ret : 0;
}

/* Is the call to be repeated? */
static int ofi_again(perf_lane_t *lane, ssize_t ret, unsigned *spins)
{
    if (ret == -FI_EAGAIN) {
        (void)perf_lane_pause(lane, ofi_progress(lane), spins);
        return lane->status == UCS_OK;
    }
    if (ret != 0) {
        perf_lane_fail(lane, UCS_ERR_IO_ERROR, uct_ofi_lib.strerror((int)-ret));
    }
    return 0;
}

static void *ofi_context(perf_ofi_t *ofi)
{
    return &ofi->contexts[ofi->next_context++ % CONTEXTS];
}

static void ofi_send_bytes(perf_lane_t *lane, const void *buffer, size_t size)
{
    perf_ofi_t *ofi = lane->bare;
    unsigned spins  = 0;
    ssize_t ret;

    do {
        ret = (size <= ofi->info->tx_attr->inject_size) ?
              fi_inject(ofi->ep, buffer, size, ofi->peer) :
              fi_send(ofi->ep, buffer, size, ofi->desc[0], ofi->peer, ofi_context(ofi));
    } while (ofi_again(lane, ret, &spins));
    lane->send_posted += (size > ofi->info->tx_attr->inject_size);
}

static void ofi_post_bytes(perf_lane_t *lane, void *buffer, size_t size)
{
    perf_ofi_t *ofi = lane->bare;
    unsigned spins  = 0;
    ssize_t ret;

    do {
        ret = fi_recv(ofi->ep, buffer, size, ofi->desc[1], FI_ADDR_UNSPEC, ofi_context(ofi));
    } while (ofi_again(lane, ret, &spins));
}

static void ofi_send(perf_lane_t *lane, const perf_layout_t *layout)
{
    ofi_send_bytes(lane, layout->buffer, layout->count);
}

static void ofi_post(perf_lane_t *lane, const perf_layout_t *layout)
{
    ofi_post_bytes(lane, layout->buffer, layout->count);
}

static void ofi_ack(perf_lane_t *lane)
{
    ofi_send_bytes(lane, lane->send_buffer, ACK_BYTES);
}

static void ofi_post_ack(perf_lane_t *lane)
{
    ofi_post_bytes(lane, lane->recv_buffer, ACK_BYTES);
}

static const perf_flow_t ofi_flow = {ofi_send, ofi_post, ofi_ack, ofi_post_ack};

/* ---- opening ---- */

/* The offer on the device that is named, else the first that is not the loopback. */
static struct fi_info *ofi_choose(struct fi_info *list)
{
    const char *device   = getenv("UCX_NET_DEVICES");
    struct fi_info *best = NULL, *info;
    const char *name;
    size_t length;

    device = (device != NULL) ? device : getenv("UCX_OFI_DEVICES");
    device = ((device != NULL) && (strcmp(device, "all") == 0)) ? NULL : device;
    length = (device != NULL) ? strcspn(device, ":") : 0; /* behind it the port */
    for (info = list; (info != NULL) && (best == NULL); info = info->next) {
        name = info->domain_attr->name;
        if ((device != NULL) ? (strlen(name) == length) && (strncmp(name, device, length) == 0) :
                               (strcmp(name, "lo") != 0)) {
            best = info;
        }
    }
    best = ((best == NULL) && (device == NULL)) ? list : best;
    return (best != NULL) ? uct_ofi_lib.dupinfo(best) : NULL;
}

static int ofi_find(perf_ofi_t *ofi)
{
    static const uct_ofi_offer_t offer = {FI_MSG, FI_PROGRESS_UNSPEC, FI_ORDER_SAS};
    const char *provider               = getenv("UCX_OFI_PROVIDER");
    struct fi_info *hints              = uct_ofi_lib_hints(&offer);
    struct fi_info *list               = NULL;
    int ret;

    if (hints == NULL) {
        return -FI_ENOMEM;
    }
    hints->fabric_attr->prov_name =
        strdup(uct_ofi_lib_provider((provider != NULL) ? provider : "net"));
    ret = uct_ofi_lib.getinfo(UCT_OFI_API, NULL, NULL, 0, hints, &list);
    uct_ofi_lib.freeinfo(hints);
    if (ret == 0) {
        ofi->info = ofi_choose(list);
        uct_ofi_lib.freeinfo(list);
    }
    return (ofi->info != NULL) ? 0 : (ret != 0) ? ret : -FI_ENODATA;
}

static int ofi_register(perf_ofi_t *ofi, unsigned i, void *buffer, size_t size)
{
    const int mode = ofi->info->domain_attr->mr_mode;
    int ret;

    if (!(mode & FI_MR_LOCAL)) {
        return 0;
    }
    ret = fi_mr_reg(ofi->domain, buffer, size, FI_SEND | FI_RECV, 0, i + 1, 0, &ofi->mr[i], NULL);
    if ((ret == 0) && (mode & FI_MR_ENDPOINT)) {
        ret = fi_mr_bind(ofi->mr[i], &ofi->ep->fid, 0);
        ret = (ret == 0) ? fi_mr_enable(ofi->mr[i]) : ret;
    }
    if (ret == 0) {
        ofi->desc[i] = fi_mr_desc(ofi->mr[i]);
    }
    return ret;
}

static int ofi_open_objects(perf_lane_t *lane)
{
    perf_ofi_t *ofi       = lane->bare;
    int ret               = ofi_find(ofi);
    struct fi_cq_attr cq  = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av  = {.type = FI_AV_UNSPEC};

    ret = (ret == 0) ? uct_ofi_lib.fabric(ofi->info->fabric_attr, &ofi->fabric, NULL) : ret;
    ret = (ret == 0) ? fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL) : ret;
    if (ret == 0) {
        cq.size = ofi->info->tx_attr->size + ofi->info->rx_attr->size;
        av.type = ofi->info->domain_attr->av_type;
    }
    ret = (ret == 0) ? fi_cq_open(ofi->domain, &cq, &ofi->cq, NULL) : ret;
    ret = (ret == 0) ? fi_av_open(ofi->domain, &av, &ofi->av, NULL) : ret;
    ret = (ret == 0) ? fi_endpoint(ofi->domain, ofi->info, &ofi->ep, NULL) : ret;
    ret = (ret == 0) ? fi_ep_bind(ofi->ep, &ofi->av->fid, 0) : ret;
    ret = (ret == 0) ? fi_ep_bind(ofi->ep, &ofi->cq->fid, FI_TRANSMIT | FI_RECV) : ret;
    ret = (ret == 0) ? fi_enable(ofi->ep) : ret;
    ret = (ret == 0) ? ofi_register(ofi, 0, lane->send_buffer, lane->params->span) : ret;
    ret = (ret == 0) ? ofi_register(ofi, 1, lane->recv_buffer, lane->params->span) : ret;
    return ret;
}

/* Tells the other side where we are, and learns where it is. */
static ucs_status_t ofi_exchange(perf_lane_t *lane)
{
    perf_ofi_t *ofi      = lane->bare;
    perf_ofi_name_t mine = {.protocol = ofi->info->ep_attr->protocol}, theirs;
    size_t length        = sizeof(mine.bytes);

    if (fi_getname(&ofi->ep->fid, mine.bytes, &length) != 0) {
        return perf_lane_fail(lane, UCS_ERR_UNSUPPORTED, "fi_getname");
    }
    if ((perf_oob_send(lane->channel, PERF_OOB_ADDRESS, &mine, sizeof(mine)) != 0) ||
        (perf_oob_recv(lane->channel, PERF_OOB_ADDRESS, &theirs, sizeof(theirs)) != 0)) {
        return perf_lane_fail(lane, UCS_ERR_CONNECTION_RESET, "addresses");
    }
    if (theirs.protocol != mine.protocol) {
        return perf_lane_fail(lane, UCS_ERR_UNREACHABLE, "the peer uses another provider "
                                                         "(UCX_OFI_PROVIDER on both sides)");
    }
    theirs.bytes[sizeof(theirs.bytes) - 1] = '\0'; /* some say by that how long they are */
    if (fi_av_insert(ofi->av, theirs.bytes, 1, &ofi->peer, 0, NULL) != 1) {
        return perf_lane_fail(lane, UCS_ERR_UNREACHABLE, "the peer's address");
    }
    perf_note("provider %s on %s", ofi->info->fabric_attr->prov_name,
              ofi->info->domain_attr->name);
    return UCS_OK;
}

static void ofi_close_fid(struct fid *fid)
{
    if (fid != NULL) {
        (void)fi_close(fid);
    }
}

static void ofi_close(perf_lane_t *lane)
{
    perf_ofi_t *ofi = lane->bare;

    /* Each fid is the first field of its object. */
    ofi_close_fid((struct fid *)ofi->ep);
    ofi_close_fid((struct fid *)ofi->mr[0]);
    ofi_close_fid((struct fid *)ofi->mr[1]);
    ofi_close_fid((struct fid *)ofi->av);
    ofi_close_fid((struct fid *)ofi->cq);
    ofi_close_fid((struct fid *)ofi->domain);
    ofi_close_fid((struct fid *)ofi->fabric);
    if (ofi->info != NULL) {
        uct_ofi_lib.freeinfo(ofi->info);
    }
    free(ofi);
}

ucs_status_t perf_ofi_open(perf_lane_t *lane, const perf_op_t *op)
{
    perf_ofi_t *ofi = calloc(1, sizeof(*ofi));
    const char *problem;
    int ret;

    (void)op;
    if (ofi == NULL) {
        return perf_lane_fail(lane, UCS_ERR_NO_MEMORY, "contexts of operations");
    }
    lane->bare     = ofi;
    lane->progress = ofi_progress;
    lane->close    = ofi_close;
    problem        = uct_ofi_lib_open();
    if (problem != NULL) {
        return perf_lane_fail(lane, UCS_ERR_UNSUPPORTED, problem);
    }
    ret = ofi_open_objects(lane);
    return (ret == 0) ? ofi_exchange(lane) :
                        perf_lane_fail(lane, UCS_ERR_UNSUPPORTED, uct_ofi_lib.strerror(-ret));
}

#else

/* Never run: what it belongs to cannot be opened. */
static const perf_flow_t ofi_flow = {perf_post_none, perf_post_none, perf_post_ack_none,
                                     perf_post_ack_none};

ucs_status_t perf_ofi_open(perf_lane_t *lane, const perf_op_t *op)
{
    (void)op;
    return perf_lane_fail(lane, UCS_ERR_UNSUPPORTED, "this build was configured without libfabric");
}

#endif

PERF_DEFINE_FLOW(ofi, ofi_flow)
