/* Halyard: prints the settings that the library takes, for guest.sh.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <stdio.h>

int main(void)
{
    ucp_config_t *config;

    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        return 1;
    }
    ucp_config_print(config, stdout, NULL, UCS_CONFIG_PRINT_CONFIG);
    ucp_config_release(config);
    return 0;
}
