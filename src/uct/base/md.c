/* Halyard: memory domains: their life and the configuration of transports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/base/base.h>

#include <ucs/sys/sys.h>
#include <string.h>

void *uct_object_alloc(size_t size)
{
    void *object = ucs_sys_memalign(UCS_CACHE_LINE_SIZE, size);

    if (object != NULL) {
        memset(object, 0, size);
    }
    return object;
}

/* A transport's configuration: a copy of another one, or (NULL) what the user has set. NULL where
 * it has no options. */
static ucs_status_t uct_config_make(const uct_tl_t *tl, const void *other, const char *app_prefix,
                                    void **config_p)
{
    ucs_status_t status;
    void *config;

    if ((tl->config_rows == NULL) || (tl->config_size == 0)) {
        *config_p = NULL;
        return UCS_OK;
    }

    config = ucs_sys_calloc(1, tl->config_size);
    if (config == NULL) {
        ucs_error("no memory for the configuration of transport %s", tl->name);
        return UCS_ERR_NO_MEMORY;
    }

    status = (other != NULL) ? ucs_config_copy(config, other, tl->config_rows) :
             ucs_config_fill(config, tl->config_rows, app_prefix, tl->config_prefix, 0);
    if (status != UCS_OK) {
        if (other != NULL) {
            ucs_error("no memory to copy the configuration of transport %s", tl->name);
        }
        ucs_sys_free(config);
        return status;
    }

    *config_p = config;
    return UCS_OK;
}

ucs_status_t uct_config_read(const uct_tl_t *tl, const char *app_prefix, void **config_p)
{
    return uct_config_make(tl, NULL, app_prefix, config_p);
}

void uct_config_release(const uct_tl_t *tl, void *config)
{
    if (config != NULL) {
        ucs_config_release(config, tl->config_rows);
        ucs_sys_free(config);
    }
}

ucs_status_t uct_md_open(const uct_tl_t *tl, const void *config, uct_md_t **md_p)
{
    ucs_status_t status;
    uct_md_t *md;

    ucs_assert(tl->md_size >= sizeof(*md));

    md = uct_object_alloc(tl->md_size);
    if (md == NULL) {
        ucs_diag("no memory for the memory domain of transport %s", tl->name);
        return UCS_ERR_NO_MEMORY;
    }

    md->tl = tl;
    status = uct_config_make(tl, config, NULL, &md->config);
    if (status != UCS_OK) {
        ucs_sys_free(md);
        return status;
    }

    status = (tl->md.open != NULL) ? tl->md.open(md) : UCS_OK;
    if (status != UCS_OK) {
        uct_md_close(md);
        return status;
    }

    *md_p = md;
    return UCS_OK;
}

void uct_md_close(uct_md_t *md)
{
    if (md->tl->md.close != NULL) {
        md->tl->md.close(md);
    }
    uct_config_release(md->tl, md->config);
    ucs_sys_free(md);
}
