/* Halyard: ucx_info -d: the transports of this machine with the limits and costs that the library
 * calculates with.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "info.h"

#include <stdlib.h>
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

static void info_print_size(const char *before, size_t size)
{
    if (size == SIZE_MAX) {
        printf("%sany size", before);
    } else {
        printf("%s<= %zu bytes", before, size);
    }
}

static void info_print_limits(uct_iface_t *iface)
{
    static const char *const names[UCT_OP_LAST] = {
        [UCT_OP_AM_SHORT]  = "am_short",  [UCT_OP_AM_BCOPY]  = "am_bcopy",
        [UCT_OP_AM_ZCOPY]  = "am_zcopy",  [UCT_OP_PUT_SHORT] = "put_short",
        [UCT_OP_PUT_ZCOPY] = "put_zcopy", [UCT_OP_GET_ZCOPY] = "get_zcopy",
        [UCT_OP_ATOMIC]    = "atomic"
    };
    ucs_memory_type_t memory = (iface->tl->kind == UCT_TL_KIND_DEVICE) ? UCS_MEMORY_TYPE_CUDA :
                                                                         UCS_MEMORY_TYPE_HOST;
    uct_limits_t limits;
    int op;

    printf("#\n#      capabilities, %s:\n", ucs_memory_type_descs[memory]);
    for (op = 0; op < UCT_OP_LAST; ++op) {
        iface->tl->iface.limits(iface, op, memory, &limits);
        if (limits.max == 0) {
            printf("#      %15s: no\n", names[op]);
            continue;
        }
        printf("#      %15s: ", names[op]);
        info_print_size("", limits.max);
        if (limits.min > 1) {
            printf(", >= %zu", limits.min);
        }
        if (limits.iov_max > 1) {
            printf(", %u pieces", limits.iov_max);
        }
        if (limits.align > 1) {
            printf(", aligned to %zu", limits.align);
        }
        printf("; overhead %.0f ns, latency %.0f ns", limits.overhead_ns, limits.latency_ns);
        if (limits.bytes_per_ns > 0) {
            printf(", bandwidth %.0f MB/s", limits.bytes_per_ns * 1000);
        }
        printf("\n");
    }
}

/* Lines of "PROVIDER on DEVICE", then "not PROVIDER on DEVICE: why". */
static void info_print_choice(const char *choice)
{
    size_t length;

    for (; *choice != '\0'; choice += length + (choice[length] == '\n')) {
        length = strcspn(choice, "\n");
        printf("#         Device: %.*s\n", (int)length, choice);
    }
}

static void info_device(const uct_tl_t *tl)
{
    static const char *const kinds[] = {
        [UCT_TL_KIND_SELF]   = "a worker with itself",
        [UCT_TL_KIND_SHM]    = "processes of one node, by memory that both map",
        [UCT_TL_KIND_COPY]   = "processes of one node, by copies from one to the other",
        [UCT_TL_KIND_DEVICE] = "memory of GPUs of one node",
        [UCT_TL_KIND_NET]    = "nodes"
    };
    uct_iface_t *iface;
    ucs_status_t status;

    printf("#\n#      Transport: %s\n#           Help: %s\n#       Connects: %s\n", tl->name,
           tl->help, kinds[tl->kind]);
    status = info_iface_open(tl, &iface);
    if (status != UCS_OK) {
        printf("#          State: does not open: %s\n", ucs_status_string(status));
        return;
    }
    printf("#          State: open\n");
    info_print_choice((iface->choice != NULL) ? iface->choice : "memory");
    info_print_limits(iface);
    info_iface_close(iface);
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
        printf("#\n");
        return UCS_OK;
    }
    fprintf(stderr, "ucx_info: -t %s: there is none of this name; there are", names);
    for (i = 0; i < count; ++i) {
        fprintf(stderr, " %s", tls[i]->name);
    }
    fprintf(stderr, "\n");
    return UCS_ERR_NO_ELEM;
}
