/* Halyard: which variables exist: registered tables, and names of UCX that mean nothing here.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/config/file.h>
#include <ucs/config/global.h>
#include <ucs/config/names.h>
#include <ucs/debug/log.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/string.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Variables that can be warned of in one process; with more, the later ones are passed over. */
#define UCS_CONFIG_WARNED_MAX 256

/* Lines about single variables at one time; the rest share one line. */
#define UCS_CONFIG_WARN_LINES 4

/* Names whose meaning is outside the tables: read directly, before any table can be. */
static const char *const ucs_config_special[] = {"FAULT", "CONFIG_DIR", NULL};

/* Names of UCX without an effect here, '*' for any text. Families of transports that do not exist
 * here are accepted as a whole; names that lie near our own are given in full, so that a slip in
 * them is still noticed. Names that a table has are looked up there first. */
static const char *const ucs_config_foreign[] = {
    /* networks that Halyard reaches by libfabric, devices, or what it does not reach */
    "IB_*", "RC_*", "DC_*", "UD_*", "MLX5_*", "GGA_*", "SRD_*", "EFA_*", "RDMA_CM_*", "RDMACM_*",
    "SOCKCM_*", "TCP_*", "TCPCM_*", "CM_*", "UGNI_*", "SCOPY_*", "KNEM_*", "XPMEM_*", "ROCM_*",
    "GDR_COPY_*", "ZE_*", "GAUDI_*", "CUDA_*", "MAX_HCA_PER_GPU", "REVERSE_SL",
    "NET_DEVICES", "SHM_DEVICES", "ACC_DEVICES", "SELF_DEVICES",
    /* how UCX finds, allocates and registers memory */
    "MEM_*", "MEMTYPE_*", "RCACHE_*", "REG_*", "GVA_*", "DMABUF_*", "MPOOL_FIFO", "ALLOC_PRIO",
    "PREFER_NEAREST_DEVICE", "MAX_COMPONENT_MDS", "RKEY_MPOOL_MAX_MD", "EXPORTED_*",
    /* its choice of protocols and lanes */
    "TM_*", "PROTO_ENABLE", "PROTO_INDIRECT_ID", "PROTO_REQUEST_RESET", "PROTO_INFO",
    "PROTO_INFO_DIR", "PROTO_OVERHEAD", "PROTOS", "SELECT_DISTANCE_MD", "BCOPY_BW", "BCOPY_THRESH",
    "ZCOPY_THRESH", "RNDV_THRESH", "RNDV_SCHEME", "RNDV_SEND_NBR_THRESH", "RNDV_THRESH_FALLBACK",
    "RNDV_PERF_DIFF", "RNDV_FRAG_SIZE", "RNDV_FRAG_ALLOC_COUNT", "RNDV_FRAG_MEM_TYPE",
    "FRAG_MEM_TYPE", "RNDV_FRAG_MEM_TYPES", "RNDV_FRAG_WORKER", "RNDV_PIPELINE_SEND_THRESH",
    "RNDV_PIPELINE_SHM_ENABLE", "RNDV_PIPELINE_ERROR_HANDLING", "RNDV_PUT_FORCE_FLUSH",
    "RNDV_ALIGN_THRESH", "RNDV_MAX_*", "RNDV_MIN_*", "MULTI_LANE_MAX_RATIO", "MULTI_PATH_RATIO",
    "MAX_EAGER_LANES", "MAX_EAGER_RAILS", "MAX_RNDV_LANES", "MAX_RMA_LANES",
    "MAX_RMA_RAILS", "MIN_RNDV_CHUNK_SIZE", "MIN_RMA_CHUNK_SIZE", "RMA_ZCOPY_MAX_SEG_SIZE",
    "ESTIMATED_NUM_EPS", "ESTIMATED_NUM_PPN", "NUM_EPS", "NUM_PPN", "ATOMIC_MODE",
    "FLUSH_WORKER_EPS", "UNIFIED_MODE", "ADDRESS_DEBUG_INFO", "ADDRESS_VERSION",
    "SOCKADDR_TLS_PRIORITY", "SOCKADDR_AUX_TLS", "SOCKADDR_CM_ENABLE", "SA_DATA_VERSION",
    "LISTENER_BACKLOG", "KEEPALIVE_INTERVAL", "KEEPALIVE_NUM_EPS", "RESOLVE_REMOTE_EP_ID",
    "DYNAMIC_TL_SWITCH_INTERVAL", "DYNAMIC_TL_PROGRESS_FACTOR", "ADAPTIVE_PROGRESS",
    "USE_MT_MUTEX", "SEG_SIZE", "RKEY_PTR_SEG_SIZE", "RX_MPOOL_SIZES", "RNDV_MEMTYPE_DIRECT_SIZE",
    "MAX_WORKER_NAME", "MAX_WORKER_ADDRESS_NAME", "MAX_PRIORITY_EPS",
    "CONNECT_ALL_TO_ALL", "EXTRA_OP_ATTR_FLAGS", "PREFER_OFFLOAD", "WIREUP_VIA_AM_LANE",
    "NODE_LOCAL_ID", "AM_PERF_DIFF", "DISTANCE_BW",
    /* logging, debugging, statistics, loading */
    "HANDLE_ERRORS", "ERROR_SIGNALS", "ERROR_MAIL_TO", "ERROR_MAIL_FOOTER", "GDB_COMMAND",
    "DEBUG_SIGNO", "LOG_FILE_ROTATE", "LOG_BUFFER", "LOG_DATA_SIZE", "LOG_PRINT_ENABLE",
    "LOG_LEVEL_TRIGGER", "STATS_*", "PROFILE_*", "MEMTRACK_*", "VFS_*", "ASYNC_*",
    "WARN_INVALID_CONFIG", "TOPO_PRIO", "MODULES", "MODULE_DIR", "MODULE_LOG_LEVEL",
    "BUILTIN_MEMCPY_MIN", "BUILTIN_MEMCPY_MAX", "NT_BUFFER_TRANSFER_MIN", "CACHE_LINE_SIZE",
    /* set by module files, build recipes and tools, for themselves */
    "HOME", "ROOT", "DIR", "BASE", "PREFIX", "PATH", "INC", "INCLUDE*", "LIB*", "CFLAGS",
    "LDFLAGS", "VERSION", "INSTALL_*", "PERF_*", "GTEST_*",
    /* knobs of all its transports, and of its shared memory, without a counterpart here */
    "ALLOC", "*FAILURE", "*MAX_NUM_EPS", "*_RECV_OVERHEAD", "SM_*",
    "POSIX_ALLOC", "POSIX_LATENCY", "POSIX_BW", "POSIX_MAX_SHORT", "POSIX_MAX_BCOPY",
    "POSIX_RX_MAX_BUFS", "POSIX_RX_BUFS_GROW", "POSIX_ERROR_HANDLING", "POSIX_USE_PROC_LINK",
    "POSIX_DIR", "POSIX_HUGETLB_MODE", "POSIX_RX_QUEUE_LEN", "POSIX_SEND_OVERHEAD",
    "SYSV_ALLOC", "SYSV_LATENCY", "SYSV_BW", "SYSV_MAX_SHORT", "SYSV_MAX_BCOPY",
    "SYSV_RX_MAX_BUFS", "SYSV_RX_BUFS_GROW", "SYSV_ERROR_HANDLING", "SYSV_HUGETLB_MODE",
    "SYSV_RX_QUEUE_LEN", "SYSV_SEND_OVERHEAD",
    "MM_ALLOC", "MM_LATENCY", "MM_BW", "MM_MAX_SHORT", "MM_MAX_BCOPY", "MM_RX_MAX_BUFS",
    "MM_RX_BUFS_GROW", "MM_ERROR_HANDLING", "MM_HUGETLB_MODE", "MM_RX_QUEUE_LEN",
    "MM_SEND_OVERHEAD",
    "CMA_ALLOC", "CMA_LATENCY", "CMA_BW", "CMA_MAX_SHORT", "CMA_MAX_BCOPY", "CMA_TX_QUOTA",
    "CMA_OVERHEAD", "CMA_SEG_SIZE", "CMA_TX_MAX_BUFS", "CMA_TX_BUFS_GROW", "CMA_MAX_IOV",
    "CMA_MEMORY_INVALIDATE",
    "SELF_ALLOC", "SELF_LATENCY", "SELF_BW", "SELF_MAX_SHORT", "SELF_MAX_BCOPY",
    "SELF_SEG_SIZE", "SELF_OVERHEAD", "SELF_NUM_DEVICES",
    NULL
};

pthread_mutex_t ucs_config_names_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    unsigned           table_count;
    ucs_config_table_t tables[UCS_CONFIG_TABLES_MAX];
    unsigned           warned_count;
    uint64_t           warned[UCS_CONFIG_WARNED_MAX];  /* hashes of names */
} ucs_config_registry;

/* ------------------------------------------------------------------ tables */

ucs_status_t ucs_config_table_add(const char *title, const char *prefix,
                                  const ucs_config_row_t *rows)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    pthread_mutex_lock(&ucs_config_names_mutex);
    for (i = 0; i < ucs_config_registry.table_count; ++i) {
        if (ucs_config_registry.tables[i].rows == rows) {
            break;
        }
    }

    if (i == UCS_CONFIG_TABLES_MAX) {
        status = UCS_ERR_EXCEEDS_LIMIT;
    } else if (i == ucs_config_registry.table_count) {
        ucs_config_registry.tables[i]   = (ucs_config_table_t){title, prefix, rows};
        ucs_config_registry.table_count = i + 1;
    }
    pthread_mutex_unlock(&ucs_config_names_mutex);

    if (status != UCS_OK) {
        ucs_error("too many configuration tables for '%s'", title);
    }
    return status;
}

void ucs_config_table_remove(const ucs_config_row_t *rows)
{
    unsigned i;

    pthread_mutex_lock(&ucs_config_names_mutex);
    for (i = 0; i < ucs_config_registry.table_count; ++i) {
        if (ucs_config_registry.tables[i].rows != rows) {
            continue;
        }
        --ucs_config_registry.table_count;
        memmove(&ucs_config_registry.tables[i], &ucs_config_registry.tables[i + 1],
                (ucs_config_registry.table_count - i) * sizeof(ucs_config_registry.tables[0]));
        break;
    }
    pthread_mutex_unlock(&ucs_config_names_mutex);
}

int ucs_config_table_get(unsigned i, ucs_config_table_t *table_p)
{
    int found;

    pthread_mutex_lock(&ucs_config_names_mutex);
    found = i < ucs_config_registry.table_count;
    if (found) {
        *table_p = ucs_config_registry.tables[i];
    }
    pthread_mutex_unlock(&ucs_config_names_mutex);
    return found;
}

/* Called with each variable's name, without UCX_; not zero ends the walk. */
typedef int (*ucs_config_name_cb_t)(const char *name, void *arg);

static int
ucs_config_walk_table(const ucs_config_table_t *table, ucs_config_name_cb_t cb, void *arg)
{
    char prefix[UCS_CONFIG_NAME_MAX], name[UCS_CONFIG_NAME_MAX * 2];
    const ucs_config_row_t *row;
    const char *list;

    for (row = table->rows; row->name != NULL; ++row) {
        list = ucs_config_row_prefix(row, table->prefix);
        while (ucs_config_next_prefix(&list, prefix)) {
            snprintf(name, sizeof(name), "%s%s", prefix, row->name);
            if (cb(name, arg)) {
                return 1;
            }
        }
    }

    return 0;
}

/* All names that mean something here. Returns 1 if the callback ended the walk. */
static int ucs_config_walk(ucs_config_name_cb_t cb, void *arg)
{
    ucs_config_table_t table;
    unsigned i;

    for (i = 0; ucs_config_special[i] != NULL; ++i) {
        if (cb(ucs_config_special[i], arg)) {
            return 1;
        }
    }
    for (i = 0; ucs_config_table_get(i, &table); ++i) {
        if (ucs_config_walk_table(&table, cb, arg)) {
            return 1;
        }
    }

    return 0;
}

static int ucs_config_is_name(const char *name, void *arg)
{
    return !strcmp(name, arg);
}

int ucs_config_name_is_used(const char *name)
{
    return ucs_config_walk(ucs_config_is_name, (void *)(uintptr_t)name);
}

int ucs_config_name_is_foreign(const char *name)
{
    unsigned i;

    for (i = 0; ucs_config_foreign[i] != NULL; ++i) {
        if (ucs_str_match(ucs_config_foreign[i], name)) {
            return 1;
        }
    }

    return 0;
}

typedef struct {
    const char *word;
    unsigned   distance;
    char       name[UCS_CONFIG_NAME_MAX];
} ucs_config_nearest_t;

static int ucs_config_try_nearest(const char *name, void *arg)
{
    ucs_config_nearest_t *nearest = arg;
    unsigned distance             = ucs_str_distance(nearest->word, name);

    if (distance < nearest->distance) {
        nearest->distance = distance;
        ucs_str_copy(nearest->name, sizeof(nearest->name), name);
    }

    return distance == 0;
}

int ucs_config_name_nearest(const char *name, char *buf, size_t max)
{
    ucs_config_nearest_t nearest = {.word = name, .distance = ~0u};

    ucs_config_walk(ucs_config_try_nearest, &nearest);
    if (!ucs_str_is_near(name, nearest.distance)) {
        return 0;
    }

    ucs_str_copy(buf, max, nearest.name);
    return 1;
}

/* ------------------------------------------------------------------ unknown variables */

typedef struct {
    const char *app_prefix;
    unsigned   found;
    char       rest[512];   /* names that do not get a line of their own */
} ucs_config_unknown_t;

/* The part after UCX_ of a variable that is ours to judge; NULL for another's. */
static const char *ucs_config_own_part(const char *name, const char *app_prefix)
{
    size_t length = (app_prefix != NULL) ? strlen(app_prefix) : 0;

    if ((length > 0) && !strncmp(name, app_prefix, length) && (name[length] == '_')) {
        name += length + 1;
    }

    length = strlen(UCS_CONFIG_PREFIX);
    return !strncmp(name, UCS_CONFIG_PREFIX, length) ? name + length : NULL;
}

/* True the first time that a name is seen. */
static int ucs_config_mark_warned(const char *name)
{
    uint64_t hash = ucs_str_hash(name);
    int first     = 1;
    unsigned i;

    pthread_mutex_lock(&ucs_config_names_mutex);
    for (i = 0; i < ucs_config_registry.warned_count; ++i) {
        first = first && (ucs_config_registry.warned[i] != hash);
    }
    if (i == UCS_CONFIG_WARNED_MAX) {
        first = 0;
    } else if (first) {
        ucs_config_registry.warned[ucs_config_registry.warned_count++] = hash;
    }
    pthread_mutex_unlock(&ucs_config_names_mutex);
    return first;
}

/* Judge one variable, of the environment or (place) of a file; warn if nobody knows it. */
static void
ucs_config_check_name(const char *full_name, const char *place, ucs_config_unknown_t *unknown)
{
    const char *name = ucs_config_own_part(full_name, unknown->app_prefix);
    char shown[2 * UCS_CONFIG_NAME_MAX], nearest[UCS_CONFIG_NAME_MAX];
    size_t length;

    if ((name == NULL) || ucs_config_name_is_used(name)) {
        return;
    }

    /* a slip in one of our own names goes before a pattern of foreign ones */
    if (!ucs_config_name_nearest(name, nearest, sizeof(nearest))) {
        nearest[0] = '\0';
        if (ucs_config_name_is_foreign(name)) {
            return;
        }
    } else if (ucs_config_name_is_foreign(name) &&
               (ucs_str_distance(name, nearest) > 1)) {
        return;
    }
    if (!ucs_config_mark_warned(full_name)) {
        return;
    }

    ucs_config_sanitize(full_name, shown, UCS_CONFIG_NAME_MAX);
    if (place != NULL) {
        length = strlen(shown);
        snprintf(shown + length, sizeof(shown) - length, " (%s)", place);
    }
    if (++unknown->found > UCS_CONFIG_WARN_LINES) {
        length = strlen(unknown->rest);
        snprintf(unknown->rest + length, sizeof(unknown->rest) - length, " %s%s%s%s", shown,
                 (nearest[0] != '\0') ? " (" UCS_CONFIG_PREFIX : "", nearest,
                 (nearest[0] != '\0') ? "?)" : "");
    } else if (nearest[0] != '\0') {
        ucs_warn("variable %s is not known and has no effect; did you mean " UCS_CONFIG_PREFIX
                 "%s?", shown, nearest);
    } else {
        ucs_warn("variable %s is not known and has no effect (" UCS_CONFIG_PREFIX
                 "WARN_UNUSED_ENV_VARS=n silences this)", shown);
    }
}

static void ucs_config_check_environment(ucs_config_unknown_t *unknown)
{
    char name[UCS_CONFIG_NAME_MAX];
    char **entry;
    size_t length;

    if ((environ == NULL) || getauxval(AT_SECURE)) {
        return;
    }

    for (entry = environ; *entry != NULL; ++entry) {
        length = strcspn(*entry, "=");
        snprintf(name, sizeof(name), "%.*s", (int)ucs_min(length, sizeof(name) - 1), *entry);
        ucs_config_check_name(name, NULL, unknown);
    }
}

unsigned ucs_config_warn_unknown(const char *app_prefix)
{
    ucs_config_unknown_t unknown = {.app_prefix = app_prefix, .found = 0, .rest = ""};
    const char *key, *place;
    size_t i;

    if (!ucs_global_opts()->warn_unused_env_vars) {
        return 0;
    }

    ucs_config_check_environment(&unknown);
    for (i = 0; (key = ucs_config_file_key(i, &place)) != NULL; ++i) {
        ucs_config_check_name(key, place, &unknown);
    }

    if (unknown.found > UCS_CONFIG_WARN_LINES) {
        ucs_warn("%u more variables are not known and have no effect:%s",
                 unknown.found - UCS_CONFIG_WARN_LINES, unknown.rest);
    }

    return unknown.found;
}
