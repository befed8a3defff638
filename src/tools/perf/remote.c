/* Halyard: server and client on two machines, or in two shells of one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "pin.h"
#include "run.h"
#include "watch.h"

#include <string.h>
#include <unistd.h>

/* Binds this process, or leaves it to the lanes when there are several threads. */
static int bind_process(const perf_options_t *options, perf_session_t *session)
{
    unsigned i;
    int error;

    for (i = 0; i < options->cpu_count; ++i) {
        session->cpus[i] = options->cpus[i];
    }
    session->cpu_count = (int)options->cpu_count;
    if (options->cpu_count == 0) {
        return 0;
    }
    error = perf_pin_to(options->cpus[0]);
    if (error != 0) {
        perf_error("cannot bind to processor %d: %s", options->cpus[0], strerror(error));
        return -1;
    }
    return 0;
}

static int exit_code(const perf_session_t *session, int status)
{
    return ((status != 0) && (session->status == UCS_OK)) ? PERF_EXIT_FAILED :
                                                            perf_exit_code(session->status);
}

int perf_server_main(const perf_options_t *options)
{
    static perf_session_t session;
    unsigned wait_s = options->timeout_given ? options->timeout_s : 0;
    int listen_fd, status;

    perf_watch_init(NULL, options->timeout_s + 2);
    perf_note_quiet(options->quiet);
    if (bind_process(options, &session) != 0) {
        return PERF_EXIT_FAILED;
    }
    listen_fd = perf_oob_listen(options->port, options->ipv6);
    if (listen_fd < 0) {
        return PERF_EXIT_FAILED;
    }
    perf_note("waiting for a client on port %u (there: ucx_perftest THIS_HOST -t TEST; both "
              "processes here: ucx_perftest --self)", options->port);
    perf_watch_pause();
    status = perf_oob_accept(listen_fd, wait_s, (int)options->timeout_s * 1000,
                             &session.channel);
    close(listen_fd);
    if (status != 0) {
        return PERF_EXIT_FAILED;
    }
    perf_note("client: %s", session.channel.peer);
    status = perf_session_open(&session);
    if (status == 0) {
        perf_note("test: %s", session.params.test);
        status = perf_session_serve(&session);
    }
    perf_session_close(&session, status == 0);
    return exit_code(&session, status);
}

int perf_client_main(const perf_options_t *options)
{
    static perf_session_t session;
    static perf_report_t report;
    int status;

    perf_watch_init(NULL, options->timeout_s + 2);
    perf_note_quiet(options->quiet);
    if (perf_options_params(options, options->op, &session.params) != 0) {
        return PERF_EXIT_USAGE;
    }
    if (bind_process(options, &session) != 0) {
        return PERF_EXIT_FAILED;
    }
    session.leader = 1;
    report.options = options;
    perf_watch_stage("connecting to %s", options->host);
    if (perf_oob_connect(options->host, options->port, options->ipv6,
                         (int)options->timeout_s * 1000, &session.channel) != 0) {
        return PERF_EXIT_FAILED;
    }
    perf_record_fill(&report.record, options, options->cpus, (int)options->cpu_count);
    status = perf_session_open(&session);
    if (status == 0) {
        status = perf_run_test(&session, &report);
    }
    if ((status == 0) && (perf_report_write(&report) != 0)) {
        session.status = UCS_ERR_IO_ERROR;
    }
    perf_session_close(&session, status == 0);
    return exit_code(&session, status);
}
