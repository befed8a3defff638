/* Halyard: lists of sizes on the command line.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "options.h"
#include "watch.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One size with an optional unit; moves *text_p behind it. */
static int size_parse(const char **text_p, uint64_t *size_p)
{
    static const char units[] = "kmg";
    unsigned long long value;
    unsigned shift = 0;
    const char *unit;
    char *end;

    if (!isdigit((unsigned char)**text_p)) {
        return -1;
    }
    errno = 0;
    value = strtoull(*text_p, &end, 10);
    if (errno != 0) {
        return -1;
    }
    unit = (*end != '\0') ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        ++end;
        if (tolower((unsigned char)*end) == 'b') {
            ++end;
        }
    }
    if (value > (UINT64_MAX >> shift)) {
        return -1;
    }
    *size_p = value << shift;
    *text_p = end;
    return 0;
}

static int sizes_add(perf_options_t *options, uint64_t size)
{
    if (options->size_count == PERF_SIZES_MAX) {
        return perf_error("option -s: more than %u sizes", PERF_SIZES_MAX);
    }
    if (size > PERF_MESSAGE_MAX) {
        return perf_error("option -s: a message has at most %llu bytes here (buffers are "
                          "bounded), not %llu", (unsigned long long)PERF_MESSAGE_MAX,
                          (unsigned long long)size);
    }
    options->sizes[options->size_count++] = size;
    return 0;
}

/* Both ends, and the powers of two between them. */
static int sizes_add_range(perf_options_t *options, uint64_t from, uint64_t to)
{
    uint64_t size = from, next;

    if (from > to) {
        return perf_error("option -s: the range %llu:%llu runs downwards",
                          (unsigned long long)from, (unsigned long long)to);
    }
    while (sizes_add(options, size) == 0) {
        if (size == to) {
            return 0;
        }
        for (next = 1; next <= size; next *= 2) {
        }
        size = (next < to) ? next : to;
    }
    return -1;
}

int perf_sizes_parse(perf_options_t *options, const char *text)
{
    const char *next = text;
    uint64_t from, to;

    options->size_count = 0;
    while (size_parse(&next, &from) == 0) {
        to = from;
        if (*next == ':') {
            ++next;
            if (size_parse(&next, &to) != 0) {
                break;
            }
        }
        if (sizes_add_range(options, from, to) != 0) {
            return -1;
        }
        if (*next == '\0') {
            return 0;
        }
        if (*next++ != ',') {
            break;
        }
    }
    return perf_error("option -s wants sizes such as 8,64,1k or a range such as 8:1m, not '%s'",
                      text);
}

const char *perf_sizes_default(const perf_options_t *options)
{
    if (((options->op >= 0) && !options->audit) || (options->mode == PERF_MODE_SERVER)) {
        return "8"; /* the client tells a server */
    }
    if (!options->audit && perf_memory_any_device(options->params.memory)) {
        return "8,64,1k,8k,64k,256k,1m,4m,16m";
    }
    return options->quick ? "8,64,1k,8k,64k,1m" :
           options->audit ? "8:16m" :
                            "0,8,64,256,1k,4k,8k,16k,64k,256k,1m,4m,16m";
}
