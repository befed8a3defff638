/* Halyard: ucx_info -b, -s, -T: the build, the machine, its NUMA nodes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "info.h"
#include "tools/cpu_model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <ucp/api/ucp.h>
#include <ucs/arch/cpu.h>
#include <ucs/sys/sys.h>
#include <ucs/sys/topo.h>
#include <unistd.h>

#ifdef HAVE_CMA
#define INFO_HAS_CMA "yes"
#else
#define INFO_HAS_CMA "no (--disable-cma)"
#endif
#ifdef HAVE_HWLOC
#define INFO_HAS_HWLOC "yes"
#else
#define INFO_HAS_HWLOC "no (Debian: libhwloc-dev)"
#endif
#ifdef HAVE_OFI
#define INFO_HAS_OFI "yes"
#else
#define INFO_HAS_OFI "no: nothing between nodes (Debian: libfabric-dev)"
#endif
#ifdef ENABLE_ASSERT
#define INFO_HAS_ASSERT "yes"
#else
#define INFO_HAS_ASSERT "no"
#endif
#if defined(ENABLE_ASAN)
#define INFO_SANITIZERS "address, undefined"
#elif defined(ENABLE_TSAN)
#define INFO_SANITIZERS "thread"
#else
#define INFO_SANITIZERS "none"
#endif

void info_build(void)
{
    ucs_report_t *report = ucs_report_shared;

    ucs_report_text(report, "#\n# Build\n#\n");
    ucs_report_row(report,
                   "library api compiler flags prefix assertions? sanitizers cma? hwloc? "
                   "libfabric?",
                   "#        version: Halyard %s, UCX API %s\n"
                   "#       compiler: %s\n#          flags: %s\n#   installed in: %s\n"
                   "#     assertions: %s\n#     sanitizers: %s\n#            cma: %s\n"
                   "#          hwloc: %s\n#      libfabric: %s\n",
                   PACKAGE_VERSION, ucp_get_version_string(), __VERSION__, INFO_FLAGS, INFO_PREFIX,
                   INFO_HAS_ASSERT, INFO_SANITIZERS, INFO_HAS_CMA, INFO_HAS_HWLOC, INFO_HAS_OFI);
    ucs_report_row(report, "cuda?", "#           CUDA: %s\n#\n",
                   "yes: the driver is found when a program has started it");
}

void info_read_line(const char *path, char *line, size_t max)
{
    size_t length;

    if (ucs_sys_read_file(path, line, max, &length) == UCS_ERR_NO_ELEM) {
        line[0] = '\0';
    }
    line[strcspn(line, "\n")] = '\0';
}

/* "0-3,8" */
static void info_cpu_list(char *list, size_t max)
{
    size_t used = 0, first, end;
    cpu_set_t cpus;

    ucs_sys_get_cpus(&cpus);
    list[0] = '\0';
    for (first = 0; (first < CPU_SETSIZE) && (used < max); first = end) {
        end = first + 1;
        if (!CPU_ISSET(first, &cpus)) {
            continue;
        }
        while ((end < CPU_SETSIZE) && CPU_ISSET(end, &cpus)) {
            ++end;
        }
        used += (size_t)snprintf(list + used, max - used, (end > first + 1) ? "%s%zu-%zu" : "%s%zu",
                                 (used > 0) ? "," : "", first, end - 1);
    }
}

static void info_huge_pages(ucs_report_t *report)
{
    static const char folder[] = "/sys/kernel/mm/hugepages";
    char path[512], total[32], idle[32];
    struct dirent *entry;
    DIR *dir = opendir(folder);

    ucs_report_open(report, "huge_pages", '[');
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (strncmp(entry->d_name, "hugepages-", 10) == 0) {
            snprintf(path, sizeof(path), "%s/%s/nr_hugepages", folder, entry->d_name);
            info_read_line(path, total, sizeof(total));
            snprintf(path, sizeof(path), "%s/%s/free_hugepages", folder, entry->d_name);
            info_read_line(path, idle, sizeof(idle));
            ucs_report_row(report, "size reserved free",
                           "#     huge pages: %s, %lu reserved, %lu free\n", entry->d_name + 10,
                           strtoul(total, NULL, 10), strtoul(idle, NULL, 10));
        }
    }
    ucs_report_close(report);
    if (dir != NULL) {
        closedir(dir);
    }
}

void info_system(void)
{
    ucs_report_t *report = ucs_report_shared;
    char text[256], host[256], boot[40], cpus[4096];
    struct utsname system;
    ucs_sys_id128_t boot_id;

    ucs_sys_hostname(host, sizeof(host));
    ucs_sys_boot_id(&boot_id);
    snprintf(boot, sizeof(boot), "%016llx%016llx", (unsigned long long)boot_id.words[0],
             (unsigned long long)boot_id.words[1]);
    tool_cpu_model(text, sizeof(text));
    info_cpu_list(cpus, sizeof(cpus));
    ucs_report_row(report, "host", "#\n# System\n#\n#           host: %s\n", host);
    if (uname(&system) == 0) {
        ucs_report_row(report, "system kernel machine", "#         kernel: %s %s %s\n",
                       system.sysname, system.release, system.machine);
    }
    ucs_report_row(report, "boot_id", "#        boot id: %s (equal: one node)\n", boot);
    ucs_report_row(report, "cpu cpus_allowed cpus_online cpus",
                   "#            CPU: %s\n#        allowed: %u of %ld processors (%s)\n", text,
                   ucs_sys_num_cpus(), sysconf(_SC_NPROCESSORS_ONLN), cpus);
    ucs_report_row(report, "counter_mhz counter_constant?", "#        counter: %.0f MHz%s\n",
                   ucs_arch_tsc_hz() / 1e6,
                   (ucs_arch_cpu_flags() & UCS_ARCH_CPU_FLAG_TSC_STABLE) ? ", constant" : "");
    ucs_report_row(report, "numa_nodes memory_mib page_bytes",
                   "#     NUMA nodes: %u\n"
                   "#         memory: %zu MiB that this process may use\n"
                   "#           page: %zu bytes\n",
                   ucs_topo_num_nodes(), ucs_sys_memory_limit() >> 20, ucs_sys_page_size());
    info_huge_pages(report);
    ucs_report_text(report, "#\n");
}

void info_topology(void)
{
    ucs_report_t *report = ucs_report_shared;
    unsigned count = ucs_topo_num_nodes(), i, j, distance;
    char path[128], cpus[512];

    ucs_report_text(report, "#\n# NUMA nodes: processors, distances (%d: within the node)\n#\n",
                    UCS_TOPO_DISTANCE_LOCAL);
    for (i = 0; i < count; ++i) {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", ucs_topo_node(i));
        info_read_line(path, cpus, sizeof(cpus));
        ucs_report_open(report, NULL, '{');
        ucs_report_row(report, "node cpus", "#   node %-3d %-24s", ucs_topo_node(i), cpus);
        ucs_report_open(report, "distances", '[');
        for (j = 0; j < count; ++j) {
            if (ucs_topo_distance(ucs_topo_node(i), ucs_topo_node(j), &distance) == UCS_OK) {
                ucs_report_row(report, "=", " %3u", distance);
            }
        }
        ucs_report_close(report);
        ucs_report_close(report);
        ucs_report_text(report, "\n");
    }
    ucs_report_text(report, "#\n");
}
