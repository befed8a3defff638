/* Halyard: fuzzing: the configuration: values of options, ucx.conf, UCX_FAULT.
 *
 * The first byte chooses; the rest is text. Values are given line by line as NAME=VALUE.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "fuzz.h"

#include <ucs/config/file.h>
#include <ucs/debug/fault.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads and prints all that there is now. */
static void fuzz_config_show(ucp_config_t *config)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);

    fuzz_expect(stream != NULL, "no memory");
    ucp_config_print(config, stream, "fuzz", UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC);
    fclose(stream);
    free(text);
}

static void fuzz_config_file(const char *text, size_t length)
{
    ucp_config_t *config;

    (void)ucs_config_file_parse("fuzz", text, length);
    if (ucp_config_read(NULL, NULL, &config) == UCS_OK) {
        fuzz_config_show(config);
        ucp_config_release(config);
    }
    ucs_config_file_clear(0);
}

static void fuzz_config_values(char *text)
{
    ucp_config_t *config;
    char *line, *value, *rest;

    ucs_config_file_clear(0);
    fuzz_expect(ucp_config_read(NULL, NULL, &config) == UCS_OK, "no configuration");
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        value = strchr(line, '=');
        /* Not where to log: that would write files of any name. */
        if ((value != NULL) && (strstr(line, "LOG") == NULL)) {
            *value = '\0';
            (void)ucp_config_modify(config, line, value + 1);
        }
    }
    fuzz_config_show(config);
    ucp_config_release(config);
}

int fuzz_config(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1) {
        return 0;
    }
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    text = malloc(size);
    fuzz_expect(text != NULL, "no memory");
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] & 3) {
    case 0:
        fuzz_config_file(text, size - 1);
        break;
    case 1:
        (void)ucs_fault_set_list(text);
        ucs_fault_clear(NULL);
        break;
    default:
        fuzz_config_values(text);
        break;
    }
    free(text);
    return 0;
}
