/* Halyard: topology: NUMA nodes, how far apart they are, and which one we are on.
 *
 * hwloc is opened with dlopen, so that programs which never ask pay nothing for it, nor for what it
 * brings along. What is wanted is copied out once into a small table and hwloc's own is released.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/log.h>
#include <ucs/sys/library.h>
#include <ucs/sys/sys.h>
#include <ucs/sys/topo.h>
#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_HWLOC
#include <dlfcn.h>
#include <hwloc.h>
#endif

/* Distance between nodes of which nothing is known. */
#define UCS_TOPO_DISTANCE_REMOTE 20

typedef struct {
    int       number;
    cpu_set_t cpus;
} ucs_topo_node_t;

static struct {
    unsigned        count;
    ucs_topo_node_t nodes[UCS_TOPO_NODES_MAX];
    uint16_t        distances[UCS_TOPO_NODES_MAX][UCS_TOPO_NODES_MAX];
} ucs_topo;

static pthread_once_t ucs_topo_once = PTHREAD_ONCE_INIT;

/* Where a node is in the table; -1: nowhere. */
static int ucs_topo_index(int number)
{
    unsigned i;

    for (i = 0; i < ucs_topo.count; ++i) {
        if (ucs_topo.nodes[i].number == number) {
            return (int)i;
        }
    }

    return -1;
}

#ifdef HAVE_HWLOC

/* The functions of hwloc 2 that are used, by the names they have there. */
#define UCS_TOPO_HWLOC_FUNCTIONS(_apply) \
    _apply(hwloc_get_api_version) \
    _apply(hwloc_topology_init) \
    _apply(hwloc_topology_set_all_types_filter) \
    _apply(hwloc_topology_set_type_filter) \
    _apply(hwloc_topology_load) \
    _apply(hwloc_topology_destroy) \
    _apply(hwloc_get_nbobjs_by_depth) \
    _apply(hwloc_get_obj_by_depth) \
    _apply(hwloc_bitmap_isset) \
    _apply(hwloc_distances_get_by_type) \
    _apply(hwloc_distances_release)

#define UCS_TOPO_MEMBER(_name)   __typeof__(&_name) _name;
#define UCS_TOPO_FUNCTION(_name) {#_name, offsetof(ucs_topo_hwloc_t, _name), 0},

typedef struct {
    UCS_TOPO_HWLOC_FUNCTIONS(UCS_TOPO_MEMBER)
} ucs_topo_hwloc_t;

/* Open hwloc and find its functions; NULL, with the reason at debug, if it is not to be had. */
static void *ucs_topo_hwloc_open(ucs_topo_hwloc_t *hwloc)
{
    static const ucs_library_function_t functions[] = {
        UCS_TOPO_HWLOC_FUNCTIONS(UCS_TOPO_FUNCTION)
    };
    char reason[256];
    void *handle = ucs_library_open("libhwloc.so.15", functions, ucs_array_size(functions), hwloc,
                                    reason, sizeof(reason));

    if (handle == NULL) {
        ucs_debug("no topology: %s", reason);
    } else if ((hwloc->hwloc_get_api_version() >> 16) != (HWLOC_API_VERSION >> 16)) {
        ucs_debug("no topology: libhwloc is of another generation");
        dlclose(handle);
        handle = NULL;
    }
    return handle;
}

static void ucs_topo_copy_distances(const ucs_topo_hwloc_t *hwloc, hwloc_topology_t topology)
{
    struct hwloc_distances_s *matrix = NULL;
    unsigned count                   = 1, i, j;
    hwloc_uint64_t value;
    int a, b;

    if ((hwloc->hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &matrix,
                                            HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0) ||
        (count == 0)) {
        return;
    }

    for (i = 0; i < matrix->nbobjs; ++i) {
        for (j = 0; j < matrix->nbobjs; ++j) {
            a     = ucs_topo_index((int)matrix->objs[i]->os_index);
            b     = ucs_topo_index((int)matrix->objs[j]->os_index);
            value = matrix->values[i * matrix->nbobjs + j];
            if ((a >= 0) && (b >= 0) && (value > 0) && (value <= UINT16_MAX)) {
                ucs_topo.distances[a][b] = (uint16_t)value;
            }
        }
    }

    hwloc->hwloc_distances_release(topology, matrix);
}

static void ucs_topo_copy_node(const ucs_topo_hwloc_t *hwloc, hwloc_obj_t object,
                               ucs_topo_node_t *node)
{
    unsigned cpu;

    node->number = (int)object->os_index;
    CPU_ZERO(&node->cpus);
    for (cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (hwloc->hwloc_bitmap_isset(object->cpuset, cpu)) {
            CPU_SET(cpu, &node->cpus);
        }
    }
}

static void ucs_topo_copy(const ucs_topo_hwloc_t *hwloc, hwloc_topology_t topology)
{
    int count = hwloc->hwloc_get_nbobjs_by_depth(topology, HWLOC_TYPE_DEPTH_NUMANODE);
    unsigned i, j;

    if ((count < 1) || (count > UCS_TOPO_NODES_MAX)) {
        return;
    }

    for (i = 0; i < (unsigned)count; ++i) {
        ucs_topo_copy_node(hwloc,
                           hwloc->hwloc_get_obj_by_depth(topology, HWLOC_TYPE_DEPTH_NUMANODE, i),
                           &ucs_topo.nodes[i]);
        for (j = 0; j < (unsigned)count; ++j) {
            ucs_topo.distances[i][j] = (i == j) ? UCS_TOPO_DISTANCE_LOCAL :
                                                  UCS_TOPO_DISTANCE_REMOTE;
        }
    }

    ucs_topo.count = (unsigned)count;
    ucs_topo_copy_distances(hwloc, topology);
}

/* Nothing but nodes and processors is asked for: no devices, no caches. Groups must be allowed: a
 * node's processors are those of the object that it hangs on. */
static int ucs_topo_load(const ucs_topo_hwloc_t *hwloc, hwloc_topology_t topology)
{
    return (hwloc->hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) ==
            0) &&
           (hwloc->hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP,
                                                  HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0) &&
           (hwloc->hwloc_topology_load(topology) == 0);
}

static void ucs_topo_discover(void)
{
    ucs_topo_hwloc_t hwloc;
    hwloc_topology_t topology;
    void *handle;

    handle = ucs_topo_hwloc_open(&hwloc);
    if (handle == NULL) {
        return;
    }

    if (hwloc.hwloc_topology_init(&topology) == 0) {
        if (ucs_topo_load(&hwloc, topology)) {
            ucs_topo_copy(&hwloc, topology);
        }
        hwloc.hwloc_topology_destroy(topology);
    }

    dlclose(handle);
}

#else

static void ucs_topo_discover(void)
{
}

#endif

/* The table, with one node of all processors if nothing better is known. */
static void ucs_topo_init(void)
{
    ucs_topo_discover();
    if (ucs_topo.count > 0) {
        return;
    }

    ucs_topo.count           = 1;
    ucs_topo.nodes[0].number = 0;
    ucs_topo.distances[0][0] = UCS_TOPO_DISTANCE_LOCAL;
    memset(&ucs_topo.nodes[0].cpus, 0xff, sizeof(ucs_topo.nodes[0].cpus));
}

unsigned ucs_topo_num_nodes(void)
{
    pthread_once(&ucs_topo_once, ucs_topo_init);
    return ucs_topo.count;
}

int ucs_topo_node(unsigned i)
{
    return (i < ucs_topo_num_nodes()) ? ucs_topo.nodes[i].number : UCS_TOPO_NODE_ANY;
}

int ucs_topo_process_node(void)
{
    cpu_set_t bound, both;
    unsigned i;

    if (ucs_topo_num_nodes() == 1) {
        return ucs_topo.nodes[0].number;
    }
    if (sched_getaffinity(ucs_sys_getpid(), sizeof(bound), &bound) != 0) {
        return UCS_TOPO_NODE_ANY;
    }

    for (i = 0; i < ucs_topo.count; ++i) {
        CPU_AND(&both, &bound, &ucs_topo.nodes[i].cpus);
        if (CPU_EQUAL(&both, &bound)) {
            return ucs_topo.nodes[i].number;
        }
    }

    return UCS_TOPO_NODE_ANY;
}

ucs_status_t ucs_topo_distance(int node_a, int node_b, unsigned *distance_p)
{
    int a, b;

    (void)ucs_topo_num_nodes(); /* fills the table */
    a = ucs_topo_index(node_a);
    b = ucs_topo_index(node_b);
    if ((a < 0) || (b < 0)) {
        return UCS_ERR_NO_ELEM;
    }

    *distance_p = ucs_topo.distances[a][b];
    return UCS_OK;
}

/* "dddd:bb:ss.f" in hexadecimal digits, and nothing that could lead elsewhere in a path. */
static int ucs_topo_is_bus_id(const char *bus_id)
{
    static const char form[] = "xxxx:xx:xx.x";
    size_t i;

    for (i = 0; i < sizeof(form) - 1; ++i) {
        if ((form[i] == 'x') ? !isxdigit((unsigned char)bus_id[i]) : (bus_id[i] != form[i])) {
            return 0;
        }
    }

    return bus_id[i] == '\0';
}

ucs_status_t ucs_topo_pci_node(const char *bus_id, int *node_p)
{
    char path[128], text[32];
    ucs_status_t status;
    size_t length, i;
    int node;

    if (!ucs_topo_is_bus_id(bus_id)) {
        return UCS_ERR_INVALID_PARAM;
    }

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus_id);
    for (i = 0; path[i] != '\0'; ++i) {
        path[i] = (char)tolower((unsigned char)path[i]);
    }

    status = ucs_sys_read_file(path, text, sizeof(text), &length);
    if (status != UCS_OK) {
        return status;
    }

    node    = (int)strtol(text, NULL, 10);
    *node_p = (node >= 0) ? node : UCS_TOPO_NODE_ANY;
    return UCS_OK;
}
