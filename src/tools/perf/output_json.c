/* Halyard: results, start-up and run record as one JSON object (RFC 8259).
 *
 * Strings come from the environment and the command line: control characters, quotes and bytes
 * that are not UTF-8 are escaped, so that the file is valid whatever they hold.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "report.h"

#include <math.h>
#include <string.h>

/* Length of the valid UTF-8 sequence at text, 0 if it is none (RFC 3629). */
static unsigned utf8_length(const unsigned char *text)
{
    unsigned length, i;

    if (text[0] < 0x80) {
        return 1;
    }
    length = (text[0] >= 0xc2 && text[0] <= 0xdf) ? 2 :
             (text[0] >= 0xe0 && text[0] <= 0xef) ? 3 :
             (text[0] >= 0xf0 && text[0] <= 0xf4) ? 4 : 0;
    for (i = 1; i < length; ++i) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (((text[0] == 0xe0) && (text[1] < 0xa0)) || ((text[0] == 0xed) && (text[1] > 0x9f)) ||
        ((text[0] == 0xf0) && (text[1] < 0x90)) || ((text[0] == 0xf4) && (text[1] > 0x8f))) {
        return 0;
    }
    return length;
}

static void put_string(FILE *file, const char *string)
{
    const unsigned char *text = (const unsigned char*)string;
    unsigned length;

    fputc('"', file);
    while (*text != '\0') {
        length = utf8_length(text);
        if ((*text == '"') || (*text == '\\')) {
            fprintf(file, "\\%c", *text);
        } else if ((*text < 0x20) || (*text == 0x7f) || (length == 0)) {
            fprintf(file, "\\u%04x", *text);
            length = 1;
        } else {
            fwrite(text, 1, length, file);
        }
        text += length;
    }
    fputc('"', file);
}

static void put_text(FILE *file, const char *name, const char *value, int last)
{
    fprintf(file, "    \"%s\": ", name);
    put_string(file, value);
    fputs(last ? "\n" : ",\n", file);
}

/* JSON has no NaN. */
static void put_number(FILE *file, const char *name, double value)
{
    if (isfinite(value)) {
        fprintf(file, ", \"%s\": %.9g", name, value);
    } else {
        fprintf(file, ", \"%s\": null", name);
    }
}

static void put_record(FILE *file, const perf_record_t *record)
{
    int i;

    fputs("  \"record\": {\n", file);
    put_text(file, "date", record->date, 0);
    put_text(file, "library", record->library, 0);
    put_text(file, "library_file", record->library_file, 0);
    put_text(file, "cpu", record->cpu, 0);
    fprintf(file, "    \"online_cpus\": %d,\n", record->online_cpus);
    put_text(file, "bound_to", record->cpus, 0);
    put_text(file, "governor", record->governor, 0);
    put_text(file, "kernel", record->kernel, 0);
    put_text(file, "command", record->command, 0);
    fputs("    \"environment\": [", file);
    for (i = 0; i < record->env_count; ++i) {
        fputs((i > 0) ? ", " : "", file);
        put_string(file, record->env[i]);
    }
    fputs("]\n  },\n", file);
}

static const char *kind_name(perf_kind_t kind)
{
    switch (kind) {
    case PERF_KIND_LATENCY:
        return "latency";
    case PERF_KIND_BANDWIDTH:
        return "bandwidth";
    case PERF_KIND_RATE:
        return "rate";
    case PERF_KIND_LIMIT:
        return "limit";
    }
    return "";
}

static void put_result(FILE *file, const perf_result_t *result)
{
    unsigned i;

    fputs("    {\"test\": ", file);
    put_string(file, result->test);
    fprintf(file, ", \"kind\": \"%s\", \"size\": %llu, \"window\": %u, \"threads\": %u, "
            "\"iterations\": %llu, \"rounds\": %u, \"disturbed\": %u", kind_name(result->kind),
            (unsigned long long)result->size, result->window, result->threads,
            (unsigned long long)result->iterations, result->rounds, result->disturbed);
    put_number(file, "us", result->us);
    put_number(file, "us_best", result->us_best);
    put_number(file, "bytes_per_second", result->bandwidth);
    put_number(file, "messages_per_second", result->rate);
    if (result->percent_count > 0) {
        fputs(", \"percentiles\": {", file);
        for (i = 0; i < result->percent_count; ++i) {
            fprintf(file, "%s\"%g\": %.6g", (i > 0) ? ", " : "", result->percents[i],
                    result->percent_us[i]);
        }
        fputs("}", file);
    }
    if (result->limit[0] != '\0') {
        fputs(", \"limit\": ", file);
        put_string(file, result->limit);
        put_number(file, "limit_us", result->limit_us);
        put_number(file, "limit_us_best", result->limit_best);
        put_number(file, "ratio", result->ratio);
        put_number(file, "ratio_best", result->ratio_best);
    }
    fprintf(file, ", \"validated\": %s, \"unreliable\": %s}",
            result->validated ? "true" : "false", result->unreliable ? "true" : "false");
}

static void put_startup(FILE *file, const perf_report_t *report)
{
    const perf_startup_t *startup = &report->startup;

    if (!startup->valid) {
        return;
    }
    fprintf(file, "  \"startup\": {\"runs\": %u", report->startup_runs);
    put_number(file, "init_us", startup->init_ns / 1e3);
    put_number(file, "first_message_us", startup->first_ns / 1e3);
    put_number(file, "first_endpoint_us", startup->ep_first_ns / 1e3);
    put_number(file, "endpoint_us", startup->ep_each_ns / 1e3);
    put_number(file, "endpoint_bytes", startup->ep_each_bytes);
    fprintf(file, ", \"endpoints\": %u", startup->endpoints);
    put_number(file, "worker_shared_mapped_bytes", startup->shared_mapped);
    put_number(file, "worker_shared_resident_bytes", startup->shared_resident);
    put_number(file, "worker_private_mapped_bytes", startup->private_mapped);
    put_number(file, "worker_private_resident_bytes", startup->private_resident);
    put_number(file, "worker_address_bytes", startup->address_bytes);
    fputs("},\n", file);
}

int perf_json_write(const perf_report_t *report, FILE *file)
{
    unsigned i;

    fputs("{\n  \"format\": \"halyard-perftest-1\",\n", file);
    put_record(file, &report->record);
    fputs("  \"statistic\": ", file);
    put_string(file, report->statistic);
    fputs(",\n", file);
    put_startup(file, report);
    fputs("  \"results\": [\n", file);
    for (i = 0; i < report->count; ++i) {
        put_result(file, &report->results[i]);
        fputs((i + 1 < report->count) ? ",\n" : "\n", file);
    }
    fputs("  ]\n}\n", file);
    return ferror(file) ? -1 : 0;
}
