/* Halyard: loadable parts: $libdir/ucx/lib<layer>_<name>.so.
 *
 * What needs a vendor's library is a module and is loaded when it is wanted and present; its
 * absence is no event. The folder is UCX_MODULE_DIR, or ucx/ beside our own library, or the folder
 * of the installation. A module runs nothing by being loaded: its user asks for a symbol and calls
 * it.
 *
 * Any thread; loading blocks on the file system.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_MODULE_H
#define UCS_SYS_MODULE_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <stddef.h>

BEGIN_C_DECLS

/* Modules that one process can ask for. */
#define UCS_MODULES_MAX 32

/* What became of a module. */
typedef struct {
    char         layer[16];
    char         name[32];
    char         path[512];    /* of the file; empty if there is none */
    ucs_status_t status;       /* UCS_OK, UCS_ERR_NO_ELEM (no file), UCS_ERR_UNSUPPORTED (did not
                                * load) */
    char         reason[256];  /* why it is not there, for people; empty if it is */
} ucs_module_info_t;

/* Load a module, or find it loaded; *handle_p stays valid until the process ends. `layer` and
 * `name` are of letters, digits and '_', otherwise UCS_ERR_INVALID_PARAM. UCS_ERR_NO_ELEM: no such
 * file; UCS_ERR_UNSUPPORTED: the file cannot be loaded, most often because a library that it needs
 * is not installed (logged as diag); both are remembered and not tried again.
 * UCS_ERR_EXCEEDS_LIMIT: too many modules. */
ucs_status_t ucs_module_load(const char *layer, const char *name, void **handle_p);

/* A symbol of a loaded module, NULL if it has none of that name. */
void *ucs_module_symbol(void *handle, const char *symbol);

/* The path of a folder: `below` ("/...") that of the library, or of the program where it is linked
 * statically. Not zero if it is known and fits. */
int ucs_module_own_folder(char *folder, size_t max, const char *below);

/* The i-th module that was asked for. UCS_ERR_NO_ELEM behind the last. */
ucs_status_t ucs_module_query(unsigned i, ucs_module_info_t *info_p);

END_C_DECLS

#endif
