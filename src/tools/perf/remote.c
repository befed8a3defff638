/* Halyard: server and client on two machines or in two shells of one, or as two threads of one
 * process (-l).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "run.h"
#include "watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int perf_bind(const int *cpus, unsigned count, perf_session_t *session)
{
    if (perf_pin_check(cpus, count) != 0) {
        return -1;
    }
    session->cpu_count = count;
    memmove(session->cpus, cpus, count * sizeof(*cpus));
    if (count > 0) {
        (void)perf_pin_to(cpus[0]);
    }
    return 0;
}

/* How many of the processors that -c names the threads of one side take. */
static unsigned perf_lane_cpus(const perf_options_t *options)
{
    return (options->cpu_count < options->params.threads) ? options->cpu_count :
                                                            options->params.threads;
}

void perf_lanes_bind(perf_session_t *session, const perf_options_t *options, unsigned first)
{
    session->cpu_count = perf_lane_cpus(options);
    session->cpu_first = first;
    memcpy(session->cpus, options->cpus, sizeof(session->cpus));
}

int perf_server_main(const perf_options_t *options)
{
    static perf_session_t session;
    unsigned wait_s = options->timeout_given ? options->timeout_s : 0;
    int listen_fd, status;

    perf_watch_init(NULL, options->timeout_s + 2);
    if (perf_bind(options->cpus, options->cpu_count, &session) != 0) {
        return PERF_EXIT_FAILED;
    }
    listen_fd = perf_oob_listen(options->port, options->ipv6);
    if (listen_fd < 0) {
        return PERF_EXIT_FAILED;
    }
    perf_note("waiting for a client on port %u (there: ucx_perftest THIS_HOST -t TEST; both "
              "processes here: ucx_perftest --self)", options->port);
    status = perf_oob_accept(listen_fd, wait_s, (int)options->timeout_s * 1000,
                             &session.channel);
    close(listen_fd);
    if (status != 0) {
        return PERF_EXIT_FAILED;
    }
    perf_note("client: %s", session.channel.peer);
    return perf_follow(&session);
}

int perf_client_main(const perf_options_t *options)
{
    static perf_session_t session;

    perf_watch_init(NULL, options->timeout_s + 2);
    if (perf_bind(options->cpus, perf_lane_cpus(options), &session) != 0) {
        return PERF_EXIT_FAILED;
    }
    perf_watch_stage("connecting to %s", options->host);
    if (perf_oob_connect(options->host, options->port, options->ipv6,
                         (int)options->timeout_s * 1000, &session.channel) != 0) {
        return PERF_EXIT_FAILED;
    }
    return perf_lead(&session, options, session.cpus, session.cpu_count);
}

/* The side of -l that serves. */
static void *follow(void *arg)
{
    perf_session_t *session = arg;

    perf_note_quiet(1);
    if (perf_bind(session->cpus, session->cpu_count, session) == 0) {
        (void)perf_follow(session);
    }
    perf_oob_close(&session->channel);
    return NULL;
}

int perf_loopback_main(const perf_options_t *options)
{
    static perf_session_t sessions[2];
    int code = PERF_EXIT_FAILED;
    int cpus[2], ends[2], i;
    pthread_t thread;

    perf_watch_init(NULL, options->timeout_s);
    if (perf_pin_check(options->cpus, options->cpu_count) != 0) {
        return PERF_EXIT_FAILED;
    }
    if (options->cpu_count > 1) {
        memcpy(cpus, options->cpus, sizeof(cpus));
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        perf_error("socketpair: %s", strerror(errno));
        return PERF_EXIT_FAILED;
    }
    for (i = 0; i < 2; ++i) {
        perf_oob_wrap(ends[i], "the other thread", PERF_OOB_WATCHED_MS, &sessions[i].channel);
        if (options->params.threads > 1) { /* those of each side, as with --self */
            perf_lanes_bind(&sessions[i], options, (unsigned)i);
        } else if ((options->cpu_count > 1) || (perf_pin_choose(cpus) > 0)) {
            sessions[i].cpus[0]   = cpus[i];
            sessions[i].cpu_count = 1;
        }
    }
    if (pthread_create(&thread, NULL, follow, &sessions[1]) != 0) {
        perf_error("cannot start a thread");
        return PERF_EXIT_FAILED;
    }
    if (perf_bind(sessions[0].cpus, sessions[0].cpu_count, &sessions[0]) == 0) {
        code = (options->params.threads > 1) ?
               perf_lead(&sessions[0], options, sessions[0].cpus, sessions[0].cpu_count) :
               perf_lead(&sessions[0], options, cpus, 2 * sessions[0].cpu_count);
    }
    perf_oob_close(&sessions[0].channel);
    pthread_join(thread, NULL);
    return code;
}
