/* Halyard: which variables exist: registered tables, and names of UCX that mean nothing here.
 *
 * A variable UCX_... that nobody knows is most likely a slip: it earns one warning in the process's
 * life, with the nearest name. Names that users of UCX have in their job scripts and that have no
 * counterpart here are accepted in silence. UCX_WARN_UNUSED_ENV_VARS=n stops the warnings.
 *
 * Any thread.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_NAMES_H
#define UCS_CONFIG_NAMES_H

#include <ucs/config/parser.h>
#include <pthread.h>

BEGIN_C_DECLS

/* Tables that can be registered. */
#define UCS_CONFIG_TABLES_MAX 64

typedef struct {
    const char             *title;
    const char             *prefix;  /* list of prefixes, as for ucs_config_fill */
    const ucs_config_row_t *rows;
} ucs_config_table_t;

/* For who holds it over a fork (global.c): of tables, and of names that were warned of. */
extern pthread_mutex_t ucs_config_names_mutex;

/* Make a table known; the three objects must live until it is removed. A table that is known
 * already is left as it is. UCS_ERR_EXCEEDS_LIMIT: too many. */
ucs_status_t ucs_config_table_add(const char *title, const char *prefix,
                                  const ucs_config_row_t *rows);

/* Forget a table. For tests. */
void ucs_config_table_remove(const ucs_config_row_t *rows);

/* The i-th table; 0 behind the last. */
int ucs_config_table_get(unsigned i, ucs_config_table_t *table_p);

/* True if a table has this variable; the name is without UCX_. */
int ucs_config_name_is_used(const char *name);

/* True if UCX has a variable of this name (without UCX_) which has no effect here. */
int ucs_config_name_is_foreign(const char *name);

/* The nearest name that means something here, without UCX_, into buf; 0 if nothing is near. */
int ucs_config_name_nearest(const char *name, char *buf, size_t max);

/* Look through environment and files and warn of each unknown variable that has not been warned of
 * before, UCX_... and <app_prefix>_UCX_... (app_prefix may be NULL). Call it when all tables are
 * registered. Returns how many were found this time. */
unsigned ucs_config_warn_unknown(const char *app_prefix);

END_C_DECLS

#endif
