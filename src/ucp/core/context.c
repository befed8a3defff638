/* Halyard: context and configuration: the public functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/mem.h>
#include <ucp/core/request.h>
#include <ucp/wire/address.h>
#include <ucs/config/global.h>
#include <ucs/config/names.h>
#include <ucs/debug/log.h>
#include <ucs/sys/string.h>
#include <pthread.h>
#include <string.h>

#define UCP_VERSION_RELEASE 0
#define UCP_VERSION_STRING  "1.23.0"

#define UCP_HEAP_BLOCK ((size_t)4 << 20) /* bytes; ucp_context_keep_heap */

static pthread_once_t ucp_heap_once = PTHREAD_ONCE_INIT;

/* The forms of mm that are transports of UCX's; bits. */
enum {
    UCP_TL_FORM_POSIX = 1,
    UCP_TL_FORM_SYSV  = 2,
    UCP_TL_FORMS      = UCP_TL_FORM_POSIX | UCP_TL_FORM_SYSV
};

/* Other names of transports in UCX_TLS. */
typedef struct {
    const char   *alias;
    const char   *tl;   /* one transport, or NULL: all of these kinds */
    unsigned      form; /* not 0: a list of what is not wanted leaves the other forms in use */
    uct_tl_kind_t kind1, kind2;
} ucp_tl_alias_t;

static const ucp_tl_alias_t ucp_tl_aliases[] = {
    {"shm",      NULL, 0,                 UCT_TL_KIND_SHM,    UCT_TL_KIND_COPY},
    {"sm",       NULL, 0,                 UCT_TL_KIND_SHM,    UCT_TL_KIND_COPY},
    {"mm",       NULL, 0,                 UCT_TL_KIND_SHM,    UCT_TL_KIND_SHM},
    {"posix",    "mm", UCP_TL_FORM_POSIX, UCT_TL_KIND_SHM,    UCT_TL_KIND_SHM},
    {"sysv",     "mm", UCP_TL_FORM_SYSV,  UCT_TL_KIND_SHM,    UCT_TL_KIND_SHM},
    {"memfd",    "mm", 0,                 UCT_TL_KIND_SHM,    UCT_TL_KIND_SHM},
    {"loopback", NULL, 0,                 UCT_TL_KIND_SELF,   UCT_TL_KIND_SELF},
    {"net",      NULL, 0,                 UCT_TL_KIND_NET,    UCT_TL_KIND_NET},
    {"tcp",      NULL, 0,                 UCT_TL_KIND_NET,    UCT_TL_KIND_NET},
    {"cuda",     NULL, 0,                 UCT_TL_KIND_DEVICE, UCT_TL_KIND_DEVICE},
    {"gpu",      NULL, 0,                 UCT_TL_KIND_DEVICE, UCT_TL_KIND_DEVICE}
};

/* The transport that wrapped forms such as "fault:mm" are about. */
static const char *ucp_tl_base_name(const char *name)
{
    const char *colon = strrchr(name, ':');

    return (colon == NULL) ? name : colon + 1;
}

static const ucp_tl_alias_t *ucp_tl_alias(const char *name)
{
    size_t i;

    for (i = 0; i < ucs_array_size(ucp_tl_aliases); ++i) {
        if (strcmp(name, ucp_tl_aliases[i].alias) == 0) {
            return &ucp_tl_aliases[i];
        }
    }
    return NULL;
}

static int ucp_tl_name_is(const char *name, const uct_tl_t *tl)
{
    const ucp_tl_alias_t *alias = ucp_tl_alias(name);

    if ((strcmp(name, tl->name) == 0) || (strcmp(name, "all") == 0)) {
        return 1;
    }
    return (alias != NULL) &&
           ((alias->tl != NULL) ? (strcmp(alias->tl, tl->name) == 0) :
                                  ((tl->kind == alias->kind1) || (tl->kind == alias->kind2)));
}

/* Does the user's TLS list let the transport in? */
static int ucp_context_tl_allowed(const ucs_config_allow_list_t *tls, const uct_tl_t *tl)
{
    const int is_negated = (tls->mode == UCS_CONFIG_ALLOW_LIST_NEGATE);
    unsigned forms       = 0;
    const ucp_tl_alias_t *alias;
    unsigned form, i;

    if (tls->mode == UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) {
        return 1;
    }
    for (i = 0; i < tls->array.count; ++i) {
        if (ucp_tl_name_is(tls->array.names[i], tl)) {
            alias  = ucp_tl_alias(tls->array.names[i]);
            form   = (is_negated && (alias != NULL)) ? alias->form : 0;
            forms |= form;
            if ((form == 0) || (forms == UCP_TL_FORMS)) {
                return !is_negated;
            }
        }
    }
    return is_negated;
}

void ucp_entity_name(char name[UCP_ENTITY_NAME_MAX], const char *user_name, const void *object)
{
    if (user_name != NULL) {
        snprintf(name, UCP_ENTITY_NAME_MAX, "%s", user_name);
    } else {
        snprintf(name, UCP_ENTITY_NAME_MAX, "%p", object);
    }
}

/* ---- configuration ---- */

static void ucp_config_register_tables(void)
{
    const uct_tl_t *const *tls;
    size_t count, i;

    ucs_config_table_add("ucp", "", ucp_options_rows);
    tls = uct_tl_list(&count);
    for (i = 0; i < count; ++i) {
        if (tls[i]->config_rows != NULL) {
            ucs_config_table_add(tls[i]->name, tls[i]->config_prefix, tls[i]->config_rows);
        }
    }
}

static ucs_status_t ucp_config_fill_tls(ucp_config_t *config, const char *app_prefix)
{
    ucs_status_t status;
    size_t i;

    config->tls     = uct_tl_list(&config->num_tls);
    config->num_tls = ucs_min(config->num_tls, (size_t)UCP_TL_MAX);
    for (i = 0; i < config->num_tls; ++i) {
        status = uct_config_read(config->tls[i], app_prefix, &config->tl_config[i]);
        if (status != UCS_OK) {
            return status;
        }
    }
    return UCS_OK;
}

ucs_status_t ucp_config_read(const char *env_prefix, const char *filename UCS_UNUSED,
                             ucp_config_t **config_p)
{
    const char *app_prefix = ((env_prefix != NULL) && (env_prefix[0] != '\0')) ? env_prefix : NULL;
    ucp_config_t *config   = ucs_sys_calloc(1, sizeof(*config));
    ucs_status_t status;

    if (config == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    ucp_config_register_tables();

    status = ucs_config_fill(&config->options, ucp_options_rows, app_prefix, "", 0);
    if (status != UCS_OK) {
        ucs_sys_free(config);
        return status;
    }
    status = ucp_config_fill_tls(config, app_prefix);
    if (status == UCS_OK) {
        config->env_prefix = (app_prefix == NULL) ? NULL : ucs_sys_strdup(app_prefix);
        *config_p          = config;
        return UCS_OK;
    }
    ucp_config_release(config);
    return status;
}

void ucp_config_release(ucp_config_t *config)
{
    size_t i;

    for (i = 0; i < config->num_tls; ++i) {
        uct_config_release(config->tls[i], config->tl_config[i]);
    }
    ucs_config_release(&config->options, ucp_options_rows);
    ucs_sys_free(config->env_prefix);
    ucs_sys_free(config);
}

ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
{
    ucs_status_t status;
    size_t i;

    status = ucs_config_set(&config->options, ucp_options_rows, "", name, value);
    if (status != UCS_ERR_NO_ELEM) {
        return status;
    }

    for (i = 0; i < config->num_tls; ++i) {
        if (config->tl_config[i] == NULL) {
            continue;
        }
        status = ucs_config_set(config->tl_config[i], config->tls[i]->config_rows,
                                config->tls[i]->config_prefix, name, value);
        if (status != UCS_ERR_NO_ELEM) {
            return status;
        }
    }

    status = ucs_global_opts_set(name, value);
    if (status != UCS_ERR_NO_ELEM) {
        return status;
    }
    /* Clients set what means something to UCX and give up if that is refused. */
    return ucs_config_name_is_foreign(name) ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

void ucp_config_print(const ucp_config_t *config, FILE *stream, const char *title,
                      ucs_config_print_flags_t print_flags)
{
    ucs_global_opts_t process;
    const int is_read = (ucs_global_opts_copy(&process) == UCS_OK);
    size_t i;

    ucs_config_print(stream, title, is_read ? &process : NULL, ucs_global_rows, "", print_flags);
    if (is_read) {
        ucs_config_release(&process, ucs_global_rows);
    }
    ucs_config_print(stream, NULL, &config->options, ucp_options_rows, "", print_flags);
    for (i = 0; i < config->num_tls; ++i) {
        if (config->tl_config[i] != NULL) {
            ucs_config_print(stream, NULL, config->tl_config[i], config->tls[i]->config_rows,
                             config->tls[i]->config_prefix, print_flags);
        }
    }
}

/* ---- version ---- */

void ucp_get_version(unsigned *major_version, unsigned *minor_version, unsigned *release_number)
{
    const unsigned version[] = {UCP_API_MAJOR, UCP_API_MINOR, UCP_VERSION_RELEASE};
    unsigned *const result[] = {major_version, minor_version, release_number};
    unsigned i;

    for (i = 0; i < ucs_array_size(result); ++i) {
        if (result[i] != NULL) {
            *result[i] = version[i];
        }
    }
}

const char *ucp_get_version_string(void)
{
    return UCP_VERSION_STRING;
}

ucs_status_t ucp_lib_query(ucp_lib_attr_t *attr)
{
    if (attr->field_mask & UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL) {
        attr->max_thread_level = UCS_THREAD_MODE_MULTI;
    }
    return UCS_OK;
}

/* ---- context ---- */

/* The name of a transport, or of several, that one of none was probably meant to be; or NULL. */
static const char *ucp_context_meant_tl(const char *name)
{
    const char *names[UCP_TL_MAX + ucs_array_size(ucp_tl_aliases) + 1];
    const uct_tl_t *const *tls;
    size_t count, i;
    unsigned n = 0;

    tls = uct_tl_list(&count);
    for (i = 0; i < ucs_min(count, (size_t)UCP_TL_MAX); ++i) {
        names[n++] = tls[i]->name;
    }
    for (i = 0; i < ucs_array_size(ucp_tl_aliases); ++i) {
        names[n++] = ucp_tl_aliases[i].alias;
    }
    names[n] = NULL;
    return ucs_str_nearest(name, names);
}

/* A name that the user wrote which is no transport here: the list may be meant for another
 * machine, whose transports have other names; a slip of the pen looks like one of ours. */
static void ucp_context_check_tls(const ucs_config_allow_list_t *list)
{
    const uct_tl_t *const *tls;
    const char *meant;
    size_t count, i;
    unsigned n;

    tls = uct_tl_list(&count);
    for (n = 0; (list->mode != UCS_CONFIG_ALLOW_LIST_ALLOW_ALL) && (n < list->array.count); ++n) {
        for (i = 0; i < count; ++i) {
            if (ucp_tl_name_is(ucp_tl_base_name(list->array.names[n]), tls[i])) {
                break;
            }
        }
        if (i == count) {
            meant = ucp_context_meant_tl(ucp_tl_base_name(list->array.names[n]));
            if (meant != NULL) {
                ucs_warn("UCX_TLS: there is no transport '%s'; is '%s' meant?",
                         list->array.names[n], meant);
            } else {
                ucs_info("UCX_TLS: transport '%s' is not available here", list->array.names[n]);
            }
        }
    }
}

static ucs_status_t ucp_context_add_tl(ucp_context_t *context, const uct_tl_t *tl, unsigned rail,
                                       const void *tl_config, char reason[UCT_REASON_MAX])
{
    ucp_tl_resource_t *resource = &context->tls[context->num_tls];
    ucs_status_t status;

    if (context->num_tls == UCP_TL_MAX) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    status = uct_md_open(tl, tl_config, &resource->md);
    if (status != UCS_OK) {
        snprintf(reason, UCT_REASON_MAX, "does not open: %s", ucs_status_string(status));
        return status;
    }
    snprintf(resource->name, sizeof(resource->name), (rail > 0) ? "%s#%u" : "%s", tl->name, rail);
    resource->tl      = tl;
    resource->rail    = rail;
    resource->lead    = context->num_tls - rail;
    resource->wire_id = ucp_address_wire_id(resource->name);
    ++context->num_tls;
    return UCS_OK;
}

/* What it takes to use further devices at the same time; doing without is possible. */
static void ucp_context_add_rails(ucp_context_t *context, const uct_tl_t *tl, const void *tl_config)
{
    char reason[UCT_REASON_MAX];
    unsigned rail;

    for (rail = 1; rail < ucs_min(context->options.max_rails, tl->max_rails + 1); ++rail) {
        if (ucp_context_add_tl(context, tl, rail, tl_config, reason) != UCS_OK) {
            break;
        }
    }
}

/* A wrapped transport ("fault:mm") named by the user takes the place of the plain one. */
static const uct_tl_t *ucp_context_wrapped_tl(const ucs_config_allow_list_t *list,
                                              const uct_tl_t *tl)
{
    const uct_tl_t *wrapped;
    unsigned i;

    for (i = 0; (list->mode == UCS_CONFIG_ALLOW_LIST_ALLOW) && (i < list->array.count); ++i) {
        const char *name = list->array.names[i];

        if ((strchr(name, ':') != NULL) && ucp_tl_name_is(ucp_tl_base_name(name), tl)) {
            wrapped = uct_tl_find(name);
            if (wrapped != NULL) {
                return wrapped;
            }
        }
    }
    return NULL;
}

/* There is always the way to oneself. Memory of devices would be taken for the host's without the
 * one that tells them apart, and the process would die: lists of transports to use, which are most
 * often about the way between processes, leave it in, and only lists of those not to use take it
 * out. */
static int ucp_context_tl_stays(const ucs_config_allow_list_t *tls, const uct_tl_t *tl)
{
    return (tl->kind == UCT_TL_KIND_SELF) ||
           ((tl->md.mem_query != NULL) && (tls->mode == UCS_CONFIG_ALLOW_LIST_ALLOW));
}

static ucs_status_t ucp_context_open_tls(ucp_context_t *context, const ucp_config_t *config)
{
    unsigned num_useful = 0;
    ucs_status_t status;
    size_t i;

    for (i = 0; i < config->num_tls; ++i) {
        const uct_tl_t *tl = ucp_context_wrapped_tl(&context->options.tls, config->tls[i]);

        if (tl == NULL) {
            tl = config->tls[i];
            if (!ucp_context_tl_stays(&context->options.tls, tl) &&
                !ucp_context_tl_allowed(&context->options.tls, tl)) {
                snprintf(context->tl_reason[i], UCT_REASON_MAX, "switched off by UCX_TLS");
                continue;
            }
        }
        status = ucp_context_add_tl(context, tl, 0, config->tl_config[i], context->tl_reason[i]);
        if ((status == UCS_ERR_INVALID_PARAM) || (status == UCS_ERR_OUT_OF_RANGE)) {
            return status; /* an option of the hooks', as those of the others were read before */
        }
        if ((status == UCS_ERR_NO_MEMORY) && (tl->md.mem_query != NULL)) {
            return status; /* memory of devices would be taken for the host's */
        }
        if (status != UCS_OK) {
            continue;
        }
        num_useful += !ucp_context_tl_stays(&context->options.tls, tl) ||
                      ucp_context_tl_allowed(&context->options.tls, tl);
        ucp_context_add_rails(context, tl, config->tl_config[i]);
    }

    if (num_useful == 0) {
        ucs_error("no transport opens that UCX_TLS lets in; there are self, mm (alias shm), cma "
                  "and ofi (alias net); `ucx_info -d` shows which open here");
        return UCS_ERR_NO_DEVICE;
    }
    ucp_context_check_tls(&context->options.tls);
    return UCS_OK;
}

static void ucp_context_set_params(ucp_context_t *context, const ucp_params_t *params)
{
    uint64_t mask = params->field_mask;

    context->features          = (mask & UCP_PARAM_FIELD_FEATURES) ? params->features : 0;
    context->user_request_size = (mask & UCP_PARAM_FIELD_REQUEST_SIZE) ? params->request_size : 0;
    context->request_init = (mask & UCP_PARAM_FIELD_REQUEST_INIT) ? params->request_init : NULL;
    context->request_cleanup =
        (mask & UCP_PARAM_FIELD_REQUEST_CLEANUP) ? params->request_cleanup : NULL;
    /* Only providers of networks have to know: locking is decided by each worker's thread mode, and
     * what workers share is always safe. */
    context->is_shared = (mask & UCP_PARAM_FIELD_MT_WORKERS_SHARED) && params->mt_workers_shared;
    ucp_entity_name(context->name, (mask & UCP_PARAM_FIELD_NAME) ? params->name : NULL, context);
}

/* By the names of the option: UCX's further ones mean the nearest of the others. */
static const uint8_t ucp_rndv_schemes[] = {
    UCP_RNDV_SCHEME_AUTO, UCP_RNDV_SCHEME_GET, UCP_RNDV_SCHEME_PUT, UCP_RNDV_SCHEME_BOTH,
    UCP_RNDV_SCHEME_AM,   UCP_RNDV_SCHEME_GET, UCP_RNDV_SCHEME_PUT, UCP_RNDV_SCHEME_AUTO
};

/* Programs that send from and receive into temporary buffers, as MPI's reductions do, pay for pages
 * that the C library gives back to the kernel and takes again: glibc keeps no more than 128 KiB at
 * the heap's end, and blocks from that length on not at all, until a longer one has been freed:
 * from then on it keeps such ones, and twice as much at the end (mallopt(3), M_MMAP_THRESHOLD). So
 * one is freed, whose pages were never used. What the program or its environment has set goes
 * before it. Open MPI's MPI_Reduce of 16 processes on a Xeon, us: 64 KiB 67 -> 35, 256 KiB 239
 * -> 146, 1 MiB 1183 -> 594. */
static void ucp_context_keep_heap(void)
{
    ucs_sys_free(ucs_sys_malloc(UCP_HEAP_BLOCK));
}

ucs_status_t ucp_init_version(unsigned api_major_version, unsigned api_minor_version,
                              const ucp_params_t *params, const ucp_config_t *config,
                              ucp_context_h *context_p)
{
    ucp_config_t *own_config = NULL;
    ucp_context_t *context;
    ucs_status_t status;

    if ((api_major_version != UCP_API_MAJOR) || (api_minor_version > UCP_API_MINOR)) {
        ucs_warn(
            "the program was built for version %u.%u of the interface, this library offers %u.%u",
            api_major_version, api_minor_version, UCP_API_MAJOR, UCP_API_MINOR);
    }
    if (!(params->field_mask & UCP_PARAM_FIELD_FEATURES) || (params->features == 0)) {
        ucs_warn("ucp_init: the program asks for no features");
    }

    if (config == NULL) {
        status = ucp_config_read(NULL, NULL, &own_config);
        if (status != UCS_OK) {
            return status;
        }
        config = own_config;
    }

    context = ucs_sys_calloc(1, sizeof(*context));
    status  = (context == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
    if (status == UCS_OK) {
        (void)pthread_once(&ucp_heap_once, ucp_context_keep_heap);
        ucp_mem_table_init(context);
        ucp_context_set_params(context, params);
        context->node_id = ucs_sys_node_id();
        status           = ucs_config_copy(&context->options, &config->options, ucp_options_rows);
        if (status != UCS_OK) {
            ucs_error("no memory to copy the configuration");
        }
        context->options.rndv_scheme = ucp_rndv_schemes[context->options.rndv_scheme];
    }
    if (status == UCS_OK) {
        status = ucp_context_open_tls(context, config);
        ucs_config_warn_unknown(config->env_prefix);
    }
    if (own_config != NULL) {
        ucp_config_release(own_config);
    }
    if (status != UCS_OK) {
        if (context != NULL) {
            ucp_cleanup(context);
        }
        return status;
    }

    *context_p = context;
    return UCS_OK;
}

void ucp_cleanup(ucp_context_h context)
{
    unsigned i;

    ucp_mem_table_cleanup(context);
    for (i = 0; i < context->num_tls; ++i) {
        uct_md_close(context->tls[i].md);
    }
    ucs_config_release(&context->options, ucp_options_rows);
    ucs_sys_free(context);
}

ucs_status_t ucp_context_mem_query(const ucp_context_t *context, const void *address,
                                   uct_mem_info_t *info_p)
{
    ucs_status_t status = UCS_ERR_NO_DEVICE;
    unsigned i;

    for (i = 0; (i < context->num_tls) && (status != UCS_OK); ++i) {
        if (context->tls[i].tl->md.mem_query != NULL) {
            status = context->tls[i].tl->md.mem_query(context->tls[i].md, address, 1, info_p);
        }
    }
    return status;
}

/* Bits of the kinds of memory that operations take. */
static uint64_t ucp_context_memory_types(const ucp_context_t *context)
{
    uint64_t types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    uct_mem_info_t info;

    if (ucp_context_mem_query(context, context, &info) == UCS_OK) {
        types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA) | UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED);
    }
    return types;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    if (attr->field_mask & UCP_ATTR_FIELD_REQUEST_SIZE) {
        attr->request_size = sizeof(ucp_request_t);
    }
    if (attr->field_mask & UCP_ATTR_FIELD_THREAD_MODE) {
        attr->thread_mode = UCS_THREAD_MODE_MULTI;
    }
    if (attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) {
        attr->memory_types = ucp_context_memory_types(context);
    }
    if (attr->field_mask & UCP_ATTR_FIELD_NAME) {
        memcpy(attr->name, context->name, sizeof(attr->name));
    }
    if (attr->field_mask & UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE) {
        attr->device_counter_size = 0;
    }
    return UCS_OK;
}

void ucp_context_print_info(const ucp_context_h context, FILE *stream)
{
    ucs_report_t storage, *report = ucs_report_begin(stream, &storage);
    unsigned i;

    ucs_report_text(report, "#\n# UCP context\n#\n");
    for (i = 0; i < context->num_tls; ++i) {
        if (context->tls[i].rail == 0) { /* others are those that a worker finds devices for */
            ucs_report_text(report, "#     md %-2u :  %s\n", i, context->tls[i].name);
        }
    }
    ucs_report_text(report, "#\n");
    ucs_report_open(report, "resources", '[');
    for (i = 0; i < context->num_tls; ++i) {
        if (context->tls[i].rail == 0) {
            ucs_report_row(report, "resource md device transport",
                           "#     resource %-2u :  md %-2u dev %-2u flags -- %s/memory\n", i, i, i,
                           context->tls[i].name);
        }
    }
    ucs_report_close(report);
    ucs_report_text(report, "#\n");
    ucs_report_end(report, stream);
}
