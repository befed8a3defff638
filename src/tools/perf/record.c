/* Halyard: the run record: without it a figure cannot be compared with another one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "report.h"
#include "tools/cpu_model.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void join_command(const perf_options_t *options, char *text, size_t size)
{
    size_t used = 0;
    int i, n;

    text[0] = '\0';
    for (i = 0; i < options->argc; ++i) {
        n = snprintf(text + used, size - used, "%s%s", (i > 0) ? " " : "", options->argv[i]);
        if ((n < 0) || ((size_t)n >= size - used)) {
            return;
        }
        used += (size_t)n;
    }
}

void perf_record_fill(perf_record_t *record_p, const perf_options_t *options, const int *cpus,
                      unsigned count)
{
    time_t now = time(NULL);
    struct utsname system_name;
    char **variable;
    struct tm utc;
    Dl_info info;
    size_t used = 0;
    unsigned i;

    memset(record_p, 0, sizeof(*record_p));
    if (gmtime_r(&now, &utc) != NULL) {
        strftime(record_p->date, sizeof(record_p->date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    tool_cpu_model(record_p->cpu, sizeof(record_p->cpu));
    if (uname(&system_name) == 0) {
        snprintf(record_p->kernel, sizeof(record_p->kernel), "%.60s %.60s %.30s",
                 system_name.sysname, system_name.release, system_name.machine);
    }
    perf_pin_read((count > 0) ? cpus[0] : 0, "cpufreq/scaling_governor", record_p->governor,
                  sizeof(record_p->governor));
    snprintf(record_p->library, sizeof(record_p->library), "%s", ucp_get_version_string());
    if (dladdr((void*)(uintptr_t)ucp_get_version_string, &info) && (info.dli_fname != NULL)) {
        snprintf(record_p->library_file, sizeof(record_p->library_file), "%s", info.dli_fname);
    }
    for (i = 0; (i < count) && (used + 12 < sizeof(record_p->cpus)); ++i) {
        used += (size_t)snprintf(record_p->cpus + used, sizeof(record_p->cpus) - used, "%s%d",
                                 (i > 0) ? "," : "", cpus[i]);
    }
    join_command(options, record_p->command, sizeof(record_p->command));
    record_p->online_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (variable = environ; *variable != NULL; ++variable) {
        if ((strncmp(*variable, "UCX_", 4) == 0) && (record_p->env_count < PERF_ENV_MAX)) {
            record_p->env[record_p->env_count++] = *variable;
        }
    }
}
