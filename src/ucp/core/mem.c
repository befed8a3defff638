/* Halyard: memory registrations: the table, and the public functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/device.h>
#include <ucp/core/mem.h>
#include <ucs/config/parser.h>
#include <ucs/debug/log.h>
#include <sys/mman.h>

/* ---- the table ---- */

/* Another thread of the parent may have held it. */
static void ucp_mem_in_child(ucs_fork_watch_t *watch)
{
    pthread_rwlock_init(&ucs_container_of(watch, ucp_context_t, fork)->mem_lock, NULL);
}

void ucp_mem_table_init(ucp_context_t *context)
{
    pthread_rwlock_init(&context->mem_lock, NULL);
    ucs_fork_watch_add(&context->fork, ucp_mem_in_child);
    ucs_ptr_map_init(&context->mems);
    ucs_ptr_map_hide(&context->mems);
}

const ucp_mem_t *ucp_mem_hold(ucp_context_t *context, uint64_t id, uint64_t address, size_t length,
                              unsigned access)
{
    const ucp_mem_t *mem;

    pthread_rwlock_rdlock(&context->mem_lock);
    mem = ucs_ptr_map_get(&context->mems, id);
    if ((mem != NULL) && ucp_mem_covers(mem, address, length) && !(access & ~mem->access) &&
        atomic_load_explicit(&mem->is_packed, memory_order_relaxed)) {
        return mem;
    }
    pthread_rwlock_unlock(&context->mem_lock);
    return NULL;
}

void ucp_mem_drop(ucp_context_t *context)
{
    pthread_rwlock_unlock(&context->mem_lock);
}

/* Of the process: programs progress workers of several contexts while they wait for one thing. */
static _Atomic int ucp_mem_shared;

void ucp_mem_count_shared(int change)
{
    (void)atomic_fetch_add_explicit(&ucp_mem_shared, change, memory_order_relaxed);
}

int ucp_mem_num_shared(void)
{
    return atomic_load_explicit(&ucp_mem_shared, memory_order_relaxed);
}

static void ucp_mem_free(ucp_mem_t *mem)
{
    unsigned i;

    if ((mem->type == UCS_MEMORY_TYPE_HOST) &&
        atomic_load_explicit(&mem->is_packed, memory_order_relaxed)) {
        ucp_mem_count_shared(-1);
    }
    /* Transports that allocate memory of a kind stand before those that register what they gave. */
    for (i = mem->context->num_tls; i-- > 0;) {
        if (mem->tls[i] != NULL) {
            mem->tls[i]->md->tl->md.release(mem->tls[i]);
        }
    }
    ucs_sys_free(mem);
}

void ucp_mem_table_cleanup(ucp_context_t *context)
{
    uint32_t pos = 0;
    ucp_mem_t *mem;
    uint64_t id;

    while ((mem = ucs_ptr_map_next(&context->mems, &pos, &id)) != NULL) {
        ucp_mem_free(mem);
    }
    ucs_fork_watch_remove(&context->fork);
    ucs_ptr_map_cleanup(&context->mems);
    pthread_rwlock_destroy(&context->mem_lock);
}

/* ---- public ---- */

/* The transport that allocates: one whose peers can map the memory if there is one. Memory of a
 * device comes from the one that knows it. */
static unsigned ucp_mem_allocator(const ucp_context_t *context, ucs_memory_type_t type)
{
    unsigned best = UCP_TL_MAX;
    unsigned i;

    for (i = 0; i < context->num_tls; ++i) {
        if ((context->tls[i].tl->md.alloc != NULL) &&
            ((context->tls[i].tl->md.mem_query != NULL) == (type != UCS_MEMORY_TYPE_HOST)) &&
            ((best == UCP_TL_MAX) || (context->tls[best].tl->kind == UCT_TL_KIND_SELF))) {
            best = i;
        }
    }
    return best;
}

static ucs_status_t ucp_mem_allocate(ucp_mem_t *mem, unsigned flags)
{
    unsigned how = ((flags & UCP_MEM_MAP_FIXED) ? UCT_MEM_ALLOC_FIXED : 0) |
                   ((mem->type == UCS_MEMORY_TYPE_CUDA)         ? UCT_MEM_ALLOC_DEVICE :
                    (mem->type == UCS_MEMORY_TYPE_CUDA_MANAGED) ? UCT_MEM_ALLOC_MANAGED : 0);
    unsigned i   = ucp_mem_allocator(mem->context, mem->type);
    ucs_status_t status;

    if (i == UCP_TL_MAX) {
        ucs_error("ucp_mem_map: no transport in use allocates %s memory",
                  ucs_memory_type_names[mem->type]);
        return UCS_ERR_UNSUPPORTED;
    }
    status = mem->context->tls[i].tl->md.alloc(mem->context->tls[i].md, mem->address, mem->length,
                                               how, &mem->tls[i]);
    if (status == UCS_OK) {
        mem->address = mem->tls[i]->address;
    }
    return status;
}

/* Does the user want to know that others cannot map it, by this transport? */
static int ucp_mem_must_be_shown(const ucp_mem_t *mem, const uct_tl_t *tl)
{
    return (mem->type != UCS_MEMORY_TYPE_HOST) && !mem->context->options.device_staging &&
           (tl->kind == UCT_TL_KIND_DEVICE) && (tl->md.rkey_pack != NULL);
}

/* With every transport that wants it and is not the one that allocated. Memory of the host that is
 * mapped without its pages (NONBLOCK) is not pinned for devices. */
static ucs_status_t ucp_mem_register(ucp_mem_t *mem, unsigned flags)
{
    const int is_host   = (mem->type == UCS_MEMORY_TYPE_HOST);
    const int is_lazy   = is_host && (flags & UCP_MEM_MAP_NONBLOCK);
    ucs_status_t status = UCS_OK;
    const uct_tl_t *tl;
    uct_mem_info_t info;
    int is_device;
    unsigned i;

    is_device = !is_host && (ucp_context_mem_query(mem->context, mem->address, &info) == UCS_OK);
    for (i = 0; (i < mem->context->num_tls) && (status == UCS_OK); ++i) {
        tl = mem->context->tls[i].tl;
        if ((mem->tls[i] == NULL) && (tl->md.reg != NULL) &&
            !(is_lazy && (tl->kind == UCT_TL_KIND_DEVICE))) {
            status = tl->md.reg(mem->context->tls[i].md, mem->address, mem->length,
                                is_device ? &info : NULL, &mem->tls[i]);
            if ((status == UCS_ERR_UNSUPPORTED) || (status == UCS_ERR_NO_RESOURCE)) {
                status = ucp_mem_must_be_shown(mem, tl) ? UCS_ERR_UNSUPPORTED :
                                                          UCS_OK; /* there are other ways */
            }
        }
    }
    return status;
}

static unsigned ucp_mem_access(const ucp_mem_map_params_t *params)
{
    if (!(params->field_mask & UCP_MEM_MAP_PARAM_FIELD_PROT)) {
        return UCP_MEM_READ | UCP_MEM_WRITE;
    }
    return ((params->prot & UCP_MEM_MAP_PROT_REMOTE_READ) ? UCP_MEM_READ : 0) |
           ((params->prot & UCP_MEM_MAP_PROT_REMOTE_WRITE) ? UCP_MEM_WRITE : 0);
}

/* Looks at what the memory is, whatever the user has said. */
static void ucp_mem_detect(ucp_mem_t *mem)
{
    ucs_status_t status;
    uct_mem_info_t info;

    status = ucp_context_mem_query(mem->context, mem->address, &info);
    if (status == UCS_OK) {
        mem->type = info.type;
    } else if ((status != UCS_ERR_NO_DEVICE) && (mem->length > 0) &&
               ucp_device_is_unreadable(mem->address, status)) {
        mem->type = UCS_MEMORY_TYPE_CUDA;
    }
}

static ucs_status_t ucp_mem_check_params(const ucp_mem_map_params_t *params, const void *address,
                                         size_t length, unsigned flags)
{
    ucs_memory_type_t type = (params->field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) ?
                             params->memory_type : UCS_MEMORY_TYPE_UNKNOWN;

    if (params->field_mask & UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (!(params->field_mask & UCP_MEM_MAP_PARAM_FIELD_LENGTH)) {
        ucs_error("ucp_mem_map: the length is not set");
        return UCS_ERR_INVALID_PARAM;
    }
    if (!(flags & UCP_MEM_MAP_ALLOCATE)) {
        return ((flags & UCP_MEM_MAP_FIXED) || ((address == NULL) && (length > 0)) ||
                (length > UINTPTR_MAX - (uintptr_t)address)) ? UCS_ERR_INVALID_PARAM : UCS_OK;
    }
    if ((flags & UCP_MEM_MAP_FIXED) &&
        ((address == NULL) || ((uintptr_t)address % ucs_sys_page_size() != 0))) {
        ucs_error("ucp_mem_map: memory cannot be placed at %p", address);
        return UCS_ERR_INVALID_PARAM;
    }
    /* Kinds below 5 mean the same in the headers of all versions. */
    return ((type == UCS_MEMORY_TYPE_ROCM) || (type == UCS_MEMORY_TYPE_ROCM_MANAGED)) ?
           UCS_ERR_UNSUPPORTED : UCS_OK;
}

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                         ucp_mem_h *memh_p)
{
    uint64_t mask       = params->field_mask;
    void *address       = (mask & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) ? params->address : NULL;
    size_t length       = (mask & UCP_MEM_MAP_PARAM_FIELD_LENGTH) ? params->length : 0;
    unsigned flags      = (mask & UCP_MEM_MAP_PARAM_FIELD_FLAGS) ? params->flags : 0;
    ucs_status_t status = ucp_mem_check_params(params, address, length, flags);
    ucp_mem_t *mem;

    if (status != UCS_OK) {
        return status;
    }
    mem = ucs_sys_calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    mem->context = context;
    mem->address = address;
    mem->length  = length;
    mem->type    = UCS_MEMORY_TYPE_HOST;
    mem->access  = ucp_mem_access(params);
    if (!(flags & UCP_MEM_MAP_ALLOCATE)) {
        ucp_mem_detect(mem);
    } else if ((mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) &&
               ((params->memory_type == UCS_MEMORY_TYPE_CUDA) ||
                (params->memory_type == UCS_MEMORY_TYPE_CUDA_MANAGED))) {
        mem->type = params->memory_type;
    }
    if (length > 0) {
        status = (flags & UCP_MEM_MAP_ALLOCATE) ? ucp_mem_allocate(mem, flags) : UCS_OK;
        status = (status == UCS_OK) ? ucp_mem_register(mem, flags) : status;
    }
    if (status == UCS_OK) {
        pthread_rwlock_wrlock(&context->mem_lock);
        status = ucs_ptr_map_put(&context->mems, mem, &mem->id);
        pthread_rwlock_unlock(&context->mem_lock);
    }
    if (status != UCS_OK) {
        ucp_mem_free(mem);
        return status;
    }
    *memh_p = mem;
    return UCS_OK;
}

ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    if ((memh == NULL) || (memh->context != context)) {
        ucs_error("ucp_mem_unmap: %s", (memh == NULL) ? "no memory is given" :
                                                        "the memory belongs to another context");
        return UCS_ERR_INVALID_PARAM;
    }
    pthread_rwlock_wrlock(&context->mem_lock);
    ucs_ptr_map_del(&context->mems, memh->id);
    pthread_rwlock_unlock(&context->mem_lock);
    ucp_mem_free(memh);
    return UCS_OK;
}

ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t *attr)
{
    if (attr->field_mask & UCP_MEM_ATTR_FIELD_ADDRESS) {
        attr->address = memh->address;
    }
    if (attr->field_mask & UCP_MEM_ATTR_FIELD_LENGTH) {
        attr->length = memh->length;
    }
    if (attr->field_mask & UCP_MEM_ATTR_FIELD_MEM_TYPE) {
        attr->mem_type = memh->type;
    }
    return UCS_OK;
}

ucs_status_t ucp_mem_advise(ucp_context_h context, ucp_mem_h memh, ucp_mem_advise_params_t *params)
{
    const uint64_t all = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                         UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
    uintptr_t start;

    if (((params->field_mask & all) != all) || (memh->context != context) ||
        !ucp_mem_covers(memh, (uintptr_t)params->address, params->length) ||
        (params->advice > UCP_MADV_WILLNEED)) {
        return UCS_ERR_INVALID_PARAM;
    }
    start = ucs_align_down((uintptr_t)params->address, ucs_sys_page_size());
    if (params->length > 0) { /* an advice: whether the system takes it does not matter */
        (void)ucs_sys_madvise((void *)start,
                              params->length + ((uintptr_t)params->address - start),
                              (params->advice == UCP_MADV_WILLNEED) ? MADV_WILLNEED : MADV_NORMAL);
    }
    return UCS_OK;
}

void ucp_mem_print_info(const char *mem_size, ucp_context_h context, FILE *stream)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .flags      = UCP_MEM_MAP_ALLOCATE
    };
    ucs_report_t storage, *report = ucs_report_begin(stream, &storage);
    ucs_status_t status;
    ucp_mem_h mem;
    unsigned i;

    status = ucs_config_parse_memory(mem_size, &params.length, &params.memory_type);
    status = (status == UCS_OK) ? ucp_mem_map(context, &params, &mem) : status;
    if (status != UCS_OK) {
        ucs_report_row(report, "size error", "# %s bytes cannot be allocated: %s\n", mem_size,
                       ucs_status_string(status));
    } else {
        i = ucp_mem_allocator(context, mem->type);
        ucs_report_data(report, "memory", "%s", ucs_memory_type_names[mem->type]);
        ucs_report_row(report, "bytes - - - transport",
                       "#\n# UCP memory\n#\n#   allocated %zu bytes of %s at %p%s%s\n#\n",
                       mem->length, ucs_memory_type_descs[mem->type], mem->address,
                       (mem->length > 0) ? " using " : "",
                       (mem->length > 0) ? context->tls[i].tl->name : "");
        ucp_mem_unmap(context, mem);
    }
    ucs_report_end(report, stream);
}
