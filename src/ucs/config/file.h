/* Halyard: ucx.conf: variables from a file, for what the environment does not say.
 *
 * Lines KEY=VALUE with the same names as in the environment; '#' begins a comment line; blanks
 * around key and value do not matter. Sections ("[...]") choose by machine type elsewhere; here
 * their lines are skipped, with a warning.
 *
 * Read once, when the first table is filled, in this order, a later file overriding an earlier one:
 *     <sysconfdir>/ucx/ucx.conf    <folder of this library>/../etc/ucx/ucx.conf
 *     $HOME/ucx.conf               $UCX_CONFIG_DIR/ucx.conf      ./ucx.conf
 * A file is refused, with a warning, if others may write to it or if it is neither root's nor the
 * user's; the one in the working directory must be the user's own, or it is passed over in silence:
 * whoever may write to a folder must not configure the programs that others start there.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_CONFIG_FILE_H
#define UCS_CONFIG_FILE_H

#include <ucs/type/status.h>
#include <pthread.h>
#include <stddef.h>

BEGIN_C_DECLS

/* A file of this size in bytes or more is refused. */
#define UCS_CONFIG_FILE_MAX 65536

/* For who holds it over a fork (global.c). */
extern pthread_mutex_t ucs_config_file_mutex;

/* The value that the files give to a variable, NULL if none does; *place_p (may be NULL) becomes
 * "file:line". Both stay valid, but for what the functions for tests below do. Reads the files on
 * first use, which may block on them. Any thread. */
const char *ucs_config_file_get(const char *key, const char **place_p);

/* The i-th variable of the files, and its place as above; NULL behind the last. The order is that
 * of reading. */
const char *ucs_config_file_key(size_t i, const char **place_p);

/* For tests: read one more file, as if it were the last of the list above, whoever owns it.
 * UCS_ERR_NO_ELEM: it is not there (not logged). UCS_ERR_INVALID_PARAM, UCS_ERR_EXCEEDS_LIMIT,
 * UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY: logged; lines up to the problem count. */
ucs_status_t ucs_config_file_load(const char *path);

/* For tests: take in variables from `length` bytes of text; `name` is for messages. */
ucs_status_t ucs_config_file_parse(const char *name, const char *text, size_t length);

/* Forget all variables and begin with the list of files anew on the next use. For tests; no other
 * thread may be using the configuration. With `search` 0 the list of files is not read again. */
void ucs_config_file_clear(int search);

END_C_DECLS

#endif
