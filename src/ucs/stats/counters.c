/* Halyard: counters: named numbers of an object that people and tools may look at while it works.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/debug/report.h>
#include <ucs/stats/counters.h>
#include <ucs/sys/string.h>
#include <inttypes.h>
#include <pthread.h>

static pthread_mutex_t ucs_counters_mutex = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t ucs_counters_list  = UCS_LIST_INITIALIZER(&ucs_counters_list);

void ucs_counters_add(ucs_counters_t *counters, const ucs_counters_class_t *class_desc,
                      const char *name, const uint64_t *values)
{
    counters->class_desc = class_desc;
    counters->values     = values;
    ucs_str_copy(counters->name, sizeof(counters->name), name);

    pthread_mutex_lock(&ucs_counters_mutex);
    ucs_list_add_tail(&ucs_counters_list, &counters->link);
    pthread_mutex_unlock(&ucs_counters_mutex);
}

void ucs_counters_remove(ucs_counters_t *counters)
{
    pthread_mutex_lock(&ucs_counters_mutex);
    ucs_list_del(&counters->link);
    pthread_mutex_unlock(&ucs_counters_mutex);
}

static void ucs_counters_dump_text(FILE *stream, const ucs_counters_t *counters)
{
    uint64_t value;
    unsigned i;

    for (i = 0; i < counters->class_desc->count; ++i) {
        value = ucs_counter_get(&counters->values[i]);
        if (value != 0) {
            fprintf(stream, "%s %s %s %" PRIu64 "\n", counters->class_desc->name, counters->name,
                    counters->class_desc->counters[i], value);
        }
    }
}

static void ucs_counters_dump_json(FILE *stream, const ucs_counters_t *counters)
{
    unsigned i;

    fputs("{\"class\": ", stream);
    ucs_report_string(stream, counters->class_desc->name, SIZE_MAX);
    fputs(", \"object\": ", stream);
    ucs_report_string(stream, counters->name, SIZE_MAX);
    fputs(", \"counters\": {", stream);
    for (i = 0; i < counters->class_desc->count; ++i) {
        fputs((i > 0) ? ", " : "", stream);
        ucs_report_string(stream, counters->class_desc->counters[i], SIZE_MAX);
        fprintf(stream, ": %" PRIu64, ucs_counter_get(&counters->values[i]));
    }
    fputs("}}", stream);
}

void ucs_counters_dump(FILE *stream, ucs_counters_format_t format)
{
    const char *separator = "[";
    ucs_counters_t *counters;

    pthread_mutex_lock(&ucs_counters_mutex);
    ucs_list_for_each(counters, &ucs_counters_list, link) {
        if (format == UCS_COUNTERS_TEXT) {
            ucs_counters_dump_text(stream, counters);
            continue;
        }
        fputs(separator, stream);
        ucs_counters_dump_json(stream, counters);
        separator = ",\n ";
    }
    if (format == UCS_COUNTERS_JSON) {
        fputs((separator[0] == '[') ? "[]\n" : "]\n", stream);
    }
    pthread_mutex_unlock(&ucs_counters_mutex);
}
