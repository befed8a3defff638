/* Halyard: choice of two processors and binding to them.
 *
 * Topology comes from sysfs rather than from a library: two small files a processor are all that
 * is needed, whatever libraries the tool measures.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "watch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void perf_pin_read(int cpu, const char *name, char *line, size_t size)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", cpu, name);
    file = fopen(path, "r");
    if ((file == NULL) || (fgets(line, (int)size, file) == NULL)) {
        line[0] = '\0';
    }
    line[strcspn(line, "\r\n")] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

/* A number from such a file, -1 without. */
static int topology_read(int cpu, const char *name)
{
    char line[32];

    perf_pin_read(cpu, name, line, sizeof(line));
    return (line[0] != '\0') ? atoi(line) : -1;
}

static int same_package(int a, int b)
{
    return topology_read(a, "topology/physical_package_id") ==
           topology_read(b, "topology/physical_package_id");
}

int perf_pin_same_core(int a, int b)
{
    const int core_a = topology_read(a, "topology/core_id");
    const int core_b = topology_read(b, "topology/core_id");

    return (a == b) || ((core_a >= 0) && (core_a == core_b) && same_package(a, b));
}

int perf_pin_choose(int cpus_p[2])
{
    int second = -1, rank = 0, first = -1;
    cpu_set_t allowed;
    int cpu, value;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return 0;
    }
    for (cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        if (first < 0) {
            first = cpu;
            continue;
        }
        value = perf_pin_same_core(first, cpu) ? 1 : same_package(first, cpu) ? 3 : 2;
        if (value > rank) {
            rank   = value;
            second = cpu;
        }
    }
    if (first < 0) {
        return 0;
    }
    cpus_p[0] = first;
    cpus_p[1] = (second < 0) ? first : second;
    return (second < 0) ? 1 : 2;
}

int perf_pin_to(int cpu)
{
    cpu_set_t set;

    if ((cpu < 0) || (cpu >= CPU_SETSIZE)) {
        return EINVAL;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return (sched_setaffinity(0, sizeof(set), &set) == 0) ? 0 : errno;
}

int perf_pin_try(int cpu)
{
    cpu_set_t before;
    int error;

    if (sched_getaffinity(0, sizeof(before), &before) != 0) {
        return errno;
    }
    error = perf_pin_to(cpu);
    (void)sched_setaffinity(0, sizeof(before), &before);
    return error;
}

int perf_pin_check(const int *cpus, unsigned count)
{
    unsigned i;
    int error;

    for (i = 0; i < count; ++i) {
        error = perf_pin_try(cpus[i]);
        if (error != 0) {
            return perf_error("cannot bind to processor %d: %s", cpus[i], strerror(error));
        }
    }
    return 0;
}

int perf_pin_allowed(void)
{
    cpu_set_t allowed;

    return (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) ? CPU_COUNT(&allowed) : 1;
}
