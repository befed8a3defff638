/* Halyard: ucx_perftest, the measuring tool.
 *
 * Uses the public interface <ucp/api/ucp.h> only, so it measures any libucp.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "run.h"
#include "tools/stdout.h"
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static perf_options_t options;
    perf_ranks_t ranks;
    int status;

    tool_stdout_keep();
    status = perf_options_parse(argc, argv, &options);
    if (status != PERF_EXIT_OK) {
        return status;
    }
    if (((options.mode == PERF_MODE_SERVER) || (options.mode == PERF_MODE_CLIENT)) &&
        options.use_ranks && perf_ranks_find(&ranks)) {
        return perf_ranks_main(&options, &ranks);
    }
    if ((options.mode == PERF_MODE_SELF) || (options.mode == PERF_MODE_LOOPBACK)) {
        (void)setenv("UCX_NET_ADDRESS", "n", 0); /* nobody here is on another host */
    }
    switch (options.mode) {
    case PERF_MODE_HELP:
        perf_options_help(stdout);
        return (perf_stdout_check() == 0) ? PERF_EXIT_OK : PERF_EXIT_FAILED;
    case PERF_MODE_COMPARE:
        return perf_compare(&options);
    case PERF_MODE_SELF:
        return perf_self_main(&options);
    case PERF_MODE_LOOPBACK:
        return perf_loopback_main(&options);
    case PERF_MODE_CLIENT:
        return perf_client_main(&options);
    case PERF_MODE_SERVER:
        return perf_server_main(&options);
    }
    return PERF_EXIT_USAGE;
}
