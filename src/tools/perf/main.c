/* Halyard: ucx_perftest, the measuring tool.
 *
 * Uses the public interface <ucp/api/ucp.h> only, so it measures any libucp, but for the tests of
 * one layer: loops_ofi.c and loops_uct.c.
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
    int status, is_local, is_remote;

    tool_stdout_keep();
    status = perf_options_parse(argc, argv, &options);
    if (status != PERF_EXIT_OK) {
        return status;
    }
    is_local  = (options.mode == PERF_MODE_SELF) || (options.mode == PERF_MODE_LOOPBACK);
    is_remote = (options.mode == PERF_MODE_SERVER) || (options.mode == PERF_MODE_CLIENT);
    perf_note_quiet(options.quiet);
    if (is_remote && options.use_ranks && perf_ranks_find(&ranks)) {
        return perf_ranks_main(&options, &ranks);
    }
    if (is_local) {
        (void)setenv("UCX_NET_ADDRESS", "n", 0); /* nobody here is on another host */
    }
    if ((is_local || (options.mode == PERF_MODE_CLIENT)) && (perf_plot_check(&options) != 0)) {
        return PERF_EXIT_FAILED;
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
