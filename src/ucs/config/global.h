/* Halyard: the options that belong to the process and not to a context: logging, warnings,
 * counters.
 *
 * Read once, on first use, which is often the first log message. Any thread.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_GLOBAL_H
#define UCS_CONFIG_GLOBAL_H

#include <ucs/config/parser.h>

BEGIN_C_DECLS

/* UCX_STATS_DEST: empty, "stdout", "stderr", or this and a file's name. */
#define UCS_STATS_DEST_FILE "file:"

/* UCX_STATS_FORMAT */
enum {
    UCS_STATS_FORMAT_TEXT,
    UCS_STATS_FORMAT_JSON
};

typedef struct {
    char   *log_level;
    char   *log_file;
    size_t log_file_size;
    char   *log_file_filter;
    int    warn_unused_env_vars;
    char   *stats_dest;
    unsigned stats_format;
} ucs_global_opts_t;

extern const ucs_config_row_t ucs_global_rows[];

/* The options; never NULL. While one thread reads them for the first time, others (and messages
 * that this reading itself causes) see the defaults. */
const ucs_global_opts_t *ucs_global_opts(void);

/* From the first call on a forked child finds the configuration whole, and nobody who holds its
 * locks. */
void ucs_config_hold_over_fork(void);

/* A copy, with texts that nobody else frees, to be released by ucs_config_release.
 * UCS_ERR_NO_MEMORY: there is none. Any thread at any time. */
ucs_status_t ucs_global_opts_copy(ucs_global_opts_t *copy);

/* Change one option and put it into effect. UCS_ERR_NO_ELEM (not logged): not one of these.
 * Otherwise as ucs_config_set. Any thread at any time. */
ucs_status_t ucs_global_opts_set(const char *name, const char *value);

/* Read everything again, from the environment and files. For tests; one thread at a time. */
ucs_status_t ucs_global_opts_reload(void);

END_C_DECLS

#endif
