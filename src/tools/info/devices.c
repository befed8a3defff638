/* Halyard: ucx_info -d: the transports of this machine with the limits and costs that the library
 * calculates with.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "info.h"

#include <string.h>

static void info_ep_failed(void *arg UCS_UNUSED, uct_ep_t *ep UCS_UNUSED,
                           ucs_status_t status UCS_UNUSED)
{
}

ucs_status_t info_iface_open(const uct_tl_t *tl, uct_iface_t **iface_p)
{
    static const uct_iface_params_t params = {.ep_failed = info_ep_failed};
    uct_md_t *md;
    ucs_status_t status = uct_md_open(tl, NULL, &md);

    if (status == UCS_OK) {
        status = uct_iface_open(md, &params, iface_p);
        if (status != UCS_OK) {
            uct_md_close(md);
        }
    }
    return status;
}

void info_iface_close(uct_iface_t *iface)
{
    uct_md_t *md = iface->md;

    uct_iface_close(iface);
    uct_md_close(md);
}

/* What a transport can do by one operation, and what that costs. */
static void info_limits(ucs_report_t *report, const uct_limits_t *limits)
{
    ucs_report_data(report, "max", "%zu", limits->max);
    ucs_report_text(report, (limits->max == SIZE_MAX) ? "any size" : "<= %zu bytes", limits->max);
    if (limits->min > 1) {
        ucs_report_row(report, "min", ", >= %zu", limits->min);
    }
    if (limits->iov_max > 1) {
        ucs_report_row(report, "pieces", ", %u pieces", limits->iov_max);
    }
    ucs_report_row(report, "overhead_ns latency_ns", "; overhead %.0f ns, latency %.0f ns",
                   limits->overhead_ns, limits->latency_ns);
    if (limits->bytes_per_ns > 0) {
        ucs_report_data(report, "bytes_per_ns", "%f", limits->bytes_per_ns);
        ucs_report_text(report, ", bandwidth %.0f MB/s", limits->bytes_per_ns * 1000);
    }
    ucs_report_text(report, "\n");
}

static void info_operations(ucs_report_t *report, uct_iface_t *iface)
{
    static const char *const names[UCT_OP_LAST] = {
        [UCT_OP_AM_SHORT]  = "am_short",  [UCT_OP_AM_BCOPY]  = "am_bcopy",
        [UCT_OP_AM_ZCOPY]  = "am_zcopy",  [UCT_OP_PUT_ZCOPY] = "put_zcopy",
        [UCT_OP_GET_ZCOPY] = "get_zcopy"
    };
    ucs_memory_type_t memory = (iface->tl->kind == UCT_TL_KIND_DEVICE) ? UCS_MEMORY_TYPE_CUDA :
                                                                         UCS_MEMORY_TYPE_HOST;
    uct_limits_t limits;
    int op;

    ucs_report_text(report, "#\n#      capabilities, %s:\n", ucs_memory_type_descs[memory]);
    ucs_report_open(report, "operations", '[');
    for (op = 0; op < UCT_OP_LAST; ++op) {
        iface->tl->iface.limits(iface, op, memory, &limits);
        ucs_report_open(report, NULL, '{');
        ucs_report_row(report, "operation", "#      %15s: ", names[op]);
        ucs_report_data(report, "memory supported?", "%s%d", ucs_memory_type_names[memory],
                        limits.max > 0);
        if (limits.max > 0) {
            info_limits(report, &limits);
        } else {
            ucs_report_text(report, "no\n");
        }
        ucs_report_close(report);
    }
    ucs_report_close(report);
}

static void info_device(const uct_tl_t *tl)
{
    static const struct {
        const char *name, *help;
    } kinds[] = {
        [UCT_TL_KIND_SELF]   = {"self", "a worker with itself"},
        [UCT_TL_KIND_SHM]    = {"shm", "processes of one node, by memory that both map"},
        [UCT_TL_KIND_COPY]   = {"copy", "processes of one node, by copies from one to the other"},
        [UCT_TL_KIND_DEVICE] = {"device", "memory of GPUs of one node"},
        [UCT_TL_KIND_NET]    = {"net", "nodes"}
    };
    ucs_report_t *report = ucs_report_shared;
    uct_iface_t *iface;
    ucs_status_t status;

    ucs_report_open(report, NULL, '{');
    ucs_report_row(report, "transport help -",
                   "#\n#      Transport: %s\n#           Help: %s\n#       Connects: %s\n",
                   tl->name, tl->help, kinds[tl->kind].help);
    status = info_iface_open(tl, &iface);
    ucs_report_data(report, "kind open?", "%s%d", kinds[tl->kind].name, status == UCS_OK);
    if (status != UCS_OK) {
        ucs_report_row(report, "reason", "#          State: does not open: %s\n",
                       ucs_status_string(status));
    } else {
        ucs_report_text(report, "#          State: open\n%s",
                        (iface->choice != NULL) ? "" : "#         Device: memory\n");
        ucs_report_open(report, "devices", '[');
        uct_report_choice(report, iface->choice, "#         Device: ");
        ucs_report_close(report);
        info_operations(report, iface);
        info_iface_close(iface);
    }
    ucs_report_close(report);
}

/* Those that are wrapped are made when they are named. */
static unsigned info_wrapped_devices(const ucs_config_allow_list_t *list)
{
    const uct_tl_t *tl;
    unsigned count = 0, i;

    for (i = 0; (list->mode == UCS_CONFIG_ALLOW_LIST_ALLOW) && (i < list->array.count); ++i) {
        tl = (strchr(list->array.names[i], ':') != NULL) ? uct_tl_find(list->array.names[i]) : NULL;
        if (tl != NULL) {
            info_device(tl);
            ++count;
        }
    }
    return count;
}

ucs_status_t info_devices(const char *names)
{
    static const ucs_config_row_t row = {.name = "transports", .type = &ucs_config_type_allow};
    ucs_config_allow_list_t list      = {.mode = UCS_CONFIG_ALLOW_LIST_ALLOW_ALL};
    const uct_tl_t *const *tls;
    unsigned shown = 0;
    size_t count, i;

    if (row.type->parse(names, &list, &row) != UCS_OK) {
        fprintf(stderr, "ucx_info: -t %s: names of transports, a,b or ^a,b, are expected\n", names);
        return UCS_ERR_INVALID_PARAM;
    }
    tls = uct_tl_list(&count);
    for (i = 0; i < count; ++i) {
        if (ucs_config_allow_list_has(&list, tls[i]->name)) {
            info_device(tls[i]);
            ++shown;
        }
    }
    shown += info_wrapped_devices(&list);
    row.type->release(&list);
    if (shown != 0) {
        ucs_report_text(ucs_report_shared, "#\n");
        return UCS_OK;
    }
    fprintf(stderr, "ucx_info: -t %s: there is none of this name; there are", names);
    for (i = 0; i < count; ++i) {
        fprintf(stderr, " %s", tls[i]->name);
    }
    fprintf(stderr, "\n");
    return UCS_ERR_NO_ELEM;
}
