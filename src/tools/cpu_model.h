/* Halyard: what the tools call the processor.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef CPU_MODEL_H
#define CPU_MODEL_H

#include <stdio.h>
#include <string.h>

/* Value of the first line of /proc/cpuinfo that starts with one of the names that architectures
 * use for the model; "unknown" without. */
static inline void tool_cpu_model(char *text, size_t size)
{
    static const char *const names[] = {"model name", "Model", "CPU part", "uarch"};
    FILE *file                       = fopen("/proc/cpuinfo", "r");
    char line[256], *value           = NULL;
    unsigned i;

    while ((file != NULL) && (value == NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        for (i = 0; (i < sizeof(names) / sizeof(names[0])) && (value == NULL); ++i) {
            value = (strncmp(line, names[i], strlen(names[i])) == 0) ? strchr(line, ':') : NULL;
        }
    }
    if (value != NULL) {
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\r\n")] = '\0';
    }
    snprintf(text, size, "%s", (value != NULL) ? value : "unknown");
    if (file != NULL) {
        fclose(file);
    }
}

#endif
