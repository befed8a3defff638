/* Halyard: counters: named numbers of an object that people and tools may look at while it works.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucs"
#include <ucs/config/global.h>
#include <ucs/debug/log.h>
#include <ucs/stats/counters.h>
#include <ucs/sys/sys.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define UCS_COUNTERS_PATH_MAX 1024
#define UCS_COUNTERS_TEXT_MAX 4096

void ucs_counters_report(ucs_report_t *report, const ucs_counters_class_t *class_desc,
                         const uint64_t *values)
{
    char names[64];
    uint64_t value;
    unsigned i;

    ucs_report_open(report, "counters", '{');
    for (i = 0; i < class_desc->count; ++i) {
        value = ucs_counter_get(&values[i]);
        snprintf(names, sizeof(names), "- %s", class_desc->counters[i]);
        if (report->is_json || (value != 0)) {
            ucs_report_row(report, names, "#%24s: %" PRIu64 "\n", class_desc->counters[i], value);
        }
    }
    ucs_report_close(report);
}

/* The descriptor that the text of UCX_STATS_DEST, which has been checked, stands for. */
static int ucs_counters_open(const char *dest)
{
    char path[UCS_COUNTERS_PATH_MAX];

    if (strcmp(dest, "stdout") == 0) {
        return STDOUT_FILENO;
    }
    if (strcmp(dest, "stderr") == 0) {
        return STDERR_FILENO;
    }
    if (!ucs_log_expand_path(dest + strlen(UCS_STATS_DEST_FILE), path, sizeof(path))) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return ucs_log_open_file(path);
}

static void ucs_counters_tell_to(const char *dest, int is_json,
                                 const ucs_counters_class_t *class_desc, const char *name,
                                 const uint64_t *values)
{
    char text[UCS_COUNTERS_TEXT_MAX];
    ucs_report_t report;
    FILE *stream;
    long length;
    int fd;

    stream = fmemopen(text, sizeof(text), "w");
    if (stream == NULL) {
        ucs_warn("no memory to tell the statistics of %s %s", class_desc->name, name);
        return;
    }
    ucs_report_init(&report, stream, is_json);
    ucs_report_open(&report, NULL, '{');
    ucs_report_row(&report, "class object process", "# statistics of %s %s, process %d\n",
                   class_desc->name, name, (int)ucs_sys_getpid());
    ucs_counters_report(&report, class_desc, values);
    ucs_report_close(&report);
    length = ucs_min(ftell(stream), (long)sizeof(text));
    fclose(stream);

    fd = ucs_counters_open(dest);
    if (fd == STDOUT_FILENO) {
        fflush(stdout); /* what the program has printed comes first */
    }
    if ((fd < 0) || (ucs_sys_write(fd, text, (size_t)length) != length)) {
        ucs_warn("UCX_STATS_DEST: cannot write to '%s': %m", dest);
    }
    if (fd > STDERR_FILENO) {
        ucs_sys_close(fd);
    }
}

void ucs_counters_tell(const ucs_counters_class_t *class_desc, const char *name,
                       const uint64_t *values)
{
    ucs_global_opts_t opts;

    if (ucs_global_opts_copy(&opts) != UCS_OK) {
        return;
    }
    if (opts.stats_dest[0] != '\0') {
        ucs_counters_tell_to(opts.stats_dest, opts.stats_format == UCS_STATS_FORMAT_JSON,
                             class_desc, name, values);
    }
    ucs_config_release(&opts, ucs_global_rows);
}
