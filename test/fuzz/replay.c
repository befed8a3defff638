/* Halyard: fuzzing: runs every target over its corpus: what was found once is not to come back.
 *
 *   replay [TARGET FILE...]
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX 65536

static const struct {
    const char *name;
    int (*run)(const uint8_t *data, size_t size);
} targets[] = {{"address", fuzz_address},
               {"rkey", fuzz_rkey},
               {"messages", fuzz_messages},
               {"conn", fuzz_conn},
               {"config", fuzz_config}};

#define NUM_TARGETS (sizeof(targets) / sizeof(targets[0]))

static int run_file(unsigned target, const char *path)
{
    static uint8_t buffer[FILE_MAX];
    FILE *file = fopen(path, "rb");
    uint8_t *data;
    size_t size;

    if (file == NULL) {
        fprintf(stderr, "%s: %m\n", path);
        return 0;
    }
    size = fread(buffer, 1, sizeof(buffer), file);
    fclose(file);
    data = malloc((size > 0) ? size : 1); /* exactly, for AddressSanitizer */
    fuzz_expect(data != NULL, "no memory");
    memcpy(data, buffer, size);
    printf("%s %s\n", targets[target].name, path);
    fflush(stdout);
    (void)targets[target].run(data, size);
    free(data);
    return 1;
}

static unsigned run_corpus(unsigned target, const char *root)
{
    unsigned count = 0;
    char path[4096];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/test/fuzz/corpus/%s", root, targets[target].name);
    dir = opendir(path);
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/test/fuzz/corpus/%s/%s", root, targets[target].name,
                     entry->d_name);
            count += (unsigned)run_file(target, path);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *root = getenv("HALYARD_SRCDIR");
    unsigned passed = 0, failed = 0;
    unsigned target, count;
    int i;

    for (target = 0; target < NUM_TARGETS; ++target) {
        if (argc > 1) {
            for (i = 2; (strcmp(argv[1], targets[target].name) == 0) && (i < argc); ++i) {
                passed += (unsigned)run_file(target, argv[i]);
            }
            continue;
        }
        count   = run_corpus(target, (root != NULL) ? root : ".");
        passed += count;
        if (count == 0) {
            printf("%s: no corpus\n", targets[target].name);
            ++failed;
        }
    }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
